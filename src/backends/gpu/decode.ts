// The steps of decoding one token on a GPU, as launches on preallocated memory: what a captured graph is made of.
import { bytesOf, type DType } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import { launch, type LaunchArg } from '../../kernels/launch-plan.js';
import type { HostBuffer } from '../../driver/driver.js';
import type { Backend, View } from '../backend.js';
import type { GpuContext } from './context.js';
import { GpuBackend, type Replay } from './gpu.js';
import { addressOf, runPlan } from './plans.js';

/** Query heads a block of attention takes together: those of one key head, up to 8. */
const together = (heads: number, kvHeads: number): number => [8, 4, 2].find((g) => (heads / kvHeads) % g === 0) ?? 1;
const BLOCK = 256;
/** Rows a block makes by words of each under way a thread: many short rows, or much of a few long ones. */
const TILES = { short: { tile: '8x1', rows: 8 }, long: { tile: '4x4', rows: 4 } } as const;
/** Words a thread has of a row that is short. */
const SHORT = 2;
/** Threads of decode-attention, and keys a block has at least. */
const SPLIT_BLOCK = 128;
const SPLIT_KEYS = 128;
export const DECODE_DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];

export interface Product {
  readonly x: View;
  readonly weight: View;
  readonly out: View;
  /** Weight of a root-mean-square norm before the product. */
  readonly norm?: { readonly weight: View; readonly eps: number };
  readonly bias?: View;
  readonly residual?: View;
  /** Eight bytes, 0 before: where the largest result is remembered for `advance`. */
  readonly best?: View;
}

/** A new token's attention: what the kernel's struct NewToken holds. */
export interface NewToken {
  readonly qkv: View;
  readonly cos: View;
  readonly sin: View;
  readonly state: View;
  /** The cache, (1, kvHeads, room, dim). */
  readonly keys: View;
  readonly values: View;
  /** (1, heads, 1, dim) */
  readonly out: View;
  /** heads * splits * (dim + 1) floats. */
  readonly partial: View;
  /** What products of queries and keys are multiplied by; default 1 / sqrt(dim). */
  readonly scale?: number;
  /** A zero for every head. */
  readonly arrived: View;
}

/** How a token is drawn: numbers of the kernel's struct Sampling. Greedy with a penalty is topK 1. */
export interface Draw {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly repetitionWindow: number;
}
/** Memory of drawing on the device; `uniforms` and `tokens` go by position. */
export interface DrawBuffers {
  readonly logits: View;
  /** As many floats as logits. */
  readonly work: View;
  /** SAMPLE.parts floats and doubles, SAMPLE.bins + 2 zeros, SAMPLE.most words of eight bytes. */
  readonly tops: View;
  readonly masses: View;
  readonly bins: View;
  readonly candidates: View;
  readonly uniforms: View;
  readonly tokens: View;
  readonly state: View;
}
/** Sizes of kernels/decode-sample.hip. */
export const SAMPLE = { parts: 128, bins: 1024, most: 2048 } as const;

/** A place on the host where one number arrives at a time. */
export interface Slot {
  readonly host: HostBuffer;
  readonly event: number;
}

export class DecodeSteps {
  readonly #backend: GpuBackend;
  readonly #gpu: GpuContext;
  readonly dtype: DType;
  constructor(backend: Backend, dtype: DType) {
    if (!(backend instanceof GpuBackend)) throw new UnsupportedError(`decoding by graph: ${backend.name} is no GPU`);
    if (!DECODE_DTYPES.includes(dtype))
      throw new UnsupportedError(`decoding by graph: ${dtype}; it takes ${DECODE_DTYPES.join(', ')}`);
    this.#backend = backend;
    this.#gpu = backend.context;
    this.dtype = dtype;
  }
  static serves(backend: Backend, dtype: DType): boolean {
    return backend instanceof GpuBackend && DECODE_DTYPES.includes(dtype);
  }

