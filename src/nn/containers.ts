// Modules that hold modules: in a row, in a list, by name.
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Field, Layer, Module } from './module.js';

/** A function as a layer. */
export class Func extends Layer {
  /** What forward calls; `training` says whether the module is being trained. */
  readonly f: (x: Tensor, training: boolean) => Tensor;
  constructor(f: (x: Tensor, training: boolean) => Tensor) {
    super();
    this.f = f;
  }
  override describe(): string {
    return this.f.name;
  }
  forward(x: Tensor): Tensor {
    return this.f(x, this.training);
  }
}
/** A function as a layer; it is told whether it trains. */
export const func = (f: (x: Tensor, training: boolean) => Tensor): Func => new Func(f);

/** What a Sequential takes: a layer, or a function that becomes one. */
export type LayerLike = Layer | ((x: Tensor) => Tensor);
function asLayer(l: LayerLike, where: string): Layer {
  if (l instanceof Module && typeof (l as Partial<Layer>).forward === 'function') return l;
  if (typeof l === 'function' && !(l.prototype instanceof Module)) return new Func(l as (x: Tensor) => Tensor);
  const what =
    typeof l === 'function'
      ? `the class ${l.name} itself; write new ${l.name}(...)`
      : Array.isArray(l)
        ? 'a list of them; write ...layers'
        : String(l);
  throw new ArgumentError(`${where}: takes modules with a forward() and functions of a tensor, not ${what}`);
}
const inOrder = (list: readonly Module[]): Field[] =>
  list.map((value, i) => ({
    name: String(i),
    value,
    owner: list as unknown as Record<string, unknown>,
    key: String(i),
  }));

/**
 * One layer after another; names in the state are their numbers, as in PyTorch.
 *
 * ```ts
 * const net = new Sequential(new Conv2d(1, 16, 3), new ReLU(), new Flatten(), new Linear(16 * 26 * 26, 10));
 * ```
 */
export class Sequential extends Layer {
  /** The layers, in the order they run in. */
  readonly layers: Layer[];
  constructor(...layers: LayerLike[]) {
    super();
    this.layers = layers.map((l) => asLayer(l, 'Sequential'));
  }
  override fields(): Iterable<Field> {
    return inOrder(this.layers);
  }
  /** Puts a layer at the end. */
  add(layer: LayerLike): this {
    this.layers.push(asLayer(layer, 'Sequential'));
    return this;
  }
  /** The layer at a place; negative ones count from the end. */
  at(i: number): Layer {
    const found = this.layers.at(i);
    if (!found) throw new ArgumentError(`Sequential: there is no layer ${i} among ${this.layers.length}`);
    return found;
  }
  /** How many layers there are. */
  get length(): number {
    return this.layers.length;
  }
  [Symbol.iterator](): IterableIterator<Layer> {
    return this.layers[Symbol.iterator]();
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((y, layer) => layer.forward(y), x);
  }
  /** What each layer gave. */
  forwardAll(x: Tensor): Tensor[] {
    let y = x;
    return this.layers.map((layer) => (y = layer.forward(y)));
  }
}
/** A Sequential of these layers. */
export const seq = (...layers: LayerLike[]): Sequential => new Sequential(...layers);

/** Modules by number; a plain array in a field does the same. */
export class ModuleList<M extends Module = Module> extends Module {
  /** The modules, in order; their names are '0', '1', ... */
  readonly list: M[];
  constructor(modules: Iterable<M> = []) {
    super();
    if (typeof modules?.[Symbol.iterator] !== 'function')
      throw new ArgumentError('ModuleList: takes a list of modules, as new ModuleList([a, b])');
    this.list = [...modules];
  }
  override fields(): Iterable<Field> {
    return inOrder(this.list);
  }
  /** Puts a module at the end. */
  add(module: M): this {
    this.list.push(module);
    return this;
  }
  /** The module at a place; negative ones count from the end. */
  at(i: number): M {
    const found = this.list.at(i);
    if (!found) throw new ArgumentError(`ModuleList: there is no module ${i} among ${this.list.length}`);
    return found;
  }
  /** How many modules there are. */
  get length(): number {
    return this.list.length;
  }
  [Symbol.iterator](): IterableIterator<M> {
    return this.list[Symbol.iterator]();
  }
}

/** Modules by name; the names stand in the state as they are given. */
export class ModuleDict<M extends Module = Module> extends Module {
  readonly #modules: Record<string, M>;
  constructor(modules: Readonly<Record<string, M>> = {}) {
    super();
    this.#modules = { ...modules };
  }
  override *fields(): Iterable<Field> {
    const owner = this.#modules as Record<string, unknown>;
    for (const [key, value] of Object.entries(this.#modules)) yield { name: key, value, owner, key };
  }
  /** The module of a name. */
  get(name: string): M {
    if (!this.has(name))
      throw new ArgumentError(`ModuleDict: there is no ${JSON.stringify(name)} among ${this.names().join(', ')}`);
    return this.#modules[name];
  }
  /** Whether there is a module of this name. */
  has(name: string): boolean {
    return Object.hasOwn(this.#modules, name);
  }
  /** Puts a module under a name. */
  set(name: string, module: M): this {
    this.#modules[name] = module;
    return this;
  }
  /** All names, in the order of their making. */
  names(): string[] {
    return Object.keys(this.#modules);
  }
}
