// What plans would launch, a line a step: every family's samples and sizes beyond them, in the layouts that tensors
// have, on devices on paper. Nothing runs, so sizes may be as large as they like and GPUs as rare.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import { packageRoot } from '../src/base/paths.js';
import type { View } from '../src/backends/backend.js';
import { PLANNED, planRow } from '../src/backends/gpu/families.js';
import type { Served } from '../src/backends/gpu/libraries.js';
import type { DeviceInfo } from '../src/driver/driver.js';
import type { KernelRow, RunRow, Sample } from '../src/ops/op.js';
import { storeRow } from '../src/ops/store.js';
import { opList, OPS } from '../src/ops/table.js';
import { TRAINING_ROWS } from '../src/ops/training.js';
import { callLines } from './launch-calls.js';
import { device, edgeLines } from './launch-edges.js';
import { callText, placesOf, SLOT, stepText } from './launch-text.js';

export const ON_PAPER = [
  device('sm_90', 32, 132, 232448),
  device('sm_80', 32, 108, 166912),
  device('gfx90a', 64, 104, 65536),
  device('gfx1030', 32, 40, 65536),
];

/** Sizes at which another kernel serves, or the same one cuts its work in another way; null is the dtype in turn. */
type Larger = readonly (readonly [
  op: string,
  inputs: readonly (readonly [shape: readonly number[], dtype: DType | null])[],
  params: object,
])[];
const MATRICES = [
  [4, 100000],
  [4096, 4096],
  [4096, 1024],
  [1000, 20000],
  [30000, 33],
  [300, 200, 128],
] as const;
const ATTENTION = { layout: 'bthd', scale: 0.125, softcap: 0, left: -1, right: 0, extras: [], longest: [0, 0] };
const BLOCK_BYTES = { Q4_0: 18 / 32, Q8_0: 34 / 32, Q4_K: 144 / 256, Q6_K: 210 / 256 };
const plain = (...shapes: readonly (readonly number[])[]) => shapes.map((shape) => [shape, null] as const);
const LARGER: Larger = [
  ...[
    [1, 4096, 4096],
    [8, 512, 304],
    [64, 64, 65536],
    [4096, 4096, 1024],
    [200, 130, 72],
    [130, 200, 2056],
  ].map(([m, n, k]) => ['bmm', plain([m, k], [k, n]), {}] as const),
  ['bmm', plain([3, 5, 200, 64], [3, 5, 64, 40]), {}],
  ['bmm', plain([70000, 2, 16], [70000, 16, 4]), {}],
  ['bmm', plain([6, 64, 8192], [6, 8192, 64]), {}],
  ...MATRICES.flatMap((shape) =>
    [shape.length - 1, 0].flatMap(
      (dim): Larger => [
        ...['sum', 'max', 'argmax'].map((op) => [op, plain(shape), { dims: [dim], keepdim: false }] as const),
        ...['softmax', 'logSoftmax'].map((op) => [op, plain(shape), { dim }] as const),
        ['softmaxBackward', plain(shape, shape), { dim }],
        ['cumsum', plain(shape), { dim, reverse: false, exclusive: false }],
        ['cumsum', plain(shape), { dim, reverse: true, exclusive: true }],
        ['argsort', plain(shape), { dim, descending: dim === 0 }],
      ],
    ),
  ),
  ...MATRICES.flatMap((shape): Larger => {
    const [cols, eps] = [shape.slice(-1), 1e-5];
    return [
      ['layerNorm', plain(shape, cols, cols), { eps, weight: true, bias: true }],
      ['rmsNorm', plain(shape, cols), { eps, weight: true, bias: false }],
      ['layerNormBackward', plain(shape, shape, cols), { eps, weight: true, bias: false }],
      ['layerNormGrads', plain(shape, shape, cols), { eps, weight: true, bias: true }],
      ['rmsNormBackward', plain(shape, shape, cols), { eps, weight: true, bias: false }],
    ];
  }),
  ...[64, 96, 128, 256].flatMap((dim) =>
    [1, 4, 5, 700].flatMap((rows): Larger => {
      const [q, k, sums] = [
        [2, rows, 12, dim],
        [2, 900, 3, dim],
        [2, 12, rows],
      ];
      return [
        ['sdpaRun', plain(q, k, k), ATTENTION],
        ['sdpaRun', plain(q, k, k), { ...ATTENTION, softcap: 30, left: 127 }],
        ['sdpaBackward', plain(q, k, k, q, sums, sums), ATTENTION],
        ['sdpaBackward', plain(q, k, k, q, sums, sums), { ...ATTENTION, softcap: 30 }],
        ['sdpaDelta', plain(q, q), { layout: 'bthd' }],
      ];
    }),
  ),
  ...Object.entries(BLOCK_BYTES).flatMap(([type, bytes]) =>
    [1, 2, 5, 8, 24, 100].flatMap((m) =>
      [true, false].map(
        (quick) =>
          [
            'qmatmul',
            [
              [[m, 4096], null],
              [[6144, 4096 * bytes], 'u8'],
            ],
            { type, quick },
          ] as const,
      ),
    ),
  ),
  ...[1, 7, 600].map(
    (m) =>
      [
        'matmulExperts',
        [
          [[m, 1, 512], null],
          [[16, 384, 512], null],
          [[m, 4], 'i64'],
        ],
        {},
      ] as const,
  ),
  ...[1, 3, 6, 8, 20, 128].map(
    (width) =>
      [
        'storeRows',
        [
          [[64, width], null],
          [[5], 'i32'],
          [[5, width], null],
        ],
        {},
      ] as const,
  ),
];

