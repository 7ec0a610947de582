// Tokenizers against Hugging Face's library, SentencePiece, llama.cpp and transformers' chat templates: token numbers
// and texts must be equal.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync } from 'node:zlib';
import { ArgumentError, FormatError, UnsupportedError } from '../src/base/errors.js';
import { packageRoot } from '../src/base/paths.js';
import { builtinModel } from '../src/engine/index.js';
import { randomStream } from '../src/engine/sampler.js';
import type { GgufScalar } from '../src/io/gguf-value.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import {
  ChatTemplates,
  type ChatMessage,
  loadTokenizer,
  StopWatch,
  TextStream,
  Tokenizer,
  tokenizerFromGguf,
  tokenizerFromJson,
  tokenizerFromSentencePiece,
} from '../src/tokenizers/index.js';
import { finder } from '../src/tokenizers/pattern.js';
import { split } from '../src/tokenizers/pre-tokenizers.js';
import { PRE_TYPES } from '../src/tokenizers/pre-types.js';
import { scratch } from './io-support.js';

interface Row {
  readonly text: string;
  readonly ids: number[] | null;
  readonly decoded: string | null;
  readonly pair: string;
  readonly pairIds: number[];
  readonly typeIds: number[];
}
interface ChatRow {
  readonly template: string;
  readonly messages: string;
  readonly options: {
    readonly add_generation_prompt: boolean;
    readonly tools?: unknown[];
    readonly documents?: unknown[];
    readonly enable_thinking?: boolean;
    readonly continue_final_message?: boolean;
  };
  readonly text: string | null;
}
interface Golden {
  readonly tokenizers: { readonly name: string; readonly json: Record<string, unknown>; readonly rows: Row[] }[];
  readonly sentencepiece: { readonly name: string; readonly model: string; readonly rows: Row[] }[];
  readonly chat: {
    readonly templates: Record<string, string>;
    readonly messages: Record<string, ChatMessage[]>;
    readonly rows: ChatRow[];
  };
}
const folder = join(packageRoot, 'test/golden');
const golden = JSON.parse(brotliDecompressSync(readFileSync(join(folder, 'tokenizers.json.br'))).toString()) as Golden;

for (const { name, json, rows } of golden.tokenizers) {
  test(`tokenizer.json ${name}: numbers, text and pairs`, () => {
    const tokenizer = tokenizerFromJson(json);
    for (const row of rows) {
      if (row.ids === null) {
        assert.throws(() => tokenizer.encode(row.text), JSON.stringify(row.text));
        continue;
      }
      assert.deepEqual(tokenizer.encode(row.text), row.ids, JSON.stringify(row.text));
      assert.equal(tokenizer.decode(row.ids), row.decoded);
      const pair = tokenizer.encodeParts(row.text, { pair: row.pair });
      assert.deepEqual(pair, { ids: row.pairIds, typeIds: row.typeIds });
    }
  });
}

for (const { name, model, rows } of golden.sentencepiece) {
  test(`SentencePiece model ${name}: numbers and text`, () => {
    const tokenizer = tokenizerFromSentencePiece(Buffer.from(model, 'base64'));
    for (const row of rows) {
      assert.deepEqual(tokenizer.encode(row.text), row.ids, JSON.stringify(row.text));
      if (row.decoded !== null) assert.equal(tokenizer.decode(row.ids as number[]), row.decoded);
    }
  });
}

