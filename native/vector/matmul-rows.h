// Products of few rows at memory speed: nothing of B is packed, and each element is read once. Included by matmul.cpp
// after matmul-tile.h.

// ---- a few rows: each element of B is read once ----
constexpr int FEW = 4;

// The sum of a vector's lanes: halves are added to each other while all of it stays a vector. Lanes that are taken one
// by one, as sumLanes does, keep a tile's sums out of registers while they grow.
template <class E> WICK_FN E sumHalves(Vec<E> v) {
  typedef Raw<typename IntegerOf<sizeof(E)>::type, Vec<E>::N> Pick;
  constexpr int N = Vec<E>::N;
  if constexpr (N == 16) {
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  } else if constexpr (N == 8) {
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 4, 5, 6, 7, 0, 1, 2, 3);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 2, 3, 0, 1, 6, 7, 4, 5);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 1, 0, 3, 2, 5, 4, 7, 6);
  } else if constexpr (N == 4) {
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 2, 3, 0, 1);
    v.r += WICK_SHUFFLE(Pick, v.r, v.r, 1, 0, 3, 2);
  } else v.r += WICK_SHUFFLE(Pick, v.r, v.r, 1, 0);
  return v.r[0];
}

// Loads a vector of B and, if that is asked for, prefetches what lies AHEAD of it. Columns follow each other in memory,
// but each is too short, and the sums between two of them take too long, for the hardware's own prefetcher to see the
// pattern.
template <class S> WICK_FN auto loadOnward(const S* from, bool ask = true) {
  constexpr int64_t AHEAD = 4096;  // bytes
  if (ask) __builtin_prefetch(reinterpret_cast<const char*>(from) + AHEAD);
  return load(from);
}

// Columns of B are contiguous along k: dot products of M rows and C columns, whose streams run side by side.
template <class S, class E, int M, int C>
WICK_FN void dots(const E* a, int64_t lda, const S* b, int64_t ldb, int64_t k, E (&result)[M][C]) {
  typedef Vec<E> V;
  constexpr int U = M == 1 ? 2 : 1;  // not of C: a column's sum must not depend on its neighbours
  V acc[M][C][U];
#pragma GCC unroll 4
  for (int i = 0; i < M; i++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++)
#pragma GCC unroll 2
      for (int u = 0; u < U; u++) acc[i][c][u] = V(E(0));
  int64_t q = 0;
  for (; q + U * V::N <= k; q += U * V::N)
#pragma GCC unroll 2
    for (int u = 0; u < U; u++) {
      V row[M];
#pragma GCC unroll 4
      for (int i = 0; i < M; i++) row[i] = V::load(a + i * lda + q + u * V::N);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        // Vectors of a line are neighbours: the first asks for all.
        const V column = loadOnward(b + c * ldb + q + u * V::N, u * V::N * sizeof(S) % 64 == 0);
#pragma GCC unroll 4
        for (int i = 0; i < M; i++) acc[i][c][u] = mad(row[i], column, acc[i][c][u]);
      }
    }
#pragma GCC unroll 4
  for (int i = 0; i < M; i++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      V s = acc[i][c][0];
      for (int u = 1; u < U; u++) s += acc[i][c][u];
      result[i][c] = sumHalves(s);
    }
  for (; q < k; q++)
    for (int c = 0; c < C; c++) {
      const E v = scalarOf(b + c * ldb + q);
      for (int i = 0; i < M; i++) result[i][c] += a[i * lda + q] * v;
    }
}

template <class S, class E, int M, int C, class Put>
WICK_FN void dotTile(const E* a, int64_t lda, const S* b, int64_t ldb, int64_t k, int64_t j, Put& put) {
  E sums[M][C];
  dots<S, E, M, C>(a, lda, b + j * ldb, ldb, k, sums);
  for (int i = 0; i < M; i++)
    for (int c = 0; c < C; c++) put(i, j + c, sums[i][c]);
}
// Columns from begin to end, C at a time; a lone row has registers for four of them.
template <class S, class E, int M, int C, class Put>
void dotColumns(const E* a, int64_t lda, const S* b, int64_t ldb, int64_t k, int64_t begin, int64_t end, Put& put) {
  int64_t j = begin;
  for (; j + C <= end; j += C) dotTile<S, E, M, C>(a, lda, b, ldb, k, j, put);
  for (; j < end; j++) dotTile<S, E, M, 1>(a, lda, b, ldb, k, j, put);
}

