// What encoders, encoder-decoders and vision models are made of: attention with separate projections, two kinds of
// feed-forward, masks.
import { FormatError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';
import type { SdpaOptions } from '../ops/attention-calls.js';
import { activation } from '../nn/activation.js';
import type { Cache } from '../nn/kv-cache.js';
import { keepFloats } from '../nn/kept-floats.js';
import { type Embedding, embedding, type LayerNorm, Linear, linear } from '../nn/layers.js';
import { Layer, Module } from '../nn/module.js';
import type { VarBuilder } from '../nn/var-builder.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { RopeTable } from './decoder/rope.js';

export interface AttendOptions extends Pick<SdpaOptions, 'causal' | 'mask' | 'window'> {
  /** Keys and values come from this instead. */
  readonly context?: Tensor;
  /** Values come from this instead. */
  readonly values?: Tensor;
  /** Keys and values that are ready, as `keysAndValues` makes them. */
  readonly ready?: readonly [k: Tensor, v: Tensor];
  readonly cache?: Cache;
  /** Turns queries and keys; rows are positions, and pairs lie half a head apart or are neighbours. */
  readonly rope?: RopeTable & { readonly neighbours?: boolean };
}

/** A table whose rows a model reads by themselves, besides those it looks up. */
export const rowTable = (entries: number, width: number, vb: VarBuilder): Embedding =>
  keepFloats(embedding(entries, width, vb), 'the model reads rows of it by themselves');

/** Attention of many heads; each of its four products may have a bias. */
export class MultiHead extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly heads: number;
  /** Heads of keys and values, each of which several queries may share. */
  readonly kvHeads: number;
  readonly scale: number | undefined;
  /** Scores are kept within this. */
  readonly softcap: number | undefined;
  constructor(
    parts: Record<'q' | 'k' | 'v' | 'out', Linear>,
    heads: number,
    scale?: number,
    kvHeads = heads,
    softcap?: number,
  ) {
    super();
    const [rows] = parts.q.weight.shape;
    if (rows % heads !== 0)
      throw new FormatError(`${rows} rows of queries do not divide into ${heads} heads (num_attention_heads)`);
    this.q = parts.q;
    this.k = parts.k;
    this.v = parts.v;
    this.out = parts.out;
    this.heads = heads;
    this.kvHeads = kvHeads;
    this.scale = scale;
    this.softcap = softcap;
  }
  /** (b, t, heads * d) to (b, heads, t, d). */
  #split(x: Tensor, heads: number): Tensor {
    const [b, t, width] = x.shape;
    return x.reshape([b, t, heads, width / heads]).transpose(1, 2);
  }
  keysAndValues(x: Tensor, values = x): readonly [k: Tensor, v: Tensor] {
    return [this.#split(this.k.forward(x), this.kvHeads), this.#split(this.v.forward(values), this.kvHeads)];
  }
  forward(x: Tensor, o: AttendOptions = {}): Tensor {
    const [b, t] = x.shape;
    let q = this.#split(this.q.forward(x), this.heads);
    let [k, v] = o.ready ?? this.keysAndValues(o.context ?? x, o.values);
    if (o.rope) {
      const { cos, sin, neighbours } = o.rope;
      [q, k] = [q, k].map((x) => (neighbours ? x.contiguous().ropeI(cos, sin) : x.contiguous().rope(cos, sin)));
    }
    if (o.cache) [k, v] = o.cache.append(k, v);
    const y = q.sdpa(k, v, {
      ...(o.causal && { causal: true }),
      ...(o.mask && { mask: o.mask }),
      ...(o.window !== undefined && { window: o.window }),
      ...(this.scale !== undefined && { scale: this.scale }),
      ...(this.softcap !== undefined && { softcap: this.softcap }),
    });
    return this.out.forward(y.transpose(1, 2).reshape([b, t, -1]));
  }
}

export interface MultiHeadNames {
  readonly q: string;
  readonly k: string;
  readonly v: string;
  readonly out: string;
  /** Which of the four have a bias; default all. */
  readonly biases?: readonly ('q' | 'k' | 'v' | 'out')[];
}
/** Attention whose heads together are `inner` wide, by the names of its products; what it looks at may be `read` wide. */
export function multiHead(
  vb: VarBuilder,
  names: MultiHeadNames,
  width: number,
  heads: number,
  options: { readonly inner?: number; readonly scale?: number; readonly read?: number } = {},
): MultiHead {
  const inner = options.inner ?? width;
  const { biases = ['q', 'k', 'v', 'out'] } = names;
  const into = (part: 'q' | 'k' | 'v'): Linear =>
    linear(part === 'q' ? width : (options.read ?? width), inner, vb.pp(names[part]), { bias: biases.includes(part) });
  return new MultiHead(
    {
      q: into('q'),
      k: into('k'),
      v: into('v'),
      out: linear(inner, width, vb.pp(names.out), { bias: biases.includes('out') }),
    },
    heads,
    options.scale,
  );
}