interface Folder {
  readonly name: string;
  /** In base64, by their names. */
  readonly files: Readonly<Record<string, string>>;
  readonly rows: Row[];
}
const older = JSON.parse(
  brotliDecompressSync(readFileSync(join(folder, 'tokenizer-folders.json.br'))).toString(),
) as Folder[];
const written = (files: Folder['files'], more: Readonly<Record<string, string>> = {}): string => {
  const at = scratch();
  for (const [name, content] of Object.entries(files)) writeFileSync(join(at, name), Buffer.from(content, 'base64'));
  for (const [name, content] of Object.entries(more)) writeFileSync(join(at, name), content);
  return at;
};
for (const { name, files, rows } of older)
  test(`a folder of ${name} without tokenizer.json: numbers, text and pairs`, () => {
    const tokenizer = loadTokenizer(written(files));
    for (const row of rows) {
      assert.deepEqual(tokenizer.encode(row.text), row.ids, JSON.stringify(row.text));
      assert.equal(tokenizer.decode(row.ids as number[]), row.decoded, JSON.stringify(row.text));
      const pair = tokenizer.encodeParts(row.text, { pair: row.pair });
      assert.deepEqual(pair, { ids: row.pairIds, typeIds: row.typeIds }, JSON.stringify([row.text, row.pair]));
    }
  });
test('word lists follow the class that a folder names, else its model, and are refused without either', () => {
  const of = (name: string): Folder['files'] => (older.find((f) => f.name === name) as Folder).files;
  const { 'tokenizer_config.json': _, ...list } = of('bert');
  const named = loadTokenizer(written(of('bert'))).encode('the cats');
  assert.deepEqual(loadTokenizer(written(list, { 'config.json': '{"model_type":"bert"}' })).encode('the cats'), named);
  const refused = (files: Folder['files'], config: object, message: RegExp): void =>
    assert.throws(
      () => loadTokenizer(written(files, { 'tokenizer_config.json': JSON.stringify(config) })),
      (e: Error) => e instanceof UnsupportedError && message.test(e.message),
    );
  refused(list, {}, /has vocab.txt, whose rules nothing names/);
  refused(list, { tokenizer_class: 'RoFormerTokenizer' }, /has vocab.txt, whose rules for roformer are not known/);
  refused(of('roberta'), { tokenizer_class: 'CLIPTokenizer' }, /vocab.json and merges.txt, whose rules for clip/);
  refused(of('marian-unigram'), { separate_vocabs: true }, /has separate_vocabs/);
  const model = Buffer.from(withBytes.model, 'base64');
  for (const tokenizer_class of ['M2M100Tokenizer', 'PegasusTokenizer', 'PLBartTokenizer', 'XLMRobertaTokenizer'])
    assert.throws(() => tokenizerFromSentencePiece(model, { tokenizer_class }), /numbers its tokens otherwise/);
  assert.ok(tokenizerFromSentencePiece(model, { tokenizer_class: 'T5Tokenizer' }));
});

const VOCABULARIES = ['bert-bge', 'gpt-2', 'llama-spm'].map((name) => `vocab/ggml-vocab-${name}.gguf`);
test('GGUF vocabularies: the numbers of llama.cpp', { skip: missingGolden(...VOCABULARIES) }, () => {
  for (const name of VOCABULARIES) {
    const path = findGolden(name) as string;
    const tokenizer = loadTokenizer(path);
    const texts = readFileSync(`${path}.inp`, 'utf8').split('\n__ggml_vocab_test__\n');
    const numbers = readFileSync(`${path}.out`, 'utf8').split('\n');
    texts.forEach((text, i) => {
      const want = (numbers[i] ?? '').trim().split(/\s+/).filter(Boolean).map(Number);
      assert.deepEqual(tokenizer.encode(text, { special: false }), want, `${name}: ${JSON.stringify(text)}`);
    });
  }
});
for (const name of ['llama', 'qwen3']) {
  test(`GGUF ${name}: plain and special tokens, and back`, { skip: missingGolden(`gguf/${name}`) }, () => {
    const dir = findGolden(`gguf/${name}`) as string;
    const tokenizer = loadTokenizer(join(dir, 'f32.gguf'));
    const { texts } = JSON.parse(readFileSync(join(dir, 'tokens.json'), 'utf8')) as {
      texts: { text: string; plain: number[]; special: number[]; back: string }[];
    };
    for (const { text, plain, special, back } of texts) {
      assert.deepEqual(tokenizer.encode(text, { special: false, parseSpecial: false }), plain, text);
      assert.deepEqual(tokenizer.encode(text, { special: false }), special, text);
      assert.equal(tokenizer.decode(special, { special: true }), back);
    }
  });
}

