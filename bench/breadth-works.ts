// What bench/breadth.ts times: each row says its operands, our call and PyTorch's, so that both stand side by side.
import { arange, cat, fuse, full, rand, randn, randperm, stack, type Tensor, zeros } from '../src/index.js';
import * as nn from '../src/nn/index.js';

const { losses } = nn;
export type Inputs = Readonly<Record<string, Tensor>>;
export interface BreadthWork {
  readonly name: string;
  /**
   * Operands by name: kind, dtype and shape, like 'normal f32 4096x4096'. Kinds: normal; unit (0 to 1); positive (0.5
   * to 1.5); truth; ids<N; sorted; definite (symmetric, well conditioned).
   */
  readonly inputs: Readonly<Record<string, string>>;
  readonly wick: (x: Inputs) => unknown;
  /** An expression of Python over the operands' names, torch, F and nn; `grad(value, operands...)` takes gradients. */
  readonly torch: string;
  /** Operands whose gradients our side takes, too, of the sum of what `wick` answers. */
  readonly grad?: readonly string[];
}

const LONG = '16777216';
const SQUARE = '4096x4096';
const PICTURES = '32x64x112x112';
type Row = readonly [string, Readonly<Record<string, string>>, (x: Inputs) => unknown, string];

/** Functions of one tensor, element by element. */
const UNARY: Readonly<Record<string, readonly [(x: Tensor) => Tensor, string, string?]>> = {
  neg: [(x) => x.neg(), '-x'],
  abs: [(x) => x.abs(), 'x.abs()'],
  exp: [(x) => x.exp(), 'x.exp()'],
  expm1: [(x) => x.expm1(), 'x.expm1()'],
  log: [(x) => x.log(), 'x.log()', 'positive'],
  log1p: [(x) => x.log1p(), 'x.log1p()', 'positive'],
  log2: [(x) => x.log2(), 'x.log2()', 'positive'],
  sin: [(x) => x.sin(), 'x.sin()'],
  tan: [(x) => x.tan(), 'x.tan()'],
  atan: [(x) => x.atan(), 'x.atan()'],
  acosh: [(x) => x.add(2).acosh(), '(x + 2).acosh()', 'positive'],
  tanh: [(x) => x.tanh(), 'x.tanh()'],
  sinh: [(x) => x.sinh(), 'x.sinh()'],
  erf: [(x) => x.erf(), 'x.erf()'],
  erfinv: [(x) => x.erfinv(), 'x.erfinv()', 'unit'],
  lgamma: [(x) => x.lgamma(), 'x.lgamma()', 'positive'],
  digamma: [(x) => x.digamma(), 'x.digamma()', 'positive'],
  sqrt: [(x) => x.sqrt(), 'x.sqrt()', 'positive'],
  rsqrt: [(x) => x.rsqrt(), 'x.rsqrt()', 'positive'],
  reciprocal: [(x) => x.recip(), 'x.reciprocal()', 'positive'],
  round: [(x) => x.roundEven(), 'x.round()'],
  relu: [(x) => x.relu(), 'x.relu()'],
  leakyRelu: [(x) => x.leakyRelu(), 'F.leaky_relu(x)'],
  sigmoid: [(x) => x.sigmoid(), 'x.sigmoid()'],
  gelu: [(x) => x.geluErf(), 'F.gelu(x)'],
  geluTanh: [(x) => x.gelu(), "F.gelu(x, approximate='tanh')"],
  silu: [(x) => x.silu(), 'F.silu(x)'],
  mish: [(x) => x.mish(), 'F.mish(x)'],
  softplus: [(x) => x.softplus(), 'F.softplus(x)'],
  elu: [(x) => x.elu(), 'F.elu(x)'],
  hardSwish: [(x) => x.hardSwish(), 'F.hardswish(x)'],
  logSigmoid: [(x) => x.logSigmoid(), 'F.logsigmoid(x)'],
  clamp: [(x) => x.clamp(-1, 1), 'x.clamp(-1, 1)'],
  'pow 2': [(x) => x.powf(2), 'x ** 2'],
  'pow 3': [(x) => x.powf(3), 'x ** 3'],
  'pow 2.5': [(x) => x.powf(2.5), 'x ** 2.5', 'positive'],
  nanToNum: [(x) => x.nanToNum(), 'x.nan_to_num()'],
  isFinite: [(x) => x.isFinite(), 'x.isfinite()'],
  'add a number': [(x) => x.add(2), 'x + 2'],
  glu: [(x) => x.glu(), 'F.glu(x)'],
};
const BINARY: Readonly<Record<string, readonly [(x: Tensor, y: Tensor) => Tensor, string, string?]>> = {
  add: [(x, y) => x.add(y), 'x + y'],
  mul: [(x, y) => x.mul(y), 'x * y'],
  div: [(x, y) => x.div(y), 'x / y', 'positive'],
  pow: [(x, y) => x.pow(y), 'x ** y', 'positive'],
  atan2: [(x, y) => x.atan2(y), 'torch.atan2(x, y)'],
  hypot: [(x, y) => x.hypot(y), 'torch.hypot(x, y)'],
  fmod: [(x, y) => x.fmod(y), 'torch.fmod(x, y)', 'positive'],
  remainder: [(x, y) => x.remainder(y), 'torch.remainder(x, y)', 'positive'],
  maximum: [(x, y) => x.maximum(y), 'torch.maximum(x, y)'],
  lt: [(x, y) => x.lt(y), 'x < y'],
  lerp: [(x, y) => x.lerp(y, 0.3), 'torch.lerp(x, y, 0.3)'],
  logAddExp: [(x, y) => x.logAddExp(y), 'torch.logaddexp(x, y)'],
  xlogy: [(x, y) => x.xlogy(y), 'torch.xlogy(x, y)', 'positive'],
  isClose: [(x, y) => x.isClose(y), 'torch.isclose(x, y)'],
  copysign: [(x, y) => x.copysign(y), 'torch.copysign(x, y)'],
  mseLoss: [(x, y) => losses.mse(x, y), 'F.mse_loss(x, y)'],
  l1Loss: [(x, y) => losses.l1(x, y), 'F.l1_loss(x, y)'],
  huberLoss: [(x, y) => losses.huber(x, y), 'F.huber_loss(x, y)'],
  smoothL1Loss: [(x, y) => losses.smoothL1(x, y), 'F.smooth_l1_loss(x, y)'],
  bce: [(x, y) => losses.bce(x, y), 'F.binary_cross_entropy(x, y)', 'unit'],
  bceWithLogits: [(x, y) => losses.bceWithLogits(x, y), 'F.binary_cross_entropy_with_logits(x, y)', 'unit'],
  cosineSimilarity: [(x, y) => losses.cosineSimilarity(x, y), 'F.cosine_similarity(x, y)'],
};

