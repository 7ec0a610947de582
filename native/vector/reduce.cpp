// Reductions over contiguous runs and over columns. Floats add up in double, eight at a time in float before; integers
// in 64 bits.
#include "isa.h"

namespace {
#include "runs.h"

using wick::Partial;
constexpr int64_t CHUNK = 1024;

template <class S> constexpr bool isReal = isFloating<typename ComputeOf<S>::type>;
template <class S> constexpr bool nanWins = Same<S, half>::value || Same<S, bfloat>::value;

WICK_FN bool isFinite(double v) { return v - v == 0; }

// Eight vectors meet in float and join the total in double: three roundings an element, and conversions stay rare.
template <class S> WICK_FN F sumOfEight(const S* x, int64_t step) {
  F a = load(x) + load(x + step), b = load(x + 2 * step) + load(x + 3 * step);
  F c = load(x + 4 * step) + load(x + 5 * step), d = load(x + 6 * step) + load(x + 7 * step);
  return (a + b) + (c + d);
}
template <class S> WICK_FN double sumByEights(const S* x, int64_t n) {
  D lo(0.0), hi(0.0);
  int64_t i = 0;
  for (; i + 8 * F::N <= n; i += 8 * F::N) {
    for (int k = 0; k < 8 * F::N * (int)sizeof(S); k += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(x + i) + 768 + k);
    Pair p = toDouble(sumOfEight(x + i, F::N));
    lo += p.lo;
    hi += p.hi;
  }
  double total = sumLanes(lo + hi);
  for (; i < n; i += F::N) {
    float wide[F::N];
    int64_t left = n - i < F::N ? n - i : F::N;
    widenRun(x + i, wide, left);
    for (int64_t k = 0; k < left; k++) total += wide[k];
  }
  return total;
}

template <class S> WICK_FN double sumFloats(const S* x, int64_t n) {
  double total = 0;
  int64_t i = 0;
  if constexpr (Same<S, double>::value) {
    D a[4] = {D(0.0), D(0.0), D(0.0), D(0.0)};
    for (; i + 4 * D::N <= n; i += 4 * D::N)
      for (int u = 0; u < 4; u++) a[u] += D::load(x + i + u * D::N);
    total = sumLanes((a[0] + a[1]) + (a[2] + a[3]));
    for (; i < n; i++) total += x[i];
  } else if constexpr (Same<S, float>::value) {
    D a[8];
    for (int u = 0; u < 8; u++) a[u] = D(0.0);
    for (; i + 4 * F::N <= n; i += 4 * F::N)
      for (int u = 0; u < 4; u++) {
        Pair p = toDouble(F::load(x + i + u * F::N));
        a[2 * u] += p.lo;
        a[2 * u + 1] += p.hi;
      }
    total = sumLanes(((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])));
    for (; i < n; i++) total += x[i];
  }
  return total;
}

template <class S> void sum(const void* p, int64_t n, int64_t, Partial* partial) {
  const S* x = static_cast<const S*>(p);
  if constexpr (Same<S, double>::value) partial->real += sumFloats(x, n);
  else if constexpr (isReal<S>) {
    double total = sumByEights(x, n);
    // A float sum may overflow where the double one does not.
    if constexpr (Same<S, float>::value)
      if (!isFinite(total)) total = sumFloats(x, n);
    partial->real += total;
  } else {
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += (uint64_t)(int64_t)x[i];
    partial->whole = (int64_t)((uint64_t)partial->whole + total);
  }
}

// Loops over values in the type computed in are compiled once for all that is stored, not once for each.
#define WICK_LOOP __attribute__((noinline)) void
template <class S> WICK_LOOP widened(const S* from, float* to, int64_t n) { widenRun(from, to, n); }
// Which rule about NaN a stored type follows, as one type for each rule.
template <bool WINS> struct RuleOf { typedef float type; };
template <> struct RuleOf<true> { typedef half type; };
template <class S> using Rule = typename RuleOf<nanWins<S>>::type;

