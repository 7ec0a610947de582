// A stand-in of MIOpen's immediate mode: solutions are asked for, compiled, then run.
import type { NativeArg } from '../driver/ffi.js';
import { MIOPEN_NUMBERS as N, MIOPEN_SOLUTION, MIOPEN_TYPES } from '../driver/miopen.js';
import { type Convolution, ConvolutionLibrary, type Kinds, type OfferCall } from './convolution.js';
import { Handles, hostMemory, type HostedDevice, Misuse, StandIn, type Symbols, textAddress } from './library.js';

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
} as const satisfies Kinds;

export function miopenStandIn(device: HostedDevice): StandIn {
  const handles = new Handles();
  const compiled = new Set<string>();
  const library = new ConvolutionLibrary(device, handles);
  const symbols: Record<string, Symbols[string]> = {
    ...library.symbols('miopen', { groups: 1 }),
    miopenGetVersion: (...cells: NativeArg[]) => {
      for (const [i, part] of [3, 5, 1].entries()) hostMemory(cells[i], 8).setBigUint64(0, BigInt(part), true);
      return 0;
    },
    miopenGetErrorString: (s: number) => textAddress(`miopenStatus ${s}`),
    miopenSet4dTensorDescriptor: (h: number, type: number, ...dims: number[]) =>
      library.setPlane(h, 'tensor', MIOPEN_TYPES, type, dims),
    miopenInitConvolutionDescriptor: (h: number, mode: number, ...n: number[]) => {
      if (mode !== N.miopenConvolution) throw new Misuse(`mode ${mode}`);
      return library.setConvolution(h, n, { groups: 1 });
    },
  };
  for (const [name, named] of Object.entries(KINDS)) {
    const convolution = (h: number, operands: readonly number[], conv: number): Convolution =>
      library.read(named, h, operands, conv, 'tensor');
    const solution = (id: number): (typeof SOLUTIONS)[number] => {
      const found = SOLUTIONS.find((s) => s.id === id);
      if (!found) throw new Misuse(`solution ${id} was not offered`);
      return found;
    };
    symbols[`miopenConvolution${name}GetSolution`] = (
      h: number,
      ...[a, b, conv, c, wanted, found, results]: OfferCall
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
    symbols[`miopenConvolution${name}CompileSolution`] = (h: number, ...[a, b, conv, c, id]: number[]) => {
      compiled.add(JSON.stringify([convolution(h, [a, b, c], conv), solution(id)]));
      return 0;
    };
    symbols[`miopenConvolution${name}Immediate`] = (h: number, ...args: number[]) => {
      const [a, pa, b, pb, conv, c, pc, workspace, bytes, id] = args;
      const convolved = convolution(h, [a, b, c], conv);
      const chosen = solution(id);
      if (!compiled.has(JSON.stringify([convolved, chosen])))
        throw new Misuse(`solution ${id} was not compiled for it`);
      const need = chosen.workspace;
      return library.run(h, named.order, convolved, [pa, pb, pc], { at: workspace, bytes, need });
    };
  }
  return new StandIn('MIOpen', symbols);
}
