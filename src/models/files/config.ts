// A model's config as a reader that remembers what was asked for: a field that nobody honoured is refused by name.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { isActivation } from '../../nn/activation.js';
import { CONFIG_NAMES, NAMES_VERSION } from './config-names.js';

export type Json = Readonly<Record<string, any>>;

/**
 * Fields without effect on the numbers of inference: training, bookkeeping, tokens, speed, and biases that a family has
 * no switch for: those are there or not as their tensors are, and none of these is left over. A name may stand here
 * only if no family reads it as part of its arithmetic, or if the family that does asks for it before the check.
 */
const HARMLESS = new Set(
  `model_type architectures transformers_version torch_dtype dtype _name_or_path name_or_path auto_map id2label
  label2id problem_type num_labels finetuning_task task_specific_params use_cache initializer_range
  initializer_factor embedding_initializer_range attention_dropout hidden_dropout hidden_dropout_prob
  attention_probs_dropout_prob embd_pdrop attn_pdrop resid_pdrop embedding_dropout residual_dropout resid_dropout
  embd_dropout ffn_dropout classifier_dropout classifier_dropout_prob dropout activation_dropout dropout_rate
  layerdrop residual_dropout_prob summary_activation summary_first_dropout summary_proj_to_labels summary_type
  summary_use_proj output_attentions output_hidden_states return_dict return_dict_in_generate output_scores
  torchscript pruned_heads chunk_size_feed_forward bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id
  eod_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id begin_suppress_tokens suppress_tokens
  image_token_index image_token_id boi_token_index eoi_token_index vocab_size gradient_checkpointing use_bfloat16
  tf_legacy_loss pretraining_tp router_jitter_noise jitter_noise input_jitter_noise router_aux_loss_coef
  output_router_logits aux_loss_alpha seq_aux router_z_loss_coef load_balance_coeff ep_size max_length min_length
  do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p
  repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
  num_return_sequences remove_invalid_values exponential_decay_length_penalty tokenizer_class prefix
  cross_attention_hidden_size is_encoder_decoder unsloth_fixed unsloth_version use_flash_attn _attn_implementation
  attn_implementation _experts_implementation cache_implementation fused_ops gate_bias_init n_special
  predict_special_tokens is_llama_config rope_scaling_is_default ignore_keys_at_rope_validation
  keys_to_ignore_at_inference base_model_tp_plan base_model_pp_plan language_config_name _num_labels _commit_hash
  _attn_implementation_autoset _attn_implementation_internal _flash_attn_2_enabled transformers.js_config
  transformers_js_config neftune_noise_alpha output_past xla_device eos_token_ids tie_weights_ model_max_length
  max_sequence_length max_seq_length seq_length language label_smoothing full_attn_mod interpolate_factor
  use_return_dict tokenizer_name tokenizer_file attention_bias mlp_bias lm_head_bias qkv_bias use_qkv_bias use_bias bias`.split(
    /\s+/,
  ),
);

/** Whether a field of this name may change what a model answers. */
export type Matters = (name: string) => boolean;
/** Whether a version, 'major.minor' and more, is later than another. */
function laterThan(version: string, than: string): boolean {
  const [a, b] = [version, than].map((v) => v.split('.').map((part) => Number.parseInt(part, 10)));
  return a[0] === b[0] ? a[1] > b[1] : a[0] > b[0];
}
/**
 * Which fields may change what a config's model answers. Programs of transformers read no others than those known by
 * name; a folder that brings programs of its own, or was written by a later transformers, may mean anything by any.
 */
export function mattering(json: Json): Matters {
  const own =
    isObject(json.auto_map) && Object.keys(json.auto_map).some((kind) => !/^Auto(Tokenizer|Processor)/.test(kind));
  const { transformers_version: version } = json;
  if (own || (typeof version === 'string' && laterThan(version, NAMES_VERSION))) return () => true;
  return (name) => CONFIG_NAMES.has(name);
}

/** What older versions wrote into every config inside another, whatever it is for; these values say nothing. */
const EVERYWHERE: Json = { add_cross_attention: false, is_decoder: false };
/** And fields that say nothing there whatever their value: a part that shares its words with its head asks for it. */
const WITHIN = new Set(['use_cache', 'tie_word_embeddings']);

export const isObject = (v: unknown): v is Json => typeof v === 'object' && v !== null && !Array.isArray(v);
const shown = (v: unknown): string => {
  const text = JSON.stringify(v) ?? 'undefined';
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
};

/**
 * The most of what is counted: lists and loops are made of these numbers before a tensor bears them out, so that more
 * than any model has would take all memory.
 */
