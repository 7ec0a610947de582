// One call of an op for all examples of a vmap: a rule for each family of rows, and the loop over examples where there
// is none.
import { maxInt } from '../base/dtype.js';
import { UnsupportedError } from '../base/errors.js';
import type { Layout } from '../base/layout.js';
import { broadcastShapes, type Shape } from '../base/shape.js';
import type {
  AssembleRow,
  GradContext,
  Grads,
  KernelFamily,
  KernelRow,
  Params,
  RowOf,
  Sig,
  ViewRow,
} from '../ops/op.js';
import type { GradRow } from './autograd.js';
import { Batched, exampleLayout, isExample, wholeLayout, wholeOf } from './batched.js';
import { eachExample, type Level } from './levels.js';
import type { Tensor } from './tensor.js';

/** Runs a row: dispatch's own function, which is not imported in a circle. */
export type Apply = (row: GradRow, inputs: readonly Tensor[], params: Params) => Tensor[];

/** A call of a row on examples. */
class Call {
  readonly #apply: Apply;
  readonly row: GradRow;
  readonly inputs: readonly Tensor[];
  readonly params: Params;
  readonly level: Level;
  constructor(apply: Apply, row: GradRow, inputs: readonly Tensor[], params: Params, level: Level) {
    this.#apply = apply;
    this.row = row;
    this.inputs = inputs;
    this.params = params;
    this.level = level;
  }
  get size(): number {
    return this.level.size;
  }
  /** Whether input i differs from example to example. */
  differs(i: number): boolean {
    return i < this.inputs.length && isExample(this.inputs[i], this.level);
  }
  /** Input i with all examples in front. */
  whole(i: number): Tensor {
    return wholeOf(this.inputs[i], this.level);
  }
  wholes(): Tensor[] {
    return this.inputs.map((_, i) => this.whole(i));
  }
  run(inputs: readonly Tensor[], params = this.params, row = this.row): Tensor[] {
    return this.#apply(row, inputs, params);
  }
}
/** Results with all examples in front; undefined where the rule does not cover the call. */
type Rule = (call: Call) => readonly Tensor[] | undefined;

/**
 * All examples of a tensor whose examples count as if they had this rank: dimensions of size 1 stand behind the first.
 */
function ranked(whole: Tensor, rank: number): Tensor {
  let t = whole;
  while (t.rank < rank + 1) t = t.unsqueeze(1);
  return t;
}
/** Operands that broadcast: those that examples share are left as they are. */
function broadcasting({ inputs, level }: Call): Tensor[] {
  const rank = Math.max(...inputs.map((t) => t.rank));
  return inputs.map((t) => (isExample(t, level) ? ranked(t.whole, rank) : t));
}

/** Parameters that name dimensions, for tensors with one more in front. */
function shifted(params: Params): Params {
  const { dim, dims } = params as { readonly dim?: number; readonly dims?: readonly number[] };
  return {
    ...params,
    ...(dim === undefined ? {} : { dim: dim + 1 }),
    ...(dims === undefined ? {} : { dims: dims.map((d) => d + 1) }),
  };
}
const along: Rule = (call) => call.run(call.wholes(), shifted(call.params));
const inFront: Rule = (call) => call.run(call.wholes());

/** The first dimension of an example counts samples already: those of all examples become one list. */
const folded = (t: Tensor): Tensor => t.reshape([t.shape[0] * t.shape[1], ...t.shape.slice(2)]);
const unfolded = (t: Tensor, size: number): Tensor => t.reshape([size, t.shape[0] / size, ...t.shape.slice(1)]);
const fold: Rule = (call) => call.run(call.wholes().map(folded)).map((t) => unfolded(t, call.size));

/** A vector and its values become rows that are alike. */
const searching: Rule = (call) => {
  const [x, values] = call.wholes();
  if (call.inputs[0].rank !== 1) return call.run([x, values]);
  return call.run([x, values.reshape([call.size, values.size / call.size])]).map((t) => t.reshape(values.shape));
};

