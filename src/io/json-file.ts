// JSON files beside tensors: configurations, tokenizers. A regular file of bounded length that holds an object, or a
// FormatError.
import { FormatError } from '../base/errors.js';
import { readText } from './byte-source.js';

/** Tokenizers with their merges take some ten megabytes. */
const MAX_JSON = 2 ** 28;

/** Infinity as Python writes it (Mamba's configs have it), for which JSON has no word but a number past all floats. */
const WORDS = /"(?:[^"\\]|\\.)*"|\bInfinity\b/g;
const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch (e) {
    if (!text.includes('Infinity')) throw e;
    return JSON.parse(text.replace(WORDS, (word) => (word === 'Infinity' ? '1e999' : word)));
  }
};

/** The object that a JSON file holds. */
export function readJsonFile(path: string): Record<string, unknown> {
  const text = readText(path, MAX_JSON);
  let json: unknown;
  try {
    json = parsed(text);
  } catch (cause) {
    throw new FormatError(`${path}: is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new FormatError(`${path}: holds no JSON object`);
  return json as Record<string, unknown>;
}
