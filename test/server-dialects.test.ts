// Completions, embeddings, reranking, /v1/responses and /v1/messages against an engine that plays a script.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ItemMemory } from '../src/server/item-memory.js';
import { events, noModel, scripted, ScriptedEngine } from './server-support.js';

const hello = { answer: () => ['Hel', 'lo'] };
const CALL = [
  '<think>hm</think>',
  'Now ',
  '<tool_call>{"name": "weather", "arguments": {"city": ',
  '"Rome"}}</tool_call>',
];
const parameters = { type: 'object', properties: { city: { type: 'string' } } };

describe('completions', { skip: noModel }, () => {
  test('texts, lists of texts, tokens and lists of them', async () => {
    await using s = await scripted(hello);
    for (const [prompt, count] of [
      ['a b', 1],
      [['a', 'b'], 2],
      [[5, 6, 7], 1],
      [[[5], [6, 7]], 2],
    ] as const) {
      const body = await (await s.post('/v1/completions', { prompt, n: 2, temperature: 0 })).json();
      assert.equal(body.choices.length, count * 2);
      assert.deepEqual(
        body.choices.map((c: { index: number }) => c.index),
        [...Array(count * 2).keys()],
      );
      assert.ok(body.choices.every((c: { text: string }) => c.text === 'Hello'));
      assert.equal(body.usage.completion_tokens, count * 4);
    }
    assert.deepEqual(s.engine.requests[3].prompt, [5, 6, 7]);
    assert.equal(s.engine.requests[0].maxTokens, 16);
  });
  test('prompts that are none, or too many, are told by their place', async () => {
    await using s = await scripted(hello);
    const cases: [unknown, RegExp, number?][] = [
      [undefined, /^prompt: a text or a list is expected/],
      [7, /^prompt: a text or a list is expected/],
      [[], /^prompt: the list is empty/],
      [[[]], /^prompt\[0\]: the list is empty/],
      [[1, 2.5], /^prompt\[1\]: a token number is a whole number from 0/],
      [[[1], [2, -1]], /^prompt\[1\]\[1\]: a token number/],
      [['a', [1]], /^prompt\[1\]: a text is expected/],
      [[[1], 'a'], /^prompt\[1\]: a text or a list of token numbers/],
      [new Array(257).fill('a'), /^prompt: the list has 257 members, and at most 256 are taken/],
      [[5, 6], /^prompt: 2 prompts with 9 answers each are more than the 16/, 9],
    ];
    for (const [given, message, n = 1] of cases) {
      const prompt = n === 1 ? given : ['a', 'b'];
      const response = await s.post('/v1/completions', { prompt, n });
      const { error } = await response.json();
      assert.match(error.message, message);
      assert.deepEqual([response.status, error.param], [400, 'prompt']);
    }
    const { paths } = (await (await fetch(`${s.server.url}/openapi.json`)).json()) as { paths: Record<string, any> };
    const { schema } = paths['/v1/completions'].post.requestBody.content['application/json'];
    assert.equal(schema.properties.prompt.anyOf.length, 4);
    assert.deepEqual(schema.required, ['prompt']);
  });
  test('echo and log-probabilities', async () => {
    await using s = await scripted(hello);
    const prompt = 'What light';
    const ask = { prompt, echo: true, logprobs: 1, max_tokens: 2 };
    const { choices } = await (await s.post('/v1/completions', ask)).json();
    const [{ text, logprobs }] = choices;
    assert.equal(text, 'What lightHello');
    assert.equal(logprobs.tokens.length, s.engine.requests[0].prompt.length + 2);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.deepEqual(logprobs.token_logprobs.slice(-2), [-0.5, -0.5]);
    assert.deepEqual(logprobs.top_logprobs.at(-1), { x: -2, lo: -0.5 });
    // The start token is no part of the text.
    const at = (i: number): string => text.slice(logprobs.text_offset[i], logprobs.text_offset[i + 1]);
    assert.deepEqual(logprobs.tokens, [
      '<|endoftext|>',
      ...logprobs.tokens.slice(1).map((_: string, i: number) => at(i + 1)),
    ]);
    const frames = await events(await s.post('/v1/completions', { ...ask, stream: true }));
    const parts = frames.slice(0, -1).map((f) => JSON.parse(f.data).choices[0]);
    assert.equal(parts.map((p) => p.text).join(''), text);
    assert.deepEqual(
      parts.flatMap((p) => p.logprobs.tokens),
      logprobs.tokens,
    );
    assert.deepEqual(
      parts.flatMap((p) => p.logprobs.text_offset),
      logprobs.text_offset,
    );
  });
  test('fields that are not served are refused', async () => {
    await using s = await scripted(hello);
    for (const more of [
      { best_of: 2 },
      { suffix: 'x' },
      { max_tokens: 0 },
      { prompt: [] },
      { prompt: [99999999999999999999] },
    ])
      assert.equal((await s.post('/v1/completions', { prompt: 'a', ...more })).status, 400, JSON.stringify(more));
  });
});

