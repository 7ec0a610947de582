// Kernel arguments packed as a C struct, and the rules of products and convolutions that every library shares.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError } from '../src/base/errors.js';
import { ArgBuffer } from '../src/driver/args.js';
import { checkGemm, columnMajor, gemmKey, type GemmSpec } from '../src/driver/blas.js';
import { formatArgs } from '../src/driver/checked-calls.js';
import { checkConv, type ConvSpec } from '../src/driver/dnn.js';
import { waveSize } from '../src/driver/compiler.js';
import { hipVersion, plainArch } from '../src/driver/hip.js';
import { LT_TYPES } from '../src/driver/lt.js';
import { Cell } from '../src/driver/ffi.js';

test('every argument is at its natural alignment', () => {
  const args = new ArgBuffer().u8(1).u16(2).u32(3).u8(4).pointer(5).f32(6).f64(7).i16(-8);
  assert.equal(args.size, 42);
  const view = new DataView(args.bytes().buffer);
  assert.deepEqual(
    [
      view.getUint8(0),
      view.getUint16(2, true),
      view.getUint32(4, true),
      view.getUint8(8),
      view.getBigUint64(16, true),
      view.getFloat32(24, true),
      view.getFloat64(32, true),
      view.getInt16(40, true),
    ],
    [1, 2, 3, 4, 5n, 6, 7, -8],
  );
});

test('a value of each type begins at a multiple of its size and takes that much', () => {
  const kinds: [put: (a: ArgBuffer) => ArgBuffer, bytes: number][] = [
    [(a) => a.u8(1), 1],
    [(a) => a.u16(1), 2],
    [(a) => a.i16(1), 2],
    [(a) => a.u32(1), 4],
    [(a) => a.i32(1), 4],
    [(a) => a.f32(1), 4],
    [(a) => a.u64(1), 8],
    [(a) => a.i64(1), 8],
    [(a) => a.bigint(1n), 8],
    [(a) => a.f64(1), 8],
    [(a) => a.pointer(1), 8],
    [(a) => a.struct(new Uint8Array(24), 8), 24],
  ];
  const args = new ArgBuffer();
  for (const [put, bytes] of kinds) {
    const align = Math.min(bytes, 8);
    for (const before of [0, 1, 3, 5, 7, 8, 9]) {
      args.reset();
      for (let i = 0; i < before; i++) args.u8(255);
      const at = Math.ceil(before / align) * align;
      assert.equal(put(args).size, at + bytes, `${put} behind ${before} bytes`);
      if (bytes < 24)
        assert.ok(
          args
            .bytes()
            .subarray(at)
            .some((b) => b > 0) && args.bytes().length === at + bytes,
        );
    }
  }
});

test('64-bit values keep all their bits', () => {
  const args = new ArgBuffer();
  const read = () => new DataView(args.bytes().buffer);
  assert.equal(args.reset().pointer(0x7fff_1234_5678).size, 8);
  assert.equal(read().getBigUint64(0, true), 0x7fff_1234_5678n);
  for (const v of [2 ** 32 - 1, 2 ** 32, 2 ** 33 - 1, 2 ** 52 + 2 ** 32 - 1, 0xffff_ffff_ffff, 2 ** 53 - 1]) {
    args.reset().pointer(v);
    assert.equal(read().getBigUint64(0, true), BigInt(v));
  }
  for (const v of [-1, -(2 ** 32), -(2 ** 40) - 5, 2 ** 53 - 1, -(2 ** 53) + 1, 0]) {
    args.reset().i64(v);
    assert.equal(read().getBigInt64(0, true), BigInt(v));
  }
  args.reset().bigint(-(2n ** 63n));
  assert.equal(read().getBigInt64(0, true), -(2n ** 63n));
});

test('structs by value are aligned as asked', () => {
  const args = new ArgBuffer().u8(1).struct(Uint8Array.of(9, 8, 7), 4);
  assert.deepEqual(
    [...args.bytes()].filter((_, i) => i >= 4),
    [9, 8, 7],
  );
});

test('more than a launch can carry is refused', () => {
  const args = new ArgBuffer();
  args.struct(new Uint8Array(4096), 1);
  assert.throws(() => args.u8(1), ArgumentError);
});

test('cells read pointers, ints and floats', () => {
  const cell = new Cell();
  new BigUint64Array(cell.raw.buffer)[0] = 0x1234_5678_9abcn;
  assert.equal(cell.value, 0x1234_5678_9abc);
  new Int32Array(cell.raw.buffer)[0] = -5;
  assert.equal(cell.int, -5);
  new Float32Array(cell.raw.buffer)[0] = 1.5;
  assert.equal(cell.float, 1.5);
  assert.equal(cell.clear().value, 0);
});

test('errors show arguments, not the cells results go to', () => {
  assert.equal(
    formatArgs([new Uint32Array(2), 1073741824, 'name', new Uint8Array(5)]),
    '1073741824, "name", [5 bytes]',
  );
});

