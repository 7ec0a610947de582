// Gradients of convolutions on GPUs, whose rules are not the CPU's: first and second order beside the CPU's, by our own
// kernels and by the vendors' calls for the kernel's gradient.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, Device, gradOf, randn, scope, type Tensor } from '../src/index.js';
import { standInCalls } from '../src/stand-ins/library.js';

type Options = Parameters<Tensor['conv2d']>[1] & Parameters<Tensor['convTranspose2d']>[1];
interface Setting {
  readonly x: readonly number[];
  readonly w: readonly number[];
  readonly options: Options;
}
const PLAIN: Readonly<Record<string, Setting>> = {
  'a stride that leaves pixels over': { x: [2, 3, 8, 9], w: [4, 3, 2, 3], options: { stride: [3, 2] } },
  'padding and dilation that differ': {
    x: [2, 3, 7, 6],
    w: [5, 3, 3, 2],
    options: { padding: [2, 1], dilation: [1, 3], stride: [2, 1] },
  },
  'groups of several channels': { x: [3, 6, 5, 6], w: [9, 2, 2, 3], options: { groups: 3, padding: [1, 0] } },
  'a group a channel': { x: [2, 4, 6, 5], w: [8, 1, 3, 3], options: { groups: 4, stride: [1, 2], padding: [1, 1] } },
  'tiles of many channels': { x: [2, 20, 6, 5], w: [36, 10, 3, 3], options: { groups: 2, padding: [1, 1] } },
  'one image': { x: [1, 2, 4, 4], w: [2, 2, 3, 3], options: {} },
};
const TRANSPOSED: Readonly<Record<string, Setting>> = {
  'a stride': { x: [2, 4, 3, 4], w: [4, 3, 3, 2], options: { stride: [2, 3], padding: [1, 0], outputPadding: [1, 2] } },
  'groups and dilation': { x: [2, 4, 3, 4], w: [4, 2, 2, 3], options: { groups: 2, dilation: [2, 1] } },
  'an output padding beyond the stride': {
    x: [2, 4, 3, 4],
    w: [4, 2, 2, 3],
    options: { groups: 2, padding: [1, 0], dilation: [3, 2], outputPadding: [2, 1] },
  },
};

/** The operand in a layout that is dense nowhere. */
const spread = (t: Tensor): Tensor => t.repeatInterleave(2, t.rank - 1).slice(t.rank - 1, 1, undefined, 2);

/** Gradients by operands, and those of a number made of them by operands and what flowed in. */
function gradients(
  op: 'conv2d' | 'convTranspose2d',
  { x, w, options }: Setting,
  device: Device,
  dtype: DType,
): Float64Array[] {
  const drawn = (shape: readonly number[], seed: number): Tensor =>
    randn([...shape], { dtype: 'f64', device: 'cpu', seed })
      .cast(dtype)
      .to(device);
  const [image, kernel] = [spread(drawn(x, 1)).requireGrad(), spread(drawn(w, 2)).requireGrad()];
  const made = image[op](kernel, options);
  const above = spread(drawn(made.shape, 3)).requireGrad();
  const first = gradOf(made, [image, kernel], { grad: above, createGraph: true });
  const total = first[0]
    .mul(drawn(x, 4))
    .sum()
    .add(first[1].mul(drawn(w, 5)).sum());
  return [...first, ...gradOf(total, [image, kernel, above])].map((t) => t.cast('f64').dataSync('f64'));
}

interface Run {
  readonly name: string;
  readonly dtype: DType;
  /** The vendor's call for the kernel's gradient. */
  readonly call?: string;
}
const RUNS: readonly Run[] = [
  { name: 'sim:32', dtype: 'f64' },
  { name: 'sim:64', dtype: 'f64' },
  { name: 'sim:32+cublaslt+cudnn', dtype: 'f64', call: 'cudnnConvolutionBackwardFilter' },
  { name: 'sim:32+hipblaslt+rocblas+miopen', dtype: 'f32', call: 'miopenConvolutionBackwardWeightsImmediate' },
];
for (const { name, dtype, call } of RUNS)
  for (const [op, settings] of [
    ['conv2d', PLAIN],
    ['convTranspose2d', TRANSPOSED],
  ] as const)
    for (const [what, setting] of Object.entries(settings))
      test(`gradients of ${op} with ${what} on ${name}`, () =>
        scope(() => {
          const calls = (): number => (call ? (standInCalls.get(call) ?? 0) : 0);
          const before = calls();
          const want = gradients(op, setting, Device.cpu(), dtype);
          const got = gradients(op, setting, Device.get(name), dtype);
          if (call) assert.ok(calls() > before, `${call} was not called`);
          for (const [i, values] of got.entries()) {
            assert.equal(values.length, want[i].length);
            const most = (dtype === 'f64' ? 1e-12 : 2e-6) * want[i].reduce((m, v) => Math.max(m, Math.abs(v)), 1);
            values.forEach((v, at) => {
              assert.ok(Math.abs(v - want[i][at]) <= most, `gradient ${i}[${at}]: ${v}, not ${want[i][at]}`);
            });
          }
        }));
