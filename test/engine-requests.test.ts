// What a request may ask for, one thing after another, on the built-in model.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ArgumentError, IndexError, OutOfMemoryError } from '../src/base/errors.js';
import {
  type Completion,
  ContextError,
  type GenerationRequest,
  LanguageModel,
  perplexity,
  type Piece,
  QueueFullError,
  TextEngine,
} from '../src/engine/index.js';
import { type GrammarCompiler, GrammarWorker } from '../src/engine/grammar/grammar.js';
import { completionOf } from '../src/engine/reply.js';
import { keep } from '../src/tensor/scope.js';
import type { Tensor } from '../src/tensor/tensor.js';

const model = await LanguageModel.load();
const engine = new TextEngine(model.model, model.tokenizer);
after(async () => {
  await engine.dispose();
  model.dispose();
});

type Asked = Omit<GenerationRequest, 'prompt'> & { readonly prompt?: readonly number[] };
const full = (o: Asked): GenerationRequest => ({ prompt: model.encode('ROMEO:'), maxTokens: 32, temperature: 0, ...o });
async function pieces(o: Asked, on = engine): Promise<Piece[]> {
  const all: Piece[] = [];
  for await (const piece of on.submit(full(o))) all.push(piece);
  return all;
}
async function ask(o: Asked, on = engine): Promise<Completion> {
  const generation = on.submit(full(o));
  const all: Piece[] = [];
  for await (const piece of generation) all.push(piece);
  return completionOf(all, await generation.usage);
}

test('a stop text ends the answer before it, however tokens cut it', async () => {
  const { text, tokens } = await ask({});
  for (const [from, length] of [
    [3, 2],
    [5, 9],
    [11, 1],
  ]) {
    const stop = text.slice(from, from + length);
    const got = await ask({ stop: ['not in it', stop] });
    assert.equal(got.text, text.slice(0, text.indexOf(stop)));
    assert.equal(got.reason, 'stop');
    assert.equal(got.stopText, stop);
    assert.deepEqual(got.tokens, tokens.slice(0, got.tokens.length));
  }
});

test('log-probabilities are those of the text that is shown, however a stop text cuts it', async () => {
  const { text, logprobs: all = [] } = await ask({ logprobs: 1 });
  for (const [from, length] of [
    [3, 2],
    [5, 9],
    [11, 1],
    [0, 4],
  ]) {
    const stop = text.slice(from, from + length);
    let [shown, made] = ['', ''];
    const told: number[] = [];
    for (const piece of await pieces({ stop: [stop], logprobs: 1 })) {
      shown += piece.text;
      for (const l of piece.logprobs ?? []) {
        assert.ok(made.length < shown.length, 'its text is shown');
        made += l.text;
        told.push(l.token);
      }
    }
    assert.equal(shown, text.slice(0, text.indexOf(stop)));
    assert.ok(made.startsWith(shown), 'all of what is shown has its own');
    assert.deepEqual(
      told,
      all.slice(0, told.length).map((l) => l.token),
    );
  }
});

test('stop tokens, end tokens and lengths', async () => {
  const plain = await ask({});
  assert.equal(plain.reason, 'length');
  assert.equal(plain.tokens.length, 32);
  assert.equal(plain.usage.tokens, 32);
  const stop = plain.tokens[7];
  const at = plain.tokens.indexOf(stop);
  const stopped = await ask({ stopTokens: [stop] });
  assert.deepEqual([stopped.reason, stopped.tokens], ['stop', plain.tokens.slice(0, at)]);
  const later = await ask({ stopTokens: [stop], minTokens: at + 2 });
  assert.ok(later.tokens.length >= at + 2 && !later.tokens.slice(0, at + 2).includes(stop), 'not before its time');
  const [end] = model.model.config.eosTokenIds;
  const ended = await ask({ logitBias: new Map([[end, 100]]) });
  assert.deepEqual([ended.reason, ended.text, ended.tokens], ['end', '', []]);
  const ignored = await ask({ logitBias: new Map([[end, 100]]), ignoreEnd: true, maxTokens: 3 });
  assert.deepEqual([ignored.reason, ignored.tokens], ['length', [end, end, end]]);
  const kept = await ask({ logitBias: new Map([[end, 100]]), ignoreEnd: true, keepSpecial: true, maxTokens: 2 });
  assert.equal(kept.text, '<|endoftext|><|endoftext|>');
  assert.equal((await ask({ maxTokens: 0 })).reason, 'length');
  await assert.rejects(ask({ minTokens: 5, maxTokens: 4 }), /minTokens 5 is more than maxTokens 4/);
  const bound = await ask({ minTokens: 20, grammar: { kind: 'regex', pattern: 'yes' } });
  assert.deepEqual(
    [bound.text, bound.reason],
    ['yes', 'end'],
    'a grammar that has no more ends the answer all the same',
  );
  const room = engine.limits.contextTokens - model.encode('ROMEO:').length;
  assert.equal((await ask({ maxTokens: 10_000, ignoreEnd: true })).tokens.length, room, 'the context is full');
});

