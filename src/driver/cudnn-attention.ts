// Attention as cuDNN's graphs: the library knows the fused kernel by the nodes between its tensors, forward and
// backward. Which nodes it wants, in which types, is what cuDNN 9.24 accepts for compute capability 9.0.
import {
  ATTENTION_ALIGNMENT,
  type AttentionAddresses,
  type AttentionLibrary,
  type AttentionPlan,
  type AttentionRows,
  type AttentionSpec,
  attentionKey,
  checkAttention,
  type RowStrides,
} from './attention.js';
import type { Calls } from './checked-calls.js';
import {
  type CUDNN_GRAPH_TABLE,
  CUDNN_GRAPH_NUMBERS as N,
  Descriptors,
  type EnginePlan,
  GraphRuns,
  type GraphTarget,
  type Handle,
} from './cudnn-graph.js';
import { dense, type Dims, FIRST_VALUE, IDS, type Node, Nodes, type Value, VALUES } from './cudnn-nodes.js';
import type { Address, Stream } from './driver.js';
import { nativeBlock } from './ffi.js';
import type { Answer } from './threads.js';

/** The first release whose attention is used: those before have known faults or want other masks. */
const ATTENTION_SINCE = 91100;
const BLOCK = 256;

/** The tensors of one problem. */
class Problem {
  readonly nodes: Nodes;
  readonly s: AttentionSpec;
  constructor(nodes: Nodes, s: AttentionSpec) {
    this.nodes = nodes;
    this.s = s;
  }
  /** (batch, heads, rows, dim) in memory. Strides of dimensions of one element are made up: they are never used. */
  rows(name: AttentionRows, heads: number, count: number, batch = this.s.batch): { dims: Dims; strides: Dims } {
    const [b, h, r] = this.s.strides[name] as RowStrides;
    const { dim } = this.s;
    const row = count === 1 ? dim : r;
    const head = heads === 1 ? row * count : h;
    return { dims: [batch, heads, count, dim], strides: [batch === 1 ? head * heads : b, head, row, 1] };
  }
  memory(name: AttentionRows, heads: number, count: number): Node {
    const { dims, strides } = this.rows(name, heads, count);
    return this.nodes.memory(name, this.s.dtype, dims, strides);
  }
  /** Rows as columns: keys, and in the backward pass values, are the second operand of a product that way. */
  columns(name: 'k' | 'v'): Node {
    const { dims, strides } = this.rows(name, this.s.kvHeads, this.s.tk);
    return this.nodes.memory(name, this.s.dtype, turned(dims), turned(strides));
  }
  get perQuery(): Dims {
    return [this.s.batch, this.s.heads, this.s.tq, 1];
  }
  get scores(): Dims {
    return [this.s.batch, this.s.heads, this.s.tq, this.s.tk];
  }
  get counts(): { queries: Node; keys: Node } | undefined {
    if (!this.s.counted) return undefined;
    const dims: Dims = [this.s.batch, 1, 1, 1];
    return {
      queries: this.nodes.memory('queryCounts', 'i32', dims),
      keys: this.nodes.memory('keyCounts', 'i32', dims),
    };
  }
}
const turned = ([a, b, c, d]: Dims): Dims => [a, b, d, c];

/** Scores that are not seen become -inf: keys beyond the count. */
function uncounted({ nodes: g, counts }: Problem, scores: Node): Node {
  if (!counts) return scores;
  const index = (axis: number): Node =>
    g.pointwise(N.CUDNN_POINTWISE_GEN_INDEX, scores, { type: 'i32', math: 'i32', axis });
  const below = (x: Node, b: Node): Node => g.pointwise(N.CUDNN_POINTWISE_CMP_LT, x, { b, type: 'bool', math: 'bool' });
  const [row, col] = [index(2), index(3)];
  const [inRows, inCols] = [below(row, counts.queries), below(col, counts.keys)];
  const t = g.pointwise(N.CUDNN_POINTWISE_LOGICAL_AND, inRows, { b: inCols, type: 'bool', math: 'bool' });
  return g.pointwise(N.CUDNN_POINTWISE_BINARY_SELECT, scores, { b: g.value('unseen', 'f32'), t });
}

