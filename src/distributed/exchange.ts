// Collectives made of one exchange: every rank's bytes to every rank, sums made here in the ranks' order. For sockets
// and threads: right on every device, not made for speed.
import { bytesOf, type DType, isFloat } from '../base/dtype.js';
import { formatShape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { HubClient } from './hub-client.js';
import { DONE, type Reduction, type Transport, type Work } from './transport.js';

const JOIN: Readonly<Record<Exclude<Reduction, 'avg'>, (a: Tensor, b: Tensor) => Tensor>> = {
  sum: (a, b) => a.add(b),
  prod: (a, b) => a.mul(b),
  max: (a, b) => a.maximum(b),
  min: (a, b) => a.minimum(b),
};

const NONE = new Uint8Array(0);

export class ExchangeTransport implements Transport {
  readonly name: string;
  readonly rank: number;
  readonly size: number;
  readonly hub: HubClient;
  readonly #members: readonly number[];
  readonly #group: string;

  /** `members` are the hub's numbers of this group's ranks. */
  constructor(name: string, hub: HubClient, members: readonly number[], group = 'world') {
    this.name = name;
    this.hub = hub;
    this.#members = members;
    this.#group = group;
    this.rank = members.indexOf(hub.rank);
    this.size = members.length;
  }

  /** Small floats are widened: a sum that is rounded at every step depends on their number. */
  reduces(dtype: DType, op: Reduction): boolean {
    return op !== 'avg' && (!isFloat(dtype) || bytesOf(dtype) >= 4);
  }
  #exchange(what: string, bytes: Uint8Array): readonly Uint8Array[] {
    return this.hub.exchange(this.#group, this.#members, what, bytes);
  }
  #all(what: string, x: Tensor): readonly Uint8Array[] {
    return this.#exchange(`${what} of ${x.dtype} ${formatShape(x.shape)}`, x.bytesSync());
  }
  #reduced(parts: readonly Uint8Array[], like: Tensor, op: Reduction): void {
    noGrad(() =>
      scope(() => {
        const given = parts.map((b) => Tensor.fromBytes(b, like.shape, like.dtype, like.device));
        like.assign(given.reduce(JOIN[op as 'sum']));
      }),
    );
  }
  #write(x: Tensor, parts: readonly Uint8Array[]): void {
    const bytes = parts.length === 1 ? parts[0] : Buffer.concat(parts);
    noGrad(() => scope(() => void x.assign(Tensor.fromBytes(bytes, x.shape, x.dtype, x.device))));
  }

  allReduce(src: Tensor, dst: Tensor, op: Reduction): Work {
    this.#reduced(this.#all(`allReduce ${op}`, src), dst, op);
    return DONE;
  }
  reduceScatter(src: Tensor, dst: Tensor, op: Reduction): Work {
    const parts = this.#all(`reduceScatter ${op}`, src);
    const bytes = parts[0].length / this.size;
    this.#reduced(
      parts.map((p) => p.slice(this.rank * bytes, (this.rank + 1) * bytes)),
      dst,
      op,
    );
    return DONE;
  }
  allGather(src: Tensor, dst: Tensor): Work {
    this.#write(dst, this.#all('allGather', src));
    return DONE;
  }
  broadcast(x: Tensor, root: number): Work {
    const what = `broadcast from ${root} of ${x.dtype} ${formatShape(x.shape)}`;
    const parts = this.#exchange(what, this.rank === root ? x.bytesSync() : NONE);
    if (this.rank !== root) this.#write(x, [parts[root]]);
    return DONE;
  }
  send(x: Tensor, to: number): Work {
    this.hub.send(this.#members[to], this.#group, x.bytesSync());
    return DONE;
  }
  recv(x: Tensor, from: number): Work {
    this.#write(x, [this.hub.recv(this.#members[from], this.#group)]);
    return DONE;
  }
  barrier(): void {
    this.#exchange('barrier', NONE);
  }
  split(members: readonly number[], name: string): Transport {
    const numbers = members.map((m) => this.#members[m]);
    return new ExchangeTransport(this.name, this.hub, numbers, `${this.#group}/${name}`);
  }
  close(): void {}
}