test('bias, allowed tokens and penalties change what is drawn', async () => {
  const allowed = [70, 71, 72];
  assert.ok((await ask({ allowedTokens: allowed })).tokens.every((t) => allowed.includes(t)));
  const { tokens } = await ask({ maxTokens: 12 });
  const banned = await ask({ maxTokens: 12, logitBias: new Map(tokens.map((t) => [t, -Infinity])) });
  assert.ok(banned.tokens.every((t) => !tokens.includes(t)));
  const once = await ask({ maxTokens: 40, presencePenalty: 1000 });
  assert.equal(new Set(once.tokens).size, once.tokens.length, 'no token twice');
  const rare = await ask({ maxTokens: 40, frequencyPenalty: 1000 });
  assert.equal(new Set(rare.tokens).size, rare.tokens.length);
  const other = await ask({ repetitionPenalty: 5 });
  assert.notDeepEqual(other.tokens, (await ask({})).tokens);
});

test('several answers are those of their seeds, and share the prompt', async () => {
  const prompt = model.encode(
    'KING RICHARD III:\nNow is the winter of our discontent made glorious summer by this sun',
  );
  const one = (seed: number): Promise<Completion> => ask({ prompt, temperature: 1, seed });
  const all = await pieces({ prompt, temperature: 1, seed: 5, n: 3 });
  for (const choice of [0, 1, 2]) {
    const mine = all.filter((p) => p.choice === choice);
    assert.equal(mine.map((p) => p.text).join(''), (await one(5 + choice)).text);
    assert.equal(mine.filter((p) => p.finish).length, 1);
  }
  assert.ok((await ask({ prompt })).usage.cachedTokens >= engine.limits.pageTokens, 'the beginning was there');
});

test('log-probabilities are of the raw logits, and add up to the perplexity of a text', async () => {
  const { tokens, logprobs = [] } = await ask({ logprobs: 3, temperature: 1.5, topK: 5, seed: 3, maxTokens: 10 });
  assert.equal(logprobs.length, tokens.length);
  logprobs.forEach((l, i) => {
    assert.equal(l.token, tokens[i]);
    assert.equal(l.top.length, 3);
    assert.ok(l.top[0].logprob >= l.top[1].logprob && l.top[1].logprob >= l.top[2].logprob);
    assert.ok(l.logprob <= l.top[0].logprob && l.logprob < 0);
    assert.equal(Buffer.from(l.bytes).toString(), l.text);
  });
  const text = 'ROMEO:\nWhat light through yonder window breaks?';
  const ids = model.encode(text);
  const all = await pieces({ prompt: ids, promptLogprobs: true, maxTokens: 0 });
  const about = all.flatMap((p) => p.promptLogprobs ?? []);
  assert.deepEqual(
    about.map((l) => l.token),
    ids.slice(1),
  );
  const mean = about.reduce((a, l) => a + l.logprob, 0) / about.length;
  const { perplexity: want } = await perplexity(model, text);
  assert.ok(Math.abs(Math.exp(-mean) / want - 1) < 1e-3, `${Math.exp(-mean)} and ${want}`);
});

test('guesses change nothing but the number of steps', async () => {
  const prompt = model.encode('the king the king the king the king the king the');
  for (const o of [{ temperature: 0 }, { temperature: 0.7, seed: 9 }, { temperature: 0, logprobs: 1 }]) {
    const plain = await ask({ prompt, ...o });
    const guessed = await ask({ prompt, ...o, speculate: 'prompt-lookup' });
    assert.deepEqual(guessed.tokens, plain.tokens);
    assert.equal(guessed.text, plain.text);
  }
  // Of copies of itself every guess is right.
  const drafted = new TextEngine(model.model, model.tokenizer, { draft: model.model });
  const [plain, guessed] = [await ask({ prompt }), await ask({ prompt, speculate: 'draft' }, drafted)];
  assert.deepEqual(guessed.tokens, plain.tokens);
  await drafted.dispose();
});

