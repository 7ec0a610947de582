// Tokens drawn on a GPU for many rows of logits at once: what kernels/sample.hip needs, and its launches.
import { UnsupportedError } from '../../base/errors.js';
import type { HostBuffer } from '../../driver/driver.js';
import { KernelModule, Struct, typed } from '../../kernels/declare.js';
import type { Memory, View } from '../backend.js';
import { DRAW_ROW, type DrawSizes, MOST_CHANGES, MOST_LIKELY } from '../generation.js';
import type { GpuContext } from './context.js';
import type { GpuBackend } from './gpu.js';
import { addressOf, type Launch, launch } from './plan.js';
import { enqueue } from './run-plan.js';

export const SAMPLE_MODULE = new KernelModule('sample');
const BLOCK = 256;
const THREADS = { constant: 'DRAW_THREADS', threads: BLOCK } as const;
const BINS = 1024;
const LIST = 8192;
/** Tokens of a stretch, and stretches of a row at most. */
const STRETCH = 1024;
const MOST_PARTS = 128;

const CHANGE_BYTES = 16;
const TOLD_BYTES = 16;

const DRAWING = new Struct('Drawing', {
  ...typed('pointer', 'logits', 'work', 'tops', 'masses', 'bins', 'weights', 'ids', 'rawTops', 'rawSums', 'rawRanks'),
  ...typed('pointer', 'rows', 'masks', 'changes', 'histories', 'drawn', 'told'),
  ...typed('i32', 'n', 'room', 'context'),
});
const STEPS = ['top', 'weigh', 'draw'] as const;
const step = SAMPLE_MODULE.declare({
  each: { step: STEPS },
  symbol: ({ step: s }) => `sample_${s}`,
  body: ({ step: s }) => ({ threads: THREADS, params: { p: DRAWING }, call: s }),
});
const feed = SAMPLE_MODULE.declare({
  each: {},
  symbol: () => 'sample_feed',
  body: () => ({
    threads: THREADS,
    params: { rows: 'const DrawRow*', drawn: 'const i32*', tokens: 'i32*', n: 'i32' },
    call: 'feed',
  }),
});

/** A token's logarithm of its probability. */
export interface Told {
  readonly token: number;
  readonly logprob: number;
}
/** What a step drew, on its way to the host. */
export interface Fetched {
  readonly host: HostBuffer;
  readonly event: number;
  readonly rows: number;
}

/** Bytes that drawing takes on the device. */
export const drawBytes = (o: DrawSizes): number =>
  Object.values(sizesOf(o)).reduce((a, b) => a + b, 0) + o.rows * DRAW_ROW.bytes;
const partsOf = (vocabSize: number): number => Math.max(1, Math.min(MOST_PARTS, Math.ceil(vocabSize / STRETCH)));
/** Bytes of each array; those that must begin as zeros are `bins`. */
const sizesOf = ({ rows, vocabSize, slots, context }: DrawSizes) => ({
  work: 4 * rows * vocabSize,
  tops: 8 * rows * partsOf(vocabSize),
  masses: 8 * rows * partsOf(vocabSize),
  bins: 4 * rows * (BINS + 2),
  weights: 8 * rows * LIST,
  ids: 4 * rows * LIST,
  rawTops: 4 * rows * partsOf(vocabSize),
  rawSums: 8 * rows * partsOf(vocabSize),
  rawRanks: 8 * rows * partsOf(vocabSize) * MOST_LIKELY,
  masks: 4 * slots * Math.ceil(vocabSize / 32),
  changes: CHANGE_BYTES * slots * MOST_CHANGES,
  histories: 4 * slots * context,
  drawn: 4 * rows,
  aside: 4 * rows,
  told: TOLD_BYTES * rows * (1 + MOST_LIKELY),
});

type Arrays = Readonly<Record<keyof ReturnType<typeof sizesOf>, Memory>>;

/** Draws for up to so many rows; its launches can be recorded. */
export class BatchDraws {
  readonly #backend: GpuBackend;
  readonly #gpu: GpuContext;
  readonly #o: DrawSizes;
  readonly #at: Arrays;
  /** Two: a step may be under way while the one before is read. */
  readonly #out: readonly Fetched[];
  #turn = 0;

