// Which models a step of few launches computes: what products, attention and mixtures of experts take along, by the
// features of a model's layers and the weights it has.
import {
  choiceFits,
  decodes,
  type DecodeType,
  gpuOf,
  isGate,
  latentFits,
  type LatentSizes,
} from '../../backends/generation.js';
import { bytesOf } from '../../base/dtype.js';
import type { CausalLM } from '../../models/index.js';
import type { Attention, Features, LatentAttention, Mixer, Mlp, NormFeature } from '../../models/decoder/features.js';
import { type AttentionMixer, LatentMixer } from '../../models/decoder/mixers.js';
import { type Dense, Mixture } from '../../models/decoder/mlp.js';
import type { AnyLinear } from '../../nn/layers.js';
import { QTensor } from '../../tensor/qtensor.js';
import { Tensor } from '../../tensor/tensor.js';

const plainNorm = (f: NormFeature): boolean => f.kind === 'rms' && !f.weightless;

/** Attention that one launch does: everything but what stands here. */
export function attends(a: Attention, like: Attention): boolean {
  const { alibi, chunk, sinks, clip, temperature, gated, qkNorm, rope, valueNorm, keysOf, outNorm, experts } = a;
  const { valueDim, valueFactor, differential, weighedKeys } = a;
  const sizes = a.heads === like.heads && a.kvHeads === like.kvHeads && a.headDim === like.headDim;
  const extras = [
    ...[alibi, chunk, sinks, clip, temperature, gated, valueNorm, keysOf, outNorm, experts],
    ...[valueDim, valueFactor, differential, weighedKeys],
  ].every((x) => x === undefined || x === false);
  const norms = !qkNorm || (qkNorm.over === 'head' && !qkNorm.afterRope && plainNorm(qkNorm.norm));
  return sizes && extras && norms && rope !== undefined && a.headDim <= 256;
}
export const latentSizes = (a: LatentAttention): LatentSizes => ({
  ...{ heads: a.heads, nope: a.nopeDim, turned: a.ropeDim, rank: a.rank, values: a.valueDim },
});
/** Latent attention of the same sizes in all layers. */
const attendsLatent = (a: LatentAttention, like: LatentAttention): boolean =>
  a.rope !== undefined &&
  !a.temperature &&
  a.latentFactor === undefined &&
  !a.gated &&
  !a.sinks &&
  a.queryRank === like.queryRank &&
  JSON.stringify(latentSizes(a)) === JSON.stringify(latentSizes(like));
const mixes = (m: Mixer, like: Mixer): boolean =>
  (m.kind === 'attention' && like.kind === 'attention' && attends(m, like)) ||
  (m.kind === 'latent' && like.kind === 'latent' && attendsLatent(m, like));
/** Feed-forward branches that a few launches do. */
function feeds(m: Mlp): boolean {
  if (m.kind === 'dense')
    return (
      m.gated &&
      isGate(m.activation) &&
      [m.gateFactor, m.outFactor, m.innerNorm, m.sparse, m.clamped, m.limit].every((x) => x === undefined)
    );
  if (m.kind !== 'experts') return false;
  const {
    groups,
    sparseMixer,
    clamped,
    onInput,
    shared,
    ungated,
    latent,
    routerNorm,
    scaled,
    summed,
    cap,
    idle,
    deepRouter,
    byToken,
    limit,
  } = m;
  if ((groups && groups.count > 1) || m.score === 'root of softplus') return false;
  const ofShared = [shared?.gated, shared?.factor, shared?.limit, shared?.activation];
  const ofRouter = [routerNorm, scaled, cap, idle, deepRouter, byToken, limit];
  const extras = [sparseMixer, clamped, onInput, ungated, latent, ...ofShared, ...ofRouter, summed].every(
    (x) => x === undefined || x === false,
  );
  return extras && isGate(m.activation) && choiceFits({ experts: m.count, chosen: m.chosen });
}
function featuresFit(f: Features): boolean {
  const first = f.layers[0].mixer;
  return (
    plainNorm(f.norm) &&
    !f.parallel &&
    !f.learntPositions &&
    !f.embedNorm &&
    ![
      f.layerInputs,
      f.layerFactors,
      f.normedSums,
      f.finalNorm,
      f.embedWidth,
      f.streams,
      f.headLayer,
      f.cycles,
      f.shifted,
      f.hyper,
    ].some(Boolean) &&
    f.branchFactor === undefined &&
    f.layers.every(
      ({ mixer, mlp, ontoNormed, late, normGates }) =>
        !ontoNormed && !late && !normGates && mixes(mixer, first) && feeds(mlp),
    )
  );
}

