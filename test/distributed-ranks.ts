// What ranks do in the tests of wick/distributed: run by threads, by processes over sockets and by mpirun alike. Each
// function gets the world and answers plain data.
import assert from 'node:assert/strict';
import type { GpuBackend } from '../src/backends/gpu/gpu.js';
import { DTYPES } from '../src/base/dtype.js';
import type { ExchangeTransport } from '../src/distributed/exchange.js';
import { DataParallel, Group, saveCheckpointOnce, ShardedOptimizer, shareOf } from '../src/distributed/index.js';
import { NcclTransport } from '../src/distributed/nccl.js';
import { openNccl } from '../src/driver/nccl.js';
import type { HostedDevice } from '../src/stand-ins/library.js';
import { ncclStandIn } from '../src/stand-ins/nccl.js';
import { Device, noGrad, scope, tensor, type Tensor } from '../src/index.js';
import { Adafactor, AdamW, FlatParameters, loadCheckpoint, Module, type Optimizer, SGD } from '../src/nn/index.js';
import { recorded } from '../src/tensor/recorded.js';

type Numbers = number[];
const list = (t: Tensor): Numbers => Array.from(t.dataSync() as Iterable<number | bigint>, Number);
const on = (g: Group, values: Numbers, shape?: Numbers): Tensor =>
  tensor(Float32Array.from(values), { device: g.device, ...(shape && { shape }) });

/** Every collective on every dtype it takes, with what must come out computed on the spot. */
export function collectives(g: Group): string[] {
  const [n, r] = [g.size, g.rank];
  const ranks = Array.from({ length: n }, (_, i) => i);
  const x = on(g, [r + 1, 1 - r, 0.5, r * r], [2, 2]);
  const every = ranks.map((i) => [i + 1, 1 - i, 0.5, i * i]);
  const column = (f: (v: Numbers) => number): Numbers => [0, 1, 2, 3].map((k) => f(every.map((e) => e[k])));
  const sum = column((v) => v.reduce((a, b) => a + b));
  assert.deepEqual(list(g.allReduce(x)), sum);
  assert.deepEqual(
    list(g.allReduce(x, 'avg')),
    sum.map((v) => Math.fround(v / n)),
  );
  assert.deepEqual(
    list(g.allReduce(x, 'prod')),
    column((v) => v.reduce((a, b) => a * b)),
  );
  assert.deepEqual(
    list(g.allReduce(x, 'max')),
    column((v) => Math.max(...v)),
  );
  assert.deepEqual(
    list(g.allReduce(x, 'min')),
    column((v) => Math.min(...v)),
  );
  assert.deepEqual(list(g.allReduce(x.t())), [sum[0], sum[2], sum[1], sum[3]], 'a view');
  assert.deepEqual(list(g.allGather(x)), every.flat());
  assert.deepEqual(g.allGather(x, 1).shape, [2, 2 * n]);
  assert.deepEqual(
    list(g.allGather(x, -1).get(0)),
    every.flatMap((e) => e.slice(0, 2)),
  );
  const wide = on(
    g,
    ranks.flatMap((i) => [r + i, 10 * i]),
    [n, 2],
  );
  assert.deepEqual(list(g.reduceScatter(wide)), [ranks.reduce((s, i) => s + i + r, 0), 10 * r * n]);
  assert.deepEqual(list(g.reduceScatter(wide.t().contiguous(), 1).reshape([-1])), list(g.reduceScatter(wide)));
  for (const root of [0, n - 1]) assert.deepEqual(list(g.broadcast(x, root)), every[root]);
  const into = x.copy();
  g.broadcastInto(into, n - 1);
  assert.deepEqual(list(into), every[n - 1]);
  const begun = x.copy();
  const work = g.beginAllReduce(begun, 'avg');
  work.wait();
  assert.deepEqual(
    list(begun),
    sum.map((v) => Math.fround(v / n)),
  );
  for (const dtype of DTYPES.filter((d) => d !== 'bool')) {
    const small = tensor(Int32Array.of(r, 2, 1), { device: g.device }).cast(dtype);
    const total = list(g.allReduce(small));
    assert.deepEqual(total, [(n * (n - 1)) / 2, 2 * n, n], `sum of ${dtype}`);
    assert.equal(g.allReduce(small).dtype, dtype);
    assert.deepEqual(
      list(g.allGather(small)),
      ranks.flatMap((i) => [i, 2, 1]),
      `gathered ${dtype}`,
    );
  }
  assert.deepEqual(
    list(g.allGather(tensor([r % 2 === 0], { dtype: 'bool', device: g.device }))),
    ranks.map((i) => 1 - (i % 2)),
  );
  assert.deepEqual(g.allGather(on(g, [], [0, 3])).shape, [0, 3]);
  // A ring: what every rank sends to the next.
  if (n > 1) {
    if (r % 2 === 0) g.send(x, (r + 1) % n);
    const got = g.recv([2, 2], 'f32', (r + n - 1) % n);
    if (r % 2 === 1) g.send(x, (r + 1) % n);
    assert.deepEqual(list(got), every[(r + n - 1) % n]);
  }
  g.barrier();
  return [g.transport.name, String(g)];
}

