// Training one model on several ranks, each with its share of the batch: gradients are averaged in buckets while the
// backward pass goes on.
import { bytesOf, type DType } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { Module } from '../nn/module.js';
import { noGrad } from '../tensor/autograd.js';
import { type BackwardOptions, Gradients } from '../tensor/backward.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Group } from './group.js';
import type { Work } from './transport.js';

/** How gradients are gathered and sent. */
export interface DataParallelOptions {
  /** Gradients travel together in buckets of about this many bytes; default 25 MiB. */
  readonly bucketBytes?: number;
  /** The first bucket is smaller, so that the talk begins early; default 1 MiB. */
  readonly firstBucketBytes?: number;
  /** 'avg' for losses that are means over a rank's batch (all of one size), 'sum' for losses that are sums. */
  readonly op?: 'avg' | 'sum';
}

/** Parameters whose gradients are reduced together. */
interface Bucket {
  readonly params: readonly Tensor[];
  readonly dtype: DType;
  /** Where each gradient begins; behind all of them, a flag for each: whether some rank has one. */
  readonly places: ReadonlyMap<number, number>;
  readonly size: number;
}
/** A bucket in the course of one backward pass. */
interface Filling {
  readonly bucket: Bucket;
  readonly flat: Tensor;
  readonly have: Set<number>;
  work: Work | undefined;
}

/** Which parameters go together: from the last to the first, which is about the order gradients come in. */
export function bucketsOf(params: readonly Tensor[], first: number, rest: number): Bucket[] {
  const out: Bucket[] = [];
  let [list, bytes]: [Tensor[], number] = [[], 0];
  const close = (): void => {
    if (list.length === 0) return;
    const places = new Map<number, number>();
    let at = 0;
    for (const p of list) {
      places.set(p.id, at);
      at += p.size;
    }
    out.push({ params: list, dtype: list[0].dtype, places, size: at });
    [list, bytes] = [[], 0];
  };
  for (const p of [...params].reverse()) {
    if (list.length > 0 && list[0].dtype !== p.dtype) close();
    list.push(p);
    bytes += p.size * bytesOf(p.dtype);
    if (bytes >= (out.length === 0 ? first : rest)) close();
  }
  close();
  return out;
}

/** Every rank has the whole model and its own part of each batch; gradients are averaged while backward still runs. */
export class DataParallel {
  /** The module that is trained. */
  readonly module: Module;
  /** The ranks. */
  readonly group: Group;
  readonly #buckets: readonly Bucket[];
  readonly #bucketOf = new Map<number, number>();
  readonly #op: 'avg' | 'sum';

  /** Parameters and buffers of all ranks become those of rank 0. */
  constructor(module: Module, group: Group, options: DataParallelOptions = {}) {
    this.module = module;
    this.group = group;
    this.#op = options.op ?? 'avg';
    const params = module.parameters().filter((p) => p.requiresGrad);
    if (params.length === 0) throw new ArgumentError('DataParallel: the module has no parameters to train');
    this.#buckets = bucketsOf(params, options.firstBucketBytes ?? 1 << 20, options.bucketBytes ?? 25 << 20);
    this.#buckets.forEach((b, i) => {
      for (const p of b.params) this.#bucketOf.set(p.id, i);
    });
    for (const t of new Set(module.stateDict().values())) group.broadcastInto(t, 0);
  }

  /**
   * Gradients of a loss, averaged (or summed) over all ranks. A parameter that no rank's loss depends on has none, as
   * with one process; tensors outside the module keep this rank's own.
   */
  backward(loss: Tensor, options: Omit<BackwardOptions, 'onLeaf' | 'createGraph'> = {}): Gradients {
    const filling = this.#buckets.map((bucket): Filling => {
      const flat = keep(Tensor.empty([bucket.size + bucket.params.length], bucket.dtype, bucket.params[0].device));
      return { bucket, flat, have: new Set(), work: undefined };
    });
    let next = 0;
    // Buckets go in one order on all ranks, whatever order gradients come in.
    const start = (whole: (f: Filling) => boolean): void => {
      while (next < filling.length && whole(filling[next])) this.#begin(filling[next++]);
    };
    const grads = loss.backward({
      ...options,
      onLeaf: (leaf, grad) => {
        const at = this.#bucketOf.get(leaf.id);
        if (at === undefined) return;
        const f = filling[at];
        this.#put(f, leaf.id, grad);
        f.have.add(leaf.id);
        start((b) => b.have.size === b.bucket.params.length);
      },
    });
    start(() => true);
    for (const f of filling) this.#finish(f, grads);
    return grads;
  }
  #put({ flat, bucket }: Filling, id: number, grad: Tensor): void {
    noGrad(() =>
      scope(() => {
        const at = bucket.places.get(id) as number;
        flat.narrow(0, at, grad.size).assign(grad.reshape([-1]).cast(bucket.dtype));
      }),
    );
  }
  #begin(f: Filling): void {
    const { bucket, flat, have } = f;
    noGrad(() =>
      scope(() => {
        for (const p of bucket.params) if (!have.has(p.id)) this.#put(f, p.id, p.zerosLike());
        bucket.params.forEach((p, i) => {
          const flag = flat.narrow(0, bucket.size + i, 1);
          flag.assign(flat.constant(have.has(p.id) ? 1 : 0).reshape([1]));
        });
      }),
    );
    f.work = this.group.beginAllReduce(flat, this.#op);
  }
  #finish({ bucket, flat, have, work }: Filling, grads: Gradients): void {
    work?.wait();
    noGrad(() => {
      bucket.params.forEach((p, i) => {
        // Read only where this rank has no gradient itself: another may have one.
        const some = have.has(p.id) || scope(() => flat.narrow(0, bucket.size + i, 1).item() > 0);
        if (!some) return;
        const before = grads.get(p);
        grads.set(p, flat.narrow(0, bucket.places.get(p.id) as number, p.size).reshape(p.shape));
        before?.dispose();
      });
    });
    flat.dispose();
  }
}
