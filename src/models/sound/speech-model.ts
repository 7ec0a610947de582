// Speech to text: Whisper with its tokenizer, the spectrogram it hears and the tokens that tell it its task; Moonshine
// with its tokenizer, which hears samples and is told nothing.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { readJsonFile } from '../../io/json-file.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope, wholeOrNothing } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { answerRules } from '../seq2seq/answer-rules.js';
import { readGeneration } from '../files/generation-config.js';
import { LogMel, samplesOf, type SoundInput } from './audio.js';
import { Config } from '../files/config.js';
import { loadModel } from '../load.js';
import { Loudness } from './loudness.js';
import { Moonshine } from './moonshine.js';
import type { Whisper } from './whisper.js';

/** Options of `transcribe`. */
export interface TranscribeOptions {
  /** 'de' or '<|de|>'; default: what generation_config.json says, else what the model hears. */
  readonly language?: string;
  /** In the language that is spoken, or in English; default: what generation_config.json says, else the first. */
  readonly task?: 'transcribe' | 'translate';
  /** Tokens of each window's text; default: what the model has room for. */
  readonly maxTokens?: number;
}
interface Tokens {
  readonly start: number;
  readonly end: readonly number[];
  readonly languages: Readonly<Record<string, number>>;
  readonly tasks: Readonly<Record<string, number>>;
  readonly noTimestamps: number | undefined;
  /** What files ask for where the caller does not: the tokens after the start (null: the language that is heard), */
  readonly forced: readonly (number | null)[];
  /** or names of a language and a task, which go before them. */
  readonly language: string | undefined;
  readonly task: string | undefined;
  readonly rules: ReturnType<typeof answerRules>;
}

/** How a model takes sounds: samples a second, samples of a window, and what it is given of them. */
export interface Hearing {
  /** Samples a second. */
  readonly rate: number;
  /** The most samples that are heard at once. */
  readonly window: number;
  /** Of samples, what the model reads, in this shape. */
  given(samples: Float32Array): { readonly data: Float32Array; readonly shape: readonly number[] };
}
/** Seconds that Moonshine was trained to hear at once. */
const MOONSHINE_SECONDS = 30;

/** By a folder's preprocessor_config.json: a logarithmic mel spectrogram for Whisper, samples for Moonshine. */
function hearingOf(model: Whisper | Moonshine, c: Config): Hearing {
  if (model instanceof Moonshine) {
    const loudness = new Loudness(c);
    const least = model.fewestSamples;
    return {
      rate: loudness.rate,
      window: MOONSHINE_SECONDS * loudness.rate,
      given: (samples) => {
        const heard = loudness.of(samples);
        const data = new Float32Array(Math.max(heard.length, least)); // what is too short ends in silence
        data.set(heard);
        return { data, shape: [1, data.length] };
      },
    };
  }
  const mel = new LogMel(c);
  const { bins, sourcePositions } = model.config;
  if (mel.bins !== bins || mel.frames !== 2 * sourcePositions)
    throw new UnsupportedError(
      `${c.where}: makes (${mel.bins}, ${mel.frames}) features; the model hears (${bins}, ${2 * sourcePositions})`,
    );
  const shape = [1, mel.bins, mel.frames];
  return { rate: mel.rate, window: mel.window, given: (samples) => ({ data: mel.of(samples), shape }) };
}

