// Products of some rows by a matrix whose rows are contiguous: B is read once, where it lies, a stretch of columns at a
// time. A block of its rows goes by in strips whose sums stay in registers, while the next block is asked for. Included
// by matmul.cpp after matmul-tile.h.

// Rows of B in a block: caches keep few that a power of two separates.
constexpr int64_t BLOCK_DEPTH = 16;
constexpr int64_t NEAR_BYTES = 512 << 10;  // what a core's own cache keeps of B from one product to the next
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX512)
constexpr int STRIP_ROWS = 8, STRIP_SUMS = 24;  // rows of A at a time; vectors of sums in registers
#else
constexpr int STRIP_ROWS = 6, STRIP_SUMS = 12;
#endif
constexpr int64_t STRETCH_VECTORS = 24;  // whole strips of every height
constexpr int64_t MOST_STRIP_ROWS = 4 * STRIP_ROWS;

// sums[R][N] (+)= R rows of A, value by value, times N vectors of the rows of B. Sums of a block begin with nothing, so
// that long sums are sums of short ones.
template <class S, class E, int R, int N>
WICK_FN void strip(const E* a, const S* b, int64_t row, int64_t depth, E* sums, int64_t pitch, bool add, bool ask) {
  typedef Vec<E> V;
  V acc[R][N];
#pragma GCC unroll 8
  for (int i = 0; i < R; i++)
#pragma GCC unroll 12
    for (int j = 0; j < N; j++) acc[i][j] = V(E(0));
  for (int64_t q = 0; q < depth; q++, a += R, b += row) {
    V bv[N];
#pragma GCC unroll 12
    for (int j = 0; j < N; j++) bv[j] = load(b + j * V::N);
    if (ask)
#pragma GCC unroll 12
      for (int j = 0; j < N; j++) __builtin_prefetch(b + BLOCK_DEPTH * row + j * V::N, 0, 2);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
      const V s(a[i]);
#pragma GCC unroll 12
      for (int j = 0; j < N; j++) acc[i][j] = mad(s, bv[j], acc[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; i++)
#pragma GCC unroll 12
    for (int j = 0; j < N; j++) {
      E* p = sums + i * pitch + j * V::N;
      (add ? V::load(p) + acc[i][j] : acc[i][j]).store(p);
    }
}

// A block of B's rows times R rows of A, n columns. What does not fill a vector is the end of one that begins earlier;
// its sums lie behind all others.
template <class S, class E, int R>
void stripsOfBlock(const E* a, const S* b, int64_t row, int64_t depth, int64_t n, E* sums, int64_t pitch, bool add,
                   bool ask) {
  constexpr int N = STRIP_SUMS / R, W = Vec<E>::N;
  int64_t j = 0;
  for (; j + N * W <= n; j += N * W) strip<S, E, R, N>(a, b + j, row, depth, sums + j, pitch, add, ask);
  for (; j + W <= n; j += W) strip<S, E, R, 1>(a, b + j, row, depth, sums + j, pitch, add, ask);
  if (j < n) strip<S, E, R, 1>(a, b + n - W, row, depth, sums + j, pitch, add, ask);
}

template <class S, class E, int R> void byStrips(const Product& p, bool accumulate) {
  constexpr int64_t W = Vec<E>::N, WIDTH_OF_SUMS = STRETCH_VECTORS * W;
  const int64_t groups = (p.m + R - 1) / R;
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_B, (size_t)(groups * R * p.k) * sizeof(E)));
  asStored<S>(p.a, [&](auto a) {
    for (int64_t g = 0; g < groups; g++)
      packPanel<typename decltype(a)::Element, E, R>(a.data + g * R * p.a.row, p.a.row, p.a.column,
                                                     least(p.m - g * R, R), p.k, rows + g * R * p.k);
  });
  // Threads take even stretches, of whole vectors.
  const int64_t vectors = p.n / W, tasks = (vectors + STRETCH_VECTORS - 1) / STRETCH_VECTORS,
                threads = wick::threadCount(), rounds = (tasks + threads - 1) / threads * threads,
                each = least((vectors + rounds - 1) / rounds, STRETCH_VECTORS) * W;
  asStored<S>(p.b, [&](auto b) {
    typedef typename decltype(b)::Element B;
    const bool far = p.k * p.n * (int64_t)sizeof(B) > NEAR_BYTES;
    parallel((p.n / W * W + each - 1) / each, 1 + 65536 / (p.k * each), [&](int64_t begin, int64_t end) {
      E* sums = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)(groups * R * (WIDTH_OF_SUMS + W)) * sizeof(E)));
      for (int64_t t = begin; t < end; t++) {
        // The last stretch has the columns that fill no vector.
        const int64_t j0 = t * each, n = j0 + each + W > p.n ? p.n - j0 : each, pitch = WIDTH_OF_SUMS + W;
        for (int64_t k0 = 0; k0 < p.k; k0 += BLOCK_DEPTH) {
          const int64_t depth = least(p.k - k0, BLOCK_DEPTH);
          for (int64_t g = 0; g < groups; g++)
            stripsOfBlock<B, E, R>(rows + (g * p.k + k0) * R, b.data + k0 * p.b.row + j0, p.b.row, depth, n,
                                   sums + g * R * pitch, pitch, k0 > 0, far && g == 0);
        }
        S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data)) + j0 * p.out.column;
        const int64_t whole = n / W * W;
        deliver(sums, pitch, out, p.out, p.m, whole, accumulate);
        if (whole < n)
          deliver(sums + whole + W - (n - whole), pitch, out + whole * p.out.column, p.out, p.m, n - whole, accumulate);
      }
    });
  });
}

// As few groups of rows as can be, and as even.
template <class S> bool takenByStrips(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  if (p.b.column != 1 || p.m > MOST_STRIP_ROWS || p.n < Vec<E>::N || p.n <= p.m) return false;
  const int64_t groups = (p.m + STRIP_ROWS - 1) / STRIP_ROWS, height = (p.m + groups - 1) / groups;
  if (height <= 4) byStrips<S, E, 4>(p, accumulate);
  else if (height <= 6) byStrips<S, E, 6>(p, accumulate);
  else if constexpr (STRIP_ROWS > 6) byStrips<S, E, STRIP_ROWS>(p, accumulate);
  return true;
}
