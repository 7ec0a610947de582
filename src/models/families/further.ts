// GPT-Neo, CodeGen, NanoChat, AFMoE, XGLM, DBRX and Hunyuan 3: switches that others have, in other combinations.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import { ALL_NORMS } from '../decoder/features.js';
import type { Rows } from '../decoder/weights.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  eitherKind,
  expertNames,
  experts,
  firstCount,
  fixedRope,
  fusedGateUp,
  fusedQkv,
  gated,
  lastFull,
  layerNorm,
  layerTypes,
  LLAMA_NAMES,
  MLP_BIAS,
  rms,
  ropeOf,
  SHARED_BIAS,
  sharedNames,
  sizesOf,
  sparseLayers,
  stackedGateUp,
  UNGATED_BIAS,
  ungated,
  windowsBy,
} from './common.js';
import { family } from './row.js';

const BLOCKS = {
  embed: 'transformer.wte',
  finalNorm: 'transformer.ln_f',
  head: 'lm_head',
  layer: 'transformer.h.{i}',
  beforeMixer: 'ln_1',
} as const;

/** [[['global', 'local'], 2], ...]: lists of kinds, each so many times. */
function kinds(given: unknown, where: string, layers: number): readonly string[] {
  const bad = (): never => {
    throw new FormatError(
      `${where}: attention_types or attention_layers is ${JSON.stringify(given)}; it must give ${layers} layers' kinds`,
    );
  };
  if (!Array.isArray(given)) return bad();
  const all = given.flatMap((item: unknown) => {
    if (!Array.isArray(item) || !Array.isArray(item[0]) || !Number.isInteger(item[1])) return bad();
    return Array.from({ length: item[1] as number }, () => item[0] as string[]).flat();
  });
  return all.length === layers && all.every((k) => k === 'global' || k === 'local') ? all : bad();
}
const gptNeo = family({
  types: ['gpt_neo'],
  features: (c) => {
    const hidden = c.count('hidden_size', undefined, 1);
    const heads = firstCount(c, 'num_heads', 'num_attention_heads');
    const s = checked(c, {
      ...{ hidden, heads, kvHeads: heads, headDim: hidden / heads },
      layers: firstCount(c, 'num_layers', 'num_hidden_layers'),
      maxPositions: c.count('max_position_embeddings', 2048, 1),
    });
    c.ignore('embed_dropout');
    const byRule = c.get('attention_types') ?? [[['global', 'local'], 12]];
    // The list of layers, which the rule only makes, counts where both are there.
    const types = kinds(c.has('attention_layers') ? [[c.get('attention_layers'), 1]] : byRule, c.where, s.layers);
    const window = c.count('window_size', 256, 1);
    const act = activationOf(c, 'activation_function', 'gelu_new');
    const inner = c.optional('intermediate_size') ?? 4 * hidden;
    return build('gpt_neo', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      // Scores are not divided by anything.
      attention: (i) => ({ scale: 1, ...(types[i] === 'local' && { window }) }),
      mlp: () => ungated(inner, act),
      tied: true,
      biases: ['o', ...UNGATED_BIAS],
      more: { learntPositions: { count: s.maxPositions, offset: 0 } },
    });
  },
  names: {
    ...BLOCKS,
    positions: 'transformer.wpe',
    beforeMlp: 'ln_2',
    q: 'attn.attention.q_proj',
    k: 'attn.attention.k_proj',
    v: 'attn.attention.v_proj',
    o: 'attn.attention.out_proj',
    up: 'mlp.c_fc',
    down: 'mlp.c_proj',
  },
  ignored: () => /attn\.attention\.(bias|masked_bias)$/,
});

/** Rows of four parts, each with its heads' queries, values and keys. */
const ofFour =
  (at: 0 | 1 | 2): Rows =>
  (t, s) => {
    const rest = t.shape.slice(1);
    const parts = t.reshape([4, 3, (s.heads / 4) * s.headDim, ...rest]);
    return parts.narrow(1, at, 1).reshape([s.heads * s.headDim, ...rest]);
  };
