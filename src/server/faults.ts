// What a schema has against a value, in sentences: for clients of the API, and for what is typed in the terminal.
import type { z } from 'zod';

const ARTICLES: Readonly<Record<string, string>> = {
  int: 'a whole number',
  record: 'an object',
  object: 'an object',
  array: 'an array',
};
const aKind = (kind: string): string => ARTICLES[kind] ?? `a ${kind}`;
const kindOf = (value: unknown): string => {
  if (value === null) return 'null';
  return typeof value === 'number' && Number.isNaN(value)
    ? 'NaN'
    : aKind(Array.isArray(value) ? 'array' : typeof value);
};
const MEMBERS: Readonly<Record<string, string>> = { string: 'characters', array: 'members' };

/** One of a schema's complaints; those without a sentence here keep their own. */
export const faultOf: z.core.$ZodErrorMap = (issue) => {
  switch (issue.code) {
    case 'invalid_type': {
      const wanted = aKind(issue.expected);
      if (issue.input === undefined) return `is missing; ${wanted} is expected`;
      return `${wanted} is expected, not ${issue.expected === 'int' ? String(issue.input) : kindOf(issue.input)}`;
    }
    case 'too_small': {
      const members = MEMBERS[issue.origin];
      if (members) return Number(issue.minimum) === 1 ? 'is empty' : `has fewer than ${issue.minimum} ${members}`;
      return `must be ${issue.inclusive ? 'at least' : 'more than'} ${issue.minimum}`;
    }
    case 'too_big': {
      const members = MEMBERS[issue.origin];
      if (members) return `has more than ${issue.maximum} ${members}`;
      return `must be ${issue.inclusive ? 'at most' : 'less than'} ${issue.maximum}`;
    }
    case 'invalid_value':
      return oneOf(issue.values);
    case 'invalid_union':
      return 'options' in issue && Array.isArray(issue.options) ? oneOf(issue.options) : undefined;
    default:
      return undefined;
  }
};

/** A word that is none of those that are known. */
export const oneOf = (words: readonly unknown[]): string =>
  `${words.length > 1 ? 'one of ' : ''}${words.map((w) => JSON.stringify(w)).join(', ')} is expected`;

type Issues = readonly z.core.$ZodIssue[];
/** Whether an alternative is not what was meant: another kind of value, or another word where it has its own. */
const isAnother = (issues: Issues): boolean =>
  issues.some(
    (i) => i.path.length === 0 || (i.code === 'invalid_value' && i.values.length === 1 && i.path.length === 1),
  );

/** Of a union's alternatives the one that was meant, or else the one that came furthest, says best what is wrong. */
export function deepest(issues: Issues): z.core.$ZodIssue {
  const [first] = issues;
  if (first.code !== 'invalid_union' || first.errors.length === 0) return first;
  const wrong = first.errors.filter((e) => e.length > 0);
  const meant = wrong.filter((e) => !isAnother(e));
  const inner = (meant.length > 0 ? meant : wrong).map(deepest);
  const best = inner.reduce((a, b) => (b.path.length > a.path.length ? b : a));
  if (best.path.length === 0) {
    // Of the right type, and too long, say.
    const nearest = inner.find((i) => i.code !== 'invalid_type');
    if (nearest) return { ...nearest, path: first.path };
    const kinds = new Set(inner.flatMap((i) => (i.code === 'invalid_type' ? [aKind(i.expected)] : [])));
    return kinds.size > 0 ? { ...first, message: `${[...kinds].join(' or ')} is expected` } : first;
  }
  // Alternatives told apart by a word: all of these words are what is expected there.
  const words = inner.flatMap((i) => (i.code === 'invalid_value' && `${i.path}` === `${best.path}` ? i.values : []));
  return { ...best, message: words.length > 1 ? oneOf(words) : best.message, path: [...first.path, ...best.path] };
}
