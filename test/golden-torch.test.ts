// PyTorch's numbers: results and gradients of its own cases and of nearly every op of the table, held against every
// device under test.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import '../src/index.js';
import { Golden, goldenFolder, hasGolden } from '../src/parity/golden.js';
import { hasTorchCall, runTorchCase } from '../src/parity/torch.js';
import { noCounts, VERDICTS } from '../src/parity/verdict.js';
import { testDevices } from '../src/testing/devices.js';
import { attempt, warm } from '../src/testing/warm.js';
import type { Device } from '../src/tensor/device.js';

const dir = goldenFolder();
const present = dir !== undefined && hasGolden(dir, 'torch.json');
const golden = present ? new Golden(dir, 'torch', 'ops', 'breadth') : undefined;
const absent = present ? false : 'no golden folder here: set WICK_GOLDEN to one';

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const counts = noCounts();
  if (device && golden)
    before(
      () =>
        void warm(device, (dry) => {
          for (const c of golden.cases) if (hasTorchCall(c)) attempt(() => void runTorchCase(golden, c, dry));
        }),
    );
  for (const [op, cases] of golden?.byOp() ?? [['all', []]]) {
    const uncalled = golden && !hasTorchCall(cases[0]) ? `${op} is not in the table of calls` : undefined;
    test(`${op} on ${name}: ${cases.length} cases of PyTorch`, { skip: missing ?? (absent || uncalled) }, () => {
      const failures: string[] = [];
      for (const c of cases) {
        const r = runTorchCase(golden as Golden, c, device as Device);
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
  const uncalled = golden?.cases.filter((c) => !hasTorchCall(c)) ?? [];
  after(() => {
    if (missing || !golden) return;
    const left = uncalled.length
      ? `; ${uncalled.length} not in the table of calls: ${[...new Set(uncalled.map((c) => c.op))].join(', ')}`
      : '';
    console.log(`torch on ${name}: ${VERDICTS.map((v) => `${counts[v]} ${v}`).join(', ')}${left}`);
  });
}
