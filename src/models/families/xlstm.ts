// xLSTM: a matrix memory instead of attention in every layer.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Features, GatedMemory } from '../decoder/features.js';
import type { Role } from '../decoder/roles.js';
import { build, MLP_BIAS } from './common.js';
import { family } from './row.js';

/** Gates are exponents of numbers in f32. */
const LOUDEST = 60;
const GATES: readonly Role[] = ['stateRate', 'stateStep'];
const PRODUCTS: readonly Role[] = ['stateQuery', 'stateKey', 'stateValue', 'stateGate', 'stateOut', ...MLP_BIAS];

/** A size that goes by either name; where both are given they must agree. */
function either(c: Config, name: string, other: string): number {
  const [a, b] = [name, other].map((n) => c.optional(n));
  if (a !== undefined && b !== undefined && a !== b)
    throw new FormatError(`${c.where}: ${name} is ${a}, ${other} ${b}, and they are one`);
  return c.count(a === undefined && b !== undefined ? other : name, undefined, 1);
}
function memory(c: Config, hidden: number, bias: boolean): GatedMemory {
  const heads = c.count('num_heads', 8, 1);
  const dim = (name: string): number => {
    const width = Math.trunc(hidden * c.number(name));
    if (width < heads || width % heads !== 0)
      throw new FormatError(`${c.where}: ${name} makes ${width} numbers, which do not divide into ${heads} heads`);
    return width / heads;
  };
  const cap = c.number('gate_soft_cap');
  if (cap > LOUDEST)
    throw new UnsupportedError(`${c.where}: gate_soft_cap is ${cap}; gates up to ${LOUDEST} are numbers in f32`);
  return {
    ...{ kind: 'memory', heads, keyDim: dim('qk_dim_factor'), valueDim: dim('v_dim_factor'), cap, bias },
    ...{ eps: c.number('norm_eps', 1e-6), guard: c.number('eps', 1e-6) },
  };
}
function features(c: Config): Features {
  const hidden = either(c, 'hidden_size', 'embedding_dim');
  const layers = either(c, 'num_hidden_layers', 'num_blocks');
  const bias = c.flag('use_bias', false);
  const mixer = memory(c, hidden, bias);
  const norm = { kind: 'rms', eps: c.number('norm_eps', 1e-6) } as const;
  const multiple = c.count('ffn_round_up_to_multiple_of', 64, 1);
  const inner = Math.trunc((hidden * c.number('ffn_proj_factor') + multiple - 1) / multiple) * multiple;
  const softcap = c.number('output_logit_soft_cap');
  c.only('weight_mode', 'single');
  // How kernels do it, and in what; the last norm is there whatever is said of it.
  c.ignore('chunkwise_kernel', 'sequence_kernel', 'step_kernel', 'mode', 'chunk_size', 'return_last_states');
  c.ignore('autocast_kernel_dtype', 'inference_state_dtype', 'max_inference_chunksize');
  c.ignore('norm_reduction_force_float32', 'add_out_norm');
  const maxPositions = 2 ** 20; // a memory has no positions
  const s = { hidden, layers, heads: 1, kvHeads: 1, headDim: hidden, maxPositions };
  return build('xlstm', c, s, {
    norm: { ...norm, bias },
    mixer: () => mixer,
    mlp: () => ({ kind: 'dense', inner, gated: true, activation: 'silu' }),
    biases: [...GATES, ...(bias ? PRODUCTS : [])],
    more: { finalNorm: norm, logitSoftcap: softcap },
  });
}

const xlstm = family({
  types: ['xlstm'],
  features,
  names: {
    embed: 'backbone.embeddings',
    finalNorm: 'backbone.out_norm',
    head: 'lm_head',
    layer: 'backbone.blocks.{i}',
    beforeMixer: 'norm_mlstm',
    beforeMlp: 'norm_ffn',
    stateQuery: 'mlstm_layer.q',
    stateKey: 'mlstm_layer.k',
    stateValue: 'mlstm_layer.v',
    stateGate: 'mlstm_layer.ogate_preact',
    stateRate: 'mlstm_layer.igate_preact',
    stateStep: 'mlstm_layer.fgate_preact',
    stateNorm: 'mlstm_layer.multihead_norm',
    stateOut: 'mlstm_layer.out_proj',
    gate: 'ffn.proj_up_gate',
    up: 'ffn.proj_up',
    down: 'ffn.proj_down',
  },
});
export const XLSTM_FAMILIES = [xlstm];
