// T5 and its kin in GGUF files: read as the folder that llama.cpp's converter was given.
import { FormatError } from '../../base/errors.js';
import { Gguf } from '../../io/gguf.js';
import { Config, type Json } from '../files/config.js';
import { Metadata } from './metadata.js';
import { asFolder, type Rules } from './gguf-encoder.js';
import type { ModelRow } from '../model-row.js';
import type { ModelSource } from '../files/source.js';
import { T5_FAMILIES } from '../seq2seq/t5.js';

/** Parts of a block: attention first, in the half that writes what looks at the text, feed-forward last. */
const side = (file: 'enc' | 'dec', folder: string, last: number): Rules => {
  const at = `^${file}\\.blk\\.(\\d+)\\.`;
  const to = (layer: number, name: string): string => `${folder}.block.$1.layer.${layer}.${name}.`;
  return [
    [new RegExp(`${at}attn_rel_b\\.`), to(0, 'SelfAttention.relative_attention_bias')],
    [new RegExp(`${at}attn_([qkvo])\\.`), to(0, 'SelfAttention.$2')],
    [new RegExp(`${at}attn_norm\\.`), to(0, 'layer_norm')],
    [new RegExp(`${at}cross_attn_([qkvo])\\.`), to(1, 'EncDecAttention.$2')],
    [new RegExp(`${at}cross_attn_norm\\.`), to(1, 'layer_norm')],
    [new RegExp(`${at}ffn_norm\\.`), to(last, 'layer_norm')],
    [new RegExp(`${at}ffn_gate\\.`), to(last, 'DenseReluDense.wi_0')],
    [new RegExp(`${at}ffn_down\\.`), to(last, 'DenseReluDense.wo')],
    [new RegExp(`^${file}\\.output_norm\\.`), `${folder}.final_layer_norm.`],
  ];
};
const rules = (gated: boolean): Rules => [
  [/^token_embd\./, 'shared.'],
  [/^output\./, 'lm_head.'],
  ...side('enc', 'encoder', 1),
  ...side('dec', 'decoder', 2),
  [/^(?:enc)\.blk\.(\d+)\.ffn_up\./, `encoder.block.$1.layer.1.DenseReluDense.${gated ? 'wi_1' : 'wi'}.`],
  [/^(?:dec)\.blk\.(\d+)\.ffn_up\./, `decoder.block.$1.layer.2.DenseReluDense.${gated ? 'wi_1' : 'wi'}.`],
];

/** A count of blocks that the tensors bear out. */
function blocks(m: Metadata, key: string, half: 'enc' | 'dec', unsaid?: number): number {
  const count = m.number(key, unsaid);
  if (Number.isInteger(count) && count >= 1 && m.source.has(`${half}.blk.${count - 1}.attn_q.weight`)) return count;
  throw new FormatError(`${m.source.path}: ${m.architecture}.${key} is ${count}: there is no ${half}.blk.${count - 1}`);
}
const isGated = (source: ModelSource): boolean => source.has('enc.blk.0.ffn_gate.weight');
/** The config of the folder: uMT5 has distances in every block, and heads of their own are not scaled. */
function configOf(m: Metadata, writes: boolean): Json {
  const { source } = m;
  const layers = blocks(m, 'block_count', 'enc');
  m.get('decoder_start_token_id'); // what writes answers asks for it
  const json = {
    model_type: source.has('enc.blk.1.attn_rel_b.weight') ? 'umt5' : 't5',
    vocab_size: source.shapeOf('token_embd.weight')[0],
    d_model: m.number('embedding_length'),
    d_ff: m.number('feed_forward_length'),
    num_layers: layers,
    ...(writes && { num_decoder_layers: blocks(m, 'decoder_block_count', 'dec', layers) }),
    num_heads: m.number('attention.head_count'),
    d_kv: m.number('attention.key_length'),
    layer_norm_epsilon: m.number('attention.layer_norm_rms_epsilon', m.number('attention.layer_norm_epsilon')),
    relative_attention_num_buckets: m.number('attention.relative_buckets_count'),
    feed_forward_proj: isGated(source) ? 'gated-gelu' : 'relu',
    tie_word_embeddings: !source.has('output.weight'),
  };
  m.refuseUnread();
  return json;
}

const row = (architecture: string, writes: boolean): ModelRow => ({
  kind: writes ? 'seq2seq' : 'encoder',
  types: [],
  architectures: [architecture],
  build: (_, source, options) => {
    const config = new Config(configOf(new Metadata(source), writes), source.path);
    source.ignore(/\.cross_attn_rel_b\.weight$/); // of which nothing makes use
    const folder = asFolder(source, rules(isGated(source)));
    return T5_FAMILIES[0].build(config, folder, writes ? options : { ...options, encodes: true });
  },
});
export const GGUF_T5: readonly ModelRow[] = [row('t5', true), row('t5encoder', false)];

/** What a file says of answers, as a folder's generation_config.json would. */
export function ggufGeneration(path: string): Json {
  using file = Gguf.open(path);
  const id = (name: string): unknown => file.get(`tokenizer.ggml.${name}_token_id`);
  return {
    decoder_start_token_id: file.get(`${String(file.get('general.architecture'))}.decoder_start_token_id`),
    pad_token_id: id('padding'),
    eos_token_id: id('eos'),
  };
}
