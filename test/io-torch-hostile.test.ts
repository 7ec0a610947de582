// PyTorch checkpoints that mean harm or were damaged: views beyond their storage, structures without end, pickles
// opcode by opcode.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FormatError } from '../src/base/errors.js';
import { Cursor, MemorySource } from '../src/io/byte-source.js';
import { PickleDict, PickleGlobal, unpickle } from '../src/io/pickle.js';
import { TorchFile } from '../src/io/torch.js';
import { broken, heldBytes, survives } from './io-support.js';
import * as p from './io-torch-build.js';

const counted = new Uint8Array(Float32Array.of(0, 1, 2, 3, 4, 5).buffer);
const open = (root: Buffer, storages: Record<string, Uint8Array> = {}) => TorchFile.open(p.zipFile(root, storages));
const load = (b: Buffer): unknown => unpickle(new Cursor(new MemorySource(new Uint8Array(b))));

const s6 = p.storage('FloatStorage', '0', 6);
const HOSTILE: [name: string, root: Buffer, message: RegExp][] = [
  ['a tensor that leaves its storage', p.tensor(s6, 0, [7], [1]), /reach element 7, storage 0 holds 24 bytes/],
  ['an offset beyond the storage', p.tensor(s6, 6, [1], [1]), /reach element 7/],
  ['strides that leave the storage', p.tensor(s6, 0, [2, 2], [5, 2]), /reach element 8/],
  ['a shape that overflows', p.tensor(s6, 0, [2 ** 52, 2 ** 52], [0, 0]), /reach element 1, storage 0/],
  [
    'a view expanded beyond reason',
    p.tensor(s6, 0, [2 ** 40], [0]),
    /24 bytes of file claim to be 4398046511104 bytes/,
  ],
  [
    'a storage that claims more than there is',
    p.tensor(p.storage('FloatStorage', '0', 7), 0, [1], [1]),
    /should hold 28 bytes, 24 are there/,
  ],
  [
    'a storage that is not there',
    p.tensor(p.storage('FloatStorage', '../x', 6), 0, [1], [1]),
    /storage "..\/x" is not in the file/,
  ],
  ['a persistent id that is not a storage', p.persistent(p.int(1)), /a persistent id that is not a storage/],
  [
    'two tensors of one name',
    p.dict([p.str('a.b'), p.tensor(s6, 0, [1], [1])], [p.str('a'), p.dict([p.str('b'), p.tensor(s6, 0, [1], [1])])]),
    /at byte \d+: "a.b": two tensors have this name/,
  ],
  [
    'nesting without end',
    Buffer.concat([Buffer.from(']'.repeat(5000)), Buffer.from('a'.repeat(4999))]),
    /nested deeper than 256/,
  ],
];
for (const [name, root, message] of HOSTILE) {
  test(`refuses ${name}`, () => {
    assert.throws(
      () => open(root, { 0: counted }),
      (e: Error) => e instanceof FormatError && message.test(e.message),
    );
  });
}

test('parts shared without end are refused before they multiply', () => {
  let root = p.list(p.dict());
  const steps: Buffer[] = [p.put(root, 0)];
  for (let i = 1; i < 60; i++) steps.push(p.put(p.list(p.get(i - 1), p.get(i - 1)), i));
  root = p.tuple(...steps);
  assert.throws(
    () => open(root),
    (e: Error) => e instanceof FormatError && /at byte \d+: reading takes more than \d+ steps of work/.test(e.message),
  );
});

test('many views of one storage are refused by their sum', () => {
  const big = new Uint8Array(2 ** 20);
  const views = Array.from({ length: 200 }, (_, i): [Buffer, Buffer] => [
    p.str(`v${i}`),
    p.tensor(p.storage('ByteStorage', '0', 2 ** 20), 0, [2 ** 20], [1]),
  ]);
  assert.throws(() => open(p.dict(...views), { 0: big }), /claim to be 209715200 bytes/);
});

test('structures that hold themselves end', () => {
  const self = Buffer.concat([p.put(Buffer.from(']'), 0), p.get(0), Buffer.from('a')]);
  assert.deepEqual(open(self).names, []);
  const again = p.call(
    p.global('torch._tensor', '_rebuild_from_type_v2'),
    p.global('torch._tensor', '_rebuild_from_type_v2'),
    p.none(),
    self,
  );
  assert.deepEqual(open(again).names, []);
  const fromType = p.global('torch._tensor', '_rebuild_from_type_v2');
  const args = Buffer.concat([
    p.put(Buffer.from(']'), 0),
    Buffer.from('('),
    fromType,
    p.none(),
    p.get(0),
    Buffer.from('e'),
  ]);
  assert.deepEqual(open(Buffer.concat([fromType, args, Buffer.from('R')])).names, []);
});

