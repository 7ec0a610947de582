// NCCL (or RCCL) checked on real hardware: collectives, gradients, training, a model shared out among ranks, with and
// without a recorded step, and an engine over it.
//   node dist/scripts/nccl-check.js [--ranks 2,4] [--device cuda:0] [--own-gpus] [--stages collectives,...] [--limit
// 60] [--leave-open]
// Without --own-gpus all ranks use one GPU: each gets another NCCL_HOSTID, so that NCCL takes them for different
// machines
// and lets them meet through sockets. Results are real then, speeds are not.
// Nothing waits for ever: a rank that is not done after --limit seconds ends itself from a thread of its own, whatever
// call of the library it is deep in, and says which stage that was; a second before, its main thread says what keeps it
// alive, if it is not deep in a call. --leave-open lets ranks end without closing their group, as programs may.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { writeSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import '../src/index.js';
import { AloneTransport } from '../src/distributed/alone.js';
import { Group, init } from '../src/distributed/index.js';
import { builtinModel, GraphDecoder, LanguageModel } from '../src/engine/index.js';
import { noGrad, scope, tensor } from '../src/index.js';
import { findGolden } from '../src/parity/golden.js';
import { sharedModels } from '../test/distributed-models-ranks.js';
import { collectives, dataParallel, gradients, groups, train } from '../test/distributed-ranks.js';
import { fetchedAhead, fullGradients } from '../test/distributed-sharded-ranks.js';

const PROMPT = [0, 17, 250, 31, 99, 4, 612, 45];
/** Few: on one GPU ranks take turns, and every sum costs milliseconds. */
const TOKENS = 12;
const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`;
/** A world of this rank alone, to compare with. */
const alone = (world: Group): Group => new Group(new AloneTransport(), world.device);

/** Each stage answers what was right. */
const STAGES: Readonly<Record<string, (world: Group) => string | Promise<string>>> = {
  collectives: (world) => {
    assert.equal(collectives(world)[0], 'nccl');
    return 'collectives on every dtype';
  },
  gradients: (world) => {
    gradients(world);
    groups(world);
    return 'gradients and groups';
  },
  buckets: (world) => {
    const { grads, log } = dataParallel(world);
    assert.deepEqual(grads, dataParallel(alone(world)).grads, 'gradients differ from one process with the whole batch');
    assert.equal(log.indexOf('the pass reaches the first layer'), 2);
    return 'bucketed gradients are those of the whole batch, bit for bit, the last layers on their way first';
  },
  training: (world) => {
    const [one] = train(alone(world), { steps: 5, sharded: false });
    for (const sharded of [false, true])
      train(world, { steps: 5, sharded })[0].forEach((x, i) =>
        assert.ok(Math.abs(x - one[i]) < 1e-4, `${x} and ${one[i]}`),
      );
    return 'five steps of training, states whole and sharded';
  },
  sharded: (world) => {
    assert.deepEqual(fullGradients(world).grads, fullGradients(alone(world)).grads);
    const [now, ahead] = fetchedAhead(world);
    assert.deepEqual(ahead.grads, now.grads);
    return 'fully sharded parameters: gradients of one process, bit for bit, the next module fetched meanwhile or not';
  },
  model: async (world) => {
    const [whole, shared] = [await answer(world.device.name), await answer(world.device.name, world)];
    assert.ok(shared.graph, 'the shared model is not decoded by a recorded step');
    const worst = shared.logits.reduce((m, x, i) => Math.max(m, Math.abs(x - whole.logits[i])), 0);
    assert.ok(worst < 2e-3, `logits differ by ${worst}`);
    assert.deepEqual(shared.tokens, whole.tokens);
    return (
      `a model shared out among ${world.size}, decoded by a recorded step: the same ${whole.tokens.length} ` +
      `tokens, logits off by at most ${worst.toExponential(1)}`
    );
  },
  families: (world) => {
    const models = (names: readonly string[]): { name: string; path: string }[] =>
      names.map((name) => ({ name, path: findGolden('hf', name) ?? '' })).filter(({ path }) => path);
    const all = [
      ...sharedModels(world, models(['llama', 'gemma3', 'deepseek_v3', 'qwen3_next', 'lfm2'])),
      ...sharedModels(world, models(['qwen3_moe-b', 'gpt_oss']), 'experts'),
    ];
    for (const { name, error, cachedError, refused } of all)
      assert.ok(refused ?? Math.max(error, cachedError) < 1e-4, `${name}: off by ${error}, ${cachedError}`);
    const told = all.map((s) => `${s.name} ${s.refused ? 'refused' : s.error.toExponential(1)}`);
    return `families shared out, logits as the whole model's (${told.join(', ')})`;
  },
  engine: async (world) => {
    const load = (shard?: Group): Promise<LanguageModel> =>
      LanguageModel.load(builtinModel, { device: world.device.name, dtype: 'f32', ...(shard && { shard }) });
    const ask = (m: LanguageModel): Promise<unknown[]> =>
      Promise.all(
        ['Once upon a time', 'The cat'].map((p) => m.reply(p, { temperature: 0, maxTokens: TOKENS }).done),
      ).then((all) => all.map(({ text }) => text));
    const shared = await load(world);
    shared.engine({ contextTokens: 64 });
    if (world.first) {
      const whole = await load();
      assert.deepEqual(await ask(shared), await ask(whole));
      await shared.engine().dispose();
      whole.dispose();
    } else await shared.follow();
    // Recorded steps of the stage before are still there, on purpose: closing the group ends them.
    return 'an engine over the shared model: rank 0 schedules, the others follow, the texts of one GPU';
  },
};

