// Softmax, norms, their gradients and rotary turns of one lane, in float or double; 16-bit lanes are widened into the first-level cache.
#include "isa.h"

namespace {
#include "runs.h"

// The largest element; NaN anywhere makes it NaN.
template <class E> WICK_FN E maxOf(const E* x, int64_t n) {
  typedef Vec<E> V;
  V a(E(-__builtin_inff())), b = a;
  typename V::M odd = a != a;
  int64_t i = 0;
  for (; i + 2 * V::N <= n; i += 2 * V::N) {
    V p = V::load(x + i), q = V::load(x + i + V::N);
    odd = odd | (p != p) | (q != q);
    a = select(p > a, p, a);
    b = select(q > b, q, b);
  }
  bool nan = odd.any();
  a = select(b > a, b, a);
  E m = a.r[0];
  for (int k = 1; k < V::N; k++) m = a.r[k] > m ? a.r[k] : m;
  for (; i < n; i++) { nan |= x[i] != x[i]; m = x[i] > m ? x[i] : m; }
  return nan ? E(__builtin_nanf("")) : m;
}

// Sums f(i) over vectors with several accumulators; f takes the place, tails go through g element by element.
template <class E, class G, class H> WICK_FN E total(int64_t n, G f, H tail) {
  typedef Vec<E> V;
  V a[4] = {V(E(0)), V(E(0)), V(E(0)), V(E(0))};
  int64_t i = 0;
  for (; i + 4 * V::N <= n; i += 4 * V::N)
    for (int u = 0; u < 4; u++) a[u] += f(i + u * V::N);
  for (; i + V::N <= n; i += V::N) a[0] += f(i);
  double s = 0;
  V all = (a[0] + a[1]) + (a[2] + a[3]);
  for (int k = 0; k < V::N; k++) s += all.r[k];
  for (; i < n; i++) s += tail(i);
  return (E)s;
}

// out[i] = f(vectors) over n, the tail in a padded copy: f(loader, place).
template <class E, class G> WICK_FN void each(int64_t n, E* out, G f) {
  typedef Vec<E> V;
  int64_t i = 0;
  for (; i + V::N <= n; i += V::N) f([&](const E* p) { return V::load(p + i); }).store(out + i);
  if (i == n) return;
  E r[V::N];
  f([&](const E* p) {
    E t[V::N] = {};
    __builtin_memcpy(t, p + i, (n - i) * sizeof(E));
    return V::load(t);
  }).store(r);
  __builtin_memcpy(out + i, r, (n - i) * sizeof(E));
}

template <class E> WICK_FN E expOne(E x) { return expg(Vec<E>(x)).r[0]; }

template <class E, bool LOG> void softmax(const E* const* in, E* out, int64_t n, const double*) {
  typedef Vec<E> V;
  const E* x = in[0];
  const E m = maxOf(x, n);
  const V vm(m);
  if (LOG) {
    E s = total<E>(n, [&](int64_t i) { return expg(V::load(x + i) - vm); }, [&](int64_t i) { return expOne<E>(x[i] - m); });
    const V shift(logg(V(s)).r[0]);
    each(n, out, [&](auto at) { return at(x) - vm - shift; });
    return;
  }
  E s = total<E>(n, [&](int64_t i) { V e = expg(V::load(x + i) - vm); e.store(out + i); return e; },
                 [&](int64_t i) { return out[i] = expOne<E>(x[i] - m); });
  const V scale(E(1) / s);
  each(n, out, [&](auto at) { return at(out) * scale; });
}

template <class E, bool LOG> void softmaxBackward(const E* const* in, E* out, int64_t n, const double*) {
  typedef Vec<E> V;
  const E *y = in[0], *g = in[1];
  if (LOG) {
    E s = total<E>(n, [&](int64_t i) { return V::load(g + i); }, [&](int64_t i) { return g[i]; });
    const V vs(s);
    each(n, out, [&](auto at) { return at(g) - expg(at(y)) * vs; });
  } else {
    E s = total<E>(n, [&](int64_t i) { return V::load(g + i) * V::load(y + i); }, [&](int64_t i) { return g[i] * y[i]; });
    const V vs(s);
    each(n, out, [&](auto at) { return at(y) * (at(g) - vs); });
  }
}

template <class E> WICK_FN E meanOf(const E* x, int64_t n) {
  return total<E>(n, [&](int64_t i) { return Vec<E>::load(x + i); }, [&](int64_t i) { return x[i]; }) / (E)n;
}
// 1 / sqrt(mean((x - m)^2) + eps)
template <class E> WICK_FN E factorOf(const E* x, E m, int64_t n, double eps) {
  typedef Vec<E> V;
  const V vm(m);
  E s = total<E>(n, [&](int64_t i) { V d = V::load(x + i) - vm; return d * d; }, [&](int64_t i) { return (x[i] - m) * (x[i] - m); });
  return (E)(1.0 / __builtin_sqrt((double)s / (double)n + eps));
}

template <class E, bool CENTRE> void norm(const E* const* in, E* out, int64_t n, const double* params) {
  typedef Vec<E> V;
  const E *x = in[0], *w = in[1], *b = in[2];
  const E m = CENTRE ? meanOf(x, n) : E(0);
  const V vm(m), r(factorOf(x, m, n, params[0]));
  if (w && b) each(n, out, [&](auto at) { return (at(x) - vm) * r * at(w) + at(b); });
  else if (w) each(n, out, [&](auto at) { return (at(x) - vm) * r * at(w); });
  else if (b) each(n, out, [&](auto at) { return (at(x) - vm) * r + at(b); });
  else each(n, out, [&](auto at) { return (at(x) - vm) * r; });
}

template <class E, bool CENTRE> void normBackward(const E* const* in, E* out, int64_t n, const double* params) {
  typedef Vec<E> V;
  const E *x = in[0], *g = in[1], *w = in[2];
  const E m = CENTRE ? meanOf(x, n) : E(0), r = factorOf(x, m, n, params[0]);
  const V vm(m), vr(r);
  // out holds the weighted gradient until its means are known.
  if (w) each(n, out, [&](auto at) { return at(g) * at(w); });
  else __builtin_memcpy(out, g, n * sizeof(E));
  const E shift = CENTRE ? meanOf(out, n) : E(0);
  const E slope = total<E>(n, [&](int64_t i) { return V::load(out + i) * ((V::load(x + i) - vm) * vr); },
                           [&](int64_t i) { return out[i] * ((x[i] - m) * r); }) / (E)n;
  const V vs(shift), vp(slope);
  each(n, out, [&](auto at) { return vr * (at(out) - vs - (at(x) - vm) * vr * vp); });
}

// n is the width; cos and sin have half of it.
template <class E, bool NEIGHBOURS> void rope(const E* const* in, E* out, int64_t n, const double*) {
  const E *x = in[0], *c = in[1], *s = in[2];
  const int64_t half = n / 2;
  if (NEIGHBOURS) {
    for (int64_t k = 0; k < half; k++) {
      E p = x[2 * k], q = x[2 * k + 1];
      out[2 * k] = p * c[k] - q * s[k];
      out[2 * k + 1] = p * s[k] + q * c[k];
    }
  } else {
    each(half, out, [&](auto at) { return at(x) * at(c) - at(x + half) * at(s); });
    each(half, out + half, [&](auto at) { return at(x) * at(s) + at(x + half) * at(c); });
  }
}

constexpr int MAX_INPUTS = 3;

// Gradients subtract nearly equal numbers, so they are computed in double whatever is stored.
template <class S, void (*RUN)(const double* const*, double*, int64_t, const double*), int INPUTS>
void laneInDouble(const void* const* in, void* out, int64_t n, const double* params) {
  const double* inputs[MAX_INPUTS] = {};
  if constexpr (Same<S, double>::value) {
    for (int k = 0; k < INPUTS; k++) inputs[k] = static_cast<const double*>(in[k]);
    RUN(inputs, static_cast<double*>(out), n, params);
  } else {
    const int64_t pitch = (n + 31) / 16 * 16;
    double* wide = static_cast<double*>(scratch(wick::SCRATCH_ROWS, (size_t)pitch * 8 * (INPUTS + 2)));
    float* single = reinterpret_cast<float*>(wide + (INPUTS + 1) * pitch);
    for (int k = 0; k < INPUTS; k++) {
      if (!in[k]) continue;
      const float* from = single;
      if constexpr (Same<S, float>::value) from = static_cast<const float*>(in[k]);
      else widenRun(static_cast<const S*>(in[k]), single, n);
      double* to = wide + k * pitch;
      for (int64_t i = 0; i < n; i++) to[i] = from[i];
      inputs[k] = to;
    }
    double* result = wide + INPUTS * pitch;
    RUN(inputs, result, n, params);
    if constexpr (Same<S, float>::value) {
      for (int64_t i = 0; i < n; i++) static_cast<float*>(out)[i] = (float)result[i];
    } else {
      for (int64_t i = 0; i < n; i++) single[i] = stickyFloat(result[i]);
      narrowRun(single, static_cast<S*>(out), n);
    }
  }
}

template <class S, class E, void (*RUN)(const E* const*, E*, int64_t, const double*), int INPUTS, bool TURN>
void lane(const void* const* in, void* out, int64_t n, const double* params) {
  const E* inputs[MAX_INPUTS] = {};
  if constexpr (Same<S, E>::value) {
    for (int k = 0; k < INPUTS; k++) inputs[k] = static_cast<const E*>(in[k]);
    RUN(inputs, static_cast<E*>(out), n, params);
  } else {
    const int64_t pitch = (n + 31) / 16 * 16;
    float* wide = static_cast<float*>(scratch(wick::SCRATCH_ROWS, (size_t)pitch * 4 * (INPUTS + 1)));
    for (int k = 0; k < INPUTS; k++) {
      if (!in[k]) continue;
      widenRun(static_cast<const S*>(in[k]), wide + k * pitch, TURN && k > 0 ? n / 2 : n);
      inputs[k] = wide + k * pitch;
    }
    float* result = wide + INPUTS * pitch;
    RUN(inputs, result, n, params);
    narrowRun(result, static_cast<S*>(out), n);
  }
}

template <class S> void fill(wick::LaneKernel* t) {
  typedef typename ComputeOf<S>::type E;
  t[wick::SOFTMAX] = lane<S, E, softmax<E, false>, 1, false>;
  t[wick::LOG_SOFTMAX] = lane<S, E, softmax<E, true>, 1, false>;
  t[wick::SOFTMAX_BACKWARD] = laneInDouble<S, softmaxBackward<double, false>, 2>;
  t[wick::LOG_SOFTMAX_BACKWARD] = laneInDouble<S, softmaxBackward<double, true>, 2>;
  t[wick::LAYER_NORM] = lane<S, E, norm<E, true>, 3, false>;
  t[wick::RMS_NORM] = lane<S, E, norm<E, false>, 3, false>;
  t[wick::LAYER_NORM_BACKWARD] = laneInDouble<S, normBackward<double, true>, 3>;
  t[wick::RMS_NORM_BACKWARD] = laneInDouble<S, normBackward<double, false>, 3>;
  t[wick::ROPE_HALVES] = lane<S, E, rope<E, false>, 3, true>;
  t[wick::ROPE_NEIGHBOURS] = lane<S, E, rope<E, true>, 3, true>;
}

}  // namespace

extern "C" void WICK_EXPORT(wick_lanes)(wick::IsaTable* t) {
  fill<bfloat>(t->lane[wick::BF16]);
  fill<half>(t->lane[wick::F16]);
  fill<float>(t->lane[wick::F32]);
  fill<double>(t->lane[wick::F64]);
}
