// A function of tensors that a GPU repeats: recorded once for each list of shapes, then launched whole, so that the
// host has next to nothing to do. What makes a step of training differ from the one before comes from the host by
// itself (step-recording.ts).
import type { GpuBackend, Replay } from '../backends/gpu/gpu.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { formatShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { gradEnabled, noGrad } from './autograd.js';
import { zeros } from './create.js';
import { Device } from './device.js';
import { copyInto, sameDevice } from './dispatch.js';
import { keep, scope } from './scope.js';
import { STEP_WORDS, StepRecording } from './step-recording.js';
import { Tensor } from './tensor.js';
import { mapTensors } from './tree.js';

/** What a captured function may answer: tensors, in lists and records of any depth, or nothing. */
export type CapturedAnswer =
  | Tensor
  | void
  | undefined
  | readonly CapturedAnswer[]
  | { readonly [key: string]: CapturedAnswer };

/** What `captured` takes. */
export interface CapturedOptions {
  /** Calls with the same shapes that run op by op before one is recorded; default 1. */
  readonly warmUp?: number;
  /** Lists of shapes that are recorded; calls with others run op by op. Default 8. */
  readonly shapes?: number;
  /** Where the work is done, for a function that takes no tensor. */
  readonly device?: Device | string;
}
/** A function that records itself. */
export interface Captured<A extends readonly Tensor[], R extends CapturedAnswer> {
  (...inputs: A): R;
  /** Lists of shapes that are recorded by now. */
  readonly recorded: number;
  /** Gives recordings and their memory back; the next calls begin anew. */
  dispose(): void;
  /** What `using` calls at the end of a block. */
  [Symbol.dispose](): void;
}

/** Every tensor of an answer changed by g, in an answer of the same form. */
const mapped = <R extends CapturedAnswer>(answer: R, g: (t: Tensor) => Tensor): R =>
  mapTensors(answer, 'its answer', g, (where, kind) => {
    throw new ArgumentError(
      `captured: ${where} is ${kind}; a step answers tensors alone, in lists and records, since numbers would stay ` +
        'what they were when it was recorded',
    );
  });
const copied = <R extends CapturedAnswer>(answer: R): R => noGrad(() => mapped(answer, (t) => t.detach().copy()));

/** One recorded list of shapes. */
class RecordedStep<A extends readonly Tensor[], R extends CapturedAnswer> {
  readonly #inputs: readonly Tensor[];
  readonly #words: Tensor;
  readonly #notes: StepRecording;
  readonly replay: Replay;
  readonly #answer: R;

