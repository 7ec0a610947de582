// Products with ggml's blocks: whole numbers against whole numbers, scaled chunk by chunk; and blocks back to floats.
// Compiled once more with -DWICK_DOT where the CPU multiplies and adds four bytes in one instruction, or small matrices of
// them.
#include "amx.h"

namespace {
#include "blocks.h"

using wick::BlockKernels;
using wick::Rounded;

#if defined(WICK_ISA_NEON)
#include "quantized-neon.h"
#else
// ---- one row of activations: eight sums of whole products at a time ----
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
#endif

// ---- many rows of activations: a strip of weights is unpacked once, so that lanes are rows of weights ----
// Four values of a row, or two in 16 bits, fill a lane; products add up in it without a sum over lanes at the end.
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr int LANE_VALUES = 4;
#else
constexpr int LANE_VALUES = 2;
#endif
constexpr int LANES = F::N, GROUPS = 32 / LANE_VALUES;
#if defined(WICK_ISA_AVX512)
constexpr int VECTORS = 2, COLUMNS = 6;
#elif defined(WICK_ISA_NEON)
constexpr int VECTORS = 2, COLUMNS = 4;
#else
constexpr int VECTORS = 1, COLUMNS = 4;
#endif
constexpr int STRIP = VECTORS * LANES;
#if defined(__AVX512VNNI__)
// The instruction multiplies unsigned by signed: activations are 128 too large, which `start` takes off again.
constexpr int OFFSET = 128;
#else
constexpr int OFFSET = 0;
#endif

WICK_FN I multiplied(I acc, I w, I a) {
#if defined(__AVX512VNNI__)
  return I((I::R)_mm512_dpbusd_epi32((__m512i)acc.r, (__m512i)a.r, (__m512i)w.r));
#elif defined(__ARM_FEATURE_DOTPROD)
  return I((I::R)vdotq_s32((int32x4_t)acc.r, (int8x16_t)w.r, (int8x16_t)a.r));
#elif defined(__aarch64__)
  const int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)w.r), vget_low_s16((int16x8_t)a.r));
  return I((I::R)vaddq_s32((int32x4_t)acc.r, vpaddq_s32(low, vmull_high_s16((int16x8_t)w.r, (int16x8_t)a.r))));
#elif defined(WICK_ISA_WASM)
  return acc + I((I::R)wasm_i32x4_dot_i16x8((v128_t)w.r, (v128_t)a.r));
#elif defined(WICK_ISA_AVX512)
  return acc + I((I::R)_mm512_madd_epi16((__m512i)w.r, (__m512i)a.r));
#elif defined(WICK_ISA_AVX2)
  return acc + I((I::R)_mm256_madd_epi16((__m256i)w.r, (__m256i)a.r));
#else
  return acc + I((I::R)_mm_madd_epi16((__m128i)w.r, (__m128i)a.r));
#endif
}

// A strip of STRIP rows: for every chunk GROUPS vectors of lanes; for every part of a chunk (its halves, where
// they differ in scale) scales, minima and what the sums start from.
struct Strip {
  int32_t* lanes;
  float *scale, *minimum;  // no minima: null
  int32_t* start;
};

