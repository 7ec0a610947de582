// Llama against transformers: logits and greedy tokens, with and without a cache, on every device under test.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadTensors } from '../src/io/index.js';
import { type CausalLM, Llama } from '../src/models/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';

const argmax = (logits: Tensor): number => logits.reshape([-1]).argmax(0).item();

function greedy(model: CausalLM, prompt: readonly number[], steps: number, cached: boolean): number[] {
  const ids = [...prompt];
  const cache = cached ? model.newCache() : undefined;
  let next = ids;
  for (let i = 0; i < steps; i++) {
    const token = scope(() =>
      noGrad(() =>
        argmax(
          model.forward(tensor(Int32Array.from(next), { device: model.device }).unsqueeze(0), cache, { last: true }),
        ),
      ),
    );
    ids.push(token);
    next = cached ? [token] : ids;
  }
  cache?.dispose();
  return ids;
}

for (const { name, device, missing } of testDevices('cpu')) {
  for (const family of ['llama', 'llama3-rope']) {
    const dir = findGolden('hf', family);
    const skip = missing ?? missingGolden(`hf/${family}`);
    test(`${family} on ${name}: logits of transformers`, { skip }, () =>
      scope(() => {
        const golden = loadTensors(join(dir as string, 'golden.safetensors'), { device: device as Device });
        const model = Llama.load(dir as string, { device: device as Device });
        const got = noGrad(() => model.forward(golden.get('input_ids') as Tensor));
        const want = golden.get('logits') as Tensor;
        const error = got.sub(want).abs().max().item() / want.abs().max().item();
        assert.ok(error <= 1e-4, `off by ${error} of the largest logit`);
      }),
    );
    test(`${family} on ${name}: greedy tokens with and without a cache`, { skip }, () => {
      const golden = loadTensors(join(dir as string, 'golden.safetensors'), { device: 'cpu' });
      const model = Llama.load(dir as string, { device: device as Device });
      const [prompt, want] = ['prompt', 'greedy'].map((n) => ((golden.get(n) as Tensor).toArray() as number[][])[0]);
      assert.deepEqual(greedy(model, prompt, want.length - prompt.length, true), want, 'with a cache');
      assert.deepEqual(greedy(model, prompt, want.length - prompt.length, false), want, 'without a cache');
    });
  }
  const stories = findGolden('stories260K');
  test(`stories260K on ${name}: 200 greedy tokens give the expected text`, {
    skip: missing ?? missingGolden('stories260K'),
  }, () => {
    const model = Llama.load(join(stories as string, 'hf'), { device: device as Device });
    const pieces = llama2cPieces(readFileSync(join(stories as string, 'tok512.bin')), model.config.vocabSize);
    const want = readFileSync(join(stories as string, 'expected_greedy_200.txt'), 'utf8');
    const text = decodePieces(greedy(model, [1], 199, true), pieces);
    assert.ok(
      text.length > 100 && want.trimEnd().startsWith(text.trimEnd().slice(0, want.trimEnd().length)),
      `got ${JSON.stringify(text.slice(0, 200))}`,
    );
    assert.equal(text.trimEnd(), want.trimEnd().slice(0, text.trimEnd().length));
    assert.ok(
      text.trimEnd().length >= want.trimEnd().length - 12,
      `the text has ${text.length} characters, expected are ${want.length}`,
    );
  });
}

/** llama2.c's vocabulary: the longest length, then a score, a length and the bytes of each token. */
function llama2cPieces(data: Buffer, count: number): Buffer[] {
  let at = 4;
  return Array.from({ length: count }, () => {
    const n = data.readInt32LE(at + 4);
    const piece = data.subarray(at + 8, at + 8 + n);
    at += 8 + n;
    return piece;
  });
}
/** The piece after the start token loses its leading space; <0xHH> is a byte. */
function decodePieces(ids: readonly number[], pieces: readonly Buffer[]): string {
  return Buffer.concat(
    ids.slice(1).map((id, i) => {
      const piece = pieces[id];
      const byte = /^<0x([0-9A-F]{2})>$/.exec(piece.toString('latin1'));
      if (byte) return Buffer.from([Number.parseInt(byte[1], 16)]);
      return ids[i] === 1 && piece[0] === 32 ? piece.subarray(1) : piece;
    }),
  ).toString('utf8');
}
