// Log-mel spectrograms as Parakeet's extractor makes them: samples less the one before them, frames in silence at both
// ends, and each band evened out over the sound.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { tensor } from '../../tensor/create.js';
import '../../tensor/methods.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { melFilters } from './audio.js';

/** What is added before logarithms and to a band's spread. */
const [LEAST_ENERGY, LEAST_SPREAD] = [2 ** -24, 1e-5];

export class EvenedMel {
  readonly bins: number;
  readonly rate: number;
  readonly #transform: number;
  readonly #frame: number;
  readonly #hop: number;
  /** How much of the sample before is taken off. */
  readonly #emphasis: number;
  /** (frame, bands) of cosines and of sines, the frame's window in them. */
  readonly #cos: Float64Array;
  readonly #sin: Float64Array;
  /** (bins, bands). */
  readonly #filters: Float64Array;
  constructor(c: Config) {
    c.only('feature_extractor_type', 'ParakeetFeatureExtractor');
    c.only('padding_value', 0);
    c.ignore('processor_class', 'padding_side', 'return_attention_mask', 'mel_filters');
    this.bins = c.count('feature_size', 80, 1);
    this.rate = c.count('sampling_rate', 16_000, 1);
    this.#hop = c.count('hop_length', 160, 1);
    const n = c.count('n_fft', 512, 2);
    const frame = c.count('win_length', 400, 2);
    this.#emphasis = c.json.preemphasis === null ? 0 : c.number('preemphasis', 0.97);
    c.ignore('preemphasis');
    if (n % 2 !== 0 || n > 8192 || frame > n || this.bins > 4096 || this.rate > 2 ** 20)
      throw new UnsupportedError(
        `${c.where}: n_fft ${n}, win_length ${frame}, feature_size ${this.bins} and sampling_rate ${this.rate}; an even ` +
          'n_fft up to 8192 that is no shorter than the window, 4096 features and a rate of 2^20 are the most',
      );
    [this.#transform, this.#frame] = [n, frame];
    const bands = n / 2 + 1;
    const lead = Math.floor((n - frame) / 2);
    const hann = (i: number): number => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (frame - 1));
    const waves = (f: (x: number) => number): Float64Array =>
      Float64Array.from({ length: frame * bands }, (_, k) => {
        const [i, band] = [Math.floor(k / bands), k % bands];
        return hann(i) * f((2 * Math.PI * (((lead + i) * band) % n)) / n);
      });
    [this.#cos, this.#sin] = [waves(Math.cos), waves(Math.sin)];
    this.#filters = Float64Array.from(melFilters(this.bins, bands, this.rate, this.rate / 2).flatMap((r) => [...r]));
  }
  /** Logarithms of energies, (frames, bins). */
  #levels(samples: Float32Array, count: number): Float64Array {
    const frame = this.#frame;
    const lead = Math.floor((this.#transform - frame) / 2) - this.#transform / 2;
    const at = (i: number): number => (i < 0 || i >= samples.length ? 0 : samples[i]);
    const frames = Float64Array.from({ length: count * frame }, (_, k) => {
      const i = Math.floor(k / frame) * this.#hop + lead + (k % frame);
      return i < 0 || i >= samples.length ? 0 : at(i) - this.#emphasis * at(i - 1);
    });
    const { energies } = scope(() => {
      const matrix = (data: Float64Array, rows: number): Tensor =>
        tensor(data, { shape: [rows, data.length / rows], device: 'cpu' });
      const x = matrix(frames, count);
      const [real, imaginary] = [this.#cos, this.#sin].map((waves) => x.matmul(matrix(waves, frame)).sqr());
      const mel = real.add(imaginary).matmul(matrix(this.#filters, this.bins).t());
      return { energies: mel.contiguous().dataSync() as Float64Array };
    });
    return energies.map((energy) => Math.log(energy + LEAST_ENERGY));
  }
  /** (frames, bins) of a sound, and how many of the frames are heard; those behind are zero. */
  of(samples: Float32Array): { readonly data: Float32Array; readonly frames: number; readonly heard: number } {
    const { bins } = this;
    const heard = Math.floor(samples.length / this.#hop);
    if (heard < 2)
      throw new ArgumentError(`sound: ${samples.length} samples; two frames of ${this.#hop} are the least`);
    const frames = heard + 1;
    const levels = this.#levels(samples, frames);
    const data = new Float32Array(frames * bins);
    for (let bin = 0; bin < bins; bin++) {
      let [sum, squares] = [0, 0];
      for (let t = 0; t < heard; t++) sum += levels[t * bins + bin];
      const mean = sum / heard;
      for (let t = 0; t < heard; t++) squares += (levels[t * bins + bin] - mean) ** 2;
      const spread = Math.sqrt(squares / (heard - 1)) + LEAST_SPREAD;
      for (let t = 0; t < heard; t++) data[t * bins + bin] = (levels[t * bins + bin] - mean) / spread;
    }
    return { data, frames, heard };
  }
}
