// One row of activations by rows of ggml's blocks: eight sums of whole products at a time. Included by quantized.cpp
// inside its namespace; NEON has its own in quantized-neon.h.

#if defined(__AVX2__)
WICK_FN Floats mad(Floats a, Floats b, Floats c) { return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
// Of 32 numbers by fours; what is below 64 and never negative goes into the instruction as it is.
template <bool NEGATIVE> WICK_FN Ints dot(Bytes w, Bytes a) {
  const __m256i magnitude = NEGATIVE ? _mm256_abs_epi8((__m256i)w) : (__m256i)w;
  const __m256i turned = NEGATIVE ? _mm256_sign_epi8((__m256i)a, (__m256i)w) : (__m256i)a;
#if defined(__AVX512VNNI__)
  return (Ints)_mm256_dpbusd_epi32(_mm256_setzero_si256(), magnitude, turned);
#else
  return (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, turned), _mm256_set1_epi16(1));
#endif
}
typedef Floats Sums;
// Adds the products of a chunk times lane I of each half of the factors.
template <bool NEGATIVE, int I> WICK_FN void addProducts(Bytes w, Bytes a, const Floats& factors, Sums& acc) {
  const Floats by = WICK_SHUFFLE(Ints, factors, factors, I, I, I, I, I + 4, I + 4, I + 4, I + 4);
  acc = mad(floatsOf(dot<NEGATIVE>(w, a)), by, acc);
}
#else
typedef int32_t Four __attribute__((vector_size(16)));
WICK_FN Four dotHalf(Half w, Half a) {
#if defined(__ARM_FEATURE_DOTPROD)
  return (Four)vdotq_s32(int32x4_t{}, (int8x16_t)w, (int8x16_t)a);
#elif defined(__aarch64__)
  const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)a));
  const int16x8_t high = vmull_high_s8((int8x16_t)w, (int8x16_t)a);
  return (Four)vpadalq_s16(vpaddlq_s16(low), high);
#elif defined(WICK_ISA_WASM)
  const v128_t low =
      wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16((v128_t)w), wasm_i16x8_extend_low_i8x16((v128_t)a));
  const v128_t high =
      wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16((v128_t)w), wasm_i16x8_extend_high_i8x16((v128_t)a));
  return (Four)wasm_i32x4_add(low, high);
#else
  const __m128i zero = _mm_setzero_si128();
  const __m128i wl = _mm_srai_epi16(_mm_unpacklo_epi8(zero, (__m128i)w), 8),
                wh = _mm_srai_epi16(_mm_unpackhi_epi8(zero, (__m128i)w), 8);
  const __m128i al = _mm_srai_epi16(_mm_unpacklo_epi8(zero, (__m128i)a), 8),
                ah = _mm_srai_epi16(_mm_unpackhi_epi8(zero, (__m128i)a), 8);
  return (Four)_mm_add_epi32(_mm_madd_epi16(wl, al), _mm_madd_epi16(wh, ah));
#endif
}
WICK_FN Floats mad(Floats a, Floats b, Floats c) {
  struct Both {
    F low, high;
  };
  const Both x = readAs<Both>(&a), y = readAs<Both>(&b), z = readAs<Both>(&c);
  const Both sum = {mad(x.low, y.low, z.low), mad(x.high, y.high, z.high)};
  return readAs<Floats>(&sum);
}
// By halves, for compilers keep vectors that are longer than registers in memory.
struct Sums {
  F::R half[2];
};
template <bool, int I> WICK_FN void addProducts(Bytes w, Bytes a, const Floats& factors, Sums& acc) {
  WICK_EACH(2) {
    const F::R of = readAs<F::R>(reinterpret_cast<const F::R*>(&factors) + u),
               by = WICK_SHUFFLE(Four, of, of, I, I, I, I);
    const Four products = dotHalf(halfOf(w, u), halfOf(a, u));
    acc.half[u] = mad(F(__builtin_convertvector(products, F::R)), F(by), F(acc.half[u])).r;
  }
}
#endif

