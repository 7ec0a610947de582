// tokenizer.json, and what tokenizer_config.json adds to it, as a tokenizer.
import { FormatError, UnsupportedError } from '../base/errors.js';
import type { AddedToken } from './added-tokens.js';
import { Bpe } from './bpe.js';
import type { ChatTemplates } from './chat-template.js';
import { Component, component, type Kind } from './component.js';
import { decoder } from './decoders.js';
import { normalizer } from './normalizers.js';
import { type PostProcessor, postProcessor, type Template } from './post-processors.js';
import { preTokenizer } from './pre-tokenizers.js';
import { Unigram } from './scored-pieces.js';
import { Tokenizer } from './tokenizer.js';
import { type TokenModel, Vocabulary } from './vocabulary.js';
import { WordLevel, WordPiece } from './word-models.js';

export type Json = Readonly<Record<string, unknown>>;

function vocabularyOf(c: Component): Vocabulary {
  const vocab = c.value('vocab');
  if (vocab === null || typeof vocab !== 'object' || Array.isArray(vocab))
    throw new FormatError(`${c.where}: vocab is not an object of tokens and numbers`);
  return Vocabulary.of(Object.entries(vocab as Record<string, number>));
}
function unknownOf(c: Component, vocabulary: Vocabulary): number | undefined {
  const token = c.value('unk_token');
  if (token == null) return undefined;
  return vocabulary.id(c.text('unk_token'));
}
/** "a b" in older files, ["a", "b"] in newer ones. */
function mergeOf(merge: unknown, where: string): readonly [string, string] {
  const parts = typeof merge === 'string' ? merge.split(' ') : merge;
  if (!Array.isArray(parts) || parts.length !== 2)
    throw new FormatError(`${where}: ${JSON.stringify(merge)} is not a pair of tokens`);
  return [String(parts[0]), String(parts[1])];
}

function scoredOf(entry: unknown, where: string): readonly [string, number] {
  const [token, score] = Array.isArray(entry) ? entry : [];
  if (typeof token !== 'string' || typeof score !== 'number')
    throw new FormatError(`${where}: ${shortly(entry)} is not a token and its score`);
  return [token, score];
}
const shortly = (json: unknown): string => `${JSON.stringify(json)}`.slice(0, 80);

const MODELS: Readonly<Record<string, Kind<TokenModel>>> = {
  BPE: {
    keys: [
      'dropout',
      'unk_token',
      'continuing_subword_prefix',
      'end_of_word_suffix',
      'fuse_unk',
      'byte_fallback',
      'ignore_merges',
      'vocab',
      'merges',
    ],
    make: (c) => {
      if (c.value('dropout')) throw new UnsupportedError(`${c.where}: dropout makes tokens random; it is not honoured`);
      const vocabulary = vocabularyOf(c);
      return new Bpe(
        vocabulary,
        c.list('merges').map((m) => mergeOf(m, c.where)),
        {
          unknown: unknownOf(c, vocabulary),
          fuseUnknown: c.flag('fuse_unk', false),
          byteFallback: c.flag('byte_fallback', false),
          ignoreMerges: c.flag('ignore_merges', false),
          prefix: c.text('continuing_subword_prefix', ''),
          suffix: c.text('end_of_word_suffix', ''),
        },
      );
    },
  },
  Unigram: {
    keys: ['unk_id', 'vocab', 'byte_fallback'],
    make: (c) => {
      const entries = c.list('vocab').map((entry) => scoredOf(entry, c.where));
      const vocabulary = Vocabulary.of(entries.map(([token], id) => [token, id] as const));
      const bytes = c.flag('byte_fallback', false) ? vocabulary.byteIds() : undefined;
      return new Unigram(vocabulary, {
        scores: entries.map(([, score]) => score),
        unknown: c.value('unk_id') == null ? undefined : c.number('unk_id'),
        ...(bytes && { byteIds: bytes }),
      });
    },
  },
  WordPiece: {
    keys: ['unk_token', 'continuing_subword_prefix', 'max_input_chars_per_word', 'vocab'],
    make: (c) => {
      const vocabulary = vocabularyOf(c);
      return new WordPiece(vocabulary, {
        unknown: unknownOf(c, vocabulary),
        prefix: c.text('continuing_subword_prefix', '##'),
        longestWord: c.number('max_input_chars_per_word', 100),
      });
    },
  },
  WordLevel: {
    keys: ['unk_token', 'vocab'],
    make: (c) => {
      const vocabulary = vocabularyOf(c);
      return new WordLevel(vocabulary, unknownOf(c, vocabulary));
    },
  },
};

