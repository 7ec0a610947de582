// Text to text: an encoder-decoder with its tokenizer.
import { UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import { wholeOrNothing } from '../../tensor/scope.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { answerRules } from './answer-rules.js';
import { readGeneration } from '../files/generation-config.js';
import { ggufGeneration } from '../gguf/gguf-t5.js';
import type { BeamOptions } from './beams.js';
import { loadModel } from '../load.js';
import type { Seq2Seq } from './seq2seq.js';

/**
 * Texts to texts (T5, BART, Pegasus): translation, summaries. What generation_config.json says about tokens and beams
 * is followed; without beams an answer takes the likeliest token each time.
 */
export class TextToText {
  /** The network itself. */
  readonly model: Seq2Seq;
  /** How texts become tokens and back. */
  readonly tokenizer: Tokenizer;
  readonly #start: number;
  readonly #end: readonly number[];
  readonly #rules: ReturnType<typeof answerRules>;
  constructor(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    start: number,
    end: readonly number[],
    rules: ReturnType<typeof answerRules> = () => ({}),
  ) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#start = start;
    this.#end = end;
    this.#rules = rules;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<TextToText> {
    const dir = await modelPath(name, options);
    return wholeOrNothing(() => {
      const { model } = loadModel<Seq2Seq>(dir, { ...options, kind: 'seq2seq' });
      const c = dir.endsWith('.gguf') ? ggufGeneration(dir) : readGeneration(dir);
      const rules = answerRules(c, dir);
      const start = c.decoder_start_token_id ?? c.pad_token_id;
      if (typeof start !== 'number') throw new UnsupportedError(`${dir}: no decoder_start_token_id is given`);
      const end = [c.eos_token_id].flat().filter((id): id is number => typeof id === 'number');
      return new TextToText(model, loadTokenizer(dir), start, end, rules);
    });
  }
  /** The likeliest answer to each text; beams are those that the model's files ask for, or of one's own. */
  async generate(
    texts: readonly string[],
    options: {
      /** The longest answer; default 128 tokens. */
      readonly maxTokens?: number;
    } & Partial<BeamOptions> = {},
  ): Promise<string[]> {
    const rows = texts.map((t) => this.tokenizer.encode(t));
    const time = Math.max(1, ...rows.map((r) => r.length));
    const pad = this.tokenizer.roleId('pad') ?? 0;
    const device = this.model.parameters()[0].device;
    const shape = [rows.length, time];
    const read = rows.map((r) => [...r, ...Array<number>(time - r.length).fill(pad)]);
    const ids = tensor(Int32Array.from(read.flat()), { shape, device });
    const mask = tensor(
      Float32Array.from(rows.flatMap((r) => Array.from({ length: time }, (_, i) => Number(i < r.length)))),
      { shape, device },
    );
    try {
      const about = { start: [this.#start], end: this.#end, read, maxTokens: options.maxTokens ?? 128 };
      const answers = this.model.answer(ids, { ...about, ...this.#rules(about), ...options }, mask);
      return answers.map((row) => this.tokenizer.decode(row.slice(1)));
    } finally {
      ids.dispose();
      mask.dispose();
    }
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
