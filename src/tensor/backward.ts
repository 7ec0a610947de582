// Reverse-mode differentiation: recorded nodes, walked backwards, each by its row's one-line rule.
import { ArgumentError, GradError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import type { GradContext, Grads } from '../ops/op.js';
import { opList } from '../ops/table.js';
import { gradEnabled, type Node, NOT_KEPT, refuseNaN, withGrad } from './autograd.js';
import { type GradPiece, joined } from './grad-pieces.js';
import { productAt } from './product-place.js';
import { collected, track } from './scope.js';
import type { Tensor } from './tensor.js';
import { composed } from './composing.js';

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
  /**
   * Where a leaf's gradient is wanted: a contiguous tensor of its shape and dtype. One that is a single product is
   * written there at once; onLeaf gets it wherever it lies.
   */
  readonly place?: (leaf: Tensor) => Tensor | undefined;
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

function context(
  node: Node,
  grads: readonly (Tensor | undefined)[],
  before: Tensor | undefined,
  placed: GradContext['placed'],
): GradContext {
  const { outputs, params, row, remade } = node;
  const inputs = remade ? node.inputs.map((t, i) => (remade.has(i) ? again(t) : t)) : node.inputs;
  for (let i = 0; i < node.versions.length; i++) {
    const version = node.versions[i];
    if (version === NOT_KEPT) continue;
    const t = i < node.inputs.length ? node.inputs[i] : outputs[i - node.inputs.length];
    if (t.storage.version !== version) {
      throw new GradError(
        `${row.serves ?? row.name}: a tensor of shape ${formatShape(t.shape)} that its gradient needs was changed in ` +
          'place after it was used',
      );
    }
  }
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
    needs: (i) => node.inputs[i].requiresGrad,
    before,
    placed,
  };
}
/** What is not kept, made again by the op that made it. */
function again(t: Tensor): Tensor {
  if (gradEnabled())
    throw new GradError('remaking: gradients of gradients need what was not kept; leave it out for them');
  return ((t.node as Node).remake as () => Tensor)();
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

/** Finds the leaf that alone gets what flows to a tensor: itself, or what it is a view of. */
function soleLeaf(nodes: readonly Node[]): (t: Tensor) => Tensor | undefined {
  const uses = new Map<number, number>();
  for (const { inputs } of nodes) for (const { id } of inputs) uses.set(id, (uses.get(id) ?? 0) + 1);
  return (t) => {
    let from = t;
    while (uses.get(from.id) === 1 && from.node?.row.family === 'view') from = from.node.inputs[0];
    return uses.get(from.id) === 1 && !from.node && from.requiresGrad ? from : undefined;
  };
}

function release(node: Node): void {
  node.released = true;
  for (const t of node.inputs) t.dispose();
  for (const t of node.outputs) t.dispose();
}

/** A tensor as gradients are kept by: its number, and the layout whose shape they must have. */
type Slot = Pick<Tensor, 'id' | 'layout'>;
const nameOf = ({ row }: Node): string => row.serves ?? row.name;
/** Rows whose rules are wick's own steps. Other rules are users' functions and whole passes, which may keep any tensor. */
const OF_TABLE: ReadonlySet<unknown> = new Set(opList);

/** One backward pass: the gradients so far, by tensor. */
class Pass {
  readonly grads = new Map<number, Tensor>();
  /** Gradients of parts, which wait until the whole is asked for. */
  readonly #waiting = new Map<number, { readonly of: Slot; readonly pieces: GradPiece[] }>();
  /** Of a sparing pass. */
  readonly #made: Made | undefined;
  readonly #told: ((node: Node) => void) | undefined;
  readonly #place: (t: Tensor) => Tensor | undefined;

  /** Numbers of tensors that were made on the way and are asked for. */
  readonly #asked: ReadonlySet<number>;

  constructor(nodes: readonly Node[], { sparing, onLeaf, place }: BackwardOptions, asked: ReadonlySet<number>) {
    this.#asked = asked;
    const leafOf = place && soleLeaf(nodes);
    this.#place = (t) => {
      const leaf = leafOf?.(t);
      return leaf && place?.(leaf);
    };
    this.#made = sparing ? new Made() : undefined;
    const drop = sparing ? (id: number) => this.#drop(id) : undefined;
    this.#told = onLeaf && leafTeller(nodes, (id) => this.#whole(id), onLeaf, drop);
  }

  #drop(id: number): void {
    const g = this.grads.get(id);
    this.grads.delete(id);
    if (g) this.#made?.less(g);
  }

  #add(input: Slot, more: () => Tensor): void {
    const sum = this.grads.get(input.id);
    const join = (): Tensor => {
      const g = more();
      const { shape } = input.layout;
      const whole = sameShape(g.layout.shape, shape) ? g : g.sumTo([...shape]); // broadcast operands get the sum
      return sum ? sum.add(whole) : whole;
    };
    const now = this.#made ? (this.#made.of(() => [join()])[0] as Tensor) : join();
    this.#put(input.id, now, sum);
  }
  #put(id: number, now: Tensor, before: Tensor | undefined): void {
    this.#made?.more(now);
    if (before) this.#made?.less(before);
    this.grads.set(id, now);
  }
  /** What has flowed to a tensor so far, where a rule can add it to its own. */
  #joinable(t: Tensor): Tensor | undefined {
    const sum = t.requiresGrad ? this.grads.get(t.id) : undefined;
    return sum && sum.dtype === t.dtype && sameShape(sum.layout.shape, t.layout.shape) ? sum : undefined;
  }

  #whole(id: number): Tensor | undefined {
    const parts = this.#waiting.get(id);
    if (parts) {
      this.#waiting.delete(id);
      this.#add(parts.of, () => joined([...parts.of.layout.shape], parts.pieces));
      for (const { grad } of parts.pieces) this.#made?.less(grad);
    }
    return this.grads.get(id);
  }

  /** The gradient of a part of a tensor waits for those of the other parts. */
  #wait(part: Tensor, of: Slot, span: Omit<GradPiece, 'grad'>): void {
    const parts = this.#waiting.get(of.id) ?? { of: { id: of.id, layout: of.layout }, pieces: [] };
    this.#waiting.set(of.id, parts);
    parts.pieces.push({ ...span, grad: part });
    this.#made?.more(part);
  }

  #leave(node: Node): void {
    this.#told?.(node);
    // What flowed through is not asked for again: only leaves keep theirs, and what somebody asks for.
    for (const o of node.outputs) if (o.node && !o.retainsGrad && !this.#asked.has(o.id)) this.#drop(o.id);
    if (this.#made) release(node);
  }

  step(node: Node): void {
    const own = node.outputs.map((o) => this.#whole(o.id));
    if (own.every((g) => g === undefined)) {
      this.#told?.(node);
      if (this.#made) release(node);
      return;
    }
    const rule = node.row.grad;
    if (!rule) throw new GradError(`${nameOf(node)}: no gradient: ${node.row.noGrad ?? 'its row has no rule'}`);
    if (node.released)
      throw new GradError(
        'backward: an earlier backward pass has let go of this graph; give that call { retainGraph: true } to go ' +
          'through it again',
      );
    const [part] = own;
    if (part && node.row.family === 'view' && node.row.span) {
      this.#wait(part, node.inputs[0], node.row.span(node.params));
      this.#leave(node);
      return;
    }
    const before = 'joins' in node.row && !gradEnabled() ? this.#joinable(node.inputs[0]) : undefined;
    const placed = (i: number, f: () => Tensor): Tensor => {
      const place = this.#place(node.inputs[i]);
      return place ? productAt(place, f) : f();
    };
    const given = context(node, own, before, placed);
    // A rule of elementwise steps is one kernel, as an op made of such is; with createGraph its steps are recorded.
    const run = (): Grads => (OF_TABLE.has(node.row) ? composed(() => rule(given)) : rule(given));
    const back = this.#made ? this.#made.of(run) : run();
    refuseNaN(back, () => `backward: the gradient of ${nameOf(node)}`, node.called);
    node.inputs.forEach((input, i) => {
      const g = back[i];
      if (!g || !input.requiresGrad) return;
      if (i === 0 && before) this.#put(input.id, g, before);
      else this.#add(input, () => g);
    });
    for (const g of back) if (g) this.#made?.spare(g);
    this.#leave(node);
  }

  end(): void {
    for (const id of [...this.#waiting.keys()]) this.#whole(id);
    if (this.#made) for (const g of this.grads.values()) track(g); // from here on the caller's scope looks after them
  }
}

/** Tensor's backward() as a function. */
export function backward(
  result: Tensor,
  options: BackwardOptions = {},
  asked: ReadonlySet<number> = new Set(),
): Gradients {
  requireOptions('backward', options, ['grad', 'createGraph', 'onLeaf', 'sparing', 'place', 'retainGraph']);
  const { grad, createGraph = false, retainGraph = false, sparing = false } = options;
  if (!result.requiresGrad)
    throw new GradError(
      'backward: nothing this result was made of requires a gradient; a gradient that is differentiated again is ' +
        'made with { createGraph: true }',
    );
  if (!grad && result.size !== 1)
    throw new GradError(
      `backward: the result has shape ${formatShape(result.shape)}; give { grad } for a result that is not a single ` +
        'number',
    );
  if (grad && !sameShape(grad.shape, result.shape))
    throw new GradError(`backward: grad has shape ${formatShape(grad.shape)}, the result ${formatShape(result.shape)}`);
  return withGrad(createGraph, () => {
    const nodes = result.node ? order(result.node) : [];
    if (result.node && sparing && (createGraph || retainGraph))
      throw new GradError('backward: a sparing pass lets go of the graph; createGraph and retainGraph keep it');
    const pass = new Pass(nodes, options, asked);
    pass.grads.set(result.id, grad ?? result.onesLike());
    for (const node of nodes) pass.step(node);
    if (result.node) pass.end();
    if (!sparing && !createGraph && !retainGraph) for (const node of nodes) release(node);
    return new Gradients(pass.grads);
  });
}

/**
 * Gradients of a result with respect to some tensors, those made on the way included; with createGraph they can be
 * differentiated again.
 */
export function gradOf(result: Tensor, wrt: readonly Tensor[], options: BackwardOptions = {}): Tensor[] {
  if (!Array.isArray(wrt))
    throw new ArgumentError('gradOf: takes a list of tensors to differentiate by: gradOf(y, [x])');
  const all = backward(result, options, new Set(wrt.map((t) => t.id)));
  return wrt.map((t) => all.of(t));
}
