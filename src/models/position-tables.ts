// What models keep of positions: the turns of rotary embeddings, a number a position, and waves in place of learnt
// rows.
import type { DType } from '../base/dtype.js';
import { tensor } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import { keep } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Features } from './features.js';
import { type RopeFeature, ropeRegime, type RopeTable, ropeTable } from './rope.js';

/** Sines and then cosines of positions, from a turn a position to one in ten thousand times as many. */
export function waves(
  rows: number,
  width: number,
  { zeroRow, open }: NonNullable<NonNullable<Features['learntPositions']>['waves']>,
): Float32Array {
  const half = Math.floor(width / 2);
  const last = open ? half : half - 1;
  const table = new Float32Array(rows * width);
  for (let p = 0; p < rows; p++)
    for (let i = 0; i < half && p !== zeroRow; i++) {
      const angle = p * Math.exp((-i * Math.log(10_000)) / last);
      table[p * width + i] = Math.sin(angle);
      table[p * width + half + i] = Math.cos(angle);
    }
  return table;
}

/** Tables that hold for one rope: made for its regime, and for more positions as they are needed. */
interface Held {
  readonly regime: number;
  readonly positions: number;
  readonly table: RopeTable;
}

/** What tables ask of a model each time, since it can move to another device or dtype. */
interface Positioned {
  readonly dtype: DType;
  readonly device: Device;
  readonly config: Pick<Features, 'maxPositions'>;
}
/** Tables of a model's positions, made when they are asked for and again when more positions are needed. */
export class PositionTables {
  readonly #tables = new Map<RopeFeature, Held>();
  readonly #columns = new Map<object, Tensor>();
  readonly #model: Positioned;
  constructor(model: Positioned) {
    this.#model = model;
  }
  /** Cosines and sines for at least `length` positions, in the regime of that length. */
  ropes(rope: RopeFeature, length: number): RopeTable {
    const held = this.#tables.get(rope);
    const regime = ropeRegime(rope, length);
    const { dtype, device, config } = this.#model;
    const fits = held?.table.cos.device === device && held.table.cos.dtype === dtype;
    if (held && fits && held.regime === regime && held.positions >= length) return held.table;
    held?.table.cos.dispose();
    held?.table.sin.dispose();
    const positions = Math.max(length, Math.min(config.maxPositions, 8192));
    const table = device.now(() => ropeTable(rope, length, positions, dtype, device));
    this.#tables.set(rope, { regime, positions, table });
    return table;
  }
  /** A column (positions, 1) of one number a position, kept for its `key`. */
  column(key: object, at: (position: number) => number, length: number): Tensor {
    const { dtype, device, config } = this.#model;
    const held = this.#columns.get(key);
    if (held && held.shape[0] >= length && held.device === device && held.dtype === dtype) return held;
    held?.dispose();
    const n = Math.max(length, Math.min(config.maxPositions, 8192));
    const data = Float32Array.from({ length: n }, (_, i) => at(i));
    const made = device.now(() => keep(tensor(data, { shape: [n, 1], device }).cast(dtype)));
    this.#columns.set(key, made);
    return made;
  }
  dispose(): void {
    for (const { table } of this.#tables.values()) {
      table.cos.dispose();
      table.sin.dispose();
    }
    for (const t of this.#columns.values()) t.dispose();
    this.#tables.clear();
    this.#columns.clear();
  }
}
