// CLIP's half that reads, by itself (as pictures are drawn from texts by it): vectors of tokens and of the text's end.
import { type Linear, linear } from '../../nn/layers.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { clipText, type TextHalf } from '../vision/clip.js';
import { type EncoderInput, type EncoderOutput, TextEncoder } from './encoder.js';

class ClipTextEncoder extends TextEncoder {
  readonly text: TextHalf;
  /** Into the space that texts share with pictures, where files have it. */
  readonly projection: Linear | undefined;
  readonly width: number;
  readonly maxTokens: number;
  constructor(text: TextHalf, projection: Linear | undefined) {
    super();
    this.text = text;
    this.projection = projection;
    this.width = text.width;
    this.maxTokens = text.maxTokens;
  }
  forward(input: EncoderInput): EncoderOutput {
    this.checkInput(input);
    const { ids, mask } = input;
    const hidden = this.text.hidden(ids, mask);
    const vector = this.text.vectorOf(ids, hidden);
    return { hidden, pooled: this.projection?.forward(vector) ?? vector };
  }
}

function build(c: Config, source: ModelSource): ClipTextEncoder {
  source.ignore(/\.position_ids$/);
  const vb = source.builder;
  const text = clipText(c, vb.has('text_model.embeddings.token_embedding.weight') ? vb.pp('text_model') : vb);
  const size = source.has('text_projection.weight') ? c.count('projection_dim', 512, 1) : undefined;
  const projection = size && linear(text.width, size, vb.pp('text_projection'), { bias: false });
  return new ClipTextEncoder(text, projection || undefined);
}
export const CLIP_TEXT_FAMILIES: readonly ModelRow[] = [{ kind: 'encoder', types: ['clip_text_model'], build }];
