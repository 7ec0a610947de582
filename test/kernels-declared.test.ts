// Kernels as they are declared: structs as the compiler lays them out, and plans that are pure functions of operands
// and device.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytesOf, type DType, kernelDType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import { PLANNED, planRow } from '../src/backends/gpu/families.js';
import { kernelModule, moduleNames, unitOf } from '../src/backends/gpu/modules.js';
import { chainLaunch } from '../src/backends/gpu/elementwise.js';
import { type Plan, valuesOf } from '../src/backends/gpu/plan.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { Entry } from '../src/kernels/declare.js';
import type { ElementwiseRow, KernelRow } from '../src/ops/op.js';
import { opList, OPS } from '../src/ops/table.js';
import { TRAINING_ROWS } from '../src/ops/training.js';
import type { Served } from '../src/backends/gpu/libraries.js';
import { SimRunner } from './sim-support.js';

test('structs are as large, and stand where, the C++ compiler has them', {
  skip: process.env.WICK_KERNELS_ON ? 'only the simulation tells its offsets' : false,
}, () => {
  const run = new SimRunner(32);
  const seen = new Set<string>();
  for (const name of moduleNames().filter((m) => kernelModule(m).needs === undefined)) {
    for (const e of kernelModule(name).entries.values()) {
      const fresh = e.params.filter((p) => p.struct && !seen.has(p.struct.name));
      if (fresh.length === 0) continue;
      for (const p of fresh) seen.add(p.struct!.name);
      const offsets = e.params.map((p) => `${p.offset}:${p.size}`).join(' ');
      assert.equal(run.describe(unitOf(name, [e.symbol]), e.symbol), offsets, e.symbol);
    }
  }
  assert.deepEqual([...seen].sort(), [
    'Attention',
    'Choice',
    'Conv',
    'Drawing',
    'FewProduct',
    'FourierShape',
    'FourierSides',
    'Grid',
    'Grouped',
    'NewLatent',
    'NewToken',
    'Operand',
    'Pairs',
    'PlaneNorm',
    'Pool',
    'Product',
    'RowSteps',
    'Sampling',
  ]);
});

const DEVICE = {
  name: 'on paper',
  arch: 'sm_80',
  warp: 32,
  multiprocessors: 108,
  sharedPerBlockOptin: 163840,
} as unknown as DeviceInfo;
/** Operands at made-up addresses. */
function views(sigs: readonly { readonly shape: readonly number[]; readonly dtype: DType }[], from: number): View[] {
  return sigs.map(({ shape, dtype }, i) => {
    const layout = Layout.contiguous(shape);
    const memory = { bytes: layout.size * bytesOf(dtype), address: (from + i) * 2 ** 20 };
    return { memory, layout, dtype: kernelDType(dtype) };
  });
}
/** Launches of a plan with their packed arguments. */
const packed = (plan: Plan): unknown[] =>
  plan.flatMap((step): unknown[] =>
    'launches' in step
      ? step.launches.map((l) => {
          const entry: Entry = l.kernel.entry(l.variant);
          const address = (v: View | { readonly fault: true }): number => ('fault' in v ? 7 : v.memory.address);
          return [l.symbol, l.grid, l.block, l.shared, valuesOf(l, entry, (name) => name.length, address)];
        })
      : 'chain' in step
        ? [
            chainLaunch(
              step.chain,
              step.out.layout,
              step.inputs.map((v) => v.layout),
            ).symbol,
            step.scalars,
          ]
        : [Object.keys(step)[0]],
  );

test('every planned row gives the same launches for the same operands, without a device', () => {
  const families = new Set<string>();
  const elementwise = opList.filter((r): r is ElementwiseRow<any> => r.family === 'elementwise');
  for (const row of elementwise) {
    const dtype = row.dtypes[0];
    const sig = { shape: [4, 6], dtype };
    const inputs = Array.from({ length: row.arity }, (_, i) =>
      row.masked && i === 0 ? { shape: [4, 6], dtype: 'u8' as const } : sig,
    );
    const [first, ...others] = views(inputs, 1);
    const turned = { ...first, layout: Layout.contiguous([6, 4]).permute([1, 0]) };
    const params = Object.fromEntries(row.scalars.map((name: string) => [name, 2]));
    const plan = (head: View): unknown[] => packed(planRow(row, [head, ...others], views([sig], 100), params, DEVICE));
    assert.match(String(plan(first)[0]), /flat/, row.name);
    assert.doesNotMatch(String(plan(turned)[0]), /flat/, `${row.name} on a transposed operand`);
    assert.deepEqual(plan(turned), plan(turned), row.name);
    families.add(row.family);
  }
  // Those of training steps change their operands, so that they are no methods.
  for (const row of [...opList, ...TRAINING_ROWS].filter(
    (r): r is KernelRow<any> => r.family !== 'elementwise' && PLANNED.includes(r.family as never),
  )) {
    for (const sample of row.samples()) {
      const dtype = row.dtypes[0];
      const inputs = sample.inputs.map((s) => ({ shape: s.shape, dtype: s.dtype ?? dtype }));
      if (inputs.some((s) => s.shape.includes(0))) continue;
      const outputs = row.infer(inputs, sample.params);
      const plan = (): unknown[] => packed(planRow(row, views(inputs, 1), views(outputs, 100), sample.params, DEVICE));
      assert.ok(plan().length > 0, `${row.name}: something is launched`);
      assert.deepEqual(plan(), plan(), row.name);
      families.add(row.family);
    }
  }
  // Users' ops have no row in the table; test/custom-ops.test.ts runs them.
  assert.deepEqual([...families].sort(), PLANNED.filter((f) => f !== 'custom').sort());
});

test('a plan calls a library where it serves, and brings our own launches for its refusal', () => {
  const asked: unknown[] = [];
  const served: Served = {
    product: (spec) => (asked.push(spec), { spec: { ...spec, tf32: false }, description: 'on paper' }),
    convolution: (spec) => ({ spec: { ...spec, tf32: false }, workspaceBytes: 0, description: 'on paper' }),
    attention: () => undefined,
  };
  const f32 = (shape: number[]) => ({ shape, dtype: 'f32' as const });
  const [a, b] = views([f32([2, 3, 4]), f32([4, 5])], 1);
  const product = planRow(OPS.bmm as never, [a, b], views([f32([2, 3, 5])], 100), {}, DEVICE, served);
  assert.deepEqual(asked, [
    {
      ...{ dtype: 'f32', batch: 2, m: 3, n: 5, k: 4, bias: false },
      a: { order: 'row', ld: 4, batchStride: 12 },
      b: { order: 'row', ld: 5, batchStride: 0 },
      d: { order: 'row', ld: 5, batchStride: 15 },
    },
  ]);
  const [step] = product;
  assert.ok('product' in step && 'launches' in step.otherwise()[0]);
  // An operand that does not lie as the library wants is copied first; the bias is added after.
  const [x, w, bias] = views([f32([1, 2, 8, 8]), f32([4, 2, 3, 3]), f32([4])], 1);
  const turned = { ...x, layout: x.layout.permute([0, 1, 3, 2]) };
  const params = { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
  const conv = planRow(OPS.conv2d as never, [turned, w, bias], views([f32([1, 4, 8, 8])], 100), params, DEVICE, served);
  assert.deepEqual(
    conv.map((s) => Object.keys(s)[0]),
    ['copy', 'convolution', 'chain'],
  );
});
