// A language model behind an engine, from the options that commands share.
import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import type { DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { builtinModel, LanguageModel, TextEngine } from '../engine/index.js';
import type { Group } from '../distributed/index.js';
import type { ExpertDivision } from '../models/index.js';
import type { CacheType } from '../nn/kv-cache.js';
import { Device } from '../tensor/device.js';
import { type ProgressBar, progressBar } from './progress.js';

const option = { type: 'string' } as const;
export const ENGINE_OPTIONS = {
  model: option,
  device: option,
  dtype: option,
  'cache-type': option,
  context: option,
  'max-running': option,
  'memory-share': option,
} as const;
export type EngineValues = { readonly [K in keyof typeof ENGINE_OPTIONS]?: string | undefined };

export const ENGINE_HELP = `  --model NAME           a folder, a .gguf file or a model of the hub, as for wick generate (default: the built-in model)
  --device NAME          cpu, cuda:0, rocm:0, ... (default: a GPU if there is one, else the CPU)
  --dtype T              f32, bf16, f16 (default: as stored; f32 on the CPU)
  --cache-type T         q8_0 or f8e4m3: keys and values in 8 bits (default: the dtype)
  --context N            tokens of prompt and answer together (default: what the model was made for, or there is room for)
  --max-running N        requests that are computed at a time (default 256 on GPUs, 32 on the CPU)
  --memory-share S       share of the free memory for keys and values (default 0.85 on GPUs, 0.25 on the CPU)`;

/** A number of an option, or an error that names it. */
export function numberOf(command: string, name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n))
    throw new ArgumentError(`${command}: --${name} ${JSON.stringify(text)} is not a number`);
  return n;
}
export function wholeOf(command: string, name: string, text: string | undefined): number | undefined {
  const n = numberOf(command, name, text);
  if (n !== undefined && (!Number.isSafeInteger(n) || n < 0))
    throw new ArgumentError(`${command}: --${name} ${text} is not a whole number from 0`);
  return n;
}

export interface OpenEngine {
  readonly engine: TextEngine;
  readonly device: Device;
  readonly parameters: number;
  readonly dtype: string;
  readonly loadSeconds: number;
  dispose(): Promise<void>;
}

/** What a model is called by clients: the last part of its name. */
export const shortName = (name: string | undefined): string =>
  name === undefined ? 'wick-builtin' : basename(name).replace(/\.gguf$/i, '') || name;

/** The model that the options name. */
export function modelOf(command: string, { model }: EngineValues): string {
  if (model === undefined && !existsSync(builtinModel))
    throw new ArgumentError(`${command}: the built-in model is not part of this installation; give --model NAME`);
  return model ?? builtinModel;
}

/** A bar on the terminal, where there is one; of several ranks the first shows it. */
export const terminalBar = (world?: Group): ProgressBar | undefined =>
  process.stderr.isTTY && (world?.first ?? true) ? progressBar() : undefined;

export async function openEngine(
  command: string,
  v: EngineValues,
  more: {
    readonly name?: string | undefined;
    readonly maxWaiting?: number | undefined;
    /** The ranks that share the model. */
    readonly world?: Group;
    /** How they divide mixtures. */
    readonly experts?: ExpertDivision | undefined;
    readonly onBroken?: (error: Error) => void;
    /** Told how far it is; default: a bar on the terminal. */
    readonly bar?: ProgressBar;
  } = {},
): Promise<OpenEngine> {
  const from = modelOf(command, v);
  const { world, experts } = more;
  const device = world?.device ?? (v.device ? Device.get(v.device) : Device.best());
  const begin = performance.now();
  const bar = more.bar ?? terminalBar(world);
  const model = await LanguageModel.load(from, {
    device,
    ...(v.dtype && { dtype: v.dtype as DType }),
    ...(world && { shard: world }),
    ...(experts && { experts }),
    ...(v['cache-type'] && { cacheType: v['cache-type'] as CacheType }),
    onDownload: ({ file, done, total }) => bar?.show(done, total, `fetching ${file}`),
    onProgress: (done, total) => bar?.show(done, total, `loading to ${device.name}`),
  });
  bar?.end();
  const given = {
    contextTokens: wholeOf(command, 'context', v.context),
    maxRunning: wholeOf(command, 'max-running', v['max-running']),
    memoryShare: numberOf(command, 'memory-share', v['memory-share']),
    maxWaiting: more.maxWaiting,
    onBroken: more.onBroken,
    name: more.name ?? shortName(v.model),
  };
  try {
    const engine = new TextEngine(
      model.model,
      model.tokenizer,
      Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    );
    return {
      engine,
      device,
      parameters: model.model.parameterCount(),
      dtype: model.model.dtype,
      loadSeconds: (performance.now() - begin) / 1000,
      dispose: async () => {
        await engine.dispose();
        model.dispose();
      },
    };
  } catch (error) {
    model.dispose();
    throw error;
  }
}

export const parameterSize = (n: number): string =>
  n >= 1e9 ? `${(n / 1e9).toFixed(1)}B` : `${(n / 1e6).toFixed(1)}M`;
