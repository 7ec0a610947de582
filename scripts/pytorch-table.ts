// PyTorch's names beside ours, for docs/pytorch-names.md; a test holds every answer against what there is.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import * as functions from '../src/index.js';
import * as nn from '../src/nn/index.js';
import { Tensor } from '../src/tensor/tensor.js';
import { NO_NAMES, OTHER_NAMES } from './pytorch-others.js';

/** PyTorch's name, ours (x is the tensor; a bare call is a function of the package), and what differs. */
export type NamePair = readonly [torch: string, ours: string | undefined, differs?: string];

export const NAME_GROUPS: Readonly<Record<string, readonly NamePair[]>> = {
  Elementwise: [
    ['abs, neg, sign', 'x.abs() x.neg() x.sign()'],
    [
      'add, sub, mul, div',
      'x.add(y) x.sub(y) x.mul(y) x.div(y)',
      'dtypes must be equal; numbers take that of the tensor; integers divide to integers, toward zero: cast for ' +
        'fractions',
    ],
    ['floor_divide', 'x.floorDivide(y)'],
    ['remainder, %', 'x.remainder(y)', 'an integer by zero is the integer itself, no error'],
    ['fmod', 'x.fmod(y)'],
    ['pow', 'x.pow(y) x.powf(2)', 'floats only: integers are cast first'],
    ['square, sqrt, rsqrt, reciprocal', 'x.sqr() x.sqrt() x.rsqrt() x.recip()'],
    ['exp, exp2, expm1', 'x.exp() x.exp2() x.expm1()'],
    ['log, log2, log10, log1p', 'x.log() x.log2() x.log10() x.log1p()'],
    ['logaddexp', 'x.logAddExp(y)'],
    ['sin, cos, tan', 'x.sin() x.cos() x.tan()'],
    ['asin, acos, atan', 'x.asin() x.acos() x.atan()'],
    ['atan2', 'x.atan2(y)'],
    ['sinh, cosh, tanh', 'x.sinh() x.cosh() x.tanh()'],
    ['asinh, acosh, atanh', 'x.asinh() x.acosh() x.atanh()'],
    ['hypot', 'x.hypot(y)'],
    ['erf, erfinv', 'x.erf() x.erfinv()'],
    ['lgamma, digamma, polygamma', 'x.lgamma() x.digamma() x.polygamma(1)'],
    ['i0, special.i1', 'x.i0() x.i1()'],
    ['special.ndtr', 'x.normcdf()'],
    [
      'floor, ceil, trunc, round',
      'x.floor() x.ceil() x.trunc() x.roundEven() x.roundTo(2)',
      '`round` goes away from zero at halves',
    ],
    ['clamp', 'x.clamp(0, 1) x.clamp(0)', 'bounds are numbers; for tensors maximum and minimum'],
    ['maximum, minimum', 'x.maximum(y) x.minimum(y)', "NaN is passed over in f32 and f64, Candle's rule"],
    ['lerp', 'x.lerp(y, 0.5)'],
    ['where', 'mask.where(x, y)', 'the condition is called: x.where(mask, y) of PyTorch is mask.where(x, y)'],
    ['nan_to_num', 'x.nanToNum()'],
    ['isnan, isinf, isfinite', 'x.isNan() x.isInf() x.isFinite()'],
    ['isclose, allclose, equal', 'x.isClose(y) x.allclose(y) x.equal(y)'],
    ['eq, ne, lt, le, gt, ge', 'x.eq(y) x.ne(y) x.lt(y) x.le(y) x.gt(y) x.ge(y)'],
    [
      'logical_and, logical_or, logical_xor, logical_not',
      'x.logicalAnd(y) x.logicalOr(y) x.logicalXor(y) x.logicalNot()',
    ],
    [
      'bitwise_and, bitwise_or, bitwise_xor, bitwise_not',
      'x.bitwiseAnd(y) x.bitwiseOr(y) x.bitwiseXor(y) x.bitwiseNot()',
    ],
    ['bitwise_left_shift, bitwise_right_shift', 'x.leftShift(2) x.rightShift(2)'],
    [
      'relu, relu6, leaky_relu, elu, selu, prelu',
      'x.relu() x.relu6() x.leakyRelu() x.elu() x.selu() x.prelu(slope)',
      "`relu` makes 0 of NaN in f32 and f64, Candle's rule; the others keep it",
    ],
    [
      'gelu, silu, mish, softplus, softsign',
      'x.geluErf() x.gelu() x.silu() x.mish() x.softplus() x.softsign()',
      '`gelu` is the one by tanh',
    ],
    ['sigmoid, hardsigmoid, hardswish', 'x.sigmoid() x.hardSigmoid() x.hardSwish()'],
    ['hardtanh, logsigmoid, glu', 'x.hardtanh() x.logSigmoid() x.glu()'],
    ['xlogy, xlog1py', 'x.xlogy(y) x.xlog1py(y)'],
    ['gcd, lcm', 'x.gcd(y) x.lcm(y)'],
  ],
  'Sums, order, counts': [
    ['sum, mean, prod', 'x.sum(1) x.mean(1) x.prod(1)'],
    ['nansum, nanmean', 'x.nansum(1) x.nanmean(1)'],
    ['amax, amin, max, min', 'x.max(1) x.min(1)', 'values alone; NaN is passed over in f32 and f64'],
    ['argmax, argmin', 'x.argmax(1) x.argmin(1)', 'u32; NaN is passed over'],
    [
      'var, std',
      'x.variance(1) x.std(1)',
      'after the dimension stand keepdim and the correction: `x.std(1, false, 0)`',
    ],
    ['norm', 'x.norm(2, 1)'],
    ['logsumexp', 'x.logSumExp(1)'],
    ['any, all', 'x.any(1) x.all(1)'],
    ['cumsum, cumprod', 'x.cumsum(0) x.cumprod(0)'],
    ['cummax, cummin, logcumsumexp', 'x.cummax(0) x.cummin(0) x.logcumsumexp(0)'],
    ['sort, argsort, topk', 'x.sort(0) x.argsort(0) x.topk(3)'],
    ['median, quantile, mode', 'x.median(0) x.quantile(0.5, 0) x.mode(0)', 'median always answers [values, indices]'],
    ['unique, unique_consecutive', 'x.unique() x.uniqueConsecutive({ dim: 0 })', 'always with inverse and counts'],
    ['histc', 'x.histc(10)'],
    ['searchsorted, bucketize', 'sorted.searchsorted(values) x.bucketize(boundaries)'],
  ],
  Shapes: [
    ['reshape, view, flatten', 'x.reshape([2, -1]) x.viewAs([2, 3]) x.flatten()'],
    ['squeeze, unsqueeze', 'x.squeeze(0) x.unsqueeze(0)'],
    ['permute, transpose, t, movedim', 'x.permute([1, 0]) x.transpose(0, 1) x.t() x.movedim(0, 1)'],
    ['expand, broadcast_to', 'x.broadcastTo([3, 4])'],
    ['unflatten, atleast_2d', 'x.unflatten(1, [2, -1]) x.atLeast(2)'],
    ['repeat, repeat_interleave', 'x.repeat([2, 1]) x.repeatInterleave(2, 0)'],
    ['cat, stack, vstack, hstack, dstack', 'cat([x, y], 0) stack([x, y], 0) x.vstack([y]) x.hstack([y]) x.dstack([y])'],
    ['split, chunk, unbind, tensor_split', 'x.split(2, 0) x.chunk(3, 0) x.unbind(0) x.tensorSplit(3)'],
    ['column_stack, block_diag', 'x.columnStack([y]) blockDiag([x, y])'],
    ['combinations', 'x.combinations(2)'],
    ['iteration', 'x[Symbol.iterator]()', 'for (const row of x)'],
    ['flip, roll, rot90', 'x.flip(0) x.roll(1, 0) x.rot90(1)'],
    ['tril, triu', 'x.tril(1) x.triu(-1)'],
    [
      'diag, diagonal, diag_embed, trace',
      'x.diag(1) x.diagonal(1) x.diagEmbed() x.trace()',
      'diagonal is of the last two dimensions unless said',
    ],
    ['meshgrid, cartesian_prod', 'meshgrid([a, b]) a.cartesianProd([b])'],
    ['as_strided', 'x.asStrided([2, 2], [1, 2])', 'a copy, of elements in row-major order; withLayout makes views'],
    ['Tensor.unfold', 'x.unfold(0, 3, 1)'],
    [
      'x[1:5:2], x[::-1], x[..., None]',
      "x.at([1, 5, 2]) x.at([undefined, undefined, -1]) x.at('...', null)",
      'a negative step makes a copy',
    ],
    ['x[rows, columns], x[mask]', 'x.at(rows, columns) x.at(mask)', 'index tensors belong together, as in PyTorch'],
    ['Tensor.view(dtype)', "x.bitcast('i32')"],
    ['F.pad', 'x.pad([1, 1]) x.padMode([1, 1], mode)'],
  ],
  Places: [
    ['gather, scatter, scatter_add', 'x.gather(0, ids) x.scatter(0, ids, src) x.scatterAdd(0, ids, src)'],
    [
      'scatter_, index_put_, masked_fill_ (in place)',
      'x.assign(x.scatter(0, ids, src))',
      'assign writes into memory that is there; it takes part in no graph',
    ],
    ['scatter_reduce', "x.scatterReduce(0, ids, src, 'amax')"],
    ['index_select, index_add, index_put', 'x.indexSelect(0, ids) x.indexAdd(0, ids, src) x.indexPut([ids], values)'],
    ['take, take_along_dim, put_along_axis', 'x.take(ids) x.takeAlongDim(ids, 0) x.putAlongDim(ids, values, 0)'],
    [
      'masked_select, masked_fill, masked_scatter',
      'x.maskedSelect(mask) x.maskedFill(mask, 0) x.maskedScatter(mask, source)',
    ],
    ['nonzero', 'x.nonzero()'],
    [
      'slice_scatter, select_scatter, diagonal_scatter',
      'x.sliceScatter(0, 1, src) x.selectScatter(src, 0, 1) x.diagonalScatter(src)',
    ],
    ['index_copy, put', 'x.indexCopy(0, ids, src) x.put(ids, values)'],
    ['F.embedding, F.one_hot', 'table.embedding(ids) ids.oneHot(10)'],
  ],
  'Made and drawn': [
    [
      'zeros, ones, full, arange, linspace, eye',
      'zeros([2]) ones([2]) full([2], 3) arange(5) linspace(0, 1, 5) eye(3)',
    ],
    ['logspace, tril_indices, triu_indices', 'logspace(0, 2, 5) trilIndices(3) triuIndices(3)'],
    ['zeros_like, ones_like, new_tensor', 'x.zerosLike() x.onesLike() x.newTensor([1, 2])'],
    ['rand, randn, randint, randperm', 'rand([2]) randn([2]) randint(0, 9, [2]) randperm(5)'],
    ['rand_like, randn_like', 'x.randLike() x.randnLike()'],
    ['bernoulli, multinomial', 'p.bernoulli() p.multinomial(3)'],
    ['manual_seed, Generator', 'manualSeed(1)'],
  ],
  'Products and linear algebra': [
    ['matmul, bmm, dot, outer', 'x.matmul(y) x.dot(y) x.outer(y)'],
    ['einsum', "einsum('ij,jk->ik', x, y)"],
    [
      'linalg.solve, linalg.inv',
      'a.solve(b) a.inv()',
      'on a GPU by kernels to 1024 rows, beyond by its library, else on the host',
    ],
    ['linalg.det, linalg.slogdet', 'a.det() a.slogdet()'],
    [
      'linalg.cholesky, linalg.eigh',
      'a.cholesky() a.eigh()',
      'as solve; of the symmetric part (A + A^T) / 2, where PyTorch reads the lower triangle',
    ],
    ['linalg.qr, linalg.svd', 'a.qr() a.svd()', 'as solve; reduced'],
    ['linalg.lstsq', 'a.lstsq(b)', 'the solution alone'],
    ['linalg.pinv, linalg.matrix_rank, logdet', 'a.pinv() a.matrixRank() a.logdet()'],
    ['linalg.matrix_exp', 'a.matrixExp()'],
    ['linalg.solve_triangular', 'a.solveTriangular(b)', '{ upper, transpose, unit }; the lower triangle unless said'],
    ['linalg.lu', 'a.lu()', 'with pivots'],
    ['linalg.lu_factor, linalg.lu_solve', 'a.luFactor() lu.luSolve(pivots, b)'],
    ['cholesky_solve', 'b.choleskySolve(l)'],
    ['linalg.eigvalsh, linalg.svdvals', 'a.eigvalsh() a.svdvals()'],
    ['linalg.matrix_norm, linalg.cond', "a.matrixNorm('fro') a.cond()"],
    ['linalg.multi_dot', 'a.multiDot([b, c])'],
    ['linalg.vecdot', 'x.vecdot(y)'],
  ],
  'Pictures and signals': [
    ['F.conv1d, conv2d, conv3d', 'x.conv1d(w) x.conv2d(w) x.conv3d(w)'],
    ['F.conv_transpose1d, 2d, 3d', 'x.convTranspose1d(w) x.convTranspose2d(w) x.convTranspose3d(w)'],
    [
      'F.max_pool1d, 2d, 3d',
      'x.maxPool1d(2) x.maxPool2d(2) x.maxPool3d(2)',
      'indices are answered by maxPool2dWithIndices',
    ],
    ['F.max_pool2d(return_indices=True), F.max_unpool2d', 'x.maxPool2dWithIndices(2) y.maxUnpool2d(indices, 2)'],
    ['F.avg_pool1d, 2d, 3d', 'x.avgPool1d(2) x.avgPool2d(2) x.avgPool3d(2)'],
    ['F.adaptive_max_pool1d, 2d, 3d', 'x.adaptiveMaxPool1d(2) x.adaptiveMaxPool2d(2) x.adaptiveMaxPool3d(2)'],
    ['F.adaptive_avg_pool1d, 2d, 3d', 'x.adaptiveAvgPool1d(2) x.adaptiveAvgPool2d(2) x.adaptiveAvgPool3d(2)'],
    ['F.unfold, F.fold', 'x.unfold2d(3) x.fold([8, 8], 3)'],
    ['F.interpolate', "x.interpolate({ size: [8, 8], mode: 'bicubic', antialias: true })"],
    ['F.grid_sample, F.affine_grid', 'x.gridSample(grid) theta.affineGrid([1, 1, 4, 4])'],
    ['F.pixel_shuffle, F.pixel_unshuffle', 'x.pixelShuffle(2) x.pixelUnshuffle(2)'],
    [
      'fft.fft, ifft, rfft, irfft',
      'x.fft(im) x.ifft(im) x.rfft() x.irfft(im)',
      'pairs of real tensors for complex ones',
    ],
    ['stft, istft', 'x.stft(400) istft(re, im, 400)', 'a pair of real tensors'],
    ['hann_window, hamming_window, blackman_window', 'hannWindow(400) hammingWindow(400) blackmanWindow(400)'],
    ['bartlett_window, kaiser_window', 'bartlettWindow(400) kaiserWindow(400)'],
    ['fft.fftfreq, rfftfreq', 'fftfreq(8) rfftfreq(8)'],
  ],
  'Functions of functions': [
    [
      'func.vmap',
      'vmap(f)',
      'in_dims, out_dims and randomness are { inDims, outDims, randomness }; an op without a rule is called for each ' +
        "example, or refused with { fallback: 'error' }",
    ],
    ['func.grad, func.grad_and_value', 'grad(f) gradAndValue(f)', '{ argnums }; arguments may be lists or records'],
    ['func.vjp, func.jvp', 'vjp(f, x) jvp(f, [x], [v])'],
    ['func.jacrev, func.hessian', 'jacobian(f, x) hessian(f, x)', 'called with x at once'],
    ['autograd.functional.jacobian, hessian', 'jacobian(f, x) hessian(f, x)', 'of one tensor'],
    [
      'autograd.Function',
      'customGrad(f)',
      'f answers { value, grad }: no class, no context; gradients of gradients work',
    ],
    ['autograd.grad', 'gradOf(y, [x])'],
  ],
  'Not here': [
    ['complex dtypes', undefined, 'transforms take and give pairs of real tensors'],
    [
      'implicit dtype promotion',
      undefined,
      'operands of two dtypes are refused with a sentence; cast one (docs/decisions)',
    ],
  ],
};

