// Texts to vectors: an encoder with its tokenizer, and what sentence-transformers' files say comes after it.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ArgumentError, FormatError, UnsupportedError } from '../../base/errors.js';
import { type HubOptions, modelPath } from '../../hub/index.js';
import { Gguf } from '../../io/gguf.js';
import { readJsonFile } from '../../io/json-file.js';
import { readText } from '../../io/byte-source.js';
import { activation } from '../../nn/activation.js';
import { linear, type Linear } from '../../nn/layers.js';
import { type BuilderOptions, VarBuilder } from '../../nn/var-builder.js';
import { noGrad } from '../../tensor/autograd.js';
import { tensor } from '../../tensor/create.js';
import { keep, scope, wholeOrNothing } from '../../tensor/scope.js';
import type { Tensor } from '../../tensor/tensor.js';
import { loadTokenizer, type Tokenizer } from '../../tokenizers/index.js';
import { Config } from '../files/config.js';
import type { CausalLM } from '../decoder/decoder.js';
import { DecoderEncoder } from './decoder-encoder.js';
import type { TextEncoder } from './encoder.js';
import { loadModel } from '../load.js';
import type { ModelKind } from '../model-row.js';
import { MODELS, rowFor } from '../registry.js';
import { openModel } from '../files/source.js';
import { T5_FAMILIES } from '../seq2seq/t5.js';

/** A batch on its way to vectors. */
interface Batch {
  readonly hidden: Tensor;
  /** 1 where a token counts, (b, t) in f32. */
  readonly mask: Tensor;
}
type Pool = (batch: Batch) => Tensor;

const masked = ({ hidden, mask }: Batch): Tensor => hidden.mul(mask.unsqueeze(-1).cast(hidden.dtype));
const counted = (mask: Tensor): Tensor => mask.sum(1, true).maximum(1e-9);

/** Ways from a vector a token to one a text; several are put side by side, in this order. */
const POOLS: Readonly<Record<string, Pool>> = {
  cls: ({ hidden }) => hidden.narrow(1, 0, 1).squeeze(1),
  max: ({ hidden, mask }) => hidden.add(mask.unsqueeze(-1).affine(1e9, -1e9).cast(hidden.dtype)).max(1),
  mean: (b) => masked(b).sum(1).div(counted(b.mask).cast(b.hidden.dtype)),
  mean_sqrt_len_tokens: (b) => masked(b).sum(1).div(counted(b.mask).sqrt().cast(b.hidden.dtype)),
  weightedmean: ({ hidden, mask }) => {
    const t = mask.shape[1];
    const weights = mask.mul(
      tensor(
        Float32Array.from({ length: t }, (_, i) => i + 1),
        { device: mask.device },
      ),
    );
    return masked({ hidden, mask: weights }).sum(1).div(counted(weights).cast(hidden.dtype));
  },
  lasttoken: ({ hidden, mask }) => {
    const [b, t, width] = hidden.shape;
    const places = mask.mul(
      tensor(
        Float32Array.from({ length: t }, (_, i) => i + 1),
        { device: mask.device },
      ),
    );
    const last = places.argmax(1).cast('u32').reshape([b, 1, 1]).broadcastTo([b, 1, width]).contiguous();
    return hidden.gather(1, last).squeeze(1);
  },
};
/** The names that older files give to the same. */
const FLAGS: Readonly<Record<string, string>> = {
  pooling_mode_cls_token: 'cls',
  pooling_mode_max_tokens: 'max',
  pooling_mode_mean_tokens: 'mean',
  pooling_mode_mean_sqrt_len_tokens: 'mean_sqrt_len_tokens',
  pooling_mode_weightedmean_tokens: 'weightedmean',
  pooling_mode_lasttoken: 'lasttoken',
};

