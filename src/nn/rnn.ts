// Recurrent layers over (batch, time, features): RNN, LSTM and GRU of several layers and both directions; the input's
// products are made for all steps at once.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, sameShape } from '../base/shape.js';
import { requireOptions, requireShare, requireWhole } from '../ops/kernel-row.js';
import { cat, stack, tensor, zeros } from '../tensor/create.js';
import { recurrentPass } from '../tensor/recurrent.js';
import { Tensor } from '../tensor/tensor.js';
import { refuseMore } from './answers.js';
import { dropout } from './dropout.js';
import { builderOf, MAKE_OPTIONS, type MakeOptions } from './fresh.js';
import { Module } from './module.js';
import {
  biases,
  GRU_KIND,
  type GruState,
  type Kind,
  LSTM_KIND,
  type LstmState,
  made,
  plainKind,
  product,
  type Weights,
} from './rnn-kinds.js';
import type { VarBuilder } from './var-builder.js';

export type { GruState, LstmState } from './rnn-kinds.js';

/** Options of the functions lstm() and gru(). */
export interface RnnOptions {
  /** Whether the products add biases; default true. */
  readonly bias?: boolean;
  /** Layer number in the names of the weights. */
  readonly layer?: number;
  /** Run from the last step to the first; default false. */
  readonly reverse?: boolean;
}
/** Options of recurrent layers that are made by their sizes. */
export interface RecurrentOptions extends MakeOptions {
  /** Layers on top of each other; default 1. */
  readonly layers?: number;
  /** Whether products have biases; default true. */
  readonly bias?: boolean;
  /** Whether a second pass runs from the end to the beginning; outputs are then twice as wide. */
  readonly bidirectional?: boolean;
  /** Probability that an element between two layers is left out while training; default 0. */
  readonly dropout?: number;
}
/** What a pass over sequences takes. */
export interface RunOptions {
  /**
   * How many steps each sequence of the batch has: steps beyond them are padding, whose output is 0 and which leaves
   * the state alone, as PyTorch's packed sequences have it.
   */
  readonly lengths?: readonly number[] | Tensor;
}
/** What a pass over a sequence gives: outputs of all steps, and the states after the last, (layers, batch, hidden). */
export interface RecurrentResult<S> {
  /** The hidden state after every step, (batch, time, hidden). */
  readonly output: Tensor;
  /** The state after the last step, to go on from. */
  readonly state: S;
}

const OPTIONS = ['layers', 'bias', 'bidirectional', 'dropout', ...MAKE_OPTIONS];

