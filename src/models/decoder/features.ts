// What a decoder-only transformer can differ in, as independent switches; a family's row turns its config into these.
import type { RopeFeature } from './rope.js';
import type { Role } from './roles.js';

export interface NormFeature {
  /** 'none' leaves things as they are. */
  readonly kind: 'rms' | 'layer' | 'none';
  readonly eps: number;
  /** The stored weight is a difference from one. */
  readonly plusOne?: boolean;
  /** There is nothing to multiply by. */
  readonly weightless?: boolean;
  /** Something is added after the weight. */
  readonly bias?: boolean;
}

export interface QkNorm {
  readonly norm: NormFeature;
  /** One weight for every head, one for all heads together (over the whole row), or each head its own. */
  readonly over: 'head' | 'whole' | 'each';
  readonly afterRope?: boolean;
}

/** q *= 1 + beta ln(1 + floor((position + offset) / scale)) */
export interface QueryTemperature {
  readonly beta: number;
  readonly scale: number;
  readonly offset: number;
  /** Padding in front counts as positions. */
  readonly withPads?: boolean;
}

export interface Attention {
  readonly kind: 'attention';
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
  readonly rope?: RopeFeature;
  /** ALiBi instead of a rope: -slope * distance, slopes by head. */
  readonly alibi?: readonly number[];
  /** Keys a query sees, itself counted. */
  readonly window?: number;
  /** A query sees its own chunk of this many positions. */
  readonly chunk?: number;
  readonly softcap?: number;
  readonly sinks?: boolean;
  /** Values are so wide, less than keys, and are multiplied by `valueFactor`. */
  readonly valueDim?: number;
  readonly valueFactor?: number;
  /** Queries, keys and values are clamped to this magnitude; where there are norms, after them. */
  readonly clip?: number;
  readonly qkNorm?: QkNorm;
  readonly temperature?: QueryTemperature;
  /** The output is multiplied by what these functions make of a gate: a number for each of its own, or one a head. */
  readonly gated?: 'sigmoid' | 'softplus' | 'softplus by head';
  /** A norm without weights on values. */
  readonly valueNorm?: NormFeature;
  /** Keys and values are those of this earlier layer. */
  readonly keysOf?: number;
  /** Later layers look at this one's keys. */
  readonly lends?: boolean;
  /** A norm on the heads' answers, before the last product. */
  readonly outNorm?: NormFeature;
  /** Queries and outputs are products of experts, of which a token has as many as a key has queries. */
  readonly experts?: { readonly count: number };
  /**
   * Heads come in pairs that share values as wide as a head, half of which a query is: a part of the second's answer,
   * `begin` before anything is learnt, is taken from the first's, and a norm follows.
   */
  readonly differential?: { readonly begin: number; readonly eps: number };
  /** Keys have weights of their own, made of values; `headDim` has room for them. */
  readonly weighedKeys?: boolean;
}

/** Keys and values through a narrow latent vector, which alone is cached. */
export interface LatentAttention {
  readonly kind: 'latent';
  readonly heads: number;
  readonly queryRank?: number;
  readonly rank: number;
  readonly nopeDim: number;
  readonly ropeDim: number;
  readonly valueDim: number;
  readonly scale: number;
  /** None where nothing turns. */
  readonly rope?: RopeFeature;
  readonly normEps: number;
  /**
   * Answers are multiplied by what a sigmoid makes of a gate: a product of the layer's input, or part of the one that
   * makes queries, which then reads the narrow ones before their norm, too.
   */
  readonly gated?: 'by input' | 'by queries';
  readonly sinks?: boolean;
  /** What normed latents are multiplied by. */
  readonly latentFactor?: number;
  readonly temperature?: QueryTemperature;
}

/** C * conv(B * x), a short causal convolution by channel. */
export interface ShortConv {
  readonly kind: 'conv';
  readonly channels: number;
  readonly width: number;
}

