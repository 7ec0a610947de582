// What a row of the registry says: how files of a family become a module.
import type { GgufValue } from '../io/gguf-value.js';
import type { TensorRecord } from '../io/stored-dtype.js';
import type { Module } from '../nn/module.js';
import type { Config } from './files/config.js';
import type { Features } from './decoder/features.js';
import type { ExpertDivision } from './decoder/expert-divisions.js';
import type { ShardGroup } from './decoder/shard.js';
import type { ModelSource } from './files/source.js';
import type { StageGroup } from './decoder/stage.js';

/** What a model does, which is what its class can be asked for. */
export const KINDS = [
  'decoder',
  'encoder',
  'seq2seq',
  'speech',
  'sound',
  'vision',
  'image-text',
  'sound-text',
  'image-text-to-text',
  'image-to-text',
  'object-detection',
  'segmentation',
  'mask-generation',
  'zero-shot-detection',
  'zero-shot-segmentation',
  'depth',
] as const;
/** What a model is for: text generation, embeddings, pictures, speech and others. */
export type ModelKind = (typeof KINDS)[number];

export interface ModelOptions {
  /** Share of additions dropped while training; decoders only. */
  readonly dropout?: number;
  /** The ranks that the model is shared out among (a Group of wick/distributed); decoders only. */
  readonly shard?: ShardGroup;
  /**
   * How `shard` divides mixtures: some rows of every expert (the default, where they divide), which all ranks then work
   * on alike, or some experts as a whole, which reads files in one piece and divides blocks of any size.
   */
  readonly experts?: ExpertDivision;
  /**
   * The ranks that its layers are divided among, one after the other; beside `shard` the second axis. Decoders only.
   */
  readonly stages?: StageGroup;
  /**
   * A decoder is to make vectors: its head may be missing, and its tokens may see those behind them; or the half of T5
   * that reads.
   */
  readonly encodes?: boolean;
}

/**
 * A row: how files of a family become a module. The loader checks afterwards that no config field and no tensor was
 * left over.
 */
export interface ModelRow<M extends Module = Module> {
  /** What models of this family are for. */
  readonly kind: ModelKind;
  /** What a config is for, where one of this family may be for something else. */
  readonly kindOf?: (config: Config, source: ModelSource) => ModelKind;
  /** config.json's model_type. */
  readonly types: readonly string[];
  /** GGUF's general.architecture. */
  readonly architectures?: readonly string[];
  /** Builds the module from a config and the tensors of a folder or a GGUF file. */
  readonly build: (config: Config, source: ModelSource, options: ModelOptions) => M;
  /** The GGUF file that a folder amounts to; families without one are refused by name. */
  readonly toGguf?: (config: Config, source: ModelSource) => GgufForm;
}

/** What a GGUF file would hold: its metadata but for the tokenizer, and its tensors, each read when its turn comes. */
export interface GgufForm {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, TensorRecord>;
  readonly features: Features;
}