test('chat templates: the text of transformers, or its refusal', () => {
  const { templates, messages, rows } = golden.chat;
  for (const { template, messages: name, options, text } of rows) {
    const render = (): string =>
      new ChatTemplates(new Map([['default', templates[template]]]), { bos: '<s>', eos: '</s>' }).render(
        messages[name],
        {
          addGenerationPrompt: options.add_generation_prompt,
          ...(options.tools && { tools: options.tools }),
          ...(options.documents && { documents: options.documents }),
          ...(options.enable_thinking !== undefined && { enableThinking: options.enable_thinking }),
          ...(options.continue_final_message && { continueFinalMessage: true }),
          now: new Date(2026, 2, 5, 14, 7, 9),
        },
      );
    if (text === null) assert.throws(render, `${template} ${name}`);
    else assert.equal(render(), text, `${template} ${name} ${JSON.stringify(options)}`);
  }
});
test('a chat template by its name, tool_use when there are tools, and its own words on refusal', () => {
  const templates = new ChatTemplates(
    new Map([
      ['default', 'plain'],
      ['tool_use', 'with {{ tools|length }} tool'],
      ['angry', '{{ raise_exception("not like this") }}'],
    ]),
  );
  assert.equal(templates.render([]), 'plain');
  assert.equal(templates.render([], { tools: [{}] }), 'with 1 tool');
  assert.equal(templates.render([], { template: 'own {{ 1 + 1 }}' }), 'own 2');
  assert.throws(() => templates.render([], { template: 'angry' }), { message: /not like this/ });
  assert.throws(() => templates.render([], { template: 'none' }), ArgumentError);
});

const withBytes = golden.sentencepiece.find((s) => s.name === 'unigram-6') as Golden['sentencepiece'][0];
const streams: [string, Tokenizer][] = [
  ['byte fallback', tokenizerFromSentencePiece(Buffer.from(withBytes.model, 'base64'))],
];
const gpt2 = findGolden('tokenizer-gpt2');
if (gpt2) streams.push(['byte level', loadTokenizer(gpt2)]);
for (const [name, tokenizer] of streams) {
  test(`text as it comes (${name}): whole characters only, and all of them`, () => {
    for (const text of [
      '漢字と仮名 and 😀👨‍👩‍👧 done',
      'ééé x ßß',
      'a\u0301b  c\n\n d',
      '한국어세계'.repeat(9),
      'плюс <0x41> x',
    ]) {
      const ids = tokenizer.encode(text, { special: false });
      const stream = new TextStream(tokenizer);
      const pieces = ids.map((id) => stream.push(id));
      for (const piece of pieces) assert.doesNotMatch(piece, /\ufffd/, JSON.stringify(pieces));
      assert.equal(pieces.join('') + stream.flush(), tokenizer.decode(ids));
    }
  });
}
test('tokens in any order come as they do from one who decodes each with its neighbours', () => {
  const builtin = loadTokenizer(builtinModel);
  const slow = { decode: builtin.decode.bind(builtin), ownText: () => undefined } as unknown as Tokenizer;
  const random = randomStream(5);
  let [own, shared] = [0, 0];
  for (const special of [false, true]) {
    const [a, b] = [new TextStream(builtin, [3, 200], { special }), new TextStream(slow, [3, 200], { special })];
    for (let i = 0; i < 4000; i++) {
      const id = Math.floor(random() * (builtin.vocabSize + 2)); // bytes, words, special ones, and what is none
      if (builtin.ownText(id, { special }) === undefined) shared++;
      else own++;
      assert.equal(a.push(id), b.push(id), `token ${id} at ${i}`);
    }
    assert.equal(a.flush(), b.flush());
  }
  assert.ok(own > 1000 && shared > 500, `${own} ${shared}`);
});
test('half a character at the very end is shown as what it is', () => {
  const [, tokenizer] = streams[0];
  const ids = tokenizer.encode('x😀', { special: false }).slice(0, -1);
  const stream = new TextStream(tokenizer);
  assert.match(ids.map((id) => stream.push(id)).join('') + stream.flush(), /^x\ufffd+$/);
});
test('stop texts are found however they are cut, and only what may begin one waits', () => {
  const watch = new StopWatch(['STOP', '\n\n']);
  assert.deepEqual(
    ['a S', 'x', 'b\n', 'c S', 'TO', 'P and more', 'x'].map((p) => watch.push(p)),
    ['a ', 'Sx', 'b', '\nc ', '', '', ''],
  );
  assert.equal(watch.found, 'STOP');
  const open = new StopWatch(['END']);
  assert.equal(open.push('an EN') + open.flush(), 'an EN');
});

