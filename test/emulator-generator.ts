// Random kernels for the emulator's proof: one program as HIP source and as host C++ that runs a block's threads
// statement by statement.
import { random } from '../src/emulator/executor.js';

const TYPES = ['u32', 'i32', 'u64', 'i64', 'f32', 'f64', 'u16', 'i16', 'u8', 'f16'] as const;
type T = (typeof TYPES)[number];
const FLOATS: readonly T[] = ['f32', 'f64', 'f16'];
const BITS: Record<T, number> = {
  u32: 32,
  i32: 32,
  u64: 64,
  i64: 64,
  f32: 32,
  f64: 64,
  u16: 16,
  i16: 16,
  u8: 8,
  f16: 16,
};
const UNSIGNED: Partial<Record<T, string>> = { i32: 'u32', i64: 'u64', u16: 'u32', i16: 'u32', u8: 'u32' };

export const BLOCK = 128;
export const GRID = 2;
/** 32-bit words of input, and of output a thread. */
export const INPUT_WORDS = 1024;
export const OUTPUT_WORDS = 16;

/** Text both compilers see: types by their sizes, and conversions that no language rule leaves open. */
export const PRELUDE = `
typedef unsigned char u8; typedef unsigned short u16; typedef short i16; typedef unsigned int u32; typedef int i32; typedef unsigned long long u64; typedef long long i64;
typedef float f32; typedef double f64;
FN u32 bits32(f32 x) { u32 r; __builtin_memcpy(&r, &x, 4); return x != x ? 0x7fc00000u : r; }
FN u64 bits64(f64 x) { u64 r; __builtin_memcpy(&r, &x, 8); return x != x ? 0x7ff8000000000000ull : r; }
FN u16 bits16(f16 x) { u16 r; __builtin_memcpy(&r, &x, 2); return (f32)x != (f32)x ? (u16)0x7e00 : r; }
FN f32 float_of(u32 x) { f32 r; __builtin_memcpy(&r, &x, 4); return r; }
FN f64 double_of(u64 x) { f64 r; __builtin_memcpy(&r, &x, 8); return r; }
FN f16 half_of(u16 x) { f16 r; __builtin_memcpy(&r, &x, 2); return r; }
FN i32 to_i32(f64 x) { return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? (i32)-2147483647 - 1 : (i32)x; }
FN u32 to_u32(f64 x) { return x != x ? 0u : x >= 4294967295.0 ? 4294967295u : x <= 0.0 ? 0u : (u32)x; }
FN i64 to_i64(f64 x) { return x != x ? 0 : x >= 9.2e18 ? 9200000000000000000ll : x <= -9.2e18 ? -9200000000000000000ll : (i64)x; }
FN u64 to_u64(f64 x) { return x != x ? 0 : x >= 1.8e19 ? 18000000000000000000ull : x <= 0.0 ? 0 : (u64)x; }
`;
export const HIP_PRELUDE =
  '#define KERNEL(threads) extern "C" __global__ void ' +
  `__launch_bounds__(threads)\n#define FN static __device__ inline\ntypedef _Float16 f16;\n${PRELUDE}FN f32 ` +
  'fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }\nFN f64 fma_f64(f64 a, f64 b, f64 c) { ' +
  'return __builtin_fma(a, b, c); }\n';
/**
 * For NVRTC: halves in a struct that computes in float (one rounding more never shows in sums and products), shuffles
 * and bit counts by their names there.
 */