/** A stored tensor in another shape, in its place. */
export function reshaped(stored: Tensor, shape: Shape): Tensor {
  const view = keep(stored.reshape([...shape]));
  if (view !== stored) stored.dispose();
  return view;
}

/**
 * A tensor of its own that is made of stored ones, which go once it is there. A source in memory lends its own, which
 * others read, too: these stay.
 */
export function madeOf(
  vb: VarBuilder,
  make: (read: (shape: Shape | undefined, name: string) => Tensor) => Tensor,
): Tensor {
  const taken: Tensor[] = [];
  const read = (shape: Shape | undefined, name: string): Tensor => {
    const t = vb.get(shape, name);
    if (vb.record(name)) taken.push(t);
    return t;
  };
  const made = keep(scope(() => make(read)));
  for (const t of taken) t.dispose();
  return made;
}

/** One stored product taken apart into several of equal height. */
export function chunks(stored: Linear, n: number): Linear[] {
  const part = (t: Tensor, i: number): Tensor =>
    keep(scope(() => t.narrow(0, (i * t.shape[0]) / n, t.shape[0] / n).copy()));
  const parts = Array.from(
    { length: n },
    (_, i) => new Linear(part(stored.weight, i), stored.bias ? part(stored.bias, i) : undefined),
  );
  stored.weight.dispose();
  stored.bias?.dispose();
  return parts;
}

/** down(f(up x)). */
export class FeedForward extends Layer {
  readonly up: Linear;
  readonly down: Linear;
  readonly #f: (x: Tensor) => Tensor;
  constructor(up: Linear, down: Linear, f: string) {
    super();
    this.up = up;
    this.down = down;
    this.#f = activation(f);
  }
  forward(x: Tensor): Tensor {
    return this.down.forward(this.#f(this.up.forward(x)));
  }
}
export const feedForward = (
  vb: VarBuilder,
  [up, down]: readonly [string, string],
  width: number,
  inner: number,
  f: string,
): FeedForward => new FeedForward(linear(width, inner, vb.pp(up)), linear(inner, width, vb.pp(down)), f);

/** down(f(gate x) * up x). */
export class GatedFeedForward extends Layer {
  readonly gate: Linear;
  readonly up: Linear;
  readonly down: Linear;
  readonly #f: (x: Tensor) => Tensor;
  constructor(gate: Linear, up: Linear, down: Linear, f: string) {
    super();
    this.gate = gate;
    this.up = up;
    this.down = down;
    this.#f = activation(f);
  }
  forward(x: Tensor): Tensor {
    return this.down.forward(this.#f(this.gate.forward(x)).mul(this.up.forward(x)));
  }
}

/** Norms before attention and feed-forward, their outputs added: the block of vision models and CLIP's text. */
export class PreNormBlock extends Module {
  readonly norm1: LayerNorm;
  readonly attention: MultiHead;
  readonly norm2: LayerNorm;
  readonly mlp: Layer;
  /** What is added is multiplied by these, where a family has them. */
  readonly scales: readonly Tensor[];
  constructor(
    norm1: LayerNorm,
    attention: MultiHead,
    norm2: LayerNorm,
    mlp: Layer,
    scales: readonly [attended: Tensor, fed: Tensor] | readonly [] = [],
  ) {
    super();
    this.norm1 = norm1;
    this.attention = attention;
    this.norm2 = norm2;
    this.mlp = mlp;
    this.scales = scales;
  }
  forward(x: Tensor, o: AttendOptions = {}): Tensor {
    const scaled = (y: Tensor, i: number): Tensor => (this.scales.length > 0 ? y.mul(this.scales[i]) : y);
    const y = x.add(scaled(this.attention.forward(this.norm1.forward(x), o), 0));
    return y.add(scaled(this.mlp.forward(this.norm2.forward(y)), 1));
  }
}

/** A mask of tokens (b, t), 1 where there is one, as attention takes it: (b, 1, 1, t). */
export const keysMask = (mask: Tensor | undefined): Tensor | undefined =>
  mask?.ne(0).cast('u8').reshape([mask.shape[0], 1, 1, mask.shape[1]]);