describe('embeddings', { skip: noModel }, () => {
  const embedder = () => {
    const vectors: Record<string, number[]> = { cat: [1, 0, 0, 0], dog: [0.8, 0.6, 0, 0], car: [0, 0, 1, 0] };
    const engine = new ScriptedEngine(hello);
    return {
      name: 'vectors',
      model: {
        tokenizer: engine.tokenizer,
        maxTokens: 128,
        embed: async (texts: readonly string[]) =>
          texts.map((t) => Float32Array.from(vectors[t] ?? [0.5, 0.5, 0.5, 0.5])),
      },
    };
  };
  test('numbers, base64, fewer dimensions', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const post = async (body: object) => (await s.post('/v1/embeddings', body)).json();
    const { data, usage } = await post({ model: 'vectors', input: ['cat', 'dog'] });
    assert.deepEqual(data[0].embedding, [1, 0, 0, 0]);
    assert.ok(usage.prompt_tokens > 0);
    const packed = (await post({ input: 'dog', encoding_format: 'base64' })).data[0].embedding;
    assert.deepEqual(
      [...new Float32Array(new Uint8Array(Buffer.from(packed, 'base64')).buffer)],
      [...Float32Array.from([0.8, 0.6, 0, 0])],
    );
    assert.deepEqual((await post({ input: 'dog', dimensions: 1 })).data[0].embedding, [1]);
    for (const bad of [{ input: 'dog', dimensions: 9 }, { input: '' }, { input: [] }, { model: 'other', input: 'x' }])
      assert.ok((await s.post('/v1/embeddings', bad)).status >= 400, JSON.stringify(bad));
  });
  test('long lists are made in parts, in their order, and end with their time', async () => {
    const sizes: number[] = [];
    const { name, model } = embedder();
    const embed = async (texts: readonly string[]): Promise<Float32Array[]> => {
      sizes.push(texts.length);
      if (texts[0] === 'slow') await new Promise((r) => setTimeout(r, 200));
      return texts.map((t) => Float32Array.of(Number(t), 1));
    };
    await using s = await scripted(
      hello,
      { limits: { requestSeconds: 0.1 } },
      { embedder: { name, model: { ...model, embed } } },
    );
    const input = Array.from({ length: 150 }, (_, i) => String(i));
    const { data } = await (await s.post('/v1/embeddings', { input })).json();
    assert.deepEqual(
      data.map((d: { embedding: number[] }) => d.embedding[0]),
      [...input.keys()],
    );
    assert.deepEqual(sizes, [64, 64, 22]);
    const late = await s.post('/v1/embeddings', { input: ['slow', ...input] });
    assert.deepEqual([late.status, (await late.json()).error.code], [504, 'timeout']);
    assert.deepEqual(sizes.slice(3), [64], 'nothing is made for who is told that it took too long');
  });
  test('texts that are longer than the model reads', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const long = 'light '.repeat(200);
    for (const [path, body, status] of [
      ['/v1/embeddings', { input: ['short', long] }, 400],
      ['/v1/embeddings', { input: ['short', long], truncate: true }, 200],
      ['/rerank', { query: 'light', documents: [long] }, 200],
    ] as const) {
      const got = await s.post(path, body);
      const answer = await got.json();
      assert.equal(got.status, status, JSON.stringify(answer));
      if (status === 200) assert.ok(answer.usage.prompt_tokens < 200, 'what was cut off is not counted');
      else {
        assert.deepEqual([answer.error.param, answer.error.code], ['input', 'context_length_exceeded']);
        assert.match(answer.error.message, /text 1 has \d+ tokens, and the model reads \d+/);
      }
    }
  });
  test('documents by their likeness', async () => {
    await using s = await scripted(hello, {}, { embedder: embedder() });
    const { results } = await (
      await s.post('/rerank', { query: 'cat', documents: ['car', { text: 'dog' }, 'cat'], top_n: 2 })
    ).json();
    assert.deepEqual(
      results.map((r: { index: number }) => r.index),
      [2, 1],
    );
    assert.equal(results[1].document.text, 'dog');
    assert.ok(Math.abs(results[1].relevance_score - 0.8) < 1e-6);
  });
  test('without such a model they say so', async () => {
    await using s = await scripted(hello);
    assert.equal((await s.post('/v1/embeddings', { input: 'x' })).status, 404);
  });
});

