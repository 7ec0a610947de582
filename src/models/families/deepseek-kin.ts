// A.X K2 and Hunyuan 4: latent attention whose answers a gate opens, with an indexer whose choice is all keys in texts
// that are served.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Experts, Features, Layer, Mlp } from '../decoder/features.js';
import {
  biasesBy,
  build,
  eitherKind,
  expertNames,
  gated,
  LLAMA_NAMES,
  rms,
  sharedNames,
  sparseLayers,
} from './common.js';
import { biasedExperts, LATENT_BIAS, LATENT_NAMES, latent, latentSizes } from './deepseek.js';
import { family } from './row.js';

/** As many keys as an indexer would leave; its own sizes have no effect on them. */
function chosen(c: Config): number {
  c.ignore('index_head_dim', 'index_n_heads', 'indexer_types', 'layer_types', 'num_nextn_predict_layers');
  return c.count('index_topk', 2048, 1);
}
/** Whether a layer is a mixture; dense ones come first where nobody lists them. */
function mixed(c: Config, layers: number): (i: number) => boolean {
  const [dense, every] = [c.count('first_k_dense_replace', 1), c.count('moe_layer_freq', 1, 1)];
  c.ignore('scoring_func', 'topk_method');
  eitherKind(c);
  return sparseLayers(c, layers, (i) => i >= dense && i % every === 0);
}
const INDEXER = /\.self_attn\.indexer\.|^model\.mtp/;

function axk2(c: Config): Features {
  const [mostKeys, sizes] = [chosen(c), latentSizes(c)];
  const s = { ...sizes, maxPositions: Math.min(sizes.maxPositions, mostKeys) };
  const sparse = mixed(c, s.layers);
  const [rank, norm] = [c.count('gated_norm_rank', 16, 1), rms(c)];
  c.count('q_lora_rank', undefined, 1);
  const mixer = { ...latent(c, true), gated: 'by queries' } as const;
  const mixture = (): Experts => {
    const made = biasedExperts(c);
    // Experts of other groups are as good as such as nothing speaks for.
    return made.groups ? { ...made, groups: { ...made.groups, closed: 0 } } : made;
  };
  return build('axk2', c, s, {
    norm,
    mixer: () => mixer,
    mlp: (i) => (sparse(i) ? mixture() : gated(c)),
    layer: (i): Partial<Layer> => ({
      normGates: { rank, of: sparse(i) ? ['beforeMixer', 'beforeMlp'] : ['beforeMixer'] },
    }),
    biases: biasesBy(c, { attention_bias: LATENT_BIAS }),
    more: { mostKeys },
  });
}
const open = (role: 'beforeMixer' | 'beforeMlp', name: string) => ({
  [role]: [`${name}.norm`, name],
  [`${role}In`]: [`${name}.W_down`, `${name}.mlp.fc1`],
  [`${role}Out`]: [`${name}.W_up`, `${name}.mlp.fc2`],
});
const axk2Family = family({
  types: ['axk2'],
  features: axk2,
  names: {
    ...LATENT_NAMES,
    ...open('beforeMixer', 'input_layernorm'),
    ...open('beforeMlp', 'post_attention_layernorm'),
    qB: ['self_attn.q_b_proj', 'self_attn.q_gate_proj'],
  },
  ignored: () => INDEXER,
});

function hunyuan4(c: Config): Features {
  const [mostKeys, sizes] = [chosen(c), latentSizes(c)];
  const s = { ...sizes, maxPositions: Math.min(sizes.maxPositions, mostKeys) };
  const sparse = mixed(c, s.layers);
  const limit = c.number('swiglu_limit');
  if (limit <= 0) throw new UnsupportedError(`${c.where}: swiglu_limit is ${limit}; gates without a bound`);
  c.ignore('learnable_sink_init');
  if (!c.has('q_lora_rank')) throw new FormatError(`${c.where}: q_lora_rank is missing`);
  const mixer = { ...latent(c, false), gated: 'by input', sinks: true } as const;
  // Of the experts, only the one that all tokens go through has the activation that a config names.
  const mixture = (): Experts => {
    const { shared, activation, ...made } = biasedExperts(c);
    const own = activation === 'silu' ? shared : shared && { ...shared, activation };
    return { ...made, activation: 'silu', limit, ...(own && { shared: own }) };
  };
  const mlp = (i: number): Mlp => (sparse(i) ? mixture() : gated(c));
  return build('hy_v4', c, s, {
    norm: rms(c),
    mixer: () => mixer,
    mlp,
    biases: biasesBy(c, { attention_bias: LATENT_BIAS }),
    more: {
      mostKeys,
      hyper: {
        ...{ count: c.count('hc_mult', undefined, 1), rounds: 0, eps: c.number('hc_eps') },
        unmixed: { most: c.number('hc_magnitude') },
      },
    },
  });
}
const bare = (name: string): { readonly name: string; readonly bare: true } => ({ name, bare: true });
const mix = (branch: 'mixer' | 'mlp', stored: string, named: string) => ({
  [`${branch}Mix`]: [bare(`hc_pre.${stored}.hc_fn`), bare(`${named}.fn`)],
  [`${branch}MixBase`]: [bare(`hc_pre.${stored}.hc_base`), bare(`${named}.base`)],
  [`${branch}MixScale`]: [bare(`hc_pre.${stored}.hc_scale`), bare(`${named}.scale`)],
});
const head = (part: string) => [bare(`model.hc_pre.hc_head.hc_head_${part}`), bare(`model.hc_head.hc_${part}`)];
const hunyuan4Family = family({
  types: ['hy_v4'],
  features: hunyuan4,
  names: {
    ...LATENT_NAMES,
    ...expertNames('mlp'),
    ...sharedNames('mlp.shared_experts'),
    sharedGate: ['mlp.shared_experts.linear_gate', 'mlp.shared_experts.gate_proj'],
    gate: ['mlp.linear_gate', LLAMA_NAMES.gate as string],
    ...mix('mixer', 'hc_attn_layer', 'attn_hc'),
    ...mix('mlp', 'hc_mlp_layer', 'ffn_hc'),
    hyperMix: head('fn'),
    hyperBase: head('base'),
    hyperScale: head('scale'),
    qGate: ['self_attn.linear_gate', 'self_attn.gate_proj'],
    sinks: [bare('self_attn.learnable_sink_param'), bare('self_attn.sinks')],
  },
  ignored: () => INDEXER,
});
export const DEEPSEEK_KIN = [axk2Family, hunyuan4Family];