/** A matrix by head that decays and is written to by the delta rule; its output has a norm and a gate. */
export interface DeltaNet {
  readonly kind: 'delta';
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** Of the convolution before it. */
  readonly width: number;
  readonly eps: number;
  readonly activation: string;
  /** Value heads of a key head lie `keyHeads` apart, not side by side. */
  readonly tiled?: boolean;
  /** Rates are stored as they are; else the logarithm of what they take away. */
  readonly ratesStored?: boolean;
  /** Queries, keys and values are products that stand apart. */
  readonly apart?: boolean;
  /** Up to this much of a difference is written: 2 turns what is remembered round. */
  readonly mostWritten?: number;
}

/** A delta net whose matrices decay row by row, each at its own speed (Kimi): steps and gates are narrow products. */
export interface ChannelDelta {
  readonly kind: 'channel delta';
  readonly heads: number;
  readonly headDim: number;
  /** Of the convolution before it. */
  readonly width: number;
  readonly eps: number;
  readonly activation: string;
  /** As a delta net's. */
  readonly ratesStored?: boolean;
}

/** A matrix by head that decays by steps the input chooses; groups of heads share keys and queries. */
export interface Mamba2 {
  readonly kind: 'mamba2';
  readonly heads: number;
  readonly headDim: number;
  readonly stateDim: number;
  readonly groups: number;
  readonly width: number;
  readonly eps: number;
  readonly activation: string;
  /** How the output meets its gate: a norm of both (the default), a norm before the gate, or the gate alone. */
  readonly gating?: 'norm of both' | 'norm first' | 'no norm';
  /** The norm is taken over each of so many parts of a row. */
  readonly normGroups?: number;
  /** Steps of more than one token at a time are held within these; a single step that follows others is not. */
  readonly limits?: readonly [least: number, most: number];
  /** What the input is multiplied by, and the parts of its product: gate, values, keys, queries, steps. */
  readonly inFactor?: number;
  readonly partFactors?: readonly number[];
  /** As a delta net's. */
  readonly ratesStored?: boolean;
}

/** The first Mamba: a row of numbers by channel that decay by steps the input chooses, each number at its own speed. */
export interface Mamba1 {
  readonly kind: 'mamba';
  readonly inner: number;
  readonly stateDim: number;
  /** The width that steps come from. */
  readonly rank: number;
  readonly width: number;
  readonly activation: string;
  /** Norms on steps, keys and queries, with weights or without. */
  readonly norms?: { readonly eps: number; readonly weightless?: boolean };
  /** As a delta net's. */
  readonly ratesStored?: boolean;
}

/** The first Mamba in heads, each of which makes steps, keys and queries of its own channels (Zamba). */
export interface HeadedMamba {
  readonly kind: 'headed mamba';
  readonly inner: number;
  readonly heads: number;
  readonly stateDim: number;
  /** The width that a head's steps come from. */
  readonly rank: number;
  readonly width: number;
  readonly activation: string;
}

/** A number by channel that fades by gates the input opens, behind a convolution; another branch multiplies it. */
export interface GatedRecurrence {
  readonly kind: 'recurrence';
  readonly inner: number;
  /** Blocks of channels whose gates read each other. */
  readonly blocks: number;
  /** Of the convolution before it. */
  readonly width: number;
  readonly activation: string;
}

/** A matrix by head that fades at a speed of its own and adds keys times values; its output has a norm and a gate. */
export interface FadingAttention {
  readonly kind: 'fading';
  readonly heads: number;
  readonly headDim: number;
  /** What a head's matrix is multiplied by before each token, as logarithms. */
  readonly rates: readonly number[];
  /** Tokens of a prompt that go together; tables of what heads fade to are so long. */
  readonly block: number;
  readonly eps: number;
  readonly activation: string;
}

/**
 * A matrix by head and a sum of keys, both of which gates fade and open exponentially: what a query finds in the matrix
 * is divided by what it finds in the sum (xLSTM). A norm by head and a gate follow.
 */
