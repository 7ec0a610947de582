// A grammar that takes too long to compile is its own client's problem: the others' answers keep to theirs.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { mock, test } from 'node:test';
import { ArgumentError, DisposedError } from '../src/base/errors.js';
import { packageRoot } from '../src/base/paths.js';
import { type GrammarState, GrammarWorker } from '../src/engine/grammar/grammar.js';
import type { Grammar } from '../src/engine/request.js';
import { loadTokenizer } from '../src/tokenizers/index.js';

const VOCABULARY = 1024;
const END = 0;
const SLOW = 1000;
const PATIENCE = 30_000;
const tokenizer = loadTokenizer(join(packageRoot, 'models/builtin'));
const thread = new URL('./grammar-stub-thread.js', import.meta.url);
const endless = (name: string): Grammar => ({ kind: 'regex', pattern: `endless ${name}` });
const tokensOf = (text: string): number[] => [...tokenizer.encode(text)].filter((id) => id !== END);

/** A worker whose patience passes when the test says so. */
async function patiently(body: (worker: GrammarWorker, pass: (ms: number) => Promise<void>) => Promise<void>) {
  mock.timers.enable({ apis: ['setTimeout'] });
  const worker = new GrammarWorker(tokenizer, VOCABULARY, { patience: { slow: SLOW, late: PATIENCE }, thread });
  try {
    await body(worker, async (ms) => {
      // What begins after a second begins then, not at the end of a longer time.
      for (let left = ms; left > 0; left -= SLOW) {
        mock.timers.tick(Math.min(left, SLOW));
        for (let turn = 0; turn < 3; turn++) await new Promise((r) => setImmediate(r));
      }
    });
  } finally {
    await worker.dispose();
    mock.timers.reset();
  }
}
/** What may come next; `written` of the text has been accepted. */
async function maskAfter(worker: GrammarWorker, grammar: Grammar, written: readonly number[]): Promise<number[]> {
  const state = await worker.open(grammar, [END]);
  for (const token of written) state.accept(token);
  await state.ready();
  state.close();
  return [...state.mask];
}
/** How an answer under way ends. */
const fate = (opening: Promise<GrammarState>): { settled: string | undefined } => {
  const told: { settled: string | undefined } = { settled: undefined };
  opening.then(
    () => (told.settled = 'opened'),
    (e: unknown) => (told.settled = e instanceof ArgumentError ? e.message : `${e}`),
  );
  return told;
};

