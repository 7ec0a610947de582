// Models that read images, or hear, and whose text model is one of the families: with text alone they are that model.
import { reader } from './row.js';

/** Towers, and what leads from them to the text. */
const OTHER_NAMES = [
  ...['vision_tower', 'vision_model', 'vision_embed_tokens', 'vision_encoder', 'vision_projection', 'visual'],
  ...['vision_projector', 'mlp1'],
  ...['visual_embeddings_table', 'image_tower', 'image_newline', 'video_tower', 'audio_tower'],
  ...[
    'multi_modal_projector',
    'patch_merge_mlp',
    'mm_projector',
    'projector',
    'connector',
    'aligner',
    'merger',
    'qformer',
  ],
  ...['high_res_vision_model', 'high_res_vision_neck', 'high_res_vision_proj', 'high_res_vision_alpha'],
  ...['vqmodel', 'generation_embeddings', 'generation_aligner', 'generation_head'], // that draw images
];
const OTHER_PARTS = new RegExp(`(^|\\.)(${OTHER_NAMES.join('|')})(\\.|$)`);
const PREFIXES = [
  ...['model.language_model.', 'language_model.model.', 'language_model.model.model.'],
  ...['model.text_model.', 'text_model.model.'],
];

/** Types by the family their text is of where a config does not say. */
const READERS: Readonly<Record<string, readonly string[]>> = {
  mistral: ['mistral3', 'idefics2'],
  llama: [
    ...['llava', 'llava_next', 'llava_next_video', 'video_llava', 'vipllava', 'idefics3', 'smolvlm'],
    ...['deepseek_vl', 'deepseek_vl_hybrid', 'janus', 'voxtral', 'glmasr'],
  ],
  emu3_text_model: ['emu3'],
  qwen2: [...['llava_onevision', 'internvl', 'got_ocr2', 'qwen2_audio', 'video_llama_3', 'ovis2', 'pp_chart2table']],
  cohere2: ['aya_vision', 'cohere2_vision'],
  deepseek_v3: ['kimi_k25'],
  qwen3: ['lighton_ocr', 'qianfan_ocr', 'qwen3_asr'],
  glm4v_text: ['glm46v', 'glmga'],
  qwen3_5_text: ['minicpmv4_6', 'minicpmv4_7'],
  hyperclovax: ['hyperclovax_vision_v2'],
  exaone4: ['exaone4_5'],
  persimmon: ['fuyu'],
  lfm2: ['lfm2_vl'],
  aria_text: ['aria'],
  minimax_m3_vl_text: ['minimax_m3_vl'],
};
export const READER_FAMILIES = Object.entries(READERS).map(([unsaid, types]) =>
  // Cohere's readers of images leave out the factor of logits that their text model has.
  reader({ types, unsaid, prefixes: PREFIXES, ignored: OTHER_PARTS, plainLogits: unsaid === 'cohere2' }),
);
