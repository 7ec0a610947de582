// Convolutions as cuDNN's graphs: one operation between three tensors.
import type { Calls } from './checked-calls.js';
import {
  type CUDNN_GRAPH_TABLE,
  CUDNN_GRAPH_NUMBERS as N,
  Descriptors,
  type EnginePlan,
  type Engines,
  GraphRuns,
  type Handle,
  int32,
  int64,
} from './cudnn-graph.js';
import { CONV_ALIGNMENT, type ConvDType, type ConvSpec } from './dnn.js';
import type { Address } from './driver.js';

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
/** Plans kept for measuring. */
const KEPT = 10;

export class ConvolutionGraphs {
  readonly #calls: Calls<typeof CUDNN_GRAPH_TABLE>;
  readonly #handle: Handle;
  readonly #types: { readonly [D in ConvDType]: number };
  readonly #runs: GraphRuns;

  constructor(calls: Calls<typeof CUDNN_GRAPH_TABLE>, handle: Handle, types: { readonly [D in ConvDType]: number }) {
    this.#calls = calls;
    this.#handle = handle;
    this.#types = types;
    this.#runs = new GraphRuns(calls, handle);
  }

  /** The library's engines for a convolution, best first by its own judgement; none where it has no suitable one. */
  engines(spec: ConvSpec, mostWorkspace: number): Engines {
    const descriptors = new Descriptors(this.#calls, { handle: this.#handle });
    const graph = this.#graph(spec, descriptors);
    return { plans: descriptors.plans(graph, { refused: refusedFor(spec), mostWorkspace, most: KEPT }), descriptors };
  }

  run(engine: EnginePlan, x: Address, filter: Address, y: Address, workspace: Address): void {
    this.#runs.run(engine, [IDS.x, IDS.filter, IDS.y], [x, filter, y], workspace);
  }
  dispose(): void {
    this.#runs.dispose();
  }

  #graph(spec: ConvSpec, d: Descriptors): Handle {
    const tensor = (id: number, dims: ConvSpec['x']): Handle => {
      const [, c, h, w] = dims;
      const strides = [c * h * w, h * w, w, 1];
      return d.tensor({ id, type: this.#types[spec.dtype], dims, strides, alignment: CONV_ALIGNMENT });
    };
    const conv = d.make(N.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, N.CUDNN_TYPE_INT64, int64(2));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, N.CUDNN_TYPE_DATA_TYPE, int32(this.#types.f32));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_CONV_MODE, N.CUDNN_TYPE_CONVOLUTION_MODE, int32(1));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, N.CUDNN_TYPE_INT64, int64(...spec.padding));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, N.CUDNN_TYPE_INT64, int64(...spec.padding));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_DILATIONS, N.CUDNN_TYPE_INT64, int64(...spec.dilation));
    d.set(conv, N.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, N.CUDNN_TYPE_INT64, int64(...spec.stride));
    d.finalized(conv);
    const kind = OPERATIONS[spec.kind];
    const op = d.make(kind.type);
    d.set(op, kind.alpha, N.CUDNN_TYPE_FLOAT, Float32Array.of(1));
    d.set(op, kind.alpha + 1, N.CUDNN_TYPE_FLOAT, Float32Array.of(0));
    d.link(op, kind.alpha + 2, conv);
    for (const name of ['x', 'filter', 'y'] as const) d.link(op, kind[name], tensor(IDS[name], spec[name]));
    return d.graph([d.finalized(op)]);
  }
}
