// Distances whose squares leave the range of their dtype, of equal rows, and of numbers that are none.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Device, scope, tensor } from '../src/index.js';
import { testDevices } from '../src/testing/devices.js';

for (const { name, device, missing } of testDevices('cpu,sim:32'))
  for (const [dtype, large] of [
    ['f32', 1e30],
    ['f64', 1e250],
  ] as const)
    test(
      `cdist on ${name} in ${dtype} keeps its digits where squares would not, and NaN and infinity`,
      {
        skip: missing,
      },
      () =>
        scope(() => {
          const on = { dtype, device: device as Device };
          const lists = [
            [3 * large, 4 * large],
            [3 / large, 4 / large],
            [0, 7 * large],
            [0, 0],
            [Infinity, 1],
            [NaN, 0],
          ];
          const got = tensor(lists, on)
            .cdist(tensor([[0, 0]], on))
            .flatten()
            .toArray<number[]>();
          const want = [5 * large, 5 / large, 7 * large, 0, Infinity, NaN];
          want.forEach((w, i) => {
            if (Number.isFinite(w)) assert.ok(Math.abs(got[i] - w) <= 1e-6 * w, `${lists[i]}: ${got[i]}, not ${w}`);
            else assert.ok(Object.is(got[i], w), `${lists[i]}: ${got[i]}, not ${w}`);
          });
          const x = tensor(
            [
              [1, 2],
              [3, 4],
            ],
            on,
          ).requireGrad();
          const slopes = x
            .cdist(tensor([[1, 2]], on))
            .sum()
            .backward()
            .of(x)
            .toArray<number[][]>();
          assert.deepEqual(slopes[0], [0, 0], 'equal rows have no direction');
          assert.ok(slopes[1].every((d) => Math.abs(d - Math.SQRT1_2) < 1e-6));
          // What flows back is divided by lengths whose inverse may be none of the dtype's numbers.
          const most = dtype === 'f32' ? 1e38 : 1e307;
          const root = Math.sqrt(most);
          for (const [far, flow] of [
            [most / 8, 1],
            [8 / most / (dtype === 'f32' ? 100 : 1), 1],
            [root * 1e6, 1e-2 / root],
            [1e-2 / root, root * 1e6],
            [1, 0],
          ]) {
            const at = tensor([[3 * far, 4 * far]], on).requireGrad();
            const length = at.cdist(tensor([[0, 0]], on));
            const [slope] = length
              .backward({ grad: length.detach().newFull([1, 1], flow) })
              .of(at)
              .toArray<number[][]>();
            const off = Math.hypot(slope[0] - 0.6 * flow, slope[1] - 0.8 * flow);
            assert.ok(off <= 1e-5 * flow, `${flow} at ${far}: ${slope}`);
          }
        }),
    );
