// One error base class with stable codes; every message names the op, what it got and the rule.
import { env } from './environment.js';

/** Codes of errors; they stay as they are from release to release. */
export const ERROR_CODES = [
  'E_SHAPE',
  'E_DTYPE',
  'E_INDEX',
  'E_ARGUMENT',
  'E_DEVICE',
  'E_UNSUPPORTED',
  'E_DISPOSED',
  'E_MEMORY',
  'E_FORMAT',
  'E_GRAD',
  'E_DRIVER',
  'E_COMPILE',
  'E_NATIVE',
  'E_FILE',
  'E_BUSY',
  'E_DISTRIBUTED',
] as const;
/** One of ERROR_CODES. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/** Where wick's own code lies: as it runs, and as source maps name it. */
const HOMES = (() => {
  const here = new URL('..', import.meta.url).href;
  const homes = [here, here.replace(/dist\/(src|joined)\/$/, 'src/')];
  return homes.flatMap((h) => [h, decodeURIComponent(h.replace(/^file:\/\//, ''))]);
})();
const isOurs = (frame: string): boolean =>
  HOMES.some((home) => frame.includes(home)) || /node:internal\/|\(<anonymous>\)$/.test(frame);

/** A stack without the frames of wick above the caller's line; all of it where nobody else called, or it is wanted. */
function fromCaller(stack: string, depth: number): string {
  if (env('WICK_STACK') === 'full') return stack;
  const lines = stack.split('\n');
  const first = lines.findIndex((l) => l.startsWith('    at '));
  if (first < 0) return stack;
  const caller = lines.findIndex((l, i) => i >= first && !isOurs(l));
  const start = caller < 0 ? first : caller;
  return [...lines.slice(0, first), ...lines.slice(start, start + depth)].join('\n');
}
/** Deep enough for the frames of wick between a caller and what fails. */
const DEEPER = 40;

/** The lines of whoever called wick, for records of what was called where. */
export function callerFrames(depth = 4): string {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = limit + DEEPER;
  const { stack } = new Error();
  Error.stackTraceLimit = limit;
  return fromCaller(String(stack), depth).split('\n').slice(1).join('\n');
}

/** The base of all errors of wick: a stable code, and a stack that begins at the caller's line. */
export class WickError extends Error {
  /** The kind of error, stable over releases. */
  readonly code: ErrorCode;
  /** Used by the classes below. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = limit + DEEPER;
    super(message, options);
    Error.stackTraceLimit = limit;
    this.code = code;
    this.name = new.target.name;
    // Like Node's own errors: the code stands in the stack's first line, not in the message.
    if (typeof this.stack === 'string')
      this.stack = fromCaller(this.stack, limit).replace(/^\w+/, `${this.name} [${code}]`);
  }
  /** Name, code and message. */
  override toString(): string {
    return `${this.name} [${this.code}]: ${this.message}`;
  }
  /** Not for users: names another op in front, the one that was called. */
  retitle(message: string): this {
    const before = this.message;
    if (typeof this.stack === 'string') this.stack = this.stack.replace(before, () => message);
    this.message = message;
    return this;
  }
}

/** Builds an error class for one code, so that each is one line below. */
function errorClass(code: ErrorCode): new (message: string, options?: ErrorOptions) => WickError {
  return class extends WickError {
    constructor(message: string, options?: ErrorOptions) {
      super(code, message, options);
    }
  };
}

/** Shapes that do not fit together or an op. */
export class ShapeError extends errorClass('E_SHAPE') {}
/** A dtype that an op does not take, or dtypes that differ. */
export class DTypeError extends errorClass('E_DTYPE') {}
/** An index outside its dimension. */
export class IndexError extends errorClass('E_INDEX') {}
/** An argument or option that is wrong or unknown. */
export class ArgumentError extends errorClass('E_ARGUMENT') {}
/** A device that is not there, or operands on different ones. */
export class DeviceError extends errorClass('E_DEVICE') {}
/** Something that is right but cannot be done here; the message says why. */
export class UnsupportedError extends errorClass('E_UNSUPPORTED') {}
/** A tensor that was used after dispose(). */
export class DisposedError extends errorClass('E_DISPOSED') {}
/** No memory left on the device. */
export class OutOfMemoryError extends errorClass('E_MEMORY') {}
/** A file or byte stream that is not what it claims; the message says where. */
export class FormatError extends errorClass('E_FORMAT') {}
/** A gradient that does not exist, or a graph that is gone. */
export class GradError extends errorClass('E_GRAD') {}
/** A failed call into a GPU driver or library: `hipMalloc(1073741824): hipErrorOutOfMemory (2)`. */
export class DriverError extends errorClass('E_DRIVER') {}
/** A kernel that does not compile; the message holds the compiler's log. */
export class CompileError extends errorClass('E_COMPILE') {}
/** The CPU engine cannot be built, loaded or used. */
export class NativeError extends errorClass('E_NATIVE') {}
/** A file that cannot be written: no such folder, no right, no room. */
export class FileError extends errorClass('E_FILE') {}
/** Ranks that work together do not: one is gone, late or calls something else. The message names the rank. */
export class DistributedError extends errorClass('E_DISTRIBUTED') {}
