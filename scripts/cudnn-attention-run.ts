// One case of cudnn-attention-check on a GPU: our own kernels, then cuDNN's, compared and timed.
import type { View } from '../src/backends/backend.js';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { planRow } from '../src/backends/gpu/families.js';
import { runPlan } from '../src/backends/gpu/run-plan.js';
import type { GpuMemory } from '../src/backends/gpu/allocator.js';
import type { GpuContext } from '../src/backends/gpu/context.js';
import { bytesOf, DTYPE, type DType } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import { sizeOf } from '../src/base/shape.js';
import type { AttentionAddresses } from '../src/driver/attention.js';
import type { Extra, SdpaParams } from '../src/ops/attention-reference.js';
import { OPS } from '../src/ops/table.js';
import { Device } from '../src/tensor/device.js';
import { type AttentionCase, specOf } from './cudnn-attention-cases.js';

const say = (text: string): void => console.log(text);
/** Numbers compared of a large tensor: so many from either end. */
const SEEN = 1 << 19;
const PATTERN = 1_000_003;
const ROUNDS = 3;

class Room {
  readonly gpu: GpuContext;
  readonly #taken: GpuMemory[] = [];
  constructor(gpu: GpuContext) {
    this.gpu = gpu;
  }
  view(shape: readonly number[], dtype: DType): View {
    const memory = this.gpu.allocator.alloc(Math.max(1, sizeOf(shape) * bytesOf(dtype)));
    this.#taken.push(memory);
    return { memory, layout: Layout.contiguous(shape), dtype };
  }
  /** Numbers from -1 to 1 that begin anew after a million and three. */
  random(shape: readonly number[], dtype: DType, seed: number): View {
    const view = this.view(shape, dtype);
    const { bytes, Raw, encode } = DTYPE[dtype];
    const count = Math.min(sizeOf(shape), PATTERN);
    const raw = new Raw(new ArrayBuffer(count * bytes)) as unknown as number[];
    let state = seed >>> 0;
    for (let i = 0; i < count; i++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      raw[i] = encode(state / 2 ** 31 - 1) as number;
    }
    const { device, stream } = this.gpu;
    const data = new Uint8Array((raw as unknown as Uint16Array).buffer);
    const { address } = view.memory;
    device.copyIn(address, data, stream);
    const total = sizeOf(shape) * bytes;
    for (let at = data.length; at < total; at += data.length)
      device.copy(address + at, address, Math.min(data.length, total - at), stream);
    return view;
  }
  ints(shape: readonly number[], values: readonly number[]): View {
    const view = this.view(shape, 'i32');
    this.gpu.device.copyIn(view.memory.address, new Uint8Array(Int32Array.from(values).buffer), this.gpu.stream);
    return view;
  }
  read(v: View): { bytes: Uint8Array; numbers: Float64Array } {
    const total = sizeOf(v.layout.shape);
    const size = bytesOf(v.dtype);
    const parts =
      total <= 2 * SEEN
        ? [[0, total]]
        : [
            [0, SEEN],
            [total - SEEN, SEEN],
          ];
    const bytes = new Uint8Array(parts.reduce((n, [, count]) => n + count, 0) * size);
    let to = 0;
    for (const [from, count] of parts) {
      this.gpu.device.copyOut(bytes.subarray(to, to + count * size), v.memory.address + from * size, this.gpu.stream);
      to += count * size;
    }
    const { Raw, decode } = DTYPE[v.dtype];
    const raw = new Raw(bytes.buffer, 0, bytes.length / size) as Iterable<number>;
    return { bytes, numbers: Float64Array.from(raw, (r) => Number(decode(r))) };
  }
  end(): void {
    for (const m of this.#taken) this.gpu.allocator.free(m);
  }
}

/** The largest difference by the largest number, and what is not finite on one side alone. */
function difference(mine: Float64Array, theirs: Float64Array): string {
  let [most, apart, odd] = [0, 0, 0];
  for (let i = 0; i < mine.length; i++) {
    if (Number.isFinite(mine[i]) && Number.isFinite(theirs[i])) {
      most = Math.max(most, Math.abs(mine[i]));
      apart = Math.max(apart, Math.abs(mine[i] - theirs[i]));
    } else if (!Object.is(mine[i], theirs[i])) odd++;
  }
  const by = most === 0 ? apart : apart / most;
  const places = odd === 0 ? '' : `, ${odd} of ${mine.length} not finite on one side`;
  return `${by.toExponential(1)}${places}${by > 0.03 || odd > 0 ? ' WRONG' : ''}`;
}

function milliseconds(gpu: GpuContext, run: () => void): number {
  const { device, stream } = gpu;
  const [start, end] = [device.createEvent(true), device.createEvent(true)];
  run();
  let best = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    device.record(start, stream);
    for (let i = 0; i < 5; i++) run();
    device.record(end, stream);
    device.synchronizeEvent(end);
    best = Math.min(best, device.elapsed(start, end) / 5);
  }
  device.destroyEvent(start);
  device.destroyEvent(end);
  return best;
}

/** Operations of a pass, those of keys that are not seen left out. */
function operations(c: AttentionCase): number {
  let seen = 0;
  for (let b = 0; b < c.batch; b++) {
    const nk = c.counts?.[b] ?? c.tk;
    for (let i = 0; i < c.tq; i++) {
      const x = i + nk - c.tq;
      const from = c.left < 0 ? 0 : Math.max(0, x - c.left);
      const to = c.right < 0 ? nk - 1 : Math.min(nk - 1, x + c.right);
      seen += Math.max(0, to - from + 1);
    }
  }
  return seen * c.heads * c.dim * (c.kind === 'forward' ? 4 : 10);
}

