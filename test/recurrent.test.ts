// Recurrent nets whose steps are kernels, against the same nets op by op: states, gradients and gradients of gradients.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Device, Device as Devices, type DType, gradOf, noGrad, randn, scope, type Tensor } from '../src/index.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { GRU, LSTM, RNN } from '../src/nn/index.js';
import { RECURRENT_KINDS, type RecurrentKind, RECURRENT_ROWS, recurrentParts } from '../src/ops/recurrent.js';
import { launch } from '../src/tensor/guard.js';
import { Tensor as Tensors } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';

const cpu = Devices.get('cpu');
const MAKE = {
  lstm: (inputs, hidden, o) => new LSTM(inputs, hidden, o),
  gru: (inputs, hidden, o) => new GRU(inputs, hidden, o),
  tanh: (inputs, hidden, o) => new RNN(inputs, hidden, o),
  relu: (inputs, hidden, o) => new RNN(inputs, hidden, { ...o, nonlinearity: 'relu' }),
} satisfies Record<RecurrentKind, (inputs: number, hidden: number, o: object) => LSTM | GRU | RNN>;
const SHAPES = [
  { name: 'one layer', options: {}, sizes: [3, 5, 4, 6] },
  { name: 'without biases, one step', options: { bias: false }, sizes: [2, 1, 3, 5] },
  { name: 'two layers of both directions', options: { layers: 2, bidirectional: true }, sizes: [2, 4, 3, 7] },
] as const;
const worst = (a: Tensor, b: Tensor): number => a.cast('f64').to(cpu).sub(b.cast('f64').to(cpu)).abs().max().item();

interface Run {
  readonly names: readonly string[];
  readonly values: readonly Tensor[];
}
/** Outputs, states and all gradients of a net whose numbers are the same on every device. */
function run(kind: RecurrentKind, shape: (typeof SHAPES)[number], dtype: DType, device: Device, twice = false): Run {
  const [batch, time, inputs, hidden] = shape.sizes;
  let seed = 1;
  const make = (sizes: readonly number[]): Tensor =>
    randn(sizes, { seed: seed++ }).mul(0.6).cast(dtype).to(device).requireGrad();
  const net: LSTM | GRU | RNN = MAKE[kind](inputs, hidden, shape.options);
  net.to(device, dtype);
  const x = make([batch, time, inputs]);
  for (const p of net.parameters()) noGrad(() => p.assign(make(p.shape).detach()));
  const count = shape.name.startsWith('two') ? 4 : 1;
  const first = { h: make([count, batch, hidden]), ...(kind === 'lstm' && { c: make([count, batch, hidden]) }) };
  const { output, state } = (net as LSTM).run(x, first as never);
  const parts = Object.values(state) as Tensor[];
  // Every number counts another way.
  const weighed = (t: Tensor): Tensor => t.mul(randn(t.shape, { seed: 99 }).cast(dtype).to(device)).sum();
  const total = [output, ...parts].map(weighed).reduce((a, b) => a.add(b));
  const wrt = [x, ...Object.values(first), ...net.parameters()];
  const grads = gradOf(total, wrt, { createGraph: twice });
  const again = twice
    ? gradOf(
        grads.map((g) => g.sqr().sum()).reduce((a, b) => a.add(b)),
        wrt,
      )
    : [];
  const named = (list: readonly Tensor[], what: string): string[] => list.map((_, i) => `${what} ${i}`);
  return {
    names: [...named([output, ...parts], 'result'), ...named(grads, 'gradient'), ...named(again, 'second gradient')],
    values: [output, ...parts, ...grads, ...again],
  };
}
function compare(got: Run, want: Run, share: number): void {
  got.values.forEach((t, i) => {
    const size = want.values[i].cast('f64').abs().max().item();
    const off = worst(t, want.values[i]);
    assert.ok(off <= share * Math.max(1, size), `${got.names[i]} is off by ${off} of ${size}`);
  });
}

for (const { name, device, missing } of testDevices('sim:32,sim:64')) {
  const skip = missing ?? (name === 'cpu' && 'the CPU is what others are compared with');
  for (const kind of RECURRENT_KINDS)
    for (const [dtype, share] of [
      ['f32', 2e-6],
      ['f64', 1e-14],
      ['bf16', 0.05],
    ] as const)
      test(`${kind}: states and gradients are those op by op, ${dtype} on ${name}`, { skip }, () => {
        for (const shape of SHAPES)
          scope(() => compare(run(kind, shape, dtype, device as Device), run(kind, shape, dtype, cpu), share));
      });
  for (const kind of RECURRENT_KINDS)
    test(`${kind}: gradients of gradients are those op by op on ${name}`, { skip }, () => {
      for (const shape of SHAPES)
        scope(() =>
          compare(run(kind, shape, 'f64', device as Device, true), run(kind, shape, 'f64', cpu, true), 1e-12),
        );
    });

  test(`two launches a step and two backwards, one each where a library multiplies, on ${name}`, {
    skip,
  }, () => {
    scope(() => {
      const net = new LSTM(4, 8).to(device as Device);
      const { context } = (device as Device).backend as GpuBackend;
      const launches = (time: number): number => {
        const x = randn([3, time, 4], { seed: 1, device: device as Device });
        const launch = context.launch.bind(context);
        let count = 0;
        context.launch = (...args) => (count++, launch(...args));
        try {
          gradOf(net.run(x).output.sum(), net.parameters());
        } finally {
          Reflect.deleteProperty(context, 'launch');
        }
        return count;
      };
      launches(2);
      const own = typeof context.device.libraries.blas === 'string' ? 4 : 2;
      assert.equal(launches(12) - launches(8), 4 * own);
    });
  });

  for (const row of RECURRENT_ROWS)
    test(`${row.name}: every kind's numbers, rows of operands apart or turned, on ${name}`, { skip }, () => {
      for (const { inputs, params } of row.samples())
        scope(() => {
          const given = inputs.map(({ shape }, i) => randn(shape, { seed: i + 1, dtype: 'f64' }));
          const sigs = row.infer(given, params);
          const wanted = sigs.map(({ shape, dtype }) => ({
            shape,
            dtype,
            data: new Array<number>(shape[0] * shape[1]),
          }));
          row.reference(
            given.map((t) => ({ shape: t.shape, dtype: t.dtype, data: t.flatten().toArray<number[]>() })),
            wanted,
            params,
          );
          const layouts: readonly ((t: Tensor) => Tensor)[] = [
            (t) => t,
            (t) => t.cat([t], 1).narrow(1, t.shape[1], t.shape[1]),
            (t) => t.t().contiguous().t(),
          ];
          for (const laid of layouts) {
            const outs = sigs.map(({ shape, dtype }) => Tensors.empty(shape, dtype, device as Device));
            launch(
              (device as Device).backend,
              row,
              given.map((t) => laid(t.to(device as Device))),
              outs,
              params,
            );
            const { outputs } = recurrentParts(row.name.endsWith('Back'), params);
            outs.forEach((t, i) => {
              const off = worst(t, Tensors.from(wanted[i].data as number[], { dtype: 'f64' }).reshape(t.shape));
              assert.ok(off < 1e-13, `${params.kind}: ${outputs[i][0]} is off by ${off}`);
            });
          }
        });
    });
}
