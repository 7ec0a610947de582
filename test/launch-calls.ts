// What the stateful side of GPU work asks of a driver: decoding steps, drawing, prompts, plans, streams and uploads, on
// a GPU that does nothing, a line a call. Streams and events stand in the lines, too: a simulation that runs everything
// at once cannot tell that a wait is missing.
import { ggmlType } from '../src/base/blocks/types.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import type { RunRow } from '../src/ops/op.js';
import { BLOCK_TYPES } from '../src/ops/quantized.js';
import { OPS } from '../src/ops/table.js';
import { WAITS } from './launch-waits.js';
import { machine, type Program, refused } from './watched-gpu.js';

const MACHINES: readonly (readonly [arch: string, warp?: number, multiprocessors?: number, shared?: number])[] = [
  ['sm_90'],
  ['sm_80', 32, 108],
  ['gfx90a', 64, 104],
  ['gfx1030', 32, 40],
  ['sm_75', 32, 40, 65536],
  ['sm_100', 32, 148],
  ['sm_120', 32, 171, 101376],
  ['gfx942', 64, 304],
  ['gfx1100', 32, 48],
];

const decoding =
  (dtype: 'f32' | 'f16'): Program =>
  ({ backend, view }) => {
    const d = backend.decodeSteps(dtype);
    const [state, x, out, residual] = [view('i32', 4), view(dtype, 512), view(dtype, 768), view(dtype, 768)];
    const norm = { weight: view(dtype, 512), eps: 1e-5 };
    const wide = { weight: view('f32', 512), eps: 1e-6 };
    const [bias, best] = [view(dtype, 768), view('i64', 1)];
    d.embed(view(dtype, 1000, 512), state, x, 2.5);
    d.store(view(dtype, 4, 64), state, view(dtype, 1, 4, 300, 64));
    d.join({ x, norm, residual: x, out: view(dtype, 512) });
    for (const weight of [view(dtype, 768, 512), view(dtype, 772, 2048)]) {
      d.product({ x, weight, out });
      d.product({ x, weight, out, norm, bias, residual, best });
      d.gate({ x, weight, out, norm: wide, activation: 'gelu' });
    }
    for (const type of BLOCK_TYPES) {
      const { block, bytes } = ggmlType(type);
      // The last set of rows is not whole.
      const odd = view('u8', 771, (512 / block) * bytes);
      d.product({ x, weight: odd, type, out });
      d.product({ x, weight: { ...odd, layout: odd.layout.slice(0, 0, 3) }, type, out });
      const weight = view('u8', 768, (512 / block) * bytes);
      d.product({ x, weight, type, out, norm: wide, bias, residual, best });
      d.gate({ x, weight, type, out, norm, activation: 'silu' });
    }
    const logits = view('f32', 8);
    const choice = { experts: 8, chosen: 2, score: 'sigmoid', weights: 'normalised', factor: 2.5 } as const;
    const guarded = { ...choice, bias: view('f32', 8), sumGuard: { add: 1e-20, least: 1e-9 } };
    d.router({ x, norm, weight: view('f32', 8, 512), bias: view('f32', 8), logits });
    const gates = { choice: guarded, logits, x, out, norm: wide, activation: 'silu' };
    const other = { ...choice, score: 'softmax', weights: 'kept' } as const;
    for (const each of [other, { ...other, weights: 'normalised' } as const])
      d.chosenSum({ choice: each, logits, x: out, out: x, residual, weight: view(dtype, 8, 512, 512) });
    const sum = { choice, logits, x: out, out: x, residual };
    for (const every of [0, 640]) {
      const [gateUp, down] = every ? [view(dtype, 2 * every, 512), view(dtype, 512, every)] : [];
      d.chosenGate({ ...gates, weight: view(dtype, 8, 384, 512), shared: gateUp });
      d.chosenGate({ ...gates, weight: view(dtype, 8, 388, 512), shared: every ? view(dtype, 1284, 512) : undefined });
      d.chosenSum({ ...sum, weight: view(dtype, 8, 512, 512), shared: down });
    }
    for (const [heads, kvHeads, dim, sequences, pageTokens] of [
      [8, 8, 64, 1, 0],
      [12, 2, 80, 1, 0],
      [16, 4, 128, 1, 0],
      [32, 4, 128, 3, 16],
      [16, 4, 128, 5, 32],
      [16, 4, 256, 2, 8],
      [32, 4, 64, 2, 16],
    ]) {
      const steps = backend.decodeSteps(dtype, sequences);
      const [kept, room] = [kvHeads * dim, 4096];
      const cache = (): View => (pageTokens ? view(dtype, room, kept) : view(dtype, 1, kvHeads, room, dim));
      steps.attend({
        ...{ qkv: view(dtype, (heads + 2 * kvHeads) * dim), cos: view('f32', room, dim / 2), sin: view('f32', 9, 9) },
        ...{ state, keys: cache(), values: cache(), out: view(dtype, sequences, heads, 1, dim) },
        ...{ partial: view('f32', 2 ** 20), arrived: view('i32', heads) },
        ...(heads === 16 && { qNorm: view('f32', dim), kNorm: view('f32', dim), eps: 1e-6, window: 1000, softcap: 30 }),
        ...(pageTokens && { paged: { table: view('i32', sequences, 64), pageTokens, room } }),
      });
    }
    for (const [heads, rank, values] of [
      [20, 512, 128],
      [16, 128, 16],
      [17, 1032, 17],
    ])
      d.attendLatent({
        ...{ heads, nope: 128, turned: 64, rank, values, eps: 1e-6, scale: 0.07 },
        ...{ queries: view(dtype, heads, 192), latent: view(dtype, rank + 64), norm: view('f32', rank) },
        ...{ keyUp: view(dtype, heads, 128, rank), valueUp: view(dtype, heads, values, rank) },
        ...{ cos: view('f32', 99, 32), sin: view('f32', 99, 32), state, latents: view(dtype, 99, rank) },
        ...{ keys: view(dtype, 99, 64), lifted: view(dtype, heads, rank + 64), out: view(dtype, heads, values) },
        ...{ partial: view('f32', 64, heads, rank), tops: view('f32', 64, heads), sums: view('f32', 64, heads) },
      });
    const tokens = view('i32', 300);
    d.advance(best, state, tokens);
    d.draw(
      {
        ...{ logits: view(dtype, 1000), work: view('f32', 1000), tops: view('f32', 128), masses: view('f64', 128) },
        ...{ bins: view('i32', 1026), candidates: view('i64', 2048), uniforms: view('f64', 300), tokens, state },
      },
      { temperature: 0.7, topK: 40, topP: 0.9, minP: 0.05, repetitionPenalty: 1.1, repetitionWindow: 64 },
    );
    const recorded = d.capture(() => d.advance(best, state, tokens));
    recorded.launch();
    const slot = d.slot();
    d.fetch(tokens, 17, slot);
    d.freeSlot(slot);
    d.finish();
    recorded.dispose();
  };
