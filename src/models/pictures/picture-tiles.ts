// Pictures as the models want them that read them beside text: of one size, as rows of patches (Qwen, Pixtral), or in
// tiles, as a folder's files say.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { MOST_PIXELS, type Picture } from '../../media/pictures.js';
import { resize } from '../../media/resize.js';
import type { Config } from '../files/config.js';
import type { Place } from './eye.js';
import { shapesOf } from './mllama-eye.js';
import { Colours, ignoreBookkeeping, PictureProcessor, processorName, sizeOf } from '../vision/images.js';
import { CLIP_COLOURS, HALVES } from '../vision/processors.js';
import { bestSize, tileSizes } from './tile-eyes.js';

/** A picture that is ready for its model. */
export interface Prepared {
  readonly data: Float32Array;
  /** (tiles, 3, height, width), or of Qwen's and Pixtral's (patches, numbers). */
  readonly shape: readonly number[];
  /** What the model is told of it. */
  readonly place: Place;
  /** Rows and columns of its tiles, none where there is the whole picture alone; of Pixtral's tokens. */
  readonly grid: readonly [rows: number, columns: number];
}
/** `alone`: no other picture stands in the same prompt. */
type Prepare = (picture: Picture, alone: boolean) => Prepared;

/** Halves go to the even number, as Python rounds. */
const rounded = (x: number): number => {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low % 2) : Math.round(x);
};
/** A part of a picture; what lies beyond its edges is black, or of a colour. */
function part(p: Picture, left: number, top: number, width: number, height: number, colour = [0, 0, 0]): Picture {
  const rgb = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [sx, sy] = [x + left, y + top];
      const inside = sx >= 0 && sy >= 0 && sx < p.width && sy < p.height;
      for (let c = 0; c < 3; c++)
        rgb[(y * width + x) * 3 + c] = inside ? p.rgb[(sy * p.width + sx) * 3 + c] : colour[c];
    }
  return { width, height, rgb };
}
/** Tiles of one size, row by row. */
function tilesOf(p: Picture, side: number): Picture[] {
  const tiles: Picture[] = [];
  for (let y = 0; y + side <= p.height; y += side)
    for (let x = 0; x + side <= p.width; x += side) tiles.push(part(p, x, y, side, side));
  return tiles;
}
function stacked(tiles: readonly Picture[], colours: Colours): Pick<Prepared, 'data' | 'shape'> {
  const [{ width, height }] = tiles;
  const data = new Float32Array(tiles.length * 3 * width * height);
  tiles.forEach((tile, i) => data.set(colours.of(tile), i * 3 * width * height));
  return { data, shape: [tiles.length, 3, height, width] };
}

/** Patches of a picture (3, height, width), square by square of `merge` patches a side, each `frames` times. */
function patchRows(
  pixels: Float32Array,
  [rows, columns]: readonly [number, number],
  patch: number,
  merge = 1,
  frames = 1,
): { readonly data: Float32Array; readonly numbers: number } {
  const [height, width, across] = [rows * patch, columns * patch, columns / merge];
  const numbers = 3 * frames * patch * patch;
  const data = new Float32Array(rows * columns * numbers);
  let to = 0;
  for (let i = 0; i < rows * columns; i++) {
    const [square, within] = [Math.floor(i / merge ** 2), i % merge ** 2];
    const top = (Math.floor(square / across) * merge + Math.floor(within / merge)) * patch;
    const left = ((square % across) * merge + (within % merge)) * patch;
    for (let colour = 0; colour < 3; colour++)
      for (let frame = 0; frame < frames; frame++)
        for (let y = 0; y < patch; y++)
          for (let x = 0; x < patch; x++) data[to++] = pixels[(colour * height + top + y) * width + left + x];
  }
  return { data, numbers };
}

