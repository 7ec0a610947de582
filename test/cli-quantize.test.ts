// `wick quantize`: models that answer nearly the same from fewer bits, the mixtures' types, errors that are what they
// say.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fromBf16Bits, fromF16Bits, toBf16Bits, toF16Bits } from '../src/base/float.js';
import { packageRoot } from '../src/base/paths.js';
import { noGrad, type Tensor, tensor } from '../src/index.js';
import { dequantize, Gguf, ggmlType, type GgufValue, loadTensors, quantize, writeGguf } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { planQuantization } from '../src/models/gguf/quantize-plan.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { loadTokenizer } from '../src/tokenizers/index.js';
import { scratch, wick } from './cli-support.js';

const dir = scratch();
const golden = 'gguf/llama/f32.gguf';
const skip = missingGolden(golden);
const largest = (t: Tensor): number => t.abs().max().item();
const floats = (b: Uint8Array): Float32Array => new Float32Array(b.slice().buffer);

interface Row {
  readonly name: string;
  readonly to: string;
  readonly error?: number;
  readonly note: string;
}
function run(from: string, to: string, ...args: readonly string[]): readonly Row[] {
  const r = wick('quantize', from, to, '--json', ...args);
  assert.equal(r.status, 0, r.stderr);
  return (JSON.parse(r.stdout) as { tensors: Row[] }).tensors;
}

/** A file whose rows are whole blocks of 256, its numbers made by a rule. */
function wide(name: string, layers: number, experts = 0): string {
  const path = join(dir, name);
  let seed = 1;
  const next = (): number => ((seed = (seed * 48271) % 2147483647) / 2147483647 - 0.5) * 0.2;
  const make = (tensor: string, shape: number[]) => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next);
    return { name: tensor, type: ggmlType('F32'), shape, bytes: new Uint8Array(values.buffer) };
  };
  const metadata = new Map<string, GgufValue>([
    ['general.architecture', { type: 'string', value: 'llama' }],
    ['general.file_type', { type: 'u32', value: 0 }],
    ['general.name', { type: 'string', value: 'wide' }],
    ['split.count', { type: 'u16', value: 1 }],
  ]);
  writeGguf(path, metadata, [
    make('token_embd.weight', [8, 256]),
    ...Array.from({ length: layers }, (_, i) => [
      make(`blk.${i}.attn_norm.weight`, [256]),
      make(`blk.${i}.attn_q.weight`, [8, 256]),
      make(`blk.${i}.attn_v.weight`, [4, 256]),
      make(`blk.${i}.ffn_down${experts ? '_exps' : ''}.weight`, experts ? [experts, 4, 512] : [4, 512]),
    ]).flat(),
    make('output_norm.weight', [256]),
    make('output.weight', [8, 256]),
  ]);
  return path;
}

test("f32 to q8_0: the blocks and the logits are those of ggml's file, and the tokenizer is kept", {
  skip: missingGolden('gguf/qwen3/f32.gguf', 'gguf/qwen3/q8_0.gguf'),
}, () => {
  const [from, theirs] = ['f32', 'q8_0'].map((k) => findGolden('gguf', 'qwen3', `${k}.gguf`) as string);
  const to = join(dir, 'q8.gguf');
  const rows = run(from, to, '--type', 'q8_0');
  const [plain, want] = ['f32', 'q8_0'].map((k) =>
    loadTensors(findGolden('gguf', 'qwen3', `golden-${k}.safetensors`) as string),
  );
  const logits = noGrad(() => loadModel<CausalLM>(to).model.forward(plain.get('input_ids') as Tensor));
  const off = (w: Tensor): number => largest(logits.sub(w)) / largest(w);
  assert.ok(off(want.get('logits') as Tensor) < 1e-5);
  const lost = off(plain.get('logits') as Tensor);
  assert.ok(lost > 1e-4 && lost < 0.03, `${lost}`);
  const [before, after, ggml] = [from, to, theirs].map((path) => Gguf.open(path));
  assert.equal(after.get('general.file_type'), 7);
  assert.deepEqual(after.get('tokenizer.ggml.tokens'), before.get('tokenizer.ggml.tokens'));
  assert.deepEqual(
    rows.map((r) => r.name),
    before.names,
  );
  for (const { name, to: type, error } of rows) {
    assert.equal(after.info(name).type.name, type);
    assert.deepEqual(after.raw(name), ggml.raw(name), name);
    if (before.info(name).shape.length === 1) {
      assert.deepEqual([type, error], ['F32', undefined], name);
      continue;
    }
    const [x, y] = [floats(before.raw(name)), dequantize(after.info(name).type, after.raw(name))];
    const sum = (f: (i: number) => number): number => x.reduce((s, _, i) => s + f(i), 0);
    const is = Math.sqrt(sum((i) => (x[i] - y[i]) ** 2) / sum((i) => x[i] ** 2));
    assert.equal(type, 'Q8_0');
    assert.ok(Math.abs((error as number) - is) < 1e-9, `${name}: ${error} and ${is}`);
  }
});

