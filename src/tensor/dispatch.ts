// From a row and its inputs to results: checks, broadcasting, allocation, the backend's run, and the autograd record.
import type { Backend, View } from '../backends/backend.js';
import {
  CARRIER,
  checkValue,
  type DType,
  isFloat,
  isKept,
  kernelDType,
  type KeptDType,
  scalarFor,
} from '../base/dtype.js';
import { ArgumentError, DeviceError, DTypeError, ShapeError, UnsupportedError } from '../base/errors.js';
import { broadcastShapes, formatShape, kindOf, sameShape, type Shape } from '../base/shape.js';
import { movementOps } from '../ops/movement.js';
import { expertRow } from '../ops/expert-rows.js';
import { storeRow } from '../ops/store.js';
import type { AssembleRow, ElementwiseRow, KernelRow, Params, RunRow, Sig, ViewRow } from '../ops/op.js';
import { calledHere, gradEnabled, type GradRow, isRemaking, type Node, NOT_KEPT, refuseNaN } from './autograd.js';
import { levelOf } from './batched.js';
import { assignmentOf, runBatched } from './batching.js';
import type { Device } from './device.js';
import { checkDTypes, checkParams, differ, launch } from './guard.js';
import { innermost } from './levels.js';
import { takePlace } from './product-place.js';
import { Tensor } from './tensor.js';
import { postponed, runWaiting } from './waiting.js';

const COPY = movementOps.copy as unknown as KernelRow;
const CAST = movementOps.castTo as unknown as KernelRow;
const FILL = movementOps.newFull as unknown as KernelRow;
const EMPTY: readonly View[] = [];

/** Sees what would run instead of a backend, while a function is traced. */
export interface Tracer {
  run(row: RunRow, inputs: readonly Tensor[], out: Tensor, params: Params): void;
}
let tracer: Tracer | undefined;
export function withTracer<T>(t: Tracer, f: () => T): T {
  const before = tracer;
  tracer = t;
  try {
    return f();
  } finally {
    tracer = before;
  }
}

const supported = new WeakMap<Backend, Map<RunRow, DType[]>>();

function refuseDType(row: RunRow, dtype: DType): never {
  throw new DTypeError(
    `${row.serves ?? row.name}: does not take ${dtype} (it takes ` +
      `${row.dtypes.join(', ')})${row.without ? `: ${row.without}` : ''}`,
  );
}

/** Throws the row's or the backend's sentence unless the op takes this dtype there; the answer is remembered. */
function checkSupport({ backend }: Device, row: RunRow, dtype: DType): void {
  let rows = supported.get(backend);
  if (!rows) supported.set(backend, (rows = new Map()));
  const dtypes = rows.get(row);
  if (dtypes?.includes(dtype)) return;
  if (!row.dtypes.includes(dtype)) refuseDType(row, dtype);
  const answer = backend.supports(row, kernelDType(dtype));
  if (answer !== true) throw new UnsupportedError(`${row.serves ?? row.name}: ${answer}`);
  if (dtypes) dtypes.push(dtype);
  else rows.set(row, [dtype]);
}

export function sameDevice(name: string, inputs: readonly Tensor[]): Device {
  const device = inputs[0]?.device;
  for (let i = 0; i < inputs.length; i++) {
    if (!(inputs[i] instanceof Tensor))
      throw new ArgumentError(`${name}: operand ${i} is ${kindOf(inputs[i])}, not a tensor`);
    if (inputs[i].device !== device) {
      throw new DeviceError(
        `${name}: operands are on different devices, ${device.name} and ${inputs[i].device.name}; move one with ` +
          '.to(device)',
      );
    }
  }
  return device;
}

export function broadcast(t: Tensor, name: string, shape: Shape): View {
  if (sameShape(t.layout.shape, shape)) return t;
  return { memory: t.memory, layout: t.layout.broadcastTo(name, shape), dtype: t.dtype };
}

function sameShapes(inputs: readonly Tensor[]): boolean {
  const { shape } = inputs[0].layout;
  for (let k = 1; k < inputs.length; k++) {
    const other = inputs[k].layout.shape;
    if (other === shape) continue;
    if (other.length !== shape.length) return false;
    for (let i = 0; i < shape.length; i++) if (other[i] !== shape[i]) return false;
  }
  return true;
}

/** The shape that operands broadcast to; that of one of them where the others are single numbers. */
function sharedShape(name: string, inputs: readonly Tensor[]): Shape {
  let shape: Shape | undefined;
  for (let i = 0; i < inputs.length; i++) {
    const own = inputs[i].layout.shape;
    if (own.length === 0) continue;
    if (shape) return broadcastShapes(name, ...inputs.map((t) => t.layout.shape));
    shape = own;
  }
  return shape ?? [];
}

