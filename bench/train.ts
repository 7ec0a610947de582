// Training steps at the sizes people quote, op by op where asked: node dist/bench/train.js --device cuda:0
//   [--only 124m,1.3b] [--profile] [--plain] [--graph] [--remake] [--any-order] [--json FILE] [--no-peers]
//   [--ways eager,compiled] [--first]
// --first ends after two steps: what a process waits for before it trains.
// --graph records the step (captured). Weights are bf16 with f32 masters, gradients are clipped by their norm, AdamW
// steps all parameters. PyTorch's figures, op by op and compiled, are of the same run where it is installed
// (bench/peers/pytorch-train.py).
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import {
  captured,
  Device,
  type DType,
  Generator,
  keep,
  noGrad,
  remaking,
  scope,
  tensor,
  type Tensor,
} from '../src/index.js';
import { type CausalLM, newDecoder } from '../src/models/index.js';
import { AdamW, FlatParameters, VarBuilder, VarMap } from '../src/nn/index.js';
import { commitNow } from '../src/parity/provenance.js';
import { profiled } from './profile.js';

const { values: v } = parseArgs({
  options: {
    device: { type: 'string', default: 'cpu' },
    only: { type: 'string', default: '124m,1.3b' },
    profile: { type: 'boolean', default: false },
    plain: { type: 'boolean', default: false },
    graph: { type: 'boolean', default: false },
    remake: { type: 'boolean', default: false },
    'any-order': { type: 'boolean', default: false },
    ways: { type: 'string', default: 'eager,compiled' },
    json: { type: 'string' },
    'no-peers': { type: 'boolean', default: false },
    first: { type: 'boolean', default: false },
  },
});
const device = Device.get(v.device);
/** Gradients of attention in any order, as PyTorch adds them up. */
device.deterministic = !v['any-order'];
const dtype: DType = 'bf16';

interface Shape {
  readonly batch: number;
  readonly context: number;
  readonly config: Readonly<Record<string, unknown>>;
}
const gpt2 = (layers: number, width: number, heads: number, vocab: number): Shape['config'] => ({
  ...{ model_type: 'gpt2', n_embd: width, n_head: heads, n_layer: layers, vocab_size: vocab, n_positions: 1024 },
  activation_function: 'gelu_pytorch_tanh',
});
const llama = (layers: number, width: number, heads: number, inner: number, vocab: number): Shape['config'] => ({
  ...{ model_type: 'llama', hidden_size: width, intermediate_size: inner, num_hidden_layers: layers },
  ...{ num_attention_heads: heads, num_key_value_heads: heads, vocab_size: vocab, max_position_embeddings: 2048 },
  ...{ rms_norm_eps: 1e-5, rope_theta: 10000, hidden_act: 'silu', tie_word_embeddings: true },
});
const SHAPES: Readonly<Record<string, Shape>> = {
  '30m': { batch: 16, context: 1024, config: gpt2(6, 384, 6, 50304) },
  '124m': { batch: 16, context: 1024, config: gpt2(12, 768, 12, 50304) },
  '350m': { batch: 16, context: 1024, config: gpt2(24, 1024, 16, 50304) },
  '774m': { batch: 16, context: 1024, config: gpt2(36, 1280, 20, 50304) },
  '1.3b': { batch: 4, context: 2048, config: llama(24, 2048, 16, 5632, 50304) },
  tiny: { batch: 2, context: 32, config: gpt2(2, 64, 4, 512) },
  'tiny-llama': { batch: 2, context: 32, config: llama(2, 64, 4, 96, 512) },
};
interface Result {
  readonly name: string;
  readonly tokens: number;
  readonly parameters: number;
  readonly firstStep: number;
  readonly hostMs: number;
  readonly peakGB: number;
  readonly losses: readonly [number, number];
  torch?: Readonly<Record<string, number>>;
}
const results: Result[] = [];

