// Ranks that hold parts of a model's parameters: what they learn, and how much of them is together at a time.
import { FullyShardedParallel, type Group, saveCheckpointOnce, shareOf } from '../src/distributed/index.js';
import { noGrad, scope, tensor, Tensor } from '../src/index.js';
import { Llama } from '../src/models/index.js';
import { Adafactor, AdamW, loadCheckpoint, Module, VarBuilder, VarMap } from '../src/nn/index.js';
import { Generator } from '../src/tensor/random.js';

const list = (t: Tensor): number[] => [...(t.dataSync() as Float32Array)].map(Number);
const whole = (g: Group, shape: number[], salt: number): Tensor =>
  tensor(
    Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => ((i * 5 + salt) % 7) - 3),
    { shape, device: g.device },
  ).requireGrad();

/** Sums of small whole numbers: exact in any order. */
class Part extends Module {
  readonly weight: Tensor;
  readonly shift: Tensor;
  constructor(g: Group, salt: number) {
    super();
    this.weight = whole(g, [5, 5], salt);
    this.shift = whole(g, [1, 5], salt + 1);
  }
  forward(x: Tensor): Tensor {
    return x.matmul(this.weight).add(this.shift).clamp(-2, 2);
  }
}
class Stack extends Module {
  readonly first: Tensor;
  readonly parts: Part[];
  readonly unused: Tensor;
  constructor(g: Group, salt: number) {
    super();
    this.first = whole(g, [4, 5], salt);
    this.parts = [new Part(g, salt + 1), new Part(g, salt + 2), new Part(g, salt + 3)];
    this.unused = whole(g, [1, 3], salt);
  }
  forward(x: Tensor): Tensor {
    return this.parts.reduce((y, p) => p.forward(y), x.matmul(this.first));
  }
}
function batch(g: Group): Tensor {
  const { from, count } = shareOf(8, g);
  const numbers = Array.from({ length: 32 }, (_, i) => ((i * 3) % 5) - 2);
  return tensor(Float32Array.from(numbers.slice(from * 4, (from + count) * 4)), {
    shape: [count, 4],
    device: g.device,
  });
}

export interface Gathered {
  readonly grads: Record<string, number[]>;
  /** Bytes of parameters on this rank: between steps, at most during one, and of the whole model. */
  readonly idle: number;
  readonly peak: number;
  readonly all: number;
}
/** Gradients of a mean over the whole batch by name; how much was together meanwhile. */
export function fullGradients(g: Group): Gathered {
  const net = new Stack(g, g.rank === 0 ? 0 : 3); // ranks begin apart and are made alike
  const all = net.parameters().reduce((n, p) => n + p.size * 4, 0);
  const parallel = new FullyShardedParallel(net, g);
  const idle = parallel.liveBytes;
  let peak = idle;
  const look = (): void => void (peak = Math.max(peak, parallel.liveBytes));
  for (const part of net.parts) {
    part.onBeforeForward(look);
    part.onForward(look);
    part.onBackward(() => look());
  }
  const grads = scope(() => {
    const loss = net
      .forward(batch(g))
      .sqr()
      .sum()
      .affine(g.size / 8, 0);
    look();
    const got = parallel.backward(loss);
    look();
    // What the parts hold, put together as parameters are.
    noGrad(() => parallel.shards.forEach((s) => s.assign(got.of(s))));
    return Object.fromEntries([...parallel.tensors()].map(([name, t]) => [name, list(t)]));
  });
  if (parallel.liveBytes !== idle) throw new Error(`${parallel.liveBytes} bytes stay, ${idle} before`);
  return { grads, idle, peak, all };
}

/**
 * Three passes with and without fetching ahead: gradients of each, bytes together at most in the last one, and what the
 * last one did in which order.
 */
