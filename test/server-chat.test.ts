// POST /v1/chat/completions against an engine that plays a script: shape of answers and streams, tools, reasoning.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ArgumentError } from '../src/base/errors.js';
import { events, noModel, scripted } from './server-support.js';

const user = (content: string) => [{ role: 'user', content }];
const hello = { answer: () => ['Hel', 'lo', ' world'] };
const WEATHER = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'the weather in a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

describe('chat completions', { skip: noModel }, () => {
  test('a whole answer', async () => {
    await using s = await scripted(hello);
    const response = await s.post('/v1/chat/completions', { model: 'scripted', messages: user('hi') });
    assert.equal(response.status, 200);
    assert.match(response.headers.get('x-request-id') ?? '', /^req_/);
    const body = await response.json();
    assert.equal(body.object, 'chat.completion');
    assert.deepEqual(body.choices, [
      {
        index: 0,
        message: { role: 'assistant', content: 'Hello world', refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ]);
    assert.equal(body.usage.completion_tokens, 3);
    assert.equal(body.usage.prompt_tokens, s.engine.requests[0].prompt.length);
    assert.equal(s.engine.requests[0].temperature, 1);
    assert.equal(
      s.engine.tokenizer.decode(s.engine.requests[0].prompt),
      '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  test('any whole seed and a top_p of 0, as clients send them', async () => {
    await using s = await scripted(hello);
    for (const [given, seed] of [
      ['3', 3],
      ['-5', -5],
      ['4611686018427392000', 4096],
    ] as const) {
      const body = `{"messages": [{"role": "user", "content": "hi"}], "seed": ${given}, "top_p": 0}`;
      assert.equal((await s.post('/v1/chat/completions', body)).status, 200, given);
      const { seed: taken, topP = 0 } = s.engine.requests.at(-1) ?? {};
      assert.equal(taken, seed);
      assert.ok(topP > 0 && topP < 1e-6);
    }
  });

  test('a stream: role first, finish_reason in every chunk, usage when asked, [DONE]', async () => {
    await using s = await scripted(hello);
    const ask = { messages: user('hi'), stream: true, stream_options: { include_usage: true } };
    const response = await s.post('/v1/chat/completions', ask);
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
    const frames = await events(response);
    assert.equal(frames.at(-1)?.data, '[DONE]');
    const chunks = frames.slice(0, -1).map((f) => JSON.parse(f.data));
    assert.deepEqual(chunks[0].choices[0].delta, { role: 'assistant', content: '' });
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, 3);
    for (const chunk of chunks) {
      assert.equal(chunk.object, 'chat.completion.chunk');
      assert.equal(chunk.usage, null);
      assert.ok('finish_reason' in chunk.choices[0]);
    }
    assert.deepEqual(
      chunks.map((k) => k.choices[0].finish_reason),
      [null, null, null, null, 'stop'],
    );
    assert.equal(chunks.map((k) => k.choices[0].delta.content ?? '').join(''), 'Hello world');
  });

  test('without stream_options there is no usage chunk', async () => {
    await using s = await scripted(hello);
    const frames = await events(await s.post('/v1/chat/completions', { messages: user('hi'), stream: true }));
    assert.ok(
      frames.slice(0, -1).every((f) => JSON.parse(f.data).choices.length === 1 && !('usage' in JSON.parse(f.data))),
    );
  });

  test('several answers, stop texts, limits and log-probabilities', async () => {
    await using s = await scripted(hello);
    const two = await (await s.post('/v1/chat/completions', { messages: user('hi'), n: 2, seed: 3 })).json();
    assert.deepEqual(
      two.choices.map((k: { message: { content: string } }) => k.message.content),
      ['Hello world', 'Hello world'],
    );
    const stop = await (await s.post('/v1/chat/completions', { messages: user('hi'), stop: 'wor' })).json();
    assert.equal(stop.choices[0].message.content, 'Hello ');
    assert.equal(stop.choices[0].finish_reason, 'stop');
    const cut = await (await s.post('/v1/chat/completions', { messages: user('hi'), max_completion_tokens: 2 })).json();
    assert.equal(cut.choices[0].finish_reason, 'length');
    const ask = { messages: user('hi'), logprobs: true, top_logprobs: 2 };
    const probs = await (await s.post('/v1/chat/completions', ask)).json();
    const [first] = probs.choices[0].logprobs.content;
    assert.deepEqual([first.token, first.logprob, first.bytes], ['Hel', -0.5, [72, 101, 108]]);
    assert.equal(first.top_logprobs.length, 2);
    const streamed = await events(await s.post('/v1/chat/completions', { ...ask, stream: true }));
    const pieces = streamed.slice(0, -1).flatMap((f) => JSON.parse(f.data).choices[0].logprobs?.content ?? []);
    assert.deepEqual(pieces, probs.choices[0].logprobs.content);
  });

  test('a call of a tool, whole and in pieces', async () => {
    const call = [
      'I look. ',
      '<tool',
      '_call>\n{"name": "wea',
      'ther", "argu',
      'ments": {"city": "Pa',
      'ris"}}\n</tool_',
      'call>',
    ];
    await using s = await scripted({ answer: () => call });
    const ask = { messages: user('weather?'), tools: [WEATHER] };
    const whole = (await (await s.post('/v1/chat/completions', ask)).json()).choices[0];
    assert.equal(whole.finish_reason, 'tool_calls');
    assert.equal(whole.message.content, 'I look. ');
    assert.equal(whole.message.tool_calls[0].function.name, 'weather');
    assert.deepEqual(JSON.parse(whole.message.tool_calls[0].function.arguments), { city: 'Paris' });
    const frames = await events(await s.post('/v1/chat/completions', { ...ask, stream: true }));
    const deltas = frames.slice(0, -1).map((f) => JSON.parse(f.data).choices[0]);
    const calls = deltas.flatMap((d) => d.delta.tool_calls ?? []);
    assert.equal(calls[0].type, 'function');
    assert.equal(calls[0].function.name, 'weather');
    assert.match(calls[0].id, /^call_/);
    assert.equal(calls.map((k) => k.function.arguments).join(''), '{"city": "Paris"}');
    assert.equal(deltas.at(-1).finish_reason, 'tool_calls');
    assert.ok(s.engine.tokenizer.decode(s.engine.requests[0].prompt).includes('"weather"'));
  });

  test('calls that must come are bound by a grammar', async () => {
    await using s = await scripted({
      answer: (r) =>
        JSON.stringify(r.grammar ?? null).includes('"array"')
          ? ['[{"na', 'me": "weather", "arguments": {"ci', 'ty": "Rome"}}]']
          : ['{"city":', ' "Oslo"}'],
    });
    const ask = { messages: user('weather?'), tools: [WEATHER] };
    const CLOCK = { type: 'function', function: { name: 'clock', parameters: { type: 'object' } } };
    const choice = { type: 'function', function: { name: 'weather' } };
    const named = (await (await s.post('/v1/chat/completions', { ...ask, tool_choice: choice })).json()).choices[0];
    assert.deepEqual(s.engine.requests[0].grammar, {
      kind: 'schema',
      schema: WEATHER.function.parameters,
      loose: true,
      blanks: 1,
    });
    assert.equal(named.message.tool_calls[0].function.arguments, '{"city": "Oslo"}');
    assert.equal(named.message.content, null);
    const required = (await (await s.post('/v1/chat/completions', { ...ask, tool_choice: 'required' })).json())
      .choices[0];
    assert.equal(required.message.tool_calls[0].function.arguments, '{"city": "Rome"}');
    assert.equal(required.finish_reason, 'tool_calls');
    for (const [stream, max_tokens] of [false, true].flatMap((streams) => [1, 2].map((n) => [streams, n] as const))) {
      const cut = { ...ask, tools: [WEATHER, CLOCK], tool_choice: 'required', max_tokens, stream };
      const got = await s.post('/v1/chat/completions', cut);
      const parts = stream
        ? (await events(got)).slice(0, -1).map((f) => JSON.parse(f.data).choices[0])
        : [(await got.json()).choices[0]].map((k) => ({ ...k, delta: k.message }));
      assert.equal(parts.at(-1).finish_reason, 'length');
      assert.equal(parts.map((k) => k.delta.content ?? '').join(''), '', 'no unfinished JSON as text');
      const calls = parts.flatMap((k) => k.delta.tool_calls ?? []);
      const written = calls.map((k) => k.function.arguments).join('');
      assert.equal(written, max_tokens === 1 ? '' : '{"ci', 'arguments as far as they were written');
    }
    s.engine.requests.splice(2);
    const none = (await (await s.post('/v1/chat/completions', { ...ask, tool_choice: 'none' })).json()).choices[0];
    assert.equal(none.message.content, '{"city": "Oslo"}');
    assert.ok(!s.engine.tokenizer.decode(s.engine.requests[2].prompt).includes('weather"'));
    const absent = { type: 'function', function: { name: 'other' } };
    const allowed = (...tools: object[]) => ({ type: 'allowed_tools', allowed_tools: { mode: 'required', tools } });
    const two = [WEATHER, { type: 'function', function: { name: 'clock' } }];
    const one = await s.post('/v1/chat/completions', { ...ask, tools: two, tool_choice: allowed(choice) });
    assert.equal((await one.json()).choices[0].finish_reason, 'tool_calls');
    const [last] = s.engine.requests.slice(-1);
    assert.deepEqual(last.grammar, s.engine.requests[1].grammar, 'bound to the tools that are allowed');
    assert.ok(!s.engine.tokenizer.decode(last.prompt).includes('clock'), 'and shown no others');
    for (const bad of [absent, 'maybe', allowed(), allowed(choice, absent)])
      assert.equal((await s.post('/v1/chat/completions', { ...ask, tool_choice: bad })).status, 400);
  });

  test('reasoning is told apart under both names, also where the prompt opens it', async () => {
    await using s = await scripted({
      answer: (_, prompt) => [
        ...(prompt.endsWith('<think>\n') ? [] : ['<th', 'ink>']),
        'hm',
        ' so</thi',
        'nk>\n\nYes',
        '.',
      ],
    });
    for (const kwargs of [{}, { enable_thinking: true }]) {
      const ask = { messages: user('?'), chat_template_kwargs: kwargs };
      const { choices, usage } = await (await s.post('/v1/chat/completions', ask)).json();
      const [{ message }] = choices;
      assert.deepEqual([message.content, message.reasoning, message.reasoning_content], ['Yes.', 'hm so', 'hm so']);
      const thought = s.engine.tokenizer.encode('hm so', { special: false }).length;
      assert.equal(usage.completion_tokens_details.reasoning_tokens, Math.min(thought, usage.completion_tokens));
      const streamed = { ...ask, stream: true, stream_options: { include_usage: true } };
      const frames = (await events(await s.post('/v1/chat/completions', streamed))).slice(0, -1);
      assert.deepEqual(JSON.parse(frames.at(-1)?.data ?? '').usage, usage);
      const deltas = frames.slice(0, -1).map((f) => JSON.parse(f.data).choices[0].delta);
      assert.equal(deltas.map((d) => d.reasoning_content ?? '').join(''), 'hm so');
      assert.equal(deltas.map((d) => d.content ?? '').join(''), 'Yes.');
    }
  });

  test('response_format becomes a grammar', async () => {
    await using s = await scripted({ answer: () => ['{"a": 1}'] });
    const schema = { type: 'object', properties: { a: { type: 'integer' } } };
    await s.post('/v1/chat/completions', { messages: user('?'), response_format: { type: 'json_object' } });
    await s.post('/v1/chat/completions', {
      messages: user('?'),
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema, strict: true } },
    });
    assert.deepEqual(
      s.engine.requests.map((r) => r.grammar),
      [{ kind: 'json' }, { kind: 'schema', schema }],
    );
  });

  test('tools beside response_format: the model calls, or answers in the format', async () => {
    const call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>';
    const schema = { type: 'object', properties: { name: { type: 'string' } } };
    const asked = {
      ...{ messages: user('?'), tools: [WEATHER] },
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
    };
    for (const [answer, finish, content] of [
      [call, 'tool_calls', null],
      ['{"name": "<tool_call>"}', 'stop', '{"name": "<tool_call>"}'],
    ] as const) {
      await using s = await scripted({ answer: () => [answer] });
      const got = (await (await s.post('/v1/chat/completions', asked)).json()).choices[0];
      assert.deepEqual([got.finish_reason, got.message.content], [finish, content]);
      const [{ grammar }] = s.engine.requests;
      assert.ok(grammar?.kind === 'either' && grammar.of[1].kind === 'marked');
      assert.deepEqual(grammar.of[0], { kind: 'schema', schema });
      assert.equal(grammar.of[1].texts[0].begin, '<tool_call>\n{"name": "weather", "arguments": ');
    }
    for (const [template, why] of [
      ['{{ tools }}<tool_call><function=', /no grammar writes calls in the format qwen3-coder/],
      ['{{ tools }}[TOOL_CALLS]', /no grammar writes calls in the format mistral/],
      ['{{ tools }}<|python_tag|>', /format llama3 are objects with a name/],
    ] as const) {
      await using s = await scripted({ answer: () => ['{}'], template });
      const got = await s.post('/v1/chat/completions', asked);
      const { error } = await got.json();
      assert.deepEqual([got.status, error.param, error.code], [400, 'tools', 'unsupported']);
      assert.match(error.message, why);
    }
  });

  test('what is wrong with a grammar names the field that it stands in', async () => {
    await using s = await scripted({ answer: () => [new ArgumentError('grammar: no such type')] });
    const ask = { messages: user('?') };
    const chat = '/v1/chat/completions';
    const format = { type: 'json_object' };
    const { name, parameters } = WEATHER.function;
    for (const [path, body, param] of [
      [chat, { ...ask, response_format: format }, 'response_format'],
      [chat, { ...ask, tools: [WEATHER], tool_choice: 'required' }, 'tools'],
      ['/v1/responses', { input: '?', text: { format } }, 'text'],
      [
        '/v1/responses',
        { input: '?', tools: [{ type: 'function', name, parameters }], tool_choice: 'required' },
        'tools',
      ],
    ] as const) {
      for (const stream of [false, true]) {
        const got = await s.post(path, { ...body, stream });
        assert.equal(got.status, 400, `${path}, stream: ${stream}`);
        const { error } = await got.json();
        assert.deepEqual([error.message, error.param], ['grammar: no such type', param]);
      }
    }
    const tool = { name, input_schema: parameters };
    const message = { ...ask, max_tokens: 5, tools: [tool], tool_choice: { type: 'any' }, stream: true };
    const got = await s.post('/v1/messages', message);
    assert.deepEqual([got.status, (await got.json()).error.message], [400, 'grammar: no such type']);
  });

  test('a stream whose grammar takes long to compile begins before, and tells of its fault inside', async () => {
    let go: (value?: unknown) => void = () => {};
    const pinged = new Promise((resolve) => (go = resolve));
    await using s = await scripted(
      { answer: () => [pinged, 'x', new ArgumentError('grammar: no such type')] },
      { limits: { pingSeconds: 0.05 } },
    );
    const got = await s.post('/v1/chat/completions', {
      messages: user('?'),
      response_format: { type: 'json_object' },
      stream: true,
    });
    assert.equal(got.status, 200);
    let text = '';
    for await (const bytes of got.body as AsyncIterable<Uint8Array>) {
      text += Buffer.from(bytes).toString();
      if (text.includes(': ping\n\n')) go(); // and is kept open until then
    }
    assert.match(text, /^data: .*"role":"assistant"/);
    assert.match(text, /"content":"x".*\n\ndata: \{"error":\{"message":"grammar: no such type"/s);
  });

  test('a schema that no grammar keeps is refused before a stream begins', async () => {
    await using s = await scripted(hello);
    const schema = { type: 'object', properties: { a: { type: 'integer', multipleOf: 3 } } };
    const ask = { messages: user('?'), stream: true };
    const chat = { ...ask, response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } };
    const response = { input: '?', stream: true, text: { format: { type: 'json_schema', name: 'x', schema } } };
    const message = { ...ask, max_tokens: 5, output_config: { format: { type: 'json_schema', schema } } };
    for (const [path, body, param] of [
      ['/v1/chat/completions', chat, 'response_format'],
      ['/v1/responses', response, 'text'],
      ['/v1/messages', message, undefined],
    ] as const) {
      const got = await s.post(path, body);
      const { error } = await got.json();
      assert.deepEqual([got.status, error.param], [400, param], path);
      assert.match(error.message, /\/properties\/a: multipleOf is not expressed/);
    }
    assert.equal(s.engine.requests.length, 0);
    const asTool = { type: 'function', function: { name: 'f', parameters: schema } };
    const bound = await s.post('/v1/chat/completions', { ...ask, tools: [asTool], tool_choice: 'required' });
    assert.equal(bound.status, 200, 'in schemas of tools such words are passed over');
    await bound.text();
  });

  test('an error inside a stream is told there', async () => {
    await using s = await scripted({ answer: () => ['Hel', new Error('the device fell over at /secret')] });
    const frames = await events(await s.post('/v1/chat/completions', { messages: user('hi'), stream: true }));
    const { error } = JSON.parse(frames.at(-1)?.data ?? '{}');
    assert.equal(error.code, 'internal_error');
    assert.ok(!JSON.stringify(frames).includes('secret'), 'what went wrong inside is for the log');
    assert.equal((await s.post('/v1/chat/completions', { messages: user('hi') })).status, 500);
  });

  test('messages reach the template as it wants them', async () => {
    await using s = await scripted(hello);
    const turns = [
      { role: 'developer', content: 'be brief' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      {
        role: 'assistant',
        content: null,
        reasoning: 'why',
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"x": 1}' } }],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'done' },
    ];
    assert.equal((await s.post('/v1/chat/completions', { messages: turns })).status, 200);
    const prompt = s.engine.tokenizer.decode(s.engine.requests[0].prompt);
    assert.ok(prompt.startsWith('<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nab<|im_end|>'), prompt);
    assert.ok(
      prompt.includes('<think>why</think><tool_call>f {"x": 1}</tool_call><|im_end|>\n<|im_start|>tool\ndone'),
      prompt,
    );
  });
});
