// Folders without tokenizer.json: their word lists, as the tokenizer.json that they amount to. Which rules go with a
// list only the class's name says, or the model's type where a folder names no class.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError, UnsupportedError } from '../base/errors.js';
import { readJsonFile } from '../io/json-file.js';
import { type Json, rolesOf } from './from-json.js';

/** A folder's words, its special tokens by role and what tokenizer_config.json says. */
interface Words {
  readonly vocab: Readonly<Record<string, number>>;
  readonly roles: Readonly<Record<string, string>>;
  readonly config: Json;
  readonly where: string;
}
const BERT_ROLES = {
  ...{ unk_token: '[UNK]', sep_token: '[SEP]', pad_token: '[PAD]', cls_token: '[CLS]', mask_token: '[MASK]' },
};
const ROBERTA_ROLES = {
  ...{ bos_token: '<s>', eos_token: '</s>', sep_token: '</s>', cls_token: '<s>', unk_token: '<unk>' },
  ...{ pad_token: '<pad>', mask_token: '<mask>' },
};
const ESM_ROLES = {
  ...{ unk_token: '<unk>', cls_token: '<cls>', pad_token: '<pad>', mask_token: '<mask>', eos_token: '<eos>' },
};

const idOf = ({ vocab, where }: Words, token: string): number => {
  if (!Object.hasOwn(vocab, token)) throw new FormatError(`${where}: it has no ${JSON.stringify(token)}`);
  return vocab[token];
};
const entry = (words: Words, role: string): readonly [string, number] => {
  const token = words.roles[role];
  return [token, idOf(words, token)];
};
/** Tokens in a role, found in texts before anything else. */
const specials = (words: Words, stripped?: string): Json[] =>
  [...new Set(Object.values(words.roles))]
    .filter((content) => Object.hasOwn(words.vocab, content))
    .map((content) => ({ id: words.vocab[content], content, special: true, lstrip: content === stripped }));

/** BERT's word pieces. */
const wordPieces = (words: Words, pairs = 'BertProcessing'): Json => ({
  added_tokens: specials(words),
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: words.config.tokenize_chinese_chars ?? true,
    strip_accents: words.config.strip_accents ?? null,
    lowercase: words.config.do_lower_case ?? true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: {
    type: pairs,
    sep: entry(words, 'sep'),
    cls: entry(words, 'cls'),
    ...(pairs === 'RobertaProcessing' && { trim_offsets: true, add_prefix_space: false }),
  },
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  model: { type: 'WordPiece', unk_token: words.roles.unk, continuing_subword_prefix: '##', vocab: words.vocab },
});
/** ESM's list of amino acids: every word of it is found wherever it stands. */
const residues = (words: Words): Json => {
  const special = new Set(Object.values(words.roles));
  const [cls, eos] = [entry(words, 'cls'), entry(words, 'eos')];
  const part = (id: string, type_id: number): Json => ({ Sequence: { id, type_id } });
  const token = ([id]: readonly [string, number]): Json => ({ SpecialToken: { id, type_id: 0 } });
  const single = [token(cls), part('A', 0), token(eos)];
  return {
    added_tokens: Object.entries(words.vocab).map(([content, id]) => ({ id, content, special: special.has(content) })),
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: {
      type: 'TemplateProcessing',
      single,
      pair: [...single, part('B', 0), token(eos)],
      special_tokens: Object.fromEntries([cls, eos].map(([id, n]) => [id, { id, ids: [n], tokens: [id] }])),
    },
    model: { type: 'WordLevel', unk_token: words.roles.unk, vocab: words.vocab },
  };
};
/** GPT-2's two files. */
const byteLevel = (words: Words, dir: string): Json => {
  const level = {
    type: 'ByteLevel',
    add_prefix_space: words.config.add_prefix_space === true,
    trim_offsets: true,
    use_regex: true,
  };
  const lines = readFileSync(join(dir, 'merges.txt'), 'utf8').split('\n');
  return {
    pre_tokenizer: level,
    decoder: level,
    model: {
      type: 'BPE',
      vocab: words.vocab,
      merges: lines.filter((l) => l !== '' && !l.startsWith('#version')),
    },
  };
};
/** The same with a token before and one behind. */
const enclosed = (words: Words, dir: string): Json => ({
  ...byteLevel(words, dir),
  added_tokens: specials(words, words.roles.mask),
  post_processor: {
    ...{ type: 'RobertaProcessing', sep: entry(words, 'sep'), cls: entry(words, 'cls') },
    ...{ trim_offsets: true, add_prefix_space: words.config.add_prefix_space === true },
  },
});

