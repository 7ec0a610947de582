// Attention on the CPU: tiles of queries against blocks of keys with an online softmax, products by the packed GEMM,
// threads over tiles.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention-again.h"
#include "engine/threads.h"

namespace wick {
namespace {

// queries of a tile: more forward where they share all keys, see tileQueries
constexpr int64_t QUERIES = 64, KEYS = 256, TASK = 1 << 18;
// A lone query waits for memory: what a thread should at least get of it, and keys whose heads are read together.
constexpr int64_t LONE_TASK = 1 << 15, TOGETHER = 32;

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
    for (int64_t i = 0; i < n; i++) load(x, keyRow(p, x, s, head, j + i), room + i * x.dim);
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

// Neighbouring rows of keys or values where they lie, one run after another: f(rows, distance of rows, from, count).
template <class E, class F>
void eachRun(const Problem& p, const Rows& x, const Sequence& s, int64_t head, int64_t j0, int64_t n, F f) {
  if (!p.extra[PAGES]) return f(reinterpret_cast<const E*>(keyRow(p, x, s, head, j0)), x.perRow, 0, n);
  // Divided once: a division takes as long as a key's products.
  int64_t page = j0 / x.rows, at = j0 % x.rows;
  for (int64_t i = 0; i < n; page++, at = 0) {
    const int64_t count = n - i < x.rows - at ? n - i : x.rows - at;
    f(reinterpret_cast<const E*>(pageRow(p, x, s, head, page, at)), x.perRow, i, count);
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
      sum = sum * keep + (sink == -INFINITY ? 0 : exp(sink - with));
      top = with;
    }
    // A score that is NaN makes the sum NaN, and so the row; if nothing was seen it is 0.
    const E logSum = (E)(sum == 0 ? -INFINITY : top + log(sum));
    rows.multiply(o + r * dim, dim, sum == 0 ? 0 : keep / sum);
    if (sum == sum && hasNaN(o + r * dim, dim)) resultAgain(p, s, head, first + r % count, logSum, o + r * dim);
    save(out, o + r * dim, out.at(s.entry, head, i));
    lse.as<E>()[s.entry * lse.stride[0] + head * lse.stride[1] + i * lse.stride[2]] = logSum;
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
      for (int64_t r = 0; r < count; r++) {
        if (hasNaN(acc + r * dim, dim)) queryGradientAgain(c, p, s, head, first + r, acc + r * dim);
        save(dq, acc + r * dim, dq.at(s.entry, head, s.qRow + first + r));
      }
    }
  }
  for (int64_t j = 0; j < s.nk; j++) {
    E *key = keySums + j * dim, *value = valueSums + j * dim;
    if (hasNaN(key, dim) || hasNaN(value, dim)) keyGradientsAgain(c, p, s, kvHead, j, key, value);
    save(dk, key, dk.at(s.entry, kvHead, s.kRow + j));
    save(dv, value, dv.at(s.entry, kvHead, s.kRow + j));
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
