// `wick chat`: a conversation with a language model in the terminal.
import { createInterface, type Interface } from 'node:readline/promises';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ArgumentError, FileError, WickError } from '../base/errors.js';
import { ContextError, type Usage } from '../engine/request.js';
import { prepareChat } from '../server/chat-prompt.js';
import type { ChatRequest, ChatTurn } from '../server/schemas/chat.js';
import { type Chatter, Served } from '../server/served.js';
import { ENGINE_HELP, ENGINE_OPTIONS, openEngine } from './open-engine.js';
import { numberOf, parameterSize } from './open-model.js';
import { styled } from './terminal.js';

const HELP = `wick chat [options]

${ENGINE_HELP}
  --system TEXT          how the model should answer
  --temperature T  --top-k K  --top-p P  --min-p P  --repetition-penalty R  --seed S
  --max-tokens N         of an answer (default: what the context has room for)

In the conversation, /help lists the commands. Ctrl-C stops the answer; without one, it ends the program.`;

const COMMANDS: Readonly<Record<string, string>> = {
  '/help': 'these lines',
  '/new': 'begin a new conversation',
  '/system TEXT': 'how the model should answer; without a text, nothing is said about it',
  '/retry': 'another answer to the last message',
  '/undo': 'take back the last message and its answer',
  '/set NAME VALUE':
    'temperature, top_p, top_k, min_p, repetition_penalty, seed, max_tokens; without a value, the default',
  '/history': 'the conversation so far',
  '/save FILE': 'the conversation as JSON, as the API takes it',
  '/exit': 'end (so does Ctrl-D)',
};
const SETTINGS = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'seed', 'max_tokens'] as const;
type Setting = (typeof SETTINGS)[number];

/** A conversation: its messages and settings, and the answer under way. */
class Conversation {
  readonly #chatter: Chatter;
  readonly settings: Partial<Record<Setting, number>>;
  system: string | undefined;
  turns: ChatTurn[] = [];
  #abort: AbortController | undefined;
  constructor(chatter: Chatter, system: string | undefined, settings: Partial<Record<Setting, number>>) {
    this.#chatter = chatter;
    this.system = system;
    this.settings = settings;
  }
  /** Stops the answer under way; whether there was one. */
  stop(): boolean {
    const writing = this.#abort !== undefined;
    this.#abort?.abort();
    return writing;
  }
  messages(): ChatTurn[] {
    return [...(this.system ? [{ role: 'system' as const, content: this.system }] : []), ...this.turns];
  }
  /** Answers the last message, to the terminal; the oldest messages give way where the context is full. */
  async answer(): Promise<void> {
    const { engine } = this.#chatter;
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const begin = performance.now();
    let first = 0;
    let text = '';
    try {
      const { request, parser } = this.#prepared();
      const generation = engine.submit({ ...request, signal });
      const reading = parser();
      let thinking = false;
      for await (const piece of generation) {
        first ||= performance.now();
        for (const part of [...reading.push(piece.text), ...(piece.finish ? reading.end() : [])]) {
          if ('reasoning' in part) {
            thinking = true;
            process.stdout.write(styled(part.reasoning, 'dim'));
          } else if ('text' in part) {
            if (thinking) process.stdout.write('\n\n');
            thinking = false;
            text += part.text;
            process.stdout.write(part.text);
          }
        }
      }
      process.stdout.write(text.endsWith('\n') ? '' : '\n');
      if (process.stderr.isTTY)
        console.error(
          styled(figures(await generation.usage, (first - begin) / 1000, signal.aborted), 'dim', process.stderr),
        );
    } finally {
      this.#abort = undefined;
      this.turns.push({ role: 'assistant', content: text });
    }
  }
  #prepared(): ReturnType<typeof prepareChat> {
    for (;;) {
      const prepared = prepareChat({ messages: this.messages(), ...this.settings } as ChatRequest, this.#chatter);
      const { contextTokens } = this.#chatter.engine.limits;
      if (prepared.request.prompt.length < contextTokens) return prepared;
      if (this.turns.length < 3) throw new ContextError(prepared.request.prompt.length, contextTokens);
      this.turns.splice(0, 2);
      console.error(styled('(the two oldest messages no longer fit and were left out)', 'dim', process.stderr));
    }
  }
}
const figures = (u: Usage, first: number, stopped: boolean): string =>
  `${u.tokens} tokens${u.tokens > 1 && u.decodeSeconds > 0 ? `, ${((u.tokens - 1) / u.decodeSeconds).toFixed(1)} a second` : ''}, ` +
  `first after ${(first * 1000).toFixed(0)} ms${stopped ? ', stopped' : ''}`;

