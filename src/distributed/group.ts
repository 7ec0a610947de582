// A group of ranks as programs see it: collectives on tensors of any layout, with gradients. All ranks of a group make
// the same calls in the same order, with tensors of the same shape and dtype.
import { type DType, isFloat } from '../base/dtype.js';
import { ArgumentError, DTypeError, ShapeError } from '../base/errors.js';
import { formatShape, type Shape } from '../base/shape.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import { recorded } from '../tensor/recorded.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import { Channel, type ChannelSource } from './channel.js';
import { type Reduction, REDUCTIONS, type Transport, who, type Work } from './transport.js';

/** How a reduction is made where the transport does not have it as it is. */
interface Plan {
  readonly dtype: DType;
  readonly op: Reduction;
  /** What the result is multiplied by. */
  readonly factor: number;
}

/** Ranks that work together: collectives over tensors, with gradients where they are defined. */
export class Group {
  /** What moves the bytes. */
  readonly transport: Transport;
  /** Where this rank's tensors are when nothing else is said. */
  readonly device: Device;
  readonly #channels: ChannelSource | undefined;
  #splits = 0;
  #opened = 0;

  constructor(transport: Transport, device: Device, channels?: ChannelSource) {
    this.transport = transport;
    this.device = device;
    this.#channels = channels;
  }
  /** This rank's number, from 0. */
  get rank(): number {
    return this.transport.rank;
  }
  /** How many ranks there are. */
  get size(): number {
    return this.transport.size;
  }
  /** Whether its calls can be part of recorded work (Device.capture): only those that are enqueued on the device. */
  get recordable(): boolean {
    return this.transport.name === 'nccl' || this.transport.name === 'alone';
  }
  /** Whether this rank is the one that writes files and speaks to people. */
  get first(): boolean {
    return this.rank === 0;
  }
  /** 'rank 1 of 4 over socket', as errors say it. */
  toString(): string {
    const { name } = this.transport;
    return name === 'alone' ? `${who(this)}, alone` : `${who(this)} over ${name}`;
  }

