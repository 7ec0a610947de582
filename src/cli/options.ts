// What commands share in reading their options: numbers, and names that were mistyped.
import { ArgumentError } from '../base/errors.js';

/** A number of an option, or an error that names it. */
export function numberOf(command: string, name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n))
    throw new ArgumentError(`${command}: --${name} ${JSON.stringify(text)} is not a number`);
  return n;
}
/** A whole number of an option, within bounds. */
export function wholeOf(
  command: string,
  name: string,
  text: string | undefined,
  least = 0,
  most = Number.MAX_SAFE_INTEGER,
): number | undefined {
  if (text === undefined) return undefined;
  const n = Number(text);
  if (!/^\s*\d+\s*$/.test(text) || n < least || n > most) {
    const bounds = most < Number.MAX_SAFE_INTEGER ? `from ${least} to ${most}` : `from ${least}`;
    throw new ArgumentError(`${command}: --${name} ${JSON.stringify(text)} is not a whole number ${bounds}`);
  }
  return n;
}

/** How many letters must be put in, left out, changed or swapped to make one word of another. */
function edits(a: string, b: string): number {
  const rows = Array.from({ length: a.length + 1 }, (_, i) => [i, ...new Array<number>(b.length).fill(0)]);
  for (let j = 1; j <= b.length; j++) rows[0][j] = j;
  for (let i = 1; i <= a.length; i++)
    for (let j = 1; j <= b.length; j++) {
      const changed = rows[i - 1][j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? rows[i - 2][j - 2] + 1 : changed;
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, changed, swapped);
    }
  return rows[a.length][b.length];
}
/** The known word that was meant, where one is a slip or two away from what was typed, or begins with it. */
export function meant(typed: string, known: readonly string[]): string | undefined {
  const near = known.map((word) => ({
    word,
    far: word.startsWith(typed) && typed.length > 2 ? 1 : edits(typed, word),
  }));
  const [first] = near.sort((a, b) => a.far - b.far);
  return first && first.far <= Math.min(2, typed.length - 1) ? first.word : undefined;
}

/** What Node says of options that a command does not take, in a sentence that says what to do. */
export function usageError(command: string, message: string, known: readonly string[]): string {
  const help = `wick ${command} --help lists them`;
  const unknown = /^Unknown option '(-[^']*)'/.exec(message)?.[1];
  if (unknown !== undefined) {
    const near = meant(unknown, known);
    const advice = near === undefined ? help : `did you mean ${near}? ${help}`;
    return `wick ${command}: there is no option ${unknown}; ${advice}`;
  }
  const ambiguous = /^Option '(?:-\w, )?(--[\w-]+)[^']*' argument is ambiguous/.exec(message)?.[1];
  if (ambiguous !== undefined)
    return `wick ${command}: ${ambiguous} lacks its value; one that begins with a dash is written ${ambiguous}=-1`;
  return `wick ${command}: ${message.replaceAll('\n', ' ')}`;
}
