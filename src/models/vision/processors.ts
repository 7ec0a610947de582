// Image processors by the names that files give them: what holds where files leave it out, and what each does in its own
// way.
import type { Config } from '../files/config.js';
import { type Fitting, pageFitting } from './page-pictures.js';
import {
  divisorSizing,
  edgeSizing,
  longestSizing,
  multipleSizing,
  patchSizing,
  type Sizing,
  wholeSizing,
} from './picture-sizes.js';

export interface Size {
  readonly height?: number;
  readonly width?: number;
  readonly shortest_edge?: number;
  readonly longest_edge?: number;
}
export interface ColourScale {
  readonly mean: readonly number[];
  readonly std: readonly number[];
}
export const CLIP_COLOURS: ColourScale = {
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
};
export const HALVES: ColourScale = { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };
const IMAGENET: ColourScale = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

/** A class of image processors: what holds where files leave it out, and what it does in its own way. */
export interface Processor {
  readonly size: Size;
  /** What a size of one number means. */
  readonly square?: false;
  readonly resample: number;
  readonly colours: ColourScale;
  /** The side of what it keeps of the middle; `crops`: also where it is not asked to. */
  readonly crop?: number;
  readonly crops?: true;
  /** How much of a picture's side is kept. */
  readonly share?: number;
  /** ConvNeXt takes a share of small pictures and all of large ones; PoolFormer takes more and crops it. */
  readonly shareOf?: 'small' | 'edges';
  /** A shorter side becomes so many times longer than it is said. */
  readonly grows?: number;
  /** EfficientNet's fields of colours are read. */
  readonly centred?: true;
  /** Resizes numbers, not bytes. */
  readonly numbers?: true;
  /** It reckons a picture's size in its own way, */
  readonly sizing?: (c: Config) => Sizing;
  /** or does more to it than a resizing. */
  readonly fitting?: (c: Config) => Fitting;
  /** The mean is taken away only where files say so. */
  readonly unnormed?: true;
  /** Pictures of one batch become as large as the largest, which says nothing of one. */
  readonly pads?: true;
  /** The mean is never taken away, whatever files say; blue comes first unless files say otherwise. */
  readonly flips?: true;
  /** Numbers, not bytes, are made square and resized as SciPy does it. */
  readonly squares?: true;
  /** Zeros lie below and right of pictures, after all other steps, up to this size. */
  readonly fills?: Required<Pick<Size, 'height' | 'width'>>;
  /** It has no crop, whatever files say. */
  readonly whole?: true;
  /** Types of models whose files need not name it. */
  readonly models?: readonly string[];
}
export const square = (side: number): Required<Pick<Size, 'height' | 'width'>> => ({ height: side, width: side });
const CLIP: Processor = {
  ...{ size: { shortest_edge: 224 }, square: false, resample: 3, colours: CLIP_COLOURS },
  ...{ crop: 224, crops: true },
};
const MOBILE: Processor = { ...CLIP, size: { shortest_edge: 256 }, resample: 2, colours: HALVES };
const PLAIN: Processor = { size: square(224), resample: 2, colours: HALVES };
const RESNETS = ['convnext', 'convnextv2', 'resnet', 'regnet', 'cvt'];
const DETR: Processor = { ...PLAIN, colours: IMAGENET, pads: true, whole: true, sizing: (c) => edgeSizing(c) };
/** By the names that files give them. */
export const PROCESSORS: Readonly<Record<string, Processor>> = {
  CLIP: { ...CLIP, models: ['clip', 'metaclip_2', 'clip_vision_model'] },
  ChineseCLIP: { ...CLIP, models: ['chinese_clip'] },
  VideoMAE: { ...CLIP, resample: 2, colours: IMAGENET, models: ['videomae'] },
  Bit: { ...CLIP, models: ['bit', 'dinov2', 'focalnet', 'hiera'] },
  ViT: { ...PLAIN, models: ['vit', 'vit_msn', 'vit_mae', 'ijepa', 'swin', 'swinv2', 'clipseg', 'swiftformer'] },
  Siglip: { ...PLAIN, resample: 3, square: false, models: ['siglip', 'siglip_vision_model'] },
  Siglip2: { ...PLAIN, sizing: patchSizing, whole: true, models: ['siglip2'] },
  DeiT: { ...PLAIN, size: square(256), resample: 3, crop: 224, crops: true, models: ['deit'] },
  Beit: { ...PLAIN, resample: 3, crop: 224, models: ['beit', 'data2vec-vision'] },
  ConvNext: {
    ...{ size: { shortest_edge: 384 }, square: false, resample: 3, colours: HALVES },
    ...{ share: 224 / 256, shareOf: 'small', models: RESNETS },
  },
  MobileNetV1: { ...MOBILE, models: ['mobilenet_v1'] },
  MobileNetV2: { ...MOBILE, models: ['mobilenet_v2'] },
  EfficientNet: { ...PLAIN, size: square(346), resample: 3, crop: 289, centred: true, models: ['efficientnet'] },
  MobileViT: { ...CLIP, flips: true, crop: 256, models: ['mobilevit', 'mobilevitv2'] },
  PoolFormer: { ...CLIP, colours: IMAGENET, share: 0.9, shareOf: 'edges', models: ['poolformer'] },
  // A shorter side of 224 becomes 256, of which the middle is kept; a height and a width are as they are said.
  Levit: { ...CLIP, colours: IMAGENET, grows: 256 / 224, models: ['levit'] },
  Pvt: { ...PLAIN, resample: 3, colours: IMAGENET, models: ['pvt', 'pvt_v2'] },
  Segformer: { ...PLAIN, size: square(512), colours: IMAGENET, whole: true, models: ['segformer'] },
  DINOv3ViT: { ...PLAIN, colours: IMAGENET, numbers: true, models: ['dinov3_vit', 'dinov3_convnext'] },
  Gemma3: PLAIN,
  Detr: { ...DETR, models: ['detr', 'table-transformer', 'conditional_detr', 'deformable_detr', 'grounding-dino'] },
  Mask2Former: { ...DETR, sizing: wholeSizing, models: ['mask2former', 'maskformer'] },
  Yolos: { ...DETR, sizing: (c) => edgeSizing(c, 16), models: ['yolos'] },
  RTDetr: {
    ...{ ...DETR, unnormed: true, models: ['rt_detr', 'rt_detr_v2'] },
    sizing: (c) => (c.has('size') ? edgeSizing(c) : () => [640, 640]),
  },
  DPT: { ...PLAIN, resample: 3, colours: HALVES, sizing: multipleSizing, models: ['dpt', 'depth_anything'] },
  Donut: { ...PLAIN, colours: HALVES, fitting: pageFitting, whole: true },
  OwlViT: { ...PLAIN, size: square(768), resample: 3, colours: CLIP_COLOURS, crop: 768, models: ['owlvit'] },
  Owlv2: { ...PLAIN, size: square(960), colours: CLIP_COLOURS, squares: true, whole: true, models: ['owlv2'] },
  Sam: { ...PLAIN, colours: IMAGENET, sizing: longestSizing, fills: square(1024), models: ['sam'] },
  GLPN: { ...PLAIN, unnormed: true, sizing: divisorSizing, whole: true, models: ['glpn'] },
};
