// Any tensor file by its content: safetensors (one, sharded, a directory), PyTorch, NumPy or GGUF, behind one
// interface.
import { ArgumentError } from '../base/errors.js';
import { openSource, opening, pathKind, readBytes, type ByteSource } from './byte-source.js';
import { Gguf } from './gguf.js';
import { openNpy, openNpz } from './npy.js';
import { SafeTensors } from './safetensors.js';
import type { ReadOptions, TensorRecord } from './stored-dtype.js';
import { isTar } from './tar.js';
import { TorchFile } from './torch.js';
import { ZipFile } from './zip.js';

/** Formats of tensor files. */
export type TensorFormat = 'safetensors' | 'torch' | 'npy' | 'npz' | 'gguf';

/** How types that are not ours are read. */
export interface OpenOptions extends ReadOptions {
  /** Give quantized GGUF tensors as f32, instead of refusing them. */
  dequantize?: boolean;
}

/** Tensors by name, whatever the format; close it when done. */
export interface TensorFile {
  /** The file's format. */
  readonly format: TensorFormat;
  /** Names of all tensors. */
  readonly names: readonly string[];
  /** A tensor's type, shape and bytes; one that is not there is refused. */
  record(name: string): TensorRecord;
  /** Closes the file. */
  close(): void;
}

const starts = (lead: Uint8Array, text: string): boolean => Buffer.from(lead).toString('latin1').startsWith(text);

/** What a file is, by its first bytes. */
export function sniff(from: string | Uint8Array): TensorFormat {
  if (typeof from === 'string' && (from.endsWith('.json') || pathKind(from)?.isDirectory())) return 'safetensors';
  const source = openSource(from);
  try {
    const lead = readBytes(source, 0, Math.min(8, source.size));
    if (starts(lead, 'GGUF')) return 'gguf';
    if (starts(lead, '\x93NUMPY')) return 'npy';
    if (starts(lead, 'PK'))
      return [...new ZipFile(source).entries.keys()].every((name) => name.endsWith('.npy')) ? 'npz' : 'torch';
    // A safetensors header may by chance begin with 0x80: its JSON tells it apart.
    if (lead[0] === 0x80 && !(source.size > 8 && readBytes(source, 8, 1)[0] === 0x7b && lead[6] === 0 && lead[7] === 0))
      return 'torch';
    return isTar(source) ? 'torch' : 'safetensors';
  } finally {
    source.close();
  }
}

/** NumPy's files have no class of their own: a map of records over an open source. */
function openNumpy(format: 'npy' | 'npz', from: string | Uint8Array, options: OpenOptions): TensorFile {
  return opening(from, (source) => numpyFile(format, source, options));
}

function numpyFile(format: 'npy' | 'npz', source: ByteSource, options: OpenOptions): TensorFile {
  const records = format === 'npy' ? new Map([['', openNpy(source, options)]]) : openNpz(source, options);
  return {
    format,
    names: [...records.keys()],
    close: () => source.close(),
    record(name) {
      const found = records.get(name);
      if (!found) throw new ArgumentError(`openTensors: no tensor ${JSON.stringify(name)} in ${source.name}`);
      return found;
    },
  };
}

/** Opens a tensor file of any format by its content: a path, a folder of safetensors, or bytes. */
export function openTensors(from: string | Uint8Array, options: OpenOptions = {}): TensorFile {
  const format = sniff(from);
  if (format === 'npy' || format === 'npz') return openNumpy(format, from, options);
  if (format === 'gguf') {
    const file = Gguf.open(from);
    return {
      format,
      names: file.names,
      close: () => file.close(),
      record: (key) => (options.dequantize ? file.dequantize(key, options) : file.record(key, options)),
    };
  }
  const file = format === 'torch' ? TorchFile.open(from) : SafeTensors.open(from);
  // A tensor that only foreign code could build is listed too, so that asking for all of them says so.
  const names = file instanceof TorchFile ? [...file.names, ...file.opaque.keys()] : file.names;
  return { format, names, close: () => file.close(), record: (key) => file.record(key, options) };
}
