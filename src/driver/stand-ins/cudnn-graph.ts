// A stand-in of cuDNN's graph interface: descriptors are bags of attributes, each kind with those it must have before
// it is finalized.
import { CUDNN_TYPES } from '../cudnn.js';
import { CUDNN_GRAPH_NUMBERS as N } from '../cudnn-graph.js';
import { CONV_ALIGNMENT, type ConvSpec } from '../dnn.js';
import type { NativeArg } from '../ffi.js';
import { checkConvolution, type Convolution, convolve, type Plane } from './convolution.js';
import type { ConvolutionHandle } from './convolution.js';
import { checkNodes, checkTensor, type GraphNode, graphType, type GraphTensor, runNodes } from './cudnn-nodes.js';
import { type Handles, hostMemory, type HostedDevice, Misuse, type Symbols, typeOf, useWorkspace } from './library.js';

interface Node {
  readonly type: number;
  finalized: boolean;
  readonly attributes: Map<number, readonly number[]>;
  /** Of an engine's configuration: its rank and the graph it serves. */
  rank: number;
  graph?: Node;
}
const NOT_SUPPORTED = 3000;
/** Bytes of an attribute's element by its type. */
const WIDTH: Readonly<Record<number, 1 | 4 | 8>> = {
  [N.CUDNN_TYPE_HANDLE]: 8,
  [N.CUDNN_TYPE_DATA_TYPE]: 4,
  [N.CUDNN_TYPE_INT64]: 8,
  [N.CUDNN_TYPE_FLOAT]: 4,
  [N.CUDNN_TYPE_VOID_PTR]: 8,
  [N.CUDNN_TYPE_CONVOLUTION_MODE]: 4,
  [N.CUDNN_TYPE_HEUR_MODE]: 4,
  [N.CUDNN_TYPE_BOOLEAN]: 1,
  [N.CUDNN_TYPE_POINTWISE_MODE]: 4,
  [N.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE]: 4,
  [N.CUDNN_TYPE_BACKEND_DESCRIPTOR]: 8,
};
const operation = (alpha: number, w: number, x: number, y: number) => ({
  [alpha]: [N.CUDNN_TYPE_FLOAT, 1],
  [alpha + 1]: [N.CUDNN_TYPE_FLOAT, 1],
  [alpha + 2]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
  [w]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
  [x]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
  [y]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
});
const OPERATIONS: Readonly<Record<number, { kind: ConvSpec['kind']; alpha: number; w: number; x: number; y: number }>> =
  {
    [N.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR]: {
      kind: 'forward',
      alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      w: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
      y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    },
    [N.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR]: {
      kind: 'backward-data',
      alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      w: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    },
    [N.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR]: {
      kind: 'backward-filter',
      alpha: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      w: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      x: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
      y: N.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    },
  };
/** An attribute's type and how many elements it has, 0 for any number; those with `MAY` can be left out. */
const MAY = 1;
const linked = [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1] as const;
const mayBeLinked = [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, MAY] as const;
/** Nodes of graphs of several: where their setting is, and which of their attributes are tensors. */
const NODES: Readonly<
  Record<number, { setting?: number; type?: number; must: readonly number[]; may: readonly number[] }>
