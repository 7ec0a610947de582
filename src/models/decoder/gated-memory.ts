// xLSTM's matrix memory: gates open and fade exponentially what keys and values write.
import type { Init } from '../../nn/init.js';
import type { AnyLinear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { GatedMemory } from './features.js';
import { scan } from './linear-attention.js';
import type { MixerContext } from './mixers.js';
import type { Weights } from './weights.js';

/** No gate is so closed: what padding writes. */
const CLOSED = -1e30;

export class GatedMemoryMixer extends Module {
  readonly feature: GatedMemory;
  /** Queries, keys, values and the output's gate in one product. */
  readonly input: AnyLinear;
  /** What opens and what keeps, a number a head each. */
  readonly gates: AnyLinear;
  readonly normWeight: Tensor;
  readonly normBias: Tensor | undefined;
  readonly out: AnyLinear;
  constructor(w: Weights, f: GatedMemory, hidden: number, deep?: Init) {
    super();
    this.feature = f;
    const [keys, values] = [f.heads * f.keyDim, f.heads * f.valueDim];
    this.input = w.linear(
      [
        { role: 'stateQuery', outputs: keys },
        { role: 'stateKey', outputs: keys },
        { role: 'stateValue', outputs: values },
        { role: 'stateGate', outputs: values },
      ],
      hidden,
    );
    this.gates = w.linear(
      [
        { role: 'stateRate', outputs: f.heads },
        { role: 'stateStep', outputs: f.heads },
      ],
      hidden,
    );
    this.normWeight = w.normWeight('stateNorm', [values], 'f32');
    if (f.bias) this.normBias = w.tensor('stateNorm', [values], undefined, 'bias', 'f32');
    this.out = w.linear([{ role: 'stateOut', outputs: hidden }], values, deep);
  }
  forward(x: Tensor, { layer, step }: MixerContext): Tensor {
    const { heads, keyDim, valueDim, cap, eps } = this.feature;
    const [b, t] = x.shape;
    const [keys, values] = [heads * keyDim, heads * valueDim];
    const all = this.input.forward(x);
    const part = (from: number, dim: number): Tensor =>
      all
        .narrow(2, from, heads * dim)
        .reshape([b, t, heads, dim])
        .cast('f32');
    const gates = this.gates
      .forward(x)
      .cast('f32')
      .affine(1 / cap, 0)
      .tanh()
      .affine(cap, 0); // (b, t, 2 heads)
    const [opened, kept] = [gates.narrow(2, 0, heads), gates.narrow(2, heads, heads).neg().softplus().neg()];
    const text = step.padded ? step.withoutPads(gates.newZeros([b, t, 1], 'f32').affine(1, 1)) : undefined;
    const open = text ? text.ne(0).broadcastTo(opened.shape).where(opened, opened.constant(CLOSED)) : opened;
    const decay = text ? kept.mul(text) : kept;
    const q = part(0, keyDim).affine(1 / Math.sqrt(keyDim), 0);
    const k = part(keys, keyDim).mul(open.exp().unsqueeze(3));
    const v = part(2 * keys, valueDim);
    // The sum of keys is one more column of the matrix.
    const wide = v.cat([v.newZeros([b, t, heads, 1], 'f32').affine(1, 1)], 3);
    const found = step.overState(layer, [q, k, wide, decay, open], (xs, state) => this.#found(xs, state));
    const normed = found.layerNorm(undefined, undefined, { eps }).reshape([b, t, values]).mul(this.normWeight);
    const shifted = this.normBias ? normed.add(this.normBias) : normed;
    const gate = all.narrow(2, 2 * keys + values, values).sigmoid();
    return this.out.forward(shifted.cast(x.dtype).mul(gate));
  }
  /**
   * What queries find, and the state behind it: the matrix, and a row below it that begins with the logarithm of the
   * loudest write so far, by which the guard is told.
   */
  #found([q, k, v, decay, open]: readonly Tensor[], state: Tensor | undefined): { y: Tensor; state: Tensor } {
    const { keyDim, valueDim, guard } = this.feature;
    const [b, t, heads] = open.shape;
    const { y, state: matrix } = scan({ q, k, v, decay }, state?.narrow(2, 0, keyDim));
    const before = state
      ? state.narrow(2, keyDim, 1).narrow(3, 0, 1).reshape([b, 1, heads])
      : open.newZeros([b, 1, heads], 'f32');
    const sums = decay.cumsum(1);
    const writes = open.sub(sums);
    const loudest = sums.add((t === 1 ? writes : writes.cummax(1)[0]).maximum(before)); // (b, t, heads)
    const least = y.narrow(3, valueDim, 1).abs().maximum(1);
    const answers = y.narrow(3, 0, valueDim).div(least.add(loudest.exp().affine(guard, 0).unsqueeze(3)));
    const last = loudest.narrow(1, t - 1, 1).reshape([b, heads, 1, 1]);
    const row = last.cat([last.newZeros([b, heads, 1, valueDim], 'f32')], 3);
    return { y: answers, state: matrix.cat([row], 2) };
  }
}
