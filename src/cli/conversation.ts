// A conversation in the terminal: its messages and settings, and the answer under way.
import { ArgumentError } from '../base/errors.js';
import { ContextError, type Usage } from '../engine/request.js';
import { type PreparedChat, prepareChat } from '../server/chat-prompt.js';
import { ApiError } from '../server/errors.js';
import { faultOf } from '../server/faults.js';
import { type ChatRequest, chatRequest, type ChatTurn } from '../server/schemas/chat.js';
import type { Chatter } from '../server/served.js';
import { styled } from './terminal.js';

export const SETTINGS = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'seed', 'max_tokens'] as const;
export type Setting = (typeof SETTINGS)[number];

/** A setting's value by the rules that the server has for it, before anything is loaded or lost for it. */
export function checkedSetting(name: Setting, value: number): number {
  const { error } = chatRequest.shape[name].safeParse(value, { error: faultOf });
  if (error) throw new ArgumentError(`chat: ${name} ${value}: ${error.issues[0].message}`);
  return value;
}

/** A conversation: its messages and settings, and the answer under way. */
export class Conversation {
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
