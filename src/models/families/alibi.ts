// Decoders that tell positions by ALiBi, a slope a head: Falcon (which may have a rope instead), BLOOM and MPT.
import { UnsupportedError } from '../../base/errors.js';
import type { Config } from '../files/config.js';
import type { Features } from '../decoder/features.js';
import {
  activationOf,
  biasesBy,
  build,
  checked,
  fusedQkv,
  layerNorm,
  QKV_BY_GROUP,
  ropeOf,
  sizesOf,
  ungated,
  ALL_BIASES,
} from './common.js';
import { alibiSlopes } from './alibi-slopes.js';
import { family } from './row.js';

function falcon(c: Config): Features {
  const whole = sizesOf(c);
  const fresh = c.flag('new_decoder_architecture', false);
  const one = c.flag('multi_query', true);
  const kvHeads = fresh ? c.count('num_kv_heads', whole.heads) : one ? 1 : whole.heads;
  c.ignore('num_kv_heads', 'n_embed', 'n_head_kv');
  c.only('apply_residual_connection_post_layernorm', false);
  c.only('n_head', whole.heads);
  c.only('n_layer', whole.layers);
  const s = checked(c, { ...whole, kvHeads });
  const norms = c.optional('num_ln_in_parallel_attn');
  const parallel = c.flag('parallel_attn', true) || fresh;
  const alibi = c.flag('alibi', false);
  const slopes = alibiSlopes(s.heads);
  if (alibi && !Number.isInteger(Math.log2(s.heads)) && fresh)
    throw new UnsupportedError(`${c.where}: alibi with ${s.heads} heads in the new architecture`);
  const scale = 1 / Math.sqrt(s.headDim);
  return build('falcon', c, s, {
    norm: layerNorm(c, 'layer_norm_epsilon'),
    ...(!alibi && { rope: ropeOf(c, s) }),
    // Falcon adds the bias before it scales.
    attention: () => (alibi ? { alibi: slopes.map((x) => x * scale) } : {}),
    mlp: () => ungated(c.count('ffn_hidden_size', 4 * s.hidden), activationOf(c, 'activation', 'gelu')),
    tied: true,
    biases: biasesBy(c, { bias: ALL_BIASES }),
    more: parallel ? { parallel: fresh && (norms ?? 2) === 2 ? 'own' : 'shared' } : {},
  });
}
export const falconFamily = family({
  types: ['falcon'],
  features: (c) => {
    const f = falcon(c);
    if (f.layers[0].mixer.kind === 'attention' && f.layers[0].mixer.alibi) c.ignore('rope_parameters', 'rope_theta');
    return f;
  },
  names: (c) => ({
    embed: 'transformer.word_embeddings',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: ['ln_attn', 'input_layernorm'],
    beforeMlp: ['ln_mlp', 'post_attention_layernorm'],
    ...fusedQkv(
      'self_attention.query_key_value',
      c.json.multi_query !== false && !c.json.new_decoder_architecture ? undefined : QKV_BY_GROUP,
    ),
    o: 'self_attention.dense',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  }),
  gguf: {
    architectures: ['falcon'],
    names: { ...fusedQkv('attn_qkv'), beforeMixer: ['attn_norm_2', 'attn_norm'], beforeMlp: 'attn_norm' },
    written: (_, f) => (f.parallel === 'own' ? {} : { beforeMixer: 'attn_norm' }),
  },
});

