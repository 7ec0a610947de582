// A stand-in of cuDNN's graph interface: descriptors are bags of attributes; a finalized graph is a convolution or a
// graph of nodes, which one of five engines runs on the host.
import { CUDNN_TYPES } from '../driver/cudnn.js';
import { CUDNN_GRAPH_NUMBERS as N } from '../driver/cudnn-graph.js';
import { CONV_ALIGNMENT } from '../driver/dnn.js';
import type { NativeArg } from '../driver/ffi.js';
import { checkConvolution, type Convolution, type ConvolutionHandle, convolve, type Plane } from './convolution.js';
import { ATTRIBUTES, MAY, type Node, NODES, one, OPERATIONS, WIDTH } from './cudnn-descriptors.js';
import { checkNodes, checkTensor, type GraphNode, type GraphTensor, graphType, runNodes } from './cudnn-nodes.js';
import { type Handles, type HostedDevice, hostMemory, Misuse, type Symbols, typeOf, useWorkspace } from './library.js';

const NOT_SUPPORTED = 3000;
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
type NumberedConvolution = Convolution & Record<'x' | 'filter' | 'y', { readonly id: number }>;
type Engine = (typeof ENGINES)[number];

/** What finalized descriptors mean. */
class Graphs {
  readonly handles: Handles;
  readonly #tensors = new Map<Node, GraphTensor>();

  constructor(handles: Handles) {
    this.handles = handles;
  }

  node(h: number): Node {
    return this.handles.get<Node>(h, 'descriptor');
  }

  link(n: Node, name: number, type: number): Node {
    const found = this.node(one(n, name));
    if (found.type !== type)
      throw new Misuse(`attribute ${name} links a descriptor of type ${found.type}, not ${type}`);
    if (!found.finalized && type !== N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
      throw new Misuse(`attribute ${name} links a descriptor that is not finalized`);
    return found;
  }

  #plane(t: Node): Plane & { id: number } {
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
  }

