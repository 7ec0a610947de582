// Attention on the CPU: tiles of queries against blocks of keys with an online softmax, products by the packed GEMM,
// threads over tiles.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

// queries of a tile: more forward where they share all keys, see tileQueries
constexpr int64_t QUERIES = 64, KEYS = 256, TASK = 1 << 18;
// A lone query waits for memory: what a thread should at least get of it, and keys whose heads are read together.
constexpr int64_t LONE_TASK = 1 << 15, TOGETHER = 32;

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

// A block of keys or values: in place where it can be, else copied.
template <class E> struct Block {
  const E* data;
  int64_t row;
  Block(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t j, int64_t n, E* room) {
    if (!p.extra[PAGES] && x.dtype == typeOf<E> && x.step == 1) {
      data = reinterpret_cast<const E*>(x.at(s.entry, head, s.kRow + j)), row = x.perRow;
      return;
    }
    data = room, row = x.dim;
    for (int64_t i = 0; i < n; i++) {
      const char* from;
      if (const Operand* table = p.extra[PAGES]) {
        const int64_t page = table->as<int32_t>()[s.batch * table->stride[0] + (j + i) / x.rows * table->stride[1]];
        from = x.at(page, head, (j + i) % x.rows);
      } else {
        from = x.at(s.entry, head, s.kRow + j + i);
      }
      load(x, from, room + i * x.dim);
    }
  }
};

template <class E>
void product(int64_t m, int64_t n, int64_t k, const E* a, int64_t aRow, int64_t aColumn, const E* b, int64_t bRow,
             int64_t bColumn, E* out, int64_t outRow, bool add) {
  Product p = {m,
               n,
               k,
               {reinterpret_cast<const char*>(a), aRow, aColumn},
               {reinterpret_cast<const char*>(b), bRow, bColumn},
               {reinterpret_cast<const char*>(out), outRow, 1}};
  isa->matmul[typeOf<E>](p, add);
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
        x += added;
      }
    }
    row[j] = (E)x;
    if (slopes) slopes[j] = (E)f;
  }
}

// Neighbouring rows of keys or values where they lie, one run after another: f(rows, distance of rows, from, count).
template <class E, class F>
void eachRun(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t j0, int64_t n, F f) {
  const Operand* table = p.extra[PAGES];
  for (int64_t i = 0; i < n;) {
    const int64_t j = j0 + i;
    int64_t count = n - i;
    const char* from;
    if (table) {
      const int64_t page = table->as<int32_t>()[s.batch * table->stride[0] + j / x.rows * table->stride[1]];
      from = x.at(page, head, j % x.rows);
      if (count > x.rows - j % x.rows) count = x.rows - j % x.rows;
    } else {
      from = x.at(s.entry, head, s.kRow + j);
    }
    f(reinterpret_cast<const E*>(from), x.perRow, i, count);
    i += count;
  }
}
template <class E> bool liesOpen(const Rows& x) { return x.dtype == typeOf<E> && x.step == 1; }

// A lone query's keys are read once: to copy or to pack them would cost more than the products.
template <class E> bool readsOpen(const Problem& p, int64_t queries) {
  return queries == 1 && liesOpen<E>(p.k) && liesOpen<E>(p.v);
}
// Calls f(rows, distance of rows, key head, from, count) for `heads` key heads from `head` on. Heads of a token are
// neighbours in memory, so a few tokens go by for all of them, then the next few.
template <class E, class F>
void eachHead(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t heads, int64_t j0, int64_t n,
              F f) {
  eachRun<E>(p, x, s, head, j0, n, [&](const E* from, int64_t row, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += TOGETHER)
      for (int64_t h = 0; h < heads; h++)
        f(from + i * row + h * x.perHead, row, h, at + i, count - i < TOGETHER ? count - i : TOGETHER);
  });
}

