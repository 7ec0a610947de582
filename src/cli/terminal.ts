// What commands share in talking to a terminal: colours where they are wanted, and pipes that close.
import { env } from '../base/environment.js';

/** Whether a stream shows colours: a terminal, and NO_COLOR is not set. */
const coloured = (stream: NodeJS.WriteStream): boolean =>
  stream.isTTY === true && env('NO_COLOR') === undefined && env('TERM') !== 'dumb';

const CODES = { bold: [1, 22], dim: [2, 22], red: [31, 39], green: [32, 39], cyan: [36, 39] } as const;
/** Text in a style, on streams that show it. */
export const styled = (text: string, style: keyof typeof CODES, stream: NodeJS.WriteStream = process.stdout): string =>
  coloured(stream) ? `\x1b[${CODES[style][0]}m${text}\x1b[${CODES[style][1]}m` : text;

/** Who reads us may stop reading, as `head` does: that ends the command quietly. */
export function endWithReader(): void {
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED') process.exit(0);
      throw error;
    });
}
