// One run of tokens through a decoder: at which positions they stand, and what their attention sees. Caches live here.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type CacheType, KvCache } from '../../nn/kv-cache.js';
import type { AnyLinear } from '../../nn/layers.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep, keeper } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type HeadSizes, trainedAttention } from '../../tensor/trained-attention.js';
import { type Attention, type Features, keyKeeper, remembers, WIDEST_HEAD } from './features.js';
import type { RopeTable } from './rope.js';

/** What a layer asks of the run it is part of. Engines with pages or batches of their own implement this. */
export interface Step {
  /** Tokens of the longest sequence after this run; ropes that stretch with the length ask for it. */
  readonly length: number;
  /** The same with padding counted. */
  readonly slots: number;
  /** Some sequences have padding in front. */
  readonly padded: boolean;
  /** Keys past the last token are answered too and must be masked. */
  readonly open: boolean;
  /** Nobody looks at what a layer makes beside its answer: its memory serves the next layer. */
  readonly brief?: boolean;
  /**
   * sum + what the layer makes of x, in the sum's place; undefined, and nothing done, where that takes another pass.
   */
  addTo?(sum: Tensor, x: Tensor, layer: AnyLinear): Tensor | undefined;
  /** x (b, t, hidden) with zeros at padding. */
  withoutPads(x: Tensor): Tensor;
  /**
   * Rows of a table by position: (time, width), or (batch, time, width) where sequences stand at different positions.
   */
  rows(table: Tensor, withPads?: boolean): Tensor;
  /**
   * Attention of new tokens over all that the layer holds: q (b, t, heads, dim), k and v (b, t, kvHeads, dim) to (b, t,
   * heads, dim). Without k and v: over what the layer was given in this run already.
   */
  attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor;
  /** The same from what queries, keys and values are parts of, where the step takes it so. */
  readonly attendWhole?: WholeAttend;
  /**
   * Keeps latents (b, 1, t, rank) and turned keys (b, 1, t, dim) and answers what new tokens look at, one run of them
   * after another.
   */
  keepLatent(layer: number, latent: Tensor, key: Tensor): readonly LatentRun[];
  /** What new tokens see of `keys` latents, u8 (b or 1, 1, t, keys). */
  mask(time: number, keys: number, device: Device): Tensor;
  /**
   * A causal convolution over x (b, channels, t): `convolve` is given columns with the last `count` ones before them,
   * and the last of these are remembered.
   */
  overColumns(layer: number, x: Tensor, count: number, convolve: (columns: Tensor) => Tensor): Tensor;
  /** What `scan` makes of x's, each (b, t, ...), and of the state that the layer remembers: answers (b, t, ...). */
  overState(layer: number, xs: readonly Tensor[], scan: Scan): Tensor;
}
/** What a layer's attention looks like to a step that does all of it. */
export interface WholeMixer {
  readonly feature: Attention;
  readonly qNorm: { readonly inner: { readonly weight?: Tensor | undefined } } | undefined;
  readonly kNorm: { readonly inner: { readonly weight?: Tensor | undefined } } | undefined;
}
/**
 * Attention of a layer from the product (b, t, (heads + 2 kvHeads) dim) before norms and rope; undefined where the
 * features of the mixer ask for more.
 */
export type WholeAttend = (
  layer: number,
  qkv: Tensor,
  mixer: WholeMixer,
  tables: RopeTable,
) => WholeAnswers | undefined;
/** Answers to the first `count` of t tokens. */
export interface WholeAnswers {
  /** (b, t, heads dim): those of the other tokens are not there yet. */
  readonly all: Tensor;
  readonly count: number;
}
/** A step over a sequence with a state: inputs (b, t, ...) and the state before them to outputs and the state after. */
export type Scan = (xs: readonly Tensor[], state: Tensor | undefined) => { readonly y: Tensor; readonly state: Tensor };
/** New tokens `from` to `from + count` look at all of these, (b, 1, all, width). */
export interface LatentRun {
  /** The first of the new tokens that this is for. */
  readonly from: number;
  /** How many new tokens. */
  readonly count: number;
  /** What values and parts of the keys are made of. */
  readonly latents: Tensor;
  /** The parts of the keys that the rope has turned. */
  readonly keys: Tensor;
}
/** How a layer's attention looks at keys. */
export type AttendOptions = Pick<Attention, 'scale' | 'window' | 'chunk' | 'softcap'> & {
  /** A logit for each head that takes part in the softmax and has no value (heads). */
  readonly sinks?: Tensor;
  /** Slopes for each head (heads); distances times these are taken off the scores. */
  readonly alibi?: Tensor;
  /** Other layers will look at the same keys. */
  readonly lends?: boolean;
  /** Where the answers go, where there is a place for them already: (b, t, heads dim). */
  readonly into?: Tensor;
};

