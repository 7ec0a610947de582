// Errors on their way between threads: their class is told by their code, for who looks at it.
import * as errors from './errors.js';

/** An error as it is sent. */
export interface SentError {
  readonly message: string;
  readonly stack: string | undefined;
  readonly code?: errors.ErrorCode;
}
const CLASSES: { readonly [K in errors.ErrorCode]?: new (message: string) => errors.WickError } = {
  ...{ E_SHAPE: errors.ShapeError, E_DTYPE: errors.DTypeError, E_INDEX: errors.IndexError },
  ...{ E_ARGUMENT: errors.ArgumentError, E_DEVICE: errors.DeviceError, E_UNSUPPORTED: errors.UnsupportedError },
  ...{ E_DISPOSED: errors.DisposedError, E_MEMORY: errors.OutOfMemoryError, E_FORMAT: errors.FormatError },
  ...{ E_GRAD: errors.GradError, E_DRIVER: errors.DriverError, E_COMPILE: errors.CompileError },
  ...{ E_NATIVE: errors.NativeError, E_FILE: errors.FileError, E_DISTRIBUTED: errors.DistributedError },
};

export function sendError(error: unknown): SentError {
  if (!(error instanceof Error)) return { message: String(error), stack: undefined };
  const { message, stack } = error;
  return { message, stack, ...(error instanceof errors.WickError && { code: error.code }) };
}
export function receiveError({ message, stack, code }: SentError): Error {
  const Known = code && CLASSES[code];
  const error = Known ? new Known(message) : code ? new errors.WickError(code, message) : new Error(message);
  if (stack !== undefined) error.stack = stack;
  return error;
}
