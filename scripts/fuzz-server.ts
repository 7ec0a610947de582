// `node dist/scripts/fuzz-server.js [--requests 100000] [--seed 1] [--json FILE]`: requests that nobody would send, a
// thousand for each seed from the first on; the first answer with a status that does not fit ends it.
import { parseArgs } from 'node:util';
import { fuzz, fuzzedServer } from '../test/server-fuzzing.js';
import { record } from './proof-record.js';

const { values: v } = parseArgs({
  options: {
    requests: { type: 'string', default: '100000' },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
});
const requests = Number(v.requests);
const s = await fuzzedServer();
const begin = performance.now();
const statuses: Record<string, number> = {};
for (let sent = 0, seed = Number(v.seed); sent < requests; sent += 1000, seed++) {
  const counts = await fuzz(s.server.url, Math.min(1000, requests - sent), seed);
  for (const [status, n] of counts) statuses[status] = (statuses[status] ?? 0) + n;
  if (sent % 10_000 === 9000) console.error(`${sent + 1000} requests: ${JSON.stringify(statuses)}`);
}
const healthy = (await fetch(`${s.server.url}/health`)).status === 200;
const report = { requests, seconds: Math.round((performance.now() - begin) / 1000), statuses, healthy };
await s.server.close(0);
record(report, v.json);
process.exitCode = healthy && s.engine.running === 0 ? 0 : 1;
