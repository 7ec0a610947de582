// `npm run mutate`: breaks kernels and host code on purpose, one change at a time, and asks the suite to notice.
//   npm run mutate -- --only reduce     only mutants whose name holds this
//   npm run mutate -- --area io         only this area: kernels, host launch code, library glue, autograd, io, engine
//   npm run mutate -- --per-rule 3      more places a rule and file (default 1)
//   npm run mutate -- --most 20         at most so many of those chosen, spread over them
//   npm run mutate -- --jobs 16         mutants under way at once (default: the cores)
//   npm run mutate -- --json FILE       where results go as they come (default docs/mutation.json); those of unchanged
// functions are kept
//   npm run mutate -- --quick           asks the ops only; what they do not notice stays open for a run with the tests
//   npm run mutate -- --fresh           judges again what was judged before
//   npm run mutate -- --list            names only
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import '../src/index.js';
import { packageRoot } from '../src/base/paths.js';
import { type Mutation, readEvidence, readMutation } from '../src/parity/evidence.js';
import { goldenFolder } from '../src/parity/golden.js';
import { commitNow } from '../src/parity/provenance.js';
import { type Area, AREAS, type HostMutant, hostMutants } from './host-mutants.js';
import { allMutants, equivalence, type Mutant, unguarded } from './mutants.js';

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    area: { type: 'string' },
    'per-rule': { type: 'string', default: '1' },
    most: { type: 'string' },
    list: { type: 'boolean' },
    quick: { type: 'boolean' },
    fresh: { type: 'boolean' },
    jobs: { type: 'string', default: String(availableParallelism()) },
    json: { type: 'string', default: join(packageRoot, 'docs/mutation.json') },
  },
});
type AnyMutant = Mutant | HostMutant;
const isHost = (m: AnyMutant): m is HostMutant => 'questions' in m;
const areaOf = (m: AnyMutant): Area => (isHost(m) ? m.area : 'kernels');
const everyMutant: readonly AnyMutant[] = [
  ...allMutants(Number(values['per-rule'])),
  ...hostMutants(Number(values['per-rule'])),
];
const chosen = everyMutant.filter(
  (m) => m.name.includes(values.only as string) && (values.area === undefined || areaOf(m) === values.area),
);
const most = values.most === undefined ? chosen.length : Math.min(Number(values.most), chosen.length);
const mutants = Array.from({ length: most }, (_, i) => chosen[Math.floor((i * chosen.length) / most)]);
if (values.list) {
  for (const m of mutants) console.log(m.name);
  console.log(`${mutants.length} mutants`);
  process.exit(0);
}

/**
 * Seconds of the processor, not of the clock: a hang is noticed on a busy machine as on an idle one, and slowness is
 * not taken for one.
 */
