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
  if (top == -__builtin_inf()) {  // nothing is seen yet, or NaN
    for (i = 0; i < n; i++) stat[1] += s[i] = s[i] == s[i] ? E(0) : s[i];
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

// Lanes of two vectors by turns, H of each: those at the beginning of every 2 H lanes plus those behind them.
template <int H, int N> constexpr int lane(int at) { return at & H ? N + at - H : at; }
#define WICK_TWO(X, i) X(i), X(i + 1)
#define WICK_FOUR(X, i) WICK_TWO(X, i), WICK_TWO(X, i + 2)
#define WICK_EIGHT(X, i) WICK_FOUR(X, i), WICK_FOUR(X, i + 4)
#define WICK_NEAR(i) lane<H, N>(i)
#define WICK_FAR(i) lane<H, N>(i) + H
#define WICK_ADDED(LIST) WICK_SHUFFLE(I, a.r, b.r, LIST(WICK_NEAR)) + WICK_SHUFFLE(I, a.r, b.r, LIST(WICK_FAR))
#define WICK_LIST2(X) WICK_TWO(X, 0)
#define WICK_LIST4(X) WICK_FOUR(X, 0)
#define WICK_LIST8(X) WICK_EIGHT(X, 0)
#define WICK_LIST16(X) WICK_EIGHT(X, 0), WICK_EIGHT(X, 8)
template <int H, class V> WICK_FN V folded(V a, V b) {
  typedef typename V::Int::R I;
  constexpr int N = V::N;
  if constexpr (N == 2) return V(WICK_ADDED(WICK_LIST2));
  else if constexpr (N == 4) return V(WICK_ADDED(WICK_LIST4));
  else if constexpr (N == 8) return V(WICK_ADDED(WICK_LIST8));
  else return V(WICK_ADDED(WICK_LIST16));
}
// As many vectors as a vector has lanes become one of their sums. Each is added up in the same order.
template <int H, class V> WICK_FN V sumsOf(V (&v)[V::N]) {
#pragma GCC unroll 8
  for (int i = 0; i < H; i++) v[i] = folded<H>(v[i], v[i + H]);
  if constexpr (H > 1) return sumsOf<H / 2>(v);
  else return v[0];
}
// Adds the products of STEPS vectors of a query, from element e on, with those of keys.
template <int STEPS, class V, class E>
WICK_FN void addDots(const E* q, const E* const (&key)[V::N], int64_t e, V (&acc)[V::N]) {
  V x[STEPS];
  WICK_EACH(STEPS) x[u] = V::load(q + u * V::N);
#pragma GCC unroll 16
  for (int k = 0; k < V::N; k++) WICK_EACH(STEPS) acc[k] = mad(x[u], V::load(key[k] + e + u * V::N), acc[k]);
}
// scores[i][j] = q[i] . k[j] for m queries and n keys: as many keys side by side as a vector has lanes.
template <class E>
void dots(const void* queries, int64_t m, int64_t dim, const void* keys, int64_t row, int64_t n, void* scores,
          int64_t scoreRow) {
  typedef Vec<E> V;
  constexpr int N = V::N;
  const int64_t whole = dim / N * N;
  for (int64_t j = 0; j < n; j += N) {
    const int64_t count = n - j < N ? n - j : N;
    const E* key[N];  // behind the last key comes the last again
#pragma GCC unroll 16
    for (int u = 0; u < N; u++) key[u] = static_cast<const E*>(keys) + (j + (u < count ? u : count - 1)) * row;
    for (int64_t i = 0; i < m; i++) {
      const E* q = static_cast<const E*>(queries) + i * dim;
      V acc[N];
#pragma GCC unroll 16
      for (int u = 0; u < N; u++) acc[u] = V(E(0));
      int64_t e = 0;
      for (; e + 4 * N <= whole; e += 4 * N) addDots<4>(q + e, key, e, acc);
      for (; e < whole; e += N) addDots<1>(q + e, key, e, acc);
      E sums[N];
      sumsOf<N / 2>(acc).store(sums);
      for (; e < dim; e++)
        for (int u = 0; u < N; u++) sums[u] += q[e] * key[u][e];
      __builtin_memcpy(static_cast<E*>(scores) + i * scoreRow + j, sums, count * sizeof(E));
    }
  }
}
#if defined(WICK_ISA_NEON)
// Rows of few heads lie far apart, so the CPU does not see what is read next: mostly the same tokens' rows of the heads
// behind this one, which follow it in memory.
constexpr int HELD = 16;  // vectors of results in registers
template <int COUNT, class E> WICK_FN void askAhead(const E* p) {
#pragma GCC unroll 8
  for (int at = 0; at < COUNT; at += 64 / (int)sizeof(E)) __builtin_prefetch(p + 2 * COUNT + at);
}
#else
constexpr int HELD = 8;
template <int, class E> WICK_FN void askAhead(const E*) {}
#endif
// Adds to U vectors of out.
template <int U, class E> WICK_FN void weighSome(E* out, const E* v, int64_t row, int64_t n, const E* w) {
  typedef Vec<E> V;
  V acc[U];
#pragma GCC unroll 16
  for (int u = 0; u < U; u++) acc[u] = V::load(out + u * V::N);
  for (int64_t j = 0; j < n; j++) {
    const V x(w[j]);
    askAhead<U * V::N>(v + j * row);
#pragma GCC unroll 16
    for (int u = 0; u < U; u++) acc[u] = mad(x, V::load(v + j * row + u * V::N), acc[u]);
  }
#pragma GCC unroll 16
  for (int u = 0; u < U; u++) acc[u].store(out + u * V::N);
}
// out[i] += the sum of weights[i][j] v[j]: stretches of a row stay in registers while values go by.
template <class E>
void weigh(void* outs, int64_t m, int64_t dim, const void* values, int64_t row, int64_t n, const void* weights,
           int64_t weightRow) {
  constexpr int N = Vec<E>::N;
  for (int64_t i = 0; i < m; i++) {
    E* out = static_cast<E*>(outs) + i * dim;
    const E* w = static_cast<const E*>(weights) + i * weightRow;
    const E* v = static_cast<const E*>(values);
    int64_t e = 0;
    for (; e + HELD * N <= dim; e += HELD * N) weighSome<HELD>(out + e, v + e, row, n, w);
    if constexpr (HELD > 8)
      for (; e + 8 * N <= dim; e += 8 * N) weighSome<8>(out + e, v + e, row, n, w);
    for (; e + 4 * N <= dim; e += 4 * N) weighSome<4>(out + e, v + e, row, n, w);
    for (; e + N <= dim; e += N) weighSome<1>(out + e, v + e, row, n, w);
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
