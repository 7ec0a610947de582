// One table of model families: config.json's model_type and GGUF's architecture to what loads them. Loader, parity and
// tests read it alike.
import { UnsupportedError } from '../base/errors.js';
import { ADAPTED_BERT_FAMILIES } from './encoders/adapted-bert.js';
import { BART_FAMILIES } from './seq2seq/bart.js';
import { BERT_FAMILIES } from './encoders/bert.js';
import { BERT_KIN_FAMILIES } from './encoders/bert-kin.js';
import { OTHER_BERT_FAMILIES } from './encoders/bert-others.js';
import { BLIP_FAMILIES } from './pictures/blip.js';
import { IMAGE_TEXT_FAMILIES } from './vision/clip.js';
import { CLIP_TEXT_FAMILIES } from './encoders/clip-text.js';
import { CHINESE_CLIP_FAMILIES } from './vision/chinese-clip.js';
import { TOWERS_ALONE } from './vision/tower-alone.js';
import { LAYOUT_LM3_FAMILIES } from './encoders/layoutlm3.js';
import { LILT_FAMILIES } from './encoders/lilt.js';
import { CONV_BERT_FAMILIES } from './encoders/conv-bert.js';
import { DEBERTA_FAMILIES } from './encoders/deberta.js';
import { DECODER_FAMILIES } from './families/index.js';
import { GGUF_ENCODERS } from './gguf/gguf-encoder.js';
import { GGUF_T5 } from './gguf/gguf-t5.js';
import { CONDITIONAL_DETR_FAMILIES } from './scenes/conditional-detr.js';
import { DEFORMABLE_DETR_FAMILIES } from './scenes/deformable-detr.js';
import { DEPTH_FAMILIES } from './scenes/depth.js';
import { DPT_FAMILIES } from './scenes/dpt.js';
import { DETR_FAMILIES } from './scenes/detr.js';
import { RT_DETR_FAMILIES } from './scenes/rt-detr.js';
import { CLIP_SEG_FAMILIES } from './scenes/clip-seg.js';
import { OWL_FAMILIES } from './scenes/owl.js';
import { SAM_FAMILIES } from './scenes/sam.js';
import { GROUNDING_DINO_FAMILIES } from './scenes/grounding-dino.js';
import { MASK2FORMER_FAMILIES } from './scenes/mask2former.js';
import { MASKFORMER_FAMILIES } from './scenes/maskformer.js';
import { UPER_NET_FAMILIES } from './scenes/uper-net.js';
import { YOLOS_FAMILIES } from './scenes/yolos.js';
import { MOBILE_BERT_FAMILIES } from './encoders/mobile-bert.js';
import { namesOf } from './load-by.js';
import type { ModelKind, ModelRow } from './model-row.js';
import { PICTURE_WRITER_FAMILIES } from './pictures/picture-writer.js';
import { PICTURE_LANGUAGE_FAMILIES } from './pictures/picture-families.js';
import { XLNET_FAMILIES } from './encoders/xlnet.js';
import { ROTARY_BERT_FAMILIES } from './encoders/rotary-bert.js';
import type { ModelFormat } from './files/source.js';
import { SPECTROGRAM_FAMILIES } from './sound/spectrogram-transformer.js';
import { T5_FAMILIES } from './seq2seq/t5.js';
import { T5_GEMMA_FAMILIES } from './seq2seq/t5-gemma.js';
import { BIT_FAMILIES } from './vision/bit.js';
import { CVT_FAMILIES } from './vision/cvt.js';
import { FOCALNET_FAMILIES } from './vision/focalnet.js';
import { HIERA_FAMILIES } from './vision/hiera.js';
import { LEVIT_FAMILIES } from './vision/levit.js';
import { PVT_FAMILIES } from './vision/pvt.js';
import { SWIFTFORMER_FAMILIES } from './vision/swiftformer.js';
import { CONV_NET_FAMILIES } from './vision/conv-nets.js';
import { CONVNEXT_FAMILIES } from './vision/convnext.js';
import { DINO3_FAMILIES } from './vision/dino3.js';
import { MOBILE_VIT_FAMILIES } from './vision/mobile-vit.js';
import { POOLED_PICTURE_FAMILIES } from './vision/pooled-pictures.js';
import { RESNET_FAMILIES } from './vision/resnet.js';
import { TOWER_CLASSIFIERS } from './vision/tower-classifier.js';
import { SWIN_FAMILIES } from './vision/swin.js';
import { VIDEO_MAE_FAMILIES } from './vision/video-mae.js';
import { VIT_FAMILIES } from './vision/vit.js';
import { CLAP_FAMILIES } from './sound/clap.js';
import { CONFORMER_FAMILIES } from './sound/conformer-encoder.js';
import { SOUND_FAMILIES } from './sound/wav2vec2.js';
import { PARAKEET_FAMILIES } from './sound/parakeet.js';
import { TRANSDUCER_FAMILIES } from './sound/transducer.js';
import { MOONSHINE_FAMILIES } from './sound/moonshine.js';
import { WHISPER_FAMILIES } from './sound/whisper.js';

