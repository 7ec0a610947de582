// A Hugging Face folder as the GGUF file that it amounts to: metadata, tokenizer and tensors, none of which is written
// yet; tensors are read from the folder piece by piece.
import { basename, resolve } from 'node:path';
import { ggmlType } from '../../base/blocks/types.js';
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { Gguf, GgufTensorInfo } from '../../io/gguf.js';
import type { GgufValue } from '../../io/gguf-value.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import { ggufTokenizer } from '../../tokenizers/to-gguf.js';
import { Config } from '../files/config.js';
import { familyOf } from '../load.js';
import { openModel } from '../files/source.js';

/** What the writer of GGUF files asks of a source. */
export type GgufSource = Pick<Gguf, 'names' | 'info' | 'raw' | 'metadata' | 'close'> & {
  /** What the file cannot say. */
  readonly notes?: readonly string[];
};

const infoOf = (name: string, { dtype, shape, byteLength }: TensorRecord): GgufTensorInfo => ({
  ...{ name, shape, type: ggmlType(dtype.toUpperCase()), start: 0, bytes: byteLength },
});

/** The tokenizer's keys come over those that config.json gave; ends that it does not name are kept behind them. */
function withTokenizer(
  own: ReadonlyMap<string, GgufValue>,
  tokenizer: ReadonlyMap<string, GgufValue>,
): Map<string, GgufValue> {
  const out = new Map([...own, ...tokenizer]);
  const at = (kind: string): string => `tokenizer.ggml.${kind}_token_id`;
  const kinds = ['eos', 'eot', 'eom'];
  const given = [...kinds.map((k) => tokenizer.get(at(k))), ...kinds.map((k) => own.get(at(k)))].flatMap((v) =>
    v === undefined ? [] : [Number(v.value)],
  );
  for (const kind of kinds) out.delete(at(kind));
  [...new Set(given)].slice(0, kinds.length).forEach((value, i) => out.set(at(kinds[i]), { type: 'u32', value }));
  return out;
}

export function folderAsGguf(path: string): GgufSource {
  const opened = openModel(path, { dtype: 'f32' });
  const { source } = opened;
  try {
    const { row, type } = familyOf(opened);
    if (!row.toGguf)
      throw new UnsupportedError(
        `${path}: is of type ${type}, a model of kind ${row.kind}; only decoders are written as GGUF`,
      );
    const { metadata, tensors, features } = row.toGguf(new Config(opened.json, `${path}/config.json`), source);
    const architecture = metadata.get('general.architecture')?.value as string;
    const { entries, notes } = ggufTokenizer(path, architecture, features.vocabSize);
    const tensor = (name: string): TensorRecord => {
      const record = tensors.get(name);
      if (!record) throw new FormatError(`${path}: there is no tensor ${JSON.stringify(name)}`);
      return record;
    };
    const name: GgufValue = { type: 'string', value: basename(resolve(path)) };
    return {
      names: [...tensors.keys()],
      info: (n) => infoOf(n, tensor(n)),
      raw: (n, start, end) => tensor(n).read(start, end),
      metadata: new Map([...withTokenizer(metadata, entries), ['general.name', name]]),
      close: () => source.close(),
      notes,
    };
  } catch (error) {
    source.close();
    throw error;
  }
}