  #plan(name: string, dtype: DType, op: Reduction): Plan {
    const t = this.transport;
    if (!REDUCTIONS.includes(op))
      throw new ArgumentError(`${name}: ${JSON.stringify(op)} is not a reduction; there are ${REDUCTIONS.join(', ')}`);
    if (dtype === 'bool')
      throw new DTypeError(`${name}: truth values have no ${op}; cast to u8 for max (any) or min (all)`);
    if (op === 'avg' && !isFloat(dtype)) throw new DTypeError(`${name}: integers have no avg; ${dtype} given`);
    if (t.reduces(dtype, op)) return { dtype, op, factor: 1 };
    const wide = isFloat(dtype) ? (dtype === 'f64' ? 'f64' : 'f32') : dtype === 'i64' ? 'i64' : 'i32';
    if (t.reduces(wide, op)) return { dtype: wide, op, factor: 1 };
    return { dtype: wide, op: 'sum', factor: 1 / t.size };
  }
  #reduce(
    name: string,
    x: Tensor,
    op: Reduction,
    shape: Shape,
    run: (src: Tensor, dst: Tensor, op: Reduction) => Work,
  ): Tensor {
    const plan = this.#plan(name, x.dtype, op);
    return noGrad(() =>
      keepOut(() => {
        const src = x.cast(plan.dtype).contiguous();
        const dst = Tensor.empty(shape, plan.dtype, x.device);
        run(src, dst, plan.op).wait();
        return (plan.factor === 1 ? dst : dst.affine(plan.factor, 0)).cast(x.dtype);
      }),
    );
  }
  /** Sums are linear, so their gradients are sums again; of others none is defined. */
  #linear(name: string, op: Reduction, grad: (g: Tensor) => Tensor): ((g: Tensor) => Tensor) | string {
    return op === 'sum' || op === 'avg' ? grad : `${name} ${op}: only sums and averages have a gradient here`;
  }

  /** The sum (or avg, prod, max, min) over all ranks, on all ranks. */
  allReduce(x: Tensor, op: Reduction = 'sum'): Tensor {
    const out = this.#reduce('allReduce', x, op, x.shape, (s, d, o) => this.transport.allReduce(s, d, o, false));
    const grad = this.#linear('allReduce', op, (g) => this.allReduce(g, op));
    return recorded({ name: 'allReduce', formula: 'sum over ranks', grad }, x, out);
  }
  /**
   * The same in place, begun and not waited for: what is enqueued meanwhile runs beside it. x is contiguous and is not
   * touched before `wait`.
   */
  beginAllReduce(x: Tensor, op: Reduction = 'sum'): Work {
    const plan = this.#plan('beginAllReduce', x.dtype, op);
    if (!x.layout.isContiguous)
      throw new ShapeError(`beginAllReduce: a tensor ${formatShape(x.shape)} that is not contiguous`);
    if (plan.dtype === x.dtype && plan.factor === 1) {
      const begun = this.transport.allReduce(x, x, plan.op, true);
      return {
        // Holds x as well: its memory must not go before the work is done.
        wait: () => {
          begun.wait();
          x.storage.version++;
        },
      };
    }
    const wide = noGrad(() => keep(x.cast(plan.dtype)));
    const work = this.transport.allReduce(wide, wide, plan.op, true);
    return {
      wait: () => {
        work.wait();
        noGrad(() =>
          scope(() => void x.assign((plan.factor === 1 ? wide : wide.affine(plan.factor, 0)).cast(x.dtype))),
        );
        if (wide !== x) wide.dispose();
      },
    };
  }
  /** Everyone's x one after another along a dimension, on all ranks. */
  allGather(x: Tensor, dim = 0): Tensor {
    const at = this.#dim('allGather', Math.max(x.rank, 1), dim);
    const out = noGrad(() =>
      keepOut(() => {
        const dst = Tensor.empty([this.size, ...x.shape], x.dtype, x.device);
        this.transport.allGather(x.contiguous(), dst, false).wait();
        if (x.rank === 0) return dst;
        const shape = x.shape.map((n, i) => (i === at ? n * this.size : n));
        if (at === 0) return dst.reshape(shape);
        const order = [...Array.from({ length: at }, (_, i) => i + 1), 0];
        for (let i = at; i < x.rank; i++) order.push(i + 1);
        return dst.permute(order).reshape(shape);
      }),
    );
    const grad = (g: Tensor, input: Tensor): Tensor => this.reduceScatter(g, at).reshape(input.shape);
    return recorded({ name: 'allGather', formula: 'every rank after another', grad }, x, out);
  }
  /** The sum over all ranks, of which rank r keeps the r-th part along a dimension. */
  reduceScatter(x: Tensor, dim = 0, op: Reduction = 'sum'): Tensor {
    const at = this.#dim('reduceScatter', x.rank, dim);
    const n = x.shape[at];
    if (n % this.size !== 0)
      throw new ShapeError(
        `reduceScatter: dimension ${at} of ${formatShape(x.shape)} does not divide among ${this.size} ranks`,
      );
    const shape = x.shape.map((s, i) => (i === at ? s / this.size : s));
    const parts = (): Tensor => {
      if (at === 0) return x;
      const split = x.reshape([...x.shape.slice(0, at), this.size, n / this.size, ...x.shape.slice(at + 1)]);
      const order = [at, ...Array.from({ length: x.rank + 1 }, (_, i) => i).filter((i) => i !== at)];
      return split.permute(order);
    };
    const out = noGrad(() =>
      keepOut(() =>
        this.#reduce('reduceScatter', parts(), op, shape, (s, d, o) => this.transport.reduceScatter(s, d, o, false)),
      ),
    );
    const grad = this.#linear('reduceScatter', op, (g) => {
      const all = this.allGather(g, at);
      return op === 'avg' ? all.affine(1 / this.size, 0) : all;
    });
    return recorded({ name: 'reduceScatter', formula: 'a part of the sum over ranks', grad }, x, out);
  }
  /** The root's x on all ranks; the others give a tensor of its shape and dtype. */
  broadcast(x: Tensor, root = 0): Tensor {
    this.#peer('broadcast', root);
    const out = noGrad(() => x.copy());
    this.transport.broadcast(out, root).wait();
    const grad = (g: Tensor): Tensor => {
      const all = this.allReduce(g);
      return this.rank === root ? all : all.zerosLike();
    };
    return recorded({ name: 'broadcast', formula: "the root's x", grad }, x, out);
  }
  /** Writes the root's values into x on all ranks, in place. */
  broadcastInto(x: Tensor, root = 0): void {
    const all = noGrad(() => this.broadcast(x, root));
    noGrad(() => x.assign(all));
    all.dispose();
  }
  /** Returns when x may be changed; the receiver must ask for the same shape and dtype. Nothing is recorded. */
  send(x: Tensor, to: number): void {
    this.#peer('send', to);
    noGrad(() => scope(() => this.transport.send(x.contiguous(), to).wait()));
  }
  /** Waits for a tensor of this shape and dtype from a rank. */
  recv(shape: Shape, dtype: DType, from: number, device: Device = this.device): Tensor {
    this.#peer('recv', from);
    const out = Tensor.empty(shape, dtype, device);
    this.transport.recv(out, from).wait();
    return out;
  }
  /** Returns when all ranks have called it. */
  barrier(): void {
    this.transport.barrier();
  }

  /** Ranks that give the same colour become a group, in the order of their ranks here. All ranks call it. */
  split(color: number): Group {
    const colors = scope(() =>
      Array.from(this.allGather(tensor(Int32Array.of(color), { device: this.device })).dataSync() as Int32Array),
    );
    const members = colors.flatMap((c, r) => (c === color ? [r] : []));
    const name = `${this.#splits++}:${members.join(',')}`;
    const from = this.#channels;
    const channels = from && {
      ...from,
      members: members.map((m) => from.members[m]),
      name: `${from.name}/${name}`,
    };
    return new Group(this.transport.split(members, name), this.device, channels);
  }
  /** A way to send messages beside collectives. All ranks call it, in the same order as other groups and channels. */
  channel(): Channel {
    const from = this.#channels;
    if (!from) throw new ArgumentError(`${this}: it has no channels: nobody else is there, or none was set up`);
    return new Channel(from.hub, from.members, `${from.name}#${this.#opened++}`, from.fail);
  }
  /** A group of these ranks, for those in it; the others get undefined. All ranks call it. */
  group(ranks: readonly number[]): Group | undefined {
    for (const r of ranks) this.#peer('group', r);
    const made = this.split(ranks.includes(this.rank) ? 1 : 0);
    return ranks.includes(this.rank) ? made : undefined;
  }
  /** Leaves the group; its transport ends. */
  close(): void {
    this.transport.close();
  }

  #peer(what: string, rank: number): void {
    if (!Number.isInteger(rank) || rank < 0 || rank >= this.size)
      throw new ArgumentError(`${what}: there is no rank ${rank}; they are 0 to ${this.size - 1}`);
  }
  #dim(what: string, rank: number, dim: number): number {
    const at = dim < 0 ? dim + rank : dim;
    if (!Number.isInteger(at) || at < 0 || at >= rank)
      throw new ShapeError(`${what}: there is no dimension ${dim} in a tensor of ${rank}`);
    return at;
  }
}

/** Everything made inside goes but the result, which is contiguous and its own. */
function keepOut(f: () => Tensor): Tensor {
  return scope(() => f().contiguous());
}