/** Runs a /command; whether to go on, and whether an answer is wanted. */
function command(line: string, talk: Conversation): 'go on' | 'answer' | 'end' {
  const [name, ...words] = line.split(/\s+/);
  const rest = line.slice(name.length).trim();
  switch (name) {
    case '/exit':
    case '/quit':
      return 'end';
    case '/new':
      talk.turns = [];
      console.log('a new conversation');
      return 'go on';
    case '/system':
      talk.system = rest || undefined;
      console.log(rest ? 'the system prompt is set' : 'no system prompt');
      return 'go on';
    case '/retry':
      if (talk.turns.at(-1)?.role === 'assistant') talk.turns.pop();
      if (talk.turns.length > 0) return 'answer';
      console.log('there is nothing to answer yet');
      return 'go on';
    case '/undo':
      talk.turns.splice(-2);
      console.log(`${talk.turns.length} messages are left`);
      return 'go on';
    case '/history':
      for (const turn of talk.messages()) console.log(`${styled(`${turn.role}:`, 'bold')} ${String(turn.content)}`);
      return 'go on';
    case '/set':
      set(words[0], words[1], talk);
      return 'go on';
    case '/save':
      if (rest === '') throw new ArgumentError('chat: /save FILE');
      try {
        writeFileSync(rest, `${JSON.stringify(talk.messages(), null, 2)}\n`);
      } catch (error) {
        throw new FileError(`chat: ${rest} cannot be written: ${(error as NodeJS.ErrnoException).code}`);
      }
      console.log(`saved to ${rest}`);
      return 'go on';
    case '/help': {
      const width = Math.max(...Object.keys(COMMANDS).map((c) => c.length));
      for (const [c, meaning] of Object.entries(COMMANDS)) console.log(`  ${c.padEnd(width)}  ${meaning}`);
      console.log('A line that ends with \\ goes on in the next one.');
      return 'go on';
    }
    default:
      throw new ArgumentError(`chat: there is no command ${name}; /help lists them`);
  }
}
function set(name: string | undefined, value: string | undefined, talk: Conversation): void {
  if (name === undefined) {
    for (const s of SETTINGS) console.log(`  ${s} ${talk.settings[s] ?? '(default)'}`);
    return;
  }
  if (!(SETTINGS as readonly string[]).includes(name))
    throw new ArgumentError(`chat: there is no setting ${name}; there are ${SETTINGS.join(', ')}`);
  const given = numberOf('chat', name, value);
  if (given === undefined) delete talk.settings[name as Setting];
  else talk.settings[name as Setting] = given;
}

export async function run(argv: readonly string[]): Promise<number> {
  const option = { type: 'string' } as const;
  const { values: v } = parseArgs({
    args: [...argv],
    options: {
      ...ENGINE_OPTIONS,
      ...{ system: option, temperature: option, 'top-k': option, 'top-p': option, 'min-p': option },
      ...{ 'repetition-penalty': option, seed: option, 'max-tokens': option, help: { type: 'boolean', short: 'h' } },
    },
  });
  if (v.help) {
    console.log(HELP);
    return 0;
  }
  const settings: Partial<Record<Setting, number>> = {};
  for (const s of SETTINGS) {
    const flag = s.replaceAll('_', '-') as 'temperature';
    const given = numberOf('chat', flag, v[flag]);
    if (given !== undefined) settings[s] = given;
  }
  const open = await openEngine('chat', v);
  try {
    const chatter = new Served({ engine: open.engine }).chatter(undefined);
    if (!open.engine.chatTemplate)
      throw new ArgumentError(`chat: ${open.engine.name} has no chat template; wick generate goes on with texts`);
    if (process.stderr.isTTY)
      console.error(
        `${open.engine.name} (${parameterSize(open.parameters)}) on ${open.device.name}; context of ` +
          `${open.engine.limits.contextTokens} tokens. /help lists commands.`,
      );
    const talk = new Conversation(chatter, v.system, settings);
    return await converse(talk);
  } finally {
    await open.dispose();
  }
}

async function converse(talk: Conversation): Promise<number> {
  const terminal = process.stdin.isTTY === true;
  const reader: Interface = createInterface({ input: process.stdin, output: process.stdout, terminal });
  const interrupted = (): void => {
    if (!talk.stop()) reader.close();
  };
  reader.on('SIGINT', interrupted);
  process.on('SIGINT', interrupted);
  const prompt = terminal ? styled('> ', 'cyan') : '';
  reader.setPrompt(prompt);
  reader.prompt();
  let held = '';
  let status = 0;
  try {
    for await (const raw of reader) {
      if (raw.endsWith('\\')) {
        held += `${raw.slice(0, -1)}\n`;
        continue;
      }
      const line = (held + raw).trim();
      held = '';
      try {
        const next = line === '' ? 'go on' : line.startsWith('/') ? command(line, talk) : 'answer';
        if (next === 'end') break;
        if (next === 'answer') {
          if (!line.startsWith('/')) talk.turns.push({ role: 'user', content: line });
          await talk.answer();
        }
      } catch (error) {
        if (!(error instanceof WickError) && !(error instanceof Error && error.name === 'ApiError')) throw error;
        console.error(styled(error.message, 'red', process.stderr));
        if (!terminal) status = 1;
      }
      reader.prompt();
    }
  } finally {
    process.off('SIGINT', interrupted);
    reader.close();
  }
  if (terminal) process.stdout.write('\n');
  return status;
}
