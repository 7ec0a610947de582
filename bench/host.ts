// What the host does for a call on a GPU, in microseconds from the method to the driver, which does nothing here: no
// GPU is needed. `node dist/bench/host.js [--beside DIST] [--only TEXT] [--rounds N] [--json FILE] [--launches FILE]`.
// --beside runs another build (the folder dist of another checkout) in the same process, in turns with this one.
// --launches writes the list of what every case of the op matrix's sample launches: two builds can be compared by it.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { table } from '../src/cli/table.js';
import type { Device as AnyDevice, Tensor } from '../src/index.js';
import type { CausalLM } from '../src/models/index.js';
import { commitNow } from '../src/parity/provenance.js';
import { IdleGpu } from '../src/testing/idle-gpu.js';

const option = { type: 'string' } as const;
const { values } = parseArgs({
  options: { beside: option, only: option, rounds: { ...option, default: '15' }, json: option, launches: option },
});

/** A build of this package, loaded beside others. */
async function load(dist: string) {
  const part = <T>(path: string): Promise<T> => import(join(dist, path)) as Promise<T>;
  return {
    wick: await part<typeof import('../src/index.js')>('src/index.js'),
    nn: await part<typeof import('../src/nn/index.js')>('src/nn/index.js'),
    models: await part<typeof import('../src/models/index.js')>('src/models/index.js'),
    gpu: await part<typeof import('../src/backends/gpu/gpu.js')>('src/backends/gpu/gpu.js'),
    cases: await part<typeof import('../src/testing/cases.js')>('src/testing/cases.js'),
    table: await part<typeof import('../src/ops/table.js')>('src/ops/table.js'),
  };
}
type Build = Awaited<ReturnType<typeof load>>;

/** The idle GPU as a device of a build, with stand-ins of libraries that do nothing either. */
function idle({ wick, gpu }: Build, ...libraries: ('blas' | 'attention')[]): { device: AnyDevice; bare: IdleGpu } {
  const bare = new IdleGpu(undefined, libraries);
  const backend = new gpu.GpuBackend('idle', bare);
  bare.onAttention = (plan) => backend.context.libraries.keepWay(plan, 0);
  return { bare, device: new (wick.Device as unknown as new (b: typeof backend) => AnyDevice)(backend) };
}

/** Calls by name; tensors made in them go at once. */
function works(build: Build): Readonly<Record<string, () => unknown>> {
  const { wick, nn } = build;
  const { device } = idle(build, 'blas');
  const { device: alone } = idle(build);
  const { device: library } = idle(build, 'blas', 'attention');
  const make = (shape: number[], dtype: 'f32' | 'bf16' | 'i64' | 'i32' = 'f32', on = device): Tensor =>
    wick.keep(wick.zeros(shape, { dtype, device: on }));
  const [a, b, row, weight] = [make([64, 1024]), make([64, 1024]), make([1024]), make([1024, 1024])];
  const turned = make([1024, 64]).t();
  const linear = new nn.Linear(weight, row);
  const ids = make([32], 'i64');
  const bf = (on: AnyDevice, ...shape: number[]): Tensor => make(shape, 'bf16', on);
  const [q, k, v] = [0, 1, 2].map(() => bf(alone, 4, 16, 2048, 64));
  const [ql, kl, vl] = [0, 1, 2].map(() => bf(library, 4, 16, 2048, 64));
  const [q1, k1, v1] = [bf(alone, 4, 16, 1, 64), k, v];
  const mask = bf(alone, 1, 1, 2048, 2048);
  const [qp, kp, vp] = [0, 1, 2].map(() => bf(alone, 8192, 16, 64));
  const starts = make([5], 'i32', alone);
  const own = a.matmul(weight);
  const alonesWeight = make([1024, 1024], 'f32', alone);
  const alonesRow = make([64, 1024], 'f32', alone);
  const grads = (...of: Tensor[]): Tensor[] => of.map((t) => wick.keep(t.detach()).requireGrad());
  const [qg, kg, vg] = grads(q, k, v);
  const [qlg, klg, vlg] = grads(ql, kl, vl);
  const [ag, bg] = grads(a, b);
  const dout = make([4, 16, 2048, 64], 'bf16', alone);
  const doutLibrary = make([4, 16, 2048, 64], 'bf16', library);
  const ones = make([64, 1024]);
  const packed = { causal: true, maxQueries: 2048, maxKeys: 2048 };
  return {
    'add, same shape': () => a.add(b),
    'add, a number': () => a.add(2),
    'add, broadcast': () => a.add(row),
    'add, strided': () => a.add(turned),
    relu: () => a.relu(),
    gelu: () => a.gelu(),
    'transpose (a view)': () => a.t(),
    'sum along 1': () => a.sum(1),
    softmax: () => a.softmax(1),
    layerNorm: () => a.layerNorm(row, row),
    rmsNorm: () => a.rmsNorm(row),
    'matmul by a library': () => a.matmul(weight),
    'matmul, own kernel': () => alonesRow.matmul(alonesWeight),
    'linear with bias': () => linear.forward(a),
    indexSelect: () => own.indexSelect(0, ids),
    'sdpa, own kernel': () => q.sdpa(k, v),
    'sdpa, causal': () => q.sdpa(k, v, { causal: true }),
    'sdpa, mask': () => q.sdpa(k, v, { mask }),
    'sdpa, one query': () => q1.sdpa(k1, v1),
    'sdpa, by a library': () => ql.sdpa(kl, vl, { causal: true }),
    sdpaVarlen: () => qp.sdpaVarlen(kp, vp, starts, starts, packed),
    'add and its gradients': () => ag.add(bg).backward({ grad: ones }),
    'sdpa and its gradients': () => qg.sdpa(kg, vg, { causal: true }).backward({ grad: dout }),
    'sdpa and its gradients, by a library': () => qlg.sdpa(klg, vlg, { causal: true }).backward({ grad: doutLibrary }),
    'training step of one block': step(build, library),
  };
}

