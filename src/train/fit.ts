// fit(): the training loop as people write it, with measures, validation, early stopping, checkpoints and logs.
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError } from '../base/errors.js';
import { type Batch, disposeBatch } from '../data/index.js';
import type { EMA } from '../nn/ema.js';
import type { Module } from '../nn/module.js';
import type { ClipOptions, Optimizer } from '../nn/optim.js';
import { clipGradNorm, clipGradValue } from '../nn/clip.js';
import { GradAccumulator } from '../nn/train.js';
import type { ReduceOnPlateau, Scheduler } from '../nn/scheduler.js';
import { requireOptions } from '../ops/kernel-row.js';
import { noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { EarlyStopping, type EarlyStoppingOptions } from './early-stopping.js';
import { EventWriter } from './events.js';
import { type Series, writePlot } from './plot.js';
import { Progress } from './progress.js';
import { loadRun, saveRun } from './run-state.js';

/** Batches of one epoch at a time: a DataLoader, or anything like it. */
export type Batches = (AsyncIterable<Batch> | Iterable<Batch>) & { readonly length?: number; epoch?: number };
/** A measure of the outputs for a batch; means over batches are weighed by their sizes. */
export type Metric = (output: Tensor, batch: Batch) => Tensor | number;
/** The measures of one epoch by name; those of validation begin with 'validation.'. */
export interface EpochRecord {
  /** Counted from 1. */
  readonly epoch: number;
  /** Steps of the optimizer so far. */
  readonly step: number;
  readonly learningRate: number;
  readonly measures: Readonly<Record<string, number>>;
}
/** What a run was. */
export interface History {
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

/** Options of fit. */
export interface FitOptions extends ClipOptions {
  readonly data: Batches;
  readonly validation?: Batches;
  /** How often all data are seen. */
  readonly epochs: number;
  readonly optimizer: Optimizer;
  /** The loss of the outputs for a batch, a single number. */
  readonly loss: (output: Tensor, batch: Batch) => Tensor;
  /** The outputs for a batch; default model.forward(batch.x). */
  readonly forward?: (batch: Batch) => Tensor;
  readonly metrics?: Readonly<Record<string, Metric>>;
  /** Steps after each step of the optimizer; a ReduceOnPlateau is told the watched measure after each epoch. */
  readonly scheduler?: Scheduler | ReduceOnPlateau;
  /** Updated after each step, and used for validation. */
  readonly ema?: EMA;
  /** Batches whose gradients are joined for one step; default 1. */
  readonly accumulate?: number;
  readonly earlyStopping?: EarlyStoppingOptions;
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
export async function fit(model: Module, options: FitOptions): Promise<History> {
  requireOptions('fit', options, OPTIONS);
  const { data, validation, epochs, optimizer, loss: lossOf, metrics = {}, scheduler, ema, accumulate = 1 } = options;
  for (const [name, v] of [
    ['epochs', epochs],
    ['accumulate', accumulate],
  ] as const)
    if (!Number.isInteger(v) || v < 1) throw new ArgumentError(`fit: ${name} ${v} is not a whole number of at least 1`);
  const forward = options.forward ?? ((batch: Batch) => defaultForward(model, batch));
  const stopping = options.earlyStopping && new EarlyStopping(options.earlyStopping);
  const { checkpoint } = options;
  const last = checkpoint && join(checkpoint.folder, 'last.safetensors');
  const best = checkpoint && join(checkpoint.folder, 'best.safetensors');
  if (checkpoint) mkdirSync(checkpoint.folder, { recursive: true });
  const records: EpochRecord[] = [];
  if (checkpoint?.resume && last && existsSync(last)) {
    records.push(...loadRun(last, { model, optimizer, scheduler, ema, stopping }));
    if ('epoch' in data) data.epoch = records.length;
  }
  const events = options.tensorboard === undefined ? undefined : new EventWriter(options.tensorboard);
  const bar = (options.progress ?? true) ? new Progress((data.length ?? 0) * (epochs - records.length)) : undefined;
  let bestWeights: Map<string, Tensor> | undefined;
  let ended: History['ended'] = 'epochs';
  let batches = 0;

  const step = (batch: Batch, sum: GradAccumulator): Tensor =>
    scope(() => {
      const output = forward(batch);
      const loss = lossOf(output, batch);
      if (!(loss instanceof Tensor) || loss.size !== 1)
        throw new ArgumentError('fit: the loss must be a tensor of a single number');
      const measured = Object.entries(metrics).map(([name, f]) => [name, noGrad(() => f(output, batch))] as const);
      const grads = loss.backward();
      sum.add(grads);
      grads.dispose();
      means.add({ loss, ...Object.fromEntries(measured) }, loss, sizeOf(batch));
      if (sum.count >= accumulate) apply(sum);
      return loss.detach();
    });
  const apply = (sum: GradAccumulator): void =>
    scope(() => {
      const source = sum.take();
      const own = optimizer.params.filter((p) => source.get(p));
      let list = own.map((p) => source.get(p) as Tensor);
      if (options.clipValue !== undefined) list = clipGradValue(list, options.clipValue);
      if (options.clipNorm !== undefined && list.length > 0) list = clipGradNorm(list, options.clipNorm).grads;
      optimizer.step(new Map(own.map((p, i) => [p, list[i]])));
      if (scheduler && 'schedule' in scheduler) scheduler.step();
      ema?.update();
    });
  const evaluate = async (on: Batches): Promise<Record<string, number>> => {
    const found = new Means();
    for await (const batch of on) {
      scope(() =>
        noGrad(() => {
          const output = forward(batch);
          const measured = Object.entries(metrics).map(([name, f]) => [name, f(output, batch)] as const);
          const loss = lossOf(output, batch);
          found.add({ loss, ...Object.fromEntries(measured) }, loss, sizeOf(batch));
        }),
      );
      disposeBatch(batch);
    }
    return found.read('validation.');
  };

  let means = new Means();
  try {
    for (let epoch = records.length + 1; epoch <= epochs && ended === 'epochs'; epoch++) {
      model.train();
      means = new Means();
      const sum = new GradAccumulator(optimizer.params);
      let shown = 'loss ...';
      for await (const batch of data) {
        const loss = step(batch, sum);
        disposeBatch(batch);
        batches++;
        if (bar && batches % 10 === 1) shown = `loss ${Number((await loss.data())[0]).toFixed(4)}`;
        loss.dispose();
        bar?.show(batches, `epoch ${epoch}/${epochs} ${shown}`);
        if (options.signal?.aborted) {
          ended = 'asked to stop';
          break;
        }
      }
      if (options.signal?.aborted) break; // an epoch that was cut short is not an epoch: a resumed run begins it again
      if (sum.count > 0) apply(sum); // the last batches of an epoch may be fewer than are joined
      const measures = await means.read();
      if (Object.keys(measures).length === 0) throw new ArgumentError('fit: the data hold no batch');
      if (validation) {
        model.eval();
        Object.assign(measures, await (ema ? ema.use(() => evaluate(validation)) : evaluate(validation)));
      }
      const record = { epoch, step: optimizer.steps, learningRate: optimizer.learningRate, measures };
      records.push(record);
      events?.scalars({ ...measures, 'learning rate': optimizer.learningRate }, optimizer.steps);
      if (options.plot) writePlot(options.plot, seriesOf(records), { xLabel: 'epochs' });
      const watched = stopping && watchedOf(measures, stopping.monitor);
      if (scheduler && !('schedule' in scheduler))
        scheduler.step(watchedOf(measures, validation ? 'validation.loss' : 'loss'));
      const told = stopping?.tell(watched as number);
      const run = { model, optimizer, scheduler, ema, stopping };
      if (last && (epoch % (checkpoint?.every ?? 1) === 0 || epoch === epochs || told?.stop))
        saveRun(last, run, records);
      if (told?.better) {
        if (best) saveRun(best, run, records);
        if (stopping?.restoreBest) {
          for (const t of bestWeights?.values() ?? []) t.dispose();
          bestWeights = new Map(
            [...model.stateDict()].map(([name, t]) => [name, noGrad(() => keep(t.detach().copy()))]),
          );
        }
      }
      if (told?.stop) ended = 'early stopping';
      if ((await options.onEpoch?.(record)) === false) ended = 'asked to stop';
    }
  } finally {
    bar?.end();
    events?.close();
  }
  if (bestWeights) model.loadStateDict(bestWeights);
  for (const t of bestWeights?.values() ?? []) t.dispose();
  model.eval();
  return { epochs: records, steps: optimizer.steps, ended };
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