// Queries first .. first+count of `heads` heads as one tile of rows. They share a key head, unless they read open.
template <class E>
void forwardTile(const Problem& p, const Rows& out, const Operand& lse, const Sequence& s, int64_t head0, int64_t heads,
                 int64_t first, int64_t count) {
  const int64_t dim = p.q.dim, m = heads * count, kvHead = head0 / p.group;
  E* room = static_cast<E*>(scratch(SCRATCH_X, (m * (2 * dim + KEYS + 3) + 2 * KEYS * dim + 64) * sizeof(E)));
  E *q = room, *o = q + m * dim, *scores = o + m * dim, *stats = scores + m * KEYS, *keys = stats + 3 * m,
    *values = keys + KEYS * dim;
  for (int64_t r = 0; r < m; r++) {
    load(p.q, p.q.at(s.entry, head0 + r / count, s.qRow + first + r % count), q + r * dim);
    stats[3 * r] = -INFINITY, stats[3 * r + 1] = 0;
  }
  memset(o, 0, m * dim * sizeof(E));
  const auto& rows = isa->attend[wideIndex<E>];
  const int64_t begin = s.begin(p, first), end = s.end(p, first + count - 1);
  const bool open = readsOpen<E>(p, count);
  const int64_t sharing = heads < p.group ? heads : p.group, keyHeads = heads / sharing;
  for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
    const int64_t n = end - j0 < KEYS ? end - j0 : KEYS;
    if (open) {
      eachHead<E>(
          p, p.k, s, kvHead, keyHeads, j0, n, [&](const E* k, int64_t row, int64_t h, int64_t at, int64_t some) {
            rows.dots(q + h * sharing * dim, sharing, dim, k, row, some, scores + h * sharing * KEYS + at, KEYS);
          });
    } else {
      Block<E> k(p, p.k, s, kvHead, j0, n, keys);
      product(m, n, dim, q, dim, 1, k.data, 1, k.row, scores, KEYS, false);
    }
    for (int64_t r = 0; r < m; r++) {
      const int64_t i = first + r % count;
      E* row = scores + r * KEYS;
      const int64_t from = s.begin(p, i) > j0 ? s.begin(p, i) - j0 : 0,
                    to = s.end(p, i) - j0 < n ? s.end(p, i) - j0 : n;
      if (from >= to) {
        memset(row, 0, n * sizeof(E));
        continue;
      }
      memset(row, 0, from * sizeof(E));
      memset(row + to, 0, (n - to) * sizeof(E));
      if (!p.plain) bend<E>(p, s, head0 + r / count, i, j0 + from, to - from, row + from, nullptr);
      rows.online(row + from, to - from, p.plain ? p.scale : 1, stats + 3 * r);
      if (stats[3 * r + 2] != 1) rows.multiply(o + r * dim, dim, stats[3 * r + 2]);
    }
    if (open) {
      eachHead<E>(
          p, p.v, s, kvHead, keyHeads, j0, n, [&](const E* v, int64_t row, int64_t h, int64_t at, int64_t some) {
            rows.weigh(o + h * sharing * dim, sharing, dim, v, row, some, scores + h * sharing * KEYS + at, KEYS);
          });
    } else {
      Block<E> v(p, p.v, s, kvHead, j0, n, values);
      product(m, dim, n, scores, KEYS, 1, v.data, v.row, 1, o, dim, true);
    }
  }
  for (int64_t r = 0; r < m; r++) {
    const int64_t head = head0 + r / count, i = s.qRow + first + r % count;
    double top = stats[3 * r], sum = stats[3 * r + 1], keep = 1;
    if (p.extra[SINKS]) {
      const double sink = p.real(SINKS, head), with = sink > top ? sink : top;
      keep = top == -INFINITY ? 0 : exp(top - with);
      sum = sum * keep + exp(sink - with);
      top = with;
    }
    rows.multiply(o + r * dim, dim, sum > 0 ? keep / sum : 0);
    save(out, o + r * dim, out.at(s.entry, head, i));
    lse.as<E>()[s.entry * lse.stride[0] + head * lse.stride[1] + i * lse.stride[2]] =
        (E)(sum > 0 ? top + log(sum) : -INFINITY);
  }
}

// Keys are packed once a tile, so tall tiles pay; but where queries see different keys a tall tile computes what it
// masks, and every thread wants a tile.
int64_t tileQueries(const Problem& p) {
  // where keys begin with the tile, its height must not depend on the threads: sums would
  if (p.left >= 0) return QUERIES;
  int64_t queries = p.right >= 0 ? 2 * QUERIES : 4 * QUERIES;
  while (queries > QUERIES && p.batch * p.q.heads * ((p.q.rows + queries - 1) / queries) < 4 * threadCount())
    queries /= 2;
  return queries;
}

