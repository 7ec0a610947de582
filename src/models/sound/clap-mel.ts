// Spectrograms as CLAP's extractor makes them: sounds of one length, repeated where they are shorter, in decibels of
// bands; of a longer one, parts and the whole of it made short.
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { tensor } from '../../tensor/create.js';
import '../../tensor/methods.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import { MEL_SCALES, melFilters } from './audio.js';

export class ClapMel {
  readonly bins: number;
  readonly rate: number;
  /** Spectrograms of a sound: one, or the whole and three parts. */
  readonly views: 1 | 4;
  readonly #window: number;
  readonly #transform: number;
  readonly #hop: number;
  readonly #padding: string;
  readonly #cos: Float64Array;
  readonly #sin: Float64Array;
  /** (bins, bands). */
  readonly #filters: Float64Array;
  constructor(c: Config) {
    c.only('feature_extractor_type', 'ClapFeatureExtractor');
    c.only('padding_value', 0);
    c.only('truncation', 'fusion', 'rand_trunc');
    c.only('padding', 'repeatpad', 'repeat', 'pad');
    c.ignore('processor_class', 'padding_side', 'return_attention_mask', 'nb_frequency_bins', 'nb_max_samples');
    // Read from files and used nowhere.
    c.ignore('top_db', 'chunk_length_s', 'overlap', 'max_length', 'n_fft');
    this.bins = c.count('feature_size', 64, 1);
    this.rate = c.count('sampling_rate', 48_000, 1);
    this.views = c.text('truncation', 'fusion') === 'fusion' ? 4 : 1;
    this.#padding = c.text('padding', 'repeatpad');
    this.#hop = c.count('hop_length', 480, 1);
    this.#window = c.count('max_length_s', 10, 1) * this.rate;
    const n = (this.#transform = c.count('fft_window_size', 1024, 2));
    if (n % 2 !== 0 || n > 8192 || this.bins > 4096 || this.rate > 2 ** 20 || this.#window > 2 ** 28)
      throw new UnsupportedError(
        `${c.where}: fft_window_size ${n}, feature_size ${this.bins}, sampling_rate ${this.rate} and ${this.#window} ` +
          'samples; an even window up to 8192, 4096 features, a rate of 2^20 and 2^28 samples are the most',
      );
    const bands = n / 2 + 1;
    const waves = (f: (x: number) => number): Float64Array =>
      Float64Array.from({ length: n * bands }, (_, k) => {
        const [i, band] = [Math.floor(k / bands), k % bands];
        return (0.5 - 0.5 * Math.cos((2 * Math.PI * i) / n)) * f((2 * Math.PI * ((i * band) % n)) / n);
      });
    [this.#cos, this.#sin] = [waves(Math.cos), waves(Math.sin)];
    const [low, high] = [c.number('frequency_min', 0), c.number('frequency_max', 14_000)];
    if (!(low >= 0 && low < high))
      throw new UnsupportedError(`${c.where}: frequency_min is ${low} and frequency_max ${high}`);
    const scale = MEL_SCALES[this.views === 4 ? 'htk' : 'slaney'];
    const rows = melFilters(this.bins, bands, this.rate, high, low, scale);
    this.#filters = Float64Array.from(rows.flatMap((row) => [...row]));
  }
  /** Frames of a whole window. */
  get frames(): number {
    return Math.floor(this.#window / this.#hop) + 1;
  }
  /** Decibels (frames, bins); the sound is mirrored at its ends. */
  #levels(sound: Float32Array): Float32Array {
    const [n, size] = [this.#transform, sound.length];
    const count = Math.floor(size / this.#hop) + 1;
    const at = (i: number): number => sound[i < 0 ? -i : i >= size ? 2 * size - 2 - i : i];
    const frames = new Float64Array(count * n);
    for (let t = 0; t < count; t++) for (let i = 0; i < n; i++) frames[t * n + i] = at(t * this.#hop - n / 2 + i);
    const { energies } = scope(() => {
      const matrix = (data: Float64Array, rows: number): Tensor =>
        tensor(data, { shape: [rows, data.length / rows], device: 'cpu' });
      const x = matrix(frames, count);
      const [real, imaginary] = [this.#cos, this.#sin].map((waves) => x.matmul(matrix(waves, n)).sqr());
      const mel = real.add(imaginary).matmul(matrix(this.#filters, this.bins).t());
      return { energies: mel.contiguous().dataSync() as Float64Array };
    });
    return Float32Array.from(energies, (energy) => 10 * Math.log10(Math.max(energy, 1e-10)));
  }
  /** A sound of the window's length. */
  #filled(samples: Float32Array): Float32Array {
    const sound = new Float32Array(this.#window);
    const times =
      this.#padding === 'pad' ? 1 : Math.floor(this.#window / samples.length) + Number(this.#padding === 'repeat');
    for (let i = 0; i < times; i++) {
      const from = i * samples.length;
      sound.set(samples.subarray(0, Math.max(0, Math.min(samples.length, this.#window - from))), from);
    }
    return sound;
  }
  /**
   * Spectrograms (views, frames, bins). Of a sound that is longer, parts are taken at random where the models were
   * trained; here they are those in the middle of where they may lie.
   */
  of(samples: Float32Array): Float32Array {
    if (samples.length === 0) throw new ArgumentError('sound: there are no samples');
    const { frames, bins, views } = this;
    const size = frames * bins;
    if (samples.length <= this.#window || views === 1) {
      const from = Math.max(0, Math.floor((samples.length - this.#window) / 2));
      const one = this.#levels(
        samples.length <= this.#window ? this.#filled(samples) : samples.subarray(from, from + this.#window),
      );
      const all = new Float32Array(views * size);
      for (let i = 0; i < views; i++) all.set(one, i * size);
      return all;
    }
    const whole = this.#levels(samples);
    const total = whole.length / bins;
    const all = new Float32Array(views * size);
    if (total === frames) {
      for (let i = 0; i < views; i++) all.set(whole, i * size);
      return all;
    }
    const { short } = scope(() => {
      const x = tensor(whole, { shape: [1, 1, total, bins], device: 'cpu' });
      return {
        short: x
          .interpolate({ size: [frames, bins], mode: 'bilinear' })
          .contiguous()
          .dataSync() as Float32Array,
      };
    });
    all.set(short);
    thirds(total - frames + 1).forEach((begin, i) =>
      all.set(whole.subarray(begin * bins, begin * bins + size), (i + 1) * size),
    );
    return all;
  }
}
/** The middle of each third of so many places; where a third has none, the first place of all. */
function thirds(places: number): number[] {
  const sizes = [0, 1, 2].map((i) => Math.floor(places / 3) + Number(i < places % 3));
  return sizes.map((size, i) => {
    const begin = sizes.slice(0, i).reduce((a, b) => a + b, 0);
    return size === 0 ? 0 : begin + Math.floor((size - 1) / 2);
  });
}
