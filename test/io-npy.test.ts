// npy, npz and the zip archives under them: round trips, both byte and memory orders, bombs and damage refused.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { DTypeError, FormatError } from '../src/base/errors.js';
import { collect } from '../src/io/atomic-file.js';
import { MemorySource, readBytes } from '../src/io/byte-source.js';
import { npyBytes, npyHolds, npzBytes, openNpy, openNpz, writeNpy, writeNpz } from '../src/io/npy.js';
import { DTYPES } from '../src/base/dtype.js';
import { memoryRecord } from '../src/io/stored-dtype.js';
import { ZipFile, writeZip } from '../src/io/zip.js';
import { missingGolden } from '../src/parity/golden.js';
import { anyRecord, anyRecords, broken, golden, heldBytes, sameRecord, scratch, survives } from './io-support.js';

const dir = scratch();
const HELD = DTYPES.filter(npyHolds);

/** An .npy file with the given header and data. */
function npy(header: string, data: ArrayBufferView, version = 1): Uint8Array {
  const text = Buffer.from(`${header}\n`, 'latin1');
  const lead = Buffer.from([
    0x93,
    0x4e,
    0x55,
    0x4d,
    0x50,
    0x59,
    version,
    0,
    text.length & 255,
    text.length >> 8,
    ...(version > 1 ? [0, 0] : []),
  ]);
  return new Uint8Array(Buffer.concat([lead, text, Buffer.from(data.buffer, data.byteOffset, data.byteLength)]));
}

test('npy: what is written is read back in every dtype NumPy has', () => {
  assert.deepEqual(HELD, ['bool', 'u8', 'u32', 'i16', 'i32', 'i64', 'f16', 'f32', 'f64']);
  fc.assert(fc.property(anyRecord(HELD), (record) => sameRecord(openNpy(npyBytes(record)), record)));
});

test('npy: data starts at a multiple of 64 bytes', () => {
  const bytes = npyBytes(memoryRecord('', 'u8', [3], new Uint8Array([1, 2, 3])));
  assert.equal((bytes.length - 3) % 64, 0);
  assert.equal(bytes[bytes.length - 4], 10);
});

test('npy: fortran order is put into row-major order', () => {
  const data = Float32Array.from([0, 3, 1, 4, 2, 5]);
  const record = openNpy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", data));
  assert.deepEqual([...new Float32Array(record.read().slice().buffer)], [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(record.read(4, 12), record.read().slice(4, 12));
});

test('npy: big-endian numbers are swapped, in any range', () => {
  const record = openNpy(
    npy("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }", new Uint8Array([0, 0, 0, 1, 0, 0, 1, 0])),
  );
  assert.deepEqual([...new Int32Array(record.read().slice().buffer)], [1, 256]);
  assert.deepEqual(record.read(3, 6), record.read().slice(3, 6));
});

test('npy: versions 2 and 3 are read', () => {
  for (const version of [2, 3]) {
    const record = openNpy(
      npy("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", new Uint8Array([9]), version),
    );
    assert.deepEqual([record.shape, record.read()], [[], new Uint8Array([9])]);
  }
});

test('npy: truth values are bool, whatever byte stands for true', () => {
  const bools = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", new Uint8Array([1, 0, 7]));
  assert.equal(openNpy(bools).dtype, 'bool');
  assert.deepEqual(openNpy(bools).read(), new Uint8Array([1, 0, 1]));
  assert.deepEqual(openNpy(bools).read(2, 3), new Uint8Array([1]));
});

test('npy: foreign types are named, and widened on request', () => {
  const bytes = npy("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", new Uint8Array([1, 0]));
  assert.throws(
    () => openNpy(bytes),
    (e: Error) => e instanceof DTypeError && /dtype u16/.test(e.message),
  );
  assert.equal(openNpy(bytes, { widen: true }).dtype, 'u32');
  for (const descr of ["'|O'", "[('a', '<f4')]", "'<U3'", "'toString'"]) {
    assert.throws(
      () => openNpy(npy(`{'descr': ${descr}, 'fortran_order': False, 'shape': (1,), }`, new Uint8Array(4))),
      DTypeError,
    );
  }
  assert.throws(
    () => npyBytes(memoryRecord('w', 'bf16', [1], new Uint8Array(2))),
    (e: Error) => e instanceof DTypeError && /NumPy has no bf16 to hold tensor "w"/.test(e.message),
  );
});

const BAD: [name: string, bytes: Uint8Array, message: RegExp][] = [
  ['no magic', new Uint8Array(20), /magic: must be/],
  ['an unknown version', npy('{}', new Uint8Array(0), 9), /at byte 6: version 9/],
  [
    'a header beyond the file',
    npy('{}', new Uint8Array(0)).subarray(0, 11),
    /at byte 10: header needs 3 bytes, 1 are left/,
  ],
  ['code in the header', npy("{'descr': __import__('os')}", new Uint8Array(0)), /is no Python literal/],
  ['deep nesting', npy(`{'descr': ${'('.repeat(5000)}`, new Uint8Array(0)), /nested too deep/],
  [
    'a shape that overflows',
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9007199254740991, 9007199254740991), }", new Uint8Array(4)),
    /takes too many bytes, the file holds 4/,
  ],
  [
    'too little data',
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", new Uint8Array(4)),
    /takes 8 bytes, the file holds 4/,
  ],
  ['a key twice', npy("{'shape': (1,), 'shape': (2,)}", new Uint8Array(4)), /key "shape" is there twice/],
];
for (const [name, bytes, message] of BAD) {
  test(`npy: refuses ${name}`, () => {
    assert.throws(
      () => openNpy(bytes),
      (e: Error) => e instanceof FormatError && message.test(e.message),
    );
  });
}

