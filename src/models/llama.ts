// Llama in one file: config.json and safetensors in, logits out. Mistral- and Qwen2-style variants differ by biases and names only.
import { join } from 'node:path';
import type { DType } from '../base/dtype.js';
import { ArgumentError, FormatError, UnsupportedError } from '../base/errors.js';
import { readJsonFile } from '../io/json-file.js';
import { saveTensors } from '../io/load.js';
import { noGrad } from '../tensor/autograd.js';
import { tensor } from '../tensor/create.js';
import type { Device } from '../tensor/device.js';
import { keep } from '../tensor/scope.js';
import type { Tensor } from '../tensor/tensor.js';
import { type Init, normal, ONE } from '../nn/init.js';
import { type Cache, KvCache } from '../nn/kv-cache.js';
import { dropout, Embedding, Linear, RmsNorm } from '../nn/layers.js';
import { Module } from '../nn/module.js';
import { type BuilderOptions, VarBuilder } from '../nn/var-builder.js';

export interface RopeScaling {
  readonly type: string;
  readonly factor?: number;
  readonly lowFreqFactor?: number;
  readonly highFreqFactor?: number;
  readonly originalMaxPositions?: number;
}
export interface LlamaConfig {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly maxPositions: number;
  readonly normEps: number;
  readonly ropeTheta: number;
  readonly ropeScaling?: RopeScaling;
  readonly tiedEmbeddings: boolean;
  readonly bosTokenId?: number;
  readonly eosTokenIds: readonly number[];
}

type Json = Readonly<Record<string, any>>;

/** Names as transformers writes them in config.json. */
export function llamaConfig(json: Json): LlamaConfig {
  const need = (name: string): number => {
    if (typeof json[name] !== 'number')
      throw new FormatError(`config.json: ${name} is ${JSON.stringify(json[name])}, not a number`);
    return json[name] as number;
  };
  if (json.hidden_act !== undefined && json.hidden_act !== 'silu')
    throw new UnsupportedError(`llama: hidden_act ${JSON.stringify(json.hidden_act)}; the model is defined with silu`);
  const rope: Json = json.rope_parameters ?? json.rope_scaling ?? {};
  const type: string = rope.rope_type ?? rope.type ?? 'default';
  const heads = need('num_attention_heads');
  const hiddenSize = need('hidden_size');
  const eos = json.eos_token_id;
  return {
    vocabSize: need('vocab_size'),
    hiddenSize,
    intermediateSize: need('intermediate_size'),
    layers: need('num_hidden_layers'),
    heads,
    kvHeads: json.num_key_value_heads ?? heads,
    headDim: json.head_dim ?? hiddenSize / heads,
    maxPositions: json.max_position_embeddings ?? 2048,
    normEps: json.rms_norm_eps ?? 1e-6,
    ropeTheta: json.rope_theta ?? rope.rope_theta ?? 10000,
    ...(type !== 'default' && {
      ropeScaling: {
        type,
        factor: rope.factor,
        lowFreqFactor: rope.low_freq_factor,
        highFreqFactor: rope.high_freq_factor,
        originalMaxPositions: rope.original_max_position_embeddings,
      },
    }),
    tiedEmbeddings: json.tie_word_embeddings ?? false,
    ...(typeof json.bos_token_id === 'number' && { bosTokenId: json.bos_token_id }),
    eosTokenIds: Array.isArray(eos) ? eos : typeof eos === 'number' ? [eos] : [],
  };
}
/** The other way: what config.json must hold. */
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

