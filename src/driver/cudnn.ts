// cuDNN 9. Attention goes through its graphs (cudnn-attention.ts); convolutions of 16-bit floats through its graphs
// too, of doubles through its algorithms, of f32 through what is faster.
import { DriverError, OutOfMemoryError } from '../base/errors.js';
import type { AttentionLibrary } from './attention.js';
import { Calls } from './checked-calls.js';
import { CUBLASLT } from './cublaslt.js';
import { forDriver } from './cuda-version.js';
import { CudnnAttentions } from './cudnn-attention.js';
import { ConvolutionGraphs } from './cudnn-convolution.js';
import { CUDNN_GRAPH_TABLE, type EnginePlan, type Engines } from './cudnn-graph.js';
import { checkConv, type ConvDType, convKey, type ConvPlan, type ConvSpec, type Dnn, withAddresses } from './dnn.js';
import type { Address, Device, Maybe, Stream } from './driver.js';
import {
  Cell,
  type FindLibrary,
  type Native,
  type NativeArg,
  nativeBlock,
  nativeString,
  openLibrary,
  type LibrarySpec,
} from './ffi.js';
import { made } from './lt.js';
import { NVRTC } from './nvrtc.js';
import { Planned } from './library-plans.js';
import type { Answer } from './threads.js';
import { Workspaces } from './workspace.js';

export const CUDNN: LibrarySpec = { name: 'cuDNN', sonames: ['libcudnn.so.9', 'libcudnn.so'], vendor: 'cuda' };

const handles = 'uintptr_t handle, uintptr_t first, uintptr_t second, uintptr_t conv, uintptr_t third';
const measured =
  'uintptr_t handle, uintptr_t d1, uintptr_t p1, uintptr_t d2, uintptr_t p2, uintptr_t conv, uintptr_t d3, ' +
  'uintptr_t p3, int wanted, void *found, void *results, uintptr_t workspace, size_t bytes';
const running =
  'uintptr_t handle, uintptr_t alpha, uintptr_t d1, uintptr_t p1, uintptr_t d2, uintptr_t p2, uintptr_t conv, int ' +
  'algo, uintptr_t workspace, size_t bytes, uintptr_t beta, uintptr_t d3, uintptr_t p3';
export const CUDNN_TABLE = {
  create: 'int cudnnCreate(void *handle)',
  destroy: 'int cudnnDestroy(uintptr_t handle)',
  version: 'size_t cudnnGetVersion()',
  errorString: 'uintptr_t cudnnGetErrorString(int status)',
  setStream: 'int cudnnSetStream(uintptr_t handle, uintptr_t stream)',
  tensorCreate: 'int cudnnCreateTensorDescriptor(void *desc)',
  tensorSet: 'int cudnnSetTensor4dDescriptor(uintptr_t desc, int format, int type, int n, int c, int h, int w)',
  tensorDestroy: 'int cudnnDestroyTensorDescriptor(uintptr_t desc)',
  filterCreate: 'int cudnnCreateFilterDescriptor(void *desc)',
  filterSet: 'int cudnnSetFilter4dDescriptor(uintptr_t desc, int type, int format, int k, int c, int h, int w)',
  filterDestroy: 'int cudnnDestroyFilterDescriptor(uintptr_t desc)',
  convCreate: 'int cudnnCreateConvolutionDescriptor(void *desc)',
  convSet:
    'int cudnnSetConvolution2dDescriptor(uintptr_t desc, int padH, int padW, int strideH, int strideW, int ' +
    'dilationH, int dilationW, int mode, int type)',
  convGroups: 'int cudnnSetConvolutionGroupCount(uintptr_t desc, int groups)',
  convMath: 'int cudnnSetConvolutionMathType(uintptr_t desc, int math)',
  convDestroy: 'int cudnnDestroyConvolutionDescriptor(uintptr_t desc)',
  guessForward: `int cudnnGetConvolutionForwardAlgorithm_v7(${handles}, int wanted, void *found, void *results)`,
  guessData: `int cudnnGetConvolutionBackwardDataAlgorithm_v7(${handles}, int wanted, void *found, void *results)`,
  guessFilter: `int cudnnGetConvolutionBackwardFilterAlgorithm_v7(${handles}, int wanted, void *found, void *results)`,
  bytesForward: `int cudnnGetConvolutionForwardWorkspaceSize(${handles}, int algo, void *bytes)`,
  bytesData: `int cudnnGetConvolutionBackwardDataWorkspaceSize(${handles}, int algo, void *bytes)`,
  bytesFilter: `int cudnnGetConvolutionBackwardFilterWorkspaceSize(${handles}, int algo, void *bytes)`,
  tuneForward: `int cudnnFindConvolutionForwardAlgorithmEx(${measured})`,
  tuneData: `int cudnnFindConvolutionBackwardDataAlgorithmEx(${measured})`,
  tuneFilter: `int cudnnFindConvolutionBackwardFilterAlgorithmEx(${measured})`,
  runForward: `int cudnnConvolutionForward(${running})`,
  runData: `int cudnnConvolutionBackwardData(${running})`,
  runFilter: `int cudnnConvolutionBackwardFilter(${running})`,
} as const;

