// Layers, losses, optimizers and schedules against PyTorch's numbers, gradients included (scripts/golden-nn.py).
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import { packageRoot } from '../src/base/paths.js';
import { Device, scope, tensor, Tensor } from '../src/index.js';
import * as nn from '../src/nn/index.js';

interface Stored {
  readonly shape: readonly number[];
  readonly data: readonly number[];
}
interface LayerCase {
  readonly name: string;
  readonly args: readonly unknown[];
  readonly train: boolean;
  readonly calls: number;
  readonly state: Readonly<Record<string, Stored>>;
  readonly inputs: readonly Stored[];
  readonly output: Stored;
  readonly weights: Stored;
  readonly inputGrads: readonly (Stored | null)[];
  readonly grads: Readonly<Record<string, Stored>>;
  readonly options?: Readonly<Record<string, Stored | boolean>>;
  readonly after?: Readonly<Record<string, Stored>>;
}
interface LossCase {
  readonly name: string;
  readonly inputs: readonly Stored[];
  readonly options: object;
  readonly lists: readonly unknown[];
  readonly output: Stored;
  readonly grads: readonly (Stored | null)[];
}
interface OptimizerCase {
  readonly name: string;
  readonly options: object;
  readonly params: readonly Stored[];
  readonly grads: readonly (readonly Stored[])[];
  readonly after: readonly (readonly Stored[])[];
  readonly groups?: readonly object[];
}
const golden = JSON.parse(
  brotliDecompressSync(readFileSync(join(packageRoot, 'test', 'golden', 'nn.json.br'))).toString(),
) as {
  layers: LayerCase[];
  losses: LossCase[];
  optimizers: OptimizerCase[];
  lbfgs: { a: Stored; y: Stored; start: Stored; options: object; after: Stored[]; values: number[] };
  schedules: { name: string; args: unknown[]; base: number; values: number[] }[];
  plateau: { options: object; base: number; measures: number[]; rates: number[] };
};

const device = Device.cpu();
const make = ({ shape, data }: Stored, dtype: 'f64' | 'i64' | 'bool' = 'f64'): Tensor =>
  tensor(dtype === 'f64' ? Float64Array.from(data) : BigInt64Array.from(data, BigInt), { shape, device }).cast(dtype);
/** Whole numbers everywhere are class numbers, ids or counts. */
const natural = (s: Stored): Tensor =>
  make(s, s.data.every((v) => Number.isInteger(v)) && !s.data.some((v) => v < 0) ? 'i64' : 'f64');
function close(got: Tensor | undefined, want: Stored, what: string, tolerance = 2e-7): void {
  assert.ok(got, `${what}: nothing there`);
  assert.deepEqual(got.shape, want.shape, `${what}: shape`);
  const values = got.cast('f64').dataSync() as Float64Array;
  const scale = Math.max(1, ...want.data.map(Math.abs));
  want.data.forEach((v, i) =>
    assert.ok(Math.abs(values[i] - v) <= tolerance * scale, `${what}[${i}] is ${values[i]}, PyTorch has ${v}`),
  );
}
type AnyClass = new (...args: unknown[]) => nn.Module & { forward(...inputs: unknown[]): Tensor | { h: Tensor } };
const classes = nn as unknown as Record<string, AnyClass>;
const HAS_OPTIONS = new Set(['MultiheadAttention', 'TransformerEncoderLayer', 'TransformerDecoderLayer']);

