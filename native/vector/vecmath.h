// Functions of the kernel language on vectors. float: polynomials fitted for this file, 1 to 2 ULP; where float
// arithmetic would lose bits they run in double. double: the C library, lane by lane. Included after vec-arithmetic.h
// inside an unnamed namespace.

#define WICK_CALL static __attribute__((noinline, const))

template <class V> WICK_FN V poly(V, double c) { return V(c); }
template <class V, class... C> WICK_FN V poly(V x, double c, C... more) { return mad(poly(x, more...), x, V(c)); }

// e^r = 1 + r (c1 + c2 r + ...) for |r| up to ln(2)/2, within 2e-9; EXP_ROUGH within 9e-8, for rows whose bound is
// wide.
constexpr float EXP_FINE[6] = {1.0000000322583182f,  0.4999999419171509f,  0.16666430801583104f,
                               0.04166800472253238f, 0.00837419554433243f, 0.0013843606554469986f};
constexpr float EXP_ROUGH[5] = {0.9999997063150422f, 0.49999147840809804f, 0.1666763812261605f, 0.04189815965375733f,
                                0.008290272388874136f};
// ten bits: products with whole numbers are exact
constexpr float LOG2_E = 1.44269504088896341f, LN2_TOP = 0.693359375f, LN2_REST = -2.12194440054690583e-4f;
// x log2(e) + this holds the exponent of the power of two in its last bits
constexpr float EXP_SHIFT = 0x1.8p23f + 127;

WICK_FN F powerOfTwo(I n) { return ((n + I(127)) << 23).as<F>(); }

// e^x by 2^n e^r. Results that overflow or are denormal are rare: they take the second path, scaled in two steps to
// round once.
WICK_CALL F expFar(F x) {
  F z = select(x < F(-104.f), F(-104.f), select(x > F(89.f), F(89.f), x));
  const F shift(0x1.8p23f);
  F t = mad(z, F(1.44269504088896341f), shift), n = t - shift;
  I k = t.as<I>() - shift.as<I>();
  F r = mad(n, F(2.12194440054690583e-4f), mad(n, F(-0.693359375f), z));
  F p = poly(r, 0.50000000837337139433, 0.16666666833441097611, 0.04166625152736626644, 0.0083332699935075628365,
             0.0013947344003792108787, 0.00019915584922307012023);
  F y = mad(p, r * r, r) + F(1.f);
  I half = k >> 1;
  return y * powerOfTwo(half) * powerOfTwo(k - half);
}
WICK_FN F raised(F shifted) { return (shifted.as<I>() << 23).as<F>(); }  // two to the power held by EXP_SHIFT's sum
WICK_FN F expg(F x) {
  if (__builtin_expect(!allWithin(x, F(87.f)), 0)) return expFar(x);
  F t = mad(x, F(LOG2_E), F(EXP_SHIFT)), n = t - F(EXP_SHIFT);
  F r = mad(n, F(-LN2_REST), mad(n, F(-LN2_TOP), x));
  F p = poly(r, EXP_FINE[0], EXP_FINE[1], EXP_FINE[2], EXP_FINE[3], EXP_FINE[4], EXP_FINE[5]);
  F power = raised(t);
  return mad(p, power * r, power);
}

WICK_FN F exp2g(F x) {
  return eachLane(x, [](float v) { return __builtin_exp2f(v); });
}

WICK_FN F logg(F x) {
  typename F::M tiny = x < F(0x1p-126f);
  F z = select(tiny, x * F(0x1p23f), x);
  I bits = z.as<I>();
  I e = (bits - I(0x3f3504f3)) >> 23;  // m = z / 2^e lies between sqrt(1/2) and sqrt(2)
  F m = (bits - (e << 23)).as<F>();
  F k = F(__builtin_convertvector(e.r, F::R)) - select(tiny, F(23.f), F(0.f));
  F f = m - F(1.f);
  F p = poly(f, 0.3333331043103642889, -0.24999986768760153065, 0.20002227172995161367, -0.16669241970741078811,
             0.1421864120861737989, -0.12384491271556777684, 0.11873234188146211709, -0.11789073374132570659,
             0.069139287662952693911);
  F f2 = f * f;
  F y = mad(k, F(-2.12194440054690583e-4f), p * (f2 * f));
  y = mad(F(-0.5f), f2, y);
  F r = mad(k, F(0.693359375f), f + y);
  r = select(x == F(__builtin_inff()), x, r);
  r = select(x == F(0.f), F(-__builtin_inff()), r);
  return select(x >= F(0.f), r, F(__builtin_nanf("")));
}

