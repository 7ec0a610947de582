// The thread behind src/tokenizers/encode-later.ts: a tokenizer of its own, made of the same files.
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { sendError } from '../base/sent-error.js';
import type { EncodeReply, EncodeTask } from './encode-options.js';
import { loadTokenizer } from './load.js';

const port = parentPort as MessagePort;
const tokenizer = loadTokenizer(workerData as string);
port.on('message', ({ text, options }: EncodeTask) => {
  try {
    const ids = Int32Array.from(tokenizer.encode(Buffer.from(text.buffer).toString(), options));
    port.postMessage({ ids } satisfies EncodeReply, [ids.buffer]);
  } catch (error) {
    port.postMessage({ error: sendError(error) } satisfies EncodeReply);
  }
});
