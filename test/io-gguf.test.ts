// GGUF: versions, strict bounds, round trips; block types decoded and encoded as ggml and Candle do.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { ArgumentError, DTypeError, FormatError, ShapeError, UnsupportedError } from '../src/base/errors.js';
import { toF16Bits } from '../src/base/float.js';
import { canDequantize, dequantize } from '../src/base/blocks/decode.js';
import { GGML_TYPES, ggmlType } from '../src/base/blocks/types.js';
import { Gguf } from '../src/io/gguf.js';
import { GGUF_TYPES, type GgufValue } from '../src/io/gguf-value.js';
import { ggufBytes, GgufWriter } from '../src/io/gguf-write.js';
import { canQuantize, ENCODED, quantize } from '../src/base/blocks/encode.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { missingGolden } from '../src/parity/golden.js';
import { randomizer } from '../src/testing/values.js';
import { broken, golden, heldBytes, scratch, survives } from './io-support.js';

const floats = (b: Uint8Array): Float32Array => new Float32Array(b.slice().buffer);
const u32 = (...v: number[]): Buffer => Buffer.from(Uint32Array.from(v).buffer);
const u64 = (...v: (number | bigint)[]): Buffer => Buffer.from(BigUint64Array.from(v.map(BigInt)).buffer);
const text = (s: string): Buffer => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)]);
const MAGIC = Buffer.from('GGUF');
const file = (...parts: Buffer[]): Uint8Array => new Uint8Array(Buffer.concat([MAGIC, u32(3), ...parts]));
/** One tensor "t" and 1024 bytes of data. */
const tensorFile = (dims: (number | bigint)[], type: number, offset: number | bigint, name = 't'): Uint8Array =>
  file(u64(1, 0), text(name), u32(dims.length), u64(...dims), u32(type), u64(offset), Buffer.alloc(1024));

const scalar: fc.Arbitrary<GgufValue> = fc.oneof(
  fc.integer({ min: 0, max: 255 }).map((value): GgufValue => ({ type: 'u8', value })),
  fc.integer({ min: -32768, max: 32767 }).map((value): GgufValue => ({ type: 'i16', value })),
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map((value): GgufValue => ({ type: 'u32', value })),
  fc.integer().map((value): GgufValue => ({ type: 'i32', value })),
  fc.bigInt({ min: 2n ** 60n, max: 2n ** 64n - 1n }).map((value): GgufValue => ({ type: 'u64', value })),
  fc.integer().map((value): GgufValue => ({ type: 'i64', value })),
  fc.float({ noNaN: true }).map((value): GgufValue => ({ type: 'f32', value })),
  fc.double({ noNaN: true }).map((value): GgufValue => ({ type: 'f64', value })),
  fc.boolean().map((value): GgufValue => ({ type: 'bool', value })),
  fc.string({ unit: 'grapheme' }).map((value): GgufValue => ({ type: 'string', value })),
);
const array: fc.Arbitrary<GgufValue> = fc.oneof(
  fc.array(fc.string({ unit: 'grapheme' })).map((value): GgufValue => ({ type: 'array', of: 'string', value })),
  fc
    .float32Array({ noNaN: true })
    .map((value): GgufValue => ({ type: 'array', of: 'f32', value: Float32Array.from(value) })),
  fc.array(fc.boolean()).map((value): GgufValue => ({ type: 'array', of: 'bool', value })),
  fc
    .array(
      fc.int32Array().map((value): GgufValue => ({ type: 'array', of: 'i32', value: Int32Array.from(value) })),
      { maxLength: 3 },
    )
    .map((value): GgufValue => ({ type: 'array', of: 'array', value })),
);