/** Gradients of a loss that is the sum of all ranks' losses. */
export function gradients(g: Group): Numbers[] {
  const [n, r] = [g.size, g.rank];
  const leaf = (values: Numbers, shape?: Numbers): Tensor => on(g, values, shape).requireGrad();
  const weights = on(g, [r + 1, 2 * r + 1]);
  const out: Numbers[] = [];
  const a = leaf([1, 2]);
  out.push(list(g.allReduce(a).mul(weights).sum().backward().of(a)));
  const b = leaf([1, 2]);
  out.push(list(g.allReduce(b, 'avg').mul(weights).sum().backward().of(b)));
  const c = leaf([1]);
  const rows = on(
    g,
    Array.from({ length: n }, (_, i) => (r + 1) * (i + 1)),
  );
  out.push(list(g.allGather(c).mul(rows).sum().backward().of(c)));
  const d = leaf(Array.from({ length: n }, (_, i) => i));
  out.push(
    list(
      g
        .reduceScatter(d)
        .mul(r + 1)
        .sum()
        .backward()
        .of(d),
    ),
  );
  const e = leaf([3, 4]);
  out.push(
    list(
      g
        .broadcast(e, n - 1)
        .mul(weights)
        .sum()
        .backward()
        .of(e),
    ),
  );
  const f = leaf([1, 2]);
  assert.throws(() => g.allReduce(f, 'max').sum().backward(), /only sums and averages have a gradient/);
  return out;
}

/** Groups by colour and by list. */
export function groups(g: Group): Numbers[] {
  const parity = g.split(g.rank % 2);
  const sum = list(parity.allReduce(on(g, [g.rank])));
  const pair = g.group([0, g.size - 1]);
  const both = pair ? list(pair.allGather(on(g, [g.rank]))) : [];
  const inner = parity.split(0);
  return [sum, [parity.rank, parity.size], both, list(inner.allReduce(on(g, [1])))];
}

/** All of the above in one run: starting processes takes longest. */
export const everything = (g: Group) => ({ collectives: collectives(g), gradients: gradients(g), groups: groups(g) });

/** Ranks that do not do the same thing are told so. */
export function misuse(g: Group): string {
  try {
    if (g.rank === 0) g.allReduce(on(g, [1, 2]));
    else g.allReduce(on(g, [1, 2, 3]));
  } catch (e) {
    return (e as Error).message;
  }
  return 'nothing was said';
}
/** One rank does not come, until the other has been told so. */
export function late(g: Group, told: Int32Array): string {
  if (g.rank === 1) {
    Atomics.wait(told, 0, 0);
    return 'late';
  }
  try {
    g.barrier();
  } catch (e) {
    return (e as Error).message;
  } finally {
    Atomics.store(told, 0, 1);
    Atomics.notify(told, 0);
  }
  return 'nothing was said';
}
export const refusals = (g: Group): string[] => {
  const said = (f: () => unknown): string => {
    try {
      f();
    } catch (e) {
      return (e as Error).message;
    }
    return 'nothing was said';
  };
  return [
    said(() => g.allReduce(tensor([true], { dtype: 'bool', device: g.device }))),
    said(() => g.allReduce(tensor(Int32Array.of(1), { device: g.device }), 'avg')),
    said(() =>
      g.reduceScatter(
        on(
          g,
          Array.from({ length: g.size + 1 }, () => 0),
        ),
      ),
    ),
    said(() => g.send(on(g, [1]), g.size)),
    said(() => g.allReduce(on(g, [1]), 'mean' as 'avg')),
    said(() => g.allGather(on(g, [1]), 1)),
  ];
};

