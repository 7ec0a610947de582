// Parameters, gradients and optimizer states divided among ranks, module by module: a module's parameters are put
// together before its forward and its backward pass and go away again afterwards; its gradients are summed, and each
// rank keeps its part.
import type { DType } from '../base/dtype.js';
import { bytesOf } from '../base/dtype.js';
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { Module } from '../nn/module.js';
import { Optimizer } from '../nn/optim.js';
import { gradEnabled, noGrad } from '../tensor/autograd.js';
import { type BackwardOptions, Gradients } from '../tensor/backward.js';
import { keep, scope } from '../tensor/scope.js';
import { Tensor } from '../tensor/tensor.js';
import type { Group } from './group.js';
import { Unit } from './unit.js';

/** How parameters are divided and fetched. */
export interface FullyShardedOptions {
  /** The modules that are put together one at a time; default: those that stand in lists, a decoder's blocks. */
  readonly units?: (name: string, module: Module) => boolean;
  /** What modules compute in; the parts that ranks keep are f32. Default f32. */
  readonly dtype?: DType;
  /** 'avg' for losses that are means over a rank's batch (all of one size), 'sum' for losses that are sums. */
  readonly op?: 'avg' | 'sum';
  /**
   * Whether the module after the one that runs is put together meanwhile: one more of them lives at a time. The order
   * is that of the pass before, so the first one fetches nothing ahead. Default true.
   */
  readonly ahead?: boolean;
}

/** Every rank keeps a part of each parameter and fetches the rest when a layer runs (FSDP). */
export class FullyShardedParallel {
  /** The module that is trained. */
  readonly module: Module;
  /** The ranks. */
  readonly group: Group;
  /** This rank's part of every unit's parameters, f32: what an optimizer steps. */
  readonly shards: readonly Tensor[];
  readonly #units: readonly Unit[];
  readonly #unitOf = new Map<number, Unit>();
  readonly #op: 'avg' | 'sum';
  /** Whether everything is together, for as long as `gathered` runs. */
  #pinned = false;
  readonly #ahead: boolean;
  /** Which unit came after which in the last pass of each kind. */
  readonly #next: Readonly<Record<Pass, Map<Unit, Unit>>> = { forward: new Map(), backward: new Map() };
  #pass: Pass = 'forward';
  #last: { readonly unit: Unit; readonly pass: Pass } | undefined;
  /** What was begun ahead of its turn. */
  #begun: Unit | undefined;

