// fit(): the training loop as people write it, with measures, validation, early stopping, checkpoints and logs.
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError } from '../base/errors.js';
import { type Batch, disposeBatch } from '../data/index.js';
import type { EMA } from '../nn/ema.js';
import type { Module } from '../nn/module.js';
import { type ClipOptions, Optimizer } from '../nn/optim.js';
import { clipGradNorm, clipGradValue } from '../nn/clip.js';
import { GradAccumulator } from '../nn/train.js';
import type { ReduceLROnPlateau, Scheduler } from '../nn/scheduler.js';
import { requireOptions } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { EarlyStopping, type EarlyStoppingOptions } from './early-stopping.js';
import { EventWriter } from './events.js';
import { type Series, writePlot } from './plot.js';
import { Progress } from './progress.js';
import { type EpochRecord, loadRun, saveRun } from './run-state.js';

/** Batches of one epoch at a time: a DataLoader, or anything like it. */
export type Batches<B = Batch> = (AsyncIterable<B> | Iterable<B>) & {
  /** How many batches an epoch has, for the progress bar. */
  readonly length?: number;
  /** Set to the epoch's number before each; a DataLoader shuffles by it. */
  epoch?: number;
};
/** A measure of the outputs for a batch; means over batches are weighed by their sizes. */
export type Metric<B = Batch> = (output: Tensor, batch: B) => Tensor | number;
/** What a run was. */
export interface History {
  /** One record an epoch, in order. */
  readonly epochs: readonly EpochRecord[];
  /** Steps of the optimizer. */
  readonly steps: number;
  /** Why it ended. */
  readonly ended: 'epochs' | 'early stopping' | 'asked to stop';
}
/** Where checkpoints go and how many stay. */
export interface CheckpointOptions {
  /** The folder: 'last.safetensors', and 'best.safetensors' where a measure is watched. */
  readonly folder: string;
  /** Epochs between checkpoints; default 1. */
  readonly every?: number;
  /** Goes on where the last checkpoint of the folder ended; default false. */
  readonly resume?: boolean;
}

/** Options of fit; what a batch holds is known from the data. */
export interface FitOptions<B = Batch> extends ClipOptions {
  /** Batches to train on: a DataLoader, or anything that can be iterated over again for each epoch. */
  readonly data: Batches<B>;
  /** Batches to measure on after each epoch, without gradients. */
  readonly validation?: Batches<NoInfer<B>>;
  /** How often all data are seen. */
  readonly epochs: number;
  /** What changes the weights; made over `model.parameters()`. */
  readonly optimizer: Optimizer;
  /** The loss of the outputs for a batch, a single number. */
  readonly loss: (output: Tensor, batch: NoInfer<B>) => Tensor;
  /** The outputs for a batch; default model.forward(batch.x). */
  readonly forward?: (batch: NoInfer<B>) => Tensor;
  /** Further measures by name, computed on every batch and averaged. */
  readonly metrics?: Readonly<Record<string, Metric<NoInfer<B>>>>;
  /** Steps after each step of the optimizer; a ReduceLROnPlateau is told the watched measure after each epoch. */
  readonly scheduler?: Scheduler | ReduceLROnPlateau;
  /** Updated after each step, and used for validation. */
  readonly ema?: EMA;
  /** Batches whose gradients are joined for one step; default 1. */
  readonly accumulate?: number;
  /** When to end before the last epoch. */
  readonly earlyStopping?: EarlyStoppingOptions;
  /** Where and how often the run is saved, and whether it goes on from there. */
  readonly checkpoint?: CheckpointOptions;
  /** A folder for TensorBoard's event files. */
  readonly tensorboard?: string;
  /** A file for the curves of all measures, as SVG. */
  readonly plot?: string;
  /** A progress line on the error stream; default true. */
  readonly progress?: boolean;
  /** Called after each epoch; answering false ends the run. */
  readonly onEpoch?: (record: EpochRecord) => boolean | void | Promise<boolean | void>;
  /** Ends the run after the step under way; the epoch it was in does not count. */
  readonly signal?: AbortSignal;
}
const OPTIONS = [
  ...['data', 'validation', 'epochs', 'optimizer', 'loss', 'forward', 'metrics', 'scheduler', 'ema', 'accumulate'],
  ...['earlyStopping', 'checkpoint', 'tensorboard', 'plot', 'progress', 'onEpoch', 'signal', 'clipNorm', 'clipValue'],
];