/** Angles per position, headDim / 2 of them, with Llama 3's stretching of the slow ones. */
export function inverseFrequencies(c: Pick<LlamaConfig, 'headDim' | 'ropeTheta' | 'ropeScaling'>): number[] {
  const base = Array.from({ length: c.headDim / 2 }, (_, i) => 1 / c.ropeTheta ** ((2 * i) / c.headDim));
  const s = c.ropeScaling;
  if (!s) return base;
  const { factor = 1 } = s;
  if (s.type === 'linear') return base.map((f) => f / factor);
  if (s.type !== 'llama3')
    throw new UnsupportedError(`llama: rope type ${JSON.stringify(s.type)}; known are default, linear and llama3`);
  const { lowFreqFactor: low = 1, highFreqFactor: high = 4, originalMaxPositions: positions = 8192 } = s;
  return base.map((f) => {
    const length = (2 * Math.PI) / f;
    if (length < positions / high) return f;
    if (length > positions / low) return f / factor;
    const smooth = (positions / length - low) / (high - low);
    return ((1 - smooth) * f) / factor + smooth * f;
  });
}

/** Cosines and sines of every position, (positions, headDim / 2). */
export class Rotary {
  readonly cos: Tensor;
  readonly sin: Tensor;
  constructor(
    c: Pick<LlamaConfig, 'headDim' | 'ropeTheta' | 'ropeScaling'>,
    positions: number,
    dtype: DType,
    device: Device,
  ) {
    const freqs = inverseFrequencies(c);
    const table = (f: (x: number) => number): Tensor => {
      const data = new Float32Array(positions * freqs.length);
      for (let p = 0; p < positions; p++)
        freqs.forEach((w, i) => (data[p * freqs.length + i] = f(Math.fround(p * Math.fround(w)))));
      return keep(tensor(data, { shape: [positions, freqs.length], device }).cast(dtype));
    };
    this.cos = table(Math.cos);
    this.sin = table(Math.sin);
  }
}

export class LlamaAttention extends Module {
  /** Queries, keys and values in one product. */
  readonly qkv: Linear;
  readonly out: Linear;
  readonly #c: LlamaConfig;
  constructor(qkv: Linear, out: Linear, config: LlamaConfig) {
    super();
    this.qkv = qkv;
    this.out = out;
    this.#c = config;
  }
  forward(x: Tensor, cos: Tensor, sin: Tensor, cache?: Cache): Tensor {
    const { heads, kvHeads, headDim } = this.#c;
    const [b, t] = x.shape;
    const all = this.qkv.forward(x); // (b, t, (heads + 2 kvHeads) headDim)
    const part = (from: number, n: number): Tensor =>
      all.narrow(2, from * headDim, n * headDim).reshape([b, t, n, headDim]);
    const q = part(0, heads).ropeThd(cos, sin); // (b, t, heads, headDim)
    const k = part(heads, kvHeads).ropeThd(cos, sin);
    const v = part(heads + kvHeads, kvHeads);
    if (!cache)
      return this.out.forward(q.sdpa(k, v, { causal: true, layout: 'bthd' }).reshape([b, t, heads * headDim]));
    const [keys, values] = cache.append(k.permute([0, 2, 1, 3]), v.permute([0, 2, 1, 3])); // (b, kvHeads, all, headDim)
    const y = q.permute([0, 2, 1, 3]).sdpa(keys, values, { causal: true }); // (b, heads, t, headDim)
    return this.out.forward(y.permute([0, 2, 1, 3]).reshape([b, t, heads * headDim]));
  }
}

export class LlamaMlp extends Module {
  /** Gate and up in one product. */
  readonly gateUp: Linear;
  readonly down: Linear;
  constructor(gateUp: Linear, down: Linear) {
    super();
    this.gateUp = gateUp;
    this.down = down;
  }
  forward(x: Tensor): Tensor {
    return this.down.forward(this.gateUp.forward(x).swiglu());
  }
}

export class LlamaBlock extends Module {
  readonly norm1: RmsNorm;
  readonly attention: LlamaAttention;
  readonly norm2: RmsNorm;
  readonly mlp: LlamaMlp;
  constructor(norm1: RmsNorm, attention: LlamaAttention, norm2: RmsNorm, mlp: LlamaMlp) {
    super();
    this.norm1 = norm1;
    this.attention = attention;
    this.norm2 = norm2;
    this.mlp = mlp;
  }
  forward(x: Tensor, cos: Tensor, sin: Tensor, cache?: Cache, drop = 0): Tensor {
    const h = x.add(dropout(this.attention.forward(this.norm1.forward(x), cos, sin, cache), drop));
    return h.add(dropout(this.mlp.forward(this.norm2.forward(h)), drop));
  }
}

