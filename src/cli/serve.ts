// `wick serve`: a language model behind the APIs of OpenAI and Anthropic, with a page to chat with it.
import { parseArgs } from 'node:util';
import { env } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';
import { packageVersion } from '../base/paths.js';
import { readText } from '../io/byte-source.js';
import type { Group } from '../distributed/index.js';
import { type TakenAddress, takeAddress } from '../server/address.js';
import { checkedLimits, DEFAULT_LIMITS } from '../server/limits.js';
import { jsonLog, type Log, silentLog } from '../server/log.js';
import type { ServedModels } from '../server/served.js';
import { TOOL_FORMATS } from '../server/tools/formats.js';
import type { ThreadedEngine } from '../engine/threaded-engine.js';
import { ENGINE_HELP, ENGINE_OPTIONS, type EngineValues, openEngine } from './open-engine.js';
import { parameterSize } from './open-model.js';
import { numberOf, wholeOf } from './options.js';
import type { ServedFacts } from './serve-thread.js';
import { EXPERTS_HELP, expertsOf, place, worldOf } from './world.js';

const HELP = `wick serve [MODEL] [options]

Started several times by a launcher (mpirun -np 2 npx wick serve MODEL), the processes share one model among their
devices: rank 0 listens, the others compute with it.

The model:
${ENGINE_HELP}
${EXPERTS_HELP}
  --embedding-model NAME a second model, for /v1/embeddings and /rerank
  --only-embeddings      no language model, only the embedding model
  --name NAME            what the model is called in requests (default: the last part of its name)
  --alias NAME           another name for it; may be given several times
  --tool-format NAME     ${TOOL_FORMATS.map((f) => f.name).join(', ')} (default: what the chat template shows)

Who may ask:
  --host ADDRESS         (default 127.0.0.1: this machine alone)
  --port N               (default 8080; 0 takes a free one)
  --api-key-file FILE    keys, one per line; WICK_API_KEYS may hold more, separated by commas
  --without-keys         listen for others without a key
  --origin URL           pages of this origin may call; may be given several times

Limits:
  --max-waiting N        requests that may wait; further ones get 429 (default 1024)
  --rate N               requests per minute for each key or address (default: no limit)
  --max-body MIB         size of a request (default 8)
  --timeout SECONDS      the longest that an answer may take (default 600)
  --quiet                no log; otherwise it goes to stderr, one JSON object per line

GET /openapi.json describes all routes, docs/serving.md says how to run it.`;

const MAX_KEYS = 2 ** 20;
function keysFrom(file: string | undefined): string[] {
  const keysOf = (texts: readonly string[]): string[] => texts.map((k) => k.trim()).filter((k) => k !== '');
  const listed = file === undefined ? [] : keysOf(readText(file, MAX_KEYS).split('\n'));
  if (file !== undefined && listed.length === 0)
    throw new ArgumentError(`serve: ${file} has no key, and without one anybody may ask`);
  return [...listed, ...keysOf(env('WICK_API_KEYS')?.split(',') ?? [])];
}

const option = { type: 'string' } as const;
const several = { type: 'string', multiple: true } as const;
const flag = { type: 'boolean' } as const;
const OPTIONS = {
  ...ENGINE_OPTIONS,
  experts: option,
  ...{ 'embedding-model': option, 'only-embeddings': flag, name: option, alias: several },
  ...{ 'tool-format': option, host: option, port: option, 'api-key-file': option, 'without-keys': flag },
  ...{ origin: several, 'max-waiting': option, rate: option, 'max-body': option },
  ...{ timeout: option, quiet: flag, help: { ...flag, short: 'h' } },
} as const;

type StartEngine = typeof import('./served-engine.js').startEngine;
type ServeAt = typeof import('../server/listen.js').serveAt;

const parsed = (argv: readonly string[]) => parseArgs({ args: [...argv], allowPositionals: true, options: OPTIONS });
type Given = ReturnType<typeof parsed>['values'];

/** The options as given, the model's name among them, if they go together. */
function readOptions(argv: readonly string[]): Given {
  const { values, positionals } = parsed(argv);
  const [named, ...others] = positionals;
  if (others.length > 0 || (named !== undefined && values.model !== undefined))
    throw new ArgumentError(
      `serve: one model is served; given are ${[values.model, ...positionals].filter(Boolean).join(', ')}`,
    );
  if (values['only-embeddings'] && !values['embedding-model'] && !values.help)
    throw new ArgumentError('serve: --only-embeddings needs --embedding-model');
  const tools = values['tool-format'];
  if (tools !== undefined && !TOOL_FORMATS.some((f) => f.name === tools))
    throw new ArgumentError(
      `serve: there is no --tool-format ${JSON.stringify(tools)}; there are ` +
        `${TOOL_FORMATS.map((f) => f.name).join(', ')}`,
    );
  return { ...values, ...(named !== undefined && { model: named }) };
}

