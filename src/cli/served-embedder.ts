// A server's embedding model: in a thread of its own, so that a large batch holds up nobody else.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { NativeError } from '../base/errors.js';
import { receiveError } from '../base/sent-error.js';
import { modelPath } from '../hub/index.js';
import { readText } from '../io/byte-source.js';
import type { Embedder } from '../server/index.js';
import { loadTokenizer } from '../tokenizers/index.js';
import type { EmbedderNews, EmbedderOrder, WantedEmbedder } from './embedder-thread.js';

const MAX_LIST = 2 ** 20;
/** Where a model's tokenizer lies: older folders of sentence-transformers have it in that of their first module. */
function tokenizerHome(path: string): string {
  const list = join(path, 'modules.json');
  if (path.endsWith('.gguf') || !existsSync(list)) return path;
  const [first] = JSON.parse(readText(list, MAX_LIST)) as { readonly path?: string }[];
  return join(path, first?.path ?? '');
}

type Waiting = { readonly resolve: (vectors: Float32Array[]) => void; readonly reject: (error: Error) => void };

/** Starts the thread, and waits until its model is there. */
export async function startEmbedder(
  name: string,
  device: string | undefined,
): Promise<Embedder & { dispose(): Promise<void> }> {
  const path = await modelPath(name, {});
  const data: WantedEmbedder = { path, device };
  const worker = new Worker(new URL('./embedder-thread.js', import.meta.url), {
    workerData: data,
    name: 'wick: vectors',
  });
  /** Who waits for vectors, in the order of asking, which is that of answers. */
  const waiting: Waiting[] = [];
  let broken: Error | undefined;
  const end = (error: Error): void => {
    broken ??= error;
    for (const { reject } of waiting.splice(0)) reject(broken);
  };
  try {
    const maxTokens = await new Promise<number>((resolve, reject) => {
      worker.on('message', (news: EmbedderNews) => {
        if ('ready' in news) resolve(news.ready.maxTokens);
        else if ('vectors' in news) waiting.shift()?.resolve([...news.vectors]);
        else (waiting.shift() ?? { reject }).reject(receiveError(news.error));
      });
      worker.on('error', (error) => {
        end(error as Error);
        reject(error);
      });
      worker.on('exit', () => end(new NativeError('embeddings: the thread of the model has ended')));
    });
    return {
      tokenizer: loadTokenizer(tokenizerHome(path)),
      maxTokens,
      embed: (texts) =>
        new Promise((resolve, reject) => {
          if (broken) return reject(broken);
          waiting.push({ resolve, reject });
          worker.postMessage({ texts } satisfies EmbedderOrder);
        }),
      dispose: async () => void (await worker.terminate()),
    };
  } catch (error) {
    await worker.terminate();
    throw error;
  }
}
