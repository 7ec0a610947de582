// Files to tensors and back: every format by its content, prefixes, devices, views.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTYPES, bytesOf } from '../src/base/dtype.js';
import { ArgumentError, DTypeError, FormatError, UnsupportedError } from '../src/base/errors.js';
import { Layout } from '../src/base/layout.js';
import { ggmlType } from '../src/base/blocks/types.js';
import { ggufBytes } from '../src/io/gguf-write.js';
import { fromTensor, loadTensors, saveTensors, toTensor } from '../src/io/load.js';
import { npyHolds } from '../src/io/npy.js';
import { openTensors } from '../src/io/open.js';
import { quantize } from '../src/base/blocks/encode.js';
import { Device } from '../src/tensor/device.js';
import { Tensor } from '../src/tensor/tensor.js';
import { missingGolden } from '../src/parity/golden.js';
import { golden, scratch } from './io-support.js';
import * as p from './io-torch-build.js';

const dir = scratch();
const device = Device.get('reference');
const make = (shape: number[], dtype: (typeof DTYPES)[number]): Tensor =>
  Tensor.fromBytes(
    Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) * bytesOf(dtype) }, (_, i) => (i * 7) & 0x3f),
    shape,
    dtype,
    device,
  );

async function same(got: Tensor, want: Tensor): Promise<void> {
  assert.deepEqual([got.dtype, got.shape], [want.dtype, want.shape]);
  assert.deepEqual(await got.bytes(), await want.bytes());
}

test('safetensors holds every dtype, a scalar, an empty tensor and a view', async () => {
  const path = join(dir, 'all.safetensors');
  const tensors = new Map(DTYPES.map((d) => [d, make([2, 3], d)] as [string, Tensor]));
  tensors.set('scalar', make([], 'f32')).set('empty', make([0, 4], 'f16'));
  tensors.set('turned', tensors.get('f32')!.withLayout(Layout.contiguous([2, 3]).transpose(0, 1)));
  tensors.set('part', tensors.get('i16')!.withLayout(Layout.contiguous([3], 3)));
  saveTensors(path, tensors, { metadata: { format: 'pt' } });
  const back = loadTensors(path, { device });
  assert.deepEqual([...back.keys()].sort(), [...tensors.keys()].sort());
  for (const [name, tensor] of tensors) await same(back.get(name)!, tensor);
});

test('a tensor travels in slices of any length', async () => {
  const want = make([5, 7], 'f32');
  for (const bytes of [1, 8, 100, 1000]) await same(toTensor(fromTensor('w', want), device, bytes), want);
});

test('npz and npy hold what NumPy can, and name what it cannot', async () => {
  const tensors = Object.fromEntries(DTYPES.filter(npyHolds).map((d) => [d, make([3], d)]));
  for (const deflate of [false, true]) {
    const path = join(dir, `${deflate}.npz`);
    saveTensors(path, tensors, { deflate });
    const back = loadTensors(path, { device: 'reference' });
    for (const [name, tensor] of Object.entries(tensors)) await same(back.get(name)!, tensor);
  }
  saveTensors(join(dir, 'one.npy'), { x: make([2], 'f64') });
  await same(loadTensors(join(dir, 'one.npy'), { device }).get('')!, make([2], 'f64'));
  assert.throws(() => saveTensors(join(dir, 'two.npy'), tensors), ArgumentError);
  assert.throws(() => saveTensors(join(dir, 'b.npz'), { w: make([1], 'bf16') }), DTypeError);
  assert.throws(
    () => saveTensors(join(dir, 'x.bin'), tensors),
    /must end with .safetensors, .pt, .pth, .npz, .npy, .gguf/,
  );
});

test('gguf: plain tensors round trip, quantized ones ask for dequantize', async () => {
  const path = join(dir, 'm.gguf');
  saveTensors(path, { w: make([2, 4], 'f32'), h: make([4], 'bf16') });
  await same(loadTensors(path, { device }).get('w')!, make([2, 4], 'f32'));
  const bytes = ggufBytes(new Map(), [
    {
      name: 'q',
      type: ggmlType('Q8_0'),
      shape: [32],
      bytes: quantize(ggmlType('Q8_0'), new Float32Array(32).fill(127)),
    },
  ]);
  assert.throws(
    () => loadTensors(bytes, { device }),
    (e: Error) => e instanceof DTypeError && /quantized as Q8_0/.test(e.message),
  );
  const wide = loadTensors(bytes, { device, dequantize: true }).get('q')!;
  assert.deepEqual([...(await wide.data())], new Array(32).fill(127));
});

test('a checkpoint gives its tensors under a prefix, and refuses those only foreign code could build', async () => {
  const w = p.tensor(p.storage('FloatStorage', '0', 2), 0, [2], [1]);
  const storages = { 0: new Uint8Array(Float32Array.from([1, 2]).buffer) };
  const good = p.zipFile(p.dict([p.str('model'), p.dict([p.str('w'), w])], [p.str('epoch'), p.int(1)]), storages);
  const tensors = loadTensors(good, { device, prefix: 'model.' });
  assert.deepEqual([...tensors.keys()], ['w']);
  assert.deepEqual([...(await tensors.get('w')!.data())], [1, 2]);
  assert.throws(() => loadTensors(good, { device, prefix: 'net.' }), /no tensor's name starts with "net."/);
  const odd = p.zipFile(p.dict([p.str('s'), p.call(p.global('my', 'rebuild'), w)]), storages);
  assert.throws(
    () => loadTensors(odd, { device }),
    (e: Error) => e instanceof UnsupportedError && /s: is built by my.rebuild/.test(e.message),
  );
});

test('the content tells the format, not the name', () => {
  const path = join(dir, 'misnamed.bin');
  saveTensors(join(dir, 'a.npz'), { x: make([1], 'u8') });
  writeFileSync(path, readFileSync(join(dir, 'a.npz')));
  assert.equal(openTensors(path).format, 'npz');
  assert.equal(openTensors(p.legacyFile(p.dict(), [])).format, 'torch');
  assert.equal(openTensors(p.tarFile({ pickle: p.pickle(p.dict()), storages: p.tarStorages([]) })).format, 'torch');
  assert.throws(() => openTensors(join(dir, 'a.npz')).record('nope'), /no tensor "nope"/);
  assert.throws(() => openTensors(new Uint8Array([1, 2, 3])), FormatError);
  assert.throws(() => openTensors(join(dir, 'absent')), FormatError);
});

test('one model in two formats is one model', { skip: missingGolden('stories260K') }, async () => {
  const hf = loadTensors(golden('stories260K', 'hf'), { device });
  const gguf = loadTensors(golden('stories260K', 'gguf', 'stories260K.gguf'), { device });
  await same(hf.get('model.embed_tokens.weight')!, gguf.get('token_embd.weight')!);
  await same(hf.get('model.layers.0.mlp.down_proj.weight')!, gguf.get('blk.0.ffn_down.weight')!);
  await same(hf.get('model.layers.4.input_layernorm.weight')!, gguf.get('blk.4.attn_norm.weight')!);
});