test('what is not known is refused by its name', () => {
  const model = { type: 'WordLevel', vocab: { a: 0 }, unk_token: 'a' };
  const refused = (json: Record<string, unknown>, message: RegExp): void =>
    assert.throws(() => tokenizerFromJson(json), { name: 'UnsupportedError', message });
  refused({ model: { ...model, type: 'Magic' } }, /model "Magic" is not known/);
  refused({ model, normalizer: { type: 'Rot13' } }, /normalizer "Rot13"/);
  refused({ model, pre_tokenizer: { type: 'Split', pattern: { String: 'x' }, behavior: 'Sideways' } }, /Sideways/);
  refused({ model, pre_tokenizer: { type: 'Digits', individual_digits: true, roman: true } }, /roman is not honoured/);
  refused({ model: { type: 'BPE', vocab: {}, merges: [], dropout: 0.1 } }, /dropout/);
  assert.throws(() => tokenizerFromSentencePiece(Uint8Array.of(10, 200)), { name: 'FormatError' });
  assert.throws(
    () =>
      tokenizerFromSentencePiece(Buffer.from(withBytes.model, 'base64'), { tokenizer_class: 'XLMRobertaTokenizer' }),
    UnsupportedError,
  );
});
test('fields of another kind are refused in a sentence', () => {
  const model = { type: 'WordLevel', vocab: { a: 0 }, unk_token: 'a' };
  const around = (ids: unknown) => ({
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: 'a', type_id: 0 } }],
    pair: [],
    special_tokens: { a: { id: 'a', ids, tokens: ['a'] } },
  });
  const rows: [json: Record<string, unknown>, message: RegExp][] = [
    [{ model, added_tokens: 7 }, /added tokens are 7/],
    [{ model, added_tokens: [null] }, /added token null has no text/],
    [{ model, added_tokens: [{ id: 1, content: 5 }] }, /has no text/],
    [{ model, added_tokens: [{ id: -1, content: 'b' }] }, /added token "b" has the number -1/],
    [{ model, post_processor: around(3) }, /single has/],
    [{ model, post_processor: { ...around([0]), single: [null] } }, /single has/],
    [{ model: { type: 'Unigram', unk_id: 0, vocab: [['a', 0], null] } }, /null is not a token and its score/],
    [{ model: { type: 'Unigram', unk_id: 0, vocab: [[5, 0]] } }, /\[5,0\] is not a token and its score/],
  ];
  for (const [json, message] of rows) assert.throws(() => tokenizerFromJson(json), { name: 'FormatError', message });
});

