// Which type each tensor of a GGUF model gets: one type for all matrices, or the mixtures known as Q4_K_M and the like.
import { canDequantize } from '../../base/blocks/decode.js';
import { ENCODED } from '../../base/blocks/encode.js';
import { ggmlType, type GgmlType } from '../../base/blocks/types.js';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import type { Shape } from '../../base/shape.js';
import type { GgufTensorInfo } from '../../io/gguf.js';

/** What the rules of a mixture go by. */
interface Place {
  /** The tensor's layer among those that have such a tensor, and how many have. */
  readonly layer: number;
  readonly layers: number;
  /** Query heads to a head of keys. */
  readonly shared: number;
}
type Rule = string | ((p: Place) => string | undefined);
interface Mix {
  readonly base: string;
  /** general.file_type: llama.cpp's number for "mostly of this type"; none where it has none. */
  readonly fileType?: number;
  /** The output product, which is the embedding where there is no other. */
  readonly output?: string;
  /** By the part that a tensor plays; others get the base type. */
  readonly rules?: Readonly<Record<string, Rule | undefined>>;
}

/** Layers in which errors cost most, the first and last eighth, and every third between them. */
const sensitive = ({ layer, layers }: Place): boolean => {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
};
const where =
  (holds: (p: Place) => boolean, type: string, otherwise?: string): Rule =>
  (p) =>
    holds(p) ? type : otherwise;
const firstOf = (parts: number) => (p: Place) => p.layer < Math.floor(p.layers / parts);

const output = 'Q6_K';
const MIXES: Readonly<Record<string, Mix>> = {
  q3_k_s: { base: 'Q3_K', fileType: 11, output, rules: {} },
  q3_k_m: {
    ...{ base: 'Q3_K', fileType: 12, output },
    rules: {
      attn_v: where((p) => p.layer < 2, 'Q5_K', 'Q4_K'),
      ffn_down: where(firstOf(16), 'Q5_K', 'Q4_K'),
      attn_output: 'Q4_K',
      attn_qkv: 'Q4_K',
    },
  },
  q3_k_l: {
    ...{ base: 'Q3_K', fileType: 13, output },
    rules: { attn_v: 'Q5_K', ffn_down: 'Q5_K', attn_output: 'Q5_K', attn_qkv: 'Q4_K' },
  },
  q4_k_s: {
    ...{ base: 'Q4_K', fileType: 14, output },
    rules: { attn_v: where((p) => p.layer < 4, 'Q5_K'), ffn_down: where(firstOf(8), 'Q5_K') },
  },
  q4_k_m: {
    ...{ base: 'Q4_K', fileType: 15, output },
    rules: { attn_v: where(sensitive, 'Q6_K'), ffn_down: where(sensitive, 'Q6_K'), attn_qkv: 'Q5_K' },
  },
  q5_k_s: { base: 'Q5_K', fileType: 16, output, rules: {} },
  q5_k_m: {
    ...{ base: 'Q5_K', fileType: 17, output },
    rules: { attn_v: where(sensitive, 'Q6_K'), ffn_down: where(sensitive, 'Q6_K'), attn_qkv: 'Q6_K' },
  },
};
const FILE_TYPES: Readonly<Record<string, number>> = {
  ...{ F32: 0, F16: 1, Q4_0: 2, Q4_1: 3, Q8_0: 7, Q5_0: 8, Q5_1: 9, Q2_K: 10, Q3_K: 11, Q4_K: 14, Q5_K: 16, Q6_K: 18 },
  ...{ IQ4_NL: 25, IQ4_XS: 30, BF16: 32 },
};
/** Made for activations on their way through a product, not for files. */
const NOT_STORED = ['Q8_1', 'Q8_K'];
const PURE: readonly string[] = ['F32', 'F16', 'BF16', ...ENCODED.filter((t) => !NOT_STORED.includes(t))];

/** What `--type` may say. */
export const QUANTIZE_TYPES: readonly string[] = [...Object.keys(MIXES), ...PURE.map((t) => t.toLowerCase())];

function mixOf(name: string): Mix {
  const lower = name.toLowerCase();
  if (Object.hasOwn(MIXES, lower)) return MIXES[lower];
  const base = PURE.find((t) => t.toLowerCase() === lower);
  if (base) return { base, fileType: FILE_TYPES[base] };
  throw new ArgumentError(
    `quantize: the type ${JSON.stringify(name)} is not one of those that are written: ${QUANTIZE_TYPES.join(', ')}`,
  );
}

/** Matrices that cost little and lose much, or that are read one number at a time. */
const KEPT =
  /_norm\.weight$|ffn_gate_inp|position_embd|token_types|ssm_conv1d|shortconv\.conv|time_mix_|attn_rel_b|altup|laurel|per_layer_model_proj|indexer\.[kq]_proj|tid2eid|patch_embd|rel_pos/;
