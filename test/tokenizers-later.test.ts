// Long texts on a thread of their own: the same numbers, and the event loop goes on; who has gone is left out.
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import { ArgumentError } from '../src/base/errors.js';
import { packageRoot } from '../src/base/paths.js';
import { builtinModel } from '../src/engine/index.js';
import { loadTokenizer, Tokenizer, tokenizerFromJson } from '../src/tokenizers/index.js';
import { scratch } from './io-support.js';
import { noModel } from './server-support.js';

const golden = JSON.parse(
  brotliDecompressSync(readFileSync(join(packageRoot, 'test/golden/tokenizers.json.br'))).toString(),
) as {
  readonly tokenizers: { readonly name: string; readonly json: object; readonly rows: { readonly text: string }[] }[];
};
const jsonOf = (json: object): string => {
  const file = join(scratch(), 'tokenizer.json');
  writeFileSync(file, JSON.stringify(json));
  return file;
};
/** Longer than what is encoded at once: characters of every length, halves of some, and a mark at the beginning. */
const LONG = `\ufeff${'What light, \u00e9\u4e16\u{1f600}\ud800 breaks?\n'.repeat(600)}\udc00`;

test('long texts have the same numbers as at once, in every kind of tokenizer', async () => {
  for (const { name, json, rows } of golden.tokenizers.filter((_, i) => i % 6 === 0)) {
    const tokenizer = loadTokenizer(jsonOf(json));
    const text = rows
      .map((row) => row.text)
      .join('\n')
      .repeat(40)
      .slice(0, 9000);
    assert.equal(text.length, 9000);
    assert.deepEqual(await tokenizer.encodeLater(text), tokenizer.encode(text), name);
  }
});

test('options, halves of characters and errors are those of encode', { skip: noModel }, async () => {
  const tokenizer = loadTokenizer(builtinModel);
  const every = [{}, { special: false }, { parseSpecial: false }, { pair: 'who?' }, { pair: LONG, maxLength: 999 }];
  for (const options of every)
    assert.deepEqual(await tokenizer.encodeLater(LONG, options), tokenizer.encode(LONG, options));
  const template = (ids: string[]): object => ({
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '[S]', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 0 } }],
    special_tokens: { '[S]': { id: '[S]', ids: [1], tokens: ids } },
  });
  const model = { type: 'WordLevel', vocab: { a: 0, '[S]': 1 }, unk_token: 'a' };
  const narrow = loadTokenizer(jsonOf({ model, post_processor: template(['[S]']) }));
  await assert.rejects(narrow.encodeLater('a'.repeat(9000), { maxLength: 0 }), (e) => {
    assert.ok(e instanceof ArgumentError);
    return /0 tokens have no room for 1 special/.test(e.message);
  });
  assert.deepEqual(await narrow.encodeLater('a'.repeat(9000)), [1, 0], 'the thread goes on after an error');
});

test('the event loop goes on while a megabyte is read, and in turns between many short texts', {
  skip: noModel,
}, async () => {
  const tokenizer = loadTokenizer(builtinModel);
  const turnsOf = async (work: () => Promise<unknown>): Promise<number> => {
    let [turns, over] = [0, false];
    const count = (): void => {
      turns++;
      if (!over) setImmediate(count);
    };
    setImmediate(count);
    await work();
    over = true;
    return turns;
  };
  const text = 'What light is this that breaks? '.repeat(4000);
  assert.ok((await turnsOf(() => tokenizer.encodeLater(text))) > 20);
  const short = text.slice(0, 4000);
  const many = (): Promise<unknown> => Promise.all(Array.from({ length: 24 }, () => tokenizer.encodeLater(short)));
  assert.ok((await turnsOf(many)) >= 11);
});

test('texts of who has gone are left out, and the others have their answers', { skip: noModel }, async () => {
  const tokenizer = loadTokenizer(builtinModel);
  const gone = new AbortController();
  const first = tokenizer.encodeLater(LONG);
  const second = tokenizer.encodeLater(LONG, { signal: gone.signal });
  const third = tokenizer.encodeLater(`${LONG}!`);
  gone.abort(new Error('gone'));
  await assert.rejects(second, /gone/);
  assert.deepEqual([await first, await third], [tokenizer.encode(LONG), tokenizer.encode(`${LONG}!`)]);
  await assert.rejects(tokenizer.encodeLater('a', { signal: gone.signal }), /gone/);
});

test('a tokenizer without files, or whose files are others by now, encodes by itself', async () => {
  const [{ json }, other] = golden.tokenizers;
  const byHand = tokenizerFromJson(json as Parameters<typeof tokenizerFromJson>[0]);
  assert.ok(byHand instanceof Tokenizer);
  assert.deepEqual(await byHand.encodeLater(LONG), byHand.encode(LONG));
  const file = jsonOf(json);
  const tokenizer = loadTokenizer(file);
  copyFileSync(jsonOf(other.json), file);
  assert.deepEqual(await tokenizer.encodeLater(LONG), tokenizer.encode(LONG));
});
