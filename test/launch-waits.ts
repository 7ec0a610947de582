// What GPU work does about time and trouble: streams that wait for each other, uploads, reads that poll, recordings,
// and calls of the driver that fail half-way, after which the device must go on.
import { DriverError, OutOfMemoryError } from '../src/base/errors.js';
import type { View } from '../src/backends/backend.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import type { RunRow } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';
import { type Machine, type Program, refused, WatchedGpu } from './watched-gpu.js';

const run = ({ backend }: Machine, op: keyof typeof OPS, inputs: View[], out: View, params: object = {}): void =>
  backend.run(OPS[op] as unknown as RunRow, inputs, [out], params as never);
const driverError = (): DriverError => new DriverError('a call failed');
const full = (): OutOfMemoryError => new OutOfMemoryError('full');

/** Work beside the device's own: who waits for whom, and which memory is given out again when. */
const streams: Program = async (m) => {
  const { gpu, backend, view } = m;
  const side = backend.stream();
  const [x, y] = [view('f32', 100), view('f32', 100)];
  const exp = (): void => run(m, 'exp', [x], y);
  exp();
  const work = side.run(() => {
    exp();
    backend.write(x.memory, 0, new Uint8Array(8));
  });
  exp();
  work.wait();
  work.wait();
  side.run(exp).finish();
  // Memory that is freed while a side stream may read it is kept from others until that is over.
  const again = (): void => {
    const { memory } = view('f32', 5000);
    gpu.note(`memory at ${memory.address}`);
    backend.free(memory);
  };
  again();
  gpu.looks = 1; // the first is not done when the second is given
  const [first, second] = [side.run(exp), side.run(exp)];
  again();
  again();
  first.wait();
  again();
  second.finish();
  second.finish();
  again();
  // What is done is let go of by the next work, and by a trim.
  gpu.looks = 1;
  const third = side.run(exp);
  gpu.note(`done: ${third.done}, ${third.done}`);
  side.run(exp);
  backend.trim();
  gpu.note(`done: ${third.done} ${JSON.stringify(backend.memory())}`);
  await refused(m, () => side.run(() => side.run(exp)));
  exp();
  side.dispose();
};
const uploads: Program = ({ backend, view }) => {
  const x = view('u8', 2 ** 22);
  for (const bytes of [0, 3, 70, 2 ** 21]) backend.write(x.memory, 5, new Uint8Array(bytes));
  for (let i = 0; i < 10; i++) backend.write(x.memory, i, new Uint8Array(2 ** 20 - 100));
  // To the last byte of a piece, and one more.
  for (const bytes of [2 ** 20, 2 ** 19, 2 ** 19, 2 ** 19 + 1, 2 ** 19, 2 ** 20 + 1])
    backend.write(x.memory, 0, new Uint8Array(bytes));
};
/** Reads wait without blocking, in pieces; an index out of range is told of by what was made with it. */
const reads: Program = async (m) => {
  const { gpu, backend, view } = m;
  const x = view('u8', 2 ** 26);
  backend.readSync(x.memory, 4, new Uint8Array(8));
  gpu.looks = 2;
  await backend.read(x.memory, 16, new Uint8Array(2 * 2 ** 24 + 5));
  await Promise.all([backend.read(x.memory, 0, new Uint8Array(9)), backend.read(x.memory, 9, new Uint8Array(9))]);
  gpu.looks = 1;
  await backend.sync();
  const [table, ids, out, other] = [view('f32', 10, 7), view('i64', 3, 7), view('f32', 3, 7), view('f32', 10, 7)];
  run(m, 'gather', [table, ids], out, { dim: 0 });
  backend.readSync(out.memory, 0, new Uint8Array(4));
  gpu.note('nothing is looked at twice');
  backend.readSync(out.memory, 0, new Uint8Array(4));
  run(m, 'gather', [table, ids], out, { dim: 0 });
  gpu.content = 1;
  await refused(m, () => backend.readSync(other.memory, 0, new Uint8Array(4)));
  gpu.content = 0;
  await refused(m, () => backend.readSync(other.memory, 0, new Uint8Array(4)));
  for (let i = 0; i < 2; i++) await refused(m, () => backend.read(out.memory, 0, new Uint8Array(4)));
  run(m, 'gather', [table, ids], out, { dim: 0 });
  await refused(m, () => backend.readSync(out.memory, 0, new Uint8Array(4)));
  run(m, 'gather', [table, ids], out, { dim: 0 });
  gpu.content = 1;
  await refused(m, () => backend.sync());
  gpu.failing = { at: 'copyOutAsync', with: driverError() };
  await refused(m, () => backend.read(x.memory, 0, new Uint8Array(4)));
  await refused(m, () => backend.read(x.memory, 0, new Uint8Array(4)));
};
/** From GPU to GPU: the copy begins when the block is free there, and is there when that is waited for. */
const copies: Program = async (m) => {
  const { gpu, backend, view } = m;
  const there = new (class extends WatchedGpu {
    override note(what: string): void {
      super.note(`there: ${what}`);
    }
  })({ ...gpu.info, name: 'the other' });
  Object.assign(there, { driver: gpu.driver, list: gpu.list });
  const other = new GpuBackend('other', there);
  gpu.note(
    `reaches: ${backend.reaches(other)}, one of another driver: ` +
      `${backend.reaches(new GpuBackend('x', new WatchedGpu(gpu.info)))}`,
  );
  const to = other.alloc(4096);
  backend.copyTo(other, view('f32', 1024).memory, 16, to, 64);
  const [table, ids, out] = [view('f32', 10, 7), view('i64', 3, 7), view('f32', 3, 7)];
  run(m, 'gather', [table, ids], out, { dim: 0 });
  gpu.content = 1;
  await refused(m, () => backend.copyTo(other, out.memory, 0, to, 64));
};
/** Recordings, and every call that may fail while one is made. */
const recordings: Program = async (m) => {
  const { gpu, backend, view } = m;
  const [x, y] = [view('f32', 2000), view('f32', 2000)];
  const [table, ids, out] = [view('f32', 10, 7), view('i64', 3, 7), view('f32', 3, 7)];
  const exp = (): void => run(m, 'exp', [x], y);
  const chain = (): void => {
    const { memory } = view('f32', 9999);
    exp();
    backend.free(memory);
  };
  const say = (): void => gpu.note(JSON.stringify(backend.memory()));
  const gather = (): void => run(m, 'gather', [table, ids], out, { dim: 0 });
  exp();
  gather();
  backend.readSync(out.memory, 0, new Uint8Array(4));
  const first = backend.capture(chain);
  const beside = backend.capture(() => (chain(), gather()), first);
  first.launch();
  first.dispose();
  first.dispose();
  await refused(m, () => first.launch());
  beside.launch();
  backend.readSync(x.memory, 0, new Uint8Array(4));
  beside.dispose();
  const after = backend.capture(chain, beside);
  after.stop('for a reason');
  await refused(m, () => after.launch());
  after.dispose();
  say();
  // Held once, however often it is read; what is made within is the recording's own.
  const twice = (): void => {
    const made = view('f32', 2000);
    run(m, 'add', [x, x], made);
    run(m, 'exp', [made], y);
    backend.free(made.memory);
  };
  twice();
  const held = backend.capture(twice, undefined, { hold: true });
  const spare = view('f32', 2000);
  await refused(m, () =>
    backend.capture(
      () => {
        run(m, 'exp', [spare], y);
        backend.free(spare.memory);
      },
      undefined,
      { hold: true },
    ),
  );
  backend.free(x.memory);
  gpu.note(`not ${x.memory.address}: ${view('f32', 2000).memory.address}`);
  held.dispose();
  gpu.note(`free again: ${view('f32', 2000).memory.address}`);
  say();
  const steps: [string, string, Error][] = [
    ['f fails', '', driverError()],
    ['the recording cannot begin', 'recorded from here', driverError()],
    ['a launch fails', 'flat_exp', driverError()],
    ['the recording fails at its end', 'recorded up to here', driverError()],
    ['it cannot be instantiated', 'instantiate', driverError()],
    ['no room once', 'alloc', full()],
  ];
  for (const [what, at, error] of steps) {
    gpu.note(`where ${what}`);
    gpu.failing = at ? { at, with: error } : undefined;
    await refused(m, () => backend.capture(() => (chain(), at || assertFails())).dispose());
    gpu.failing = undefined;
    exp();
    say();
  }
  gpu.note('where f fails, and so does the end of the recording');
  for (const error of [driverError(), new TypeError('of the program')])
    await refused(m, () =>
      backend.capture(() => {
        gpu.failing = { at: 'recorded up to here', with: error };
        assertFails();
      }),
    );
  gpu.note('where there is no room at all');
  await refused(m, () =>
    backend.capture(() => {
      const { alloc } = gpu;
      gpu.alloc = () => {
        throw full();
      };
      try {
        chain();
      } finally {
        gpu.alloc = alloc;
      }
    }),
  );
  gpu.note('where numbers are asked for while work is recorded');
  const y4 = new Uint8Array(4);
  for (const call of [() => backend.readSync(y.memory, 0, y4), () => backend.write(y.memory, 0, y4)])
    await refused(m, () => backend.capture(call));
  const reading: Promise<unknown>[] = [];
  backend.capture(() => void reading.push(refused(m, () => backend.read(y.memory, 0, y4)))).dispose();
  await Promise.all(reading);
  exp();
  say();
};
const assertFails = (): never => {
  throw new RangeError('f fails');
};
/** Outside of recordings: modules that do not load, memory that runs out. */
const failures: Program = async (m) => {
  const { gpu, backend, view } = m;
  const [x, y] = [view('f32', 100), view('f32', 100)];
  gpu.failing = { at: 'module', with: driverError() };
  await refused(m, () => run(m, 'exp', [x], y));
  run(m, 'exp', [x], y);
  const wide = view('f32', 60, 60);
  gpu.failing = { at: 'softmax', with: driverError() };
  await refused(m, () => run(m, 'softmax', [wide], view('f32', 60, 60), { dim: 0 }));
  gpu.note(JSON.stringify(backend.memory()));
  backend.free(view('f32', 50000).memory);
  gpu.failing = { at: 'alloc', with: full() };
  gpu.note(`after blocks were given back: ${view('f32', 70000).memory.address}`);
  gpu.failing = { at: 'alloc', with: driverError() };
  await refused(m, () => view('f32', 90000));
  gpu.allocAsync = () => {
    throw full();
  };
  await refused(m, () => view('f32', 90000));
  gpu.note(JSON.stringify(backend.memory()));
};

export const WAITS: Readonly<Record<string, Program>> = { streams, uploads, reads, copies, recordings, failures };
