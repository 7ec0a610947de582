// Chat templates: messages to the text that a model was trained on, by the Jinja program that comes with it.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { ArgumentError, FormatError } from '../base/errors.js';
import { namesIn, readWhole } from '../base/read-file.js';
import type { Gguf } from '../io/gguf.js';
import { readJsonFile } from '../io/json-file.js';
import { equal, shown, type Value } from './jinja-values.js';

/** One message of a chat. */
export interface ChatMessage {
  /** Who speaks: 'system', 'user', 'assistant', 'tool'. */
  readonly role: string;
  /** What is said: a text, or a list of parts. */
  readonly content?: unknown;
  /** Tool calls, names and whatever else a template reads. */
  readonly [key: string]: unknown;
}
/** How a chat is written out. */
export interface ChatOptions {
  /** End with what begins the model's answer; default true. */
  readonly addGenerationPrompt?: boolean;
  /** Leave the last message open, for the model to go on with it. */
  readonly continueFinalMessage?: boolean;
  /** Functions the model may call, as JSON schemas. */
  readonly tools?: readonly unknown[];
  /** Texts to answer from, for templates that take them. */
  readonly documents?: readonly unknown[];
  /** For models that think before they answer, where their template asks. */
  readonly enableThinking?: boolean;
  /** One of several templates by its name, or a template of one's own. */
  readonly template?: string;
  /** Further names that the template may use. */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** The time that templates see; default now. */
  readonly now?: Date;
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = 'January February March April May June July August September October November December'.split(' ');
const two = (n: number): string => String(n).padStart(2, '0');
const DIRECTIVES: Readonly<Record<string, (d: Date) => string>> = {
  a: (d) => DAYS[d.getDay()].slice(0, 3),
  A: (d) => DAYS[d.getDay()],
  b: (d) => MONTHS[d.getMonth()].slice(0, 3),
  B: (d) => MONTHS[d.getMonth()],
  d: (d) => two(d.getDate()),
  e: (d) => String(d.getDate()).padStart(2, ' '),
  H: (d) => two(d.getHours()),
  I: (d) => two(d.getHours() % 12 || 12),
  j: (d) =>
    String(
      Math.round((Date.UTC(d.getFullYear(), d.getMonth(), d.getDate()) - Date.UTC(d.getFullYear(), 0, 0)) / 864e5),
    ).padStart(3, '0'),
  m: (d) => two(d.getMonth() + 1),
  M: (d) => two(d.getMinutes()),
  p: (d) => (d.getHours() < 12 ? 'AM' : 'PM'),
  S: (d) => two(d.getSeconds()),
  y: (d) => two(d.getFullYear() % 100),
  Y: (d) => String(d.getFullYear()),
  F: (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`,
  T: (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`,
  w: (d) => String(d.getDay()),
  '%': () => '%',
};
/** Dates as Python's strftime writes them; `-` takes a leading zero off. */
function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)(.)/g, (_whole, dash: string, c: string) => {
    if (!Object.hasOwn(DIRECTIVES, c)) throw new ArgumentError(`chat template: strftime_now does not know %${c}`);
    const text = DIRECTIVES[c](date);
    return dash ? text.replace(/^[0 ](?=.)/, '') : text;
  });
}

/** How far a template may go: some hundred times what long chats with many tools take. */
const [MOST_STEPS, MOST_CHARACTERS, MOST_ELEMENTS] = [2 ** 21, 2 ** 24, 2 ** 20];
const BOUNDED = '; it runs within bounds, since it came with the model';
/** What every template may use; the library's own set would not let the time be given. */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  range: (start: number, stop?: number, step = 1): number[] => {
    const [from, to] = stop === undefined ? [0, start] : [start, stop];
    const length = Math.max(0, Math.ceil((to - from) / step));
    if (!(length <= MOST_ELEMENTS)) throw new FormatError(`chat template: range makes ${length} numbers${BOUNDED}`);
    return Array.from({ length }, (_, i) => from + i * step);
  },
};

