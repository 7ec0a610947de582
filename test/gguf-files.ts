// GGUF files made from the folders of small models by the names and keys of llama.cpp's converters.
import { join } from 'node:path';
import { ggmlType } from '../src/base/blocks/types.js';
import type { GgufValue } from '../src/io/gguf-value.js';
import { writeGguf } from '../src/io/gguf-write.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { relativeError } from '../src/parity/model-checks.js';
import { noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import { answerOf, familyFolder } from './models-support.js';

export type Rules = readonly (readonly [RegExp, string])[];
/** What nearly all architectures call their tensors. */
const PLAIN: Rules = [
  [/^model\.embed_tokens\.|^transformer\.wte\./, 'token_embd.'],
  [/^model\.norm|^transformer\.norm_f/, 'output_norm'],
  [/^lm_head/, 'output'],
  [/^model\.layers\.|^transformer\.blocks\./, 'blk.'],
  [/(input|attention)_layernorm|norm_attn_norm\.norm_1/, 'attn_norm'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/self_attn\.([qk])_norm/, 'attn_$1_norm'],
  [/mlp\.(gate|up|down)_proj/, 'ffn_$1'],
  [/mlp\.experts\.(gate|up|down)_proj/, 'ffn_$1_exps'],
  [/mlp\.shared_experts\.(gate|up|down)_proj/, 'ffn_$1_shexp'],
  [/mlp\.gate\./, 'ffn_gate_inp.'],
];
export const SECOND_NORM: Rules = [[/(post_attention|feedforward)_layernorm/, 'ffn_norm']];
export interface Case {
  readonly architecture: string;
  readonly rules: Rules;
  /** Keys of the architecture, in the order of the converter's. */
  readonly keys: Readonly<Record<string, number | boolean | string | readonly (number | boolean)[]>>;
  /** Tensors that the converter makes. */
  readonly made?: Readonly<Record<string, readonly number[]>>;
  /** What the converter makes of a tensor's numbers. */
  readonly change?: (name: string, numbers: Float32Array) => Float32Array;
  /** Tensors whose parts stand one below the other, not side by side. */
  readonly joined?: RegExp;
  /** Values that are not tensors in a file. */
  readonly told?: RegExp;
}
export const SIZES = {
  ...{ context_length: 128, embedding_length: 48, 'attention.head_count': 4, 'attention.head_count_kv': 2 },
};
export const slides = (...flags: readonly boolean[]): object => ({ 'attention.sliding_window_pattern': flags });
const bytesOf = (list: readonly number[]): Uint8Array => new Uint8Array(Float32Array.from(list).buffer);
const floats = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);
function valueOf(v: number | boolean | string | readonly (number | boolean)[]): GgufValue {
  if (typeof v === 'string') return { type: 'string', value: v };
  if (typeof v === 'boolean') return { type: 'bool', value: v };
  if (typeof v === 'number') return { type: Number.isInteger(v) && v < 1e5 ? 'u32' : 'f32', value: v };
  if (typeof v[0] === 'boolean') return { type: 'array', of: 'bool', value: v as boolean[] };
  const list = v as readonly number[];
  return list.every(Number.isInteger)
    ? { type: 'array', of: 'i32', value: Int32Array.from(list) }
    : { type: 'array', of: 'f32', value: Float32Array.from(list) };
}
/** The rows of whole heads in pairs of neighbours. */
export function paired(numbers: Float32Array, headDim: number, width: number): Float32Array {
  const out = new Float32Array(numbers.length);
  for (let row = 0; row < numbers.length / width; row++) {
    const [head, i] = [Math.floor(row / headDim) * headDim, row % headDim];
    const to = head + (i < headDim / 2 ? 2 * i : 2 * (i - headDim / 2) + 1);
    out.set(numbers.subarray(row * width, (row + 1) * width), to * width);
  }
  return out;
}
/** The same for queries and keys of heads of twelve numbers. */
export const pairs = (name: string, numbers: Float32Array): Float32Array =>
  /[qk]_proj\.(weight|bias)/.test(name) ? paired(numbers, 12, name.endsWith('bias') ? 1 : 48) : numbers;

/** The file of a folder, as a case describes it. */
export function written(name: string, plain: Case, dir = familyFolder(name)): string {
  const { architecture, rules, keys, made = {}, change, told, joined } = plain;
  const file = SafeTensors.open(dir);
  const tensors = new Map<string, { shape: number[]; parts: Uint8Array[] }>();
  const curves = new Map<string, number[]>();
  const apart = /(experts|projections)\.(\d+)\./;
  const place = (key: string): number =>
    Number(apart.exec(key)?.[2] ?? 0) + Number(/attn\.(k|v)_proj/.test(key)) + Number(/attn\.v_proj/.test(key));
  const whole = (to: string, shape: readonly number[], parts: readonly Uint8Array[]): readonly number[] => {
    const bytes = parts.reduce((n, p) => n + p.length, 0);
    const [, ...rest] = shape;
    if (joined?.test(to)) return [bytes / 4 / rest.reduce((a, b) => a * b, 1), ...rest];
    return parts.length > 1 ? [parts.length, ...shape] : shape;
  };
  for (const key of [...file.names].sort((a, b) => place(a) - place(b))) {
    const { shape } = file.record(key);
    const stored = file.record(key).read().slice();
    const bytes = change ? new Uint8Array(change(key, floats(stored)).buffer) : stored;
    const value = told?.exec(key)?.[1];
    if (value) curves.set(value, [...(curves.get(value) ?? []), floats(bytes)[0]]);
    if (value) continue;
    const to = [...rules, ...PLAIN].reduce((n, [from, by]) => n.replace(from, by), key.replace(apart, '$1.'));
    const known = tensors.get(to);
    tensors.set(to, { shape: [...shape], parts: [...(known?.parts ?? []), bytes] });
  }
  file.close();
  const metadata = new Map<string, GgufValue>([['general.architecture', { type: 'string', value: architecture }]]);
  for (const [key, v] of Object.entries(keys)) metadata.set(`${architecture}.${key}`, valueOf(v));
  for (const [key, list] of curves)
    metadata.set(`xielu.${key}`, { type: 'array', of: 'f32', value: Float32Array.from(list) });
  const path = join(dir, 'model.gguf');
  const stored = [...tensors].map(([to, { shape, parts }]) => ({
    ...{ name: to, type: ggmlType('f32'), shape: whole(to, shape, parts) },
    bytes: parts.length > 1 ? new Uint8Array(Buffer.concat(parts)) : parts[0],
  }));
  const more = Object.entries(made).map(([to, list]) => ({
    ...{ name: to, type: ggmlType('f32'), shape: [list.length], bytes: bytesOf(list) },
  }));
  writeGguf(path, metadata, [...stored, ...more]);
  return path;
}

/** How far a file's logits are from those of transformers. */
export const distanceOf = (name: string, path: string, answer = 'logits'): number =>
  scope(() => {
    const { model } = loadModel<CausalLM>(path, { device: 'cpu', kind: 'decoder' });
    const got = noGrad(() => model.forward(answerOf(name, 'input_ids')));
    const error = relativeError(got, answerOf(name, answer));
    model.dispose();
    return error;
  });
