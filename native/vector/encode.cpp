// Floats to ggml's blocks, byte for byte as src/base/blocks does it, which says what each search is after. Groups of
// values are independent of one another while the sums within one are not, so eight groups share a vector, a lane each.
#include "vector/isa.h"

namespace {

#include "blocks.h"

typedef float Eight __attribute__((vector_size(32)));
typedef int32_t Choice __attribute__((vector_size(32)));
constexpr int LANES = 8, BLOCK = 256;
constexpr float EPSILON = 1e-15f;
constexpr float MAGIC = 12582912;  // 1.5 * 2^23: adding it rounds to a whole number, ties to even

inline Eight all(float x) { return Eight{} + x; }
inline Eight pick(Choice m, Eight a, Eight b) { return (Eight)(((Choice)a & m) | ((Choice)b & ~m)); }
inline Eight magnitude(Eight x) { return (Eight)((Choice)x & 0x7fffffff); }
inline Eight nearest(Eight x) { return (x + MAGIC) - MAGIC; }
inline Eight clamp(Eight x, float lo, float hi) {
  x = pick(x > all(hi), all(hi), x);
  return pick(x < all(lo), all(lo), x);
}
inline float nearest(float x) { return (x + MAGIC) - MAGIC; }
inline float clamp(float x, float lo, float hi) { return x > hi ? hi : x < lo ? lo : x; }
inline uint8_t byteOf(float x) { return (uint8_t)(int32_t)x; }

inline uint16_t f16Bits(float v) {
  if (v != v) return 0x7fff;
#if defined(__aarch64__)
  const __fp16 h = (__fp16)v;
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return bits;
#elif defined(__F16C__)
  return _cvtss_sh(v, 0);
#else
  uint32_t word;
  memcpy(&word, &v, 4);
  const uint32_t sign = word >> 16 & 0x8000;
  uint32_t a = word & 0x7fffffff;
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000) {  // adding a half rounds to whole steps of the small numbers
    const float shifted = __builtin_fabsf(v) + 0.5f;
    memcpy(&a, &shifted, 4);
    return (uint16_t)(sign | (a - 0x3f000000));
  }
  return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13);
#endif
}
inline void putF16(uint8_t* p, float v) {
  const uint16_t bits = f16Bits(v);
  memcpy(p, &bits, 2);
}

// Lane l takes n values from x[l * n] on.
void spread(const float* x, int n, Eight* out) {
  for (int l = 0; l < LANES; l++)
    for (int i = 0; i < n; i++) out[i][l] = x[l * n + i];
}
void collect(const Eight* v, int n, uint8_t* out) {
  for (int l = 0; l < LANES; l++)
    for (int i = 0; i < n; i++) out[l * n + i] = byteOf(v[i][l]);
}

struct Steps {
  float from, by;
  int count;
  bool magnitude;
};
constexpr Steps IMPORTANT = {-0.9f, 0.05f, 36, false};

Eight errorOf(const Eight* x, const Eight* w, int n, const Eight* l, Eight scale, Eight base, bool byMagnitude) {
  Eight sum = {};
  for (int i = 0; i < n; i++) {
    const Eight diff = scale * l[i] + base - x[i];
    sum += w[i] * (byMagnitude ? magnitude(diff) : diff * diff);
  }
  return sum;
}

// x ~ scale * level - minimum, levels 0 to top.
Eight affine(const Eight* x, const Eight* w, int n, float top, Steps steps, Eight* levels, Eight* minimum) {
  Eight low = x[0], high = x[0], sumW = w[0], sumX = sumW * x[0];
  for (int i = 1; i < n; i++) {
    low = pick(x[i] < low, x[i], low);
    high = pick(x[i] > high, x[i], high);
    sumW += w[i];
    sumX += w[i] * x[i];
  }
  low = pick(low > all(0), all(0), low);
  const Choice flat = high <= low;
  const Eight flatLow = low;
  Eight inverse = top / (high - low), scale = 1 / inverse, candidate[32];
  for (int i = 0; i < n; i++) levels[i] = clamp(nearest(inverse * (x[i] - low)), 0, top);
  Eight best = errorOf(x, w, n, levels, scale, low, steps.magnitude);
  for (int step = 0; step <= steps.count; step++) {
    inverse = (steps.from + steps.by * (float)step + top) / (high - low);
    Eight sumL = {}, sumL2 = {}, sumXL = {};
    for (int i = 0; i < n; i++) {
      const Eight l = candidate[i] = clamp(nearest(inverse * (x[i] - low)), 0, top), wl = w[i] * l;
      sumL += wl;
      sumL2 += wl * l;
      sumXL += wl * x[i];
    }
    const Eight det = sumW * sumL2 - sumL * sumL;
    Eight s = (sumW * sumXL - sumX * sumL) / det, base = (sumL2 * sumX - sumL * sumXL) / det;
    const Choice above = base > all(0);
    base = pick(above, all(0), base);
    s = pick(above, sumXL / sumL2, s);
    const Eight error = errorOf(x, w, n, candidate, s, base, steps.magnitude);
    const Choice better = (det > all(0)) & (error < best);
    for (int i = 0; i < n; i++) levels[i] = pick(better, candidate[i], levels[i]);
    best = pick(better, error, best);
    scale = pick(better, s, scale);
    low = pick(better, base, low);
  }
  for (int i = 0; i < n; i++) levels[i] = pick(flat, all(0), levels[i]);
  *minimum = -pick(flat, flatLow, low);
  return pick(flat, all(0), scale);
}

