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
import { Cell, type NativeArg, type Table } from '../src/driver/ffi.js';
import { openSim } from '../src/driver/sim.js';
import { cudnnStandIn } from '../src/stand-ins/cudnn.js';
import { type HostedDevice, Misuse, StandIn, standInCalls } from '../src/stand-ins/library.js';
import { referenceBackward, referenceForward, type SdpaParams } from '../src/ops/attention-reference.js';
import type { RefTensor } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';
import { attentionCases, type AttentionCase, specOf } from '../scripts/cudnn-attention-cases.js';
import { Device } from '../src/tensor/device.js';
import { randn } from '../src/index.js';

const device = openSim().open(32) as HostedDevice;
const stream = device.createStream();

// ---- one problem: its numbers on the device and what the reference makes of them ----

/** Numbers of a dtype, the same for every run of the tests. */
function numbers(shape: readonly number[], dtype: DType, seed: number): number[] {
  const { encode, decode } = DTYPE[dtype];
  let state = seed >>> 0;
  return Array.from({ length: sizeOf(shape) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Number(decode(encode(state / 2 ** 31 - 1) as never));
  });
}
const place = (count: number, dtype: DType, values?: readonly number[]): number => {
  const { Raw, encode, bytes } = DTYPE[dtype];
  const address = device.alloc(Math.max(256, count * bytes));
  const raw = new Raw(new ArrayBuffer(count * bytes)) as unknown as number[];
  for (let i = 0; i < count; i++) raw[i] = encode((values?.[i] ?? Number.NaN) as never) as number;
  device.copyIn(address, new Uint8Array((raw as unknown as Uint16Array).buffer), stream);
  return address;
};
const placeInts = (values: readonly number[]): number => {
  const address = device.alloc(256 + 4 * values.length);
  device.copyIn(address, new Uint8Array(Int32Array.from(values).buffer), stream);
  return address;
};
function read(address: number, count: number, dtype: DType): number[] {
  const { Raw, decode } = DTYPE[dtype];
  const bytes = new Uint8Array(count * bytesOf(dtype));
  device.copyOut(bytes, address, stream);
  return Array.from(new Raw(bytes.buffer) as Iterable<number>, (r) => Number(decode(r as never)));
}

interface Outcome {
  readonly got: Readonly<Record<string, number[]>>;
  readonly wanted: Readonly<Record<string, number[]>>;
}
/** Runs a case by the library's way and by the reference. */
function attend(library: AttentionLibrary, c: AttentionCase, way = 0): Outcome {
  const spec = specOf(c);
  const plan = library.plan(spec);
  assert.ok(typeof plan !== 'string', `${c.name}: ${String(plan)}`);
  const { dtype } = c;
  const shape = (heads: number, rows: number, batch = c.batch): number[] =>
    c.layout === 'bhtd' ? [batch, heads, rows, c.dim] : [batch, rows, heads, c.dim];
  const pages = spec.paged;
  const keyShape = pages ? shape(c.kvHeads, pages.rows, pages.pages) : shape(c.kvHeads, c.tk);
  const qShape = shape(c.heads, c.tq);
  const q = numbers(qShape, dtype, 1);
  const [k, v] = [numbers(keyShape, dtype, 2), numbers(keyShape, dtype, 3)];
  const ref = (data: number[], s: readonly number[], d: DType = dtype): RefTensor => ({ shape: s, dtype: d, data });
  const lseShape = [c.batch, c.heads, c.tq];
  const table = pages && Array.from({ length: c.batch * pages.columns }, (_, i) => c.batch * pages.columns - 1 - i);
  const params: SdpaParams = {
    layout: c.layout,
    scale: spec.scale,
    softcap: 0,
    left: c.left,
    right: c.right,
    extras: [...(c.counts ? (['lengths'] as const) : []), ...(pages ? (['pages'] as const) : [])],
    longest: [0, 0],
  };
  const rest = [
    ...(c.counts ? [ref([...c.counts], [c.batch], 'i32')] : []),
    ...(pages && table ? [ref(table, [c.batch, pages.columns], 'i32')] : []),
  ];
  const zeros = (s: readonly number[]): number[] => new Array<number>(sizeOf(s)).fill(0);
  const [out, lse] = [zeros(qShape), zeros(lseShape)];
  const inputs = [ref(q, qShape), ref(k, keyShape), ref(v, keyShape)];
  referenceForward([...inputs, ...rest], [ref(out, qShape), ref(lse, lseShape, 'f32')], params);
  const at = {
    q: place(q.length, dtype, q),
    k: place(k.length, dtype, k),
    v: place(v.length, dtype, v),
    out: place(out.length, dtype),
    lse: place(lse.length, 'f32'),
    ...(c.counts && { keyCounts: placeInts(c.counts), queryCounts: placeInts(new Array(c.batch).fill(c.tq)) }),
    ...(table && { pageTable: placeInts(table) }),
  };
  const workspace = device.alloc(Math.max(256, plan.ways[way].workspaceBytes));
  if (c.kind === 'forward') {
    library.run(plan, way, at, workspace, stream);
    return {
      wanted: { out, lse },
      got: { out: read(at.out, out.length, dtype), lse: read(at.lse, lse.length, 'f32') },
    };
  }
  const dout = numbers(qShape, dtype, 4);
  const { encode, decode } = DTYPE[dtype];
  const rounded = out.map((x) => Number(decode(encode(x as never) as never)));
  const delta = zeros(lseShape);
  for (let b = 0; b < c.batch; b++)
    for (let h = 0; h < c.heads; h++)
      for (let i = 0; i < c.tq; i++) {
        const row = c.layout === 'bhtd' ? (b * c.heads + h) * c.tq + i : (b * c.tq + i) * c.heads + h;
        for (let d = 0; d < c.dim; d++)
          delta[(b * c.heads + h) * c.tq + i] += rounded[row * c.dim + d] * dout[row * c.dim + d];
      }
  const [dq, dk, dv] = [zeros(qShape), zeros(keyShape), zeros(keyShape)];
  const sums = [ref(lse, lseShape, 'f32'), ref(delta, lseShape, 'f32')];
  const grads = [ref(dq, qShape), ref(dk, keyShape), ref(dv, keyShape)];
  referenceBackward([...inputs, ref(dout, qShape), ...sums], grads, params);
  const to = { dq: place(dq.length, dtype), dk: place(dk.length, dtype), dv: place(dv.length, dtype) };
  const given = {
    ...at,
    ...to,
    out: place(rounded.length, dtype, rounded),
    lse: place(lse.length, 'f32', lse),
    dout: place(dout.length, dtype, dout),
  };
  library.run(plan, way, given, workspace, stream);
  return {
    wanted: { dq, dk, dv },
    got: {
      dq: read(to.dq, dq.length, dtype),
      dk: read(to.dk, dk.length, dtype),
      dv: read(to.dv, dv.length, dtype),
    },
  };
}
/** The largest difference by the largest number wanted, or infinity where one is not finite. */
function apart({ got, wanted }: Outcome): number {
  let most = 0;
  for (const [name, want] of Object.entries(wanted)) {
    const size = Math.max(...want.map(Math.abs));
    want.forEach((x, i) => {
      const far = Math.abs(x - got[name][i]) / size;
      most = Math.max(most, Number.isFinite(far) ? far : Infinity);
    });
  }
  return most;
}
function open(find: () => StandIn): AttentionLibrary {
  const library = (openCudnn(device, find) as Dnn).attention as AttentionLibrary;
  library.most = 2;
  return library;
}
/** A bound on the rounding of weights to 16 bits. */
const NEAR = 1 / 64;

