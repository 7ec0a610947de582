// `node dist/bench/peers/llama-cpp.js --peer FOLDER [--threads 2] [--json FILE]`: language models of random weights,
// quantized by this package, read and continued by wick and by node-llama-cpp from the same GGUF file. FOLDER is where
// `npm install node-llama-cpp` was run; without it wick is timed alone. Each runs in a process of its own that waits
// while the other works; rounds alternate, and the best of each counts. With --models FOLDER the files are kept there
// and found again, so that a run is nothing but measuring.
import { type ChildProcess, fork } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import type { CpuBackend } from '../../src/backends/cpu.js';
import { table } from '../../src/cli/table.js';
import { builtinModel, LanguageModel } from '../../src/engine/index.js';
import { Device, Generator, type Tensor } from '../../src/index.js';
import { saveTensors } from '../../src/io/index.js';
import { quantizeGguf } from '../../src/models/gguf/quantize-gguf.js';
import { initialise, normal, ONE } from '../../src/nn/index.js';
import { commitNow } from '../../src/parity/provenance.js';

const { values } = parseArgs({
  options: {
    peer: { type: 'string' },
    threads: { type: 'string', default: '2' },
    shapes: { type: 'string', default: '15M,110M' },
    types: { type: 'string', default: 'q8_0,q4_0,q4_k' },
    prompt: { type: 'string', default: '256' },
    tokens: { type: 'string', default: '48' },
    rounds: { type: 'string', default: '4' },
    models: { type: 'string' },
    json: { type: 'string' },
    /** A child's part: whose engine it is. */
    serve: { type: 'string' },
  },
});

interface Shape {
  readonly hidden: number;
  readonly inner: number;
  readonly layers: number;
  readonly heads: number;
  readonly vocab: number;
}
/** Rows of 256 values at least, which Q4_K's blocks ask for. */
const SHAPES: Readonly<Record<string, Shape>> = {
  '15M': { hidden: 256, inner: 1024, layers: 6, heads: 8, vocab: 32000 },
  '110M': { hidden: 768, inner: 2048, layers: 12, heads: 12, vocab: 32000 },
  '1B': { hidden: 2048, inner: 5632, layers: 22, heads: 32, vocab: 32000 },
};
const POSITIONS = 1024;

