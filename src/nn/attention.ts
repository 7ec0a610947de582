// Attention of many heads, with PyTorch's parameters and names.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { requireOptions, requireShare, requireWhole } from '../ops/kernel-row.js';
import type { Tensor } from '../tensor/tensor.js';
import { dropout } from './dropout.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions, within } from './fresh.js';
import { uniform, xavier, ZERO } from './init.js';
import { Linear } from './linear.js';
import { Module } from './module.js';

/** Options of attention that is made by its sizes. */
export interface MultiheadAttentionOptions extends MakeOptions {
  /** Probability that a weight is left out while training; default 0. */
  readonly dropout?: number;
  /** Whether the products have biases; default true. */
  readonly bias?: boolean;
  /** The width of keys; default that of queries. */
  readonly kdim?: number;
  /** The width of values; default that of queries. */
  readonly vdim?: number;
}
/** What a call of attention may look at. */
export interface AttendOptions {
  /** Queries see no later key. */
  readonly causal?: boolean;
  /**
   * (queries, keys), (batch, queries, keys) or (batch, heads, queries, keys): truth values that are true where a query
   * sees a key (PyTorch's masks say the opposite), or numbers that are added to the logits.
   */
  readonly mask?: Tensor;
  /** (batch, keys), true for keys that are padding, which no query sees. */
  readonly keyPadding?: Tensor;
}

/**
 * Queries, keys and values of (batch, time, width), each as `heads` parts that attend on their own: PyTorch's
 * MultiheadAttention with batch_first.
 */
