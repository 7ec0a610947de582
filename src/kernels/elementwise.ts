// Fast elementwise kernels from rows of the op table: one op, a cast, a copy, or a chain of ops fused into one kernel.
import { type DType, DTYPE, DTYPES, EVERY_DTYPE, isKept, KEPT, kernelDType, NUMBERS } from '../base/dtype.js';
import { ArgumentError } from '../base/errors.js';
import type { ElementwiseRow } from '../ops/op.js';
import { computeDType, CTYPE, type Entry, KernelModule, layOut, type ParamType, Struct } from './declare.js';
import { isMasked } from './expressions.js';
import { assemble, moduleText, type Unit } from './source.js';

/** One step of a chain. Values are numbered: the inputs first, then the result of each step. */
export type Step =
  | { readonly row: ElementwiseRow<any>; readonly dtype: DType; readonly args: readonly number[] }
  | { readonly cast: DType; readonly args: readonly [number] }
  /** A number of that dtype, which is passed like a row's. */
  | { readonly constant: DType; readonly args: readonly [] };

/** What one kernel computes: results of every step are rounded to their dtype, so fusing never changes a bit. */
export interface Chain {
  /** Names the kernels; unique by content. */
  readonly name: string;
  readonly inputs: readonly DType[];
  readonly steps: readonly Step[];
  readonly output: DType;
  /** Scalar parameters in order, by the dtype they are passed as. */
  readonly scalars: readonly DType[];
}

/** Its kernels are made from rows and chains of rows as they come. */
export const ELEMENTWISE = new KernelModule('elementwise');
const MAX_INPUTS = 4;
export const MAX_DIMS = 8;
export const OPERANDS = MAX_INPUTS + 1;
/** Layouts of output and inputs by value; in 32 bits with numbers that divide by the sizes (magicDivisor). */
export const LAYOUT32 = new Struct('Layout32', {
  count: 'i32',
  rank: 'i32',
  shape: ['i32', MAX_DIMS],
  magic: ['i32', MAX_DIMS],
  shift: ['i32', MAX_DIMS],
  strides: ['i32', MAX_DIMS * OPERANDS],
});
export const LAYOUT64 = new Struct('Layout64', {
  count: 'i64',
  rank: 'i64',
  shape: ['i64', MAX_DIMS],
  strides: ['i64', MAX_DIMS * OPERANDS],
});
export const VARIANTS = ['flat', 'groups', 'groups64', 'strided', 'strided64', 'transpose', 'transposeGroups'] as const;
export type Variant = (typeof VARIANTS)[number];

const stepDType = (s: Step): DType =>
  kernelDType('constant' in s ? s.constant : 'cast' in s ? s.cast : s.row.result === 'same' ? s.dtype : s.row.result);
const partName = (s: Step): string =>
  'constant' in s ? `number_${s.constant}` : 'cast' in s ? `cast_${s.cast}` : `${s.row.name}_${s.dtype}`;
const stepScalars = (s: Step): readonly DType[] =>
  'constant' in s ? [computeDType(s.constant)] : 'cast' in s ? [] : s.row.scalars.map(() => computeDType(s.dtype));

/** A chain with its name and scalars worked out. */
export function chain(inputs: readonly DType[], steps: readonly Step[]): Chain {
  if (inputs.length > MAX_INPUTS)
    throw new ArgumentError(`fused elementwise chain: ${inputs.length} inputs; at most ${MAX_INPUTS} are allowed`);
  const dtypes = [...inputs, ...steps.map(stepDType)];
  steps.forEach((s, i) => {
    for (const a of s.args) {
      if (!(Number.isInteger(a) && a >= 0 && a < inputs.length + i))
        throw new ArgumentError(`fused elementwise chain: step ${i} takes value ${a}, which comes later or never`);
    }
  });
  // A row or a cast of all inputs in their order goes by its name alone. Values from 10 on are told apart from two below
  // it.
  const inOrder =
    steps.length === 1 && steps[0].args.length === inputs.length && steps[0].args.every((a, i) => a === i);
  const parts = steps.map(
    (s) => partName(s) + (inOrder ? '' : `_${s.args.join(s.args.some((a) => a > 9) ? '_' : '')}`),
  );
  const scalars = steps.flatMap(stepScalars);
  const plain = inOrder && 'row' in steps[0];
  return {
    name: plain ? parts[0] : [inputs.join('_'), ...parts].join('_'),
    inputs,
    steps,
    output: dtypes[dtypes.length - 1],
    scalars,
  };
}

