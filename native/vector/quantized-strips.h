// Many rows of activations by ggml's blocks: a strip of weights is unpacked once, so that lanes are rows of weights.
// Included by quantized.cpp inside its namespace.
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
