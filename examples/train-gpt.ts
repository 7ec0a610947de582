// A small Llama-style language model trained on a text file, with a vocabulary of its own:
//   node dist/examples/train-gpt.js --text FILE --out DIR [--device cuda:0] [--dtype bf16] [--steps 3000] ...
// (--help tells all). On several ranks as it is: mpirun -np 4 node dist/examples/train-gpt.js ..., or torchrun
// --no-python (docs/distributed.md); --batch is that of all ranks together, --device cuda takes each rank its own GPU;
// --shard optimizer keeps a part of the optimizer's state on each rank, --shard all a part of parameters and gradients
// as well. --graph records a step on a GPU and repeats it whole.
// DIR then holds what `wick generate --model DIR` reads, the training log, the loss curve and a checkpoint to go on
// from (--resume).
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { arange, captured, defaultGenerator, type DType, Generator, noGrad, scope, tensor, type Tensor } from 'wick';
import { randomNumbers } from 'wick/data';
import { LanguageModel, PlainDecoder, trainBpe } from 'wick/engine';
import { loadTokenizer } from 'wick/tokenizers';
import {
  DataParallel,
  FullyShardedParallel,
  init,
  ownStream,
  saveCheckpointOnce,
  ShardedOptimizer,
  shareOf,
} from 'wick/distributed';
import { saveTensors } from 'wick/io';
import { Llama, type LlamaConfig, llamaJson } from 'wick/models';
import {
  AdamW,
  clipGradNorm,
  cosineDecay,
  FlatParameters,
  loadCheckpoint,
  type Optimizer,
  VarBuilder,
  VarMap,
  warmup,
} from 'wick/nn';
import { Progress, writePlot } from 'wick/train';

