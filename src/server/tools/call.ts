// What readers of tool calls tell: a call begins, its arguments come in pieces, or what looked like a call is text.

export type CallEvent =
  | { readonly begin: string }
  | { readonly arguments: string }
  | { readonly end: true }
  /** It was no call after all. */
  | { readonly text: string };

/** Reads one block of calls, piece by piece, from behind the mark that opens it. */
export interface CallReader {
  /** The rest is set once the block has ended: text that is not part of it. */
  push(text: string): { readonly events: CallEvent[]; readonly rest?: string };
  /** The answer has ended inside of the block. */
  end(): CallEvent[];
}

/** The JSON schema of each tool's parameters, by the tool's name. */
export type ToolSchemas = ReadonlyMap<string, Readonly<Record<string, unknown>>>;

/** Where the first of some marks stands in a text, or how many characters at its end may be the beginning of one. */
export function findMark(text: string, marks: readonly string[]): { at: number; mark?: string; hold: number } {
  let at = -1;
  let mark: string | undefined;
  for (const m of marks) {
    const found = text.indexOf(m);
    if (found >= 0 && (at < 0 || found < at)) [at, mark] = [found, m];
  }
  if (mark !== undefined) return { at, mark, hold: 0 };
  const longest = Math.min(text.length, Math.max(0, ...marks.map((m) => m.length - 1)));
  for (let hold = longest; hold > 0; hold--)
    if (marks.some((m) => m.startsWith(text.slice(text.length - hold)))) return { at: -1, hold };
  return { at: -1, hold: 0 };
}
