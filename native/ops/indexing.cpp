// Reading and writing at indices. The largest value of an index dtype means "no element": it reads 0 and writes
// nothing.
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 32768;
constexpr int64_t NONE = -1;

int64_t largest(int dtype) {
  switch (dtype) {
    case U8: return UINT8_MAX;
    case U32: return UINT32_MAX;
    case I16: return INT16_MAX;
    case I32: return INT32_MAX;
    default: return INT64_MAX;
  }
}

// All indices in row-major order as places in [0, n), NONE for the sentinel. The memory is the caller's to free.
// With `wrap`, those below 0 count from the end.
Status places(const Call& c, const char* op, const Operand& ids, int64_t n, int64_t** result, bool wrap = false) {
  const int64_t count = ids.size(), none = largest(ids.dtype);
  int64_t* out = static_cast<int64_t*>(malloc((size_t)(count + 1) * 8));
  if (!out) return fail(c, NO_MEMORY, "%s: no memory for %" PRId64 " indices", op, count);
  *result = out;
  Operand wide = ids;
  wide.data = reinterpret_cast<char*>(out);
  wide.dtype = I64;
  int64_t s = 1;
  for (int d = ids.rank - 1; d >= 0; d--) {
    wide.stride[d] = s;
    s *= ids.shape[d];
  }
  runStrided(isa->cast[ids.dtype][I64], &ids, 1, wide, nullptr);
  for (int64_t i = 0; i < count; i++) {
    if (out[i] == none) {
      out[i] = NONE;
      continue;
    }
    if (wrap && out[i] < 0) out[i] += n;
    if (out[i] < 0 || out[i] >= n) {
      Status status =
          fail(c, BAD_INDEX,
               "%s: index %" PRId64 " at position %" PRId64 " is out of range for a dimension of size %" PRId64, op,
               out[i], i, n);
      free(out);
      *result = nullptr;
      return status;
    }
  }
  return OK;
}

inline void moveOne(char* to, const char* from, int bytes) {
  switch (bytes) {
    case 1: *to = *from; return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    default: memcpy(to, from, 8);
  }
}

Status gather(const Call& c, const void*) {
  const Operand &x = c.in(0), &ids = c.in(1), &out = c.out();
  const int dim = (int)c.integer(0), bytes = x.bytes();
  int64_t* at = nullptr;
  if (Status s = places(c, "gather", ids, x.shape[dim], &at)) return s;
  // x is walked over the shape of ids, standing still along dim.
  int64_t stride[1][MAX_RANK];
  for (int d = 0; d < x.rank; d++) stride[0][d] = d == dim ? 0 : x.stride[d];
  parallel(out.size(), GRAIN, [&](int64_t begin, int64_t end) {
    Walk walk(ids.rank, ids.shape, stride, 1, begin);
    for (int64_t i = begin; i < end; i++, walk.next()) {
      char* to = out.data + i * bytes;
      if (at[i] == NONE) memset(to, 0, bytes);
      else moveOne(to, x.data + (walk.offset[0] + at[i] * x.stride[dim]) * bytes, bytes);
    }
  });
  free(at);
  return OK;
}

// An operand as left x n x right around dim, with strides that may not merge: rows of `right` are copied by a walk.
// Where no row is named it is that of a third operand, if there is one, which is copied first.
Status indexSelect(const Call& c, const void* data) {
  const Operand &x = c.in(0), &ids = c.in(1), &out = c.out();
  const int dim = (int)c.integer(0), bytes = x.bytes();
  const char* op = data ? static_cast<const char*>(data) : "indexSelect";
  const bool others = c.inputs > 2;
  int64_t* at = nullptr;
  if (Status s = places(c, op, ids, x.shape[dim], &at, strcmp(op, "take") == 0)) return s;
  if (others) copyStrided(c.in(2), out);
  int64_t left = 1, right = 1, size = 1;
  bool dense = true;
  for (int d = x.rank - 1; d > dim; d--) {
    dense &= x.shape[d] == 1 || x.stride[d] == size;
    size *= x.shape[d];
    right *= x.shape[d];
  }
  int64_t stride[1][MAX_RANK];
  for (int d = 0; d < dim; d++) {
    left *= x.shape[d];
    stride[0][d] = x.stride[d];
  }
  const int64_t count = out.shape[dim];
  if (out.size() > 0)
    parallel(left * count, GRAIN / (right + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        char* to = out.data + i * right * bytes;
        const int64_t place = at[i % count];
        if (place == NONE) {
          if (!others) memset(to, 0, right * bytes);
          continue;
        }
        Walk outer(dim, x.shape, stride, 1, i / count);
        const char* from = x.data + (outer.offset[0] + place * x.stride[dim]) * bytes;
        if (dense) {
          memcpy(to, from, right * bytes);
          continue;
        }
        int64_t tail[1][MAX_RANK];
        const int rest = x.rank - dim - 1;
        for (int d = 0; d < rest; d++) tail[0][d] = x.stride[dim + 1 + d];
        const int64_t length = x.shape[x.rank - 1];
        Walk walk(rest - 1, x.shape + dim + 1, tail, 1, 0);
        for (int64_t r = 0; r < right; r += length, walk.next())
          gatherRun(to + r * bytes, from + walk.offset[0] * bytes, x.stride[x.rank - 1], length, bytes);
      }
    });
  free(at);
  return OK;
}