  convolution(graph: Node): NumberedConvolution {
    const op = this.node(one(graph, N.CUDNN_ATTR_OPERATIONGRAPH_OPS));
    const names = OPERATIONS[op.type];
    if (!names || !op.finalized) throw new Misuse(`an operation of type ${op.type}`);
    if (one(op, names.alpha) !== 1 || one(op, names.alpha + 1) !== 0) throw new Misuse('alpha is not 1 or beta not 0');
    const conv = this.link(op, names.alpha + 2, N.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const two = (name: number) => conv.attributes.get(name) as unknown as readonly [number, number];
    if (one(conv, N.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) !== 2) throw new Misuse('not two spatial dimensions');
    if (one(conv, N.CUDNN_ATTR_CONVOLUTION_CONV_MODE) !== 1) throw new Misuse('not a cross-correlation');
    if (typeOf(CUDNN_TYPES, one(conv, N.CUDNN_ATTR_CONVOLUTION_COMP_TYPE)) !== 'f32')
      throw new Misuse('sums are not kept in f32');
    const padding = two(N.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    if (padding.join() !== two(N.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS).join())
      throw new Misuse('paddings before and after differ');
    const tensor = (name: number) => this.#plane(this.link(op, name, N.CUDNN_BACKEND_TENSOR_DESCRIPTOR));
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
  }

  /** The nodes of a graph, or undefined where it is a convolution. */
  nodes(graph: Node): readonly GraphNode[] | undefined {
    const ops = (graph.attributes.get(N.CUDNN_ATTR_OPERATIONGRAPH_OPS) as readonly number[]).map((h) => this.node(h));
    if (ops.length === 1 && OPERATIONS[ops[0].type]) return undefined;
    return ops.map((op) => this.#graphNode(op));
  }

  #graphNode(op: Node): GraphNode {
    const { setting, type, must, may } = NODES[op.type] ?? { must: [], may: [] };
    if (must.length === 0 || !op.finalized) throw new Misuse(`an operation of type ${op.type}`);
    const set = setting === undefined || type === undefined ? undefined : this.link(op, setting, type);
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
          .map((name) => [name, this.#tensor(this.link(op, name, N.CUDNN_BACKEND_TENSOR_DESCRIPTOR))]),
      ),
    };
  }

  #tensor(t: Node): GraphTensor {
    const known = this.#tensors.get(t);
    if (known) return known;
    const list = (name: number) => t.attributes.get(name) as readonly number[];
    const flag = (name: number): boolean => t.attributes.get(name)?.[0] === 1;
    const made: GraphTensor = {
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
    checkTensor(made, one(t, N.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
    this.#tensors.set(t, made);
    return made;
  }

  planned(plan: Node): { graph: Node; engine: Engine } {
    const config = this.link(plan, N.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const engine = ENGINES[config.rank];
    if (!engine || !config.graph) throw new Misuse('the configuration is none that a heuristic gave');
    return { graph: config.graph, engine };
  }
}

function setAttribute(n: Node, name: number, type: number, count: number, values: NativeArg): number {
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
}

function finalize(graphs: Graphs, n: Node): number {
  const lacking = Object.entries(ATTRIBUTES[n.type])
    .filter(([a, [, , may]]) => may !== MAY && !n.attributes.has(Number(a)))
    .map(([a]) => a);
  if (lacking.length > 0)
    throw new Misuse(`a descriptor of type ${n.type} without its attributes ${lacking.join(', ')}`);
  if (n.type === N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    graphs.handles.get(one(n, N.CUDNN_ATTR_OPERATIONGRAPH_HANDLE), 'handle');
    const nodes = graphs.nodes(n);
    if (nodes) checkNodes(nodes);
    else graphs.convolution(n);
  }
  if (n.type === N.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    graphs.handles.get(one(n, N.CUDNN_ATTR_EXECUTION_PLAN_HANDLE), 'handle');
    const { status } = graphs.planned(n).engine;
    if (status !== 0) return status;
  }
  n.finalized = true;
  return 0;
}

function getAttribute(
  graphs: Graphs,
  n: Node,
  [name, type, wanted]: readonly [name: number, type: number, wanted: number],
  found: NativeArg,
  values: NativeArg,
): number {
  const count = (n: number): number => {
    hostMemory(found, 8).setBigInt64(0, BigInt(n), true);
    return 0;
  };
  const put = (all: readonly number[], width: 4 | 8): number => {
    const view = hostMemory(values, Math.min(all.length, wanted) * width);
    all.slice(0, wanted).forEach((v, i) => {
      if (width === 4) view.setInt32(i * 4, v, true);
      else view.setBigInt64(i * 8, BigInt(v), true);
    });
    return count(all.length);
  };
  const target = (i: number): Node => graphs.node(Number(hostMemory(values, 8 * (i + 1)).getBigInt64(8 * i, true)));
  if (name === N.CUDNN_ATTR_ENGINEHEUR_RESULTS && n.finalized && type === N.CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const graph = graphs.link(n, N.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, N.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const given = Math.min(wanted, ENGINES.length);
    for (let i = 0; i < given; i++) Object.assign(target(i), { rank: i, graph });
    return count(given);
  }
  if (name === N.CUDNN_ATTR_ENGINECFG_ENGINE && n.type === N.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    Object.assign(target(0), { rank: n.rank });
    return count(1);
  }
  if (name === N.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && n.type === N.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    return put(ENGINES[n.rank].notes, 4);
  if (name === N.CUDNN_ATTR_ENGINE_GLOBAL_INDEX && n.type === N.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
    return put([n.rank], 8);
  if (name === N.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && n.finalized)
    return put([graphs.planned(n).engine.workspace], 8);
  throw new Misuse(`attribute ${name} of a descriptor of type ${n.type}`);
}

/** Addresses of a variant pack by the numbers of their tensors. */
class Pack {
  readonly ids: readonly number[];
  readonly #pointers: readonly number[];

  constructor(pack: Node) {
    this.ids = pack.attributes.get(N.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) as readonly number[];
    this.#pointers = pack.attributes.get(N.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) as readonly number[];
  }

  at(id: number): number {
    const address = this.#pointers[this.ids.indexOf(id)];
    if (address === undefined) throw new Misuse(`no address has the number ${id}`);
    return address;
  }

  aligned(id: number): number {
    const address = this.at(id);
    if (address % CONV_ALIGNMENT !== 0) throw new Misuse(`${address} is not aligned to ${CONV_ALIGNMENT}`);
    return address;
  }

  /** Refuses a pack that lacks a tensor of the graph in memory, or has one that the graph does not have. */
  checkFor(nodes: readonly GraphNode[]): void {
    const used = new Map(nodes.flatMap((n) => [...n.tensors.values()]).map((t) => [t.id, t.kind]));
    const wanted = [...used].filter(([, kind]) => kind !== 'virtual').map(([id]) => id);
    const other = this.ids.find((id) => !wanted.includes(id));
    if (other !== undefined) throw new Misuse(`an address for the number ${other}, which the graph does not have`);
    for (const id of wanted) used.get(id) === 'memory' ? this.aligned(id) : this.at(id);
  }
}

function execute(graphs: Graphs, device: HostedDevice, stream: number, plan: Node, pack: Node): number {
  if (stream === 0) throw new Misuse('no stream was set');
  if (!plan.finalized || !pack.finalized) throw new Misuse('the plan or its pack of addresses is not finalized');
  const { graph, engine } = graphs.planned(plan);
  const addresses = new Pack(pack);
  const workspace = one(pack, N.CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const enqueue = (work: () => void): number => {
    device.enqueue(stream, () => {
      useWorkspace(device, workspace, engine.workspace, engine.workspace);
      work();
    });
    return 0;
  };
  const nodes = graphs.nodes(graph);
  if (nodes) {
    addresses.checkFor(nodes);
    return enqueue(() => runNodes(device, nodes, (id) => addresses.at(id)));
  }
  const c = graphs.convolution(graph);
  const [x, filter, y] = [c.x, c.filter, c.y].map(({ id }) => addresses.aligned(id));
  return enqueue(() => convolve(device, c, x, filter, y));
}

export function graphSymbols(device: HostedDevice, handles: Handles): Symbols {
  const graphs = new Graphs(handles);
  const node = (h: number): Node => graphs.node(h);
  return {
    cudnnBackendCreateDescriptor: (type: number, cell: NativeArg) => {
      if (!ATTRIBUTES[type]) throw new Misuse(`descriptors of type ${type}`);
      const made: Node = { type, finalized: false, attributes: new Map(), rank: -1 };
      return handles.make(cell, 'descriptor', made);
    },
    cudnnBackendDestroyDescriptor: (h: number) => handles.destroy(h, 'descriptor'),
    cudnnBackendSetAttribute: (h: number, name: number, type: number, count: number, values: NativeArg) =>
      setAttribute(node(h), name, type, count, values),
    cudnnBackendFinalize: (h: number) => finalize(graphs, node(h)),
    cudnnBackendGetAttribute: (
      h: number,
      name: number,
      type: number,
      wanted: number,
      found: NativeArg,
      values: NativeArg,
    ) => getAttribute(graphs, node(h), [name, type, wanted], found, values),
    cudnnGetLastErrorString: (message: NativeArg, bytes: number) => {
      const text = Buffer.from('CUDNN_STATUS_NOT_SUPPORTED: this engine of the stand-in takes no graph\0');
      text.copy(new Uint8Array(hostMemory(message, bytes).buffer));
      return 0;
    },
    cudnnBackendExecute: (h: number, plan: number, pack: number) => {
      const { stream } = handles.get<ConvolutionHandle>(h, 'handle');
      return execute(graphs, device, stream, node(plan), node(pack));
    },
  };
}