export const CUDNN_NUMBERS = {
  CUDNN_DATA_FLOAT: 0,
  CUDNN_DATA_DOUBLE: 1,
  CUDNN_DATA_HALF: 2,
  CUDNN_DATA_BFLOAT16: 9,
  CUDNN_TENSOR_NCHW: 0,
  CUDNN_CROSS_CORRELATION: 1,
  CUDNN_DEFAULT_MATH: 0,
  CUDNN_TENSOR_OP_MATH: 1,
  CUDNN_FMA_MATH: 3,
  CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: 4004,
} as const;
/** One of the algorithms a search answers; the three kinds share the layout. */
export const CUDNN_PERF = {
  size: 48,
  fields: { algo: 0, status: 4, time: 8, memory: 16, determinism: 24, mathType: 28 },
} as const;

const N = CUDNN_NUMBERS;
export const CUDNN_TYPES: { readonly [D in ConvDType]: number } = {
  f32: N.CUDNN_DATA_FLOAT,
  f64: N.CUDNN_DATA_DOUBLE,
  f16: N.CUDNN_DATA_HALF,
  bf16: N.CUDNN_DATA_BFLOAT16,
};
const callsOf = <K extends string>(k: K) =>
  ({ guess: `guess${k}`, bytes: `bytes${k}`, tune: `tune${k}`, run: `run${k}` }) as const;
/** Which call serves a kind, and the order of its operands: two that are read, one that is written. */
const KINDS = {
  forward: { ...callsOf('Forward'), order: ['x', 'filter', 'y'] },
  'backward-data': { ...callsOf('Data'), order: ['filter', 'y', 'x'] },
  'backward-filter': { ...callsOf('Filter'), order: ['x', 'y', 'filter'] },
} as const;
const HALVES: readonly ConvDType[] = ['f16', 'bf16'];
/** Rounds of runs: what calls the driver often is slow at first, and the host is never quiet. */
const TUNING_ROUNDS = 4;
const TUNING_RUNS = 8;
const describe = (e: EnginePlan): string => `engine ${e.rank}, workspace ${e.workspaceBytes}`;
/** Algorithms asked for, and the largest workspace one may have. */
const WANTED = 8;
const MOST_WORKSPACE = 1 << 30;
/** Scores that a deterministic backward pass of attention may keep, in bytes; batches go in parts where it is more. */
const MOST_SCORES = 2 ** 31;
/** Handles of plans that are made beside the host: more than a program has shapes of training. */
const MOST_HANDLES = 16;

interface Operands {
  readonly x: Address;
  readonly filter: Address;
  readonly y: Address;
}

interface CudnnPlan extends ConvPlan {
  readonly x: number;
  readonly filter: number;
  readonly y: number;
  readonly conv: number;
  algorithm: number;
  math: number;
  workspaceBytes: number;
  description: string;
  /** Where the graph interface serves: its engines, and the one chosen; without one the algorithm runs. */
  engines?: Engines;
  engine?: EnginePlan;
}

/** Makes a call that may end later; `path` is the library's file. */
export type Begin = (call: Native, path: string, prototype: string, args: readonly NativeArg[]) => Answer;