// to[g * pitch + r] = from[r][g] for COUNT of eight columns.
template <int COUNT = 8> WICK_FN void turned(const Ints (&from)[LANES], int32_t* to, int64_t pitch) {
#if defined(WICK_ISA_AVX512)
  __m512i v[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
    v[i] = _mm512_inserti64x4(_mm512_castsi256_si512((__m256i)from[i]), (__m256i)from[i + 8], 1);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const int at = i / 2 * 4 + i % 2;
    v[at + i % 2] = _mm512_unpacklo_epi64(t[at], t[at + 2]);
    v[at + i % 2 + 1] = _mm512_unpackhi_epi64(t[at], t[at + 2]);
  }
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 8
  for (int g = 0; g < COUNT; g++)
    _mm512_storeu_si512(to + g * pitch, _mm512_permutex2var_epi64(v[g % 4], g < 4 ? low : high, v[g % 4 + 4]));
#else
  typedef int32_t Four __attribute__((vector_size(16)));
  for (int r = 0; r < LANES; r += 4)
    for (int g = 0; g < COUNT; g += 4) {
      Four v[4];
      for (int i = 0; i < 4; i++) memcpy(&v[i], reinterpret_cast<const int32_t*>(&from[r + i]) + g, 16);
      const Four a = WICK_SHUFFLE(Four, v[0], v[2], 0, 4, 1, 5), b = WICK_SHUFFLE(Four, v[0], v[2], 2, 6, 3, 7);
      const Four c = WICK_SHUFFLE(Four, v[1], v[3], 0, 4, 1, 5), d = WICK_SHUFFLE(Four, v[1], v[3], 2, 6, 3, 7);
      const Four out[4] = {WICK_SHUFFLE(Four, a, c, 0, 4, 1, 5), WICK_SHUFFLE(Four, a, c, 2, 6, 3, 7),
                           WICK_SHUFFLE(Four, b, d, 0, 4, 1, 5), WICK_SHUFFLE(Four, b, d, 2, 6, 3, 7)};
      for (int i = 0; i < 4 && g + i < COUNT; i++) memcpy(to + (g + i) * pitch + r, &out[i], 16);
    }
#endif
}
// What the sums of a chunk's parts start from, for the offset is part of every product.
WICK_FN void putStart(const int32_t* lanes, int32_t* start, int parts) {
  for (int p = 0; p < parts; p++) {
    I sum(0);
    for (int g = p * GROUPS / parts; g < (p + 1) * GROUPS / parts; g++)
      sum = multiplied(sum, I::load(lanes + g * STRIP), I(OFFSET * 0x01010101u));
    (I(0) - sum).store(start + p * STRIP);
  }
}
// LANES rows of BLOCKS blocks, up to eight chunks, from chunk number `chunk` and row `at` of the strip on; those behind
// the last of `rows` are zero.
template <class T, int BLOCKS>
__attribute__((noinline)) void unpackBatch(const uint8_t* w, int64_t rowBytes, int64_t rows, const Strip& to,
                                           int64_t chunk, int64_t at) {
  constexpr int COUNT = BLOCKS * T::chunks, PARTS = T::halves ? 2 : 1;
  Scales s[LANES];
  if (rows < LANES) memset(s, 0, sizeof s);
  for (int64_t r = 0; r < rows; r++) T::template scales<BLOCKS>(w + r * rowBytes, s[r]);
  for (int p = 0; p < PARTS; p++) {
    const int64_t place = (chunk * PARTS + p) * STRIP + at, pitch = PARTS * STRIP;
    Ints d[LANES], m[LANES];
    for (int r = 0; r < LANES; r++) d[r] = (Ints)s[r].d[p], m[r] = (Ints)s[r].m[p];
    turned<COUNT>(d, reinterpret_cast<int32_t*>(to.scale) + place, pitch);
    if (T::minima) turned<COUNT>(m, reinterpret_cast<int32_t*>(to.minimum) + place, pitch);
  }
  for (int c = 0; c < COUNT; c++, chunk++) {
    Ints values[GROUPS / 8][LANES] = {};
    for (int64_t r = 0; r < rows; r++) {
      const Bytes q = T::values(w + r * rowBytes + c / T::chunks * T::bytes, c % T::chunks) - (Bytes)each(T::offset);
      if constexpr (LANE_VALUES == 4) values[0][r] = (Ints)q;
      else {
        const auto pairs = __builtin_convertvector(q, Raw<int16_t, 32>);
        for (int h = 0; h < GROUPS / 8; h++) memcpy(&values[h][r], reinterpret_cast<const char*>(&pairs) + 32 * h, 32);
      }
    }
    int32_t* lanes = to.lanes + chunk * GROUPS * STRIP + at;
#if defined(__ARM_FEATURE_MATMUL_INT8)
    putEights(values[0], lanes - at, at);
#else
    for (int h = 0; h < GROUPS / 8; h++) turned(values[h], lanes + 8 * h * STRIP, STRIP);
#endif
    if (OFFSET) putStart(lanes, to.start + chunk * PARTS * STRIP + at, PARTS);
  }
}
template <class T> void unpack(const uint8_t* w, int64_t rowBytes, int64_t rows, int64_t n, const Strip& to) {
  constexpr int BLOCKS = 8 / T::chunks;
  const int64_t chunks = n / 32;
  for (int64_t at = 0; at < STRIP; at += LANES, w += LANES * rowBytes, rows -= LANES) {
    const int64_t some = rows < 0 ? 0 : rows < LANES ? rows : LANES;
    const uint8_t* from = w;
    int64_t c = 0;
    for (; c + 8 <= chunks; c += 8, from += BLOCKS * T::bytes) unpackBatch<T, BLOCKS>(from, rowBytes, some, to, c, at);
    if constexpr (BLOCKS > 1)
      for (; c < chunks; c += T::chunks, from += T::bytes) unpackBatch<T, 1>(from, rowBytes, some, to, c, at);
  }
}

