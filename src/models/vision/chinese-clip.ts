// Chinese CLIP: BERT reads, CLIP's tower sees. A text's vector is that of its first token.
import type { Tensor } from '../../tensor/tensor.js';
import type { Bert } from '../encoders/bert.js';
import { BERT, Bert as BertModel, bertConfig } from '../encoders/bert.js';
import { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { ignoreBookkeeping, ImageText, imageTextParts, TextHalf, VisionTower, visionConfig } from './clip.js';

class BertHalf extends TextHalf {
  readonly bert: Bert;
  constructor(bert: Bert) {
    super();
    this.bert = bert;
  }
  get maxTokens(): number {
    return this.bert.maxTokens;
  }
  get width(): number {
    return this.bert.width;
  }
  hidden(ids: Tensor, mask?: Tensor): Tensor {
    return this.bert.forward({ ids, ...(mask && { mask }) }).hidden;
  }
  vectorOf(_: Tensor, hidden: Tensor): Tensor {
    return hidden.narrow(1, 0, 1).squeeze(1);
  }
}

/** What configs leave out, as transformers has it. */
const TEXT_UNSAID = {
  ...{ vocab_size: 30522, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072 },
  max_position_embeddings: 512,
};
function textOf(c: Config, source: ModelSource): BertHalf {
  const given = c.inner('text_config') ?? new Config({}, c.where);
  const t = new Config(given.json, c.where, 'text_config.', TEXT_UNSAID, c.matters);
  ignoreBookkeeping(t);
  t.ignore('attention_probs_dropout_prob', 'hidden_dropout_prob', 'classifier_dropout', 'use_cache');
  const config = bertConfig(t, false);
  t.refuseUnread();
  given.ignore(...Object.keys(given.json));
  return new BertHalf(new BertModel(source.builder.pp('text_model'), config, BERT));
}
function build(c: Config, source: ModelSource): ImageText {
  c.ignore('logit_scale_init_value', 'initializer_factor', 'text_config_dict', 'vision_config_dict');
  c.ignore('tie_word_embeddings');
  source.ignore(/\.position_ids$|^text_model\.pooler\./);
  const vision = visionConfig(c.inner('vision_config') ?? new Config({}, c.where), 'clip');
  const tower = new VisionTower(source.builder.pp('vision_model'), vision, false);
  return new ImageText(
    imageTextParts(source.builder, textOf(c, source), tower, vision.width, c.count('projection_dim', 512)),
  );
}
export const CHINESE_CLIP_FAMILIES: readonly ModelRow[] = [{ kind: 'image-text', types: ['chinese_clip'], build }];
