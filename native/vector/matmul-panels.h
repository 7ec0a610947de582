// Packing: parts of A and B as panels, in the order in which the register tile reads them, whatever their strides and
// their floats. Included by matmul.cpp inside its namespace.

template <class E> WICK_FN E scalarOf(const E* p) { return *p; }
WICK_FN float scalarOf(const bfloat* p) {
  uint32_t b = (uint32_t)p->bits << 16;
  float f;
  __builtin_memcpy(&f, &b, 4);
  return f;
}
WICK_FN float scalarOf(const half* p) {
  half h[F::N] = {*p};
  return load(h).r[0];
}
template <class S, class E> WICK_FN void storeScalar(S* p, E v) {
  if constexpr (Same<S, E>::value) *p = v;
  else {
    S s[F::N];
    store(s, F(v));
    *p = s[0];
  }
}
template <class S, class E> WICK_FN void widenTo(const S* from, E* to, int64_t n) {
  if constexpr (Same<S, E>::value) __builtin_memcpy(to, from, n * sizeof(E));
  else widenRun(from, to, n);
}

// The elements of a factor as they are stored: use(Stored) is called for the type that they have.
template <class T> struct Stored {
  typedef T Element;
  const T* data;
};
template <class S, class Use> WICK_FN void asStored(const Matrix& m, Use&& use) {
  if constexpr (Same<S, float>::value) {
    if (m.dtype == wick::BF16) return use(Stored<bfloat>{reinterpret_cast<const bfloat*>(m.data)});
    if (m.dtype == wick::F16) return use(Stored<half>{reinterpret_cast<const half*>(m.data)});
  }
  use(Stored<S>{reinterpret_cast<const S*>(m.data)});
}

typedef float Four __attribute__((vector_size(16)));
// to[k * R + i] = from[i][k] for four rows i and n values of k.
template <int R> WICK_FN void turnFour(const float* const* from, float* to, int64_t n) {
  [[maybe_unused]] typedef int32_t Pick __attribute__((vector_size(16)));
  const float *p = from[0], *q = from[1], *r = from[2], *s = from[3];
  auto take = [](const float* at) {
    Four v;
    __builtin_memcpy(&v, at, 16);
    return v;
  };
  auto put = [](float* at, Four v) { __builtin_memcpy(at, &v, 16); };
  int64_t k = 0;
  for (; k + 4 <= n; k += 4, to += 4 * R) {
    const Four v0 = take(p + k), v1 = take(q + k), v2 = take(r + k), v3 = take(s + k);
    const Four a = WICK_SHUFFLE(Pick, v0, v2, 0, 4, 1, 5), b = WICK_SHUFFLE(Pick, v0, v2, 2, 6, 3, 7);
    const Four c = WICK_SHUFFLE(Pick, v1, v3, 0, 4, 1, 5), d = WICK_SHUFFLE(Pick, v1, v3, 2, 6, 3, 7);
    put(to, WICK_SHUFFLE(Pick, a, c, 0, 4, 1, 5));
    put(to + R, WICK_SHUFFLE(Pick, a, c, 2, 6, 3, 7));
    put(to + 2 * R, WICK_SHUFFLE(Pick, b, d, 0, 4, 1, 5));
    put(to + 3 * R, WICK_SHUFFLE(Pick, b, d, 2, 6, 3, 7));
  }
  for (; k < n; k++, to += R)
    for (int i = 0; i < 4; i++) to[i] = from[i][k];
}

// The same for two rows.
template <int R> WICK_FN void turnTwo(const float* const* from, float* to, int64_t n) {
  [[maybe_unused]] typedef int32_t Pick __attribute__((vector_size(16)));
  int64_t k = 0;
  for (; k + 4 <= n; k += 4, to += 4 * R) {
    Four p, q;
    __builtin_memcpy(&p, from[0] + k, 16);
    __builtin_memcpy(&q, from[1] + k, 16);
    const Four pairs[2] = {WICK_SHUFFLE(Pick, p, q, 0, 4, 1, 5), WICK_SHUFFLE(Pick, p, q, 2, 6, 3, 7)};
    for (int i = 0; i < 4; i++) __builtin_memcpy(to + i * R, reinterpret_cast<const float*>(pairs) + 2 * i, 8);
  }
  for (; k < n; k++, to += R)
    for (int i = 0; i < 2; i++) to[i] = from[i][k];
}