export const CUDA_PRELUDE = `#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)\n#define FN static __device__ inline
struct f16 { unsigned short x; f16() = default; __device__ explicit f16(float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(v)); } __device__ operator float() const { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; } __device__ f16 operator-() const { f16 r; r.x = x ^ 0x8000; return r; } };
#define __builtin_memcpy(to, from, n) memcpy(to, from, n)
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_popcount __popc
#define __builtin_popcountll __popcll
#define __builtin_clz __clz
#define __builtin_clzll __clzll
#define __builtin_ctz(x) (__ffs(x) - 1)
#define __shfl(v, i, w) __shfl_sync(0xffffffffu, v, i, w)
#define __shfl_xor(v, i, w) __shfl_xor_sync(0xffffffffu, v, i, w)
#define __shfl_up(v, i, w) __shfl_up_sync(0xffffffffu, v, i, w)
#define __shfl_down(v, i, w) __shfl_down_sync(0xffffffffu, v, i, w)
${PRELUDE}FN f32 fma_f32(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
FN f64 fma_f64(f64 a, f64 b, f64 c) { return fma(a, b, c); }
`;
/** GCC's half: arithmetic in float, rounded where the program says so. */
const HOST_HALF = '#ifdef __aarch64__\ntypedef __fp16 f16;\n#else\ntypedef _Float16 f16;\n#endif\n';
/** For the simulation, after portable.h. */
export const SIM_PRELUDE = `#define FN WICK_FN
${HOST_HALF}#define __shfl(v, i, w) shfl(v, (u32)(i), w)
#define __shfl_xor(v, i, w) shfl_xor(v, (u32)(i), w)
#define __shfl_up(v, i, w) shfl_up(v, (u32)(i), w)
#define __shfl_down(v, i, w) shfl_down(v, (u32)(i), w)
#define atomicAdd(p, v) atomic_add(p, v)
#define atomicMax(p, v) atomic_max(p, v)
#define atomicXor(p, v) __atomic_fetch_xor(p, v, __ATOMIC_RELAXED)
#define atomicOr(p, v) __atomic_fetch_or(p, v, __ATOMIC_RELAXED)
${PRELUDE}static __attribute__((noinline)) f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static __attribute__((noinline)) f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
`;
/**
 * Calls that stay calls: GCC folds the sign of a quotient into a product-sum, which loses the sign of an exact zero.
 */
export const HOST_PRELUDE =
  `#include <math.h>\n#define FN static inline\n${HOST_HALF}${PRELUDE}static ` +
  '__attribute__((noinline)) f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }\nstatic ' +
  '__attribute__((noinline)) f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }\n';

export interface GeneratedProgram {
  readonly name: string;
  readonly hip: string;
  readonly host: string;
}

interface Var {
  readonly name: string;
  readonly t: T;
}

