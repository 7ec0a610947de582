// Features of GGUF files, and the names that llama.cpp's converters give to tensors.
import { UnsupportedError } from '../../base/errors.js';
import { sizeOf } from '../../base/shape.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Config } from '../files/config.js';
import {
  type Attention,
  type Features,
  keepsKeys,
  type Mamba2,
  type Mixer,
  type NormFeature,
} from '../decoder/features.js';
import type { RopeFeature } from '../decoder/rope.js';
import type { Names, Place } from '../decoder/weights.js';
import { fusedQkv, stackedGateUp } from './common.js';
import type { Metadata } from '../gguf/metadata.js';
import { ggufConfig } from '../gguf/config.js';

export interface GgufRow {
  readonly architectures: readonly string[];
  /** Architectures whose converter put the rows of queries and keys into pairs of neighbours. */
  readonly permuted?: readonly string[];
  /** The converter added the one that norms of this family add. */
  readonly oneAdded?: boolean;
  readonly names?: Partial<Names> | ((f: Features) => Partial<Names>);
  /** Which of several architectures a model is written as; without it the one that its type stands for. */
  readonly writtenAs?: (f: Features) => string;
  /** Architectures whose converter put value heads of one key head as far apart as there are key heads. */
  readonly tiled?: readonly string[];
  /** Where `names` leaves a choice and the converter writes another than the first. */
  readonly written?: (architecture: string, features: Features) => Partial<Names>;
  /** A yarn's multiplier over all dimensions is stored, this many times its value. */
  readonly yarnLog?: number;
  /** What rope_freqs.weight says is in the config already. */
  readonly ownDivisors?: boolean;
  /** Tensors that nobody needs. */
  readonly ignored?: RegExp;
  /** The stored factor of the logits divides. */
  readonly logitsDivided?: boolean;
}

const adjustNorm = (n: NormFeature, oneAdded: boolean): NormFeature => (oneAdded ? { ...n, plusOne: false } : n);

/**
 * Features of a GGUF file: those of its config, with what the converter did to the tensors taken into account. Keys
 * that nobody honours are refused unless the caller looks at them.
 */
export function ggufFeatures(
  row: GgufRow,
  features: (c: Config) => Features,
  m: Metadata,
  looksAtUnread = false,
): Features {
  const { source } = m;
  const f = features(new Config(ggufConfig(m), source.path));
  const bothWays = m.get('attention.causal') === false;
  if (bothWays && !f.bothWays && f.layers.some(({ mixer: x }) => x.kind === 'attention' && x.window !== undefined))
    throw new UnsupportedError(
      `${source.path}: ${m.architecture} has windows and looks both ways, which is not served`,
    );
  if (!looksAtUnread) m.refuseUnread();
  const permuted = row.permuted?.includes(m.architecture) ?? false;
  const divided = source.has('rope_freqs.weight') && !row.ownDivisors;
  const divisors = divided ? source.numbers('rope_freqs.weight') : undefined;
  const known = new Map<RopeFeature, RopeFeature>();
  const turned = (r: RopeFeature): RopeFeature => {
    const rows = r.rotated < r.headDim ? { pairedHeads: true } : { interleaved: true };
    const changed = known.get(r) ?? { ...r, ...(permuted && rows), ...(divisors && { divisors }) };
    known.set(r, changed);
    return changed;
  };
  const one = row.oneAdded ?? false;
  const tiled = row.tiled?.includes(m.architecture) ?? false;
  const mixer = <M extends Mixer>(x: M): Mixer => {
    if (x.kind === 'delta') return { ...x, ratesStored: true, ...(tiled && x.keyHeads < x.valueHeads && { tiled }) };
    if (x.kind === 'mamba' || x.kind === 'mamba2' || x.kind === 'channel delta') return { ...x, ratesStored: true };
    if (x.kind === 'beside')
      return { ...x, state: mixer(x.state) as Mamba2, attention: mixer(x.attention) as Attention };
    if (!keepsKeys(x)) return x;
    if (x.kind === 'latent') return x.rope ? { ...x, rope: turned(x.rope) } : x;
    const qkNorm = x.qkNorm && { ...x.qkNorm, norm: adjustNorm(x.qkNorm.norm, one) };
    return { ...x, ...(x.rope && { rope: turned(x.rope) }), ...(qkNorm && { qkNorm }) };
  };
  const layers = f.layers.map((l) => ({ ...l, mixer: mixer(l.mixer) }));
  return { ...f, norm: adjustNorm(f.norm, one), layers, ...(bothWays && { bothWays }) };
}

