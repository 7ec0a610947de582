// One step of a recurrent net as a module: cells, for loops of one's own.
import { ArgumentError } from '../base/errors.js';
import { requireOptions, requireWhole } from '../ops/kernel-row.js';
import { zeros } from '../tensor/create.js';
import { Tensor } from '../tensor/tensor.js';
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
} from './rnn-kinds.js';
import type { RecurrentOptions } from './rnn.js';

/** One step of a recurrent net as a module; names are PyTorch's: weight_ih, weight_hh, bias_ih, bias_hh. */
abstract class Cell<S extends GruState> extends Module {
  /** (gates * hidden, inputs): the product of the input. */
  weightIh: Tensor;
  /** (gates * hidden, hidden): the product of the state. */
  weightHh: Tensor;
  /** (gates * hidden), added to the first product. */
  biasIh: Tensor | undefined;
  /** (gates * hidden), added to the second product. */
  biasHh: Tensor | undefined;
  readonly #kind: Kind<S>;
  constructor(kind: Kind<S>, inputs: number, hidden: number, options: Omit<RecurrentOptions, 'layers'> = {}) {
    super();
    requireOptions(new.target.name, options, ['bias', ...MAKE_OPTIONS], ['bias']);
    requireWhole(new.target.name, 'sizes', [inputs, hidden], 1);
    const w = made(kind.gates, inputs, hidden, builderOf(options), options.bias ?? true, '');
    this.#kind = kind;
    this.weightIh = w.ih;
    this.weightHh = w.hh;
    this.biasIh = w.bih;
    this.biasHh = w.bhh;
  }
  override describe(): string {
    return `${this.weightIh.shape[1]}, ${this.weightHh.shape[1]}`;
  }
  /** A state of zeros. */
  zeroState(batch: number): S {
    const { dtype, device, shape } = this.weightHh;
    const zero = (): Tensor => zeros([batch, shape[1]], { dtype, device });
    return Object.fromEntries(this.#kind.parts.map((p) => [p, zero()])) as unknown as S;
  }
  /** The next state from (batch, features) and the one before. */
  forward(x: Tensor, state: S = this.zeroState(x.shape[0])): S {
    const { parts } = this.#kind;
    if (parts.some((p) => !((state as unknown as Record<string, unknown>)?.[p] instanceof Tensor)))
      throw new ArgumentError(`${this.constructor.name}: a state is { ${parts.join(', ')} }, as forward() answers it`);
    const { input, hidden } = biases(this.#kind, { bih: this.biasIh, bhh: this.biasHh });
    const fromHidden = (h: Tensor): Tensor => product(h, this.weightHh, hidden);
    return this.#kind.advance(product(x, this.weightIh, input), fromHidden, state);
  }
}
/** Options of cells. */
export type CellOptions = MakeOptions & {
  /** Whether the products add biases; default true. */
  readonly bias?: boolean;
};
/** One step of an LSTM. */
export class LSTMCell extends Cell<LstmState> {
  constructor(inputs: number, hidden: number, options: CellOptions = {}) {
    super(LSTM_KIND, inputs, hidden, options);
  }
}
/** One step of a GRU. */
export class GRUCell extends Cell<GruState> {
  constructor(inputs: number, hidden: number, options: CellOptions = {}) {
    super(GRU_KIND, inputs, hidden, options);
  }
}
/** One step of a plain recurrent net. */
export class RNNCell extends Cell<GruState> {
  constructor(
    inputs: number,
    hidden: number,
    options: CellOptions & {
      /** Default 'tanh'. */
      readonly nonlinearity?: 'tanh' | 'relu';
    } = {},
  ) {
    requireOptions('RNNCell', options, ['nonlinearity', 'bias', ...MAKE_OPTIONS], ['bias']);
    const { nonlinearity = 'tanh', ...rest } = options;
    super(plainKind(nonlinearity), inputs, hidden, rest);
  }
}
