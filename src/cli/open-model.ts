// A language model from the options that commands share, with a bar while it loads.
import { existsSync } from 'node:fs';
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { Group } from '../distributed/index.js';
import { builtinModel } from '../engine/builtin-model.js';
import type { LanguageModel } from '../engine/language-model.js';
import type { ExpertDivision } from '../models/index.js';
import type { CacheType } from '../nn/kv-cache.js';
import type { Device } from '../tensor/device.js';
import { type ProgressBar, progressBar } from './progress.js';

export interface ModelValues {
  readonly model?: string | undefined;
  readonly device?: string | undefined;
  readonly dtype?: string | undefined;
  readonly 'cache-type'?: string | undefined;
}

/** The model that the options name. */
export function modelOf(command: string, { model }: ModelValues): string {
  if (model === undefined && !existsSync(builtinModel))
    throw new ArgumentError(`${command}: the built-in model is not part of this installation; give --model NAME`);
  return model ?? builtinModel;
}

/** A bar on the terminal, where there is one; of several ranks the first shows it. */
export const terminalBar = (world?: Group): ProgressBar | undefined =>
  process.stderr.isTTY && (world?.first ?? true) ? progressBar() : undefined;

export interface ModelPlace {
  /** The ranks that share the model. */
  readonly world?: Group | undefined;
  /** How they divide mixtures. */
  readonly experts?: ExpertDivision | undefined;
  /** Told how far it is; default: a bar on the terminal. */
  readonly bar?: ProgressBar;
}
export interface OpenModel {
  readonly model: LanguageModel;
  readonly device: Device;
  /** Seconds since it was asked for. */
  readonly seconds: () => number;
}
export async function openModel(command: string, v: ModelValues, place: ModelPlace): Promise<OpenModel> {
  const from = modelOf(command, v);
  const { world, experts } = place;
  // Read here, so that a command's help and its complaints about options need none of it.
  const devices = await import('../tensor/device.js');
  const models = await import('../engine/language-model.js');
  const device = world?.device ?? (v.device ? devices.Device.get(v.device) : devices.Device.best());
  // Why a device is not what was hoped for is told before the work begins, not after it.
  await new Promise(setImmediate);
  const begin = performance.now();
  const bar = place.bar ?? terminalBar(world);
  const model = await models.LanguageModel.load(from, {
    device,
    ...(v.dtype && { dtype: v.dtype as DType }),
    ...(world && { shard: world }),
    ...(experts && { experts }),
    ...(v['cache-type'] && { cacheType: v['cache-type'] as CacheType }),
    onDownload: ({ file, done, total }) => bar?.show(done, total, `fetching ${file}`),
    onProgress: (done, total) => bar?.show(done, total, `loading to ${device.name}`),
  });
  bar?.end();
  return { model, device, seconds: () => (performance.now() - begin) / 1000 };
}

/** Whether a device is the reference engine: a token of the built-in model takes it a second. */
export async function isReference(device: Device): Promise<boolean> {
  const { ReferenceBackend } = await import('../backends/reference.js');
  return device.backend instanceof ReferenceBackend;
}

export const parameterSize = (n: number): string =>
  n >= 1e9 ? `${(n / 1e9).toFixed(1)}B` : `${(n / 1e6).toFixed(1)}M`;