/** Weights bear PyTorch's names, weight_ih_l0 and so on: (gates * hidden, inputs) and (gates * hidden, hidden). */
abstract class Recurrent<S extends GruState> extends Module {
  /** Features of the hidden state. */
  readonly hidden: number;
  /** How many layers stand on top of each other. */
  readonly layers: number;
  /** Whether a second direction runs from the end; outputs are then twice as wide. */
  readonly bidirectional: boolean;
  /** Whether the first direction runs from the end. */
  readonly reverse: boolean;
  /** Share of a layer's output dropped before the next layer, while training. */
  readonly dropout: number;
  readonly #kind: Kind<S>;
  constructor(
    kind: Kind<S>,
    first: number | Tensor,
    second: number | Tensor,
    third?: Tensor | number | RecurrentOptions,
    biasHh?: Tensor,
    reverse = false,
  ) {
    super();
    this.#kind = kind;
    this.reverse = reverse;
    if (typeof first !== 'number') {
      [this.layers, this.bidirectional, this.dropout] = [1, false, 0];
      this.hidden = (second as Tensor).shape[1];
      this.#put(0, false, { ih: first, hh: second as Tensor, bih: third as Tensor | undefined, bhh: biasHh });
      return;
    }
    if (biasHh !== undefined || reverse)
      throw new ArgumentError(
        `${new.target.name}: after the sizes stands a number of layers or an object of options, no more; ` +
          '{ layers, bias, dropout, bidirectional } name the others',
      );
    const options = (typeof third === 'number' ? { layers: third } : (third ?? {})) as RecurrentOptions;
    requireOptions(new.target.name, options, OPTIONS, ['bias']);
    const hidden = second as number;
    this.hidden = hidden;
    this.layers = options.layers ?? 1;
    this.bidirectional = options.bidirectional ?? false;
    this.dropout = options.dropout ?? 0;
    requireShare(new.target.name, 'dropout', this.dropout);
    requireWhole(new.target.name, 'sizes and layers', [first, hidden, this.layers], 1);
    const vb = builderOf(options);
    for (let layer = 0; layer < this.layers; layer++)
      for (const back of this.bidirectional ? [false, true] : [false]) {
        const inputs = layer === 0 ? first : hidden * (this.bidirectional ? 2 : 1);
        this.#put(layer, back, made(kind.gates, inputs, hidden, vb, options.bias ?? true, suffix(layer, back)));
      }
  }
  #put(layer: number, back: boolean, w: Weights): void {
    const own = this as unknown as Record<string, Tensor>;
    const end = suffix(layer, back);
    own[`weight_ih${end}`] = w.ih;
    own[`weight_hh${end}`] = w.hh;
    if (w.bih) own[`bias_ih${end}`] = w.bih;
    if (w.bhh) own[`bias_hh${end}`] = w.bhh;
  }
  /** The weights of a layer in a direction. */
  weights(layer = 0, back = false): Weights {
    const own = this as unknown as Record<string, Tensor | undefined>;
    const end = suffix(layer, back);
    const [ih, hh] = [own[`weight_ih${end}`], own[`weight_hh${end}`]];
    if (!ih || !hh)
      throw new ArgumentError(`${this.constructor.name}: there is no layer ${layer}${back ? ' backwards' : ''}`);
    return { ih, hh, bih: own[`bias_ih${end}`], bhh: own[`bias_hh${end}`] };
  }
  override describe(): string {
    const more = [
      ...(this.layers > 1 ? [`${this.layers} layers`] : []),
      ...(this.bidirectional ? ['both directions'] : []),
    ];
    return [this.weights().ih.shape[1], this.hidden, ...more].join(', ');
  }
  /** A state with these parts. */
  #parts(of: (part: keyof S & string) => Tensor): S {
    return Object.fromEntries(this.#kind.parts.map((p) => [p, of(p)])) as unknown as S;
  }
  /** A state of zeros for one layer and direction. */
  zeroState(batch: number): S {
    const { hh } = this.weights();
    const zero = (): Tensor => zeros([batch, this.hidden], { dtype: hh.dtype, device: hh.device });
    return this.#parts(zero);
  }
  /** One step of the first layer from (batch, features). */
  step(x: Tensor, state: S): S {
    const w = this.weights();
    const { input, hidden } = biases(this.#kind, w);
    return this.#kind.advance(product(x, w.ih, input), (h) => product(h, w.hh, hidden), state);
  }
  /** All states of the first layer over a sequence (batch, time, features), in time order. */
  seq(x: Tensor, initial: S = this.zeroState(x.shape[0])): S[] {
    return this.#pass(x, initial, this.weights(), this.reverse);
  }
  /** All hidden states of a sequence, and the state after the last step: in kernels of its own where there are some. */
  #whole(x: Tensor, initial: S, w: Weights, back: boolean): RecurrentResult<S> {
    const { input, hidden } = biases(this.#kind, w);
    const inputs = product(x, w.ih, input);
    const { h, c } = initial as GruState & Partial<LstmState>;
    const passed = recurrentPass({ kind: this.#kind.name, x: inputs, weight: w.hh, bias: hidden, h, c, back });
    const at = back ? 0 : x.shape[1] - 1;
    if (passed) {
      const state = this.#parts((p) => ((passed as unknown as S)[p] as Tensor).narrow(1, at, 1).squeeze([1]));
      return { output: passed.h, state };
    }
    const states = this.#steps(inputs, initial, w.hh, hidden, back);
    return { output: this.statesToTensor(states), state: states[at] };
  }
  #pass(x: Tensor, initial: S, w: Weights, back: boolean, live?: readonly Tensor[]): S[] {
    const { input, hidden } = biases(this.#kind, w);
    return this.#steps(product(x, w.ih, input), initial, w.hh, hidden, back, live);
  }
  /** All states, step by step, from the product of the inputs. */
  #steps(
    inputs: Tensor,
    initial: S,
    weight: Tensor,
    bias: Tensor | undefined,
    back: boolean,
    live?: readonly Tensor[],
  ): S[] {
    const steps = Array.from({ length: inputs.shape[1] }, (_, t) => t);
    const states: S[] = new Array(steps.length);
    let state = initial;
    for (const t of back ? steps.reverse() : steps) {
      const now = inputs.narrow(1, t, 1).squeeze([1]);
      const next = this.#kind.advance(now, (h) => product(h, weight, bias), state);
      states[t] = state = live ? this.#parts((p) => live[t].where(next[p] as Tensor, state[p] as Tensor)) : next;
    }
    return states;
  }
  /** Hidden states as (batch, time, hidden). */
  statesToTensor(states: readonly S[]): Tensor {
    return stack(
      states.map((s) => s.h),
      1,
    );
  }
  /** Outputs of all steps, (batch, time, hidden) or twice as wide; the states too, beginning with a given one. */
  run(x: Tensor, initial?: S, options: RunOptions = {}): RecurrentResult<S> {
    requireOptions(this.constructor.name, options, ['lengths']);
    if (initial && !(initial.h instanceof Tensor))
      throw new ArgumentError(
        `${this.constructor.name}: run takes the input, a state with tensors to begin with or undefined, then options`,
      );
    if (x.rank !== 3 || x.shape[1] < 1)
      throw new ShapeError(
        `${this.constructor.name}: takes (batch, time, features) with a step at least, not ${formatShape(x.shape)}`,
      );
    const inputs = this.weights(0, false).ih.shape[1];
    if (x.shape[2] !== inputs)
      throw new ShapeError(
        `${this.constructor.name}: ${formatShape(x.shape)} has ${x.shape[2]} features, and its inputs are ${inputs}`,
      );
    if (initial) this.#checkState(initial, x.shape[0]);
    const live = options.lengths && liveSteps(this.constructor.name, x, options.lengths);
    const directions = this.bidirectional ? [false, true] : [this.reverse];
    const last: S[] = [];
    let y = x;
    for (let layer = 0; layer < this.layers; layer++) {
      const outputs = directions.map((back, d) => {
        const at = layer * directions.length + d;
        const begin = initial ? this.#partOf(initial, at) : this.zeroState(x.shape[0]);
        const weights = this.weights(layer, this.bidirectional && back);
        if (!live) {
          const { output, state } = this.#whole(y, begin, weights, back);
          last.push(state);
          return output;
        }
        const states = this.#pass(y, begin, weights, back, live);
        last.push(states[back ? 0 : states.length - 1]);
        const all = this.statesToTensor(states);
        return stack(live, 1).where(all, all.constant(0));
      });
      y = outputs.length > 1 ? cat(outputs, -1) : outputs[0];
      if (this.training && layer < this.layers - 1) y = dropout(y, this.dropout);
    }
    return { output: y, state: this.#parts((p) => stack(last.map((s) => s[p] as Tensor))) };
  }
  /** One vector for each layer, direction and sequence, in each of the parts. */
  #checkState(state: S, batch: number): void {
    const want = [this.layers * (this.bidirectional ? 2 : 1), batch, this.hidden];
    for (const part of this.#kind.parts) {
      const t = (state as unknown as Record<string, unknown>)[part];
      if (!(t instanceof Tensor))
        throw new ArgumentError(
          `${this.constructor.name}: a state is { ${this.#kind.parts.join(', ')} }, tensors as run() answers them; ` +
            `${part} is ${t === null ? 'null' : typeof t}`,
        );
      if (!sameShape(t.shape, want))
        throw new ShapeError(
          `${this.constructor.name}: ${part} of the state is ${formatShape(t.shape)}, not ${formatShape(want)}: ` +
            '(layers and directions, batch, hidden)',
        );
    }
  }
  #partOf(state: S, at: number): S {
    return this.#parts((p) => (state[p] as Tensor).narrow(0, at, 1).squeeze([0]));
  }
  /** Outputs of all steps from states of zeros. */
  forward(x: Tensor): Tensor {
    return this.run(x).output;
  }
}
/** For each step a truth value of every sequence (batch, 1): whether it is that long. */
function liveSteps(name: string, x: Tensor, lengths: readonly number[] | Tensor): Tensor[] {
  const list = lengths instanceof Tensor ? lengths.cast('f64').toArray<number[]>() : lengths;
  const [batch, time] = x.shape;
  if (list.length !== batch || list.some((n) => !Number.isInteger(n) || n < 1 || n > time))
    throw new ArgumentError(`${name}: lengths [${list.join(', ')}] are not ${batch} whole numbers from 1 to ${time}`);
  return Array.from({ length: time }, (_, t) =>
    tensor(
      list.map((n) => n > t),
      { device: x.device },
    ).unsqueeze(1),
  );
}
const suffix = (layer: number, back: boolean): string => `_l${layer}${back ? '_reverse' : ''}`;

