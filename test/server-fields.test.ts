// Every optional field of the APIs is honoured, has no effect on an answer, or is refused by its name.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noModel, scripted } from './server-support.js';

const hello = { answer: () => ['Hello'] };
const CHAT = '/v1/chat/completions';
const messages = [{ role: 'user', content: 'hi' }];
const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] };
const parameters = { type: 'object', properties: {} };

/** What each route takes at least, and optional fields of its vendor's API. */
const ROUTES: Readonly<Record<string, { readonly ask: object; readonly optional: readonly string[] }>> = {
  [CHAT]: {
    ask: { messages },
    optional: [
      ...['model', 'audio', 'frequency_penalty', 'function_call', 'functions', 'logit_bias', 'logprobs', 'user'],
      ...['max_completion_tokens', 'max_tokens', 'metadata', 'modalities', 'n', 'parallel_tool_calls', 'prediction'],
      ...['presence_penalty', 'prompt_cache_key', 'prompt_cache_retention', 'reasoning_effort', 'response_format'],
      ...['safety_identifier', 'seed', 'service_tier', 'stop', 'store', 'stream', 'stream_options', 'temperature'],
      ...['tool_choice', 'tools', 'top_logprobs', 'top_p', 'verbosity', 'web_search_options'],
    ],
  },
  '/v1/completions': {
    ask: { prompt: 'hi' },
    optional: [
      ...['model', 'best_of', 'echo', 'frequency_penalty', 'logit_bias', 'logprobs', 'max_tokens', 'n', 'seed'],
      ...['presence_penalty', 'stop', 'stream', 'stream_options', 'suffix', 'temperature', 'top_p', 'user'],
    ],
  },
  '/v1/responses': {
    ask: { input: 'hi' },
    optional: [
      ...['background', 'conversation', 'include', 'instructions', 'max_output_tokens', 'max_tool_calls', 'metadata'],
      ...['model', 'parallel_tool_calls', 'previous_response_id', 'prompt', 'prompt_cache_key', 'reasoning', 'user'],
      ...['safety_identifier', 'service_tier', 'store', 'stream', 'stream_options', 'temperature', 'text'],
      ...['tool_choice', 'tools', 'top_logprobs', 'top_p', 'truncation'],
    ],
  },
  '/v1/messages': {
    ask: { messages, max_tokens: 9 },
    optional: [
      ...['model', 'container', 'context_management', 'mcp_servers', 'metadata', 'output_config', 'output_format'],
      ...['service_tier', 'stop_sequences', 'stream', 'system', 'temperature', 'thinking', 'tool_choice', 'tools'],
      ...['top_k', 'top_p'],
    ],
  },
};
/** Values that would change the answer, and are not served. */
const REFUSED: Readonly<Record<string, readonly object[]>> = {
  [CHAT]: [
    ...[{ audio: { voice: 'x' } }, { functions: [] }, { function_call: 'auto' }, { web_search_options: {} }],
    ...[{ guided_json: schema }, { guided_choice: ['a'] }, { structured_outputs: { json: schema } }, { best_of: 2 }],
    ...[{ grammar: 'root ::= "a"' }, { json_schema: schema }, { use_beam_search: true }, { bad_words: ['a'] }],
    ...[{ include_stop_str_in_output: true }, { skip_special_tokens: false }, { truncate_prompt_tokens: 3 }],
    ...[{ prompt_logprobs: 1 }, { mirostat: 2 }, { echo: true }, { length_penalty: 2 }, { enable_thinking: false }],
    ...[{ regex: 'a' }, { ebnf: 'root ::= "a"' }, { top_a: 0.1 }, { tfs_z: 0.5 }, { no_repeat_ngram_size: 2 }],
    ...[{ repeat_penalty: 1.1 }, { dynatemp_range: 0.5 }, { n_predict: 5 }, { typ_p: 0.5 }, { documents: ['a'] }],
    ...[{ moderation: { model: 'm' } }, { reasoning: { effort: 'low' } }, { options: { num_ctx: 9 } }],
  ],
  '/v1/completions': [
    ...[{ best_of: 2 }, { suffix: 'x' }, { response_format: { type: 'json_object' } }, { guided_regex: 'a' }],
    ...[{ regex: 'a' }, { repeat_penalty: 1.1 }],
  ],
  '/v1/responses': [
    ...[{ previous_response_id: 'resp_1' }, { background: true }, { conversation: 'c' }, { prompt: { id: 'p' } }],
    ...[{ truncation: 'auto' }, { include: ['message.output_text.logprobs'] }],
    ...[{ seed: 1 }, { stop: 'x' }, { n: 2 }, { max_tokens: 5 }, { response_format: { type: 'json_object' } }],
    ...[{ logprobs: true }, { presence_penalty: 1 }, { messages }],
    { context_management: [{ type: 'compaction', compact_threshold: 1000 }] },
  ],
  '/v1/messages': [
    ...[{ seed: 1 }, { stop: ['x'] }, { n: 2 }, { max_completion_tokens: 5 }, { logit_bias: { 5: 1 } }],
    { mcp_servers: [{ type: 'url', url: 'http://x', name: 'y' }] },
    { container: 'c' },
    { compaction: { type: 'summarize' } },
    { context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } },
  ],
  '/tokenize': [{ with_pieces: true }, { return_token_strs: true }, { messages }],
};
/** Values that mean what the field's absence does, or change nothing of the answer. */
const HARMLESS: Readonly<Record<string, readonly object[]>> = {
  [CHAT]: [
    ...[
      { store: true, metadata: { a: 'b' }, service_tier: 'flex' },
      { best_of: 1, bad_words: [], mirostat: 0 },
    ],
    ...[{ n_predict: -1, reasoning_effort: 'max', documents: [], options: {} }],
    ...[{ prediction: { type: 'content', content: 'x' } }, { skip_special_tokens: true, use_beam_search: false }],
  ],
  '/v1/responses': [
    { include: ['reasoning.encrypted_content'], store: true, truncation: 'disabled' },
    { n: 1, seed: null, frequency_penalty: 0 },
  ],
  '/v1/messages': [
    { mcp_servers: [], context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] } },
    { thinking: { type: 'enabled', budget_tokens: 1024 }, metadata: { user_id: 'u' } },
    { thinking: { type: 'between_tools' }, thread: { type: 'create' } },
  ],
};

