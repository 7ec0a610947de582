// The quantized kernels under Candle's names and launches, run by the host simulation: Candle's own numbers, and plain
// sums in double.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dequantize } from '../src/base/blocks/decode.js';
import { ggmlType } from '../src/base/blocks/types.js';
import { DTYPE } from '../src/base/dtype.js';
import type { Unit } from '../src/kernels/source.js';
import { kernelModule, unitOf } from '../src/backends/gpu/modules.js';
import { goldenCases, goldenTensors, skip } from './golden-support.js';
import { SimRunner } from './sim-support.js';

/** Block bytes, values a block, where its scales lie (f16 unless q8_K), tile of mul_mat, expert name. */
const FORMATS = {
  q4_0: { bytes: 18, values: 32, scales: [0], tile: [64, 128] },
  q4_1: { bytes: 20, values: 32, scales: [0, 2], tile: [64, 128] },
  q5_0: { bytes: 22, values: 32, scales: [0], tile: [128, 64] },
  q5_1: { bytes: 24, values: 32, scales: [0, 2], tile: [128, 64] },
  q8_0: { bytes: 34, values: 32, scales: [0], tile: [128, 64], moe: 'q8_0' },
  q2_K: { bytes: 84, values: 256, scales: [80, 82], tile: [64, 128], moe: 'q2k' },
  q3_K: { bytes: 110, values: 256, scales: [108], tile: [128, 128], moe: 'q3k' },
  q4_K: { bytes: 144, values: 256, scales: [0, 2], tile: [64, 128], moe: 'q4k' },
  q5_K: { bytes: 176, values: 256, scales: [0, 2], tile: [64, 128], moe: 'q5k' },
  q6_K: { bytes: 210, values: 256, scales: [208], tile: [64, 64], moe: 'q6k' },
} as const;
type Format = keyof typeof FORMATS;
const formats = Object.keys(FORMATS) as Format[];
const vec = (f: Format): string => `dequantize_mul_mat_vec_${FORMATS[f].values === 32 ? `${f}_cuda` : f.toLowerCase()}`;

test('the module has the 142 symbols of Candle and no other', () => {
  const names = [
    ...[...formats, 'q8_K'].flatMap((f) => [`dequantize_block_${f}_f32`, `dequantize_block_${f}_f16`]),
    ...[...formats, 'f32', 'f16', 'bf16'].map((f) => `get_rows_${f}`),
    ...formats.map(vec),
    ...formats.flatMap((f) => [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `mul_mat_vec_${f}_q8_1_cuda${n}`)),
    'quantize_q8_1',
    ...formats.map((f) => `mul_mat_${f}`),
    ...formats.flatMap((f) => ('moe' in FORMATS[f] ? [`indexed_moe_forward_${FORMATS[f].moe}_q8_1`] : [])),
  ];
  assert.equal(names.length, 142);
  assert.deepEqual([...kernelModule('candle/quantized').entries.keys()].sort(), names.sort());
});

for (const wave of [32, 64] as const)
  test(`dequantized blocks equal those of Candle bit for bit, wave ${wave}`, { skip }, () => {
    const cases = goldenCases.filter((c) => c.op === 'dequantize');
    assert.equal(cases.length, 22);
    const run = new SimRunner(wave);
    const unit = unitOf(
      'candle/quantized',
      cases.map((c) => c.kernel),
    );
    for (const c of cases) {
      const { quant, elements } = c.params;
      const [want, blocks] = [c.outputs.y, c.inputs.blocks].map(
        (name) => new Uint8Array(goldenTensors.get(name)!.raw.buffer),
      );
      const out = run.buffer(want.length);
      const fifth = quant === 'q5_0' || quant === 'q5_1';
      const small = !quant.endsWith('K');
      const count = fifth ? elements : elements / 32;
      run.launch(unit, c.kernel, Math.ceil(elements / (fifth ? 512 : 256)), fifth ? 256 : 32, [
        run.buffer(blocks),
        out,
        ...(small ? [count] : []),
      ]);
      assert.deepEqual(run.read('u8', out, want.length), want, c.kernel);
      run.free();
    }
  });

let seed = 1;
const random = (): number => (seed = (Math.imul(seed, 1103515245) + 12345) >>> 0) / 2 ** 32;