#define WICK_BOTH(V) _Pragma("GCC unroll 2") for (int v = 0; v < V; v++)
// A strip against C rows of activations.
#if defined(WICK_ISA_NEON) && defined(__ARM_FEATURE_DOTPROD)
template <int C, int PARTS>
WICK_FN void tile(const Strip& w, const Rounded& a, int64_t rows, float* out, int64_t pitch) {
  static_assert(STRIP == 8 && LANES == 4, "as dotTile reads it");
  float sums[C][STRIP];
  dotTile<C, PARTS>(w.lanes, w.scale, w.minimum, a, sums);
  WICK_EACH(C) memcpy(out + u * pitch, sums[u], rows * sizeof(float));
}
#else
template <int C, int PARTS>
WICK_FN void tile(const Strip& w, const Rounded& a, int64_t rows, float* out, int64_t pitch) {
  constexpr int V = VECTORS;
  F acc[C][V];
  WICK_EACH(C) WICK_BOTH(V) acc[u][v] = F(0.f);
  const int32_t* lanes = w.lanes;
  const int32_t* x = reinterpret_cast<const int32_t*>(a.wide);
  const int64_t row = a.n / 2, chunks = a.n / 32;  // 2 bytes a value are set apart for a row
  for (int64_t i = 0; i < chunks * PARTS; i++) {
    I sum[C][V];
    WICK_BOTH(V) {
      const I start = OFFSET ? I::load(w.start + i * STRIP + v * LANES) : I(0);
      WICK_EACH(C) sum[u][v] = start;
    }
    for (int g = 0; g < GROUPS / PARTS; g++, lanes += STRIP, x++) {
      I weights[V];
      WICK_BOTH(V) weights[v] = I::load(lanes + v * LANES);
      WICK_EACH(C) {
        const I value(x[u * row]);
        WICK_BOTH(V) sum[u][v] = multiplied(sum[u][v], weights[v], value);
      }
    }
    const float* scales = a.scale + i / PARTS;
    WICK_BOTH(V) {
      const F scale = F::load(w.scale + i * STRIP + v * LANES);
      WICK_EACH(C)
      acc[u][v] = mad(F(__builtin_convertvector(sum[u][v].r, F::R)) * scale, F(scales[u * chunks]), acc[u][v]);
    }
    if (!w.minimum) continue;
    const float* sums = a.sum + i / PARTS + i % PARTS * chunks;
    WICK_BOTH(V) {
      const F minimum = F::load(w.minimum + i * STRIP + v * LANES);
      WICK_EACH(C) {
        const float* of = sums + u * 2 * chunks;
        acc[u][v] = mad(minimum, F(PARTS == 2 ? -of[0] : -of[0] - of[chunks]), acc[u][v]);
      }
    }
  }
  WICK_EACH(C) {
    alignas(64) float sums[STRIP];
    WICK_BOTH(V) acc[u][v].store(sums + v * LANES);
    memcpy(out + u * pitch, sums, rows * sizeof(float));
  }
}
#endif
template <int PARTS>
__attribute__((noinline)) void tiles(const Strip& w, const Rounded& a, int64_t m, int64_t rows, float* out,
                                     int64_t pitch) {
  int64_t k = 0;
  for (; k + COLUMNS <= m; k += COLUMNS) tile<COLUMNS, PARTS>(w, a.from(k), rows, out + k * pitch, pitch);
  for (; k + 2 <= m; k += 2) tile<2, PARTS>(w, a.from(k), rows, out + k * pitch, pitch);
  for (; k < m; k++) tile<1, PARTS>(w, a.from(k), rows, out + k * pitch, pitch);
}

