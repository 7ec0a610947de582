// The reference engine: plain TypeScript in double precision, the oracle the others are held against.
import { DTYPE, type DType, isFloat, type RawArray, type Value } from '../base/dtype.js';
import { OutOfMemoryError } from '../base/errors.js';
import type { ElementwiseRow, Params, RefTensor, RunRow } from '../ops/op.js';
import type { Backend, Memory, MemoryStats, View } from './backend.js';

class HostMemory implements Memory {
  readonly bytes: number;
  readonly address = 0;
  readonly buffer: ArrayBuffer;
  constructor(bytes: number) {
    this.bytes = bytes;
    try {
      this.buffer = new ArrayBuffer(Math.ceil(bytes / 8) * 8);
    } catch (cause) {
      throw new OutOfMemoryError(`reference: ${bytes} bytes are more than one block can have`, { cause });
    }
  }
}

/** Memory in an ArrayBuffer: this engine's, or the CPU engine's, which begins somewhere in a larger one. */
interface Buffered {
  readonly buffer: ArrayBuffer;
  readonly start?: number;
}
function raw(v: View): RawArray {
  const { buffer, start = 0 } = v.memory as unknown as Buffered;
  const { Raw, bytes } = DTYPE[v.dtype];
  return new Raw(buffer, start, Math.floor((buffer.byteLength - start) / bytes));
}

function load(view: View): RefTensor {
  const { decode } = DTYPE[view.dtype];
  const source = raw(view);
  const data = new Array<Value>(view.layout.size);
  view.layout.forEach((at, index) => (data[at] = decode(source[index])));
  return { shape: view.layout.shape, dtype: view.dtype, data };
}

function store(view: View, data: readonly Value[]): void {
  const { encode } = DTYPE[view.dtype];
  const target = raw(view);
  view.layout.forEach((at, index) => (target[index] = encode(data[at]) as never));
}

const empty = (view: View): RefTensor => ({
  shape: view.layout.shape,
  dtype: view.dtype,
  data: new Array<Value>(view.layout.size),
});

/** The scalar function for a dtype: double, exact integer, or the 16-bit NaN rule. */
function elementFunction(row: ElementwiseRow<any>, dtype: DType): (...v: any[]) => Value {
  if (!isFloat(dtype)) return row.int as (...v: any[]) => Value;
  return (dtype === 'f16' || dtype === 'bf16') && row.exact16 ? row.exact16 : row.exact;
}

function runElementwise(row: ElementwiseRow<any>, inputs: readonly View[], out: View, params: Params): void {
  const values = inputs.map((v) => load(v).data);
  const dtype = inputs[inputs.length - 1].dtype;
  const scalars = row.scalars.map((name) => {
    const v = params[name] as Value; // whole and in range where the elements are integers: dispatch has seen to it
    return isFloat(dtype) ? (DTYPE[dtype].bytes < 8 ? Math.fround(Number(v)) : Number(v)) : BigInt(v);
  });
  const f = elementFunction(row, dtype);
  const result = new Array<Value>(out.layout.size);
  // A u8 mask beside floats is read as a number, beside integers as a bigint.
  const mask = row.masked ? values[0].map((v) => (isFloat(dtype) ? Number(v) : v)) : undefined;
  for (let i = 0; i < result.length; i++) {
    const args = values.map((v, k) => (k === 0 && mask ? mask[i] : v[i]));
    result[i] = f(...args, ...scalars);
  }
  store(out, result);
}

/** Runs the function in the row on memory of this process. */
export function runReference(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void {
  if (row.family === 'elementwise') return runElementwise(row, inputs, outputs[0], params);
  const outs = outputs.map(empty);
  row.reference(inputs.map(load), outs, params);
  outputs.forEach((view, i) => store(view, outs[i].data));
}

export class ReferenceBackend implements Backend {
  readonly name: string;
  readonly description = 'plain TypeScript in double precision (slow: the oracle)';
  #live = 0;
  #blocks = 0;
  #peak = 0;

  constructor(name: string) {
    this.name = name;
  }
  alloc(bytes: number): Memory {
    const memory = new HostMemory(bytes);
    this.#live += bytes;
    this.#blocks++;
    this.#peak = Math.max(this.#peak, this.#live);
    return memory;
  }
  free(memory: Memory): void {
    this.#live -= memory.bytes;
    this.#blocks--;
  }
  write(memory: Memory, byteOffset: number, data: Uint8Array): void {
    new Uint8Array((memory as HostMemory).buffer).set(data, byteOffset);
  }
  async read(memory: Memory, byteOffset: number, target: Uint8Array): Promise<void> {
    this.readSync(memory, byteOffset, target);
  }
  readSync(memory: Memory, byteOffset: number, target: Uint8Array): void {
    target.set(new Uint8Array((memory as HostMemory).buffer, byteOffset, target.byteLength));
  }
  run(row: RunRow, inputs: readonly View[], outputs: readonly View[], params: Params): void {
    runReference(row, inputs, outputs, params);
  }
  supports(): true {
    return true;
  }
  async sync(): Promise<void> {}
  memory(): MemoryStats {
    return { liveBytes: this.#live, liveBlocks: this.#blocks, cachedBytes: 0, peakBytes: this.#peak };
  }
  trim(): void {}
}