export async function runAttentionCase(name: string, c: AttentionCase): Promise<void> {
  const { backend } = Device.get(name);
  if (!(backend instanceof GpuBackend)) throw new Error(`${name} is no GPU`);
  const gpu = backend.context;
  const library = gpu.libraries.attentionLibrary();
  if (typeof library === 'string') throw new Error(library);
  library.most = 2;
  const room = new Room(gpu);
  try {
    say(c.name);
    const spec = specOf(c);
    const shape = (heads: number, rows: number, batch = c.batch): number[] =>
      c.layout === 'bhtd' ? [batch, heads, rows, c.dim] : [batch, rows, heads, c.dim];
    const columns = spec.paged?.columns ?? 0;
    const keyShape = c.page ? shape(c.kvHeads, c.page, spec.paged?.pages) : shape(c.kvHeads, c.tk);
    const q = room.random(shape(c.heads, c.tq), c.dtype, 1);
    const [k, v] = [2, 3].map((seed) => room.random(keyShape, c.dtype, seed));
    const out = (): View => room.view(shape(c.heads, c.tq), c.dtype);
    const sums = (): View => room.view([c.batch, c.heads, c.tq], 'f32');
    const extras: Extra[] = [...(c.counts ? (['lengths'] as const) : []), ...(c.page ? (['pages'] as const) : [])];
    const counts = c.counts && room.ints([c.batch], c.counts);
    const queries = c.counts && room.ints([c.batch], new Array(c.batch).fill(c.tq));
    // Pages from the last to the first.
    const table =
      c.page !== undefined
        ? room.ints(
            [c.batch, columns],
            Array.from({ length: c.batch * columns }, (_, i) => c.batch * columns - 1 - i),
          )
        : undefined;
    const params: SdpaParams = {
      layout: c.layout,
      scale: spec.scale,
      softcap: 0,
      left: c.left,
      right: c.right,
      extras,
      longest: [0, 0],
    };
    const rest = [counts, table].filter((t): t is View => t !== undefined);
    const own = (row: 'sdpaRun' | 'sdpaBackward' | 'sdpaDelta', inputs: View[], outputs: View[], p: object): void =>
      runPlan(gpu, planRow(OPS[row], inputs, outputs, p as never, gpu.device.info), row, outputs);
    const [o1, l1] = [out(), sums()];
    const forwardOwn = (): void => own('sdpaRun', [q, k, v, ...rest], [o1, l1], params);
    forwardOwn();
    let mine: readonly (readonly [string, View])[] = [
      ['out', o1],
      ['lse', l1],
    ];
    const [o2, l2] = [out(), sums()];
    let theirs: readonly View[] = [o2, l2];
    let runOwn = forwardOwn;
    const address = (x: View): number => x.memory.address;
    let at: AttentionAddresses = {
      q: address(q),
      k: address(k),
      v: address(v),
      out: address(o2),
      lse: address(l2),
      ...(counts && queries && { keyCounts: address(counts), queryCounts: address(queries) }),
      ...(table && { pageTable: address(table) }),
    };
    if (c.kind === 'backward') {
      const dout = room.random(shape(c.heads, c.tq), c.dtype, 4);
      const delta = sums();
      own('sdpaDelta', [o1, dout], [delta], { layout: c.layout });
      const grads = (): View[] => [out(), room.view(keyShape, c.dtype), room.view(keyShape, c.dtype)];
      const [a, b] = [grads(), grads()];
      runOwn = (): void => own('sdpaBackward', [q, k, v, dout, l1, delta], a, params);
      runOwn();
      mine = [
        ['dq', a[0]],
        ['dk', a[1]],
        ['dv', a[2]],
      ];
      theirs = b;
      const [dq, dk, dv] = b.map(address);
      at = { ...at, out: address(o1), lse: address(l1), dout: address(dout), dq, dk, dv };
    }
    gpu.device.synchronizeStream(gpu.stream);
    say('  our own: done');
    const begun = performance.now();
    const plan = library.plan(spec, (line) => say(`    ${line}`));
    if (typeof plan === 'string') return say(`  REFUSED: ${plan}`);
    say(`  planned in ${((performance.now() - begun) / 1000).toFixed(1)} s, ${plan.ways.length} ways`);
    const work = operations(c);
    const rate = (ms: number): string => `${ms.toFixed(3)} ms ${(work / ms / 1e9).toFixed(0)} TFLOP/s`;
    const ownMs = milliseconds(gpu, runOwn);
    say(`  our own: ${rate(ownMs)}`);
    for (const [i, way] of plan.ways.entries()) {
      const workspace = room.view([Math.max(256, way.workspaceBytes)], 'u8');
      const run = (): void => library.run(plan, i, at, address(workspace), gpu.stream);
      for (const t of theirs)
        gpu.device.memset(address(t), 0x7f, sizeOf(t.layout.shape) * bytesOf(t.dtype), gpu.stream);
      try {
        run();
        gpu.device.synchronizeStream(gpu.stream);
      } catch (e) {
        say(`  way ${i} (${way.description}): FAILED: ${(e as Error).message}`);
        continue;
      }
      const apart = mine.map(
        ([what, t], j) => `${what} ${difference(room.read(t).numbers, room.read(theirs[j]).numbers)}`,
      );
      const first = theirs.map((t) => room.read(t).bytes);
      run();
      const again = theirs.every((t, j) => Buffer.compare(room.read(t).bytes, first[j]) === 0);
      const ms = milliseconds(gpu, run);
      say(
        `  way ${i} (${way.description}): ${rate(ms)}, ${(ownMs / ms).toFixed(2)} times ours; apart: ` +
          `${apart.join(', ')}; twice the same: ${again ? 'yes' : 'no'}`,
      );
    }
  } catch (e) {
    say(`  FAILED: ${(e as Error).message}`);
  } finally {
    room.end();
  }
}
