// The tokenizer that a GGUF file carries in its metadata, by llama.cpp's rules.
import { FormatError, UnsupportedError } from '../base/errors.js';
import type { Gguf } from '../io/gguf.js';
import type { AddedToken } from './added-tokens.js';
import { Bpe } from './bpe.js';
import { byteText } from './byte-level.js';
import { CharsMap } from './charsmap.js';
import { ChatTemplates } from './chat-template.js';
import { byteLevel } from './decoders.js';
import { startAndEnd } from './from-json.js';
import { bertNormalizer } from './normalizers.js';
import { Trie } from './pair-map.js';
import { finder } from './pattern.js';
import type { PostProcessor } from './post-processors.js';
import { eachPiece, inOrder, preTokenizer, split } from './pre-tokenizers.js';
import { PRE_TYPES } from './pre-types.js';
import { ScoredBpe, Unigram } from './scored-pieces.js';
import { PIECE, piecesFound, spaced, unspaced } from './sentencepiece.js';
import { Tokenizer, type TokenizerParts } from './tokenizer.js';
import { type TokenModel, Vocabulary } from './vocabulary.js';
import { WordPiece } from './word-models.js';

/** Metadata under `tokenizer.ggml.`, with kinds checked. */
class Metadata {
  readonly #file: Pick<Gguf, 'get'>;
  constructor(file: Pick<Gguf, 'get'>) {
    this.#file = file;
  }
  get(key: string): unknown {
    return this.#file.get(`tokenizer.ggml.${key}`);
  }
  texts(key: string): string[] {
    const value = this.get(key);
    if (!Array.isArray(value) || typeof value[0] !== 'string')
      throw new FormatError(`GGUF: tokenizer.ggml.${key} is not a list of texts`);
    return value as string[];
  }
  numbers(key: string, length: number, fallback: number): ArrayLike<number> {
    const value = this.get(key);
    if (value === undefined) return new Float32Array(length).fill(fallback);
    if (!ArrayBuffer.isView(value) || (value as Float32Array).length !== length)
      throw new FormatError(`GGUF: tokenizer.ggml.${key} is not a list of ${length} numbers`);
    return value as Float32Array;
  }
  flag(key: string, fallback: boolean): boolean {
    const value = this.get(key);
    return typeof value === 'boolean' ? value : fallback;
  }
  number(key: string): number | undefined {
    const value = this.get(key);
    return typeof value === 'number' ? value : undefined;
  }
}

interface Source {
  readonly meta: Metadata;
  readonly vocabulary: Vocabulary;
  readonly types: ArrayLike<number>;
  readonly scores: ArrayLike<number>;
  /** The number of the token in a role. */
  readonly role: (name: string, fallback?: number) => number | undefined;
}
type Made = Omit<TokenizerParts, 'added' | 'roles' | 'chatTemplates'>;

const ends = (
  { meta, role }: Source,
  bos: boolean,
  eos: boolean,
  ids: readonly [number?, number?] = [],
): PostProcessor =>
  startAndEnd(
    meta.flag('add_bos_token', bos) ? role('bos', ids[0]) : undefined,
    meta.flag('add_eos_token', eos) ? role('eos', ids[1]) : undefined,
  );

function llama(s: Source): Made {
  const prefix = s.meta.flag('add_space_prefix', true);
  const bytes = s.vocabulary.byteIds();
  return {
    model: new ScoredBpe(s.vocabulary, {
      scores: s.scores,
      unknown: s.role('unknown', 0),
      ...(bytes && { byteIds: bytes }),
    }),
    normalizer: (text) => (prefix ? ` ${text}` : text).replaceAll(' ', '\u2581'),
    postProcessor: ends(s, true, false, [1, 2]),
    decoder: unspaced(prefix),
  };
}

/** A run of newlines that is a token is taken whole. */
const newlinesWhole = (model: Bpe): TokenModel => ({
  vocabulary: model.vocabulary,
  encode: (piece) => {
    const whole = /^\n+$/.test(piece) ? model.vocabulary.id(piece) : undefined;
    return whole === undefined ? model.encode(piece) : [whole];
  },
});

function gpt2(s: Source, given?: string): Made {
  const name = given ?? ((s.meta.get('pre') as string | undefined) || 'default');
  const pre = PRE_TYPES.get(name);
  if (!pre)
    throw new UnsupportedError(
      `GGUF: the pre-tokenizer ${JSON.stringify(name)} is not known; known are ${[...PRE_TYPES.keys()].join(', ')}`,
    );
  const merges = s.meta.texts('merges').map((merge): [string, string] => {
    const space = merge.indexOf(' ', 1);
    return [merge.slice(0, space), merge.slice(space + 1)];
  });
  const bpe = new Bpe(s.vocabulary, merges, {
    ignoreMerges: pre.ignoreMerges ?? false,
    byteFallback: pre.plain ?? false,
  });
  const cut = pre.patterns.map((p) => split(finder(p), 'Isolated'));
  return {
    model: pre.plain ? newlinesWhole(bpe) : bpe,
    ...(pre.plain && { normalizer: (text: string) => text.replaceAll(' ', '\u2581') }),
    preTokenizer: pre.plain ? inOrder(...cut) : inOrder(...cut, eachPiece(byteText)),
    postProcessor: ends(s, (pre.addBos ?? false) || pre.plain === true, false, [11, 11]),
    decoder: pre.plain ? unspaced(false) : byteLevel,
  };
}

