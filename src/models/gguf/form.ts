// A folder's model as the GGUF file that it amounts to. What the file would say is read back by the loader's own rules:
// a key that an architecture does not have is left out, and a model that would not come back the same is refused.
import { UnsupportedError } from '../../base/errors.js';
import type { GgufValue } from '../../io/gguf-value.js';
import type { TensorRecord } from '../../io/stored-dtype.js';
import type { Config } from '../files/config.js';
import type { Features } from '../decoder/features.js';
import type { GgufForm } from '../model-row.js';
import { ModelSource } from '../files/source.js';
import type { Role } from '../decoder/roles.js';
import { type Names, Weights } from '../decoder/weights.js';
import { ggufFeatures, ggufNames, type GgufRow } from '../families/gguf.js';
import { Metadata } from './metadata.js';
import { curveKeys, withCurves } from './curves.js';
import { checkMeaning, ggufKeys } from './keys.js';
import { ggufTensors } from './tensors.js';

export interface FolderModel {
  readonly architecture: string;
  readonly gguf: GgufRow;
  readonly source: ModelSource;
  readonly features: Features;
  /** Where the folder's tensors lie. */
  readonly names: Names;
  /** The family that the loader would take a file's metadata for. */
  readonly typeRow: (m: Metadata) => { readonly features: (c: Config) => Features };
}

/** Where the converter writes what a reader may find in several places. */
const WRITTEN: Partial<Names> = { choiceBias: { name: 'exp_probs_b.bias', bare: true } };

/** The ends of an answer, of which a file names three. */
function endKeys({ bosTokenId: bos, eosTokenIds: ends }: Features): [string, GgufValue][] {
  const id = (name: string, value: number | undefined): [string, GgufValue][] =>
    value === undefined ? [] : [[`tokenizer.ggml.${name}_token_id`, { type: 'u32', value }]];
  return [...id('bos', bos), ...id('eos', ends[0]), ...id('eot', ends[1]), ...id('eom', ends[2])];
}

/** A file has no word for biases: that a reader expects those which there are is seen here. */
function checkBiases(own: Weights, features: Features, read: Features, where: string): void {
  const has = (role: Role): boolean => own.has(role) || features.layers.some((_, i) => own.of(i).has(role));
  const odd = [...new Set([...features.biases, ...read.biases])].find(
    (role) => features.biases.includes(role) !== read.biases.includes(role) && has(role),
  );
  if (odd)
    throw new UnsupportedError(
      `${where}: a GGUF file of this architecture has ${read.biases.includes(odd) ? 'a bias' : 'no bias'} on ${odd}, ` +
        `this model has ${features.biases.includes(odd) ? 'one' : 'none'}`,
    );
}

export function ggufForm(model: FolderModel): GgufForm {
  const { architecture, gguf, source, names, typeRow } = model;
  const sizes = { heads: 1, kvHeads: 1, headDim: model.features.hiddenSize };
  const own = new Weights(source.builder, names, sizes, model.features.biases, true);
  const features = withCurves(model.features, own, source);
  const head = new Map<string, GgufValue>([
    ['general.architecture', { type: 'string', value: architecture }],
    ['general.type', { type: 'string', value: 'model' }],
    ...ggufKeys(architecture, features, gguf),
    ...endKeys(features),
    ...curveKeys(features),
  ]);
  const target = { ...ggufNames(gguf, features), ...WRITTEN, ...gguf.written?.(architecture, features) };
  const nothing = new ModelSource('gguf', source.path, new Map(), {});
  const file = new Weights(nothing.builder, target, sizes, features.biases);
  const tensorsFor = (read: Features): Map<string, TensorRecord> =>
    ggufTensors(source, own, file, target, features, read);
  const reader = (keys: ReadonlyMap<string, GgufValue>, tensors: ReadonlyMap<string, TensorRecord>): Metadata => {
    const records = new Map([...tensors].map(([name, t]) => [name, () => t]));
    const values = new Map([...keys].map(([key, { value }]) => [key, value as unknown]));
    return new Metadata(new ModelSource('gguf', source.path, records, {}, () => {}, values));
  };
  // Which tensors there are decides how a file is read; what is in them, how they must be written.
  const shapes = tensorsFor(features);
  const first = reader(head, shapes);
  ggufFeatures(gguf, typeRow(first).features, first, true);
  const unread = first.unread();
  const metadata = new Map([...head].filter(([key]) => !unread.includes(key)));
  const second = reader(metadata, shapes);
  const read = ggufFeatures(gguf, typeRow(second).features, second);
  checkMeaning(source.path, architecture, features, read);
  const tensors = tensorsFor(read);
  checkBiases(own, features, read, source.path);
  source.refuseUnused();
  return { metadata, tensors, features };
}
