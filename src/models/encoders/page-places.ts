// Where words stand on a page: rows of tables for the edges of their boxes, and for how tall and wide these are.
import { ArgumentError } from '../../base/errors.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { EncoderInput } from './encoder.js';

/** Which numbers of a box: its edges, and what lies between two of them. */
const READ = [[0], [1], [2], [3], [3, 1], [2, 0]] as const;

/** Boxes (batch, time, 4) of as many tokens. */
export function checkBoxes({ ids, boxes }: EncoderInput): void {
  const [b, t] = ids.shape;
  if (boxes && (boxes.rank !== 3 || [b, t, 4].some((n, i) => boxes.shape[i] !== n)))
    throw new ArgumentError(
      `encoder: boxes have shape [${boxes.shape.join(', ')}]; of these tokens they are (${b}, ${t}, 4)`,
    );
}
/** Refuses what only models of pages look at. */
export function refusePages({ boxes, pixels }: EncoderInput): void {
  if (boxes || pixels) throw new ArgumentError('encoder: boxes and pixels are for models of pages');
}
/** Boxes that fit, and no picture. */
export function onlyBoxes(input: EncoderInput): void {
  checkBoxes(input);
  if (input.pixels) throw new ArgumentError('encoder: pixels are for models that look at pages; this one reads boxes');
}

/**
 * Of six tables (left, upper, right, lower edge, height, width) the rows that each token's box has, (batch, time, n)
 * each; without boxes all tokens have the first rows. `most`: heights and widths are within it.
 */
export function pageRows(tables: readonly Tensor[], boxes: Tensor | undefined, most?: number): Tensor[] {
  if (!boxes) return tables.map((table) => table.narrow(0, 0, 1).unsqueeze(0));
  const edges = boxes.cast('f32');
  const edge = (i: number): Tensor => edges.narrow(2, i, 1).squeeze(2);
  return READ.map(([one, other], i) => {
    const length = other === undefined ? edge(one) : edge(one).sub(edge(other));
    const kept = other === undefined || most === undefined ? length : length.clamp(0, most);
    const rows = tables[i].indexSelect(0, kept.cast('i32').flatten());
    return rows.reshape([...kept.shape, rows.shape[1]]);
  });
}