/** A convolution's last inputs, and what a layer remembers beside them. */
interface Memory {
  last: Tensor | undefined;
  state: Tensor | undefined;
}
/** What a decoder's layers remember of earlier tokens: keys and values, or states of one size. */
export class DecoderCache {
  /** Keys and values of the layers that keep them. */
  readonly keys: readonly (KvCache | undefined)[];
  /** What other layers remember; a layer may have both. */
  readonly memories: readonly (Memory | undefined)[];
  /** Tokens seen so far, those of padding counted. */
  length = 0;
  /** Padding in front of each sequence. */
  pads: readonly number[] | undefined;
  /** All token numbers, where the model may have to run them anew. */
  ids: Tensor | undefined;
  /** `whole`: windows keep all keys too, in room that never moves. */
  constructor(features: Features, capacity?: number, whole = false, type?: CacheType) {
    this.keys = features.layers.map(({ mixer }) => {
      const m = keyKeeper(mixer);
      const window = m?.kind === 'attention' && !whole ? (m.window ?? m.chunk) : undefined;
      return m && new KvCache(capacity, window, type);
    });
    this.memories = features.layers.map(({ mixer }) =>
      remembers(mixer) ? { last: undefined, state: undefined } : undefined,
    );
  }
  /** The keys and values of a layer; a layer that keeps none is refused. */
  kv(layer: number): KvCache {
    const found = this.keys[layer];
    if (!found) throw new ArgumentError(`cache: layer ${layer} keeps no keys`);
    return found;
  }
  /** Counts tokens that somebody else wrote into the buffers. */
  follow(length: number): void {
    for (const l of this.keys) if (l) l.length = length;
    this.length = length;
  }
  /** Sequences go on from those of these numbers, of which some may come several times. */
  reorder(rows: readonly number[], device: Device): void {
    const at = tensor(Uint32Array.from(rows), { device });
    const moved = (old: Tensor | undefined): Tensor | undefined => {
      const next = old && noGrad(() => keep(old.indexSelect(0, at)));
      old?.dispose();
      return next;
    };
    for (const l of this.keys) l?.reorder(at);
    for (const m of this.memories) if (m) [m.last, m.state] = [moved(m.last), moved(m.state)];
    this.ids = moved(this.ids);
    if (this.pads) this.pads = rows.map((r) => (this.pads as readonly number[])[r]);
    at.dispose();
  }
  /** Forgets tokens from `length` on. */
  truncate(length: number): void {
    if (length === this.length) return;
    if (this.memories.some((m) => m !== undefined))
      throw new ArgumentError('cache: a model with convolutions or states cannot go back; begin anew');
    for (const l of this.keys) l?.truncate(length);
    const old = this.ids;
    if (old) this.ids = length === 0 ? undefined : keep(old.narrow(1, 0, length).copy());
    old?.dispose();
    this.length = length;
  }
  /** Forgets all tokens and keeps the memory. */
  reset(): void {
    for (const l of this.keys) l?.reset();
    for (const m of this.memories) {
      if (!m) continue;
      m.last?.dispose();
      m.state?.dispose();
      m.last = m.state = undefined;
    }
    this.ids?.dispose();
    this.ids = undefined;
    this.pads = undefined;
    this.length = 0;
  }
  /** Gives the memory back. */
  dispose(): void {
    this.reset();
    for (const l of this.keys) l?.dispose();
  }
}

/** What queries at the end of `keys` keys see: causal, within a window or chunk, past the padding of each sequence. */
export function seen(
  o: {
    /** How many queries there are, the last of the keys. */
    time: number;
    /** How many keys there are. */
    keys: number;
    /** The position of the first key. */
    first: number;
    /** Keys a query sees, itself counted. */
    window?: number;
    /** A query sees its own chunk of this many positions. */
    chunk?: number;
  },
  pads: readonly number[],
  device: Device,
): Tensor {
  const { time, keys, first, window = Infinity, chunk = Infinity } = o;
  const bytes = new Uint8Array(pads.length * time * keys);
  pads.forEach((pad, b) => {
    for (let i = 0; i < time; i++) {
      const query = first + keys - time + i;
      for (let j = 0; j < keys; j++) {
        const key = first + j;
        const sameChunk = Math.floor((key - pad) / chunk) === Math.floor((query - pad) / chunk);
        if (key >= pad && key <= query && query - key < window && sameChunk) bytes[(b * time + i) * keys + j] = 1;
      }
    }
  });
  return tensor(bytes, { shape: [pads.length, 1, time, keys], device });
}

