// Fully sharded training: gradients and parameters as with one process and the whole batch; one module together at a
// time.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runLocal } from '../src/distributed/index.js';
import { tensor } from '../src/index.js';
import type { Gathered } from './distributed-sharded-ranks.js';
import { answersOf, byMpi, programArgs, skipMpi } from './distributed-support.js';

const ranks = new URL('./distributed-sharded-ranks.js', import.meta.url);
const dir = mkdtempSync(join(tmpdir(), 'wick-sharded-'));
after(() => rmSync(dir, { recursive: true, force: true }));

test(
  'gradients on 2 and 4 ranks are those of one, bit for bit; a rank holds its part and a module at a ' + 'time',
  async () => {
    const [one] = (await runLocal(1, ranks, 'fullGradients')) as Gathered[];
    assert.ok(
      Object.values(one.grads)
        .flat()
        .some((v) => v !== 0),
    );
    assert.ok(one.grads.unused.every((v) => v === 0));
    const partBytes = 4 * 30;
    const rootBytes = 4 * (20 + 3);
    assert.equal(one.all, 3 * partBytes + rootBytes);
    for (const size of [2, 4]) {
      const padded = (bytes: number): number => 4 * size * Math.ceil(bytes / 4 / size);
      const most = padded(partBytes) + padded(rootBytes);
      for (const { grads, idle, peak } of (await runLocal(size, ranks, 'fullGradients')) as Gathered[]) {
        assert.deepEqual(grads, one.grads);
        assert.equal(idle, (3 * padded(partBytes) + padded(rootBytes)) / size);
        assert.equal(peak, idle + most, 'beside its parts one module and what stands around the modules');
      }
    }
    if (skipMpi) return;
    for (const { grads } of answersOf(await byMpi(2, programArgs('fullGradients'))) as Gathered[])
      assert.deepEqual(grads, one.grads);
  },
);

interface Fetched {
  readonly grads: number[][];
  readonly extra: number;
  readonly log: string[];
}
test('the next module is put together and the last one summed while one runs: the same gradients', async () => {
  const [around, part] = [4 * 24, 4 * 30]; // 23 numbers stand around the modules, rounded up
  for (const [now, ahead] of (await runLocal(2, ranks, 'fetchedAhead')) as Fetched[][]) {
    assert.deepEqual(ahead.grads, now.grads);
    assert.notDeepEqual(now.grads[2], now.grads[0], 'parts did not change between passes');
    const turns = [0, 1, 2].flatMap((i) => ['now', `forward ${i}`]);
    const ends = ['sums begin', 'sums end', 'sums begin', 'sums end', 'sums end'];
    assert.deepEqual(now.log, [
      ...['now', ...turns, 'now', 'backward 2', 'sums begin', 'now', 'backward 1', 'sums begin', 'sums end'],
      ...['now', 'backward 0', ...ends],
    ]);
    assert.deepEqual(ahead.log, [
      ...['now', 'ahead', 'ahead', 'forward 0', 'ahead', 'forward 1', 'forward 2'],
      ...['ahead', 'ahead', 'backward 2', 'sums begin', 'ahead', 'backward 1', 'sums begin', 'sums end'],
      ...['backward 0', ...ends],
    ]);
    assert.deepEqual([now.extra, ahead.extra], [around + part, around + 2 * part]);
  }
});

interface Trained {
  readonly losses: number[];
  readonly params: number[];
}
const near = (a: readonly number[], b: readonly number[], most = 2e-5): void => {
  assert.equal(a.length, b.length);
  a.forEach((v, i) => assert.ok(Math.abs(v - b[i]) <= most * Math.max(1, Math.abs(b[i])), `${i}: ${v} and ${b[i]}`));
};
const trained = async (size: number, data: object): Promise<Trained> => {
  const answers = (await runLocal(size, ranks, 'trainLlama', { data })) as Trained[];
  for (const a of answers) assert.deepEqual(a, answers[0], 'ranks have drifted apart');
  return answers[0];
};
test(
  'a Llama learns the same on 1, 2 and 4 ranks as in one process; a checkpoint serves any number of ' + 'them',
  async () => {
    const whole = await trained(1, { steps: 6, sharded: false });
    for (const size of [1, 2, 4]) {
      const got = await trained(size, { steps: 6, sharded: true });
      near(got.losses, whole.losses);
      near(got.params, whole.params, 2e-3); // Adam's first steps are signs: tiny gradients differ in theirs
    }
    const save = join(dir, 'four.safetensors');
    await trained(4, { steps: 3, sharded: true, save });
    const [two, one] = [
      await trained(2, { steps: 6, sharded: true, load: save }),
      await trained(1, { steps: 6, sharded: true, load: save }),
    ];
    near(two.losses, whole.losses.slice(3));
    near(one.losses, whole.losses.slice(3));
    const half = await trained(2, { steps: 6, sharded: true, dtype: 'bf16' });
    near(half.losses, whole.losses, 3e-2);
  },
);

test('parameters apart cannot be read, rules of whole parameters and frozen ones are refused', async () => {
  const [[read, rule, frozen, load]] = (await runLocal(2, ranks, 'fullyShardedRefusals')) as string[][];
  assert.match(read, /divided among ranks, and its parts are not together at the moment/);
  assert.match(rule, /Adafactor looks at a parameter as a whole/);
  assert.match(frozen, /first is not trained/);
  assert.match(load, /there is no first among the tensors/);
});

test('a sparing backward pass answers the same gradients and gives the graph back at once', () => {
  const numbers = Float32Array.from({ length: 12 }, (_, i) => Math.sin(i));
  const run = (sparing: boolean): { grads: number[][]; released: boolean } => {
    const x = tensor(numbers, { shape: [3, 4], device: 'cpu' }).requireGrad();
    const b = tensor(numbers.subarray(0, 4), { device: 'cpu' }).requireGrad();
    const y = x.add(b).mul(x).add(x).softmax(1);
    const loss = y.mul(y).add(y.t().t()).sqr().sum();
    const grads = loss.backward({ sparing });
    return { grads: [x, b].map((t) => [...(grads.of(t).dataSync() as Float32Array)]), released: !!loss.node?.released };
  };
  const [plain, sparing] = [run(false), run(true)];
  assert.deepEqual(sparing.grads, plain.grads);
  assert.ok(sparing.released);
  const x = tensor(numbers, { device: 'cpu' }).requireGrad();
  assert.throws(() => x.sum().backward({ sparing: true, retainGraph: true }), /a sparing pass lets go of the graph/);
  // A leaf whose gradient was taken has none in the answer.
  const got: number[] = [];
  const grads = x
    .sqr()
    .sum()
    .backward({ sparing: true, onLeaf: (_, g) => got.push(...(g.dataSync() as Float32Array)) > 0 });
  assert.equal(grads.get(x), undefined);
  assert.equal(got.length, 12);
});