/** Scalar parameters as kernels of a dtype take them: one rule for every engine. */
function scalarsFor(row: ElementwiseRow<any>, params: Params, dtype: DType): Params {
  const converted: Record<string, unknown> = { ...params };
  for (const name of row.scalars) {
    const v = params[name];
    if (typeof v !== 'number' && typeof v !== 'bigint')
      throw new ArgumentError(`${row.name}: ${name} is ${kindOf(v)}, not a number`);
    converted[name] = scalarFor(row.name, name, v, dtype, row.bounds === true);
  }
  return converted;
}

function runElementwise(row: ElementwiseRow<any>, inputs: readonly Tensor[], params: Params, device: Device): Tensor {
  const first = row.masked ? 1 : 0;
  const { dtype } = inputs[first];
  if (row.masked && kernelDType(inputs[0].dtype) !== 'u8')
    throw new DTypeError(`${row.name}: the condition is ${inputs[0].dtype}, not bool or u8`);
  for (let i = first + 1; i < inputs.length; i++) if (inputs[i].dtype !== dtype) differ(row, inputs[first], inputs[i]);
  checkSupport(device, row, dtype);
  if (row.scalars.length > 0) params = scalarsFor(row, params, dtype);
  const equal = sameShapes(inputs);
  const like = inputs[0].layout;
  const shape = equal ? like.shape : sharedShape(row.name, inputs);
  const result = row.result === 'same' ? dtype : row.result;
  const late = tracer ? undefined : postponed(row, inputs, params, shape, result, device);
  if (late) return late;
  const out = equal && like.isPlain ? Tensor.ofLayout(like, result, device) : Tensor.empty(shape, result, device);
  if (tracer) return tracer.run(row, inputs, out, params), out;
  if (out.size > 0)
    launch(
      device.backend,
      row,
      equal ? inputs : inputs.map((t) => broadcast(t, row.name, out.layout.shape)),
      [out],
      params,
    );
  return out;
}

/** A tensor's shape and dtype; a tensor itself would copy its shape whenever it is asked for it. */
const sigOf = ({ layout, dtype }: Tensor): Sig => ({ shape: layout.shape, dtype });

/** A new tensor for a result, or the place that a product is meant for. */
const resultOf = ({ family }: KernelRow<any>, { shape, dtype }: Sig, device: Device): Tensor =>
  (family === 'matmul' ? takePlace(shape, dtype, device) : undefined) ?? Tensor.empty(shape, dtype, device);

function runKernel(row: KernelRow<any>, inputs: readonly Tensor[], params: Params, device: Device): Tensor[] {
  if (!row.custom) checkParams(row, params);
  const sigs = row.infer(inputs.map(sigOf), params);
  checkDTypes(row, inputs);
  checkSupport(device, row, inputs.length > 0 ? inputs[0].dtype : sigs[0].dtype);
  if (row.family === 'cast' && !tracer && inputs[0].dtype !== sigs[0].dtype) {
    const late = postponed(row, inputs, params, sigs[0].shape, sigs[0].dtype, device);
    if (late) return [late];
  }
  const outs = sigs.map((s) => resultOf(row, s, device));
  if (tracer) return tracer.run(row, inputs, outs[0], params), outs;
  if (anyElements(outs)) launch(device.backend, row, inputs, outs, params);
  return outs;
}

function refuse(row: { readonly name: string }): never {
  throw new UnsupportedError(`fuse: ${row.name} is not an elementwise op; call it outside the fused function`);
}

function runAssemble(row: AssembleRow<any>, inputs: readonly Tensor[], params: Params, device: Device): Tensor {
  if (tracer) refuse(row);
  checkParams(row, params);
  const [sig] = row.infer(inputs.map(sigOf), params);
  checkDTypes(row, inputs);
  const out = Tensor.empty(sig.shape, sig.dtype, device);
  if (out.size === 0) return out;
  const value = row.fill?.(params);
  if (value !== undefined) checkValue(row.serves ?? row.name, value, sig.dtype);
  checkSupport(device, COPY, sig.dtype);
  if (value !== undefined) launch(device.backend, FILL, EMPTY, [out], { shape: sig.shape, dtype: sig.dtype, value });
  for (const piece of row.pieces(inputs, params)) {
    const input = inputs[piece.input];
    const from: View = piece.from
      ? { memory: input.memory, layout: piece.from(input.layout), dtype: input.dtype }
      : input;
    const into: View = { memory: out.memory, layout: piece.into(out.layout), dtype: out.dtype };
    if (from.layout.size > 0) launch(device.backend, COPY, [from], [into], {});
  }
  return out;
}

