// Matrix products: packed panels around a register tile, and paths at memory speed for a few rows and for some.
// A task packs a block of A for its own cache; panels of B are packed once and shared. Packing absorbs strides and
// widens 16-bit floats.
#include "amx.h"

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
template <> struct Tile<float> { static constexpr int ROWS = 14, VECTORS = 2, DEPTH = 512; };
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

#include "matmul-panels.h"
#include "matmul-tile.h"

// The same product with its factors and its result transposed.
Product turned(const Product& p) {
  const auto turn = [](const Matrix& m) { return Matrix{m.data, m.column, m.row, m.dtype}; };
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
// when they are complete. What results begin with comes first in their sums, wherever they are made.
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
template <class E> int64_t slabDepth(int64_t k, int64_t most = Tile<E>::DEPTH) {
  const int64_t slabs = (k + most - 1) / most;
  return roundUp((k + slabs - 1) / slabs, 4);
}
// The same for few rows: a packed panel that only one or two tiles read pays for its depth by the cache that it takes.
template <class E> int64_t shallowDepth(int64_t k) {
  return slabDepth<E>(k, Tile<E>::DEPTH < 384 ? Tile<E>::DEPTH : 384);
}

// Rows of a packed block that a core's cache keeps while panels go by, of `height`: even parts of it.
template <class E> int64_t cachedRows(int64_t height, int64_t depth) {
  constexpr int64_t R = Tile<E>::ROWS;
  const int64_t most = BLOCK_BYTES / (int64_t)sizeof(E) / depth / R * R, parts = (height + most - 1) / most;
  return roundUp((height + parts - 1) / parts, R);
}

// Panels that a task takes: at most GROUP, and as many as share them evenly among the threads.
struct Share {
  int64_t each, longest;  // of a task, of a thread
};
Share evenPanels(int64_t panels) {
  Share best = {GROUP, INT64_MAX};
  for (int64_t each = GROUP; each >= 1; each--) {
    const int64_t tasks = (panels + each - 1) / each, threads = wick::threadCount();
    // Where one task is left over for a last round, it is the one that may have fewer.
    const int64_t missing = tasks % threads == 1 % threads ? tasks * each - panels : 0;
    const int64_t longest = (tasks + threads - 1) / threads * each - missing;
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
  const int64_t depth = p.m <= 2 * R ? shallowDepth<E>(p.k) : slabDepth<E>(p.k), slabs = (p.k + depth - 1) / depth,
                height = roundUp(p.m, R), panels = height / R, columns = evenPanels((p.n + W - 1) / W).each * W,
                rows = cachedRows<E>(height, depth);
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
        for (int64_t i = 0; i < p.m; i += rows)
          blockTimesPanels(least(p.m - i, rows), n, d, block + k0 * height + i * d, group, to.c + i * to.row, to.row,
                           to.adds(k0 > 0), false);
      }
      to.finish();
    }
  });
}

template <class S> void general(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const bool followed = p.later[0].bytes + p.later[1].bytes > 0;  // by a product of the same thread
  const int threads = followed || p.m * p.n * p.k < SMALL_WORK ? 1 : wick::threadCount();
  const int64_t depth = slabDepth<E>(p.k), slabs = (p.k + depth - 1) / depth;
  int64_t columns = least(roundUp(p.n, W), PANELS_BYTES / (int64_t)sizeof(E) / p.k / W * W);
  if (columns < W) columns = W;
  columns = least(columns, 4096 / W * W);
  // Blocks of rows: as many as evenly occupy the threads, none larger than the cache takes.
  int64_t rows = BLOCK_BYTES / (int64_t)sizeof(E) / depth / R * R;
  int64_t rounds = (p.m + rows * threads - 1) / (rows * threads);
  rows = roundUp((p.m + rounds * threads - 1) / (rounds * threads), R);
  const int64_t tiles = (p.m + R - 1) / R, blocks = (p.m + rows - 1) / rows;

  Pieces later(p.later, slabs * tiles * ((p.n + W - 1) / W));

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
          blockTimesPanels(m, n, d, block, panels + k0 * width, to.c, to.row, to.adds(s > 0), true,
                           followed ? &later : nullptr);
        }
        to.finish();
      }
    };
    parallel(blocks, threads == 1 ? blocks : 1, work);
  }
}

