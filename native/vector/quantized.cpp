// Products with ggml's blocks: whole numbers against whole numbers, scaled chunk by chunk; and blocks back to floats.
// Compiled once more with -DWICK_DOT where the CPU multiplies and adds four bytes in one instruction.
#include "isa.h"

namespace {
#include "blocks.h"

using wick::BlockKernels;
using wick::Rounded;

// ---- four sums of whole products ----
#if defined(__aarch64__)
typedef int32x4_t Sums;
inline Sums dot(Sums acc, Bytes w, Bytes a) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, (int8x16_t)w, (int8x16_t)a);
#else
  const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)a));
  const int16x8_t high = vmull_high_s8((int8x16_t)w, (int8x16_t)a);
  return vpadalq_s16(vpadalq_s16(acc, low), high);
#endif
}
typedef float32x4_t Floats;
inline Floats scaled(Floats acc, Sums s, float by) { return vfmaq_n_f32(acc, vcvtq_f32_s32(s), by); }
inline float total(Floats v) { return vaddvq_f32(v); }
#elif defined(WICK_ISA_WASM)
typedef v128_t Sums;
inline Sums dot(Sums acc, Bytes w, Bytes a) {
  const v128_t low =
      wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16((v128_t)w), wasm_i16x8_extend_low_i8x16((v128_t)a));
  const v128_t high =
      wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16((v128_t)w), wasm_i16x8_extend_high_i8x16((v128_t)a));
  return wasm_i32x4_add(acc, wasm_i32x4_add(low, high));
}
typedef float Floats __attribute__((vector_size(16)));
inline Floats scaled(Floats acc, Sums s, float by) { return acc + (Floats)wasm_f32x4_convert_i32x4(s) * by; }
inline float total(Floats v) { return (v[0] + v[2]) + (v[1] + v[3]); }
#else
typedef __m128i Sums;
inline Sums dot(Sums acc, Bytes w, Bytes a) {
#if defined(__SSSE3__)
  const __m128i magnitude = _mm_abs_epi8((__m128i)w), turned = _mm_sign_epi8((__m128i)a, (__m128i)w);
#if defined(__AVX512VNNI__)
  return _mm_dpbusd_epi32(acc, magnitude, turned);
#else
  return _mm_add_epi32(acc, _mm_madd_epi16(_mm_maddubs_epi16(magnitude, turned), _mm_set1_epi16(1)));
#endif
#else
  const __m128i zero = _mm_setzero_si128();
  const __m128i wl = _mm_srai_epi16(_mm_unpacklo_epi8(zero, (__m128i)w), 8),
                wh = _mm_srai_epi16(_mm_unpackhi_epi8(zero, (__m128i)w), 8);
  const __m128i al = _mm_srai_epi16(_mm_unpacklo_epi8(zero, (__m128i)a), 8),
                ah = _mm_srai_epi16(_mm_unpackhi_epi8(zero, (__m128i)a), 8);
  return _mm_add_epi32(acc, _mm_add_epi32(_mm_madd_epi16(wl, al), _mm_madd_epi16(wh, ah)));
#endif
}
typedef __m128 Floats;
inline Floats scaled(Floats acc, Sums s, float by) {
  return _mm_add_ps(acc, _mm_mul_ps(_mm_cvtepi32_ps(s), _mm_set1_ps(by)));
}
inline float total(Floats v) {
  const __m128 pairs = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
}
#endif

