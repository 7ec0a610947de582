// Calls of tools and reasoning in what models write: every format, cut at every place.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AnswerParser, type AnswerPart, type ParserOptions } from '../src/server/answer-parser.js';
import { TOOL_FORMATS, toolFormat } from '../src/server/tools/formats.js';
import { wholeMembers } from '../src/server/tools/json-call.js';
import { JsonCallsReader } from '../src/server/tools/readers.js';

interface Read {
  text: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
}
const schemas = new Map([['f', { properties: { a: { type: 'integer' }, b: { type: 'string' } } }]]);

function read(options: ParserOptions, pieces: readonly string[]): Read {
  const parser = new AnswerParser(options);
  const out: Read = { text: '', reasoning: '', calls: [] };
  const take = (parts: readonly AnswerPart[]): void => {
    for (const part of parts) {
      if ('text' in part) out.text += part.text;
      else if ('reasoning' in part) out.reasoning += part.reasoning;
      else if ('call' in part) {
        assert.equal(part.call.index, out.calls.length);
        out.calls.push({ name: part.call.name, arguments: '' });
      } else out.calls[part.arguments.index].arguments += part.arguments.text;
    }
  };
  for (const piece of pieces) take(parser.push(piece));
  take(parser.end());
  return out;
}
const format = (name: string) => {
  const found = toolFormat('', name);
  assert.ok(found, name);
  return found;
};
const tools = (name: string, parallel = true): ParserOptions => ({
  tools: { format: format(name), schemas, parallel },
});
const either = (name: string): ParserOptions => ({
  tools: { format: format(name), schemas, parallel: true, either: true },
});
const think = (begun: boolean): ParserOptions => ({ reasoning: { open: '<think>', close: '</think>', begun } });
const call = (args: string, name = 'f') => ({ name, arguments: args });

/** An answer, how it is to be read, and what that gives. */
const CASES: Readonly<Record<string, readonly [ParserOptions, string, Partial<Read>]>> = {
  'plain text': [{}, 'no {"name"} here <tool_call>', { text: 'no {"name"} here <tool_call>' }],
  'hermes: one': [
    tools('hermes'),
    'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"a": "}{\\"", "b": [1, {}]}}\n</tool_call>',
    { text: 'Let me see.\n', calls: [call('{"a": "}{\\"", "b": [1, {}]}')] },
  ],
  'hermes: two, and text behind them': [
    tools('hermes'),
    '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>\n{"arguments": {"a":1}, "name": ' +
      '"g"}\n</tool_call>\nDone',
    { text: 'Done', calls: [call('{}'), call('{"a":1}', 'g')] },
  ],
  'hermes: only one where calls may not be parallel': [
    tools('hermes', false),
    '<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>',
    { calls: [call('{}')] },
  ],
  'hermes: arguments in a string, and none at all': [
    tools('hermes'),
    '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call><tool_call>{"name": ' +
      '"g"}</tool_call><tool_call>{"name": "h", "arguments": null}</tool_call>',
    { calls: [call('{"a": 1}'), call('{}', 'g'), call('{}', 'h')] },
  ],
  'hermes: cut off by the limit': [
    tools('hermes'),
    '<tool_call>{"name": "f", "arguments": {"a": "unfin',
    { calls: [call('{"a": "unfin')] },
  ],
  'calls that must come: cut off by the limit before the name of the second': [
    {
      get forced() {
        return { reader: new JsonCallsReader({ separators: ',', list: false }), callId: () => '' };
      },
    },
    '{"name": "f", "arguments": {}}, {"na',
    { text: '', calls: [call('{}')] },
  ],
  'calls or an answer: calls': [
    either('hermes'),
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
    { text: '', calls: [call('{}'), call('{}', 'g')] },
  ],
  'calls or an answer: an answer that quotes a call': [
    either('hermes'),
    '{"a": "<tool_call>{\\"name\\": \\"f\\"}</tool_call>"}',
    { text: '{"a": "<tool_call>{\\"name\\": \\"f\\"}</tool_call>"}', calls: [] },
  ],
  'calls or an answer, llama3: an answer': [
    either('llama3'),
    '{"type": "x", "tag": "<|python_tag|>"}',
    { text: '{"type": "x", "tag": "<|python_tag|>"}', calls: [] },
  ],
  'calls or an answer, llama3: calls': [
    either('llama3'),
    '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}',
    { text: '', calls: [call('{}'), call('{}', 'g')] },
  ],
  'hermes: a mark that is none': [tools('hermes'), 'a < b, <tool, <tool_', { text: 'a < b, <tool, <tool_' }],
  'qwen3-coder': [
    tools('qwen3-coder'),
    'Now:\n<tool_call>\n<function=f>\n<parameter=a>\n3\n</parameter>\n<parameter=b>\n4\nx</tool_call>\n</parameter>\n</function>\n</tool_call>',
    { text: 'Now:\n', calls: [call('{"a": 3, "b": "4\\nx</tool_call>"}')] },
  ],
  'qwen3-coder: no parameters': [
    tools('qwen3-coder'),
    '<tool_call>\n<function=f>\n</function>\n</tool_call>',
    { calls: [call('{}')] },
  ],
  'llama3: bare': [tools('llama3'), '\n{"name": "f", "parameters": {"a": 1}}', { calls: [call('{"a": 1}')] }],
  'llama3: several, after the python tag': [
    tools('llama3'),
    '<|python_tag|>{"name": "f", "parameters": {}}; {"type": "function", "name": "g", "parameters": {"b": "x"}}',
    { calls: [call('{}'), call('{"b": "x"}', 'g')] },
  ],
  'llama3: an object that is an answer': [
    tools('llama3'),
    '{"answer": {"name": "f"}} and more',
    { text: '{"answer": {"name": "f"}} and more', calls: [] },
  ],
  'llama3: text that holds an object': [tools('llama3'), 'So: {"name": "f"}', { text: 'So: {"name": "f"}' }],
  'mistral: a list': [
    tools('mistral'),
    '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
    { calls: [call('{"a": 1}'), call('{}', 'g')] },
  ],
  'mistral: names and marks': [
    tools('mistral'),
    'Hm.[TOOL_CALLS]f[ARGS]{"a": {"x": "]"}}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}',
    { text: 'Hm.', calls: [call('{"a": {"x": "]"}}'), call('{}', 'g')] },
  ],
  'reasoning, then text': [think(false), '<think>\nhm\n</think>\n\nYes', { reasoning: 'hm\n', text: 'Yes' }],
  'reasoning that the prompt began': [think(true), 'hm</think>Yes <think>', { reasoning: 'hm', text: 'Yes <think>' }],
  'reasoning without an end': [think(true), 'hm <', { reasoning: 'hm <', text: '' }],
  'no reasoning': [think(false), '<thing>', { text: '<thing>' }],
  'reasoning and a call': [
    { ...think(false), ...tools('hermes') },
    '<think>I <tool_call></think>\n<tool_call>{"name": "f", "arguments": {}}</tool_call>',
    { reasoning: 'I <tool_call>', text: '', calls: [call('{}')] },
  ],
  'reasoning: opened by the prompt, and by the model once more': [
    think(true),
    '\n<think>\nhm <think> so</think>\n\nYes',
    { reasoning: 'hm <think> so', text: 'Yes' },
  ],
  'reasoning: opened by the prompt, and cut off': [think(true), ' \n<thi', { reasoning: '<thi', text: '' }],
};

