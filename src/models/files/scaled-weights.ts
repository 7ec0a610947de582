// Weights that Hugging Face folders keep in fewer bits with scales beside them, as config.json's quantization_config
// says: 8-bit floats and blocks of 4-bit floats stay in their bits where products take them, and can be read as floats.
// What is kept in another way is refused by name.
import { dequantize } from '../../base/blocks/decode.js';
import { F8_E4M3, ggmlType } from '../../base/blocks/types.js';
import { DTYPE } from '../../base/dtype.js';
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { formatShape, sameShape, type Shape, sizeOf } from '../../base/shape.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import type { StoredBlocks } from '../../nn/var-builder.js';
import { type BlockType, F8_GROUP } from '../../ops/quantized.js';
import { Config, isObject, type Json } from './config.js';

type Records = ReadonlyMap<string, () => TensorRecord>;
/** What a method's config says of its weights; it reads all fields that change numbers. */
interface Scheme {
  /** What is added to a weight's name for its scales. */
  readonly scale: string;
  /** Rows by columns of a matrix that share a scale, where that is so. */
  readonly block?: readonly number[];
}

/** Activations are multiplied as they are, whether or not the config wants them rounded, too. */
const METHODS: Readonly<Record<string, (c: Config) => Scheme>> = {
  fp8: (c) => {
    c.only('fmt', 'e4m3');
    c.only('scale_fmt', 'ue8m0', 'float');
    c.ignore('activation_scheme', 'modules_to_not_convert', 'ignored_layers', 'dequantize');
    return { scale: '_scale_inv', ...(c.has('weight_block_size') && { block: c.numbers('weight_block_size', 2) }) };
  },
  fbgemm_fp8: (c) => {
    c.ignore('activation_scale_ub', 'modules_to_not_convert');
    return { scale: '_scale' };
  },
  'compressed-tensors': (c) => {
    c.only('format', 'float-quantized');
    c.only('quantization_status', 'compressed', 'frozen');
    c.only('kv_cache_scheme', {});
    c.only('transform_config', {});
    const sparse = c.get('sparsity_config');
    const format = isObject(sparse) ? sparse.format : sparse;
    if (format !== undefined && format !== 'dense')
      throw new UnsupportedError(`${c.where}: quantization_config.sparsity_config is ${JSON.stringify(sparse)}`);
    c.ignore('ignore', 'global_compression_ratio', 'version');
    const groups = Object.values((c.get('config_groups') ?? {}) as Json).map((group) => (group ?? {}) as Json);
    let block: readonly number[] | undefined;
    for (const { weights: w, format } of groups) {
      if (w?.num_bits !== 8 || w.type !== 'float' || w.symmetric === false || (format && format !== 'float-quantized'))
        throw new UnsupportedError(
          `${c.where}: quantization_config.config_groups has weights ${JSON.stringify(w)}; only floats of 8 bits are ` +
            'read',
        );
      if (w.strategy === 'block')
        block = new Config(w, c.where, 'config_groups.weights.').numbers('block_structure', 2);
      else if (w.strategy !== 'tensor' && w.strategy !== 'channel')
        throw new UnsupportedError(
          `${c.where}: quantization_config.config_groups has the strategy ${JSON.stringify(w.strategy)}; tensor, ` +
            'channel and block are read',
        );
    }
    return { scale: '_scale', ...(block && { block }) };
  },
};

/** A tensor's numbers on the host. */
function numbersOf(record: TensorRecord): Float32Array {
  const info = DTYPE[record.dtype];
  const raw = new info.Raw(record.read().slice().buffer);
  return Float32Array.from(raw as ArrayLike<number>, (v) => Number(info.decode(v)));
}

/** Where the scale of an element stands: by the number of its row and of its column. */
function scaleAt(name: string, weight: Shape, scale: Shape, block: readonly number[] | undefined) {
  const [rows, columns] = [weight.at(-2) ?? 1, weight.at(-1) as number];
  const matrices = sizeOf(weight) / (rows * columns);
  const count = sizeOf(scale);
  if (count === 1) return () => 0;
  if (count === matrices * rows) return (row: number) => row;
  if (block) {
    const [down, across] = [Math.ceil(rows / block[0]), Math.ceil(columns / block[1])];
    if (count === matrices * down * across)
      return (row: number, column: number) =>
        (Math.floor(row / rows) * down + Math.floor((row % rows) / block[0])) * across + Math.floor(column / block[1]);
  }
  throw new FormatError(
    `${name}: scales ${formatShape(scale)} fit no weights of ${formatShape(weight)}: they are one for all, one a row` +
      (block ? `, or one for every ${block.join(' x ')}` : ''),
  );
}