/** `begin` makes plans of attention beside the host; without it they are made when they are asked for. */
export function openCudnn(device: Device, find: FindLibrary = openLibrary, begin?: Begin): Maybe<Dnn> {
  // cuDNN loads these two by name and would not find them in Python's packages by itself.
  find(forDriver(CUBLASLT));
  find(forDriver(NVRTC));
  const library = find(CUDNN);
  if (typeof library === 'string') return library;
  const raw = library.bind(CUDNN_TABLE);
  const v = raw.version();
  const version = `${Math.floor(v / 10000)}.${Math.floor(v / 100) % 100}.${v % 100}`;
  library.note(version);
  const rules = {
    errorName: (s: number) => nativeString(raw.errorString(s)),
    outOfMemory: [N.CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED],
  };
  const graph = new Calls(CUDNN_GRAPH_TABLE, library.bind(CUDNN_GRAPH_TABLE), rules);
  const finalize = 'descriptorFinalize';
  const later =
    begin &&
    ((plan: number): Answer => begin(graph.raw[finalize] as Native, library.path, graph.prototype(finalize), [plan]));
  return new Cudnn(`cuDNN ${version}`, v, device, new Calls(CUDNN_TABLE, raw, rules), graph, later);
}

class Cudnn extends Planned<ConvSpec, CudnnPlan> implements Dnn {
  readonly name: string;
  readonly #device: Device;
  readonly #calls: Calls<typeof CUDNN_TABLE>;
  readonly #handle: number;
  readonly #workspaces: Workspaces;
  /** alpha = 1 and beta = 0, as f32 at +0 and +4 and as f64 at +8 and +16. */
  readonly #scalars = nativeBlock(24);
  readonly #graphs: ConvolutionGraphs | undefined;
  readonly #attention: CudnnAttentions | undefined;
  /** Handles of plans that are made on other threads. */
  readonly #more: number[] = [];
  #stream: Stream = 0;