export interface GatedMemory {
  readonly kind: 'memory';
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** Gates become cap * tanh(gate / cap). */
  readonly cap: number;
  /** Added to what is divided by. */
  readonly guard: number;
  /** Of the norm by head, which adds a bias or not. */
  readonly eps: number;
  readonly bias: boolean;
}

/** The mean of all values so far, weighed by keys and fading by channel (RWKV). */
export interface FadingMean {
  readonly kind: 'fading mean';
  readonly inner: number;
}
/** A feed-forward that also reads the token before (RWKV). */
export interface FedBack {
  readonly kind: 'fed back';
  readonly inner: number;
}

/** A state and attention that read the same input; their answers are multiplied and added. */
export interface Beside {
  readonly kind: 'beside';
  readonly state: Mamba2;
  readonly attention: Attention;
  readonly stateFactor: number;
  /** What attention's input and its answer are multiplied by. */
  readonly inFactor: number;
  readonly outFactor: number;
}

/**
 * Attention whose queries and keys go through two short causal convolutions, by channel and by head, and half of whose
 * values are the token before's; heads of queries and keys have one length, keys times a stored number (ZAYA).
 */
export interface ConvolvedAttention {
  readonly kind: 'convolved';
  readonly attention: Attention;
  /** Of the convolution by channel and of that by head. */
  readonly widths: readonly [byChannel: number, byHead: number];
  /** What is read has biases, of which the values' belong to what is late, too. */
  readonly biased: boolean;
}

/**
 * Attention of one key head whose keys are values, too: to those of a window it adds what whole runs of tokens are
 * summed up to. Heads turn at their end, and answers turn back; groups of them have narrow products before the last
 * one (DeepSeek V4).
 */
export interface CompressedAttention {
  readonly kind: 'compressed';
  /** What is kept of a token: the still part of its key and what sums are made of; the part that turns. */
  readonly keys: LatentAttention;
  readonly window: number;
  readonly groups: number;
  readonly groupRank: number;
  readonly eps: number;
  readonly sums?: RunSums;
}
/** How runs of tokens are summed up, each number weighed by gates of its own. */
export interface RunSums {
  /** Tokens of a run. */
  readonly run: number;
  /** A sum is made of the run before, too, of which each token has a second vector. */
  readonly overlap: boolean;
  readonly rope: RopeFeature;
  /** Narrow sums of the same runs choose which `kept` ones a query sees, where there are more. */
  readonly index?: { readonly heads: number; readonly dim: number; readonly kept: number };
}

/** A transformer block that several layers share, over a layer's input and the embedding side by side. */
export interface SharedBlock {
  readonly attention: Attention;
  readonly inner: number;
  readonly activation: string;
  /** Where the block's tensors begin, the first place that is stored, and the product behind it. */
  readonly stored: readonly string[];
  readonly last: string;
  /** Which use of a shared block this is, counted over all of them: its narrow products have this number. */
  readonly use: number;
  /** Of the narrow products; 0 where there are none. */
  readonly rank: number;
  /** Gates and ups are stored apart. */
  readonly apart?: boolean;
  /** Queries, keys and values have narrow products too. */
  readonly attentionAdapters: boolean;
  /** Products of the feed-forward part have biases. */
  readonly biases: boolean;
}
/** A Mamba with its norm in front, in some layers behind a shared block. */
export interface SharedMamba {
  readonly kind: 'shared';
  readonly state: Mamba2 | HeadedMamba;
  readonly eps: number;
  readonly block?: SharedBlock;
}

export type Mixer =
  | Attention
  | LatentAttention
  | ShortConv
  | DeltaNet
  | ChannelDelta
  | Mamba2
  | Mamba1
  | GatedRecurrence
  | FadingAttention
  | GatedMemory
  | FadingMean
  | FedBack
  | Beside
  | ConvolvedAttention
  | CompressedAttention
  | SharedMamba
  | { readonly kind: 'none' };

