// Small products by our own kernels and by the vendor's library, of rows against a weight and of plain matrices:
// node dist/bench/small-products.js --device cuda:0 [--json FILE] [--quick]
// A row a shape: microseconds of each in a recorded row of products, and ours / the library's.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { Device, type DType, noGrad, randn, scope, type Tensor } from '../src/index.js';

const { values: v } = parseArgs({
  options: {
    device: { type: 'string', default: 'cuda:0' },
    json: { type: 'string' },
    quick: { type: 'boolean', default: false },
  },
});
const device = Device.get(v.device);
const backend = device.backend as GpuBackend;
const { libraries } = backend.context;
const IN_A_ROW = v.quick ? 2 : 32;

/** Microseconds of one product of a recorded row of them. */
function time(product: () => Tensor): number {
  const { device: gpu, stream } = backend.context;
  scope(() => void product()); // kernels are compiled, algorithms chosen
  const replay = backend.capture(() => {
    for (let i = 0; i < IN_A_ROW; i++) product().dispose();
  });
  const [start, end] = [gpu.createEvent(true), gpu.createEvent(true)];
  let best = Infinity;
  for (let i = 0; i < 5; i++) {
    gpu.record(start, stream);
    replay.launch();
    gpu.record(end, stream);
    gpu.synchronizeEvent(end);
    best = Math.min(best, gpu.elapsed(start, end));
  }
  for (const e of [start, end]) gpu.destroyEvent(e);
  replay.dispose();
  return (best * 1000) / IN_A_ROW;
}

const rows = v.quick ? [1, 16] : [1, 4, 8, 9, 16, 32, 64, 128, 256, 512];
const widths = v.quick ? [64] : [64, 256, 1024, 4096];
const results: Record<string, string | number>[] = [];
for (const dtype of ['bf16', 'f16', 'f32'] as const satisfies readonly DType[])
  for (const order of ['kk', 'kr'])
    for (const k of widths)
      for (const n of widths)
        scope(() => {
          const b =
            order === 'kk' ? randn([n, k], { dtype, device, seed: 1 }).t() : randn([k, n], { dtype, device, seed: 1 });
          for (const m of rows)
            noGrad(() => {
              const a = randn([m, k], { dtype, device, seed: 2 });
              const [own, library] = [false, true].map((served) => {
                libraries.products = served;
                return time(() => a.matmul(b));
              });
              const us = (x: number): number => Math.round(x * 100) / 100;
              const bound = Math.log2(m * n * k);
              results.push({
                dtype,
                order,
                m,
                n,
                k,
                log2: us(bound),
                own: us(own),
                library: us(library),
                ratio: us(own / library),
              });
            });
        });
console.log(`${device.name}: ${device.description}`);
for (const r of results) console.log(Object.values(r).join('\t'));
/** By size: how many are slower than the library, and by how much. */
for (const dtype of ['bf16', 'f16', 'f32'])
  for (let bound = 14; bound <= 32; bound += 2) {
    const below = results.filter(
      (r) => r.dtype === dtype && (r.log2 as number) < bound && (r.log2 as number) >= bound - 2,
    );
    if (below.length === 0) continue;
    const ratios = below.map((r) => r.ratio as number).sort((a, b) => a - b);
    const slow = below.filter((r) => (r.ratio as number) > 1.1).length;
    console.log(
      `${dtype}: 2^${bound - 2} to 2^${bound} multiplications: ${below.length} shapes, ${slow} slower by more than a ` +
        `tenth, median ${ratios[Math.floor(ratios.length / 2)]}, worst ${ratios[ratios.length - 1]}`,
    );
  }
if (v.json) writeFileSync(v.json, `${JSON.stringify({ device: device.description, results }, null, 1)}\n`);
