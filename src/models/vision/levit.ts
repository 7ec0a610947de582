// LeViT: four convolutions, then attention with a score for each distance down and across, in stages whose last layer
// asks for fewer places; norms are those of batches.
import { ArgumentError, FormatError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import { type BatchNorm, batchNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { NormedConv } from './normed-conv.js';
import { asPlaces } from './seg-body.js';
import { type Stage, within } from './staged-net.js';
import { checkPixels, ignoreStages, labelsOf, VisionModel } from './vision-model.js';

const bend = activation('hard_swish');
/** A product without a bias, and a batch norm of what comes out. */
class NormedLinear extends Module {
  readonly linear: Linear;
  readonly norm: BatchNorm;
  constructor(vb: VarBuilder, from: number, to: number) {
    super();
    this.linear = linear(from, to, vb.pp('linear'), { bias: false });
    this.norm = batchNorm(to, vb.pp('batch_norm'));
  }
  forward(x: Tensor): Tensor {
    const y = this.linear.forward(x);
    return this.norm.forward(y.reshape([-1, y.shape[2]])).reshape([...y.shape]);
  }
}
class LevitMlp extends Module {
  readonly up: NormedLinear;
  readonly down: NormedLinear;
  constructor(vb: VarBuilder, width: number, inner: number) {
    super();
    this.up = new NormedLinear(vb.pp('module.linear_up'), width, inner);
    this.down = new NormedLinear(vb.pp('module.linear_down'), inner, width);
  }
  forward(x: Tensor): Tensor {
    return x.add(this.down.forward(bend(this.up.forward(x))));
  }
}

interface AttentionConfig {
  readonly from: number;
  readonly to: number;
  readonly key: number;
  readonly heads: number;
  /** How many times a key's width a value has. */
  readonly ratio: number;
  /** Places in a row, before and after. */
  readonly sides: readonly [before: number, after: number];
  /** Places from one that asks to the next; nothing where all do, and add what they are told to what they are. */
  readonly stride?: number;
}
class LevitAttention extends Module {
  /** Keys and values, and queries before them where all places ask. */
  readonly joined: NormedLinear;
  readonly queries: NormedLinear | undefined;
  readonly project: NormedLinear;
  /** A score for each distance, (heads, side * side). */
  readonly distances: Tensor;
  readonly #config: AttentionConfig;
  constructor(vb: VarBuilder, c: AttentionConfig) {
    super();
    this.#config = c;
    const { from, to, key, heads, ratio, sides, stride } = c;
    const at = stride === undefined ? vb.pp('module') : vb;
    const wide = (ratio + (stride === undefined ? 2 : 1)) * key * heads;
    this.joined = new NormedLinear(at.pp(stride === undefined ? 'queries_keys_values' : 'keys_values'), from, wide);
    this.queries = stride === undefined ? undefined : new NormedLinear(at.pp('queries'), from, key * heads);
    this.project = new NormedLinear(at.pp('projection'), ratio * key * heads, to);
    this.distances = at.get([heads, sides[0] ** 2], 'attention_biases');
  }
  /** (1, heads, places that ask, places). */
  #scores(): Tensor {
    const { heads, sides, stride = 1 } = this.#config;
    const [before, after] = sides;
    const [all, asking] = [before ** 2, after ** 2];
    const ids = Uint32Array.from({ length: asking * all }, (_, i) => {
      const [from, to] = [Math.floor(i / all), i % all];
      const down = Math.abs(Math.floor(from / after) * stride - Math.floor(to / before));
      return down * before + Math.abs((from % after) * stride - (to % before));
    });
    const picked = this.distances.indexSelect(1, tensor(ids, { device: this.distances.device }));
    return picked.reshape([1, heads, asking, all]);
  }
  /** Those of (b, places, width) that ask. */
  #asking(x: Tensor): Tensor {
    const { sides, stride = 1 } = this.#config;
    const [before, after] = sides;
    const ids = Uint32Array.from(
      { length: after ** 2 },
      (_, i) => Math.floor(i / after) * stride * before + (i % after) * stride,
    );
    return x.indexSelect(1, tensor(ids, { device: x.device }));
  }
  forward(x: Tensor): Tensor {
    const { key, heads, ratio, sides } = this.#config;
    const [b, t] = x.shape;
    const split = (y: Tensor): Tensor => y.reshape([b, y.shape[1], heads, -1]).transpose(1, 2);
    const joined = split(this.joined.forward(x));
    const own = this.queries ? 0 : key;
    const q = this.queries ? split(this.queries.forward(this.#asking(x))) : joined.narrow(3, 0, key);
    const [k, v] = [joined.narrow(3, own, key), joined.narrow(3, own + key, ratio * key)];
    if (t !== sides[0] ** 2)
      throw new ArgumentError(`vision: ${t} places; the model has learnt ${sides[0]} x ${sides[0]} of them`);
    // Keys are as wide as values for the product's sake.
    const wide = (y: Tensor): Tensor => (ratio > 1 ? y.pad([0, (ratio - 1) * key]) : y);
    const seen = wide(q).sdpa(wide(k), v, { mask: this.#scores(), scale: key ** -0.5 });
    const y = this.project.forward(bend(seen.transpose(1, 2).reshape([b, seen.shape[2], ratio * key * heads])));
    return this.queries ? y : x.add(y);
  }
}

/** A batch norm and a product. */
class LevitHead extends Module {
  readonly norm: BatchNorm;
  readonly linear: Linear;
  constructor(vb: VarBuilder, width: number, classes: number) {
    super();
    this.norm = batchNorm(width, vb.pp('batch_norm'));
    this.linear = linear(width, classes, vb.pp('linear'));
  }
  forward(x: Tensor): Tensor {
    return this.linear.forward(this.norm.forward(x));
  }
}
class Levit extends VisionModel {
  readonly patches: readonly NormedConv[];
  readonly layers: readonly (Stage & Module)[];
  /** One, or a second that learnt from a teacher. */
  readonly heads: readonly LevitHead[];
  readonly labels: readonly string[];
  constructor(parts: Pick<Levit, 'patches' | 'layers' | 'heads' | 'labels'>) {
    super();
    this.patches = parts.patches;
    this.layers = parts.layers;
    this.heads = parts.heads;
    this.labels = parts.labels;
  }
  get classifier(): Linear | undefined {
    return this.heads[0]?.linear;
  }
  hidden(pixels: Tensor): Tensor {
    checkPixels(pixels, this.patches[0].conv.weight.shape[1]);
    const map = this.patches.reduce((x, conv) => conv.forward(x), pixels);
    return this.layers.reduce((x, layer) => layer.forward(x), asPlaces(map).contiguous());
  }
  pooled(hidden: Tensor): Tensor {
    return hidden.mean([1]);
  }
  override forward(pixels: Tensor): Tensor {
    const vector = this.pooled(this.hidden(pixels));
    if (this.heads.length === 0) return vector;
    const [first, ...rest] = this.heads.map((head) => head.forward(vector));
    return rest.reduce((sum, y) => sum.add(y), first).affine(1 / this.heads.length, 0);
  }
}

/** What a stage ends with: its keys' width, heads, how wide values are, how wide the feed-forward, its stride. */
type Shrinking = readonly [key: number, heads: number, ratio: number, mlp: number, stride: number];
/** As files list it, or as transformers reckons it for three stages. */
function shrinkings(c: Config, keys: readonly number[], sizes: readonly number[]): (Shrinking | undefined)[] {
  const given = c.get('down_ops');
  if (given === undefined)
    return [0, 1].map((i) => [keys[0], Math.floor(sizes[i] / keys[0]), 4, 2, 2] satisfies Shrinking);
  const rows = (Array.isArray(given) ? given : [given]).map((row: unknown) => {
    const [name, ...numbers] = Array.isArray(row) ? (row as unknown[]) : [row];
    if (name === '') return undefined;
    if (name !== 'Subsample' || numbers.length !== 5 || !numbers.every((n) => Number.isInteger(n)))
      throw new FormatError(
        `${c.where}: down_ops holds ${JSON.stringify(row)}, not "Subsample" and five whole numbers`,
      );
    return numbers as unknown as Shrinking;
  });
  return rows;
}
function levit(c: Config, source: ModelSource): Levit {
  ignoreStages(c);
  const vb = within(source, 'levit');
  const listed = (name: string, fallback: readonly number[]): readonly number[] =>
    c.has(name) ? c.numbers(name) : fallback;
  const [sizes, depths] = [listed('hidden_sizes', [128, 256, 384]), listed('depths', [4, 4, 4])];
  const [heads, keys] = [listed('num_attention_heads', [4, 8, 12]), listed('key_dim', [16, 16, 16])];
  const [ratios, mlps] = [listed('attention_ratio', [2, 2, 2]), listed('mlp_ratio', [2, 2, 2])];
  const [kernel, stride] = [c.count('kernel_size', 3, 1), c.count('stride', 2, 1)];
  const padding = c.count('padding', 1);
  const at = vb.pp('patch_embeddings');
  const widths = [c.count('num_channels', 3, 1), ...[8, 4, 2, 1].map((n) => Math.floor(sizes[0] / n))];
  const patches = [1, 2, 3, 4].map(
    (i) =>
      new NormedConv(at.pp(`embedding_layer_${i}`), [widths[i - 1], widths[i]], {
        ...{ kernel, stride, padding, names: ['convolution', 'batch_norm'] },
        ...(i < 4 && { bend }),
      }),
  );
  const shrinks = shrinkings(c, keys, sizes);
  let side = Math.floor(c.count('image_size', 224, 1) / c.count('patch_size', 16, 1));
  const layers = depths.flatMap((depth, i) => {
    const own: (Stage & Module)[] = [];
    const next = (): VarBuilder => vb.pp('encoder.stages', i, 'layers', own.length);
    const mlp = (width: number, ratio: number): void => {
      if (ratio > 0) own.push(new LevitMlp(next(), width, width * ratio));
    };
    for (let k = 0; k < depth; k++) {
      const o = { from: sizes[i], to: sizes[i], key: keys[i], heads: heads[i], ratio: ratios[i] };
      own.push(new LevitAttention(next(), { ...o, sides: [side, side] }));
      mlp(sizes[i], mlps[i]);
    }
    const shrink = shrinks[i];
    if (!shrink || i === depths.length - 1) return own;
    const [key, asking, ratio, wide, by] = shrink;
    const after = Math.floor((side - 1) / by) + 1;
    const o = { from: sizes[i], to: sizes[i + 1], key, heads: asking, ratio, stride: by };
    own.push(new LevitAttention(next(), { ...o, sides: [side, after] }));
    side = after;
    mlp(sizes[i + 1], wide);
    return own;
  });
  const names = ['classifier', 'classifier_distill'].filter((name) => source.has(`${name}.linear.weight`));
  const classes = names.length > 0 ? source.shapeOf('classifier.linear.weight')[0] : 0;
  const width = sizes.at(-1) as number;
  c.ignore('id2label');
  return new Levit({
    ...{ patches, layers },
    heads: names.map((name) => new LevitHead(source.builder.pp(name), width, classes)),
    labels: labelsOf(c, classes),
  });
}
export const LEVIT_FAMILIES: readonly ModelRow[] = [{ kind: 'vision', types: ['levit'], build: levit }];