// Rows of B are contiguous: sums of scaled rows, AT_ONCE at a time, over a stretch of columns. Rows of a power of two
// meet in the same lines of a cache, so they are as many as its ways on cores that have few; a row's stretch is as long
// as hardware needs to see that it goes on. The rows after these are asked for meanwhile.
#if defined(WICK_ISA_NEON)
constexpr int AT_ONCE = 4;
constexpr int64_t LONG_STRETCH = 8192;  // bytes of sums
#else
constexpr int AT_ONCE = 8;
constexpr int64_t LONG_STRETCH = 16384;
#endif
template <class S, class E, int ROWS> WICK_FN void axpyRows(const E* a, const S* b, int64_t row, int64_t n, E* sums) {
  typedef Vec<E> V;
  V scale[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) scale[r] = V(a[r]);
  int64_t j = 0;
  for (; j + V::N <= n; j += V::N) {
    V v = V::load(sums + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
#if !defined(WICK_ISA_NEON)
      __builtin_prefetch(b + (ROWS + r) * row + j, 0, 2);
#endif
      v = mad(scale[r], load(b + r * row + j), v);
    }
    v.store(sums + j);
  }
  for (; j < n; j++)
    for (int r = 0; r < ROWS; r++) sums[j] += a[r] * scalarOf(b + r * row + j);
}
// The same, U vectors of sums in registers while rows go by.
template <class S, class E, int U> WICK_FN void axpysHeld(const E* a, const S* b, int64_t row, int64_t k, E* sums) {
  typedef Vec<E> V;
  V acc[U];
#pragma GCC unroll 16
  for (int u = 0; u < U; u++) acc[u] = V::load(sums + u * V::N);
  for (int64_t q = 0; q < k; q++, b += row) {
    const V scale(a[q]);
#pragma GCC unroll 16
    for (int u = 0; u < U; u++) acc[u] = mad(scale, load(b + u * V::N), acc[u]);
  }
#pragma GCC unroll 16
  for (int u = 0; u < U; u++) acc[u].store(sums + u * V::N);
}
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX512)
constexpr int HELD = 16;
#else
constexpr int HELD = 8;
#endif
// M rows of A, lda apart, whose sums are `pitch` apart; rows of B are in the nearest cache for all but the first.
template <class S, class E>
void axpys(const E* a, int64_t lda, int m, const S* b, int64_t row, int64_t k, int64_t n, E* sums, int64_t pitch) {
  constexpr int N = Vec<E>::N, HALF = HELD / 2;
  if (n == HELD * N) {
    for (int i = 0; i < m; i++) axpysHeld<S, E, HELD>(a + i * lda, b, row, k, sums + i * pitch);
    return;
  }
  if (n < HELD * N && n >= HALF * N) {
    for (int i = 0; i < m; i++) axpysHeld<S, E, HALF>(a + i * lda, b, row, k, sums + i * pitch);
    b += HALF * N, sums += HALF * N, n -= HALF * N;
  }
  int64_t q = 0;
  for (; q + AT_ONCE <= k; q += AT_ONCE)
    for (int i = 0; i < m; i++) axpyRows<S, E, AT_ONCE>(a + i * lda + q, b + q * row, row, n, sums + i * pitch);
  for (; q < k; q++)
    for (int i = 0; i < m; i++) axpyRows<S, E, 1>(a + i * lda + q, b + q * row, row, n, sums + i * pitch);
}

// The rows of A, lda apart, as products compute with them.
template <class S, class E> void widenRows(const Product& p, E* rows, int64_t lda) {
  asStored<S>(p.a, [&](auto a) {
    for (int64_t i = 0; i < p.m; i++) {
      const auto* row = a.data + i * p.a.row;
      if (p.a.column == 1) widenTo(row, rows + i * lda, p.k);
      else
        for (int64_t q = 0; q < p.k; q++) rows[i * lda + q] = scalarOf(row + q * p.a.column);
    }
  });
}