for (const c of golden.layers)
  test(
    `${c.name}(${JSON.stringify(c.args).slice(1, -1)})${c.train ? ' in training' : ''}: output and gradients ` +
      'of PyTorch',
    () =>
      scope(() => {
        const layer = new classes[c.name](...c.args).to(undefined, 'f64').train(c.train);
        const report = layer.loadStateDict(
          new Map(Object.entries(c.state).map(([n, s]) => [n, make(s, n.endsWith('tracked') ? 'i64' : 'f64')])),
        );
        assert.deepEqual(report, { missing: [], unexpected: [] }, "the names are PyTorch's");
        const inputs = c.inputs.map((s, i) => (c.inputGrads[i] ? make(s).requireGrad() : natural(s)));
        const { mask, keyPadding, ...rest } = c.options ?? {};
        const options = {
          ...rest,
          ...(mask && { mask: make(mask as Stored, 'bool') }),
          ...(keyPadding && { keyPadding: make(keyPadding as Stored, 'bool') }),
        };
        const given: unknown[] = [...inputs];
        if (c.name === 'MultiheadAttention') while (given.length < 3) given.push(given[given.length - 1]);
        if (HAS_OPTIONS.has(c.name)) given.push(options);
        let output: Tensor | { h: Tensor } | undefined;
        for (let k = 0; k < c.calls; k++) output = layer.forward(...given);
        const y = output instanceof Tensor ? output : (output as { h: Tensor }).h;
        close(y, c.output, 'output');
        for (const [name, s] of Object.entries(c.after ?? {})) close(layer.stateDict().get(name), s, name);
        if (!y.requiresGrad) return;
        const grads = y.backward({ grad: make(c.weights) });
        c.inputGrads.forEach((s, i) => s && close(grads.get(inputs[i]), s, `gradient of input ${i}`));
        const named = layer.namedParameters();
        for (const [name, s] of Object.entries(c.grads))
          close(grads.get(named.get(name) as Tensor), s, `gradient of ${name}`);
      }),
  );

type Loss = (...args: unknown[]) => Tensor;
for (const c of golden.losses)
  test(`losses.${c.name} ${JSON.stringify(c.options)}: value and gradients of PyTorch`, () =>
    scope(() => {
      const inputs = c.inputs.map((s, i) => (c.grads[i] ? make(s).requireGrad() : natural(s)));
      const first = c.name === 'ctc' ? inputs[0].logSoftmax(-1) : inputs[0];
      // Targets of losses are floats in PyTorch where they are not class numbers.
      const rest = inputs
        .slice(1)
        .map((t) => (c.name === 'crossEntropy' || c.name === 'multiMargin' || t.requiresGrad ? t : t.cast('f64')));
      const y = (nn.losses as unknown as Record<string, Loss>)[c.name](first, ...rest, ...c.lists, c.options);
      close(y, c.output, 'value');
      const grads = y.sum().backward();
      c.grads.forEach((s, i) => s && close(grads.get(inputs[i]), s, `gradient of input ${i}`));
    }));

type AnyOptimizer = new (params: unknown, options: object) => nn.Optimizer;
for (const c of golden.optimizers)
  test(`${c.name} ${JSON.stringify(c.options)}: steps of PyTorch`, () =>
    scope(() => {
      const params = c.params.map((s) => make(s));
      const given = c.groups ? c.groups.map((g, i) => ({ params: [params[i]], ...g })) : params;
      const optimizer = new (nn as unknown as Record<string, AnyOptimizer>)[c.name](given, c.options);
      c.grads.forEach((gs, step) => {
        optimizer.step(new Map(params.map((p, i) => [p, make(gs[i])])));
        params.forEach((p, i) => close(p, c.after[step][i], `parameter ${i} after step ${step + 1}`));
      });
    }));

test('LBFGS: steps of PyTorch', () => {
  const { a, y, start, options, after, values } = golden.lbfgs;
  const [A, target, w] = [make(a), make(y), make(start).requireGrad()];
  const optimizer = new nn.LBFGS([w], options);
  after.forEach((want, i) => {
    const loss = optimizer.step(() => A.matmul(w).tanh().mse(target));
    assert.ok(Math.abs(loss - values[i]) < 1e-9, `loss ${loss} at call ${i}, PyTorch has ${values[i]}`);
    close(w, want, `after call ${i + 1}`, 1e-6);
  });
});

for (const c of golden.schedules)
  test(`${c.name}(${JSON.stringify(c.args).slice(1, -1)}): rates of PyTorch`, () => {
    const optimizer = { learningRate: c.base };
    const made = (nn as unknown as Record<string, (...args: unknown[]) => nn.Schedule>)[c.name](...c.args);
    const scheduler = new nn.Scheduler(optimizer, made);
    for (const [step, want] of c.values.entries()) {
      assert.ok(
        Math.abs(optimizer.learningRate - want) < 1e-12,
        `step ${step}: ${optimizer.learningRate}, not ${want}`,
      );
      scheduler.step();
    }
  });

test('ReduceLROnPlateau: rates of PyTorch', () => {
  const { options, base, measures, rates } = golden.plateau;
  const plateau = new nn.ReduceLROnPlateau({ learningRate: base }, options);
  measures.forEach((m, i) => assert.ok(Math.abs(plateau.step(m) - rates[i]) < 1e-12, `measure ${i}`));
});