/** Keys beyond the bounds of a query's window. Where there are as many queries as keys, row i stands at key i. */
function outside({ nodes: g, s, counts }: Problem, scores: Node): Node {
  const { left, right } = s;
  const shifted = s.tq !== s.tk || s.counted;
  const index = (of: Node, axis: number): Node => g.pointwise(N.CUDNN_POINTWISE_GEN_INDEX, of, { type: 'i32', axis });
  const whole = (mode: number, x: Node, b: Node): Node => g.pointwise(mode, x, { b, type: 'i32', math: 'i32' });
  const select = (x: Node, mode: number, larger: Node, b: Node): Node => {
    const t = g.pointwise(mode, larger, { b, type: 'bool', math: 'bool' });
    return g.pointwise(N.CUDNN_POINTWISE_BINARY_SELECT, x, { b: g.value('unseen', 'f32'), t });
  };
  let x = scores;
  if (right >= 0) {
    // row + keys - queries + right >= column
    let row = index(x, 2);
    const col = index(x, 3);
    if (shifted) {
      row = whole(N.CUDNN_POINTWISE_ADD, row, counts?.keys ?? g.value('keys', 'i32'));
      row = whole(N.CUDNN_POINTWISE_SUB, row, counts?.queries ?? g.value('queries', 'i32'));
    }
    if (right > 0) row = whole(N.CUDNN_POINTWISE_ADD, row, g.value('right', 'i32'));
    x = select(x, N.CUDNN_POINTWISE_CMP_GE, row, col);
  }
  if (left >= 0) {
    // column + left + 1 - keys + queries > row; what is known beforehand is one number, a float
    const row = index(x, 2);
    let col = index(x, 3);
    if (counts) {
      col = whole(N.CUDNN_POINTWISE_ADD, col, g.value('leftCount', 'i32'));
      col = whole(N.CUDNN_POINTWISE_SUB, col, counts.keys);
      col = whole(N.CUDNN_POINTWISE_ADD, col, counts.queries);
    } else col = g.pointwise(N.CUDNN_POINTWISE_ADD, col, { b: g.value('left', 'f32') });
    x = select(x, N.CUDNN_POINTWISE_CMP_GT, col, row);
  }
  return x;
}

/** softmax(scale q k') v, and the log of the sum of exponentials. */
function forward(p: Problem): void {
  const { nodes: g, s } = p;
  const { dtype, batch, heads, kvHeads, tq, tk, dim } = s;
  const q = p.memory('q', heads, tq);
  const { counts } = p;
  const cut = counts ? { m: counts.queries, n: counts.keys } : {};
  const container = (name: 'k' | 'v'): Node => {
    const { pages, rows } = s.paged as NonNullable<AttentionSpec['paged']>;
    const { dims, strides } = p.rows(name, kvHeads, rows, pages);
    return g.memory(name, dtype, dims, strides);
  };
  const table = (name: 'pageTable' | 'valuePages'): Node => g.memory(name, 'i32', [batch, 1, s.paged?.columns ?? 0, 1]);
  const keyDims: Dims = [batch, kvHeads, tk, dim];
  const k =
    s.paged && counts
      ? g.paged(
          container('k'),
          counts.keys,
          table('pageTable'),
          g.between(dtype, turned(keyDims), turned(dense(keyDims))),
        )
      : p.columns('k');
  const product = g.product(q, k, g.between('f32', p.scores), cut);
  const scaled = g.pointwise(N.CUDNN_POINTWISE_MUL, product, { b: g.value('scale', 'f32') });
  const scores = outside(p, uncounted(p, scaled));
  const most = g.reduce(N.CUDNN_REDUCE_TENSOR_MAX, scores, g.between('f32', p.perQuery));
  const below = g.pointwise(N.CUDNN_POINTWISE_SUB, scores, { b: most });
  const powers = g.pointwise(N.CUDNN_POINTWISE_EXP, below);
  const sum = g.reduce(N.CUDNN_REDUCE_TENSOR_ADD, powers, g.between('f32', p.perQuery));
  const log = g.pointwise(N.CUDNN_POINTWISE_LOG, sum);
  g.pointwise(N.CUDNN_POINTWISE_ADD, most, { b: log, y: g.memory('lse', 'f32', p.perQuery) });
  const weights = g.pointwise(N.CUDNN_POINTWISE_DIV, powers, { b: sum, type: dtype });
  const v =
    s.paged && counts
      ? g.paged(container('v'), counts.keys, table('valuePages'), g.between(dtype, keyDims))
      : p.memory('v', kvHeads, tk);
  g.product(weights, v, p.memory('out', heads, tq), counts ? { m: counts.queries, k: counts.keys } : {});
}

