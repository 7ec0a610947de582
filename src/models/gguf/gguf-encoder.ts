// Encoders in GGUF files (bge, E5, MiniLM, nomic-embed, Jina, ModernBERT and rerankers): each is read as the folder
// that llama.cpp's converter was given.
import { UnsupportedError } from '../../base/errors.js';
import { BERT_FAMILIES } from '../encoders/bert.js';
import { OTHER_BERT_FAMILIES } from '../encoders/bert-others.js';
import { Config, type Json } from '../files/config.js';
import { Metadata } from './metadata.js';
import type { ModelRow } from '../model-row.js';
import { ROTARY_BERT_FAMILIES } from '../encoders/rotary-bert.js';
import { ModelSource } from '../files/source.js';

export type Rules = readonly (readonly [file: RegExp, folder: string])[];

interface EncoderArchitecture {
  readonly name: string;
  /** The type of the folder. */
  readonly type: string;
  readonly rules: Rules;
  /** What a config says of this type alone. */
  readonly config: (m: Metadata) => Json;
}

/** Rerankers and other classifiers: a product on top, and the names of its classes. */
const hasHead = (m: Metadata): boolean => m.source.has('cls.output.weight');
function headLabels(m: Metadata): Json {
  const labels = Array.from((m.get('classifier.output_labels') ?? []) as Iterable<string>);
  return { architectures: ['BertForSequenceClassification'], id2label: { ...labels } };
}
function bertHead(m: Metadata): Json {
  if (!hasHead(m)) return {};
  // BERT's own head reads what its pooler makes, DistilBERT's bends otherwise.
  const lost = !m.source.has('cls.weight') ? 'pooler' : m.source.has('token_types.weight') ? undefined : 'activation';
  if (lost !== undefined)
    throw new UnsupportedError(
      `${m.source.path}: has a head for classes (cls.output.weight) but not its ${lost}, which the converter leaves ` +
        'out: its scores would not be those of the model',
    );
  return headLabels(m);
}