export class Llama extends Module {
  readonly config: LlamaConfig;
  readonly embed: Embedding;
  readonly blocks: LlamaBlock[];
  readonly norm: RmsNorm;
  /** The embedding's own tensor where they are tied. */
  readonly head: Linear;
  /** Share of the residual's additions dropped while training. */
  readonly dropout: number;
  #rotary: Rotary | undefined;

  constructor(config: LlamaConfig, vb: VarBuilder, options: { readonly dropout?: number } = {}) {
    super();
    this.dropout = options.dropout ?? 0;
    this.config = config;
    const c = config;
    const deep = normal(0, 0.02 / Math.sqrt(2 * c.layers)); // what adds to the residual begins smaller in deep models
    this.embed = new Embedding(vb.get([c.vocabSize, c.hiddenSize], 'model.embed_tokens.weight', normal(0, 0.02)));
    this.blocks = Array.from({ length: c.layers }, (_, i) => {
      const layer = vb.pp('model', 'layers', i);
      const norm = (name: string): RmsNorm => new RmsNorm(layer.get([c.hiddenSize], `${name}.weight`, ONE), c.normEps);
      const attn = layer.pp('self_attn');
      const mlp = layer.pp('mlp');
      const width = c.heads * c.headDim;
      const attention = new LlamaAttention(
        joined(
          attn,
          [
            ['q_proj', width],
            ['k_proj', c.kvHeads * c.headDim],
            ['v_proj', c.kvHeads * c.headDim],
          ],
          c.hiddenSize,
        ),
        joined(attn, [['o_proj', c.hiddenSize]], width, deep),
        c,
      );
      const feed = new LlamaMlp(
        joined(
          mlp,
          [
            ['gate_proj', c.intermediateSize],
            ['up_proj', c.intermediateSize],
          ],
          c.hiddenSize,
        ),
        joined(mlp, [['down_proj', c.hiddenSize]], c.intermediateSize, deep),
      );
      return new LlamaBlock(norm('input_layernorm'), attention, norm('post_attention_layernorm'), feed);
    });
    this.norm = new RmsNorm(vb.get([c.hiddenSize], 'model.norm.weight', ONE), c.normEps);
    this.head = new Linear(
      c.tiedEmbeddings ? this.embed.weight : vb.get([c.vocabSize, c.hiddenSize], 'lm_head.weight', normal(0, 0.02)),
    );
  }

  /** A folder with config.json and model.safetensors (or shards and their index). */
  static load(dir: string, options: BuilderOptions = {}): Llama {
    const json = readJsonFile(join(dir, 'config.json')) as Json;
    return noGrad(() => new Llama(llamaConfig(json), VarBuilder.fromFiles(dir, options))).eval();
  }