class Generator {
  readonly rnd: () => number;
  vars: Var[] = [];
  depth = 0;
  constructor(seed: number) {
    this.rnd = random(seed);
  }
  int(n: number): number {
    return Math.floor(this.rnd() * n);
  }
  pick<X>(list: readonly X[]): X {
    return list[this.int(list.length)];
  }
  constant(t: T): string {
    if (t === 'f16')
      return `half_of((u16)${this.pick([0x3c00, 0xbc00, 0x4200, 0x2e66, 0x0001, 0x7bff, this.int(0x7c00)])})`;
    if (t === 'f32')
      return `float_of(${this.pick([0x3f800000, 0xbf000000, 0x40490fdb, 0x00000001, 0x7f7fffff, 0x3dcccccd, this.int(0x7f800000)])}u)`;
    if (t === 'f64')
      return `(${this.pick(['1.0', '-0.5', '3.25', '1e-300', '0x1p-1060', '1e17', (this.rnd() * 200 - 100).toFixed(6)])})`;
    const v = this.pick([0, 1, 2, 3, 7, 31, 255, 0x80, 0xffff, 0x8000, this.int(2 ** 31)]);
    return BITS[t] === 64
      ? `(${t})${v}${this.rnd() < 0.3 ? `ull * 0x${(this.int(2 ** 30) + 1).toString(16)}ull` : 'ull'}`
      : `(${t})${v}u`;
  }
  leaf(t: T): string {
    const same = this.vars.filter((v) => v.t === t);
    const r = this.rnd();
    if (same.length && r < 0.75) return this.pick(same).name;
    if (r < 0.85) return this.constant(t);
    if (r < 0.93 && this.vars.length) return this.convert(this.pick(this.vars), t);
    return this.load(t);
  }
  convert(v: Var, t: T): string {
    if (v.t === t) return v.name;
    const from = FLOATS.includes(v.t);
    if (from && !FLOATS.includes(t))
      return BITS[t] === 64
        ? `to_${t}((f64)${v.name})`
        : t === 'u32'
          ? `to_u32((f64)${v.name})`
          : `(${t})to_i32((f64)${v.name})`;
    if (t === 'f16') return `(f16)(f32)${v.name}`;
    return `(${t})${v.name}`;
  }
  load(t: T): string {
    const at = this.expr('u32', 2);
    switch (t) {
      case 'u8':
        return `in8[(${at}) & ${INPUT_WORDS * 4 - 1}u]`;
      case 'u16':
        return `in16[(${at}) & ${INPUT_WORDS * 2 - 1}u]`;
      case 'i16':
        return `((const i16*)in16)[(${at}) & ${INPUT_WORDS * 2 - 1}u]`;
      case 'u64':
        return `in64[(${at}) & ${INPUT_WORDS / 2 - 1}u]`;
      case 'i64':
        return `(i64)in64[(${at}) & ${INPUT_WORDS / 2 - 1}u]`;
      case 'f32':
        return `float_of(in[(${at}) & ${INPUT_WORDS - 1}u])`;
      case 'f64':
        return `double_of(in64[(${at}) & ${INPUT_WORDS / 2 - 1}u])`;
      case 'f16':
        return `half_of(in16[(${at}) & ${INPUT_WORDS * 2 - 1}u])`;
      default:
        return `(${t})in[(${at}) & ${INPUT_WORDS - 1}u]`;
    }
  }
  expr(t: T, depth = 0): string {
    if (depth > 3 || this.rnd() < 0.15 * depth) return this.leaf(t);
    const e = (k: T = t) => this.expr(k, depth + 1);
    const r = this.rnd();
    if (r < 0.12) return `(${this.condition(depth + 1)} ? ${e()} : ${e()})`;
    if (FLOATS.includes(t)) {
      const op = this.pick([
        '+',
        '-',
        '*',
        '*',
        '+',
        'fma',
        'div',
        'sqrt',
        'abs',
        'neg',
        'min',
        'max',
        'floor',
        'trunc',
        'rint',
      ]);
      const f = t === 'f32' ? 'f' : '';
      if (t === 'f16')
        return op === '+' || op === '-' || op === '*'
          ? `(f16)(${e()} ${op} ${e()})`
          : op === 'neg'
            ? `(f16)(-${e()})`
            : this.leaf(t);
      if (op === 'fma') return `fma_${t}(${e()}, ${e()}, ${e()})`;
      if (op === 'div') return `(${e()} / ${e()})`;
      if (op === 'sqrt') return `${f ? 'sqrtf' : 'sqrt'}(${e()})`;
      if (op === 'abs') return `__builtin_fabs${f}(${e()})`;
      if (op === 'neg') return `(-${e()})`;
      if (op === 'floor' || op === 'trunc' || op === 'rint') return `__builtin_${op}${f}(${e()})`;
      if (op === 'min' || op === 'max')
        return `(${e()} ${op === 'min' ? '<' : '>'} ${this.leaf(t)} ? ${this.leaf(t)} : ${this.leaf(t)})`;
      return `(${e()} ${op} ${e()})`;
    }
    const bits = Math.max(BITS[t], 32);
    const u = UNSIGNED[t] ?? t;
    const cast = (x: string) => `(${t})(${x})`;
    const op = this.pick([
      '+',
      '-',
      '*',
      '&',
      '|',
      '^',
      '<<',
      '>>',
      '/',
      '%',
      '~',
      'popc',
      'clz',
      'ctz',
      'field',
      'rot',
      'hi',
      'mad',
      'min',
      'max',
      'cmp',
      'sext',
      'bytes',
      'conv',
    ]);
    switch (op) {
      case '<<':
        return cast(`(${u})${e()} << (${e('u32')} & ${bits - 1}u)`);
      case '>>':
        return cast(`(${t})${e()} >> (${e('u32')} & ${BITS[t] - 1}u)`);
      case '/':
      case '%': {
        // The constant keeps the sign bits unknown: LLVM before 18 divides sign-extended operands as 24-bit numbers,
        // also unsigned ones.
        const mixed = BITS[t] === 64 ? '0x5bd1e9955bd1e995ull' : '0x5bd1e995u';
        return cast(`((${u})${e()} ^ ${mixed}) ${op} ((${u})${e()} | 1u)`);
      }
      case '~':
        return cast(`~${e()}`);
      case 'popc':
        return cast(`__builtin_popcount${bits === 64 ? 'll' : ''}(${e()})`);
      case 'clz':
        return cast(`__builtin_clz${bits === 64 ? 'll' : ''}((${u})${e()} | 1u)`);
      case 'ctz':
        return cast(`__builtin_ctz((u32)${e()} | 0x80000000u)`);
      case 'field':
        return cast(`((${u})${e()} >> ${this.int(bits)}) & ${2 ** (1 + this.int(16)) - 1}u`);
      case 'rot': {
        const n = 1 + this.int(31);
        const x = this.leaf('u32');
        return cast(`(${x} << ${n}) | (${x} >> ${32 - n})`);
      }
      case 'hi':
        return cast(`((u64)${e('u32')} * (u64)${e('u32')}) >> 32`);
      case 'mad':
        return cast(`(${u})${e()} * (${u})${e()} + (${u})${e()}`);
      case 'min':
      case 'max': {
        const [x, y] = [this.leaf(t), this.leaf(t)];
        return cast(`${x} ${op === 'min' ? '<' : '>'} ${y} ? ${x} : ${y}`);
      }
      case 'cmp':
        return cast(`${this.condition(depth + 1)}`);
      case 'sext':
        return cast(`(${this.pick(['i32)(i16', 'i32)(signed char', 'u32)(u16', 'u32)(u8'])})${e('u32')}`);
      case 'bytes':
        return cast(
          `(${this.leaf('u32')} & 0xff00u) | ((${this.leaf('u32')} >> 24) & 0xffu) | (${this.leaf('u32')} << 16)`,
        );
      case 'conv':
        return this.vars.length ? this.convert(this.pick(this.vars), t) : this.leaf(t);
      default:
        return cast(`(${u})${e()} ${op} (${u})${e()}`);
    }
  }
  condition(depth: number): string {
    const t = this.pick(TYPES);
    const op = this.pick(['<', '<=', '>', '>=', '==', '!=']);
    const one = `(${this.expr(t, depth + 1)} ${op} ${this.expr(t, depth + 1)})`;
    if (depth < 3 && this.rnd() < 0.2) return `(${one} ${this.pick(['&&', '||'])} ${this.condition(depth + 2)})`;
    return one;
  }
  /** Statements of one thread: assignments, branches, loops. */
  local(depth: number): string {
    const n = 1 + this.int(3);
    let out = '';
    for (let k = 0; k < n; k++) {
      const r = this.rnd();
      const v = this.pick(this.vars);
      if (r < 0.55 || depth >= 2) out += `${v.name} = ${this.expr(v.t)};\n`;
      else if (r < 0.8)
        out +=
          `if (${this.condition(0)}) ` +
          `{\n${this.local(depth + 1)}}${this.rnd() < 0.5 ? ` else {\n${this.local(depth + 1)}}` : ''}\n`;
      else {
        const i = `i${this.depth++}`;
        const bound = this.rnd() < 0.5 ? `${1 + this.int(5)}u` : `(${this.leaf('u32')} & 7u)`;
        const stop = this.rnd() < 0.3 ? `if (${this.condition(1)}) break;\n` : '';
        out +=
          `{ const u32 n${i} = ${bound}; for (u32 ${i} = 0; ${i} < n${i}; ${i}++) ` +
          `{\n${this.local(depth + 1)}${stop}} }\n`;
      }
    }
    return out;
  }
}

