// Text encoders: token numbers in, a vector a token out; what all of them answer.
import { ArgumentError } from '../base/errors.js';
import { Module } from '../nn/module.js';
import type { Tensor } from '../tensor/tensor.js';

export interface EncoderInput {
  /** Token numbers, (batch, time). */
  readonly ids: Tensor;
  /** 1 for a token, 0 for padding; default all tokens. */
  readonly mask?: Tensor;
  /** Which of two texts a token belongs to, for models that know. */
  readonly typeIds?: Tensor;
}
export interface EncoderOutput {
  /** (batch, time, width). */
  readonly hidden: Tensor;
  /** What the model's own pooler makes of the first token, where it has one. */
  readonly pooled?: Tensor;
}

export abstract class TextEncoder extends Module {
  /** Width of a token's vector. */
  abstract readonly width: number;
  /** How many tokens it takes. */
  abstract readonly maxTokens: number;
  abstract forward(input: EncoderInput): EncoderOutput;

  protected checkInput({ ids, mask }: EncoderInput): void {
    if (
      ids.rank !== 2 ||
      (mask && (mask.rank !== 2 || mask.shape[0] !== ids.shape[0] || mask.shape[1] !== ids.shape[1]))
    )
      throw new ArgumentError(
        `encoder: ids have shape [${ids.shape.join(', ')}]${
          mask ? `, the mask [${mask.shape.join(', ')}]` : ''
        }; both must be (batch, time)`,
      );
    if (ids.shape[1] > this.maxTokens)
      throw new ArgumentError(`encoder: ${ids.shape[1]} tokens, the model takes ${this.maxTokens}`);
  }
}

/** Heads that files of an encoder may carry for tasks other than encoding. */
export const TASK_HEADS =
  /^(cls|classifier|lm_head|qa_outputs|pre_classifier|vocab_\w+|decoder|head|score)\.|\.position_ids$|^position_ids$/;
