// Models whose weights stay in the blocks of their file: what they hold, what they answer, what they write.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { FusedStep } from '../src/engine/steps/fused-step.js';
import { GraphDecoder, LanguageModel, PlainDecoder } from '../src/engine/index.js';
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

for (const [model, kind] of [
  ['llama', 'q8_0'],
  ['qwen3', 'q4_k'],
] as const)
  test(`${model} as ${kind} on sim:32: a recorded step stays near the ops`, {
    skip: missingGolden(`gguf/${model}/${kind}.gguf`),
  }, async () => {
    const path = findGolden('gguf', model, `${kind}.gguf`) as string;
    const { model: m } = loadModel<CausalLM>(path, { quick: true, device: 'sim:32' });
    assert.ok(FusedStep.serves(m), 'in few launches');
    const [graph, plain] = [new GraphDecoder(m, 32), new PlainDecoder(m)];
    for (const tokens of [[1, 5, 9], [20], [7], [11]]) {
      const [a, b] = [await graph.run(tokens), await plain.run(tokens)];
      const scale = b.reduce((top, v) => Math.max(top, Math.abs(v)), 0);
      const worst = a.reduce((top, v, i) => Math.max(top, Math.abs(v - b[i])), 0);
      // Activations are rounded to 8 bits in both, before and after the norm's factor.
      assert.ok(worst <= 0.02 * scale, `off by ${worst / scale} of the largest`);
    }
    const best = await graph.runGreedy([3]);
    const logits = await plain.run([3]);
    const top = logits.reduce((m, v) => Math.max(m, v), -Infinity);
    assert.ok(logits[best] >= top - 0.02 * Math.abs(top), `token ${best}`);
    graph.dispose();
    plain.dispose();
    const { model: exact } = loadModel<CausalLM>(path, { device: 'sim:32' });
    assert.ok(!FusedStep.serves(exact), 'exact products are not rounded');
    const [recorded, ops] = [new GraphDecoder(exact, 32), new PlainDecoder(exact)];
    for (const tokens of [[1, 5], [20], [7]])
      assert.equal(await recorded.runGreedy(tokens), await ops.runGreedy(tokens), `after ${tokens}`);
    recorded.dispose();
    ops.dispose();
  });