test('who guesses, and who asks about a prompt, keeps to its own rows beside others', async () => {
  const prompts = ['the king the king the king the', 'ROMEO:', 'my lord, my lord, my'].map((t) => model.encode(t));
  const asked = prompts.map((prompt, seed) => ({ prompt, seed, maxTokens: 24, ignoreEnd: true }));
  const alone = [];
  for (const o of asked) alone.push((await ask(o)).tokens);
  const both = await Promise.all(asked.map((o, i) => ask({ ...o, ...(i !== 1 && { speculate: 'prompt-lookup' }) })));
  assert.deepEqual(
    both.map((told) => told.tokens),
    alone,
  );
  const about = { prompt: prompts[2], promptLogprobs: true, maxTokens: 0 };
  const numbers = (list: readonly Piece[]): number[] =>
    list.flatMap((p) => p.promptLogprobs ?? []).map((l) => l.logprob);
  const want = numbers(await pieces(about));
  // The others write by the time that the prompt comes, so that all rows of a step are wanted.
  const writing = [0, 1].map((i) => ask(asked[i]));
  const got = numbers(await pieces({ ...about, priority: 1, cacheSalt: 'later' }));
  want.forEach((logprob, i) => assert.ok(Math.abs(logprob - got[i]) < 1e-3, `${i}: ${logprob} and ${got[i]}`));
  assert.deepEqual(
    (await Promise.all(writing)).map((told) => told.tokens),
    alone.slice(0, 2),
  );
});

test('what is cancelled ends within a token, whoever cancels', async () => {
  const abort = new AbortController();
  let [seen, finish] = [0, ''];
  for await (const piece of engine.submit(full({ maxTokens: 200, ignoreEnd: true, signal: abort.signal }))) {
    seen += piece.tokens.length;
    finish = piece.finish ?? finish;
    if (seen >= 3) abort.abort();
  }
  assert.equal(finish, 'aborted');
  assert.ok(seen < 12, `${seen} tokens`);
  const left = engine.submit(full({ maxTokens: 200, ignoreEnd: true }));
  for await (const _ of left) break;
  assert.ok((await left.usage).tokens < 12);
  const before = engine.submit(full({ signal: AbortSignal.abort() }));
  for await (const piece of before) assert.equal(piece.finish, 'aborted');
  const { running, waiting, pagesUsed } = engine.status();
  assert.deepEqual([running, waiting, pagesUsed], [0, 0, 0]);
});

test('timers fire while a model writes', async () => {
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  let end = 0;
  for await (const _ of model.generate('ROMEO:', { maxTokens: 60, temperature: 0 })) end = turns;
  assert.ok(end > 0, 'the event loop has turned before the last piece came');
  const begin = turns;
  await ask({ maxTokens: 60, ignoreEnd: true });
  assert.ok(turns > begin);
  clearInterval(timer);
});