// Calls body(values in compute type, first, count) chunk by chunk.
template <class S, class G> WICK_FN void chunks(const S* x, int64_t n, G body) {
  if constexpr (isSmallFloat<S>) {
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t m = n - i < CHUNK ? n - i : CHUNK;
      widened(x + i, wide, m);
      body(wide, i, m);
    }
  } else {
    for (int64_t i = 0; i < n; i += CHUNK) body(x + i, i, n - i < CHUNK ? n - i : CHUNK);
  }
}

template <class E> WICK_LOOP multiply(const E* v, int64_t m, Partial* partial) {
  if constexpr (isReal<E>) {
    double a[4] = {1, 1, 1, 1};
    int64_t i = 0;
    for (; i + 4 <= m; i += 4)
      for (int u = 0; u < 4; u++) a[u] *= v[i + u];
    for (; i < m; i++) a[0] *= v[i];
    partial->real *= (a[0] * a[1]) * (a[2] * a[3]);
  } else {
    uint64_t total = (uint64_t)partial->whole;
    for (int64_t i = 0; i < m; i++) total *= (uint64_t)(int64_t)v[i];
    partial->whole = (int64_t)total;
  }
}
template <class S> void prod(const void* p, int64_t n, int64_t, Partial* partial) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t, int64_t m) { multiply(v, m, partial); });
}

// Squares add up in double, whose range those of float do not leave.
WICK_LOOP addSquares(const float* v, int64_t m, Partial* partial) {
  D a[8];
  for (int u = 0; u < 8; u++) a[u] = D(0.0);
  int64_t i = 0;
  for (; i + 4 * F::N <= m; i += 4 * F::N)
    for (int u = 0; u < 4; u++) {
      Pair p = toDouble(F::load(v + i + u * F::N));
      a[2 * u] += p.lo * p.lo;
      a[2 * u + 1] += p.hi * p.hi;
    }
  double total = sumLanes(((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7])));
  for (; i < m; i++) total += (double)v[i] * v[i];
  partial->real += total;
}
template <class S> void squares(const void* p, int64_t n, int64_t, Partial* partial) {
  chunks(static_cast<const S*>(p), n, [&](const float* v, int64_t, int64_t m) { addSquares(v, m, partial); });
}

// The extremum of a chunk by vectors; S decides what NaN does.
template <class S, bool MAX, class E> __attribute__((noinline)) E best(const E* v, int64_t m) {
  typedef Vec<E> V;
  auto pick = [](V p, V q) {
    if constexpr (MAX) return maxg<S>(p, q);
    else return ming<S>(p, q);
  };
  V b(v[0]);
  int64_t i = 0;
  if (m >= 4 * V::N) {
    V c = b, d = b, e = b;
    for (; i + 4 * V::N <= m; i += 4 * V::N) {
      b = pick(b, V::load(v + i));
      c = pick(c, V::load(v + i + V::N));
      d = pick(d, V::load(v + i + 2 * V::N));
      e = pick(e, V::load(v + i + 3 * V::N));
    }
    b = pick(pick(b, c), pick(d, e));
  }
  for (; i < m; i++) b = pick(b, V(v[i]));
  V r(b.r[0]);
  for (int k = 1; k < V::N; k++) r = pick(r, V(E(b.r[k])));
  return r.r[0];
}

template <class S, bool MAX> void extremum(const void* p, int64_t n, int64_t, Partial* partial) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t, int64_t m) {
    E b = best<Rule<S>, MAX>(v, m);
    if constexpr (isReal<S>) {
      double old = partial->real, now = b;
      if (nanWins<S> ? old == old && (now != now || (MAX ? now > old : now < old))
                     : old != old || (MAX ? now > old : now < old))
        partial->real = now;
    } else if (MAX ? (int64_t)b > partial->whole : (int64_t)b < partial->whole) partial->whole = b;
  });
}

// The first place of the extremum; NaN is passed over.
template <class S, bool MAX> void place(const void* p, int64_t n, int64_t first, Partial* partial) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t at, int64_t m) {
    E b = best<float, MAX>(v, m);  // float's rule: NaN is ignored
    if constexpr (isReal<S>) {
      double now = b, old = partial->real;
      if (now != now || !(partial->index < 0 || (MAX ? now > old : now < old))) return;
      partial->real = now;
    } else {
      int64_t now = b, old = partial->whole;
      if (!(partial->index < 0 || (MAX ? now > old : now < old))) return;
      partial->whole = now;
    }
    int64_t i = 0;
    while (v[i] != b) i++;
    partial->index = first + at + i;
  });
}

