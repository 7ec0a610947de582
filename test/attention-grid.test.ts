// Attention over the grid of its options against the double-precision reference, with gradients; packed and paged
// sequences against plain ones.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, randn, scope, tensor, type Tensor } from '../src/index.js';
import type { DType } from '../src/base/dtype.js';
import type { SdpaOptions } from '../src/ops/attention-calls.js';
import { PagedKvCache } from '../src/nn/index.js';
import { testDevices } from '../src/testing/devices.js';

const TOLERANCE: Partial<Record<DType, number>> = { f64: 1e-12, f32: 2e-5, f16: 4e-3, bf16: 3e-2 };
const close = (got: Tensor, want: Tensor, dtype: DType, what: string): void => {
  const [g, w] = [got, want].map((t) => t.to(Device.reference()).cast('f64'));
  const scale = Math.max(w.abs().max().item(), 1e-3);
  const error = g.sub(w).abs().max().item() / scale;
  assert.ok(error <= (TOLERANCE[dtype] as number), `${what}: off by ${error} of the largest magnitude`);
};

interface Problem {
  readonly b: number;
  readonly h: number;
  readonly hk: number;
  readonly tq: number;
  readonly tk: number;
  readonly d: number;
}
const PROBLEMS: readonly Problem[] = [
  { b: 2, h: 4, hk: 2, tq: 7, tk: 7, d: 8 },
  { b: 1, h: 2, hk: 1, tq: 3, tk: 19, d: 24 },
  { b: 1, h: 3, hk: 3, tq: 1, tk: 33, d: 64 },
];
type Extra = Partial<Record<'mask' | 'boolMask' | 'alibi' | 'sinks', true>> &
  Omit<SdpaOptions, 'mask' | 'alibi' | 'sinks'>;
const OPTIONS: readonly (readonly [string, Extra])[] = [
  ['plain', {}],
  ['causal', { causal: true }],
  ['scale', { scale: 0.3 }],
  ['softcap', { softcap: 1.5, causal: true }],
  ['window', { window: 2 }],
  ['causal window', { window: 3, causal: true }],
  ['uneven window', { window: [1, 2] }],
  ['added mask', { mask: true }],
  ['boolean mask', { boolMask: true }],
  ['alibi', { alibi: true, causal: true }],
  ['sinks', { sinks: true }],
  ['everything', { causal: true, window: 4, softcap: 2, mask: true, alibi: true, sinks: true, scale: 0.4 }],
];

/** Inputs are drawn on the reference device and moved, so that all devices see the same numbers. */
function inputs(
  p: Problem,
  o: Extra,
  layout: 'bhtd' | 'bthd',
  dtype: DType,
): { q: Tensor; k: Tensor; v: Tensor; named: Map<string, Tensor>; options: (t: Map<string, Tensor>) => SdpaOptions } {
  const device = Device.reference();
  let seed = 11;
  const make = (shape: number[], as: DType = dtype): Tensor =>
    randn(shape, { seed: seed++, dtype: 'f64', device }).cast(as);
  const qkv = (h: number, t: number): Tensor => make(layout === 'bhtd' ? [p.b, h, t, p.d] : [p.b, t, h, p.d]);
  const named = new Map<string, Tensor>();
  if (o.mask) named.set('mask', make([1, p.h, p.tq, p.tk]));
  if (o.boolMask) named.set('mask', make([p.b, 1, p.tq, p.tk]).gt(-0.8));
  if (o.alibi) named.set('alibi', make([p.h], 'f32').abs());
  if (o.sinks) named.set('sinks', make([p.h], 'f32'));
  const { mask: _m, boolMask: _b, alibi: _a, sinks: _s, ...rest } = o;
  return {
    q: qkv(p.h, p.tq),
    k: qkv(p.hk, p.tk),
    v: qkv(p.hk, p.tk),
    named,
    options: (t) => ({ ...rest, layout, ...Object.fromEntries(t) }),
  };
}

function run(device: Device, i: ReturnType<typeof inputs>, back: boolean): { out: Tensor; grads: Map<string, Tensor> } {
  const here = (t: Tensor): Tensor => (t.dtype === 'bool' ? t.to(device) : t.to(device).detach().requireGrad(back));
  const [q, k, v] = [i.q, i.k, i.v].map(here);
  const named = new Map([...i.named].map(([name, t]) => [name, here(t)]));
  const out = q.sdpa(k, v, i.options(named));
  const grads = new Map<string, Tensor>();
  if (!back) return { out, grads };
  const all = out.backward({
    grad: randn(out.shape, { seed: 5, dtype: 'f64', device: Device.reference() }).cast(out.dtype).to(device),
  });
  for (const [name, t] of [['q', q], ['k', k], ['v', v], ...named] as const)
    if (t.requiresGrad) grads.set(name, all.of(t));
  return { out, grads };
}