// Chunks C to COUNT of a batch. A factor for each: those of chunks 0 to 3, first halves, then second ones; then of 4 to
// 7.
template <class T, int C, int COUNT>
WICK_FN void addChunks(const uint8_t* w, const int8_t* q, const Floats (&factors)[2], Sums (&acc)[4]) {
  const Bytes values = T::values(w + C / T::chunks * T::bytes, C % T::chunks);
  addProducts<T::negative, C % 4>(values, loadBytes(q + 32 * C), factors[C / 4], acc[C % 4]);
  if constexpr (C + 1 < COUNT) addChunks<T, C + 1, COUNT>(w, q, factors, acc);
}
// Four running sums of eight lanes, one for every fourth chunk. d and e are the factors of chunks' halves.
template <class T> struct RunningSums {
  static constexpr int lifted = 0;
  Sums acc[4];
  template <int COUNT>
  __attribute__((always_inline)) void add(const uint8_t* w, const int8_t* q, const int32_t*, Floats d, Floats e) {
    const Floats factors[2] = {WICK_SHUFFLE(Ints, d, e, 0, 1, 2, 3, 8, 9, 10, 11),
                               WICK_SHUFFLE(Ints, d, e, 4, 5, 6, 7, 12, 13, 14, 15)};
    addChunks<T, 0, COUNT>(w, q, factors, acc);
  }
};
#if defined(WICK_ISA_AVX512)
#include "quantized-wide.h"
#endif
// What values that are lifted above zero add to the products of a row of activations, taken off: for every four of it.
template <class T> const int32_t* startsFor(const Rounded& a) {
#if defined(__AVX2__)
  if constexpr (RunningSums<T>::lifted > 0) {
    int32_t* starts = static_cast<int32_t*>(scratch(wick::SCRATCH_A, a.n));
    for (int64_t q = 0; q < a.n; q += 32) {
      const Ints taken = -dot<false>((Bytes)each(RunningSums<T>::lifted), loadBytes(a.q + q));
      memcpy(starts + q / 4, &taken, sizeof taken);
    }
    return starts;
  }
#endif
  return nullptr;
}
template <int COUNT> WICK_FN Floats some(const float* p) {
  Floats v = {};
  memcpy(&v, p, COUNT * sizeof(float));
  return v;
}
// Up to eight chunks, those of BLOCKS blocks: what minima or offsets take off is added up apart.
template <class T, int BLOCKS>
WICK_FN void addBatch(const uint8_t* w, const Rounded& a, const int32_t* starts, int64_t chunk, RunningSums<T>& acc,
                      Floats& taken) {
  constexpr int COUNT = BLOCKS * T::chunks;
  for (int at = 0; at < BLOCKS * T::bytes; at += 64) __builtin_prefetch(w + 4096 + at);
  Scales s;
  T::template scales<BLOCKS>(w, s);
  if constexpr (T::minima || T::offset) {
    const auto& off = T::minima ? s.m : s.d;
    taken = mad(off[0], some<COUNT>(a.sum + chunk), taken);
    taken = mad(off[T::halves], some<COUNT>(a.sum + a.n / 32 + chunk), taken);
  }
  const Floats by = some<COUNT>(a.scale + chunk);
  acc.template add<COUNT>(w, a.q + chunk * 32, starts + chunk * 8, s.d[0] * by, s.d[T::halves] * by);
}
// The product of a row of weights and a row of activations, in eight parts.
template <class T> WICK_FN Floats dots(const uint8_t* w, const Rounded& a, const int32_t* starts) {
  constexpr int BLOCKS = 8 / T::chunks;
  RunningSums<T> acc = {};
  Floats taken = {};
  const int64_t chunks = a.n / 32;
  int64_t c = 0;
  for (; c + 8 <= chunks; c += 8, w += BLOCKS * T::bytes) addBatch<T, BLOCKS>(w, a, starts, c, acc, taken);
  if constexpr (BLOCKS > 1)
    for (; c < chunks; c += T::chunks, w += T::bytes) addBatch<T, 1>(w, a, starts, c, acc, taken);
  Floats sums[4];
  memcpy(sums, &acc, sizeof sums);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]) - taken * (T::minima ? 1.f : T::offset);
}
WICK_FN float sumOf(Floats v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
// The same for eight rows at once.
WICK_FN Floats sumsOf(Floats (&v)[8]) {
  for (int i = 0; i < 4; i++)
    v[i] = WICK_SHUFFLE(Ints, v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
           WICK_SHUFFLE(Ints, v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  for (int i = 0; i < 2; i++)
    v[i] = WICK_SHUFFLE(Ints, v[i], v[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) +
           WICK_SHUFFLE(Ints, v[i], v[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  return WICK_SHUFFLE(Ints, v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14) +
         WICK_SHUFFLE(Ints, v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
}
// Rows of weights against one row of activations.
template <class T> void vectorProduct(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, float* out) {
  const int32_t* starts = startsFor<T>(a);
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    Floats parts[8];
    for (int i = 0; i < 8; i++) parts[i] = dots<T>(w + (r + i) * rowBytes, a, starts);
    const Floats sums = sumsOf(parts);
    memcpy(out + r, &sums, sizeof sums);
  }
  for (; r < rows; r++) out[r] = sumOf(dots<T>(w + r * rowBytes, a, starts));
}
constexpr int64_t ROW_BY_ROW = 1;  // rows of activations that are multiplied one by one
template <class T>
void rowByRow(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t, float* out, int64_t) {
  vectorProduct<T>(w, rowBytes, rows, a, out);
}
