// The steps of decoding one token on a GPU, as launches on preallocated memory: what a captured graph is made of.
import type { DType } from '../../base/dtype.js';
import { UnsupportedError } from '../../base/errors.js';
import { launch, type LaunchArg } from '../../kernels/launch-plan.js';
import type { SdpaParams } from '../../ops/attention-reference.js';
import { attention } from '../../ops/attention.js';
import type { KernelRow } from '../../ops/op.js';
import type { Backend, View } from '../backend.js';
import { runAttention } from './attention.js';
import type { GpuContext } from './context.js';
import { GpuBackend, type Replay } from './gpu.js';
import { addressOf, runPlan } from './plans.js';

const BLOCK = 256;
const ROWS_A_WAVE = 2;
const BLOCKS_A_PROCESSOR = 6;
const PARTS = 64;
export const DECODE_DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
const SDPA = attention.sdpaRun as unknown as KernelRow;

export interface Product {
  readonly x: View;
  readonly weight: View;
  readonly out: View;
  /** Weight of a root-mean-square norm before the product. */
  readonly norm?: { readonly weight: View; readonly eps: number };
  readonly bias?: View;
  readonly residual?: View;
}

/** A result on its way to the host: it arrives when `ready` says so. */
export interface Arrival {
  ready(): boolean;
  value(): number;
}

export class DecodeSteps {
  readonly #backend: GpuBackend;
  readonly #gpu: GpuContext;
  readonly dtype: DType;
  constructor(backend: Backend, dtype: DType) {
    if (!(backend instanceof GpuBackend)) throw new UnsupportedError(`decoding by graph: ${backend.name} is no GPU`);
    if (!DECODE_DTYPES.includes(dtype)) throw new UnsupportedError(`decoding by graph: ${dtype}; it takes ${DECODE_DTYPES.join(', ')}`);
    this.#backend = backend;
    this.#gpu = backend.context;
    this.dtype = dtype;
  }
  /** Whether a GPU takes the dtype and has shared memory for the longest vector. */
  static serves(backend: Backend, dtype: DType, longest: number): boolean {
    return backend instanceof GpuBackend && DECODE_DTYPES.includes(dtype) && 4 * longest + 1024 <= backend.context.device.info.sharedPerBlockOptin;
  }

  #run(symbol: string, grid: number, args: readonly LaunchArg[], block = BLOCK, shared = 0): void {
    runPlan(this.#gpu, { launches: [launch('decode', symbol, [grid], block, args, shared)], scratch: 0 }, {});
  }
  /** Blocks for n results: a few a multiprocessor, since each block first reads and normalises the whole vector. */
  #blocks(n: number, each: number): number {
    const { warp, multiprocessors } = this.#gpu.device.info;
    return Math.min(Math.ceil(n / ((BLOCK / warp) * each)), BLOCKS_A_PROCESSOR * multiprocessors);
  }

  /** A row of the table by the token in state. */
  embed(table: View, state: View, out: View): void {
    const n = out.layout.size;
    this.#run(`decode_embed_${this.dtype}`, Math.ceil(n / BLOCK), [addressOf(table), addressOf(state), addressOf(out), n]);
  }
  /** out = weight norm(x) + bias + residual. */
  product({ x, weight, out, norm, bias, residual }: Product): void {
    const [n, k] = weight.layout.shape;
    const args = [
      addressOf(x), norm ? addressOf(norm.weight) : 0, norm?.eps ?? 0, addressOf(weight), bias ? addressOf(bias) : 0, residual ? addressOf(residual) : 0, addressOf(out), n, k,
    ];
    this.#run(`decode_product_${this.dtype}`, this.#blocks(n, ROWS_A_WAVE), args, BLOCK, 4 * k);
  }
  /** out = silu(gate norm(x)) * (up norm(x)); the weight holds gate over up. */
  gate({ x, weight, out, norm }: Pick<Product, 'x' | 'weight' | 'out' | 'norm'>): void {
    const [n2, k] = weight.layout.shape;
    const args = [addressOf(x), norm ? addressOf(norm.weight) : 0, norm?.eps ?? 0, addressOf(weight), addressOf(out), n2 / 2, k];
    this.#run(`decode_gate_${this.dtype}`, this.#blocks(n2 / 2, 1), args, BLOCK, 4 * k);
  }
  /** Queries turned into q, keys turned into the cache, values into the cache, at the position in state. */
  ropeAppend(qkv: View, cos: View, sin: View, state: View, q: View, keys: View, values: View): void {
    const [, heads, , dim] = q.layout.shape;
    const [, kvHeads, room] = keys.layout.shape;
    const args = [qkv, cos, sin, state, q, keys, values].map(addressOf);
    this.#run(`decode_rope_append_${this.dtype}`, heads + 2 * kvHeads, [...args, heads, kvHeads, dim, room], 64);
  }
  /** One query over the keys in use. */
  attend(q: View, keys: View, values: View, lengths: View, out: View, lse: View): void {
    const params: SdpaParams = { layout: 'bhtd', scale: 1 / Math.sqrt(q.layout.shape[3]), softcap: 0, left: -1, right: -1, extras: ['lengths'], longest: [0, 0] };
    runAttention(this.#gpu, SDPA, [q, keys, values, lengths], [out, lse], params);
  }
  /** The largest logit is the next token; state moves on. `values` and `indices` hold 64 each. */
  choose(logits: View, values: View, indices: View, state: View, history: View): void {
    this.#run(`decode_argmax_${this.dtype}`, PARTS, [addressOf(logits), addressOf(values), addressOf(indices), logits.layout.size]);
    this.#run('decode_advance', 1, [addressOf(values), addressOf(indices), PARTS, addressOf(state), addressOf(history)], 128);
  }

  capture(f: () => void): Replay {
    return this.#backend.capture(f);
  }

  /** Begins to copy one i32 to the host; work enqueued later does not delay it. */
  fetch(view: View, index: number, host: { readonly address: number; readonly bytes: Uint8Array }): Arrival {
    const { device, stream } = this.#gpu;
    device.copyOutAsync(host.address, addressOf(view) + 4 * index, 4, stream);
    const event = device.createEvent(false);
    device.record(event, stream);
    let done = false;
    return {
      ready: () => {
        if (!done && device.queryEvent(event)) {
          done = true;
          device.destroyEvent(event);
        }
        return done;
      },
      value: () => new DataView(host.bytes.buffer, host.bytes.byteOffset).getInt32(0, true),
    };
  }
  pinned(bytes: number): { readonly address: number; readonly bytes: Uint8Array } {
    return this.#gpu.device.allocHost(bytes);
  }
  freePinned(buffer: { readonly address: number; readonly bytes: Uint8Array }): void {
    this.#gpu.device.freeHost(buffer);
  }
}
