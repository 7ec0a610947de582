// Sounds to letters (CTC: wav2vec 2.0, HuBERT and their kin; Parakeet, to pieces of words) and to classes (these, the
// audio spectrogram transformer and Whisper), with what their folders say about samples and letters.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { readJsonFile } from '../../io/json-file.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { BandEnergies, LogMel, samplesOf, type SoundInput } from './audio.js';
import { Config, isObject, type Json } from '../files/config.js';
import type { Classified } from '../vision/image-models.js';
import { loadModel } from '../load.js';
import { loadTokenizer } from '../../tokenizers/index.js';
import { EvenedMel } from './evened-mel.js';
import { Loudness } from './loudness.js';
import { ParakeetEars } from './parakeet.js';
import { ParakeetTransducer } from './transducer.js';
import { SpectrogramTransformer } from './spectrogram-transformer.js';
import { SoundEncoder } from './wav2vec2.js';
import { WhisperClassifier } from './whisper-encoder.js';

const jsonOf = (dir: string, name: string): Json =>
  existsSync(join(dir, name)) ? (readJsonFile(join(dir, name)) as Json) : {};
const extractorOf = (dir: string): Config =>
  new Config(jsonOf(dir, 'preprocessor_config.json'), join(dir, 'preprocessor_config.json'));

/** What an encoder of sounds makes of one, (1, ...), on the host. */
function heard(model: SoundEncoder, loudness: Loudness, sound: SoundInput, make: (y: Tensor) => Tensor): unknown {
  const { dtype, device } = model.norm.weight as Tensor;
  const samples = loudness.of(samplesOf(sound, loudness.rate));
  return scope(() =>
    noGrad(() => {
      const x = tensor(samples, { shape: [1, samples.length], device }).cast(dtype);
      return make(model.forward(x).cast('f32')).toArray() as number[][];
    }),
  );
}

/** The letters of a folder: vocab.json and what tokenizer_config.json says about them. */
interface Letters {
  readonly names: ReadonlyMap<number, string>;
  readonly blank: string;
  readonly between: string;
  /** What a token between words becomes. */
  readonly space: string;
  readonly unknown: string;
  readonly lower: boolean;
  readonly tidy: boolean;
}
/** A token's text: files give it as such or with how it is matched. */
const textOf = (v: unknown, unsaid: string): string =>
  typeof v === 'string' ? v : isObject(v) && typeof v.content === 'string' ? v.content : unsaid;
function lettersOf(dir: string): Letters {
  const path = join(dir, 'vocab.json');
  if (!existsSync(path)) throw new FormatError(`${path} is not there: it names the letters that the model hears`);
  const all = readJsonFile(path) as Json;
  const c = { ...jsonOf(dir, 'special_tokens_map.json'), ...jsonOf(dir, 'tokenizer_config.json') };
  const language: unknown = c.target_lang ?? undefined;
  const nested = Object.values(all).every(isObject);
  if (nested && (typeof language !== 'string' || !Object.hasOwn(all, language)))
    throw new UnsupportedError(
      `${dir}: vocab.json has letters by language; target_lang of tokenizer_config.json is ` +
        `${JSON.stringify(language) ?? 'missing'}, none of ${Object.keys(all).slice(0, 8).join(', ')}, ...`,
    );
  const own = (nested ? all[language as string] : all) as Json;
  const named = Object.entries({ ...own, ...jsonOf(dir, 'added_tokens.json') });
  const bad = named.find(([, id]) => !Number.isSafeInteger(id));
  if (bad) throw new FormatError(`${path}: ${JSON.stringify(bad[0])} is ${JSON.stringify(bad[1])}, not a number`);
  return {
    names: new Map(named.map(([name, id]) => [id as number, name])),
    blank: textOf(c.pad_token, '<pad>'),
    between: textOf(c.word_delimiter_token, '|'),
    space: textOf(c.replace_word_delimiter_char, ' '),
    unknown: textOf(c.unk_token, '<unk>'),
    lower: c.do_lower_case === true,
    tidy: c.clean_up_tokenization_spaces === true,
  };
}
/** Spaces that stand before marks and endings of English go, as transformers takes them out. */
const TIDIED: readonly (readonly [string, string])[] = [
  ...['.', '?', '!', ','].map((mark) => [` ${mark}`, mark] as const),
  [" ' ", "'"],
  ...["n't", "'m", "'s", "'ve", "'re"].map((end) => [` ${end}`, end] as const),
];
const tidied = (text: string): string => TIDIED.reduce((t, [from, to]) => t.replaceAll(from, to), text);
/** Letters of moments as a text: a letter that goes on is one, blanks part two that are the same. */
function spelt(ids: readonly number[], l: Letters): string {
  const tokens = ids.map((id) => l.names.get(id) ?? l.unknown);
  const once = tokens.filter((token, i) => token !== tokens[i - 1] && token !== l.blank);
  const text = once
    .map((token) => (token === l.between ? l.space : token))
    .join('')
    .trim();
  const cased = l.lower ? text.toLowerCase() : text;
  return l.tidy ? tidied(cased) : cased;
}