  constructor(
    name: string,
    version: number,
    device: Device,
    calls: Calls<typeof CUDNN_TABLE>,
    graph: Calls<typeof CUDNN_GRAPH_TABLE>,
    begin: ((plan: number) => Answer) | undefined,
  ) {
    super('conv2d', convKey);
    this.name = name;
    this.#device = device;
    this.#calls = calls;
    this.#workspaces = new Workspaces(device);
    this.#handle = made((cell) => calls.call('create', cell));
    if (graph.has('execute')) {
      this.#graphs = new ConvolutionGraphs(graph, this.#handle, CUDNN_TYPES);
      const most = Math.min(MOST_SCORES, Math.floor(device.info.totalBytes / 16));
      const use = (stream: Stream): void => this.#use(stream);
      const beside = begin && { handle: () => this.#handleOfItsOwn(), begin };
      this.#attention = new CudnnAttentions(name, version, graph, { handle: this.#handle }, most, use, beside);
    }
    const view = new DataView(this.#scalars.buffer);
    view.setFloat32(0, 1, true);
    view.setFloat64(8, 1, true);
  }

  get attention(): AttentionLibrary | undefined {
    return this.#attention;
  }
  #handleOfItsOwn(): { readonly handle: number; readonly use: (stream: Stream) => void } | undefined {
    if (this.#more.length >= MOST_HANDLES) return undefined;
    this.#device.makeCurrent();
    const handle = made((cell) => this.#calls.call('create', cell));
    this.#more.push(handle);
    let of: Stream = 0;
    const use = (stream: Stream): void => {
      this.#device.makeCurrent();
      if (of !== stream) this.#calls.call('setStream', handle, stream);
      of = stream;
    };
    return { handle, use };
  }

  protected make(spec: ConvSpec, key: string): CudnnPlan | string {
    const rule = checkConv(spec);
    if (rule !== true) return `${this.name}: ${rule}`;
    this.#device.makeCurrent();
    const graphs = spec.dtype === 'f64' ? undefined : this.#graphs;
    const built = graphs && HALVES.includes(spec.dtype) ? this.#buildGraph(graphs, spec) : undefined;
    if (built) return built;
    const plan = this.#buildAlgorithms(spec, key);
    if (spec.dtype !== 'f32' || !graphs) return plan;
    if (typeof plan === 'string') return this.#buildGraph(graphs, spec) ?? plan;
    try {
      plan.engines = graphs.engines(spec, MOST_WORKSPACE);
    } catch (e) {
      if (!(e instanceof DriverError)) throw e; // a convolution that makes no graph has its algorithm
    }
    return plan;
  }

  /** The engine the library thinks best; `tune` measures them. */
  #buildGraph(graphs: ConvolutionGraphs, spec: ConvSpec): CudnnPlan | undefined {
    const engines = graphs.engines(spec, MOST_WORKSPACE);
    const [engine] = engines.plans;
    if (engine)
      return {
        ...{ spec, x: 0, filter: 0, y: 0, conv: 0, algorithm: -1, math: 0, engines, engine },
        ...{ workspaceBytes: engine.workspaceBytes, description: describe(engine) },
      };
    engines.descriptors.release();
    return undefined;
  }

  #buildAlgorithms(spec: ConvSpec, key: string): CudnnPlan | string {
    const c = this.#calls;
    const type = CUDNN_TYPES[spec.dtype];
    const tensor = ([n, ch, h, w]: ConvSpec['x']): number => {
      const t = made((cell) => c.call('tensorCreate', cell));
      c.call('tensorSet', t, N.CUDNN_TENSOR_NCHW, type, n, ch, h, w);
      return t;
    };
    const filter = made((cell) => c.call('filterCreate', cell));
    c.call('filterSet', filter, type, N.CUDNN_TENSOR_NCHW, ...spec.filter);
    const conv = made((cell) => c.call('convCreate', cell));
    const compute = spec.dtype === 'f64' ? N.CUDNN_DATA_DOUBLE : N.CUDNN_DATA_FLOAT;
    c.call('convSet', conv, ...spec.padding, ...spec.stride, ...spec.dilation, N.CUDNN_CROSS_CORRELATION, compute);
    c.call('convGroups', conv, spec.groups);
    // The default lets f32 go through TF32; FMA keeps it out.
    const math =
      spec.dtype === 'f16' || spec.dtype === 'bf16'
        ? N.CUDNN_TENSOR_OP_MATH
        : spec.tf32
          ? N.CUDNN_DEFAULT_MATH
          : N.CUDNN_FMA_MATH;
    c.call('convMath', conv, math);
    const plan: CudnnPlan = {
      spec,
      x: tensor(spec.x),
      filter,
      y: tensor(spec.y),
      conv,
      algorithm: -1,
      math,
      workspaceBytes: 0,
      description: key,
    };
    const kind = KINDS[spec.kind];
    const [first, second, third] = kind.order.map((o) => plan[o]);
    const results = nativeBlock(CUDNN_PERF.size * WANTED);
    const found = new Cell();
    const status = c.status(kind.guess, this.#handle, first, second, conv, third, WANTED, found.raw, results.address);
    if (status === 0 && this.#take(plan, results.buffer, found.int, false)) return plan;
    this.#release(plan);
    return `${this.name} has no algorithm for ${key} (${c.rules.errorName(status)})`;
  }

  /**
   * Keeps the first algorithm of an answer that works and whose workspace is not out of proportion; false when there is
   * none.
   */
  #take(plan: CudnnPlan, buffer: ArrayBuffer, count: number, measured: boolean): boolean {
    const view = new DataView(buffer);
    const kind = KINDS[plan.spec.kind];
    const [first, second, third] = kind.order.map((o) => plan[o]);
    const bytes = new Cell();
    for (let i = 0; i < count; i++) {
      const at = i * CUDNN_PERF.size;
      if (view.getInt32(at + CUDNN_PERF.fields.status, true) !== 0) continue;
      const algorithm = view.getInt32(at + CUDNN_PERF.fields.algo, true);
      const math = view.getInt32(at + CUDNN_PERF.fields.mathType, true);
      this.#calls.call('convMath', plan.conv, math); // an answer holds for its math type
      if (
        this.#calls.status(kind.bytes, this.#handle, first, second, plan.conv, third, algorithm, bytes.clear().raw) !==
        0
      )
        continue;
      if (bytes.value > MOST_WORKSPACE) continue;
      plan.algorithm = algorithm;
      plan.math = math;
      plan.workspaceBytes = bytes.value;
      const time = measured ? `, ${view.getFloat32(at + CUDNN_PERF.fields.time, true).toFixed(3)} ms` : '';
      plan.description = `algorithm ${algorithm}, math ${math}, workspace ${bytes.value}${time}`;
      return true;
    }
    return false;
  }

  tune(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const p = plan as CudnnPlan;
    this.#use(stream);
    if (p.conv !== 0) this.#tuneAlgorithms(p, { x, filter, y }, stream);
    if (!p.engines) return;
    const algorithm =
      p.conv === 0 ? Infinity : this.#measure(() => this.#runAlgorithm(p, { x, filter, y }, stream), stream, Infinity);
    this.#tuneEngines(p, p.engines.plans, algorithm, (e) => this.#runEngine(e, x, filter, y, stream), stream);
  }

  #tuneAlgorithms(p: CudnnPlan, data: Operands, stream: Stream): void {
    const kind = KINDS[p.spec.kind];
    const [first, second, third] = withAddresses(kind.order, p, data);
    const results = nativeBlock(CUDNN_PERF.size * WANTED);
    const found = new Cell();
    const bytes = Math.max(p.workspaceBytes, 256 << 20);
    const chosen = { math: p.math, description: p.description };
    const operands = [this.#handle, ...first, ...second, p.conv, ...third];
    const workspace = this.#workspaces.get(stream, bytes);
    const answer = [WANTED, found.raw, results.address] as const;
    const status = this.#calls.status(kind.tune, ...operands, ...answer, workspace, bytes);
    if (status === 0 && this.#take(p, results.buffer, found.int, true)) return;
    // The first choice stands; trying others has changed the math type.
    this.#calls.call('convMath', p.conv, chosen.math);
    p.description = `${chosen.description}, measuring failed (${this.#calls.rules.errorName(status)})`;
  }

  #runEngine(engine: EnginePlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    (this.#graphs as ConvolutionGraphs).run(engine, x, filter, y, this.#workspaces.get(stream, engine.workspaceBytes));
  }

  /**
   * Milliseconds of a run in the best of a few rounds, one alone where that takes twice `best`; infinitely many where
   * it fails.
   */
  #measure(run: () => void, stream: Stream, best: number): number {
    const [start, end] = [this.#device.createEvent(true), this.#device.createEvent(true)];
    let least = Infinity;
    try {
      run();
      for (let round = 0; round < TUNING_ROUNDS && !(least > 2 * best && round > 0); round++) {
        this.#device.record(start, stream);
        for (let i = 0; i < TUNING_RUNS; i++) run();
        this.#device.record(end, stream);
        this.#device.synchronizeEvent(end);
        least = Math.min(least, this.#device.elapsed(start, end) / TUNING_RUNS);
      }
    } catch (e) {
      if (!(e instanceof DriverError || e instanceof OutOfMemoryError)) throw e;
      return Infinity;
    } finally {
      this.#device.destroyEvent(start);
      this.#device.destroyEvent(end);
    }
    return least;
  }

  /** Keeps the fastest engine that takes less than `best` milliseconds; one that fails is passed over. */
  #tuneEngines(
    p: CudnnPlan,
    plans: readonly EnginePlan[],
    best: number,
    run: (e: EnginePlan) => void,
    stream: Stream,
  ): void {
    for (const engine of plans) {
      const ms = this.#measure(() => run(engine), stream, best);
      if (ms >= best) continue;
      best = ms;
      p.engine = engine;
      p.workspaceBytes = engine.workspaceBytes;
      p.description = `${describe(engine)}, ${ms.toFixed(3)} ms`;
    }
  }

  run(plan: ConvPlan, x: Address, filter: Address, y: Address, stream: Stream): void {
    const p = plan as CudnnPlan;
    this.#use(stream);
    if (p.engine) this.#runEngine(p.engine, x, filter, y, stream);
    else this.#runAlgorithm(p, { x, filter, y }, stream);
  }

  #runAlgorithm(p: CudnnPlan, data: Operands, stream: Stream): void {
    const kind = KINDS[p.spec.kind];
    const [first, second, third] = withAddresses(kind.order, p, data);
    const wide = p.spec.dtype === 'f64';
    const alpha = this.#scalars.address + (wide ? 8 : 0);
    const beta = this.#scalars.address + (wide ? 16 : 4);
    const how = [p.conv, p.algorithm, this.#workspaces.get(stream, p.workspaceBytes), p.workspaceBytes];
    this.#calls.call(kind.run, this.#handle, alpha, ...first, ...second, ...how, beta, ...third);
  }

  #use(stream: Stream): void {
    this.#device.makeCurrent();
    if (stream === this.#stream) return;
    this.#calls.call('setStream', this.#handle, stream);
    this.#stream = stream;
  }

  #release(p: CudnnPlan): void {
    p.engines?.descriptors.release();
    if (p.conv === 0) return;
    this.#calls.call('tensorDestroy', p.x);
    this.#calls.call('tensorDestroy', p.y);
    this.#calls.call('filterDestroy', p.filter);
    this.#calls.call('convDestroy', p.conv);
  }

  dispose(): void {
    this.clearPlans((p) => this.#release(p));
    this.#graphs?.dispose();
    this.#attention?.dispose();
    this.#workspaces.dispose();
    for (const handle of [this.#handle, ...this.#more]) this.#calls.call('destroy', handle);
  }
}
