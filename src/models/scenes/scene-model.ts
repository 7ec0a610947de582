// What networks of whole scenes answer: things with their boxes, a class for each place, a distance for each place.
import { Module } from '../../nn/module.js';
import type { Tensor } from '../../tensor/tensor.js';

export interface Detections {
  /** (b, things, classes), the last class for nothing where the model has one. */
  readonly logits: Tensor;
  /** (b, things, 4): the middle across and down, width and height, as shares of the picture. */
  readonly boxes: Tensor;
}
/** Things in a picture. */
export abstract class DetectionModel extends Module {
  /** The classes' names, by number. */
  abstract readonly labels: readonly string[];
  /** Scores of a thing's classes sum to 1 with that of nothing, or each is one by itself. */
  abstract readonly scores: 'shares' | 'alone';
  /** Of the things and their classes, no more than so many of the likeliest are found. */
  readonly most?: number;
  abstract forward(pixels: Tensor): Detections;
}
/** A class for each place of a picture. */
export abstract class SegmentationModel extends Module {
  /** The classes' names, by number. */
  abstract readonly labels: readonly string[];
  /** Logits (b, classes, height, width), of a smaller picture as a rule. */
  abstract forward(pixels: Tensor): Tensor;
}
/** A distance for each place of a picture. */
export abstract class DepthModel extends Module {
  /** (b, height, width): the larger the nearer, or metres, by how the model was trained. */
  abstract forward(pixels: Tensor): Tensor;
}