/** What both of Nomic's have. */
const NOMIC: Rules = [
  [/^token_embd\./, 'embeddings.word_embeddings.'],
  [/^token_types\./, 'embeddings.token_type_embeddings.'],
  [/^token_embd_norm\./, 'emb_ln.'],
  [/^blk\.(\d+)\.attn_qkv\./, 'encoder.layers.$1.attn.Wqkv.'],
  [/^blk\.(\d+)\.attn_output\./, 'encoder.layers.$1.attn.out_proj.'],
  [/^blk\.(\d+)\.attn_output_norm\./, 'encoder.layers.$1.norm1.'],
  [/^blk\.(\d+)\.ffn_down\./, 'encoder.layers.$1.mlp.fc2.'],
  [/^blk\.(\d+)\.layer_output_norm\./, 'encoder.layers.$1.norm2.'],
];
/** Whether a product of the first layer has a bias: files say it with tensors alone. */
const biased = (m: Metadata, name: string): boolean => m.source.has(`blk.0.${name}.bias`);

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
      // RoBERTa's head does to the first token what BERT's pooler and head do.
      [/^cls\.output\./, 'classifier.'],
      [/^cls\./, 'pooler.dense.'],
    ],
    config: (m) => ({ hidden_act: 'gelu', ...bertHead(m) }),
  },
  {
    name: 'modern-bert',
    type: 'modernbert',
    rules: [
      [/^token_embd\./, 'embeddings.tok_embeddings.'],
      [/^token_embd_norm\./, 'embeddings.norm.'],
      [/^output_norm\./, 'final_norm.'],
      [/^blk\.(\d+)\.attn_norm\./, 'layers.$1.attn_norm.'],
      [/^blk\.(\d+)\.attn_qkv\./, 'layers.$1.attn.Wqkv.'],
      [/^blk\.(\d+)\.attn_output\./, 'layers.$1.attn.Wo.'],
      [/^blk\.(\d+)\.ffn_norm\./, 'layers.$1.mlp_norm.'],
      [/^blk\.(\d+)\.ffn_up\./, 'layers.$1.mlp.Wi.'],
      [/^blk\.(\d+)\.ffn_down\./, 'layers.$1.mlp.Wo.'],
      [/^cls\.output\./, 'classifier.'],
      [/^cls\.norm\./, 'head.norm.'],
      [/^cls\./, 'head.dense.'],
    ],
    config: (m) => ({
      norm_eps: m.number('attention.layer_norm_epsilon'),
      hidden_activation: m.get('hidden_activation') ?? 'gelu',
      local_attention: m.number('attention.sliding_window'),
      global_attn_every_n_layers: m.number('attention.sliding_window_pattern', 3),
      global_rope_theta: m.number('rope.freq_base', 160_000),
      local_rope_theta: m.number('rope.freq_base_swa', 10_000),
      // Heads of these files read the mean of a text; a folder's may read the first token, and files do not say.
      ...(hasHead(m) && { ...headLabels(m), classifier_pooling: 'mean' }),
    }),
  },
  {
    name: 'eurobert',
    type: 'eurobert',
    rules: [
      [/^token_embd\./, 'embed_tokens.'],
      [/^output_norm\./, 'norm.'],
      [/^blk\.(\d+)\.attn_norm\./, 'layers.$1.input_layernorm.'],
      [/^blk\.(\d+)\.attn_([qkv])\./, 'layers.$1.self_attn.$2_proj.'],
      [/^blk\.(\d+)\.attn_output\./, 'layers.$1.self_attn.o_proj.'],
      [/^blk\.(\d+)\.ffn_norm\./, 'layers.$1.post_attention_layernorm.'],
      [/^blk\.(\d+)\.ffn_(gate|up|down)\./, 'layers.$1.mlp.$2_proj.'],
    ],
    config: (m) => ({
      hidden_act: 'silu',
      rms_norm_eps: m.number('attention.layer_norm_rms_epsilon'),
      num_key_value_heads: m.optional('attention.head_count_kv'),
      head_dim: m.optional('attention.key_length'),
      rope_theta: m.number('rope.freq_base', 10_000),
    }),
  },
  {
    name: 'jina-bert-v3',
    type: 'jina_embeddings_v3',
    rules: [
      [/^token_embd\./, 'embeddings.word_embeddings.'],
      [/^token_types\./, 'embeddings.token_type_embeddings.'],
      [/^token_embd_norm\./, 'emb_ln.'],
      [/^blk\.(\d+)\.attn_qkv\./, 'encoder.layers.$1.mixer.Wqkv.'],
      [/^blk\.(\d+)\.attn_output\./, 'encoder.layers.$1.mixer.out_proj.'],
      [/^blk\.(\d+)\.attn_output_norm\./, 'encoder.layers.$1.norm1.'],
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layers.$1.mlp.fc1.'],
      [/^blk\.(\d+)\.ffn_down\./, 'encoder.layers.$1.mlp.fc2.'],
      [/^blk\.(\d+)\.layer_output_norm\./, 'encoder.layers.$1.norm2.'],
    ],
    config: (m) => ({ hidden_act: 'gelu', rope_theta: m.number('rope.freq_base', 20_000) }),
  },
  {
    name: 'nomic-bert',
    type: 'nomic_bert',
    rules: [
      ...NOMIC,
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layers.$1.mlp.fc11.'],
      [/^blk\.(\d+)\.ffn_gate\./, 'encoder.layers.$1.mlp.fc12.'],
    ],
    config: (m) => ({
      hidden_act: 'silu',
      rotary_emb_base: m.number('rope.freq_base', 1000),
      head_dim: m.optional('attention.key_length'),
    }),
  },
  {
    name: 'nomic-bert-moe',
    type: 'nomic_bert',
    rules: [
      ...NOMIC,
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layers.$1.mlp.fc1.'],
      [/^blk\.(\d+)\.ffn_gate_inp\./, 'encoder.layers.$1.mlp.router.layer.'],
      [/^blk\.(\d+)\.ffn_(up|down)_exps\./, 'encoder.layers.$1.mlp.experts.$2.'],
    ],
    config: (m) => ({
      activation_function: 'gelu',
      rotary_emb_base: m.number('rope.freq_base', 10_000),
      head_dim: m.optional('attention.key_length'),
      ...{
        qkv_proj_bias: biased(m, 'attn_qkv'),
        mlp_fc1_bias: biased(m, 'ffn_up'),
        mlp_fc2_bias: biased(m, 'ffn_down'),
      },
      ...{ num_experts: m.number('expert_count', 0), moe_top_k: m.optional('expert_used_count') },
      moe_every_n_layers: m.number('moe_every_n_layers', 0),
    }),
  },
  {
    name: 'jina-bert-v2',
    type: 'bert',
    rules: [
      [/^token_embd\./, 'embeddings.word_embeddings.'],
      [/^token_types\./, 'embeddings.token_type_embeddings.'],
      [/^token_embd_norm\./, 'embeddings.LayerNorm.'],
      [/^blk\.(\d+)\.attn_q\./, 'encoder.layer.$1.attention.self.query.'],
      [/^blk\.(\d+)\.attn_k\./, 'encoder.layer.$1.attention.self.key.'],
      [/^blk\.(\d+)\.attn_v\./, 'encoder.layer.$1.attention.self.value.'],
      [/^blk\.(\d+)\.attn_([qk])_norm\./, 'encoder.layer.$1.attention.self.layer_norm_$2.'],
      [/^blk\.(\d+)\.attn_output\./, 'encoder.layer.$1.attention.output.dense.'],
      [/^blk\.(\d+)\.attn_output_norm\./, 'encoder.layer.$1.attention.output.LayerNorm.'],
      [/^blk\.(\d+)\.attn_norm_2\./, 'encoder.layer.$1.layer_norm_1.'],
      [/^blk\.(\d+)\.ffn_up\./, 'encoder.layer.$1.mlp.gated_layers.'],
      [/^blk\.(\d+)\.ffn_gate\./, 'encoder.layer.$1.mlp.gated_layers_w.'],
      [/^blk\.(\d+)\.ffn_down\./, 'encoder.layer.$1.mlp.wo.'],
      [/^blk\.(\d+)\.layer_output_norm\./, 'encoder.layer.$1.mlp.layernorm.'],
    ],
    config: () => ({ hidden_act: 'gelu', position_embedding_type: 'alibi', feed_forward_type: 'geglu' }),
  },
];

