// Kernels made ahead of time: a folder with, for each target, an index of symbols (TARGET.json) and their code in
// compressed parts (TARGET.pack).
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, brotliDecompressSync, constants } from 'node:zlib';
import { CompileError } from '../base/errors.js';
import { cudaDriverVersion, cudaVersion } from '../driver/cuda-version.js';
import { env } from '../base/environment.js';
import { kernelsDir } from '../base/paths.js';
import type { Unit } from './source.js';
import { runsAsIs, servedBy } from './targets.js';

const FORMAT = 'wick-prebuilt-1';
/** Texts of neighbours are alike, so they are compressed together, in parts small enough to open at once. */
const PART_BYTES = 1 << 20;
/**
 * The best there is: a third smaller than quality 9, and as quick to open; parts are compressed side by side
 * (UV_THREADPOOL_SIZE says how many).
 */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 22 } };
const compress = promisify(brotliCompress) as (data: Uint8Array, options: typeof BROTLI) => Promise<Buffer>;

interface Index {
  readonly format: typeof FORMAT;
  readonly target: string;
  /** What made it, for people. */
  readonly compiler: string;
  /** Where each part lies in the pack: offset, compressed bytes, SHA-256 of those. */
  readonly parts: readonly (readonly [offset: number, bytes: number, hash: string])[];
  /** By symbol: part, place and length in it, and the source it was made from. */
  readonly kernels: Readonly<Record<string, readonly [part: number, offset: number, bytes: number, source: string]>>;
}

const sha = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex').slice(0, 16);

export interface Made {
  /** Units of one kernel each, as they are asked for, that one piece of code serves. */
  readonly units: readonly Unit[];
  readonly code: Uint8Array;
}

/** Writes the pack, then the index: a reader sees both or neither. Answers the bytes on disk. */
export async function writePrebuilt(
  dir: string,
  target: string,
  compiler: string,
  made: readonly Made[],
): Promise<number> {
  const kernels: Record<string, [number, number, number, string]> = {};
  const plain: Uint8Array[][] = [];
  let size = PART_BYTES;
  for (const { units, code } of made) {
    if (size >= PART_BYTES) {
      plain.push([]);
      size = 0;
    }
    for (const u of units) kernels[u.entries[0].symbol] = [plain.length - 1, size, code.length, sha(u.source)];
    plain.at(-1)!.push(code);
    size += code.length;
  }
  const packed = await Promise.all(plain.map((part) => compress(Buffer.concat(part), BROTLI)));
  let offset = 0;
  const parts = packed.map((p): [number, number, string] => [(offset += p.length) - p.length, p.length, sha(p)]);
  const index: Index = { format: FORMAT, target, compiler, parts, kernels };
  mkdirSync(dir, { recursive: true });
  const put = (name: string, data: Uint8Array | string): void => {
    const path = join(dir, name);
    writeFileSync(`${path}.${process.pid}.tmp`, data);
    renameSync(`${path}.${process.pid}.tmp`, path);
  };
  const text = JSON.stringify(index);
  put(`${target}.pack`, Buffer.concat(packed));
  put(`${target}.json`, text);
  return offset + text.length;
}

/** One target's kernels in one folder. */
class Pack {
  readonly path: string;
  readonly index: Index;
  #part = -1;
  #bytes: Uint8Array = new Uint8Array();
  /** By part and place: kernels compiled together come back as one and the same piece. */
  readonly #pieces = new Map<string, WeakRef<Uint8Array>>();

  constructor(dir: string, target: string) {
    this.path = join(dir, `${target}.pack`);
    const index = JSON.parse(readFileSync(join(dir, `${target}.json`), 'utf8')) as Index;
    if (index.format !== FORMAT)
      throw new CompileError(`${join(dir, target)}.json has the format ${JSON.stringify(index.format)}, not ${FORMAT}`);
    this.index = index;
  }

  /** The code of a unit's kernel, or why it is not here. */
  find(unit: Unit): Uint8Array | string {
    const { symbol } = unit.entries[0];
    const entry = Object.hasOwn(this.index.kernels, symbol) ? this.index.kernels[symbol] : undefined;
    if (!entry) return `${this.path} has no ${symbol}`;
    const [part, offset, bytes, source] = entry;
    if (source !== sha(unit.source)) return `${this.path} has ${symbol} made from other source text; build it anew`;
    const known = this.#pieces.get(`${part} ${offset}`)?.deref();
    if (known) return known;
    if (part !== this.#part) {
      this.#bytes = this.#read(part);
      this.#part = part;
    }
    const piece = this.#bytes.slice(offset, offset + bytes);
    this.#pieces.set(`${part} ${offset}`, new WeakRef(piece));
    return piece;
  }

