// Candle's own numbers: 806 cases run by Candle's CUDA kernels, held against every device under test.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import '../src/index.js';
import { runCandleCase } from '../src/parity/candle.js';
import { Golden, goldenFolder, hasGolden } from '../src/parity/golden.js';
import { noCounts, VERDICTS } from '../src/parity/verdict.js';
import { testDevices } from '../src/testing/devices.js';
import { attempt, warm } from '../src/testing/warm.js';
import type { Device } from '../src/tensor/device.js';

const dir = goldenFolder();
const present = dir !== undefined && hasGolden(dir, 'candle-cuda.json');
const golden = present ? new Golden(dir, 'candle-cuda') : undefined;
const absent = present ? false : 'no golden folder here: set WICK_GOLDEN to one';

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const counts = noCounts();
  if (device && golden)
    before(
      () =>
        void warm(device, (dry) => {
          for (const c of golden.cases) attempt(() => void runCandleCase(golden, c, dry));
        }),
    );
  for (const [op, cases] of golden?.byOp() ?? [['all', []]]) {
    test(`${op} on ${name}: ${cases.length} cases of Candle`, { skip: missing ?? absent }, () => {
      const failures: string[] = [];
      for (const c of cases) {
        const r = runCandleCase(golden as Golden, c, device as Device);
        counts[r.verdict]++;
        if (r.verdict === 'failed') failures.push(`${r.name}: ${r.why}`);
      }
      assert.equal(
        failures.length,
        0,
        `${failures.length} of ${cases.length} failed:\n  ${failures.slice(0, 12).join('\n  ')}`,
      );
    });
  }
  after(() => {
    if (!missing && golden) console.log(`candle on ${name}: ${VERDICTS.map((v) => `${counts[v]} ${v}`).join(', ')}`);
  });
}
