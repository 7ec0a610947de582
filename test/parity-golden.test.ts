// Golden folders of others: ops and dtypes nobody knows, damaged files and odd models are answered with sentences,
// never with a crash.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import '../src/index.js';
import { FormatError } from '../src/base/errors.js';
import { saveTensors } from '../src/io/index.js';
import { goldenFolder } from '../src/parity/golden.js';
import { runParity } from '../src/parity/run.js';
import { Device } from '../src/tensor/device.js';
import { Tensor } from '../src/tensor/tensor.js';

const scratch = mkdtempSync(join(tmpdir(), 'wick-golden-'));
after(() => rmSync(scratch, { recursive: true }));
const numbers = (...values: number[]): Tensor => Tensor.from(values, { device: Device.reference() });
let made = 0;
/** A folder with one set of cases, over tensors x = [1, 2] and y = [2, 4] and whatever else is given. */
async function folder(
  set: 'candle-cuda' | 'torch',
  cases: unknown,
  tensors: Record<string, Tensor> = {},
): Promise<string> {
  const dir = join(scratch, String(made++));
  mkdirSync(dir);
  writeFileSync(
    join(dir, `${set}.json`),
    typeof cases === 'string' ? cases : JSON.stringify({ source: 'a test', cases }),
  );
  await saveTensors(join(dir, `${set}.safetensors`), { x: numbers(1, 2), y: numbers(2, 4), ...tensors });
  return dir;
}
const run = (golden: string) =>
  runParity({ devices: ['reference'], against: ['candle', 'torch', 'models'], golden, jobs: 1 });
const only = async (golden: string) => {
  const { cells } = await run(golden);
  assert.equal(cells.length, 1);
  return { verdict: cells[0].verdict, why: cells[0].why?.[0] ?? '' };
};

for (const set of ['candle-cuda', 'torch'] as const) {
  const one = (over: object) => [
    { id: '1', op: 'relu', dtype: 'f32', params: {}, inputs: { x: 'x' }, outputs: { y: 'x' }, ...over },
  ];
  test(`${set}: ops that the known sets do not hold run by their row`, async () => {
    assert.match(
      (await only(await folder(set, one({ op: 'rsqrt', outputs: { y: 'z' } }), { z: numbers(1, Math.SQRT1_2) })))
        .verdict,
      /exact|within/,
    );
    assert.equal((await only(await folder(set, one({})))).verdict, 'exact');
  });
  test(`${set}: an unknown op and an unknown dtype are unsupported, with a sentence`, async () => {
    assert.match((await only(await folder(set, one({ op: 'warp_drive' })))).why, /no op here answers to .* warp_drive/);
    const { verdict, why } = await only(await folder(set, one({ dtype: 'f4' })));
    assert.equal(verdict, 'unsupported');
    assert.match(why, /f4 is not one of the dtypes here/);
  });
  test(`${set}: a case that names no such tensor, or lacks an input, fails alone`, async () => {
    const dir = await folder(set, [
      ...one({ inputs: { x: 'nowhere' } }),
      ...one({ id: '2', op: 'abs' }),
      ...one({ id: '3', op: 'add' }),
      ...one({ id: '4', op: 'neg', outputs: { y: 'gone' } }),
    ]);
    const { cells } = await run(dir);
    assert.deepEqual(Object.fromEntries(cells.map((c) => [c.op, c.verdict])), {
      relu: 'failed',
      abs: 'exact',
      add: 'failed',
      neg: 'failed',
    });
    assert.match(cells.find((c) => c.op === 'relu')?.why?.[0] ?? '', /nowhere/);
    assert.match(cells.find((c) => c.op === 'neg')?.why?.[0] ?? '', /gone/);
  });
  test(`${set}: damaged files are refused with their name`, async () => {
    const refused = async (dir: string, says: RegExp) =>
      assert.rejects(run(dir), (e: unknown) => e instanceof FormatError && says.test(e.message));
    await refused(await folder(set, '{"cases": ['), new RegExp(`${set}\\.json: not JSON`));
    await refused(await folder(set, '{}'), /no list "cases"/);
    await refused(await folder(set, [{ op: 'relu', dtype: 'f32', outputs: { y: 'x' } }]), /case 0: "inputs"/);
    await refused(await folder(set, [7]), /case 0: not an object/);
    const cut = await folder(set, one({}));
    writeFileSync(join(cut, `${set}.safetensors`), 'not tensors');
    await assert.rejects(run(cut), /safetensors/i);
  });
}

test('a folder that holds nothing of the kind is refused', async () => {
  const dir = join(scratch, 'empty');
  mkdirSync(dir);
  await assert.rejects(run(dir), /holds none of candle-cuda\.json, torch\.json, hf/);
});

test('models: families without a loader are unsupported, damaged ones fail, each with a sentence', {
  skip: goldenFolder() ? false : 'no golden folder',
}, async () => {
  const dir = join(scratch, 'models');
  const model = (name: string, config: string): void => {
    mkdirSync(join(dir, 'hf', name), { recursive: true });
    writeFileSync(join(dir, 'hf', name, 'config.json'), config);
  };
  model('odd', '{"model_type": "perceptron"}');
  model('nameless', '{}');
  model('broken', '{"model_type":');
  model('hollow', '{"model_type": "llama"}');
  writeFileSync(join(dir, 'hf', 'README'), 'a file among the folders');
  cpSync(join(goldenFolder() as string, 'hf', 'llama'), join(dir, 'hf', 'llama'), { recursive: true });
  const { cells } = await run(dir);
  const of = (name: string) => {
    const c = cells.find((k) => k.op === name);
    return `${c?.verdict}: ${c?.why?.[0] ?? ''}`;
  };
  assert.match(of('odd'), /^unsupported: .*"perceptron"/);
  assert.match(of('nameless'), /^unsupported: .*does not name/);
  assert.match(of('broken'), /^failed: .*config\.json: not JSON/);
  assert.match(of('hollow'), /^failed: .*Error \[E_\w+\]: .*hollow/);
  assert.match(of('llama'), /^(exact|within): /);
});
