// Steps that are recorded once and repeated with other numbers in the same places: what all of them share.
import type { Recorded } from '../../backends/backend.js';
import { DRAW_ROW } from '../../backends/generation.js';
import type { HostBuffer } from '../../driver/driver.js';
import type { CausalLM } from '../../models/index.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { castInto } from '../../tensor/dispatch.js';
import { keep, scope } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import type { DeviceDraws } from './device-draws.js';
import type { Work } from '../executor.js';
import { offThread } from '../off-thread.js';

/** Work with the pages its sequence held when the step was planned: one that is cancelled meanwhile holds none. */
export interface Placed extends Work {
  readonly pages: readonly number[];
}
/** Where nothing is stored. */
export const NOWHERE = 2 ** 31 - 1;
/** Words that say how a row is drawn. */
export const DRAW_WORDS = DRAW_ROW.bytes / 4;
/** Sizes of recorded batches: 1, 2, 4, 8, then every 8. */
export const bucketOf = (n: number): number =>
  n <= 8 ? 2 ** Math.ceil(Math.log2(Math.max(1, n))) : 8 * Math.ceil(n / 8);

/** What a step leaves behind. */
export type Results = {
  readonly logits: Tensor;
  /** Numbers of the largest, where the host draws. */
  readonly best: Tensor | undefined;
};
/** Writes the numbers of a step. */
export type Fill = (words: Int32Array) => void;

/** The numbers of a step: on the device, and where the host writes them. */
class Sheet {
  readonly numbers: Tensor;
  /** Two for a device that fetches them by itself, since one may be on its way. */
  readonly #words: readonly Int32Array[];
  readonly #sent: readonly HostBuffer[];
  readonly #draws: DeviceDraws | undefined;
  #turn = 0;
  constructor({ device }: CausalLM, draws: DeviceDraws | undefined, count: number, first: Fill) {
    this.#draws = draws;
    this.#sent = draws ? [0, 1].map(() => draws.device.hostBuffer(4 * count)) : [];
    const words = this.#sent.map(({ bytes }) => new Int32Array(bytes.buffer, bytes.byteOffset, count));
    this.#words = draws ? words : [new Int32Array(count)];
    first(this.#words[0]);
    this.numbers = keep(tensor(this.#words[0], { device }));
  }
  send(fill: Fill): void {
    const words = this.#words[this.#turn];
    fill(words);
    if (!this.#draws) return this.numbers.device.backend.write(this.numbers.memory, 0, new Uint8Array(words.buffer));
    this.#draws.device.send(this.numbers, this.#sent[this.#turn]);
    this.#turn ^= 1;
  }
  dispose(): void {
    this.numbers.dispose();
    for (const buffer of this.#sent) this.#draws?.device.freeHost(buffer);
  }
}

export class RecordedStep implements Results {
  readonly logits: Tensor;
  readonly best: Tensor | undefined;
  readonly #sheet: Sheet;
  readonly recorded: Recorded;
  constructor(sheet: Sheet, recorded: Recorded, { logits, best }: Results) {
    this.#sheet = sheet;
    this.recorded = recorded;
    this.logits = keep(logits);
    this.best = best && keep(best);
  }
  /** Begins it with other numbers; what it leaves behind is there until the next step. */
  async launch(fill: Fill): Promise<Results> {
    this.#sheet.send(fill);
    await this.recorded.launch();
    return this;
  }
  dispose(): void {
    this.recorded.dispose(); // waits for its last run
    this.#sheet.dispose();
    this.logits.dispose();
    this.best?.dispose();
  }
}

/** Records steps of a model, all over the same memory: only one runs at a time. */
export class Recorder {
  readonly #model: CausalLM;
  readonly #draws: DeviceDraws | undefined;
  /** Rows of the largest step. */
  readonly #most: number;
  #steps: RecordedStep[] = [];
  /** Where the device draws, one place for the logits of all steps: nobody reads them once the next one runs. */
  #logits: Tensor | undefined;
  constructor(model: CausalLM, draws: DeviceDraws | undefined, most: number) {
    this.#model = model;
    this.#draws = draws;
    this.#most = bucketOf(most);
  }
  /** Records a step of so many words, which `first` fills with numbers that change nothing. */
  async record(count: number, first: Fill, step: (numbers: Tensor) => Results): Promise<RecordedStep> {
    const [model, draws] = [this.#model, this.#draws];
    const sheet = new Sheet(model, draws, count, first);
    const run = (): Results => scope(() => noGrad(() => step(sheet.numbers)));
    try {
      // Everything runs once before it is recorded: tables are made, kernels are compiled and loaded, products
      // measured.
      const { gpu } = model.device.backend;
      const trial = (): Promise<Results> => offThread(model, () => (gpu ? gpu.measuringProducts(run) : run()));
      const { logits, best } = draws ? await draws.device.trial(trial) : await trial();
      logits.dispose();
      best?.dispose();
      const made: Results[] = [];
      const { backend } = model.device;
      const capture = backend.capture as NonNullable<typeof backend.capture>;
      const recorded = capture.call(backend, () => void made.push(run()), this.#steps[0]?.recorded);
      const ready = new RecordedStep(sheet, recorded, made[0]);
      this.#steps.push(ready);
      return ready;
    } catch (e) {
      sheet.dispose();
      throw e;
    }
  }
  /** The end of a step: rows of logits in f32, and tokens drawn from them as `rows` says, or the largest of each. */
  leave(made: Tensor, rows: Tensor): Results {
    if (!this.#draws) {
      const logits = made.cast('f32').contiguous();
      return { logits, best: logits.argmax(1) };
    }
    const [n, vocabSize] = made.shape;
    this.#logits ??= keep(Tensor.empty([this.#most, vocabSize], 'f32', made.device));
    const logits = this.#logits.narrow(0, 0, n);
    castInto(logits, made);
    this.#draws.device.draw(logits, rows, n);
    return { logits, best: undefined };
  }
  /** Recorded steps read weights where they were: when those move, all are recorded again. */
  drop(): void {
    for (const step of this.#steps) step.dispose();
    this.#steps = [];
    this.#logits?.dispose();
    this.#logits = undefined;
  }
}
