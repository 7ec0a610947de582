// Encoder-decoders with a head: a text is read and written again, and the head sees what was written, at the last end
// token (classes of texts, as zero-shot classification has them) or everywhere (where an answer begins and ends).
import { FormatError } from '../../base/errors.js';
import { arange, tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { classifies, ClassifierHead, type EncoderInput, type EncoderOutput, TextEncoder } from '../encoders/encoder.js';
import { type TokenHead, tokenHead } from '../encoders/token-head.js';
import type { Seq2Seq, Seq2SeqState } from './seq2seq.js';
import type { ModelSource } from '../files/source.js';

const HEAD = { dense: ['classification_head.dense', 'tanh'], out: 'classification_head.out_proj' } as const;

/** What heads ask of the model that reads and writes. */
type ReaderWriter = Seq2Seq & { hidden(ids: Tensor, state: Seq2SeqState): Tensor };
/** What is known of texts. */
interface TextRules {
  readonly width: number;
  /** How many tokens the model takes. */
  readonly room: number;
  /** What an answer begins with; where nothing is said, the text's last token, its language. */
  readonly start: number | undefined;
  readonly padding: number;
  readonly end: number;
}

export class RewritingEncoder extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly model: ReaderWriter;
  override readonly classifier: ClassifierHead | undefined;
  readonly #rules: TextRules;
  constructor(model: ReaderWriter, rules: TextRules, head: ClassifierHead | TokenHead) {
    super();
    this.model = model;
    this.width = rules.width;
    this.maxTokens = rules.room;
    this.#rules = rules;
    this.classifier = head instanceof ClassifierHead ? head : undefined;
    this.tokens = head instanceof ClassifierHead ? undefined : head;
  }
  /** The vector at the last place where a condition (b, t) holds; the first one where it holds nowhere. */
  #last(x: Tensor, where: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const counted = where.cast('f32').mul(arange(1, t + 1, 1, { dtype: 'f32', device: x.device }));
    const place = counted.argmax(1).cast('u32').reshape([b, 1, 1]);
    return x.gather(1, place.broadcastTo([b, 1, width]).contiguous());
  }
  /** The text itself, one token later. */
  #shifted(ids: Tensor): Tensor {
    const [b, t] = ids.shape;
    const { start, padding } = this.#rules;
    const first =
      start === undefined
        ? this.#last(ids.cast('f32').unsqueeze(2), ids.ne(padding)).squeeze(2).cast(ids.dtype)
        : tensor(new Int32Array(b).fill(start), { shape: [b, 1], device: ids.device }).cast(ids.dtype);
    return t === 1 ? first : first.cat([ids.narrow(1, 0, t - 1)], 1);
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask } = input;
    const { caches: _, ...state } = this.model.begin(this.model.encode(ids, mask), mask);
    const hidden = this.model.hidden(this.#shifted(ids), state);
    if (!this.classifier) return { hidden };
    const logits = this.classifier.forward({ hidden: this.#last(hidden, ids.eq(this.#rules.end)) });
    return { hidden, logits };
  }
}

/** The head that files name, on a model that reads and writes. */
export function rewritingEncoder(
  c: Config,
  source: ModelSource,
  model: ReaderWriter,
  rules: TextRules,
): RewritingEncoder {
  if (classifies(c)) return new RewritingEncoder(model, rules, new ClassifierHead(c, source, rules.width, HEAD));
  const head = tokenHead(c, source, { eps: 0, activation: 'identity' });
  if (!head) throw new FormatError(`${source.path}: there is no qa_outputs.weight`);
  return new RewritingEncoder(model, rules, head);
}
