// Recorded steps of a few sequences, whose attention is one launch over pages: each against what is known to be right.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DecodeSteps } from '../src/backends/gpu/decode.js';
import { builtinModel, TextEngine } from '../src/engine/index.js';
import { randomStream } from '../src/engine/sampler.js';
import { type DType, Generator } from '../src/index.js';
import { Llama, type LlamaConfig } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { tensor } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { loadTokenizer } from '../src/tokenizers/index.js';

/** What a dtype keeps of a number, and how far a sum may be off. */
const KEPT: Readonly<Record<'f16' | 'bf16', number>> = { f16: 2 ** -10, bf16: 2 ** -7 };

for (const { name, device, missing } of testDevices('sim:32'))
  for (const dtype of ['bf16', 'f16'] as const) {
    const on = device as Device;
    const skip = missing ?? false;
    const put = (data: Float32Array, shape = [data.length], as: DType = dtype): Tensor =>
      tensor(data, { shape, device: on }).cast(as);
    const random = randomStream(3);
    const make = (n: number): Float32Array => Float32Array.from({ length: n }, () => random() * 2 - 1);
    /** Numbers as the dtype has them. */
    const held = (t: Tensor): Float32Array => t.cast('f32').dataSync() as Float32Array;

    test(`attention of three sequences over pages of ${dtype} on ${name} is that of each`, { skip }, () => {
      const [heads, kvHeads, dim, pageTokens, room] = [4, 2, 64, 4, 64];
      const [width, pages, positions] = [room / pageTokens, 40, [5, 61, 0]];
      const n = positions.length;
      const table = Int32Array.from({ length: n * width }, (_, i) => (i * 7) % pages);
      const slots = positions.map(
        (p, s) => table[s * width + Math.floor(p / pageTokens)] * pageTokens + (p % pageTokens),
      );
      const angles = make((room * dim) / 2);
      const [cos, sin] = [angles.map(Math.cos), angles.map(Math.sin)].map((t) => put(t, [room, dim / 2]));
      const wide = (heads + 2 * kvHeads) * dim;
      const [kept, qkv] = [[0, 1].map(() => make(pages * pageTokens * kvHeads * dim)), make(n * wide)];
      const run = (list: readonly number[]): Float32Array => {
        const steps = new DecodeSteps(on.backend, dtype, list.length);
        const splits = steps.splits(heads, kvHeads, room);
        const state = [list.map(() => 0), list.map((s) => positions[s]), list.map((s) => slots[s]), list.map(() => 1)];
        const [keys, values] = kept.map((data) => put(data, [pages * pageTokens, kvHeads * dim]));
        const out = put(new Float32Array(list.length * heads * dim), [list.length, heads, 1, dim]);
        const tables = list.flatMap((s) => [...table.subarray(s * width, (s + 1) * width)]);
        steps.attend({
          ...{ cos, sin, keys, values, out },
          qkv: put(Float32Array.from(list.flatMap((s) => [...qkv.subarray(s * wide, (s + 1) * wide)]))),
          state: tensor(Int32Array.from(state.flat()), { device: on }),
          partial: put(new Float32Array(list.length * heads * splits * (dim + 1)), undefined, 'f32'),
          arrived: tensor(new Int32Array(list.length * heads), { device: on }),
          paged: { table: tensor(Int32Array.from(tables), { device: on }), pageTokens, room },
        });
        return held(out);
      };
      const together = run([0, 1, 2]);
      positions.forEach((_, s) =>
        run([s]).forEach((want, i) => {
          const got = together[s * heads * dim + i];
          assert.ok(Math.abs(got - want) <= 2 * KEPT[dtype], `sequence ${s}, ${i}: ${got} instead of ${want}`);
        }),
      );
    });

    const TINY: LlamaConfig = {
      ...{ vocabSize: 96, hiddenSize: 64, intermediateSize: 96, layers: 2, heads: 4, kvHeads: 2, headDim: 16 },
      ...{ maxPositions: 64, ropeTheta: 10000, normEps: 1e-5, tiedEmbeddings: false, eosTokenIds: [] },
    };
    test(`the engine's steps of two to six sequences of ${dtype} on ${name} are those op by op`, { skip }, async () => {
      const vars = VarBuilder.fromVarMap(new VarMap(), { device: on, dtype, generator: new Generator(4) });
      const model = new Llama(TINY, vars).eval();
      const tokenizer = loadTokenizer(builtinModel);
      const answers = async (maxRecorded: number, count: number): Promise<number[][]> => {
        const engine = new TextEngine(model, tokenizer, { pageTokens: 4, maxRunning: 8, maxRecorded });
        const all = await Promise.all(
          Array.from({ length: count }, async (_, i) => {
            const prompt = Array.from({ length: 3 + 2 * i }, (_, p) => (11 * p + 5 * i) % 96);
            const found: number[] = [];
            // The first token comes of the prompt's step, the second of the one that is looked at.
            const request = { prompt, maxTokens: 2, temperature: 0, logprobs: 4, ignoreEnd: true };
            for await (const { logprobs = [] } of engine.submit(request))
              for (const l of logprobs) found.push(...l.top.map((t) => t.logprob));
            return found;
          }),
        );
        await engine.dispose();
        return all;
      };
      for (const count of [2, 3, 6]) {
        const [want, got] = [await answers(0, count), await answers(8, count)];
        got.forEach((list, i) => {
          assert.equal(list.length, 8);
          list.forEach((x, j) =>
            assert.ok(Math.abs(x - want[i][j]) < 8 * KEPT[dtype], `${i}, ${j}: ${x}, ${want[i][j]}`),
          );
        });
      }
      model.dispose();
    });
  }
