// Products with ggml's blocks on NEON. One row of activations: the whole sums of four chunks are folded into the lanes
// of one vector, so that scaling is done once for four. Many rows: a lane of activations is multiplied with a vector of
// weights' rows. Included by quantized.cpp inside its namespace.

// What whole sums begin with: read as a float they are SHIFT too large then, for their magnitude is below 2^22. Turning
// them into floats is a subtraction, which is quicker here than a conversion.
constexpr float SHIFT = 0x1.8p23f;
constexpr int32_t SHIFT_BITS = 0x4b400000;
WICK_FN float32x4_t withoutShift(int32x4_t v) { return vsubq_f32(vreinterpretq_f32_s32(v), vdupq_n_f32(SHIFT)); }

WICK_FN int32x4_t addDots(int32x4_t acc, int8x16_t w, int8x16_t a) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(acc, w, a);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a)), high = vmull_high_s8(w, a);
  return vpadalq_s16(vpadalq_s16(acc, low), high);
#endif
}

#include "quantized-neon-blocks.h"

// ---- one row of activations ----
// What its products with a type need of it. Whole sums of a chunk, or of each of its halves, begin with `start`: SHIFT
// less what the type's offset adds to every value.
struct Prepared {
  const int8_t* q;
  const int32_t* start[2];
  const float *scale, *sum[2];
};
constexpr int PREPARED_WORDS = 3;  // a chunk
template <class T> Prepared prepared(const Rounded& a, int32_t* room) {
  const int64_t chunks = a.n / 32;
  float* sums = reinterpret_cast<float*>(room + 2 * chunks);
  for (int64_t c = 0; T::offset && c < chunks; c++) {
    const int32_t low = T::offset * vaddlvq_s8(vld1q_s8(a.q + 32 * c)),
                  high = T::offset * vaddlvq_s8(vld1q_s8(a.q + 32 * c + 16));
    room[c] = SHIFT_BITS - low - (T::halves ? 0 : high);
    room[chunks + c] = SHIFT_BITS - high;
  }
  for (int64_t c = 0; T::minima && !T::halves && c < chunks; c++) sums[c] = a.sum[c] + a.sum[chunks + c];
  return {a.q, {room, room + chunks}, a.scale, {T::halves ? a.sum : sums, a.sum + chunks}};
}
WICK_FN int32x4_t foldedFour(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
  return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}
