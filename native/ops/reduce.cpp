// Reductions over any dimensions and running sums: which elements meet, in which order, on which thread.
#include <cmath>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 32768;
// long groups are cut here, whatever the number of threads: results do not depend on it
constexpr int64_t PIECE = 65536;
constexpr int64_t COLUMNS = 512, LONG_STRETCH = 4096;
constexpr int64_t ROWS = 16;

struct Groups {
  int dtype, kind;
  const char* data;
  int bytes;
  bool real;
  int keptRank = 0, foldRank = 0;
  int64_t kept = 1, fold = 1;  // results, and elements of each
  int64_t keptShape[MAX_RANK], keptStride[1][MAX_RANK];
  int64_t foldShape[MAX_RANK], foldStride[1][MAX_RANK];
};

void push(int& rank, int64_t* shape, int64_t* stride, int64_t n, int64_t s) {
  if (n == 1) return;
  if (rank > 0 && stride[rank - 1] == s * n) {
    shape[rank - 1] *= n;
    stride[rank - 1] = s;
    return;
  }
  shape[rank] = n;
  stride[rank++] = s;
}

Partial initial(const Groups& g) {
  const bool nanWins = g.dtype == F16 || g.dtype == BF16;
  Partial p = {0, 0, -1};
  if (g.kind == PROD) p = {1, 1, -1};
  if (g.kind == MAX || g.kind == MIN) {
    p.real = !nanWins ? NAN : g.kind == MAX ? -INFINITY : INFINITY;
    p.whole = g.kind == MAX ? INT64_MIN : INT64_MAX;
  }
  return p;
}

// What the second of two neighbouring partial results adds to the first.
void combine(const Groups& g, Partial& a, const Partial& b) {
  const bool nanWins = g.dtype == F16 || g.dtype == BF16;
  switch (g.kind) {
    case SUM:
    case MEAN:
    case EUCLID:
      a.real += b.real;
      a.whole = (int64_t)((uint64_t)a.whole + (uint64_t)b.whole);
      return;
    case PROD:
      a.real *= b.real;
      a.whole = (int64_t)((uint64_t)a.whole * (uint64_t)b.whole);
      return;
    case MAX:
    case MIN:
      if (nanWins ? a.real == a.real && (b.real != b.real || (g.kind == MAX ? b.real > a.real : b.real < a.real))
                  : a.real != a.real || (g.kind == MAX ? b.real > a.real : b.real < a.real))
        a.real = b.real;
      if (g.kind == MAX ? b.whole > a.whole : b.whole < a.whole) a.whole = b.whole;
      return;
    default: {
      if (b.index < 0) return;
      bool better = a.index < 0;
      if (!better)
        better = g.real ? (g.kind == ARGMAX ? b.real > a.real : b.real < a.real)
                        : (g.kind == ARGMAX ? b.whole > a.whole : b.whole < a.whole);
      if (better) a = b;
    }
  }
}

// Elements [begin, end) of one group, numbered in row-major order.
void foldRange(const Groups& g, const char* base, int64_t begin, int64_t end, Partial* p) {
  ReduceRun run = isa->reduceRun[g.dtype][g.kind];
  if (g.foldRank == 0) return run(base, end - begin, begin, p);
  const int last = g.foldRank - 1;
  const int64_t length = g.foldShape[last], step = g.foldStride[0][last];
  alignas(64) char tile[1024 * 8];
  Walk walk(last, g.foldShape, g.foldStride, 1, begin / length);
  int64_t at = begin % length;
  for (int64_t i = begin; i < end;) {
    int64_t n = length - at < end - i ? length - at : end - i;
    const char* from = base + (walk.offset[0] + at * step) * g.bytes;
    if (step == 1) run(from, n, i, p);
    else
      for (int64_t j = 0; j < n; j += 1024) {
        int64_t m = n - j < 1024 ? n - j : 1024;
        gatherRun(tile, from + j * step * g.bytes, step, m, g.bytes);
        run(tile, m, i + j, p);
      }
    i += n;
    at = 0;
    walk.next();
  }
}

// Results leave as double or 64-bit integers and are cast once.
void finish(const Groups& g, const Partial* p, int64_t n, char* out, int outType) {
  const int bytes = ELEMENT_BYTES[outType];
  for (int64_t i = 0; i < n; i += 256) {
    int64_t m = n - i < 256 ? n - i : 256;
    double real[256];
    int64_t whole[256];
    for (int64_t j = 0; j < m; j++) {
      const Partial& q = p[i + j];
      real[j] = g.kind == MEAN ? q.real / (double)g.fold : g.kind == EUCLID ? sqrt(q.real) : q.real;
      whole[j] = g.kind >= ARGMAX ? (q.index < 0 ? 0 : q.index) : q.whole;
    }
    const bool reals = g.real && g.kind < ARGMAX;
    castRun(reals ? F64 : I64, outType, reals ? (void*)real : (void*)whole, out + i * bytes, m);
  }
}

