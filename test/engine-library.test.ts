// The engine as programs use it that do what they please: read twice, leave early, throw in listeners, ask for what is
// not there.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ArgumentError } from '../src/base/errors.js';
import { ContextError, type GenerationRequest, LanguageModel, Reply, TextEngine } from '../src/engine/index.js';
import { SoloExecutor } from '../src/engine/executor.js';
import { LateGeneration } from '../src/engine/late-generation.js';
import { Sequence } from '../src/engine/sequence.js';
import { noModel } from './server-support.js';

const model = noModel ? undefined : await LanguageModel.load(undefined, { device: 'cpu' });
const small = noModel ? undefined : await LanguageModel.load(undefined, { device: 'cpu' });
after(() => {
  model?.dispose();
  small?.dispose();
});
const opened = model as LanguageModel;
const skip = { skip: noModel };

async function all(source: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of source) text += piece;
  return text;
}
const GREEDY = { maxTokens: 24, temperature: 0 } as const;

test('an answer is whole for everyone who reads it, whoever begins and whenever', skip, async () => {
  const { text } = await opened.reply('ROMEO:', GREEDY).done;
  const beside = opened.reply('ROMEO:', GREEDY);
  const [read, done] = await Promise.all([all(beside), beside.done]);
  assert.deepEqual([read, done.text, done.reason, done.tokens.length], [text, text, 'length', 24]);
  const before = opened.reply('ROMEO:', GREEDY);
  const whole = before.done;
  assert.deepEqual([await all(before), (await whole).text, await all(before)], [text, text, text]);
  const both = opened.reply('ROMEO:', GREEDY);
  assert.deepEqual(await Promise.all([all(both), all(both)]), [text, text]);
});

test('who leaves the loop has what was written until then, and the reason', skip, async () => {
  const reply = opened.reply('ROMEO:', { ...GREEDY, maxTokens: 2000, ignoreEnd: true });
  let seen = '';
  for await (const piece of reply) {
    seen += piece;
    if (seen.length > 20) break;
  }
  const { text, reason, tokens, usage } = await reply.done;
  assert.ok(text.startsWith(seen));
  assert.deepEqual([reason, tokens.length], ['aborted', usage.tokens]);
  assert.ok(tokens.length < 1000);
});

test('a generation has one reader at a time; another is refused, and disturbs nobody', skip, async () => {
  const generation = opened.engine().submit({ prompt: opened.encode('ROMEO:'), ...GREEDY });
  const read = async (): Promise<number> => {
    let n = 0;
    for await (const piece of generation) n += piece.tokens.length;
    return n;
  };
  const [first, second] = await Promise.allSettled([read(), read()]);
  assert.deepEqual(first, { status: 'fulfilled', value: 24 });
  assert.ok(second.status === 'rejected' && /somebody reads it already/.test(String(second.reason)));
});

test('what is not there or of another kind is refused by its name', skip, async () => {
  const wrong: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [{ maxtokens: 3 }, /there is no option maxtokens$/],
    [{ n: 2 }, /no option n here; engine\(\)\.submit has it/],
    [{ stop: 'abc' }, /stop "abc" is not a list of texts/],
    [{ stop: [3] }, /stop Array is not a list of texts/],
    [{ logitBias: { 3: 1 } }, /logitBias Object is not a Map/],
    [{ stopTokens: 5 }, /stopTokens 5 is not a list of token numbers/],
    [{ signal: {} }, /signal Object is not an AbortSignal/],
    [{ grammar: 'json' }, /grammar "json" is not a grammar, whose kind is one of json, /],
    [{ ignoreEnd: 'no' }, /ignoreEnd "no" is not true or false/],
    [{ cacheSalt: 5 }, /cacheSalt 5 is not a text/],
    [{ toString: 5 }, /there is no option toString/],
  ];
  for (const [options, rule] of wrong)
    await assert.rejects(
      async () => opened.reply('ROMEO:', options).done,
      (e) => e instanceof ArgumentError && rule.test(e.message),
      JSON.stringify(options),
    );
  const plain = (options: object): Promise<string> => all(opened.generate('ROMEO:', options));
  await assert.rejects(plain({ presencePenalty: 1 }), /no option presencePenalty here; reply, chat and batch have it/);
  await assert.rejects(plain({ stop: 'abc' }), /stop "abc" is not a list of texts/);
  await assert.rejects(plain({ topp: 0.5 }), /there is no option topp$/);
  assert.equal(
    (await all(opened.chat([{ role: 'user', content: 'O' }], { ...GREEDY, enableThinking: false }))) !== '',
    true,
  );
});