/** Qwen's: sides are multiples of a token's, within a number of pixels; patches square by square. */
function qwenPictures(c: Config): Prepare {
  const colours = new Colours(c, CLIP_COLOURS);
  const [patch, frames, merge] = [
    c.count('patch_size', 14, 1),
    c.count('temporal_patch_size', 2, 1),
    c.count('merge_size', 2, 1),
  ];
  const size = c.inner('size');
  const bound = (old: string, edge: string, unsaid: number): number => {
    const inside = size?.optional(old);
    return c.optional(old) ?? size?.optional(edge) ?? inside ?? unsaid;
  };
  const [least, most] = [
    bound('min_pixels', 'shortest_edge', 56 * 56),
    bound('max_pixels', 'longest_edge', 28 * 28 * 1280),
  ];
  if (!(least > 0 && most >= least && most <= MOST_PIXELS))
    throw new UnsupportedError(`${c.where}: pictures of ${least} to ${most} pixels; ${MOST_PIXELS} are the most`);
  const [resizes, resample] = [c.flag('do_resize', true), c.count('resample', 3)];
  const unit = patch * merge;
  const sized = ({ width, height }: Picture): readonly [height: number, width: number] => {
    if (Math.max(width, height) / Math.min(width, height) > 200)
      throw new ArgumentError(`image: ${width} x ${height} pixels; one side is more than 200 times the other`);
    const [h, w] = [rounded(height / unit) * unit, rounded(width / unit) * unit];
    const scale = Math.sqrt((height * width) / (h * w > most ? most : least));
    if (h * w > most)
      return [height, width].map((n) => Math.max(unit, Math.floor(n / scale / unit) * unit)) as [number, number];
    if (h * w >= least) return [h, w];
    const grow = Math.sqrt(least / (height * width));
    return [height, width].map((n) => Math.ceil((n * grow) / unit) * unit) as [number, number];
  };
  return (picture) => {
    const [height, width] = resizes ? sized(picture) : [picture.height, picture.width];
    if (height % unit !== 0 || width % unit !== 0)
      throw new ArgumentError(
        `image: ${width} x ${height} pixels, and do_resize is false; sides must divide by ${unit}`,
      );
    const pixels = colours.of(resize(picture, width, height, resample));
    const [rows, columns] = [height / patch, width / patch];
    const { data, numbers } = patchRows(pixels, [rows, columns], patch, merge, frames);
    return { data, shape: [rows * columns, numbers], place: [1, rows, columns], grid: [0, 0] };
  };
}

/** A square side: a number, or the same one as height and width. */
function patchSide(c: Config, name: string, unsaid: number): number {
  const { height = unsaid, width = unsaid } = sizeOf(c, name, {});
  if (height !== width) throw new UnsupportedError(`${c.where}: ${name} is ${height} x ${width}; squares are served`);
  return height;
}
/**
 * Pixtral's: no side is longer than one, and both are multiples of a token's; patches row by row. `both` is the config
 * of the processor of pictures and texts, whose word on the sizes of patches and tokens counts.
 */
function pixtralPictures(c: Config, both: Config): Prepare {
  const colours = new Colours(c, CLIP_COLOURS);
  c.ignore('do_pad'); // to the largest of a batch, and no model looks there
  c.only('do_center_crop', false);
  c.only('do_resize', true);
  patchSide(c, 'patch_size', 16);
  const [patch, merge] = [patchSide(both, 'patch_size', 16), both.count('spatial_merge_size', 1, 1)];
  const { longest_edge, height: high, width: wide } = sizeOf(c, 'size', { longest_edge: 1024 });
  const [tallest, widest] = [longest_edge ?? high, longest_edge ?? wide];
  if (tallest === undefined || widest === undefined)
    throw new UnsupportedError(`${c.where}: size is served as a longest_edge, or as height and width`);
  const resample = c.count('resample', 3);
  const unit = patch * merge;
  return (picture) => {
    const ratio = Math.max(1, picture.height / tallest, picture.width / widest);
    const tokens = (side: number): number => Math.floor((Math.floor(side / ratio) - 1) / unit) + 1;
    const grid = [tokens(picture.height), tokens(picture.width)] as const;
    if (grid[0] < 1 || grid[1] < 1)
      throw new ArgumentError(`image: ${picture.width} x ${picture.height} pixels; no pixel is left of one side`);
    const [rows, columns] = grid.map((n) => n * merge);
    const sized = resize(picture, columns * patch, rows * patch, resample);
    const { data, numbers } = patchRows(colours.of(sized), [rows, columns], patch);
    return { data, shape: [rows * columns, numbers], place: [rows, columns], grid };
  };
}