Eight extremeOf(const Eight* x, int n) {
  Eight best = {};
  for (int i = 0; i < n; i++) best = pick(magnitude(x[i]) > magnitude(best), x[i], best);
  return pick(magnitude(best) < all(EPSILON), all(0), best);
}

// x ~ scale * (level - half); weights are the squares of the values where none are given.
Eight symmetric(const Eight* x, const Eight* w, int n, float half, Eight* levels) {
  const Eight extreme = extremeOf(x, n);
  Eight weights[32], scale = {}, best = {}, candidate[32];
  for (int i = 0; i < n; i++) weights[i] = w ? w[i] : x[i] * x[i];
  // The first try stands whatever it is worth.
  for (int at = -10; at <= 9; at++) {
    if (at == 0) continue;
    const bool first = at == -10;
    const Eight inverse = -(first ? all(half) : all(half + 0.1f * (float)at)) / extreme;
    Eight lx = {}, l2 = {};
    for (int i = 0; i < n; i++) {
      const Eight l = candidate[i] = clamp(nearest(inverse * x[i]), -half, half - 1);
      lx += weights[i] * x[i] * l;
      l2 += weights[i] * l * l;
    }
    const Choice some = l2 > all(0), better = first ? Choice{} - 1 : some & (lx * lx > best * l2);
    for (int i = 0; i < n; i++) levels[i] = pick(better, candidate[i] + half, levels[i]);
    scale = pick(better, pick(some, lx / l2, all(0)), scale);
    best = pick(better, scale * lx, best);
  }
  const Choice none = extreme == all(0);
  for (int i = 0; i < n; i++) levels[i] = pick(none, all(0), levels[i]);
  return pick(none, all(0), scale);
}

struct Fit {
  float lx, l2;
};
// Moves one level after another where that lowers the error, up to five rounds.
template <class Limit>
void refine(const float* x, const float* w, int n, Fit& fit, float* l, bool squares, Limit limit) {
  for (int round = 0; round < 5; round++) {
    bool changed = false;
    for (int i = 0; i < n; i++) {
      float lx = fit.lx - w[i] * x[i] * l[i], l2 = fit.l2 - w[i] * l[i] * l[i];
      if (!(lx > 0) || (squares && !(l2 > 0))) continue;
      const float moved = limit(nearest(x[i] * l2 / lx));
      if (moved == l[i]) continue;
      lx += w[i] * x[i] * moved;
      l2 += w[i] * moved * moved;
      if (l2 > 0 && lx * lx * fit.l2 > fit.lx * fit.lx * l2) {
        l[i] = moved;
        fit = {lx, l2};
        changed = true;
      }
    }
    if (!changed) return;
  }
}
Fit fitOf(const float* x, const float* w, int n, const float* l) {
  Fit fit = {0, 0};
  for (int i = 0; i < n; i++) {
    fit.lx += w[i] * x[i] * l[i];
    fit.l2 += w[i] * l[i] * l[i];
  }
  return fit;
}

