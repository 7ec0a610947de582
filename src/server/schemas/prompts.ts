// Texts or token numbers. There may be a million numbers: unions of lists would write down what is wrong with each of
// them for every alternative, so that one loop looks at them, up to the first that is none.
import { z } from 'zod';

interface Fault {
  readonly path: readonly number[];
  readonly message: string;
}
const fault = (message: string, ...path: number[]): Fault => ({ path, message });

function faultOfTokens(list: readonly unknown[], ...path: number[]): Fault | undefined {
  const at = list.findIndex((token) => !Number.isSafeInteger(token) || (token as number) < 0);
  return at < 0 ? undefined : fault('a token number is a whole number from 0', ...path, at);
}
function faultOfList(list: readonly unknown[], most: number): Fault | undefined {
  if (list.length === 0) return fault('the list is empty');
  if (typeof list[0] === 'number') return faultOfTokens(list);
  if (list.length > most) return fault(`the list has ${list.length} members, and at most ${most} are taken`);
  const texts = typeof list[0] === 'string';
  for (const [i, item] of list.entries()) {
    if (texts && typeof item === 'string') continue;
    if (texts) return fault('a text is expected, as before it', i);
    if (!Array.isArray(item)) return fault('a text or a list of token numbers is expected', i);
    const found = item.length === 0 ? fault('the list is empty', i) : faultOfTokens(item, i);
    if (found) return found;
  }
  return undefined;
}

const told = (found: Fault | undefined, context: z.core.$RefinementCtx): void => {
  if (found) context.addIssue({ code: 'custom', path: [...found.path], message: found.message });
};
const TOKENS = { type: 'array', items: { type: 'integer', minimum: 0 } } as const;

/** A list of token numbers. */
export const tokenList = z
  .custom<number[]>()
  .superRefine((value, context) =>
    told(Array.isArray(value) ? faultOfTokens(value) : fault('a list of token numbers is expected'), context),
  )
  .meta(TOKENS);

/** A text, a list of texts, a list of token numbers, or a list of such lists, `most` at a time. */
export const textsOrTokens = (most: number) =>
  z
    .custom<string | string[] | number[] | number[][]>()
    .superRefine((value, context) => {
      if (typeof value === 'string') return;
      told(Array.isArray(value) ? faultOfList(value, most) : fault('a text or a list is expected'), context);
    })
    .meta({
      anyOf: [
        { type: 'string' },
        { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: most },
        { ...TOKENS, minItems: 1 },
        { type: 'array', items: { ...TOKENS, minItems: 1 }, minItems: 1, maxItems: most },
      ],
    });
