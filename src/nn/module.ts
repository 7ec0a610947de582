// Module: parameters by name, found in the fields of a class; training or not; moved, saved, hooked and printed as a
// whole.
import type { DType } from '../base/dtype.js';
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, kindOf, sameShape, sizeOf } from '../base/shape.js';
import { loadTensors, saveTensors } from '../io/load.js';
import { requireOptions } from '../ops/kernel-row.js';
import { gradHook, noGrad } from '../tensor/autograd.js';
import type { Device } from '../tensor/device.js';
import { keep } from '../tensor/scope.js';
import { QTensor } from '../tensor/qtensor.js';
import { Tensor } from '../tensor/tensor.js';
import { answerNames } from './answers.js';
import { summary } from './summary.js';

/** One field of a module: what it holds, where it is kept, and what it is called in a state dictionary. */
export interface Field {
  /** The name in state dictionaries; an empty one adds nothing to the path. */
  readonly name: string;
  /** What stands there: a tensor, a module or a list of them. */
  readonly value: unknown;
  /** The object that has the field. */
  readonly owner: Record<string, unknown>;
  /** The field's name in its owner. */
  readonly key: string;
}
interface Slot extends Omit<Field, 'value'> {
  readonly buffer: boolean;
  /** Of quantized weights: what it is made of has a meaning that a cast would lose. */
  readonly encoded?: boolean;
}

/** How a state dictionary is read. */
export interface LoadOptions {
  /** Whether a name that is missing or unexpected is an error; default true. */
  readonly strict?: boolean;
  /** Only names that begin with this are read, without it: 'model.' of a checkpoint that holds more. */
  readonly prefix?: string;
}
/** What a lax load left out. */
export interface LoadReport {
  /** Names of the module that the source does not hold; their tensors are as they were. */
  readonly missing: readonly string[];
  /** Names of the source that the module does not have. */
  readonly unexpected: readonly string[];
}

/** Called before a module runs; what it returns (a tensor or a list) takes the place of the inputs. */
export type BeforeForwardHook = (module: Module, inputs: readonly unknown[]) => unknown;
/** Called after a module ran; a tensor that it returns takes the place of the output. */
export type ForwardHook = (module: Module, inputs: readonly unknown[], output: unknown) => unknown;
/** Called with the gradient of a module's output; a tensor that it returns takes its place. */
export type BackwardHook = (module: Module, gradient: Tensor) => Tensor | void;
interface Hooks {
  readonly before: Set<BeforeForwardHook>;
  readonly after: Set<ForwardHook>;
  readonly backward: Set<BackwardHook>;
}

/** runningMean is called running_mean in files, as PyTorch calls it; names without capitals stay as they are. */
export const storedName = (field: string): string =>
  field.replace(/([a-z0-9])([A-Z]+)/g, (_, before: string, capitals: string) => `${before}_${capitals.toLowerCase()}`);

/** The modules down to this one; a way back up would have no end. */
function below(above: readonly Module[], module: Module, name: string): readonly Module[] {
  if (above.includes(module))
    throw new ArgumentError(
      `${module.constructor.name}: its field ${name} leads back to it; a private field (#parent) can hold what a ` +
        'module lies within, since no parts are looked for there',
    );
  return [...above, module];
}

/**
 * Anything with parameters. Fields that hold tensors are parameters, fields that hold modules (or arrays of them) are
 * parts; their names make up the names in `stateDict()`, camelCase written as snake_case, so that PyTorch's checkpoints
 * load.
 *
 * ```ts
 * class Net extends Module {
 *   hidden = new Linear(784, 64);
 *   out = new Linear(64, 10);
 *   forward(x: Tensor): Tensor {
 *     return this.out.forward(this.hidden.forward(x).relu());
 *   }
 * }
 * ```
 */
export abstract class Module {
  /** Whether dropout drops and batch norms learn their statistics; see train() and eval(). */
  training = true;
  #hooks: Hooks | undefined;

  /** Fields whose tensors are saved and moved but not trained: running statistics, tables. */
  protected buffers(): readonly string[] {
    return [];
  }
  /** What a summary says in brackets after the class: sizes and options. */
  describe(): string {
    return '';
  }
  /** The fields that may hold tensors and modules, with their stored names; containers override it. */
  *fields(): Iterable<Field> {
    const owner = this as unknown as Record<string, unknown>;
    for (const [key, value] of Object.entries(this)) yield { name: storedName(key), value, owner, key };
  }

