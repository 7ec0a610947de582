// Conformer layers: half a feed-forward, attention that may know of distances, a filter along time, the other half.
import { toTensor } from '../../io/load.js';
import { activation } from '../../nn/activation.js';
import {
  type Conv1d,
  conv1d,
  type Embedding,
  type LayerNorm,
  layerNorm,
  type Linear,
  linear,
} from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import { Device } from '../../tensor/device.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { UnsupportedError } from '../../base/errors.js';
import type { RopeTable } from '../decoder/rope.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import { FeedForward, keysMask, rowTable } from '../parts.js';

const KINDS = ['relative', 'relative_key', 'rotary'] as const;
export interface ConformerConfig {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  readonly eps: number;
  readonly activation: string;
  /** The filter's length. */
  readonly kernel: number;
  /** The filter sees nothing behind a moment, and what it makes is normed moment by moment, not by the whole. */
  readonly causal: boolean;
  /** How attention knows places: sines of distances, learnt vectors of them, turns, or not at all. */
  readonly places: (typeof KINDS)[number] | undefined;
  /** Speeds of turns, half a head of them. */
  readonly speeds: readonly number[];
  /** The farthest distances that have a learnt vector, before and behind. */
  readonly farthest: readonly [before: number, behind: number];
  /** Products have no biases. */
  readonly bare?: boolean;
  /** Filters have biases. */
  readonly filterBias?: boolean;
  /** A filter that sees both sides finds silence where there is padding, not what stands there. */
  readonly silence?: boolean;
}

/** What all layers read: sines of distances (1, 2 t - 1, width), or cosines and sines of places. */
export interface ConformerPlaces {
  readonly distances?: Tensor;
  readonly turns?: RopeTable;
}
export function conformerPlaces(c: ConformerConfig, x: Tensor): ConformerPlaces {
  const [t, width] = [x.shape[1], c.width];
  const made = (data: Float32Array, shape: readonly number[]): Tensor =>
    tensor(data, { shape, device: x.device }).cast(x.dtype);
  if (c.places === 'relative') {
    // The farthest place before comes first.
    const data = Float32Array.from({ length: (2 * t - 1) * width }, (_, i) => {
      const [at, k] = [t - 1 - Math.floor(i / width), i % width];
      const angle = at * Math.exp((k - (k % 2)) * -(Math.log(10_000) / width));
      return k % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
    });
    return { distances: made(data, [1, 2 * t - 1, width]) };
  }
  if (c.places !== 'rotary') return {};
  const half = Math.floor(width / c.heads / 2);
  const angle = (i: number): number => Math.floor(i / half) * c.speeds[i % half];
  const table = (f: (x: number) => number): Tensor =>
    made(
      Float32Array.from({ length: t * half }, (_, i) => f(angle(i))),
      [t, half],
    );
  return { turns: { cos: table(Math.cos), sin: table(Math.sin) } };
}

