// The node tests of the onnx package through a thin adapter (onnx-adapter.ts): numbers of ONNX's reference, tolerances
// of its own. What is not served is named with its reason, and anything else must agree.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import type { DType } from '../src/base/dtype.js';
import { packageRoot } from '../src/base/paths.js';
import { scope, Tensor } from '../src/index.js';
import { type Attribute, HANDLERS, list, NotServed } from './onnx-adapter.js';
import { LEFT } from './onnx-left.js';

interface Stored {
  readonly t: string;
  readonly d: DType;
}
interface Case {
  readonly name: string;
  readonly opset: number;
  readonly rtol: number;
  readonly atol: number;
  readonly nodes: readonly {
    readonly op: string;
    readonly inputs: readonly string[];
    readonly outputs: readonly string[];
    readonly attributes: Readonly<Record<string, unknown>>;
  }[];
  readonly constants: Readonly<Record<string, Stored>>;
  readonly inputs: Readonly<Record<string, Stored>>;
  readonly outputs: Readonly<Record<string, Stored>>;
}
const folder = join(packageRoot, 'test/golden');
const here = existsSync(join(folder, 'onnx.json.br'));
const unpacked = (name: string): Buffer => brotliDecompressSync(readFileSync(join(folder, name)));
const { source, cases } = here
  ? (JSON.parse(unpacked('onnx.json.br').toString()) as { source: string; cases: readonly Case[] })
  : { source: '', cases: [] };
const file = here ? unpacked('onnx.safetensors.br') : Buffer.alloc(8);
const length = Number(file.readBigUInt64LE(0));
const header = (here ? JSON.parse(file.toString('utf8', 8, 8 + length)) : {}) as Record<
  string,
  { readonly shape: number[]; readonly data_offsets: [number, number] }
>;

function tensor({ t, d }: Stored): Tensor {
  const { shape, data_offsets: at } = header[t];
  const bytes = Uint8Array.from(file.subarray(8 + length + at[0], 8 + length + at[1]));
  const flat = Tensor.from(bytes, { dtype: 'u8' });
  if (bytes.length === 0) return Tensor.from(0, { dtype: 'f32' }).cast(d).newFull(shape, 0);
  if (d === 'u8') return flat.reshape(shape);
  return (d === 'bool' ? flat.ne(0) : flat.bitcast(d)).reshape(shape);
}
function attribute(a: unknown): Attribute {
  if (Array.isArray(a)) return a.map((v) => attribute(v)) as Attribute;
  if (typeof a !== 'object' || a === null) return a as Attribute;
  if ('tensor' in a) return tensor(a.tensor as Stored);
  return Number((a as { $number: string }).$number);
}

const whole = new Set<DType>(['bool', 'u8', 'u32', 'i8', 'i16', 'i32', 'i64']);
/** What differs, or undefined. */
function difference(got: Tensor | undefined, stored: Stored, { rtol, atol }: Case): string | undefined {
  if (!got) return 'no such result';
  const want = tensor(stored);
  if (got.dtype !== want.dtype) return `dtype ${got.dtype}, not ${want.dtype}`;
  if (got.shape.join() !== want.shape.join()) return `shape [${got.shape.join()}], not [${want.shape.join()}]`;
  if (want.size === 0) return undefined;
  const [a, b] = [got, want].map((x) => list(x.dtype === 'i64' ? x : x.cast('f64')));
  const coarse = { f16: 2e-3, bf16: 1.6e-2, f8e4m3: 0 }[want.dtype as string] ?? 0;
  // Sums of many terms cancel: a millionth of the largest is as good as 0.
  const largest = b.reduce((m, v) => (Math.abs(v) > m && Number.isFinite(v) ? Math.abs(v) : m), 0);
  const floor = atol + coarse + (whole.has(want.dtype) ? 0 : 1e-6 * largest);
  const at = b.findIndex((v, i) => {
    if (Object.is(v, a[i]) || v === a[i]) return false;
    return !(Math.abs(a[i] - v) <= floor + Math.max(rtol, coarse) * Math.abs(v));
  });
  return at < 0 ? undefined : `element ${at} is ${a[at]}, not ${b[at]}`;
}

function run(c: Case): string | undefined {
  const values = new Map<string, Tensor | undefined>([['', undefined]]);
  for (const [name, stored] of Object.entries({ ...c.constants, ...c.inputs })) values.set(name, tensor(stored));
  for (const { op, inputs, outputs, attributes } of c.nodes) {
    const handler = HANDLERS[op];
    if (!handler) throw new NotServed(`no answer to ${op}`);
    const made = handler({
      op,
      inputs: inputs.map((name) => values.get(name)),
      attributes: Object.fromEntries(Object.entries(attributes).map(([k, v]) => [k, attribute(v)])),
      opset: c.opset,
      results: outputs.length,
    });
    (made instanceof Tensor ? [made] : made).forEach((t, i) => values.set(outputs[i], t));
  }
  for (const [name, stored] of Object.entries(c.outputs)) {
    const wrong = difference(values.get(name), stored, c);
    if (wrong) return `${name}: ${wrong}`;
  }
  return undefined;
}

test('ONNX node tests agree, or stand in the list of what is not served', {
  skip: here ? false : 'no packed node tests',
}, (t) => {
  const wrong: string[] = [];
  const left = new Map<string, number>();
  let passed = 0;
  for (const c of cases) {
    const reason = Object.entries(LEFT).find(([pattern]) => new RegExp(`^(?:${pattern})$`).test(c.name))?.[1];
    let said: string | undefined;
    try {
      said = scope(() => run(c));
    } catch (e) {
      said = `${(e as Error).constructor.name}: ${(e as Error).message}`;
    }
    if (said === undefined && !reason) passed++;
    else if (said === undefined) wrong.push(`${c.name}: passes, though the list says: ${reason}`);
    else if (!reason)
      wrong.push(
        `${c.name} (${c.nodes
          .map((n) => n.op)
          .slice(0, 3)
          .join()}): ${said}`,
      );
    else left.set(reason, (left.get(reason) ?? 0) + 1);
  }
  t.diagnostic(`${source}: ${passed} of ${cases.length} cases with our dtypes pass`);
  for (const [reason, n] of left) t.diagnostic(`${n}: ${reason}`);
  assert.equal(wrong.length, 0, `${wrong.length} differ:\n${wrong.join('\n')}`);
});