// Rows and columns of threads, of which each takes a rectangle of tiles: as even as can be, then as little of the
// factors as can be.
struct Grid {
  int64_t down, across;
};
Grid evenGrid(int64_t tiles, int64_t panels, int64_t threads) {
  Grid best = {1, threads};
  int64_t longest = INT64_MAX;
  for (int64_t down = 1; down <= threads; down++) {
    const int64_t across = threads / down, high = (tiles + down - 1) / down, wide = (panels + across - 1) / across;
    // A tile of rows is half as much to read as one of columns.
    const int64_t cost = 64 * high * wide + high + 2 * wide;
    if (cost < longest) longest = cost, best = {down, across};
  }
  return best;
}
constexpr int64_t MANY_THREADS = 4, LARGE_WORK = 256 * 256 * 256, SHARED_BYTES = 64 << 20;
template <class S> bool worthRectangles(const Product& p) {
  typedef typename ComputeOf<S>::type E;
  return wick::threadCount() >= MANY_THREADS && p.m * p.n * p.k >= LARGE_WORK && p.m > LOW / 2 && p.n > LOW / 2 &&
         p.k > LOW / 2 && (p.m + p.n) * p.k * (int64_t)sizeof(E) <= SHARED_BYTES;
}
// Many threads: both factors are packed once, by all, and each thread reads only the part of them that its rectangle of
// the result needs.
template <class S> void rectangles(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const S* a = reinterpret_cast<const S*>(p.a.data);
  const int64_t depth = slabDepth<E>(p.k), slabs = (p.k + depth - 1) / depth, tiles = (p.m + R - 1) / R,
                panels = (p.n + W - 1) / W, height = tiles * R, width = panels * W, groups = (panels + 3) / 4;
  E* rows = static_cast<E*>(scratch(wick::SCRATCH_B, (size_t)(height + width) * p.k * sizeof(E)));
  E* columns = rows + height * p.k;
  parallel(slabs * (tiles + groups), 1 + 65536 / (4 * W * depth), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; q++) {
      const int64_t k0 = q / (tiles + groups) * depth, at = q % (tiles + groups), d = least(p.k - k0, depth);
      if (at < tiles)
        packPanel<S, E, (int)R>(a + at * R * p.a.row + k0 * p.a.column, p.a.row, p.a.column, least(p.m - at * R, R), d,
                                rows + k0 * height + at * R * d);
      else {
        const int64_t j = (at - tiles) * 4 * W;
        packColumns<S, E, (int)W>(p, j, least(p.n - j, 4 * W), k0, d, columns + k0 * width + j * d);
      }
    }
  });
  const Grid grid = evenGrid(tiles, panels, wick::threadCount());
  const int64_t most = BLOCK_BYTES / (int64_t)sizeof(E) / depth / R * R;  // rows that a core's cache keeps
  parallelTasks(grid.down * grid.across, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t down = t % grid.down, across = t / grid.down, last = least(p.m, tiles * (down + 1) / grid.down * R),
                    j0 = panels * across / grid.across * W,
                    n = least(p.n, panels * (across + 1) / grid.across * W) - j0;
      for (int64_t i0 = tiles * down / grid.down * R; n > 0 && i0 < last; i0 += most) {
        const int64_t m = least(last - i0, most);
        const Block<S, E> to(p, i0, j0, m, n, roundUp(m, R), roundUp(n, W), accumulate);
        for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
          const int64_t d = least(p.k - k0, depth);
          blockTimesPanels(m, n, d, rows + k0 * height + i0 * d, columns + k0 * width + j0 * d, to.c, to.row,
                           to.adds(k0 > 0), true);
        }
        to.finish();
      }
    }
  });
}

#include "matmul-rows.h"
#include "matmul-strips.h"

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

// A convolution: threads take columns where it is worth a thread, unless filters are much more even or more than a
// core's cache keeps; or rectangles of both where these are more even still.
template <class S> void convolution(const Product& p, bool accumulate) {
  typedef typename ComputeOf<S>::type E;
  constexpr int64_t R = Tile<E>::ROWS, W = Tile<E>::VECTORS * Vec<E>::N;
  const int64_t panels = (p.n + W - 1) / W, tiles = (p.m + R - 1) / R, threads = wick::threadCount();
  const int64_t byColumns = evenPanels(panels).longest * tiles, byFilters = (tiles + threads - 1) / threads * panels;
  const bool columns = p.m <= 2 * LOW && p.m * p.n * p.k >= SMALL_WORK && 4 * byColumns <= 5 * byFilters;
  const Grid grid = evenGrid(tiles, panels, threads);
  const int64_t byBoth = ((tiles + grid.down - 1) / grid.down) * ((panels + grid.across - 1) / grid.across);
  if (worthRectangles<S>(p) && 10 * byBoth < 9 * (columns ? byColumns : byFilters)) rectangles<S>(p, accumulate);
  else if (columns) low<S>(p, accumulate);
  else general<S>(p, accumulate);
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
  if (p.pictures) convolution<S>(p, accumulate);
  else if (p.m > 2 && takenByStrips<S>(p, accumulate)) return;
  else if (p.m <= FEW) fewRows<S>(p, accumulate);
  else if (p.m <= SOME && p.n > p.m && p.b.row == 1) someRows<S>(p, accumulate);
  else if (worthRectangles<S>(p)) rectangles<S>(p, accumulate);
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