/** Sums on the device, read once at the end of an epoch. */
class Means {
  readonly #sums = new Map<string, Tensor>();
  #weight = 0;
  add(values: Readonly<Record<string, Tensor | number>>, like: Tensor, weight: number): void {
    this.#weight += weight;
    scope(() =>
      noGrad(() => {
        for (const [name, v] of Object.entries(values)) {
          const one = v instanceof Tensor ? v.detach().cast('f32').reshape([]) : like.newFull([], v, 'f32');
          const before = this.#sums.get(name);
          const weighed = one.affine(weight, 0);
          this.#sums.set(name, keep(before ? before.add(weighed) : weighed));
          before?.dispose();
        }
      }),
    );
  }
  async read(prefix = ''): Promise<Record<string, number>> {
    const out: Record<string, number> = {};
    for (const [name, t] of this.#sums) {
      out[`${prefix}${name}`] = Number((await t.data())[0]) / this.#weight;
      t.dispose();
    }
    return out;
  }
}
const sizeOf = (batch: Batch): number => {
  const [first] = Object.values(batch);
  return Array.isArray(first) ? first.length : (first?.shape[0] ?? 1);
};

/**
 * Trains a model.
 *
 * ```ts
 * await fit(model, {
 *   data: new DataLoader(train, { batch: 64, shuffle: true }),
 *   validation: new DataLoader(test, { batch: 256 }),
 *   epochs: 5,
 *   optimizer: new AdamW(model.parameters()),
 *   loss: (logits, { y }) => losses.crossEntropy(logits, y),
 *   metrics: { accuracy: (logits, { y }) => accuracy(logits, y) },
 * });
 * ```
 */
export async function fit<B = Batch>(model: Module, options: FitOptions<B>): Promise<History> {
  requireOptions('fit', options, OPTIONS, ['progress', 'resume']);
  if (typeof options.loss !== 'function')
    throw new ArgumentError(
      `fit: loss is ${typeof options.loss}, not a function of the output and the batch that answers a single number`,
    );
  for (const name of ['epochs', 'accumulate'] as const) {
    const v = options[name] ?? 1;
    if (!Number.isInteger(v) || v < 1) throw new ArgumentError(`fit: ${name} ${v} is not a whole number of at least 1`);
  }
  if (!(options.optimizer instanceof Optimizer))
    throw new ArgumentError(
      'fit: optimizer takes one of wick/nn, as new AdamW(model.parameters()); LBFGS steps by itself',
    );
  return new FitRun(model, options as unknown as FitOptions).run();
}

/** A run of fit(), and what it remembers from one epoch to the next. */
class FitRun {
  readonly #model: Module;
  readonly #options: FitOptions;
  readonly #forward: (batch: Batch) => Tensor;
  readonly #stopping: EarlyStopping | undefined;
  readonly #records: EpochRecord[] = [];
  #bestWeights: Map<string, Tensor> | undefined;
  #ended: History['ended'] = 'epochs';
  #batches = 0;

  constructor(model: Module, options: FitOptions) {
    this.#model = model;
    this.#options = options;
    this.#forward = options.forward ?? ((batch) => defaultForward(model, batch));
    this.#stopping = options.earlyStopping && new EarlyStopping(options.earlyStopping);
  }