// As symmetric for 16 values, from one scale whose levels are then moved one by one.
float symmetricByMoves(const float* x, float half, uint8_t* levels) {
  float extreme = 0, w[16], l[16];
  for (int i = 0; i < 16; i++)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  memset(levels, 0, 16);
  if (__builtin_fabsf(extreme) < EPSILON) return 0;
  const float inverse = -half / extreme;
  auto limit = [&](float v) { return clamp(v, -half, half - 1); };
  for (int i = 0; i < 16; i++) {
    w[i] = x[i] * x[i];
    l[i] = limit(nearest(inverse * x[i]));
  }
  Fit fit = fitOf(x, w, 16, l);
  refine(x, w, 16, fit, l, false, limit);
  for (int i = 0; i < 16; i++) levels[i] = byteOf(l[i] + half);
  return fit.l2 > 0 ? fit.lx / fit.l2 : 0;
}

// Scales and minima themselves, none negative: x ~ scale * level, levels 0 to top.
float positive(const float* x, const float* w, int n, float top, uint8_t* levels) {
  float largest = 0, l[16];
  for (int i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  for (int i = 0; i < n; i++) levels[i] = 0;
  if (largest < EPSILON) return 0;
  auto error = [&](float inverse, float limit) {
    const float scale = 1 / inverse;
    float sum = 0;
    for (int i = 0; i < n; i++) {
      const float at = nearest(inverse * x[i]), diff = x[i] - scale * (at > limit ? limit : at);
      sum += w[i] * diff * diff;
    }
    return sum;
  };
  float inverse = top / largest, best = error(inverse, __builtin_inff());
  for (int step = -4; step <= 4; step++) {
    if (step == 0) continue;
    const float other = (0.1f * (float)step + top) / largest, sum = error(other, top);
    if (sum < best) {
      best = sum;
      inverse = other;
    }
  }
  auto limit = [&](float v) { return v > top ? top : v; };
  for (int i = 0; i < n; i++) l[i] = limit(nearest(inverse * x[i]));
  Fit fit = fitOf(x, w, n, l);
  refine(x, w, n, fit, l, true, limit);
  for (int i = 0; i < n; i++) levels[i] = byteOf(l[i]);
  return fit.l2 > 0 ? fit.lx / fit.l2 : 0;
}

// ---- weights of errors ----

float sumOfSquares(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}
// Importance times the root of the mean square plus the value's own.
void importanceWeights(const float* x, const float* w, int n, float sigma2, float* out) {
  for (int i = 0; i < n; i++) out[i] = w[i] * __builtin_sqrtf(sigma2 + x[i] * x[i]);
}
void sumsOf(const float* w, int group, float* sums) {
  for (int j = 0; j < BLOCK / group; j++) {
    sums[j] = 0;
    for (int i = 0; i < group; i++) sums[j] += w[j * group + i];
  }
}

// ---- Q2_K, Q4_K, Q5_K ----

struct AffineForm {
  int group;
  float top, scaleTop, sigma;
  Steps steps;
};
constexpr AffineForm FORM_2 = {16, 3, 15, 1, {-0.5f, 0.1f, 15, true}};
constexpr AffineForm FORM_4 = {32, 15, 63, 2, {-1, 0.1f, 20, false}};
constexpr AffineForm FORM_5 = {32, 31, 63, 2, {-0.5f, 0.1f, 15, false}};

struct AffineBlock {
  uint8_t levels[BLOCK], scales[16], mins[16];
  float d, m;
};
float uniform(const float* v, int n, float top, uint8_t* levels) {
  float largest = 0;
  for (int j = 0; j < n; j++) largest = v[j] > largest ? v[j] : largest;
  const float inverse = largest > 0 ? top / largest : 0;
  for (int j = 0; j < n; j++) {
    const float l = nearest(inverse * v[j]);
    levels[j] = byteOf(l > top ? top : l);
  }
  return largest / top;
}
void plainWeights(const AffineForm& f, const float* x, float* w) {
  for (int g = 0; g < BLOCK; g += f.group) {
    const float mean = f.steps.magnitude ? 0 : __builtin_sqrtf(sumOfSquares(x + g, f.group) / (float)f.group);
    for (int i = g; i < g + f.group; i++)
      w[i] = f.steps.magnitude ? __builtin_fabsf(x[i]) : mean + __builtin_fabsf(x[i]);
  }
}
void searchAffine(const AffineForm& f, const float* x, const float* importance, AffineBlock& b) {
  const int groups = BLOCK / f.group;
  float w[BLOCK], scales[16], mins[16];
  if (importance) importanceWeights(x, importance, BLOCK, f.sigma * sumOfSquares(x, BLOCK) / BLOCK, w);
  else plainWeights(f, x, w);
  for (int j = 0; j < groups; j += LANES) {
    Eight xs[32], ws[32], levels[32], minimum;
    spread(x + j * f.group, f.group, xs);
    spread(w + j * f.group, f.group, ws);
    const Eight scale = affine(xs, ws, f.group, f.top, importance ? IMPORTANT : f.steps, levels, &minimum);
    memcpy(scales + j, &scale, sizeof scale);
    memcpy(mins + j, &minimum, sizeof minimum);
    collect(levels, f.group, b.levels + j * f.group);
  }
  if (importance) {
    float sums[16];
    sumsOf(w, f.group, sums);
    b.d = positive(scales, sums, groups, f.scaleTop, b.scales);
    b.m = positive(mins, sums, groups, f.scaleTop, b.mins);
  } else {
    b.d = uniform(scales, groups, f.scaleTop, b.scales);
    b.m = uniform(mins, groups, f.scaleTop, b.mins);
  }
}
// Levels again, by the factors as they were written.
void settle(const AffineForm& f, const float* x, const uint8_t* d, const uint8_t* m, AffineBlock& b) {
  for (int g = 0; g < BLOCK / f.group; g++) {
    const float scale = f16At(d) * b.scales[g], base = f16At(m) * b.mins[g];
    if (scale == 0) continue;
    for (int i = g * f.group; i < (g + 1) * f.group; i++)
      b.levels[i] = byteOf(clamp(nearest((x[i] + base) / scale), 0, f.top));
  }
}
void packTwoBits(uint8_t* out, const uint8_t* l) {
  for (int half = 0; half < 2; half++, l += 128)
    for (int i = 0; i < 32; i++)
      *out++ = (l[i] & 3) | (l[i + 32] & 3) << 2 | (l[i + 64] & 3) << 4 | (l[i + 96] & 3) << 6;
}
void packNibbles(uint8_t* out, const uint8_t* l) {
  for (int j = 0; j < 4; j++, l += 64)
    for (int i = 0; i < 32; i++) *out++ = (l[i] & 15) | (l[i + 32] & 15) << 4;
}
void sixBitHead(uint8_t* out, const AffineBlock& b) {
  const uint8_t *s = b.scales, *m = b.mins;
  putF16(out, b.d);
  putF16(out + 2, b.m);
  for (int j = 0; j < 4; j++) {
    out[4 + j] = s[j] | (s[j + 4] >> 4) << 6;
    out[8 + j] = m[j] | (m[j + 4] >> 4) << 6;
    out[12 + j] = (s[j + 4] & 15) | (m[j + 4] & 15) << 4;
  }
}
void encodeQ2K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_2, x, w, b);
  for (int j = 0; j < 16; j++) out[j] = b.scales[j] | b.mins[j] << 4;
  putF16(out + 80, b.d);
  putF16(out + 82, b.m);
  settle(FORM_2, x, out + 80, out + 82, b);
  packTwoBits(out + 16, b.levels);
}
void encodeQ4K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_4, x, w, b);
  sixBitHead(out, b);
  settle(FORM_4, x, out, out + 2, b);
  packNibbles(out + 16, b.levels);
}
void encodeQ5K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_5, x, w, b);
  sixBitHead(out, b);
  settle(FORM_5, x, out, out + 2, b);
  for (int i = 0; i < 32; i++) {
    int high = 0;
    for (int j = 0; j < 8; j++) high |= (b.levels[j * 32 + i] >> 4) << j;
    out[16 + i] = (uint8_t)high;
  }
  packNibbles(out + 48, b.levels);
}

