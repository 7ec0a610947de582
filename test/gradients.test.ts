// Every differentiable op against finite differences in f64, on every layout, first and second order.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { noGrad } from '../src/index.js';
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
const STEP = 1e-5;
const LARGEST = 120; // elements: finite differences run the op twice for each
let checked = 0;

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
  const floats = tensors.map((_, i) => i).filter((i) => tensors[i].dtype === 'f64');
  // A broadcast input repeats storage: one stored element is many logical ones, which finite differences cannot nudge alone.
  const inputs = tensors.map((t, i) => (floats.includes(i) ? t.detach().requireGrad() : t));
  return { inputs, floats };
}

function nudged(c: Case, inputs: readonly Tensor[], which: number, at: number, by: number, device: Device): number {
  return scope(() =>
    noGrad(() => {
      const data = Float64Array.from(inputs[which].dataSync() as Float64Array);
      data[at] += by;
      const moved = inputs.map((t, i) => (i === which ? tensor(data, { shape: t.shape, device }) : t));
      return (loss(runCase(c, moved, device), device) as Tensor).item();
    }),
  );
}

function close(got: number, want: number, scale: number): boolean {
  return Math.abs(got - want) <= 2e-5 * Math.max(1, scale, Math.abs(want));
}

function checkCase(c: Case, device: Device): void {
  const { inputs, floats } = variables(c, device);
  const total = loss(runCase(c, inputs, device), device);
  if (!total) return; // casts away from f64: checked by the golden cases
  assert.ok(total.requiresGrad, `${c.name}: no gradient flows`);
  const grads = total.backward();
  for (const i of floats) {
    const got = grads.get(inputs[i])?.dataSync() as Float64Array | undefined;
    const scale = got ? got.reduce((m, v) => Math.max(m, Math.abs(v)), 0) : 0;
    for (let at = 0; at < inputs[i].size; at++) {
      const want = (nudged(c, inputs, i, at, STEP, device) - nudged(c, inputs, i, at, -STEP, device)) / (2 * STEP);
      const g = got ? got[at] : 0;
      assert.ok(close(g, want, scale), `${c.name}: d/d input ${i}[${at}]: got ${g}, finite difference ${want}`);
    }
  }
  checked++;
}

/** Second order: the gradient along a direction is itself differentiated and compared with differences of first gradients. */
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
      if (g) sum = sum ? sum.add(g.mul(g).sum()) : g.mul(g).sum();
    }
    return sum;
  };
  const { inputs, floats } = variables(c, device);
  const sum = gradientSum(inputs, floats, true);
  if (!sum?.requiresGrad) return; // linear ops: the gradient does not depend on the input
  const second = sum.backward();
  const i = floats[0];
  const got = second.get(inputs[i])?.dataSync() as Float64Array | undefined;
  const scale = got ? got.reduce((m, v) => Math.max(m, Math.abs(v)), 0) : 0;
  const at = Math.min(1, inputs[i].size - 1);
  const move = (by: number): number => {
    const data = Float64Array.from(inputs[i].dataSync() as Float64Array);
    data[at] += by;
    const moved = inputs.map((t, k) => (k === i ? tensor(data, { shape: t.shape, device, requiresGrad: true }) : t));
    return (gradientSum(moved, floats, false) as Tensor).item();
  };
  const want = (move(STEP) - move(-STEP)) / (2 * STEP);
  assert.ok(
    close(got ? got[at] : 0, want, scale),
    `${c.name}: second derivative at input ${i}[${at}]: got ${got?.[at]}, finite difference ${want}`,
  );
}

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
      const plain = cases.find((c) => c.layout === 'contiguous');
      if (plain) scope(() => checkSecond(plain, device as Device));
    });
  }
}

after(() => console.log(`gradients: ${checked} cases agree with finite differences`));
