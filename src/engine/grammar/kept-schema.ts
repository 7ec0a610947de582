// JSON schemas as xgrammar keeps them: what it passes over without a word is written in another way, or refused by
// name.
import { ArgumentError } from '../../base/errors.js';
import type { Grammar } from '../request.js';

type Schema = Readonly<Record<string, unknown>>;
const isSchema = (v: unknown): v is Schema => typeof v === 'object' && v !== null && !Array.isArray(v);

/** Keywords by the type of value that they speak of. */
const OF_TYPE: Readonly<Record<string, readonly string[]>> = {
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems', 'unevaluatedItems'],
  object: [
    ...['properties', 'patternProperties', 'additionalProperties', 'unevaluatedProperties', 'propertyNames'],
    ...['required', 'minProperties', 'maxProperties'],
  ],
};
/** Keywords that no grammar here expresses. */
const NEVER = [
  ...['multipleOf', 'uniqueItems', 'contains', 'minContains', 'maxContains', 'additionalItems', 'not', 'if'],
  ...['dependentRequired', 'dependentSchemas', 'dependencies', '$dynamicRef', '$recursiveRef'],
];
/** Keywords that speak alone: others beside them are not looked at. */
const ALONE = ['$ref', 'const', 'enum', 'anyOf', 'oneOf', 'allOf'];
/** Where schemas stand inside of a schema: one, a list, or one for each name. */
const INNER = ['items', 'additionalProperties', 'propertyNames', 'unevaluatedItems', 'unevaluatedProperties'];
const LISTS = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const NAMED = ['properties', 'patternProperties', '$defs', 'definitions'];
/** A bound that no answer reaches, where a schema gives only the other one: one alone is not kept. */
const FAR = 1e15;

/** The type's name of a value, with whole numbers as such. */
const typeOf = (v: unknown): string =>
  v === null ? 'null' : Array.isArray(v) ? 'array' : Number.isInteger(v) ? 'integer' : typeof v;
const isOf = (type: unknown, v: unknown): boolean =>
  [type].flat().some((t) => t === typeOf(v) || (t === 'number' && typeOf(v) === 'integer'));

function refuseUnkept(s: Schema, at: string): void {
  const refuse = (what: string): never => {
    throw new ArgumentError(`grammar: ${at || 'the schema'}: ${what}; answers would not keep to it`);
  };
  for (const word of NEVER) if (s[word] !== undefined && s[word] !== false) refuse(`${word} is not expressed`);
  if (Array.isArray(s.allOf) && s.allOf.length > 1) refuse('allOf of several schemas is not expressed');
  for (const word of ['exclusiveMinimum', 'exclusiveMaximum'])
    if (s[word] !== undefined && typeof s[word] !== 'number') refuse(`${word} is no number`);
  if (Array.isArray(s.items)) refuse('items is a list; prefixItems has that meaning');
  const [alone] = ALONE.filter((word) => s[word] !== undefined);
  const values = alone === 'const' ? [s.const] : alone === 'enum' ? [s.enum].flat() : undefined;
  if (values && s.type !== undefined && !values.every((v) => isOf(s.type, v)))
    refuse(`type does not fit the values of ${alone}`);
  const more = [...ALONE, ...Object.values(OF_TYPE).flat(), ...(values ? [] : ['type'])];
  const beside = alone && more.find((word) => word !== alone && s[word] !== undefined);
  if (beside) refuse(`${beside} beside ${alone} is not looked at`);
  const types = Object.keys(OF_TYPE).filter((type) => OF_TYPE[type].some((word) => s[word] !== undefined));
  if (s.type === undefined && types.length > 1) refuse(`there is no type, and words of ${types.join(' and ')}`);
  if (s.additionalProperties === false && s.patternProperties === undefined && missingOf(s).length > 0)
    refuse(`${missingOf(s).join(', ')} is required and not allowed`);
  // A format says nothing that a pattern beside it would not: schemas made by programs have both.
  const [first, second] = ['pattern', ...(s.pattern === undefined ? ['format'] : []), 'maxLength', 'minLength'].filter(
    (word) => s[word] !== undefined,
  );
  if (second && (first === 'pattern' || first === 'format')) refuse(`${second} beside ${first} is not looked at`);
}