test('a folder: the built-in model as q8_0 with its tokenizer and its chat template', () => {
  const [from, to] = [join(packageRoot, 'models/builtin'), join(dir, 'builtin.gguf')];
  const { status, stdout, stderr } = wick('quantize', from, to, '--type', 'q8_0');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^blk\.3\.ffn_down\.weight +BF16 +Q8_0 +\[256, 704\] +\d+ +0\.00\d+/m);
  assert.match(stdout, /^blk\.0\.attn_norm\.weight +F32 +F32 /m);
  assert.match(stderr, /^encoding \d+ values$/m);
  const [own, file] = [loadTokenizer(from), loadTokenizer(to)];
  for (const text of ['Once upon a time', 'KING RICHARD II:\nStay 1,000!', 'é 你好 🙂'])
    assert.deepEqual(file.encode(text), own.encode(text), text);
  const chat = [{ role: 'user', content: 'Good morrow' }];
  assert.equal(file.chatTemplates?.render(chat), own.chatTemplates?.render(chat));
  const ids = tensor([own.encode('Once upon a time, there was a king')], { dtype: 'i32' });
  const [want, got] = [from, to].map((path) => noGrad(() => loadModel<CausalLM>(path).model.forward(ids)));
  assert.ok(largest(got.sub(want)) < 0.03 * largest(want));
});

test('q4_k_m of narrow rows: types that fit, said in the table; the model still runs', { skip }, () => {
  const from = findGolden(golden) as string;
  const to = join(dir, 'narrow.gguf');
  const { status, stdout, stderr } = wick('quantize', from, to, '--type', 'Q4_K_M');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^output\.weight +F32 +Q8_0 .* rows of 64 are not whole blocks of Q6_K$/m);
  assert.match(stdout, /^blk\.0\.attn_q\.weight +F32 +Q5_0 .* 0\.04\d+ +rows of 64 are not whole blocks of Q4_K$/m);
  assert.match(stdout, /^blk\.0\.attn_norm\.weight +F32 +F32 .* one dimension: as it is$/m);
  assert.match(stdout, /became .* bits a weight$/m);
  assert.match(stderr, /^encoding 112960 values$/m);
  const ids = loadTensors(findGolden('gguf/llama/golden-f32.safetensors') as string).get('input_ids') as Tensor;
  const logits = noGrad(() => loadModel<CausalLM>(to).model.forward(ids));
  assert.ok(Number.isFinite(largest(logits)));
});

test('q4_k_m: more bits for values and ffn_down where errors cost most, Q6_K for the output', () => {
  const to = join(dir, 'mix.gguf');
  const rows = run(wide('wide.gguf', 8), to, '--type', 'q4_k_m', '--threads', '2');
  const type = Object.fromEntries(rows.map((r) => [r.name, r.to]));
  assert.deepEqual([type['token_embd.weight'], type['output.weight']], ['Q4_K', 'Q6_K']);
  for (const part of ['attn_v', 'ffn_down'])
    assert.deepEqual(
      [0, 1, 2, 3, 4, 5, 6, 7].filter((i) => type[`blk.${i}.${part}.weight`] === 'Q6_K'),
      [0, 3, 6, 7],
    );
  assert.ok(rows.filter((r) => r.name.includes('attn_q')).every((r) => r.to === 'Q4_K' && r.note === ''));
  // The bytes are the encoder's, in the file's order, whichever thread made them.
  const [before, after] = [Gguf.open(join(dir, 'wide.gguf')), Gguf.open(to)];
  assert.deepEqual([after.get('general.file_type'), after.get('general.name')], [15, 'wide']);
  assert.equal(after.get('split.count'), undefined);
  for (const { name, to: wanted } of rows.filter((r) => r.error !== undefined)) {
    const rowLength = before.info(name).shape.at(-1) as number;
    assert.deepEqual(after.raw(name), quantize(ggmlType(wanted), floats(before.raw(name)), { rowLength }), name);
  }
});

