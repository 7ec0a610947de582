// `node dist/scripts/soak-server.js [--seconds 60] [--streams 50] [--model NAME] [--json FILE]`: many streams at once,
// some of which are
// left at random; every byte must be what the same request gets alone, and pages and memory must come back.
import { parseArgs } from 'node:util';
import { startEngine } from '../src/cli/served-engine.js';
import { soak } from '../test/server-soak.js';
import { record } from './proof-record.js';
import { serve } from '../src/server/index.js';

const { values: v } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    streams: { type: 'string', default: '50' },
    model: { type: 'string' },
    device: { type: 'string' },
    json: { type: 'string' },
  },
});
const { model, device } = v;
const engine = await startEngine({ command: 'soak', values: { model, device } }, (e) => console.error(e.message));
const server = await serve({ engine }, { port: 0 });
const report = await soak(server.url, engine, {
  seconds: Number(v.seconds),
  streams: Number(v.streams),
  onProgress: (line) => console.error(line),
});
await server.close(5);
await engine.dispose();
record({ streams: Number(v.streams), ...report }, v.json);
process.exitCode = report.wrong.length > 0 || report.pagesUsed !== report.pagesUsedBefore ? 1 : 0;