#if defined(WICK_AMX) && defined(__AVX512VNNI__)
// ---- the same on matrix tiles: 16 rows of weights against 16 rows of activations ----
// For formats whose chunks have one scale: half a chunk leaves tiles less to do than vectors have to scale.
static_assert(LANES == TILE && LANE_VALUES == 4 && wick::BLOCK_ROWS == TILE, "a tile's row holds fours of 16 rows");

// Scales the whole products of a chunk and adds them to the results of a block of activations.
WICK_FN void addScaled(const Strip& w, const Rounded& a, int64_t chunk, const int32_t* sums, F (&acc)[TILE]) {
  const float* by = a.scale + chunk * TILE;
  const F scale = F::load(w.scale + chunk * STRIP);
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) {
    const F product(__builtin_convertvector(I::load(sums + u * TILE).r, F::R));
    acc[u] = mad(product * scale, F(by[u]), acc[u]);
  }
  if (!w.minimum) return;
  const float* sum = a.sum + chunk * TILE;
  alignas(64) float taken[TILE];
  (-F::load(sum) - F::load(sum + a.n / 32 * TILE)).store(taken);
  const F minimum = F::load(w.minimum + chunk * STRIP);
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u] = mad(minimum, F(taken[u]), acc[u]);
}
// Tile T gets the whole products of a chunk; its sums go to memory, whence vectors take them.
#define WICK_MULTIPLY(T, chunk)                                                       \
  _tile_zero(T);                                                                      \
  _tile_loadd(4, a.q + (chunk)*32 * TILE, 32);                                        \
  _tile_loadd(6, w.lanes + (chunk)*GROUPS * STRIP, STRIP * (int64_t)sizeof(int32_t)); \
  _tile_dpbssd(T, 4, 6);
#define WICK_KEEP(T) _tile_stored(T, sums[T], TILE*(int64_t)sizeof(int32_t));
#define WICK_ADD(T, chunk) written(sums), addScaled(w, a, chunk, sums[T], acc);
// In three stages, for a tile's sums can be read only some time after they were stored: while chunk c + 1 is multiplied,
// c is stored and the one before it is scaled. The result's lines are asked for first: stores that wait for theirs would
// hold up those of sums.
WICK_TILES void tileBlock(const Strip& w, const Rounded& a, int64_t m, int64_t rows, float* out, int64_t pitch) {
  alignas(64) int32_t sums[2][TILE * TILE];
  const int64_t chunks = a.n / 32;
  written(w.lanes);
  for (int64_t u = 0; u < m; u++) __builtin_prefetch(out + u * pitch, 1);
  F acc[TILE];
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u] = F(0.f);
  WICK_MULTIPLY(0, 0)
  WICK_KEEP(0)
  int64_t c = 1;
  if (chunks > 1) {
    WICK_MULTIPLY(1, 1)
    for (; c + 2 < chunks; c += 2) {
      WICK_MULTIPLY(0, c + 1)
      WICK_KEEP(1)
      WICK_ADD(0, c - 1)
      WICK_MULTIPLY(1, c + 2)
      WICK_KEEP(0)
      WICK_ADD(1, c)
    }
    WICK_KEEP(1)
    WICK_ADD(0, c - 1)
    if (c + 1 < chunks) {
      WICK_MULTIPLY(0, c + 1)
      WICK_KEEP(0)
    }
    WICK_ADD(1, c)
  }
  if (chunks % 2) WICK_ADD(0, chunks - 1)
  if (m == TILE && rows == TILE) {
#pragma GCC unroll 16
    for (int u = 0; u < TILE; u++) acc[u].store(out + u * pitch);
    return;
  }
  alignas(64) float lines[TILE][TILE];
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u].store(lines[u]);
  for (int64_t u = 0; u < m; u++) memcpy(out + u * pitch, lines[u], rows * sizeof(float));
}
#undef WICK_MULTIPLY
#undef WICK_KEEP
#undef WICK_ADD
void onTiles(const Strip& w, const Rounded& a, int64_t m, int64_t rows, float* out, int64_t pitch) {
  beginTiles(32);
  for (int64_t k = 0; k < m; k += TILE)
    for (int64_t r = 0; r < rows; r += TILE) {
      const Strip part = {w.lanes + r, w.scale + r, w.minimum ? w.minimum + r : nullptr, nullptr};
      tileBlock(part, a.from(k), m - k < TILE ? m - k : TILE, rows - r < TILE ? rows - r : TILE, out + k * pitch + r,
                pitch);
    }
  endTiles();
}
template <class T> bool readsBlocks() { return !T::halves && hasTiles(); }
#else
template <class T> bool readsBlocks() { return false; }
void onTiles(const Strip&, const Rounded&, int64_t, int64_t, float*, int64_t) {}
#endif

