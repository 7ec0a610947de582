// The seeing halves of CLIP and SigLIP by themselves: vectors of places, and the picture's own, in the space that it
// shares with texts where the files have the product that leads there.
import { type Linear, linear } from '../../nn/layers.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { towerOf, type VisionTower } from './clip.js';
import { VisionModel } from './vision-model.js';

class TowerAlone extends VisionModel {
  readonly classifier = undefined;
  readonly labels: readonly string[] = [];
  readonly tower: VisionTower;
  readonly projection: Linear | undefined;
  constructor(tower: VisionTower, projection: Linear | undefined) {
    super();
    this.tower = tower;
    this.projection = projection;
  }
  hidden(pixels: Tensor): Tensor {
    return this.tower.hidden(pixels);
  }
  pooled(hidden: Tensor): Tensor {
    const vector = this.tower.vectorOf(hidden);
    return this.projection?.forward(vector) ?? vector;
  }
}

function build(c: Config, source: ModelSource): TowerAlone {
  source.ignore(/\.position_ids$/);
  const whole = source.builder;
  const inside = whole.has('vision_model.embeddings.patch_embedding.weight');
  const { tower, width } = towerOf(c, inside ? whole.pp('vision_model') : whole);
  const size = source.has('visual_projection.weight') ? c.count('projection_dim', 512, 1) : undefined;
  const projection = size && linear(width, size, whole.pp('visual_projection'), { bias: false });
  return new TowerAlone(tower, projection || undefined);
}
export const TOWERS_ALONE: readonly ModelRow[] = [
  { kind: 'vision', types: ['clip_vision_model', 'siglip_vision_model'], build },
];