export function fetchedAhead(g: Group): { grads: number[][]; extra: number; log: string[] }[] {
  return [false, true].map((ahead) => {
    const net = new Stack(g, 0);
    const parallel = new FullyShardedParallel(net, g, { ahead });
    const idle = parallel.liveBytes;
    const log: string[] = [];
    let peak = 0;
    net.parts.forEach((part, i) => {
      part.onBeforeForward(() => void log.push(`forward ${i}`));
      part.onBackward(() => {
        peak = Math.max(peak, parallel.liveBytes);
        log.push(`backward ${i}`);
      });
    });
    const { allGather, reduceScatter } = g.transport;
    g.transport.allGather = (src, dst, overlap) => {
      log.push(overlap ? 'ahead' : 'now');
      return allGather.call(g.transport, src, dst, overlap);
    };
    g.transport.reduceScatter = (src, dst, op, overlap) => {
      const work = reduceScatter.call(g.transport, src, dst, op, overlap);
      log.push(overlap ? 'sums begin' : 'sums');
      return { wait: () => (work.wait(), void log.push('sums end')) };
    };
    try {
      const grads = [0, 1, 2].map((pass) =>
        scope(() => {
          if (pass === 2) log.length = peak = 0;
          const got = parallel.backward(net.forward(batch(g)).sqr().sum());
          const all = parallel.shards.flatMap((s) => list(got.of(s)));
          // Parts change between passes, as an optimizer changes them.
          noGrad(() => parallel.shards.forEach((s) => s.assign(s.sub(got.of(s).sign()))));
          return all;
        }),
      );
      if (parallel.liveBytes !== idle) throw new Error(`${parallel.liveBytes} bytes stay, ${idle} before`);
      return { grads, extra: peak - idle, log };
    } finally {
      Object.assign(g.transport, { allGather, reduceScatter });
    }
  });
}

const CONFIG = {
  ...{ vocabSize: 40, hiddenSize: 16, intermediateSize: 24, layers: 3, heads: 2, kvHeads: 1, headDim: 8 },
  ...{ maxPositions: 16, normEps: 1e-5, ropeTheta: 10000, tiedEmbeddings: true, eosTokenIds: [0] },
};
interface Run {
  readonly steps: number;
  readonly sharded: boolean;
  readonly load?: string;
  readonly save?: string;
  readonly dtype?: 'f32' | 'bf16';
}
/** Some steps of a small Llama; losses, and all parameters at the end. */
export async function trainLlama(g: Group, o: Run): Promise<{ losses: number[]; params: number[] }> {
  const generator = new Generator(5);
  const model = new Llama(CONFIG, VarBuilder.fromVarMap(new VarMap(), { device: g.device, generator }));
  const make = (p: readonly Tensor[]): AdamW => new AdamW(p, { learningRate: 0.01 });
  const parallel = o.sharded ? new FullyShardedParallel(model, g, { dtype: o.dtype ?? 'f32' }) : undefined;
  const optimizer = parallel ? parallel.optimizer(make) : make(model.parameters());
  let first = 0;
  if (o.load) {
    const tensors = parallel ? parallel.tensors() : model.namedParameters();
    first = loadCheckpoint(o.load, { tensors, optimizer }).step;
    parallel?.load(tensors);
  }
  const { from, count } = o.sharded ? shareOf(4, g) : { from: 0, count: 4 };
  const losses: number[] = [];
  for (let step = first; step < o.steps; step++)
    scope(() => {
      const row = (i: number): number[] => Array.from({ length: 9 }, (_, t) => (i * 11 + t * (3 + step)) % 40);
      const rows = Array.from({ length: count }, (_, i) => row(from + i));
      const ids = (at: number): Tensor =>
        tensor(Int32Array.from(rows.flatMap((r) => r.slice(at, at + 8))), { shape: [count, 8], device: g.device });
      const loss = model.forward(ids(0)).cast('f32').crossEntropy(ids(1));
      losses.push(o.sharded ? g.allReduce(loss.detach(), 'avg').item() : loss.item());
      if (parallel) {
        const grads = parallel.backward(loss);
        parallel.clipNorm(grads, 1);
        optimizer.step(grads);
      } else optimizer.backwardStep(loss, { clipNorm: 1 });
    });
  const tensors = parallel ? parallel.tensors() : model.namedParameters();
  if (o.save) saveCheckpointOnce(g, o.save, { tensors, optimizer }, { step: o.steps, extra: {} });
  // Together once more, as evaluation does it.
  const again = parallel
    ? await parallel.gathered(() => model.namedParameters().get('norm.weight')?.cast('f32').copy())
    : model.namedParameters().get('norm.weight');
  const names = [...tensors.keys()].sort();
  return { losses, params: [...names.flatMap((n) => list(tensors.get(n) as Tensor)), ...list(again as Tensor)] };
}

export function fullyShardedRefusals(g: Group): string[] {
  const said = (f: () => unknown): string => {
    try {
      f();
    } catch (e) {
      return (e as Error).message;
    }
    return 'nothing was said';
  };
  const net = new Stack(g, 0);
  const parallel = new FullyShardedParallel(net, g);
  const frozen = new Stack(g, 0);
  frozen.first.requireGrad(false);
  return [
    said(() => net.first.dataSync()),
    said(() => parallel.optimizer((p) => new Adafactor(p))),
    said(() => new FullyShardedParallel(frozen, g)),
    said(() => parallel.load(new Map())),
  ];
}
