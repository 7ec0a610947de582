// A family of the decoder: features from a config, names of its tensors, and what a GGUF file of it says otherwise.
import { CausalLM } from '../decoder/decoder.js';
import { type DecoderEncoder, decoderWithHead } from '../encoders/decoder-encoder.js';
import { classifies, classifiesTokens, refuseHeads } from '../encoders/encoder.js';
import { defaultsOf, withoutUnread } from './defaults.js';
import type { Config } from '../files/config.js';
import { Config as ConfigReader, type Json } from '../files/config.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { type Features, keyed, keyKeeper } from '../decoder/features.js';
import { endTokens } from '../files/generation-config.js';
import type { GgufForm, ModelKind, ModelOptions, ModelRow } from '../model-row.js';
import type { ModelSource } from '../files/source.js';
import { Shard } from '../decoder/shard.js';
import { MODEL_ROLES } from '../decoder/roles.js';
import { type Names, numbered, type Place, placesOf, type Where, Weights } from '../decoder/weights.js';
import { ggufFeatures, ggufNames, type GgufRow } from './gguf.js';
import { ggufType, ggufTypes, Metadata } from '../gguf/metadata.js';
import { ggufForm } from '../gguf/form.js';
import { checkRouter } from '../gguf/router.js';
import { UnsupportedError } from '../../base/errors.js';

export interface FamilyRow {
  readonly types: readonly string[];
  readonly features: (c: Config) => Features;
  readonly names: Names | ((c: Config) => Names);
  /** Tensors that some files carry and nobody needs. */
  readonly ignored?: (c: Config) => RegExp;
  readonly gguf?: GgufRow;
  readonly wrappers?: Wrapper;
}
/** The text model is a part of a larger one: its config lies in text_config, its tensors begin with one of these. */
export interface Wrapper {
  readonly types: readonly string[];
  readonly prefixes: readonly string[];
  readonly ignored: RegExp;
  /** The text's type where the config does not say; by itself the family's own. */
  readonly unsaid?: string;
  /** Its head leaves out the factor that the text's own model has for logits. */
  readonly plainLogits?: boolean;
}

/** Tables and masks that old files carry. */
const LEFT_OVERS = /(rotary_emb\.inv_freq|\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias))$/;

const sizesFor = (f: Features): { heads: number; kvHeads: number; headDim: number } => {
  const a = f.layers.map((l) => keyed(l.mixer)).find((m) => m?.kind === 'attention');
  return a?.kind === 'attention' ? a : { heads: 1, kvHeads: 1, headDim: f.hiddenSize };
};

/**
 * Names as they are in this file: with the prefix of a wrapper, or without the model's own where a bare model was
 * saved.
 */
function placed(names: Names, source: ModelSource, prefixes: readonly string[]): Names {
  const embed = placesOf(names.embed as Where)[0].name;
  const stem = embed.slice(0, embed.indexOf('.') + 1); // 'model.', 'transformer.'
  const candidates = ['', ...prefixes].map((p) => [p, stem] as const);
  const has = (name: string): boolean => source.has(`${name}.weight`);
  const found = candidates.find(([p]) => has(`${p}${embed.slice(p ? stem.length : 0)}`));
  const bare = stem !== '' && has(embed.slice(stem.length));
  if (!found && !bare) return names;
  const prefix = found ? found[0] : '';
  if (prefix === '' && !bare) return names;
  const moved = (name: string): string =>
    name.startsWith(stem) && stem ? `${prefix}${name.slice(stem.length)}` : name;
  const out: Record<string, unknown> = { ...names };
  for (const role of [...MODEL_ROLES, 'layer'] as const) {
    const at = out[role];
    if (typeof at === 'string') out[role] = moved(at);
    else if (at && !Array.isArray(at)) out[role] = { ...(at as Place), name: moved((at as Place).name) };
  }
  // transformers writes the layers of some under the name that their tower's have.
  const layers = ['layers.{i}', 'blocks.{i}', 'encoder.layers.{i}'].map((n) => names.layer.replace('layers.{i}', n));
  const own = layers.map(moved).find((name) => has(`${name.replace('{i}', '0')}.input_layernorm`));
  if (own !== undefined) out.layer = own;
  // A whole language model that is a part has its head beside its model, or within.
  if (prefix && has(`${prefix}${String(names.head)}`)) out.head = `${prefix}${String(names.head)}`;
  for (let outer = prefix; outer.endsWith('.model.'); ) {
    outer = outer.slice(0, -'model.'.length);
    if (has(`${outer}${String(names.head)}`)) out.head = `${outer}${String(names.head)}`;
  }
  return out as Names;
}