  async run(): Promise<History> {
    const { data, epochs, optimizer, tensorboard, progress = true } = this.#options;
    this.#resume();
    const events = tensorboard === undefined ? undefined : new EventWriter(tensorboard);
    const bar = progress ? new Progress((data.length ?? 0) * (epochs - this.#records.length)) : undefined;
    try {
      for (let epoch = this.#records.length + 1; epoch <= epochs && this.#ended === 'epochs'; epoch++) {
        const measures = await this.#train(epoch, bar);
        if (!measures) break; // an epoch that was cut short does not count: a resumed run begins it again
        await this.#close(epoch, measures, events);
      }
    } finally {
      bar?.end();
      events?.close();
    }
    if (this.#bestWeights) this.#model.loadStateDict(this.#bestWeights);
    this.#forgetBest();
    this.#model.eval();
    return { epochs: this.#records, steps: optimizer.steps, ended: this.#ended };
  }

  #file(name: 'last' | 'best'): string | undefined {
    const { checkpoint } = this.#options;
    return checkpoint && join(checkpoint.folder, `${name}.safetensors`);
  }
  /** What checkpoints hold. */
  get #state() {
    const { optimizer, scheduler, ema } = this.#options;
    return { model: this.#model, optimizer, scheduler, ema, stopping: this.#stopping };
  }
  #resume(): void {
    const { checkpoint, data } = this.#options;
    if (checkpoint) mkdirSync(checkpoint.folder, { recursive: true });
    const last = this.#file('last');
    if (!checkpoint?.resume || !last || !existsSync(last)) return;
    this.#records.push(...loadRun(last, this.#state));
    if ('epoch' in data) data.epoch = this.#records.length;
  }

  /** One pass over the data; its measures, or undefined where the run was asked to stop. */
  async #train(epoch: number, bar: Progress | undefined): Promise<Record<string, number> | undefined> {
    const { data, optimizer, epochs, signal } = this.#options;
    this.#model.train();
    const means = new Means();
    const sum = new GradAccumulator(optimizer.params);
    let shown = 'loss ...';
    for await (const batch of data) {
      const loss = this.#step(batch, sum, means);
      disposeBatch(batch);
      this.#batches++;
      if (bar && this.#batches % 10 === 1) shown = `loss ${Number((await loss.data())[0]).toFixed(4)}`;
      loss.dispose();
      bar?.show(this.#batches, `epoch ${epoch}/${epochs} ${shown}`);
      if (signal?.aborted) {
        this.#ended = 'asked to stop';
        break;
      }
    }
    if (signal?.aborted) return undefined;
    if (sum.count > 0) this.#apply(sum); // the last batches of an epoch may be fewer than are joined
    const measures = await means.read();
    if (Object.keys(measures).length === 0) throw new ArgumentError('fit: the data hold no batch');
    return measures;
  }
  #step(batch: Batch, sum: GradAccumulator, means: Means): Tensor {
    const { loss: lossOf, metrics = {}, accumulate = 1 } = this.#options;
    return scope(() => {
      const output = this.#forward(batch);
      const loss = lossOf(output, batch);
      if (!(loss instanceof Tensor) || loss.size !== 1)
        throw new ArgumentError('fit: the loss must be a tensor of a single number');
      const measured = Object.entries(metrics).map(([name, f]) => [name, noGrad(() => f(output, batch))] as const);
      const grads = loss.backward();
      sum.add(grads);
      grads.dispose();
      means.add({ loss, ...Object.fromEntries(measured) }, loss, sizeOf(batch));
      if (sum.count >= accumulate) this.#apply(sum);
      return loss.detach();
    });
  }
  /** One step of the optimizer with the gradients that were joined. */
  #apply(sum: GradAccumulator): void {
    const { optimizer, scheduler, ema, clipValue, clipNorm } = this.#options;
    scope(() => {
      const source = sum.take();
      const own = optimizer.params.filter((p) => source.get(p));
      if (own.length === 0)
        throw new ArgumentError(
          'fit: no parameter of the optimizer has a gradient of this loss: it was made for another model, or what it ' +
            'trains is frozen or not used',
        );
      let list = own.map((p) => source.get(p) as Tensor);
      if (clipValue !== undefined) list = clipGradValue(list, clipValue);
      if (clipNorm !== undefined) list = clipGradNorm(list, clipNorm).grads;
      optimizer.step(new Map(own.map((p, i) => [p, list[i]])));
      if (scheduler && 'schedule' in scheduler) scheduler.step();
      ema?.update();
    });
  }

  async #evaluate(on: Batches): Promise<Record<string, number>> {
    const { loss: lossOf, metrics = {} } = this.#options;
    const found = new Means();
    for await (const batch of on) {
      scope(() =>
        noGrad(() => {
          const output = this.#forward(batch);
          const measured = Object.entries(metrics).map(([name, f]) => [name, f(output, batch)] as const);
          const loss = lossOf(output, batch);
          found.add({ loss, ...Object.fromEntries(measured) }, loss, sizeOf(batch));
        }),
      );
      disposeBatch(batch);
    }
    return found.read('validation.');
  }