/** The product a library would compute, from the column-major view, on plain arrays. */
function columnMajorProduct(s: GemmSpec, a: number[], b: number[]): number[] {
  const cm = columnMajor(s);
  const [left, right] = cm.swap ? [b, a] : [a, b];
  const out = new Array<number>(s.d.ld * (s.d.order === 'row' ? s.m : s.n)).fill(0);
  const at = (m: number[], o: { transposed: boolean; ld: number }, i: number, j: number) =>
    o.transposed ? m[i * o.ld + j] : m[j * o.ld + i];
  for (let i = 0; i < cm.m; i++) {
    for (let j = 0; j < cm.n; j++) {
      for (let x = 0; x < cm.k; x++) out[j * cm.d.ld + i] += at(left, cm.a, i, x) * at(right, cm.b, x, j);
    }
  }
  return out;
}

test('all eight layouts of a product reach the column-major libraries unharmed', () => {
  const [m, n, k] = [2, 3, 4];
  for (const ao of ['row', 'col'] as const)
    for (const bo of ['row', 'col'] as const)
      for (const dO of ['row', 'col'] as const) {
        const layout = (order: 'row' | 'col', rows: number, cols: number) => ({
          order,
          ld: (order === 'row' ? cols : rows) + 1,
          batchStride: 0,
        });
        const s: GemmSpec = {
          dtype: 'f32',
          batch: 1,
          m,
          n,
          k,
          a: layout(ao, m, k),
          b: layout(bo, k, n),
          d: layout(dO, m, n),
          bias: false,
          tf32: false,
        };
        assert.equal(checkGemm(s), true);
        const index = (l: GemmSpec['a'], i: number, j: number) => (l.order === 'row' ? i * l.ld + j : j * l.ld + i);
        const a = Array.from({ length: 30 }, (_, i) => i + 1);
        const b = Array.from({ length: 30 }, (_, i) => (i * 7) % 11);
        const got = columnMajorProduct(s, a, b);
        for (let i = 0; i < m; i++)
          for (let j = 0; j < n; j++) {
            let want = 0;
            for (let x = 0; x < k; x++) want += a[index(s.a, i, x)] * b[index(s.b, x, j)];
            assert.equal(got[index(s.d, i, j)], want, `${ao} ${bo} ${dO} at ${i},${j}`);
          }
      }
});

test('products that no library runs are refused with the rule', () => {
  const l = { order: 'row', ld: 4, batchStride: 0 } as const;
  const s: GemmSpec = { dtype: 'f32', batch: 1, m: 4, n: 4, k: 4, a: l, b: l, d: l, bias: false, tf32: false };
  assert.match(String(checkGemm({ ...s, m: 0 })), /m is 0/);
  assert.match(String(checkGemm({ ...s, a: { ...l, ld: 3 } })), /leading dimension of a is 3; it must be 4/);
  assert.match(String(checkGemm({ ...s, batch: 2 })), /batch stride 0/);
  assert.match(String(checkGemm({ ...s, outDtype: 'f64' })), /no product of f32 gives f64/);
  for (const dtype of ['f16', 'bf16'] as const) assert.equal(checkGemm({ ...s, dtype, outDtype: 'f32' }), true);
  assert.match(String(checkGemm({ ...s, dtype: 'f16', outDtype: 'bf16' })), /no product of f16 gives bf16/);
  assert.match(String(checkGemm({ ...s, bias: true, d: { ...l, order: 'col' } })), /row-major/);
  assert.notEqual(gemmKey(s), gemmKey({ ...s, tf32: true }));
});

test('types have the numbers of cudaDataType_t and hipDataType', () => {
  assert.deepEqual(LT_TYPES, { f32: 0, f64: 1, f16: 2, bf16: 14 });
});

test('convolutions whose shapes disagree are refused with the rule', () => {
  const s: ConvSpec = {
    kind: 'forward',
    dtype: 'f32',
    x: [1, 4, 8, 8],
    filter: [6, 2, 3, 3],
    y: [1, 6, 8, 8],
    padding: [1, 1],
    stride: [1, 1],
    dilation: [1, 1],
    groups: 2,
    tf32: false,
  };
  assert.equal(checkConv(s), true);
  assert.match(String(checkConv({ ...s, groups: 1 })), /x has 4 channels, the filter 2/);
  assert.match(String(checkConv({ ...s, y: [1, 6, 8, 7] })), /spatial dimension 1, the formula gives 8/);
  assert.match(String(checkConv({ ...s, y: [2, 6, 8, 8] })), /batch/);
});

test('targets: wave sizes and suffixes', () => {
  assert.deepEqual(
    ['gfx906', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1201', 'sm_90'].map(waveSize),
    [64, 64, 64, 32, 32, 32],
  );
  assert.equal(plainArch('gfx90a:sramecc+:xnack-'), 'gfx90a');
  assert.equal(hipVersion(50221153), '5.2.21153');
});
