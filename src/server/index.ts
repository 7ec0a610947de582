// wick/server: a language model behind the APIs of OpenAI and Anthropic.
export { createApp } from './app.js';
export { ApiError } from './errors.js';
export { DEFAULT_LIMITS, type Limits } from './limits.js';
export { type RunningServer, serve, type ServeOptions } from './listen.js';
export { jsonLog, type Log, silentLog } from './log.js';
export type { Embedder, ServedModels } from './served.js';
