// `node dist/bench/quantized.js [--device cuda:0] [--columns 1,8,8e] [--json FILE]`: products with weights in ggml's
// blocks, as shares of reading their bytes; columns are rows of activations, with an e for exact products. Every step
// is named on stderr before it begins; one that takes longer than --limit seconds ends the process. With --check
// products of 1 to 8 rows are compared with those of decoded weights, and nothing is timed.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { CpuBackend } from '../src/backends/cpu.js';
import { table } from '../src/cli/table.js';
import { Device, noGrad, QTensor, randn, scope, type Tensor, zeros } from '../src/index.js';
import { commitNow } from '../src/parity/provenance.js';
import { watchSteps } from './steps.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    json: { type: 'string' },
    types: { type: 'string', default: 'Q8_0,Q4_0,Q4_K,Q6_K,MXFP4,Q5_K,Q2_K,IQ4_XS' },
    rows: { type: 'string' },
    values: { type: 'string', default: '4096' },
    columns: { type: 'string' },
    limit: { type: 'string', default: '120' },
    check: { type: 'boolean', default: false },
  },
});
const steps = watchSteps(Number(values.limit));
steps.begin(`opening ${values.device}`);
const device = Device.get(values.device as string);
const onCpu = device.backend instanceof CpuBackend;
const rows = Number(values.rows ?? (onCpu ? 4096 : 14336));
const width = Number(values.values);
/** Enough copies of the weights that no cache holds them: servers' CPUs have hundreds of MiB. */
const copiesFor = (bytes: number): number => (onCpu ? Math.ceil(2 ** 29 / bytes) : 8);

/**
 * Seconds of one product over several copies: on a GPU a recorded graph, so that launching from JavaScript does not
 * count.
 */
async function secondsOf(what: string, copies: number, step: (copy: number) => Tensor): Promise<number> {
  // A graph is long enough that the host launches the next one before it ends.
  const length = onCpu ? copies : 8 * copies;
  const all = (): void => scope(() => noGrad(() => void Array.from({ length }, (_, i) => step(i % copies).dispose())));
  steps.begin(`${what}: first run, kernels are compiled`);
  all();
  steps.begin(`${what}: waiting for the first run`);
  await device.sync();
  steps.begin(`${what}: recording`);
  const run = onCpu ? all : device.capture(all);
  steps.begin(`${what}: timing`);
  const once = (): void => (typeof run === 'function' ? run() : run.launch());
  let best = Infinity;
  for (let round = 0; round < 7; round++) {
    await device.sync();
    const begin = performance.now();
    const times = onCpu ? 1 : 4;
    for (let i = 0; i < times; i++) once();
    await device.sync();
    best = Math.min(best, (performance.now() - begin) / 1000 / times / length);
  }
  return best;
}

/** The largest difference of two results, as a share of the root of the second one's mean square. */
const differenceOf = (a: Tensor, b: Tensor): number => {
  const scale = Math.sqrt(b.mul(b).mean().item());
  return a.sub(b).abs().max().item() / scale;
};
/** Differences of quick and exact products of 1 to 8 rows from those with decoded weights. */
function check(type: string, weights: QTensor): void {
  const errors = { quick: [] as string[], exact: [] as string[] };
  scope(() => {
    const decoded = weights.dequantize('f32').t();
    for (let columns = 1; columns <= 8; columns++)
      scope(() => {
        steps.begin(`${type}, ${columns} rows: compared`);
        const x = randn([columns, width], { seed: 100 + columns })
          .to(device)
          .cast(onCpu ? 'f32' : 'bf16');
        const want = x.cast('f32').matmul(decoded);
        for (const kind of ['quick', 'exact'] as const) {
          const got = weights.matmul(x, { quick: kind === 'quick' }).cast('f32');
          errors[kind].push(differenceOf(got, want).toFixed(4));
        }
      });
  });
  for (const [kind, list] of Object.entries(errors)) console.log(`${type} ${kind}: ${list.join(' ')}`);
}

/** The same weights several times. */
function copiesOf(type: string, wanted: number | undefined): QTensor[] {
  if (type === 'F8_E4M3')
    return Array.from({ length: wanted ?? copiesFor(rows * width) }, (_, i) =>
      QTensor.quantize(randn([rows, width], { seed: i }).to(device), type),
    );
  steps.begin(`${type}: encoding on the CPU`);
  const few = QTensor.quantize(randn([64, width], { seed: 1 }), type).parts[0].blocks.bytesSync();
  const bytes = new Uint8Array((few.length / 64) * rows);
  for (let at = 0; at < bytes.length; at += few.length) bytes.set(few.subarray(0, bytes.length - at), at);
  const many = wanted ?? copiesFor(bytes.length);
  steps.begin(`${type}: ${many} copies to the device`);
  return Array.from({ length: many }, () => QTensor.fromBytes(type, [rows, width], bytes, device));
}

