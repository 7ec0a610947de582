// Graphs of products, reductions and pointwise nodes, as a stand-in of cuDNN runs them: node by node with plain loops,
// each by what its descriptors say. What does not fit together is refused, as is what the library would not take for
// attention.
import { DTYPE, type DType } from '../base/dtype.js';
import { ATTENTION_ALIGNMENT } from '../driver/attention.js';
import { CUDNN_GRAPH_NUMBERS as N } from '../driver/cudnn-graph.js';
import { ATTENTION_TYPES } from '../driver/cudnn-nodes.js';
import { hostMemory, type HostedDevice, Misuse, Numbers, typeOf } from './library.js';

/** A tensor of a graph: in memory, by value, or between two nodes. */
export interface GraphTensor {
  readonly id: number;
  readonly dtype: DType;
  readonly dims: readonly number[];
  readonly strides: readonly number[];
  readonly kind: 'memory' | 'by value' | 'virtual';
}
/** A node: the type of its descriptor, its setting, its tensors by attribute. */
export interface GraphNode {
  readonly type: number;
  /** Pointwise mode or reduction operator. */
  readonly mode: number;
  readonly math: DType;
  readonly axis: number | undefined;
  readonly tensors: ReadonlyMap<number, GraphTensor>;
}

type Binary = (x: number, b: number) => number;
const BINARY: Readonly<Record<number, Binary>> = {
  [N.CUDNN_POINTWISE_ADD]: (x, b) => x + b,
  [N.CUDNN_POINTWISE_SUB]: (x, b) => x - b,
  [N.CUDNN_POINTWISE_MUL]: (x, b) => x * b,
  [N.CUDNN_POINTWISE_DIV]: (x, b) => x / b,
  [N.CUDNN_POINTWISE_CMP_GT]: (x, b) => Number(x > b),
  [N.CUDNN_POINTWISE_CMP_GE]: (x, b) => Number(x >= b),
  [N.CUDNN_POINTWISE_CMP_LT]: (x, b) => Number(x < b),
  [N.CUDNN_POINTWISE_LOGICAL_AND]: (x, b) => Number(x !== 0 && b !== 0),
};
const UNARY: Readonly<Record<number, (x: number) => number>> = {
  [N.CUDNN_POINTWISE_EXP]: Math.exp,
  [N.CUDNN_POINTWISE_LOG]: Math.log,
  [N.CUDNN_POINTWISE_IDENTITY]: (x) => x,
};
const TRUTH: readonly number[] = [
  N.CUDNN_POINTWISE_CMP_GT,
  N.CUDNN_POINTWISE_CMP_GE,
  N.CUDNN_POINTWISE_CMP_LT,
  N.CUDNN_POINTWISE_LOGICAL_AND,
];

const count = (dims: readonly number[]): number => dims.reduce((a, b) => a * b, 1);
const words = (t: GraphTensor): string => `tensor ${t.id} [${t.dims.join(', ')}] of ${t.dtype}`;

export function checkTensor(t: GraphTensor, alignment: number): void {
  if (t.dims.length !== 4 || t.strides.length !== 4 || t.dims.some((d) => d < 1) || t.strides.some((s) => s < 1))
    throw new Misuse(`${words(t)} with strides ${t.strides.join(', ')}`);
  if (alignment !== ATTENTION_ALIGNMENT) throw new Misuse('a byte alignment that is not kept');
  if (t.kind === 'by value' && count(t.dims) !== 1) throw new Misuse(`${words(t)} by value`);
  // Steps from the widest down, over those that move at all, must not overlap.
  const steps = t.dims.map((d, i) => [t.strides[i], d] as const).filter(([, d]) => d > 1);
  steps.sort(([a], [b]) => a - b);
  steps.reduce((reach, [stride, d]) => {
    if (stride < reach) throw new Misuse(`${words(t)}: strides ${t.strides.join(', ')} make rows overlap`);
    return stride * (d - 1) + reach;
  }, 1);
}

const X = N.CUDNN_ATTR_OPERATION_POINTWISE_XDESC;
const B = N.CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
const Y = N.CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
const T = N.CUDNN_ATTR_OPERATION_POINTWISE_TDESC;
const must = (n: GraphNode, name: number): GraphTensor => {
  const t = n.tensors.get(name);
  if (!t) throw new Misuse(`a node of type ${n.type} and mode ${n.mode} without its tensor ${name}`);
  return t;
};
const same = (a: readonly number[], b: readonly number[]): boolean => a.join() === b.join();