/** Older files leave the model's type out; its fields tell. */
function modelOf(json: unknown): TokenModel {
  const model = json as Json;
  const type = Array.isArray(model?.vocab)
    ? 'Unigram'
    : model?.merges
      ? 'BPE'
      : model?.continuing_subword_prefix !== undefined
        ? 'WordPiece'
        : 'WordLevel';
  return component('model', model && typeof model === 'object' && !model.type ? { ...model, type } : json, MODELS);
}

interface JsonToken extends Json {
  readonly id: number;
  readonly content: string;
}
function addedToken(t: JsonToken, vocabulary: Vocabulary): AddedToken {
  const id = vocabulary.id(t.content) ?? t.id;
  if (!Number.isSafeInteger(id) || id < 0)
    throw new FormatError(`tokenizer.json: the added token ${shortly(t.content)} has the number ${shortly(id)}`);
  const c = new Component(`tokenizer.json: the added token ${shortly(t.content)}`, t);
  const special = c.flag('special', false);
  return {
    id,
    content: t.content,
    special,
    normalized: c.flag('normalized', !special),
    singleWord: c.flag('single_word', false),
    lstrip: c.flag('lstrip', false),
    rstrip: c.flag('rstrip', false),
  };
}
/** A list of added tokens, or an object of them by their numbers. */
function addedIn(json: unknown): JsonToken[] {
  if (json === null || typeof json !== 'object')
    throw new FormatError(`tokenizer.json: the added tokens are ${shortly(json)}`);
  const tokens = Array.isArray(json) ? json : Object.entries(json).map(([id, t]) => ({ ...t, id: Number(id) }));
  const odd = tokens.findIndex((t) => typeof t?.content !== 'string');
  if (odd >= 0) throw new FormatError(`tokenizer.json: the added token ${shortly(tokens[odd])} has no text`);
  return tokens;
}

const ROLES = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'] as const;
/** Tokens by role: a text, or an object with the text inside. */
export function rolesOf(config: Json): Record<string, string> {
  const roles: Record<string, string> = {};
  for (const role of ROLES) {
    const value = config[`${role}_token`];
    if (value === undefined || value === null) continue;
    const text = typeof value === 'object' ? (value as Json).content : value;
    if (typeof text !== 'string')
      throw new FormatError(`tokenizer_config.json: ${role}_token is ${shortly(value)}, not a text`);
    roles[role] = text;
  }
  return roles;
}

/** A beginning and an end token around a text, where either is wanted. */
export function startAndEnd(bos: number | undefined, eos: number | undefined): PostProcessor {
  const around = (part: 'A' | 'B', type: number): Template => [
    ...(bos === undefined ? [] : [{ part: [bos], type }]),
    { part, type },
    ...(eos === undefined ? [] : [{ part: [eos], type }]),
  ];
  return { single: around('A', 0), pair: [...around('A', 0), ...around('B', 1)] };
}

/** The tokenizer of a tokenizer.json, with what tokenizer_config.json adds. */
export function tokenizerFromJson(json: Json, config: Json = {}, chatTemplates?: ChatTemplates): Tokenizer {
  if (json === null || typeof json !== 'object' || json.model === undefined)
    throw new FormatError('tokenizer.json: there is no model in it');
  const model = modelOf(json.model);
  const added = new Map<string, AddedToken>();
  for (const t of addedIn(json.added_tokens ?? [])) added.set(t.content, addedToken(t, model.vocabulary));
  for (const t of addedIn(config.added_tokens_decoder ?? []))
    if (!added.has(t.content)) added.set(t.content, addedToken(t, model.vocabulary));
  const roles = rolesOf(config);
  return new Tokenizer({
    model,
    added: [...added.values()],
    ...(json.normalizer != null && { normalizer: normalizer(json.normalizer) }),
    ...(json.pre_tokenizer != null && { preTokenizer: preTokenizer(json.pre_tokenizer) }),
    ...(json.post_processor != null && { postProcessor: postProcessor(json.post_processor) }),
    ...(json.decoder != null && { decoder: decoder(json.decoder) }),
    roles,
    ...(chatTemplates && { chatTemplates }),
    parseSpecial: config.split_special_tokens !== true,
    ...(typeof config.model_max_length === 'number' &&
      config.model_max_length < 1e12 && { maxLength: config.model_max_length }),
  });
}
