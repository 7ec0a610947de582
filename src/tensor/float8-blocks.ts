// Weights as 8-bit floats (e4m3) with a scale for every 128 values of a row: few activations are multiplied with them
// as they are; for more, products decode some rows at a time, with ordinary ops, and take the memory of one piece.
import { gradEnabled } from './autograd.js';
import { scope } from './scope.js';
import { tensor } from './create.js';
import type { DType } from '../base/dtype.js';
import { sizeOf } from '../base/shape.js';
import { F8_GROUP } from '../ops/quantized.js';
import type { Tensor } from './tensor.js';

/** The largest number of e4m3. */
const LARGEST = 448;
/** Values decoded at a time: 16 MiB of f32 on a host, whose caches are small; 128 MiB on a GPU, where launches cost. */
const pieceOf = (x: Tensor): number => (/^(cpu|reference)/.test(x.device.name) ? 2 ** 22 : 2 ** 25);
/** Up to this many rows, each reads its expert's rows without a look at the choice on the host. */
const LONE_ROWS = 64;
/** Up to this many rows are multiplied with weights as they are, which are read once for some of them. */
const FEW_ROWS = 16;

/** Values [..., n] as e4m3 and scales [..., n / 128] as f32. */
export interface Float8Rows {
  /** The values, each a byte. */
  readonly blocks: Tensor;
  /** What every 128 of them are multiplied by. */
  readonly scales: Tensor;
}

const grouped = (shape: readonly number[]): number[] => [
  ...shape.slice(0, -1),
  (shape.at(-1) as number) / F8_GROUP,
  F8_GROUP,
];

/** Floats as 8 bits each; a group's largest becomes e4m3's largest. */
export function encodeFloat8(x: Tensor): Float8Rows {
  const wide = x.cast('f32').reshape(grouped(x.shape));
  const largest = wide.abs().max([-1], true);
  const scales = largest.eq(0).where(largest.onesLike(), largest.affine(1 / LARGEST, 0));
  return { blocks: wide.div(scales).reshape(x.shape).cast('f8e4m3'), scales: scales.squeeze([scales.rank - 1]).copy() };
}

/** The floats that they stand for. */
export const decodeFloat8 = ({ blocks, scales }: Float8Rows, dtype: DType): Tensor =>
  blocks.cast('f32').reshape(grouped(blocks.shape)).mul(scales.unsqueeze(-1)).reshape(blocks.shape).cast(dtype);

/**
 * `run` over pieces of so many rows, its results side by side; what a piece took is given back unless it is needed for
 * gradients.
 */
function byPieces(rows: number, each: number, x: Tensor, run: (from: number, count: number) => Tensor): Tensor {
  const kept = gradEnabled() && x.requiresGrad;
  const parts: Tensor[] = [];
  for (let from = 0; from < rows; from += each) {
    const count = Math.min(each, rows - from);
    parts.push(kept ? run(from, count) : scope(() => run(from, count)));
  }
  return parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), -1);
}

const part = ({ blocks, scales }: Float8Rows, dim: number, from: number, count: number): Float8Rows => ({
  blocks: blocks.narrow(dim, from, count),
  scales: scales.narrow(dim, from, count),
});
const chosen = ({ blocks, scales }: Float8Rows, ids: Tensor): Float8Rows => ({
  blocks: blocks.indexSelect(0, ids),
  scales: scales.indexSelect(0, ids),
});

/** x (..., n) times the transpose of rows (rows, n). */
export function multiplyFloat8(x: Tensor, w: Float8Rows): Tensor {
  const [rows, n] = w.blocks.shape;
  if (sizeOf(x.shape) <= FEW_ROWS * n) return x.f8matmul(w.blocks, w.scales);
  return byPieces(rows, Math.max(1, Math.floor(pieceOf(x) / n)), x, (from, count) =>
    x.matmul(decodeFloat8(part(w, 0, from, count), x.dtype).t()),
  );
}

/** x (tokens, 1 or chosen, n) times the matrices (experts, rows, n) that `experts` (tokens, chosen) names. */
export function multiplyFloat8Experts(x: Tensor, w: Float8Rows, experts: Tensor): Tensor {
  const [tokens, each] = experts.shape;
  const [, rows, n] = w.blocks.shape;
  const count = tokens * each;
  const ids = experts.reshape([count]);
  const given = x.broadcastTo([tokens, each, n]).reshape([count, 1, n]);
  if (count <= LONE_ROWS) {
    const at = Math.max(1, Math.floor(pieceOf(x) / (n * Math.max(1, count))));
    return byPieces(rows, at, x, (from, some) =>
      given.matmul(decodeFloat8(chosen(part(w, 1, from, some), ids), x.dtype).t()),
    ).reshape([tokens, each, rows]);
  }
  // Rows in the order of their experts, each of which is decoded once.
  const names = Array.from(ids.dataSync() as Iterable<number | bigint>, Number);
  const order = names.map((_, i) => i).sort((a, b) => names[a] - names[b] || a - b);
  const back = new Uint32Array(count);
  order.forEach((row, at) => (back[row] = at));
  const index = (list: Uint32Array): Tensor => tensor(list, { device: x.device });
  const sorted = given.reshape([count, n]).indexSelect(0, index(Uint32Array.from(order)));
  const products: Tensor[] = [];
  for (let from = 0; from < count; ) {
    const e = names[order[from]];
    let end = from + 1;
    while (end < count && names[order[end]] === e) end++;
    const own = part(w, 0, e, 1);
    const matrix = { blocks: own.blocks.squeeze([0]), scales: own.scales.squeeze([0]) };
    products.push(multiplyFloat8(sorted.narrow(0, from, end - from), matrix));
    from = end;
  }
  return products[0].cat(products.slice(1), 0).indexSelect(0, index(back)).reshape([tokens, each, rows]);
}

/** Rows by number, as an embedding looks them up. */
export const lookUpFloat8 = (w: Float8Rows, ids: Tensor, dtype: DType): Tensor =>
  decodeFloat8(chosen(w, ids.reshape([sizeOf(ids.shape)])), dtype).reshape([...ids.shape, w.blocks.shape[1]]);