/** Matrices of their own for every example, or one product of all rows with a shared matrix. */
const products: Rule = (call) => {
  if (call.inputs.length !== 2) return undefined;
  const [x, y] = broadcasting(call);
  return call.row.mixed ? call.run([x, y]) : [x.matmul(y)];
};

/** Rows by number, with a number for every element: what differs from example to example is a gather. */
function spreadIds(ids: Tensor, like: Shape, dim: number): Tensor {
  const [size, n] = ids.shape;
  const shape = like.map((d, i) => (i === dim ? n : d));
  return ids.reshape([size, ...shape.map((_, i) => (i === dim ? n : 1))]).broadcastTo([size, ...shape]);
}
const INDEX: { readonly [kind: string]: Rule } = {
  gather: along,
  scatter: along,
  extreme: along,
  sliceScatter: along,
  select: (call) => {
    const { dim } = call.params as { readonly dim: number };
    const [x, ids, others] = call.inputs;
    const { wrap } = (call.row as RowOf<'index'>).kernel;
    const rest = others ? [call.whole(2)] : [];
    if (!call.differs(1)) return call.run([call.whole(0), ids, ...rest], shifted(call.params));
    const given = call.whole(1);
    const own = wrap ? given.lt(0).where(given.affine(1, x.shape[dim]), given) : given;
    const chosen = call.differs(0)
      ? call.whole(0).gather(dim + 1, spreadIds(own, x.shape, dim))
      : x.indexSelect(dim, own.flatten()).unflatten(dim, [call.size, ids.shape[0]]).movedim(dim, 0);
    if (!others) return [chosen];
    const none = spreadIds(own.eq(Number(maxInt(own.dtype))), others.shape, dim);
    return [none.where(rest[0], chosen)];
  },
  indexAdd: (call) => {
    const { dim } = call.params as { readonly dim: number };
    const [x, ids] = call.inputs;
    if (!call.differs(1)) return call.run([call.whole(0), ids, call.whole(2)], shifted(call.params));
    return [call.whole(0).scatterAdd(dim + 1, spreadIds(call.whole(1), x.shape, dim), call.whole(2))];
  },
};

/** Pictures of all examples in one list; where weights differ, examples are groups of channels. */
const convolution: Rule = (call) => {
  const { groups } = call.params as { readonly groups: number };
  const params = { ...call.params, groups: groups * call.size };
  if ((call.row as RowOf<'conv'>).kernel.filter) {
    const ofGroups = (t: Tensor): Tensor => t.movedim(0, 1).flatten(1, 2);
    return call.run(call.wholes().map(ofGroups), params).map((t) => unfolded(t, call.size));
  }
  if (!call.differs(1) && !call.differs(2))
    return call.run([folded(call.whole(0)), ...call.inputs.slice(1)]).map((t) => unfolded(t, call.size));
  const [x, ...weights] = call.wholes();
  const channels = x.movedim(0, 1); // (samples, examples, channels, ...)
  const [y] = call.run([channels.flatten(1, 2), ...weights.map(folded)], params);
  return [y.unflatten(1, [call.size, y.shape[1] / call.size]).movedim(1, 0)];
};

/** Norms over the last dimension; weights that differ are multiplied outside of the kernel. */
const norm: Rule = (call) => {
  const { backward } = (call.row as KernelRow).kernel as { readonly backward: boolean };
  const data = backward ? 2 : 1;
  const wholes = call.inputs.map((_, i) => (i < data ? call.whole(i) : call.inputs[i]));
  if (!call.inputs.some((_, i) => i >= data && call.differs(i))) return call.run(wholes);
  const { weight: weighted } = call.params as { readonly weight: boolean };
  const params = { ...call.params, weight: false, bias: false };
  const rank = Math.max(...call.inputs.map((t) => t.rank));
  const rest = call.inputs.slice(data).map((_, i) => ranked(call.whole(data + i), rank));
  const weight = weighted ? rest.shift() : undefined;
  const times = (t: Tensor): Tensor => (weight ? t.mul(weight) : t);
  if (backward) return call.run([wholes[0], times(wholes[1])], params);
  const y = times(call.run([wholes[0]], params)[0]);
  return [rest.length > 0 ? y.add(rest[0]) : y];
};

