// SentencePiece's tokenizer.model: a protobuf of pieces with scores and of how text is made ready for them.
import { FormatError, UnsupportedError } from '../base/errors.js';
import type { AddedToken } from './added-tokens.js';
import { CharsMap } from './charsmap.js';
import type { ChatTemplates } from './chat-template.js';
import { byteFallback, type DecodeStep } from './decoders.js';
import { type Json, rolesOf, startAndEnd } from './from-json.js';
import type { Normalizer } from './normalizers.js';
import { Trie } from './pair-map.js';
import { ScoredBpe, type ScoredOptions, Unigram } from './scored-pieces.js';
import { Tokenizer } from './tokenizer.js';
import { type TokenModel, Vocabulary } from './vocabulary.js';

/** One field of a protobuf message: numbers for varints and fixed ones, bytes for the rest. */
type Field = readonly [number: number, value: number | Uint8Array];

function* fields(bytes: Uint8Array): Generator<Field> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (at >= bytes.length) throw new FormatError('tokenizer.model: it ends inside a number');
      const b = bytes[at++];
      value += (b & 0x7f) * 2 ** shift;
      if (b < 0x80) return value >= 2 ** 63 ? value - 2 ** 64 : value;
    }
    throw new FormatError(`tokenizer.model: a number at byte ${at} has no end`);
  };
  const need = (n: number): void => {
    if (at + n > bytes.length)
      throw new FormatError(`tokenizer.model: ${n} bytes wanted at byte ${at}, the end is near`);
  };
  while (at < bytes.length) {
    const tag = varint();
    const [number, wire] = [Math.floor(tag / 8), tag % 8];
    if (wire === 0) yield [number, varint()];
    else if (wire === 2) {
      const length = varint();
      need(length);
      yield [number, bytes.subarray(at, (at += length))];
    } else if (wire === 5) {
      need(4);
      yield [number, view.getFloat32(at, true)];
      at += 4;
    } else if (wire === 1) {
      need(8);
      yield [number, view.getFloat64(at, true)];
      at += 8;
    } else throw new FormatError(`tokenizer.model: a field of wire type ${wire} at byte ${at}`);
  }
}
const message = (bytes: unknown): Map<number, number | Uint8Array> =>
  new Map(bytes instanceof Uint8Array ? fields(bytes) : []);
const text = (v: unknown): string => (v instanceof Uint8Array ? Buffer.from(v).toString() : '');

export const PIECE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;
const MODEL_TYPES = ['', 'unigram', 'bpe', 'word', 'char'] as const;

export interface SpaceRules {
  readonly charsMap: CharsMap | undefined;
  /** A space before the text. */
  readonly prefix: boolean;
  /** Spaces at the ends fall away, several become one. */
  readonly squeeze: boolean;
  /** Spaces as "\u2581". */
  readonly escape: boolean;
  /** The space of a word stands behind it. */
  readonly suffix?: boolean;
  /** Texts that stay as they are. */
  readonly fixed: Trie | undefined;
}
const MARK = '\u2581';

/** A text as SentencePiece makes it ready: replacements by the longest match, then spaces. */
export function spaced(rules: SpaceRules): Normalizer {
  const { charsMap, prefix, squeeze, escape, suffix = false, fixed } = rules;
  const space = escape ? MARK : ' ';
  const replaced = function* (input: string): Generator<string> {
    const bytes = charsMap ? Buffer.from(input) : undefined;
    for (let at = 0, byte = 0; at < input.length; ) {
      const kept = fixed?.longest(input, at);
      if (kept) {
        const part = input.slice(at, kept[0]);
        yield part;
        at = kept[0];
        byte += Buffer.byteLength(part);
        continue;
      }
      let longest: readonly [number, number] | undefined;
      if (bytes) for (const found of (charsMap as CharsMap).prefixes(bytes, byte)) longest = found;
      if (longest) {
        yield (charsMap as CharsMap).text(longest[1]);
        at += (bytes as Buffer).toString('utf8', byte, byte + longest[0]).length;
        byte += longest[0];
      } else {
        const c = String.fromCodePoint(input.codePointAt(at) as number);
        yield c;
        at += c.length;
        byte += Buffer.byteLength(c);
      }
    }
  };
  return (input) => {
    let body = '';
    let spaceBefore = squeeze;
    let empty = true; // nothing but spaces so far
    for (const part of replaced(input)) {
      empty &&= squeeze && part === ' ';
      const kept = spaceBefore ? part.replace(/^ +/, '') : part;
      if (kept === '') continue;
      body += kept;
      spaceBefore = squeeze && kept.endsWith(' ');
    }
    if (empty) return '';
    let out = (prefix && !suffix ? ` ${body}` : body).replaceAll(' ', space);
    if (squeeze) while (out.endsWith(space)) out = out.slice(0, -1);
    return prefix && suffix ? out + space : out;
  };
}

