// A decoder that makes vectors of texts (Qwen3-Embedding, E5-Mistral, EmbeddingGemma): its layers without a head,
// looking back or, where the model was trained so, both ways.
import type { Tensor } from '../tensor/tensor.js';
import type { CausalLM } from './decoder.js';
import { type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';
import { UnsupportedError } from '../base/errors.js';
import { keysMask } from './parts.js';
import { type AttendOptions, BatchStep } from './step.js';

/** A run whose tokens see those behind them, too, but no padding. */
class BothWaysStep extends BatchStep {
  readonly #mask: Tensor | undefined;
  constructor(ids: Tensor, mask: Tensor | undefined) {
    super(ids.device, ids.shape[1], undefined, undefined);
    this.#mask = keysMask(mask);
  }
  override attend(_layer: number, q: Tensor, k: Tensor | undefined, v: Tensor | undefined, how: AttendOptions): Tensor {
    const { window, chunk, alibi, sinks, scale, softcap } = how;
    if (!k || !v || chunk !== undefined || alibi || sinks)
      throw new UnsupportedError('attention: chunks, sinks, alibi and lent keys are not served both ways');
    const turned = (x: Tensor): Tensor => x.permute([0, 2, 1, 3]);
    const y = turned(q).sdpa(turned(k), turned(v), {
      scale,
      ...(softcap && { softcap }),
      ...(this.#mask && { mask: this.#mask }),
      ...(window !== undefined && { window: [window - 1, window - 1] as [number, number] }),
    });
    return turned(y);
  }
}

/** The vectors behind a decoder's last norm; padding stands behind the texts. */
export class DecoderEncoder extends TextEncoder {
  readonly model: CausalLM;
  readonly width: number;
  readonly maxTokens: number;
  constructor(model: CausalLM) {
    super();
    this.model = model;
    this.width = model.config.hiddenSize;
    this.maxTokens = model.config.maxPositions;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask } = input;
    const step = this.model.config.bothWays
      ? new BothWaysStep(ids, mask)
      : new BatchStep(ids.device, ids.shape[1], undefined, undefined);
    return { hidden: this.model.norm.forward(this.model.hidden(ids, step)) };
  }
}