/** A language model of one block: forward, backward, AdamW on f32 masters of bf16 weights, as in bench/train.ts. */
function step({ wick, nn, models }: Build, device: AnyDevice): () => unknown {
  const builder = nn.VarBuilder.fromVarMap(new nn.VarMap(), { device });
  const sizes = { n_embd: 768, n_head: 12, n_layer: 1, vocab_size: 50304, n_positions: 1024 };
  const config = { model_type: 'gpt2', activation_function: 'gelu_pytorch_tanh', ...sizes };
  const model = models.newDecoder(config as never, builder) as CausalLM;
  const flat = new nn.FlatParameters(model, 'bf16');
  const optimizer = new nn.AdamW([flat.master], { learningRate: 1e-4 });
  const ids = wick.keep(wick.zeros([16, 1024], { dtype: 'i32', device }));
  return () => flat.backwardStep(model.loss(ids, ids), optimizer, { clipNorm: 1 });
}

/** It moves in ticks of some milliseconds: rounds are long, and their mean is told. */
const SCHEDULER = '/proc/thread-self/schedstat';
/** Nanoseconds of this thread on a core where the system tells them (Linux), so that others' work does not count. */
const now = existsSync(SCHEDULER)
  ? (): number => Number(readFileSync(SCHEDULER, 'latin1').split(' ')[0])
  : (): number => Number(process.hrtime.bigint());
/** Microseconds a call; results are freed at once, as scopes do. */
function time({ wick }: Build, f: () => unknown, calls: number): number {
  const begin = now();
  for (let i = 0; i < calls; i++) wick.scope(() => void f());
  return (now() - begin) / calls / 1000;
}

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const builds = await Promise.all([here, ...(values.beside ? [resolve(values.beside)] : [])].map(load));

/** Cases of an op in the list of launches, spread over all of its own. */
const CASES = 4;
/** What a sample of the matrix launches, a line a launch: cases alternate between libraries and our own kernels. */
function launches(build: Build): string {
  const { cases, wick } = build;
  const lines: string[] = [];
  const devices = [idle(build), idle(build, 'blas', 'attention')];
  for (const row of build.table.opList) {
    const all = [...cases.casesOf([row])];
    for (let i = 0; i < Math.min(CASES, all.length); i++) {
      const c = all[Math.floor((i * all.length) / Math.min(CASES, all.length))];
      const { device, bare } = devices[i % 2];
      lines.push(`# ${c.name}`);
      wick.scope(() => {
        try {
          const { tensors } = cases.buildInputs(c, device);
          bare.list = lines;
          cases.runCase(c, tensors, device);
        } catch (e) {
          lines.push(`error ${(e as Error).message}`);
        }
        bare.list = undefined;
      });
    }
  }
  return `${lines.join('\n')}\n`;
}

if (values.launches) writeFileSync(values.launches, launches(builds[values.beside ? 1 : 0]));
else {
  const all = builds.map(works);
  const rounds = Number(values.rounds);
  const results = Object.keys(all[0])
    .filter((name) => name.includes(values.only ?? ''))
    .map((name) => {
      const first = all.map((w, i) => time(builds[i], w[name], 20));
      for (const [i, w] of all.entries()) time(builds[i], w[name], 1000);
      const calls = Math.max(4, Math.min(20_000, Math.round(40_000 / time(builds[0], all[0][name], 500))));
      const warm = all.map(() => 0);
      for (let r = 0; r < rounds; r++)
        for (const [i, w] of all.entries()) warm[i] += time(builds[i], w[name], calls) / rounds;
      const told = (of: readonly number[]): number[] => of.map((us) => Number(us.toFixed(1)));
      return { name, first20: told(first), warm: told(warm) };
    });
  const heads = builds.length === 1 ? ['µs'] : ['µs', 'beside'];
  console.log(
    table(
      ['call', ...heads.map((h) => `${h} warm`), ...heads.map((h) => `${h}, first 20`)],
      results.map((r) => [r.name, ...r.warm.map(String), ...r.first20.map(String)]),
    ),
  );
  const record = { date: new Date().toISOString(), commit: commitNow(), results };
  if (values.json) writeFileSync(values.json, `${JSON.stringify(record, null, 1)}\n`);
}
