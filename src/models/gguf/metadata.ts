// What a GGUF file says about its model, key by key, and which type of Hugging Face's its architecture is.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { ModelSource } from '../files/source.js';

const inLayer =
  (i: number) =>
  (name: string): boolean =>
    name.startsWith(`blk.${i}.`);

/** Keys that say how large a part of a layer is or how many of it there are, and what no model comes near. */
const SIZES = [
  ...['head_count', 'head_count_kv', '(key|value|embedding|feed_forward)_length(_swa|_mla)?', 'dimension_count(_swa)?'],
  ...['_rank', 'head_dim', '(inner|state)_size', 'conv_kernel', 'l_cache', '(expert|group)(_used|_shared)?_count'],
  ...['per_layer_input', 'latent_size'],
];
const SIZE = new RegExp(`(${SIZES.join('|')})$`);
const LARGEST = 2 ** 20;
/** Keys that count something, sizes among them; some are a list, a number for each layer. */
const WHOLE = new RegExp(
  `(${[...SIZES, 'context_length', 'block_count', 'sliding_window', 'gating_func'].join('|')})$`,
);
const isWhole = (n: unknown): boolean =>
  (typeof n === 'number' || typeof n === 'bigint') && Number.isInteger(Number(n)) && Number(n) >= 0;

const HARMLESS = new Set(
  `vocab_size context_length block_count rope.dimension_count rope.dimension_sections tensor_data_layout
  rope.scaling.finetuned attention.key_length attention.value_length attention.key_length_swa
  attention.value_length_swa expert_feed_forward_length feed_forward_length nextn_predict_layers pooling_type`.split(
    /\s+/,
  ),
);

/** The keys of one architecture; remembers which were asked for. */
export class Metadata {
  readonly architecture: string;
  readonly source: ModelSource;
  readonly #read = new Set<string>();
  constructor(source: ModelSource) {
    this.source = source;
    this.architecture = source.metadata.get('general.architecture') as string;
  }
  get(key: string): unknown {
    this.#read.add(key);
    const stored = this.source.metadata.get(`${this.architecture}.${key}`);
    const v = typeof stored === 'bigint' ? Number(stored) : stored;
    // Tables are made by these before any tensor is looked at.
    const alone = v === undefined ? [] : [v];
    const each = typeof v === 'object' && v ? Array.from(v as Iterable<unknown>) : alone;
    // What is no number at all is refused by who asks for one.
    const counted = WHOLE.test(key) && (each !== alone || typeof v === 'number');
    const odd = counted ? each.find((n) => !isWhole(n)) : undefined;
    if (odd !== undefined)
      throw new FormatError(
        `${this.source.path}: ${this.architecture}.${key} is ${String(odd)}, not a whole number from 0`,
      );
    const sizes = SIZE.test(key) ? each : [];
    const large = sizes.find((n) => Number(n) > LARGEST);
    if (large !== undefined)
      throw new FormatError(
        `${this.source.path}: ${this.architecture}.${key} is ${String(large)}; no part is larger than ${LARGEST}`,
      );
    return v;
  }
  has(key: string): boolean {
    return this.get(key) !== undefined;
  }
  number(key: string, fallback?: number): number {
    const v = this.get(key) ?? fallback;
    if (typeof v === 'number' && Number.isFinite(v)) return v;
    throw new FormatError(
      `${this.source.path}: ${this.architecture}.${key} is ${v === undefined ? 'missing' : 'no number'}`,
    );
  }
  /** What to throw at a value that cannot be meant. */
  wrong(key: string, expected: string): FormatError {
    return new FormatError(
      `${this.source.path}: ${this.architecture}.${key} is ${String(this.get(key))}, not ${expected}`,
    );
  }
  /** The layers that a decoder runs: those past them predict several tokens at once. */
  layers(): number {
    const [all, more] = [this.number('block_count'), this.optional('nextn_predict_layers') ?? 0];
    const layers = all - more;
    // A count beyond the tensors would fill the memory before anything is missed.
    if (Number.isInteger(layers) && layers >= 1 && more >= 0 && this.source.names.some(inLayer(layers - 1)))
      return layers;
    const told = more === 0 ? '' : `, nextn_predict_layers ${more}`;
    throw new FormatError(
      `${this.source.path}: ${this.architecture}.block_count is ${all}${told}: the file has no layer blk.${layers - 1}`,
    );
  }
  optional(key: string): number | undefined {
    return this.has(key) ? this.number(key) : undefined;
  }
  flag(key: string): boolean | undefined {
    const v = this.get(key);
    if (v === undefined || typeof v === 'boolean') return v;
    throw this.wrong(key, 'true or false');
  }
  /** A number that may be given for every layer; layers that differ are refused. */
  same(key: string, fallback?: number): number {
    const v = this.get(key);
    if (typeof v !== 'object' || v === null) return this.number(key, fallback);
    const list = Array.from(v as Iterable<number>, Number);
    if (new Set(list).size === 1) return list[0];
    throw new UnsupportedError(
      `${this.source.path}: ${this.architecture}.${key} differs by layer: ${list.slice(0, 6).join(', ')}`,
    );
  }
  /** The same of layers that have any: hybrids give 0 for those without keys. */
  sameOfSome(key: string): number {
    const list = this.list(key)
      ?.map(Number)
      .filter((n) => n > 0);
    return list && new Set(list).size === 1 ? list[0] : this.same(key);
  }
  list(key: string): (number | boolean)[] | undefined {
    const v = this.get(key);
    return typeof v === 'object' && v !== null ? Array.from(v as Iterable<number | boolean>) : undefined;
  }
  /** Sizes that the tensors tell, too, and what means nothing to an answer; a model that looks both ways is another. */
  #harmless(key: string): boolean {
    return HARMLESS.has(key) || (key === 'attention.causal' && this.get(key) === true);
  }
  /** Keys that nobody asked for and that may change the result. */
  unread(): string[] {
    return [...this.source.metadata.keys()].filter((full) => {
      const key = full.slice(this.architecture.length + 1);
      return full.startsWith(`${this.architecture}.`) && !this.#read.has(key) && !this.#harmless(key);
    });
  }
  refuseUnread(): void {
    for (const full of this.unread())
      throw new UnsupportedError(
        `${this.source.path}: nothing here honours ${full}, and the model's answers could depend on it`,
      );
  }
}

