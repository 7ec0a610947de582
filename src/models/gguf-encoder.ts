// Encoders in GGUF files (bge, E5, MiniLM, nomic-embed): each is read as the folder that llama.cpp's converter was given.
import { UnsupportedError } from '../base/errors.js';
import { BERT_FAMILIES } from './bert.js';
import { Config, type Json } from './config.js';
import { Metadata } from './families/gguf-metadata.js';
import type { ModelRow } from './model-row.js';
import { ROTARY_BERT_FAMILIES } from './rotary-bert.js';
import { ModelSource } from './source.js';

type Rules = readonly (readonly [file: RegExp, folder: string])[];

interface EncoderArchitecture {
  readonly name: string;
  /** The type of the folder. */
  readonly type: string;
  readonly rules: Rules;
  /** What a config says of this type alone. */
  readonly config: (m: Metadata) => Json;
}

const ARCHITECTURES: readonly EncoderArchitecture[] = [
  {
    name: 'bert',
    type: 'bert',
    rules: [
      [/^token_embd\./, 'embeddings.word_embeddings.'],
      // RoBERTa's begin at the first position here: what is counted from the padding's number on was cut off.
      [/^position_embd\./, 'embeddings.position_embeddings.'],
      [/^token_types\./, 'embeddings.token_type_embeddings.'],
      [/^token_embd_norm\./, 'embeddings.LayerNorm.'],
      [/^blk\.(\d+)\.attn_q\./, 'encoder.layer.$1.attention.self.query.'],
      [/^blk\.(\d+)\.attn_k\./, 'encoder.layer.$1.attention.self.key.'],
      [/^blk\.(\d+)\.attn_v\./, 'encoder.layer.$1.attention.self.value.'],
      [/^blk\.(\d+)\.attn_output\./, 'encoder.layer.$1.attention.output.dense.'],
      [/^blk\.(\d+)\.attn_output_norm\./, 'encoder.layer.$1.attention.output.LayerNorm.'],
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layer.$1.intermediate.dense.'],
      [/^blk\.(\d+)\.ffn_down\./, 'encoder.layer.$1.output.dense.'],
      [/^blk\.(\d+)\.layer_output_norm\./, 'encoder.layer.$1.output.LayerNorm.'],
    ],
    config: () => ({ hidden_act: 'gelu' }),
  },
  {
    name: 'nomic-bert',
    type: 'nomic_bert',
    rules: [
      [/^token_embd\./, 'embeddings.word_embeddings.'],
      [/^token_types\./, 'embeddings.token_type_embeddings.'],
      [/^token_embd_norm\./, 'emb_ln.'],
      [/^blk\.(\d+)\.attn_qkv\./, 'encoder.layers.$1.attn.Wqkv.'],
      [/^blk\.(\d+)\.attn_output\./, 'encoder.layers.$1.attn.out_proj.'],
      [/^blk\.(\d+)\.attn_output_norm\./, 'encoder.layers.$1.norm1.'],
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layers.$1.mlp.fc11.'],
      [/^blk\.(\d+)\.ffn_gate\./, 'encoder.layers.$1.mlp.fc12.'],
      [/^blk\.(\d+)\.ffn_down\./, 'encoder.layers.$1.mlp.fc2.'],
      [/^blk\.(\d+)\.layer_output_norm\./, 'encoder.layers.$1.norm2.'],
    ],
    config: (m) => ({
      hidden_act: 'silu',
      rotary_emb_base: m.number('rope.freq_base', 1000),
      head_dim: m.optional('attention.key_length'),
    }),
  },
];

/** The config of the folder. */
function configOf(m: Metadata, { type, config }: EncoderArchitecture): Json {
  const { source } = m;
  if (m.get('attention.causal') === true)
    throw new UnsupportedError(`${source.path}: ${m.architecture}.attention.causal is true; encoders look both ways`);
  m.get('pooling_type'); // what makes one vector of many asks for it
  const json = {
    model_type: type,
    hidden_size: m.number('embedding_length'),
    num_hidden_layers: m.layers(),
    num_attention_heads: m.number('attention.head_count'),
    intermediate_size: m.number('feed_forward_length'),
    max_position_embeddings: m.number('context_length'),
    vocab_size: source.shapeOf('token_embd.weight')[0],
    type_vocab_size: source.has('token_types.weight') ? source.shapeOf('token_types.weight')[0] : 0,
    layer_norm_eps: m.number('attention.layer_norm_epsilon'),
    ...config(m),
  };
  m.refuseUnread();
  return json;
}

/** The same tensors under the names of the folder; those without one stay unused, and are refused. */
function asFolder(source: ModelSource, rules: Rules): ModelSource {
  const records = source.names.flatMap((name) => {
    const rule = rules.find(([file]) => file.test(name));
    return rule ? [[name.replace(...rule), () => source.record(name)] as const] : [];
  });
  const { device, dtype } = source.builder;
  return new ModelSource('huggingface', source.path, new Map(records), { device, dtype });
}

const FOLDERS = [...BERT_FAMILIES, ...ROTARY_BERT_FAMILIES];

export const GGUF_ENCODERS: readonly ModelRow[] = ARCHITECTURES.map((architecture) => ({
  kind: 'encoder',
  types: [],
  architectures: [architecture.name],
  build: (_, source, options) => {
    const folder = FOLDERS.find((r) => r.types.includes(architecture.type)) as ModelRow;
    const config = new Config(configOf(new Metadata(source), architecture), source.path);
    return folder.build(config, asFolder(source, architecture.rules), options);
  },
}));