// One vector or four: V is F or F4; rest is 2 / (e^|2x| + 1).
template <class V> WICK_FN V tanhBy(V x, V rest) {
  V s = x * x;
  V p = poly(s, -0.33333283883640026802, 0.13331490348610727763, -0.0537434296636763844, 0.020650386780150570939,
             -0.0057168401908446505276);
  V small = mad(p * s, x, x);
  // The sum of -0 and a product of zeros is +0, so the small ones take their sign from x as well.
  return copysigng(select(absg(x) < V(0.625f), small, V(1.f) - rest), x);
}
template <class V> WICK_FN V tanhOf(V x) {
  V a = absg(x);
  return tanhBy(x, V(2.f) / (expg(a + a) + V(1.f)));
}
WICK_FN F tanhg(F x) { return tanhOf(x); }

template <class V> WICK_FN V erfOf(V x) {
  V a = absg(x), s = x * x;
  V small =
      x * poly(s, 1.1283791659132503139, -0.37612627132811306642, 0.11283600140362987646, -0.026854443074205393738,
               0.0051895324243024452952, -0.00080208154216321177473, 0.000078890334316535980546);
  V b = select(a > V(4.f), V(4.f), a);
  V q = poly(b, 0.00010248773755333090821, -1.129075471804796215, -0.63451183215430859216, -0.10651660996557253028,
             0.02344079370057232705, -0.003129973759442516969, 0.000014100981190154178439, 0.000085378535597506703844,
             -0.000015340443488073282266, 9.5722518821570988035e-7);  // log(erfc)
  V large = copysigng(V(1.f) - expg(q), x);
  return select(a < V(1.f), small, large);
}
WICK_FN F erfg(F x) { return erfOf(x); }

// ---- double kernels with the precision float results need ----
WICK_FN D expNear(D x) {
  D z = select(x < D(-700.0), D(-700.0), select(x > D(700.0), D(700.0), x));
  const D shift(0x1.8p52);
  D t = mad(z, D(1.44269504088896340736), shift);
  D r = mad(t - shift, D(-0.69314718055994530942), z);
  D p = poly(r, 1.0000000000000296174, 0.99999999997810481643, 0.49999999999007640277, 0.16666666904889290085,
             0.041666667220434493135, 0.0083332633602739585654, 0.0013888777724228306982, 0.0001991737098933271048,
             0.000024894486785722366971);
  typedef Vec<int64_t> L;
  return (p.as<L>() + ((t.as<L>() - shift.as<L>()) << 52)).as<D>();
}

// ln x for positive normal x: twice the area tangent of (m-1)/(m+1).
WICK_FN D logNear(D x) {
  typedef Vec<int64_t> L;
  L bits = x.as<L>();
  L e = (bits - L(int64_t(0x3fe6a09e667f3bcd))) >> 52;
  D m = (bits - (e << 52)).as<D>();
  const D shift(0x1.8p52);
  D k = (e + shift.as<L>()).as<D>() - shift;
  D s = (m - D(1.0)) / (m + D(1.0)), q = s * s;
  D p = poly(q, 2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15);
  return mad(k, D(0.69314718055994530942), p * s);
}

struct SinCos {
  D sin, cos;
};
WICK_FN SinCos sinCosNear(D x) {
  const D shift(0x1.8p52);
  D t = mad(x, D(0.63661977236758134308), shift), n = t - shift;
  D r = mad(n, D(-1.57079632673412561417), x);  // 33 bits: exact up to n of 2^20
  r = mad(n, D(-6.07710050650619224932e-11), r);
  D q = r * r;
  D s = mad(poly(q, -0.16666666666627944388, 0.0083333333246085057831, -0.00019841263455692536536,
                 2.7555278840095650042e-6, -2.4755878812867471563e-8) *
                q,
            r, r);
  D c = mad(poly(q, -0.49999999999497373588, 0.041666666553406551763, -0.0013888880598671397903,
                 0.000024798937907510524186, -2.717255615559635587e-7),
            q, D(1.0));
  typedef Vec<int64_t> L;
  L k = t.as<L>();
  typename D::M swap = (k & L(int64_t(1))) != L(int64_t(0));
  L signS = (k & L(int64_t(2))) << 62, signC = ((k + L(int64_t(1))) & L(int64_t(2))) << 62;
  D a = select(swap, c, s), b = select(swap, s, c);
  return {(a.as<L>() ^ signS).as<D>(), (b.as<L>() ^ signC).as<D>()};
}
// Beyond this the two-part pi/2 loses bits, and infinities come in: the C library takes over.
WICK_FN bool farOut(F x) { return !allWithin(x, F(1e5f)); }

