// How well a model foretells a text: the mean log-probability of its tokens, over windows that overlap.
import { ArgumentError } from '../base/errors.js';
import type { CausalLM } from '../models/index.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { scope } from '../tensor/scope.js';
import type { LanguageModel } from './language-model.js';

/** How a text is cut into windows. */
export interface PerplexityOptions {
  /** Tokens that the model sees at once; default 512, or as many as it has positions. */
  readonly context?: number;
  /** Tokens by which windows move on, which are those that each window scores; default half of the context. */
  readonly stride?: number;
  /** Called after each window with the tokens scored, all that will be, and the perplexity so far. */
  readonly onProgress?: (done: number, total: number, perplexity: number) => void;
}
/** How well a model foretells a text. */
export interface Perplexity {
  /** e to the mean negative log-probability of a token. */
  readonly perplexity: number;
  /** Standard error of the perplexity, as if tokens were independent. */
  readonly uncertainty: number;
  /** Sum of the tokens' natural log-probabilities. */
  readonly logProbability: number;
  /** Tokens of the text, those that were scored, and the windows it took. */
  readonly tokens: number;
  /** Tokens that were scored. */
  readonly scored: number;
  /** Windows that the text took. */
  readonly windows: number;
  /** Tokens of a window. */
  readonly context: number;
  /** Tokens by which windows move on. */
  readonly stride: number;
  /** Information in a byte of the text by this model; tokens without a predecessor are not counted. */
  readonly bitsPerByte: number;
}

/** Log-probabilities of the last `count` tokens of a window, each given those before it. */
function scores(model: CausalLM, window: readonly number[], count: number): Float32Array {
  let out = new Float32Array();
  noGrad(() =>
    scope(() => {
      const shape = [1, window.length - 1];
      const ids = tensor(Int32Array.from(window.slice(0, -1)), { shape, device: model.device });
      const next = tensor(Int32Array.from(window.slice(-count)), { shape: [1, count, 1], device: model.device });
      const logits = model
        .forward(ids)
        .narrow(1, shape[1] - count, count)
        .cast('f32');
      out = logits.logSoftmax(-1).gather(-1, next).flatten().dataSync() as Float32Array<ArrayBuffer>;
    }),
  );
  return out;
}

function windowSizes(
  { context, stride }: PerplexityOptions,
  maxPositions: number,
): { context: number; stride: number } {
  const size = context ?? Math.min(512, maxPositions);
  if (!Number.isSafeInteger(size) || size < 2 || size > maxPositions)
    throw new ArgumentError(`perplexity: a context of ${size} tokens; from 2 to the model's ${maxPositions} can be`);
  const step = stride ?? Math.max(1, Math.floor(size / 2));
  if (!Number.isSafeInteger(step) || step < 1 || step >= size)
    throw new ArgumentError(`perplexity: a stride of ${step} tokens; from 1 to ${size - 1} can be`);
  return { context: size, stride: step };
}

/**
 * Every token but the first is scored once; where the tokenizer puts a start token before texts, every window begins
 * with it.
 */
export async function perplexity(
  { model, tokenizer }: LanguageModel,
  text: string,
  options: PerplexityOptions = {},
): Promise<Perplexity> {
  const { context, stride } = windowSizes(options, model.config.maxPositions);
  const ids = tokenizer.encode(text, { special: false, parseSpecial: false });
  const [first] = tokenizer.encode('a');
  const start = first !== undefined && tokenizer.isSpecial(first) ? [first] : [];
  // Of the text alone: a start token makes even the first token one that is foretold.
  const total = ids.length - (start.length > 0 ? 0 : 1);
  if (total < 1) throw new ArgumentError(`perplexity: the text has ${ids.length} tokens, too few to score one`);
  let [sum, squares, done, windows] = [0, 0, 0, 0];
  for (let end = 0; done < total; ) {
    // The first window scores all it holds, later ones what is new.
    const room = context - start.length;
    end = Math.min(ids.length, end === 0 ? room : end + stride);
    const window = [...start, ...ids.slice(Math.max(0, end - room), end)];
    const count = end - (ids.length - total) - done;
    for (const p of scores(model, window, count)) {
      sum += p;
      squares += p * p;
    }
    done += count;
    windows++;
    options.onProgress?.(done, total, Math.exp(-sum / done));
    await new Promise(setImmediate); // so that progress is drawn and Ctrl-C heard
  }
  const mean = sum / done;
  const deviation = done > 1 ? Math.sqrt(Math.max(0, squares / done - mean * mean) / (done - 1)) : NaN;
  const value = Math.exp(-mean);
  return {
    perplexity: value,
    uncertainty: value * deviation,
    logProbability: sum,
    tokens: ids.length,
    scored: done,
    windows,
    context,
    stride,
    bitsPerByte: -sum / Math.LN2 / Buffer.byteLength(text),
  };
}
