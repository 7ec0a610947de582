// Units for the simulation: what does not ask for the wave is compiled once for both sizes, what does is not.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import '../src/index.js';
import { elementwiseUnit, rowChain } from '../src/kernels/elementwise.js';
import { waveFor } from '../src/kernels/host-unit.js';
import { customUnit } from '../src/kernels/source.js';
import { unitOf } from '../src/backends/gpu/modules.js';
import { OPS } from '../src/ops/table.js';

test('units without a word about waves are the same for 32 and 64 lanes', () => {
  assert.equal(waveFor(elementwiseUnit([rowChain(OPS.exp, 'f32')]), 64), 32);
  assert.equal(waveFor(unitOf('candle/unary', ['uexp_f32']), 64), 32);
});
test('units that shuffle, vote or count lanes keep the wave asked for', () => {
  assert.equal(waveFor(unitOf('scan'), 64), 64);
  assert.equal(waveFor(unitOf('softmax'), 64), 64);
  const own = (body: string): number => waveFor(customUnit('mine', `KERNEL(256) mine(float* p) { ${body} }`), 64);
  assert.equal(own('p[threadIdx.x] = 1;'), 32);
  assert.equal(own('p[threadIdx.x] = lane_id();'), 64);
  assert.equal(own('p[0] = shfl_xor(p[0], 1, 2);'), 64);
  assert.equal(own('p[0] = WICK_WAVE;'), 64);
});