// ---- columns: rows meet in accumulators of double or int64, eight at a time where the type allows ----
template <class S, int KIND> WICK_LOOP meetReal(const typename ComputeOf<S>::type* v, int64_t m, double* a) {
  if constexpr (KIND == wick::SUM)
    for (int64_t i = 0; i < m; i++) a[i] += v[i];
  else if constexpr (KIND == wick::PROD)
    for (int64_t i = 0; i < m; i++) a[i] *= v[i];
  else if constexpr (KIND == wick::EUCLID)
    for (int64_t i = 0; i < m; i++) a[i] += (double)v[i] * v[i];
  else
    for (int64_t i = 0; i < m; i++) {
      double now = v[i], old = a[i];
      bool better = KIND == wick::MAX ? now > old : now < old;
      if (nanWins<S>) better = old == old && (now != now || better);
      else better = old != old || better;
      a[i] = better ? now : old;
    }
}
template <class E, int KIND> WICK_LOOP meetWhole(const E* v, int64_t m, int64_t* a) {
  if constexpr (KIND == wick::SUM)
    for (int64_t i = 0; i < m; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)(int64_t)v[i]);
  else if constexpr (KIND == wick::PROD)
    for (int64_t i = 0; i < m; i++) a[i] = (int64_t)((uint64_t)a[i] * (uint64_t)(int64_t)v[i]);
  else
    for (int64_t i = 0; i < m; i++) {
      int64_t now = v[i];
      if (KIND == wick::MAX ? now > a[i] : now < a[i]) a[i] = now;
    }
}
template <class S, int KIND> WICK_FN void addRow(const S* x, int64_t n, double* real, int64_t* whole) {
  typedef typename ComputeOf<S>::type E;
  chunks(x, n, [&](const E* v, int64_t at, int64_t m) {
    if constexpr (Same<S, double>::value) meetReal<double, KIND>(v, m, real + at);
    else if constexpr (isReal<S>) meetReal<Rule<S>, KIND>(v, m, real + at);
    else meetWhole<E, KIND>(v, m, whole + at);
  });
}

// Columns done, a multiple of F4::N. Each row gives whole cache lines: rows a power of two apart would evict each
// other's.
template <class S, int KIND>
WICK_FN int64_t addEights(const S* x, int64_t rows, int64_t pitch, int64_t n, double* real) {
  auto meet = [](F4 p, F4 q) {
    if constexpr (KIND == wick::SUM) return p + q;
    else if constexpr (KIND == wick::MAX) return maxg<S>(p, q);
    else return ming<S>(p, q);
  };
  auto join = [](F f, double* to) {
    Pair p = toDouble(f);
    D lo = D::load(to), hi = D::load(to + D::N);
    if constexpr (KIND == wick::SUM) {
      lo += p.lo;
      hi += p.hi;
    } else if constexpr (KIND == wick::MAX) {
      lo = maxg<S>(lo, p.lo);
      hi = maxg<S>(hi, p.hi);
    } else {
      lo = ming<S>(lo, p.lo);
      hi = ming<S>(hi, p.hi);
    }
    lo.store(to);
    hi.store(to + D::N);
  };
  for (int64_t r = 0; r + 8 <= rows; r += 8)
    for (int64_t i = 0; i + F4::N <= n; i += F4::N) {
      const S* at = x + r * pitch + i;
      auto row = [&](int k) { return loadQuad(at + k * pitch); };
      F4 a = meet(meet(row(0), row(1)), meet(row(2), row(3)));
      a = meet(a, meet(meet(row(4), row(5)), meet(row(6), row(7))));
      join(a.a, real + i);
      join(a.b, real + i + F::N);
      join(a.c, real + i + 2 * F::N);
      join(a.d, real + i + 3 * F::N);
    }
  return n / F4::N * F4::N;
}