/** dq, dk and dv from the forward pass's result, its sums and the result's gradient. */
function backward(p: Problem): void {
  const { nodes: g, s } = p;
  const { dtype, batch, heads, kvHeads, tq, tk, dim } = s;
  const [q, dout, out] = (['q', 'dout', 'out'] as const).map((name) => p.memory(name, heads, tq));
  const [k, v] = [p.columns('k'), p.columns('v')];
  const lse = g.memory('lse', 'f32', p.perQuery);
  const flow = g.pointwise(N.CUDNN_POINTWISE_MUL, dout, { b: out });
  const total = g.reduce(N.CUDNN_REDUCE_TENSOR_ADD, flow, g.between('f32', p.perQuery));
  const delta = g.pointwise(N.CUDNN_POINTWISE_MUL, total, {
    b: g.value('one', 'f32'),
    y: g.memory('delta', 'f32', p.perQuery),
  });
  const scale = g.value('scale', 'f32');
  const product = g.product(q, k, g.between('f32', p.scores), {});
  const scaled = g.pointwise(N.CUDNN_POINTWISE_MUL, product, { b: scale });
  const below = g.pointwise(N.CUDNN_POINTWISE_SUB, scaled, { b: lse });
  const weights = g.pointwise(N.CUDNN_POINTWISE_EXP, outside(p, below));
  const byKey = (x: Node): Node => {
    const strides: Dims = [heads * tq * tk, tq * tk, 1, tk];
    return g.view(x, g.between(dtype, turned(p.scores), strides));
  };
  /** Sums over the query heads of a key head. */
  const gathered = (a: Node, b: Node, name: 'dk' | 'dv'): void => {
    const to = p.memory(name, kvHeads, tk);
    if (heads === kvHeads) g.product(a, b, to, {});
    else g.reduce(N.CUDNN_REDUCE_TENSOR_ADD, g.product(a, b, g.between(dtype, [batch, heads, tk, dim]), {}), to);
  };
  gathered(byKey(weights), dout, 'dv');
  const dweights = g.product(dout, v, g.between('f32', p.scores), {});
  const centred = g.pointwise(N.CUDNN_POINTWISE_SUB, dweights, { b: delta });
  const dlogits = g.pointwise(N.CUDNN_POINTWISE_MUL, centred, { b: weights });
  const dscores = g.pointwise(N.CUDNN_POINTWISE_MUL, dlogits, { b: scale });
  gathered(byKey(dscores), q, 'dk');
  const { dims, strides } = p.rows('k', kvHeads, tk);
  const rows = g.view(k, g.between(dtype, dims, strides));
  const dq = p.memory('dq', heads, tq);
  // Added up in f32 by whoever comes first, or in one order over all scores, which then have to be kept.
  if (s.deterministic) g.product(dscores, rows, dq, {});
  else {
    const sum = g.product(dscores, rows, g.memory('dqSum', 'f32', [batch, heads, tq, dim]), {});
    g.pointwise(N.CUDNN_POINTWISE_IDENTITY, sum, { y: dq });
  }
}

interface Way {
  readonly engine: EnginePlan;
  readonly workspaceBytes: number;
  readonly description: string;
}
interface CudnnAttention extends AttentionPlan {
  readonly ways: readonly Way[];
  readonly runs: GraphRuns | undefined;
  readonly use: (stream: Stream) => void;
  /** Batch entries a run of the graph takes. */
  readonly chunk: number;
  readonly values: readonly Value[];
  readonly block: { readonly address: number };
  readonly descriptors: Descriptors;
}

const roundUp = (n: number, to: number): number => Math.ceil(n / to) * to;
/** Scratch beside the library's own: sums by query, and those of the queries' gradient. */
const scratchOf = ({ kind, deterministic, heads, tq, dim }: AttentionSpec, batch: number) => {
  const delta = kind === 'backward' ? roundUp(4 * batch * heads * tq, BLOCK) : 0;
  const dqSum = kind === 'backward' && !deterministic ? roundUp(4 * batch * heads * tq * dim, BLOCK) : 0;
  return { delta, dqSum };
};
/** What the library keeps of the scores in a deterministic backward pass, by batch entry. */
const keptBytes = ({ kind, deterministic, heads, tq, tk }: AttentionSpec): number =>
  kind === 'backward' && deterministic ? 2 * heads * roundUp(tq, 64) * roundUp(tk, 64) : 0;

