// BERT's layers with a part more: X-MOD (an adapter of the text's language behind every layer) and Nyströmformer (what
// tokens say to their surroundings beside attention).
import { FormatError, UnsupportedError } from '../../base/errors.js';
import type { LayerNorm } from '../../nn/layers.js';
import { layerNorm } from '../../nn/layers.js';
import { Layer, Module } from '../../nn/module.js';
import type { VarBuilder } from '../../nn/var-builder.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Config } from '../files/config.js';
import type { ModelSource } from '../files/source.js';
import type { ModelRow } from '../model-row.js';
import { type AttendOptions, type FeedForward, feedForward, type MultiHead, multiHead } from '../parts.js';
import { BERT, type Bert, bert, bertConfig, type BertNames, inside, oldNorms, ROBERTA } from './bert.js';

/** A narrow feed-forward of one language, and the norm before it: one of its own, or that of the layer. */
class Adapter extends Layer {
  readonly own: LayerNorm | undefined;
  readonly mlp: FeedForward;
  readonly #norm: LayerNorm | undefined;
  readonly #early: boolean;
  constructor(mlp: FeedForward, own: LayerNorm | undefined, shared: LayerNorm | undefined, early: boolean) {
    super();
    this.mlp = mlp;
    this.own = own;
    this.#norm = own ?? shared;
    this.#early = early;
  }
  forward(x: Tensor): Tensor {
    const y = this.#norm?.forward(x) ?? x;
    return this.mlp.forward(y).add(this.#early ? y : x);
  }
}

function xmod(c: Config, source: ModelSource): Bert {
  const config = bertConfig(c, true);
  const { width, activation, eps } = config;
  const languages = c.has('languages') ? c.texts('languages') : ['en_XX'];
  const language = c.text('default_language', languages.length === 1 ? languages[0] : '');
  if (!languages.includes(language))
    throw new UnsupportedError(
      `${c.where}: default_language is ${JSON.stringify(language)}; texts are of one language, which is one of ` +
        languages.join(', '),
    );
  const inner = Math.floor(width / c.number('adapter_reduction_factor', 2));
  if (!(inner >= 1 && inner <= width))
    throw new FormatError(`${c.where}: adapter_reduction_factor leaves ${inner} of ${width} numbers`);
  const [own, reuse] = [c.flag('adapter_layer_norm', false), c.flag('adapter_reuse_layer_norm', true)];
  const early = c.flag('ln_before_adapter', true);
  const before = c.flag('pre_norm', false);
  // Of other languages.
  source.ignore(
    new Set(source.names.filter((n) => n.includes('.adapter_modules.') && !n.includes(`_modules.${language}.`))),
  );
  const names: BertNames = {
    ...ROBERTA,
    ...(before && { before, lastNorm: 'encoder.LayerNorm' }),
    adapt: (vb, _, norm) =>
      new Adapter(
        feedForward(vb.pp('output.adapter_modules', language), ['dense1', 'dense2'], width, inner, activation),
        own ? layerNorm(width, vb.pp('output.adapter_layer_norm'), { eps }) : undefined,
        reuse ? norm : undefined,
        early,
      ),
  };
  return bert(c, source, inside(source, oldNorms(source), 'roberta'), config, names);
}

/** Attention, and beside it each head's values smoothed along the text. */
class SmoothedAttention extends Module {
  readonly attention: MultiHead;
  readonly filter: Tensor;
  constructor(attention: MultiHead, filter: Tensor) {
    super();
    this.attention = attention;
    this.filter = filter;
  }
  forward(x: Tensor, { mask }: AttendOptions): Tensor {
    const { q, k, v, out, heads } = this.attention;
    const [b, t, width] = x.shape;
    const d = width / heads;
    const split = (y: Tensor): Tensor => y.reshape([b, t, heads, d]).transpose(1, 2);
    const [queries, keys, values] = [q, k, v].map((part) => split(part.forward(x)));
    const seen = queries.sdpa(keys, values, mask ? { mask } : {});
    const taps = this.filter.shape[2];
    const along = values
      .permute([0, 3, 1, 2])
      .reshape([b * d, heads, t])
      .conv1d(this.filter.reshape([heads, 1, taps]), { groups: heads, padding: Math.floor(taps / 2) })
      .reshape([b, d, heads, t])
      .permute([0, 2, 3, 1]);
    return out.forward(seen.add(along).transpose(1, 2).reshape([b, t, width]));
  }
}
function nystromformer(c: Config, source: ModelSource): Bert {
  const [landmarks, length] = [c.count('num_landmarks', 64, 1), c.count('segment_means_seq_len', 64, 1)];
  if (landmarks !== length)
    throw new UnsupportedError(
      `${c.where}: num_landmarks is ${landmarks} and segment_means_seq_len ${length}; served are those where both are ` +
        'equal, as in the released models, where all tokens see all',
    );
  c.only('inv_coeff_init_option', false);
  // Null: none of it.
  const taps = c.json.conv_kernel_size === null ? 0 : c.count('conv_kernel_size', 65, 1);
  if (taps % 2 === 0 && taps > 0)
    throw new FormatError(`${c.where}: conv_kernel_size is ${taps}; a filter along the text has a middle`);
  c.ignore('conv_kernel_size');
  const plain = bertConfig(c, false);
  const { width, heads } = plain;
  const activation = c.activation('hidden_act', 'gelu_new');
  const config = { ...plain, activation, positions: plain.positions + 2, before: 2 };
  const names: BertNames = {
    ...BERT,
    classifier: { dense: ['classifier.dense', activation], out: 'classifier.out_proj' },
    ...(taps > 0 && {
      attend: (vb: VarBuilder) =>
        new SmoothedAttention(
          multiHead(vb, BERT.attention, width, heads),
          vb.get([heads, 1, taps, 1], 'attention.self.conv.weight'),
        ),
    }),
  };
  return bert(c, source, inside(source, oldNorms(source), 'nystromformer'), config, names);
}

export const ADAPTED_BERT_FAMILIES: readonly ModelRow[] = [
  { kind: 'encoder', types: ['xmod'], build: xmod },
  { kind: 'encoder', types: ['nystromformer'], build: nystromformer },
];
