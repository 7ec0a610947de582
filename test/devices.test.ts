// What is there and how devices work together: lists, properties, copies between GPUs, streams, TF32.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, tensor, type Tensor } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';

const list = (t: Tensor): number[] => Array.from(t.dataSync() as Iterable<number>);
const [{ missing }] = testDevices('sim:32');
const skip = missing ?? false;

test('Device.list: the CPU first, then GPUs by the names that open them', () => {
  const all = Device.list();
  assert.deepEqual([all[0].name, all[0].kind], ['cpu', 'cpu']);
  assert.ok(all[0].totalBytes > 0);
  for (const { name, kind, arch } of all.slice(1)) assert.ok(/^(cuda|rocm):\d+$/.test(name) && kind === 'gpu' && arch);
});
test('properties of a GPU', { skip }, () => {
  const { name, kind, warp, arch, multiprocessors, totalBytes } = Device.get('sim:64').properties;
  assert.deepEqual(
    { name, kind, warp, arch, multiprocessors },
    { name: 'sim:64', kind: 'gpu', warp: 64, arch: 'sim', multiprocessors: 4 },
  );
  assert.ok(totalBytes > 2 ** 30);
});

test('from GPU to GPU without the host, views and gradients too', { skip }, () => {
  const [a, b] = [Device.get('sim:32'), Device.get('sim:64')];
  assert.ok(a.reaches(b) && !a.reaches(Device.cpu()) && !Device.cpu().reaches(a));
  const x = tensor(
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
    { device: a },
  ).requireGrad();
  const backend = a.backend as GpuBackend & { readSync?: unknown };
  const calls: string[] = [];
  const driver = backend.context.bare as unknown as Record<string, (...args: never[]) => unknown>;
  const there = (b.backend as GpuBackend).context.bare as unknown as typeof driver;
  const original = { copyOut: driver.copyOut, wait: driver.streamWait, thereWait: there.streamWait };
  driver.copyOut = () => assert.fail('read back to the host');
  driver.streamWait = (...args) => (calls.push('the source waits'), original.wait.apply(driver, args));
  there.streamWait = (...args) => (calls.push('the target waits'), original.thereWait.apply(there, args));
  const y = x.t().to(b);
  Object.assign(driver, { copyOut: original.copyOut, streamWait: original.wait });
  there.streamWait = original.thereWait;
  assert.deepEqual(calls, ['the source waits', 'the target waits']);
  assert.equal(y.device, b);
  assert.deepEqual(y.toArray(), [
    [1, 4],
    [2, 5],
    [3, 6],
  ]);
  const grad = y.mul(2).sum().backward().of(x);
  assert.equal(grad.device, a);
  assert.deepEqual(grad.toArray(), [
    [2, 2, 2],
    [2, 2, 2],
  ]);
  assert.deepEqual(tensor([], { shape: [0, 2], device: a }).to(b).shape, [0, 2]);
});

test("a stream takes work beside the device's own; waiting joins them", { skip }, () => {
  const device = Device.get('sim:32');
  const gpu = (device.backend as GpuBackend).context;
  const own = gpu.stream;
  const x = tensor([1, 2, 3], { device });
  x.add(1).dispose();
  const log: string[] = [];
  const driver = gpu.bare as unknown as Record<string, (...args: number[]) => unknown>;
  const { launch, record, streamWait } = driver;
  const name = (s: number): string => (s === own ? 'own' : 'side');
  driver.launch = (...args) => (log.push(`launch on ${name(args[4])}`), launch.apply(driver, args));
  driver.record = (e, s) => (log.push(`record on ${name(s)}`), record.call(driver, e, s));
  driver.streamWait = (s, e) => (log.push(`${name(s)} waits`), streamWait.call(driver, s, e));
  const stream = device.stream();
  const work = stream.run(() => x.add(1));
  x.add(1);
  const y = work.wait();
  Object.assign(driver, { launch, record, streamWait });
  assert.deepEqual(log, [
    'record on own',
    'side waits',
    'launch on side',
    'record on side',
    'launch on own',
    'own waits',
  ]);
  assert.deepEqual(list(y), [2, 3, 4]);
  assert.equal(work.wait(), y, 'waiting twice does no harm');
  assert.ok(work.done);
  assert.throws(() => stream.run(() => device.stream().run(() => 1)), /cannot be given to another from within/);
  assert.throws(() => stream.run(() => x.reshape([2])), /reshape/);
  assert.deepEqual(list(x.add(2)), [3, 4, 5], "after a failure work goes to the device's own stream again");
  stream.dispose();
});
test('memory that a stream may still read is not given out again before it is waited for', { skip }, () => {
  const device = Device.get('sim:32');
  const stream = device.stream();
  const bytes = 40_000;
  const make = (): Tensor => tensor(new Float32Array(bytes / 4), { device });
  const x = make();
  const { address } = x.memory;
  const work = stream.run(() => x.add(1));
  x.dispose();
  const others = [make(), make()];
  assert.ok(
    others.every((t) => t.memory.address !== address),
    'the block was given out',
  );
  work.wait();
  assert.equal(make().memory.address, address, 'after waiting it is free');
  // Work that nobody waits for is let go of once it is done.
  const z = make();
  const at = z.memory.address;
  stream.run(() => z.add(1));
  z.dispose();
  stream.run(() => 1).wait();
  assert.equal(make().memory.address, at);
  stream.dispose();
});
test('the CPU does what a stream is given at once', () => {
  const x = tensor([1, 2]);
  const work = Device.cpu()
    .stream()
    .run(() => x.add(1));
  assert.ok(work.done);
  assert.deepEqual(list(work.wait()), [2, 3]);
});

test('TF32 is off, can be switched on for GPUs, and then rounds', { skip }, () => {
  const device = Device.get('sim:32+cublaslt');
  assert.equal(device.tf32, false);
  const x = tensor(
    Float32Array.from({ length: 64 * 64 }, (_, i) => 1 + ((i * 37) % 1000) / 8192),
    { shape: [64, 64], device },
  );
  const exact = list(x.matmul(x));
  device.tf32 = true;
  const rounded = list(x.matmul(x));
  device.tf32 = false;
  assert.notDeepEqual(rounded, exact);
  assert.deepEqual(list(x.matmul(x)), exact);
  assert.equal(Device.cpu().tf32, false);
  assert.throws(() => (Device.cpu().tf32 = true), /tf32: cpu has no such units/);
  assert.throws(() => (device.tf32 = 1 as never), /neither true nor false/);
});
