// A call of attention on the CPU: its operands and options, where rows lie, and from products to logits.
#pragma once
#include <cmath>

#include "ops.h"
#include "engine/strided.h"

namespace wick {
namespace {

// The parameters as src/backends/cpu/pack.ts writes them.
enum { LAYOUT, SCALE, SOFTCAP, LEFT, RIGHT, LONGEST_Q, LONGEST_K, FIRST_EXTRA };
enum { MASK, SLOPES, SINKS, Q_STARTS, K_STARTS, LENGTHS, PAGES, EXTRA_COUNT };

// Keys and values may be bytes of Q8_0's blocks: ggml's number of the type, values and bytes of a block.
constexpr int Q8_0 = 8, Q8_VALUES = 32, Q8_BYTES = 34;

// A (batch, heads, rows, dim) operand in either layout; `stored` elements make up the `dim` numbers of a row.
struct Rows {
  char* data = nullptr;
  int dtype = 0, bytes = 0;
  int64_t batch = 0, heads = 0, rows = 0, dim = 0, stored = 0;
  int64_t perBatch = 0, perHead = 0, perRow = 0, step = 0;
  Rows() {}
  Rows(const Operand& x, bool bthd) : data(x.data), dtype(x.dtype), bytes(x.bytes()) {
    const int h = bthd ? 2 : 1, t = bthd ? 1 : 2;
    batch = x.shape[0], heads = x.shape[h], rows = x.shape[t], stored = x.shape[3];
    dim = dtype == U8 ? stored / Q8_BYTES * Q8_VALUES : stored;
    perBatch = x.stride[0], perHead = x.stride[h], perRow = x.stride[t], step = x.stride[3];
  }
  char* at(int64_t b, int64_t h, int64_t i) const { return data + (b * perBatch + h * perHead + i * perRow) * bytes; }
};

struct Problem {
  Rows q, k, v;
  const Operand* extra[EXTRA_COUNT] = {};
  double scale, softcap;
  int64_t left, right, batch, group;
  bool plain;  // scores are only scaled

