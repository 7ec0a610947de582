// GPT-Neo, CodeGen, NanoChat and AFMoE: switches that others have, in other combinations.
import { FormatError } from '../../base/errors.js';
import { ALL_NORMS } from '../features.js';
import type { Rows } from '../weights.js';
import {
  ATTENTION_BIAS,
  activationOf,
  biasesBy,
  build,
  checked,
  expertNames,
  experts,
  firstCount,
  fixedRope,
  fusedQkv,
  gated,
  lastFull,
  layerNorm,
  layerTypes,
  LLAMA_NAMES,
  rms,
  ropeOf,
  sharedNames,
  sizesOf,
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
    // The output's gate never has a bias, and all of the product's parts have one or none.
    c.only('attention_bias', false);
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
        ...{ qkNorm: { norm, over: 'head' }, gated: true },
      }),
      mlp: (i) => (i < dense ? gated(c) : experts(c, mixture)),
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
});

export const FURTHER_FAMILIES = [gptNeo, codegen, nanochat, afmoe];