WICK_CALL F sing(F x) {
  if (farOut(x)) return eachLane(x, [](float v) { return __builtin_sinf(v); });
  return select(x == F(0.f), x, inDouble(x, [](D v) { return sinCosNear(v).sin; }));
}
WICK_CALL F cosg(F x) {
  if (farOut(x)) return eachLane(x, [](float v) { return __builtin_cosf(v); });
  return inDouble(x, [](D v) { return sinCosNear(v).cos; });
}
WICK_CALL F tang(F x) {
  if (farOut(x)) return eachLane(x, [](float v) { return __builtin_tanf(v); });
  return select(x == F(0.f), x, inDouble(x, [](D v) {
                  SinCos p = sinCosNear(v);
                  return p.sin / p.cos;
                }));
}
WICK_CALL F log1pg(F x) {
  F y = inDouble(x, [](D v) {
    D near = v - v * v * D(0.5);
    return select(absg(v) < D(1e-7), near, logNear(select(v > D(-1.0), v, D(0.0)) + D(1.0)));
  });
  y = select((x == F(__builtin_inff())) | (x == F(0.f)), x, y);
  y = select(x == F(-1.f), F(-__builtin_inff()), y);
  return select(x >= F(-1.f), y, F(__builtin_nanf("")));
}
WICK_CALL F expm1g(F x) {
  F y = inDouble(x, [](D v) {
    D near = v * poly(v, 1.0, 0.5, 1.0 / 6, 1.0 / 24);
    return select(absg(v) < D(1e-3), near, expNear(v) - D(1.0));
  });
  return select((x == F(0.f)) | (x != x), x, y);
}
WICK_CALL F normcdfg(F x) {
  F y = inDouble(x, [](D v) {
    D a = absg(v) * D(0.70710678118654752440);
    a = select(a > D(10.5), D(10.5), a);
    D t = D(1.0) / (D(1.0) + D(0.5) * a);
    D p = poly(t, 0.28209506913752086067, 0.28208712700394206028, 0.24691528985267366289, 0.17595923246061999787,
               0.082866302375814953115, 0.014934591291600830128, -0.17407459821264999652, 0.36462789938004690657,
               -0.98019986626107008885, 1.5607813245447010219, -1.4157076908425245019, 0.7549379099948750881,
               -0.22409764997591046763, 0.028875059261557253511);
    D q = D(0.5) * expNear(-(a * a)) * t * p;
    return select(v < D(0.0), q, D(1.0) - q);
  });
  return select(x == x, y, x);
}
WICK_CALL F powg(F x, F y) {
  typename F::M plain = (x >= F(1e-37f)) & (x <= F(3e38f)) & (absg(y) <= F(1e4f));
  if ((!plain).any()) {
    F o;
    for (int i = 0; i < F::N; i++) o.r[i] = __builtin_powf(x.r[i], y.r[i]);
    return o;
  }
  Pair a = toDouble(x), b = toDouble(y);
  return toFloat({expNear(b.lo * logNear(a.lo)), expNear(b.hi * logNear(a.hi))});
}

#define WICK_LIBM(name, call)                          \
  WICK_CALL D name(D x) {                              \
    return eachLane(x, [](double v) { return call; }); \
  }
WICK_LIBM(expg, __builtin_exp(v))
WICK_LIBM(exp2g, __builtin_exp2(v))
WICK_LIBM(logg, __builtin_log(v))
WICK_LIBM(log1pg, __builtin_log1p(v))
WICK_LIBM(expm1g, __builtin_expm1(v))
WICK_LIBM(sing, __builtin_sin(v))
WICK_LIBM(cosg, __builtin_cos(v))
WICK_LIBM(tang, __builtin_tan(v))
WICK_LIBM(tanhg, __builtin_tanh(v))
WICK_LIBM(erfg, __builtin_erf(v))
WICK_LIBM(normcdfg, 0.5 * __builtin_erfc(-v * 0.70710678118654752440))
#undef WICK_LIBM
WICK_CALL D powg(D x, D y) {
  D o;
  for (int i = 0; i < D::N; i++) o.r[i] = __builtin_pow(x.r[i], y.r[i]);
  return o;
}
