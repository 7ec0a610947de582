// The register tile, and a packed block of A times packed panels of B. Included by matmul.cpp after matmul-panels.h.

#if defined(WICK_ISA_NEON)
// The multiply takes one factor from a lane; the lane must be a constant, hence the templates.
template <int L> WICK_FN F madLane(F acc, F b, F a) {
  return F((F::R)vfmaq_laneq_f32((float32x4_t)acc.r, (float32x4_t)b.r, (float32x4_t)a.r, L));
}
template <int L> WICK_FN D madLane(D acc, D b, D a) {
  return D((D::R)vfmaq_laneq_f64((float64x2_t)acc.r, (float64x2_t)b.r, (float64x2_t)a.r, L));
}
template <class V, int N, int L> WICK_FN void madRow(V (&acc)[N], const V (&b)[N], V a) {
#pragma GCC unroll 4
  for (int j = 0; j < N; j++) acc[j] = madLane<L>(acc[j], b[j], a);
}
template <int R, int N> WICK_FN void step(F (&acc)[R][N], const F (&b)[N], const float* a) {
#pragma GCC unroll 4
  for (int i = 0; i < R; i += 4) {
    F av((F::R)vld1q_f32(a + i));
    madRow<F, N, 0>(acc[i], b, av);
    madRow<F, N, 1>(acc[i + 1], b, av);
    madRow<F, N, 2>(acc[i + 2], b, av);
    madRow<F, N, 3>(acc[i + 3], b, av);
  }
}
template <int R, int N> WICK_FN void step(D (&acc)[R][N], const D (&b)[N], const double* a) {
#pragma GCC unroll 4
  for (int i = 0; i < R; i += 2) {
    D av((D::R)vld1q_f64(a + i));
    madRow<D, N, 0>(acc[i], b, av);
    madRow<D, N, 1>(acc[i + 1], b, av);
  }
}
#else
template <class V, class E, int R, int N> WICK_FN void step(V (&acc)[R][N], const V (&b)[N], const E* a) {
#pragma GCC unroll 16
  for (int i = 0; i < R; i++) {
    V s(a[i]);
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) acc[i][j] = mad(s, b[j], acc[i][j]);
  }
}
#endif

// c[R][columns] (+)= the first R rows of a panel * the first N vectors of b panel. `row` is the distance of rows in c.
// What is needed later comes from further away than a core's own cache: lines of c, and `ahead` elements of what is read
// `next`. They are asked for a few at a time, since those that are asked for at once keep the panels waiting behind them.
constexpr int64_t STEPS = 8;  // between two requests
template <int R, int N, class E>
WICK_FN void tile(int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add, const E* next, int64_t ahead) {
  typedef Vec<E> V;
  constexpr int ROWS = Tile<E>::ROWS, W = Tile<E>::VECTORS * V::N, LINE = 64 / sizeof(E);
  V acc[R][N];
#pragma GCC unroll 16
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) acc[i][j] = V(E(0));
  const int64_t lines = ahead * STEPS / depth / LINE + 1;
  const E* const nextEnd = next + ahead;
  int r = 0;
  for (int64_t k = 0; k < depth; k += STEPS, r++) {
    const E* const end = b + (depth - k < STEPS ? depth - k : STEPS) * W;
    do {
      V bv[N];
#pragma GCC unroll 4
      for (int j = 0; j < N; j++) bv[j] = V::load(b + j * V::N);
      step(acc, bv, a);
      a += ROWS, b += W;
    } while (b != end);
    if (r < R)
#pragma GCC unroll 4
      for (int j = 0; j < N * V::N; j += LINE) __builtin_prefetch(c + r * row + j, 0, 2);
    for (int64_t q = 0; q < lines && next < nextEnd; q++, next += LINE) __builtin_prefetch(next, 0, 2);
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) {
      E* p = c + i * row + j * V::N;
      V v = acc[i][j];
      if (add) v = V::load(p) + v;
      v.store(p);
    }
}

template <int R, int N, class E>
WICK_FN void narrowest(int64_t vectors, int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add,
                       const E* next, int64_t ahead) {
  if constexpr (N > 1)
    if (vectors < N) return narrowest<R, N - 1>(vectors, depth, a, b, c, row, add, next, ahead);
  tile<R, N>(depth, a, b, c, row, add, next, ahead);
}
// The same with as few rows as `rows` need, of 4, 8 and all: the last rows of a matrix seldom fill a tile.
template <class E>
WICK_FN void smallest(int64_t rows, int64_t vectors, int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add,
                      const E* next, int64_t ahead) {
  constexpr int R = Tile<E>::ROWS, N = Tile<E>::VECTORS;
  if constexpr (R > 4)
    if (rows <= 4) return narrowest<4, N>(vectors, depth, a, b, c, row, add, next, ahead);
  if constexpr (R > 8)
    if (rows <= 8) return narrowest<8, N>(vectors, depth, a, b, c, row, add, next, ahead);
  narrowest<R, N>(vectors, depth, a, b, c, row, add, next, ahead);
}

// What the next product reads, in as many pieces as this one has tiles.
class Pieces {
  const char *at[2], *end[2];
  int64_t each;

 public:
  Pieces(const wick::Later (&later)[2], int64_t tiles) {
    constexpr int64_t LINE = 64;
    each = ((later[0].bytes + later[1].bytes) / tiles / LINE + 1) * LINE;
    for (int i = 0; i < 2; i++) at[i] = later[i].data, end[i] = at[i] + later[i].bytes;
  }
  const char* next(int64_t* bytes) {
    const int i = at[0] < end[0] ? 0 : 1;
    const char* const from = at[i];
    *bytes = end[i] - from < each ? end[i] - from : each;
    at[i] += *bytes;
    return from;
  }
};

// A packed block times packed panels into c of E, rows `row` apart and columns adjacent. Panels that are shared come
// from further away than a core's own cache: the next one is asked for while this one is multiplied.
template <class E>
void blockTimesPanels(int64_t m, int64_t n, int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add,
                      bool shared, Pieces* later = nullptr) {
  constexpr int R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N, LINE = 64 / sizeof(E);
  const int64_t tiles = (m + R - 1) / R, ahead = shared ? (depth * W / LINE + tiles - 1) / tiles * LINE : 0;
  E edge[R * W];
  for (int64_t j = 0; j < n; j += W) {
    const int64_t columns = n - j < W ? n - j : W;
    for (int64_t i = 0; i < m; i += R) {
      const E* ap = a + i * depth;
      const E* bp = b + j * depth;
      const int64_t rows = m - i < R ? m - i : R;
      // The last columns take a narrower tile; what does not fill its vectors or its rows goes through a copy.
      const bool whole = rows == R && columns % Vec<E>::N == 0;
      E* to = whole ? c + i * row + j : edge;
      const int64_t step = whole ? row : W;
      const bool adds = whole && add;
      const int64_t vectors = (columns + Vec<E>::N - 1) / Vec<E>::N;
      const E* next = bp + W * depth + i / R * ahead;
      int64_t asked = j + W < n ? ahead : 0;
      if (later) {
        next = reinterpret_cast<const E*>(later->next(&asked));
        asked /= (int64_t)sizeof(E);
      }
      smallest(rows, vectors, depth, ap, bp, to, step, adds, next, asked);
      if (whole) continue;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t q = 0; q < columns; q++) {
          E* p = c + (i + r) * row + j + q;
          *p = add ? *p + edge[r * W + q] : edge[r * W + q];
        }
    }
  }
}
