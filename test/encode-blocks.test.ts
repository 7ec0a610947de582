// Blocks made by the CPU engine, byte for byte those of the encoders in TypeScript, which ggml's own files vouch for.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ENCODED, quantize } from '../src/base/blocks/encode.js';
import { ggmlType } from '../src/base/blocks/types.js';
import { Device, QTensor, tensor } from '../src/index.js';
import { encodeBlocks } from '../src/tensor/encode-blocks.js';

const [ROWS, WIDTH] = [9, 1280];
let seed = 7;
const random = (): number => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32 - 0.5;
};
/** What searches meet: sizes from denormal to huge, zeros, one sign, constants, ties. */
const KINDS: readonly ((v: number, i: number) => number)[] = [
  (v) => v,
  (v) => v * 1e-12,
  (v) => v * 1e4,
  (v) => v * 1e-38,
  (v) => v * 1e18,
  () => 0,
  Math.abs,
  (v) => -Math.abs(v),
  () => 2.5,
  (_, i) => (i % 2 ? 1 : -1),
  (v) => Math.round(v * 4) / 4,
  (v, i) => (i % 32 === 0 ? v * 100 : v),
];
const values = Float32Array.from({ length: ROWS * WIDTH }, (_, i) => {
  const group = i >> 5;
  return KINDS[(group * 7 + (group >> 4)) % KINDS.length](random() + random() + random(), i);
});
const importance = Float32Array.from({ length: WIDTH }, (_, i) => (i % 7 === 0 ? 0 : Math.abs(random()) + 0.01));

for (const name of ENCODED)
  for (const weights of [undefined, importance])
    test(`${name}${weights ? ' with importances' : ''}: the engine's bytes are the encoder's`, () => {
      const type = ggmlType(name);
      const given = weights ? { importance: weights } : {};
      const x = tensor(values, { shape: [ROWS, WIDTH] });
      const expected = quantize(type, values, { rowLength: WIDTH, ...given });
      assert.deepEqual(encodeBlocks(x, type, given).dataSync(), expected);
      const [columns, some] = [x.transpose(0, 1).copy().transpose(0, 1), x.narrow(0, 2, 3)];
      assert.deepEqual(encodeBlocks(columns, type, given).dataSync(), expected, 'rows that are not contiguous');
      const bytes = expected.length / ROWS;
      assert.deepEqual(encodeBlocks(some, type, given).dataSync(), expected.slice(2 * bytes, 5 * bytes), 'rows 2 to 4');
    });

for (const name of ENCODED.filter((n) => n !== 'Q8_1'))
  test(`${name}: columns that nothing came through keep their values, however many there are`, () => {
    const x = tensor(
      Float32Array.from({ length: WIDTH }, (_, i) => Math.sin(i * 1.7)),
      { shape: [1, WIDTH] },
    );
    const lost = (weights?: Float32Array): number =>
      Number(QTensor.quantize(x, name.toLowerCase(), weights && { importance: weights }).error(x));
    const plain = lost();
    for (const [from, to] of [
      [0, WIDTH],
      [0, 256],
      [WIDTH - 256, WIDTH],
      [32, 48],
    ]) {
      const weights = Float32Array.from({ length: WIDTH }, (_, i) => (i >= from && i < to ? 0 : 1 + (i % 3)));
      assert.ok(
        lost(weights) < 1.6 * plain,
        `${from} to ${to}: ${lost(weights)} is lost, ${plain} without importances`,
      );
    }
  });

test('tensors of other devices and dtypes are encoded, and blocks come back where they were', () => {
  const x = tensor(values.subarray(0, 2 * WIDTH), { shape: [2, WIDTH], dtype: 'bf16', device: 'sim:32' });
  const q = QTensor.quantize(x, 'q4_k');
  assert.equal(q.device, Device.get('sim:32'));
  const rounded = x.cast('f32').dataSync() as Float32Array;
  assert.deepEqual(q.parts[0].blocks.dataSync(), quantize(ggmlType('Q4_K'), rounded, { rowLength: WIDTH }));
});

test('no rows are no blocks, and what is not finite is named', () => {
  assert.deepEqual(encodeBlocks(tensor(new Float32Array(), { shape: [0, 256] }), ggmlType('Q6_K')).shape, [0, 210]);
  const bad = Float32Array.from({ length: 256 }, (_, i) => (i === 9 ? NaN : i));
  assert.throws(() => QTensor.quantize(tensor(bad, { shape: [1, 256] }), 'q4_k'), /element 9 is NaN; Q4_K blocks hold/);
  assert.throws(() => QTensor.quantize(tensor(bad, { shape: [2, 128] }), 'q4_k'), /takes 256 values a block/);
});
