// Calls of the CPU engine that are recorded and repeated: brief ones run on the thread that asks, and keep nobody from
// their turn.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Backend, Recorded } from '../src/backends/backend.js';
import { CpuBackend } from '../src/backends/cpu.js';
import { type Engine, openNative } from '../src/backends/cpu/engine.js';
import { ensureNative } from '../src/backends/native-build.js';
import { Device, IndexError, scope, tensor, type Tensor } from '../src/index.js';

const { backend } = Device.cpu();
const record = (f: () => void): Recorded => (backend.capture as NonNullable<Backend['capture']>).call(backend, f);

test('timers, sockets and signals have their turn while brief work is repeated without a pause', async () => {
  const x = tensor([1, 2, 3]);
  const step = record(() => scope(() => void x.add(1).mul(2)));
  let [turns, times] = [0, 0];
  setImmediate(() => turns++);
  // Promises that are kept already never let the event loop go on.
  while (turns === 0 && times < 1e6) {
    await step.launch();
    times++;
  }
  setImmediate(() => turns++);
  for (let more = 0; turns < 2 && more < 1e6; more++) await step.launch();
  assert.equal(turns, 2);
  step.dispose();
});

test('brief work that gave others their turn goes on where it was, in the order it was asked for', async (t) => {
  const engine = openNative(ensureNative());
  let away = 0;
  const place: Engine['place'] = (slots) => {
    const calls = engine.place(slots);
    const run = async (): Promise<number> => (away++, calls.runHere());
    return { ...calls, run };
  };
  const own = new CpuBackend({ ...engine, place });
  let clock = 0;
  t.mock.method(performance, 'now', () => clock++); // a run takes a millisecond
  const step = own.capture(() => undefined);
  for (let i = 0; i < 100; i++) await step.launch();
  assert.equal(away, 1, 'the first one, which nothing is known about');
  const order: number[] = [];
  await Promise.all(
    Array.from({ length: 20 }, async (_, i) => {
      await step.launch();
      order.push(i);
    }),
  );
  assert.deepEqual(
    order,
    Array.from({ length: 20 }, (_, i) => i),
  );
  step.dispose();
});

test('repeated work that fails says which op it was, here as elsewhere, and can be repeated', async () => {
  const [table, index] = [tensor([10, 20, 30]), tensor(Int32Array.of(1))];
  let out: Tensor | undefined;
  const step = record(() => {
    out = scope(() => table.indexSelect(0, index));
  });
  for (const at of [2, 0, 7, 1, 9, 9, 2, 0]) {
    index.assign(tensor(Int32Array.of(at)));
    const run = (async () => step.launch())();
    if (at > 2) await assert.rejects(run, (e: Error) => e instanceof IndexError && /indexSelect/.test(e.message));
    else await run.then(() => assert.deepEqual(out?.toArray(), [10 * (at + 1)]));
    if (at === 0) await turn();
  }
  step.dispose();
});

test('what is asked for behind work on another thread comes after it', async () => {
  const [a, b] = [tensor([1]), tensor([0])];
  const [double, copy] = [record(() => void a.assign(a.mul(2))), record(() => void b.assign(a.add(0)))];
  for (let i = 0; i < 40; i++) {
    const long = backend.elsewhere?.(() => scope(() => void a.assign(a.add(1))));
    const behind = [double.launch(), copy.launch()];
    await Promise.all([long, ...behind]);
    assert.equal(b.item(), a.item());
    assert.equal(a.item(), 4);
    a.assign(tensor([1]));
  }
  double.dispose();
  copy.dispose();
});
