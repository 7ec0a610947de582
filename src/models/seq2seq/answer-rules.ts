// What a folder's generation_config.json says about the choice of tokens, on the host: rules in the order in which
// transformers applies them.
import { FormatError, UnsupportedError } from '../../base/errors.js';
import { tensor } from '../../tensor/create.js';
import type { Tensor } from '../../tensor/tensor.js';
import type { Json } from '../files/config.js';
import type { BeamOptions } from './beams.js';
import type { AnswerOptions } from './seq2seq.js';

/**
 * What a rule may look at: a row so far (the start included), where its answer begins and where it ends at the latest.
 */
interface Place {
  readonly row: readonly number[];
  readonly begin: number;
  readonly longest: number;
  readonly end: readonly number[];
  /** What was read, padding included. */
  readonly read: readonly number[];
}
/** Changes a row's logits in place. */
type Rule = (logits: Float32Array, at: Place) => void;

const numbers = (v: unknown): number[] =>
  (Array.isArray(v) ? v : [v]).filter((id): id is number => typeof id === 'number' && id >= 0);
const without = (logits: Float32Array, ids: Iterable<number>): void => {
  for (const id of ids) logits[id] = -Infinity;
};
const alone = (logits: Float32Array, ids: readonly number[]): void => {
  logits.fill(-Infinity);
  for (const id of ids) logits[id] = 0;
};
/** Tokens that would repeat a run of n tokens, of the row itself or of another. */
function repeats(row: readonly number[], n: number, of = row): number[] {
  const last = row.slice(row.length - n + 1);
  return of.flatMap((_, i) => {
    const run = of.slice(i, i + n);
    return run.length === n && last.every((id, k) => run[k] === id) ? [run[n - 1]] : [];
  });
}

/** By field, in the order of transformers; undefined: the value changes nothing. */
const RULES: Readonly<Record<string, (value: any, all: Json) => Rule | undefined>> = {
  repetition_penalty: (p: number) =>
    p === 1
      ? undefined
      : (logits, { row }) => {
          for (const id of new Set(row)) logits[id] = logits[id] < 0 ? logits[id] * p : logits[id] / p;
        },
  no_repeat_ngram_size: (n: number) =>
    n === 0
      ? undefined
      : (logits, { row }) => {
          if (row.length + 1 >= n) without(logits, repeats(row, n));
        },
  encoder_no_repeat_ngram_size: (n: number) =>
    n === 0
      ? undefined
      : (logits, { row, read }) => {
          if (row.length + 1 >= n) without(logits, repeats(row, n, read));
        },
  bad_words_ids: (words: number[][], all) => {
    const ends = numbers(all.eos_token_id);
    const bad = words.filter((w) => !(w.length === 1 && ends.includes(w[0])));
    return (logits, { row }) => {
      const now = bad.filter((w) => w.slice(0, -1).every((id, i) => row[row.length - w.length + 1 + i] === id));
      without(
        logits,
        now.map((w) => w.at(-1) as number),
      );
    };
  },
  min_length:
    (n: number) =>
    (logits, { row, end }) => {
      if (row.length < n) without(logits, end);
    },
  min_new_tokens:
    (n: number) =>
    (logits, { row, begin, end }) => {
      if (row.length - begin < n) without(logits, end);
    },
  forced_bos_token_id:
    (id: number) =>
    (logits, { row }) => {
      if (row.length === 1) alone(logits, [id]);
    },
  forced_eos_token_id:
    (id: number | number[]) =>
    (logits, { row, longest }) => {
      if (row.length === longest - 1) alone(logits, numbers(id));
    },
  suppress_tokens: (ids: number[]) => (logits) => without(logits, numbers(ids)),
  begin_suppress_tokens: (ids: number[], all) => {
    const forced = typeof all.forced_bos_token_id === 'number';
    return (logits, { row, begin }) => {
      if (row.length === begin + (forced && begin === 1 ? 1 : 0)) without(logits, numbers(ids));
    };
  },
};
type Test = (value: unknown) => boolean;
const isCount: Test = (v) => Number.isSafeInteger(v) && (v as number) >= 0;
const areTokens: Test = (v) => (Array.isArray(v) ? v : [v]).every(Number.isSafeInteger);
/** What the values of fields are; a value of another kind is refused. */
const KINDS: Readonly<Record<string, readonly [what: string, is: Test]>> = {
  repetition_penalty: ['a number above 0', (v) => Number.isFinite(v) && (v as number) > 0],
  length_penalty: ['a number', Number.isFinite],
  early_stopping: ['true, false or "never"', (v) => typeof v === 'boolean' || v === 'never'],
  bad_words_ids: [
    'a list of lists of tokens',
    (v) => Array.isArray(v) && v.every((w) => w?.length > 0 && areTokens(w)),
  ],
  ...Object.fromEntries(
    ['no_repeat_ngram_size', 'encoder_no_repeat_ngram_size', 'min_length', 'min_new_tokens', 'num_beams'].map((f) => [
      f,
      ['a whole number from 0', isCount] as const,
    ]),
  ),
  ...Object.fromEntries(
    ['forced_bos_token_id', 'forced_eos_token_id', 'suppress_tokens', 'begin_suppress_tokens'].map((f) => [
      f,
      ['a token or a list of tokens', areTokens] as const,
    ]),
  ),
};
/** Fields that would change a greedy answer and that no rule serves, with the values that change nothing. */
const UNSERVED: Readonly<Record<string, readonly unknown[]>> = {
  sequence_bias: [],
  guidance_scale: [1],
  encoder_repetition_penalty: [1],
  exponential_decay_length_penalty: [],
  watermarking_config: [],
  penalty_alpha: [],
  num_beam_groups: [1],
  diversity_penalty: [0],
};