// ---- the graphs are right ----

/** The script's cases, cut down to what a host reckons in no time. */
const CASES = attentionCases(true)
  .filter((c) => c.name !== 'forward queries that see nothing 3x4/2x64/512x128 bf16')
  .map((c): AttentionCase => {
    const small = (n: number): number => Math.max(1, Math.ceil(n / 16));
    const page = c.page && 4;
    const tk = page ? 16 : c.counts ? 24 : small(c.tk);
    const tq = c.counts && c.tq > 1 ? 4 : small(c.tq);
    const bounds = { left: c.left < 0 ? -1 : small(c.left), right: c.right <= 0 ? c.right : small(c.right) };
    const counts = c.counts?.map((n) => Math.max(tq, Math.round((n * tk) / c.tk)));
    return { ...c, ...bounds, tq, tk, dim: c.dim === 96 ? 24 : 8, ...(counts && { counts }), ...(page && { page }) };
  });
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

// ---- a wrong descriptor is found out ----

/** A stand-in whose calls of one symbol get other arguments. */
function tampered(inner: StandIn, symbol: string, change: (args: NativeArg[]) => NativeArg[]): StandIn {
  return new (class extends StandIn {
    constructor() {
      super('cuDNN', {});
    }
    override bind<T extends Table>(table: T) {
      const bound = inner.bind(table);
      const key = Object.keys(table).find((k) => {
        const p = table[k];
        return (typeof p === 'string' ? p : p.optional).includes(`${symbol}(`);
      });
      if (key === undefined) return bound;
      const call = bound[key] as (...args: NativeArg[]) => number;
      return { ...bound, [key]: (...args: NativeArg[]) => call(...change(args)) };
    }
  })();
}
type Change = readonly [attribute: number, change: (values: number[], nth: number) => number[] | undefined];
/** Attributes of 8 bytes and of 4, as numbers. */
function altered([attribute, change]: Change): (args: NativeArg[]) => NativeArg[] {
  let nth = 0;
  return (args) => {
    if (args[1] !== attribute) return args;
    const bytes = (args[4] as Uint8Array).slice();
    const wide = bytes.length === 8 * (args[3] as number);
    const values = wide
      ? Array.from(new BigInt64Array(bytes.buffer), Number)
      : bytes.length === args[3]
        ? [...bytes]
        : [...new Int32Array(bytes.buffer)];
    const next = change(values, nth++);
    if (!next) return args;
    const raw = wide
      ? new Uint8Array(BigInt64Array.from(next, BigInt).buffer)
      : bytes.length === args[3]
        ? Uint8Array.from(next)
        : new Uint8Array(Int32Array.from(next).buffer);
    return [...args.slice(0, 3), next.length, raw];
  };
}
const swap =
  (from: number, to: number) =>
  ([v]: number[]): number[] | undefined =>
    v === from ? [to] : undefined;
