// Rows of attention that came out as NaN, made again key by key: in a tile's products a hidden key weighs 0, and 0 times
// NaN or infinity is NaN. Here only what weighs something is looked at, so that a NaN that stays is one that was seen.
#pragma once
#include "attention.h"

namespace wick {
namespace {

template <class E> bool hasNaN(const E* row, int64_t n) {
  typedef E Some __attribute__((vector_size(16)));
  constexpr int64_t N = sizeof(Some) / sizeof(E);
  decltype(Some() != Some()) found{};
  int64_t d = 0;
  for (; d + N <= n; d += N) {
    Some v;
    memcpy(&v, row + d, sizeof v);
    found |= v != v;
  }
  bool any = false;
  for (int i = 0; i < N; i++) any |= found[i] != 0;
  for (; d < n; d++) any |= row[d] != row[d];
  return any;
}
template <class E> E dotOf(const E* a, const E* b, int64_t n) {
  double sum = 0;
  for (int64_t d = 0; d < n; d++) sum += (double)a[d] * b[d];
  return (E)sum;
}
// What key j weighs for query i, and the logit's derivative by the product.
template <class E>
E weightOf(const Problem& p, const Sequence& s, int64_t head, int64_t i, int64_t j, const E* q, E lse, E& slope) {
  E key[256];
  load(p.k, keyRow(p, p.k, s, head / p.group, j), key);
  E x = dotOf(q, key, p.q.dim);
  bend<E>(p, s, head, i, j, 1, &x, &slope);
  return x == -(E)INFINITY ? E(0) : (E)exp((double)x - (double)lse);
}

// The result of a query whose log-sum-exp is known.
template <class E> void resultAgain(const Problem& p, const Sequence& s, int64_t head, int64_t i, E lse, E* out) {
  E q[256], value[256], slope;
  load(p.q, p.q.at(s.entry, head, s.qRow + i), q);
  for (int64_t d = 0; d < p.q.dim; d++) out[d] = 0;
  for (int64_t j = s.begin(p, i); j < s.end(p, i); j++) {
    const E w = weightOf(p, s, head, i, j, q, lse, slope);
    if (w == 0) continue;
    load(p.v, keyRow(p, p.v, s, head / p.group, j), value);
    for (int64_t d = 0; d < p.q.dim; d++) out[d] += w * value[d];
  }
}

// One query's side of the gradients: its row, that of its result's gradient, log-sum-exp and delta.
template <class E> struct QuerySide {
  E row[256], grad[256], lse, delta;
  QuerySide(const Call& c, const Problem& p, const Sequence& s, int64_t head, int64_t i) {
    const bool bthd = c.params[LAYOUT] != 0;
    const Rows dout(c.in(3), bthd);
    load(p.q, p.q.at(s.entry, head, s.qRow + i), row);
    load(dout, dout.at(s.entry, head, s.qRow + i), grad);
    lse = scalarAt<E>(c.in(4), s.entry, head, s.qRow + i);
    delta = c.in(5).rank == 4 ? deltaOf(Rows(c.in(5), bthd), s.entry, head, s.qRow + i, grad)
                              : scalarAt<E>(c.in(5), s.entry, head, s.qRow + i);
  }
  // What key j weighs, and the gradient of the product.
  E weigh(const Problem& p, const Sequence& s, int64_t head, int64_t i, int64_t j, E& g) const {
    E value[256], slope;
    const E w = weightOf(p, s, head, i, j, row, lse, slope);
    g = 0;
    if (w == 0) return w;
    load(p.v, keyRow(p, p.v, s, head / p.group, j), value);
    g = w * (dotOf(grad, value, p.q.dim) - delta) * slope;
    return w;
  }
};
template <class E>
void queryGradientAgain(const Call& c, const Problem& p, const Sequence& s, int64_t head, int64_t i, E* dq) {
  const QuerySide<E> query(c, p, s, head, i);
  E key[256], g;
  for (int64_t d = 0; d < p.q.dim; d++) dq[d] = 0;
  for (int64_t j = s.begin(p, i); j < s.end(p, i); j++) {
    if (query.weigh(p, s, head, i, j, g) == 0) continue;
    load(p.k, keyRow(p, p.k, s, head / p.group, j), key);
    for (int64_t d = 0; d < p.q.dim; d++) dq[d] += g * key[d];
  }
}
template <class E>
void keyGradientsAgain(const Call& c, const Problem& p, const Sequence& s, int64_t kvHead, int64_t j, E* dk, E* dv) {
  for (int64_t d = 0; d < p.q.dim; d++) dk[d] = dv[d] = 0;
  for (int64_t head = kvHead * p.group; head < (kvHead + 1) * p.group; head++) {
    for (int64_t i = 0; i < s.nq; i++) {
      if (j < s.begin(p, i) || j >= s.end(p, i)) continue;
      const QuerySide<E> query(c, p, s, head, i);
      E g;
      const E w = query.weigh(p, s, head, i, j, g);
      if (w == 0) continue;
      for (int64_t d = 0; d < p.q.dim; d++) dk[d] += g * query.row[d], dv[d] += w * query.grad[d];
      if (w != w) return;  // so are both rows
    }
  }
}

}  // namespace
}  // namespace wick