/** One program: thread-local statements, shuffles, exchanges through shared memory and integer atomics. */
export function generate(seed: number): GeneratedProgram {
  const g = new Generator(seed);
  const name = `k${seed}`;
  const count = 4 + g.int(4);
  const types: T[] = ['u32', 'i32', 'f32'];
  while (types.length < count) types.push(g.pick(TYPES));
  const vars = types.map((t, k) => ({ name: `v${k}`, t }));
  const setup = vars.map((v, k) => {
    const at = `(t * ${2 * k + 3}u + ${k * 17}u)`;
    g.vars = [];
    const i = INPUT_WORDS;
    const from: Record<T, string> = {
      u32: `in[${at} & ${i - 1}u]`,
      i32: `(i32)in[${at} & ${i - 1}u]`,
      u64: `in64[${at} & ${i / 2 - 1}u]`,
      i64: `(i64)in64[${at} & ${i / 2 - 1}u]`,
      f32: `float_of(in[${at} & ${i - 1}u])`,
      f64: `(f64)(i32)in[${at} & ${i - 1}u] * 0.001`,
      u16: `in16[${at} & ${2 * i - 1}u]`,
      i16: `(i16)in16[${at} & ${2 * i - 1}u]`,
      u8: `in8[${at} & ${4 * i - 1}u]`,
      f16: `half_of(in16[${at} & ${2 * i - 1}u])`,
    };
    return from[v.t];
  });
  g.vars = vars;
  let hip = '';
  let host = '';
  // Host code sees arrays: one name per thread.
  const perThread = (code: string): string =>
    `for (u32 t = 0; t < ${BLOCK}u; t++) ` +
    `{\n${vars.map((v) => `${v.t} &${v.name} = a_${v.name}[t];`).join(' ')}\n${code}}\n`;
  const steps = 3 + g.int(4);
  for (let s = 0; s < steps; s++) {
    const kind = g.rnd();
    const small = vars.filter((v) => v.t === 'u32' || v.t === 'i32' || v.t === 'f32');
    const v = g.pick(small);
    const w = g.pick(small.filter((x) => x.t === v.t));
    if (kind < 0.55) {
      const code = g.local(0);
      hip += `{\n${code}}\n`;
      host += perThread(code);
    } else if (kind < 0.75) {
      const n = g.int(31) + 1;
      const how = g.pick(['xor', 'idx', 'up', 'down']);
      const index = vars.find((x) => x.t === 'u32')!.name;
      hip +=
        {
          xor: `${w.name} = __shfl_xor(${v.name}, ${n}, 32);`,
          idx: `${w.name} = __shfl(${v.name}, (int)(${index} & 31u), 32);`,
          up: `${w.name} = __shfl_up(${v.name}, ${n}, 32);`,
          down: `${w.name} = __shfl_down(${v.name}, ${n}, 32);`,
        }[how]! + '\n';
      const from = {
        xor: `(t & ~31u) | ((t ^ ${n}u) & 31u)`,
        idx: `(t & ~31u) | (a_${index}[t] & 31u)`,
        up: `(t & 31u) < ${n}u ? t : t - ${n}u`,
        down: `(t & 31u) + ${n}u > 31u ? t : t + ${n}u`,
      }[how]!;
      host +=
        `{ ${v.t} copy[${BLOCK}]; for (u32 t = 0; t < ${BLOCK}u; t++) copy[t] = a_${v.name}[t]; ${v.t} ` +
        `next[${BLOCK}]; for (u32 t = 0; t < ${BLOCK}u; t++) next[t] = copy[${from}]; for (u32 t = 0; t < ` +
        `${BLOCK}u; t++) a_${w.name}[t] = next[t]; }\n`;
    } else if (kind < 0.92) {
      const x = g.pick(vars);
      const k = 2 * g.int(32) + 1;
      const c = g.int(BLOCK);
      hip +=
        `{ __shared__ ${x.t} sh[${BLOCK}]; sh[t] = ${x.name}; __syncthreads(); ${x.name} = sh[(t * ${k}u + ` +
        `${c}u) & ${BLOCK - 1}u]; __syncthreads(); }\n`;
      host +=
        `{ ${x.t} sh[${BLOCK}]; for (u32 t = 0; t < ${BLOCK}u; t++) sh[t] = a_${x.name}[t]; for (u32 t = 0; ` +
        `t < ${BLOCK}u; t++) a_${x.name}[t] = sh[(t * ${k}u + ${c}u) & ${BLOCK - 1}u]; }\n`;
    } else {
      const u = vars.find((x) => x.t === 'u32')!;
      const op = g.pick(['Add', 'Max', 'Xor', 'Or']);
      const apply = {
        Add: (a: string, b: string) => `${a} += ${b}`,
        Max: (a: string, b: string) => `${a} = ${a} > ${b} ? ${a} : ${b}`,
        Xor: (a: string, b: string) => `${a} ^= ${b}`,
        Or: (a: string, b: string) => `${a} |= ${b}`,
      }[op]!;
      hip +=
        `{ __shared__ u32 bin[16]; if (t < 16u) bin[t] = t; __syncthreads(); atomic${op}(&bin[${u.name} & ` +
        `15u], ${u.name} >> 3); __syncthreads(); ${u.name} ^= bin[t & 15u]; __syncthreads(); }\n`;
      host +=
        `{ u32 bin[16]; for (u32 t = 0; t < 16u; t++) bin[t] = t; for (u32 t = 0; t < ${BLOCK}u; t++) { ` +
        `${apply(`bin[a_${u.name}[t] & 15u]`, `(a_${u.name}[t] >> 3)`)}; } for (u32 t = 0; t < ${BLOCK}u; t++) ` +
        `a_${u.name}[t] ^= bin[t & 15u]; }\n`;
    }
  }
  const emit = (base: string) => {
    let at = 0;
    return vars
      .map((v) => {
        const bits = { f16: `(u32)bits16(${v.name})`, f32: `bits32(${v.name})` }[v.t as string] ?? `(u32)${v.name}`;
        if (BITS[v.t] < 64) return `${base}[${at++}] = ${bits};`;
        const q = v.t === 'f64' ? `bits64(${v.name})` : `(u64)${v.name}`;
        return `${base}[${at++}] = (u32)${q}; ${base}[${at++}] = (u32)(${q} >> 32);`;
      })
      .join(' ');
  };
  const views =
    'const u8* in8 = (const u8*)in; const u16* in16 = (const u16*)in; const u64* in64 = (const u64*)in; ' +
    '(void)in8; (void)in16; (void)in64;';
  return {
    name,
    hip:
      `KERNEL(${BLOCK}) ${name}(const u32* in, u32* out) {\n${views}\nconst u32 t = threadIdx.x; in += blockIdx.x ` +
      `* ${INPUT_WORDS}u; in8 += blockIdx.x * ${INPUT_WORDS * 4}u; in16 += blockIdx.x * ${INPUT_WORDS * 2}u; ` +
      `in64 += blockIdx.x * ${INPUT_WORDS / 2}u;\n` +
      `${vars.map((v, k) => `${v.t} ${v.name} = ${setup[k]};`).join('\n')}\n${hip}u32* o = out + (blockIdx.x * ` +
      `${BLOCK}u + t) * ${OUTPUT_WORDS}u;\n${emit('o')}\n}\n`,
    host:
      `extern "C" void ${name}(const u32* all, u32* out) {\nfor (u32 block = 0; block < ${GRID}u; block++) { ` +
      `const u32* in = all + block * ${INPUT_WORDS}u; ${views}\n` +
      `${vars.map((v, k) => `${v.t} a_${v.name}[${BLOCK}]; for (u32 t = 0; t < ${BLOCK}u; t++) a_${v.name}[t] = ${setup[k]};`).join('\n')}\n${host}` +
      `${perThread(`u32* o = out + (block * ${BLOCK}u + t) * ${OUTPUT_WORDS}u; ${emit('o')}\n`)}}\n}\n`,
  };
}
