// What wav2vec 2.0's extractor does to samples before a model hears them; Moonshine's is the same.
import type { Config } from '../files/config.js';

/** Samples as wav2vec 2.0's extractor gives them: all of a sound of one loudness, where files say so. */
export class Loudness {
  readonly rate: number;
  readonly #evened: boolean;
  constructor(c: Config) {
    c.only('feature_extractor_type', 'Wav2Vec2FeatureExtractor');
    c.only('feature_size', 1);
    c.ignore('padding_value', 'padding_side', 'return_attention_mask', 'processor_class');
    this.rate = c.count('sampling_rate', 16_000, 1);
    this.#evened = c.flag('do_normalize', true);
  }
  of(samples: Float32Array): Float32Array {
    if (!this.#evened || samples.length === 0) return samples;
    const mean = samples.reduce((a, b) => a + b, 0) / samples.length;
    const spread = samples.reduce((a, b) => a + (b - mean) ** 2, 0) / samples.length;
    return samples.map((s) => (s - mean) / Math.sqrt(spread + 1e-7));
  }
}
