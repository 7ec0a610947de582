// Functions of nets that draw numbers, or make one tensor of many.
import { ArgumentError, ShapeError } from '../base/errors.js';
import { formatShape, normalizeDim, sameShape } from '../base/shape.js';
import { requireOptions } from '../ops/kernel-row.js';
import { rand, stack } from '../tensor/create.js';
import type { Generator } from '../tensor/random.js';
import { Tensor } from '../tensor/tensor.js';

/** Options of gumbelSoftmax. */
export interface GumbelOptions {
  /** The smaller, the nearer answers are to a single class; default 1. */
  readonly temperature?: number;
  /** Answers 1 for the class that was drawn and 0 elsewhere, with the gradients of the soft answer; default false. */
  readonly hard?: boolean;
  /** The dimension of the classes; default the last. */
  readonly dim?: number;
  /** The stream that is drawn from. */
  readonly generator?: Generator;
}
/** Classes drawn by logits so that gradients flow: the softmax of logits with Gumbel noise. */
export function gumbelSoftmax(logits: Tensor, options: GumbelOptions = {}): Tensor {
  requireOptions('gumbelSoftmax', options, ['temperature', 'hard', 'dim', 'generator']);
  const { temperature = 1, hard = false, generator } = options;
  if (!(temperature > 0 && temperature < Infinity))
    throw new ArgumentError(`gumbelSoftmax: temperature ${temperature} is not a number above 0`);
  const dim = normalizeDim('gumbelSoftmax', options.dim ?? -1, logits.rank);
  const drawn = rand(logits.shape, { device: logits.device, ...(generator && { generator }) });
  const soft = logits.gumbelSoftmax(temperature, drawn, dim);
  if (!hard) return soft;
  const at = soft.detach();
  const one = at.zerosLike().scatter(dim, at.argmax(dim, true), at.onesLike().narrow(dim, 0, 1));
  return one.sub(at).add(soft);
}

/** Options of padSequence. */
export interface PadSequenceOptions {
  /** What shorter sequences end with; default 0. */
  readonly value?: number;
}
/** Sequences (length, ...) of several lengths as one tensor (batch, longest, ...). */
export function padSequence(sequences: readonly Tensor[], options: PadSequenceOptions = {}): Tensor {
  requireOptions('padSequence', options, ['value']);
  if (!Array.isArray(sequences) || sequences.length === 0 || sequences.some((s) => !(s instanceof Tensor)))
    throw new ArgumentError('padSequence: takes a list of tensors, with one at least');
  const [first] = sequences as readonly Tensor[];
  const odd = sequences.find((s) => s.rank === 0 || !sameShape(s.shape.slice(1), first.shape.slice(1)));
  if (odd)
    throw new ShapeError(
      `padSequence: sequences are (length, ...) and differ in their length alone: ${formatShape(first.shape)} and ` +
        formatShape(odd.shape),
    );
  const longest = Math.max(...sequences.map((s) => s.shape[0]));
  const others = first.shape.slice(1).flatMap(() => [0, 0]);
  return stack(sequences.map((s) => s.pad([...others, 0, longest - s.shape[0]], options.value ?? 0)));
}