test('metadata and tensors are read back as written', () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.string({ minLength: 1 }), fc.oneof(scalar, array)),
      fc.integer({ min: 0, max: 3 }),
      (entries, rows) => {
        const metadata = new Map(Object.entries(entries).filter(([key]) => key !== 'general.alignment'));
        const bytes = Uint8Array.from({ length: rows * 34 }, (_, i) => i);
        const read = Gguf.open(
          ggufBytes(metadata, [
            { name: 'q', type: ggmlType('q8_0'), shape: [rows, 32], bytes },
            { name: 'f', type: ggmlType('f16'), shape: [3], bytes: new Uint8Array([1, 2, 3, 4, 5, 6]) },
          ]),
        );
        assert.deepEqual(read.metadata, metadata);
        assert.deepEqual(read.names, ['q', 'f']);
        assert.deepEqual(read.info('q').shape, [rows, 32]);
        assert.deepEqual(read.raw('q'), bytes);
        assert.deepEqual(
          [read.record('f').dtype, read.record('f').read()],
          ['f16', new Uint8Array([1, 2, 3, 4, 5, 6])],
        );
      },
    ),
    { numRuns: 200 },
  );
});

test('version 1 has 32-bit counts and lengths', () => {
  const name = Buffer.from('t');
  const v1 = Buffer.concat([
    MAGIC,
    u32(1),
    u32(1, 1),
    u32(3),
    Buffer.from('key'),
    u32(GGUF_TYPES.indexOf('u32'), 7),
    u32(1),
    name,
    u32(1, 2, 0),
    u64(0),
  ]);
  const padded = Buffer.concat([
    v1,
    Buffer.alloc(32 - (v1.length % 32)),
    Buffer.from(Float32Array.from([1, 2]).buffer),
  ]);
  const read = Gguf.open(new Uint8Array(padded));
  assert.deepEqual([read.version, read.get('key'), [...floats(read.record('t').read())]], [1, 7, [1, 2]]);
});

const nest = (depth: number): Buffer =>
  depth === 0 ? Buffer.concat([u32(0), u64(0)]) : Buffer.concat([u32(9), u64(1), nest(depth - 1)]);
