// A language model behind an engine, from the options that commands share.
import { basename } from 'node:path';
import type { TextEngine } from '../engine/text-engine.js';
import type { Device } from '../tensor/device.js';
import { type ModelPlace, openModel } from './open-model.js';
import { numberOf, wholeOf } from './options.js';

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

export const ENGINE_HELP = `  --model NAME           a folder, a .gguf file or a model of the hub, as for wick generate (default: the built-in
                         model)
  --device NAME          cpu, cuda:0, rocm:0, ... (default: a GPU if there is one, else the CPU)
  --dtype T              f32, bf16, f16 (default: as stored; f32 on the CPU)
  --cache-type T         q8_0 or f8e4m3: keys and values in 8 bits (default: the dtype)
  --context N            tokens of prompt and answer together (default: what the model was made for, or
                         there is room for)
  --max-running N        requests that are computed at a time (default 256 on GPUs, 32 on the CPU)
  --memory-share S       share of the free memory for keys and values (default 0.85 on GPUs, 0.25 on the CPU)`;

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

export async function openEngine(
  command: string,
  v: EngineValues,
  more: ModelPlace & {
    readonly name?: string | undefined;
    readonly maxWaiting?: number | undefined;
    readonly onBroken?: (error: Error) => void;
  } = {},
): Promise<OpenEngine> {
  const { device, model, seconds } = await openModel(command, v, more);
  const given = {
    contextTokens: wholeOf(command, 'context', v.context),
    maxRunning: wholeOf(command, 'max-running', v['max-running']),
    memoryShare: numberOf(command, 'memory-share', v['memory-share']),
    maxWaiting: more.maxWaiting,
    onBroken: more.onBroken,
    name: more.name ?? shortName(v.model),
  };
  try {
    const engines = await import('../engine/text-engine.js');
    const engine = new engines.TextEngine(
      model.model,
      model.tokenizer,
      Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    );
    return {
      engine,
      device,
      parameters: model.model.weightCount(),
      dtype: model.model.dtype,
      loadSeconds: seconds(),
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