describe('/v1/responses', { skip: noModel }, () => {
  const tools = [{ type: 'function', name: 'weather', parameters }, { type: 'web_search' }];
  test('whole: reasoning, text and calls are items', async () => {
    await using s = await scripted({ answer: () => CALL });
    const input = [
      { role: 'user', content: [{ type: 'input_text', text: 'weather?' }] },
      { type: 'function_call', call_id: 'c1', name: 'weather', arguments: '{"city": "Oslo"}' },
      { type: 'function_call_output', call_id: 'c1', output: 'rain' },
    ];
    const body = await (
      await s.post('/v1/responses', { model: 'scripted', instructions: 'Be brief.', input, tools })
    ).json();
    assert.equal(body.status, 'completed');
    assert.deepEqual(
      body.output.map((o: { type: string }) => o.type),
      ['reasoning', 'message', 'function_call'],
    );
    assert.equal(body.output[0].content[0].text, 'hm');
    assert.equal(
      body.usage.output_tokens_details.reasoning_tokens,
      s.engine.tokenizer.encode('hm', { special: false }).length,
    );
    assert.equal(body.output[1].content[0].text, 'Now ');
    assert.equal(body.output[2].arguments, '{"city": "Rome"}');
    const prompt = s.engine.tokenizer.decode(s.engine.requests[0].prompt);
    assert.ok(
      prompt.includes('system\nBe brief.') &&
        prompt.includes('<tool_call>weather {"city": "Oslo"}') &&
        prompt.includes('tool\nrain'),
    );
    assert.ok(!prompt.includes('web_search'));
  });
  test('streamed: the events in their order', async () => {
    await using s = await scripted({ answer: () => CALL });
    const frames = await events(await s.post('/v1/responses', { input: 'weather?', tools, stream: true }));
    const kinds = frames.map((f) => f.event).filter((e, i, all) => e !== all[i - 1]);
    assert.deepEqual(kinds, [
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.reasoning_text.delta',
      'response.reasoning_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.function_call_arguments.delta',
      'response.function_call_arguments.done',
      'response.output_item.done',
      'response.completed',
    ]);
    const all = frames.map((f) => JSON.parse(f.data));
    assert.deepEqual(
      all.map((e) => e.sequence_number),
      [...all.keys()],
    );
    assert.equal(all.at(-1).response.output.length, 3);
    const texts = all.filter((e) => e.type.startsWith('response.output_text.'));
    assert.ok(texts.every((e) => Array.isArray(e.logprobs)));
    const call = all.find((e) => e.type === 'response.function_call_arguments.done');
    assert.equal(call.name, all.at(-1).response.output[2].name);
  });
  test('tools that are allowed', async () => {
    await using s = await scripted({ answer: () => ['[{"name": "weather", "arguments": {}}]'] });
    const tool_choice = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'weather' }] };
    const clock = { type: 'function', name: 'clock', parameters };
    const ask = { input: 'weather?', tools: [...tools, clock], tool_choice };
    const body = await (await s.post('/v1/responses', ask)).json();
    assert.equal(body.output[0].name, 'weather');
    assert.deepEqual(body.tool_choice, tool_choice);
    assert.ok(!JSON.stringify(s.engine.requests[0].grammar).includes('clock'));
  });
  test('content that is not served is named as it stands in the input', async () => {
    await using s = await scripted(hello);
    const image = { type: 'input_image', image_url: 'data:image/png;base64,AA==' };
    const text = { type: 'input_text', text: 'x' };
    for (const [input, at] of [
      [[{ role: 'user', content: [text, image] }], 'input[0].content[1]'],
      [
        [
          { type: 'reasoning', summary: [] },
          { role: 'user', content: [image] },
        ],
        'input[1].content[0]',
      ],
      [[{ type: 'function_call_output', call_id: 'a', output: [image] }], 'input[0].output[0]'],
    ] as const) {
      const response = await s.post('/v1/responses', { instructions: 'be brief', input });
      const { error } = await response.json();
      assert.deepEqual([response.status, error.param], [400, 'input']);
      assert.equal(error.message, `${at}: parts of type "input_image" are not served; only text is`);
    }
  });
  test('what is wrong with an item or a tool is told of the kind that was meant', async () => {
    await using s = await scripted(hello);
    const cases: [object, string][] = [
      [
        { input: [{ type: 'function_call', name: 'f', arguments: '{}' }] },
        'input[0].call_id: is missing; a string is expected',
      ],
      [
        { input: [{ type: 'message', role: 'tool', content: 'x' }] },
        'input[0].role: one of "system", "developer", "user", "assistant" is expected',
      ],
      [
        { input: [{ type: 'local_shell_call', call_id: 'c' }] },
        'input[0].type: one of "item_reference", "function_call", "function_call_output", "custom_tool_call", ' +
          '"custom_tool_call_output", "reasoning", "message" is expected',
      ],
      [
        { input: [{ type: 'custom_tool_call', call_id: 'c', name: 'f' }] },
        'input[0].input: is missing; a string is expected',
      ],
      [
        { tools: [{ type: 'custom', name: 'apply_patch', format: { type: 'text' } }] },
        'tools[0].type: custom tools are not served; give a function that takes a text',
      ],
      [{ tool_choice: { type: 'function' } }, 'tool_choice.name: is missing; a string is expected'],
      [
        { tools: [{ type: 'function', function: { name: 'f' } }] },
        'tools[0].name: is missing; here a function has its name and parameters beside its type',
      ],
      [{ tools: [{ type: 'function', name: 'a "b"' }] }, 'tools[0].name: a name of letters, digits, _ . : and -'],
    ];
    for (const [more, message] of cases) {
      const response = await s.post('/v1/responses', { input: 'x', ...more });
      assert.deepEqual([response.status, (await response.json()).error.message], [400, message]);
    }
  });
  test('calls of custom tools in a history are calls of functions with the text as their argument', async () => {
    await using s = await scripted(hello);
    const input = [
      { role: 'user', content: 'Mend it' },
      { type: 'custom_tool_call', id: 'ctc_1', status: 'completed', call_id: 'c', name: 'patch', input: 'say "a"\n' },
      { type: 'custom_tool_call_output', call_id: 'c', output: 'done' },
    ];
    assert.equal((await s.post('/v1/responses', { input })).status, 200);
    const prompt = s.engine.tokenizer.decode(s.engine.requests[0].prompt, { special: true });
    assert.match(prompt, /<tool_call>patch {"input": "say \\"a\\"\\n"}<\/tool_call>/);
    assert.match(prompt, /<\|im_start\|>tool\ndone<\|im_end\|>/);
  });
  test('instructions and the rules that follow them are one message', async () => {
    await using s = await scripted(hello);
    const rule = { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Ask first.' }] };
    const input = [rule, { role: 'user', content: 'x' }, { role: 'developer', content: 'Now' }];
    assert.equal((await s.post('/v1/responses', { instructions: 'Be brief.', input })).status, 200);
    const prompt = s.engine.tokenizer.decode(s.engine.requests[0].prompt, { special: true });
    const turn = (role: string, text: string): string => `<|im_start|>${role}\n${text}<|im_end|>\n`;
    const turns = [turn('system', 'Be brief.\n\nAsk first.'), turn('user', 'x'), turn('system', 'Now')];
    assert.ok(prompt.startsWith(turns.join('')), prompt);
  });
  test('what would need memory is refused', async () => {
    await using s = await scripted(hello);
    for (const more of [{ previous_response_id: 'resp_1' }, { background: true }, { conversation: 'c' }]) {
      const response = await s.post('/v1/responses', { input: 'x', ...more });
      assert.equal(response.status, 400);
      assert.match((await response.json()).error.message, /is not served/);
    }
  });
});