template <class E> void addTo(char* to, const char* from) {
  E a, b;
  memcpy(&a, to, sizeof a);
  memcpy(&b, from, sizeof b);
  a = (E)(a + b);
  memcpy(to, &a, sizeof a);
}
inline void addOne(int dtype, char* to, const char* from) {
  switch (dtype) {
    case U8: return addTo<uint8_t>(to, from);
    case U32:
    case I32: return addTo<uint32_t>(to, from);
    case I16: return addTo<uint16_t>(to, from);
    case I64: return addTo<uint64_t>(to, from);
    case F32: return addTo<float>(to, from);
    default: return addTo<double>(to, from);
  }
}

Operand denseLike(const Operand& x, char* data, int dtype) {
  Operand o = x;
  o.data = data;
  o.dtype = dtype;
  int64_t n = 1;
  for (int d = x.rank - 1; d >= 0; d--) {
    o.stride[d] = n;
    n *= x.shape[d];
  }
  return o;
}

// Whether a is better than b: larger or smaller, 0 above -0, NaN above all.
template <class E> bool better(E a, E b, bool most) {
  if (b != b) return false;
  if (a != a) return true;
  if constexpr (std::is_floating_point_v<E>)
    if (a == b) return std::signbit(most ? b : a) && !std::signbit(most ? a : b);
  return most ? a > b : a < b;
}
template <class E> void raiseTo(char* to, const char* from, bool most) {
  E a, b;
  memcpy(&a, from, sizeof a);
  memcpy(&b, to, sizeof b);
  if (better(a, b, most)) memcpy(to, from, sizeof a);
}
inline void raiseOne(int dtype, char* to, const char* from, bool most) {
  switch (dtype) {
    case U8: return raiseTo<uint8_t>(to, from, most);
    case U32: return raiseTo<uint32_t>(to, from, most);
    case I16: return raiseTo<int16_t>(to, from, most);
    case I32: return raiseTo<int32_t>(to, from, most);
    case I64: return raiseTo<int64_t>(to, from, most);
    case F32: return raiseTo<float>(to, from, most);
    default: return raiseTo<double>(to, from, most);
  }
}

// scatter, scatterAdd, scatterExtreme, indexAdd: places in row-major order of the source, so the last write wins; lanes
// along dim are independent.
struct Writer {
  const char* name;
  bool add, oneIndexARow, extreme;
};