/** A token of each of a few sequences: rows and columns about the bounds of steps, tiles and what is taken at all. */
const few: Program = async (m) => {
  const { gpu, backend, view } = m;
  const norm = { weight: view('bf16', 512), eps: 1e-5 };
  for (const [sequences, rows, k] of [
    [2, 100, 512],
    [8, 1056, 4096],
    [8, 1072, 4104],
    [3, 29568, 8192],
    [5, 29584, 8200],
    [8, 60000, 14336],
    [8, 100, 14344],
    [9, 100, 512],
    [4, 100, 508],
  ]) {
    const d = backend.decodeSteps('bf16', sequences);
    const [weight, x, out] = [view('bf16', rows, k), view('bf16', sequences, k), view('bf16', sequences, rows)];
    gpu.note(
      `${sequences} sequences, [${rows}, ${k}]: ${d.takes(weight)}, turned: ` +
        `${d.takes({ ...weight, layout: weight.layout.transpose(0, 1) })}`,
    );
    if (!d.takes(weight)) {
      await refused(m, () => d.product({ x, weight, out }));
      continue;
    }
    d.product({ x, weight, out });
    d.product({ x, weight, out, norm, bias: view('bf16', rows), residual: view('bf16', sequences, rows) });
    d.gate({ x, weight, out, norm: { weight: view('f32', k), eps: 1e-6 }, activation: 'gelu' });
    await refused(m, () => d.product({ x, weight, out, best: view('i64', 1) }));
  }
  for (const dtype of ['f32', 'f16'] as const)
    gpu.note(`${dtype}: ${backend.decodeSteps('f16', 2).takes(view(dtype, 64, 64))}`);
};
/** How keys are split among blocks, and what attention refuses. */
const splits: Program = async (m) => {
  const { gpu, backend, view } = m;
  const { multiprocessors: n } = gpu.info;
  for (const dtype of ['f32', 'bf16'] as const)
    for (const [heads, kvHeads, dim] of [
      [32, 8, 128],
      [9, 3, 64],
      [16, 1, 256],
      [64, 4, 80],
      [8, 8, 128],
    ])
      for (const sequences of [1, 2, Math.ceil((9 * n) / kvHeads) - 1, Math.ceil((9 * n) / kvHeads)])
        for (const paged of [false, true])
          for (const room of [128, 129, 4096, 2 ** 20]) {
            const d = backend.decodeSteps(dtype, sequences);
            const shape = { heads, kvHeads, dim, room, paged };
            gpu.note(`${dtype} ${sequences} ${JSON.stringify(shape)}: ${d.splits(shape)} ${d.partialSize(shape)}`);
          }
  const attend = (sequences: number, dim: number, parts: number, pageTokens = 0): void => {
    const cache = (): View => (pageTokens ? view('bf16', 4096, 4 * dim) : view('bf16', 1, 4, 4096, dim));
    backend.decodeSteps('bf16', sequences).attend({
      ...{ qkv: view('bf16', sequences, 16 * dim), cos: view('f32', 64), sin: view('f32', 64), state: view('i32', 4) },
      ...{ keys: cache(), values: cache(), out: view('bf16', sequences, 8, 1, dim), scale: 0.5 },
      ...{ partial: view('f32', parts), arrived: view('i32', sequences * 8) },
      ...(pageTokens && { paged: { table: view('i32', sequences, 64), pageTokens, room: 4096 } }),
    });
  };
  for (const dim of [128, 256]) for (const of of [9 * n, 9 * n - 4]) attend(Math.ceil(of / 4), dim, of * 4 * 257, 16);
  await refused(m, () => attend(2, 64, 2 ** 20));
  await refused(m, () => attend(1, 320, 2 ** 20));
  await refused(m, () => attend(1, 64, 8 * 65 - 1));
  await refused(m, () => backend.decodeSteps('f64'));
  for (const bytes of [144 * 256, 144 * 1024])
    await refused(m, () => {
      const weight = view('u8', 512, bytes);
      backend.decodeSteps('f16').product({ x: view('f16', 1), weight, type: 'Q4_K', out: view('f16', 512) });
    });
};
const drawing: Program = async ({ gpu, backend, view }) => {
  const draws = backend.batchDraws({ rows: 6, vocabSize: 5000, slots: 4, context: 128 });
  const [logits, rows, tokens] = [view('f32', 6, 5000), view('u8', 6, 128), view('i32', 6)];
  draws.feed(rows, tokens, 5);
  draws.draw(logits, rows, 3);
  await draws.trial(async () => draws.draw(logits, rows, 1));
  draws.fetch(4, false);
  const fetched = draws.fetch(3, true);
  fetched.host.bytes.forEach((_, i, all) => (all[i] = i % 3 === 0 ? 0 : i % 64));
  // A token 0 is one, a token below it is none.
  const told = new DataView(fetched.host.bytes.buffer);
  for (const [i, token] of [5, 0, -1, 7].entries()) told.setInt32(4 * 6 + 16 * (33 + i) + 8, token, true);
  gpu.note(`${draws.tokensOf(fetched)} ${JSON.stringify(draws.toldOf(fetched, 1, 3))}`);
  await draws.arrived(fetched);
  draws.send(rows, draws.hostBuffer(256));
  draws.writeHistory(2, 7, [1, 2, 3]);
  draws.writeMask(3, new Int32Array(5));
  draws.writeChanges(1, [[4, 0.5]], [9, 8]);
  draws.dispose();
};
const prompts: Program = ({ backend, view }) => {
  for (const dtype of ['f32', 'f16'] as const)
    for (const dim of [64, 128]) {
      const pages = (): View => view(dtype, 40, 16, 2, dim);
      backend.attendPrompts({
        ...{ q: view(dtype, 300, 8, dim), out: view(dtype, 300, 8, dim), keys: pages(), values: pages() },
        ...{ starts: view('i32', 4), lengths: view('i32', 3), tables: view('i32', 3, 12), scale: 0.1 },
        ...(dim === 64 && { window: 50, softcap: 20, sinks: view('f32', 8) }),
      });
    }
};
/** Rows that need temporary memory, scratch, fills, copies, numbers on the device and a word for faults. */
const plans: Program = ({ backend, view }) => {
  const run = (op: keyof typeof OPS, inputs: View[], out: View, params: object): void =>
    backend.run(OPS[op] as unknown as RunRow, inputs, [out], params as never);
  run('sum', [view('f32', 4, 100000)], view('f32', 4), { dims: [1], keepdim: false });
  run('softmax', [view('f32', 30, 40)], view('f32', 30, 40), { dim: 0 });
  run('bmm', [view('f16', 3, 0), view('f16', 0, 5)], view('f16', 3, 5), {});
  run('indexSelect', [view('f32', 10, 7), view('u32', 3)], view('f32', 3, 7), { dim: 0 });
  run('gather', [view('f32', 10, 7), view('i64', 3, 7)], view('f32', 3, 7), { dim: 0 });
  const x = view('f32', 12, 30);
  run('exp', [{ ...x, layout: x.layout.transpose(0, 1) }], view('f32', 30, 12), {});
  run('copy', [{ ...x, layout: x.layout.slice(1, 3, 20) }], view('f32', 12, 20), {});
  run('sum', [{ ...x, layout: Layout.contiguous([4, 30], 60) }], view('f32', 4), { dims: [1], keepdim: false });
  // Copies by the driver and by kernels; operands that are one number over; numbers of every width.
  const [whole, part] = [view('f32', 12, 30), { ...view('f32', 99), layout: Layout.contiguous([12, 5], 30) }];
  run('copy', [x], whole, {});
  run('copy', [{ ...x, layout: Layout.contiguous([12, 5], 7) }], part, {});
  const one = { ...x, layout: Layout.contiguous([1, 1], 4).broadcastTo('add', [12, 30]) };
  run('add', [one, x], whole, {});
  run('add', [x, one], whole, {});
  run('add', [{ ...x, layout: Layout.contiguous([1, 1], 4) }, view('f32', 1, 1)], view('f32', 1, 1), {});
  run('add', [x, { ...x, layout: x.layout.slice(0, 3, 1).broadcastTo('add', [12, 30]) }], whole, {});
  for (const dtype of ['f32', 'f16', 'f64', 'i64', 'u8'] as const)
    run('affine', [view(dtype, 7)], view(dtype, 7), { mul: 3, add: 2 });
  // Heads of a token are read where they lie, if all tokens' are as far apart.
  const [cos, turned, table] = [view('f32', 9, 4), view('f32', 2, 6, 4, 8), view('f32', 2, 8, 12, 16)];
  const heads = table.layout.slice(2, 4, 4);
  for (const layout of [
    new Layout([2, 6, 4, 8], [768, 128, 8, 1], 32),
    new Layout([2, 6, 4, 8], [800, 128, 8, 1], 32),
    new Layout([2, 6, 4, 8], [768, 128, 16, 1]),
    new Layout([2, 6, 4, 8], [768, 128, 8, 2]),
    new Layout([2, 6, 4, 8], [96, 16, 8, 1]),
    new Layout([1, 6, 4, 8], [7, 128, 8, 1]),
    heads.slice(3, 0, 8).slice(1, 0, 6),
  ])
    run('ropeThd', [{ ...table, layout }, cos, cos], { ...turned, layout: Layout.contiguous(layout.shape) }, {});
};
const PROGRAMS: Readonly<Record<string, Program>> = {
  decodingF32: decoding('f32'),
  decodingF16: decoding('f16'),
  decodingFew: few,
  decodingSplits: splits,
  drawing,
  prompts,
  plans,
  ...WAITS,
};

/** What the architecture decides; the others ask nothing of it. */
const BY_TARGET = new Set<Program>([PROGRAMS.decodingF32, PROGRAMS.decodingF16, few, splits, prompts, plans]);
/** Lines by device and program. */
export async function callLines(wanted: (program: string) => boolean): Promise<Map<string, readonly string[]>> {
  const lines = new Map<string, readonly string[]>();
  for (const [arch, ...facts] of MACHINES)
    for (const [name, program] of Object.entries(PROGRAMS)) {
      if (!wanted(name) || (arch !== MACHINES[0][0] && !BY_TARGET.has(program))) continue;
      const m = machine(arch, ...facts);
      await program(m);
      lines.set(`${arch} ${name}`, m.gpu.list);
    }
  return lines;
}