function bert(s: Source): Made {
  const lowercase = s.meta.flag('normalizer.lowercase', true);
  const [cls, sep] = [s.role('bos', 101) ?? s.role('cls', 101), s.role('seperator', 102)];
  return {
    // Words begin with "\u2581" here, and what continues one has no mark.
    model: new WordPiece(s.vocabulary, { unknown: s.role('unknown', 100), prefix: '', longestWord: Infinity }),
    normalizer: bertNormalizer({ lowercase, stripAccents: s.meta.flag('normalizer.strip_accents', lowercase) }),
    preTokenizer: inOrder(
      preTokenizer({ type: 'BertPreTokenizer' }),
      eachPiece((word) => `\u2581${word}`),
    ),
    postProcessor: startAndEnd(cls, sep),
    decoder: (tokens) => {
      const text = tokens.join('').replaceAll('\u2581', ' ');
      return [text.startsWith(' ') ? text.slice(1) : text];
    },
  };
}

function t5(s: Source): Made {
  const blob = s.meta.get('precompiled_charsmap');
  const bytes = ArrayBuffer.isView(blob) ? new Uint8Array(blob.buffer, blob.byteOffset, blob.byteLength) : undefined;
  const is =
    (type: number) =>
    (id: number): boolean =>
      s.types[id] === type;
  const fixed = new Trie();
  s.vocabulary.tokens.forEach((t, id) => t && s.types[id] === PIECE.userDefined && fixed.add(t, id));
  const prefix = s.meta.flag('add_space_prefix', true);
  return {
    model: new Unigram(s.vocabulary, {
      scores: s.scores,
      unknown: s.role('unknown', 2),
      usable: (id) => [PIECE.normal, PIECE.userDefined, PIECE.unused].includes(s.types[id] as 1),
      userDefined: is(PIECE.userDefined),
      userScore: () => 0,
    }),
    normalizer: spaced({
      charsMap: bytes && bytes.length > 0 ? new CharsMap(bytes) : undefined,
      prefix,
      squeeze: s.meta.flag('remove_extra_whitespaces', false),
      escape: s.meta.flag('escape_whitespaces', true),
      fixed: fixed.empty ? undefined : fixed,
    }),
    postProcessor: ends(s, false, true, [undefined, 1]),
    decoder: unspaced(prefix),
  };
}

const MODELS: Readonly<Record<string, (s: Source) => Made>> = {
  llama,
  gpt2: (s) => gpt2(s),
  gemma4: (s) => gpt2(s, 'gemma4'),
  bert,
  t5,
};
const ROLE_KEYS: Readonly<Record<string, string>> = {
  bos: 'bos',
  eos: 'eos',
  unk: 'unknown',
  sep: 'seperator', // as the format spells it
  pad: 'padding',
  cls: 'cls',
  mask: 'mask',
};

/** The tokenizer that a GGUF file's metadata describes. */
export function tokenizerFromGguf(file: Pick<Gguf, 'get'>): Tokenizer {
  const meta = new Metadata(file);
  const kind = meta.get('model');
  if (kind === undefined) throw new FormatError('GGUF: there is no tokenizer in the file (tokenizer.ggml.model)');
  if (typeof kind !== 'string' || !Object.hasOwn(MODELS, kind))
    throw new UnsupportedError(
      `GGUF: the tokenizer ${JSON.stringify(kind)} is not known; known are ${Object.keys(MODELS).join(', ')}`,
    );
  const tokens = meta.texts('tokens');
  const vocabulary = Vocabulary.of(tokens.map((t, id) => [t, id] as const));
  const types = meta.numbers('token_type', tokens.length, PIECE.normal);
  const role = (name: string, fallback?: number): number | undefined => meta.number(`${name}_token_id`) ?? fallback;
  const made = MODELS[kind]({ meta, vocabulary, types, scores: meta.numbers('scores', tokens.length, 0), role });
  const roles: Record<string, string> = {};
  for (const [name, key] of Object.entries(ROLE_KEYS)) {
    const id = role(key);
    const token = id === undefined ? undefined : tokens[id];
    if (token !== undefined) roles[name] = token;
  }
  const added: AddedToken[] = piecesFound(vocabulary, types, true);
  const chatTemplates = ChatTemplates.fromGguf(file, roles);
  return new Tokenizer({ ...made, added, roles, ...(chatTemplates && { chatTemplates }) });
}
