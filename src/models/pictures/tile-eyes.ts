// Eyes that look at a picture's tiles beside the whole of it: LLaVA-NeXT and OneVision, whose tiles become one picture
// again, and Idefics 3, SmolVLM and InternVL, whose tiles are pictures of their own and squares of patches become
// tokens.
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import type { Layer, Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { VisionTower } from '../vision/clip.js';
import { Eye, type Place, type Places, type Seen } from './eye.js';

type Size = readonly [height: number, width: number];

/** Of the sizes that tiles can make, the one that shows the most of a picture, and of those the smallest. */
export function bestSize([height, width]: Size, sizes: readonly Size[]): Size {
  let [best, shown, wasted]: [Size | undefined, number, number] = [undefined, 0, Infinity];
  for (const size of sizes) {
    const scale = Math.min(size[1] / width, size[0] / height);
    const effective = Math.min(Math.trunc(width * scale) * Math.trunc(height * scale), width * height);
    const rest = size[0] * size[1] - effective;
    if (effective > shown || (effective === shown && rest < wasted)) [best, shown, wasted] = [size, effective, rest];
  }
  if (!best) throw new ArgumentError(`pictures: one of ${height} x ${width} pixels fits none of the model's sizes`);
  return best;
}

/** What tells LLaVA-NeXT and OneVision apart. */
export interface TileConfig {
  /** The side of a tile in pixels, and in patches. */
  readonly side: number;
  readonly patches: number;
  /** Sizes that tiles make. */
  readonly sizes: readonly Size[];
  /** Pictures of more tokens than so many tiles are made smaller (OneVision). */
  readonly mostTiles?: number;
}
/** Where a picture lies in the square of its tiles, in patches: what was padded around it is left out. */
interface Cut {
  readonly grid: Size;
  readonly top: number;
  readonly left: number;
  readonly height: number;
  readonly width: number;
  /** The size that it is made smaller to. */
  readonly shrunk: Size | undefined;
}

export class TileEye extends Eye {
  readonly tower: VisionTower;
  readonly project: Layer;
  /** Stands behind each row of tokens. */
  readonly newline: Tensor;
  readonly #config: TileConfig;
  readonly #select: (tower: VisionTower, pixels: Tensor) => Tensor;
  constructor(
    parts: Pick<TileEye, 'tower' | 'project' | 'newline'>,
    config: TileConfig,
    select: (tower: VisionTower, pixels: Tensor) => Tensor,
  ) {
    super();
    this.tower = parts.tower;
    this.project = parts.project;
    this.newline = parts.newline;
    this.#config = config;
    this.#select = select;
  }
  #cut([height, width]: Place): Cut {
    const { side, patches, sizes, mostTiles } = this.#config;
    const grid = bestSize([height, width], sizes).map((n) => Math.floor(n / side)) as [number, number];
    const [rows, columns] = grid.map((n) => n * patches);
    const wide = width / height > columns / rows;
    // Seven digits, so that a side that divides is not cut short by its rounding.
    const whole = (x: number): number => Math.trunc(Number(x.toFixed(7)));
    const pad = wide
      ? Math.floor((rows - whole(height * (columns / width))) / 2)
      : Math.floor((columns - whole(width * (rows / height))) / 2);
    const [top, left] = wide ? [pad, 0] : [0, pad];
    const [h, w] = [rows - 2 * top, columns - 2 * left];
    const ratio = mostTiles === undefined ? 0 : Math.sqrt((h * w) / (mostTiles * patches ** 2));
    const shrunk = ratio > 1.1 ? ([Math.floor(h / ratio), Math.floor(w / ratio)] as const) : undefined;
    return { grid, top, left, height: h, width: w, shrunk };
  }
  tokensOf(place: Place): number {
    const square = this.#config.patches ** 2;
    if (place[2] === 1) return square + 1;
    const { height, width, shrunk } = this.#cut(place);
    const [h, w] = shrunk ?? [height, width];
    return square + h * (w + 1);
  }
  /** How many tiles a picture of this size is cut into, the whole of it counted. */
  tilesOf([height, width]: Size): number {
    const [rows, columns] = this.#cut([height, width]).grid;
    return rows * columns + 1;
  }
  /** A picture's tokens of those of its tiles, (tiles, patches, hidden), the whole of it first. */
  #joined(tiles: Tensor, place: Place): Tensor {
    const { patches } = this.#config;
    const hidden = tiles.shape[2];
    const line = this.newline.reshape([1, hidden]).cast(tiles.dtype);
    const base = tiles.narrow(0, 0, 1).reshape([-1, hidden]);
    if (tiles.shape[0] === 1) return base.cat([line], 0);
    const { grid, top, left, height, width, shrunk } = this.#cut(place);
    const picture = tiles
      .narrow(0, 1, tiles.shape[0] - 1)
      .reshape([...grid, patches, patches, hidden])
      .permute([0, 2, 1, 3, 4])
      .reshape([grid[0] * patches, grid[1] * patches, hidden])
      .narrow(0, top, height)
      .narrow(1, left, width);
    const small = shrunk
      ? picture
          .permute([2, 0, 1])
          .unsqueeze(0)
          .contiguous()
          .interpolate({ size: [...shrunk], mode: 'bilinear' })
          .squeeze(0)
          .permute([1, 2, 0])
      : picture;
    const lines = line.unsqueeze(0).broadcastTo([small.shape[0], 1, hidden]);
    return base.cat([small.cat([lines], 1).reshape([-1, hidden])], 0);
  }
  /** Tiles (n, channels, side, side) of pictures of these heights and widths, and as many tiles of each. */
  forward(pixels: Tensor, places: Places = []): Seen {
    const counts = places.map((p) => p[2]);
    const expected = places.map(([h, w, tiles]) => tiles === 1 || tiles === this.tilesOf([h, w]));
    const total = counts.reduce((a, b) => a + b, 0);
    if (places.some((p) => p.length !== 3) || expected.includes(false) || pixels.shape[0] !== total)
      throw new ArgumentError(
        `pictures: ${pixels.shape[0]} tiles, and [${places.map((p) => `[${p.join(', ')}]`).join(', ')}] as the ` +
          'height, width and tiles of each picture: a picture has one tile, or as many as its size asks for',
      );
    const all = this.project.forward(this.#select(this.tower, pixels));
    let from = 0;
    const parts = places.map((place) => {
      const part = all.narrow(0, from, place[2]);
      from += place[2];
      return this.#joined(part, place);
    });
    return { tokens: parts[0].cat(parts.slice(1), 0) };
  }
}

