// Reverse-mode differentiation: recorded nodes, walked backwards, each by its row's one-line rule.
import { callerFrames, GradError } from '../base/errors.js';
import { isFloat } from '../base/dtype.js';
import { formatShape, sameShape } from '../base/shape.js';
import type { AssembleRow, ElementwiseRow, GradContext, Grads, KernelRow, Params, ViewRow } from '../ops/op.js';
import { type GradPiece, joined } from './grad-pieces.js';
import { collected, track } from './scope.js';
import type { Tensor } from './tensor.js';

export type GradRow = ElementwiseRow<any> | KernelRow<any> | ViewRow<any> | AssembleRow<any>;

/** One recorded op. It holds handles of its own, so that disposing of a tensor does not break a graph that needs it. */
export interface Node {
  readonly row: GradRow;
  readonly params: Params;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly versions: readonly number[];
  /** Whether a backward pass has let go of what it held. */
  released?: true;
  /** Where it was called, while anomalies are looked for. */
  readonly called?: string;
}

let enabled = true;
/** Whether operations are being recorded. */
export const gradEnabled = (): boolean => enabled;

function withGrad<T>(on: boolean, f: () => T): T {
  const before = enabled;
  enabled = on;
  try {
    return f();
  } finally {
    enabled = before;
  }
}
/** Runs f without recording anything. */
export const noGrad = <T>(f: () => T): T => withGrad(false, f);
/** Runs f recording again, inside noGrad. */
export const enableGrad = <T>(f: () => T): T => withGrad(true, f);

let watching = false;
/** Where an op was called; undefined unless anomalies are looked for. */
export const calledHere = (): string | undefined => (watching ? callerFrames() : undefined);
/** Refuses a result that is NaN, while anomalies are looked for. */
export function refuseNaN(
  results: readonly (Tensor | undefined)[],
  what: () => string,
  called: string | undefined,
): void {
  if (!watching) return;
  for (const t of results) {
    if (!t || !isFloat(t.dtype) || t.size === 0) continue;
    const found = noGrad(() => withoutWatching(() => t.detach().isNan().any().item() !== 0));
    if (found) throw new GradError(`${what()} gave NaN${called ? `; it was called\n${called}\n` : ''}`);
  }
}
function withoutWatching<T>(f: () => T): T {
  const before = watching;
  watching = false;
  try {
    return f();
  } finally {
    watching = before;
  }
}
/**
 * Runs f and throws at the first recorded op, or the first gradient, that gives NaN, with the line that called the op.
 * Every result is read back: for finding faults, not for training.
 */
export function detectAnomaly<T>(f: () => T): T {
  const before = watching;
  watching = true;
  try {
    return f();
  } finally {
    watching = before;
  }
}

