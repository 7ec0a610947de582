// Vendors' libraries behind plans: which products and convolutions they serve, asked once per shape, and their calls.
import { UnsupportedError } from '../../base/errors.js';
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

/** What a plan may ask: the library's own plan for a product or a convolution; undefined where our kernels serve. */
export interface Served {
  product(spec: Omit<GemmSpec, 'tf32'>): GemmPlan | undefined;
  convolution(spec: Omit<ConvSpec, 'tf32'>): ConvPlan | undefined;
  attention(spec: Omit<AttentionSpec, 'deterministic'>): AttentionPlan | undefined;
}
/** For plans on paper, and where libraries are switched off. */
export const NOTHING_SERVED: Served = {
  product: () => undefined,
  convolution: () => undefined,
  attention: () => undefined,
};
/** Operations from which attention is worth the seconds that a library takes to compile its kernel for it. */
const WORTH_COMPILING = 2 ** 31;
/** The way of a plan that is none of the library's: our own kernels. */
export const OWN_WAY = -1;

export class Libraries implements Served {
  /** f32 products may be rounded to TF32 only when asked for. */
  tf32 = false;
  /** Off: our own kernels serve where a library would, as on a machine without one. */
  enabled = true;
  /** Whether a library's attention is tried beside our own. */
  attentionTried = env('WICK_CUDNN_ATTENTION') === '1';
  attentionFrom = WORTH_COMPILING;
  /** Gradients of attention are the same bits in every run; otherwise a library may add them up in any order. */
  deterministic = true;
  readonly #open: () => DeviceLibraries;
  readonly #products = new Map<string, GemmPlan | undefined>();
  readonly #convolutions = new Map<string, ConvPlan | undefined>();
  readonly #attentions = new Map<string, AttentionPlan | undefined>();
  readonly #ways = new WeakMap<AttentionPlan, number>();
  readonly #tuned = new WeakSet<ConvPlan>();

  constructor(open: () => DeviceLibraries) {
    this.#open = open;
  }

  product(asked: Omit<GemmSpec, 'tf32'>): GemmPlan | undefined {
    if (!this.enabled) return undefined;
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

  attention(asked: Omit<AttentionSpec, 'deterministic'>): AttentionPlan | undefined {
    const { batch, heads, tq, tk, dim } = asked;
    if (!this.enabled || !this.attentionTried || 4 * batch * heads * tq * tk * dim < this.attentionFrom)
      return undefined;
    const { dnn } = this.#open();
    if (typeof dnn === 'string' || !dnn.attention) return undefined;
    const spec: AttentionSpec = { ...asked, deterministic: asked.kind === 'forward' || this.deterministic };
    const key = attentionKey(spec);
    if (!this.#attentions.has(key)) {
      const plan = dnn.attention.plan(spec);
      this.#attentions.set(key, typeof plan === 'string' ? undefined : plan);
    }
    return this.#attentions.get(key);
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

  /** Whether the product was enqueued. What a library finds that it cannot run is known for the next time. */
  runProduct(plan: GemmPlan, a: Address, b: Address, out: Address, stream: Stream): boolean {
    try {
      (this.#open().blas as Blas).run(plan, a, b, out, 0, 1, 0, stream);
      return true;
    } catch (e) {
      if (!(e instanceof UnsupportedError)) throw e;
      for (const [key, known] of this.#products) if (known === plan) this.#products.set(key, undefined);
      return false;
    }
  }
  /** The first run of a plan measures the library's algorithms. */
  runConvolution(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const dnn = this.#open().dnn as Dnn;
    if (!this.#tuned.has(plan)) dnn.tune(plan, x, filter, y, stream);
    this.#tuned.add(plan);
    dnn.run(plan, x, filter, y, stream);
  }
}
