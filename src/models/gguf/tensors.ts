// The tensors of a folder as a GGUF file of the same family keeps them: the two name maps that the loader reads by, one
// read forwards and one backwards.
import { ShapeError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sameShape, sizeOf } from '../../base/shape.js';
import { floatRecord, renamed, type RowsOf, rowsRecord, turnedRecord } from '../../io/derived-records.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import { tensor } from '../../tensor/create.js';
import { scope } from '../../tensor/scope.js';
import { type Features, type HeadSizes, keyed, type LatentAttention, type Mixer } from '../decoder/features.js';
import { isKept } from './quantize-plan.js';
import { rowOrder } from '../decoder/rope.js';
import type { ModelSource } from '../files/source.js';
import { LAYER_ROLES, MODEL_ROLES, type Role } from '../decoder/roles.js';
import { type Names, type Place, placesOf, type Weights } from '../decoder/weights.js';
import { ropeDivisors } from './keys.js';
import { tiledColumns, tiledRows } from './tiled-heads.js';

const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
/** Vectors, whose numbers are moved one by one. */
const VECTORS: readonly Role[] = [
  ...(['embedNorm', 'finalNorm', 'beforeMixer', 'afterMixer', 'beforeMlp', 'afterMlp'] as const),
  ...(['qNorm', 'kNorm', 'qANorm', 'kvANorm', 'sinks', 'choiceBias', 'stateNorm', 'stateSkip'] as const),
];

/** Parts of another kind of feed-forward branch, which a folder may keep under the same names. */
const ELSEWHERE: Readonly<Record<string, readonly Role[] | undefined>> = {
  experts: ['gate', 'up', 'down'],
  dense: ['sharedGate', 'sharedUp', 'sharedDown'],
};

/** Rows (or single numbers) of stored tensors, in the shape that they make. */
interface Gathered {
  readonly records: readonly TensorRecord[];
  /** By number, through all records; made when they are needed. */
  readonly rows: () => ArrayLike<number>;
  readonly count: number;
  readonly shape: readonly number[];
  /** Numbers a row; 1 where they are moved one by one. */
  readonly width: number;
  readonly whole: boolean;
}

/** Which rows a place takes of a tensor with these dimensions before the last, by its own function. */
function taken(
  place: Place,
  shape: readonly number[],
  whole: boolean,
  sizes: HeadSizes,
): Pick<Gathered, 'rows' | 'count' | 'shape'> {
  const total = sizeOf(shape);
  const cut = place.rows;
  if (!cut) return { rows: () => range(total), count: total, shape };
  const run = (): { rows: Int32Array; shape: number[] } =>
    scope(() => {
      const numbers = Int32Array.from(range(total));
      const t = cut(tensor(numbers, { shape: whole ? [...shape, 1] : [...shape], device: 'cpu' }), sizes);
      return { rows: t.dataSync() as Int32Array, shape: whole ? t.shape.slice(0, -1) : [...t.shape] };
    });
  const made = run().shape;
  return { rows: () => run().rows, count: sizeOf(made), shape: made };
}

/** A part as it is meant, from where the folder keeps it. */
function gathered(
  source: ModelSource,
  { place, names }: { readonly place: Place; readonly names: readonly string[] },
  role: Role,
  kind: 'weight' | 'bias',
  sizes: HeadSizes,
): Gathered {
  const stored = names.map((n) => source.record(n));
  const records = place.transposed && kind === 'weight' ? stored.map(turnedRecord) : stored;
  const [{ shape }] = records;
  const odd = records.find((r) => !sameShape(r.shape, shape));
  if (odd)
    throw new ShapeError(
      `${odd.name} is ${formatShape(odd.shape)}, ${names[0]} ${formatShape(shape)}; they must be alike to stand ` +
        'together',
    );
  const whole = kind === 'weight' && shape.length > 1 && !VECTORS.includes(role);
  const inner = whole ? shape.slice(0, -1) : shape;
  const outer = place.name.includes('{e}') ? [records.length, ...inner] : inner;
  return { records, ...taken(place, outer, whole, sizes), width: whole ? (shape.at(-1) as number) : 1, whole };
}

