// Keys and values in 8 bits: answers stay near those of the whole cache, every way of decoding agrees, memory is less,
// and what cannot be kept so is refused.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tokenBytes } from '../src/engine/executor.js';
import { type Decoder, GraphDecoder, LanguageModel, PlainDecoder } from '../src/engine/index.js';
import { PagedDecoder } from '../src/engine/paged-decoder.js';
import { Generator } from '../src/index.js';
import { type CausalLM, Llama, type LlamaConfig } from '../src/models/index.js';
import { CACHE_TYPES, type CacheType, VarBuilder, VarMap } from '../src/nn/index.js';
import { Device } from '../src/tensor/device.js';
import { testDevices } from '../src/testing/devices.js';

const TINY: LlamaConfig = {
  ...{ vocabSize: 64, hiddenSize: 64, intermediateSize: 96, layers: 2, heads: 4, kvHeads: 2, headDim: 32 },
  ...{ maxPositions: 64, normEps: 1e-5, ropeTheta: 10_000, tiedEmbeddings: false, eosTokenIds: [] },
};
const tiny = (device: Device, more: Partial<LlamaConfig> = {}): CausalLM =>
  new Llama(
    { ...TINY, ...more },
    VarBuilder.fromVarMap(new VarMap(), { device, generator: new Generator(3) }),
  ).eval() as CausalLM;

/** Logits after a prompt and after each of a few tokens. */
async function logits(decoder: Decoder): Promise<number[]> {
  const all: number[] = [];
  for (const tokens of [[1, 5, 9, 14, 3, 22, 7], [20], [7], [31]]) all.push(...(await decoder.run(tokens)));
  decoder.dispose();
  return all;
}
/** The largest difference as a share of the largest number. */
const apart = (a: readonly number[], b: readonly number[]): number =>
  Math.max(...a.map((x, i) => Math.abs(x - b[i]))) / Math.max(...b.map(Math.abs));
/** A unit of the last bit kept, with room for layers that follow. */
const NEAR: Readonly<Record<CacheType, number>> = { q8_0: 0.02, f8e4m3: 0.15 };

for (const { name, device, missing } of testDevices('cpu,sim:32')) {
  for (const type of CACHE_TYPES) {
    test(`a cache in ${type} on ${name}: near the whole one, however tokens are decoded`, {
      skip: missing,
    }, async () => {
      const model = tiny(device as Device);
      const whole = await logits(new PlainDecoder(model));
      const bytes = tokenBytes(model);
      model.cacheType = type;
      assert.equal(bytes / tokenBytes(model), type === 'q8_0' ? 4 / (34 / 32) : 4);
      const plain = await logits(new PlainDecoder(model));
      const off = apart(plain, whole);
      assert.ok(off > 0 && off < NEAR[type], `${type} is off by ${off}`);
      const other = GraphDecoder.serves(model) ? new GraphDecoder(model, 32) : new PagedDecoder(model);
      const agreed = apart(await logits(other), plain);
      assert.ok(agreed < NEAR[type] / 4, `the faster decoder is off by ${agreed}`);
    });
  }
}

test('an engine with a cache in 8 bits gives the text of one answer at a time', async () => {
  const load = (): Promise<LanguageModel> => LanguageModel.load(undefined, { device: 'cpu', cacheType: 'q8_0' });
  const [alone, together] = [await load(), await load()];
  let text = '';
  for await (const piece of alone.generate('Once upon a time', { temperature: 0, maxTokens: 24 })) text += piece;
  const prompts = ['Once upon a time', 'The cat'];
  const answers = await Promise.all(prompts.map((p) => together.reply(p, { temperature: 0, maxTokens: 24 }).done));
  assert.equal(answers[0].text, text);
  alone.dispose();
  together.dispose();
});

test('what cannot be kept in 8 bits is refused', () => {
  const odd = tiny(Device.get('cpu'), { headDim: 16 });
  assert.throws(() => (odd.cacheType = 'q8_0'), /heads of 16 numbers are not whole blocks of 32/);
  odd.cacheType = 'f8e4m3';
  assert.throws(() => (odd.cacheType = 'q4_0' as CacheType), /cache type "q4_0" is none of q8_0, f8e4m3/);
});
