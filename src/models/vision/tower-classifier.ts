// Classifiers of pictures that were trained on top of the seeing half of CLIP, MetaCLIP 2 or SigLIP: the mean of what
// its patches became, and a product.
import type { Linear } from '../../nn/layers.js';
import type { Tensor } from '../../tensor/tensor.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { towerKind, VisionTower, visionConfig } from './clip.js';
import { pictureHead, VisionModel } from './vision-model.js';

class TowerClassifier extends VisionModel {
  readonly tower: VisionTower;
  readonly classifier: Linear | undefined;
  readonly labels: readonly string[];
  constructor(tower: VisionTower, head: ReturnType<typeof pictureHead>) {
    super();
    this.tower = tower;
    this.classifier = head.classifier;
    this.labels = head.labels;
  }
  hidden(pixels: Tensor): Tensor {
    return this.tower.hidden(pixels);
  }
  pooled(hidden: Tensor): Tensor {
    const first = this.tower.classToken ? 1 : 0;
    return hidden.narrow(1, first, hidden.shape[1] - first).mean([1]);
  }
}

function classifier(c: Config, source: ModelSource, kind: 'clip' | 'siglip'): TowerClassifier {
  // What compares with texts is not there.
  c.ignore('text_config', 'text_config_dict', 'vision_config_dict', 'projection_dim', 'logit_scale_init_value');
  c.ignore('tie_word_embeddings');
  source.ignore(/\.position_ids$/);
  const v = c.inner('vision_config') ?? new Config({}, c.where);
  v.ignore('vision_use_head');
  const config = visionConfig(v, kind);
  const tower = new VisionTower(source.builder.pp('vision_model'), config, kind === 'siglip');
  return new TowerClassifier(tower, pictureHead(c, source, config.width));
}
const rowOf = (kind: 'clip' | 'siglip', types: readonly string[]): ModelRow => ({
  kind: 'vision',
  types,
  kindOf: towerKind,
  build: (c, source) => classifier(c, source, kind),
});
export const TOWER_CLASSIFIERS: readonly ModelRow[] = [
  rowOf('clip', ['clip', 'metaclip_2']),
  rowOf('siglip', ['siglip']),
];
