// safetensors: round trips, strict headers, foreign types, shards, lazy ranges, atomic writes.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { ArgumentError, DTypeError, FormatError, OutOfMemoryError } from '../src/base/errors.js';
import { openSource } from '../src/io/byte-source.js';
import { SafeTensors, safetensorsBytes, writeSafetensors } from '../src/io/safetensors.js';
import { memoryRecord, slices } from '../src/io/stored-dtype.js';
import { missingGolden } from '../src/parity/golden.js';
import { anyRecords, broken, golden, heldBytes, sameRecord, scratch, survives } from './io-support.js';

const dir = scratch();

/** A file with the given header text and data. */
function file(header: unknown, data: Uint8Array | number = 0, length?: bigint): Uint8Array {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(length ?? BigInt(json.length));
  return new Uint8Array(Buffer.concat([size, json, typeof data === 'number' ? Buffer.alloc(data) : data]));
}
const entry = (dtype: string, shape: unknown, data_offsets: unknown) => ({ dtype, shape, data_offsets });

test('what is written is read back, byte for byte, in every dtype', () => {
  fc.assert(
    fc.property(anyRecords(), fc.dictionary(fc.string(), fc.string()), (records, metadata) => {
      const st = SafeTensors.open(safetensorsBytes(records, metadata));
      assert.equal(st.names.length, records.length);
      for (const record of records) sameRecord(st.record(record.name), record);
      assert.deepEqual(Object.fromEntries(st.metadata), Object.fromEntries(Object.entries(metadata)));
    }),
  );
});

test("a source of one's own is taken as it is, and what is none is refused", () => {
  const own = { name: 'own', size: 0, readInto: () => {}, close: () => {} };
  assert.equal(openSource(own), own);
  assert.throws(() => openSource({ size: 9 } as never), /a source of bytes, not by object/);
});

test('tensors are written with wide elements first, aligned to their element', () => {
  const bytes = safetensorsBytes([
    memoryRecord('a', 'u8', [3], new Uint8Array(3)),
    memoryRecord('b', 'f64', [1], new Uint8Array(8)),
    memoryRecord('c', 'f16', [1], new Uint8Array(2)),
  ]);
  const st = SafeTensors.open(bytes);
  assert.deepEqual(st.names, ['b', 'c', 'a']);
  assert.equal(st.info('b').start % 8, 0);
});