const F8 = Float32Array.from({ length: 256 }, (_, bits) => Number(DTYPE.f8e4m3.decode(bits)));

/** The weights times their scales, as f32. */
function scaled(weight: TensorRecord, scale: TensorRecord, block: readonly number[] | undefined): TensorRecord {
  const { name, shape } = weight;
  const at = scaleAt(name, shape, scale.shape, block);
  const columns = shape.at(-1) as number;
  const byteLength = sizeOf(shape) * 4;
  let scales: Float32Array | undefined;
  return {
    name,
    dtype: 'f32',
    shape,
    byteLength,
    read: (start = 0, end = byteLength) => {
      scales ??= numbersOf(scale);
      const [first, last] = [Math.floor(start / 4), Math.ceil(end / 4)];
      const bytes = weight.read(first, last);
      const out = new Float32Array(bytes.length);
      for (let i = 0; i < out.length; ) {
        const [row, column] = [Math.floor((first + i) / columns), (first + i) % columns];
        // As far as one scale reaches at the most: a row's end or a block's.
        const width = block ? block[1] - (column % block[1]) : columns - column;
        const until = Math.min(out.length, i + Math.min(width, columns - column));
        const s = scales[at(row, column)];
        for (; i < until; i++) out[i] = F8[bytes[i]] * s;
      }
      return new Uint8Array(out.buffer).subarray(start - 4 * first, end - 4 * first);
    },
  };
}

/** Whether every 128 values of a row share a scale: then they stay as they are. */
const inGroups = (shape: Shape, block: readonly number[] | undefined): boolean =>
  (shape.at(-1) as number) % F8_GROUP === 0 && (!block || block[1] % F8_GROUP === 0);

/** 8-bit floats as they are stored, each row with its own scales; of those all are read, they are few. */
function float8(weight: TensorRecord, scale: TensorRecord, block: readonly number[] | undefined): StoredBlocks {
  const { name, shape } = weight;
  const at = scaleAt(name, shape, scale.shape, block);
  const groups = (shape.at(-1) as number) / F8_GROUP;
  const byteLength = 4 * (sizeOf(shape) / F8_GROUP);
  let numbers: Float32Array | undefined;
  const read = (start = 0, end = byteLength): Uint8Array => {
    const scales = (numbers ??= numbersOf(scale));
    const [first, last] = [Math.floor(start / 4), Math.ceil(end / 4)];
    const spread = Float32Array.from({ length: last - first }, (_, k) => {
      const i = first + k;
      return scales[at(Math.floor(i / groups), (i % groups) * F8_GROUP)];
    });
    return new Uint8Array(spread.buffer).subarray(start - 4 * first, end - 4 * first);
  };
  const scales: TensorRecord = { name, dtype: 'f32', shape: [...shape.slice(0, -1), groups], byteLength, read };
  return { type: F8_E4M3.name as BlockType, shape, blocks: weight, scales };
}

type OpenBlocks = () => StoredBlocks;
/** A folder's tensors, and those of them that can be had as they are stored. */
interface Kept {
  readonly records: Records;
  readonly blocks: ReadonlyMap<string, OpenBlocks>;
}

/** A folder's tensors with scales multiplied in and left out of the list. */
export function withScales(where: string, json: unknown, records: Records): Kept {
  const config = new Config({ quantization_config: json }, where).inner('quantization_config') as Config;
  const method = config.text('quant_method');
  if (method === 'mxfp4') return withFloat4(where, config, records);
  const scheme = METHODS[method];
  if (!scheme)
    throw new UnsupportedError(
      `${where}: quantization_config.quant_method is ${JSON.stringify(method)}; ` +
        `weights of ${[...Object.keys(METHODS), 'mxfp4'].join(', ')} are read, and GGUF files hold most other kinds`,
    );
  const { scale: suffix, block } = scheme(config);
  config.refuseUnread();
  const out = new Map(records);
  const blocks = new Map<string, OpenBlocks>();
  for (const [name, open] of records) {
    if (/\.(input_scale|activation_scale|k_scale|v_scale)$/.test(name)) {
      if (/\.[kv]_scale$/.test(name)) throw new UnsupportedError(`${where}: ${name}: scales of a cache are not read`);
      out.delete(name);
      continue;
    }
    if (!name.endsWith('weight')) continue;
    const scale = records.get(`${name}${suffix}`);
    const weight = open();
    if (weight.dtype !== 'f8e4m3') continue;
    if (!scale) throw new FormatError(`${where}: ${name} is kept in 8 bits, and there are no scales ${name}${suffix}`);
    out.delete(`${name}${suffix}`);
    out.set(name, () => scaled(open(), scale(), block));
    const matrix = weight.shape.length > 1 && !/embed/.test(name);
    if (matrix && inGroups(weight.shape, block)) blocks.set(name, () => float8(open(), scale(), block));
  }
  return { records: out, blocks };
}