/** No side of a picture is longer, whatever files say (Idefics 3). */
const LONGEST = 4096;
/** Idefics' and SmolVLM's: a picture is enlarged to whole tiles, which come before the picture as one tile. */
function ideficsPictures(c: Config): Prepare {
  const colours = new Colours(c, HALVES);
  const [resizes, splits, resample] = [
    c.flag('do_resize', true),
    c.flag('do_image_splitting', true),
    c.count('resample', 1),
  ];
  c.ignore('do_pad', 'return_row_col_info', 'video_sampling', 'max_frames', 'fps');
  const side = sizeOf(c, 'max_image_size', { longest_edge: 364 }).longest_edge;
  const longest = sizeOf(c, 'size', { longest_edge: 4 * 364 }).longest_edge;
  if (side === undefined || longest === undefined)
    throw new UnsupportedError(`${c.where}: size and max_image_size are served as a longest_edge`);
  const even = (n: number): number => n + (n % 2);
  const fitted = (p: Picture): Picture => {
    const ratio = p.width / p.height;
    const wide = p.width >= p.height;
    const other = Math.max(1, even(Math.trunc(wide ? longest / ratio : longest * ratio)));
    const [width, height] = wide ? [longest, other] : [other, longest];
    const fits = Math.max(width, height) <= LONGEST;
    const again = width / height;
    const small = width >= height ? [LONGEST, Math.trunc(LONGEST / again)] : [Math.trunc(LONGEST * again), LONGEST];
    const [w, h] = fits ? [width, height] : small.map((n) => Math.max(1, n));
    return resize(p, w, h, resample);
  };
  const whole = (n: number): number => Math.ceil(n / side) * side;
  const enlarged = (p: Picture): Picture => {
    const ratio = p.width / p.height;
    const [w, h] =
      p.width >= p.height
        ? [whole(p.width), whole(Math.trunc(whole(p.width) / ratio))]
        : [whole(Math.trunc(whole(p.height) * ratio)), whole(p.height)];
    return resize(p, w, h, resample);
  };
  return (picture) => {
    const sized = resizes ? fitted(picture) : picture;
    const large = splits ? enlarged(sized) : resize(sized, side, side, resample);
    const many = large.width > side || large.height > side;
    const tiles = many ? [...tilesOf(large, side), resize(large, side, side, resample)] : [large];
    const grid = many ? ([large.height / side, large.width / side] as const) : ([0, 0] as const);
    return { ...stacked(tiles, colours), place: [], grid };
  };
}

/** More tiles than these are made of no picture. */
const MOST_TILES = 4096;
/**
 * InternVL's: as many tiles as make a picture of nearly the same shape, then the whole of it as one. That tiles are
 * made is its processor's word, whatever the picture's own says (`crop_to_patches`).
 */