/** Attention of heads that are wider (Gemma 4), by products: q (b, heads, t, d), k and v (b, kvHeads, n, d). */
function attendWide(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, how: AttendOptions): Tensor {
  const { scale, softcap, sinks, alibi } = how;
  const [b, heads, t, d] = q.shape;
  if (sinks || alibi || k.dtype !== q.dtype)
    throw new UnsupportedError(
      `attention: heads of ${d} numbers, beyond ${WIDEST_HEAD}, with ` +
        (sinks ? 'sinks' : alibi ? 'alibi' : `keys kept in ${k.dtype}`),
    );
  const [, groups, n] = k.shape;
  const rows = q.reshape([b, groups, (heads / groups) * t, d]);
  const scores = rows.matmul(k.t()).reshape([b, heads, t, n]).cast('f32').affine(scale, 0);
  const capped = softcap
    ? scores
        .affine(1 / softcap, 0)
        .tanh()
        .affine(softcap, 0)
    : scores;
  const open = mask.ne(0).broadcastTo(capped.shape);
  const weights = open.where(capped, capped.constant(-1e30)).softmax(-1).cast(q.dtype);
  return weights
    .reshape([b, groups, (heads / groups) * t, n])
    .matmul(v)
    .reshape([b, heads, t, d]);
}

/** What attention may be told while queries and keys are turned, look at earlier tokens, and nothing else happens. */
const PLAIN = new Set<string>(['kind', 'heads', 'kvHeads', 'headDim', 'scale', 'rope', 'window', 'chunk']);
/** The heads of such attention over `time` tokens. */
function plainHeads(f: Attention, time: number): HeadSizes | undefined {
  const { heads, kvHeads, headDim: dim, scale, window, chunk } = f;
  const plain = Object.entries(f).every(([name, value]) => PLAIN.has(name) || value === undefined);
  if (!plain || dim > WIDEST_HEAD || (chunk !== undefined && time > chunk)) return undefined;
  return { heads, kvHeads, dim, scale, left: window !== undefined && time > window ? window - 1 : -1 };
}

/** Sequences of equal length in one batch, padded in front or not, with a cache or without. */
export class BatchStep implements Step {
  /** Tokens of the longest sequence after this run. */
  readonly length: number;
  /** The same with padding counted. */
  readonly slots: number;
  readonly #start: number;
  readonly #time: number;
  readonly #cache: DecoderCache | undefined;
  readonly #pads: readonly number[] | undefined;
  readonly #device: Device;
  #positions: Tensor | undefined;
  /** Keys and values that layers lend to later ones. */
  readonly #lent = new Map<number, readonly [keys: Tensor, values: Tensor]>();
  readonly #shared = keeper();
  /** Nobody looks at what a layer makes beside its answer. */
  readonly brief: boolean;