  /** Every tensor field of this module and of modules in its fields, arrays included. */
  *#slots(prefix = '', above: readonly Module[] = []): Generator<Slot> {
    const chain = below(above, this, prefix.slice(0, -1));
    const buffers = this.buffers();
    for (const field of this.fields()) yield* Module.#slotsOf(field, `${prefix}${field.name}`, buffers, chain);
  }
  static *#slotsOf(
    { value, owner, key }: Field,
    name: string,
    buffers: readonly string[],
    chain: readonly Module[],
  ): Generator<Slot> {
    const buffer = buffers.includes(key);
    if (value instanceof Tensor) yield { name, owner, key, buffer };
    else if (value instanceof QTensor) yield* blocksOf(value, name);
    else if (value instanceof Module) yield* value.#slots(`${name}.`, chain);
    else if (Array.isArray(value))
      for (let i = 0; i < value.length; i++) {
        const inner = { name, value: value[i] as unknown, owner: value as unknown as Record<string, unknown> };
        yield* Module.#slotsOf({ ...inner, key: String(i) }, `${name}.${i}`, buffer ? [String(i)] : [], chain);
      }
    else if (hidesModules(value))
      throw new ArgumentError(
        `parameters: ${name} holds modules in ` +
          `${value instanceof Map ? 'a Map' : value instanceof Set ? 'a Set' : 'an object'}, where they are not found ` +
          'and would not be trained; a list, a ModuleDict or a module of their own has parts',
      );
  }

  /** Parameters and buffers by name; the tensors themselves, not copies. */
  stateDict(): Map<string, Tensor> {
    const found = new Map<string, Tensor>();
    for (const s of this.#slots()) {
      if (found.has(s.name))
        throw new ArgumentError(`stateDict: two fields of ${this.constructor.name} are both named ${s.name}`);
      found.set(s.name, s.owner[s.key] as Tensor);
    }
    return found;
  }
  /** Trained tensors by name. */
  namedParameters(): Map<string, Tensor> {
    return new Map([...this.#slots()].filter((s) => !s.buffer).map((s) => [s.name, s.owner[s.key] as Tensor]));
  }
  /** Each trained tensor once, however many names it has. */
  parameters(): Tensor[] {
    return [...new Set(this.namedParameters().values())];
  }
  /** This module under the name '', and all modules within it under theirs. */
  *namedModules(prefix = ''): Generator<[name: string, module: Module]> {
    yield* this.#named(prefix, []);
  }
  *#named(prefix: string, above: readonly Module[]): Generator<[name: string, module: Module]> {
    const chain = below(above, this, prefix);
    yield [prefix, this];
    for (const field of this.fields())
      yield* modulesIn(field.value, prefix ? `${prefix}.${field.name}` : field.name, (m, p) => m.#named(p, chain));
  }
  /** The modules that this one holds itself, by name. */
  children(): Map<string, Module> {
    return new Map([...this.fields()].flatMap((f) => [...modulesIn(f.value, f.name, (m, p) => [[p, m]])]));
  }

  /**
   * Copies values of a map or an object into the tensors of the same names, in place. Names that are missing or
   * unexpected are an error that lists them; with `{ strict: false }` they are what it returns.
   */
  loadStateDict(
    from: ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>,
    options: LoadOptions = {},
  ): LoadReport {
    requireOptions('loadStateDict', options, ['strict', 'prefix']);
    const { strict = true, prefix = '' } = options;
    const given = new Map(
      [...(from instanceof Map ? from : Object.entries(from))]
        .filter(([name]) => name.startsWith(prefix))
        .map(([name, t]) => [name.slice(prefix.length), t]),
    );
    const own = this.stateDict();
    const missing = [...own.keys()].filter((name) => !given.has(name));
    const unexpected = [...given.keys()].filter((name) => !own.has(name));
    if (strict && missing.length + unexpected.length > 0)
      throw new ArgumentError(
        'loadStateDict: the names differ from those of ' +
          `${this.constructor.name};${listed(' missing', missing)}${listed(' unexpected', unexpected)} ` +
          advice([...own.keys()], missing, unexpected),
      );
    for (const [name, t] of own) {
      const source = given.get(name);
      if (source !== undefined && !(source instanceof Tensor))
        throw new ArgumentError(`loadStateDict: ${name} is no tensor; tensor(list) makes one`);
      if (source && !sameShape(source.shape, t.shape))
        throw new ShapeError(`loadStateDict: ${name} is ${formatShape(t.shape)}, given ${formatShape(source.shape)}`);
    }
    for (const [name, t] of own) {
      const source = given.get(name);
      if (source) noGrad(() => t.assign(source.to(t.device).cast(t.dtype)));
    }
    return { missing, unexpected };
  }
  /** Reads a safetensors, npz, gguf or PyTorch file (.pt, .pth) into the tensors of this module; see loadStateDict. */
  load(path: string, options: LoadOptions = {}): LoadReport {
    const stored = loadTensors(path);
    try {
      return this.loadStateDict(stored, options);
    } finally {
      for (const t of stored.values()) t.dispose();
    }
  }
  /** Writes parameters and buffers to a file; its ending names the format (safetensors, pt, npz, gguf). */
  save(path: string): void {
    saveTensors(path, this.stateDict());
  }

  /** Replaces every tensor; the function is called once for a tensor with several names. */
  replace(f: (t: Tensor, name: string) => Tensor): this {
    const done = new Map<Tensor, Tensor>();
    for (const s of [...this.#slots()]) {
      const old = s.owner[s.key] as Tensor;
      const now = done.get(old) ?? f(old, s.name);
      done.set(old, now);
      s.owner[s.key] = now;
    }
    return this;
  }
  /**
   * Runs f with other tensors in the place of those of their names, which come back afterwards; a tensor with several
   * names is given under one of them. See `functionalCall`.
   */
  withTensors<T>(tensors: ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>, f: () => T): T {
    const given = new Map(tensors instanceof Map ? tensors : Object.entries(tensors));
    const slots = [...this.#slots()];
    const before = slots.map((s) => s.owner[s.key] as Tensor);
    const instead = new Map<Tensor, Tensor>();
    for (const [i, { name }] of slots.entries()) {
      const t = given.get(name);
      if (t === undefined) continue;
      if (!(t instanceof Tensor)) throw new ArgumentError(`withTensors: ${name} is ${kindOf(t)}, not a tensor`);
      if (!sameShape(t.shape, before[i].shape))
        throw new ShapeError(`withTensors: ${name} is ${formatShape(before[i].shape)}, given ${formatShape(t.shape)}`);
      if (instead.get(before[i]) !== undefined && instead.get(before[i]) !== t)
        throw new ArgumentError(`withTensors: ${name} has two names here, which are given two tensors`);
      instead.set(before[i], t);
      given.delete(name);
    }
    const unknown = [...given.keys()].filter((name) => !slots.some((s) => s.name === name));
    if (unknown.length > 0)
      throw new ArgumentError(`withTensors: ${this.constructor.name} has no tensors named ${unknown.join(', ')}`);
    const put = (which: (i: number) => Tensor): void => {
      for (const [i, s] of slots.entries()) s.owner[s.key] = which(i);
    };
    put((i) => instead.get(before[i]) ?? before[i]);
    try {
      const answer = f();
      if (typeof (answer as { then?: unknown } | undefined)?.then === 'function') {
        (answer as Promise<unknown>).then(undefined, () => {}); // refused here already
        throw new ArgumentError(
          'withTensors: the function is async; what it does after its first await would find ' +
            "the module's own tensors again",
        );
      }
      return answer;
    } finally {
      put((i) => before[i]);
    }
  }
  /**
   * Moves to a device or a dtype (floats only); parameters stay parameters, and matrices that were kept as they were
   * stored become such where a dtype is asked for.
   */
  to(device: Device | undefined, dtype?: DType): this {
    const encoded = new Set([...this.#slots()].filter((s) => s.encoded).map((s) => s.owner[s.key]));
    this.#forgetAll();
    this.replace((t) =>
      noGrad(() => {
        const there = device ? t.to(device) : t;
        const cast = dtype && isFloat(there.dtype) && !encoded.has(t) ? there.cast(dtype) : there;
        return cast === t ? t : keep(cast).requireGrad(t.requiresGrad);
      }),
    );
    if (dtype) this.#castKept(dtype);
    return this;
  }
  /** Matrices kept in the floats they were stored in as parameters of a dtype, which are trained where all others are. */
  #castKept(dtype: DType): void {
    const others = this.parameters();
    const trained = others.length > 0 && others.every((p) => p.requiresGrad);
    const done = new Map<QTensor, Tensor>();
    const put = (value: unknown, owner: Record<string, unknown>, key: string): void => {
      if (Array.isArray(value)) value.forEach((v, i) => put(v, value as unknown as typeof owner, String(i)));
      if (!(value instanceof QTensor && value.isFloats)) return;
      const cast = done.get(value) ?? noGrad(() => keep(value.dequantize(dtype))).requireGrad(trained);
      done.set(value, cast);
      owner[key] = cast;
    };
    for (const [, part] of this.namedModules())
      for (const { value, owner, key } of part.fields()) put(value, owner, key);
  }

  /** Says whether this module and all within it are being trained. */
  train(on = true): this {
    for (const [, m] of this.namedModules()) m.training = on;
    return this;
  }
  /** The opposite of train(): dropout passes everything, batch norms use the statistics they have learned. */
  eval(): this {
    return this.train(false);
  }
  /** Turns gradients of all parameters on or off. */
  requireGrad(on = true): this {
    for (const p of this.parameters()) p.requireGrad(on);
    return this;
  }
  /** How many numbers are trained; a tensor with several names counts once. */
  parameterCount(): number {
    return this.parameters().reduce((n, p) => n + p.size, 0);
  }
  /** How many numbers its weights are, those in quantized blocks included; a weight with several names counts once. */
  weightCount(): number {
    const found = new Set<Tensor | QTensor>(this.parameters());
    for (const [, module] of this.namedModules())
      for (const { value } of module.fields())
        for (const held of Array.isArray(value) ? value : [value]) if (held instanceof QTensor) found.add(held);
    return [...found].reduce((n, { shape }) => n + sizeOf(shape), 0);
  }
  /** Gives the memory of all tensors back. */
  dispose(): void {
    this.#forgetAll();
    for (const t of new Set(this.stateDict().values())) t.dispose();
  }

  /** Gives back what it keeps beside its fields, which it makes again when asked: tables of one device and dtype. */
  protected forget(): void {}
  #forgetAll(): void {
    for (const [, part] of this.namedModules()) part.forget();
  }

  /** Calls a function before every forward(). What is returned here takes the hook away again. */
  onBeforeForward(hook: BeforeForwardHook): () => void {
    return added(this.#hooked().before, hook);
  }
  /** Calls a function after every forward(). What is returned here takes the hook away again. */
  onForward(hook: ForwardHook): () => void {
    return added(this.#hooked().after, hook);
  }
  /** Calls a function with the gradient of the output in every backward pass. What is returned takes it away again. */
  onBackward(hook: BackwardHook): () => void {
    return added(this.#hooked().backward, hook);
  }
  /** From the first hook on, this one object has a forward of its own around the class's: others pay nothing. */
  #hooked(): Hooks {
    if (this.#hooks) return this.#hooks;
    const self = this as unknown as { forward?: (...inputs: unknown[]) => unknown };
    const plain = self.forward;
    if (typeof plain !== 'function')
      throw new ArgumentError(`${this.constructor.name}: has no forward() that hooks could be called around`);
    const hooks: Hooks = { before: new Set(), after: new Set(), backward: new Set() };
    const forward = (...given: unknown[]): unknown => {
      let inputs = given;
      for (const hook of hooks.before) {
        const changed = hook(this, inputs);
        if (changed === undefined || changed === null) continue;
        inputs = Array.isArray(changed)
          ? changed
          : [likeBefore(this, 'onBeforeForward', inputs[0], changed), ...inputs.slice(1)];
      }
      let output = plain.apply(this, inputs);
      for (const hook of hooks.after) {
        const changed = hook(this, inputs, output);
        if (changed !== undefined && changed !== null) output = likeBefore(this, 'onForward', output, changed);
      }
      if (hooks.backward.size > 0 && output instanceof Tensor && output.requiresGrad)
        output = gradHook(output, (g) => {
          let gradient = g;
          for (const hook of hooks.backward) {
            const changed: unknown = hook(this, gradient);
            if (changed !== undefined && changed !== null)
              gradient = likeBefore(this, 'onBackward', gradient, changed) as Tensor;
          }
          return gradient;
        });
      return output;
    };
    Object.defineProperty(this, 'forward', { value: forward, configurable: true, enumerable: false });
    this.#hooks = hooks;
    return hooks;
  }

  /** The tree of modules with the shapes of their tensors and their counts; never the weights. */
  toString(): string {
    return summary(this);
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return summary(this);
  }
}

/** What modules are asked for by PyTorch's names: an answer with the name here, in place of "is not a function". */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  apply: 'for (const [name, m] of model.namedModules())',
  modules: 'model.namedModules()',
  namedChildren: 'model.children()',
  half: "model.to(undefined, 'f16')",
  bfloat16: "model.to(undefined, 'bf16')",
  float: "model.to(undefined, 'f32')",
  double: "model.to(undefined, 'f64')",
  cuda: "model.to('cuda:0'), model.to('rocm:0')",
  cpu: "model.to('cpu')",
  requiresGrad_: 'model.requireGrad(false)',
  zeroGrad: 'nothing: loss.backward() answers gradients, and tensors keep none',
  registerBuffer: 'a field, named in buffers()',
  registerParameter: 'a field that holds a tensor',
  addModule: 'a field that holds a module',
  registerModule: 'a field that holds a module',
  registerForwardHook: 'model.onForward(hook)',
  registerForwardPreHook: 'model.onBeforeForward(hook)',
  registerFullBackwardHook: 'model.onBackward(hook)',
  namedBuffers: 'model.stateDict() without the names of model.namedParameters()',
  getSubmodule: 'a field, or new Map(model.namedModules()).get(name)',
  getParameter: 'a field, or model.namedParameters().get(name)',
  functionalCall: 'functionalCall(model, tensors, x) of wick/nn',
  functional_call: 'functionalCall(model, tensors, x) of wick/nn',
  compile: 'captured(step) of wick for a GPU',
  clone: 'another module of the same sizes, and other.loadStateDict(model.stateDict()); EMA keeps averages of one',
  copy: 'another module of the same sizes, and other.loadStateDict(model.stateDict()); EMA keeps averages of one',
  deepcopy: 'another module of the same sizes, and other.loadStateDict(model.stateDict()); EMA keeps averages of one',
  state_dict: 'model.stateDict()',
  load_state_dict: 'model.loadStateDict(state), or model.load(file)',
  named_parameters: 'model.namedParameters()',
  named_modules: 'model.namedModules()',
};
answerNames(Module.prototype, 'model', OTHER_NAMES);

/** A module from one tensor to one. */
export abstract class Layer extends Module {
  /** The output for an input. */
  abstract forward(x: Tensor): Tensor;
}

/**
 * What a hook put in the place of something: a tensor for a tensor. An arrow function answers what its body is worth
 * (`seen.push(x)` a number), which would be taken for the output.
 */
function likeBefore(module: Module, hook: string, before: unknown, now: unknown): unknown {
  if (now instanceof Tensor || !(before instanceof Tensor)) return now;
  const given = Array.isArray(now) ? 'a list' : `a ${typeof now}`;
  throw new ArgumentError(
    `${module.constructor.name}: a hook of ${hook} answered ${given} in the place of a tensor; one that only looks on ` +
      'answers nothing: (module, inputs, output) => { ... }',
  );
}

function added<T>(set: Set<T>, hook: T): () => void {
  if (typeof hook !== 'function') throw new ArgumentError(`a hook is a function, not ${typeof hook}`);
  set.add(hook);
  return () => void set.delete(hook);
}

/**
 * What to do where names differ: the same names behind a prefix are meant, as of a checkpoint with more than a model.
 */
function advice(own: readonly string[], missing: readonly string[], unexpected: readonly string[]): string {
  const [first] = missing;
  const others = new Set(unexpected);
  const prefix = unexpected.find((name) => first !== undefined && name.endsWith(`.${first}`))?.slice(0, -first.length);
  return prefix !== undefined && own.every((name) => others.has(prefix + name))
    ? `they stand there behind ${JSON.stringify(prefix)}: give { prefix: ${JSON.stringify(prefix)} }`
    : 'give { strict: false } to load what fits';
}

function listed(what: string, names: readonly string[]): string {
  if (names.length === 0) return '';
  const shown = names.slice(0, 8).join(', ');
  return `${what} (${names.length}): ${shown}${names.length > 8 ? ', ...' : ''};`;
}

/** The bytes of quantized weights: saved and moved, never trained. Floats go by the name that they have in files. */
function* blocksOf(value: QTensor, name: string): Generator<Slot> {
  const several = value.parts.length > 1;
  for (const [i, part] of value.parts.entries()) {
    const owner = part as unknown as Record<string, unknown>;
    const at = value.isFloats && !several ? name : `${name}.${part.type}${several ? `.${i}` : ''}`;
    yield { name: at, owner, key: 'blocks', buffer: true, encoded: true };
    if (part.scales) yield { name: `${at}.scales`, owner, key: 'scales', buffer: true, encoded: true };
  }
}

/** Whether a value keeps modules where nobody looks for them: in a plain object, a map or a set. */
function hidesModules(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const held =
    value instanceof Map || value instanceof Set
      ? [...value.values()]
      : Object.getPrototypeOf(value) === Object.prototype
        ? Object.values(value)
        : [];
  return held.some((v) => v instanceof Module);
}

function* modulesIn(
  value: unknown,
  name: string,
  visit: (m: Module, name: string) => Iterable<[string, Module]>,
): Generator<[string, Module]> {
  if (value instanceof Module) yield* visit(value, name);
  else if (Array.isArray(value)) for (const [i, v] of value.entries()) yield* modulesIn(v, `${name}.${i}`, visit);
}
