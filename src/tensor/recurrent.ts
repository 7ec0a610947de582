// A recurrent net's pass over a sequence where the engine has its steps as kernels (src/ops/recurrent.ts): two launches
// a step, a product and all that stands behind it, and two a step backwards. The weights' gradient is one product over
// all steps.
import { Layout } from '../base/layout.js';
import type { View } from '../backends/backend.js';
import { matmulOps } from '../ops/matmul.js';
import type { GradContext, Grads, KernelRow } from '../ops/op.js';
import { GATES, KEPT_PARTS, type RecurrentKind, stepBackRow, stepRow } from '../ops/recurrent.js';
import { gradEnabled, noGrad } from './autograd.js';
import { cat, stack } from './create.js';
import { record } from './dispatch.js';
import { launch } from './guard.js';
import { innermost } from './levels.js';
import { scope } from './scope.js';
import { Tensor } from './tensor.js';

const PRODUCT = matmulOps.bmm as unknown as KernelRow<any>;

/** A pass, from the product of all inputs (batch, time, gates n). */
export interface Sequence {
  readonly kind: RecurrentKind;
  readonly x: Tensor;
  /** (gates n, n): the product of the state. */
  readonly weight: Tensor;
  /** The state's own bias (gates n), which GRUs alone have apart. */
  readonly bias?: Tensor | undefined;
  /** The state at first (batch, n), and an LSTM's cells. */
  readonly h: Tensor;
  readonly c?: Tensor | undefined;
  /** Whether it runs from the last step to the first. */
  readonly back: boolean;
}
/** The state after every step, (batch, time, n), in the order of time. */
export interface Passed {
  readonly h: Tensor;
  readonly c?: Tensor | undefined;
}
interface Settings extends Record<string, unknown> {
  readonly kind: RecurrentKind;
  readonly back: boolean;
}

/** The pass in its kernels; undefined where they are not to be had. */
export function recurrentPass(s: Sequence): Passed | undefined {
  const { kind, x, weight, bias, h, c, back } = s;
  const { device, dtype } = x;
  const inputs = [x, weight, h, ...(c ? [c] : []), ...(bias ? [bias] : [])];
  if (innermost() || x.size === 0 || h.size === 0) return undefined;
  if (!stepRow.dtypes.includes(dtype) || device.backend.supports(stepRow, dtype) !== true) return undefined;
  if (!inputs.every((t) => t.dtype === dtype && t.device === device)) return undefined;
  const trained = gradEnabled() && inputs.some((t) => t.requiresGrad);
  const outs = noGrad(() => forward({ ...s, x: x.contiguous() }, trained));
  if (trained) record(ROW, inputs, outs, { kind, back } satisfies Settings);
  return { h: outs[0], ...(c && { c: outs[1] }) };
}

/** Steps in the order in which they run. */
const order = (time: number, back: boolean): number[] =>
  Array.from({ length: time }, (_, i) => (back ? time - 1 - i : i));
/** A step of (batch, time, width), as a matrix whose rows lie apart. */
function stepOf({ storage, layout, dtype }: Tensor, t: number): View {
  const [batch, time, width] = layout.shape;
  return {
    memory: storage.memory,
    dtype,
    layout: new Layout([batch, width], [time * width, 1], layout.offset + t * width),
  };
}
/** Zeros for every row of a batch. */
const zeroRows = (like: Tensor, batch: number, width: number): Tensor =>
  like.newZeros([1, width]).broadcastTo([batch, width]);

