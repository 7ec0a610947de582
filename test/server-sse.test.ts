// Server-sent events: what is joined into one write, and what is not.
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { mock, test } from 'node:test';
import { EventStream } from '../src/server/sse.js';

class Response extends EventEmitter {
  readonly written: string[] = [];
  readonly destroyed = false;
  readonly writableEnded = false;
  writeHead(): void {}
  flushHeaders(): void {}
  end(): void {}
  write(text: string): void {
    this.written.push(text);
  }
}
const options = { pingSeconds: 60, stallSeconds: 60 };
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('few streams write every turn; many join what comes within a moment, after their first words', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const first = new Response();
    const alone = new EventStream(first as unknown as ServerResponse, options);
    for (const frame of ['a', 'b', 'c', 'd']) {
      alone.send(frame);
      await turn();
    }
    assert.deepEqual(first.written, ['a', 'b', 'c', 'd']);
    const others = Array.from(
      { length: 64 },
      () => new EventStream(new Response() as unknown as ServerResponse, options),
    );
    const second = new Response();
    const last = new EventStream(second as unknown as ServerResponse, options);
    for (const frame of ['a', 'b', 'c', 'd', 'e']) {
      last.send(frame);
      await turn();
    }
    assert.deepEqual(second.written, ['a', 'b']);
    mock.timers.tick(20);
    assert.deepEqual(second.written, ['a', 'b', 'cde']);
    // Who asks whether it may go on waits for the write, and what is long does not wait.
    last.send('g');
    const long = 'x'.repeat(70000);
    let ready = false;
    const asked = last.ready().then(() => (ready = true));
    await turn();
    assert.equal(ready, false);
    mock.timers.tick(20);
    await asked;
    last.send('h');
    last.send(long);
    last.send('i');
    mock.timers.tick(20);
    assert.deepEqual(second.written.splice(3), ['g', `h${long}`, 'i']);
    last.send('f');
    last.end();
    assert.deepEqual(second.written, ['a', 'b', 'cde', 'f'], 'what waits is written at the end');
    for (const stream of others) stream.end();
    for (const frame of ['e', 'f']) {
      alone.send(frame);
      await turn();
    }
    assert.deepEqual(first.written.slice(4), ['e', 'f'], 'others are gone');
    alone.end();
  } finally {
    mock.timers.reset();
  }
});