function* elementwise(): Generator<Row> {
  for (const [name, [f, torch, kind = 'normal']] of Object.entries(UNARY))
    yield [name, { x: `${kind} f32 ${SQUARE}` }, ({ x }) => f(x), torch];
  for (const name of ['exp', 'gelu', 'add a number', 'tanh', 'relu'])
    yield [`${name}, bf16`, { x: `normal bf16 ${SQUARE}` }, ({ x }) => UNARY[name][0](x), UNARY[name][1]];
  for (const [name, [f, torch, kind = 'normal']] of Object.entries(BINARY))
    yield [name, { x: `${kind} f32 ${SQUARE}`, y: `${kind} f32 ${SQUARE}` }, ({ x, y }) => f(x, y), torch];
  yield ['add, bf16', { x: `normal bf16 ${SQUARE}`, y: `normal bf16 ${SQUARE}` }, ({ x, y }) => x.add(y), 'x + y'];
  const whole = { x: `ids<1000 i64 ${SQUARE}`, y: `ids<1000 i64 ${SQUARE}` };
  yield ['add, i64', whole, ({ x, y }) => x.add(y), 'x + y'];
  yield ['gcd, i64', whole, ({ x, y }) => x.gcd(y), 'torch.gcd(x, y)'];
  yield ['bitwiseAnd, i64', whole, ({ x, y }) => x.bitwiseAnd(y), 'x & y'];
  const rowAndAll = { x: `normal f32 ${SQUARE}`, y: 'normal f32 4096', z: 'normal f32 4096x1' };
  yield ['add a row', rowAndAll, ({ x, y }) => x.add(y), 'x + y'];
  yield ['add a column', rowAndAll, ({ x, z }) => x.add(z), 'x + z'];
  yield ['outer sum', rowAndAll, ({ y, z }) => z.add(y), 'z + y'];
  const three = { x: `normal f32 ${SQUARE}`, y: `normal f32 ${SQUARE}`, z: `positive f32 ${SQUARE}` };
  yield ['addcmul', three, ({ x, y, z }) => x.addcmul(y, z), 'torch.addcmul(x, y, z)'];
  yield ['addcdiv', three, ({ x, y, z }) => x.addcdiv(y, z), 'torch.addcdiv(x, y, z)'];
  yield ['where', { ...three, m: `truth bool ${SQUARE}` }, ({ x, y, m }) => m.where(x, y), 'torch.where(m, x, y)'];
  const masked = { x: three.x, m: `truth bool ${SQUARE}` };
  yield ['maskedFill', masked, ({ x, m }) => x.maskedFill(m, 0), 'x.masked_fill(m, 0)'];
  for (const [from, to, torch] of [
    ['f32', 'bf16', 'torch.bfloat16'],
    ['bf16', 'f32', 'torch.float32'],
    ['i64', 'f32', 'torch.float32'],
    ['f32', 'i64', 'torch.int64'],
  ] as const) {
    const kind = from === 'i64' ? 'ids<1000' : 'normal';
    yield [`cast ${from} to ${to}`, { x: `${kind} ${from} ${SQUARE}` }, ({ x }) => x.cast(to), `x.to(${torch})`];
  }
  yield [
    'a chain of five',
    { x: three.x, y: three.y },
    ({ x, y }) => x.add(y).mul(x).sigmoid().sub(y).tanh(),
    'torch.tanh(torch.sigmoid((x + y) * x) - y)',
  ];
  const joined = fuse((x: Tensor, y: Tensor) => x.add(y).mul(x).sigmoid().sub(y).tanh());
  yield [
    'a chain of five, joined',
    { x: three.x, y: three.y },
    ({ x, y }) => joined(x, y),
    'torch.tanh(torch.sigmoid((x + y) * x) - y)',
  ];
}

