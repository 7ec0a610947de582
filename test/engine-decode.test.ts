// Decoding on a GPU by graph gives the tokens that op by op gives; on the simulation where there is no GPU.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { gpuOf, SAMPLE } from '../src/backends/generation.js';
import { simOptions } from '../src/driver/sim.js';
import { GraphDecoder, PlainDecoder, type Decoder } from '../src/engine/index.js';
import { randomStream, Sampler, type SamplingOptions } from '../src/engine/sampler.js';
import { loadTensors } from '../src/io/index.js';
import { Llama } from '../src/models/index.js';
import { goldenFolder } from '../src/parity/golden.js';
import { goldenModels, modelFolder } from '../src/parity/models.js';
import { tensor } from '../src/tensor/create.js';
import type { Device } from '../src/tensor/device.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';

const golden = goldenFolder();
const dir = golden && goldenModels(golden).includes('llama') ? modelFolder(golden, 'llama') : undefined;
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

/** What a dtype keeps of a number. */
const KEPT = { f32: 1e-5, f16: 2 ** -10, bf16: 2 ** -7 } as const;
interface AttentionExtras {
  readonly window?: number;
  readonly softcap?: number;
  /** Norms over each query and key. */
  readonly norms?: boolean;
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
  test(`a graph on ${name} follows the token it is given, not the one it chose`, {
    skip: missing ?? absent,
  }, async () => {
    const model = Llama.load(dir as string, { device: device as Device });
    const [graph, plain] = [new GraphDecoder(model, 32), new PlainDecoder(model)];
    assert.equal(await graph.runGreedy([1, 5, 9]), await plain.runGreedy([1, 5, 9]));
    for (const token of [20, 7, 7, 31])
      assert.equal(await graph.runGreedy([token]), await plain.runGreedy([token]), `after ${token}`);
    graph.dispose();
    plain.dispose();
  });
  test(`a graph on ${name} draws the tokens that the sampler draws from logits`, {
    skip: missing ?? absent,
  }, async () => {
    const model = Llama.load(dir as string, { device: device as Device });
    for (const options of [
      { temperature: 0.9, topK: 20, topP: 0.9, repetitionPenalty: 1.3, seed: 5 },
      { temperature: 0, repetitionPenalty: 1.5 },
    ]) {
      const runs: number[][] = [];
      for (const decoder of [new GraphDecoder(model, 32), new PlainDecoder(model)]) {
        const sampler = new Sampler(options);
        const ids = [1, 5, 9];
        for (let i = 0; i < 6; i++) ids.push(await decoder.runSampled(i ? ids.slice(-1) : ids, sampler, ids));
        runs.push(ids);
        decoder.dispose();
      }
      assert.deepEqual(runs[0], runs[1]);
    }
  });
  // The simulation runs threads in both orders: what one order does by chance the other does not.
  for (const reverse of name.startsWith('sim') ? [false, true] : [false])
    test(`draws on ${name} are those of the sampler${reverse ? ', last thread first' : ''}`, { skip: missing }, (t) => {
      const before = simOptions.reverse;
      simOptions.reverse = reverse;
      t.after(() => (simOptions.reverse = before));
      const on = device as Device;
      const steps = gpuOf(on.backend, 'decoding').decodeSteps('f32');
      const n = 12_000; // a block's stretch is longer than a wave
      const [recent, draws] = [[3, 77, 3, 2999, 500], 6];
      const random = randomStream(9);
      const sharp = Float32Array.from({ length: n }, () => Math.log(random()) * -4 + 3 * random());
      sharp[77] = 38; // what the penalty is for: drawn before, and likely
      const flat = Float32Array.from({ length: n }, () => random() * 0.01);
      const cases: (readonly [Float32Array, SamplingOptions])[] = [
        [sharp, { temperature: 1 }],
        [flat, { temperature: 1 }],
        [sharp, { temperature: 0.7, topK: 40 }],
        [sharp, { temperature: 1.3, topP: 0.9 }],
        [sharp, { temperature: 1, minP: 0.05 }],
        [sharp, { temperature: 0.8, topK: 50, topP: 0.8, minP: 0.01, repetitionPenalty: 1.4, repetitionWindow: 3 }],
        [sharp, { temperature: 2, topK: 100, repetitionPenalty: 1.2 }],
        [sharp, { temperature: 0.01, topK: 40 }],
      ];
      const make = (data: Float32Array | Int32Array | Float64Array): Tensor => tensor(data, { device: on });
      const b = {
        work: make(new Float32Array(n)),
        tops: make(new Float32Array(SAMPLE.parts)),
        masses: make(new Float64Array(SAMPLE.parts)),
        bins: make(new Int32Array(SAMPLE.bins + 2)),
        candidates: make(new Float64Array(SAMPLE.most)),
      };
      const drawn = (logits: Float32Array, sampler: Sampler): number[] => {
        const uniforms = make(Float64Array.from({ length: 16 }, (_, i) => sampler.uniform(i - recent.length + 1)));
        const at = recent.length - 1;
        return Array.from({ length: draws }, (_, i) => {
          // Always after the same tokens, with a random number of its own.
          const tokens = make(Int32Array.from({ length: 17 }, (__, t) => recent[t - i] ?? 0));
          const state = make(Int32Array.of(0, at + i, at + i + 1));
          steps.draw({ ...b, logits: make(logits), uniforms, tokens, state }, sampler.options);
          assert.deepEqual(Array.from(state.dataSync() as Int32Array).slice(1), [at + i + 1, at + i + 2]);
          return Number(tokens.dataSync()[at + i + 1]);
        });
      };
      for (const [logits, options] of cases) {
        const want = new Sampler({ ...options, seed: 3 });
        const window = options.repetitionWindow ?? 5;
        const expected = Array.from({ length: draws }, () =>
          want.sample(Float32Array.from(logits), recent.slice(-window)),
        );
        const got = drawn(logits, new Sampler({ repetitionWindow: window, ...options, seed: 3 }));
        assert.deepEqual(got, expected, JSON.stringify(options));
      }
      assert.deepEqual(
        drawn(flat, new Sampler({ temperature: 1, topP: 0.99 })),
        Array(draws).fill(-1),
        'more tokens than the list holds are left to the host',
      );
      assert.ok(
        (b.bins.dataSync() as Int32Array).every((x) => x === 0),
        'counts are left at zero',
      );
    });
  for (const [rows, k] of [
    [9, 64],
    [10, 5000],
  ]) {
    // 5000 numbers are more than a block has in flight: rows are read in several turns.
    test(`products with rows of ${k} on ${name}: norm, bias, residual and gate against sums in double`, {
      skip: missing,
    }, () => {
      const on = device as Device;
      const steps = gpuOf(on.backend, 'decoding').decodeSteps('f32');
      const random = randomStream(k);
      const make = (n: number): Float32Array => Float32Array.from({ length: n }, () => random() * 2 - 1);
      const put = (data: Float32Array, shape = [data.length]): Tensor => tensor(data, { shape, device: on });
      const [x, norm, weight, bias, residual] = [make(k), make(k), make(2 * rows * k), make(rows), make(rows)];
      const factor = 1 / Math.sqrt(x.reduce((a, v) => a + v * v, 0) / k + 1e-5);
      const sum = (row: number): number => x.reduce((a, v, i) => a + v * norm[i] * weight[row * k + i], 0) * factor;
      const close = (got: Tensor, want: (row: number) => number): void =>
        (got.dataSync() as Float32Array).forEach((v, r) => {
          assert.ok(Math.abs(v - want(r)) <= 1e-5 * Math.sqrt(k), `row ${r}: ${v} instead of ${want(r)}`);
        });
      const out = put(new Float32Array(rows));
      const by = { x: put(x), norm: { weight: put(norm), eps: 1e-5 }, out };
      steps.product({
        ...by,
        weight: put(weight.slice(0, rows * k), [rows, k]),
        bias: put(bias),
        residual: put(residual),
      });
      close(out, (r) => sum(r) + bias[r] + residual[r]);
      const gates = {
        silu: (v: number) => v / (1 + Math.exp(-v)),
        gelu_pytorch_tanh: (v: number) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))),
      };
      for (const [activation, f] of Object.entries(gates)) {
        steps.gate({ ...by, weight: put(weight, [2 * rows, k]), activation });
        close(out, (r) => f(sum(r)) * sum(rows + r));
      }
      const joined = put(new Float32Array(k));
      const beside = make(k);
      steps.join({ x: by.x, norm: by.norm, residual: put(beside), out: joined });
      close(joined, (i) => beside[i] + x[i] * norm[i] * factor);
    });
  }
  /** A dtype, heads, those of keys, their size, and what a model may ask for beside; 16 bits may go by matrix units. */
  const NEW_TOKENS: readonly [keyof typeof KEPT, number, number, number, AttentionExtras?][] = [
    ['f32', 8, 2, 64],
    ['f32', 8, 1, 64, { window: 580, softcap: 2 }],
    ['f32', 3, 3, 40],
    ['f32', 4, 2, 128, { norms: true }],
    ['f32', 2, 2, 256],
    ['bf16', 8, 2, 64],
    ['f16', 12, 1, 64, { window: 580, softcap: 2 }],
    ['bf16', 3, 1, 128, { window: 64, norms: true }],
    ['f16', 4, 2, 128, { norms: true }],
    ['f16', 6, 1, 256, { norms: true, softcap: 2 }],
  ];
  for (const [dtype, heads, kvHeads, dim, extras = {}] of NEW_TOKENS) {
    const beside = Object.entries(extras).map(([what, x]) => `, ${what}${x === true ? '' : ` ${x}`}`);
    const shape = `${heads} heads over ${kvHeads}, dimension ${dim}${beside.join('')}`;
    test(`attention of a new token on ${name}: ${dtype}, ${shape}, split or not`, { skip: missing }, () => {
      const on = device as Device;
      const steps = gpuOf(on.backend, 'decoding').decodeSteps(dtype);
      const [room, kept, { window = Infinity, softcap, norms }] = [640, KEPT[dtype], extras];
      const random = randomStream(heads * dim);
      const flat = (data: Float32Array | Int32Array): Tensor => tensor(data, { device: on });
      const held = (t: Tensor): Float32Array => t.cast('f32').dataSync() as Float32Array;
      /** Random numbers as the dtype has them. */
      const make = (n: number): Float32Array =>
        held(flat(Float32Array.from({ length: n }, () => random() * 2 - 1)).cast(dtype));
      const put = (data: Float32Array, shape = [data.length]): Tensor => flat(data).reshape(shape).cast(dtype);
      const angles = make((room * dim) / 2);
      const tables = [angles.map(Math.cos), angles.map(Math.sin)].map((t) => put(t, [room, dim / 2]));
      const [cos, sin] = tables.map(held);
      const [keys, values] = [make(kvHeads * room * dim), make(kvHeads * room * dim)];
      const cache = [keys, values].map((data) => put(data, [1, kvHeads, room, dim]));
      const [qNorm, kNorm] = norms ? [make(dim), make(dim)] : [];
      const [arrived, partial] = [
        new Int32Array(heads),
        new Float32Array(steps.partialSize({ heads, kvHeads, dim, room })),
      ].map(flat);
      for (const position of [0, 1, 70, 600]) {
        const qkv = make((heads + 2 * kvHeads) * dim);
        const out = put(new Float32Array(heads * dim), [1, heads, 1, dim]);
        steps.attend({
          ...{ qkv: put(qkv), cos: tables[0], sin: tables[1], keys: cache[0], values: cache[1], out, partial, arrived },
          ...{ state: flat(Int32Array.of(0, position, position + 1)), window: extras.window, softcap },
          ...(qNorm && { qNorm: flat(qNorm), kNorm: flat(kNorm as Float32Array), eps: 1e-5 }),
        });
        const turned = (head: number): number[] => {
          const x = Array.from(qkv.subarray(head * dim, (head + 1) * dim));
          const by = head < heads ? qNorm : kNorm;
          const length = by ? Math.sqrt(x.reduce((a, v) => a + v * v, 0) / dim + 1e-5) : 1;
          const v = x.map((y, d) => (y / length) * (by?.[d] ?? 1));
          const half = dim / 2;
          return v.map((y, d) => {
            const [c, s] = [cos[position * half + (d % half)], sin[position * half + (d % half)]];
            return d < half ? y * c - v[d + half] * s : v[d - half] * s + y * c;
          });
        };
        for (let h = 0; h < kvHeads; h++) {
          const at = (h * room + position) * dim;
          keys.set(turned(heads + h), at);
          values.set(qkv.subarray((heads + kvHeads + h) * dim, (heads + kvHeads + h + 1) * dim), at);
        }
        const got = held(out);
        const start = Math.max(0, position + 1 - window);
        for (let h = 0; h < heads; h++) {
          const first = Math.floor(h / (heads / kvHeads)) * room + start;
          const q = turned(h);
          const weights = Array.from({ length: position + 1 - start }, (_, j) => {
            const score = q.reduce((a, x, d) => a + x * keys[(first + j) * dim + d], 0) / Math.sqrt(dim);
            return Math.exp(softcap ? softcap * Math.tanh(score / softcap) : score);
          });
          const total = weights.reduce((a, b) => a + b, 0);
          for (let d = 0; d < dim; d++) {
            const want = weights.reduce((a, w, j) => a + w * values[(first + j) * dim + d], 0) / total;
            const found = got[h * dim + d];
            assert.ok(Math.abs(found - want) < 2 * kept, `position ${position}, ${h}, ${d}: ${found}, not ${want}`);
          }
        }
        cache.forEach((t, i) => {
          const stored = held(t);
          const want = [keys, values][i];
          const far = stored.findIndex((x, j) => !(Math.abs(x - want[j]) < kept * (1 + Math.abs(x))));
          assert.equal(far, -1, `position ${position}: the cache has ${stored[far]}, not ${want[far]}`);
        });
        assert.ok((arrived.dataSync() as Int32Array).every((x) => x === 0));
      }
    });
  }
}
