// What Qwen2-VL, Qwen2.5-VL and Qwen3-VL see with: patches of pictures of any size in one row, turned by their row and
// column, that look at their own picture or (2.5) at a window of it; squares of patches become tokens.
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import { activation } from '../../nn/activation.js';
import { type LayerNorm, layerNorm, Linear, linear, type RmsNorm } from '../../nn/layers.js';
import { type Layer, Module } from '../../nn/module.js';
import { rmsNorm } from '../../nn/norm.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { Eye, type Place, type Places, type Seen } from './eye.js';
import { attended, type Run, runsOf } from './eye-runs.js';
import { feedForward, GatedFeedForward, reshaped } from '../parts.js';
import type { RopeTable } from '../decoder/rope.js';

interface QwenVision {
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly inner: number;
  /** The width of the text's tokens. */
  readonly out: number;
  readonly activation: string;
  readonly channels: number;
  readonly patch: number;
  /** Pictures of a film that make one patch. */
  readonly frames: number;
  /** Patches of a token's side. */
  readonly merge: number;
  readonly theta: number;
  /** Norms by mean squares and a gated feed-forward (2.5). */
  readonly gated: boolean;
  /** The side of windows in tokens, and the layers that look at whole pictures. */
  readonly windows?: { readonly side: number; readonly whole: readonly number[] };
  /** Learnt positions of a square of so many (3), between which pictures of other sizes lie. */
  readonly positions?: number;
  /** Layers whose patches become tokens that are added behind the text's first layers (3). */
  readonly deep: readonly number[];
}
type Norm = LayerNorm | RmsNorm;
const EPS = 1e-6;
const normOf = (c: QwenVision, vb: VarBuilder, width = c.width): Norm =>
  c.gated ? rmsNorm(width, vb, EPS) : layerNorm(width, vb, { eps: EPS });