/** A folder as the Hugging Face hub lays it out, with random weights. */
function writeModel(folder: string, { hidden, inner, layers, heads, vocab }: Shape): void {
  mkdirSync(folder, { recursive: true });
  const config = {
    ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', vocab_size: vocab, hidden_size: hidden },
    ...{ intermediate_size: inner, num_hidden_layers: layers, num_attention_heads: heads, num_key_value_heads: heads },
    ...{ max_position_embeddings: POSITIONS, rms_norm_eps: 1e-5, rope_theta: 10000, hidden_act: 'silu' },
    ...{ tie_word_embeddings: true, torch_dtype: 'float32' },
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const tokenizer = JSON.parse(readFileSync(join(builtinModel, 'tokenizer.json'), 'utf8')) as {
    readonly model: { readonly vocab: Record<string, number> };
  };
  const words = tokenizer.model.vocab;
  for (let id = Object.keys(words).length; id < vocab; id++) words[`\u0120word${id}`] = id;
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  const tensors: Record<string, Tensor> = {};
  const put = (name: string, ...dims: number[]): void => {
    const how = dims.length === 1 ? ONE : normal(0, 0.02);
    tensors[`model.${name}.weight`] = initialise(how, dims, {
      ...{ dtype: 'f32', device: Device.cpu(), generator: new Generator(Object.keys(tensors).length + 1) },
    });
  };
  put('embed_tokens', vocab, hidden);
  put('norm', hidden);
  for (let i = 0; i < layers; i++) {
    for (const name of ['q', 'k', 'v', 'o']) put(`layers.${i}.self_attn.${name}_proj`, hidden, hidden);
    for (const name of ['gate', 'up']) put(`layers.${i}.mlp.${name}_proj`, inner, hidden);
    put(`layers.${i}.mlp.down_proj`, hidden, inner);
    for (const name of ['input_layernorm', 'post_attention_layernorm']) put(`layers.${i}.${name}`, hidden);
  }
  saveTensors(join(folder, 'model.safetensors'), tensors);
  for (const t of Object.values(tensors)) t.dispose();
}

/** One answer: tokens come one by one, the first once the prompt was read. */
type Answer = (prompt: readonly number[]) => AsyncIterable<unknown>;

async function openWick(file: string, threads: number): Promise<Answer> {
  (Device.cpu().backend as CpuBackend).threads = threads;
  const model = await LanguageModel.load(file, { device: 'cpu' });
  return (prompt) => model.tokens(prompt, { temperature: 0, maxTokens: POSITIONS - prompt.length });
}

interface LlamaCpp {
  getLlama(options: object): Promise<{ loadModel(options: object): Promise<LlamaModel> }>;
}
interface LlamaModel {
  createContext(options: object): Promise<{ getSequence(): LlamaSequence }>;
}
interface LlamaSequence {
  clearHistory(): Promise<void>;
  evaluate(tokens: readonly number[], options: object): AsyncIterable<number>;
}
async function openLlamaCpp(file: string, threads: number, folder: string): Promise<Answer> {
  const entry = resolve(folder, 'node_modules/node-llama-cpp/dist/index.js');
  const { getLlama } = (await import(pathToFileURL(entry).href)) as LlamaCpp;
  const llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, maxThreads: 0, logLevel: 'error' });
  const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
  const context = await model.createContext({ contextSize: POSITIONS, batchSize: 512, threads });
  const sequence = context.getSequence();
  return async function* (prompt) {
    await sequence.clearHistory();
    yield* sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true });
  };
}

interface Rates {
  readonly prefill: number;
  readonly decode: number;
}
/** Tokens a second of reading a prompt and of writing after its first token. */
async function rates(answer: Answer, vocab: number): Promise<Rates> {
  const [length, tokens] = [Number(values.prompt), Number(values.tokens)];
  const prompt = Array.from({ length }, (_, i) => 1 + ((i * 7919) % (vocab - 1)));
  const begin = performance.now();
  let [first, count] = [0, 0];
  for await (const _ of answer(prompt)) {
    first ||= performance.now();
    if (count++ === tokens) break;
  }
  if (count <= tokens) throw new Error(`the answer ended after ${count} tokens, before ${tokens}`);
  return { prefill: (1000 * length) / (first - begin), decode: (1000 * tokens) / (performance.now() - first) };
}

interface Job {
  readonly file: string;
  readonly vocab: number;
}
/** A child: opens what it is told, then answers every word with its rates. */
async function serve(whose: string): Promise<void> {
  const threads = Number(values.threads);
  let [answer, vocab] = [undefined as Answer | undefined, 0];
  process.on('message', async (job: Job | 'again') => {
    try {
      if (job === 'again') {
        process.send?.(await rates(answer as Answer, vocab));
        return;
      }
      vocab = job.vocab;
      answer = await (whose === 'wick'
        ? openWick(job.file, threads)
        : openLlamaCpp(job.file, threads, values.peer as string));
      await rates(answer, vocab); // the first round is not counted
      process.send?.('ready');
    } catch (error) {
      process.send?.({ error: String(error) });
    }
  });
}

function ask<T>(child: ChildProcess, message: Job | 'again'): Promise<T> {
  return new Promise((done, failed) => {
    child.once('exit', (code) => failed(new Error(`a process ended with ${code}`)));
    child.once('message', (m: T | { error: string }) => {
      child.removeAllListeners('exit');
      const error = (m as { error?: string }).error;
      return error ? failed(new Error(error)) : done(m as T);
    });
    child.send(message);
  });
}

