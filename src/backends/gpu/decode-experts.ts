// A mixture of experts in a decoding step: the router's logits, gates of the chosen experts and their weighted sum, a
// launch each. kernels/decode-experts.hip.
import { CTYPE, KernelModule, Struct } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { DECODE_TYPES, type DecodeType } from '../generation.js';
import {
  DECODE_THREADS,
  normName,
  NORMS,
  normType,
  type NormKind,
  threadsFor,
  TILE_NAMES,
  tileFor,
  TILES,
  wanted,
} from './decode-tiles.js';
import { addressOf, ceilDiv, type Launch, launch, packOf, type Target } from './plan.js';

export const DECODE_EXPERTS = new KernelModule('decode-experts');
/** Rows and words of the sum. */
const SUM = TILES['4x4'];

/** In the order of the kernel's enumerations. */
const SCORES = ['softmax', 'sigmoid', 'logits'] as const;
const WEIGHTS = ['kept', 'normalised', 'softmax', 'sigmoid'] as const;

/** How a router's logits become experts and their weights. */
export interface Choice {
  readonly experts: number;
  readonly chosen: number;
  readonly score: (typeof SCORES)[number];
  readonly weights: (typeof WEIGHTS)[number];
  readonly factor?: number;
  readonly sumGuard?: { readonly add?: number; readonly least?: number };
  /** f32; takes part in the choice but not in the weights. */
  readonly bias?: View;
}

/** Where a choice is made: logits, numbers and weights of the chosen, and a zero that counts blocks. */
export interface ChoiceBuffers {
  readonly logits: View;
  readonly id: View;
  readonly weight: View;
  readonly arrived: View;
}
export interface Router {
  readonly choice: Choice;
  readonly at: ChoiceBuffers;
  readonly x: View;
  readonly norm?: { readonly weight: View; readonly eps: number };
  /** f32, (experts, hidden) */
  readonly weight: View;
  /** f32, as the logits */
  readonly bias?: View;
}
export interface Chosen {
  readonly choice: Choice;
  readonly at: ChoiceBuffers;
  readonly x: View;
  /** (experts, rows, values) */
  readonly weight: View;
  readonly out: View;
}
/** A norm as launches take it. */
interface Side {
  readonly kind: NormKind;
  readonly norm: number;
  readonly eps: number;
}

const CHOICE = new Struct('Choice', {
  logits: 'pointer',
  id: 'pointer',
  weight: 'pointer',
  arrived: 'pointer',
  bias: 'pointer',
  experts: 'i32',
  chosen: 'i32',
  score: 'i32',
  weigh: 'i32',
  factor: 'float',
  add: 'float',
  least: 'float',
});
const router = DECODE_EXPERTS.declare({
  each: { dtype: DECODE_TYPES, norm: NORMS },
  only: wanted,
  symbol: ({ dtype, norm }) => `decode_router_${dtype}${normName(norm)}`,
  body: ({ dtype, norm }) => ({
    threads: DECODE_THREADS,
    params: {
      p: CHOICE,
      x: `const ${CTYPE[dtype]}*`,
      norm: `const ${normType(dtype, norm)}*`,
      eps: 'float',
      w: 'const float*',
      bias: 'const float*',
      k: 'i32',
    },
    call: `decode_router<${CTYPE[dtype]}, ${normType(dtype, norm)}>`,
  }),
});
const chosenGate = DECODE_EXPERTS.declare({
  each: { dtype: DECODE_TYPES, norm: NORMS, tile: TILE_NAMES },
  only: wanted,
  symbol: ({ dtype, norm, tile }) => `decode_chosen_gate_${dtype}_${tile}${normName(norm)}`,
  body: ({ dtype, norm, tile }) => ({
    threads: DECODE_THREADS,
    beside: TILES[tile].beside,
    params: {
      p: CHOICE,
      x: `const ${CTYPE[dtype]}*`,
      norm: `const ${normType(dtype, norm)}*`,
      eps: 'float',
      w: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      act: 'i32',
      n: 'i32',
      k: 'i32',
    },
    call: `decode_chosen_gate<${CTYPE[dtype]}, ${normType(dtype, norm)}, ${TILES[tile].rows}, ${TILES[tile].words}>`,
  }),
});
const chosenSum = DECODE_EXPERTS.declare({
  each: { dtype: DECODE_TYPES },
  symbol: ({ dtype }) => `decode_chosen_sum_${dtype}`,
  body: ({ dtype }) => ({
    threads: DECODE_THREADS,
    params: {
      p: CHOICE,
      x: `const ${CTYPE[dtype]}*`,
      w: `const ${CTYPE[dtype]}*`,
      residual: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      n: 'i32',
      k: 'i32',
    },
    call: `decode_chosen_sum<${CTYPE[dtype]}, ${SUM.rows}, ${SUM.words}>`,
  }),
});

const choiceOf = ({ choice: c, at }: Pick<Chosen, 'choice' | 'at'>) => ({
  ...at,
  bias: c.bias ?? 0,
  ...{ experts: c.experts, chosen: c.chosen, score: SCORES.indexOf(c.score), weigh: WEIGHTS.indexOf(c.weights) },
  ...{ factor: c.factor ?? 1, add: c.sumGuard?.add ?? 0, least: c.sumGuard?.least ?? -Infinity },
});

export function routerLaunch(dtype: DecodeType, r: Router, { kind: norm, ...side }: Side, { warp }: Target): Launch {
  const [experts, k] = r.weight.layout.shape;
  const args = { p: choiceOf(r), x: addressOf(r.x), w: addressOf(r.weight), bias: r.bias ? addressOf(r.bias) : 0 };
  const threads = threadsFor(k / packOf(dtype), 1, warp);
  return launch(router, { dtype, norm }, experts, threads, { ...args, ...side, k });
}
export function gateLaunch(
  dtype: DecodeType,
  c: Chosen,
  { kind: norm, ...side }: Side,
  act: number,
  { warp }: Target,
): Launch {
  const [, n2, k] = c.weight.layout.shape;
  const { tile, rows, threads } = tileFor(dtype, k, warp);
  const args = { p: choiceOf(c), x: addressOf(c.x), w: addressOf(c.weight), out: addressOf(c.out), act, n: n2 / 2, k };
  return launch(chosenGate, { dtype, norm, tile }, [ceilDiv(n2, rows), c.choice.chosen], threads, { ...args, ...side });
}
export function sumLaunch(dtype: DecodeType, c: Chosen, residual: number, { warp }: Target): Launch {
  const [, n, k] = c.weight.layout.shape;
  const threads = threadsFor((c.choice.chosen * k) / packOf(dtype), SUM.words, warp);
  const args = { p: choiceOf(c), x: addressOf(c.x), w: addressOf(c.weight), residual, out: addressOf(c.out), n, k };
  return launch(chosenSum, { dtype }, ceilDiv(n, SUM.rows), threads, args);
}
