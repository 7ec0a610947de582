// Whole models against transformers, through the registry: logits within a share of the largest, greedy tokens equal
// with and without a cache, alone and in a batch padded in front.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../base/errors.js';
import { loadTensors } from '../io/load.js';
import type { CausalLM } from '../models/decoder/decoder.js';
import { loadModel } from '../models/load.js';
import type { ModelKind } from '../models/model-row.js';
import { MODELS } from '../models/registry.js';
import type { Module } from '../nn/module.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { Device } from '../tensor/device.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { CaseResult } from './candle.js';
import { readJson, unpacked } from './golden.js';
import {
  checkEncoder,
  checkImageText,
  checkSeq2Seq,
  checkVision,
  type Golden,
  MODEL_TOLERANCE,
  type ModelCheck,
  relativeError,
} from './model-checks.js';
import { caught } from './verdict.js';

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

const rowsOf = (t: Tensor): number[][] => (t.toArray() as (number | bigint)[][]).map((r) => r.map(Number));

/** Sequences continued by the likeliest token each. */
export function greedyRows(
  model: CausalLM,
  prompt: readonly (readonly number[])[],
  length: number,
  cached: boolean,
  pads?: readonly number[],
): number[][] {
  const rows = prompt.map((r) => [...r]);
  const cache = cached ? model.newCache() : undefined;
  let next = rows.map((r) => [...r]);
  while (rows[0].length < length) {
    const first = !cache || cache.length === 0;
    const chosen = scope(() =>
      noGrad(() => {
        const ids = tensor(Int32Array.from(next.flat()), {
          shape: [rows.length, next[0].length],
          device: model.device,
        });
        const logits = model.forward(ids, cache, { last: true, ...(first && pads && { pads }) });
        return Array.from(logits.squeeze([1]).argmax(1).dataSync() as Iterable<number | bigint>, Number);
      }),
    );
    chosen.forEach((token, i) => rows[i].push(token));
    next = cached ? chosen.map((token) => [token]) : rows;
  }
  cache?.dispose();
  return rows;
}

/** What a decoder must hold; parts that a golden file lacks are left out. */
function checkDecoder(model: CausalLM, golden: Golden, has: (key: string) => boolean): ModelCheck[] {
  const checks: ModelCheck[] = [];
  const close = (what: string, got: Tensor, want: Tensor): void => {
    const error = relativeError(got, want);
    checks.push({ what, error, ok: error <= MODEL_TOLERANCE });
  };
  const equal = (what: string, got: number[][], want: number[][]): void =>
    void checks.push({ what, ok: got.join() === want.join() });
  const ids = (key: string): Tensor => golden(key).cast('i32');
  noGrad(() => close('logits', model.forward(ids('input_ids')), golden('logits')));
  if (has('short_ids'))
    noGrad(() => close('logits of short sequences', model.forward(ids('short_ids')), golden('short_logits')));
  const [prompt, tokens] = [rowsOf(golden('prompt')), rowsOf(golden('greedy'))];
  for (const cached of [true, false])
    equal(
      `greedy tokens ${cached ? 'with' : 'without'} a cache`,
      greedyRows(model, prompt, tokens[0].length, cached),
      tokens,
    );
  if (!has('padded_ids')) return checks;
  const mask = golden('padded_mask');
  const pads = rowsOf(mask).map((r) => r.indexOf(1));
  const padded = noGrad(() => model.forward(ids('padded_ids'), undefined, { pads }).mul(mask.cast('f32').unsqueeze(2)));
  close('logits of a padded batch', padded, golden('padded_logits'));
  if (!has('padded_greedy')) return checks;
  const want = rowsOf(golden('padded_greedy'));
  equal(
    'greedy tokens of a padded batch',
    greedyRows(model, rowsOf(golden('padded_ids')), want[0].length, true, pads),
    want,
  );
  return checks;
}

/** How models of a kind are held against their golden tensors. */
const MODEL_CHECKS: {
  readonly [K in ModelKind]?: (model: Module, golden: Golden, has: (key: string) => boolean) => ModelCheck[];
} = {
  decoder: (model, golden, has) => checkDecoder(model as CausalLM, golden, has),
  encoder: checkEncoder,
  seq2seq: checkSeq2Seq,
  speech: checkSeq2Seq,
  vision: checkVision,
  'image-text': checkImageText,
};

/** The checks of one model's folder on a device. */
export function checkModel(folder: string, device: Device, name = folder): ModelCheck[] {
  let checks: ModelCheck[] = [];
  scope(() => {
    const tensors = loadTensors(join(folder, 'golden.safetensors'), { device });
    const { model, row } = loadModel(folder, { device });
    const check = MODEL_CHECKS[row.kind];
    if (!check) throw new FormatError(`${name}: there is no check for models of kind ${row.kind}`);
    const golden: Golden = (key) => {
      const t = tensors.get(key);
      if (!t) throw new FormatError(`hf/${name}/golden.safetensors: no tensor ${JSON.stringify(key)}`);
      return t;
    };
    checks = noGrad(() => check(model, golden, (key) => tensors.has(key)));
    model.dispose();
  });
  return checks;
}

export function runModel(dir: string, name: string, device: Device): CaseResult {
  const head = { name: `models/${name}`, op: name, dtype: 'f32' as const, bound: MODEL_TOLERANCE };
  try {
    const { model_type: family } = readJson(dir, `hf/${name}/config.json`) as { model_type?: unknown };
    if (!MODELS.some((r) => r.types.includes(family as string)))
      return {
        ...head,
        verdict: 'unsupported',
        why: `models of the family ${
          JSON.stringify(family) ?? 'that config.json does not name'
        } are not served; known are ${MODELS.flatMap((r) => r.types).join(', ')}`,
      };
    const checks = checkModel(modelFolder(dir, name), device, name);
    const error = Math.max(...checks.map((c) => c.error ?? 0));
    const wrong = checks.find((c) => !c.ok);
    const why =
      wrong &&
      (wrong.error === undefined
        ? `${wrong.what} differ`
        : `${wrong.what} are off by ${wrong.error.toPrecision(3)} of the largest`);
    return { ...head, verdict: why ? 'failed' : error === 0 ? 'exact' : 'within', ulp: error, ...(why && { why }) };
  } catch (e) {
    return { ...head, ...caught(e) };
  }
}
