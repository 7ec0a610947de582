// Launches where choices turn: sizes just below, at and just above the ones at which another kernel serves or work is
// cut in another way, up to what 32 bits do not count, on GPUs of many sizes. A bound that moves by one shows here.
import { ggmlType } from '../src/base/blocks/types.js';
import type { DType } from '../src/base/dtype.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { KernelRow } from '../src/ops/op.js';
import { BLOCK_TYPES } from '../src/ops/quantized.js';
import { opList } from '../src/ops/table.js';
import { TRAINING_ROWS } from '../src/ops/training.js';
import { type Call, each, floats, ids, type Input, ordered, words } from './launch-edges-order.js';
import { briefText, callText, type Place, stepText } from './launch-text.js';

/** A GPU by what plans ask of it. */
export const device = (arch: string, warp: number, multiprocessors: number, sharedPerBlockOptin: number): DeviceInfo =>
  ({ name: 'on paper', arch, warp, multiprocessors, sharedPerBlockOptin, tensorMaps: true }) as unknown as DeviceInfo;
/** From a workstation's to a data centre's, with and without matrix units, with waves of 32 and of 64. */
export const GPUS = [
  device('sm_90', 32, 132, 232448),
  device('gfx90a', 64, 104, 65536),
  device('gfx906', 64, 60, 65536),
  device('sm_75', 32, 40, 65536),
  device('sm_86', 32, 82, 101376),
  device('sm_100', 32, 148, 232448),
  device('sm_120', 32, 170, 101376),
  device('gfx942', 64, 304, 65536),
  device('gfx950', 64, 256, 163840),
  device('gfx1100', 32, 48, 65536),
];

/** Ops over rows of so many columns. */
const overRows = (shape: readonly number[]): Call[] => {
  const [cols, last, eps] = [shape.slice(-1), shape.length - 1, 1e-5];
  return [
    ['sum', [shape], { dims: [last], keepdim: false }],
    ['argmax', [shape], { dims: [last], keepdim: false }],
    ['softmax', [shape], { dim: last }],
    ['softmaxBackward', [shape, shape], { dim: last }],
    ['layerNorm', [shape, cols, cols], { eps, weight: true, bias: true }],
    ['rmsNorm', [shape, cols], { eps, weight: true, bias: false }],
    ['rmsNormBackward', [shape, shape, cols], { eps, weight: true, bias: false }],
    ['rmsNormGrads', [shape, shape, cols, shape], { eps, weight: true, bias: false, plus: true }],
    ['layerNormGrads', [shape, shape, cols], { eps, weight: true, bias: true }],
    ['cumsum', [shape], { dim: last, reverse: false, exclusive: false }],
    ['argsort', [shape], { dim: last, descending: false }],
  ];
};
const lengths = Array.from({ length: 16 }, (_, k) => 2 ** (k + 2)).flatMap((n) => [n - 1, n, n + 1, n + 8]);
const longRows: Call[] = lengths.flatMap((n) => overRows([1000, n]));

/** As many rows as a GPU has multiprocessors, and about as many; then as many as a grid takes at once. */
const rowCounts = ({ multiprocessors: n }: DeviceInfo): Call[] =>
  [1, n - 1, n, 2 * n - 1, 2 * n, 4 * n - 1, 4 * n, 65536, 2 ** 25 + 1].flatMap((rows) =>
    [96, 16384, 40000].flatMap((cols) => overRows([rows, cols])),
  );
/** As many chunks as are joined at most, and tiles as a grid has at most. */
const wholeGrids: Call[] = [
  ['sum', [[1, 2 ** 22, 8]], { dims: [1], keepdim: false }],
  ['sum', [[2 ** 22 + 1, 9, 2]], { dims: [1], keepdim: false }],
  ['rmsNorm', [[2 ** 28, 96], [96]], { eps: 1e-5, weight: true, bias: false }],
  ['rmsNorm', [[2 ** 28 + 1, 96], [96]], { eps: 1e-5, weight: true, bias: false }],
  ...[
    [65535, 96],
    [3, 8191],
    [3, 8192],
    [3, 8193],
  ].map((shape): Call => ['cumsum', [shape], { dim: 1, reverse: false, exclusive: false }]),
];
const columns: Call[] = each([1, 3, 700], [8, 9, 64, 65, 1000, 100000], [2, 3, 8, 256, 264, 4096]).flatMap(
  (shape): Call[] => [
    ['sum', [shape], { dims: [1], keepdim: false }],
    ['argmax', [shape], { dims: [1], keepdim: false }],
    ['cumsum', [shape], { dim: 1, reverse: true, exclusive: false }],
  ],
);

