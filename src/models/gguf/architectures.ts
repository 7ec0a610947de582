// What single architectures add to the config that their GGUF files amount to, or mean otherwise.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Json } from '../files/config.js';
import { GGUF_PARTIAL } from '../decoder/rope.js';
import { CURVE } from './curves.js';
import { layerTypes, ropesByKind, sparseTypes } from './layers.js';
import { type Metadata, turnsBetweenStates } from './metadata.js';
import { MIXTURE_KEYS } from './mixtures.js';

/** The sizes of a state; `rank` is also the number of its heads. */
const stateSizes = (m: Metadata) => ({
  width: m.number('ssm.conv_kernel'),
  inner: m.number('ssm.inner_size'),
  state: m.number('ssm.state_size'),
  rank: m.number('ssm.time_step_rank'),
  groups: m.number('ssm.group_count', 1),
});
/** The same under the names that hybrids with Mamba 2 have. */
function hybridStates(m: Metadata, c: Json): Json {
  const { width, inner, state, rank, groups } = stateSizes(m);
  return {
    ...{ mamba_d_conv: width, mamba_d_state: state, mamba_n_heads: rank, mamba_n_groups: groups },
    ...{ mamba_d_head: inner / rank, mamba_expand: inner / c.hidden_size },
  };
}
/** Layers by whether they have keys. */
const byKeys = (m: Metadata, keyed: string, other: string): string[] =>
  (m.list('attention.head_count_kv') ?? []).map((n) => (Number(n) > 0 ? keyed : other));