/** The orders in which folder and file keep the rows of a head; undefined where they are the same. */
function orders(
  role: Role,
  own: Mixer,
  read: Mixer,
): readonly [from: readonly number[], to: readonly number[]] | undefined {
  const tiled = tiledRows(role, own, read);
  if (tiled) return tiled;
  const after = (n: number, m: LatentAttention): number[] => [
    ...range(n),
    ...(rowOrder(m.rope) ?? range(m.ropeDim)).map((i) => n + i),
  ];
  const of = (m: Mixer): number[] | undefined => {
    if (m.kind === 'attention')
      return ['q', 'k', 'qNorm', 'kNorm'].includes(role) ? (rowOrder(m.rope) ?? range(m.headDim)) : undefined;
    if (m.kind !== 'latent') return undefined;
    return role === 'q' || role === 'qB' ? after(m.nopeDim, m) : role === 'kvA' ? after(m.rank, m) : undefined;
  };
  const [from, to] = [of(own), of(read)];
  return !from || !to || from.every((x, i) => x === to[i]) ? undefined : [from, to];
}
function reordered(g: Gathered, order: ReturnType<typeof orders>): Gathered {
  if (!order) return g;
  const [from, to] = order;
  const rows = (): Uint32Array => {
    const stored = g.rows();
    const out = new Uint32Array(stored.length);
    for (let head = 0; head < out.length; head += from.length)
      for (let i = 0; i < from.length; i++) out[head + to[i]] = stored[head + from[i]];
    return out;
  };
  return { ...g, rows };
}

/** Parts as one tensor, their rows at the places that each has in it. */
function joined(name: string, parts: readonly Gathered[], places: () => readonly ArrayLike<number>[]): TensorRecord {
  const [{ width, whole, shape, records: first }] = parts;
  const total = parts.reduce((n, p) => n + p.count, 0);
  const outer = parts.length === 1 ? shape : [total];
  const rows = (): RowsOf[] => {
    const records = parts.flatMap((p) => p.records);
    const [which, row] = [new Uint32Array(total), new Uint32Array(total)];
    let before = 0;
    const at = places();
    parts.forEach((p, k) => {
      const each = sizeOf(p.records[0].shape) / width;
      const stored = p.rows();
      for (let i = 0; i < p.count; i++) {
        which[at[k][i]] = before + Math.floor(stored[i] / each);
        row[at[k][i]] = stored[i] % each;
      }
      before += p.records.length;
    });
    const runs: RowsOf[] = [];
    for (let i = 0; i < total; ) {
      let end = i + 1;
      while (end < total && which[end] === which[i]) end++;
      runs.push({ record: records[which[i]], rows: row.subarray(i, end) });
      i = end;
    }
    return runs;
  };
  return rowsRecord(name, first[0].dtype, whole ? [...outer, width] : outer, width, rows);
}

/** The shape that a file gives to a part, where it is another. */
function fileShape(role: Role, shape: readonly number[], mixer: Mixer | undefined): readonly number[] | undefined {
  const [first, last] = [shape[0], shape.at(-1) as number];
  // A convolution by channel has one input; files leave that out.
  if (role === 'conv' || role === 'stateConv') return [first, last];
  if (role === 'sharedSwitch') return [last];
  const state = mixer?.kind === 'beside' ? mixer.state : mixer;
  if (state?.kind !== 'mamba2') return undefined;
  if (role === 'stateNorm') return [state.groups, last / state.groups];
  return role === 'stateDecay' || role === 'stateSkip' ? [last, 1] : undefined;
}