/** One row on one dtype. */
export function rowChain(row: ElementwiseRow<any>, on: DType): Chain {
  const dtype = kernelDType(on);
  const inputs = Array.from({ length: row.arity }, (_, i): DType => (isMasked(row) && i === 0 ? 'u8' : dtype));
  return chain(inputs, [{ row, dtype, args: inputs.map((_, i) => i) }]);
}
export const castChain = (from: DType, to: DType): Chain => chain([from], [{ cast: to, args: [0] }]);
/** Copies move bits, so one kernel serves every dtype of a size. */
export function copyChain(bytes: number): Chain {
  const carrier = ({ 1: 'u8', 2: 'i16', 4: 'u32', 8: 'i64' } as const)[bytes];
  if (!carrier) throw new ArgumentError(`copy: no element type has ${bytes} bytes`);
  return { ...chain([carrier], []), name: `copy_b${bytes}`, output: carrier };
}

/** The dtypes of a row as kernels have them. */
export const kernelDTypes = (row: ElementwiseRow<any>): readonly DType[] => [...new Set(row.dtypes.map(kernelDType))];

/** Every row on every dtype, every cast and every copy: what an ahead-of-time build compiles. */
export function standardChains(rows: readonly ElementwiseRow<any>[]): Chain[] {
  const casts = [
    ...NUMBERS.flatMap((from) => DTYPES.filter((to) => to !== from).map((to) => castChain(from, to))),
    ...NUMBERS.flatMap((from) => KEPT.map((to) => castChain(from, to))),
    ...KEPT.flatMap((from) => EVERY_DTYPE.filter((to) => to !== from).map((to) => castChain(from, to))),
  ];
  return [...rows.flatMap((r) => kernelDTypes(r).map((d) => rowChain(r, d))), ...casts, ...[1, 2, 4, 8].map(copyChain)];
}

const SCALAR = (i: number): string => `s${i}`;

/** A cast of the value that `from` names; kernels/kept.h has those of kept types. */
function castText(to: DType, from: string, dtype: DType): string {
  const v = isKept(dtype) ? `from_kept(${from})` : from;
  if (to === 'bool') return `truth(${v})`;
  return isKept(to) ? `to_${CTYPE[to]}(${v})` : `convert<${CTYPE[to]}>(${v})`;
}

/** The functor: loads nothing, computes one element from the elements of all inputs. */
function functor(c: Chain): string {
  const operands = Array.from({ length: MAX_INPUTS }, (_, i) =>
    i < c.inputs.length ? `${CTYPE[c.inputs[i]]} v${i}` : 'None',
  );
  let scalar = 0;
  const dtypes = [...c.inputs, ...c.steps.map(stepDType)];
  const lines = c.steps.map((s, i): string => {
    const to = `const ${CTYPE[stepDType(s)]} v${c.inputs.length + i} = `;
    if ('cast' in s) return `${to}${castText(s.cast, `v${s.args[0]}`, dtypes[s.args[0]])};`;
    if ('constant' in s) return `${to}from_compute<${CTYPE[stepDType(s)]}>(${SCALAR(scalar++)});`;
    const S = CTYPE[s.dtype];
    const T = CTYPE[computeDType(s.dtype)];
    const masked = isMasked(s.row);
    const args = s.args.map((a, k) => (masked && k === 0 ? `v${a} != 0` : `to_compute(v${a})`));
    const scalars = s.row.scalars.map(() => SCALAR(scalar++));
    return `${to}from_compute<${CTYPE[stepDType(s)]}>(op_${s.row.name}<${S}, ${T}>(${[...args, ...scalars].join(', ')}));`;
  });
  const members = c.scalars.map((d, i) => `${CTYPE[d]} ${SCALAR(i)};`).join(' ');
  const last = c.inputs.length + c.steps.length - 1;
  return (
    `struct F_${c.name} { ${members} WICK_MEMBER ${CTYPE[c.output]} operator()(${operands.join(', ')}) const { ` +
    `${lines.join(' ')} return v${last}; } };`
  );
}

export const symbolFor = (c: Chain, variant: Variant): string => `${variant}_${c.name}`;
/** Elements a thread takes at once, as group_elements in elementwise.hip. */
export function groupElements(c: Chain): number {
  const most = Math.max(...[c.output, ...c.inputs].map((d) => DTYPE[d].bytes));
  return Math.min(16 / DTYPE[c.output].bytes, 64 / most);
}
/**
 * Threads of a block of the flat kernel and bytes of every operand a thread has in flight: half where the function has
 * slow paths that every copy of it repeats.
 */
