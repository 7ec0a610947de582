// cuDNN's graph interface: the engines the library offers for one convolution, each a plan that runs with addresses.
// It has newer kernels, which the algorithm interface does not reach.
import type { Calls } from './checked.js';
import { CONV_ALIGNMENT, type ConvDType, type ConvSpec } from './dnn.js';
import type { Address } from './driver.js';
import { Cell } from './ffi.js';

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
} as const;

export const CUDNN_GRAPH_NUMBERS = {
  CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: 1,
  CUDNN_BACKEND_ENGINE_DESCRIPTOR: 2,
  CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: 3,
  CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: 4,
  CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: 5,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: 10,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: 11,
  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: 12,
  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: 15,
  CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: 16,
  CUDNN_BACKEND_TENSOR_DESCRIPTOR: 17,
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
  CUDNN_ATTR_ENGINECFG_ENGINE: 300,
  CUDNN_ATTR_EXECUTION_PLAN_HANDLE: 400,
  CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: 401,
  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: 402,
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
  CUDNN_ATTR_OPERATIONGRAPH_HANDLE: 800,
  CUDNN_ATTR_OPERATIONGRAPH_OPS: 801,
  CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: 900,
  CUDNN_ATTR_TENSOR_DATA_TYPE: 901,
  CUDNN_ATTR_TENSOR_DIMENSIONS: 902,
  CUDNN_ATTR_TENSOR_STRIDES: 903,
  CUDNN_ATTR_TENSOR_UNIQUE_ID: 906,
  CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: 1000,
  CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: 1001,
  CUDNN_ATTR_VARIANT_PACK_WORKSPACE: 1003,
  CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: 1303,
  CUDNN_TYPE_HANDLE: 0,
  CUDNN_TYPE_DATA_TYPE: 1,
  CUDNN_TYPE_INT64: 3,
  CUDNN_TYPE_FLOAT: 4,
  CUDNN_TYPE_VOID_PTR: 6,
  CUDNN_TYPE_CONVOLUTION_MODE: 7,
  CUDNN_TYPE_HEUR_MODE: 8,
  CUDNN_TYPE_NUMERICAL_NOTE: 11,
  CUDNN_TYPE_BACKEND_DESCRIPTOR: 15,
  CUDNN_HEUR_MODE_A: 3,
  CUDNN_NUMERICAL_NOTE_TENSOR_CORE: 0,
  CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: 1,
  CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: 2,
  CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: 4,
} as const;
const N = CUDNN_GRAPH_NUMBERS;

/** Results must not change from run to run, and sums are kept in float. */
const REFUSED: readonly number[] = [
  N.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
  N.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
  N.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
];
/** The matrix units take f32 as TF32, which is for those who ask for it. */
const refusedFor = ({ dtype, tf32 }: ConvSpec): readonly number[] =>
  dtype === 'f32' && !tf32 ? [...REFUSED, N.CUDNN_NUMERICAL_NOTE_TENSOR_CORE] : REFUSED;
/**
 * The operation of a kind: its descriptor, its first attribute (alpha, beta and the convolution follow in order), and
 * its tensors'.
 */
const OPERATIONS = {
  forward: {
    type: N.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    filter: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
  },
  'backward-data': {
    type: N.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    filter: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
  },
  'backward-filter': {
    type: N.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    filter: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
  },
} as const;
const IDS = { x: 1, filter: 2, y: 3 } as const;
/** Engine configurations asked for, plans kept for measuring, and packs of addresses kept for the next run. */
const WANTED = 40;
const KEPT = 10;
const PACKS = 256;

type Handle = number;
const int64 = (...values: number[]): BigInt64Array => BigInt64Array.from(values, BigInt);
const int32 = (value: number): Int32Array => Int32Array.of(value);

/** One engine ready to run a convolution. */
export interface EnginePlan {
  readonly plan: Handle;
  readonly workspaceBytes: number;
  /** The library's rank of it, from 0. */
  readonly rank: number;
}