const BAD: [name: string, bytes: Uint8Array, message: RegExp][] = [
  ['an empty file', new Uint8Array(0), /at byte 0: header length needs 8 bytes, 0 are left/],
  ['a header longer than the file', file('{}', 0, 100n), /header length is 100, at most 2 can be/],
  ['a header length of 2^64 - 1', file('{}', 0, 2n ** 64n - 1n), /header length is 18446744073709551615/],
  ['a header that is no JSON', file('{"a":'), /at byte 13: header: ends in the middle/],
  ['a header that is an array', file('[]'), /must begin with "\{"/],
  [
    'bytes that are no UTF-8',
    file('{"a\xff":1}'.replace('\xff', '�')).map((b) => (b === 0xef ? 0xff : b)),
    /at byte 8: header: is no UTF-8/,
  ],
  [
    'a tensor twice',
    file(
      '{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
      1,
    ),
    /at byte 61: header: key "t" is there twice/,
  ],
  [
    'a field twice',
    file('{"t":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 1),
    /key "dtype" is there twice/,
  ],
  ['metadata twice', file('{"__metadata__":{"a":"1","a":"2"}}'), /key "a" is there twice/],
  ...['1.0', '1e0', '-0', '01', '+1', '1.', 'true', '"1"', '[1]', '9007199254740993'].map(
    (dim): [string, Uint8Array, RegExp] => [
      `a dimension written ${dim}`,
      file(`{"t":{"dtype":"U8","shape":[${dim}],"data_offsets":[0,1]}}`, 1),
      /at byte \d+: header: /,
    ],
  ),
  [
    'an offset written 1.0',
    file('{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1.0]}}', 1),
    /data_offsets \[0, 1.0\] must be two whole numbers/,
  ],
  [
    'dimensions that overflow beside a 0',
    file({ t: entry('F32', [2 ** 40, 2 ** 40, 0], [0, 0]) }),
    /takes no possible number of bytes/,
  ],
  ['a comma before the end', file('{"__metadata__":{},}'), /a key expected/],
  ['text after the object', file('{} x'), /at byte 11: header: goes on after its object/],
  ['an escape that JSON does not know', file('{"\\x":1}'), /an escape that JSON does not know/],
  ['an unknown dtype', file({ t: entry('F99', [1], [0, 4]) }, 4), /tensor "t": dtype "F99" is not known/],
  ['a dtype from the prototype', file({ t: entry('toString', [1], [0, 4]) }, 4), /dtype "toString" is not known/],
  ['a negative dimension', file({ t: entry('F32', [-1], [0, 4]) }, 4), /shape \[-1\] must be whole numbers/],
  ['a fractional dimension', file({ t: entry('F32', [1.5], [0, 6]) }, 6), /must be whole numbers/],
  [
    'a shape that does not fit its bytes',
    file({ t: entry('F32', [2], [0, 4]) }, 4),
    /F32 of shape \[2\] takes 8 bytes, data_offsets hold 4/,
  ],
  [
    'a shape whose product overflows',
    file({ t: entry('F32', [2 ** 52, 2 ** 52], [0, 4]) }, 4),
    /takes no possible number of bytes/,
  ],
  [
    'offsets beyond the data',
    file({ t: entry('F32', [2], [0, 8]) }, 4),
    /data_offsets \[0, 8\] leave the 4 bytes of data/,
  ],
  ['offsets in reverse', file({ t: entry('F32', [1], [4, 0]) }, 4), /data_offsets \[4, 0\]/],
  [
    'overlapping tensors',
    file({ a: entry('F32', [1], [0, 4]), b: entry('F32', [1], [2, 6]) }, 6),
    /"b" starts at byte \d+: it overlaps another/,
  ],
  [
    'a gap between tensors',
    file({ a: entry('F32', [1], [0, 4]), b: entry('F32', [1], [8, 12]) }, 12),
    /a gap lies before it/,
  ],
  [
    'bytes after the last tensor',
    file({ a: entry('F32', [1], [0, 4]) }, 5),
    /1 bytes after the last tensor belong to none/,
  ],
  ['metadata that is not a text', file({ __metadata__: { a: 1 } }), /__metadata__: "a" must be a string/],
  ['an entry that is null', file({ a: null }), /tensor "a": must be an object/],
];
for (const [name, bytes, message] of BAD) {
  test(`refuses ${name} and says where`, () => {
    assert.throws(
      () => SafeTensors.open(bytes),
      (e: Error) => e instanceof FormatError && message.test(e.message) && e.message.startsWith('buffer: at byte'),
    );
  });
}

test('a huge length is refused before any memory is taken for it', () => {
  assert.ok(heldBytes(() => assert.throws(() => SafeTensors.open(file('{}', 0, 99_000_000n)), FormatError)) < 1 << 20);
});

test('foreign dtypes are refused by name and widened without loss on request', () => {
  const st = SafeTensors.open(
    file(
      {
        b: entry('BOOL', [2], [0, 2]),
        c: entry('I8', [2], [2, 4]),
        d: entry('U16', [2], [4, 8]),
        e: entry('F8_E5M2', [2], [8, 10]),
        f: entry('U64', [1], [10, 18]),
      },
      new Uint8Array([1, 0, 0x80, 0x7f, 0xff, 0xff, 1, 0, 0x3c, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ),
  );
  assert.throws(
    () => st.read('d'),
    (e: Error) => e instanceof DTypeError && /dtype u16 is none of .*\{ widen: true \} reads it as u32/.test(e.message),
  );
  assert.throws(
    () => st.record('f', { widen: true }),
    (e: Error) => e instanceof DTypeError && /dtype u64 .*no type here holds it without loss/.test(e.message),
  );
  const wide = (name: string) => {
    const r = st.record(name, { widen: true });
    return [r.dtype, r.read()] as const;
  };
  assert.deepEqual(wide('b'), ['bool', new Uint8Array([1, 0])]);
  assert.deepEqual(wide('c'), ['i8', new Uint8Array([0x80, 0x7f])]);
  const [u32, d] = wide('d');
  assert.deepEqual([u32, ...new Uint32Array(d.slice().buffer)], ['u32', 65535, 1]);
  assert.deepEqual(wide('e'), ['f8e5m2', new Uint8Array([0x3c, 0xc0])]);
});

test('any byte range of a widened tensor is the same as that range of the whole', () => {
  const st = SafeTensors.open(file({ c: entry('U16', [3], [0, 6]) }, new Uint8Array([1, 255, 3, 128, 5, 6])));
  const record = st.record('c', { widen: true });
  const all = record.read();
  for (let a = 0; a <= 12; a++) for (let b = a; b <= 12; b++) assert.deepEqual(record.read(a, b), all.slice(a, b));
  assert.throws(() => record.read(0, 13), ArgumentError);
});

test('tensors beyond 4 GiB are listed and read in slices without holding them whole', () => {
  const size = 2 ** 32 + 64;
  const path = join(dir, 'sparse.safetensors');
  writeFileSync(path, file({ big: entry('U8', [size], [0, size]) }));
  truncateSync(path, readFileSync(path).length + size); // a hole in the file: takes no disk
  using st = SafeTensors.open(path);
  const record = st.record('big');
  assert.equal(record.byteLength, size);
  assert.throws(() => record.read(), OutOfMemoryError);
  assert.deepEqual(record.read(size - 8), new Uint8Array(8));
  const first = slices(record).next();
  assert.equal((first.value as Uint8Array).length, 256 * 2 ** 20);
});

test('a shard index joins files, and may not name files elsewhere', () => {
  const model = join(dir, 'sharded');
  mkdirSync(model);
  const part = (name: string, v: number) => memoryRecord(name, 'u8', [2], new Uint8Array([v, v]));
  writeSafetensors(join(model, 'x-1.safetensors'), [part('a', 1), part('b', 2)]);
  writeSafetensors(join(model, 'x-2.safetensors'), [part('c', 3)]);
  const index = (map: Record<string, string>) =>
    writeFileSync(join(model, 'model.safetensors.index.json'), JSON.stringify({ weight_map: map }));
  index({ a: 'x-1.safetensors', b: 'x-1.safetensors', c: 'x-2.safetensors' });
  for (const from of [model, join(model, 'model.safetensors.index.json')]) {
    using st = SafeTensors.open(from);
    assert.deepEqual(st.names, ['a', 'b', 'c']);
    assert.deepEqual(st.read('c'), new Uint8Array([3, 3]));
  }
  // What the index leaves out is there all the same; what it names twice, it decides.
  index({ a: 'x-1.safetensors', c: 'x-2.safetensors' });
  {
    using st = SafeTensors.open(model);
    assert.deepEqual(st.names, ['a', 'c', 'b']);
    assert.deepEqual(st.read('b'), new Uint8Array([2, 2]));
  }
  writeSafetensors(join(model, 'x-3.safetensors'), [part('b', 9), part('d', 4)]);
  index({ a: 'x-1.safetensors', b: 'x-3.safetensors' });
  {
    using st = SafeTensors.open(model);
    assert.deepEqual(st.read('b'), new Uint8Array([9, 9]));
  }
  index({ a: 'x-1.safetensors', d: 'x-3.safetensors' });
  assert.throws(
    () => SafeTensors.open(model),
    /tensor "b", which weight_map does not name, is in .*x-1.* and in .*x-3/,
  );
  index({ a: '../secret.safetensors' });
  assert.throws(
    () => SafeTensors.open(model),
    /names "..\/secret.safetensors", which is no \*.safetensors file beside it/,
  );
  index({ z: 'x-1.safetensors' });
  assert.throws(() => SafeTensors.open(model), /tensor "z" is not in x-1.safetensors/);
  for (const map of [null, [], 'x-1.safetensors', 3]) {
    index(map as never);
    assert.throws(() => SafeTensors.open(model), /weight_map must be an object of tensor names and files/);
  }
});

test('a directory without index is the union of its files, and a name in two of them an error', () => {
  const model = join(dir, 'plain');
  mkdirSync(model);
  writeSafetensors(join(model, '1.safetensors'), [memoryRecord('a', 'u8', [], new Uint8Array(1))]);
  writeSafetensors(join(model, '2.safetensors'), [memoryRecord('b', 'u8', [], new Uint8Array(1))]);
  assert.deepEqual(SafeTensors.open(model).names, ['a', 'b']);
  writeSafetensors(join(model, '3.safetensors'), [memoryRecord('b', 'u8', [], new Uint8Array(1))]);
  assert.throws(() => SafeTensors.open(model), /tensor "b" is also in/);
});

test('a write that fails leaves the old file and no draft', () => {
  const home = join(dir, 'atomic');
  mkdirSync(home);
  const path = join(home, 'm.safetensors');
  writeSafetensors(path, [memoryRecord('a', 'u8', [1], new Uint8Array([7]))]);
  const failing = {
    ...memoryRecord('a', 'u8', [1], new Uint8Array(1)),
    read: () => {
      throw new Error('device lost');
    },
  };
  assert.throws(() => writeSafetensors(path, [failing]), /device lost/);
  assert.deepEqual(readdirSync(home), ['m.safetensors']);
  assert.deepEqual(SafeTensors.open(path).read('a'), new Uint8Array([7]));
});

test('missing names and files are named', () => {
  assert.throws(() => SafeTensors.open(file('{}')).info('w'), /no tensor "w" in buffer/);
  assert.throws(
    () => SafeTensors.open(join(dir, 'none.safetensors')),
    (e: Error) => e instanceof FormatError && /cannot be opened: ENOENT/.test(e.message),
  );
});

test('damaged files give a result or a typed error', () => {
  const good = safetensorsBytes(
    [memoryRecord('weight', 'f32', [2, 3], new Uint8Array(24)), memoryRecord('b', 'i16', [4], new Uint8Array(8))],
    { k: 'v' },
  );
  fc.assert(
    fc.property(broken(good), (bytes) => {
      survives(() =>
        SafeTensors.open(bytes)
          .records({ widen: true })
          .forEach((r) => r.read()),
      );
    }),
    { numRuns: 500 },
  );
});

test('reads the files Hugging Face wrote', { skip: missingGolden('hf', 'candle-cuda.safetensors') }, () => {
  for (const model of readdirSync(golden('hf'))) {
    using st = SafeTensors.open(golden('hf', model));
    for (const record of st.records()) assert.equal(record.read().length, record.byteLength);
    assert.ok(st.names.length > 10, model);
  }
  using cases = SafeTensors.open(golden('candle-cuda.safetensors'));
  assert.ok(cases.names.length > 1600);
});

test('reads the file PyTorch wrote', { skip: missingGolden('fixtures/torch-pt') }, () => {
  using layers = SafeTensors.open(golden('fixtures', 'torch-pt', 'multi_layer__multi_layer.safetensors'));
  assert.deepEqual(layers.names.filter((n) => n.startsWith('conv1')).sort(), ['conv1.bias', 'conv1.weight']);
});
