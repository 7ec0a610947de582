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
  t->attend[0] = {online<float>, multiply<float>, backward<float>};
  t->attend[1] = {online<double>, multiply<double>, backward<double>};
}