template <class T>
void product(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out, int64_t pitch) {
  if (m <= ROW_BY_ROW && !a.blocks) {
    rowByRow<T>(w, rowBytes, rows, a, m, out, pitch);
    return;
  }
  constexpr int parts = T::halves ? 2 : 1;
  const size_t lanes = a.n / LANE_VALUES * STRIP, scales = a.n / 32 * parts * STRIP;
  int32_t* room = static_cast<int32_t*>(scratch(wick::SCRATCH_A, (lanes + 3 * scales) * sizeof(int32_t)));
  float* scale = reinterpret_cast<float*>(room + lanes);
  const Strip strip = {room, scale, T::minima ? scale + scales : nullptr, room + lanes + 2 * scales};
  for (int64_t r = 0; r < rows; r += STRIP) {
    const int64_t count = rows - r < STRIP ? rows - r : STRIP;
    unpack<T>(w + r * rowBytes, rowBytes, count, a.n, strip);
    if (a.blocks) onTiles(strip, a, m, count, out + r, pitch);
    else tiles<parts>(strip, a, m, count, out + r, pitch);
  }
}

template <class T> void decode(const uint8_t* w, float* y, int64_t blocks) {
  for (int64_t b = 0; b < blocks; b++, w += T::bytes) {
    Scales s;
    T::template scales<1>(w, s);
    for (int c = 0; c < T::chunks; c++, y += 32) {
      const Bytes q = T::values(w, c) - (Bytes)each(T::offset);
      for (int h = 0; h < 2; h++) {
        const float d = s.d[T::halves * h][c], m = T::minima ? s.m[T::halves * h][c] : 0;
        float lane[16];
        for (int j = 0; j < 16; j++) lane[j] = d * (float)q[16 * h + j];
        for (int j = 0; j < 16; j++) y[16 * h + j] = T::minima ? lane[j] - m : lane[j];
      }
    }
  }
}

#if !defined(WICK_ISA_NEON)
void roundRow(const float* x, const Rounded& to, int64_t row) {
  const int64_t chunks = to.n / 32, step = to.blocks ? wick::BLOCK_ROWS : 1, within = row % step;
  const Rounded block = to.from(row - within);
  int8_t* q = const_cast<int8_t*>(block.q) + within * 32;
  float *scale = const_cast<float*>(block.scale) + within, *sum = const_cast<float*>(block.sum) + within;
  for (int64_t c = 0; c < chunks; c++, x += 32, q += step * 32, scale += step, sum += step) {
    uint32_t bits[32], largest = 0;
    memcpy(bits, x, sizeof bits);
    for (int j = 0; j < 32; j++) {
      const uint32_t magnitude = bits[j] & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    float most;
    memcpy(&most, &largest, 4);
    const bool finite = largest < 0x7f800000u;
    const float inverse = finite && largest > 0 ? 127 / most : 0;
    *scale = finite ? most / 127 : __builtin_nanf("");
    int32_t whole[32];
    for (int j = 0; j < 32; j++) whole[j] = (int32_t)__builtin_rintf(finite ? x[j] * inverse : 0);
    for (int h = 0; h < 2; h++) {
      int32_t all = 0;
      for (int j = 0; j < 16; j++) all += whole[16 * h + j];
      sum[h * chunks * step] = *scale * (float)all;
    }
    for (int j = 0; j < 32; j++) q[j] = (int8_t)whole[j];
    if (to.blocks) continue;
    int16_t* wide = const_cast<int16_t*>(block.wide);
    if (LANE_VALUES == 2)
      for (int j = 0; j < 32; j++) wide[32 * c + j] = (int16_t)whole[j];
    else
      for (int j = 0; j < 32; j++) reinterpret_cast<uint8_t*>(wide)[32 * c + j] = (uint8_t)(whole[j] + OFFSET);
  }
}
#endif

template <class T> const BlockKernels KERNELS = {32 * T::chunks, T::bytes, readsBlocks<T>, decode<T>, product<T>};
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