/** Whether the nodes fit together: shapes, types, and that what is read was made before. */
export function checkNodes(nodes: readonly GraphNode[]): void {
  const made = new Set<number>();
  const known = new Map<number, GraphTensor>();
  for (const n of nodes) {
    for (const t of n.tensors.values()) {
      const before = known.get(t.id);
      if (before && before !== t) throw new Misuse(`two tensors have the number ${t.id}`);
      known.set(t.id, t);
    }
    const out = RULES[n.type](n);
    for (const t of n.tensors.values())
      if (t !== out && t.kind === 'virtual' && !made.has(t.id))
        throw new Misuse(`${words(t)} is read before it is made`);
    if (made.has(out.id) || out.kind === 'by value') throw new Misuse(`${words(out)} is made twice, or by value`);
    made.add(out.id);
  }
  for (const t of known.values())
    if (t.kind === 'virtual' && !nodes.some((n) => [...n.tensors.values()].includes(t) && RULES[n.type](n) !== t))
      throw new Misuse(`${words(t)} is made for nobody`);
}

/** The rules of each type of node; the answer is the tensor it makes. */
const RULES: Readonly<Record<number, (n: GraphNode) => GraphTensor>> = {
  [N.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR]: (n) => {
    const [x, y] = [must(n, X), must(n, Y)];
    const fits = (t: GraphTensor): void => {
      if (t.dims.some((d, i) => d !== 1 && d !== y.dims[i]))
        throw new Misuse(`${words(t)} does not spread to ${words(y)}`);
    };
    if (!same(x.dims, y.dims)) throw new Misuse(`${words(x)} becomes ${words(y)}`);
    if (n.mode === N.CUDNN_POINTWISE_GEN_INDEX) {
      if (n.axis !== 2 && n.axis !== 3) throw new Misuse(`an index along axis ${n.axis}`);
      if (y.dtype !== 'i32') throw new Misuse(`an index of ${y.dtype}`);
    } else if (n.mode === N.CUDNN_POINTWISE_BINARY_SELECT) {
      const [b, t] = [must(n, B), must(n, T)];
      fits(b);
      if (t.dtype !== 'bool' || !same(t.dims, y.dims)) throw new Misuse(`a choice by ${words(t)}`);
    } else if (BINARY[n.mode]) {
      fits(must(n, B));
      if ((y.dtype === 'bool') !== TRUTH.includes(n.mode)) throw new Misuse(`mode ${n.mode} to ${words(y)}`);
    } else if (!UNARY[n.mode]) throw new Misuse(`pointwise mode ${n.mode}`);
    return y;
  },
  [N.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR]: (n) => {
    const [a, b, c] = [
      N.CUDNN_ATTR_OPERATION_MATMUL_ADESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_BDESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_CDESC,
    ].map((name) => must(n, name));
    if (n.math !== 'f32') throw new Misuse(`a product in ${n.math}`);
    if (a.dims[0] !== b.dims[0] || a.dims[3] !== b.dims[2] || a.dims[1] % b.dims[1] !== 0)
      throw new Misuse(`the product of ${words(a)} and ${words(b)}`);
    if (!same(c.dims, [a.dims[0], a.dims[1], a.dims[2], b.dims[3]]))
      throw new Misuse(`the product of ${words(a)} and ${words(b)} as ${words(c)}`);
    for (const name of Object.values(CUTS)) {
      const t = n.tensors.get(name);
      if (t && (t.dtype !== 'i32' || !same(t.dims, [a.dims[0], 1, 1, 1]))) throw new Misuse(`counts in ${words(t)}`);
    }
    return c;
  },
  [N.CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR]: (n) => {
    const [x, y] = [must(n, N.CUDNN_ATTR_OPERATION_REDUCTION_XDESC), must(n, N.CUDNN_ATTR_OPERATION_REDUCTION_YDESC)];
    if (n.mode !== N.CUDNN_REDUCE_TENSOR_ADD && n.mode !== N.CUDNN_REDUCE_TENSOR_MAX)
      throw new Misuse(`operator ${n.mode}`);
    if (n.math !== 'f32') throw new Misuse(`a reduction in ${n.math}`);
    // Heads of a group lie side by side and are summed into theirs; every other dimension stays or becomes one.
    if (x.dims.some((d, i) => y.dims[i] !== d && y.dims[i] !== 1 && !(i === 1 && d % y.dims[1] === 0)))
      throw new Misuse(`${words(x)} reduced to ${words(y)}`);
    return y;
  },
  [N.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR]: (n) => {
    const [x, y] = [must(n, N.CUDNN_ATTR_OPERATION_RESHAPE_XDESC), must(n, N.CUDNN_ATTR_OPERATION_RESHAPE_YDESC)];
    const turned = [0, 1, 3, 2];
    if (
      !same(
        y.dims,
        turned.map((i) => x.dims[i]),
      ) ||
      !same(
        y.strides,
        turned.map((i) => x.strides[i]),
      )
    )
      throw new Misuse(`${words(x)} seen as ${words(y)} with strides ${y.strides.join(', ')}`);
    return y;
  },
  [N.CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR]: (n) => {
    const [container, y, counts, table] = PAGED.map((name) => must(n, name));
    const columns = y.strides[3] !== 1; // keys come as columns
    const [rows, dim] = columns ? [y.dims[3], y.dims[2]] : [y.dims[2], y.dims[3]];
    if (container.dims[1] !== y.dims[1] || container.dims[3] !== dim)
      throw new Misuse(`pages ${words(container)} for ${words(y)}`);
    if (!same(table.dims, [y.dims[0], 1, Math.ceil(rows / container.dims[2]), 1]) || table.dtype !== 'i32')
      throw new Misuse(`${words(table)} as a table of pages for ${words(y)}`);
    if (counts.dtype !== 'i32' || !same(counts.dims, [y.dims[0], 1, 1, 1]))
      throw new Misuse(`counts in ${words(counts)}`);
    return y;
  },
};
const CUTS = {
  m: N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
  n: N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
  k: N.CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
} as const;
const PAGED = [
  N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC,
  N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC,
  N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC,
  N.CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC,
] as const;

