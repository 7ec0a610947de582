// The steps of decoding one token on a GPU, as launches on preallocated memory: what a captured graph is made of.
import type { DType } from '../../base/dtype.js';
import { ShapeError, UnsupportedError } from '../../base/errors.js';
import type { HostBuffer, Stream } from '../../driver/driver.js';
import { CTYPE, KernelModule, Struct } from '../../kernels/declare.js';
import type { BlockType } from '../../ops/quantized.js';
import type { View } from '../backend.js';
import { DECODE_TYPES, type DecodeType, gateNumber } from '../generation.js';
import { together } from './attention-kernels.js';
import type { GpuContext } from './context.js';
import { blocksLaunch, twoLaunch } from './decode-blocks.js';
import { type Chosen, gateLaunch, type Router, routerLaunch, sumLaunch } from './decode-experts.js';
import { fewLaunch, fewSuits } from './decode-few.js';
import { latentLaunches, type NewLatent } from './decode-latent.js';
import { type Draw, type DrawBuffers, drawLaunches } from './decode-sample.js';
import { BLOCK, DECODE_THREADS, NORMS, normName, normType, rowThreads, TILE, wanted } from './decode-tiles.js';
import type { GpuBackend, Replay } from './gpu.js';
import { hasMatrixUnits } from './matmul.js';
import { addressOf, type Launch, launch, packOf } from './plan.js';
import { enqueue } from './run-plan.js';

export const DECODE = new KernelModule('decode');
export const DECODE_ATTENTION = new KernelModule('decode-attention');
const embedding = DECODE.declare({
  each: { dtype: DECODE_TYPES },
  symbol: ({ dtype }) => `decode_embed_${dtype}`,
  body: ({ dtype: d }) => ({
    threads: DECODE_THREADS,
    params: { table: `const ${CTYPE[d]}*`, state: 'const i32*', out: `${CTYPE[d]}*`, factor: 'float', n: 'i32' },
    call: `decode_embed<${CTYPE[d]}>`,
  }),
});
const stored = DECODE.declare({
  each: { dtype: DECODE_TYPES },
  symbol: ({ dtype }) => `decode_store_${dtype}`,
  body: ({ dtype: d }) => ({
    threads: DECODE_THREADS,
    params: {
      x: `const ${CTYPE[d]}*`,
      state: 'const i32*',
      cache: `${CTYPE[d]}*`,
      heads: 'i32',
      width: 'i32',
      room: 'i32',
    },
    call: `decode_store<${CTYPE[d]}>`,
  }),
});
const join = DECODE.declare({
  each: { dtype: DECODE_TYPES, norm: NORMS },
  only: wanted,
  symbol: ({ dtype, norm }) => `decode_join_${dtype}${normName(norm)}`,
  body: ({ dtype, norm }) => ({
    threads: { constant: 'DECODE_JOIN', threads: 1024 },
    params: {
      x: `const ${CTYPE[dtype]}*`,
      norm: `const ${normType(dtype, norm)}*`,
      eps: 'float',
      residual: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      n: 'i32',
    },
    call: 'decode_join',
  }),
});
/** A product, or a gate. */
const floatRows = (kind: 'product' | 'gate') =>
  DECODE.declare({
    each: { dtype: DECODE_TYPES, norm: NORMS },
    only: wanted,
    symbol: ({ dtype, norm }) => `decode_${kind}_${dtype}_${TILE.name}${normName(norm)}`,
    body: ({ dtype, norm }) => {
      const [T, N] = [CTYPE[dtype], normType(dtype, norm)];
      return {
        threads: DECODE_THREADS,
        beside: TILE.beside,
        params: {
          x: `const ${T}*`,
          norm: `const ${N}*`,
          eps: 'float',
          w: `const ${T}*`,
          bias: `const ${T}*`,
          residual: `const ${T}*`,
          out: `${T}*`,
          best: 'u64*',
          act: 'i32',
          n: 'i32',
          k: 'i32',
          hurry: 'i32',
        },
        call: `decode_rows<${T}, ${N}, ${TILE.rows}, ${TILE.words}, ${kind === 'gate'}>`,
      };
    },
  });
