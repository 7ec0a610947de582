// cuDNN's graph interface: operations between tensors become a graph, the library offers engines for it, and each is a
// plan that runs with addresses. It has newer kernels, which the algorithm interface does not reach.
import type { Calls } from './checked-calls.js';
import type { Address } from './driver.js';
import { Cell, cText } from './ffi.js';
import type { Answer } from './threads.js';

const since = 'cuDNN 9 has it';
export const CUDNN_GRAPH_TABLE = {
  descriptorCreate: { optional: 'int cudnnBackendCreateDescriptor(int type, void *descriptor)', since },
  descriptorDestroy: { optional: 'int cudnnBackendDestroyDescriptor(uintptr_t descriptor)', since },
  descriptorFinalize: { optional: 'int cudnnBackendFinalize(uintptr_t descriptor)', since },
  attributeSet: {
    optional: 'int cudnnBackendSetAttribute(uintptr_t descriptor, int name, int type, int64_t count, void *values)',
    since,
  },
  attributeGet: {
    optional:
      'int cudnnBackendGetAttribute(uintptr_t descriptor, int name, int type, int64_t wanted, void *found, void ' +
      '*values)',
    since,
  },
  execute: { optional: 'int cudnnBackendExecute(uintptr_t handle, uintptr_t plan, uintptr_t pack)', since },
  lastError: { optional: 'void cudnnGetLastErrorString(void *message, size_t bytes)', since },
} as const;

export const CUDNN_GRAPH_NUMBERS = {
  CUDNN_BACKEND_POINTWISE_DESCRIPTOR: 0,
  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: 1,
  CUDNN_BACKEND_ENGINE_DESCRIPTOR: 2,
  CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: 3,
  CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: 4,
  CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: 5,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: 10,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: 11,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: 12,
  CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: 13,
  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: 15,
  CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: 16,
  CUDNN_BACKEND_TENSOR_DESCRIPTOR: 17,
  CUDNN_BACKEND_MATMUL_DESCRIPTOR: 18,
  CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: 19,
  CUDNN_BACKEND_REDUCTION_DESCRIPTOR: 21,
  CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: 22,
  CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: 31,
  CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR: 35,
  CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: 38,
  CUDNN_ATTR_POINTWISE_MODE: 0,
  CUDNN_ATTR_POINTWISE_MATH_PREC: 1,
  CUDNN_ATTR_POINTWISE_AXIS: 9,
  CUDNN_ATTR_CONVOLUTION_COMP_TYPE: 100,
  CUDNN_ATTR_CONVOLUTION_CONV_MODE: 101,
  CUDNN_ATTR_CONVOLUTION_DILATIONS: 102,
  CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES: 103,
  CUDNN_ATTR_CONVOLUTION_POST_PADDINGS: 104,
  CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS: 105,
  CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS: 106,
  CUDNN_ATTR_ENGINEHEUR_MODE: 200,
  CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH: 201,
  CUDNN_ATTR_ENGINEHEUR_RESULTS: 202,
  CUDNN_ATTR_ENGINEHEUR_DEVICEPROP: 204,
  CUDNN_ATTR_ENGINECFG_ENGINE: 300,
  CUDNN_ATTR_EXECUTION_PLAN_HANDLE: 400,
  CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: 401,
  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: 402,
  CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP: 407,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA: 700,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W: 703,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: 704,
  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y: 705,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA: 706,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W: 709,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX: 710,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY: 711,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA: 712,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW: 715,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X: 716,
  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY: 717,
  CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR: 750,
  CUDNN_ATTR_OPERATION_POINTWISE_XDESC: 751,
  CUDNN_ATTR_OPERATION_POINTWISE_BDESC: 752,
  CUDNN_ATTR_OPERATION_POINTWISE_YDESC: 753,
  CUDNN_ATTR_OPERATION_POINTWISE_TDESC: 758,
  CUDNN_ATTR_OPERATIONGRAPH_HANDLE: 800,
  CUDNN_ATTR_OPERATIONGRAPH_OPS: 801,
  CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: 900,
  CUDNN_ATTR_TENSOR_DATA_TYPE: 901,
  CUDNN_ATTR_TENSOR_DIMENSIONS: 902,
  CUDNN_ATTR_TENSOR_STRIDES: 903,
  CUDNN_ATTR_TENSOR_UNIQUE_ID: 906,
  CUDNN_ATTR_TENSOR_IS_VIRTUAL: 907,
  CUDNN_ATTR_TENSOR_IS_BY_VALUE: 908,
  CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: 1000,
  CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: 1001,
  CUDNN_ATTR_VARIANT_PACK_WORKSPACE: 1003,
  CUDNN_ATTR_ENGINE_GLOBAL_INDEX: 1301,
  CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: 1303,
  CUDNN_ATTR_MATMUL_COMP_TYPE: 1500,
  CUDNN_ATTR_OPERATION_MATMUL_ADESC: 1520,
  CUDNN_ATTR_OPERATION_MATMUL_BDESC: 1521,
  CUDNN_ATTR_OPERATION_MATMUL_CDESC: 1522,
  CUDNN_ATTR_OPERATION_MATMUL_DESC: 1523,
  CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC: 1525,
  CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC: 1526,
  CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC: 1527,
  CUDNN_ATTR_REDUCTION_OPERATOR: 1600,
  CUDNN_ATTR_REDUCTION_COMP_TYPE: 1601,
  CUDNN_ATTR_OPERATION_REDUCTION_XDESC: 1610,
  CUDNN_ATTR_OPERATION_REDUCTION_YDESC: 1611,
  CUDNN_ATTR_OPERATION_REDUCTION_DESC: 1612,
  CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC: 1950,
  CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC: 1951,
  CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC: 1952,
  CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC: 1953,
  CUDNN_ATTR_OPERATION_RESHAPE_XDESC: 2200,
  CUDNN_ATTR_OPERATION_RESHAPE_YDESC: 2201,
  CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: 2702,
  CUDNN_TYPE_HANDLE: 0,
  CUDNN_TYPE_DATA_TYPE: 1,
  CUDNN_TYPE_BOOLEAN: 2,
  CUDNN_TYPE_INT64: 3,
  CUDNN_TYPE_FLOAT: 4,
  CUDNN_TYPE_VOID_PTR: 6,
  CUDNN_TYPE_CONVOLUTION_MODE: 7,
  CUDNN_TYPE_HEUR_MODE: 8,
  CUDNN_TYPE_NUMERICAL_NOTE: 11,
  CUDNN_TYPE_POINTWISE_MODE: 14,
  CUDNN_TYPE_BACKEND_DESCRIPTOR: 15,
  CUDNN_TYPE_REDUCTION_OPERATOR_TYPE: 18,
  CUDNN_TYPE_CHAR: 24,
  CUDNN_POINTWISE_ADD: 0,
  CUDNN_POINTWISE_MUL: 1,
  CUDNN_POINTWISE_DIV: 6,
  CUDNN_POINTWISE_SUB: 9,
  CUDNN_POINTWISE_EXP: 13,
  CUDNN_POINTWISE_LOG: 15,
  CUDNN_POINTWISE_IDENTITY: 21,
  CUDNN_POINTWISE_CMP_GT: 302,
  CUDNN_POINTWISE_CMP_GE: 303,
  CUDNN_POINTWISE_CMP_LT: 304,
  CUDNN_POINTWISE_LOGICAL_AND: 400,
  CUDNN_POINTWISE_GEN_INDEX: 501,
  CUDNN_POINTWISE_BINARY_SELECT: 601,
  CUDNN_REDUCE_TENSOR_ADD: 0,
  CUDNN_REDUCE_TENSOR_MAX: 3,
  CUDNN_HEUR_MODE_A: 3,
  CUDNN_NUMERICAL_NOTE_TENSOR_CORE: 0,
  CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: 1,
  CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: 2,
  CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: 4,
} as const;
const N = CUDNN_GRAPH_NUMBERS;

