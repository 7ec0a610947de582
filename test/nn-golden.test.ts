// LSTM, GRU and optimizer steps against PyTorch's numbers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GRU, LSTM } from '../src/nn/index.js';
import { Golden, goldenFolder, hasGolden } from '../src/parity/golden.js';
import { OPTIMIZERS } from '../src/parity/torch-calls.js';
import { scope } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';
import { testDevices } from '../src/testing/devices.js';
import type { Device } from '../src/tensor/device.js';

const dir = goldenFolder();
const present = dir !== undefined && hasGolden(dir, 'torch.json');
const golden = present ? new Golden(dir, 'torch') : undefined;
const absent = present ? undefined : 'no golden folder here: set WICK_GOLDEN to one';

function assertClose(got: Tensor | undefined, want: Tensor, what: string): void {
  assert.ok(got, `${what}: nothing there`);
  assert.deepEqual(got.shape, want.shape, `${what}: shape`);
  const scale = want.abs().max().item();
  const error = got.sub(want).abs().max().item();
  assert.ok(
    error <= (want.dtype === 'f64' ? 1e-9 : 1e-4) * Math.max(scale, 1e-3),
    `${what}: off by ${error} where the largest is ${scale}`,
  );
}

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const cases = golden?.cases ?? [];
  for (const [op, Class] of [
    ['lstm', LSTM],
    ['gru', GRU],
  ] as const) {
    for (const c of cases.filter((k) => k.op === op))
      test(`${op} ${c.id} on ${name}: outputs and gradients of PyTorch`, { skip: missing ?? absent }, () =>
        scope(() => {
          assert.ok(golden);
          const get = (n: string): Tensor => golden.on(device as Device, c.inputs[n]).requireGrad();
          const [x, ...weights] = ['x', 'weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0'].map(get);
          const layer = new Class(weights[0], weights[1], weights[2], weights[3]);
          const y = layer.forward(x);
          assertClose(y, golden.on(device as Device, Object.values(c.outputs)[0]), 'output');
          const grads = y.backward({ grad: golden.on(device as Device, c.grad_output as string) });
          [
            ['x', x],
            ['weight_ih_l0', weights[0]],
            ['weight_hh_l0', weights[1]],
            ['bias_ih_l0', weights[2]],
            ['bias_hh_l0', weights[3]],
          ].forEach(([n, t]) =>
            assertClose(
              grads.get(t as Tensor),
              golden.on(device as Device, c.grads?.[n as string] as string),
              `gradient of ${n as string}`,
            ),
          );
        }),
      );
  }
  for (const c of cases.filter((k) => k.op === 'optimizer')) {
    const { name: kind, hyper } = c.params as { name: string; hyper: object };
    test(`${kind} ${c.id} on ${name}: steps of PyTorch`, { skip: missing ?? absent }, () =>
      scope(() => {
        const on = (n: string): Tensor => (golden as Golden).on(device as Device, n);
        const [p, gs, want] = [on(c.inputs.p), on(c.inputs.g_), on(Object.values(c.outputs)[0])];
        const optimizer = OPTIMIZERS[kind]([p], hyper);
        for (let i = 0; i < gs.shape[0]; i++) {
          optimizer.step({ get: () => gs.get(i) });
          assertClose(p, want.get(i), `after step ${i + 1}`);
        }
      }),
    );
  }
}