function* sums(): Generator<Row> {
  const x = { x: `normal f32 ${SQUARE}` };
  const both: Readonly<Record<string, readonly [(x: Tensor, d?: number) => unknown, (d: string) => string]>> = {
    sum: [(t, d) => t.sum(d), (d) => `x.sum(${d})`],
    mean: [(t, d) => t.mean(d), (d) => `x.mean(${d})`],
    max: [(t, d) => t.max(d), (d) => `x.amax(${d || '()'})`],
    std: [(t, d) => t.std(d), (d) => `x.std(${d})`],
    norm: [(t, d) => t.norm(2, d), (d) => `torch.linalg.vector_norm(x, 2${d && `, ${d}`})`],
  };
  for (const [name, [f, torch]] of Object.entries(both))
    for (const d of [undefined, 0, 1])
      yield [
        d === undefined ? `${name} of all` : `${name} along ${d}`,
        x,
        ({ x: t }) => f(t, d),
        torch(String(d ?? '')),
      ];
  const along: Readonly<Record<string, readonly [(x: Tensor, d: number) => unknown, (d: number) => string]>> = {
    argmax: [(t, d) => t.argmax(d), (d) => `x.argmax(${d})`],
    prod: [(t, d) => t.prod(d), (d) => `x.prod(${d})`],
    logSumExp: [(t, d) => t.logSumExp(d), (d) => `x.logsumexp(${d})`],
    softmax: [(t, d) => t.softmax(d), (d) => `x.softmax(${d})`],
    logSoftmax: [(t, d) => t.logSoftmax(d), (d) => `x.log_softmax(${d})`],
    cumsum: [(t, d) => t.cumsum(d), (d) => `x.cumsum(${d})`],
    cumprod: [(t, d) => t.cumprod(d), (d) => `x.cumprod(${d})`],
    cummax: [(t, d) => t.cummax(d), (d) => `x.cummax(${d})`],
    logcumsumexp: [(t, d) => t.logcumsumexp(d), (d) => `x.logcumsumexp(${d})`],
    median: [(t, d) => t.median(d), (d) => `x.median(${d})`],
    sort: [(t, d) => t.sort(d), (d) => `x.sort(${d})`],
    variance: [(t, d) => t.variance(d), (d) => `x.var(${d})`],
  };
  for (const [name, [f, torch]] of Object.entries(along))
    for (const d of [0, 1]) yield [`${name} along ${d}`, x, ({ x: t }) => f(t, d), torch(d)];
  yield ['any along 1', { x: `truth bool ${SQUARE}` }, ({ x: t }) => t.any(1), 'x.any(1)'];
  yield ['topk 50 of rows', x, ({ x: t }) => t.topk(50), 'x.topk(50)'];
  yield ['quantile of rows', { x: 'normal f32 256x4096' }, ({ x: t }) => t.quantile(0.3, 1), 'x.quantile(0.3, 1)'];
  yield ['sum of rows, bf16', { x: `normal bf16 ${SQUARE}` }, ({ x: t }) => t.sum(1), 'x.sum(1)'];
  yield ['softmax of 262144 rows of 64', { x: 'normal f32 262144x64' }, ({ x: t }) => t.softmax(1), 'x.softmax(1)'];
  const long = { x: `normal f32 ${LONG}` };
  yield ['cumsum of a vector', long, ({ x: t }) => t.cumsum(0), 'x.cumsum(0)'];
  yield ['sort a vector', long, ({ x: t }) => t.sort(0), 'x.sort(0)'];
  yield ['sort a vector, i64', { x: `ids<1000000 i64 ${LONG}` }, ({ x: t }) => t.sort(0), 'x.sort(0)'];
  yield ['topk 100 of a vector', long, ({ x: t }) => t.topk(100), 'x.topk(100)'];
  yield ['argmax of a vector', long, ({ x: t }) => t.argmax(0), 'x.argmax(0)'];
  yield [
    'unique',
    { x: `ids<100000 i64 ${LONG}` },
    ({ x: t }) => t.unique(),
    'x.unique(return_inverse=True, return_counts=True)',
  ];
  yield ['bincount', { x: `ids<1000 i64 ${LONG}` }, ({ x: t }) => t.bincount(), 'x.bincount()'];
  yield ['histc', long, ({ x: t }) => t.histc(100, { min: -3, max: 3 }), 'x.histc(100, -3, 3)'];
  const sorted = { x: 'sorted f32 65536', y: `normal f32 ${LONG}` };
  yield ['searchsorted', sorted, ({ x: t, y }) => t.searchsorted(y), 'torch.searchsorted(x, y)'];
  yield [
    'bucketize',
    { x: 'sorted f32 100', y: `normal f32 ${LONG}` },
    ({ x: t, y }) => y.bucketize(t),
    'torch.bucketize(y, x)',
  ];
}