/** Whether a tensor stays in floats whatever type is asked for. */
export const isKept = (name: string, shape: Shape): boolean =>
  shape.length < 2 || !name.endsWith('.weight') || KEPT.test(name);
/** Types of blocks of 32 for rows that are not whole blocks of 256, or of 64. */
const FALLBACK: Readonly<Record<string, string | undefined>> = {
  ...{ Q2_K: 'Q4_0', Q3_K: 'Q4_0', IQ4_XS: 'IQ4_NL', Q4_K: 'Q5_0', Q5_K: 'Q5_1', Q6_K: 'Q8_0', NVFP4: 'MXFP4' },
};

export interface PlannedTensor {
  readonly info: GgufTensorInfo;
  readonly type: GgmlType;
  /** Why it is not of the type that was asked for; empty where there is nothing to say. */
  readonly note: string;
}
export interface Plan {
  readonly tensors: readonly PlannedTensor[];
  readonly fileType: number | undefined;
}

/** Metadata of the architecture by the last part of its key; of several values, one a layer, the largest. */
function count(metadata: ReadonlyMap<string, unknown>, key: string): number {
  const value = metadata.get(`${String(metadata.get('general.architecture'))}.${key}`);
  return ArrayBuffer.isView(value) ? Math.max(0, ...Array.from(value as Int32Array)) : Number(value ?? 0);
}

function partOf(name: string): string | undefined {
  const part = /^blk\.\d+\.(\w+?)(?:_exps|_shexp)?\.weight$/.exec(name)?.[1];
  return part === 'attn_kv_b' ? 'attn_v' : part; // latent attention makes its values with it
}
const layerOf = (name: string): number => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);

function wanted(name: string, mix: Mix, tied: boolean, experts: number, place: (part: string) => Place): string {
  if (mix.output && (name === 'output.weight' || (tied && name === 'token_embd.weight'))) return mix.output;
  const part = partOf(name);
  if (!mix.rules || !part) return mix.base;
  // Beside eight experts, attention is a small part of the bytes.
  if (experts === 8 && (part === 'attn_v' || part === 'attn_k')) return 'Q8_0';
  if (experts === 8 && part === 'attn_output' && mix.base !== 'Q5_K') return 'Q5_K';
  const rule = mix.rules[part];
  const chosen = (typeof rule === 'function' ? rule(place(part)) : rule) ?? mix.base;
  // Models of some 70 billion parameters share values among eight heads: more bits there cost next to nothing.
  const { layers, shared } = place(part);
  if (part === 'attn_v' && layers === 80 && shared >= 8 && /^Q[34]_K$/.test(chosen)) return 'Q5_K';
  return chosen;
}

/** The type that whole rows allow. */
function fitting(name: string, row: number): { type: GgmlType; note: string } {
  const asked = ggmlType(name);
  if (row % asked.block === 0) return { type: asked, note: '' };
  const next = FALLBACK[name];
  const type = next && row % ggmlType(next).block === 0 ? ggmlType(next) : ggmlType('F16');
  return { type, note: `rows of ${row} are not whole blocks of ${asked.name}` };
}

/** Types for all tensors of a model, in the order given. */
export function planQuantization(
  infos: readonly GgufTensorInfo[],
  metadata: ReadonlyMap<string, unknown>,
  type: string,
): Plan {
  const mix = mixOf(type);
  const tied = !infos.some((i) => i.name === 'output.weight');
  const experts = count(metadata, 'expert_count');
  const shared = count(metadata, 'attention.head_count') / (count(metadata, 'attention.head_count_kv') || 1);
  const layersWith = new Map<string, number[]>();
  for (const { name } of infos) {
    const part = partOf(name);
    if (part)
      layersWith.set(
        part,
        [...(layersWith.get(part) ?? []), layerOf(name)].sort((a, b) => a - b),
      );
  }
  const tensors = infos.map((info): PlannedTensor => {
    const { name, shape } = info;
    if (shape.length < 2) return { info, type: info.type, note: 'one dimension: as it is' };
    if (isKept(name, shape)) return { info, type: info.type, note: 'not a product: as it is' };
    if (info.type.plain ? !/^B?F(16|32)$/.test(info.type.name) : !canDequantize(info.type))
      throw new UnsupportedError(`quantize: ${name} is stored as ${info.type.name}, which is not decoded`);
    const place = (part: string): Place => {
      const layers = [...new Set(layersWith.get(part))];
      return { layer: layers.indexOf(layerOf(name)), layers: layers.length, shared };
    };
    return { info, ...fitting(wanted(name, mix, tied, experts, place), shape.at(-1) ?? 1) };
  });
  return { tensors, fileType: mix.fileType };
}
