// Requests that nobody would send, the same for the same seed: right ones with places replaced, removed, added or
// repeated, and texts that are cut or broken.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type Fixture, scripted, ScriptedEngine } from './server-support.js';

const message = { role: 'user', content: 'hi' };
const tool = {
  type: 'function',
  function: { name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } } } },
};
const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a": 1}' } };
const sampling = {
  temperature: 0.5,
  top_p: 0.9,
  n: 1,
  stop: ['x'],
  seed: 1,
  logit_bias: { 5: 1 },
  max_tokens: 5,
  top_k: 3,
};
/** Requests that are right, to be made wrong. */
const RIGHT: readonly (readonly [string, object])[] = [
  ['/v1/chat/completions', { model: 'scripted', messages: [message], ...sampling, logprobs: true, top_logprobs: 2 }],
  [
    '/v1/chat/completions',
    {
      messages: [
        message,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: 'ok' },
      ],
      tools: [tool],
      tool_choice: 'auto',
      stream: true,
      stream_options: { include_usage: true },
    },
  ],
  [
    '/v1/chat/completions',
    {
      messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }] }],
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } },
      chat_template_kwargs: { enable_thinking: true },
    },
  ],
  ['/v1/completions', { prompt: 'a', ...sampling, echo: true, logprobs: 1 }],
  ['/v1/completions', { prompt: [[1, 2], [3]], stream: true, max_tokens: 3 }],
  ['/v1/embeddings', { model: 'vectors', input: ['a', 'b'], encoding_format: 'base64', dimensions: 2 }],
  ['/rerank', { query: 'q', documents: ['a', { text: 'b' }], top_n: 1 }],
  [
    '/v1/responses',
    {
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'a' }] },
        { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
      ],
      tools: [{ type: 'function', name: 'f', parameters: {} }],
      text: { format: { type: 'text' } },
      stream: true,
    },
  ],
  [
    '/v1/messages',
    {
      max_tokens: 5,
      system: 's',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'tool_result', tool_use_id: 't', content: 'x' },
          ],
        },
      ],
      tools: [{ name: 'f', input_schema: {} }],
      tool_choice: { type: 'auto' },
    },
  ],
  ['/v1/messages/count_tokens', { messages: [message], thinking: { type: 'enabled', budget_tokens: 5 } }],
  ['/tokenize', { prompt: 'a' }],
  ['/detokenize', { tokens: [1, 2] }],
];
const NASTY: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  1e308,
  -1e308,
  2 ** 53,
  1e-320,
  '',
  'x',
  '\u0000',
  '\ud800',
  '<|im_end|>',
  '<tool_call>{"name": "f"',
  '{{ 7 * 7 }}',
  '{% for i in range(10) %}',
  '../../etc/passwd',
  'file:///etc/passwd',
  'http://127.0.0.1:1/',
  'a'.repeat(5000),
  [],
  [[]],
  {},
  [null],
  { type: 'x' },
  [{}],
  { __proto__: null, constructor: 1 },
  JSON.parse('{"__proto__": {"x": 1}}'),
  ['a', 1],
  Array(50).fill('a'),
  'constructor',
  'toString',
  128256,
  Number.MAX_SAFE_INTEGER,
  '\udc00a\ud83d',
  '</tool_call>',
  'a\u2028b\r\n\r\ndata: x',
  JSON.parse(`${'{"a":['.repeat(28)}1${']}'.repeat(28)}`),
  { $ref: '#' },
];

