// Configs with one field that is something else: a typed error that names the file, and the field where its kind is
// wrong, or a model; what is taken in spite of a wrong kind has no effect.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { FormatError, WickError } from '../src/base/errors.js';
import { readJsonFile } from '../src/io/json-file.js';
import { loadModel } from '../src/models/index.js';
import { noGrad } from '../src/tensor/autograd.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { scratch } from './io-support.js';
import { KINDS, type KindRow } from './models-kinds.js';
import { answerOf, familyFolder, scenes } from './models-support.js';

type Fields = Readonly<Record<string, unknown>>;
/** Models of every kind, small ones, in which most features of the readers meet. */
const CHOSEN: Readonly<Record<string, readonly string[]>> = {
  families: ['llama', 'qwen2_moe', 'gemma3_text', 'deepseek_v3', 'jamba', 'bamba', 'qwen3_next', 'gpt2'],
  encoders: ['mpnet', 'deberta-v2', 'modernbert', 'esm'],
  classifiers: ['xlm-roberta', 'ctrl'],
  seq2seq: ['t5-b', 'bart', 'marian', 'm2m_100'],
  vision: ['deit', 'swin', 'dinov3_vit', 'efficientnet-c'],
  sound: ['wav2vec2', 'ast'],
  speech: ['moonshine'],
  pictures: ['gemma3', 'qwen2_vl'],
  scenes: ['yolos', 'dpt'],
};
const answerOfScene: KindRow[3] = (model: { forward(x: Tensor): Tensor | { logits: Tensor } }, of) => {
  const out = model.forward(of('pixels'));
  return 'logits' in out ? out.logits : out;
};
const MODELS = [...KINDS, ['scenes', scenes, '', answerOfScene] as KindRow].flatMap((row) =>
  (CHOSEN[row[0]] ?? []).filter((name) => name in row[1]).map((name) => ({ name, row })),
);

const inside = (v: unknown): v is Fields => typeof v === 'object' && v !== null && !Array.isArray(v);
const pathsOf = (fields: Fields, at: readonly string[] = []): (readonly string[])[] =>
  Object.entries(fields).flatMap(([key, v]) => [[...at, key], ...(inside(v) ? pathsOf(v, [...at, key]) : [])]);
const valueAt = (fields: Fields, path: readonly string[]): unknown =>
  path.reduce<unknown>((v, key) => (v as Fields)[key], fields);
function changed(fields: Fields, [key, ...rest]: readonly string[], value: unknown): Fields {
  return { ...fields, [key]: rest.length === 0 ? value : changed(fields[key] as Fields, rest, value) };
}
const kindOf = (v: unknown): string => (v === null ? 'null' : Array.isArray(v) ? 'list' : typeof v);

const deep = JSON.parse(`${'['.repeat(500)}${']'.repeat(500)}`) as unknown;
const VALUES = [null, undefined, '', 'x', '4', 'NaN', 'false', true, false, [], ['x'], [1], {}, deep];
const NUMBERS = [-1, 0, 0.5, 1e9, 2 ** 53, 1e300];

/** What a model of this config answers, as text that can be compared. */
function answered(dir: string, { name, row }: (typeof MODELS)[number], config: Fields): string {
  const [stem, , kind, run] = row;
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config));
  return scope(() =>
    noGrad(() => {
      const { model } = loadModel(dir, { device: 'cpu', ...(kind && { kind: kind as 'decoder' }) });
      const out = run(model as never, (key) => answerOf(name, key, stem as 'families'));
      model.dispose();
      return JSON.stringify([out.shape, out.toArray()]);
    }),
  );
}

const folders = new Map<string, { readonly dir: string; readonly plain: string }>();
const RUNS = Number(process.env.WICK_FUZZ || 300);
const skip = MODELS.length === 0 && 'the golden models are not here';
test('a field of a config that is something else is refused by name, or changes nothing unseen', { skip }, () => {
  const cases = fc.constantFrom(...MODELS).chain((model) => {
    const { config } = model.row[1][model.name];
    const paths = fc.constantFrom(...pathsOf(config));
    return fc.tuple(fc.constant(model), paths, fc.constantFrom<unknown>(...VALUES, ...NUMBERS));
  });
  const check = ([model, path, value]: readonly [(typeof MODELS)[number], readonly string[], unknown]): void => {
    const { name, row } = model;
    const { config } = row[1][name];
    let at = folders.get(`${row[0]} ${name}`);
    if (!at) {
      const dir = familyFolder(name, (f) => f, row[1]);
      folders.set(`${row[0]} ${name}`, (at = { dir, plain: answered(dir, model, config) }));
    }
    const was = valueAt(config, path);
    const [before, after] = [kindOf(was), kindOf(value ?? null)];
    const otherKind = after !== 'null' && before !== 'null' && before !== after;
    try {
      const now = answered(at.dir, model, changed(config, path, value));
      // A field that may be a list or a number may be of the other kind; of a third kind nothing may follow.
      const either = [before, after].every((kind) => kind === 'list' || kind === 'number') || after === 'object';
      if (otherKind && !either) assert.equal(now, at.plain, 'a wrong kind was read as something');
    } catch (e) {
      if (!(e instanceof WickError)) throw e;
      const known = e.message.includes(path.at(-1) as string) || e.message.includes('rope type');
      if (otherKind && after !== 'object') assert.ok(known, `without the field's name: ${e.message}`);
    }
  };
  fc.assert(fc.property(cases, check), { numRuns: RUNS, seed: 20, verbose: fc.VerbosityLevel.None });
});

test('numbers out of their range are refused with field, value and rule', { skip }, () => {
  const llama = KINDS.find(([stem]) => stem === 'families') as KindRow;
  const dir = familyFolder('mistral', (f) => f, llama[1]);
  const { config } = llama[1].mistral;
  for (const [field, value, says] of [
    ['rms_norm_eps', -1, 'rms_norm_eps is -1, not a number from 0'],
    ['rope_theta', 0, 'rope_theta is 0, not a number above 0'],
    ['sliding_window', -1, 'sliding_window is -1, not a whole number from 0'],
    ['sliding_window', 0.5, 'sliding_window is 0.5, not a whole number from 0'],
    ['max_position_embeddings', 1e9, 'max_position_embeddings is 1000000000, and no model has more than 16777216'],
    ['eos_token_id', '2', 'eos_token_id is "2", not a whole number or a list of them'],
    ['eos_token_id', [2, 'x'], 'eos_token_id is [2,"x"], not a whole number or a list of them'],
    ['tie_word_embeddings', 'false', 'tie_word_embeddings is "false", not true or false'],
    ['hidden_act', 'nosuch', 'hidden_act is "nosuch", an activation that is not known'],
    ['num_attention_heads', '4', 'num_attention_heads is "4", not a whole number from 1'],
  ] as const) {
    const { rope_parameters: _, ...plain } = config;
    writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...plain, [field]: value }));
    assert.throws(
      () => loadModel(dir, { device: 'cpu' }),
      (e: Error) => e instanceof WickError && e.message === `${dir}/config.json: ${says}`,
      field,
    );
  }
});

test('infinity as Python writes it is a number; words beside it stay as they are', () => {
  const path = join(scratch(), 'config.json');
  writeFileSync(path, '{"limit": [0.0, Infinity], "least": -Infinity, "name": "\\"Infinity, and beyond\\""}');
  assert.deepEqual(readJsonFile(path), {
    limit: [0, Infinity],
    least: -Infinity,
    name: '"Infinity, and beyond"',
  });
  writeFileSync(path, '{"limit": NaN}');
  assert.throws(() => readJsonFile(path), FormatError);
});
