// The engine of a server: in a thread of its own, so that sockets and texts take no time from it.
import { modelPath } from '../hub/index.js';
import { ThreadedEngine } from '../engine/threaded-engine.js';
import { loadTokenizer } from '../tokenizers/index.js';
import { shortName } from './open-engine.js';
import { modelOf, terminalBar } from './open-model.js';
import type { ServedEngine, ServedFacts } from './serve-thread.js';

/** Tokens of contexts that have room for long texts: the thread that reads these is there before the first one. */
const LONG = 4096;

/** Starts the thread. Its model comes from a path that this one has found, and takes the tokenizer from, too. */
export async function startEngine(
  { name, ...wanted }: Omit<ServedEngine, 'name'> & { readonly name?: string | undefined },
  onBroken: (error: Error) => void,
): Promise<ThreadedEngine<ServedFacts>> {
  const { command, values } = wanted;
  const bar = terminalBar();
  const model = await modelPath(modelOf(command, values), {
    onDownload: ({ file, done, total }) => bar?.show(done, total, `fetching ${file}`),
  });
  const data: ServedEngine = { ...wanted, values: { ...values, model }, name: name ?? shortName(values.model) };
  const tokenizer = loadTokenizer(model);
  const started = ThreadedEngine.start<ServedFacts>({
    module: new URL('./serve-thread.js', import.meta.url),
    data,
    tokenizer,
    onProgress: (...how) => bar?.show(...how),
    onBroken,
  });
  const engine = await started.finally(() => bar?.end());
  if (engine.limits.contextTokens > LONG) tokenizer.prepare();
  return engine;
}