test('the mixture of a model of 32 layers, tied or not, is that of Q4_K_M', () => {
  const info = (name: string, shape: number[]) => ({ name, shape, type: ggmlType('F16'), start: 0, bytes: 0 });
  const layers = Array.from({ length: 32 }, (_, i) => info(`blk.${i}.attn_v.weight`, [1024, 4096]));
  const plan = (type: string, ...more: ReturnType<typeof info>[]) =>
    planQuantization([...layers, ...more], new Map([['general.architecture', 'llama']]), type).tensors;
  const six = plan('q4_k_m').flatMap((t, i) => (t.type.name === 'Q6_K' ? [i] : []));
  assert.deepEqual(six, [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]);
  const embed = info('token_embd.weight', [32000, 4096]);
  assert.equal(plan('q5_k_m', embed).at(-1)?.type.name, 'Q6_K');
  assert.equal(plan('q5_k_m', info('output.weight', [32000, 4096]), embed).at(-1)?.type.name, 'Q5_K');
  assert.ok(plan('q4_k', embed).every((t) => t.type.name === 'Q4_K'));
  const q3 = info('blk.0.attn_q.weight', [64, 64]);
  assert.deepEqual([plan('q3_k_m', q3).at(-1)?.type.name, plan('q6_k', q3).at(-1)?.type.name], ['Q4_0', 'Q8_0']);
  assert.equal(plan('q4_k', info('blk.0.attn_q.weight', [64, 40])).at(-1)?.type.name, 'F16');
  assert.equal(plan('q4_k_m', info('blk.0.ffn_gate_inp.weight', [8, 4096])).at(-1)?.type.name, 'F16');
});

test('floats of 16 bits, from and to', () => {
  const from = wide('floats.gguf', 1);
  const name = 'output.weight';
  const x = Gguf.open(from).dequantize(name).read();
  for (const [type, bits, of] of [
    ['f16', toF16Bits, fromF16Bits],
    ['bf16', toBf16Bits, fromBf16Bits],
  ] as const) {
    const [half, eight] = [join(dir, `${type}.gguf`), join(dir, `${type}-q8_0.gguf`)];
    run(from, half, '--type', type);
    const want = Uint16Array.from(floats(x), bits);
    assert.deepEqual(Gguf.open(half).raw(name), new Uint8Array(want.buffer));
    run(half, eight, '--type', 'q8_0');
    assert.deepEqual(Gguf.open(eight).raw(name), quantize(ggmlType('Q8_0'), Float32Array.from(want, of)));
  }
});