  #read(part: number): Uint8Array {
    const [offset, bytes, hash] = this.index.parts[part];
    const packed = new Uint8Array(bytes);
    const file = openSync(this.path, 'r');
    try {
      readSync(file, packed, 0, bytes, offset);
    } finally {
      closeSync(file);
    }
    if (sha(packed) !== hash)
      throw new CompileError(`${this.path} is damaged: the checksum of part ${part} is wrong; build it anew`);
    return new Uint8Array(brotliDecompressSync(packed));
  }
}

/**
 * PTX but for the lines that name its version and target: what an older GPU's text and a newer one's have in common
 * where nothing newer is used.
 */
const body = (code: Uint8Array): string => new TextDecoder().decode(code).replace(/^\.(version|target)\s.*$/gm, '');

/**
 * Leaves out what PTX for an older GPU in the same folder serves as well: text for a newer one then holds only what it
 * does better.
 */
export function withoutServed(dir: string, target: string, made: readonly Made[]): Made[] {
  const older = servedBy(target, prebuiltTargets(dir))
    .filter((t) => t !== target)
    .map((t) => new Pack(dir, t));
  return made.filter(
    ({ units, code }) =>
      !older.some((pack) =>
        units.every((u) => {
          const known = pack.find(u);
          return typeof known !== 'string' && body(known) === body(code);
        }),
      ),
  );
}

/** Folders with kernels made ahead of time: those WICK_PREBUILT_DIR names, then the package's own. */
export const prebuiltDirs = (): string[] => [
  ...(env('WICK_PREBUILT_DIR') ?? '').split(delimiter).filter(Boolean),
  join(kernelsDir, 'prebuilt'),
];
export const prebuiltTargets = (dir: string): string[] =>
  existsSync(dir)
    ? readdirSync(dir)
        .filter((f) => f.endsWith('.json'))
        .map((f) => f.slice(0, -5))
        .sort()
    : [];

const packs = new Map<string, Pack>();
function packOf(dir: string, target: string): Pack {
  const key = join(dir, target);
  const known = packs.get(key) ?? new Pack(dir, target);
  packs.set(key, known);
  return known;
}

type DriverVersion = typeof cudaDriverVersion;
/** Why the NVIDIA driver here does not take a pack's code: machine code of a newer CUDA major than its own. */
function refusal({ path, index: { target, compiler } }: Pack, version: DriverVersion): string | undefined {
  const made = /^NVRTC (\d+)/.exec(compiler)?.[1];
  const driver = target.startsWith('sm_') ? version() : undefined; // AMD's code asks no NVIDIA driver
  if (made === undefined || driver === undefined || Number(made) <= Math.floor(driver / 1000)) return undefined;
  return `${path} was made by ${compiler}, which is newer than the driver (CUDA ${cudaVersion(driver)})`;
}

/**
 * Machine code made from exactly this source text for a GPU that runs it as it is, if any folder holds it: as good as
 * compiling, and sooner.
 */
export function findExact(
  unit: Unit,
  target: string,
  dirs: readonly string[] = prebuiltDirs(),
  version: DriverVersion = cudaDriverVersion,
): Uint8Array | undefined {
  for (const dir of dirs) {
    for (const pack of runsAsIs(target, prebuiltTargets(dir)).map((t) => packOf(dir, t))) {
      const found = refusal(pack, version) ?? pack.find(unit);
      if (typeof found !== 'string') return found;
    }
  }
  return undefined;
}

/** Code that serves a target from the folders, or the sentence that says what was looked for. */
export function findPrebuilt(
  unit: Unit,
  target: string,
  dirs: readonly string[] = prebuiltDirs(),
  version: DriverVersion = cudaDriverVersion,
): Uint8Array | string {
  const reasons: string[] = [];
  for (const dir of dirs) {
    const atHand = prebuiltTargets(dir);
    const serving = servedBy(target, atHand);
    if (serving.length === 0)
      reasons.push(atHand.length === 0 ? `${dir} holds no kernels` : `${dir} is for ${atHand.join(', ')}`);
    for (const pack of serving.map((t) => packOf(dir, t))) {
      const found = refusal(pack, version) ?? pack.find(unit);
      if (typeof found !== 'string') return found;
      reasons.push(found);
    }
  }
  return reasons.join('; ');
}
