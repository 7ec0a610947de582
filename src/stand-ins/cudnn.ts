// A stand-in of cuDNN's algorithms; its graph interface is in cudnn-graph.ts.
import { CUDNN_NUMBERS as N, CUDNN_PERF, CUDNN_TYPES } from '../driver/cudnn.js';
import type { NativeArg } from '../driver/ffi.js';
import {
  type Convolution,
  ConvolutionLibrary,
  type Kinds,
  type Offer,
  type OfferCall,
  type Setting,
} from './convolution.js';
import { graphSymbols } from './cudnn-graph.js';
import {
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  StandIn,
  type Symbols,
  textAddress,
  typeOf,
} from './library.js';

interface CudnnSetting extends Setting {
  math: number;
  compute: number;
}
/**
 * Algorithms by rank: the first fails when it is tried, the second wants more memory than is reasonable, the last none.
 */
const ALGORITHMS = [
  { number: 7, status: 3000, workspace: 0 },
  { number: 5, status: 0, workspace: 2 ** 32 },
  { number: 1, status: 0, workspace: 1 << 13 },
  { number: 0, status: 0, workspace: 0 },
] as const;
/** cuDNN's words for the kinds, and the order in which each call names its operands. */
const KINDS = {
  Forward: { kind: 'forward', order: ['x', 'filter', 'y'] },
  BackwardData: { kind: 'backward-data', order: ['filter', 'y', 'x'] },
  BackwardFilter: { kind: 'backward-filter', order: ['x', 'y', 'filter'] },
} as const satisfies Kinds;

export function cudnnStandIn(device: HostedDevice): StandIn {
  const handles = new Handles();
  const library = new ConvolutionLibrary(device, handles);
  const plane =
    (what: string) =>
    (h: number, format: number, type: number, dims: readonly number[]): number => {
      if (format !== N.CUDNN_TENSOR_NCHW) throw new Misuse(`format ${format}`);
      return library.setPlane(h, what, CUDNN_TYPES, type, dims);
    };
  const symbols: Record<string, Symbols[string]> = {
    ...library.symbols('cudnn', { groups: 1, math: N.CUDNN_DEFAULT_MATH, compute: -1 } as CudnnSetting),
    cudnnGetVersion: () => 92400,
    cudnnGetErrorString: (s: number) => textAddress(s === 0 ? 'CUDNN_STATUS_SUCCESS' : `CUDNN_STATUS_${s}`),
    cudnnSetTensor4dDescriptor: (h: number, format: number, type: number, ...dims: number[]) =>
      plane('tensor')(h, format, type, dims),
    cudnnCreateFilterDescriptor: (cell: NativeArg) => handles.make(cell, 'filter', {}),
    cudnnSetFilter4dDescriptor: (h: number, type: number, format: number, ...dims: number[]) =>
      plane('filter')(h, format, type, dims),
    cudnnDestroyFilterDescriptor: (h: number) => handles.destroy(h, 'filter'),
    cudnnSetConvolution2dDescriptor: (h: number, ...n: number[]) => {
      const [mode, compute] = n.slice(6);
      if (mode !== N.CUDNN_CROSS_CORRELATION) throw new Misuse(`mode ${mode}`);
      return library.setConvolution(h, n, { compute });
    },
    cudnnSetConvolutionMathType: (h: number, math: number) => {
      handles.get<CudnnSetting>(h, 'convolution').math = math;
      return 0;
    },
    ...graphSymbols(device, handles),
  };
  for (const [name, named] of Object.entries(KINDS))
    Object.assign(symbols, convolutionCalls(name, new NamedConvolution(library, named)));
  return new StandIn('cuDNN', symbols);
}

/** A kind of convolution as its four calls see it: their operands in the kind's order. */
class NamedConvolution {
  readonly #library: ConvolutionLibrary;
  readonly #named: Kinds[string];

  constructor(library: ConvolutionLibrary, named: Kinds[string]) {
    this.#library = library;
    this.#named = named;
  }

