// Text encoders: token numbers in, a vector a token out; what all of them answer.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import { architecturesOf, type Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { TokenHead } from './token-head.js';

export interface EncoderInput {
  /** Token numbers, (batch, time). */
  readonly ids: Tensor;
  /** 1 for a token, 0 for padding; default all tokens. */
  readonly mask?: Tensor;
  /** Which of two texts a token belongs to, for models that know. */
  readonly typeIds?: Tensor;
  /** Which tokens each token sees, (batch, time, time), in place of all that are no padding; BERT's kind alone. */
  readonly seen?: Tensor;
  /**
   * Where each token stands on its page, (batch, time, 4): left, upper, right and lower edge in thousandths; models of
   * pages alone, for which all tokens stand in the first corner by default.
   */
  readonly boxes?: Tensor;
  /** The page as the model sees it, (batch, channels, height, width); models that look at pages alone. */
  readonly pixels?: Tensor;
  /** Each token's position, (batch, time), in place of its place in the text; BERT's kind alone. */
  readonly at?: Tensor;
}
export interface EncoderOutput {
  /** (batch, time, width). */
  readonly hidden: Tensor;
  /** What the model's own pooler makes of the first token, where it has one. */
  readonly pooled?: Tensor;
  /** What its head for whole texts answers, (batch, classes), where it has one. */
  readonly logits?: Tensor;
}

export abstract class TextEncoder extends Module {
  /** Width of a token's vector. */
  abstract readonly width: number;
  /** How many tokens it takes. */
  abstract readonly maxTokens: number;
  /** The head for whole texts, where the files are those of a classifier. */
  readonly classifier?: ClassifierHead;
  /** The head for tokens, where the files have one: words behind masks, classes of tokens, spans that answer. */
  tokens?: TokenHead | undefined;
  abstract forward(input: EncoderInput): EncoderOutput;
  /** What the head for tokens answers, (batch, time, words, classes or 2). */
  tokenLogits(input: EncoderInput): Tensor {
    if (!this.tokens) throw new ArgumentError('encoder: the model has no head for tokens');
    return this.tokens.forward(this.forward(input).hidden);
  }

  protected checkInput({ ids, mask }: EncoderInput): void {
    if (
      ids.rank !== 2 ||
      (mask && (mask.rank !== 2 || mask.shape[0] !== ids.shape[0] || mask.shape[1] !== ids.shape[1]))
    )
      throw new ArgumentError(
        `encoder: ids have shape [${ids.shape.join(', ')}]${
          mask ? `, the mask [${mask.shape.join(', ')}]` : ''
        }; both must be (batch, time)`,
      );
    if (ids.shape[1] > this.maxTokens)
      throw new ArgumentError(`encoder: ${ids.shape[1]} tokens, the model takes ${this.maxTokens}`);
  }
}

