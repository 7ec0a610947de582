// A reporter for `node --test` that counts what ran and what was skipped, by reason, and repeats what failed. `npm
// test` prints its text last, so that the end of a long log says why the run failed.
interface Event {
  readonly type: string;
  readonly data: {
    readonly name?: string;
    readonly file?: string;
    readonly skip?: string | true;
    readonly details?: { readonly type?: string; readonly error?: Error & { readonly cause?: unknown } };
  };
}

/** The first lines of what a test threw: enough to see the cause, short enough for a list. */
function failure({ name, file, details }: Event['data']): string {
  const thrown = details?.error?.cause ?? details?.error;
  const said = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  const where = file?.split('/').at(-1)?.replace('.js', '') ?? '';
  return `failed: ${name} (${where})\n${said
    .split('\n')
    .slice(0, 12)
    .map((line) => `    ${line.slice(0, 200)}\n`)
    .join('')}`;
}

export default async function* summary(events: AsyncIterable<Event>): AsyncGenerator<string> {
  let passed = 0;
  const failures: string[] = [];
  const skipped = new Map<string, number>();
  for await (const { type, data } of events) {
    if ((type !== 'test:pass' && type !== 'test:fail') || data.details?.type === 'suite') continue;
    if (type === 'test:fail') failures.push(failure(data));
    else if (data.skip === undefined) passed++;
    else {
      const reason = data.skip === true || data.skip === '' ? 'without a reason' : data.skip;
      skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
    }
  }
  const total = [...skipped.values()].reduce((n, k) => n + k, 0);
  const reasons = [...skipped].sort(([, a], [, b]) => b - a).map(([reason, n]) => `${n} ${reason}`);
  yield `${passed} passed, ${failures.length} failed, ${total} skipped${total ? `: ${reasons.join('; ')}` : ''}\n`;
  yield* failures.slice(0, 20);
}
