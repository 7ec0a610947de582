// A part of tokenizer.json: its type looked up in a table, its fields read with their kinds checked, unknown ones
// refused.
import { FormatError, UnsupportedError } from '../base/errors.js';

export class Component {
  readonly where: string;
  readonly #json: Readonly<Record<string, unknown>>;
  constructor(where: string, json: Readonly<Record<string, unknown>>) {
    this.where = where;
    this.#json = json;
  }
  value(key: string): unknown {
    return this.#json[key];
  }
  #is<T>(key: string, kind: string, fallback: T | undefined): T {
    const v = this.#json[key];
    if (v == null && fallback !== undefined) return fallback;
    if (typeof v !== kind) throw new FormatError(`${this.where}: ${key} is ${JSON.stringify(v)}, not a ${kind}`);
    return v as T;
  }
  flag(key: string, fallback?: boolean): boolean {
    return this.#is(key, 'boolean', fallback);
  }
  text(key: string, fallback?: string): string {
    return this.#is(key, 'string', fallback);
  }
  number(key: string, fallback?: number): number {
    return this.#is(key, 'number', fallback);
  }
  list(key: string): unknown[] {
    const v = this.#json[key];
    if (!Array.isArray(v)) throw new FormatError(`${this.where}: ${key} is not a list`);
    return v;
  }
  oneOf<T extends string>(key: string, known: readonly T[], fallback: T): T {
    const v = this.text(key, fallback);
    if (!known.includes(v as T))
      throw new UnsupportedError(
        `${this.where}: ${key} ${JSON.stringify(v)} is not known; known are ${known.join(', ')}`,
      );
    return v as T;
  }
}

export interface Kind<T> {
  /** Fields besides `type` that are honoured. */
  readonly keys: readonly string[];
  readonly make: (c: Component) => T;
}

export function component<T>(what: string, json: unknown, kinds: Readonly<Record<string, Kind<T>>>): T {
  if (json === null || typeof json !== 'object' || Array.isArray(json))
    throw new FormatError(`tokenizer.json: a ${what} is ${JSON.stringify(json)}, not an object`);
  const fields = json as Readonly<Record<string, unknown>>;
  const type = fields.type;
  if (typeof type !== 'string' || !Object.hasOwn(kinds, type))
    throw new UnsupportedError(
      `tokenizer.json: the ${what} ${JSON.stringify(type)} is not known; known are ${Object.keys(kinds).join(', ')}`,
    );
  const where = `tokenizer.json: ${what} ${type}`;
  const unknown = Object.keys(fields).filter((k) => k !== 'type' && !kinds[type].keys.includes(k));
  if (unknown.length > 0) throw new UnsupportedError(`${where}: ${unknown.join(', ')} is not honoured`);
  return kinds[type].make(new Component(where, fields));
}
