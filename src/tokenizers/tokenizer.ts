// Text to token numbers and back: added tokens, normalizer, pre-tokenizer, model, special tokens; the same for every
// source of them.
import { ArgumentError } from '../base/errors.js';
import { type AddedToken, TokenFinder } from './added-tokens.js';
import { byteOfToken, bytesOfToken } from './byte-level.js';
import type { ChatTemplates } from './chat-template.js';
import { byteLevel, type DecodeStep } from './decoders.js';
import { encodeLater, threadOf } from './encode-later.js';
import type { EncodeLaterOptions, EncodeOptions } from './encode-options.js';
import type { Normalizer } from './normalizers.js';
import { addedBy, applyTemplate, type Encoded, PLAIN, type PostProcessor } from './post-processors.js';
import type { PreTokenizer } from './pre-tokenizers.js';
import type { TokenModel } from './vocabulary.js';

export interface TokenizerParts {
  readonly model: TokenModel;
  readonly added?: readonly AddedToken[];
  readonly normalizer?: Normalizer;
  readonly preTokenizer?: PreTokenizer;
  readonly postProcessor?: PostProcessor;
  /** Without one, tokens are joined by spaces. */
  readonly decoder?: DecodeStep;
  /** Tokens by their role: bos, eos, unk, pad, sep, cls, mask. */
  readonly roles?: Readonly<Record<string, string>>;
  readonly chatTemplates?: ChatTemplates;
  /** Whether special tokens written in a text are read as such; default true. */
  readonly parseSpecial?: boolean;
  /** How many tokens its model takes, where the files say so. */
  readonly maxLength?: number;
}
/** Options of `decode`. */
export interface DecodeOptions {
  /** Keep special tokens in the text; default false. */
  readonly special?: boolean;
}

const MALFORMED = /\p{Surrogate}/u;

/** Text to token numbers and back, as the model's files say; `loadTokenizer` reads them. */
export class Tokenizer {
  readonly #parts: TokenizerParts;
  readonly #raw: TokenFinder;
  readonly #normalized: TokenFinder;
  readonly #added: ReadonlyMap<number, AddedToken>;
  /** Added tokens as a normalized text has them, which is how they are written again. */
  readonly #found: ReadonlyMap<number, string>;
  readonly #addedIds: ReadonlyMap<string, number>;
  /** How many tokens there are, added ones included. */
  readonly vocabSize: number;
  #byteLevel: boolean | undefined;
  /** Texts of tokens that mean the same wherever they stand; null for others. */
  readonly #own = new Map<number, string | null>();

  constructor(parts: TokenizerParts) {
    this.#parts = parts;
    const added = parts.added ?? [];
    this.#raw = new TokenFinder(added.filter((t) => !t.normalized));
    const found = added.filter((t) => t.normalized);
    this.#found = new Map(found.map((t) => [t.id, parts.normalizer?.(t.content) ?? t.content]));
    this.#normalized = new TokenFinder(found, (t) => this.#found.get(t.id) as string);
    this.#added = new Map(added.map((t) => [t.id, t]));
    this.#addedIds = new Map(added.map((t) => [t.content, t.id]));
    this.vocabSize = added.reduce((n, t) => Math.max(n, t.id + 1), parts.model.vocabulary.size);
  }

