// Vocabularies, sampling and streaming text.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArgumentError, DisposedError } from '../src/base/errors.js';
import {
  type Decoder,
  ContextError,
  type GenerateStats,
  LanguageModel,
  PlainDecoder,
  Sampler,
  TextStream,
  trainBpe,
} from '../src/engine/index.js';
import { draw, uniformAt } from '../src/engine/sampler.js';
import { tokenizerFromJson } from '../src/tokenizers/index.js';
import { keyed } from '../src/models/decoder/features.js';
import { Llama } from '../src/models/index.js';
import { VarBuilder, VarMap } from '../src/nn/index.js';
import { Generator } from '../src/tensor/random.js';

const TEXT = 'the cat sat on the mat, the cat ran. Größe 12 €! the mat sat.\n'.repeat(8);
const tokenizer = tokenizerFromJson(trainBpe(TEXT, 300) as Record<string, unknown>);

test('a learned vocabulary gives every text back and shortens its own', () => {
  for (const text of [TEXT, 'unseen words: zebra 99', 'emoji 😀 and 漢字\t\n  x'])
    assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
  assert.ok(tokenizer.encode(TEXT).length < TEXT.length / 2);
  assert.deepEqual(trainBpe(TEXT, 300), trainBpe(TEXT, 300));
  assert.throws(() => trainBpe('x', 200), /257 or more/);
});

test('merges are those that shorten the text most, ties go to the smaller pair, and a pair seen once is none', () => {
  const { model } = trainBpe('ab ab ab cd cd ef', 300) as {
    model: { merges: readonly (string | readonly string[])[] };
  };
  const merges = model.merges.map((m) => (typeof m === 'string' ? m : m.join(' ')));
  assert.deepEqual(merges, ['a b', 'c d', 'Ġ ab', 'Ġ cd']);
});

test('streamed pieces join to the text and never hold half a character', () => {
  const text = 'naïve 😀 漢字 the cat'.repeat(9);
  const stream = new TextStream(tokenizer);
  const pieces = tokenizer.encode(text).map((id) => stream.push(id));
  pieces.push(stream.flush());
  assert.equal(pieces.join(''), text);
  assert.ok(pieces.every((p) => !p.includes('\ufffd')));
});

const logits = (): Float32Array => Float32Array.from([1, 3, 2, -1, 2.9]);
test('greedy takes the largest, a penalty takes it away', () => {
  assert.equal(new Sampler({ temperature: 0 }).sample(logits()), 1);
  assert.equal(new Sampler({ temperature: 0, repetitionPenalty: 2 }).sample(logits(), [1]), 4);
});

test('top-k, top-p and min-p leave out what they say', () => {
  const drawn = (options: ConstructorParameters<typeof Sampler>[0]): number[] => {
    const s = new Sampler({ temperature: 1, seed: 4, ...options });
    return [...new Set(Array.from({ length: 400 }, () => s.sample(logits())))].sort();
  };
  assert.deepEqual(drawn({}), [0, 1, 2, 3, 4]);
  assert.deepEqual(drawn({ topK: 2 }), [1, 4]);
  assert.deepEqual(drawn({ topP: 0.5 }), [1, 4]);
  assert.deepEqual(drawn({ minP: 0.3 }), [1, 2, 4]);
  assert.throws(() => new Sampler({ topP: 0 }), /topP 0 is not in \(0, 1\]/);
});

test('draws are those of a list that is sorted as a whole, equal and crowded logits included', () => {
  const crowded = Float32Array.from({ length: 400 }, (_, i) => uniformAt(1, i) * (i % 2 ? 0.02 : 6));
  const equal = new Float32Array(300).fill(1.5);
  for (const row of [crowded, equal, logits()])
    for (const [topK, topP, minP] of [
      [0, 0.9, 0],
      [40, 0.95, 0],
      [0, 1, 0.05],
    ]) {
      const top = Math.max(...row);
      const all = [...row].map((x, id) => ({ id, weight: Math.exp((x - top) / 0.8) })).filter((t) => t.weight >= minP);
      const list = all.sort((a, b) => b.weight - a.weight || a.id - b.id).slice(0, topK || undefined);
      const total = list.reduce((sum, { weight }) => sum + weight, 0);
      const open: typeof list = [];
      for (let sum = 0; open.length < list.length && sum < topP * total; sum += open[open.length - 1].weight)
        open.push(list[open.length]);
      const whole = open.reduce((sum, { weight }) => sum + weight, 0);
      for (let i = 0; i < 50; i++) {
        let left = uniformAt(2, i) * whole;
        const want = open.find(({ weight }) => (left -= weight) < 0)?.id;
        assert.equal(draw(row, { temperature: 0.8, topK, topP, minP }, uniformAt(2, i)), want);
      }
    }
});

