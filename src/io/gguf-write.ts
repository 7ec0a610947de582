// Writes GGUF version 3: metadata, tensor table, aligned tensor data.
import { ArgumentError } from '../base/errors.js';
import { sizeOf, type Shape } from '../base/shape.js';
import { collect, writeAtomic, type Write } from './atomic-file.js';
import type { GgmlType } from '../base/blocks/types.js';
import {
  ALIGNMENT_KEY,
  GGUF_ALIGNMENT,
  GGUF_MAGIC,
  GGUF_TYPES,
  MAX_GGUF_RANK,
  MAX_KEY_BYTES,
  MAX_NAME_BYTES,
  ggufText,
  ggufU32,
  ggufU64,
  ggufValueBytes,
  type GgufValue,
} from './gguf-value.js';

export interface GgufTensor {
  readonly name: string;
  readonly type: GgmlType;
  readonly shape: Shape;
  /** Plain numbers or quantized blocks, as `type` says. */
  readonly bytes: Uint8Array;
}

const pad = (n: number, to: number): number => Math.ceil(n / to) * to;

function emit(metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[], write: Write): void {
  const stated = metadata.get(ALIGNMENT_KEY);
  if (stated && (stated.type !== 'u32' || !(Number(stated.value) >= 1) || Math.log2(Number(stated.value)) % 1 !== 0))
    throw new ArgumentError(`gguf: ${ALIGNMENT_KEY} must be a u32 power of two, not ${stated.type} ${stated.value}`);
  const alignment = Number(stated?.value ?? GGUF_ALIGNMENT);
  const head: Buffer[] = [ggufU32(GGUF_MAGIC), ggufU32(3), ggufU64(tensors.length), ggufU64(metadata.size)];
  for (const [key, value] of metadata) {
    const length = Buffer.byteLength(key);
    if (length < 1 || length > MAX_KEY_BYTES)
      throw new ArgumentError(`gguf: a metadata key has 1 to ${MAX_KEY_BYTES} bytes, not ${length}`);
    head.push(ggufText(key), ggufU32(GGUF_TYPES.indexOf(value.type)), ggufValueBytes(key, value));
  }
  let offset = 0;
  for (const { name, type, shape, bytes } of tensors) {
    if (Buffer.byteLength(name) > MAX_NAME_BYTES || shape.length > MAX_GGUF_RANK)
      throw new ArgumentError(
        `gguf: tensor ${JSON.stringify(name)} [${shape.join(', ')}]: the format holds names of ${MAX_NAME_BYTES} bytes and ${MAX_GGUF_RANK} dimensions at most`,
      );
    const want = (sizeOf(shape) / type.block) * type.bytes;
    if (want !== bytes.length || (shape.at(-1) ?? 1) % type.block) {
      throw new ArgumentError(
        `gguf: tensor ${JSON.stringify(name)}: ${type.name} [${shape.join(', ')}] takes ${want} bytes in whole blocks, ${bytes.length} given`,
      );
    }
    head.push(
      ggufText(name),
      ggufU32(shape.length),
      ...[...shape].reverse().map(ggufU64),
      ggufU32(type.id),
      ggufU64(offset),
    );
    offset += pad(bytes.length, alignment);
  }
  const header = Buffer.concat(head);
  write(header);
  write(new Uint8Array(pad(header.length, alignment) - header.length));
  for (const { bytes } of tensors) {
    write(bytes);
    write(new Uint8Array(pad(bytes.length, alignment) - bytes.length));
  }
}

export const writeGguf = (
  path: string,
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufTensor[],
): void => writeAtomic(path, (write) => emit(metadata, tensors, write));
export const ggufBytes = (metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[]): Uint8Array =>
  collect((write) => emit(metadata, tensors, write));
