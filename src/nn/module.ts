// Module: parameters by name, found in the fields of a class; training or not; moved and saved as a whole.
import type { DType } from '../base/dtype.js';
import { isFloat } from '../base/dtype.js';
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import type { Device } from '../tensor/device.js';
import { keep } from '../tensor/scope.js';
import { QTensor } from '../tensor/qtensor.js';
import { Tensor } from '../tensor/tensor.js';

interface Slot {
  readonly name: string;
  readonly owner: Record<string, unknown>;
  readonly key: string;
  readonly buffer: boolean;
}

export abstract class Module {
  /** Whether dropout drops and batch norms learn their statistics. */
  training = true;

  /** Fields whose tensors are saved and moved but not trained: running statistics, tables. */
  protected buffers(): readonly string[] {
    return [];
  }

  /** Every tensor field of this module and of modules in its fields, arrays included. */
  *#slots(prefix = ''): Generator<Slot> {
    const buffers = this.buffers();
    for (const [key, value] of Object.entries(this))
      yield* slotsOf(
        value,
        this as unknown as Record<string, unknown>,
        key,
        `${prefix}${key}`,
        buffers.includes(key),
        (m, p) => m.#slots(p),
      );
  }

  /** Parameters and buffers by name. */
  stateDict(): Map<string, Tensor> {
    return new Map([...this.#slots()].map((s) => [s.name, s.owner[s.key] as Tensor]));
  }
  namedParameters(): Map<string, Tensor> {
    return new Map([...this.#slots()].filter((s) => !s.buffer).map((s) => [s.name, s.owner[s.key] as Tensor]));
  }
  /** Each trained tensor once, however many names it has. */
  parameters(): Tensor[] {
    return [...new Set(this.namedParameters().values())];
  }

  /** Copies values into the tensors of the same names, in place. */
  loadStateDict(from: ReadonlyMap<string, Tensor>): this {
    for (const [name, t] of this.stateDict()) {
      const source = from.get(name);
      if (!source) throw new ArgumentError(`loadStateDict: there is no ${JSON.stringify(name)}`);
      if (!sameShape(source.shape, t.shape))
        throw new ShapeError(`loadStateDict: ${name} is ${formatShape(t.shape)}, given ${formatShape(source.shape)}`);
      noGrad(() => t.assign(source.to(t.device).cast(t.dtype)));
    }
    return this;
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

  /** Moves to a device or a dtype (floats only); parameters stay parameters. */
  to(device: Device | undefined, dtype?: DType): this {
    return this.replace((t) =>
      noGrad(() => {
        const there = device ? t.to(device) : t;
        const cast = dtype && isFloat(there.dtype) ? there.cast(dtype) : there;
        return cast === t ? t : keep(cast).requireGrad(t.requiresGrad);
      }),
    );
  }

  train(on = true): this {
    this.training = on;
    for (const value of Object.values(this)) eachModule(value, (m) => m.train(on));
    return this;
  }
  eval(): this {
    return this.train(false);
  }
  /** Turns gradients of all parameters on or off. */
  requireGrad(on = true): this {
    for (const p of this.parameters()) p.requireGrad(on);
    return this;
  }
  parameterCount(): number {
    return this.parameters().reduce((n, p) => n + p.size, 0);
  }
  dispose(): void {
    for (const t of new Set(this.stateDict().values())) t.dispose();
  }
}

/** A module from one tensor to one. */
export abstract class Layer extends Module {
  abstract forward(x: Tensor): Tensor;
}

function* slotsOf(
  value: unknown,
  owner: Record<string, unknown>,
  key: string,
  name: string,
  buffer: boolean,
  inner: (m: Module, prefix: string) => Generator<Slot>,
): Generator<Slot> {
  if (value instanceof Tensor) yield { name, owner, key, buffer };
  else if (value instanceof QTensor) yield* blocksOf(value, name);
  else if (value instanceof Module) yield* inner(value, `${name}.`);
  else if (Array.isArray(value))
    for (let i = 0; i < value.length; i++)
      yield* slotsOf(value[i], value as unknown as Record<string, unknown>, String(i), `${name}.${i}`, buffer, inner);
}

/** The bytes of quantized weights: saved and moved, never trained. */
function* blocksOf(value: QTensor, name: string): Generator<Slot> {
  const several = value.parts.length > 1;
  for (const [i, part] of value.parts.entries()) {
    const owner = part as unknown as Record<string, unknown>;
    yield { name: `${name}.${part.type}${several ? `.${i}` : ''}`, owner, key: 'blocks', buffer: true };
  }
}

function eachModule(value: unknown, visit: (m: Module) => void): void {
  if (value instanceof Module) visit(value);
  else if (Array.isArray(value)) for (const v of value) eachModule(v, visit);
}
