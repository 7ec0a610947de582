// The parameters of one module that ranks hold parts of: as one vector, together for a while or apart.
import type { DType } from '../base/dtype.js';
import type { Module } from '../nn/module.js';
import { noGrad } from '../tensor/autograd.js';
import { Device } from '../tensor/device.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Group } from './group.js';
import type { Work } from './transport.js';

export class Unit {
  readonly name: string;
  readonly owner: Module;
  /** The module's parameters, before and now: views of `whole`. */
  readonly views = new Map<Tensor, Tensor>();
  /** All parameters one after another, and zeros up to a length that divides; its memory comes and goes. */
  readonly whole: Tensor;
  /** This rank's part, f32. */
  readonly shard: Tensor;
  readonly #group: Group;
  readonly #at = new Map<number, number>();
  /** How often the part had been written to when it was last put together. */
  #gathered = -1;
  /** Parameters on their way: what is sent, and how often part and whole had been written to. */
  #coming: { readonly work: Work; readonly own: Tensor; readonly from: number; readonly before: number } | undefined;
  /** Gradients of a pass under way, and whose have come. */
  #grads: Tensor | undefined;
  readonly #have = new Set<number>();

  constructor(name: string, owner: Module, params: readonly Tensor[], group: Group, dtype: DType) {
    this.name = name;
    this.owner = owner;
    this.#group = group;
    const size = params.reduce((n, p) => n + p.size, 0);
    const each = Math.ceil(size / group.size);
    const { device } = params[0];
    [this.whole, this.shard] = noGrad(() => {
      const shard = scope(() => {
        const flat = params.map((p) => p.detach().cast('f32').reshape([-1]));
        const pad = each * group.size - size;
        const all = flat[0].cat(pad > 0 ? [...flat.slice(1), flat[0].newZeros([pad], 'f32')] : flat.slice(1), 0);
        return all.narrow(0, group.rank * each, each).copy();
      });
      return [keep(Tensor.empty([each * group.size], dtype, device)), keep(shard).requireGrad()];
    });
    let at = 0;
    for (const p of params) {
      const view = keep(noGrad(() => this.whole.narrow(0, at, p.size).reshape(p.shape).detach())).requireGrad();
      this.views.set(p, view);
      this.#at.set(view.id, at);
      at += p.size;
    }
    this.whole.storage.goAway();
  }
  get together(): boolean {
    return !this.whole.storage.freed;
  }
  /** Puts the parameters together, unless they are so and nothing was written since. */
  gather(): void {
    if (this.#coming?.from !== this.shard.storage.version) this.#arrive();
    this.begin(false);
    this.#arrive();
  }
  /** Begins that beside what is enqueued from now on; `gather` waits for the rest. */
  begin(overlap = true): void {
    const from = this.shard.storage.version;
    if (this.#coming || (this.together && from === this.#gathered)) return;
    const { storage } = this.whole;
    storage.comeBack();
    const before = storage.version;
    const own = noGrad(() => scope(() => keep(this.shard.detach().cast(this.whole.dtype).contiguous())));
    this.#coming = { work: this.#group.transport.allGather(own, this.whole, overlap), own, from, before };
  }
  #arrive(): void {
    if (!this.#coming) return;
    const { work, own, from, before } = this.#coming;
    this.#coming = undefined;
    work.wait();
    own.dispose();
    // A graph that holds the same values must not take their coming back for a change.
    this.whole.storage.version = from === this.#gathered ? before : before + 1;
    this.#gathered = from;
  }
  scatter(): void {
    this.#arrive();
    this.whole.storage.goAway();
  }

  get full(): boolean {
    return this.#have.size === this.views.size;
  }
  /** A parameter's gradient, beside the others of its unit. */
  put(view: Tensor, grad: Tensor): void {
    noGrad(() =>
      scope(() => {
        this.#grads ??= keep(this.#zeros());
        const at = this.#at.get(view.id) as number;
        this.#grads.narrow(0, at, grad.size).assign(grad.reshape([-1]).cast(this.whole.dtype));
      }),
    );
    this.#have.add(view.id);
  }
  #zeros(): Tensor {
    return this.shard.newZeros([this.whole.size], this.whole.dtype);
  }
  /**
   * Begins to sum gradients over ranks, beside what is enqueued from now on; parameters that a rank's loss does not
   * depend on count as zero. What comes back answers this rank's part of the sum, f32, once it may be used.
   */
  reduce(op: 'avg' | 'sum'): () => Tensor {
    const all = this.#grads ?? keep(noGrad(() => this.#zeros()));
    this.#grads = undefined;
    this.#have.clear();
    const { transport } = this.#group;
    const out = (f: () => Tensor): Tensor => {
      const part = noGrad(() => scope(() => f().cast('f32')));
      all.dispose();
      return part;
    };
    // Not every transport has averages; sums that it does not make as they are have their own way.
    const summed = op === 'sum' || !transport.reduces(all.dtype, 'avg');
    if (!transport.reduces(all.dtype, summed ? 'sum' : 'avg')) {
      const part = out(() => this.#group.reduceScatter(all, 0, op));
      return () => part;
    }
    const own = Tensor.empty([this.shard.size], all.dtype, all.device);
    const work = transport.reduceScatter(all, own, summed ? 'sum' : 'avg', true);
    const factor = summed && op === 'avg' ? 1 / transport.size : 1;
    return () => {
      work.wait();
      const part = out(() => (factor === 1 ? own : own.affine(factor, 0)));
      if (part !== own) own.dispose();
      return part;
    };
  }

  /** What ranks hold parts of as this unit's parameters, each whole and in host memory. All ranks call it. */
  parts(own: Tensor): [view: Tensor, whole: Tensor][] {
    return noGrad(() =>
      scope(() => {
        const all = this.#group.allGather(own.detach()).to(Device.cpu());
        return [...this.views.values()].map((view): [Tensor, Tensor] => [
          view,
          keep(
            all
              .narrow(0, this.#at.get(view.id) as number, view.size)
              .reshape(view.shape)
              .copy(),
          ),
        ]);
      }),
    );
  }
  /** Writes this rank's part of whole tensors into `own`. */
  take(own: Tensor, of: (view: Tensor) => Tensor): void {
    noGrad(() =>
      scope(() => {
        const flat = [...this.views.values()].map((view) => of(view).to(Device.cpu()).cast('f32').reshape([-1]));
        const pad = this.whole.size - flat.reduce((n, t) => n + t.size, 0);
        const all = flat[0].cat(pad > 0 ? [...flat.slice(1), flat[0].newZeros([pad], 'f32')] : flat.slice(1), 0);
        own.assign(all.narrow(0, this.#group.rank * own.size, own.size).to(own.device));
      }),
    );
  }
}
