// Models that read images, or hear, and whose text model is one of the families: with text alone they are that model.
import { reader } from './row.js';

/** Towers, and what leads from them to the text. */
const OTHER_NAMES = [
  ...['vision_tower', 'vision_model', 'vision_embed_tokens', 'vision_encoder', 'vision_projection', 'visual'],
  ...['visual_embeddings_table', 'image_tower', 'image_newline', 'video_tower', 'audio_tower'],
  ...['multi_modal_projector', 'mm_projector', 'projector', 'connector', 'aligner', 'qformer'],
];
const OTHER_PARTS = new RegExp(`(^|\\.)(${OTHER_NAMES.join('|')})(\\.|$)`);
const PREFIXES = ['model.language_model.', 'language_model.model.', 'language_model.model.model.', 'model.text_model.'];

/** Types by the family their text is of where a config does not say. */
const READERS: Readonly<Record<string, readonly string[]>> = {
  mistral: ['mistral3', 'idefics2'],
  llama: [
    ...['llava', 'llava_next', 'llava_next_video', 'video_llava', 'vipllava', 'idefics3', 'smolvlm'],
    ...['deepseek_vl', 'voxtral'],
  ],
  qwen2: ['llava_onevision', 'internvl', 'got_ocr2', 'qwen2_audio', 'video_llama_3', 'ovis2'],
  cohere2: ['aya_vision', 'cohere2_vision'],
  deepseek_v3: ['kimi_k25'],
  qwen3: ['lighton_ocr'],
  exaone4: ['exaone4_5'],
  persimmon: ['fuyu'],
  lfm2: ['lfm2_vl'],
  aria_text: ['aria'],
};
export const READER_FAMILIES = Object.entries(READERS).map(([unsaid, types]) =>
  // Cohere's readers of images leave out the factor of logits that their text model has.
  reader({ types, unsaid, prefixes: PREFIXES, ignored: OTHER_PARTS, plainLogits: unsaid === 'cohere2' }),
);
