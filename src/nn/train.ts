// Training at speed: all parameters in one block, gradients clipped on the device, accumulated, scaled; checkpoints
// that resume bit for bit.
import type { DType } from '../base/dtype.js';
import { ArgumentError, DTypeError, FormatError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { loadTensors, saveTensors } from '../io/load.js';
import { SafeTensors } from '../io/safetensors.js';
import { requireOptions } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import type { Gradients } from '../tensor/backward.js';
import type { Device } from '../tensor/device.js';
import type { Generator } from '../tensor/random.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { clipFactor, gradNorm } from './clip.js';
import type { Module } from './module.js';
import type { ClipOptions, GradSource, Optimizer, StepOptions } from './optim.js';

/**
 * A module's parameters as views of one block, so that an optimizer step is a few kernels however many parameters there
 * are.
 * With a small dtype the module computes in it and `master` keeps f32.
 */
export class FlatParameters {
  /** All parameters as one vector: what the optimizer changes. */
  readonly master: Tensor;
  readonly #working: Tensor;
  readonly #views: Tensor[] = [];
  /** All gradients in the module's dtype, and each parameter's place among them, by the parameter's number. */
  #grads: Tensor | undefined;
  readonly #starts = new Map<number, number>();

  constructor(module: Module, dtype: DType = 'f32') {
    const params = module.parameters();
    // Handles made on the way go at once: who disposes of the first parameters gets their memory back.
    this.master = keep(
      scope(() =>
        noGrad(() => {
          const flat = params.map((p) => p.detach().cast('f32').reshape([-1]));
          return flat[0].cat(flat.slice(1), 0);
        }),
      ),
    );
    this.#working = dtype === 'f32' ? this.master : keep(this.master.cast(dtype));
    let at = 0;
    const places = new Map(
      params.map((p) => {
        const place = [p, at] as const;
        at += p.size;
        return place;
      }),
    );
    module.replace((t) => {
      const start = places.get(t);
      if (start === undefined) return t; // a buffer
      const view = keep(this.#working.narrow(0, start, t.size).reshape(t.shape).detach()).requireGrad();
      this.#views.push(view);
      this.#starts.set(view.id, start);
      return view;
    });
  }
  /** How many numbers that are. */
  get size(): number {
    return this.master.size;
  }
  /** All gradients as one f32 vector, zeros where nothing flowed. */
  gather(grads: GradSource): Tensor {
    const parts = this.#views.map((v) => (grads.get(v) ?? v.zerosLike()).reshape([-1]));
    return parts[0].cat(parts.slice(1), 0).cast('f32');
  }
  /** A step of an optimizer of `master`, then the module's own copy; gradients are multiplied by `scale` on the way. */
  step(optimizer: Optimizer, grad: Tensor, { scale }: Pick<StepOptions, 'scale'> = {}): void {
    const working = this.#working === this.master ? undefined : this.#working;
    const source = { get: (t: Tensor) => (t === this.master ? grad : undefined) };
    optimizer.step(source, { ...(scale && { scale }), copy: (p) => (p === this.master ? working : undefined) });
  }
  /**
   * Gradients of a loss and a step with them: each goes to its place among all as soon as it is whole, and its own
   * memory goes back. Answers the joint norm before clipping where `clipNorm` is given.
   */
  backwardStep(loss: Tensor, optimizer: Optimizer, clip: Pick<ClipOptions, 'clipNorm'> = {}): Tensor | undefined {
    requireOptions('backwardStep', clip, ['clipNorm']);
    const { clipNorm } = clip;
    const all = (this.#grads ??= keep(this.#working.zerosLike()));
    const starts = this.#starts;
    const left = new Set(starts.keys());
    const place = (id: number, size: number): Tensor => all.narrow(0, starts.get(id) as number, size);
    const onLeaf = (leaf: Tensor, grad: Tensor): boolean => {
      if (!left.delete(leaf.id)) return false;
      const there =
        grad.storage === all.storage && grad.layout.isContiguous && grad.layout.offset === starts.get(leaf.id);
      if (!there) scope(() => noGrad(() => void place(leaf.id, leaf.size).assign(grad.reshape([-1]).cast(all.dtype))));
      return true;
    };
    loss.backward({
      sparing: true,
      onLeaf,
      place: (leaf) => (left.has(leaf.id) ? place(leaf.id, leaf.size).reshape(leaf.shape) : undefined),
    });
    return noGrad(() => {
      for (const view of this.#views)
        if (left.has(view.id)) scope(() => void place(view.id, view.size).assign(all.newZeros([view.size], all.dtype)));
      if (clipNorm === undefined) return void this.step(optimizer, all);
      const { norm, factor } = clipFactor([all], clipNorm);
      this.step(optimizer, all, { scale: factor });
      return norm;
    });
  }
  /** Copies `master` into the module again: after it was loaded. */
  refresh(): void {
    if (this.#working !== this.master) scope(() => void this.#working.assign(this.master.cast(this.#working.dtype)));
  }
}

/** Adds gradients of several batches up before a step. */
export class GradAccumulator {
  #sum: Map<Tensor, Tensor> = new Map();
  #count = 0;
  /** The tensors whose gradients are added up. */
  readonly params: readonly Tensor[];
  constructor(params: readonly Tensor[]) {
    if (!Array.isArray(params) || params.some((p) => !(p instanceof Tensor)))
      throw new ArgumentError('GradAccumulator: takes a list of parameters, as model.parameters()');
    this.params = params;
  }
  /** Adds the gradients of one batch. */
  add(grads: Gradients | GradSource): void {
    noGrad(() => {
      for (const p of this.params) {
        const g = grads.get(p);
        if (!g) continue;
        const before = this.#sum.get(p);
        this.#sum.set(p, keep(before ? before.add(g) : g.copy()));
        before?.dispose();
      }
    });
    this.#count++;
  }
  /** Batches added since the last `take`. */
  get count(): number {
    return this.#count;
  }
  /** The mean over the batches added, and an empty accumulator. */
  take(): GradSource {
    if (this.#count === 0) throw new ArgumentError('GradAccumulator: nothing was added since the last step');
    const [sums, n] = [this.#sum, this.#count];
    this.#sum = new Map();
    this.#count = 0;
    return { get: (t) => noGrad(() => sums.get(t)?.affine(1 / n, 0)) };
  }
}

/**
 * Loss scaling for f16: gradients too small for it are lifted; a step whose gradients overflow is left out. Reads one
 * number a step.
 */
export class GradScaler {
  /** What losses are multiplied by at the moment. */
  scale: number;
  /** What the scale is multiplied by after `interval` good steps. */
  readonly growth: number;
  /** What the scale is multiplied by when a gradient overflows. */
  readonly backoff: number;
  /** Good steps in a row before the scale grows. */
  readonly interval: number;
  #good = 0;
  constructor(
    options: {
      /** What to begin with; default 65536. */
      readonly scale?: number;
      /** Default 2. */
      readonly growth?: number;
      /** Default 0.5. */
      readonly backoff?: number;
      /** Default 2000. */
      readonly interval?: number;
    } = {},
  ) {
    requireOptions('GradScaler', options, ['scale', 'growth', 'backoff', 'interval']);
    this.scale = options.scale ?? 65536;
    this.growth = options.growth ?? 2;
    this.backoff = options.backoff ?? 0.5;
    this.interval = options.interval ?? 2000;
    const wrong = (name: 'scale' | 'growth' | 'backoff' | 'interval', rule: string): never => {
      throw new ArgumentError(`GradScaler: ${name} ${String(this[name])} is not ${rule}`);
    };
    if (!(this.scale > 0 && this.scale < Infinity)) wrong('scale', 'a number above 0');
    if (!(this.growth > 1 && this.growth < Infinity)) wrong('growth', 'a number above 1');
    if (!(this.backoff > 0 && this.backoff < 1)) wrong('backoff', 'a number above 0 and below 1');
    if (!(Number.isInteger(this.interval) && this.interval > 0)) wrong('interval', 'a whole number from 1');
  }
  /** The loss to call backward on, so that small gradients do not vanish in f16. */
  scaleLoss(loss: Tensor): Tensor {
    return loss.affine(this.scale, 0);
  }
  /** Gradients in f32 divided by the scale, or undefined where one of them overflowed. */
  unscale(grads: readonly Tensor[]): Tensor[] | undefined {
    const wide = noGrad(() => grads.map((g) => g.cast('f32').affine(1 / this.scale, 0)));
    if (Number.isFinite(gradNorm(wide).item())) {
      if (++this.#good % this.interval === 0) this.scale *= this.growth;
      return wide;
    }
    this.#good = 0;
    this.scale *= this.backoff;
    return undefined;
  }
}

/** What a checkpoint says besides tensors. */
export interface Checkpoint {
  /** Steps done when it was saved. */
  readonly step: number;
  /** Whatever the run wants to remember. */
  readonly extra: Readonly<Record<string, unknown>>;
}
/** What a checkpoint saves and restores. */
export interface CheckpointParts {
  /** The trained tensors by name. */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** Its state is saved too: moments, step counts, rates. */
  readonly optimizer: Optimizer;
  /** Random streams by name, so that a resumed run draws the same numbers. */
  readonly generators?: Readonly<Record<string, Generator>>;
}

function tensorsOf(op: string, { tensors }: CheckpointParts): ReadonlyMap<string, Tensor> {
  if (!(tensors instanceof Map)) throw new ArgumentError(`${op}: tensors are a map, as model.stateDict() gives`);
  return tensors;
}
/** Tensors, the optimizer's state and random streams in one safetensors file that appears whole or not at all. */
export function saveCheckpoint(
  path: string,
  parts: CheckpointParts,
  { step = parts.optimizer.steps, extra = {} }: Partial<Checkpoint> = {},
): void {
  const all = new Map<string, Tensor>();
  for (const [name, t] of tensorsOf('saveCheckpoint', parts)) all.set(`model.${name}`, t);
  for (const [name, t] of parts.optimizer.stateDict()) all.set(`optimizer.${name}`, t);
  const generators = Object.fromEntries(
    Object.entries(parts.generators ?? {}).map(([name, g]) => [name, [String(g.seed), String(g.offset)]]),
  );
  const metadata = {
    checkpoint: JSON.stringify({
      step,
      extra,
      generators,
      optimizerSteps: parts.optimizer.steps,
      learningRate: parts.optimizer.learningRate,
    }),
  };
  saveTensors(path, all, { metadata });
}

const MODEL = 'model.';
/** What a checkpoint remembers besides tensors, as its metadata hold it. */
interface CheckpointRecord extends Checkpoint {
  readonly generators: Readonly<Record<string, readonly [string, string]>>;
  readonly optimizerSteps: number;
  readonly learningRate: number;
}
function readRecord(path: string, text: string): CheckpointRecord {
  let record: Partial<CheckpointRecord> | null = null;
  try {
    record = JSON.parse(text) as Partial<CheckpointRecord> | null;
  } catch {
    // What is no JSON is refused below, with what is none of ours.
  }
  const { step, extra = {}, generators = {}, optimizerSteps, learningRate } = record ?? {};
  const numbers = [step, optimizerSteps, learningRate].every((v) => typeof v === 'number' && v >= 0);
  const streams = Object.values(generators ?? [0]).every(
    (g: unknown) => Array.isArray(g) && g.length === 2 && g.every((n) => /^-?\d+$/.test(String(n))),
  );
  if (!numbers || !streams)
    throw new FormatError(`${path}: its record of a checkpoint is broken: ${text.slice(0, 80)}`);
  return { step, extra, generators, optimizerSteps, learningRate } as CheckpointRecord;
}
/** Assigning would spread a smaller tensor over a larger one; and what is left over belongs to another model. */
function checkFits(path: string, own: ReadonlyMap<string, Tensor>, stored: ReadonlyMap<string, Tensor>): void {
  for (const [name, t] of own) {
    const value = stored.get(`${MODEL}${name}`);
    const quoted = JSON.stringify(name);
    if (!value) throw new ArgumentError(`loadCheckpoint: ${path} has no model tensor ${quoted}`);
    if (!sameShape(value.shape, t.shape))
      throw new ShapeError(
        `loadCheckpoint: the model tensor ${quoted} is ${formatShape(t.shape)}, in ${path} ${formatShape(value.shape)}`,
      );
    if (value.dtype !== t.dtype)
      throw new DTypeError(`loadCheckpoint: the model tensor ${quoted} is ${t.dtype}, in ${path} ${value.dtype}`);
  }
  const left = [...stored.keys()].filter((name) => name.startsWith(MODEL) && !own.has(name.slice(MODEL.length)));
  if (left.length > 0)
    throw new ArgumentError(
      `loadCheckpoint: ${path} has ${left.length} model tensors that the model has not: ` +
        `${left
          .slice(0, 3)
          .map((name) => name.slice(MODEL.length))
          .join(', ')}${left.length > 3 ? ' ...' : ''}`,
    );
}

/**
 * Reads a checkpoint into its parts and answers the step and what else was remembered. Missing tensors and other shapes
 * are refused.
 */
export function loadCheckpoint(path: string, parts: CheckpointParts, device?: Device): Checkpoint {
  const file = SafeTensors.open(path);
  const text = file.metadata.get('checkpoint');
  file.close();
  if (text === undefined) throw new ArgumentError(`loadCheckpoint: ${path} is a safetensors file but no checkpoint`);
  const { step, extra, generators, optimizerSteps, learningRate } = readRecord(path, text);
  const stored = loadTensors(path, device ? { device } : {});
  const state = new Map<string, Tensor>();
  const own = tensorsOf('loadCheckpoint', parts);
  checkFits(path, own, stored);
  for (const [name, t] of own) noGrad(() => t.assign((stored.get(`${MODEL}${name}`) as Tensor).to(t.device)));
  for (const [name, t] of stored) if (name.startsWith('optimizer.')) state.set(name.slice('optimizer.'.length), t);
  parts.optimizer.loadStateDict(state, optimizerSteps);
  parts.optimizer.learningRate = learningRate;
  for (const [name, g] of Object.entries(parts.generators ?? {})) {
    const [seed, offset] = generators[name] ?? [];
    if (seed === undefined)
      throw new ArgumentError(`loadCheckpoint: ${path} has no random stream ${JSON.stringify(name)}`);
    g.seed = BigInt(seed);
    g.offset = BigInt(offset);
  }
  for (const t of stored.values()) t.dispose();
  return { step, extra };
}
