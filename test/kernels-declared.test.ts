// Kernels as they are declared: structs as the compiler lays them out, and plans that are pure functions of operands
// and device.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytesOf, type DType, kernelDType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import { PLANNED, planRow } from '../src/backends/gpu/families.js';
import { kernelModule, moduleNames, unitOf } from '../src/backends/gpu/modules.js';
import { type Plan, valuesOf } from '../src/backends/gpu/plan.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { Entry } from '../src/kernels/declare.js';
import type { KernelRow } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
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
  assert.deepEqual([...seen].sort(), ['Attention', 'Conv', 'NewToken', 'Operand', 'Pool', 'Product', 'Sampling']);
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
      : [Object.keys(step)[0]],
  );

test('every planned row gives the same launches for the same operands, without a device', () => {
  const families = new Set<string>();
  for (const row of opList.filter((r): r is KernelRow<any> => PLANNED.includes(r.family as never))) {
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
  assert.deepEqual([...families].sort(), [...PLANNED].sort());
});
