// What families with Mamba layers share: names of their tensors, sizes of their states.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Attention, Mamba2 } from '../decoder/features.js';
import type { Role } from '../decoder/roles.js';
import type { Names } from '../decoder/weights.js';
import { activationOf, type Sizes } from './common.js';

export const MAMBA_NAMES = (at: string): Partial<Names> => ({
  stateIn: `${at}.in_proj`,
  stateConv: `${at}.conv1d`,
  stateDecay: { name: `${at}.A_log`, bare: true },
  stateShift: { name: `${at}.dt_bias`, bare: true },
  stateSkip: { name: `${at}.D`, bare: true },
  stateNorm: `${at}.norm`,
  stateOut: `${at}.out_proj`,
});
/** The first Mamba's. */
export const MAMBA1_NAMES = (at: string): Partial<Names> => ({
  ...MAMBA_NAMES(at),
  stateParts: `${at}.x_proj`,
  stateSteps: `${at}.dt_proj`,
  stateStepNorm: `${at}.dt_layernorm`,
  stateKeyNorm: `${at}.b_layernorm`,
  stateQueryNorm: `${at}.c_layernorm`,
});
/** A model of nothing else. */
export const BACKBONE: Names = {
  embed: ['backbone.embeddings', 'backbone.embedding'],
  finalNorm: 'backbone.norm_f',
  head: 'lm_head',
  layer: 'backbone.layers.{i}',
  beforeMixer: 'norm',
};
export const FEED_FORWARD: Partial<Names> = {
  finalNorm: 'model.final_layernorm',
  beforeMlp: 'pre_ff_layernorm',
  gate: 'feed_forward.gate_proj',
  up: 'feed_forward.up_proj',
  down: 'feed_forward.down_proj',
};
export const STATE_BIAS: readonly Role[] = ['stateIn', 'stateOut'];

/** What steps are held within; files write infinity in several ways. */
export function limitsOf(c: Config): Pick<Mamba2, 'limits'> {
  const given = c.get('time_step_limit');
  if (given === undefined) return {};
  const bound = (x: unknown): number => {
    if (typeof x === 'number') return x;
    if (/infinity|inf/i.test(JSON.stringify(x))) return Infinity;
    throw new FormatError(`${c.where}: time_step_limit is ${JSON.stringify(given)}, not two numbers`);
  };
  if (!Array.isArray(given) || given.length !== 2)
    throw new FormatError(`${c.where}: time_step_limit is ${JSON.stringify(given)}, not two numbers`);
  const [least, most] = given.map(bound);
  return least === 0 && most === Infinity ? {} : { limits: [least, most] };
}
/** How weights began, and what only kernels ask for. */
export const noEffect = (c: Config): void =>
  c.ignore(
    ...['time_step_min', 'time_step_max', 'time_step_floor', 'time_step_scale', 'time_step_init_scheme'],
    ...['rescale_prenorm_residual', 'residual_in_fp32', 'use_mamba_kernels', 'use_mambapy', 'use_associative_scan'],
    ...['mamba_chunk_size', 'chunk_size', 'num_logits_to_keep', 'z_loss_coefficient', 'use_falcon_mambapy'],
    ...['mamba_ssm_cache_dtype', 'mamba_dt_min', 'mamba_dt_max', 'mamba_dt_init_floor'],
  );

/** Mamba 2 under the names that hybrids give its sizes; `inner` is the width of its values. */
export function hybridMamba(c: Config, eps: number, inner: number): Mamba2 {
  noEffect(c);
  const heads = c.count('mamba_n_heads', 128, 1);
  const given = c.get('mamba_d_head');
  const headDim = given === undefined || given === 'auto' ? inner / heads : (given as number);
  if (headDim * heads !== inner)
    throw new FormatError(`${c.where}: ${heads} state heads of ${headDim} are not ${inner} wide, as mamba_expand says`);
  return {
    kind: 'mamba2',
    heads,
    headDim,
    stateDim: c.count('mamba_d_state', 256, 1),
    groups: c.count('mamba_n_groups', 1, 1),
    width: c.count('mamba_d_conv', 4, 1),
    eps,
    activation: activationOf(c),
    ...limitsOf(c),
  };
}
export const attentionOf = ({ heads, kvHeads, headDim }: Sizes, more: Partial<Attention> = {}): Attention => ({
  kind: 'attention',
  heads,
  kvHeads,
  headDim,
  scale: 1 / Math.sqrt(headDim),
  ...more,
});
export const NO_MLP = { beforeMixer: true, afterMixer: false, beforeMlp: false, afterMlp: false } as const;