interface Result {
  readonly model: string;
  readonly type: string;
  readonly bytes: number;
  readonly wick: Rates;
  readonly llamaCpp?: Rates;
}
async function compare(model: string, type: string, file: string, names: readonly string[]): Promise<Result> {
  const children = names.map((name) =>
    fork(fileURLToPath(import.meta.url), [...process.argv.slice(2), '--serve', name], {
      env: { ...process.env, WICK_THREADS: values.threads },
    }),
  );
  try {
    for (const child of children) await ask(child, { file, vocab: SHAPES[model].vocab });
    const best = children.map(() => ({ prefill: 0, decode: 0 }));
    for (let round = 0; round < Number(values.rounds); round++)
      for (const [i, child] of children.entries()) {
        const now = await ask<Rates>(child, 'again');
        best[i] = { prefill: Math.max(best[i].prefill, now.prefill), decode: Math.max(best[i].decode, now.decode) };
      }
    const [wick, llamaCpp] = best;
    return { model, type, bytes: statSync(file).size, wick, ...(llamaCpp && { llamaCpp }) };
  } finally {
    for (const child of children) child.kill();
  }
}

const told = ({ prefill, decode }: { readonly prefill: number; readonly decode: number }): string =>
  `prefill ${prefill.toFixed(0)}, decode ${decode.toFixed(0)} tokens/s`;

async function main(): Promise<void> {
  const about = values.peer && join(values.peer, 'node_modules/node-llama-cpp/package.json');
  const found = about !== undefined && existsSync(about);
  const peer = found
    ? `node-llama-cpp ${(JSON.parse(readFileSync(about, 'utf8')) as { version: string }).version}`
    : `node-llama-cpp is not installed in ${values.peer ?? 'a folder given with --peer'}: wick alone`;
  console.error(peer);
  const folder = values.models ?? mkdtempSync(join(tmpdir(), 'wick-llama-cpp-'));
  const results: Result[] = [];
  try {
    for (const model of (values.shapes as string).split(',')) {
      if (!SHAPES[model]) throw new Error(`--shapes ${model}: known are ${Object.keys(SHAPES).join(', ')}`);
      const written = join(folder, model);
      for (const type of (values.types as string).split(',')) {
        const file = join(folder, `${model}-${type}.gguf`);
        if (!existsSync(file)) {
          if (!existsSync(join(written, 'model.safetensors'))) writeModel(written, SHAPES[model]);
          await quantizeGguf(written, file, { type });
        }
        const r = await compare(model, type, file, found ? ['wick', 'llama.cpp'] : ['wick']);
        results.push(r);
        console.error(`${model} ${type}: wick ${told(r.wick)}` + (r.llamaCpp ? `; llama.cpp ${told(r.llamaCpp)}` : ''));
        if (!values.models) rmSync(file);
      }
    }
  } finally {
    if (!values.models) rmSync(folder, { recursive: true, force: true });
  }
  const of = (a: number, b: number | undefined): string => (b === undefined ? '' : (a / b).toFixed(2));
  console.log(
    table(
      ['model', 'type', 'prefill, tokens/s', 'llama.cpp', 'ours / theirs', 'decode', 'llama.cpp', 'ours / theirs'],
      results.map(({ model, type, wick, llamaCpp }) => [
        ...[model, type, wick.prefill.toFixed(0), llamaCpp?.prefill.toFixed(0) ?? ''],
        ...[of(wick.prefill, llamaCpp?.prefill), wick.decode.toFixed(0), llamaCpp?.decode.toFixed(0) ?? ''],
        of(wick.decode, llamaCpp?.decode),
      ]),
    ),
  );
  const hardware = `${cpus()[0]?.model.trim() || process.arch}, ${cpus().length} cores`;
  const record = { date: new Date().toISOString(), commit: commitNow(), hardware, peer, threads: values.threads };
  const prompt = { promptTokens: Number(values.prompt), newTokens: Number(values.tokens) };
  if (values.json) writeFileSync(values.json, `${JSON.stringify({ ...record, ...prompt, results }, null, 1)}\n`);
}

if (values.serve) await serve(values.serve);
else await main();