template <int COUNT> WICK_FN float32x4_t someFloats(const float* p) {
  if constexpr (COUNT >= 4) return vld1q_f32(p);
  float v[4] = {};
  memcpy(v, p, COUNT * sizeof(float));
  return vld1q_f32(v);
}
struct RowSum {
  float32x4_t acc, taken;
};
// Zeros cost nothing, for cores rename a register of them; a copy of one would take the arithmetic units' time. What
// they are for is named to keep the compiler from sharing a copy.
WICK_FN int32x4_t zerosFor(int8x16_t of) {
  int32x4_t v;
  asm("movi %0.4s, #0" : "=w"(v) : "w"(of));
  return v;
}
// Whole sums of chunk C, of both halves together or apart; zero behind the last of COUNT chunks.
template <class T, int C, int COUNT>
WICK_FN void wholeSums(const uint8_t* w, const int8_t* q, int32x4_t& s, int32x4_t& t) {
  s = t = vdupq_n_s32(0);
  if constexpr (C < COUNT) {
    const Numbers v = Whole<T, C % T::chunks>::values(w + C / T::chunks * T::bytes);
    s = addDots(zerosFor(v.low), v.low, vld1q_s8(q + 32 * C));
    if constexpr (T::halves) t = addDots(zerosFor(v.high), v.high, vld1q_s8(q + 32 * C + 16));
    else s = addDots(s, v.high, vld1q_s8(q + 32 * C + 16));
  }
}
template <int COUNT> WICK_FN int32x4_t someStarts(const int32_t* p) {
  return vreinterpretq_s32_f32(someFloats<COUNT>(reinterpret_cast<const float*>(p)));
}
// Chunks C to C + 3 of COUNT.
template <class T, int C, int COUNT>
WICK_FN void addFour(const uint8_t* w, const Prepared& a, int64_t chunk, const Factors& f, RowSum& to) {
  constexpr int SOME = COUNT - C < 4 ? COUNT - C : 4, I = C / 4;
  const int8_t* q = a.q + chunk * 32;
  int32x4_t s[2][4];
  wholeSums<T, C, COUNT>(w, q, s[0][0], s[1][0]);
  wholeSums<T, C + 1, COUNT>(w, q, s[0][1], s[1][1]);
  wholeSums<T, C + 2, COUNT>(w, q, s[0][2], s[1][2]);
  wholeSums<T, C + 3, COUNT>(w, q, s[0][3], s[1][3]);
  const float32x4_t by = someFloats<SOME>(a.scale + chunk + C);
  constexpr int HALVES = T::halves ? 2 : 1;
  WICK_EACH(HALVES) {
    const int32x4_t start = T::offset ? someStarts<SOME>(a.start[u] + chunk + C) : vdupq_n_s32(SHIFT_BITS);
    const int32x4_t all = vaddq_s32(foldedFour(s[u][0], s[u][1], s[u][2], s[u][3]), start);
    to.acc = vfmaq_f32(to.acc, withoutShift(all), vmulq_f32(f.d[u][I], by));
    if constexpr (T::minima) to.taken = vfmaq_f32(to.taken, f.m[u][I], someFloats<SOME>(a.sum[u] + chunk + C));
  }
}
template <class T, int BLOCKS> WICK_FN void addBlocks(const uint8_t* w, const Prepared& a, int64_t chunk, RowSum& to) {
  constexpr int COUNT = BLOCKS * T::chunks;
  for (int at = 0; at < BLOCKS * T::bytes; at += 64) __builtin_prefetch(w + 2048 + at);
  Factors f;
  FactorsOf<T, BLOCKS>::read(w, f);
  addFour<T, 0, COUNT>(w, a, chunk, f, to);
  if constexpr (COUNT > 4) addFour<T, 4, COUNT>(w, a, chunk, f, to);
}
// The product of a row of weights and a row of activations. Several rows at a time share loads of activations, but were
// slower: what is kept of them meanwhile leaves too few registers.
template <class T> WICK_FN float rowDot(const uint8_t* w, const Prepared& a, int64_t chunks) {
  constexpr int BLOCKS = 8 / T::chunks;
  RowSum sum = {};
  int64_t c = 0;
  for (; c + 8 <= chunks; c += 8, w += BLOCKS * T::bytes) addBlocks<T, BLOCKS>(w, a, c, sum);
  if constexpr (BLOCKS > 1)
    for (; c < chunks; c += T::chunks, w += T::bytes) addBlocks<T, 1>(w, a, c, sum);
  return vaddvq_f32(T::minima ? vsubq_f32(sum.acc, sum.taken) : sum.acc);
}
// ---- many rows of activations ----
// Up to how many they are multiplied one by one: without dot products of four bytes always.
#if defined(__ARM_FEATURE_DOTPROD)
constexpr int64_t ROW_BY_ROW = wick::LONE_ROWS;
#else
constexpr int64_t ROW_BY_ROW = INT64_MAX;
#endif
template <class T>
void rowByRow(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out,
              int64_t pitch) {
  const int64_t chunks = a.n / 32;
  for (int64_t from = 0; from < m; from += wick::LONE_ROWS) {
    const int64_t some = m - from < wick::LONE_ROWS ? m - from : wick::LONE_ROWS;
    int32_t* room =
        static_cast<int32_t*>(scratch(wick::SCRATCH_A, wick::LONE_ROWS * PREPARED_WORDS * chunks * sizeof(int32_t)));
    Prepared of[wick::LONE_ROWS];
    for (int64_t k = 0; k < some; k++) of[k] = prepared<T>(a.from(from + k), room + k * PREPARED_WORDS * chunks);
    for (int64_t r = 0; r < rows; r++)  // weights stay in the nearest cache while rows of activations go by
      for (int64_t k = 0; k < some; k++) out[(from + k) * pitch + r] = rowDot<T>(w + r * rowBytes, of[k], chunks);
  }
}
#if defined(__ARM_FEATURE_DOTPROD)
#if defined(__ARM_FEATURE_MATMUL_INT8)
// An instruction multiplies two rows by two: eight values of each lie side by side, eight after eight.
constexpr int PAIRED = 2;
// Values of four rows of weights from row `at` on: `to` has eight values of every row of the strip, then the next eight.
WICK_FN void putEights(const Ints (&values)[4], int32_t* to, int64_t at) {
  for (int r = 0; r < 4; r++)
    for (int e = 0; e < 4; e++)
      memcpy(to + 16 * e + 2 * (at + r), reinterpret_cast<const int32_t*>(&values[r]) + 2 * e, 8);
}
// Sums of the products of COUNT values of eight rows of weights and C rows of activations.
template <int C, int COUNT>
WICK_FN void wholeProducts(const int32_t* lanes, const int8_t* x, int64_t row, const float32x4_t (&)[C][2],
                           float32x4_t (&to)[C][2]) {
  constexpr int PAIRS = (C + 1) / 2;
  int32x4_t sum[PAIRS][4];
  WICK_EACH(PAIRS) sum[u][0] = sum[u][1] = sum[u][2] = sum[u][3] = vdupq_n_s32(0);
#pragma GCC unroll 4
  for (int e = 0; e < COUNT / 8; e++) {
    int8x16_t w[4];
    WICK_EACH(4) w[u] = vreinterpretq_s8_s32(vld1q_s32(lanes + 16 * e + 4 * u));
    WICK_EACH(PAIRS) {
      const int8x16_t values = vld1q_s8(x + 2 * u * row + 16 * e);
#pragma GCC unroll 4
      for (int p = 0; p < 4; p++) sum[u][p] = vmmlaq_s32(sum[u][p], w[p], values);
    }
  }
  WICK_EACH(C) {  // of two rows of weights and two of activations in each
    const int32x4_t* of = sum[u / 2];
    to[u][0] = vcvtq_f32_s32(u % 2 ? vuzp2q_s32(of[0], of[1]) : vuzp1q_s32(of[0], of[1]));
    to[u][1] = vcvtq_f32_s32(u % 2 ? vuzp2q_s32(of[2], of[3]) : vuzp1q_s32(of[2], of[3]));
  }
}
#else
constexpr int PAIRED = 1;
// Loaded afresh for every sum: copying a register would take the arithmetic units' time. The load names what is summed
// up, which keeps the compiler from sharing one copy.
alignas(16) const int32_t SHIFTS[4] = {SHIFT_BITS, SHIFT_BITS, SHIFT_BITS, SHIFT_BITS};
WICK_FN int32x4_t freshShift(float32x4_t of) {
  int32x4_t v;
  asm("ldr %q0, %1" : "=w"(v) : "m"(SHIFTS), "w"(of));
  return v;
}
template <int C, int L> WICK_FN void addLane(const int32_t* lanes, const int8x16_t (&x)[C], int32x4_t (&sum)[C][2]) {
  const int8x16_t w[2] = {vreinterpretq_s8_s32(vld1q_s32(lanes + 8 * L)),
                          vreinterpretq_s8_s32(vld1q_s32(lanes + 8 * L + 4))};
  WICK_EACH(C) {
    sum[u][0] = vdotq_laneq_s32(sum[u][0], w[0], x[u], L);
    sum[u][1] = vdotq_laneq_s32(sum[u][1], w[1], x[u], L);
  }
}
// Sums of the products of COUNT values of eight rows of weights and C rows of activations.
template <int C, int COUNT>
WICK_FN void wholeProducts(const int32_t* lanes, const int8_t* x, int64_t row, const float32x4_t (&of)[C][2],
                           float32x4_t (&to)[C][2]) {
  int32x4_t sum[C][2];
  WICK_EACH(C) sum[u][0] = freshShift(of[u][0]), sum[u][1] = freshShift(of[u][1]);
#pragma GCC unroll 2
  for (int q = 0; q < COUNT / 16; q++, lanes += 32, x += 16) {
    int8x16_t values[C];
    WICK_EACH(C) values[u] = vld1q_s8(x + u * row);
    addLane<C, 0>(lanes, values, sum);
    addLane<C, 1>(lanes, values, sum);
    addLane<C, 2>(lanes, values, sum);
    addLane<C, 3>(lanes, values, sum);
  }
  WICK_EACH(C) to[u][0] = withoutShift(sum[u][0]), to[u][1] = withoutShift(sum[u][1]);
}
#endif
// Eight rows of weights, of which `lanes`, `scale` and `minimum` are laid out as Strip says, against C rows of activations.
template <int C, int PARTS>
WICK_FN void dotTile(const int32_t* lanes, const float* scale, const float* minimum, const Rounded& a,
                     float (&out)[C][8]) {
  const int64_t row = a.n * 2, chunks = a.n / 32;  // 2 bytes a value are set apart for a row
  const int8_t* x = reinterpret_cast<const int8_t*>(a.wide);
  float32x4_t acc[C][2];
  WICK_EACH(C) acc[u][0] = acc[u][1] = vdupq_n_f32(0);
  for (int64_t i = 0; i < chunks * PARTS; i++, scale += 8) {
    float32x4_t products[C][2];
    wholeProducts<C, 32 / PARTS>(lanes, x, row, acc, products);
    lanes += 64 / PARTS, x += 32 / PARTS * PAIRED;
    const float* scales = a.scale + i / PARTS;
    const float32x4_t d[2] = {vld1q_f32(scale), vld1q_f32(scale + 4)};
    WICK_EACH(C) {
      acc[u][0] = vfmaq_n_f32(acc[u][0], vmulq_f32(products[u][0], d[0]), scales[u * chunks]);
      acc[u][1] = vfmaq_n_f32(acc[u][1], vmulq_f32(products[u][1], d[1]), scales[u * chunks]);
    }
    if (!minimum) continue;
    const float* sums = a.sum + i / PARTS + i % PARTS * chunks;
    const float32x4_t m[2] = {vld1q_f32(minimum + 8 * i), vld1q_f32(minimum + 8 * i + 4)};
    WICK_EACH(C) {
      const float* of = sums + u * 2 * chunks;
      const float all = PARTS == 2 ? of[0] : of[0] + of[chunks];
      acc[u][0] = vfmsq_n_f32(acc[u][0], m[0], all);
      acc[u][1] = vfmsq_n_f32(acc[u][1], m[1], all);
    }
  }
  WICK_EACH(C) vst1q_f32(out[u], acc[u][0]), vst1q_f32(out[u] + 4, acc[u][1]);
}
#endif

