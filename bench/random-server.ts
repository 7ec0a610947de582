// A server for bench/serve.js to load: a model of a well-known shape with random weights behind the ordinary APIs.
// node dist/bench/random-server.js --shape llama-3-8b --device cuda:0 --port 8080
// --device idle is a GPU that computes nothing: how many tokens a second the host alone could serve.
import { parseArgs } from 'node:util';
import { ThreadedEngine } from '../src/engine/threaded-engine.js';
import { serve, silentLog } from '../src/server/index.js';
import type { RandomEngine } from './random-engine.js';
import { SHAPES, wordTokenizer } from './random-model.js';

const { values: v } = parseArgs({
  options: {
    shape: { type: 'string', default: 'llama-3-8b' },
    device: { type: 'string', default: 'cpu' },
    port: { type: 'string', default: '8080' },
    'max-running': { type: 'string', default: '256' },
    /** Tokens of a step. */
    'step-tokens': { type: 'string' },
    /** Its texts repeat: bench/serve.js --copying asks for such. */
    copying: { type: 'boolean', default: false },
    /** Where the steps' time went is written to stderr whenever all requests are answered. */
    breakdown: { type: 'boolean', default: false },
  },
});
const engine = await ThreadedEngine.start<string>({
  module: new URL('./random-engine.js', import.meta.url),
  tokenizer: wordTokenizer(SHAPES[v.shape].vocabSize),
  data: {
    ...{ shape: v.shape, device: v.device, maxRunning: Number(v['max-running']) },
    ...{ stepTokens: v['step-tokens'] === undefined ? undefined : Number(v['step-tokens']) },
    ...{ copying: v.copying, breakdown: v.breakdown },
  } satisfies RandomEngine,
});
const { url, close } = await serve({ engine }, { port: Number(v.port), keys: [], log: silentLog });
console.log(`${v.shape} on ${engine.told} at ${url}`);
const end = (): void => void close().then(() => engine.dispose());
process.once('SIGTERM', end);
process.once('SIGINT', end);