  get device(): Device {
    return this.embed.weight.device;
  }
  get dtype(): DType {
    return this.embed.weight.dtype;
  }
  /** Tables of the rotary embedding for at least this many positions. */
  rotary(positions: number = this.config.maxPositions): Rotary {
    if (
      !this.#rotary ||
      this.#rotary.cos.shape[0] < positions ||
      this.#rotary.cos.device !== this.device ||
      this.#rotary.cos.dtype !== this.dtype
    ) {
      this.#rotary = new Rotary(
        this.config,
        Math.max(positions, Math.min(this.config.maxPositions, 8192)),
        this.dtype,
        this.device,
      );
    }
    return this.#rotary;
  }
  newCache(): KvCache[] {
    return this.blocks.map(() => new KvCache());
  }

  /** Logits (b, t, vocab) of token numbers (b, t); with a cache the tokens follow those already in it. `last` gives the last position only. */
  forward(ids: Tensor, cache?: readonly Cache[], options: { readonly last?: boolean } = {}): Tensor {
    if (ids.rank !== 2)
      throw new ArgumentError(`llama: token numbers have shape [${ids.shape.join(', ')}]; they must be (batch, time)`);
    const t = ids.shape[1];
    const start = cache?.[0].length ?? 0;
    const rotary = this.rotary(start + t);
    const [cos, sin] = [rotary.cos.narrow(0, start, t), rotary.sin.narrow(0, start, t)];
    const drop = this.training ? this.dropout : 0;
    let x = dropout(this.embed.forward(ids), drop); // (b, t, hidden)
    this.blocks.forEach((block, i) => (x = block.forward(x, cos, sin, cache?.[i], drop)));
    if (options.last) x = x.narrow(1, t - 1, 1);
    return this.head.forward(this.norm.forward(x));
  }

  /** The tensors by the names that transformers gives them. */
  hfTensors(): Map<string, Tensor> {
    const c = this.config;
    const out = new Map<string, Tensor>([['model.embed_tokens.weight', this.embed.weight]]);
    const put = (prefix: string, l: Linear, parts: readonly (readonly [string, number])[]): void => {
      let at = 0;
      for (const [name, n] of parts) {
        out.set(`${prefix}.${name}.weight`, l.weight.detach().narrow(0, at, n));
        if (l.bias) out.set(`${prefix}.${name}.bias`, l.bias.detach().narrow(0, at, n));
        at += n;
      }
    };
    this.blocks.forEach((b, i) => {
      const at = `model.layers.${i}`;
      out
        .set(`${at}.input_layernorm.weight`, b.norm1.weight)
        .set(`${at}.post_attention_layernorm.weight`, b.norm2.weight);
      put(`${at}.self_attn`, b.attention.qkv, [
        ['q_proj', c.heads * c.headDim],
        ['k_proj', c.kvHeads * c.headDim],
        ['v_proj', c.kvHeads * c.headDim],
      ]);
      put(`${at}.self_attn`, b.attention.out, [['o_proj', c.hiddenSize]]);
      put(`${at}.mlp`, b.mlp.gateUp, [
        ['gate_proj', c.intermediateSize],
        ['up_proj', c.intermediateSize],
      ]);
      put(`${at}.mlp`, b.mlp.down, [['down_proj', c.hiddenSize]]);
    });
    out.set('model.norm.weight', this.norm.weight);
    if (!c.tiedEmbeddings) out.set('lm_head.weight', this.head.weight);
    return out;
  }
  /** One safetensors file that transformers reads too. */
  saveWeights(path: string): void {
    saveTensors(path, this.hfTensors(), { metadata: { format: 'pt' } });
  }
}

/** One product for several stored ones that share an input; biases where the file has them. */
function joined(
  vb: VarBuilder,
  parts: readonly (readonly [name: string, outputs: number])[],
  inputs: number,
  init: Init = normal(0, 0.02),
): Linear {
  const [[first, n]] = parts;
  const together = parts.map(([name]) => name).join('+');
  // A map of trained tensors keeps what belongs together as one.
  if (!vb.has(`${first}.weight`))
    return new Linear(vb.get([parts.reduce((a, [, k]) => a + k, 0), inputs], `${together}.weight`, init));
  if (parts.length === 1)
    return new Linear(
      vb.get([n, inputs], `${first}.weight`, init),
      vb.has(`${first}.bias`) ? vb.get([n], `${first}.bias`) : undefined,
    );
  const cat = (suffix: string, shape: (k: number) => number[]): Tensor => {
    const stored = parts.map(([name, k]) => vb.get(shape(k), `${name}.${suffix}`));
    const whole = keep(stored[0].cat(stored.slice(1), 0));
    for (const t of stored) t.dispose();
    return whole;
  };
  return new Linear(
    cat('weight', (k) => [k, inputs]),
    parts.every(([name]) => vb.has(`${name}.bias`)) ? cat('bias', (k) => [k]) : undefined,
  );
}
