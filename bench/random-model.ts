// Models of well-known shapes with random weights, and a tokenizer of whole words to go with them: speed asks for no
// more.
import { type Device, type DType, Generator, noGrad, type Tensor } from '../src/index.js';
import { type CausalLM, Llama, type LlamaConfig } from '../src/models/index.js';
import { initialise, normal, ONE, VarBuilder, ZERO } from '../src/nn/index.js';
import { type Tokenizer, tokenizerFromJson } from '../src/tokenizers/index.js';

export const SHAPES: Readonly<Record<string, Omit<LlamaConfig, 'normEps' | 'eosTokenIds'>>> = {
  'llama-3-8b': {
    ...{ vocabSize: 128256, hiddenSize: 4096, intermediateSize: 14336, layers: 32, heads: 32, kvHeads: 8 },
    ...{ headDim: 128, maxPositions: 8192, ropeTheta: 500000, tiedEmbeddings: false },
  },
  'llama-3-1b': {
    ...{ vocabSize: 128256, hiddenSize: 2048, intermediateSize: 8192, layers: 16, heads: 32, kvHeads: 8 },
    ...{ headDim: 64, maxPositions: 8192, ropeTheta: 500000, tiedEmbeddings: true },
  },
  /** For a look at everything around the model. */
  tiny: {
    ...{ vocabSize: 4096, hiddenSize: 64, intermediateSize: 128, layers: 2, heads: 2, kvHeads: 1 },
    ...{ headDim: 32, maxPositions: 8192, ropeTheta: 500000, tiedEmbeddings: false },
  },
};

/** In a model that copies every token is followed by the next one, and the last of so many by the first. */
export const CYCLE = 64;

export interface RandomOptions {
  readonly device: Device;
  /** The layers add nothing and the output names the token after the last: the same work, a text that repeats. */
  readonly copying?: boolean;
  /** Tokens it takes; the shape's own otherwise. */
  readonly maxPositions?: number;
}
export function randomModel(shape: string, { device, copying = false, maxPositions }: RandomOptions): CausalLM {
  const own = SHAPES[shape];
  const config: LlamaConfig = {
    ...{ normEps: 1e-5, eosTokenIds: [], ...own },
    maxPositions: maxPositions ?? own.maxPositions,
  };
  if (copying) Object.assign(config, { tiedEmbeddings: false });
  const dtype: DType = device.name === 'cpu' ? 'f32' : 'bf16';
  let [seed, embedded] = [1, undefined as Tensor | undefined];
  const make = (name: string, dims: readonly number[]): Tensor => {
    if (copying && name === 'lm_head.weight' && embedded) {
      const [rows, width] = dims;
      return embedded
        .reshape([rows / CYCLE, CYCLE, width])
        .roll(1, 1)
        .reshape([rows, width])
        .copy();
    }
    const silent = copying && /o_proj|down_proj/.test(name);
    const how = name.includes('norm') ? ONE : silent ? ZERO : normal(0, 0.02);
    return initialise(how, dims, { dtype, device, generator: new Generator(seed++) });
  };
  const source = {
    has: (name: string) => !name.endsWith('.bias'),
    get: (name: string, dims: readonly number[] | undefined) => {
      const made = make(name, dims ?? []);
      if (name === 'model.embed_tokens.weight') embedded = made;
      return made;
    },
  };
  const model = noGrad(() => new Llama(config, new VarBuilder(source, { dtype, device })));
  model.requireGrad(false).eval();
  return model;
}

/** Words that load is made of: each is one token. */
export const WORDS = 'the king and all his men have gone to see what light may fall upon this stage of fools'.split(
  ' ',
);

/** Single bytes, the words above, then made-up words for every other number. */
export function wordTokenizer(vocabSize: number): Tokenizer {
  const vocab: Record<string, number> = {};
  // Bytes as byte-level tokenizers write them: printable ones as themselves, others moved up by 256.
  let moved = 0;
  for (let b = 0; b < 256; b++) {
    const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    vocab[String.fromCodePoint(printable ? b : 256 + moved++)] = b;
  }
  const words = [...new Set(WORDS)].flatMap((w) => [w, `\u0120${w}`]);
  words.forEach((w, i) => (vocab[w] ??= 256 + i));
  for (let id = 256 + words.length; id < vocabSize; id++) vocab[`\u0120t${id}`] = id;
  const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return tokenizerFromJson({
    ...{ version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null },
    ...{ pre_tokenizer: level, post_processor: null, decoder: level },
    model: { type: 'BPE', vocab, merges: [], ignore_merges: true },
  });
}