const layerTensors = (name: string, i: number): RegExp =>
  new RegExp(`^${numbered(name.replace(/[.*+?^$()|[\]\\]/g, '\\$&'), i)}\\.`);
/** Of a model that makes vectors a head may be missing: then the embedding stands for it, and nobody asks. */
function headless(features: Features, names: Names, source: ModelSource): Features {
  const stored = (kind: string): boolean =>
    placesOf(names.head as Where).some(({ name }) => source.has(`${name}.${kind}`));
  if (stored('weight')) return features;
  const biases = stored('bias') ? features.biases : features.biases.filter((role) => role !== 'head');
  return { ...features, tied: true, biases };
}
/** The model itself, or this rank's share of it. */
function decoder(whole: Features, names: Names, source: ModelSource, options: ModelOptions): CausalLM {
  const { shard: group, experts, encodes, ...rest } = options;
  if (whole.bothWays && !encodes)
    throw new UnsupportedError(
      `${source.path}: use_bidirectional_attention is true: tokens see those behind them, so the model continues no ` +
        'texts; EmbeddingModel makes vectors with it',
    );
  const served = encodes ? headless(whole, names, source) : whole;
  // Some files name ends beyond the vocabulary (-1, tokens of a larger one): nothing draws them.
  const eosTokenIds = served.eosTokenIds.filter((id) => id >= 0 && id < served.vocabSize);
  const features = { ...served, eosTokenIds };
  const shard = group && group.size > 1 ? new Shard(group, features, experts) : undefined;
  const weights = new Weights(source.builder, names, sizesFor(features), features.biases, true, shard);
  const model = new CausalLM(shard ? shard.own : features, weights, rest);
  // Tensors of other stages' layers are theirs to use.
  const { stage } = model;
  if (stage) features.layers.forEach((_, i) => stage.holds(i) || source.ignore(layerTensors(names.layer, i)));
  return model;
}

/** Rows by type: some GGUF architectures stand for several. */
const BY_TYPE = new Map<string, FamilyRow>();
/** How types are written to GGUF files. */
const BY_WRITTEN = new Map<string, { readonly architecture: string; readonly gguf: GgufRow }>();

/** Whether the head is the embedding after all, where a config says so. */
function isTied({ head, embed }: Names, source: ModelSource): boolean {
  const [own, words] = [head, embed].map((where) =>
    where === undefined ? [] : placesOf(where).map(({ name }) => `${name}.weight`),
  );
  return own.every((name) => words.every((word) => source.isTied(name, word)));
}
/** A folder's model: its features, and where its tensors lie. */
function described(row: FamilyRow, config: Config, source: ModelSource): { features: Features; names: Names } {
  const wrapped = row.wrappers?.types.includes(config.json.model_type as string) ? row.wrappers : undefined;
  const c = wrapped
    ? textConfig(config, wrapped.unsaid ?? `${String(config.json.model_type)}_text`)
    : new ConfigReader(
        withoutUnread(config.json),
        config.where,
        '',
        defaultsOf(config.json.model_type),
        config.matters,
      );
  config.ignore(...Object.keys(config.json)); // the reader with defaults answers for them
  if (headed(config)) c.ignore('sentence_transformers', 'sbert_ce_default_activation_function');
  const own = row.features(c);
  const features: Features = { ...own, eosTokenIds: endTokens(source.path) ?? own.eosTokenIds };
  c.refuseUnread();
  source.ignore(LEFT_OVERS);
  if (row.ignored) source.ignore(row.ignored(c));
  if (wrapped) source.ignore(wrapped.ignored);
  const plain = typeof row.names === 'function' ? row.names(c) : row.names;
  const names = placed(plain, source, wrapped?.prefixes ?? []);
  const tied = features.tied && isTied(names, source);
  if (tied) source.ignore(/(^|\.)(lm_head|embed_out)\.weight$/);
  return { features: { ...features, tied }, names };
}