/** What serves one convolution, with every descriptor it stands on. */
export interface Engines {
  readonly plans: readonly EnginePlan[];
  readonly descriptors: readonly Handle[];
}

export class CudnnGraphs {
  readonly #calls: Calls<typeof CUDNN_GRAPH_TABLE>;
  readonly #handle: Handle;
  readonly #types: { readonly [D in ConvDType]: number };
  readonly #packs = new Map<string, Handle>();

  constructor(calls: Calls<typeof CUDNN_GRAPH_TABLE>, handle: Handle, types: { readonly [D in ConvDType]: number }) {
    this.#calls = calls;
    this.#handle = handle;
    this.#types = types;
  }

  /** The library's engines for a convolution, best first by its own judgement; none where it has no suitable one. */
  engines(spec: ConvSpec, mostWorkspace: number): Engines {
    const descriptors: Handle[] = [];
    const make = (type: number): Handle => {
      const cell = new Cell();
      this.#calls.call('descriptorCreate', type, cell.raw);
      descriptors.push(cell.value);
      return cell.value;
    };
    const plans: EnginePlan[] = [];
    const heuristics = make(N.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    this.#set(
      heuristics,
      N.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
      N.CUDNN_TYPE_BACKEND_DESCRIPTOR,
      int64(this.#graph(spec, make)),
    );
    this.#set(heuristics, N.CUDNN_ATTR_ENGINEHEUR_MODE, N.CUDNN_TYPE_HEUR_MODE, int32(N.CUDNN_HEUR_MODE_A));
    if (this.#calls.status('descriptorFinalize', heuristics) !== 0) return { plans, descriptors };
    const configs = int64(...Array.from({ length: WANTED }, () => make(N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)));
    const count = this.#get(heuristics, N.CUDNN_ATTR_ENGINEHEUR_RESULTS, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, configs);
    const refused = refusedFor(spec);
    for (let rank = 0; rank < count && plans.length < KEPT; rank++) {
      const config = Number(configs[rank]);
      if (this.#notes(config, make).some((n) => refused.includes(n))) continue;
      const plan = make(N.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      this.#set(plan, N.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, N.CUDNN_TYPE_HANDLE, int64(this.#handle));
      this.#set(plan, N.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(config));
      // The engine does not take this convolution after all.
      if (this.#calls.status('descriptorFinalize', plan) !== 0) continue;
      const bytes = int64(0);
      this.#get(plan, N.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, N.CUDNN_TYPE_INT64, bytes);
      if (bytes[0] <= BigInt(mostWorkspace)) plans.push({ plan, workspaceBytes: Number(bytes[0]), rank });
    }
    return { plans, descriptors };
  }

  run(engine: EnginePlan, x: Address, filter: Address, y: Address, workspace: Address): void {
    const key = `${x},${filter},${y},${workspace}`;
    let pack = this.#packs.get(key);
    if (pack === undefined) {
      if (this.#packs.size >= PACKS) this.#forgetPacks();
      this.#packs.set(key, (pack = this.#pack(x, filter, y, workspace)));
    }
    this.#calls.call('execute', this.#handle, engine.plan, pack);
  }

  release(engines: Engines): void {
    for (const d of [...engines.descriptors].reverse()) this.#calls.status('descriptorDestroy', d);
  }
  dispose(): void {
    this.#forgetPacks();
  }
  #forgetPacks(): void {
    for (const pack of this.#packs.values()) this.#calls.status('descriptorDestroy', pack);
    this.#packs.clear();
  }

  #set(d: Handle, name: number, type: number, values: BigInt64Array | Int32Array | Float32Array): void {
    this.#calls.call('attributeSet', d, name, type, values.length, new Uint8Array(values.buffer));
  }
  /** Fills `values` as far as the library has them; how many it has, 0 where it refuses. */
  #get(d: Handle, name: number, type: number, values: BigInt64Array | Int32Array): number {
    const found = new Cell();
    const status = this.#calls.status(
      'attributeGet',
      d,
      name,
      type,
      values.length,
      found.raw,
      new Uint8Array(values.buffer),
    );
    return status === 0 ? Math.min(found.value, values.length) : 0;
  }

  #graph(spec: ConvSpec, make: (type: number) => Handle): Handle {
    const finalized = (d: Handle): Handle => {
      this.#calls.call('descriptorFinalize', d);
      return d;
    };
    const tensor = (id: number, [n, c, h, w]: ConvSpec['x']): Handle => {
      const t = make(N.CUDNN_BACKEND_TENSOR_DESCRIPTOR);
      this.#set(t, N.CUDNN_ATTR_TENSOR_DATA_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(this.#types[spec.dtype]));
      this.#set(t, N.CUDNN_ATTR_TENSOR_DIMENSIONS, N.CUDNN_TYPE_INT64, int64(n, c, h, w));
      this.#set(t, N.CUDNN_ATTR_TENSOR_STRIDES, N.CUDNN_TYPE_INT64, int64(c * h * w, h * w, w, 1));
      this.#set(t, N.CUDNN_ATTR_TENSOR_UNIQUE_ID, N.CUDNN_TYPE_INT64, int64(id));
      this.#set(t, N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, N.CUDNN_TYPE_INT64, int64(CONV_ALIGNMENT));
      return finalized(t);
    };
    const conv = make(N.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, N.CUDNN_TYPE_INT64, int64(2));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(this.#types.f32));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_CONV_MODE, N.CUDNN_TYPE_CONVOLUTION_MODE, int32(1));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, N.CUDNN_TYPE_INT64, int64(...spec.padding));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, N.CUDNN_TYPE_INT64, int64(...spec.padding));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_DILATIONS, N.CUDNN_TYPE_INT64, int64(...spec.dilation));
    this.#set(conv, N.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, N.CUDNN_TYPE_INT64, int64(...spec.stride));
    finalized(conv);
    const kind = OPERATIONS[spec.kind];
    const op = make(kind.type);
    this.#set(op, kind.alpha, N.CUDNN_TYPE_FLOAT, Float32Array.of(1));
    this.#set(op, kind.alpha + 1, N.CUDNN_TYPE_FLOAT, Float32Array.of(0));
    this.#set(op, kind.alpha + 2, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(conv));
    for (const name of ['x', 'filter', 'y'] as const)
      this.#set(op, kind[name], N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(tensor(IDS[name], spec[name])));
    finalized(op);
    const graph = make(N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    this.#set(graph, N.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, N.CUDNN_TYPE_HANDLE, int64(this.#handle));
    this.#set(graph, N.CUDNN_ATTR_OPERATIONGRAPH_OPS, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, int64(op));
    return finalized(graph);
  }

  /** What the library notes about an engine's numbers. */
  #notes(config: Handle, make: (type: number) => Handle): number[] {
    const engine = int64(make(N.CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    if (this.#get(config, N.CUDNN_ATTR_ENGINECFG_ENGINE, N.CUDNN_TYPE_BACKEND_DESCRIPTOR, engine) === 0) return [];
    const notes = new Int32Array(16);
    return [
      ...notes.subarray(
        0,
        this.#get(Number(engine[0]), N.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, N.CUDNN_TYPE_NUMERICAL_NOTE, notes),
      ),
    ];
  }

  #pack(x: Address, filter: Address, y: Address, workspace: Address): Handle {
    const cell = new Cell();
    this.#calls.call('descriptorCreate', N.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, cell.raw);
    const pack = cell.value;
    this.#set(pack, N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, N.CUDNN_TYPE_INT64, int64(IDS.x, IDS.filter, IDS.y));
    this.#set(pack, N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, N.CUDNN_TYPE_VOID_PTR, int64(x, filter, y));
    this.#set(pack, N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, N.CUDNN_TYPE_VOID_PTR, int64(workspace));
    this.#calls.call('descriptorFinalize', pack);
    return pack;
  }
}
