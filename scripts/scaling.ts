// docs/scaling.md: what eight GPUs should reach, from bytes, link rates and steps that were measured on one. On paper:
// nothing here was run on several GPUs. `npm run docs` writes the page.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/base/paths.js';
import { withFoldedProse } from './prose.js';

const recordOf = (name: string): unknown => JSON.parse(readFileSync(join(packageRoot, 'docs', name), 'utf8'));
interface TrainRun {
  readonly anyOrder: boolean;
  readonly remake: boolean;
  readonly results: readonly { readonly name: string; readonly parameters: number; readonly tokens: number }[];
}
/** A recorded step of training, as it is where nobody asks for more. */
function trainedStep(name: string): TrainRun['results'][number] {
  const runs = (recordOf('bench-h200-train-graph.json') as readonly TrainRun[]).filter((r) => !r.anyOrder && !r.remake);
  const found = runs.flatMap((r) => r.results).find((r) => r.name.startsWith(name));
  if (!found) throw new Error(`bench-h200-train-graph.json has no run of ${name}`);
  return found;
}
function decodedTokens(name: string): number {
  const { results } = recordOf('bench-h200-models.json') as { results: readonly { name: string; value: number }[] };
  const found = results.find((r) => r.name === name);
  if (!found) throw new Error(`bench-h200-models.json has no ${name}`);
  return found.value;
}
const step = trainedStep('1.3b: ');
/** Measured on one H200, as docs/measured.md shows it. */
export const MEASURED = {
  /** A training step of 1.3B parameters in bf16 with 4 x 2048 tokens: 6 operations a parameter and token. */
  train: { parameters: step.parameters, tokens: 4 * 2048, tokensPerSecond: Math.round(step.tokens / 100) * 100 },
  /** Decoding an 8B model in bf16, tokens a second: every token reads all weights. */
  decode8B: Math.round(decodedTokens('decode, Llama 8b bf16, batch 1, by graph')),
} as const;
/** What is not measured here but commonly told of the hardware. */
export const ASSUMED = {
  links: {
    'NVLink 4 within a machine': { bytesPerSecond: 350e9, latency: 10e-6 },
    'PCIe 5 within a machine': { bytesPerSecond: 25e9, latency: 20e-6 },
    '400 Gbit/s between machines': { bytesPerSecond: 45e9, latency: 25e-6 },
  },
  /** The last bucket of gradients has no work left to hide behind. */
  lastBucketBytes: 25 * 2 ** 20,
} as const;

export interface Link {
  readonly bytesPerSecond: number;
  readonly latency: number;
}

/** A ring moves 2 (n - 1) / n of the bytes through every link; small ones cost the latency alone. */
export const allReduceSeconds = (bytes: number, n: number, link: Link): number =>
  n === 1 ? 0 : link.latency + (2 * (n - 1) * bytes) / n / link.bytesPerSecond;

export interface Training {
  readonly parameters: number;
  /** Tokens of one GPU in a step. */
  readonly tokens: number;
  /** Operations a second that a step reaches on one GPU. */
  readonly rate: number;
}
/**
 * Data-parallel training: gradients in bf16, all but the last bucket hidden behind the backward pass as far as it
 * lasts.
 */
export function trainingStep(
  { parameters, tokens, rate }: Training,
  n: number,
  link: Link,
): { step: number; exposed: number } {
  const compute = (6 * parameters * tokens) / rate;
  const backward = (compute * 2) / 3;
  const talk = allReduceSeconds(2 * parameters, n, link);
  const last = allReduceSeconds(Math.min(ASSUMED.lastBucketBytes, 2 * parameters), n, link);
  const exposed = n === 1 ? 0 : Math.max(last, talk - backward);
  return { step: compute + exposed, exposed };
}

export interface Decoding {
  readonly parameters: number;
  readonly hidden: number;
  readonly layers: number;
  readonly vocabulary: number;
}
/** Bytes of weights a second that decoding reads on one GPU. */
export const readingRate = (): number => MEASURED.decode8B * 2 * 8.03e9;
/** Tensor-parallel decoding of one sequence in bf16: each GPU reads its part of the weights; two sums a layer. */
export function decodeStep(m: Decoding, n: number, link: Link): { step: number; reading: number; talk: number } {
  const reading = (2 * m.parameters) / n / readingRate();
  const sums = 2 * m.layers * allReduceSeconds(2 * m.hidden, n, link);
  const logits = n === 1 ? 0 : link.latency + (2 * m.vocabulary) / link.bytesPerSecond;
  const talk = n === 1 ? 0 : sums + logits + link.latency; // and one sum for the embedding
  return { step: reading + talk, reading, talk };
}

