// `npm run mutate`: breaks kernels on purpose, one change at a time, and asks the suite on the simulation to notice.
//   npm run mutate -- --only reduce     only mutants whose name holds this
//   npm run mutate -- --per-rule 3      more places a rule and file (default 1)
//   npm run mutate -- --list            names only
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import '../src/index.js';
import { packageRoot } from '../src/kernels/source.js';
import { commitNow } from '../src/parity/provenance.js';
import { allMutants, type Mutant } from './mutants.js';

const { values } = parseArgs({ options: { only: { type: 'string', default: '' }, 'per-rule': { type: 'string', default: '1' }, list: { type: 'boolean' }, save: { type: 'string', default: 'docs/mutation.json' } } });
/** Survivors that no result can tell apart, by name, with the reason. */
const EQUIVALENT = JSON.parse(readFileSync(join(packageRoot, 'scripts', 'mutants-equivalent.json'), 'utf8')) as Record<string, string>;

const mutants = allMutants(Number(values['per-rule'])).filter((m) => m.name.includes(values.only as string));
if (values.list) {
  for (const m of mutants) console.log(m.name);
  console.log(`${mutants.length} mutants`);
  process.exit(0);
}

const box = mkdtempSync(join(tmpdir(), 'wick-mutate-'));
process.on('exit', () => rmSync(box, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(130));
for (const part of ['dist', 'kernels', 'native']) cpSync(join(packageRoot, part), join(box, part), { recursive: true, dereference: true });
for (const part of ['node_modules', 'package.json', 'test']) symlinkSync(join(packageRoot, part), join(box, part));

const env = { ...process.env, WICK_CACHE_DIR: join(box, 'cache'), WICK_TEST_DEVICES: 'sim:32' };
const run = (args: readonly string[]): boolean => spawnSync(process.execPath, args, { cwd: box, env, stdio: 'ignore', timeout: 240_000 }).status === 0;
const parity = (device: string, ops: readonly string[]): boolean =>
  run([join(box, 'dist/src/cli/main.js'), 'parity', '--device', device, '--dtype', 'f32', '--against', 'reference', '--against', 'candle', ...ops.flatMap((o) => ['--op', o])]);
/** What noticed, or undefined. The cheapest witness is asked first. */
function witness(ops: readonly string[], tests: readonly string[]): string | undefined {
  if (ops.length > 0) for (const device of ['sim:32', 'sim:64']) if (!parity(device, ops)) return `${ops.join(', ')} on ${device}`;
  return tests.find((t) => !run(['--test', join(box, `dist/test/${t}.test.js`)]));
}

/** Puts a mutant in place and gives back how to undo it. */
function apply(m: Mutant): () => void {
  if (m.file) {
    const path = join(box, 'kernels', m.file);
    const before = readFileSync(path, 'utf8');
    writeFileSync(path, m.text);
    return () => writeFileSync(path, before);
  }
  // The reference keeps its own formula: only what devices compile is changed.
  const path = join(box, 'dist/src/ops/table.js');
  const before = readFileSync(path, 'utf8');
  writeFileSync(path, `${before}\nObject.assign(OPS.${m.ops[0]}, { gpu: ${JSON.stringify(m.text)} });\n`);
  return () => writeFileSync(path, before);
}

// A suite that fails on sound kernels proves nothing about broken ones.
const sound = new Map<string, string | undefined>();
const results: { name: string; killed: boolean; by?: string; reason?: string }[] = [];
for (const [i, m] of mutants.entries()) {
  const guard = `${m.ops.join()}|${m.tests.join()}`;
  if (!sound.has(guard)) sound.set(guard, witness(m.ops, m.tests));
  const already = sound.get(guard);
  if (already) {
    results.push({ name: m.name, killed: false, reason: `not judged: ${already} fails without any change` });
  } else {
    const undo = apply(m);
    const by = witness(m.ops, m.tests);
    undo();
    const reason = by ? undefined : EQUIVALENT[m.name.replace(/:\d+/, '')];
    results.push({ name: m.name, killed: by !== undefined, ...(by && { by }), ...(reason && { reason }) });
  }
  const r = results[i];
  console.log(`${String(i + 1).padStart(3)}/${mutants.length} ${r.killed ? 'killed  ' : 'SURVIVED'} ${r.name}${r.by ? ` (${r.by})` : r.reason ? ` (${r.reason})` : ''}`);
}
const killed = results.filter((r) => r.killed).length;
const open = results.filter((r) => !r.killed && !r.reason).length;
console.log(`\n${killed} of ${results.length} mutants killed, ${results.length - killed - open} survive with a reason, ${open} without`);
if (!values.only) writeFileSync(join(packageRoot, values.save as string), `${JSON.stringify({ commit: commitNow(), date: new Date().toISOString(), killed, total: results.length, results }, null, 1)}\n`);
process.exitCode = open > 0 ? 1 : 0;
