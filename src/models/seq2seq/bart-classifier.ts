// BART that sorts texts (zero-shot classification): the text is read, written again, and its last end token has the
// vector that a head sees.
import { arange, tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { ClassifierHead, type EncoderInput, type EncoderOutput, TextEncoder } from '../encoders/encoder.js';
import type { Seq2Seq, Seq2SeqState } from './seq2seq.js';
import type { ModelSource } from '../files/source.js';

/** Those whose answers begin with the text's last token, its language, not with a token of their own. */
const WRAPPED = ['mbart', 'plbart'];
const HEAD = { dense: ['classification_head.dense', 'tanh'], out: 'classification_head.out_proj' } as const;

/** What a classifier asks of the model that reads and writes. */
type ReaderWriter = Seq2Seq & {
  readonly encoder: { readonly room: number };
  readonly decoder: { readonly room: number };
  hidden(ids: Tensor, state: Seq2SeqState): Tensor;
};

export class BartClassifier extends TextEncoder {
  readonly width: number;
  readonly maxTokens: number;
  readonly model: ReaderWriter;
  override readonly classifier: ClassifierHead;
  readonly #start: number | undefined;
  readonly #padding: number;
  readonly #end: number;
  constructor(
    model: ReaderWriter,
    classifier: ClassifierHead,
    width: number,
    tokens: { readonly start: number | undefined; readonly padding: number; readonly end: number },
  ) {
    super();
    this.model = model;
    this.classifier = classifier;
    this.width = width;
    this.maxTokens = Math.min(model.encoder.room, model.decoder.room);
    this.#start = tokens.start;
    this.#padding = tokens.padding;
    this.#end = tokens.end;
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
    const first =
      this.#start === undefined
        ? this.#last(ids.cast('f32').unsqueeze(2), ids.ne(this.#padding)).squeeze(2).cast(ids.dtype)
        : tensor(new Int32Array(b).fill(this.#start), { shape: [b, 1], device: ids.device }).cast(ids.dtype);
    return t === 1 ? first : first.cat([ids.narrow(1, 0, t - 1)], 1);
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask } = input;
    const { caches: _, ...state } = this.model.begin(this.model.encode(ids, mask), mask);
    const hidden = this.model.hidden(this.#shifted(ids), state);
    const logits = this.classifier.forward({ hidden: this.#last(hidden, ids.eq(this.#end)) });
    return { hidden, logits };
  }
}

export function bartClassifier(c: Config, source: ModelSource, model: ReaderWriter, width: number): BartClassifier {
  const wrapped = WRAPPED.includes(c.text('model_type'));
  const end = c.count('eos_token_id', 2);
  return new BartClassifier(model, new ClassifierHead(c, source, width, HEAD), width, {
    start: wrapped ? undefined : c.count('decoder_start_token_id', end),
    padding: c.count('pad_token_id', 1),
    end,
  });
}