export const bloom = family({
  types: ['bloom'],
  features: (c) => {
    const onto = c.flag('apply_residual_connection_post_layernorm', false);
    c.ignore('slow_but_exact', 'n_embed', 'seq_length', 'offset_alibi', 'attention_softmax_in_fp32', 'skip_bias_add');
    c.ignore('skip_bias_add_qkv', 'bias_dropout_fusion', 'masked_softmax_fusion', 'hidden_dropout');
    const hidden = c.has('hidden_size') ? c.count('hidden_size') : c.count('n_embed');
    const heads = c.has('n_head') ? c.count('n_head') : c.count('num_attention_heads');
    const s = checked(c, {
      hidden,
      layers: c.has('n_layer') ? c.count('n_layer') : c.count('num_hidden_layers'),
      heads,
      kvHeads: heads,
      headDim: hidden / heads,
      maxPositions: c.optional('seq_length') ?? 2048,
    });
    return build('bloom', c, s, {
      norm: layerNorm(c, 'layer_norm_epsilon'),
      attention: () => ({ alibi: alibiSlopes(heads) }),
      mlp: () => ungated(4 * hidden, 'gelu_new'),
      tied: true,
      biases: ALL_BIASES,
      ...(onto && { layer: () => ({ ontoNormed: { mixer: [1, 1], mlp: [1, 1] } }) }),
      more: { embedNorm: true },
    });
  },
  names: {
    embed: 'transformer.word_embeddings',
    embedNorm: 'transformer.word_embeddings_layernorm',
    finalNorm: 'transformer.ln_f',
    head: 'lm_head',
    layer: 'transformer.h.{i}',
    beforeMixer: 'input_layernorm',
    beforeMlp: 'post_attention_layernorm',
    ...fusedQkv('self_attention.query_key_value', QKV_BY_GROUP),
    o: 'self_attention.dense',
    up: 'mlp.dense_h_to_4h',
    down: 'mlp.dense_4h_to_h',
  },
  gguf: { architectures: ['bloom'], names: fusedQkv('attn_qkv') },
});

export const mpt = family({
  types: ['mpt'],
  features: (c) => {
    const hidden = c.count('d_model', undefined, 1);
    const heads = c.count('n_heads', undefined, 1);
    const attn = c.inner('attn_config');
    attn?.only('attn_type', 'multihead_attention');
    attn?.only('prefix_lm', false);
    attn?.only('qk_ln', false);
    attn?.only('alibi', true);
    attn?.only('attn_uses_sequence_id', false);
    attn?.only('alibi_bias_max', 8);
    attn?.ignore('attn_impl', 'attn_pdrop', 'model_type', 'rope', 'rope_theta', 'kv_n_heads');
    const clip = attn?.optional('clip_qkv');
    const scale = attn?.optional('softmax_scale');
    c.ignore(
      'expansion_ratio', // transformers' layers are four times as wide, whatever it says; other tensors would not fit
      'init_device',
      'learned_pos_emb',
      'embedding_fraction',
      'emb_pdrop',
      'norm_type',
      'verbose',
      'init_config',
    );
    c.only('no_bias', true);
    c.only('logit_scale');
    const s = checked(c, {
      hidden,
      layers: c.count('n_layers'),
      heads,
      kvHeads: heads,
      headDim: hidden / heads,
      maxPositions: c.count('max_seq_len', 2048),
    });
    return build('mpt', c, s, {
      norm: { ...layerNorm(c, 'layer_norm_epsilon'), bias: false },
      attention: () => ({
        alibi: mptSlopes(heads),
        ...(clip !== undefined && { clip }),
        ...(scale !== undefined && { scale }),
      }),
      mlp: () => ungated(4 * hidden, 'gelu'),
      tied: true,
    });
  },
  names: {
    embed: 'transformer.wte',
    finalNorm: 'transformer.norm_f',
    head: 'lm_head',
    layer: 'transformer.blocks.{i}',
    beforeMixer: 'norm_1',
    beforeMlp: 'norm_2',
    ...fusedQkv('attn.Wqkv'),
    o: 'attn.out_proj',
    up: 'ffn.up_proj',
    down: 'ffn.down_proj',
  },
  gguf: { architectures: ['mpt'], names: fusedQkv('attn_qkv') },
});
/** MPT's slopes for other numbers of heads than powers of two: every second of the next power first. */
function mptSlopes(heads: number): number[] {
  const power = 2 ** Math.ceil(Math.log2(heads));
  const all = Array.from({ length: power }, (_, i) => 2 ** ((-8 * (i + 1)) / power));
  if (power === heads) return all;
  return [...all.filter((_, i) => i % 2 === 1), ...all.filter((_, i) => i % 2 === 0)].slice(0, heads);
}