/** Every family; a new one is a row in families/ or a file of its own, and a line here. */
export const MODELS: readonly ModelRow[] = [
  ...DECODER_FAMILIES,
  ...BERT_FAMILIES,
  ...OTHER_BERT_FAMILIES,
  ...BERT_KIN_FAMILIES,
  ...ADAPTED_BERT_FAMILIES,
  ...MOBILE_BERT_FAMILIES,
  ...CONV_BERT_FAMILIES,
  ...ROTARY_BERT_FAMILIES,
  ...DEBERTA_FAMILIES,
  ...XLNET_FAMILIES,
  ...CLIP_TEXT_FAMILIES,
  ...LAYOUT_LM3_FAMILIES,
  ...LILT_FAMILIES,
  ...GGUF_ENCODERS,
  ...GGUF_T5,
  ...T5_FAMILIES,
  ...T5_GEMMA_FAMILIES,
  ...BART_FAMILIES,
  ...WHISPER_FAMILIES,
  ...MOONSHINE_FAMILIES,
  ...SOUND_FAMILIES,
  ...CONFORMER_FAMILIES,
  ...PARAKEET_FAMILIES,
  ...TRANSDUCER_FAMILIES,
  ...CLAP_FAMILIES,
  ...SPECTROGRAM_FAMILIES,
  ...VIT_FAMILIES,
  ...VIDEO_MAE_FAMILIES,
  ...SWIN_FAMILIES,
  ...RESNET_FAMILIES,
  ...CONVNEXT_FAMILIES,
  ...CONV_NET_FAMILIES,
  ...POOLED_PICTURE_FAMILIES,
  ...MOBILE_VIT_FAMILIES,
  ...LEVIT_FAMILIES,
  ...HIERA_FAMILIES,
  ...BIT_FAMILIES,
  ...CVT_FAMILIES,
  ...PVT_FAMILIES,
  ...FOCALNET_FAMILIES,
  ...SWIFTFORMER_FAMILIES,
  ...DINO3_FAMILIES,
  ...IMAGE_TEXT_FAMILIES,
  ...TOWER_CLASSIFIERS,
  ...TOWERS_ALONE,
  ...CHINESE_CLIP_FAMILIES,
  ...PICTURE_LANGUAGE_FAMILIES,
  ...BLIP_FAMILIES,
  ...PICTURE_WRITER_FAMILIES,
  ...YOLOS_FAMILIES,
  ...DETR_FAMILIES,
  ...CONDITIONAL_DETR_FAMILIES,
  ...DEFORMABLE_DETR_FAMILIES,
  ...RT_DETR_FAMILIES,
  ...DEPTH_FAMILIES,
  ...DPT_FAMILIES,
  ...MASK2FORMER_FAMILIES,
  ...MASKFORMER_FAMILIES,
  ...UPER_NET_FAMILIES,
  ...GROUNDING_DINO_FAMILIES,
  ...SAM_FAMILIES,
  ...CLIP_SEG_FAMILIES,
  ...OWL_FAMILIES,
];

/**
 * The row for a model_type (or, for GGUF, an architecture), of the kind that is asked for where there are several; one
 * that no row serves is refused with the list of those served.
 */
export function rowFor(name: unknown, format: ModelFormat, where: string, kind?: ModelKind): ModelRow {
  const rows = MODELS.filter((r) => typeof name === 'string' && namesOf(r, format).includes(name));
  const row = rows.find((r) => r.kind === kind) ?? rows[0];
  if (row) return row;
  const known = [...new Set(MODELS.flatMap((r) => namesOf(r, format)))].sort();
  const what = format === 'gguf' ? 'general.architecture' : 'model_type';
  throw new UnsupportedError(
    `${where}: ${what} is ${typeof name === 'bigint' ? name : (JSON.stringify(name) ?? 'missing')}; served are ` +
      `${known.join(', ')}`,
  );
}