  /** Parameters and buffers of all ranks become those of rank 0. The module must be whole until then. */
  constructor(module: Module, group: Group, options: FullyShardedOptions = {}) {
    this.module = module;
    this.group = group;
    this.#op = options.op ?? 'avg';
    this.#ahead = options.ahead ?? true;
    const frozen = [...module.namedParameters()].find(([, p]) => !p.requiresGrad);
    if (frozen)
      throw new UnsupportedError(`FullyShardedParallel: ${frozen[0]} is not trained; all parameters must be, or none`);
    for (const t of new Set(module.stateDict().values())) group.broadcastInto(t, 0);
    this.#units = unitsOf(module, options.units ?? inLists).map(
      ({ name, owner, params }) => new Unit(name, owner, params, group, options.dtype ?? 'f32'),
    );
    const now = new Map<Tensor, Tensor>();
    for (const unit of this.#units) for (const [before, after] of unit.views) now.set(before, after);
    module.replace((t) => now.get(t) ?? t);
    for (const before of now.keys()) before.dispose();
    for (const unit of this.#units) {
      for (const view of unit.views.values()) this.#unitOf.set(view.id, unit);
      this.#hook(unit);
    }
    this.shards = this.#units.map((u) => u.shard);
  }
  #hook(unit: Unit): void {
    const top = unit.owner === this.module;
    unit.owner.onBeforeForward(() => this.#gather(unit));
    unit.owner.onForward((_, __, output) => {
      // What stands around the others is needed again as soon as the backward pass begins.
      const stays = top && gradEnabled() && output instanceof Tensor && output.requiresGrad;
      if (!this.#pinned && !stays) unit.scatter();
    });
    unit.owner.onBackward(() => this.#gather(unit));
  }
  /** All ranks run the same modules in the same order, so all of them begin the same ones ahead. */
  #gather(unit: Unit): void {
    const [last, pass] = [this.#last, this.#pass];
    this.#last = { unit, pass };
    // What stands around the modules begins a pass: it follows none.
    if (last?.pass === pass && last.unit !== unit && unit.owner !== this.module) this.#next[pass].set(last.unit, unit);
    if (this.#begun !== unit) this.#dropBegun();
    this.#begun = undefined;
    unit.gather();
    const next = this.#next[pass].get(unit);
    if (!this.#ahead || this.#pinned || !next || next.together) return;
    next.begin();
    this.#begun = next;
  }
  /** The order was another one this time. */
  #dropBegun(): void {
    if (!this.#pinned) this.#begun?.scatter();
    this.#begun = undefined;
  }

  /**
   * Gradients of this rank's parts (`shards`), averaged over all ranks. All ranks must run the same modules in the same
   * order. Gradients of tensors outside the module are this rank's own.
   */
  backward(loss: Tensor, options: Pick<BackwardOptions, 'grad'> = {}): Gradients {
    let next = this.#units.length - 1;
    const reduced = new Map<Unit, Tensor>();
    // The sums of one unit are made while the next one's gradients are computed.
    let finish = (): void => {};
    // Units go in one order on all ranks, whatever order gradients come in: from the last to the first.
    const reduce = (whole: (u: Unit) => boolean): void => {
      for (; next >= 0 && whole(this.#units[next]); next--) {
        const unit = this.#units[next];
        const part = unit.reduce(this.#op);
        finish();
        finish = () => void reduced.set(unit, part());
        if (!this.#pinned) unit.scatter();
      }
    };
    this.#pass = 'backward';
    let grads: Gradients;
    try {
      grads = loss.backward({
        ...options,
        sparing: true,
        onLeaf: (leaf, grad) => {
          const unit = this.#unitOf.get(leaf.id);
          if (!unit) return false;
          unit.put(leaf, grad);
          reduce((u) => u.full);
          return true;
        },
      });
    } finally {
      this.#pass = 'forward';
      this.#last = undefined;
      this.#dropBegun();
    }
    reduce(() => true);
    finish();
    for (const [unit, part] of reduced) grads.set(unit.shard, part);
    return grads;
  }
  /** Gradients scaled down so that their norm over all parts and ranks is at most `max`; answers the norm before. */
  clipNorm(grads: Gradients, max: number): Tensor {
    return noGrad(() =>
      scope(() => {
        const own = this.shards.filter((s) => grads.get(s));
        const squares = own.map((s) => grads.of(s).sqr().sum());
        const sum = squares.length > 0 ? squares.reduce((a, b) => a.add(b)) : this.shards[0].constant(0);
        const norm = this.group.allReduce(sum).sqrt();
        const factor = norm.affine(1, 1e-6).recip().affine(max, 0).clamp(0, 1);
        for (const s of own) grads.of(s).assign(grads.of(s).mul(factor));
        return norm;
      }),
    );
  }

  /** Runs f, async or not, with all parameters together: for evaluating, writing text, saving. All ranks call it. */
  async gathered<T>(f: () => T | Promise<T>): Promise<T> {
    this.#pinned = true;
    for (const u of this.#units) u.gather();
    try {
      return await f();
    } finally {
      this.#pinned = false;
      for (const u of this.#units) u.scatter();
    }
  }
  /** Bytes of parameters on this rank at the moment: its parts, and what is together. */
  get liveBytes(): number {
    return this.#units.reduce(
      (n, u) => n + u.shard.size * 4 + (u.together ? u.whole.size * bytesOf(u.whole.dtype) : 0),
      0,
    );
  }

  /** Whole parameters by name, f32 in host memory, for a checkpoint. All ranks call it. */
  tensors(): Map<string, Tensor> {
    const parts = new Map(this.#units.flatMap((u) => u.parts(u.shard)).map(([view, t]) => [view.id, t]));
    return new Map([...this.module.namedParameters()].map(([name, p]) => [name, parts.get(p.id) as Tensor]));
  }
  /** Takes whole parameters by name: those of a checkpoint, written by any number of ranks. */
  load(from: ReadonlyMap<string, Tensor>): void {
    const names = [...this.module.namedParameters()];
    for (const u of this.#units)
      u.take(u.shard, (view) => {
        const found = names.filter(([, p]) => p.id === view.id).map(([name]) => from.get(name));
        const t = found.find((f) => f !== undefined);
        if (!t)
          throw new ArgumentError(
            `FullyShardedParallel: there is no ${names.find(([, p]) => p.id === view.id)?.[0]} among the tensors`,
          );
        return t;
      });
  }
  /** The states of an optimizer of `shards` as whole tensors, numbered by parameter. All ranks call it. */
  optimizer(make: (shards: readonly Tensor[]) => Optimizer): FullyShardedOptimizer {
    return new FullyShardedOptimizer(make(this.shards), this.#units);
  }
}

type Pass = 'forward' | 'backward';

/** Steps this rank's parts; its state is read and written whole, so that any number of ranks can go on with it. */
export class FullyShardedOptimizer extends Optimizer {
  readonly #inner: Optimizer;
  readonly #units: readonly Unit[];

  constructor(inner: Optimizer, units: readonly Unit[]) {
    super(
      units.map((u) => u.shard),
      {},
      { learningRate: 0 },
    );
    if (inner.params.length !== units.length || inner.params.some((p, i) => p !== units[i].shard))
      throw new ArgumentError('FullyShardedParallel: `make` must give an optimizer of the tensors it is given');
    if (!inner.elementwise)
      throw new UnsupportedError(
        `FullyShardedParallel: ${inner.constructor.name} looks at a parameter as a whole; only rules that work ` +
          'element by element can be sharded',
      );
    this.#inner = inner;
    this.#units = units;
    this.learningRate = inner.learningRate;
  }
  protected update(): Tensor {
    throw new ArgumentError('FullyShardedOptimizer: parts are stepped by `step`');
  }
  override step(grads: Gradients): void {
    this.steps++;
    this.#inner.learningRate = this.learningRate;
    this.#inner.step(grads);
  }
  /** By '<number of the parameter>.<name>', in host memory. */
  override stateDict(): Map<string, Tensor> {
    const out = new Map<string, Tensor>();
    let first = 0;
    this.#units.forEach((u, i) => {
      for (const [key, t] of this.#inner.stateDict())
        if (key.startsWith(`${i}.`))
          u.parts(t).forEach(([, part], j) => out.set(`${first + j}.${key.slice(`${i}.`.length)}`, part));
      first += u.views.size;
    });
    return out;
  }
  override loadStateDict(from: ReadonlyMap<string, Tensor>, steps: number): void {
    this.steps = steps;
    const parts = new Map<string, Tensor>();
    let first = 0;
    this.#units.forEach((u, i) => {
      const names = new Set(
        [...from.keys()].filter((k) => k.startsWith(`${first}.`)).map((k) => k.slice(`${first}.`.length)),
      );
      const at = new Map([...u.views.values()].map((view, j) => [view.id, first + j]));
      for (const name of names) {
        const part = keep(noGrad(() => u.shard.zerosLike()));
        u.take(part, (view) => {
          const key = `${at.get(view.id)}.${name}`;
          const t = from.get(key);
          if (!t) throw new ArgumentError(`FullyShardedOptimizer: the state has no ${JSON.stringify(key)}`);
          return t;
        });
        parts.set(`${i}.${name}`, part);
      }
      first += u.views.size;
    });
    this.#inner.loadStateDict(parts, steps);
    for (const t of parts.values()) t.dispose();
  }
  override dispose(): void {
    super.dispose();
    this.#inner.dispose();
  }
}

/** Modules that stand in lists: 'blocks.0'. */
const inLists = (name: string): boolean => /\.\d+$/.test(name);

/** Each parameter with the innermost unit that holds all its names; what none holds is the whole module's, first. */
function unitsOf(
  module: Module,
  chosen: (name: string, module: Module) => boolean,
): { name: string; owner: Module; params: Tensor[] }[] {
  const owners = [...module.namedModules()].filter(([name, m]) => name !== '' && chosen(name, m));
  const units = new Map<string, { name: string; owner: Module; params: Tensor[] }>([
    ['', { name: '', owner: module, params: [] }],
    ...owners.map(([name, owner]) => [name, { name, owner, params: [] as Tensor[] }] as const),
  ]);
  const homes = new Map<Tensor, string>();
  for (const [name, p] of module.namedParameters()) {
    const holding = owners.map(([o]) => o).filter((o) => name.startsWith(`${o}.`));
    const home = holding.reduce((a, b) => (b.length > a.length ? b : a), '');
    const before = homes.get(p);
    homes.set(p, before === undefined || before === home ? home : ''); // tied over units
  }
  for (const [p, home] of homes) units.get(home)?.params.push(p);
  return [...units.values()].filter((u) => u.params.length > 0);
}
