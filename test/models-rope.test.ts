// Rope tables of every kind against those of transformers.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { CausalLM } from '../src/models/decoder/decoder.js';
import { Config, inverseFrequencies, readRope } from '../src/models/index.js';
import { loadModel } from '../src/models/load.js';
import { rowOrder } from '../src/models/decoder/rope.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { noGrad } from '../src/tensor/autograd.js';
import { tensor } from '../src/tensor/create.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';

interface Case {
  readonly head_dim: number;
  readonly max_position_embeddings: number;
  readonly rope_parameters: Readonly<Record<string, unknown>>;
  readonly length: number | null;
  readonly inv_freq: readonly number[];
  readonly attention_factor: number;
}

test('75 tables of inverse frequencies and their factors', { skip: missingGolden('rope.json') }, () => {
  const cases = JSON.parse(readFileSync(findGolden('rope.json') as string, 'utf8')) as Case[];
  const kinds = new Set<unknown>();
  for (const c of cases) {
    const { head_dim: headDim, max_position_embeddings: maxPositions, rope_parameters } = c;
    kinds.add(rope_parameters.rope_type);
    const config = new Config({ rope_parameters });
    const rope = readRope(config, { headDim, maxPositions, partial: 1 });
    config.refuseUnread();
    const { inv, factor } = inverseFrequencies(rope, c.length ?? 0);
    const all = [...inv, ...new Array<number>(c.inv_freq.length - inv.length).fill(0)];
    const what = `${JSON.stringify(rope_parameters)} at length ${c.length}`;
    assert.equal(all.length, c.inv_freq.length, what);
    all.forEach((f, i) =>
      assert.ok(
        Math.abs(f - c.inv_freq[i]) <= 1e-6 * Math.abs(c.inv_freq[i]),
        `${what}: ${i} is ${f}, not ${c.inv_freq[i]}`,
      ),
    );
    assert.ok(Math.abs(factor - c.attention_factor) <= 1e-6 * c.attention_factor, `${what}: factor ${factor}`);
  }
  assert.deepEqual([...kinds].sort(), ['default', 'dynamic', 'linear', 'llama3', 'longrope', 'proportional', 'yarn']);
});

test('rows of a head are put in the order in which kernels turn them', () => {
  const base = { type: 'default' as const, theta: 1e4, maxPositions: 8 };
  assert.equal(rowOrder({ ...base, headDim: 8, rotated: 8 }), undefined);
  assert.deepEqual(rowOrder({ ...base, headDim: 4, rotated: 4, interleaved: true }), [0, 2, 1, 3]);
  assert.deepEqual(rowOrder({ ...base, headDim: 8, rotated: 4 }), [0, 1, 4, 5, 2, 3, 6, 7]);
  assert.deepEqual(rowOrder({ ...base, headDim: 8, rotated: 4, interleaved: true }), [0, 2, 4, 5, 1, 3, 6, 7]);
});

test('a rope type or parameter that nobody knows is refused by name', () => {
  const read = (rope_parameters: object): void => {
    const config = new Config({ rope_parameters });
    readRope(config, { headDim: 8, maxPositions: 16 });
    config.refuseUnread();
  };
  assert.throws(() => read({ rope_type: 'spiral' }), /rope type "spiral"/);
  assert.throws(() => read({ rope_type: ['yarn'] }), /rope_type is \["yarn"\], not a text/);
  assert.throws(
    () => read({ rope_type: 'yarn', factor: 2, twist: 1 }),
    /rope_parameters\.twist is 1; nothing here honours/,
  );
  assert.throws(() => read({ rope_type: 'llama3', factor: 'two' }), /rope_parameters\.factor is "two", not a number/);
});

test(
  'with a cache, answers past the border of a longrope are those without one (docs/decisions/0019)',
  {
    skip: missingGolden('hf/phi3-longrope'),
  },
  () =>
    scope(() =>
      noGrad(() => {
        const { model } = loadModel<CausalLM>(findGolden('hf/phi3-longrope') as string, { device: 'cpu' });
        const border =
          model.config.layers.map(({ mixer: m }) => (m.kind === 'attention' ? m.rope?.original : 0))[0] ?? 0;
        const cache = model.newCache();
        const row = Array.from({ length: border - 3 }, (_, i) => (7 * i + 3) % 90);
        const last = (ids: readonly number[], held?: typeof cache): Tensor =>
          model.forward(tensor(Int32Array.from(ids), { shape: [1, ids.length], device: 'cpu' }), held, { last: true });
        for (let next = [...row], step = 0; step < 7; step++) {
          const [kept, anew] = [last(next, cache), last(row)];
          const off = kept.sub(anew).abs().max().item() / anew.abs().max().item();
          assert.ok(off <= 1e-4, `token ${row.length} of a border at ${border} is off by ${off}`);
          next = [Number(kept.reshape([-1]).argmax(0).item())];
          row.push(next[0]);
        }
        cache.reset();
      }),
    ),
);

test('a field of which no value, or only some values, are served is refused in a sentence', () => {
  const config = new Config({ logit_scale: 0.3, no_bias: false });
  assert.throws(() => config.only('logit_scale'), /logit_scale is 0\.3; this changes the result and is not served$/);
  assert.throws(
    () => config.only('no_bias', true),
    /no_bias is false; this changes the result and only true is served$/,
  );
  config.only('absent');
});
