// A world of one rank: every collective is a copy, so that programs need no second way of doing things.
import { ArgumentError } from '../base/errors.js';
import type { Tensor } from '../tensor/tensor.js';
import { DONE, type Transport, type Work } from './transport.js';

const copy = (src: Tensor, dst: Tensor): Work => {
  if (src !== dst) dst.assign(src.reshape(dst.shape));
  return DONE;
};
const nobody = (): never => {
  throw new ArgumentError('rank 0 of 1: there is no other rank to send to or to hear from');
};

export class AloneTransport implements Transport {
  readonly name = 'alone';
  readonly rank = 0;
  readonly size = 1;
  reduces(): boolean {
    return true;
  }
  allReduce(src: Tensor, dst: Tensor): Work {
    return copy(src, dst);
  }
  reduceScatter(src: Tensor, dst: Tensor): Work {
    return copy(src, dst);
  }
  allGather(src: Tensor, dst: Tensor): Work {
    return copy(src, dst);
  }
  broadcast(): Work {
    return DONE;
  }
  send = nobody;
  recv = nobody;
  barrier(): void {}
  split(): Transport {
    return this;
  }
  close(): void {}
}