/** The tensors of a file as they come, under its names. */
class FileTensors {
  readonly out = new Map<string, TensorRecord>();
  readonly #source: ModelSource;
  readonly #names: Names;
  readonly #features: Features;
  /** The features that a reader of the file takes. */
  readonly #read: Features;

  constructor(source: ModelSource, names: Names, features: Features, read: Features) {
    this.#source = source;
    this.#names = names;
    this.#features = features;
    this.#read = read;
  }

  #put(name: string, record: TensorRecord): void {
    const kept = isKept(name, record.shape) || record.dtype === 'f64';
    const plain = kept && record.dtype !== 'f32' ? floatRecord(record) : record;
    if (!['f32', 'f16', 'bf16'].includes(plain.dtype))
      throw new UnsupportedError(
        `${this.#source.path}: ${record.name} is ${plain.dtype}, which GGUF files do not hold`,
      );
    this.out.set(name, renamed(plain, name));
  }

  table(name: string, numbers: readonly number[] | Float32Array): void {
    const bytes = new Uint8Array(Float32Array.from(numbers).buffer);
    this.out.set(name, {
      ...{ name, dtype: 'f32', shape: [numbers.length], byteLength: bytes.length },
      read: (start = 0, end = bytes.length) => bytes.subarray(start, end),
    });
  }

  sizes(m: Mixer | undefined): HeadSizes {
    const own = m && keyed(m);
    return own?.kind === 'attention' ? own : { heads: 1, kvHeads: 1, headDim: this.#features.hiddenSize };
  }

  /** Whether the file's norms hold the 1 that ours add. */
  #oneMore(role: Role, layer: number | undefined): boolean {
    const [features, read] = [this.#features, this.#read];
    if (role === 'qNorm' || role === 'kNorm') {
      const m = (f: Features): Mixer | undefined => (layer === undefined ? undefined : f.layers[layer].mixer);
      const plus = (x: Mixer | undefined): boolean => x?.kind === 'attention' && x.qkNorm?.norm.plusOne === true;
      return plus(m(features)) && !plus(m(read));
    }
    const isNorm = /Norm$|^before|^after/.test(role) && !/ANorm$|^state/.test(role);
    return isNorm && features.norm.plusOne === true && !read.norm.plusOne;
  }

  write(roles: readonly Role[], from: Weights, to: Weights, layer?: number): void {
    const mixer = layer === undefined ? undefined : this.#features.layers[layer].mixer;
    for (const kind of ['weight', 'bias'] as const) {
      for (const [name, parts] of this.#gather(roles, kind, from, to, layer)) {
        if (parts.length === 1 && parts[0].role === 'kvB') continue;
        const [{ role }] = parts;
        const plainly = this.#joined(name, parts, this.sizes(mixer));
        const record =
          mixer && kind === 'weight'
            ? tiledColumns(role, plainly, mixer, this.#read.layers[layer as number].mixer)
            : plainly;
        const as = kind === 'weight' ? fileShape(role, record.shape, mixer) : undefined;
        const plain = as ? renamed(record, name, as) : record;
        const changed =
          kind === 'bias'
            ? undefined
            : role === 'stateDecay'
              ? (x: number) => -Math.exp(x)
              : this.#oneMore(role, layer) && ((x: number) => x + 1);
        this.#put(name, changed ? floatRecord(plain, changed) : plain);
      }
    }
    if (mixer?.kind === 'latent') this.#splitLatent(mixer, from, to);
  }

  /** What each tensor of the file is made of. */
  #gather(
    roles: readonly Role[],
    kind: 'weight' | 'bias',
    from: Weights,
    to: Weights,
    layer: number | undefined,
  ): Map<string, Part[]> {
    const { path } = this.#source;
    const [a, b] = layer === undefined ? [] : [this.#features.layers[layer].mixer, this.#read.layers[layer].mixer];
    const together = new Map<string, Part[]>();
    const { kind: branch } = layer === undefined ? { kind: 'none' } : this.#features.layers[layer].mlp;
    for (const role of roles) {
      if (ELSEWHERE[branch]?.includes(role)) continue;
      const found = role === 'head' && this.#features.tied && kind === 'weight' ? undefined : from.find(role, kind);
      if (!found) continue;
      const at = this.#names[role];
      if (at === undefined)
        throw new UnsupportedError(`${path}: ${found.names[0]} has no place in a GGUF file of its family`);
      const part = gathered(this.#source, found, role, kind, this.sizes(a));
      const moved = a && b ? reordered(part, orders(role, a, b)) : part;
      const [place] = placesOf(at);
      const name = to.nameOf(role, kind);
      // Where a layer has one branch, two roles may stand for its one norm.
      const twice =
        !found.place.rows && together.get(name)?.some((x) => x.part.records[0].name === part.records[0].name);
      if (twice) continue;
      together.set(name, [...(together.get(name) ?? []), { role, place, part: moved }]);
    }
    return together;
  }

  #joined(name: string, parts: readonly Part[], heads: HeadSizes): TensorRecord {
    const total = parts.reduce((n, x) => n + x.part.count, 0);
    return joined(
      name,
      parts.map((x) => x.part),
      () =>
        parts.map(({ place, part }) =>
          parts.length === 1 ? range(total) : taken(place, [total], part.whole, heads).rows(),
        ),
    );
  }

  /** The matrix that makes keys and values of latents: keys of each head turned round, values as they are. */
  #splitLatent({ heads, nopeDim, valueDim, rank }: LatentAttention, from: Weights, to: Weights): void {
    const names = this.#names;
    const [name] = from.find('kvB', 'weight')?.names ?? [];
    if (name === undefined) return;
    const record = this.#source.record(name);
    const stem = to.nameOf('kvB').slice(0, -placesOf(names.kvB ?? '')[0].name.length - '.weight'.length);
    const rows = (first: number, n: number): number[] =>
      range(heads).flatMap((h) => range(n).map((i) => h * (nopeDim + valueDim) + first + i));
    const [key, val] = (['k', 'v'] as const).map((r) => `${stem}${placesOf(names[r] ?? '')[1].name}.weight`);
    const part = (at: string, first: number, n: number): TensorRecord =>
      rowsRecord(at, record.dtype, [heads, n, rank], rank, () => [{ record, rows: rows(first, n) }]);
    this.#put(key, turnedRecord(part(key, 0, nopeDim)));
    this.#put(val, part(val, nopeDim, valueDim));
  }
}
/** A role's rows on the way into a tensor of the file. */
interface Part {
  readonly role: Role;
  readonly place: Place;
  readonly part: Gathered;
}

/** All tensors of a file, each read from the folder when its turn comes. */
export function ggufTensors(
  source: ModelSource,
  own: Weights,
  file: Weights,
  names: Names,
  features: Features,
  read: Features,
): Map<string, TensorRecord> {
  const tensors = new FileTensors(source, names, features, read);
  const last: readonly Role[] = ['finalNorm', 'head'];
  tensors.write(
    MODEL_ROLES.filter((r) => !last.includes(r)),
    own,
    file,
  );
  const divisors = ropeDivisors(features);
  if (divisors) tensors.table('rope_freqs.weight', divisors);
  const long = features.layers
    .map(({ mixer: m }) => (m.kind === 'attention' ? m.rope : undefined))
    .find((r) => r?.longFactors);
  if (long) {
    tensors.table('rope_factors_long.weight', long.longFactors as readonly number[]);
    tensors.table('rope_factors_short.weight', long.shortFactors as readonly number[]);
  }
  features.layers.forEach(({ mixer }, i) => {
    const heads = tensors.sizes(mixer);
    tensors.write(LAYER_ROLES as readonly Role[], own.of(i, heads), file.of(i, heads), i);
  });
  tensors.write(last, own, file);
  return tensors.out;
}
