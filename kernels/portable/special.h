// Special functions of one double: GPU kernels, the simulation and the CPU engine (lane by lane) share this text, and
// callers round the result once. Their series and recurrences need more than single precision anyway.
#pragma once

// The engine's vectors include no header of the C library.
#if defined(WICK_NVIDIA) || defined(WICK_AMD)
#define WICK_C(f) f
#else
#define WICK_C(f) __builtin_##f
#endif

WICK_FN double special_nan() { return WICK_C(sqrt)(-1.0); }

/**
 * The y with erf(y) = x: a polynomial in ln(1 - x^2) (Giles), or the tail's leading terms, then two steps of Halley.
 */
WICK_FN double special_erfinv(double x) {
  const double a = x < 0 ? -x : x, left = 1 - a;
  if (!(a < 1)) return a == 1 ? x * 1e308 * 1e308 : special_nan();
  if (a < 1e-8) return x * 0.88622692545275801365;
  const double w = -WICK_C(log)(left * (1 + a));
  double y;
  if (w < 5) {
    const double t = w - 2.5;
    y = 2.81022636e-08;
    y = 3.43273939e-07 + y * t;
    y = -3.5233877e-06 + y * t;
    y = -4.39150654e-06 + y * t;
    y = 0.00021858087 + y * t;
    y = -0.00125372503 + y * t;
    y = -0.00417768164 + y * t;
    y = 0.246640727 + y * t;
    y = (1.50140941 + y * t) * a;
  } else if (w < 16) {
    const double t = WICK_C(sqrt)(w) - 3;
    y = -0.000200214257;
    y = 0.000100950558 + y * t;
    y = 0.00134934322 + y * t;
    y = -0.00367342844 + y * t;
    y = 0.00573950773 + y * t;
    y = -0.0076224613 + y * t;
    y = 0.00943887047 + y * t;
    y = 1.00167406 + y * t;
    y = (2.83297682 + y * t) * a;
  } else {
    y = WICK_C(sqrt)(-WICK_C(log)(left));
    for (int i = 0; i < 3; i++) y = WICK_C(sqrt)(-WICK_C(log)(left * y * 1.77245385090551602730));
  }
  for (int i = 0; i < 2; i++) {
    const double miss = a < 0.5 ? WICK_C(erf)(y) - a : left - WICK_C(erfc)(y);
    const double u = miss * 0.88622692545275801365 * WICK_C(exp)(y * y);
    y -= u / (1 + y * u);
  }
  return x < 0 ? -y : y;
}

/**
 * The same of a float, to 2^-30 of the result, which is rounded to float: polynomials in the logarithm and in its root,
 * fitted to the function's values.
 */
WICK_FN double special_erfinv_short(double x) {
  const double a = x < 0 ? -x : x;
  if (!(a < 1)) return a == 1 ? x * 1e308 * 1e308 : special_nan();
  const double w = -WICK_C(log)((1 - a) * (1 + a));
  double y;
  if (w < 5) {
    const double t = w - 2.5;
    y = 1.32859721135e-10;
    y = 4.37030433247e-10 + y * t;
    y = -1.10232269307e-08 + y * t;
    y = 1.64572417136e-08 + y * t;
    y = 4.79698930708e-07 + y * t;
    y = -3.4260122227e-06 + y * t;
    y = -4.99875997241e-06 + y * t;
    y = 0.000218263557602 + y * t;
    y = -0.00125270487664 + y * t;
    y = -0.00417732463624 + y * t;
    y = 0.246640275785 + y * t;
    y = 1.50140935169 + y * t;
  } else {  // at most 16 for the largest float below 1
    const double t = WICK_C(sqrt)(w) - 3;
    y = -1.35542747492e-05;
    y = -1.292216833e-05 + y * t;
    y = 0.000181680806696 + y * t;
    y = -0.000304048338964 + y * t;
    y = -0.00013266466133 + y * t;
    y = 0.00149013109118 + y * t;
    y = -0.00356341045237 + y * t;
    y = 0.00568422380562 + y * t;
    y = -0.00764327911548 + y * t;
    y = 0.00944558062827 + y * t;
    y = 1.0016752602 + y * t;
    y = 2.83297679808 + y * t;
  }
  return x * y;
}

