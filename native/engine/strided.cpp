// How layouts reach contiguous kernels: directly, through small tiles in the first-level cache, or through transposed
// blocks.
#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#include "strided.h"

#include "threads.h"

namespace wick {
namespace {

constexpr int64_t TILE = 512;      // elements of a tile
constexpr int64_t LONG_ROW = 128;  // rows from here on are worth a kernel call of their own
// of a turned operand: long runs are read, and a block fits the second-level cache
constexpr int64_t BLOCK_BYTES = 1024, BLOCK_COLUMNS = 64;
// no power of two: lines of a column fall into different sets
constexpr int64_t BLOCK_PITCH = BLOCK_COLUMNS + 4;
constexpr int64_t GRAIN = 32768;  // elements worth waking another thread for

template <class E> void gatherAs(char* to, const char* from, int64_t stride, int64_t n) {
  E* t = reinterpret_cast<E*>(to);
  const E* f = reinterpret_cast<const E*>(from);
  if (stride == 0) {
    E v = *f;
    for (int64_t i = 0; i < n; i++) t[i] = v;
  } else {
    for (int64_t i = 0; i < n; i++) t[i] = f[i * stride];
  }
}
template <class E> void scatterAs(char* to, int64_t stride, const char* from, int64_t n) {
  E* t = reinterpret_cast<E*>(to);
  const E* f = reinterpret_cast<const E*>(from);
  for (int64_t i = 0; i < n; i++) t[i * stride] = f[i];
}

typedef uint8_t B1 __attribute__((vector_size(16)));
typedef uint16_t B2 __attribute__((vector_size(16)));
typedef uint32_t B4 __attribute__((vector_size(16)));
typedef uint64_t B8 __attribute__((vector_size(16)));
inline B1 zipLow(B1 a, B1 b) { return WICK_SHUFFLE(B1, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23); }
inline B1 zipHigh(B1 a, B1 b) {
  return WICK_SHUFFLE(B1, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline B2 zipLow(B2 a, B2 b) { return WICK_SHUFFLE(B2, a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline B2 zipHigh(B2 a, B2 b) { return WICK_SHUFFLE(B2, a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline B4 zipLow(B4 a, B4 b) { return WICK_SHUFFLE(B4, a, b, 0, 4, 1, 5); }
inline B4 zipHigh(B4 a, B4 b) { return WICK_SHUFFLE(B4, a, b, 2, 6, 3, 7); }
inline B8 zipLow(B8 a, B8 b) { return WICK_SHUFFLE(B8, a, b, 0, 2); }
inline B8 zipHigh(B8 a, B8 b) { return WICK_SHUFFLE(B8, a, b, 1, 3); }

// N vectors of N elements, turned; each round doubles the runs that belong together.
template <class V, int N> inline __attribute__((always_inline)) void zipTile(V (&v)[N]) {
#pragma GCC unroll 4
  for (int width = 1; width < N; width *= 2) {
    V w[N];
#pragma GCC unroll 8
    for (int i = 0; i < N / 2; i++) {
      w[2 * i] = zipLow(v[i], v[i + N / 2]);
      w[2 * i + 1] = zipHigh(v[i], v[i + N / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) v[i] = w[i];
  }
}

// `TILES` tiles of N by N elements from rows `step` apart to rows `pitch` apart; what lies in one row is read at once.
template <class V, int TILES, class E>
inline __attribute__((always_inline)) void transposeTiles(const E* from, int64_t step, E* to, int64_t pitch) {
  constexpr int N = 16 / sizeof(E);
  V v[TILES][N];
#pragma GCC unroll 16
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < TILES; j++) __builtin_memcpy(&v[j][i], from + i * step + j * N, 16);
#pragma GCC unroll 4
  for (int j = 0; j < TILES; j++) {
    zipTile(v[j]);
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) __builtin_memcpy(to + (j * N + i) * pitch, &v[j][i], 16);
  }
}

template <class V, class E>
void transposeAs(const E* from, int64_t step, E* to, int64_t pitch, int64_t rows, int64_t columns) {
  constexpr int N = 16 / sizeof(E), LINE = 64 / sizeof(E);
  int64_t c = 0;
  for (; c + N <= columns; c += N) {
    const E* top = from + c * step;
    int64_t r = 0;
    if constexpr (N > 4) {
      // More rows than a set of the cache has ways: whole lines are taken out first, or rows a power of two apart would
      // evict each other.
      alignas(64) E lines[N][LINE];
      for (; r + LINE <= rows; r += LINE) {
        for (int i = 0; i < N; i++) __builtin_memcpy(lines[i], top + i * step + r, 64);
        for (int j = 0; j < LINE; j += N) transposeTiles<V, 1>(&lines[0][j], LINE, to + (r + j) * pitch + c, pitch);
      }
    } else {
      for (; r + LINE <= rows; r += LINE) transposeTiles<V, 4>(top + r, step, to + r * pitch + c, pitch);
    }
    for (; r + N <= rows; r += N) transposeTiles<V, 1>(top + r, step, to + r * pitch + c, pitch);
    for (; r < rows; r++)
      for (int i = 0; i < N; i++) to[r * pitch + c + i] = top[i * step + r];
  }
  for (; c < columns; c++)
    for (int64_t r = 0; r < rows; r++) to[r * pitch + c] = from[c * step + r];
}

struct Task {
  Kernel kernel;
  const double* scalars;
  int inputs;  // the output is operand number `inputs`
  char* data[MAX_OPERANDS];
  int bytes[MAX_OPERANDS];
  Merged m;
};

// A row: operands that are contiguous are used in place, the others go through tiles.
void runRow(const Task& t, char* const* at, int64_t n) {
  const int last = t.m.rank - 1;
  alignas(64) char tile[MAX_OPERANDS][TILE * 8];
  int64_t stride[MAX_OPERANDS];
  bool direct = true;
  for (int k = 0; k <= t.inputs; k++) {
    stride[k] = t.m.stride[k][last];
    direct &= stride[k] == 1;
    if (k < t.inputs && stride[k] == 0) gatherRun(tile[k], at[k], 0, n < TILE ? n : TILE, t.bytes[k]);
  }
  if (direct)
    return t.kernel(const_cast<const void* const*>(reinterpret_cast<void* const*>(at)), at[t.inputs], n, t.scalars);
  for (int64_t i = 0; i < n; i += TILE) {
    int64_t count = n - i < TILE ? n - i : TILE;
    const void* in[MAX_OPERANDS];
    for (int k = 0; k < t.inputs; k++) {
      const char* from = at[k] + i * stride[k] * t.bytes[k];
      in[k] = stride[k] == 1 ? from : tile[k];
      if (stride[k] != 1 && stride[k] != 0) gatherRun(tile[k], from, stride[k], count, t.bytes[k]);
    }
    int o = t.inputs;
    char* to = at[o] + i * stride[o] * t.bytes[o];
    t.kernel(in, stride[o] == 1 ? to : tile[o], count, t.scalars);
    if (stride[o] != 1) scatterRun(to, stride[o], tile[o], count, t.bytes[o]);
  }
}

void runRows(const Task& t, int64_t begin, int64_t end) {
  const int outer = t.m.rank - 1;
  Walk walk(outer, t.m.shape, t.m.stride, t.inputs + 1, begin);
  for (int64_t i = begin; i < end; i++, walk.next()) {
    char* at[MAX_OPERANDS];
    for (int k = 0; k <= t.inputs; k++) at[k] = t.data[k] + walk.offset[k] * t.bytes[k];
    runRow(t, at, t.m.shape[outer]);
  }
}

// Short rows: tiles run across row ends, so that a kernel call always has work.
void runTiles(const Task& t, int64_t begin, int64_t end) {
  const int last = t.m.rank - 1;
  const int64_t length = t.m.shape[last];
  alignas(64) char tile[MAX_OPERANDS][TILE * 8];
  bool dense[MAX_OPERANDS];
  for (int k = 0; k <= t.inputs; k++) {
    int64_t n = 1;
    dense[k] = true;
    for (int d = last; d >= 0; d--) {
      dense[k] &= t.m.stride[k][d] == n;
      n *= t.m.shape[d];
    }
  }
  const int o = t.inputs;
  Walk walk(last, t.m.shape, t.m.stride, t.inputs + 1, begin / length);
  int64_t within = begin % length;
  for (int64_t i = begin; i < end; i += TILE) {
    int64_t count = end - i < TILE ? end - i : TILE;
    Walk ahead = walk;
    int64_t start = within;
    for (int64_t done = 0; done < count;) {
      int64_t run = length - start < count - done ? length - start : count - done;
      for (int k = 0; k < t.inputs; k++) {
        if (dense[k]) continue;
        int64_t s = t.m.stride[k][last];
        gatherRun(tile[k] + done * t.bytes[k], t.data[k] + (ahead.offset[k] + start * s) * t.bytes[k], s, run,
                  t.bytes[k]);
      }
      done += run;
      start += run;
      if (start == length) {
        start = 0;
        ahead.next();
      }
    }
    const void* in[MAX_OPERANDS];
    for (int k = 0; k < t.inputs; k++) in[k] = dense[k] ? t.data[k] + i * t.bytes[k] : tile[k];
    t.kernel(in, dense[o] ? t.data[o] + i * t.bytes[o] : tile[o], count, t.scalars);
    if (!dense[o]) {
      int64_t from = within, s = t.m.stride[o][last];
      for (int64_t done = 0; done < count;) {
        int64_t run = length - from < count - done ? length - from : count - done;
        scatterRun(t.data[o] + (walk.offset[o] + from * s) * t.bytes[o], s, tile[o] + done * t.bytes[o], run,
                   t.bytes[o]);
        done += run;
        from += run;
        if (from == length) {
          from = 0;
          walk.next();
        }
      }
    }
    walk = ahead;
    within = start;
  }
}

// The dimension, besides the last, along which some operand of strided rows is contiguous; -1 when blocks do not pay.
int blockDim(const Task& t) {
  const int last = t.m.rank - 1;
  if (t.m.shape[last] < 8) return -1;
  for (int k = 0; k < t.inputs; k++) {
    if (t.m.stride[k][last] == 0 || t.m.stride[k][last] == 1) continue;
    for (int d = 0; d < last; d++)
      if (t.m.stride[k][d] == 1 && t.m.shape[d] >= 8) return d;
  }
  return -1;
}

void runBlocks(const Task& t, int dim) {
  const int last = t.m.rank - 1;
  // Outer dimensions are all but `dim` and the last; blocks of the two are numbered inside them.
  int64_t shape[MAX_RANK], stride[MAX_OPERANDS][MAX_RANK], outer = 1;
  int rank = 0;
  for (int d = 0; d < last; d++) {
    if (d == dim) continue;
    shape[rank] = t.m.shape[d];
    outer *= shape[rank];
    for (int k = 0; k <= t.inputs; k++) stride[k][rank] = t.m.stride[k][d];
    rank++;
  }
  const int o = t.inputs;
  bool turned[MAX_OPERANDS] = {};
  int widest = 1, blocks = 0;
  for (int k = 0; k < t.inputs; k++) {
    const int64_t sc = t.m.stride[k][last];
    turned[k] = t.m.stride[k][dim] == 1 && sc != 1 && sc != 0;
    if (turned[k] && t.bytes[k] > widest) widest = t.bytes[k];
    blocks += turned[k];
  }
  const int64_t rows = t.m.shape[dim], columns = t.m.shape[last], blockRows = BLOCK_BYTES / widest;
  const int64_t down = (rows + blockRows - 1) / blockRows, across = (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  parallel(outer * down * across, GRAIN / (blockRows * BLOCK_COLUMNS), [&](int64_t begin, int64_t end) {
    char* memory = static_cast<char*>(scratch(SCRATCH_BLOCKS, blocks * BLOCK_BYTES * BLOCK_PITCH));
    alignas(64) char tile[MAX_OPERANDS][BLOCK_COLUMNS * 8];
    for (int64_t b = begin; b < end; b++) {
      // Blocks follow each other along the runs that are read.
      const int64_t r0 = b % down * blockRows, c0 = b / down % across * BLOCK_COLUMNS;
      const int64_t nr = rows - r0 < blockRows ? rows - r0 : blockRows,
                    nc = columns - c0 < BLOCK_COLUMNS ? columns - c0 : BLOCK_COLUMNS;
      Walk walk(rank, shape, stride, t.inputs + 1, b / (across * down));
      char *corner[MAX_OPERANDS], *block[MAX_OPERANDS], *next = memory;
      for (int k = 0; k <= t.inputs; k++) {
        int64_t sr = t.m.stride[k][dim], sc = t.m.stride[k][last];
        corner[k] = t.data[k] + (walk.offset[k] + r0 * sr + c0 * sc) * t.bytes[k];
        if (!turned[k]) continue;
        block[k] = next;
        next += BLOCK_BYTES * BLOCK_PITCH;
        transposeBlock(corner[k], sc, block[k], BLOCK_PITCH, nr, nc, t.bytes[k]);
      }
      for (int64_t r = 0; r < nr; r++) {
        const void* in[MAX_OPERANDS];
        for (int k = 0; k < t.inputs; k++) {
          int64_t sr = t.m.stride[k][dim], sc = t.m.stride[k][last];
          if (turned[k]) {
            in[k] = block[k] + r * BLOCK_PITCH * t.bytes[k];
            continue;
          }
          const char* from = corner[k] + r * sr * t.bytes[k];
          in[k] = sc == 1 ? from : tile[k];
          if (sc != 1) gatherRun(tile[k], from, sc, nc, t.bytes[k]);
        }
        char* to = corner[o] + r * t.m.stride[o][dim] * t.bytes[o];
        int64_t sc = t.m.stride[o][last];
        t.kernel(in, sc == 1 ? to : tile[o], nc, t.scalars);
        if (sc != 1) scatterRun(to, sc, tile[o], nc, t.bytes[o]);
      }
    }
  });
}

// ---- a turned copy: whole lines of the result from as many runs of the source ----
constexpr int64_t LINE = 64, RUN = 2048;

// Results too large for the caches are written around them where the processor would read a line before it is
// overwritten.
#if defined(__x86_64__)
constexpr int64_t AROUND = 16 << 20;
inline void storeAround(void* to, const void* v) {
  _mm_stream_si128(static_cast<__m128i*>(to), *static_cast<const __m128i*>(v));
}
inline void settle() { _mm_sfence(); }
#else
constexpr int64_t AROUND = INT64_MAX;
inline void storeAround(void* to, const void* v) { __builtin_memcpy(to, v, 16); }
inline void settle() {}
#endif

// N rows of a line each, from N-element pieces of the lines' columns `pitch` elements apart.
template <class V, class E>
inline __attribute__((always_inline)) void turnLines(const E* from, int64_t pitch, E* to, int64_t row, bool around) {
  constexpr int N = 16 / sizeof(E);
  if constexpr (N > 4) {
    for (int j = 0; j < 4; j++) transposeTiles<V, 1>(from + j * N * pitch, pitch, to + j * N, row);
  } else {
    V v[4][N];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
      for (int i = 0; i < N; i++) __builtin_memcpy(&v[j][i], from + (j * N + i) * pitch, 16);
      zipTile(v[j]);
    }
    if (AROUND != INT64_MAX && around) {
#pragma GCC unroll 4
      for (int i = 0; i < N; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) storeAround(to + i * row + j * N, &v[j][i]);
      return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; i++)
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) __builtin_memcpy(to + i * row + j * N, &v[j][i], 16);
  }
}

// to[r * row + c] = from[c * step + r]. Runs of the source are taken out first: runs a power of two apart would evict
// each other from the cache. While one block is written, the lines of the next, whose corner is `next`, are fetched.
template <class V, class E>
void turnBlock(const E* from, int64_t step, E* to, int64_t row, int64_t rows, int64_t columns, const E* next,
               bool around) {
  constexpr int64_t N = 16 / sizeof(E), WIDE = LINE / sizeof(E), LONG = RUN / sizeof(E), PITCH = LONG + WIDE;
  if (rows < LONG || columns < WIDE) return transposeAs<V>(from, step, to, row, rows, columns);
  E* runs = static_cast<E*>(scratch(SCRATCH_BLOCKS, WIDE * PITCH * sizeof(E)));
  for (int64_t c = 0; c < WIDE; c++) memcpy(runs + c * PITCH, from + c * step, RUN);
  int64_t line = 0;
  for (int64_t r = 0; r < LONG; r += N) {
    for (int64_t k = 0; k < WIDE * (RUN / LINE) / (LONG / N); k++, line++)
      __builtin_prefetch(next + line / (RUN / LINE) * step + line % (RUN / LINE) * WIDE, 0, 2);
    turnLines<V>(runs + r, PITCH, to + r * row, row, around);
  }
}

template <class V, class E> void turnedCopy(const Task& t, int dim) {
  const int last = t.m.rank - 1;
  constexpr int64_t WIDE = LINE / sizeof(E), LONG = RUN / sizeof(E);
  const int64_t rows = t.m.shape[dim], columns = t.m.shape[last], step = t.m.stride[0][last], row = t.m.stride[1][dim];
  const int64_t down = (rows + LONG - 1) / LONG, across = (columns + WIDE - 1) / WIDE;
  int64_t shape[MAX_RANK], stride[MAX_OPERANDS][MAX_RANK], outer = 1;
  int rank = 0;
  for (int d = 0; d < last; d++) {
    if (d == dim) continue;
    outer *= shape[rank] = t.m.shape[d];
    for (int k = 0; k < 2; k++) stride[k][rank] = t.m.stride[k][d];
    rank++;
  }
  const bool around = outer * rows * columns * (int64_t)sizeof(E) >= AROUND &&
                      reinterpret_cast<uintptr_t>(t.data[1]) % LINE == 0 && row % WIDE == 0;
  // Blocks follow each other along the runs that are read.
  const E* source = reinterpret_cast<const E*>(t.data[0]);
  auto corner = [&](int64_t b, int64_t offset) {
    return source + offset + b % down * LONG + b / down % across * WIDE * step;
  };
  parallel(outer * down * across, GRAIN / (LONG * WIDE) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      Walk walk(rank, shape, stride, 2, b / (across * down));
      const int64_t r0 = b % down * LONG, c0 = b / down % across * WIDE;
      turnBlock<V>(corner(b, walk.offset[0]), step, reinterpret_cast<E*>(t.data[1]) + walk.offset[1] + r0 * row + c0,
                   row, rows - r0 < LONG ? rows - r0 : LONG, columns - c0 < WIDE ? columns - c0 : WIDE,
                   corner(b + 1, walk.offset[0]), around);
    }
    if (around) settle();
  });
}

template <int BYTES> void copyKernel(const void* const* in, void* out, int64_t n, const double*) {
  memcpy(out, in[0], n * BYTES);
}

// By bytes an element.
struct Copy {
  Kernel kernel;
  void (*turned)(const Task&, int dim);
};
const Copy COPIES[9] = {{},
                        {copyKernel<1>, turnedCopy<B1, uint8_t>},
                        {copyKernel<2>, turnedCopy<B2, uint16_t>},
                        {},
                        {copyKernel<4>, turnedCopy<B4, uint32_t>},
                        {},
                        {},
                        {},
                        {copyKernel<8>, turnedCopy<B8, uint64_t>}};

}  // namespace

void transposeBlock(const char* from, int64_t step, char* to, int64_t pitch, int64_t rows, int64_t columns, int bytes) {
  switch (bytes) {
    case 1: return transposeAs<B1>((const uint8_t*)from, step, (uint8_t*)to, pitch, rows, columns);
    case 2: return transposeAs<B2>((const uint16_t*)from, step, (uint16_t*)to, pitch, rows, columns);
    case 4: return transposeAs<B4>((const uint32_t*)from, step, (uint32_t*)to, pitch, rows, columns);
    default: return transposeAs<B8>((const uint64_t*)from, step, (uint64_t*)to, pitch, rows, columns);
  }
}

void gatherRun(char* to, const char* from, int64_t stride, int64_t n, int bytes) {
  if (stride == 1) {
    memcpy(to, from, n * bytes);
    return;
  }
  switch (bytes) {
    case 1: return gatherAs<uint8_t>(to, from, stride, n);
    case 2: return gatherAs<uint16_t>(to, from, stride, n);
    case 4: return gatherAs<uint32_t>(to, from, stride, n);
    default: return gatherAs<uint64_t>(to, from, stride, n);
  }
}

void scatterRun(char* to, int64_t stride, const char* from, int64_t n, int bytes) {
  if (stride == 1) {
    memcpy(to, from, n * bytes);
    return;
  }
  switch (bytes) {
    case 1: return scatterAs<uint8_t>(to, stride, from, n);
    case 2: return scatterAs<uint16_t>(to, stride, from, n);
    case 4: return scatterAs<uint32_t>(to, stride, from, n);
    default: return scatterAs<uint64_t>(to, stride, from, n);
  }
}

Merged mergeDims(const Operand* const* operands, int count) {
  Merged m;
  m.rank = 0;
  m.count = count;
  const Operand& first = *operands[0];
  for (int d = 0; d < first.rank; d++) {
    int64_t n = first.shape[d];
    if (n == 1) continue;
    bool joins = m.rank > 0;
    for (int k = 0; k < count && joins; k++) joins = m.stride[k][m.rank - 1] == operands[k]->stride[d] * n;
    if (joins) m.shape[m.rank - 1] *= n;
    else m.shape[m.rank++] = n;
    for (int k = 0; k < count; k++) m.stride[k][m.rank - 1] = operands[k]->stride[d];
  }
  if (m.rank == 0) {
    m.rank = 1;
    m.shape[0] = 1;
    for (int k = 0; k < count; k++) m.stride[k][0] = 1;
  }
  return m;
}

void runStrided(Kernel kernel, const Operand* inputs, int count, const Operand& out, const double* scalars) {
  const int64_t size = out.size();
  if (size == 0) return;
  Task t;
  t.kernel = kernel;
  t.scalars = scalars;
  t.inputs = count;
  const Operand* all[MAX_OPERANDS];
  for (int k = 0; k < count; k++) all[k] = &inputs[k];
  all[count] = &out;
  for (int k = 0; k <= count; k++) {
    t.data[k] = all[k]->data;
    t.bytes[k] = all[k]->bytes();
  }
  t.m = mergeDims(all, count + 1);
  if (t.m.rank == 1) {
    return parallel(size, GRAIN, [&](int64_t begin, int64_t end) {
      char* at[MAX_OPERANDS];
      for (int k = 0; k <= count; k++) at[k] = t.data[k] + begin * t.m.stride[k][0] * t.bytes[k];
      runRow(t, at, end - begin);
    });
  }
  int dim = blockDim(t);
  if (dim >= 0) {
    const Copy& copy = COPIES[t.bytes[0]];
    return kernel == copy.kernel && t.m.stride[1][t.m.rank - 1] == 1 ? copy.turned(t, dim) : runBlocks(t, dim);
  }
  const int64_t length = t.m.shape[t.m.rank - 1];
  if (length >= LONG_ROW) {
    parallel(size / length, GRAIN / length + 1, [&](int64_t begin, int64_t end) { runRows(t, begin, end); });
  } else {
    parallel(size, GRAIN, [&](int64_t begin, int64_t end) { runTiles(t, begin, end); });
  }
}

void copyStrided(const Operand& from, const Operand& to) {
  runStrided(COPIES[to.bytes()].kernel, &from, 1, to, nullptr);
}

const char* contiguousData(const Operand& x, int slot) {
  if (x.contiguous()) return x.data;
  Operand copy = x;
  copy.data = static_cast<char*>(scratch((Scratch)slot, x.size() * x.bytes() + 64));
  int64_t n = 1;
  for (int d = x.rank - 1; d >= 0; d--) {
    copy.stride[d] = n;
    n *= x.shape[d];
  }
  copyStrided(x, copy);
  return copy.data;
}

}  // namespace wick
