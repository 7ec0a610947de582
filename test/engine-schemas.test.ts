// JSON schemas bind answers word by word, or are refused by name.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { z } from 'zod';
import { ArgumentError } from '../src/base/errors.js';
import { packageRoot } from '../src/base/paths.js';
import { GrammarWorker } from '../src/engine/grammar/grammar.js';
import { keptSchema } from '../src/engine/grammar/kept-schema.js';
import { loadTokenizer } from '../src/tokenizers/index.js';

const VOCABULARY = 1024;
const END = 0;
const tokenizer = loadTokenizer(join(packageRoot, 'models/builtin'));
const compiler = new GrammarWorker(tokenizer, VOCABULARY);
after(() => compiler.dispose());

/** Whether an answer bound by the schema may be this value. */
const fits = (schema: object, value: unknown): Promise<boolean> => accepts(schema, JSON.stringify(value));
async function accepts(schema: object, text: string): Promise<boolean> {
  const state = await compiler.open({ kind: 'schema', schema }, [END]);
  const allowed = (token: number): boolean => ((state.mask[token >> 5] >> (token & 31)) & 1) === 1;
  try {
    for (const token of tokenizer.encode(text).filter((id) => id !== END)) {
      if (!allowed(token)) return false;
      state.accept(token);
      await state.ready();
    }
    return state.complete || allowed(END);
  } finally {
    state.close();
  }
}

/** Values that fit and values that do not. */
const KEPT: readonly (readonly [schema: object, fit: readonly unknown[], unfit: readonly unknown[]])[] = [
  [{ type: 'integer', minimum: 15 }, [15, 123], [1, -20]],
  [{ type: 'integer', maximum: 15 }, [15, -160], [16]],
  [{ type: 'integer', exclusiveMinimum: 5 }, [6], [5]],
  [{ type: 'number', minimum: 5 }, [5, 7.25], [3, 4.5]],
  [{ type: 'number', exclusiveMinimum: 0 }, [0.5, 12], [0, -1]],
  [{ type: 'number', exclusiveMaximum: 10 }, [9.5, -3], [10, 11]],
  [{ type: ['string', 'integer'], minimum: 3, minLength: 2 }, ['ab', 3], ['a', 1]],
  [{ minLength: 2 }, ['ab'], ['a', 5]],
  [{ minimum: 3 }, [3.5], [1]],
  [{ type: 'array', minItems: 2 }, [[1, { a: null }]], [[1]]],
  [{ type: 'object', required: ['z'] }, [{ z: 1 }], [{}]],
  [{ additionalProperties: { type: 'integer' }, required: ['q'] }, [{ q: 3 }], [{ q: 'a' }, {}]],
  [{ type: 'object', properties: { a: { type: 'integer', minimum: 2 } }, required: ['a'] }, [{ a: 2 }], [{ a: 1 }]],
  [{ anyOf: [{ type: 'integer', minimum: 7 }, { type: 'null' }] }, [7, null], [6]],
];
for (const [schema, fit, unfit] of KEPT)
  test(`kept: ${JSON.stringify(schema)}`, async () => {
    for (const value of fit) assert.ok(await fits(schema, value), `${JSON.stringify(value)} fits`);
    for (const value of unfit) assert.ok(!(await fits(schema, value)), `${JSON.stringify(value)} does not fit`);
  });

const REFUSED: readonly (readonly [schema: object, says: RegExp])[] = [
  [{ type: 'integer', multipleOf: 7 }, /the schema: multipleOf is not expressed/],
  [{ type: 'array', uniqueItems: true }, /uniqueItems is not expressed/],
  [{ properties: { a: { not: { type: 'string' } } } }, /grammar: \/properties\/a: not is not expressed/],
  [{ allOf: [{ type: 'string' }, { minLength: 5 }] }, /allOf of several schemas is not expressed/],
  [{ type: 'string', pattern: '^a+$', maxLength: 2 }, /maxLength beside pattern is not looked at/],
  [{ type: 'string', format: 'date', minLength: 2 }, /minLength beside format is not looked at/],
  [{ type: 'object', properties: {}, anyOf: [{ type: 'null' }] }, /properties beside anyOf|type beside anyOf/],
  [{ $defs: { d: { type: 'integer' } }, $ref: '#/$defs/d', minimum: 5 }, /minimum beside \$ref/],
  [{ type: 'string', enum: ['a', 3] }, /type does not fit the values of enum/],
  [{ minimum: 3, minLength: 4 }, /there is no type, and words of string and number/],
  [{ items: [{ type: 'integer' }] }, /items is a list/],
  [{ type: 'number', minimum: 3, exclusiveMinimum: true }, /exclusiveMinimum is no number/],
  [{ type: 'object', required: ['z'], additionalProperties: false }, /z is required and not allowed/],
];
for (const [schema, says] of REFUSED)
  test(`refused: ${JSON.stringify(schema)}`, () => {
    assert.throws(
      () => keptSchema(schema),
      (e) => e instanceof ArgumentError && says.test(e.message),
    );
    assert.ok(keptSchema(schema, true));
  });

test('what says nothing of values stays beside anything', () => {
  const schema = { $ref: '#/$defs/a', description: 'd', $defs: { a: { type: 'string', enum: ['x'], title: 't' } } };
  assert.deepEqual(JSON.parse(JSON.stringify(keptSchema(schema))), schema);
});

test('schemas that zod makes are kept', async () => {
  const made = z.object({
    mail: z.email(),
    id: z.uuid().optional(),
    age: z.number().int().positive(),
    share: z.number().min(0).max(1).nullable(),
    kind: z.enum(['a', 'b']).default('a'),
    tags: z.array(z.string()).min(1),
    pair: z.tuple([z.string(), z.number()]),
    by: z.record(z.string(), z.boolean()),
    one: z.discriminatedUnion('t', [z.object({ t: z.literal('x') }), z.object({ t: z.literal('y'), n: z.int() })]),
  });
  const value = {
    ...{ mail: 'a@b.org', age: 3, share: 0.5, kind: 'b', tags: ['q'], pair: ['p', 2], by: { k: true } },
    one: { t: 'y', n: 4 },
  };
  const schema = z.toJSONSchema(made);
  assert.ok(await fits(schema, value));
  assert.ok(!(await fits(schema, { ...value, age: 0 })));
});

test('blanks between the parts of a value are few, within texts they are as many as may be', async () => {
  const schema = { type: 'array', items: { type: 'string' } };
  const [few, many] = [' '.repeat(4) + '\n'.repeat(2), ' '.repeat(40) + '\n'.repeat(40)];
  assert.ok(await accepts(schema, `[${few}"a"${few},${few}"b\\" "]`));
  assert.ok(!(await accepts(schema, `[${many}"a"]`)));
  assert.ok(!(await accepts(schema, `["b\\" "${many}]`)));
  assert.ok(await accepts(schema, JSON.stringify(['a" ' + ' '.repeat(40)])));
});