const BAD: [name: string, bytes: Uint8Array, message: RegExp][] = [
  ['another magic', new Uint8Array(64), /at byte 0: magic: must be "GGUF"/],
  ['version 4', new Uint8Array(Buffer.concat([MAGIC, u32(4), Buffer.alloc(64)])), /at byte 4: version 4 is not known/],
  [
    'big-endian files',
    new Uint8Array(Buffer.concat([MAGIC, Buffer.from([0, 0, 0, 3]), Buffer.alloc(64)])),
    /big-endian files are not read/,
  ],
  [
    'a tensor count beyond the file',
    file(u64(2n ** 62n, 0)),
    /number of tensors is 4611686018427387904, the rest of the file has room for 0/,
  ],
  [
    'a metadata count beyond the file',
    file(u64(0, 2n ** 40n), Buffer.alloc(90)),
    /number of metadata entries is 1099511627776, the rest of the file has room for 10/,
  ],
  [
    'a key longer than the file',
    file(u64(0, 1), u64(2n ** 63n), Buffer.alloc(9)),
    /length of key 0 is 9223372036854775808/,
  ],
  ['an unknown value type', file(u64(0, 1), text('k'), u32(13), Buffer.alloc(8)), /metadata "k": type 13 is not known/],
  [
    'an array longer than the file',
    file(u64(0, 1), text('k'), u32(9, 4), u64(2n ** 61n)),
    /length of k is 2305843009213693952/,
  ],
  ['arrays nested without end', file(u64(0, 1), text('k'), u32(9), nest(5)), /nested deeper than 4/],
  ['a bool of 2', file(u64(0, 1), text('k'), u32(7), Buffer.from([2])), /a bool is 0 or 1, not 2/],
  [
    'a key twice',
    file(u64(0, 2), text('k'), u32(0), Buffer.from([1]), text('k'), u32(0), Buffer.from([1])),
    /key "k" is there twice/,
  ],
  [
    'an odd alignment',
    file(u64(0, 1), text('general.alignment'), u32(4, 24)),
    /general.alignment 24 is not a power of two/,
  ],
  ['an alignment of 0', file(u64(0, 1), text('general.alignment'), u32(4, 0)), /general.alignment 0/],
  [
    'an alignment of another type',
    file(u64(0, 1), text('general.alignment'), u32(10), u64(32)),
    /at byte 24: general.alignment must be a u32, here it is of type u64/,
  ],
  ['an empty key', file(u64(0, 1), text(''), u32(4, 1)), /at byte 24: key 0 has 0 bytes, the format allows 1 to 65535/],
  [
    'a name of 64 bytes',
    tensorFile([4], 0, 0, 'n'.repeat(64)),
    /at byte 24: tensor name has 64 bytes, the format allows 0 to 63/,
  ],
  [
    'a key that is no UTF-8',
    file(u64(0, 1), u64(2), Buffer.from([0x61, 0xff]), u32(4, 1)),
    /at byte 32: key 0: is no UTF-8/,
  ],
  [
    'a text that is no UTF-8',
    file(u64(0, 1), text('k'), u32(8), u64(1), Buffer.from([0x80])),
    /metadata "k": is no UTF-8/,
  ],
  [
    'an array of texts that are no UTF-8',
    file(u64(0, 1), text('k'), u32(9, 8), u64(1), u64(2), Buffer.from([0xc3, 0x28])),
    /metadata "k": is no UTF-8/,
  ],
  [
    'a tensor name that is no UTF-8',
    file(u64(1, 0), u64(1), Buffer.from([0xff]), u32(1), u64(4), u32(0), u64(0), Buffer.alloc(64)),
    /at byte 32: tensor name: is no UTF-8/,
  ],
  ['an unknown tensor type', tensorFile([4], 99, 0), /tensor "t": type 99 is not known/],
  ['a rank of 5', tensorFile([1, 1, 1, 1, 1], 0, 0), /rank 5 is beyond 4/],
  [
    'rows that are not whole blocks',
    tensorFile([33], 2, 0),
    /rows of 33 elements are not whole blocks of Q4_0, which have 32/,
  ],
  ['dimensions that overflow', tensorFile([2n ** 40n, 2n ** 40n], 0, 0), /more elements than a 64-bit/],
  ['dimensions that overflow beside a 0', tensorFile([2n ** 40n, 2n ** 40n, 0], 0, 0), /more elements than a 64-bit/],
  ['more bytes than the file has', tensorFile([2n ** 40n], 0, 0), /takes \d+ bytes, more than the file has/],
  ['a dimension beyond 2^53', tensorFile([2n ** 63n], 0, 0), /dimension is 9223372036854775808/],
  ['an offset beyond the file', tensorFile([4], 0, 4096), /leave the file/],
  ['an offset that is not aligned', tensorFile([4], 0, 8), /offset 8 is not a multiple of 32/],
  [
    'overlapping tensors',
    file(
      u64(2, 0),
      text('a'),
      u32(1),
      u64(64),
      u32(0),
      u64(0),
      text('b'),
      u32(1),
      u64(4),
      u32(0),
      u64(32),
      Buffer.alloc(1024),
    ),
    /tensor "b" overlaps another/,
  ],
  [
    'a tensor name twice',
    file(
      u64(2, 0),
      text('a'),
      u32(1),
      u64(1),
      u32(0),
      u64(0),
      text('a'),
      u32(1),
      u64(1),
      u32(0),
      u64(32),
      Buffer.alloc(1024),
    ),
    /"a": is there twice/,
  ],
];
for (const [name, bytes, message] of BAD) {
  test(`refuses ${name}`, () => {
    const held = heldBytes(() =>
      assert.throws(
        () => Gguf.open(bytes),
        (e: Error) => e instanceof FormatError && message.test(e.message),
      ),
    );
    assert.ok(held < 1 << 20);
  });
}

test('damaged files give a result or a typed error', () => {
  const good = ggufBytes(
    new Map<string, GgufValue>([
      ['general.name', { type: 'string', value: 'm' }],
      ['tokens', { type: 'array', of: 'string', value: ['a', 'bc'] }],
      ['n', { type: 'u32', value: 3 }],
    ]),
    [
      { name: 'w', type: ggmlType('Q4_K'), shape: [1, 256], bytes: new Uint8Array(144) },
      { name: 'b', type: ggmlType('F32'), shape: [4], bytes: new Uint8Array(16) },
    ],
  );
  const readAll = (bytes: Uint8Array) =>
    survives(() => {
      const g = Gguf.open(bytes);
      for (const name of g.names) g.dequantize(name, { widen: true }).read();
    });
  assert.equal(readAll(good), true);
  fc.assert(
    fc.property(broken(good), (bytes) => void readAll(bytes)),
    { numRuns: 2000 },
  );
});

