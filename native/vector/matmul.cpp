// Matrix products: packed panels around a register tile, and paths at memory speed for a few rows and for some.
// A task packs a block of A for its own cache; panels of B are packed once and shared. Packing absorbs strides and
// widens 16-bit floats.
#include "isa.h"
#if defined(WICK_ISA_AVX512) && __has_include(<amxbf16intrin.h>)
#define WICK_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {
#include "runs.h"

using wick::Matrix;
using wick::Product;

// Register tile of ROWS x VECTORS vectors, and the depth of a panel that stays in the first-level cache.
template <class E> struct Tile;
#if defined(WICK_ISA_NEON)
template <> struct Tile<float> { static constexpr int ROWS = 8, VECTORS = 3, DEPTH = 384; };
template <> struct Tile<double> { static constexpr int ROWS = 6, VECTORS = 4, DEPTH = 256; };
#elif defined(WICK_ISA_AVX512)
template <> struct Tile<float> { static constexpr int ROWS = 14, VECTORS = 2, DEPTH = 384; };
template <> struct Tile<double> { static constexpr int ROWS = 14, VECTORS = 2, DEPTH = 192; };
#elif defined(WICK_ISA_AVX2)
template <> struct Tile<float> { static constexpr int ROWS = 6, VECTORS = 2, DEPTH = 320; };
template <> struct Tile<double> { static constexpr int ROWS = 6, VECTORS = 2, DEPTH = 256; };
#else
template <> struct Tile<float> { static constexpr int ROWS = 4, VECTORS = 2, DEPTH = 256; };
template <> struct Tile<double> { static constexpr int ROWS = 4, VECTORS = 2, DEPTH = 192; };
#endif
constexpr int64_t BLOCK_BYTES = 384 << 10;    // a packed block of A, in the second-level cache
constexpr int64_t PANELS_BYTES = 16 << 20;    // packed panels of B
constexpr int64_t GROUP = 8;                  // panels packed together, so that rows of B are read in long runs
constexpr int64_t LOW = 256;                  // rows of A that stay packed while columns go by
constexpr int64_t SMALL_WORK = 64 * 64 * 64;  // multiplications worth another thread

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
      for (int i = 0; i < R; i += 4) {
        int rows = R - i < 4 ? R - i : 4;
        for (int64_t k = 0; k < depth; k += STEP) {
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
  packPanels<S, E, W>(reinterpret_cast<const S*>(p.b.data) + j * p.b.column + k0 * p.b.row, p.b.column, p.b.row, n,
                      depth, to);
}

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

// c[ROWS][columns] (+)= a panel * the first N vectors of b panel. `row` is the distance of rows in c.
template <int N, class E> WICK_FN void tile(int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add) {
  typedef Vec<E> V;
  constexpr int R = Tile<E>::ROWS, W = Tile<E>::VECTORS * V::N;
  V acc[R][N];
#pragma GCC unroll 16
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) acc[i][j] = V(E(0));
  for (int64_t k = 0; k < depth; k++, a += R, b += W) {
    V bv[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) bv[j] = V::load(b + j * V::N);
    step(acc, bv, a);
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

template <int N, class E>
WICK_FN void narrowest(int64_t vectors, int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add) {
  if constexpr (N > 1)
    if (vectors < N) return narrowest<N - 1>(vectors, depth, a, b, c, row, add);
  tile<N>(depth, a, b, c, row, add);
}

// A packed block times packed panels into c of E, rows `row` apart and columns adjacent. Panels that are shared come
// from further away than a core's own cache: the next one is asked for while this one is multiplied.
template <class E>
void blockTimesPanels(int64_t m, int64_t n, int64_t depth, const E* a, const E* b, E* c, int64_t row, bool add,
                      bool shared) {
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
      if (j + W < n)
        for (int64_t q = 0; q < ahead; q += LINE) __builtin_prefetch(bp + W * depth + i / R * ahead + q, 0, 2);
      narrowest<Tile<E>::VECTORS>(vectors, depth, ap, bp, to, step, adds);
      if (whole) continue;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t q = 0; q < columns; q++) {
          E* p = c + (i + r) * row + j + q;
          *p = add ? *p + edge[r * W + q] : edge[r * W + q];
        }
    }
  }
}