const count = (pairs: readonly NamePair[]): number => pairs.reduce((n, [torch]) => n + torch.split(', ').length, 0);

/** Whether a public name of PyTorch is in the tables above. */
const listed = new Set(
  Object.values(NAME_GROUPS).flatMap((pairs) =>
    pairs.flatMap(([torch, ours]) =>
      ours ? torch.split(', ').map((n) => n.replace(/^(?:F|linalg|special|fft|Tensor)\./, '')) : [],
    ),
  ),
);
/** What there is under PyTorch's own name, but for case and underscores. */
const ownNames = new Set(
  [Tensor.prototype, functions, nn, nn.losses]
    .flatMap((o) => Object.entries(Object.getOwnPropertyDescriptors(o)))
    .filter(([, { get, set }]) => get === undefined || get !== set) // else a name that is only told what it is here
    .map(([name]) => name.toLowerCase()),
);

/** The sentence that says why a name is not here; undefined where it has an answer. */
export function whyNot(name: string): string | undefined {
  if (listed.has(name) || ownNames.has(name.replaceAll('_', '').toLowerCase()) || name in OTHER_NAMES) return undefined;
  return NO_NAMES.find(([pattern]) => pattern.test(name))?.[1] ?? 'no answer';
}

const AREAS: Readonly<Record<string, string>> = {
  tensor: 'methods of Tensor',
  torch: 'functions of torch',
  F: 'nn.functional',
  nn: 'classes of nn',
  optim: 'optim',
  sched: 'optim.lr_scheduler',
  linalg: 'linalg',
  fft: 'fft',
  special: 'special',
};
/** PyTorch's public names by area; nothing where the list is not part of the installation. */
export function torchNames(): Readonly<Record<string, readonly string[]>> {
  const file = join(packageRoot, 'test/golden/torch-names.json');
  return (JSON.parse(readFileSync(file, 'utf8')) as { names: Record<string, string[]> }).names;
}