/** Random bytes with scales of f16 between 1/64 and 1/8, either sign. */
function randomBlocks(f: Format, count: number): Uint8Array {
  const { bytes, scales } = FORMATS[f];
  const out = Uint8Array.from({ length: bytes * count }, () => Math.floor(random() * 256));
  const view = new DataView(out.buffer);
  for (let b = 0; b < count; b++)
    for (const s of scales)
      view.setUint16(b * bytes + s, (random() < 0.3 ? 0x8000 : 0) | (0x2400 + Math.floor(random() * 0xc00)), true);
  return out;
}
/**
 * Numbers that q8_1 holds exactly (every 32 have a largest of 127/32 and an even sum within 2048), so that one
 * reference serves all products.
 */
function exactActivations(count: number): Float32Array {
  const out = new Float32Array(count);
  for (let b = 0; b < count; b += 32) {
    for (let i = 0; i < Math.min(32, count - b); i++) out[b + i] = (Math.floor(random() * 127) - 63) / 32;
    out[b] = 127 / 32;
  }
  return out;
}

class Bench {
  readonly run: SimRunner;
  readonly unit: Unit;
  constructor(wave: 32 | 64, unit: Unit) {
    this.run = new SimRunner(wave);
    this.unit = unit;
  }
  dequantize(f: Format, blocks: Uint8Array, values: number): Float32Array {
    const out = this.run.buffer(values * 4);
    const fifth = f === 'q5_0' || f === 'q5_1';
    const count = FORMATS[f].values === 256 ? [] : [fifth ? values : values / 32];
    this.run.launch(this.unit, `dequantize_block_${f}_f32`, Math.ceil(values / (fifth ? 512 : 256)), fifth ? 256 : 32, [
      this.run.buffer(blocks),
      out,
      ...count,
    ]);
    return this.run.read('f32', out, values) as Float32Array;
  }
  quantize(x: Float32Array, k: number, rows: number): { address: number; padded: number } {
    const padded = Math.ceil(k / 512) * 512;
    const address = this.run.buffer((padded / 32) * 36 * rows);
    this.run.launch(this.unit, 'quantize_q8_1', [padded / 256, rows], 256, [this.run.buffer(x), address, k, padded]);
    return { address, padded };
  }
}

function assertRow(
  got: number,
  weights: Float32Array,
  row: number,
  x: Float32Array,
  column: number,
  k: number,
  what: string,
  rounding = 0,
): void {
  let sum = 0;
  let size = 0;
  for (let i = 0; i < k; i++) {
    const term = weights[row * k + i] * x[column * k + i];
    sum += term;
    size += Math.abs(term);
  }
  // Formats with minima add and subtract larger parts than the terms themselves.
  const off = 1e-5 * size + 1e-4 + rounding * Math.abs(sum);
  assert.ok(Math.abs(got - sum) <= off, `${what} row ${row} column ${column}: ${got}, in double ${sum}`);
}

