// NaN and infinities in the attention kernels that the simulation's own plans do not choose: on matrix units, forward
// and backward, in the layouts of both vendors. attention-nan.test.ts has the others.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backwardLaunches, deltaLaunch, forwardLaunch } from '../src/backends/gpu/attention-kernels.js';
import { attentionOf, firstApart, type Row } from './attention-oracle.js';
import { type FloatType, type Options, Problem, target } from './attention-problem.js';
import { SimRunner } from './sim-support.js';

const FORMS: Readonly<Record<string, Options>> = {
  'all keys': { tq: 9, tk: 20 },
  'causal over tiles': { heads: 1, tq: 70, tk: 90, right: 0 },
  'heads of 64': { heads: 1, tq: 9, tk: 9, dim: 64, right: 0 },
  'heads of 128': { heads: 1, tq: 9, tk: 9, dim: 128, right: 0 },
  'heads of 200': { heads: 1, tq: 9, tk: 9, dim: 200, right: 0 },
  'grouped heads and a window': { heads: 4, kvHeads: 2, tq: 9, tk: 17, left: 4, right: 2 },
  'boolean mask': { heads: 1, tq: 9, tk: 17, mask: 'bool' },
  'added mask': { heads: 1, tq: 9, tk: 17, mask: 'add' },
  'soft cap, alibi and sinks': { tq: 9, tk: 17, softcap: 2, alibi: true, sinks: true, right: 0 },
  'rows that see nothing': { tq: 20, tk: 11, right: 0 },
  lengths: { tq: 5, tk: 33, page: 16, lengths: [], right: 0 },
};

type Side = 'q' | 'k' | 'v' | 'dout';
interface Place {
  readonly side: Side;
  readonly row: number;
  readonly value: number;
}
function placesOf(o: Options): Place[] {
  const of = (side: Side, n: number, values: readonly number[]): Place[] =>
    [0, n >> 1, n - 1].flatMap((row) => values.map((value) => ({ side, row, value })));
  const all = [NaN, Infinity, -Infinity];
  const [tq, tk] = [o.tq ?? 8, o.tk ?? 8];
  return [...of('q', tq, [NaN]), ...of('k', tk, all), ...of('v', tk, [NaN, Infinity]), ...of('dout', tq, [NaN])];
}

const BOUND: Readonly<Record<string, number>> = { f16: 4e-3, bf16: 3e-2 };
function check(run: SimRunner, arch: string, dtype: FloatType, label: string, form: Options): void {
  const places = placesOf(form);
  const { heads = 2, kvHeads = heads, tq = 8, tk = 8, dim = 16 } = form;
  const length = form.lengths ? tk - 4 : tk;
  const p = new Problem(run, dtype, {
    ...form,
    ...{ heads, kvHeads, tq, tk, dim, batch: places.length },
    ...(form.lengths && { lengths: places.map(() => length) }),
    spoil: (values) =>
      places.forEach(({ side, row, value }, b) => {
        const [h, t] = side === 'q' || side === 'dout' ? [heads, tq] : [kvHeads, tk];
        if (!form.page || side === 'q' || side === 'dout') values[side][((b * h + h - 1) * t + row) * dim + 3] = value;
        else {
          const each = Math.ceil(tk / form.page);
          // Pages are given from the last one down.
          const at = (each * places.length + 2 - (b * each + Math.floor(row / form.page))) * kvHeads + kvHeads - 1;
          values[side][(at * form.page + (row % form.page)) * dim + 3] = value;
        }
      }),
  });
  if (form.mask === 'add') {
    // A third of the keys are hidden.
    p.mask.forEach((_, n) => (p.mask[n] = n % 3 === 0 ? -Infinity : 0));
    Object.assign(p.call, { mask: run.of(dtype, p.mask) });
  }
  const device = target(run, arch);
  const launch = forwardLaunch(p.call, dtype, device);
  assert.equal(launch.kernel.module.name, 'attention-matrix');
  const back = !form.page && dim <= 128;
  const launches = back ? [deltaLaunch(p.call, dtype), ...backwardLaunches(p.call, dtype, device)] : [];
  for (const l of launches.slice(1)) assert.equal(l.kernel.module.name, 'attention-backward-matrix');
  p.launch([launch, ...launches]);

  const c = p.call;
  const rowOf = (side: Side, strides: readonly number[]): Row => {
    const all = Float64Array.from(p.values[side]);
    return (b, h, i) => {
      let at = strides[0] * b + strides[1] * h + strides[2] * i;
      if (form.page && (side === 'k' || side === 'v'))
        at =
          strides[0] * p.pages[b * (c.pageTable ?? 0) + Math.floor(i / form.page)] +
          strides[1] * h +
          strides[2] * (i % form.page);
      return all.subarray(at, at + dim);
    };
  };
  const maskAt = (b: number, h: number, i: number, j: number): number => p.mask[((b * heads + h) * tq + i) * tk + j];
  const [left, right] = [c.left, c.right];
  const want = attentionOf({
    ...{ batch: places.length, heads, kvHeads, tq, tk, dim, scale: c.scale, softcap: form.softcap },
    q: rowOf('q', c.qStrides as readonly number[]),
    k: rowOf('k', c.kStrides as readonly number[]),
    v: rowOf('v', c.vStrides as readonly number[]),
    ...(back && { dout: rowOf('dout', c.doutStrides as readonly number[]) }),
    sees: (b, h, i, j) => {
      const x = i + length - tq;
      if (form.mask === 'bool' && maskAt(b, h, i, j) === 0) return false;
      return j < length && (right < 0 || j <= x + right) && (left < 0 || j >= x - left);
    },
    bias: (b, h, i, j) =>
      (form.alibi ? -p.slopes[h] * Math.abs(i + length - tq - j) : 0) + (form.mask === 'add' ? maskAt(b, h, i, j) : 0),
    ...(form.sinks && { sink: (h) => p.sinks[h] }),
  });
  for (const side of back ? (['out', 'dq', 'dk', 'dv'] as const) : (['out'] as const)) {
    const got = p.read(side);
    const per = want[side].length / places.length;
    places.forEach(({ side: of, row, value }, b) => {
      const part = (x: readonly number[]): number[] => x.slice(b * per, (b + 1) * per);
      const apart = firstApart(part(got), part(want[side]), BOUND[dtype] * (side === 'out' ? 1 : 4));
      assert.equal(apart, undefined, `${label}, ${dtype}, ${side} with ${value} in row ${row} of ${of}: ${apart}`);
    });
  }
  run.free();
}

for (const [wave, arch, layout] of [
  [32, 'sm_80', 'mma'],
  [64, 'gfx90a', 'MFMA'],
] as const)
  for (const [label, form] of Object.entries(FORMS))
    test(`NaN and infinities on matrix units in the layout of ${layout}: ${label}`, () => {
      const run = new SimRunner(wave);
      check(run, arch, label === 'all keys' ? 'f16' : 'bf16', label, form);
    });