const products = ({ multiprocessors: n }: DeviceInfo): Call[] =>
  [
    ...each([1, 8, 9, 129], [5, 256, 4097], [8, 511, 1024, 32768]),
    ...each([128 * (n - 1), 128 * n], [128, 256], [64, 4096]),
    ...each([64 * (n - 1), 64 * n], [64], [4095]),
    ...each([64], [64], [511, 512, 1023, 1024, 2 ** 16, 2 ** 16 + 8]),
    [2 ** 31, 8, 8],
    [9, 300, 1],
  ].map(([m, cols, k]) => [
    'bmm',
    [
      [m, k],
      [k, cols],
    ],
    {},
  ]);
const batches: Call[] = (
  [
    [[65535], [65535]],
    [[65536], [65536]],
    [
      [3, 65536],
      [3, 65536],
    ],
    [
      [2, 1, 3],
      [2, 4, 3],
    ],
    [
      [2, 1, 3, 1, 2],
      [1, 3, 1, 2, 1],
    ],
    [
      [300, 1, 300],
      [1, 2, 300],
    ],
  ] as const
).map(([a, b]) => [
  'bmm',
  [
    [...a, 2, 16],
    [...b, 16, 4],
  ],
  {},
]);

/** Channels and outputs of a group, side of the kernel, groups; batch, side of the image. */
const convolutions: Call[] = [
  ...each([1, 2, 15, 16, 32], [15, 16, 130], [1, 3], [1, 2], [2], [20]),
  ...each([16], [16], [3], [65535, 65536], [1], [4]),
  ...each([16], [16], [1], [1], [2 ** 11, 2 ** 11 - 1], [1024]),
].flatMap(([channels, outputs, side, groups, batch, image]): Call[] => {
  const [all, x] = [outputs * groups, [batch, channels * groups, image, image]];
  const params = { groups, stride: [1, 1], padding: [1, 1], dilation: [1, 1] };
  const long = { groups, stride: [2], padding: [3], dilation: [2] };
  return [
    ['conv2d', [x, [all, channels, side, side], [all]], params],
    [
      'conv1d',
      [
        [batch, channels * groups, image ** 2],
        [all, channels, side],
      ],
      long,
    ],
    ['convTranspose2d', [x, [channels * groups, outputs, side, side]], { ...params, outputPadding: [0, 0] }],
  ];
});

const ATTENTION = { layout: 'bthd', scale: 0.125, softcap: 0, left: -1, right: 0, longest: [0, 0] };
const attention: Call[] = each([4, 5, 64, 65, 128, 129], [64, 65, 128, 136, 256], [1000]).flatMap(
  ([rows, dim, keys]): Call[] => {
    const [q, k, sums] = [[2, rows, 8, dim], [2, keys, 2, dim], floats(2, 8, rows)];
    const mask: Input = { shape: [2, 8, rows, keys], dtype: 'u8' };
    return [
      ['sdpaRun', [q, k, k], { ...ATTENTION, extras: [] }],
      ['sdpaRun', [q, k, k, mask], { ...ATTENTION, extras: ['mask'] }],
      ['sdpaRun', [q, k, k, mask], { ...ATTENTION, extras: ['mask'], softcap: 30 }],
      ['sdpaRun', [q, k, k, floats(8)], { ...ATTENTION, extras: ['slopes'], scale: -1 }],
      ['sdpaBackward', [q, k, k, q, sums, q], { ...ATTENTION, extras: [] }],
      ['sdpaBackward', [q, k, k, q, sums, q, floats(8)], { ...ATTENTION, extras: ['slopes'] }],
    ];
  },
);
/** Few queries, whose keys are split among blocks, and keys in 8 bits, which few queries alone read as they are. */
const decoding: Call[] = each([1, 2, 4, 5], [64, 136], [9000, 10 ** 6]).flatMap(([rows, dim, keys]): Call[] => {
  const [q, kept] = [[3, rows, 24, dim], { shape: [3, keys, 2, dim], dtype: 'f8e4m3' } as const];
  return [
    ['sdpaRun', [q, [3, keys, 2, dim], [3, keys, 2, dim]], { ...ATTENTION, extras: [] }],
    ['sdpaRun', [q, kept, kept], { ...ATTENTION, extras: [] }],
  ];
});
/** Sequences one behind another, and keys in pages. */
const packed: Call[] = [64, 80].flatMap((dim): Call[] => {
  const [q, k, params] = [[1, 300, 8, dim], [1, 400, 2, dim], { ...ATTENTION, longest: [200, 150] }];
  const starts = [words(4), words(4)];
  const [pages, table] = [
    [40, 16, 2, dim],
    [words(3), words(3, 12)],
  ];
  return [
    ['sdpaRun', [q, k, k, ...starts], { ...params, extras: ['qStarts', 'kStarts'] }],
    [
      'sdpaBackward',
      [q, k, k, q, floats(1, 8, 300), floats(1, 8, 300), ...starts],
      { ...params, extras: ['qStarts', 'kStarts'] },
    ],
    ...[1, 4, 5].map(
      (n): Call => [
        'sdpaRun',
        [[3, n, 8, dim], pages, pages, ...table],
        { ...ATTENTION, extras: ['lengths', 'pages'] },
      ],
    ),
  ];
});

