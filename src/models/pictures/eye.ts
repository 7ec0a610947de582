// What models that read pictures see with: pixels in, tokens of the text out.
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';

/**
 * What a processor says of each picture beside its pixels: nothing where all are alike; frames, rows and columns of
 * patches (Qwen), or rows and columns (Pixtral); a shape's number and its tiles (Llama 3.2); height, width and how many
 * tiles were made of it (LLaVA-NeXT and OneVision).
 */
export type Place = readonly number[];
export type Places = readonly Place[];

/** Pictures as tokens of the text. */
export interface Seen {
  /** All pictures' tokens one after the other, (tokens, hidden). */
  readonly tokens: Tensor;
  /** What is added to the same tokens behind the first layers of the text, a tensor a layer. */
  readonly deep?: readonly Tensor[];
  /** What layers of their own look at (Llama 3.2): (pictures, tiles, places, hidden), and how many tiles are there. */
  readonly watched?: { readonly pictures: Tensor; readonly tiles: readonly number[] };
}

/** The half of a model that sees. */
export abstract class Eye extends Module {
  abstract forward(pixels: Tensor, places?: Places): Seen;
  /** How many tokens a picture becomes, or one of its tiles where each has tokens of its own. */
  abstract tokensOf(place: Place): number;
}