function allNames(): string[] {
  const areas = Object.entries(torchNames());
  const reasons = new Map<string, string[]>();
  const rows = areas.map(([area, names]) => {
    const without = names.filter((n) => whyNot(n) !== undefined);
    for (const n of without) reasons.set(whyNot(n)!, [...(reasons.get(whyNot(n)!) ?? []), n]);
    return `| ${AREAS[area]} | ${names.length} | ${names.length - without.length} |`;
  });
  const shown = (names: string[]): string => {
    const unique = [...new Set(names)];
    return `${unique.slice(0, 8).join(', ')}${unique.length > 8 ? `, ... (${unique.length})` : ''}`;
  };
  return [
    '## All public names of PyTorch 2.13',
    '',
    '| area | names | with an answer |',
    '|---|---|---|',
    ...rows,
    '',
    'The others, each with its reason:',
    '',
    '| why not | names |',
    '|---|---|',
    ...[...reasons].map(([why, names]) => `| ${why} | ${shown(names)} |`),
    '',
    'The same name, another meaning:',
    '',
    '| PyTorch | wick |',
    '|---|---|',
    ...Object.entries(DIFFERENT).map(([theirs, differs]) => `| ${theirs} | ${differs} |`),
    '',
    'Other names for what is here:',
    '',
    '| PyTorch | wick |',
    '|---|---|',
    ...Object.entries(OTHER_NAMES).map(([theirs, ours]) => `| ${theirs} | \`${ours}\` |`),
    '',
  ];
}

