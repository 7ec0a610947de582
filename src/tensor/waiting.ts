// Elementwise steps inside an op that is made of others wait until somebody reads them, and then run as one kernel. Who
// called the op cannot tell: every step is rounded to its dtype as it would be alone, and nothing waits once the op has
// answered (docs/decisions/0022).
import type { ChainStep, View } from '../backends/backend.js';
import { type DType, isKept, kernelDType } from '../base/dtype.js';
import { sameShape, type Shape, sizeOf } from '../base/shape.js';
import type { Params, RunRow } from '../ops/op.js';
import { gradEnabled } from './autograd.js';
import { composing, stepsWait } from './composing.js';
import { constantIn } from './constants.js';
import type { Device } from './device.js';
import { launch, launchChain } from './guard.js';
import { innermost } from './levels.js';
import type { Storage } from './storage.js';
import { Tensor } from './tensor.js';

/** Operands of a kernel, and steps that are still compiled in moderate time. */
const [MOST_OPERANDS, MOST_STEPS] = [4, 24];

/** Another handle, so that what a step reads lives as long as the step waits. */
const hold = (t: Tensor): Tensor => new Tensor(t.device, t.storage, t.layout, t.dtype, t.id, false);
const wideView = ({ memory, layout, dtype }: Tensor, shape: Shape): View => ({
  memory,
  layout: sameShape(layout.shape, shape) ? layout : layout.broadcastTo('fuse', shape),
  dtype,
});
const sameView = (a: Tensor, b: Tensor): boolean =>
  a.storage === b.storage &&
  a.dtype === b.dtype &&
  a.layout.offset === b.layout.offset &&
  sameShape(a.layout.shape, b.layout.shape) &&
  sameShape(a.layout.strides, b.layout.strides);

/** What an operand is to a step: a number, a step that waits, or memory. */
type Source = NonNullable<ReturnType<typeof constantIn>> | Step | Tensor;

/** Operands and steps of a result, gathered one result at a time; a step is marked with the gathering that met it. */
const operands: Tensor[] = [];
const order: Source[] = [];
let gathering = 0;
function takeOperand(t: Tensor): void {
  for (let i = 0; i < operands.length; i++) if (operands[i] === t || sameView(operands[i], t)) return;
  operands.push(t);
}
function placeOf(s: Source): number {
  if (s instanceof Step) return operands.length + s.place;
  if (!(s instanceof Tensor)) return operands.length + order.indexOf(s);
  return operands.findIndex((t) => t === s || sameView(t, s));
}

class Step {
  readonly row: RunRow;
  readonly params: Params;
  /** The dtype that the row's kernel is made for; of a cast the one cast to. */
  readonly dtype: DType;
  readonly shape: Shape;
  readonly result: DType;
  readonly sources: Source[];
  readonly device: Device;
  /** Which gathering met it last, and its place in that one's order. */
  #met = 0;
  place = 0;
  constructor(
    row: RunRow,
    params: Params,
    dtype: DType,
    shape: Shape,
    result: DType,
    sources: Source[],
    device: Device,
  ) {
    this.row = row;
    this.params = params;
    this.dtype = dtype;
    this.shape = shape;
    this.result = result;
    this.sources = sources;
    this.device = device;
  }
  /** Gathers all that the result needs: memory, then steps and numbers in an order that they can be done in. */
  gather(): void {
    operands.length = 0;
    order.length = 0;
    gathering++;
    this.#gather();
  }
  #gather(): void {
    const { sources } = this;
    for (let i = 0; i < sources.length; i++) {
      const s = sources[i];
      if (s instanceof Step) {
        if (s.#met !== gathering) s.#gather();
      } else if (s instanceof Tensor) takeOperand(s);
      else if (!order.includes(s)) order.push(s);
    }
    this.#met = gathering;
    this.place = order.length;
    order.push(this);
  }
  run(out: View): void {
    const { backend } = this.device;
    this.gather();
    const wide = (tensors: readonly Source[]): View[] => tensors.map((t) => wideView(t as Tensor, this.shape));
    // Alone: its sources are all memory, one and the same perhaps.
    if (order.length === 1) return launch(backend, this.row, wide(this.sources), [out], this.params);
    const steps = order.map((s): ChainStep => {
      if (s instanceof Step) return { row: s.row, dtype: s.dtype, args: s.sources.map(placeOf), params: s.params };
      if (s instanceof Tensor) throw new Error('a chain of steps holds memory');
      return { constant: s.number, dtype: s.dtype };
    });
    launchChain(backend, steps, wide(operands.slice()), out); // asking for memory may run another step, which gathers anew
  }
}

/** Steps that nobody has asked for. */
const steps = new WeakMap<Storage, Step>();
/** A handle of what each step of the op will be. */
const made: Tensor[] = [];
/** Handles of what the op's steps read, by the tensor they were given as. */
const held = new Map<Tensor, Tensor>();

/** What t is to a step whose result has that shape. */
function sourceOf(t: Tensor, shape: Shape): Source {
  const step = steps.get(t.storage);
  // Not a part of it, nor its elements under another shape or dtype.
  const whole = step && t.dtype === step.result && t.layout.isContiguous && sameShape(t.layout.shape, step.shape);
  return whole && sameShape(step.shape, shape) ? step : (constantIn(t) ?? t);
}

function read(result: unknown): void {
  if (result instanceof Tensor) {
    if (steps.has(result.storage)) void result.memory;
  } else if (Array.isArray(result)) result.forEach(read);
}
function forget(): void {
  for (const t of made) {
    steps.delete(t.storage);
    t.dispose();
  }
  for (const t of held.values()) t.dispose();
  made.length = 0;
  held.clear();
}
stepsWait({ read, forget });
/** Runs all that waits: before memory is written that it may read. */
export function runWaiting(): void {
  for (const t of made) void t.memory;
}

/** The result of an elementwise row or a cast that can wait; undefined where it is to run now. */
export function postponed(
  row: RunRow,
  inputs: readonly Tensor[],
  params: Params,
  shape: Shape,
  result: DType,
  device: Device,
): Tensor | undefined {
  const { backend } = device;
  if (!composing() || !backend.worthChain?.(sizeOf(shape)) || innermost()) return undefined;
  if (isKept(result) || inputs.some((t) => isKept(t.dtype) || t.isDisposed)) return undefined;
  if (gradEnabled() && inputs.some((t) => t.requiresGrad)) return undefined;
  const dtypeOf = row.family === 'cast' ? result : kernelDType(inputs[inputs.length - 1].dtype);
  let step: Step;
  for (;;) {
    const sources: Source[] = [];
    for (let i = 0; i < inputs.length; i++) sources.push(sourceOf(inputs[i], shape));
    step = new Step(row, params, dtypeOf, shape, result, sources, device);
    step.gather();
    if (operands.length <= MOST_OPERANDS && order.length <= MOST_STEPS) break;
    // The longest of its steps runs first, until what is left fits.
    const lengths = sources.map((s) => (s instanceof Step ? (s.gather(), order.length) : 0));
    void inputs[lengths.indexOf(Math.max(...lengths))].memory;
  }
  const { sources } = step;
  for (let i = 0; i < sources.length; i++) {
    const s = sources[i];
    if (!(s instanceof Tensor)) continue;
    let own = held.get(s);
    if (!own) held.set(s, (own = hold(s)));
    sources[i] = own;
  }
  const out = Tensor.later(shape, result, device, (memory) => {
    steps.delete(out.storage);
    step.run({ memory, layout: out.layout, dtype: result });
  });
  steps.set(out.storage, step);
  made.push(hold(out));
  return out;
}
