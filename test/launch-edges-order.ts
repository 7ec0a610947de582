// Where launches of what sorts, counts, picks, searches, scatters, transforms and measures distances turn; the helpers
// that such lists are made with.
import type { DType } from '../src/base/dtype.js';
import type { DeviceInfo } from '../src/driver/driver.js';

export type Input = readonly number[] | { readonly shape: readonly number[]; readonly dtype: DType };
export type Call = readonly [op: string, inputs: readonly Input[], params: object];
const of =
  (dtype: DType) =>
  (...shape: number[]) =>
    ({ shape, dtype }) as const;
export const [ids, words, floats] = [of('i64'), of('i32'), of('f32')];
const flags = of('bool');
/** Every way of taking one of each list. */
export const each = <T extends readonly (readonly number[])[]>(...lists: T): { [K in keyof T]: number }[] =>
  lists.reduce<number[][]>((all, list) => all.flatMap((some) => list.map((n) => [...some, n])), [[]]) as never;

/** Rows and columns, and how many of each are wanted. */
const first: Call[] = [
  ...each([1, 3, 1023, 1024, 1025], [2048, 2049, 4096, 4097, 32768, 32769, 36865, 65537], [1, 2048, 2049, 4096, 4097]),
  ...each([2], [8191, 8192, 16383, 16384, 16388], [2047, 2048, 2049, 4095, 4096, 4097]),
  ...each([7], [10 ** 6, 2 ** 31], [10]),
]
  .filter(([, cols, keep]) => keep <= cols)
  .flatMap(([rows, cols, keep]): Call[] => [
    ['argTop', [[rows, cols]], { dim: 1, descending: keep % 2 === 0, keep }],
    ...(rows === 3 ? [['argTop', [[cols, rows]], { dim: 0, descending: true, keep }] as const] : []),
    ...(keep === 1 ? [['argsort', [[rows, cols]], { dim: 1, descending: rows === 1 }] as const] : []),
  ]);

/** Tables of every number that a block holds, and rows of a block's share, of all blocks', and of more. */
const counts = (blocks: number): Call[] =>
  each(
    [1, 3],
    [1, 1025, 16384, 16385, 1024 * blocks, 1024 * blocks + 1, 16384 * blocks, 16384 * blocks + 1, 2 ** 32],
    [1, 1536, 1537, 6144, 6145, 12288, 12289],
  ).flatMap(([rows, n, bins]): Call[] => [
    ['countNumbers', [[rows, n]], { bins }],
    ['countBins', [[rows, n]], { bins, min: -1, max: 3 }],
  ]);

const searches = (blocks: number): Call[] => [
  ...each([1, 2048, 2049, 4096, 4097, 8192, 8193, 16384, 16385], [3, 4]).flatMap(([n, times]): Call[] => [
    ['searchsorted', [[n], [n * times + (times === 3 ? n - 1 : 0)]], { right: false }],
  ]),
  ...[256 * blocks, 256 * blocks + 1, 2 ** 31].map((n): Call => ['searchsorted', [[64], [n]], { right: true }]),
  ...[1, 3].map(
    (rows): Call => [
      'searchsorted',
      [
        [rows, 100],
        [rows, 500],
      ],
      { right: false },
    ],
  ),
];

const picks: Call[] = [[1], [4096], [4097], [3, 5, 7000], [2 ** 24], [2 ** 32 + 1]].flatMap((shape): Call[] => {
  const [n, before] = [shape.reduce((a, b) => a * b, 1), ids(Math.ceil(shape.reduce((a, b) => a * b, 1) / 4096) + 1)];
  return [
    ['flagStarts', [shape], {}],
    ['flagPlaces', [shape, before], { count: 17 }],
    ['flagTake', [shape, flags(...shape), before], { count: 17 }],
    ['flagPut', [[17], flags(...shape), before], {}],
    ['flagRuns', [[n], before, { shape: [n], dtype: 'u32' }], {}],
  ];
});

/** Lengths of every kind of steps, with and without room for gaps, of few rows and of more than a grid has. */
const transforms = (blocks: number): Call[] =>
  [1, 2, 4, 16, 30, 64, 251, 341, 342, 512, 1000, 1024, 1025, 1925, 1936, 2048, 2050, 3850, 3856, 4096]
    .flatMap((n) => [1, blocks, blocks + 1, 3 * blocks, 2 ** 23].map((rows) => [rows, n]))
    .flatMap(([rows, n]): Call[] => {
      const plain = { n, keep: n, inverse: false, real: false, scale: 1 };
      const x = n > 2048 ? floats(rows, n) : [rows, n]; // f64 ends there
      return [
        ['dft', [x, x], plain],
        ...(rows === 1
          ? ([
              ['dft', [x], { ...plain, keep: Math.floor(n / 2) + 1 }],
              ['dft', [x, x], { ...plain, inverse: true, real: true, scale: 0.5 }],
              ['dft', [x], { ...plain, inverse: true }],
            ] as const)
          : []),
      ];
    });

/** Rows in two passes, of which blocks take as many neighbours as there is room for. */
const longTransforms: Call[] = [8192, 15000, 65536, 2 ** 18, 2 ** 20, 2 ** 22].map((n) => [
  'dft',
  [[3, n]],
  { n, keep: n, inverse: false, real: false, scale: 1 },
]);

const distances: Call[] = each([1, 3], [1, 64, 65, 2 ** 20], [63, 64, 65, 2 ** 17], [1, 2]).map(([batch, n, m, p]) => [
  'rowDistances',
  [
    [batch, n, 5],
    [batch, m, 5],
  ],
  { p },
]);

/** Lanes, indices of each and places: what blocks hold in parts, what is sorted, and what a thread does. */
const scattered: Call[] = [
  ...each([1, 15, 16], [255, 256, 65536, 65537], [1, 2048, 2049, 4096, 4097, 16384, 16385, 32768, 32769]),
  ...each([31, 32, 63, 64, 127, 128], [65537], [2049, 4096, 4097]),
  ...each([16383, 16384, 2 ** 22, 2 ** 22 + 1], [300], [40]),
].flatMap(([lanes, count, places]): Call[] =>
  (['scatter', 'scatterAdd'] as const).flatMap((op): Call[] => [
    [op, [[lanes, places], ids(lanes, count), [lanes, count]], { dim: 1 }],
    [op, [[places, lanes], words(count, lanes), [count, lanes]], { dim: 0 }],
  ]),
);
const sums: Call[] = [
  ...each([1, 2, 3], [255, 256, 300], [40, 16385, 32769], [1]),
  ...each([1, 2], [8, 9, 5000], [40], [1, 128, 129, 2 ** 20]),
  ...each([65535, 65536], [9], [4], [3]),
].map(([left, n, places, right]) => [
  'indexAdd',
  right === 1 ? [[left, places], ids(n), [left, n]] : [[left, places, right], ids(n), [left, n, right]],
  { dim: 1 },
]);
const norms: Call[] = [
  ...each([1, 700], [5, 1000, 70000]).map((shape): Call => ['euclid', [shape], { dims: [1], keepdim: false }]),
  ...each([1, 3], [9, 100000], [8]).map((shape): Call => ['euclid', [shape], { dims: [1], keepdim: false }]),
];

/** By what a GPU has. */
export const ordered = ({ multiprocessors: n }: DeviceInfo): readonly Call[] => [
  ...first,
  ...counts(8 * n),
  ...searches(8 * n),
  ...picks,
  ...transforms(n),
  ...longTransforms,
  ...distances,
  ...scattered,
  ...sums,
  ...norms,
];
