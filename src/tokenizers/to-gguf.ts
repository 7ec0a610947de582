// A folder's tokenizer as the metadata of a GGUF file. What the file would make of texts is compared with what the
// folder makes of them; a tokenizer that would answer otherwise is refused.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError, UnsupportedError } from '../base/errors.js';
import type { GgufScalar, GgufValue } from '../io/gguf-value.js';
import { readJsonFile } from '../io/json-file.js';
import { byteText } from './byte-level.js';
import { tokenizerFromGguf } from './from-gguf.js';
import type { Json } from './from-json.js';
import { folderConfig, loadTokenizer } from './load.js';
import { olderJson } from './older-folders.js';
import { finder } from './pattern.js';
import { eachPiece, inOrder, preTokenizer, split } from './pre-tokenizers.js';
import { PRE_TYPES, type PreType } from './pre-types.js';
import { PIECE, storedPieces } from './sentencepiece.js';
import type { Tokenizer } from './tokenizer.js';

/** Words, numbers, code, spaces, scripts and marks that pre-tokenizers treat each in their own way. */
export const SAMPLES: readonly string[] = [
  'Hello world',
  ' Hello  World!\n\n\nthree   newlines \n and a tab\tor two\t\t.',
  "I've, you'RE, they'll; don't, WE'D it's O'Neill",
  '3.14159 1234567890 12,345 007 1st 2nd v2.0 ½ ² 三百',
  'for (let i = 0; i < n; i++) { x[i] += y->z * 0x1F; } // "quoted" \'text\' `code`',
  'camelCase HTTPServer snake_case MixedUP iPhone UPPERlower',
  'Größe façade naïve Ünïcödé ŝtréets',
  'Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم',
  '你好，世界。今日は世界！안녕하세요 세계 สวัสดีชาวโลก नमस्ते दुनिया',
  '🙂👩‍👩‍👧 🚀🚀 ✅ → ≤ ∑',
  '   leading, trailing   ',
  '...---!!!???  ""  ((nested)) [[x]] {{y}} #tag @user $5.00 50% a/b\\c http://a.b/c?d=e&f',
  '\r\nline\r\n\r\nend',
];

export interface GgufTokenizer {
  readonly entries: ReadonlyMap<string, GgufValue>;
  /** What the file cannot say, in sentences. */
  readonly notes: readonly string[];
}

/** A vocabulary as files list it. */
interface Listed {
  readonly tokens: string[];
  readonly types: number[];
  readonly scores?: number[];
  readonly merges?: readonly string[];
}
interface JsonAdded {
  readonly id: number;
  readonly content: string;
  readonly special?: boolean;
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
  readonly single_word?: boolean;
}

const text = (value: string): GgufValue => ({ type: 'string', value });
const flag = (value: boolean): GgufValue => ({ type: 'bool', value });
const list = (of: GgufValue['of'], value: GgufScalar): GgufValue => ({ type: 'array', of: of as 'string', value });

/** Numbers without a token are marked as unused, up to the rows of the embedding. */
function padded(where: string, { tokens, types, scores, merges }: Listed, rows: number): Listed {
  if (tokens.length > rows)
    throw new FormatError(`${where}: the tokenizer has ${tokens.length} tokens, the model's embedding ${rows} rows`);
  const at = Array.from({ length: rows }, (_, i) => i);
  return {
    tokens: at.map((i) => tokens[i] ?? `[PAD${i}]`),
    types: at.map((i) => (tokens[i] === undefined ? PIECE.unused : types[i])),
    ...(scores && { scores: at.map((i) => (tokens[i] === undefined ? -10_000 : scores[i])) }),
    ...(merges && { merges }),
  };
}

function addTokens(listed: Listed, added: readonly JsonAdded[], score?: number): void {
  for (const { id, content, special } of added) {
    const known = listed.types[id];
    listed.tokens[id] = content;
    if (known === PIECE.unknown || known === PIECE.byte) continue;
    listed.types[id] = special ? PIECE.control : PIECE.userDefined;
    if (score !== undefined && listed.scores && listed.scores[id] === undefined) listed.scores[id] = score;
  }
}

const mergeText = (m: unknown): string => (Array.isArray(m) ? m.join(' ') : String(m));

/** Byte-level tokens: vocabulary and merges. */
function byteLevelVocabulary(model: Json, added: readonly JsonAdded[]): Listed {
  const listed: Listed = {
    tokens: [],
    types: [],
    merges: ((model.merges ?? []) as unknown[]).map(mergeText),
  };
  for (const [token, id] of Object.entries(model.vocab as Record<string, number>)) {
    listed.tokens[id] = token;
    listed.types[id] = PIECE.normal;
  }
  addTokens(listed, added);
  return listed;
}