const MXFP4 = ggmlType('MXFP4');
/** 16 bytes of a block: two neighbours in a byte as folders keep them, values 16 apart as ggml does. */
function repacked(blocks: Uint8Array, scales: Uint8Array): Uint8Array {
  const out = new Uint8Array(scales.length * MXFP4.bytes);
  for (let b = 0; b < scales.length; b++) {
    const [from, to] = [b * 16, b * MXFP4.bytes];
    out[to] = scales[b];
    for (let j = 0; j < 8; j++) {
      const [low, high] = [blocks[from + j], blocks[from + 8 + j]];
      out[to + 1 + 2 * j] = (low & 15) | ((high & 15) << 4);
      out[to + 2 + 2 * j] = (low >> 4) | (high & 0xf0);
    }
  }
  return out;
}
/** The same blocks as a record of bytes, [..., 17 groups]. */
function asGgml(blocks: TensorRecord, scales: TensorRecord): TensorRecord {
  const byteLength = scales.byteLength * MXFP4.bytes;
  const read = (start = 0, end = byteLength): Uint8Array => {
    const [first, last] = [Math.floor(start / MXFP4.bytes), Math.ceil(end / MXFP4.bytes)];
    const from = first * MXFP4.bytes;
    return repacked(blocks.read(first * 16, last * 16), scales.read(first, last)).subarray(start - from, end - from);
  };
  const shape = [...scales.shape.slice(0, -1), MXFP4.bytes * (scales.shape.at(-1) as number)];
  return { name: blocks.name, dtype: 'u8', shape, byteLength, read };
}
/** Blocks [..., groups, 16] with an exponent each [..., groups], as f32 [..., 32 groups]. */
function decoded(blocks: TensorRecord, scales: TensorRecord): TensorRecord {
  const { name } = blocks;
  const shape = [...scales.shape.slice(0, -1), 32 * (scales.shape.at(-1) as number)];
  const byteLength = sizeOf(shape) * 4;
  const read = (start = 0, end = byteLength): Uint8Array => {
    const [first, last] = [Math.floor(start / 128), Math.ceil(end / 128)];
    const values = dequantize(MXFP4, repacked(blocks.read(first * 16, last * 16), scales.read(first, last)));
    return new Uint8Array(values.buffer).subarray(start - first * 128, end - first * 128);
  };
  return { name, dtype: 'f32', shape, byteLength, read };
}
/** Experts in blocks of 4-bit floats (gpt-oss): NAME_blocks and NAME_scales. */
function withFloat4(where: string, config: Config, records: Records): Kept {
  config.ignore('modules_to_not_convert', 'dequantize');
  config.refuseUnread();
  const out = new Map(records);
  const kept = new Map<string, OpenBlocks>();
  for (const [name, open] of records) {
    if (!name.endsWith('_blocks')) continue;
    const scale = records.get(name.replace(/_blocks$/, '_scales'));
    if (!scale) throw new FormatError(`${where}: ${name} has no scales ${name.replace(/_blocks$/, '_scales')}`);
    const [blocks, scales] = [open(), scale()];
    if (blocks.dtype !== 'u8' || scales.dtype !== 'u8' || !sameShape(blocks.shape, [...scales.shape, 16]))
      throw new FormatError(
        `${where}: ${name} is ${blocks.dtype} ${formatShape(blocks.shape)} with scales ${scales.dtype} ` +
          `${formatShape(scales.shape)}; blocks are 16 bytes with a byte of exponent each`,
      );
    out.delete(scales.name);
    out.set(name, () => decoded(open(), scale()));
    const { shape } = decoded(blocks, scales);
    kept.set(name, () => ({ type: 'MXFP4', shape, blocks: asGgml(open(), scale()) }));
  }
  if (kept.size === 0) throw new FormatError(`${where}: quant_method is "mxfp4", and no tensor's name ends in _blocks`);
  return { records: out, blocks: kept };
}
