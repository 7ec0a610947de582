// Plans launch what they launched: kernels, grids, shared memory, arguments and temporary memory; decoding, drawing,
// prompts, streams and uploads ask of a driver what they asked: both as `node dist/scripts/launches.js` wrote it down.
// Which kernel serves, how work is cut and what waits for what shows in no result of a simulation; it does here.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { View } from '../src/backends/backend.js';
import { PLANNED, planRow } from '../src/backends/gpu/families.js';
import { alignmentOf, type Step } from '../src/backends/gpu/plan.js';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import { kernelModule, moduleNames } from '../src/backends/gpu/modules.js';
import { OPS } from '../src/ops/table.js';
import { GPUS } from './launch-edges.js';
import { allLines, familiesOf, LIBRARY, ON_PAPER, readLines } from './launch-lines.js';

/** WICK_CASE=sum,decoding asks for ops and programs that begin like that. */
const cases = process.env.WICK_CASE?.split(',').map((c) => c.split('/')[0]);
const wanted = (op: string): boolean => cases?.some((c) => op.startsWith(c)) ?? true;
const opOf = (key: string): string => key.split(' ').at(-1) as string;
const before = new Map([...readLines()].filter(([key]) => wanted(opOf(key))));
const now = await allLines(wanted);

test('every family has its launches written down', { skip: cases && 'some ops were asked for' }, () => {
  // Elementwise chains have lines of their own; users' ops have no row.
  assert.deepEqual(
    [...familiesOf(new Set([...before.keys()].map(opOf)))].sort(),
    PLANNED.filter((f) => f !== 'custom' && f !== 'elementwise').sort(),
  );
  assert.ok(before.has('elementwise'));
});

for (const [key, lines] of before)
  test(`${key}: the launches are those written down`, () => {
    const found = now.get(key) ?? [];
    const at = lines.findIndex((line, i) => found[i] !== line);
    if (at < 0) return assert.equal(found.length, lines.length);
    const heading = lines.slice(0, at + 1).findLast((line) => line.startsWith('#'));
    assert.equal(found[at], lines[at], `${heading}; where that is meant, node dist/scripts/launches.js writes it down`);
  });

/** Kernels by name with their grid, block and bytes of shared memory, in the lines of an architecture. */
const launchedOn = (arch: string) =>
  [...before]
    .filter(([key]) => key.startsWith(`${arch} `))
    .flatMap(([, lines]) => lines)
    .flatMap((line) => [...line.matchAll(/(?<=^| ; )(\w+)<([\d.,]+)\|([\d.,]+)\|(\d+)>/g)])
    .map(([, symbol, grid, block, shared]) => ({
      symbol,
      grid: grid.split(',').map(Number),
      threads: block.split(',').reduce((n, x) => n * Number(x), 1),
      shared: Number(shared),
    }));
const DEVICES = new Map([...GPUS, ...ON_PAPER].map((on) => [on.arch, on]));

for (const [arch, { sharedPerBlockOptin }] of DEVICES) {
  const all = launchedOn(arch);
  test(`nothing is launched on ${arch} that builds ahead of time leave out there`, () => {
    const leftOut = moduleNames()
      .flatMap((m) => kernelModule(m).kernels)
      .flatMap((k) =>
        k
          .variants()
          .filter((v) => k.spec.launchedOn?.(v, arch) === false)
          .map(k.spec.symbol),
      );
    const launched = new Set(all.map((l) => l.symbol));
    assert.deepEqual(
      leftOut.filter((symbol) => launched.has(symbol)),
      [],
    );
  });
  test(`grids, blocks and shared memory are within what ${arch} has`, () => {
    const whole = (n: number, most: number): boolean => Number.isInteger(n) && n >= 1 && n <= most;
    const beyond = all.filter(
      ({ grid: [x, y, z], threads, shared }) =>
        !whole(x, 2 ** 31 - 1) ||
        !whole(y, 65535) ||
        !whole(z, 65535) ||
        !whole(threads, 1024) ||
        shared > sharedPerBlockOptin,
    );
    assert.deepEqual([...new Set(beyond.map((l) => l.symbol))], []);
  });
}

