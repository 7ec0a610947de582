// Pictures to text by an encoder and a decoder of other families: TrOCR (lines of writing), Donut (pages), captions of
// ViT and GPT-2.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type Linear, linear } from '../../nn/layers.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { freshAnswer, Seq2Seq, type Seq2SeqState } from '../seq2seq/seq2seq.js';
import { swinAt } from '../vision/swin.js';
import type { VisionModel } from '../vision/vision-model.js';
import { vitAt } from '../vision/vit.js';
import { type TextWriter, textWriter } from './text-writers.js';

export class PictureWriter extends Seq2Seq {
  readonly eye: VisionModel;
  /** Between the picture's vectors and a decoder of another width. */
  readonly projection: Linear | undefined;
  readonly writer: TextWriter;
  constructor(eye: VisionModel, projection: Linear | undefined, writer: TextWriter) {
    super();
    this.eye = eye;
    this.projection = projection;
    this.writer = writer;
  }
  /** Pictures (b, 3, height, width) as vectors (b, places, width). */
  encode(pixels: Tensor): Tensor {
    const seen = this.eye.hidden(pixels);
    return this.projection?.forward(seen) ?? seen;
  }
  begin(encoded: Tensor): Seq2SeqState {
    return freshAnswer(this.writer.crosses, encoded);
  }
  decode(ids: Tensor, state: Seq2SeqState): Tensor {
    if (ids.rank !== 2) throw new ArgumentError(`image-to-text: ids have rank ${ids.rank}; they are (batch, tokens)`);
    return this.writer.decode(ids, state);
  }
}

type Eye = readonly [eye: VisionModel, width: number];
type MakeEye = (c: Config, source: ModelSource, type: string) => Eye;
const vit: MakeEye = (c, source, type) => [
  vitAt(c, source, source.builder.pp('encoder'), type),
  c.count('hidden_size', undefined, 1),
];
const swin: MakeEye = (c, source, type) => {
  const eye = swinAt(c, source, source.builder.pp('encoder'), type);
  return [eye, eye.width];
};
const EYES: Readonly<Record<string, MakeEye>> = {
  ...{ vit, deit: vit, beit: vit, dinov2: vit, swin, swinv2: swin, 'donut-swin': swin },
};

function pictureWriter(c: Config, source: ModelSource): PictureWriter {
  const [seeing, writing] = [c.inner('encoder'), c.inner('decoder')];
  if (!seeing || !writing) throw new UnsupportedError(`${c.where}: encoder and decoder must both be given`);
  // transformers ties nothing across the two, whatever a file says.
  c.ignore('tie_word_embeddings', 'processor_class', 'is_decoder', 'add_cross_attention', 'tie_encoder_decoder');
  const type = seeing.text('model_type');
  if (!Object.hasOwn(EYES, type))
    throw new UnsupportedError(
      `${c.where}: encoder.model_type is ${JSON.stringify(type)}; served are ${Object.keys(EYES).join(', ')}`,
    );
  seeing.ignoreBooks();
  const [eye, wide] = EYES[type](seeing, source, type);
  const writer = textWriter(writing, source);
  const said = writing.optional('cross_attention_hidden_size');
  const needed = writer.crosses[0]?.k.weight.shape[1] ?? writer.width;
  if (said !== undefined && (said !== wide || said !== needed))
    throw new UnsupportedError(
      `${c.where}: decoder.cross_attention_hidden_size is ${said}; the picture's vectors are ${wide} wide, and the ` +
        `decoder reads ${needed}`,
    );
  const apart = said === undefined && wide !== writer.width;
  const projection = apart ? linear(wide, writer.width, source.builder.pp('enc_to_dec_proj')) : undefined;
  return new PictureWriter(eye, projection, writer);
}
export const PICTURE_WRITER_FAMILIES: readonly ModelRow[] = [
  { kind: 'image-to-text', types: ['vision-encoder-decoder'], build: pictureWriter },
];