/** Speech to text (Whisper, Moonshine). */
export class SpeechModel {
  /** The network itself. */
  readonly model: Whisper | Moonshine;
  /** How tokens become text. */
  readonly tokenizer: Tokenizer;
  /** How sound becomes numbers. */
  readonly hearing: Hearing;
  readonly #tokens: Tokens;
  constructor(model: Whisper | Moonshine, tokenizer: Tokenizer, hearing: Hearing, tokens: Tokens) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.hearing = hearing;
    this.#tokens = tokens;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<SpeechModel> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<Whisper | Moonshine>(dir, { ...options, kind: 'speech' });
      const path = join(dir, 'preprocessor_config.json');
      const c = new Config(existsSync(path) ? readJsonFile(path) : {}, path);
      const hearing = hearingOf(model, c);
      c.refuseUnread();
      return new SpeechModel(model, loadTokenizer(dir), hearing, readTokens(dir));
    });
  }

  /** What is said in a WAV file (its path or bytes) or in samples of the model's rate. */
  async transcribe(sound: SoundInput, options: TranscribeOptions = {}): Promise<string> {
    const samples = samplesOf(sound, this.hearing.rate);
    let text = '';
    for (let at = 0; at < samples.length; at += this.hearing.window)
      text += this.#window(samples.subarray(at, at + this.hearing.window), options);
    return text.trim();
  }
  #window(samples: Float32Array, options: TranscribeOptions): string {
    const { model, hearing } = this;
    const { dtype, weight } = model.words;
    const { device } = weight;
    const { data, shape } = hearing.given(samples);
    const features = keep(scope(() => tensor(data, { shape: [...shape], device }).cast(dtype)));
    try {
      const start = this.#start(features, options);
      const maxTokens = Math.min(options.maxTokens ?? Infinity, model.config.targetPositions - start.length);
      const about = { start, end: this.#tokens.end, maxTokens };
      const [row] = model.answer(features, { ...about, ...this.#tokens.rules(about) });
      return this.tokenizer.decode(row.slice(start.length));
    } finally {
      features.dispose();
    }
  }
  /** The start token, and for models of many languages the language, the task and that no times are wanted. */
  #start(features: Tensor, options: TranscribeOptions): number[] {
    const { start, languages, tasks, noTimestamps, forced } = this.#tokens;
    const [language, task] = [options.language ?? this.#tokens.language, options.task ?? this.#tokens.task];
    const out = [start];
    if (forced.length > 0 && language === undefined && task === undefined)
      out.push(...forced.map((id) => id ?? this.#heard(features)));
    else if (Object.keys(languages).length > 0) {
      const spoken = forced[0] ?? undefined;
      out.push(language === undefined ? (spoken ?? this.#heard(features)) : this.#languageOf(language));
      if (Object.hasOwn(tasks, task ?? 'transcribe')) out.push(tasks[task ?? 'transcribe']);
    } else if (language !== undefined || (task ?? 'transcribe') !== 'transcribe')
      throw new ArgumentError('speech: this model knows one language and one task');
    if (noTimestamps !== undefined && out.at(-1) !== noTimestamps) out.push(noTimestamps);
    return out;
  }
  #languageOf(language: string): number {
    const { languages } = this.#tokens;
    const id = languages[language] ?? languages[`<|${language}|>`];
    if (id === undefined)
      throw new ArgumentError(
        `speech: the language ${JSON.stringify(language)} is not known; known are ${Object.keys(languages).join(' ')}`,
      );
    return id;
  }
  #heard(features: Tensor): number {
    const ids = Object.values(this.#tokens.languages);
    return scope(() =>
      noGrad(() => {
        const crossed = this.model.begin(this.model.encode(features)).crossed;
        const first = tensor(Int32Array.of(this.#tokens.start), { shape: [1, 1], device: features.device });
        const logits = this.model.decode(first, { crossed }).reshape([-1]).cast('f32').toArray() as number[];
        return ids.reduce((best, id) => (logits[id] > logits[best] ? id : best), ids[0]);
      }),
    );
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}

/** [[1, language or null], [2, task], ...] as the tokens after the start. */
function forcedTokens(given: unknown, dir: string): (number | null)[] {
  const pairs = (given ?? []) as readonly (readonly [number, number | null])[];
  const tokens = pairs.map(([, id]) => id);
  if (pairs.some(([at], i) => at !== i + 1) || tokens.slice(1).includes(null))
    throw new UnsupportedError(
      `${dir}: forced_decoder_ids is ${JSON.stringify(given)}; served are tokens from place 1 on`,
    );
  return tokens;
}

/** generation_config.json has the tokens; older folders have them in config.json. */
function readTokens(dir: string): Tokens {
  const g = readGeneration(dir);
  const list = (v: unknown): number[] =>
    Array.isArray(v) ? (v as number[]).filter((id) => id >= 0) : typeof v === 'number' ? [v] : [];
  const [start, noTimestamps] = [g.decoder_start_token_id, g.no_timestamps_token_id];
  if (typeof start !== 'number') throw new UnsupportedError(`${dir}: no decoder_start_token_id is given`);
  return {
    start,
    end: list(g.eos_token_id),
    languages: (g.lang_to_id ?? {}) as Record<string, number>,
    tasks: (g.task_to_id ?? {}) as Record<string, number>,
    noTimestamps: typeof noTimestamps === 'number' ? noTimestamps : undefined,
    forced: forcedTokens(g.forced_decoder_ids, dir),
    language: typeof g.language === 'string' ? g.language : undefined,
    task: typeof g.task === 'string' ? g.task : undefined,
    rules: answerRules(g, dir),
  };
}
