// Where the time of an engine's steps goes, by kind of step: those of one token a sequence, and those with prompts.
import { table } from '../src/cli/table.js';
import type { StepTimes } from '../src/engine/index.js';

const PARTS = ['plan', 'enqueue', 'tell', 'wait', 'take'] as const;
type Part = (typeof PARTS)[number] | 'period';
interface Sum extends Record<Part, number> {
  steps: number;
  ahead: number;
  sequences: number;
  tokens: number;
}
/** Longer between two steps: nobody asked for anything. */
const IDLE_MS = 1000;

export class StepBreakdown {
  readonly #kinds = new Map<string, Sum>();
  #last = 0;
  readonly add = (t: StepTimes): void => {
    const kind = t.tokens > t.sequences ? 'with prompts' : t.sequences > 8 ? 'decoding' : 'decoding, up to 8';
    const none = { steps: 0, ahead: 0, sequences: 0, tokens: 0, period: 0 };
    const sum = this.#kinds.get(kind) ?? { ...none, plan: 0, enqueue: 0, tell: 0, wait: 0, take: 0 };
    this.#kinds.set(kind, sum);
    const since = t.at - this.#last;
    this.#last = t.at;
    sum.steps++;
    sum.ahead += Number(t.ahead);
    sum.sequences += t.sequences;
    sum.tokens += t.tokens;
    if (since < IDLE_MS) sum.period += since;
    for (const part of PARTS) sum[part] += t[part];
  };
  clear(): void {
    this.#kinds.clear();
  }
  /** Milliseconds a step; what is none of the parts is the event loop's: sockets, timers, other readers. */
  toString(): string {
    return table(
      ['steps', 'number', 'ahead', 'sequences', 'tokens', 's in all', 'ms a step', ...PARTS, 'rest'],
      [...this.#kinds].map(([kind, s]) => {
        const each = (x: number): string => (x / s.steps).toFixed(2);
        const rest = PARTS.reduce((left, part) => left - s[part], s.period);
        const sizes = [(s.sequences / s.steps).toFixed(0), (s.tokens / s.steps).toFixed(0)];
        const times = [(s.period / 1000).toFixed(2), each(s.period), ...PARTS.map((p) => each(s[p])), each(rest)];
        return [kind, String(s.steps), String(s.ahead), ...sizes, ...times];
      }),
    );
  }
}