interface Kind {
  readonly roles: Json;
  readonly json: (words: Words, dir: string) => Json;
}
const WORD_PIECES: Kind = { roles: BERT_ROLES, json: (words) => wordPieces(words) };
const ENCLOSED: Kind = { roles: ROBERTA_ROLES, json: enclosed };
const PLAIN: Kind = { roles: {}, json: byteLevel };
/** Lists of one word a line. */
const LISTS: Readonly<Record<string, Kind>> = {
  ...{ bert: WORD_PIECES, distilbert: WORD_PIECES, electra: WORD_PIECES, mobilebert: WORD_PIECES },
  ...{ convbert: WORD_PIECES, layoutlm: WORD_PIECES, ernie: WORD_PIECES },
  mpnet: {
    roles: { ...ROBERTA_ROLES, unk_token: '[UNK]' },
    json: (words) => wordPieces(words, 'RobertaProcessing'),
  },
  esm: { roles: ESM_ROLES, json: residues },
};
/** Words and merges: those that put tokens around a text, and those whose rules are others. */
const AROUND = /^(roberta|bart|longformer|led|mvp|blenderbot|plbart)$/;
const OTHERS = /^(clip|openaigpt|ctrl|xlm|flaubert|phobert|herbert|blenderbotsmall|fsmt|biogpt|deberta|layoutlmv3)$/;

/** A vocab.json: words and their numbers. */
export function wordNumbers(path: string): Readonly<Record<string, number>> {
  const words = readJsonFile(path);
  for (const [word, id] of Object.entries(words))
    if (typeof id !== 'number')
      throw new FormatError(`${path}: ${JSON.stringify(word)} has the number ${JSON.stringify(id)}`);
  return words as Record<string, number>;
}

/** What a folder is of: a class of transformers, or the type of its model. */
function kindName(dir: string, config: Json): string {
  const about = join(dir, 'config.json');
  const type: unknown = config.tokenizer_class ?? (existsSync(about) ? readJsonFile(about).model_type : undefined);
  return String(type ?? '')
    .replace(/Tokenizer(Fast)?$/, '')
    .replace(/[-_ ]/g, '')
    .toLowerCase();
}
function refuse(dir: string, name: string, files: string): never {
  throw new UnsupportedError(
    `tokenizer: ${dir} has ${files}, whose rules ${name === '' ? 'nothing names' : `for ${name} are not known`}; ` +
      'give its tokenizer.json',
  );
}

/** The tokenizer.json and the configuration that a folder's older files amount to; undefined where it has none. */
export function olderJson(dir: string, config: Json): { readonly json: Json; readonly config: Json } | undefined {
  const [list, vocab, merges] = ['vocab.txt', 'vocab.json', 'merges.txt'].map((name) => join(dir, name));
  const name = kindName(dir, config);
  const made = (kind: Kind, words: Words['vocab'], where: string): { json: Json; config: Json } => {
    const whole = { ...kind.roles, ...config };
    return { json: kind.json({ vocab: words, roles: rolesOf(whole), config, where }, dir), config: whole };
  };
  if (existsSync(vocab) && existsSync(merges)) {
    if (OTHERS.test(name)) refuse(dir, name, 'vocab.json and merges.txt');
    return made(AROUND.test(name) ? ENCLOSED : PLAIN, wordNumbers(vocab), vocab);
  }
  if (!existsSync(list)) return undefined;
  if (!Object.hasOwn(LISTS, name)) refuse(dir, name, 'vocab.txt');
  const lines = readFileSync(list, 'utf8')
    .replace(/\r?\n$/, '')
    .split(/\r?\n/);
  const trimmed = name === 'esm' ? lines.map((l) => l.trim()) : lines;
  return made(LISTS[name], Object.fromEntries(trimmed.map((word, i) => [word, i])), list);
}
