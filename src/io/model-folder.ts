// The tensors of a model's folder: safetensors, or PyTorch's own files where a folder has no others.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { FormatError } from '../base/errors.js';
import { openTensors, type TensorFile } from './open.js';
import { readIndex } from './shard-index.js';

const WHOLE = 'pytorch_model.bin';
const INDEX = `${WHOLE}.index.json`;
const ANY = /\.safetensors(\.index\.json)?$/;
const MODEL = /^model.*\.safetensors(\.index\.json)?$/;

/** Files of PyTorch that belong together, by their index; where one fails, none stays open. */
function openShards(dir: string): TensorFile {
  const path = join(dir, INDEX);
  const index = readIndex(path, '.bin');
  const shards = new Map<string, TensorFile>();
  const close = (): void => {
    for (const shard of shards.values()) shard.close();
  };
  const holders = new Map<string, TensorFile>();
  try {
    for (const [name, file] of index) {
      const shard = shards.get(file) ?? openTensors(join(dir, file));
      shards.set(file, shard);
      if (!shard.names.includes(name))
        throw new FormatError(`${path}: weight_map: tensor ${JSON.stringify(name)} is not in ${file}`);
      holders.set(name, shard);
    }
    // What a shard holds beyond its index is a tensor of the model like any other.
    for (const shard of shards.values())
      for (const name of shard.names) if (!holders.has(name)) holders.set(name, shard);
  } catch (error) {
    close();
    throw error;
  }
  return { format: 'torch', names: [...holders.keys()], close, record: (name) => holders.get(name)!.record(name) };
}

/** Opens the tensors of a model's folder, in one file or several. */
export function openFolder(dir: string): TensorFile {
  const files = readdirSync(dir);
  const torch = files.includes(WHOLE) || files.includes(INDEX);
  // Beside PyTorch's files only safetensors of a model's own name are the model's.
  const safe = files.some((f) => (torch ? MODEL : ANY).test(f));
  if (!safe && existsSync(join(dir, WHOLE))) return openTensors(join(dir, WHOLE));
  if (!safe && existsSync(join(dir, INDEX))) return openShards(dir);
  if (!safe) throw new FormatError(`${dir}: holds no *.safetensors file, no ${WHOLE} and no ${INDEX}`);
  return openTensors(dir);
}
