// Decoders whose layers remember numbers that fade: RecurrentGemma (Griffin) and the first MiniMax (lightning
// attention).
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { FadingAttention, GatedRecurrence, Mixer } from '../decoder/features.js';
import {
  activationOf,
  build,
  experts,
  LLAMA_NAMES,
  FULL_OR_LINEAR,
  layerTypes,
  expertNames,
  MLP_BIAS,
  QKV_BIAS,
  rms,
  ropeOf,
  type Sizes,
  sizesOf,
} from './common.js';
import { family } from './row.js';

const RECURRENT = 'temporal_block';
const GATES = `${RECURRENT}.rg_lru`;

/** As a float of 16 bits with 8 digits holds it, which is how transformers keeps the embedding's factor. */
function inBf16(x: number): number {
  const bits = new Uint32Array(Float32Array.of(x).buffer);
  bits[0] = ((bits[0] + 0x7fff + ((bits[0] >> 16) & 1)) >> 16) << 16;
  return new Float32Array(bits.buffer)[0];
}
function recurrenceOf(c: Config, s: Sizes, activation: string): GatedRecurrence {
  const inner = c.count('lru_width', s.hidden, 1);
  if (inner % s.heads !== 0)
    throw new FormatError(`${c.where}: lru_width ${inner} does not divide into ${s.heads} heads`);
  return { kind: 'recurrence', inner, blocks: s.heads, width: c.count('conv1d_width', 4, 1), activation };
}
const recurrentGemma = family({
  types: ['recurrent_gemma'],
  features: (c) => {
    const s = sizesOf(c);
    const activation = activationOf(c, 'hidden_activation', 'gelu_pytorch_tanh');
    const rope = ropeOf(c, s, { partial: 0.5 });
    if (rope.type !== 'default')
      throw new UnsupportedError(`${c.where}: rope_parameters.rope_type is "${rope.type}"; this family has "default"`);
    const kinds = c.has('block_types') ? c.texts('block_types') : ['recurrent', 'recurrent', 'attention'];
    c.onlyKinds('block_types', kinds, ['recurrent', 'attention']);
    const state = recurrenceOf(c, s, activation);
    const { heads, kvHeads, headDim } = s;
    const window = c.count('attention_window_size', 2048, 1);
    c.ignore('w_init_variance_scale', 'final_w_init_variance_scale', 'sliding_window');
    const inner = Math.floor(c.count('intermediate_size', undefined, 1) / 2);
    const always = ['stateIn', 'stateGate', 'stateConv', 'stateRate', 'stateStep', 'stateOut', 'o'] as const;
    return build('recurrent_gemma', c, s, {
      norm: { ...rms(c), plusOne: true },
      mixer: (i): Mixer => {
        const kind = kinds[i % kinds.length];
        if (kind === 'recurrent') return state;
        return { kind: 'attention', heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim), rope, window };
      },
      mlp: () => ({ kind: 'dense', inner, gated: true, activation }),
      tied: true,
      biases: [...always, ...MLP_BIAS, ...(c.flag('attention_bias', false) ? QKV_BIAS : [])],
      more: { embedFactor: inBf16(Math.sqrt(s.hidden)), logitSoftcap: c.number('logits_soft_cap', 30) },
    });
  },
  names: {
    ...LLAMA_NAMES,
    finalNorm: 'model.final_norm',
    beforeMixer: 'temporal_pre_norm',
    beforeMlp: 'channel_pre_norm',
    q: `${RECURRENT}.q_proj`,
    k: `${RECURRENT}.k_proj`,
    v: `${RECURRENT}.v_proj`,
    o: `${RECURRENT}.o_proj`,
    gate: 'mlp_block.gate_proj',
    up: 'mlp_block.up_proj',
    down: 'mlp_block.down_proj',
    stateIn: `${RECURRENT}.linear_x`,
    stateGate: `${RECURRENT}.linear_y`,
    stateConv: `${RECURRENT}.conv_1d`,
    stateDecay: { name: `${GATES}.recurrent_param`, bare: true },
    stateRate: { name: `${GATES}.input_gate_weight`, bare: true, bias: `${GATES}.input_gate_bias` },
    stateStep: { name: `${GATES}.recurrent_gate_weight`, bare: true, bias: `${GATES}.recurrent_gate_bias` },
    stateOut: `${RECURRENT}.linear_out`,
  },
});

/** Heads fade the slower the higher their number, and layers the slower the deeper they lie. */
function lightning(c: Config, { heads, headDim, layers }: Sizes, layer: number): FadingAttention {
  const deep = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
  const rates = Array.from({ length: heads }, (_, h) => -deep * 2 ** ((-8 / heads) * (h + 1)));
  const block = c.count('block_size', 256, 1);
  return { kind: 'fading', heads, headDim, rates, block, eps: 1e-6, activation: activationOf(c) };
}
const minimax = family({
  types: ['minimax'],
  features: (c) => {
    const s = sizesOf(c);
    const rope = ropeOf(c, s, { theta: 1e6 });
    const window = c.optional('sliding_window');
    c.ignore('block_size'); // only layers that fade read it
    const types = layerTypes(c, s.layers, (i) => (i % 2 ? 'linear_attention' : 'full_attention'));
    c.onlyKinds('layer_types', types, FULL_OR_LINEAR);
    const pair = (name: string): readonly [number, number] => [
      c.number(`${name}_alpha_factor`, 1),
      c.number(`${name}_beta_factor`, 1),
    ];
    const [full, linear, mlp] = ['full_attn', 'linear_attn', 'mlp'].map(pair);
    const { heads, kvHeads, headDim } = s;
    return build('minimax', c, s, {
      norm: rms(c, 1e-5),
      mixer: (i): Mixer => {
        if (types[i] === 'linear_attention') return lightning(c, s, i);
        const scale = 1 / Math.sqrt(headDim);
        return { kind: 'attention', heads, kvHeads, headDim, scale, rope, ...(window !== undefined && { window }) };
      },
      mlp: () =>
        experts(c, {
          count: c.count('num_local_experts', undefined, 1),
          chosen: c.count('num_experts_per_tok', 2, 1),
          inner: c.count('intermediate_size', undefined, 1),
          score: 'softmax',
          weights: 'normalised',
        }),
      layer: (i) => ({ ontoNormed: { mixer: types[i] === 'linear_attention' ? linear : full, mlp } }),
    });
  },
  names: {
    ...LLAMA_NAMES,
    ...expertNames('block_sparse_moe', ['w1', 'w3', 'w2']),
    stateIn: 'self_attn.qkv_proj',
    stateGate: 'self_attn.output_gate',
    stateNorm: 'self_attn.norm',
    stateOut: 'self_attn.out_proj',
    fadeRate: { name: 'self_attn.slope_rate', bare: true },
    fadeQuery: { name: 'self_attn.query_decay', bare: true },
    fadeKey: { name: 'self_attn.key_decay', bare: true },
    fadePair: { name: 'self_attn.diagonal_decay', bare: true },
  },
});

export const FADING_FAMILIES = [recurrentGemma, minimax];
