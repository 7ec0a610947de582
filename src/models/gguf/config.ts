// GGUF metadata as the config that Hugging Face would have written.
import { UnsupportedError } from '../../base/errors.js';
import type { Json } from '../files/config.js';
import { GGUF_PARTIAL } from '../decoder/rope.js';
import { OF_ARCHITECTURE } from './architectures.js';
import { ggufType, type Metadata } from './metadata.js';

/** What a yarn of this stretch multiplies cosines and sines by, where a config says nothing of it. */
export const yarnGain = (factor: number): number => (factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1);

function ropeOf(m: Metadata, maxPositions: number): Json {
  const { source } = m;
  const factor = m.optional('rope.scaling.factor') ?? m.optional('rope.scale_linear');
  // Without a kind, a factor stretches evenly.
  const type = (m.get('rope.scaling.type') as string | undefined) ?? (factor ? 'linear' : 'none');
  const original = m.optional('rope.scaling.original_context_length');
  const theta = m.number('rope.freq_base', 10_000);
  if (theta <= 0) throw m.wrong('rope.freq_base', 'more than 0');
  const factors = ['short', 'long'].map((n) => `rope_factors_${n}.weight`);
  const attn = m.optional('rope.scaling.attn_factor');
  if (source.has(factors[0]) && source.has(factors[1]))
    return {
      rope_type: 'longrope',
      rope_theta: theta,
      original_max_position_embeddings: original ?? maxPositions,
      short_factor: source.numbers(factors[0]),
      long_factor: source.numbers(factors[1]),
      ...(attn !== undefined && { attention_factor: attn }),
    };
  if (type === 'linear' && factor) return { rope_type: 'linear', rope_theta: theta, factor };
  if (type === 'yarn') {
    const log = m.optional('rope.scaling.yarn_log_multiplier');
    const all = log === undefined ? undefined : log / 0.1;
    return {
      rope_type: 'yarn',
      rope_theta: theta,
      factor,
      original_max_position_embeddings: original ?? maxPositions,
      ...(m.has('rope.scaling.yarn_beta_fast') && { beta_fast: m.number('rope.scaling.yarn_beta_fast') }),
      ...(m.has('rope.scaling.yarn_beta_slow') && { beta_slow: m.number('rope.scaling.yarn_beta_slow') }),
      ...(all !== undefined && { mscale: all, mscale_all_dim: all }),
      // What is stored multiplies yarn's own factor.
      ...(attn !== undefined && { attention_factor: attn * (all === undefined ? yarnGain(factor ?? 1) : 1) }),
      ...(m.architecture === 'gpt-oss' && { truncate: false }),
    };
  }
  if (type !== 'none' && type !== 'linear')
    throw new UnsupportedError(`${source.path}: rope.scaling.type ${JSON.stringify(type)} is not served`);
  return { rope_type: 'default', rope_theta: theta };
}

/** Architectures whose layers differ in their sizes; what is common to all is the first layer's. */
const BY_LAYER = ['gemma3n', 'gemma4', 'laguna', 'mimo2'];
/** Architectures some of whose layers have no keys. */
const SOME_KEYED = ['kimi-linear', 'lfm2', 'lfm2moe', 'granitehybrid', 'jamba', 'nemotron_h', 'nemotron_h_moe'];
const keyHeads = (m: Metadata, heads: number): number => {
  if (BY_LAYER.includes(m.architecture))
    return Number(m.list('attention.head_count_kv')?.[0] ?? m.same('attention.head_count_kv', heads));
  return SOME_KEYED.includes(m.architecture)
    ? m.sameOfSome('attention.head_count_kv') || heads
    : m.same('attention.head_count_kv', heads);
};

const headCount = (m: Metadata): number =>
  BY_LAYER.includes(m.architecture)
    ? Number(m.list('attention.head_count')?.[0] ?? m.same('attention.head_count'))
    : m.same('attention.head_count');

/** What models for chat end their turns with, in the tokenizers of the families. */
const TURN_ENDS = ['<|im_end|>', '<|eot_id|>', '<|end|>', '<end_of_turn>', '<turn|>', '<|end_of_turn|>', '<|eom_id|>'];
/** Kinds of tokens that text never becomes: those of control, and those that users defined. */
const SPECIAL_KINDS = [3, 4];
/**
 * The tokens that end answers: the ends of texts, turns and messages. Many files name no end of a turn; llama.cpp then
 * goes by the texts of tokens, and so does this.
 */
function endTokens({ source: { metadata } }: Metadata): number[] {
  const named = ['eos', 'eot', 'eom'].map((name) => metadata.get(`tokenizer.ggml.${name}_token_id`));
  const ids = named.filter((v) => v !== undefined).map(Number);
  const list = (key: string): unknown[] =>
    Array.from((metadata.get(`tokenizer.ggml.${key}`) ?? []) as Iterable<unknown>);
  const [tokens, kinds] = [list('tokens'), list('token_type')];
  if (named[1] !== undefined) return ids;
  // Harmony's <|end|> ends one of several messages of an answer.
  const several = tokens.includes('<|return|>');
  const texts = several ? ['<|return|>', '<|call|>'] : TURN_ENDS;
  const found = texts.map((text) => tokens.indexOf(text)).filter((id) => SPECIAL_KINDS.includes(Number(kinds[id])));
  return [...new Set([...ids, ...found])];
}

