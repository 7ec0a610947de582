// Encoder-decoders: what is read once, and an answer that is written token by token over caches.
import { ArgumentError } from '../../base/errors.js';
import { KvCache } from '../../nn/kv-cache.js';
import { Module } from '../../nn/module.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import type { Device } from '../../tensor/device.js';
import { keep, scope } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { type BeamOptions, searchBeams } from './beams.js';

export interface Seq2SeqState {
  /** Keys and values of the answer so far, a cache a layer. */
  readonly caches?: readonly KvCache[];
  /** Keys and values of what was read, made once. */
  readonly crossed: readonly (readonly [k: Tensor, v: Tensor])[];
  readonly mask?: Tensor;
}
/** A layer's attention to what was read. */
interface Crossed {
  keysAndValues(encoded: Tensor): readonly [k: Tensor, v: Tensor];
}
/** The state of an answer that has not begun, from each layer's attention to what was read. */
export const freshAnswer = (layers: readonly Crossed[], encoded: Tensor, mask?: Tensor): Seq2SeqState => ({
  caches: layers.map(() => new KvCache()),
  crossed: layers.map((cross) => cross.keysAndValues(encoded)),
  ...(mask && { mask }),
});
export interface AnswerOptions extends Partial<BeamOptions> {
  /** What every answer begins with: the start token, and more where the model is told its task so. */
  readonly start: readonly number[];
  readonly end: readonly number[];
  /** The tokens that are read, where a rule of the choice looks at them. */
  readonly read?: readonly (readonly number[])[];
  /** Tokens after the start; default 64. */
  readonly maxTokens?: number;
  /** Is given the logits (b, vocab) before each choice, and answers what to choose from. */
  readonly adjust?: (logits: Tensor, step: number, rows: readonly (readonly number[])[]) => Tensor;
}

/** The rows of a matrix of f32, on the host. */
export function rowsOfData(matrix: Tensor): Float32Array[] {
  const [rows, width] = matrix.shape;
  const all = scope(() => keep(matrix.contiguous()));
  const data = all.dataSync() as Float32Array;
  if (all !== matrix) all.dispose();
  return Array.from({ length: rows }, (_, i) => data.slice(i * width, (i + 1) * width));
}

export abstract class Seq2Seq extends Module {
  /** What is read, as vectors (b, t, width). */
  abstract encode(input: Tensor, mask?: Tensor): Tensor;
  /** A fresh answer to it. */
  abstract begin(encoded: Tensor, mask?: Tensor): Seq2SeqState;
  /** Logits (b, t, vocab) of the answer's next tokens; with caches they follow those before. */
  abstract decode(ids: Tensor, state: Seq2SeqState): Tensor;

  /** Logits (b, vocab) after the last token of each row. */
  #last(next: readonly (readonly number[])[], state: Seq2SeqState, device: Device): Tensor {
    const [first] = next;
    const ids = tensor(Int32Array.from(next.flat()), { shape: [next.length, first.length], device });
    return this.decode(ids, state)
      .narrow(1, first.length - 1, 1)
      .squeeze(1);
  }
  /** By beams: each row ends where its best answer does. */
  #search(input: Tensor, options: AnswerOptions, beams: number, mask?: Tensor): number[][] {
    const { start, end, maxTokens = 64, adjust } = options;
    const { device } = input;
    const texts = Array.from({ length: input.shape[0] }, () => start);
    const rowsOf = (x: Tensor, rows: readonly number[]): Tensor =>
      x.indexSelect(0, tensor(Uint32Array.from(rows), { device }));
    const each = texts.flatMap((_, i) => Array<number>(beams).fill(i));
    const seen = mask && keep(scope(() => rowsOf(mask, each)));
    const encoded = keep(scope(() => rowsOf(this.encode(input, mask), each)));
    const state = this.begin(encoded, seen);
    try {
      const found = searchBeams(texts, { ...options, beams }, end, maxTokens, (rows, from) => {
        const logs = keep(
          scope(() => {
            if (from) for (const c of state.caches ?? []) c.reorder(tensor(Uint32Array.from(from), { device }));
            const next = from ? rows.map((r) => r.slice(-1)) : rows;
            const plain = this.#last(next, state, device).cast('f32').logSoftmax(-1);
            return adjust?.(plain, rows[0].length - start.length, rows) ?? plain;
          }),
        );
        const all = rowsOfData(logs);
        logs.dispose();
        return all;
      });
      return found.map(([best]) => [...best.row]);
    } finally {
      state.caches?.forEach((c) => c.dispose());
      encoded.dispose();
      seen?.dispose();
    }
  }
  /**
   * The likeliest token each time, where a row that has ended goes on with its end token; or the best answer that so
   * many beams find.
   */
  answer(input: Tensor, options: AnswerOptions, mask?: Tensor): number[][] {
    const { start, end, maxTokens = 64, adjust, beams = 1 } = options;
    if (start.length === 0) throw new ArgumentError('answer: start is empty; an answer begins with one token at least');
    if (beams !== 1) return noGrad(() => this.#search(input, options, beams, mask));
    return noGrad(() => {
      const encoded = keep(scope(() => this.encode(input, mask)));
      const state = this.begin(encoded, mask);
      const rows = Array.from({ length: input.shape[0] }, () => [...start]);
      const done = rows.map(() => false);
      let next: number[][] = rows.map((r) => [...r]);
      try {
        for (let step = 0; step < maxTokens && done.includes(false); step++) {
          const chosen = scope(() => {
            const last = this.#last(next, state, input.device);
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