// The same product with its factors and its result transposed.
Product turned(const Product& p) {
  const auto turn = [](const Matrix& m) { return Matrix{m.data, m.column, m.row}; };
  return {p.n, p.m, p.k, turn(p.b), turn(p.a), turn(p.out)};
}
int64_t roundUp(int64_t v, int64_t to) { return (v + to - 1) / to * to; }
int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Sums of `width` columns a row become m rows and n columns of the result.
template <class S, class E>
void deliver(const E* sums, int64_t width, S* out, const Matrix& layout, int64_t m, int64_t n, bool accumulate) {
  const bool turned = layout.column != 1 && layout.row == 1;
  const int64_t lines = turned ? n : m, length = turned ? m : n, far = turned ? layout.column : layout.row,
                near = turned ? layout.row : layout.column;
  E line[64];
  for (int64_t i = 0; i < lines; i++)
    for (int64_t j = 0; j < length; j += 64) {
      S* to = out + i * far + j * near;
      const int64_t count = least(length - j, 64);
      const E* from = turned ? sums + j * width + i : sums + i * width + j;
      if (turned || accumulate || near != 1) {
        for (int64_t q = 0; q < count; q++) line[q] = turned ? from[q * width] : from[q];
        if (accumulate)
          for (int64_t q = 0; q < count; q++) line[q] += scalarOf(to + q * near);
        from = line;
      }
      if (near != 1)
        for (int64_t q = 0; q < count; q++) storeScalar(to + q * near, from[q]);
      else if constexpr (Same<S, E>::value) __builtin_memcpy(to, from, count * sizeof(E));
      else narrowRun(from, to, count);
    }
}

// Columns of the result from j on: where they begin, and how many lie side by side.
struct Stretch {
  int64_t at, length;
};
Stretch stretchAt(const Product& p, int64_t j) {
  if (!p.pictures) return {j * p.out.column, p.n - j};
  const int64_t area = p.pictures->h * p.pictures->w;
  return {j / area * p.pictures->result + j % area, area - j % area};
}
// Calls each(column, of the result, columns) for the stretches of n columns from j on.
template <class Each> void eachStretch(const Product& p, int64_t j, int64_t n, Each&& each) {
  for (int64_t q = 0; q < n;) {
    const Stretch s = stretchAt(p, j + q);
    const int64_t run = least(s.length, n - q);
    each(q, s.at, run);
    q += run;
  }
}
// A block of m rows and n columns of the result, from row i and column j on: in place, or as sums that are delivered
// when
// they are complete. What results begin with comes first in their sums, wherever they are made.
template <class S, class E> struct Block {
  const Product& p;
  int64_t j, m, n;
  S* out;
  bool own, here, accumulate;
  E* c;
  int64_t row;
  // Sums have room for `height` rows of `width` columns.
  Block(const Product& p, int64_t i, int64_t j, int64_t m, int64_t n, int64_t height, int64_t width, bool accumulate)
      : p(p), j(j), m(m), n(n), accumulate(accumulate) {
    out = reinterpret_cast<S*>(const_cast<char*>(p.out.data)) + i * p.out.row;
    own = Same<S, E>::value && p.out.column == 1;
    const Stretch first = stretchAt(p, j);
    here = own && first.length >= n;
    row = here ? p.out.row : width;
    c = here ? reinterpret_cast<E*>(out + first.at)
             : static_cast<E*>(scratch(wick::SCRATCH_C, (size_t)(height * width) * sizeof(E)));
    if (here || !own || !accumulate) return;
    eachStretch(p, j, n, [&](int64_t q, int64_t at, int64_t run) {
      for (int64_t r = 0; r < m; r++) __builtin_memcpy(c + r * row + q, out + r * p.out.row + at, run * sizeof(E));
    });
  }
  bool adds(bool later) const { return later || (own && accumulate); }
  void finish() const {
    if (here) return;
    eachStretch(p, j, n, [&](int64_t q, int64_t at, int64_t run) {
      deliver(c + q, row, out + at, p.out, m, run, accumulate && !own);
    });
  }
};

// Even slabs of the inner dimension.
template <class E> int64_t slabDepth(int64_t k) {
  const int64_t slabs = (k + Tile<E>::DEPTH - 1) / Tile<E>::DEPTH;
  return roundUp((k + slabs - 1) / slabs, 4);
}