/** What sees pictures of one size, or of others too: vectors of their patches. */
interface PatchTower extends Module {
  readonly grid: readonly [rows: number, columns: number];
  hidden(pixels: Tensor): Tensor;
}
/** Squares of patches are one token (Idefics 3, SmolVLM, InternVL). */
export class ShuffledEye extends Eye {
  readonly tower: PatchTower;
  readonly project: Layer;
  readonly #side: number;
  /** `side`: patches of a token's, which `project` takes side by side. */
  constructor(tower: PatchTower, project: Layer, side: number) {
    super();
    this.tower = tower;
    this.#side = side;
    this.project = project;
  }
  tokensOf(): number {
    const [h, w] = this.tower.grid;
    return (h * w) / this.#side ** 2;
  }
  /** Of pictures or tiles (n, channels, height, width). */
  forward(pixels: Tensor): Seen {
    const x = this.tower.hidden(pixels);
    const [n, places, width] = x.shape;
    const [rows, s] = [Math.sqrt(places), this.#side];
    if (rows % s !== 0)
      throw new ArgumentError(
        `pictures: ${places} patches are no square that divides into squares of ${s} x ${s} for a token`,
      );
    const squares = x
      .reshape([n, rows / s, s, rows / s, s, width])
      .permute([0, 1, 3, 2, 4, 5])
      .reshape([places * n, width])
      .reshape([(places * n) / s ** 2, s * s * width]);
    return { tokens: this.project.forward(squares) };
  }
}

/** Sizes that a config lists as pairs of height and width. */
export function tileSizes(where: string, name: string, given: unknown): Size[] {
  const pairs = given as Size[];
  const is = (p: unknown): boolean =>
    Array.isArray(p) && p.length === 2 && p.every((n) => Number.isSafeInteger(n) && n > 0);
  if (!Array.isArray(given) || given.length === 0 || !pairs.every(is))
    throw new FormatError(`${where}: ${name} is not a list of heights and widths`);
  return pairs;
}
/** anyres_max_9: pictures of more tokens than nine tiles have are made smaller. */
export function mostTilesOf(where: string, text: string): number {
  const found = /^anyres_max_(\d+)$/.exec(text);
  if (!found || Number(found[1]) === 0)
    throw new UnsupportedError(`${where}: vision_aspect_ratio is ${JSON.stringify(text)}; anyres_max_N is served`);
  return Number(found[1]);
}
