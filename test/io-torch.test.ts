// PyTorch checkpoints: the three formats, views and shared storages, inert unknown objects.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { EVERY_DTYPE } from '../src/base/dtype.js';
import { DTypeError, FormatError, UnsupportedError } from '../src/base/errors.js';
import { MemorySource } from '../src/io/byte-source.js';
import { loadTensors, saveTensors } from '../src/io/load.js';
import { PickleObject } from '../src/io/pickle.js';
import { TorchFile } from '../src/io/torch.js';
import { ZipFile } from '../src/io/zip.js';
import { missingGolden } from '../src/parity/golden.js';
import { arange, tensor, zeros } from '../src/tensor/create.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { ROOT, golden, scratch } from './io-support.js';
import * as p from './io-torch-build.js';

const dir = scratch();
const bytesOf = (a: ArrayBufferView): Uint8Array => new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
const f32 = (...v: number[]): Uint8Array => bytesOf(Float32Array.from(v));
const floats = (b: Uint8Array): number[] => [...new Float32Array(b.slice().buffer)];
const counted = f32(0, 1, 2, 3, 4, 5);
const open = (root: Buffer, storages: Record<string, Uint8Array> = {}, extra?: Record<string, Uint8Array>) =>
  TorchFile.open(p.zipFile(root, storages, extra));