const BLOCK_BYTES = { Q4_0: 18 / 32, Q6_K: 210 / 256 };
const blocks = Object.entries(BLOCK_BYTES).flatMap(([type, bytes]): Call[] => [
  ...each([1, 2, 8, 9, 16, 17, 64, 65], [15, 16, 6144], [256, 4096, 14336], [0, 1]).map(
    ([m, rows, n, quick]): Call => [
      'qmatmul',
      [[m, n], { shape: [rows, n * bytes], dtype: 'u8' }],
      { type, quick: quick === 1 },
    ],
  ),
  // Rows too long for a block to hold, rounded or not.
  ...each([1, 2, 8], [1000], [2 ** 16, 2 ** 17, 2 ** 18], [1]).map(
    ([m, rows, n]): Call => ['qmatmul', [[m, n], { shape: [rows, n * bytes], dtype: 'u8' }], { type, quick: true }],
  ),
  ...each([1, 7], [1, 8], [40, 700], [256, 2 ** 17], [0, 1]).map(
    ([tokens, chosen, rows, n, quick]): Call => [
      'qmatmulExperts',
      [[tokens, 1, n], { shape: [16, rows, n * bytes], dtype: 'u8' }, ids(tokens, chosen)],
      { type, quick: quick === 1 },
    ],
  ),
]);
/** Every type of blocks has tiles and rings of its own. */
const everyType: Call[] = BLOCK_TYPES.flatMap((type): Call[] => {
  const { block, bytes } = ggmlType(type);
  return each([1, 2, 4, 8, 20], [4096, 12288], [0, 1]).map(([m, n, quick]) => [
    'qmatmul',
    [[m, n], { shape: [6144, (n / block) * bytes], dtype: 'u8' }],
    { type, quick: quick === 1 },
  ]);
});
const float8: Call[] = each([1, 9], [7, 4096], [128, 4096, 4224, 8192]).map(([m, rows, n]) => [
  'f8matmul',
  [[m, n], { shape: [rows, n], dtype: 'f8e4m3' }, floats(rows, n / 128)],
  {},
]);
const experts: Call[] = [
  ...each([16, 17], [4], [8], [100, 128, 129, 256, 257], [8, 12, 512, 2048, 2056]),
  [65, 1, 3, 8, 0],
  [1, 1, 3, 1, 64],
  ...each([65], [1], [3999, 4000, 4001], [8], [64]),
].map(([tokens, chosen, all, rows, n]) => ['matmulExperts', [[tokens, 1, n], [all, rows, n], ids(tokens, chosen)], {}]);