const MOST: readonly (readonly [name: RegExp, most: number])[] = [
  [/layers?$/, 10_000],
  [/positions?$|position_embeddings$|^(n_ctx|max_seq_len|max_sequence_length)$/, 2 ** 24],
  [/window|chunk|^feature_size$/, Infinity],
  [/(size|dim|heads?|rank|experts|groups|width|inner|channels|features|bins|buckets|embed|embd|dff)$/, 2 ** 20],
  [/^(d|mamba_d|n_mamba|ffn|mamba)_/, 2 ** 20],
];
const mostOf = (name: string): number => MOST.find(([named]) => named.test(name))?.[1] ?? Infinity;

/** What numbers of these names are, whatever the family: with others sums are NaN, or fail where no field is named. */
interface Range {
  readonly named: RegExp;
  readonly says: string;
  readonly holds: (v: number) => boolean;
}
const RANGES: readonly Range[] = [
  { named: /(^|_)(eps|epsilon)$|soft_?capp?(ing)?$/, says: 'a number from 0', holds: (v) => v >= 0 },
  {
    named: /(theta|_base|_base_freq|^factor|^alpha|query_pre_attn_scalar)$/,
    says: 'a number above 0',
    holds: (v) => v > 0,
  },
  { named: /^(low|high)_freq_factor$|^beta_(fast|slow)$/, says: 'a number from 0', holds: (v) => v >= 0 },
  {
    named: /^sliding_window$/,
    says: 'a whole number from 0',
    holds: (v) => Number.isInteger(v) && v >= 0,
  },
  {
    named: /position_embeddings$|^n_positions$|_max_distance$/,
    says: 'a whole number from 1',
    holds: (v) => Number.isInteger(v) && v >= 1,
  },
  { named: /^partial_rotary_factor$/, says: 'a number from 0 to 1', holds: (v) => v >= 0 && v <= 1 },
  { named: /_token_id$/, says: 'a whole number', holds: Number.isInteger },
];

/**
 * A model's config.json (or GGUF metadata) that remembers which fields were read, so that the others can be refused.
 */
export class Config {
  /** The fields as they stand. */
  readonly json: Json;
  /** What errors call the source: 'config.json', 'model.gguf'. */
  readonly where: string;
  readonly #read = new Set<string>();
  readonly #inner = new Map<string, Config>();
  readonly #prefix: string;
  /** What holds where the config leaves a field out; an explicit null leaves it out for good. */
  readonly #defaults: Json;
  /** Which fields may change the answers: others are not refused; default all. */
  readonly matters: Matters;

