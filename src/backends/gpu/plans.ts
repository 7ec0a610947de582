// Runs launch plans: names become addresses, scratch memory lives for the time of the plan, operands are made dense where kernels need it.
import { bytesOf } from '../../base/dtype.js';
import { Layout } from '../../base/layout.js';
import { sizeOf, type Shape } from '../../base/shape.js';
import type { Address, Fn } from '../../driver/driver.js';
import type { Entry } from '../../kernels/declare.js';
import type { Launch, Plan } from '../../kernels/launch.js';
import { type ArgValue, packEntry } from '../../kernels/declare.js';
import { parsedModule } from '../../kernels/source.js';
import type { View } from '../backend.js';
import type { GpuMemory } from './allocator.js';
import type { GpuContext } from './context.js';
import { runCopy } from './movement.js';

export type Buffers = Readonly<Record<string, Address>>;

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
    const entry = parsedModule(l.module).entries.get(l.symbol);
    r = { fn: gpu.functions.ofModule(l.module, l.symbol), entry: entry as Entry, shared: SHARED_AS_IS };
    known.set(l.symbol, r);
  }
  if (l.shared > r.shared) {
    gpu.device.setMaxDynamicShared(r.fn, l.shared);
    r.shared = l.shared;
  }
  return r;
}

/** Enqueues a plan; `buffers` names every buffer it mentions but 'scratch'. */
export function runPlan(gpu: GpuContext, plan: Plan, buffers: Buffers): void {
  if (plan.scratch > 0)
    gpu.scratch(plan.scratch, (scratch) => runLaunches(gpu, plan.launches, { ...buffers, scratch }));
  else runLaunches(gpu, plan.launches, buffers);
}

function runLaunches(gpu: GpuContext, launches: readonly Launch[], buffers: Buffers): void {
  for (const l of launches) {
    const { fn, entry } = prepare(gpu, l);
    const values = l.args.map(
      (a): ArgValue => (typeof a === 'number' || a instanceof Uint8Array ? a : buffers[a.buffer] + a.offset),
    );
    packEntry(gpu.args, entry, values);
    gpu.launch(fn, ...l.grid, ...l.block, l.shared, l.early);
  }
}

export const addressOf = (v: View): Address => v.memory.address + v.layout.offset * bytesOf(v.dtype);
/** Blocks are aligned to 256 bytes or more; what remains is the view's offset. */
export const aligned16 = (...views: readonly View[]): boolean => views.every((v) => addressOf(v) % 16 === 0);

/** Memory taken for one op and given back when it was enqueued. */
export class Temporaries {
  readonly #gpu: GpuContext;
  readonly #taken: GpuMemory[] = [];
  constructor(gpu: GpuContext) {
    this.#gpu = gpu;
  }
  /** A fresh contiguous view. */
  make(shape: Shape, dtype: View['dtype']): View {
    const memory = this.#gpu.allocator.alloc(Math.max(1, sizeOf(shape) * bytesOf(dtype)));
    this.#taken.push(memory);
    return { memory, dtype, layout: Layout.contiguous(shape) };
  }
  /** The view itself where it is contiguous, else a contiguous copy. */
  dense(v: View): View {
    return v.layout.isContiguous ? v : this.copy(v);
  }
  /** A contiguous copy, at the start of a block. */
  copy(v: View): View {
    const copy = this.make(v.layout.shape, v.dtype);
    runCopy(this.#gpu, undefined as never, [v], [copy]);
    return copy;
  }
  free(): void {
    for (const m of this.#taken) this.#gpu.allocator.free(m);
  }
}

export function withTemporaries(gpu: GpuContext, f: (t: Temporaries) => void): void {
  const t = new Temporaries(gpu);
  try {
    f(t);
  } finally {
    t.free();
  }
}

const infos = new WeakMap<GpuContext, Map<string, GpuMemory>>();
/** Dims and strides in device memory, 64 bits each: uploaded once per content, so that no launch uploads anything. */
export function infoAddress(gpu: GpuContext, values: readonly number[]): Address {
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

export const permuted = (v: View, dims: readonly number[]): View => ({ ...viewOf(v), layout: v.layout.permute(dims) });
export const reshaped = (v: View, shape: Shape): View => ({ ...viewOf(v), layout: v.layout.reshape(shape) as Layout });
export const viewOf = ({ memory, layout, dtype }: View): View => ({ memory, layout, dtype });
