// The estimate of time from counts: formulas by hand, and a page that is made from what is kept.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { estimate, type LaunchCounts, residentWaves } from '../bench/amd-estimate.js';
import { ATTAINED, RATES } from '../bench/amd-rates.js';
import { noCounts, unitsOf } from '../src/emulator/counts.js';
import type { Instruction } from '../src/emulator/instruction.js';

const [mi300x] = RATES;
const launch = (more: Partial<LaunchCounts>): LaunchCounts => ({
  ...noCounts(),
  symbol: 'k',
  vgprs: 32,
  groupLds: 0,
  items: 256,
  wave: 64,
  ...more,
});

test('memory, vector and matrix times follow the formulas of the page, and the largest is the limit', () => {
  const clocks = mi300x.units * mi300x.clock * 1e3;
  const bytes = 1e9;
  const vector = estimate([launch({ vector: 1e6, vectorSlow: 1e6 })], bytes, 2, mi300x);
  assert.equal(vector.us.memory, (2 * bytes) / (mi300x.bandwidth * ATTAINED * 1e3));
  assert.equal(vector.us.vector, (2 * 5e6) / clocks);
  assert.equal(vector.limit, 'memory');
  assert.equal(vector.ofMemory, 1);
  const matrix = estimate([launch({ matrixFlops: 1e15 })], 1, 1, mi300x);
  assert.equal(matrix.limit, 'matrix');
  assert.equal(matrix.total, 1e9 / mi300x.matrix);
});

test('resident waves are limited by registers, by LDS and by the hardware', () => {
  assert.equal(residentWaves(launch({ vgprs: 30 }), mi300x), 8);
  assert.equal(residentWaves(launch({ vgprs: 129 }), mi300x), 3);
  assert.equal(residentWaves(launch({ groupLds: 32768 }), mi300x), 2);
  assert.equal(residentWaves(launch({ vgprs: 512, groupLds: 65536 }), mi300x), 1);
});

test('instructions are counted for the unit that executes them', () => {
  const units = (name: string, text = name): Record<string, number> =>
    Object.fromEntries(unitsOf({ name, text } as Instruction, 64));
  assert.deepEqual(units('v_add_f32'), { vector: 1 });
  assert.deepEqual(units('v_exp_f32'), { vectorSlow: 1 });
  assert.deepEqual(units('v_fma_f64'), { vectorSlow: 1 });
  assert.deepEqual(units('v_mfma_f32_32x32x8f16'), { matrixFlops: 2 * 32 * 32 * 8 });
  assert.deepEqual(units('v_wmma_f32_16x16x16_bf16'), { matrixFlops: 2 * 16 ** 3 });
  assert.deepEqual(units('ds_read_b128'), { lds: 1, ldsBytes: 64 * 16 });
  assert.deepEqual(units('ds_read2_b64'), { lds: 1, ldsBytes: 64 * 16 });
  assert.deepEqual(units('global_load_dwordx4'), { memory: 1 });
  assert.deepEqual(units('s_waitcnt', 's_waitcnt vmcnt(0)'), { waits: 1 });
  assert.deepEqual(units('s_waitcnt', 's_waitcnt lgkmcnt(0)'), {});
  assert.deepEqual(units('s_add_u32'), { scalar: 1 });
});
