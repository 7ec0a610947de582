// Ranks that serve one model together: rank 0 takes requests, the others follow its steps.
import type { Group } from '../src/distributed/index.js';
import {
  builtinModel,
  type GenerationRequest,
  LanguageModel,
  type Piece,
  type StepGroup,
  TextEngine,
} from '../src/engine/index.js';
import { type CausalLM, loadModel } from '../src/models/index.js';
import { loadTokenizer } from '../src/tokenizers/index.js';
import { standInWorld } from './distributed-ranks.js';

const PROMPTS = ['Once upon a time', 'The cat', 'One day a boy', 'Once upon a time there was'];

/** What answers to many requests at once look like: greedy, drawn, several at a time, guessed ahead, with few pages. */
export async function served(g: Group): Promise<string[] | string> {
  const model = await LanguageModel.load(builtinModel, { device: 'cpu', shard: g });
  const engine = model.engine({ pageTokens: 4, pages: 24, stepTokens: 16, contextTokens: 64 });
  if (!g.first) {
    await model.follow();
    return 'followed';
  }
  const drawn = { temperature: 1, topK: 20, maxTokens: 12 };
  const all = await Promise.all([
    model.batch(PROMPTS, { temperature: 0, maxTokens: 16 }),
    model.batch(PROMPTS, { ...drawn, seed: 7 }),
    model.batch([PROMPTS[0].repeat(3)], { temperature: 0, maxTokens: 10, speculate: 'prompt-lookup' }),
  ]);
  const two: string[] = ['', ''];
  const request = { prompt: model.encode(PROMPTS[1]), n: 2, seed: 3, ...drawn };
  for await (const p of engine.submit(request)) two[p.choice] += p.text;
  // One that is left in the middle takes nothing from the next.
  const stop = new AbortController();
  for await (const _ of model.reply(PROMPTS[0], { maxTokens: 40, signal: stop.signal })) stop.abort();
  const { total } = await model.score('Once upon', ' a time');
  const { preemptions, pagesUsed } = engine.status();
  if (pagesUsed !== 0) throw new Error(`${pagesUsed} pages are still held`);
  if (preemptions === 0) throw new Error('no answer lost its pages: the test is too small');
  await engine.dispose();
  model.dispose();
  return [...all.flat().map((c) => c.text), ...two, total.toFixed(3)];
}

interface Asked {
  readonly paths: readonly string[];
  readonly way: 'shard' | 'stages' | 'both' | 'recorded';
  readonly count: number;
}
/** Greedy tokens of small models, two prompts at a time, through an engine; a refusal's sentence where it cannot be. */
export async function engineTokens(g: Group, { paths, way, count }: Asked): Promise<unknown[]> {
  const world = way === 'recorded' ? standInWorld(g).world : g;
  const how = (): { shard?: Group; stages?: Group } => {
    if (way === 'stages') return { stages: world };
    if (way !== 'both') return { shard: world };
    return { shard: world.split(Math.floor(world.rank / 2)), stages: world.split(world.rank % 2) };
  };
  const tokenizer = loadTokenizer(builtinModel);
  const answers: unknown[] = [];
  for (const path of paths) {
    const device = way === 'recorded' ? world.device : 'cpu';
    const { model } = loadModel<CausalLM>(path, { kind: 'decoder', device, ...how() });
    const ranks: { ranks?: StepGroup } = way === 'both' ? { ranks: world } : {};
    const engine = new TextEngine(model, tokenizer, { pageTokens: 4, stepTokens: 6, contextTokens: 24, ...ranks });
    if (g.rank > 0) await engine.follow();
    else {
      const prompts = [
        [5, 17, 50, 31, 8, 2, 40],
        [9, 3, 21],
      ];
      const ask = async (prompt: number[]): Promise<number[]> => {
        const request: GenerationRequest = { prompt, maxTokens: count, temperature: 0, ignoreEnd: true };
        const pieces: Piece[] = [];
        for await (const piece of engine.submit(request)) pieces.push(piece);
        return pieces.flatMap((p) => p.tokens);
      };
      answers.push(await Promise.all(prompts.map(ask)));
      await engine.dispose();
    }
    model.dispose();
  }
  return answers;
}

/** What is said where the calls of a shared model do not fit the rank. */
export async function wrongCalls(g: Group): Promise<string[]> {
  const model = await LanguageModel.load(builtinModel, { device: 'cpu', shard: g });
  const said: string[] = [];
  const told = async (f: () => unknown): Promise<void> => {
    try {
      await f();
      said.push('nothing');
    } catch (e) {
      said.push((e as Error).message);
    }
  };
  model.engine({ contextTokens: 32 });
  if (g.first) await told(() => model.follow());
  else await told(() => model.reply('a'));
  await told(async () => {
    for await (const _ of model.generate('a')) break;
  });
  g.barrier();
  if (g.first) model.dispose();
  else await model.follow();
  return said;
}

/** Rank 0 disposes of its model as the last thing it does, with the engine at rest or in the middle of a step. */
export async function disposedOf(g: Group, when: 'at rest' | 'writing'): Promise<string> {
  const model = await LanguageModel.load(builtinModel, { device: 'cpu', shard: g });
  model.engine({ contextTokens: 32 });
  if (!g.first) await model.follow();
  else {
    if (when === 'writing') {
      const reply = model.reply('Once', { maxTokens: 20 });
      reply.done.catch(() => {}); // that it ends is not what is asked here
      await new Promise((r) => setImmediate(r));
    }
    model.dispose();
  }
  return when;
}

/** A step that fails on one rank, as if its device had gone. */
export async function failingStep(g: Group, which: number): Promise<string> {
  const model = await LanguageModel.load(builtinModel, { device: 'cpu', shard: g });
  let broken = '';
  const engine = model.engine({ contextTokens: 32, onBroken: (e) => (broken = e.message) });
  if (g.rank === which)
    model.model.norm.forward = () => {
      throw new Error('the device has gone');
    };
  if (!g.first) {
    await model.follow();
    return 'followed';
  }
  const said = await model.reply('Once', { maxTokens: 4 }).done.then(
    () => 'nothing',
    (e: Error) => e.message,
  );
  process.stderr.write(`said: ${said}; broken: ${broken}; running ${engine.status().running}\n`);
  process.exit(1);
}