  Problem(const Call& c, int first) {
    const bool bthd = c.params[LAYOUT] != 0;
    q = Rows(c.in(0), bthd), k = Rows(c.in(1), bthd), v = Rows(c.in(2), bthd);
    scale = c.params[SCALE], softcap = c.params[SOFTCAP];
    left = c.integer(LEFT), right = c.integer(RIGHT);
    for (int e = 0; e < EXTRA_COUNT; e++)
      if (c.params[FIRST_EXTRA + e] != 0) extra[e] = &c.in(first++);
    batch = extra[Q_STARTS] ? extra[Q_STARTS]->shape[0] - 1 : q.batch;
    group = q.heads / k.heads;
    plain = softcap == 0 && !extra[MASK] && !extra[SLOPES];
  }
  // Row numbers, lengths and page numbers are data: one that points outside its tensor is named before anything is read
  // by it.
  Status check(const Call& c) const {
    const int64_t room = extra[PAGES] ? extra[PAGES]->shape[1] * k.rows : k.rows;
    struct Starts {
      const char* name;
      int extra;
      int64_t rows, longest;
    };
    for (const Starts& s : {Starts{"qStarts", Q_STARTS, q.rows, c.integer(LONGEST_Q)},
                            Starts{"kStarts", K_STARTS, k.rows, c.integer(LONGEST_K)}}) {
      if (!extra[s.extra]) continue;
      for (int64_t b = 0; b < batch; b++) {
        const int64_t from = whole(s.extra, b), to = whole(s.extra, b + 1);
        if (from < 0 || to < from || to > s.rows)
          return fail(
              c, BAD_INDEX,
              "sdpa: %s runs from %lld to %lld at position %lld; starts ascend from 0 to the %lld rows there are",
              s.name, (long long)from, (long long)to, (long long)b, (long long)s.rows);
        if (to - from > s.longest)
          return fail(c, BAD_INDEX,
                      "sdpa: %s holds a sequence of %lld rows at position %lld, longer than the %lld that were said to "
                      "be the most",
                      s.name, (long long)(to - from), (long long)b, (long long)s.longest);
      }
    }
    if (!extra[LENGTHS]) return OK;
    for (int64_t b = 0; b < batch; b++) {
      const int64_t n = whole(LENGTHS, b);
      if (n < 0 || n > room)
        return fail(c, BAD_INDEX,
                    "sdpa: length %lld at position %lld is out of range; there is room for 0 to %lld keys",
                    (long long)n, (long long)b, (long long)room);
      for (int64_t i = 0; extra[PAGES] && i * k.rows < n; i++) {
        const Operand& table = *extra[PAGES];
        const int64_t page = table.as<int32_t>()[b * table.stride[0] + i * table.stride[1]];
        if (page < 0 || page >= k.batch)
          return fail(c, BAD_INDEX, "sdpa: page %lld at position [%lld, %lld] is out of range; there are %lld pages",
                      (long long)page, (long long)b, (long long)i, (long long)k.batch);
      }
    }
    return OK;
  }
  int64_t whole(int e, int64_t i) const { return extra[e]->as<int32_t>()[i * extra[e]->stride[0]]; }
  double real(int e, int64_t i) const { return extra[e]->as<float>()[i * extra[e]->stride[0]]; }
};

struct Sequence {
  int64_t batch, entry, qRow = 0, kRow = 0, nq, nk, offset;
  Sequence(const Problem& p, int64_t b) : batch(b), entry(p.extra[Q_STARTS] ? 0 : b), nq(p.q.rows), nk(p.k.rows) {
    if (p.extra[Q_STARTS]) qRow = p.whole(Q_STARTS, b), nq = p.whole(Q_STARTS, b + 1) - qRow;
    if (p.extra[K_STARTS]) kRow = p.whole(K_STARTS, b), nk = p.whole(K_STARTS, b + 1) - kRow;
    if (p.extra[LENGTHS]) nk = p.whole(LENGTHS, b);
    offset = nk - nq;
  }
  int64_t begin(const Problem& p, int64_t i) const {
    return p.left >= 0 && i + offset - p.left > 0 ? i + offset - p.left : 0;
  }
  int64_t end(const Problem& p, int64_t i) const {
    if (p.right < 0 || i + offset + p.right + 1 > nk) return nk;
    return i + offset + p.right + 1 > 0 ? i + offset + p.right + 1 : 0;
  }
};

template <class E> constexpr int typeOf = sizeof(E) == 4 ? F32 : F64;
template <class E> constexpr int wideIndex = sizeof(E) == 4 ? 0 : 1;

template <class E> void load(const Rows& x, const char* from, E* to) {
  alignas(64) char line[256 * 8];
  if (x.step != 1 && x.stored > 1) {
    gatherRun(line, from, x.step, x.stored, x.bytes);
    from = line;
  }
  if (x.dtype == U8) {
    float wide[256];
    float* decoded = sizeof(E) == 4 ? reinterpret_cast<float*>(to) : wide;
    isa->blocks[Q8_0]->decode(reinterpret_cast<const uint8_t*>(from), decoded, x.dim / Q8_VALUES);
    if (sizeof(E) == 8) castRun(F32, F64, wide, to, x.dim);
    return;
  }
  if (x.dtype == typeOf<E>) memcpy(to, from, x.dim * sizeof(E));
  else castRun(x.dtype, typeOf<E>, from, to, x.dim);
}
template <class E> void save(const Rows& x, const E* from, char* to) {
  if (x.dtype == typeOf<E>) memcpy(to, from, x.dim * sizeof(E));
  else castRun(typeOf<E>, x.dtype, from, to, x.dim);
}

// Row `at` of a sequence's page of keys or values.
inline const char* pageRow(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t page, int64_t at) {
  const Operand& table = *p.extra[PAGES];
  return x.at(table.as<int32_t>()[s.batch * table.stride[0] + page * table.stride[1]], head, at);
}
// Row j of a sequence's keys or values, which may be in pages.
inline const char* keyRow(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t j) {
  if (!p.extra[PAGES]) return x.at(s.entry, head, s.kRow + j);
  return pageRow(p, x, s, head, j / x.rows, j % x.rows);
}

// Cap, alibi and mask of scores from..to of one row; they come as products and leave as logits. `slopes` gets the
// derivative.
template <class E>
void bend(const Problem& p, const Sequence& s, int64_t head, int64_t i, int64_t j0, int64_t n, E* row, E* slopes) {
  const Operand* mask = p.extra[MASK];
  const double slope = p.extra[SLOPES] ? p.real(SLOPES, head) : 0;
  for (int64_t j = 0; j < n; j++) {
    double x = row[j] * p.scale, f = p.scale;
    if (p.softcap != 0) {
      const double t = sizeof(E) == 4 ? (double)tanhf((float)(x / p.softcap)) : tanh(x / p.softcap);
      x = p.softcap * t, f = p.scale * (1 - t * t);
    }
    const int64_t distance = i + s.offset - (j0 + j);
    x -= slope * (double)(distance < 0 ? -distance : distance);
    if (mask) {
      const int64_t at =
          s.batch * mask->stride[0] + head * mask->stride[1] + i * mask->stride[2] + (j0 + j) * mask->stride[3];
      if (mask->dtype == U8) {
        if (!mask->as<uint8_t>()[at]) x = -INFINITY;
      } else {
        E added;
        if (mask->dtype == typeOf<E>) added = mask->as<E>()[at];
        else castRun(mask->dtype, typeOf<E>, mask->data + at * mask->bytes(), &added, 1);
        x = added == -(E)INFINITY ? -INFINITY : x + added;  // what is hidden may be NaN
      }
    }
    row[j] = (E)x;
    if (slopes) slopes[j] = (E)f;
  }
}

template <class E> E scalarAt(const Operand& x, int64_t b, int64_t h, int64_t i) {
  const int64_t at = b * x.stride[0] + h * x.stride[1] + i * x.stride[2];
  if (x.dtype == typeOf<E>) return x.as<E>()[at];
  E wide;
  castRun(x.dtype, typeOf<E>, x.data + at * x.bytes(), &wide, 1);
  return wide;
}

// A row of the result times the same row of its gradient.
template <class E> E deltaOf(const Rows& out, int64_t entry, int64_t head, int64_t i, const E* grad) {
  E row[256];
  load(out, out.at(entry, head, i), row);
  double sum = 0;
  for (int64_t d = 0; d < out.dim; d++) sum += (double)row[d] * grad[d];
  return (E)sum;
}

}  // namespace
}  // namespace wick
