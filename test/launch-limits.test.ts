// No plan asks for a grid that drivers refuse, however large the operands are: every row's samples with one of their
// sizes made large after the other, on GPUs of all kinds. Nothing runs, so sizes may be as large as they like.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PLANNED, planRow } from '../src/backends/gpu/families.js';
import { type Launch, launch, MOST_BLOCKS, type Plan } from '../src/backends/gpu/plan.js';
import { bytesOf, type DType, kernelDType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import type { KernelRow, Sig } from '../src/ops/op.js';
import { opList } from '../src/ops/table.js';
import { TRAINING_ROWS } from '../src/ops/training.js';
import { FILL } from '../src/backends/gpu/movement.js';
import { GPUS } from './launch-edges.js';

/** More than a grid has along y and z. */
const LARGE = [70000];
/** With matrix units of two makers, and without. */
const KINDS = ['sm_90', 'gfx90a', 'sm_75', 'gfx906'].map((arch) => GPUS.find((g) => g.arch === arch)!);
/** Elements of a tensor that memory may hold some day. */
const MOST = 2 ** 34;

const view = ({ shape, dtype }: Sig, i: number): View => {
  const layout = Layout.contiguous(shape);
  return { memory: { bytes: layout.size * bytesOf(dtype), address: (i + 1) * 2 ** 20 }, layout, dtype };
};
const launchesOf = (plan: Plan): readonly Launch[] =>
  plan.flatMap((step): readonly Launch[] => ('launches' in step ? step.launches : []));

/** Heads of attention and experts of one token have a grid's rows for their own: nobody has so many. */
const alongHeads = (row: KernelRow<any>, inputs: readonly Sig[], { layout }: { readonly layout?: string }): boolean => {
  const [x, , ids] = inputs.map((s) => s.shape);
  if (row.family === 'attention') return x[layout === 'bthd' ? 2 : 1] > MOST_BLOCKS[1];
  return /[eE]xperts$/.test(row.name) && ids[1] > MOST_BLOCKS[1];
};

/** A sample's inputs with every dimension of one size made large. */
function* enlarged(row: KernelRow<any>, dtype: DType) {
  for (const sample of row.samples()) {
    const inputs = sample.inputs.map((s) => ({ shape: s.shape, dtype: kernelDType(s.dtype ?? dtype) }));
    for (const size of new Set(inputs.flatMap((s) => s.shape)))
      for (const large of LARGE) {
        const shapes = inputs.map((s) => ({ ...s, shape: s.shape.map((n) => (n === size ? large : n)) }));
        try {
          const outputs = row.infer(shapes, sample.params).map((s) => ({ ...s, dtype: kernelDType(s.dtype) }));
          if (alongHeads(row, shapes, sample.params)) continue;
          if ([...shapes, ...outputs].some((s) => s.shape.includes(0) || s.shape.reduce((a, b) => a * b, 1) > MOST))
            continue;
          yield { shapes, outputs, params: sample.params };
        } catch {
          // Sizes that belong together, or that its parameters name.
        }
      }
  }
}

const planned = [...opList, ...TRAINING_ROWS].filter(
  (r): r is KernelRow<any> => r.family !== 'elementwise' && PLANNED.includes(r.family as never),
);
const seen = new Map<string, number>();
for (const family of PLANNED.filter((f) => f !== 'custom' && f !== 'elementwise'))
  test(`${family}: grids of large operands are within what a launch takes`, () => {
    for (const row of planned.filter((r) => r.family === family))
      for (const dtype of row.dtypes.filter((d) => ['f32', 'f16', 'u8'].includes(d)))
        for (const { shapes, outputs, params } of enlarged(row, dtype))
          for (const on of KINDS) {
            const what = `${row.name} on ${on.arch}: ${shapes.map((s) => `${s.dtype}[${s.shape}]`).join(' ')}`;
            let plan: Plan;
            try {
              plan = planRow(
                row,
                shapes.map(view),
                outputs.map((s, i) => view(s, 100 + i)),
                params,
                on,
              );
            } catch (e) {
              throw new Error(what, { cause: e });
            }
            for (const { symbol, grid } of launchesOf(plan)) {
              seen.set(family, (seen.get(family) ?? 0) + 1);
              grid.forEach((n, i) => assert.ok(n >= 1 && n <= MOST_BLOCKS[i], `${what}: ${symbol} on [${grid}]`));
            }
          }
  });

test('every family with operands was seen with large ones', () => {
  // Casts and copies are elementwise chains; fills have no operands.
  const without = ['custom', 'elementwise', 'cast', 'copy', 'fill'];
  assert.deepEqual([...seen.keys()].sort(), PLANNED.filter((f) => !without.includes(f)).sort());
});

test('a grid that no driver takes is refused where it is asked for', () => {
  const [fill] = FILL.kernels;
  const args = { buf: 0, value: 0, numel: 0n } as never;
  assert.throws(() => launch(fill, { dtype: 'f32' } as never, [1, 65536], 256, args), /grid of \[1,65536,1\] blocks/);
});