  #run(symbol: string, grid: readonly number[], block: number, args: readonly LaunchArg[], module = 'decode'): void {
    runPlan(this.#gpu, { launches: [{ ...launch(module, symbol, grid, block, args), early: true }], scratch: 0 }, {});
  }
  /** Threads and tile for rows of k: no more threads than words. */
  #tile(k: number): { readonly tile: string; readonly rows: number; readonly threads: number } {
    const { warp } = this.#gpu.device.info;
    const words = (k * bytesOf(this.dtype)) / 16;
    const threads = Math.min(BLOCK, Math.ceil(words / warp) * warp);
    return { ...TILES[words <= SHORT * threads ? 'short' : 'long'], threads };
  }

  /** A row of the table by the token in state. */
  embed(table: View, state: View, out: View): void {
    const n = out.layout.size;
    this.#run(`decode_embed_${this.dtype}`, [Math.ceil(n / BLOCK)], BLOCK, [
      addressOf(table),
      addressOf(state),
      addressOf(out),
      n,
    ]);
  }
  /** A new token's vectors (heads, width) to their place in a cache (1, heads, room, width), at the position in state. */
  store(x: View, state: View, cache: View): void {
    const [, heads, room, width] = cache.layout.shape;
    const args = [addressOf(x), addressOf(state), addressOf(cache), heads, width, room];
    this.#run(`decode_store_${this.dtype}`, [Math.ceil((heads * width) / BLOCK)], BLOCK, args);
  }
  /** out = weight norm(x) + bias + residual. */
  product({ x, weight, out, norm, bias, residual, best }: Product): void {
    const [n, k] = weight.layout.shape;
    const { tile, rows, threads } = this.#tile(k);
    const or0 = (v?: View): number => (v ? addressOf(v) : 0);
    const args = [
      addressOf(x),
      or0(norm?.weight),
      norm?.eps ?? 0,
      addressOf(weight),
      or0(bias),
      or0(residual),
      addressOf(out),
      or0(best),
      n,
      k,
    ];
    this.#run(`decode_product_${this.dtype}_${tile}`, [Math.ceil(n / rows)], threads, args);
  }
  /** out = silu(gate norm(x)) * (up norm(x)); the weight holds gate over up. */
  gate({ x, weight, out, norm }: Pick<Product, 'x' | 'weight' | 'out' | 'norm'>): void {
    const [n2, k] = weight.layout.shape;
    const { tile, rows, threads } = this.#tile(k);
    const args = [
      addressOf(x),
      norm ? addressOf(norm.weight) : 0,
      norm?.eps ?? 0,
      addressOf(weight),
      addressOf(out),
      n2 / 2,
      k,
    ];
    this.#run(`decode_gate_${this.dtype}_${tile}`, [Math.ceil(n2 / rows)], threads, args);
  }
  /** How many blocks share the keys of a head, at most. */
  splits(heads: number, kvHeads: number, room: number): number {
    const blocks = heads / together(heads, kvHeads);
    return Math.max(
      1,
      Math.min(Math.ceil(room / SPLIT_KEYS), Math.ceil((this.#gpu.device.info.multiprocessors * 4) / blocks)),
    );
  }
  /** Queries and keys turned, key and value into the cache, one query over all keys, at the position in state. */
  attend(t: NewToken): void {
    const [, heads, , dim] = t.out.layout.shape;
    const [, kvHeads, room] = t.keys.layout.shape;
    const g = together(heads, kvHeads);
    const bytes = new DataView(new ArrayBuffer(96));
    [t.qkv, t.cos, t.sin, t.state, t.keys, t.values, t.out, t.partial, t.arrived].forEach((v, i) =>
      bytes.setBigUint64(8 * i, BigInt(addressOf(v)), true),
    );
    [heads, kvHeads, dim, room].forEach((v, i) => bytes.setInt32(72 + 4 * i, v, true));
    bytes.setFloat32(88, t.scale ?? 1 / Math.sqrt(dim), true);
    const wide = [64, 128, 256].find((d) => dim <= d);
    this.#run(
      `decode_attention_${this.dtype}_${wide}_${g}`,
      [this.splits(heads, kvHeads, room), heads / g],
      SPLIT_BLOCK,
      [new Uint8Array(bytes.buffer)],
      'decode-attention',
    );
  }
  /** The best logit's token is the next one; state moves on, `tokens` remembers it by its position. */
  advance(best: View, state: View, tokens: View): void {
    this.#run('decode_advance', [1], 32, [best, state, tokens].map(addressOf));
  }
  /** The next token is drawn; -1 where too many can be. State moves on. */
  draw(b: DrawBuffers, d: Draw): void {
    const bytes = new DataView(new ArrayBuffer(120));
    [b.logits, b.work, b.tops, b.masses, b.bins, b.candidates, b.uniforms, b.tokens, b.state].forEach((v, i) =>
      bytes.setBigUint64(8 * i, BigInt(addressOf(v)), true),
    );
    [d.temperature, d.topP, d.minP, d.repetitionPenalty].forEach((v, i) => bytes.setFloat64(72 + 8 * i, v, true));
    [d.repetitionWindow, d.topK, b.logits.layout.size].forEach((v, i) => bytes.setInt32(104 + 4 * i, v, true));
    for (const symbol of [`decode_sample_top_${this.dtype}`, 'decode_sample_weigh', 'decode_sample_draw']) {
      this.#run(symbol, [SAMPLE.parts], BLOCK, [new Uint8Array(bytes.buffer)], 'decode-sample');
    }
  }

  capture(f: () => void): Replay {
    return this.#backend.capture(f);
  }

  slot(): Slot {
    return { host: this.#gpu.device.allocHost(64), event: this.#gpu.device.createEvent(false) };
  }
  freeSlot({ host, event }: Slot): void {
    this.#gpu.device.destroyEvent(event);
    this.#gpu.device.freeHost(host);
  }
  /** Begins to copy one i32 to the host; work enqueued later does not delay it. */
  fetch(view: View, index: number, { host, event }: Slot): void {
    const { device, stream } = this.#gpu;
    device.copyOutAsync(host.address, addressOf(view) + 4 * index, 4, stream);
    device.record(event, stream);
  }
  /** What was asked for last, once it is there. */
  async arrived({ host, event }: Slot): Promise<number> {
    while (!this.#gpu.device.queryEvent(event)) await new Promise<void>((r) => setImmediate(r));
    return new DataView(host.bytes.buffer, host.bytes.byteOffset).getInt32(0, true);
  }
  /** Waits for all that was enqueued. */
  finish(): void {
    this.#gpu.device.synchronizeStream(this.#gpu.stream);
  }
}