function checkProducts(wave: 32 | 64, f: Format, columns: readonly number[]): void {
  const moe = 'moe' in FORMATS[f] ? `indexed_moe_forward_${FORMATS[f].moe}_q8_1` : undefined;
  const symbols = [
    `dequantize_block_${f}_f32`,
    'quantize_q8_1',
    `get_rows_${f}`,
    vec(f),
    `mul_mat_${f}`,
    ...columns.map((n) => `mul_mat_vec_${f}_q8_1_cuda${n}`),
    ...(moe ? [moe] : []),
  ];
  const bench = new Bench(wave, unitOf('candle/quantized', symbols));
  const { run, unit } = bench;
  const { values, bytes, tile } = FORMATS[f];
  const [k, rows, wide] = [values === 32 ? 96 : 512, 7, 9]; // odd rows: blocks of two rows must not write past the last
  const blocks = randomBlocks(f, (rows * k) / values);
  const weights = bench.dequantize(f, blocks, rows * k);
  const w = run.buffer(blocks);
  const x = exactActivations(k * wide);
  const y = bench.quantize(x, k, wide);
  const guard = (count: number): number => run.buffer(new Float32Array(count + 8).fill(-777));
  const read = (address: number, count: number): Float32Array => {
    const all = run.read('f32', address, count + 8) as Float32Array;
    assert.ok(
      all.subarray(count).every((v) => v === -777),
      `${f}: nothing is written past the end`,
    );
    return all;
  };

  for (const n of columns) {
    const out = guard(rows * n);
    run.launch(
      unit,
      `mul_mat_vec_${f}_q8_1_cuda${n}`,
      n === 1 ? rows : Math.ceil(rows / 2),
      [32, n <= 4 ? 4 : 2],
      [w, y.address, out, k, rows, y.padded, rows],
    );
    const got = read(out, rows * n);
    for (let c = 0; c < n; c++)
      for (let r = 0; r < rows; r++) assertRow(got[c * rows + r], weights, r, x, c, k, `${f} x ${n}`);
  }
  const out = guard(rows * wide);
  run.launch(
    unit,
    `mul_mat_${f}`,
    [Math.ceil(rows / tile[1]), Math.ceil(wide / tile[0])],
    [32, 4],
    [w, y.address, out, k, rows, wide, y.padded, rows],
  );
  const got = read(out, rows * wide);
  for (let c = 0; c < wide; c++)
    for (let r = 0; r < rows; r++) assertRow(got[c * rows + r], weights, r, x, c, k, `${f} tiled`);

  const single = guard(rows);
  run.launch(unit, vec(f), rows, [32, 1], [w, run.buffer(x), single, k, ...(f === 'q5_K' ? [] : [rows])]);
  read(single, rows)
    .subarray(0, rows)
    .forEach((v, r) => assertRow(v, weights, r, x, 0, k, `${f} dequantized`));

  const ids = Uint32Array.of(3, 0, 6, 3);
  const picked = guard(ids.length * k);
  run.launch(unit, `get_rows_${f}`, [ids.length, values === 32 ? 1 : k / 256], values === 32 ? 256 : 64, [
    w,
    run.buffer(ids),
    picked,
    k,
    (k / values) * bytes,
  ]);
  const all = read(picked, ids.length * k);
  ids.forEach((id, i) =>
    assert.deepEqual(all.subarray(i * k, (i + 1) * k), weights.subarray(id * k, (id + 1) * k), `${f} row ${id}`),
  );

  if (moe) {
    // Three experts of two rows; two tokens choose two each, with an input of their own or a shared one.
    const experts = Uint32Array.of(2, 0, 1, 2);
    for (const shared of [1, 2]) {
      const result = guard(8);
      run.launch(
        unit,
        moe,
        [2, 2, 2],
        [32, 4],
        [w, y.address, run.buffer(experts), result, 2, k, 2, 2, y.padded, shared],
      );
      const values2 = read(result, 8);
      experts.forEach((e, task) => {
        for (let r = 0; r < 2; r++)
          assertRow(
            values2[task * 2 + r],
            weights,
            e * 2 + r,
            x,
            shared === 1 ? task >> 1 : task,
            k,
            `${f} expert ${e}`,
          );
      });
    }
  }
  run.free();
}

for (const f of formats)
  for (const wave of [32, 64] as const) {
    test(
      `${f}: products with vectors, matrices and experts, and rows by index, agree with sums in double, wave ` +
        `${wave}`,
      () => checkProducts(wave, f, [1, 2, 3, 4, 5, 6, 7, 8]),
    );
  }