/** What backward answers: gradients by tensor. */
export class Gradients {
  readonly #byId: Map<number, Tensor>;
  /** Made by backward(). */
  constructor(byId: Map<number, Tensor>) {
    this.#byId = byId;
  }
  /** The gradient, or undefined when the loss does not depend on t. */
  get(t: Tensor): Tensor | undefined {
    return this.#byId.get(t.id);
  }
  /** The gradient, or an error when the loss does not depend on t. */
  of(t: Tensor): Tensor {
    const g = this.get(t);
    if (!g)
      throw new GradError(
        `gradient: the result does not depend on this tensor of shape ${formatShape(t.shape)}, or it does not ` +
          'require a gradient',
      );
    return g;
  }
  /** Puts another gradient in its place: clipped, averaged over ranks. */
  set(t: Tensor, grad: Tensor): void {
    this.#byId.set(t.id, grad);
  }
  /** How many tensors have one. */
  get size(): number {
    return this.#byId.size;
  }
  /** All gradients. */
  values(): IterableIterator<Tensor> {
    return this.#byId.values();
  }
  /** Gives the memory of all gradients back. */
  dispose(): void {
    for (const g of this.#byId.values()) g.dispose();
    this.#byId.clear();
  }
  /** What `using` calls at the end of a block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** What backward() takes. */
export interface BackwardOptions {
  /** Gradient of the result itself; ones where left out (the result must then be a single number). */
  readonly grad?: Tensor;
  /** Record the backward pass too, so that gradients can be differentiated again. */
  readonly createGraph?: boolean;
  /**
   * Called with each leaf as soon as its gradient is whole, while the pass goes on: the last layers' come first. With
   * `sparing`, a leaf whose gradient it has taken (true) has none in the answer.
   */
  readonly onLeaf?: (leaf: Tensor, grad: Tensor) => boolean | void;
  /**
   * Gives memory back during the pass: what the graph holds as soon as it is walked, gradients as soon as nobody needs
   * them. Hooks must copy what they want to keep.
   */
  readonly sparing?: boolean;
  /** Keep the graph for another backward pass. Implied by createGraph. */
  readonly retainGraph?: boolean;
}

/** Nodes from the result backwards, each after all that use it. */
function order(root: Node): Node[] {
  const done = new Set<Node>();
  const list: Node[] = [];
  const stack: { node: Node; next: number }[] = [{ node: root, next: 0 }];
  done.add(root);
  while (stack.length > 0) {
    const top = stack[stack.length - 1];
    if (top.next < top.node.inputs.length) {
      const parent = top.node.inputs[top.next++].node;
      if (parent && !done.has(parent)) {
        done.add(parent);
        stack.push({ node: parent, next: 0 });
      }
    } else {
      list.push(top.node);
      stack.pop();
    }
  }
  return list.reverse();
}

function context(node: Node, grads: readonly (Tensor | undefined)[]): GradContext {
  const { inputs, outputs, params, row } = node;
  inputs.concat(outputs).forEach((t, i) => {
    if (t.storage.version !== node.versions[i]) {
      throw new GradError(
        `${row.serves ?? row.name}: a tensor of shape ${formatShape(t.shape)} that its gradient needs was changed in ` +
          'place after it was used',
      );
    }
  });
  const grad = grads[0] ?? (outputs[0].zerosLike() as Tensor);
  return {
    inputs,
    outputs,
    x: inputs[0],
    y: inputs[1],
    out: outputs[0],
    grad,
    grads,
    params,
    needs: (i) => inputs[i].requiresGrad,
  };
}

/** Tensor's backward() as a function. */
export function backward(result: Tensor, options: BackwardOptions = {}): Gradients {
  if (!result.requiresGrad) throw new GradError('backward: nothing this result was made of requires a gradient');
  if (!options.grad && result.size !== 1) {
    throw new GradError(
      `backward: the result has shape ${formatShape(result.shape)}; give { grad } for a result that is not a single ` +
        'number',
    );
  }
  if (options.grad && !sameShape(options.grad.shape, result.shape)) {
    throw new GradError(
      `backward: grad has shape ${formatShape(options.grad.shape)}, the result ${formatShape(result.shape)}`,
    );
  }
  return withGrad(options.createGraph ?? false, () => {
    const grads = new Map<number, Tensor>();
    grads.set(result.id, options.grad ?? result.onesLike());
    if (!result.node) return new Gradients(grads);
    const nodes = order(result.node);
    if (options.sparing && (options.createGraph || options.retainGraph))
      throw new GradError('backward: a sparing pass lets go of the graph; createGraph and retainGraph keep it');
    const made = options.sparing ? new Made() : undefined;
    const drop = (id: number): void => {
      const g = grads.get(id);
      grads.delete(id);
      if (g) made?.less(g);
    };
    const add = (input: Pick<Tensor, 'id' | 'shape'>, more: () => Tensor): void => {
      const sum = grads.get(input.id);
      const join = (): Tensor => {
        const g = more();
        const whole = sameShape(g.shape, input.shape) ? g : g.sumTo(input.shape); // broadcast operands get the sum
        return sum ? sum.add(whole) : whole;
      };
      const now = made ? (made.of(() => [join()])[0] as Tensor) : join();
      made?.more(now);
      if (sum) made?.less(sum);
      grads.set(input.id, now);
    };
    // Gradients of parts wait until the whole is asked for.
    const waiting = new Map<number, { readonly of: Pick<Tensor, 'id' | 'shape'>; readonly pieces: GradPiece[] }>();
    const whole = (id: number): Tensor | undefined => {
      const parts = waiting.get(id);
      if (parts) {
        waiting.delete(id);
        add(parts.of, () => joined(parts.of.shape, parts.pieces));
        for (const { grad } of parts.pieces) made?.less(grad);
      }
      return grads.get(id);
    };
    const told = options.onLeaf && leafTeller(nodes, whole, options.onLeaf, made && drop);
    const leave = (node: Node): void => {
      told?.(node);
      // What flowed through is not asked for again: only leaves keep theirs.
      for (const o of node.outputs) if (o.node && !o.retainsGrad) drop(o.id);
      if (made) release(node);
    };
    for (const node of nodes) {
      const own = node.outputs.map((o) => whole(o.id));
      if (own.every((g) => g === undefined)) {
        told?.(node);
        if (made) release(node);
        continue;
      }
      const rule = node.row.grad;
      if (!rule)
        throw new GradError(
          `${node.row.serves ?? node.row.name}: no gradient: ${node.row.noGrad ?? 'its row has no rule'}`,
        );
      if (node.released)
        throw new GradError(
          'backward: an earlier backward pass has let go of this graph; give that call { retainGraph: true } to go through it again',
        );
      const [part] = own;
      if (part && node.row.family === 'view' && node.row.span) {
        const [{ id, shape }] = node.inputs;
        const parts = waiting.get(id) ?? { of: { id, shape }, pieces: [] };
        waiting.set(id, parts);
        parts.pieces.push({ ...node.row.span(node.params), grad: part });
        made?.more(part);
        leave(node);
        continue;
      }
      const run = (): Grads => rule(context(node, own));
      const back = made ? made.of(run) : run();
      refuseNaN(back, () => `backward: the gradient of ${node.row.serves ?? node.row.name}`, node.called);
      node.inputs.forEach((input, i) => {
        const g = back[i];
        if (!g || !input.requiresGrad) return;
        add(input, () => g);
      });
      for (const g of back) if (g) made?.spare(g);
      leave(node);
    }
    for (const id of [...waiting.keys()]) whole(id);
    if (made) for (const g of grads.values()) track(g); // from here on the caller's scope looks after them
    if (!made && !options.createGraph && !options.retainGraph) for (const node of nodes) release(node);
    return new Gradients(grads);
  });
}

/** Handles that a sparing pass has made, and how often each stands among its gradients: at none it goes. */
class Made {
  readonly #uses = new Map<Tensor, number>();
  /** Runs a rule; of what it makes, only its answer stays. */
  of(f: () => Grads): Grads {
    const inner = new Set<Tensor>();
    const back = collected(inner, () => [...f()]);
    for (const t of inner) {
      if (back.includes(t)) this.#uses.set(t, 0);
      else t.dispose();
    }
    return back;
  }
  more(t: Tensor): void {
    const n = this.#uses.get(t);
    if (n !== undefined) this.#uses.set(t, n + 1);
  }
  less(t: Tensor): void {
    const n = this.#uses.get(t);
    if (n === undefined) return;
    this.#uses.set(t, n - 1);
    this.spare(t);
  }
  /** Gives a handle back that stands nowhere. */
  spare(t: Tensor): void {
    if (this.#uses.get(t) !== 0) return;
    this.#uses.delete(t);
    t.dispose();
  }
}

/** Is given every node that was walked, and reports every leaf whose last use that was. */
function leafTeller(
  nodes: readonly Node[],
  gradOf: (id: number) => Tensor | undefined,
  onLeaf: NonNullable<BackwardOptions['onLeaf']>,
  drop: ((id: number) => void) | undefined,
): (node: Node) => void {
  const uses = new Map<number, number>();
  const leaves = (node: Node): readonly Tensor[] => node.inputs.filter((t) => t.requiresGrad && !t.node);
  for (const node of nodes) for (const t of leaves(node)) uses.set(t.id, (uses.get(t.id) ?? 0) + 1);
  return (node) => {
    for (const t of leaves(node)) {
      const left = (uses.get(t.id) as number) - 1;
      uses.set(t.id, left);
      const grad = left === 0 ? gradOf(t.id) : undefined;
      if (grad && onLeaf(t, grad) === true) drop?.(t.id);
    }
  };
}

function release(node: Node): void {
  node.released = true;
  for (const t of node.inputs) t.dispose();
  for (const t of node.outputs) t.dispose();
}

/** The same values; in a backward pass their gradient goes through `f`, and what it returns travels on. */
export function gradHook(t: Tensor, f: (gradient: Tensor) => Tensor | void): Tensor {
  const out = t.detach();
  if (!enabled || !t.requiresGrad) return out;
  out.requiresGrad = true;
  const row = { ...HOOK, grad: ({ grad }: GradContext) => [f(grad as Tensor) ?? grad] } as unknown as GradRow;
  const [inputs, outputs] = [[t.alias()], [out.alias()]];
  const versions = [...inputs, ...outputs].map((x) => x.storage.version);
  out.node = outputs[0].node = { row, params: {}, inputs, outputs, versions };
  return out;
}
/** Only named in graphs and errors: nothing runs. */
const HOOK = { name: 'gradHook', family: 'view', formula: 'x', layout: (l: unknown) => l };

/** Gradients of a result with respect to some tensors; with createGraph they can be differentiated again. */
export function gradOf(result: Tensor, wrt: readonly Tensor[], options: BackwardOptions = {}): Tensor[] {
  const all = backward(result, options);
  return wrt.map((t) => all.of(t));
}
