// A recorded step of one sequence alone, or of a few, over pages: five launches a layer instead of some fifteen.
import { gpuOf } from '../../backends/generation.js';
import type { CausalLM } from '../../models/index.js';
import { keep } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { FusedStep } from './fused-step.js';
import { GraphDecoder } from './graph-decoder.js';
import type { LayerPages } from './paged-step.js';

export interface LoneOptions {
  readonly pageTokens: number;
  readonly contextTokens: number;
}

export class LoneStep {
  readonly #model: CausalLM;
  readonly #fused: FusedStep;
  readonly #layers: readonly LayerPages[];
  readonly #o: LoneOptions;
  readonly #logits: Tensor;

  /** Pages must be powers of two: rows are found by shifting. */
  static serves(model: CausalLM, pageTokens: number, sequences: number): boolean {
    // Latents are read where they lie one after another.
    const inPages = model.config.layers.every(({ mixer: m }) => m.kind === 'attention');
    const whole = Number.isInteger(Math.log2(pageTokens));
    return inPages && whole && GraphDecoder.serves(model) && FusedStep.serves(model, sequences);
  }
  constructor(model: CausalLM, layers: readonly LayerPages[], options: LoneOptions, sequences: number) {
    this.#model = model;
    this.#layers = layers;
    this.#o = options;
    const steps = gpuOf(model.device.backend, 'decoding by graph').decodeSteps(model.dtype, sequences);
    this.#fused = new FusedStep(model, steps, options.contextTokens);
    this.#logits = keep(Tensor.empty([sequences, model.config.vocabSize], model.dtype, model.device));
  }
  /** Rows of logits after the tokens that `state` names; they are there until the next step. */
  run(tables: Tensor, state: Tensor): Tensor {
    const { pageTokens, contextTokens } = this.#o;
    const paged = { table: tables, pageTokens, room: contextTokens };
    const kept = (i: number) => ({ keys: this.#layers[i][0], values: this.#layers[i][1], paged });
    this.#fused.run({ state, logits: this.#logits, kept }, undefined, (rope) =>
      this.#model.tables(rope, contextTokens),
    );
    return this.#logits;
  }
  dispose(): void {
    this.#fused.dispose();
    this.#logits.dispose();
  }
}
