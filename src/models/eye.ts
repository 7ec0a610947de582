// What models that read pictures see with: pixels in, tokens of the text out.
import { Module } from '../nn/module.js';
import type { Tensor } from '../tensor/tensor.js';

/** What a processor says of each picture beside its pixels; families without need of it ask for none. */
export type Places = readonly (readonly number[])[];

/** Pictures as tokens of the text. */
export interface Seen {
  /** All pictures' tokens one after the other, (tokens, hidden). */
  readonly tokens: Tensor;
  /** What is added to the same tokens behind the first layers of the text, a tensor a layer. */
  readonly deep?: readonly Tensor[];
}

/** The half of a model that sees. */
export abstract class Eye extends Module {
  abstract forward(pixels: Tensor, places?: Places): Seen;
}
