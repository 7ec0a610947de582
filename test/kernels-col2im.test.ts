// col2im1d, which is here under Candle's name and which no op of ours launches: windows that overlap add up.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unitOf } from '../src/backends/gpu/modules.js';
import { decode, SimRunner } from './sim-support.js';

for (const [batch, lengthIn, channels, kernel, stride] of [
  [1, 4, 1, 3, 1],
  [2, 5, 3, 4, 2],
  [1, 3, 2, 2, 3],
]) {
  test(`col2im1d_f32 of ${lengthIn} windows of ${kernel}, ${stride} apart, agrees with plain loops`, () => {
    const run = new SimRunner(32);
    const lengthOut = (lengthIn - 1) * stride + kernel;
    const src = Float32Array.from({ length: batch * lengthIn * channels * kernel }, (_, i) => (i * 7) % 11);
    const want = new Array<number>(batch * channels * lengthOut).fill(0);
    for (let b = 0; b < batch; b++)
      for (let l = 0; l < lengthIn; l++)
        for (let c = 0; c < channels; c++)
          for (let k = 0; k < kernel; k++) {
            want[(b * channels + c) * lengthOut + l * stride + k] +=
              src[((b * lengthIn + l) * channels + c) * kernel + k];
          }
    const out = run.buffer(want.length * 4);
    run.launch(unitOf('candle/conv', ['col2im1d_f32']), 'col2im1d_f32', 2, 32, [
      want.length,
      lengthOut,
      lengthIn,
      channels,
      kernel,
      stride,
      run.buffer(src),
      out,
    ]);
    assert.deepEqual(Array.from(decode('f32', run.read('f32', out, want.length)), Number), want);
    run.free();
  });
}
