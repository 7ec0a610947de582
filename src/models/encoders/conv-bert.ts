// ConvBERT: half of each layer's heads attend, the other half weigh the tokens nearby as the token itself says.
import { UnsupportedError } from '../../base/errors.js';
import { type Linear, linear } from '../../nn/layers.js';
import { Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import { BERT, bert, type BertConfig, bertConfig, inside, oldNorms } from './bert.js';
import type { Config } from '../files/config.js';
import type { ModelRow } from '../model-row.js';
import type { AttendOptions } from '../parts.js';
import type { ModelSource } from '../files/source.js';

class MixedAttention extends Module {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
  /** Keys of the half that weighs neighbours: a convolution of each number by itself, then a product. */
  readonly depthwise: Tensor;
  readonly pointwise: Tensor;
  readonly pointBias: Tensor;
  readonly weights: Linear;
  readonly values: Linear;
  readonly out: Linear;
  readonly heads: number;
  readonly size: number;
  constructor(vb: VarBuilder, width: number, heads: number, size: number) {
    super();
    this.heads = heads;
    this.size = size;
    const across = heads * Math.floor(width / heads / 2);
    const at = vb.pp('attention.self');
    const part = (name: string): Linear => linear(width, across, at.pp(name));
    [this.q, this.k, this.v, this.values] = ['query', 'key', 'value', 'conv_out_layer'].map(part);
    this.depthwise = at.get([width, 1, size], 'key_conv_attn_layer.depthwise.weight');
    this.pointwise = at.get([across, width, 1], 'key_conv_attn_layer.pointwise.weight');
    this.pointBias = at.get([across, 1], 'key_conv_attn_layer.bias');
    this.weights = linear(across, heads * size, at.pp('conv_kernel_layer'));
    this.out = linear(width, width, vb.pp('attention.output.dense'));
  }
  /** (b, t, heads * d) to (b, t, heads, d). */
  #parted(x: Tensor): Tensor {
    return x.reshape([x.shape[0], x.shape[1], this.heads, -1]);
  }
  /** Sums of neighbours, (b, t, heads, d); beyond the text's ends there are zeros. */
  #nearby(x: Tensor, q: Tensor): Tensor {
    const { size } = this;
    const [b, t, width] = x.shape;
    const side = (size - 1) / 2;
    const keys = x
      .transpose(1, 2)
      .contiguous()
      .conv1d(this.depthwise, { groups: width, padding: side })
      .conv1d(this.pointwise)
      .add(this.pointBias)
      .transpose(1, 2);
    const weights = this.weights.forward(keys.mul(q)).reshape([b, t, this.heads, size]).softmax(-1);
    const values = this.#parted(this.values.forward(x));
    const rim = values.narrow(1, 0, 1).zerosLike();
    const rims = Array.from({ length: side }, () => rim);
    const padded = side === 0 ? values : rim.cat([...rims.slice(1), values, ...rims], 1);
    const near = (j: number): Tensor => padded.narrow(1, j, t).mul(weights.narrow(3, j, 1));
    return Array.from({ length: size }, (_, j) => j).reduce((sum, j) => (j === 0 ? sum : sum.add(near(j))), near(0));
  }
  forward(x: Tensor, options: AttendOptions): Tensor {
    const q = this.q.forward(x);
    const [qs, ks, vs] = [q, this.k.forward(x), this.v.forward(x)].map((y) => this.#parted(y).transpose(1, 2));
    const seen = qs.sdpa(ks, vs, options.mask ? { mask: options.mask } : {}).transpose(1, 2);
    return this.out.forward(seen.cat([this.#nearby(x, q)], 2).reshape([x.shape[0], x.shape[1], -1]));
  }
}

function convBert(c: Config, source: ModelSource) {
  c.only('num_groups', 1);
  const plain = bertConfig(c, false);
  const { width, heads, activation } = plain;
  const size = c.count('conv_kernel_size', 9, 1);
  if (size % 2 === 0) throw new UnsupportedError(`${c.where}: conv_kernel_size is ${size}; only odd ones are served`);
  const each = Math.max(1, Math.floor(heads / c.count('head_ratio', 2, 1)));
  const embedWidth = c.count('embedding_size', 768, 1);
  const config: BertConfig = { ...plain, ...(embedWidth !== width && { embedWidth }) };
  source.ignore(/^generator_\w+\./);
  return bert(c, source, inside(source, oldNorms(source), 'convbert'), config, {
    ...BERT,
    ...{ embedIn: 'embeddings_project', wordsBent: 'gelu' },
    classifier: { dense: ['classifier.dense', activation], out: 'classifier.out_proj' },
    attend: (vb) => new MixedAttention(vb, width, each, size),
  });
}
export const CONV_BERT_FAMILIES: readonly ModelRow[] = [{ kind: 'encoder', types: ['convbert'], build: convBert }];