function* places(): Generator<Row> {
  const x = { x: `normal f32 ${SQUARE}` };
  yield ['transposed copy', x, ({ x: t }) => t.t().contiguous(), 'x.t().contiguous()'];
  const four = { x: 'normal f32 32x128x64x64' };
  yield [
    'permuted copy',
    four,
    ({ x: t }) => t.permute([0, 2, 3, 1]).contiguous(),
    'x.permute(0, 2, 3, 1).contiguous()',
  ];
  yield ['cat along 0', x, ({ x: t }) => cat([t, t], 0), 'torch.cat([x, x], 0)'];
  yield ['cat along 1', x, ({ x: t }) => cat([t, t], 1), 'torch.cat([x, x], 1)'];
  yield ['stack', x, ({ x: t }) => stack([t, t], 1), 'torch.stack([x, x], 1)'];
  yield ['flip', x, ({ x: t }) => t.flip(1), 'x.flip(1)'];
  yield ['roll', x, ({ x: t }) => t.roll(7, 1), 'x.roll(7, 1)'];
  yield ['tril', x, ({ x: t }) => t.tril(), 'x.tril()'];
  yield ['repeat', x, ({ x: t }) => t.repeat([2, 2]), 'x.repeat(2, 2)'];
  yield ['repeatInterleave', x, ({ x: t }) => t.repeatInterleave(2, 0), 'x.repeat_interleave(2, 0)'];
  yield ['pad', x, ({ x: t }) => t.pad([3, 3]), 'F.pad(x, (3, 3))'];
  yield [
    'pad, reflected',
    { x: PICTURES2 },
    ({ x: t }) => t.padMode([1, 1, 1, 1], 'reflect'),
    "F.pad(x, (1, 1, 1, 1), mode='reflect')",
  ];
  yield ['strided copy', x, ({ x: t }) => t.at(':', [undefined, undefined, 2]).contiguous(), 'x[:, ::2].contiguous()'];
  const rows = { x: 'normal f32 65536x256', ids: 'ids<65536 i64 65536', y: 'normal f32 65536x256' };
  yield ['indexSelect 0', rows, ({ x: t, ids }) => t.indexSelect(0, ids), 'x.index_select(0, ids)'];
  yield ['indexAdd 0', rows, ({ x: t, ids, y }) => t.indexAdd(0, ids, y), 'x.index_add(0, ids, y)'];
  yield ['indexCopy 0', rows, ({ x: t, ids, y }) => t.indexCopy(0, ids, y), 'x.index_copy(0, ids, y)'];
  yield ['indexPut', rows, ({ x: t, ids, y }) => t.indexPut([ids], y), 'x.index_put((ids,), y)'];
  yield [
    'embedding',
    { x: 'normal f32 50000x1024', ids: 'ids<50000 i64 16x1024' },
    ({ x: t, ids }) => t.embedding(ids),
    'F.embedding(ids, x)',
  ];
  const columns = { x: `normal f32 ${SQUARE}`, ids: 'ids<4096 i64 4096', y: `normal f32 ${SQUARE}` };
  yield ['indexSelect 1', columns, ({ x: t, ids }) => t.indexSelect(1, ids), 'x.index_select(1, ids)'];
  yield ['indexAdd 1', columns, ({ x: t, ids, y }) => t.indexAdd(1, ids, y), 'x.index_add(1, ids, y)'];
  const all = { x: `normal f32 ${SQUARE}`, ids: `ids<4096 i64 ${SQUARE}`, y: `normal f32 ${SQUARE}` };
  for (const d of [0, 1]) {
    yield [`gather ${d}`, all, ({ x: t, ids }) => t.gather(d, ids), `x.gather(${d}, ids)`];
    yield [`scatter ${d}`, all, ({ x: t, ids, y }) => t.scatter(d, ids, y), `x.scatter(${d}, ids, y)`];
    yield [`scatterAdd ${d}`, all, ({ x: t, ids, y }) => t.scatterAdd(d, ids, y), `x.scatter_add(${d}, ids, y)`];
    yield [
      `scatterReduce amax ${d}`,
      all,
      ({ x: t, ids, y }) => t.scatterReduce(d, ids, y, 'amax'),
      `x.scatter_reduce(${d}, ids, y, 'amax')`,
    ];
  }
  yield [
    'take',
    { x: `normal f32 ${SQUARE}`, ids: `ids<16777216 i64 ${LONG}` },
    ({ x: t, ids }) => t.take(ids),
    'x.take(ids)',
  ];
  const masked = { x: `normal f32 ${SQUARE}`, m: `truth bool ${SQUARE}` };
  yield ['maskedSelect', masked, ({ x: t, m }) => t.maskedSelect(m), 'x.masked_select(m)'];
  yield ['nonzero', masked, ({ m }) => m.nonzero(), 'm.nonzero()'];
  yield ['oneHot', { ids: 'ids<1000 i64 16384' }, ({ ids }) => ids.oneHot(1000), 'F.one_hot(ids, 1000)'];
}
const PICTURES2 = `normal f32 ${PICTURES}`;

