// Moving tensors between devices, as a recorded step so that gradients travel back.
import { DTYPES } from '../base/dtype.js';
import type { Call, GradContext, Grads, Sig } from '../ops/op.js';
import type { GradRow } from './autograd.js';
import type { Device } from './device.js';
import { Tensor } from './tensor.js';

/** Only named in graphs and errors: the copy itself is made here, not by a backend. */
const row: GradRow = {
  name: 'to',
  family: 'copy',
  formula: 'x on another device',
  dtypes: DTYPES,
  ulp: 0,
  candle: { none: 'a copy between devices' },
  args: (x: Tensor): Call => ({ inputs: [x], params: {} }),
  infer: ([x]: readonly Sig[]): readonly Sig[] => [x],
  reference: (): void => {},
  samples: () => [],
  errors: () => [],
  grad: ({ x, grad }: GradContext): Grads => [grad.to(x.device)],
};

export function transferRow(t: Tensor, device: Device, record: boolean): Tensor {
  const out = Tensor.fromBytes(t.bytesSync(), t.shape, t.dtype, device);
  if (record && t.requiresGrad) {
    out.requiresGrad = true;
    const inputs = [t.alias()];
    const outputs = [out.alias()];
    out.node = { row, params: {}, inputs, outputs, versions: [...inputs, ...outputs].map((x) => x.storage.version) };
    outputs[0].node = out.node;
  }
  return out;
}
