// Whole models against transformers: logits within a share of the largest, greedy tokens equal with and without a cache.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../base/errors.js';
import { loadTensors } from '../io/load.js';
import { Llama } from '../models/llama.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { CaseResult } from './candle.js';
import { readJson, unpacked } from './golden.js';
import { caught } from './verdict.js';

/** Largest error of a logit, as a share of the largest logit. */
export const MODEL_TOLERANCE = 1e-4;
/** Families that load, by the config's model_type. */
const FAMILIES: Readonly<Record<string, (dir: string, device: Device) => Llama>> = {
  llama: (dir, device) => Llama.load(dir, { device }),
};

/** Models of a golden folder: the folders of its hf/. */
export const goldenModels = (dir: string): string[] =>
  existsSync(join(dir, 'hf'))
    ? readdirSync(join(dir, 'hf'), { withFileTypes: true })
        .filter((f) => f.isDirectory())
        .map((f) => f.name)
        .sort()
    : [];

/** A model's folder with its files as loaders want them. */
export const modelFolder = (dir: string, name: string): string => unpacked(dir, `hf/${name}`);

function greedy(model: Llama, prompt: readonly number[], length: number, cached: boolean): number[] {
  const ids = [...prompt];
  const cache = cached ? model.newCache() : undefined;
  let next = ids;
  while (ids.length < length) {
    const token = scope(() =>
      noGrad(() =>
        model
          .forward(tensor(Int32Array.from(next), { device: model.device }).unsqueeze(0), cache, { last: true })
          .reshape([-1])
          .argmax(0)
          .item(),
      ),
    );
    ids.push(token);
    next = cached ? [token] : ids;
  }
  cache?.forEach((c) => c.dispose());
  return ids;
}

const missing = (file: string, key: string): never => {
  throw new FormatError(`${file}: no tensor ${JSON.stringify(key)}`);
};

export function runModel(dir: string, name: string, device: Device): CaseResult {
  const head = { name: `models/${name}`, op: name, dtype: 'f32' as const, bound: MODEL_TOLERANCE };
  try {
    const { model_type: family } = readJson(dir, `hf/${name}/config.json`) as { model_type?: unknown };
    const load = typeof family === 'string' && Object.hasOwn(FAMILIES, family) ? FAMILIES[family] : undefined;
    if (!load)
      return {
        ...head,
        verdict: 'unsupported',
        why: `models of the family ${JSON.stringify(family) ?? 'that config.json does not name'} are not served; known are ${Object.keys(FAMILIES).join(', ')}`,
      };
    const folder = modelFolder(dir, name);
    let error = 0;
    let why: string | undefined;
    scope(() => {
      const golden = loadTensors(join(folder, 'golden.safetensors'), { device });
      const model = load(folder, device);
      const part = (key: string): Tensor => golden.get(key) ?? missing(`hf/${name}/golden.safetensors`, key);
      const want = part('logits');
      const got = noGrad(() => model.forward(part('input_ids')));
      error = got.sub(want).abs().max().item() / want.abs().max().item();
      const [prompt, tokens] = ['prompt', 'greedy'].map((n) => (part(n).toArray() as number[][])[0]);
      const wrong = [true, false].find(
        (cached) => greedy(model, prompt, tokens.length, cached).join() !== tokens.join(),
      );
      why = !(error <= MODEL_TOLERANCE)
        ? `logits are off by ${error.toPrecision(3)} of the largest`
        : wrong === undefined
          ? undefined
          : `greedy tokens differ ${wrong ? 'with' : 'without'} a cache`;
    });
    return { ...head, verdict: why ? 'failed' : error === 0 ? 'exact' : 'within', ulp: error, ...(why && { why }) };
  } catch (e) {
    return { ...head, ...caught(e) };
  }
}