> = {
  [N.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR]: {
    setting: N.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
    type: N.CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
    must: [N.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, N.CUDNN_ATTR_OPERATION_POINTWISE_YDESC],
    may: [N.CUDNN_ATTR_OPERATION_POINTWISE_BDESC, N.CUDNN_ATTR_OPERATION_POINTWISE_TDESC],
  },
  [N.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR]: {
    setting: N.CUDNN_ATTR_OPERATION_MATMUL_DESC,
    type: N.CUDNN_BACKEND_MATMUL_DESCRIPTOR,
    must: [
      N.CUDNN_ATTR_OPERATION_MATMUL_ADESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_BDESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_CDESC,
    ],
    may: [
      N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
    ],
  },
  [N.CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR]: {
    setting: N.CUDNN_ATTR_OPERATION_REDUCTION_DESC,
    type: N.CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
    must: [N.CUDNN_ATTR_OPERATION_REDUCTION_XDESC, N.CUDNN_ATTR_OPERATION_REDUCTION_YDESC],
    may: [],
  },
  [N.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR]: {
    must: [N.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, N.CUDNN_ATTR_OPERATION_RESHAPE_YDESC],
    may: [],
  },
  [N.CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR]: {
    must: [
      N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC,
      N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC,
      N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC,
      N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC,
    ],
    may: [],
  },
};
/** What each kind of descriptor has, and no more. */
const ATTRIBUTES: Readonly<Record<number, Readonly<Record<number, readonly number[]>>>> = {
  [N.CUDNN_BACKEND_POINTWISE_DESCRIPTOR]: {
    [N.CUDNN_ATTR_POINTWISE_MODE]: [N.CUDNN_TYPE_POINTWISE_MODE, 1],
    [N.CUDNN_ATTR_POINTWISE_MATH_PREC]: [N.CUDNN_TYPE_DATA_TYPE, 1],
    [N.CUDNN_ATTR_POINTWISE_AXIS]: [N.CUDNN_TYPE_INT64, 1, MAY],
  },
  [N.CUDNN_BACKEND_MATMUL_DESCRIPTOR]: { [N.CUDNN_ATTR_MATMUL_COMP_TYPE]: [N.CUDNN_TYPE_DATA_TYPE, 1] },
  [N.CUDNN_BACKEND_REDUCTION_DESCRIPTOR]: {
    [N.CUDNN_ATTR_REDUCTION_OPERATOR]: [N.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1],
    [N.CUDNN_ATTR_REDUCTION_COMP_TYPE]: [N.CUDNN_TYPE_DATA_TYPE, 1],
  },
  ...Object.fromEntries(
    Object.entries(NODES).map(([type, { setting, must, may }]) => [
      type,
      Object.fromEntries([
        ...[...must, ...(setting === undefined ? [] : [setting])].map((name) => [name, linked]),
        ...may.map((name) => [name, mayBeLinked]),
      ]),
    ]),
  ),
  [N.CUDNN_BACKEND_TENSOR_DESCRIPTOR]: {
    [N.CUDNN_ATTR_TENSOR_DATA_TYPE]: [N.CUDNN_TYPE_DATA_TYPE, 1],
    [N.CUDNN_ATTR_TENSOR_DIMENSIONS]: [N.CUDNN_TYPE_INT64, 4],
    [N.CUDNN_ATTR_TENSOR_STRIDES]: [N.CUDNN_TYPE_INT64, 4],
    [N.CUDNN_ATTR_TENSOR_UNIQUE_ID]: [N.CUDNN_TYPE_INT64, 1],
    [N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT]: [N.CUDNN_TYPE_INT64, 1],
    [N.CUDNN_ATTR_TENSOR_IS_VIRTUAL]: [N.CUDNN_TYPE_BOOLEAN, 1, MAY],
    [N.CUDNN_ATTR_TENSOR_IS_BY_VALUE]: [N.CUDNN_TYPE_BOOLEAN, 1, MAY],
  },
  [N.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR]: {
    [N.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS]: [N.CUDNN_TYPE_INT64, 1],
    [N.CUDNN_ATTR_CONVOLUTION_COMP_TYPE]: [N.CUDNN_TYPE_DATA_TYPE, 1],
    [N.CUDNN_ATTR_CONVOLUTION_CONV_MODE]: [N.CUDNN_TYPE_CONVOLUTION_MODE, 1],
    [N.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS]: [N.CUDNN_TYPE_INT64, 2],
    [N.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS]: [N.CUDNN_TYPE_INT64, 2],
    [N.CUDNN_ATTR_CONVOLUTION_DILATIONS]: [N.CUDNN_TYPE_INT64, 2],
    [N.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES]: [N.CUDNN_TYPE_INT64, 2],
  },
  ...Object.fromEntries(Object.entries(OPERATIONS).map(([t, o]) => [t, operation(o.alpha, o.w, o.x, o.y)])),
  [N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR]: {
    [N.CUDNN_ATTR_OPERATIONGRAPH_HANDLE]: [N.CUDNN_TYPE_HANDLE, 1],
    [N.CUDNN_ATTR_OPERATIONGRAPH_OPS]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 0],
  },
  [N.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR]: {
    [N.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
    [N.CUDNN_ATTR_ENGINEHEUR_MODE]: [N.CUDNN_TYPE_HEUR_MODE, 1],
  },
  [N.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR]: {
    [N.CUDNN_ATTR_EXECUTION_PLAN_HANDLE]: [N.CUDNN_TYPE_HANDLE, 1],
    [N.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG]: [N.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1],
  },
  [N.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR]: {
    [N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS]: [N.CUDNN_TYPE_INT64, 0],
    [N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS]: [N.CUDNN_TYPE_VOID_PTR, 0],
    [N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE]: [N.CUDNN_TYPE_VOID_PTR, 1],
  },
  [N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR]: {},
  [N.CUDNN_BACKEND_ENGINE_DESCRIPTOR]: {},
};
/**
 * Engines by rank: one that changes from run to run, one that rounds inputs, one that is refused when planned, two that
 * serve.
 */