template <class S, int KIND>
void columns(const void* p, int64_t rows, int64_t pitch, int64_t n, int64_t, double* real, int64_t* whole) {
  const S* x = static_cast<const S*>(p);
  int64_t done = 0;
  if constexpr (isReal<S> && !Same<S, double>::value && KIND != wick::PROD && KIND != wick::EUCLID) {
    if (rows >= 8) {
      double* before = static_cast<double*>(scratch(wick::SCRATCH_X, n * sizeof(double)));
      if (KIND == wick::SUM) __builtin_memcpy(before, real, n * sizeof(double));
      done = rows / 8 * 8;
      const int64_t vectors = addEights<S, KIND>(x, rows, pitch, n, real);
      bool sound = true;  // or some sum left the range of float on the way: then all are added row by row
      if (KIND == wick::SUM)
        for (int64_t i = 0; i < vectors; i++) sound &= isFinite(real[i]);
      if (!sound) {
        __builtin_memcpy(real, before, n * sizeof(double));
        done = 0;
      } else
        for (int64_t r = 0; r < done && vectors < n; r++)
          addRow<S, KIND>(x + r * pitch + vectors, n - vectors, real + vectors, nullptr);
    }
  }
  for (int64_t r = done; r < rows; r++) addRow<S, KIND>(x + r * pitch, n, real, whole);
}

template <class E, bool MAX>
WICK_LOOP placeRow(const E* v, int64_t m, int64_t row, double* real, int64_t* whole, int64_t* value) {
  for (int64_t i = 0; i < m; i++) {
    int64_t place = whole[i];
    if constexpr (isReal<E>) {
      double now = v[i], old = real[i];
      const bool better = (MAX ? now > old : now < old) | ((place < 0) & (now == now));
      real[i] = better ? now : old;
      whole[i] = better ? row : place;
    } else {
      int64_t now = v[i], old = value[i];
      const bool better = (MAX ? now > old : now < old) | (place < 0);
      value[i] = better ? now : old;
      whole[i] = better ? row : place;
    }
  }
}
template <class S, bool MAX>
void columnPlaces(const void* p, int64_t rows, int64_t pitch, int64_t n, int64_t first, double* real, int64_t* whole) {
  typedef typename ComputeOf<S>::type E;
  const S* x = static_cast<const S*>(p);
  for (int64_t r = 0; r < rows; r++)
    chunks(x + r * pitch, n, [&](const E* v, int64_t at, int64_t m) {
      placeRow<E, MAX>(v, m, first + r, real + at, whole + at, whole + n + at);
    });
}

template <class S> void fill(wick::IsaTable* t, int dtype) {
  wick::ReduceRun* run = t->reduceRun[dtype];
  run[wick::SUM] = run[wick::MEAN] = sum<S>;
  run[wick::PROD] = prod<S>;
  run[wick::MAX] = extremum<S, true>;
  run[wick::MIN] = extremum<S, false>;
  run[wick::ARGMAX] = place<S, true>;
  run[wick::ARGMIN] = place<S, false>;
  wick::ReduceRows* row = t->reduceRows[dtype];
  row[wick::SUM] = row[wick::MEAN] = columns<S, wick::SUM>;
  row[wick::PROD] = columns<S, wick::PROD>;
  row[wick::MAX] = columns<S, wick::MAX>;
  row[wick::MIN] = columns<S, wick::MIN>;
  row[wick::ARGMAX] = columnPlaces<S, true>;
  row[wick::ARGMIN] = columnPlaces<S, false>;
  if constexpr (Same<S, float>::value || nanWins<S>) {
    run[wick::EUCLID] = squares<S>;
    row[wick::EUCLID] = columns<S, wick::EUCLID>;
  }
}

}  // namespace

extern "C" void WICK_EXPORT(wick_reduce)(wick::IsaTable* t) {
  fill<uint8_t>(t, wick::U8);
  fill<uint32_t>(t, wick::U32);
  fill<int16_t>(t, wick::I16);
  fill<int32_t>(t, wick::I32);
  fill<int64_t>(t, wick::I64);
  fill<fp8>(t, wick::F8);
  fill<bfloat>(t, wick::BF16);
  fill<half>(t, wick::F16);
  fill<float>(t, wick::F32);
  fill<double>(t, wick::F64);
}
