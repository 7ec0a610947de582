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
  const of = (tokens: number[], salt?: string): readonly string[] => {
    const names = new PageNames(2, salt);
    return [0, 1].map((page) => names.of(tokens, page));
  };
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

test('a long beginning that is known is looked up in several turns, of which others have theirs', () => {
  const pageTokens = 1;
  const scheduler = new Scheduler({ pages: 9000, pageTokens, stepTokens: 4096, maxRunning: 4, reuse: true });
  const prompt = Array.from({ length: 3001 }, (_, i) => i);
  const of = (id: number, tokens: number[]): Sequence =>
    new Sequence({ id, prompt: tokens, maxLength: 9000, priority: 0, pageTokens });
  const first = of(0, prompt);
  scheduler.add(first);
  while (first.due > 0) scheduler.plan().forEach((i) => scheduler.done(i));
  scheduler.remove(first);
  const [again, writing] = [of(1, prompt), of(2, [7])];
  scheduler.add(writing);
  scheduler.plan().forEach((i) => scheduler.done(i));
  writing.tokens.push(7);
  scheduler.add(again);
  const turns = [0, 1, 2].map(() => {
    const items = scheduler.plan();
    const made = again.names.made;
    items.forEach((i) => scheduler.done(i));
    writing.tokens.push(7);
    return [made, items.map((i) => [i.sequence.id, i.start])];
  });
  assert.deepEqual(turns, [
    [1024, [[2, 1]]],
    [2048, [[2, 2]]],
    [
      3000,
      [
        [2, 3],
        [1, 3000],
      ],
    ],
  ]);
  assert.equal(again.cached, 3000);
  const other = of(3, [9, ...prompt]);
  scheduler.add(other);
  scheduler.plan();
  assert.deepEqual([other.state, other.names.made], ['running', 1], 'nothing is named behind what nobody knows');
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

// ---- turns, one by one ----

const LIMITS = { pages: 64, pageTokens: 4, stepTokens: 64, maxRunning: 4, reuse: false };
interface Asked {
  readonly length?: number;
  readonly priority?: number;
  readonly maxLength?: number;
  readonly after?: Sequence;
  readonly fresh?: boolean;
}
/** A sequence whose prompt is its own number, over and over. */
const prompted = (id: number, { length = 3, priority = 0, maxLength = 99, ...more }: Asked = {}): Sequence =>
  new Sequence({ id, prompt: new Array<number>(length).fill(id), maxLength, priority, pageTokens: 4, ...more });
/** A step: what is planned counts as computed, and whoever draws gets a token. */
function step(scheduler: Scheduler): [id: number, start: number, count: number, draws: boolean][] {
  const items = scheduler.plan();
  for (const item of items) {
    scheduler.done(item);
    if (item.draws) item.sequence.tokens.push(7);
  }
  return items.map(({ sequence, start, tokens, draws }) => [sequence.id, start, tokens.length, draws]);
}
const schedulerOf = (limits: object, ...sequences: Sequence[]): Scheduler => {
  const scheduler = new Scheduler({ ...LIMITS, ...limits });
  for (const s of sequences) scheduler.add(s);
  return scheduler;
};
const idsOf = (list: readonly Sequence[]): number[] => list.map((s) => s.id);

test('steps have 1024 tokens, more from 129 sequences on, eight for each, and never more than asked for', () => {
  const first = (sequences: number, stepTokens: number): number => {
    const many = Array.from({ length: sequences }, (_, id) => prompted(id, { length: 4000, maxLength: 9000 }));
    const scheduler = schedulerOf({ pages: 2 ** 20, stepTokens, maxRunning: 999 }, ...many);
    return step(scheduler).reduce((n, [, , count]) => n + count, 0);
  };
  assert.deepEqual([first(1, 4096), first(128, 4096), first(129, 4096), first(300, 4096)], [1024, 1024, 1032, 2400]);
  assert.deepEqual([first(300, 1500), first(1, 100)], [1500, 100]);
});

test('what answers leave of a step is cut to whole grains for prompts, where there is one', () => {
  const after = (stepTokens: number, grain: number): unknown => {
    const [writes, long] = [prompted(0), prompted(1, { length: 40 })];
    const scheduler = schedulerOf({ stepTokens, grain }, writes);
    step(scheduler);
    scheduler.add(long);
    return step(scheduler);
  };
  assert.deepEqual(after(20, 8), [
    [0, 3, 1, true],
    [1, 0, 16, false],
  ]);
  // One token is gone: 8 are left of 9 and stay whole, 7 of 8 are less than a grain and stay as they are.
  assert.deepEqual(after(9, 8), [
    [0, 3, 1, true],
    [1, 0, 8, false],
  ]);
  assert.deepEqual(after(8, 8), [
    [0, 3, 1, true],
    [1, 0, 7, false],
  ]);
});

test('prompts that are never cut go whole, and are computed again a token at a time', () => {
  const long = prompted(0, { length: 40 });
  const scheduler = schedulerOf({ stepTokens: 16, whole: true }, long);
  assert.deepEqual(step(scheduler), [[0, 0, 40, true]]);
  assert.deepEqual(step(scheduler), [[0, 40, 1, true]]);
  scheduler.restart(long);
  assert.deepEqual([long.state, long.computed, long.preemptions, scheduler.preemptions], ['waiting', 0, 1, 1]);
  assert.deepEqual(
    [1, 2, 3].map(() => step(scheduler)[0]),
    [
      [0, 0, 40, false],
      [0, 40, 1, false],
      [0, 41, 1, true],
    ],
  );
});

test('a prompt begins when all of it and one token more fit, and is not overtaken by smaller ones', () => {
  const begins = (pages: number): number[] => {
    const [large, small] = [prompted(0, { length: 8 }), prompted(1, { length: 4 })];
    const scheduler = schedulerOf({ pages }, large, small);
    const { admits } = scheduler;
    scheduler.plan();
    assert.equal(admits, scheduler.running.length > 0, `${pages} pages`);
    return idsOf(scheduler.running);
  };
  assert.deepEqual([begins(2), begins(3), begins(4)], [[], [0], [0, 1]]);
});

test('no more run than may, whoever waits comes by priority and then by number', () => {
  const all = [prompted(0, { priority: 1 }), prompted(1, { priority: 2 }), prompted(2, { priority: 1 }), prompted(3)];
  const scheduler = schedulerOf({ maxRunning: 2 }, ...all);
  assert.deepEqual(idsOf(scheduler.waiting), [3, 0, 2, 1]);
  assert.equal(scheduler.admits, true);
  step(scheduler);
  assert.deepEqual(
    [idsOf(scheduler.running), idsOf(scheduler.waiting)],
    [
      [3, 0],
      [2, 1],
    ],
  );
  assert.equal(scheduler.admits, false);
  scheduler.remove(all[3]);
  scheduler.remove(all[3]);
  assert.equal(scheduler.admits, true);
  scheduler.remove(all[1]);
  step(scheduler);
  assert.deepEqual([idsOf(scheduler.running), idsOf(scheduler.waiting)], [[0, 2], []]);
  assert.equal(scheduler.admits, false, 'nobody waits');
});

test('who came first goes first, in whatever order they are added', () => {
  assert.deepEqual(idsOf(schedulerOf({}, prompted(5), prompted(3), prompted(4)).waiting), [3, 4, 5]);
});

test('who needs a page takes it from the last in turn, who does not take it back in the same step', () => {
  // Two prompts of three tokens have a page each; the third page is for whoever needs one first.
  const [first, last] = [prompted(0), prompted(1)];
  const scheduler = schedulerOf({ pages: 2 }, first, last);
  assert.deepEqual(step(scheduler), [
    [0, 0, 3, true],
    [1, 0, 3, true],
  ]);
  step(scheduler);
  assert.deepEqual(step(scheduler), [[0, 4, 1, true]]);
  assert.deepEqual([idsOf(scheduler.running), idsOf(scheduler.waiting), last.preemptions], [[0], [1], 1]);
  assert.deepEqual([last.computed, last.pages, scheduler.pages.free], [0, [], 0]);
  // The last of all gives its own up.
  const other = schedulerOf({ pages: 2 }, prompted(0, { priority: 1 }), prompted(1));
  step(other);
  step(other);
  assert.deepEqual(step(other), [[1, 4, 1, true]]);
  assert.deepEqual(idsOf(other.waiting), [0]);
});

test('who is last in turn and finds no page gives its own up, and nobody else does', () => {
  const [first, last] = [prompted(0, { length: 1 }), prompted(1)];
  const scheduler = schedulerOf({ pages: 2 }, first, last);
  step(scheduler);
  step(scheduler);
  assert.deepEqual(step(scheduler), [[0, 2, 1, true]]);
  assert.deepEqual([idsOf(scheduler.running), idsOf(scheduler.waiting)], [[0], [1]]);
  assert.deepEqual([first.preemptions, last.preemptions, scheduler.pages.free], [0, 1, 1]);
});

test('a step without room for all answers computes the first of them', () => {
  const scheduler = schedulerOf({ stepTokens: 3 }, prompted(0), prompted(1));
  step(scheduler);
  assert.deepEqual(step(scheduler), [
    [0, 3, 1, true],
    [1, 0, 2, false],
  ]);
  step(scheduler);
  Object.assign(scheduler.limits, { stepTokens: 1 });
  assert.deepEqual(step(scheduler), [[0, 5, 1, true]]);
});

test('pages that an answer fills have names, too, and none before they are full', () => {
  const first = prompted(1, { length: 6 });
  const scheduler = schedulerOf({ reuse: true }, first);
  for (let i = 0; i < 4; i++) step(scheduler);
  const text = first.tokens.slice(0, 9);
  scheduler.remove(first);
  scheduler.add(new Sequence({ id: 2, prompt: text, maxLength: 99, priority: 0, pageTokens: 4 }));
  assert.deepEqual(step(scheduler), [[2, 8, 1, true]]);
});

test('an answer to a prompt that another computes waits until that is done, and finds its pages', () => {
  const first = prompted(5, { length: 12 });
  const second = new Sequence({ id: 6, prompt: first.tokens, maxLength: 99, priority: 0, pageTokens: 4, after: first });
  const [alone, fresh] = [
    prompted(7),
    new Sequence({ id: 8, prompt: first.tokens, maxLength: 99, priority: 0, pageTokens: 4, fresh: true }),
  ];
  const scheduler = schedulerOf({ stepTokens: 8, reuse: true }, first, second, alone);
  assert.deepEqual(step(scheduler), [[5, 0, 8, false]]);
  // Others go before the one that waits.
  assert.deepEqual(step(scheduler), [
    [5, 8, 4, true],
    [7, 0, 3, true],
  ]);
  scheduler.add(fresh);
  assert.deepEqual(step(scheduler), [
    [5, 12, 1, true],
    [7, 3, 1, true],
    [6, 8, 4, true],
    [8, 0, 2, false],
  ]);
  assert.deepEqual([second.cached, scheduler.prefixHits, fresh.cached], [8, 8, 0]);
  // What is drawn and not yet read does not count: pages have no names yet.
  const [a, b] = [prompted(0), prompted(1)];
  a.expect();
  Object.assign(a, { computed: 3 });
  const waits = schedulerOf(
    {},
    new Sequence({ id: 2, prompt: [1], maxLength: 9, priority: 0, pageTokens: 4, after: a }),
  );
  assert.equal(waits.admits, false);
  a.put(3, 9);
  assert.equal(waits.admits, true);
  b.state = 'finished';
  assert.equal(schedulerOf({}, prompted(3, { after: b })).admits, true);
});

test('guesses go with the token that is due, as many as the step has room for, and none with a prompt', () => {
  const planned = (stepTokens: number, guesses: number[]): unknown => {
    const writes = prompted(0);
    const scheduler = schedulerOf({ stepTokens }, writes);
    writes.guesses = [1];
    const [{ guesses: none }] = scheduler.plan();
    assert.equal(none, 0);
    writes.computed = 3;
    writes.tokens.push(7);
    writes.guesses = guesses;
    const [item] = scheduler.plan();
    scheduler.done(item, 2);
    return [item.tokens, item.guesses, item.draws, writes.computed, writes.guesses, writes.pages.length];
  };
  assert.deepEqual(planned(64, [4, 5, 6]), [[7, 4, 5, 6], 3, true, 5, [], 2]);
  assert.deepEqual(planned(3, [4, 5, 6]), [[7, 4, 5], 2, true, 5, [], 2]);
});

test('a sequence whose last token is being drawn is not computed further', () => {
  const writes = prompted(0, { maxLength: 4 });
  const scheduler = schedulerOf({}, writes);
  const [item] = scheduler.plan();
  scheduler.begun(item);
  assert.equal(writes.computed, 3);
  writes.expect();
  assert.deepEqual([writes.pending, writes.written, writes.ending, writes.due], [1, 0, true, 1]);
  assert.deepEqual(scheduler.plan(), []);
  writes.giveUpPending();
  assert.deepEqual([writes.tokens, writes.pending, writes.ending], [[0, 0, 0], 0, false]);
  writes.put(3, 5);
  assert.deepEqual([writes.tokens, writes.pending, writes.written], [[0, 0, 0, 5], 0, 1]);
  assert.equal(writes.ending, false, 'it is read');
  const longer = prompted(1, { maxLength: 5 });
  longer.expect();
  assert.equal(longer.ending, false, 'one more follows');
});

test('what free pages hold is forgotten when weights change, and what is held is not', () => {
  for (const count of [0, -1, 1.5]) assert.throws(() => new Pages(count), /not a whole number from 1/);
  const pages = new Pages(3);
  const [a, b] = [pages.take(), pages.take()] as [number, number];
  pages.name(a, 'A');
  pages.name(b, 'B');
  pages.release([a]);
  pages.forget();
  assert.deepEqual([pages.find('A'), pages.find('B'), pages.used], [undefined, b, 1]);
  assert.throws(() => pages.name(a, 'A'), /only held pages are named/);
  const again = pages.take() as number;
  pages.name(again, 'B');
  assert.equal(pages.find('B'), b, 'who has the name keeps it');
  pages.name(b, 'C');
  assert.equal(pages.find('C'), undefined, 'a page has one name');
  // A page that forgot its name does not take it from another when it is used again.
  const other = new Pages(2);
  const [x, y] = [other.take(), other.take()] as [number, number];
  other.name(x, 'X');
  other.release([x]);
  other.forget();
  other.name(y, 'X');
  assert.equal(other.take(), x);
  assert.equal(other.find('X'), y);
});
