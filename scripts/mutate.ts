// `npm run mutate`: breaks kernels on purpose, one change at a time, and asks the suite on the simulation to notice.
//   npm run mutate -- --only reduce     only mutants whose name holds this
//   npm run mutate -- --per-rule 3      more places a rule and file (default 1)
//   npm run mutate -- --jobs 16         mutants under way at once (default: the cores)
//   npm run mutate -- --json FILE       where the result goes (default docs/mutation.json; with --only nowhere)
//   npm run mutate -- --list            names only
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import '../src/index.js';
import { packageRoot } from '../src/kernels/source.js';
import { goldenFolder } from '../src/parity/golden.js';
import { commitNow, sourcesNow } from '../src/parity/provenance.js';
import { allMutants, EQUIVALENT, type Mutant, unguarded } from './mutants.js';

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' }, 'per-rule': { type: 'string', default: '1' }, list: { type: 'boolean' },
    jobs: { type: 'string', default: String(availableParallelism()) }, json: { type: 'string' },
  },
});
const mutants = allMutants(Number(values['per-rule'])).filter((m) => m.name.includes(values.only as string));
if (values.list) {
  for (const m of mutants) console.log(m.name);
  console.log(`${mutants.length} mutants`);
  process.exit(0);
}

/** A mutant that hangs is noticed by the clock. */
const LIMIT_MS = 240_000;
const work = mkdtempSync(join(tmpdir(), 'wick-mutate-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(130));
const env = { ...process.env, WICK_CACHE_DIR: join(work, 'cache'), WICK_GOLDEN: goldenFolder(), WICK_TEST_DEVICES: 'sim:32' };

/** A copy of what runs, so that several mutants live side by side; what they do not change is compiled once for all. */
function makeBox(name: string): string {
  const box = join(work, name);
  mkdirSync(box);
  for (const part of ['dist', 'kernels', 'native']) cpSync(join(packageRoot, part), join(box, part), { recursive: true, dereference: true, filter: (f) => !f.endsWith('.map') });
  for (const part of ['node_modules', 'package.json', 'test']) if (existsSync(join(packageRoot, part))) symlinkSync(join(packageRoot, part), join(box, part));
  return box;
}
const run = (box: string, args: readonly string[]): Promise<boolean> => new Promise((done) => {
  const child = spawn(process.execPath, [join(box, args[0]), ...args.slice(1)], { cwd: box, env, stdio: 'ignore', timeout: LIMIT_MS, killSignal: 'SIGKILL' });
  child.on('exit', (code) => done(code === 0));
});

/** Who is asked whether something is wrong, the cheapest first. */
interface Stage {
  readonly name: string;
  readonly args: readonly string[];
}
function stagesOf(m: Mutant): Stage[] {
  const parity = (what: string, dtypes: readonly string[]): Stage => ({
    name: `${m.ops.join(', ')} in ${what}`,
    args: ['dist/src/cli/main.js', 'parity', '--jobs', '1', '--bail', '--device', 'sim:32', '--device', 'sim:64', '--against', 'reference,candle', ...dtypes.flatMap((d) => ['--dtype', d]), ...m.ops.flatMap((o) => ['--op', o])],
  });
  return [
    ...(m.ops.length > 0 ? [parity('f32', ['f32']), parity('every dtype', [])] : []),
    ...m.tests.map((t) => ({ name: `${t}.test`, args: [`dist/test/${t}.test.js`] })),
  ];
}
const intact = makeBox('intact');
const sound = new Map<string, Promise<boolean>>();
/** A suite that fails on sound kernels proves nothing about broken ones. */
function passesIntact(stage: Stage): Promise<boolean> {
  const known = sound.get(stage.name) ?? run(intact, stage.args);
  sound.set(stage.name, known);
  return known;
}

function put(m: Mutant, box: string): () => void {
  const path = join(box, m.file ? `kernels/${m.file}` : 'dist/src/ops/table.js');
  const before = readFileSync(path, 'utf8');
  // The reference keeps its own formula: only what devices compile is changed.
  writeFileSync(path, m.file ? m.text : `${before}\nObject.assign(OPS.${m.ops[0]}, { gpu: ${JSON.stringify(m.text)} });\n`);
  return () => writeFileSync(path, before);
}

interface Outcome {
  readonly name: string;
  readonly killed: boolean;
  /** What noticed. */
  readonly by?: string;
  /** Why nothing can, or why it was not judged. */
  readonly reason?: string;
}
async function judge(m: Mutant, box: string): Promise<Outcome> {
  const undo = put(m, box);
  try {
    for (const stage of stagesOf(m)) {
      if (await run(box, stage.args)) continue;
      if (await passesIntact(stage)) return { name: m.name, killed: true, by: stage.name };
      return { name: m.name, killed: false, reason: `not judged: ${stage.name} fails without any change` };
    }
  } finally {
    undo();
  }
  const reason = EQUIVALENT[m.name.replace(/:\d+/, '')];
  return { name: m.name, killed: false, ...(reason && { reason }) };
}

const started = Date.now();
const queue = mutants.map((m, i) => [m, i] as const);
const outcomes = new Array<Outcome>(mutants.length);
let done = 0;
await Promise.all(Array.from({ length: Math.min(Number(values.jobs), mutants.length) }, async (_, job) => {
  const box = makeBox(`job-${job}`);
  for (let next = queue.shift(); next; next = queue.shift()) {
    const o = (outcomes[next[1]] = await judge(next[0], box));
    console.log(`${String(++done).padStart(3)}/${mutants.length} ${o.killed ? 'killed  ' : 'SURVIVED'} ${o.name}${o.by ? ` (${o.by})` : o.reason ? ` (${o.reason})` : ''}`);
  }
}));
const killed = outcomes.filter((o) => o.killed).length;
const open = outcomes.filter((o) => !o.killed && !o.reason).length;
console.log(`\n${killed} of ${outcomes.length} mutants killed, ${outcomes.length - killed - open} survive with a reason, ${open} without`);
const file = values.json ?? (values.only ? undefined : join(packageRoot, 'docs/mutation.json'));
if (file) {
  const head = { commit: commitNow(), date: new Date().toISOString(), host: `${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores`, seconds: Math.round((Date.now() - started) / 1000), modules: sourcesNow().modules, killed, total: outcomes.length };
  writeFileSync(resolve(file), `${JSON.stringify({ ...head, results: [] }, null, 1).slice(0, -4)}[\n${outcomes.map((o) => `  ${JSON.stringify(o)}`).join(',\n')}\n ]\n}\n`);
}
for (const f of unguarded()) console.log(`nobody speaks for kernels/${f}: scripts/mutants.ts lists who does`);
process.exitCode = open + unguarded().length > 0 ? 1 : 0;