/** Spaces and bytes back, and the space that was put before the text off; all of them where no text begins with one. */
export const unspaced =
  (prefix: boolean, squeeze = false): DecodeStep =>
  (tokens) => {
    const whole = byteFallback(tokens.map((t) => t.replaceAll(MARK, ' '))).join('');
    if (squeeze) return [whole.replace(/^ +/, '')];
    return [prefix && whole.startsWith(' ') ? whole.slice(1) : whole];
  };

const specialPiece = (type: number): boolean => type === PIECE.control || type === PIECE.unknown;

/** Pieces that are found as tokens before the model sees the text. */
export const piecesFound = (vocabulary: Vocabulary, types: ArrayLike<number>, alsoUserDefined: boolean): AddedToken[] =>
  vocabulary.tokens.flatMap((content, id) =>
    content !== undefined && (specialPiece(types[id]) || (alsoUserDefined && types[id] === PIECE.userDefined))
      ? [{ id, content, special: specialPiece(types[id]) }]
      : [],
  );

/** Pieces of a tokenizer.model by number. */
export const storedPieces = (file: Uint8Array): { text: string; score: number; type: number }[] =>
  [...fields(file)].flatMap(([number, value]) => {
    if (number !== 1) return [];
    const piece = message(value);
    const score = (piece.get(2) as number | undefined) ?? 0;
    return [{ text: text(piece.get(1)), score, type: (piece.get(3) as number | undefined) ?? PIECE.normal }];
  });

/** Tokenizers whose numbers are not those of tokenizer.model. */
const RENUMBERED =
  /XLMRoberta|Camembert|[MP]L?Bart|Nllb|Barthez|XGLM|Fairseq|M2M100|Pegasus|Speech2Text|Seamless|Prophet|ErnieM/i;

/** The fields of a message by number. */
type Message = ReadonlyMap<number, number | Uint8Array>;
const flag = (m: Message, key: number, fallback: boolean): boolean => (m.has(key) ? m.get(key) !== 0 : fallback);

export interface StoredModel {
  readonly vocabulary: Vocabulary;
  readonly scores: readonly number[];
  readonly types: readonly number[];
  /** How it was trained, and how text is normalized. */
  readonly trainer: Message;
  readonly rules: Message;
}
/** A file's pieces, by number, and its rules. */
export function readModel(file: Uint8Array): StoredModel {
  const vocabulary = new Vocabulary();
  const pieces = storedPieces(file);
  if (pieces.length === 0) throw new FormatError('tokenizer.model: there are no pieces in it');
  pieces.forEach((piece, i) => vocabulary.add(piece.text, i));
  let [trainer, rules]: [Message, Message] = [new Map(), new Map()];
  for (const [number, value] of fields(file)) {
    if (number === 2) trainer = message(value);
    if (number === 3) rules = message(value);
  }
  return { vocabulary, scores: pieces.map((p) => p.score), types: pieces.map((p) => p.type), trainer, rules };
}

/** How a file makes text ready for its pieces. */
export function rulesOf({ vocabulary, types, trainer, rules }: StoredModel): SpaceRules {
  const fixed = new Trie();
  vocabulary.tokens.forEach((t, id) => t && types[id] === PIECE.userDefined && fixed.add(t, id));
  const charsMap = rules.get(2);
  return {
    charsMap: charsMap instanceof Uint8Array && charsMap.length > 0 ? new CharsMap(charsMap) : undefined,
    prefix: flag(rules, 3, true),
    squeeze: flag(rules, 4, true),
    escape: flag(rules, 5, true),
    suffix: flag(trainer, 24, false),
    fixed: fixed.empty ? undefined : fixed,
  };
}