for (const { name, device, missing } of testDevices('cpu')) {
  for (const [label, o] of OPTIONS) {
    test(`attention on ${name}: ${label}, in both layouts and every dtype, with gradients`, { skip: missing }, () => {
      for (const p of PROBLEMS)
        for (const layout of ['bhtd', 'bthd'] as const)
          for (const dtype of ['f32', 'f64', 'bf16', 'f16'] as const) {
            scope(() => {
              const i = inputs(p, o, layout, dtype);
              const back = dtype === 'f32' || dtype === 'f64';
              const want = run(Device.reference(), i, back);
              const got = run(device as Device, i, back);
              const what = `${JSON.stringify(p)} ${layout} ${dtype}`;
              close(got.out, want.out, dtype, what);
              for (const [input, g] of want.grads)
                close(got.grads.get(input) as Tensor, g, dtype, `${what}: gradient of ${input}`);
            });
          }
    });
  }

  test(`packed sequences on ${name} are what each gives alone, gradients too`, { skip: missing }, () =>
    scope(() => {
      const d = device as Device;
      const lengths = [
        [3, 5],
        [1, 9],
        [6, 6],
      ];
      const [h, hk, dim] = [4, 2, 16];
      const sum = (i: number): number => lengths.reduce((n, l) => n + l[i], 0);
      const starts = (i: number): Tensor =>
        tensor(Int32Array.from(lengths.reduce<number[]>((s, l) => [...s, s[s.length - 1] + l[i]], [0])), { device: d });
      const make = (shape: number[], seed: number): Tensor =>
        randn(shape, { seed, dtype: 'f64', device: d }).requireGrad();
      const [q, k, v] = [make([sum(0), h, dim], 1), make([sum(1), hk, dim], 2), make([sum(1), hk, dim], 3)];
      const out = q.sdpaVarlen(k, v, starts(0), starts(1), { causal: true, maxQueries: 6, maxKeys: 9 });
      const upstream = randn(out.shape, { seed: 9, dtype: 'f64', device: d });
      const grads = out.backward({ grad: upstream });
      let [qAt, kAt] = [0, 0];
      for (const [nq, nk] of lengths) {
        const part = (t: Tensor, at: number, n: number): Tensor => t.detach().narrow(0, at, n).copy().requireGrad();
        const [qi, ki, vi] = [part(q, qAt, nq), part(k, kAt, nk), part(v, kAt, nk)];
        const alone = qi
          .unsqueeze(0)
          .sdpa(ki.unsqueeze(0), vi.unsqueeze(0), { causal: true, layout: 'bthd' })
          .squeeze([0]);
        close(out.detach().narrow(0, qAt, nq), alone, 'f64', 'output');
        const own = alone.backward({ grad: upstream.narrow(0, qAt, nq) });
        for (const [whole, one, at, n] of [
          [q, qi, qAt, nq],
          [k, ki, kAt, nk],
          [v, vi, kAt, nk],
        ] as const)
          close(grads.of(whole).narrow(0, at, n), own.of(one), 'f64', 'gradient');
        qAt += nq;
        kAt += nk;
      }
    }),
  );

  test(`paged keys and values on ${name} are what contiguous ones give`, { skip: missing }, () =>
    scope(() => {
      const d = device as Device;
      const [h, hk, dim] = [4, 2, 32];
      const cache = new PagedKvCache({ pages: 12, pageRows: 4, kvHeads: hk, headDim: dim, dtype: 'f32', device: d });
      const all = [9, 5].map((n, i) => ({
        n,
        k: randn([hk, n, dim], { seed: 20 + i, device: d }),
        v: randn([hk, n, dim], { seed: 30 + i, device: d }),
        s: cache.open(),
      }));
      // Turns of a few tokens, so that pages of the sequences alternate.
      for (let at = 0; at < 9; at += 3)
        for (const { n, k, v, s } of all)
          if (at < n) cache.append(s, k.narrow(1, at, Math.min(3, n - at)), v.narrow(1, at, Math.min(3, n - at)));
      const q = randn([2, h, 1, dim], { seed: 40, device: d });
      const got = cache.attend(
        q,
        all.map((x) => x.s),
        { causal: true },
      );
      all.forEach(({ k, v }, i) =>
        close(got.narrow(0, i, 1), q.narrow(0, i, 1).sdpa(k.unsqueeze(0), v.unsqueeze(0)), 'f32', `sequence ${i}`),
      );
      assert.equal(cache.freePages, 12 - 3 - 2);
      cache.close(all[0].s);
      assert.equal(cache.freePages, 12 - 2);
    }),
  );

  test(`gradients of sinks and slopes on ${name} are those of the composed form`, { skip: missing }, () =>
    scope(() => {
      const d = device as Device;
      const [h, t, dim] = [2, 5, 8];
      const make = (shape: number[], seed: number, dtype: DType): Tensor =>
        randn(shape, { seed, dtype, device: d }).requireGrad();
      const [q, k, v] = [1, 2, 3].map((seed) => make([1, h, t, dim], seed, 'f64'));
      const [sinks, alibi] = [make([h], 4, 'f32'), make([h], 5, 'f32')];
      const grad = randn([1, h, t, dim], { seed: 6, dtype: 'f64', device: d });
      const got = q.sdpa(k, v, { sinks, alibi }).backward({ grad });
      const at = tensor(
        Float64Array.from({ length: t }, (_, i) => i),
        { device: d },
      );
      const distance = at.unsqueeze(1).sub(at).abs();
      const logits = q
        .matmul(k.t())
        .affine(1 / Math.sqrt(dim), 0)
        .sub(alibi.cast('f64').reshape([h, 1, 1]).mul(distance));
      const withSink = logits.cat([sinks.cast('f64').reshape([1, h, 1, 1]).broadcastTo([1, h, t, 1])], 3).softmax(3);
      const want = withSink.narrow(3, 0, t).matmul(v).backward({ grad });
      for (const [label, x] of [
        ['sinks', sinks],
        ['slopes', alibi],
      ] as const)
        close(got.of(x), want.of(x), 'f32', label);
      for (const x of [q, k, v]) close(got.of(x), want.of(x), 'f64', 'operand');
    }),
  );
}
