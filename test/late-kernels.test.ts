// Kernels that are still being compiled when they are launched: what is enqueued meanwhile waits its turn, and results
// are those of kernels that were there, bit for bit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Turn } from '../src/backends/gpu/turn.js';
import { IndexError } from '../src/base/errors.js';
import { GraphDecoder } from '../src/engine/index.js';
import { Sampler } from '../src/engine/sampler.js';
import { captured, Device, randn, scope, tensor, type Tensor } from '../src/index.js';
import { Llama } from '../src/models/index.js';
import { goldenFolder } from '../src/parity/golden.js';
import { goldenModels, modelFolder } from '../src/parity/models.js';
import { openLibrary } from '../src/driver/ffi.js';
import { takeCall } from '../src/driver/threads.js';
import { standInCalls } from '../src/stand-ins/library.js';
import { probe } from '../src/testing/devices.js';

const sim = probe('sim:32');
const skip = sim.missing ?? false;
const waits = (device: Device): boolean => (device.backend as GpuBackend).context.turn.taken;
const bits = (t: Tensor): string => Buffer.from(t.bytesSync()).toString('hex');

/** Programs that answer tensors; the name of a device may go on with stand-ins of libraries. */
const PROGRAMS: Readonly<Record<string, readonly [libraries: string, run: (on: Device) => Tensor[]]>> = {
  'memory that comes free while work waits is not written over': [
    '',
    (on) => {
      let x = randn([64, 64], { seed: 1, device: on });
      for (let i = 0; i < 8; i++) x = scope(() => x.mul(0.5).sin().add(x.sum(1, true).tanh()));
      return [x];
    },
  ],
  'numbers brought to the device keep their place among launches': [
    '',
    (on) => {
      const a = tensor(Float32Array.of(1, 2, 3), { device: on });
      const b = a.exp();
      const c = tensor(Float32Array.of(4, 5, 6), { device: on });
      a.assign(c);
      return [b, a.cos()];
    },
  ],
  'products of a library': [
    '+cublaslt',
    (on) => {
      const x = randn([32, 32], { seed: 2, device: on }).cast('bf16');
      return [x.relu().matmul(x).silu().matmul(x.t()).cast('f32')];
    },
  ],
  'attention that is tried beside a library, and its gradients': [
    '+cudnn',
    (on) => {
      const { device, libraries } = (on.backend as GpuBackend).context;
      Object.assign(libraries, { attentionFrom: 0, attentionPatience: 0 });
      // Whatever is tried later is the quicker: which way is taken, and so the bits, must not depend on the clock.
      let ms = 1e9;
      Object.assign(device, { elapsed: () => (ms /= 2) });
      const made = [1, 2, 3].map((seed) => randn([1, 2, 16, 16], { seed, device: on }).cast('bf16'));
      const [q, k, v] = made.map((t) => t.requireGrad());
      const loss = q.sdpa(k, v, { causal: true }).cast('f32').sin().sum();
      const grads = loss.backward();
      return [q, k, v].map((t) => grads.of(t));
    },
  ],
  'a step that is recorded': [
    '',
    (on) => {
      const step = captured((x: Tensor) => ({ y: x.sqrt().cumsum(0) }));
      const x = tensor(Float32Array.of(1, 4, 9), { device: on });
      return [1, 2, 3].map(() => step(x).y);
    },
  ],
};

for (const [name, [libraries, run]] of Object.entries(PROGRAMS))
  test(name, { skip }, () => {
    const [soon, late] = ['', '+late'].map((how) => Device.get(`sim:32${how}${libraries}`));
    const answers = run(soon).map(bits);
    assert.deepEqual(run(late).map(bits), answers);
    assert.ok(!waits(late), 'nothing waits after a read');
  });

test('work waits until a result is read', { skip }, () => {
  const device = Device.get('sim:32+late');
  const y = tensor(Float32Array.of(0.5), { device }).atanh();
  assert.ok(waits(device));
  assert.equal(y.item(), Math.fround(Math.atanh(0.5)));
  assert.ok(!waits(device));
});
test("a library's plan of attention is made beside the host, and its work waits for it", { skip }, () => {
  const device = Device.get('sim:32+cudnn');
  const { libraries } = (device.backend as GpuBackend).context;
  Object.assign(libraries, { attentionTried: true, attentionFrom: 0, attentionPatience: 0 });
  const [q, k, v] = [1, 2, 3].map((seed) => randn([1, 2, 24, 16], { seed, device }).cast('bf16'));
  const ran = (): number => standInCalls.get('cudnnBackendExecute') ?? 0;
  const before = ran();
  const out = q.sdpa(k, v, { causal: true });
  assert.ok(waits(device), 'the host goes on');
  assert.equal(ran(), before);
  const served = bits(out);
  assert.ok(!waits(device));
  assert.ok(ran() > before, 'the library was tried');
  assert.equal(served.length, 2 * 2 * 2 * 24 * 16);
  Object.assign(libraries, { attentionTried: false });
});
test('another thread makes the call before it first, whose failure is the answer to both', () => {
  const libc = openLibrary({ name: 'C', sonames: ['libc.so.6', 'libSystem.dylib'], vendor: 'host' });
  if (typeof libc === 'string') return;
  const prototype = 'int abs(int x)';
  const call = (x: number) => ({ library: libc.path, prototype, args: [x] });
  for (const [first, answer] of [
    [0, 7],
    [-3, 3],
  ]) {
    const state = new Int32Array(new SharedArrayBuffer(8));
    const worker = new Worker(new URL('../src/driver/call-thread.js', import.meta.url));
    worker.postMessage({ ...call(-7), before: call(first), state });
    assert.notEqual(Atomics.wait(state, 0, 0, 60_000), 'timed-out');
    Atomics.wait(state, 0, 1);
    worker.postMessage(undefined);
    assert.equal(state[1], answer);
  }
});
test('an index out of range is told of when results are read', { skip }, () => {
  const device = Device.get('sim:32+late');
  const y = randn([4, 3], { device, seed: 1 }).indexSelect(0, tensor(Int32Array.of(9), { device }));
  assert.ok(waits(device));
  assert.throws(() => y.toArray(), IndexError);
});