/** Rank 1 ends without a word while the others wait for it. */
export async function die(g: Group, how: string): Promise<string> {
  g.barrier();
  if (g.rank === 1) {
    if (how === 'killed') process.kill(process.pid, 'SIGKILL');
    if (how === 'throws') throw new Error('rank 1 has had enough');
    process.exit(3);
  }
  g.barrier();
  await new Promise((r) => setTimeout(r, 60_000));
  return 'went on';
}

/**
 * A group over NCCL's binding and transport on a simulated GPU, with a stand-in of the library that meets through g.
 */
export function standInWorld(g: Group): { world: Group; name: string; asked: string[]; meetings: () => number } {
  const { hub } = g.transport as ExchangeTransport;
  const device = Device.get('sim:32');
  const { device: gpu } = (device.backend as GpuBackend).context;
  const members = Array.from({ length: g.size }, (_, i) => i);
  let meetings = 0;
  const meeting = {
    exchange: (size: number, what: string, bytes: Uint8Array) => {
      meetings++;
      // Groups of one need nobody; others are all ranks in these tests.
      return size === 1 ? [bytes] : hub.exchange('stand-in', members, what, bytes);
    },
    send: (to: number, bytes: Uint8Array) => hub.send(to, 'stand-in', bytes),
    recv: (from: number) => hub.recv(from, 'stand-in'),
  };
  const asked: string[] = [];
  const nccl = openNccl(gpu, (spec) => {
    asked.push(spec.name);
    return ncclStandIn(gpu as HostedDevice, meeting);
  });
  assert.ok(typeof nccl !== 'string');
  const channels = { hub, members, name: 'nccl', fail: (): void => {} };
  const world = new Group(new NcclTransport(nccl, device, hub, members, 'nccl'), device, channels);
  return { world, name: nccl.name, asked, meetings: () => meetings };
}
/** All that NCCL's transport does. */
export function ncclStandInRun(g: Group, collective: 'NCCL' | 'RCCL'): string {
  const { world, name, asked, meetings } = standInWorld(g);
  const { device } = world;
  const [n, r] = [world.size, world.rank];
  const ranks = Array.from({ length: n }, (_, i) => i);
  const x = on(world, [r + 1, 2 * r, 3], [3]);
  assert.deepEqual(list(world.allReduce(x)), [(n * (n + 1)) / 2, n * (n - 1), 3 * n]);
  assert.deepEqual(list(world.allReduce(x, 'avg')), [(n + 1) / 2, n - 1, 3]);
  assert.deepEqual(list(world.allReduce(x.cast('bf16'))), [(n * (n + 1)) / 2, n * (n - 1), 3 * n]);
  assert.deepEqual(
    list(world.allGather(x)),
    ranks.flatMap((i) => [i + 1, 2 * i, 3]),
  );
  assert.deepEqual(
    list(
      world.reduceScatter(
        on(
          world,
          ranks.map((i) => i + r),
        ),
      ),
    ),
    [ranks.reduce((s, i) => s + i + r, 0)],
  );
  assert.deepEqual(list(world.broadcast(x, n - 1)), [n, 2 * (n - 1), 3]);
  const flags = tensor([r === 0], { dtype: 'bool', device });
  assert.deepEqual(
    list(world.allGather(flags)),
    ranks.map((i) => (i === 0 ? 1 : 0)),
    'what has no number moves as bytes',
  );
  if (r === 0) world.send(x, 1);
  if (r === 1) assert.deepEqual(list(world.recv([3], 'f32', 0)), [1, 0, 3]);
  const beside = x.copy();
  world.beginAllReduce(beside, 'max').wait();
  assert.deepEqual(list(beside), [n, 2 * (n - 1), 3]);
  // A recorded step with a collective inside: nobody is met while it is recorded, everybody when it is replayed.
  const out = x.copy();
  world.allReduce(x);
  const before = meetings();
  const replay = device.capture(() => scope(() => void out.assign(world.allReduce(x))));
  assert.equal(meetings(), before);
  replay.launch();
  replay.launch();
  assert.equal(meetings(), before + 2);
  assert.deepEqual(list(out), [(n * (n + 1)) / 2, n * (n - 1), 3 * n]);
  replay.dispose();
  assert.throws(() => replay.launch(), /launch: recorded work that is gone: it was disposed of/);
  assert.throws(() => world.allReduce(on(g, [1])), /a tensor is on cpu; this group works on sim:32/);
  world.barrier();
  const alone = world.split(r);
  assert.deepEqual([alone.rank, alone.size, ...list(alone.allReduce(x))], [0, 1, r + 1, 2 * r, 3]);
  alone.close();
  const part = world.split(0);
  // A recording that failed half way holds nothing; one that is alive ends with the group (the stand-in refuses to end
  // a communicator that graphs hold, where the library would wait for ever).
  assert.throws(
    () =>
      device.capture(() => {
        world.allReduce(x);
        throw new Error('half way');
      }),
    /half way/,
  );
  const living = device.capture(() => scope(() => void out.assign(world.allReduce(x))));
  const apart = device.capture(() => scope(() => void out.assign(x)));
  world.close();
  assert.throws(
    () => living.launch(),
    new RegExp(`recorded work that is gone: rank ${r} of ${n}: the group it talks to has ended`),
  );
  living.dispose();
  apart.launch(); // knows nothing of the group
  apart.dispose();
  assert.throws(() => world.allReduce(x), /this group was closed/);
  assert.throws(() => world.barrier(), /this group was closed/);
  assert.throws(() => part.allReduce(x), /this group was closed/);
  assert.deepEqual(asked, [collective]);
  return name;
}