/** Rotations by tables of angles, which all examples share or each has its own. */
const rotation: Rule = (call) => {
  const x = call.whole(0);
  const { size } = call;
  const shared = !call.differs(1) && !call.differs(2) && call.inputs[1].rank === 2;
  const table = (i: number): Tensor => {
    const t = ranked(call.whole(i), 3);
    return folded(t.broadcastTo([size, x.shape[1], ...t.shape.slice(2)]));
  };
  return call.run([folded(x), ...(shared ? call.inputs.slice(1) : [table(1), table(2)])]).map((t) => unfolded(t, size));
};

/** What attention takes besides queries, keys and values: a line for each sequence, or one that all share. */
const BY_SEQUENCE = ['mask', 'lengths', 'out'];
const BY_HEAD = ['slopes', 'sinks'];
const attention: Rule = (call) => {
  const { extras = [] } = call.params as { readonly extras?: readonly string[] };
  const first = call.inputs.length - extras.length;
  const fits = extras.every(
    (name, i) => BY_SEQUENCE.includes(name) || (BY_HEAD.includes(name) && !call.differs(first + i)),
  );
  if (!fits) return undefined;
  const inputs = call.inputs.map((t, i) => (BY_HEAD.includes(extras[i - first]) ? t : folded(call.whole(i))));
  return call.run(inputs).map((t) => unfolded(t, call.size));
};

/** Channels of all examples stand beside each other, and so do their groups. */
const besideChannels: Rule = (call) => {
  const { backward } = (call.row as RowOf<'planes'>).kernel;
  const { groups } = call.params as { readonly groups: number };
  const { size } = call;
  const wholes = call.wholes();
  const [, n, c, ...space] = wholes[0].shape;
  const swapped = [1, 0, 2, ...space.map((_, i) => i + 3)];
  const picture = (t: Tensor): Tensor => t.permute(swapped).reshape([n, size * c, ...space]);
  const pictures = (t: Tensor): Tensor => t.reshape([n, size, c, ...space]).permute(swapped);
  const stat = (t: Tensor): Tensor =>
    groups === 0 ? t.flatten() : t.reshape([size, n, groups]).permute([1, 0, 2]).flatten();
  const stats = (t: Tensor): Tensor =>
    groups === 0
      ? t.reshape([size, c])
      : t
          .reshape([n, size, groups])
          .permute([1, 0, 2])
          .reshape([size, n * groups]);
  const firsts = backward ? [picture, picture, stat, stat] : [picture];
  const inputs = wholes.map((t, i) => (firsts[i] ?? ((v: Tensor) => v.flatten()))(t));
  const results = call.run(inputs, { ...call.params, groups: groups * size });
  return results.map((t, i) => (i === 0 ? pictures(t) : backward ? t.reshape([size, c]) : stats(t)));
};

/** How a leading dimension of examples goes through the rows of a family. */
const RULES: { readonly [F in KernelFamily]?: Rule } = {
  cast: inFront,
  copy: inFront,
  reduce: along,
  scan: along,
  running: along,
  sort: along,
  search: searching,
  count: inFront,
  softmax: along,
  fourier: inFront,
  distance: inFront,
  matmul: products,
  index: (call) => INDEX[(call.row as KernelRow & { kernel: { kind: string } }).kernel.kind]?.(call),
  conv: convolution,
  pool: fold,
  resample: fold,
  norm,
  planes: besideChannels,
  rope: rotation,
  attention,
  // Ours on the host take matrices with any dimensions in front.
  custom: (call) => ((call.row as KernelRow).custom?.native ? inFront(call) : undefined),
};

const sigOf = ({ layout, dtype }: Tensor): Sig => ({ shape: layout.shape, dtype });
const exampleOf = ({ shape, dtype }: Sig): Sig => ({ shape: shape.slice(1), dtype });