interface Result {
  readonly type: string;
  readonly columns: number;
  readonly kind: string;
  readonly us: number;
  readonly gbPerSecond: number;
  readonly ofRead: number;
  readonly teraOps: number;
}
const results: Result[] = [];
const best = async (once: () => unknown): Promise<number> => {
  let seconds = Infinity;
  for (let round = 0; round < 7; round++) {
    await device.sync();
    const begin = performance.now();
    once();
    await device.sync();
    seconds = Math.min(seconds, (performance.now() - begin) / 1000);
  }
  return seconds;
};
/** The yardstick in bytes a second: on the CPU reading alone; on a GPU a long copy to one place. */
async function yardstick(): Promise<number> {
  const cpu = device.backend;
  const bytes = onCpu ? 2 ** 29 : 2 ** 30;
  steps.begin('zeros');
  const [source, target] = Array.from({ length: onCpu ? 1 : 2 }, () => zeros([bytes / 2], { device, dtype: 'bf16' }));
  // Pages that were never written would all be one page.
  if (cpu instanceof CpuBackend) for (let at = 0; at < bytes; at += 4096) cpu.write(source.memory, at, ONE_BYTE);
  steps.begin(onCpu ? 'reading' : 'copy');
  const times = 8;
  const seconds =
    cpu instanceof CpuBackend
      ? await best(() => cpu.readBytes(source.memory, bytes))
      : (await best(() => {
          for (let i = 0; i < times; i++) target.assign(source);
        })) / times;
  for (const t of [source, target]) t?.dispose();
  return ((onCpu ? 1 : 2) * bytes) / seconds;
}
const ONE_BYTE = new Uint8Array([1]);
const bandwidth = await yardstick();

for (const type of (values.types as string).split(',')) {
  const copies = copiesOf(type, values.check ? 1 : undefined);
  const { bytes } = copies[0];
  if (values.check) {
    check(type, copies[0]);
    copies[0].dispose();
    continue;
  }
  for (const [columns, quick] of [
    [1, true],
    [2, true],
    [4, true],
    [8, true],
    [1, false],
    [8, false],
    [onCpu ? 64 : 2048, onCpu],
  ] as const) {
    if (values.columns && !values.columns.split(',').includes(`${columns}${quick ? '' : 'e'}`)) continue;
    const kind = quick ? 'quick' : 'exact';
    const x = randn([columns, width], { seed: 2 })
      .to(device)
      .cast(onCpu ? 'f32' : 'bf16');
    const seconds = await secondsOf(`${type}, ${columns} rows, ${kind}`, copies.length, (i) =>
      copies[i].matmul(x, { quick }),
    );
    const gb = bytes / seconds;
    results.push({
      type,
      columns,
      kind,
      us: seconds * 1e6,
      gbPerSecond: gb / 1e9,
      ofRead: gb / bandwidth,
      teraOps: (2 * columns * rows * width) / seconds / 1e12,
    });
    x.dispose();
  }
  for (const q of copies) q.dispose();
}
if (!onCpu && !values.columns && !values.check) {
  const x = randn([2048, width], { seed: 2 }).to(device).cast('bf16');
  const w = randn([rows, width], { seed: 3 }).to(device).cast('bf16');
  const seconds = await secondsOf('bf16, 2048 rows', 8, () => x.matmul(w.t()));
  results.push({
    type: 'bf16',
    columns: 2048,
    kind: 'plain',
    us: seconds * 1e6,
    gbPerSecond: (rows * width * 2) / seconds / 1e9,
    ofRead: (rows * width * 2) / seconds / bandwidth,
    teraOps: (2 * 2048 * rows * width) / seconds / 1e12,
  });
}
steps.end();
if (values.check) process.exit();
console.log(
  `${device.description}; ${onCpu ? 'reading' : 'copy'} ${(bandwidth / 1e9).toFixed(1)} GB/s; ` +
    `weights ${rows} x ${width}`,
);
console.log(
  table(
    ['type', 'rows of x', 'kind', 'us', 'GB/s of weights', onCpu ? 'of reading' : 'of copy', 'TOP/s'],
    results.map((r) => [
      r.type,
      r.columns,
      r.kind,
      r.us.toFixed(1),
      r.gbPerSecond.toFixed(1),
      r.ofRead.toFixed(2),
      r.teraOps.toFixed(2),
    ]),
  ),
);
if (values.json) {
  const record = {
    device: device.description,
    date: new Date().toISOString(),
    commit: commitNow(),
    rows,
    width,
    bandwidthGbPerSecond: bandwidth / 1e9,
    results,
  };
  writeFileSync(values.json, `${JSON.stringify(record, null, 1)}\n`);
}
