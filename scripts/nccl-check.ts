// NCCL (or RCCL) checked on real hardware: collectives, gradients, a model shared out among ranks, with and without a
// recorded step.
//   node dist/scripts/nccl-check.js [--ranks 2,4] [--device cuda:0] [--own-gpus]
// Without --own-gpus all ranks use one GPU: each gets another NCCL_HOSTID, so that NCCL takes them for different machines
// and lets them meet through sockets. Results are real then, speeds are not.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import '../src/index.js';
import { type Group, init } from '../src/distributed/index.js';
import { builtinModel, GraphDecoder, LanguageModel } from '../src/engine/index.js';
import { noGrad, scope, tensor } from '../src/index.js';
import { collectives, dataParallel, gradients, groups, train } from '../test/distributed-ranks.js';

const { values: v } = parseArgs({
  options: {
    ranks: { type: 'string', default: '2,4' },
    device: { type: 'string', default: 'cuda:0' },
    'own-gpus': { type: 'boolean', default: false },
    rank: { type: 'boolean', default: false },
  },
});

const PROMPT = [0, 17, 250, 31, 99, 4, 612, 45];
const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`;

/** Greedy tokens and the logits of the prompt. */
async function answer(
  device: string,
  shard?: Group,
): Promise<{ tokens: number[]; logits: Float32Array; graph: boolean }> {
  const model = await LanguageModel.load(builtinModel, { device, dtype: 'f32', ...(shard && { shard }) });
  const ids = tensor(Int32Array.from(PROMPT), { shape: [1, PROMPT.length], device });
  const logits = noGrad(() => scope(() => model.model.forward(ids).cast('f32'))).dataSync() as Float32Array;
  const tokens: number[] = [];
  for await (const t of model.tokens(PROMPT, { maxTokens: 40, temperature: 0 })) tokens.push(t);
  return { tokens, logits, graph: GraphDecoder.serves(model.model) };
}

async function rank(): Promise<void> {
  const world = await init({ device: v.device, collective: 'nccl', timeoutMs: 60_000 });
  const say = (text: string): void => {
    if (world.first) console.log(`  ${text}`);
  };
  let begun = performance.now();
  const checked = (what: string): void => {
    world.barrier();
    say(`${what}: right (${seconds(begun)})`);
    begun = performance.now();
  };
  const [way] = collectives(world);
  assert.equal(way, 'nccl');
  checked('collectives on every dtype');
  gradients(world);
  groups(world);
  checked('gradients and groups');
  const { grads, log } = dataParallel(world);
  const alone = dataParallel((await aloneGroup(world)) as Group);
  assert.deepEqual(grads, alone.grads, 'gradients differ from one process with the whole batch');
  assert.equal(log.indexOf('the pass reaches the first layer'), 2);
  checked('bucketed gradients are those of the whole batch, bit for bit, the last layers on their way first');
  const one = train((await aloneGroup(world)) as Group, { steps: 5, sharded: false })[0];
  for (const sharded of [false, true])
    train(world, { steps: 5, sharded })[0].forEach((x, i) =>
      assert.ok(Math.abs(x - one[i]) < 1e-4, `${x} and ${one[i]}`),
    );
  checked('five steps of training, states whole and sharded');
  const whole = await answer(world.device.name);
  const shared = await answer(world.device.name, world);
  assert.ok(shared.graph, 'the shared model is not decoded by a recorded step');
  const worst = shared.logits.reduce((m, x, i) => Math.max(m, Math.abs(x - whole.logits[i])), 0);
  assert.ok(worst < 2e-3, `logits differ by ${worst}`);
  assert.deepEqual(shared.tokens, whole.tokens);
  checked(
    `a model shared out among ${world.size}, decoded by a recorded step: the same ${whole.tokens.length} tokens, logits off by at most ${worst.toExponential(1)}`,
  );
  world.close();
}
/** A world of this rank alone, to compare with. */
const aloneGroup = async (world: Group): Promise<Group> => {
  const { AloneTransport } = await import('../src/distributed/alone.js');
  const { Group: Made } = await import('../src/distributed/group.js');
  return new Made(new AloneTransport(), world.device);
};

function start(size: number): Promise<number[]> {
  const port = String(20000 + Math.floor(Math.random() * 20000));
  return Promise.all(
    Array.from(
      { length: size },
      (_, r) =>
        new Promise<number>((resolve) => {
          const own = v['own-gpus'] ? { device: v.device.split(':')[0] } : { device: v.device };
          const child = spawn(process.execPath, [fileURLToPath(import.meta.url), '--rank', '--device', own.device], {
            stdio: 'inherit',
            env: {
              ...process.env,
              ...{ RANK: String(r), WORLD_SIZE: String(size), LOCAL_RANK: String(r), LOCAL_WORLD_SIZE: String(size) },
              ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: port },
              ...(!v['own-gpus'] && { NCCL_HOSTID: `wick-rank-${r}` }),
            },
          });
          child.on('close', (code) => resolve(code ?? 1));
        }),
    ),
  );
}

if (v.rank) await rank();
else
  for (const size of v.ranks.split(',').map(Number)) {
    const begun = performance.now();
    console.log(`${size} ranks on ${v.device}${v['own-gpus'] ? ' and its neighbours' : ''}:`);
    const codes = await start(size);
    const bad = codes.findIndex((c) => c !== 0);
    console.log(bad < 0 ? `  all right in ${seconds(begun)}` : `  rank ${bad} ended with ${codes[bad]}`);
    if (bad >= 0) process.exitCode = 1;
  }