test('nested structures become dotted names, and all else metadata', () => {
  const file = open(
    p.dict(
      [p.str('model'), p.dict([p.str('w'), p.tensor(p.storage('FloatStorage', '0', 6), 0, [2, 3], [3, 1])])],
      [p.str('list'), p.list(p.int(1), p.tuple(p.tensor(p.storage('FloatStorage', '0', 6), 5, [], [])))],
      [p.str('epoch'), p.int(3)],
      [p.str('name'), p.str('x')],
      [p.str('dims'), p.tuple(p.int(1), p.int(2))],
      [p.str('none'), p.none()],
    ),
    { 0: counted },
  );
  assert.deepEqual(file.names, ['model.w', 'list.1.0']);
  assert.deepEqual(floats(file.read('model.w')), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(floats(file.read('list.1.0')), [5]);
  assert.deepEqual(Object.fromEntries(file.metadata), { 'list.0': 1, epoch: 3, name: 'x', dims: [1, 2], none: null });
});

test('strided, offset and expanded views are read in row-major order, in any range', () => {
  const s = p.storage('FloatStorage', '0', 6);
  const file = open(
    p.dict(
      [p.str('t'), p.tensor(s, 0, [3, 2], [1, 3])],
      [p.str('o'), p.tensor(s, 1, [2, 2], [3, 1])],
      [p.str('e'), p.tensor(s, 2, [3], [0])],
      [p.str('z'), p.tensor(s, 6, [0, 4], [4, 1])],
    ),
    { 0: counted },
  );
  assert.deepEqual(floats(file.read('t')), [0, 3, 1, 4, 2, 5]);
  assert.deepEqual(floats(file.read('o')), [1, 2, 4, 5]);
  assert.deepEqual(floats(file.read('e')), [2, 2, 2]);
  assert.equal(file.read('z').length, 0);
  const record = file.record('t');
  assert.deepEqual([record.strides, record.offset, record.storage], [[1, 3], 0, '0']);
  assert.deepEqual(record.read(4, 10), record.read().slice(4, 10));
});

test('parameters, subclasses and untyped storages with a dtype are tensors', () => {
  const plain = p.tensor(p.storage('FloatStorage', '0', 6), 0, [6], [1]);
  const inner = p.tuple(
    p.storage('FloatStorage', '0', 6),
    p.int(0),
    p.tuple(p.int(2)),
    p.tuple(p.int(1)),
    p.yes(false),
    p.none(),
  );
  const v3 = p.call(
    p.global('torch._utils', '_rebuild_tensor_v3'),
    p.storage('UntypedStorage', '1', 4),
    p.int(1),
    p.tuple(p.int(3)),
    p.tuple(p.int(1)),
    p.yes(false),
    p.none(),
    p.global('torch', 'float8_e4m3fn'),
  );
  const file = open(
    p.dict(
      [p.str('param'), p.call(p.global('torch._utils', '_rebuild_parameter'), plain, p.yes(true), p.none())],
      [
        p.str('sub'),
        p.call(
          p.global('torch._tensor', '_rebuild_from_type_v2'),
          p.global('torch._utils', '_rebuild_tensor_v2'),
          p.global('my', 'Kind'),
          inner,
          p.none(),
        ),
      ],
      [p.str('f8'), v3],
    ),
    { 0: counted, 1: new Uint8Array([1, 2, 3, 4]) },
  );
  assert.deepEqual(floats(file.read('param')), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(floats(file.read('sub')), [0, 1]);
  assert.deepEqual([file.record('f8').dtype, file.read('f8')], ['f8e4m3', new Uint8Array([2, 3, 4])]);
});

test('a pickled module gives the names of its state dict', () => {
  const module = (params: [Buffer, Buffer][], modules: [Buffer, Buffer][]) =>
    p.build(
      p.call(p.global('my', 'Net')),
      p.dict(
        [p.str('_parameters'), p.dict(...params)],
        [p.str('_buffers'), p.dict()],
        [p.str('_modules'), p.dict(...modules)],
        [p.str('training'), p.yes(true)],
      ),
    );
  const w = p.tensor(p.storage('FloatStorage', '0', 6), 0, [6], [1]);
  const file = open(module([[p.str('w'), w]], [[p.str('fc'), module([[p.str('bias'), w]], [])]]), { 0: counted });
  assert.deepEqual(file.names, ['w', 'fc.bias']);
  assert.equal(file.metadata.get('fc.training'), true);
});

test('big-endian archives are swapped, and an unknown byte order refused', () => {
  const root = p.dict([p.str('w'), p.tensor(p.storage('FloatStorage', '0', 1), 0, [1], [1])]);
  const order = (text: string) => ({ 'archive/byteorder': Buffer.from(text) });
  assert.deepEqual(floats(open(root, { 0: new Uint8Array([0x3f, 0x80, 0, 0]) }, order('big')).read('w')), [1]);
  assert.deepEqual(floats(open(root, { 0: f32(1) }, order('little')).read('w')), [1]);
  assert.throws(() => open(root, { 0: f32(1) }, order('middle')), /byte order "middle" is neither little nor big/);
});

test('the pickle sequence before zip: storages and views of them', () => {
  const view = p.tuple(p.str('v'), p.int(2), p.int(3));
  const root = p.dict(
    [p.str('w'), p.tensor(p.storage('FloatStorage', 'k', 6), 1, [2], [2])],
    [p.str('v'), p.tensor(p.storage('FloatStorage', 'k', 6, view), 1, [2], [1])],
  );
  const file = TorchFile.open(p.legacyFile(root, [['k', 6, counted]]));
  assert.deepEqual(floats(file.read('w')), [1, 3]);
  assert.deepEqual(floats(file.read('v')), [3, 4]);
  assert.throws(
    () => TorchFile.open(p.legacyFile(root, [['k', 2 ** 40, counted]])),
    /length of storage k is 1099511627776, at most 6 can be/,
  );
  assert.throws(() => TorchFile.open(p.legacyFile(root, [])), /storage "k" is not in the file/);
  assert.throws(() => TorchFile.open(new Uint8Array(p.pickle(p.int(1)))), /its magic number is missing/);
});

test('a view that begins at no whole number, and a storage of an unknown type before zip, are refused', () => {
  const broken_ = p.tuple(p.str('v'), p.int(-1), p.int(3));
  const root = p.dict(
    [p.str('w'), p.tensor(p.storage('FloatStorage', 'k', 6), 0, [6], [1])],
    [p.str('v'), p.tensor(p.storage('FloatStorage', 'k', 6, broken_), 1, [2], [1])],
  );
  assert.throws(
    () => TorchFile.open(p.legacyFile(root, [['k', 6, counted]])),
    (e: Error) => e instanceof FormatError,
  );
  const odd = p.dict(
    [p.str('q'), p.tensor(p.storage('QUInt4x2Storage', 'q', 0), 0, [0], [1])],
    [p.str('w'), p.tensor(p.storage('FloatStorage', 'k', 6), 0, [6], [1])],
  );
  assert.throws(
    () =>
      TorchFile.open(
        p.legacyFile(odd, [
          ['k', 6, counted],
          ['q', 0, new Uint8Array(0)],
        ]),
      ),
    (e: Error) => e instanceof FormatError && /storage q has no known type/.test(e.message),
  );
});

test('a dict of pairs in a list is a dict, and one of something else is not understood', () => {
  const w = p.tensor(p.storage('FloatStorage', '0', 6), 0, [6], [1]);
  const ordered = (...items: Buffer[]) => p.call(p.global('collections', 'OrderedDict'), p.list(...items));
  assert.deepEqual(open(ordered(p.tuple(p.str('w'), w)), { 0: counted }).names, ['w']);
  assert.deepEqual(open(ordered(p.tuple(p.str('w'), w, p.int(1))), { 0: counted }).names, []);
});

test('a range that cuts elements is read the same from either byte order', () => {
  const root = p.dict([p.str('w'), p.tensor(p.storage('FloatStorage', '0', 6), 0, [6], [1])]);
  const swapped = counted.slice().reverse(); // six floats from the last to the first, each turned round
  for (const file of [
    open(root, { 0: counted }),
    open(root, { 0: swapped }, { 'archive/byteorder': Buffer.from('big') }),
  ]) {
    const { record, read } = { record: file.record('w'), read: file.read('w') };
    for (const [from, to] of [[1, 6], [0, 1], [3, 24], [5, 7]]) // biome-ignore format: one line
      assert.deepEqual(record.read(from, to), read.slice(from, to), `${from} to ${to}`);
  }
});

test('a tensor of a known dtype in a storage of an unknown type is told of by the storage', () => {
  const odd = p.call(
    p.global('torch._utils', '_rebuild_tensor_v3'),
    p.storage('QUInt4x2Storage', '0', 4),
    ...[p.int(0), p.tuple(p.int(2)), p.tuple(p.int(1)), p.yes(false), p.none(), p.global('torch', 'float16')],
  );
  const plain = p.tensor(p.storage('QUInt4x2Storage', '0', 4), 0, [2], [1]);
  const file = open(p.dict([p.str('odd'), odd], [p.str('plain'), plain]), { 0: new Uint8Array(4) });
  for (const name of ['odd', 'plain']) assert.equal(file.info(name).dtype, 'torch.QUInt4x2Storage', name);
});

test('the tar before that: tensors, storages and views in members of their own', () => {
  const file = TorchFile.open(
    p.tarFile({
      sys_info: p.pickle(p.dict()),
      pickle: p.pickle(p.dict([p.str('a'), p.persistent(p.int(7))], [p.str('b'), p.persistent(p.int(8))])),
      tensors: p.tarTensors([
        [7, 1, 'FloatTensor', [2, 2], [1, 2], 1],
        [8, 2, 'FloatTensor', [2], [1], 0],
      ]),
      storages: p.tarStorages(
        [[1, 'FloatStorage', 6, counted]],
        p.list(p.tuple(p.int(2), p.int(1), p.int(4), p.int(2))),
      ),
    }),
  );
  assert.deepEqual(floats(file.read('a')), [1, 3, 2, 4]);
  assert.deepEqual(floats(file.read('b')), [4, 5]);
});

test('a tar header that fails its checksum is refused, and so is an archive without the members', () => {
  const tar = p.tarFile({ pickle: p.pickle(p.dict()), storages: p.tarStorages([]) });
  assert.deepEqual(TorchFile.open(tar).names, []);
  const second = 1024; // pickle's header and its one block come first
  tar[second + 1] ^= 1;
  assert.throws(() => TorchFile.open(tar), /at byte 1024: tar header: its checksum is wrong/);
  assert.throws(
    () => TorchFile.open(p.tarFile({ other: Buffer.from('x') })),
    /holds no "storages", so it is no PyTorch file/,
  );
});

test('tar members are files by either of their marks, and a folder of the same name is none', () => {
  const members = { pickle: p.pickle(p.dict()), storages: p.tarStorages([]) };
  for (const kind of [0, 0x30]) assert.deepEqual(TorchFile.open(p.tarFile(members, kind)).names, []);
  assert.throws(() => TorchFile.open(p.tarFile(members, 0x35)), /holds no "storages"/);
});

test('unknown globals are kept as records, run nothing, and are an error only for the tensor that needs them', () => {
  const flag = join(dir, 'ran');
  const file = open(
    p.dict(
      [p.str('evil'), p.call(p.global('os', 'system'), p.str(`touch ${flag}`))],
      [p.str('q'), p.call(p.global('torch._utils', '_rebuild_qtensor'), p.storage('QInt8Storage', '0', 6))],
      [p.str('w'), p.tensor(p.storage('FloatStorage', '0', 6), 0, [6], [1])],
    ),
    { 0: counted },
  );
  assert.equal(existsSync(flag), false);
  const evil = file.metadata.get('evil');
  assert.ok(evil instanceof PickleObject && evil.global.id === 'os.system');
  assert.deepEqual(file.names, ['w']);
  assert.equal(file.opaque.get('q'), 'torch._utils._rebuild_qtensor');
  assert.throws(
    () => file.record('q'),
    (e: Error) =>
      e instanceof UnsupportedError &&
      /q: is built by torch._utils._rebuild_qtensor, which is not understood and never run/.test(e.message),
  );
  assert.throws(() => file.records(), UnsupportedError);
});

test('element types without a place here are named when read', () => {
  const file = open(
    p.dict(
      [p.str('c'), p.tensor(p.storage('ComplexFloatStorage', '0', 1), 0, [1], [1])],
      [p.str('q'), p.tensor(p.storage('QInt8Storage', '0', 1), 0, [1], [1])],
      [p.str('i'), p.tensor(p.storage('CharStorage', '0', 2), 0, [2], [1])],
    ),
    { 0: new Uint8Array([1, 0, 0, 0, 0, 0, 0, 0]) },
  );
  assert.throws(
    () => file.record('c'),
    (e: Error) => e instanceof DTypeError && /dtype c64/.test(e.message),
  );
  assert.throws(
    () => file.record('q'),
    (e: Error) => e instanceof DTypeError && /torch.QInt8Storage are not known/.test(e.message),
  );
  assert.deepEqual([file.record('i').dtype, file.read('i')], ['i8', new Uint8Array([1, 0])]);
});

test('every fixture PyTorch wrote gives the tensors PyTorch reads from it', {
  skip: missingGolden('fixtures/torch-pt'),
}, () => {
  const expected = JSON.parse(readFileSync(join(ROOT, 'test/io-torch-expected.json'), 'utf8')) as Record<
    string,
    Record<string, string>
  >;
  let files = 0;
  for (const folder of ['candle', 'torch-pt']) {
    for (const name of readdirSync(golden('fixtures', folder)).filter((f) => /\.(pt|pth|tar)$/.test(f))) {
      if (name === 'reader__test_data__broken.pt') continue;
      using file = TorchFile.open(golden('fixtures', folder, name));
      const got = Object.fromEntries(
        file
          .records({ widen: true })
          .map((r) => [
            r.name,
            `${r.dtype} [${r.shape.join(',')}] ${createHash('md5').update(r.read()).digest('hex').slice(0, 12)}`,
          ]),
      );
      assert.deepEqual(got, expected[name], name);
      files++;
    }
  }
  assert.equal(files, Object.keys(expected).length);
});

test('the broken fixture is refused by name', { skip: missingGolden('fixtures/torch-pt') }, () => {
  assert.throws(
    () => TorchFile.open(golden('fixtures', 'torch-pt', 'reader__test_data__broken.pt')),
    (e: Error) => e instanceof FormatError && /broken\.pt: at byte 0: is no PyTorch file/.test(e.message),
  );
});

test('metadata of a fixture with a config', { skip: missingGolden('fixtures/torch-pt') }, () => {
  using file = TorchFile.open(golden('fixtures', 'torch-pt', 'config__weights_with_config.pt'));
  assert.deepEqual(file.names, ['my_model.fc1.weight', 'my_model.fc1.bias', 'my_model.fc2.weight']);
  assert.equal(file.metadata.get('my_config.d_model'), 512);
  assert.deepEqual(file.metadata.get('my_config.some_list_str'), ['hello', 'world']);
  assert.equal(file.metadata.get('my_config.some_dict.some_key'), 'some_value');
});

test('a state dict is written as PyTorch reads it: every dtype, scalars, nothing at all, views', () => {
  const given = new Map<string, Tensor>([
    ['layer.weight', arange(12).reshape([3, 4])],
    ['turned', arange(12).reshape([3, 4]).t()],
    ['number', tensor(3)],
    ['nothing', zeros([0, 3])],
    ['long', arange(300)],
    ['bool', tensor([true, false, true])],
    ...EVERY_DTYPE.filter((d) => d !== 'bool').map((d): [string, Tensor] => [d, tensor([1, 2, 3]).cast(d)]),
  ]);
  const path = join(dir, 'written.pt');
  saveTensors(path, given);
  const back = loadTensors(path);
  assert.deepEqual([...back.keys()], [...given.keys()]);
  for (const [name, t] of given) {
    const read = back.get(name) as Tensor;
    assert.deepEqual([read.dtype, read.shape], [t.dtype, t.shape], name);
    assert.deepEqual(read.bytesSync(), t.bytesSync(), name);
  }
  const bytes = readFileSync(path);
  // torch.load of PyTorch 2.13 read this very file: with weights_only, without, and mapped into memory.
  assert.equal(
    createHash('sha256').update(bytes).digest('hex'),
    'fc9cd1da8ee8b3eb4f635416977e09c472807280ab03f2ce33d7edee8d81105c',
  );
  const zip = new ZipFile(new MemorySource(bytes));
  const storages = [...zip.entries.values()].filter(({ name }) => name.startsWith('archive/data/'));
  assert.equal(storages.length, given.size);
  for (const { name, headerAt } of storages) {
    const at = headerAt + 30 + bytes.readUInt16LE(headerAt + 26) + bytes.readUInt16LE(headerAt + 28);
    assert.equal(at % 64, 0, `${name} begins at byte ${at}`);
  }
});