const golden = goldenFolder();
const llama = golden && goldenModels(golden).includes('llama') ? modelFolder(golden, 'llama') : undefined;
const absent = llama ? undefined : 'no golden folder here: set WICK_GOLDEN to one';
test('a small model reads and writes without a library of products', { skip: skip || absent }, async () => {
  const device = Device.get('sim:32+cublaslt');
  const products = (): number => standInCalls.get('cublasLtMatmul') ?? 0;
  const model = Llama.load(llama as string, { device, dtype: 'bf16' });
  const before = products();
  const decoder = new GraphDecoder(model, 32);
  const tokens = [await decoder.runGreedy([1, 5, 9])];
  for (let i = 0; i < 2; i++) tokens.push(await decoder.runGreedy(tokens.slice(-1)));
  assert.equal(products(), before);
  // What else such a program does is served as ever.
  scope(() => void randn([8, 8], { seed: 1, device }).matmul(randn([8, 8], { seed: 2, device })));
  assert.equal(products(), before + 1);
  decoder.dispose();
});
test("the next step's kernels are asked for while a prompt waits for its own", { skip: skip || absent }, async () => {
  const runs = ['sim:32', 'sim:32+late'].map(async (name) => {
    const device = Device.get(name);
    const asked = new Set<string>();
    (device.backend as GpuBackend).context.functions.onUnit = (unit) => void asked.add(unit.name);
    const decoder = new GraphDecoder(Llama.load(llama as string, { device }), 32);
    const tokens = [await decoder.runGreedy([1, 5, 9])];
    const early = asked.has('decode');
    for (let i = 0; i < 3; i++) tokens.push(await decoder.runGreedy(tokens.slice(-1)));
    const drawn: number[] = [];
    decoder.reset();
    const sampler = new Sampler({ temperature: 0.9, topK: 20, seed: 5 });
    for (let i = 0; i < 3; i++)
      drawn.push(await decoder.runSampled(i ? drawn.slice(-1) : [1, 5, 9], sampler, [1, 5, 9, ...drawn]));
    decoder.dispose();
    return { early, late: asked.has('decode'), tokens, drawn };
  });
  const [soon, late] = await Promise.all(runs);
  assert.deepEqual(late, { ...soon, early: true });
  assert.ok(!soon.early && soon.late, 'where nothing waits, they are asked for by the step');
});

/** A turn with a list of what has run. */
function written(): { turn: Turn; ran: string[]; note: (name: string) => () => void } {
  const ran: string[] = [];
  return { turn: new Turn((f) => f()), ran, note: (name) => () => void ran.push(name) };
}
test('work runs in its order, as soon as the first can', () => {
  const { turn, ran, note } = written();
  let ready = false;
  turn.take(note('at once'));
  turn.wait(note('late'), () => ready);
  turn.take(note('behind'));
  assert.deepEqual(ran, ['at once']);
  ready = true;
  turn.take(note('last'));
  assert.deepEqual(ran, ['at once', 'late', 'behind', 'last']);
  assert.ok(!turn.taken);
});
test('work that fails is told of again, and nothing overtakes it', () => {
  const { turn, ran, note } = written();
  const fail = (): never => {
    throw new Error('no such kernel');
  };
  turn.wait(fail, () => false);
  turn.take(note('behind'));
  for (let i = 0; i < 2; i++) assert.throws(() => turn.finish(), /no such kernel/);
  assert.deepEqual(ran, []);
});
test('what is collected runs as often as it is asked to, in its turn', () => {
  const { turn, ran, note } = written();
  const twice = turn.collect(() => turn.take(note('a')));
  assert.deepEqual(ran, []);
  turn.wait(note('first'), () => false);
  turn.take(twice);
  turn.take(twice);
  turn.finish();
  assert.deepEqual(ran, ['first', 'a', 'a']);
});

test('a call is made by one thread alone, and one that throws answers -1', () => {
  const call = { library: '', prototype: '', args: [2, 3], state: new Int32Array(new SharedArrayBuffer(8)) };
  let calls = 0;
  const add = (): ((...args: unknown[]) => number) => (a, b) => {
    calls++;
    return (a as number) + (b as number);
  };
  takeCall(call, add);
  takeCall(call, add);
  assert.deepEqual([calls, call.state[1]], [1, 5]);
  const other = { ...call, state: new Int32Array(new SharedArrayBuffer(8)) };
  assert.throws(() =>
    takeCall(other, () => () => {
      throw new Error('no');
    }),
  );
  assert.equal(other.state[1], -1);
});
