// What tensors are asked for by their names in PyTorch and TensorFlow.js: an answer with the name here, in place of
// "is not a function".
import { ArgumentError } from '../base/errors.js';
import { Tensor } from './tensor.js';

/** Names that are another call here. */
const OTHER: Readonly<Record<string, string>> = {
  T: 'x.t(), or x.transpose(-2, -1) of a batch',
  mT: 'x.transpose(-2, -1)',
  arraySync: 'x.toArray()',
  bmm: 'x.matmul(y)',
  bfloat16: "x.cast('bf16')",
  bool: 'x.ne(0)',
  and: 'x.logicalAnd(y)',
  or: 'x.logicalOr(y)',
  not: 'x.logicalNot()',
  clampMax: 'x.clamp(-Infinity, 1)',
  clampMin: 'x.clamp(0)',
  clone: 'x.copy()',
  clip: 'x.clamp(0, 1)',
  cpu: "x.to('cpu')",
  cuda: "x.to('cuda:0'), x.to('rocm:0')",
  double: "x.cast('f64')",
  expand: 'x.broadcastTo([3, 4])',
  expandAs: 'x.broadcastTo(y.shape)',
  expandDims: 'x.unsqueeze(0)',
  float: "x.cast('f32')",
  grad: 'const grads = loss.backward(), then grads.of(x): tensors keep no gradient',
  greater: 'x.gt(y)',
  half: "x.cast('f16')",
  int: "x.cast('i32')",
  length: 'x.shape[0] for rows, x.size for elements',
  less: 'x.lt(y)',
  long: "x.cast('i64')",
  matMul: 'x.matmul(y)',
  mm: 'x.matmul(y)',
  ndim: 'x.rank',
  numel: 'x.size',
  numpy: 'x.dataSync(), or x.toArray()',
  pin_memory: 'new DataLoader(dataset, { device }), which sends batches ahead',
  print: 'console.log(x)',
  reciprocal: 'x.recip()',
  register_hook: 'module.onBackward(hook), or customGrad',
  requiresGrad_: 'x.requireGrad()',
  requires_grad: 'x.requiresGrad',
  requires_grad_: 'x.requireGrad()',
  retain_grad: 'x.retainGrad()',
  rsub: 'y.sub(x), or x.neg().add(1)',
  select: 'x.get(1, 0): place, then dimension',
  short: "x.cast('i16')",
  square: 'x.sqr()',
  type: 'x.dtype, or x.cast(dtype)',
  tile: 'x.repeat([2, 1])',
  tolist: 'x.toArray()',
  amax: 'x.max(1)',
  amin: 'x.min(1)',
  var: 'x.variance(1)',
  view: 'x.reshape([2, -1]), or x.viewAs([2, 3]), which never copies',
  angle: 'im.atan2(re): complex numbers are pairs of real tensors',
  imag: 'the second of a pair: const [re, im] = x.rfft()',
  real: 'the first of a pair: const [re, im] = x.rfft()',
  conj: 'im.neg(), of the pair [re, im] that stands for complex numbers',
  isComplex: 'never so: complex numbers are pairs of real tensors, as in const [re, im] = x.rfft()',
  viewAsComplex: 'the pair [x.at("...", 0), x.at("...", 1)] that stands for complex numbers',
  viewAsReal: 'stack([re, im], -1), of the pair that stands for complex numbers',
  fft2: 'x.fft(), then re.fft(im, { dim: -2 }) of the pair',
  ifft2: 're.ifft(im), then the same with { dim: -2 }',
  fftn: 'x.fft(), then re.fft(im, { dim }) along each dimension',
  istft: 'istft(re, im, nFft, options), of the pair that stft gives',
  eig: 'x.eigh(), of symmetric matrices: other eigenvalues are complex, and there are no complex numbers',
  eigvals: 'x.eigvalsh(), of symmetric matrices: other eigenvalues are complex',
  toSparse: 'scatterAdd, indexAdd and indexPut with places: there are no sparse tensors',
  apply_: 'an op on all elements at once, or x.toArray().map(f)',
  absolute: 'x.abs()',
  argwhere: 'x.nonzero()',
  concat: 'cat([x, y], 0)',
  detach_: 'x.detach()',
  divide: 'x.div(y)',
  elementSize: 'x.dtype',
  expand_as: 'x.broadcastTo(y.shape)',
  flipLr: 'x.flip(1)',
  flipUd: 'x.flip(0)',
  forEach: 'for (const row of x), or x.toArray().forEach(f)',
  gradFn: 'x.requiresGrad: what made a tensor is not shown',
  inner: 'x.matmul(y.t())',
  inverse: 'x.inv()',
  isContiguous: 'x.layout.isContiguous',
  isCuda: 'x.device.name',
  isFloatingPoint: 'x.dtype',
  isLeaf: 'x.requiresGrad: what made a tensor is not shown',
  map: 'an op on all elements at once, or x.toArray().map(f)',
  moveaxis: 'x.movedim(0, 1)',
  multiply: 'x.mul(y)',
  mv: 'x.matmul(y)',
  negative: 'x.neg()',
  nelement: 'x.size',
  ravel: 'x.flatten()',
  reshapeAs: 'x.reshape(y.shape)',
  sgn: 'x.sign()',
  stride: 'x.layout.strides',
  strides: 'x.layout.strides',
  subtract: 'x.sub(y)',
  swapaxes: 'x.transpose(0, 1)',
  swapdims: 'x.transpose(0, 1)',
  trueDivide: 'x.div(y)',
  typeAs: 'x.cast(y.dtype)',
};

/** What changes a tensor in place under a name that is no op's. */
const IN_PLACE: Readonly<Record<string, string>> = {
  zero_: 'x.zerosLike()',
  fill_: 'x.fullLike(3)',
  copy_: 'y',
  normal_: 'x.randnLike()',
  uniform_: 'x.randLike()',
};

/** Names that tensors have, of their own or from what they come from. */
function namesThere(): Set<string> {
  const names = new Set<string>();
  for (let at: object | null = Tensor.prototype; at; at = Object.getPrototypeOf(at))
    for (const name of Object.getOwnPropertyNames(at)) names.add(name);
  return names;
}

const snake = (name: string): string => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
/** Whether a member is a method, without calling a getter. */
const isMethod = (name: string): boolean =>
  typeof Object.getOwnPropertyDescriptor(Tensor.prototype, name)?.value === 'function';

/** Once every method is there: their names with underscores, and what changes a tensor in place. */
export function answerOtherNames(ops: Iterable<string>): void {
  const taken = namesThere();
  const answers: PropertyDescriptorMap = {};
  const answer = (name: string, ours: string): void => {
    if (taken.has(name)) return;
    taken.add(name);
    const refuse = (): never => {
      throw new ArgumentError(`x.${name}: here it is ${ours}`);
    };
    answers[name] = { get: refuse, set: refuse, configurable: true };
  };
  for (const [name, ours] of Object.entries(OTHER)) for (const other of [name, snake(name)]) answer(other, ours);
  for (const name of Object.getOwnPropertyNames(Tensor.prototype).filter(isMethod))
    for (const other of [snake(name), name.toLowerCase()]) answer(other, `x.${name}(...)`);
  const written = (call: string): string => `x.assign(${call}), which writes into memory that is there`;
  for (const [name, ours] of Object.entries(IN_PLACE)) answer(name, written(ours));
  for (const name of ops) for (const other of [name, snake(name)]) answer(`${other}_`, written(`x.${name}(...)`));
  Object.defineProperties(Tensor.prototype, answers); // at once: a third of the time
}