  /** The end of an epoch: validation, records, checkpoints, and whether the run goes on. */
  async #close(epoch: number, measures: Record<string, number>, events: EventWriter | undefined): Promise<void> {
    const { validation, ema, optimizer, scheduler, plot, onEpoch } = this.#options;
    const stopping = this.#stopping;
    if (validation) {
      this.#model.eval();
      const evaluate = () => this.#evaluate(validation);
      Object.assign(measures, await (ema ? ema.use(evaluate) : evaluate()));
    }
    const record = { epoch, step: optimizer.steps, learningRate: optimizer.learningRate, measures };
    this.#records.push(record);
    events?.scalars({ ...measures, 'learning rate': optimizer.learningRate }, optimizer.steps);
    if (plot) writePlot(plot, seriesOf(this.#records), { xLabel: 'epochs' });
    const watched = stopping && watchedOf(measures, stopping.monitor);
    if (scheduler && !('schedule' in scheduler))
      scheduler.step(watchedOf(measures, validation ? 'validation.loss' : 'loss'));
    const told = stopping?.tell(watched as number);
    this.#save(epoch, told);
    if (told?.stop) this.#ended = 'early stopping';
    if ((await onEpoch?.(record)) === false) this.#ended = 'asked to stop';
  }
  #save(epoch: number, told: ReturnType<EarlyStopping['tell']> | undefined): void {
    const { checkpoint, epochs } = this.#options;
    const [last, best] = [this.#file('last'), this.#file('best')];
    if (last && (epoch % (checkpoint?.every ?? 1) === 0 || epoch === epochs || told?.stop))
      saveRun(last, this.#state, this.#records);
    if (!told?.better) return;
    if (best) saveRun(best, this.#state, this.#records);
    if (!this.#stopping?.restoreBest) return;
    this.#forgetBest();
    this.#bestWeights = new Map(
      [...this.#model.stateDict()].map(([name, t]) => [name, noGrad(() => keep(t.detach().copy()))]),
    );
  }
  #forgetBest(): void {
    for (const t of this.#bestWeights?.values() ?? []) t.dispose();
  }
}

function defaultForward(model: Module, batch: Batch): Tensor {
  if (!('forward' in model) || !(batch.x instanceof Tensor))
    throw new ArgumentError('fit: give { forward } where batches hold no `x` or the model has no forward()');
  return (model.forward as (x: Tensor) => Tensor)(batch.x);
}
function watchedOf(measures: Readonly<Record<string, number>>, name: string): number {
  if (!Object.hasOwn(measures, name))
    throw new ArgumentError(
      `fit: there is no measure ${JSON.stringify(name)}; known are ${Object.keys(measures).join(', ')}`,
    );
  return measures[name];
}
/** The measures of a run as curves over epochs. */
export const seriesOf = (records: readonly EpochRecord[]): Series[] =>
  Object.keys(records[0]?.measures ?? {}).map((name) => ({
    name,
    points: records.map((r) => [r.epoch, r.measures[name]] as const),
  }));