export class MultiheadAttention extends Module {
  /** (3 width, width): the products of queries, keys and values as one, where all have one width. */
  inProjWeight: Tensor | undefined;
  /** (width, width) for queries, where keys or values have another width than queries. */
  qProjWeight: Tensor | undefined;
  /** (width, keyWidth), in that case. */
  kProjWeight: Tensor | undefined;
  /** (width, valueWidth), in that case. */
  vProjWeight: Tensor | undefined;
  /** (3 width): the biases of queries, keys and values, one after another. */
  inProjBias: Tensor | undefined;
  /** The product that mixes the heads' answers. */
  outProj: Linear;
  /** Features of queries and of the result. */
  readonly width: number;
  /** How many heads; `width / heads` features each. */
  readonly heads: number;
  /** Share of the attention weights that is dropped while training. */
  readonly dropout: number;
  constructor(width: number, heads: number, options: MultiheadAttentionOptions = {}) {
    super();
    requireOptions('MultiheadAttention', options, ['dropout', 'bias', 'kdim', 'vdim', ...MAKE_OPTIONS], ['bias']);
    requireWhole('MultiheadAttention', 'sizes', [width, heads], 1);
    if (width % heads !== 0)
      throw new ArgumentError(`MultiheadAttention: a width of ${width} does not divide into ${heads} heads`);
    this.width = width;
    this.heads = heads;
    this.dropout = options.dropout ?? 0;
    requireShare('MultiheadAttention', 'dropout', this.dropout);
    const { bias = true, kdim = width, vdim = width } = options;
    requireWhole('MultiheadAttention', 'kdim and vdim', [kdim, vdim], 1);
    const vb = builderOf(options);
    if (kdim === width && vdim === width) this.inProjWeight = vb.get([3 * width, width], 'in_proj_weight', xavier());
    else {
      this.qProjWeight = vb.get([width, width], 'q_proj_weight', xavier());
      this.kProjWeight = vb.get([width, kdim], 'k_proj_weight', xavier());
      this.vProjWeight = vb.get([width, vdim], 'v_proj_weight', xavier());
    }
    if (bias) this.inProjBias = vb.get([3 * width], 'in_proj_bias', ZERO);
    const near = 1 / Math.sqrt(width);
    this.outProj = new Linear(width, width, {
      bias: false,
      init: uniform(-near, near),
      ...within(options, 'out_proj'),
    });
    if (bias) this.outProj.bias = vb.pp('out_proj').get([width], 'bias', ZERO);
  }
  override describe(): string {
    return `${this.width}, ${this.heads} heads${this.dropout ? `, dropout ${this.dropout}` : ''}`;
  }
  /** What queries gather from values by their likeness to keys; keys and values are the queries where left out. */
  forward(query: Tensor, key: Tensor = query, value: Tensor = key, options: AttendOptions = {}): Tensor {
    return this.attend(query, key, value, options, false).output;
  }
  /** The same with the weights, (batch, heads, queries, keys), beside it. */
  attend(
    query: Tensor,
    key: Tensor = query,
    value: Tensor = key,
    options: AttendOptions = {},
    withWeights = true,
  ): { readonly output: Tensor; readonly weights: Tensor | undefined } {
    requireOptions('MultiheadAttention', options, ['causal', 'mask', 'keyPadding']);
    const given = { query, key, value };
    for (const [i, [what, t]] of Object.entries(given).entries())
      if (t.rank !== 3 || t.shape[2] !== this.#widthOf(i))
        throw new ShapeError(
          `MultiheadAttention: ${what} ${formatShape(t.shape)} is not (batch, time, width) of a width of ` +
            `${this.#widthOf(i)}`,
        );
    const [batch] = query.shape;
    if (key.shape[0] !== batch || value.shape[0] !== batch || key.shape[1] !== value.shape[1])
      throw new ShapeError(
        `MultiheadAttention: query ${formatShape(query.shape)}, key ${formatShape(key.shape)} and value ` +
          `${formatShape(value.shape)} are not of one batch, with a value for each key`,
      );
    const [q, k, v] = [query, key, value].map((t, i) => this.#heads(this.#project(t, i)));
    const mask = this.#mask(q, k, options);
    const plain = withWeights || (this.dropout > 0 && this.training);
    if (!plain) {
      const y = q.sdpa(k, v, { causal: options.causal ?? false, ...(mask && { mask }) });
      return { output: this.#joined(y), weights: undefined };
    }
    const logits = q.affine(1 / Math.sqrt(this.width / this.heads), 0).matmul(k.transpose(-2, -1));
    const seen = options.causal ? causalMask(logits) : undefined;
    const bent = [mask, seen].reduce<Tensor>((x, m) => (m ? masked(x, m) : x), logits);
    const weights = bent.softmax(-1);
    const kept = this.training ? dropout(weights, this.dropout) : weights;
    return { output: this.#joined(kept.matmul(v)), weights };
  }
  /** The weight that queries, keys or values have to themselves, where they do not share one. */
  #own(i: number): Tensor | undefined {
    return [this.qProjWeight, this.kProjWeight, this.vProjWeight][i];
  }
  #widthOf(i: number): number {
    return this.#own(i)?.shape[1] ?? this.width;
  }
  #project(x: Tensor, i: number): Tensor {
    const { width } = this;
    const own = this.#own(i);
    const weight = own ?? (this.inProjWeight as Tensor).narrow(0, i * width, width);
    const y = x.matmul(weight.t());
    return this.inProjBias ? y.add(this.inProjBias.narrow(0, i * width, width)) : y;
  }
  /** (batch, time, width) to (batch, heads, time, width / heads). */
  #heads(x: Tensor): Tensor {
    const [b, t] = x.shape;
    return x.reshape([b, t, this.heads, this.width / this.heads]).transpose(1, 2);
  }
  #joined(y: Tensor): Tensor {
    const [b, , t] = y.shape;
    return this.outProj.forward(y.transpose(1, 2).reshape([b, t, this.width]));
  }
  /** One mask for (batch, heads, queries, keys) out of those given. */
  #mask(q: Tensor, k: Tensor, { mask, keyPadding }: AttendOptions): Tensor | undefined {
    const wide = mask && (mask.rank === 3 ? mask.unsqueeze(1) : mask);
    const whole = [q.shape[0], this.heads, q.shape[2], k.shape[2]];
    if (wide && !(wide.rank <= 4 && wide.shape.every((n, i) => n === 1 || n === whole[4 - wide.rank + i])))
      throw new ShapeError(
        `MultiheadAttention: mask ${formatShape((mask as Tensor).shape)} does not fit (batch, heads, queries, keys) ` +
          formatShape(whole),
      );
    if (keyPadding && keyPadding.shape.join() !== [whole[0], whole[3]].join())
      throw new ShapeError(
        `MultiheadAttention: keyPadding ${formatShape(keyPadding.shape)} is not (batch, keys) ` +
          formatShape([whole[0], whole[3]]),
      );
    const sized = wide?.broadcastTo(whole);
    const unseen = keyPadding?.ne(0).reshape([q.shape[0], 1, 1, k.shape[2]]);
    if (!unseen) return sized;
    const padded = unseen.where(q.newFull([], -Infinity), q.newFull([], 0));
    if (!sized) return padded.broadcastTo(whole);
    const added = isTruth(sized) ? sized.ne(0).where(q.newFull([], 0), q.newFull([], -Infinity)) : sized;
    return added.add(padded);
  }
}
const isTruth = (t: Tensor): boolean => t.dtype === 'bool' || t.dtype === 'u8';
const masked = (logits: Tensor, mask: Tensor): Tensor =>
  isTruth(mask) ? mask.ne(0).where(logits, logits.constant(-Infinity)) : logits.add(mask);
const causalMask = (logits: Tensor): Tensor => {
  const [rows, columns] = logits.shape.slice(-2);
  return logits.newFull([rows, columns], 1, 'u8').tril(columns - rows);
};
