// Runs plans: names become addresses, temporary memory lives for the time of the plan, arguments are packed as the
// kernel declares them.
import { bytesOf } from '../../base/dtype.js';
import { ArgumentError, OutOfMemoryError, UnsupportedError } from '../../base/errors.js';
import type { AttentionAddresses } from '../../driver/attention.js';
import type { Address, Fn } from '../../driver/driver.js';
import { type Entry, type FieldValues, packEntry, type Param } from '../../kernels/declare.js';
import type { Memory, View } from '../backend.js';
import { type GpuMemory, Pool } from './allocator.js';
import { tryWays } from './attention-trial.js';
import type { GpuContext } from './context.js';
import { FAULTS } from './factor.js';
import { launchChain } from './elementwise.js';
import { OWN_WAY } from './libraries.js';
import { NO_TROUBLE } from './matrices.js';
import { planFilled, runCopy } from './movement.js';
import {
  type AttentionRun,
  type Buffers,
  type ChainRun,
  type CustomRun,
  type FactorRun,
  FAULT,
  type Launch,
  type Launches,
  type Operand,
  type Plan,
  Planner,
  type Pointer,
  Slot,
  type Step,
  Temporary,
  type TroubleCheck,
  valuesOf,
} from './plan.js';

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
  // Work that is collected may never run: what it would have allowed is not allowed until it has.
  if (l.shared > r.shared) gpu.allowShared(r, l.shared);
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
  gpu.launch(fn, l.grid, l.block, l.shared, l.early);
}

/** A launch whose arguments are packed but for addresses that every run has its own of. */
export interface Packed {
  readonly fn: Fn;
  readonly launch: Launch;
  readonly bytes: Uint8Array;
  readonly pointers: readonly {
    /** Where its 8 bytes are. */
    readonly at: number;
    readonly of: Memory | typeof FAULT | typeof SCRATCH;
    /** Bytes from the beginning of what it points to. */
    readonly offset: number;
  }[];
  /** What it writes, and what it reads before its turn. */
  readonly written: readonly Memory[];
  readonly ahead: readonly Memory[];
}
const SCRATCH = Symbol('scratch');

function pack(gpu: GpuContext, l: Launch, { buffers, scratch }: Launches & { readonly buffers: Buffers }): Packed {
  const { fn, entry } = prepare(gpu, l);
  const pointers: Packed['pointers'][number][] = [];
  const [written, ahead]: Memory[][] = [[], []];
  const point = (at: number, to: Operand, offset: number, param: Param): number => {
    if ('fault' in to) {
      pointers.push({ at, of: to, offset });
      return 0;
    }
    pointers.push({ at, of: to.memory, offset: offset + to.layout.offset * bytesOf(to.dtype) });
    if (param.written) written.push(to.memory);
    if (param.name === l.ahead) ahead.push(to.memory);
    return 0;
  };
  const values = entry.params.map((p) => {
    const v = l.args[p.name];
    if (v === undefined) throw new TypeError(`${l.symbol}: no argument for parameter ${p.name}`);
    if (typeof v !== 'object') return v;
    if (p.struct) return p.struct.pack(v as FieldValues<any, Operand>, (to, at) => point(p.offset + at, to, 0, p));
    const { buffer, offset } = v as Pointer;
    if (buffer === 'scratch' && scratch > 0) pointers.push({ at: p.offset, of: SCRATCH, offset });
    const b = buffers[buffer];
    if (b === undefined) return offset;
    if ('upload' in b) return uploaded(gpu, b.name ?? b.upload.join(), () => words(b.upload)) + offset;
    return 'constants' in b ? uploaded(gpu, b.constants, b.make) + offset : point(p.offset, b, offset, p);
  });
  return { fn, launch: l, bytes: packEntry(gpu.args, entry, values).bytes(), pointers, written, ahead };
}

/** A plan on slots, and what was packed of its launches by now. */
export interface KeptPlan {
  readonly steps: Plan;
  readonly packed: Map<Launches, readonly Packed[]>;
}
/**
 * Enqueues a plan's steps; `op` is who is blamed for an index out of range, and `outputs` are what is void then. The
 * slots of a plan that is kept stand for `inputs`, then outputs.
 */
export function runPlan(
  gpu: GpuContext,
  plan: Plan | KeptPlan,
  op: string,
  outputs: readonly View[],
  inputs: readonly View[] = [],
): void {
  const run = new PlanRun(gpu, op, inputs, outputs, 'packed' in plan ? plan.packed : undefined);
  try {
    run.steps('packed' in plan ? plan.steps : plan);
  } finally {
    run.end();
  }
}

const isPlaced = ({ memory }: View): boolean => !(memory instanceof Temporary || memory instanceof Slot);

class PlanRun {
  readonly #gpu: GpuContext;
  readonly #op: string;
  readonly #inputs: readonly View[];
  readonly #outputs: readonly View[];
  readonly #packed: KeptPlan['packed'] | undefined;
  readonly #taken: GpuMemory[] = [];
  /** Blocks that stand for temporary memory. */
  #memories: Map<Memory, GpuMemory> | undefined;

