// What a recorded step takes from the host anew before every run: rates, counters, random streams. Kernels would repeat
// the numbers they were recorded with, so these lie in memory that the host fills.
import { UnsupportedError } from '../base/errors.js';
import type { Generator } from './random.js';
import { keep } from './scope.js';
import type { Tensor } from './tensor.js';

/** Words of 32 bits for all numbers of a step, and what each number's place is a multiple of. */
export const STEP_WORDS = 1024;
const ALIGNED = 4;

/** A random stream in a step: where its seed and its offset lie, and the offset that the step began with. */
export interface StepStream {
  readonly words: Tensor;
  readonly start: bigint;
}
interface Drawn extends StepStream {
  readonly generator: Generator;
  readonly seed: bigint;
  /** Numbers that a run draws, known when all is recorded. */
  count: bigint;
}

let current: StepRecording | undefined;
/** The step that is being recorded. */
export const stepRecording = (): StepRecording | undefined => current;

/** What is being noted while a step is recorded, and then done before each of its runs. */
export class StepRecording {
  readonly #words: Tensor;
  readonly #bytes = new Uint8Array(4 * STEP_WORDS);
  #used = 0;
  readonly #before: (() => void)[] = [];
  readonly #shared = new Map<object, Tensor>();
  readonly #streams = new Map<Generator, Drawn>();
  readonly #views: Tensor[] = [];
  readonly #graph: Tensor[] = [];

  /** `words`: STEP_WORDS of u32, which `bytes` are brought to before a run. */
  constructor(words: Tensor) {
    this.#words = words;
  }
  /** Runs f, which records. */
  during<T>(f: () => T): T {
    if (current)
      throw new UnsupportedError('captured: a step is recorded within another; call the inner function itself');
    current = this;
    try {
      return f();
    } finally {
      current = undefined;
      this.#rewind();
      for (const t of this.#graph) t.dispose();
      this.#graph.length = 0;
    }
  }
  /** Whether the step is one of this device: only there are numbers fed. */
  on(device: Tensor['device']): boolean {
    return this.#words.device === device;
  }
  /** A handle that a graph made in the step holds: no graph outlives it, though a branch may have led nowhere. */
  held(t: Tensor): void {
    this.#graph.push(t);
  }
  /** Does something on the host before every run, in the order in which it was asked for. */
  before(f: () => void): void {
    this.#before.push(f);
  }
  /** f32 numbers on the device, worked out anew before every run; those of one `key` are there once. */
  numbers(key: object, count: number, compute: () => readonly number[]): Tensor {
    const known = this.#shared.get(key);
    if (known) return known;
    const at = this.#take(count);
    const into = new Float32Array(this.#bytes.buffer, 4 * at, count);
    this.before(() => into.set(compute()));
    const view = this.#view(at, count).bitcast('f32');
    keep(view);
    this.#shared.set(key, view);
    return view;
  }
  /** A generator's numbers in the step: every run goes on where the one before ended. */
  stream(generator: Generator): StepStream {
    const known = this.#streams.get(generator);
    if (known) {
      if (generator.seed !== known.seed || generator.offset < known.start)
        throw new UnsupportedError(
          'captured: the step seeds its random numbers anew, which a recorded step cannot; seed them outside',
        );
      return known;
    }
    const at = this.#take(4);
    const into = new BigUint64Array(this.#bytes.buffer, 4 * at, 2);
    const { seed: first, offset: start } = generator;
    const drawn: Drawn = { words: this.#view(at, 4), start, generator, seed: first, count: 0n };
    this.#streams.set(generator, drawn);
    this.before(() => {
      into.set([generator.seed, generator.offset]);
      generator.offset += drawn.count;
    });
    return drawn;
  }
  /** Nothing has run: the streams are where they were, and what a run draws is known. */
  #rewind(): void {
    for (const drawn of this.#streams.values()) {
      const { generator, start } = drawn;
      drawn.count = generator.offset - start;
      generator.offset = start;
    }
  }
  #view(at: number, count: number): Tensor {
    const view = keep(this.#words.narrow(0, at, count));
    this.#views.push(view);
    return view;
  }
  #take(count: number): number {
    const at = this.#used;
    this.#used += Math.ceil(count / ALIGNED) * ALIGNED;
    if (this.#used > STEP_WORDS)
      throw new UnsupportedError(
        `captured: the step takes more than ${STEP_WORDS} numbers from the host; fewer optimizers, groups or ` +
          `generators do`,
      );
    return at;
  }
  /** What is brought to the words for the next run; undefined where nothing is. */
  next(): Uint8Array | undefined {
    for (const f of this.#before) f();
    return this.#used > 0 ? this.#bytes.subarray(0, 4 * this.#used) : undefined;
  }
  dispose(): void {
    for (const t of [...this.#views, ...this.#shared.values()]) t.dispose();
  }
}
