// Which bytes of a stored tensor make a part of a model: rows that a family's fused tensor keeps among others, in
// another order, and of those a rank's own. Only they are read.
import { ShapeError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sizeOf } from '../../base/shape.js';
import { renamed } from '../../io/derived-records.js';
import { type Part, partRecord, type Run, runsRecord } from '../../io/part-record.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import { partOf } from '../../nn/part-of.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';

/** The rows of every head in another order. */
export function reorderHeads(t: Tensor, order: readonly number[] | undefined): Tensor {
  if (!order) return t;
  const [rows, ...rest] = t.shape;
  const ids = tensor(Uint32Array.from(order), { device: t.device });
  return t
    .reshape([rows / order.length, order.length, ...rest])
    .indexSelect(1, ids)
    .reshape(t.shape);
}

/** What is wanted of a stored tensor. */
export interface WantedRows {
  /** Takes a fused tensor's rows apart; all of them without it. */
  readonly rows?: (t: Tensor) => Tensor;
  /** What a rank has of them. */
  readonly part?: Part;
  /** How a head's rows are put in order for turning. */
  readonly order?: readonly number[];
}
/** What is read of a stored tensor, and how the wanted one is made of it. */
export interface Taken {
  readonly record: TensorRecord;
  /** Undefined where what is read is what was wanted. */
  readonly finish?: (t: Tensor) => Tensor;
}
/** How a stored tensor is meant. */
export interface Meaning {
  /** Its last two dimensions are stored the other way round. */
  readonly turned: boolean;
  /** The last dimension is that of a row's values; else numbers are moved one by one. */
  readonly rows: boolean;
}

/** Numbers in ascending order as runs, and where each then stands; no places where they are in order already. */
function inRuns(picks: ArrayLike<number>): { readonly runs: readonly Run[]; readonly places?: Uint32Array } {
  const sorted = [...new Set(Array.from(picks))].sort((a, b) => a - b);
  const at = new Map(sorted.map((pick, i) => [pick, i]));
  const runs: { from: number; length: number }[] = [];
  for (const pick of sorted) {
    const last = runs.at(-1);
    if (last && pick === last.from + last.length) last.length++;
    else runs.push({ from: pick, length: 1 });
  }
  const places = Uint32Array.from(picks, (pick) => at.get(pick) as number);
  return places.every((place, i) => place === i) ? { runs } : { runs, places };
}
const select = (t: Tensor, dim: number, places: Uint32Array | undefined): Tensor =>
  places ? t.indexSelect(dim, tensor(places, { device: t.device })) : t;

/**
 * Parts of one stored tensor, one after another along the dimension of their rows. The functions that take fused
 * tensors apart are asked once with the numbers of all rows, which tells what to read.
 */
export function take(
  stored: TensorRecord,
  wanted: readonly WantedRows[],
  { turned, rows: byRows }: Meaning,
  device: Device,
): Taken {
  const [first] = wanted;
  const { rank, shape } = { rank: stored.shape.length, shape: stored.shape };
  if (wanted.length === 1 && !first.rows && !first.order) return plain(stored, first.part, turned);
  const meant = turned ? [...shape.slice(0, -2), shape[rank - 1], shape[rank - 2]] : shape;
  const lead = byRows ? meant.slice(0, -1) : meant;
  const along = byRows ? wanted.find((w) => w.part?.dim === rank - 1)?.part : undefined; // a row's values are divided
  const { picks, own } = scope(() => {
    const all = Int32Array.from({ length: sizeOf(lead) }, (_, i) => i);
    const numbers = tensor(all, { shape: byRows ? [...lead, 1] : lead, device });
    const parts = wanted.map(({ rows, part, order }) => {
      const of = rows ? apartOr(stored, rows, numbers) : numbers;
      return reorderHeads(part && part !== along ? partOf(of, part, stored.name) : of, order);
    });
    const one = parts.length === 1 ? parts[0] : parts[0].cat(parts.slice(1), parts[0].rank - (byRows ? 2 : 1));
    return { picks: one.dataSync() as Int32Array, own: byRows ? one.shape.slice(0, -1) : one.shape };
  });
  const cut = (record: TensorRecord, dim: number): TensorRecord =>
    along ? partRecord(record, { ...along, dim }) : record;
  if (turned) return turnedRows(stored, picks, own, cut);
  const { runs, places } = inRuns(picks);
  const width = byRows ? [shape[rank - 1]] : [];
  const record = cut(runsRecord(renamed(stored, stored.name, [sizeOf(lead), ...width]), 0, runs), 1);
  const made = [...own, ...record.shape.slice(1)];
  if (!places) return { record: renamed(record, stored.name, made) };
  return { record, finish: (t) => select(t, 0, places).reshape(made) };
}

/** A fused tensor's rows taken apart; a shape that does not fit the config's sizes is told with the tensor's name. */
function apartOr(stored: TensorRecord, rows: (t: Tensor) => Tensor, numbers: Tensor): Tensor {
  try {
    return rows(numbers);
  } catch (e) {
    if (!(e instanceof ShapeError)) throw e;
    const text = `${stored.name}: ${formatShape(stored.shape)} cannot be taken apart as the config's sizes say`;
    throw new ShapeError(`${text}: ${e.message}`, { cause: e });
  }
}

/** A tensor that stands alone, or a rank's part of it. */
function plain(stored: TensorRecord, part: Part | undefined, turned: boolean): Taken {
  const rank = stored.shape.length;
  // Where the divided dimension lies in what is stored.
  const dim = part && (turned && part.dim >= rank - 2 ? 2 * rank - 3 - part.dim : part.dim);
  const record = part ? partRecord(stored, { ...part, dim: dim as number }) : stored;
  return turned ? { record, finish: (t) => t.t() } : { record };
}

/** Rows that are stored as columns, of one matrix or of several that are taken apart alike. */
function turnedRows(
  stored: TensorRecord,
  picks: Int32Array,
  own: readonly number[],
  cut: (record: TensorRecord, dim: number) => TensorRecord,
): Taken {
  const last = stored.shape.length - 1;
  const [columns, each] = [stored.shape[last], own.at(-1) as number];
  const matrices = Array.from({ length: picks.length / each }, (_, m) => Math.floor(picks[m * each] / columns));
  const taken = inRuns(picks.subarray(0, each).map((pick) => pick - matrices[0] * columns));
  const alike = picks.every((pick, i) => {
    const m = Math.floor(i / each);
    return pick - matrices[m] * columns === picks[i % each] - matrices[0] * columns;
  });
  const { runs, places } = inRuns(matrices);
  if (!alike || places || stored.shape.length > 3)
    throw new UnsupportedError(
      `${stored.name}: its matrices are not taken apart alike, and they are stored turned round`,
    );
  const some = last === 2 ? runsRecord(stored, 0, runs) : stored;
  const record = cut(runsRecord(some, last, taken.runs), last - 1);
  return { record, finish: (t) => select(t, last, taken.places).t() };
}