/** Attention that turns, between states: Bamba; Granite's between states turns nothing. */
export const turnsBetweenStates = (m: Metadata): boolean =>
  m.get('rope.scaling.finetuned') !== false && m.source.names.some((n) => n.endsWith('.ssm_in.weight'));

/** An architecture that stands for several types: which they are, and which of them a file holds. */
interface Several {
  /** Types after the first that `of` gives are written as this architecture and read as one that is the same. */
  readonly types: readonly string[];
  readonly of: (m: Metadata) => string;
}
/** Which Hugging Face type an architecture is. */
const TYPES: Readonly<Record<string, string | Several>> = {
  llama: {
    types: ['llama', 'mixtral', 'mistral', 'ministral', 'emu3_text_model'],
    of: (m) => ((m.optional('expert_count') ?? 0) > 0 ? 'mixtral' : 'llama'),
  },
  mistral3: 'ministral3',
  // Read only: what says where images stand is not kept, and llama.cpp asks for it.
  qwen2vl: { types: [], of: () => 'qwen2_vl_text' },
  qwen3vl: { types: [], of: () => 'qwen3_vl_text' },
  qwen3vlmoe: { types: [], of: () => 'qwen3_vl_moe_text' },
  // Read only: the folders that these files are made from bring programs of their own.
  ...{ internlm2: { types: [], of: () => 'llama' }, exaone: { types: [], of: () => 'llama' } },
  ...{ xverse: { types: [], of: () => 'llama' }, 'pangu-embedded': { types: [], of: () => 'llama' } },
  ...{ baichuan: { types: [], of: () => 'llama' }, refact: { types: [], of: () => 'llama' } },
  ...{ qwen: { types: [], of: () => 'qwen2' }, orion: { types: [], of: () => 'stablelm' } },
  ...{ codeshell: { types: [], of: () => 'starcoder2' }, bailingmoe2: { types: [], of: () => 'glm4_moe' } },
  // Read only: files' activation is another than that of the folders that transformers knows.
  bitnet: { types: [], of: () => 'bitnet' },
  gemma3n: 'gemma3n_text',
  // Read only: those that make vectors are written as what they are without.
  ...{ 'gemma-embedding': { types: [], of: () => 'gemma3_text' }, 'llama-embed': { types: [], of: () => 'llama' } },
  // The unified model's text is the same without narrow vectors.
  gemma4: { types: ['gemma4_text', 'gemma4_unified_text'], of: () => 'gemma4_text' },
  // Read only: files keep latents' products whole, and experts as matrices of their own.
  ...{ minicpm3: { types: [], of: () => 'minicpm3' }, dbrx: { types: [], of: () => 'dbrx' } },
  'exaone-moe': 'exaone_moe',
  cohere2moe: 'cohere2_moe',
  minicpm: { types: [], of: () => 'granite' },
  mamba: {
    types: ['mamba', 'falcon_mamba'],
    of: (m) => (m.get('ssm.dt_b_c_rms') === true ? 'falcon_mamba' : 'mamba'),
  },
  granitehybrid: {
    types: ['granitemoehybrid', 'bamba'],
    of: (m) => (turnsBetweenStates(m) ? 'bamba' : 'granitemoehybrid'),
  },
  granite_swa: {
    types: ['granite_swa', 'granitemoe_swa'],
    of: (m) => ((m.optional('expert_count') ?? 0) > 0 ? 'granitemoe_swa' : 'granite_swa'),
  },
  chatglm: 'glm',
  mimo2: 'mimo_v2_flash',
  // Read only: indexers and states by channel have no way back yet.
  deepseek32: { types: [], of: () => 'deepseek_v32' },
  'glm-dsa': { types: [], of: () => 'glm_moe_dsa' },
  'kimi-linear': { types: [], of: () => 'kimi_linear' },
  'falcon-h1': 'falcon_h1',
  nemotron_h_moe: 'nemotron_h',
  qwen3next: 'qwen3_next',
  qwen35: 'qwen3_5_text',
  qwen35moe: 'qwen3_5_moe_text',
  phi2: 'phi',
  gptneox: 'gpt_neox',
  'gpt-oss': 'gpt_oss',
  starcoder: 'gpt_bigcode',
  qwen2moe: 'qwen2_moe',
  qwen3moe: 'qwen3_moe',
  gemma3: 'gemma3_text',
  llama4: 'llama4_text',
  'command-r': 'cohere',
  olmo2: { types: ['olmo2', 'olmo3'], of: (m) => (m.has('attention.sliding_window') ? 'olmo3' : 'olmo2') },
  granitemoe: {
    types: ['granitemoe', 'granitemoeshared'],
    of: (m) => ((m.optional('expert_shared_feed_forward_length') ?? 0) > 0 ? 'granitemoeshared' : 'granitemoe'),
  },
  deepseek2: {
    types: ['deepseek_v2', 'deepseek_v3', 'kimi_k2', 'glm4_moe_lite'],
    // Where a file does not say how scores are made, a bias in the choice tells: only the third has one.
    of: (m) => {
      const biased = (): boolean => m.source.names.some((n) => n.includes('exp_probs_b'));
      return (m.optional('expert_gating_func') ?? (biased() ? 2 : 1)) === 2 ? 'deepseek_v3' : 'deepseek_v2';
    },
  },
  glm4moe: 'glm4_moe',
  'minimax-m2': 'minimax_m2',
  lfm2moe: 'lfm2_moe',
  'hunyuan-dense': 'hunyuan_v1_dense',
  'hunyuan-moe': 'hunyuan_v1_moe',
  'ernie4_5-moe': 'ernie4_5_moe',
};
/** The type of an architecture that stands for one alone. */
export const ggufTypeName = (architecture: string): string | undefined => {
  const t = TYPES[architecture] ?? architecture;
  return typeof t === 'string' ? t : undefined;
};
/** All types that are written as an architecture. */
export const ggufTypes = (architecture: string): readonly string[] => {
  const t = TYPES[architecture] ?? architecture;
  return typeof t === 'string' ? [t] : t.types;
};
export function ggufType(m: Metadata): string {
  const t = TYPES[m.architecture] ?? m.architecture;
  return typeof t === 'string' ? t : t.of(m);
}