const LIMIT_S = 90;
const work = mkdtempSync(join(tmpdir(), 'wick-mutate-'));
const live = new Set<ChildProcess>();
process.on('exit', () => {
  for (const c of live) c.kill('SIGKILL');
  rmSync(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
});
process.on('SIGINT', () => process.exit(130));
process.on('SIGTERM', () => process.exit(143));
const env = {
  ...process.env,
  WICK_CACHE_DIR: join(work, 'cache'),
  WICK_GOLDEN: goldenFolder(),
  WICK_TEST_DEVICES: 'sim:32',
};

/** A copy of what runs, so that several mutants live side by side; what they do not change is compiled once for all. */
function makeBox(name: string): string {
  const box = join(work, name);
  mkdirSync(box);
  for (const part of ['dist', 'kernels', 'native'])
    cpSync(join(packageRoot, part), join(box, part), {
      recursive: true,
      dereference: true,
      filter: (f) => !f.endsWith('.map'),
    });
  for (const part of ['node_modules', 'package.json', 'test', 'models', 'docs', 'scripts'])
    if (existsSync(join(packageRoot, part))) symlinkSync(join(packageRoot, part), join(box, part));
  return box;
}

/** Who is asked whether something is wrong, the cheapest first. */
interface Stage {
  readonly name: string;
  readonly args: readonly string[];
  readonly ops?: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
}
const run = (box: string, stage: Stage): Promise<boolean> =>
  new Promise((done) => {
    const child = spawn('bash', ['-c', `ulimit -t ${LIMIT_S}; exec "$0" "$@"`, process.execPath, ...stage.args], {
      cwd: box,
      env: { ...env, ...stage.env },
      stdio: 'ignore',
    });
    live.add(child);
    child.on('exit', (code) => {
      live.delete(child);
      done(code === 0);
    });
  });

/** Kernels stay as they are: what was compiled before serves. */
const questioned = (m: HostMutant): Stage[] =>
  m.questions.map(({ test, cases, devices, sample, module }) => ({
    name: [test, module && `of ${module}`, cases, devices && `on ${devices}`, sample && 'in part']
      .filter(Boolean)
      .join(' '),
    args: [`dist/test/${test}.test.js`],
    env: {
      WICK_CACHE_DIR: process.env.WICK_CACHE_DIR,
      WICK_TEST_DEVICES: devices,
      ...(cases !== undefined && { WICK_CASE: cases }),
      ...(sample !== undefined && { WICK_SAMPLE: String(sample) }),
      ...(module !== undefined && { WICK_MODULES: module }),
    },
  }));

function stagesOf(m: AnyMutant): Stage[] {
  if (isHost(m)) return questioned(m);
  const parity = (what: string, device: string, ...more: string[]): Stage => ({
    name: `${m.ops.join(', ')} in ${what} on ${device}`,
    ops: m.ops,
    args: [
      'dist/src/cli/main.js',
      'parity',
      '--jobs',
      '1',
      '--bail',
      '--device',
      device,
      '--against',
      'reference,candle',
      ...more,
      ...m.ops.flatMap((o) => ['--op', o]),
    ],
  });
  const one = (stage: Stage): Stage => ({ ...stage, env: { WICK_SIM_UNITS: 'one' } });
  const tests = m.tests.map((t): Stage => {
    const [file, pattern = file === 'kernels-structured-golden' ? `kernels/(${m.modules.join('|')})` : undefined] =
      t.split(': ') as [string, string?];
    return {
      name: `${t}.test of ${m.modules.join(', ')}`,
      args: [...(pattern ? [`--test-name-pattern=${pattern}`] : []), `dist/test/${file}.test.js`],
      env: { WICK_MODULES: m.modules.join() },
    };
  });
  const f32 = m.ops.length > 0 ? ['sim:32', 'sim:64'].map((d) => one(parity('f32', d, '--dtype', 'f32'))) : [];
  if (values.quick) return f32;
  return [...f32, ...tests, ...(m.ops.length > 0 ? [parity('every dtype', 'sim:32')] : [])];
}
/** Ops that committed evidence shows to pass on the simulation as it is. */
const proven = new Set(
  readEvidence().flatMap(({ report: r }) => {
    const cells = r.cells.filter(
      (c) => c.device.startsWith('sim:') && (c.against === 'reference' || c.against === 'candle'),
    );
    const failing = new Set(cells.filter((c) => c.verdict === 'failed').map((c) => c.op));
    return cells.map((c) => c.op).filter((op) => !failing.has(op));
  }),
);
let intact: string | undefined;
const sound = new Map<string, Promise<boolean>>();
/** A suite that fails on sound kernels proves nothing about broken ones. */
function passesIntact(stage: Stage): Promise<boolean> {
  if (stage.ops?.every((o) => proven.has(o))) return Promise.resolve(true);
  const known = sound.get(stage.name) ?? run((intact ??= makeBox('intact')), stage);
  sound.set(stage.name, known);
  return known;
}

function put(m: AnyMutant, box: string): () => void {
  const path = join(box, isHost(m) ? m.path : m.file ? `kernels/${m.file}` : 'dist/src/ops/table.js');
  const before = readFileSync(path, 'utf8');
  if (isHost(m)) {
    writeFileSync(path, m.text);
    return () => writeFileSync(path, before);
  }
  // The reference keeps its own formula: only what devices compile is changed.
  writeFileSync(
    path,
    m.file ? m.text : `${before}\nObject.assign(OPS.${m.ops[0]}, { kernel: ${JSON.stringify(m.text)} });\n`,
  );
  return () => writeFileSync(path, before);
}

type Outcome = Mutation['results'][number];
/** The same change of the same function is judged once: `commit` says with which tree. `--fresh` judges all again. */
const hashOf = (m: AnyMutant): string =>
  createHash('sha256')
    .update(JSON.stringify([isHost(m) ? m.path : m.file, m.name.replace(/:\d+/, ''), m.part]))
    .digest('hex')
    .slice(0, 12);
async function judge(m: AnyMutant, box: string): Promise<Outcome | undefined> {
  const head = { name: m.name, hash: hashOf(m), commit: commitNow(), ...(isHost(m) && { area: m.area }) };
  const undo = put(m, box);
  try {
    for (const stage of stagesOf(m)) {
      if (await run(box, stage)) continue;
      if (await passesIntact(stage)) return { ...head, killed: true, by: stage.name };
      return { ...head, killed: false, reason: `not judged: ${stage.name} fails without any change` };
    }
  } finally {
    undo();
  }
  if (values.quick) return undefined;
  const reason = equivalence(m);
  return { ...head, killed: false, ...(reason && { reason }) };
}

const file = resolve(values.json as string);
const outcomes = new Map((values.fresh ? [] : (readMutation(file)?.results ?? [])).map((o) => [o.hash, o]));
/** All that is known of the mutants there are now, whole or not at all: a run may be ended at any time. */
function save(): Outcome[] {
  const results = everyMutant.flatMap((m) => {
    const o = outcomes.get(hashOf(m));
    const reason = equivalence(m);
    return o ? [{ ...o, name: m.name, ...(!o.killed && reason && { reason }) }] : [];
  });
  const killed = results.filter((o) => o.killed).length;
  const head = {
    commit: commitNow(),
    date: new Date().toISOString(),
    killed,
    total: results.length,
    notRun: everyMutant.length - results.length,
  };
  writeFileSync(
    `${file}.part`,
    `${JSON.stringify({ ...head, results: [] }, null, 1).slice(0, -4)}[\n${results.map((o) => `  ${JSON.stringify(o)}`).join(',\n')}\n ` +
      ']\n}\n',
  );
  renameSync(`${file}.part`, file);
  return results;
}

/** What survived without a reason is judged again: tests that notice it may have come since. */
const isSettled = (m: AnyMutant): boolean => {
  const o = outcomes.get(hashOf(m));
  return o !== undefined && (o.killed || (o.reason ?? equivalence(m)) !== undefined);
};
const queue = mutants.filter((m) => !isSettled(m) && (!values.quick || isHost(m) || m.ops.length > 0));
console.log(`${mutants.length} mutants, ${mutants.length - queue.length} known from before`);
let done = 0;
const waiting = queue.length;
await Promise.all(
  Array.from({ length: Math.min(Number(values.jobs), waiting) }, async (_, job) => {
    const box = makeBox(`job-${job}`);
    for (let m = queue.shift(); m; m = queue.shift()) {
      const o = await judge(m, box);
      done++;
      if (!o) {
        console.log(`${String(done).padStart(3)}/${waiting} open     ${m.name}`);
        continue;
      }
      outcomes.set(o.hash, o);
      save();
      console.log(
        `${String(done).padStart(3)}/${waiting} ${o.killed ? 'killed  ' : 'SURVIVED'} ` +
          `${o.name}${o.by ? ` (${o.by})` : o.reason ? ` (${o.reason})` : ''}`,
      );
    }
  }),
);
const results = save();
const killed = results.filter((o) => o.killed).length;
const open = results.filter((o) => !o.killed && !o.reason);
console.log(
  `\n${killed} of ${results.length} mutants killed, ${results.length - killed - open.length} survive with a ` +
    `reason, ${open.length} without`,
);
for (const area of AREAS) {
  const all = results.filter((o) => (o.area ?? 'kernels') === area);
  const dead = all.filter((o) => o.killed).length;
  const explained = all.filter((o) => !o.killed && o.reason).length;
  console.log(
    `  ${area}: ${dead} of ${all.length} killed, ${explained} explained, ${all.length - dead - explained} not`,
  );
}
for (const f of unguarded()) console.log(`no op or test guards kernels/${f}: scripts/mutants.ts lists the guards`);
process.exitCode = open.length + unguarded().length > 0 ? 1 : 0;
