// Models of every family, small and random: configs, tensors by formula, and what transformers answers to them.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadTensors, saveTensors } from '../src/io/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { tensor } from '../src/tensor/create.js';
import { keep } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';

/** Where there is a fifth, whole numbers below it. */
type Spec = readonly [shape: readonly number[], seed: number, scale: number, offset: number, numbers?: number];
interface Family {
  readonly config: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<Record<string, Spec>>;
  /** What generate() was told besides, of encoder-decoders. */
  readonly rules?: Readonly<Record<string, unknown>>;
}
type Stem =
  | 'families'
  | 'encoders'
  | 'seq2seq'
  | 'classifiers'
  | 'tokens'
  | 'vision'
  | 'sound'
  | 'pictures'
  | 'speech'
  | 'sound-text'
  | 'scenes'
  | 'segments'
  | 'grounded'
  | 'captions'
  | 'prompted';
const file = (name: string): string => findGolden('families', name) as string;
const missing = (stem: Stem): string | false => missingGolden(`families/${stem}.json`, `families/${stem}.safetensors`);
const models = (stem: Stem): Readonly<Record<string, Family>> =>
  missing(stem)
    ? {}
    : (JSON.parse(readFileSync(file(`${stem}.json`), 'utf8')) as { models: Record<string, Family> }).models;
export const skipFamilies = missing('families');
export const skipEncoders = missing('encoders');
/** Decoders. */
export const families = models('families');
/** Text encoders, likewise. */
export const encoders = models('encoders');
/** Encoder-decoders. */
export const pairs = models('seq2seq');
/** Encoders with a head that classifies. */
export const classifiers = models('classifiers');

/** Models that see. */
export const seeing = models('vision');

/** Models of whole scenes: things, segments, distances. */
export const scenes = models('scenes');

/** Models that are asked about pictures, by points or by words. */
export const prompted = models('prompted');

/** Models that find what texts name. */
export const grounders = models('grounded');

/** Models that answer with masks. */
export const maskers = models('segments');

/** Models that write what pictures show. */
export const captions = models('captions');

/** Models of sounds beside texts. */
export const listeners = models('sound-text');

/** Models that hear. */
export const hearing = models('sound');

/** Models that hear and write text. */
export const writers = models('speech');

/** Models that read pictures and write text. */
export const readers = models('pictures');

/** Encoders with a head that answers for every token. */
export const tokenHeads = models('tokens');

/** Numbers between -0.5 and 0.5 by their place: a hash of 32 bits. */
function uniform(i: number, seed: number): number {
  let x = Math.imul((i + seed) >>> 0, 0x9e3779b1) >>> 0;
  x = Math.imul(x ^ (x >>> 15), 0x85ebca77) >>> 0;
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae3d) >>> 0;
  return ((x ^ (x >>> 16)) >>> 0) / 4294967296 - 0.5;
}
function made([shape, seed, scale, offset, numbers]: Spec): Tensor {
  const size = shape.reduce((a, b) => a * b, 1);
  if (numbers !== undefined) {
    const data = BigInt64Array.from({ length: size }, (_, i) => BigInt(Math.floor((uniform(i, seed) + 0.5) * numbers)));
    return tensor(data, { shape: [...shape], device: 'cpu' });
  }
  if (scale === 0) return tensor(new Float32Array(size).fill(offset), { shape: [...shape], device: 'cpu' });
  const data = Float32Array.from({ length: size }, (_, i) => uniform(i, seed) * (2 * Math.sqrt(3) * scale) + offset);
  return tensor(data, { shape: [...shape], device: 'cpu' });
}
let scratch: string | undefined;
/** The same model with the same number everywhere: for what depends on names and shapes alone. */
export const blank = (f: Family): Family => ({
  ...f,
  tensors: Object.fromEntries(Object.entries(f.tensors).map(([key, [shape]]) => [key, [shape, 0, 0, 1] as const])),
});
/** A folder as transformers saved it. */
export function familyFolder(name: string, change: (f: Family) => Family = (f) => f, of = families): string {
  if (!scratch) {
    const dir = (scratch = mkdtempSync(join(tmpdir(), 'wick-families-')));
    process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  }
  const { config, tensors } = change(of[name]);
  const dir = mkdtempSync(join(scratch, `${name}-`));
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config));
  const all = new Map(Object.entries(tensors).map(([key, spec]) => [key, made(spec)]));
  saveTensors(join(dir, 'model.safetensors'), all);
  for (const t of all.values()) t.dispose();
  return dir;
}
const answers = new Map<string, Map<string, Tensor>>();
export function answerOf(name: string, key: string, from: Stem = 'families'): Tensor {
  let all = answers.get(from);
  if (!all) {
    all = loadTensors(file(`${from}.safetensors`), { device: 'cpu' });
    for (const t of all.values()) keep(t); // they outlive the scope of the test that asked first
    answers.set(from, all);
  }
  return all.get(`${name}/${key}`) as Tensor;
}

/** A question about pictures, and what transformers made of it. */
interface Asked {
  readonly images: readonly string[];
  readonly ids: readonly number[];
  /** Every 37th of the pixels that are not 0. */
  readonly pixels: readonly number[];
  readonly answer: readonly number[];
  readonly text: string;
}
interface Chat {
  readonly files: Readonly<Record<string, unknown>>;
  readonly template: string | null;
  readonly asks: Readonly<Record<string, Asked>>;
}
export const skipChats = missingGolden('families/chats.json');
/** Chats about pictures by the model of `readers`. */
export const chats: Readonly<Record<string, Chat>> = skipChats
  ? {}
  : JSON.parse(readFileSync(file('chats.json'), 'utf8'));
/** A folder of `readers` with its tokenizer, its processor and its chat template. */
export function chatFolder(name: string, more: Readonly<Record<string, unknown>> = {}): string {
  const { files, template } = chats[name];
  const dir = familyFolder(name, (f) => f, readers);
  for (const [to, json] of Object.entries({ ...files, ...more })) writeFileSync(join(dir, to), JSON.stringify(json));
  if (template !== null) writeFileSync(join(dir, 'chat_template.jinja'), template);
  return dir;
}
