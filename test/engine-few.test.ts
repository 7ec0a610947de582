// Recorded steps of a few sequences: products with several vectors, attention over pages in one launch, residuals that
// a library may add, each against what is known to be right.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gpuOf } from '../src/backends/generation.js';
import { builtinModel, TextEngine } from '../src/engine/index.js';
import { randomStream } from '../src/engine/sampler.js';
import { type DType, Generator } from '../src/index.js';
import { Llama, type LlamaConfig } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { tensor } from '../src/tensor/create.js';
import { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import { loadTokenizer } from '../src/tokenizers/index.js';

/** What a dtype keeps of a number, and how far a sum may be off. */
const KEPT: Readonly<Record<'f16' | 'bf16', number>> = { f16: 2 ** -10, bf16: 2 ** -7 };

for (const spec of ['cpu', 'sim:32', 'sim:32+cublaslt'])
  test(`a product ${spec.includes('+') ? 'is' : 'is not'} added onto a sum on ${spec}`, () => {
    const device = Device.get(spec);
    const make = (rows: number, cols: number, by: number): Tensor =>
      tensor(
        Float32Array.from({ length: rows * cols }, (_, i) => ((i * by) % 13) - 6),
        { shape: [rows, cols], device },
      );
    const [sum, x, weight] = [make(3, 16, 5), make(3, 8, 7), make(16, 8, 3)];
    const [before, product] = [sum.toArray(), sum.add(x.matmul(weight.t())).toArray()];
    const added = device.backend.gpu?.addProduct(sum, x, weight) ?? false;
    assert.equal(added, spec.includes('+'));
    assert.deepEqual(sum.toArray(), added ? product : before);
  });

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

    for (const [vectors, rows, k] of [
      [2, 40, 64],
      [7, 33, 2088],
      [8, 16, 512],
      [3, 20, 5120],
    ])
      test(`${vectors} vectors with ${rows} rows of ${k} ${dtype} on ${name}: norm, bias, residual, gate`, {
        skip,
      }, () => {
        const steps = gpuOf(on.backend, 'decoding').decodeSteps(dtype, vectors);
        const x = put(make(vectors * k), [vectors, k]);
        const weight = put(make(2 * rows * k), [2 * rows, k]);
        const [bias, residual] = [put(make(rows)), put(make(vectors * rows), [vectors, rows])];
        const out = put(new Float32Array(vectors * rows), [vectors, rows]);
        const [xs, ws, bs, rs] = [x, weight, bias, residual].map(held);
        assert.ok(steps.takes(weight));
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

    const many = 3 * (device?.backend.gpu?.context.device.info.multiprocessors ?? 1);
    /**
     * Heads, those of keys, their size; matrix units take up to eight of 64 or 128 numbers to a key, four of 256. Heads
     * of keys may be so many that a device has rounds of blocks.
     */
    const SHAPES = [
      [4, 2, 64],
      [12, 1, 64],
      [8, 2, 128],
      [3, 1, 256],
      [8, 1, 104],
      [many, many, 64],
    ] as const;
    for (const [heads, kvHeads, dim] of SHAPES)
      test(`attention of three sequences over pages of ${dtype}, ${heads} heads of ${dim} to ${kvHeads}, on ${name}`, {
        skip,
      }, () => {
        const [pageTokens, room] = [4, 256];
        const [width, positions] = [room / pageTokens, [5, 201, 0]];
        const n = positions.length;
        const pages = n * width; // each belongs to one sequence: new tokens are stored meanwhile
        const table = Int32Array.from({ length: pages }, (_, i) => (i * 7) % pages);
        const rowOf = (s: number, p: number): number =>
          table[s * width + Math.floor(p / pageTokens)] * pageTokens + (p % pageTokens);
        const angles = make((room * dim) / 2);
        const [cos, sin] = [angles.map(Math.cos), angles.map(Math.sin)].map((t) => put(t, [room, dim / 2]));
        const wide = (heads + 2 * kvHeads) * dim;
        const rows = pages * pageTokens;
        const kept = [0, 1].map(() => put(make(rows * kvHeads * dim), [rows, kvHeads * dim]));
        const [keys, values] = kept.map(held);
        const qkv = put(make(n * wide));
        const steps = gpuOf(on.backend, 'decoding').decodeSteps(dtype, n);
        const slots = positions.map((p, s) => rowOf(s, p));
        const state = [positions.map(() => 0), positions, slots, positions.map(() => 1)];
        const out = put(new Float32Array(n * heads * dim), [n, heads, 1, dim]);
        const size = steps.partialSize({ heads, kvHeads, dim, room, paged: true });
        const given = {
          ...{ cos, sin, keys: kept[0], values: kept[1], out, qkv },
          state: tensor(Int32Array.from(state.flat()), { device: on }),
          arrived: tensor(new Int32Array(n * heads), { device: on }),
          paged: { table: tensor(table, { device: on }), pageTokens, room },
        };
        const parts = (count: number): Tensor => put(new Float32Array(count), undefined, 'f32');
        assert.throws(() => steps.attend({ ...given, partial: parts(size - 1) }), /take \d+ floats, not/);
        steps.attend({ ...given, partial: parts(size) });
        const [got, x, c, t, stored] = [out, qkv, cos, sin, kept[1]].map(held);
        const half = dim / 2;
        /** A vector of a sequence's new token, turned as its position asks. */
        const turned = (s: number, vector: number): number[] =>
          Array.from({ length: dim }, (_, d) => {
            const [from, i] = [s * wide + vector * dim, d % half];
            const [a, b, at] = [x[from + i], x[from + i + half], positions[s] * half + i];
            return d < half ? a * c[at] - b * t[at] : a * t[at] + b * c[at];
          });
        for (let s = 0; s < n; s++)
          for (let h = 0; h < heads; h++) {
            const kv = Math.floor((h * kvHeads) / heads);
            const [query, key] = [turned(s, h), turned(s, heads + kv)];
            const value = x.subarray(s * wide + (heads + kvHeads + kv) * dim);
            const row = (all: Float32Array, p: number): Float32Array =>
              all.subarray((rowOf(s, p) * kvHeads + kv) * dim);
            assert.deepEqual(row(stored, positions[s]).slice(0, dim), value.slice(0, dim), 'the value is stored');
            const weights = Array.from({ length: positions[s] + 1 }, (_, p) => {
              const k = p < positions[s] ? row(keys, p) : key;
              return Math.exp(query.reduce((sum, q, d) => sum + q * k[d], 0) / Math.sqrt(dim));
            });
            const total = weights.reduce((a, b) => a + b, 0);
            for (let d = 0; d < dim; d++) {
              const of = (p: number): number => (p < positions[s] ? row(values, p) : value)[d];
              const want = weights.reduce((sum, w, p) => sum + w * of(p), 0) / total;
              const found = got[(s * heads + h) * dim + d];
              assert.ok(Math.abs(found - want) <= 2 * KEPT[dtype], `${s}, ${h}, ${d}: ${found} instead of ${want}`);
            }
          }
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