/** Several sequences: experts are chosen for one alone, and no norm follows a branch. */
function severalFit(model: CausalLM, sequences: number): boolean {
  const linears = model.blocks.flatMap((b) => {
    const [{ qkv, out }, { gateUp, down }] = [b.mixer as AttentionMixer, b.mlp as Dense];
    return b.afterMixer || b.afterMlp ? [] : [qkv, out, gateUp, down];
  });
  const plain = model.config.layers.every(({ mixer, mlp }) => mixer.kind === 'attention' && mlp.kind === 'dense');
  const { device, dtype } = model;
  if (!decodes(device.backend, dtype)) return false;
  const steps = gpuOf(device.backend, 'decoding by graph').decodeSteps(dtype, sequences);
  const fits = ({ weight: w }: AnyLinear): boolean => w instanceof Tensor && steps.takes(w);
  return plain && linears.length > 0 && [...linears, model.head].every(fits);
}

/** Whether few launches compute what the model's own ops do, for so many sequences. */
export function fitsFewLaunches(model: CausalLM, sequences = 1): boolean {
  const f = model.config;
  if (sequences > 1 && !severalFit(model, sequences)) return false;
  // Ranks add up their branches between the launches that this step joins.
  // Its attention reads keys and values of the model's dtype.
  if (!featuresFit(f) || model.shard || model.cacheType) return false;
  const pack = 16 / bytesOf(model.dtype);
  // Blocks are multiplied with rounded activations; whoever wants exact products gets them op by op.
  const fits = (l: AnyLinear, oneType = false): boolean =>
    l.weight instanceof QTensor
      ? !l.weight.isFloats && l.product.quick === true && (!oneType || l.weight.parts.length === 1)
      : l.weight.dtype === model.dtype && l.weight.shape[1] % pack === 0;
  const norms = model.blocks.flatMap((b) => [b.beforeMixer, b.afterMixer, b.beforeMlp, b.afterMlp]);
  const dense = ({ gateUp, down }: Dense): boolean => fits(gateUp, true) && !gateUp.bias && fits(down);
  const mixture = (m: Mixture): boolean =>
    [m.gateUp, m.down].every((w) => w instanceof Tensor && w.dtype === model.dtype && w.shape[2] % pack === 0) &&
    !m.gateUpBias &&
    !m.downBias &&
    (!m.shared || (dense(m.shared) && [m.shared.gateUp, m.shared.down].every((l) => l.weight instanceof Tensor)));
  const latent = (m: LatentMixer): boolean =>
    latentFits(model.dtype as DecodeType, latentSizes(m.feature)) &&
    [m.keyUp, m.valueUp].every((w) => w.dtype === model.dtype) &&
    [m.input, m.qB, m.out].every((l) => !l || fits(l)) &&
    [m.qANorm, m.kvANorm].every((n) => !n?.bias);
  const mixer = (m: CausalLM['blocks'][number]['mixer']): boolean =>
    m instanceof LatentMixer ? latent(m) : fits((m as AttentionMixer).qkv) && fits((m as AttentionMixer).out);
  const layers = model.blocks.every((b) => {
    return mixer(b.mixer) && (b.mlp instanceof Mixture ? mixture(b.mlp) : dense(b.mlp as Dense));
  });
  const whole = [...norms, model.norm].every(
    (n) => !n || (!n.bias && (n.weight?.dtype === model.dtype || n.weight?.dtype === 'f32')),
  );
  const embedded = model.embed.weight instanceof QTensor || model.embed.weight.dtype === model.dtype;
  return layers && whole && embedded && fits(model.head, true);
}