// Results adjacent in memory: whole rows are added to a stretch of accumulators.
void foldColumns(const Groups& g, char* out, int outType) {
  const int last = g.keptRank - 1, inner = g.foldRank - 1;
  // Long stretches read memory in long runs; there are enough of them for all threads.
  const int64_t width = g.keptShape[last], outer = g.kept / width,
                share = (width * outer / threadCount() + 63) / 64 * 64;
  const int64_t stretch = share < COLUMNS ? COLUMNS : share < LONG_STRETCH ? share : LONG_STRETCH;
  const int64_t stretches = (width + stretch - 1) / stretch, work = g.fold * stretch;
  const int64_t length = g.foldShape[inner], pitch = g.foldStride[0][inner];
  ReduceRows add = isa->reduceRows[g.dtype][g.kind];
  const bool places = g.kind >= ARGMAX;
  const Partial zero = initial(g);
  parallel(outer * stretches, GRAIN / work + 1, [&](int64_t begin, int64_t end) {
    double* real =
        static_cast<double*>(scratch(SCRATCH_ROWS, stretch * (sizeof(double) + 2 * sizeof(int64_t) + sizeof(Partial))));
    int64_t* whole = reinterpret_cast<int64_t*>(real + stretch);
    Partial* results = reinterpret_cast<Partial*>(whole + 2 * stretch);
    for (int64_t t = begin; t < end; t++) {
      const int64_t c0 = t % stretches * stretch, n = width - c0 < stretch ? width - c0 : stretch;
      Walk kept(last, g.keptShape, g.keptStride, 1, t / stretches);
      const char* base = g.data + (kept.offset[0] + c0) * g.bytes;
      for (int64_t j = 0; j < n; j++) {
        real[j] = zero.real;
        whole[j] = places ? -1 : zero.whole;
        whole[n + j] = 0;
      }
      Walk walk(inner, g.foldShape, g.foldStride, 1, 0);
      // A few rows a call: their stretch of columns stays in the first-level cache.
      for (int64_t r = 0; r < g.fold; r += length, walk.next())
        for (int64_t i = 0; i < length; i += ROWS)
          add(base + (walk.offset[0] + i * pitch) * g.bytes, length - i < ROWS ? length - i : ROWS, pitch, n, r + i,
              real, whole);
      for (int64_t j = 0; j < n; j++) results[j] = {real[j], whole[j], whole[j]};
      finish(g, results, n, out + (t / stretches * width + c0) * ELEMENT_BYTES[outType], outType);
    }
  });
}

// Which elements of the first operand meet in which result; parameters are the number of dimensions and their list.
Groups groupsOf(const Call& c, int kind) {
  const Operand& x = c.in(0);
  Groups g;
  g.dtype = x.dtype;
  g.kind = kind;
  g.data = x.data;
  g.bytes = x.bytes();
  g.real = isFloatType(x.dtype);
  bool folded[MAX_RANK] = {};
  for (int64_t i = 0; i < c.integer(0); i++) folded[c.integer(1 + (int)i)] = true;
  for (int d = 0; d < x.rank; d++) {
    (folded[d] ? g.fold : g.kept) *= x.shape[d];
    if (folded[d]) push(g.foldRank, g.foldShape, g.foldStride[0], x.shape[d], x.stride[d]);
    else push(g.keptRank, g.keptShape, g.keptStride[0], x.shape[d], x.stride[d]);
  }
  return g;
}

// A few long groups, each cut into pieces for all threads; the pieces are joined in their order.
void foldPieces(const Groups& g, int64_t pieces, const Operand& out) {
  Walk walk(g.keptRank, g.keptShape, g.keptStride, 1, 0);
  Partial* parts = static_cast<Partial*>(scratch(SCRATCH_ROWS, pieces * sizeof(Partial)));
  for (int64_t i = 0; i < g.kept; i++, walk.next()) {
    const char* base = g.data + walk.offset[0] * g.bytes;
    parallel(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        parts[t] = initial(g);
        foldRange(g, base, t * PIECE, (t + 1) * PIECE < g.fold ? (t + 1) * PIECE : g.fold, &parts[t]);
      }
    });
    Partial total = parts[0];
    for (int64_t t = 1; t < pieces; t++) combine(g, total, parts[t]);
    finish(g, &total, 1, out.data + i * out.bytes(), out.dtype);
  }
}

Status reduce(const Call& c, const void* data) {
  const Operand& out = c.out();
  const Groups g = groupsOf(c, (int)(intptr_t)data);
  if (g.kept == 0) return OK;
  const int last = g.keptRank - 1;
  const bool alongRows = g.foldRank == 0 || g.foldStride[0][g.foldRank - 1] == 1;
  if (g.fold > 0 && !alongRows && last >= 0 && g.keptStride[0][last] == 1 && g.keptShape[last] >= 8) {
    foldColumns(g, out.data, out.dtype);
    return OK;
  }
  const int64_t pieces = (g.fold + PIECE - 1) / PIECE;
  if (pieces > 1) {
    foldPieces(g, pieces, out);
    return OK;
  }
  parallel(g.kept, GRAIN / (g.fold + 1) + 1, [&](int64_t begin, int64_t end) {
    Walk walk(g.keptRank, g.keptShape, g.keptStride, 1, begin);
    Partial batch[64];
    for (int64_t i = begin; i < end; i += 64) {
      int64_t n = end - i < 64 ? end - i : 64;
      for (int64_t j = 0; j < n; j++, walk.next()) {
        batch[j] = initial(g);
        if (g.fold > 0) foldRange(g, g.data + walk.offset[0] * g.bytes, 0, g.fold, &batch[j]);
      }
      finish(g, batch, n, out.data + i * out.bytes(), out.dtype);
    }
  });
  return OK;
}

