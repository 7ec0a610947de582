// A convolution's pictures as columns of a product, unrolled into panels: a row for every channel and tap, a column for
// every position of the result. Included by matmul.cpp inside its unnamed namespace.
using wick::Pictures;

// Neighbouring positions as a vector: where the first tap reads for each.
template <int N> struct Positions {
  alignas(64) int32_t y[N], x[N];
  int64_t place[N];
  bool ordered;  // each further on in memory than the one before
};
// What a tap reads for them: nothing, neighbours in memory, what lies within two vectors of it, or any elements.
enum Reach : int { NOTHING, RUN, NEAR, SCATTERED };
template <int N> struct Reads {
  alignas(64) int32_t from[N];  // NEAR: after `first`
  int64_t first, tap;
  uint32_t lanes, span;  // lanes that lie within the picture, and how far apart their elements are
  Reach reach;
};

// Vectors of the n columns from j on; what fills up the last ones lies outside of every picture.
template <int N> void locate(const Pictures& p, int64_t j, int64_t n, int vectors, Positions<N>* to) {
  int64_t b = j / (p.h * p.w), y = j / p.w % p.h, x = j % p.w;
  for (int i = 0; i < vectors * N; i++) {
    Positions<N>& at = to[i / N];
    const int lane = i % N;
    const int64_t iy = y * p.sh - p.ph, ix = x * p.sw - p.pw;
    at.place[lane] = b * p.picture + iy * p.row + ix * p.column;
    at.ordered = lane == 0 || (at.ordered && (i >= n || at.place[lane] > at.place[lane - 1]));
    at.y[lane] = i < n ? (int32_t)iy : INT32_MIN / 2;
    at.x[lane] = (int32_t)ix;
    if (++x < p.w) continue;
    x = 0;
    if (++y < p.h) continue;
    y = 0;
    b++;
  }
}

template <int N> WICK_FN uint32_t lanesInside(const Pictures& p, const Positions<N>& at, int32_t dy, int32_t dx) {
#if defined(WICK_ISA_AVX512)
  if constexpr (N == 16) {
    const __m512i y = _mm512_add_epi32(_mm512_load_si512(at.y), _mm512_set1_epi32(dy));
    const __m512i x = _mm512_add_epi32(_mm512_load_si512(at.x), _mm512_set1_epi32(dx));
    return _mm512_mask_cmplt_epu32_mask(_mm512_cmplt_epu32_mask(y, _mm512_set1_epi32((int32_t)p.H)), x,
                                        _mm512_set1_epi32((int32_t)p.W));
  }
#endif
  uint32_t lanes = 0;
  for (int i = 0; i < N; i++)
    lanes |= (uint32_t)((uint32_t)(at.y[i] + dy) < (uint32_t)p.H && (uint32_t)(at.x[i] + dx) < (uint32_t)p.W) << i;
  return lanes;
}

template <int N> WICK_FN void aim(const Pictures& p, const Positions<N>& at, int64_t dy, int64_t dx, Reads<N>& to) {
  to.lanes = lanesInside(p, at, (int32_t)dy, (int32_t)dx);
  to.tap = dy * p.row + dx * p.column;
  to.first = at.place[0] + to.tap;
  to.reach = to.lanes ? SCATTERED : NOTHING;
  if (!to.lanes || !at.ordered) return;
  const int64_t low = at.place[__builtin_ctz(to.lanes)], far = at.place[31 - __builtin_clz(to.lanes)] - low;
  to.first = low + to.tap;
  if (far >= 2 * N) return;
  to.span = (uint32_t)far;
  to.reach = to.lanes == (1u << N) - 1 && far == N - 1 ? RUN : NEAR;
  for (int i = 0; i < N; i++) to.from[i] = (int32_t)(at.place[i] - low);
}

// A vector of a plane's elements, zeros where it has none.
template <class S, int N> WICK_FN auto take(const S* plane, const Positions<N>& at, const Reads<N>& r) {
  if (r.reach == RUN) return load(plane + r.first);
#if defined(WICK_ISA_AVX512)
  if constexpr (Same<S, float>::value)
    if (r.reach == NEAR) {
      const uint32_t read = 2u * (1u << r.span) - 1;
      const __m512 low = _mm512_maskz_loadu_ps((__mmask16)read, plane + r.first);
      const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(read >> 16), plane + r.first + 16);
      return F((F::R)_mm512_maskz_permutex2var_ps((__mmask16)r.lanes, low, _mm512_load_si512(r.from), high));
    }
#endif
  S some[N] = {};
  for (int i = 0; i < N; i++)
    if (r.lanes >> i & 1) some[i] = plane[at.place[i] + r.tap];
  return load(some);
}

// Panels of W of the n columns from j on, rows k0 to k0 + depth, one panel after another in `to`.
template <class S, class E, int W, int MOST>
void unrollPanels(const Pictures& p, int64_t j, int64_t n, int64_t k0, int64_t depth, E* to) {
  constexpr int N = Vec<E>::N, EACH = W / N;
  Positions<N> at[MOST / N];
  Reads<N> reads[MOST / N];
  const int vectors = (int)((n + W - 1) / W) * EACH;
  locate(p, j, n, vectors, at);
  const S* data = reinterpret_cast<const S*>(p.data);
  const int64_t taps = p.kh * p.kw;
  for (int64_t t = 0; t < taps; t++) {
    for (int v = 0; v < vectors; v++) aim(p, at[v], t / p.kw * p.dh, t % p.kw * p.dw, reads[v]);
    for (int64_t c = (k0 - t + taps - 1) / taps; c * taps + t < k0 + depth; c++) {
      const S* plane = data + c * p.channel;
      E* row = to + (c * taps + t - k0) * W;
      for (int v = 0; v < vectors; v++) {
        E* place = row + v / EACH * (W * depth) + v % EACH * N;
        // Channels are far apart; later taps find what the first one read in the cache.
        if (t == 0) __builtin_prefetch(plane + 4 * p.channel + reads[v].first);
        if (reads[v].reach == NOTHING) Vec<E>(E(0)).store(place);
        else Vec<E>(take(plane, at[v], reads[v])).store(place);
      }
    }
  }
}