test('quantized tensors are not plain records, and ranges of the decoded are ranges of the whole', () => {
  const x = Float32Array.from({ length: 96 }, (_, i) => Math.sin(i));
  const g = Gguf.open(
    ggufBytes(new Map(), [{ name: 'w', type: ggmlType('Q5_1'), shape: [3, 32], bytes: quantize(ggmlType('Q5_1'), x) }]),
  );
  assert.throws(
    () => g.record('w'),
    (e: Error) => e instanceof DTypeError && /is quantized as Q5_1/.test(e.message),
  );
  const record = g.dequantize('w');
  const all = record.read();
  assert.equal(all.length, 384);
  for (const [a, b] of [
    [0, 4],
    [100, 300],
    [127, 129],
    [384, 384],
  ])
    assert.deepEqual(record.read(a, b), all.slice(a, b));
  assert.throws(() => g.raw('w', 0, 1000), ArgumentError);
});

test('types that are only named are refused with the list of those decoded', () => {
  assert.throws(
    () => dequantize(ggmlType('IQ2_XXS'), new Uint8Array(66)),
    (e: Error) => e instanceof UnsupportedError && /IQ2_XXS is not decoded/.test(e.message),
  );
  assert.throws(() => quantize(ggmlType('IQ3_S'), new Float32Array(256)), UnsupportedError);
  assert.throws(() => quantize(ggmlType('Q4_0'), new Float32Array(31)), ShapeError);
  assert.throws(() => dequantize(ggmlType('Q4_0'), new Uint8Array(17)), FormatError);
  assert.throws(() => ggmlType('Q9_9'), FormatError);
});

test('each simple encoder loses at most its step', () => {
  const steps: Record<string, number> = { Q4_0: 1 / 8, Q4_1: 1 / 15, Q5_0: 1 / 16, Q5_1: 1 / 31, Q8_0: 1 / 127 };
  const names = Object.keys(steps);
  fc.assert(
    fc.property(
      fc.float32Array({ minLength: 32, maxLength: 32, min: -8, max: 8, noNaN: true }),
      fc.constantFrom(...names),
      (x, name) => {
        const type = ggmlType(name);
        const y = dequantize(type, quantize(type, x));
        const spread = Math.max(...x) - Math.min(...x);
        const reach = name.endsWith('_1') ? spread : Math.max(...x.map(Math.abs));
        // Scale and minimum are kept in f16, hence the share of the largest magnitude.
        const bound = steps[name] * reach + Math.max(...x.map(Math.abs)) * 2 ** -9 + 2 ** -18;
        for (let i = 0; i < 32; i++)
          assert.ok(Math.abs(x[i] - y[i]) <= bound, `${name}: ${x[i]} became ${y[i]}, bound ${bound}`);
      },
    ),
  );
});

test('dequantize: blocks made by hand for the types without golden cases', () => {
  // IQ4_XS: d = 1; scale 0 is 33 (low 1, high 2), all others 32, so that only the first 32 elements count.
  const xs = new Uint8Array(136);
  xs.set([0x00, 0x3c, 0xaa, 0xaa, 0x01, 0, 0, 0, 0xf0, 0x08]);
  const y = dequantize(ggmlType('IQ4_XS'), xs);
  assert.deepEqual([y[0], y[16], y[1], y[17], y[2]], [-127, 113, 1, -127, -127]);
  assert.ok(y.subarray(32).every((v) => v === 0));
  // Q8_1: d = 2, a sum that decoding does not need, then 32 signed bytes.
  const q = new Uint8Array(36);
  q.set([0x00, 0x40, 0xff, 0xff, 1, 0x80]);
  assert.deepEqual([...dequantize(ggmlType('Q8_1'), q).subarray(0, 3)], [2, -256, 0]);
});

