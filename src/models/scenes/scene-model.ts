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
/** Of each question: a class, and where in the picture it is. */
export interface Masks {
  /** (b, questions, classes + 1), the last class for nothing. */
  readonly classes: Tensor;
  /** Logits (b, questions, h, w) of a smaller picture. */
  readonly masks: Tensor;
}
/** Segments of which each is a thing of its own, or all of one class. */
export abstract class MaskingModel extends SegmentationModel {
  /** Masks are brought to a square of this side before anything is made of them. */
  abstract readonly scaled: number | undefined;
  abstract masked(pixels: Tensor): Masks;
  /** Masks of the size that is read. */
  sized({ masks }: Masks): Tensor {
    const side = this.scaled;
    return side === undefined ? masks : masks.interpolate({ size: [side, side], mode: 'bilinear' });
  }
  /** How much of each class there is at each place, (b, classes, h, w). */
  forward(pixels: Tensor): Tensor {
    const made = this.masked(pixels);
    const shares = made.classes.softmax(-1).narrow(2, 0, this.labels.length).transpose(1, 2);
    const masks = this.sized(made).sigmoid();
    const [b, questions, h, w] = masks.shape;
    return shares
      .contiguous()
      .matmul(masks.reshape([b, questions, h * w]))
      .reshape([b, this.labels.length, h, w]);
  }
}
/** A distance for each place of a picture. */
export abstract class DepthModel extends Module {
  /** (b, height, width): the larger the nearer, or metres, by how the model was trained. */
  abstract forward(pixels: Tensor): Tensor;
}