const ROWS = { product: floatRows('product'), gate: floatRows('gate') } as const;
const advance = DECODE.declare({
  each: {},
  symbol: () => 'decode_advance',
  body: () => ({ threads: 32, params: { best: 'u64*', state: 'i32*', tokens: 'i32*' }, call: 'advance' }),
});

/** Threads of decode-attention, and keys a block has at least. */
const SPLIT_BLOCK = 128;
const SPLIT_KEYS = 128;
/** Splits whose weights a block has room for when it joins them. */
const MOST_SPLITS = 1024;
const DIMS = [64, 128, 256] as const;
const NEW_TOKEN = new Struct('NewToken', {
  qkv: 'pointer',
  cos: 'pointer',
  sin: 'pointer',
  state: 'pointer',
  keys: 'pointer',
  values: 'pointer',
  out: 'pointer',
  partial: 'pointer',
  arrived: 'pointer',
  qNorm: 'pointer',
  kNorm: 'pointer',
  table: 'pointer',
  heads: 'i32',
  kvHeads: 'i32',
  dim: 'i32',
  room: 'i32',
  window: 'i32',
  pageShift: 'i32',
  width: 'i32',
  scale: 'float',
  eps: 'float',
  softcap: 'float',
});
const newToken = DECODE_ATTENTION.declare({
  each: { dtype: DECODE_TYPES, dim: DIMS, heads: [1, 2, 4, 8], cache: ['whole', 'paged'] },
  symbol: ({ dtype, dim, heads, cache }) =>
    `decode_attention_${cache === 'paged' ? 'paged_' : ''}${dtype}_${dim}_${heads}`,
  body: ({ dtype, dim, heads, cache }) => ({
    threads: { constant: 'DECODE_SPLIT', threads: SPLIT_BLOCK },
    params: { p: NEW_TOKEN },
    call:
      `decode_attention<${CTYPE[dtype]}, ${dim}, ${heads}, ` +
      `${cache === 'paged' ? 'PAGED' : 'KEYS'}_AHEAD<${CTYPE[dtype]}, ${dim}, ${heads}>, ${cache === 'paged'}>`,
  }),
});

/** Targets whose matrix units have operands lie as mma has them. */
const hasTiles = ({ arch }: { readonly arch: string }): boolean => hasMatrixUnits({ arch }) && !arch.startsWith('gfx');
/** Query heads of 16 bits that share a key, all at once through matrix units: eight at most, four of 256 numbers. */
const unitHeads = (dim: number): number => (dim > 128 ? 4 : 8);
/**
 * Waves of a block, and blocks on a multiprocessor: eight waves have the registers that they want, twelve do with fewer
 * and keep more keys under way. Those of pages have fewer waves: many sequences have blocks of their own. `joined` ones
 * are clusters of all splits, which read each other's parts.
 */
const UNITS = {
  whole: { waves: 8, beside: 1 },
  joined: { waves: 8, beside: 1 },
  paged: { waves: 4, beside: 2 },
  many: { waves: 3, beside: 4 },
} as const;
/**
 * Splits of a cluster, and when it pays: the heads are few and what a split reads is little, for all others would fill
 * more multiprocessors. (An H200, four heads: Gemma 3 4B 466 tokens/s without and 474 with it.)
 */
