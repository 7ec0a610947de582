// A reporter for `node --test` that counts what ran and what was skipped, by reason: `npm test` prints its text last.
interface Event {
  readonly type: string;
  readonly data: { readonly skip?: string | true; readonly details?: { readonly type?: string } };
}

export default async function* summary(events: AsyncIterable<Event>): AsyncGenerator<string> {
  let passed = 0;
  let failed = 0;
  const skipped = new Map<string, number>();
  for await (const { type, data } of events) {
    if ((type !== 'test:pass' && type !== 'test:fail') || data.details?.type === 'suite') continue;
    if (type === 'test:fail') failed++;
    else if (data.skip === undefined) passed++;
    else {
      const reason = data.skip === true || data.skip === '' ? 'without a reason' : data.skip;
      skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
    }
  }
  const total = [...skipped.values()].reduce((n, k) => n + k, 0);
  const reasons = [...skipped].sort(([, a], [, b]) => b - a).map(([reason, n]) => `${n} ${reason}`);
  yield `${passed} passed, ${failed} failed, ${total} skipped${total ? `: ${reasons.join('; ')}` : ''}\n`;
}