async function train(name: string, { batch, context, config }: Shape): Promise<void> {
  const builder = VarBuilder.fromVarMap(new VarMap(), { device, generator: new Generator(1) });
  const model = newDecoder(config as never, builder) as CausalLM;
  const first32 = model.parameters();
  const flat = new FlatParameters(model, dtype);
  for (const t of first32) t.dispose(); // they were copied
  const optimizer = new AdamW([flat.master], { learningRate: 1e-4 });
  const vocab = config.vocab_size as number;
  const ids = tensor(
    Int32Array.from({ length: batch * context }, (_, i) => (i * 7919) % vocab),
    { shape: [batch, context], device },
  );
  let last: Tensor | undefined;
  const work = (x: Tensor): Tensor => {
    const forward = (): Tensor => (v.plain ? model.forward(x).cast('f32').crossEntropy(x) : model.loss(x, x));
    const loss = v.remake ? remaking(forward) : forward();
    flat.backwardStep(loss, optimizer, { clipNorm: 1 });
    return loss;
  };
  const recorded = captured(work);
  const step = (): void =>
    scope(() => {
      const loss = v.graph ? recorded(ids) : work(ids);
      last?.dispose();
      last = noGrad(() => keep(loss.detach().copy()));
    });
  const run = async (n: number): Promise<{ ms: number; host: number }> => {
    const begin = performance.now();
    for (let i = 0; i < n; i++) step();
    const host = (performance.now() - begin) / n;
    await device.sync();
    return { ms: (performance.now() - begin) / n, host };
  };
  const first = await run(1);
  const before = (last as unknown as Tensor).item();
  const second = await run(1);
  if (v.first) {
    const both = [first, second].map((r) => (r.ms / 1000).toFixed(3)).join(' s, second ');
    console.log(`${name}: first step ${both} s (host ${(first.host / 1000).toFixed(3)} s), loss ${before}`);
    return;
  }
  await run(30); // the host's code is compiled by then
  const rounds = [await run(8), await run(8), await run(8)];
  const best = rounds.reduce((a, b) => (a.ms < b.ms ? a : b));
  const result: Result = {
    name: `${name}: ${(flat.size / 1e6).toFixed(1)}M parameters ${dtype}, ${batch}x${context} tokens`,
    tokens: (batch * context) / (best.ms / 1000),
    parameters: flat.size,
    firstStep: first.ms / 1000,
    hostMs: best.host,
    peakGB: device.memory().peakBytes / 1e9,
    losses: [before, (last as unknown as Tensor).item()],
  };
  results.push(result);
  console.log(
    `${result.name}: ${result.tokens.toFixed(0)} tokens/s, ${best.ms.toFixed(2)} ms a step (host ${best.host.toFixed(2)} ` +
      `ms), first step ${result.firstStep.toFixed(2)} s, second ${(second.ms / 1000).toFixed(2)} s, peak ` +
      `${result.peakGB.toFixed(1)} GB, loss ${result.losses.map((x) => x.toFixed(4)).join(' to ')}`,
  );
  if (v.profile) console.log(await profiled(device, step));
  recorded.dispose();
  model.dispose();
  device.trim();
}

console.log(`${device.name}: ${device.description}`);
for (const name of v.only.split(',')) {
  if (!Object.hasOwn(SHAPES, name)) throw new Error(`bench: unknown shape ${name}; known: ${Object.keys(SHAPES)}`);
  await train(name, SHAPES[name]);
}
if (!v['no-peers']) {
  const script = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'peers', 'pytorch-train.py');
  const ran = spawnSync('python3', [script, v.only, v.ways], { encoding: 'utf8', maxBuffer: 2 ** 24 });
  const torch = ran.status === 0 ? (JSON.parse(ran.stdout) as Record<string, Record<string, number>>) : {};
  for (const r of results) r.torch = torch[r.name.split(':')[0]];
  console.log(
    table(
      ['step', 'wick', 'PyTorch', 'compiled', 'wick / compiled', 'GB', 'PyTorch GB', 'compiled GB'],
      results.map((r) => [
        r.name,
        r.tokens.toFixed(0),
        r.torch?.eager?.toFixed(0) ?? '',
        r.torch?.compiled?.toFixed(0) ?? '',
        r.torch?.compiled ? (r.tokens / r.torch.compiled).toFixed(2) : '',
        r.peakGB.toFixed(1),
        r.torch?.eagerGB?.toFixed(1) ?? '',
        r.torch?.compiledGB?.toFixed(1) ?? '',
      ]),
    ),
  );
}
if (v.json)
  writeFileSync(
    v.json,
    `${JSON.stringify({ device: device.description, date: new Date().toISOString(), commit: commitNow(), anyOrder: v['any-order'], graph: v.graph, remake: v.remake, results }, null, 1)}\n`,
  );