// Columns that a task takes of n, k deep: even ones for all threads, whole groups of four, and as many tasks as speeds
// need to even out and waiting allows. A task of LEAST multiplications takes some microseconds, as waiting does.
inline int64_t evenColumns(int64_t n, int64_t k) {
  constexpr int64_t LEAST = 1 << 15;
  const int64_t threads = wick::threadCount(), worth = n * k / LEAST;
  const int64_t tasks = worth >= 4 * threads ? 4 * threads : worth >= threads ? worth / threads * threads : worth + 1;
  return roundUp((n + tasks - 1) / tasks, 4);
}

template <class S> void fewRows(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data));
  const int m = (int)p.m;
  const int64_t lda = roundUp(p.k, 16);
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)(m * lda + 16) * sizeof(E)));
  widenRows<S>(p, rows, lda);
  auto put = [&](int i, int64_t j, E v) {
    S* to = out + i * p.out.row + j * p.out.column;
    storeScalar(to, accumulate ? v + scalarOf(to) : v);
  };
  const int64_t grain = 1 + 65536 / p.k;
  asStored<S>(p.b, [&](auto b) {
    typedef typename decltype(b)::Element B;
    if (p.b.row == 1) {
      const int64_t each = evenColumns(p.n, p.k * m);
      parallelTasks((p.n + each - 1) / each, [&](int64_t first, int64_t last) {
        const int64_t begin = first * each, end = least(last * each, p.n);
        switch (m) {
          case 1: dotColumns<B, E, 1, 4>(rows, lda, b.data, p.b.column, p.k, begin, end, put); break;
          case 2: dotColumns<B, E, 2, 4>(rows, lda, b.data, p.b.column, p.k, begin, end, put); break;
          case 3: dotColumns<B, E, 3, 2>(rows, lda, b.data, p.b.column, p.k, begin, end, put); break;
          default: dotColumns<B, E, 4, 2>(rows, lda, b.data, p.b.column, p.k, begin, end, put);
        }
      });
    } else if (p.b.column != 1) {
      parallel(p.n, grain, [&](int64_t begin, int64_t end) {
        B* line = static_cast<B*>(scratch(wick::SCRATCH_ROWS, (size_t)p.k * sizeof(B)));
        for (int64_t j = begin; j < end; j++) {
          const B* column = b.data + j * p.b.column;
          for (int64_t q = 0; q < p.k; q++) line[q] = column[q * p.b.row];
          for (int i = 0; i < m; i++) {
            E sum[1][1];
            dots<B, E, 1, 1>(rows + i * lda, lda, line, 0, p.k, sum);
            put(i, j, sum[0][0]);
          }
        }
      });
    } else {
      constexpr int64_t MOST = LONG_STRETCH / sizeof(E), LEAST = 512;
      const int64_t fair = roundUp((p.n - 1) / wick::threadCount() + 1, LEAST), stretch = least(fair, MOST);
      parallel((p.n + stretch - 1) / stretch, 1 + grain / stretch, [&](int64_t begin, int64_t end) {
        E sums[FEW][MOST];
        for (int64_t t = begin; t < end; t++) {
          const int64_t j0 = t * stretch, n = least(p.n - j0, stretch);
          for (int i = 0; i < m; i++) __builtin_memset(sums[i], 0, n * sizeof(E));
          axpys(rows, lda, m, b.data + j0, p.b.row, p.k, n, sums[0], MOST);
          for (int i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) put(i, j0 + j, sums[i][j]);
        }
      });
    }
  });
}

// ---- some rows: each element of B is read once, by dot products of a tile, and nothing of it is packed ----
constexpr int SOME = 16;
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX512)
constexpr int DOT_ROWS = 8, DOT_COLUMNS = 2;
#else
constexpr int DOT_ROWS = 4, DOT_COLUMNS = 2;
#endif