test('npz: round trips, stored and deflated, through a file', () => {
  const path = join(dir, 'a.npz');
  fc.assert(
    fc.property(anyRecords(HELD), fc.boolean(), (records, deflate) => {
      writeNpz(path, records, { deflate });
      const got = openNpz(path);
      assert.deepEqual([...got.keys()].sort(), records.map((r) => r.name).sort());
      for (const record of records) sameRecord(got.get(record.name)!, record);
    }),
    { numRuns: 50 },
  );
  writeNpy(join(dir, 'a.npy'), memoryRecord('', 'i64', [1], new Uint8Array(8)));
  assert.equal(openNpy(join(dir, 'a.npy')).dtype, 'i64');
});

const zipOf = (members: Record<string, Uint8Array>, deflate = false): Uint8Array =>
  collect((write) =>
    writeZip(
      Object.entries(members).map(([name, bytes]) => ({ name, size: bytes.length, slices: () => [bytes] })),
      deflate,
      write,
    ),
  );
const openZip = (bytes: Uint8Array): ZipFile => new ZipFile(new MemorySource(bytes, 'a.zip'));
const content = (zip: ZipFile, name: string): Uint8Array => {
  const s = zip.open(name);
  return readBytes(s, 0, s.size);
};

test('zip: a wrong checksum is found, stored or deflated', () => {
  const data = Buffer.from('hello hello hello');
  const stored = zipOf({ x: data });
  stored[35] ^= 1;
  assert.throws(
    () => content(openZip(stored), 'x'),
    /a.zip: x: at byte 0: checksum is \w{8}, the directory says \w{8}/,
  );
  const at = zipOf({ x: data }, true);
  const crc = Buffer.alloc(4);
  crc.writeUInt32LE(crc32(data));
  const central = Buffer.from(at).lastIndexOf(crc);
  at[central] ^= 1;
  assert.throws(() => content(openZip(at), 'x'), /checksum/);
});

/** A deflated member whose stated size is replaced. */
function lying(data: Uint8Array, stated: number): Uint8Array {
  const bytes = zipOf({ x: data }, true);
  const view = new DataView(bytes.buffer);
  const central = Buffer.from(bytes).indexOf(Buffer.from([0x50, 0x4b, 1, 2]));
  view.setUint32(central + 24, stated, true);
  return bytes;
}

test('zip: a member that inflates to another length than stated is refused', () => {
  assert.throws(() => content(openZip(lying(new Uint8Array(1000), 10)), 'x'), /cannot be inflated to 10 bytes/);
  assert.throws(
    () => content(openZip(lying(new Uint8Array(1000), 2000)), 'x'),
    /inflates to 1000 bytes, the directory says 2000/,
  );
});

test('zip: a bomb is refused before it is inflated', () => {
  const bomb = lying(new Uint8Array(100), 3_000_000_000);
  const held = heldBytes(() =>
    assert.throws(
      () => openZip(bomb),
      (e: Error) => e instanceof FormatError && /claim to be 3000000000 bytes of data/.test(e.message),
    ),
  );
  assert.ok(held < 1 << 20, `${held} bytes held`);
});

test('zip: many small bombs are refused by their sum', () => {
  const zeros = new Uint8Array(40 * 2 ** 20);
  assert.equal(openZip(zipOf({ a: zeros }, true)).entries.size, 1);
  assert.throws(() => openZip(zipOf({ a: zeros, b: zeros, c: zeros }, true)), /claim to be 125829120 bytes/);
});