test('what cannot be done is refused at once, by name', async () => {
  const refused = (o: Asked, kind: new (...a: never[]) => Error, says: RegExp): void =>
    assert.throws(
      () => engine.submit(full(o)),
      (e) => e instanceof kind && says.test(e.message),
    );
  refused({ prompt: [] }, ArgumentError, /empty prompt/);
  refused({ prompt: [1, 5000] }, IndexError, /token 5000 at position 1/);
  refused({ prompt: new Array<number>(256).fill(1) }, ContextError, /256 tokens.*context of 256/);
  refused({ temperature: -1 }, ArgumentError, /temperature -1/);
  refused({ topP: 0 }, ArgumentError, /topP 0/);
  refused({ n: 0 }, ArgumentError, /n 0/);
  refused({ seed: 0.5 }, ArgumentError, /seed 0.5/);
  refused({ stopTokens: [-1] }, IndexError, /token -1 in stopTokens/);
  refused({ logitBias: new Map([[9999, 1]]) }, IndexError, /9999 in logitBias/);
  refused({ allowedTokens: [] }, ArgumentError, /allowedTokens is empty/);
  refused({ speculate: 'draft' }, ArgumentError, /no draft model/);
  await assert.rejects(
    ask({ logitBias: new Map(Array.from({ length: 1024 }, (_, i) => [i, -Infinity])) }),
    /no token is left/,
  );
  // Filters have nothing to choose from then.
  for (const filter of [{ topK: 3 }, { topP: 0.5 }, { minP: 0.1 }, { typicalP: 0.5 }])
    await assert.rejects(
      ask({ allowedTokens: [5], logitBias: new Map([[5, -Infinity]]), temperature: 1, ...filter }),
      /no token is left/,
    );
  const small = new TextEngine(model.model, model.tokenizer, { maxRunning: 1, maxWaiting: 1 });
  const first = [small.submit(full({})), small.submit(full({}))];
  assert.throws(
    () => small.submit(full({})),
    (e) => e instanceof QueueFullError && e.code === 'E_BUSY' && e.retryAfterSeconds >= 1,
  );
  for (const g of first) for await (const _ of g);
  await small.dispose();
  assert.throws(() => small.submit(full({})), /disposed/);
  const make = (o: ConstructorParameters<typeof TextEngine>[2]) => () =>
    new TextEngine(model.model, model.tokenizer, o);
  assert.throws(make({ contextTokens: 300 }), /300 tokens; the model has 256 positions/);
  assert.throws(
    make({ pages: 2 ** 40 }),
    (e) => e instanceof OutOfMemoryError && /pages of 16 tokens are .* GiB/.test(e.message),
  );
});

test('a step that fails ends one request, and the others are computed again', async () => {
  const own = await LanguageModel.load();
  const faulty = new TextEngine(own.model, own.tokenizer, { maxRecorded: 0 });
  const want = await ask({ maxTokens: 12 });
  const { logits } = own.model;
  let calls = 0;
  own.model.logits = (x) => {
    if (++calls === 5) throw new OutOfMemoryError('no room for this step');
    return logits.call(own.model, x);
  };
  const [a, b] = await Promise.allSettled([ask({ maxTokens: 12 }, faulty), ask({ maxTokens: 12 }, faulty)]);
  assert.equal(a.status === 'fulfilled' && a.value.text, want.text);
  assert.ok(b.status === 'rejected' && b.reason instanceof OutOfMemoryError);
  assert.equal(faulty.status().pagesUsed, 0);
  await faulty.dispose();
  own.dispose();
});

test('a model that is trained between answers answers with its new weights', async () => {
  const own = await LanguageModel.load(undefined, { dtype: 'f32' });
  const trained = new TextEngine(own.model, own.tokenizer);
  const prompt = own.encode('KING RICHARD III:\nNow is the winter of our discontent made glorious summer by this sun');
  const write = async (): Promise<string> => {
    let text = '';
    for await (const piece of own.generate('ROMEO:', { maxTokens: 12, temperature: 0 })) text += piece;
    return text;
  };
  const before = [await write(), (await ask({ prompt, maxTokens: 12 }, trained)).text];
  const { down } = own.model.blocks[0].mlp as unknown as { down: { weight: Tensor } };
  down.weight.assign(down.weight.neg());
  const fresh = new TextEngine(own.model, own.tokenizer);
  const want = (await ask({ prompt, maxTokens: 12 }, fresh)).text;
  assert.notEqual(want, before[1]);
  assert.equal((await ask({ prompt, maxTokens: 12 }, trained)).text, want, 'nothing computed before is used again');
  assert.notEqual(await write(), before[0]);
  // Weights in another place: recorded steps must not read the old ones.
  const again = keep(down.weight.neg());
  down.weight.dispose();
  down.weight = again;
  assert.equal((await ask({ prompt, maxTokens: 12 }, trained)).text, before[1]);
  assert.equal(await write(), before[0]);
  await fresh.dispose();
  await trained.dispose();
  own.dispose();
});