/** Modified Bessel function of the first kind, of order 0 or 1: its power series, and far out the asymptotic one. */
WICK_FN double special_bessel_i(int order, double x) {
  const double a = x < 0 ? -x : x;
  if (!(a < 1e308)) return order == 0 ? a : x;
  double sum, term;
  if (a <= 30) {
    const double z = a * a / 4;
    sum = term = order == 0 ? 1 : a / 2;
    for (int k = 1; k < 120 && term > sum * 1e-18; k++) {
      term *= z / ((double)k * (k + order));
      sum += term;
    }
  } else {
    sum = term = 1;
    for (int k = 1; k < 40 && (term > 1e-18 || term < -1e-18); k++) {
      const double odd = 2.0 * k - 1;
      term *= (odd * odd - 4.0 * order) / (8.0 * k * a);
      sum += term;
    }
    const double half = WICK_C(exp)(a / 2);
    sum = half * (sum / WICK_C(sqrt)(6.28318530717958647693 * a)) * half;
  }
  return order == 1 && x < 0 ? -sum : sum;
}

/** x less the nearest whole number, exactly: what the sine and tangent of pi x depend on. */
WICK_FN double special_turn(double x) { return x - WICK_C(rint)(x); }

/** The logarithmic derivative of the gamma function. */
WICK_FN double special_digamma(double x) {
  const double pi = 3.14159265358979323846;
  if (x == 0) return 1 / -x;
  double sum = 0;
  if (x < 0) {
    const double r = special_turn(x);
    if (r == 0 || x < -1e300) return special_nan();
    sum = -pi / WICK_C(tan)(pi * r);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  if (!(x < 1e17)) return sum + WICK_C(log)(x);
  const double z = 1 / (x * x);
  double tail = 1.0 / 12;
  tail = -691.0 / 32760 + z * tail;
  tail = 1.0 / 132 + z * tail;
  tail = -1.0 / 240 + z * tail;
  tail = 1.0 / 252 + z * tail;
  tail = -1.0 / 120 + z * tail;
  tail = 1.0 / 12 + z * tail;
  return sum + WICK_C(log)(x) - 0.5 / x - z * tail;
}

/** Sum of (x + k)^-s over k from 0, s a whole number from 2: Euler and Maclaurin's formula once x is large. */
WICK_FN double special_zeta(double s, double x) {
  double sum = 0;
  for (; x < 10 + s; x += 1) sum += WICK_C(pow)(x, -s);
  const double last = WICK_C(pow)(x, -s);
  sum += x * last / (s - 1) + last / 2;
  // Bernoulli's numbers over factorials: B2/2!, B4/4!, ...
  const double c[8] = {8.3333333333333333e-02,  -1.3888888888888889e-03, 3.3068783068783069e-05,
                       -8.2671957671957672e-07, 2.0876756987868099e-08,  -5.2841901386874932e-10,
                       1.3382536530684679e-11,  -3.3896802963225829e-13};
  double term = s * last / x;
  for (int k = 0; k < 8; k++) {
    sum += c[k] * term;
    term *= (s + 2 * k + 1) * (s + 2 * k + 2) / (x * x);
  }
  return sum;
}

/** The derivative of order n of digamma; from the second on, NaN below -10000, where its sum would be too long. */
WICK_FN double special_polygamma(double n, double x) {
  if (n == 0) return special_digamma(x);
  if (x != x) return x;
  const double pi = 3.14159265358979323846;
  const bool odd = n - 2 * WICK_C(floor)(n / 2) == 1;
  double factorial = 1;
  for (int k = 2; k <= n; k++) factorial *= k;
  if (x > 1e308) return odd ? 0.0 : -0.0;
  if (x <= 0 && special_turn(x) == 0) return odd ? 1e308 * 1e308 : -1e308 * 1e308;
  if (n == 1 && x < 0) {
    const double s = pi / WICK_C(sin)(pi * special_turn(x));
    return s * s - special_zeta(2, 1 - x);
  }
  if (x < -10000) return special_nan();
  const double z = factorial * special_zeta(n + 1, x);
  return odd ? z : -z;
}