function* made(): Generator<Row> {
  const like = { x: `unit f32 ${SQUARE}` };
  yield ['zeros', like, ({ x }) => zeros(x.shape, { device: x.device }), 'torch.zeros(x.shape, device=x.device)'];
  yield ['full', like, ({ x }) => full(x.shape, 3, { device: x.device }), 'torch.full(x.shape, 3.0, device=x.device)'];
  yield ['arange', like, ({ x }) => arange(x.size, { device: x.device }), 'torch.arange(x.numel(), device=x.device)'];
  yield ['rand', like, ({ x }) => rand(x.shape, { device: x.device }), 'torch.rand(x.shape, device=x.device)'];
  yield ['randn', like, ({ x }) => randn(x.shape, { device: x.device }), 'torch.randn(x.shape, device=x.device)'];
  yield [
    'randperm',
    like,
    ({ x }) => randperm(1 << 20, { device: x.device }),
    'torch.randperm(1 << 20, device=x.device)',
  ];
  yield ['bernoulli', like, ({ x }) => x.bernoulli(), 'x.bernoulli()'];
  yield ['dropout', like, ({ x }) => nn.dropout(x, 0.3), 'F.dropout(x, 0.3)'];
  yield ['multinomial', { x: 'unit f32 64x65536' }, ({ x }) => x.multinomial(1), 'x.multinomial(1)'];
}

