// HRM Text: two stacks of layers with the same weights at every turn, and keys of their own for each.
import type { Config } from '../files/config.js';
import type { Features, NormFeature } from '../decoder/features.js';
import type { Rows } from '../decoder/weights.js';
import { ATTENTION_BIAS, biasesBy, build, gated, LLAMA_NAMES, MLP_BIAS, rms, ropeOf, sizesOf } from './common.js';
import { family } from './row.js';

interface Turns {
  readonly slow: number;
  readonly fast: number;
  readonly layers: number;
}
function turnsOf(c: Config): Turns {
  const [whole, own] = [c.count('num_hidden_layers', undefined, 1), c.optional('num_layers_per_stack')];
  const layers = own === undefined ? whole : c.count('num_layers_per_stack', undefined, 1);
  return { slow: c.count('H_cycles', 2, 1), fast: c.count('L_cycles', 3, 1), layers };
}
/** Of each layer that runs: which stack it is of, and its number there. */
const ran = ({ slow, fast, layers }: Turns): readonly { readonly isSlow: boolean; readonly at: number }[] =>
  Array.from({ length: slow * (fast + 1) }, (_, turn) => turn % (fast + 1) === fast).flatMap((isSlow) =>
    Array.from({ length: layers }, (_, at) => ({ isSlow, at })),
  );

function features(c: Config): Features {
  const turns = turnsOf(c);
  const all = ran(turns);
  c.ignore('num_key_value_heads');
  const sizes = sizesOf(c);
  const s = { ...sizes, kvHeads: sizes.heads, layers: all.length };
  const norm: NormFeature = { ...rms(c), weightless: true };
  const range = c.number('initializer_range', 0.02);
  // Which turns are trained through, and whether a text's beginning is read both ways where somebody marks it.
  c.ignore('L_bp_cycles', 'prefix_lm');
  return build('hrm_text', c, s, {
    norm,
    rope: ropeOf(c, s),
    attention: () => ({ gated: 'sigmoid' }),
    mlp: () => gated(c),
    layer: (i) => {
      const first = all.findIndex((l) => l.isSlow === all[i].isSlow && l.at === all[i].at);
      return first < i ? { weightsOf: first } : {};
    },
    biases: biasesBy(c, { attention_bias: [...ATTENTION_BIAS, 'qGate'], mlp_bias: MLP_BIAS }),
    more: {
      cycles: turns,
      finalNorm: { kind: 'none', eps: norm.eps },
      embedFactor: c.optional('embedding_scale') ?? 1 / range,
    },
  });
}

/** One of `of` parts of a tensor's rows; of biases, which stand apart, all. */
const part =
  (i: number, of: number): Rows =>
  (t) =>
    t.rank === 1 ? t : t.narrow(0, (t.shape[0] / of) * i, t.shape[0] / of);
const attention = (name: string, i: number) => [
  { name: 'attn.gqkv_proj', rows: part(i, 4), bias: `self_attn.${name}.bias` },
  `self_attn.${name}`,
];
const branch = (name: string, i: number) => [
  { name: 'mlp.gate_up_proj', rows: part(i, 2), bias: `mlp.${name}.bias` },
  `mlp.${name}`,
];
const hrm = family({
  types: ['hrm_text'],
  features,
  names: (c) => ({
    ...LLAMA_NAMES,
    layers: ran(turnsOf(c)).map(({ isSlow, at }) => `model.${isSlow ? 'H' : 'L'}_module.layers.${at}`),
    fastBegin: { name: 'model.z_L_init', bare: true },
    qGate: attention('gate_proj', 0),
    q: attention('q_proj', 1),
    k: attention('k_proj', 2),
    v: attention('v_proj', 3),
    o: ['attn.o_proj', 'self_attn.o_proj'],
    gate: branch('gate_proj', 0),
    up: branch('up_proj', 1),
  }),
});
export const HRM_FAMILIES = [hrm];
