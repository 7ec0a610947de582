// The golden folder: numbers computed by Candle, PyTorch and transformers, read from where they lie or from the packed
// copy in test/golden.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import type { DType, Value } from '../base/dtype.js';
import { ArgumentError, FormatError } from '../base/errors.js';
import type { Shape } from '../base/shape.js';
import { SafeTensors } from '../io/safetensors.js';
import { env } from '../base/environment.js';
import { packageRoot as root } from '../base/paths.js';
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
  /** Cases of ops.json: `op` is our method of the first input, these are its arguments; "$name" is an input. */
  readonly args?: readonly unknown[];
  /** How inputs are viewed: permuted, or every n-th element along a dimension of what is stored. */
  readonly layouts?: Readonly<
    Record<string, { readonly permute?: number[]; readonly dim?: number; readonly step?: number }>
  >;
  /** The program whose numbers they are. */
  readonly by?: string;
}

export interface GoldenTensor {
  readonly dtype: DType;
  readonly shape: Shape;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * torch: PyTorch's own cases; ops and breadth: its numbers for ops of our table by our names (scripts/golden-ops.py,
 * golden-breadth.py).
 */
export type GoldenSet = 'candle-cuda' | 'torch' | 'ops' | 'breadth';
const GOLDEN_FILES = ['candle-cuda.json', 'torch.json', 'hf'] as const;

/** The package's folder. */
export const packageRoot = (): string => root;

/** The package that carries the golden numbers, which the main one leaves out for its size. */
export const GOLDEN_PACKAGE = 'wick-golden';
function companion(): string | undefined {
  try {
    return dirname(createRequire(import.meta.url).resolve(`${GOLDEN_PACKAGE}/package.json`));
  } catch {
    return undefined; // not installed
  }
}
/** In the repository, beside it, or in a package of their own. */
const places = (): string[] => [
  ...['test/golden', '../shared/golden'].map((p) => join(root, p)),
  ...[companion()].filter((p) => p !== undefined),
];

/** The folder named, else WICK_GOLDEN's, else the copy in the repository; undefined where none is there. */
export function goldenFolder(named: string | undefined = env('WICK_GOLDEN')): string | undefined {
  if (named !== undefined) {
    const dir = resolve(root, named);
    if (!existsSync(dir)) throw new ArgumentError(`golden: there is no folder ${dir}`);
    if (!GOLDEN_FILES.some((f) => hasGolden(dir, f)))
      throw new ArgumentError(`golden: ${dir} holds none of ${GOLDEN_FILES.join(', ')}`);
    return dir;
  }
  return places().find((dir) => hasGolden(dir, 'candle-cuda.json'));
}

export const hasGolden = (dir: string, file: string): boolean =>
  existsSync(join(dir, file)) || existsSync(join(dir, `${file}.br`));

let scratch: string | undefined;
/**
 * A file or folder of golden data as loaders want it: packed parts are unpacked once, into a folder that goes with the
 * process.
 */
export function unpacked(dir: string, path: string): string {
  const plain = join(dir, path);
  const isFolder = existsSync(plain) && statSync(plain).isDirectory();
  const files = isFolder ? (readdirSync(plain, { recursive: true, encoding: 'utf8' }) as string[]) : [];
  if (existsSync(plain) && !files.some((f) => f.endsWith('.br'))) return plain;
  if (!scratch) {
    const made = (scratch = mkdtempSync(join(tmpdir(), 'wick-golden-')));
    process.on('exit', () => rmSync(made, { recursive: true, force: true }));
  }
  const out = join(scratch, Buffer.from(resolve(dir)).toString('base64url').slice(-24), path);
  if (existsSync(out)) return out;
  const take = (file: string): void => {
    mkdirSync(dirname(join(out, file)), { recursive: true });
    writeFileSync(join(out, file), readGolden(dir, join(path, file)));
  };
  for (const f of isFolder ? files : ['']) {
    if (!isFolder || statSync(join(plain, f)).isFile()) take(f.replace(/\.br$/, ''));
  }
  return out;
}

/** Where golden data may lie: WICK_GOLDEN's folder first. */
const folders = (): string[] =>
  [env('WICK_GOLDEN'), ...places()].filter((p) => p !== undefined && p !== '').map((p) => resolve(root, p as string));

/**
 * A golden file or folder by its path ('hf/llama', 'gguf/llama/f32.gguf') as loaders want it; undefined where no folder
 * holds it.
 */
export function findGolden(...parts: readonly string[]): string | undefined {
  const path = join(...parts);
  const dir = folders().find((d) => hasGolden(d, path));
  return dir === undefined ? undefined : unpacked(dir, path);
}

