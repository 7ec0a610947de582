// A GPU's memory while work is recorded: when it runs out, when recording fails, when several recordings share it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capacityOf } from '../src/backends/gpu/allocator.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { OutOfMemoryError } from '../src/base/errors.js';
import { scope, tensor, type Tensor } from '../src/index.js';
import { probe } from '../src/testing/devices.js';

const { device, missing } = probe('sim:32');
const skip = missing ?? false;
const backend = device?.backend as GpuBackend;
const MIB = 2 ** 20;

/** Runs f on a device that has room for so many bytes more than it holds for live tensors. */
function withRoom(bytes: number, f: () => void): void {
  backend.trim();
  const { bare: driven } = backend.context;
  const limit = driven.memory().free - bytes;
  const { alloc } = driven;
  driven.alloc = function alloc_(n) {
    if (driven.memory().free - n < limit) throw new OutOfMemoryError(`alloc(${n}): full`);
    return alloc.call(driven, n);
  };
  try {
    f();
  } finally {
    driven.alloc = alloc;
  }
}
const sumOf = (x: Tensor): number => scope(() => x.sum().item());

test('blocks hold what is asked for, in steps of 512 bytes and above 4 KiB of an eighth of a power of two', () => {
  const sizes = [0, 1, 512, 513, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 1_000_000, 2 ** 33 + 1];
  assert.deepEqual(sizes.map(capacityOf), [
    ...[512, 512, 512, 1024, 4096, 4096, 4608, 5120, 8192, 8192, 9216, 1_048_576, 2 ** 33 + 2 ** 30],
  ]);
});
const free = (): number => backend.context.device.memory().free;

test('memory that runs out while work is recorded is found in blocks kept for reuse', { skip }, () => {
  const x = tensor(new Float32Array(MIB / 4).fill(2), { device: device! });
  let out: Tensor | undefined;
  const work = (): void => {
    out = scope(() => x.add(1).mul(x));
  };
  withRoom(3.5 * MIB, () => {
    work(); // two blocks are kept for reuse afterwards
    out?.dispose();
    assert.ok(backend.memory().cachedBytes >= 2 * MIB);
    const replay = device!.capture(work);
    assert.equal(backend.memory().cachedBytes, 0, 'they went back to the driver');
    replay.launch();
    assert.equal(sumOf(out!), (MIB / 4) * 6);
    out?.dispose();
    replay.dispose();
  });
  x.dispose();
});

test('a recording that fails leaves nothing behind, and the device goes on', { skip }, () => {
  const x = tensor(new Float32Array(MIB / 4).fill(2), { device: device! });
  x.add(1).dispose();
  backend.trim();
  const before = free();
  assert.throws(() => device!.capture(() => scope(() => void (x.add(1), assert.fail('out of f')))), /out of f/);
  assert.equal(free(), before);
  withRoom(1.5 * MIB, () =>
    assert.throws(
      () => device!.capture(() => scope(() => void x.add(1).mul(x))),
      (e) => e instanceof OutOfMemoryError && /no room for 1048576 bytes/.test(e.message),
    ),
  );
  assert.equal(free(), before);
  assert.equal(sumOf(x), (MIB / 4) * 2);
  x.dispose();
});

test('recordings beside each other share memory until the last is gone', { skip }, () => {
  const x = tensor(new Float32Array(MIB / 4).fill(2), { device: device! });
  const sums: Tensor[] = [];
  const work = (factor: number) => (): void => {
    sums.push(scope(() => x.mul(factor).add(x).sum()));
  };
  for (const factor of [3, 5, 7]) work(factor)(); // constants are on the device now
  for (const s of sums.splice(0)) s.dispose();
  backend.trim();
  const before = free();
  const first = backend.capture(work(3));
  const taken = before - free();
  const second = backend.capture(work(5), first);
  const third = backend.capture(work(7), second);
  assert.ok(taken >= 2 * MIB && before - free() < taken + MIB, 'temporary memory is there once');
  const run = (i: number): number => {
    [first, second, third][i].launch();
    return sums[i].item() / (MIB / 4); // read before another runs
  };
  assert.deepEqual([2, 0, 1, 0].map(run), [16, 8, 12, 8]);
  first.dispose();
  assert.equal(run(2), 16);
  for (const s of sums) s.dispose();
  second.dispose();
  assert.ok(free() < before - MIB, 'one of them still uses it');
  third.dispose();
  backend.trim();
  assert.ok(free() >= before);
  x.dispose();
});

test('memory that a recording holds stays when its tensor goes, and when the recording goes but not its tensor', {
  skip,
}, () => {
  const numbers = MIB / 4;
  const filled = (value: number): Tensor => tensor(new Float32Array(numbers).fill(value), { device: device! });
  const w = filled(3);
  const outs: Tensor[] = [];
  const work = (): void => {
    outs.push(scope(() => w.mul(2)));
  };
  work();
  outs.splice(0)[0].dispose();
  const held = (f: () => void) => backend.capture(f, undefined, { hold: true });
  const [first, second] = [held(work), held(work)];
  const others = (): Tensor[] => [1, 2, 3, 4].map((v) => filled(100 * v)); // they would take a block that is free
  w.dispose();
  first.dispose();
  let more = others();
  second.launch();
  assert.equal(sumOf(outs[1]) / numbers, 6, 'the second recording still reads what it read');
  for (const t of more) t.dispose();
  second.dispose();
  const x = filled(5);
  const third = held(() => {
    outs.push(scope(() => x.mul(2)));
  });
  third.launch();
  third.dispose();
  more = others();
  assert.equal(sumOf(x) / numbers, 5, 'the tensor is as it was');
  for (const t of [...more, ...outs, x]) t.dispose();
});
