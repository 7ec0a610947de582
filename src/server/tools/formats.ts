// The ways in which families of models write calls of tools, a row each; the chat template tells which one it is.
import { createHash, randomBytes } from 'node:crypto';
import type { CallReader, ToolSchemas } from './call.js';
import { JsonCallsReader, MistralReader, TaggedReader } from './readers.js';

export interface ToolFormat {
  readonly name: string;
  /** Whether a chat template teaches this format. */
  readonly spokenBy: (template: string) => boolean;
  /** Texts that open a block of calls; most are special tokens, which must stay in the text. */
  readonly marks: readonly string[];
  /** Whether an answer that begins with a brace is a call. */
  readonly bare: boolean;
  readonly reader: (schemas: ToolSchemas) => CallReader;
  /** What stands around a function's arguments in JSON, and between calls; none: no grammar writes its calls. */
  readonly written?: { readonly begin: (name: string) => string; readonly end: string; readonly separator: string };
  /** A fresh id, or one that the template takes in place of a client's. */
  readonly callId: (from?: string) => string;
}

const ordinaryId = (from?: string): string => from ?? `call_${randomBytes(12).toString('hex')}`;
const alphanumeric = (bytes: Buffer): string => BigInt(`0x${bytes.toString('hex')}`).toString(36);
/** Exactly nine letters and digits, or Mistral's template throws; the same for the same id. */
const shortId = (from?: string): string =>
  from !== undefined && /^[a-zA-Z0-9]{9}$/.test(from)
    ? from
    : alphanumeric(from === undefined ? randomBytes(16) : createHash('sha256').update(from).digest())
        .padStart(9, '0')
        .slice(-9);

/** The most widespread format; models whose template teaches none are read by it, too. */
export const HERMES: ToolFormat = {
  name: 'hermes',
  spokenBy: (t) => t.includes('<tool_call>'),
  marks: ['<tool_call>'],
  bare: false,
  reader: (schemas) => new TaggedReader(schemas),
  written: {
    begin: (name) => `<tool_call>\n{"name": "${name}", "arguments": `,
    end: '}\n</tool_call>',
    separator: '\n',
  },
  callId: ordinaryId,
};

export const TOOL_FORMATS: readonly ToolFormat[] = [
  {
    name: 'mistral',
    spokenBy: (t) => t.includes('[TOOL_CALLS]'),
    marks: ['[TOOL_CALLS]'],
    bare: false,
    reader: () => new MistralReader(),
    callId: shortId,
  },
  {
    name: 'qwen3-coder',
    spokenBy: (t) => t.includes('<function=') && t.includes('<tool_call>'),
    marks: ['<tool_call>'],
    bare: false,
    reader: (schemas) => new TaggedReader(schemas),
    callId: ordinaryId,
  },
  HERMES,
  {
    name: 'llama3',
    spokenBy: (t) => t.includes('<|python_tag|>') || (t.includes('"parameters"') && t.includes('<|start_header_id|>')),
    marks: ['<|python_tag|>'],
    bare: true,
    reader: () => new JsonCallsReader({ separators: ';,', list: false }),
    written: { begin: (name) => `{"name": "${name}", "parameters": `, end: '}', separator: '; ' },
    callId: ordinaryId,
  },
];

/** The format that a model's template teaches, or the one that is named. */
export const toolFormat = (template: string, named?: string): ToolFormat | undefined =>
  TOOL_FORMATS.find((f) => (named === undefined ? f.spokenBy(template) : f.name === named));

/** Marks around what a model thinks before it answers. */
export interface ReasoningMarks {
  readonly open: string;
  readonly close: string;
}
const REASONING: readonly ReasoningMarks[] = [
  { open: '<think>', close: '</think>' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
];
export const reasoningMarks = (template: string): ReasoningMarks | undefined =>
  REASONING.find((m) => template.includes(m.close));
