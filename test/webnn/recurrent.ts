// WebNN's recurrent operators: cells, sequences and directions.
import { stack } from '../../src/tensor/create.js';
import type { Tensor } from '../../src/tensor/tensor.js';
import type { Call } from './operators.js';

type Activation = (x: Tensor) => Tensor;
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  sigmoid: (x) => x.sigmoid(),
  tanh: (x) => x.tanh(),
  relu: (x) => x.relu(),
};
const activations = (o: Call['options'], fallback: readonly string[]): Activation[] =>
  (o.activations ?? fallback).map((n: string) => ACTIVATIONS[n]);
/** Everything in f32, results back in the operand's type. */
const f32 = <T extends Tensor | undefined>(t: T): T => (t ? t.cast('f32') : t) as T;

interface Gates {
  /** Gate g's share of a stacked weight or bias; undefined where it is not given. */
  readonly weight: (w: Tensor, g: string) => Tensor;
  readonly bias: (b: Tensor | undefined, g: string) => Tensor | undefined;
}
const gates = (layout: string, hidden: number): Gates => {
  const part = (t: Tensor, g: string): Tensor => t.narrow(0, layout.indexOf(g) * hidden, hidden);
  return { weight: part, bias: (b, g) => (b ? part(b, g) : undefined) };
};
const sum = (first: Tensor, ...rest: (Tensor | undefined)[]): Tensor =>
  rest.reduce<Tensor>((a, t) => (t ? a.add(t) : a), first);

interface Weights {
  readonly w: Tensor;
  readonly r: Tensor;
  readonly b?: Tensor | undefined;
  readonly rb?: Tensor | undefined;
  readonly peephole?: Tensor | undefined;
}

function gruStep(x: Tensor, h: Tensor, { w, r, b, rb }: Weights, hidden: number, o: Call['options']): Tensor {
  const [gate, candidate] = activations(o, ['sigmoid', 'tanh']);
  const g = gates(o.layout ?? 'zrn', hidden);
  const linear = (k: string): Tensor =>
    sum(x.matmul(g.weight(w, k).t()).add(h.matmul(g.weight(r, k).t())), g.bias(b, k), g.bias(rb, k));
  const z = gate(linear('z'));
  const reset = gate(linear('r'));
  const input = sum(x.matmul(g.weight(w, 'n').t()), g.bias(b, 'n'));
  const n = candidate(
    (o.resetAfter ?? true)
      ? input.add(reset.mul(sum(h.matmul(g.weight(r, 'n').t()), g.bias(rb, 'n'))))
      : sum(input.add(reset.mul(h).matmul(g.weight(r, 'n').t())), g.bias(rb, 'n')),
  );
  return z.mul(h).add(z.affine(-1, 1).mul(n));
}

function lstmStep(
  x: Tensor,
  h: Tensor,
  c: Tensor,
  { w, r, b, rb, peephole }: Weights,
  hidden: number,
  o: Call['options'],
): [Tensor, Tensor] {
  const [gate, candidate, output] = activations(o, ['sigmoid', 'tanh', 'tanh']);
  const g = gates(o.layout ?? 'iofg', hidden);
  const peek = gates('iof', hidden);
  const linear = (k: string, seen?: Tensor): Tensor =>
    sum(
      x.matmul(g.weight(w, k).t()).add(h.matmul(g.weight(r, k).t())),
      g.bias(b, k),
      g.bias(rb, k),
      peephole && seen ? seen.mul(peek.weight(peephole, k)) : undefined,
    );
  const next = gate(linear('f', c))
    .mul(c)
    .add(gate(linear('i', c)).mul(candidate(linear('g'))));
  return [gate(linear('o', next)).mul(output(next)), next];
}

/** Runs a step over the sequence in each direction: final states and, if wanted, all hidden states. */
function sequence(
  x: Tensor,
  steps: number,
  directions: readonly ('forward' | 'backward')[],
  initial: readonly (Tensor | undefined)[],
  hidden: number,
  step: (x: Tensor, state: Tensor[], direction: number) => Tensor[],
): { finals: Tensor[]; all: Tensor } {
  const batch = x.shape[1];
  const ends: Tensor[][] = [];
  const everything: Tensor[] = [];
  directions.forEach((direction, d) => {
    let state = initial.map((s) => (s ? s.get(d) : x.newFull([batch, hidden], 0)));
    const seen = new Array<Tensor>(steps);
    for (let k = 0; k < steps; k++) {
      const t = direction === 'backward' ? steps - 1 - k : k;
      state = step(x.get(t), state, d);
      seen[t] = state[0];
    }
    ends.push(state);
    everything.push(stack(seen));
  });
  return { finals: initial.map((_, i) => stack(ends.map((e) => e[i]))), all: stack(everything, 1) };
}
const directionsOf = (o: Call['options']): readonly ('forward' | 'backward')[] =>
  o.direction === 'both' ? ['forward', 'backward'] : [o.direction ?? 'forward'];
const weightsOf = (w: Tensor, r: Tensor, o: Call['options'], d?: number): Weights => {
  const pick = (t?: Tensor): Tensor | undefined =>
    t === undefined ? undefined : d === undefined ? f32(t) : f32(t).get(d);
  return {
    w: pick(w) as Tensor,
    r: pick(r) as Tensor,
    b: pick(o.bias),
    rb: pick(o.recurrentBias),
    peephole: pick(o.peepholeWeight),
  };
};

export function gruCell({ args: [x, w, r, h, hidden], options: o }: Call): Tensor {
  return gruStep(f32(x), f32(h), weightsOf(w, r, o), hidden, o).cast(x.dtype);
}
export function lstmCell({ args: [x, w, r, h, c, hidden], options: o }: Call): Tensor[] {
  return lstmStep(f32(x), f32(h), f32(c), weightsOf(w, r, o), hidden, o).map((t) => t.cast(x.dtype));
}
export function gru({ args: [x, w, r, steps, hidden], options: o }: Call): Tensor[] {
  const { finals, all } = sequence(
    f32(x),
    steps,
    directionsOf(o),
    [f32(o.initialHiddenState)],
    hidden,
    (xt, [h], d) => [gruStep(xt, h, weightsOf(w, r, o, d), hidden, o)],
  );
  return [...finals, ...(o.returnSequence ? [all] : [])].map((t) => t.cast(x.dtype));
}
export function lstm({ args: [x, w, r, steps, hidden], options: o }: Call): Tensor[] {
  const { finals, all } = sequence(
    f32(x),
    steps,
    directionsOf(o),
    [f32(o.initialHiddenState), f32(o.initialCellState)],
    hidden,
    (xt, [h, c], d) => lstmStep(xt, h, c, weightsOf(w, r, o, d), hidden, o),
  );
  return [...finals, ...(o.returnSequence ? [all] : [])].map((t) => t.cast(x.dtype));
}
