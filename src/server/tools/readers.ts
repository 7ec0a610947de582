// Readers of the ways in which models write calls of tools.
import { type CallEvent, type CallReader, findMark, type ToolSchemas } from './call.js';
import { JsonCall, JsonObjectScanner } from './json-call.js';

type Step = { readonly events: CallEvent[]; readonly rest?: string };

/** JSON calls one after another, with marks between them: `{...}; {...}`, or in a list. */
export class JsonCallsReader implements CallReader {
  readonly #separators: string;
  /** A list ends at its bracket; without one, the block ends at the first thing that is not a call. */
  readonly #list: boolean;
  #call: JsonCall | undefined;
  #any = false;
  constructor(how: { readonly separators: string; readonly list: boolean }) {
    this.#separators = how.separators;
    this.#list = how.list;
  }
  push(text: string): Step {
    const events: CallEvent[] = [];
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (!this.#call) {
        if (c === '{') this.#call = new JsonCall();
        else if (this.#list && c === ']') return { events, rest: text.slice(i + 1) };
        else if (/\s/.test(c) || (this.#any && this.#separators.includes(c))) continue;
        else return { events, rest: text.slice(i) };
      }
      this.#call.take(c, events);
      if (this.#call.state === 'open') continue;
      const wasText = this.#call.state === 'text';
      this.#call = undefined;
      this.#any = true;
      if (wasText) return { events, rest: text.slice(i + 1) };
    }
    return { events };
  }
  end(): CallEvent[] {
    const events: CallEvent[] = [];
    this.#call?.end(events);
    return events;
  }
}

/** `<tool_call>` of Hermes and Qwen: JSON inside, or Qwen3-Coder's tags. */
export class TaggedReader implements CallReader {
  static readonly close = '</tool_call>';
  readonly #schemas: ToolSchemas;
  #inner: JsonCall | CoderCall | undefined;
  #buffer = '';
  constructor(schemas: ToolSchemas) {
    this.#schemas = schemas;
  }
  push(text: string): Step {
    const events: CallEvent[] = [];
    let left = text;
    if (!this.#inner) {
      left = (this.#buffer + left).trimStart();
      this.#buffer = '';
      if (left === '') return { events };
      this.#inner = left.startsWith('{') ? new JsonCall() : new CoderCall(this.#schemas);
    }
    if (this.#inner instanceof CoderCall) {
      const rest = this.#inner.push(left, events);
      return rest === undefined ? { events } : { events, rest };
    }
    let i = 0;
    for (; i < left.length && this.#inner.state === 'open'; i++) this.#inner.take(left[i], events);
    if (this.#inner.state === 'open') return { events };
    this.#buffer += left.slice(i);
    const end = this.#buffer.indexOf(TaggedReader.close);
    return end < 0 ? { events } : { events, rest: this.#buffer.slice(end + TaggedReader.close.length) };
  }
  end(): CallEvent[] {
    const events: CallEvent[] = [];
    this.#inner?.end(events);
    return events;
  }
}

/**
 * `<function=name><parameter=key>value</parameter></function></tool_call>`: a value is text until its schema says more.
 */
class CoderCall {
  readonly #schemas: ToolSchemas;
  #buffer = '';
  #name: string | undefined;
  #count = 0;
  #closed = false;
  constructor(schemas: ToolSchemas) {
    this.#schemas = schemas;
  }
  /** The text behind the block, once it has ended. */
  push(text: string, out: CallEvent[]): string | undefined {
    this.#buffer += text;
    for (;;) {
      if (this.#name === undefined) {
        const begin = /^\s*<function=([^>]+)>/.exec(this.#buffer);
        if (!begin) break;
        this.#name = begin[1].trim();
        this.#buffer = this.#buffer.slice(begin[0].length);
        out.push({ begin: this.#name });
        continue;
      }
      const parameter = /^\s*<parameter=([^>]+)>\n?([^]*?)\n?<\/parameter>/.exec(this.#buffer);
      if (!this.#closed && parameter) {
        const [whole, key, value] = parameter;
        const lead = this.#count++ === 0 ? '{' : ', ';
        out.push({ arguments: `${lead}${JSON.stringify(key.trim())}: ${this.#json(key.trim(), value)}` });
        this.#buffer = this.#buffer.slice(whole.length);
        continue;
      }
      const end = /^\s*<\/function>/.exec(this.#buffer);
      if (!this.#closed && end) {
        this.#buffer = this.#buffer.slice(end[0].length);
        this.#close(out);
        continue;
      }
      break;
    }
    const { at, mark } = findMark(this.#buffer, [TaggedReader.close]);
    // A value may quote the mark; it counts only where no parameter is open.
    if (mark === undefined || (!this.#closed && /^\s*<parameter=/.test(this.#buffer))) return undefined;
    if (this.#name === undefined) out.push({ text: this.#buffer.slice(0, at) });
    else this.#close(out);
    return this.#buffer.slice(at + mark.length);
  }
  #json(key: string, value: string): string {
    const properties = this.#schemas.get(this.#name ?? '')?.properties as
      | Record<string, { type?: unknown }>
      | undefined;
    const type = properties && Object.hasOwn(properties, key) ? properties[key]?.type : undefined;
    if (type === 'string') return JSON.stringify(value);
    try {
      return JSON.stringify(JSON.parse(value));
    } catch {
      return JSON.stringify(value);
    }
  }
  #close(out: CallEvent[]): void {
    if (this.#closed) return;
    this.#closed = true;
    out.push({ arguments: this.#count === 0 ? '{}' : '}' }, { end: true });
  }
  end(out: CallEvent[]): void {
    if (this.#name === undefined) out.push({ text: this.#buffer });
    else if (!this.#closed) out.push({ end: true });
  }
}

/** Mistral's `[TOOL_CALLS]`: a list of JSON calls, or a name, `[ARGS]` and an object. */
export class MistralReader implements CallReader {
  #list: JsonCallsReader | undefined;
  #head = '';
  #object: JsonObjectScanner | undefined;
  push(text: string): Step {
    if (this.#list) return this.#list.push(text);
    const events: CallEvent[] = [];
    let left = text;
    if (!this.#object) {
      this.#head = (this.#head + left).trimStart();
      if (this.#head.startsWith('[{') || /^\[\s*(\]|\{)/.test(this.#head)) {
        this.#list = new JsonCallsReader({ separators: ',', list: true });
        return this.#list.push(this.#head.slice(1));
      }
      const brace = this.#head.indexOf('{');
      if (brace < 0) return { events };
      const name = this.#head
        .slice(0, brace)
        .replace(/\[(ARGS|CALL_ID)\][^]*$/, '')
        .trim();
      if (name === '') return { events: [{ text: this.#head.slice(0, brace) }], rest: this.#head.slice(brace) };
      events.push({ begin: name });
      left = this.#head.slice(brace);
      this.#object = new JsonObjectScanner();
    }
    let i = 0;
    do this.#object.take(left[i++]);
    while (i < left.length && this.#object.depth > 0);
    events.push({ arguments: left.slice(0, i) });
    if (this.#object.depth > 0) return { events };
    events.push({ end: true });
    return { events, rest: left.slice(i) };
  }
  end(): CallEvent[] {
    if (this.#list) return this.#list.end();
    return this.#object ? [{ end: true }] : [{ text: this.#head }];
  }
}

/** An answer that a grammar has bound to one function's arguments. */
export class ArgumentsReader implements CallReader {
  readonly #name: string;
  #begun = false;
  constructor(name: string) {
    this.#name = name;
  }
  push(text: string): Step {
    if (text === '') return { events: [] };
    const events: CallEvent[] = this.#begun ? [] : [{ begin: this.#name }];
    this.#begun = true;
    return { events: [...events, { arguments: text }] };
  }
  end(): CallEvent[] {
    return this.#begun ? [{ end: true }] : [];
  }
}
