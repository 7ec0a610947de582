// Models whose weights stay in the blocks of their file: what they hold, what they answer, what they write.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { LanguageModel } from '../src/engine/index.js';
import { noGrad, QTensor, type Tensor, tensor } from '../src/index.js';
import { loadTensors } from '../src/io/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';

const largest = (t: Tensor): number => t.abs().max().item();

for (const [model, kind] of [
  ['llama', 'q8_0'],
  ['llama', 'q4_k'],
  ['qwen3', 'q8_0'],
  ['qwen3', 'q4_k'],
] as const) {
  test(`${model} as ${kind}: the blocks are kept; quick products stay near the exact ones`, {
    skip: missingGolden(`gguf/${model}/${kind}.gguf`),
  }, () => {
    const path = findGolden('gguf', model, `${kind}.gguf`) as string;
    const golden = loadTensors(findGolden('gguf', model, `golden-${kind}.safetensors`) as string);
    const ids = golden.get('input_ids') as Tensor;
    const want = golden.get('logits') as Tensor;
    const { model: m } = loadModel<CausalLM>(path, { quick: true });
    assert.ok(m.embed.weight instanceof QTensor && m.head.weight instanceof QTensor);
    assert.ok([...m.stateDict().values()].some((t) => t.dtype === 'u8'));
    const got = noGrad(() => m.forward(ids));
    const off = largest(got.sub(want)) / largest(want);
    assert.ok(off < 0.03 && off > 0, `${off}`);
    const { model: plain } = loadModel<CausalLM>(path, { quantized: false });
    assert.ok(!(plain.embed.weight instanceof QTensor));
  });
}

for (const kind of ['', '-F16', '-Q8_0', '-Q5_1', '-Q4_0']) {
  test(`stories260K${kind}.gguf: logits of the weights as they are stored`, {
    skip: missingGolden('stories260K'),
  }, () => {
    const path = findGolden('stories260K', 'gguf', `stories260K${kind}.gguf`) as string;
    const { model: kept } = loadModel<CausalLM>(path);
    const { model: decoded } = loadModel<CausalLM>(path, { quantized: false });
    const ids = tensor(Int32Array.of(1, 403, 407, 261, 378), { shape: [1, 5] });
    const [a, b] = noGrad(() => [kept.forward(ids), decoded.forward(ids)]);
    assert.ok(largest(a.sub(b)) <= 1e-5 * largest(b), `${largest(a.sub(b)) / largest(b)}`);
  });
}

test('stories260K writes its story from quantized weights', { skip: missingGolden('stories260K') }, async () => {
  const want = readFileSync(findGolden('stories260K', 'expected_greedy_200.txt') as string, 'utf8');
  const model = await LanguageModel.load(findGolden('stories260K', 'gguf', 'stories260K-Q8_0.gguf') as string);
  let text = '';
  for await (const piece of model.generate('', { maxTokens: 60, temperature: 0 })) text += piece;
  // Eight bits a weight and an activation: the story begins as the full one does.
  assert.equal(text.trim().slice(0, 60), want.trim().slice(0, 60));
});