/** How a family's head for whole texts is made. */
export interface ClassifierNames {
  readonly out: string;
  /** A product before it on the first token's vector, and its activation; without one the model's pooler is read. */
  readonly dense?: readonly [name: string, activation: string];
  /** Without one, the first token's vector is read as it is. */
  readonly first?: boolean;
  /** The product before it has no bias. */
  readonly bare?: boolean;
  /** The last product has no bias. */
  readonly plain?: boolean;
  /** A norm behind the activation. */
  readonly norm?: { readonly name: string; readonly eps: number; readonly useBias: boolean };
  /** The mean of all tokens' vectors is read, not the first; 'late': of what the head makes of each. */
  readonly mean?: boolean | 'late';
}
/** From the first token's vector, from the mean of all, or from what the pooler makes of them, to a number a class. */
export class ClassifierHead extends Module {
  readonly dense: Linear | undefined;
  readonly norm: LayerNorm | undefined;
  readonly out: Linear;
  readonly #mean: boolean | 'late';
  readonly #first: boolean;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  /** A text may be of several classes. */
  readonly several: boolean;
  /** Scores of pairs are logits as they are. */
  readonly plainScores: boolean;
  readonly #bend: (x: Tensor) => Tensor;
  constructor(c: Config, source: ModelSource, width: number, names: ClassifierNames) {
    super();
    const [count] = source.shapeOf(`${names.out}.weight`);
    const { dense, norm, bare = false, plain = false, mean = false } = names;
    this.#mean = mean;
    this.#first = names.first ?? false;
    this.dense = dense && linear(width, width, source.builder.pp(dense[0]), { bias: !bare });
    this.norm = norm && layerNorm(width, source.builder.pp(norm.name), { eps: norm.eps, useBias: norm.useBias });
    this.#bend = activation(names.dense?.[1] ?? 'identity');
    this.out = linear(width, count, source.builder.pp(names.out), { bias: !plain });
    const given = (c.get('id2label') ?? {}) as Record<string, string>;
    this.labels = Array.from({ length: count }, (_, i) => given[i] ?? `LABEL_${i}`);
    this.several = c.get('problem_type') === 'multi_label_classification';
    const bend =
      c.get('sbert_ce_default_activation_function') ?? c.inner('sentence_transformers')?.get('activation_fn');
    this.plainScores = scoreKind(bend, c.where);
    c.inner('sentence_transformers')?.ignore('version');
  }
  forward({ hidden, pooled }: EncoderOutput, mask?: Tensor): Tensor {
    if (!this.dense) return this.out.forward(this.#first ? hidden.narrow(1, 0, 1).squeeze(1) : (pooled as Tensor));
    const late = this.#mean === 'late';
    const read = late ? hidden : this.#mean ? meanOf(hidden, mask) : hidden.narrow(1, 0, 1).squeeze(1);
    const made = this.#bend(this.dense.forward(read));
    const logits = this.out.forward(this.norm ? this.norm.forward(made) : made);
    return late ? meanOf(logits, mask) : logits;
  }
}
/** Of tokens (b, t, width), without padding. */
function meanOf(hidden: Tensor, mask: Tensor | undefined): Tensor {
  if (!mask) return hidden.mean([1]);
  const real = mask.ne(0).cast(hidden.dtype).unsqueeze(2);
  return hidden
    .mul(real)
    .sum([1])
    .div(real.sum([1]));
}
/** Whether scores are left as they are; a class of PyTorch's by its last name. */
function scoreKind(name: unknown, where: string): boolean {
  const last = typeof name === 'string' ? name.split('.').at(-1) : 'Sigmoid';
  if (last !== 'Identity' && last !== 'Sigmoid')
    throw new UnsupportedError(`${where}: scores by ${String(name)}; Identity and Sigmoid are served`);
  return last === 'Identity';
}
/** Only files of a model that classifies whole texts: a head of the same name may stand for tokens. */
export const classifies = (c: Config): boolean =>
  architecturesOf(c).some((a) => a.endsWith('ForSequenceClassification'));

/** Files of a model that tells where an answer begins and ends. */
export const findsAnswers = (c: Config): boolean => architecturesOf(c).some((a) => a.endsWith('ForQuestionAnswering'));

/** Files of a model that classifies tokens. */
export const classifiesTokens = (c: Config): boolean =>
  architecturesOf(c).some((a) => a.endsWith('ForTokenClassification'));
/** Refuses files that are named after a head which their family has here no use for. */
export function refuseHeads(c: Config, ...tasks: readonly string[]): void {
  const named = architecturesOf(c).find((a) => tasks.some((task) => a.endsWith(`For${task}`)));
  if (named !== undefined)
    throw new UnsupportedError(`${c.where}: architectures names ${named}, a head that is not served for this family`);
}

/** Heads that files of an encoder may carry for tasks other than encoding. */
export const TASK_HEADS =
  /^(cls|classifier|lm_head|qa_outputs|pre_classifier|vocab_\w+|decoder|head|score)\.|\.position_ids$|^position_ids$/;
