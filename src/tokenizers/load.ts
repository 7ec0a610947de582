// A tokenizer from where it lies: a folder in the layout of the Hugging Face hub, a single file, or a GGUF model.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../base/errors.js';
import { Gguf } from '../io/gguf.js';
import { readJsonFile } from '../io/json-file.js';
import { ChatTemplates } from './chat-template.js';
import { cameFrom } from './encode-later.js';
import { tokenizerFromGguf } from './from-gguf.js';
import { type Json, rolesOf, tokenizerFromJson } from './from-json.js';
import { isMarian, tokenizerFromMarian } from './marian.js';
import { olderJson } from './older-folders.js';
import { tokenizerFromSentencePiece } from './sentencepiece.js';
import type { Tokenizer } from './tokenizer.js';

const SENTENCEPIECE = ['tokenizer.model', 'spiece.model', 'sentencepiece.bpe.model'];

/** Fields of tokenizer_config.json that are true or false; another kind would count as one of them, unseen. */
const FLAGS = [
  ...['add_bos_token', 'add_eos_token', 'add_prefix_space', 'do_lower_case', 'split_special_tokens', 'strip_accents'],
  ...['tokenize_chinese_chars', 'separate_vocabs'],
];

/** Special tokens by role come from tokenizer_config.json, in older folders from special_tokens_map.json. */
export function folderConfig(dir: string): Json {
  const [config, map] = ['tokenizer_config.json', 'special_tokens_map.json'].map((name): Json => {
    const path = join(dir, name);
    return existsSync(path) ? readJsonFile(path) : {};
  });
  for (const name of FLAGS)
    if (config[name] !== undefined && config[name] !== null && typeof config[name] !== 'boolean')
      throw new FormatError(
        `${join(dir, 'tokenizer_config.json')}: ${name} is ${JSON.stringify(config[name])}, not true or false`,
      );
  return { ...map, ...config };
}

function fromFolder(dir: string): Tokenizer {
  const config = folderConfig(dir);
  const templates = ChatTemplates.fromFolder(dir, config, rolesOf(config));
  const json = join(dir, 'tokenizer.json');
  if (existsSync(json)) return tokenizerFromJson(readJsonFile(json), config, templates);
  if (isMarian(dir)) return tokenizerFromMarian(dir, config);
  const model = SENTENCEPIECE.map((name) => join(dir, name)).find(existsSync);
  if (model) return tokenizerFromSentencePiece(readFileSync(model), config, templates);
  const older = olderJson(dir, config);
  if (older) return tokenizerFromJson(older.json, older.config, templates);
  throw new FormatError(
    `tokenizer: ${dir} has neither tokenizer.json nor ${SENTENCEPIECE.join(', ')} nor vocab.txt nor ` +
      'vocab.json with merges.txt or with source.spm and target.spm',
  );
}

/** From a folder, a tokenizer.json, a SentencePiece model or a GGUF file. */
export function loadTokenizer(path: string): Tokenizer {
  return cameFrom(tokenizerAt(path), path);
}
function tokenizerAt(path: string): Tokenizer {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (!stat) throw new FormatError(`tokenizer: ${path} is not there`);
  if (stat.isDirectory()) return fromFolder(path);
  if (path.endsWith('.gguf')) {
    using file = Gguf.open(path);
    return tokenizerFromGguf(file);
  }
  return path.endsWith('.json')
    ? tokenizerFromJson(readJsonFile(path))
    : tokenizerFromSentencePiece(readFileSync(path));
}
