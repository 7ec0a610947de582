// Four vectors as one value: expressions compiled for it have four independent chains to hide latency with, and one range check for all.
// Included after vecmath.h inside an unnamed namespace.

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
  template <class A, class = typename IntegerOf<sizeof(A)>::type, class = decltype(A() + 1)> inline Quad(A v) : a(V(v)), b(a), c(a), d(a) {}
  WICK_FN Quad load(const E* p) { return {V::load(p), V::load(p + V::N), V::load(p + 2 * V::N), V::load(p + 3 * V::N)}; }
  inline void store(E* p) const { a.store(p); b.store(p + V::N); c.store(p + 2 * V::N); d.store(p + 3 * V::N); }
  inline Quad operator-() const { return {-a, -b, -c, -d}; }
#define WICK_BY_FOUR(op) inline Quad operator op(Quad o) const { return {a op o.a, b op o.b, c op o.c, d op o.d}; }
  WICK_BY_FOUR(+) WICK_BY_FOUR(-) WICK_BY_FOUR(*) WICK_BY_FOUR(/)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(op) inline M operator op(Quad o) const { return {a op o.a, b op o.b, c op o.c, d op o.d}; }
  WICK_BY_FOUR(<) WICK_BY_FOUR(<=) WICK_BY_FOUR(>) WICK_BY_FOUR(>=) WICK_BY_FOUR(==) WICK_BY_FOUR(!=)
#undef WICK_BY_FOUR
};

template <int B, class E> WICK_FN Quad<E> select(QuadMask<B> m, Quad<E> p, Quad<E> q) {
  return {select(m.a, p.a, q.a), select(m.b, p.b, q.b), select(m.c, p.c, q.c), select(m.d, p.d, q.d)};
}
#define WICK_BY_FOUR(f) template <class E> WICK_FN Quad<E> f(Quad<E> x) { return {f(x.a), f(x.b), f(x.c), f(x.d)}; }
WICK_BY_FOUR(logg) WICK_BY_FOUR(log1pg) WICK_BY_FOUR(expm1g) WICK_BY_FOUR(sing) WICK_BY_FOUR(cosg) WICK_BY_FOUR(tang) WICK_BY_FOUR(normcdfg)
WICK_BY_FOUR(sqrtg) WICK_BY_FOUR(absg) WICK_BY_FOUR(ceilg) WICK_BY_FOUR(floorg) WICK_BY_FOUR(truncg) WICK_BY_FOUR(roundg) WICK_BY_FOUR(rintg)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f) template <class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y) { return {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)}; }
WICK_BY_FOUR(powg) WICK_BY_FOUR(divg) WICK_BY_FOUR(copysigng)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f) \
  template <class S, class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y) { return {f<S>(x.a, y.a), f<S>(x.b, y.b), f<S>(x.c, y.c), f<S>(x.d, y.d)}; }
WICK_BY_FOUR(maxg) WICK_BY_FOUR(ming)
#undef WICK_BY_FOUR
#define WICK_BY_FOUR(f) \
  template <class E> WICK_FN Quad<E> f(Quad<E> x, Quad<E> y, Quad<E> z) { return {f(x.a, y.a, z.a), f(x.b, y.b, z.b), f(x.c, y.c, z.c), f(x.d, y.d, z.d)}; }
WICK_BY_FOUR(mad) WICK_BY_FOUR(fmag)
#undef WICK_BY_FOUR
template <class E> WICK_FN typename Quad<E>::M signbitg(Quad<E> x) { return {signbitg(x.a), signbitg(x.b), signbitg(x.c), signbitg(x.d)}; }

typedef Quad<float> F4;

// ---- loads and stores of any storage ----
template <class S> WICK_FN F4 loadQuad(const S* p) { return {load(p), load(p + F::N), load(p + 2 * F::N), load(p + 3 * F::N)}; }
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

