// SentencePiece's table of replacements ("precompiled charsmap"): a double-array trie over bytes and the texts it
// points to.
import { FormatError } from '../base/errors.js';

export class CharsMap {
  readonly #units: Uint32Array;
  readonly #texts: Uint8Array;
  constructor(blob: Uint8Array) {
    const view = new DataView(blob.buffer, blob.byteOffset, blob.byteLength);
    const size = blob.length >= 4 ? view.getUint32(0, true) : blob.length;
    if (blob.length < 4 || size % 4 !== 0 || 4 + size > blob.length)
      throw new FormatError(`precompiled charsmap: a table of ${size} bytes is said to be in ${blob.length}`);
    this.#units = new Uint32Array(size / 4);
    for (let i = 0; i < this.#units.length; i++) this.#units[i] = view.getUint32(4 + 4 * i, true);
    this.#texts = blob.subarray(4 + size);
  }
  #unit(at: number): number {
    if (at >= this.#units.length) throw new FormatError('precompiled charsmap: a step leaves the table');
    return this.#units[at];
  }
  /** Every prefix of the bytes that is replaced, shortest first: its length and where its text lies. */
  *prefixes(bytes: Uint8Array, start = 0): Generator<readonly [length: number, text: number]> {
    let node = 0;
    let unit = this.#unit(0);
    node ^= offset(unit);
    for (let i = start; i < bytes.length; i++) {
      const c = bytes[i];
      if (c === 0) return;
      node ^= c;
      unit = this.#unit(node);
      if ((unit & 0x800000ff) >>> 0 !== c) return;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) yield [i - start + 1, this.#unit(node) & 0x7fffffff];
    }
  }
  text(at: number): string {
    const end = this.#texts.indexOf(0, at);
    if (at >= this.#texts.length || end < 0) throw new FormatError('precompiled charsmap: a text leaves the table');
    return Buffer.from(this.#texts.subarray(at, end)).toString();
  }
  /**
   * As Hugging Face's library does it: clusters of characters whole where they are short, else one by one; the shortest
   * prefix decides.
   */
  replaceClusters(input: string): string {
    const transform = (part: string): string | undefined => {
      for (const [, at] of this.prefixes(Buffer.from(part))) return this.text(at);
      return undefined;
    };
    let out = '';
    for (const { segment } of new Intl.Segmenter('en', { granularity: 'grapheme' }).segment(input)) {
      const whole = Buffer.byteLength(segment) < 6 ? transform(segment) : undefined;
      if (whole !== undefined) out += whole;
      else for (const c of segment) out += transform(c) ?? c;
    }
    return out;
  }
}
const offset = (unit: number): number => (unit >>> 10) << ((unit & 0x200) >>> 6);