function* products(): Generator<Row> {
  for (const dtype of ['f32', 'bf16', 'f16', 'f64'])
    yield [
      `matmul 2048, ${dtype}`,
      { x: `normal ${dtype} 2048x2048`, y: `normal ${dtype} 2048x2048` },
      ({ x, y }) => x.matmul(y),
      'x @ y',
    ];
  yield [
    'matmul 256 of 256, bf16',
    { x: 'normal bf16 256x256x256', y: 'normal bf16 256x256x256' },
    ({ x, y }) => x.matmul(y),
    'x @ y',
  ];
  yield [
    'matmul 4096 of 32, f32',
    { x: 'normal f32 4096x32x32', y: 'normal f32 4096x32x32' },
    ({ x, y }) => x.matmul(y),
    'x @ y',
  ];
  yield [
    'linear, bf16',
    { x: 'normal bf16 4096x4096', w: 'normal bf16 4096x4096', b: 'normal bf16 4096' },
    ({ x, w, b }) => x.matmul(w.t()).add(b),
    'F.linear(x, w, b)',
  ];
  yield [
    'a row by a matrix, bf16',
    { x: 'normal bf16 1x8192', w: 'normal bf16 8192x8192' },
    ({ x, w }) => x.matmul(w.t()),
    'x @ w.t()',
  ];
  yield ['dot', { x: `normal f32 ${LONG}`, y: `normal f32 ${LONG}` }, ({ x, y }) => x.dot(y), 'x.dot(y)'];
  yield ['outer', { x: 'normal f32 4096', y: 'normal f32 4096' }, ({ x, y }) => x.outer(y), 'x.outer(y)'];
  yield ['cdist', { x: 'normal f32 4096x64', y: 'normal f32 4096x64' }, ({ x, y }) => x.cdist(y), 'torch.cdist(x, y)'];
  const square = { x: 'definite f32 512x512', y: 'normal f32 512x64' };
  yield ['solve 512', square, ({ x, y }) => x.solve(y), 'torch.linalg.solve(x, y)'];
  yield ['inv 512', square, ({ x }) => x.inv(), 'torch.linalg.inv(x)'];
  yield ['cholesky 512', square, ({ x }) => x.cholesky(), 'torch.linalg.cholesky(x)'];
  yield ['det 512', square, ({ x }) => x.det(), 'torch.linalg.det(x)'];
  yield [
    'solveTriangular 512',
    square,
    ({ x, y }) => x.solveTriangular(y),
    'torch.linalg.solve_triangular(x, y, upper=False)',
  ];
  yield ['qr 512', square, ({ x }) => x.qr(), 'torch.linalg.qr(x)'];
  yield ['svd 256', { x: 'normal f32 256x256' }, ({ x }) => x.svd(), 'torch.linalg.svd(x, full_matrices=False)'];
  yield ['eigh 256', { x: 'definite f32 256x256' }, ({ x }) => x.eigh(), 'torch.linalg.eigh(x)'];
  yield ['inv of 256 16x16', { x: 'definite f32 256x16x16' }, ({ x }) => x.inv(), 'torch.linalg.inv(x)'];
  yield ['det of 65536 3x3', { x: 'definite f32 65536x3x3' }, ({ x }) => x.det(), 'torch.linalg.det(x)'];
  const many = { x: 'definite f32 4096x64x64', y: 'normal f32 4096x64x4' };
  yield ['solve of 4096 64x64', many, ({ x, y }) => x.solve(y), 'torch.linalg.solve(x, y)'];
  yield ['cholesky of 4096 64x64', many, ({ x }) => x.cholesky(), 'torch.linalg.cholesky(x)'];
  const some = { x: 'definite f32 1024x16x16' };
  yield ['qr of 1024 16x16', some, ({ x }) => x.qr(), 'torch.linalg.qr(x)'];
  yield ['eigh of 1024 16x16', some, ({ x }) => x.eigh(), 'torch.linalg.eigh(x)'];
  yield ['svd of 1024 16x16', some, ({ x }) => x.svd(), 'torch.linalg.svd(x, full_matrices=False)'];
}

