// Our own structured kernels, launched by their plans on the host simulation, against plain loops: both wave sizes,
// both orders, two poisons.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DTYPE, isFloat } from '../src/base/dtype.js';
import { simOptions } from '../src/driver/sim.js';
import type { Unit } from '../src/kernels/source.js';
import type { GemmTarget } from '../src/backends/gpu/matmul.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { type Launches, valuesOf } from '../src/backends/gpu/plan.js';
import { decode, SimRunner } from './sim-support.js';
import { type Data, type Case, BOUND, cases } from './structured-data.js';
import './structured-rows.js';
import './structured-order.js';
import './structured-windows.js';

const bytesIn = (d: Data): number => d.values.length * DTYPE[d.dtype].bytes;
/** The first difference, or undefined. */
function check(run: SimRunner, c: Case, target: GemmTarget, units: ReadonlyMap<string, Unit>): string | undefined {
  const plan = c.plan(target);
  const buffers = new Map<string, number>();
  for (const [name, d] of Object.entries(c.inputs)) buffers.set(name, run.of(d.dtype, d.values));
  for (const [name, d] of Object.entries(c.outputs)) if (!buffers.has(name)) buffers.set(name, run.buffer(bytesIn(d)));
  buffers.set('scratch', run.buffer(plan.scratch));
  for (const l of plan.launches) {
    const unit = units.get(l.kernel.module.name)!;
    const entry = unit.entries.find((e) => e.symbol === l.symbol)!;
    const none = (): never => assert.fail('no views here');
    const values = valuesOf(l, entry, (name) => buffers.get(name)!, none);
    run.launch(unit, l.symbol, l.grid, l.block, values, l.shared);
  }
  for (const [name, want] of Object.entries(c.outputs)) {
    const got = decode(want.dtype, run.read(want.dtype, buffers.get(name)!, want.values.length));
    const scale = want.values.reduce<number>(
      (a, v) => (Number.isFinite(Number(v)) ? Math.max(a, Math.abs(Number(v))) : a),
      1e-30,
    );
    const bound = isFloat(want.dtype) ? (c.bound ?? BOUND[want.dtype]) * scale : 0;
    const at = got.findIndex((a, i) => {
      const b = want.values[i];
      return !(a === b || (a !== a && b !== b) || (isFloat(want.dtype) && Math.abs(Number(a) - Number(b)) <= bound));
    });
    if (at >= 0) return `${c.name}: ${name}[${at}] is ${got[at]}, not ${want.values[at]}`;
  }
  return undefined;
}
const moduleOf = (l: Launches['launches'][number]): string => l.kernel.module.name;
/** WICK_MODULES=reduce,softmax runs only what launches these. */
const only = process.env.WICK_MODULES?.split(',');
for (const wave of [32, 64] as const) {
  test(`structured kernels agree with plain loops with waves of ${wave}`, () => {
    const run = new SimRunner(wave);
    const target = run.device.info;
    const wanted = new Map<string, Set<string>>();
    const chosen = cases.filter((c) => !only || c.plan(target).launches.some((l) => only.includes(moduleOf(l))));
    for (const c of chosen)
      for (const l of c.plan(target).launches)
        wanted.set(moduleOf(l), (wanted.get(moduleOf(l)) ?? new Set()).add(l.symbol));
    const units = new Map([...wanted].map(([module, symbols]) => [module, unitOf(module, [...symbols].sort())]));
    const kept = { ...simOptions };
    const bad = new Set<string>();
    try {
      for (const [reverse, poison] of [
        [false, 0x7f],
        [true, 0xff],
      ] as const) {
        Object.assign(simOptions, { reverse, poison });
        for (const c of chosen) {
          const wrong = check(run, c, target, units);
          if (wrong) bad.add(wrong);
          run.free();
        }
      }
    } finally {
      Object.assign(simOptions, kept);
    }
    assert.deepEqual([...bad], []);
  });
}
