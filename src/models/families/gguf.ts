// GGUF metadata as the config that Hugging Face would have written, and the names that llama.cpp's converters give to tensors.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { Config } from '../config.js';
import type { Attention, Features, Layer, LatentAttention, NormFeature } from '../features.js';
import type { RopeFeature } from '../rope.js';
import type { ModelSource } from '../source.js';
import type { Names } from '../weights.js';

export interface GgufRow {
  readonly architectures: readonly string[];
  /** Architectures whose converter put the rows of queries and keys into pairs of neighbours. */
  readonly permuted?: readonly string[];
  /** The converter added the one that norms of this family add. */
  readonly oneAdded?: boolean;
  readonly names?: Partial<Names>;
}

export const ggufFeatures = (row: GgufRow, features: (c: Config) => Features, source: ModelSource): Features => {
  void [row, features, Config];
  throw new UnsupportedError(`${source.path}: GGUF`);
};
export const ggufNames = (row: GgufRow, features: Features): Names => {
  void [row, features];
  throw new FormatError('GGUF');
};
export type Unused = [Attention, Layer, LatentAttention, NormFeature, RopeFeature];