type Json = unknown;
/** All places in a value, as paths. */
function places(value: Json, path: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [
    path,
    ...Object.entries(value).flatMap(([k, v]) => places(v, [...path, Array.isArray(value) ? Number(k) : k])),
  ];
}
function changed(value: Json, path: readonly (string | number)[], change: (old: Json) => Json): Json {
  if (path.length === 0) return change(value);
  const [head, ...rest] = path;
  const copy = Array.isArray(value) ? [...value] : { ...(value as object) };
  const inner = changed((value as Record<string | number, Json>)[head], rest, change);
  if (inner === undefined) delete (copy as Record<string | number, Json>)[head];
  else (copy as Record<string | number, Json>)[head] = inner;
  return copy;
}
const mutation = fc.record({
  at: fc.nat(),
  kind: fc.constantFrom('replace', 'replace', 'remove', 'add', 'repeat'),
  with: fc.oneof(fc.constantFrom(...NASTY), fc.jsonValue({ maxDepth: 3 })),
  name: fc.constantFrom(
    'functions',
    'audio',
    'suffix',
    'best_of',
    'model',
    'stream',
    'min_tokens',
    'stop_token_ids',
    'ignore_eos',
    '__proto__',
    'constructor',
    'x',
    'reasoning_effort',
    'tool_choice',
    'previous_response_id',
    'response_format',
    'text',
    'output_config',
    'tools',
    'chat_template_kwargs',
    'continue_final_message',
    'logit_bias',
    'n',
  ),
});
const request = fc.record({
  base: fc.constantFrom(...RIGHT),
  mutations: fc.array(mutation, { maxLength: 3 }),
  /** Now and then a key stands twice, or the text itself is cut or broken. */
  twice: fc.record({ now: fc.nat(19), with: fc.constantFrom(...NASTY) }),
  broken: fc.record({ now: fc.nat(11), at: fc.nat(), byte: fc.nat(255) }),
  type: fc.constantFrom(...Array(20).fill('application/json'), 'text/plain', 'application/json; charset=utf-8', ''),
});

/** A server around an engine that plays answers, with everything that routes may ask for. */
export function fuzzedServer(): Promise<Fixture> {
  const { tokenizer } = new ScriptedEngine({ answer: () => [] });
  const embed = async (texts: readonly string[]) => texts.map(() => Float32Array.from([1, 2, 3, 4]));
  return scripted(
    {
      answer: () => ['<think>a</think>', '<tool_call>{"name": "f", "arguments": {}}</tool_call>', 'b'],
      contextTokens: 2048,
    },
    {},
    { embedder: { name: 'vectors', model: { tokenizer, maxTokens: 64, embed } } },
  );
}

/** Sends so many of them; throws at the first answer that does not fit. How often each status came. */
export async function fuzz(url: string, runs: number, seed: number): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(request, async ({ base: [path, body], mutations, twice, broken, type }) => {
      let value: Json = body;
      for (const m of mutations) {
        const all = places(value);
        const place = all[Math.min(all.length - 1, 1 + (m.at % all.length))];
        value = changed(value, place, (old) => {
          if (m.kind === 'remove') return place.length === 0 ? {} : undefined;
          if (m.kind === 'add' && typeof old === 'object' && old !== null && !Array.isArray(old))
            return Object.fromEntries([...Object.entries(old), [m.name, m.with]]);
          if (m.kind === 'repeat' && Array.isArray(old)) return [...old, ...old, ...old];
          return m.with;
        });
      }
      let text = JSON.stringify(value) ?? 'undefined';
      const [key] = Object.keys(Object(value));
      if (twice.now === 0 && key) text = `${text.slice(0, -1)},${JSON.stringify(key)}:${JSON.stringify(twice.with)}}`;
      let bytes = Buffer.from(text);
      if (broken.now === 0) {
        const at = broken.at % (bytes.length + 1);
        bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from([broken.byte]), bytes.subarray(at + 1)]);
      }
      const response = await fetch(url + path, {
        method: 'POST',
        headers: type ? { 'content-type': type } : {},
        body: bytes,
      });
      text = await response.text();
      counts.set(response.status, (counts.get(response.status) ?? 0) + 1);
      const shown = `${path} ${bytes.toString().slice(0, 500)} gave ${response.status} ${text.slice(0, 300)}`;
      assert.ok([200, 400, 404, 413, 415].includes(response.status), shown);
      if (response.status !== 200) {
        const { error } = JSON.parse(text);
        assert.ok(typeof error.message === 'string' && error.message.length > 0 && error.message.length < 1000, shown);
        assert.ok(!/at .*\.(js|ts):\d+/.test(text), `a stack: ${shown}`);
      } else assert.ok(!text.includes('"internal_error"'), shown);
    }),
    { numRuns: runs, seed, endOnFailure: true, includeErrorInReport: true },
  );
  return counts;
}