/** A group that nobody closes, and recorded work with its calls inside: how a process that ends lets go of both. */
export function ncclAbandoned(g: Group): void {
  const { world } = standInWorld(g);
  const x = on(world, [1, 2], [2]);
  const part = world.split(0);
  const living = world.device.capture(() => scope(() => void x.assign(part.allReduce(x))));
  const transport = world.transport as NcclTransport;
  if (g.rank === 0) transport.abandon(); // the others need not take part, nor at the same time
  g.barrier();
  transport.abandon();
  assert.throws(() => living.launch(), /recorded work that is gone: rank \d of 2: the group it talks to has ended/);
  for (const group of [world, part]) assert.throws(() => group.allReduce(x), /this group was closed/);
  living.dispose();
  transport.abandon(); // nothing is left to end
  world.close();
}

/** A net whose sums are exact in any order: small whole numbers, no division but by powers of two. */
class Net extends Module {
  readonly first: Tensor;
  readonly unused: Tensor;
  readonly second: Tensor;
  readonly third: Tensor;
  readonly log: string[];
  constructor(g: Group, seed: number, log: string[] = []) {
    super();
    const make = (shape: Numbers, salt: number): Tensor =>
      on(
        g,
        Array.from({ length: shape[0] * shape[1] }, (_, i) => ((i * 5 + salt + seed) % 7) - 3),
        shape,
      ).requireGrad();
    this.first = make([4, 6], 1);
    this.unused = make([2, 2], 2);
    this.second = make([6, 5], 3);
    this.third = make([5, 2], 4);
    this.log = log;
  }
  forward(x: Tensor): Tensor {
    const marked = recorded(
      { name: 'mark', formula: 'x', grad: (grad) => (this.log.push('the pass reaches the first layer'), grad) },
      x.matmul(this.first),
      x.matmul(this.first).detach(),
    );
    return marked.relu().matmul(this.second).relu().matmul(this.third);
  }
}
const batchOf = (g: Group, rows: number): Tensor => {
  const { from, count } = shareOf(rows, g);
  const numbers = Array.from({ length: rows * 4 }, (_, i) => ((i * 3) % 5) - 2);
  return on(g, numbers.slice(from * 4, (from + count) * 4), [count, 4]);
};