/** The states of all steps, an LSTM's cells, and with `kept` what gradients read. */
function forward({ kind, x, weight, bias, h, c, back }: Sequence, kept: boolean): Tensor[] {
  const [batch, time, width] = x.shape;
  const n = width / GATES[kind];
  const make = (...shape: number[]): Tensor => Tensor.empty(shape, x.dtype, x.device);
  const { backend } = x.device;
  const states = make(batch, time, n);
  const cells = c && make(batch, time, n);
  const gates = kept && KEPT_PARTS[kind] > 0 ? make(batch, time, KEPT_PARTS[kind] * n) : undefined;
  scope(() => {
    const [now, y, turned] = [make(batch, n), make(batch, width), weight.t()];
    const own =
      kind === 'gru' ? (bias?.unsqueeze(0).broadcastTo([batch, width]) ?? zeroRows(x, batch, width)) : undefined;
    const params = { kind, kept: gates !== undefined };
    let before: number | undefined;
    for (const t of order(time, back)) {
      launch(backend, PRODUCT, [before === undefined ? h : now, turned], [y], {});
      const state = before === undefined ? h : stepOf(states, before);
      const cell = cells && (before === undefined ? (c as Tensor) : stepOf(cells, before));
      launch(
        backend,
        stepRow,
        [stepOf(x, t), y, ...(cell ? [cell] : []), ...(own ? [own, state] : [])],
        [stepOf(states, t), now, ...(cells ? [stepOf(cells, t)] : []), ...(gates ? [stepOf(gates, t)] : [])],
        params,
      );
      before = t;
    }
  });
  return [states, ...(cells ? [cells] : []), ...(gates ? [gates] : [])];
}

function grad(ctx: GradContext<any>): Grads {
  const { inputs, grads, params, needs } = ctx;
  const { kind, back } = params as Settings;
  if (gradEnabled() || innermost()) return byOps(ctx);
  const [x, weight, h] = inputs;
  const lstm = kind === 'lstm';
  const [batch, time, width] = x.shape;
  const n = width / GATES[kind];
  const { backend } = x.device;
  const [states, ...more] = ctx.outputs;
  const cells = lstm ? more[0] : undefined;
  const gates = more[lstm ? 1 : 0] as Tensor | undefined;
  const make = (...shape: number[]): Tensor => Tensor.empty(shape, x.dtype, x.device);
  const dx = make(batch, time, width);
  const dy = kind === 'gru' ? make(batch, time, width) : dx;
  const [given, ofCells] = [grads[0], lstm ? grads[1] : undefined].map((g) => g?.contiguous());
  const [now, later, carry] = [make(batch, width), make(batch, n), make(batch, n)];
  const none = zeroRows(x, batch, n);
  const first = order(time, back)[0];
  let [next, carried]: [Tensor, Tensor] = [none, none];
  for (const t of order(time, !back)) {
    const at = (all: Tensor | undefined): View => (all ? stepOf(all, t) : none);
    const beforeOf = (all: Tensor | undefined, begin: Tensor): View =>
      all && t !== first ? stepOf(all, back ? t + 1 : t - 1) : begin;
    const read: Readonly<Record<string, () => View[]>> = {
      lstm: () => [at(gates), beforeOf(cells, inputs[3]), at(cells), at(given), at(ofCells), next, carried],
      gru: () => [at(gates), beforeOf(states, h), at(given), next, carried],
      plain: () => [at(states), at(given), next],
    };
    const kept = gates ? [carry] : [];
    launch(
      backend,
      stepBackRow,
      read[gates ? kind : 'plain'](),
      [...kept, at(dx), ...(dy === dx ? [] : [at(dy)]), now],
      { kind, kept: true },
    );
    [next, carried] = [later, carry];
    if (t !== first || needs(2)) launch(backend, PRODUCT, [now, weight], [later], {});
  }
  const flat = (t: Tensor): Tensor => t.reshape([batch * time, t.shape[2]]);
  const dWeight = (): Tensor =>
    flat(dy)
      .t()
      .bmm(flat(shifted(states, h, back)));
  const rest = lstm ? [carry] : [];
  const bias = inputs[lstm ? 4 : 3];
  return [
    dx,
    needs(1) ? dWeight() : undefined,
    needs(2) ? (kind === 'gru' ? later.add(carry) : later) : undefined,
    ...rest,
    ...(bias ? [dy.sum([0, 1], false)] : []),
  ];
}
/** What each step began with: the states of the one before it. */
function shifted(states: Tensor, begin: Tensor, back: boolean): Tensor {
  const time = states.shape[1];
  const rest = states.narrow(1, back ? 1 : 0, time - 1);
  return cat(back ? [rest, begin.unsqueeze(1)] : [begin.unsqueeze(1), rest], 1);
}