/** The likeliest letters of a sound's moments, and the text that they spell. */
interface Hearer {
  readonly ids: (sound: SoundInput) => readonly number[];
  readonly spell: (ids: readonly number[]) => string;
}
function byLetters(model: SoundEncoder, c: Config, dir: string): Hearer {
  if (!model.letters) throw new ArgumentError(`${dir}: the model has no head for letters that takes samples`);
  const loudness = new Loudness(c);
  const letters = lettersOf(dir);
  return {
    ids: (sound) => (heard(model, loudness, sound, (y) => y.argmax(-1)) as number[][])[0],
    spell: (ids) => spelt(ids, letters),
  };
}
function byPieces(model: ParakeetEars, c: Config, dir: string): Hearer {
  const mel = new EvenedMel(c);
  if (mel.bins !== model.bins)
    throw new UnsupportedError(`${c.where}: makes frames of ${mel.bins} bands; the model hears ${model.bins}`);
  const tokenizer = loadTokenizer(dir);
  const blank = tokenizer.roleId('pad');
  if (blank === undefined)
    throw new FormatError(`${dir}: tokenizer_config.json names no pad_token, which stands between pieces`);
  const tidy = jsonOf(dir, 'tokenizer_config.json').clean_up_tokenization_spaces === true;
  return {
    ids: (sound) => {
      const { data, frames, heard } = mel.of(samplesOf(sound, mel.rate));
      const { weight } = model.folding.out;
      return scope(() =>
        noGrad(() => {
          const x = tensor(data, { shape: [1, frames, mel.bins], device: weight.device }).cast(weight.dtype);
          const mask = Float32Array.from({ length: frames }, (_, t) => Number(t < heard));
          return model.pieces(x, tensor(mask, { shape: [1, frames], device: weight.device }));
        }),
      );
    },
    spell: (ids) => {
      const own = model instanceof ParakeetTransducer ? [blank, model.blank] : [blank];
      // Of a piece a moment the same one after the other are one.
      const once = model instanceof ParakeetTransducer ? ids : ids.filter((id, i) => id !== ids[i - 1]);
      const text = tokenizer.decode(once.filter((id) => !own.includes(id)));
      return tidy ? tidied(text) : text;
    },
  };
}

/**
 * Speech to text by letters or pieces of words, one a moment (CTC: wav2vec 2.0, HuBERT, UniSpeech, Parakeet) or as many
 * as a moment has (Parakeet's transducers, RNN-T and TDT).
 */
