// /v1/messages against an engine that plays a script.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CALL, events, hello, noModel, parameters, scripted } from './server-support.js';

describe('/v1/messages', { skip: noModel }, () => {
  const tools = [{ name: 'weather', description: 'w', input_schema: parameters }];
  const ask = { model: 'scripted', max_tokens: 100, messages: [{ role: 'user', content: 'weather?' }] };
  test('whole: blocks, stop reasons, history with results of tools', async () => {
    await using s = await scripted({ answer: () => CALL });
    const messages = [
      { role: 'user', content: 'weather?' },
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'I ask.' },
          { type: 'tool_use', id: 't1', name: 'weather', input: { city: 'Oslo' } },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'rain' }] },
          { type: 'text', text: 'and Rome?' },
        ],
      },
    ];
    const body = await (
      await s.post('/v1/messages', { ...ask, messages, tools, system: [{ type: 'text', text: 'Be brief.' }] })
    ).json();
    assert.deepEqual(
      body.content.map((b: { type: string }) => b.type),
      ['thinking', 'text', 'tool_use'],
    );
    assert.deepEqual(body.content[2].input, { city: 'Rome' });
    assert.equal(body.stop_reason, 'tool_use');
    assert.equal(body.usage.input_tokens + body.usage.cache_read_input_tokens, s.engine.requests[0].prompt.length);
    const prompt = s.engine.tokenizer.decode(s.engine.requests[0].prompt);
    for (const part of [
      'system\nBe brief.',
      'I ask.<tool_call>weather {"city": "Oslo"}',
      'tool\nrain<|im_end|>\n<|im_start|>user\nand Rome?',
    ])
      assert.ok(prompt.includes(part), prompt);
  });
  test('a call that the limit has cut off has the members that are whole', async () => {
    await using s = await scripted({
      answer: () => ['<tool_call>{"name": "weather", "arguments": {"city": "Rome", "day": "to', 'day"}}</tool_call>'],
    });
    const body = await (await s.post('/v1/messages', { ...ask, tools, max_tokens: 1 })).json();
    assert.deepEqual([body.stop_reason, body.content[0].input], ['max_tokens', { city: 'Rome' }]);
  });
  test('streamed: blocks open and close in order', async () => {
    await using s = await scripted({ answer: () => CALL });
    const frames = await events(await s.post('/v1/messages', { ...ask, tools, stream: true }));
    const kinds = frames.map((f) => f.event).filter((e, i, all) => e !== all[i - 1]);
    const block = ['content_block_start', 'content_block_delta', 'content_block_stop'];
    assert.deepEqual(kinds, ['message_start', ...block, ...block, ...block, 'message_delta', 'message_stop']);
    const json = frames.map((f) => JSON.parse(f.data)).filter((d) => d.delta?.type === 'input_json_delta');
    assert.equal(json.map((d) => d.delta.partial_json).join(''), '{"city": "Rome"}');
    assert.equal(JSON.parse(frames.at(-2)?.data ?? '').delta.stop_reason, 'tool_use');
  });
  test('models and errors as its clients read them', async () => {
    await using s = await scripted(hello, {}, { aliases: ['other'] });
    const get = (path: string) => fetch(s.server.url + path, { headers: { 'anthropic-version': '2023-06-01' } });
    const list = (await (await get('/v1/models')).json()) as { data: { created_at: string }[] };
    const [{ created_at }] = list.data;
    assert.ok(Date.parse(created_at) > 0);
    const entry = (id: string) => ({
      ...{ type: 'model', id, display_name: id, created_at },
      ...{ max_input_tokens: 4096, max_tokens: 4096 },
    });
    const data = [entry('scripted'), entry('other')];
    assert.deepEqual(list, { data, has_more: false, first_id: 'scripted', last_id: 'other' });
    assert.deepEqual(await (await get('/v1/models/other')).json(), data[1]);
    for (const path of ['/v1/models/none', '/v1/messages/batches']) {
      const { type, error } = (await (await get(path)).json()) as { type: string; error: { type: string } };
      assert.deepEqual([type, error.type], ['error', 'not_found_error'], path);
    }
  });
  test('what is wrong with a tool or a block', async () => {
    await using s = await scripted(hello);
    const said = (...content: object[]): object => ({ messages: [...ask.messages, { role: 'assistant', content }] });
    const cases: [object, RegExp][] = [
      [{ tools: [{ name: 'f', description: 'no schema' }] }, /^tools\[0\]\.input_schema: is missing/],
      [{ tools: [{ type: 'custom', name: 'f' }] }, /^tools\[0\]\.input_schema: is missing/],
      [{ tools: [{ name: 'a "b"', input_schema: parameters }] }, /^tools\[0\]\.name: a name of letters/],
      [said({ type: 'text' }), /^messages\[1\]: a block of type text has a text$/],
      [said({ type: 'tool_use', id: 't', name: 'f', input: {} }), /^messages: the last one calls tools/],
    ];
    for (const [more, message] of cases) {
      const response = await s.post('/v1/messages', { ...ask, ...more });
      assert.equal(response.status, 400);
      assert.match((await response.json()).error.message, message);
    }
    const search = { type: 'web_search_20250305', name: 'web_search' };
    assert.equal((await s.post('/v1/messages', { ...ask, tools: [search] })).status, 200);
  });
  test('a thread that is to go on is not found, and its client sends all messages again', async () => {
    await using s = await scripted(hello);
    assert.equal((await s.post('/v1/messages', { ...ask, thread: { type: 'create' } })).status, 200);
    const thread = { type: 'continue', previous_message_id: 'msg_1' };
    const response = await s.post('/v1/messages', { ...ask, thread });
    const { error } = await response.json();
    assert.deepEqual(
      [response.status, error.type, error.details],
      [404, 'not_found_error', { error_code: 'thread_not_found' }],
    );
  });
  test('stop sequences, an answer that was begun, counts, errors', async () => {
    await using s = await scripted(hello);
    const stopped = await (await s.post('/v1/messages', { ...ask, stop_sequences: ['lo'] })).json();
    assert.deepEqual(
      [stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text],
      ['stop_sequence', 'lo', 'Hel'],
    );
    await s.post('/v1/messages', { ...ask, messages: [...ask.messages, { role: 'assistant', content: 'It is' }] });
    assert.ok(s.engine.tokenizer.decode(s.engine.requests[1].prompt).endsWith('assistant\nIt is'));
    const { input_tokens } = await (
      await s.post('/v1/messages/count_tokens', { ...ask, max_tokens: undefined })
    ).json();
    assert.equal(input_tokens, s.engine.requests[0].prompt.length);
    const bad = await s.post('/v1/messages', { ...ask, max_tokens: undefined });
    assert.equal(bad.status, 400);
    const error = await bad.json();
    assert.deepEqual([error.type, error.error.type], ['error', 'invalid_request_error']);
    const picture = { role: 'user', content: [{ type: 'image', source: { type: 'url', url: 'http://x/y.png' } }] };
    assert.match(
      (await (await s.post('/v1/messages', { ...ask, messages: [picture] })).json()).error.message,
      /"image" are not served/,
    );
  });
});
