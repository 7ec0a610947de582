// Heads of encoders that answer for every token: the word behind a mask, a token's class, where an answer begins and
// ends.
import { sameShape } from '../../base/shape.js';
import { activation } from '../../nn/activation.js';
import { type LayerNorm, layerNorm, Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { architecturesOf, type Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';

/** What a head answers, by the end of the architecture's name. */
const TASKS = {
  ...{ ForMaskedLM: 'words', WithLMHeadModel: 'words' },
  ...{ ForTokenClassification: 'classes', ForQuestionAnswering: 'spans' },
  ForQuestionAnsweringSimple: 'spans',
} as const;
export type TokenTask = (typeof TASKS)[keyof typeof TASKS];

/** Where a head's tensors lie. */
interface Places {
  /** A product, an activation and, where it is named, a norm come first. */
  readonly dense?: string;
  readonly norm?: string;
  /** The activation, where it is not the model's own. */
  readonly bend?: string;
  /** The last product, and where else its bias may lie. */
  readonly out: string;
  readonly bias?: string;
}
/** Heads for words as families name them; the first whose first tensor is stored is the one. */
const WORDS: readonly Places[] = [
  {
    ...{ dense: 'cls.predictions.transform.dense', norm: 'cls.predictions.transform.LayerNorm' },
    ...{ out: 'cls.predictions.decoder', bias: 'cls.predictions.bias' },
  },
  { dense: 'lm_head.dense', norm: 'lm_head.layer_norm', out: 'lm_head.decoder', bias: 'lm_head.bias' },
  { dense: 'cls.predictions.dense', norm: 'cls.predictions.LayerNorm', out: 'cls.predictions.decoder' },
  { dense: 'vocab_transform', norm: 'vocab_layer_norm', out: 'vocab_projector' },
  { dense: 'predictions.dense', norm: 'predictions.LayerNorm', out: 'predictions.decoder', bias: 'predictions.bias' },
  { dense: 'generator_predictions.dense', norm: 'generator_predictions.LayerNorm', out: 'generator_lm_head' },
  { dense: 'head.dense', norm: 'head.norm', out: 'decoder' },
  { out: 'pred_layer.proj' },
  { out: 'lm_head' },
];
/** What some families call the norm of these heads. */
const OTHER_NORMS = ['cls.predictions.transform.layer_norm', 'lm_head.norm'];
const CLASSES: readonly Places[] = [
  { dense: 'classifier.dense', bend: 'tanh', out: 'classifier.out_proj' },
  { dense: 'head.dense', norm: 'head.norm', out: 'classifier' },
  { out: 'classifier' },
];
const PLACES: Readonly<Record<TokenTask, readonly Places[]>> = {
  words: WORDS,
  classes: CLASSES,
  spans: [{ dense: 'qa_outputs.dense', bend: 'tanh', out: 'qa_outputs.out_proj' }, { out: 'qa_outputs' }, ...CLASSES],
};

/** What a family's heads have in common. */
export interface TokenHeadStyle {
  readonly eps: number;
  /** Between the first product and its norm. */
  readonly activation: string;
  /** The words' table, which the last product of a head for words is where it is not stored. */
  readonly words?: Tensor;
  /** Further columns of the last product of a head for words. */
  readonly columns?: Tensor;
  /** The head for words is one product and nothing else. */
  readonly plain?: boolean;
  /** The first product has no bias, the norm none, the last one of a head for words none. */
  readonly bare?: { readonly dense?: boolean; readonly norm?: boolean; readonly out?: boolean };
  /** Tensors by names that old files write differently. */
  readonly builder?: VarBuilder;
}

/** From a token's vector to a number a word, a class, or an end of a span. */
export class TokenHead extends Module {
  readonly task: TokenTask;
  readonly dense: Linear | undefined;
  readonly norm: LayerNorm | undefined;
  readonly out: Linear;
  /** The classes' names, by number. */
  readonly labels: readonly string[];
  readonly #bend: (x: Tensor) => Tensor;
  constructor(c: Config, source: ModelSource, task: TokenTask, places: Places, style: TokenHeadStyle) {
    super();
    this.task = task;
    const vb = style.builder ?? source.builder;
    const { bare = {}, words, eps } = style;
    this.#bend = activation(places.bend ?? style.activation);
    if (places.dense !== undefined) {
      const [wide, from] = source.shapeOf(`${places.dense}.weight`);
      this.dense = linear(from, wide, vb.pp(places.dense), { bias: !bare.dense });
      const names = places.norm === undefined ? [] : [places.norm, ...OTHER_NORMS];
      const norm = names.find((n) => vb.has(`${n}.weight`)) ?? names[0];
      if (norm !== undefined) this.norm = layerNorm(wide, vb.pp(norm), { eps, useBias: !bare.norm });
    }
    const weight = `${places.out}.weight`;
    const stored = source.has(weight);
    const fits = stored && source.shapeOf(weight)[1] === words?.shape[1];
    const read = stored || !words ? source.builder.get([...source.shapeOf(weight)], weight) : words;
    const asked = task === 'words' && (!stored || (fits && c.get('tie_word_embeddings') === true));
    const same = (w: Tensor): boolean => sameShape(read.shape, w.shape) && read.eq(w).all().item() === 1;
    const tied = asked && words !== undefined && (read === words || same(words));
    const own = tied ? words : read;
    if (tied && read !== words) read.dispose();
    // Where words are not the embedding's own, neither is the bias the one beside the product.
    const biases = [...(places.bias === undefined ? [] : [places.bias]), `${places.out}.bias`];
    const bias = (tied ? biases : biases.reverse()).find((n) => source.has(n)) ?? biases[0];
    const whole = style.columns && task === 'words' ? keep(scope(() => own.cat([style.columns as Tensor], 1))) : own;
    this.out = new Linear(whole, bare.out && task === 'words' ? undefined : source.builder.get([own.shape[0]], bias));
    if (whole !== own && own !== words) own.dispose();
    const given = (c.get('id2label') ?? {}) as Record<string, string>;
    const classes = task === 'classes' ? own.shape[0] : 0;
    this.labels = Array.from({ length: classes }, (_, i) => given[i] ?? `LABEL_${i}`);
  }
  /** (b, t, width) to (b, t, words, classes or 2). */
  forward(hidden: Tensor): Tensor {
    if (!this.dense) return this.out.forward(hidden);
    const x = this.#bend(this.dense.forward(hidden));
    return this.out.forward(this.norm?.forward(x) ?? x);
  }
}

/** The head for classes of tokens on a decoder. */
export function classesHead(c: Config, source: ModelSource): TokenHead {
  const out = source.has('classifier.weight') ? 'classifier' : 'score';
  return new TokenHead(c, source, 'classes', { out }, { eps: 0, activation: 'identity' });
}

/** The head for tokens that the files say they have, where they have it. */
export function tokenHead(c: Config, source: ModelSource, style: TokenHeadStyle): TokenHead | undefined {
  const names = architecturesOf(c);
  const [, task] = Object.entries(TASKS).find(([end]) => names.some((n) => n.endsWith(end))) ?? [];
  if (!task) return undefined;
  const alone = style.plain && task === 'words' ? WORDS.at(-1) : undefined;
  const places =
    alone ??
    PLACES[task].find(
      (p) => source.has(`${p.dense ?? p.out}.weight`) || (!p.dense && task === 'words' && source.has(`${p.out}.bias`)),
    );
  return places && new TokenHead(c, source, task, places, style);
}