test('a chat template runs within bounds', () => {
  const rows: [template: string, message: RegExp][] = [
    ['{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}', /takes over \d+ steps/],
    ['{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}', /takes over/],
    [
      '{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}',
      /value of 2097152/,
    ],
    ['{% set ns = namespace(s="aa") %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}', /a value of/],
    ['{{ range(1000000000)|length }}', /range makes 1000000000 numbers/],
  ];
  for (const [template, message] of rows)
    assert.throws(() => new ChatTemplates(new Map([['default', template]])).render([{ role: 'user', content: 'x' }]), {
      name: 'FormatError',
      message,
    });
  for (const stated of [[null], [{ name: 'default' }], [{ name: 1, template: 'x' }], ['x']])
    assert.throws(() => ChatTemplates.fromFolder(scratch(), { chat_template: stated }, {}), {
      name: 'FormatError',
      message: /chat_template holds .*, not a name and a template/,
    });
  const folder = scratch();
  writeFileSync(join(folder, 'chat_templates'), 'a file where a folder should be');
  assert.throws(() => ChatTemplates.fromFolder(folder, {}, {}), {
    name: 'FormatError',
    message: /chat_templates: cannot be opened: ENOTDIR/,
  });
  const long = Array.from({ length: 2000 }, () => ({ role: 'user', content: 'word '.repeat(400) }));
  const plain = '{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}';
  assert.ok(new ChatTemplates(new Map([['default', plain]])).render(long).length > 3e6);
});

test('templates write and compare values as Python does', () => {
  const render = (template: string): string =>
    new ChatTemplates(new Map([['default', template]])).render([
      { role: 'user', content: null, tool: { a: [1, 2.5] } },
    ]);
  assert.equal(render('{{ true }} {{ none }} {{ messages[0].content }}{{ nothing }}'), 'True None None');
  assert.equal(
    render("{{ messages[0].tool }} {{ [1.0, none, 'q', \"it's\", 'é\n'] }}"),
    `{'a': [1, 2.5]} [1.0, None, 'q', \"it's\", 'é\\n']`,
  );
  assert.equal(render("{{ 'a' ~ true ~ none }} {{ false | string }} {{ 10 / 5 }}"), 'aTrueNone False 2.0');
  assert.equal(
    render('{{ [1] == [1] }} {{ 1 == "1" }} {{ nothing == none }} {{ 1 == 1.0 }} {{ {"a": 1} != {"a": 1} }}'),
    'True False False True False',
  );
  assert.equal(render('{% set x = true %}{% if x %}{{ x }}{% endif %}{% for i in [] %}{% endfor %}|'), 'True|');
});

test('regular expressions of tokenizer files: possessive, atomic, intersections, \\G, case', () => {
  const all = (pattern: string, text: string): string[] =>
    [...finder(pattern)(text)].map((m) => text.slice(m.start, m.end));
  assert.deepEqual(all('a++b|a', 'aaab aa'), ['aaab', 'a', 'a']);
  assert.deepEqual(all('(?>a|ab)c', 'abc ac'), ['ac']);
  assert.deepEqual(all('[a-z&&[^aeiou]]+', 'tree'), ['tr']);
  assert.deepEqual(all('\\G[a-z]', 'ab1c'), ['a', 'b']);
  assert.deepEqual(all("(?i:'s)", "it'S 'ſ 's"), ["'S", "'ſ", "'s"]);
  assert.deepEqual(all('\\s+$', 'a \nb  '), [' ', '  ']);
  // Small numbers of Latin-1 are letters outside of classes and none within, as in Oniguruma.
  assert.deepEqual(all('\\w+', 'a½ ²'), ['a½', '²']);
  assert.deepEqual(all('[^\\w\\s]+|[\\w]', 'a½-² x'), ['a', '½-²', 'x']);
  assert.throws(() => finder('(?<name'), { name: 'FormatError' });
});
test('a million characters without a space take no time to speak of', () => {
  const bpe = golden.tokenizers.find(
    (t) => (t.json.model as { type: string }).type === 'BPE',
  ) as Golden['tokenizers'][0];
  assert.ok(tokenizerFromJson({ model: bpe.json.model }).encode('ab'.repeat(500_000)).length > 0);
  assert.ok(streams[0][1].encode('ab'.repeat(500_000)).length > 0);
});
test('at most so many tokens, special ones included', () => {
  const special = { '<s>': { id: '<s>', ids: [0], tokens: ['<s>'] } };
  const part = (id: string): object => ({ Sequence: { id, type_id: 0 } });
  const start = { SpecialToken: { id: '<s>', type_id: 0 } };
  const tokenizer = tokenizerFromJson({
    model: { type: 'WordLevel', vocab: { '<s>': 0, a: 1, b: 2 }, unk_token: '<s>' },
    pre_tokenizer: { type: 'WhitespaceSplit' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [start, part('A')],
      pair: [start, part('A'), start, part('B')],
      special_tokens: special,
    },
  });
  assert.deepEqual(tokenizer.encode('a a a a', { maxLength: 3 }), [0, 1, 1]);
  assert.deepEqual(tokenizer.encode('a a a a', { pair: 'b', maxLength: 5 }), [0, 1, 1, 0, 2]);
  assert.deepEqual(tokenizer.encode('a a a a', { pair: 'b b b', maxLength: 6 }), [0, 1, 1, 0, 2, 2]);
  assert.throws(() => tokenizer.encode('a', { maxLength: 0 }), ArgumentError);
});