/** Pieces with scores: those of tokenizer.model, or, without one, the places of merges in their list. */
function scoredVocabulary(dir: string, model: Json, added: readonly JsonAdded[]): Listed {
  const path = join(dir, 'tokenizer.model');
  const tokens: string[] = [];
  const types: number[] = [];
  const scores: number[] = [];
  if (existsSync(path))
    storedPieces(readFileSync(path)).forEach((p, id) => {
      [tokens[id], scores[id], types[id]] = [p.text, p.score, p.type];
    });
  else {
    const rank = new Map<string, number>();
    ((model.merges ?? []) as unknown[]).forEach((m, i) => {
      const whole = Array.isArray(m) ? m.join('') : String(m).replace(' ', '');
      if (!rank.has(whole)) rank.set(whole, i);
    });
    for (const [token, id] of Object.entries(model.vocab as Record<string, number>)) {
      tokens[id] = token;
      const byte = /^<0x[0-9A-F]{2}>$/.test(token);
      types[id] = byte ? PIECE.byte : token === model.unk_token ? PIECE.unknown : PIECE.normal;
      scores[id] = byte || token === model.unk_token ? 0 : -(rank.get(token) ?? rank.size + id);
    }
  }
  const listed = { tokens, types, scores };
  addTokens(listed, added, -1000);
  return listed;
}

/** Which of the named pre-tokenizers cuts texts as the folder's does, the one named like the architecture first. */
function preNames(json: Json, architecture: string): string[] {
  if (json.pre_tokenizer == null) return [];
  const own = preTokenizer(json.pre_tokenizer);
  const ignores = (json.model as Json).ignore_merges === true;
  const cuts = (f: typeof own, sample: string): string =>
    JSON.stringify(f([{ text: sample, first: true }]).map((p) => p.text));
  const want = SAMPLES.map((s) => cuts(own, s));
  const answers = new Map<PreType, boolean>();
  const same = (pre: PreType): boolean => {
    if (pre.plain || (pre.ignoreMerges ?? false) !== ignores) return false;
    const known = answers.get(pre);
    if (known !== undefined) return known;
    const f = inOrder(...pre.patterns.map((p) => split(finder(p), 'Isolated')), eachPiece(byteText));
    const equal = SAMPLES.every((s, i) => cuts(f, s) === want[i]);
    answers.set(pre, equal);
    return equal;
  };
  const names = [...PRE_TYPES].filter(([, pre]) => same(pre)).map(([name]) => name);
  const like = (name: string): number => (name === architecture || name.startsWith(`${architecture}-`) ? 0 : 1);
  return names.sort((a, b) => like(a) - like(b));
}

const ROLE_KEYS: readonly (readonly [role: string, key: string])[] = [
  ...([
    ['bos', 'bos'],
    ['eos', 'eos'],
    ['unk', 'unknown'],
    ['sep', 'seperator'],
    ['pad', 'padding'],
  ] as const),
  ...([
    ['cls', 'cls'],
    ['mask', 'mask'],
  ] as const),
];

/** What is the same for every kind: types, special tokens, templates. */
function common(own: Tokenizer, listed: Listed): Map<string, GgufValue> {
  const out = new Map<string, GgufValue>();
  const put = (key: string, value: GgufValue): Map<string, GgufValue> => out.set(`tokenizer.ggml.${key}`, value);
  put('tokens', list('string', listed.tokens));
  if (listed.scores) put('scores', list('f32', Float32Array.from(listed.scores)));
  put('token_type', list('i32', Int32Array.from(listed.types)));
  if (listed.merges) put('merges', list('string', [...listed.merges]));
  for (const [role, key] of ROLE_KEYS) {
    const id = own.roleId(role);
    if (id !== undefined) put(`${key}_token_id`, { type: 'u32', value: id });
  }
  const [alone, whole] = [own.encode('a', { special: false }), own.encode('a')];
  const around = whole.length > alone.length;
  put('add_bos_token', flag(around && whole[0] === own.roleId('bos')));
  put('add_eos_token', flag(around && whole.at(-1) === own.roleId('eos')));
  const templates = own.chatTemplates;
  const named = (templates?.names ?? []).filter((n) => n !== 'default');
  if (templates?.names.includes('default'))
    out.set('tokenizer.chat_template', text(templates.source({ template: 'default' })));
  for (const name of named) out.set(`tokenizer.chat_template.${name}`, text(templates!.source({ template: name })));
  if (named.length > 0) out.set('tokenizer.chat_templates', list('string', named));
  return out;
}