/** The widest heads that the op for attention takes. */
export const WIDEST_HEAD = 256;
/** Whether a mixer keeps keys by token and nothing else. */
export const keepsKeys = (m: Mixer): m is Attention | LatentAttention => m.kind === 'attention' || m.kind === 'latent';
/** The part of a mixer that looks at keys by token. */
export const keyed = (m: Mixer): Attention | LatentAttention | undefined => {
  if (m.kind === 'beside' || m.kind === 'convolved') return m.attention;
  if (m.kind === 'compressed') return m.keys;
  if (m.kind === 'shared') return m.block?.attention;
  return keepsKeys(m) ? m : undefined;
};
/** The part of a mixer that keeps keys of its own. */
export const keyKeeper = (m: Mixer): Attention | LatentAttention | undefined => {
  const found = keyed(m);
  return found?.kind === 'attention' && found.keysOf !== undefined ? undefined : found;
};
/** Whether it remembers something of one size, which cannot go back. */
export const remembers = (m: Mixer): boolean => m.kind !== 'none' && m.kind !== 'compressed' && !keepsKeys(m);

export interface DenseMlp {
  readonly kind: 'dense';
  readonly inner: number;
  readonly gated: boolean;
  readonly activation: string;
  /** What the gate is multiplied by before its activation, and the answer at the end. */
  readonly gateFactor?: number;
  readonly outFactor?: number;
  /** xIELU's numbers where they are not stored as tensors: both slopes, beta, eps. */
  readonly curve?: readonly number[];
  /** A norm on what the gate lets through, before the last product. */
  readonly innerNorm?: NormFeature;
  /** Gates that are not so many deviations above their mean are closed. */
  readonly sparse?: number;
  readonly clamped?: ClampedGate;
  /** Gates before their activation are at most this, what they multiply is of this magnitude at most. */
  readonly limit?: number;
}
/** min(gate, limit), clamp(up, limit), gate * sigmoid(alpha gate) * (up + 1). */
export interface ClampedGate {
  readonly limit: number;
  readonly alpha: number;
}

export interface Experts {
  readonly kind: 'experts';
  readonly count: number;
  /** So many more may be chosen that compute nothing: they answer what they are given, or zeros. */
  readonly idle?: { readonly count: number; readonly answer: 'input' | 'zeros' };
  /** Of all experts, those that this rank holds, where ranks share them out whole. */
  readonly held?: { readonly first: number; readonly count: number };
  readonly chosen: number;
  readonly inner: number;
  readonly activation: string;
  /** Experts, and the one that all tokens go through, are an activation between two products, without a gate. */
  readonly ungated?: boolean;
  /** Experts work on a narrower vector: a product in front of all of them, another behind. */
  readonly latent?: number;
  /** A router's logits become cap * tanh(logits / cap). */
  readonly cap?: number;
  /** What a router's logits become before the choice. */
  readonly score: 'softmax' | 'sigmoid' | 'logits' | 'root of softplus';
  /** A stored bias takes part in the choice but not in the weights. */
  readonly choiceBias?: boolean;
  /** Only the best groups of experts take part; a group's worth is its best or its two best scores. */
  readonly groups?: {
    readonly count: number;
    readonly kept: number;
    readonly worth: 'best' | 'two best';
    readonly closed?: number;
  };
  /** What the chosen scores become. */
  readonly weights: 'kept' | 'normalised' | 'softmax' | 'sigmoid';
  /** Added to the sum that normalises, or its least value. */
  readonly sumGuard?: { readonly add?: number; readonly least?: number };
  readonly factor?: number;
  /** The weight multiplies the expert's input. */
  readonly onInput?: boolean;
  /** Of the experts, and of the one that all tokens go through. */
  readonly clamped?: ClampedGate;
  readonly limit?: number;
  /** A stored table says which experts a token of the vocabulary goes to; the router only weighs them. */
  readonly byToken?: { readonly vocabSize: number };
  /** Two experts, chosen one after the other among logits near the largest (phimoe); the number is its jitter. */
  readonly sparseMixer?: number;
  readonly shared?: {
    readonly inner: number;
    readonly gated?: boolean;
    /** What its answer is multiplied by. */
    readonly factor?: number;
    /** As the experts'. */
    readonly limit?: number;
    /** Where it is not the experts'. */
    readonly activation?: string;
  };
  /** The router reads its input through a norm, whose stored weight is multiplied by `factor`. */
  readonly routerNorm?: { readonly eps: number; readonly factor: number };
  /**
   * The router is a net of three products behind a norm; it reads a narrow vector, to which that of the layer before is
   * added (`takes`), and which may go along to the next layer (`leaves`).
   */
  readonly deepRouter?: {
    readonly width: number;
    readonly eps: number;
    readonly takes: boolean;
    readonly leaves: boolean;
  };
  /** Chosen experts' weights are multiplied by a stored number of each. */
  readonly scaled?: boolean;
  /** A bias is added to what they answer together. */
  readonly summed?: boolean;
}