/** The names of a GGUF file of this architecture that holds this type. */
const fileNames = (gguf: GgufRow, own: FamilyRow): GgufRow => ({
  ...gguf,
  names: (f) => {
    const of = ({ names }: GgufRow): Partial<Names> | undefined => (typeof names === 'function' ? names(f) : names);
    return { ...of(gguf), ...(own.gguf && of(own.gguf)) };
  },
});

/** A model that continues texts, or one that sorts them. */
type Built = CausalLM | DecoderEncoder;
const headed = (c: Config): boolean => classifies(c) || classifiesTokens(c);
/** The head of rerankers in GGUF files. */
const RANK = 'cls.output';
const kindOf = (c: Config, source: ModelSource): ModelKind =>
  headed(c) || (source.format === 'gguf' && source.has(`${RANK}.weight`)) ? 'encoder' : 'decoder';
function fromFolder(row: FamilyRow, config: Config, source: ModelSource, options: ModelOptions): Built {
  refuseHeads(config, 'QuestionAnswering', 'MultipleChoice');
  const { features, names } = described(row, config, source);
  if (!headed(config)) return decoder(features, names, source, options);
  return decoderWithHead(config, source, decoder(features, names, source, { ...options, encodes: true }));
}

export function family(row: FamilyRow): ModelRow<Built> {
  for (const type of row.types) BY_TYPE.set(type, row);
  for (const a of row.gguf?.architectures ?? [])
    for (const type of ggufTypes(a)) BY_WRITTEN.set(type, { architecture: a, gguf: row.gguf as GgufRow });
  const build = (config: Config, source: ModelSource, options: ModelOptions): Built => {
    if (source.format === 'gguf') {
      const metadata = new Metadata(source);
      const own = typeRow(metadata);
      const gguf = row.gguf as GgufRow;
      const labels = Array.from((metadata.get('classifier.output_labels') ?? []) as Iterable<string>);
      const features = ggufFeatures(gguf, own.features, metadata);
      checkRouter(metadata, features);
      if (features.tied) source.ignore(/^output\.weight$/);
      if (gguf.ignored) source.ignore(gguf.ignored);
      // Layers past the last are for predicting several tokens at once; a decoder does not run them.
      const more = metadata.optional('nextn_predict_layers') ?? 0;
      for (let i = 0; i < more; i++) source.ignore(layerTensors('blk.{i}', features.layers.length + i));
      const borrow = features.layers.flatMap(({ mixer: m }, i) => (keyed(m) && !keyKeeper(m) ? [i] : []));
      if (borrow.length > 0) source.ignore(new RegExp(`^blk\\.(${borrow.join('|')})\\.attn_(k|v|k_norm)\\.`));
      const names = ggufNames(fileNames(gguf, own), features);
      if (!source.has(`${RANK}.weight`)) return decoder(features, names, source, options);
      const c = new ConfigReader({ id2label: { ...labels } }, source.path);
      return decoderWithHead(c, source, decoder(features, names, source, { ...options, encodes: true }), [RANK]);
    }
    return fromFolder(row, config, source, options);
  };
  return {
    kind: 'decoder',
    kindOf,
    types: [...row.types, ...(row.wrappers?.types ?? [])],
    ...(row.gguf && { architectures: row.gguf.architectures }),
    build,
    toGguf: (config, source) => formOf(row, config, source),
  };
}
/** How a folder's model is written to a GGUF file. */
function formOf(row: FamilyRow, config: Config, source: ModelSource): GgufForm {
  const wrapped = row.wrappers?.types.includes(config.json.model_type as string);
  const inner = (config.json.text_config as Json | undefined)?.model_type ?? row.wrappers?.unsaid;
  const type = String(wrapped ? inner : config.json.model_type);
  const written = BY_WRITTEN.get(type);
  if (!written)
    throw new UnsupportedError(
      `${source.path}: models of type ${type} have no GGUF form here; those that have are ` +
        [...BY_WRITTEN.keys()].sort().join(', '),
    );
  const { features, names } = described(row, config, source);
  const architecture = written.gguf.writtenAs?.(features) ?? written.architecture;
  return ggufForm({ ...written, architecture, gguf: fileNames(written.gguf, row), source, features, names, typeRow });
}