test('draws follow the probabilities, and a seed repeats them', () => {
  const counts = new Array<number>(5).fill(0);
  const s = new Sampler({ temperature: 1, seed: 1 });
  for (let i = 0; i < 4000; i++) counts[s.sample(logits())]++;
  const exp = [...logits()].map(Math.exp);
  const sum = exp.reduce((a, b) => a + b);
  exp.forEach((e, i) => assert.ok(Math.abs(counts[i] / 4000 - e / sum) < 0.03, `token ${i}`));
  const run = (seed: number): number[] =>
    Array.from(
      { length: 20 },
      (
        (x) => () =>
          x.sample(logits())
      )(new Sampler({ seed })),
    );
  assert.deepEqual(run(3), run(3));
  assert.notDeepEqual(run(3), run(4));
});

const small = (): LanguageModel => {
  const config = {
    vocabSize: 300,
    hiddenSize: 32,
    intermediateSize: 48,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    headDim: 8,
    maxPositions: 64,
    normEps: 1e-5,
    ropeTheta: 10000,
    tiedEmbeddings: true,
    bosTokenId: 0,
    eosTokenIds: [299],
  };
  return new LanguageModel(
    new Llama(config, VarBuilder.fromVarMap(new VarMap(), { generator: new Generator(2) })).eval(),
    tokenizer,
  );
};

