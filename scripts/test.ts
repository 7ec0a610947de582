// `npm test`: runs the test files, all or those named, with flags turned into what the tests read.
//   npm test -- matrix gradients       only these files
//   npm test -- --case exp/f32/        only these cases of the matrix
//   npm test -- --devices cpu,sim:64   on these devices
//   npm test -- --golden DIR           golden numbers from another folder
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { openChosen } from '../src/backends/cpu.js';
import { WickError } from '../src/base/errors.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    case: { type: 'string' },
    devices: { type: 'string' },
    golden: { type: 'string' },
    jobs: { type: 'string', default: '2' },
  },
});
const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'test');
const wanted = (f: string): boolean => positionals.length === 0 || positionals.some((p) => f.startsWith(p));
const files = readdirSync(folder)
  .filter((f) => f.endsWith('.test.js') && wanted(f))
  .sort();
if (files.length === 0) {
  console.error(`no test file begins with ${positionals.join(' or ')}`);
  process.exit(2);
}
// Tests on 'cpu' speak of the engine: on what would serve a user in its place they would pass, slowly, and show
// nothing.
try {
  openChosen();
} catch (e) {
  if (!(e instanceof WickError)) throw e;
  console.error(`${e.message}\nNo test ran. WICK_CPU_ISA=reference runs them on the slow reference engine.`);
  process.exit(2);
}
const env: NodeJS.ProcessEnv = {
  ...process.env,
  ...(values.case !== undefined && { WICK_CASE: values.case }),
  ...(values.devices !== undefined && { WICK_TEST_DEVICES: values.devices }),
  ...(values.golden !== undefined && { WICK_GOLDEN: values.golden }),
};
// Node's own report as it would be, and beside it the counts that are printed last.
const scratch = mkdtempSync(join(tmpdir(), 'wick-test-'));
const counts = join(scratch, 'summary');
const usual = process.stdout.isTTY || Number(process.versions.node.split('.')[0]) >= 23 ? 'spec' : 'tap';
const reporters = [
  [usual, 'stdout'],
  [join(folder, '..', 'scripts', 'test-summary.js'), counts],
].flatMap(([reporter, to]) => [`--test-reporter=${reporter}`, `--test-reporter-destination=${to}`]);
const run = spawnSync(
  process.execPath,
  ['--test', `--test-concurrency=${values.jobs}`, ...reporters, ...files.map((f) => join(folder, f))],
  { stdio: 'inherit', env },
);
try {
  process.stdout.write(readFileSync(counts, 'utf8'));
} catch {
  console.error('the tests ended before they could be counted');
}
rmSync(scratch, { recursive: true, force: true });
process.exit(run.status ?? 1);