const { values: v } = parseArgs({
  options: {
    ranks: { type: 'string', default: '2,4' },
    device: { type: 'string', default: 'cuda:0' },
    'own-gpus': { type: 'boolean', default: false },
    stages: { type: 'string', default: Object.keys(STAGES).join(',') },
    limit: { type: 'string', default: '60' },
    'leave-open': { type: 'boolean', default: false },
    rank: { type: 'boolean', default: false },
  },
});
const stages = v.stages.split(',');
const unknown = stages.find((s) => !Object.hasOwn(STAGES, s));
assert.equal(unknown, undefined, `there is no stage ${unknown}; there are ${Object.keys(STAGES).join(', ')}`);

/** Where a rank tells the program that started it which stage it is in: however it ends, that is known then. */
const STAGE_PIPE = 3;

/** Greedy tokens and the logits of the prompt. */
async function answer(
  device: string,
  shard?: Group,
): Promise<{ tokens: number[]; logits: Float32Array; graph: boolean }> {
  const model = await LanguageModel.load(builtinModel, { device, dtype: 'f32', ...(shard && { shard }) });
  const ids = tensor(Int32Array.from(PROMPT), { shape: [1, PROMPT.length], device });
  const logits = noGrad(() => scope(() => model.model.forward(ids).cast('f32'))).dataSync() as Float32Array;
  const tokens: number[] = [];
  for await (const t of model.tokens(PROMPT, { maxTokens: TOKENS, temperature: 0 })) tokens.push(t);
  return { tokens, logits, graph: GraphDecoder.serves(model.model) };
}

/** A thread that ends this process when its time is over; the word tells it the stage. */
const DEADLINE = `
  const { workerData: { limit, stages, word, rank } } = require('node:worker_threads');
  setTimeout(() => {
    require('node:fs').writeSync(2, '  rank ' + rank + ': not done after ' + limit + ' s, in ' + stages[word[0]] + '\\n');
    process.kill(process.pid, 'SIGKILL');
  }, 1000 * limit);`;

async function rank(): Promise<void> {
  const word = new Int32Array(new SharedArrayBuffer(4));
  const names = ['the meeting', ...stages, 'closing the group', 'the end of the process'];
  const enter = (name: string): void => {
    Atomics.store(word, 0, names.indexOf(name));
    writeSync(STAGE_PIPE, `${name}\n`);
  };
  const data = { limit: Number(v.limit), stages: names, word, rank: process.env.RANK };
  new Worker(DEADLINE, { eval: true, workerData: data }).unref();
  setTimeout(
    () => console.log(`  rank ${process.env.RANK} waits for: ${process.getActiveResourcesInfo().join(', ')}`),
    1000 * (Number(v.limit) - 1),
  ).unref();
  const world = await init({ device: v.device, collective: 'nccl', timeoutMs: 1000 * Number(v.limit), meetMs: 30_000 });
  let begun = performance.now();
  const say = (what: string): void => {
    if (world.first) console.log(`  ${what} (${seconds(begun)})`);
    begun = performance.now();
  };
  for (const name of stages) {
    enter(name);
    const right = await STAGES[name](world);
    world.barrier();
    say(`${right}: right`);
  }
  if (!v['leave-open']) {
    enter('closing the group');
    world.close();
    say('the group closed: right');
  }
  enter('the end of the process');
}

/** How each rank ended: '' where it ended well. */
function start(size: number, running: Set<ChildProcess>): Promise<string[]> {
  const port = String(20000 + Math.floor(Math.random() * 20000));
  const own = v['own-gpus'];
  const args = [
    '--rank',
    '--device',
    own ? v.device.split(':')[0] : v.device,
    '--stages',
    v.stages,
    '--limit',
    v.limit,
    ...(v['leave-open'] ? ['--leave-open'] : []),
  ];
  return Promise.all(
    Array.from({ length: size }, (_, r) => {
      const child = spawn(process.execPath, [fileURLToPath(import.meta.url), ...args], {
        stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
        env: {
          ...process.env,
          ...{ RANK: String(r), WORLD_SIZE: String(size), LOCAL_RANK: String(r), LOCAL_WORLD_SIZE: String(size) },
          ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: port },
          ...(!own && { NCCL_HOSTID: `wick-rank-${r}` }),
        },
      });
      running.add(child);
      let stage = 'the meeting';
      (child.stdio[STAGE_PIPE] as Readable).on(
        'data',
        (text) => (stage = String(text).trim().split('\n').at(-1) ?? stage),
      );
      return new Promise<string>((resolve) =>
        child.on('close', (code, signal) => {
          running.delete(child);
          resolve(code === 0 ? '' : `${signal ? `was ended by ${signal}` : `ended with ${code}`} in ${stage}`);
        }),
      );
    }),
  );
}

if (v.rank) await rank();
else {
  const running = new Set<ChildProcess>();
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      for (const child of running) child.kill('SIGKILL');
      process.exit(1);
    });
  for (const size of v.ranks.split(',').map(Number)) {
    const begun = performance.now();
    console.log(`${size} ranks on ${v.device}${v['own-gpus'] ? ' and its neighbours' : ''}:`);
    const ends = await start(size, running);
    const bad = ends.flatMap((end, r) => (end ? [`rank ${r} ${end}`] : []));
    console.log(`  ${bad.length === 0 ? 'all right' : bad.join(', ')} in ${seconds(begun)}`);
    if (bad.length > 0) process.exitCode = 1;
  }
}