export async function run(argv: readonly string[]): Promise<number> {
  const given = readOptions(argv);
  if (given.help) {
    console.log(HELP);
    return 0;
  }
  const settings = serverSettings(given);
  const experts = expertsOf('serve', given.experts);
  const wanted = {
    values: engineValues(given),
    name: given.name,
    maxWaiting: wholeOf('serve', 'max-waiting', given['max-waiting']),
    experts,
  };
  if (place().size > 1 && given['only-embeddings'])
    throw new ArgumentError('serve: embedding models are not shared out among ranks; start one process');
  if (place().rank > 0) return followWorld(wanted);
  const signals = new Signals();
  const address = await takeAddress(settings);
  let engine: ThreadedEngine<ServedFacts> | undefined;
  try {
    const serving = import('../server/listen.js'); // read while the engine's thread begins
    serving.catch(() => {}); // told where it is waited for
    engine = given['only-embeddings'] ? undefined : await startedEngine({ command: 'serve', ...wanted });
    await answerAt(address, given, settings, engine, (await serving).serveAt, signals);
  } finally {
    await address.close();
    await engine?.dispose();
  }
  return 0;
}

async function startedEngine(wanted: Parameters<StartEngine>[0]): ReturnType<StartEngine> {
  const { startEngine } = await import('./served-engine.js');
  return startEngine(wanted, endSoon);
}

async function answerAt(
  address: TakenAddress,
  given: Given,
  settings: Settings,
  engine: ThreadedEngine<ServedFacts> | undefined,
  serveAt: ServeAt,
  signals: Signals,
): Promise<void> {
  const embedder = await openEmbedder(given);
  const models: ServedModels = {
    ...(engine && { engine }),
    ...(embedder && { embedder }),
    ...(given.alias && { aliases: given.alias }),
    ...(given['tool-format'] && { toolFormat: given['tool-format'] }),
  };
  const server = serveAt(address, models, settings);
  const ended = signals.until(server.close); // whoever reads that it is ready may end it
  if (engine) tellReady(engine, settings.log, server.url);
  console.log(`chat at ${server.url}/  status at ${server.url}/status  API at ${server.url}/v1  (Ctrl-C ends)`);
  await ended;
  await embedder?.model.dispose();
}

/** Of all options those that say what is computed, and where. */
const engineValues = (given: Given): EngineValues =>
  Object.fromEntries(Object.keys(ENGINE_OPTIONS).map((key) => [key, given[key as keyof EngineValues]]));

type Settings = ReturnType<typeof serverSettings>;
function serverSettings(given: Given) {
  const number = (name: 'rate' | 'max-body' | 'timeout'): number | undefined => numberOf('serve', name, given[name]);
  const body = number('max-body');
  const limits = {
    requestsPerMinute: number('rate'),
    bodyBytes: body === undefined ? undefined : body * 2 ** 20,
    requestSeconds: number('timeout'),
    origins: given.origin,
  };
  return {
    ...(given.host !== undefined && { host: given.host }),
    port: wholeOf('serve', 'port', given.port) ?? 8080,
    keys: keysFrom(given['api-key-file']),
    ...(given['without-keys'] && { withoutKeys: true }),
    limits: checkedLimits({
      ...DEFAULT_LIMITS,
      ...Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)),
    }),
    log: given.quiet ? silentLog : jsonLog((line) => process.stderr.write(line)),
    version: packageVersion(),
  };
}

async function openEmbedder(given: Given) {
  const name = given['embedding-model'];
  if (name === undefined) return undefined;
  const { startEmbedder } = await import('./served-embedder.js');
  return { name: name.split('/').at(-1) ?? name, model: await startEmbedder(name, given.device) };
}

function tellReady({ name, limits, told }: ThreadedEngine<ServedFacts>, log: Log, url: string): void {
  const { contextTokens, maxRunning, pages, pageTokens } = limits;
  const { device, parameters, dtype, loadSeconds, world } = told;
  log.info('ready', {
    ...{ model: name, parameters, device, loadSeconds: Number(loadSeconds.toFixed(3)) },
    ...{ contextTokens, maxRunning, pages, pageTokens, url },
  });
  console.log(
    `${name} (${parameterSize(parameters)}${world ? ' of this rank' : ''} in ${dtype}) ` +
      `on ${device}${world ? `, ${world}` : ''}: ` +
      `contexts of ${contextTokens} tokens, ${maxRunning} requests at a time, room for ${pages * pageTokens} tokens`,
  );
}

/** The engine or its other ranks have ended; who waits for an answer is told why first. */
function endSoon(error: Error): void {
  console.error(error.message);
  setTimeout(() => process.exit(1), 500);
}
/** What every rank but the first does: its part of each step, until rank 0 ends. Signals are rank 0's to act on. */
async function followWorld({ values, ...more }: Parameters<typeof openEngine>[2] & { values: EngineValues }) {
  const world = (await worldOf(values.device)) as Group;
  const open = await openEngine('serve', values, { ...more, world, onBroken: endSoon });
  let told = 0;
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      if (++told > 1) process.exit(130);
      console.error(`serve: ${world}: rank 0 ends all ranks; once more ends at once`);
    });
  await open.engine.follow();
  await open.dispose();
  world.close();
  return 0;
}

const SIGNALS = { SIGINT: 130, SIGTERM: 143 } as const;
/**
 * The first signal ends a server in order, the second at once, and so does the first while the model is still being
 * loaded: the first process of a container is ended by no signal that it does not listen to.
 */
class Signals {
  #close: (() => Promise<void>) | undefined;
  constructor() {
    for (const [signal, status] of Object.entries(SIGNALS)) process.on(signal, () => this.#heard(status));
  }
  #heard(status: number): void {
    const close = this.#close;
    this.#close = undefined;
    if (!close) process.exit(status);
    console.error('ending: answers under way have 30 seconds; once more ends at once');
    void close();
  }
  /** Until what is closed by the first signal is closed. */
  until(close: () => Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      this.#close = () => close().then(resolve);
    });
  }
}
