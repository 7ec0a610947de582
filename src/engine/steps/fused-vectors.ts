// The vectors of a step of few launches: each has one place for as long as the recorded step lives.
import type { DecodeSteps } from '../../backends/gpu/decode.js';
import { LATENT_PARTS } from '../../backends/generation.js';
import type { CausalLM } from '../../models/index.js';
import type { Attention, Features, LatentAttention } from '../../models/decoder/features.js';
import { zeros } from '../../tensor/create.js';
import { keep } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';

export interface StepVectors {
  readonly x: Tensor;
  readonly qkv: Tensor;
  readonly y: Tensor;
  readonly h: Tensor;
  /** A branch that has a norm after it. */
  readonly branch: Tensor;
  readonly gated: Tensor;
  /** A router's logits. */
  readonly scores: Tensor;
  /** Attention's parts and their count. */
  readonly partial: Tensor;
  readonly arrived: Tensor;
  /** Of latent attention: queries in the latents' space, queries of narrow ones, scores of parts. */
  readonly lifted: Tensor;
  readonly queries: Tensor;
  readonly tops: Tensor;
  readonly sums: Tensor;
}

/** Room for so many tokens of each sequence at most. */
export function vectorsOf(model: CausalLM, steps: DecodeSteps, capacity: number): StepVectors {
  const { hiddenSize, layers } = model.config;
  const m = layers[0].mixer as Attention | LatentAttention;
  const { heads } = m;
  const size =
    m.kind === 'latent'
      ? {
          ...{ qkv: m.rank + m.ropeDim + (m.queryRank ?? heads * (m.nopeDim + m.ropeDim)), out: m.valueDim },
          ...{ lifted: heads * (m.rank + m.ropeDim), queries: heads * (m.nopeDim + m.ropeDim) },
          partial: LATENT_PARTS * heads * m.rank,
        }
      : {
          ...{ qkv: (heads + 2 * m.kvHeads) * m.headDim, out: m.headDim, lifted: 1, queries: 1 },
          // Keys in pages are read by more blocks than others, or as many.
          partial: steps.partialSize({ heads, kvHeads: m.kvHeads, dim: m.headDim, room: capacity, paged: true }),
        };
  const inner = ({ mlp: m }: Features['layers'][number]): number =>
    m.kind === 'experts' ? m.chosen * m.inner + (m.shared?.inner ?? 0) : m.kind === 'dense' ? m.inner : 0;
  const experts = ({ mlp: m }: Features['layers'][number]): number => (m.kind === 'experts' ? m.count : 1);
  const room = (shape: number[], dtype = model.dtype): Tensor => keep(Tensor.empty(shape, dtype, model.device));
  const n = steps.sequences;
  return {
    x: room([n * hiddenSize]),
    h: room([n * hiddenSize]),
    branch: room([hiddenSize]),
    qkv: room([n * size.qkv]),
    y: room([n, heads, 1, size.out]),
    lifted: room([size.lifted]),
    queries: room([size.queries]),
    tops: room([LATENT_PARTS * heads], 'f32'),
    sums: room([LATENT_PARTS * heads], 'f32'),
    gated: room([n * Math.max(...layers.map(inner))]),
    scores: room([Math.max(...layers.map(experts))], 'f32'),
    partial: room([size.partial], 'f32'),
    arrived: keep(zeros([n * heads], { dtype: 'i32', device: model.device })),
  };
}
