// A map from two small whole numbers to one, in flat arrays: merges by their pair, a trie's steps by node and
// character.

const hash = (a: number, b: number): number => {
  const h = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b);
  return (h ^ (h >>> 15)) >>> 0;
};

export class PairMap {
  #keys: Int32Array;
  #values: Int32Array;
  #mask: number;
  #size = 0;
  constructor(expected = 16) {
    let room = 16;
    while (room < expected * 2) room *= 2;
    this.#keys = new Int32Array(room * 2).fill(-1);
    this.#values = new Int32Array(room);
    this.#mask = room - 1;
  }
  /** The value, or -1. */
  get(a: number, b: number): number {
    for (let i = hash(a, b) & this.#mask; ; i = (i + 1) & this.#mask) {
      const key = this.#keys[2 * i];
      if (key === -1) return -1;
      if (key === a && this.#keys[2 * i + 1] === b) return this.#values[i];
    }
  }
  set(a: number, b: number, value: number): void {
    if ((this.#size + 1) * 2 > this.#mask) this.#grow();
    let i = hash(a, b) & this.#mask;
    for (; this.#keys[2 * i] !== -1; i = (i + 1) & this.#mask) {
      if (this.#keys[2 * i] === a && this.#keys[2 * i + 1] === b) {
        this.#values[i] = value;
        return;
      }
    }
    this.#keys[2 * i] = a;
    this.#keys[2 * i + 1] = b;
    this.#values[i] = value;
    this.#size++;
  }
  #grow(): void {
    const [keys, values] = [this.#keys, this.#values];
    const room = values.length * 2;
    this.#keys = new Int32Array(room * 2).fill(-1);
    this.#values = new Int32Array(room);
    this.#mask = room - 1;
    this.#size = 0;
    for (let i = 0; i < values.length; i++) if (keys[2 * i] !== -1) this.set(keys[2 * i], keys[2 * i + 1], values[i]);
  }
}

/** Texts to find at a place in another text, by UTF-16 units. */
export class Trie {
  readonly #steps = new PairMap();
  readonly #values: number[] = [-1];
  /** The value of a text that is there already gives way. */
  add(text: string, value: number): void {
    let node = 0;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      let next = this.#steps.get(node, unit);
      if (next < 0) {
        next = this.#values.push(-1) - 1;
        this.#steps.set(node, unit, next);
      }
      node = next;
    }
    this.#values[node] = value;
  }
  get empty(): boolean {
    return this.#values.length === 1;
  }
  /** Calls back with the end and value of every text that begins at `start`, the shortest first. */
  prefixes(text: string, start: number, found: (end: number, value: number) => void): void {
    let node = 0;
    for (let i = start; i < text.length; ) {
      node = this.#steps.get(node, text.charCodeAt(i));
      if (node < 0) return;
      i++;
      if (this.#values[node] >= 0) found(i, this.#values[node]);
    }
  }
  /** The longest text that begins at `start`, as its end and value. */
  longest(text: string, start: number): readonly [end: number, value: number] | undefined {
    let best: [number, number] | undefined;
    this.prefixes(text, start, (end, value) => (best = [end, value]));
    return best;
  }
}
