// What a device that draws is told of a step's rows, in words.
import { NOT_READ, type Sequence } from '../sequence.js';
import { type DeviceDraws, DrawRows } from './device-draws.js';
import { DRAW_WORDS, type Placed } from './recorder.js';

/** How the rows that are wanted are drawn. */
export function drawRows(work: readonly Placed[], draws: DeviceDraws): Int32Array | undefined {
  const wanted = work.filter((w) => w.rows > 0);
  if (wanted.length === 0) return undefined;
  const words = new Int32Array(wanted.length * DRAW_WORDS);
  const rows = new DrawRows(words.buffer, 0, wanted.length);
  wanted.forEach(({ sequence, start, tokens, draw }, i) => {
    rows.clear(i);
    if (draw) draws.place(rows, i, { rule: draw, sequence, length: start + tokens.length });
  });
  return words;
}
/** Which of the first tokens only the device knows: those that the last step drew, in the rows that `last` has. */
export function feedRows(flat: readonly Placed[], last: ReadonlyMap<Sequence, number>): Int32Array | undefined {
  const n = flat.filter((w) => w.tokens.length === 1).length;
  if (!flat.some((w) => w.tokens[0] === NOT_READ)) return undefined;
  const words = new Int32Array(n * DRAW_WORDS);
  const rows = new DrawRows(words.buffer, 0, n);
  for (let i = 0; i < n; i++) {
    const { sequence, tokens } = flat[i];
    rows.clear(i);
    rows.begin(i, tokens[0], tokens[0] === NOT_READ ? last.get(sequence) : undefined);
  }
  return words;
}