/** The first sample that a file would read otherwise; undefined where all are read the same. */
function firstOdd(own: Tokenizer, entries: ReadonlyMap<string, GgufValue>, special: boolean): string | undefined {
  const file = tokenizerFromGguf({ get: (key) => entries.get(key)?.value });
  return SAMPLES.find((s) => `${own.encode(s, { special })}` !== `${file.encode(s, { special })}`);
}

type Entries = ReadonlyMap<string, GgufValue>;
/** The forms that a file may take for merges of bytes: one a name of how texts are cut before. */
const byteLevelForms = (pres: readonly string[], keys: Entries): Entries[] =>
  pres.map((pre) => new Map([['tokenizer.ggml.model', text('gpt2')], ['tokenizer.ggml.pre', text(pre)], ...keys]));
/** Those for pieces with scores: with a space in front of texts and without. */
const scoredForms = (keys: Entries): Entries[] =>
  [true, false].map(
    (prefix) =>
      new Map([
        ['tokenizer.ggml.model', text('llama')],
        ['tokenizer.ggml.pre', text('default')],
        ...keys,
        ['tokenizer.ggml.add_space_prefix', flag(prefix)],
      ]),
  );

/** The keys of a folder's tokenizer; none, with a sentence, where the folder has no tokenizer. */
export function ggufTokenizer(dir: string, architecture: string, rows: number): GgufTokenizer {
  const files = ['tokenizer.json', 'tokenizer.model', 'vocab.json'].filter((f) => existsSync(join(dir, f)));
  if (files.length === 0)
    return { entries: new Map(), notes: ['the folder has no tokenizer, and the file has none either'] };
  const own = loadTokenizer(dir);
  const config = folderConfig(dir);
  const json: Json =
    files[0] === 'tokenizer.json'
      ? readJsonFile(join(dir, 'tokenizer.json'))
      : (files[0] === 'vocab.json' && olderJson(dir, config)?.json) || { model: { type: 'BPE', byte_fallback: true } };
  const model = json.model as Json;
  const inConfig = Object.entries((config.added_tokens_decoder ?? {}) as Record<string, JsonAdded>);
  const added = new Map([
    ...inConfig.map(([id, t]) => [Number(id), { ...t, id: Number(id) }] as const),
    ...((json.added_tokens ?? []) as JsonAdded[]).map((t) => [t.id, t] as const),
  ]);
  const tokens = [...added.values()];
  const byteLevel = /"ByteLevel"/.test(JSON.stringify([json.pre_tokenizer, json.decoder]));
  if (!model.merges && files[0] === 'tokenizer.json')
    throw new UnsupportedError(
      `${dir}: tokenizer.json holds a model of type ${JSON.stringify(model.type ?? 'unknown')}; merges of bytes ` +
        'or of ' +
        'pieces (BPE) are written to GGUF files',
    );
  const vocabulary = byteLevel ? byteLevelVocabulary(model, tokens) : scoredVocabulary(dir, model, tokens);
  const keys = common(own, padded(dir, vocabulary, rows));
  const candidates = byteLevel ? byteLevelForms(preNames(json, architecture), keys) : scoredForms(keys);
  if (candidates.length === 0)
    throw new UnsupportedError(
      `${dir}: no pre-tokenizer that GGUF files name cuts texts as tokenizer.json does: ` +
        `${JSON.stringify(json.pre_tokenizer).slice(0, 200)}`,
    );
  let odd: string | undefined;
  for (const entries of candidates) {
    odd = firstOdd(own, entries, false);
    if (odd === undefined) return { entries, notes: notesOf(json, tokens, byteLevel, firstOdd(own, entries, true)) };
  }
  throw new UnsupportedError(
    `${dir}: a GGUF file would read ${JSON.stringify(odd)} otherwise than the folder's tokenizer does`,
  );
}

function notesOf(json: Json, added: readonly JsonAdded[], byteLevel: boolean, odd: string | undefined): string[] {
  const greedy = added.filter((t) => t.lstrip || t.rstrip || t.single_word).length;
  return [
    ...(odd === undefined ? [] : ['the special tokens that the folder puts around a text are not those of the file']),
    ...(greedy > 0 ? [`${greedy} added tokens take the space beside them, which GGUF has no word for`] : []),
    ...(byteLevel && json.normalizer != null
      ? [`the folder's tokenizer changes texts first (${(json.normalizer as Json).type}), which GGUF has no word for`]
      : []),
  ];
}
