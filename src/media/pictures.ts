// Pictures from PNG and JPEG files, as pixels; files that promise more than they hold are refused.
import { inflateSync } from 'node:zlib';
import jpeg from 'jpeg-js';
import { PNG } from 'pngjs';
import { FormatError } from '../base/errors.js';
import { readWhole } from '../base/read-file.js';

/** Red, green and blue of every pixel, row by row. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly rgb: Uint8Array;
}

/** What a picture may have, so that a small file cannot fill the memory; jpeg-js has the same bound. */
export const MOST_PIXELS = 100e6;
/** Channels of a pixel by PNG's kinds of color. */
const CHANNELS: Readonly<Record<number, number>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
/** The pictures that an interlaced PNG is made of: where each begins, and its steps, across and down. */
const PASSES = [
  [0, 0, 8, 8],
  [4, 0, 8, 8],
  [0, 4, 4, 8],
  [2, 0, 4, 4],
  [0, 2, 2, 4],
  [1, 0, 2, 2],
  [0, 1, 1, 2],
] as const;
/** Refuses a header that promises more than a picture may have or than the data holds: pngjs would fill in anything. */
function checkPng(bytes: Buffer): void {
  const type = (at: number): string => bytes.toString('latin1', at + 4, at + 8);
  if (bytes.length < 33 || type(8) !== 'IHDR') throw new FormatError('PNG: it does not begin with a whole header');
  const [width, height, bits] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20), bytes[24] * CHANNELS[bytes[25]]];
  const parts: Buffer[] = [];
  for (let at = 8; at + 8 <= bytes.length; at += 12 + bytes.readUInt32BE(at))
    if (type(at) === 'IDAT') parts.push(bytes.subarray(at + 8, at + 8 + bytes.readUInt32BE(at)));
  if (!(width * height > 0 && width * height <= MOST_PIXELS))
    throw new FormatError(`PNG: ${width}x${height} pixels are none, or more than ${MOST_PIXELS / 1e6} million`);
  const need = (bytes[28] === 0 ? [[0, 0, 1, 1] as const] : PASSES).reduce((sum, [left, top, across, down]) => {
    const [w, h] = [Math.ceil((width - left) / across), Math.ceil((height - top) / down)];
    return w > 0 && h > 0 ? sum + h * (1 + Math.ceil((w * bits) / 8)) : sum;
  }, 0);
  const { length } = inflateSync(Buffer.concat(parts), { maxOutputLength: need + 65536 });
  if (!(length >= need))
    throw new FormatError(`PNG: ${width}x${height} pixels need ${need} bytes, there are ${length}`);
}

/** Marks of a JPEG file that stand alone, without a length behind them: those inside a scan, and its beginning. */
const standsAlone = (mark: number): boolean => mark === 0x01 || (mark >= 0xd0 && mark <= 0xd8);
/** A pass over all pixels takes 31 bytes of a file; what programs write has some ten. */
const MOST_SCANS = 100;
/**
 * Refuses a file that stops before its end mark: jpeg-js would fill what is missing with grey, and say nothing. Refuses
 * one with passes over the pixels without number, too, since a small one could keep it busy for hours.
 */
function checkJpeg(bytes: Buffer): void {
  let at = 2;
  let scans = 0;
  while (at + 1 < bytes.length) {
    // Between a scan's header and the next mark lies its data, where 0xff is followed by 0.
    if (bytes[at] !== 0xff || bytes[at + 1] === 0 || bytes[at + 1] === 0xff) {
      at++;
      continue;
    }
    const mark = bytes[at + 1];
    if (mark === 0xd9) return;
    if (mark === 0xda && ++scans > MOST_SCANS)
      throw new FormatError(`JPEG: it passes over its pixels more than ${MOST_SCANS} times`);
    at += 2;
    if (!standsAlone(mark)) at += at + 1 < bytes.length ? Math.max(2, bytes.readUInt16BE(at)) : 2;
  }
  throw new FormatError(`JPEG: the file is cut off: its ${bytes.length} bytes hold no end of the picture`);
}

/** How files of other kinds begin, as latin1. */
const OTHERS: readonly (readonly [begins: RegExp, name: string])[] = [
  [/^GIF8/, 'a GIF'],
  [/^RIFF.{4}WEBP/s, 'a WebP'],
  [/^BM/, 'a BMP'],
  [/^(II\*\0|MM\0\*)/, 'a TIFF'],
  [/^.{4}ftyp(avif|avis)/s, 'an AVIF'],
  [/^.{4}ftyp(heic|heix|mif1|msf1)/s, 'a HEIC'],
];
/** Colours and transparency, a byte each; of two bytes the upper one counts, as for Pillow. */
function pngPixels(bytes: Buffer): {
  readonly width: number;
  readonly height: number;
  readonly data: ArrayLike<number>;
} {
  if (bytes[24] !== 16) return PNG.sync.read(bytes);
  const { width, height, data } = PNG.sync.read(bytes, { skipRescale: true });
  return { width, height, data: Uint8Array.from(data, (v) => v >> 8) };
}
/** A PNG or JPEG file, by its path or its bytes. */
export function readPicture(from: string | Uint8Array): Picture {
  const bytes = from instanceof Uint8Array ? Buffer.from(from) : readWhole(from);
  const name = typeof from === 'string' ? from : 'picture';
  const isPng = bytes.subarray(0, 8).toString('latin1') === '\x89PNG\r\n\x1a\n';
  const isJpeg = bytes[0] === 0xff && bytes[1] === 0xd8;
  if (!isPng && !isJpeg) {
    const other = OTHERS.find(([begins]) => begins.test(bytes.subarray(0, 16).toString('latin1')))?.[1];
    throw new FormatError(`${name}: is ${other ? `${other} file; PNG and JPEG are read` : 'neither PNG nor JPEG'}`);
  }
  try {
    (isPng ? checkPng : checkJpeg)(bytes);
    const { width, height, data } = isPng
      ? pngPixels(bytes)
      : jpeg.decode(bytes, { useTArray: true, formatAsRGBA: true });
    const rgb = new Uint8Array(width * height * 3);
    for (let i = 0; i < width * height; i++) for (let c = 0; c < 3; c++) rgb[3 * i + c] = data[4 * i + c];
    return { width, height, rgb };
  } catch (cause) {
    throw new FormatError(`${name}: ${(cause as Error).message}`, { cause });
  }
}