const WRONG: Readonly<Record<string, Change>> = {
  'queries and dimension exchanged': [
    N.CUDNN_ATTR_TENSOR_DIMENSIONS,
    ([a, b, c, d], n) => (n === 0 ? [a, b, d, c] : undefined),
  ],
  'a stride of another layout': [
    N.CUDNN_ATTR_TENSOR_STRIDES,
    ([a, b, c, d], n) => (n === 0 ? [a, c, b, d] : undefined),
  ],
  'keys that are not turned': [N.CUDNN_ATTR_TENSOR_STRIDES, ([a, b, c, d], n) => (n === 1 ? [a, b, d, c] : undefined)],
  'two tensors of one number': [N.CUDNN_ATTR_TENSOR_UNIQUE_ID, swap(3, 2)],
  'a number that has no address': [N.CUDNN_ATTR_TENSOR_UNIQUE_ID, swap(4, 40)],
  'an alignment nobody keeps': [N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, () => [256]],
  'queries of another type': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, ([t], n) => (n === 0 ? [t === 9 ? 2 : 9] : undefined)],
  'numbers for truth values': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, swap(11, 0)],
  'a float for an index': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, swap(4, 0)],
  'values in memory': [N.CUDNN_ATTR_TENSOR_IS_BY_VALUE, () => [0]],
  'a tensor between two nodes in memory': [N.CUDNN_ATTR_TENSOR_IS_VIRTUAL, (_, n) => (n === 0 ? [0] : undefined)],
  'rows for columns': [N.CUDNN_ATTR_POINTWISE_AXIS, swap(3, 2)],
  'an axis of heads': [N.CUDNN_ATTR_POINTWISE_AXIS, swap(2, 1)],
  'a bound that leaves out the query itself': [N.CUDNN_ATTR_POINTWISE_MODE, swap(303, 302)],
  'a window one too long': [N.CUDNN_ATTR_POINTWISE_MODE, swap(302, 303)],
  'scores that are added, not multiplied': [N.CUDNN_ATTR_POINTWISE_MODE, swap(1, 0)],
  'a mode of nobody': [N.CUDNN_ATTR_POINTWISE_MODE, swap(13, 77)],
  'the sum for the largest': [N.CUDNN_ATTR_REDUCTION_OPERATOR, swap(3, 0)],
  'the largest for the sum': [N.CUDNN_ATTR_REDUCTION_OPERATOR, swap(0, 3)],
  'products in 16 bits': [N.CUDNN_ATTR_MATMUL_COMP_TYPE, swap(0, 2)],
  'sums in 16 bits': [N.CUDNN_ATTR_REDUCTION_COMP_TYPE, swap(0, 2)],
  'a node less': [N.CUDNN_ATTR_OPERATIONGRAPH_OPS, (ops) => ops.slice(0, -1)],
  'nodes in another order': [N.CUDNN_ATTR_OPERATIONGRAPH_OPS, (ops) => [...ops].reverse()],
  'addresses exchanged': [N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, ([a, b, ...rest]) => [b, a, ...rest]],
  'an address less': [N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, (ids) => ids.slice(0, -1)],
  'an address that is no multiple of 16': [N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, ([a, ...rest]) => [a + 8, ...rest]],
  'no workspace': [N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, () => [0]],
};
describe('a wrong descriptor is refused, or its numbers tell', () => {
  const window: Partial<AttentionCase> = { batch: 2, heads: 4, kvHeads: 2, tq: 6, tk: 9, dim: 8, left: 3, right: 0 };
  const base = CASES[0];
  const runs = { forward: { ...base, ...window }, backward: { ...base, ...window, kind: 'backward' as const } };
  const found = (change: (args: NativeArg[]) => NativeArg[], c: AttentionCase): boolean => {
    let touched = false;
    const find = () =>
      tampered(cudnnStandIn(device), 'cudnnBackendSetAttribute', (args) => {
        const next = change(args);
        touched ||= next !== args;
        return next;
      });
    try {
      const far = apart(attend(open(find), c));
      return touched && !(far < NEAR);
    } catch (e) {
      if (e instanceof Misuse || e instanceof assert.AssertionError) return touched;
      throw e;
    }
  };
  for (const [kind, c] of Object.entries(runs))
    for (const [what, change] of Object.entries(WRONG)) {
      // The backward pass has no such nodes.
      if (kind === 'backward' && what.startsWith('the sum for')) continue;
      test(`${kind}: ${what}`, () => assert.ok(found(altered(change), c)));
    }
  for (const [kind, c] of Object.entries(runs))
    test(`${kind}: nothing wrong is nothing found`, () =>
      assert.ok(
        apart(
          attend(
            open(() => cudnnStandIn(device)),
            c,
          ),
        ) < NEAR,
      ));
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