// ROWS rows of weights against COLUMNS rows of activations: a chunk of weights is unpacked once for all columns.
template <class T, int ROWS, int COLUMNS>
inline void tile(const uint8_t* w, int64_t rowBytes, const Rounded& a, int64_t m, float* out, int64_t pitch) {
  Floats acc[ROWS][COLUMNS] = {};
  float taken[ROWS][COLUMNS] = {};  // by minima
  const int64_t blocks = a.n / (32 * T::chunks);
  const int8_t* q = a.q + m * a.n;
  const float* scale = a.scale + m * (a.n / 32);
  const float* sum = a.sum + m * (a.n / 16);
  for (int64_t b = 0; b < blocks; b++) {
    Scales s[ROWS];
    for (int r = 0; r < ROWS; r++) T::scales(w + r * rowBytes + b * T::bytes, s[r]);
#pragma GCC unroll 8
    for (int c = 0; c < T::chunks; c++) {
      const int64_t chunk = b * T::chunks + c;
      Bytes v[ROWS][2];
      for (int r = 0; r < ROWS; r++) T::values(w + r * rowBytes + b * T::bytes, c, v[r]);
      for (int k = 0; k < COLUMNS; k++) {
        const int8_t* x = q + k * a.n + chunk * 32;
        const Bytes low = loadBytes(x), high = loadBytes(x + 16);
        const float by = scale[k * (a.n / 32) + chunk];
        const float* sums = sum + k * (a.n / 16) + chunk * 2;
        for (int r = 0; r < ROWS; r++) {
          if (T::halves) {
            acc[r][k] = scaled(acc[r][k], dot(Sums{}, v[r][0], low), s[r].d[2 * c] * by);
            acc[r][k] = scaled(acc[r][k], dot(Sums{}, v[r][1], high), s[r].d[2 * c + 1] * by);
          } else {
            acc[r][k] = scaled(acc[r][k], dot(dot(Sums{}, v[r][0], low), v[r][1], high), s[r].d[2 * c] * by);
          }
          if (T::minima)
            taken[r][k] +=
                T::halves ? s[r].m[2 * c] * sums[0] + s[r].m[2 * c + 1] * sums[1] : s[r].m[2 * c] * (sums[0] + sums[1]);
        }
      }
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int k = 0; k < COLUMNS; k++) out[k * pitch + r] = total(acc[r][k]) - taken[r][k];
}

template <class T, int COLUMNS>
void columns(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out, int64_t pitch) {
  constexpr int ROWS = COLUMNS == 1 ? 2 : 2;
  int64_t r = 0;
  for (; r + ROWS <= rows; r += ROWS) tile<T, ROWS, COLUMNS>(w + r * rowBytes, rowBytes, a, m, out + r, pitch);
  for (; r < rows; r++) tile<T, 1, COLUMNS>(w + r * rowBytes, rowBytes, a, m, out + r, pitch);
}

template <class T>
void product(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out, int64_t pitch) {
  int64_t k = 0;
  for (; k + 4 <= m; k += 4) columns<T, 4>(w, rowBytes, rows, a, k, out + k * pitch, pitch);
  for (; k + 2 <= m; k += 2) columns<T, 2>(w, rowBytes, rows, a, k, out + k * pitch, pitch);
  for (; k < m; k++) columns<T, 1>(w, rowBytes, rows, a, k, out + k * pitch, pitch);
}

template <class T> void decode(const uint8_t* w, float* y, int64_t blocks) {
  for (int64_t b = 0; b < blocks; b++, w += T::bytes) {
    Scales s;
    T::scales(w, s);
    for (int c = 0; c < T::chunks; c++, y += 32) {
      Bytes q[2];
      T::values(w, c, q);
      for (int h = 0; h < 2; h++) {
        const int at = T::halves ? 2 * c + h : 2 * c;
        const float d = s.d[at], m = T::minima ? s.m[at] : 0;
        float lane[16];
        for (int j = 0; j < 16; j++) lane[j] = d * (float)q[h][j];
        for (int j = 0; j < 16; j++) y[16 * h + j] = T::minima ? lane[j] - m : lane[j];
      }
    }
  }
}

void roundRow(const float* x, int64_t n, int8_t* q, float* scale, float* sum) {
  for (int64_t g = 0; g < n; g += 32) {
    uint32_t bits[32], largest = 0;
    memcpy(bits, x + g, sizeof bits);
    for (int j = 0; j < 32; j++) {
      const uint32_t magnitude = bits[j] & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    float most;
    memcpy(&most, &largest, 4);
    const bool finite = largest < 0x7f800000u;
    const float inverse = finite && largest > 0 ? 127 / most : 0;
    scale[g / 32] = finite ? most / 127 : __builtin_nanf("");
    int32_t whole[32];
    for (int j = 0; j < 32; j++) whole[j] = (int32_t)__builtin_rintf(finite ? x[g + j] * inverse : 0);
    for (int h = 0; h < 2; h++) {
      int32_t all = 0;
      for (int j = 0; j < 16; j++) all += whole[16 * h + j];
      sum[g / 16 + h] = scale[g / 32] * (float)all;
    }
    for (int j = 0; j < 32; j++) q[g + j] = (int8_t)whole[j];
  }
}

template <class T> const BlockKernels KERNELS = {32 * T::chunks, T::bytes, decode<T>, product<T>};
template <class... T> void fill(wick::BlockTable& table) { ((table[T::id] = &KERNELS<T>), ...); }

}  // namespace

#if defined(WICK_DOT)
#define WICK_JOINED(a, b) a##b
#define WICK_NAMED(a, b) WICK_JOINED(a, b)
extern "C" void WICK_NAMED(wick_quantized_, WICK_DOT)(wick::IsaTable* t) {
#else
extern "C" void WICK_EXPORT(wick_quantized)(wick::IsaTable* t) {
#endif
  fill<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4>(t->blocks);
  t->roundRow = roundRow;
}
