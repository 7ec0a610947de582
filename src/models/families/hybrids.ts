// Decoders whose layers remember a matrix that is written to by the delta rule: Qwen3-Next and Qwen3.5 have such layers
// between gated attention.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Config } from '../config.js';
import type { DeltaNet, Features, Mixer } from '../features.js';
import type { Names, Place, Rows } from '../weights.js';
import { ATTENTION_BIAS, activationOf, biasesBy, build, gated, layerTypes, rms, ropeOf, sizesOf } from './common.js';
import { QWEN_MOE_NAMES, qwenExperts, qwenMlp } from './qwen.js';
import { family } from './row.js';

// ---- Qwen ----

const deltaNet = (c: Config): DeltaNet => ({
  kind: 'delta',
  keyHeads: c.count('linear_num_key_heads', undefined, 1),
  valueHeads: c.count('linear_num_value_heads', undefined, 1),
  keyDim: c.count('linear_key_head_dim', undefined, 1),
  valueDim: c.count('linear_value_head_dim', undefined, 1),
  width: c.count('linear_conv_kernel_dim', 4, 1),
  eps: c.number('rms_norm_eps', 1e-6),
  activation: activationOf(c),
});
function qwenNext(c: Config): Features {
  const type = c.json.model_type as string;
  const mixed = type !== 'qwen3_5_text';
  const biases = biasesBy(c, { attention_bias: [...ATTENTION_BIAS, 'qGate'] });
  const s = sizesOf(c);
  const norm = { ...rms(c), plusOne: true };
  const rope = ropeOf(c, s, { partial: 0.25 });
  // Positions of text alone are the same in every section.
  (c.inner('rope_parameters') ?? c.inner('rope_scaling'))?.ignore('mrope_section', 'mrope_interleaved');
  const period = c.count('full_attention_interval', 4, 1);
  c.ignore('mtp_num_hidden_layers', 'mtp_use_dedicated_embeddings', 'mamba_ssm_dtype', 'attn_output_gate');
  const types = layerTypes(c, s.layers, (i) => ((i + 1) % period ? 'linear_attention' : 'full_attention'));
  const delta = deltaNet(c);
  if (delta.valueHeads % delta.keyHeads !== 0)
    throw new FormatError(`${c.where}: ${delta.valueHeads} value heads do not divide into ${delta.keyHeads} key heads`);
  const shared = mixed ? { inner: c.count('shared_expert_intermediate_size', 512), gated: true } : undefined;
  const mlp = mixed ? qwenMlp(c, () => qwenExperts(c, shared, type === 'qwen3_5_moe_text')) : () => gated(c);
  return build(type, c, s, {
    norm,
    mixer: (i): Mixer => {
      if (types[i] === 'linear_attention') return delta;
      if (types[i] !== 'full_attention')
        throw new UnsupportedError(`${c.where}: layer_types holds ${JSON.stringify(types[i])}`);
      const { heads, kvHeads, headDim } = s;
      const scale = 1 / Math.sqrt(headDim);
      return { kind: 'attention', heads, kvHeads, headDim, scale, rope, qkNorm: { norm, over: 'head' }, gated: true };
    },
    mlp,
    biases,
  });
}
/** The query product holds a head's queries and its gate side by side. */
const besideGate =
  (at: 0 | 1): Rows =>
  (t, s) => {
    const rest = t.shape.slice(1);
    const byHead = t.reshape([s.heads, 2, s.headDim, ...rest]);
    return byHead.narrow(1, at, 1).reshape([s.heads * s.headDim, ...rest]);
  };
/** Rows of a product that is laid out by key head: `parts` rows of each, of which these are taken, one after the other. */
const byKeyHead =
  (heads: number, parts: readonly number[], ...taken: readonly number[]): Rows =>
  (t) => {
    const all = parts.reduce((a, b) => a + b, 0);
    const grouped = t.reshape([heads, all, t.shape[1]]);
    const rows = taken.map((i) => {
      const from = parts.slice(0, i).reduce((a, b) => a + b, 0);
      return grouped.narrow(1, from, parts[i]).reshape([heads * parts[i], t.shape[1]]);
    });
    return rows.length === 1 ? rows[0] : rows[0].cat(rows.slice(1), 0);
  };