/** What a program taken over line by line would not notice. */
const DIFFERENT: Readonly<Record<string, string>> = {
  'cross_entropy, nll_loss':
    'classes are the last dimension: logits (N, d, C) with targets (N, d), where PyTorch has (N, C, d); ' +
    '`x.transpose(1, -1)` turns one into the other',
  RMSNorm: "eps is 1e-5 unless said; PyTorch's default is the dtype's epsilon",
  softplus: 'takes no beta: `new Softplus(beta)` of wick/nn, or `x.mul(beta).softplus().div(beta)`',
  ctc_loss: 'the gradient is that of the log-probabilities given; PyTorch gives the one through log_softmax',
  'relu, max, min, amax, argmax, max pools of NaN':
    'NaN is passed over in f32 and f64, and relu of NaN is 0, by the rule of Candle',
  'sum(dim=[])': 'the tensor as it is: no dimension is summed over, where PyTorch sums over all',
  'masked_select(mask), x[mask]':
    '`x.maskedSelect(mask)` broadcasts and answers a vector, `x.at(mask)` takes rows; as in PyTorch',
  'optimizers of f16 parameters':
    "steps and averages are f32, where PyTorch's Adam gives infinities and NaN for small gradients",
  'eta_min of parameter groups':
    'groups keep their ratio to the rate of the optimizer, also at the end of a cosine, in a cycle of OneCycleLR and ' +
    'of CyclicLR; PyTorch takes the same number for every group',
  'max(dim), min(dim)': 'values alone; elements that tie share the gradient, as of amax, where PyTorch gives it to one',
  'values, indices = x.max(1); out, state = lstm(x)':
    '`const [a, b] = x.max(1)` takes two rows of the maxima, since a tensor is taken apart along its first dimension; ' +
    'places are `x.argmax(1)`, states `lstm.run(x)`',
  'xlogy(0, 0), xlog1py(0, -1)': 'the gradient by y is 0, where PyTorch has NaN; that by x is 0 in both',
  'nn.Upsample':
    '`interpolate` with its options by name, `new Upsample({ scale: 2 })`; a fraction as scale is the step',
  'x.sum(0), x.softmax(-1) of a single number':
    'refused: a tensor without dimensions has none to name; `x.sum()`, or `x.unsqueeze(0)` first',
  'expand(-1, 4)': 'every size is given: `x.broadcastTo([x.dim(0), 4])`',
  'int(), byte() of numbers out of range': 'casts saturate, and NaN is 0; PyTorch leaves it to the processor',
  'x // 0, x / 0 of integers': '0, on every device; PyTorch raises an error on the CPU',
  'multinomial without replacement': 'more draws than weights above 0 are refused; PyTorch draws those of weight 0',
  'two schedulers of one optimizer':
    'refused when the first one steps after the other: SequentialLR and ChainedScheduler join them',
  'OneCycleLR, CyclicLR':
    'the rate alone is moved, as with cycle_momentum=False; PyTorch moves the momentum, or beta1, too unless told ' +
    'not to',
  'BatchNorm(momentum=None)': 'refused: a number from 0 to 1',
  'a learning rate set by hand':
    'a scheduler refuses its next step, which would undo it: set `at` of the scheduler, or make a new one',
  'nn.utils.parametrizations.weight_norm, spectral_norm':
    '`weightNorm(layer)`, `spectralNorm(layer)` under the same names in state dicts; `removeParametrization(layer)` ' +
    'makes a plain weight of it',
  'scatter, scatter_add, scatter_reduce with a larger src':
    'refused: `src.narrow(0, 0, n)` and so on first, to the shape of the indices',
  'det of a singular matrix': 'its gradient is refused, since it is made of the inverse; PyTorch has one',
  'tensors sent to worker threads': 'their numbers travel: post `await x.data()` and make a tensor of it there',
  hardtanh: 'the gradient at the bounds is 1, as of clamp; PyTorch has 0 for hardtanh and 1 for clamp',
  'scaled_dot_product_attention, is_causal':
    'the last query sees the last key, also where there are fewer queries than keys, as decoding with a cache needs; ' +
    'PyTorch counts from the first of both',
  'RNN, LSTM, GRU, MultiheadAttention, Transformer layers':
    'the batch comes first, as with batch_first=True; forward answers outputs, `run` of recurrent layers states too',
  'nn.utils.rnn.pad_sequence': '`nn.padSequence(list, { value })`, batch first',
  'F.gumbel_softmax':
    '`nn.gumbelSoftmax(logits, { temperature, hard })` draws its numbers; `x.gumbelSoftmax(temperature, uniform)` ' +
    'takes them',
  'pack_padded_sequence, pad_packed_sequence':
    '`lstm.run(x, undefined, { lengths: [5, 3] })`: steps beyond a length leave the state alone and answer 0',
  'MultiheadAttention, need_weights':
    '`attention.attend(query, key, value)` answers `{ output, weights }`, weights of each head; forward answers the ' +
    'output alone',
  'MultiheadAttention, attn_mask':
    "true where a query sees a key; PyTorch's truth values of this one layer say the opposite",
  binary_cross_entropy:
    'what is no probability is refused on the CPU; on a GPU its loss is NaN, without a wait; where input and target ' +
    'are both 0 or both 1 the gradient is that of the logarithm, 1 or -1, where PyTorch has 0',
  'torch.save':
    'a state dict: `saveTensors("model.pt", model.stateDict())`, or `model.save("model.pt")`, which torch.load ' +
    'reads; other objects are not written',
  one_hot:
    'f32 unless said, ready for products; the number of classes is given; an index of -1 has zeros alone, by the ' +
    'rule of Candle, where PyTorch refuses it',
  'randint, arange, tensor([1, 2])': 'randint is i64, arange and lists of whole numbers are f32 unless said',
  'std(dim, unbiased)': 'std(dims, keepdim, correction): `x.std(1, false, 0)`',
  'DataLoader(shuffle=True)':
    'orders are drawn from { seed }, 0 unless said, so that every run has the same; manualSeed does not change them',
  'loss.backward() several times before a step':
    '`new GradAccumulator(model.parameters())`, `add(loss.backward())`, `optimizer.step(accumulator.take())`, which is ' +
    'the mean over the batches: losses are not divided',
  'torch.save({ model, optimizer, epoch })':
    '`nn.saveCheckpoint(file, { tensors: model.stateDict(), optimizer }, { step, extra })`, read by `loadCheckpoint`',
  'func.functional_call, stack_module_state':
    '`nn.functionalCall(model, tensors, x)`, with tensors by name in place of its own; `nn.stackModuleState(models)` ' +
    'for an ensemble under vmap',
  'nn.utils.parametrize.register_parametrization':
    "`nn.parametrize(layer, 'weight', (w) => w.triu().add(w.triu(1).t()))`, or a layer in place of the function",
  'nn.utils.prune':
    "a mask is a parametrization: `nn.parametrize(layer, 'weight', (w) => w.mul(mask))`, made plain again by " +
    '`removeParametrization(layer)`',
  'register_buffer, nn.Buffer':
    "a field that the class lists: `protected override buffers() { return ['mask']; }`; other fields that hold tensors " +
    'are parameters',
  'nn.init':
    "`layer.weight.assign(nn.initialise(nn.kaiming('normal'), layer.weight.shape))`; also `xavier`, `normal`, " +
    '`truncatedNormal`, `uniform`, `orthogonal`, `constant`',
  'amp.autocast':
    "weights in f32 and a copy of them in bf16: `new nn.FlatParameters(model, 'bf16')`; f16 also takes `GradScaler`",
  'optim.swa_utils': '`new nn.EMA(model, { decay })`, `update()`, `use(() => evaluate(model))`',
  'utils.checkpoint': '`nn.recompute(block, x)`, or `nn.recomputing(block)` once',
  'utils.tensorboard.SummaryWriter': "`new EventWriter(folder)` of wick/train, `scalars({ 'loss/train': 0.5 }, step)`",
  'nn.utils.parameters_to_vector':
    'the `master` of `new nn.FlatParameters(model)`, a vector of which the parameters are views',
  'utils.data.random_split, Subset, ConcatDataset':
    '`dataset.split([0.8, 0.2], seed)`, `dataset.subset(numbers)`, `dataset.concat(other)`, `dataset.map(f)`',
  'copy.deepcopy(model)': 'another module of the same sizes, and `other.loadStateDict(model.stateDict())`',
  'DataLoader(sampler=), WeightedRandomSampler':
    '`new DataLoader(dataset, { sampler: (epoch) => numbers })`, `weightedSampler(weights, { count })`, which draws ' +
    'anew in each epoch',
  'torch.distributions':
    '`nn.distributions`: Normal, LogNormal, HalfNormal, Uniform, Exponential, Laplace, Gumbel, Gamma, Beta, Cauchy, ' +
    'StudentT, Dirichlet, Bernoulli, Binomial, Geometric, Poisson, Categorical, OneHotCategorical, ' +
    'MultivariateNormal, Independent, MixtureSameFamily, TransformedDistribution with TanhTransform and others, ' +
    '`klDivergence`; log_prob is `logProb`; what classes are drawn by is said, `new Categorical({ probs })` or ' +
    '`{ logits }`: a tensor alone, probs in PyTorch, is refused',
  'loss modules':
    '`new CrossEntropyLoss({ labelSmoothing: 0.1 }).forward(logits, target)`: options are one object, and a loss is ' +
    'a module since activations and pools are; the functions behind them are `losses.crossEntropy` and so on',
  'optim.lr_scheduler':
    '`new StepLR(optimizer, 30, 0.1)` and so on, arguments in the order of PyTorch, options of OneCycleLR and ' +
    'CyclicLR by name; each is a `Scheduler` with a schedule, and schedules are functions that combine: `warmup(100, ' +
    'cosineDecay(1000))`',
  'options by name':
    'camelCase, and some shorter or longer: lr is `learningRate`, betas `{ beta1, beta2 }`, batch_size `batch`, ' +
    "num_layers `layers`, is_causal `causal`, scale_factor `scale`; PyTorch's name is refused with ours",
  'x.size(0), layer(x)': '`x.shape[0]` (`x.size` is the number of elements), `layer.forward(x)`',
  'conv and pools without a batch': '`x.unsqueeze(0)` first: the batch is never left out',
  'conv2d, padding="same"':
    "`new Conv2d(..., { padding: 'same' })`; the function takes a number: dilation * (kernel - 1) / 2 of an odd kernel",
  clip_grad_norm_:
    'gradients are clipped on their way to the step: `optimizer.backwardStep(loss, { clipNorm: 1 })`; ' +
    'there is no .grad, and nothing to set to zero',
  'Module.modules, apply': '`for (const [name, m] of model.namedModules())`',
  'Module.register_forward_hook, register_full_backward_hook':
    '`model.onForward(hook)`, `model.onBackward(hook)`: around `forward`, and not around `run` of recurrent layers',
  'Module.to(dtype), half': "`model.to(undefined, 'f16')`",
  state_dict: 'a Map; load_state_dict takes maps and objects',
  'Dropout(1)': 'refused: the share that is left out is below 1',
  'x[0] = y, x[mask] = y': '`x.at(0).assign(y)`, `x.assign(x.maskedFill(mask, 0))`; brackets are refused',
};

/** The page. */
export function namesPage(): string {
  const groups = Object.entries(NAME_GROUPS);
  const all = groups.flatMap(([, pairs]) => pairs);
  const cell = (text: string): string => text.replaceAll('|', '\\|');
  const lines = groups.flatMap(([title, pairs]) => [
    `## ${title}`,
    '',
    '| PyTorch | wick | what differs |',
    '|---|---|---|',
    ...pairs.map(
      ([torch, ours, differs]) => `| ${cell(torch)} | ${ours ? `\`${cell(ours)}\`` : '-'} | ${cell(differs ?? '')} |`,
    ),
    '',
  ]);
  return [
    '<!-- Made by `npm run docs` from scripts/pytorch-table.ts; do not edit. -->',
    '',
    "# PyTorch's names and ours",
    '',
    `${count(all.filter(([, ours]) => ours))} of ${count(all)} names have an answer. \`x\` is a tensor; a call ` +
      'without one is a function of the package. Numbers of every op',
    'are held against those of PyTorch (docs/ops.md says which program speaks for which op).',
    '',
    ...lines,
    ...allNames(),
  ].join('\n');
}
