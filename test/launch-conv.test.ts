// Which kernel a convolution of our own takes: tiles count pixels in 32 bits, so what is longer goes another way.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { valuesOf } from '../src/backends/gpu/plan.js';
import { type ConvShape, convLaunch } from '../src/backends/gpu/conv.js';

const TARGET = { warp: 32, multiprocessors: 132, arch: 'sm_90' };
const shape = (over: Partial<ConvShape>): ConvShape => ({
  batch: 1,
  groups: 1,
  channels: 32,
  outputs: 32,
  input: [1, 4096],
  output: [1, 4096],
  kernel: [1, 3],
  stride: [1, 1],
  padding: [0, 1],
  dilation: [1, 1],
  inputStrides: [1, 1, 1, 1],
  kernelStrides: [1, 1, 1, 1],
  bias: false,
  ...over,
});
const symbolOf = (over: Partial<ConvShape>): string => convLaunch(false, 'f32', shape(over), TARGET).launches[0].symbol;

describe('convolutions of our own', () => {
  test('of images that 32 bits count go by tiles', () => {
    assert.equal(symbolOf({}), 'conv_fma_f32');
    assert.equal(symbolOf({ input: [1, 2 ** 31 - 3], output: [1, 2 ** 31 - 3] }), 'conv_fma_f32');
  });
  test('with a longer dimension, a longer one after padding, or more pixels in all go element by element', () => {
    assert.equal(symbolOf({ input: [1, 2 ** 31], output: [1, 2 ** 31] }), 'conv_direct_f32');
    assert.equal(symbolOf({ input: [1, 2 ** 31 - 1], output: [1, 2 ** 31 - 1] }), 'conv_direct_f32');
    assert.equal(symbolOf({ input: [50000, 50000], output: [50000, 50000] }), 'conv_direct_f32');
    assert.equal(symbolOf({ batch: 4096, input: [1024, 1024], output: [1024, 1024] }), 'conv_direct_f32');
  });
  test('every end that a kernel may reach counts: padded images, results beside padding, strides and dilation', () => {
    const most = 2 ** 31 - 1;
    const bare = { kernel: [1, 1], padding: [0, 0] } as const;
    for (const [fits, longer] of [
      [{ input: [1, most] }, { input: [1, most + 1] }],
      [
        { input: [1, most - 4], padding: [0, 2] },
        { input: [1, most - 3], padding: [0, 2] },
      ],
      [
        { output: [1, most - 3], padding: [0, 3] },
        { output: [1, most - 2], padding: [0, 3] },
      ],
      [
        { output: [1, 2 ** 30], stride: [1, 2] },
        { output: [1, 2 ** 30], stride: [1, 2], kernel: [1, 2] },
      ],
      [
        { output: [1, 1], kernel: [1, 2 ** 30], dilation: [1, 2] },
        { output: [1, 2], kernel: [1, 2 ** 30], dilation: [1, 2] },
      ],
      [
        { output: [2 ** 30, 1], stride: [2, 1] },
        { output: [2 ** 30, 1], stride: [2, 1], kernel: [2, 1] },
      ],
    ] satisfies [Partial<ConvShape>, Partial<ConvShape>][]) {
      assert.equal(symbolOf({ ...bare, ...fits }), 'conv_fma_f32', JSON.stringify(fits));
      assert.equal(symbolOf({ ...bare, ...longer }), 'conv_direct_f32', JSON.stringify(longer));
    }
  });
  test('sizes of images reach the kernel in 64 bits', () => {
    const [l] = convLaunch(false, 'f32', shape({ input: [1, 2 ** 31 + 7], output: [1, 2 ** 31 + 7] }), TARGET).launches;
    const zero = (): number => 0;
    const struct = valuesOf(l, l.kernel.entry(l.variant), zero, zero)[4] as Uint8Array;
    const view = new DataView(struct.buffer, struct.byteOffset);
    assert.deepEqual(
      [0, 1, 2, 3].map((i) => view.getBigInt64(48 + 8 * i, true)),
      [1n, 2n ** 31n + 7n, 1n, 2n ** 31n + 7n],
    );
  });
});
