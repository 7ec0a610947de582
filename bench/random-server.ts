// A server for bench/serve.js to load: a model of a well-known shape with random weights behind the ordinary APIs.
// node dist/bench/random-server.js --shape llama-3-8b --device cuda:0 --port 8080
import { parseArgs } from 'node:util';
import { TextEngine } from '../src/engine/index.js';
import { Device } from '../src/index.js';
import { serve, silentLog } from '../src/server/index.js';
import { StepBreakdown } from './breakdown.js';
import { randomModel, wordTokenizer } from './random-model.js';

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
const device = Device.get(v.device);
const model = randomModel(v.shape, { device, copying: v.copying });
const breakdown = new StepBreakdown();
const engine = new TextEngine(model, wordTokenizer(model.config.vocabSize), {
  ...{ name: v.shape, maxRunning: Number(v['max-running']) },
  ...(v['step-tokens'] && { stepTokens: Number(v['step-tokens']) }),
  ...(v.breakdown && { onStep: breakdown.add }),
});
const { url, close } = await serve({ engine }, { port: Number(v.port), keys: [], log: silentLog });
if (v.breakdown) {
  let seen = 0;
  setInterval(() => {
    const { running, waiting, finished } = engine.status();
    if (running + waiting > 0 || finished === seen) return;
    console.error(`${finished - seen} requests\n${breakdown}`);
    seen = finished;
    breakdown.clear();
  }, 200).unref();
}
console.log(`${v.shape} on ${device.backend.description} at ${url}`);
process.once('SIGTERM', () => void close().then(() => process.exit(0)));
process.once('SIGINT', () => void close().then(() => process.exit(0)));