// ---- elementwise ----

const laid = (shape: readonly number[], strides: readonly number[], offset = 0): Layout =>
  new Layout(shape, strides, offset);
const FAR = 2 ** 30;
/** Ops with the layouts of output and inputs: flat, in groups, strided, turned by tiles, and too far for 32 bits. */
const ELEMENTWISE: readonly (readonly [op: 'exp' | 'add' | 'where', out: Layout, ...inputs: Layout[]])[] = [
  ['exp', laid([9, 1001], [1001, 1]), laid([9, 1001], [1001, 1], 3)],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [1, 64])],
  ['exp', laid([64, 96], [1, 64]), laid([64, 96], [96, 1])],
  ['exp', laid([65, 97], [97, 1]), laid([65, 97], [1, 65])],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [1, 64], 1)],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [1, 66])],
  ['exp', laid([15, 96], [96, 1]), laid([15, 96], [1, 15])],
  ['exp', laid([16, 16], [16, 1]), laid([16, 16], [1, 16])],
  ['exp', laid([2, 5, 64, 96], [30720, 6144, 96, 1]), laid([2, 5, 64, 96], [6144, 12288, 1, 64])],
  ['exp', laid([16, 2 ** 31], [2 ** 31, 1]), laid([16, 2 ** 31], [1, 16])],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [104, 1])],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [104, 1], 1)],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [97, 1])],
  ['exp', laid([64, 96], [96, 1]), laid([64, 96], [192, 2])],
  ['exp', laid([64, 96], [97, 1]), laid([64, 96], [96, 1])],
  ['exp', laid([64, 98], [98, 1]), laid([64, 98], [104, 1])],
  ['exp', laid([3, 96], [96, 1]), laid([3, 96], [FAR, 1])],
  ['exp', laid([3, 96], [96, 1]), laid([3, 96], [FAR - 96, 1])],
  ['add', laid([64, 96], [96, 1]), laid([64, 96], [96, 1]), laid([64, 96], [0, 1])],
  ['add', laid([64, 96], [96, 1]), laid([64, 96], [96, 1]), laid([64, 96], [1, 0])],
  ['add', laid([64, 96], [96, 1]), laid([64, 96], [96, 1]), laid([64, 96], [3, 0], 5)],
  ['add', laid([64, 96], [96, 1]), laid([64, 96], [0, 0]), laid([64, 96], [96, 1])],
  ['add', laid([64, 96], [96, 1]), laid([64, 96], [1, 64]), laid([64, 96], [96, 1])],
  ['where', laid([64, 96], [96, 1]), laid([64, 96], [1, 0]), laid([64, 96], [96, 1]), laid([64, 96], [0, 1])],
];
const viewsOf = (layouts: readonly Layout[], dtypes: readonly DType[], from: number): View[] =>
  layouts.map((layout, i) => ({
    memory: { bytes: layout.end * bytesOf(dtypes[i]), address: (from + i) * SLOT },
    layout,
    dtype: dtypes[i],
  }));
