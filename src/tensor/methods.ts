// Gives Tensor a method for every row of the table; importing this file completes the class.
import type { DType } from '../base/dtype.js';
import { ArgumentError, WickError } from '../base/errors.js';
import { sameShape } from '../base/shape.js';
import type { CloseOptions } from '../ops/numeric.js';
import type { CompositeRow, KernelRow, Params, Row } from '../ops/op.js';
import { opList } from '../ops/table.js';
import type { GradRow } from './autograd.js';
import { type NestedInput, tensor } from './create.js';
import { Device } from './device.js';
import { apply, copyInto } from './dispatch.js';
import { display } from './display.js';
import { at, type Index, maskedSelect, nonzero, requireView } from './indexing.js';
import {
  bernoulli,
  type DrawOptions,
  type LikeOptions,
  multinomial,
  type MultinomialOptions,
  randLike,
  randnLike,
} from './sampling.js';
import { answerOtherNames } from './other-names.js';
import { parameterCount } from './parameter-count.js';
import { stepRecording } from './step-recording.js';
import { connect, Tensor } from './tensor.js';
import { composed } from './composing.js';
import { transfer } from './transfer.js';

const kindOf = (v: unknown): string =>
  v instanceof Tensor ? 'Tensor' : Array.isArray(v) ? 'array' : v === null ? 'null' : typeof v;

/** The op that an error of a composite was last given as the one that was called. */
const CALLED = new WeakMap<WickError, string>();

/** Errors name the op that was called, then the one within it that failed: `crossEntropy: gather: index 7 ...`. */
function titled(name: string, e: WickError): WickError {
  if (e.message.startsWith(`${name}: `)) return e;
  const inner = CALLED.get(e);
  const rest = inner === undefined ? e.message : e.message.slice(inner.length + 2);
  CALLED.set(e, name);
  return e.retitle(`${name}: ${rest}`);
}

/** What JavaScript says of arguments of the wrong kind, in a sentence that names the op. */
function named(row: Row, args: readonly unknown[], e: unknown): unknown {
  if (e instanceof WickError && row.family === 'composite') return titled(row.serves ?? row.name, e);
  // A number beside a tensor becomes one: whoever wrote x.mul(0.5) has not called `constant`.
  if (e instanceof WickError && e.message.startsWith('constant: '))
    return e.retitle(`${row.serves ?? row.name}: ${e.message.slice('constant: '.length)}`);
  if (!(e instanceof TypeError || e instanceof RangeError)) return e;
  const alone = args.length > 0 && args.every((a) => typeof a === 'number');
  if (e instanceof TypeError && alone && /is not (iterable|a function)/.test(e.message))
    return new ArgumentError(`${row.name}: takes a list: ${row.name}([${args.join(', ')}])`, { cause: e });
  const list = args.some(Array.isArray) ? '; tensor(list) makes a tensor of a list' : '';
  return new ArgumentError(
    `${row.serves ?? row.name}: cannot take the arguments (${args.map(kindOf).join(', ')})${list}: ${e.message}`,
    { cause: e },
  );
}

/** An argument more than an op takes would be ignored: it is meant as something, and refused. */
function refuseMore(row: Row, args: readonly unknown[], most: number): never {
  const takes = most === 0 ? 'no argument' : most === 1 ? 'one argument' : `at most ${most} arguments`;
  const list = most > 0 && args.every((a) => typeof a === 'number');
  throw new ArgumentError(
    `${row.name}: takes ${takes}, not ${args.length} (${args.map(kindOf).join(', ')})` +
      (list ? `; a list is written ${row.name}([${args.join(', ')}])` : ''),
  );
}

function method(row: Row): (this: Tensor, ...args: never[]) => unknown {
  const most = parameterCount('compose' in row ? row.compose : row.args) - 1;
  if (row.family === 'composite') {
    const { compose } = row as CompositeRow;
    return function (this: Tensor, ...args: never[]) {
      if (args.length > most) refuseMore(row, args, most);
      try {
        return composed(() => compose(this, ...args));
      } catch (e) {
        throw named(row, args, e);
      }
    };
  }
  const many = 'many' in row && row.many === true;
  const run = row as GradRow;
  return function (this: Tensor, ...args: never[]) {
    if (args.length > most) refuseMore(row, args, most);
    try {
      const call = run.args(this, ...args);
      if (call.answer) return many ? [call.answer] : call.answer;
      const outs = apply(run, call.inputs, call.params, call.inputs.length === 0 ? this.device : undefined);
      return many ? outs : outs[0];
    } catch (e) {
      throw named(row, args, e);
    }
  };
}