/** For the `skip` option of tests: false where every path is there, else the sentence that says what is missing. */
export function missingGolden(...paths: readonly string[]): string | false {
  const absent = paths.filter((p) => !folders().some((d) => hasGolden(d, p)));
  return absent.length > 0 && `no golden data ${absent.join(', ')} here: set WICK_GOLDEN to a folder that holds it`;
}

/** A file of the folder, unpacked where it is packed. */
export function readGolden(dir: string, file: string): Uint8Array {
  const plain = join(dir, file);
  if (existsSync(plain)) return readFileSync(plain);
  if (existsSync(`${plain}.br`)) return brotliDecompressSync(readFileSync(`${plain}.br`));
  throw new ArgumentError(`golden: ${dir} holds neither ${file} nor ${file}.br`);
}

/** A JSON file of the folder, or a FormatError that names it. */
export function readJson(dir: string, file: string): unknown {
  const text = new TextDecoder().decode(readGolden(dir, file));
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FormatError(`${join(dir, file)}: not JSON: ${(cause as Error).message}`, { cause });
  }
}

function openTensors(dir: string, file: string): SafeTensors {
  const bytes = readGolden(dir, file);
  try {
    return SafeTensors.open(bytes);
  } catch (cause) {
    throw new FormatError(`${join(dir, file)}: ${(cause as Error).message}`, { cause });
  }
}

const isRecord = (v: unknown): v is Record<string, unknown> => typeof v === 'object' && v !== null && !Array.isArray(v);
const namesTensors = (v: unknown): boolean => isRecord(v) && Object.values(v).every((name) => typeof name === 'string');

/** A case as it must be: what is wrong with it is said once, by its place in the file. */
function checkedCase(c: unknown, where: string): GoldenCase {
  const bad = (rule: string): never => {
    throw new FormatError(`${where}: ${rule}`);
  };
  if (!isRecord(c)) return bad('not an object');
  for (const key of ['op', 'dtype'] as const) if (typeof c[key] !== 'string') bad(`"${key}" must be a text`);
  for (const key of ['inputs', 'outputs'] as const)
    if (!namesTensors(c[key])) bad(`"${key}" must give tensors' names by input or output`);
  if (Object.keys(c.outputs as object).length === 0) bad('"outputs" names nothing to compare with');
  if (c.args !== undefined && !Array.isArray(c.args)) bad('"args" must be a list');
  if (c.grads !== undefined && !namesTensors(c.grads)) bad('"grads" must give tensors\' names by input');
  if (c.params !== undefined && c.params !== null && !isRecord(c.params)) bad('"params" must be an object');
  return { ...(c as unknown as GoldenCase), id: String(c.id ?? ''), params: (c.params ?? {}) as GoldenCase['params'] };
}

/** Tensors' names with the set they are of, so that sets can be joined. */
function ofSet(c: GoldenCase, set: GoldenSet): GoldenCase {
  const name = (n: string): string => `${set}:${n}`;
  const all = (names: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(names).map(([key, n]) => [key, name(n)]));
  return {
    ...c,
    inputs: all(c.inputs),
    outputs: all(c.outputs),
    ...(c.grad_output !== undefined && { grad_output: name(c.grad_output) }),
    ...(c.grads && { grads: all(c.grads) }),
  };
}

/** Cases of one or several sets with the tensors they name; of several, those that the folder holds. */
export class Golden {
  readonly source: string;
  readonly cases: readonly GoldenCase[];
  readonly #tensors = new Map<string, SafeTensors>();

  constructor(dir: string, ...sets: readonly GoldenSet[]) {
    const present = sets.length > 1 ? sets.filter((set) => hasGolden(dir, `${set}.json`)) : sets;
    const sources: string[] = [];
    this.cases = present.flatMap((set) => {
      const file = `${set}.json`;
      const index = readJson(dir, file) as { source?: unknown; cases?: unknown };
      if (!Array.isArray(index?.cases)) throw new FormatError(`${join(dir, file)}: no list "cases"`);
      sources.push(typeof index.source === 'string' ? index.source : dir);
      this.#tensors.set(set, openTensors(dir, `${set}.safetensors`));
      return index.cases.map((c, i) => ofSet(checkedCase(c, `${join(dir, file)}: case ${i}`), set));
    });
    this.source = sources.join('; ');
  }

  tensor(name: string): GoldenTensor {
    const [set, ...rest] = name.split(':');
    const tensors = this.#tensors.get(set);
    if (!tensors) throw new ArgumentError(`golden: no set holds ${JSON.stringify(name)}`);
    const r = tensors.record(rest.join(':'), { widen: true });
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
