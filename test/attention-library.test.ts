// Attention by a vendor's library, without its hardware: cuDNN's graphs on a stand-in that runs them node by node, as
// their descriptors say.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import '../src/index.js';
import type { View } from '../src/backends/backend.js';
import { GpuContext } from '../src/backends/gpu/context.js';
import { planRow } from '../src/backends/gpu/families.js';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Libraries } from '../src/backends/gpu/libraries.js';
import { runPlan } from '../src/backends/gpu/run-plan.js';
import { bytesOf, DTYPE, type DType } from '../src/base/dtype.js';
import { OutOfMemoryError } from '../src/base/errors.js';
import { Layout } from '../src/base/layout.js';
import { sizeOf } from '../src/base/shape.js';
import type { AttentionLibrary } from '../src/driver/attention.js';
import { Calls } from '../src/driver/checked-calls.js';
import { CudnnAttentions } from '../src/driver/cudnn-attention.js';
import { CUDNN_GRAPH_NUMBERS as N, CUDNN_GRAPH_TABLE } from '../src/driver/cudnn-graph.js';
import { openCudnn } from '../src/driver/cudnn.js';
import type { Dnn } from '../src/driver/dnn.js';
import { Cell } from '../src/driver/ffi.js';
import { cudnnStandIn } from '../src/stand-ins/cudnn.js';
import { StandIn, standInCalls } from '../src/stand-ins/library.js';
import { type SdpaParams } from '../src/ops/attention-reference.js';
import { OPS } from '../src/ops/table.js';
import { type AttentionCase, specOf } from '../scripts/cudnn-attention-cases.js';
import { Device } from '../src/tensor/device.js';
import { randn } from '../src/index.js';
import {
  altered,
  apart,
  attend,
  CASES,
  device,
  NEAR,
  numbers,
  open,
  read,
  swap,
  tampered,
} from './attention-library-cases.js';

describe('what the library is asked for is what attention is', () => {
  const library = open(() => cudnnStandIn(device));
  for (const c of CASES)
    test(c.name, () => {
      const far = apart(attend(library, c));
      assert.ok(far < NEAR, `${far} apart`);
      assert.ok(apart(attend(library, c, 1)) < NEAR);
    });
  test('what some queries would see nothing of is refused by a sentence', () => {
    const c = CASES.find((x) => x.name.includes('more queries')) as AttentionCase;
    assert.match(String(library.plan({ ...specOf(c), right: 0 })), /some would see none/);
    assert.match(String(library.plan({ ...specOf(c), dim: 12 })), /head dimension 12/);
    assert.match(String(library.plan({ ...specOf(c), strides: {} })), /no strides of q/);
    const q = [4, 4, 4] as const;
    assert.match(String(library.plan({ ...specOf(c), strides: { ...specOf(c).strides, q } })), /multiples of 8/);
  });
});

test('a deterministic backward pass whose scores are many goes by parts of the batch', () => {
  const library = cudnnStandIn(device);
  const rules = { errorName: String, outOfMemory: [] };
  const calls = new Calls(CUDNN_GRAPH_TABLE, library.bind(CUDNN_GRAPH_TABLE), rules);
  const cell = new Cell();
  const { create, setStream } = library.bind({
    create: 'int cudnnCreate(void *handle)',
    setStream: 'int cudnnSetStream(uintptr_t handle, uintptr_t stream)',
  });
  create(cell.raw);
  const handle = cell.value;
  const use = (s: number): void => void setStream(handle, s);
  const odd = CASES.find((x) => x.kind === 'backward' && x.deterministic && x.batch === 3) as AttentionCase;
  const c = { ...odd, heads: 4, kvHeads: 2, tq: 6, tk: 9 };
  const entry = 2 * c.heads * 64 * 64;
  const executed = (): number => standInCalls.get('cudnnBackendExecute') ?? 0;
  for (const [room, runs] of [
    [3 * entry, 1],
    [2 * entry, 3],
  ] as const) {
    const parts = new CudnnAttentions('cuDNN', 92400, calls, { handle }, room, use);
    const before = executed();
    assert.ok(apart(attend(parts, c)) < NEAR);
    assert.equal(executed() - before, runs);
    parts.dispose();
  }
  const none = new CudnnAttentions('cuDNN', 92400, calls, { handle }, entry - 1, use);
  assert.match(String(none.plan(specOf(c))), /too many to keep/);
  const unaligned = new CudnnAttentions('cuDNN', 92400, calls, { handle }, 2 * entry, use);
  assert.match(String(unaligned.plan(specOf({ ...c, heads: 5, kvHeads: 5, tq: 5 }))), /too many to keep/);
  const old = new CudnnAttentions('cuDNN', 91000, calls, { handle }, entry, use);
  assert.match(String(old.plan(specOf(c))), /from cuDNN 9.11 on/);
});

