#!/usr/bin/env node
// The `wick` command: finds the subcommand and hands it the rest of the line.
import * as modules from 'node:module';
import { env } from '../base/environment.js';
import { WickError } from '../base/errors.js';
import { packageVersion } from '../base/paths.js';
import { endWithReader } from './terminal.js';

interface Command {
  readonly summary: string;
  /** It runs a model, on a GPU if there is one and --device does not say otherwise. */
  readonly onGpu?: boolean;
  /** Loaded only when asked for, so that `wick --help` starts at once. */
  readonly load: () => Promise<{ run(argv: readonly string[]): Promise<number> | number }>;
}

const COMMANDS: Readonly<Record<string, Command>> = {
  tour: { summary: 'a short look around: devices, a few tensors', load: () => import('./tour.js') },
  generate: { onGpu: true, summary: 'text from a language model, token by token', load: () => import('./generate.js') },
  chat: { onGpu: true, summary: 'a conversation with a language model', load: () => import('./chat.js') },
  serve: {
    onGpu: true,
    summary: "a language model behind OpenAI's and Anthropic's APIs, and a chat page",
    load: () => import('./serve.js'),
  },
  embed: { onGpu: true, summary: 'embeddings of texts', load: () => import('./embed.js') },
  bench: { onGpu: true, summary: 'how fast a language model reads and writes', load: () => import('./bench.js') },
  inspect: {
    summary: 'what a GGUF, safetensors, PyTorch or NumPy file holds',
    load: () => import('./inspect.js'),
  },
  quantize: {
    summary: 'a model in fewer bits as a GGUF file, with the error of each tensor',
    load: () => import('./quantize.js'),
  },
  perplexity: {
    onGpu: true,
    summary: 'how well a language model predicts a text',
    load: () => import('./perplexity.js'),
  },
  parity: {
    summary: 'how far every device is from the reference, from Candle and from PyTorch; kernel signatures',
    load: () => import('./parity.js'),
  },
  certify: {
    summary: 'everything wick can check, on your GPU, in ten minutes, with one file to send in',
    load: () => import('./certify.js'),
  },
  ops: { summary: 'the op table: formulas, dtypes, bounds, gradients, origins', load: () => import('./ops.js') },
  kernels: {
    summary: 'compiles kernels ahead of use; what the cache on disk holds',
    load: () => import('./kernels.js'),
  },
  devices: {
    summary: 'the devices found here, their libraries, and why any is missing',
    load: () => import('./devices.js'),
  },
  env: { summary: 'the environment variables that wick reads, and how they are set', load: () => import('./env.js') },
  emulate: { summary: 'run one kernel of an AMD code object with no GPU', load: () => import('./emulate.js') },
  completion: {
    summary: 'tab completion for bash, zsh and fish',
    load: async () => {
      const { completionScript } = await import('./completion.js');
      const summaries = Object.fromEntries(Object.entries(COMMANDS).map(([name, c]) => [name, c.summary]));
      return { run: (argv) => completionScript(argv, summaries) };
    },
  },
};

function help(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((n) => n.length));
  const lines = Object.entries(COMMANDS).map(([name, c]) => `  wick ${name.padEnd(width)}  ${c.summary}`);
  return (
    `wick: tensors, neural nets and language models for Node.js on AMD and NVIDIA GPUs and the CPU\n\n` +
    `${lines.join('\n')}\n\nwick COMMAND --help tells more; wick --version says which one this is.`
  );
}

async function main([name, ...rest]: readonly string[]): Promise<number> {
  if (name === 'help' && rest.length > 0) return main([rest[0], '--help']);
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    console.log(help());
    return 0;
  }
  if (name === '--version' || name === '-V' || name === '-v') {
    console.log(packageVersion());
    return 0;
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command) {
    const near = (await import('./options.js')).meant(name, Object.keys(COMMANDS));
    const all = near === undefined ? `\n\n${help()}` : `; did you mean wick ${near}? wick --help lists all commands`;
    console.error(`wick: there is no command ${JSON.stringify(name)}${all}`);
    return 2;
  }
  await keepCompiled();
  if (command.onGpu) await beginOpening(rest);
  return (await command.load()).run(rest);
}
/** Since Node 22, modules can be kept as they were compiled: later commands start sooner. */
async function keepCompiled(): Promise<void> {
  const { enableCompileCache } = modules as { enableCompileCache?: (folder: string) => unknown };
  if (!enableCompileCache) return;
  const { cacheFolder } = await import('../base/kept-files.js');
  try {
    enableCompileCache(cacheFolder('modules', true));
  } catch (e) {
    if (!(e instanceof WickError)) throw e; // where nothing can be kept, whoever must keep something says so
  }
}
/**
 * The GPU wakes up while the command's modules are read; of several ranks each finds its own. The built-in model, which
 * serves where none is named, is too small for a library of products.
 */
async function beginOpening(argv: readonly string[]): Promise<void> {
  const at = argv.findIndex((a) => a === '--device' || a.startsWith('--device='));
  const device = at < 0 ? undefined : (argv[at].split('=')[1] ?? argv[at + 1]);
  if (argv.includes('--help') || argv.includes('-h') || (device && !device.startsWith('cuda'))) return;
  const { placeFromEnvironment } = await import('../distributed/launcher.js');
  if (placeFromEnvironment()) return;
  const { headStart } = await import('../driver/head-start.js');
  headStart(device, { products: argv.some((a) => a === '--model' || a.startsWith('--model=')) });
}

/** What a command says went wrong, by the name that was typed. */
function sentenceOf(command: string | undefined, message: string): string {
  if (command === undefined || !Object.hasOwn(COMMANDS, command)) return `wick: ${message}`;
  const own = `${command}: `;
  return `wick ${own}${message.startsWith(own) ? message.slice(own.length) : message}`;
}

endWithReader();
main(process.argv.slice(2)).then(
  (code) => (process.exitCode = code),
  async (e: unknown) => {
    // One sentence: ours say what is wrong; any other is a defect, whose place WICK_STACK shows.
    const usage = e instanceof Error && 'code' in e && String(e.code).startsWith('ERR_PARSE_ARGS');
    const message = e instanceof Error ? e.message : String(e);
    if (e instanceof WickError) console.error(sentenceOf(process.argv[2], message));
    else if (usage) {
      const [{ usageError }, { optionsOf }] = await Promise.all([import('./options.js'), import('./completion.js')]);
      console.error(usageError(process.argv[2], message, optionsOf(process.argv[2])));
    } else console.error(`wick: an unexpected error: ${message.split('\n')[0]} (WICK_STACK=full shows where)`);
    if (env('WICK_STACK') === 'full') console.error(e);
    process.exitCode = usage ? 2 : 1;
  },
);