test('an importance matrix, as GGUF and as .dat, weighs each matrix of a tensor by its own', () => {
  const from = wide('experts.gguf', 1, 2);
  const name = 'blk.0.ffn_down_exps.weight';
  const sums = Float32Array.from({ length: 1024 }, (_, i) => 4 * (1 + (i % 7)) + (i >= 512 ? 40 : 0));
  const counts = Float32Array.of(4, 0); // the second expert was never asked
  const f32 = (n: string, shape: number[], x: Float32Array) => ({
    ...{ name: n, type: ggmlType('F32'), shape },
    bytes: new Uint8Array(x.buffer),
  });
  const imatrix = join(dir, 'imatrix.gguf');
  writeGguf(imatrix, new Map(), [f32(`${name}.in_sum2`, [2, 512], sums), f32(`${name}.counts`, [2, 1], counts)]);
  const dat = join(dir, 'imatrix.dat');
  const i32 = (n: number): Buffer => Buffer.from(Int32Array.of(n).buffer);
  const body = [i32(1), i32(name.length), Buffer.from(name), i32(2), i32(1024), Buffer.from(sums.buffer)];
  writeFileSync(dat, Buffer.concat(body));
  const x = floats(Gguf.open(from).raw(name));
  const want = (importance: (expert: number) => Float32Array): Buffer =>
    Buffer.concat(
      [0, 1].map((e) =>
        quantize(ggmlType('Q4_K'), x.slice(e * 2048, (e + 1) * 2048), { rowLength: 512, importance: importance(e) }),
      ),
    );
  const cases = [
    [imatrix, (e: number) => (e ? new Float32Array(512).fill(1) : sums.slice(0, 512).map((v) => v / 4))],
    [dat, (e: number) => sums.slice(e * 512, (e + 1) * 512).map((v) => v / 2)],
  ] as const;
  for (const [file, importance] of cases) {
    const to = join(dir, 'weighed.gguf');
    const rows = run(from, to, '--type', 'q4_k', '--imatrix', file);
    const made = Buffer.from(Gguf.open(to).raw(name));
    assert.ok(made.equals(want(importance)), file);
    assert.ok(!made.equals(Buffer.from(quantize(ggmlType('Q4_K'), x, { rowLength: 512 }))));
    assert.equal(rows.find((r) => r.name === name)?.note, '');
    assert.equal(rows.find((r) => r.name === 'output.weight')?.note, 'no importance');
    assert.equal(Gguf.open(to).get('quantize.imatrix.entries_count'), 1);
  }
});

test('bad input is one sentence, and leaves no file', () => {
  const from = wide('good.gguf', 1);
  const holes = join(dir, 'holes.gguf');
  const nan = Float32Array.from({ length: 512 }, (_, i) => (i === 300 ? NaN : 1));
  const type = ggmlType('F32');
  writeGguf(holes, new Map(), [{ name: 'a.weight', type, shape: [2, 256], bytes: new Uint8Array(nan.buffer) }]);
  const blocks = join(dir, 'blocks.gguf');
  run(from, blocks, '--type', 'q4_0');
  const other = join(dir, 'other.dat');
  writeFileSync(other, Buffer.from([1, 0, 0, 0, 1, 0, 0, 0, 120, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]));
  const out = join(dir, 'never.gguf');
  const cases: [string[], RegExp][] = [
    [[from, out], /give --type, one of/],
    [[from], /two files are needed, 1 given/],
    [[from, out, '--type', 'q9_k'], /"q9_k" is not one of/],
    [[from, out, '--type', 'q8_1'], /"q8_1" is not one of/],
    [[from, from, '--type', 'q8_0'], /is the model that is read/],
    [[holes, out, '--type', 'q8_0'], /a\.weight: element 300 is NaN/],
    [[blocks, out, '--type', 'q8_0'], /quantized already \(Q4_0\)/],
    [[from, out, '--type', 'q8_0', '--threads', '0'], /--threads "0"/],
    [[from, out, '--type', 'q4_k', '--imatrix', other], /made for another model/],
    [[from, out, '--type', 'q4_k', '--imatrix', holes], /holds no importance matrix/],
    [[join(packageRoot, 'models'), out, '--type', 'q8_0'], /config\.json is not there/],
    [[join(packageRoot, 'package.json'), out, '--type', 'q8_0'], /is neither a folder nor a \.gguf file/],
    [[from, join(dir, 'out.bin'), '--type', 'q8_0'], /out\.bin is to be a \.gguf file/],
    [[join(dir, 'absent.gguf'), out, '--type', 'q8_0'], /is not there/],
  ];
  for (const [args, message] of cases) {
    const { status, stdout, stderr } = wick('quantize', ...args);
    assert.deepEqual([status, stdout], [1, ''], args.join(' '));
    assert.match(stderr, message);
    assert.match(stderr, /^(encoding \d+ values\n)?wick quantize: [^\n]+\n$/);
  }
  assert.ok(!existsSync(out) && !readdirSync(dir).some((f) => f.endsWith('.part')));
  assert.equal(
    run(blocks, out, '--type', 'q8_0', '--allow-requantize').find((r) => r.name === 'output.weight')?.to,
    'Q8_0',
  );
});
