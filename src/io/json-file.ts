// JSON files beside tensors: configurations, tokenizers. A regular file of bounded length that holds an object, or a
// FormatError.
import { FormatError } from '../base/errors.js';
import { readText } from './byte-source.js';

/** Tokenizers with their merges take some ten megabytes. */
const MAX_JSON = 2 ** 28;

/** The object that a JSON file holds. */
export function readJsonFile(path: string): Record<string, unknown> {
  const text = readText(path, MAX_JSON);
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new FormatError(`${path}: is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new FormatError(`${path}: holds no JSON object`);
  return json as Record<string, unknown>;
}