template <class E> Status forward(const Call& c) {
  Problem p(c, 3);
  if (Status bad = p.check(c)) return bad;
  const Rows out(c.out(), c.params[LAYOUT] != 0);
  const Operand& lse = c.out(1);
  for (int64_t i = 0; p.extra[Q_STARTS] && i < p.q.rows; i++) {  // rows that belong to no sequence
    if (i >= p.whole(Q_STARTS, 0) && i < p.whole(Q_STARTS, p.batch)) continue;
    for (int64_t h = 0; h < p.q.heads; h++) {
      memset(out.at(0, h, i), 0, out.dim * out.bytes);
      lse.as<E>()[h * lse.stride[1] + i * lse.stride[2]] = -INFINITY;
    }
  }
  const int64_t queries = tileQueries(p);
  struct Tile {
    int64_t batch, head, heads, first, count;
  };
  std::vector<Tile> tiles;
  int64_t work = 0;
  for (int64_t b = 0; b < p.batch; b++) {
    const Sequence s(p, b);
    // Heads that share keys go together while their queries fit a tile; so do those whose keys are neighbours.
    const bool together = p.group * s.nq <= queries, open = together && readsOpen<E>(p, s.nq);
    const int64_t share = (p.batch * p.k.heads + threadCount() - 1) / threadCount();
    const int64_t keyHeads = open && p.k.perHead < p.k.perRow && share > 1 ? share : 1,
                  heads = together ? p.group * keyHeads : 1;
    for (int64_t h = 0; h < p.q.heads; h += heads)
      for (int64_t i = 0; i < s.nq; i += queries)
        tiles.push_back(
            {b, h, heads < p.q.heads - h ? heads : p.q.heads - h, i, s.nq - i < queries ? s.nq - i : queries});
    work += s.nk * s.nq * p.q.heads * p.q.dim * (open ? TASK / LONE_TASK : 1);
  }
  // Where queries see only what came before, late ones take longest: they come first, so that threads end together.
  if (p.right >= 0)
    std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.first > b.first; });
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n++) {
      const Tile& t = tiles[n];
      forwardTile<E>(p, out, lse, Sequence(p, t.batch), t.head, t.heads, t.first, t.count);
    }
  };
  const int64_t each = work / ((int64_t)tiles.size() + 1) + 1;
  if (each >= TASK) parallelTasks((int64_t)tiles.size(), run);
  else parallel((int64_t)tiles.size(), TASK / each + 1, run);
  return OK;
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

