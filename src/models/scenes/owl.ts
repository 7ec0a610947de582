// OWL-ViT and its second version: each patch of a picture tells a box and a vector, which texts are compared with.
import { type LayerNorm, layerNorm, type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type ImageText, imageText } from '../vision/clip.js';
import type { Detections } from './scene-model.js';

/** Three products with bends between them. */
class PatchHead extends Module {
  readonly layers: readonly Linear[];
  constructor(vb: VarBuilder, width: number, to: number) {
    super();
    this.layers = [width, width, to].map((n, i) => linear(width, n, vb.pp(`dense${i}`)));
  }
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, layer, i) => layer.forward(i > 0 ? h.geluErf() : h), x);
  }
}
const unit = (x: Tensor): Tensor => x.div(x.sqr().sum(-1, true).sqrt().affine(1, 1e-6));

const { fround, log, log1p } = Math;
/** What is added to what the head says of a patch's box: the patch's corner and size, before they become shares. */
function boxOffsets(rows: number, columns: number, like: Tensor): Tensor {
  const back = (share: number): number => {
    const x = fround(share);
    return fround(fround(log(fround(x + 1e-4))) - fround(log1p(fround(fround(-x) + 1e-4))));
  };
  const data = Float32Array.from({ length: 4 * rows * columns }, (_, i) => {
    const patch = i >> 2;
    const [across, down] = [(patch % columns) + 1, Math.floor(patch / columns) + 1];
    return back([across / columns, down / rows, 1 / columns, 1 / rows][i % 4]);
  });
  return tensor(data, { shape: [1, rows * columns, 4], device: like.device }).cast(like.dtype);
}

interface PatchDetections extends Detections {
  /** (b, patches): whether there is a thing at all, of the second version. */
  readonly things: Tensor | undefined;
}
export class OwlDetector extends Module {
  readonly clip: ImageText;
  readonly norm: LayerNorm;
  readonly boxes: PatchHead;
  /** A patch's vector, as texts have them. */
  readonly vectors: Linear;
  readonly shift: Linear;
  readonly scale: Linear;
  readonly things: PatchHead | undefined;
  constructor(vb: VarBuilder, clip: ImageText, second: boolean) {
    super();
    const { postNorm } = clip.vision;
    const width = postNorm.weight?.shape[0] as number;
    this.clip = clip;
    this.norm = layerNorm(width, vb.pp('layer_norm'), { eps: postNorm.eps });
    this.boxes = new PatchHead(vb.pp('box_head'), width, 4);
    const at = vb.pp('class_head');
    this.vectors = linear(width, clip.textProjection.weight.shape[1], at.pp('dense0'));
    this.shift = linear(width, 1, at.pp('logit_shift'));
    this.scale = linear(width, 1, at.pp('logit_scale'));
    this.things = second ? new PatchHead(vb.pp('objectness_head'), width, 1) : undefined;
  }
  /** Of texts' vectors (texts, width): a logit for each patch and text, and a box for each patch. */
  forward(pixels: Tensor, texts: Tensor): PatchDetections {
    const { vision } = this.clip;
    const all = vision.postNorm.forward(vision.hidden(pixels));
    const patches = all.shape[1] - 1;
    const x = this.norm.forward(all.narrow(1, 1, patches).mul(all.narrow(1, 0, 1)));
    const likeness = unit(this.vectors.forward(x)).matmul(unit(texts).t());
    const logits = likeness.add(this.shift.forward(x)).mul(this.scale.forward(x).elu().affine(1, 1));
    const [rows, columns] = vision.grid;
    return {
      logits,
      boxes: this.boxes
        .forward(x)
        .add(boxOffsets(rows, columns, x))
        .sigmoid(),
      // The head learns by itself.
      things: this.things?.forward(x.detach()).squeeze(-1),
    };
  }
}

function owl(c: Config, source: ModelSource): OwlDetector {
  const type = c.text('model_type');
  const second = type === 'owlv2';
  // The places of patches' boxes are reckoned from the config.
  source.ignore(/^box_bias$/);
  const style = {
    kind: 'clip',
    largest: true,
    unsaid: { positions: 16, image: 768, patch: second ? 16 : 32 },
  } as const;
  return new OwlDetector(source.builder, imageText(c, source, style, source.builder.pp(type)), second);
}
export const OWL_FAMILIES: readonly ModelRow[] = [
  { kind: 'zero-shot-detection', types: ['owlvit', 'owlv2'], build: owl },
];
