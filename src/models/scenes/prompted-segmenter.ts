// Pictures to masks of what is pointed at: a network that is asked, with what its folder says about pictures.
import { ArgumentError } from '../../base/errors.js';
import type { HubOptions } from '../../hub/index.js';
import type { BuilderOptions } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope } from '../../tensor/scope.js';
import { Tensor } from '../../tensor/tensor.js';
import { type ImageInput, pictureOf } from '../vision/image-models.js';
import type { PictureProcessor } from '../vision/images.js';
import type { Asked, Sam } from './sam.js';
import { type Box, opened } from './scene-models.js';

/** What is asked for, in pixels from the picture's upper left corner. */
export interface MaskPrompt {
  /** Places on the thing, or beside it where `on` is false. */
  readonly points?: readonly {
    /** From the left. */
    readonly x: number;
    /** From above. */
    readonly y: number;
    /** Whether the thing is here; true unless it is said. */
    readonly on?: boolean;
  }[];
  /** A box around it. */
  readonly box?: Box;
  /** A mask's `rough` that came before, to be made better. */
  readonly rough?: Float32Array;
}
/** A mask of what was asked for. */
export interface FoundMask {
  /** How much of the thing it covers, as the model thinks; about 0 to 1. */
  readonly score: number;
  /** 255 where the thing is, 0 elsewhere, row by row, of the picture's own size. */
  readonly mask: Uint8Array;
  /** The numbers that the mask was made of, as the model answers them: for the next question. */
  readonly rough: Float32Array;
}

/** A picture that was seen, which many questions may be asked. */
export class SeenPicture {
  /** What the network made of it. */
  readonly map: Tensor;
  /** Pixels in a row. */
  readonly width: number;
  /** Rows of pixels. */
  readonly height: number;
  /** Rows and columns that the network was given, with zeros around the picture. */
  readonly given: readonly [height: number, width: number];
  /** Those of them that are the picture. */
  readonly shown: readonly [height: number, width: number];
  constructor(map: Tensor, sizes: Pick<SeenPicture, 'width' | 'height' | 'given' | 'shown'>) {
    this.map = map;
    this.width = sizes.width;
    this.height = sizes.height;
    this.given = sizes.given;
    this.shown = sizes.shown;
  }
  /** Gives its memory back. */
  dispose(): void {
    this.map.dispose();
  }
}

/** Masks of what is pointed at in a picture (SAM). */
export class PromptedSegmenter {
  /** The network itself. */
  readonly model: Sam;
  /** How pictures become numbers; none where the folder does not say. */
  readonly processor: PictureProcessor | undefined;
  constructor(model: Sam, processor: PictureProcessor | undefined) {
    this.model = model;
    this.processor = processor;
  }
  /** A folder, or owner/name on the Hugging Face hub. */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<PromptedSegmenter> {
    return opened(name, 'mask-generation', options, (model: Sam, processor) => new PromptedSegmenter(model, processor));
  }
  /** Looks at a picture once, for many questions. */
  async see(image: ImageInput): Promise<SeenPicture> {
    const { dtype, device } = this.model.angles;
    const see = (pixels: Tensor): Tensor =>
      keep(scope(() => noGrad(() => this.model.see(pixels.to(device).cast(dtype)))));
    if (image instanceof Tensor) {
      const pixels = image.rank === 3 ? image.unsqueeze(0) : image;
      const [height, width] = pixels.shape.slice(-2);
      if (pixels.rank !== 4 || pixels.shape[0] !== 1)
        throw new ArgumentError(
          `images: a tensor of shape [${image.shape.join(', ')}]; one picture is (3, height, width)`,
        );
      return new SeenPicture(see(pixels), { width, height, given: [height, width], shown: [height, width] });
    }
    const picture = pictureOf(image);
    if (!this.processor)
      throw new ArgumentError('images: the folder does not tell how pictures become numbers; give a tensor of them');
    const { data, height, width, shown } = this.processor.of(picture);
    const map = scope(() => keep(see(tensor(data, { shape: [1, 3, height, width], device }))));
    return new SeenPicture(map, { width: picture.width, height: picture.height, given: [height, width], shown });
  }
  /**
   * Masks of each thing that is asked for, the best first: three as a rule (a part, a whole, what is around it), or one
   * with `several: false`.
   */
  async segment(
    image: ImageInput | SeenPicture,
    prompts: readonly MaskPrompt[],
    options: {
      /** Whether each thing gets several masks; true unless it is said. */
      readonly several?: boolean;
    } = {},
  ): Promise<FoundMask[][]> {
    if (prompts.length === 0)
      throw new ArgumentError('segment: the list of prompts is empty; ask for one thing at least');
    const seen = image instanceof SeenPicture ? image : await this.see(image);
    try {
      return prompts.map((prompt) => this.#masks(seen, prompt, options.several ?? true));
    } finally {
      if (seen !== image) seen.dispose();
    }
  }
  /** What is asked for, in pixels of what the network was given. */
  #asked({ points = [], box }: MaskPrompt, { width, height, shown }: SeenPicture): Asked {
    const [down, across] = [shown[0] / height, shown[1] / width];
    const number = (n: unknown, name: string): number => {
      if (typeof n !== 'number' || !Number.isFinite(n))
        throw new ArgumentError(`segment: ${name} is ${n}, not a number`);
      return n;
    };
    return {
      points: points.map(({ x, y, on = true }) => [number(x, 'x') * across, number(y, 'y') * down, on ? 1 : 0]),
      box: box && [
        number(box.xmin, 'box.xmin') * across,
        number(box.ymin, 'box.ymin') * down,
        number(box.xmax, 'box.xmax') * across,
        number(box.ymax, 'box.ymax') * down,
      ],
    };
  }
  #masks(seen: SeenPicture, prompt: MaskPrompt, several: boolean): FoundMask[] {
    const { width, height, given, shown, map } = seen;
    const [tall, wide] = [4 * map.shape[2], 4 * map.shape[3]];
    if (prompt.rough && prompt.rough.length !== tall * wide)
      throw new ArgumentError(
        `segment: rough has ${prompt.rough.length} numbers; those of a mask are ${tall} x ${wide}`,
      );
    const found: FoundMask[] = [];
    scope(() =>
      noGrad(() => {
        const rough =
          prompt.rough && tensor(prompt.rough, { shape: [1, 1, tall, wide], device: map.device }).cast(map.dtype);
        const { masks, scores } = this.model.forward(map, [this.#asked(prompt, seen)], {
          ...(rough && { rough }),
          several,
        });
        const large = masks
          .cast('f32')
          .interpolate({ size: [...given], mode: 'bilinear' })
          .narrow(2, 0, shown[0])
          .narrow(3, 0, shown[1])
          .interpolate({ size: [height, width], mode: 'bilinear' });
        const flat = (t: Tensor): number[][] =>
          t.cast('f32').reshape([t.shape[1], -1]).contiguous().toArray() as number[][];
        const [coarse, fine] = [flat(masks), flat(large)];
        (scores.cast('f32').reshape([-1]).toArray() as number[]).forEach((score, i) => {
          const mask = Uint8Array.from(fine[i], (v) => (v > 0 ? 255 : 0));
          found.push({ score, mask, rough: Float32Array.from(coarse[i]) });
        });
      }),
    );
    return found.sort((a, b) => b.score - a.score);
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.model.dispose();
  }
}
