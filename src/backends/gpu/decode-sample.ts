// Drawing the next token in a decoding step, three launches. kernels/decode-sample.hip.
import { CTYPE, KernelModule, Struct, typed } from '../../kernels/declare.js';
import type { View } from '../backend.js';
import { DECODE_TYPES, type DecodeType, SAMPLE } from '../generation.js';
import { BLOCK } from './decode-tiles.js';
import { type Launch, launch } from './plan.js';

export const DECODE_SAMPLE = new KernelModule('decode-sample');
const SAMPLING = new Struct('Sampling', {
  ...typed('pointer', 'logits', 'work', 'tops', 'masses', 'bins', 'candidates', 'uniforms', 'tokens', 'state'),
  ...typed('double', 'temperature', 'topP', 'minP', 'penalty'),
  ...typed('i32', 'window', 'topK', 'n'),
});
const SAMPLE_THREADS = { constant: 'SAMPLE_THREADS', threads: BLOCK } as const;
const sampleTop = DECODE_SAMPLE.declare({
  each: { dtype: DECODE_TYPES },
  symbol: ({ dtype }) => `decode_sample_top_${dtype}`,
  body: ({ dtype }) => ({
    threads: SAMPLE_THREADS,
    params: { p: SAMPLING },
    call: `decode_sample_top<${CTYPE[dtype]}>`,
  }),
});
const sampleStep = DECODE_SAMPLE.declare({
  each: { step: ['weigh', 'draw'] },
  symbol: ({ step }) => `decode_sample_${step}`,
  body: ({ step }) => ({ threads: SAMPLE_THREADS, params: { p: SAMPLING }, call: step }),
});

/** How a token is drawn: numbers of the kernel's struct Sampling. Greedy with a penalty is topK 1. */
export interface Draw {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly repetitionWindow: number;
}
/** Memory of drawing on the device; `uniforms` and `tokens` go by position. */
export interface DrawBuffers {
  readonly logits: View;
  /** As many floats as logits. */
  readonly work: View;
  /** SAMPLE.parts floats and doubles, SAMPLE.bins + 2 zeros, SAMPLE.most words of eight bytes. */
  readonly tops: View;
  readonly masses: View;
  readonly bins: View;
  readonly candidates: View;
  readonly uniforms: View;
  readonly tokens: View;
  readonly state: View;
}

export function drawLaunches(dtype: DecodeType, b: DrawBuffers, d: Draw): Launch[] {
  const { temperature, topP, minP, topK, repetitionPenalty: penalty, repetitionWindow: window } = d;
  const p = { ...b, temperature, topP, minP, topK, penalty, window, n: b.logits.layout.size };
  return [
    launch(sampleTop, { dtype }, SAMPLE.parts, BLOCK, { p }),
    ...(['weigh', 'draw'] as const).map((step) => launch(sampleStep, { step }, SAMPLE.parts, BLOCK, { p })),
  ];
}
