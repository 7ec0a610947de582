// The server around its answers: errors, keys, limits, clients that go, its end, and the smaller routes.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { ArgumentError } from '../src/base/errors.js';
import { takeAddress } from '../src/server/address.js';
import { jsonLog, serve } from '../src/server/index.js';
import { serveAt } from '../src/server/listen.js';
import { checkedLimits, DEFAULT_LIMITS, type Limits, RateLimiter } from '../src/server/limits.js';
import { Figures } from '../src/server/prometheus.js';
import { events, noModel, scripted, ScriptedEngine } from './server-support.js';

const plainResponse = globalThis.Response;
const CHAT = '/v1/chat/completions';
const ask = { messages: [{ role: 'user', content: 'hi' }] };
const hello = { answer: () => ['Hel', 'lo'] };
/** An answer that lasts until somebody ends it. */
const endless = {
  *answer() {
    for (;;) {
      yield 'a';
      yield 2;
    }
  },
};
const until = async (done: () => boolean): Promise<void> => {
  for (let i = 0; i < 6000 && !done(); i++) await new Promise((r) => setTimeout(r, 10));
  assert.ok(done(), 'it did not come to pass');
};

const CALLED = { id: 'c', function: { name: 'f', arguments: '{}' } };

describe('the server', { skip: noModel }, () => {
  test('bad requests are refused with the field at fault', async () => {
    await using s = await scripted({ ...hello, contextTokens: 64 });
    const cases: [unknown, number, RegExp, string?][] = [
      ['{"messages": ', 400, /not valid JSON/],
      [[], 400, /body/],
      [{}, 400, /^messages: is missing; an array is expected$/],
      [{ messages: [] }, 400, /^messages: is empty$/],
      [{ messages: [{ role: 'pope', content: 'x' }] }, 400, /^messages\[0\]\.role/],
      [{ messages: [{ role: 'user' }] }, 400, /^messages\[0\]\.content/],
      [{ messages: [{ role: 'user', content: 5 }] }, 400, /^messages\[0\]\.content: a string or an array is expected$/],
      [
        { messages: [{ role: 'user', content: [{ type: 'text' }] }] },
        400,
        /^messages\[0\]\.content\[0\]\.text: is missing/,
      ],
      [{ messages: [{ role: 'tool', content: 'x' }] }, 400, /tool_call_id/],
      [
        { messages: [{ role: 'assistant', tool_calls: [CALLED] }], continue_final_message: true },
        400,
        /^messages: the last one calls tools/,
      ],
      [{ ...ask, temperature: 3 }, 400, /^temperature: must be at most 2$/],
      [{ ...ask, temperature: 'hot' }, 400, /^temperature: a number is expected, not a string$/],
      [{ ...ask, reasoning_effort: 'much' }, 400, /^reasoning_effort: one of "none", .*, "max" is expected$/],
      [{ ...ask, max_tokens: 0 }, 400, /^max_tokens: must be at least 1$/],
      [{ ...ask, max_tokens: 1.5 }, 400, /^max_tokens: a whole number is expected, not 1.5$/],
      [{ ...ask, n: 1e9 }, 400, /^n:/],
      [{ ...ask, seed: 1.5 }, 400, /^seed/],
      [{ ...ask, stop: [''] }, 400, /^stop/],
      [{ ...ask, stop: Array.from({ length: 65 }, String) }, 400, /^stop: has more than 64 members$/],
      [{ ...ask, stop_token_ids: [9999] }, 400, /^stop_token_ids: 9999 is none of the 1024/],
      [{ ...ask, allowed_token_ids: [9999] }, 400, /^allowed_token_ids: 9999 is none of the 1024/],
      [{ ...ask, logit_bias: { x: 1 } }, 400, /none of the 1024 tokens/],
      [{ ...ask, functions: [] }, 400, /functions: is not served: use tools/],
      [{ ...ask, chat_template: '{{ 1 }}' }, 400, /chat_template: is not served/],
      [{ ...ask, response_format: { type: 'xml' } }, 400, /^response_format.type: one of "text", .* is expected$/],
      [{ ...ask, tool_choice: 'required' }, 400, /no tools/],
      [
        { ...ask, tool_choice: { type: 'any' } },
        400,
        /^tool_choice.type: one of "function", "allowed_tools" is expected$/,
      ],
      [{ ...ask, top_logprobs: 2 }, 400, /^top_logprobs: is told with logprobs: true only/],
      [{ ...ask, model: 'gpt-4' }, 404, /there is scripted/, 'model_not_found'],
      [{ messages: [{ role: 'user', content: 'word '.repeat(80) }] }, 400, /context of 64/, 'context_length_exceeded'],
      [{ messages: [{ role: 'user', content: 'x'.repeat(200_000) }] }, 400, /characters/, 'context_length_exceeded'],
      [{ messages: [{ role: 'user', content: 'a b '.repeat(190) }] }, 400, /than 64 tokens/, 'context_length_exceeded'],
      [`${'['.repeat(100_000)}${']'.repeat(100_000)}`, 400, /nested deeper/],
      // What is wrong with each of them would take long to say, and others wait meanwhile.
      [{ messages: new Array(70_000).fill({}) }, 400, /has more than 65536 objects, lists and members/],
      [{ ...ask, logit_bias: Object.fromEntries(new Array(70_000).fill(1).entries()) }, 400, /has more than 65536/],
    ];
    for (const [body, status, message, code] of cases) {
      const response = await s.post(CHAT, body);
      const { error } = await response.json();
      const shown = JSON.stringify(body).slice(0, 100);
      assert.equal(response.status, status, `${shown}: ${error.message}`);
      assert.match(error.message, message, shown);
      if (code) assert.equal(error.code, code);
    }
    assert.equal(s.engine.requests.length, 0, 'none reached the engine');
    assert.equal((await s.post(CHAT, JSON.stringify(ask), { 'content-type': 'text/plain' })).status, 415);
    assert.equal((await s.post(CHAT, JSON.stringify(ask), { 'content-encoding': 'gzip' })).status, 415);
    const get = await fetch(s.server.url + CHAT);
    assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST']);
    for (const [path, meant] of [
      ['/nothing', /GET \/openapi\.json lists/],
      ['/chat/completions', /it is POST \/v1\/chat\/completions$/],
      ['/v1/v1/messages', /it is POST \/v1\/messages$/],
      ['/v1/models/', /it is GET \/v1\/models$/],
      ['//health', /it is GET \/health$/],
    ] as const) {
      const response = await fetch(s.server.url + path);
      assert.equal(response.status, 404, path);
      assert.match(((await response.json()) as { error: Error }).error.message, meant, path);
    }
  });

  test('a request can name neither a file nor an address', async () => {
    await using s = await scripted(hello);
    for (const part of [
      { type: 'image_url', image_url: { url: 'http://127.0.0.1:1/x.png' } },
      { type: 'image_url', image_url: { url: 'file:///etc/passwd' } },
      { type: 'input_audio', input_audio: { data: '', format: 'wav' } },
      { type: 'file', file: { filename: '/etc/passwd' } },
    ]) {
      const response = await s.post(CHAT, { messages: [{ role: 'user', content: [part] }] });
      assert.equal(response.status, 400);
      assert.match((await response.json()).error.message, /are not served; only text is/);
    }
    for (const path of [
      '/assets/..%2f..%2fpackage.json',
      '/assets/%2e%2e/app.ts',
      '/assets/chat.ts',
      '/assets//etc/passwd',
    ])
      assert.equal((await fetch(s.server.url + path)).status, 404, path);
  });

  test('bodies have a limit, said and unsaid', async () => {
    await using s = await scripted(hello, { limits: { bodyBytes: 1000 } });
    assert.equal((await s.post(CHAT, { ...ask, user: 'x'.repeat(1000) })).status, 413);
    const chunks = new ReadableStream({
      start(controller) {
        for (let i = 0; i < 100; i++) controller.enqueue(new Uint8Array(100).fill(32));
        controller.close();
      },
    });
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body: chunks, duplex: 'half' } as RequestInit;
    assert.equal((await fetch(s.server.url + CHAT, init)).status, 413);
    assert.equal((await s.post(CHAT, ask)).status, 200);
    assert.equal(globalThis.Response, plainResponse, 'the globals of the program stay its own');
  });

  test('a refused request leaves its connection to the next one', async () => {
    await using s = await scripted(hello, { keys: ['secret-key-1'] });
    const body = JSON.stringify({ ...ask, user: 'x'.repeat(100_000) });
    const head = (key: string): string =>
      `POST ${CHAT} HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer ${key}\r\n` +
      `content-length: ${body.length}\r\n\r\n${body}`;
    const socket = connect(s.server.port, '127.0.0.1');
    let text = '';
    socket.on('data', (d) => (text += String(d)));
    socket.write(head('wrong-key-11') + head('secret-key-1'));
    await until(() => text.split('HTTP/1.1').length === 3);
    assert.match(text, /^HTTP\/1.1 401[^]*HTTP\/1.1 200/);
    socket.destroy();
  });

  test('what is no HTTP is refused by JSON that both APIs read', async () => {
    await using s = await scripted(hello);
    const said = async (sent: string): Promise<[status: string, error: Record<string, unknown>]> => {
      const socket = connect(s.server.port, '127.0.0.1');
      let text = '';
      socket.setEncoding('utf8').on('data', (more) => (text += more));
      socket.end(sent);
      await once(socket, 'close');
      const [head, body] = text.split('\r\n\r\n');
      assert.match(head, /\r\nconnection: close\r\n/i);
      const { type, error } = JSON.parse(body);
      assert.deepEqual([type, error.type], ['error', 'invalid_request_error']);
      return [head.split(' ')[1], error.message];
    };
    const post = `POST ${CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n`;
    const long = /^address and headers are longer than \d+ bytes$/;
    for (const [sent, status, message] of [
      ['garbage\r\n\r\n', '400', /^the request is not valid HTTP\/1\.1$/],
      [`${post}x-long: ${'a'.repeat(20_000)}\r\n\r\n`, '431', long],
      [`GET /${'a'.repeat(20_000)} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`, '431', long],
      [`${post}transfer-encoding: chunked\r\n\r\nzz\r\n`, '400', /not valid HTTP/],
      [`${post}content-length: 50\r\n\r\n{"mess`, '400', /closed before the request had ended$/],
      ['OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n', '400', /^\* is no path of this server$/],
      ['GET /health HTTP/1.1\r\n\r\n', '400', /^a request of HTTP\/1\.1 names its host$/],
      [`${post}expect: cookies\r\ncontent-length: 0\r\n\r\n`, '417', /not cookies$/],
    ] as const) {
      const [code, text] = await said(sent);
      assert.equal(code, status, sent.slice(0, 30));
      assert.match(String(text), message);
    }
    assert.equal((await s.post(CHAT, ask)).status, 200);
  });
  test('bytes that are no HTTP end a stream that was under way, and are not put into it', async () => {
    await using s = await scripted(endless);
    const socket = connect(s.server.port, '127.0.0.1').on('error', () => {});
    const body = JSON.stringify({ ...ask, stream: true });
    const head = `POST ${CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json`;
    socket.write(`${head}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    let text = '';
    socket.setEncoding('utf8').on('data', (more) => (text += more));
    await until(() => text.includes('data: '));
    socket.write('garbage\r\n\r\n');
    await once(socket, 'close');
    assert.equal(text.split('HTTP/1.1').length, 2);
    await until(() => s.engine.running === 0);
  });
  test('keys', async () => {
    const key = 'secret-key-1';
    await using s = await scripted(hello, { keys: [key, 'another-key-2'] });
    assert.equal((await s.post(CHAT, ask)).status, 401);
    assert.equal((await s.post(CHAT, ask, { authorization: 'Bearer wrong-key-9' })).status, 401);
    assert.equal((await s.post(CHAT, ask, { authorization: `Bearer ${key}` })).status, 200);
    assert.equal((await s.post(CHAT, ask, { 'x-api-key': key })).status, 200);
    for (const path of ['/v1/models', '/status.json'])
      assert.equal((await fetch(s.server.url + path)).status, 401, path);
    for (const path of ['/health', '/metrics', '/openapi.json'])
      assert.equal((await fetch(s.server.url + path)).status, 200, path);
  });

  test('an address open to others needs a key, or to be forced', async () => {
    const engine = new ScriptedEngine(hello);
    await assert.rejects(serve({ engine }, { host: '0.0.0.0', port: 0 }), /open to others, and there is no key/);
    for (const port of [99999, -1, 1.5]) await assert.rejects(serve({ engine }, { port }), ArgumentError);
    for (const options of [{ keys: ['12345678'] }, { withoutKeys: true }])
      await (await serve({ engine }, { host: '0.0.0.0', port: 0, ...options })).close(0);
    await assert.rejects(serve({ engine }, { keys: ['short'] }), /8 to 512/);
  });

  test('without keys only this machine, by its own names', async () => {
    await using s = await scripted(hello);
    const socket = connect(s.server.port, '127.0.0.1');
    socket.write('GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n');
    let text = '';
    for await (const chunk of socket) text += String(chunk);
    assert.match(text, /^HTTP\/1.1 403/);
    const cross = await s.post(CHAT, ask, { origin: 'https://evil.example' });
    assert.equal(cross.headers.get('access-control-allow-origin'), null);
  });

  test('probes of HTTP/1.0 name no host', async () => {
    await using s = await scripted(hello);
    const socket = connect(s.server.port, '127.0.0.1');
    let text = '';
    socket.on('data', (d) => (text += String(d)));
    socket.write('GET /health HTTP/1.0\r\n\r\n');
    await until(() => text.endsWith('}'));
    assert.match(text, /^HTTP\/1.1 200/);
    socket.destroy();
  });

  test('origins that were named may read answers', async () => {
    await using s = await scripted(hello, { limits: { origins: ['https://ui.example'] } });
    const allowed = await s.post(CHAT, ask, { origin: 'https://ui.example' });
    assert.equal(allowed.headers.get('access-control-allow-origin'), 'https://ui.example');
    assert.match(allowed.headers.get('access-control-expose-headers') ?? '', /x-request-id.*retry-after/);
    const asked = await fetch(s.server.url + CHAT, { method: 'OPTIONS', headers: { origin: 'https://ui.example' } });
    assert.equal(asked.headers.get('access-control-allow-methods'), 'GET, POST');
    const streamed = await s.post(CHAT, { ...ask, stream: true }, { origin: 'https://ui.example' });
    assert.equal(streamed.headers.get('access-control-allow-origin'), 'https://ui.example');
    await streamed.text();
  });

  test('a full queue answers 429 with a time to come back', async () => {
    await using s = await scripted({ ...hello, queueFull: () => true });
    for (const stream of [false, true]) {
      const response = await s.post(CHAT, { ...ask, stream });
      assert.equal(response.status, 429);
      assert.equal(response.headers.get('retry-after'), '2');
      assert.equal((await response.json()).error.code, 'queue_full');
    }
  });

  test('limits that no server can keep to are refused by name', () => {
    const refused: [Partial<Limits>, RegExp][] = [
      [{ requestSeconds: 0 }, /^serve: requestSeconds is 0, and must be more than 0/],
      [{ pingSeconds: Infinity }, /^serve: pingSeconds is Infinity/],
      [{ stallSeconds: 3e6 }, /^serve: stallSeconds is 3000000, .* at most 2147483 seconds$/],
      [{ bodyBytes: 2 ** 30 }, /^serve: bodyBytes is 1073741824/],
      [{ bodyBytes: Number.NaN }, /^serve: bodyBytes is NaN/],
      [{ requestsPerMinute: 0.5 }, /^serve: requestsPerMinute is 0.5, and must be 0, or at least 1/],
      [{ origins: ['https://example.org/'] }, /^serve: "https:\/\/example.org\/" is no origin/],
    ];
    for (const [more, message] of refused)
      assert.throws(() => checkedLimits({ ...DEFAULT_LIMITS, ...more }), { name: 'ArgumentError', message });
    const origins = ['*', 'null', 'https://example.org', 'http://localhost:3000', 'vscode-webview://x'];
    assert.deepEqual(checkedLimits({ ...DEFAULT_LIMITS, requestsPerMinute: 1, origins }).origins, origins);
  });
  test('rates by the minute', async () => {
    let now = 0;
    const rates = new RateLimiter(2, () => now);
    rates.check('a');
    rates.check('a');
    rates.check('b');
    assert.throws(() => rates.check('a'), /more than 2 requests a minute; try again in 30 s/);
    now = 30_000;
    rates.check('a');
    assert.throws(() => rates.check('a'));
    await using s = await scripted(hello, { limits: { requestsPerMinute: 1 } });
    assert.equal((await s.post(CHAT, ask)).status, 200);
    const refused = await s.post(CHAT, ask);
    assert.equal(refused.status, 429);
    assert.match(refused.headers.get('retry-after') ?? '', /^([1-9]|[1-5]\d|60)$/, 'what is left of the minute');
    assert.equal((await fetch(`${s.server.url}/v1/models`)).status, 200, 'looking costs nothing');
  });

  test('a client that goes ends its request, streamed or not', async () => {
    await using s = await scripted(endless);
    for (const stream of [true, false]) {
      const gone = new AbortController();
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, signal: gone.signal };
      const request = fetch(s.server.url + CHAT, { ...init, body: JSON.stringify({ ...ask, stream }) });
      await until(() => s.engine.running === 1);
      if (stream) await (await request).body?.getReader().read();
      gone.abort();
      await request.then(
        (r) => r.text().catch(() => {}),
        () => {},
      );
      await until(() => s.engine.running === 0);
    }
    assert.equal(s.engine.aborted, 2);
  });

  test('an answer that takes too long is broken off and says so', async () => {
    await using s = await scripted(endless, { limits: { requestSeconds: 0.2 } });
    const whole = await s.post(CHAT, ask);
    assert.equal(whole.status, 504);
    assert.equal(whole.headers.get('x-should-retry'), 'false');
    const frames = await events(await s.post(CHAT, { ...ask, stream: true }));
    assert.equal(JSON.parse(frames.at(-1)?.data ?? '').error.code, 'timeout');
    await until(() => s.engine.running === 0);
  });

  test('a quiet stream is kept open by comments', async () => {
    await using s = await scripted({ answer: () => ['a', 130, 'b'] }, { limits: { pingSeconds: 0.03 } });
    const text = await (await s.post(CHAT, { ...ask, stream: true })).text();
    assert.match(text, /: ping\n\n/);
    assert.match(text, /\[DONE\]\n\n$/);
  });

  test('a server that ends lets answers under way end first', async () => {
    const s = await scripted({ answer: () => ['a', 100, 'b', 100, 'c'] });
    const response = await s.post(CHAT, { ...ask, stream: true });
    const closed = s.server.close(10);
    assert.match(await response.text(), /"c".*\[DONE\]/s);
    await closed;
    await assert.rejects(fetch(`${s.server.url}/health`));
  });
  test('and waits for nobody who asks nothing', { timeout: 60_000 }, async () => {
    const s = await scripted({ answer: () => ['a', 100, 'b'] });
    const silent = connect(s.server.port, '127.0.0.1').on('error', () => {});
    await once(silent, 'connect');
    const gone = once(silent, 'close');
    const response = await s.post(CHAT, { ...ask, stream: true });
    const closed = s.server.close(3600);
    assert.match(await response.text(), /"b".*\[DONE\]/s);
    await Promise.all([closed, gone]);
  });
  test('and ends what does not', async () => {
    const s = await scripted(endless);
    const response = await s.post(CHAT, { ...ask, stream: true });
    await s.server.close(0.1);
    await assert.rejects(response.text());
    await until(() => s.engine.running === 0);
  });

  test('ids and the log', async () => {
    const lines: string[] = [];
    await using s = await scripted(hello, { log: jsonLog((line) => lines.push(line)) });
    const response = await s.post(CHAT, ask, { 'x-request-id': 'mine-1' });
    for (const name of ['x-request-id', 'request-id']) assert.equal(response.headers.get(name), 'mine-1');
    await response.text();
    await s.post(CHAT, { ...ask, stream: true }, { 'x-request-id': 'a b' }).then((r) => r.text());
    await until(() => lines.length === 2);
    const [first, second] = lines.map((line) => JSON.parse(line));
    assert.deepEqual([first.id, first.path, first.status, first.tokens], ['mine-1', CHAT, 200, 2]);
    assert.match(second.id, /^req_[0-9a-f]{32}$/);
    assert.equal(second.finish, 'end');
    assert.ok(!lines.join('').includes('hi'), 'what was asked is not in the log');
  });

  test('an address is taken before there is a model, and tells so until there is one', async () => {
    const address = await takeAddress({ port: 0 });
    await assert.rejects(takeAddress({ port: address.port }), /another program listens there/);
    await assert.rejects(takeAddress({ host: '203.0.113.1', withoutKeys: true, port: 0 }), ArgumentError);
    const health = async (): Promise<unknown[]> => {
      const got = await fetch(`${address.url}/health`);
      return [got.status, await got.json()];
    };
    assert.deepEqual(await health(), [503, { status: 'loading' }]);
    const headers = { 'content-type': 'application/json' };
    const early = await fetch(address.url + CHAT, { method: 'POST', headers, body: JSON.stringify(ask) });
    assert.deepEqual([early.status, early.headers.get('retry-after')], [503, '2']);
    assert.equal(((await early.json()) as { error: { code: string } }).error.code, 'loading');
    const server = serveAt(address, { engine: new ScriptedEngine(hello) });
    assert.deepEqual(await health(), [200, { status: 'ok' }]);
    await server.close(0);
    const again = await takeAddress({ port: address.port });
    await again.close();
    await assert.rejects(fetch(`${address.url}/health`));
  });

  test('figures as Prometheus reads them', () => {
    const figures = new Figures();
    const count = figures.counter('asked_total', 'Requests.');
    const time = figures.histogram('seconds', 'Times.', [0.5, 1]);
    figures.gauge('share', 'A share.', {}, () => 0.25);
    count({ path: 'a "b"\n\\c' });
    count({ path: 'x' }, 2);
    count({ path: 'x' });
    for (const seconds of [0.25, 0.5, 0.75, 4]) time({ of: 'm' }, seconds);
    assert.equal(
      figures.text(),
      [
        '# HELP asked_total Requests.',
        '# TYPE asked_total counter',
        'asked_total{path="a \\"b\\"\\n\\\\c"} 1',
        'asked_total{path="x"} 3',
        '',
        '# HELP seconds Times.',
        '# TYPE seconds histogram',
        'seconds_bucket{le="0.5",of="m"} 2',
        'seconds_bucket{le="1",of="m"} 3',
        'seconds_bucket{le="+Inf",of="m"} 4',
        'seconds_sum{of="m"} 5.5',
        'seconds_count{of="m"} 4',
        '',
        '# HELP share A share.',
        '# TYPE share gauge',
        'share 0.25',
        '',
        '',
      ].join('\n'),
    );
  });

  test('models, health, status, metrics, openapi', async () => {
    await using s = await scripted(hello, {}, { aliases: ['gpt-mine'] });
    const get = async (path: string) => (await fetch(s.server.url + path)).json() as Promise<never>;
    const models = (await get('/v1/models')) as { data: { id: string; max_model_len: number }[] };
    assert.deepEqual(
      models.data.map((m) => [m.id, m.max_model_len]),
      [
        ['scripted', 4096],
        ['gpt-mine', 4096],
      ],
    );
    assert.deepEqual(await get('/v1/models/gpt-mine'), models.data[1]);
    assert.equal((await fetch(`${s.server.url}/v1/models/org/other`)).status, 404);
    assert.equal((await (await s.post(CHAT, { ...ask, model: 'gpt-mine' })).json()).model, 'gpt-mine');
    assert.deepEqual(await get('/health'), { status: 'ok' });
    assert.equal(((await get('/status.json')) as { status: { pagesTotal: number } }).status.pagesTotal, 64);
    const metrics = await (await fetch(`${s.server.url}/metrics`)).text();
    for (const line of [
      'vllm:num_requests_running{model_name="scripted"} 0',
      'vllm:num_requests_waiting{model_name="scripted"} 0',
      'vllm:kv_cache_usage_perc{model_name="scripted"} 0',
      'vllm:generation_tokens_total{model_name="scripted"} 2',
      'vllm:time_to_first_token_seconds_count{model_name="scripted"} 1',
      'wick_http_responses_total{path="/v1/chat/completions",status="200"} 1',
    ])
      assert.ok(metrics.includes(`${line}\n`), `${line} is not in\n${metrics}`);
    const api = (await get('/openapi.json')) as {
      paths: Record<
        string,
        { post?: { requestBody: { content: Record<string, { schema: { properties: object } }> } } }
      >;
    };
    const schema = api.paths[CHAT].post?.requestBody.content['application/json'].schema;
    assert.ok('messages' in (schema?.properties ?? {}) && '/v1/messages' in api.paths);
  });

  test('text to tokens and back', async () => {
    await using s = await scripted(hello);
    const { tokens, count } = await (await s.post('/tokenize', { prompt: 'ROMEO:\nWhat light' })).json();
    assert.equal(count, tokens.length);
    assert.equal(
      (await (await s.post('/detokenize', { tokens })).json()).prompt,
      s.engine.tokenizer.decode(tokens, { special: true }),
    );
    assert.equal((await s.post('/detokenize', { tokens: [99999] })).status, 400);
    assert.equal((await s.post('/detokenize', { tokens: new Array(4097).fill(65) })).status, 400);
    assert.equal((await s.post('/tokenize', {})).status, 400);
  });

  test('a slow reader is waited for and one that stalls is let go', async () => {
    let said = 0;
    const big = 'x'.repeat(65536);
    await using s = await scripted(
      {
        *answer() {
          for (; said < 2000; said++) yield big;
        },
      },
      { limits: { stallSeconds: 0.3 } },
    );
    const socket = connect(s.server.port, '127.0.0.1');
    await once(socket, 'connect');
    const body = JSON.stringify({ ...ask, stream: true });
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\ncontent-length: ` +
        `${body.length}\r\n\r\n${body}`,
    );
    socket.pause();
    try {
      await until(() => s.engine.requests.length === 1);
      await until(() => s.engine.running === 0);
      assert.ok(said < 2000, `${said} pieces were made for a reader who takes none`);
    } finally {
      socket.destroy();
    }
  });
});