interface Pooling {
  readonly pools: readonly Pool[];
  /** A prompt's tokens count like any others. */
  readonly includePrompt: boolean;
}
function readPooling(path: string): Pooling {
  const c = new Config(readJsonFile(path), path);
  c.ignore('word_embedding_dimension', 'embedding_dimension');
  const named = c.get('pooling_mode');
  const flagged = Object.entries(FLAGS).flatMap(([flag, mode]) => (c.flag(flag, false) ? [mode] : []));
  const wanted = named === undefined ? flagged : Array.isArray(named) ? (named as string[]) : [String(named)];
  const includePrompt = c.flag('include_prompt', true);
  c.refuseUnread();
  const unknown = wanted.find((mode) => !Object.hasOwn(POOLS, mode));
  if (wanted.length === 0 || unknown !== undefined)
    throw new UnsupportedError(
      `${path}: pooling ${unknown ?? 'of no kind'}; served are ${Object.keys(POOLS).join(', ')}`,
    );
  // Side by side in the order of the table, whatever order the file has.
  return { pools: Object.keys(POOLS).flatMap((m) => (wanted.includes(m) ? [POOLS[m]] : [])), includePrompt };
}

type Step = (x: Tensor) => Tensor;
const unitLength: Step = (x) => x.div(x.sqr().sum(-1, true).sqrt().maximum(1e-12));

/** `torch.nn.modules.activation.Tanh` and its like, by their last names. */
const ACTIVATIONS: Readonly<Record<string, string>> = {
  Identity: 'identity',
  Tanh: 'tanh',
  ReLU: 'relu',
  GELU: 'gelu',
  SiLU: 'silu',
  Sigmoid: 'sigmoid',
};
function readDense(dir: string, options: BuilderOptions): { step: Step; layer: Linear } {
  const path = join(dir, 'config.json');
  const c = new Config(readJsonFile(path), path);
  c.ignore('module_input_name', 'module_output_name');
  const name = c.text('activation_function', 'torch.nn.modules.activation.Tanh').split('.').at(-1) as string;
  if (!Object.hasOwn(ACTIVATIONS, name))
    throw new UnsupportedError(`${path}: activation_function ${name} is not known`);
  const [inputs, outputs, bias] = [c.count('in_features'), c.count('out_features'), c.flag('bias', true)];
  c.refuseUnread();
  const file = ['model.safetensors', 'pytorch_model.bin'].map((f) => join(dir, f)).find(existsSync);
  if (!file) throw new FormatError(`${dir}: there is no model.safetensors`);
  const layer = linear(inputs, outputs, VarBuilder.fromFiles(file, options).pp('linear'), { bias });
  const f = activation(ACTIVATIONS[name]);
  return { layer, step: (x) => f(layer.forward(x)) };
}

/** Older files are named after the model that was trained. */
const SETTINGS = ['bert', 'roberta', 'distilbert', 'camembert', 'albert', 'xlm-roberta', 'xlnet'];
/** How texts are cut: sentence_bert_config.json and its like. */
function readSettings(home: string): { readonly lowercase: boolean; readonly limit: number | undefined } {
  const path = SETTINGS.map((name) => join(home, `sentence_${name}_config.json`)).find(existsSync);
  const c = new Config(path ? readJsonFile(path) : {}, path);
  // What a later version writes about the parts of a model, which are those that were always there.
  c.ignore('transformer_task', 'modality_config', 'method_output_name', 'module_output_name', 'model_type');
  c.only('model_args', {});
  c.only('tokenizer_args', {});
  c.only('config_args', {});
  const [lowercase, limit] = [c.flag('do_lower_case', false), c.optional('max_seq_length')];
  c.refuseUnread();
  return { lowercase, limit };
}
/** What stands before texts, and how much of a vector is kept: config_sentence_transformers.json. */
function readAbout(dir: string) {
  const path = join(dir, 'config_sentence_transformers.json');
  const c = new Config(existsSync(path) ? readJsonFile(path) : {}, path);
  c.ignore('__version__', 'similarity_fn_name');
  c.only('model_type', 'SentenceTransformer');
  const { json: prompts = {} } = c.inner('prompts') ?? {};
  c.inner('prompts')?.ignore(...Object.keys(prompts));
  const [defaultPrompt, truncated] = [c.get('default_prompt_name'), c.optional('truncate_dim')];
  c.refuseUnread();
  return {
    prompts: prompts as Readonly<Record<string, string>>,
    defaultPrompt: defaultPrompt as string | undefined,
    truncated,
  };
}