/** Engine configurations asked for, and packs of addresses kept for the next run. */
const WANTED = 40;
const PACKS = 256;

export type Handle = number;
export const int64 = (...values: number[]): BigInt64Array => BigInt64Array.from(values, BigInt);
export const int32 = (value: number): Int32Array => Int32Array.of(value);
type Values = BigInt64Array | Int32Array | Float32Array | Uint8Array;

/** What plans are made for: the device of a handle, or one on paper by a descriptor of its properties (cuDNN 9.8). */
export type GraphTarget = { readonly handle: Handle } | { readonly properties: Handle };

/** One engine ready to run a graph. */
export interface EnginePlan {
  readonly plan: Handle;
  readonly workspaceBytes: number;
  /** The library's rank of it, from 0, and its number of the engine. */
  readonly rank: number;
  readonly engine: number;
}

/** Plans that may still be on their way. */
export interface ComingPlans {
  readonly done: boolean;
  /** Waits for them; the same list every time. */
  wait(): readonly EnginePlan[];
}
/** An engine that the library offers, and a plan of it that is not finalized. */
interface Candidate {
  readonly plan: Handle;
  readonly rank: number;
  readonly engine: number;
}

/** What serves one graph, with every descriptor it stands on. */
export interface Engines {
  readonly plans: readonly EnginePlan[];
  readonly descriptors: Descriptors;
}

