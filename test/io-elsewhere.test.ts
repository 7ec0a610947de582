// Files that PyTorch, NumPy, safetensors and gguf-py wrote (scripts/golden-files.py): what they hold, to the last bit.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DTYPES } from '../src/base/dtype.js';
import { canDequantize, dequantize } from '../src/base/blocks/decode.js';
import { GGML_TYPES, ggmlType } from '../src/base/blocks/types.js';
import { Gguf } from '../src/io/gguf.js';
import { openTensors } from '../src/io/open.js';
import { canQuantize, quantize } from '../src/base/blocks/encode.js';
import { SafeTensors } from '../src/io/safetensors.js';
import type { TensorRecord } from '../src/io/stored-dtype.js';
import { TorchFile } from '../src/io/torch.js';
import { ROOT } from './io-support.js';

const folder = join(ROOT, 'test/golden/files');
const path = (name: string): string => join(folder, name);
type Told = readonly [dtype: string, shape: number[], md5: string];
const expected = (
  JSON.parse(readFileSync(path('expected.json'), 'utf8')) as { files: Record<string, Record<string, Told>> }
).files;

/** Bytes as the file holds them: types that were widened become narrow again. */
function stored(record: TensorRecord, dtype: string): Uint8Array {
  const bytes = record.read().slice();
  if (dtype === record.dtype || dtype === 'bool') return bytes;
  return new Uint8Array(Uint16Array.from(new Uint32Array(bytes.buffer)).buffer);
}

for (const [name, tensors] of Object.entries(expected)) {
  test(`${name}: ${Object.keys(tensors).length} tensors, bit for bit`, () => {
    const file = openTensors(path(name), { widen: true });
    try {
      assert.deepEqual([...file.names].sort(), Object.keys(tensors).sort());
      for (const [key, [dtype, shape, md5]] of Object.entries(tensors)) {
        const record = file.record(key);
        if ((DTYPES as readonly string[]).includes(dtype)) assert.equal(record.dtype, dtype, key);
        assert.deepEqual([...record.shape], shape, key);
        assert.equal(createHash('md5').update(stored(record, dtype)).digest('hex').slice(0, 16), md5, key);
      }
    } finally {
      file.close();
    }
  });
}

test('what a checkpoint says besides its tensors', () => {
  for (const kind of ['zip', 'legacy']) {
    using file = TorchFile.open(path(`nested-${kind}.pt`));
    assert.equal(file.metadata.get('epoch'), 3);
    assert.equal(file.metadata.get('name'), 'run');
    assert.deepEqual(file.metadata.get('optimizer.param_groups.0.betas'), [0.9, 0.999]);
  }
});

test('metadata of every kind that gguf-py writes', () => {
  using g = Gguf.open(path('model.gguf'));
  const want: Record<string, unknown> = {
    u8: 255,
    i8: -128,
    u16: 65535,
    i16: -32768,
    u32: 2 ** 32 - 1,
    i32: -(2 ** 31),
    f32: 0.5,
    f64: 1 / 3,
    u64: 2n ** 64n - 1n,
    i64: -(2n ** 63n),
    bool: true,
    text: 'größe 😀',
    ints: [1, -2, 3],
    texts: ['a', '', 'ü'],
    floats: [0.5, -1.5],
    bools: [true, false],
  };
  for (const [key, value] of Object.entries(want)) {
    const got = g.get(`t.${key}`);
    assert.deepEqual(Array.isArray(value) ? Array.from(got as ArrayLike<unknown>) : got, value, key);
  }
  using vocabulary = Gguf.open(path('vocabulary.gguf'));
  assert.equal(vocabulary.names.length, 0);
  assert.equal((vocabulary.get('tokenizer.ggml.tokens') as string[])[499], 'piece 499');
});

const floats = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);

test('quantized blocks: byte for byte what gguf-py makes of the same rows', () => {
  using st = SafeTensors.open(path('quants.safetensors'));
  const rows = floats(st.read('rows'));
  const types = st.names.filter((n) => n.startsWith('quantized.')).map((n) => ggmlType(n.slice('quantized.'.length)));
  const made = types.filter(canQuantize);
  for (const type of made)
    assert.deepEqual(Buffer.from(quantize(type, rows)), Buffer.from(st.read(`quantized.${type.name}`)), type.name);
  assert.ok(made.length >= 5);
});

test('quantized blocks: the values gguf-py reads from random ones', () => {
  using st = SafeTensors.open(path('quants.safetensors'));
  const types = GGML_TYPES.filter((t) => st.has(`blocks.${t.name}`) && canDequantize(t));
  for (const type of types) {
    const [got, want] = [dequantize(type, st.read(`blocks.${type.name}`)), floats(st.read(`values.${type.name}`))];
    assert.equal(got.length, want.length);
    const worst = want.reduce((m, v, i) => Math.max(m, Math.abs(v - got[i]) / Math.max(Math.abs(v), 1e-30)), 0);
    assert.ok(worst < 1e-6, `${type.name}: off by ${worst}`);
  }
  assert.ok(types.length >= 12, `only ${types.length} types`);
});