/** Options of `embed`. */
export interface EmbedOptions {
  /** A text before every text: its own words, or the name of one of the model's prompts. */
  readonly prompt?: string;
  /** The name of one of the model's prompts. */
  readonly promptName?: string;
  /** Texts at once; default 32. */
  readonly batchSize?: number;
  /** Bring every vector to length 1, also where the model's files do not. */
  readonly normalize?: boolean;
}

/** Texts as vectors: models of sentence-transformers and plain encoders. */
export class EmbeddingModel {
  /** The encoder itself. */
  readonly encoder: TextEncoder;
  /** How texts become tokens. */
  readonly tokenizer: Tokenizer;
  /** Texts that some tasks want before theirs, by name. */
  readonly prompts: Readonly<Record<string, string>>;
  /** The name of the prompt that is used where none is asked for. */
  readonly defaultPrompt: string | undefined;
  /** Tokens of a text that count, special ones included. */
  readonly maxTokens: number;
  readonly #pooling: Pooling;
  readonly #steps: readonly Step[];
  readonly #lowercase: boolean;
  readonly #layers: readonly Linear[];

  private constructor(parts: {
    encoder: TextEncoder;
    tokenizer: Tokenizer;
    pooling: Pooling;
    steps: readonly Step[];
    layers: readonly Linear[];
    prompts: Readonly<Record<string, string>>;
    defaultPrompt: string | undefined;
    maxTokens: number;
    lowercase: boolean;
  }) {
    this.encoder = parts.encoder;
    this.tokenizer = parts.tokenizer;
    this.prompts = parts.prompts;
    this.defaultPrompt = parts.defaultPrompt;
    this.maxTokens = parts.maxTokens;
    this.#pooling = parts.pooling;
    this.#steps = parts.steps;
    this.#layers = parts.layers;
    this.#lowercase = parts.lowercase;
  }

