// A checkpoint's nested structure as flat dotted names: tensors, everything else, and what only foreign code could build.
import { FormatError } from '../base/errors.js';
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

export function flattenCheckpoint(root: unknown, source: string, pickled: number): FlatCheckpoint {
  const out: FlatCheckpoint = { tensors: new Map(), metadata: new Map(), opaque: new Map() };
  const active = new Set<unknown>();
  // Every node takes a byte of pickle at least; more visits mean that shared parts multiply.
  let visits = 10 * pickled + 1000;

  const enter = (value: object, name: string, depth: number, visit: () => void): void => {
    if (active.has(value)) return; // a structure that holds itself
    if (depth > MAX_DEPTH) throw new FormatError(`${source}: ${name.slice(0, 80)}...: nested deeper than ${MAX_DEPTH}`);
    active.add(value);
    visit();
    active.delete(value);
  };
  const children = (entries: Iterable<[unknown, unknown]>, name: string, depth: number): void => {
    for (const [key, value] of entries) walk(value, name === '' ? keyText(key) : `${name}.${keyText(key)}`, depth + 1);
  };
  const put = <T>(map: Map<string, T>, name: string, value: T): void => {
    if (out.tensors.has(name) || out.opaque.has(name))
      throw new FormatError(`${source}: two tensors are named ${JSON.stringify(name)}`);
    map.set(name, value);
  };
  const object = (value: PickleObject, name: string, depth: number): void => {
    if (holdsTensor(value.args)) return put(out.opaque, name, value.global.id);
    children(value.entries, name, depth);
    children(value.items.entries(), name, depth);
    if (!(value.state instanceof Map)) {
      if (value.entries.size + value.items.length === 0) out.metadata.set(name, value);
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
    if (--visits < 0)
      throw new FormatError(`${source}: ${name.slice(0, 80)}: the structure holds its own parts too many times over`);
    if (name.length > MAX_NAME)
      throw new FormatError(`${source}: ${name.slice(0, 80)}...: a name longer than ${MAX_NAME}`);
    if (value instanceof TorchTensor) put(out.tensors, name, value);
    else if (value instanceof Map)
      enter(value, name, depth, () => children(value as Map<unknown, unknown>, name, depth));
    else if (Array.isArray(value) && value.some((v) => typeof v === 'object' && v !== null)) {
      enter(value, name, depth, () => children(value.entries(), name, depth));
    } else if (value instanceof PickleObject) enter(value, name, depth, () => object(value, name, depth));
    else if (value instanceof TorchStorage) put(out.opaque, name, value.type);
    else out.metadata.set(name, value);
  };
  walk(root, '', 0);
  return out;
}

/** Whether a call's arguments hold a tensor or storage, near the surface. */
function holdsTensor(args: unknown, depth = 0): boolean {
  if (args instanceof TorchTensor || args instanceof TorchStorage) return true;
  return Array.isArray(args) && depth < 3 && args.slice(0, 32).some((a) => holdsTensor(a, depth + 1));
}