class ConformerAttention extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  readonly out: Linear;
  readonly distance: Linear | undefined;
  /** What queries are added for contents and for distances, (heads, d). */
  readonly contentBias: Tensor | undefined;
  readonly distanceBias: Tensor | undefined;
  readonly table: Embedding | undefined;
  readonly #config: ConformerConfig;
  constructor(vb: VarBuilder, c: ConformerConfig) {
    super();
    this.#config = c;
    const [width, d] = [c.width, c.width / c.heads];
    [this.q, this.k, this.v, this.out] = ['q', 'k', 'v', 'out'].map((n) =>
      linear(width, width, vb.pp(`linear_${n}`), { bias: !c.bare }),
    );
    const relative = c.places === 'relative';
    this.distance = relative ? linear(width, width, vb.pp('linear_pos'), { bias: false }) : undefined;
    this.contentBias = relative ? vb.get([c.heads, d], 'pos_bias_u') : undefined;
    this.distanceBias = relative ? vb.get([c.heads, d], 'pos_bias_v') : undefined;
    const learnt = c.places === 'relative_key';
    this.table = learnt ? rowTable(c.farthest[0] + c.farthest[1] + 1, d, vb.pp('distance_embedding')) : undefined;
  }
  /** (b, t, width) to (b, heads, t, d). */
  #split(x: Tensor): Tensor {
    const { heads, width } = this.#config;
    return x.reshape([x.shape[0], x.shape[1], heads, width / heads]).transpose(1, 2);
  }
  /** Turned before the products, head by head. */
  #turned(x: Tensor, { cos, sin }: RopeTable): Tensor {
    return this.#split(x).contiguous().rope(cos, sin).transpose(1, 2).reshape(x.shape);
  }
  /** Scores of learnt vectors of distances, (b, heads, t, t). */
  #learnt(q: Tensor, table: Embedding): Tensor {
    const [b, heads, t] = q.shape;
    const [before, behind] = this.#config.farthest;
    const at = (i: number): number => Math.min(behind, Math.max(-before, (i % t) - Math.floor(i / t))) + before;
    const ids = tensor(
      Uint32Array.from({ length: t * t }, (_, i) => at(i)),
      { shape: [1, 1, t, t], device: q.device },
    );
    return q.matmul(table.weight.t()).gather(3, ids.broadcastTo([b, heads, t, t]).contiguous());
  }
  /** Scores of sines of distances, (b, heads, t, t). */
  #reckoned(q: Tensor, distances: Tensor, distance: Linear): Tensor {
    const [b, heads, t] = q.shape;
    const rows = this.#split(distance.forward(distances)).transpose(2, 3);
    const all = q.matmul(rows.contiguous()); // (b, heads, t, 2 t - 1)
    // One column more, and each row begins a place earlier than the one before it.
    const wide = all
      .narrow(3, 0, 1)
      .zerosLike()
      .cat([all], 3)
      .reshape([b, heads, 2 * t, t]);
    return wide
      .narrow(2, 1, 2 * t - 1)
      .contiguous()
      .reshape([b, heads, t, 2 * t - 1])
      .narrow(3, 0, t);
  }
  forward(x: Tensor, places: ConformerPlaces, hidden: Tensor | undefined): Tensor {
    const { width, heads } = this.#config;
    const { distances, turns } = places;
    const asked = turns ? this.#turned(x, turns) : x;
    let q = this.#split(this.q.forward(asked));
    const [k, v] = [this.#split(this.k.forward(asked)), this.#split(this.v.forward(x))];
    let scores: Tensor | undefined;
    if (this.table) scores = this.#learnt(q, this.table);
    if (distances && this.distance && this.contentBias && this.distanceBias) {
      scores = this.#reckoned(q.add(this.distanceBias.unsqueeze(1)), distances, this.distance);
      q = q.add(this.contentBias.unsqueeze(1));
    }
    const scaled = scores?.affine((width / heads) ** -0.5, 0);
    const mask = scaled && hidden ? scaled.add(hidden) : (scaled ?? hidden);
    const y = q.sdpa(k, v, mask ? { mask: mask.contiguous() } : {});
    return this.out.forward(y.transpose(1, 2).reshape(x.shape));
  }
}

