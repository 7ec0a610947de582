// Promises of structured rows that sample sweeps do not reach: sentinels, bad indices, ties, NaN order, table lengths.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DType } from '../src/base/dtype.js';
import { Device, Tensor, tensor } from '../src/index.js';

const device = Device.reference();
const make = (v: number | number[] | number[][] | number[][][][], dtype: DType = 'f32'): Tensor =>
  tensor(v, { dtype, device });

test('the largest value of every index dtype reads 0 and writes nothing', () => {
  const x = make([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  const src = make([
    [10, 20],
    [30, 40],
  ]);
  for (const [dtype, top] of [
    ['u8', 255],
    ['i16', 32767],
    ['i32', 2 ** 31 - 1],
    ['u32', 2 ** 32 - 1],
  ] as const) {
    const ids = make(
      [
        [2, top],
        [top, 0],
      ],
      dtype,
    );
    assert.deepEqual(x.gather(1, ids).toArray(), [
      [3, 0],
      [0, 4],
    ]);
    assert.deepEqual(x.scatter(1, ids, src).toArray(), [
      [1, 2, 10],
      [40, 5, 6],
    ]);
    assert.deepEqual(x.scatterAdd(1, ids, src).toArray(), [
      [1, 2, 13],
      [44, 5, 6],
    ]);
    const some = make([1, top], dtype);
    assert.deepEqual(x.indexSelect(1, some).toArray(), [
      [2, 0],
      [5, 0],
    ]);
    assert.deepEqual(x.indexAdd(1, some, src).toArray(), [
      [1, 12, 3],
      [4, 35, 6],
    ]);
  }
});

test('an index out of range is an IndexError that says which and where', () => {
  const x = make([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  assert.throws(() => x.indexSelect(0, make([0, 2], 'u32')), {
    code: 'E_INDEX',
    message: 'indexSelect: index 2 at position 1 is out of range for a dimension of size 2',
  });
  assert.throws(() => x.gather(1, make([[-1], [0]], 'i64')), { code: 'E_INDEX', message: /index -1 at position 0/ });
});

test('scatter: the last write wins, and only it and untouched elements receive gradients', () => {
  const x = make([1, 2, 3], 'f64').requireGrad();
  const src = make([10, 20, 30], 'f64').requireGrad();
  const out = x.scatter(0, make([1, 1, 0], 'u32'), src);
  assert.deepEqual(out.toArray(), [30, 20, 3]);
  const grads = out.backward({ grad: make([100, 200, 300], 'f64') });
  assert.deepEqual(grads.of(x).toArray(), [0, 0, 300]);
  assert.deepEqual(grads.of(src).toArray(), [0, 200, 100]);
});

test('strided indices and values are read through their layout', () => {
  const x = make([
    [1, 2, 3],
    [4, 5, 6],
  ]).permute([1, 0]);
  const ids = make(
    [
      [2, 9],
      [0, 9],
    ],
    'u32',
  )
    .narrow(1, 0, 1)
    .reshape([2]);
  assert.deepEqual(x.indexSelect(0, ids).toArray(), [
    [3, 6],
    [1, 4],
  ]);
});

test('argsort is stable both ways, counts NaN as largest and signed zeros as equal', () => {
  const x = make([3, NaN, -0, 1, 0, NaN, 1]);
  assert.deepEqual(x.argsort().toArray(), [2, 4, 3, 6, 0, 1, 5]);
  assert.deepEqual(x.argsort(0, { descending: true }).toArray(), [1, 5, 0, 3, 6, 2, 4]);
});

test('rows longer than 8192 sort', () => {
  const n = 10001;
  const x = make(
    Array.from({ length: n }, (_, i) => (i * 7919) % n),
    'u32',
  );
  assert.deepEqual(
    x.sort()[0].toArray(),
    Array.from({ length: n }, (_, i) => i),
  );
});

test('topk gives the best first with their places, and refuses k beyond the size', () => {
  const [values, ids] = make([
    [3, 9, 4],
    [1, 0, 2],
  ]).topk(2, -1);
  assert.deepEqual(values.toArray(), [
    [9, 4],
    [2, 1],
  ]);
  assert.deepEqual(ids.toArray(), [
    [1, 2],
    [2, 0],
  ]);
  assert.throws(() => make([1, 2]).topk(3), { code: 'E_ARGUMENT' });
});

test('maxPool2d: of equal maxima the first takes the gradient; f16 keeps NaN, f32 passes over it', () => {
  const x = make(
    [
      [
        [
          [5, 5],
          [5, 1],
        ],
      ],
    ],
    'f64',
  ).requireGrad();
  assert.deepEqual(x.maxPool2d(2).sum().backward().of(x).toArray(), [
    [
      [
        [1, 0],
        [0, 0],
      ],
    ],
  ]);
  const nan = [
    [
      [
        [1, NaN],
        [2, 0],
      ],
    ],
  ];
  assert.equal(make(nan).maxPool2d(2).item(), 2);
  assert.ok(Number.isNaN(make(nan, 'f16').maxPool2d(2).item()));
});

test('maxPool2d padding never wins, avgPool2d padding counts as zeros', () => {
  const x = make([
    [
      [
        [-4, -8],
        [-12, -16],
      ],
    ],
  ]);
  assert.deepEqual(x.maxPool2d(2, 2, { padding: 1 }).toArray(), [
    [
      [
        [-4, -8],
        [-12, -16],
      ],
    ],
  ]);
  assert.deepEqual(x.avgPool2d(2, 2, { padding: 1 }).toArray(), [
    [
      [
        [-1, -2],
        [-3, -4],
      ],
    ],
  ]);
});

test('avgPool2d of integers neither wraps nor rounds up', () => {
  assert.equal(
    make(
      [
        [
          [
            [255, 255],
            [255, 254],
          ],
        ],
      ],
      'u8',
    )
      .avgPool2d(2)
      .item(),
    254,
  );
});

test('integer convolutions wrap', () => {
  const x = make([[[[200, 100]]]], 'u8');
  assert.equal(x.conv2d(make([[[[2, 1]]]], 'u8')).item(), (200 * 2 + 100) % 256);
});

test('rope reads tables longer than the sequence by their own length, for every batch', () => {
  const t = 2;
  const x = tensor([1, 0, 1, 0, 1, 0, 1, 0], { dtype: 'f32', device }).reshape([2, 1, t, 2]);
  const cos = tensor([1, 2, 3, 4, 5, 6], { dtype: 'f32', device }).reshape([2, 3, 1]);
  assert.deepEqual(x.rope(cos, cos.zerosLike()).reshape([8]).toArray(), [1, 0, 2, 0, 4, 0, 5, 0]);
});

test('a misspelt option is refused by name', () => {
  const x = make([
    [
      [
        [1, 2],
        [3, 4],
      ],
    ],
  ]);
  assert.throws(() => x.conv2d(x, { strides: 2 } as object), {
    code: 'E_ARGUMENT',
    message: /conv2d: unknown option "strides"/,
  });
});
