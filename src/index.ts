// wick: tensors, autograd and neural nets for Node.js.
import './tensor/methods.js';

export { EVERY_DTYPE as DTYPES, type DType } from './base/dtype.js';
export * from './base/errors.js';
export { Layout } from './base/layout.js';
export type { Shape } from './base/shape.js';
export { enableGrad, noGrad, remaking } from './tensor/autograd.js';
export { type BackwardOptions, Gradients, gradOf } from './tensor/backward.js';
export type {
  CustomCall,
  CustomKernel,
  CustomLaunch,
  CustomOperand,
  GradContext,
  Grads,
  Params,
  Sig,
} from './ops/op.js';
export {
  arange,
  cat,
  eye,
  full,
  linspace,
  meshgrid,
  ones,
  rand,
  randint,
  randn,
  stack,
  tensor,
  zeros,
  type NestedInput,
  type RandomOptions,
  type TensorOptions,
} from './tensor/create.js';
export {
  type CustomArguments,
  defineOp,
  type ElementwiseDefinition,
  type ElementwiseOp,
  type HostData,
  type HostOperand,
  type KernelDefinition,
  type KernelOp,
} from './tensor/custom.js';
export { customGrad, type ValueAndGrad } from './tensor/custom-grad.js';
export type { Replay } from './backends/gpu/gpu.js';
export { captured, type Captured, type CapturedAnswer, type CapturedOptions } from './tensor/captured.js';
export { Device, type DeviceProperties, type StreamWork, type WorkStream } from './tensor/device.js';
export { printOptions } from './tensor/display.js';
export { einsum } from './tensor/einsum.js';
export { fuse } from './tensor/fuse.js';
export { at, type Index, maskedSelect, nonzero } from './tensor/indexing.js';
export { istft, type IstftOptions } from './tensor/istft.js';
export { QTensor, type Weight } from './tensor/qtensor.js';
export type { BlockType, ProductOptions } from './ops/quantized.js';
export { defaultGenerator, Generator, manualSeed } from './tensor/random.js';
export { type DrawOptions, type LikeOptions, type MultinomialOptions, randperm } from './tensor/sampling.js';
export {
  type DerivativeOptions,
  grad,
  gradAndValue,
  type GradOptions,
  hessian,
  jacobian,
  jvp,
  vjp,
  vmap,
  type VmapOptions,
} from './tensor/mapped.js';
export type { TensorTree } from './tensor/tree.js';
export { keep, scope } from './tensor/scope.js';
export { type Data, type DataOf, type Nested, Tensor } from './tensor/tensor.js';
export {
  bartlettWindow,
  blackmanWindow,
  blockDiag,
  fftfreq,
  hammingWindow,
  hannWindow,
  kaiserWindow,
  logspace,
  rfftfreq,
  trilIndices,
  triuIndices,
  type WindowOptions,
} from './tensor/windows.js';