// ---- activations ----
// 32 values, rounded to whole numbers after they were multiplied by `inverse`; the sums of both halves.
WICK_FN void roundChunk(const float* x, float inverse, int8_t* q, int32_t (&sums)[2]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; h++) {
    int32x4_t v[4];
    WICK_EACH(4) v[u] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * h + 4 * u), inverse));
    sums[h] = vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3])));
    const int16x8_t low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1])),
                    high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    vst1q_s8(q + 16 * h, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
}
// The bits of the largest magnitude of 32 values.
WICK_FN uint32_t largestOf(const float* x) {
  uint32x4_t most[2] = {};
  WICK_EACH(8) most[u % 2] = vmaxq_u32(most[u % 2], vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * u))));
  return vmaxvq_u32(vmaxq_u32(most[0], most[1]));
}
// As the instruction set's table says; nothing here reads activations in blocks.
void roundRow(const float* x, const Rounded& to, int64_t row) {
  const int64_t chunks = to.n / 32;
  const Rounded of = to.from(row);
  int8_t* q = const_cast<int8_t*>(of.q);
  float *scale = const_cast<float*>(of.scale), *sum = const_cast<float*>(of.sum);
  for (int64_t c = 0; c < chunks; c++, x += 32, q += 32) {
    const uint32_t largest = largestOf(x);
    const float most = readAs<float>(&largest), inverse = 127 / most;
    const bool finite = largest < 0x7f800000u;
    scale[c] = finite ? most / 127 : __builtin_nanf("");
    int32_t sums[2];
    // Zeros where nothing is finite, or so small that its inverse is not.
    static const float NOTHING[32] = {};
    const bool zeros = !finite || !(inverse < __builtin_inff());
    roundChunk(zeros ? NOTHING : x, zeros ? 0 : inverse, q, sums);
    for (int h = 0; h < 2; h++) sum[h * chunks + c] = scale[c] * (float)sums[h];
#if defined(__ARM_FEATURE_DOTPROD)
    int8_t* wide = reinterpret_cast<int8_t*>(const_cast<int16_t*>(to.from(row - row % PAIRED).wide));
    constexpr int RUN = PAIRED == 2 ? 8 : 32;
    for (int e = 0; e < 32; e += RUN) memcpy(wide + (32 * c + e) * PAIRED + row % PAIRED * RUN, q + e, RUN);
#else
    for (int j = 0; j < 32; j++) const_cast<int16_t*>(of.wide)[32 * c + j] = q[j];
#endif
  }
}