/** The gradients in ops that have gradients themselves; the pass runs again for them. */
function byOps({ inputs, grads, params }: GradContext<any>): Grads {
  const { kind, back } = params as Settings;
  const [x, weight, h] = inputs;
  const lstm = kind === 'lstm';
  const [batch, time, width] = x.shape;
  const n = width / GATES[kind];
  const bias = inputs[lstm ? 4 : 3] as Tensor | undefined;
  const steps = order(time, back);
  const zero = x.newZeros([batch, n]);
  const at = (all: Tensor | undefined, t: number): Tensor => all?.narrow(1, t, 1).squeeze([1]) ?? zero;
  let [state, cell] = [h, lstm ? inputs[3] : zero];
  const ran = steps.map((t) => {
    const [from, begin] = [{ h: state, c: cell }, at(x, t)];
    const product = state.matmul(weight.t());
    const y = bias ? product.add(bias) : product;
    if (lstm) {
      const [i, f, g, o] = begin
        .add(y)
        .chunk(4, -1)
        .map((v, k) => (k === 2 ? v.tanh() : v.sigmoid()));
      cell = f.mul(cell).add(i.mul(g));
      state = o.mul(cell.tanh());
      return { t, from, gates: [i, f, g, o], bent: cell.tanh() };
    }
    if (kind === 'gru') {
      const [[a, b, d], [r0, z0, own]] = [begin.chunk(3, -1), y.chunk(3, -1)];
      const [r, z] = [a.add(r0).sigmoid(), b.add(z0).sigmoid()];
      const made = d.add(r.mul(own)).tanh();
      state = made.add(z.mul(state.sub(made)));
      return { t, from, gates: [r, z, made, own], bent: zero };
    }
    state = kind === 'relu' ? begin.add(y).relu() : begin.add(y).tanh();
    return { t, from, gates: [state], bent: zero };
  });
  const sloped = (y: Tensor): Tensor => y.mul(y.affine(-1, 1));
  const bentSlope = (y: Tensor): Tensor => y.sqr().affine(-1, 1);
  let [later, carry]: [Tensor, Tensor] = [zero, zero];
  const [dx, dy]: [Tensor[], Tensor[]] = [new Array(time), new Array(time)];
  for (const { t, from, gates, bent } of ran.reverse()) {
    const dh = at(grads[0], t).add(later);
    if (lstm) {
      const [i, f, g, o] = gates;
      const dc = carry.add(at(grads[1], t)).add(dh.mul(o).mul(bentSlope(bent)));
      const parts = [g.mul(sloped(i)), from.c.mul(sloped(f)), i.mul(bentSlope(g))].map((v) => dc.mul(v));
      dx[t] = dy[t] = cat([...parts, dh.mul(bent).mul(sloped(o))], -1);
      carry = dc.mul(f);
    } else if (kind === 'gru') {
      const [r, z, made, own] = gates;
      const all = dh.add(carry);
      const last = all.mul(z.affine(-1, 1)).mul(bentSlope(made));
      const both = [last.mul(own).mul(sloped(r)), all.mul(from.h.sub(made)).mul(sloped(z))];
      dx[t] = cat([...both, last], -1);
      dy[t] = cat([...both, last.mul(r)], -1);
      carry = all.mul(z);
    } else dx[t] = dy[t] = dh.mul(kind === 'relu' ? gates[0].gt(0).cast(x.dtype) : bentSlope(gates[0]));
    later = dy[t].matmul(weight);
  }
  const flat = (list: readonly Tensor[]): Tensor => cat(list, 0);
  const all = flat(ran.map(({ t }) => dy[t])); // (time batch, gates n)
  return [
    stack(dx, 1),
    all.t().matmul(flat(ran.map(({ from }) => from.h))),
    kind === 'gru' ? later.add(carry) : later,
    ...(lstm ? [carry] : []),
    ...(bias ? [all.sum([0], false)] : []),
  ];
}

const { noGrad: _, ...row } = stepRow;
const ROW: KernelRow<any> = {
  ...row,
  name: 'recurrentPass',
  formula: 'the states of a recurrent net after every step',
  grad,
};
