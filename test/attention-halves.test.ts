// Attention in 16 bits against the same device's kernels for f32, which share no code with those of matrix units: head
// dimensions of 64 and 128, every change of scores, with gradients. Small on hosts, at lengths of several tiles on
// GPUs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Device, noGrad, randn, scope, tensor, type Tensor } from '../src/index.js';
import type { SdpaOptions } from '../src/ops/attention-calls.js';
import { testDevices } from '../src/testing/devices.js';

/** How far results may be apart by the largest number, and by the root of the mean square. */
const APART = { bf16: { most: 1e-2, mean: 4e-3 }, f16: { most: 1.5e-3, mean: 6e-4 } } as const;
type Half = keyof typeof APART;
function close(got: Tensor, want: Tensor, dtype: Half, what: string): void {
  const [a, b] = [got.cast('f32'), want.cast('f32')];
  const apart = a.sub(b);
  const most = apart.abs().max().item() / b.abs().max().item();
  const mean = Math.sqrt(apart.sqr().mean().item() / b.sqr().mean().item());
  const { most: far, mean: usual } = APART[dtype];
  assert.ok(most <= far && mean <= usual, `${what}: apart by ${most}, ${mean} on average`);
}

interface Sizes {
  readonly b: number;
  readonly h: number;
  readonly hk: number;
  readonly tq: number;
  readonly tk: number;
}
const SMALL: readonly Sizes[] = [{ b: 1, h: 2, hk: 1, tq: 37, tk: 70 }];
const LARGE: readonly Sizes[] = [
  { b: 2, h: 4, hk: 2, tq: 300, tk: 333 },
  { b: 1, h: 3, hk: 3, tq: 1024, tk: 1024 },
  { b: 3, h: 8, hk: 8, tq: 500, tk: 500 },
];
/** Enough for the kernels that dense problems have of their own on some GPUs, also for heads of 64. */
const MANY: readonly Sizes[] = [
  { b: 4, h: 16, hk: 8, tq: 1100, tk: 1300 },
  { b: 6, h: 16, hk: 16, tq: 700, tk: 900 },
];
const DENSE: readonly string[] = ['plain', 'causal', 'a causal window', 'sinks'];
/** Small inputs of a call: `make` gives normal numbers of a shape. */
type Given = (make: (shape: number[]) => Tensor, s: Sizes, dtype: Half) => SdpaOptions;
const seldom = (x: Tensor): Tensor => x.gt(-0.8);
/** The lesser of a number for each score and one for its row: rows of which a comparison hides every key. */
const byRows: (...of: Parameters<Given>) => Tensor = (make, { b, tq, tk }) =>
  seldom(make([b, 1, tq, tk]).minimum(make([b, 1, tq, 1]).broadcastTo([b, 1, tq, tk])));
const OPTIONS: Readonly<Record<string, Given>> = {
  plain: () => ({}),
  causal: () => ({ causal: true }),
  'a window': () => ({ window: [100, 30] }),
  'a causal window': () => ({ window: [70, 0], causal: true }),
  'a soft cap': () => ({ softcap: 2, causal: true }),
  alibi: (make, { h }) => ({ alibi: make([h]).abs().mul(0.05), causal: true }),
  sinks: (make, { h }) => ({ sinks: make([h]), causal: true }),
  'a boolean mask': (make, { b, tq, tk }) => ({ mask: seldom(make([b, 1, tq, tk])) }),
  'a boolean mask, causal': (make, { b, tq, tk }) => ({ mask: seldom(make([b, 1, tq, tk])), causal: true }),
  'a mask of keys': (make, { b, tq, tk }) => ({ mask: seldom(make([b, 1, 1, tk])).broadcastTo([b, 1, tq, tk]) }),
  'a mask that is part of another': (make, { b, tq, tk }) => ({
    mask: seldom(make([b, 1, tq, tk + 3])).narrow(3, 1, tk),
  }),
  'a mask that hides rows': (...of) => ({ mask: byRows(...of) }),
  'an added mask': (make, { h, tq, tk }, dtype) => ({ mask: make([1, h, tq, tk]).cast(dtype) }),
  'an added mask, transposed': (make, { h, tq, tk }, dtype) => ({
    mask: make([1, h, tk, tq]).cast(dtype).transpose(2, 3),
  }),
  'an added mask that hides rows': (make, s, dtype) => ({
    mask: byRows(make, s, dtype).cast('f32').log().cast(dtype),
    causal: true,
  }),
  everything: (make, { h, tq, tk }, dtype) => ({
    ...{ causal: true, window: [150, 0], softcap: 3, scale: 0.2 },
    ...{ mask: make([1, h, tq, tk]).cast(dtype), alibi: make([h]).abs().mul(0.05), sinks: make([h]) },
  }),
};