// ---- the backend ----

describe('attention of tensors', () => {
  const here = Device.get('sim:32+cudnn');
  const { libraries } = (here.backend as GpuBackend).context;
  const executed = (): number => standInCalls.get('cudnnBackendExecute') ?? 0;
  /** Result and gradients of one call, and how often the library ran. */
  function once(run: { tried: boolean; way?: number }, options: object = { causal: true }) {
    Object.assign(libraries, { attentionTried: run.tried, attentionFrom: 0, attentionPatience: 0 });
    const own = libraries.wayOf;
    if (run.way !== undefined) libraries.wayOf = () => run.way;
    const before = executed();
    const make = (heads: number, seed: number) =>
      randn([2, heads, 8, 16], { device: here, dtype: 'bf16', seed, requiresGrad: true });
    const [q, k, v] = [make(4, 1), make(2, 2), make(2, 3)];
    const out = q.sdpa(k, v, options);
    const grads = out
      .cast('f32')
      .mul(randn([2, 4, 8, 16], { device: here, seed: 4 }))
      .sum()
      .backward();
    const values = [out, ...[q, k, v].map((t) => grads.get(t))].map((t) => t?.cast('f32').dataSync() as Float32Array);
    libraries.wayOf = own;
    Object.assign(libraries, { attentionTried: false });
    return { values, runs: executed() - before };
  }
  const close = (a: readonly Float32Array[], b: readonly Float32Array[]): void =>
    a.forEach((x, i) => {
      const size = x.reduce((m, y) => Math.max(m, Math.abs(y)), 0);
      x.forEach((y, j) => assert.ok(Math.abs(y - b[i][j]) <= size / 64, `result ${i}: ${y} and ${b[i][j]}`));
    });

  test('the library serves both passes where it was found the best, and answers as our kernels do', () => {
    const own = once({ tried: false });
    assert.equal(own.runs, 0);
    const theirs = once({ tried: true, way: 0 });
    assert.equal(theirs.runs, 2);
    close(own.values, theirs.values);
  });
  test('the first run tries the library, whichever is chosen: the result is right', () => {
    const own = once({ tried: false });
    const first = once({ tried: true });
    assert.ok(first.runs >= 2, 'both passes were tried');
    close(own.values, first.values);
  });
  /** The forward pass in a context with this library, and what was warned of. */
  async function inContext(find: () => StandIn, recording: boolean) {
    const dnn = openCudnn(device, find);
    const gpu = new GpuContext(device, { blas: 'none', dnn });
    Object.assign(gpu.libraries, { attentionTried: true, attentionFrom: 0, attentionPatience: 0 });
    const shape = [1, 2, 8, 16];
    const view = (s: number[], dtype: DType, values?: number[]): View => {
      const memory = gpu.allocator.alloc(sizeOf(s) * bytesOf(dtype));
      if (values) {
        const { Raw, encode } = DTYPE[dtype];
        const raw = Uint16Array.from(values, (x) => encode(x as never) as number);
        assert.equal(Raw, Uint16Array);
        device.copyIn(memory.address, new Uint8Array(raw.buffer), gpu.stream);
      }
      return { memory, layout: Layout.contiguous(s), dtype };
    };
    const inputs = [1, 2, 3].map((seed) => view(shape, 'bf16', numbers(shape, 'bf16', seed)));
    const params: SdpaParams = {
      layout: 'bhtd',
      scale: 0.25,
      softcap: 0,
      left: -1,
      right: 0,
      extras: [],
      longest: [0, 0],
    };
    const warnings: string[] = [];
    const hear = (w: Error): void => void warnings.push(w.message);
    process.on('warning', hear);
    const run = (served: boolean): number[] => {
      const out = [view(shape, 'bf16'), view([1, 2, 8], 'f32')];
      const plan = planRow(OPS.sdpaRun, inputs, out, params, device.info, served ? gpu.libraries : undefined);
      runPlan(gpu, plan, 'sdpaRun', out);
      return read(out[0].memory.address, sizeOf(shape), 'bf16');
    };
    const own = run(false);
    const before = executed();
    gpu.recording = recording ? new Set() : undefined;
    const theirs = run(true);
    const runs = executed() - before;
    await new Promise((done) => setImmediate(done)); // warnings are told in the next turn
    process.off('warning', hear);
    return { own, theirs, runs, warnings };
  }
  test('a library that answers otherwise than our kernels is not used, with a warning', async () => {
    const alter = altered([N.CUDNN_ATTR_POINTWISE_MODE, swap(303, 302)]);
    const find = () => tampered(cudnnStandIn(device), 'cudnnBackendSetAttribute', alter);
    const { own, theirs, runs, warnings } = await inContext(find, false);
    assert.ok(runs > 0);
    assert.deepEqual(theirs, own);
    assert.match(warnings.join(), /differs from wick's own/);
  });
  test('nothing is tried while work is recorded', async () => {
    const { own, theirs, runs, warnings } = await inContext(() => cudnnStandIn(device), true);
    assert.deepEqual([theirs, runs, warnings], [own, 0, []]);
  });
  test('a shape gets a plan at once where it is trained, else when our own kernels have spent their time on it', () => {
    const asked: unknown[] = [];
    const attention: AttentionLibrary = {
      most: 1,
      plan: (spec) => {
        asked.push(spec);
        return 'none';
      },
      run: () => {},
    };
    const made = () => new Libraries(() => ({ blas: 'none', dnn: { attention } as unknown as Dnn }));
    const { deterministic: _, ...spec } = specOf(CASES[0]);
    const large = { ...spec, kind: 'forward' as const, batch: 4, heads: 32, tq: 4096, tk: 4096, dim: 128, right: 0 };
    const calls = (libraries: Libraries, n: number, trained: boolean, change: (i: number) => object): number => {
      const before = asked.length;
      for (let i = 0; i < n; i++) libraries.attention({ ...large, ...change(i) }, trained);
      return asked.length - before;
    };
    assert.equal(libraries.attentionTried, false, 'the tests above leave it off');
    assert.equal(made().attentionTried, true, 'it is on by itself');
    assert.equal(
      calls(made(), 1, true, () => ({})),
      1,
    );
    // Half of 1.1e12 operations, 182 times, are a quarter of a second at 4e14 a second.
    assert.equal(
      calls(made(), 181, false, () => ({})),
      0,
    );
    assert.equal(
      calls(made(), 182, false, () => ({})),
      1,
    );
    // Prompts of ever new lengths get none, however many there are; batches of ever new lengths a few.
    assert.equal(
      calls(made(), 5000, false, (i) => ({ tq: 4096 + i, tk: 4096 + i })),
      0,
    );
    assert.equal(
      calls(made(), 50, true, (i) => ({ tq: 4096 + i, tk: 4096 + i })),
      8,
    );
    // What is over in microseconds is left to our own kernels.
    assert.equal(
      calls(made(), 5000, true, () => ({ batch: 1, heads: 1, tq: 128, tk: 128 })),
      0,
    );
  });
  test('where there is no room for what the library needs, our own kernels serve', () => {
    const own = once({ tried: false });
    const scratch = (here.backend as GpuBackend).context.scratch;
    (here.backend as GpuBackend).context.scratch = () => {
      throw new OutOfMemoryError('none left');
    };
    try {
      const theirs = once({ tried: true, way: 0 });
      assert.equal(theirs.runs, 0);
      assert.deepEqual(theirs.values, own.values);
    } finally {
      (here.backend as GpuBackend).context.scratch = scratch;
    }
  });
  test('where the library serves a backward pass, nothing is launched beside it', () => {
    const { context } = here.backend as GpuBackend;
    const own = libraries.wayOf;
    const launches = (way: number, options: object): number => {
      Object.assign(libraries, { attentionTried: true, attentionFrom: 0, attentionPatience: 0, wayOf: () => way });
      const [q, k, v, grad] = [1, 2, 3, 4].map((seed) => randn([2, 4, 8, 16], { device: here, dtype: 'bf16', seed }));
      for (const t of [q, k, v]) t.requireGrad();
      const out = q.sdpa(k, v, { causal: true, ...options });
      const asked = context.launched;
      context.launched = new Set();
      out.backward({ grad });
      const { size } = context.launched;
      context.launched = asked;
      Object.assign(libraries, { attentionTried: false, wayOf: own });
      return size;
    };
    assert.equal(launches(0, {}), 0);
    assert.equal(launches(-1, {}), 3, 'delta, the side of queries, that of keys');
    assert.equal(launches(0, { softcap: 5 }), 3);
  });
  test('soft caps are for our own kernels', () => {
    assert.equal(once({ tried: true, way: 0 }, { causal: true, softcap: 5 }).runs, 0);
  });
  test('gradients may be added up in any order when that is asked for', () => {
    here.deterministic = false;
    try {
      const theirs = once({ tried: true, way: 0 }, { window: 3 });
      here.deterministic = true;
      assert.equal(theirs.runs, 2);
      close(once({ tried: false }, { window: 3 }).values, theirs.values);
    } finally {
      here.deterministic = true;
    }
    assert.throws(() => (here.deterministic = 1 as never), /neither true nor false/);
  });
});
