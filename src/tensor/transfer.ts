// Moving tensors between devices, as a recorded step so that gradients travel back.
import { bytesOf } from '../base/dtype.js';
import { noGrad } from './autograd.js';
import { Batched } from './batched.js';
import type { Device } from './device.js';
import { recorded } from './recorded.js';
import { Tensor } from './tensor.js';

export function transfer(t: Tensor, device: Device): Tensor {
  const out =
    t instanceof Batched
      ? new Batched(transfer(t.whole, device), t.level)
      : (direct(t, device) ?? Tensor.fromBytes(t.bytesSync(), t.shape, t.dtype, device));
  return recorded({ name: 'to', formula: 'x on another device', grad: (grad, x) => grad.to(x.device) }, t, out);
}

/** From one GPU to another of its kind, over their link where there is one; the host waits for nothing. */
function direct(t: Tensor, device: Device): Tensor | undefined {
  const [from, to] = [t.device.backend.gpu, device.backend];
  if (!from?.reaches(to)) return undefined;
  const dense = t.layout.isContiguous ? t : noGrad(() => t.detach().copy());
  const out = Tensor.empty(t.shape, t.dtype, device);
  const bytes = t.size * bytesOf(t.dtype);
  if (bytes > 0) from.copyTo(to, dense.memory, dense.layout.offset * bytesOf(t.dtype), out.memory, bytes);
  if (dense !== t) dense.dispose();
  return out;
}