/** The library's interpreter as it is used here; its own types do not resolve from ES modules. */
interface Evaluates {
  evaluate(statement: Statement | undefined, environment: unknown): Value;
  evaluateBlock(statements: readonly Statement[], environment: unknown): Value;
  evaluateBinaryExpression(node: Statement, environment: unknown): Value;
  run(program: unknown): Value;
}
interface Statement {
  readonly type: string;
  /** What a loop runs over. */
  readonly iterable?: Statement;
  /** Of operations. */
  readonly operator?: { readonly value: string };
  readonly left?: Statement;
  readonly right?: Statement;
  /** Of what a filter changes, and which filter. */
  readonly operand?: Statement;
  readonly filter?: { readonly value?: unknown };
  /** Of literals and names. */
  readonly value?: unknown;
}
/** What prints nothing of its own, or what it printed already. */
const STATEMENTS = /^(Program|Set|If|For|Macro|CallStatement|FilterStatement|Break|Continue|Comment)$/;
const literal = (value: string): Statement => ({ type: 'StringLiteral', value });
const Plain = Interpreter as unknown as new (environment: Environment) => Evaluates;
/**
 * Runs a template within bounds: what came with a model must not keep the process busy or fill its memory. Values are
 * written and compared as Python does it.
 */
class BoundedInterpreter extends Plain {
  #steps = 0;
  readonly #loopedOver = new WeakSet<Statement>();
  override evaluate(statement: Statement | undefined, environment: unknown): Value {
    if (statement?.iterable) this.#loopedOver.add(statement.iterable);
    const written = statement?.type === 'FilterExpression' && statement.filter?.value === 'string';
    const result = written
      ? super.evaluate(literal(shown(this.evaluate(statement.operand, environment))), environment)
      : super.evaluate(statement, environment);
    const { value } = result;
    const characters = typeof value === 'string' ? value.length : 0;
    const elements = Array.isArray(value) ? value.length : 0;
    if (characters > MOST_CHARACTERS || elements > MOST_ELEMENTS)
      throw new FormatError(`chat template: it makes a value of ${characters + elements} parts${BOUNDED}`);
    // A turn of a loop makes an environment and what `loop` tells: some sixteen times the work of a value.
    const turns = statement && this.#loopedOver.has(statement) ? elements : 0;
    this.#steps += 1 + 16 * turns + characters / 1024;
    if (this.#steps > MOST_STEPS) throw new FormatError(`chat template: it takes over ${MOST_STEPS} steps${BOUNDED}`);
    return result;
  }
  override evaluateBlock(statements: readonly Statement[], environment: unknown): Value {
    let out = '';
    for (const statement of statements) {
      const value = this.evaluate(statement, environment);
      if (!STATEMENTS.test(statement.type) || value.type === 'StringValue') out += shown(value);
    }
    return super.evaluate(literal(out), environment);
  }
  override evaluateBinaryExpression(node: Statement, environment: unknown): Value {
    const operator = node.operator?.value;
    if (operator !== '==' && operator !== '!=' && operator !== '~')
      return super.evaluateBinaryExpression(node, environment);
    const [left, right] = [node.left, node.right].map((x) => this.evaluate(x, environment));
    if (operator === '~') return super.evaluate(literal(shown(left) + shown(right)), environment);
    const is = equal(left, right) === (operator === '==');
    return super.evaluate({ type: 'Identifier', value: is ? 'true' : 'false' }, environment);
  }
}

/** A model's chat templates: they write a list of messages out as the prompt it was trained on. */
export class ChatTemplates {
  readonly #sources: ReadonlyMap<string, string>;
  readonly #compiled = new Map<string, Template>();
  readonly #roles: Readonly<Record<string, string>>;
  constructor(sources: ReadonlyMap<string, string>, roles: Readonly<Record<string, string>> = {}) {
    this.#sources = sources;
    this.#roles = roles;
  }
  /** Those of a folder: tokenizer_config.json, chat_template.jinja or .json, the files of chat_templates/. */
  static fromFolder(
    dir: string,
    config: Readonly<Record<string, unknown>>,
    roles: Readonly<Record<string, string>>,
  ): ChatTemplates | undefined {
    const sources = new Map<string, string>();
    const stated = config.chat_template;
    if (typeof stated === 'string') sources.set('default', stated);
    else if (Array.isArray(stated))
      for (const one of stated as unknown[]) {
        const { name, template } = (one ?? {}) as { readonly name?: unknown; readonly template?: unknown };
        if (typeof name !== 'string' || typeof template !== 'string')
          throw new FormatError(`${dir}: chat_template holds ${JSON.stringify(one)}, not a name and a template`);
        sources.set(name, template);
      }
    const json = join(dir, 'chat_template.json');
    if (existsSync(json)) {
      const inside = readJsonFile(json).chat_template;
      if (typeof inside === 'string') sources.set('default', inside);
    }
    const jinja = join(dir, 'chat_template.jinja');
    if (existsSync(jinja)) sources.set('default', readWhole(jinja).toString('utf8'));
    for (const folder of ['chat_templates', 'additional_chat_templates']) {
      const at = join(dir, folder);
      if (!existsSync(at)) continue;
      for (const file of namesIn(at).filter((f) => f.endsWith('.jinja')))
        sources.set(file.slice(0, -'.jinja'.length), readWhole(join(at, file)).toString('utf8'));
    }
    return sources.size > 0 ? new ChatTemplates(sources, roles) : undefined;
  }
  /** Those of a GGUF file; undefined where it has none. */
  static fromGguf(file: Pick<Gguf, 'get'>, roles: Readonly<Record<string, string>>): ChatTemplates | undefined {
    const sources = new Map<string, string>();
    const put = (name: string, key: string): void => {
      const source = file.get(key);
      if (typeof source === 'string') sources.set(name, source);
    };
    put('default', 'tokenizer.chat_template');
    const names = file.get('tokenizer.chat_templates');
    if (Array.isArray(names)) for (const name of names as string[]) put(name, `tokenizer.chat_template.${name}`);
    return sources.size > 0 ? new ChatTemplates(sources, roles) : undefined;
  }
  /** Names of the templates; 'default' is the usual one. */
  get names(): string[] {
    return [...this.#sources.keys()];
  }
  /** The program that these options would run. */
  source(options: ChatOptions = {}): string {
    const { template, tools } = options;
    if (template !== undefined && !this.#sources.has(template)) {
      if (/\{[{%#]/.test(template)) return template;
      throw new ArgumentError(
        `chat template: there is no ${JSON.stringify(template)}; there are ${this.names.join(', ')}`,
      );
    }
    const name = template ?? (tools && this.#sources.has('tool_use') ? 'tool_use' : 'default');
    const source = this.#sources.get(name);
    if (source === undefined)
      throw new ArgumentError(`chat template: none is named "default"; name one of ${this.names.join(', ')}`);
    return source;
  }
  /** Messages as the text of a prompt. */
  render(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    const { addGenerationPrompt = !options.continueFinalMessage, continueFinalMessage = false } = options;
    if (addGenerationPrompt && continueFinalMessage)
      throw new ArgumentError('chat template: the last message cannot be left open and another one begun');
    const source = this.source(options);
    const now = options.now ?? new Date();
    const tokens = Object.fromEntries(Object.entries(this.#roles).map(([role, token]) => [`${role}_token`, token]));
    let text: string;
    try {
      let compiled = this.#compiled.get(source);
      if (!compiled) this.#compiled.set(source, (compiled = new Template(source)));
      const environment = new Environment();
      const names = {
        ...GLOBALS,
        raise_exception: (message: string) => {
          throw new ArgumentError(`chat template: ${message}`);
        },
        strftime_now: (format: string) => strftime(now, format),
        ...tokens,
        messages,
        tools: options.tools ?? null,
        documents: options.documents ?? null,
        add_generation_prompt: addGenerationPrompt,
        ...(options.enableThinking !== undefined && { enable_thinking: options.enableThinking }),
        ...options.variables,
      };
      for (const [name, value] of Object.entries(names)) environment.set(name, value);
      text = new BoundedInterpreter(environment).run(compiled.parsed).value as string;
    } catch (cause) {
      if (cause instanceof ArgumentError || cause instanceof FormatError) throw cause;
      throw new FormatError(`chat template: ${(cause as Error).message}`, { cause });
    }
    return continueFinalMessage ? leftOpen(text, messages) : text;
  }
}

/** The text up to the end of the last message's own words. */
function leftOpen(text: string, messages: readonly ChatMessage[]): string {
  const content = messages.at(-1)?.content;
  const parts = Array.isArray(content) ? (content as { type?: string; text?: string }[]) : [];
  const last = typeof content === 'string' ? content : parts.findLast((p) => p.text !== undefined)?.text;
  if (last === undefined) throw new ArgumentError('chat template: the last message has no text to go on with');
  const at = text.lastIndexOf(last.trim());
  if (at < 0)
    throw new ArgumentError('chat template: it changed the last message, which can therefore not be left open');
  const kept = text.startsWith(last.trimStart(), at) ? last.trimStart() : last.trim();
  return text.slice(0, at + kept.length);
}