test('answers keep to grammars', async () => {
  const schema = {
    type: 'object',
    properties: { name: { type: 'string', maxLength: 6 }, age: { type: 'integer', minimum: 0, maximum: 9 } },
    required: ['name', 'age'],
    additionalProperties: false,
  };
  const [json, pattern, rules] = await Promise.all([
    ask({ grammar: { kind: 'schema', schema }, maxTokens: 240, temperature: 1, seed: 4 }),
    ask({ grammar: { kind: 'regex', pattern: '(yes|no), [0-9]{2}!' }, maxTokens: 40 }),
    ask({
      grammar: { kind: 'ebnf', grammar: 'root ::= "to be" (" or not")* " to be"' },
      maxTokens: 40,
      ignoreEnd: true,
    }),
  ]);
  const value = JSON.parse(json.text) as { name: string; age: number };
  assert.ok(typeof value.name === 'string' && Number.isInteger(value.age) && json.reason === 'end', json.text);
  assert.match(pattern.text, /^(yes|no), [0-9]{2}!$/);
  assert.match(rules.text, /^to be( or not)* to be$|^to be( or not)+/);
  await assert.rejects(
    ask({ grammar: { kind: 'ebnf', grammar: 'root ::= (' } }),
    (e) => e instanceof ArgumentError && /grammar: .*parser error/i.test(e.message),
  );
  assert.equal(engine.status().pagesUsed, 0);
});

test('nobody waits for the mask of another answer; that one goes on as if nothing had been', async () => {
  const own = await LanguageModel.load();
  const masks = new GrammarWorker(own.tokenizer, own.model.config.vocabSize);
  /** Kept when the mask after the fourth token may come. */
  let release = (): void => {};
  let reach = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const grammars: GrammarCompiler = {
    dispose: () => masks.dispose(),
    open: async (...asked) => {
      const state = await masks.open(...asked);
      let accepted = 0;
      return {
        get mask() {
          return state.mask;
        },
        get complete() {
          return state.complete;
        },
        ready: () => {
          if (accepted !== 4) return state.ready();
          reach();
          return held.then(() => state.ready());
        },
        accept: (token) => {
          accepted++;
          state.accept(token);
        },
        close: () => state.close(),
      };
    },
  };
  const slow = new TextEngine(own.model, own.tokenizer, { grammars });
  const bound: Asked = { grammar: { kind: 'regex', pattern: '[a-m ]{12}' }, temperature: 1, seed: 3 };
  const late = ask(bound, slow);
  await reached;
  const other = await ask({}, slow); // would never come to an end
  assert.equal(other.text, (await ask({})).text);
  release();
  assert.equal((await late).text, (await ask(bound)).text);
  assert.equal(slow.status().pagesUsed, 0);
  await slow.dispose();
  own.dispose();
});

test('the library: chat, batches, scores, vectors', async () => {
  const [a, b] = await model.batch(['ROMEO:', 'JULIET:'], { maxTokens: 8, temperature: 0 });
  assert.equal(a.text, (await ask({ maxTokens: 8 })).text);
  assert.equal(b.tokens.length, 8);
  assert.ok(b.usage.decodeSeconds >= 0);
  const template =
    '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}you:{% endif %}';
  const reply = model.chat([{ role: 'me', content: 'hello' }], { maxTokens: 6, temperature: 0, template });
  let text = '';
  for await (const piece of reply) text += piece;
  const done = await reply.done;
  assert.equal(done.text, text);
  assert.equal(
    text,
    (await ask({ prompt: model.tokenizer.encode('me: hello\nyou:', { special: false }), maxTokens: 6 })).text,
  );
  const score = await model.score('ROMEO:', ' What light');
  assert.equal(score.tokens.length, score.logprobs.length);
  assert.ok(Math.abs(score.total - score.logprobs.reduce((x, y) => x + y, 0)) < 1e-9);
  const [u, v, w] = await model.embed(['the king', 'the king', 'a fool']);
  assert.equal(u.length, model.model.config.hiddenSize);
  const dot = (x: Float32Array, y: Float32Array): number => x.reduce((s, n, i) => s + n * y[i], 0);
  assert.ok(Math.abs(dot(u, v) - 1) < 1e-4 && dot(u, w) < 0.999);
});

test('examples/answers.ts runs to its end', async () => {
  const example = fileURLToPath(new URL('../examples/answers.js', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [example]);
  assert.match(stdout, /^(yes|no), my (lord|lady)\. \(log-probability -[\d.]+, ended by end\)$/m);
  assert.match(stdout, /stopped after/);
  assert.equal(stdout.split('\n').filter((l) => l.includes('of the prompt known')).length, 3);
});
