// Tokens to text as they come: half a character waits, and so does what may be the beginning of a stop text.
import type { DecodeOptions, Tokenizer } from './tokenizer.js';

/** Tokens to text one by one: half a character waits for its other half. */
export class TextStream {
  readonly #decode: (ids: readonly number[]) => string;
  readonly #own: (id: number) => string | undefined;
  /** What was shown last, decoded again with what follows, since spaces depend on neighbours; then what waits. */
  #ids: number[];
  #shown: number;
  #printed: number;
  constructor(tokenizer: Tokenizer, context: readonly number[] = [], options: DecodeOptions = {}) {
    this.#decode = (ids) => tokenizer.decode(ids, options);
    this.#own = (id) => tokenizer.ownText(id, options);
    let n = Math.min(4, context.length);
    while (n < context.length && n < 16 && this.#decode(context.slice(-n)).startsWith('\ufffd')) n++;
    this.#ids = n > 0 ? context.slice(-n) : [];
    this.#shown = this.#ids.length;
    this.#printed = this.#decode(this.#ids).length;
  }
  /** The text that this token completes; '' where more must come. */
  push(id: number): string {
    const own = this.#shown === this.#ids.length ? this.#own(id) : undefined;
    if (own !== undefined) {
      this.#ids.length = this.#shown = 1;
      this.#ids[0] = id;
      this.#printed = own.length;
      return own;
    }
    this.#ids.push(id);
    const text = this.#decode(this.#ids);
    // Bytes that are not a character yet show as replacement characters at the end.
    if (text.endsWith('\ufffd') && this.#ids.length - this.#shown < 16) return '';
    const piece = text.slice(this.#printed);
    const last = this.#decode(this.#ids.slice(this.#shown));
    if (last === '')
      this.#printed = text.length; // nothing to be a neighbour of
    else {
      this.#ids = this.#ids.slice(this.#shown);
      this.#printed = last.length;
    }
    this.#shown = this.#ids.length;
    return piece;
  }
  /** What still waits at the end. */
  flush(): string {
    const piece = this.#decode(this.#ids).slice(this.#printed);
    this.#printed += piece.length;
    return piece;
  }
}

/** Text up to the first of some stop texts, however it is cut into pieces. */
export class StopWatch {
  readonly #stops: readonly string[];
  readonly #keep: number;
  #held = '';
  /** The stop text that was found. */
  found: string | undefined;
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((s) => s !== '');
    this.#keep = Math.max(0, ...this.#stops.map((s) => s.length - 1));
  }
  /** What can be shown now; after a stop text nothing more. */
  push(piece: string): string {
    if (this.found !== undefined) return '';
    this.#held += piece;
    let cut = Infinity;
    for (const stop of this.#stops) {
      const at = this.#held.indexOf(stop);
      if (at >= 0 && at < cut) [cut, this.found] = [at, stop];
    }
    if (this.found !== undefined) return this.#held.slice(0, cut);
    // Only an end that begins a stop text must wait.
    let wait = 0;
    for (let n = Math.min(this.#keep, this.#held.length); n > 0 && wait === 0; n--)
      if (this.#stops.some((s) => s.startsWith(this.#held.slice(-n)))) wait = n;
    const shown = this.#held.slice(0, this.#held.length - wait);
    this.#held = this.#held.slice(this.#held.length - wait);
    return shown;
  }
  /** What was held back at the end: it might have begun a stop text. */
  flush(): string {
    const rest = this.found === undefined ? this.#held : '';
    this.#held = '';
    return rest;
  }
}