const ms = (s: number): string => `${(s * 1000).toFixed(s < 0.01 ? 2 : 1)} ms`;
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((r) => `| ${r.join(' | ')} |`).join('\n');
const LLAMA_70B: Decoding = { parameters: 70.6e9, hidden: 8192, layers: 80, vocabulary: 128256 };

export function scalingPage(): string {
  const { parameters, tokensPerSecond } = MEASURED.train;
  const rate = 6 * parameters * tokensPerSecond;
  // As measured, and with more tokens at the same rate: the longer a step, the more it hides.
  const training = [MEASURED.train.tokens, 4 * MEASURED.train.tokens].flatMap((tokens) =>
    Object.entries(ASSUMED.links).map(([link, l]) => {
      const work = { parameters, tokens, rate };
      const [one, eight] = [trainingStep(work, 1, l), trainingStep(work, 8, l)];
      const speedup = (8 * one.step) / eight.step;
      return [
        `${tokens / 2048} x 2048`,
        link,
        ms(one.step),
        ms(allReduceSeconds(2 * work.parameters, 8, l)),
        ms(eight.exposed),
        `${speedup.toFixed(2)} of 8`,
      ];
    }),
  );
  const decoding = [1, 2, 4, 8].map((n) => {
    const link = ASSUMED.links['NVLink 4 within a machine'];
    const { step, reading, talk } = decodeStep(LLAMA_70B, n, link);
    const room = (2 * LLAMA_70B.parameters) / n / 2 ** 30;
    return [
      String(n),
      `${room.toFixed(0)} GiB${room > 135 ? ' (does not fit)' : ''}`,
      ms(reading),
      ms(talk),
      `${(1 / step).toFixed(0)} tokens/s`,
    ];
  });
  const eight = decodeStep(LLAMA_70B, 8, ASSUMED.links['NVLink 4 within a machine']);
  const links = Object.entries(ASSUMED.links).map(
    ([name, l]) => `${name} ${l.bytesPerSecond / 1e9} GB/s and ${Math.round(l.latency * 1e6)} us a call`,
  );
  return withFoldedProse(`<!-- Made by \`npm run docs\` from scripts/scaling.ts; do not edit. -->
# Expected scaling on eight GPUs, on paper

Nothing on this page was run on several GPUs. It works out what to expect from bytes, link rates and what one H200
measured, so that a first run on real machines has something to be compared with.

- Measured on one H200 ([measured.md](measured.md)): training 1.3B parameters with 4 x 2048 tokens a step,
  ${tokensPerSecond.toLocaleString('en-US')} tokens/s (${(rate / 1e12).toFixed(0)} TFLOP/s); decoding an 8B model, ${MEASURED.decode8B} tokens/s (${(readingRate() / 1e12).toFixed(2)} TB/s of weights).
- Assumed, as commonly quoted: ${links[0]};
  ${links.slice(1).join(';\n  ')}.

## Formulas

    allReduce(bytes, n)  = latency + 2 (n - 1) / n * bytes / link rate
    training step        = 6 * parameters * tokens / rate + exposed
    exposed              = max(allReduce(last bucket), allReduce(2 bytes * parameters) - backward)
    backward             = 2/3 of the step
    decoding step        = 2 bytes * parameters / n / reading rate + 2 * layers * allReduce(2 bytes * hidden) + the ends

## Training 1.3B parameters, data-parallel, gradients in bf16

${table(['tokens per GPU', 'link', 'step on one', 'all-reduce of all gradients', 'not hidden', 'speed-up'], training)}

## Decoding one sequence of a 70B model in bf16, tensor-parallel, NVLink 4

${table(['GPUs', 'weights on each', 'reading weights', 'communication', 'speed'], decoding)}

With eight GPUs the ${2 * LLAMA_70B.layers} sums of ${(2 * LLAMA_70B.hidden) / 1024} KiB are ${((100 * eight.talk) / eight.step).toFixed(0)}% of a step; their latency matters, not their bytes. Communication
also takes multiprocessors and bandwidth from the work it hides behind, which is not counted here. A kernel of our own
that sums small messages over peer memory would shorten them; plain NCCL comes first.
`);
}