const JOINED = { splits: 8, blocks: 4, numbers: 2 ** 19 } as const;
const hasClusters = (arch: string): boolean => Number(/^(?:sm|compute)_(\d+)/.exec(arch)?.[1] ?? 0) >= 90;
const byUnits = DECODE_ATTENTION.declare({
  each: { dtype: ['f16', 'bf16'], dim: DIMS, form: ['whole', 'joined', 'paged', 'many'] },
  only: ({ dim, form }) => form !== 'many' || dim <= 128,
  symbol: ({ dtype, dim, form }) => `decode_attention_units_${form === 'whole' ? '' : `${form}_`}${dtype}_${dim}`,
  body: ({ dtype, dim, form }) => ({
    threads: 32 * UNITS[form].waves,
    beside: UNITS[form].beside,
    ...(form === 'joined' && { cluster: JOINED.splits }),
    params: { p: NEW_TOKEN },
    call:
      `decode_attention_units<${CTYPE[dtype]}, ${dim}, ${UNITS[form].waves}, ` +
      `${form === 'paged' || form === 'many'}, ${form === 'joined'}>`,
  }),
  launchedOn: ({ form }, arch) => hasTiles({ arch }) && (form !== 'joined' || hasClusters(arch)),
});

export interface Product {
  readonly x: View;
  /** (rows, values), or bytes of blocks (rows, bytes) of a type. */
  readonly weight: View;
  readonly type?: BlockType;
  readonly out: View;
  /** Weight of a root-mean-square norm before the product. */
  readonly norm?: { readonly weight: View; readonly eps: number };
  readonly bias?: View;
  readonly residual?: View;
  /** Eight bytes, 0 before: where the largest result is remembered for `advance`. */
  readonly best?: View;
  /** Whether the next launch may begin before this one's turn: it reads nothing but weights before its own. */
  readonly hurry?: boolean;
}
export interface Gated extends Pick<Product, 'x' | 'weight' | 'type' | 'out' | 'norm' | 'hurry'> {
  /** Its name in configs; see `isGate`. */
  readonly activation: string;
}

/** Heads of queries and of keys, their size, and the most tokens that there will be. */
export interface HeadShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly room: number;
  /** Whether keys stand in pages. */
  readonly paged?: boolean;
  /** Keys that a query sees. */
  readonly window?: number;
}
/** A new token's attention: what the kernel's struct NewToken holds. */
export interface NewToken {
  readonly qkv: View;
  readonly cos: View;
  readonly sin: View;
  readonly state: View;
  /** The cache, (1, kvHeads, room, dim); with `paged`, (rows, kvHeads * dim). */
  readonly keys: View;
  readonly values: View;
  /** (sequences, heads, 1, dim) */
  readonly out: View;
  /** As many floats as `partialSize` says. */
  readonly partial: View;
  /** What products of queries and keys are multiplied by; default 1 / sqrt(dim). */
  readonly scale?: number;
  /** A zero for every head of each sequence. */
  readonly arrived: View;
  /** Weights (f32) of root-mean-square norms over each query and each key, and what is added to their squares. */
  readonly qNorm?: View;
  readonly kNorm?: View;
  readonly eps?: number;
  /** Keys that a query sees, itself counted. */
  readonly window?: number;
  /** A cap on scores. */
  readonly softcap?: number;
  /** Pages by number, rows of a page (a power of two), and the most tokens that there will be. */
  readonly paged?: { readonly table: View; readonly pageTokens: number; readonly room: number };
}

/** A place on the host where one number arrives at a time. */
export interface Slot {
  readonly host: HostBuffer;
  readonly event: number;
}

const addressOr0 = (v?: View): number => (v ? addressOf(v) : 0);

export class DecodeSteps {
  readonly #backend: GpuBackend;
  readonly #gpu: GpuContext;
  readonly dtype: DType;
  /** Sequences that have a token each; attention and products take more than one. */
  readonly sequences: number;
  constructor(backend: GpuBackend, dtype: DType, sequences = 1) {
    this.sequences = sequences;
    if (!(DECODE_TYPES as readonly DType[]).includes(dtype))
      throw new UnsupportedError(`decoding by graph: ${dtype}; it takes ${DECODE_TYPES.join(', ')}`);
    this.#backend = backend;
    this.#gpu = backend.context;
    this.dtype = dtype;
  }