  #ids(text: string, parseSpecial: boolean): number[] {
    const { normalizer, preTokenizer, model } = this.#parts;
    const out: number[] = [];
    const clean = MALFORMED.test(text) ? Buffer.from(text).toString() : text;
    for (const part of this.#raw.split(clean, parseSpecial)) {
      if ('id' in part) {
        out.push(part.id);
        continue;
      }
      const normal = normalizer ? normalizer(part.text) : part.text;
      const whole = part.start === 0 && !normalizer?.uncovers?.(part.text);
      for (const inner of this.#normalized.split(normal, parseSpecial)) {
        if ('id' in inner) {
          out.push(inner.id);
          continue;
        }
        const piece = { text: inner.text, first: whole && inner.start === 0 };
        for (const { text: t } of preTokenizer ? preTokenizer([piece]) : [piece])
          for (const id of model.encode(t)) out.push(id);
      }
    }
    return out;
  }
  /** Token numbers, and which of two texts each belongs to. */
  encodeParts(text: string, options: EncodeOptions = {}): Encoded {
    const parse = options.parseSpecial ?? this.#parts.parseSpecial ?? true;
    const post = (options.special ?? true) ? (this.#parts.postProcessor ?? PLAIN) : PLAIN;
    const template = options.pair === undefined ? post.single : post.pair;
    let a = this.#ids(text, parse);
    let b = options.pair === undefined ? [] : this.#ids(options.pair, parse);
    if (options.maxLength !== undefined) {
      const room = options.maxLength - addedBy(template);
      if (room < 0)
        throw new ArgumentError(
          `tokenizer: ${options.maxLength} tokens have no room for ${addedBy(template)} special ones`,
        );
      // The longer of two gives way first.
      const total = a.length + b.length;
      if (total > room) {
        const short = Math.min(a.length, b.length, Math.floor(room / 2));
        const [na, nb] = a.length >= b.length ? [room - Math.min(b.length, short), short] : [short, room - short];
        a = a.slice(0, options.pair === undefined ? room : na);
        b = b.slice(0, nb);
      }
    }
    return applyTemplate(template, a, b);
  }
  /** Token numbers of a text, with the special tokens that belong around it. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.encodeParts(text, options).ids;
  }
  /**
   * The same without holding up the event loop: short texts take turns, long ones are read by a thread that has a
   * tokenizer of the same files. One that was made by hand has no files, and encodes here.
   */
  encodeLater(text: string, options: EncodeLaterOptions = {}): Promise<number[]> {
    return encodeLater(this, text, options);
  }
  /** Starts that thread, which otherwise begins with the first long text. */
  prepare(): void {
    threadOf(this)?.start();
  }
  /** The text of token numbers, without special tokens unless they are asked for. */
  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    const tokens: string[] = [];
    for (const id of ids) {
      const token = this.#found.get(id) ?? this.token(id);
      if (token === undefined || (!options.special && this.#added.get(id)?.special)) continue;
      tokens.push(token);
    }
    const { decoder } = this.#parts;
    return decoder ? decoder(tokens).join('') : tokens.join(' ');
  }
  /** Not for users: the text that a token adds wherever it stands; undefined where that depends on its neighbours. */
  ownText(id: number, options: DecodeOptions = {}): string | undefined {
    if (this.#parts.decoder !== byteLevel || (!options.special && this.isSpecial(id))) return undefined;
    let own = this.#own.get(id);
    if (own === undefined) {
      const text = this.decode([id], { special: true });
      own = text === '' || text.includes('\ufffd') ? null : text; // no text, or half a character
      this.#own.set(id, own);
    }
    return own ?? undefined;
  }
  /** The token of a number as the vocabulary writes it. */
  token(id: number): string | undefined {
    return this.#added.get(id)?.content ?? this.#parts.model.vocabulary.tokens[id];
  }
  /** The bytes that a token adds to a text that something stands before; half a character is half of its bytes. */
  bytes(id: number): Uint8Array {
    const token = this.token(id);
    if (token === undefined) return new Uint8Array(0);
    const written = this.#found.get(id) ?? token;
    if (this.#added.has(id) && written === token) return Buffer.from(token);
    const text = (tokens: readonly string[]): string => {
      const { decoder } = this.#parts;
      return decoder ? decoder(tokens).join('') : tokens.join(' ');
    };
    // Byte-level vocabularies write a space as this character.
    this.#byteLevel ??= text(['a', '\u0120a']) === 'a a';
    if (this.#byteLevel) return bytesOfToken(written).slice();
    const byte = byteOfToken(written);
    if (byte !== undefined) return Uint8Array.of(byte);
    return Buffer.from(text(['a', written]).slice(text(['a']).length));
  }
  /** The number of a token as the vocabulary writes it; undefined where there is none. */
  id(token: string): number | undefined {
    return this.#addedIds.get(token) ?? this.#parts.model.vocabulary.id(token);
  }
  /** Whether a token is special: left out of decoded text. */
  isSpecial(id: number): boolean {
    return this.#added.get(id)?.special ?? false;
  }
  /** The token in a role, as text: 'bos', 'eos', 'unk', 'pad', 'sep', 'cls' or 'mask'. */
  role(name: string): string | undefined {
    return this.#parts.roles?.[name];
  }
  /** The number of the token in a role: 'bos', 'eos', 'unk', 'pad', 'sep', 'cls' or 'mask'. */
  roleId(name: string): number | undefined {
    const token = this.role(name);
    return token === undefined ? undefined : this.id(token);
  }
  /** How many tokens its model takes, where the files say so. */
  get maxLength(): number | undefined {
    return this.#parts.maxLength;
  }
  /** The model's chat templates; undefined where its files have none. */
  get chatTemplates(): ChatTemplates | undefined {
    return this.#parts.chatTemplates;
  }
}