/** Which layers are of a kind, as the period and the first that configs write. */
function periodOf(m: Metadata, what: string, is: readonly boolean[]): Json {
  const [first, second] = is.flatMap((yes, i) => (yes ? [i] : []));
  const period = first === undefined ? is.length + 1 : (second ?? is.length + first) - first;
  const offset = first ?? is.length;
  if (is.some((yes, i) => yes !== (i % period === offset)))
    throw new UnsupportedError(`${m.source.path}: the layers with ${what} parts do not come in equal distances`);
  return { [`${what}_layer_period`]: period, [`${what}_layer_offset`]: offset };
}
/** Of a latent model all whose layers are dense. */
function withoutExperts(m: Metadata, c: Json): Json {
  for (const key of ['expert_shared_count', 'expert_weights_scale', 'expert_weights_norm']) m.get(key);
  return { first_k_dense_replace: c.num_hidden_layers, moe_intermediate_size: 1 };
}
/** Later Gemmas': layers that slide have a rope of their own. */
const windowedRopes = (m: Metadata, c: Json): { rope_parameters: Json; layer_types: readonly string[] } & Json => ({
  ...gemmaRopes(m, c),
  layer_types: layerTypes(m, c.num_hidden_layers, (i) => (i + 1) % 5 !== 0),
  [GGUF_PARTIAL]: undefined,
});
function gemmaRopes(m: Metadata, c: Json): { readonly rope_parameters: Json } {
  const full = { ...c.rope_parameters, rope_theta: m.number('rope.freq_base', 1e6) };
  return ropesByKind(m, { ...c, rope_parameters: full }, 10_000);
}
/** What single architectures add or mean otherwise. */
export const OF_ARCHITECTURE: Readonly<Record<string, (m: Metadata, c: Json) => Json>> = {
  ...MIXTURE_KEYS,
  mistral3: (m, c) => ({
    rope_parameters: { ...c.rope_parameters, llama_4_scaling_beta: m.optional('attention.temperature_scale') },
  }),
  qwen2moe: (m) => ({ shared_expert_intermediate_size: m.number('expert_shared_feed_forward_length') }),
  qwen3moe: () => ({ norm_topk_prob: true }),
  qwen3vl: (m) => (m.get('n_deepstack_layers'), {}), // where images enter
  qwen3vlmoe: (m, c) => (m.get('n_deepstack_layers'), OF_ARCHITECTURE.qwen3moe(m, c)),
  gemma2: (m, c) => ({
    query_pre_attn_scalar: c.num_hidden_layers === 46 ? c.hidden_size / c.num_attention_heads : c.head_dim,
    attn_logit_softcapping: m.optional('attn_logit_softcapping') ?? 50,
    final_logit_softcapping: m.optional('final_logit_softcapping') ?? 30,
  }),
  gemma3: (m, c) => ({
    query_pre_attn_scalar: c.num_hidden_layers === 62 ? c.hidden_size / c.num_attention_heads : c.head_dim,
    final_logit_softcapping: m.optional('final_logit_softcapping'),
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => (i + 1) % 6 !== 0),
    ...gemmaRopes(m, c),
  }),
  // Thirteen billion parameters are in forty layers, and go by distances.
  baichuan: (_m, c) => (c.num_hidden_layers === 40 ? { alibi: true } : {}),
  refact: () => ({ alibi: true }),
  // The length that configs gave counts gates and ups together.
  qwen: (_m, c) => ({ intermediate_size: c.intermediate_size / 2 }),
  orion: () => ({ use_parallel_residual: false }),
  bitnet: () => ({ hidden_act: 'silu' }),
  bailingmoe2: (m, c) => {
    m.get('expert_shared_feed_forward_length');
    const first = `blk.${c.first_k_dense_replace}.ffn_up_shexp.weight`;
    const shared = m.source.has(first) ? m.source.shapeOf(first)[0] / c.moe_intermediate_size : 0;
    return { use_qk_norm: true, n_shared_experts: shared };
  },
  'gemma-embedding': (m, c) => {
    // What follows the mean of a text; EmbeddingModel reads it.
    for (const key of ['dense_2', 'dense_3']) for (const side of ['in', 'out']) m.get(`${key}_feat_${side}`);
    return { ...OF_ARCHITECTURE.gemma3(m, c), use_bidirectional_attention: true };
  },
  gemma3n: (m, c) => ({
    ...windowedRopes(m, c),
    intermediate_size: m.list('feed_forward_length')?.map(Number) ?? c.intermediate_size,
    num_kv_shared_layers: m.number('attention.shared_kv_layers', 15),
    hidden_size_per_layer_input: m.number('embedding_length_per_layer_input'),
    vocab_size_per_layer_input: m.source.shapeOf('per_layer_token_embd.weight')[0],
    final_logit_softcapping: m.optional('final_logit_softcapping') ?? 30,
    gates_closed_below: m.list('activation_sparsity_scale')?.map(Number) ?? undefined,
    altup_num_inputs: m.number('altup.num_inputs', 4),
    altup_active_idx: m.number('altup.active_idx', 0),
    altup_correct_scale: m.source.has('blk.0.altup_correct_scale.weight'),
    laurel_rank: m.source.shapeOf('blk.0.laurel_l.weight')[0],
  }),
  gemma4: (m, c) => {
    const ropes = windowedRopes(m, c);
    m.get('rope.dimension_count_swa'); // the whole of a head
    const [wide, keys] = [m.number('attention.key_length'), m.list('attention.head_count_kv')];
    const inners = m.list('feed_forward_length')?.map(Number) ?? [c.intermediate_size];
    // Pairs that do not turn have a divisor beyond all bounds.
    const divisors = m.source.has('rope_freqs.weight') ? m.source.numbers('rope_freqs.weight') : [];
    const share = divisors.length > 0 ? divisors.filter((x) => x === 1).length / divisors.length : 1;
    if (divisors.some((x) => x !== 1 && x < 1e20))
      throw new UnsupportedError(`${m.source.path}: rope_freqs.weight holds divisors that are neither 1 nor endless`);
    const { full_attention: full, ...others } = ropes.rope_parameters;
    const width = m.optional('embedding_length_per_layer_input') ?? 0;
    return {
      ...ropes,
      rope_parameters: {
        ...others,
        full_attention: { ...full, rope_type: 'proportional', partial_rotary_factor: share },
      },
      head_dim: m.number('attention.key_length_swa', wide),
      per_layer_config: Object.fromEntries(
        ropes.layer_types.flatMap((t, i) =>
          t === 'full_attention'
            ? [[i, { head_dim: wide, num_key_value_heads: Number(keys?.[i] ?? c.num_key_value_heads) }]]
            : [],
        ),
      ),
      num_key_value_heads: Number(keys?.[ropes.layer_types.indexOf('sliding_attention')] ?? c.num_key_value_heads),
      use_double_wide_mlp: (inners.at(-1) as number) > inners[0],
      num_kv_shared_layers: m.optional('attention.shared_kv_layers') ?? 0,
      hidden_size_per_layer_input: width,
      ...(width > 0 && { vocab_size_per_layer_input: m.source.shapeOf('per_layer_token_embd.weight')[0] }),
      final_logit_softcapping: m.optional('final_logit_softcapping'),
      enable_moe_block: (m.optional('expert_count') ?? 0) > 0,
      top_k_experts: m.optional('expert_used_count'),
    };
  },
  apertus: (m, c) => ({
    hidden_act: 'xielu',
    xielu: CURVE.map((name) => {
      const v = m.source.metadata.get(`xielu.${name}`);
      const list = Array.from((typeof v === 'number' ? [] : (v ?? [])) as Iterable<number>, Number);
      if (list.length === c.num_hidden_layers) return list;
      throw new FormatError(
        `${m.source.path}: xielu.${name} must give a number for each of ${c.num_hidden_layers} layers`,
      );
    }),
  }),
  dbrx: (m, c) => ({
    attn_config: { kv_n_heads: c.num_key_value_heads, clip_qkv: m.optional('attention.clamp_kqv') },
    ffn_config: {
      ...{ moe_num_experts: c.num_experts, moe_top_k: c.num_experts_per_tok, ffn_hidden_size: c.intermediate_size },
      moe_normalize_expert_weights: 1,
    },
  }),
  'exaone-moe': (m, c) => {
    m.get('expert_shared_feed_forward_length');
    return {
      layer_types: layerTypes(m, c.num_hidden_layers, (i) => (i + 1) % 4 !== 0),
      num_shared_experts: c.n_shared_experts,
      norm_topk_prob: m.get('expert_weights_norm') ?? true,
    };
  },
  cohere2moe: (m, c) => {
    m.get('expert_shared_feed_forward_length');
    return {
      ...OF_ARCHITECTURE.cohere2(m, c),
      intermediate_size: c.expert_inner,
      prefix_dense_intermediate_size: c.intermediate_size || undefined,
      num_shared_experts: c.n_shared_experts,
      expert_selection_fn: (m.optional('expert_gating_func') ?? 2) === 2 ? 'sigmoid' : 'softmax',
      shared_expert_combination_strategy: 'average',
      // Norms of means or not, by which number is there.
      ...(!m.has('attention.layer_norm_rms_epsilon') && { rms_norm_eps: undefined }),
    };
  },
  // What single sizes of the model say in their configs; files and other programs take it for granted.
  minicpm3: (m, c) => ({
    ...{ scale_emb: 12, scale_depth: 1.4, dim_model_base: 256 },
    q_lora_rank: m.optional('attention.q_lora_rank') || undefined,
    kv_lora_rank: m.number('attention.kv_lora_rank'),
    qk_rope_head_dim: m.number('rope.dimension_count'),
    qk_nope_head_dim: m.number('attention.key_length') - m.number('rope.dimension_count'),
    v_head_dim:
      m.source.shapeOf('blk.0.attn_kv_b.weight')[0] / c.num_attention_heads -
      (m.number('attention.key_length') - m.number('rope.dimension_count')),
    [GGUF_PARTIAL]: 1,
  }),
  granite: (m) => ({
    attention_multiplier: m.number('attention.scale', 1),
    embedding_multiplier: m.number('embedding_scale', 1),
    residual_multiplier: m.number('residual_scale', 1),
    logits_scaling: m.number('logit_scale', 1),
  }),
  granite_swa: (m, c) => {
    const turns = m.list('attention.rope_pattern');
    return {
      ...OF_ARCHITECTURE.granitemoe(m, c),
      layer_types: layerTypes(m, c.num_hidden_layers, () => false),
      layer_rope_theta: turns?.slice(0, c.num_hidden_layers).map((on) => (on ? c.rope_parameters.rope_theta : 0)),
      use_post_norm: m.source.has('blk.0.post_attention_norm.weight'),
    };
  },
  // Where a file says nothing of them, other programs take numbers of one size of this model.
  minicpm: (m, c) => ({
    attention_multiplier: 1 / Math.sqrt(c.head_dim),
    embedding_multiplier: m.number('embedding_scale'),
    residual_multiplier: m.number('residual_scale'),
    logits_scaling: m.number('logit_scale'),
  }),
  granitemoe: (m, c) => ({
    ...OF_ARCHITECTURE.granite(m, c),
    shared_intermediate_size: m.optional('expert_shared_feed_forward_length') ?? 0,
  }),
  olmo: (m) => ({ clip_qkv: m.optional('attention.clamp_kqv') }),
  mpt: (m, c) => ({
    expansion_ratio: c.intermediate_size / c.hidden_size,
    attn_config: {
      clip_qkv: m.optional('attention.clamp_kqv'),
      alibi_bias_max: m.optional('attention.max_alibi_bias') ?? 8,
    },
  }),
  olmo2: (m, c) => ({
    ...(c.sliding_window && {
      ...ropesByKind(m, c),
    }),
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => Boolean(c.sliding_window) && (i + 1) % 4 !== 0),
  }),
  'command-r': (m) => ({
    logit_scale: m.number('logit_scale'),
    use_qk_norm: m.source.has('blk.0.attn_q_norm.weight'),
  }),
  cohere2: (m, c) => ({
    logit_scale: m.number('logit_scale'),
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => (i + 1) % 4 !== 0),
  }),
  gptneox: (m) => ({ use_parallel_residual: m.get('use_parallel_residual') ?? true }),
  falcon: (m, c) => ({
    new_decoder_architecture: m.source.has('blk.0.attn_norm_2.weight') || c.num_key_value_heads > 1,
    num_ln_in_parallel_attn: m.source.has('blk.0.attn_norm_2.weight') ? 2 : 1,
    multi_query: c.num_key_value_heads === 1,
    num_kv_heads: c.num_key_value_heads,
  }),
  stablelm: (m) => ({
    use_parallel_residual: m.get('use_parallel_residual') === true || !m.source.has('blk.0.ffn_norm.weight'),
    qk_layernorm: m.source.has('blk.0.attn_q_norm.weight'),
  }),
  exaone4: (m, c) => ({
    layer_types: layerTypes(m, c.num_hidden_layers, (i) => Boolean(c.sliding_window) && (i + 1) % 4 !== 0),
  }),
  'gpt-oss': (_m, c) => ({
    intermediate_size: c.expert_inner ?? c.intermediate_size,
    layer_types: Array.from({ length: c.num_hidden_layers }, (_, i) =>
      i % 2 === 0 ? 'sliding_attention' : 'full_attention',
    ),
  }),
  deepseek2: (m, c) => {
    const rope = m.number('rope.dimension_count');
    const latent = m.has('attention.key_length_mla');
    return {
      q_lora_rank: m.optional('attention.q_lora_rank') || undefined,
      kv_lora_rank: m.number('attention.kv_lora_rank'),
      qk_rope_head_dim: rope,
      qk_nope_head_dim: (latent ? m.number('attention.key_length_mla') : m.number('attention.key_length')) - rope,
      v_head_dim: latent ? m.number('attention.value_length_mla') : m.number('attention.value_length'),
      num_key_value_heads: c.num_attention_heads,
      [GGUF_PARTIAL]: 1,
      ...(!m.has('expert_count') && withoutExperts(m, c)),
      topk_method: c.n_group > 1 ? 'group_limited_greedy' : 'greedy',
      scoring_func: undefined,
    };
  },
  deepseek32: (m, c) => {
    for (const key of ['head_count', 'key_length', 'types']) m.get(`attention.indexer.${key}`);
    return { ...OF_ARCHITECTURE.deepseek2(m, c), index_topk: m.number('attention.indexer.top_k') };
  },
  'glm-dsa': (m, c) => OF_ARCHITECTURE.deepseek32(m, c),
  mistral4: (m, c) => ({
    ...OF_ARCHITECTURE.deepseek2(m, c),
    [GGUF_PARTIAL]: (m.number('rope.dimension_count') + 1e-6) / m.number('attention.key_length_mla'),
    rope_parameters: { ...c.rope_parameters, llama_4_scaling_beta: m.optional('attention.temperature_scale') },
  }),
  mamba: (m, c) => {
    const { width, inner, state, rank } = stateSizes(m);
    return {
      ...{ conv_kernel: width, state_size: state, time_step_rank: rank, intermediate_size: inner },
      expand: inner / c.hidden_size,
    };
  },
  mamba2: (m, c) => {
    const { width, inner, state, rank, groups } = stateSizes(m);
    return {
      ...{ conv_kernel: width, state_size: state, n_groups: groups, num_heads: rank, head_dim: inner / rank },
      expand: inner / c.hidden_size,
    };
  },
  granitehybrid: (m, c) => {
    if (turnsBetweenStates(m))
      return { ...hybridStates(m, c), attn_layer_indices: byKeys(m, 'a', '').flatMap((t, i) => (t ? [i] : [])) };
    return {
      ...OF_ARCHITECTURE.granite(m, c),
      ...hybridStates(m, c),
      attention_multiplier: m.number('attention.scale', 1 / Math.sqrt(c.head_dim)),
      layers_block_type: byKeys(m, 'attention', 'mamba'),
      num_local_experts: m.optional('expert_count') ?? 0,
      shared_intermediate_size:
        m.optional('expert_shared_feed_forward_length') ?? (m.has('expert_count') ? 0 : c.intermediate_size),
    };
  },
  'falcon-h1': (m, c) => ({
    ...hybridStates(m, c),
    mamba_d_ssm: stateSizes(m).inner,
    mamba_rms_norm: m.source.has('blk.0.ssm_norm.weight'),
    mamba_norm_before_gate: false,
  }),
  nemotron_h: (m) => {
    const { width, inner, state, rank, groups } = stateSizes(m);
    const fed = m.list('feed_forward_length') ?? [];
    const own = m.architecture === 'nemotron_h' ? 'mlp' : 'moe';
    return {
      ...{ conv_kernel: width, ssm_state_size: state, n_groups: groups, mamba_num_heads: rank },
      mamba_head_dim: inner / rank,
      layers_block_type: byKeys(m, 'attention', 'mamba').map((t, i) => (Number(fed[i]) > 0 ? own : t)),
      moe_shared_expert_intermediate_size: m.optional('expert_shared_feed_forward_length'),
      moe_latent_size: m.optional('moe_latent_size'),
    };
  },
  nemotron_h_moe: (m, c) => OF_ARCHITECTURE.nemotron_h(m, c),
  'kimi-linear': (m, c) => {
    const types = byKeys(m, 'full_attention', 'linear_attention');
    const first = types.indexOf('linear_attention');
    return {
      ...OF_ARCHITECTURE.deepseek2(m, c),
      model_max_length: c.max_position_embeddings,
      layer_types: types,
      mlp_layer_types: sparseTypes(m, c.num_hidden_layers),
      ...{ linear_head_dim: m.number('kda.head_dim'), linear_conv_kernel_dim: m.number('ssm.conv_kernel') },
      linear_num_heads: m.source.shapeOf(`blk.${first}.ssm_beta.weight`)[0],
      ...{ num_experts_per_token: c.num_experts_per_tok, num_shared_experts: c.n_shared_experts },
      num_expert_group: c.n_group,
      moe_renormalize: m.get('expert_weights_norm') ?? true,
    };
  },
  jamba: (m, c) => {
    const { width, inner, state, rank } = stateSizes(m);
    const layers = Array.from({ length: c.num_hidden_layers }, (_, i) => i);
    const kinds = byKeys(m, 'attention', 'mamba');
    return {
      ...{ mamba_d_conv: width, mamba_d_state: state, mamba_dt_rank: rank, mamba_expand: inner / c.hidden_size },
      ...periodOf(
        m,
        'attn',
        layers.map((i) => kinds[i] === 'attention'),
      ),
      ...periodOf(
        m,
        'expert',
        layers.map((i) => m.source.has(`blk.${i}.ffn_gate_inp.weight`)),
      ),
      num_experts: m.optional('expert_count') ?? 1,
    };
  },
  qwen3next: (m, c) => {
    const { width, inner, state, rank, groups } = stateSizes(m);
    m.get('full_attention_interval'); // tensors tell which layers attend
    return {
      ...{ linear_conv_kernel_dim: width, linear_key_head_dim: state, linear_num_key_heads: groups },
      ...{ linear_num_value_heads: rank, linear_value_head_dim: inner / rank },
      layer_types: Array.from({ length: c.num_hidden_layers }, (_, i) =>
        m.source.has(`blk.${i}.ssm_a`) ? 'linear_attention' : 'full_attention',
      ),
      shared_expert_intermediate_size: m.optional('expert_shared_feed_forward_length'),
      norm_topk_prob: true, // files do not say it
    };
  },
  qwen35: (m, c) => OF_ARCHITECTURE.qwen3next(m, c),
  qwen35moe: (m, c) => OF_ARCHITECTURE.qwen3next(m, c),
  lfm2: (m) => ({
    layer_types: m.list('attention.head_count_kv')?.map((n) => (Number(n) === 0 ? 'conv' : 'full_attention')),
    conv_L_cache: m.number('shortconv.l_cache'),
    block_auto_adjust_ff_dim: false,
    conv_bias: false,
  }),
  lfm2moe: (m, c) => {
    if ((m.optional('expert_gating_func') ?? 2) !== 2)
      throw new UnsupportedError(
        `${m.source.path}: lfm2moe.expert_gating_func is not 2, the sigmoid that this family has`,
      );
    return {
      ...OF_ARCHITECTURE.lfm2(m, c),
      num_dense_layers: c.first_k_dense_replace,
      use_expert_bias: m.source.names.some((n) => n.includes('exp_probs_b')),
      norm_topk_prob: true, // files do not say it
    };
  },
  glm4moe: (m) => ({ use_qk_norm: m.source.has('blk.0.attn_q_norm.weight') }),
  dots1: (m) => (m.get('expert_gating_func'), {}),
  smollm3: () => ({}),
  'minimax-m2': (_m, c) => ({ intermediate_size: c.expert_inner ?? c.intermediate_size }),
  'ernie4_5-moe': (m, c, length = m.optional('expert_shared_feed_forward_length') ?? 0) => ({
    moe_layer_start_index: c.first_k_dense_replace,
    moe_layer_interval: m.optional('interleave_moe_layer_step') ?? 1,
    // The length that converters write beside it is not that of these experts.
    moe_num_shared_experts: m.optional('expert_shared_count') ?? length / c.moe_intermediate_size,
  }),
  'hunyuan-moe': (m, c) => (
    m.get('expert_shared_feed_forward_length'), { intermediate_size: c.expert_inner ?? c.intermediate_size }
  ),
  llama4: (m, c) => ({
    attention_chunk_size: m.optional('attention.chunk_size') ?? 8192,
    interleave_moe_layer_step: m.optional('interleave_moe_layer_step') ?? 1,
    intermediate_size_mlp: c.intermediate_size,
    intermediate_size: c.expert_inner ?? c.intermediate_size,
  }),
};
