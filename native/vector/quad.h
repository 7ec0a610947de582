// Four vectors as one value: expressions compiled for it have four independent chains to hide latency with, and one
// range check for all. Included after vecmath.h inside an unnamed namespace.

template <int B> struct QuadMask {
  typedef Mask<B> M;
  M a, b, c, d;
  inline QuadMask operator&(QuadMask o) const { return {a & o.a, b & o.b, c & o.c, d & o.d}; }
  inline QuadMask operator|(QuadMask o) const { return {a | o.a, b | o.b, c | o.c, d | o.d}; }
  inline QuadMask operator!() const { return {!a, !b, !c, !d}; }
  inline QuadMask operator!=(QuadMask o) const { return {a != o.a, b != o.b, c != o.c, d != o.d}; }
  inline QuadMask operator==(QuadMask o) const { return {a == o.a, b == o.b, c == o.c, d == o.d}; }
};

template <class E> struct Quad {
  static constexpr int N = 4 * Vec<E>::N;
  typedef E element;
  typedef Vec<E> V;
  typedef QuadMask<sizeof(E)> M;
  V a, b, c, d;
  inline Quad() {}
  inline Quad(V p, V q, V r, V s) : a(p), b(q), c(r), d(s) {}
  template <class A, class = typename IntegerOf<sizeof(A)>::type, class = decltype(A() + 1)>
  inline Quad(A v) : a(V(v)), b(a), c(a), d(a) {}
  WICK_FN Quad load(const E* p) {
    return {V::load(p), V::load(p + V::N), V::load(p + 2 * V::N), V::load(p + 3 * V::N)};
  }
  inline void store(E* p) const {
    a.store(p);
    b.store(p + V::N);
    c.store(p + 2 * V::N);
    d.store(p + 3 * V::N);
  }
  inline Quad operator-() const { return {-a, -b, -c, -d}; }
#define WICK_BY_FOUR(op) \
  inline Quad operator op(Quad o) const { return {a op o.a, b op o.b, c op o.c, d op o.d}; }
  WICK_BY_FOUR(+)
  WICK_BY_FOUR(-)
  WICK_BY_FOUR(*)
  WICK_BY_FOUR(/)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(op) \
  inline M operator op(Quad o) const { return {a op o.a, b op o.b, c op o.c, d op o.d}; }
  WICK_BY_FOUR(<)
  WICK_BY_FOUR(<=)
  WICK_BY_FOUR(>)
  WICK_BY_FOUR(>=)
  WICK_BY_FOUR(==)
  WICK_BY_FOUR(!=)
#undef WICK_BY_FOUR
};

template <int B, class E> WICK_FN Quad<E> select(QuadMask<B> m, Quad<E> p, Quad<E> q) {
  return {select(m.a, p.a, q.a), select(m.b, p.b, q.b), select(m.c, p.c, q.c), select(m.d, p.d, q.d)};
}
#define WICK_BY_FOUR(f) \
  template <class E> WICK_FN Quad<E> f(Quad<E> x) { return {f(x.a), f(x.b), f(x.c), f(x.d)}; }
WICK_BY_FOUR(exp2g)
WICK_BY_FOUR(logg)
WICK_BY_FOUR(log1pg)
WICK_BY_FOUR(expm1g)
WICK_BY_FOUR(sing)
WICK_BY_FOUR(cosg)
WICK_BY_FOUR(tang)
WICK_BY_FOUR(normcdfg)
WICK_BY_FOUR(sqrtg)
WICK_BY_FOUR(absg)
WICK_BY_FOUR(ceilg)
WICK_BY_FOUR(floorg)
WICK_BY_FOUR(truncg)
WICK_BY_FOUR(roundg)
WICK_BY_FOUR(rintg)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f)                                          \
  template <class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y) {   \
    return {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)}; \
  }
WICK_BY_FOUR(powg)
WICK_BY_FOUR(divg)
WICK_BY_FOUR(copysigng)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f)                                                      \
  template <class S, class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y) {      \
    return {f<S>(x.a, y.a), f<S>(x.b, y.b), f<S>(x.c, y.c), f<S>(x.d, y.d)}; \
  }
WICK_BY_FOUR(maxg)
WICK_BY_FOUR(ming)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f)                                                              \
  template <class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y, Quad<E> z) {            \
    return {f(x.a, y.a, z.a), f(x.b, y.b, z.b), f(x.c, y.c, z.c), f(x.d, y.d, z.d)}; \
  }
WICK_BY_FOUR(mad)
WICK_BY_FOUR(fmag)
#undef WICK_BY_FOUR
template <class E> WICK_FN typename Quad<E>::M signbitg(Quad<E> x) {
  return {signbitg(x.a), signbitg(x.b), signbitg(x.c), signbitg(x.d)};
}

typedef Quad<float> F4;

