// `wick inspect`: every format's metadata and tensors, tables that fit, and bad files in one sentence.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';
import { fit, printable } from '../src/cli/table.js';
import { describeFile } from '../src/io/index.js';
import { scratch, wick } from './cli-support.js';

const files = join(packageRoot, 'test/golden/files');
interface Report {
  readonly format: string;
  readonly version?: number;
  readonly metadata: Record<string, unknown>;
  readonly tensors: readonly { name: string; type: string; shape: number[]; bytes: number }[];
  readonly totals: { tensors: number; elements: number; bytes: number };
}
function inspect(path: string): Report {
  const r = wick('inspect', path, '--json');
  assert.equal(r.status, 0, r.stderr);
  return JSON.parse(r.stdout) as Report;
}

test('--json of a GGUF file: every value of the metadata, every tensor', () => {
  const { format, version, metadata, tensors, totals } = inspect(join(files, 'model.gguf'));
  assert.deepEqual([format, version], ['gguf', 3]);
  assert.equal(metadata['general.architecture'], 'llama');
  assert.equal(metadata['t.u64'], '18446744073709551615');
  assert.deepEqual(metadata['t.ints'], [1, -2, 3]);
  assert.deepEqual(tensors[1], { name: 'blk.0.ffn_down.weight', type: 'F32', shape: [64, 96], bytes: 24576 });
  assert.deepEqual([totals.tensors, totals.elements, totals.bytes], [3, 7232, 28928]);
});

test('--json of safetensors: a file, a folder, foreign types', () => {
  const one = inspect(join(files, 'dtypes.safetensors'));
  assert.equal(one.format, 'safetensors');
  assert.deepEqual(one.metadata, { format: 'pt', note: 'größe' });
  assert.deepEqual(
    one.tensors.find((t) => t.name === 'int8'),
    { name: 'int8', type: 'i8', shape: [3, 4], bytes: 12 },
  );
  const folder = inspect(join(packageRoot, 'models/builtin'));
  assert.deepEqual([folder.totals.tensors, folder.totals.elements], [38, 3213568]);
});

test('--json of PyTorch files, both formats: the same tensors', () => {
  const [zip, legacy] = ['nested-zip.pt', 'nested-legacy.pt'].map((f) => inspect(join(files, f)));
  assert.equal(zip.format, 'torch');
  assert.equal(zip.metadata.epoch, 3);
  assert.deepEqual(zip.tensors, legacy.tensors);
  assert.deepEqual(zip.tensors[1], { name: 'model.conv.weight', type: 'f32', shape: [4, 3, 3, 3], bytes: 432 });
});

test('--json of NumPy files: types that no tensor has, big-endian ones and arrays of nothing', () => {
  const { format, tensors } = inspect(join(files, 'deflated.npz'));
  assert.equal(format, 'npz');
  const types = Object.fromEntries(tensors.map((t) => [t.name, `${t.type} ${t.shape.join('x')} ${t.bytes}`]));
  assert.deepEqual([types.i8, types.u16, types.bigf, types.zero], ['i8 8 8', 'u16 2 4', 'i32 2x3x4 96', 'f64 0x3 0']);
  const npy = inspect(join(files, 'i8.npy'));
  assert.deepEqual([npy.format, npy.tensors], ['npy', [{ name: '', type: 'i8', shape: [8], bytes: 8 }]]);
});

test('the table names every tensor and ends with the sum', () => {
  const { status, stdout } = wick('inspect', join(files, 'model.gguf'));
  assert.equal(status, 0);
  for (const name of describeFile(join(files, 'model.gguf')).tensors.map((t) => t.name))
    assert.ok(stdout.includes(name));
  assert.match(stdout, /^3 tensors of 7232 elements in 28\.3 KiB, 32\.00 bits each$/m);
});

test('of several columns that give way, the later ones do so only where it is needed', () => {
  const rows = [['neg', 'a'.repeat(30), 'b'.repeat(60)]];
  for (const [columns, dtypes, what] of [
    [120, 30, 60],
    [80, 30, 43],
    [60, 30, 23],
    [30, 15, 8],
  ]) {
    const [, rule] = fit(['op', 'dtypes', 'what'], rows, [2, 1], columns).split('\n');
    assert.deepEqual(
      rule.split('  ').map((r) => r.length),
      [3, dtypes, what],
      `${columns} columns`,
    );
  }
});
test('a table is no wider than the terminal, and keeps both ends of a name', () => {
  const lines = fit(['tensor', 'bytes'], [[`blk.${'x'.repeat(200)}.weight`, 12]], 0, 50).split('\n');
  assert.ok(
    lines.every((l) => l.length <= 50),
    lines.join('\n'),
  );
  assert.match(lines[2], /^blk\.x+…x+\.weight +12$/);
});

test("a file's text cannot move the cursor", () => {
  assert.equal(printable('a\x1b[2Jb\nc\u009bd\u202ee ü😀'), 'a\\u001b[2Jb\\nc\ufffdd\ufffde ü😀');
});

test('a file that is none of the formats is told so, one that is called safetensors what is wrong with it', () => {
  const folder = scratch();
  for (const [name, said] of [
    ['notes.txt', /notes\.txt: is no GGUF, safetensors, PyTorch, npz or npy file by its first bytes\n$/],
    ['notes.safetensors', /notes\.safetensors: at byte 0: header length is \d+, at most \d+ can be\n$/],
  ] as const) {
    writeFileSync(join(folder, name), 'once upon a time there was no tensor');
    assert.match(wick('inspect', join(folder, name)).stderr, said);
  }
});
test('bad input is one sentence', () => {
  const broken = join(scratch(), 'broken.gguf');
  writeFileSync(broken, Buffer.from('GGUF\x03\0\0\0\xff\xff', 'latin1'));
  for (const args of [[], ['a', 'b'], [broken], [join(files, 'absent.gguf')], [join(files, 'expected.json')]]) {
    const { status, stdout, stderr } = wick('inspect', ...args);
    assert.deepEqual([status, stdout], [1, ''], args.join(' '));
    assert.match(stderr, /^wick inspect: [^\n]+\n$/);
  }
});
