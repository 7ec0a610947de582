// `wick chat`: a conversation with a language model in the terminal.
import { createInterface, type Interface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { ArgumentError, WickError } from '../base/errors.js';
import { Served } from '../server/served.js';
import { command } from './chat-commands.js';
import { checkedSetting, Conversation, type Setting, SETTINGS } from './conversation.js';
import { ENGINE_HELP, ENGINE_OPTIONS, openEngine } from './open-engine.js';
import { parameterSize } from './open-model.js';
import { numberOf } from './options.js';
import { styled } from './terminal.js';

const HELP = `wick chat [options]

${ENGINE_HELP}
  --system TEXT          how the model should answer
  --temperature T  --top-k K  --top-p P  --min-p P  --repetition-penalty R  --seed S
  --max-tokens N         of an answer (default: what the context has room for)

In the conversation, /help lists the commands. Ctrl-C stops the answer; without one, it ends the program.`;

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