  constructor(
    gpu: GpuContext,
    op: string,
    inputs: readonly View[],
    outputs: readonly View[],
    packed: KeptPlan['packed'] | undefined,
  ) {
    this.#gpu = gpu;
    this.#op = op;
    this.#inputs = inputs;
    this.#outputs = outputs;
    this.#packed = packed;
  }
  steps(plan: Plan): void {
    for (let i = 0; i < plan.length; i++) this.#step(plan[i]);
  }
  end(): void {
    if (this.#taken.length > 0) for (const memory of this.#taken.splice(0)) this.#gpu.allocator.free(memory);
  }
  /** A call of a library: now, or behind what waits, once it is ready; what it takes then goes back at once. */
  #inTurn(call: () => void, ready?: () => boolean): void {
    const { turn } = this.#gpu;
    if (!turn.taken && !ready) return call();
    turn.wait(() => {
      call();
      this.end();
    }, ready);
  }

  #step(step: Step): void {
    const gpu = this.#gpu;
    if ('chain' in step) launchChain(gpu, this.#placedChain(step));
    else if ('launches' in step) this.#launches(step);
    else if ('copy' in step) runCopy(gpu, this.#placed(step.copy), this.#placed(step.to));
    else if ('fill' in step) this.steps(filled(gpu, step.fill, step.value));
    else if ('custom' in step) this.#custom(step);
    else if ('attention' in step) this.#attention(step);
    else if ('factor' in step) this.#factor(step);
    else if ('trouble' in step) this.#check(step);
    else if ('convolution' in step) {
      const [x, filter, y] = [step.x, step.filter, step.y].map(this.#address);
      const { stream } = gpu;
      this.#inTurn(() => gpu.libraries.runConvolution(step.convolution, x, filter, y, stream));
    } else {
      const [a, b, to] = [step.a, step.b, step.to].map(this.#address);
      const bias = step.bias ? this.#address(step.bias) : 0;
      const { stream } = gpu;
      if (gpu.libraries.productsRefused) gpu.turn.finish(); // other kernels are planned while there are tensors
      this.#inTurn(() => {
        if (!gpu.libraries.runProduct(step.product, a, b, to, bias, stream)) this.steps(step.otherwise());
      });
    }
  }

  /** Where the library's attention was not tried yet, it is now; while work is recorded our own kernels serve. */
  #attention({ attention: plan, at, written, otherwise }: AttentionRun): void {
    const gpu = this.#gpu;
    const { libraries, stream, turn } = gpu;
    const addresses = Object.fromEntries(
      Object.entries(at).map(([name, v]) => [name, this.#address(v as View)]),
    ) as unknown as AttentionAddresses;
    const placed = written.map((v) => ({ address: this.#address(v), count: v.layout.size, dtype: v.dtype }));
    // Whoever waits has no tensors left to look at: our own kernels get their arguments, and are compiled, by now.
    const unknown = (): boolean => libraries.wayOf(plan) === undefined;
    // A plan that another thread is making is waited for; work that is recorded does not ask for it.
    const coming = unknown() && !gpu.recording && plan.pending === true;
    const late = turn.taken || coming ? turn.collect(() => this.steps(otherwise())) : undefined;
    const run = (way: number): void => {
      if (way === OWN_WAY) (late ?? (() => this.steps(otherwise())))();
      else
        gpu.scratch(plan.ways[way].workspaceBytes, (room) =>
          libraries.runAttention(plan, way, addresses, room, stream),
        );
    };
    const choose = (): number => {
      const way = plan.ways.length === 0 ? OWN_WAY : tryWays(gpu, plan.ways.length, placed, run);
      if (way !== undefined) libraries.keepWay(plan, way);
      return way ?? OWN_WAY;
    };
    const attend = (): void => {
      if (unknown() && !gpu.recording) return run(choose());
      const way = libraries.wayOf(plan) ?? OWN_WAY;
      try {
        run(way);
      } catch (e) {
        // Our own kernels need no room beside the results.
        if (!(e instanceof OutOfMemoryError) || way === OWN_WAY) throw e;
        run(OWN_WAY);
      }
    };
    this.#inTurn(attend, coming ? () => !plan.pending : undefined);
  }

  #launches(step: Launches & { readonly buffers: Buffers }): void {
    const room = step.scratch > 0 ? this.#take(step.scratch).address : 0;
    const known = this.#packed?.get(step);
    if (known) for (let i = 0; i < known.length; i++) this.#launch(known[i], room);
    else {
      const packed = step.launches.map((l) => this.#launch(pack(this.#gpu, l, step), room));
      this.#packed?.set(step, packed);
    }
  }
  #launch(packed: Packed, room: Address): Packed {
    const { fn, launch, bytes, pointers, written, ahead } = packed;
    const gpu = this.#gpu;
    const { args } = gpu;
    // All of them first: whoever takes memory may have to run what waits, which packs arguments of its own.
    const addresses: Address[] = [];
    for (let i = 0; i < pointers.length; i++) addresses.push(this.#place(pointers[i].of, room) + pointers[i].offset);
    args.refill(bytes);
    for (let i = 0; i < pointers.length; i++) args.setPointer(pointers[i].at, addresses[i]);
    const before = gpu.written;
    const still = ahead.every((m) => before !== undefined && !before.includes(this.#memory(m)));
    gpu.launch(fn, launch.grid, launch.block, launch.shared, launch.early && still);
    gpu.written = written.map((m) => this.#memory(m));
    return packed;
  }
  #place(of: Packed['pointers'][number]['of'], room: Address): Address {
    if (of === SCRATCH) return room;
    return 'fault' in of ? this.#gpu.fault(this.#op, this.#outputs) : this.#memory(of).address;
  }

  #custom({ custom, key, entry, grid, block, shared, args }: CustomRun): void {
    const gpu = this.#gpu;
    const fn = gpu.functions.own(key, entry.symbol, () => custom);
    const values = args.map((a) => (typeof a === 'object' ? this.#address(a) : a));
    packEntry(gpu.args, entry, values);
    if (shared > SHARED_AS_IS) gpu.allowShared({ fn, shared: SHARED_AS_IS }, shared);
    gpu.launch(fn, grid, block, shared);
  }

  /** What a factorization found is known once it ran: the host waits for it. */
  #factor({ at, ...factoring }: FactorRun): void {
    const gpu = this.#gpu;
    gpu.turn.finish();
    const wrong = gpu.libraries.factor(factoring, at.map(this.#address), gpu.stream);
    if (wrong !== 0) throw new ArgumentError(`${this.#op}: ${FAULTS[factoring.factor](wrong, factoring.n)}`);
  }

  /** What is wrong with a matrix is said at the user's line, so the host waits for that, too. */
  #check({ trouble, n, says }: TroubleCheck): void {
    const gpu = this.#gpu;
    if (gpu.recording)
      throw new UnsupportedError(
        `${this.#op}: whether matrices have a solution is known once it ran, and nothing runs while work is recorded`,
      );
    gpu.turn.finish();
    const word = new Uint8Array(8);
    gpu.device.copyOut(word, this.#address(trouble), gpu.stream);
    const found = Number(new DataView(word.buffer).getBigInt64(0, true));
    if (found < NO_TROUBLE) throw new ArgumentError(says(found % (n + 1), n));
  }

  #take(bytes: number): GpuMemory {
    const memory = this.#gpu.allocator.alloc(bytes);
    this.#taken.push(memory);
    return memory;
  }
  #memory(m: Memory): Memory {
    if (m instanceof Slot) {
      const of = m.operand - this.#inputs.length;
      return (of < 0 ? this.#inputs[m.operand] : this.#outputs[of]).memory;
    }
    if (!(m instanceof Temporary)) return m;
    this.#memories ??= new Map();
    let memory = this.#memories.get(m);
    if (!memory) this.#memories.set(m, (memory = this.#take(m.bytes)));
    return memory;
  }
  #placed(v: View): View {
    return isPlaced(v) ? v : { memory: this.#memory(v.memory), layout: v.layout, dtype: v.dtype };
  }
  #placedChain(run: ChainRun): ChainRun {
    if (isPlaced(run.out) && run.inputs.every(isPlaced)) return run;
    return { ...run, inputs: run.inputs.map((v) => this.#placed(v)), out: this.#placed(run.out) };
  }
  readonly #address = (v: View): Address => this.#memory(v.memory).address + v.layout.offset * bytesOf(v.dtype);
}

function filled(gpu: GpuContext, view: View, value: number): Plan {
  const planner = new Planner(gpu.device.info);
  planFilled(planner, view, value);
  return planner.steps;
}

const infos = new WeakMap<GpuContext, Map<string, GpuMemory>>();
/** Bytes in device memory: uploaded once per content, which the key tells, so that no launch uploads anything. */
function uploaded(gpu: GpuContext, key: string, make: () => Uint8Array): Address {
  let known = infos.get(gpu);
  if (!known) infos.set(gpu, (known = new Map()));
  let memory = known.get(key);
  if (!memory) {
    memory = tableMemory(gpu, make());
    known.set(key, memory);
  }
  return memory.address;
}
const words = (values: readonly (number | bigint)[]): Uint8Array =>
  new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
/** Memory with these bytes, there at once and for good though work is being recorded. */
function tableMemory(gpu: GpuContext, data: Uint8Array): GpuMemory {
  const { device, allocator, stream } = gpu;
  const bytes = Math.max(8, data.length);
  if (!gpu.recording) {
    const memory = allocator.alloc(bytes);
    device.copyIn(memory.address, data, stream);
    return memory;
  }
  const memory = allocator.withPool(new Pool(), () => allocator.alloc(bytes));
  const side = device.createStream();
  try {
    device.copyIn(memory.address, data, side);
  } finally {
    device.destroyStream(side);
  }
  return memory;
}