/** The rule for gradients of one example, run on all of them. */
const gradOfExamples =
  (row: GradRow) =>
  (ctx: GradContext): Grads => {
    const size = ctx.out.shape[0];
    return eachExample(size, (level) => {
      const wrap = <T extends Tensor | undefined>(t: T): T => (t && new Batched(t, level)) as unknown as T;
      const [inputs, outputs, grads] = [ctx.inputs.map(wrap), ctx.outputs.map(wrap), ctx.grads.map(wrap)];
      const [x, y, out, grad] = [inputs[0], inputs[1], outputs[0], grads[0] as Tensor];
      const { params, needs } = ctx;
      const placed = (_: number, f: () => Tensor): Tensor => f();
      const back = row.grad?.({ inputs, outputs, grads, x, y, out, grad, params, needs, placed }) ?? [];
      return back.map((g) => g && wholeOf(g, level));
    });
  };

/** The row for tensors with all examples in front, where it says of layouts what happens to one example. */
function liftedView(row: ViewRow): ViewRow {
  const { span } = row;
  return {
    ...row,
    layout: (whole: Layout, params: Params): Layout => wholeLayout(row.layout(exampleLayout(whole), params), whole),
    ...(span && { span: (params: Params) => ({ ...span(params), dim: span(params).dim + 1 }) }),
    ...(row.grad && { grad: gradOfExamples(row) }),
  };
}
function liftedAssembly(row: AssembleRow, size: number): AssembleRow {
  const lift = (part: (l: Layout) => Layout) => (whole: Layout) => wholeLayout(part(exampleLayout(whole)), whole);
  return {
    ...row,
    infer: (inputs: readonly Sig[], params: Params) =>
      row.infer(inputs.map(exampleOf), params).map(({ shape, dtype }) => ({ shape: [size, ...shape], dtype })),
    pieces: (inputs: readonly Sig[], params: Params) =>
      row
        .pieces(inputs.map(exampleOf), params)
        .map(({ input, from, into }) => ({ input, into: lift(into), ...(from && { from: lift(from) }) })),
    ...(row.grad && { grad: gradOfExamples(row) }),
  };
}

/** Results with all examples in front, by one call of the op; undefined where there is no rule. */
function atOnce(call: Call): readonly Tensor[] | undefined {
  const { row, inputs, params } = call;
  switch (row.family) {
    case 'elementwise':
      broadcastShapes(row.name, ...inputs.map((t) => t.layout.shape)); // errors tell of the shapes of examples
      return call.run(broadcasting(call));
    case 'view':
      return call.run([call.whole(0)], params, liftedView(row as ViewRow));
    case 'assemble':
      return call.run(call.wholes(), params, liftedAssembly(row as AssembleRow, call.size));
    default:
      (row as KernelRow).infer(inputs.map(sigOf), params);
      return RULES[(row as KernelRow).family]?.(call);
  }
}

function oneByOne(call: Call): Tensor[] {
  const { row, inputs, level } = call;
  if (level.rules.fallback === 'error')
    throw new UnsupportedError(
      `vmap: ${row.serves ?? row.name} has no rule for batches and would be called ${level.size} times; ` +
        "{ fallback: 'loop' } allows it",
    );
  const each = Array.from({ length: level.size }, (_, k) =>
    call.run(inputs.map((t) => (isExample(t, level) ? t.whole.narrow(0, k, 1).squeeze(0) : t))),
  );
  return each[0].map((first, i) =>
    first.stack(
      each.slice(1).map((outs) => outs[i]),
      0,
    ),
  );
}

/** Runs a row on examples of a vmap. */
export function runBatched(
  apply: Apply,
  row: GradRow,
  inputs: readonly Tensor[],
  params: Params,
  level: Level,
): Tensor[] {
  const call = new Call(apply, row, inputs, params, level);
  return (atOnce(call) ?? oneByOne(call)).map((t) => new Batched(t, level));
}

/** Where a tensor of examples is written in place: what it is written with must fit each of them. */
export function assignmentOf(dst: Tensor, src: Tensor, level: Level): [into: Tensor, from: Tensor] {
  if (!isExample(dst, level))
    throw new UnsupportedError('vmap: assign would write values of every example into a tensor that they share');
  return [dst.whole, isExample(src, level) ? ranked(src.whole, dst.rank) : src];
}