test('dequantize: bit for bit what Candle gives on CUDA, f32 and f16', {
  skip: missingGolden('candle-cuda.json'),
}, () => {
  interface Case {
    op: string;
    dtype: string;
    params: { quant: string };
    inputs: { blocks: string };
    outputs: { y: string };
  }
  using st = SafeTensors.open(golden('candle-cuda.safetensors'));
  const { cases } = JSON.parse(readFileSync(golden('candle-cuda.json'), 'utf8')) as { cases: Case[] };
  const mine = cases.filter((c) => c.op === 'dequantize');
  assert.equal(mine.length, 22);
  for (const c of mine) {
    const y = dequantize(ggmlType(c.params.quant), st.read(c.inputs.blocks));
    const got = c.dtype === 'f32' ? new Uint8Array(y.buffer) : new Uint8Array(Uint16Array.from(y, toF16Bits).buffer);
    assert.deepEqual(Buffer.from(got), Buffer.from(st.read(c.outputs.y)), `${c.params.quant} ${c.dtype}`);
  }
});

/** The importance that the golden blocks marked `im` were made with: a small generator's numbers from seed 2. */
function importanceOf(n: number): Float32Array {
  let state = 2;
  return Float32Array.from({ length: n }, () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1) >>> 0;
    t = (t ^ (t + Math.imul(t ^ (t >>> 7), t | 61))) >>> 0;
    const unit = Math.fround(((t ^ (t >>> 14)) >>> 0) / 4294967295);
    return Math.fround(Math.abs(Math.fround(unit * 2 - 1)) + Math.fround(1e-3));
  });
}

test('quantize: byte for byte what ggml gives, with and without an importance matrix', {
  skip: missingGolden('quants'),
}, () => {
  const inputs = readdirSync(golden('quants')).filter((f) => f.endsWith('_input.bin'));
  assert.equal(inputs.length, 22);
  for (const name of inputs) {
    const [, typeName, length, kind] = /^(.*)_(\d+)_(im|noim)_/.exec(name)!;
    const x = floats(new Uint8Array(readFileSync(golden('quants', name))));
    const want = readFileSync(golden('quants', name.replace('input', 'expected')));
    const rowLength = Number(length);
    const importance = kind === 'im' ? importanceOf(rowLength) : undefined;
    const got = quantize(ggmlType(typeName), x, { rowLength, importance });
    assert.deepEqual(Buffer.from(got), want, name);
  }
});

test('quantize: every encoded type decodes to values near its input', () => {
  // Root mean square of the error over that of the values, some above what ggml's own encoders reach on such numbers.
  const far: Record<string, number> = {
    Q4_0: 0.1,
    Q4_1: 0.09,
    Q5_0: 0.05,
    Q5_1: 0.045,
    Q8_0: 0.006,
    Q8_1: 0.006,
    Q2_K: 0.32,
    Q3_K: 0.18,
    Q4_K: 0.085,
    Q5_K: 0.045,
    Q6_K: 0.022,
    Q8_K: 0.01,
    IQ4_NL: 0.085,
    IQ4_XS: 0.085,
    MXFP4: 0.13,
    NVFP4: 0.11,
  };
  const random = randomizer(5);
  const x = Float32Array.from({ length: 4096 }, () => random() + random() + random() - 1.5);
  for (const name of ENCODED) {
    const y = dequantize(ggmlType(name), quantize(ggmlType(name), x, { rowLength: 512 }));
    const rms = (f: (i: number) => number): number => Math.sqrt(x.reduce((s, _, i) => s + f(i) ** 2, 0) / x.length);
    const error = rms((i) => x[i] - y[i]) / rms((i) => x[i]);
    assert.ok(error < far[name] && error > far[name] / 4, `${name}: ${error}`);
  }
});

test('quantize refuses values and importances it cannot weigh', () => {
  const q4 = ggmlType('Q4_K');
  const x = new Float32Array(256);
  x[7] = Infinity;
  assert.throws(
    () => quantize(q4, x),
    (e) => e instanceof ArgumentError && /element 7 is Infinity/.test(e.message),
  );
  x[7] = 0;
  const few = new Float32Array(255);
  assert.throws(
    () => quantize(q4, x, { importance: few }),
    (e) => e instanceof ShapeError && /255/.test(e.message),
  );
  const bad = new Float32Array(256).fill(-1);
  assert.throws(() => quantize(q4, x, { importance: bad }), ArgumentError);
});

