// Files to tensors on a device and back, a slice at a time.
import { extname } from 'node:path';
import { bytesOf } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import { Device } from '../tensor/device.js';
import '../tensor/methods.js'; // gives tensors the methods that copying views needs
import { Tensor } from '../tensor/tensor.js';
import { ggmlType } from '../base/blocks/types.js';
import { writeGguf } from './gguf-write.js';
import { writeNpy, writeNpz } from './npy.js';
import { openTensors, type OpenOptions } from './open.js';
import { writeSafetensors } from './safetensors.js';
import { writeTorch } from './torch-write.js';
import { slices, storedRecord, type TensorRecord } from './stored-dtype.js';

/** Where tensors are put, and how types that are not ours are read. */
export interface LoadOptions extends OpenOptions {
  /** Where the tensors go: a device or its name; the default device otherwise. */
  device?: Device | string;
  /** Take only names that start so, without it: 'model.' of a checkpoint that wraps its state dict. */
  prefix?: string;
}

/** A record's tensor; never more than a slice of it is in host memory. */
export function toTensor(record: TensorRecord, device: Device, sliceBytes?: number): Tensor {
  const tensor = Tensor.empty(record.shape, record.dtype, device);
  let at = 0;
  for (const part of slices(record, sliceBytes)) {
    device.backend.write(tensor.memory, at, part);
    at += part.length;
  }
  return tensor;
}

/** The tensors of a file (or its bytes) by name; what the file holds tells its format. */
export function loadTensors(from: string | Uint8Array, options: LoadOptions = {}): Map<string, Tensor> {
  const device = Device.of(options.device);
  const prefix = options.prefix ?? '';
  const file = openTensors(from, options);
  try {
    const names = file.names.filter((name) => name.startsWith(prefix));
    if (prefix && names.length === 0)
      throw new ArgumentError(`loadTensors: no tensor's name starts with ${JSON.stringify(prefix)}`);
    return new Map(names.map((name) => [name.slice(prefix.length), toTensor(file.record(name), device)]));
  } finally {
    file.close();
  }
}

/** A tensor as a record that reads from its device. */
export function fromTensor(name: string, tensor: Tensor): TensorRecord {
  if (!(tensor instanceof Tensor)) throw new ArgumentError(`saveTensors: ${JSON.stringify(name)} is not a tensor`);
  const base = tensor.layout.offset * bytesOf(tensor.dtype);
  return storedRecord(name, name, tensor.dtype, tensor.shape, {}, (start, end) => {
    if (!tensor.layout.isContiguous) return tensor.bytesSync().subarray(start, end);
    const out = new Uint8Array(end - start);
    if (out.length > 0) tensor.device.backend.readSync(tensor.memory, base + start, out);
    return out;
  });
}

/** How files are written. */
export interface SaveOptions {
  /** Text that travels with the tensors; safetensors only. */
  metadata?: Readonly<Record<string, string>>;
  /** Compress; npz only. */
  deflate?: boolean;
}

type Save = (path: string, records: readonly TensorRecord[], options: SaveOptions) => void;
const SAVE: Record<string, Save> = {
  '.safetensors': (path, records, { metadata }) => writeSafetensors(path, records, metadata),
  '.pt': (path, records) => writeTorch(path, records),
  '.pth': (path, records) => writeTorch(path, records),
  '.npz': (path, records, { deflate }) => writeNpz(path, records, { deflate }),
  '.npy': (path, records) => {
    if (records.length !== 1)
      throw new ArgumentError(`saveTensors: an .npy file holds one tensor, ${records.length} given; use .npz`);
    writeNpy(path, records[0]);
  },
  '.gguf': (path, records) =>
    writeGguf(
      path,
      new Map(),
      records.map((r) => ({ name: r.name, type: ggmlType(r.dtype), shape: r.shape, bytes: r.read() })),
    ),
};

/** Writes tensors to a file whose ending names the format; the file appears whole or not at all. */
export function saveTensors(
  path: string,
  tensors: ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>,
  options: SaveOptions = {},
): void {
  if (typeof path !== 'string') throw new ArgumentError(`saveTensors: the path is ${typeof path}, not a text`);
  const save = Object.hasOwn(SAVE, extname(path)) ? SAVE[extname(path)] : undefined;
  if (!save) throw new ArgumentError(`saveTensors: ${path}: the name must end with ${Object.keys(SAVE).join(', ')}`);
  if (typeof tensors !== 'object' || tensors === null)
    throw new ArgumentError('saveTensors: takes tensors by name, in a Map or an object');
  const entries = tensors instanceof Map ? [...tensors] : Object.entries(tensors as Readonly<Record<string, Tensor>>);
  save(
    path,
    entries.map(([name, tensor]) => fromTensor(name, tensor as Tensor)),
    options,
  );
}
