// Reductions over contiguous runs and over columns. Floats add up in double (16-bit ones in float within a run), integers in 64 bits.
#include "isa.h"

namespace {
#include "runs.h"

using wick::Partial;
constexpr int64_t CHUNK = 1024;

template <class S> constexpr bool isReal = isFloating<typename ComputeOf<S>::type>;
template <class S> constexpr bool nanWins = Same<S, half>::value || Same<S, bfloat>::value;

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
  } else {
    // Short float sums, then double: 16 bits of input leave float enough room over a chunk.
    for (; i < n; i += CHUNK) {
      int64_t m = n - i < CHUNK ? n - i : CHUNK, j = 0;
      F a[4] = {F(0.f), F(0.f), F(0.f), F(0.f)};
      for (; j + 4 * F::N <= m; j += 4 * F::N)
        for (int u = 0; u < 4; u++) a[u] += load(x + i + j + u * F::N);
      Pair p = toDouble((a[0] + a[1]) + (a[2] + a[3]));
      total += sumLanes(p.lo + p.hi);
      for (; j < m; j += F::N) {
        float wide[F::N];
        int64_t left = m - j < F::N ? m - j : F::N;
        widenRun(x + i + j, wide, left);
        for (int64_t k = 0; k < left; k++) total += wide[k];
      }
    }
  }
  return total;
}

template <class S> void sum(const void* p, int64_t n, int64_t, Partial* partial) {
  const S* x = static_cast<const S*>(p);
  if constexpr (isReal<S>) partial->real += sumFloats(x, n);
  else {
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += (uint64_t)(int64_t)x[i];
    partial->whole = (int64_t)((uint64_t)partial->whole + total);
  }
}

// Calls body(values in compute type, first, count) chunk by chunk.
template <class S, class G> WICK_FN void chunks(const S* x, int64_t n, G body) {
  if constexpr (isSmallFloat<S>) {
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t m = n - i < CHUNK ? n - i : CHUNK;
      widenRun(x + i, wide, m);
      body(wide, i, m);
    }
  } else {
    for (int64_t i = 0; i < n; i += CHUNK) body(x + i, i, n - i < CHUNK ? n - i : CHUNK);
  }
}

template <class S> void prod(const void* p, int64_t n, int64_t, Partial* partial) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t, int64_t m) {
    if constexpr (isReal<S>) {
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
  });
}

// The extremum of a chunk by vectors; S decides what NaN does.
template <class S, bool MAX, class E> WICK_FN E best(const E* v, int64_t m) {
  typedef Vec<E> V;
  auto pick = [](V p, V q) { if constexpr (MAX) return maxg<S>(p, q); else return ming<S>(p, q); };
  V b(v[0]);
  int64_t i = 0;
  if (m >= 2 * V::N) {
    V c = b;
    for (; i + 2 * V::N <= m; i += 2 * V::N) {
      b = pick(b, V::load(v + i));
      c = pick(c, V::load(v + i + V::N));
    }
    b = pick(b, c);
  }
  for (; i < m; i++) b = pick(b, V(v[i]));
  V r(b.r[0]);
  for (int k = 1; k < V::N; k++) r = pick(r, V(E(b.r[k])));
  return r.r[0];
}

template <class S, bool MAX> void extremum(const void* p, int64_t n, int64_t, Partial* partial) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t, int64_t m) {
    E b = best<S, MAX>(v, m);
    if constexpr (isReal<S>) {
      double old = partial->real, now = b;
      if (nanWins<S> ? old == old && (now != now || (MAX ? now > old : now < old)) : old != old || (MAX ? now > old : now < old)) partial->real = now;
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

// ---- columns ----
template <class S, int KIND> void columns(const void* p, int64_t n, void* accumulators) {
  typedef typename ComputeOf<S>::type E;
  chunks(static_cast<const S*>(p), n, [&](const E* v, int64_t at, int64_t m) {
    if constexpr (isReal<S>) {
      double* a = static_cast<double*>(accumulators) + at;
      if constexpr (KIND == wick::SUM) for (int64_t i = 0; i < m; i++) a[i] += v[i];
      else if constexpr (KIND == wick::PROD) for (int64_t i = 0; i < m; i++) a[i] *= v[i];
      else for (int64_t i = 0; i < m; i++) {
        double now = v[i], old = a[i];
        bool better = KIND == wick::MAX ? now > old : now < old;
        if (nanWins<S>) better = old == old && (now != now || better);
        else better = old != old || better;
        a[i] = better ? now : old;
      }
    } else {
      int64_t* a = static_cast<int64_t*>(accumulators) + at;
      if constexpr (KIND == wick::SUM) for (int64_t i = 0; i < m; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)(int64_t)v[i]);
      else if constexpr (KIND == wick::PROD) for (int64_t i = 0; i < m; i++) a[i] = (int64_t)((uint64_t)a[i] * (uint64_t)(int64_t)v[i]);
      else for (int64_t i = 0; i < m; i++) {
        int64_t now = v[i];
        if (KIND == wick::MAX ? now > a[i] : now < a[i]) a[i] = now;
      }
    }
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
  wick::ReduceRow* row = t->reduceRow[dtype];
  row[wick::SUM] = row[wick::MEAN] = columns<S, wick::SUM>;
  row[wick::PROD] = columns<S, wick::PROD>;
  row[wick::MAX] = columns<S, wick::MAX>;
  row[wick::MIN] = columns<S, wick::MIN>;
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
