// A family of the decoder: features from a config, names of its tensors, and what a GGUF file of it says otherwise.
import { CausalLM } from '../decoder.js';
import { defaultsOf } from './defaults.js';
import type { Config } from '../config.js';
import { Config as ConfigReader, type Json } from '../config.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Features } from '../features.js';
import type { ModelOptions, ModelRow } from '../model-row.js';
import type { ModelSource } from '../source.js';
import { Shard } from '../shard.js';
import { type Names, Weights } from '../weights.js';
import { ggufFeatures, ggufNames, type GgufRow, ggufType, Metadata } from './gguf.js';
import { UnsupportedError } from '../../base/errors.js';

export interface FamilyRow {
  readonly types: readonly string[];
  readonly features: (c: Config) => Features;
  readonly names: Names | ((c: Config) => Names);
  /** Tensors that some files carry and nobody needs. */
  readonly ignored?: (c: Config) => RegExp;
  readonly gguf?: GgufRow;
  /** The text model is a part of a larger one: its config lies in text_config, its tensors begin with one of these. */
  readonly wrappers?: {
    readonly types: readonly string[];
    readonly prefixes: readonly string[];
    readonly ignored: RegExp;
  };
}

/** Tables and masks that old files carry. */
const LEFT_OVERS = /(rotary_emb\.inv_freq|\.attn\.(bias|masked_bias)|\.attention\.(bias|masked_bias))$/;

const sizesFor = (f: Features): { heads: number; kvHeads: number; headDim: number } => {
  const a = f.layers.find((l) => l.mixer.kind === 'attention')?.mixer;
  return a?.kind === 'attention' ? a : { heads: 1, kvHeads: 1, headDim: f.hiddenSize };
};

/**
 * Names as they are in this file: with the prefix of a wrapper, or without the model's own where a bare model was
 * saved.
 */
function placed(names: Names, source: ModelSource, prefixes: readonly string[]): Names {
  const embed = names.embed as string;
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
  for (const role of ['embed', 'positions', 'embedNorm', 'finalNorm', 'layer'] as const)
    if (typeof out[role] === 'string') out[role] = moved(out[role] as string);
  return out as Names;
}

const layerTensors = (name: string, i: number): RegExp =>
  new RegExp(`^${name.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace('{i}', String(i))}\\.`);
/** The model itself, or this rank's share of it. */
function decoder(features: Features, names: Names, source: ModelSource, options: ModelOptions): CausalLM {
  const { shard: group, experts, ...rest } = options;
  const shard = group && group.size > 1 ? new Shard(group, features, experts) : undefined;
  const weights = new Weights(source.builder, names, sizesFor(features), features.biases, true, shard);
  const model = new CausalLM(shard ? shard.own : features, weights, rest);
  if (shard) source.ignore(shard.elsewhere);
  // Tensors of other stages' layers are theirs to use.
  const { stage } = model;
  if (stage) features.layers.forEach((_, i) => stage.holds(i) || source.ignore(layerTensors(names.layer, i)));
  return model;
}

/** Rows by type: some GGUF architectures stand for several. */
const BY_TYPE = new Map<string, FamilyRow>();

export function family(row: FamilyRow): ModelRow<CausalLM> {
  for (const type of row.types) BY_TYPE.set(type, row);
  const build = (config: Config, source: ModelSource, options: ModelOptions): CausalLM => {
    const wrapped = row.wrappers && row.wrappers.types.includes(config.json.model_type as string);
    if (source.format === 'gguf') {
      const metadata = new Metadata(source);
      const type = ggufType(metadata);
      const own = BY_TYPE.get(type);
      if (!own) throw new UnsupportedError(`${source.path}: holds a ${type}, which no family serves`);
      const gguf = row.gguf as GgufRow;
      const features = ggufFeatures(gguf, own.features, metadata);
      const names = ggufNames({ ...gguf, names: { ...gguf.names, ...own.gguf?.names } });
      if (features.tied) source.ignore(/^output\.weight$/);
      return decoder(features, names, source, options);
    }
    const c = wrapped
      ? textConfig(config)
      : new ConfigReader(config.json, config.where, '', defaultsOf(config.json.model_type));
    config.ignore(...Object.keys(config.json)); // the reader with defaults answers for them
    const features = row.features(c);
    c.refuseUnread();
    source.ignore(LEFT_OVERS);
    if (row.ignored) source.ignore(row.ignored(c));
    if (wrapped) source.ignore((row.wrappers as { ignored: RegExp }).ignored);
    if (features.tied) source.ignore(/(^|\.)(lm_head|embed_out)\.weight$/);
    const names = placed(
      typeof row.names === 'function' ? row.names(c) : row.names,
      source,
      wrapped ? (row.wrappers as { prefixes: readonly string[] }).prefixes : [],
    );
    return decoder(features, names, source, options);
  };
  return {
    kind: 'decoder',
    types: [...row.types, ...(row.wrappers?.types ?? [])],
    ...(row.gguf && { architectures: row.gguf.architectures }),
    build,
  };
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
function textConfig(config: Config): Config {
  const text = config.json.text_config as Record<string, unknown>;
  config.ignore(...Object.keys(config.json));
  const { tie_word_embeddings: tied } = config.json;
  const json = { ...(tied !== undefined && { tie_word_embeddings: tied }), ...text };
  return new ConfigReader(json, config.where, '', defaultsOf(text.model_type));
}
