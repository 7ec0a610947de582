// ZeRO's first stage: each rank keeps the optimizer's state of its share of the parameters only, steps that share and
// gives the result to the others.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { type GradSource, Optimizer } from '../nn/optim.js';
import { noGrad } from '../tensor/autograd.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Group } from './group.js';

/** How an optimizer's state is divided among ranks. */
export interface ShardedOptimizerOptions {
  /** Whether gradients come from one rank alone and are averaged on the way (the default), or are so already. */
  readonly reduced?: boolean;
  /** Gradients are scaled down so that their norm over all parameters and ranks is at most this. */
  readonly maxNorm?: number;
}

/**
 * All parameters as one vector, of which this rank steps the part of its number. For rules that work element by
 * element, which those of wick/nn do; every parameter gets a step, with a gradient of zero where it has none.
 */
export class ShardedOptimizer extends Optimizer {
  /** The ranks. */
  readonly group: Group;
  readonly #inner: Optimizer;
  readonly #shard: Tensor;
  readonly #options: ShardedOptimizerOptions;
  readonly #size: number;
  readonly #padded: number;

  constructor(
    params: readonly Tensor[],
    group: Group,
    make: (params: readonly Tensor[]) => Optimizer,
    options: ShardedOptimizerOptions = {},
  ) {
    super(params, {}, { learningRate: 0 });
    const odd = params.find((p) => p.dtype !== params[0].dtype);
    if (odd)
      throw new ArgumentError(
        `ShardedOptimizer: parameters are ${params[0].dtype} and ${odd.dtype}; one dtype is needed`,
      );
    this.group = group;
    this.#options = options;
    this.#size = params.reduce((n, p) => n + p.size, 0);
    this.#padded = Math.ceil(this.#size / group.size) * group.size;
    this.#shard = keep(noGrad(() => scope(() => this.#mine(this.#flat((p) => p)).copy()))).requireGrad();
    this.#inner = make([this.#shard]);
    if (this.#inner.params.length !== 1 || this.#inner.params[0] !== this.#shard)
      throw new ArgumentError('ShardedOptimizer: `make` must give an optimizer of the one tensor it is given');
    if (!this.#inner.elementwise)
      throw new UnsupportedError(
        `ShardedOptimizer: ${this.#inner.constructor.name} looks at a parameter as a whole; only rules that work ` +
          'element by element can be sharded',
      );
    this.learningRate = this.#inner.learningRate;
  }

  /** One vector of all parameters, zeros behind them up to a length that divides. */
  #flat(of: (p: Tensor) => Tensor): Tensor {
    const [first, ...rest] = this.params.map((p) => of(p).detach().reshape([-1]));
    const pad = this.#padded - this.#size;
    return first.cat(pad > 0 ? [...rest, first.newZeros([pad], first.dtype)] : rest, 0);
  }
  #mine(flat: Tensor): Tensor {
    const n = this.#padded / this.group.size;
    return flat.narrow(0, this.group.rank * n, n);
  }

  protected update(): Tensor {
    throw new ArgumentError('ShardedOptimizer: parameters are stepped together, by `step`');
  }
  override step(grads: GradSource): void {
    this.steps++;
    noGrad(() =>
      scope(() => {
        const { reduced, maxNorm } = this.#options;
        const flat = this.#flat((p) => {
          const g = grads.get(p);
          return g ? g.cast(p.dtype) : p.zerosLike();
        });
        let mine = reduced ? this.#mine(flat) : this.group.reduceScatter(flat, 0, 'avg');
        if (maxNorm !== undefined) {
          const norm = this.group.allReduce(mine.cast('f32').sqr().sum()).sqrt();
          mine = mine.mul(norm.affine(1, 1e-6).recip().affine(maxNorm, 0).clamp(0, 1).cast(mine.dtype));
        }
        this.#inner.learningRate = this.learningRate;
        this.#inner.step({ get: (t) => (t === this.#shard ? mine : undefined) });
        this.#spread(this.group.allGather(this.#shard.detach()));
      }),
    );
  }
  #spread(flat: Tensor): void {
    let at = 0;
    for (const p of this.params) {
      p.assign(flat.narrow(0, at, p.size).reshape(p.shape));
      at += p.size;
    }
  }

  /** The whole state, as one rank's optimizer of one vector would have it. All ranks call it. */
  override stateDict(): Map<string, Tensor> {
    return new Map(
      [...this.#inner.stateDict()].map(([name, t]) => [
        name,
        noGrad(() => scope(() => this.group.allGather(t).narrow(0, 0, this.#size).copy())),
      ]),
    );
  }
  /** A whole state, written by any number of ranks; the parameters must have been loaded before. */
  override loadStateDict(from: ReadonlyMap<string, Tensor>, steps: number): void {
    this.steps = steps;
    const parts = new Map<string, Tensor>();
    noGrad(() => {
      for (const [name, t] of from) {
        if (t.size !== this.#size)
          throw new ArgumentError(
            `ShardedOptimizer: the state ${name} has ${t.size} numbers, the parameters ${this.#size}`,
          );
        const pad = this.#padded - this.#size;
        parts.set(
          name,
          scope(() => {
            const flat = t.to(this.#shard.device).reshape([-1]);
            return this.#mine(pad > 0 ? flat.cat([flat.newZeros([pad], flat.dtype)], 0) : flat).copy();
          }),
        );
      }
      this.#inner.loadStateDict(parts, steps);
      scope(() => void this.#shard.assign(this.#mine(this.#flat((p) => p))));
    });
    for (const t of parts.values()) t.dispose();
  }
  /** Gives this rank's share of parameters and state back, for good. */
  override dispose(): void {
    super.dispose();
    this.#inner.dispose();
    this.#shard.dispose();
  }
}
