// What the stateful side of GPU work asks of a driver: decoding steps, drawing, prompts, plans, streams and uploads, on
// a GPU that does nothing, a line a call. Streams and events stand in the lines, too: a simulation that runs everything
// at once cannot tell that a wait is missing.
import type { ArgBuffer } from '../src/driver/args.js';
import type { Address, Arguments, DeviceInfo, Fn, Stream, Triple } from '../src/driver/driver.js';
import { bytesOf, type DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { View } from '../src/backends/backend.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { SideStream } from '../src/backends/gpu/side-stream.js';
import type { RunRow } from '../src/ops/op.js';
import { OPS } from '../src/ops/table.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';

/** Notes of every call what it enqueues, where, and what waits for what. */
class WatchedGpu extends IdleGpu {
  override list: string[] = [];
  override copyIn(dst: Address, src: Uint8Array, stream?: Stream): void {
    this.note(`copyIn ${dst} ${src.length} on ${stream}`);
  }
  override copyInAsync(dst: Address, host: Address, bytes: number, stream?: Stream): void {
    this.note(`copyInAsync ${dst} from ${host} ${bytes} on ${stream}`);
  }
  override copyOutAsync(host?: Address, src?: Address, bytes?: number, stream?: Stream): void {
    this.note(`copyOutAsync ${host} from ${src} ${bytes} on ${stream}`);
  }
  override copy(dst: Address, src: Address, bytes: number, stream?: Stream): void {
    this.note(`copy ${dst} from ${src} ${bytes} on ${stream}`);
  }
  override memset(address: Address, byte: number, bytes: number, stream?: Stream): void {
    this.note(`memset ${address} ${byte} ${bytes} on ${stream}`);
  }
  override record(event?: number, stream?: Stream): void {
    this.note(`record ${event} on ${stream}`);
  }
  override streamWait(stream?: Stream, event?: number): void {
    this.note(`${stream} waits for ${event}`);
  }
  override synchronizeStream(stream?: Stream): void {
    this.note(`the host waits for ${stream}`);
  }
  override synchronizeEvent(event?: number): void {
    this.note(`the host waits for event ${event}`);
  }
  override free(address?: Address): void {
    this.note(`free ${address}`);
  }
  override destroyEvent(event?: number): void {
    this.note(`event ${event} ends`);
  }
  override beginCapture(stream?: Stream): void {
    this.note(`recorded from here on ${stream}`);
  }
  override launchGraph(exec?: number, stream?: Stream): void {
    this.note(`graph ${exec} on ${stream}`);
  }
  readonly #names: string[] = [];
  override getFunction(module: number, symbol: string): Fn {
    const fn = super.getFunction(module, symbol);
    this.#names[fn] = symbol;
    return fn;
  }
  override launch(
    ...[fn, grid, block, shared, stream, args, early]: [Fn, Triple, Triple, number, Stream, Arguments, boolean?]
  ): void {
    const packed = Buffer.from((args as ArgBuffer).bytes()).toString('hex');
    this.note(`${this.#names[fn]}<${grid}|${block}|${shared}> on ${stream}${early ? ' early' : ''} ${packed}`);
  }
}

/** A backend on a GPU of an architecture, and views of memory of its own. */
function machine(arch: string, warp = 32, multiprocessors = 132) {
  const { info } = new IdleGpu();
  const shared = arch.startsWith('gfx') ? { sharedPerBlockOptin: 65536 } : {};
  const gpu = new WatchedGpu({ ...info, arch, fullArch: arch, warp, multiprocessors, ...shared } as DeviceInfo);
  const backend = new GpuBackend('watched', gpu);
  const view = (dtype: DType, ...shape: number[]): View => {
    const layout = Layout.contiguous(shape);
    return { memory: backend.alloc(layout.size * bytesOf(dtype)), layout, dtype };
  };
  return { gpu, backend, view };
}
type Machine = ReturnType<typeof machine>;
const MACHINES = [['sm_90'], ['sm_80', 32, 108], ['gfx90a', 64, 104], ['gfx1030', 32, 40]] as const;

type Program = (m: Machine) => void | Promise<void>;
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
    for (const [type, bytes] of [
      ['Q4_0', 288],
      ['Q8_0', 544],
      ['Q4_K', 288],
      ['Q6_K', 420],
    ] as const) {
      const weight = view('u8', 768, bytes);
      d.product({ x, weight, type, out, norm: wide, bias, residual, best });
      d.gate({ x, weight, type, out, norm, activation: 'silu' });
    }
    const logits = view('f32', 8);
    const choice = { experts: 8, chosen: 2, score: 'sigmoid', weights: 'normalised', factor: 2.5 } as const;
    const guarded = { ...choice, bias: view('f32', 8), sumGuard: { add: 1e-20, least: 1e-9 } };
    d.router({ x, norm, weight: view('f32', 8, 512), bias: view('f32', 8), logits });
    const gates = { choice: guarded, logits, x, out, norm: wide, activation: 'silu' };
    const sum = { choice, logits, x: out, out: x, residual };
    for (const every of [0, 640]) {
      const [gateUp, down] = every ? [view(dtype, 2 * every, 512), view(dtype, 512, every)] : [];
      d.chosenGate({ ...gates, weight: view(dtype, 8, 384, 512), shared: gateUp });
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
    d.attendLatent({
      ...{ heads: 20, nope: 128, turned: 64, rank: 512, values: 128, eps: 1e-6, scale: 0.07 },
      ...{ queries: view(dtype, 20, 192), latent: view(dtype, 576), norm: view('f32', 512) },
      ...{ keyUp: view(dtype, 20, 128, 512), valueUp: view(dtype, 20, 128, 512), cos: view('f32', 99, 32) },
      ...{ sin: view('f32', 99, 32), state, latents: view(dtype, 99, 512), keys: view(dtype, 99, 64) },
      ...{ lifted: view(dtype, 20, 576), partial: view('f32', 64, 20, 512), tops: view('f32', 64, 20) },
      ...{ sums: view('f32', 64, 20), out: view(dtype, 20, 128) },
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
const drawing: Program = async ({ backend, view }) => {
  const draws = backend.batchDraws({ rows: 6, vocabSize: 5000, slots: 4, context: 128 });
  const [logits, rows, tokens] = [view('f32', 6, 5000), view('u8', 6, 128), view('i32', 6)];
  draws.feed(rows, tokens, 5);
  draws.draw(logits, rows, 3);
  await draws.trial(async () => draws.draw(logits, rows, 1));
  draws.fetch(4, false);
  draws.fetch(3, true);
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
};
const streams: Program = ({ backend, view }) => {
  const side = new SideStream(backend.context);
  const [x, y] = [view('f32', 100), view('f32', 100)];
  const exp = (): void => backend.run(OPS.exp as unknown as RunRow, [x], [y], {} as never);
  exp();
  const work = side.run(() => {
    exp();
    backend.write(x.memory, 0, new Uint8Array(8));
  });
  exp();
  work.wait();
  work.wait();
  side.run(exp).finish();
  side.dispose();
};
const uploads: Program = ({ backend, view }) => {
  const x = view('u8', 2 ** 22);
  for (const bytes of [3, 70, 2 ** 21]) backend.write(x.memory, 5, new Uint8Array(bytes));
  for (let i = 0; i < 10; i++) backend.write(x.memory, i, new Uint8Array(2 ** 20 - 100));
};
const PROGRAMS: Readonly<Record<string, Program>> = {
  decodingF32: decoding('f32'),
  decodingF16: decoding('f16'),
  drawing,
  prompts,
  plans,
  streams,
  uploads,
};

/** What the architecture decides; the others ask nothing of it. */
const BY_TARGET = new Set<Program>([PROGRAMS.decodingF32, PROGRAMS.decodingF16, prompts, plans]);
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