/** The text part of models whose config names the family of their text; what belongs to images has no effect on it. */
export function reader(wrapper: Wrapper & { readonly unsaid: string }): ModelRow<Built> {
  const rowOf = ({ json, where }: Config): FamilyRow => {
    const type = (json.text_config as Json | undefined)?.model_type ?? wrapper.unsaid;
    const own = BY_TYPE.get(type);
    if (!own)
      throw new UnsupportedError(`${where}: text_config.model_type is ${JSON.stringify(type)}, which no family serves`);
    const plain = (c: Config): Features => {
      const { logitFactor: _, ...features } = own.features(c);
      return features;
    };
    return { ...own, wrappers: wrapper, ...(wrapper.plainLogits && { features: plain }) };
  };
  return {
    kind: 'decoder',
    kindOf,
    types: wrapper.types,
    build: (config, source, options) => fromFolder(rowOf(config), config, source, options),
    toGguf: (config, source) => formOf(rowOf(config), config, source),
  };
}

/** The family of the type that a file's metadata amounts to. */
function typeRow(metadata: Metadata): FamilyRow {
  const type = ggufType(metadata);
  const own = BY_TYPE.get(type);
  if (!own) throw new UnsupportedError(`${metadata.source.path}: holds a ${type}, which no family serves`);
  return own;
}

/**
 * A new model of any family by its config.json, its tensors made or given by the builder under plain, unfused names.
 */
export function newDecoder(json: Json, builder: VarBuilder, options: ModelOptions = {}): CausalLM {
  const row = BY_TYPE.get(json.model_type as string);
  if (!row) throw new UnsupportedError(`model: no decoder family is of type ${JSON.stringify(json.model_type)}`);
  const config = new ConfigReader(json);
  const features = row.features(config);
  config.refuseUnread();
  return new CausalLM(
    features,
    new Weights(builder, ggufNames({ architectures: [] }), sizesFor(features), features.biases),
    options,
  );
}

/** The text part of a model that reads images too; what belongs to the images has no effect on text. */
function textConfig(config: Config, unsaid: string): Config {
  config.ignore(...Object.keys(config.json));
  const { tie_word_embeddings: tied, model_type: _, text_config: inner, ...flat } = config.json;
  // Old configs keep the text's fields beside the images'.
  const text: Json =
    inner ?? Object.fromEntries(Object.entries(flat).filter(([k]) => !/^(vision|image|video)_/.test(k)));
  // The head is the whole model's: what is said outside counts.
  const json = {
    model_type: unsaid,
    ...text,
    ...(tied !== undefined && tied !== null && { tie_word_embeddings: tied }),
  };
  return new ConfigReader(json, config.where, '', defaultsOf(json.model_type), config.matters);
}