/** Runs the nodes; `at` answers the address of a tensor in memory or by value. */
export function runNodes(device: HostedDevice, nodes: readonly GraphNode[], at: (id: number) => number): void {
  const values = new Map<number, Float64Array>(); // dense, in the order of the dimensions
  const read = (t: GraphTensor): Float64Array => {
    let found = values.get(t.id);
    if (!found)
      values.set(t.id, (found = t.kind === 'by value' ? byValue(t, at(t.id)) : fromMemory(device, t, at(t.id))));
    return found;
  };
  for (const n of nodes) {
    const out = RULES[n.type](n);
    const result = RUNS[n.type](n, read);
    const { encode, decode } = DTYPE[out.dtype];
    const rounded = out.dtype === 'bool' ? result : result.map((x) => Number(decode(encode(x) as never)));
    values.set(out.id, rounded);
    if (out.kind === 'memory') toMemory(device, out, at(out.id), rounded);
  }
}

function byValue(t: GraphTensor, address: number): Float64Array {
  const view = hostMemory(address, 4);
  return Float64Array.of(t.dtype === 'i32' ? view.getInt32(0, true) : view.getFloat32(0, true));
}
const spanOf = (t: GraphTensor): number => t.dims.reduce((n, d, i) => n + (d - 1) * t.strides[i], 1);
/** Offsets in memory by place in the dense order. */
function* offsets({ dims, strides }: GraphTensor): Generator<number> {
  const [b, h, m, n] = dims;
  for (let e = 0; e < b; e++)
    for (let g = 0; g < h; g++)
      for (let i = 0; i < m; i++)
        for (let j = 0; j < n; j++) yield e * strides[0] + g * strides[1] + i * strides[2] + j * strides[3];
}
function fromMemory(device: HostedDevice, t: GraphTensor, address: number): Float64Array {
  const whole = new Numbers(device, words(t), address, spanOf(t), t.dtype).values;
  return Float64Array.from(offsets(t), (o) => whole[o]);
}
function toMemory(device: HostedDevice, t: GraphTensor, address: number, values: Float64Array): void {
  const whole = new Numbers(device, words(t), address, spanOf(t), t.dtype);
  let i = 0;
  for (const o of offsets(t)) whole.values[o] = values[i++];
  whole.write();
}

type Read = (t: GraphTensor) => Float64Array;
/** A place of `to` as one of `t`, which may have one element where the other has many, or one head for several. */
const placeIn =
  (t: readonly number[], to: readonly number[]) =>
  (place: number): number => {
    let [rest, at, step] = [place, 0, 1];
    for (let i = 3; i >= 0; i--) {
      const x = rest % to[i];
      rest = (rest - x) / to[i];
      at += (t[i] === to[i] ? x : Math.floor(x / (to[i] / t[i]))) * step;
      step *= t[i];
    }
    return at;
  };

