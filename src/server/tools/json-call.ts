// One call as JSON, {"name": ..., "arguments": {...}}, read character by character: arguments are passed on as they
// come, in the model's own spelling.
import type { CallEvent } from './call.js';

const NAME = ['name'];
const ARGUMENTS = ['arguments', 'parameters'];
/** Keys that a call may begin with; an object with another one first is somebody's answer. */
const KNOWN = [...NAME, ...ARGUMENTS, 'type', 'id', 'function'];

const parsed = (json: string): unknown => {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
};

/** An object's own text from its opening brace to the closing one, whatever is inside. */
export class JsonObjectScanner {
  depth = 0;
  inString = false;
  #escaped = false;
  /** Whether the character belongs to the structure: not to a string, nor its quotes. */
  take(c: string): boolean {
    if (this.inString) {
      if (this.#escaped) this.#escaped = false;
      else if (c === '\\') this.#escaped = true;
      else if (c === '"') this.inString = false;
      return false;
    }
    if (c === '"') this.inString = true;
    else if (c === '{' || c === '[') this.depth++;
    else if (c === '}' || c === ']') this.depth--;
    return c !== '"';
  }
}

/** The members of an object that was cut off, as far as they are whole, on every level; undefined where it is none. */
export function wholeMembers(json: string): unknown {
  const scan = new JsonObjectScanner();
  const open: string[] = [];
  let [whole, closing] = [0, ''];
  for (let i = 0; i < json.length; i++) {
    if (!scan.take(json[i])) continue;
    const at = '{[,}]'.indexOf(json[i]);
    if (at < 0) continue;
    if (at < 2) open.push('}]'[at]);
    else if (at > 2) open.pop();
    [whole, closing] = [at === 2 ? i : i + 1, open.toReversed().join('')];
  }
  return parsed(json.slice(0, whole) + closing);
}

export class JsonCall {
  readonly #scan = new JsonObjectScanner();
  #raw = '';
  #name: string | undefined;
  #key: string | undefined;
  #expects: 'key' | 'value' = 'key';
  #token = '';
  /** Arguments that came before the name. */
  #held = '';
  #streamed = false;
  #said = '';
  state: 'open' | 'done' | 'text' = 'open';

  /** Takes one character; the first one is the opening brace. */
  take(c: string, out: CallEvent[]): void {
    this.#raw += c;
    const before = this.#scan.depth;
    const structural = this.#scan.take(c);
    if (this.#scan.depth === 0 && before === 1) {
      this.#endValue(out);
      this.#finish(out);
    } else if (before === 0) return;
    else if (this.#expects === 'key') this.#readKey(c, structural, out);
    else if (before === 1 && structural && c === ',') this.#endValue(out);
    else this.#readValue(c, before === 1 && structural && /\s/.test(c), out);
  }
  #readKey(c: string, structural: boolean, out: CallEvent[]): void {
    if (structural && c === ':') {
      const key = parsed(this.#token.trim());
      this.#key = typeof key === 'string' ? key : undefined;
      [this.#expects, this.#token] = ['value', ''];
      if (this.#name === undefined && this.#held === '' && (this.#key === undefined || !KNOWN.includes(this.#key)))
        this.#reject(out);
    } else this.#token += c;
  }
  #readValue(c: string, padding: boolean, out: CallEvent[]): void {
    if (padding) return;
    this.#token += c;
    if (this.#key !== undefined && ARGUMENTS.includes(this.#key) && this.#token.startsWith('{')) {
      this.#streamed = true;
      this.#say(c, out);
    }
  }
  #endValue(out: CallEvent[]): void {
    const [key, token, streamed] = [this.#key, this.#token, this.#streamed];
    [this.#expects, this.#token, this.#key, this.#streamed] = ['key', '', undefined, false];
    if (key === undefined) return;
    if (NAME.includes(key) && this.#name === undefined) {
      const name = parsed(token);
      if (typeof name !== 'string' || name === '') return this.#reject(out);
      this.#name = name;
      out.push({ begin: name });
      if (this.#held !== '') this.#say('', out);
    } else if (ARGUMENTS.includes(key) && !streamed) {
      // Some models put their arguments into a string, or null for none.
      const value = parsed(token);
      this.#say(typeof value === 'string' ? value : value == null ? '{}' : token, out);
    }
  }
  #say(text: string, out: CallEvent[]): void {
    this.#held += text;
    if (this.#name === undefined || this.#held === '') return;
    out.push({ arguments: this.#held });
    this.#said += this.#held;
    this.#held = '';
  }
  #finish(out: CallEvent[]): void {
    if (this.state !== 'open') return;
    if (this.#name === undefined) return this.#reject(out);
    if (this.#said === '') out.push({ arguments: '{}' });
    out.push({ end: true });
    this.state = 'done';
  }
  #reject(out: CallEvent[]): void {
    this.state = 'text';
    out.push({ text: this.#raw });
  }
  /** The answer has ended within the object. */
  end(out: CallEvent[]): void {
    if (this.state !== 'open') return;
    if (this.#name === undefined) this.#reject(out);
    else out.push({ end: true });
  }
}