const indexed: Call[] = [
  ...each([16383, 16384], [255, 256, 4096, 4097]).flatMap(([lanes, count]): Call[] =>
    (['scatter', 'scatterAdd'] as const).map((op) => [
      op,
      [[lanes, 5000], ids(lanes, count), [lanes, count]],
      { dim: 1 },
    ]),
  ),
  ...each([1, 5, 4096, 4097], [1, 3, 64]).map(
    ([n, right]): Call => ['indexAdd', [[9, 100, right], ids(n), [9, n, right]], { dim: 1 }],
  ),
  ...each([1, 3, 4, 6, 8, 16, 1024, 2 ** 20], [1, 2 ** 24]).map(
    ([width, count]): Call => ['indexSelect', [[100, width], words(count)], { dim: 0 }],
  ),
];
/** More elements than a grid has threads, and than 32 bits count. */
const large: Call[] = [2 ** 28, 2 ** 28 + 1, 2 ** 32].flatMap((n): Call[] => [
  ['castTo', [[n]], { dtype: 'f64' }],
  ['gather', [[n], ids(n)], { dim: 0 }],
  ['upsampleNearest2d', [[1, 1, 4, 4]], { size: [1, n] }],
  ['upsampleBilinear2d', [[1, 1, 4, 4]], { size: [1, n], alignCorners: true, scale: null }],
  ['sum', [[n]], { dims: [0], keepdim: false }],
  ['cumsum', [[n]], { dim: 0, reverse: false, exclusive: true }],
  ['argsort', [[n]], { dim: 0, descending: true }],
  ['softmax', [[1, n]], { dim: 1 }],
]);
const [small, big]: [number[], number[]] = [
  [5, 6],
  [8, 9],
];
const resampled: Call[] = [
  { size: big, alignCorners: false, scale: [1.5, 1.25] },
  { size: [1, 9], alignCorners: true, scale: null },
  { size: [2, 9], alignCorners: true, scale: null },
  { size: big, alignCorners: true, scale: [1.5, 1.25] },
].flatMap((params): Call[] => [
  ['upsampleBilinear2d', [[2, 3, ...small]], params],
  ['upsampleBilinear2dBackward', [[2, 3, ...params.size]], { ...params, inputSize: small }],
]);
const ADAM = { beta1: 0.9, beta2: 0.95, shrink: 0.5, rate: 0.25, eps: 0.125 };
const trained: Call[] = [
  ...[7, 8, 9, 14336, 2 ** 31].flatMap((n): Call[] => {
    const [state, copy]: Input[][] = [[floats(n), floats(n), floats(n), [n]], [{ shape: [n], dtype: 'bf16' }]];
    return [
      ['adamInPlace', state, { ...ADAM, scaled: false, copied: false, fed: false }],
      ['adamInPlace', [...state, floats(), floats(3), ...copy], { ...ADAM, scaled: true, copied: true, fed: true }],
      ['adamInPlace', [...state, floats(3)], { ...ADAM, scaled: false, copied: false, fed: true }],
    ];
  }),
  ...[2 ** 24 - 256, 2 ** 24, 2 ** 24 + 1, 2 ** 32].flatMap((n): Call[] => [
    ['randUniform', [], { shape: [n], dtype: 'f32', lo: -3, up: 5, seed: 7n, offset: 6n }],
    ['randNormal', [], { shape: [n], dtype: 'f32', mean: 3, std: 0.25, seed: 7n, offset: 6n }],
    ['droppedOut', [[n]], { seed: 7n, offset: 8n, p: 0.25 }],
    ['happens', [[n]], { seed: 7n, offset: 8n, p: 0 }],
  ]),
  ...[2 ** 18 - 1, 2 ** 18].map(
    (n): Call => ['randNormal', [], { shape: [n], dtype: 'f32', mean: 0, std: 1, seed: 7n, offset: 6n }],
  ),
  ...each([7, 65536, 65537], [96, 97, 1023, 1024, 1025, 50304]).flatMap(([rows, cols]): Call[] => [
    ['classLosses', [[rows, cols], ids(rows)], { ignore: -100, smoothing: 0.1, grad: false }],
    ...(['mean', 'none'] as const).flatMap((reduction): Call[] => {
      const [params, number] = [{ ignore: -100, smoothing: 0, reduction }, floats()];
      const [slopes, weights] = reduction === 'none' ? [floats(rows), []] : [number, [[cols]]];
      return [
        ['crossEntropyLoss', [[rows, cols], ids(rows), ...weights], params],
        ['classSlopes', [[rows, cols], ids(rows), floats(rows), number, slopes, ...weights], params],
        ['nllLoss', [[rows, cols], ids(rows), ...weights], params],
      ];
    }),
    [
      'swigluGrad',
      [
        [rows, 2 * cols],
        [rows, cols],
      ],
      {},
    ],
  ]),
  ...each([3, 65536], [2048, 2049, 65536]).map(
    ([rows, cols]): Call => ['firstToRing', [[rows, cols]], { seed: 7n, offset: 8n, p: 0 }],
  ),
  ...[16384, 16385, 2 ** 21 - 1, 2 ** 21 + 1].map(
    (rows): Call => ['nllLoss', [[rows, 8], ids(rows)], { ignore: -100, smoothing: 0, reduction: 'sum' }],
  ),
  ...[2 ** 18 - 256, 2 ** 18, 2 ** 18 + 1].map((n): Call => ['squareSums', [[n]], {}]),
  ...[2 ** 15 - 1, 2 ** 15, 2 ** 24, 2 ** 32].map(
    (n): Call => [
      'bmm',
      [
        [1, n],
        [n, 1],
      ],
      {},
    ],
  ),
  ['biasedProduct', [[300, 64], [64, 200], [200]], {}],
  ['biasedProduct', [[9, 8192], [8192, 64], [64]], {}],
];
/** Heads of a token that lie together within wider rows, and turned back. */
const turned: Call[] = [64, 72, 128].flatMap((dim): Call[] =>
  (['rope', 'ropeI', 'ropeThd'] as const).map((op) => [
    op,
    [
      [2, 6, 6, dim],
      [9, dim / 2],
      [9, dim / 2],
    ],
    { back: dim === 72 },
  ]),
);

