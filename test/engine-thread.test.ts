// An engine in a thread of its own answers as one in this thread does, and its end is everybody's.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import { ArgumentError, DisposedError, IndexError, OutOfMemoryError, WickError } from '../src/base/errors.js';
import { startEngine } from '../src/cli/served-engine.js';
import { ContextError, type Engine, type GenerationRequest, loadEngine, QueueFullError } from '../src/engine/index.js';
import { type EngineNews, type EngineOrder, runEngineThread } from '../src/engine/engine-thread.js';
import { completionOf } from '../src/engine/reply.js';
import type { EngineStatus, Piece } from '../src/engine/request.js';
import { receiveError, sendError } from '../src/base/sent-error.js';
import { Outbox, readPieces } from '../src/engine/step-message.js';
import { ThreadedEngine } from '../src/engine/threaded-engine.js';
import { noModel } from './server-support.js';

type Asked = Omit<GenerationRequest, 'prompt'>;
async function ask(engine: Engine, asked: Asked, text = 'ROMEO:\nWhat light') {
  const prompt = engine.tokenizer.encode(text);
  const generation = engine.submit({ prompt, maxTokens: 24, temperature: 0, ...asked });
  const pieces: Piece[] = [];
  for await (const piece of generation) pieces.push(piece);
  const usage = await generation.usage;
  const answers = Array.from({ length: asked.n ?? 1 }, (_, choice) => {
    const own = pieces.filter((p) => p.choice === choice);
    return { ...completionOf(own, usage), usage: undefined };
  });
  return { answers, ofPrompt: pieces.flatMap((p) => p.promptLogprobs ?? []), tokens: usage.tokens };
}
const open = (more: { maxWaiting?: number } = {}) =>
  startEngine({ command: 'test', values: { device: 'cpu', 'max-running': '2' }, ...more }, () => {});

test('what is asked of both is answered alike', { skip: noModel }, async () => {
  const here = await loadEngine(undefined, { device: 'cpu', maxRunning: 2 });
  const there = await open();
  const rows: Record<string, Asked> = {
    greedy: {},
    drawn: { temperature: 1, seed: 7, topP: 0.9 },
    'several answers': { n: 3, temperature: 1, seed: 3 },
    'a stop text': { stop: ['e'] },
    'a stop token': { stopTokens: [here.tokenizer.encode(' the', { special: false })[0]], maxTokens: 60 },
    'log-probabilities': { logprobs: 2, maxTokens: 4 },
    "the prompt's own": { promptLogprobs: true, maxTokens: 0 },
    'nothing written': { maxTokens: 0 },
    'a bias': { logitBias: new Map([[11, 50]]), maxTokens: 3 },
    'a grammar': { grammar: { kind: 'regex', pattern: '[0-9]{3}' } },
    lookup: { speculate: 'prompt-lookup' },
  };
  for (const [name, asked] of Object.entries(rows)) {
    const want = await ask(here, asked);
    assert.ok(asked.maxTokens === 0 || want.answers[0].text !== '' || want.answers[0].reason === 'stop', name);
    assert.deepEqual(await ask(there, asked), want, name);
  }
  const { tokens, promptTokens, finished, running, pagesUsed } = there.status();
  const own = here.status();
  assert.deepEqual([tokens, promptTokens, finished], [own.tokens, own.promptTokens, own.finished]);
  assert.deepEqual([running, pagesUsed], [0, own.pagesUsed]);
  await Promise.all([here.dispose(), there.dispose()]);
});

test('a step is one message', { skip: noModel }, async () => {
  const { port1, port2 } = new MessageChannel();
  const engine = await loadEngine(undefined, { device: 'cpu', maxRunning: 2 });
  const running = runEngineThread(port1, async () => ({ engine, told: {}, dispose: () => engine.dispose() }));
  let steps = 0;
  const heard: number[] = [];
  const over = new Promise<EngineStatus>((resolve) =>
    port2.on('message', (news: EngineNews) => {
      if (!('step' in news)) return;
      steps++;
      readPieces(news.step, (_, { tokens }) => heard.push(...tokens));
      if (news.step.ends.length > 0) resolve(news.step.status);
    }),
  );
  const prompt = Int32Array.from(engine.tokenizer.encode('ROMEO:'));
  port2.postMessage({ id: 0, prompt, request: { maxTokens: 40, ignoreEnd: true } } satisfies EngineOrder);
  const status = await over;
  port2.postMessage({ dispose: true } satisfies EngineOrder);
  await running;
  assert.deepEqual([heard.length, status.tokens, status.running], [40, 40, 0]);
  assert.ok(steps >= 40 && steps <= 43, `${steps} messages for 40 tokens, a request and its end`);
});