function execute(row: GradRow, inputs: readonly Tensor[], params: Params, device: Device): Tensor[] {
  switch (row.family) {
    case 'elementwise':
      return [runElementwise(row, inputs, params, device)];
    case 'view':
      return tracer ? refuse(row) : [inputs[0].withLayout((row as ViewRow).layout(inputs[0].layout, params))];
    case 'assemble':
      return [runAssemble(row as AssembleRow, inputs, params, device)];
    default:
      return runKernel(row as KernelRow, inputs, params, device);
  }
}

function anyElements(tensors: readonly Tensor[]): boolean {
  for (let i = 0; i < tensors.length; i++) if (tensors[i].layout.size > 0) return true;
  return false;
}
function anyRequiresGrad(tensors: readonly Tensor[]): boolean {
  for (let i = 0; i < tensors.length; i++) if (tensors[i].requiresGrad) return true;
  return false;
}

/** The dtypes whose rows kept ones go along with: what takes no i16 takes no i8 either. */
const ALIKE: { readonly [D in KeptDType]: DType } = { i8: 'i16', f8e5m2: 'f8e4m3' };

/** A dtype that the row has no kernels for and is run in its carrier; undefined where there is none. */
function keptAmong(row: GradRow, inputs: readonly Tensor[], params: Params): KeptDType | undefined {
  if (row.family === 'view' || row.family === 'copy' || row.family === 'cast') return undefined;
  if (row.family === 'assemble' && (row as AssembleRow<any>).fill?.(params) === undefined) return undefined;
  for (let i = 0; i < inputs.length; i++) {
    const dtype = inputs[i]?.dtype; // an operand may be missing: that is told of where devices are compared
    if (dtype !== undefined && isKept(dtype)) return dtype;
  }
  const { dtype } = params as { readonly dtype?: DType };
  return dtype !== undefined && isKept(dtype) ? dtype : undefined;
}

/**
 * Runs a row on kept dtypes: operands are cast to their carriers, and results that would have been of a kept dtype are
 * rounded to it, once, as kernels of small floats do. Gradients flow through the casts.
 */
function carried(row: GradRow, kept: KeptDType, inputs: readonly Tensor[], params: Params, device?: Device): Tensor[] {
  const run = row as unknown as RunRow;
  sameDevice(run.serves ?? run.name, inputs);
  if (!run.dtypes.includes(ALIKE[kept])) refuseDType(run, kept);
  const cast = (t: Tensor, dtype: DType): Tensor => apply(CAST as unknown as GradRow, [t], { dtype })[0];
  let results: readonly DType[];
  if (run.family === 'elementwise') {
    const own = inputs.slice(run.masked ? 1 : 0);
    checkDTypes(run, own);
    results = [run.result === 'same' ? own[0].dtype : run.result];
  } else {
    results = run.infer(inputs.map(sigOf), params as never).map((s) => s.dtype);
    checkDTypes(run, inputs);
  }
  const wide = inputs.map((t) => (isKept(t.dtype) ? cast(t, CARRIER[t.dtype]) : t));
  const { dtype } = params as { readonly dtype?: DType };
  const outs = apply(
    row,
    wide,
    dtype !== undefined && isKept(dtype) ? { ...params, dtype: CARRIER[dtype] } : params,
    device,
  );
  return outs.map((t, i) => (isKept(results[i]) ? cast(t, results[i]) : t));
}

/** Runs a row. `device` is needed only where there are no inputs. */
export function apply(row: GradRow, inputs: readonly Tensor[], params: Params, device?: Device): Tensor[] {
  const kept = keptAmong(row, inputs, params);
  if (kept !== undefined) return carried(row, kept, inputs, params, device);
  const here = inputs.length > 0 ? sameDevice(row.serves ?? row.name, inputs) : undefined;
  const level = innermost() && levelOf(inputs);
  const outs = level
    ? runBatched(apply, row, inputs, params, level)
    : execute(row, inputs, params, device ?? (here as Device));
  // Integers and truth values carry no gradient: it ends where a tensor is cast to them.
  if (row.grad && anyRequiresGrad(inputs) && gradEnabled() && isFloat(outs[0].dtype)) record(row, inputs, outs, params);
  return outs;
}

/** Inputs that a rule reads and that can be made again. */
function remadeAmong(saved: readonly Tensor[], reads: readonly number[] | undefined): Set<number> | undefined {
  const found = saved.flatMap((t, i) => (t.node?.remake && (!reads || reads.includes(i)) ? [i] : []));
  return found.length > 0 ? new Set(found) : undefined;
}
/** How a result is made again: a cheap op runs once more on what it keeps, a view of such a result is taken of it. */
function remakeOf(
  row: GradRow,
  saved: readonly Tensor[],
  [out]: readonly Tensor[],
  params: Params,
): (() => Tensor) | undefined {
  const { device, layout } = out;
  const inner = saved[0]?.node?.remake;
  if (row.family === 'view') return inner && (() => inner().withLayout(layout));
  // All of its inputs are there, since its own rule reads them.
  const whole = row.cheap && saved.every((_, i) => row.gradReads?.includes(i));
  return whole ? () => execute(row, saved, params, device)[0] : undefined;
}

