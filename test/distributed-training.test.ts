// Training over several ranks: gradients and parameters as with one process and the whole batch, whatever the number of
// ranks; checkpoints across numbers of ranks; the example under mpirun.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ownStream, runLocal, shardIndices, shareOf } from '../src/distributed/index.js';
import { bucketsOf } from '../src/distributed/data-parallel.js';
import { Generator, zeros } from '../src/index.js';
import { answersOf, byHand, byMpi, type Ended, programArgs, run, skipMpi } from './distributed-support.js';

const ranks = new URL('./distributed-ranks.js', import.meta.url);
const dir = mkdtempSync(join(tmpdir(), 'wick-ranks-'));
after(() => rmSync(dir, { recursive: true, force: true }));

interface Gradients {
  readonly names: string[];
  readonly grads: number[][];
  readonly log: string[];
}
const gradients = async (size: number): Promise<Gradients[]> =>
  (await runLocal(size, ranks, 'dataParallel')) as Gradients[];
test('gradients on 2 and 4 ranks are those of one process with the whole batch, bit for bit', async () => {
  const [one] = await gradients(1);
  assert.deepEqual(one.names, ['first', 'second', 'third'], 'what nobody uses has none');
  for (const size of [2, 4])
    for (const got of await gradients(size)) {
      assert.deepEqual(got.names, one.names);
      assert.deepEqual(got.grads, one.grads);
    }
  if (!skipMpi)
    for (const got of answersOf(await byMpi(4, programArgs('dataParallel'))) as Gradients[])
      assert.deepEqual(got.grads, one.grads);
});
test("the last layers' bucket is on its way before the pass reaches the first layer", async () => {
  for (const { log } of await gradients(2))
    assert.deepEqual(log.slice(0, 3), ['a bucket of 11', 'a bucket of 31', 'the pass reaches the first layer']);
});
test('parameters that only some ranks use, and gradients in another order, are averaged all the same', async () => {
  const answers = (await runLocal(2, ranks, 'unevenUse')) as number[][][];
  assert.deepEqual(answers[0], answers[1]);
  const [second, third, unused] = answers[0];
  assert.ok(second.every((v) => v === 1));
  const values = Array.from({ length: 10 }, (_, i) => ((i * 5 + 4) % 7) - 3);
  assert.deepEqual(
    third,
    values.map((v) => 2 * v),
  );
  assert.ok(
    unused.every((v) => v === 0.5),
    'one rank of two uses it',
  );
});

const near = (a: readonly number[], b: readonly number[]): void => {
  assert.equal(a.length, b.length);
  a.forEach((v, i) => assert.ok(Math.abs(v - b[i]) <= 2e-6 * Math.max(1, Math.abs(b[i])), `${i}: ${v} and ${b[i]}`));
};
const trained = async (size: number, data: object): Promise<number[]> => {
  const answers = (await runLocal(size, ranks, 'train', { data })) as number[][][];
  for (const a of answers) assert.deepEqual(a, answers[0], 'ranks have drifted apart');
  return answers[0][0];
};
for (const optimizer of ['adam', 'sgd'])
  test(`${optimizer}: five steps on 1, 2 and 4 ranks end alike, with sharded states too`, async () => {
    const one = await trained(1, { steps: 5, sharded: false, optimizer });
    for (const size of [2, 4])
      for (const sharded of [false, true]) near(await trained(size, { steps: 5, sharded, optimizer }), one);
  });
test('a checkpoint of sharded states serves any number of ranks', async () => {
  const whole = await trained(1, { steps: 6, sharded: false });
  const save = join(dir, 'four.safetensors');
  await trained(4, { steps: 3, sharded: true, save });
  near(await trained(2, { steps: 6, sharded: true, load: save }), whole);
  near(await trained(1, { steps: 6, sharded: false, load: save }), whole);
  const plain = join(dir, 'one.safetensors');
  await trained(1, { steps: 3, sharded: false, save: plain });
  near(await trained(4, { steps: 6, sharded: true, load: plain }), whole);
});
test('optimizers that look at whole parameters are refused', async () => {
  const [said] = await runLocal(1, ranks, 'shardedRefusals');
  assert.match(String(said), /Adafactor looks at a parameter as a whole/);
});

