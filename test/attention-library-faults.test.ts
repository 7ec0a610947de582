// A wrong descriptor of attention's graphs is refused by the stand-in, or its numbers tell.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CUDNN_GRAPH_NUMBERS as N } from '../src/driver/cudnn-graph.js';
import { type NativeArg } from '../src/driver/ffi.js';
import { cudnnStandIn } from '../src/stand-ins/cudnn.js';
import { Misuse } from '../src/stand-ins/library.js';
import { type AttentionCase } from '../scripts/cudnn-attention-cases.js';
import {
  altered,
  apart,
  attend,
  CASES,
  type Change,
  device,
  NEAR,
  open,
  swap,
  tampered,
} from './attention-library-cases.js';

const WRONG: Readonly<Record<string, Change>> = {
  'queries and dimension exchanged': [
    N.CUDNN_ATTR_TENSOR_DIMENSIONS,
    ([a, b, c, d], n) => (n === 0 ? [a, b, d, c] : undefined),
  ],
  'a stride of another layout': [
    N.CUDNN_ATTR_TENSOR_STRIDES,
    ([a, b, c, d], n) => (n === 0 ? [a, c, b, d] : undefined),
  ],
  'keys that are not turned': [N.CUDNN_ATTR_TENSOR_STRIDES, ([a, b, c, d], n) => (n === 1 ? [a, b, d, c] : undefined)],
  'two tensors of one number': [N.CUDNN_ATTR_TENSOR_UNIQUE_ID, swap(3, 2)],
  'a number that has no address': [N.CUDNN_ATTR_TENSOR_UNIQUE_ID, swap(4, 40)],
  'an alignment nobody keeps': [N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, () => [256]],
  'queries of another type': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, ([t], n) => (n === 0 ? [t === 9 ? 2 : 9] : undefined)],
  'numbers for truth values': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, swap(11, 0)],
  'a float for an index': [N.CUDNN_ATTR_TENSOR_DATA_TYPE, swap(4, 0)],
  'values in memory': [N.CUDNN_ATTR_TENSOR_IS_BY_VALUE, () => [0]],
  'a tensor between two nodes in memory': [N.CUDNN_ATTR_TENSOR_IS_VIRTUAL, (_, n) => (n === 0 ? [0] : undefined)],
  'rows for columns': [N.CUDNN_ATTR_POINTWISE_AXIS, swap(3, 2)],
  'an axis of heads': [N.CUDNN_ATTR_POINTWISE_AXIS, swap(2, 1)],
  'a bound that leaves out the query itself': [N.CUDNN_ATTR_POINTWISE_MODE, swap(303, 302)],
  'a window one too long': [N.CUDNN_ATTR_POINTWISE_MODE, swap(302, 303)],
  'scores that are added, not multiplied': [N.CUDNN_ATTR_POINTWISE_MODE, swap(1, 0)],
  'a mode of nobody': [N.CUDNN_ATTR_POINTWISE_MODE, swap(13, 77)],
  'the sum for the largest': [N.CUDNN_ATTR_REDUCTION_OPERATOR, swap(3, 0)],
  'the largest for the sum': [N.CUDNN_ATTR_REDUCTION_OPERATOR, swap(0, 3)],
  'products in 16 bits': [N.CUDNN_ATTR_MATMUL_COMP_TYPE, swap(0, 2)],
  'sums in 16 bits': [N.CUDNN_ATTR_REDUCTION_COMP_TYPE, swap(0, 2)],
  'a node less': [N.CUDNN_ATTR_OPERATIONGRAPH_OPS, (ops) => ops.slice(0, -1)],
  'nodes in another order': [N.CUDNN_ATTR_OPERATIONGRAPH_OPS, (ops) => [...ops].reverse()],
  'addresses exchanged': [N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, ([a, b, ...rest]) => [b, a, ...rest]],
  'an address less': [N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, (ids) => ids.slice(0, -1)],
  'an address that is no multiple of 16': [N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, ([a, ...rest]) => [a + 8, ...rest]],
  'no workspace': [N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, () => [0]],
};
describe('a wrong descriptor is refused, or its numbers tell', () => {
  const window: Partial<AttentionCase> = { batch: 2, heads: 4, kvHeads: 2, tq: 6, tk: 9, dim: 8, left: 3, right: 0 };
  const base = CASES[0];
  const runs = { forward: { ...base, ...window }, backward: { ...base, ...window, kind: 'backward' as const } };
  const found = (change: (args: NativeArg[]) => NativeArg[], c: AttentionCase): boolean => {
    let touched = false;
    const find = () =>
      tampered(cudnnStandIn(device), 'cudnnBackendSetAttribute', (args) => {
        const next = change(args);
        touched ||= next !== args;
        return next;
      });
    try {
      const far = apart(attend(open(find), c));
      return touched && !(far < NEAR);
    } catch (e) {
      if (e instanceof Misuse || e instanceof assert.AssertionError) return touched;
      throw e;
    }
  };
  for (const [kind, c] of Object.entries(runs))
    for (const [what, change] of Object.entries(WRONG)) {
      // The backward pass has no such nodes.
      if (kind === 'backward' && what.startsWith('the sum for')) continue;
      test(`${kind}: ${what}`, () => assert.ok(found(altered(change), c)));
    }
  for (const [kind, c] of Object.entries(runs))
    test(`${kind}: nothing wrong is nothing found`, () =>
      assert.ok(
        apart(
          attend(
            open(() => cudnnStandIn(device)),
            c,
          ),
        ) < NEAR,
      ));
});