test(
  'a long text is encoded while the event loop goes on, and what is wrong with it is told to its reader',
  skip,
  async () => {
    const long = 'ROMEO: '.repeat(3000);
    assert.throws(() => opened.reply(long, { maxTokens: -1 }), /maxTokens -1/);
    assert.throws(() => opened.chat([{ role: 'user', content: long }], { n: 2 } as object), /no option n here/);
    const asked = [opened.reply(long), opened.chat([{ role: 'user', content: long }])];
    for (const reply of asked) {
      await assert.rejects(all(reply), ContextError);
      await assert.rejects(reply.done, ContextError);
    }
    opened.reply(long); // nobody reads it, and nobody is told
    const gone = new AbortController();
    const left = [opened.reply(long), opened.reply(long, { signal: gone.signal })];
    left[0].cancel();
    gone.abort();
    for (const reply of left) {
      const { text, reason, usage } = await reply.done;
      assert.deepEqual([text, reason, usage.promptTokens], ['', 'aborted', 0]);
    }
  },
);

test('a request whose prompt comes later is answered as if it had come at once', skip, async () => {
  const ids = opened.encode('ROMEO:');
  const later = (): Reply =>
    new Reply(
      new LateGeneration(
        async () => ids,
        (prompt) => opened.engine().submit({ prompt, ...GREEDY }),
      ),
    );
  const [reply, at] = [later(), await opened.reply('ROMEO:', GREEDY).done];
  assert.equal(await all(reply), at.text);
  const { tokens, usage } = await reply.done;
  assert.deepEqual([tokens, usage.promptTokens], [at.tokens, ids.length]);
  const left = later();
  for await (const _ of left) break;
  assert.equal((await left.done).reason, 'aborted');
});

test('a listener that throws ends no answer; the program hears of it', skip, async () => {
  const heard: unknown[] = [];
  process.setUncaughtExceptionCaptureCallback((e) => heard.push(e));
  const boom = new Error('mine');
  let steps = 0;
  const onStep = (): void => {
    if (steps++ === 3) throw boom;
  };
  const engine = new TextEngine(opened.model, opened.tokenizer, { onStep });
  try {
    let tokens = 0;
    for await (const piece of engine.submit({ prompt: opened.encode('ROMEO:'), ...GREEDY }))
      tokens += piece.tokens.length;
    assert.deepEqual([tokens, heard], [24, [boom]]);
  } finally {
    process.setUncaughtExceptionCaptureCallback(null);
    await engine.dispose();
  }
});

test('a draft model that fails ends the answers that asked for it, and no others', skip, async () => {
  const draft = (small as LanguageModel).model;
  const engine = new TextEngine(opened.model, opened.tokenizer, { draft });
  const ask = async (o: Partial<GenerationRequest>): Promise<number | string> => {
    let tokens = 0;
    try {
      const asked = { prompt: opened.encode('ROMEO:'), ...GREEDY, ...o };
      for await (const piece of engine.submit(asked)) tokens += piece.tokens.length;
      return tokens;
    } catch (e) {
      return (e as Error).message;
    }
  };
  const { hidden } = draft;
  draft.hidden = () => {
    throw new Error('the draft broke');
  };
  assert.deepEqual(await Promise.all([ask({ speculate: 'draft' }), ask({})]), ['the draft broke', 24]);
  draft.hidden = hidden;
  assert.equal(await ask({ speculate: 'draft' }), 24);
  await engine.dispose();
});

test('who cancels while a draft is guessed, or leaves, disturbs nobody', skip, async () => {
  const draft = (small as LanguageModel).model;
  const engine = new TextEngine(opened.model, opened.tokenizer, { draft });
  const prompt = opened.encode('ROMEO:');
  const { hidden } = draft;
  let cancel = (): void => {};
  draft.hidden = function (...given: Parameters<typeof hidden>) {
    cancel();
    return hidden.apply(this, given);
  };
  for (let i = 0; i < 3; i++) {
    const left = engine.submit({ prompt, ...GREEDY, speculate: 'draft' });
    cancel = () => left.cancel();
    const pieces = [];
    for await (const piece of left) pieces.push(piece);
    assert.equal(pieces.at(-1)?.finish, 'aborted');
  }
  cancel = () => {};
  draft.hidden = hidden;
  let tokens = 0;
  for await (const piece of engine.submit({ prompt, ...GREEDY, speculate: 'draft' })) tokens += piece.tokens.length;
  assert.deepEqual([tokens, engine.status().pagesUsed], [24, 0]);
  await engine.dispose();
});

test('what a sequence holds stays until the step that reads it is over', skip, async () => {
  const events: string[] = [];
  const { model: decoder } = opened;
  const newCache = decoder.newCache.bind(decoder);
  decoder.newCache = () => {
    const cache = newCache();
    const dispose = cache.dispose.bind(cache);
    cache.dispose = () => {
      events.push('gone');
      dispose();
    };
    return cache;
  };
  try {
    const executor = new SoloExecutor(decoder);
    const prompt = opened.encode('ROMEO:');
    const sequence = new Sequence({ id: 0, prompt, maxLength: 64, priority: 0, pageTokens: 16 });
    const running = executor
      .run([{ sequence, start: 0, tokens: prompt, rows: 1 }], true)
      .then(() => events.push('over'));
    await new Promise((next) => setImmediate(next));
    executor.forget(sequence);
    assert.deepEqual(events, []);
    await running;
    assert.deepEqual(events.sort(), ['gone', 'over']);
    executor.dispose();
  } finally {
    decoder.newCache = newCache;
  }
});
