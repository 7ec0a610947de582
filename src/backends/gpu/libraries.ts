// Vendors' libraries behind plans: which products and convolutions they serve, asked once per shape, and their calls.
import { UnsupportedError } from '../../base/errors.js';
import { DTYPE } from '../../base/dtype.js';
import { env } from '../../base/environment.js';
import {
  type AttentionAddresses,
  type AttentionLibrary,
  attentionKey,
  type AttentionPlan,
  type AttentionSpec,
} from '../../driver/attention.js';
import type { Blas, GemmPlan, GemmSpec } from '../../driver/blas.js';
import { gemmKey } from '../../driver/blas.js';
import { type ConvPlan, type ConvSpec, convKey, type Dnn } from '../../driver/dnn.js';
import type { Address, DeviceLibraries, Stream } from '../../driver/driver.js';
import type { Factoring, Solver } from '../../driver/solver.js';

/** What a plan may ask: the library's own plan for a product or a convolution; undefined where our kernels serve. */
export interface Served {
  product(spec: Omit<GemmSpec, 'tf32'>): GemmPlan | undefined;
  convolution(spec: Omit<ConvSpec, 'tf32'>): ConvPlan | undefined;
  /** Off: a library factors what it can, whatever its size. */
  readonly ownFactors?: boolean;
  /** `trained`: gradients are wanted, so that the same shape comes again with every step. */
  attention(spec: Omit<AttentionSpec, 'deterministic'>, trained: boolean): AttentionPlan | undefined;
}
/** For plans on paper, and where libraries are switched off. */
export const NOTHING_SERVED: Served = {
  product: () => undefined,
  convolution: () => undefined,
  attention: () => undefined,
};
/** Operations of one call from which a library's attention is looked at: smaller ones are over in microseconds. */
const WORTH_ASKING = 2 ** 31;
/**
 * Seconds that our own kernels spend on a shape before a library compiles its kernel for it, which takes one or two.
 */
const PATIENCE = 0.25;
/** Shapes of training that need no patience: what is trained comes again, unless every batch has its own length. */
const AT_ONCE = 8;
/** Shapes whose seconds are remembered. */
const SHAPES_KEPT = 4096;
/**
 * Operations a second of our own kernels on an H200. An estimate, not a measurement: when a plan is made must not
 * depend on the clock, so that two runs of a program take the same kernels at the same step.
 */
const ownRate = ({ kind, dim }: { readonly kind: string; readonly dim: number }): number =>
  kind === 'forward' ? (dim <= 128 ? 4e14 : 1.3e14) : dim <= 128 ? 3e14 : 9e12;
/**
 * Products whose algorithm is measured, where that is asked for: few rows by a matrix that no cache holds, for which
 * the library's first choice is up to a sixth slower than its best (decision 0013).
 */
const [MEASURED_ROWS, MEASURED_BYTES] = [512, 64e6];
/** The way of a plan that is none of the library's: our own kernels. */
export const OWN_WAY = -1;

export class Libraries implements Served {
  /** f32 products may be rounded to TF32 only when asked for. */
  tf32 = false;
  /** Off: our own kernels serve where a library would, as on a machine without one. */
  enabled = true;
  /** Off: products are our own. */
  products = true;
  ownFactors = true;
  /** Whether a library's attention is tried beside our own. */
  attentionTried = env('WICK_CUDNN_ATTENTION') !== '0';
  attentionFrom = WORTH_ASKING;
  attentionPatience = PATIENCE;
  /** Gradients of attention are the same bits in every run; otherwise a library may add them up in any order. */
  deterministic = true;
  /**
   * Products that were planned and found not to run; answers that may be others the next time, though nothing is set.
   */
  refused = 0;
  undecided = 0;
  /** Set while work is tried that comes again and again: room for results that nobody reads. */
  measuring: ((bytes: number, use: (room: Address) => void) => void) | undefined;
  readonly #measured = new WeakSet<GemmPlan>();
  readonly #open: () => DeviceLibraries;
  readonly #products = new Map<string, GemmPlan | undefined>();
  readonly #convolutions = new Map<string, ConvPlan | undefined>();
  readonly #attentions = new Map<string, AttentionPlan | undefined>();
  readonly #ways = new WeakMap<AttentionPlan, number>();
  readonly #spent = new Map<string, number>();
  #atOnce = 0;
  readonly #tuned = new WeakSet<ConvPlan>();

  constructor(open: () => DeviceLibraries) {
    this.#open = open;
  }

