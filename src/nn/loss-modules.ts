// Losses as modules, by their names in PyTorch: the functions of `losses` with their options kept.
import { ArgumentError } from '../base/errors.js';
import type { BceOptions, CrossEntropyOptions, HuberOptions, LossOptions, NllOptions } from '../ops/functional.js';
import type { Tensor } from '../tensor/tensor.js';
import * as losses from './losses.js';
import { type Field, Module, storedName } from './module.js';

/** A loss with its options: `new MSELoss({ reduction: 'sum' }).forward(x, y)` is `losses.mse(x, y, { reduction })`. */
export abstract class Loss<Options extends object = LossOptions> extends Module {
  /** What every call is given. */
  readonly options: Options;
  constructor(options: Options = {} as Options) {
    super();
    if (Object.getPrototypeOf(options) !== Object.prototype)
      throw new ArgumentError(`${new.target.name}: takes one object of options, as { reduction: 'sum' }`);
    this.options = { ...options };
  }
  /** Weights stand among the options: they move with the module, and are not trained. */
  override *fields(): Iterable<Field> {
    const owner = this.options as Record<string, unknown>;
    for (const [key, value] of Object.entries(owner)) yield { name: storedName(key), value, owner, key };
  }
  protected override buffers(): readonly string[] {
    return Object.keys(this.options);
  }
  override describe(): string {
    const plain = Object.entries(this.options).filter(([, v]) => ['number', 'string', 'boolean'].includes(typeof v));
    return plain.map(([key, v]) => `${key} ${String(v)}`).join(', ');
  }
}
/**
 * -ln of the probability of the target, from logits (..., classes): classes are the last dimension, also of more than
 * two.
 */
export class CrossEntropyLoss extends Loss<CrossEntropyOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(logits: Tensor, target: Tensor): Tensor {
    return losses.crossEntropy(logits, target, this.options);
  }
}
/** The same from log-probabilities (..., classes). */
export class NLLLoss extends Loss<NllOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(logProbabilities: Tensor, target: Tensor): Tensor {
    return losses.nll(logProbabilities, target, this.options);
  }
}
/** (x - y)^2. */
export class MSELoss extends Loss {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.mse(x, y, this.options);
  }
}
/** |x - y|. */
export class L1Loss extends Loss {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.l1(x, y, this.options);
  }
}
/** (x - y)^2 / (2 beta) within beta, |x - y| - beta / 2 beyond. */
export class SmoothL1Loss extends Loss<losses.SmoothL1Options> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.smoothL1(x, y, this.options);
  }
}
/** Quadratic within delta, straight beyond. */
export class HuberLoss extends Loss<HuberOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.huber(x, y, this.options);
  }
}
/** Binary cross entropy of probabilities. */
export class BCELoss extends Loss<Omit<BceOptions, 'posWeight'>> {
  /** The loss; a number unless reduction is 'none'. */
  forward(p: Tensor, y: Tensor): Tensor {
    return losses.bce(p, y, this.options);
  }
}
/** Binary cross entropy of sigmoid(x), stable for any x. */
export class BCEWithLogitsLoss extends Loss<BceOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.bceWithLogits(x, y, this.options);
  }
}
/** y (ln y - x) for log-probabilities x. */
export class KLDivLoss extends Loss<losses.KlDivOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.klDiv(x, y, this.options);
  }
}
/** 1 - cosine where y is 1, what the cosine has above the margin where it is -1. */
export class CosineEmbeddingLoss extends Loss<losses.MarginOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(a: Tensor, b: Tensor, y: Tensor): Tensor {
    return losses.cosineEmbedding(a, b, y, this.options);
  }
}
/** What an anchor's distance from a positive example has above that from a negative one, less the margin. */
export class TripletMarginLoss extends Loss<losses.TripletOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(anchor: Tensor, positive: Tensor, negative: Tensor): Tensor {
    return losses.tripletMargin(anchor, positive, negative, this.options);
  }
}
/** max(0, -y (a - b) + margin). */
export class MarginRankingLoss extends Loss<losses.MarginOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(a: Tensor, b: Tensor, y: Tensor): Tensor {
    return losses.marginRanking(a, b, y, this.options);
  }
}
/** x where y is 1, what it lacks of the margin where it is -1. */
export class HingeEmbeddingLoss extends Loss<losses.MarginOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.hingeEmbedding(x, y, this.options);
  }
}
/** ln(1 + e^(-y x)) for targets 1 and -1. */
export class SoftMarginLoss extends Loss {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.softMargin(x, y, this.options);
  }
}
/** Binary cross entropy with logits, averaged over the classes of each example first. */
export class MultiLabelSoftMarginLoss extends Loss<Omit<BceOptions, 'posWeight'>> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.multilabelSoftMargin(x, y, this.options);
  }
}
/** What the target's score lacks of being a margin above the others. */
export class MultiMarginLoss extends Loss<losses.MultiMarginOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, target: Tensor): Tensor {
    return losses.multiMargin(x, target, this.options);
  }
}
/** The negative logarithm of the probability of counts, without its constant. */
export class PoissonNLLLoss extends Loss<losses.PoissonOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(x: Tensor, y: Tensor): Tensor {
    return losses.poissonNll(x, y, this.options);
  }
}
/** The negative logarithm of the density of normal numbers, without its constant. */
export class GaussianNLLLoss extends Loss<losses.GaussianOptions> {
  /** The loss; a number unless reduction is 'none'. */
  forward(mean: Tensor, y: Tensor, variance: Tensor): Tensor {
    return losses.gaussianNll(mean, y, variance, this.options);
  }
}
/** -ln of the probability of labels over all ways to spread them over time; see losses.ctc. */
export class CTCLoss extends Loss<losses.CtcOptions> {
  /**
   * The loss of log-probabilities (time, batch, classes), labels by example and how much of each input counts; of labels
   * in a tensor also how many of each count.
   */
  forward(
    logProbabilities: Tensor,
    labels: losses.CtcLabels,
    inputLengths: losses.Counts,
    targetLengths?: losses.Counts,
  ): Tensor {
    return losses.ctc(logProbabilities, labels, inputLengths, {
      ...this.options,
      ...(targetLengths && { targetLengths }),
    });
  }
}
