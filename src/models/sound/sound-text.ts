// Sounds beside texts: a model of both with what its folder says about samples and words.
import { join } from 'node:path';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { readJsonFile } from '../../io/json-file.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { Config } from '../files/config.js';
import { loadModel } from '../load.js';
import { samplesOf, type SoundInput } from './audio.js';
import type { Clap } from './clap.js';
import { ClapMel } from './clap-mel.js';

const rowsOf = (t: Tensor): number[][] => t.cast('f32').contiguous().toArray() as number[][];

/** Sounds and texts as vectors of one space (CLAP): which of some texts a sound is, which of some sounds a text means. */
export class SoundTextModel {
  /** The network itself. */
  readonly model: Clap;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  readonly #mel: ClapMel;
  constructor(model: Clap, tokenizer: Tokenizer, mel: ClapMel) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#mel = mel;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<SoundTextModel> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<Clap>(dir, { ...options, kind: 'sound-text' });
      const path = join(dir, 'preprocessor_config.json');
      const c = new Config(readJsonFile(path) as Record<string, unknown>, path);
      const mel = new ClapMel(c);
      c.refuseUnread();
      const { views, bins } = model.sound;
      if (mel.views !== views || mel.bins !== bins)
        throw new UnsupportedError(
          `${path}: makes ${mel.views} spectrograms of ${mel.bins} bands; the model hears ${views} of ${bins}`,
        );
      return new SoundTextModel(model, loadTokenizer(dir), mel);
    });
  }
  #texts(texts: readonly string[]): Tensor {
    if (texts.length === 0) throw new ArgumentError('texts: the list is empty; give one text at least');
    const { device } = this.model.soundScale;
    const rows = texts.map((t) => this.tokenizer.encode(t, { maxLength: this.model.text.maxTokens }));
    const time = Math.max(...rows.map((r) => r.length));
    const pad = this.tokenizer.roleId('pad') ?? 1;
    const shape = [rows.length, time];
    const ids = Int32Array.from(rows.flatMap((r) => [...r, ...Array<number>(time - r.length).fill(pad)]));
    const mask = Float32Array.from(rows.flatMap((r) => Array.from({ length: time }, (_, i) => Number(i < r.length))));
    return this.model.embedText(tensor(ids, { shape, device }), tensor(mask, { shape, device }));
  }
  #sounds(sounds: readonly SoundInput[]): Tensor {
    if (sounds.length === 0) throw new ArgumentError('sounds: the list is empty; give one sound at least');
    const { device, dtype } = this.model.soundScale;
    const mel = this.#mel;
    const each = sounds.map((sound) => {
      const data = mel.of(samplesOf(sound, mel.rate));
      return tensor(data, { shape: [1, mel.views, mel.frames, mel.bins], device }).cast(dtype);
    });
    return this.model.embedSound(each[0].cat(each.slice(1), 0));
  }
  #vectors(make: () => Tensor): Float32Array[] {
    return scope(() => noGrad(() => rowsOf(make()))).map((row) => Float32Array.from(row));
  }
  /** Vectors of length 1. */
  async embedTexts(texts: readonly string[]): Promise<Float32Array[]> {
    return this.#vectors(() => this.#texts(texts));
  }
  /** Vectors of length 1, one a sound: WAV files' paths or bytes, or samples of the model's rate. */
  async embedSounds(sounds: readonly SoundInput[]): Promise<Float32Array[]> {
    return this.#vectors(() => this.#sounds(sounds));
  }
  /** How well each sound fits each text: shares that sum to 1. */
  async scores(sounds: readonly SoundInput[], texts: readonly string[]): Promise<number[][]> {
    return scope(() => noGrad(() => rowsOf(this.model.logits(this.#sounds(sounds), this.#texts(texts)).softmax(-1))));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
