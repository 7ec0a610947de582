// What engines must know of generation on GPUs without reading the code of GPUs: which models it takes, and how its
// data lies. The work itself is asked of `backend.gpu`.
import { bytesOf, type DType } from '../base/dtype.js';
import { UnsupportedError } from '../base/errors.js';
import type { BlockType } from '../ops/quantized.js';
import type { Backend } from './backend.js';
import type { GpuBackend } from './gpu/gpu.js';

/** The GPU behind a backend, for what nothing else does. */
export function gpuOf(backend: Backend, what: string): GpuBackend {
  if (!backend.gpu) throw new UnsupportedError(`${what}: ${backend.name} is no GPU`);
  return backend.gpu;
}

// ---- the steps of decoding (gpu/decode.ts) ----

/** What a recorded step computes in. */
export const DECODE_TYPES = ['f32', 'f16', 'bf16'] as const;
export type DecodeType = (typeof DECODE_TYPES)[number];
const isDecodeType = (dtype: DType): dtype is DecodeType => (DECODE_TYPES as readonly DType[]).includes(dtype);
/** Whether a device has these steps for a dtype. */
export const decodes = (backend: Backend, dtype: DType): boolean => backend.gpu !== undefined && isDecodeType(dtype);

/** Activations of gates, in the order of kernels/decode.h. */
const GATES = ['silu', 'gelu_pytorch_tanh', 'gelu'] as const;
const GATE_NAMES: Readonly<Record<string, (typeof GATES)[number]>> = {
  silu: 'silu',
  swish: 'silu',
  gelu_pytorch_tanh: 'gelu_pytorch_tanh',
  gelu_new: 'gelu_pytorch_tanh',
  gelu_fast: 'gelu_pytorch_tanh',
  gelu: 'gelu',
};
/** Whether a step's launches know an activation of gates. */
export const isGate = (name: string): boolean => Object.hasOwn(GATE_NAMES, name);
export const gateNumber = (name: string): number => GATES.indexOf(GATE_NAMES[name]);

/** Types of blocks whose rows, one type's behind the other's, are one launch: mixtures keep values in more bits. */
export const TWO_TYPES = { first: ['Q4_K', 'Q5_K'], second: 'Q6_K' } as const satisfies {
  readonly first: readonly BlockType[];
  readonly second: BlockType;
};
export const areTwo = (parts: readonly { readonly type: BlockType }[]): boolean =>
  parts.length === 2 &&
  (TWO_TYPES.first as readonly BlockType[]).includes(parts[0].type) &&
  parts[1].type === TWO_TYPES.second;

/** What kernels/decode-experts.hip has room for. */
const MOST_EXPERTS = { experts: 1024, chosen: 32 };
export const choiceFits = ({ experts, chosen }: { readonly experts: number; readonly chosen: number }): boolean =>
  experts <= MOST_EXPERTS.experts && chosen <= MOST_EXPERTS.chosen && chosen <= experts;

export interface LatentSizes {
  readonly heads: number;
  readonly nope: number;
  readonly turned: number;
  readonly rank: number;
  readonly values: number;
}
/** What kernels/decode-latent.hip has room for, and blocks that share the tokens, at most. */
const MOST_LATENT = { rank: 512, turned: 64 };
export const LATENT_PARTS = 64;
export function latentFits(dtype: DecodeType, { turned, rank }: LatentSizes): boolean {
  const pack = 16 / bytesOf(dtype);
  const whole = rank % pack === 0 && turned % pack === 0;
  return whole && rank <= MOST_LATENT.rank && turned <= MOST_LATENT.turned;
}

/** Sizes of kernels/decode-sample.hip. */
export const SAMPLE = { parts: 128, bins: 1024, most: 2048 } as const;

// ---- prompts of many sequences (gpu/attention-prompts.ts) ----

/**
 * New tokens of a sequence, at most. A longer run comes as several sequences, each with the keys up to its own end: the
 * kernels' blocks have as many queries, and a block that has none still costs time.
 */
export const PROMPT_PIECE = 128;

// ---- draws for many rows (gpu/sample.ts) ----

export interface DrawSizes {
  /** Rows drawn at a time, at most. */
  readonly rows: number;
  readonly vocabSize: number;
  /** Sequences that may have a history, a mask and changes of their own, and tokens of a history. */
  readonly slots: number;
  readonly context: number;
}
/** Likely tokens that a row can tell, and changes that it can have. */
export const MOST_LIKELY = 32;
export const MOST_CHANGES = 1024;
/** Bytes of a row's struct DrawRow, and where its fields stand in words of 8 (doubles) and of 4 bytes. */
export const DRAW_ROW = {
  bytes: 128,
  doubles: { temperature: 0, topP: 1, minP: 2, typicalP: 3, repetition: 4, presence: 5, frequency: 6, origin: 7 },
  ints: {
    ...{ index: 16, topK: 17, history: 18, length: 19, prompt: 20, first: 21, mask: 22, changes: 23 },
    ...{ biases: 24, ends: 25, likely: 26, from: 27, token: 28 },
  },
} as const;
