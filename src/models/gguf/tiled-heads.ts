// Value heads of a delta net in the order of files: those of one key head as far apart as there are key heads, where
// folders keep them side by side.
import { sizeOf } from '../../base/shape.js';
import { rowsRecord } from '../../io/derived-records.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import type { DeltaNet, Mixer } from '../decoder/features.js';
import type { Role } from '../decoder/roles.js';

type Order = readonly [from: readonly number[], to: readonly number[]];
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

/** The delta net whose heads change places, if they do. */
const moved = (own: Mixer, read: Mixer): DeltaNet | undefined =>
  own.kind === 'delta' && read.kind === 'delta' && read.tiled && !own.tiled ? own : undefined;
/** Where a folder's value heads stand in a file. */
const placesOf = ({ keyHeads, valueHeads }: DeltaNet): number[] => {
  const each = valueHeads / keyHeads;
  return range(valueHeads).map((head) => (head % each) * keyHeads + Math.floor(head / each));
};

/** Parts by the rows of each head that they have, and what stands in front of them. */
const PARTS: Partial<Record<Role, (d: DeltaNet) => { readonly before: number; readonly each: number }>> = {
  stateIn: (d) => ({ before: 2 * d.keyHeads * d.keyDim, each: d.valueDim }),
  stateConv: (d) => ({ before: 2 * d.keyHeads * d.keyDim, each: d.valueDim }),
  stateGate: (d) => ({ before: 0, each: d.valueDim }),
  ...Object.fromEntries(
    (['stateRate', 'stateStep', 'stateDecay', 'stateShift'] as const).map((role) => [
      role,
      () => ({ before: 0, each: 1 }),
    ]),
  ),
};
/** The orders in which folder and file keep a part's rows; undefined where they are the same. */
export function tiledRows(role: Role, own: Mixer, read: Mixer): Order | undefined {
  const delta = moved(own, read);
  const part = delta && PARTS[role]?.(delta);
  if (!delta || !part) return undefined;
  const { before, each } = part;
  const to = placesOf(delta).flatMap((head) => range(each).map((i) => before + head * each + i));
  return [range(before + to.length), [...range(before), ...to]];
}
/** The product behind the heads reads them column by column. */
export function tiledColumns(role: Role, record: TensorRecord, own: Mixer, read: Mixer): TensorRecord {
  const delta = role === 'stateOut' ? moved(own, read) : undefined;
  if (!delta) return record;
  const heads = delta.valueHeads;
  const rows = (): Uint32Array => {
    const out = new Uint32Array(sizeOf(record.shape) / delta.valueDim);
    const places = placesOf(delta);
    for (let row = 0; row < out.length; row += heads)
      for (let head = 0; head < heads; head++) out[row + places[head]] = row + head;
    return out;
  };
  return rowsRecord(record.name, record.dtype, record.shape, delta.valueDim, () => [{ record, rows: rows() }]);
}