  /**
   * A folder of sentence-transformers, a plain encoder's, whose tokens' mean is taken, or a GGUF file, whose vectors
   * have length 1 as llama.cpp's programs give them.
   */
  static async load(name: string, options: BuilderOptions & HubOptions = {}): Promise<EmbeddingModel> {
    const path = await modelPath(name, options);
    const open = path.endsWith('.gguf') ? EmbeddingModel.#fromGguf : EmbeddingModel.#fromFolder;
    return wholeOrNothing(() => open(path, options));
  }
  static #fromFolder(dir: string, options: BuilderOptions): EmbeddingModel {
    const modules = readModules(dir);
    const [first, ...rest] = modules;
    if (first.kind !== 'Transformer')
      throw new UnsupportedError(`${dir}: the first module is ${first.kind}; only Transformer is served`);
    const home = join(dir, first.path);
    let pooling: Pooling | undefined;
    const steps: Step[] = [];
    const layers: Linear[] = [];
    for (const { kind, path } of rest) {
      if (kind === 'Pooling') pooling = readPooling(join(dir, path, 'config.json'));
      else if (kind === 'Normalize') steps.push(unitLength);
      else if (kind === 'Dense') {
        const dense = noGrad(() => readDense(join(dir, path), options));
        steps.push(dense.step);
        layers.push(dense.layer);
      } else throw new UnsupportedError(`${dir}: the module ${kind} is not known; Pooling, Dense and Normalize are`);
    }
    const encoder = encoderAt(home, options);
    const tokenizer = loadTokenizer(home);
    const { lowercase, limit } = readSettings(home);
    const { truncated, ...prompts } = readAbout(dir);
    return new EmbeddingModel({
      encoder,
      tokenizer,
      pooling: pooling ?? { pools: [POOLS.mean], includePrompt: true },
      steps: truncated === undefined ? steps : [...steps, (x) => x.narrow(-1, 0, Math.min(truncated, x.shape[1]))],
      layers,
      ...prompts,
      maxTokens: Math.min(limit ?? tokenizer.maxLength ?? encoder.maxTokens, encoder.maxTokens),
      lowercase,
    });
  }

  static #fromGguf(path: string, options: BuilderOptions): EmbeddingModel {
    const { architecture, pool } = ggufPooling(path);
    const encoder = encoderOf(path, rowFor(architecture, 'gguf', path).kind, options);
    const layers = noGrad(() => ggufDense(path, options));
    return new EmbeddingModel({
      ...{ encoder, tokenizer: loadTokenizer(path), maxTokens: encoder.maxTokens, lowercase: false },
      pooling: { pools: [pool], includePrompt: true },
      ...{
        steps: [
          ...layers.map(
            (l): Step =>
              (x) =>
                l.forward(x),
          ),
          unitLength,
        ],
        layers,
      },
      ...{ prompts: {}, defaultPrompt: undefined },
    });
  }

  /** One vector a text. */
  async embed(texts: readonly string[], options: EmbedOptions = {}): Promise<Float32Array[]> {
    const { batchSize = 32, normalize = false } = options;
    const prompt = this.#promptOf(options);
    const rows = texts.map((text) => {
      // Spaces at the ends are no part of a text, a prompt's included.
      const whole = (prompt + text).trim();
      return this.tokenizer.encode(this.#lowercase ? whole.toLowerCase() : whole, { maxLength: this.maxTokens });
    });
    const skipped = this.#pooling.includePrompt || prompt === '' ? 0 : this.#promptTokens(prompt);
    // Texts of like length share a batch, so that little of it is padding.
    const order = rows.map((_, i) => i).sort((a, b) => rows[b].length - rows[a].length);
    const out: Float32Array[] = new Array(texts.length);
    for (let at = 0; at < order.length; at += batchSize) {
      const chosen = order.slice(at, at + batchSize);
      const vectors = keep(
        scope(() =>
          noGrad(() =>
            this.#vectors(
              chosen.map((i) => rows[i]),
              skipped,
              normalize,
            ),
          ),
        ),
      );
      const data = (await vectors.data()) as Float32Array;
      const width = vectors.shape[1];
      chosen.forEach((i, j) => (out[i] = data.slice(j * width, (j + 1) * width)));
      vectors.dispose();
    }
    return out;
  }
  #promptOf({ prompt, promptName = this.defaultPrompt }: EmbedOptions): string {
    if (prompt !== undefined) return prompt;
    if (promptName === undefined) return '';
    if (!Object.hasOwn(this.prompts, promptName))
      throw new ArgumentError(
        `embed: there is no prompt ${JSON.stringify(promptName)}; there are ` +
          `${Object.keys(this.prompts).join(', ') || 'none'}`,
      );
    return this.prompts[promptName];
  }
  /** How many places at the front a prompt takes, without the special token that ends it. */
  #promptTokens(prompt: string): number {
    const words = prompt.trim();
    const ids = this.tokenizer.encode(this.#lowercase ? words.toLowerCase() : words, { maxLength: this.maxTokens });
    return ids.length - (this.tokenizer.isSpecial(ids.at(-1) ?? -1) ? 1 : 0);
  }
  #vectors(rows: readonly (readonly number[])[], skipped: number, normalize: boolean): Tensor {
    const { device } = this.encoder.parameters()[0];
    const t = Math.max(1, ...rows.map((r) => r.length));
    const pad = this.tokenizer.roleId('pad') ?? 0;
    const shape = [rows.length, t];
    const ids = tensor(Int32Array.from(rows.flatMap((r) => [...r, ...Array<number>(t - r.length).fill(pad)])), {
      shape,
      device,
    });
    const flags = (from: number): Tensor =>
      tensor(
        Float32Array.from(rows.flatMap((r) => Array.from({ length: t }, (_, i) => Number(i >= from && i < r.length)))),
        { shape, device },
      );
    const { hidden } = this.encoder.forward({ ids, mask: flags(0) });
    const batch = { hidden, mask: flags(skipped) };
    const pooled = this.#pooling.pools.map((pool) => pool(batch));
    let x = pooled[0].cat(pooled.slice(1), -1);
    for (const step of this.#steps) x = step(x);
    return (normalize ? unitLength(x) : x).cast('f32').contiguous();
  }
  /** Gives the weights' memory back. */
  dispose(): void {
    this.encoder.dispose();
    for (const layer of this.#layers) layer.dispose();
  }
}