const BAD_PICKLE: [name: string, bytes: Buffer, message: RegExp][] = [
  ['an unknown opcode', Buffer.from([0x80, 2, 0xff]), /at byte 2: pickle opcode 0xff is not known/],
  ['an extension opcode', Buffer.from([0x82, 1, 0x2e]), /opcode 0x82 is not known/],
  ['an end without STOP', Buffer.from([0x80, 2, 0x4e]), /pickle opcode needs 1 bytes, 0 are left/],
  ['an empty stack', Buffer.from('.'), /the stack is empty/],
  ['a missing mark', Buffer.from('t.'), /no mark on the stack/],
  [
    'a string longer than the file',
    Buffer.from([0x8d, 255, 255, 255, 255, 255, 255, 255, 0, 0x2e]),
    /pickle string is \d+, at most|pickle string needs/,
  ],
  ['a number of 4 GiB', Buffer.from([0x8b, 255, 255, 255, 255, 0x2e]), /a number of 4294967295 bytes/],
  ['memory never stored', Buffer.from('h\x05.'), /nothing is remembered as 5/],
  ['a call of a string', Buffer.concat([p.str('f'), Buffer.from(')R.')]), /only a global can be called/],
  ['a key without a value', Buffer.from('}(Nu.'), /a key without a value/],
  ['items in a number', Buffer.from('K\x01(Ne.'), /not a list/],
  ['a frame beyond the file', Buffer.from([0x95, 255, 0, 0, 0, 0, 0, 0, 0, 0x2e]), /pickle frame needs 255 bytes/],
  ['protocol 6', Buffer.from([0x80, 6, 0x4e, 0x2e]), /protocol 6 is not known/],
  ['a persistent id outside PyTorch', Buffer.from('NQ.'), /a persistent id/],
];
for (const [name, bytes, message] of BAD_PICKLE) {
  test(`pickle: refuses ${name}`, () => {
    assert.throws(
      () => load(bytes),
      (e: Error) => e instanceof FormatError && message.test(e.message),
    );
  });
}

test('pickle: values of every protocol', () => {
  assert.deepEqual(load(Buffer.from("(I1\nI01\nF2.5\nL123L\nVa\\u0041\nS'b'\nl.", 'latin1')), [
    1,
    true,
    2.5,
    123,
    'aA',
    'b',
  ]);
  assert.deepEqual(
    load(
      Buffer.concat([
        Buffer.from([0x80, 4, 0x95, 9, 0, 0, 0, 0, 0, 0, 0, 0x8c, 1, 97, 0x94, 0x4b, 1, 0x86, 0x94, 0x2e]),
      ]),
    ),
    ['a', 1],
  );
  assert.deepEqual(load(Buffer.from([0x8a, 1, 0xff, 0x2e])), -1);
  assert.deepEqual(load(Buffer.from([0x8a, 0, 0x2e])), 0);
  assert.deepEqual(load(Buffer.from([0x8f, 0x28, 0x4b, 1, 0x4b, 2, 0x90, 0x2e])), new Set([1, 2]));
  assert.deepEqual(load(Buffer.from([0x96, 2, 0, 0, 0, 0, 0, 0, 0, 7, 8, 0x2e])), new Uint8Array([7, 8]));
  const g = load(Buffer.concat([p.str('os'), p.str('system'), Buffer.from([0x93, 0x2e])]));
  assert.ok(g instanceof PickleGlobal && g.id === 'os.system');
  assert.deepEqual(load(Buffer.from('}K\x01K\x02s.')), new PickleDict([[1, 2]]));
});

test('random opcode streams end, with a value or a typed error', () => {
  const codes = [
    ...Buffer.from('(.012NIJKMLFGSTUVXBC)tl]ae}dsucRoibPQghjpqr\n', 'latin1'),
    0x80,
    0x81,
    0x85,
    0x86,
    0x87,
    0x88,
    0x89,
    0x8a,
    0x8c,
    0x8f,
    0x90,
    0x91,
    0x92,
    0x93,
    0x94,
    0,
    1,
    2,
    3,
  ];
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...codes), { maxLength: 60 }), (bytes) => {
      survives(() => load(Buffer.from([...bytes, 0x2e])));
      survives(() => open(Buffer.from(bytes)));
    }),
    { numRuns: 3000 },
  );
});

test('damaged files of each format give a result or a typed error, in bounded memory', () => {
  const root = p.dict(
    [p.str('w'), p.tensor(p.storage('FloatStorage', '0', 6), 0, [3, 2], [1, 3])],
    [p.str('n'), p.int(4)],
  );
  const tar = p.tarFile({
    sys_info: p.pickle(p.dict()),
    pickle: p.pickle(p.dict([p.str('a'), p.persistent(p.int(7))])),
    tensors: p.tarTensors([[7, 1, 'FloatTensor', [2, 2], [1, 2], 1]]),
    storages: p.tarStorages([[1, 'FloatStorage', 6, counted]]),
  });
  const readAll = (bytes: Uint8Array) =>
    survives(() =>
      TorchFile.open(bytes)
        .records({ widen: true })
        .forEach((r) => r.read()),
    );
  for (const good of [p.zipFile(root, { 0: counted }), p.legacyFile(root, [['0', 6, counted]]), tar]) {
    assert.equal(readAll(good), true);
    fc.assert(
      fc.property(broken(good), (bytes) => void readAll(bytes)),
      { numRuns: 500 },
    );
  }
  // The checksum hides the pickle from damage, so it is damaged before it is packed.
  const held = heldBytes(() =>
    fc.assert(
      fc.property(broken(root), (bytes) => void readAll(p.zipFile(Buffer.from(bytes), { 0: counted }))),
      { numRuns: 2000 },
    ),
  );
  assert.ok(held < 512 * 2 ** 20, `${held} bytes held`);
});
