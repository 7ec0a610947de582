// The thread of `wick serve` that makes vectors: whole batches would hold up every socket. src/cli/served-embedder.ts
// asks it.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { sendError, type SentError } from '../base/sent-error.js';
import { EmbeddingModel } from '../models/index.js';

/** What it is to open. */
export interface WantedEmbedder {
  readonly path: string;
  readonly device?: string | undefined;
}
/** To the thread; it answers in this order. */
export type EmbedderOrder = { readonly texts: readonly string[] };
/** From it. */
export type EmbedderNews =
  | { readonly ready: { readonly maxTokens: number } }
  | { readonly vectors: readonly Float32Array<ArrayBuffer>[] }
  | { readonly error: SentError };

const port = parentPort as MessagePort;
const send = (news: EmbedderNews, move: ArrayBuffer[] = []): void => port.postMessage(news, move);
try {
  const { path, device } = workerData as WantedEmbedder;
  const model = await EmbeddingModel.load(path, device === undefined ? {} : { device });
  send({ ready: { maxTokens: model.maxTokens } });
  let last = Promise.resolve();
  port.on('message', ({ texts }: EmbedderOrder) => {
    last = last.then(async () => {
      try {
        const vectors = (await model.embed(texts)).map((v) => Float32Array.from(v));
        send(
          { vectors },
          vectors.map((v) => v.buffer),
        );
      } catch (error) {
        send({ error: sendError(error) });
      }
    });
  });
} catch (error) {
  send({ error: sendError(error) });
  port.close();
}