test('zip: members that overlap, repeat, or leave the archive are refused', () => {
  const two = zipOf({ a: new Uint8Array(4), b: new Uint8Array(4) });
  const view = new DataView(two.buffer);
  const first = Buffer.from(two).indexOf(Buffer.from([0x50, 0x4b, 1, 2]));
  const second = Buffer.from(two).indexOf(Buffer.from([0x50, 0x4b, 1, 2]), first + 1);
  const changed = (change: () => void): Uint8Array => {
    const keep = two.slice();
    change();
    const out = two.slice();
    two.set(keep);
    return out;
  };
  assert.throws(() => openZip(changed(() => view.setUint32(second + 42, 0, true))), /overlaps another/);
  assert.throws(() => openZip(changed(() => view.setUint8(second + 46, 97))), /member "a" is listed twice/);
  assert.throws(() => openZip(changed(() => view.setUint32(second + 42, 1e6, true))), /runs into the directory/);
  assert.throws(() => openZip(changed(() => view.setUint16(first + 8, 1, true))), /is encrypted/);
  assert.throws(() => openZip(changed(() => view.setUint16(first + 10, 12, true))), /compression method 12/);
  assert.throws(() => openZip(two.subarray(0, two.length - 5)), /no end record/);
});

test('zip: zip64 sizes are read', () => {
  const data = Buffer.from('abc');
  const crc = crc32(data);
  const u = (n: number, bytes: number) => {
    const b = Buffer.alloc(bytes);
    if (bytes === 8) b.writeBigUInt64LE(BigInt(n));
    else b.writeUIntLE(n, 0, bytes);
    return b;
  };
  const all = 0xffffffff;
  const local = Buffer.concat([
    u(0x04034b50, 4),
    u(45, 2),
    u(0, 8),
    u(crc, 4),
    u(all, 4),
    u(all, 4),
    u(1, 2),
    u(20, 2),
    Buffer.from('x'),
    u(1, 2),
    u(16, 2),
    u(3, 8),
    u(3, 8),
    data,
  ]);
  const central = Buffer.concat([
    u(0x02014b50, 4),
    u(45, 2),
    u(45, 2),
    u(0, 8),
    u(crc, 4),
    u(all, 4),
    u(all, 4),
    u(1, 2),
    u(28, 2),
    u(0, 8),
    u(0, 2),
    u(all, 4),
    Buffer.from('x'),
    u(1, 2),
    u(24, 2),
    u(3, 8),
    u(3, 8),
    u(0, 8),
  ]);
  const end64 = Buffer.concat([
    u(0x06064b50, 4),
    u(44, 8),
    u(45, 2),
    u(45, 2),
    u(0, 8),
    u(1, 8),
    u(1, 8),
    u(central.length, 8),
    u(local.length, 8),
  ]);
  const locator = Buffer.concat([u(0x07064b50, 4), u(0, 4), u(local.length + central.length, 8), u(1, 4)]);
  const end = Buffer.concat([u(0x06054b50, 4), u(0, 4), u(0xffff, 2), u(0xffff, 2), u(all, 4), u(all, 4), u(0, 2)]);
  const zip = openZip(new Uint8Array(Buffer.concat([local, central, end64, locator, end])));
  assert.deepEqual(Buffer.from(content(zip, 'x')), data);
});

test('zip: small members need no reader of zip64, and what looks like its record before the end is not one', () => {
  const data = Buffer.from('hello');
  const zip = Buffer.from(zipOf({ x: data }));
  assert.equal(zip.readUInt16LE(4), 20, 'the version that a reader needs');
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(0x07064b50);
  const odd = Buffer.concat([zip.subarray(0, -22), locator, zip.subarray(-22)]);
  assert.deepEqual(Buffer.from(content(openZip(new Uint8Array(odd)), 'x')), data);
});

test('damaged npz files give a result or a typed error', () => {
  for (const deflate of [false, true]) {
    const good = npzBytes(
      [memoryRecord('x', 'f32', [2, 2], new Uint8Array(16)), memoryRecord('y', 'u8', [40], new Uint8Array(40))],
      { deflate },
    );
    fc.assert(
      fc.property(broken(good), (bytes) => {
        survives(() => openNpz(bytes, { widen: true }).forEach((r) => r.read()));
      }),
      { numRuns: 500 },
    );
  }
  fc.assert(
    fc.property(broken(npyBytes(memoryRecord('', 'f64', [3], new Uint8Array(24)))), (bytes) => {
      survives(() => openNpy(bytes, { widen: true }).read());
    }),
    { numRuns: 500 },
  );
});

test('reads the files NumPy wrote', { skip: missingGolden('fixtures/candle') }, () => {
  const count = Array.from({ length: 10 }, (_, i) => BigInt(i));
  const values = (bytes: Uint8Array) => [...new BigInt64Array(bytes.slice().buffer)];
  assert.deepEqual(values(openNpy(golden('fixtures', 'candle', 'test.npy')).read()), count);
  const npz = openNpz(golden('fixtures', 'candle', 'test.npz'));
  assert.deepEqual([...npz.keys()], ['x', 'x_plus_one']);
  assert.deepEqual(
    values(npz.get('x_plus_one')!.read()),
    count.map((v) => v + 1n),
  );
});