/** What every architecture says, under all names that configs use. */
function common(m: Metadata): Json {
  const { source } = m;
  const hidden = m.number('embedding_length');
  const heads = headCount(m) || 1; // 0 where no layer attends
  if (headCount(m) === 0 && source.names.some((n) => /\.attn_(q|qkv|kv_a_mqa)\./.test(n)))
    throw m.wrong('attention.head_count', 'the count of heads of its layers');
  const layers = m.layers();
  const max = m.number('context_length');
  const eps = m.optional('attention.layer_norm_rms_epsilon') ?? m.optional('attention.layer_norm_epsilon') ?? 1e-5;
  m.get('attention.layer_norm_epsilon');
  const headDim = m.optional('attention.key_length') ?? hidden / heads;
  const turned = m.optional('rope.dimension_count') ?? headDim;
  if (m.has('rope.dimension_count') && (turned < 2 || turned % 2 !== 0))
    throw m.wrong('rope.dimension_count', 'an even number from 2');
  m.optional('attention.value_length'); // tensors tell, and a word of another kind is no length
  const inners = BY_LAYER.includes(m.architecture) ? m.list('feed_forward_length') : undefined;
  const inner = inners ? Number(inners[0]) : m.has('feed_forward_length') ? m.sameOfSome('feed_forward_length') : 0;
  const window = m.optional('attention.sliding_window') || undefined;
  // Where experts begin, tensors tell: some converters write a count that is not there in the config.
  m.optional('leading_dense_block_count');
  const sparse = Array.from({ length: layers }, (_, i) => source.has(`blk.${i}.ffn_gate_inp.weight`));
  const expertsInner = m.optional('expert_feed_forward_length');
  const id = (name: string): unknown => {
    const stored = source.metadata.get(`tokenizer.ggml.${name}_token_id`);
    return typeof stored === 'bigint' ? Number(stored) : stored;
  };
  const count = { num_hidden_layers: layers, n_layer: layers, n_layers: layers };
  const width = { hidden_size: hidden, n_embd: hidden, d_model: hidden };
  const sizes = { num_attention_heads: heads, n_head: heads, n_heads: heads };
  const norms = { rms_norm_eps: eps, layer_norm_eps: eps, layer_norm_epsilon: eps, norm_epsilon: eps, norm_eps: eps };
  return {
    ...{ ...count, ...width, ...sizes, ...norms },
    ...{ num_key_value_heads: keyHeads(m, heads), head_dim: headDim },
    ...{ intermediate_size: inner, n_inner: inner, ffn_hidden_size: inner, ffn_dim: inner },
    ...{ max_position_embeddings: max, n_positions: max, seq_length: max, max_seq_len: max },
    vocab_size: source.shapeOf('token_embd.weight')[0],
    tie_word_embeddings: !source.has('output.weight'),
    // A little more, so that no rounding takes a pair away.
    [GGUF_PARTIAL]: (turned + 1e-6) / headDim,
    rope_parameters: ropeOf(m, max),
    sliding_window: window,
    ...(m.has('expert_count') && {
      ...{ num_local_experts: m.number('expert_count'), num_experts: m.number('expert_count') },
      ...{ n_routed_experts: m.number('expert_count'), moe_num_experts: m.number('expert_count') },
      ...{ num_experts_per_tok: m.number('expert_used_count'), moe_topk: m.number('expert_used_count') },
      moe_k: m.number('expert_used_count'),
      moe_intermediate_size: expertsInner ?? inner,
      ...(expertsInner !== undefined && { expert_inner: expertsInner }),
      n_shared_experts: m.optional('expert_shared_count') ?? 0,
      moe_num_shared_experts: m.optional('expert_shared_count') ?? 0,
      routed_scaling_factor: m.optional('expert_weights_scale') ?? 1,
      norm_topk_prob: m.flag('expert_weights_norm') ?? false,
      n_group: m.optional('expert_group_count') ?? 1,
      topk_group: m.optional('expert_group_used_count') ?? 1,
      first_k_dense_replace: sparse.includes(true) ? sparse.indexOf(true) : layers,
      mlp_only_layers: sparse.flatMap((yes, i) => (yes ? [] : [i])),
    }),
    bos_token_id: id('bos'),
    eos_token_id: endTokens(m),
  };
}

/** Architectures whose attention is never without biases, as their configs take for granted. */
const ALWAYS_BIASED = ['gptneox', 'gpt-oss', 'seed_oss', 'qwen2moe'];
/**
 * Which biases there are, as the flags of a config would say it: metadata does not, so the layers' tensors do.
 */
function biasFlags({ architecture, source }: Metadata): Json {
  if (ALWAYS_BIASED.includes(architecture)) return {};
  const all = new Set(source.names.map((n) => n.replace(/^blk\.\d+\./, '')));
  const stored = (...names: readonly string[]): boolean => names.some((n) => all.has(`${n}.bias`));
  const [mixed, out] = [stored('attn_q', 'attn_qkv', 'attn_kv_a_mqa'), stored('attn_output')];
  const fed = stored('ffn_up');
  const [convolved, stateIn] = [stored('ssm_conv1d'), stored('ssm_in')];
  return {
    ...{ use_conv_bias: convolved, mamba_conv_bias: convolved, mamba_proj_bias: stateIn },
    projectors_bias: stored('ssm_out'),
    ...{ attention_bias: mixed, qkv_bias: mixed, use_qkv_bias: mixed, bias: mixed, use_bias: mixed || stateIn },
    ...{ attention_out_bias: out, mlp_bias: fed, lm_head_bias: stored('output') },
  };
}

/** The config that a file's metadata amounts to. */
export function ggufConfig(m: Metadata): Json {
  const base = common(m);
  m.get('expert_gating_func');
  return { ...base, ...biasFlags(m), ...OF_ARCHITECTURE[m.architecture]?.(m, base), model_type: ggufType(m) };
}
