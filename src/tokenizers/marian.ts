// Marian's tokenizers: source.spm cuts a text into pieces, vocab.json numbers them, and a language's code may stand
// before the text.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError, UnsupportedError } from '../base/errors.js';
import { type Json, rolesOf } from './from-json.js';
import { wordNumbers } from './older-folders.js';
import { modelOf, readModel, rulesOf, spaced, unspaced } from './sentencepiece.js';
import { Tokenizer } from './tokenizer.js';
import { type TokenModel, Vocabulary } from './vocabulary.js';

/** A text that begins with a code, `>>fra<<`, and what follows. */
const CODE = /^>>[^]*?<</;

/** Pieces of source.spm by the numbers of vocab.json; those that it does not list are unknown. */
function pieces(file: string, vocabulary: Vocabulary, unknown: number): TokenModel {
  const stored = readModel(readFileSync(file));
  const numbers = stored.vocabulary.tokens.map((piece) => vocabulary.id(piece as string) ?? unknown);
  // What the model does not know, its vocabulary may: it has the pieces of the other language, too. Such numbers come
  // behind those of the model's own pieces.
  const own = numbers.length;
  const model = modelOf(stored, (text) => [own + (vocabulary.id(text) ?? unknown)]);
  const ready = spaced(rulesOf(stored));
  return {
    vocabulary,
    encode(text) {
      const [code = ''] = CODE.exec(text) ?? [];
      const before = code === '' ? [] : [vocabulary.id(code) ?? unknown];
      const rest = model.encode(ready(text.slice(code.length)));
      return [...before, ...rest.map((id) => numbers[id] ?? id - own)];
    },
  };
}

/** Whether a folder holds such a tokenizer. */
export const isMarian = (dir: string): boolean =>
  ['source.spm', 'target.spm', 'vocab.json'].every((name) => existsSync(join(dir, name)));

/** The tokenizer of a folder with source.spm, target.spm and vocab.json. */
export function tokenizerFromMarian(dir: string, config: Json = {}): Tokenizer {
  if (config.separate_vocabs === true)
    throw new UnsupportedError(
      `tokenizer: ${dir} has separate_vocabs, numbers of their own for answers; one vocab.json for both is served`,
    );
  const path = join(dir, 'vocab.json');
  const vocabulary = Vocabulary.of(Object.entries(wordNumbers(path)));
  const roles = { unk: '<unk>', eos: '</s>', pad: '<pad>', ...rolesOf(config) };
  const special = [roles.unk, roles.eos, roles.pad].map((content) => {
    const id = vocabulary.id(content);
    if (id === undefined) throw new FormatError(`${path}: it has no ${JSON.stringify(content)}`);
    return { id, content, special: true };
  });
  const [unknown, end] = special.map((t) => t.id);
  const last = { part: [end], type: 0 };
  const maxLength = config.model_max_length ?? 512;
  return new Tokenizer({
    model: pieces(join(dir, 'source.spm'), vocabulary, unknown),
    added: special,
    postProcessor: {
      single: [{ part: 'A', type: 0 }, last],
      pair: [{ part: 'A', type: 0 }, { part: 'B', type: 0 }, last],
    },
    decoder: (tokens) => unspaced(true, true)(tokens).map((text) => text.trim()),
    roles,
    ...(typeof maxLength === 'number' && maxLength < 1e12 && { maxLength }),
  });
}
