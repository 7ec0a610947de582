// Every op has numbers from an outside program in the repository, or a sentence that says what speaks for it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import '../src/index.js';
import { isFloat } from '../src/base/dtype.js';
import { opList, OPS } from '../src/ops/table.js';
import { Golden, packageRoot } from '../src/parity/golden.js';
import { UNVOUCHED, vouchers } from '../src/parity/sources.js';

test('every op is vouched for from outside, or says why not', () => {
  const all = vouchers();
  const unsaid = opList.filter((r) => !all.has(r.name) && !Object.hasOwn(UNVOUCHED, r.name)).map((r) => r.name);
  assert.deepEqual(unsaid, [], 'add cases to scripts/golden-breadth.py, or a sentence to src/parity/sources.ts');
  const vouched = Object.keys(UNVOUCHED).filter((name) => all.has(name) || !Object.hasOwn(OPS, name));
  assert.deepEqual(vouched, [], 'these have numbers by now, or are not ops: take their sentence away');
});

test('ops with gradients have some of them from outside', () => {
  const cases = new Golden(`${packageRoot()}/test/golden`, 'ops', 'breadth').cases.filter((c) => c.grads);
  const graded = new Set(cases.map((c) => c.op));
  // Gradients of these are tested by finite differences and by the gradients of the ops they serve.
  const secondOrder = ['castTo', 'sdpaPaged', 'slogdet'];
  const without = [...new Set(new Golden(`${packageRoot()}/test/golden`, 'ops', 'breadth').cases.map((c) => c.op))]
    .map((name) => OPS[name as keyof typeof OPS])
    .filter((r) => !r.noGrad && r.dtypes.some(isFloat) && !graded.has(r.name) && !secondOrder.includes(r.name))
    .map((r) => r.name)
    .filter((name) => !/Backward$|Delta$|^round$|^roundTo$/.test(name));
  assert.deepEqual(without, []);
});
