// fit() and its tools: runs that learn, stop, resume bit for bit and leave files that others read.
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { DataLoader, Dataset } from '../src/data/index.js';
import { Generator, manualSeed, randn, Tensor } from '../src/index.js';
import { AdamW, cosineDecay, Dropout, EMA, Linear, losses, Scheduler, Sequential, SGD, Tanh } from '../src/nn/index.js';
import {
  accuracy,
  ConfusionMatrix,
  crc32c,
  EarlyStopping,
  fit,
  type FitOptions,
  gradCheck,
  plotSvg,
  topAccuracy,
} from '../src/train/index.js';

async function inFolder(f: (dir: string) => unknown): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'wick-train-'));
  try {
    await f(dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
}
const x = randn([48, 3], { seed: 1 });
const y = x.narrow(1, 0, 1).squeeze([1]).gt(0).cast('i64');
const data = Dataset.fromTensors({ x, y });

/** All parts of a small run, each time the same. */
function start(more: Partial<FitOptions> = {}): { model: Sequential; options: FitOptions } {
  manualSeed(5);
  const generator = new Generator(2);
  const model = new Sequential(
    new Linear(3, 8, { generator }),
    new Tanh(),
    new Dropout(0.1),
    new Linear(8, 2, { generator }),
  );
  const optimizer = new AdamW(model.parameters(), { learningRate: 0.03 });
  return {
    model,
    options: {
      data: new DataLoader(data, { batch: 8, shuffle: true, seed: 4 }),
      epochs: 4,
      optimizer,
      scheduler: new Scheduler(optimizer, cosineDecay(24, 0.1)),
      loss: (logits, batch) => losses.crossEntropy(logits, batch.y),
      metrics: { accuracy: (logits, batch) => accuracy(logits, batch.y) },
      progress: false,
      ...more,
    },
  };
}

test('fit learns, measures, and logs what TensorBoard and a browser show', () =>
  inFolder(async (dir) => {
    const { model, options } = start({
      validation: new DataLoader(data, { batch: 48 }),
      tensorboard: dir,
      plot: join(dir, 'run.svg'),
      clipNorm: 5,
    });
    const history = await fit(model, options);
    const [first, , , last] = history.epochs.map((e) => e.measures);
    assert.equal(history.steps, 24);
    assert.ok(last.loss < first.loss, JSON.stringify(history.epochs));
    assert.ok(last['validation.accuracy'] > 0.9);
    assert.ok(Math.abs((history.epochs.at(-1)?.learningRate ?? 0) - 0.003) < 1e-9, 'the schedule ended at a tenth');
    assert.ok(!model.training);
    const svg = readFileSync(join(dir, 'run.svg'), 'utf8');
    assert.match(svg, /^<svg .*validation\.accuracy.*<\/svg>\n$/);
    const events = readdirSync(dir).filter((f) => f.startsWith('events.out.tfevents.'));
    assert.deepEqual(eventsOf(readFileSync(join(dir, events[0]))), [
      'file brain.Event:2',
      ...history.epochs.map((e) => `step ${e.step} loss ${Math.fround(e.measures.loss)}`),
    ]);
  }));

/** The records of an event file, their check sums verified: its version, or the step and the first scalar. */
function eventsOf(file: Buffer): string[] {
  const out: string[] = [];
  for (let at = 0; at < file.length; ) {
    const length = Number(file.readBigUInt64LE(at));
    const sum = (from: number, to: number): number => {
      const c = crc32c(file.subarray(from, to));
      return (((c >>> 15) | (c << 17)) + 0xa282ead8) >>> 0;
    };
    assert.equal(file.readUInt32LE(at + 8), sum(at, at + 8));
    const body = file.subarray(at + 12, at + 12 + length);
    assert.equal(file.readUInt32LE(at + 12 + length), sum(at + 12, at + 12 + length));
    assert.equal(body[0], 9, 'a wall time comes first');
    if (body[9] === 0x1a) out.push(`file ${body.subarray(11).toString()}`);
    else {
      assert.deepEqual([body[9], body[11]], [0x10, 0x2a], 'step, then summary');
      const tag = body.subarray(17, 17 + body[16]);
      assert.equal(body[17 + body[16]], 0x15);
      out.push(`step ${body[10]} ${tag.toString()} ${body.readFloatLE(18 + body[16])}`);
    }
    at += 16 + length;
  }
  return out;
}
test('check sums are those of CRC-32C', () => {
  assert.equal(crc32c(Buffer.from('123456789')), 0xe3069283);
});

test('a run that stops and resumes ends bit for bit where the whole run does', () =>
  inFolder(async (dir) => {
    const whole = start();
    const wholeAverage = new EMA(whole.model, { decay: 0.9 });
    await fit(whole.model, { ...whole.options, ema: wholeAverage });
    for (const epochs of [2, 4]) {
      const part = start({ epochs, checkpoint: { folder: dir, resume: true } });
      const average = new EMA(part.model, { decay: 0.9 });
      const history = await fit(part.model, { ...part.options, ema: average });
      assert.equal(history.epochs.length, epochs);
      if (epochs < 4) continue;
      for (const [name, t] of whole.model.stateDict())
        assert.deepEqual(part.model.stateDict().get(name)?.bytesSync(), t.bytesSync(), name);
      for (const [name, t] of wholeAverage.stateDict())
        assert.deepEqual(average.stateDict().get(name)?.bytesSync(), t.bytesSync(), `average of ${name}`);
    }
  }));

test('gradients of several batches make one step, as large batches do', async () => {
  const plain = (batch: number, accumulate: number) =>
    start({ data: new DataLoader(data, { batch }), accumulate, epochs: 1, metrics: {} });
  const [a, b] = [plain(16, 1), plain(4, 4)];
  for (const { model } of [a, b]) model.layers.splice(2, 1); // dropout would differ
  await fit(a.model, a.options);
  await fit(b.model, b.options);
  const [p, q] = [a.model.parameters()[0], b.model.parameters()[0]];
  assert.ok(p.sub(q).abs().max().item() < 1e-6);
});

test('early stopping ends a run that brings nothing and takes the best weights back', async () => {
  const { model, options } = start({ epochs: 50 });
  const seen: string[] = [];
  const history = await fit(model, {
    ...options,
    scheduler: undefined as never,
    metrics: { best: () => [3, 5, 4, 4, 4, 4][seen.length] },
    earlyStopping: { monitor: 'best', patience: 1 },
    onEpoch: () => void seen.push(model.parameters()[0].toString()),
  });
  assert.equal(history.ended, 'early stopping');
  assert.equal(history.epochs.length, 4);
  assert.equal(model.parameters()[0].toString(), seen[1], 'the weights of the second epoch');
  const watch = new EarlyStopping({ monitor: 'loss', patience: 0, minDelta: 0.5 });
  assert.deepEqual(
    [3, 2.8, 2].map((v) => watch.tell(v)),
    [
      { better: true, stop: false },
      { better: false, stop: true },
      { better: true, stop: false },
    ],
  );
  const again = start();
  await assert.rejects(
    fit(again.model, { ...again.options, earlyStopping: {} }),
    /no measure "validation.loss"; known are loss, accuracy/,
  );
});

test('a signal ends a run, and the epoch it was in does not count', async () => {
  const stop = new AbortController();
  let steps = 0;
  const { model, options } = start();
  const history = await fit(model, {
    ...options,
    signal: stop.signal,
    loss: (logits, batch) => {
      if (++steps === 9) stop.abort();
      return losses.crossEntropy(logits, batch.y);
    },
  });
  assert.deepEqual([history.ended, history.epochs.length, history.steps], ['asked to stop', 1, 9]);
});

test('gradients are checked against differences, and a wrong one is named', () => {
  const a = randn([2, 3], { seed: 1, dtype: 'f64' });
  const report = gradCheck((p, q) => p.matmul(q).tanh(), [a, randn([3, 2], { seed: 2, dtype: 'f64' })]);
  assert.equal(report.compared, 12);
  assert.ok(report.worst < 1e-7);
  assert.throws(() => gradCheck((p) => p.detach().mul(p), [a]), /the gradient of input 0 \[2, 3\] at element 0 is/);
  assert.throws(() => gradCheck((p) => p, [randn([2])]), /an input is f32/);
});

test('measures of answers', () => {
  const scores = Tensor.from([
    [1, 2, 3],
    [3, 2, 1],
    [0, 5, 4],
  ]);
  const target = Tensor.from([2, 1, 2], { dtype: 'i64' });
  assert.ok(Math.abs(accuracy(scores, target).item() - 1 / 3) < 1e-6);
  assert.equal(topAccuracy(scores, target, 2).item(), 1);
  const table = new ConfusionMatrix(3).add(scores, target);
  assert.deepEqual(table.counts, [
    [0, 0, 0],
    [1, 0, 0],
    [0, 1, 1],
  ]);
  assert.deepEqual([table.precision(2), table.recall(2), table.f1(2)], [1, 0.5, 2 / 3]);
  assert.throws(() => accuracy(scores, Tensor.from([1, 2], { dtype: 'i64' })), /targets \[2\] must be \[3\]/);
});

test('plots leave out what is not finite and escape names', () => {
  const svg = plotSvg(
    [
      {
        name: 'a<b',
        points: [
          [0, 1],
          [1, NaN],
          [2, 3],
        ],
      },
    ],
    { title: '"t"', logY: true },
  );
  assert.ok(svg.includes('a&lt;b') && svg.includes('&quot;t&quot;') && !svg.includes('NaN'));
  assert.throws(() => plotSvg([{ name: 'a', points: [[0, NaN]] }]), /no finite point/);
});

test('fit refuses an optimizer that would train nothing', async () => {
  const { model, options } = start();
  const other = new SGD(start().model.parameters());
  await assert.rejects(
    fit(model, { ...options, optimizer: other }),
    /fit: no parameter of the optimizer has a gradient/,
  );
  await assert.rejects(
    async () => fit(model, { ...options, optimizer: 'adam' as never }),
    /fit: optimizer takes one of/,
  );
});
