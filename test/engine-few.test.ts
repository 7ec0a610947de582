// Steps of a few sequences in few launches: products with several vectors, attention over pages, and a whole step of the
// engine, each against what is known to be right.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DecodeSteps } from '../src/backends/gpu/decode.js';
import { servesBatch } from '../src/backends/gpu/decode-batch.js';
import { builtinModel, TextEngine } from '../src/engine/index.js';
import { FusedStep } from '../src/engine/fused-step.js';
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
    const serves = device && servesBatch(on.backend, dtype, 16);
    const skip = missing ?? (serves ? false : `${name} has no units for products of ${dtype}`);
    const put = (data: Float32Array, shape = [data.length], as: DType = dtype): Tensor =>
      tensor(data, { shape, device: on }).cast(as);
    const random = randomStream(3);
    const make = (n: number): Float32Array => Float32Array.from({ length: n }, () => random() * 2 - 1);
    /** Numbers as the dtype has them. */
    const held = (t: Tensor): Float32Array => t.cast('f32').dataSync() as Float32Array;

    for (const [vectors, rows, k] of [
      [2, 40, 64],
      [7, 33, 2088],
      [16, 16, 512],
    ])
      test(`${vectors} vectors with ${rows} rows of ${k} ${dtype} on ${name}: norm, bias, residual, gate`, {
        skip,
      }, () => {
        const steps = new DecodeSteps(on.backend, dtype, vectors);
        const x = put(make(vectors * k), [vectors, k]);
        const weight = put(make(2 * rows * k), [2 * rows, k]);
        const [bias, residual] = [put(make(rows)), put(make(vectors * rows), [vectors, rows])];
        const out = put(new Float32Array(vectors * rows), [vectors, rows]);
        const [xs, ws, bs, rs] = [x, weight, bias, residual].map(held);
        for (const scale of [undefined, put(make(k)), put(make(k), [k], 'f32')]) {
          const ns = scale && held(scale);
          const factor = (v: number): number =>
            ns ? 1 / Math.sqrt(xs.subarray(v * k, v * k + k).reduce((a, e) => a + e * e, 0) / k + 1e-5) : 1;
          // A norm's weight is multiplied in before the product, and that is rounded to the dtype.
          const given = ns ? held(put(xs.map((e, i) => Math.fround(e * ns[i % k])))) : xs;
          const sum = (v: number, row: number): number => {
            let added = 0;
            for (let i = 0; i < k; i++) added += given[v * k + i] * ws[row * k + i];
            return added * factor(v);
          };
          const close = (want: (v: number, row: number) => number): void =>
            held(out).forEach((got, i) => {
              const wanted = want(Math.floor(i / rows), i % rows);
              const most = KEPT[dtype] * Math.abs(wanted) + 1e-3;
              assert.ok(Math.abs(got - wanted) <= most, `${i}: ${got} instead of ${wanted}, within ${most}`);
            });
          const by = { x, out, ...(scale && { norm: { weight: scale, eps: 1e-5 } }) };
          steps.product({ ...by, weight: weight.narrow(0, 0, rows), bias, residual });
          close((v, r) => sum(v, r) + bs[r] + rs[v * rows + r]);
          steps.gate({ ...by, weight, activation: 'silu' });
          close((v, r) => (sum(v, r) / (1 + Math.exp(-sum(v, r)))) * sum(v, rows + r));
        }
      });

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
      assert.ok(FusedStep.serves(model, 4));
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