const elementwiseLines = (): string[] =>
  (['f32', 'f16', 'u8', 'f64'] as const).flatMap((dtype) =>
    ELEMENTWISE.filter(([op]) => OPS[op].dtypes.includes(dtype as never)).flatMap(([op, out, ...inputs]) => [
      `# ${op} ${dtype} ${[out, ...inputs].map((l) => `[${l.shape}]/${l.strides}@${l.offset}`).join(' ')}`,
      ...planRow(
        OPS[op] as unknown as RunRow,
        viewsOf(
          inputs,
          inputs.map((_, i) => (op === 'where' && i === 0 ? 'u8' : dtype)),
          1,
        ),
        viewsOf([out], [dtype], 100),
        {},
        ON_PAPER[0],
      ).map(stepText),
    ]),
  );

// ---- all of them ----

const rowsOf = (): readonly KernelRow<any>[] =>
  [...opList, ...TRAINING_ROWS, storeRow].filter(
    (r): r is KernelRow<any> => r.family !== 'elementwise' && PLANNED.includes(r.family as never),
  );
const samplesOf = (row: KernelRow<any>): readonly Pick<Sample<any>, 'inputs' | 'params'>[] => [
  ...row.samples(),
  ...LARGER.filter(([op]) => op === row.name).map(([, inputs, params]) => ({
    inputs: inputs.map(([shape, dtype]) => ({ shape, ...(dtype && { dtype }) })),
    params,
  })),
];
/** Every dtype on the first device; on others the two that kernels treat most differently. */
const dtypesOf = (row: KernelRow<any>, on: DeviceInfo): readonly DType[] =>
  row.name === 'adamInPlace'
    ? ['f32']
    : row.dtypes.filter((d) => on === ON_PAPER[0] || d === 'f32' || d === 'f16' || row.dtypes.length === 1);
const linesOf = (row: KernelRow<any>, on: DeviceInfo, plan: typeof planRow, served?: Served): string[] =>
  dtypesOf(row, on).flatMap((dtype) =>
    samplesOf(row).flatMap(({ inputs, params }) => {
      if (inputs.some((s) => s.shape.includes(0))) return [];
      return placesOf(inputs).flatMap((place) => callText({ row, dtype, inputs, params, on }, { place, plan, served }));
    }),
  );
/** A library that serves whatever it is asked for. */
export const LIBRARY: Served = {
  product: (spec) => ({ spec: { ...spec, tf32: false }, description: '' }),
  convolution: (spec) => ({ spec: { ...spec, tf32: false }, workspaceBytes: 0, description: '' }),
  attention: (spec) => ({ spec: { ...spec, deterministic: true }, ways: [] }),
};
const BY_LIBRARY = ['matmul', 'conv', 'attention'];

/** Lines by device and op; ops whose plans ask nothing of the device stand under the first alone. */
export function launchLines(wanted: (op: string) => boolean, plan = planRow): Map<string, readonly string[]> {
  const rows = rowsOf().filter((r) => wanted(r.name));
  const all = ON_PAPER.flatMap((on) =>
    rows
      .filter((r) => on === ON_PAPER[0] || !['cast', 'copy', 'fill', 'random', 'pool'].includes(r.family))
      .map((r) => [`${on.arch} ${r.name}`, linesOf(r, on, plan)] as const),
  );
  const served = rows
    .filter((r) => BY_LIBRARY.includes(r.family))
    .map((r) => [`library ${r.name}`, linesOf(r, ON_PAPER[1], plan, LIBRARY)] as const);
  const chains = wanted('elementwise') ? [['elementwise', elementwiseLines()] as const] : [];
  return new Map([...all, ...served, ...chains]);
}
export const familiesOf = (ops: ReadonlySet<string>): Set<string> =>
  new Set(rowsOf().flatMap((r) => (ops.has(r.name) ? [r.family] : [])));

/** What plans launch, and what the stateful side of GPU work asks of a driver. */
export const allLines = async (
  wanted: (name: string) => boolean = () => true,
): Promise<Map<string, readonly string[]>> =>
  new Map([...launchLines(wanted), ...edgeLines(wanted), ...(await callLines(wanted))]);

// ---- the file ----

const FILE = join(packageRoot, 'test/launches.txt.br');
export async function writeLines(): Promise<number> {
  const lines = [...(await allLines())].flatMap(([key, all]) => [`## ${key}`, ...all]);
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_LGWIN]: 24 };
  writeFileSync(FILE, brotliCompressSync(lines.join('\n'), { params }));
  return lines.length;
}
export function readLines(): Map<string, readonly string[]> {
  const parts = brotliDecompressSync(readFileSync(FILE)).toString().slice(3).split('\n## ');
  return new Map(
    parts.map((part) => {
      const [key, ...lines] = part.split('\n');
      return [key, lines];
    }),
  );
}