/**
 * Plans made beside the host. A handle serves one thread at a time, so that each has its own, which then runs it;
 * `begin` finalizes a descriptor. Where there are no more handles, plans are made here.
 */
export interface Beside {
  readonly handle: () => { readonly handle: Handle; readonly use: (stream: Stream) => void } | undefined;
  readonly begin: (plan: Handle) => Answer;
}

export class CudnnAttentions implements AttentionLibrary {
  most = 1;
  readonly #name: string;
  readonly #version: number;
  readonly #calls: Calls<typeof CUDNN_GRAPH_TABLE>;
  readonly #target: GraphTarget;
  readonly #mostWorkspace: number;
  readonly #use: (stream: Stream) => void;
  readonly #beside: Beside | undefined;
  readonly #runs: GraphRuns | undefined;
  readonly #known = new Map<string, CudnnAttention | string>();

  constructor(
    name: string,
    version: number,
    calls: Calls<typeof CUDNN_GRAPH_TABLE>,
    target: GraphTarget,
    mostWorkspace: number,
    use: (stream: Stream) => void,
    beside?: Beside,
  ) {
    this.#name = name;
    this.#version = version;
    this.#calls = calls;
    this.#target = target;
    this.#mostWorkspace = mostWorkspace;
    this.#use = use;
    this.#beside = beside;
    this.#runs = 'handle' in target ? new GraphRuns(calls, target.handle) : undefined;
  }

  plan(spec: AttentionSpec, tell?: (line: string) => void): CudnnAttention | string {
    const key = attentionKey(spec);
    let plan = this.#known.get(key);
    if (plan === undefined) this.#known.set(key, (plan = this.#build(spec, tell)));
    return plan;
  }