function* layers(): Generator<Row> {
  const rows = { x: 'normal f32 16384x1024', w: 'normal f32 1024', b: 'normal f32 1024' };
  yield ['layerNorm', rows, ({ x, w, b }) => x.layerNorm(w, b), 'F.layer_norm(x, (1024,), w, b)'];
  yield ['rmsNorm', rows, ({ x, w }) => x.rmsNorm(w), 'F.rms_norm(x, (1024,), w, 1e-6)'];
  yield ['normalize', rows, ({ x }) => x.normalize(), 'F.normalize(x)'];
  const ids = { x: 'normal f32 8192x32000', y: 'ids<32000 i64 8192' };
  yield ['crossEntropy', ids, ({ x, y }) => losses.crossEntropy(x, y), 'F.cross_entropy(x, y)'];
  yield ['nllLoss', ids, ({ x, y }) => losses.nll(x, y), 'F.nll_loss(x, y)'];
  const pictures = { x: PICTURES2, w: 'positive f32 64', b: 'normal f32 64' };
  yield [
    'batchNorm, training',
    pictures,
    ({ x, w, b }) => x.batchNorm(w, b),
    'F.batch_norm(x, None, None, w, b, True)',
  ];
  yield ['groupNorm', pictures, ({ x, w, b }) => x.groupNorm(8, w, b), 'F.group_norm(x, 8, w, b)'];
  yield [
    'conv2d 3, bf16',
    { x: 'normal bf16 32x64x56x56', w: 'normal bf16 64x64x3x3' },
    ({ x, w }) => x.conv2d(w, { padding: 1 }),
    'F.conv2d(x, w, padding=1)',
  ];
  yield [
    'conv2d 1, f32',
    { x: 'normal f32 32x256x28x28', w: 'normal f32 256x256x1x1' },
    ({ x, w }) => x.conv2d(w),
    'F.conv2d(x, w)',
  ];
  yield [
    'conv2d depthwise, f32',
    { x: PICTURES2, w: 'normal f32 64x1x3x3' },
    ({ x, w }) => x.conv2d(w, { padding: 1, groups: 64 }),
    'F.conv2d(x, w, padding=1, groups=64)',
  ];
  yield [
    'conv1d, f32',
    { x: 'normal f32 32x256x4096', w: 'normal f32 256x256x3' },
    ({ x, w }) => x.conv1d(w, { padding: 1 }),
    'F.conv1d(x, w, padding=1)',
  ];
  yield [
    'conv3d, f32',
    { x: 'normal f32 4x32x16x56x56', w: 'normal f32 32x32x3x3x3' },
    ({ x, w }) => x.conv3d(w, { padding: 1 }),
    'F.conv3d(x, w, padding=1)',
  ];
  yield ['maxPool2d', pictures, ({ x }) => x.maxPool2d(2), 'F.max_pool2d(x, 2)'];
  yield [
    'maxPool2d 3 by 2',
    pictures,
    ({ x }) => x.maxPool2d(3, { stride: 2, padding: 1 }),
    'F.max_pool2d(x, 3, 2, 1)',
  ];
  yield ['avgPool2d', pictures, ({ x }) => x.avgPool2d(2), 'F.avg_pool2d(x, 2)'];
  yield ['adaptiveAvgPool2d', pictures, ({ x }) => x.adaptiveAvgPool2d([7, 7]), 'F.adaptive_avg_pool2d(x, 7)'];
  for (const [mode, torch] of [
    ['nearest', "'nearest'"],
    ['bilinear', "'bilinear'"],
    ['bicubic', "'bicubic'"],
  ] as const)
    yield [
      `interpolate ${mode}`,
      pictures,
      ({ x }) => x.interpolate({ size: [224, 224], mode }),
      `F.interpolate(x, size=(224, 224), mode=${torch})`,
    ];
  const halves = { x: `normal bf16 ${PICTURES}`, w: 'positive bf16 64', b: 'normal bf16 64' };
  yield [
    'batchNorm, training, bf16',
    halves,
    ({ x, w, b }) => x.batchNorm(w, b),
    'F.batch_norm(x, None, None, w, b, True)',
  ];
  yield ['groupNorm, bf16', halves, ({ x, w, b }) => x.groupNorm(8, w, b), 'F.group_norm(x, 8, w, b)'];
  yield [
    'maxPool2d 3 by 2, bf16',
    halves,
    ({ x }) => x.maxPool2d(3, { stride: 2, padding: 1 }),
    'F.max_pool2d(x, 3, 2, 1)',
  ];
  yield [
    'interpolate bilinear, bf16',
    halves,
    ({ x }) => x.interpolate({ size: [224, 224], mode: 'bilinear' }),
    "F.interpolate(x, size=(224, 224), mode='bilinear')",
  ];
  const grid = { x: PICTURES2, g: 'unit f32 32x112x112x2' };
  yield ['gridSample', grid, ({ x, g }) => x.gridSample(g), 'F.grid_sample(x, g, align_corners=False)'];
  yield ['pixelShuffle', pictures, ({ x }) => x.pixelShuffle(2), 'F.pixel_shuffle(x, 2)'];
  yield [
    'unfold',
    { x: 'normal f32 8x64x112x112' },
    ({ x }) => x.unfold2d(3, { padding: 1 }),
    'F.unfold(x, 3, padding=1)',
  ];
  const qkv = { q: 'normal bf16 4x16x2048x64', k: 'normal bf16 4x16x2048x64', v: 'normal bf16 4x16x2048x64' };
  yield [
    'attention, causal',
    qkv,
    ({ q, k, v }) => q.sdpa(k, v, { causal: true }),
    'F.scaled_dot_product_attention(q, k, v, is_causal=True)',
  ];
  const f32 = { q: 'normal f32 4x16x1024x64', k: 'normal f32 4x16x1024x64', v: 'normal f32 4x16x1024x64' };
  yield ['attention, f32', f32, ({ q, k, v }) => q.sdpa(k, v), 'F.scaled_dot_product_attention(q, k, v)'];
  const signal = { x: 'normal f32 256x16384', y: 'normal f32 256x16384' };
  yield ['fft', signal, ({ x, y }) => x.fft(y), 'torch.fft.fft(torch.complex(x, y))'];
  yield ['rfft', signal, ({ x }) => x.rfft(), 'torch.fft.rfft(x)'];
  yield ['rfft of 15000', { x: 'normal f32 256x15000' }, ({ x }) => x.rfft(), 'torch.fft.rfft(x)'];
  yield ['rfft of 16381', { x: 'normal f32 64x16381' }, ({ x }) => x.rfft(), 'torch.fft.rfft(x)'];
  yield [
    'stft',
    { x: 'normal f32 16x160000' },
    ({ x }) => x.stft(400, { hop: 160 }),
    'torch.stft(x, 400, 160, return_complex=True, window=torch.ones(400, device=x.device))',
  ];
}

