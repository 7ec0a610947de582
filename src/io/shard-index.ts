// The index of a model in several files: which of them holds which tensor.
import { basename } from 'node:path';
import { FormatError } from '../base/errors.js';
import { readText } from './byte-source.js';

/** More text than any index has. */
const MAX_INDEX = 100_000_000;

const isRecord = (x: unknown): x is Record<string, unknown> => typeof x === 'object' && x !== null && !Array.isArray(x);

/** An index's tensors and the files that hold them, whose names end like `ending`. */
export function readIndex(path: string, ending: string): [name: string, file: string][] {
  let map: unknown;
  try {
    map = (JSON.parse(readText(path, MAX_INDEX)) as { weight_map?: unknown } | null)?.weight_map;
  } catch (cause) {
    if (cause instanceof FormatError) throw cause;
    throw new FormatError(`${path}: cannot be read as JSON: ${(cause as Error).message}`, { cause });
  }
  if (!isRecord(map)) throw new FormatError(`${path}: weight_map must be an object of tensor names and files`);
  return Object.entries(map).map(([name, file]) => {
    // A shard lies beside its index; anything else could reach files it has no business with.
    if (typeof file !== 'string' || file !== basename(file) || !file.endsWith(ending)) {
      throw new FormatError(
        `${path}: weight_map: ${JSON.stringify(name)} names ${JSON.stringify(file)}, which is no *${ending} file ` +
          'beside it',
      );
    }
    return [name, file];
  });
}
