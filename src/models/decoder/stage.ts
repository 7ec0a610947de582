// A decoder whose layers stand on several ranks one after the other: each runs its own and hands the result on. The
// ends (embedding, final norm, head) are held by all, so that every rank answers logits.
import type { DType } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import type { Device } from '../../tensor/device.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Features } from './features.js';

/** What a model asks of the ranks that its layers are divided among; a Group of wick/distributed has it. */
export interface StageGroup {
  /** This rank's number, from 0; rank 0 has the first layers. */
  readonly rank: number;
  /** How many ranks there are. */
  readonly size: number;
  /** Sends x to a rank. */
  send(x: Tensor, to: number): void;
  /** Waits for a tensor of this shape and dtype from a rank. */
  recv(shape: readonly number[], dtype: DType, from: number, device?: Device): Tensor;
  /** The root's x on all ranks. */
  broadcast(x: Tensor, root: number): Tensor;
}

/** Which layers of a model a rank holds, where layers are divided among ranks. */
export class Stage {
  /** The ranks that share the model. */
  readonly group: StageGroup;
  /** This rank's layers: the first, and the one after the last. */
  readonly first: number;
  /** The layer behind the last of this rank's. */
  readonly end: number;

  constructor(group: StageGroup, features: Features) {
    const count = features.layers.length;
    if (count < group.size)
      throw new UnsupportedError(
        `${features.family}: ${count} layers cannot be divided among ${group.size} stages: each needs a layer at least`,
      );
    const { layerInputs, layers, streams, cycles, hyper } = features;
    const lent = layers.some(({ mixer: m }) => m.kind === 'attention' && m.keysOf !== undefined);
    const shares = layers.some(
      ({ mixer: m, mlp, late }) => m.kind === 'shared' || late || (mlp.kind === 'experts' && mlp.deepRouter?.takes),
    );
    if (layerInputs || streams || cycles || hyper || lent || shares)
      throw new UnsupportedError(
        `${features.family}: its layers share ${lent ? 'keys' : 'what tokens bring along'}, which stages cannot`,
      );
    this.group = group;
    this.first = Math.floor((count * group.rank) / group.size);
    this.end = Math.floor((count * (group.rank + 1)) / group.size);
  }
  /** Whether a layer is this rank's. */
  holds(layer: number): boolean {
    return layer >= this.first && layer < this.end;
  }
  /** x through the layers of all stages; `run` are this rank's. Every rank gets the last one's result. */
  through(x: Tensor, run: (x: Tensor) => Tensor): Tensor {
    const { rank, size } = this.group;
    const given = rank === 0 ? x : this.group.recv(x.shape, x.dtype, rank - 1, x.device);
    const made = run(given);
    if (rank + 1 < size) this.group.send(made, rank + 1);
    return this.group.broadcast(made, size - 1);
  }
}