/** Gradients of a mean over the whole batch, in buckets of a few numbers. */
export function dataParallel(g: Group): { names: string[]; grads: Numbers[]; log: string[] } {
  const log: string[] = [];
  const net = new Net(g, g.rank, log); // ranks begin apart and are made alike
  const parallel = new DataParallel(net, g, { bucketBytes: 64, firstBucketBytes: 16 });
  const begin = g.beginAllReduce.bind(g);
  g.beginAllReduce = (x, op) => {
    log.push(`a bucket of ${x.size}`);
    return begin(x, op);
  };
  const grads = parallel.backward(
    net
      .forward(batchOf(g, 8))
      .sqr()
      .sum()
      .affine(g.size / 8, 0),
  );
  const named = [...net.namedParameters()].filter(([, p]) => grads.get(p));
  return { names: named.map(([name]) => name), grads: named.map(([, p]) => list(grads.of(p))), log };
}
/** Parameters that only some ranks use, and gradients in another order on each. */
export function unevenUse(g: Group): Numbers[] {
  const net = new Net(g, 0);
  const parallel = new DataParallel(net, g, { bucketBytes: 16, firstBucketBytes: 16 });
  const [a, b] = g.rank === 0 ? [net.second, net.third] : [net.third, net.second];
  const loss = g.rank === 0 ? a.sum().add(b.sqr().sum()).add(net.unused.sum()) : a.sqr().sum().add(b.sum());
  const grads = parallel.backward(loss);
  assert.equal(grads.get(net.first), undefined, 'no rank uses it');
  return [net.second, net.third, net.unused].map((p) => list(grads.of(p)));
}

interface TrainData {
  readonly steps: number;
  readonly sharded: boolean;
  readonly optimizer?: 'adam' | 'sgd';
  readonly load?: string;
  readonly save?: string;
}
/** Some steps of training; what comes out must not depend on the number of ranks. */
export function train(g: Group, { steps, sharded, optimizer: kind = 'adam', load, save }: TrainData): Numbers[] {
  const net = new Net(g, 0);
  noGrad(() => net.replace((p) => p.affine(0.125, 0).requireGrad()));
  const make = (list: readonly Tensor[]): Optimizer =>
    kind === 'adam' ? new AdamW(list, { learningRate: 0.01 }) : new SGD(list, { learningRate: 0.01, momentum: 0.5 });
  const flat = new FlatParameters(net);
  const whole = new DataParallel(net, g, { bucketBytes: 64 });
  const optimizer = sharded ? new ShardedOptimizer([flat.master], g, make) : make([flat.master]);
  const parts = { tensors: new Map([['master', flat.master]]), optimizer };
  let from = 0;
  if (load) from = loadCheckpoint(load, parts).step;
  flat.refresh();
  for (let step = from; step < steps; step++)
    scope(() => {
      const loss = net.forward(batchOf(g, 8)).sqr().mean();
      // The sharded optimizer averages by itself.
      const grads = sharded ? loss.backward() : whole.backward(loss);
      flat.step(optimizer, flat.gather(grads));
    });
  if (save) saveCheckpointOnce(g, save, parts, { step: steps, extra: {} });
  return [list(flat.master)];
}
export const shardedRefusals = (g: Group): string => {
  try {
    new ShardedOptimizer([on(g, [1, 2]).requireGrad()], g, (p) => new Adafactor(p));
  } catch (e) {
    return (e as Error).message;
  }
  return 'nothing was said';
};
