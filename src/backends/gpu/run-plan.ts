// Runs plans: names become addresses, temporary memory lives for the time of the plan, arguments are packed as the
// kernel declares them.
import { bytesOf } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import type { Address, Fn } from '../../driver/driver.js';
import { type Entry, packEntry } from '../../kernels/declare.js';
import type { Memory, View } from '../backend.js';
import type { GpuMemory } from './allocator.js';
import type { GpuContext } from './context.js';
import { runCast, runCopy } from './movement.js';
import { type Buffers, type Launch, type Operand, type Plan, Temporary, valuesOf } from './plan.js';

interface Ready {
  readonly fn: Fn;
  readonly entry: Entry;
  /** Dynamic shared memory this function may use by now. */
  shared: number;
}
const ready = new WeakMap<GpuContext, Map<string, Ready>>();
/** What a block may use without asking. */
const SHARED_AS_IS = 48 << 10;

function prepare(gpu: GpuContext, l: Launch): Ready {
  let known = ready.get(gpu);
  if (!known) ready.set(gpu, (known = new Map()));
  let r = known.get(l.symbol);
  if (!r) {
    r = { fn: gpu.functions.ofKernel(l.kernel, l.variant), entry: l.kernel.entry(l.variant), shared: SHARED_AS_IS };
    known.set(l.symbol, r);
  }
  if (l.shared > r.shared) {
    gpu.device.setMaxDynamicShared(r.fn, l.shared);
    r.shared = l.shared;
  }
  return r;
}

/** Enqueues one launch. */
export function enqueue(
  gpu: GpuContext,
  l: Launch,
  buffer: (name: string) => Address,
  address: (v: Operand) => Address,
): void {
  const { fn, entry } = prepare(gpu, l);
  packEntry(gpu.args, entry, valuesOf(l, entry, buffer, address));
  gpu.launch(fn, ...l.grid, ...l.block, l.shared, l.early);
}

/** Enqueues a plan's steps; `op` is who is blamed for an index out of range, and `outputs` are what is void then. */
export function runPlan(gpu: GpuContext, plan: Plan, op: string, outputs: readonly View[]): void {
  const taken: GpuMemory[] = [];
  const memories = new Map<Memory, GpuMemory>();
  const take = (bytes: number): GpuMemory => {
    const memory = gpu.allocator.alloc(bytes);
    taken.push(memory);
    return memory;
  };
  const memoryOf = (m: Memory): Memory => {
    if (!(m instanceof Temporary)) return m;
    let memory = memories.get(m);
    if (!memory) memories.set(m, (memory = take(m.bytes)));
    return memory;
  };
  const placed = (v: View): View =>
    v.memory instanceof Temporary ? { memory: memoryOf(v.memory), layout: v.layout, dtype: v.dtype } : v;
  const address = (v: Operand): Address =>
    'fault' in v ? gpu.fault(op, outputs) : memoryOf(v.memory).address + v.layout.offset * bytesOf(v.dtype);
  const find = (buffers: Buffers, scratch: Address | undefined, name: string): Address => {
    if (name === 'scratch' && scratch !== undefined) return scratch;
    const b = buffers[name];
    if (b === undefined) return 0;
    if ('layout' in b) return address(b);
    return 'upload' in b ? uploaded(gpu, b.upload) : gpu.fault(op, outputs);
  };
  try {
    for (const step of plan) {
      if ('copy' in step) runCopy(gpu, undefined, [placed(step.copy)], [placed(step.to)]);
      else if ('cast' in step) runCast(gpu, undefined, [placed(step.cast)], [placed(step.to)], step.to);
      else if ('fill' in step) gpu.fill(placed(step.fill), step.value);
      else {
        const scratch = step.scratch > 0 ? take(step.scratch).address : undefined;
        for (const l of step.launches) enqueue(gpu, l, (name) => find(step.buffers, scratch, name), address);
      }
    }
  } finally {
    for (const m of taken) gpu.allocator.free(m);
  }
}

const infos = new WeakMap<GpuContext, Map<string, GpuMemory>>();
/** Numbers in device memory, 64 bits each: uploaded once per content, so that no launch uploads anything. */
function uploaded(gpu: GpuContext, values: readonly number[]): Address {
  let known = infos.get(gpu);
  if (!known) infos.set(gpu, (known = new Map()));
  const key = values.join();
  let memory = known.get(key);
  if (!memory) {
    memory = gpu.allocator.alloc(Math.max(8, values.length * 8));
    const data = BigInt64Array.from(values, BigInt);
    gpu.device.copyIn(memory.address, new Uint8Array(data.buffer), gpu.stream);
    known.set(key, memory);
  }
  return memory.address;
}

/** Runs f on views that satisfy a condition, each copied to the start of a block of its own where it does not. */
export function withCopies(
  gpu: GpuContext,
  views: readonly View[],
  asItIs: (v: View) => boolean,
  f: (views: readonly View[]) => void,
): void {
  const taken: GpuMemory[] = [];
  try {
    f(
      views.map((v) => {
        if (asItIs(v)) return v;
        const memory = gpu.allocator.alloc(Math.max(1, v.layout.size * bytesOf(v.dtype)));
        taken.push(memory);
        const copy = { memory, dtype: v.dtype, layout: Layout.contiguous(v.layout.shape) };
        runCopy(gpu, undefined, [v], [copy]);
        return copy;
      }),
    );
  } finally {
    for (const m of taken) gpu.allocator.free(m);
  }
}
