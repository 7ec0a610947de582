// The log: one JSON object a line.

export type Fields = Readonly<Record<string, unknown>>;
/** Where the server writes what happens. */
export interface Log {
  /** Something that happened. */
  info(message: string, fields?: Fields): void;
  /** Something that went wrong. */
  error(message: string, fields?: Fields): void;
}

/** Lines to a stream; nothing that a client sent is part of the line's structure, for JSON quotes it. */
export const jsonLog = (write: (line: string) => void): Log => {
  const line = (level: string, msg: string, fields?: Fields): void =>
    write(`${JSON.stringify({ time: new Date().toISOString(), level, msg, ...fields })}\n`);
  return {
    info: (message, fields) => line('info', message, fields),
    error: (message, fields) => line('error', message, fields),
  };
};
/** Writes nothing. */
export const silentLog: Log = { info: () => {}, error: () => {} };
