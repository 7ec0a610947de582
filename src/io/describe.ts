// What a tensor file of any format holds, without reading its tensors: metadata, and every tensor's type, shape and
// bytes.
import { Gguf } from './gguf.js';
import type { GgufScalar, GgufValue } from './gguf-value.js';
import { numpyInfos } from './npy.js';
import { sniff, type TensorFormat } from './open.js';
import { SafeTensors } from './safetensors.js';
import { TorchFile } from './torch.js';

/** What a file says about a tensor. */
export interface TensorDescription {
  /** Its name in the file. */
  readonly name: string;
  /** As the format calls it: Q4_K of GGUF, f32 of the others. */
  readonly type: string;
  /** Row-major; undefined where only foreign code could build the tensor. */
  readonly shape: readonly number[] | undefined;
  /** undefined where the type is not known. */
  readonly bytes: number | undefined;
}
/** What a tensor file holds. */
export interface FileDescription {
  /** The file's format. */
  readonly format: TensorFormat;
  /** GGUF's version. */
  readonly version?: number;
  /** What the file says besides tensors. */
  readonly metadata: ReadonlyMap<string, unknown>;
  /** All tensors, without their elements. */
  readonly tensors: readonly TensorDescription[];
}

/** Values without GGUF's types around them, arrays in arrays included. */
function plain(value: GgufScalar): unknown {
  if (ArrayBuffer.isView(value)) return Array.from(value as Int32Array);
  if (!Array.isArray(value)) return value;
  return value.map((v: boolean | string | GgufValue) => (typeof v === 'object' ? plain(v.value) : v));
}

function describeGguf(path: string): FileDescription {
  using file = Gguf.open(path);
  return {
    format: 'gguf',
    version: file.version,
    metadata: new Map([...file.metadata].map(([key, { value }]) => [key, plain(value)])),
    tensors: file.names.map((name) => {
      const { type, shape, bytes } = file.info(name);
      return { name, type: type.name, shape, bytes };
    }),
  };
}

function describeSafetensors(path: string): FileDescription {
  using file = SafeTensors.open(path);
  return {
    format: 'safetensors',
    metadata: file.metadata,
    tensors: file.names.map((name) => {
      const { dtype, shape, start, end } = file.info(name);
      return { name, type: dtype, shape, bytes: end - start };
    }),
  };
}

function describeTorch(path: string): FileDescription {
  using file = TorchFile.open(path);
  const opaque = [...file.opaque].map(([name, call]) => ({
    name,
    type: `built by ${call}`,
    shape: undefined,
    bytes: undefined,
  }));
  const known = file.names.map((name) => {
    const { dtype: type, shape, bytes } = file.info(name);
    return { name, type, shape, bytes };
  });
  return { format: 'torch', metadata: file.metadata, tensors: [...known, ...opaque] };
}

function describeNumpy(format: 'npy' | 'npz', path: string): FileDescription {
  const tensors = [...numpyInfos(format, path)].map(([name, { dtype: type, shape, bytes }]) => ({
    name,
    type,
    shape,
    bytes,
  }));
  return { format, metadata: new Map(), tensors };
}

const DESCRIBE: Readonly<Record<TensorFormat, (path: string) => FileDescription>> = {
  gguf: describeGguf,
  safetensors: describeSafetensors,
  torch: describeTorch,
  npy: (path) => describeNumpy('npy', path),
  npz: (path) => describeNumpy('npz', path),
};

/** A file of any format that is read, a shard index, or a folder of safetensors. */
export const describeFile = (path: string): FileDescription => DESCRIBE[sniff(path)](path);

/** Elements by a shape; a tensor of no dimensions has one. */
export const elementsOf = ({ shape }: TensorDescription): number => shape?.reduce((n, d) => n * d, 1) ?? 0;