for (const [name, [options, text, expected]] of Object.entries(CASES))
  test(`${name}: the same wherever it is cut`, () => {
    const whole = read(options, [text]);
    for (const [key, value] of Object.entries(expected)) assert.deepEqual(whole[key as keyof Read], value, key);
    assert.deepEqual(read(options, [...text]), whole, 'character by character');
    for (let i = 1; i < text.length; i++)
      assert.deepEqual(read(options, [text.slice(0, i), text.slice(i)]), whole, `cut at ${i}`);
  });

test('what a step adds to the arguments of a call is told at once', () => {
  const parser = new AnswerParser(tools('hermes'));
  const call = (n: number): string => `<tool_call>\n{"name": "f", "arguments": {"a": ${n}}}\n</tool_call>`;
  const parts = [...parser.push(`${call(12)}\n${call(34)}`), ...parser.end()];
  const written = parts.flatMap((p) => ('arguments' in p ? [p.arguments] : []));
  assert.deepEqual(written, [
    { index: 0, text: '{"a": 12}' },
    { index: 1, text: '{"a": 34}' },
  ]);
});

test('of an object that was cut off, the members that are whole', () => {
  for (const [json, whole] of Object.entries({
    '{"a": 1, "b": "x, {", "c": "unfin': { a: 1, b: 'x, {' },
    '{"a": {"b": [1, 23], "c": tr': { a: { b: [1, 23] } },
    '{"a": [{"b": 1}, {"c': { a: [{ b: 1 }, {}] },
    '{"a\\"': {},
    '{': {},
    '"text': undefined,
    '': undefined,
  }))
    assert.deepEqual(wholeMembers(json), whole, json);
});

test('each format knows the templates of its family', () => {
  const templates = {
    hermes: '{{ "<tool_call>" }}{"name": <function-name>}',
    'qwen3-coder': '<tool_call>\n<function=example_function_name>\n',
    llama3: '<|start_header_id|>{"name": function name, "parameters": dictionary}',
    mistral: '{{ "[TOOL_CALLS][" }}',
  };
  for (const [name, template] of Object.entries(templates)) assert.equal(toolFormat(template)?.name, name);
  assert.equal(toolFormat('{{ messages }}'), undefined);
  assert.match(format('mistral').callId(), /^[a-zA-Z0-9]{9}$/);
  assert.match(format('mistral').callId('call_of_another_server'), /^[a-zA-Z0-9]{9}$/);
  assert.equal(format('mistral').callId('x'), format('mistral').callId('x'));
});

test('whatever a model writes is read without an error, the same in pieces and as a whole', () => {
  const words = [
    '<tool_call>',
    '</tool_call>',
    '{',
    '}',
    '"name"',
    ':',
    '"f"',
    ',',
    '"arguments"',
    '[TOOL_CALLS]',
    '[ARGS]',
    '[',
    ']',
    '<function=f>',
    '<parameter=a>',
    '</parameter>',
    '</function>',
    '<think>',
    '</think>',
    '<|python_tag|>',
    ' ',
    '\n',
    'a',
    '"',
    '\\',
    ';',
  ];
  fc.assert(
    fc.property(
      fc.constantFrom(...TOOL_FORMATS),
      fc.array(fc.constantFrom(...words), { maxLength: 40 }),
      fc.boolean(),
      (f, pieces, begun) => {
        const options = {
          reasoning: { open: '<think>', close: '</think>', begun },
          tools: { format: f, schemas, parallel: true },
        };
        const got = read(options, pieces);
        assert.deepEqual(read(options, [pieces.join('')]), got);
      },
    ),
    { numRuns: 2000, seed: 7 },
  );
});
