// Runs of tokens summed up to one key each, weighed number by number (DeepSeek V4's compressors).
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { AnyLinear } from '../../nn/layers.js';
import type { RunSums } from './features.js';
import { norm, type Norm } from './mixers.js';
import type { RopeTable } from './rope.js';
import type { Weights } from './weights.js';

/** Weighs nothing. */
const NOTHING = -1e30;
const ROLES = {
  sum: { value: 'sumValue', gate: 'sumGate', place: 'sumPlace', norm: 'sumNorm' },
  index: { value: 'indexValue', gate: 'indexGate', place: 'indexPlace', norm: 'indexNorm' },
} as const;

/** Turns the last numbers of x (b, heads, t, width), pairs of neighbours. */
export function turnEnd(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
  const width = 2 * cos.shape[cos.rank - 1];
  const still = x.shape[3] - width;
  const turned = x.narrow(3, still, width).ropeI(cos, sin);
  return still === 0 ? turned : x.narrow(3, 0, still).cat([turned], 3);
}

/** What a token brings along for its run, and what runs are summed up to. */
export class Summary extends Module {
  /** A token's vectors, and gates of their numbers. */
  readonly input: AnyLinear;
  /** What a gate's place in its run adds, (run, vectors). */
  readonly place: Tensor;
  readonly norm: Norm;
  /** How many numbers a token brings along. */
  readonly width: number;
  readonly #feature: RunSums;
  readonly #dim: number;
  constructor(w: Weights, f: RunSums, dim: number, hidden: number, eps: number, of: keyof typeof ROLES) {
    super();
    this.#feature = f;
    this.#dim = dim;
    const vectors = f.overlap ? 2 * dim : dim;
    this.width = 2 * vectors;
    const roles = ROLES[of];
    this.input = w.linear(
      [
        { role: roles.value, outputs: vectors },
        { role: roles.gate, outputs: vectors },
      ],
      hidden,
    );
    this.place = w.tensor(roles.place, [f.run, vectors]);
    this.norm = norm(w, roles.norm, { kind: 'rms', eps }, dim);
  }
  /** The sums (b, 1, runs, dim) of what tokens brought (b, tokens, width); the table is that of positions. */
  forward(brought: Tensor, { cos, sin }: RopeTable): Tensor {
    const { run, overlap } = this.#feature;
    const [b, tokens] = brought.shape;
    const runs = Math.floor(tokens / run);
    const vectors = this.width / 2;
    const all = brought.narrow(1, 0, runs * run).reshape([b, runs, run, this.width]);
    const values = all.narrow(3, 0, vectors);
    const gates = all.narrow(3, vectors, vectors).add(this.place);
    const [value, gate] = overlap ? [this.#both(values, 0), this.#both(gates, NOTHING)] : [values, gates];
    const weights = gate.cast('f32').softmax(2).cast(value.dtype);
    const sums = this.norm.forward(value.mul(weights).sum([2], false)).unsqueeze(1); // (b, 1, runs, dim)
    const atStarts = (table: Tensor): Tensor =>
      table
        .narrow(0, 0, runs * run)
        .reshape([runs, run, table.shape[1]])
        .narrow(1, 0, 1)
        .squeeze([1]);
    return turnEnd(sums, atStarts(cos), atStarts(sin));
  }
  /** First vectors of the run before, and second ones of the run itself; in front of the first there is `none`. */
  #both(x: Tensor, none: number): Tensor {
    const [b, runs, run] = x.shape;
    const first = x.narrow(3, 0, this.#dim);
    const nothing = x.newZeros([b, 1, run, this.#dim], x.dtype).affine(1, none);
    const before = runs === 1 ? nothing : nothing.cat([first.narrow(1, 0, runs - 1)], 1);
    return before.cat([x.narrow(3, this.#dim, this.#dim)], 2);
  }
}
