// ONNX normalisations and losses.
import type { Tensor } from '../../src/index.js';
import { type Node, type Handler, NotServed, has, input, int, text, ints, listAt, inFloat, unary } from './node.js';

function nll(n: Node, logs: Tensor): Tensor {
  const [target, weight] = [input(n, 1), n.inputs[2]];
  const last = logs.rank > 2 ? logs.movedim(1, logs.rank - 1) : logs;
  const ignore = n.attributes.ignore_index as number | undefined;
  return last.nll(target.cast('i64'), {
    reduction: text(n, 'reduction', 'mean') as 'mean',
    ...(weight && { weight }),
    ...(ignore !== undefined && { ignoreIndex: ignore }),
  });
}

function layerNorm(n: Node): readonly Tensor[] {
  const x = input(n, 0);
  const axis = (int(n, 'axis', -1) + x.rank) % x.rank;
  const dims = x.shape.map((_, i) => i).slice(axis);
  const eps = (n.attributes.epsilon as number | undefined) ?? 1e-5;
  const w = x.cast(x.dtype === 'f64' ? 'f64' : 'f32');
  const mean = w.mean(dims, true);
  const centred = w.sub(mean);
  const inverse = centred.sqr().mean(dims, true).add(eps).rsqrt();
  const y = centred.mul(inverse).cast(x.dtype).mul(input(n, 1));
  return [has(n, 2) ? y.add(input(n, 2)) : y, mean, inverse];
}

const perChannel = (x: Tensor, t: Tensor): Tensor => t.reshape([1, -1, ...new Array<number>(x.rank - 2).fill(1)]);

function groupNorm(n: Node, groups: number): Tensor {
  const x = input(n, 0);
  const eps = (n.attributes.epsilon as number | undefined) ?? 1e-5;
  const flat = x.reshape([x.shape[0], groups, -1]);
  const centred = flat.sub(flat.mean(2, true));
  const y = centred.mul(centred.sqr().mean(2, true).add(eps).rsqrt()).reshape(x.shape);
  return y.mul(perChannel(x, input(n, 1))).add(perChannel(x, input(n, 2)));
}

export const NORMS: Readonly<Record<string, Handler>> = {
  BatchNormalization: (n) => {
    if (int(n, 'training_mode', 0) === 1) {
      const x = input(n, 0);
      const dims = x.shape.map((_, i) => i).filter((i) => i !== 1);
      const m = (n.attributes.momentum as number | undefined) ?? 0.9;
      const [mean, variance] = [x.mean(dims), x.variance(dims, false, 0)];
      const y = x
        .sub(perChannel(x, mean))
        .mul(perChannel(x, variance.add((n.attributes.epsilon as number | undefined) ?? 1e-5).rsqrt()));
      return [
        y.mul(perChannel(x, input(n, 1))).add(perChannel(x, input(n, 2))),
        input(n, 3)
          .affine(m, 0)
          .add(mean.affine(1 - m, 0)),
        input(n, 4)
          .affine(m, 0)
          .add(variance.affine(1 - m, 0)),
      ];
    }
    const x = input(n, 0);
    const [scale, bias, mean, variance] = [1, 2, 3, 4].map((i) => perChannel(x, input(n, i)));
    return x
      .sub(mean)
      .mul(variance.add((n.attributes.epsilon as number | undefined) ?? 1e-5).rsqrt())
      .mul(scale)
      .add(bias);
  },
  LayerNormalization: (n) => layerNorm(n).slice(0, n.results),
  RMSNormalization: (n) => {
    const x = input(n, 0);
    const axis = (int(n, 'axis', -1) + x.rank) % x.rank;
    const dims = x.shape.map((_, i) => i).slice(axis);
    return inFloat(x, (w) =>
      w.mul(
        w
          .sqr()
          .mean(dims, true)
          .add((n.attributes.epsilon as number | undefined) ?? 1e-5)
          .rsqrt(),
      ),
    ).mul(input(n, 1));
  },
  InstanceNormalization: (n) => groupNorm(n, input(n, 0).shape[1]),
  GroupNormalization: (n) => groupNorm(n, int(n, 'num_groups', 1)),
  LRN: unary((x, n) => {
    const size = int(n, 'size', 1);
    const alpha = (n.attributes.alpha as number | undefined) ?? 1e-4;
    // ONNX puts the longer half behind, PyTorch before: only odd sizes are one.
    if (size % 2 === 0) throw new NotServed('an even window');
    return x.localResponseNorm(size, {
      alpha,
      beta: (n.attributes.beta as number | undefined) ?? 0.75,
      k: (n.attributes.bias as number | undefined) ?? 1,
    });
  }),
  LpNormalization: unary((x, n) => x.normalize({ p: int(n, 'p', 2), dim: int(n, 'axis', -1), eps: 1e-38 })),
  MeanVarianceNormalization: unary((x, n) => {
    const axes = ints(n, 'axes') ?? [0, 2, 3];
    return x.sub(x.mean(axes, true)).div(x.std(axes, true, 0).add(1e-9));
  }),
  Dropout: (n) => {
    const [ratio, training] = [
      listAt(n, 1)?.[0] ?? (n.attributes.ratio as number | undefined) ?? 0.5,
      listAt(n, 2)?.[0] ?? 0,
    ];
    if (training && ratio > 0) throw new NotServed('random numbers of another generator');
    return [input(n, 0), input(n, 0).onesLike().ne(0)].slice(0, n.results);
  },
  NegativeLogLikelihoodLoss: (n) => nll(n, input(n, 0)),
  SoftmaxCrossEntropyLoss: (n) => {
    const logs = input(n, 0).logSoftmax(1);
    return [nll(n, logs), logs].slice(0, n.results);
  },
};
