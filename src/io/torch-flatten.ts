// A checkpoint's nested structure as flat dotted names: tensors, everything else, and what only foreign code could
// build.
import type { FormatError } from '../base/errors.js';
import type { Cursor } from './byte-source.js';
import { PickleObject, keyText } from './pickle.js';
import { TorchStorage, TorchTensor } from './torch-types.js';

export interface FlatCheckpoint {
  readonly tensors: Map<string, TorchTensor>;
  readonly metadata: Map<string, unknown>;
  readonly opaque: Map<string, string>;
}

const MAX_DEPTH = 256;
const MAX_NAME = 4096;
/** Attributes of a pickled nn.Module that hold its parts; their own names are not part of a parameter's. */
const MODULE_PARTS = ['_parameters', '_buffers', '_modules'];

/** A name, its entry in a map, and the string that it was made from. */
const NAME = 100;

/** @param pickle Where the pickle ended: what the walk copies and visits is paid for from its budget. */
export function flattenCheckpoint(root: unknown, pickle: Cursor): FlatCheckpoint {
  const walk = new Walk(pickle);
  walk.visit(root, '', 0);
  return walk.out;
}

class Walk {
  readonly out: FlatCheckpoint = { tensors: new Map(), metadata: new Map(), opaque: new Map() };
  readonly #pickle: Cursor;
  readonly #active = new Set<unknown>();
  constructor(pickle: Cursor) {
    this.#pickle = pickle;
  }

  visit(value: unknown, name: string, depth: number): void {
    if (name.length > MAX_NAME) throw this.#bad(name, `a name longer than ${MAX_NAME}`);
    this.#pickle.pay(0, 1 + (Array.isArray(value) ? value.length / 4 : 0));
    const { tensors, metadata, opaque } = this.out;
    if (value instanceof TorchTensor) this.#put(tensors, name, value);
    else if (value instanceof Map)
      this.#enter(value, name, depth, () => this.#children(value as Map<unknown, unknown>, name, depth));
    else if (Array.isArray(value) && value.some((v) => typeof v === 'object' && v !== null))
      this.#enter(value, name, depth, () => this.#children(value.entries(), name, depth));
    else if (value instanceof PickleObject) this.#enter(value, name, depth, () => this.#object(value, name, depth));
    else if (value instanceof TorchStorage) this.#put(opaque, name, value.type);
    else this.#keep(metadata, name, value);
  }

  #bad(name: string, rule: string, at?: number): FormatError {
    const short = name.length > 80 ? `${name.slice(0, 80)}...` : name;
    return this.#pickle.fail(`${JSON.stringify(short)}: ${rule}`, at);
  }
  #enter(value: object, name: string, depth: number, visit: () => void): void {
    if (this.#active.has(value)) return; // a structure that holds itself
    if (depth > MAX_DEPTH) throw this.#bad(name, `nested deeper than ${MAX_DEPTH}`);
    this.#active.add(value);
    visit();
    this.#active.delete(value);
  }
  #children(entries: Iterable<[unknown, unknown]>, name: string, depth: number): void {
    for (const [key, value] of entries) {
      const text = keyText(key);
      this.#pickle.pay(0, 1 + text.length / 16);
      this.visit(value, name === '' ? text : `${name}.${text}`, depth + 1);
    }
  }
  #keep<T>(map: Map<string, T>, name: string, value: T): void {
    this.#pickle.pay(NAME + 2 * name.length);
    map.set(name, value);
  }
  #put<T>(map: Map<string, T>, name: string, value: T): void {
    if (this.out.tensors.has(name) || this.out.opaque.has(name))
      throw this.#bad(name, 'two tensors have this name', value instanceof TorchTensor ? value.at : undefined);
    this.#keep(map, name, value);
  }
  #object(value: PickleObject, name: string, depth: number): void {
    if (holdsTensor(value.args, this.#pickle)) return this.#put(this.out.opaque, name, value.global.id);
    this.#children(value.entries, name, depth);
    this.#children(value.items.entries(), name, depth);
    if (!(value.state instanceof Map)) {
      if (value.entries.size + value.items.length === 0) this.#keep(this.out.metadata, name, value);
      return;
    }
    const state = value.state as Map<unknown, unknown>;
    const isModule = MODULE_PARTS.every((part) => state.get(part) instanceof Map);
    for (const [key, part] of state) {
      const own = part as Map<unknown, unknown>;
      if (isModule && MODULE_PARTS.includes(keyText(key)))
        this.#enter(own, name, depth + 1, () => this.#children(own, name, depth + 1));
      else this.#children([[key, part]], name, depth);
    }
  }
}

/** Whether a call's arguments hold a tensor or storage, near the surface. */
function holdsTensor(args: unknown, pickle: Cursor, depth = 0): boolean {
  pickle.pay(0);
  if (args instanceof TorchTensor || args instanceof TorchStorage) return true;
  return Array.isArray(args) && depth < 3 && args.slice(0, 32).some((a) => holdsTensor(a, pickle, depth + 1));
}
