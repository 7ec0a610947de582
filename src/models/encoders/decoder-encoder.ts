// A decoder that makes vectors of texts (Qwen3-Embedding, E5-Mistral, EmbeddingGemma): its layers without a head,
// looking back or, where the model was trained so, both ways. Or one that sorts and scores texts (reward models,
// rerankers): a head reads the vector of the last token.
import { arange } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { CausalLM } from '../decoder/decoder.js';
import { ClassifierHead, classifiesTokens, type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import { UnsupportedError } from '../../base/errors.js';
import { keysMask } from '../parts.js';
import type { ModelSource } from '../files/source.js';
import { type AttendOptions, BatchStep } from '../decoder/step.js';
import { classesHead, type TokenHead } from './token-head.js';

/** A run whose tokens see those behind them, too, but no padding. */
class BothWaysStep extends BatchStep {
  readonly #mask: Tensor | undefined;
  constructor(ids: Tensor, mask: Tensor | undefined) {
    super(ids.device, ids.shape[1], undefined, undefined);
    this.#mask = keysMask(mask);
  }
  override attend(_layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    if (!k || !v || chunk !== undefined || alibi)
      throw new UnsupportedError('attention: chunks, alibi and lent keys are not served both ways');
    const turned = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]);
    const y = turned(q).sdpa(turned(k), turned(v), {
      scale,
      ...(softcap && { softcap }),
      ...(sinks && { sinks }),
      ...(this.#mask && { mask: this.#mask }),
      ...(window !== undefined && { window: [window - 1, window - 1] as [number, number] }),
    });
    return turned(y);
  }
}

/** Which token a head reads: the last that is no padding, by the mask and by the number that stands for padding. */
function lastToken(hidden: Tensor, { ids, mask }: EncoderInput, padding: number | undefined): Tensor {
  const [b, t, width] = hidden.shape;
  const places = arange(1, t + 1, 1, { dtype: 'f32', device: hidden.device }).broadcastTo([b, t]);
  const real = [mask?.ne(0), padding === undefined ? undefined : ids.ne(padding)];
  const counted = real.reduce<Tensor>((x, which) => (which ? x.mul(which.cast('f32')) : x), places);
  const at = counted.argmax(1).cast('u32').reshape([b, 1, 1]);
  return hidden.gather(1, at.broadcastTo([b, 1, width]).contiguous()).squeeze(1);
}

/** Heads on top of a decoder, for whole texts or for every token. */
interface DecoderHeads {
  readonly classifier?: ClassifierHead;
  readonly tokens?: TokenHead;
  /** The token that stands for padding. */
  readonly padding?: number | undefined;
}
/** The vectors behind a decoder's last norm; padding stands behind the texts. */
export class DecoderEncoder extends TextEncoder {
  readonly model: CausalLM;
  readonly width: number;
  readonly maxTokens: number;
  override readonly classifier: ClassifierHead | undefined;
  readonly #padding: number | undefined;
  constructor(model: CausalLM, heads: DecoderHeads = {}) {
    super();
    const { embedWidth, hiddenSize, maxPositions } = model.config;
    this.model = model;
    this.width = embedWidth ?? hiddenSize;
    this.maxTokens = maxPositions;
    this.classifier = heads.classifier;
    this.tokens = heads.tokens;
    this.#padding = heads.padding;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask } = input;
    const step = this.model.config.bothWays
      ? new BothWaysStep(ids, mask)
      : new BatchStep(ids.device, ids.shape[1], undefined, undefined);
    const normed = this.model.norm.forward(this.model.hidden(ids, step));
    const hidden = this.model.embedOut ? this.model.embedOut.forward(normed) : normed;
    if (!this.classifier) return { hidden };
    const pooled = lastToken(hidden, input, this.#padding);
    return { hidden, logits: this.classifier.forward({ hidden, pooled }) };
  }
}

/** Where files keep the head of whole texts: a product without a bias. */
const HEADS = ['score', 'classifier'];
/** A decoder with the head that its files are named after. */
export function decoderWithHead(
  c: Config,
  source: ModelSource,
  model: CausalLM,
  named: readonly string[] = HEADS,
): DecoderEncoder {
  const { embedWidth, hiddenSize } = model.config;
  if (classifiesTokens(c)) return new DecoderEncoder(model, { tokens: classesHead(c, source) });
  const out = named.find((name) => source.has(`${name}.weight`)) ?? named[0];
  const classifier = new ClassifierHead(c, source, embedWidth ?? hiddenSize, { out, plain: true });
  const text = c.inner('text_config') ?? c;
  return new DecoderEncoder(model, { classifier, padding: text.optional('pad_token_id') });
}