/** The config of the folder. */
function configOf(m: Metadata, { type, config }: EncoderArchitecture): Json {
  const { source } = m;
  if (m.get('attention.causal') === true)
    throw new UnsupportedError(`${source.path}: ${m.architecture}.attention.causal is true; encoders look both ways`);
  m.get('pooling_type'); // what makes one vector of many asks for it
  const scaling = m.get('rope.scaling.type');
  if (scaling !== undefined && scaling !== 'none') throw m.wrong('rope.scaling.type', 'none, as of other encoders');
  const json = {
    model_type: type,
    hidden_size: m.number('embedding_length'),
    num_hidden_layers: m.layers(),
    num_attention_heads: m.number('attention.head_count'),
    intermediate_size: m.number('feed_forward_length'),
    max_position_embeddings: m.number('context_length'),
    vocab_size: source.shapeOf('token_embd.weight')[0],
    type_vocab_size: source.has('token_types.weight') ? source.shapeOf('token_types.weight')[0] : 0,
    ...(!m.has('attention.layer_norm_rms_epsilon') && { layer_norm_eps: m.number('attention.layer_norm_epsilon') }),
    ...config(m),
  };
  m.refuseUnread();
  return json;
}

/** The same tensors under the names of the folder; those without one stay unused, and are refused. */
export function asFolder(source: ModelSource, rules: Rules): ModelSource {
  const records = source.names.flatMap((name) => {
    const rule = rules.find(([file]) => file.test(name));
    return rule ? [[name.replace(...rule), () => source.record(name)] as const] : [];
  });
  const { device, dtype } = source.builder;
  return new ModelSource('huggingface', source.path, new Map(records), { device, dtype });
}

const FOLDERS = [...BERT_FAMILIES, ...OTHER_BERT_FAMILIES, ...ROTARY_BERT_FAMILIES];

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