function internPictures(c: Config): Prepare {
  const colours = new Colours(c, CLIP_COLOURS);
  c.ignore('crop_to_patches');
  c.only('do_resize', true);
  for (const other of ['do_center_crop', 'do_pad']) c.only(other, false);
  const { height, width } = sizeOf(c, 'size', { height: 384, width: 384 });
  if (height === undefined || height !== width)
    throw new UnsupportedError(`${c.where}: size is served as height and width, which must be equal`);
  const [least, most] = [c.count('min_patches', 1), c.count('max_patches', 12, 1)];
  if (most > MOST_TILES || most * height ** 2 > MOST_PIXELS)
    throw new UnsupportedError(
      `${c.where}: max_patches is ${most} of ${height} x ${height} pixels; ${MOST_TILES} tiles of together ` +
        `${MOST_PIXELS} pixels are the most`,
    );
  const resample = c.count('resample', 3);
  const grids: (readonly [rows: number, columns: number])[] = [];
  for (let columns = 1; columns <= most; columns++)
    for (let rows = 1; rows * columns <= most; rows++) if (rows * columns >= least) grids.push([rows, columns]);
  grids.sort((a, b) => a[0] * a[1] - b[0] * b[1]);
  /** The nearest shape; of equal ones the largest of which the picture fills half. */
  const gridOf = (p: Picture): readonly [number, number] => {
    let [best, off]: [readonly [number, number], number] = [[1, 1], Infinity];
    for (const [rows, columns] of most > 1 ? grids : []) {
      const now = Math.abs(p.width / p.height - columns / rows);
      const filled = p.width * p.height > 0.5 * height * height * rows * columns;
      if (now < off || (now === off && filled)) [best, off] = [[rows, columns], now];
    }
    return best;
  };
  return (p) => {
    const [rows, columns] = gridOf(p);
    const tiles = tilesOf(resize(p, columns * height, rows * height, resample), height);
    const all = tiles.length > 1 ? [...tiles, resize(p, height, height, resample)] : tiles;
    return { ...stacked(all, colours), place: [], grid: tiles.length > 1 ? [rows, columns] : [0, 0] };
  };
}

/** Llama 3.2's: a picture fits into the shape of tiles that enlarges it least, and lies in its upper left corner. */
function mllamaPictures(c: Config): Prepare {
  const colours = new Colours(c, HALVES);
  for (const done of ['do_resize', 'do_pad']) c.only(done, true);
  const { height: side, width } = sizeOf(c, 'size', { height: 224, width: 224 });
  const most = c.count('max_image_tiles', 4, 1);
  if (side === undefined || side !== width)
    throw new UnsupportedError(`${c.where}: size is served as height and width, which must be equal`);
  if (most > MOST_TILES || most * side ** 2 > MOST_PIXELS)
    throw new UnsupportedError(
      `${c.where}: max_image_tiles is ${most} of ${side} x ${side} pixels; ${MOST_TILES} tiles of together ` +
        `${MOST_PIXELS} pixels are the most`,
    );
  const resample = c.count('resample', 2);
  const shapes = shapesOf(most);
  /**
   * Of shapes that enlarge a picture the one that does so least, else that which shrinks it least; then the smaller.
   */
  const chosen = (p: Picture): number => {
    const scales = shapes.map(([rows, columns]) => Math.min((rows * side) / p.height, (columns * side) / p.width));
    const larger = scales.filter((s) => s >= 1);
    const best = larger.length > 0 ? Math.min(...larger) : Math.max(...scales);
    const area = (i: number): number => (scales[i] === best ? shapes[i][0] * shapes[i][1] : Infinity);
    return shapes.reduce((found, _, i) => (area(i) < area(found) ? i : found), scales.indexOf(best));
  };
  return (p) => {
    const shape = chosen(p);
    const [rows, columns] = shapes[shape];
    const target = (n: number, room: number): number => Math.min(Math.max(n, side), room);
    const [tall, wide] = [target(p.height, rows * side), target(p.width, columns * side)];
    const [down, across] = [tall / p.height, wide / p.width];
    const [h, w] =
      across < down
        ? [Math.min(Math.floor(p.height * across) || 1, tall), wide]
        : [tall, Math.min(Math.floor(p.width * down) || 1, wide)];
    const padded = part(resize(p, w, h, resample), 0, 0, columns * side, rows * side);
    const tiles = stacked(tilesOf(padded, side), colours);
    const data = new Float32Array(most * 3 * side * side);
    data.set(tiles.data);
    return { data, shape: [most, 3, side, side], place: [shape + 1, rows * columns], grid: [rows, columns] };
  };
}