export function flatShape(c: Chain): { readonly block: number; readonly inFlight: number } {
  const long = c.steps.some(
    (s) => 'row' in s && s.dtype === 'f32' && /\b(sin|cos|tan|lgamma|erfinv|polygamma)g\(/.test(s.row.kernel),
  );
  return { block: 128, inFlight: long ? 16 : 32 };
}
/** Elements of a block's tile in the flat kernel. */
export function flatTile(c: Chain): number {
  const most = Math.max(...[c.output, ...c.inputs].map((d) => DTYPE[d].bytes));
  const e = groupElements(c);
  const { block, inFlight } = flatShape(c);
  return block * e * Math.max(1, Math.floor(inFlight / (e * most)));
}
export const transposeGroup = (c: Chain): number => 16 / Math.max(DTYPE[c.output].bytes, DTYPE[c.inputs[0]].bytes);
export const transposeTile = (c: Chain): number =>
  Math.max(DTYPE[c.output].bytes, DTYPE[c.inputs[0]].bytes) > 4 ? 32 : 64;

/** A kernel of a chain: its own parameters, then the operands, then the scalars. */
function entryFor(c: Chain, variant: Variant): Entry {
  const f = `F_${c.name}{${c.scalars.map((_, i) => SCALAR(i)).join(', ')}}`;
  const all = [
    'out',
    ...Array.from({ length: MAX_INPUTS }, (_, i) => (i < c.inputs.length ? `in${i}` : '(const None*)nullptr')),
  ].join(', ');
  const layout = variant.endsWith('64') ? LAYOUT64 : LAYOUT32;
  const strided = (e: number): Own => ({
    own: { layout, splats: 'u32' },
    call: `strided<${e}>(${f}, layout, splats, ${all})`,
  });
  const transposed = (e: number): Own => ({
    own: { batch: LAYOUT64, rows: 'u32', columns: 'u32', out_row: 'i64', in_column: 'i64' },
    call: `transpose<${e}>(${f}, batch, rows, columns, out_row, in_column, out, in0)`,
  });
  const { block, inFlight } = flatShape(c);
  const kinds: Readonly<Record<Variant, () => Own>> = {
    flat: () => ({ own: { n: 'u64', scalars: 'u32' }, call: `flat<${block}, ${inFlight}>(${f}, n, scalars, ${all})` }),
    groups: () => strided(groupElements(c)),
    groups64: () => strided(groupElements(c)),
    strided: () => strided(1),
    strided64: () => strided(1),
    transpose: () => transposed(1),
    transposeGroups: () => transposed(transposeGroup(c)),
  };
  const { own, call } = kinds[variant]();
  const params: Record<string, ParamType> = { ...own, out: `${CTYPE[c.output]}*` };
  c.inputs.forEach((d, i) => (params[`in${i}`] = `const ${CTYPE[d]}*`));
  c.scalars.forEach((d, i) => (params[SCALAR(i)] = CTYPE[d]));
  const symbol = symbolFor(c, variant);
  const head = Object.entries(params).map(([name, t]) => `${typeof t === 'string' ? t : t.name} ${name}`);
  const text = `KERNEL(256) ${symbol}(${head.join(', ')}) { ${call}; }`;
  return { symbol, threads: 256, byWaves: false, ...layOut(symbol, params), text };
}
interface Own {
  readonly own: Readonly<Record<string, ParamType>>;
  readonly call: string;
}

export const variantsOf = (c: Chain): readonly Variant[] => (c.inputs.length === 1 ? VARIANTS : VARIANTS.slice(0, 5));

/**
 * The unit with the given variants of some chains: one for a GPU's first use, many for the simulation and ahead-of-time
 * builds.
 */
export function elementwiseUnit(chains: readonly Chain[], variants?: readonly Variant[]): Unit {
  const entries = chains.flatMap((c) =>
    variantsOf(c)
      .filter((v) => !variants || variants.includes(v))
      .map((v) => entryFor(c, v)),
  );
  const structs = chains.map(functor).join('\n');
  return assemble(chains.length === 1 ? chains[0].name : 'elementwise', moduleText('elementwise.hip'), entries, {
    own: structs,
  });
}