/** The model that a file holds: unigram or merges by score. */
export function modelOf(stored: StoredModel, spelt?: ScoredOptions['spelt']): TokenModel {
  const { vocabulary, scores, types, trainer } = stored;
  const kind = MODEL_TYPES[(trainer.get(3) as number | undefined) ?? 1];
  const unknown = types.indexOf(PIECE.unknown);
  const is =
    (type: number) =>
    (id: number): boolean =>
      types[id] === type;
  const bytes = flag(trainer, 35, false) ? vocabulary.byteIds() : undefined;
  const options: ScoredOptions = {
    scores: Float32Array.from(scores),
    unknown: unknown < 0 ? undefined : unknown,
    ...(bytes && { byteIds: bytes }),
    ...(spelt && !bytes && { spelt }),
    usable: (id) => types[id] === PIECE.normal || types[id] === PIECE.userDefined || types[id] === PIECE.unused,
    unused: is(PIECE.unused),
    userDefined: is(PIECE.userDefined),
  };
  const best = scores.reduce((m, s) => Math.max(m, s), -Infinity);
  const models: Readonly<Record<string, () => TokenModel>> = {
    unigram: () => new Unigram(vocabulary, { ...options, single: true, userScore: (n) => Math.fround(n * best - 0.1) }),
    bpe: () => new ScoredBpe(vocabulary, options),
  };
  if (!Object.hasOwn(models, kind))
    throw new UnsupportedError(
      `tokenizer.model: models of type ${kind ?? trainer.get(3)} are not known; unigram and bpe are`,
    );
  return models[kind]();
}

/** The tokenizer of a SentencePiece file (tokenizer.model), with what tokenizer_config.json adds. */
export function tokenizerFromSentencePiece(
  file: Uint8Array,
  config: Json = {},
  chatTemplates?: ChatTemplates,
): Tokenizer {
  const className = String(config.tokenizer_class ?? '');
  if (RENUMBERED.test(className))
    throw new UnsupportedError(
      `tokenizer: ${className} numbers its tokens otherwise than tokenizer.model; give its tokenizer.json`,
    );
  const stored = readModel(file);
  const { vocabulary, types, trainer } = stored;
  const model = modelOf(stored);
  const normalizer = rulesOf(stored);
  const { prefix, squeeze } = normalizer;
  const roles = { ...specialRoles(trainer, vocabulary), ...rolesOf(config) };
  const role = (name: string): number | undefined => {
    const token = (roles as Record<string, string | undefined>)[name];
    return token === undefined ? undefined : vocabulary.id(token);
  };
  // Without a word about it in the configuration: T5's end with a token, Llama's begin with one.
  const t5 = /T5/i.test(className);
  const addBos = 'add_bos_token' in config ? config.add_bos_token === true : /Llama|Gemma|Mistral/i.test(className);
  const addEos = 'add_eos_token' in config ? config.add_eos_token === true : t5;
  return new Tokenizer({
    model,
    added: piecesFound(vocabulary, types, false),
    normalizer: spaced(normalizer),
    postProcessor: startAndEnd(addBos ? role('bos') : undefined, addEos ? role('eos') : undefined),
    decoder: unspaced(prefix, squeeze),
    roles,
    ...(chatTemplates && { chatTemplates }),
  });
}

/** The names that training gave to special pieces. */
function specialRoles(trainer: Message, vocabulary: Vocabulary): Record<string, string> {
  const roles: Record<string, string> = {};
  for (const [role, field, fallback] of [
    ['unk', 45, '<unk>'],
    ['bos', 46, '<s>'],
    ['eos', 47, '</s>'],
    ['pad', 48, '<pad>'],
  ] as const) {
    const token = text(trainer.get(field)) || fallback;
    if (vocabulary.id(token) !== undefined) roles[role] = token;
  }
  return roles;
}