const codegen = family({
  types: ['codegen'],
  features: (c) => {
    const hidden = firstCount(c, 'n_embd', 'hidden_size');
    const heads = firstCount(c, 'n_head', 'num_attention_heads');
    const s = checked(c, {
      ...{ hidden, heads, kvHeads: heads, headDim: hidden / heads },
      layers: firstCount(c, 'n_layer', 'num_hidden_layers'),
      maxPositions: firstCount(c, 'n_positions', 'max_position_embeddings'),
    });
    if (heads % 4 !== 0)
      throw new FormatError(`${c.where}: ${heads} heads do not divide into the four parts of qkv_proj`);
    c.ignore('n_ctx', 'scale_attn_weights', 'gradient_checkpointing');
    const rotated = c.count('rotary_dim', 64, 1);
    const act = activationOf(c, 'activation_function', 'gelu_new');
    const inner = c.optional('n_inner') ?? 4 * hidden;
    return build('codegen', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      rope: fixedRope(s, rotated),
      mlp: () => ungated(inner, act),
      biases: [...UNGATED_BIAS, 'head'],
      more: { parallel: 'shared' },
    });
  },
  names: {
    ...BLOCKS,
    ...fusedQkv('attn.qkv_proj', { q: ofFour(0), v: ofFour(1), k: ofFour(2) }),
    o: 'attn.out_proj',
    up: 'mlp.fc_in',
    down: 'mlp.fc_out',
  },
  ignored: () => /attn\.causal_mask$/,
});

const nanochat = family({
  types: ['nanochat'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = { ...rms(c), weightless: true };
    const cap = c.optional('final_logit_softcapping');
    const act = activationOf(c, 'hidden_act', 'relu2');
    return build('nanochat', c, s, {
      norm,
      rope: ropeOf(c, s, { backward: true }),
      attention: () => ({ qkNorm: { norm, over: 'head', afterRope: true } }),
      mlp: () => ungated(c.count('intermediate_size', undefined, 1), act),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
      more: { embedNorm: true, ...(cap !== undefined && { logitSoftcap: cap }) },
    });
  },
  names: { ...LLAMA_NAMES, up: 'mlp.fc1', down: 'mlp.fc2' },
});