// ---- Q3_K, Q6_K, Q8_K ----

// Sixteen groups of sixteen, each with a scale of its own.
void searchSymmetric(const float* x, const float* w, float half, float* scales, uint8_t* levels) {
  for (int j = 0; j < 16; j += LANES) {
    Eight xs[16], ws[16], ls[16];
    spread(x + j * 16, 16, xs);
    if (w) spread(w + j * 16, 16, ws);
    const Eight scale = symmetric(xs, w ? ws : nullptr, 16, half, ls);
    memcpy(scales + j, &scale, sizeof scale);
    collect(ls, 16, levels + j * 16);
  }
}
void levelsBy(const float* x, const float* d, float half, uint8_t* levels) {
  for (int i = 0; i < BLOCK; i++)
    if (d[i / 16] != 0) levels[i] = byteOf(clamp(nearest(x[i] / d[i / 16]), -half, half - 1) + half);
}
float extremeScale(const float* scales) {
  float extreme = 0;
  for (int j = 0; j < 16; j++)
    if (__builtin_fabsf(scales[j]) > __builtin_fabsf(extreme)) extreme = scales[j];
  return extreme;
}
// The scales of Q3_K in six bits each; answers the factor of all.
float scalesInSixBits(const float* scales, const float* sums, uint8_t* levels) {
  if (sums) {
    Eight s[16], w[16], l[16];
    for (int j = 0; j < 16; j++) {
      s[j] = all(scales[j]);
      w[j] = all(sums[j]);
    }
    const float d = symmetric(s, w, 16, 32, l)[0];
    for (int j = 0; j < 16; j++) levels[j] = byteOf(l[j][0]);
    return d;
  }
  const float extreme = extremeScale(scales), inverse = extreme == 0 ? 0 : -32 / extreme;
  for (int j = 0; j < 16; j++) levels[j] = extreme == 0 ? 0 : byteOf(clamp(nearest(inverse * scales[j]), -32, 31) + 32);
  return extreme == 0 ? 0 : 1 / inverse;
}
void encodeQ3K(const float* x, const float* importance, uint8_t* out) {
  uint8_t levels[BLOCK], quantized[16];
  float scales[16], sums[16], w[BLOCK], d[16];
  if (importance) {
    importanceWeights(x, importance, BLOCK, 2 * sumOfSquares(x, BLOCK) / BLOCK, w);
    sumsOf(w, 16, sums);
    searchSymmetric(x, w, 4, scales, levels);
  } else
    for (int j = 0; j < 16; j++) scales[j] = symmetricByMoves(x + j * 16, 4, levels + j * 16);
  const float factor = scalesInSixBits(scales, importance ? sums : nullptr, quantized);
  memset(out, 0, 110);
  for (int j = 0; j < 16; j++) {
    out[96 + (j & 7)] |= (quantized[j] & 15) << (j < 8 ? 0 : 4);
    out[104 + (j & 3)] |= (quantized[j] >> 4) << (2 * (j >> 2));
  }
  putF16(out + 108, factor);
  for (int j = 0; j < 16; j++) d[j] = f16At(out + 108) * (float)(quantized[j] - 32);
  levelsBy(x, d, 4, levels);
  for (int i = 0; i < BLOCK; i++) out[i & 31] |= (levels[i] >> 2) << (i >> 5);
  packTwoBits(out + 32, levels);
}
void encodeQ6K(const float* x, const float* importance, uint8_t* out) {
  uint8_t levels[BLOCK];
  float scales[16], d[16];
  searchSymmetric(x, importance, 32, scales, levels);
  const float extreme = extremeScale(scales);
  memset(out, 0, 210);
  if (__builtin_fabsf(extreme) < EPSILON) return;
  const float inverse = -128 / extreme;
  putF16(out + 208, 1 / inverse);
  for (int j = 0; j < 16; j++) {
    const float l = nearest(inverse * scales[j]);
    out[192 + j] = byteOf(l > 127 ? 127 : l);
    d[j] = f16At(out + 208) * (float)(int8_t)out[192 + j];
  }
  levelsBy(x, d, 32, levels);
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 32; i++) {
      const uint8_t* l = levels + half * 128 + i;
      out[half * 64 + i] = (l[0] & 15) | (l[64] & 15) << 4;
      out[half * 64 + 32 + i] = (l[32] & 15) | (l[96] & 15) << 4;
      out[128 + half * 32 + i] = l[0] >> 4 | (l[32] >> 4) << 2 | (l[64] >> 4) << 4 | (l[96] >> 4) << 6;
    }
}
void encodeQ8K(const float* x, const float*, uint8_t* out) {
  float extreme = 0;
  int16_t sums[16] = {};
  memset(out, 0, 292);
  for (int i = 0; i < BLOCK; i++)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  if (extreme == 0) return;
  const float inverse = -127 / extreme, d = 1 / inverse;
  for (int i = 0; i < BLOCK; i++) {
    const float l = nearest(inverse * x[i]);
    const int8_t q = (int8_t)(l > 127 ? 127 : l);
    out[4 + i] = (uint8_t)q;
    sums[i / 16] += q;
  }
  memcpy(out, &d, 4);
  memcpy(out + 260, sums, 32);
}