  constructor(backend: GpuBackend, o: DrawSizes) {
    this.#backend = backend;
    this.#gpu = backend.context;
    this.#o = o;
    const sizes = sizesOf(o);
    const made = Object.entries(sizes).map(([name, bytes]) => [name, backend.alloc(Math.max(8, bytes))]);
    this.#at = Object.fromEntries(made) as Arrays;
    const { device, stream } = this.#gpu;
    for (const name of ['bins', 'drawn'] as const) device.memset(this.#at[name].address, 0, sizes[name], stream);
    const bytes = (4 + TOLD_BYTES * (1 + MOST_LIKELY)) * o.rows;
    this.#out = [0, 1].map(() => ({ host: device.allocHost(bytes), event: device.createEvent(false), rows: 0 }));
  }
  #run(l: Launch): void {
    const none = (): never => {
      throw new UnsupportedError('sample: its launches name no buffers');
    };
    enqueue(this.#gpu, { ...l, early: true }, none, none);
  }
  /** Puts the tokens that `rows` name where a step reads them. */
  feed(rows: View, tokens: View, n: number): void {
    const args = { rows: addressOf(rows), drawn: this.#at.drawn.address, tokens: addressOf(tokens), n };
    this.#run(launch(feed, {}, Math.ceil(n / BLOCK), BLOCK, args));
  }
  /** Draws for n rows of f32 logits as the n structs at `rows` say. */
  draw(logits: View, rows: View, n: number): void {
    const at = Object.fromEntries(Object.entries(this.#at).map(([k, m]) => [k, m.address]));
    const { vocabSize, context } = this.#o;
    const p = { ...at, logits: addressOf(logits), rows: addressOf(rows), n: vocabSize, room: MOST_CHANGES, context };
    for (const s of STEPS) this.#run(launch(step, { step: s }, [partsOf(vocabSize), n], BLOCK, { p }));
  }
  /** Runs f, which draws for trial: what was drawn before stays. */
  async trial<T>(f: () => Promise<T>): Promise<T> {
    const { device, stream } = this.#gpu;
    const { drawn, aside } = this.#at;
    device.copy(aside.address, drawn.address, 4 * this.#o.rows, stream);
    const made = await f();
    device.copy(drawn.address, aside.address, 4 * this.#o.rows, stream);
    return made;
  }
  /** Begins to copy what was drawn for n rows to the host; work enqueued later does not delay it. */
  fetch(n: number, told: boolean): Fetched {
    this.#turn ^= 1;
    const { host, event } = this.#out[this.#turn];
    const { device, stream } = this.#gpu;
    device.copyOutAsync(host.address, this.#at.drawn.address, 4 * n, stream);
    const bytes = TOLD_BYTES * (1 + MOST_LIKELY) * n;
    if (told) device.copyOutAsync(host.address + 4 * this.#o.rows, this.#at.told.address, bytes, stream);
    device.record(event, stream);
    return { host, event, rows: n };
  }
  async arrived({ event }: Fetched): Promise<void> {
    while (!this.#gpu.device.queryEvent(event)) await new Promise<void>((r) => setImmediate(r));
  }
  tokensOf({ host, rows }: Fetched): Int32Array {
    return Int32Array.from(new Int32Array(host.bytes.buffer, host.bytes.byteOffset, rows));
  }
  /** The drawn token first, then the likely ones. */
  toldOf({ host }: Fetched, row: number, likely: number): Told[] {
    const at = 4 * this.#o.rows + TOLD_BYTES * (1 + MOST_LIKELY) * row;
    const view = new DataView(host.bytes.buffer, host.bytes.byteOffset + at);
    return Array.from({ length: 1 + likely }, (_, i) => ({
      logprob: view.getFloat64(TOLD_BYTES * i, true),
      token: view.getInt32(TOLD_BYTES * i + 8, true),
    })).filter(({ token }) => token >= 0);
  }

  /** Memory that `send` copies from; it must stay as it is until the step that reads it is done. */
  hostBuffer(bytes: number): HostBuffer {
    return this.#gpu.device.allocHost(bytes);
  }
  freeHost(buffer: HostBuffer): void {
    this.#gpu.device.freeHost(buffer);
  }
  /** Begins to copy numbers of a step to the device. */
  send(to: View, from: HostBuffer): void {
    this.#gpu.device.copyInAsync(addressOf(to), from.address, from.bytes.byteLength, this.#gpu.stream);
  }

  /** Tokens of a slot's history from an index on. */
  writeHistory(slot: number, from: number, tokens: readonly number[]): void {
    this.#write(this.#at.histories, 4 * (slot * this.#o.context + from), Int32Array.from(tokens));
  }
  writeMask(slot: number, words: Int32Array): void {
    this.#write(this.#at.masks, 4 * slot * Math.ceil(this.#o.vocabSize / 32), words);
  }
  /** Biases, then tokens that are out while they are. */
  writeChanges(slot: number, biases: Iterable<readonly [number, number]>, ends: readonly number[]): void {
    const list = [...biases, ...ends.map((token) => [token, 0] as const)];
    const view = new DataView(new ArrayBuffer(CHANGE_BYTES * list.length));
    list.forEach(([token, bias], i) => {
      view.setFloat64(CHANGE_BYTES * i, bias, true);
      view.setInt32(CHANGE_BYTES * i + 8, token, true);
    });
    this.#write(this.#at.changes, CHANGE_BYTES * MOST_CHANGES * slot, view);
  }
  #write(memory: Memory, at: number, { buffer, byteOffset, byteLength }: ArrayBufferView): void {
    if (byteLength > 0) this.#backend.write(memory, at, new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength));
  }
  dispose(): void {
    const { device, stream } = this.#gpu;
    device.synchronizeStream(stream);
    for (const { host, event } of this.#out) {
      device.destroyEvent(event);
      device.freeHost(host);
    }
    for (const m of Object.values(this.#at)) this.#backend.free(m);
  }
}
