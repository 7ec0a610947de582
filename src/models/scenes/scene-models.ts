// Pictures to things with boxes, to segments and to distances: networks of scenes with what their folders say about
// pictures.
import { ArgumentError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import type { Module } from '../../nn/module.js';
import { noGrad } from '../../tensor/autograd.js';
import { scope, wholeOrNothing } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { loadModel } from '../load.js';
import type { ModelKind } from '../model-row.js';
import { type ImageInput, pictureOf, pixels, processorOf } from '../vision/image-models.js';
import type { PictureProcessor } from '../vision/images.js';
import { type DepthModel, type DetectionModel, MaskingModel, type SegmentationModel } from './scene-model.js';
import { type MaskedThing, type Panoptic, panopticOf, thingsOf } from './segments.js';

/** A box in a picture, in pixels from its upper left corner. */
export interface Box {
  /** The left edge. */
  readonly xmin: number;
  /** The upper edge. */
  readonly ymin: number;
  /** The right edge. */
  readonly xmax: number;
  /** The lower edge. */
  readonly ymax: number;
}
/** A thing that was found. */
export interface Detected {
  /** The class's name. */
  readonly label: string;
  /** From 0 to 1: how sure the model is. */
  readonly score: number;
  /** Where it is. */
  readonly box: Box;
}
/** All places of one class. */
export interface Segment {
  /** The class's name. */
  readonly label: string;
  /** The class's number. */
  readonly id: number;
  /** Which share of the picture it covers. */
  readonly share: number;
  /** 255 where it is, 0 elsewhere, row by row. */
  readonly mask: Uint8Array;
}
/** A picture whose pixels have classes. */
export interface Segmented {
  /** Pixels in a row. */
  readonly width: number;
  /** Rows of pixels. */
  readonly height: number;
  /** The class's number for each pixel, row by row. */
  readonly classes: Uint16Array;
  /** Those classes that are there, the largest first. */
  readonly segments: readonly Segment[];
}
/** A picture whose pixels have distances. */
export interface Depths {
  /** Pixels in a row. */
  readonly width: number;
  /** Rows of pixels. */
  readonly height: number;
  /** A number for each pixel, row by row: the larger the nearer, or metres, by how the model was trained. */
  readonly depth: Float32Array;
}

/** A network of scenes with what its folder says about pictures. */
export async function opened<M extends Module, T>(
  name: string,
  kind: ModelKind,
  options: BuilderOptions & HubOptions,
  make: (model: M, processor: PictureProcessor | undefined, dir: string) => T,
): Promise<T> {
  const dir = await modelPath(name, options);
  return wholeOrNothing(() => make(loadModel<M>(dir, { ...options, kind }).model, processorOf(dir), dir));
}
/** A picture's own size: that of a tensor is the one that it has for the model. */
export function seen(image: ImageInput): {
  readonly input: ImageInput;
  readonly height: number;
  readonly width: number;
} {
  if (image instanceof Tensor) return { input: image, height: image.shape.at(-2) ?? 0, width: image.shape.at(-1) ?? 0 };
  const picture = pictureOf(image);
  return { input: picture, height: picture.height, width: picture.width };
}
/** What a model makes of one picture, on the host; `make` runs inside a scope. */
function run<T>(model: Module, processor: PictureProcessor | undefined, input: ImageInput, make: (x: Tensor) => T): T {
  const { dtype, device } = model.parameters()[0];
  let made: T | undefined;
  scope(() => noGrad(() => void (made = make(pixels([input], processor, device).cast(dtype)))));
  return made as T;
}
function requireShare(call: string, name: string, share: number): number {
  if (!(share >= 0 && share <= 1)) throw new ArgumentError(`${call}: ${name} is ${share}, not a number from 0 to 1`);
  return share;
}
const flat = (t: Tensor): number[] => t.cast('f32').reshape([-1]).toArray() as number[];

/** Pictures to things with their boxes (DETR and its kin, RT-DETR, YOLOS, Table Transformer). */
export class ObjectDetector {
  /** The network itself. */
  readonly model: DetectionModel;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: DetectionModel, processor: PictureProcessor | undefined) {
    this.model = model;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ObjectDetector> {
    return opened(
      name,
      'object-detection',
      options,
      (model: DetectionModel, processor) => new ObjectDetector(model, processor),
    );
  }
  /** The things that are likelier than `threshold`, the likeliest first; boxes may reach past the picture's edges. */
  async detect(
    image: ImageInput,
    options: {
      /** From 0 to 1; 0.5 unless it is said. */
      readonly threshold?: number;
    } = {},
  ): Promise<Detected[]> {
    const { threshold = 0.5 } = options;
    requireShare('detect', 'threshold', threshold);
    const { input, height, width } = seen(image);
    const { labels, scores, most } = this.model;
    const { rows, boxes } = run(this.model, this.processor, input, (x) => {
      const { logits, boxes } = this.model.forward(x);
      const f32 = logits.cast('f32').squeeze(0);
      const made = scores === 'shares' ? f32.softmax(-1) : f32.sigmoid();
      return { rows: made.toArray() as number[][], boxes: boxes.cast('f32').squeeze(0).toArray() as number[][] };
    });
    const found = rows.flatMap((row, thing) =>
      scores === 'shares' ? [{ thing, id: best(row.slice(0, labels.length)) }] : row.map((_, id) => ({ thing, id })),
    );
    return found
      .map(({ thing, id }) => ({ thing, id, score: rows[thing][id] }))
      .sort((a, b) => b.score - a.score)
      .slice(0, most ?? rows.length)
      .filter(({ score }) => score > threshold)
      .map(({ thing, id, score }) => ({ label: labels[id], score, box: boxOf(boxes[thing], width, height) }));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
const best = (row: readonly number[]): number => row.reduce((at, x, i) => (x > row[at] ? i : at), 0);
export function boxOf([x, y, w, h]: readonly number[], width: number, height: number): Box {
  return {
    xmin: (x - w / 2) * width,
    ymin: (y - h / 2) * height,
    xmax: (x + w / 2) * width,
    ymax: (y + h / 2) * height,
  };
}

/** Pictures to a class for each pixel (SegFormer, DPT), or to segments that are things of their own (MaskFormer, Mask2Former). */
export class ImageSegmenter {
  /** The network itself. */
  readonly model: SegmentationModel;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: SegmentationModel, processor: PictureProcessor | undefined) {
    this.model = model;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<ImageSegmenter> {
    return opened(
      name,
      'segmentation',
      options,
      (model: SegmentationModel, processor) => new ImageSegmenter(model, processor),
    );
  }
  /** The likeliest class of each pixel, and where each class is. */
  async segment(image: ImageInput): Promise<Segmented> {
    const { input, height, width } = seen(image);
    const ids = run(this.model, this.processor, input, (x) =>
      flat(
        this.model
          .forward(x)
          .cast('f32')
          .interpolate({ size: [height, width], mode: 'bilinear' })
          .argmax(1),
      ),
    );
    const classes = Uint16Array.from(ids);
    const counts = new Map<number, number>();
    for (const id of classes) counts.set(id, (counts.get(id) ?? 0) + 1);
    const segments = [...counts]
      .sort((a, b) => b[1] - a[1] || a[0] - b[0])
      .map(([id, count]): Segment => {
        const mask = Uint8Array.from(classes, (other) => (other === id ? 255 : 0));
        return { label: this.model.labels[id], id, share: count / classes.length, mask };
      });
    return { width, height, classes, segments };
  }
  #masking(): MaskingModel {
    if (this.model instanceof MaskingModel) return this.model;
    throw new ArgumentError('segment: the model knows classes of places, not things one by one; segment() tells these');
  }
  /** Things one by one with their masks, the likeliest first; masks may lie over each other. */
  async instances(
    image: ImageInput,
    options: {
      /** From 0 to 1; 0.5 unless it is said. */
      readonly threshold?: number;
    } = {},
  ): Promise<MaskedThing[]> {
    const threshold = requireShare('instances', 'threshold', options.threshold ?? 0.5);
    const model = this.#masking();
    const { input, height, width } = seen(image);
    return run(model, this.processor, input, (x) => thingsOf(model, model.masked(x), [height, width], threshold));
  }
  /** One segment for each pixel, or none. */
  async panoptic(
    image: ImageInput,
    options: {
      /** How likely a segment's class is at least, from 0 to 1; 0.5 unless it is said. */
      readonly threshold?: number;
      /** From where on a place belongs to a mask, from 0 to 1; 0.5 unless it is said. */
      readonly maskThreshold?: number;
      /** Of its own mask a segment keeps more than this share, or goes; 0.8 unless it is said. */
      readonly overlap?: number;
      /** Numbers of classes of which all there is becomes one segment: sky, road. */
      readonly fuse?: readonly number[];
    } = {},
  ): Promise<Panoptic> {
    const rules = {
      threshold: requireShare('panoptic', 'threshold', options.threshold ?? 0.5),
      maskThreshold: requireShare('panoptic', 'maskThreshold', options.maskThreshold ?? 0.5),
      overlap: requireShare('panoptic', 'overlap', options.overlap ?? 0.8),
      fuse: new Set(options.fuse),
    };
    const model = this.#masking();
    const { input, height, width } = seen(image);
    return run(model, this.processor, input, (x) => panopticOf(model, model.masked(x), [height, width], rules));
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}

/** Pictures to a distance for each pixel (Depth Anything, DPT, GLPN). */
export class DepthEstimator {
  /** The network itself. */
  readonly model: DepthModel;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: DepthModel, processor: PictureProcessor | undefined) {
    this.model = model;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<DepthEstimator> {
    return opened(name, 'depth', options, (model: DepthModel, processor) => new DepthEstimator(model, processor));
  }
  /** Distances in the picture's own size. */
  async estimate(image: ImageInput): Promise<Depths> {
    const { input, height, width } = seen(image);
    const depth = run(this.model, this.processor, input, (x) => {
      const made = this.model.forward(x).cast('f32').unsqueeze(1);
      return Float32Array.from(flat(made.interpolate({ size: [height, width], mode: 'bicubic' })));
    });
    return { width, height, depth };
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