  constructor(f: (...inputs: A) => R, inputs: A, device: Device, backend: GpuBackend, beside: Replay | undefined) {
    this.#inputs = noGrad(() => inputs.map((t) => keep(t.detach().copy())));
    this.#words = keep(zeros([STEP_WORDS], { dtype: 'u32', device }));
    this.#notes = new StepRecording(this.#words);
    backend.trim(); // what was kept for steps op by op makes room for the recording's own
    try {
      const { replay, answer } = this.#record(f, backend, beside);
      [this.replay, this.#answer] = [replay, answer];
    } catch (e) {
      this.#letGo();
      throw e;
    }
  }
  #record(f: (...inputs: A) => R, backend: GpuBackend, beside: Replay | undefined): { replay: Replay; answer: R } {
    const lived = beside?.pool.live ?? 0;
    let answer: R | undefined;
    const replay = backend.capture(
      () => {
        const run = (): R => mapped(f(...(this.#inputs as unknown as A)), (t) => t.detach());
        answer = this.#notes.during(() => scope(run as never) as R);
        answer = mapped(answer, keep);
      },
      beside,
      { hold: true },
    );
    const own = new Set<unknown>();
    mapped(answer as R, (t) => (own.add(t.memory), t));
    const left =
      replay.pool.live - lived - [...own].filter((m) => (m as { pool?: unknown }).pool === replay.pool).length;
    if (left > 0) {
      mapped(answer as R, (t) => (t.dispose(), t));
      replay.dispose();
      throw new UnsupportedError(
        `captured: ${left === 1 ? 'a tensor' : `${left} tensors`} made in the step outlive it without being ` +
          'answered, and every run would write them anew. Answer them, or make them before',
      );
    }
    return { replay, answer: answer as R };
  }
  run(inputs: A): R {
    noGrad(() => {
      for (let i = 0; i < inputs.length; i++)
        if (inputs[i].storage !== this.#inputs[i].storage) copyInto(this.#inputs[i], inputs[i]);
    });
    const bytes = this.#notes.next();
    if (bytes) this.#words.device.backend.write(this.#words.memory, 0, bytes);
    this.replay.launch();
    return copied(this.#answer);
  }
  #letGo(): void {
    for (const t of this.#inputs) t.dispose();
    this.#notes.dispose();
    this.#words.dispose();
  }
  dispose(): void {
    mapped(this.#answer, (t) => (t.dispose(), t));
    this.replay.dispose();
    this.#letGo();
  }
}

/**
 * f as work that a GPU repeats without the host: for steps of training, `captured((x, y) => { const loss =
 * model.loss(x, y); optimizer.backwardStep(loss); return loss; })`. The first call with tensors of some shapes runs op
 * by op, the second is recorded, and every one from then on copies the tensors to where the recording reads them and
 * launches it; each call is one step, with the same numbers. Learning rates, step counts and random streams go on from
 * run to run; anything else that f reads outside of tensors stays what it was when it was recorded. What one step
 * leaves for the next must be written in place, and nothing can be read in f: answer tensors, of which every call makes
 * new ones. On the CPU f just runs.
 */
export function captured<A extends readonly Tensor[], R extends CapturedAnswer>(
  f: (...inputs: A) => R,
  options: CapturedOptions = {},
): Captured<A, R> {
  requireOptions('captured', options, ['warmUp', 'shapes', 'device']);
  const { warmUp = 1, shapes = 8 } = options;
  for (const [name, n] of Object.entries({ warmUp, shapes }))
    if (!Number.isSafeInteger(n) || n < 1)
      throw new ArgumentError(`captured: ${name} ${String(n)} is not a whole number from 1`);
  const known = new Map<string, { runs: number; step?: RecordedStep<A, R> }>();
  const recordings = (): RecordedStep<A, R>[] => [...known.values()].flatMap(({ step }) => step ?? []);

  const call = (...inputs: A): R => {
    check(inputs);
    const device = inputs.length > 0 ? sameDevice('captured', inputs) : Device.of(options.device);
    const { gpu } = device.backend;
    const eager = (): R => scope((() => copied(f(...inputs))) as never) as R;
    if (!gpu) return eager();
    const key = keyOf(inputs, device);
    let entry = known.get(key);
    if (!entry && known.size < shapes) known.set(key, (entry = { runs: 0 }));
    if (!entry || (!entry.step && entry.runs++ < warmUp)) return eager();
    entry.step ??= new RecordedStep(f, inputs, device, gpu, recordings()[0]?.replay);
    return entry.step.run(inputs);
  };
  const dispose = (): void => {
    for (const step of recordings()) step.dispose();
    known.clear();
  };
  Object.defineProperty(call, 'recorded', { get: () => recordings().length });
  return Object.assign(call, { dispose, [Symbol.dispose]: dispose }) as unknown as Captured<A, R>;
}

function check(inputs: readonly unknown[]): asserts inputs is readonly Tensor[] {
  inputs.forEach((t, i) => {
    if (!(t instanceof Tensor))
      throw new ArgumentError(
        `captured: argument ${i} is ${t === null ? 'null' : `a ${typeof t}`}, not a tensor; a recorded step would ` +
          'repeat the first one',
      );
    if (gradEnabled() && t.requiresGrad)
      throw new ArgumentError(
        `captured: argument ${i} ${formatShape(t.shape)} requires a gradient, which does not flow out of a recorded ` +
          'step; parameters are found where f uses them',
      );
  });
}
/** What recorded kernels depend on besides f. */
const keyOf = (inputs: readonly Tensor[], device: Device): string =>
  `${device.name} ${gradEnabled()} ${device.deterministic} ${device.tf32} ` +
  inputs.map((t) => `${t.dtype}${formatShape(t.shape)}`).join(' ');
