// The searches behind ggml's blocks: scales, and scales with minima, that leave the least error, for eight groups of
// values at a time. Included after isa.h inside an unnamed namespace.

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
