// What kinds of recurrent nets there are: their gates, the next state from what input and state say, and their weights.
import type { RecurrentKind } from '../ops/recurrent.js';
import { fuse } from '../tensor/fuse.js';
import type { Tensor } from '../tensor/tensor.js';
import { uniform } from './init.js';
import type { VarBuilder } from './var-builder.js';

/** A state of LSTMs, by layer and direction where it belongs to a whole net. */
export interface LstmState {
  /** The hidden state, (batch, hidden): what the layer answers. */
  readonly h: Tensor;
  /** The cell state, (batch, hidden): what it remembers. */
  readonly c: Tensor;
}
/** A state of GRUs and plain recurrent nets. */
export interface GruState {
  /** The hidden state, (batch, hidden). */
  readonly h: Tensor;
}

/** The weights of one layer in one direction. */
export interface Weights {
  readonly ih: Tensor;
  readonly hh: Tensor;
  readonly bih: Tensor | undefined;
  readonly bhh: Tensor | undefined;
}
/** A kind of recurrent net: how many gates, and the next state from what input and state say. */
export interface Kind<S extends GruState> {
  /** As engines that have its steps as kernels know it. */
  readonly name: RecurrentKind;
  readonly gates: number;
  readonly parts: readonly (keyof S & string)[];
  /** Both products are added up before anything else, so that their biases are one, added for all steps at once. */
  readonly joined: boolean;
  advance(fromInput: Tensor, fromHidden: (h: Tensor) => Tensor, state: S): S;
}
// One kernel each where no gradients are recorded.
const remembered = fuse((f: Tensor, c: Tensor, i: Tensor, g: Tensor) =>
  f.sigmoid().mul(c).add(i.sigmoid().mul(g.tanh())),
);
const told = fuse((o: Tensor, c: Tensor) => o.sigmoid().mul(c.tanh()));
export const LSTM_KIND: Kind<LstmState> = {
  name: 'lstm',
  gates: 4,
  parts: ['h', 'c'],
  joined: true,
  advance: (x, fromHidden, { h, c }) => {
    const [i, f, g, o] = x.add(fromHidden(h)).chunk(4, -1);
    const next = remembered(f, c, i, g);
    return { h: told(o, next), c: next };
  },
};
const opened = fuse((x: Tensor, y: Tensor) => x.add(y).sigmoid());
const proposed = fuse((x: Tensor, r: Tensor, h: Tensor) => x.add(r.mul(h)).tanh());
const mixed = fuse((n: Tensor, z: Tensor, h: Tensor) => n.add(z.mul(h.sub(n))));
export const GRU_KIND: Kind<GruState> = {
  name: 'gru',
  gates: 3,
  parts: ['h'],
  joined: false,
  advance: (x, fromHidden, { h }) => {
    const size = h.shape[h.rank - 1];
    const hidden = fromHidden(h);
    const gates = (t: Tensor): Tensor => t.narrow(-1, 0, 2 * size);
    const last = (t: Tensor): Tensor => t.narrow(-1, 2 * size, size);
    const [r, z] = opened(gates(x), gates(hidden)).chunk(2, -1);
    return { h: mixed(proposed(last(x), r, last(hidden)), z, h) };
  },
};
export const plainKind = (bend: 'tanh' | 'relu'): Kind<GruState> => {
  const bent = fuse((x: Tensor, y: Tensor) => (bend === 'tanh' ? x.add(y).tanh() : x.add(y).relu()));
  return {
    name: bend,
    gates: 1,
    parts: ['h'],
    joined: true,
    advance: (x, fromHidden, { h }) => ({ h: bent(x, fromHidden(h)) }),
  };
};

export const product = (x: Tensor, weight: Tensor, bias: Tensor | undefined): Tensor => {
  const y = x.matmul(weight.t());
  return bias ? y.add(bias) : y;
};
/** Biases of the products of input and state, as the kind has them. */
export function biases(kind: Pick<Kind<GruState>, 'joined'>, { bih, bhh }: Pick<Weights, 'bih' | 'bhh'>) {
  if (!kind.joined) return { input: bih, hidden: bhh };
  return { input: bih && bhh ? bih.add(bhh) : (bih ?? bhh), hidden: undefined };
}
/** Fresh weights, or a file's. */
export function made(
  gates: number,
  inputs: number,
  hidden: number,
  vb: VarBuilder,
  bias: boolean,
  end: string,
): Weights {
  const init = uniform(-1 / Math.sqrt(hidden), 1 / Math.sqrt(hidden));
  return {
    ih: vb.get([gates * hidden, inputs], `weight_ih${end}`, init),
    hh: vb.get([gates * hidden, hidden], `weight_hh${end}`, init),
    bih: bias ? vb.get([gates * hidden], `bias_ih${end}`, init) : undefined,
    bhh: bias ? vb.get([gates * hidden], `bias_hh${end}`, init) : undefined,
  };
}