const afmoe = family({
  types: ['afmoe'],
  features: (c) => {
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const every = c.count('global_attn_every_n_layers', 4, 1);
    const windows = windowsBy(c, layerTypes(c, s.layers, lastFull(every)), c.optional('sliding_window'));
    const rope = ropeOf(c, s);
    const dense = c.count('num_dense_layers', 1);
    const inner = c.count('moe_intermediate_size', undefined, 1);
    const shared = c.count('num_shared_experts', 2, 1);
    const mixture = {
      count: c.count('num_experts', 64, 1),
      chosen: c.count('num_experts_per_tok', 6, 1),
      inner,
      score: 'sigmoid',
      choiceBias: true,
      weights: 'normalised',
      sumGuard: { add: 1e-20 },
      factor: c.number('route_scale', 1),
      shared: { inner: inner * shared },
    } as const;
    c.ignore('intermediate_size', 'n_group', 'topk_group', 'num_expert_groups', 'num_limited_groups', 'score_func');
    return build('afmoe', c, s, {
      norm,
      attention: (i) => ({
        window: windows[i],
        ...(windows[i] !== undefined && { rope }),
        ...{ qkNorm: { norm, over: 'head' }, gated: 'sigmoid' },
      }),
      mlp: (i) => (i < dense ? gated(c) : experts(c, mixture)),
      biases: biasesBy(c, { attention_bias: ATTENTION_BIAS }),
      more: { norms: ALL_NORMS, ...(c.flag('mup_enabled', false) && { embedFactor: Math.sqrt(s.hidden) }) },
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_experts'),
    afterMixer: 'post_attention_layernorm',
    beforeMlp: 'pre_mlp_layernorm',
    afterMlp: 'post_mlp_layernorm',
    qGate: 'self_attn.gate_proj',
    router: 'mlp.router.gate',
    choiceBias: { name: 'mlp.expert_bias', bare: true },
  },
  gguf: { architectures: ['afmoe'], names: { qGate: 'attn_gate' } },
});

const xglm = family({
  types: ['xglm'],
  features: (c) => {
    c.only('add_cross_attention', false);
    const hidden = c.count('d_model', undefined, 1);
    const heads = c.count('attention_heads', undefined, 1);
    const s = checked(c, {
      ...{ hidden, heads, kvHeads: heads, headDim: hidden / heads },
      layers: c.count('num_layers', undefined, 1),
      maxPositions: c.count('max_position_embeddings', 2048, 1),
    });
    c.ignore('init_std');
    const act = activationOf(c, 'activation_function', 'gelu');
    const zeroRow = c.optional('pad_token_id');
    return build('xglm', c, s, {
      norm: { kind: 'layer', eps: 1e-5, bias: true },
      mlp: () => ungated(c.count('ffn_dim', undefined, 1), act),
      tied: true,
      biases: [...ATTENTION_BIAS, ...UNGATED_BIAS],
      more: {
        learntPositions: { count: s.maxPositions, offset: 2, waves: zeroRow === undefined ? {} : { zeroRow } },
        ...(c.flag('scale_embedding', true) && { embedFactor: Math.sqrt(hidden) }),
      },
    });
  },
  names: {
    ...LLAMA_NAMES,
    finalNorm: 'model.layer_norm',
    beforeMixer: 'self_attn_layer_norm',
    beforeMlp: 'final_layer_norm',
    o: 'self_attn.out_proj',
    up: 'fc1',
    down: 'fc2',
  },
});

/** The two objects that a DBRX config holds its attention and its experts in. */
function dbrxParts(c: Config): { readonly attention: Config; readonly ffn: Config } {
  const [attention, ffn] = [c.inner('attn_config'), c.inner('ffn_config')];
  if (!attention || !ffn) throw new FormatError(`${c.where}: attn_config and ffn_config must be there`);
  attention.ignoreBooks();
  ffn.ignoreBooks();
  attention.ignore('attn_pdrop', 'rope_theta');
  ffn.ignore('hidden_size', 'moe_jitter_eps', 'moe_loss_weight', 'uniform_expert_assignment');
  return { attention, ffn };
}
const dbrx = family({
  types: ['dbrx'],
  features: (c) => {
    const { attention, ffn } = dbrxParts(c);
    const hidden = c.count('d_model', undefined, 1);
    const heads = c.count('n_heads', undefined, 1);
    const s = checked(c, {
      ...{ hidden, heads, headDim: hidden / heads, kvHeads: attention.count('kv_n_heads', 1, 1) },
      layers: c.count('n_layers', undefined, 1),
      maxPositions: c.count('max_seq_len', 2048, 1),
    });
    c.ignore('emb_pdrop', 'num_key_value_heads');
    const clip = attention.optional('clip_qkv');
    const normalised = ffn.json.moe_normalize_expert_weights !== null;
    ffn.only('moe_normalize_expert_weights', 1); // sums of other powers have no place here
    return build('dbrx', c, s, {
      norm: { kind: 'layer', eps: 1e-5 },
      rope: ropeOf(c, s, { theta: attention.optional('rope_theta') ?? 1e4 }),
      attention: () => (clip !== undefined ? { clip } : {}),
      mlp: () => ({
        kind: 'experts',
        activation: activationOf(ffn.inner('ffn_act_fn') ?? ffn, 'name', 'silu'),
        count: ffn.count('moe_num_experts', 4, 1),
        chosen: ffn.count('moe_top_k', 1, 1),
        inner: ffn.count('ffn_hidden_size', 3584, 1),
        score: 'softmax',
        weights: normalised ? 'normalised' : 'kept',
      }),
    });
  },
  names: (c) => {
    const place = { bare: true, matrices: dbrxParts(c).ffn.count('moe_num_experts', 4, 1) };
    return {
      embed: 'transformer.wte',
      finalNorm: 'transformer.norm_f',
      head: 'lm_head',
      layer: 'transformer.blocks.{i}',
      beforeMixer: 'norm_attn_norm.norm_1',
      beforeMlp: 'norm_attn_norm.norm_2',
      ...fusedQkv('norm_attn_norm.attn.Wqkv'),
      o: 'norm_attn_norm.attn.out_proj',
      router: 'ffn.router.layer',
      expertGate: { name: 'ffn.experts.mlp.w1', ...place },
      expertUp: { name: 'ffn.experts.mlp.v1', ...place },
      expertDown: { name: 'ffn.experts.mlp.w2', ...place, transposed: true },
    };
  },
  gguf: { architectures: ['dbrx'], names: { ...fusedQkv('attn_qkv'), beforeMlp: 'attn_output_norm' } },
});

const hunyuan3 = family({
  types: ['hy_v3'],
  features: (c) => {
    const biases = biasesBy(c, { attention_bias: ATTENTION_BIAS, mlp_bias: [...MLP_BIAS, ...SHARED_BIAS] });
    const s = sizesOf(c);
    const norm = rms(c, 1e-5);
    const sparse = sparseLayers(c, s.layers, (i) => i > 0);
    const inner = c.count('moe_intermediate_size', undefined, 1);
    const shared = c.count('num_shared_experts', 1, 1);
    eitherKind(c);
    c.ignore('enable_moe_fp32_combine', 'num_nextn_predict_layers', 'router_scaling_factor');
    return build('hy_v3', c, s, {
      norm,
      rope: ropeOf(c, s, { theta: 11_158_840 }),
      attention: () => ({ qkNorm: { norm, over: 'head' } }),
      mlp: (i) =>
        sparse(i)
          ? experts(c, {
              count: firstCount(c, 'num_experts', 'num_local_experts'),
              chosen: c.count('num_experts_per_tok', undefined, 1),
              inner,
              score: 'sigmoid',
              choiceBias: true,
              weights: 'normalised',
              sumGuard: { add: 1e-20 },
              factor: c.number('router_scaling_factor', 2.826),
              shared: { inner: inner * shared },
            })
          : gated(c),
      biases,
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_mlp'),
    router: 'mlp.router.gate',
    choiceBias: { name: 'mlp.expert_bias', bare: true },
  },
  gguf: {
    architectures: ['hy_v3'],
    // Other programs look for the bias under this name alone.
    written: () => ({ choiceBias: { name: 'exp_probs_b', bare: true } }),
  },
});

const KEYS_AND_VALUES = fusedGateUp('self_attention.kv_proj');
const JET_EXPERTS = stackedGateUp('mlp.input_linear');
const jetmoe = family({
  types: ['jetmoe'],
  features: (c) => {
    const [kvHeads, chosen] = [c.count('num_key_value_heads', 16, 1), c.count('num_experts_per_tok', 2, 1)];
    const count = c.count('num_local_experts', 8, 1);
    c.ignore('aux_loss_coef', 'head_dim', 'num_attention_heads'); // which the others make
    const s = {
      ...{ hidden: c.count('hidden_size', undefined, 1), heads: kvHeads * chosen, kvHeads },
      headDim: c.count('kv_channels', 128, 1),
      layers: c.count('num_hidden_layers', undefined, 1),
      maxPositions: c.count('max_position_embeddings', 4096, 1),
    };
    return build('jetmoe', c, s, {
      norm: { kind: 'rms', eps: 1e-6 },
      rope: ropeOf(c, s),
      attention: () => ({ experts: { count } }),
      mlp: () => ({
        kind: 'experts',
        activation: activationOf(c, 'activation_function'),
        ...{ count, chosen, inner: c.count('intermediate_size', undefined, 1) },
        ...{ score: 'logits', weights: 'softmax', summed: true },
      }),
      tied: true,
      more: { finalNorm: rms(c) },
    });
  },
  names: {
    ...LLAMA_NAMES,
    q: 'self_attention.experts.input_linear',
    k: KEYS_AND_VALUES.gate,
    v: KEYS_AND_VALUES.up,
    o: 'self_attention.experts.output_linear',
    qRouter: 'self_attention.experts.router.layer',
    oSum: { name: 'self_attention.experts.bias', bare: true },
    router: 'mlp.router.layer',
    expertGate: JET_EXPERTS.gate,
    expertUp: JET_EXPERTS.up,
    expertDown: 'mlp.output_linear',
    expertsSum: { name: 'mlp.bias', bare: true },
  },
});

export const FURTHER_FAMILIES = [gptNeo, codegen, nanochat, afmoe, xglm, dbrx, hunyuan3, jetmoe];