/** Long short-term memory; gates stand in PyTorch's order: input, forget, cell, output. */
export class LSTM extends Recurrent<LstmState> {
  constructor(inputs: number, hidden: number, options?: number | RecurrentOptions);
  constructor(weightIh: Tensor, weightHh: Tensor, biasIh?: Tensor, biasHh?: Tensor, reverse?: boolean);
  constructor(
    a: number | Tensor,
    b: number | Tensor,
    c?: Tensor | number | RecurrentOptions,
    biasHh?: Tensor,
    reverse?: boolean,
  ) {
    super(LSTM_KIND, a, b, c, biasHh, reverse);
  }
}
/** Gated recurrent units; gates stand in PyTorch's order: reset, update, new. */
export class GRU extends Recurrent<GruState> {
  constructor(inputs: number, hidden: number, options?: number | RecurrentOptions);
  constructor(weightIh: Tensor, weightHh: Tensor, biasIh?: Tensor, biasHh?: Tensor, reverse?: boolean);
  constructor(
    a: number | Tensor,
    b: number | Tensor,
    c?: Tensor | number | RecurrentOptions,
    biasHh?: Tensor,
    reverse?: boolean,
  ) {
    super(GRU_KIND, a, b, c, biasHh, reverse);
  }
}
/** The plain recurrent net: tanh (or relu) of products of input and state. */
export class RNN extends Recurrent<GruState> {
  constructor(
    inputs: number,
    hidden: number,
    options:
      | number
      | (RecurrentOptions & {
          /** Default 'tanh'. */
          readonly nonlinearity?: 'tanh' | 'relu';
        }) = {},
    ...more: never[]
  ) {
    refuseMore('RNN', more, 'two sizes and a number of layers or an object of options');
    const given = typeof options === 'number' ? { layers: options } : options;
    requireOptions('RNN', given, [...OPTIONS, 'nonlinearity'], ['bias']);
    const { nonlinearity = 'tanh', ...rest } = given;
    super(plainKind(nonlinearity), inputs, hidden, rest);
  }
}

const fromBuilder = (
  gates: number,
  inputs: number,
  hidden: number,
  vb: VarBuilder,
  { bias = true, layer = 0, reverse = false }: RnnOptions,
): [Tensor, Tensor, Tensor | undefined, Tensor | undefined, boolean] => {
  const w = made(gates, inputs, hidden, vb, bias, suffix(layer, reverse));
  return [w.ih, w.hh, w.bih, w.bhh, reverse];
};
/** One layer of an LSTM of a builder, in Candle's order of arguments. */
export const lstm = (inputs: number, hidden: number, vb: VarBuilder, options: RnnOptions = {}): LSTM =>
  new LSTM(...fromBuilder(4, inputs, hidden, vb, options));
/** One layer of a GRU of a builder, in Candle's order of arguments. */
export const gru = (inputs: number, hidden: number, vb: VarBuilder, options: RnnOptions = {}): GRU =>
  new GRU(...fromBuilder(3, inputs, hidden, vb, options));
