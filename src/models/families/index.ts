// All decoder families.
import { COMPASS_FAMILIES } from './cohere-compass.js';
import { DEEPSEEK_FAMILIES } from './deepseek.js';
import { DEEPSEEK_KIN } from './deepseek-kin.js';
import { DEEPSEEK4_FAMILIES } from './deepseek4.js';
import { FADING_FAMILIES } from './fading.js';
import { FURTHER_FAMILIES } from './further.js';
import { GEMMA_FAMILIES } from './gemma.js';
import { LATER_GEMMA_FAMILIES } from './gemma4.js';
import { GPT_FAMILIES } from './gpt.js';
import { HRM_FAMILIES } from './hrm.js';
import { HYBRID_FAMILIES } from './hybrids.js';
import { LLAMA_FAMILIES } from './llama.js';
import { LONGCAT_FAMILIES } from './longcat.js';
import { MAMBA_FAMILIES } from './mamba.js';
import { MINIMAX3_FAMILIES } from './minimax3.js';
import { OTHER_FAMILIES } from './others.js';
import { PHI_FAMILIES } from './phi.js';
import { QWEN_FAMILIES } from './qwen.js';
import { RARE_FAMILIES } from './rare.js';
import { READER_FAMILIES } from './readers.js';
import { XLSTM_FAMILIES } from './xlstm.js';
import { WINDOWED_MIXTURES } from './windowed-mixtures.js';
import { ZAYA_FAMILIES } from './zaya.js';

export const DECODER_FAMILIES = [
  ...LLAMA_FAMILIES,
  ...QWEN_FAMILIES,
  ...GEMMA_FAMILIES,
  ...LATER_GEMMA_FAMILIES,
  ...PHI_FAMILIES,
  ...GPT_FAMILIES,
  ...OTHER_FAMILIES,
  ...DEEPSEEK_FAMILIES,
  ...HYBRID_FAMILIES,
  ...MAMBA_FAMILIES,
  ...FADING_FAMILIES,
  ...FURTHER_FAMILIES,
  ...WINDOWED_MIXTURES,
  ...RARE_FAMILIES,
  ...MINIMAX3_FAMILIES,
  ...COMPASS_FAMILIES,
  ...LONGCAT_FAMILIES,
  ...HRM_FAMILIES,
  ...DEEPSEEK4_FAMILIES,
  ...DEEPSEEK_KIN,
  ...ZAYA_FAMILIES,
  ...XLSTM_FAMILIES,
  ...READER_FAMILIES,
];
