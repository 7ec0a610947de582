// What makes recorded steps of few launches: attention that is one launch a layer, and whole steps for one sequence or
// a few.
import type { CausalLM } from '../../models/index.js';
import { LoneStep } from './lone-step.js';
import type { LayerPages } from './paged-step.js';
import { bucketOf } from './recorder.js';
import { WholeAttention } from './whole-attention.js';

export interface FewLaunchesOptions {
  readonly pages: number;
  readonly pageTokens: number;
  readonly contextTokens: number;
  readonly maxRecorded: number;
  readonly drawing?: number;
}

export class FewLaunches {
  readonly #model: CausalLM;
  readonly #layers: readonly (LayerPages | undefined)[];
  readonly #o: FewLaunchesOptions;
  /** Whether the device draws tokens: whole steps end with that. */
  readonly #draws: boolean;
  /** One sequence alone, or a few, by their number. */
  readonly #few = new Map<number, LoneStep | undefined>();
  /** Attention of recorded steps in one launch, where the device has it. */
  #whole: WholeAttention | undefined;

  constructor(
    model: CausalLM,
    layers: readonly (LayerPages | undefined)[],
    options: FewLaunchesOptions,
    draws: boolean,
  ) {
    this.#model = model;
    this.#layers = layers;
    this.#o = options;
    this.#draws = draws;
  }
  get whole(): WholeAttention | undefined {
    return this.#whole;
  }
  /** For so many sequences, where the model's features allow it. */
  of(sequences: number): LoneStep | undefined {
    if (this.#few.has(sequences)) return this.#few.get(sequences);
    const [model, layers] = [this.#model, this.#layers as LayerPages[]];
    const serves =
      this.#draws &&
      layers.every((l) => l?.[0].dtype === model.dtype) &&
      LoneStep.serves(model, this.#o.pageTokens, sequences);
    const made = serves ? new LoneStep(model, layers, this.#o, sequences) : undefined;
    this.#few.set(sequences, made);
    return made;
  }
  /** Whether some have norms of their own beside the model's. */
  get haveNorms(): boolean {
    return [...this.#few.values()].some(Boolean) || this.#whole?.hasNorms === true;
  }
  /** Makes them anew, for weights that lie elsewhere. */
  renew(): void {
    this.#whole?.dispose();
    const { maxRecorded, drawing = 0 } = this.#o;
    this.#whole = WholeAttention.serves(this.#model, this.#layers, this.#o)
      ? new WholeAttention(this.#model, this.#layers, { ...this.#o, sequences: bucketOf(drawing || maxRecorded) })
      : undefined;
    for (const step of this.#few.values()) step?.dispose();
    this.#few.clear();
  }
}
