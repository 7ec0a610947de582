// `wick generate "prompt"`: streams text from a language model to stdout; everything else goes to stderr.
import { parseArgs } from 'node:util';
import type { Group } from '../distributed/index.js';
import { checkRequest } from '../engine/check-request.js';
import type { GenerateStats } from '../engine/language-model-options.js';
import type { Device } from '../tensor/device.js';
import { isReference, openModel, parameterSize } from './open-model.js';
import { numberOf } from './options.js';
import { EXPERTS_HELP, expertsOf, worldOf } from './world.js';

const HELP = `wick generate [options] "prompt"

  --model NAME           a folder with config.json, tokenizer.json and safetensors, a .gguf file, or a model of the
                         Hugging Face hub: owner/name[@revision][:file.gguf] (default: the built-in model)
  --device NAME          cpu, cuda:0, rocm:0, ... (default: a GPU if there is one, else the CPU)
  --dtype T              f32, bf16, f16 (default: as stored; f32 on the CPU)
  --cache-type T         q8_0 or f8e4m3: keys and values in 8 bits (default: the dtype)
  --max-tokens N         (default 200; 20 on the reference engine, which takes about a second for each)
  --temperature T        0 is greedy (default 0.8)
  --top-k K  --top-p P  --min-p P  --repetition-penalty R
  --seed S               the same seed gives the same text (default: from the clock)
  --json                 one JSON object at the end: text, reason, tokens, times
${EXPERTS_HELP}

Text goes to stdout, everything else to stderr. Started several times by a launcher (mpirun -np 2 npx wick generate
...), the processes share one model among their devices, and rank 0 writes.`;

const option = { type: 'string' } as const;
const OPTIONS = {
  ...{ model: option, device: option, dtype: option, experts: option, seed: option, temperature: option },
  ...{ 'top-k': option, 'top-p': option, 'min-p': option, 'repetition-penalty': option },
  ...{ 'cache-type': option, 'max-tokens': option },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;
type Values = Partial<Record<keyof typeof OPTIONS, string | boolean>>;

/** How many tokens are written where nobody says, and on the slow reference engine. */
const [TOKENS, FEW_TOKENS] = [200, 20];

/** What shells call a command that Ctrl-C ended: what was to run after it does not. */
const INTERRUPTED = 130;

/** How tokens are drawn, as the options say it; what they leave open is undefined. */
function samplingOf(v: Values) {
  const of = (name: keyof typeof OPTIONS): number | undefined =>
    numberOf('generate', name, v[name] as string | undefined);
  return {
    temperature: of('temperature'),
    topK: of('top-k'),
    topP: of('top-p'),
    minP: of('min-p'),
    repetitionPenalty: of('repetition-penalty'),
    seed: of('seed'),
    maxTokens: of('max-tokens'),
  };
}

export async function run(argv: readonly string[]): Promise<number> {
  const { values: v, positionals } = parseArgs({ args: [...argv], allowPositionals: true, options: OPTIONS });
  if (v.help) {
    console.log(HELP);
    return 0;
  }
  const prompt = positionals.join(' ');
  const sampling = samplingOf(v);
  const experts = expertsOf('generate', v.experts);
  const world = await worldOf(v.device);
  const first = world?.first ?? true;
  // All ranks draw the same tokens.
  const seed = sampling.seed ?? (world ? await sharedClock(world) : Date.now());
  const given = Object.fromEntries(Object.entries({ ...sampling, seed }).filter(([, value]) => value !== undefined));
  checkRequest({ prompt: [0], maxTokens: TOKENS, ...given }, 1);
  const { device, model, seconds } = await openModel('generate', v, { world, experts });
  const loaded = seconds();
  // Of several ranks each may have another engine, and all must draw as many tokens.
  const slow = !world && sampling.maxTokens === undefined && (await isReference(device));
  const maxTokens = sampling.maxTokens ?? (slow ? FEW_TOKENS : TOKENS);
  if (slow)
    console.error(
      `${maxTokens} tokens instead of ${TOKENS}, as the reference engine takes about a second for each; ` +
        '--max-tokens asks for more',
    );
  const abort = new AbortController();
  const { signal } = abort;
  const stop = (): void => abort.abort();
  // A rank that stopped alone would leave the others waiting: there a signal ends the process, and the others with it.
  if (!world) process.once('SIGINT', stop);
  const write = (text: string): void => void (first && !v.json && process.stdout.write(text));
  write(prompt);
  let text = '';
  let stats: GenerateStats | undefined;
  for await (const piece of model.generate(prompt, { ...given, maxTokens, signal, onDone: (s) => (stats = s) })) {
    write(piece);
    text += piece;
  }
  process.removeListener('SIGINT', stop);
  const about = {
    parameters: model.model.weightCount(),
    dtype: model.model.dtype,
    device: device.name,
    ...(world && { ranks: world.size }),
  };
  if (world) {
    model.dispose();
    world.close();
  }
  if (!first) return 0;
  const status = signal.aborted ? INTERRUPTED : 0;
  if (v.json) {
    console.log(JSON.stringify({ model: v.model ?? 'built-in', ...about, prompt, text, seed, ...stats }));
    return status;
  }
  process.stdout.write('\n');
  if (stats) console.error(report(stats, device, world, about.parameters, about.dtype, loaded));
  if (v.model === undefined && !signal.aborted)
    console.error('next: wick chat, wick serve (a page and an API), or --model owner/name from the Hugging Face hub');
  return status;
}

/** Rank 0's time, on all ranks. */
async function sharedClock(world: Group): Promise<number> {
  const { tensor } = await import('../tensor/create.js');
  const { scope } = await import('../tensor/scope.js');
  return scope(() => world.broadcast(tensor(Float64Array.of(Date.now()), { device: world.device })).item());
}

function report(
  s: GenerateStats,
  device: Device,
  world: Group | undefined,
  parameters: number,
  dtype: string,
  loaded: number,
): string {
  const rate = (n: number, seconds: number): string =>
    seconds > 0 ? (n / seconds).toFixed(n / seconds < 100 ? 1 : 0) : '-';
  return (
    `${parameterSize(parameters)} parameters${world ? ` of ${world}` : ''} in ${dtype} on ${device.name} ` +
    `(${device.description}); loaded in ${loaded.toFixed(2)} s; ` +
    `prompt ${s.promptTokens} tokens at ${rate(s.promptTokens, s.prefillSeconds)} tokens/s; ${s.tokens} tokens at ` +
    `${rate(Math.max(0, s.tokens - 1), s.decodeSeconds)} tokens/s`
  );
}