/** LLaVA-NeXT's and OneVision's: the whole picture, then the tiles of the size that shows most of it. */
const llavaPictures =
  (several: boolean) =>
  (c: Config): Prepare => {
    const colours = new Colours(c, CLIP_COLOURS);
    const resample = c.count('resample', 3);
    c.ignore('do_pad');
    const usual = several ? { height: 384, width: 384 } : { shortest_edge: 224 };
    const size = sizeOf(c, 'size', usual);
    const side = size.shortest_edge ?? size.height;
    const cropped = c.flag('do_center_crop', !several);
    const crop = sizeOf(c, 'crop_size', several ? {} : { height: 224, width: 224 });
    const resized = c.flag('do_resize', true);
    const square = [size.height, size.width, ...(cropped ? [crop.height, crop.width] : [])];
    if (side === undefined || !resized || square.some((n) => n !== undefined && n !== side))
      throw new UnsupportedError(`${c.where}: size and crop_size are served as one square, and do_resize as true`);
    const sizes = tileSizes(c.where, 'image_grid_pinpoints', c.get('image_grid_pinpoints'));
    const colour = colours.mean.map((m) => Math.trunc(m * 255));
    const single = (p: Picture): Prepared => {
      const edge = Math.max(p.width, p.height);
      const [left, top] = [Math.floor((edge - p.width) / 2), Math.floor((edge - p.height) / 2)];
      const padded = part(p, -left, -top, edge, edge, colour);
      const tiles = stacked([resize(padded, side, side, resample)], colours);
      return { ...tiles, place: [p.height, p.width, 1], grid: [0, 0] };
    };
    return (p, alone) => {
      if (several && !alone) return single(p);
      const [height, width] = bestSize([p.height, p.width], sizes);
      const [across, down] = [width / p.width, height / p.height];
      const [w, h] =
        across < down
          ? [width, Math.min(Math.ceil(p.height * across), height)]
          : [Math.min(Math.ceil(p.width * down), width), height];
      const [left, top] = [Math.floor((width - w) / 2), Math.floor((height - h) / 2)];
      const padded = part(resize(p, w, h, resample), -left, -top, width, height);
      const tiles = [resize(p, side, side, resample), ...tilesOf(padded, side)];
      const grid = [Math.floor(height / side), Math.floor(width / side)] as const;
      return { ...stacked(tiles, colours), place: [p.height, p.width, tiles.length], grid };
    };
  };

/** Processors that make more than one picture of one size, by the names that files give them. */
const KINDS: Readonly<Record<string, (c: Config, both: Config) => Prepare>> = {
  Qwen2VL: qwenPictures,
  Qwen2_5_VL: qwenPictures,
  Qwen3VL: qwenPictures,
  Pixtral: pixtralPictures,
  GotOcr2: internPictures,
  Mllama: mllamaPictures,
  Idefics3: ideficsPictures,
  SmolVLM: ideficsPictures,
  LlavaNext: llavaPictures(false),
  LlavaOnevision: llavaPictures(true),
};

/**
 * By an image processor's config, and that of the processor of pictures and texts: how a picture becomes what its model
 * takes.
 */
export function pictureTiles(c: Config, both: Config): Prepare {
  const name = processorName(c);
  if (Object.hasOwn(KINDS, name)) {
    ignoreBookkeeping(c);
    return KINDS[name](c, both);
  }
  const plain = new PictureProcessor(c);
  return (picture) => {
    const { data, height, width } = plain.of(picture);
    return { data, shape: [1, 3, height, width], place: [], grid: [0, 0] };
  };
}
