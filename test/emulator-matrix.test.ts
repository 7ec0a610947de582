// Matrix instructions by the compiler's builtins: products of whole tiles with the layouts the vendor documents.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromF16Bits, toBf16Bits, toF16Bits } from '../src/base/float.js';
import { random } from '../src/emulator/executor.js';
import { Bench, hiprtc, missing } from './emulator-support.js';

const SOURCE = `
typedef _Float16 h4 __attribute__((ext_vector_type(4))); typedef _Float16 h8 __attribute__((ext_vector_type(8))); typedef _Float16 h16 __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4))); typedef short s8 __attribute__((ext_vector_type(8))); typedef short s16 __attribute__((ext_vector_type(16)));
typedef float f4 __attribute__((ext_vector_type(4))); typedef float f8 __attribute__((ext_vector_type(8))); typedef float f16v __attribute__((ext_vector_type(16)));
typedef double d4 __attribute__((ext_vector_type(4))); typedef int i4v __attribute__((ext_vector_type(4)));
#if defined(__gfx90a__) || defined(__gfx942__)
// a is m by k, b is n by k, c m by n, all row major.
extern "C" __global__ void half16(const _Float16* a, const _Float16* b, float* c) { int l = threadIdx.x; h4 x, y; f4 z;
  for (int e = 0; e < 4; e++) { x[e] = a[l % 16 * 16 + l / 16 * 4 + e]; y[e] = b[l % 16 * 16 + l / 16 * 4 + e]; z[e] = c[(l / 16 * 4 + e) * 16 + l % 16]; }
  z = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, z, 0, 0, 0); for (int e = 0; e < 4; e++) c[(l / 16 * 4 + e) * 16 + l % 16] = z[e]; }
extern "C" __global__ void bf16(const short* a, const short* b, float* c) { int l = threadIdx.x; s4 x, y; f4 z;
  for (int e = 0; e < 4; e++) { x[e] = a[l % 16 * 16 + l / 16 * 4 + e]; y[e] = b[l % 16 * 16 + l / 16 * 4 + e]; z[e] = c[(l / 16 * 4 + e) * 16 + l % 16]; }
  z = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, z, 0, 0, 0); for (int e = 0; e < 4; e++) c[(l / 16 * 4 + e) * 16 + l % 16] = z[e]; }
extern "C" __global__ void half32(const _Float16* a, const _Float16* b, float* c) { int l = threadIdx.x; h4 x, y; f16v z;
  for (int e = 0; e < 4; e++) { x[e] = a[l % 32 * 8 + l / 32 * 4 + e]; y[e] = b[l % 32 * 8 + l / 32 * 4 + e]; }
  for (int r = 0; r < 16; r++) z[r] = c[(r / 4 * 8 + l / 32 * 4 + r % 4) * 32 + l % 32];
  z = __builtin_amdgcn_mfma_f32_32x32x8f16(x, y, z, 0, 0, 0); for (int r = 0; r < 16; r++) c[(r / 4 * 8 + l / 32 * 4 + r % 4) * 32 + l % 32] = z[r]; }
extern "C" __global__ void double16(const double* a, const double* b, double* c) { int l = threadIdx.x; d4 z;
  for (int r = 0; r < 4; r++) z[r] = c[(l / 16 + 4 * r) * 16 + l % 16];
  z = __builtin_amdgcn_mfma_f64_16x16x4f64(a[l % 16 * 4 + l / 16], b[l % 16 * 4 + l / 16], z, 0, 0, 0); for (int r = 0; r < 4; r++) c[(l / 16 + 4 * r) * 16 + l % 16] = z[r]; }
#elif defined(__gfx1100__)
extern "C" __global__ void half16(const _Float16* a, const _Float16* b, float* c) { int l = threadIdx.x; h16 x, y; f8 z;
  for (int e = 0; e < 16; e++) { x[e] = a[l % 16 * 16 + e]; y[e] = b[l % 16 * 16 + e]; } for (int r = 0; r < 8; r++) z[r] = c[(2 * r + l / 16) * 16 + l % 16];
  z = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, z); for (int r = 0; r < 8; r++) c[(2 * r + l / 16) * 16 + l % 16] = z[r]; }
extern "C" __global__ void bf16(const short* a, const short* b, float* c) { int l = threadIdx.x; s16 x, y; f8 z;
  for (int e = 0; e < 16; e++) { x[e] = a[l % 16 * 16 + e]; y[e] = b[l % 16 * 16 + e]; } for (int r = 0; r < 8; r++) z[r] = c[(2 * r + l / 16) * 16 + l % 16];
  z = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, z); for (int r = 0; r < 8; r++) c[(2 * r + l / 16) * 16 + l % 16] = z[r]; }
#else
extern "C" __global__ void half16(const _Float16* a, const _Float16* b, float* c) { int l = threadIdx.x; h8 x, y; f8 z;
  for (int e = 0; e < 8; e++) { x[e] = a[l % 16 * 16 + l / 16 * 8 + e]; y[e] = b[l % 16 * 16 + l / 16 * 8 + e]; } for (int r = 0; r < 8; r++) z[r] = c[(r + l / 16 * 8) * 16 + l % 16];
  z = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, z); for (int r = 0; r < 8; r++) c[(r + l / 16 * 8) * 16 + l % 16] = z[r]; }
extern "C" __global__ void bf16(const short* a, const short* b, float* c) { int l = threadIdx.x; s8 x, y; f8 z;
  for (int e = 0; e < 8; e++) { x[e] = a[l % 16 * 16 + l / 16 * 8 + e]; y[e] = b[l % 16 * 16 + l / 16 * 8 + e]; } for (int r = 0; r < 8; r++) z[r] = c[(r + l / 16 * 8) * 16 + l % 16];
  z = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, z); for (int r = 0; r < 8; r++) c[(r + l / 16 * 8) * 16 + l % 16] = z[r]; }
#endif
`;

