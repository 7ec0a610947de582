// An engine that plays answers from a script, and a server around it.
import { existsSync } from 'node:fs';
import {
  ContextError,
  type Engine,
  type Generation,
  type GenerationRequest,
  type Piece,
  QueueFullError,
  type Usage,
} from '../src/engine/request.js';
import { builtinModel } from '../src/engine/index.js';
import { type RunningServer, serve, type ServedModels, type ServeOptions } from '../src/server/index.js';
import { ChatTemplates, loadTokenizer, StopWatch, type Tokenizer } from '../src/tokenizers/index.js';

export const noModel = !existsSync(builtinModel) && 'the built-in model is not part of this installation';

/** ChatML with Hermes' tools and thinking, as Qwen's is, in few words. */
export const TEMPLATE = `{%- if tools %}<|im_start|>tools
{% for t in tools %}{{ t | tojson }}
{% endfor %}answer <tool_call>{"name": , "arguments": }</tool_call><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking %}<think>
{% endif %}{% endif %}`;

export interface Script {
  /** The answer's pieces; a number waits that many milliseconds, a promise until it is kept; an error is thrown. */
  readonly answer: (request: GenerationRequest, prompt: string) => Iterable<string | number | Promise<unknown> | Error>;
  readonly template?: string;
  readonly contextTokens?: number;
  readonly queueFull?: () => boolean;
}

export class ScriptedEngine implements Engine {
  readonly name = 'scripted';
  readonly tokenizer: Tokenizer = loadTokenizer(builtinModel);
  readonly chatTemplate: ChatTemplates | undefined;
  readonly limits;
  readonly requests: GenerationRequest[] = [];
  readonly #script: Script;
  running = 0;
  aborted = 0;
  constructor(script: Script) {
    this.#script = script;
    this.limits = {
      contextTokens: script.contextTokens ?? 4096,
      maxRunning: 8,
      maxWaiting: 8,
      pages: 64,
      pageTokens: 16,
    };
    const source = script.template ?? TEMPLATE;
    this.chatTemplate = source === '' ? undefined : new ChatTemplates(new Map([['default', source]]), { bos: '<s>' });
  }
  submit(request: GenerationRequest): Generation {
    if (this.#script.queueFull?.()) throw new QueueFullError('generate: 8 requests wait; no more are taken', 2);
    if (request.prompt.length >= this.limits.contextTokens)
      throw new ContextError(request.prompt.length, this.limits.contextTokens);
    this.requests.push(request);
    const prompt = this.tokenizer.decode(request.prompt, { special: true });
    const stopped = new AbortController();
    const signal = request.signal ? AbortSignal.any([request.signal, stopped.signal]) : stopped.signal;
    let finish: (usage: Usage) => void = () => {};
    const usage = new Promise<Usage>((resolve) => (finish = resolve));
    this.running++;
    const pieces = this.#play(request, prompt, signal, (tokens) => {
      this.running--;
      finish({
        promptTokens: request.prompt.length,
        cachedTokens: 1,
        tokens,
        queuedSeconds: 0,
        prefillSeconds: 0.01,
        decodeSeconds: 0.01,
      });
    });
    return { id: this.requests.length, usage, cancel: () => stopped.abort(), [Symbol.asyncIterator]: () => pieces };
  }
  async *#play(
    request: GenerationRequest,
    prompt: string,
    signal: AbortSignal,
    over: (tokens: number) => void,
  ): AsyncGenerator<Piece> {
    let tokens = 0;
    try {
      for (let choice = 0; choice < (request.n ?? 1); choice++) {
        const stops = new StopWatch(request.stop ?? []);
        let finish: Piece['finish'] = 'end';
        for (const said of this.#script.answer(request, prompt)) {
          if (signal.aborted) {
            this.aborted++;
            yield { choice, text: '', tokens: [], finish: 'aborted' };
            return;
          }
          if (said instanceof Error) throw said;
          if (typeof said === 'number') {
            await new Promise((resolve) => setTimeout(resolve, said));
            continue;
          }
          if (said instanceof Promise) {
            await said;
            continue;
          }
          const id = this.tokenizer.encode(said, { special: false })[0] ?? 0;
          const bytes = [...Buffer.from(said)];
          const one = { token: id, text: said, bytes, logprob: -0.5 };
          const text = stops.push(said);
          tokens++;
          yield {
            choice,
            text,
            tokens: [id],
            ...(request.logprobs !== undefined && {
              logprobs: [{ ...one, top: request.logprobs > 0 ? [one, { ...one, text: 'x', logprob: -2 }] : [] }],
            }),
            ...(request.promptLogprobs &&
              tokens === 1 && {
                promptLogprobs: request.prompt.slice(1).map((token) => {
                  const own = this.tokenizer.decode([token]);
                  return { token, text: own, bytes: [...Buffer.from(own)], logprob: -1, top: [] };
                }),
              }),
          };
          if (stops.found !== undefined || tokens === request.maxTokens) {
            finish = stops.found !== undefined ? 'stop' : 'length';
            break;
          }
        }
        const stopText = stops.found;
        yield { choice, text: stops.flush(), tokens: [], finish, ...(stopText !== undefined && { stopText }) };
      }
    } finally {
      over(tokens);
    }
  }
  status() {
    return {
      running: this.running,
      waiting: 0,
      pagesUsed: this.running,
      pagesTotal: 64,
      tokensPerSecond: 1,
      promptTokensPerSecond: 2,
      tokens: 3,
      promptTokens: 4,
      prefixHits: 5,
      preemptions: 0,
      finished: 6,
    };
  }
  async dispose(): Promise<void> {}
}

/** A response whose JSON is looked into without ceremony. */
export type Answered = Omit<Response, 'json'> & {
  json(): Promise<any>;
};
export interface Fixture extends AsyncDisposable {
  readonly server: RunningServer;
  readonly engine: ScriptedEngine;
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<Answered>;
}
/** A server on a free port, with an engine that plays a script. */
export async function scripted(
  script: Script,
  options: ServeOptions = {},
  models: Omit<ServedModels, 'engine'> = {},
): Promise<Fixture> {
  const engine = new ScriptedEngine(script);
  const server = await serve({ engine, ...models }, { port: 0, ...options });
  return {
    server,
    engine,
    post: (path, body, headers = {}) =>
      fetch(server.url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    [Symbol.asyncDispose]: () => server.close(0),
  };
}

/** The events of a stream of server-sent events: name and data. */
export async function events(response: Answered): Promise<{ event?: string; data: string }[]> {
  const text = await response.text();
  return text
    .split('\n\n')
    .filter((frame) => frame !== '' && !frame.startsWith(':'))
    .map((frame) => {
      const event = /^event: (.*)$/m.exec(frame)?.[1];
      return { ...(event !== undefined && { event }), data: /^data: (.*)$/m.exec(frame)?.[1] ?? '' };
    });
}

/** What scripted engines write: a text in two pieces, and reasoning with a call of a tool of these parameters. */
export const hello = { answer: () => ['Hel', 'lo'] };
export const CALL = [
  '<think>hm</think>',
  'Now ',
  '<tool_call>{"name": "weather", "arguments": {"city": ',
  '"Rome"}}</tool_call>',
];
export const parameters = { type: 'object', properties: { city: { type: 'string' } } };
