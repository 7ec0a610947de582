// WavLM's attention: scores have an addition by distance, which all layers read from the first one's table and each
// opens by gates of its own.
import { type Embedding, embedding, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type AttendOptions, type MultiHead, multiHead, type MultiHeadNames } from '../parts.js';
import { distanceBucket } from '../seq2seq/t5.js';

/** How distances are sorted into kinds. */
export interface DistanceKinds {
  readonly buckets: number;
  readonly farthest: number;
}
/** A gate's two halves are each a sum of four. */
const SUMMED = 4;

/** Additions to the scores of (queries, keys) by the distance between them, (1, heads, t, t). */
export function distanceScores(table: Embedding, { buckets, farthest }: DistanceKinds, t: number): Tensor {
  const ids = Uint32Array.from({ length: t * t }, (_, i) =>
    distanceBucket((i % t) - Math.floor(i / t), true, buckets, farthest),
  );
  const rows = table.forward(tensor(ids, { shape: [t, t], device: table.weight.device }));
  return rows.permute([2, 0, 1]).unsqueeze(0);
}

export class GatedDistances extends Module {
  readonly inner: MultiHead;
  readonly gate: Linear;
  readonly constant: Tensor;
  /** The first layer's alone. */
  readonly table: Embedding | undefined;
  constructor(vb: VarBuilder, names: MultiHeadNames, width: number, heads: number, buckets: number | undefined) {
    super();
    this.inner = multiHead(vb, names, width, heads);
    this.gate = linear(width / heads, 2 * SUMMED, vb.pp('gru_rel_pos_linear'));
    this.constant = vb.get([1, heads, 1, 1], 'gru_rel_pos_const');
    if (buckets !== undefined) this.table = embedding(buckets, heads, vb.pp('rel_attn_embed'));
  }
  /** How far each query's additions count, (b, heads, t, 1). */
  #opened(x: Tensor): Tensor {
    const [b, t, width] = x.shape;
    const { heads } = this.inner;
    const parts = x
      .reshape([b, t, heads, width / heads])
      .transpose(1, 2)
      .contiguous();
    const gates = this.gate.forward(parts).reshape([b, heads, t, 2, SUMMED]).sum([4]).sigmoid();
    const [reset, update] = [0, 1].map((i) => gates.narrow(3, i, 1));
    return reset.mul(update.mul(this.constant).affine(1, -1)).affine(1, 2);
  }
  /** `scores` are the additions of the first layer; the mask of keys is 1 where there is one, (b, 1, 1, t). */
  forward(x: Tensor, { mask, scores }: AttendOptions & { readonly scores: Tensor }): Tensor {
    const added = this.#opened(x).mul(scores);
    const seen = mask ? added.add(mask.cast(added.dtype).affine(HIDDEN, -HIDDEN)) : added;
    return this.inner.forward(x, { mask: seen.contiguous() });
  }
}
/** What takes a key out of sight; as far as f16 goes. */
const HIDDEN = 3e4;