template <class W> void scanLane(W* v, int64_t n, bool reverse, bool exclusive) {
  W total = 0;
  for (int64_t k = 0; k < n; k++) {
    W& at = v[reverse ? n - 1 - k : k];
    W before = total;
    if constexpr (sizeof(W) == 8 && W(0.5) == 0) total = (W)((uint64_t)total + (uint64_t)at);
    else total += at;
    at = exclusive ? before : total;
  }
}

// Lanes in double or 64 bits, one after another or, where results are adjacent, a stretch of lanes at a time.
Status scan(const Call& c, const void*) {
  const Operand& x = c.in(0);
  const Operand& out = c.out();
  const int dim = (int)c.integer(0);
  const bool reverse = c.params[1] != 0, exclusive = c.params[2] != 0;
  Lanes in = lanesOf(x, dim), to = lanesOf(out, dim);
  const int wide = wideType(x.dtype), bytes = x.bytes(), outBytes = out.bytes();
  const int64_t n = in.length;
  const int inner = in.rank - 1;
  if (n == 0 || in.count == 0) return OK;
  if (to.step > 1 && inner >= 0 && in.stride[0][inner] == 1 && to.shape[inner] >= 8) {
    const int64_t width = in.shape[inner], stretches = (width + COLUMNS - 1) / COLUMNS;
    parallel(in.count / width * stretches, GRAIN / (n * COLUMNS) + 1, [&](int64_t begin, int64_t end) {
      double total[COLUMNS], row[COLUMNS], before[COLUMNS];
      for (int64_t t = begin; t < end; t++) {
        const int64_t c0 = t % stretches * COLUMNS, m = width - c0 < COLUMNS ? width - c0 : COLUMNS;
        Walk from(inner, in.shape, in.stride, 1, t / stretches), into(inner, to.shape, to.stride, 1, t / stretches);
        memset(total, 0, sizeof total);
        for (int64_t k = 0; k < n; k++) {
          const int64_t at = reverse ? n - 1 - k : k;
          castRun(x.dtype, wide, x.data + (from.offset[0] + c0 + at * in.step) * bytes, row, m);
          memcpy(before, total, m * 8);
          if (wide == F64)
            for (int64_t j = 0; j < m; j++) total[j] += row[j];
          else
            for (int64_t j = 0; j < m; j++) {
              uint64_t a, b;
              memcpy(&a, total + j, 8);
              memcpy(&b, row + j, 8);
              a += b;
              memcpy(total + j, &a, 8);
            }
          castRun(wide, out.dtype, exclusive ? before : total,
                  out.data + (into.offset[0] + c0 + at * to.step) * outBytes, m);
        }
      }
    });
    return OK;
  }
  parallel(in.count, GRAIN / n + 1, [&](int64_t begin, int64_t end) {
    char* raw = static_cast<char*>(scratch(SCRATCH_A, n * (bytes < outBytes ? outBytes : bytes)));
    void* lane = scratch(SCRATCH_B, n * 8);
    Walk from(in.rank, in.shape, in.stride, 1, begin), into(to.rank, to.shape, to.stride, 1, begin);
    for (int64_t i = begin; i < end; i++, from.next(), into.next()) {
      gatherRun(raw, x.data + from.offset[0] * bytes, in.step, n, bytes);
      castRun(x.dtype, wide, raw, lane, n);
      if (wide == F64) scanLane(static_cast<double*>(lane), n, reverse, exclusive);
      else scanLane(static_cast<int64_t*>(lane), n, reverse, exclusive);
      castRun(wide, out.dtype, lane, raw, n);
      scatterRun(out.data + into.offset[0] * outBytes, to.step, raw, n, outBytes);
    }
  });
  return OK;
}

const void* kind(Reduction r) { return reinterpret_cast<const void*>((intptr_t)r); }

}  // namespace

WICK_OPS(reduce) = {{"sum", reduce, kind(SUM)},       {"mean", reduce, kind(MEAN)},
                    {"prod", reduce, kind(PROD)},     {"max", reduce, kind(MAX)},
                    {"min", reduce, kind(MIN)},       {"argmax", reduce, kind(ARGMAX)},
                    {"argmin", reduce, kind(ARGMIN)}, {"euclid", reduce, kind(EUCLID)},
                    {"cumsum", scan, nullptr},        {nullptr, nullptr, nullptr}};

}  // namespace wick