for (const row of opList) {
  Object.defineProperty(Tensor.prototype, row.name, { value: method(row), writable: true, configurable: true });
}

// x[0] = 5 would make a property of JavaScript's own and change no element: brackets are refused.
for (let i = -8; i < 64; i++) {
  const refuse = (): never => {
    throw new ArgumentError(`x[${i}]: brackets index no tensor: read x.at(${i}), write x.at(${i}).assign(values)`);
  };
  Object.defineProperty(Tensor.prototype, String(i), { get: refuse, set: refuse, configurable: true });
}

Tensor.from = tensor;
Tensor.prototype.at = function (...indices: Index[]) {
  return at(this, ...indices);
};
Tensor.prototype.maskedSelect = function (mask: Tensor) {
  return maskedSelect(this, mask);
};
Tensor.prototype.nonzero = function () {
  return nonzero(this);
};
Tensor.prototype.randLike = function (options?: LikeOptions) {
  return randLike(this, options);
};
Tensor.prototype.randnLike = function (options?: LikeOptions) {
  return randnLike(this, options);
};
Tensor.prototype.bernoulli = function (options?: DrawOptions) {
  return bernoulli(this, options);
};
Tensor.prototype.multinomial = function (count: number, options?: MultinomialOptions) {
  return multinomial(this, count, options);
};
/** Columns that a library may give with either sign, as they are on the host. */
function oriented(row: KernelRow, made: Tensor[]): Tensor[] {
  const columns = row.custom?.columns;
  if (!columns) return made;
  const first = made[columns[0]].detach();
  const signs = first.gather(-2, first.abs().argmax(first.rank - 2, true)).sign();
  return made.map((t, i) => (columns.includes(i) ? t.mul(signs) : t));
}
Tensor.prototype.onHost = function (row: KernelRow, inputs: readonly Tensor[], params: Params = {}) {
  const home = this.device;
  const { backend } = home;
  const { shape, size } = inputs[0];
  const way = backend.factors?.(row.name, shape[shape.length - 2], shape[shape.length - 1], inputs[0].dtype);
  if (way === 'itself' && size > 0) return apply(row as GradRow, inputs, params);
  if (!backend.factors && backend.supports(row, this.dtype) === true) return apply(row as GradRow, inputs, params);
  if (way === 'by library') {
    if (row.custom?.columns && inputs.some((t) => t.detach().isFinite().all().item() === 0))
      throw new ArgumentError(`${row.name}: the matrix holds NaN or infinities`);
    return oriented(row, apply(row as GradRow, inputs, params));
  }
  const there = inputs.map((t) => t.to(Device.cpu()));
  return apply(row as GradRow, there, params).map((t) => t.to(home));
};
Tensor.prototype.newTensor = function (data: NestedInput, options: { readonly dtype?: DType } = {}) {
  return tensor(data, { device: this.device, dtype: options.dtype ?? this.dtype });
};
Tensor.prototype.equal = function (other: Tensor) {
  if (!(other instanceof Tensor)) throw new ArgumentError(`equal: compares with a tensor, not ${kindOf(other)}`);
  if (this.dtype !== other.dtype || !sameShape(this.shape, other.shape)) return false;
  return this.size === 0 || this.eq(other).all().item() === 1;
};
Tensor.prototype.allclose = function (other: Tensor, options?: CloseOptions) {
  if (!(other instanceof Tensor)) throw new ArgumentError(`allclose: compares with a tensor, not ${kindOf(other)}`);
  if (this.size === 0 && other.size === 0) return true;
  return this.isClose(other, options).all().item() === 1;
};

connect({
  display,
  assignInto: (dst: Tensor, src: Tensor): void => {
    requireView(dst);
    copyInto(dst, src);
  },
  held: (t: Tensor): void => stepRecording()?.held(t),
  moveTo: (t: Tensor, to: Device | string): Tensor => {
    const device = Device.of(to);
    return device === t.device ? t : transfer(t, device);
  },
});
answerOtherNames(opList.map((row) => row.name));
