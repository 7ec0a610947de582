// Writes GGUF version 3: metadata, tensor table, aligned tensor data.
import { ArgumentError } from '../base/errors.js';
import { sizeOf, type Shape } from '../base/shape.js';
import { collect, writeAtomic, type Write } from './atomic-file.js';
import type { GgmlType } from '../base/blocks/types.js';
import {
  GGUF_ALIGNMENT,
  GGUF_MAGIC,
  GGUF_TYPES,
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
  const alignment = Number(metadata.get('general.alignment')?.value ?? GGUF_ALIGNMENT);
  const head: Buffer[] = [ggufU32(GGUF_MAGIC), ggufU32(3), ggufU64(tensors.length), ggufU64(metadata.size)];
  for (const [key, value] of metadata) {
    head.push(ggufText(key), ggufU32(GGUF_TYPES.indexOf(value.type)), ggufValueBytes(key, value));
  }
  let offset = 0;
  for (const { name, type, shape, bytes } of tensors) {
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
