// A run of fit() in a file: weights, optimizer, schedule, average and random streams, so that it goes on bit for bit.
import { ArgumentError } from '../base/errors.js';
import type { EMA } from '../nn/ema.js';
import type { Module } from '../nn/module.js';
import type { Optimizer } from '../nn/optim.js';
import type { ReduceLROnPlateau, Scheduler } from '../nn/scheduler.js';
import { loadCheckpoint, saveCheckpoint } from '../nn/train.js';
import { defaultGenerator } from '../tensor/random.js';
import type { Tensor } from '../tensor/tensor.js';
import type { EarlyStopping } from './early-stopping.js';

/** The measures of one epoch by name; those of validation begin with 'validation.'. */
export interface EpochRecord {
  /** Counted from 1. */
  readonly epoch: number;
  /** Steps of the optimizer so far. */
  readonly step: number;
  /** The rate at the epoch's end. */
  readonly learningRate: number;
  /** The loss and metrics by name; those of validation begin with 'validation.'. */
  readonly measures: Readonly<Record<string, number>>;
}
/** All that a run changes. */
export interface RunParts {
  readonly model: Module;
  readonly optimizer: Optimizer;
  readonly scheduler: Scheduler | ReduceLROnPlateau | undefined;
  readonly ema: EMA | undefined;
  readonly stopping: EarlyStopping | undefined;
}
const AVERAGE = 'average.';
const tensorsOf = ({ model, ema }: RunParts): Map<string, Tensor> =>
  new Map([
    ...model.stateDict(),
    ...[...(ema?.stateDict() ?? [])].map(([name, t]) => [`${AVERAGE}${name}`, t] as const),
  ]);
const generators = { default: defaultGenerator };

/** Writes a checkpoint that appears whole or not at all. */
export function saveRun(path: string, parts: RunParts, records: readonly EpochRecord[]): void {
  const { optimizer, scheduler, ema, stopping } = parts;
  const extra = {
    records,
    ...(scheduler &&
      ('schedule' in scheduler ? { at: scheduler.at, base: scheduler.base } : { plateau: scheduler.state })),
    ...(ema && { averaged: ema.updates }),
    ...(stopping && { stopping: { best: stopping.best, waited: stopping.waited } }),
  };
  saveCheckpoint(path, { tensors: tensorsOf(parts), optimizer, generators }, { step: optimizer.steps, extra });
}

/** Takes up a checkpoint; answers the epochs so far. */
export function loadRun(path: string, parts: RunParts): EpochRecord[] {
  const { optimizer, scheduler, ema, stopping } = parts;
  const { extra } = loadCheckpoint(path, { tensors: tensorsOf(parts), optimizer, generators });
  const {
    records,
    at,
    base,
    averaged,
    plateau,
    stopping: watched,
  } = extra as {
    records?: EpochRecord[];
    at?: number;
    base?: number;
    averaged?: number;
    plateau?: { best: number | null; bad: number; cooling: number };
    stopping?: { best: number | null; waited: number };
  };
  if (!records) throw new ArgumentError(`fit: ${path} is a checkpoint, but of no run of fit()`);
  if (scheduler && 'schedule' in scheduler && at !== undefined) {
    if (base !== scheduler.base)
      throw new ArgumentError(`fit: ${path} was trained with a rate of ${base}, not ${scheduler.base}`);
    scheduler.at = at;
  }
  if (scheduler && !('schedule' in scheduler) && plateau)
    scheduler.state = { ...plateau, best: plateau.best ?? scheduler.best };
  if (ema && averaged !== undefined) ema.updates = averaged;
  if (stopping && watched) {
    stopping.best = watched.best ?? stopping.best; // JSON knows no infinity: nothing was watched yet
    stopping.waited = watched.waited;
  }
  return records;
}
