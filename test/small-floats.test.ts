// The forms for small floats (kernels/portable/small.h) over every value of f16 and bf16, against the double reference.
// WICK_TEST_DEVICES names other devices than the simulation and the CPU.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, DTYPE } from '../src/base/dtype.js';
import { type Device, noGrad, scope, tensor } from '../src/index.js';
import { boundFor, type ElementwiseRow, type Params } from '../src/ops/op.js';
import { elementwiseRows } from '../src/ops/table.js';
import { apply } from '../src/tensor/dispatch.js';
import { difference } from '../src/testing/compare.js';
import { testDevices } from '../src/testing/devices.js';

const SMALL = ['bf16', 'f16'] as const satisfies readonly DType[];
const quick = elementwiseRows.filter((r) => r.small && r.arity === 1);
const values = (dtype: DType): number[] =>
  Array.from({ length: 65536 }, (_, bits) => Number(DTYPE[dtype].decode(bits)));
/** Exponents that are whole, odd, even, broken, large, special. */
const EXPONENTS = [
  2,
  3,
  -1,
  -3,
  0.5,
  -0.5,
  0.3333,
  0,
  -0,
  1,
  7,
  100.25,
  -100.25,
  300,
  4097,
  2 ** 23,
  Infinity,
  -Infinity,
  NaN,
];
/** The scalars a row is tried with. */
const SCALARS: Readonly<Record<string, readonly Params[]>> = {
  elu: [{ alpha: 1 }, { alpha: 0.25 }],
  powf: EXPONENTS.map((exponent) => ({ exponent })),
};
const rounded = (dtype: DType, v: number): number => Number(DTYPE[dtype].decode(DTYPE[dtype].encode(v)));

/** The worst of f over some operands in units, and what it was. */
function worst(
  device: Device,
  row: ElementwiseRow<any>,
  dtype: DType,
  operands: readonly (readonly number[])[],
  params: Params = {},
): { ulp: number; says: string } {
  const scalars = row.scalars.map((name) => Number(DTYPE.f32.decode(DTYPE.f32.encode(Number(params[name])))));
  const got = noGrad(() =>
    scope(() =>
      Array.from(
        apply(
          row,
          operands.map((o) => tensor(o as number[], { dtype, device })),
          params,
        )[0].dataSync() as ArrayLike<number>,
      ),
    ),
  );
  const want = operands[0].map((_, i) => rounded(dtype, row.exact(...operands.map((o) => o[i]), ...scalars)));
  const d = difference(got, want, dtype);
  const turned = want.findIndex((w, i) => w === 0 && got[i] === 0 && !Object.is(w, got[i]));
  if (turned >= 0)
    return {
      ulp: Infinity,
      says:
        `${row.name} ${dtype} of ${operands.map((o) => o[turned]).join(', ')} ${JSON.stringify(params)}: the ` +
        'sign of 0 is lost',
    };
  return {
    ulp: d.ulp,
    says:
      `${row.name} ${dtype} of ${operands.map((o) => o[d.at]).join(', ')} ${JSON.stringify(params)}: ${d.got} ` +
      `for ${d.want}, ${d.ulp} ulp`,
  };
}

for (const { name, device, missing } of testDevices('sim:32,cpu')) {
  for (const dtype of SMALL) {
    test(`${name}: every value of ${dtype} is within the bound in every quick form`, { skip: missing }, () => {
      for (const row of quick) {
        for (const params of SCALARS[row.name] ?? [{}]) {
          const { ulp, says } = worst(device!, row, dtype, [values(dtype)], params);
          assert.ok(ulp <= boundFor(row.ulp, dtype), says);
        }
      }
    });
    test(`${name}: quotients of ${dtype} are rounded right for every pair of significands and at the edges`, {
      skip: missing,
    }, () => {
      const row = elementwiseRows.find((r) => r.name === 'div')!;
      const bits = dtype === 'bf16' ? 7 : 10;
      const n = 2 ** bits;
      const significands = Array.from({ length: n }, (_, i) => 1 + i / n);
      const [x, y] = [significands.flatMap((p) => significands.map(() => p)), significands.flatMap(() => significands)];
      const edges = [
        0,
        -0,
        1,
        -1,
        Infinity,
        -Infinity,
        NaN,
        2 ** -14,
        2 ** -24,
        -(2 ** -20),
        65504,
        3,
        1e-38,
        1e-40,
        -3e38,
        2 ** -133,
        2 ** -126,
      ].map((v) => rounded(dtype, v));
      for (const [p, q] of [
        [x, y],
        [edges.flatMap((e) => edges.map(() => e)), edges.flatMap(() => edges)],
      ]) {
        const { ulp, says } = worst(device!, row, dtype, [p, q]);
        assert.equal(ulp, 0, says);
      }
    });
    test(`${name}: powers of ${dtype} hold where exponents vary`, { skip: missing }, () => {
      const row = elementwiseRows.find((r) => r.name === 'pow')!;
      const all = values(dtype);
      const exponents = all.map((_, i) => rounded(dtype, EXPONENTS[i % EXPONENTS.length]));
      const { ulp, says } = worst(device!, row, dtype, [all, exponents]);
      assert.ok(ulp <= boundFor(row.ulp, dtype), says);
    });
  }
}
