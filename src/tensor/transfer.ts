// Moving tensors between devices, as a recorded step so that gradients travel back.
import type { Device } from './device.js';
import { recorded } from './recorded.js';
import { Tensor } from './tensor.js';

export function transfer(t: Tensor, device: Device): Tensor {
  const out = Tensor.fromBytes(t.bytesSync(), t.shape, t.dtype, device);
  return recorded({ name: 'to', formula: 'x on another device', grad: (grad, x) => grad.to(x.device) }, t, out);
}
