// Pages and turns without a model: whatever happens, every page is held as often as sequences say, and all come back.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PageNames, Pages } from '../src/engine/pages.js';
import { type Item, Scheduler } from '../src/engine/scheduler.js';
import { Sequence } from '../src/engine/sequence.js';

test('a page is found by its name until it is taken for something else', () => {
  const pages = new Pages(2);
  const [a, b] = [pages.take() as number, pages.take() as number];
  assert.equal(pages.take(), undefined);
  pages.name(a, 'A');
  pages.release([a, b]);
  assert.equal(pages.find('A'), a);
  pages.hold(a);
  assert.equal(pages.free, 1);
  pages.release([a]);
  assert.equal(pages.take(), b, 'the page that was not used for longest goes first');
  assert.equal(pages.find('A'), a);
  assert.equal(pages.take(), a);
  assert.equal(pages.find('A'), undefined);
  assert.throws(() => pages.release([a, a]), /released once too often/);
});

test('ends of sequences go before their beginnings', () => {
  const pages = new Pages(3);
  const held = [pages.take(), pages.take(), pages.take()] as number[];
  pages.release(held);
  assert.deepEqual([pages.take(), pages.take(), pages.take()], held.reverse());
});

test('names of pages stand for all tokens before them, and for the salt', () => {
  const of = (tokens: number[], salt?: string): readonly string[] => new PageNames(2, salt).of(tokens, 2);
  assert.deepEqual(of([1, 2, 3, 4, 5]), of([1, 2, 3, 4]));
  assert.notEqual(of([1, 2, 3, 4])[1], of([9, 2, 3, 4])[1]);
  assert.notEqual(of([1, 2, 3, 4])[0], of([1, 2, 3, 4], 'salt')[0]);
  assert.equal(of([1, 2, 3, 4])[0], of([1, 2, 9, 9])[0]);
});

/** Holders of every page, counted from the sequences. */
function checkCounts(scheduler: Scheduler, sequences: readonly Sequence[]): void {
  const { pages, limits } = scheduler;
  const held = new Int32Array(pages.count);
  for (const s of sequences) for (const p of s.pages) held[p]++;
  held.forEach((n, page) => assert.equal(pages.holders(page), n, `holders of page ${page}`));
  assert.equal(pages.free, held.filter((n) => n === 0).length);
  for (const s of sequences) {
    assert.ok(s.pages.length * limits.pageTokens >= s.computed, 'computed tokens lie in pages');
    assert.ok(s.state === 'running' || s.pages.length === 0, 'only who runs holds pages');
    assert.equal(new Set(s.pages).size, s.pages.length, 'a sequence holds a page once');
  }
}
/** Two sequences share a page only where all tokens up to its end are the same. */
function checkShared(scheduler: Scheduler, sequences: readonly Sequence[]): void {
  const { pageTokens } = scheduler.limits;
  const owners = new Map<number, string>();
  for (const s of sequences)
    s.pages.forEach((page, i) => {
      if ((i + 1) * pageTokens > s.computed) return;
      const text = s.tokens.slice(0, (i + 1) * pageTokens).join(' ');
      assert.equal(owners.get(page) ?? text, text, 'a shared page holds one text');
      owners.set(page, text);
    });
}

const arrival = fc.record({
  prompt: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 14 }),
  written: fc.integer({ min: 1, max: 8 }),
  priority: fc.integer({ min: 0, max: 2 }),
  guesses: fc.integer({ min: 0, max: 3 }),
});
const event = fc.oneof(
  { weight: 2, arbitrary: fc.record({ add: arrival }) },
  { weight: 5, arbitrary: fc.record({ step: fc.integer({ min: 0, max: 99 }) }) },
  { weight: 1, arbitrary: fc.record({ cancel: fc.nat(20) }) },
);