describe('optional fields', { skip: noModel }, () => {
  for (const [route, { ask, optional }] of Object.entries(ROUTES))
    test(`${route}: null is absence`, async () => {
      await using s = await scripted(hello);
      const nulls = Object.fromEntries(optional.map((name) => [name, null]));
      const response = await s.post(route, { ...nulls, ...ask });
      assert.equal(response.status, 200, await response.text());
    });
  for (const [route, cases] of Object.entries(REFUSED))
    test(`${route}: what is not served is refused by name`, async () => {
      await using s = await scripted(hello);
      const ask = ROUTES[route]?.ask ?? { prompt: 'x' };
      for (const more of cases) {
        const response = await s.post(route, { ...ask, ...more });
        const { error } = await response.json();
        const [name] = Object.keys(more);
        assert.equal(response.status, 400, name);
        assert.match(error.message, new RegExp(`^${name}\\b.*: is not served`), name);
        assert.equal(s.engine.requests.length, 0);
      }
    });
  for (const [route, cases] of Object.entries(HARMLESS))
    test(`${route}: what changes nothing is taken`, async () => {
      await using s = await scripted(hello);
      for (const more of cases) {
        const response = await s.post(route, { ...ROUTES[route].ask, ...more });
        assert.equal(response.status, 200, `${JSON.stringify(more)}: ${await response.text()}`);
      }
    });

  test("Anthropic's formats and efforts bind the answer as OpenAI's do", async () => {
    await using s = await scripted({
      ...hello,
      template: '{{ messages[0].content }} effort={{ reasoning_effort }} verbosity={{ verbosity }}',
    });
    const format = { type: 'json_schema', schema };
    for (const more of [{ output_config: { format } }, { output_format: format }])
      await s.post('/v1/messages', { ...ROUTES['/v1/messages'].ask, ...more });
    for (const { grammar } of s.engine.requests) assert.deepEqual(grammar, { kind: 'schema', schema });
    assert.equal(s.engine.requests.length, 2);
    const prompt = async (route: string, more: object): Promise<string> => {
      await s.post(route, { ...ROUTES[route].ask, ...more });
      return s.engine.tokenizer.decode(s.engine.requests.at(-1)?.prompt ?? []);
    };
    assert.match(await prompt('/v1/messages', { output_config: { effort: 'low' } }), /effort=low/);
    assert.match(await prompt('/v1/messages', { output_config: { effort: 'max' } }), /effort=max/);
    assert.match(await prompt(CHAT, { verbosity: 'high' }), /verbosity=high/);
    assert.match(await prompt('/v1/responses', { text: { verbosity: 'low' } }), /verbosity=low/);
  });
  test('tools that the template shows nobody are refused, unless the answer is bound to them', async () => {
    const template = '{{ messages[0].content }}';
    const tools = [{ type: 'function', function: { name: 'get', parameters } }];
    await using s = await scripted({ ...hello, template });
    const { error } = await (await s.post(CHAT, { messages, tools })).json();
    assert.match(error.message, /^tools: the chat template of scripted shows the model none/);
    assert.deepEqual([error.param, error.code], ['tools', 'unsupported']);
    for (const tool_choice of ['none', 'required', { type: 'function', function: { name: 'get' } }])
      assert.equal((await s.post(CHAT, { messages, tools, tool_choice })).status, 200, JSON.stringify(tool_choice));
    await using knows = await scripted({ ...hello, template }, {}, { toolFormat: 'hermes' });
    assert.equal((await knows.post(CHAT, { messages, tools })).status, 200);
  });
  test('what the request says itself is no variable of the template', async () => {
    await using s = await scripted(hello);
    const ask = { messages: [{ role: 'user', content: 'x' }], chat_template_kwargs: { tools: [], messages: [] } };
    const response = await s.post(CHAT, ask);
    const { error } = await response.json();
    assert.deepEqual([response.status, error.param], [400, 'chat_template_kwargs']);
    assert.match(error.message, /messages is a field of the request itself/);
  });

  test('two tools of one name are refused', async () => {
    await using s = await scripted(hello);
    const tools = ['a', 'b', 'a'].map((name) => ({ type: 'function', function: { name, parameters } }));
    const { error } = await (await s.post(CHAT, { messages, tools })).json();
    assert.equal(error.message, 'tools: there are two of the name a');
  });
  test("llama.cpp's name for special tokens of a text is known", async () => {
    await using s = await scripted(hello);
    const tokens = async (more: object): Promise<number[]> =>
      (await (await s.post('/tokenize', { content: 'hi', ...more })).json()).tokens;
    const whole = await tokens({});
    assert.deepEqual(await tokens({ add_special: false }), whole.slice(1));
    assert.deepEqual(await tokens({ add_special: true }), whole);
  });
});
