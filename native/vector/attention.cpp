// The inner loops of attention: one row of scores at a time, in float or double.
#include "isa.h"

namespace {

template <class E> WICK_FN E expOne(E x) { return expg(Vec<E>(x)).r[0]; }

// Scores become weights relative to the largest so far; top, sum and the factor for what was added before are kept in
// stats.
template <class E> void online(void* row, int64_t n, double scale, void* stats) {
  typedef Vec<E> V;
  E* s = static_cast<E*>(row);
  E* stat = static_cast<E*>(stats);
  const V vs = V(E(scale));
  V a(stat[0]), b = a, c = a, d = a;
  auto larger = [&](V best, int64_t at) { return maxg<E>(best, V::load(s + at) * vs); };  // NaN is passed over
  int64_t i = 0;
  for (; i + 4 * V::N <= n; i += 4 * V::N)
    a = larger(a, i), b = larger(b, i + V::N), c = larger(c, i + 2 * V::N), d = larger(d, i + 3 * V::N);
  for (; i + V::N <= n; i += V::N) a = larger(a, i);
  a = select(b > a, b, a), c = select(d > c, d, c), a = select(c > a, c, a);
  E top = a.r[0];
  for (int k = 1; k < V::N; k++) top = a.r[k] > top ? a.r[k] : top;
  for (; i < n; i++) top = s[i] * E(scale) > top ? s[i] * E(scale) : top;
  if (top == -__builtin_inf()) {  // nothing is seen yet
    for (i = 0; i < n; i++) s[i] = 0;
    stat[2] = 1;
    return;
  }
  const V vt(top);
  V sum(E(0)), other(E(0));
  i = 0;
  if constexpr (Same<E, float>::value) {
    // The bound of attention leaves room for the rough exponential.
    for (; i + CHAINS * F::N <= n; i += CHAINS * F::N) {
      F v[CHAINS];
      WICK_EACH(CHAINS) v[u] = mad(F::load(s + i + u * F::N), vs, -vt);
      expAll<false>(v);
      WICK_EACH(CHAINS) v[u].store(s + i + u * F::N);
      for (int u = 0; u < CHAINS; u += 4) sum += v[u] + v[u + 1], other += v[u + 2] + v[u + 3];
    }
  }
  for (; i + V::N <= n; i += V::N) {
    V e = expg(mad(V::load(s + i), vs, -vt));
    e.store(s + i);
    sum += e;
  }
  sum += other;
  E added = 0;
  for (int k = 0; k < V::N; k++) added += sum.r[k];
  for (; i < n; i++) added += s[i] = expOne<E>(s[i] * E(scale) - top);
  const E keep = stat[0] == -__builtin_inf() ? E(0) : expOne<E>(stat[0] - top);
  stat[1] = stat[1] * keep + added;
  stat[0] = top;
  stat[2] = keep;
}

template <class E> void multiply(void* row, int64_t n, double by) {
  typedef Vec<E> V;
  E* x = static_cast<E*>(row);
  const V vb = V(E(by));
  int64_t i = 0;
  for (; i + V::N <= n; i += V::N) (V::load(x + i) * vb).store(x + i);
  for (; i < n; i++) x[i] *= E(by);
}

template <class V> WICK_FN auto total(V v) {
  auto sum = v.r[0];
  for (int k = 1; k < V::N; k++) sum += v.r[k];
  return sum;
}
// scores[i][j] = q[i] . k[j] for m queries and n keys; four keys at a time share what is loaded of the query.
template <class E>
void dots(const void* queries, int64_t m, int64_t dim, const void* keys, int64_t row, int64_t n, void* scores,
          int64_t scoreRow) {
  typedef Vec<E> V;
  const int64_t whole = dim / V::N * V::N;
  for (int64_t i = 0; i < m; i++) {
    const E* q = static_cast<const E*>(queries) + i * dim;
    E* out = static_cast<E*>(scores) + i * scoreRow;
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const E* k = static_cast<const E*>(keys) + j * row;
      V a(E(0)), b = a, c = a, d = a;
      for (int64_t e = 0; e < whole; e += V::N) {
        const V x = V::load(q + e);
        a = mad(x, V::load(k + e), a), b = mad(x, V::load(k + row + e), b);
        c = mad(x, V::load(k + 2 * row + e), c), d = mad(x, V::load(k + 3 * row + e), d);
      }
      out[j] = total(a), out[j + 1] = total(b), out[j + 2] = total(c), out[j + 3] = total(d);
      for (int64_t e = whole; e < dim; e++)
        for (int u = 0; u < 4; u++) out[j + u] += q[e] * k[u * row + e];
    }
    for (; j < n; j++) {
      const E* k = static_cast<const E*>(keys) + j * row;
      V a(E(0));
      for (int64_t e = 0; e < whole; e += V::N) a = mad(V::load(q + e), V::load(k + e), a);
      out[j] = total(a);
      for (int64_t e = whole; e < dim; e++) out[j] += q[e] * k[e];
    }
  }
}
// out[i] += the sum of weights[i][j] v[j]: stretches of a row stay in registers while values go by.
template <class E>
void weigh(void* outs, int64_t m, int64_t dim, const void* values, int64_t row, int64_t n, const void* weights,
           int64_t weightRow) {
  typedef Vec<E> V;
  constexpr int U = 8;
  for (int64_t i = 0; i < m; i++) {
    E* out = static_cast<E*>(outs) + i * dim;
    const E* w = static_cast<const E*>(weights) + i * weightRow;
    const E* v = static_cast<const E*>(values);
    int64_t e = 0;
    for (; e + U * V::N <= dim; e += U * V::N) {
      V acc[U];
      WICK_EACH(U) acc[u] = V::load(out + e + u * V::N);
      for (int64_t j = 0; j < n; j++) {
        const V x(w[j]);
        WICK_EACH(U) acc[u] = mad(x, V::load(v + j * row + e + u * V::N), acc[u]);
      }
      WICK_EACH(U) acc[u].store(out + e + u * V::N);
    }
    for (; e + V::N <= dim; e += V::N) {
      V acc = V::load(out + e);
      for (int64_t j = 0; j < n; j++) acc = mad(V(w[j]), V::load(v + j * row + e), acc);
      acc.store(out + e);
    }
    for (; e < dim; e++)
      for (int64_t j = 0; j < n; j++) out[e] += w[j] * v[j * row + e];
  }
}

