// Paths that lead nowhere, files that fail half way, ranges that start anywhere: typed errors, closed descriptors,
// right bytes.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ArgumentError, FormatError, WickError } from '../src/base/errors.js';
import { Gguf } from '../src/io/gguf.js';
import { loadTensors, saveTensors } from '../src/io/load.js';
import { openNpy, openNpz } from '../src/io/npy.js';
import { openTensors } from '../src/io/open.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { TorchFile } from '../src/io/torch.js';
import { ones } from '../src/tensor/create.js';
import { ROOT, scratch } from './io-support.js';

const dir = scratch();
const files = join(ROOT, 'test/golden/files');
const OPENERS: Readonly<Record<string, (path: string) => unknown>> = {
  openTensors,
  openNpy,
  openNpz,
  loadTensors,
  gguf: Gguf.open,
  torch: TorchFile.open,
  safetensors: SafeTensors.open,
};

test('paths that cannot be followed are typed errors', () => {
  writeFileSync(join(dir, 'file'), 'x');
  symlinkSync(join(dir, 'loop'), join(dir, 'loop'));
  const paths = [
    join(dir, 'absent'),
    join(dir, 'file', 'below'),
    join(dir, 'loop'),
    `${dir}/nul\0byte`,
    `${dir}/${'n'.repeat(300)}`,
    '',
  ];
  for (const [name, open] of Object.entries(OPENERS))
    for (const path of paths) assert.throws(() => open(path), FormatError, `${name}(${JSON.stringify(path)})`);
});

test('a file that cannot be written is a typed error and leaves nothing behind', () => {
  const folder = join(dir, 'out');
  mkdirSync(folder);
  writeFileSync(join(folder, 'file'), 'x');
  symlinkSync(join(folder, 'loop'), join(folder, 'loop'));
  mkdirSync(join(folder, 'taken.safetensors'));
  const before = readdirSync(folder);
  const tensors = { t: ones([2], { device: 'cpu' }) };
  for (const path of [
    'absent/a.safetensors',
    'file/a.npz',
    'loop/a.gguf',
    'nul\0.npz',
    `${'n'.repeat(300)}.npz`,
    'taken.safetensors',
  ])
    assert.throws(() => saveTensors(join(folder, path), tensors), WickError, path);
  assert.throws(() => saveTensors(join(folder, 'a.txt'), tensors), ArgumentError);
  assert.deepEqual(readdirSync(folder), before);
});

const descriptors = (): number => readdirSync('/proc/self/fd').length;
test('opening bad files leaves no descriptor open', {
  skip: process.platform !== 'linux' && 'only Linux shows descriptors',
}, () => {
  const npy = readFileSync(join(files, 'c.npy'));
  const bad: Record<string, Buffer> = {
    'a.npy': npy.subarray(0, npy.length - 1),
    'b.npz': readFileSync(join(files, 'stored.npz')).subarray(0, 400),
    'c.gguf': readFileSync(join(files, 'model.gguf')).subarray(0, 100),
    'd.pt': readFileSync(join(files, 'state-zip.pt')).subarray(0, 700),
    'e.pt': readFileSync(join(files, 'state-legacy.pt')).subarray(0, 300),
    'f.safetensors': readFileSync(join(files, 'dtypes.safetensors')).subarray(0, 90),
  };
  for (const [name, bytes] of Object.entries(bad)) writeFileSync(join(dir, name), bytes);
  const shards = join(dir, 'shards');
  mkdirSync(shards);
  writeFileSync(join(shards, 'a.safetensors'), readFileSync(join(files, 'dtypes.safetensors')));
  writeFileSync(join(shards, 'b.safetensors'), bad['f.safetensors']);
  const before = descriptors();
  for (let i = 0; i < 100; i++)
    for (const open of Object.values(OPENERS))
      for (const path of [...Object.keys(bad).map((name) => join(dir, name)), shards])
        assert.throws(() => open(path), WickError);
  assert.equal(descriptors(), before);
});

test('any range of any array is that range of the whole, in either byte and memory order', () => {
  for (const name of readdirSync(files).filter((f) => f.endsWith('.npy'))) {
    const record = openNpy(join(files, name), { widen: true });
    const whole = record.read().slice();
    for (let a = 0; a <= whole.length; a += 1)
      for (let b = a; b <= whole.length; b += 1 + ((a * 7) % 5))
        assert.deepEqual(record.read(a, b), whole.slice(a, b), `${name} ${a} to ${b}`);
  }
});