test('whoever leaves the loop early gives the decoder back, and is told what was drawn', async () => {
  const model = small();
  let live = 0;
  const counted = new LanguageModel(model.model, model.tokenizer, (m) => {
    const decoder = new PlainDecoder(m);
    live++;
    return new Proxy(decoder, {
      get: (t, name) => {
        if (name === 'dispose') return () => (live--, t.dispose());
        const value = Reflect.get(t, name, t) as unknown;
        return typeof value === 'function' ? value.bind(t) : value;
      },
    });
  });
  const bytes = (): number => model.device.memory().liveBytes;
  for await (const _ of counted.generate('the cat', { maxTokens: 9 })); // tables that the model keeps are made here
  const before = bytes();
  const told: GenerateStats[] = [];
  const onDone = (s: GenerateStats): number => told.push(s);
  for (let i = 0; i < 3; i++) for await (const _ of counted.generate('the cat', { maxTokens: 9, onDone })) break;
  assert.equal(live, 1, 'answers one after the other share a decoder');
  assert.equal(bytes(), before);
  assert.deepEqual([...new Set(told.map((s) => s.reason))], ['aborted']);
  assert.ok(told.every((s) => s.tokens >= 1 && s.promptTokens === counted.encode('the cat').length));
  for await (const _ of counted.tokens([0, 5], { maxTokens: 9 })) break;
  await assert.rejects(async () => {
    for await (const _ of counted.generate('the cat', { maxTokens: 9 })) throw new Error('the reader fails');
  }, /the reader fails/);
  assert.equal(live, 1);

  // A stop text: what was drawn counts.
  let text = '';
  for await (const piece of counted.generate('the cat', { maxTokens: 12, seed: 5 })) text += piece;
  told.length = 0;
  for await (const _ of counted.generate('the cat', { maxTokens: 12, seed: 5, stop: [text.slice(3, 5)], onDone }));
  assert.equal(told[0].reason, 'stop');
  assert.ok(told[0].tokens > 0 && told[0].tokens <= 12 && told[0].prefillSeconds > 0, JSON.stringify(told[0]));
  assert.equal(live, 1);

  for (const maxTokens of [Number.NaN, -1, 1.5, '5' as never])
    await assert.rejects(counted.generate('the cat', { maxTokens }).next(), (e) => e instanceof ArgumentError);
  for (const token of [-1, 1.5, Number.NaN, 1e9])
    await assert.rejects(counted.tokens([0, token]).next(), /token .* at position 1 is none of the model's/);
});

test('a model streams as many tokens as asked, the same for the same seed, and stops when told', async () => {
  const model = small();
  const write = async (options: Parameters<LanguageModel['generate']>[1]): Promise<string> => {
    let out = '';
    for await (const piece of model.generate('the cat', options)) out += piece;
    return out;
  };
  let stats: { tokens: number; reason: string } | undefined;
  const one = await write({ maxTokens: 12, seed: 5, onDone: (s) => (stats = s) });
  assert.ok(stats && (stats.tokens === 12 || stats.reason === 'end'));
  assert.equal(await write({ maxTokens: 12, seed: 5 }), one);
  const abort = new AbortController();
  let seen = 0;
  for await (const _ of model.tokens([0, 5], { maxTokens: 50, seed: 1, signal: abort.signal }))
    if (++seen === 3) abort.abort();
  assert.equal(seen, 3);
  const stopAt = one.slice(3, 5);
  assert.equal(await write({ maxTokens: 12, seed: 5, stop: [stopAt] }), one.slice(0, one.indexOf(stopAt)));
  await assert.rejects(async () => {
    for await (const _ of model.tokens(new Array(70).fill(1))) assert.fail();
  }, /70 tokens, the model has 64 positions/);
});

test('steps that are computed on this thread leave the event loop its turns', async () => {
  const { model, tokenizer } = small();
  // As on the reference device: a step takes long, and nobody else has this thread meanwhile.
  const slow: Decoder = {
    length: 0,
    run: () => assert.fail(),
    runSampled: () => assert.fail(),
    runGreedy: () => {
      for (const begin = performance.now(); performance.now() - begin < 25; );
      return Promise.resolve(5);
    },
    reset: () => {},
    dispose: () => {},
  };
  const abort = new AbortController();
  const clock = setTimeout(() => abort.abort(), 1);
  let reason = '';
  const { signal } = abort;
  const onDone = (s: GenerateStats): string => (reason = s.reason);
  const generation = new LanguageModel(model, tokenizer, () => slow).generate('the cat', {
    ...{ maxTokens: 40, temperature: 0, signal, onDone },
  });
  for await (const _ of generation);
  clearTimeout(clock);
  assert.equal(reason, 'aborted');
});

test('longer tables leave those that recorded steps read as they are', () => {
  const { model } = small();
  const { mixer } = model.config.layers[0];
  const rope = keyed(mixer)?.rope;
  assert.ok(rope);
  const short = model.tables(rope, 16);
  const before = [...short.cos.get(3).dataSync()];
  const long = model.tables(rope, 100_000);
  assert.ok(long.cos.shape[0] >= 100_000);
  assert.deepEqual([...short.cos.get(3).dataSync()], before);
  assert.equal(model.tables(rope, 16), short);
  model.dispose();
  assert.throws(() => short.cos.get(3).dataSync(), DisposedError);
});

test('a model that is disposed of ends what is under way, and takes no more', async () => {
  const all = async (source: AsyncIterable<string>): Promise<string> => {
    let text = '';
    for await (const piece of source) text += piece;
    return text;
  };
  const gone = (e: unknown): boolean => e instanceof DisposedError && /the model \w+ was disposed of/.test(e.message);
  const model = small();
  const long = { maxTokens: 60, temperature: 0, stop: [] };
  const pieces = model.generate('the cat', long);
  await pieces.next();
  const more = all(pieces);
  const [vectors, score] = [model.embed(['the', 'cat', 'sat on the mat']), model.score('the', ' cat sat')];
  const answer = model.batch(['the'], { maxTokens: 60 });
  model.dispose();
  model.dispose();
  const ends = await Promise.allSettled([more, vectors, score, answer]);
  assert.ok(ends.every((end) => end.status === 'rejected' && gone(end.reason)));
  for (const asked of [
    () => all(model.generate('the')),
    () => model.batch(['the']),
    () => model.embed(['the']),
    () => model.score('the', ' cat'),
    () => model.beamSearch('the', { beams: 2 }),
    async () => model.reply('the'),
  ])
    await assert.rejects(asked, gone);
});

test('texts that a model cannot read make no vectors, and one bad prompt ends its batch', async () => {
  const model = small();
  await assert.rejects(
    model.embed(['the', 'cat '.repeat(80)]),
    /embed: text 1 has \d+ tokens, the model has 64 positions/,
  );
  await assert.rejects(model.batch(['the', 'cat '.repeat(80)], { maxTokens: 60 }), ContextError);
  await model.engine().dispose();
  assert.ok(model.engine().status().tokens < 60, 'the other answer was ended');
  model.dispose();
});
