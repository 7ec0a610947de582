// One table of model families: config.json's model_type and GGUF's architecture to what loads them. Loader, parity and
// tests read it alike.
import { UnsupportedError } from '../base/errors.js';
import { BART_FAMILIES } from './bart.js';
import { BERT_FAMILIES } from './bert.js';
import { OTHER_BERT_FAMILIES } from './bert-others.js';
import { BLIP_FAMILIES } from './blip.js';
import { IMAGE_TEXT_FAMILIES } from './clip.js';
import { CONV_BERT_FAMILIES } from './conv-bert.js';
import { DEBERTA_FAMILIES } from './deberta.js';
import { DECODER_FAMILIES } from './families/index.js';
import { GGUF_ENCODERS } from './gguf-encoder.js';
import { GGUF_T5 } from './gguf-t5.js';
import { MOBILE_BERT_FAMILIES } from './mobile-bert.js';
import type { ModelKind, ModelRow } from './model-row.js';
import { PICTURE_LANGUAGE_FAMILIES } from './picture-families.js';
import { ROTARY_BERT_FAMILIES } from './rotary-bert.js';
import type { ModelFormat } from './source.js';
import { SPECTROGRAM_FAMILIES } from './spectrogram-transformer.js';
import { T5_FAMILIES } from './t5.js';
import { T5_GEMMA_FAMILIES } from './t5-gemma.js';
import { CONVNEXT_FAMILIES } from './convnext.js';
import { RESNET_FAMILIES } from './resnet.js';
import { SWIN_FAMILIES } from './swin.js';
import { VIT_FAMILIES } from './vit.js';
import { SOUND_FAMILIES } from './wav2vec2.js';
import { WHISPER_FAMILIES } from './whisper.js';

/** Every family; a new one is a row in families/ or a file of its own, and a line here. */
export const MODELS: readonly ModelRow[] = [
  ...DECODER_FAMILIES,
  ...BERT_FAMILIES,
  ...OTHER_BERT_FAMILIES,
  ...MOBILE_BERT_FAMILIES,
  ...CONV_BERT_FAMILIES,
  ...ROTARY_BERT_FAMILIES,
  ...DEBERTA_FAMILIES,
  ...GGUF_ENCODERS,
  ...GGUF_T5,
  ...T5_FAMILIES,
  ...T5_GEMMA_FAMILIES,
  ...BART_FAMILIES,
  ...WHISPER_FAMILIES,
  ...SOUND_FAMILIES,
  ...SPECTROGRAM_FAMILIES,
  ...VIT_FAMILIES,
  ...SWIN_FAMILIES,
  ...RESNET_FAMILIES,
  ...CONVNEXT_FAMILIES,
  ...IMAGE_TEXT_FAMILIES,
  ...PICTURE_LANGUAGE_FAMILIES,
  ...BLIP_FAMILIES,
];

const namesOf = (row: ModelRow, format: ModelFormat): readonly string[] =>
  format === 'gguf' ? (row.architectures ?? []) : row.types;

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
