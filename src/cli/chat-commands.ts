// What may be said to `wick chat` itself: a /command a line.
import { writeFileSync } from 'node:fs';
import { ArgumentError, FileError } from '../base/errors.js';
import { checkedSetting, type Conversation, type Setting, SETTINGS } from './conversation.js';
import { wrap } from './table.js';
import { styled } from './terminal.js';

/** Whether to go on, and whether an answer is wanted. */
export type Next = 'go on' | 'answer' | 'end';
interface Command {
  /** What stands after its name. */
  readonly takes?: string;
  /** None where another name of the same says it. */
  readonly meaning?: string;
  /** Answers what is next, where that is not to go on; `rest` is all that stands after the name. */
  run(talk: Conversation, rest: string): Next | void;
}

const end: Command['run'] = () => 'end';
const COMMANDS: Readonly<Record<string, Command>> = {
  '/help': {
    meaning: 'these lines',
    run: () => {
      helpLines((process.stdout.isTTY && process.stdout.columns) || 120).forEach((line) => console.log(line));
      console.log('A line that ends with \\ goes on in the next one.');
    },
  },
  '/new': {
    meaning: 'begin a new conversation',
    run: (talk) => {
      talk.turns = [];
      console.log('a new conversation');
    },
  },
  '/system': {
    takes: 'TEXT',
    meaning: 'how the model should answer; without a text, nothing is said about it',
    run: (talk, rest) => {
      talk.system = rest || undefined;
      console.log(rest ? 'the system prompt is set' : 'no system prompt');
    },
  },
  '/retry': {
    meaning: 'another answer to the last message',
    run: (talk) => {
      if (talk.turns.at(-1)?.role === 'assistant') talk.turns.pop();
      talk.retries++;
      if (talk.turns.length > 0) return 'answer';
      console.log('there is nothing to answer yet');
    },
  },
  '/undo': {
    meaning: 'take back the last message and its answer',
    run: (talk) => {
      talk.turns.splice(-2);
      console.log(`${talk.turns.length} messages are left`);
    },
  },
  '/set': {
    takes: 'NAME VALUE',
    meaning: 'temperature, top_p, top_k, min_p, repetition_penalty, seed, max_tokens; without a value, the default',
    run: set,
  },
  '/history': {
    meaning: 'the conversation so far',
    run: (talk) => {
      for (const turn of talk.messages()) console.log(`${styled(`${turn.role}:`, 'bold')} ${String(turn.content)}`);
    },
  },
  '/save': { takes: 'FILE', meaning: 'the conversation as JSON, as the API takes it', run: save },
  '/exit': { meaning: 'end (so does Ctrl-D)', run: end },
  '/quit': { run: end },
};

function set(talk: Conversation, rest: string): void {
  const [name, value] = rest.split(/\s+/);
  if (name === '') {
    for (const s of SETTINGS) console.log(`  ${s} ${talk.settings[s] ?? '(default)'}`);
    return;
  }
  if (!(SETTINGS as readonly string[]).includes(name))
    throw new ArgumentError(`chat: there is no setting ${name}; there are ${SETTINGS.join(', ')}`);
  const given = value === undefined ? undefined : Number(value);
  if (given !== undefined && !Number.isFinite(given))
    throw new ArgumentError(`chat: ${name} ${JSON.stringify(value)} is not a number`);
  if (given === undefined) delete talk.settings[name as Setting];
  else talk.settings[name as Setting] = checkedSetting(name as Setting, given);
  console.log(`${name} ${given ?? '(default)'}`);
}
function save(talk: Conversation, file: string): void {
  if (file === '') throw new ArgumentError('chat: /save FILE');
  try {
    writeFileSync(file, `${JSON.stringify(talk.messages(), null, 2)}\n`);
  } catch (error) {
    throw new FileError(`chat: ${file} cannot be written: ${(error as NodeJS.ErrnoException).code}`);
  }
  console.log(`saved to ${file}`);
}

/** The commands and what they do, side by side; in a narrow terminal one below the other. */
export function helpLines(columns: number): string[] {
  const shown = Object.entries(COMMANDS).flatMap(([name, { takes, meaning }]) =>
    meaning === undefined ? [] : [{ usage: takes ? `${name} ${takes}` : name, meaning }],
  );
  const width = Math.max(...shown.map(({ usage }) => usage.length)) + 2;
  return shown.flatMap(({ usage, meaning }) => {
    if (columns < 60)
      return [`  ${usage}`, ...`    ${wrap(meaning, '', columns - 4).replaceAll('\n', '\n    ')}`.split('\n')];
    const [first, ...more] = wrap(meaning, '', columns - width - 2).split('\n');
    return [`  ${usage.padEnd(width)}${first}`, ...more.map((line) => `  ${' '.repeat(width)}${line}`)];
  });
}

/** Runs a /command. */
export function command(line: string, talk: Conversation): Next {
  const [name] = line.split(/\s+/, 1);
  if (!Object.hasOwn(COMMANDS, name)) throw new ArgumentError(`chat: there is no command ${name}; /help lists them`);
  return COMMANDS[name].run(talk, line.slice(name.length).trim()) ?? 'go on';
}
