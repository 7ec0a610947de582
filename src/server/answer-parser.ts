// Splits what a model writes into reasoning, text and calls of tools, as it comes: marks may be cut anywhere.
import { type CallEvent, type CallReader, findMark, type ToolSchemas } from './tools/call.js';
import type { ReasoningMarks, ToolFormat } from './tools/formats.js';

export type AnswerPart =
  | { readonly text: string }
  | { readonly reasoning: string }
  | { readonly call: { readonly index: number; readonly id: string; readonly name: string } }
  | { readonly arguments: { readonly index: number; readonly text: string } };

export interface ParserOptions {
  /** Marks of reasoning; `begun`: the prompt ends inside of it. */
  readonly reasoning?: ReasoningMarks & { readonly begun: boolean };
  readonly tools?: {
    readonly format: ToolFormat;
    readonly schemas: ToolSchemas;
    readonly parallel: boolean;
    /** The answer is calls or text, never both: what begins as text has no marks. */
    readonly either?: boolean;
  };
  /** The whole answer is calls, by a grammar. */
  readonly forced?: { readonly reader: CallReader; readonly callId: () => string };
}

type State = 'start' | 'reasoning' | 'text' | 'calls';

export class AnswerParser {
  readonly #options: ParserOptions;
  #state: State = 'start';
  #buffer = '';
  #reader: CallReader | undefined;
  /** Calls so far, those that were left out included. */
  #seen = 0;
  #skipping = false;
  /** Blank space that belongs to the marks around it unless text follows. */
  #trim = false;
  #markless = false;
  /** Calls that the client is told of. */
  calls = 0;

  constructor(options: ParserOptions) {
    this.#options = options;
    if (options.forced) [this.#state, this.#reader] = ['calls', options.forced.reader];
    this.#trim = options.reasoning?.begun ?? false;
  }

  push(text: string): AnswerPart[] {
    const out: AnswerPart[] = [];
    this.#buffer += text;
    while (this.#step(out));
    return out;
  }
  /** What waits when the answer has ended. */
  end(): AnswerPart[] {
    const out: AnswerPart[] = [];
    const rest = this.#buffer;
    this.#buffer = '';
    const thinking = this.#state === 'reasoning' || (this.#state === 'start' && this.#options.reasoning?.begun);
    if (thinking) this.#say('reasoning', rest, out);
    else if (this.#state === 'calls' && this.#reader) this.#take(this.#reader.end(), out);
    else this.#say('text', rest, out);
    return out;
  }

  /** One step in the state it is in; whether there may be another. */
  #step(out: AnswerPart[]): boolean {
    if (this.#state === 'calls') return this.#readCalls(out);
    if (this.#state === 'start') return this.#begin();
    const { reasoning, tools } = this.#options;
    const inside = this.#state === 'reasoning';
    const marks = inside ? [reasoning?.close ?? ''] : this.#markless ? [] : (tools?.format.marks ?? []);
    const { at, mark, hold } = findMark(this.#buffer, marks);
    const shown = mark === undefined ? this.#buffer.slice(0, this.#buffer.length - hold) : this.#buffer.slice(0, at);
    this.#say(inside ? 'reasoning' : 'text', shown, out);
    this.#buffer = this.#buffer.slice(mark === undefined ? shown.length : at + mark.length);
    if (mark === undefined) return false;
    this.#trim = true;
    if (inside) this.#state = 'text';
    else this.#open();
    return true;
  }
  /** An answer may open with reasoning, or with the brace of a call. */
  #begin(): boolean {
    const { reasoning, tools } = this.#options;
    const body = this.#buffer.trimStart();
    if (body === '' && (reasoning || tools?.format.bare)) return false;
    if (reasoning?.open.startsWith(body) && body.length < reasoning.open.length) return false;
    // Some models open what their prompt has opened for them.
    const opens = reasoning !== undefined && body.startsWith(reasoning.open);
    if (opens || reasoning?.begun) {
      if (opens) this.#buffer = body.slice(reasoning.open.length);
      [this.#state, this.#trim] = ['reasoning', true];
    } else if (tools?.format.bare && body.startsWith('{')) this.#open();
    else if (tools?.either && tools.format.marks.some((m) => m.length > body.length && m.startsWith(body)))
      return false;
    else {
      this.#state = 'text';
      this.#markless = tools?.either === true && !tools.format.marks.some((m) => body.startsWith(m));
    }
    return true;
  }
  #open(): void {
    const { tools } = this.#options;
    if (!tools) return;
    this.#state = 'calls';
    this.#reader = tools.format.reader(tools.schemas);
  }
  #readCalls(out: AnswerPart[]): boolean {
    if (this.#buffer === '' || !this.#reader) return false;
    const { events, rest } = this.#reader.push(this.#buffer);
    this.#buffer = rest ?? '';
    this.#take(events, out);
    if (rest === undefined) return false;
    this.#state = 'text';
    return true;
  }
  #take(events: readonly CallEvent[], out: AnswerPart[]): void {
    const { tools, forced } = this.#options;
    for (const event of events) {
      if ('text' in event) {
        // Calls that must come leave no room for text: what is left is one that was cut off before its name.
        if (forced) continue;
        this.#trim = false;
        this.#markless = tools?.either === true;
        this.#say('text', event.text, out);
      } else if ('begin' in event) {
        this.#skipping = this.#seen++ > 0 && tools !== undefined && !tools.parallel;
        if (this.#skipping) continue;
        const id = (forced?.callId ?? tools?.format.callId)?.() ?? '';
        out.push({ call: { index: this.calls++, id, name: event.begin } });
        this.#trim = true;
      } else if ('arguments' in event && !this.#skipping) this.#argue(event.arguments, out);
    }
  }
  /** Readers tell letter by letter; clients are told once a step. */
  #argue(text: string, out: AnswerPart[]): void {
    const index = this.calls - 1;
    const last = out.at(-1);
    const before =
      last && 'arguments' in last && last.arguments.index === index ? out.pop() && last.arguments.text : '';
    out.push({ arguments: { index, text: before + text } });
  }
  #say(kind: 'text' | 'reasoning', text: string, out: AnswerPart[]): void {
    const shown = this.#trim ? text.trimStart() : text;
    if (shown === '') return;
    this.#trim = false;
    out.push(kind === 'text' ? { text: shown } : { reasoning: shown });
  }
}