export interface TensorSpec {
  readonly id: number;
  readonly type: number;
  readonly dims: readonly number[];
  readonly strides: readonly number[];
  readonly alignment: number;
  /** What no memory holds, and what is read on the host when the graph is run. */
  readonly kind?: 'virtual' | 'by value';
}
export interface Choice {
  /** Notes about an engine's numbers that rule it out. */
  readonly refused: readonly number[];
  readonly mostWorkspace: number;
  readonly most: number;
  /** Told of every engine that is passed over. */
  readonly tell?: (line: string) => void;
}

/** Descriptors that live and die together. */
export class Descriptors {
  readonly #calls: Calls<typeof CUDNN_GRAPH_TABLE>;
  readonly #target: GraphTarget;
  readonly #made: Handle[] = [];

  constructor(calls: Calls<typeof CUDNN_GRAPH_TABLE>, target: GraphTarget) {
    this.#calls = calls;
    this.#target = target;
  }

  make(type: number): Handle {
    const cell = new Cell();
    this.#calls.call('descriptorCreate', type, cell.raw);
    this.#made.push(cell.value);
    return cell.value;
  }
  set(d: Handle, name: number, type: number, values: Values): void {
    this.#calls.call('attributeSet', d, name, type, values.length, new Uint8Array(values.buffer));
  }
  link(d: Handle, name: number, to: Handle): void {
    this.set(d, name, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(to));
  }
  /** Fills `values` as far as the library has them; how many it has, 0 where it refuses. */
  get(d: Handle, name: number, type: number, values: BigInt64Array | Int32Array): number {
    const found = new Cell();
    const bytes = new Uint8Array(values.buffer);
    const status = this.#calls.status('attributeGet', d, name, type, values.length, found.raw, bytes);
    return status === 0 ? Math.min(found.value, values.length) : 0;
  }
  finalized(d: Handle): Handle {
    const status = this.#calls.status('descriptorFinalize', d);
    if (status !== 0) throw this.#calls.error('descriptorFinalize', [d], status, this.reason());
    return d;
  }
  /** Why the last call failed, in the library's own words. */
  reason(): string {
    if (!this.#calls.has('lastError')) return '';
    const text = new Uint8Array(4096);
    this.#calls.status('lastError', text, text.length);
    return cText(text).trim();
  }

  tensor({ id, type, dims, strides, alignment, kind }: TensorSpec): Handle {
    const t = this.make(N.CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    this.set(t, N.CUDNN_ATTR_TENSOR_DATA_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(type));
    this.set(t, N.CUDNN_ATTR_TENSOR_DIMENSIONS, N.CUDNN_TYPE_INT64, int64(...dims));
    this.set(t, N.CUDNN_ATTR_TENSOR_STRIDES, N.CUDNN_TYPE_INT64, int64(...strides));
    this.set(t, N.CUDNN_ATTR_TENSOR_UNIQUE_ID, N.CUDNN_TYPE_INT64, int64(id));
    this.set(t, N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, N.CUDNN_TYPE_INT64, int64(alignment));
    const yes = Uint8Array.of(1);
    if (kind === 'virtual') this.set(t, N.CUDNN_ATTR_TENSOR_IS_VIRTUAL, N.CUDNN_TYPE_BOOLEAN, yes);
    if (kind === 'by value') this.set(t, N.CUDNN_ATTR_TENSOR_IS_BY_VALUE, N.CUDNN_TYPE_BOOLEAN, yes);
    return this.finalized(t);
  }

  graph(operations: readonly Handle[]): Handle {
    const graph = this.make(N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if ('handle' in this.#target)
      this.set(graph, N.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, N.CUDNN_TYPE_HANDLE, int64(this.#target.handle));
    this.set(graph, N.CUDNN_ATTR_OPERATIONGRAPH_OPS, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(...operations));
    return this.finalized(graph);
  }

  /** The library's engines for a graph, best first by its own judgement; none where it has no suitable one. */
  plans(graph: Handle, choice: Choice): readonly EnginePlan[] {
    return this.coming(graph, choice, (plan) => ({ done: true, wait: () => this.#finalize(plan) })).wait();
  }
  /** The same, the first of them finalized by `begin`, which may do so on another thread. */
  coming(graph: Handle, choice: Choice, begin: (plan: Handle) => Answer): ComingPlans {
    const { most, mostWorkspace, tell } = choice;
    const candidates = this.#candidates(graph, choice);
    const first = candidates.next().value;
    if (!first) return { done: true, wait: () => [] };
    const answer = begin(first.plan);
    const take = ({ plan, rank, engine }: Candidate, status: number): EnginePlan[] => {
      if (status !== 0) tell?.(`engine ${engine} refused: ${this.reason()}`); // it does not take this graph after all
      const bytes = int64(0);
      if (status === 0) this.get(plan, N.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, N.CUDNN_TYPE_INT64, bytes);
      const workspaceBytes = Number(bytes[0]);
      if (workspaceBytes > mostWorkspace)
        tell?.(`engine ${engine} wants ${workspaceBytes} bytes of workspace, more than ${mostWorkspace}`);
      return status === 0 && workspaceBytes <= mostWorkspace ? [{ plan, workspaceBytes, rank, engine }] : [];
    };
    let made: EnginePlan[] | undefined;
    const wait = (): readonly EnginePlan[] => {
      if (made) return made;
      const plans = take(first, answer.wait());
      while (plans.length < most) {
        const next = candidates.next().value;
        if (!next) break;
        plans.push(...take(next, this.#finalize(next.plan)));
      }
      return (made = plans);
    };
    return {
      get done() {
        return made !== undefined || answer.done;
      },
      wait,
    };
  }
  #finalize(plan: Handle): number {
    return this.#calls.status('descriptorFinalize', plan);
  }

  /** The engines that may serve a graph, each asked for when the one before was taken or passed over. */
  *#candidates(graph: Handle, { refused, tell }: Choice): Generator<Candidate, undefined> {
    const heuristics = this.make(N.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    this.link(heuristics, N.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    this.set(heuristics, N.CUDNN_ATTR_ENGINEHEUR_MODE, N.CUDNN_TYPE_HEUR_MODE, int32(N.CUDNN_HEUR_MODE_A));
    if ('properties' in this.#target)
      this.link(heuristics, N.CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, this.#target.properties);
    if (this.#calls.status('descriptorFinalize', heuristics) !== 0) {
      tell?.(`no heuristic: ${this.reason()}`);
      return undefined;
    }
    const configs = int64(...Array.from({ length: WANTED }, () => this.make(N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)));
    const count = this.get(heuristics, N.CUDNN_ATTR_ENGINEHEUR_RESULTS, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, configs);
    if (count === 0) tell?.(`no engine: ${this.reason()}`);
    for (let rank = 0; rank < count; rank++) {
      const config = Number(configs[rank]);
      const { notes, engine } = this.#about(config);
      const note = notes.find((n) => refused.includes(n));
      if (note !== undefined) {
        tell?.(`engine ${engine} passed over for its note ${note}`);
        continue;
      }
      const plan = this.make(N.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if ('handle' in this.#target)
        this.set(plan, N.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, N.CUDNN_TYPE_HANDLE, int64(this.#target.handle));
      else this.link(plan, N.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, this.#target.properties);
      this.link(plan, N.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      yield { plan, rank, engine };
    }
    return undefined;
  }

  /** What the library notes about a configuration's numbers, and the number of its engine. */
  #about(config: Handle): { notes: number[]; engine: number } {
    const engine = int64(this.make(N.CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    if (this.get(config, N.CUDNN_ATTR_ENGINECFG_ENGINE, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, engine) === 0)
      return { notes: [], engine: -1 };
    const notes = new Int32Array(16);
    const count = this.get(Number(engine[0]), N.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, N.CUDNN_TYPE_NUMERICAL_NOTE, notes);
    const index = int64(-1);
    this.get(Number(engine[0]), N.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, N.CUDNN_TYPE_INT64, index);
    return { notes: [...notes.subarray(0, count)], engine: Number(index[0]) };
  }

  release(): void {
    for (const d of this.#made.splice(0).reverse()) this.#calls.status('descriptorDestroy', d);
  }
}

/** Runs plans: packs of addresses are kept for the next run with the same ones. */
export class GraphRuns {
  readonly #calls: Calls<typeof CUDNN_GRAPH_TABLE>;
  readonly #handle: Handle;
  readonly #packs = new Map<string, Descriptors>();
  readonly #known = new Map<string, Handle>();

  constructor(calls: Calls<typeof CUDNN_GRAPH_TABLE>, handle: Handle) {
    this.#calls = calls;
    this.#handle = handle;
  }
  run(plan: EnginePlan, ids: readonly number[], addresses: readonly Address[], workspace: Address): void {
    const key = `${ids};${addresses};${workspace}`;
    let pack = this.#known.get(key);
    if (pack === undefined) {
      if (this.#packs.size >= PACKS) this.dispose();
      const descriptors = new Descriptors(this.#calls, { handle: this.#handle });
      this.#packs.set(key, descriptors);
      pack = descriptors.make(N.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      descriptors.set(pack, N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, N.CUDNN_TYPE_INT64, int64(...ids));
      descriptors.set(pack, N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, N.CUDNN_TYPE_VOID_PTR, int64(...addresses));
      descriptors.set(pack, N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, N.CUDNN_TYPE_VOID_PTR, int64(workspace));
      this.#known.set(key, descriptors.finalized(pack));
    }
    const status = this.#calls.status('execute', this.#handle, plan.plan, pack);
    if (status !== 0) throw this.#calls.error('execute', [plan.plan, pack], status);
  }
  dispose(): void {
    for (const pack of this.#packs.values()) pack.release();
    this.#packs.clear();
    this.#known.clear();
  }
}
