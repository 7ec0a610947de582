// Beam search: of all continuations the likeliest few go on, and of those that ended the best is the answer. Scores,
// ends and choices are those of transformers.
import { ArgumentError } from '../../base/errors.js';

/** How wide a search is, and when it ends. */
export interface BeamOptions {
  /** Continuations that go on at a time; 1 takes the likeliest token each time. */
  readonly beams: number;
  /** A score is divided by the answer's length to this power; default 1. */
  readonly lengthPenalty?: number;
  /**
   * When a text is done: true as soon as as many answers have ended as there are beams, false where no running one can
   * be expected to be better, 'never' where none can be; default false.
   */
  readonly earlyStopping?: boolean | 'never';
}
/** An answer with its score. */
export interface Hypothesis {
  /** Its tokens, those that it began with included. */
  readonly row: readonly number[];
  /** The sum of its tokens' log-probabilities, divided by its length to the power of the penalty. */
  readonly score: number;
}
interface Candidate extends Hypothesis {
  readonly parent: number;
  readonly ended: boolean;
}
const byScore = (a: Hypothesis, b: Hypothesis): number => b.score - a.score;

/** The largest `count` sums of a beam's score and its tokens' log-probabilities, the best first. */
function best(beams: readonly Hypothesis[], logs: readonly Float32Array[], count: number): [number, number, number][] {
  const kept: [score: number, parent: number, token: number][] = [];
  beams.forEach(({ score }, parent) =>
    logs[parent].forEach((log, token) => {
      const sum = score + log;
      if (kept.length === count && !(sum > kept[count - 1][0])) return;
      let at = kept.length;
      while (at > 0 && kept[at - 1][0] < sum) at--;
      kept.splice(at, 0, [sum, parent, token]);
      if (kept.length > count) kept.pop();
    }),
  );
  return kept;
}

/** The search for the answer to one text. */
export class Beams {
  /** What goes on, as many as there are beams. */
  running: readonly Hypothesis[];
  /** What has ended, the best first. */
  ended: readonly Hypothesis[] = [];
  readonly #o: Required<BeamOptions>;
  readonly #begin: number;
  readonly #longest: number;
  readonly #end: ReadonlySet<number>;
  #hopeful = true;
  #stuck = false;
  constructor(start: readonly number[], o: BeamOptions, end: readonly number[], maxTokens: number) {
    const { beams, lengthPenalty = 1, earlyStopping = false } = o;
    if (!Number.isSafeInteger(beams) || beams < 1)
      throw new ArgumentError(`beam search: ${String(beams)} beams; it takes a whole number from 1`);
    this.#o = { beams, lengthPenalty, earlyStopping };
    this.#begin = start.length;
    this.#longest = start.length + maxTokens;
    this.#end = new Set(end);
    // All begin alike: only the first one's continuations count.
    this.running = Array.from({ length: beams }, (_, i) => ({ row: start, score: i === 0 ? 0 : -1e9 }));
  }
  get #full(): boolean {
    return this.ended.length === this.#o.beams && this.#o.earlyStopping === true;
  }
  /** Whether more tokens can change the answer. */
  get open(): boolean {
    return this.#hopeful && !this.#full && !this.#stuck;
  }
  /** Goes a token further by each beam's log-probabilities; answers which beam each of the next ones goes on from. */
  step(logs: readonly Float32Array[]): number[] {
    const { beams, lengthPenalty, earlyStopping } = this.#o;
    const grown = this.running[0].row.length + 1;
    const found = best(this.running, logs, Math.max(2, 1 + this.#end.size) * beams).map(
      ([score, parent, token]): Candidate => ({
        row: [...this.running[parent].row, token],
        ...{ score, parent, ended: this.#end.has(token) || grown >= this.#longest },
      }),
    );
    if (this.open) {
      const just = found
        .slice(0, beams)
        .filter((c) => c.ended)
        .map(({ row, score }) => ({ row, score: score / (grown - this.#begin) ** lengthPenalty }));
      this.ended = [...this.ended, ...just].sort(byScore).slice(0, beams);
    }
    this.#stuck = found.every((c) => c.ended);
    const next = found
      .map((c) => (c.ended ? { ...c, score: c.score - 1e9 } : c))
      .sort(byScore)
      .slice(0, beams);
    this.running = next.map(({ row, score }) => ({ row, score }));
    // What the best running one could come to, against the worst that has ended.
    const length = earlyStopping === 'never' && lengthPenalty > 0 ? this.#longest - this.#begin : grown - this.#begin;
    const worst = this.ended.length < beams ? -1e9 : (this.ended.at(-1) as Hypothesis).score;
    this.#hopeful &&= next[0].score / length ** lengthPenalty > worst;
    return next.map((c) => c.parent);
  }
}

/** All texts' searches until none is open: `run` answers log-probabilities by row and goes on from the rows named. */
export function searchBeams(
  starts: readonly (readonly number[])[],
  o: BeamOptions,
  end: readonly number[],
  maxTokens: number,
  run: (rows: readonly (readonly number[])[], from: readonly number[] | undefined) => Float32Array[],
): readonly Hypothesis[][] {
  const texts = starts.map((start) => new Beams(start, o, end, maxTokens));
  let from: number[] | undefined;
  for (let step = 0; step < maxTokens && texts.some((t) => t.open); step++) {
    const logs = run(
      texts.flatMap((t) => t.running.map((h) => h.row)),
      from,
    );
    from = texts.flatMap((t, i) =>
      t.step(logs.slice(i * o.beams, (i + 1) * o.beams)).map((parent) => i * o.beams + parent),
    );
  }
  return texts.map((t) => (t.ended.length > 0 ? [...t.ended] : [t.running[0]]));
}
