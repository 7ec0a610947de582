// Tensors that vmap hands to a function: they have the shape of one example and hold all of them.
import { UnsupportedError } from '../base/errors.js';
import { Layout } from '../base/layout.js';
import { formatShape, type Shape } from '../base/shape.js';
import { type Level, runs, runningLevels } from './levels.js';
import { Tensor } from './tensor.js';

/** One example of a layout whose first dimension counts them. */
export const exampleLayout = ({ shape, strides, offset }: Layout): Layout =>
  new Layout(shape.slice(1), strides.slice(1), offset);
/** The layout of all examples, given what became of one of them. */
export const wholeLayout = (example: Layout, { shape, strides }: Layout): Layout =>
  new Layout([shape[0], ...example.shape], [strides[0], ...example.strides], example.offset);

/** All examples of a tensor, seen as one of them. */
export class Batched extends Tensor {
  /** The examples, along the first dimension. */
  readonly whole: Tensor;
  readonly level: Level;

  constructor(whole: Tensor, level: Level, id?: number, tracked = true) {
    super(whole.device, whole.storage, exampleLayout(whole.layout), whole.dtype, id, tracked);
    // A handle of its own, which no scope lets go before this one.
    this.whole = whole.alias();
    this.level = level;
    this.requiresGrad = whole.requiresGrad;
  }

  override get memory(): never {
    if (!runs(this.level))
      throw new UnsupportedError(
        `vmap: an example ${formatShape(this.shape)} is used after its vmap has ended; answer it from the function`,
      );
    throw new UnsupportedError(
      `vmap: the function asks for the numbers of one example ${formatShape(this.shape)} (item, toArray, data, masks ` +
        'as indices, unique and the like read them), and all examples go through it at once; choose with where()',
    );
  }
  override withLayout(layout: Layout): Batched {
    return new Batched(this.whole.withLayout(wholeLayout(layout, this.whole.layout)), this.level);
  }
  override alias(): Batched {
    const t = new Batched(this.whole, this.level, this.id, false);
    t.requiresGrad = this.requiresGrad;
    t.node = this.node;
    t.retainsGrad = this.retainsGrad;
    return t;
  }
  /** The same examples as a leaf of a graph within the vmap; graphs outside of it go on. */
  asLeaf(): Batched {
    return new Batched(this.whole, this.level).requireGrad();
  }
  override dispose(): void {
    if (!this.isDisposed) this.whole.dispose();
    super.dispose();
  }
  override toString(): string {
    return `Tensor ${formatShape(this.shape)} ${this.dtype} (one of ${this.level.size} examples in vmap)`;
  }
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** The innermost vmap that any of these tensors belongs to. */
export function levelOf(tensors: readonly Tensor[]): Level | undefined {
  let found: Level | undefined;
  for (const t of tensors)
    if (t instanceof Batched && runs(t.level) && t.level.depth > (found?.depth ?? 0)) found = t.level;
  return found;
}

/** Whether a vmap runs whose examples a tensor holds. */
export const isExample = (t: Tensor, level: Level): t is Batched => t instanceof Batched && t.level === level;

/** All examples of a tensor along the first dimension; one that they share is repeated, without a copy. */
export const wholeOf = (t: Tensor, level: Level): Tensor =>
  isExample(t, level) ? t.whole : t.broadcastTo([level.size, ...t.shape]);

/** Random numbers within vmap: refused unless it was said whether examples share them. */
export function drawn(shape: Shape, draw: (shape: Shape) => Tensor): Tensor {
  const running = runningLevels();
  if (running.some(({ rules }) => rules.randomness === 'error'))
    throw new UnsupportedError(
      "vmap: the function draws random numbers; say { randomness: 'same' } for one draw that all examples share, or " +
        "'different' for one each",
    );
  const apart = running.filter(({ rules }) => rules.randomness === 'different');
  if (apart.length === 0) return draw(shape);
  return apart.reduce<Tensor>((t, level) => new Batched(t, level), draw([...apart.map(({ size }) => size), ...shape]));
}