// Panels that a task takes: at most GROUP, and as many as share them evenly among the threads.
struct Share {
  int64_t each, longest;  // of a task, of a thread
};
Share evenPanels(int64_t panels) {
  Share best = {GROUP, INT64_MAX};
  for (int64_t each = GROUP; each >= 1; each--) {
    const int64_t tasks = (panels + each - 1) / each, threads = wick::threadCount();
    const int64_t longest = (tasks + threads - 1) / threads * each;
    if (longest < best.longest) best = {each, longest};
  }
  return best;
}

// Few rows and many columns: A stays packed, tasks take groups of columns, so that each element of B is packed once, by
// the thread that needs it.
template <class S> void low(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const int64_t depth = slabDepth<E>(p.k), slabs = (p.k + depth - 1) / depth, height = roundUp(p.m, R),
                panels = height / R, columns = evenPanels((p.n + W - 1) / W).each * W;
  E* block = static_cast<E*>(scratch(wick::SCRATCH_B, (size_t)height * p.k * sizeof(E)));
  parallel(slabs * panels, 1 + 65536 / (R * depth), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; q++) {
      const int64_t k0 = q / panels * depth, i = q % panels * R, d = least(p.k - k0, depth);
      packPanel<S, E, (int)R>(a + i * p.a.row + k0 * p.a.column, p.a.row, p.a.column, least(p.m - i, R), d,
                              block + k0 * height + i * d);
    }
  });
  parallelTasks((p.n + columns - 1) / columns, [&](int64_t begin, int64_t end) {
    E* group = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)columns * depth * sizeof(E)));
    for (int64_t g = begin; g < end; g++) {
      const int64_t j0 = g * columns, n = least(p.n - j0, columns);
      const Block<S, E> to(p, 0, j0, p.m, n, height, columns, accumulate);
      for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
        const int64_t d = least(p.k - k0, depth);
        packColumns<S, E, (int)W>(p, j0, n, k0, d, group);
        blockTimesPanels(p.m, n, d, block + k0 * height, group, to.c, to.row, to.adds(k0 > 0), false);
      }
      to.finish();
    }
  });
}

template <class S> void general(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const int threads = p.m * p.n * p.k < SMALL_WORK ? 1 : wick::threadCount();
  const int64_t depth = slabDepth<E>(p.k), slabs = (p.k + depth - 1) / depth;
  int64_t columns = least(roundUp(p.n, W), PANELS_BYTES / (int64_t)sizeof(E) / p.k / W * W);
  if (columns < W) columns = W;
  columns = least(columns, 4096 / W * W);
  // Blocks of rows: as many as evenly occupy the threads, none larger than the cache takes.
  int64_t rows = BLOCK_BYTES / (int64_t)sizeof(E) / depth / R * R;
  int64_t rounds = (p.m + rows * threads - 1) / (rows * threads);
  rows = roundUp((p.m + rounds * threads - 1) / (rounds * threads), R);
  const int64_t tiles = (p.m + R - 1) / R, blocks = (p.m + rows - 1) / rows;

  E* panels = static_cast<E*>(scratch(wick::SCRATCH_B, (size_t)columns * p.k * sizeof(E)));
  for (int64_t j0 = 0; j0 < p.n; j0 += columns) {
    const int64_t n = least(p.n - j0, columns), width = roundUp(n, W), count = (width / W + GROUP - 1) / GROUP;
    // Panels of one slab lie together: slab s begins at s * depth * width.
    auto packB = [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; q++) {
        const int64_t j = q % count * GROUP * W, k0 = q / count * depth, d = least(p.k - k0, depth);
        packColumns<S, E, (int)W>(p, j0 + j, least(n - j, GROUP * W), k0, d, panels + k0 * width + j * d);
      }
    };
    parallel(slabs * count, threads == 1 ? slabs * count : least(1 + 65536 / (GROUP * W * depth), slabs * count),
             packB);
    auto work = [&](int64_t begin, int64_t end) {
      E* block = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)rows * depth * sizeof(E)));
      for (int64_t t = begin; t < end; t++) {
        const int64_t i0 = tiles * t / blocks * R, m = least(p.m, tiles * (t + 1) / blocks * R) - i0;
        const Block<S, E> to(p, i0, j0, m, n, rows, width, accumulate);
        for (int64_t s = 0; s < slabs; s++) {
          const int64_t k0 = s * depth, d = least(p.k - k0, depth);
          for (int64_t i = 0; i < m; i += R)
            packPanel<S, E, (int)R>(a + (i0 + i) * p.a.row + k0 * p.a.column, p.a.row, p.a.column, least(m - i, R), d,
                                    block + i * d);
          blockTimesPanels(m, n, d, block, panels + k0 * width, to.c, to.row, to.adds(s > 0), true);
        }
        to.finish();
      }
    };
    parallel(blocks, threads == 1 ? blocks : 1, work);
  }
}

