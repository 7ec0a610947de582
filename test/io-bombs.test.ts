// Small files that would be costly to read: each is refused by its budget, with the byte, before it takes much memory.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FormatError } from '../src/base/errors.js';
import { Gguf } from '../src/io/gguf.js';
import { openNpy, openNpz } from '../src/io/npy.js';
import { openTensors } from '../src/io/open.js';
import { SafeTensors } from '../src/io/safetensors.js';
import { TorchFile } from '../src/io/torch.js';
import { collect } from '../src/io/atomic-file.js';
import { writeZip } from '../src/io/zip.js';
import { scratch } from './io-support.js';
import * as p from './io-torch-build.js';

const dir = scratch();
const u32 = (...v: number[]): Buffer => Buffer.from(Uint32Array.from(v).buffer);
const u64 = (...v: number[]): Buffer => Buffer.from(BigUint64Array.from(v.map(BigInt)).buffer);
const text = (s: string): Buffer => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)]);
const times = (n: number, make: (i: number) => Buffer): Buffer[] => Array.from({ length: n }, (_, i) => make(i));

/** A file whose length is a hole: head, nothing, tail. */
function sparse(name: string, head: Buffer, length: number, tail = Buffer.alloc(0)): string {
  const path = join(dir, name);
  const fd = openSync(path, 'w');
  writeSync(fd, head);
  ftruncateSync(fd, length);
  writeSync(fd, tail, 0, tail.length, length);
  closeSync(fd);
  return path;
}

const gguf = (...parts: Buffer[]): Buffer => Buffer.concat([Buffer.from('GGUF'), u32(3), ...parts]);
const deflated = (root: Buffer): Uint8Array => {
  const bytes = p.pickle(root);
  return collect((write) =>
    writeZip([{ name: 'archive/data.pkl', size: bytes.length, slices: () => [bytes] }], true, write),
  );
};
const shared = (...items: Buffer[]): Buffer => p.list(...items);

/** A stored member of 3.9 GB that is a hole: its checksum alone would take seconds. */
function hollowZip(): string {
  const size = 3_900_000_000;
  const name = Buffer.from('x.npy');
  const local = Buffer.concat([
    u32(0x04034b50),
    Buffer.alloc(14),
    u32(size, size),
    Buffer.from([name.length, 0, 0, 0]),
    name,
  ]);
  const central = Buffer.concat([
    u32(0x02014b50),
    Buffer.alloc(16),
    u32(size, size),
    Buffer.from([name.length, 0]),
    Buffer.alloc(12),
    u32(0),
    name,
  ]);
  const at = local.length + size;
  const end = Buffer.concat([u32(0x06054b50, 0), Buffer.from([1, 0, 1, 0]), u32(central.length, at), Buffer.alloc(2)]);
  return sparse('hollow.npz', local, at, Buffer.concat([central, end]));
}

/** Each opens a bomb of its kind; the pattern is the refusal. */
const BOMBS: readonly [name: string, open: () => unknown, message?: RegExp][] = [
  [
    'an OrderedDict call copies a long list, thousands of times',
    () => {
      const items = p.put(p.list(...times(20_000, (i) => p.tuple(p.int(i), p.none()))), 0);
      const dict = p.put(p.global('collections', 'OrderedDict'), 1);
      const copies = times(20_000, () => p.call(p.get(1), p.get(0)));
      return TorchFile.open(p.zipFile(p.tuple(items, dict, ...copies), {}));
    },
  ],
  [
    'calls whose arguments hold shared lists three deep',
    () => {
      const lists = [p.put(p.list(...times(32, () => p.none())), 0)];
      for (let i = 1; i < 4; i++) lists.push(p.put(shared(...times(32, () => p.get(i - 1))), i));
      const objects = times(20_000, () => p.call(p.get(9), p.get(3)));
      return TorchFile.open(p.zipFile(p.tuple(p.put(p.global('x', 'y'), 9), ...lists, ...objects), {}));
    },
  ],
  [
    'a long list of numbers, visited a hundred thousand times',
    () => {
      const long = p.put(p.list(...times(100_000, () => p.int(1))), 0);
      return TorchFile.open(p.zipFile(p.list(long, p.dict(), ...times(100_000, () => p.get(0))), {}));
    },
  ],
  [
    'names of four thousand characters, fifty thousand of them',
    () => {
      let root = p.dict(...times(50_000, () => p.none()).map((n, i): [Buffer, Buffer] => [p.int(i), n]));
      for (let i = 0; i < 48; i++) root = p.dict([p.str(`${i}`.padEnd(80, 'x')), root]);
      return TorchFile.open(p.zipFile(root, {}));
    },
    /bytes of memory/,
  ],
  [
    'seventeen million memo entries',
    () => TorchFile.open(deflated(Buffer.concat([p.none(), Buffer.alloc(17_000_000, 0x94)]))),
    /bytes of memory/,
  ],
  [
    'millions of empty dicts in a deflated pickle',
    () => TorchFile.open(deflated(Buffer.concat([Buffer.from('('), Buffer.alloc(5_000_000, '}'), Buffer.from('t')]))),
    /bytes of memory/,
  ],
  [
    'storages of one byte, millions of them, named in a hole',
    () => Gguf.open(sparse('many.gguf', gguf(u64(10_000_000, 0)), 400_000_000)),
    /bytes of memory|twice/,
  ],
  [
    'an array of booleans in a hole',
    () => Gguf.open(sparse('bools.gguf', gguf(u64(0, 1), text('k'), u32(9, 7), u64(150_000_000)), 160_000_000)),
    /bytes of memory/,
  ],
  [
    'an array of numbers in a hole',
    () => Gguf.open(sparse('numbers.gguf', gguf(u64(0, 1), text('k'), u32(9, 5), u64(500_000_000)), 2_100_000_000)),
    /bytes of memory/,
  ],
  [
    'arrays in an array in a hole',
    () => Gguf.open(sparse('arrays.gguf', gguf(u64(0, 1), text('k'), u32(9, 9), u64(10_000_000)), 160_000_000)),
    /bytes of memory/,
  ],
  [
    'a text in a hole',
    () => Gguf.open(sparse('text.gguf', gguf(u64(0, 1), text('k'), u32(8), u64(600_000_000)), 700_000_000)),
    /bytes of memory/,
  ],
  [
    'a key of 600 MB',
    () => Gguf.open(sparse('key.gguf', gguf(u64(0, 1), u64(600_000_000)), 700_000_000)),
    /key 0 has 600000000 bytes, the format allows 1 to 65535/,
  ],
  [
    'a safetensors header in a hole',
    () =>
      SafeTensors.open(sparse('header.safetensors', Buffer.concat([u64(99_000_000), Buffer.from('{')]), 100_000_000)),
    /bytes of memory/,
  ],
  ['a stored member that is a hole', () => openNpz(hollowZip())],
];