Status write(const Call& c, const void* data) {
  const Writer& w = *static_cast<const Writer*>(data);
  const Operand &x = c.in(0), &ids = c.in(1), &out = c.out();
  const int dim = (int)c.integer(0);
  int64_t* at = nullptr;
  if (Status s = places(c, w.name, ids, x.shape[dim], &at)) return s;
  // Small floats add up in f32 and are rounded once, in memory of their own.
  const bool widen = (w.add || w.extreme) && isFloatType(out.dtype) && out.bytes() < 4;
  const int type = widen ? (int)F32 : out.dtype, bytes = ELEMENT_BYTES[type];
  Operand src = c.in(2);
  char* sums = out.data;
  void* owned[2] = {};
  if (widen) {
    owned[0] = malloc((size_t)(out.size() * 4 + 64));
    owned[1] = malloc((size_t)(src.size() * 4 + 64));
    if (!owned[0] || !owned[1]) {
      free(owned[0]);
      free(owned[1]);
      free(at);
      return fail(c, NO_MEMORY, "%s: no memory for sums of %" PRId64 " elements", w.name, out.size());
    }
    sums = static_cast<char*>(owned[0]);
    Operand wideSrc = denseLike(src, static_cast<char*>(owned[1]), F32);
    runStrided(isa->cast[src.dtype][F32], &c.in(2), 1, wideSrc, nullptr);
    src = wideSrc;
  }
  Operand target = denseLike(out, sums, type);
  runStrided(isa->cast[x.dtype][type], &x, 1, target, nullptr);
  // Everything but dim, split among threads; along dim the order is kept.
  int64_t shape[MAX_RANK], stride[3][MAX_RANK], lanes = 1, idStride[MAX_RANK] = {}, n = 1;
  for (int d = src.rank - 1; d >= 0; d--) {
    idStride[d] = n;
    n *= src.shape[d];
  }
  int rank = 0;
  for (int d = 0; d < src.rank; d++) {
    if (d == dim) continue;
    shape[rank] = src.shape[d];
    stride[0][rank] = src.stride[d];
    stride[1][rank] = target.stride[d];
    stride[2][rank] = w.oneIndexARow ? 0 : idStride[d];
    lanes *= src.shape[d];
    rank++;
  }
  const int64_t length = src.shape[dim], idStep = w.oneIndexARow ? 1 : idStride[dim];
  // Of extremes without what x holds, the first one at a place stays whatever it is.
  const bool most = w.extreme && c.params[1] != 0;
  char* fresh = w.extreme && c.params[2] == 0 ? static_cast<char*>(malloc((size_t)(out.size() + 1))) : nullptr;
  if (w.extreme && c.params[2] == 0 && !fresh) {
    free(owned[0]);
    free(owned[1]);
    free(at);
    return fail(c, NO_MEMORY, "%s: no memory to mark %" PRId64 " places", w.name, out.size());
  }
  if (fresh) memset(fresh, 1, (size_t)out.size());
  if (src.size() > 0)
    parallel(lanes, GRAIN / length + 1, [&](int64_t begin, int64_t end) {
      // Row by row along dim for neighbouring lanes keeps cache lines together.
      for (int64_t i = begin; i < end;) {
        const int64_t run = rank == 0 ? 1 : shape[rank - 1] - i % shape[rank - 1];
        const int64_t m = run < end - i ? run : end - i;
        Walk walk(rank, shape, stride, 3, i);
        const int64_t s0 = rank ? stride[0][rank - 1] : 0, s1 = rank ? stride[1][rank - 1] : 0,
                      s2 = rank ? stride[2][rank - 1] : 0;
        for (int64_t k = 0; k < length; k++) {
          for (int64_t j = 0; j < m; j++) {
            const int64_t place = at[walk.offset[2] + j * s2 + k * idStep];
            if (place == NONE) continue;
            const int64_t element = walk.offset[1] + j * s1 + place * target.stride[dim];
            char* to = sums + element * bytes;
            const char* from = src.data + (walk.offset[0] + j * s0 + k * src.stride[dim]) * bytes;
            if (w.add) addOne(type, to, from);
            else if (w.extreme && !(fresh && fresh[element])) raiseOne(type, to, from, most);
            else moveOne(to, from, bytes);
            if (fresh) fresh[element] = 0;
          }
        }
        i += m;
      }
    });
  if (widen) runStrided(isa->cast[F32][out.dtype], &target, 1, out, nullptr);
  free(fresh);
  free(owned[0]);
  free(owned[1]);
  free(at);
  return OK;
}

Status sliceScatter(const Call& c, const void*) {
  const Operand& src = c.in(1);
  const Operand& out = c.out();
  const int dim = (int)c.integer(0);
  copyStrided(c.in(0), out);
  Operand part = out;
  part.data += c.integer(1) * out.stride[dim] * out.bytes();
  part.shape[dim] = src.shape[dim];
  if (src.size() > 0) copyStrided(src, part);
  return OK;
}