// ---- a few rows: each element of B is read once ----
constexpr int FEW = 4;

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
        const V column = load(b + c * ldb + q + u * V::N);
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
      result[i][c] = sumLanes(s);
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

// Rows of B are contiguous: sums of scaled rows, eight at a time, over a stretch of columns.
template <class S, class E, int ROWS> WICK_FN void axpyRows(const E* a, const S* b, int64_t row, int64_t n, E* sums) {
  typedef Vec<E> V;
  V scale[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) scale[r] = V(a[r]);
  int64_t j = 0;
  for (; j + V::N <= n; j += V::N) {
    V v = V::load(sums + j);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) v = mad(scale[r], load(b + r * row + j), v);
    v.store(sums + j);
  }
  for (; j < n; j++)
    for (int r = 0; r < ROWS; r++) sums[j] += a[r] * scalarOf(b + r * row + j);
}
template <class S, class E> void axpys(const E* a, const S* b, int64_t row, int64_t k, int64_t n, E* sums) {
  int64_t q = 0;
  for (; q + 8 <= k; q += 8) axpyRows<S, E, 8>(a + q, b + q * row, row, n, sums);
  for (; q < k; q++) axpyRows<S, E, 1>(a + q, b + q * row, row, n, sums);
}

template <class S> void fewRows(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const S* b = reinterpret_cast<const S*>(p.b.data);
  S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data));
  const int m = (int)p.m;
  const int64_t lda = roundUp(p.k, 16);
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)(m * lda + 16) * sizeof(E)));
  for (int i = 0; i < m; i++) {
    if (p.a.column == 1) widenTo(a + i * p.a.row, rows + i * lda, p.k);
    else
      for (int64_t q = 0; q < p.k; q++) rows[i * lda + q] = scalarOf(a + i * p.a.row + q * p.a.column);
  }
  auto put = [&](int i, int64_t j, E v) {
    S* to = out + i * p.out.row + j * p.out.column;
    storeScalar(to, accumulate ? v + scalarOf(to) : v);
  };
  const int64_t grain = 1 + 65536 / p.k;
  if (p.b.row == 1) {
    parallel(p.n, grain, [&](int64_t begin, int64_t end) {
      switch (m) {
        case 1: dotColumns<S, E, 1, 4>(rows, lda, b, p.b.column, p.k, begin, end, put); break;
        case 2: dotColumns<S, E, 2, 4>(rows, lda, b, p.b.column, p.k, begin, end, put); break;
        case 3: dotColumns<S, E, 3, 2>(rows, lda, b, p.b.column, p.k, begin, end, put); break;
        default: dotColumns<S, E, 4, 2>(rows, lda, b, p.b.column, p.k, begin, end, put);
      }
    });
  } else if (p.b.column != 1) {
    parallel(p.n, grain, [&](int64_t begin, int64_t end) {
      S* line = static_cast<S*>(scratch(wick::SCRATCH_ROWS, (size_t)p.k * sizeof(S)));
      for (int64_t j = begin; j < end; j++) {
        const S* column = b + j * p.b.column;
        for (int64_t q = 0; q < p.k; q++) line[q] = column[q * p.b.row];
        for (int i = 0; i < m; i++) {
          E sum[1][1];
          dots<S, E, 1, 1>(rows + i * lda, lda, line, 0, p.k, sum);
          put(i, j, sum[0][0]);
        }
      }
    });
  } else {
    constexpr int64_t STRETCH = 512;
    parallel((p.n + STRETCH - 1) / STRETCH, 1 + grain / STRETCH, [&](int64_t begin, int64_t end) {
      E sums[STRETCH];
      for (int64_t t = begin; t < end; t++) {
        const int64_t j0 = t * STRETCH, n = least(p.n - j0, STRETCH);
        for (int i = 0; i < m; i++) {
          __builtin_memset(sums, 0, sizeof sums);
          axpys(rows + i * lda, b + j0, p.b.row, p.k, n, sums);
          for (int64_t j = 0; j < n; j++) put(i, j0 + j, sums[j]);
        }
      }
    });
  }
}