// ---- loads and stores of any storage ----
template <class S> WICK_FN F4 loadQuad(const S* p) {
  return {load(p), load(p + F::N), load(p + 2 * F::N), load(p + 3 * F::N)};
}
template <class S> WICK_FN void store(S* p, F4 v) {
  store(p, v.a);
  store(p + F::N, v.b);
  store(p + 2 * F::N, v.c);
  store(p + 3 * F::N, v.d);
}
WICK_FN void store(uint8_t* p, QuadMask<4> m) {
  store(p, m.a);
  store(p + F::N, m.b);
  store(p + 2 * F::N, m.c);
  store(p + 3 * F::N, m.d);
}

// ---- exponentials: several vectors in step, so that neither latency nor a constant's copy holds the pipes up ----
#if defined(WICK_ISA_NEON)
// p * r + k. A fused step overwrites its addend, so a constant there costs a move on the arithmetic pipes; it is loaded
// afresh instead. The load names p, which keeps the compiler from sharing one copy.
WICK_FN F madFresh(F p, F r, const float (&k)[4]) {
  float32x4_t s;
  asm("ldr %q0, %1" : "=w"(s) : "m"(k), "w"((float32x4_t)p.r));
  return F((F::R)vfmaq_f32(s, (float32x4_t)p.r, (float32x4_t)r.r));
}
constexpr int CHAINS = 8;
#else
WICK_FN F madFresh(F p, F r, const float (&k)[4]) { return mad(p, r, F(k[0])); }
constexpr int CHAINS = 4;  // more would not fit sixteen registers
#endif
#define WICK_LANES(v) \
  { v, v, v, v }
alignas(16) const float EXP_STEPS[7][4] = {WICK_LANES(EXP_SHIFT),   WICK_LANES(EXP_FINE[4]), WICK_LANES(EXP_FINE[3]),
                                           WICK_LANES(EXP_FINE[2]), WICK_LANES(EXP_FINE[1]), WICK_LANES(EXP_FINE[0])};
alignas(16) const
    float EXP_ROUGH_STEPS[6][4] = {WICK_LANES(EXP_SHIFT), WICK_LANES(EXP_ROUGH[3]), WICK_LANES(EXP_ROUGH[2]),
                                   WICK_LANES(EXP_ROUGH[1]), WICK_LANES(EXP_ROUGH[0])};
#undef WICK_LANES
#define WICK_EACH(K) _Pragma("GCC unroll 8") for (int u = 0; u < K; u++)
// For |x| up to 87: within 1.4 ULP if FINE, else within 5.
template <bool FINE, int K> WICK_FN void expNear(F (&v)[K]) {
  const auto& steps = []() -> const auto& {
    if constexpr (FINE) return EXP_STEPS;
    else return EXP_ROUGH_STEPS;
  }
  ();
  F t[K], p[K];
  WICK_EACH(K) t[u] = madFresh(v[u], F(LOG2_E), steps[0]);
  WICK_EACH(K) p[u] = t[u] - F(EXP_SHIFT);
  if constexpr (FINE) {
    WICK_EACH(K) v[u] = mad(p[u], F(-LN2_TOP), v[u]);
    WICK_EACH(K) v[u] = mad(p[u], F(-LN2_REST), v[u]);
  } else {
    WICK_EACH(K) v[u] = mad(p[u], F(-0.693147180559945309f), v[u]);
  }
  WICK_EACH(K) p[u] = madFresh(v[u], F(FINE ? EXP_FINE[5] : EXP_ROUGH[4]), steps[1]);
  WICK_EACH(K) p[u] = madFresh(p[u], v[u], steps[2]);
  WICK_EACH(K) p[u] = madFresh(p[u], v[u], steps[3]);
  WICK_EACH(K) p[u] = madFresh(p[u], v[u], steps[4]);
  if constexpr (FINE) WICK_EACH(K) p[u] = madFresh(p[u], v[u], steps[5]);
  WICK_EACH(K) t[u] = raised(t[u]);
  WICK_EACH(K) v[u] = v[u] * t[u];
  WICK_EACH(K) v[u] = mad(p[u], v[u], t[u]);
}
// The squares' sum checks all lanes at once: every |x| is below 86.
template <int K> WICK_FN bool allNear(const F (&v)[K]) {
  F s = v[0] * v[0], r = v[1] * v[1];
#pragma GCC unroll 4
  for (int u = 2; u < K; u += 2) {
    s = mad(v[u], v[u], s);
    r = mad(v[u + 1], v[u + 1], r);
  }
  return __builtin_expect(allWithin(s + r, F(7500.f)), 1);
}
WICK_CALL F expAlone(F x) { return expg(x); }
template <bool FINE, int K> WICK_FN void expAll(F (&v)[K]) {
  if (allNear(v)) expNear<FINE>(v);
  else WICK_EACH(K) v[u] = expAlone(v[u]);  // out of range: vector by vector
}
WICK_FN F4 expg(F4 x) {
  F v[4] = {x.a, x.b, x.c, x.d};
  expAll<true>(v);
  return {v[0], v[1], v[2], v[3]};
}
WICK_FN F4 tanhg(F4 x) { return tanhOf(x); }
WICK_FN F4 erfg(F4 x) { return erfOf(x); }
