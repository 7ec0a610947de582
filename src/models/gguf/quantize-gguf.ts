// A GGUF model or a folder written as GGUF in other types, piece of rows by piece.
import { existsSync, realpathSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { sizeOf } from '../../base/shape.js';
import { pathKind } from '../../io/byte-source.js';
import { encodePiece } from '../../io/encode-rows.js';
import { Gguf } from '../../io/gguf.js';
import type { GgufValue } from '../../io/gguf-value.js';
import { GgufWriter } from '../../io/gguf-write.js';
import { type Importance, readImportance } from '../../io/imatrix.js';
import { type PlannedTensor, planQuantization } from './quantize-plan.js';
import { folderAsGguf, type GgufSource } from './folder-gguf.js';
import { ggufShards } from '../files/source.js';

export interface QuantizeGgufOptions {
  /** One of QUANTIZE_TYPES. */
  readonly type: string;
  /** A file with an importance matrix. */
  readonly imatrix?: string;
  /** Also from blocks, which have lost something already. */
  readonly requantize?: boolean;
  /** Stops at the next piece; nothing is left of the file. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (done: number, total: number, tensor: string) => void;
}
export interface QuantizedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly from: string;
  readonly to: string;
  readonly bytes: number;
  /** Root mean square of what was lost over that of the original; undefined where the bytes are the same. */
  readonly error: number | undefined;
  readonly note: string;
}
export interface QuantizedModel {
  readonly tensors: readonly QuantizedTensor[];
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly elements: number;
  /** What the source says and the file cannot. */
  readonly notes: readonly string[];
}

/** Values of a piece: some ten megabytes of floats, which many threads share and little memory holds. */
const PIECE = 2 ** 21;
/** llama.cpp's number for the present layout of blocks. */
const QUANTIZATION_VERSION = 2;

/** A tensor of the plan with the file that holds it. */
interface Task extends PlannedTensor {
  readonly file: GgufSource;
  readonly importance: Float32Array | undefined;
}

/** The rows of a piece, as bytes of the stored tensor. */
interface Range {
  readonly task: Task;
  readonly matrix: number;
  readonly firstRow: number;
  readonly rows: number;
}

/** Pieces never cross from one matrix of a tensor to the next, for each has an importance of its own. */
function* ranges(tasks: readonly Task[]): Generator<Range> {
  for (const task of tasks) {
    const { shape } = task.info;
    const row = shape.at(-1) ?? 1;
    const rows = shape.at(-2) ?? 1;
    const matrices = sizeOf(shape.slice(0, -2));
    if (sizeOf(shape) === 0) continue;
    const step = Math.max(1, Math.floor(PIECE / row));
    for (let matrix = 0; matrix < matrices; matrix++)
      for (let firstRow = 0; firstRow < rows; firstRow += step)
        yield { task, matrix, firstRow, rows: Math.min(step, rows - firstRow) };
  }
}

function readRange({ task, matrix, firstRow, rows }: Range): { bytes: Uint8Array; first: number; row: number } {
  const { type, shape, name } = task.info;
  const row = shape.at(-1) ?? 1;
  const first = (matrix * (shape.at(-2) ?? 1) + firstRow) * row;
  const place = (element: number): number => (element / type.block) * type.bytes;
  return { bytes: task.file.raw(name, place(first), place(first + rows * row)), first, row };
}

const isSame = ({ info, type }: PlannedTensor): boolean => info.type === type;

/** What a tensor's matrices go by; a matrix of another size is a mistake, not a reason to go on without. */
function importanceOf(all: Importance | undefined, planned: PlannedTensor): Float32Array | undefined {
  const { name, shape } = planned.info;
  const found = isSame(planned) || planned.type.plain ? undefined : all?.get(name);
  const want = (shape.at(-1) ?? 1) * sizeOf(shape.slice(0, -2));
  if (found && found.length !== want)
    throw new ArgumentError(
      `quantize: the importance matrix has ${found.length} numbers for ${name} [${shape.join(', ')}], which takes ` +
        `${want}`,
    );
  return found;
}

function newMetadata(file: GgufSource, fileType: number | undefined, imatrix: string | undefined, entries: number) {
  const out = new Map<string, GgufValue>(
    [...file.metadata].filter(([key]) => !/^split\.|^quantize\.imatrix\./.test(key)),
  );
  out.delete('general.file_type');
  if (fileType !== undefined) out.set('general.file_type', { type: 'u32', value: fileType });
  out.set('general.quantization_version', { type: 'u32', value: QUANTIZATION_VERSION });
  if (imatrix === undefined) return out;
  out.set('quantize.imatrix.file', { type: 'string', value: imatrix });
  out.set('quantize.imatrix.entries_count', { type: 'u32', value: entries });
  return out;
}

function checkPaths(from: string, to: string): string[] {
  const folder = pathKind(from)?.isDirectory() ?? false;
  if (!to.endsWith('.gguf') || !(folder || from.endsWith('.gguf')))
    throw new UnsupportedError(
      `quantize: ${to.endsWith('.gguf') ? `${from} is neither a folder nor` : `${to} is to be`} a .gguf file; GGUF ` +
        'models and Hugging Face folders are read here, GGUF is written',
    );
  if (folder) return [];
  const shards = ggufShards(from);
  const absent = shards.find((p) => !existsSync(p));
  if (absent) throw new ArgumentError(`quantize: ${absent} is not there`);
  if (existsSync(to) && shards.some((p) => realpathSync(p) === realpathSync(to)))
    throw new ArgumentError(`quantize: ${to} is the model that is read; give the result another name`);
  return shards;
}

/** Writes the model at `to`, one file whatever the source was; the source is read piece by piece. */
export async function quantizeGguf(from: string, to: string, options: QuantizeGgufOptions): Promise<QuantizedModel> {
  const files: GgufSource[] = [];
  try {
    const paths = checkPaths(from, to);
    if (paths.length === 0) files.push(folderAsGguf(from));
    for (const path of paths) files.push(Gguf.open(path));
    return await rewrite(from, files, to, options);
  } finally {
    for (const file of files) file.close();
  }
}

async function rewrite(
  from: string,
  files: readonly GgufSource[],
  to: string,
  options: QuantizeGgufOptions,
): Promise<QuantizedModel> {
  const holders = files.flatMap((file) => file.names.map((name) => ({ file, info: file.info(name) })));
  const metadata = new Map([...files[0].metadata].map(([key, { value }]) => [key, value as unknown]));
  const plan = planQuantization(
    holders.map((h) => h.info),
    metadata,
    options.type,
  );
  const blocks = plan.tensors.find((t) => !t.info.type.plain && !isSame(t));
  if (blocks && !options.requantize)
    throw new ArgumentError(
      `quantize: ${from}: ${blocks.info.name} is quantized already (${blocks.info.type.name}); start from the ` +
        'floats, or say --allow-requantize to lose twice',
    );
  const importance = options.imatrix === undefined ? undefined : readImportance(options.imatrix);
  const tasks = plan.tensors.map(
    (t, i): Task => ({ ...t, file: holders[i].file, importance: importanceOf(importance, t) }),
  );
  if (importance && !tasks.some((t) => importance.has(t.info.name)))
    throw new ArgumentError(`quantize: ${options.imatrix} names no tensor of ${from}; it was made for another model`);
  const writer = new GgufWriter(
    to,
    newMetadata(files[0], plan.fileType, options.imatrix, importance?.size ?? 0),
    tasks.map(({ info, type }) => ({ name: info.name, shape: info.shape, type })),
  );
  try {
    const sums = await encodeAll(tasks, writer, options);
    writer.settle();
    return { ...summary(tasks, sums, importance !== undefined), notes: files[0].notes ?? [] };
  } catch (error) {
    writer.abandon();
    throw error;
  }
}

type Sums = Map<Task, { lost: number; whole: number }>;

/** Between two pieces signals and timers have their turn. */
async function encodeAll(
  tasks: readonly Task[],
  writer: GgufWriter,
  { signal, onProgress }: QuantizeGgufOptions,
): Promise<Sums> {
  const sums: Sums = new Map(tasks.map((t) => [t, { lost: 0, whole: 0 }]));
  const total = tasks.reduce((n, t) => n + sizeOf(t.info.shape), 0);
  let done = 0;
  for (const range of ranges(tasks)) {
    await setImmediate();
    signal?.throwIfAborted();
    const { task } = range;
    const { bytes, first, row } = readRange(range);
    writer.write(isSame(task) ? bytes : encoded(range, bytes, first, row, sums));
    done += range.rows * row;
    onProgress?.(done, total, task.info.name);
  }
  return sums;
}

function encoded(
  { task, matrix }: Range,
  stored: Uint8Array,
  first: number,
  rowLength: number,
  sums: Sums,
): Uint8Array {
  const importance = task.importance?.slice(matrix * rowLength, (matrix + 1) * rowLength);
  const piece = { from: task.info.type, to: task.type, bytes: stored, rowLength, first };
  try {
    const { bytes, lost, whole } = encodePiece({ ...piece, ...(importance && { importance }) });
    const sum = sums.get(task)!;
    sum.lost += lost;
    sum.whole += whole;
    return bytes;
  } catch (cause) {
    throw new ArgumentError(`quantize: ${task.info.name}: ${(cause as Error).message}`, { cause });
  }
}

function summary(tasks: readonly Task[], sums: Sums, weighed: boolean): Omit<QuantizedModel, 'notes'> {
  const tensors = tasks.map((task): QuantizedTensor => {
    const { info, type, importance } = task;
    const { lost, whole } = sums.get(task)!;
    const unweighed = weighed && !isSame(task) && !type.plain && !importance ? ['no importance'] : [];
    return {
      name: info.name,
      shape: info.shape,
      from: info.type.name,
      to: type.name,
      bytes: (sizeOf(info.shape) / type.block) * type.bytes,
      error: isSame(task) ? undefined : whole > 0 ? Math.sqrt(lost / whole) : 0,
      note: [...(task.note ? [task.note] : []), ...unweighed].join('; '),
    };
  });
  const sum = (of: (i: number) => number): number => tasks.reduce((n, _, i) => n + of(i), 0);
  return {
    tensors,
    bytesBefore: sum((i) => tasks[i].info.bytes),
    bytesAfter: sum((i) => tensors[i].bytes),
    elements: sum((i) => sizeOf(tasks[i].info.shape)),
  };
}
