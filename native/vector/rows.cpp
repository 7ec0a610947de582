// Softmax, norms, their gradients and rotary turns of one lane, in float or double; 16-bit lanes are widened into the
// first-level cache.
#include "isa.h"

namespace {
#include "runs.h"

// The next lane usually follows in memory: it is fetched while this one is computed from the cache. A fetch never
// faults.
WICK_FN void fetchAhead(const void* p) { __builtin_prefetch(p, 0, 3); }

// Largest and smallest element; NaN anywhere makes the largest NaN.
template <class E> struct Range { E top, bottom; };
template <class E> WICK_FN Range<E> rangeOf(const E* x, int64_t n) {
  typedef Vec<E> V;
  Range<E> r = {E(-__builtin_inff()), E(__builtin_inff())};
  int64_t i = 0;
  bool nan = false;
  if (n >= 4 * V::N) {
    V a(r.top), b = a, c = a, d = a, e(r.bottom), f = e, g = e, h = e;
    V odd(E(0));  // x - x is NaN for NaN, and for infinities, which take the careful way too
    for (; i + 4 * V::N <= n; i += 4 * V::N) {
      V p = V::load(x + i), q = V::load(x + i + V::N), s = V::load(x + i + 2 * V::N), t = V::load(x + i + 3 * V::N);
#if defined(WICK_ISA_NEON)
      // "NaN wins" is one instruction here.
      a = maxg<half>(a, p);
      b = maxg<half>(b, q);
      c = maxg<half>(c, s);
      d = maxg<half>(d, t);
      e = ming<half>(e, p);
      f = ming<half>(f, q);
      g = ming<half>(g, s);
      h = ming<half>(h, t);
#else
      a = select(p > a, p, a);
      b = select(q > b, q, b);
      c = select(s > c, s, c);
      d = select(t > d, t, d);
      e = select(p < e, p, e);
      f = select(q < f, q, f);
      g = select(s < g, s, g);
      h = select(t < h, t, h);
      odd = odd + ((p - p) + (q - q)) + ((s - s) + (t - t));
#endif
    }
    a = maxg<half>(maxg<half>(a, b), maxg<half>(c, d));
    e = ming<half>(ming<half>(e, f), ming<half>(g, h));
    for (int k = 0; k < V::N; k++) {
      nan |= a.r[k] != a.r[k];
      r.top = a.r[k] > r.top ? a.r[k] : r.top;
      r.bottom = e.r[k] < r.bottom ? e.r[k] : r.bottom;
    }
    if ((odd != odd).any())
      for (int64_t j = 0; j < i; j++) nan |= x[j] != x[j];
  }
  for (; i < n; i++) {
    nan |= x[i] != x[i];
    r.top = x[i] > r.top ? x[i] : r.top;
    r.bottom = x[i] < r.bottom ? x[i] : r.bottom;
  }
  if (nan) r.top = E(__builtin_nanf(""));
  return r;
}

// Accumulators of long rows are emptied into a double after so many additions, before their rounding adds up.
constexpr int64_t STRETCH = 64;

// The sum of f(place) over vectors, four at a time with accumulators of their own; elements of the tail go through
// `tail`.
template <class E, class G, class H> WICK_FN E total(int64_t n, G f, H tail) {
  typedef Vec<E> V;
  double s = 0;
  int64_t i = 0;
  while (i + 4 * V::N <= n) {
    V a(E(0)), b = a, c = a, d = a;
    for (const int64_t end = i + STRETCH * 4 * V::N; i < end && i + 4 * V::N <= n; i += 4 * V::N) {
      V p = f(i), q = f(i + V::N), r = f(i + 2 * V::N), t = f(i + 3 * V::N);
      a += p;
      b += q;
      c += r;
      d += t;
    }
    s += sumLanes((a + b) + (c + d));
  }
  V rest(E(0));
  for (; i + V::N <= n; i += V::N) rest += f(i);
  s += sumLanes(rest);
  for (; i < n; i++) s += tail(i);
  return (E)s;
}

// out[i] = f(loader) over n, where the loader gives vectors of the place at hand; the tail runs in a padded copy.
// Where `next` is given, n / 2 elements from there on are fetched meanwhile.
template <class E, class G> WICK_FN void each(int64_t n, E* out, G f, const E* next = nullptr) {
  typedef Vec<E> V;
  int64_t i = 0;
  auto at = [&](int64_t k) { return f([&](const E* p) { return V::load(p + k); }); };
  for (; i + 4 * V::N <= n; i += 4 * V::N) {
    if (next)
      for (int k = 0; k < 4 * WIDTH; k += 128) fetchAhead(reinterpret_cast<const char*>(next + i / 2) + k / 2);
    V p = at(i), q = at(i + V::N), r = at(i + 2 * V::N), s = at(i + 3 * V::N);
    p.store(out + i);
    q.store(out + i + V::N);
    r.store(out + i + 2 * V::N);
    s.store(out + i + 3 * V::N);
  }
  for (; i + V::N <= n; i += V::N) at(i).store(out + i);
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

// The sum of e^(x - top), each stored where STORE says so. `near`: no result is denormal or 0, so nothing needs to be
// checked.
template <bool STORE, class E> WICK_FN E expSum(const E* x, E* out, int64_t n, E top, bool near) {
  typedef Vec<E> V;
  int64_t done = 0;
  double first = 0;
  if constexpr (Same<E, float>::value) {
    const F vt(top);
    auto run = [&](auto exponentials) __attribute__((always_inline)) {
      F4 sum(0.f);
      int64_t empty = done + STRETCH * CHAINS * F::N;
      for (; done + CHAINS * F::N <= n; done += CHAINS * F::N) {
        if (done == empty) {
          first += sumLanes((sum.a + sum.b) + (sum.c + sum.d));
          sum = F4(0.f);
          empty += STRETCH * CHAINS * F::N;
        }
        for (int k = 0; k < CHAINS * WIDTH; k += 64) fetchAhead(reinterpret_cast<const char*>(x + n + done) + k);
        F v[CHAINS];
        WICK_EACH(CHAINS) v[u] = F::load(x + done + u * F::N) - vt;
        exponentials(v);
        if (STORE) WICK_EACH(CHAINS) v[u].store(out + done + u * F::N);
        for (int k = 0; k < CHAINS; k += 4) sum = sum + F4(v[k], v[k + 1], v[k + 2], v[k + 3]);
      }
      first += sumLanes((sum.a + sum.b) + (sum.c + sum.d));
    };
    // The row's bound leaves room for the rough exponential.
    if (near) run([](F(&v)[CHAINS]) __attribute__((always_inline)) { expNear<false>(v); });
    else run([](F(&v)[CHAINS]) __attribute__((always_inline)) { expAll<false>(v); });
  }
  const V vt(top);
  const E* rest = x + done;
  E* to = out + done;
  E s = total<E>(
      n - done,
      [&](int64_t i) {
        V e = expg(V::load(rest + i) - vt);
        if (STORE) e.store(to + i);
        return e;
      },
      [&](int64_t i) {
        E e = expOne<E>(rest[i] - top);
        if (STORE) to[i] = e;
        return e;
      });
  return (E)(first + (double)s);
}

template <class E, bool LOG> void softmax(const E* const* in, E* out, int64_t n, const double*) {
  typedef Vec<E> V;
  const E* x = in[0];
  const Range<E> r = rangeOf(x, n);
  const bool near = r.top - r.bottom < E(87);
  const E s = expSum<!LOG>(x, out, n, r.top, near);
  if (LOG) {
    const V vm(r.top), shift(logg(V(s)).r[0]);
    each(n, out, [&](auto at) { return at(x) - vm - shift; });
  } else {
    const V scale(E(1) / s);
    each(n, out, [&](auto at) { return at(out) * scale; });
  }
}

template <class E, bool LOG> void softmaxBackward(const E* const* in, E* out, int64_t n, const double*) {
  typedef Vec<E> V;
  const E *y = in[0], *g = in[1];
  if (LOG) {
    E s = total<E>(
        n, [&](int64_t i) { return V::load(g + i); }, [&](int64_t i) { return g[i]; });
    const V vs(s);
    each(n, out, [&](auto at) { return at(g) - expg(at(y)) * vs; });
  } else {
    E s = total<E>(
        n, [&](int64_t i) { return V::load(g + i) * V::load(y + i); }, [&](int64_t i) { return g[i] * y[i]; });
    const V vs(s);
    each(n, out, [&](auto at) { return at(y) * (at(g) - vs); });
  }
}

template <class E> WICK_FN E meanOf(const E* x, int64_t n) {
  return total<E>(
             n, [&](int64_t i) { return Vec<E>::load(x + i); }, [&](int64_t i) { return x[i]; }) /
         (E)n;
}
// Sum and sum of squares of x - shift, while the first half of what follows x is fetched. Pieces meet in double, so
// that long rows lose nothing.
struct Moments {
  double sum, squares;
};
template <class E, bool CENTRE> WICK_FN Moments momentsOf(const E* x, E shift, int64_t n) {
  typedef Vec<E> V;
  constexpr int64_t PIECE = 4096;
  const V vs(shift);
  Moments m = {0, 0};
  int64_t i = 0;
  while (i + 4 * V::N <= n) {
    V a(E(0)), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    const int64_t end = n - i < PIECE ? n : i + PIECE;
    for (; i + 4 * V::N <= end; i += 4 * V::N) {
      for (int k = 0; k < 4 * WIDTH; k += 128) fetchAhead(reinterpret_cast<const char*>(x + n + i / 2) + k / 2);
      V p = V::load(x + i), q = V::load(x + i + V::N), r = V::load(x + i + 2 * V::N), s = V::load(x + i + 3 * V::N);
      if (CENTRE) {
        p = p - vs;
        q = q - vs;
        r = r - vs;
        s = s - vs;
        a += p;
        b += q;
        c += r;
        d += s;
      }
      e = mad(p, p, e);
      f = mad(q, q, f);
      g = mad(r, r, g);
      h = mad(s, s, h);
    }
    if (CENTRE) m.sum += sumLanes((a + b) + (c + d));
    m.squares += sumLanes((e + f) + (g + h));
  }
  for (; i < n; i++) {
    const double d = CENTRE ? x[i] - shift : x[i];
    m.sum += d;
    m.squares += d * d;
  }
  return m;
}

// The mean, and 1 / sqrt(mean((x - mean)^2) + eps).
template <class E> struct Spread { E mean, factor; };
template <class E, bool CENTRE> WICK_FN Spread<E> spreadOf(const E* x, int64_t n, double eps) {
  // One pass around a guess at the mean; where the guess was far off, squares cancelled, and a second pass goes around
  // the mean itself.
  E shift = CENTRE && n > 0 ? x[0] : E(0);
  Moments m = momentsOf<E, CENTRE>(x, shift, n);
  double off = m.sum / (double)n, squares = m.squares / (double)n;
  if (CENTRE && !(off * off <= 4 * (squares - off * off))) {
    shift = E(shift + off);
    m = momentsOf<E, CENTRE>(x, shift, n);
    off = m.sum / (double)n, squares = m.squares / (double)n;
  }
  if (!CENTRE) off = 0;
  const double variance = squares - off * off;
  return {E(shift + off), E(1.0 / __builtin_sqrt((variance < 0 ? 0 : variance) + eps))};
}

template <class E, bool CENTRE> void norm(const E* const* in, E* out, int64_t n, const double* params) {
  typedef Vec<E> V;
  const E *x = in[0], *w = in[1], *b = in[2];
  const Spread<E> s = spreadOf<E, CENTRE>(x, n, params[0]);
  const V vm(s.mean), r(s.factor);
  const E* rest = x + n + n / 2;
  const E turned = -s.mean * s.factor;
  if (!CENTRE || (turned < E(2) && turned > E(-2))) {
    // A small mean may be multiplied out: what is rounded is no larger than the result.
    const V c(turned);
    if (w && b)
      each(
          n, out, [&](auto at) { return mad(mad(at(x), r, c), at(w), at(b)); }, rest);
    else if (w)
      each(
          n, out, [&](auto at) { return (CENTRE ? mad(at(x), r, c) : at(x) * r) * at(w); }, rest);
    else if (b)
      each(
          n, out, [&](auto at) { return mad(at(x), r, c) + at(b); }, rest);
    else
      each(
          n, out, [&](auto at) { return CENTRE ? mad(at(x), r, c) : at(x) * r; }, rest);
    return;
  }
  if (w && b)
    each(
        n, out, [&](auto at) { return mad((at(x) - vm) * r, at(w), at(b)); }, rest);
  else if (w)
    each(
        n, out, [&](auto at) { return (at(x) - vm) * r * at(w); }, rest);
  else if (b)
    each(
        n, out, [&](auto at) { return mad(at(x) - vm, r, at(b)); }, rest);
  else
    each(
        n, out, [&](auto at) { return (at(x) - vm) * r; }, rest);
}

template <class E, bool CENTRE> void normBackward(const E* const* in, E* out, int64_t n, const double* params) {
  typedef Vec<E> V;
  const E *x = in[0], *g = in[1], *w = in[2];
  const Spread<E> s = spreadOf<E, CENTRE>(x, n, params[0]);
  const E m = s.mean, r = s.factor;
  const V vm(m), vr(r);
  // out holds the weighted gradient until its means are known.
  if (w) each(n, out, [&](auto at) { return at(g) * at(w); });
  else __builtin_memcpy(out, g, n * sizeof(E));
  const E shift = CENTRE ? meanOf(out, n) : E(0);
  const E slope = total<E>(
                      n, [&](int64_t i) { return V::load(out + i) * ((V::load(x + i) - vm) * vr); },
                      [&](int64_t i) { return out[i] * ((x[i] - m) * r); }) /
                  (E)n;
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

extern "C" void WICK_EXPORT(wick_rows)(wick::IsaTable* t) {
  fill<bfloat>(t->lane[wick::BF16]);
  fill<half>(t->lane[wick::F16]);
  fill<float>(t->lane[wick::F32]);
  fill<double>(t->lane[wick::F64]);
}