// ---- some rows: each element of B is read once, by dot products of a tile, and nothing of it is packed ----
constexpr int SOME = 16;
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX512)
constexpr int DOT_ROWS = 8, DOT_COLUMNS = 2;
#else
constexpr int DOT_ROWS = 4, DOT_COLUMNS = 2;
#endif

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
    for (int c = 0; c < C; c++) column[c] = load(b + c * ldb + q);
#pragma GCC unroll 8
    for (int i = 0; i < DOT_ROWS; i++) {
      const V row = V::load(a + i * lda + q);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) acc[i][c] = mad(row, column[c], acc[i][c]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < DOT_ROWS; i++)
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) result[i][c] = sumLanes(acc[i][c]);
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
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const S* b = reinterpret_cast<const S*>(p.b.data);
  S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data));
  const int m = (int)p.m;
  const int64_t lda = roundUp(p.k, 16), height = roundUp(p.m, DOT_ROWS);
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_A, (size_t)(height * lda + 16) * sizeof(E)));
  for (int i = 0; i < m; i++) {
    if (p.a.column == 1) widenTo(a + i * p.a.row, rows + i * lda, p.k);
    else
      for (int64_t q = 0; q < p.k; q++) rows[i * lda + q] = scalarOf(a + i * p.a.row + q * p.a.column);
  }
  __builtin_memset(rows + m * lda, 0, (size_t)((height - m) * lda) * sizeof(E));
  auto tile = [&](int64_t j, auto result) {
    constexpr int C = decltype(result)::COLUMNS;
    for (int i0 = 0; i0 < m; i0 += DOT_ROWS) {
      dotRows<S, E, C>(rows + i0 * lda, lda, b + j * p.b.column, p.b.column, p.k, result.sums);
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
}

#if defined(WICK_AMX)
#include "tiles.h"
template <class S> bool takenByTiles(const Product& p, bool accumulate) {
  if constexpr (Same<S, bfloat>::value)
    return !p.pictures && !accumulate && p.m > FEW && p.m * p.n * p.k >= SMALL_WORK && onTiles(p);
  return false;
}
#else
template <class S> bool takenByTiles(const Product&, bool) { return false; }
#endif

// Whether threads take columns of a convolution rather than filters: where it is worth a thread, unless filters are
// much
// more even or more than a core's cache keeps.
template <class S> bool columnsShare(const Product& p) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const int64_t panels = (p.n + W - 1) / W, tiles = (p.m + R - 1) / R, threads = wick::threadCount();
  if (p.m > 2 * LOW || p.m * p.n * p.k < SMALL_WORK) return false;
  return 4 * evenPanels(panels).longest * tiles <= 5 * ((tiles + threads - 1) / threads) * panels;
}

template <class S> void product(const Product& given, bool accumulate) {
  Product p = given;
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    S* out = reinterpret_cast<S*>(const_cast<char*>(p.out.data));
    if (!accumulate)
      for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
          storeScalar(out + i * p.out.row + j * p.out.column, typename ComputeOf<S>::type(0));
    return;
  }
  // A transposed product has few rows on the left.
  if (!p.pictures && p.n <= FEW && p.m > p.n) p = turned(given);
  if (takenByTiles<S>(p, accumulate)) return;
  if (p.pictures) {
    if (columnsShare<S>(p)) low<S>(p, accumulate);
    else general<S>(p, accumulate);
  } else if (p.m <= FEW) fewRows<S>(p, accumulate);
  else if (p.m <= SOME && p.n > p.m && p.b.row == 1) someRows<S>(p, accumulate);
  else if (p.m <= LOW && p.n > p.m && p.m * p.n * p.k >= SMALL_WORK) low<S>(p, accumulate);
  else general<S>(p, accumulate);
}

}  // namespace

extern "C" void WICK_EXPORT(wick_matmul)(wick::IsaTable* t) {
  t->matmul[wick::F32] = product<float>;
  t->matmul[wick::F64] = product<double>;
  t->matmul[wick::F16] = product<half>;
  t->matmul[wick::BF16] = product<bfloat>;
}
