// Sound for models that hear: samples as files have them, log-mel spectrograms as transformers' Whisper extractor makes
// them, and Kaldi's energies of bands for the audio spectrogram transformer.
import { readWhole } from '../../base/read-file.js';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { readWav } from '../../media/wav.js';
import { tensor } from '../../tensor/create.js';
import '../../tensor/methods.js';
import { scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';

/** A WAV file's path or bytes, or samples of the model's rate between -1 and 1. */
export type SoundInput = string | Uint8Array | Float32Array;
/** One channel of samples of this rate. */
export function samplesOf(sound: SoundInput, wanted: number): Float32Array {
  if (sound instanceof Float32Array) return sound;
  const { samples, rate } = readWav(typeof sound === 'string' ? readWhole(sound) : sound);
  if (rate !== wanted)
    throw new ArgumentError(
      `speech: the file has ${rate} samples a second, the model hears ${wanted}; convert it first`,
    );
  return samples;
}

interface MelScale {
  readonly of: (hz: number) => number;
  readonly back: (mel: number) => number;
  /** Triangles have the same area, not the same height. */
  readonly even: boolean;
}
/** Slaney's scale is straight up to a thousand hertz; HTK's is bent everywhere. */
export const MEL_SCALES: Readonly<Record<'slaney' | 'htk', MelScale>> = {
  slaney: {
    of: (hz) => (hz >= 1000 ? 15 + Math.log(hz / 1000) * (27 / Math.log(6.4)) : (3 * hz) / 200),
    back: (mel) => (mel >= 15 ? 1000 * Math.exp((Math.log(6.4) / 27) * (mel - 15)) : (200 * mel) / 3),
    even: true,
  },
  htk: {
    of: (hz) => 2595 * Math.log10(1 + hz / 700),
    back: (mel) => 700 * (10 ** (mel / 2595) - 1),
    even: false,
  },
};
/** Triangles on a mel scale: (filters, bins). */
export function melFilters(
  filters: number,
  bins: number,
  rate: number,
  highest: number,
  lowest = 0,
  { of, back, even } = MEL_SCALES.slaney,
): Float64Array[] {
  const [low, top] = [of(lowest), of(highest)];
  const edges = Array.from({ length: filters + 2 }, (_, i) => back(low + ((top - low) * i) / (filters + 1)));
  return Array.from({ length: filters }, (_, f) => {
    const [left, middle, right] = edges.slice(f, f + 3);
    return Float64Array.from({ length: bins }, (_, k) => {
      const hz = (Math.floor(rate / 2) * k) / (bins - 1);
      const height = Math.max(0, Math.min((hz - left) / (middle - left), (right - hz) / (right - middle)));
      return even ? (height * 2) / (right - left) : height;
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

/** Samples of a frame, from one frame to the next, and of the transform that frames are filled up to. */
const [FRAME, HOP, TRANSFORM] = [400, 160, 512];
const BANDS = TRANSFORM / 2 + 1;
const kaldiMel = (hz: number): number => 1127 * Math.log(1 + hz / 700);
/** Energies of bands, as the audio spectrogram transformer's extractor takes them from Kaldi. */
export class BandEnergies {
  readonly bins: number;
  readonly rate: number;
  /** Frames that a sound is cut or filled up to. */
  readonly frames: number;
  readonly #mean: number;
  readonly #std: number;
  /** (frame, bands) of cosines and of sines, the frame's window in them. */
  readonly #cos: Float64Array;
  readonly #sin: Float64Array;
  /** (bands, bins). */
  readonly #filters: Float64Array;
  constructor(c: Config) {
    c.only('feature_extractor_type', 'ASTFeatureExtractor');
    c.only('padding_value', 0);
    c.ignore('processor_class', 'padding_side', 'return_attention_mask', 'feature_size', 'mel_filters', 'window');
    this.bins = c.count('num_mel_bins', 128, 1);
    this.rate = c.count('sampling_rate', 16_000, 1);
    this.frames = c.count('max_length', 1024, 1);
    const normed = c.flag('do_normalize', true);
    const [mean, std] = [c.number('mean', -4.2677393), c.number('std', 4.5689974)];
    [this.#mean, this.#std] = normed ? [mean, 2 * std] : [0, 1];
    if (this.bins > 4096 || this.rate > 2 ** 20 || this.frames > 2 ** 20)
      throw new UnsupportedError(
        `${c.where}: num_mel_bins ${this.bins}, sampling_rate ${this.rate} and max_length ${this.frames}; 4096 bins, ` +
          'a rate of 2^20 and 2^20 frames are the most',
      );
    const hann = (i: number): number => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / (FRAME - 1));
    const waves = (f: (x: number) => number): Float64Array =>
      Float64Array.from({ length: FRAME * BANDS }, (_, k) => {
        const [i, band] = [Math.floor(k / BANDS), k % BANDS];
        return hann(i) * f((2 * Math.PI * ((i * band) % TRANSFORM)) / TRANSFORM);
      });
    [this.#cos, this.#sin] = [waves(Math.cos), waves(Math.sin)];
    const [low, high] = [kaldiMel(20), kaldiMel(Math.floor(this.rate / 2))];
    const edge = (i: number): number => low + ((high - low) * i) / (this.bins + 1);
    this.#filters = Float64Array.from({ length: BANDS * this.bins }, (_, k) => {
      const [band, bin] = [Math.floor(k / this.bins), k % this.bins];
      const at = kaldiMel((this.rate / TRANSFORM) * band);
      const up = (at - edge(bin)) / (edge(bin + 1) - edge(bin));
      const down = (edge(bin + 2) - at) / (edge(bin + 2) - edge(bin + 1));
      return Math.max(0, Math.min(up, down));
    });
  }
  /** (frames, bins) of a sound; frames past its end are silent. */
  of(samples: Float32Array): Float32Array {
    if (samples.length < FRAME)
      throw new ArgumentError(`sound: ${samples.length} samples; a frame has ${FRAME}, and one is the least`);
    const count = Math.min(this.frames, 1 + Math.floor((samples.length - FRAME) / HOP));
    const frames = new Float64Array(count * FRAME);
    for (let t = 0; t < count; t++) {
      const own = samples.subarray(t * HOP, t * HOP + FRAME);
      const mean = own.reduce((a, b) => a + b, 0) / FRAME;
      for (let i = 0; i < FRAME; i++) frames[t * FRAME + i] = own[i] - mean - 0.97 * (own[Math.max(0, i - 1)] - mean);
    }
    const { energies } = scope(() => {
      const matrix = (data: Float64Array, rows: number): Tensor =>
        tensor(data, { shape: [rows, data.length / rows], device: 'cpu' });
      const x = matrix(frames, count);
      const power = x
        .matmul(matrix(this.#cos, FRAME))
        .sqr()
        .add(x.matmul(matrix(this.#sin, FRAME)).sqr());
      return { energies: power.matmul(matrix(this.#filters, BANDS)).contiguous().dataSync() as Float64Array };
    });
    const out = new Float32Array(this.frames * this.bins).fill(-this.#mean / this.#std);
    energies.forEach((e, i) => {
      out[i] = (Math.log(Math.max(e, 1.192092955078125e-7)) - this.#mean) / this.#std;
    });
    return out;
  }
}
