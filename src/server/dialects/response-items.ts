// The output of a response of /v1/responses: messages, reasoning and calls, each told of as it begins, grows and ends.
import { randomBytes } from 'node:crypto';
import type { AnswerPart } from '../answer-parser.js';
import type { KeptItem } from '../item-memory.js';

type Tell = (type: string, fields: object) => void;

/** What differs from kind to kind: how an item opens, grows and closes. */
interface Kind {
  readonly prefix: string;
  /** The item with what is known so far. */
  readonly item: (text: string) => object;
  readonly delta: string;
  readonly done: string;
  /** The name of the whole text in the last event. */
  readonly field: string;
  /** What its events have beside the text, and what the last one has. */
  readonly told?: object;
  readonly toldLast?: object;
  /** A part inside of the item, told of on its own. */
  readonly part?: (text: string) => object;
}
const outputText = (text: string): object => ({ type: 'output_text', text, annotations: [], logprobs: [] });
const reasoningText = (text: string): object => ({ type: 'reasoning_text', text });
const MESSAGE: Kind = {
  prefix: 'msg',
  item: (text) => ({ type: 'message', role: 'assistant', content: text === '' ? [] : [outputText(text)] }),
  delta: 'response.output_text.delta',
  done: 'response.output_text.done',
  field: 'text',
  told: { logprobs: [] },
  part: outputText,
};
const REASONING: Kind = {
  prefix: 'rs',
  item: (text) => ({ type: 'reasoning', summary: [], content: text === '' ? [] : [reasoningText(text)] }),
  delta: 'response.reasoning_text.delta',
  done: 'response.reasoning_text.done',
  field: 'text',
  part: reasoningText,
};
const call = (id: string, name: string): Kind => ({
  prefix: 'fc',
  item: (text) => ({ type: 'function_call', call_id: id, name, arguments: text }),
  delta: 'response.function_call_arguments.delta',
  done: 'response.function_call_arguments.done',
  field: 'arguments',
  toldLast: { name },
});

export class OutputItems {
  readonly output: KeptItem[] = [];
  readonly #tell: Tell;
  #kind: Kind | undefined;
  #id = '';
  #text = '';
  /** All that was said, for those who read nothing else. */
  text = '';
  /** All that was thought, whose tokens are counted. */
  reasoning = '';
  constructor(tell: Tell) {
    this.#tell = tell;
  }
  add(part: AnswerPart): void {
    if ('call' in part) {
      this.#open(call(part.call.id, part.call.name));
      return;
    }
    const [kind, text] =
      'text' in part
        ? [MESSAGE, part.text]
        : 'reasoning' in part
          ? [REASONING, part.reasoning]
          : [this.#kind, part.arguments.text];
    if (kind !== this.#kind && kind) this.#open(kind);
    if (kind === MESSAGE) this.text += text;
    else if (kind === REASONING) this.reasoning += text;
    this.#text += text;
    this.#tell(this.#kind?.delta ?? '', { ...this.#place(), delta: text, ...this.#kind?.told });
  }
  #open(kind: Kind): void {
    this.close();
    [this.#kind, this.#id, this.#text] = [kind, `${kind.prefix}_${randomBytes(12).toString('hex')}`, ''];
    this.#tell('response.output_item.added', {
      output_index: this.output.length,
      item: { id: this.#id, status: 'in_progress', ...kind.item('') },
    });
    if (kind.part) this.#tell('response.content_part.added', { ...this.#place(), part: kind.part('') });
  }
  #place(): object {
    const place = { item_id: this.#id, output_index: this.output.length };
    return this.#kind?.part ? { ...place, content_index: 0 } : place;
  }
  /** Ends the item that is open; `cut`: the limit ended it. */
  close(cut = false): void {
    const kind = this.#kind;
    if (!kind) return;
    this.#tell(kind.done, { ...this.#place(), [kind.field]: this.#text, ...kind.told, ...kind.toldLast });
    if (kind.part) this.#tell('response.content_part.done', { ...this.#place(), part: kind.part(this.#text) });
    const item: KeptItem = { id: this.#id, status: cut ? 'incomplete' : 'completed', ...kind.item(this.#text) };
    this.#tell('response.output_item.done', { output_index: this.output.length, item });
    this.output.push(item);
    this.#kind = undefined;
  }
}
