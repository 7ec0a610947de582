// Recurrent layers: LSTM and GRU over (batch, time, features), the input's products made for all steps at once.
import { type Shape } from '../base/shape.js';
import { stack, zeros } from '../tensor/create.js';
import type { Tensor } from '../tensor/tensor.js';
import { uniform } from './init.js';
import { Module } from './module.js';
import type { VarBuilder } from './var-builder.js';

export interface RnnOptions {
  readonly bias?: boolean;
  /** Layer number in the names of the weights. */
  readonly layer?: number;
  readonly reverse?: boolean;
}
export interface LstmState {
  readonly h: Tensor;
  readonly c: Tensor;
}
export interface GruState {
  readonly h: Tensor;
}

/** Weights as PyTorch names them: (gates * hidden, inputs) and (gates * hidden, hidden). */
abstract class Rnn<S extends GruState> extends Module {
  weightIh: Tensor;
  weightHh: Tensor;
  biasIh: Tensor | undefined;
  biasHh: Tensor | undefined;
  readonly hidden: number;
  readonly reverse: boolean;
  constructor(weightIh: Tensor, weightHh: Tensor, biasIh?: Tensor, biasHh?: Tensor, reverse = false) {
    super();
    this.weightIh = weightIh;
    this.weightHh = weightHh;
    this.biasIh = biasIh;
    this.biasHh = biasHh;
    this.hidden = weightHh.shape[1];
    this.reverse = reverse;
  }
  abstract zeroState(batch: number): S;
  /** The next state from the input's products (with bias) at one step. */
  protected abstract advance(fromInput: Tensor, state: S): S;

  protected zeros(batch: number): Tensor {
    return zeros([batch, this.hidden], { dtype: this.weightHh.dtype, device: this.weightHh.device });
  }
  #inputs(x: Tensor): Tensor {
    const y = x.matmul(this.weightIh.t());
    return this.biasIh ? y.add(this.biasIh) : y;
  }
  protected fromHidden(h: Tensor): Tensor {
    const y = h.matmul(this.weightHh.t());
    return this.biasHh ? y.add(this.biasHh) : y;
  }
  /** One step from (batch, features). */
  step(x: Tensor, state: S): S {
    return this.advance(this.#inputs(x), state);
  }
  /** All states of a sequence (batch, time, features), in time order. */
  seq(x: Tensor, initial: S = this.zeroState(x.shape[0])): S[] {
    const inputs = this.#inputs(x);
    const steps = Array.from({ length: x.shape[1] }, (_, t) => t);
    const order = this.reverse ? steps.reverse() : steps;
    const states: S[] = new Array(order.length);
    let state = initial;
    for (const t of order) states[t] = state = this.advance(inputs.narrow(1, t, 1).squeeze([1]), state);
    return states;
  }
  /** Hidden states as (batch, time, hidden). */
  statesToTensor(states: readonly S[]): Tensor {
    return stack(
      states.map((s) => s.h),
      1,
    );
  }
  forward(x: Tensor): Tensor {
    return this.statesToTensor(this.seq(x));
  }
}

export class LSTM extends Rnn<LstmState> {
  zeroState(batch: number): LstmState {
    return { h: this.zeros(batch), c: this.zeros(batch) };
  }
  protected advance(fromInput: Tensor, { h, c }: LstmState): LstmState {
    const [i, f, g, o] = fromInput.add(this.fromHidden(h)).chunk(4, -1);
    const next = f.sigmoid().mul(c).add(i.sigmoid().mul(g.tanh()));
    return { h: o.sigmoid().mul(next.tanh()), c: next };
  }
}

export class GRU extends Rnn<GruState> {
  zeroState(batch: number): GruState {
    return { h: this.zeros(batch) };
  }
  protected advance(fromInput: Tensor, { h }: GruState): GruState {
    const [ir, iz, candidate] = fromInput.chunk(3, -1);
    const [hr, hz, hn] = this.fromHidden(h).chunk(3, -1);
    const r = ir.add(hr).sigmoid();
    const z = iz.add(hz).sigmoid();
    const n = candidate.add(r.mul(hn)).tanh();
    return { h: n.add(z.mul(h.sub(n))) };
  }
}

function weights(
  gates: number,
  inputs: number,
  hidden: number,
  vb: VarBuilder,
  { bias = true, layer = 0, reverse = false }: RnnOptions,
): [Tensor, Tensor, Tensor | undefined, Tensor | undefined, boolean] {
  const init = uniform(-1 / Math.sqrt(hidden), 1 / Math.sqrt(hidden));
  const get = (shape: Shape, name: string): Tensor =>
    vb.get(shape, `${name}_l${layer}${reverse ? '_reverse' : ''}`, init);
  return [
    get([gates * hidden, inputs], 'weight_ih'),
    get([gates * hidden, hidden], 'weight_hh'),
    bias ? get([gates * hidden], 'bias_ih') : undefined,
    bias ? get([gates * hidden], 'bias_hh') : undefined,
    reverse,
  ];
}
export const lstm = (inputs: number, hidden: number, vb: VarBuilder, options: RnnOptions = {}): LSTM =>
  new LSTM(...weights(4, inputs, hidden, vb, options));
export const gru = (inputs: number, hidden: number, vb: VarBuilder, options: RnnOptions = {}): GRU =>
  new GRU(...weights(3, inputs, hidden, vb, options));