// ---- IQ4_NL, IQ4_XS ----

constexpr float IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Which value of the table x is nearest to: half way, and where x is NaN, it goes up. The value, or its number.
template <bool NUMBER> inline Eight nearestIq4(Eight x) {
  auto of = [](int i) { return all(NUMBER ? (float)i : IQ4[i]); };
  Eight found = pick(x < all((IQ4[0] + IQ4[1]) / 2), of(0), of(1));
  for (int i = 1; i < 15; i++) found = pick(x >= all((IQ4[i] + IQ4[i + 1]) / 2), of(i + 1), found);
  return found;
}
// The scales of eight groups of 32: the best of fifteen around the one that maps the extreme to the table's end.
Eight scaleOf(const Eight* x, const Eight* w) {
  const Eight extreme = extremeOf(x, 32);
  Eight d = {}, best = {};
  for (int at = -8; at <= 7; at++) {
    const bool first = at == -8;
    const Eight inverse = first ? 1 / (-extreme / IQ4[0]) : all((float)at + IQ4[0]) / extreme;
    Eight qx = {}, q2 = {};
    for (int i = 0; i < 32; i++) {
      const Eight q = nearestIq4<false>(inverse * x[i]), wq = w[i] * q;
      qx += wq * x[i];
      q2 += wq * q;
    }
    const Choice some = q2 > all(0), better = first ? some : some & (qx * qx > best * q2);
    d = pick(better, qx / q2, d);
    best = pick(better, d * qx, best);
  }
  return pick(extreme == all(0), all(0), d);
}
void iq4Scales(const float* x, const float* w, float* scales) {
  Eight xs[32], ws[32];
  spread(x, 32, xs);
  if (w) spread(w, 32, ws);
  else
    for (int i = 0; i < 32; i++) ws[i] = xs[i] * xs[i];
  const Eight d = scaleOf(xs, ws);
  memcpy(scales, &d, sizeof d);
}
void iq4Levels(const float* x, float scale, uint8_t* out) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float l[32];
  for (int i = 0; i < 32; i += LANES) {
    Eight v;
    memcpy(&v, x + i, sizeof v);
    v = nearestIq4<true>(inverse * v);
    memcpy(l + i, &v, sizeof v);
  }
  for (int j = 0; j < 16; j++) out[j] = (uint8_t)((int)l[j] | (int)l[j + 16] << 4);
}
// Eight blocks at a time: `x` holds eight, of which `blocks` are wanted.
void encodeIq4Nl(const float* x, const float* importance, uint8_t* out, int blocks) {
  float w[BLOCK], scales[8];
  if (importance)
    for (int j = 0; j < 8; j++)
      importanceWeights(x + j * 32, importance + j * 32, 32, sumOfSquares(x + j * 32, 32) * (2.0f / 32), w + j * 32);
  iq4Scales(x, importance ? w : nullptr, scales);
  for (int j = 0; j < blocks; j++) {
    putF16(out + j * 18, scales[j]);
    iq4Levels(x + j * 32, scales[j], out + j * 18 + 2);
  }
}
void encodeIq4Xs(const float* x, const float* importance, uint8_t* out) {
  float w[BLOCK], scales[8], extreme = 0;
  if (importance) importanceWeights(x, importance, BLOCK, sumOfSquares(x, BLOCK) * (2.0f / BLOCK), w);
  iq4Scales(x, importance ? w : nullptr, scales);
  for (float s : scales)
    if (__builtin_fabsf(s) > __builtin_fabsf(extreme)) extreme = s;
  const float d = -extreme / 32, inverse = d == 0 ? 0 : 1 / d;
  memset(out, 0, 136);
  putF16(out, d);
  int high = 0;
  for (int j = 0; j < 8; j++) {
    const float l = clamp(nearest(inverse * scales[j]), -32, 31);
    const int code = l == l ? (int)l + 32 : 0;
    iq4Levels(x + j * 32, d * l, out + 8 + j * 16);
    out[4 + j / 2] |= (code & 15) << (4 * (j & 1));
    high |= code >> 4 << (2 * j);
  }
  out[2] = (uint8_t)high;
  out[3] = (uint8_t)(high >> 8);
}