test('4-bit floats decode as their formats say', () => {
  // A scale of 2^1, then 0.5 and -6 in the first byte: the elements 0 and 16.
  const mx = dequantize(ggmlType('MXFP4'), Uint8Array.of(128, 0xf1, ...new Uint8Array(15)));
  assert.deepEqual([mx[0], mx[16], mx[1]], [1, -12, 0]);
  // Scales 1, 448, 2^-9 and the NaN that counts as 0; the byte's elements lie 8 apart.
  const nv = new Uint8Array(36);
  nv.set([0x38, 0x7e, 0x01, 0x7f]);
  for (let s = 0; s < 4; s++) nv[4 + s * 8] = 0x72;
  const y = dequantize(ggmlType('NVFP4'), nv);
  assert.deepEqual([y[0], y[8], y[16], y[24], y[32], y[40], y[48]], [1, 6, 448, 2688, 2 ** -9, 6 * 2 ** -9, 0]);
});

test('a real model: what llama.cpp quantized is what we quantize, tensor by tensor', {
  skip: missingGolden('stories260K'),
}, () => {
  using plain = Gguf.open(golden('stories260K', 'gguf', 'stories260K.gguf'));
  assert.deepEqual(
    [plain.version, plain.names.length, plain.get('general.architecture'), plain.get('llama.block_count')],
    [3, 48, 'llama', 5],
  );
  assert.equal((plain.get('tokenizer.ggml.tokens') as string[]).length, 512);
  let compared = 0;
  for (const kind of ['Q4_0', 'Q5_1', 'Q8_0', 'F16']) {
    using packed = Gguf.open(golden('stories260K', 'gguf', `stories260K-${kind}.gguf`));
    for (const name of packed.names) {
      const { type, shape } = packed.info(name);
      assert.deepEqual(shape, plain.info(name).shape);
      const x = floats(plain.record(name).read());
      const want = canQuantize(type)
        ? quantize(type, x)
        : type.name === 'F16'
          ? new Uint8Array(Uint16Array.from(x, toF16Bits).buffer)
          : new Uint8Array(x.buffer);
      assert.deepEqual(Buffer.from(packed.raw(name)), Buffer.from(want), `${kind} ${name} ${type.name}`);
      compared++;
    }
  }
  assert.equal(compared, 192);
});

test('vocabularies without tensors', { skip: missingGolden('vocab') }, () => {
  for (const [name, tokens] of [
    ['gpt-2', 50257],
    ['llama-spm', 32000],
    ['bert-bge', 30522],
  ] as const) {
    using g = Gguf.open(golden('vocab', `ggml-vocab-${name}.gguf`));
    assert.equal(g.names.length, 0);
    assert.equal((g.get('tokenizer.ggml.tokens') as string[]).length, tokens);
  }
  assert.ok(GGML_TYPES.filter(canDequantize).length >= 14);
});

test('a writer in pieces steps over tensors without elements, and wants every byte of the others', () => {
  const path = join(scratch(), 'pieces.gguf');
  const entry = (name: string, n: number) => ({ name, type: ggmlType('F32'), shape: [n] });
  const entries = [entry('a', 0), entry('b', 2), entry('c', 0), entry('d', 1), entry('e', 0)];
  const writer = new GgufWriter(path, new Map(), entries);
  const bytes = (...v: number[]) => new Uint8Array(Float32Array.from(v).buffer);
  writer.write(bytes(1));
  writer.write(bytes(2));
  writer.write(bytes(3));
  writer.settle();
  const file = Gguf.open(path);
  const read = (name: string): number[] => [...new Float32Array(file.record(name).read().slice().buffer)];
  assert.deepEqual(['a', 'b', 'c', 'd', 'e'].map(read), [[], [1, 2], [], [3], []]);
  file.close();
  const short = new GgufWriter(path, new Map(), entries);
  short.write(bytes(1, 2));
  assert.throws(() => short.settle(), /2 tensors have not all of their bytes/);
});
