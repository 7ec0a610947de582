// /v1/responses against an engine that plays a script.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ItemMemory } from '../src/server/item-memory.js';
import { CALL, events, hello, noModel, parameters, scripted } from './server-support.js';

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