test('whatever comes and goes, pages add up, and all return in the end', () => {
  const limits = fc.record({
    pages: fc.integer({ min: 12, max: 20 }),
    pageTokens: fc.constantFrom(2, 3),
    stepTokens: fc.integer({ min: 1, max: 9 }),
    maxRunning: fc.integer({ min: 1, max: 5 }),
    reuse: fc.boolean(),
  });
  fc.assert(
    fc.property(limits, fc.array(event, { maxLength: 60 }), (l, events) => {
      const scheduler = new Scheduler(l);
      const all: Sequence[] = [];
      const guesses = new Map<Sequence, number>();
      let draws = 0;
      const step = (chance: number): Item[] => {
        for (const s of scheduler.running)
          if (s.decoding)
            s.guesses = new Array<number>(Math.min(guesses.get(s) ?? 0, s.maxLength - s.tokens.length - 1)).fill(0);
        const items = scheduler.plan();
        assert.ok(items.reduce((n, i) => n + i.tokens.length, 0) <= l.stepTokens, 'the budget holds');
        assert.equal(new Set(items.map((i) => i.sequence)).size, items.length);
        assert.ok(scheduler.running.length <= l.maxRunning);
        checkCounts(scheduler, all);
        for (const item of items) {
          const { sequence } = item;
          assert.equal(item.start, sequence.computed);
          const known = item.tokens.length - item.guesses;
          if (!item.draws) {
            scheduler.done(item);
            continue;
          }
          // The first tokens of an answer depend on the chance of this step, so that guesses are right at times.
          let written = 0;
          for (let g = 0; g <= item.guesses && sequence.tokens.length < sequence.maxLength; g++) {
            const token = (chance + draws++) % 3 === 0 ? 1 : 0;
            sequence.tokens.push(token);
            written++;
            if (token !== item.tokens[known + g]) break;
          }
          scheduler.done(item, known + Math.max(0, written - 1));
          if (sequence.tokens.length >= sequence.maxLength) scheduler.remove(sequence);
        }
        checkCounts(scheduler, all);
        checkShared(scheduler, all);
        return items;
      };
      for (const e of events) {
        if ('add' in e) {
          const { prompt, written, priority, guesses: n } = e.add;
          const maxLength = prompt.length + written;
          const s = new Sequence({ id: all.length, prompt, maxLength, priority, pageTokens: l.pageTokens });
          all.push(s);
          guesses.set(s, n);
          scheduler.add(s);
        } else if ('step' in e) step(e.step);
        else if (all.length > 0) scheduler.remove(all[e.cancel % all.length]);
        checkCounts(scheduler, all);
      }
      for (let i = 0; all.some((s) => s.state !== 'finished'); i++) {
        assert.ok(i < 5000, 'everything ends');
        const items = step(i);
        assert.ok(items.length > 0 || scheduler.running.length < all.length, 'something runs');
      }
      assert.equal(scheduler.pages.free, l.pages);
      assert.equal(scheduler.running.length + scheduler.waiting.length, 0);
    }),
    { numRuns: 200 },
  );
});

test('a second prompt with the same beginning computes only what is new', () => {
  const scheduler = new Scheduler({ pages: 16, pageTokens: 4, stepTokens: 64, maxRunning: 4, reuse: true });
  const prompt = Array.from({ length: 10 }, (_, i) => i);
  const of = (id: number, tokens: number[], salt?: string): Sequence =>
    new Sequence({ id, prompt: tokens, maxLength: 20, priority: 0, pageTokens: 4, ...(salt && { salt }) });
  const [a, b, c] = [of(0, prompt), of(1, [...prompt.slice(0, 9), 99]), of(2, prompt, 'other')];
  scheduler.add(a);
  scheduler.plan().forEach((i) => scheduler.done(i));
  scheduler.add(b);
  scheduler.add(c);
  const items = scheduler.plan();
  assert.deepEqual(items.find((i) => i.sequence === b)?.start, 8, 'two full pages are known');
  assert.deepEqual(items.find((i) => i.sequence === c)?.start, 0, 'another salt shares nothing');
  assert.equal(scheduler.prefixHits, 8);
});

test('new tokens of answers come before prompts, and smaller numbers before larger', () => {
  const scheduler = new Scheduler({ pages: 32, pageTokens: 4, stepTokens: 4, maxRunning: 4, reuse: false });
  const of = (id: number, n: number, priority: number): Sequence =>
    new Sequence({ id, prompt: new Array<number>(n).fill(id), maxLength: 30, priority, pageTokens: 4 });
  const [writes, long, urgent] = [of(0, 2, 5), of(1, 9, 5), of(2, 3, 0)];
  scheduler.add(writes);
  scheduler.plan().forEach((i) => scheduler.done(i));
  writes.tokens.push(7);
  scheduler.add(long);
  scheduler.add(urgent);
  const sizes = (items: Item[]): [number, number][] => items.map((i) => [i.sequence.id, i.tokens.length]);
  assert.deepEqual(sizes(scheduler.plan()), [
    [0, 1],
    [2, 3],
  ]);
});