const RUNS: Readonly<Record<number, (n: GraphNode, read: Read) => Float64Array>> = {
  [N.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR]: (n, read) => {
    const y = must(n, Y);
    const [, , rows, cols] = y.dims;
    const size = count(y.dims);
    if (n.mode === N.CUDNN_POINTWISE_GEN_INDEX)
      return Float64Array.from({ length: size }, (_, i) => (n.axis === 3 ? i % cols : Math.floor(i / cols) % rows));
    const x = read(must(n, X));
    const unary = UNARY[n.mode];
    if (unary) return x.map(unary);
    const bTensor = must(n, B);
    const [b, place] = [read(bTensor), placeIn(bTensor.dims, y.dims)];
    if (n.mode === N.CUDNN_POINTWISE_BINARY_SELECT) {
      const t = read(must(n, T));
      return x.map((v, i) => (t[i] !== 0 ? v : b[place(i)]));
    }
    return x.map((v, i) => BINARY[n.mode](v, b[place(i)]));
  },
  [N.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR]: (node, read) => {
    const [aT, bT, cT] = [
      N.CUDNN_ATTR_OPERATION_MATMUL_ADESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_BDESC,
      N.CUDNN_ATTR_OPERATION_MATMUL_CDESC,
    ].map((name) => must(node, name));
    const [a, b] = [read(aT), read(bT)];
    const [batch, heads, m, n] = cT.dims;
    const k = aT.dims[3];
    const shared = heads / bT.dims[1];
    const cut = (name: keyof typeof CUTS, entry: number, all: number): number => {
      const t = node.tensors.get(CUTS[name]);
      return t ? Math.min(all, read(t)[entry]) : all;
    };
    const out = new Float64Array(count(cT.dims));
    for (let e = 0; e < batch; e++) {
      const [rows, cols, inner] = [cut('m', e, m), cut('n', e, n), cut('k', e, k)];
      for (let h = 0; h < heads; h++)
        for (let i = 0; i < rows; i++)
          for (let j = 0; j < cols; j++) {
            const [from, by] = [((e * heads + h) * m + i) * k, (e * bT.dims[1] + Math.floor(h / shared)) * k * n + j];
            let sum = 0;
            for (let x = 0; x < inner; x++) sum += a[from + x] * b[by + x * n];
            out[((e * heads + h) * m + i) * n + j] = sum;
          }
    }
    return out;
  },
  [N.CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR]: (n, read) => {
    const [x, y] = [must(n, N.CUDNN_ATTR_OPERATION_REDUCTION_XDESC), must(n, N.CUDNN_ATTR_OPERATION_REDUCTION_YDESC)];
    const place = placeIn(y.dims, x.dims);
    const most = n.mode === N.CUDNN_REDUCE_TENSOR_MAX;
    const out = new Float64Array(count(y.dims)).fill(most ? -Infinity : 0);
    read(x).forEach((v, i) => {
      const to = place(i);
      out[to] = most ? Math.max(out[to], v) : out[to] + v;
    });
    return out;
  },
  [N.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR]: (n, read) => {
    const x = must(n, N.CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const [, , rows, cols] = x.dims;
    const from = read(x);
    return from.map((_, i) => {
      const matrix = Math.floor(i / (rows * cols));
      return from[matrix * rows * cols + (i % rows) * cols + (Math.floor(i / rows) % cols)];
    });
  },
  [N.CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR]: (n, read) => {
    const [container, y, counts, table] = PAGED.map((name) => must(n, name));
    const [pages, used, found] = [read(container), read(counts), read(table)];
    const columns = y.strides[3] !== 1;
    const [pageCount, heads, pageRows, dim] = container.dims;
    const rows = columns ? y.dims[3] : y.dims[2];
    const out = new Float64Array(count(y.dims));
    for (let e = 0; e < y.dims[0]; e++)
      for (let i = 0; i < Math.min(rows, used[e]); i++) {
        const page = found[e * table.dims[2] + Math.floor(i / pageRows)];
        if (page < 0 || page >= pageCount) throw new Misuse(`page ${page} of ${pageCount}`);
        for (let h = 0; h < heads; h++)
          for (let d = 0; d < dim; d++) {
            const to = (e * heads + h) * rows * dim + (columns ? d * rows + i : i * dim + d);
            out[to] = pages[((page * heads + h) * pageRows + (i % pageRows)) * dim + d];
          }
      }
    return out;
  },
};

export const graphType = (number: number): DType => typeOf(ATTENTION_TYPES, number);