const option = (value: string) => ({ type: 'string', default: value }) as const;
const { values: v } = parseArgs({
  options: {
    text: { type: 'string' },
    out: option('train-gpt'),
    device: option('cpu'),
    dtype: option('f32'),
    seed: option('1'),
    vocab: option('1024'),
    hidden: option('256'),
    layers: option('4'),
    heads: option('4'),
    'kv-heads': option('2'),
    intermediate: option('704'),
    context: option('256'),
    batch: option('32'),
    steps: option('2000'),
    rate: option('1e-3'),
    'weight-decay': option('0.1'),
    dropout: option('0.1'),
    'log-every': option('10'),
    'eval-every': option('200'),
    prompt: option('\n'),
    resume: { type: 'boolean', default: false },
    shard: option('none'),
    graph: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (v.help || v.text === undefined) {
  console.error(
    'train-gpt --text FILE [--out DIR] [--device cpu] [--dtype f32|bf16] [--steps N] [--batch N] [--context N] [--vocab N] [--hidden N] [--layers N] [--heads N] [--kv-heads N]\n' +
      '          [--intermediate N] [--rate R] [--weight-decay W] [--dropout P] [--log-every N] [--eval-every N] ' +
      '[--prompt TEXT] [--seed S] [--resume] [--shard none|optimizer|all] [--graph]',
  );
  process.exit(v.help ? 0 : 2);
}
if (!['none', 'optimizer', 'all'].includes(v.shard)) {
  console.error(`train-gpt: --shard ${v.shard} is none of none, optimizer, all`);
  process.exit(2);
}
const n = (name: keyof typeof v): number => Number(v[name]);
const world = await init({ device: v.device });
const { device } = world;
if (v.graph && world.size > 1) {
  console.error('train-gpt: --graph records the step of one rank; there are several');
  process.exit(2);
}
/** One rank speaks and writes for all. */
const say = (text: string): void => {
  if (world.first) console.error(text);
};
const dtype = v.dtype as DType;
const [batch, context, steps, every] = [n('batch'), n('context'), n('steps'), n('log-every')];
mkdirSync(v.out, { recursive: true });

// ---- text to tokens, the last tenth held back ----
const text = readFileSync(v.text, 'utf8');
const tokenizerPath = join(v.out, 'tokenizer.json');
if (world.first && (!v.resume || !existsSync(tokenizerPath))) {
  say(`learning a vocabulary of ${v.vocab} from ${text.length} characters`);
  writeFileSync(tokenizerPath, JSON.stringify(trainBpe(text, n('vocab'))));
  writeFileSync(
    join(v.out, 'tokenizer_config.json'),
    JSON.stringify({
      tokenizer_class: 'PreTrainedTokenizerFast',
      bos_token: '<|endoftext|>',
      eos_token: '<|endoftext|>',
    }),
  );
}
world.barrier(); // the vocabulary is written
const tokenizer = loadTokenizer(v.out);
// Long texts are encoded by paragraphs: the tokenizer's time grows faster than the text.
const tokens = Int32Array.from(text.split(/(?<=\n\n)/).flatMap((part) => tokenizer.encode(part, { special: false })));
const split = Math.floor(tokens.length * 0.9);
const [train, held] = [tokens.subarray(0, split), tokens.subarray(split)];

// ---- the model ----
const START = 0; // the first token of every vocabulary made here
const config: LlamaConfig = {
  vocabSize: tokenizer.vocabSize,
  hiddenSize: n('hidden'),
  intermediateSize: n('intermediate'),
  layers: n('layers'),
  heads: n('heads'),
  kvHeads: n('kv-heads'),
  headDim: n('hidden') / n('heads'),
  maxPositions: context,
  normEps: 1e-5,
  ropeTheta: 10000,
  tiedEmbeddings: true,
  bosTokenId: START,
  eosTokenIds: [START],
};
const generator = new Generator(n('seed'));
const model = new Llama(config, VarBuilder.fromVarMap(new VarMap(), { device, generator }), { dropout: n('dropout') });
const parameterCount = model.parameterCount();
const adam = (params: readonly Tensor[]): AdamW =>
  new AdamW(params, { learningRate: n('rate'), beta2: 0.95, weightDecay: n('weight-decay') });

/** How ranks share the work: each way takes a step by a loss, and reads and writes what it has learned. */
interface Way {
  readonly optimizer: Optimizer;
  step(loss: Tensor): void;
  /** Runs f with all parameters in place, on ranks that may each do something else. */
  whole<T>(f: () => Promise<T>): Promise<T>;
  /** What a checkpoint holds; `loaded` is told when these were read from one. */
  tensors(): Map<string, Tensor>;
  loaded(tensors: Map<string, Tensor>): void;
}
/** All parameters on every rank as one block, and the optimizer's state there too, or a part of it on each. */
function alike(): Way {
  const flat = new FlatParameters(model, dtype);
  const parallel = new DataParallel(model, world);
  const optimizer =
    v.shard === 'optimizer' ? new ShardedOptimizer([flat.master], world, adam, { reduced: true }) : adam([flat.master]);
  return {
    optimizer,
    step: (loss) => {
      const { grads } = clipGradNorm([flat.gather(parallel.backward(loss))], 1);
      flat.step(optimizer, grads[0]);
    },
    whole: (f) => f(),
    tensors: () => new Map([['master', flat.master]]),
    loaded: () => flat.refresh(),
  };
}
/** A part of everything on each rank. */
function divided(): Way {
  const parallel = new FullyShardedParallel(model, world, { dtype });
  const optimizer = parallel.optimizer(adam);
  return {
    optimizer,
    step: (loss) => {
      const grads = parallel.backward(loss);
      parallel.clipNorm(grads, 1);
      optimizer.step(grads);
    },
    whole: (f) => parallel.gathered(f),
    tensors: () => parallel.tensors(),
    loaded: (tensors) => parallel.load(tensors),
  };
}
const way = v.shard === 'all' ? divided() : alike();
const { optimizer } = way;
const schedule = warmup(Math.min(100, Math.ceil(steps / 10)), cosineDecay(steps, 0.1));
if (world.first) writeFileSync(join(v.out, 'config.json'), `${JSON.stringify(llamaJson(config, 'bf16'), null, 1)}\n`);
say(
  `${(parameterCount / 1e6).toFixed(2)}M parameters in ${dtype} on ${device.name} (${device.description}); ${tokens.length} tokens, ${train.length} to learn from${world.size > 1 ? `; ${world.size} ranks over ${world.transport.name}` : ''}`,
);

// ---- batches: windows at places drawn beforehand, so that a resumed run sees what the whole one would have ----
function windows(from: Int32Array, count: number, at: (i: number) => number): { x: Tensor; y: Tensor } {
  const [x, y] = [new Int32Array(count * context), new Int32Array(count * context)];
  for (let i = 0; i < count; i++) {
    const start = at(i);
    x.set(from.subarray(start, start + context), i * context);
    x[i * context] = START;
    y.set(from.subarray(start + 1, start + context + 1), i * context);
  }
  const on = (data: Int32Array): Tensor => tensor(data, { shape: [count, context], device });
  return { x: on(x), y: on(y) };
}
/**
 * 0 where the start token stands, at the head of every window: so the model learns what it will see before a prompt.
 */
const later = tensor(
  Int32Array.from({ length: context }, (_, i) => (i === 0 ? START : 1)),
  { shape: [1, context], device },
);
// Text and places lie on the device: a step uploads nothing and so waits for nothing.
const share = shareOf(batch, world);
const random = randomNumbers(n('seed'));
const places = tensor(
  Int32Array.from({ length: steps * batch }, () => Math.floor(random() * (train.length - context - 1))),
  { shape: [steps, batch], device },
);
const learned = tensor(Int32Array.from(train), { device });
const drawn = (step: number): { x: Tensor; y: Tensor } => {
  const at = places
    .get(step - 1)
    .narrow(0, share.from, share.count) // this rank's part of the batch
    .unsqueeze(1)
    .add(arange(0, context, 1, { dtype: 'i32', device }))
    .reshape([-1]);
  const take = (ids: Tensor): Tensor => learned.indexSelect(0, ids).reshape([share.count, context]);
  return { x: take(at).mul(later), y: take(at.affine(1, 1)) };
};
const lossOf = ({ x, y }: { x: Tensor; y: Tensor }): Tensor => model.forward(x).cast('f32').crossEntropy(y);

async function evaluate(): Promise<number> {
  model.eval();
  const count = Math.min(8, Math.max(1, Math.floor(held.length / (context * batch))));
  const stride = Math.max(1, Math.floor((held.length - context - 1) / (count * batch)));
  let sum = 0;
  for (let b = world.rank; b < count; b += world.size) {
    const loss = scope(() =>
      noGrad(() => lossOf(windows(held, batch, (i) => Math.min(held.length - context - 1, (b * batch + i) * stride)))),
    );
    sum += Number((await loss.data())[0]);
    loss.dispose();
  }
  model.train();
  const total = scope(() => world.allReduce(tensor([sum], { device })));
  const mean = Number((await total.data())[0]) / count;
  total.dispose();
  return mean;
}

async function sample(seed: number): Promise<string> {
  model.eval();
  const writer = new LanguageModel(model, tokenizer, (m) => new PlainDecoder(m));
  let out = '';
  for await (const piece of writer.generate(v.prompt, {
    maxTokens: Math.min(120, context - 8),
    temperature: 0.8,
    topP: 0.95,
    seed,
  }))
    out += piece;
  model.train();
  return out;
}

// ---- the run ----
const log = join(v.out, 'training.jsonl');
const checkpoint = join(v.out, 'checkpoint.safetensors');
const generators = { generator, dropout: defaultGenerator };
const curve: { train: [number, number][]; held: [number, number][] } = { train: [], held: [] };
let best = Infinity;
let first = 0;
if (v.resume && existsSync(checkpoint)) {
  const tensors = way.tensors();
  const saved = loadCheckpoint(checkpoint, { tensors, optimizer, generators }, device);
  way.loaded(tensors);
  first = saved.step;
  best = Number(saved.extra.best);
  Object.assign(curve, saved.extra.curve);
  say(`going on from step ${first}`);
} else if (world.first) writeFileSync(log, '');
ownStream(defaultGenerator, world);

const draw = (): void =>
  writePlot(
    join(v.out, 'loss.svg'),
    [
      { name: 'training', points: curve.train },
      { name: 'held-back text', points: curve.held },
    ],
    { title: `loss of ${(parameterCount / 1e6).toFixed(1)}M parameters` },
  );
const progress = new Progress(steps - first);
const begin = performance.now();
/** Time spent on evaluating and writing, which does not count as training. */
let paused = 0;
let pending: { step: number; loss: Tensor } | undefined;

/** Reads a loss one interval late: by then it is there, and nobody waited. */
async function settle(): Promise<void> {
  if (!pending) return;
  const { step, loss } = pending;
  pending = undefined;
  const value = Number((await loss.data())[0]);
  loss.dispose();
  const now = performance.now();
  const rate = (batch * context * (step - first)) / ((now - begin - paused) / 1000);
  curve.train.push([step, value]);
  if (!Number.isFinite(value)) throw new Error(`the loss is ${value} at step ${step}`);
  if (!world.first) return;
  appendFileSync(
    log,
    `${JSON.stringify({ step, loss: value, tokensPerSecond: Math.round(rate), learningRate: optimizer.learningRate, seconds: Math.round((now - begin) / 100) / 10 })}\n`,
  );
  progress.show(step - first, `loss ${value.toFixed(4)} ${Math.round(rate)} tokens/s`);
}

/** The held-back loss, the best model so far on disk, and some text. */
async function look(step: number): Promise<void> {
  const value = await evaluate();
  curve.held.push([step, value]);
  const better = value < best;
  best = Math.min(best, value);
  if (!world.first) return;
  appendFileSync(log, `${JSON.stringify({ step, heldLoss: value })}\n`);
  if (better)
    noGrad(() =>
      scope(() =>
        saveTensors(
          join(v.out, 'model.safetensors'),
          new Map([...model.hfTensors()].map(([name, t]) => [name, t.cast('bf16')])),
          { metadata: { format: 'pt' } },
        ),
      ),
    );
  draw();
  console.error(
    `\nstep ${step}: held-back loss ${value.toFixed(4)} (best ${best.toFixed(4)})\n--- ${JSON.stringify(v.prompt)} ->${await sample(step)}\n---`,
  );
}

/** The loss of a batch and a step by it. */
const learn = (x: Tensor, y: Tensor): Tensor => {
  const loss = lossOf({ x, y });
  way.step(loss);
  return loss.detach();
};
const takeStep = v.graph ? captured(learn) : learn;
for (let step = first + 1; step <= steps; step++) {
  optimizer.learningRate = n('rate') * schedule(step - 1);
  const loss = scope(() => {
    const { x, y } = drawn(step);
    const l = takeStep(x, y);
    return step % every === 0 ? world.allReduce(l, 'avg') : l;
  });
  if (step % every === 0) {
    await settle();
    pending = { step, loss };
  } else loss.dispose();
  if (step % n('eval-every') === 0 || step === steps) {
    await settle();
    const stopped = performance.now();
    await way.whole(() => look(step));
    saveCheckpointOnce(
      world,
      checkpoint,
      { tensors: way.tensors(), optimizer, generators },
      { step, extra: { best, curve } },
    );
    paused += performance.now() - stopped;
  }
}
const seconds = (performance.now() - begin) / 1000;
say(
  `${steps - first} steps in ${seconds.toFixed(1)} s, ${Math.round((batch * context * (steps - first)) / seconds)} tokens/s overall; best held-back loss ${best.toFixed(4)}; ${v.out}`,
);