export class LetterSpeech {
  /** The network itself. */
  readonly model: SoundEncoder | ParakeetEars;
  readonly #hearer: Hearer;
  constructor(model: SoundEncoder | ParakeetEars, hearer: Hearer) {
    this.model = model;
    this.#hearer = hearer;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<LetterSpeech> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel(dir, { ...options, kind: 'sound' });
      if (!(model instanceof SoundEncoder || model instanceof ParakeetEars))
        throw new ArgumentError(`${dir}: the model has no head for letters that takes samples`);
      const c = extractorOf(dir);
      const hearer = model instanceof ParakeetEars ? byPieces(model, c, dir) : byLetters(model, c, dir);
      c.refuseUnread();
      return new LetterSpeech(model, hearer);
    });
  }
  /** What is said in a WAV file (its path or bytes) or in samples of the model's rate: the likeliest letters. */
  async transcribe(sound: SoundInput): Promise<string> {
    return this.#hearer.spell(this.#hearer.ids(sound));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}

type ClassifyingModel = SpectrogramTransformer | SoundEncoder | WhisperClassifier;
/** Sounds to classes (the audio spectrogram transformer, wav2vec 2.0, HuBERT, Whisper). */
export class SoundClassifier {
  /** The network itself. */
  readonly model: SpectrogramTransformer | SoundEncoder | WhisperClassifier;
  readonly #logits: (sound: SoundInput) => number[];
  constructor(
    model: SpectrogramTransformer | SoundEncoder | WhisperClassifier,
    logits: (sound: SoundInput) => number[],
  ) {
    this.model = model;
    this.#logits = logits;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<SoundClassifier> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<ClassifyingModel>(dir, { ...options, kind: 'sound' });
      const c = extractorOf(dir);
      const logits = logitsOf(model, c, dir);
      c.refuseUnread();
      return new SoundClassifier(model, logits);
    });
  }
  /** The likeliest classes of a sound, the best first. */
  async classify(sound: SoundInput, top = 5): Promise<Classified[]> {
    const logits = this.#logits(sound);
    const most = Math.max(...logits);
    const shares = logits.map((x) => Math.exp(x - most));
    const sum = shares.reduce((a, b) => a + b, 0);
    return shares
      .map((share, i) => ({ label: this.model.labels[i] ?? String(i), score: share / sum }))
      .sort((a, b) => b.score - a.score)
      .slice(0, top);
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
function ofSamples(model: SoundEncoder, c: Config, dir: string): (sound: SoundInput) => number[] {
  if (!model.classes) throw new ArgumentError(`${dir}: the model has no classifier`);
  const loudness = new Loudness(c);
  return (sound) => (heard(model, loudness, sound, (y) => y) as number[][])[0];
}
/** Of what a folder's extractor makes of samples, in this shape, by the model. */
function ofGiven(
  model: SpectrogramTransformer | WhisperClassifier,
  { dtype, device }: Tensor,
  { rate, shape, of }: { rate: number; shape: readonly number[]; of: (samples: Float32Array) => Float32Array },
): (sound: SoundInput) => number[] {
  return (sound) => {
    const data = of(samplesOf(sound, rate));
    const [row] = scope(() =>
      noGrad(() => {
        const x = tensor(data, { shape: [1, ...shape], device }).cast(dtype);
        return model.forward(x).cast('f32').toArray() as number[][];
      }),
    );
    return row;
  };
}
function ofBands(model: SpectrogramTransformer, c: Config, dir: string): (sound: SoundInput) => number[] {
  if (!model.classifier) throw new ArgumentError(`${dir}: the model has no classifier`);
  const bands = new BandEnergies(c);
  const { bins, frames } = model;
  if (bands.bins !== bins || bands.frames !== frames)
    throw new UnsupportedError(
      `${c.where}: makes (${bands.frames}, ${bands.bins}) spectrograms; the model hears (${frames}, ${bins})`,
    );
  return ofGiven(model, model.positions, { rate: bands.rate, shape: [frames, bins], of: (s) => bands.of(s) });
}
function ofMel(model: WhisperClassifier, c: Config): (sound: SoundInput) => number[] {
  const mel = new LogMel(c);
  const { bins, frames } = model.encoder;
  if (mel.bins !== bins || mel.frames !== frames)
    throw new UnsupportedError(
      `${c.where}: makes (${mel.bins}, ${mel.frames}) features; the model hears (${bins}, ${frames})`,
    );
  const { weight } = model.encoder.conv1;
  return ofGiven(model, weight, { rate: mel.rate, shape: [bins, frames], of: (s) => mel.of(s) });
}
function logitsOf(model: ClassifyingModel, c: Config, dir: string): (sound: SoundInput) => number[] {
  if (model instanceof SoundEncoder) return ofSamples(model, c, dir);
  if (model instanceof SpectrogramTransformer) return ofBands(model, c, dir);
  if (model instanceof WhisperClassifier) return ofMel(model, c);
  throw new UnsupportedError(`${dir}: the model hears energies of bands that nothing here makes of sounds`);
}