test('what addresses are multiples of is what all of them are multiples of, up to 16', () => {
  const at = (address: number, offset = 0): View => ({
    ...{ memory: { bytes: 999, address }, layout: Layout.contiguous([3], offset), dtype: 'u8' as const },
  });
  assert.deepEqual(
    [0, 16, 8, 4, 2, 1, 24, 12, 6, 3, 32].map((address) => alignmentOf(at(address))),
    [16, 16, 8, 4, 2, 1, 8, 4, 2, 1, 16],
  );
  assert.deepEqual([alignmentOf(at(16), at(4)), alignmentOf(at(2), at(8)), alignmentOf(at(16, 3), at(16))], [4, 2, 1]);
});

test('a library is told how matrices lie, or not asked where neither of their dimensions is dense', () => {
  const at = (layout: Layout, i: number): View => ({
    memory: { bytes: 0, address: i * 2 ** 44 },
    layout,
    dtype: 'f32',
  });
  const told = (shape: number[], strides: number[]): unknown => {
    const [batch, [m, k]] = [shape.slice(0, -2), shape.slice(-2)];
    const b = at(Layout.contiguous([...batch, k, 5]), 2);
    const out = at(Layout.contiguous([...batch, m, 5]), 3);
    const [step] = planRow(OPS.bmm as never, [at(new Layout(shape, strides), 1), b], [out], {}, ON_PAPER[1], LIBRARY);
    return 'product' in step && [step.product.spec.a, step.product.spec.batch];
  };
  const row = (ld: number, batchStride = 0, batch = 1) => [{ order: 'row', ld, batchStride }, batch];
  const col = (ld: number, batchStride = 0, batch = 1) => [{ order: 'col', ld, batchStride }, batch];
  const cases: [shape: number[], strides: number[], told: unknown][] = [
    [[4, 6], [6, 1], row(6)],
    [[4, 6], [9, 1], row(9)],
    [[4, 6], [1, 4], col(4)],
    [[4, 6], [1, 7], col(7)],
    [[4, 6], [12, 2], false],
    [[4, 6], [0, 1], false],
    [[4, 6], [1, 0], false],
    [[4, 6], [5, 1], false],
    [[4, 6], [1, 3], false],
    [[1, 6], [99, 1], row(6)],
    [[1, 6], [0, 1], row(6)],
    [[1, 6], [99, 2], col(2)],
    [[4, 1], [3, 5], row(3)],
    [[4, 1], [1, 99], row(1)],
    [[3, 4, 6], [24, 6, 1], row(6, 24, 3)],
    [[3, 4, 6], [0, 1, 4], col(4, 0, 3)],
    [[2, 3, 4, 6], [72, 24, 6, 1], row(6, 24, 6)],
    [[2, 3, 4, 6], [100, 24, 6, 1], false],
  ];
  for (const [shape, strides, want] of cases) assert.deepEqual(told(shape, strides), want, `[${shape}]/${strides}`);
});

test("the gradient of attention on an H200 asks for its mask's tiles of shared memory", () => {
  const of = (shape: number[], i: number, dtype: DType = 'f16'): View => {
    const layout = Layout.contiguous(shape);
    return { memory: { bytes: layout.end * bytesOf(dtype), address: (i + 1) * 2 ** 44 }, layout, dtype };
  };
  const params = { layout: 'bthd', scale: 0.125, softcap: 0, left: -1, right: -1, longest: [0, 0] };
  for (const dim of [64, 128]) {
    const [q, k, sums] = [
      [2, 256, 4, dim],
      [2, 256, 2, dim],
      [2, 4, 256],
    ];
    const inputs = [of(q, 0), of(k, 1), of(k, 2), of(q, 3), of(sums, 4, 'f32'), of(sums, 5, 'f32')];
    const out = [of(q, 10), of(k, 11), of(k, 12)];
    const sharedOf = (mask: View[]): number[] =>
      planRow(
        OPS.sdpaBackward as never,
        [...inputs, ...mask],
        out,
        { ...params, extras: mask.map(() => 'mask') },
        ON_PAPER[0],
      )
        .flatMap((step: Step) => ('launches' in step ? step.launches : []))
        .filter((l) => l.symbol.startsWith('attention_backward_hopper'))
        .map((l) => l.shared as number);
    const plain = sharedOf([]);
    assert.equal(plain.length, 2);
    // Three tiles of 128 rows by 64 columns, of two bytes.
    assert.deepEqual(
      sharedOf([of([1, 1, 256, 256], 6)]),
      plain.map((bytes) => bytes + 3 * 2 * 128 * 64),
    );
  }
});