/** No elements to add up: results are what sums begin with. */
const nothing: Call[] = [
  [
    'bmm',
    [
      [3, 0],
      [0, 5],
    ],
    {},
  ],
  ['sum', [[3, 0]], { dims: [1], keepdim: false }],
  ['prod', [[3, 0]], { dims: [1], keepdim: false }],
  ['sum', [[3, 5]], { dims: [], keepdim: false }],
  ['conv2d', [[2, 0, 5, 6], [4, 0, 3, 3], [4]], { groups: 1, stride: [1, 1], padding: [0, 0], dilation: [1, 1] }],
  ['scatterAdd', [[4, 5], ids(4, 0), [4, 0]], { dim: 1 }],
  ['indexAdd', [[4, 5], ids(0), [0, 5]], { dim: 0 }],
  [
    'sliceScatter',
    [
      [4, 5],
      [0, 5],
    ],
    { dim: 0, start: 1 },
  ],
  [
    'sdpaRun',
    [
      [2, 9, 8, 64],
      [2, 0, 2, 64],
      [2, 0, 2, 64],
    ],
    { ...ATTENTION, extras: [] },
  ],
];

/** What a GPU decides, and what none does. */
const everywhere = (on: DeviceInfo): readonly Call[] => [
  ...rowCounts(on),
  ...products(on),
  ...attention,
  ...decoding,
  ...packed,
  ...wholeGrids,
  ...blocks,
  ...float8,
  ...experts,
];
const ONCE: readonly Call[] = [
  ...longRows,
  ...columns,
  ...batches,
  ...convolutions,
  ...indexed,
  ...large,
  ...resampled,
  ...trained,
  ...turned,
  ...everyType,
  ...nothing,
];

const ROWS = new Map([...opList, ...TRAINING_ROWS].map((row) => [row.name, row as KernelRow<any>]));
const placesOf = (op: string): readonly Place[] => (op === 'bmm' ? ['contiguous', 'turned'] : ['contiguous']);
/** Which memory an optional operand is shows in whole steps. */
const textOf = (op: string) => (op === 'adamInPlace' || op === 'rmsNormGrads' ? stepText : briefText);
const linesOf = (calls: readonly Call[], on: DeviceInfo, dtypes: readonly DType[]): string[] =>
  calls.flatMap(([op, given, params]) => {
    const row = ROWS.get(op) as KernelRow<any>;
    const inputs = given.map((x) => ('shape' in x ? x : { shape: x }));
    return dtypes
      .filter((d) => row.dtypes.includes(d))
      .flatMap((d) =>
        placesOf(op).flatMap((place) => callText({ row, dtype: d, inputs, params, on }, { place, text: textOf(op) })),
      );
  });
/** Lines by device and op. */
export function edgeLines(wanted: (op: string) => boolean): Map<string, readonly string[]> {
  const lines = new Map<string, readonly string[]>();
  const add = (name: string, calls: readonly Call[], on: DeviceInfo, dtypes: readonly DType[]): void => {
    for (const op of new Set(calls.map(([name]) => name)))
      if (wanted(op))
        lines.set(
          `${on.arch} ${name} ${op}`,
          linesOf(
            calls.filter(([name]) => name === op),
            on,
            dtypes,
          ),
        );
  };
  for (const on of GPUS) add('edges', everywhere(on), on, ['f16', 'f32']);
  // Waves of 64 and fewer registers are the other two.
  for (const on of GPUS.slice(0, 3)) add('sizes', ONCE, on, on === GPUS[0] ? ['f16', 'f32', 'f64'] : ['f16', 'f32']);
  for (const on of GPUS.slice(0, 2)) add('order', ordered(on), on, ['u8', 'i32', 'f16', 'f32', 'f64']);
  return lines;
}
