// Weights that Hugging Face folders keep in fewer bits with scales beside them, as config.json's quantization_config
// says: read as floats, the scales multiplied in piece by piece. What is kept in another way is refused by name.
import { DTYPE } from '../base/dtype.js';
import { FormatError, UnsupportedError } from '../base/errors.js';
import { formatShape, type Shape, sizeOf } from '../base/shape.js';
import type { TensorRecord } from '../io/stored-dtype.js';
import { Config, type Json } from './config.js';

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
    const sparse = c.get('sparsity_config') as Json | undefined;
    if (sparse?.format !== undefined && sparse.format !== 'dense')
      throw new UnsupportedError(`${c.where}: quantization_config.sparsity_config is ${JSON.stringify(sparse)}`);
    c.ignore('ignore', 'global_compression_ratio', 'version');
    const groups = Object.values((c.get('config_groups') ?? {}) as Json) as Json[];
    let block: readonly number[] | undefined;
    for (const { weights: w, format } of groups) {
      if (w?.num_bits !== 8 || w.type !== 'float' || w.symmetric === false || (format && format !== 'float-quantized'))
        throw new UnsupportedError(
          `${c.where}: quantization_config.config_groups has weights ${JSON.stringify(w)}; only floats of 8 bits are read`,
        );
      if (w.strategy === 'block') block = w.block_structure as readonly number[];
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

/** A folder's tensors with scales multiplied in and left out of the list. */
export function withScales(where: string, json: unknown, records: Records): Records {
  const config = new Config({ quantization_config: json }, where).inner('quantization_config') as Config;
  const method = config.text('quant_method');
  const scheme = METHODS[method];
  if (!scheme)
    throw new UnsupportedError(
      `${where}: quantization_config.quant_method is ${JSON.stringify(method)}; ` +
        `weights of ${Object.keys(METHODS).join(', ')} are read, and GGUF files hold most other kinds`,
    );
  const { scale: suffix, block } = scheme(config);
  config.refuseUnread();
  const out = new Map(records);
  for (const [name, open] of records) {
    if (/\.(input_scale|activation_scale|k_scale|v_scale)$/.test(name)) {
      if (/\.[kv]_scale$/.test(name)) throw new UnsupportedError(`${where}: ${name}: scales of a cache are not read`);
      out.delete(name);
      continue;
    }
    if (!name.endsWith('weight')) continue;
    const scale = records.get(`${name}${suffix}`);
    if (open().dtype !== 'f8e4m3') continue;
    if (!scale) throw new FormatError(`${where}: ${name} is kept in 8 bits, and there are no scales ${name}${suffix}`);
    out.delete(`${name}${suffix}`);
    out.set(name, () => scaled(open(), scale(), block));
  }
  return out;
}