const DIGITS: Grammar = { kind: 'regex', pattern: '[0-9]{3}(abc|xyz)' };
const SCHEMA: Grammar = {
  kind: 'schema',
  schema: { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name'] },
};
const TEXTS: readonly (readonly [Grammar, string])[] = [
  [DIGITS, '123xyz'],
  [SCHEMA, '{"name": "Romeo",                "age": 17}'],
];

test('a grammar that is late ends alone; the others go on where they were', () =>
  patiently(async (worker, pass) => {
    const others = await Promise.all(
      TEXTS.map(async ([grammar, text]) => ({
        grammar,
        left: tokensOf(text),
        state: await worker.open(grammar, [END]),
      })),
    );
    const written: number[][] = others.map(() => []);
    const write = (i: number): void => {
      const token = others[i].left.shift() as number;
      const { mask } = others[i].state;
      assert.equal((mask[token >> 5] >> (token & 31)) & 1, 1, `token ${token} is allowed`);
      written[i].push(token);
      others[i].state.accept(token);
    };
    write(0);
    await others[0].state.ready();
    for (let k = 0; k < 4; k++) {
      write(1);
      await others[1].state.ready();
    }
    // A second thread has begun, with as much to do: what comes next is the first one's.
    for (const pattern of ['w', 'x', 'y', 'z']) await worker.open({ kind: 'regex', pattern }, [END]);
    const late = fate(worker.open(endless('one'), [END]));
    const waiting = fate(worker.open({ kind: 'regex', pattern: '[xy]+' }, [END]));
    write(0); // behind the late one: its mask is to come from the other thread, and the second's is there already
    const before = [...others[1].state.mask];
    await pass(SLOW);
    for (const { state } of others) await state.ready();
    await pass(PATIENCE - SLOW - 1);
    assert.equal(late.settled, undefined);
    await pass(1);
    assert.equal(late.settled, 'grammar: it takes longer than 30 seconds to compile');
    assert.deepEqual([...others[1].state.mask], before);
    write(1);
    const fresh = new GrammarWorker(tokenizer, VOCABULARY);
    for (const [i, { grammar, state, left }] of others.entries())
      for (;;) {
        await state.ready();
        assert.deepEqual([...state.mask], await maskAfter(fresh, grammar, written[i]), `after ${written[i].length}`);
        if (left.length === 0) break;
        write(i);
      }
    while (waiting.settled === undefined) await new Promise((r) => setImmediate(r));
    assert.equal(waiting.settled, 'opened');
    await fresh.dispose();
  }));

test('patience counts for the grammar whose turn it is, and is lost once for those that wait for the same', () =>
  patiently(async (worker, pass) => {
    const first = await worker.open(DIGITS, [END]);
    await worker.open(SCHEMA, [END]); // a second thread begins, which has the most to do from here on
    for (const pattern of ['[xy]+', '[xz]+', '[yz]+', 'x']) await worker.open({ kind: 'regex', pattern }, [END]);
    first.close();
    // The second grammar waits behind the first, and goes to the other thread when that has had its second.
    const late = ['one', 'two', 'one'].map((name) => fate(worker.open(endless(name), [END])));
    await pass(PATIENCE);
    const sentence = 'grammar: it takes longer than 30 seconds to compile';
    assert.deepEqual(
      late.map((l) => l.settled),
      [sentence, undefined, sentence],
    );
    await pass(SLOW - 1);
    assert.equal(late[1].settled, undefined);
    await pass(1);
    assert.equal(late[1].settled, sentence);
    assert.ok(await worker.open(DIGITS, [END]));
  }));

test('whoever waits behind a grammar that takes more than a second goes on elsewhere, long before it is given up', () =>
  patiently(async (worker, pass) => {
    const state = await worker.open(DIGITS, [END]);
    const [first, second] = tokensOf('123xyz');
    state.accept(first);
    await state.ready();
    const late = fate(worker.open(endless('one'), [END]));
    const waiting = fate(worker.open({ kind: 'regex', pattern: '[xy]+' }, [END]));
    state.accept(second);
    await pass(SLOW);
    await state.ready(); // without another thread it would come no sooner than the other is given up
    const fresh = new GrammarWorker(tokenizer, VOCABULARY);
    assert.deepEqual([...state.mask], await maskAfter(fresh, DIGITS, [first, second]));
    await fresh.dispose();
    while (waiting.settled === undefined) await new Promise((r) => setImmediate(r));
    assert.equal(waiting.settled, 'opened');
    assert.equal(late.settled, undefined);
  }));

test('threads that are at the grammars of clients who have gone are ended, and others serve', async () => {
  const worker = new GrammarWorker(tokenizer, VOCABULARY, { patience: { slow: 20, late: PATIENCE }, thread });
  const state = await worker.open(DIGITS, [END]);
  const clients = ['one', 'two', 'three', 'four', 'five'].map((name) => {
    const client = new AbortController();
    return { client, late: fate(worker.open(endless(name), [END], client.signal)) };
  });
  state.accept(tokensOf('1')[0]);
  await new Promise((r) => setTimeout(r, 200)); // by now more than one of them has a thread that hears nobody
  for (const { client } of clients) client.abort();
  await state.ready();
  assert.ok(await worker.open(SCHEMA, [END]));
  for (const { late } of clients) assert.equal(late.settled, 'grammar: nobody waits for it');
  await worker.dispose();
});

/** Whether a grammar lets a text be written, and end there. */
async function takes(worker: GrammarWorker, grammar: Grammar, text: string): Promise<boolean> {
  const state = await worker.open(grammar, [END]);
  for (const token of [...tokensOf(text), END]) {
    await state.ready();
    if (((state.mask[token >> 5] >> (token & 31)) & 1) === 0) return false;
    if (token !== END) state.accept(token);
  }
  return true;
}

test('calls or an answer: either, whole, and several calls where they may be several', async () => {
  const worker = new GrammarWorker(tokenizer, VOCABULARY);
  const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
  const marked = (name: string) => ({
    begin: `<tool_call>\n{"name": "${name}", "arguments": `,
    content: { kind: 'schema', schema: parameters, loose: true } as const,
    end: '}\n</tool_call>',
  });
  const calls = { kind: 'marked', texts: [marked('weather'), marked('root')] } as const;
  const several: Grammar = { kind: 'either', of: [SCHEMA, { ...calls, separator: '\n' }] };
  const [one, other] = ['weather', 'root'].map((name) => `${marked(name).begin}{"city": "root_1"}${marked(name).end}`);
  for (const [grammar, text, fits] of [
    [several, '{"name": "Romeo", "age": 17}', true],
    [several, one, true],
    [several, `${one}\n${other}\n${one}`, true],
    [several, `${one}\n{"name": "Romeo"}`, false],
    [several, one.replace('city', 'town'), false],
    [several, '{"age": 17}', false],
    [{ kind: 'either', of: [SCHEMA, calls] }, other, true],
    [{ kind: 'either', of: [SCHEMA, calls] }, `${one}\n${other}`, false],
    [{ kind: 'either', of: [{ kind: 'json' }, calls] }, '{"a": [1, {}]}', true],
    [{ kind: 'either', of: [DIGITS, { ...calls, separator: '; ' }] }, '123abc', true],
    [{ kind: 'either', of: [DIGITS, { ...calls, separator: '; ' }] }, `${one}; ${one}`, true],
  ] as const)
    assert.equal(await takes(worker, grammar, text), fits, text);
  await worker.dispose();
});

test('blanks of JSON are counted, with a schema and without', async () => {
  const worker = new GrammarWorker(tokenizer, VOCABULARY);
  for (const grammar of [{ kind: 'json' }, SCHEMA] as const) {
    assert.equal(await takes(worker, grammar, `{${' '.repeat(16)}"name": "x"}`), true);
    assert.equal(await takes(worker, grammar, `{${' '.repeat(40)}"name": "x"}`), false);
    assert.equal(await takes(worker, grammar, `{\n${' '.repeat(12)}"name": "x"\n\n}`), true);
    assert.equal(await takes(worker, grammar, `{${'\n'.repeat(8)}"name": "x"}`), false, 'lines with nothing in them');
    assert.equal(await takes(worker, grammar, `{"name": "${' '.repeat(40)}"}`), true);
  }
  const few = { ...SCHEMA, blanks: 1 };
  assert.equal(await takes(worker, few, '{ "name": "a    b" }'), true);
  assert.equal(await takes(worker, few, `{ ${' '.repeat(4)}"name": "x"}`), false);
  await worker.dispose();
});

test('whoever waits hears of the end', async () => {
  const worker = new GrammarWorker(tokenizer, VOCABULARY, { thread });
  const opening = worker.open(endless('one'), [END]);
  const refused = assert.rejects(opening, DisposedError);
  await worker.dispose();
  await refused;
});