/**
 * A dense branch beside experts, each with a norm behind it; experts have one in front, too, and the router reads x.
 */
export interface DenseAndExperts {
  readonly kind: 'both';
  readonly dense: DenseMlp;
  readonly experts: Experts;
}

export type Mlp = DenseMlp | Experts | DenseAndExperts | { readonly kind: 'none' };

export interface Layer {
  readonly mixer: Mixer;
  readonly mlp: Mlp;
  /** Experts that read what the feed-forward branch reads, and whose answer is added behind the next layer. */
  readonly late?: Experts;
  /** Its weights are those of this earlier layer. */
  readonly weightsOf?: number;
  /** Adds what the layer before it left for it. */
  readonly takesLate?: boolean;
  /** Branches are added to what their norms made, not to what they read: a factor of that, a factor of the branch. */
  readonly ontoNormed?: { readonly mixer: readonly [number, number]; readonly mlp: readonly [number, number] };
  /** Which norms stand around its branches, and which of its parts have biases, where other layers differ in it. */
  readonly norms?: Features['norms'];
  readonly biases?: readonly Role[];
  /** What its norms look like, likewise. */
  readonly norm?: NormFeature;
  /** What these norms answer is multiplied by what a sigmoid makes of a narrow net over it. */
  readonly normGates?: { readonly rank: number; readonly of: readonly ('beforeMixer' | 'beforeMlp')[] };
}

