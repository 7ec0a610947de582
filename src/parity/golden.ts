// The golden folder: numbers computed by Candle, PyTorch and transformers, read from where they lie or from the packed copy in test/golden.
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import type { DType, Value } from '../base/dtype.js';
import { ArgumentError, FormatError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';
import { SafeTensors } from '../io/safetensors.js';
import { packageRoot as root } from '../kernels/source.js';
import type { Device } from '../tensor/device.js';
import { Tensor } from '../tensor/tensor.js';
import { decodeValues } from '../testing/values.js';

/** One case of candle-cuda.json or torch.json: tensors are named, the numbers lie in the safetensors file beside it. */
export interface GoldenCase {
  readonly id: string;
  readonly op: string;
  readonly dtype: DType;
  readonly kernel?: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly inputs: Readonly<Record<string, string>>;
  readonly outputs: Readonly<Record<string, string>>;
  readonly grad_output?: string;
  readonly grads?: Readonly<Record<string, string>>;
}

export interface GoldenTensor {
  readonly dtype: DType;
  readonly shape: Shape;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export type GoldenSet = 'candle-cuda' | 'torch';

/** The package's folder. */
export const packageRoot = (): string => root;

const PLACES = ['test/golden', '../shared/golden'];

/** The folder named, else WICK_GOLDEN's, else the copy in the repository; undefined where none is there. */
export function goldenFolder(named: string | undefined = process.env.WICK_GOLDEN): string | undefined {
  if (named !== undefined) {
    const dir = resolve(root, named);
    if (!existsSync(dir)) throw new ArgumentError(`golden: there is no folder ${dir}`);
    return dir;
  }
  return PLACES.map((p) => join(root, p)).find((dir) => hasGolden(dir, 'candle-cuda.json'));
}

export const hasGolden = (dir: string, file: string): boolean => existsSync(join(dir, file)) || existsSync(join(dir, `${file}.br`));

/** A file of the folder, unpacked where it is packed. */
export function readGolden(dir: string, file: string): Uint8Array {
  const plain = join(dir, file);
  if (existsSync(plain)) return readFileSync(plain);
  if (existsSync(`${plain}.br`)) return brotliDecompressSync(readFileSync(`${plain}.br`));
  throw new ArgumentError(`golden: ${dir} holds neither ${file} nor ${file}.br`);
}

/** One set of cases with the tensors they name. */
export class Golden {
  readonly source: string;
  readonly cases: readonly GoldenCase[];
  readonly #tensors: SafeTensors;

  constructor(dir: string, set: GoldenSet) {
    const index = JSON.parse(new TextDecoder().decode(readGolden(dir, `${set}.json`))) as { source?: string; cases?: GoldenCase[] };
    if (!Array.isArray(index.cases)) throw new FormatError(`${join(dir, set)}.json: no list "cases"`);
    this.source = index.source ?? dir;
    this.cases = index.cases;
    this.#tensors = SafeTensors.open(readGolden(dir, `${set}.safetensors`));
  }

  tensor(name: string): GoldenTensor {
    const r = this.#tensors.record(name, { widen: true });
    return { dtype: r.dtype, shape: r.shape, bytes: r.read().slice() };
  }
  values(name: string): Value[] {
    const t = this.tensor(name);
    return decodeValues(t.bytes, t.dtype);
  }
  /** A named tensor on a device. */
  on(device: Device, name: string): Tensor {
    const t = this.tensor(name);
    return Tensor.fromBytes(t.bytes, t.shape, t.dtype, device);
  }
  /** Cases by op, in the file's order. */
  byOp(): Map<string, GoldenCase[]> {
    const map = new Map<string, GoldenCase[]>();
    for (const c of this.cases) map.set(c.op, [...(map.get(c.op) ?? []), c]);
    return map;
  }
}