  read(h: number, operands: readonly number[], conv: number): Convolution & CudnnSetting {
    const c = this.#library.read<CudnnSetting>(this.#named, h, operands, conv, 'filter');
    const { dtype } = c.x;
    if (typeOf(CUDNN_TYPES, c.compute) !== (dtype === 'f64' ? 'f64' : 'f32'))
      throw new Misuse(`compute type ${c.compute} for ${dtype}`);
    const half = dtype === 'f16' || dtype === 'bf16';
    const maths: readonly number[] = half
      ? [N.CUDNN_TENSOR_OP_MATH]
      : [N.CUDNN_FMA_MATH, ...(dtype === 'f32' ? [N.CUDNN_DEFAULT_MATH] : [])];
    if (!maths.includes(c.math)) throw new Misuse(`math type ${c.math} for ${dtype}`);
    return c;
  }

  run(
    h: number,
    c: Convolution,
    addresses: readonly number[],
    workspace: Parameters<ConvolutionLibrary['run']>[4],
  ): number {
    return this.#library.run(h, this.#named.order, c, addresses, workspace);
  }
}

function algorithmOf(number: number): (typeof ALGORITHMS)[number] {
  const found = ALGORITHMS.find((a) => a.number === number && a.status === 0);
  if (!found) throw new Misuse(`algorithm ${number} was not offered, or offered with a failure`);
  return found;
}

function offer(math: number, wanted: number, found: NativeArg, results: NativeArg): number {
  const { size, fields } = CUDNN_PERF;
  const out = hostMemory(results, size * wanted);
  const list = ALGORITHMS.slice(0, wanted);
  list.forEach((a, i) => {
    out.setInt32(i * size + fields.algo, a.number, true);
    out.setInt32(i * size + fields.status, a.status, true);
    out.setFloat32(i * size + fields.time, 0.25 * (i + 1), true);
    out.setBigUint64(i * size + fields.memory, BigInt(a.workspace), true);
    out.setInt32(i * size + fields.mathType, math, true);
  });
  hostMemory(found, 4).setInt32(0, list.length, true);
  return 0;
}

type Operands = [a: number, pa: number, b: number, pb: number, conv: number, c: number, pc: number];
type SearchCall = [...Operands, ...Offer, workspace: number, bytes: number];
function convolutionCalls(name: string, kind: NamedConvolution): Symbols {
  return {
    [`cudnnGetConvolution${name}Algorithm_v7`]: (h: number, ...[a, b, conv, c, wanted, found, results]: OfferCall) =>
      offer(kind.read(h, [a, b, c], conv).math, wanted, found, results),
    [`cudnnGetConvolution${name}WorkspaceSize`]: (
      h: number,
      a: number,
      b: number,
      conv: number,
      c: number,
      ...more: [number, NativeArg]
    ) => {
      const [number, bytes] = more;
      kind.read(h, [a, b, c], conv);
      hostMemory(bytes, 8).setBigUint64(0, BigInt(algorithmOf(number).workspace), true);
      return 0;
    },
    [`cudnnFindConvolution${name}AlgorithmEx`]: (h: number, ...args: SearchCall) => {
      const [a, pa, b, pb, conv, c, pc, wanted, found, results, workspace, bytes] = args;
      const convolved = kind.read(h, [a, b, c], conv);
      kind.run(h, convolved, [pa, pb, pc], { at: workspace, bytes, need: Math.min(bytes, 1 << 13) });
      return offer(convolved.math, wanted, found, results);
    },
    [`cudnnConvolution${name}`]: (h: number, ...args: number[]) => {
      const [alpha, a, pa, b, pb, conv, number, workspace, bytes, beta, c, pc] = args;
      const convolved = kind.read(h, [a, b, c], conv);
      const scalar = (at: number): number =>
        convolved.x.dtype === 'f64' ? hostMemory(at, 8).getFloat64(0, true) : hostMemory(at, 4).getFloat32(0, true);
      if (scalar(alpha) !== 1 || scalar(beta) !== 0) throw new Misuse(`alpha ${scalar(alpha)}, beta ${scalar(beta)}`);
      return kind.run(h, convolved, [pa, pb, pc], { at: workspace, bytes, need: algorithmOf(number).workspace });
    },
  };
}
