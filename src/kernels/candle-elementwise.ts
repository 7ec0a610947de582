// Candle's unary, binary, affine, ternary and cast kernels, declared under its names (kernels/candle/README.md).
import type { DType } from '../base/dtype.js';
import { ALL_TYPES, CTYPE, INT_TYPES, KernelModule, REAL_TYPES, suffixOf, typed } from './declare.js';

/** Candle spells 8-bit floats f8 in some modules and fp8 in others. */
const fp8Suffix = (d: DType): string => (d === 'f8e4m3' ? 'fp8_e4m3' : d);
const LAYOUT = { numel: 'u64', num_dims: 'u64', info: 'const u64*' } as const;
const io = (from: DType, to: DType) => ({ inp: `const ${CTYPE[from]}*`, out: `${CTYPE[to]}*` }) as const;

// ---- unary.cu ----

const UNARY = new KernelModule('candle/unary');
/** Candle's stems, and the rows of the op table that they compute. */
const FLOAT_ROWS = {
  uneg: 'neg',
  urecip: 'recip',
  uexp: 'exp',
  ulog: 'log',
  usin: 'sin',
  ucos: 'cos',
  utanh: 'tanh',
  uerf: 'erf',
  uceil: 'ceil',
  ufloor: 'floor',
  uround: 'round',
  unormcdf: 'normcdf',
  uabs: 'abs',
  usqr: 'sqr',
  usqrt: 'sqrt',
  ugelu: 'gelu',
  ugelu_erf: 'geluErf',
  urelu: 'relu',
  usilu: 'silu',
  usign: 'sign',
  usigmoid: 'sigmoid',
} as const;
type Stem = keyof typeof FLOAT_ROWS;
/** Ours: those that have a meaning on integers. */
const INT_STEMS: readonly Stem[] = ['uneg', 'uceil', 'ufloor', 'uround', 'uabs', 'usqr', 'urelu', 'usign'];
const row = (name: string, d: DType, args: string): string =>
  `op_${name}<${CTYPE[d]}, compute_t<${CTYPE[d]}>>(${args})`;
UNARY.forTypes(ALL_TYPES, 'ucopy', (_, dtype) => ({
  threads: 1024,
  params: { ...LAYOUT, ...io(dtype, dtype) },
  call: 'copy_from',
}));
UNARY.declare({
  each: { stem: Object.keys(FLOAT_ROWS) as Stem[], dtype: ALL_TYPES },
  only: ({ stem, dtype }) => !(INT_TYPES as readonly DType[]).includes(dtype) || INT_STEMS.includes(stem),
  symbol: ({ stem, dtype }) => `${stem}_${fp8Suffix(dtype)}`,
  body: ({ stem, dtype }) => ({
    threads: 1024,
    params: { ...LAYOUT, ...io(dtype, dtype) },
    call: 'unary',
    given: `numel, num_dims, info, inp, out, [](auto x) { return ${row(FLOAT_ROWS[stem], dtype, 'x')}; }`,
  }),
});
/** With one scalar, which stands before the buffers. */
UNARY.declare({
  each: { name: ['elu', 'powf'], dtype: [...REAL_TYPES, 'f8e4m3'] },
  symbol: ({ name, dtype }) => `u${name}_${fp8Suffix(dtype)}`,
  body: ({ name, dtype }) => ({
    threads: 1024,
    params: { ...LAYOUT, param: CTYPE[dtype], ...io(dtype, dtype) },
    call: 'unary',
    given: `numel, num_dims, info, inp, out, [a = to_compute(param)](auto x) { return ${row(name, dtype, 'x, a')}; }`,
  }),
});

// ---- binary.cu ----

const BINARY = new KernelModule('candle/binary');
const BINARIES = ['badd', 'bsub', 'bmul', 'bdiv', 'bminimum', 'bmaximum', 'eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const;
BINARY.declare({
  each: { stem: BINARIES, dtype: ALL_TYPES },
  symbol: ({ stem, dtype }) => `${stem}_${suffixOf(dtype)}`,
  body: ({ stem, dtype: d }) => {
    const compares = !stem.startsWith('b');
    return {
      threads: 1024,
      params: {
        numel: 'u64',
        num_dims: 'u64',
        dims_and_strides: 'const u64*',
        lhs: `const ${CTYPE[d]}*`,
        rhs: `const ${CTYPE[d]}*`,
        out: compares ? 'u8*' : `${CTYPE[d]}*`,
      },
      call: 'binary',
      given:
        'numel, num_dims, dims_and_strides, lhs, rhs, out, [](auto x, auto y) { return ' +
        `${row(compares ? stem : stem.slice(1), d, 'x, y')}; }`,
    };
  },
});

// ---- affine.cu, ternary.cu, cast.cu ----

const AFFINE = new KernelModule('candle/affine');
AFFINE.forTypes(ALL_TYPES, 'affine', (T, d) => ({
  threads: 1024,
  params: { ...LAYOUT, ...io(d, d), mul: T, add: T },
  call: 'affine',
}));
const TERNARY = new KernelModule('candle/ternary');
TERNARY.declare({
  each: { ids: INT_TYPES, dtype: ALL_TYPES },
  symbol: ({ ids, dtype }) => `where_${ids}_${fp8Suffix(dtype)}`,
  body: ({ ids, dtype: d }) => ({
    threads: 1024,
    params: { ...LAYOUT, ids: `const ${CTYPE[ids]}*`, ...typed(`const ${CTYPE[d]}*`, 't', 'f'), out: `${CTYPE[d]}*` },
    call: 'where',
  }),
});
const CAST = new KernelModule('candle/cast');
CAST.declare({
  each: { from: ALL_TYPES, to: ALL_TYPES },
  symbol: ({ from, to }) => `cast_${suffixOf(from)}_${suffixOf(to)}`,
  body: ({ from, to }) => ({ threads: 1024, params: { ...LAYOUT, ...io(from, to) }, call: 'cast' }),
});

export const CANDLE_ELEMENTWISE: readonly KernelModule[] = [UNARY, BINARY, AFFINE, TERNARY, CAST];