test("Kimi's words stop where Chinese characters begin, as Hugging Face's library cuts them", () => {
  const [pattern] = PRE_TYPES.get('kimi-k2')?.patterns ?? [];
  const text = "Hello中文WORLDword 12345 don't x/\n日本 カナ!";
  const pieces = split(finder(pattern), 'Isolated')([{ text, first: true }]).map((p) => p.text);
  assert.deepEqual(pieces, [
    ...['Hello', '中文', 'WORLDword', ' ', '123', '45', " don't", ' x', '/\n', '日本', ' カナ', '!'],
  ]);
});

test("a GGUF file of T5's tokenizer ends texts unless it says otherwise, as llama.cpp does", () => {
  const of = (more: Readonly<Record<string, boolean>>): Tokenizer => {
    const keys: Readonly<Record<string, GgufScalar>> = {
      ...{ model: 't5', tokens: ['<pad>', '</s>', '<unk>', '\u2581a'] },
      ...{ token_type: Int32Array.of(3, 3, 2, 1), scores: Float32Array.of(0, 0, 0, -1), eos_token_id: 1, ...more },
    };
    return tokenizerFromGguf({ get: (key) => keys[key.replace('tokenizer.ggml.', '')] });
  };
  assert.deepEqual(of({}).encode('a'), [3, 1]);
  assert.deepEqual(of({ add_eos_token: false }).encode('a'), [3]);
});

const letters = (more: Readonly<Record<string, unknown>>): Tokenizer =>
  tokenizerFromJson({
    model: { type: 'BPE', unk_token: '[UNK]', vocab: { '[UNK]': 0, '\u2581': 1, a: 2, b: 3, ' ': 4 }, merges: [] },
    ...more,
  });