/** A bound that counts as the least beyond one that does not; whole numbers know their own. */
const beyond = (bound: unknown, sign: 1 | -1): number => {
  const n = bound as number;
  return n + sign * 1e-6 * Math.max(1, Math.abs(n));
};
/** Bounds of numbers as they are kept: two of them, and for fractions such as count themselves. */
function boundsOf(s: Schema, fractions: boolean): Schema {
  const out: Record<string, unknown> = {};
  if (fractions && typeof s.exclusiveMinimum === 'number') out.minimum = beyond(s.exclusiveMinimum, 1);
  if (fractions && typeof s.exclusiveMaximum === 'number') out.maximum = beyond(s.exclusiveMaximum, -1);
  const [low, high] = [s.minimum ?? s.exclusiveMinimum, s.maximum ?? s.exclusiveMaximum];
  if (low === undefined && typeof high === 'number') out.minimum = Math.min(-FAR, 2 * high);
  if (high === undefined && typeof low === 'number') out.maximum = Math.max(FAR, 2 * low);
  return fractions ? { ...out, exclusiveMinimum: undefined, exclusiveMaximum: undefined } : out;
}
/** What the schema leaves to be guessed, said: fewer answers fit it, all of which fit the schema. */
function spelledOut(s: Schema): Schema {
  const types = Object.keys(OF_TYPE).filter((type) => OF_TYPE[type].some((word) => s[word] !== undefined));
  const type = s.type ?? (types.length === 1 ? types[0] : undefined);
  const is = (name: string): boolean => [type].flat().includes(name);
  const missing = missingOf(s);
  const value = isSchema(s.additionalProperties) ? s.additionalProperties : {};
  return {
    ...s,
    ...(type !== undefined && { type }),
    ...boundsOf(s, is('number')),
    ...(is('array') && s.prefixItems === undefined && s.items === undefined && { items: {} }),
    ...(missing.length > 0 && {
      properties: { ...Object(s.properties), ...Object.fromEntries(missing.map((name) => [name, value])) },
    }),
  };
}
/** Names that are required without a schema of their own. */
const missingOf = (s: Schema): string[] =>
  (Array.isArray(s.required) ? s.required : []).filter((name) => !Object.hasOwn(Object(s.properties), name));

/** A schema that means the same, or less, and is kept word by word. What cannot be kept is refused, unless `loose`. */
export function keptSchema(given: unknown, loose = false, at = ''): unknown {
  if (!isSchema(given)) return given;
  if (!loose) refuseUnkept(given, at);
  const out: Record<string, unknown> = { ...spelledOut(given) };
  const inner = (v: unknown, ...path: (string | number)[]): unknown => keptSchema(v, loose, [at, ...path].join('/'));
  for (const word of INNER) if (isSchema(out[word])) out[word] = inner(out[word], word);
  for (const word of LISTS) {
    const list = out[word];
    if (Array.isArray(list)) out[word] = list.map((v, i) => inner(v, word, i));
  }
  for (const word of NAMED) {
    const named = out[word];
    if (isSchema(named))
      out[word] = Object.fromEntries(Object.entries(named).map(([name, v]) => [name, inner(v, word, name)]));
  }
  return out;
}

/** The same grammar, with schemas that are kept word by word. */
export function keptGrammar(g: Grammar): Grammar {
  if (g.kind === 'schema') return { ...g, schema: keptSchema(g.schema, g.loose) };
  if (g.kind === 'either') return { ...g, of: g.of.map(keptGrammar) };
  if (g.kind !== 'marked') return g;
  return { ...g, texts: g.texts.map((t) => ({ ...t, content: keptGrammar(t.content) })) };
}