for (const [name, open, message = /steps of work|bytes of memory/] of BOMBS) {
  test(`refused: ${name}`, () => {
    const before = process.resourceUsage().maxRSS;
    assert.throws(
      open,
      (e: Error) => e instanceof FormatError && message.test(e.message) && /: at byte \d+: /.test(e.message),
    );
    const grown = (process.resourceUsage().maxRSS - before) / 1024;
    assert.ok(grown < 400, `${grown.toFixed(0)} MB more memory`);
  });
}

test('refused: a legacy list of storages whose key is a long tuple, a hundred thousand times', () => {
  const key = p.put(p.tuple(...times(50_000, () => p.int(1))), 0);
  const keys = p.pickle(p.list(key, ...times(100_000, () => p.get(0))));
  const whole = Buffer.from(p.legacyFile(p.dict(), []));
  const head = whole.subarray(0, whole.length - p.pickle(p.list()).length);
  assert.throws(
    () => TorchFile.open(new Uint8Array(Buffer.concat([head, keys, Buffer.alloc(8)]))),
    (e: Error) => e instanceof FormatError && /at byte \d+: storage \(object\) has no known type/.test(e.message),
  );
});

test('a file with much real metadata is read', () => {
  const root = p.dict(
    ...times(40_000, (i) => p.str(`layer.${i}.weight`)).map((key): [Buffer, Buffer] => [
      key,
      p.list(p.int(3), p.int(4)),
    ]),
  );
  using file = TorchFile.open(p.zipFile(root, {}));
  assert.equal(file.metadata.size, 40_000);
  const tokens = times(300_000, (i) => text(`token ${i}`));
  using g = Gguf.open(new Uint8Array(gguf(u64(0, 1), text('t'), u32(9, 8), u64(tokens.length), Buffer.concat(tokens))));
  assert.equal((g.get('t') as string[]).length, 300_000);
});

const OPENERS = {
  openTensors,
  openNpy,
  openNpz,
  gguf: Gguf.open,
  torch: TorchFile.open,
  safetensors: SafeTensors.open,
};

test('only regular files are opened: pipes, devices and folders are refused without waiting', () => {
  const pipe = join(dir, 'pipe');
  assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
  const folder = join(dir, 'folder');
  mkdirSync(folder);
  for (const [name, open] of Object.entries(OPENERS)) {
    for (const path of [pipe, '/dev/zero', '/dev/null', folder]) {
      const rule =
        path === folder && (name === 'openTensors' || name === 'safetensors')
          ? /holds no model\.safetensors\.index\.json/
          : /is not a regular file/;
      assert.throws(
        () => open(path),
        (e: Error) => e instanceof FormatError && rule.test(e.message),
        `${name} ${path}`,
      );
    }
  }
});

test('an index that is a pipe or a folder is refused too', () => {
  const folder = join(dir, 'sharded');
  mkdirSync(folder);
  assert.equal(spawnSync('mkfifo', [join(folder, 'model.safetensors.index.json')]).status, 0);
  assert.throws(() => SafeTensors.open(folder), FormatError);
  const broken = join(dir, 'broken.index.json');
  writeFileSync(broken, '{"weight_map": {');
  assert.throws(() => SafeTensors.open(broken), FormatError);
});