// ---- blocks of 32 without a search ----

float extreme32(const float* x) {
  float best = 0;
  for (int i = 0; i < 32; i++)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(best)) best = x[i];
  return best;
}
float invert(float d) { return d == 0 ? 0 : 1 / d; }
// Fifth bits first where there are any, then nibbles, element j with element j + 16.
void packCodes(uint8_t* out, int bits, const uint8_t* code) {
  uint32_t high = 0;
  uint8_t* nibbles = bits == 5 ? out + 4 : out;
  for (int j = 0; j < 16; j++) {
    nibbles[j] = (code[j] & 15) | (code[j + 16] & 15) << 4;
    high |= (uint32_t)(code[j] >> 4) << j | (uint32_t)(code[j + 16] >> 4) << (j + 16);
  }
  if (bits == 5) memcpy(out, &high, 4);
}
// Compared as floats: the scale of tiny values has no finite inverse, and CPUs make different integers of infinity.
inline uint8_t levelOf(float x, int top) { return x >= (float)top ? (uint8_t)top : x > 0 ? (uint8_t)x : 0; }
void encodeSigned(const float* x, int bits, uint8_t* out) {
  const int half = 1 << (bits - 1);
  const float d = extreme32(x) / (float)-half, id = invert(d);
  uint8_t code[32];
  for (int i = 0; i < 32; i++) code[i] = levelOf(x[i] * id + ((float)half + 0.5f), 2 * half - 1);
  putF16(out, d);
  packCodes(out + 2, bits, code);
}
void encodeOffset(const float* x, int bits, uint8_t* out) {
  float low = __builtin_inff(), high = -__builtin_inff();
  for (int i = 0; i < 32; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const int top = (1 << bits) - 1;
  const float d = (high - low) / (float)top, id = invert(d);
  uint8_t code[32];
  for (int i = 0; i < 32; i++) code[i] = levelOf((x[i] - low) * id + 0.5f, top);
  putF16(out, d);
  putF16(out + 2, low);
  packCodes(out + 4, bits, code);
}
// The same two for eight blocks with importances, whose scales are searched for.
void encodeWeighed(const float* x, const float* w, int bits, bool offset, uint8_t* out, int blocks) {
  Eight xs[32], ws[32], levels[32], minimum;
  uint8_t codes[BLOCK];
  spread(x, 32, xs);
  spread(w, 32, ws);
  const Eight d = offset ? affine(xs, ws, 32, (float)((1 << bits) - 1), IMPORTANT, levels, &minimum)
                         : symmetric(xs, ws, 32, (float)(1 << (bits - 1)), levels);
  collect(levels, 32, codes);
  const int head = offset ? 4 : 2, bytes = head + (bits == 5 ? 20 : 16);
  for (int j = 0; j < blocks; j++, out += bytes) {
    putF16(out, d[j]);
    if (offset) putF16(out + 2, -minimum[j]);
    packCodes(out + head, bits, codes + j * 32);
  }
}
// Values so small that their scale has no inverse become 0.
void encodeEightBits(const float* x, bool withSum, uint8_t* out) {
  const float d = __builtin_fabsf(extreme32(x)) / 127, id = invert(d);
  double sum = 0;
  for (int i = 0; i < 32; i++) {
    const float code = __builtin_roundf(x[i] * id);
    out[(withSum ? 4 : 2) + i] = __builtin_fabsf(code) <= 128 ? (uint8_t)(int)code : 0;
    sum += code;
  }
  putF16(out, d);
  if (withSum) putF16(out + 2, (float)(sum * d));
}

// ---- 4-bit floats ----

constexpr float FP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
uint8_t nearestFp4(float x, float d) {
  int best = 0;
  float error = __builtin_fabsf(FP4_VALUES[0] * d - x);
  for (int i = 1; i < 16; i++) {
    const float other = __builtin_fabsf(FP4_VALUES[i] * d - x);
    if (other < error) {
      best = i;
      error = other;
    }
  }
  return (uint8_t)best;
}
float largestOf(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; i++) largest = __builtin_fabsf(x[i]) > largest ? __builtin_fabsf(x[i]) : largest;
  return largest;
}
void encodeMxfp4(const float* x, const float*, uint8_t* out) {
  const float largest = largestOf(x, 32);
  const int floor2 = largest > 0 ? __builtin_ilogbf(largest) - 2 + 127 : 0, exponent = floor2 > 0 ? floor2 : 0;
  const float d = __builtin_ldexpf(1, exponent - 128);
  out[0] = (uint8_t)exponent;
  for (int j = 0; j < 16; j++) out[1 + j] = nearestFp4(x[j], d) | nearestFp4(x[j + 16], d) << 4;
}
int toUe4m3(float x) {
  if (!(x > 0)) return 0;
  const double v = x < 448 ? x : 448;
  const int exponent = __builtin_ilogb(v) + 7;
  if (exponent <= 0) {
    const int code = (int)__builtin_floor(v * 512 + 0.5);
    return code < 7 ? code : 7;
  }
  const int code = (int)__builtin_floor((v / __builtin_ldexp(1, exponent - 7) - 1) * 8 + 0.5) + (exponent << 3);
  return code < 0x7e ? code : 0x7e;
}
void encodeNvfp4(const float* x, const float*, uint8_t* out) {
  for (int s = 0; s < 4; s++, x += 16) {
    const int code = toUe4m3(largestOf(x, 16) / 6);
    const int exponent = code >> 3, mantissa = code & 7;
    const float d =
        exponent ? __builtin_ldexpf((float)(8 + mantissa), exponent - 11) : __builtin_ldexpf((float)mantissa, -10);
    out[s] = (uint8_t)code;
    for (int j = 0; j < 8; j++) out[4 + s * 8 + j] = nearestFp4(x[j], d) | nearestFp4(x[j + 8], d) << 4;
  }
}