class ConformerFilter extends Module {
  readonly norm: LayerNorm;
  readonly into: Conv1d;
  readonly filter: Conv1d;
  readonly wholeNorm: BatchNorm | undefined;
  readonly momentNorm: LayerNorm | undefined;
  readonly out: Conv1d;
  readonly #bend: (x: Tensor) => Tensor;
  readonly #before: number;
  readonly #silence: boolean;
  constructor(vb: VarBuilder, { width, kernel, causal, eps, activation: bend, ...c }: ConformerConfig) {
    super();
    this.#bend = activation(bend);
    this.#before = causal ? kernel - 1 : 0;
    this.#silence = c.silence ?? false;
    const bare = { useBias: c.filterBias ?? false };
    this.norm = layerNorm(width, vb.pp('layer_norm'), causal ? { eps } : {});
    this.into = conv1d(width, 2 * width, 1, vb.pp('pointwise_conv1'), bare);
    const padding = causal ? 0 : (kernel - 1) / 2;
    this.filter = conv1d(width, width, kernel, vb.pp('depthwise_conv'), { ...bare, padding, groups: width });
    this.wholeNorm = causal ? undefined : batchNorm(width, vb.pp('batch_norm'));
    this.momentNorm = causal ? layerNorm(width, vb.pp('depthwise_layer_norm'), { eps }) : undefined;
    this.out = conv1d(width, width, 1, vb.pp('pointwise_conv2'), bare);
  }
  /** `real` (b, t, 1) is 0 where there is padding, of which a filter that sees one side alone takes no notice. */
  forward(x: Tensor, real: Tensor | undefined): Tensor {
    const normed = this.norm.forward(x);
    const along = (real && this.momentNorm ? normed.mul(real) : normed).transpose(1, 2).contiguous();
    const whole = this.into.forward(along).glu(1);
    const gated = real && this.#silence ? whole.mul(real.transpose(1, 2)) : whole;
    const [b, width] = gated.shape;
    const silence = this.#before > 0 ? gated.narrow(1, 0, 1).narrow(2, 0, 1).zerosLike() : undefined;
    const led = silence ? silence.broadcastTo([b, width, this.#before]).contiguous().cat([gated], 2) : gated;
    const y = this.filter.forward(led);
    const even =
      this.wholeNorm?.forward(y) ?? (this.momentNorm as LayerNorm).forward(y.transpose(1, 2)).transpose(1, 2);
    return this.out.forward(this.#bend(even.contiguous())).transpose(1, 2).contiguous();
  }
}

const HALVES = ['ffn1', 'ffn2'] as const;
export class ConformerBlock extends Module {
  readonly halves: readonly FeedForward[];
  readonly halfNorms: readonly LayerNorm[];
  readonly attention: ConformerAttention;
  readonly attentionNorm: LayerNorm;
  readonly filter: ConformerFilter;
  readonly norm: LayerNorm;
  constructor(vb: VarBuilder, c: ConformerConfig) {
    super();
    const norm = (name: string): LayerNorm =>
      layerNorm(c.width, vb.pp(`${name}_layer_norm`), c.causal ? { eps: c.eps } : {});
    const product = (half: string, name: string, from: number, to: number): Linear =>
      linear(from, to, vb.pp(half, name), { bias: !c.bare });
    this.halves = HALVES.map((half) => {
      const up = product(half, 'intermediate_dense', c.width, c.inner);
      return new FeedForward(up, product(half, 'output_dense', c.inner, c.width), c.activation);
    });
    this.halfNorms = HALVES.map(norm);
    this.attention = new ConformerAttention(vb.pp('self_attn'), c);
    this.attentionNorm = norm('self_attn');
    this.filter = new ConformerFilter(vb.pp('conv_module'), c);
    this.norm = norm('final');
  }
  #half(x: Tensor, i: number): Tensor {
    return x.add(this.halves[i].forward(this.halfNorms[i].forward(x)).affine(0.5, 0));
  }
  /** `real`: u8 (b, t), 1 for moments that are no padding. */
  forward(x: Tensor, places: ConformerPlaces, real: Tensor | undefined): Tensor {
    const kept = real?.cast(x.dtype);
    const hidden = keysMask(real)?.cast(x.dtype).affine(HIDDEN, -HIDDEN);
    let y = this.#half(x, 0);
    y = y.add(this.attention.forward(this.attentionNorm.forward(y), places, hidden));
    y = y.add(this.filter.forward(y, kept?.unsqueeze(2)));
    return this.norm.forward(this.#half(y, 1));
  }
}
/** What takes a key out of sight; as far as f16 goes. */
const HIDDEN = 3e4;

/** `speeds`: those of turns, where files have them. */
export function conformerConfig(c: Config, causal: boolean, speeds?: readonly number[]): ConformerConfig {
  const said = c.has('position_embeddings_type') ? c.text('position_embeddings_type') : undefined;
  const places = KINDS.find((kind) => kind === said && (causal || kind !== 'relative_key'));
  if (said !== undefined && !places)
    throw new UnsupportedError(
      `${c.where}: position_embeddings_type is ${JSON.stringify(said)}; served are relative, rotary` +
        `${causal ? ', relative_key' : ''} and null`,
    );
  c.ignore('max_source_positions', 'conformer_conv_dropout');
  const kernel = c.count('conv_depthwise_kernel_size', 31, 1);
  if (kernel % 2 === 0)
    throw new UnsupportedError(`${c.where}: conv_depthwise_kernel_size is ${kernel}; odd numbers are served`);
  const [width, heads] = [c.count('hidden_size'), c.count('num_attention_heads', undefined, 1)];
  const [half, base] = [Math.floor(width / heads / 2), c.number('rotary_embedding_base', 10_000)];
  return {
    ...{ causal, places, kernel, width, heads },
    layers: c.count('num_hidden_layers', undefined, 1),
    inner: c.count('intermediate_size'),
    eps: c.number('layer_norm_eps', 1e-5),
    activation: c.activation('hidden_act', causal ? 'swish' : 'gelu'),
    speeds: speeds ?? Array.from({ length: half }, (_, i) => Math.fround(base ** (-i / half))),
    farthest: [c.count('left_max_position_embeddings', 64), c.count('right_max_position_embeddings', 8)],
  };
}

/** The speeds of turns that files hold below a path, as they are stored. */
export function storedSpeeds(source: ModelSource, path: string): readonly number[] | undefined {
  const name = `${path}encoder.embed_positions.inv_freq`;
  if (!source.has(name)) return undefined;
  const stored = toTensor(source.record(name), Device.cpu());
  const speeds = scope(() => stored.cast('f32').toArray() as number[]);
  stored.dispose();
  return speeds;
}
