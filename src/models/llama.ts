// Llama by numbers: a model to train from scratch, its config.json, its tensors as transformers names them.
import type { DType } from '../base/dtype.js';
import { saveTensors } from '../io/load.js';
import type { AnyLinear } from '../nn/layers.js';
import type { BuilderOptions, VarBuilder } from '../nn/var-builder.js';
import { floats } from '../tensor/qtensor.js';
import type { Tensor } from '../tensor/tensor.js';
import { Config, type Json } from './files/config.js';
import { CausalLM } from './decoder/decoder.js';
import { LLAMA_NAMES } from './families/common.js';
import { llamaFeatures } from './families/llama.js';
import { loadModel } from './load.js';
import type { AttentionMixer } from './decoder/mixers.js';
import type { Dense } from './decoder/mlp.js';
import { Weights } from './decoder/weights.js';

/** The sizes of a Llama. */
export interface LlamaConfig {
  /** Tokens of the vocabulary. */
  readonly vocabSize: number;
  /** Width of a token's vector between layers. */
  readonly hiddenSize: number;
  /** Width inside the feed-forward branch. */
  readonly intermediateSize: number;
  /** How many layers. */
  readonly layers: number;
  /** Query heads of a layer. */
  readonly heads: number;
  /** Key and value heads of a layer; they divide `heads`. */
  readonly kvHeads: number;
  /** Width of a head. */
  readonly headDim: number;
  /** The longest context. */
  readonly maxPositions: number;
  /** What the norms add to the mean square: 1e-5. */
  readonly normEps: number;
  /** The base of the rope's frequencies: 10000 or 500000. */
  readonly ropeTheta: number;
  /** The head is the embedding's own table. */
  readonly tiedEmbeddings: boolean;
  /** The token that begins texts. */
  readonly bosTokenId?: number;
  /** The tokens that end answers. */
  readonly eosTokenIds: readonly number[];
}

/** What config.json must hold. */
export const llamaJson = (c: LlamaConfig, dtype: DType): Json => ({
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: c.vocabSize,
  hidden_size: c.hiddenSize,
  intermediate_size: c.intermediateSize,
  num_hidden_layers: c.layers,
  num_attention_heads: c.heads,
  num_key_value_heads: c.kvHeads,
  head_dim: c.headDim,
  max_position_embeddings: c.maxPositions,
  rms_norm_eps: c.normEps,
  rope_theta: c.ropeTheta,
  hidden_act: 'silu',
  tie_word_embeddings: c.tiedEmbeddings,
  attention_bias: false,
  mlp_bias: false,
  ...(c.bosTokenId !== undefined && { bos_token_id: c.bosTokenId }),
  ...(c.eosTokenIds.length > 0 && { eos_token_id: c.eosTokenIds.length === 1 ? c.eosTokenIds[0] : c.eosTokenIds }),
  torch_dtype: { f32: 'float32', bf16: 'bfloat16', f16: 'float16' }[dtype as 'f32'] ?? 'float32',
});

/** Llama by its sizes, to be trained from scratch; other models are loaded by `loadModel`. */
export class Llama extends CausalLM {
  constructor(
    config: LlamaConfig,
    vb: VarBuilder,
    options: {
      /** Share of the residual's additions dropped while training; default 0. */
      readonly dropout?: number;
    } = {},
  ) {
    const features = llamaFeatures(new Config(llamaJson(config, vb.dtype)));
    super(features, new Weights(vb, LLAMA_NAMES, config, features.biases), options);
  }
  /** A folder of model_type llama; those of other families are refused, CausalLM's loader takes them all. */
  static load(dir: string, options: BuilderOptions = {}): CausalLM {
    return loadModel<CausalLM>(dir, { ...options, kind: 'decoder', types: ['llama'] }).model;
  }

  /** The tensors by the names that transformers gives them. */
  hfTensors(): Map<string, Tensor> {
    const out = new Map<string, Tensor>([['model.embed_tokens.weight', floats(this.embed.weight, 'tensors')]]);
    const put = (prefix: string, l: AnyLinear, parts: readonly (readonly [string, number])[]): void => {
      let at = 0;
      for (const [name, n] of parts) {
        out.set(`${prefix}.${name}.weight`, floats(l.weight, 'tensors').detach().narrow(0, at, n));
        if (l.bias) out.set(`${prefix}.${name}.bias`, l.bias.detach().narrow(0, at, n));
        at += n;
      }
    };
    this.blocks.forEach((b, i) => {
      const at = `model.layers.${i}`;
      const [attention, mlp] = [b.mixer as AttentionMixer, b.mlp as Dense];
      const { heads, kvHeads, headDim } = attention.feature;
      out
        .set(`${at}.input_layernorm.weight`, b.beforeMixer?.weight as Tensor)
        .set(`${at}.post_attention_layernorm.weight`, b.beforeMlp?.weight as Tensor);
      put(`${at}.self_attn`, attention.qkv, [
        ['q_proj', heads * headDim],
        ['k_proj', kvHeads * headDim],
        ['v_proj', kvHeads * headDim],
      ]);
      put(`${at}.self_attn`, attention.out, [['o_proj', this.config.hiddenSize]]);
      put(`${at}.mlp`, mlp.gateUp, [
        ['gate_proj', mlp.feature.inner],
        ['up_proj', mlp.feature.inner],
      ]);
      put(`${at}.mlp`, mlp.down, [['down_proj', this.config.hiddenSize]]);
    });
    out.set('model.norm.weight', this.norm.weight as Tensor);
    if (!this.config.tied) out.set('lm_head.weight', floats(this.head.weight, 'tensors'));
    return out;
  }
  /** One safetensors file that transformers reads too. */
  saveWeights(path: string): void {
    saveTensors(path, this.hfTensors(), { metadata: { format: 'pt' } });
  }
}