// Rows go to their places in memory that keeps all its other rows.
Status storeRows(const Call& c, const void*) {
  const Operand &ids = c.in(1), &src = c.in(2), &out = c.out();
  const int64_t bytes = src.bytes(), width = out.shape[1];
  int64_t* at = nullptr;
  if (Status s = places(c, "storeRows", ids, out.shape[0], &at)) return s;
  // Threads share columns: of rows for the same place the last one stays.
  constexpr int64_t COLUMNS = 16;
  const int64_t rows = src.shape[0];
  parallel((width + COLUMNS - 1) / COLUMNS, 1 + (1 << 13) / (COLUMNS * (rows + 1)), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * COLUMNS, last = end * COLUMNS < width ? end * COLUMNS : width;
    for (int64_t i = 0; i < rows; i++) {
      if (at[i] == NONE) continue;
      const char* from = src.data + (i * src.stride[0] + first * src.stride[1]) * bytes;
      char* to = out.data + (at[i] * width + first) * bytes;
      if (src.stride[1] == 1) memcpy(to, from, (size_t)((last - first) * bytes));
      else
        for (int64_t j = 0; j < last - first; j++)
          moveOne(to + j * bytes, from + j * src.stride[1] * bytes, (int)bytes);
    }
  });
  free(at);
  return OK;
}

// Row r of x times the transposed matrix of expert ids[r]: rows of one expert are gathered and multiplied together.
// Matrices may be of 16 bits beside floats.
Status expertRows(const Call& c, const void*) {
  const Operand &x = c.in(0), &w = c.in(1), &ids = c.in(2), &out = c.out();
  const int64_t rows = x.shape[0], k = x.shape[1], n = w.shape[1], experts = w.shape[0], bytes = x.bytes();
  const int widened = w.dtype == x.dtype ? -1 : w.dtype;
  int64_t* of = nullptr;
  if (Status s = places(c, "expertRows", ids, experts, &of)) return s;
  int64_t* order = static_cast<int64_t*>(malloc((size_t)(rows + 1) * 8));
  char* given = static_cast<char*>(malloc((size_t)(rows * k * bytes + 64)));
  char* made = static_cast<char*>(malloc((size_t)(rows * n * bytes + 64)));
  Status status = OK;
  if (!order || !given || !made) status = fail(c, NO_MEMORY, "expertRows: no memory for %" PRId64 " rows", rows);
  int64_t from = 0;
  for (int64_t e = 0; status == OK && e < experts && from < rows; e++) {
    int64_t to = from;
    for (int64_t r = 0; r < rows; r++) {
      if (of[r] != e) continue;
      const char* row = x.data + r * x.stride[0] * bytes;
      for (int64_t j = 0; j < k && x.stride[1] != 1; j++)
        moveOne(given + (to * k + j) * bytes, row + j * x.stride[1] * bytes, (int)bytes);
      if (x.stride[1] == 1) memcpy(given + to * k * bytes, row, (size_t)(k * bytes));
      order[to++] = r;
    }
    if (to == from) continue;
    const Product p = {to - from,
                       n,
                       k,
                       {given + from * k * bytes, k, 1},
                       {w.data + e * w.stride[0] * w.bytes(), w.stride[2], w.stride[1], widened},
                       {made + from * n * bytes, n, 1}};
    isa->matmul[x.dtype](p, false);
    from = to;
  }
  for (int64_t i = 0; status == OK && i < from; i++)
    memcpy(out.data + order[i] * n * bytes, made + i * n * bytes, (size_t)(n * bytes));
  free(of);
  free(order);
  free(given);
  free(made);
  return status;
}

const Writer SCATTER = {"scatter", false, false, false}, SCATTER_ADD = {"scatterAdd", true, false, false},
             SCATTER_EXTREME = {"scatterReduce", false, false, true}, INDEX_ADD = {"indexAdd", true, true, false};

}  // namespace

WICK_OPS(indexing) = {{"gather", gather, nullptr},
                      {"indexSelect", indexSelect, nullptr},
                      {"indexAdd", write, &INDEX_ADD},
                      {"scatter", write, &SCATTER},
                      {"scatterAdd", write, &SCATTER_ADD},
                      {"sliceScatter", sliceScatter, nullptr},
                      {"storeRows", storeRows, nullptr},
                      {"expertRows", expertRows, nullptr},
                      {"scatterExtreme", write, &SCATTER_EXTREME},
                      {"takeWrapped", indexSelect, "take"},
                      {"indexSelectOr", indexSelect, "indexCopy"},
                      {nullptr, nullptr, nullptr}};

}  // namespace wick