/** Puts what made `outs` of `inputs` into the graph. */
export function record(row: GradRow, inputs: readonly Tensor[], outs: readonly Tensor[], params: Params): void {
  const called = calledHere();
  refuseNaN(outs, () => row.serves ?? row.name, called);
  for (const o of outs) o.requiresGrad = true;
  const versions: number[] = [];
  const kept = (t: Tensor): Tensor => {
    versions.push(t.storage.version);
    return t.alias();
  };
  const [saved, results] = [inputs.map(kept), outs.map(kept)];
  const { gradReads } = row;
  const sparing = isRemaking() && !innermost(); // examples are kept: what remakes them runs outside of their vmap
  const remade = sparing ? remadeAmong(saved, gradReads) : undefined;
  // What the rule does not read is known by its shape alone from here on.
  const forget = (t: Tensor, i: number): void => {
    t.dispose();
    versions[i] = NOT_KEPT;
  };
  if (gradReads) {
    saved.forEach((t, i) => gradReads.includes(i) || forget(t, i));
    results.forEach((t, i) => forget(t, saved.length + i));
  }
  remade?.forEach((i) => forget(saved[i], i));
  const remake = sparing ? remakeOf(row, saved, outs, params) : undefined;
  const node: Node = {
    row,
    params,
    inputs: saved,
    outputs: results,
    versions,
    released: undefined,
    called,
    remade,
    remake,
  };
  outs.forEach((o, i) => {
    o.node = node;
    results[i].node = node;
  });
}

/** Row r of x (rows, in) times the transposed matrix w[ids[r]] of w (experts, out, in); no gradient. */
export function expertRows(x: Tensor, w: Tensor, ids: Tensor): Tensor {
  return runKernel(expertRow, [x, w, ids], { dim: 0 }, sameDevice('expertRows', [x, w, ids]))[0];
}

/** Random numbers of a recorded step: its stream's seed and beginning are read from `stream`, words on the device. */
export function drawInto(row: KernelRow<any>, device: Device, stream: Tensor, params: Params): Tensor {
  const [sig] = row.infer([], params);
  checkSupport(device, row, sig.dtype);
  const out = Tensor.empty(sig.shape, sig.dtype, device);
  if (out.size > 0) launch(device.backend, row, [stream], [out], params);
  return out;
}

/**
 * Writes rows of src (n, width) to the places `ids` (i32, n) in dst (rows, width), in place; the largest i32 writes
 * nothing.
 */
export function storeRows(dst: Tensor, ids: Tensor, src: Tensor): void {
  sameDevice('storeRows', [dst, ids, src]);
  storeRow.infer([dst, ids, src], {});
  runWaiting();
  checkSupport(dst.device, storeRow, dst.dtype);
  if (src.size === 0) return;
  launch(dst.device.backend, storeRow, [dst, ids, src], [dst], { dim: 0 });
  dst.storage.version++;
}

/** Writes src, of the same shape, into dst's elements in place, in dst's dtype. */
export function castInto(dst: Tensor, src: Tensor): void {
  if (dst.dtype === src.dtype) return copyInto(dst, src);
  sameDevice('castInto', [dst, src]);
  if (!sameShape(dst.shape, src.shape))
    throw new ShapeError(`castInto: ${formatShape(src.shape)} does not fit ${formatShape(dst.shape)}`);
  checkSupport(dst.device, CAST, src.dtype);
  runWaiting();
  if (dst.size > 0) launch(dst.device.backend, CAST, [src], [dst], { dtype: dst.dtype });
  dst.storage.version++;
}

/** Writes src into dst's elements in place; dtypes and shapes are equal. */
export function copyInto(dst: Tensor, src: Tensor): void {
  sameDevice('assign', [dst, src]);
  if (dst.dtype !== src.dtype) differ({ name: 'assign' }, dst, src);
  if (dst.size === 0) return;
  const level = innermost() && levelOf([dst, src]);
  if (level) return copyInto(...assignmentOf(dst, src, level));
  const twice = dst.layout.strides.findIndex((stride, d) => stride === 0 && dst.layout.shape[d] > 1);
  if (twice >= 0)
    throw new ArgumentError(
      `assign: elements of ${formatShape(dst.shape)} along dimension ${twice} are one and the same in memory; ` +
        'copy() first',
    );
  runWaiting();
  const from = broadcast(src, 'assign', dst.shape);
  // The source may be a view of the destination.
  const safe = src.storage === dst.storage ? src.copy() : undefined;
  launch(dst.device.backend, COPY, [safe ? broadcast(safe, 'assign', dst.shape) : from], [dst], {});
  safe?.dispose();
  dst.storage.version++;
}