  /** What this release is known to do wrong. */
  #faults(s: AttentionSpec): string | undefined {
    const v = this.#version;
    if (v < ATTENTION_SINCE) return 'attention is used from cuDNN 9.11 on';
    if (v <= 91500 && s.kind === 'backward' && s.tk % 128 !== 0)
      return `gradients over ${s.tk} keys want a later release than 9.15: not a multiple of 128`;
    if (v === 91400 && s.left >= 0 && s.right !== 0 && s.tk > 1024) return 'windows that are not causal fail in 9.14.0';
    return undefined;
  }

  #build(spec: AttentionSpec, tell?: (line: string) => void): CudnnAttention | string {
    const rule = checkAttention(spec);
    const why = rule === true ? this.#faults(spec) : rule;
    if (why !== undefined) return `${this.#name}: ${why}`;
    const kept = keptBytes(spec);
    const fits = kept === 0 ? spec.batch : Math.floor(this.#mostWorkspace / kept);
    // Parts of a batch begin at addresses that are aligned, lse's too.
    const aligned = (n: number): boolean =>
      n === spec.batch || (4 * n * spec.heads * spec.tq) % ATTENTION_ALIGNMENT === 0;
    const chunk = Array.from({ length: spec.batch }, (_, i) => spec.batch - i).find(
      (n) => spec.batch % n === 0 && n <= fits && aligned(n),
    );
    if (chunk === undefined) return `${this.#name}: ${kept} bytes of scores for a batch entry are too many to keep`;
    // Who wants to hear of each engine, or several of them, waits here.
    const beside = tell || this.most > 1 ? undefined : this.#beside;
    const own = beside?.handle();
    const target = own ?? this.#target;
    const descriptors = new Descriptors(this.#calls, target);
    try {
      const nodes = new Nodes(descriptors);
      (spec.kind === 'forward' ? forward : backward)(new Problem(nodes, { ...spec, batch: chunk }));
      const graph = descriptors.graph(nodes.operations);
      const mostWorkspace = this.#mostWorkspace * 1.25; // beside the scores
      const choice = { refused: refusedFor(spec), mostWorkspace, most: this.most, tell };
      const coming = own && beside && descriptors.coming(graph, choice, beside.begin);
      const { delta, dqSum } = scratchOf(spec, chunk);
      const waysOf = (plans: readonly EnginePlan[]): Way[] =>
        plans.map((engine) => ({
          engine,
          workspaceBytes: roundUp(engine.workspaceBytes, BLOCK) + delta + dqSum,
          description: `engine ${engine.engine}, rank ${engine.rank}, workspace ${engine.workspaceBytes}`,
        }));
      let ways = coming ? undefined : waysOf(descriptors.plans(graph, choice));
      if (ways?.length !== 0)
        return {
          ...{ spec, chunk, values: [...nodes.values], block: valueBlock(spec), descriptors },
          runs: own ? new GraphRuns(this.#calls, own.handle) : this.#runs,
          use: own?.use ?? this.#use,
          get pending() {
            return ways === undefined && coming?.done === false;
          },
          get ways() {
            return (ways ??= waysOf(coming?.wait() ?? []));
          },
        };
    } catch (e) {
      descriptors.release();
      throw e;
    }
    const reason = descriptors.reason();
    descriptors.release();
    return `${this.#name} has no attention for ${JSON.stringify(spec)}${reason && ` (${reason})`}`;
  }

  run(plan: AttentionPlan, way: number, at: AttentionAddresses, workspace: Address, stream: Stream): void {
    const p = plan as CudnnAttention;
    p.use(stream);
    const { spec, chunk } = p;
    const { engine } = p.ways[way];
    const own = roundUp(engine.workspaceBytes, BLOCK);
    const { delta, dqSum } = scratchOf(spec, chunk);
    const scratch = { delta: workspace + own, dqSum: workspace + own + delta };
    const given: readonly (readonly [keyof typeof IDS, Address | undefined, bytesPerEntry: number])[] = [
      ...(['q', 'k', 'v', 'out'] as const).map((n) => [n, at[n], 2 * (spec.strides[n]?.[0] ?? 0)] as const),
      ...(['dout', 'dq', 'dk', 'dv'] as const)
        .filter(() => spec.kind === 'backward')
        .map((n) => [n, at[n], 2 * (spec.strides[n]?.[0] ?? 0)] as const),
      ['lse', at.lse, 4 * spec.heads * spec.tq],
      ...(delta > 0 ? [['delta', scratch.delta, 0] as const] : []),
      ...(dqSum > 0 ? [['dqSum', scratch.dqSum, 0] as const] : []),
      ...(spec.counted ? [['keyCounts', at.keyCounts, 0] as const, ['queryCounts', at.queryCounts, 0] as const] : []),
      ...(spec.paged ? [['pageTable', at.pageTable, 0] as const, ['valuePages', at.pageTable, 0] as const] : []),
    ];
    const ids = [...given.map(([name]) => IDS[name]), ...p.values.map((name) => FIRST_VALUE + VALUES.indexOf(name))];
    const values = p.values.map((name) => p.block.address + 4 * VALUES.indexOf(name));
    for (let entry = 0; entry < spec.batch; entry += chunk) {
      const addresses = given.map(([, address, bytes]) => (address ?? 0) + entry * bytes);
      p.runs?.run(engine, ids, [...addresses, ...values], workspace);
    }
  }

  dispose(): void {
    this.#runs?.dispose();
    for (const plan of this.#known.values())
      if (typeof plan !== 'string') {
        void plan.ways; // another thread may be at it
        plan.runs?.dispose();
        plan.descriptors.release();
      }
    this.#known.clear();
  }
}

/** Sums are kept in float, and where one order is asked for no engine may change it. */
const refusedFor = ({ deterministic }: AttentionSpec): readonly number[] => [
  N.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
  N.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
  ...(deterministic ? [N.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC] : []),
];

/** The numbers that a graph reads from the host. */
function valueBlock({ scale, tq, tk, left, right }: AttentionSpec): { readonly address: number } {
  const block = nativeBlock(4 * VALUES.length);
  const view = new DataView(block.buffer);
  const put: Readonly<Record<Value, (at: number) => void>> = {
    scale: (at) => view.setFloat32(at, scale, true),
    unseen: (at) => view.setFloat32(at, -Infinity, true),
    one: (at) => view.setFloat32(at, 1, true),
    keys: (at) => view.setInt32(at, tk, true),
    queries: (at) => view.setInt32(at, tq, true),
    right: (at) => view.setInt32(at, right, true),
    left: (at) => view.setFloat32(at, left + 1 - tk + tq, true),
    leftCount: (at) => view.setInt32(at, left + 1, true),
  };
  VALUES.forEach((name, i) => put[name](4 * i));
  return block;
}