/** What a decoder is made of, as independent switches: a family's row turns its config into these. */
export interface Features {
  /** The name errors call it by. */
  readonly family: string;
  /** Tokens of the vocabulary. */
  readonly vocabSize: number;
  /** Width of a token's vector between layers. */
  readonly hiddenSize: number;
  /** The longest context it was made for. */
  readonly maxPositions: number;
  /** The layers, each with its mixer and feed-forward branch. */
  readonly layers: readonly Layer[];
  /** What its norms look like. */
  readonly norm: NormFeature;
  /** Which norms stand around the two branches of a layer. */
  readonly norms: {
    /** In front of the mixer. */
    readonly beforeMixer: boolean;
    /** Behind the mixer. */
    readonly afterMixer: boolean;
    /** In front of the feed-forward branch. */
    readonly beforeMlp: boolean;
    /** Behind the feed-forward branch. */
    readonly afterMlp: boolean;
  };
  /** Norms behind the branches read the sum, not what is added. */
  readonly normedSums?: boolean;
  /** The norm before the head, where it is not like the others. */
  readonly finalNorm?: NormFeature;
  /** Width of the embedding's table and of the head, where products lead from it and back. */
  readonly embedWidth?: number;
  /** A token has several vectors of which a layer works on one and corrects all (Gemma 3n). */
  readonly streams?: {
    /** How many there are. */
    readonly count: number;
    /** The one that layers work on. */
    readonly active: number;
    /** The width of the branch beside attention. */
    readonly rank: number;
    /** What the active one is multiplied by where a layer's own vector meets it, is stored. */
    readonly scaled: boolean;
  };
  /**
   * Two stacks of layers take turns, each with a vector of its own a token and reading both's sum: the fast one goes
   * `fast` times for each time of the slow one, that begins with the embedding, and all of that `slow` times (HRM).
   * Layers are told of as they run; a norm follows each stack.
   */
  readonly cycles?: {
    /** How often the slow stack goes. */
    readonly slow: number;
    /** How often the fast one goes before it. */
    readonly fast: number;
    /** Layers of a stack. */
    readonly layers: number;
  };
  /**
   * A token has several vectors: each branch reads a sum of them, and its answer is added to all, which are mixed by a
   * matrix whose rows and columns sum to one. What sums, answers and the matrix weigh is made of the vectors.
   */
  readonly hyper?: {
    /** How many there are. */
    readonly count: number;
    /** How often rows and columns are made to sum to one. */
    readonly rounds: number;
    /** Added to weights and to sums that are divided by. */
    readonly eps: number;
    /** No matrix mixes them; what weighs answers is up to `most`. */
    readonly unmixed?: {
      /** The largest weight of an answer. */
      readonly most: number;
    };
  };
  /** Both branches read the same x: with a norm each, or one norm for both. */
  readonly parallel?: 'own' | 'shared';
  /** Each branch is multiplied by this before it is added. */
  readonly branchFactor?: number;
  /** Positions are vectors added to the embedding; `offset` rows of their table come before position 0. */
  readonly learntPositions?: {
    /** How many positions there are. */
    readonly count: number;
    /** Rows of the table before position 0. */
    readonly offset: number;
    /** Not stored: sines, then cosines of each position, but for a row of zeros where one is named. */
    readonly waves?: {
      /** The row of the table that holds zeros. */
      readonly zeroRow?: number;
      /** The slowest wave would be the one behind the last. */
      readonly open?: boolean;
    };
  };
  /** Beside its vector a token has a narrow one for every layer, which meets a gate behind the layer's branches. */
  readonly layerInputs?: {
    /** Numbers of a layer's own vector. */
    readonly width: number;
    /** Tokens of their table. */
    readonly vocabSize: number;
    /** What the gate's product becomes. */
    readonly activation: string;
  };
  /** What branches are added to is multiplied by stored numbers, one for each of a vector's. */
  readonly residualFactors?: boolean;
  /**
   * A stored vector is added to what branches answer, to what they are added to and to the embedding, and another
   * multiplies it.
   */
  readonly shifted?: boolean;
  /** What a layer answers is multiplied by a stored number. */
  readonly layerFactors?: boolean;
  /** What token vectors are multiplied by. */
  readonly embedFactor?: number;
  /** A norm on the embedding. */
  readonly embedNorm?: boolean;
  /** A product, an activation and a norm between the last norm and the head. */
  readonly headLayer?: {
    /** What the product becomes. */
    readonly activation: string;
  };
  /** What logits are multiplied by. */
  readonly logitFactor?: number;
  /** Logits become cap * tanh(logits / cap). */
  readonly logitSoftcap?: number;
  /** The head is the embedding's own table. */
  readonly tied: boolean;
  /** The parts whose products add a bias: one that a file lacks is missing, one of another part is refused. */
  readonly biases: readonly Role[];
  /**
   * With more keys than these an indexer would choose among them, which nothing here does: longer texts are refused.
   */
  readonly mostKeys?: number;
  /** Tokens see those behind them, too: the model makes vectors of texts, and continues none. */
  readonly bothWays?: boolean;
  /** The token that begins texts. */
  readonly bosTokenId?: number;
  /** The tokens that end answers. */
  readonly eosTokenIds: readonly number[];
}

/** Sizes that slicing fused tensors needs. */
export interface HeadSizes {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

export const PRE_NORMS = { beforeMixer: true, afterMixer: false, beforeMlp: true, afterMlp: false } as const;
export const POST_NORMS = { beforeMixer: false, afterMixer: true, beforeMlp: false, afterMlp: true } as const;
export const ALL_NORMS = { beforeMixer: true, afterMixer: true, beforeMlp: true, afterMlp: true } as const;
