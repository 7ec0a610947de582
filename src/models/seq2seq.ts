// Encoder-decoders: what is read once, and an answer that is written token by token over caches.
import { ArgumentError } from '../base/errors.js';
import type { KvCache } from '../nn/kv-cache.js';
import { Module } from '../nn/module.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import { keep, scope } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';

export interface Seq2SeqState {
  /** Keys and values of the answer so far, a cache a layer. */
  readonly caches?: readonly KvCache[];
  /** Keys and values of what was read, made once. */
  readonly crossed: readonly (readonly [k: Tensor, v: Tensor])[];
  readonly mask?: Tensor;
}
export interface AnswerOptions {
  /** What every answer begins with: the start token, and more where the model is told its task so. */
  readonly start: readonly number[];
  readonly end: readonly number[];
  /** Tokens after the start; default 64. */
  readonly maxTokens?: number;
  /** Is given the logits (b, vocab) before each choice, and answers what to choose from. */
  readonly adjust?: (logits: Tensor, step: number, rows: readonly (readonly number[])[]) => Tensor;
}

export abstract class Seq2Seq extends Module {
  /** What is read, as vectors (b, t, width). */
  abstract encode(input: Tensor, mask?: Tensor): Tensor;
  /** A fresh answer to it. */
  abstract begin(encoded: Tensor, mask?: Tensor): Seq2SeqState;
  /** Logits (b, t, vocab) of the answer's next tokens; with caches they follow those before. */
  abstract decode(ids: Tensor, state: Seq2SeqState): Tensor;

  /** The likeliest token each time; a row that has ended goes on with its end token. */
  answer(input: Tensor, options: AnswerOptions, mask?: Tensor): number[][] {
    const { start, end, maxTokens = 64, adjust } = options;
    if (start.length === 0) throw new ArgumentError('answer: there is no start token');
    return noGrad(() => {
      const encoded = keep(scope(() => this.encode(input, mask)));
      const state = this.begin(encoded, mask);
      const rows = Array.from({ length: input.shape[0] }, () => [...start]);
      const done = rows.map(() => false);
      let next: number[][] = rows.map((r) => [...r]);
      try {
        for (let step = 0; step < maxTokens && done.includes(false); step++) {
          const chosen = scope(() => {
            const ids = tensor(Int32Array.from(next.flat()), {
              shape: [rows.length, next[0].length],
              device: input.device,
            });
            const logits = this.decode(ids, state);
            const last = logits.narrow(1, next[0].length - 1, 1).squeeze(1);
            return (adjust?.(last, step, rows) ?? last).argmax(-1).toArray() as number[];
          });
          next = chosen.map((token, i) => {
            const kept = done[i] ? (end[0] ?? token) : token;
            done[i] ||= end.includes(kept);
            rows[i].push(kept);
            return [kept];
          });
        }
      } finally {
        state.caches?.forEach((c) => c.dispose());
        encoded.dispose();
      }
      return rows;
    });
  }
}
