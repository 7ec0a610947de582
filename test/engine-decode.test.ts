// Decoding on a GPU by graph gives the tokens that op by op gives; on the simulation where there is no GPU.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { GraphDecoder, PlainDecoder, type Decoder } from '../src/engine/index.js';
import { loadTensors } from '../src/io/index.js';
import { Llama } from '../src/models/index.js';
import { goldenFolder, packageRoot } from '../src/parity/golden.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';

const folders = [goldenFolder(), join(packageRoot(), '../shared/golden')].filter((d): d is string => d !== undefined);
const dir = folders.map((d) => join(d, 'hf/llama')).find((d) => existsSync(join(d, 'model.safetensors')));
const absent = dir ? undefined : 'no golden folder here: set WICK_GOLDEN to one';

async function greedy(decoder: Decoder, prompt: readonly number[], steps: number): Promise<number[]> {
  const ids = [...prompt];
  let next = prompt;
  for (let i = 0; i < steps; i++) {
    const token = await decoder.runGreedy(next);
    ids.push(token);
    next = [token];
  }
  decoder.dispose();
  return ids;
}

for (const { name, device, missing } of testDevices('sim:32')) {
  test(`a graph on ${name} decodes the greedy tokens of transformers`, { skip: missing ?? absent }, async () => {
    const golden = loadTensors(join(dir as string, 'golden.safetensors'), { device: 'cpu' });
    const [prompt, want] = ['prompt', 'greedy'].map((n) => ((golden.get(n) as Tensor).toArray() as number[][])[0]);
    const model = Llama.load(dir as string, { device: device as Device });
    assert.ok(GraphDecoder.serves(model), 'the model is small but of fitting sizes');
    assert.deepEqual(await greedy(new GraphDecoder(model, 64), prompt, 12), want.slice(0, prompt.length + 12));
  });
  test(`logits by graph on ${name} agree with those op by op`, { skip: missing ?? absent }, async () => {
    const model = Llama.load(dir as string, { device: device as Device });
    const [graph, plain] = [new GraphDecoder(model, 32), new PlainDecoder(model)];
    for (const tokens of [[1, 5, 9], [20], [7]]) {
      const [a, b] = [await graph.run(tokens), await plain.run(tokens)];
      const scale = b.reduce((m, v) => Math.max(m, Math.abs(v)), 0);
      const worst = a.reduce((m, v, i) => Math.max(m, Math.abs(v - b[i])), 0);
      assert.ok(worst <= 1e-4 * scale, `off by ${worst} where the largest is ${scale}`);
    }
    graph.dispose();
    plain.dispose();
  });
}