/** Small integers, so that every order of sums gives the same result. */
function check(
  bench: Bench,
  code: Uint8Array,
  kernel: string,
  m: number,
  n: number,
  k: number,
  encode: (x: number[]) => ArrayBufferView,
  wave: number,
  double = false,
): void {
  const rnd = random(m * 100 + k);
  const ints = (count: number): number[] => Array.from({ length: count }, () => Math.floor(rnd() * 17) - 8);
  const [a, b, c] = [ints(m * k), ints(n * k), ints(m * n)];
  const want = c.map(
    (v, at) =>
      v +
      Array.from({ length: k }, (_, e) => a[Math.floor(at / n) * k + e] * b[(at % n) * k + e]).reduce(
        (s, x) => s + x,
        0,
      ),
  );
  const out = bench.buffer(double ? new Float64Array(c) : new Float32Array(c));
  bench.launch(code, kernel, 1, wave, [{ p: bench.buffer(encode(a)) }, { p: bench.buffer(encode(b)) }, { p: out }]);
  const got = double ? bench.read(Float64Array, out, m * n * 8) : bench.read(Float32Array, out, m * n * 4);
  assert.deepEqual([...got], want);
}
const halves = (x: number[]): Uint16Array => new Uint16Array(x.map(toF16Bits));

for (const target of ['gfx90a', 'gfx942', 'gfx1100', 'gfx1201']) {
  test(`${target}: matrix instructions multiply tiles`, { skip: missing(target) }, () => {
    const code = hiprtc(SOURCE, target, ['-O2']);
    const bench = new Bench(target);
    const mfma = target.startsWith('gfx9');
    check(bench, code, 'half16', 16, 16, 16, halves, mfma ? 64 : 32);
    check(bench, code, 'bf16', 16, 16, 16, (x) => new Uint16Array(x.map(toBf16Bits)), mfma ? 64 : 32);
    if (mfma) {
      check(bench, code, 'half32', 32, 32, 8, halves, 64);
      check(bench, code, 'double16', 16, 16, 4, (x) => new Float64Array(x), 64, true);
    }
    assert.equal(fromF16Bits(halves([-8])[0]), -8);
  });
}
