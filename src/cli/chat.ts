// `wick chat`: a conversation with a language model in the terminal.
import { createInterface, type Interface } from 'node:readline/promises';
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ArgumentError, FileError, WickError } from '../base/errors.js';
import { ContextError, type Usage } from '../engine/request.js';
import { type PreparedChat, prepareChat } from '../server/chat-prompt.js';
import { ApiError } from '../server/errors.js';
import { faultOf } from '../server/faults.js';
import { type ChatRequest, chatRequest, type ChatTurn } from '../server/schemas/chat.js';
import { type Chatter, Served } from '../server/served.js';
import { ENGINE_HELP, ENGINE_OPTIONS, openEngine } from './open-engine.js';
import { parameterSize } from './open-model.js';
import { numberOf } from './options.js';
import { wrap } from './table.js';
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
  /** Answers to the last message that were not good enough: with a seed, each next one has its own. */
  retries = 0;
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
  messages(turns = this.turns): ChatTurn[] {
    return [...(this.system ? [{ role: 'system' as const, content: this.system }] : []), ...turns];
  }
  /** Answers a message, or takes it back where there can be no answer. */
  async ask(content: string): Promise<void> {
    this.retries = 0;
    const turn: ChatTurn = { role: 'user', content };
    this.turns.push(turn);
    try {
      await this.answer();
    } catch (error) {
      if (this.turns.at(-1) === turn) this.turns.pop();
      throw error;
    }
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
      const { request, parser } = await this.#prepared();
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
          styled(figures(await generation.usage, first && first - begin, signal.aborted), 'dim', process.stderr),
        );
      this.turns.push({ role: 'assistant', content: text });
    } finally {
      this.#abort = undefined;
    }
  }
  async #prepared(): Promise<PreparedChat> {
    const { contextTokens } = this.#chatter.engine.limits;
    const { seed } = this.settings;
    const settings = { ...this.settings, ...(seed !== undefined && { seed: seed + this.retries }) };
    for (let left = 0; ; left += 2) {
      const turns = this.turns.slice(left);
      let prepared: PreparedChat;
      try {
        prepared = await prepareChat(
          { messages: this.messages(turns), ...settings } as ChatRequest,
          this.#chatter,
          this.#abort?.signal,
        );
      } catch (error) {
        // So much too long that its tokens were not counted.
        if (turns.length > 2 && error instanceof ApiError && error.code === 'context_length_exceeded') continue;
        throw error;
      }
      const { length } = prepared.request.prompt;
      if (length >= contextTokens && turns.length < 3) throw new ContextError(length, contextTokens);
      if (length >= contextTokens) continue;
      this.turns = turns;
      if (left > 0)
        console.error(styled(`(the ${left} oldest messages no longer fit and were left out)`, 'dim', process.stderr));
      return prepared;
    }
  }
}
/** What an answer took: `first` milliseconds to its first token, or 0 where it was stopped before. */
function figures(u: Usage, first: number, stopped: boolean): string {
  const rate = u.tokens > 1 && u.decodeSeconds > 0 && `${((u.tokens - 1) / u.decodeSeconds).toFixed(1)} a second`;
  const parts = [`${u.tokens} tokens`, rate, first > 0 && `first after ${first.toFixed(0)} ms`, stopped && 'stopped'];
  return parts.filter(Boolean).join(', ');
}

/** The commands and what they do, side by side; in a narrow terminal one below the other. */
export function helpLines(columns: number): string[] {
  const width = Math.max(...Object.keys(COMMANDS).map((c) => c.length)) + 2;
  return Object.entries(COMMANDS).flatMap(([name, meaning]) => {
    if (columns < 60)
      return [`  ${name}`, ...`    ${wrap(meaning, '', columns - 4).replaceAll('\n', '\n    ')}`.split('\n')];
    const [first, ...more] = wrap(meaning, '', columns - width - 2).split('\n');
    return [`  ${name.padEnd(width)}${first}`, ...more.map((line) => `  ${' '.repeat(width)}${line}`)];
  });
}

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
      talk.retries++;
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
    case '/help':
      helpLines((process.stdout.isTTY && process.stdout.columns) || 120).forEach((line) => console.log(line));
      console.log('A line that ends with \\ goes on in the next one.');
      return 'go on';
    default:
      throw new ArgumentError(`chat: there is no command ${name}; /help lists them`);
  }
}
/** A setting's value by the rules that the server has for it, before anything is loaded or lost for it. */
function checkedSetting(name: Setting, value: number): number {
  const { error } = chatRequest.shape[name].safeParse(value, { error: faultOf });
  if (error) throw new ArgumentError(`chat: ${name} ${value}: ${error.issues[0].message}`);
  return value;
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
  else talk.settings[name as Setting] = checkedSetting(name as Setting, given);
  console.log(`${name} ${given ?? '(default)'}`);
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
    if (given !== undefined) settings[s] = checkedSetting(s, given);
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
  let closed = false;
  reader.on('close', () => (closed = true));
  /** Asks for a line, or for the rest of one; who reads a pipe has read all of it by now. */
  const prompt = (sign: string): void => {
    if (closed) return;
    reader.setPrompt(terminal ? styled(sign, 'cyan') : '');
    reader.prompt();
  };
  prompt('> ');
  let held = '';
  let status = 0;
  try {
    for await (const raw of reader) {
      if (raw.endsWith('\\')) {
        held += `${raw.slice(0, -1)}\n`;
        prompt('. ');
        continue;
      }
      const line = (held + raw).trim();
      held = '';
      try {
        const next = line === '' ? 'go on' : line.startsWith('/') ? command(line, talk) : 'answer';
        if (next === 'end') break;
        if (next === 'answer') await (line.startsWith('/') ? talk.answer() : talk.ask(line));
      } catch (error) {
        if (!(error instanceof WickError) && !(error instanceof Error && error.name === 'ApiError')) throw error;
        console.error(styled(error.message, 'red', process.stderr));
        if (!terminal) status = 1;
      }
      prompt('> ');
    }
  } finally {
    process.off('SIGINT', interrupted);
    reader.close();
  }
  if (terminal) process.stdout.write('\n');
  return status;
}