/** Any architecture may keep queries, keys and values in one tensor, and experts' gates over their ups. */
const QKV = fusedQkv('attn_qkv');
const GATE_UP = stackedGateUp('ffn_gate_up_exps');
const flat = (t: Tensor): Tensor => t.reshape([sizeOf(t.shape)]);
/** llama.cpp's names, the same for all architectures but for what a row says. */
const NAMES: Names = {
  embed: 'token_embd',
  positions: 'position_embd',
  embedNorm: 'token_embd_norm',
  finalNorm: 'output_norm',
  head: 'output',
  layer: 'blk.{i}',
  beforeMixer: 'attn_norm',
  afterMixer: 'post_attention_norm',
  beforeMlp: 'ffn_norm',
  afterMlp: 'post_ffw_norm',
  q: ['attn_q', QKV.q as Place],
  // Latent attention's second halves, per head; keys are stored the other way round.
  k: ['attn_k', { name: 'attn_k_b', transposed: true }, QKV.k as Place],
  v: ['attn_v', 'attn_v_b', QKV.v as Place],
  o: 'attn_output',
  qNorm: 'attn_q_norm',
  kNorm: 'attn_k_norm',
  sinks: 'attn_sinks',
  qA: 'attn_q_a',
  qANorm: 'attn_q_a_norm',
  qB: 'attn_q_b',
  kvA: 'attn_kv_a_mqa',
  kvANorm: 'attn_kv_a_norm',
  kvB: 'attn_kv_b',
  gate: 'ffn_gate',
  up: 'ffn_up',
  down: 'ffn_down',
  router: 'ffn_gate_inp',
  choiceBias: [
    { name: 'exp_probs_b', rows: flat },
    { name: 'exp_probs_b.bias', bare: true, rows: flat },
    { name: 'exp_probs_b', bare: true, rows: flat },
  ],
  expertGate: ['ffn_gate_exps', GATE_UP.gate],
  expertUp: ['ffn_up_exps', GATE_UP.up],
  expertDown: 'ffn_down_exps',
  sharedGate: 'ffn_gate_shexp',
  sharedUp: 'ffn_up_shexp',
  sharedDown: 'ffn_down_shexp',
  convIn: 'shortconv.in_proj',
  conv: { name: 'shortconv.conv', rows: (t) => (t.rank === 2 ? t.unsqueeze(1) : t) },
  convOut: 'shortconv.out_proj',
  sharedSwitch: { name: 'ffn_gate_inp_shexp', rows: (t) => (t.rank === 1 ? t.unsqueeze(0) : t) },
  expertsIn: 'ffn_latent_down',
  expertsOut: 'ffn_latent_up',
  stateIn: 'ssm_in',
  stateConv: { name: 'ssm_conv1d', rows: (t) => (t.rank === 2 ? t.unsqueeze(1) : t) },
  // One number a head is stored as a column.
  stateDecay: { name: 'ssm_a', bare: true, rows: flat },
  stateShift: { name: 'ssm_dt.bias', bare: true },
  stateSkip: { name: 'ssm_d', bare: true, rows: flat },
  stateNorm: { name: 'ssm_norm', rows: flat },
  stateOut: 'ssm_out',
  stateParts: 'ssm_x',
  stateSteps: 'ssm_dt',
  stateStepNorm: 'ssm_dt_norm',
  stateKeyNorm: 'ssm_b_norm',
  stateQueryNorm: 'ssm_c_norm',
};
/** The first Mamba's rates are a matrix. */
export const MATRIX_RATES: Partial<Names> = { stateDecay: { name: 'ssm_a', bare: true } };
export const ggufNames = (row: GgufRow, f?: Features): Names => ({
  ...NAMES,
  ...(typeof row.names === 'function' ? f && row.names(f) : row.names),
});
