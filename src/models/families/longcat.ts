// LongCat Flash: a stored layer is two of attention, and experts that read the first one's branch answer behind the
// second. Some experts compute nothing.
import { FormatError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Experts, Features } from '../decoder/features.js';
import { biasesBy, build, checked, experts, expertNames, gated, LLAMA_NAMES, rms } from './common.js';
import { LATENT_BIAS, LATENT_NAMES, latent } from './deepseek.js';
import { family } from './row.js';

/** Layers as stored ones are counted, each of two; where both numbers are given they must agree. */
function storedLayers(c: Config): number {
  const each = c.optional('num_hidden_layers');
  const stored = c.has('num_layers') || each === undefined ? c.count('num_layers', 28, 1) : Math.floor(each / 2);
  if (each !== undefined && each !== 2 * stored)
    throw new FormatError(`${c.where}: num_layers is ${stored}, num_hidden_layers ${each} and not twice as many`);
  return stored;
}
function features(c: Config): Features {
  const hidden = c.count('hidden_size', undefined, 1);
  const heads = c.count('num_attention_heads', undefined, 1);
  const s = checked(c, {
    ...{ hidden, heads, kvHeads: heads, headDim: 1, layers: 2 * storedLayers(c) },
    maxPositions: c.count('max_position_embeddings', undefined, 1),
  });
  // The rope's speeds are those of heads so wide.
  const [ropeDim, headDim] = [c.count('qk_rope_head_dim', undefined, 1), c.count('head_dim', undefined, 1)];
  if (ropeDim !== headDim) throw new FormatError(`${c.where}: head_dim is ${headDim}, qk_rope_head_dim ${ropeDim}`);
  const width = c.optional('qk_head_dim');
  if (width !== undefined && width !== ropeDim + c.count('qk_nope_head_dim'))
    throw new FormatError(`${c.where}: qk_head_dim is ${width}, not qk_nope_head_dim and qk_rope_head_dim together`);
  const plain = latent(c, true);
  const mixer = {
    ...plain,
    scale: plain.scale * Math.sqrt(hidden / c.count('q_lora_rank', undefined, 1)),
    latentFactor: Math.sqrt(hidden / plain.rank),
  };
  const idle = c.count('zero_expert_num', 0);
  const late = (): Experts =>
    experts(c, {
      count: c.count('n_routed_experts', undefined, 1),
      ...(idle > 0 && { idle: { count: idle, answer: 'input' } as const }),
      chosen: c.count('moe_topk', undefined, 1),
      inner: c.count('expert_ffn_hidden_size', undefined, 1),
      score: 'softmax',
      choiceBias: true,
      weights: 'kept',
      factor: c.number('routed_scaling_factor', 1),
    });
  c.ignore('router_bias'); // stored where it is true, and never added
  c.only('zero_expert_type', 'identity');
  c.only('attention_method', 'MLA');
  for (const name of ['mla_scale_q_lora', 'mla_scale_kv_lora']) c.only(name, true);
  c.only('norm_topk_prob', false);
  return build('longcat_flash', c, s, {
    norm: rms(c),
    mixer: () => mixer,
    mlp: () => gated(c, c.count('ffn_hidden_size', undefined, 1)),
    layer: (i) => (i % 2 === 0 ? { late: late() } : { takesLate: true }),
    biases: biasesBy(c, { attention_bias: LATENT_BIAS }),
  });
}

/** Parts that each half of a stored layer has. */
const half = (name: string): string => name.replace('self_attn.', 'self_attn.{odd}.');
const HALVES = ['qA', 'qANorm', 'qB', 'kvA', 'kvANorm', 'kvB', 'o'] as const;
const longcat = family({
  types: ['longcat_flash'],
  features,
  names: {
    ...LLAMA_NAMES,
    ...expertNames('mlp'),
    layer: 'model.layers.{half}',
    beforeMixer: 'input_layernorm.{odd}',
    beforeMlp: 'post_attention_layernorm.{odd}',
    ...Object.fromEntries(HALVES.map((role) => [role, half(LATENT_NAMES[role] as string)])),
    gate: 'mlps.{odd}.gate_proj',
    up: 'mlps.{odd}.up_proj',
    down: 'mlps.{odd}.down_proj',
    router: 'mlp.router.classifier',
    choiceBias: { name: 'mlp.router.e_score_correction_bias', bare: true },
  },
  // transformers stores gates and ups of experts that compute nothing, too.
  ignored: (c) => {
    const first = c.count('n_routed_experts');
    const idle = Array.from({ length: c.count('zero_expert_num', 0) }, (_, i) => first + i);
    const unused = `\\.mlp\\.(router\\.classifier\\.bias$|experts\\.(${idle.join('|') || 'none'})\\.)`;
    return new RegExp(`^model\\.mtp|${unused}`);
  },
});
export const LONGCAT_FAMILIES = [longcat];