const ENGINES = [
  { notes: [N.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC], status: 0, workspace: 0 },
  { notes: [N.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS], status: 0, workspace: 0 },
  { notes: [], status: NOT_SUPPORTED, workspace: 0 },
  { notes: [], status: 0, workspace: 1 << 12 },
  { notes: [], status: 0, workspace: 0 },
] as const;

export function graphSymbols(device: HostedDevice, handles: Handles): Symbols {
  const node = (h: number): Node => handles.get<Node>(h, 'descriptor');
  const one = (n: Node, name: number): number => (n.attributes.get(name) as readonly number[])[0];
  const link = (n: Node, name: number, type: number): Node => {
    const found = node(one(n, name));
    if (found.type !== type)
      throw new Misuse(`attribute ${name} links a descriptor of type ${found.type}, not ${type}`);
    if (!found.finalized && type !== N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
      throw new Misuse(`attribute ${name} links a descriptor that is not finalized`);
    return found;
  };
  const plane = (t: Node): Plane & { id: number } => {
    const dims = t.attributes.get(N.CUDNN_ATTR_TENSOR_DIMENSIONS) as unknown as Plane['dims'];
    const strides = t.attributes.get(N.CUDNN_ATTR_TENSOR_STRIDES) as readonly number[];
    const [, c, h, w] = dims;
    if (strides.join() !== [c * h * w, h * w, w, 1].join()) throw new Misuse(`strides ${strides} of [${dims}]`);
    if (one(t, N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) !== CONV_ALIGNMENT)
      throw new Misuse('a byte alignment that is not kept');
    return {
      dtype: typeOf(CUDNN_TYPES, one(t, N.CUDNN_ATTR_TENSOR_DATA_TYPE)),
      dims,
      id: one(t, N.CUDNN_ATTR_TENSOR_UNIQUE_ID),
    };
  };
  const convolution = (graph: Node): Convolution & Record<'x' | 'filter' | 'y', { id: number }> => {
    const op = node(one(graph, N.CUDNN_ATTR_OPERATIONGRAPH_OPS));
    const names = OPERATIONS[op.type];
    if (!names || !op.finalized) throw new Misuse(`an operation of type ${op.type}`);
    if (one(op, names.alpha) !== 1 || one(op, names.alpha + 1) !== 0) throw new Misuse('alpha is not 1 or beta not 0');
    const conv = link(op, names.alpha + 2, N.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const two = (name: number) => conv.attributes.get(name) as unknown as readonly [number, number];
    if (one(conv, N.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) !== 2) throw new Misuse('not two spatial dimensions');
    if (one(conv, N.CUDNN_ATTR_CONVOLUTION_CONV_MODE) !== 1) throw new Misuse('not a cross-correlation');
    if (typeOf(CUDNN_TYPES, one(conv, N.CUDNN_ATTR_CONVOLUTION_COMP_TYPE)) !== 'f32')
      throw new Misuse('sums are not kept in f32');
    const padding = two(N.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    if (padding.join() !== two(N.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS).join())
      throw new Misuse('paddings before and after differ');
    const tensor = (name: number) => plane(link(op, name, N.CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    const [x, filter, y] = [tensor(names.x), tensor(names.w), tensor(names.y)];
    const c = {
      kind: names.kind,
      x,
      filter,
      y,
      padding,
      stride: two(N.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
      dilation: two(N.CUDNN_ATTR_CONVOLUTION_DILATIONS),
      groups: x.dims[1] / filter.dims[1], // a graph has no word for groups: the channels say it
    };
    checkConvolution(c);
    return c;
  };
  const tensors = new Map<Node, GraphTensor>();
  const tensor = (t: Node): GraphTensor => {
    let known = tensors.get(t);
    if (!known) {
      const list = (name: number) => t.attributes.get(name) as readonly number[];
      const flag = (name: number): boolean => t.attributes.get(name)?.[0] === 1;
      known = {
        id: one(t, N.CUDNN_ATTR_TENSOR_UNIQUE_ID),
        dtype: graphType(one(t, N.CUDNN_ATTR_TENSOR_DATA_TYPE)),
        dims: list(N.CUDNN_ATTR_TENSOR_DIMENSIONS),
        strides: list(N.CUDNN_ATTR_TENSOR_STRIDES),
        kind: flag(N.CUDNN_ATTR_TENSOR_IS_VIRTUAL)
          ? 'virtual'
          : flag(N.CUDNN_ATTR_TENSOR_IS_BY_VALUE)
            ? 'by value'
            : 'memory',
      };
      checkTensor(known, one(t, N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
      tensors.set(t, known);
    }
    return known;
  };
  /** The nodes of a graph, or undefined where it is a convolution. */
  const nodesOf = (graph: Node): readonly GraphNode[] | undefined => {
    const ops = (graph.attributes.get(N.CUDNN_ATTR_OPERATIONGRAPH_OPS) as readonly number[]).map(node);
    if (ops.length === 1 && OPERATIONS[ops[0].type]) return undefined;
    return ops.map((op) => {
      const { setting, type, must, may } = NODES[op.type] ?? { must: [], may: [] };
      if (must.length === 0 || !op.finalized) throw new Misuse(`an operation of type ${op.type}`);
      const set = setting === undefined || type === undefined ? undefined : link(op, setting, type);
      const number = (...names: number[]): number =>
        names.map((n) => set?.attributes.get(n)?.[0]).find((x) => x !== undefined) ?? -1;
      const math = number(
        N.CUDNN_ATTR_POINTWISE_MATH_PREC,
        N.CUDNN_ATTR_MATMUL_COMP_TYPE,
        N.CUDNN_ATTR_REDUCTION_COMP_TYPE,
      );
      return {
        type: op.type,
        mode: number(N.CUDNN_ATTR_POINTWISE_MODE, N.CUDNN_ATTR_REDUCTION_OPERATOR),
        math: math < 0 ? 'f32' : graphType(math),
        axis: set?.attributes.get(N.CUDNN_ATTR_POINTWISE_AXIS)?.[0],
        tensors: new Map(
          [...must, ...may]
            .filter((name) => op.attributes.has(name))
            .map((name) => [name, tensor(link(op, name, N.CUDNN_BACKEND_TENSOR_DESCRIPTOR))]),
        ),
      };
    });
  };
  const planned = (plan: Node): { config: Node; engine: (typeof ENGINES)[number] } => {
    const config = link(plan, N.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const engine = ENGINES[config.rank];
    if (!engine || !config.graph) throw new Misuse('the configuration is none that a heuristic gave');
    return { config, engine };
  };

  return {
    cudnnBackendCreateDescriptor: (type: number, cell: NativeArg) => {
      if (!ATTRIBUTES[type]) throw new Misuse(`descriptors of type ${type}`);
      return handles.make(cell, 'descriptor', {
        type,
        finalized: false,
        attributes: new Map(),
        rank: -1,
      } satisfies Node);
    },
    cudnnBackendDestroyDescriptor: (h: number) => handles.destroy(h, 'descriptor'),
    cudnnBackendSetAttribute: (h: number, name: number, type: number, count: number, values: NativeArg) => {
      const n = node(h);
      const want = ATTRIBUTES[n.type][name];
      if (!want) throw new Misuse(`attribute ${name} of a descriptor of type ${n.type}`);
      if (n.finalized || n.attributes.has(name)) throw new Misuse(`attribute ${name} is set already, or finalized`);
      if (type !== want[0] || (want[1] === 0 ? count < 1 : count !== want[1]))
        throw new Misuse(`attribute ${name}: ${count} of type ${type}, not ${want[1]} of ${want[0]}`);
      const view = hostMemory(values, count * WIDTH[type]);
      const read = (i: number): number =>
        type === N.CUDNN_TYPE_FLOAT
          ? view.getFloat32(i * 4, true)
          : WIDTH[type] === 1
            ? view.getUint8(i)
            : WIDTH[type] === 4
              ? view.getInt32(i * 4, true)
              : Number(view.getBigInt64(i * 8, true));
      n.attributes.set(
        name,
        Array.from({ length: count }, (_, i) => read(i)),
      );
      return 0;
    },
    cudnnBackendFinalize: (h: number) => {
      const n = node(h);
      const lacking = Object.entries(ATTRIBUTES[n.type])
        .filter(([a, [, , may]]) => may !== MAY && !n.attributes.has(Number(a)))
        .map(([a]) => a);
      if (lacking.length > 0)
        throw new Misuse(`a descriptor of type ${n.type} without its attributes ${lacking.join(', ')}`);
      if (n.type === N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        handles.get(one(n, N.CUDNN_ATTR_OPERATIONGRAPH_HANDLE), 'handle');
        const nodes = nodesOf(n);
        if (nodes) checkNodes(nodes);
        else convolution(n);
      }
      if (n.type === N.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        handles.get(one(n, N.CUDNN_ATTR_EXECUTION_PLAN_HANDLE), 'handle');
        if (planned(n).engine.status !== 0) return planned(n).engine.status;
      }
      n.finalized = true;
      return 0;
    },
    cudnnBackendGetAttribute: (
      h: number,
      name: number,
      type: number,
      wanted: number,
      found: NativeArg,
      values: NativeArg,
    ) => {
      const n = node(h);
      const put = (all: readonly number[], width: 4 | 8): number => {
        const view = hostMemory(values, Math.min(all.length, wanted) * width);
        all.slice(0, wanted).forEach((v, i) => {
          if (width === 4) view.setInt32(i * 4, v, true);
          else view.setBigInt64(i * 8, BigInt(v), true);
        });
        hostMemory(found, 8).setBigInt64(0, BigInt(all.length), true);
        return 0;
      };
      const target = (i: number): Node => node(Number(hostMemory(values, 8 * (i + 1)).getBigInt64(8 * i, true)));
      if (name === N.CUDNN_ATTR_ENGINEHEUR_RESULTS && n.finalized && type === N.CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const graph = link(n, N.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        const count = Math.min(wanted, ENGINES.length);
        for (let i = 0; i < count; i++) Object.assign(target(i), { rank: i, graph });
        hostMemory(found, 8).setBigInt64(0, BigInt(count), true);
        return 0;
      }
      if (name === N.CUDNN_ATTR_ENGINECFG_ENGINE && n.type === N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
        Object.assign(target(0), { rank: n.rank });
        hostMemory(found, 8).setBigInt64(0, 1n, true);
        return 0;
      }
      if (name === N.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && n.type === N.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return put(ENGINES[n.rank].notes, 4);
      if (name === N.CUDNN_ATTR_ENGINE_GLOBAL_INDEX && n.type === N.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return put([n.rank], 8);
      if (name === N.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && n.finalized)
        return put([planned(n).engine.workspace], 8);
      throw new Misuse(`attribute ${name} of a descriptor of type ${n.type}`);
    },
    cudnnGetLastErrorString: (message: NativeArg, bytes: number) => {
      const text = Buffer.from('CUDNN_STATUS_NOT_SUPPORTED: this engine of the stand-in takes no graph\0');
      text.copy(new Uint8Array(hostMemory(message, bytes).buffer));
      return 0;
    },
    cudnnBackendExecute: (h: number, plan: number, pack: number) => {
      const { stream } = handles.get<ConvolutionHandle>(h, 'handle');
      if (stream === 0) throw new Misuse('no stream was set');
      const [p, v] = [node(plan), node(pack)];
      if (!p.finalized || !v.finalized) throw new Misuse('the plan or its pack of addresses is not finalized');
      const { config, engine } = planned(p);
      const nodes = nodesOf(config.graph as Node);
      const ids = v.attributes.get(N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) as readonly number[];
      const pointers = v.attributes.get(N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) as readonly number[];
      const workspace = one(v, N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
      const at = (id: number): number => {
        const address = pointers[ids.indexOf(id)];
        if (address === undefined) throw new Misuse(`no address has the number ${id}`);
        return address;
      };
      const inMemory = (id: number): number => {
        if (at(id) % CONV_ALIGNMENT !== 0) throw new Misuse(`${at(id)} is not aligned to ${CONV_ALIGNMENT}`);
        return at(id);
      };
      const enqueue = (work: () => void): void =>
        device.enqueue(stream, () => {
          useWorkspace(device, workspace, engine.workspace, engine.workspace);
          work();
        });
      if (nodes) {
        const used = new Map(nodes.flatMap((n) => [...n.tensors.values()]).map((t) => [t.id, t.kind]));
        const wanted = [...used].filter(([, kind]) => kind !== 'virtual').map(([id]) => id);
        const other = ids.find((id) => !wanted.includes(id));
        if (other !== undefined) throw new Misuse(`an address for the number ${other}, which the graph does not have`);
        for (const id of wanted) (used.get(id) === 'memory' ? inMemory : at)(id);
        enqueue(() => runNodes(device, nodes, at));
        return 0;
      }
      const c = convolution(config.graph as Node);
      const [x, filter, y] = [inMemory(c.x.id), inMemory(c.filter.id), inMemory(c.y.id)];
      enqueue(() => convolve(device, c, x, filter, y));
      return 0;
    },
  };
}