test('added tokens are written as the normalizer leaves them, unless they are found before it', () => {
  const replace = { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' };
  const rows: [normalizer: object, decoder: object | null, normalized: string, plain: string][] = [
    [{ type: 'Lowercase' }, null, 'a a é b', 'a A É b'],
    [{ type: 'Prepend', prepend: '\u2581' }, replace, 'a A Éb', 'aA Éb'],
    [{ type: 'ByteLevel' }, { type: 'ByteLevel' }, 'aA Éb', 'aA Éb'],
  ];
  for (const [normalizer, decoder, ...texts] of rows)
    texts.forEach((text, i) => {
      const token = { id: 5, content: 'A É', normalized: i === 0, special: false };
      const tokenizer = letters({ normalizer, decoder, added_tokens: [token] });
      assert.equal(tokenizer.decode([2, 5, 3]), text, `${JSON.stringify(normalizer)} ${i}`);
      if (decoder) assert.equal(`a${Buffer.from(tokenizer.bytes(5)).toString()}b`, text);
    });
  // What is left out of texts stays out, whatever the normalizer makes of it.
  const end = { id: 5, content: '</S>', normalized: true, special: true };
  assert.equal(letters({ normalizer: { type: 'Lowercase' }, added_tokens: [end] }).decode([2, 5]), 'a');
});

test('a mark before the first word alone: not where the normalizer took away what the text began with', () => {
  const pre_tokenizer = { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'first', split: true };
  const strip = { type: 'Strip', strip_left: true, strip_right: true };
  const replace = (Regex: string, content: string): object => ({ type: 'Replace', pattern: { Regex }, content });
  const bert = { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: false, strip_accents: true };
  const texts = ['a b', '\na b', '\u0301a', '\x01a', '\u2028a'];
  const rows: [normalizer: object | null, ids: number[][]][] = [
    [
      null,
      [
        [1, 2, 1, 3],
        [1, 0, 2, 1, 3],
        [1, 0, 2],
        [1, 0, 2],
        [1, 0, 2],
      ],
    ],
    [strip, [[1, 2, 1, 3], [2, 1, 3], [1, 0, 2], [1, 0, 2], [2]]],
    [
      { type: 'Sequence', normalizers: [{ type: 'Lowercase' }, strip] },
      [[1, 2, 1, 3], [2, 1, 3], [1, 0, 2], [1, 0, 2], [2]],
    ],
    [replace('^\\s+', ''), [[1, 2, 1, 3], [2, 1, 3], [1, 0, 2], [1, 0, 2], [2]]],
    [replace('^..', 'a'), [[2, 3], [1, 0, 2, 3], [2], [2], [2]]],
    [
      replace('^.', 'a'),
      [
        [1, 2, 1, 3],
        [1, 0, 2, 1, 3],
        [1, 2, 2],
        [1, 2, 2],
        [1, 2, 2],
      ],
    ],
    [bert, [[1, 2, 1, 3], [1, 2, 1, 3], [2], [2], [1, 2]]],
    [{ type: 'StripAccents' }, [[1, 2, 1, 3], [1, 0, 2, 1, 3], [2], [1, 0, 2], [1, 0, 2]]],
    [{ type: 'Nmt' }, [[1, 2, 1, 3], [1, 2, 1, 3], [1, 0, 2], [2], [1, 2]]],
  ];
  for (const [normalizer, ids] of rows) {
    const tokenizer = letters({ normalizer, pre_tokenizer });
    assert.deepEqual(
      texts.map((t) => tokenizer.encode(t)),
      ids,
      JSON.stringify(normalizer),
    );
  }
});

test('switches and roles of a tokenizer are of their kind: what would count as true unseen is refused by name', () => {
  const made = (token: object, config: object = {}): (() => unknown) => {
    const model = { type: 'WordLevel', vocab: { a: 0, b: 1 }, unk_token: 'a' };
    return () => tokenizerFromJson({ model, added_tokens: [{ id: 1, content: 'b', ...token }] }, { ...config });
  };
  for (const field of ['special', 'normalized', 'single_word', 'lstrip', 'rstrip'])
    assert.throws(made({ [field]: 'false' }), {
      name: FormatError.name,
      message: `tokenizer.json: the added token "b": ${field} is "false", not a boolean`,
    });
  assert.doesNotThrow(made({ lstrip: null }, { bos_token: null, eos_token: { content: 'b' } }));
  assert.throws(made({}, { eos_token: 2 }), /tokenizer_config\.json: eos_token is 2, not a text/);
  assert.throws(made({}, { eos_token: { content: 2 } }), /eos_token is \{"content":2\}, not a text/);
  const dir = scratch();
  writeFileSync(join(dir, 'tokenizer_config.json'), '{"add_bos_token": "false"}');
  assert.throws(() => loadTokenizer(dir), /tokenizer_config\.json: add_bos_token is "false", not true or false/);
});