  product(asked: Omit<GemmSpec, 'tf32'>): GemmPlan | undefined {
    if (!this.enabled || !this.products) return undefined;
    const { blas } = this.#open();
    if (typeof blas === 'string') return undefined;
    const spec: GemmSpec = { ...asked, tf32: this.tf32 };
    const key = gemmKey(spec);
    if (!this.#products.has(key)) this.#products.set(key, blas.supports(spec) === true ? blas.plan(spec) : undefined);
    return this.#products.get(key);
  }
  convolution(asked: Omit<ConvSpec, 'tf32'>): ConvPlan | undefined {
    if (!this.enabled) return undefined;
    const { dnn } = this.#open();
    if (typeof dnn === 'string') return undefined;
    const spec: ConvSpec = { ...asked, tf32: this.tf32 };
    const key = convKey(spec);
    if (!this.#convolutions.has(key))
      this.#convolutions.set(key, dnn.supports(spec) === true ? dnn.plan(spec) : undefined);
    return this.#convolutions.get(key);
  }

  attention(asked: Omit<AttentionSpec, 'deterministic'>, trained: boolean): AttentionPlan | undefined {
    const { batch, heads, tq, tk, dim } = asked;
    const operations = 4 * batch * heads * tq * tk * dim;
    if (!this.enabled || !this.attentionTried || operations < this.attentionFrom) return undefined;
    const spec: AttentionSpec = { ...asked, deterministic: asked.kind === 'forward' || this.deterministic };
    const key = attentionKey(spec);
    if (!this.#attentions.has(key)) {
      if (!this.#worthPlanning(key, spec, operations, trained)) return void this.undecided++;
      const { dnn } = this.#open();
      const plan = typeof dnn === 'string' ? dnn : dnn.attention?.plan(spec);
      this.#attentions.set(key, typeof plan === 'string' ? undefined : plan);
    }
    return this.#attentions.get(key);
  }
  /**
   * The library compiles a kernel for each shape. Training pays for it with the first step; prompts, whose lengths may
   * never come again, when our own kernels have spent about a part of that time on the shape.
   */
  #worthPlanning(key: string, spec: AttentionSpec, operations: number, trained: boolean): boolean {
    if (trained && this.#atOnce < AT_ONCE) {
      this.#atOnce++;
      return true;
    }
    const done = operations * (spec.right === 0 ? 0.5 : 1) * (spec.kind === 'backward' ? 2.5 : 1);
    const spent = (this.#spent.get(key) ?? 0) + done / ownRate(spec);
    if (this.#spent.size >= SHAPES_KEPT) this.#spent.clear();
    this.#spent.set(key, spent);
    return spent >= this.attentionPatience;
  }
  /** The library's attention itself, or why there is none: for those who compare it with ours. */
  attentionLibrary(): AttentionLibrary | string {
    const { dnn } = this.#open();
    return typeof dnn === 'string' ? dnn : (dnn.attention ?? `${dnn.name} has no attention`);
  }
  /** The way of a plan that was found the best, `OWN_WAY` for our own kernels; undefined before it was tried. */
  wayOf(plan: AttentionPlan): number | undefined {
    return this.#ways.get(plan);
  }
  keepWay(plan: AttentionPlan, way: number): void {
    this.#ways.set(plan, way);
  }
  runAttention(plan: AttentionPlan, way: number, at: AttentionAddresses, workspace: Address, stream: Stream): void {
    (this.#open().dnn as Dnn).attention?.run(plan, way, at, workspace, stream);
  }

  /** The library of factorizations, or why there is none. */
  get solver(): Solver | string {
    return (this.enabled && this.#open().solver) || 'there is none, or it is switched off';
  }
  /**
   * Runs it and waits where that tells anything; answers the number of what is wrong with the matrix, 0 for nothing.
   */
  factor(factoring: Factoring, at: readonly Address[], stream: Stream): number {
    return (this.#open().solver as Solver).run(factoring, at, stream);
  }

  /** Whether a product that was planned may still turn out not to run. */
  get productsRefused(): boolean {
    const { blas } = this.#open();
    return typeof blas !== 'string' && blas.refuses === true;
  }
  /**
   * Whether the product, plus what lies at `addend`, was enqueued. What a library finds that it cannot run is known for
   * the next time.
   */
  runProduct(
    plan: GemmPlan,
    a: Address,
    b: Address,
    out: Address,
    bias: Address,
    stream: Stream,
    addend?: Address,
  ): boolean {
    try {
      const blas = this.#open().blas as Blas;
      if (this.measuring) this.#measure(blas, plan, a, b, stream);
      blas.run(plan, a, b, out, bias, 1, addend === undefined ? 0 : 1, stream, addend);
      return true;
    } catch (e) {
      if (!(e instanceof UnsupportedError)) throw e;
      for (const [key, known] of this.#products) if (known === plan) this.#products.set(key, undefined);
      this.refused++;
      return false;
    }
  }
  #measure(blas: Blas, plan: GemmPlan, a: Address, b: Address, stream: Stream): void {
    if (this.#measured.has(plan)) return;
    this.#measured.add(plan);
    const { dtype, outDtype = dtype, batch, m, n, k, bias } = plan.spec;
    if (bias || batch > 1 || m > MEASURED_ROWS || n * k * DTYPE[dtype].bytes < MEASURED_BYTES) return;
    this.measuring?.(m * n * DTYPE[outDtype].bytes, (room) => blas.measure?.(plan, a, b, room, stream));
  }
  /** The first run of a plan measures the library's algorithms. */
  runConvolution(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const dnn = this.#open().dnn as Dnn;
    if (!this.#tuned.has(plan)) dnn.tune(plan, x, filter, y, stream);
    this.#tuned.add(plan);
    dnn.run(plan, x, filter, y, stream);
  }
}
