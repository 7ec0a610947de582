// Every differentiable op against finite differences in f64, on every layout, first and second order.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type DType, noGrad } from '../src/index.js';
import type { Row } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
import { buildInputs, type Case, casesOf, runCase } from '../src/testing/cases.js';
import { inShard, testDevices } from '../src/testing/devices.js';
import { randomizer } from '../src/testing/values.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { tensor } from '../src/tensor/create.js';
import type { Tensor } from '../src/tensor/tensor.js';

const only = process.env.WICK_CASE ?? '';
/** Inputs that are f32 whatever the dtype under test (slopes, sinks) can only be moved by steps that f32 resolves. */
const STEPS: Readonly<Partial<Record<DType, number>>> = { f64: 1e-5, f32: 2 ** -10 };
const LARGEST = 120; // elements: finite differences run the op twice for each
let checked = 0;
let checkedTwice = 0;

const differentiable = (row: Row): boolean => row.dtypes.includes('f64') && !row.noGrad;

/** A number from the results: each weighted differently, so that no two errors cancel. */
function loss(outputs: readonly Tensor[], device: Device): Tensor | undefined {
  const random = randomizer(7);
  let total: Tensor | undefined;
  for (const o of outputs) {
    if (o.dtype !== 'f64') continue;
    const weights = tensor(
      Float64Array.from({ length: o.size }, () => 0.5 + random()),
      { shape: o.shape, device },
    );
    const part = o.mul(weights).sum();
    total = total ? total.add(part) : part;
  }
  return total;
}

function variables(c: Case, device: Device): { inputs: Tensor[]; floats: number[] } {
  const { tensors } = buildInputs(c, device);
  const floats = tensors.map((_, i) => i).filter((i) => STEPS[tensors[i].dtype] !== undefined);
  // A broadcast input repeats storage: one stored element is many logical ones, which finite differences cannot nudge
  // alone.
  const inputs = tensors.map((t, i) => (floats.includes(i) ? t.detach().requireGrad() : t));
  return { inputs, floats };
}

/** The inputs with one element moved. */
function moved(inputs: readonly Tensor[], which: number, at: number, by: number, requiresGrad: boolean): Tensor[] {
  return inputs.map((t, i) => {
    if (i !== which) return t;
    const data = (t.dataSync() as Float64Array).slice();
    data[at] += by;
    return tensor(data, { shape: t.shape, device: t.device, requiresGrad });
  });
}

/** How a number depends on one element of the inputs, by moving it both ways. */
function difference(
  f: (inputs: readonly Tensor[]) => number,
  inputs: readonly Tensor[],
  which: number,
  at: number,
  requiresGrad: boolean,
): number {
  const step = STEPS[inputs[which].dtype] as number;
  const value = (by: number): number => scope(() => f(moved(inputs, which, at, by, requiresGrad)));
  return (value(step) - value(-step)) / (2 * step);
}

/** `size` is the loss: a difference of two large numbers has the rounding of both, divided by the step. */
function close(got: number, want: number, scale: number, size = 0): boolean {
  return (
    Math.abs(got - want) <=
    2e-5 * Math.max(1, scale, Math.abs(want)) + (8 * 2 ** -53 * Math.abs(size)) / (STEPS.f64 as number)
  );
}

function checkCase(c: Case, device: Device): void {
  const { inputs, floats } = variables(c, device);
  const total = loss(runCase(c, inputs, device), device);
  if (!total) return; // casts away from f64: checked by the golden cases
  assert.ok(total.requiresGrad, `${c.name}: no gradient flows`);
  const size = total.item();
  const grads = total.backward();
  for (const i of floats) {
    const got = grads.get(inputs[i])?.dataSync() as Float64Array | undefined;
    const scale = got ? got.reduce((m, v) => Math.max(m, Math.abs(v)), 0) : 0;
    for (let at = 0; at < inputs[i].size; at++) {
      const lossOf = (x: readonly Tensor[]): number =>
        noGrad(() => (loss(runCase(c, x, device), device) as Tensor).item());
      const want = difference(lossOf, inputs, i, at, false);
      const g = got ? got[at] : 0;
      assert.ok(close(g, want, scale, size), `${c.name}: d/d input ${i}[${at}]: got ${g}, finite difference ${want}`);
    }
  }
  checked++;
}

/**
 * Second order: the gradient along a direction is itself differentiated and compared with differences of first
 * gradients.
 */
function checkSecond(c: Case, device: Device): void {
  const gradientSum = (
    inputs: readonly Tensor[],
    floats: readonly number[],
    createGraph: boolean,
  ): Tensor | undefined => {
    const grads = loss(runCase(c, inputs, device), device)?.backward({ createGraph });
    if (!grads) return undefined;
    let sum: Tensor | undefined;
    for (const i of floats) {
      const g = grads.get(inputs[i]);
      if (g?.dtype !== 'f64') continue; // a gradient of f32 is too coarse for the small steps of the others
      const part = g.mul(g).sum();
      sum = sum ? sum.add(part) : part;
    }
    return sum;
  };
  const { inputs, floats } = variables(c, device);
  const sum = gradientSum(inputs, floats, true);
  if (!sum?.requiresGrad) return; // linear ops: the gradient does not depend on the input
  const second = sum.backward();
  const sumOf = (x: readonly Tensor[]): number => (gradientSum(x, floats, false) as Tensor).item();
  for (const i of floats) {
    const got = second.get(inputs[i])?.dataSync() as Float64Array | undefined;
    const scale = got ? got.reduce((m, v) => Math.max(m, Math.abs(v)), 0) : 0;
    for (const at of spreadOver(inputs[i].size)) {
      const want = difference(sumOf, inputs, i, at, true);
      assert.ok(
        close(got ? got[at] : 0, want, scale),
        `${c.name}: second derivative at input ${i}[${at}]: got ${got?.[at]}, finite difference ${want}`,
      );
    }
  }
  checkedTwice++;
}

/** Some places of n, first and last among them. */
const spreadOver = (n: number): number[] =>
  [...new Set([0, 1, Math.floor(n / 3), Math.floor((2 * n) / 3), n - 1])].filter((i) => i < n);

for (const { name, device, missing } of testDevices('reference')) {
  for (const [index, row] of opList.filter(differentiable).entries()) {
    if (!inShard(index)) continue;
    const cases = [...casesOf([row])].filter(
      (c) =>
        c.dtype === 'f64' &&
        !c.values &&
        c.name.startsWith(only) &&
        c.sample.inputs.some((s) => !s.dtype) &&
        c.sample.inputs.reduce((n, s) => n + s.shape.reduce((a, b) => a * b, 1), 0) <= LARGEST &&
        c.sample.inputs.every((s) => s.shape.every((d) => d > 0)),
    );
    if (cases.length === 0) continue;
    test(`gradient of ${row.name} on ${name}: ${cases.length} cases`, { skip: missing }, () => {
      for (const c of cases) scope(() => checkCase(c, device as Device));
      for (const c of cases) if (c.layout === 'contiguous') scope(() => checkSecond(c, device as Device));
    });
  }
}

after(() =>
  console.log(`gradients: ${checked} cases agree with finite differences, ${checkedTwice} in the second order`),
);