class QwenBlock extends Module {
  readonly norm1: Norm;
  readonly qkv: Linear;
  readonly out: Linear;
  readonly norm2: Norm;
  readonly mlp: Layer;
  readonly #heads: number;
  constructor(vb: VarBuilder, c: QwenVision, names: readonly [string, string]) {
    super();
    this.#heads = c.heads;
    this.norm1 = normOf(c, vb.pp('norm1'));
    this.qkv = linear(c.width, 3 * c.width, vb.pp('attn.qkv'));
    this.out = linear(c.width, c.width, vb.pp('attn.proj'));
    this.norm2 = normOf(c, vb.pp('norm2'));
    const at = vb.pp('mlp');
    const product = (name: string): Linear => linear(c.width, c.inner, at.pp(name));
    this.mlp = c.gated
      ? new GatedFeedForward(
          product('gate_proj'),
          product('up_proj'),
          linear(c.inner, c.width, at.pp('down_proj')),
          c.activation,
        )
      : feedForward(at, names, c.width, c.inner, c.activation);
  }
  /** x is (1, patches, width). */
  forward(x: Tensor, rope: RopeTable, runs: readonly Run[]): Tensor {
    const [, n, width] = x.shape;
    const all = this.qkv.forward(this.norm1.forward(x));
    const part = (i: number): Tensor =>
      all.narrow(2, i * width, width).reshape([1, n, this.#heads, width / this.#heads]);
    const turned = (t: Tensor): Tensor => t.cast('f32').contiguous().ropeThd(rope.cos, rope.sin).cast(x.dtype);
    const [q, k, v] = [turned(part(0)), turned(part(1)), part(2)];
    const y = x.add(this.out.forward(attended(q, k, v, runs)));
    return y.add(this.mlp.forward(this.norm2.forward(y)));
  }
}

/** Squares of patches side by side, two products: tokens of the text. */
class Merger extends Module {
  readonly norm: Norm;
  readonly first: Linear;
  readonly second: Linear;
  readonly #wide: number;
  readonly #joinedFirst: boolean;
  /** `joinedFirst`: the norm is over whole squares. */
  constructor(vb: VarBuilder, c: QwenVision, names: readonly [string, string, string], joinedFirst = false) {
    super();
    this.#wide = c.width * c.merge ** 2;
    this.#joinedFirst = joinedFirst;
    this.norm = normOf(c, vb.pp(names[0]), joinedFirst ? this.#wide : c.width);
    this.first = linear(this.#wide, this.#wide, vb.pp(names[1]));
    this.second = linear(this.#wide, c.out, vb.pp(names[2]));
  }
  forward(x: Tensor): Tensor {
    const joined = (t: Tensor): Tensor => t.reshape([-1, this.#wide]);
    const y = this.#joinedFirst ? this.norm.forward(joined(x)) : joined(this.norm.forward(x));
    return this.second.forward(activation('gelu')(this.first.forward(y)));
  }
}

/** A patch's place in its picture. */
interface Patch {
  readonly row: number;
  readonly column: number;
  readonly grid: readonly number[];
}
/** Squares of patches in the order of the processor, row by row, each (row, column) of tokens, of a window's side. */
function windowsOf(rows: number, columns: number, side: number): number[][] {
  const windows: number[][] = [];
  for (let top = 0; top < rows; top += side)
    for (let left = 0; left < columns; left += side) {
      const inside: number[] = [];
      for (let y = top; y < Math.min(rows, top + side); y++)
        for (let x = left; x < Math.min(columns, left + side); x++) inside.push(y * columns + x);
      windows.push(inside);
    }
  // Windows of one size side by side: these go together.
  return windows.sort((a, b) => b.length - a.length);
}

export class QwenEye extends Eye {
  /** A patch's numbers to its vector, (width, numbers). */
  readonly patches: Linear;
  readonly positions: Tensor | undefined;
  readonly blocks: QwenBlock[];
  readonly merger: Merger;
  readonly deepMergers: Merger[];
  /** Patches of a token's side. */
  readonly merge: number;
  readonly #config: QwenVision;
  constructor(vb: VarBuilder, c: QwenVision) {
    super();
    this.#config = c;
    this.merge = c.merge;
    const { channels, frames, patch, width } = c;
    const stored = vb.get([width, channels, frames, patch, patch], 'patch_embed.proj.weight');
    const numbers = channels * frames * patch * patch;
    const third = c.positions !== undefined;
    this.patches = new Linear(
      reshaped(stored, [width, numbers]),
      third ? vb.get([width], 'patch_embed.proj.bias') : undefined,
    );
    this.positions = third ? vb.get([(c.positions as number) ** 2, width], 'pos_embed.weight') : undefined;
    const mlp = third ? (['linear_fc1', 'linear_fc2'] as const) : (['fc1', 'fc2'] as const);
    this.blocks = Array.from({ length: c.layers }, (_, i) => new QwenBlock(vb.pp('blocks', i), c, mlp));
    const names = third ? (['norm', ...mlp] as const) : (['ln_q', 'mlp.0', 'mlp.2'] as const);
    this.merger = new Merger(vb.pp('merger'), c, names);
    this.deepMergers = c.deep.map((_, i) => new Merger(vb.pp('deepstack_merger_list', i), c, names, true));
  }
  tokensOf([frames, rows, columns]: Place): number {
    return (frames * rows * columns) / this.merge ** 2;
  }
  #check(pixels: Tensor, grids: Places): void {
    const { merge } = this.#config;
    const numbers = this.patches.weight.shape[1];
    const bad = grids.find((g) => g.length !== 3 || g.some((n) => !(n > 0)) || g[1] % merge || g[2] % merge);
    if (bad)
      throw new ArgumentError(
        `pictures: a grid is [${bad.join(', ')}]; it must be frames, rows and columns of patches, both of these a ` +
          `multiple of ${merge}`,
      );
    const count = grids.reduce((n, [t, h, w]) => n + t * h * w, 0);
    if (pixels.rank !== 2 || pixels.shape[0] !== count || pixels.shape[1] !== numbers)
      throw new ArgumentError(
        `pictures: patches have shape [${pixels.shape.join(', ')}]; by their grids they are (${count}, ${numbers})`,
      );
  }
  /** Patches in the order of the processor: frame by frame, squares of a token row by row, and within them. */
  #patchesOf(grids: Places): Patch[] {
    const { merge } = this.#config;
    return grids.flatMap((grid) => {
      const [t, h, w] = grid;
      return Array.from({ length: t * h * w }, (_, i) => {
        const [within, square] = [i % merge ** 2, Math.floor((i % (h * w)) / merge ** 2)];
        const across = w / merge;
        return {
          row: Math.floor(square / across) * merge + Math.floor(within / merge),
          column: (square % across) * merge + (within % merge),
          grid,
        };
      });
    });
  }
  /** How patches turn: half of a head's pairs by their row, half by their column. */
  #rope(patches: readonly Patch[], like: Tensor): RopeTable {
    const { width, heads, theta } = this.#config;
    const quarter = width / heads / 4;
    const speeds = Array.from({ length: quarter }, (_, i) => Math.fround(1 / theta ** (i / quarter)));
    const angles = Float32Array.from(
      patches.flatMap(({ row, column }) => [row, column].flatMap((at) => speeds.map((s) => at * s))),
    );
    const table = (f: (x: number) => number): Tensor =>
      tensor(angles.map(f), { shape: [patches.length, 2 * quarter], device: like.device });
    return { cos: table(Math.cos), sin: table(Math.sin) };
  }
  /** Learnt positions between which patches lie, (patches, width). */
  #placed(patches: readonly Patch[], table: Tensor): Tensor {
    const side = this.#config.positions as number;
    const taps = (at: number, count: number): [place: number, share: number][] => {
      const from = (at * (side - 1)) / Math.max(count - 1, 1);
      const low = Math.floor(from);
      return [0, 1].map((k) => [Math.min(low + k, side - 1), 1 - Math.abs(from - low - k)]);
    };
    const all = patches.flatMap(({ row, column, grid: [, h, w] }) =>
      taps(row, h).flatMap(([y, a]) => taps(column, w).map(([x, b]) => [y * side + x, a * b] as const)),
    );
    const { device } = table;
    const n = patches.length;
    const ids = tensor(
      Uint32Array.from(all, ([id]) => id),
      { shape: [n, 4], device },
    );
    const shares = tensor(
      Float32Array.from(all, ([, share]) => share),
      { shape: [n, 4, 1], device },
    );
    return table.embedding(ids).cast('f32').mul(shares).sum([1]).cast(table.dtype);
  }
  /** Tokens in the order of their windows, and the patches of each window. */
  #windows(grids: Places): { readonly order: number[]; readonly lengths: number[] } {
    const { merge, windows } = this.#config;
    const order: number[] = [];
    const lengths: number[] = [];
    let first = 0;
    for (const [t, h, w] of grids)
      for (let frame = 0; frame < t; frame++) {
        const [rows, columns] = [h / merge, w / merge];
        for (const inside of windowsOf(rows, columns, windows?.side ?? Math.max(rows, columns))) {
          order.push(...inside.map((i) => first + i));
          lengths.push(inside.length * merge ** 2);
        }
        first += rows * columns;
      }
    return { order, lengths };
  }
  /** Patches (n, numbers) of pictures of these grids: frames, rows and columns of patches. */
  forward(pixels: Tensor, places: Places = []): Seen {
    this.#check(pixels, places);
    const { merge, width, windows, deep } = this.#config;
    const square = merge ** 2;
    const patches = this.#patchesOf(places);
    let x = this.patches.forward(pixels);
    if (this.positions) x = x.add(this.#placed(patches, this.positions));
    const { order, lengths } = this.#windows(places);
    const ids = (list: readonly number[]): Tensor => tensor(Uint32Array.from(list), { device: x.device });
    const picked = (t: Tensor, list: readonly number[]): Tensor =>
      t.reshape([list.length, -1]).indexSelect(0, ids(list));
    if (windows) x = picked(x, order);
    x = x.reshape([1, patches.length, width]);
    const rope = this.#rope(windows ? order.flatMap((i) => patches.slice(i * square, (i + 1) * square)) : patches, x);
    const whole = runsOf(places.flatMap(([t, h, w]) => Array<number>(t).fill(h * w)));
    const near = runsOf(lengths);
    const made: Tensor[] = [];
    this.blocks.forEach((block, i) => {
      x = block.forward(x, rope, windows && !windows.whole.includes(i) ? near : whole);
      if (deep.includes(i)) made.push(this.deepMergers[deep.indexOf(i)].forward(x));
    });
    const tokens = this.merger.forward(x);
    if (!windows) return { tokens, deep: made };
    const back = Array<number>(order.length);
    order.forEach((at, i) => {
      back[at] = i;
    });
    return { tokens: picked(tokens, back) };
  }
}

/** What the generations of Qwen's towers do differently. */
const KINDS = ['qwen2_vl', 'qwen2_5_vl', 'qwen3_vl'] as const;
export type QwenKind = (typeof KINDS)[number];

/** A square side, given once or twice. */
export function sideOf(v: Config, name: string, unsaid: number): number {
  if (!Array.isArray(v.get(name))) return v.count(name, unsaid, 1);
  const [a, b] = v.numbers(name, 2);
  if (a !== b) throw new UnsupportedError(`${v.where}: vision_config.${name} is [${a}, ${b}]; squares are served`);
  return a;
}
/** What patches turn by; older configs say it beside the other fields. */
export function thetaOf(v: Config): number {
  const rope = v.inner('rope_parameters');
  rope?.only('rope_type', 'axial', 'default');
  const old = v.number('rope_theta', 10_000);
  return rope?.number('rope_theta', old) ?? old;
}

export function qwenEye(v: Config, vb: VarBuilder, kind: QwenKind, written: number): QwenEye {
  v.ignoreBooks();
  v.ignore('model_type', 'tokens_per_second', 'initializer_range');
  const [second, gated, third] = KINDS.map((k) => k === kind);
  const width = second ? v.count('embed_dim', 1280) : v.count('hidden_size', gated ? 3584 : 1152);
  const out = second ? v.count('hidden_size', 3584) : v.count('out_hidden_size', 3584);
  const patch = sideOf(v, 'patch_size', third ? 16 : 14);
  const merge = v.count('spatial_merge_size', 2, 1);
  const channels = v.count('in_channels', 3);
  const inner = second ? width * v.count('mlp_ratio', 4) : v.count('intermediate_size', gated ? 3420 : 4304);
  const heads = v.count('num_heads', 16, 1);
  v.only('in_chans', channels);
  v.only('spatial_patch_size', patch);
  if (out !== written)
    throw new FormatError(`${v.where}: pictures become tokens of ${out} numbers; those of the text have ${written}`);
  if (width % (4 * heads) !== 0)
    throw new FormatError(
      `${v.where}: vision_config: ${width} numbers of ${heads} heads do not turn by row and column`,
    );
  const list = (name: string, unsaid: readonly number[]): readonly number[] => (v.has(name) ? v.numbers(name) : unsaid);
  const positions = third ? Math.trunc(Math.sqrt(v.count('num_position_embeddings', 2304, 1))) : undefined;
  if (positions !== undefined && positions ** 2 !== v.count('num_position_embeddings', 2304))
    throw new UnsupportedError(`${v.where}: vision_config.num_position_embeddings is no square`);
  const side = gated ? Math.floor(Math.floor(v.count('window_size', 112, 1) / merge) / patch) : 0;
  if (gated && side < 1) throw new FormatError(`${v.where}: vision_config.window_size holds no token`);
  return new QwenEye(vb, {
    ...{ width, out, patch, merge, channels, inner, heads, gated },
    layers: v.count('depth', third ? 27 : 32),
    activation: v.activation('hidden_act', second ? 'quick_gelu' : gated ? 'silu' : 'gelu_pytorch_tanh'),
    frames: v.count('temporal_patch_size', 2, 1),
    theta: thetaOf(v),
    ...(gated && { windows: { side, whole: list('fullatt_block_indexes', [7, 15, 23, 31]) } }),
    ...(positions !== undefined && { positions }),
    deep: third ? list('deepstack_visual_indexes', [8, 16, 24]) : [],
  });
}
