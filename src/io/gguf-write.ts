// Writes GGUF version 3: metadata, tensor table, aligned tensor data.
import { ArgumentError } from '../base/errors.js';
import { sizeOf, type Shape } from '../base/shape.js';
import type { Draft } from '../base/whole-file.js';
import { collect, openAtomic, writeAtomic, type Write } from './atomic-file.js';
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

/** What is written about a tensor. */
export interface GgufEntry {
  /** Its name. */
  readonly name: string;
  /** Its type; `ggmlType('Q8_0')`. */
  readonly type: GgmlType;
  /** Its shape, row-major. */
  readonly shape: Shape;
}
/** A tensor to write, with its bytes. */
export interface GgufTensor extends GgufEntry {
  /** Plain numbers or quantized blocks, as `type` says. */
  readonly bytes: Uint8Array;
}

const pad = (n: number, to: number): number => Math.ceil(n / to) * to;

/** Bytes that a tensor takes, in rows of whole blocks; undefined where its rows are none. */
const bytesOf = ({ type, shape }: GgufEntry): number | undefined =>
  (shape.at(-1) ?? 1) % type.block ? undefined : (sizeOf(shape) / type.block) * type.bytes;

/** Everything before the tensors' bytes, to which the alignment's gap is added. */
function headOf(
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufEntry[],
): { head: Uint8Array; alignment: number } {
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
  for (const tensor of tensors) {
    const { name, type, shape } = tensor;
    if (Buffer.byteLength(name) > MAX_NAME_BYTES || shape.length > MAX_GGUF_RANK)
      throw new ArgumentError(
        `gguf: tensor ${JSON.stringify(name)} [${shape.join(', ')}]: the format holds names of ${MAX_NAME_BYTES} ` +
          `bytes and ${MAX_GGUF_RANK} dimensions at most`,
      );
    const bytes = bytesOf(tensor);
    if (bytes === undefined)
      throw new ArgumentError(
        `gguf: tensor ${JSON.stringify(name)}: rows of [${shape.join(', ')}] are not whole blocks of ${type.name}`,
      );
    head.push(
      ggufText(name),
      ggufU32(shape.length),
      ...[...shape].reverse().map(ggufU64),
      ggufU32(type.id),
      ggufU64(offset),
    );
    offset += pad(bytes, alignment);
  }
  const header = Buffer.concat(head);
  return { head: Buffer.concat([header, gap(header.length, alignment)]), alignment };
}

const gap = (length: number, alignment: number): Uint8Array => new Uint8Array(pad(length, alignment) - length);

function emit(metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[], write: Write): void {
  for (const t of tensors) {
    const want = bytesOf(t);
    if (want !== undefined && want !== t.bytes.length)
      throw new ArgumentError(
        `gguf: tensor ${JSON.stringify(t.name)}: ${t.type.name} [${t.shape.join(', ')}] takes ${want} bytes in whole ` +
          `blocks, ${t.bytes.length} given`,
      );
  }
  const { head, alignment } = headOf(metadata, tensors);
  write(head);
  for (const { bytes } of tensors) {
    write(bytes);
    write(gap(bytes.length, alignment));
  }
}

/** A file whose tensors come one after another, in pieces: types and shapes are known before, bytes are not held. */
export class GgufWriter {
  readonly #draft: Draft;
  readonly #alignment: number;
  readonly #sizes: number[];
  #tensor = 0;
  #written = 0;

  constructor(path: string, metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufEntry[]) {
    const { head, alignment } = headOf(metadata, tensors);
    this.#alignment = alignment;
    this.#sizes = tensors.map((t) => bytesOf(t) as number);
    this.#draft = openAtomic(path);
    this.#guarded(() => this.#draft.write(head));
  }

  /** The next bytes of the tensor whose turn it is; a piece ends with its tensor at the latest. */
  write(bytes: Uint8Array): void {
    this.#skipEmpty();
    const size = this.#sizes[this.#tensor] ?? 0;
    this.#guarded(() => {
      if (this.#written + bytes.length > size)
        throw new ArgumentError(`gguf: tensor ${this.#tensor} takes ${size} bytes, more are given`);
      this.#draft.write(bytes);
      this.#written += bytes.length;
      if (this.#written < size) return;
      this.#draft.write(gap(size, this.#alignment));
      this.#tensor++;
      this.#written = 0;
    });
  }

  /** The file appears; every tensor must have all its bytes. */
  settle(): void {
    this.#skipEmpty();
    this.#guarded(() => {
      if (this.#tensor < this.#sizes.length)
        throw new ArgumentError(`gguf: ${this.#sizes.length - this.#tensor} tensors have not all of their bytes`);
      this.#draft.settle();
    });
  }

  /** Gives the file up: nothing stays of it. */
  abandon(): void {
    this.#draft.abandon();
  }

  #skipEmpty(): void {
    while (this.#sizes[this.#tensor] === 0) this.#tensor++;
  }

  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.abandon();
      throw error;
    }
  }
}

/** Writes a GGUF file; it appears whole or not at all. */
export const writeGguf = (
  path: string,
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufTensor[],
): void => writeAtomic(path, (write) => emit(metadata, tensors, write));
/** A GGUF file as bytes in memory. */
export const ggufBytes = (metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[]): Uint8Array =>
  collect((write) => emit(metadata, tensors, write));