// ---- exponentials: the squares' sum checks sixteen lanes at once; what is out of range goes vector by vector ----
#if defined(WICK_ISA_NEON)
// p * r + k. A fused step overwrites its addend, so a constant there costs a move on the arithmetic pipes; it is loaded afresh instead.
// The load names p, which keeps the compiler from sharing one copy.
WICK_FN F madFresh(F p, F r, const float (&k)[4]) {
  float32x4_t s;
  asm("ldr %q0, %1" : "=w"(s) : "m"(k), "w"((float32x4_t)p.r));
  return F((F::R)vfmaq_f32(s, (float32x4_t)p.r, (float32x4_t)r.r));
}
WICK_FN F4 madFresh(F4 p, F4 r, const float (&k)[4]) { return {madFresh(p.a, r.a, k), madFresh(p.b, r.b, k), madFresh(p.c, r.c, k), madFresh(p.d, r.d, k)}; }
#else
WICK_FN F4 madFresh(F4 p, F4 r, const float (&k)[4]) { return mad(p, r, F4(k[0])); }
#endif
#define WICK_LANES(v) {v, v, v, v}
alignas(16) const float EXP_STEPS[7][4] = {WICK_LANES(0x1.8p23f), WICK_LANES(EXP_C5), WICK_LANES(EXP_C4), WICK_LANES(EXP_C3),
                                           WICK_LANES(EXP_C2),    WICK_LANES(1.f),    WICK_LANES(1.f)};
#undef WICK_LANES
// For |x| up to 87.
WICK_FN F4 expNear(F4 x) {
  F4 t = madFresh(x, F4(1.44269504088896341f), EXP_STEPS[0]), n = t - F4(0x1.8p23f);
  F4 r = mad(n, F4(2.12194440054690583e-4f), mad(n, F4(-0.693359375f), x));
  F4 y = madFresh(r, F4(EXP_C6), EXP_STEPS[1]);
  y = madFresh(y, r, EXP_STEPS[2]);
  y = madFresh(y, r, EXP_STEPS[3]);
  y = madFresh(y, r, EXP_STEPS[4]);
  y = madFresh(y, r, EXP_STEPS[5]);
  y = madFresh(y, r, EXP_STEPS[6]);
  auto scaled = [](F v, F k) { return (v.as<I>() + (k.as<I>() << 23)).as<F>(); };
  return {scaled(y.a, t.a), scaled(y.b, t.b), scaled(y.c, t.c), scaled(y.d, t.d)};
}
// The same over 32 lanes where the instruction set's two pipes need eight chains to be busy; arrays, since larger values would live in memory.
#define WICK_EIGHT _Pragma("GCC unroll 8") for (int u = 0; u < 8; u++)
WICK_FN void expNear(F (&v)[8]) {
#if defined(WICK_ISA_NEON)
  F t[8], n[8];
  WICK_EIGHT t[u] = madFresh(v[u], F(1.44269504088896341f), EXP_STEPS[0]);
  WICK_EIGHT n[u] = t[u] - F(0x1.8p23f);
  WICK_EIGHT v[u] = mad(n[u], F(-0.693359375f), v[u]);
  WICK_EIGHT v[u] = mad(n[u], F(2.12194440054690583e-4f), v[u]);
  WICK_EIGHT n[u] = madFresh(v[u], F(EXP_C6), EXP_STEPS[1]);
  WICK_EIGHT n[u] = madFresh(n[u], v[u], EXP_STEPS[2]);
  WICK_EIGHT n[u] = madFresh(n[u], v[u], EXP_STEPS[3]);
  WICK_EIGHT n[u] = madFresh(n[u], v[u], EXP_STEPS[4]);
  WICK_EIGHT n[u] = madFresh(n[u], v[u], EXP_STEPS[5]);
  WICK_EIGHT n[u] = madFresh(n[u], v[u], EXP_STEPS[6]);
  WICK_EIGHT v[u] = (n[u].as<I>() + (t[u].as<I>() << 23)).as<F>();
#else
  F4 p = expNear(F4(v[0], v[1], v[2], v[3])), q = expNear(F4(v[4], v[5], v[6], v[7]));
  v[0] = p.a; v[1] = p.b; v[2] = p.c; v[3] = p.d;
  v[4] = q.a; v[5] = q.b; v[6] = q.c; v[7] = q.d;
#endif
}
WICK_CALL F expAlone(F x) { return expg(x); }
WICK_FN F4 expg(F4 x) {
  F s = mad(x.d, x.d, mad(x.c, x.c, mad(x.b, x.b, x.a * x.a)));
  if (__builtin_expect(!allWithin(s, F(7500.f)), 0)) return {expAlone(x.a), expAlone(x.b), expAlone(x.c), expAlone(x.d)};
  return expNear(x);
}
WICK_FN F4 tanhg(F4 x) { return tanhOf(x); }
WICK_FN F4 erfg(F4 x) { return erfOf(x); }
