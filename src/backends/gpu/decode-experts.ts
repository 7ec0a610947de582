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
  rowThreads,
  TILE,
  wanted,
} from './decode-tiles.js';
import { addressOf, ceilDiv, type Launch, launch, packOf, type Target } from './plan.js';

export const DECODE_EXPERTS = new KernelModule('decode-experts');
/** Rows and words of the sum: few enough that all blocks of a layer ask for weights before their turn. */
const SUM = { rows: 4, words: 2 };
/** Experts that a lane keeps in registers, and whether a wave so has all of them. */
const HELD_EXPERTS = 4;
const AMONG = ['few', 'many'] as const;
const amongOf = ({ experts }: Choice, warp: number) => (experts <= HELD_EXPERTS * warp ? 'few' : 'many');
const amongName = (among: (typeof AMONG)[number]): string => (among === 'few' ? '' : '_of_many');

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

export interface Router {
  readonly x: View;
  readonly norm?: { readonly weight: View; readonly eps: number };
  /** f32, (experts, hidden) */
  readonly weight: View;
  /** f32, (experts) */
  readonly bias?: View;
  readonly logits: View;
}
export interface Chosen {
  readonly choice: Choice;
  /** The router's, f32. */
  readonly logits: View;
  /** Of the sum: values of the chosen experts, then those of the experts that every token goes to. */
  readonly x: View;
  /** (experts, rows, values) */
  readonly weight: View;
  /** (rows, values) of the experts that every token goes to. */
  readonly shared?: View;
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
      x: `const ${CTYPE[dtype]}*`,
      norm: `const ${normType(dtype, norm)}*`,
      eps: 'float',
      w: 'const float*',
      bias: 'const float*',
      logits: 'float*',
      k: 'i32',
    },
    call: `decode_router<${CTYPE[dtype]}, ${normType(dtype, norm)}>`,
  }),
});
const chosenGate = DECODE_EXPERTS.declare({
  each: { dtype: DECODE_TYPES, norm: NORMS, among: AMONG },
  only: wanted,
  symbol: ({ dtype, norm, among }) => `decode_chosen_gate${amongName(among)}_${dtype}_${TILE.name}${normName(norm)}`,
  body: ({ dtype, norm, among }) => ({
    threads: DECODE_THREADS,
    beside: TILE.beside,
    params: {
      p: CHOICE,
      x: `const ${CTYPE[dtype]}*`,
      norm: `const ${normType(dtype, norm)}*`,
      eps: 'float',
      w: `const ${CTYPE[dtype]}*`,
      shared: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      act: 'i32',
      n: 'i32',
      every: 'i32',
      k: 'i32',
    },
    call:
      `decode_chosen_gate<${CTYPE[dtype]}, ${normType(dtype, norm)}, ` +
      `${TILE.rows}, ${TILE.words}, ${among === 'few'}>`,
  }),
});
const chosenSum = DECODE_EXPERTS.declare({
  each: { dtype: DECODE_TYPES, among: AMONG },
  symbol: ({ dtype, among }) => `decode_chosen_sum${amongName(among)}_${dtype}`,
  body: ({ dtype, among }) => ({
    threads: DECODE_THREADS,
    params: {
      p: CHOICE,
      x: `const ${CTYPE[dtype]}*`,
      w: `const ${CTYPE[dtype]}*`,
      shared: `const ${CTYPE[dtype]}*`,
      residual: `const ${CTYPE[dtype]}*`,
      out: `${CTYPE[dtype]}*`,
      n: 'i32',
      every: 'i32',
      k: 'i32',
    },
    call: `decode_chosen_sum<${CTYPE[dtype]}, ${SUM.rows}, ${SUM.words}, ${among === 'few'}>`,
  }),
});

const choiceOf = ({ choice: c, logits }: Pick<Chosen, 'choice' | 'logits'>) => ({
  logits,
  bias: c.bias ?? 0,
  ...{ experts: c.experts, chosen: c.chosen, score: SCORES.indexOf(c.score), weigh: WEIGHTS.indexOf(c.weights) },
  ...{ factor: c.factor ?? 1, add: c.sumGuard?.add ?? 0, least: c.sumGuard?.least ?? -Infinity },
});
const addressesOf = (c: Chosen) => ({
  ...{ p: choiceOf(c), x: addressOf(c.x), w: addressOf(c.weight), out: addressOf(c.out) },
  shared: c.shared ? addressOf(c.shared) : 0,
});

export function routerLaunch(dtype: DecodeType, r: Router, { kind: norm, ...side }: Side, { warp }: Target): Launch {
  const [experts, k] = r.weight.layout.shape;
  const [x, w, logits] = [r.x, r.weight, r.logits].map(addressOf);
  const threads = threadsFor(k / packOf(dtype), 1, warp);
  const bias = r.bias ? addressOf(r.bias) : 0;
  return launch(router, { dtype, norm }, experts, threads, { x, w, bias, logits, ...side, k });
}
export function gateLaunch(
  dtype: DecodeType,
  c: Chosen,
  { kind: norm, ...side }: Side,
  act: number,
  { warp }: Target,
): Launch {
  const [, n2, k] = c.weight.layout.shape;
  const every2 = c.shared?.layout.shape[0] ?? 0;
  const [{ rows }, threads] = [TILE, rowThreads(dtype, k, warp)];
  const args = { ...addressesOf(c), act, n: n2 / 2, every: every2 / 2, k };
  const tiles = ceilDiv(every2, rows) + c.choice.chosen * ceilDiv(n2, rows);
  return launch(chosenGate, { dtype, norm, among: amongOf(c.choice, warp) }, tiles, threads, { ...args, ...side });
}
export function sumLaunch(dtype: DecodeType, c: Chosen, residual: number, { warp }: Target): Launch {
  const [, n, k] = c.weight.layout.shape;
  const every = c.shared?.layout.shape[1] ?? 0;
  const threads = threadsFor((c.choice.chosen * k + every) / packOf(dtype), SUM.words, warp);
  const args = { ...addressesOf(c), residual, n, every, k };
  return launch(chosenSum, { dtype, among: amongOf(c.choice, warp) }, ceilDiv(n, SUM.rows), threads, args);
}
