// What models keep of positions: the turns of rotary embeddings, a number a position, and waves in place of learnt
// rows.
import type { DType } from '../../base/dtype.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';
import { requireTable, type RopeFeature, ropeRegime, type RopeTable, ropeTable } from './rope.js';

/** Sines and then cosines of positions, from a turn a position to one in ten thousand times as many. */
export function waves(
  rows: number,
  width: number,
  { zeroRow, open }: NonNullable<NonNullable<Features['learntPositions']>['waves']>,
): Float32Array {
  requireTable(rows, width);
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

/** A table of one rope: for the lengths of a regime, and so many positions. */
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
/** Positions of a first table, where the model has as many. */
const FIRST = 8192;
/**
 * Tables of a model's positions, made when they are asked for, and longer ones when more positions are needed. The
 * shorter ones stay: steps that were recorded with them, by whichever decoder or engine, read them as long as the model
 * lives. They double, so that all together are less than twice the longest.
 */
export class PositionTables {
  readonly #tables = new Map<RopeFeature, Held[]>();
  readonly #columns = new Map<object, Tensor[]>();
  readonly #model: Positioned;
  constructor(model: Positioned) {
    this.#model = model;
  }
  #serves(t: Tensor): boolean {
    return t.device === this.#model.device && t.dtype === this.#model.dtype;
  }
  #size(length: number, longest: number): number {
    return Math.max(length, Math.min(this.#model.config.maxPositions, Math.max(FIRST, 2 * longest)));
  }
  /** Cosines and sines for at least `length` positions, in the regime of that length. */
  ropes(rope: RopeFeature, length: number): RopeTable {
    const { dtype, device } = this.#model;
    const regime = ropeRegime(rope, length);
    const all = this.#tables.get(rope) ?? [];
    const found = all.find((h) => h.regime === regime && h.positions >= length && this.#serves(h.table.cos));
    if (found) return found.table;
    // The model was moved, and what was recorded with it; or every length has a table of its own, which nobody records.
    const passing = rope.type === 'dynamic' && rope.alpha === undefined;
    const kept = all.filter((h) => this.#serves(h.table.cos) && !passing);
    for (const h of all) if (!kept.includes(h)) [h.table.cos, h.table.sin].forEach((t) => t.dispose());
    const longest = Math.max(0, ...kept.filter((h) => h.regime === regime).map((h) => h.positions));
    const positions = this.#size(length, longest);
    const table = device.now(() => ropeTable(rope, length, positions, dtype, device));
    this.#tables.set(rope, [...kept, { regime, positions, table }]);
    return table;
  }
  /** A column (positions, 1) of one number a position, kept for its `key`. */
  column(key: object, at: (position: number) => number, length: number): Tensor {
    const { dtype, device } = this.#model;
    const all = this.#columns.get(key) ?? [];
    const found = all.find((t) => t.shape[0] >= length && this.#serves(t));
    if (found) return found;
    const kept = all.filter((t) => this.#serves(t));
    for (const t of all) if (!kept.includes(t)) t.dispose();
    const n = this.#size(length, Math.max(0, ...kept.map((t) => t.shape[0])));
    const data = Float32Array.from({ length: n }, (_, i) => at(i));
    const made = device.now(() => keep(tensor(data, { shape: [n, 1], device }).cast(dtype)));
    this.#columns.set(key, [...kept, made]);
    return made;
  }
  dispose(): void {
    for (const { table } of [...this.#tables.values()].flat()) [table.cos, table.sin].forEach((t) => t.dispose());
    for (const t of [...this.#columns.values()].flat()) t.dispose();
    this.#tables.clear();
    this.#columns.clear();
  }
}