test('what cannot be answered is refused at once, by the same errors', { skip: noModel }, async () => {
  const engine = await open({ maxWaiting: 1 });
  const wrong: readonly (readonly [Asked & { prompt?: number[] }, new (...args: never[]) => Error])[] = [
    [{ prompt: [] }, ArgumentError],
    [{ prompt: [1e9] }, IndexError],
    [{ temperature: -1 }, ArgumentError],
    [{ speculate: 'draft' }, ArgumentError],
    [{ prompt: Array<number>(5000).fill(1) }, ContextError],
  ];
  for (const [asked, kind] of wrong) assert.throws(() => engine.submit({ prompt: [1], ...asked }), kind);
  await assert.rejects(ask(engine, { grammar: { kind: 'regex', pattern: '([' } }), ArgumentError);
  const busy = Array.from({ length: 3 }, () => engine.submit({ prompt: [1, 2], ignoreEnd: true }));
  assert.throws(() => engine.submit({ prompt: [1] }), QueueFullError);
  for (const b of busy) b.cancel();
  for (const b of busy) for await (const piece of b) if (piece.finish) assert.equal(piece.finish, 'aborted');
  // There is room again.
  assert.equal((await ask(engine, { maxTokens: 2 })).tokens, 2);
  await engine.dispose();
});

test('who aborts or leaves ends the request, and its pages come back', { skip: noModel }, async () => {
  const engine = await open();
  const controller = new AbortController();
  const endless = { prompt: [1, 2], ignoreEnd: true, temperature: 1, seed: 1 };
  const aborted = engine.submit({ ...endless, signal: controller.signal });
  let last: Piece | undefined;
  for await (const piece of aborted) {
    last = piece;
    controller.abort();
  }
  assert.equal(last?.finish, 'aborted');
  const left = engine.submit(endless);
  for await (const _ of left) break;
  await left.usage;
  const never = engine.submit({ ...endless, signal: AbortSignal.abort() });
  assert.equal((await never.usage).tokens, 0);
  assert.deepEqual([engine.status().running, engine.status().pagesUsed], [0, 0]);
  const waiting = engine.submit(endless);
  await engine.dispose();
  for await (const piece of waiting) if (piece.finish) assert.equal(piece.finish, 'aborted');
  assert.throws(() => engine.submit(endless), DisposedError);
});

test('a thread that dies fails its requests, and one that cannot begin says why', { skip: noModel }, async () => {
  const module = (body: string): URL =>
    new URL(
      `data:text/javascript,${encodeURIComponent(`import { parentPort as port } from 'node:worker_threads';${body}`)}`,
    );
  const { tokenizer } = await loaded;
  const limits = { contextTokens: 64, maxRunning: 1, maxWaiting: 1, pages: 4, pageTokens: 16 };
  const facts = JSON.stringify({ name: 'frail', limits, vocabSize: 512, drafts: false });
  let broken = '';
  const frail = await ThreadedEngine.start({
    module: module(
      `port.postMessage({ ready: ${facts}, told: 1 }); port.on('message', () => { throw new Error('gone'); });`,
    ),
    ...{ data: {}, tokenizer, onBroken: (e: Error) => (broken = e.message) },
  });
  const generation = frail.submit({ prompt: [1] });
  await assert.rejects(async () => {
    for await (const _ of generation);
  }, /gone/);
  assert.equal((await generation.usage).tokens, 0);
  assert.equal(broken, 'gone');
  assert.throws(() => frail.submit({ prompt: [1] }), /gone/);
  await frail.dispose();
  const failing = await ThreadedEngine.start({
    module: module(
      `port.postMessage({ ready: ${facts}, told: 1 });` +
        `port.on('message', () => { port.postMessage({ broken: { message: 'no end' } }); port.close(); });`,
    ),
    ...{ data: {}, tokenizer },
  });
  await assert.rejects(failing.dispose(), /no end/);
  await assert.rejects(
    startEngine({ command: 'test', values: { device: 'cpu', context: 'x' } }, () => {}),
    (e: unknown) => e instanceof ArgumentError && /--context "x" is not a whole number from 0/.test(e.message),
  );
});
const loaded = loadEngine(undefined, { device: 'cpu' });
after(async () => (await loaded).dispose());

test('pieces come out of a message as they went in', () => {
  const long = Array.from({ length: 5000 }, (_, i) => i);
  const one = { token: 3, text: '\u20ac', bytes: [0xe2, 0x82, 0xac], logprob: -0.5 };
  const sent: (readonly [number, Piece])[] = [
    [7, { choice: 0, text: 'a \ud83d\ude00', tokens: [1] }],
    [8, { choice: 1, text: '', tokens: long }],
    [7, { choice: 0, text: '\n"', tokens: [2, 3], finish: 'stop', stopText: '.' }],
    [9, { choice: 2, text: 'b', tokens: [3], logprobs: [{ ...one, top: [one] }], finish: 'length' }],
    [9, { choice: 0, text: '', tokens: [], promptLogprobs: [] }],
  ];
  const outbox = new Outbox();
  for (let round = 0; round < 2; round++) {
    for (const [request, piece] of sent) outbox.piece(request, piece);
    const got: (readonly [number, Piece])[] = [];
    readPieces(structuredClone(outbox.take({} as never)), (request, piece) => got.push([request, piece]));
    assert.deepEqual(got, sent);
  }
});

test('errors keep their class, words and stack on the way', () => {
  for (const error of [
    new ArgumentError('a'),
    new OutOfMemoryError('b'),
    new WickError('E_BUSY', 'c'),
    new Error('d'),
  ]) {
    const got = receiveError(structuredClone(sendError(error)));
    assert.ok(got instanceof error.constructor);
    assert.deepEqual([String(got), got.stack], [String(error), error.stack]);
  }
  assert.equal(receiveError(sendError('words')).message, 'words');
});