  /** Where numbers go to the host. */
  #beside: Stream | undefined;
  #foreseeing = false;
  /** Where kernels are waited for, those of a step are compiled meanwhile: its launches are left out. */
  foresee(step: () => void): void {
    if (!this.#gpu.turn.taken) return;
    this.#foreseeing = true;
    try {
      step();
    } finally {
      this.#foreseeing = false;
    }
  }
  #run(l: Launch): void {
    if (this.#foreseeing) return void this.#gpu.functions.ofKernel(l.kernel, l.variant);
    const none = (): never => {
      throw new UnsupportedError('decoding by graph: its launches name no buffers');
    };
    enqueue(this.#gpu, { ...l, early: true }, none, (v) => addressOf(v as View));
  }
  get #type(): DecodeType {
    return this.dtype as DecodeType;
  }
  #norm(norm: Product['norm']): { readonly kind: (typeof NORMS)[number]; readonly norm: number; readonly eps: number } {
    const kind = norm && norm.weight.dtype !== this.dtype ? 'f32' : 'own';
    return { kind, norm: addressOr0(norm?.weight), eps: norm?.eps ?? 0 };
  }

  /** A row of the table by the token in state, times a factor. */
  embed(table: View, state: View, out: View, factor = 1): void {
    const n = out.layout.size;
    const args = { table: addressOf(table), state: addressOf(state), out: addressOf(out), factor, n };
    this.#run(launch(embedding, { dtype: this.#type }, Math.ceil(n / BLOCK), BLOCK, args));
  }
  /**
   * A new token's vectors (heads, width) to their place in a cache (1, heads, room, width), at the position in state.
   */
  store(x: View, state: View, cache: View): void {
    const [, heads, room, width] = cache.layout.shape;
    const args = { x: addressOf(x), state: addressOf(state), cache: addressOf(cache), heads, width, room };
    this.#run(launch(stored, { dtype: this.#type }, Math.ceil((heads * width) / BLOCK), BLOCK, args));
  }
  /** out = residual + norm(x); what follows reads nothing but weights before its own turn. */
  join({ x, norm, residual, out }: Required<Pick<Product, 'x' | 'norm' | 'residual' | 'out'>>): void {
    const { kind, ...side } = this.#norm(norm);
    const n = out.layout.size;
    const args = { ...side, x: addressOf(x), residual: addressOf(residual), out: addressOf(out), n };
    // Waves that have nothing to add would be waited for.
    const threads = n <= 512 * packOf(this.#type) ? 512 : 1024;
    this.#run(launch(join, { dtype: this.#type, norm: kind }, 1, threads, args));
  }
  /** A product with weights in blocks, or a gate. */
  #blocks(p: Product, type: BlockType, activation?: string): void {
    const given = { ...p, type, norm: this.#norm(p.norm), ...(activation !== undefined && { activation }) };
    this.#run(blocksLaunch(this.#gpu.device.info, this.#type, given));
  }
  /** out = weight norm(x) + bias, rows of one type over rows of another; see `areTwo`. */
  two(p: Pick<Product, 'x' | 'out' | 'norm' | 'bias'> & Pick<Parameters<typeof twoLaunch>[2], 'parts'>): void {
    this.#run(twoLaunch(this.#gpu.device.info, this.#type, { ...p, norm: this.#norm(p.norm) }));
  }
  /** out = weight norm(x) + bias + residual. */
  product(p: Product): void {
    if (p.type) return this.#blocks(p, p.type);
    this.#rows('product', p, p.weight.layout.shape[0]);
  }
  /** out = activation(gate norm(x)) * (up norm(x)); the weight holds gate over up. */
  gate(g: Gated): void {
    if (g.type) return this.#blocks(g, g.type, g.activation);
    this.#rows('gate', g, g.weight.layout.shape[0] / 2, g.activation);
  }
  /** Whether products of several sequences take such a weight. */
  takes(weight: View): boolean {
    return weight.dtype === this.dtype && fewSuits(this.#gpu.device.info, weight, this.sequences);
  }
  #few(p: Product, activation?: string): void {
    if (p.best || !this.takes(p.weight))
      throw new UnsupportedError(`decoding by graph: a product of ${this.sequences} sequences in ${p.weight.dtype}`);
    const given = { ...p, norm: this.#norm(p.norm), ...(activation && { activation }) };
    this.#run(fewLaunch(this.#gpu.device.info, this.#type as 'f16' | 'bf16', this.sequences, given));
  }
  #rows(kind: keyof typeof ROWS, p: Product, n: number, activation?: string): void {
    if (this.sequences > 1) return this.#few(p, activation);
    const [all, k] = p.weight.layout.shape;
    const threads = rowThreads(this.dtype, k, this.#gpu.device.info.warp);
    const { kind: norm, ...side } = this.#norm(p.norm);
    const args = {
      ...side,
      ...{ x: addressOf(p.x), w: addressOf(p.weight), bias: addressOr0(p.bias), residual: addressOr0(p.residual) },
      ...{ out: addressOf(p.out), best: addressOr0(p.best), act: gateNumber(activation ?? 'silu'), n, k },
      hurry: Number(p.hurry ?? false),
    };
    this.#run(launch(ROWS[kind], { dtype: this.#type, norm }, Math.ceil(all / TILE.rows), threads, args));
  }
  /** A router's logits of a vector, from which the two that follow choose. */
  router(r: Router): void {
    this.#run(routerLaunch(this.#type, r, this.#norm(r.norm), this.#gpu.device.info));
  }
  /** Gates of the chosen experts, (chosen, inner), and of those that every token goes to. */
  chosenGate(c: Chosen & Pick<Gated, 'norm' | 'activation'>): void {
    this.#run(gateLaunch(this.#type, c, this.#norm(c.norm), gateNumber(c.activation), this.#gpu.device.info));
  }
  /** out = residual + the weighted sum of the chosen experts; the logits are older than the last launch. */
  chosenSum(c: Chosen & Pick<Product, 'residual'>): void {
    this.#run(sumLaunch(this.#type, c, addressOr0(c.residual), this.#gpu.device.info));
  }
  /** The size of heads that matrix units serve, blocks without splits, and how many work at a time beside another. */
  #attention({ heads, kvHeads, dim, room, window = room, paged = false }: HeadShape) {
    const { arch, warp, multiprocessors } = this.#gpu.device.info;
    const [g, units] = [together(heads, kvHeads), DIMS.find((d) => d === dim)];
    if (units && this.dtype !== 'f32' && hasTiles({ arch }) && warp === 32) {
      const blocks = kvHeads * Math.ceil(heads / kvHeads / unitHeads(dim));
      const many = dim <= 128 && this.sequences * blocks > UNITS.paged.beside * multiprocessors;
      const few = blocks <= JOINED.blocks && Math.min(window, room) * dim <= JOINED.numbers;
      const joins = few && room > JOINED.splits * SPLIT_KEYS && hasClusters(arch);
      const form = paged ? (many ? 'many' : 'paged') : joins ? 'joined' : 'whole';
      return { units, form, blocks, beside: UNITS[form].beside } as const;
    }
    // One more than work at a time would wait for all others. Those of pages take fewer registers.
    return { form: 'whole', blocks: heads / g, beside: paged || arch.startsWith('gfx') ? 4 : g === 8 ? 2 : 3 };
  }
  /** How many blocks share the keys of a head, at most. */
  splits(shape: HeadShape): number {
    const { blocks, beside, form } = this.#attention(shape);
    if (form === 'joined') return JOINED.splits;
    const filling = Math.floor((this.#gpu.device.info.multiprocessors * beside) / (this.sequences * blocks));
    return Math.max(1, Math.min(Math.ceil(shape.room / SPLIT_KEYS), filling, MOST_SPLITS));
  }
  /** Floats of what splits have found before they are joined. */
  partialSize(shape: HeadShape): number {
    return this.sequences * shape.heads * this.splits(shape) * (shape.dim + 1);
  }
  /** Queries and keys turned, key and value into the cache, one query over all keys, at the position in state. */
  attend({ paged, ...t }: NewToken): void {
    if (this.sequences > 1 && !paged)
      throw new UnsupportedError('decoding by graph: keys of several sequences stand in pages');
    const [, heads, , dim] = t.out.layout.shape;
    const [, second, third] = t.keys.layout.shape;
    const [kvHeads, room] = paged ? [second / dim, paged.room] : [second, third];
    const wide = DIMS.find((d) => dim <= d);
    if (!wide) throw new UnsupportedError(`decoding by graph: head dimension ${dim}; at most 256 is supported`);
    const shape = { heads, kvHeads, dim, room, window: t.window, paged: paged !== undefined };
    const { units, form, blocks } = this.#attention(shape);
    const [grid, parts] = [[this.splits(shape), blocks, this.sequences], this.partialSize(shape)];
    if (t.partial.layout.size < parts)
      throw new ShapeError(`decoding by graph: parts of attention take ${parts} floats, not ${t.partial.layout.size}`);
    const pages = paged && {
      ...{ table: paged.table, pageShift: Math.log2(paged.pageTokens) },
      width: paged.table.layout.size / this.sequences,
    };
    const p = { ...t, ...pages, heads, kvHeads, dim, room, scale: t.scale ?? 1 / Math.sqrt(dim) };
    const [dtype, cache] = [this.#type, paged ? 'paged' : 'whole'] as const;
    if (units && dtype !== 'f32')
      return this.#run(launch(byUnits, { dtype, dim: units, form }, grid, 32 * UNITS[form].waves, { p }));
    this.#run(launch(newToken, { dtype, dim: wide, heads: together(heads, kvHeads), cache }, grid, SPLIT_BLOCK, { p }));
  }
  /** The same through latents, which alone are kept. */
  attendLatent(t: NewLatent): void {
    for (const l of latentLaunches(this.#type, t)) this.#run(l);
  }
  /** The best logit's token is the next one; state moves on, `tokens` remembers it by its position. */
  advance(best: View, state: View, tokens: View): void {
    const args = { best: addressOf(best), state: addressOf(state), tokens: addressOf(tokens) };
    this.#run(launch(advance, {}, 1, 32, args));
  }
  /** The next token is drawn; -1 where too many can be. State moves on. */
  draw(b: DrawBuffers, d: Draw): void {
    for (const l of drawLaunches(this.#type, b, d)) this.#run(l);
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
  /**
   * Begins to copy one i32 to the host; work enqueued later does not delay it, nor does the copy stand between two
   * steps. What is copied may not be written by any of them.
   */
  fetch(view: View, index: number, { host, event }: Slot): void {
    const { device, stream } = this.#gpu;
    const beside = (this.#beside ??= device.createStream());
    device.record(event, stream);
    device.streamWait(beside, event);
    device.copyOutAsync(host.address, addressOf(view) + 4 * index, 4, beside);
    device.record(event, beside);
  }
  /** What was asked for last, once it is there. */
  async arrived({ host, event }: Slot): Promise<number> {
    while (!this.#gpu.device.queryEvent(event)) await new Promise<void>((r) => setImmediate(r));
    return new DataView(host.bytes.buffer, host.bytes.byteOffset).getInt32(0, true);
  }
  /** Waits for all that was enqueued. */
  finish(): void {
    const { device, stream } = this.#gpu;
    device.synchronizeStream(stream);
    if (this.#beside !== undefined) device.synchronizeStream(this.#beside);
  }
  /** After the last step. */
  dispose(): void {
    this.finish();
    if (this.#beside !== undefined) this.#gpu.device.destroyStream(this.#beside);
    this.#beside = undefined;
  }
}