test('buckets: from the last parameter, the first one small, one dtype each', () => {
  const sizes = [100, 50, 10, 30];
  const params = sizes.map((n) => zeros([n]));
  const buckets = bucketsOf(params, 100, 240);
  assert.deepEqual(
    buckets.map((b) => b.params.map((p) => p.size)),
    [[30], [10, 50], [100]],
  );
  assert.deepEqual([...buckets[1].places.values()], [0, 10]);
  const mixed = bucketsOf([zeros([4]), zeros([4], { dtype: 'bf16' })], 1000, 1000);
  assert.deepEqual(
    mixed.map((b) => b.dtype),
    ['bf16', 'f32'],
  );
});
test('data: every rank its own share, another order every epoch', () => {
  const of = (rank: number, options = {}) => shardIndices(10, { rank, size: 3 }, { seed: 5, ...options });
  const all = [0, 1, 2].flatMap((r) => of(r));
  assert.equal(new Set(all).size, 9);
  assert.notDeepEqual(of(0), of(0, { epoch: 1 }));
  assert.deepEqual(of(1), of(1));
  assert.deepEqual(
    [0, 1, 2].map((r) => of(r, { shuffle: false, dropLast: false })),
    [
      [0, 3, 6, 9],
      [1, 4, 7, 0],
      [2, 5, 8, 1],
    ],
  );
  assert.deepEqual(shareOf(8, { rank: 1, size: 4 }), { from: 2, count: 2 });
  assert.throws(() => shareOf(6, { rank: 0, size: 4 }), /a batch of 6 does not divide among 4 ranks/);
});
test('random streams: rank 0 keeps the seed, the others have their own', () => {
  const seeds = [0, 1, 2].map((rank) => ownStream(new Generator(7), { rank, size: 3 }).seed);
  assert.equal(seeds[0], 7n);
  assert.equal(new Set(seeds).size, 3);
});

// ---- the example ----
const example = fileURLToPath(new URL('../examples/train-gpt.js', import.meta.url));
const text = join(dir, 'text.txt');
writeFileSync(
  text,
  Array.from(
    { length: 120 },
    (_, i) => `the ${['cat', 'dog', 'bird'][i % 3]} sat on the ${['mat', 'log'][i % 2]}\n\n`,
  ).join(''),
);
const argv = (out: string, ...more: string[]): string[] => [
  example,
  ...['--text', text, '--out', join(dir, out), '--vocab', '270', '--hidden', '16', '--heads', '2', '--kv-heads', '1'],
  ...['--layers', '1', '--intermediate', '32', '--context', '16', '--batch', '8', '--steps', '6', '--log-every', '1'],
  ...['--eval-every', '3', '--dropout', '0', ...more],
];
const losses = (out: string): number[] =>
  readFileSync(join(dir, out, 'training.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((l) => JSON.parse(l) as { loss?: number; heldLoss?: number })
    .map((l) => l.loss ?? (l.heldLoss as number));
const fine = (...ends: readonly Ended[]): void => {
  for (const e of ends) assert.equal(e.code, 0, e.err);
};
test('examples/train-gpt.ts learns the same alone, as torchrun starts it and under mpirun', async () => {
  fine(await run(process.execPath, argv('alone')));
  fine(...(await byHand(2, argv('torchrun', '--shard', 'optimizer'))));
  near2(losses('torchrun'), losses('alone'));
  fine(...(await byHand(2, argv('divided', '--shard', 'all'))));
  near2(losses('divided'), losses('alone'));
  // Going on alone from what two ranks left.
  fine(await run(process.execPath, [...argv('divided', '--shard', 'all', '--resume'), '--steps', '8']));
  if (skipMpi) return;
  fine(await byMpi(2, argv('mpirun')));
  near2(losses('mpirun'), losses('alone'));
  // Going on from what two ranks left, alone.
  fine(await run(process.execPath, [...argv('mpirun', '--resume'), '--steps', '8']));
});
const near2 = (a: readonly number[], b: readonly number[]): void => {
  assert.equal(a.length, b.length);
  a.forEach((v, i) => assert.ok(Math.abs(v - b[i]) < 1e-3, `${a.join()} and ${b.join()}`));
};