// ---- rows ----

typedef void (*EncodeBlock)(const float* x, const float* importance, uint8_t* out);
template <int VALUES, int BYTES, EncodeBlock ENCODE>
void rowOf(const float* x, int64_t n, const float* importance, uint8_t* out) {
  for (int64_t i = 0; i < n; i += VALUES, out += BYTES) ENCODE(x + i, importance ? importance + i : nullptr, out);
}
void encodeQ8_0(const float* x, const float*, uint8_t* out) { encodeEightBits(x, false, out); }
void encodeQ8_1(const float* x, const float*, uint8_t* out) { encodeEightBits(x, true, out); }

// Blocks of 32 go by eights; what is missing of the last eight is zero.
template <class Encode> void byEights(const float* x, int64_t n, const float* w, Encode encode) {
  for (int64_t i = 0; i < n; i += BLOCK) {
    const int here = (int)(n - i < BLOCK ? n - i : BLOCK);
    float xs[BLOCK] = {}, ws[BLOCK] = {};
    memcpy(xs, x + i, here * sizeof(float));
    if (w) memcpy(ws, w + i, here * sizeof(float));
    encode(xs, w ? ws : nullptr, i / 32, here / 32);
  }
}
void rowIq4Nl(const float* x, int64_t n, const float* importance, uint8_t* out) {
  byEights(x, n, importance, [&](const float* xs, const float* w, int64_t first, int blocks) {
    encodeIq4Nl(xs, w, out + first * 18, blocks);
  });
}
template <int BITS, bool OFFSET> void simpleRow(const float* x, int64_t n, const float* importance, uint8_t* out) {
  constexpr int BYTES = (OFFSET ? 4 : 2) + (BITS == 5 ? 20 : 16);
  if (!importance) {
    for (int64_t i = 0; i < n; i += 32, out += BYTES) (OFFSET ? encodeOffset : encodeSigned)(x + i, BITS, out);
    return;
  }
  const float meanSquare = sumOfSquares(x, n) / (float)n;
  byEights(x, n, importance, [&](const float* xs, float const* w, int64_t first, int blocks) {
    float weights[BLOCK];
    importanceWeights(xs, w, BLOCK, meanSquare, weights);
    encodeWeighed(xs, weights, BITS, OFFSET, out + first * BYTES, blocks);
  });
}

}  // namespace