describe('items of answers at /v1/responses', { skip: noModel }, () => {
  const call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>';
  const answer = { answer: () => ['<think>so</think>Let me look.', call] };
  const tools = [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }];
  const named = (response: any): object[] => [
    ...response.output.map(({ id }: { id: string }) => ({ type: 'item_reference', id })),
    { type: 'function_call_output', call_id: response.output.at(-1).call_id, output: 'found' },
  ];
  test('may be named instead of sent, and mean the same', async () => {
    await using s = await scripted(answer);
    const first = await (await s.post('/v1/responses', { input: 'x', tools })).json();
    assert.deepEqual(
      first.output.map(({ type }: { type: string }) => type),
      ['reasoning', 'message', 'function_call'],
    );
    const prompts: string[] = [];
    for (const items of [named(first), [...first.output, named(first).at(-1)]]) {
      const input = [{ role: 'user', content: 'x' }, ...items];
      assert.equal((await s.post('/v1/responses', { input, tools })).status, 200);
      prompts.push(s.engine.tokenizer.decode(s.engine.requests.at(-1)?.prompt ?? [], { special: true }));
    }
    assert.match(prompts[0], /<think>so<\/think>Let me look\.<tool_call>f \{"a": 1\}/);
    assert.equal(prompts[0], prompts[1]);
  });
  test('are not kept for others, nor where the request says so, nor for ever', async () => {
    await using s = await scripted(hello, { keys: ['key-of-anna', 'key-of-bert'] });
    const as = (key: string) => ({ authorization: `Bearer ${key}` });
    const kept = await (await s.post('/v1/responses', { input: 'x' }, as('key-of-anna'))).json();
    const unkept = await (await s.post('/v1/responses', { input: 'x', store: false }, as('key-of-anna'))).json();
    const ask = async (response: any, key: string): Promise<[number, string | undefined]> => {
      const asked = await s.post(
        '/v1/responses',
        {
          input: [
            { type: 'item_reference', id: response.output[0].id },
            { role: 'user', content: 'y' },
          ],
        },
        as(key),
      );
      return [asked.status, (await asked.json()).error?.code];
    };
    assert.deepEqual(await ask(kept, 'key-of-anna'), [200, undefined]);
    assert.deepEqual(await ask(kept, 'key-of-bert'), [404, 'item_not_found']);
    assert.deepEqual(await ask(unkept, 'key-of-anna'), [404, 'item_not_found']);
    const memory = new ItemMemory(100);
    memory.keep('anna', [
      { id: 'a', text: 'x'.repeat(40) },
      { id: 'b', text: 'y'.repeat(40) },
    ]);
    assert.deepEqual(
      [memory.find('anna', 'a'), memory.find('anna', 'b')],
      [undefined, { id: 'b', text: 'y'.repeat(40) }],
    );
  });
});

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
