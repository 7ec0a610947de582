// Models of every kind by their golden files: how each is opened, and what it makes of the inputs stored with it.
import type { DType } from '../src/base/dtype.js';
import type { BlipMatcher } from '../src/models/pictures/blip.js';
import { encoderAt } from '../src/models/encoders/embedding-model.js';
import type { TextEncoder } from '../src/models/encoders/encoder.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import type { PictureLanguage } from '../src/models/pictures/picture-language.js';
import type { Seq2Seq } from '../src/models/seq2seq/seq2seq.js';
import type { VisionModel } from '../src/models/vision/vision-model.js';
import type { ParakeetTransducer } from '../src/models/sound/transducer.js';
import type { SoundEncoder } from '../src/models/sound/wav2vec2.js';
import type { Module } from '../src/nn/module.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { type answerOf, classifiers, encoders, families, familyFolder, hearing, pairs } from './models-support.js';
import { readers, seeing, tokenHeads, writers } from './models-support.js';

export type Stem = NonNullable<Parameters<typeof answerOf>[2]>;
/** What a model answers to inputs by their names. */
export type Run = (model: never, of: (key: string) => Tensor) => Tensor;
const textOf = (of: (key: string) => Tensor): { ids: Tensor; mask: Tensor } => ({
  ids: of('input_ids'),
  mask: of('attention_mask'),
});
export const answered: Run = (model: Seq2Seq, of) => {
  const encoded = model.encode(of('input_ids') ?? of('input_features'), of('attention_mask'));
  return model.decode(of('decoder_input_ids'), { crossed: model.begin(encoded).crossed });
};
/** A kind of models: the stem of its files, its models by name, the kind they are loaded as, and how one answers. */
export type KindRow = readonly [stem: Stem, models: typeof families, kind: string, run: Run];
export const KINDS: readonly KindRow[] = [
  ['families', families, 'decoder', (model: CausalLM, of) => model.forward(of('input_ids'))],
  ['encoders', encoders, '', (model: TextEncoder, of) => model.forward(textOf(of)).hidden],
  ['classifiers', classifiers, 'encoder', (model: TextEncoder, of) => model.forward(textOf(of)).logits as Tensor],
  ['tokens', tokenHeads, 'encoder', (model: TextEncoder, of) => model.tokenLogits(textOf(of))],
  ['seq2seq', pairs, 'seq2seq', answered],
  ['vision', seeing, 'vision', (model: VisionModel, of) => model.forward(of('pixels'))],
  [
    ...(['sound', hearing, 'sound'] as const),
    // A transducer also reads what was written.
    (model: SoundEncoder | ParakeetTransducer, of) =>
      'lstm' in model
        ? model.forward(of('frames'), undefined, of('decoder_input_ids'))
        : model.forward(of('frames') ?? of('samples')),
  ],
  ['speech', writers, 'speech', answered],
  [
    ...(['pictures', readers, 'image-text-to-text'] as const),
    (model: PictureLanguage | BlipMatcher, of) => {
      const [ids, pixels, places] = [of('ids'), of('pixels'), of('places')];
      return 'embedText' in model
        ? model.forward(ids, pixels)
        : model.forward(ids, pixels, (places?.toArray() ?? []) as number[][]);
    },
  ],
];
export function opened(
  name: string,
  [, models, kind]: KindRow,
  options: { readonly device?: Device | 'cpu'; readonly dtype?: DType } = {},
): Module {
  const dir = familyFolder(name, (f) => f, models);
  const o = { device: 'cpu', ...options } as const;
  return kind ? loadModel(dir, { ...o, kind: kind as 'decoder' }).model : encoderAt(dir, o);
}
