// What went wrong as clients of the API read it: a status, and a body in the dialect they speak.
import { ArgumentError, FormatError, IndexError, OutOfMemoryError, UnsupportedError } from '../base/errors.js';
import { ContextError, QueueFullError } from '../engine/request.js';

export interface ApiErrorDetails {
  readonly type?: string;
  readonly code?: string;
  /** The field of the request that is at fault. */
  readonly param?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** What went wrong as clients read it. */
export class ApiError extends Error {
  /** The status of the answer: 400, 401, 429, ... */
  readonly status: number;
  /** OpenAI's type: 'invalid_request_error'. */
  readonly type: string;
  /** A word for programs: 'context_length_exceeded'; null where there is none. */
  readonly code: string | null;
  /** The field of the request that is at fault; null where none is. */
  readonly param: string | null;
  /** Headers that the answer gets: retry-after. */
  readonly headers: Readonly<Record<string, string>>;
  constructor(status: number, message: string, details: ApiErrorDetails = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.type = details.type ?? TYPES[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error');
    this.code = details.code ?? null;
    this.param = details.param ?? null;
    this.headers = details.headers ?? {};
  }
}
const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

/** A request that can never be answered as it stands. */
export const badRequest = (message: string, param?: string, code?: string): ApiError =>
  new ApiError(400, message, { ...(param && { param }), ...(code && { code }) });

/** An answer that takes longer than it may. */
export const tookTooLong = (seconds: number): ApiError =>
  new ApiError(504, `the answer took longer than ${seconds} seconds`, {
    code: 'timeout',
    headers: { 'x-should-retry': 'false' },
  });

/** Any error as one of the API's. What is no fault of the request shows no detail: the log has it. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof QueueFullError)
    return new ApiError(429, error.message, {
      code: 'queue_full',
      headers: { 'retry-after': String(Math.max(1, Math.ceil(error.retryAfterSeconds))) },
    });
  if (error instanceof ContextError) return badRequest(error.message, undefined, 'context_length_exceeded');
  if (error instanceof UnsupportedError) return badRequest(error.message, undefined, 'unsupported');
  if (error instanceof ArgumentError || error instanceof IndexError || error instanceof FormatError)
    return badRequest(error.message);
  if (error instanceof OutOfMemoryError)
    return new ApiError(503, 'the device has no memory left for this request', { code: 'out_of_memory' });
  return new ApiError(500, 'an error inside the server; its log tells more under this request id', {
    code: 'internal_error',
  });
}

/** OpenAI's body of an error. */
export const openaiError = (e: ApiError): object => ({
  error: { message: e.message, type: e.type, param: e.param, code: e.code },
});

/** Whether a request comes from a client of Anthropic's API: all of them send this. */
export const isAnthropic = (c: { readonly req: { header(name: string): string | undefined } }): boolean =>
  c.req.header('anthropic-version') !== undefined;

const ANTHROPIC: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};
/** Anthropic's body of an error. */
export const anthropicError = (e: ApiError, requestId?: string): object => ({
  type: 'error',
  error: {
    type: ANTHROPIC[e.status] ?? (e.status >= 500 ? 'api_error' : 'invalid_request_error'),
    message: e.message,
    ...(e.code !== null && { details: { error_code: e.code } }),
  },
  ...(requestId !== undefined && { request_id: requestId }),
});