/** How many beams a folder asks for, and how they end. */
const beamsOf = (g: Json): Partial<BeamOptions> =>
  typeof g.num_beams === 'number' && g.num_beams > 1
    ? {
        beams: g.num_beams,
        ...(typeof g.length_penalty === 'number' && { lengthPenalty: g.length_penalty }),
        ...((g.early_stopping === true || g.early_stopping === 'never') && { earlyStopping: g.early_stopping }),
      }
    : {};

/** The rules of a folder as `answer` takes them; fields that cannot be followed are refused by name. */
export function answerRules(g: Json, where: string): (o: AnswerOptions) => Partial<AnswerOptions> {
  for (const [field, fine] of Object.entries(UNSERVED))
    if (g[field] !== undefined && g[field] !== null && !fine.includes(g[field]))
      throw new UnsupportedError(
        `${where}: ${field} is ${JSON.stringify(g[field])}; this changes the answer and is not served`,
      );
  for (const [field, [what, is]] of Object.entries(KINDS))
    if (g[field] !== undefined && g[field] !== null && !is(g[field]))
      throw new FormatError(`${where}: ${field} is ${JSON.stringify(g[field])}, not ${what}`);
  const beams = beamsOf(g);
  const rules = Object.entries(RULES).flatMap(([field, make]) => {
    const value = g[field] as unknown;
    const rule = value === undefined || value === null ? undefined : make(value, g);
    return rule ? [rule] : [];
  });
  if (rules.length === 0) return () => beams;
  return ({ start, end, read, maxTokens = 64 }) => {
    if (!read && g.encoder_no_repeat_ngram_size)
      throw new UnsupportedError(
        `${where}: encoder_no_repeat_ngram_size is ${g.encoder_no_repeat_ngram_size}, and the tokens that were read ` +
          'are not given',
      );
    const place = { begin: start.length, longest: start.length + maxTokens, end };
    return {
      ...beams,
      adjust: (logits: Tensor, _step, rows) => {
        const [, vocabulary] = logits.shape;
        const all = Float32Array.from(logits.cast('f32').contiguous().dataSync() as Float32Array);
        rows.forEach((row, i) => {
          const own = all.subarray(i * vocabulary, (i + 1) * vocabulary);
          // Beams of a text stand side by side.
          const text = read?.[Math.floor((i * read.length) / rows.length)] ?? [];
          for (const rule of rules) rule(own, { row, ...place, read: text });
        });
        return tensor(all, { shape: [...logits.shape], device: logits.device });
      },
    };
  };
}