/** Products that EmbeddingGemma's files may have behind the mean. */
const GGUF_DENSE = ['dense_2', 'dense_3'];
function ggufDense(path: string, options: BuilderOptions): Linear[] {
  const { source } = openModel(path, options);
  try {
    return GGUF_DENSE.filter((name) => source.has(`${name}.weight`)).map((name) => {
      const [outputs, inputs] = source.shapeOf(`${name}.weight`);
      return linear(inputs, outputs, source.builder.pp(name), { bias: source.has(`${name}.bias`) });
    });
  } finally {
    source.close();
  }
}

/** pooling_type's numbers. */
const GGUF_POOLS: Readonly<Record<number, Pool | undefined>> = { 1: POOLS.mean, 2: POOLS.cls, 3: POOLS.lasttoken };
/** How a GGUF file makes one vector of many, and whose it is. */
function ggufPooling(path: string): { readonly architecture: unknown; readonly pool: Pool } {
  using file = Gguf.open(path);
  const architecture = file.get('general.architecture');
  const key = `${String(architecture)}.pooling_type`;
  const type = file.get(key);
  const pool = GGUF_POOLS[Number(type)];
  if (pool) return { architecture, pool };
  throw new UnsupportedError(
    `${path}: ${key} is ${type === undefined ? 'missing' : String(type)}; vectors of texts are made by ` +
      '1 (the mean), 2 (the first token) or 3 (the last)',
  );
}

/** An encoder, the half of T5 that reads, or a decoder that makes vectors. */
export function encoderAt(home: string, options: BuilderOptions): TextEncoder {
  const config = join(home, 'config.json');
  const type: unknown = existsSync(config) ? readJsonFile(config).model_type : undefined;
  if (T5_FAMILIES.some((r) => r.types.includes(type as string)))
    return loadModel<TextEncoder>(home, { ...options, kind: 'seq2seq', encodes: true }).model;
  const decodes = MODELS.some((r) => r.kind === 'decoder' && r.types.includes(type as string));
  return encoderOf(home, decodes ? 'decoder' : 'encoder', options);
}
function encoderOf(home: string, kind: ModelKind, options: BuilderOptions): TextEncoder {
  if (kind !== 'decoder') return loadModel<TextEncoder>(home, { ...options, kind: 'encoder' }).model;
  return new DecoderEncoder(loadModel<CausalLM>(home, { ...options, kind: 'decoder', encodes: true }).model);
}
/** modules.json: the last name of each module's class, and its folder. */
function readModules(dir: string): { kind: string; path: string }[] {
  const path = join(dir, 'modules.json');
  if (!existsSync(path)) return [{ kind: 'Transformer', path: '' }];
  const list: unknown = JSON.parse(readText(path, 2 ** 20));
  if (!Array.isArray(list) || list.length === 0) throw new FormatError(`${path}: is not a list of modules`);
  return (list as { type: string; path: string }[]).map(({ type, path: at }) => ({
    kind: type.split('.').at(-1) as string,
    path: at,
  }));
}
