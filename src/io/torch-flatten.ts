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
  const out: FlatCheckpoint = { tensors: new Map(), metadata: new Map(), opaque: new Map() };
  const active = new Set<unknown>();
  const bad = (name: string, rule: string, at?: number): FormatError => {
    const short = name.length > 80 ? `${name.slice(0, 80)}...` : name;
    return pickle.fail(`${JSON.stringify(short)}: ${rule}`, at);
  };

  const enter = (value: object, name: string, depth: number, visit: () => void): void => {
    if (active.has(value)) return; // a structure that holds itself
    if (depth > MAX_DEPTH) throw bad(name, `nested deeper than ${MAX_DEPTH}`);
    active.add(value);
    visit();
    active.delete(value);
  };
  const children = (entries: Iterable<[unknown, unknown]>, name: string, depth: number): void => {
    for (const [key, value] of entries) {
      const text = keyText(key);
      pickle.pay(0, 1 + text.length / 16);
      walk(value, name === '' ? text : `${name}.${text}`, depth + 1);
    }
  };
  const keep = <T>(map: Map<string, T>, name: string, value: T): void => {
    pickle.pay(NAME + 2 * name.length);
    map.set(name, value);
  };
  const put = <T>(map: Map<string, T>, name: string, value: T): void => {
    if (out.tensors.has(name) || out.opaque.has(name))
      throw bad(name, 'two tensors have this name', value instanceof TorchTensor ? value.at : undefined);
    keep(map, name, value);
  };
  const object = (value: PickleObject, name: string, depth: number): void => {
    if (holdsTensor(value.args, pickle)) return put(out.opaque, name, value.global.id);
    children(value.entries, name, depth);
    children(value.items.entries(), name, depth);
    if (!(value.state instanceof Map)) {
      if (value.entries.size + value.items.length === 0) keep(out.metadata, name, value);
      return;
    }
    const state = value.state as Map<unknown, unknown>;
    const isModule = MODULE_PARTS.every((part) => state.get(part) instanceof Map);
    for (const [key, part] of state) {
      if (isModule && MODULE_PARTS.includes(keyText(key)))
        enter(part as object, name, depth + 1, () => children(part as Map<unknown, unknown>, name, depth + 1));
      else children([[key, part]], name, depth);
    }
  };
  const walk = (value: unknown, name: string, depth: number): void => {
    if (name.length > MAX_NAME) throw bad(name, `a name longer than ${MAX_NAME}`);
    pickle.pay(0, 1 + (Array.isArray(value) ? value.length / 4 : 0));
    if (value instanceof TorchTensor) put(out.tensors, name, value);
    else if (value instanceof Map)
      enter(value, name, depth, () => children(value as Map<unknown, unknown>, name, depth));
    else if (Array.isArray(value) && value.some((v) => typeof v === 'object' && v !== null)) {
      enter(value, name, depth, () => children(value.entries(), name, depth));
    } else if (value instanceof PickleObject) enter(value, name, depth, () => object(value, name, depth));
    else if (value instanceof TorchStorage) put(out.opaque, name, value.type);
    else keep(out.metadata, name, value);
  };
  walk(root, '', 0);
  return out;
}

/** Whether a call's arguments hold a tensor or storage, near the surface. */
function holdsTensor(args: unknown, pickle: Cursor, depth = 0): boolean {
  pickle.pay(0);
  if (args instanceof TorchTensor || args instanceof TorchStorage) return true;
  return Array.isArray(args) && depth < 3 && args.slice(0, 32).some((a) => holdsTensor(a, pickle, depth + 1));
}