  constructor(json: Json, where = 'config.json', prefix = '', defaults: Json = {}, matters: Matters = () => true) {
    this.json = json;
    this.where = where;
    this.#prefix = prefix;
    this.#defaults = defaults;
    this.matters = matters;
  }
  #name(name: string): string {
    return `${this.#prefix}${name}`;
  }
  /** The value as it stands; null counts as absent. */
  get(name: string): unknown {
    this.#read.add(name);
    const from = Object.hasOwn(this.json, name) ? this.json : this.#defaults;
    return Object.hasOwn(from, name) ? (from[name] ?? undefined) : undefined;
  }
  /** Whether the field is there and not null; counts as read. */
  has(name: string): boolean {
    return this.get(name) !== undefined;
  }
  #typed<T>(name: string, type: string, is: (v: unknown) => boolean, fallback: T | undefined): T {
    const v = this.get(name) ?? fallback;
    if (v === undefined) throw new FormatError(`${this.where}: ${this.#name(name)} is missing`);
    if (!is(v)) throw new FormatError(`${this.where}: ${this.#name(name)} is ${shown(v)}, not ${type}`);
    return v as T;
  }
  #requireRange(name: string): void {
    const [v, most] = [this.get(name), mostOf(name)];
    if (typeof v !== 'number') return;
    if (v > most)
      throw new FormatError(`${this.where}: ${this.#name(name)} is ${v}, and no model has more than ${most}`);
    const broken = RANGES.find(({ named, holds }) => named.test(name) && !holds(v));
    if (broken) throw new FormatError(`${this.where}: ${this.#name(name)} is ${v}, not ${broken.says}`);
  }
  /** A field that is a number; without a fallback it must be there. */
  number(name: string, fallback?: number): number {
    this.#requireRange(name);
    return this.#typed(name, 'a number', (v) => typeof v === 'number' && Number.isFinite(v), fallback);
  }
  /** A count: a whole number from 0, or from `least`. */
  count(name: string, fallback?: number, least = 0): number {
    this.#requireRange(name);
    return this.#typed(
      name,
      `a whole number from ${least}`,
      (v) => Number.isSafeInteger(v) && (v as number) >= least,
      fallback,
    );
  }
  /** A field that is a number, or undefined where it is absent. */
  optional(name: string): number | undefined {
    return this.has(name) ? this.number(name) : undefined;
  }
  /** A field that is true or false; without a fallback it must be there. */
  flag(name: string, fallback?: boolean): boolean {
    // Null is no more than absent elsewhere; here it is as good as false.
    if (this.get(name) === undefined && this.json[name] === null) return false;
    return this.#typed(name, 'true or false', (v) => typeof v === 'boolean', fallback);
  }
  /** A field that is a string; without a fallback it must be there. */
  text(name: string, fallback?: string): string {
    return this.#typed(name, 'a text', (v) => typeof v === 'string', fallback);
  }
  /** A field that names an activation, or whose value holds one's name behind or before others. */
  activation(name: string, fallback?: string, within = (v: string): string | undefined => v): string {
    const v = this.text(name, fallback);
    const f = within(v);
    // A gate is a switch of its own, not an activation's name.
    if (f === undefined || !isActivation(f) || f === 'swiglu' || f === 'geglu')
      throw new UnsupportedError(`${this.where}: ${this.#name(name)} is ${shown(v)}, an activation that is not known`);
    return f === 'swish' ? 'silu' : f; // one function, which GGUF files have under one name
  }
  /** A token's number or a list of them; none where the field is absent. */
  tokenIds(name: string): readonly number[] {
    const whole = Number.isSafeInteger;
    const is = (v: unknown): boolean => whole(v) || (Array.isArray(v) && v.every(whole));
    const ids = this.#typed<number | readonly number[]>(name, 'a whole number or a list of them', is, []);
    return typeof ids === 'number' ? [ids] : ids;
  }
  /** A field that is a list of numbers, of this length where one is given. */
  numbers(name: string, length?: number): readonly number[] {
    const type = length === undefined ? 'a list of numbers' : `a list of ${length} numbers`;
    const is = (v: unknown): boolean =>
      Array.isArray(v) && v.every((x) => typeof x === 'number') && (length === undefined || v.length === length);
    return this.#typed<readonly number[]>(name, type, is, undefined);
  }
  /** A field that is a list of strings. */
  texts(name: string): readonly string[] {
    const is = (v: unknown): boolean => Array.isArray(v) && v.every((x) => typeof x === 'string');
    return this.#typed<readonly string[]>(name, 'a list of texts', is, undefined);
  }
  /** Refuses a list of kinds, one for each layer at least, that holds any but these; a field or its default gave it. */
  onlyKinds(name: string, given: readonly string[], known: readonly string[], layers = 1): void {
    if (given.length < layers)
      throw new FormatError(`${this.where}: ${this.#name(name)} has ${given.length} entries for ${layers} layers`);
    const odd = given.find((kind) => !known.includes(kind));
    if (odd !== undefined)
      throw new UnsupportedError(
        `${this.where}: ${this.#name(name)} holds ${shown(odd)}; ${known.map(shown).join(' and ')} are served`,
      );
  }
  /** An object inside, with the same care; undefined where there is none. */
  inner(name: string): Config | undefined {
    const v = this.get(name);
    if (v === undefined) return undefined;
    if (!isObject(v)) throw new FormatError(`${this.where}: ${this.#name(name)} is ${shown(v)}, not an object`);
    const config = this.#inner.get(name) ?? new Config(v, this.where, `${this.#name(name)}.`, {}, this.matters);
    this.#inner.set(name, config);
    return config;
  }
  /** Refuses every value of a field but these; absent is always fine. */
  only(name: string, ...allowed: readonly unknown[]): void {
    const v = this.get(name);
    if (v !== undefined && !allowed.some((a) => JSON.stringify(a) === JSON.stringify(v)))
      throw new UnsupportedError(
        `${this.where}: ${this.#name(name)} is ${shown(v)}; this changes the result and ` +
          (allowed.length > 0 ? `only ${allowed.map(shown).join(' or ')} is served` : 'is not served'),
      );
  }
  /** Fields that are known to have no effect here, whatever their value. */
  ignore(...names: readonly string[]): void {
    for (const n of names) this.#read.add(n);
  }
  /** An object inside that is a config of its own may keep books as the whole one does. */
  ignoreBooks(): void {
    this.ignore(...HARMLESS);
  }
  /** Refuses fields that nobody asked for, that may matter and that are not known to be harmless. */
  refuseUnread(): void {
    for (const [name, value] of Object.entries(this.json)) {
      if (value === null || this.#read.has(name) || (this.#prefix === '' && HARMLESS.has(name))) continue;
      if (!this.matters(name) || EVERYWHERE[name] === value || (this.#prefix !== '' && WITHIN.has(name))) continue;
      throw new UnsupportedError(
        `${this.where}: ${this.#name(name)} is ${shown(value)}; nothing here honours this field, and the model's ` +
          'answers could depend on it',
      );
    }
    for (const c of this.#inner.values()) c.refuseUnread();
  }
}

/** The names of classes in transformers that the files say they are of; none where they do not say. */
export const architecturesOf = (c: Config): readonly string[] =>
  c.has('architectures') ? c.texts('architectures') : [];
