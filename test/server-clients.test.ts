// The clients people have, against a running server: openai, the AI SDK and LangChain; chat, streams, tools, schemas,
// embeddings, aborts.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embedMany, generateObject, generateText, jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { type Fixture, noModel, scripted, ScriptedEngine } from './server-support.js';

const parameters = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
};
const weather = { name: 'weather', description: 'the weather in a city', parameters };

/** Answers by what is asked: a call where there are tools, JSON where there is a grammar, else words. */
function* answer(request: { grammar?: unknown; stop?: readonly string[] }, prompt: string): Generator<string | number> {
  if (prompt.includes('endless')) for (;;) yield* ['on ', 3];
  if (request.grammar) yield* ['{"city": ', '"Pa', 'ris"}'];
  else if (prompt.includes('<|im_start|>tool\n')) yield* ['It is ', 'sunny.'];
  else if (prompt.includes('"weather"'))
    yield* ['<tool_call>\n{"name": "weather", "argu', 'ments": {"city": "Paris"}}', '\n</tool_call>'];
  else if (prompt.includes('think')) yield* ['<think>hm', '</think>', 'Yes.'];
  else yield* ['Hello', ' there', '!'];
}

describe('clients', { skip: noModel }, () => {
  let s: Fixture;
  let base = '';
  const apiKey = 'key-of-the-tests';
  before(async () => {
    const { tokenizer } = new ScriptedEngine({ answer: () => [] });
    const embed = async (texts: readonly string[]) => texts.map((t) => Float32Array.from([t.length, 0.5, -1]));
    const embedder = { name: 'vectors', model: { tokenizer, maxTokens: 64, embed } };
    s = await scripted({ answer }, { keys: [apiKey] }, { embedder });
    base = `${s.server.url}/v1`;
  });
  after(() => s?.server.close(0));
  const idle = async (): Promise<void> => {
    for (let i = 0; i < 6000 && s.engine.running > 0; i++) await new Promise((r) => setTimeout(r, 10));
    assert.equal(s.engine.running, 0);
  };

  describe('openai', () => {
    const client = () => new OpenAI({ baseURL: base, apiKey, maxRetries: 0 });
    const ask = { model: 'scripted', messages: [{ role: 'user' as const, content: 'hi' }] };
    const tools = [{ type: 'function' as const, function: weather }];
    test('chat, models, completions, errors', async () => {
      const answer = await client().chat.completions.create(ask);
      assert.equal(answer.choices[0].message.content, 'Hello there!');
      assert.equal((await client().models.list()).data[0].id, 'scripted');
      assert.equal(
        (await client().completions.create({ model: 'scripted', prompt: 'x' })).choices[0].text,
        'Hello there!',
      );
      await assert.rejects(client().chat.completions.create({ ...ask, model: 'gpt-9' }), OpenAI.NotFoundError);
      await assert.rejects(client().chat.completions.create({ ...ask, temperature: 9 }), OpenAI.BadRequestError);
      const stranger = new OpenAI({ baseURL: base, apiKey: 'somebody-else', maxRetries: 0 });
      await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    });
    test('a stream through its helper, which checks every chunk', async () => {
      const pieces: string[] = [];
      const stream = client().chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
      stream.on('content', (delta) => pieces.push(delta));
      const whole = await stream.finalChatCompletion();
      assert.equal(whole.choices[0].message.content, 'Hello there!');
      assert.equal(pieces.join(''), 'Hello there!');
      assert.equal((await stream.totalUsage()).completion_tokens, 3);
    });
    test('tools, run to the end', async () => {
      const runner = client().chat.completions.runTools({
        ...ask,
        messages: [{ role: 'user', content: 'weather in Paris?' }],
        stream: true,
        tools: [
          {
            type: 'function',
            function: { ...weather, parse: JSON.parse, function: (a: { city: string }) => `sun in ${a.city}` },
          },
        ],
      });
      assert.equal(await runner.finalContent(), 'It is sunny.');
      assert.ok(runner.messages.some((m) => m.role === 'tool' && m.content === 'sun in Paris'));
    });
    test('a schema', async () => {
      const answer = await client().chat.completions.parse({
        ...ask,
        response_format: { type: 'json_schema', json_schema: { name: 'place', schema: parameters, strict: true } },
      });
      assert.equal(JSON.parse(answer.choices[0].message.content ?? '').city, 'Paris');
      assert.deepEqual(s.engine.requests.at(-1)?.grammar, { kind: 'schema', schema: parameters });
    });
    test('responses, streamed and whole', async () => {
      const whole = await client().responses.create({ model: 'scripted', input: 'hi' });
      assert.equal(whole.output_text, 'Hello there!');
      const events: string[] = [];
      const stream = client().responses.stream({
        model: 'scripted',
        input: 'weather?',
        tools: [{ type: 'function', ...weather, strict: true }],
      });
      for await (const event of stream) events.push(event.type);
      const [call] = (await stream.finalResponse()).output;
      assert.ok(
        call.type === 'function_call' && call.name === 'weather' && JSON.parse(call.arguments).city === 'Paris',
      );
      assert.equal(events.at(-1), 'response.completed');
    });
    test('embeddings, which it asks for as base64', async () => {
      const { data } = await client().embeddings.create({ model: 'vectors', input: ['a', 'abc'] });
      assert.deepEqual(
        data.map((d) => [...d.embedding]),
        [
          [1, 0.5, -1],
          [3, 0.5, -1],
        ],
      );
    });
    test('an abort', async () => {
      const stream = await client().chat.completions.create({
        ...ask,
        messages: [{ role: 'user', content: 'endless' }],
        stream: true,
      });
      let seen = 0;
      for await (const _ of stream) if (++seen === 5) stream.controller.abort();
      await idle();
    });
    test('calls in pieces', async () => {
      const stream = client().chat.completions.stream({
        ...ask,
        messages: [{ role: 'user', content: 'weather?' }],
        tools,
      });
      const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls ?? [];
      assert.ok(call?.type === 'function' && JSON.parse(call.function.arguments).city === 'Paris');
    });
  });

  describe('the AI SDK', () => {
    const provider = () =>
      createOpenAICompatible({
        name: 'wick',
        baseURL: base,
        apiKey,
        includeUsage: true,
        supportsStructuredOutputs: true,
      });
    const model = () => provider()('scripted');
    test('text, whole and streamed, with reasoning', async () => {
      assert.equal((await generateText({ model: model(), prompt: 'hi' })).text, 'Hello there!');
      const result = streamText({ model: model(), prompt: 'think' });
      let text = '';
      for await (const piece of result.textStream) text += piece;
      assert.equal(text, 'Yes.');
      assert.equal(await result.reasoningText, 'hm');
      assert.equal((await result.usage).outputTokens, 3);
    });
    test('tools', async () => {
      const tools = { weather: tool({ description: 'w', inputSchema: jsonSchema<{ city: string }>(parameters) }) };
      const { toolCalls, finishReason } = await generateText({ model: model(), prompt: 'weather?', tools });
      assert.deepEqual([toolCalls[0].toolName, toolCalls[0].input], ['weather', { city: 'Paris' }]);
      assert.equal(finishReason, 'tool-calls');
      const result = streamText({ model: model(), prompt: 'weather?', tools });
      assert.deepEqual((await result.toolCalls)[0].input, { city: 'Paris' });
    });
    test('a schema', async () => {
      const { object } = await generateObject({
        model: model(),
        prompt: 'where?',
        schema: jsonSchema<{ city: string }>(parameters),
      });
      assert.deepEqual(object, { city: 'Paris' });
    });
    test('embeddings', async () => {
      const { embeddings } = await embedMany({ model: provider().textEmbeddingModel('vectors'), values: ['ab', 'c'] });
      assert.deepEqual(embeddings, [
        [2, 0.5, -1],
        [1, 0.5, -1],
      ]);
    });
    test('an abort', async () => {
      const abort = new AbortController();
      const result = streamText({ model: model(), prompt: 'endless', abortSignal: abort.signal, onError: () => {} });
      let seen = 0;
      for await (const _ of result.textStream) if (++seen === 4) abort.abort();
      await idle();
    });
  });

  describe('LangChain', () => {
    const chat = () => new ChatOpenAI({ model: 'scripted', apiKey, configuration: { baseURL: base }, maxRetries: 0 });
    test('chat, streamed too', async () => {
      assert.equal((await chat().invoke('hi')).content, 'Hello there!');
      let text = '';
      for await (const piece of await chat().stream('hi')) text += String(piece.content);
      assert.equal(text, 'Hello there!');
    });
    test('tools and schemas', async () => {
      const bound = chat().bindTools([{ type: 'function', function: weather }]);
      const { tool_calls } = await bound.invoke('weather?');
      assert.deepEqual(tool_calls?.[0].args, { city: 'Paris' });
      const structured = chat().withStructuredOutput(parameters, {
        name: 'place',
        method: 'jsonSchema',
      });
      assert.deepEqual(await structured.invoke('where?'), { city: 'Paris' });
    });
    test('embeddings', async () => {
      const made = new OpenAIEmbeddings({ model: 'vectors', apiKey, configuration: { baseURL: base }, maxRetries: 0 });
      assert.deepEqual(await made.embedDocuments(['abcd']), [[4, 0.5, -1]]);
    });
    test('an abort', async () => {
      const abort = new AbortController();
      await assert.rejects(async () => {
        for await (const _ of await chat().stream('endless', { signal: abort.signal })) abort.abort();
      });
      await idle();
    });
  });
});
