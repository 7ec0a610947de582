// Sound for speech models: samples to log-mel spectrograms, as transformers' Whisper extractor makes them.
import { ArgumentError, UnsupportedError } from '../base/errors.js';
import { tensor } from '../tensor/create.js';
import '../tensor/methods.js';
import { scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import type { Config } from './config.js';

const melOf = (hz: number): number => (hz >= 1000 ? 15 + Math.log(hz / 1000) * (27 / Math.log(6.4)) : (3 * hz) / 200);
const hzOf = (mel: number): number =>
  mel >= 15 ? 1000 * Math.exp((Math.log(6.4) / 27) * (mel - 15)) : (200 * mel) / 3;

/** Triangles on Slaney's mel scale, each of the same area: (filters, bins). */
function melFilters(filters: number, bins: number, rate: number, highest: number): Float64Array[] {
  const top = melOf(highest);
  const edges = Array.from({ length: filters + 2 }, (_, i) => hzOf((top * i) / (filters + 1)));
  return Array.from({ length: filters }, (_, f) => {
    const [low, middle, high] = edges.slice(f, f + 3);
    return Float64Array.from({ length: bins }, (_, k) => {
      const hz = (Math.floor(rate / 2) * k) / (bins - 1);
      const height = Math.max(0, Math.min((hz - low) / (middle - low), (high - hz) / (high - middle)));
      return (height * 2) / (high - low);
    });
  });
}

/** Log-mel spectrograms of one window of samples. */
export class LogMel {
  readonly bins: number;
  readonly rate: number;
  /** Samples of a window of the model. */
  readonly window: number;
  readonly #fft: number;
  readonly #hop: number;
  /** (bins, n / 2 + 1). */
  readonly #filters: Float64Array;
  readonly #cos: Float64Array;
  readonly #sin: Float64Array;
  readonly #hann: Float64Array;

  /** By a folder's preprocessor_config.json. */
  constructor(c: Config) {
    c.only('feature_extractor_type', 'WhisperFeatureExtractor');
    c.only('dither', 0);
    c.only('do_normalize', false);
    c.only('padding_value', 0);
    c.ignore(
      'processor_class',
      'padding_side',
      'return_attention_mask',
      'nb_max_frames',
      'mel_filters',
      'max_frequency',
    );
    this.bins = c.count('feature_size', 80);
    this.rate = c.count('sampling_rate', 16_000);
    this.#fft = c.count('n_fft', 400);
    this.#hop = c.count('hop_length', 160, 1);
    const seconds = c.count('chunk_length', 30);
    this.window = c.count('n_samples', seconds * this.rate);
    const n = this.#fft;
    if (n % 2 !== 0 || n < 2 || n > 8192 || this.bins > 4096 || this.rate > 2 ** 20 || this.window > 2 ** 28)
      throw new UnsupportedError(
        `${c.where}: n_fft ${n}, feature_size ${this.bins}, sampling_rate ${this.rate} and n_samples ${this.window}; ` +
          'an even n_fft up to 8192, 4096 features, a rate of 2^20 and 2^28 samples are the most',
      );
    const side = n / 2 + 1;
    const waves = (f: (x: number) => number): Float64Array =>
      Float64Array.from({ length: side * side }, (_, i) =>
        f((2 * Math.PI * ((Math.floor(i / side) * (i % side)) % n)) / n),
      );
    this.#cos = waves(Math.cos);
    this.#sin = waves(Math.sin);
    this.#hann = Float64Array.from({ length: n }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / n));
    this.#filters = Float64Array.from(melFilters(this.bins, side, this.rate, 8000).flatMap((row) => [...row]));
  }
  get frames(): number {
    return Math.floor(this.window / this.#hop);
  }
  /** Samples padded with silence or cut to one window, as (bins, frames). */
  of(samples: Float32Array): Float32Array {
    if (samples.length === 0) throw new ArgumentError('speech: there are no samples');
    const [n, frames] = [this.#fft, this.frames];
    const half = n / 2;
    const sound = new Float32Array(this.window);
    sound.set(samples.subarray(0, this.window));
    // Mirrored at the ends.
    const at = (i: number): number => sound[i < 0 ? -i : i >= sound.length ? 2 * sound.length - 2 - i : i];
    // Cosines see only the even part of a frame, sines the odd one: half the work.
    const even = new Float64Array(frames * (half + 1));
    const odd = new Float64Array(frames * (half + 1));
    for (let t = 0; t < frames; t++) {
      const [begin, row] = [t * this.#hop - half, t * (half + 1)];
      even[row] = at(begin) * this.#hann[0];
      even[row + half] = at(begin + half) * this.#hann[half];
      for (let i = 1; i < half; i++) {
        const [a, b] = [at(begin + i) * this.#hann[i], at(begin + n - i) * this.#hann[n - i]];
        even[row + i] = a + b;
        odd[row + i] = a - b;
      }
    }
    const { energies } = scope(() => {
      const matrix = (data: Float64Array, rows: number): Tensor =>
        tensor(data, { shape: [rows, data.length / rows], device: 'cpu' });
      const real = matrix(even, frames).matmul(matrix(this.#cos, half + 1));
      const imaginary = matrix(odd, frames).matmul(matrix(this.#sin, half + 1));
      const power = real.sqr().add(imaginary.sqr()); // (frames, n / 2 + 1)
      const mel = matrix(this.#filters, this.bins).matmul(power.t()).contiguous();
      return { energies: mel.dataSync() as Float64Array };
    });
    const levels = energies.map((energy) => Math.log10(Math.max(energy, 1e-10)));
    const loudest = levels.reduce((a, b) => Math.max(a, b), -Infinity);
    return Float32Array.from(levels, (level) => (Math.max(level, loudest - 8) + 4) / 4);
  }
}
