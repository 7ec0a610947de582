// One error base class with stable codes; every message names the op, what it got and the rule.

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
export type ErrorCode = (typeof ERROR_CODES)[number];

export class WickError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
    // Like Node's own errors: the code stands in the stack's first line, not in the message.
    this.stack = this.stack?.replace(/^\w+/, `${this.name} [${code}]`);
  }
  override toString(): string {
    return `${this.name} [${this.code}]: ${this.message}`;
  }
}

/** Builds an error class for one code, so that each is one line below. */
function errorClass(code: ErrorCode) {
  return class extends WickError {
    constructor(message: string, options?: ErrorOptions) {
      super(code, message, options);
    }
  };
}

export class ShapeError extends errorClass('E_SHAPE') {}
export class DTypeError extends errorClass('E_DTYPE') {}
export class IndexError extends errorClass('E_INDEX') {}
export class ArgumentError extends errorClass('E_ARGUMENT') {}
export class DeviceError extends errorClass('E_DEVICE') {}
export class UnsupportedError extends errorClass('E_UNSUPPORTED') {}
export class DisposedError extends errorClass('E_DISPOSED') {}
export class OutOfMemoryError extends errorClass('E_MEMORY') {}
/** A file or byte stream that is not what it claims; the message says where. */
export class FormatError extends errorClass('E_FORMAT') {}
export class GradError extends errorClass('E_GRAD') {}
/** A failed call into a GPU driver or library: `hipMalloc(1073741824): hipErrorOutOfMemory (2)`. */
export class DriverError extends errorClass('E_DRIVER') {}
export class CompileError extends errorClass('E_COMPILE') {}
export class NativeError extends errorClass('E_NATIVE') {}
/** A file that cannot be written: no such folder, no right, no room. */
export class FileError extends errorClass('E_FILE') {}
/** Ranks that work together do not: one is gone, late or calls something else. The message names the rank. */
export class DistributedError extends errorClass('E_DISTRIBUTED') {}
