// What a folder's generation_config.json says: it counts before config.json, as in transformers.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../../base/errors.js';
import { readJsonFile } from '../../io/json-file.js';
import type { Json } from './config.js';

/** The fields of generation_config.json that are set; none where there is no such file. */
function saidBy(dir: string): Json {
  const path = join(dir, 'generation_config.json');
  const said = existsSync(path) ? readJsonFile(path) : {};
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null));
}

/** config.json's fields, and over them those of generation_config.json. */
export const readGeneration = (dir: string): Json => ({ ...readJsonFile(join(dir, 'config.json')), ...saidBy(dir) });

/** The tokens that end answers by generation_config.json, if it names any. */
export function endTokens(dir: string): readonly number[] | undefined {
  const { eos_token_id: said } = saidBy(dir);
  if (said === undefined) return undefined;
  const ids = (Array.isArray(said) ? said : [said]) as unknown[];
  if (!ids.every(Number.isSafeInteger))
    throw new FormatError(
      `${dir}/generation_config.json: eos_token_id is ${JSON.stringify(said)}, not a token or a list of tokens`,
    );
  return ids as number[];
}