const MMVQ_TYPES = ['f32', 'f16', 'bf16'] as const;
test('mmvq_gguf has 243 kernels', () => assert.equal(kernelModule('candle/mmvq_gguf').entries.size, 243));
for (const wave of [32, 64] as const) {
  test(`mmvq_gguf: products with results of every type agree with sums in double, wave ${wave}`, () => {
    // Every kernel where a record of what ran is made; else every format once, types and numbers of columns in turn.
    const whole = process.env.WICK_LAUNCHED !== undefined;
    const cases = formats.flatMap((f, i) => {
      const turn = [MMVQ_TYPES[(i + wave / 32) % 3], 1 + ((3 * i + wave / 32) % 8)] as const;
      const all = MMVQ_TYPES.flatMap((type) => [1, 2, 3, 4, 5, 6, 7, 8].map((n) => [type, n] as const));
      return (whole ? all : [turn]).map(([type, n]) => {
        return { f, type, n, symbol: `mmvq_gguf_${f.toLowerCase()}_${type}_plain_cuda${n}` };
      });
    });
    const rounding = MMVQ_TYPES.map((t) => `mmvq_gguf_quantize_q8_1_${t}`);
    const unit = unitOf('candle/mmvq_gguf', [...rounding, ...cases.map((c) => c.symbol)]);
    const run = new SimRunner(wave);
    for (const { f, type, n, symbol } of cases) {
      const { values } = FORMATS[f];
      const [k, rows] = [values === 32 ? 96 : 512, 7];
      const padded = Math.ceil(k / 512) * 512;
      const blocks = randomBlocks(f, (rows * k) / values);
      const weights = dequantize(ggmlType(f.toUpperCase()), blocks);
      const x = exactActivations(k * n);
      const y = run.buffer((padded / 32) * 36 * n);
      run.launch(unit, `mmvq_gguf_quantize_q8_1_${type}`, [padded / 256, n], 256, [
        run.of(type, Array.from(x)),
        y,
        k,
        padded,
      ]);
      const pitch = rows + 2; // columns of results may lie apart
      const out = run.buffer(pitch * n * 4);
      const grid = n === 1 ? rows : Math.ceil(rows / 2);
      run.launch(unit, symbol, grid, [32, n <= 4 ? 4 : 2], [run.buffer(blocks), y, out, k, rows, padded / 32, pitch]);
      const raw = run.read(type, out, pitch * n);
      const got = Array.from(raw as ArrayLike<number>, (v) => Number(DTYPE[type].decode(v)));
      for (let c = 0; c < n; c++)
        for (let r = 0; r < rows; r++)
          assertRow(got[c * pitch + r], weights, r, x, c, k, symbol, { f32: 0, f16: 2 ** -11, bf16: 2 ** -8 }[type]);
      run.free();
    }
  });
}

for (const [wave, f] of [
  [32, 'q4_0'],
  [64, 'q6_K'],
] as const) {
  test(`${f}: rows so long that every thread of a vector product takes several chunks, waves of ${wave}`, () => {
    const columns = [1, 5];
    const bench = new Bench(
      wave,
      unitOf('candle/quantized', [
        `dequantize_block_${f}_f32`,
        'quantize_q8_1',
        ...columns.map((n) => `mul_mat_vec_${f}_q8_1_cuda${n}`),
      ]),
    );
    const [k, rows] = [4608, 3]; // 144 chunks of 32 for 128 threads
    const blocks = randomBlocks(f, (rows * k) / FORMATS[f].values);
    const weights = bench.dequantize(f, blocks, rows * k);
    const x = exactActivations(k * 5);
    const y = bench.quantize(x, k, 5);
    for (const n of columns) {
      const out = bench.run.buffer(rows * n * 4);
      bench.run.launch(
        bench.unit,
        `mul_mat_vec_${f}_q8_1_cuda${n}`,
        n === 1 ? rows : Math.ceil(rows / 2),
        [32, n <= 4 ? 4 : 2],
        [bench.run.buffer(blocks), y.address, out, k, rows, y.padded, rows],
      );
      const got = bench.run.read('f32', out, rows * n) as Float32Array;
      for (let c = 0; c < n; c++)
        for (let r = 0; r < rows; r++) assertRow(got[c * rows + r], weights, r, x, c, k, `${f} x ${n}`);
    }
    bench.run.free();
  });
}

test('quantize_q8_1 rounds half away from zero, stores scale and sum, and pads with zeros', () => {
  const bench = new Bench(64, unitOf('candle/quantized', ['quantize_q8_1']));
  const x = new Float32Array(33);
  x.set([127, 0.5, -0.5, 1.49, -126.5, 2.5]);
  const { address, padded } = bench.quantize(x, 33, 1);
  const bytes = bench.run.read('u8', address, (padded / 32) * 36) as Uint8Array;
  assert.deepEqual(Array.from(new Int8Array(bytes.buffer, 4, 7)), [127, 1, -1, 1, -127, 3, 0]);
  const half = new Uint16Array(bytes.buffer, 0, 2);
  assert.equal(half[0], 0x3c00); // 1
  assert.equal(half[1], 0x447d); // 4.48828125, the nearest to 4.49
  assert.ok(bytes.subarray(36).every((b) => b === 0));
});