  constructor(
    device: Device,
    time: number,
    cache: DecoderCache | undefined,
    pads: readonly number[] | undefined,
    brief = false,
  ) {
    this.#device = device;
    this.brief = brief;
    this.#start = cache?.length ?? 0;
    this.#time = time;
    this.#cache = cache;
    this.#pads = pads;
    this.slots = this.#start + time;
    this.length = this.slots - (pads ? Math.min(...pads) : 0);
  }
  /** Keys past the last token are never answered. */
  readonly open = false;
  /** Some sequences have padding in front. */
  get padded(): boolean {
    return this.#pads !== undefined;
  }
  /** x (b, t, hidden) with zeros at padding. */
  withoutPads(x: Tensor): Tensor {
    const pads = this.#pads;
    if (!pads || this.#start >= Math.max(...pads)) return x;
    const open = pads.flatMap((pad) => Array.from({ length: this.#time }, (_, i) => (this.#start + i < pad ? 0 : 1)));
    const shape = [pads.length, this.#time, 1];
    return x.mul(tensor(Float32Array.from(open), { shape, device: this.#device }).cast(x.dtype));
  }
  /** Rows of a table by position: (time, width), or (batch, time, width) where sequences are padded. */
  rows(table: Tensor, withPads = false): Tensor {
    if (!this.#pads || withPads) return table.narrow(0, this.#start, this.#time);
    const at = (pad: number, i: number): number => Math.max(0, this.#start + i - pad);
    this.#positions ??= tensor(
      Uint32Array.from(this.#pads.flatMap((pad) => Array.from({ length: this.#time }, (_, i) => at(pad, i)))),
      { shape: [this.#pads.length, this.#time], device: this.#device },
    );
    return table.embedding(this.#positions);
  }
  /**
   * Attention of new tokens over all that the layer holds: q (b, t, heads, dim), k and v (b, t, kvHeads, dim) to (b, t,
   * heads, dim). Without k and v: over what the layer was given in this run already.
   */
  attend(layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    const extra = { scale, ...(softcap && { softcap }), ...(sinks && { sinks }), ...(alibi && { alibi }) };
    const cache = this.#cache?.kv(layer);
    const turned = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]);
    const time = this.#time;
    const wide = q.shape[3] > WIDEST_HEAD;
    // Without a cache nothing is turned: the result lies as the next product reads it.
    if (!wide && !cache && !this.#pads && (chunk === undefined || time <= chunk)) {
      const bounded = window !== undefined && time > window ? { window: [window - 1, 0] as [number, number] } : {};
      const [keys, values] = this.#all(layer, k && v && [k, v], how.lends);
      return q.sdpa(keys, values, { layout: 'bthd', causal: true, ...extra, ...bounded });
    }
    const given = k && v && ([turned(k), turned(v)] as const);
    const [keys, values] = this.#all(layer, given && cache ? cache.append(...given) : given, how.lends);
    const n = keys.shape[2];
    const first = cache?.first ?? 0;
    const query = turned(q);
    // Chunks begin where the position says; within the first one they are plain causal.
    const chunked = chunk !== undefined && first + n > chunk;
    if (!wide && !this.#pads && !chunked) {
      const bounded = window !== undefined && n > window ? { window: [window - 1, 0] as [number, number] } : {};
      return turned(query.sdpa(keys, values, { causal: true, ...extra, ...bounded }));
    }
    const pads = this.#pads ?? [0];
    const mask = seen({ time: this.#time, keys: n, first, window, chunk }, pads, this.#device);
    if (wide) return turned(attendWide(query, keys, values, mask, how));
    return turned(query.sdpa(keys, values, { causal: true, mask, ...extra }));
  }
  /** While a net is trained, from the product itself: see trainedAttention. */
  readonly attendWhole: WholeAttend = (_layer, qkv, mixer, { cos, sin }) => {
    if (this.#cache || this.#pads || !qkv.requiresGrad) return undefined;
    const sizes = plainHeads(mixer.feature, this.#time);
    const all = sizes && trainedAttention(qkv, this.rows(cos), this.rows(sin), sizes);
    return all && { all, count: this.#time };
  };
  /** What a layer looks at: its own, or what an earlier one lent. */
  #all(layer: number, own: readonly [Tensor, Tensor] | undefined, lends = false): readonly [Tensor, Tensor] {
    if (own && lends) this.#lent.set(layer, [this.#shared(own[0]), this.#shared(own[1])]);
    const all = own ?? this.#lent.get(layer);
    if (!all) throw new ArgumentError(`attention: layer ${layer} lends no keys`);
    return all;
  }
  /** Keeps latents and turned keys of new tokens and answers all that they look at. */
  keepLatent(layer: number, latent: Tensor, key: Tensor): readonly LatentRun[] {
    const [latents, keys] = this.#cache ? this.#cache.kv(layer).append(latent, key) : [latent, key];
    return [{ from: 0, count: this.#time, latents, keys }];
  }
  /** What new tokens see of `keys` latents, u8 (b or 1, 1, t, keys). */
  mask(time: number, keys: number, device: Device): Tensor {
    return seen({ time, keys, first: 0 }, this.#pads ?? [0], device);
  }
  /** A causal convolution over x (b, channels, t), with the last columns of the run before in front. */
  overColumns(layer: number, x: Tensor, count: number, convolve: (columns: Tensor) => Tensor): Tensor {
    const [b, channels, t] = x.shape;
    const state = this.#cache?.memories[layer];
    const before = state?.last ?? x.newZeros([b, channels, count], x.dtype);
    const all = before.cat([x], 2); // (b, channels, count + t)
    if (state) {
      const last = noGrad(() => keep(all.narrow(2, t, count).copy()));
      state.last?.dispose();
      state.last = last;
    }
    return convolve(all);
  }
  /** What `scan` makes of the inputs and of the state that the layer remembers. */
  overState(layer: number, xs: readonly Tensor[], scan: Scan): Tensor {
    const memory = this.#cache?.memories[layer];
    const { y, state } = scan(xs, memory?.state);
    if (memory) {
      const next = noGrad(() => keep(state.copy()));
      memory.state?.dispose();
      memory.state = next;
    }
    return y;
  }
}