#if defined(WICK_ISA_AVX512)
// to[k * 14 + i] = from[i * across + k] for 14 rows i and 16 values of k. What is stored beyond a row of 14 is
// overwritten by the next one, except behind the last.
WICK_FN void turnFourteen(const float* from, int64_t across, float* to) {
  __m512 v[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) v[i] = i < 14 ? _mm512_loadu_ps(from + i * across) : _mm512_setzero_ps();
    // Fours of rows and columns are turned within 128 bits, then the fours change places.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
    const __m512 c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44), t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44), t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; k++) {
    const __m512 a = _mm512_shuffle_f32x4(t[k], t[k + 4], 0x88), b = _mm512_shuffle_f32x4(t[k], t[k + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(t[k + 8], t[k + 12], 0x88),
                 d = _mm512_shuffle_f32x4(t[k + 8], t[k + 12], 0xdd);
    v[k] = _mm512_shuffle_f32x4(a, c, 0x88), v[k + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    v[k + 4] = _mm512_shuffle_f32x4(b, d, 0x88), v[k + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int k = 0; k < 15; k++) _mm512_storeu_ps(to + k * 14, v[k]);
  _mm512_mask_storeu_ps(to + 15 * 14, 0x3fff, v[15]);
}
#endif

// One panel: to[k * R + i] = from[i * across + k * along] for i < count (zeros up to R) and k < depth.
template <class S, class E, int R>
void packPanel(const S* from, int64_t across, int64_t along, int64_t count, int64_t depth, E* to) {
  if (across == 1 && count == R) {
    for (int64_t k = 0; k < depth; k++) {
      const S* row = from + k * along;
      if constexpr (Same<S, E>::value) __builtin_memcpy(to + k * R, row, R * sizeof(E));
      else if constexpr (R % F::N == 0)
        for (int i = 0; i < R; i += F::N) load(row + i).store(to + k * R + i);
      else widenRun(row, to + k * R, R);
    }
    return;
  }
  if (along == 1 && sizeof(E) == 4) {
    if constexpr (sizeof(E) == 4) {
      constexpr int64_t STEP = 128;
      float wide[4][STEP];
      int64_t begin = 0;
#if defined(WICK_ISA_AVX512)
      if constexpr (Same<S, E>::value && R == 14)
        if (count == R)
          for (; begin + 16 <= depth; begin += 16) turnFourteen(from + begin, across, to + begin * R);
#endif
      for (int i = 0; i < R; i += 4) {
        int rows = R - i < 4 ? R - i : 4;
        for (int64_t k = begin; k < depth; k += STEP) {
          int64_t n = depth - k < STEP ? depth - k : STEP;
          const float* lines[4];
          for (int j = 0; j < rows; j++) {
            if (i + j >= count) {
              __builtin_memset(wide[j], 0, n * 4);
              lines[j] = wide[j];
            } else if constexpr (Same<S, E>::value) lines[j] = from + (i + j) * across + k;
            else {
              widenRun(from + (i + j) * across + k, wide[j], n);
              lines[j] = wide[j];
            }
          }
          if (rows == 4) turnFour<R>(lines, to + k * R + i, n);
          else if (rows == 2) turnTwo<R>(lines, to + k * R + i, n);
          else
            for (int64_t q = 0; q < n; q++)
              for (int j = 0; j < rows; j++) to[(k + q) * R + i + j] = lines[j][q];
        }
      }
      return;
    }
  }
  for (int64_t k = 0; k < depth; k++)
    for (int i = 0; i < R; i++) to[k * R + i] = i < count ? scalarOf(from + i * across + k * along) : E(0);
}

// Neighbouring panels, one after another in `to`. Rows of the source that a power of two separates would evict each
// other between two panels, so each is read once for all of them.
template <class S, class E, int R>
void packPanels(const S* from, int64_t across, int64_t along, int64_t count, int64_t depth, E* to) {
  if (across != 1) {
    for (int64_t i = 0; i < count; i += R)
      packPanel<S, E, R>(from + i * across, across, along, count - i < R ? count - i : R, depth, to + i * depth);
    return;
  }
  const int64_t whole = count / R * R;
  for (int64_t k = 0; k < depth; k++) {
    const S* row = from + k * along;
    for (int64_t i = 0; i < whole; i += 64 / sizeof(S)) __builtin_prefetch(row + 4 * along + i);
    for (int64_t i = 0; i < whole; i += R) {
      E* panel = to + i * depth + k * R;
      if constexpr (Same<S, E>::value) __builtin_memcpy(panel, row + i, R * sizeof(E));
      else if constexpr (R % F::N == 0)
        for (int j = 0; j < R; j += F::N) load(row + i + j).store(panel + j);
      else widenRun(row + i, panel, R);
    }
  }
  if (whole < count) packPanel<S, E, R>(from + whole, 1, along, count - whole, depth, to + whole * depth);
}

#include "pictures.h"

// The n columns of B from j on, at most GROUP panels, rows k0 to k0 + depth.
template <class S, class E, int W>
void packColumns(const Product& p, int64_t j, int64_t n, int64_t k0, int64_t depth, E* to) {
  if (p.pictures) return unrollPanels<S, E, W, GROUP * W>(*p.pictures, j, n, k0, depth, to);
  asStored<S>(p.b, [&](auto b) {
    packPanels<typename decltype(b)::Element, E, W>(b.data + j * p.b.column + k0 * p.b.row, p.b.column, p.b.row, n,
                                                    depth, to);
  });
}
