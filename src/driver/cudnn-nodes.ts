// Nodes of cuDNN's attention graphs: tensors in memory, by value and between nodes, and the operations on them.
import { ATTENTION_ALIGNMENT } from './attention.js';
import { CUDNN_GRAPH_NUMBERS as N, type Descriptors, type Handle, int32, int64 } from './cudnn-graph.js';

/** Types of tensors, by cuDNN's numbers. */
export const ATTENTION_TYPES = { f32: 0, f16: 2, i32: 4, bf16: 9, bool: 11 } as const;
type Type = keyof typeof ATTENTION_TYPES;

/** Numbers of the tensors in memory. */
export const IDS = {
  q: 1,
  k: 2,
  v: 3,
  out: 4,
  lse: 5,
  dout: 6,
  dq: 7,
  dk: 8,
  dv: 9,
  delta: 10,
  dqSum: 11,
  keyCounts: 12,
  queryCounts: 13,
  pageTable: 14,
  valuePages: 15,
} as const;
/** Numbers given by value, in words of 4 bytes at the places in this list, from `FIRST_VALUE` on. */
export const VALUES = ['scale', 'unseen', 'one', 'keys', 'queries', 'right', 'left', 'leftCount'] as const;
export type Value = (typeof VALUES)[number];
export const FIRST_VALUE = 20;
const FIRST_VIRTUAL = 100;

export type Dims = readonly [number, number, number, number];
export interface Node {
  readonly handle: Handle;
  readonly dims: Dims;
}
export const dense = ([, h, m, n]: Dims): Dims => [h * m * n, m * n, n, 1];

/** Nodes of one graph in the making. */
export class Nodes {
  readonly descriptors: Descriptors;
  readonly operations: Handle[] = [];
  readonly values = new Set<Value>();
  readonly #given = new Map<number, Node>();
  #next = FIRST_VIRTUAL;

  constructor(descriptors: Descriptors) {
    this.descriptors = descriptors;
  }

  /** A tensor in memory; the same however often it is asked for. */
  memory(name: keyof typeof IDS, type: Type, dims: Dims, strides: Dims = dense(dims)): Node {
    return this.#once(IDS[name], type, dims, strides, undefined);
  }
  value(name: Value, type: Type): Node {
    this.values.add(name);
    return this.#once(FIRST_VALUE + VALUES.indexOf(name), type, [1, 1, 1, 1], [1, 1, 1, 1], 'by value');
  }
  between(type: Type, dims: Dims, strides: Dims = dense(dims)): Node {
    return this.#once(this.#next++, type, dims, strides, 'virtual');
  }
  #once(id: number, type: Type, dims: Dims, strides: Dims, kind: 'virtual' | 'by value' | undefined): Node {
    const known = this.#given.get(id);
    if (known) return known;
    const number = ATTENTION_TYPES[type];
    const alignment = ATTENTION_ALIGNMENT;
    const handle = this.descriptors.tensor({ id, type: number, dims, strides, alignment, kind });
    const node = { handle, dims };
    this.#given.set(id, node);
    return node;
  }

  /** y = mode(x, b), or of a predicate t: x where it holds, else b. */
  pointwise(
    mode: number,
    x: Node,
    {
      b,
      t,
      y = undefined as Node | undefined,
      type = 'f32' as Type,
      math = 'f32' as Type,
      axis = undefined as number | undefined,
    }: { b?: Node; t?: Node; y?: Node; type?: Type; math?: Type; axis?: number } = {},
  ): Node {
    const d = this.descriptors;
    const to = y ?? this.between(type, x.dims);
    const what = d.make(N.CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    d.set(what, N.CUDNN_ATTR_POINTWISE_MODE, N.CUDNN_TYPE_POINTWISE_MODE, int32(mode));
    d.set(what, N.CUDNN_ATTR_POINTWISE_MATH_PREC, N.CUDNN_TYPE_DATA_TYPE, int32(ATTENTION_TYPES[math]));
    if (axis !== undefined) d.set(what, N.CUDNN_ATTR_POINTWISE_AXIS, N.CUDNN_TYPE_INT64, int64(axis));
    d.finalized(what);
    const op = d.make(N.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    d.link(op, N.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    d.link(op, N.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.handle);
    if (b) d.link(op, N.CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.handle);
    if (t) d.link(op, N.CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.handle);
    this.operations.push(d.finalized(op));
    return to;
  }
  /** c = a b by matrices; counts by batch entry may cut m, n and k short. */
  product(a: Node, b: Node, c: Node, cut: { m?: Node; n?: Node; k?: Node }): Node {
    const d = this.descriptors;
    const what = d.make(N.CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    d.set(what, N.CUDNN_ATTR_MATMUL_COMP_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(ATTENTION_TYPES.f32));
    d.finalized(what);
    const op = d.make(N.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    if (cut.m) d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, cut.m.handle);
    if (cut.n) d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, cut.n.handle);
    if (cut.k) d.link(op, N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, cut.k.handle);
    this.operations.push(d.finalized(op));
    return c;
  }
  /** Over the dimensions in which y has one element. */
  reduce(operator: number, x: Node, y: Node): Node {
    const d = this.descriptors;
    const what = d.make(N.CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    d.set(what, N.CUDNN_ATTR_REDUCTION_OPERATOR, N.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, int32(operator));
    d.set(what, N.CUDNN_ATTR_REDUCTION_COMP_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(ATTENTION_TYPES.f32));
    d.finalized(what);
    const op = d.make(N.CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    d.link(op, N.CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    d.link(op, N.CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.handle);
    this.operations.push(d.finalized(op));
    return y;
  }
  /** The same numbers under other dimensions and strides. */
  view(x: Node, y: Node): Node {
    const d = this.descriptors;
    const op = d.make(N.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    d.link(op, N.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.handle);
    this.operations.push(d.finalized(op));
    return y;
  }
  /** Rows of a sequence, gathered from its pages. */
  paged(container: Node, counts: Node, table: Node, y: Node): Node {
    const d = this.descriptors;
    const op = d.make(N.CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR);
    d.link(op, N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, container.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, y.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, counts.handle);
    d.link(op, N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, table.handle);
    this.operations.push(d.finalized(op));
    return y;
  }
}
