// Text to token numbers and back by tokenizer.json; decoding in pieces that never cut a character in two.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer as HfTokenizer } from '@huggingface/tokenizers';
import { FormatError } from '../base/errors.js';
import { readJsonFile } from '../io/json-file.js';

export class Tokenizer {
  readonly #inner: HfTokenizer;
  readonly #vocabSize: number;
  constructor(json: object, config: object = {}) {
    try {
      this.#inner = new HfTokenizer(json, config);
    } catch (cause) {
      throw new FormatError(`tokenizer.json: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    }
    this.#vocabSize = this.#inner.get_vocab(true).size;
  }
  /** A folder's tokenizer.json and, where there is one, tokenizer_config.json. */
  static load(dir: string): Tokenizer {
    const path = join(dir, 'tokenizer.json');
    if (!existsSync(path)) throw new FormatError(`tokenizer: ${path} is not there`);
    const config = join(dir, 'tokenizer_config.json');
    return new Tokenizer(readJsonFile(path), existsSync(config) ? readJsonFile(config) : {});
  }
  get vocabSize(): number {
    return this.#vocabSize;
  }
  encode(text: string, options: { readonly special?: boolean } = {}): number[] {
    return this.#inner.encode(text, { add_special_tokens: options.special ?? true }).ids;
  }
  decode(ids: readonly number[], options: { readonly special?: boolean } = {}): string {
    return ids.length === 0
      ? ''
      : this.#inner.decode([...ids], {
          skip_special_tokens: !(options.special ?? false),
          clean_up_tokenization_spaces: false,
        });
  }
  id(token: string): number | undefined {
    return this.#inner.token_to_id(token);
  }
}

/** Turns tokens into text as they come: what is not yet a whole character waits. */
export class TextStream {
  readonly #tokenizer: Tokenizer;
  readonly #ids: number[] = [];
  /** Tokens before this one are printed; a few are decoded again each time, since spaces depend on neighbours. */
  #start = 0;
  #printed = 0;
  constructor(tokenizer: Tokenizer, context: readonly number[] = []) {
    this.#tokenizer = tokenizer;
    this.#ids.push(...context.slice(-4));
    this.#printed = tokenizer.decode(this.#ids).length;
  }
  push(id: number): string {
    this.#ids.push(id);
    const text = this.#tokenizer.decode(this.#ids.slice(this.#start));
    if (text.endsWith('\ufffd')) return '';
    const piece = text.slice(this.#printed);
    this.#printed = text.length;
    if (this.#ids.length - this.#start > 16) {
      this.#start = this.#ids.length - 4;
      this.#printed = this.#tokenizer.decode(this.#ids.slice(this.#start)).length;
    }
    return piece;
  }
  /** What still waits at the end. */
  flush(): string {
    const piece = this.#tokenizer.decode(this.#ids.slice(this.#start)).slice(this.#printed);
    this.#printed += piece.length;
    return piece;
  }
}