// All gradients of one key head: its keys' are added up in floats or doubles of our own.
template <class E> void backwardHead(const Call& c, const Problem& p, const Sequence& s, int64_t kvHead) {
  const bool bthd = c.params[LAYOUT] != 0, isResult = c.in(5).rank == 4;
  const Rows dout(c.in(3), bthd), dq(c.out(0), bthd), dk(c.out(1), bthd), dv(c.out(2), bthd);
  const int64_t dim = p.q.dim, sums = s.nk * dim;
  E* room = static_cast<E*>(
      scratch(SCRATCH_Y, (2 * sums + QUERIES * (3 * dim + 3 * KEYS) + 2 * KEYS * dim + 64) * sizeof(E)));
  E *keySums = room, *valueSums = keySums + sums, *q = valueSums + sums, *g = q + QUERIES * dim,
    *acc = g + QUERIES * dim;
  E *scores = acc + QUERIES * dim, *grads = scores + QUERIES * KEYS, *slopes = grads + QUERIES * KEYS,
    *keys = slopes + QUERIES * KEYS, *values = keys + KEYS * dim;
  memset(keySums, 0, 2 * sums * sizeof(E));
  const auto& rows = isa->attend[wideIndex<E>];
  for (int64_t head = kvHead * p.group; head < (kvHead + 1) * p.group; head++) {
    for (int64_t first = 0; first < s.nq; first += QUERIES) {
      const int64_t count = s.nq - first < QUERIES ? s.nq - first : QUERIES;
      E delta[QUERIES];
      for (int64_t r = 0; r < count; r++) {
        const int64_t i = s.qRow + first + r;
        load(p.q, p.q.at(s.entry, head, i), q + r * dim);
        load(dout, dout.at(s.entry, head, i), g + r * dim);
        if (!isResult) delta[r] = scalarAt<E>(c.in(5), s.entry, head, i);
        else delta[r] = deltaOf(Rows(c.in(5), bthd), s.entry, head, i, g + r * dim);
      }
      memset(acc, 0, count * dim * sizeof(E));
      const int64_t begin = s.begin(p, first), end = s.end(p, first + count - 1);
      for (int64_t j0 = begin; j0 < end; j0 += KEYS) {
        const int64_t n = end - j0 < KEYS ? end - j0 : KEYS;
        Block<E> k(p, p.k, s, kvHead, j0, n, keys), v(p, p.v, s, kvHead, j0, n, values);
        product(count, n, dim, q, dim, 1, k.data, 1, k.row, scores, KEYS, false);
        product(count, n, dim, g, dim, 1, v.data, 1, v.row, grads, KEYS, false);
        for (int64_t r = 0; r < count; r++) {
          const int64_t i = first + r;
          E *row = scores + r * KEYS, *grad = grads + r * KEYS;
          int64_t from = s.begin(p, i) > j0 ? s.begin(p, i) - j0 : 0, to = s.end(p, i) - j0 < n ? s.end(p, i) - j0 : n;
          if (from >= to) from = to = 0;
          memset(row, 0, from * sizeof(E));
          memset(grad, 0, from * sizeof(E));
          memset(row + to, 0, (n - to) * sizeof(E));
          memset(grad + to, 0, (n - to) * sizeof(E));
          if (from == to) continue;
          const E lse = scalarAt<E>(c.in(4), s.entry, head, s.qRow + i);
          if (lse == -INFINITY) {  // the row saw no key
            memset(row, 0, n * sizeof(E));
            memset(grad, 0, n * sizeof(E));
            continue;
          }
          if (!p.plain) bend<E>(p, s, head, i, j0 + from, to - from, row + from, slopes);
          rows.backward(row + from, grad + from, to - from, p.scale, lse, delta[r], p.plain ? nullptr : slopes);
        }
        product(n, dim, count, scores, 1, KEYS, g, dim, 1, valueSums + j0 * dim, dim, true);
        product(n, dim, count, grads, 1, KEYS, q, dim, 1, keySums + j0 * dim, dim, true);
        product(count, dim, n, grads, KEYS, 1, k.data, k.row, 1, acc, dim, true);
      }
      for (int64_t r = 0; r < count; r++) save(dq, acc + r * dim, dq.at(s.entry, head, s.qRow + first + r));
    }
  }
  for (int64_t j = 0; j < s.nk; j++) {
    save(dk, keySums + j * dim, dk.at(s.entry, kvHead, s.kRow + j));
    save(dv, valueSums + j * dim, dv.at(s.entry, kvHead, s.kRow + j));
  }
}

template <class E> Status backward(const Call& c) {
  Problem p(c, 6);
  if (Status bad = p.check(c)) return bad;
  if (p.extra[Q_STARTS])
    for (int i = 0; i < 3; i++) memset(c.out(i).data, 0, c.out(i).size() * c.out(i).bytes());
  parallel(p.batch * p.k.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n++) backwardHead<E>(c, p, Sequence(p, n / p.k.heads), n % p.k.heads);
  });
  return OK;
}

template <class E> Status delta(const Call& c) {
  const bool bthd = c.params[LAYOUT] != 0;
  const Rows x(c.in(0), bthd), y(c.in(1), bthd);
  E* out = c.out().as<E>();
  parallel(x.batch * x.heads * x.rows, 8192 / (x.dim + 1) + 1, [&](int64_t begin, int64_t end) {
    E grad[256];
    for (int64_t n = begin; n < end; n++) {
      const int64_t i = n % x.rows, h = n / x.rows % x.heads, e = n / x.rows / x.heads;
      load(y, y.at(e, h, i), grad);
      out[n] = deltaOf(x, e, h, i, grad);
    }
  });
  return OK;
}

typedef Status (*Run)(const Call&);
struct Pair {
  Run single, wide;
};
Status run(const Call& c, const void* data) {
  const Pair& pair = *static_cast<const Pair*>(data);
  return (c.in(0).dtype == F64 ? pair.wide : pair.single)(c);
}
const Pair FORWARD = {forward<float>, forward<double>}, BACKWARD = {backward<float>, backward<double>},
           DELTA = {delta<float>, delta<double>};

}  // namespace

WICK_OPS(attention) = {{"sdpaRun", run, &FORWARD},
                       {"sdpaBackward", run, &BACKWARD},
                       {"sdpaDelta", run, &DELTA},
                       {nullptr, nullptr, nullptr}};

}  // namespace wick
