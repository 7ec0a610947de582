// A stand-in of MIOpen's immediate mode: solutions are asked for, compiled, then run.
import type { ConvSpec } from '../dnn.js';
import type { NativeArg } from '../ffi.js';
import { MIOPEN_NUMBERS as N, MIOPEN_SOLUTION, MIOPEN_TYPES } from '../miopen.js';
import { checkConvolution, type Convolution, convolve, type Plane } from './convolution.js';
import {
  Handles,
  hostMemory,
  type HostedDevice,
  Misuse,
  StandIn,
  type Symbols,
  textAddress,
  typeOf,
  useWorkspace,
} from './library.js';

interface Handle {
  stream: number;
}
type Setting = Partial<Pick<Convolution, 'padding' | 'stride' | 'dilation'>> & { groups: number };
/** Solutions by rank: the second needs no workspace. */
const SOLUTIONS = [
  { id: 85, workspace: 1 << 13, time: 0.5 },
  { id: 11, workspace: 0, time: 0.75 },
] as const;
/** MIOpen's words for the kinds, and the order in which each call names its operands. */
const KINDS = {
  Forward: { kind: 'forward', order: ['filter', 'x', 'y'] },
  BackwardData: { kind: 'backward-data', order: ['y', 'filter', 'x'] },
  BackwardWeights: { kind: 'backward-filter', order: ['y', 'x', 'filter'] },
} as const satisfies Record<string, { kind: ConvSpec['kind']; order: readonly ('x' | 'filter' | 'y')[] }>;

export function miopenStandIn(device: HostedDevice): StandIn {
  const handles = new Handles();
  const compiled = new Set<string>();
  const symbols: Record<string, Symbols[string]> = {
    miopenCreate: (cell: NativeArg) => handles.make(cell, 'handle', { stream: 0 } satisfies Handle),
    miopenDestroy: (h: number) => handles.destroy(h, 'handle'),
    miopenGetVersion: (...cells: NativeArg[]) => {
      for (const [i, part] of [3, 5, 1].entries()) hostMemory(cells[i], 8).setBigUint64(0, BigInt(part), true);
      return 0;
    },
    miopenGetErrorString: (s: number) => textAddress(`miopenStatus ${s}`),
    miopenSetStream: (h: number, stream: number) => {
      handles.get<Handle>(h, 'handle').stream = stream;
      return 0;
    },
    miopenCreateTensorDescriptor: (cell: NativeArg) => handles.make(cell, 'tensor', {}),
    miopenSet4dTensorDescriptor: (h: number, type: number, ...dims: number[]) => {
      Object.assign(handles.get<object>(h, 'tensor'), { dtype: typeOf(MIOPEN_TYPES, type), dims });
      return 0;
    },
    miopenDestroyTensorDescriptor: (h: number) => handles.destroy(h, 'tensor'),
    miopenCreateConvolutionDescriptor: (cell: NativeArg) =>
      handles.make(cell, 'convolution', { groups: 1 } satisfies Setting),
    miopenInitConvolutionDescriptor: (h: number, mode: number, ...n: number[]) => {
      if (mode !== N.miopenConvolution) throw new Misuse(`mode ${mode}`);
      const [padH, padW, strideH, strideW, dilationH, dilationW] = n;
      const setting = {
        padding: [padH, padW],
        stride: [strideH, strideW],
        dilation: [dilationH, dilationW],
        groups: 1,
      };
      Object.assign(handles.get<object>(h, 'convolution'), setting);
      return 0;
    },
    miopenSetConvolutionGroupCount: (h: number, groups: number) => {
      handles.get<Setting>(h, 'convolution').groups = groups;
      return 0;
    },
    miopenDestroyConvolutionDescriptor: (h: number) => handles.destroy(h, 'convolution'),
  };
  for (const [name, { kind, order }] of Object.entries(KINDS)) {
    const convolution = (h: number, operands: readonly number[], conv: number): Convolution => {
      handles.get(h, 'handle');
      const setting = handles.get<Setting>(conv, 'convolution');
      if (!setting.padding) throw new Misuse('the convolution was not initialized');
      const planes = Object.fromEntries(order.map((o, i) => [o, handles.get<Plane>(operands[i], 'tensor')]));
      const c = { kind, ...planes, ...setting } as Convolution;
      if (order.some((o) => !c[o].dims)) throw new Misuse('a tensor was not set');
      checkConvolution(c);
      return c;
    };
    const solution = (id: number): (typeof SOLUTIONS)[number] => {
      const found = SOLUTIONS.find((s) => s.id === id);
      if (!found) throw new Misuse(`solution ${id} was not offered`);
      return found;
    };
    symbols[`miopenConvolution${name}GetSolution`] = (
      h: number,
      a: number,
      b: number,
      conv: number,
      c: number,
      wanted: number,
      found: NativeArg,
      results: NativeArg,
    ) => {
      convolution(h, [a, b, c], conv);
      const { size, fields } = MIOPEN_SOLUTION;
      const out = hostMemory(results, size * wanted);
      SOLUTIONS.forEach((s, i) => {
        out.setFloat32(i * size + fields.time, s.time, true);
        out.setBigUint64(i * size + fields.workspace_size, BigInt(s.workspace), true);
        out.setBigUint64(i * size + fields.solution_id, BigInt(s.id), true);
      });
      hostMemory(found, 8).setBigUint64(0, BigInt(SOLUTIONS.length), true);
      return 0;
    };
    symbols[`miopenConvolution${name}CompileSolution`] = (
      h: number,
      a: number,
      b: number,
      conv: number,
      c: number,
      id: number,
    ) => {
      compiled.add(JSON.stringify([convolution(h, [a, b, c], conv), solution(id)]));
      return 0;
    };
    symbols[`miopenConvolution${name}Immediate`] = (
      h: number,
      a: number,
      pa: number,
      b: number,
      pb: number,
      conv: number,
      c: number,
      pc: number,
      workspace: number,
      bytes: number,
      id: number,
    ) => {
      const convolved = convolution(h, [a, b, c], conv);
      const chosen = solution(id);
      if (!compiled.has(JSON.stringify([convolved, chosen])))
        throw new Misuse(`solution ${id} was not compiled for it`);
      const { stream } = handles.get<Handle>(h, 'handle');
      if (stream === 0) throw new Misuse('no stream was set');
      const at = Object.fromEntries(order.map((o, i) => [o, [pa, pb, pc][i]])) as Record<'x' | 'filter' | 'y', number>;
      device.enqueue(stream, () => {
        useWorkspace(device, workspace, bytes, chosen.workspace);
        convolve(device, convolved, at.x, at.filter, at.y);
      });
      return 0;
    };
  }
  return new StandIn('MIOpen', symbols);
}