extern "C" void WICK_EXPORT(wick_encode)(wick::IsaTable* t) {
  t->encodeRow[2] = simpleRow<4, false>;
  t->encodeRow[3] = simpleRow<4, true>;
  t->encodeRow[6] = simpleRow<5, false>;
  t->encodeRow[7] = simpleRow<5, true>;
  t->encodeRow[8] = rowOf<32, 34, encodeQ8_0>;
  t->encodeRow[9] = rowOf<32, 36, encodeQ8_1>;
  t->encodeRow[10] = rowOf<BLOCK, 84, encodeQ2K>;
  t->encodeRow[11] = rowOf<BLOCK, 110, encodeQ3K>;
  t->encodeRow[12] = rowOf<BLOCK, 144, encodeQ4K>;
  t->encodeRow[13] = rowOf<BLOCK, 176, encodeQ5K>;
  t->encodeRow[14] = rowOf<BLOCK, 210, encodeQ6K>;
  t->encodeRow[15] = rowOf<BLOCK, 292, encodeQ8K>;
  t->encodeRow[20] = rowIq4Nl;
  t->encodeRow[23] = rowOf<BLOCK, 136, encodeIq4Xs>;
  t->encodeRow[39] = rowOf<32, 17, encodeMxfp4>;
  t->encodeRow[40] = rowOf<64, 36, encodeNvfp4>;
}