// The sums of all vectors of a tile, each as sumHalves has it; sixteen of them meet in one vector on the way.
template <class E, int C> WICK_FN void sumTile(const Vec<E> (&acc)[DOT_ROWS][C], E (&result)[DOT_ROWS][C]) {
#if defined(WICK_ISA_AVX512)
  if constexpr (Same<E, float>::value && DOT_ROWS * C == 16) {
    __m512 eight[8], four[4], two[2];
    // The place of a sum in the last vector has the bits of its number in another order.
    auto in = [&](int s) { return (__m512)acc[(s & 4) | (s >> 2 & 2) | (s & 1)][s >> 1 & 1].r; };
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
      eight[i] = _mm512_shuffle_f32x4(in(i), in(i + 8), 0x44) + _mm512_shuffle_f32x4(in(i), in(i + 8), 0xee);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
      four[i] = _mm512_shuffle_f32x4(eight[i], eight[i + 4], 0x88) + _mm512_shuffle_f32x4(eight[i], eight[i + 4], 0xdd);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
      two[i] = _mm512_shuffle_ps(four[i], four[i + 2], 0x44) + _mm512_shuffle_ps(four[i], four[i + 2], 0xee);
    _mm512_storeu_ps(&result[0][0], _mm512_shuffle_ps(two[0], two[1], 0x88) + _mm512_shuffle_ps(two[0], two[1], 0xdd));
    return;
  }
#endif
#pragma GCC unroll 8
  for (int i = 0; i < DOT_ROWS; i++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) result[i][c] = sumHalves(acc[i][c]);
}

template <class S, class E, int C>
WICK_FN void dotRows(const E* a, int64_t lda, const S* b, int64_t ldb, int64_t k, E (&result)[DOT_ROWS][C]) {
  typedef Vec<E> V;
  V acc[DOT_ROWS][C];
#pragma GCC unroll 8
  for (int i = 0; i < DOT_ROWS; i++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) acc[i][c] = V(E(0));
  int64_t q = 0;
  for (; q + V::N <= k; q += V::N) {
    V column[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) column[c] = loadOnward(b + c * ldb + q);
#pragma GCC unroll 8
    for (int i = 0; i < DOT_ROWS; i++) {
      V row = V::load(a + i * lda + q);
#if defined(WICK_ISA_AVX512)
      asm("" : "+v"(row.r));  // read once: compilers would read it again for each column
#endif
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[i][c] = mad(row, column[c], acc[i][c]);
    }
  }
  sumTile(acc, result);
  for (; q < k; q++)
    for (int c = 0; c < C; c++) {
      const E v = scalarOf(b + c * ldb + q);
      for (int i = 0; i < DOT_ROWS; i++) result[i][c] += a[i * lda + q] * v;
    }
}
template <class E, int C> struct Sums {
  static constexpr int COLUMNS = C;
  E sums[DOT_ROWS][C];
};
template <class S> void someRows(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data));
  const int m = (int)p.m;
  const int64_t lda = roundUp(p.k, 16), height = roundUp(p.m, DOT_ROWS);
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)(height * lda + 16) * sizeof(E)));
  widenRows<S>(p, rows, lda);
  __builtin_memset(rows + m * lda, 0, (size_t)((height - m) * lda) * sizeof(E));
  asStored<S>(p.b, [&](auto b) {
    typedef typename decltype(b)::Element B;
    auto tile = [&](int64_t j, auto result) {
      constexpr int C = decltype(result)::COLUMNS;
      for (int i0 = 0; i0 < m; i0 += DOT_ROWS) {
        dotRows<B, E, C>(rows + i0 * lda, lda, b.data + j * p.b.column, p.b.column, p.k, result.sums);
        for (int i = i0; i < m && i < i0 + DOT_ROWS; i++)
          for (int c = 0; c < C; c++) {
            S* to = out + i * p.out.row + (j + c) * p.out.column;
            const E v = result.sums[i - i0][c];
            storeScalar(to, accumulate ? v + scalarOf(to) : v);
          }
      }
    };
    const int64_t groups = (p.n + DOT_COLUMNS - 1) / DOT_COLUMNS;
    parallel(groups, 1 + 65536 / (p.k * p.m), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; g++) {
        int64_t j = g * DOT_COLUMNS;
        if (j + DOT_COLUMNS <= p.n) tile(j, Sums<E, DOT_COLUMNS>());
        else
          for (; j < p.n; j++) tile(j, Sums<E, 1>());
      }
    });
  });
}