/** Recurrent nets: their weights are operands, so that both sides run the same. */
function* recurrent(): Generator<BreadthWork> {
  const kinds = [
    { name: 'LSTM', gates: 4, make: nn.LSTM },
    { name: 'GRU', gates: 3, make: nn.GRU },
  ];
  for (const { name, gates, make } of kinds) {
    const inputs = {
      x: 'normal f32 128x64x512',
      wi: `unit f32 ${gates * 512}x512`,
      wh: `unit f32 ${gates * 512}x512`,
      bi: `unit f32 ${gates * 512}`,
      bh: `unit f32 ${gates * 512}`,
    };
    const state = name === 'LSTM' ? '(h, h)' : 'h';
    const call = (training: string): string =>
      `torch.${name.toLowerCase()}(x, ${state.replaceAll('h', 'torch.zeros(1, 64, 512, device=x.device)')}, ` +
      `[wi, wh, bi, bh], True, 1, 0.0, ${training}, False, False)[0]`;
    const wick = ({ x, wi, wh, bi, bh }: Inputs): Tensor => new make(wi, wh, bi, bh).run(x.transpose(0, 1)).output;
    yield { name, inputs, wick, torch: call('False') };
    yield {
      name: `${name}, gradient`,
      inputs,
      wick,
      torch: `grad(${call('True')}, x, wi, wh)`,
      grad: ['x', 'wi', 'wh'],
    };
  }
}

/** Gradients of rows above: of all of their floating-point operands that are named. */
const GRADIENTS: Readonly<Record<string, readonly string[]>> = {
  mul: ['x', 'y'],
  gelu: ['x'],
  tanh: ['x'],
  'sum along 1': ['x'],
  'std along 1': ['x'],
  'max along 1': ['x'],
  'softmax along 1': ['x'],
  'logSumExp along 1': ['x'],
  'cumsum along 1': ['x'],
  'variance along 1': ['x'],
  'indexSelect 0': ['x'],
  embedding: ['x'],
  'gather 1': ['x'],
  'scatterAdd 1': ['x', 'y'],
  'matmul 2048, bf16': ['x', 'y'],
  layerNorm: ['x', 'w', 'b'],
  rmsNorm: ['x', 'w'],
  crossEntropy: ['x'],
  'batchNorm, training': ['x', 'w', 'b'],
  groupNorm: ['x', 'w', 'b'],
  'conv2d 3, bf16': ['x', 'w'],
  'conv2d depthwise, f32': ['x', 'w'],
  'batchNorm, training, bf16': ['x', 'w', 'b'],
  'maxPool2d 3 by 2': ['x'],
  'maxPool2d 3 by 2, bf16': ['x'],
  avgPool2d: ['x'],
  'interpolate bilinear': ['x'],
  'interpolate bilinear, bf16': ['x'],
  'interpolate bicubic': ['x'],
  'pad, reflected': ['x'],
  gridSample: ['x', 'g'],
  'attention, causal': ['q', 'k', 'v'],
  cdist: ['x', 'y'],
  huberLoss: ['x'],
};

export function breadthWorks(): BreadthWork[] {
  const rows = [elementwise, sums, places, made, products, layers].flatMap((f) => [...f()]);
  const plain = rows.map(([name, inputs, wick, torch]) => ({ name, inputs, wick, torch }));
  const known = new Map(plain.map((w) => [w.name, w]));
  const gradients = Object.entries(GRADIENTS).map(([name, grad]) => {
    const work = known.get(name);
    if (!work) throw new Error(`no work is called ${name}`);
    return { ...work, name: `${name}, gradient`, torch: `grad(${work.torch}, ${grad.join(', ')})`, grad };
  });
  return [...plain, ...gradients, ...recurrent()];
}