type Run = (inputs: readonly Tensor[], dtype: Half | 'f32') => Tensor;
/** The result and the gradients of all inputs, in 16 bits and in f32, from the same numbers. */
function compare(run: Run, inputs: readonly Tensor[], grad: Tensor, dtype: Half, what: string): void {
  const [got, want] = ([dtype, 'f32'] as const).map((t) => {
    const given = inputs.map((x) => x.cast(t).detach().requireGrad());
    const out = run(given, t);
    const grads = out.backward({ grad: grad.cast(t) });
    return [out, ...given.map((x) => grads.of(x))];
  });
  got.forEach((g, i) => close(g, want[i], dtype, `${what}: ${['the result', 'dq', 'dk', 'dv'][i]}`));
}

for (const { name, device, missing } of testDevices('sim:32')) {
  const onGpu = name.startsWith('cuda') || name.startsWith('rocm');
  if (device?.backend.gpu) device.backend.gpu.context.libraries.attentionTried = false; // our own kernels are compared
  const random = (shape: number[], seed: number): Tensor => randn(shape, { seed, device: device as Device });
  for (const dim of [64, 128])
    for (const [label, given] of Object.entries(OPTIONS))
      test(`heads of ${dim} on ${name}: ${label}, in 16 bits`, { skip: missing }, () => {
        for (const s of onGpu ? [...LARGE, ...(DENSE.includes(label) ? MANY : [])] : SMALL)
          for (const layout of ['bhtd', 'bthd'] as const)
            for (const dtype of onGpu ? (['bf16', 'f16'] as const) : (['bf16'] as const))
              scope(() => {
                let seed = 1;
                const make = (shape: number[]): Tensor => random(shape, seed++);
                const rows = (n: number, t: number): Tensor =>
                  make(layout === 'bhtd' ? [s.b, n, t, dim] : [s.b, t, n, dim]).cast(dtype);
                const inputs = [rows(s.h, s.tq), rows(s.hk, s.tk), rows(s.hk, s.tk)];
                const grad = rows(s.h, s.tq);
                const { mask, ...options } = given(make, s, dtype);
                const run: Run = ([q, k, v], t) =>
                  q.sdpa(k, v, {
                    ...options,
                    layout,
                    ...(mask && { mask: mask.dtype === 'bool' ? mask : mask.cast(t) }),
                  });
                compare(run, inputs, grad, dtype, `${dtype} ${layout} ${JSON.stringify(s)}`);
              });
      });

  for (const dim of [64, 128]) {
    const ints = (...values: number[]): Tensor => tensor(Int32Array.from(values), { device });
    const few = onGpu ? 1 : 10;
    test(`packed sequences of heads of ${dim} on ${name}, in 16 bits`, { skip: missing }, () =>
      scope(() => {
        const [qs, ks] = [
          [0, 300, 300, 310, 700],
          [0, 350, 360, 370, 900],
        ].map((at) => ints(...at.map((x) => x / few)));
        const rows = (n: number, heads: number, seed: number): Tensor => random([n / few, heads, dim], seed);
        const options = { causal: true, maxQueries: 400 / few, maxKeys: 530 / few };
        const inputs = [rows(710, 4, 1), rows(900, 2, 2), rows(900, 2, 3)].map((x) => x.cast('bf16'));
        const run: Run = ([q, k, v]) => q.sdpaVarlen(k, v, qs, ks, options);
        compare(run, inputs, rows(710, 4, 4).cast('bf16'), 'bf16', 'varlen');
      }),
    );
    test(`paged keys of heads of ${dim} on ${name}, in 16 bits`, { skip: missing }, () =>
      scope(() =>
        noGrad(() => {
          for (const page of [16, 64, 5]) {
            const [lengths, b, tq] = [[400, 233, 301].map((n) => Math.ceil(n / few)), 3, 200 / few];
            const per = Math.ceil(lengths[0] / page);
            const q = random([b, 4, tq, dim], 1).cast('bf16');
            const [k, v] = [2, 3].map((seed) => random([b * per + 3, 2, page, dim], seed).cast('bf16'));
            const table = ints(...Array.from({ length: b * per }, (_, i) => (i * 7 + 2) % (b * per)));
            const options = { causal: true, lengths: ints(...lengths) };
            const [got, want] = (['bf16', 'f32'] as const).map((t) =>
              q.cast(t).sdpaPaged(k.cast(t), v.cast(t), table.reshape([b, per]), options),
            );
            close(got, want, 'bf16', `pages of ${page}`);
          }
        }),
      ),
    );
  }
}