// Scores become weights by the saved log-sum-exp, gradients of weights those of products. `slopes` where the logit is
// bent.
template <class E>
void backward(void* scores, void* grads, int64_t n, double scale, double lse, double delta, const void* slopes) {
  typedef Vec<E> V;
  E* s = static_cast<E*>(scores);
  E* g = static_cast<E*>(grads);
  const E* f = static_cast<const E*>(slopes);
  const E factor = f ? E(1) : E(scale), by = f ? E(1) : E(scale);
  const V vf(factor), vl = V(E(lse)), vd = V(E(delta)), vb(by);
  int64_t i = 0;
  for (; i + V::N <= n; i += V::N) {
    V w = expg(V::load(s + i) * vf - vl), d = w * (V::load(g + i) - vd) * vb;
    w.store(s + i);
    (f ? d * V::load(f + i) : d).store(g + i);
  }
  for (; i < n; i++) {
    s[i] = expOne<E>(s[i] * factor - E(lse));
    g[i] = s[i] * (g[i] - E(delta)) * by * (f ? f[i] : E(1));
  }
}

}  // namespace

extern "C" void WICK_EXPORT(wick_attention)(wick::IsaTable* t) {
  t->attend[0] = {online<float>, multiply<float>, backward<float>, dots<float>, weigh<float>};
  t->attend[1] = {online<double>, multiply<double>, backward<double>, dots<double>, weigh<double>};
}