const QWEN_NAMES: Names = {
  ...QWEN_MOE_NAMES,
  q: { name: 'self_attn.q_proj', rows: besideGate(0) },
  qGate: { name: 'self_attn.q_proj', rows: besideGate(1) },
  stateIn: 'linear_attn.in_proj_qkv',
  stateGate: 'linear_attn.in_proj_z',
  stateRate: 'linear_attn.in_proj_b',
  stateStep: 'linear_attn.in_proj_a',
  stateConv: 'linear_attn.conv1d',
  stateDecay: { name: 'linear_attn.A_log', bare: true },
  stateShift: { name: 'linear_attn.dt_bias', bare: true },
  stateNorm: 'linear_attn.norm',
  stateOut: 'linear_attn.out_proj',
};
/** Qwen3-Next keeps these products by key head. */
function fusedNames(c: Config): Names {
  const { keyHeads, valueHeads, keyDim, valueDim } = deltaNet(c);
  const each = valueHeads / keyHeads;
  const wide = [keyDim, keyDim, each * valueDim, each * valueDim];
  const qkvz = 'linear_attn.in_proj_qkvz';
  return {
    ...QWEN_NAMES,
    stateIn: { name: qkvz, rows: byKeyHead(keyHeads, wide, 0, 1, 2) },
    stateGate: { name: qkvz, rows: byKeyHead(keyHeads, wide, 3) },
    ...ratesAndSteps('linear_attn.in_proj_ba', keyHeads, each),
  };
}
const ratesAndSteps = (name: string, keyHeads: number, each: number): Partial<Names> => ({
  stateRate: { name, rows: byKeyHead(keyHeads, [each, each], 0) },
  stateStep: { name, rows: byKeyHead(keyHeads, [each, each], 1) },
});
function ratesBeside({ layers }: Pick<Features, 'layers'>): Partial<Names> {
  const delta = layers.map((l) => l.mixer).find((m): m is DeltaNet => m.kind === 'delta');
  const { keyHeads = 1, valueHeads = 1 } = delta ?? {};
  return ratesAndSteps('ssm_ba', keyHeads, valueHeads / keyHeads);
}
/** Both forms of files: Qwen3-Next's rates and steps are still by key head, Qwen3.5's stand apart. */
function fileNames(f: Features): Partial<Names> {
  const fused = ratesBeside(f);
  return {
    beforeMlp: 'post_attention_norm',
    q: { name: 'attn_q', rows: besideGate(0) },
    qGate: { name: 'attn_q', rows: besideGate(1) },
    stateIn: 'attn_qkv',
    stateGate: 'attn_gate',
    stateRate: ['ssm_beta', fused.stateRate as Place],
    stateStep: ['ssm_alpha', fused.stateStep as Place],
  };
}
const QWEN_FILE = { oneAdded: true, names: fileNames, tiled: ['qwen35', 'qwen35moe'] };
const MTP = (): RegExp => /^mtp\./;
const next = family({
  types: ['qwen3_next'],
  features: qwenNext,
  names: fusedNames,
  ignored: MTP,
  gguf: { ...QWEN_FILE, architectures: ['qwen3next'], written: (_, f) => ratesBeside(f) },
});
const wrapped = (type: string): NonNullable<Parameters<typeof family>[0]['wrappers']> => ({
  types: [type],
  prefixes: ['model.language_model.', 'language_model.model.'],
  ignored: /(^|\.)visual\.|^mtp\./,
});
const qwen35 = family({
  types: ['qwen3_5_text'],
  features: qwenNext,
  names: QWEN_NAMES,
  ignored: MTP,
  wrappers: wrapped('qwen3_5'),
  gguf: { ...QWEN_FILE, architectures: ['qwen35'] },
});
const qwen35Moe = family({
  types: ['qwen3_5_moe_text'],
  features: qwenNext,
  names: QWEN_NAMES,
  ignored: MTP,
  wrappers: wrapped('qwen3_5_moe'),
  gguf: { ...QWEN_FILE, architectures: ['qwen35moe'] },
});

export const HYBRID_FAMILIES = [next, qwen35, qwen35Moe];
