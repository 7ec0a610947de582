// Uniform and normal random numbers from Philox4x32-10: bit for bit what src/ops/random.ts defines, however the work is
// cut. A thread makes one Philox block: four elements of the 24-bit uniform stream, two of the others.
#include "portable.h"

struct Words {
  u32 w[4];
};

WICK_FN Words philox(u64 block, u32 stream, u64 seed) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = stream, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const u32 h0 = mulhi32(0xd2511f53u, c0), l0 = 0xd2511f53u * c0, h1 = mulhi32(0xcd9e8d57u, c2),
              l1 = 0xcd9e8d57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return Words{{c0, c1, c2, c3}};
}

/** Horner's rule, every step rounded on its own. */
template <int N> WICK_FN double poly(const double (&c)[N], double x) {
  double y = c[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; i--) y = add_rn(mul_rn(y, x), c[i]);
  return y;
}

/** Natural logarithm of a positive normal double in a fixed order of basic operations. */
WICK_FN double fixed_log(double x) {
  const double series[13] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                             1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  const u64 bits = bits_as<u64>(x);
  int exponent = (int)(bits >> 52) - 1023;
  double m = bits_as<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent++;
  }
  const double s = add_rn(m, -1.0) / add_rn(m, 1.0);
  return add_rn(mul_rn((double)exponent, 0.6931471805599453), mul_rn(mul_rn(2.0, s), poly(series, mul_rn(s, s))));
}

/** Wichura's AS 241: the x below which a standard normal number lies with probability p. */
WICK_FN double normal_quantile(double p) {
  const double centre_over[8] = {3.387132872796366608,  133.14166789178437745, 1971.5909503065514427,
                                 13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
                                 33430.575583588128105, 2509.0809287301226727};
  const double centre_under[8] = {1,
                                  42.313330701600911252,
                                  687.1870074920579083,
                                  5394.1960214247511077,
                                  21213.794301586595867,
                                  39307.89580009271061,
                                  28729.085735721942674,
                                  5226.495278852854561};
  const double near_over[8] = {1.42343711074968357734,   4.6303378461565452959,   5.7694972214606914055,
                               3.64784832476320460504,   1.27045825245236838258,  0.24178072517745061177,
                               0.0227238449892691845833, 7.7454501427834140764e-4};
  const double near_under[8] = {1,
                                2.05319162663775882187,
                                1.6763848301838038494,
                                0.68976733498510000455,
                                0.14810397642748007459,
                                0.0151986665636164571966,
                                5.475938084995344946e-4,
                                1.05075007164441684324e-9};
  const double far_over[8] = {6.6579046435011037772,     5.4637849111641143699,    1.7848265399172913358,
                              0.29656057182850489123,    0.026532189526576123093,  0.0012426609473880784386,
                              2.71155556874348757815e-5, 2.01033439929228813265e-7};
  const double far_under[8] = {1,
                               0.59983220655588793769,
                               0.13692988092273580531,
                               0.0148753612908506148525,
                               7.868691311456132591e-4,
                               1.8463183175100546818e-5,
                               1.4215117583164458887e-7,
                               2.04426310338993978564e-15};
  const double q = add_rn(p, -0.5);
  double over, under;
  if (absg(q) <= 0.425) {
    const double r = add_rn(0.180625, -mul_rn(q, q));
    over = mul_rn(q, poly(centre_over, r));
    under = poly(centre_under, r);
  } else {
    const double r = sqrtg(-fixed_log(q < 0 ? p : add_rn(1.0, -p)));
    if (r <= 5) over = poly(near_over, add_rn(r, -1.6)), under = poly(near_under, add_rn(r, -1.6));
    else over = poly(far_over, add_rn(r, -5.0)), under = poly(far_under, add_rn(r, -5.0));
    if (q < 0) over = -over;
  }
  return over / under;  // one division in the code: each is as long as a polynomial
}

// A recorded step finds the seed and where its stream begins in `fed`; the offset counts from there then.

/** 53 bits for f64, 24 for the others; lo + u * span, clamped to [bottom, top], which are values of the dtype. */
template <class S>
WICK_FN void uniform(u64 n, u64 seed, u64 offset, const u64* fed, double lo, double span, double bottom, double top,
                     S* out) {
  if (fed) seed = fed[0], offset += fed[1];
  constexpr bool wide = same<S, double>;
  constexpr u32 per = wide ? 2 : 4;
  const u32 skip = (u32)(offset % per);
  GRID_STRIDE(t, (n + skip + per - 1) / per) {
    const Words r = philox((offset - skip + t * per) / per, wide ? 1 : 0, seed);
#pragma unroll
    for (u32 k = 0; k < per; k++) {
      const u64 i = t * per + k - skip;  // wraps below the first element and is then beyond n
      if (i >= n) continue;
      double u;
      if constexpr (wide)
        u = mul_rn(add_rn(mul_rn((double)(r.w[2 * k] >> 5), 67108864.0), (double)(r.w[2 * k + 1] >> 6)), 0x1p-53);
      else u = mul_rn((double)(r.w[k] >> 8), 0x1p-24);
      const double x = add_rn(lo, mul_rn(u, span));
      out[i] = round_to<S>(x < bottom ? bottom : x > top ? top : x);
    }
  }
}
template <class S> WICK_FN void normal(u64 n, u64 seed, u64 offset, const u64* fed, double mean, double std, S* out) {
  if (fed) seed = fed[0], offset += fed[1];
  const u32 skip = (u32)(offset % 2);
  GRID_STRIDE(t, (n + skip + 1) / 2) {
    Words r = philox((offset - skip + t * 2) / 2, 2, seed);
    ROLLED
    for (u32 k = 0; k < 2; k++, r.w[0] = r.w[2], r.w[1] = r.w[3]) {
      const u64 i = t * 2 + k - skip;
      if (i >= n) continue;
      const double u =
          mul_rn(add_rn(add_rn(mul_rn((double)(r.w[0] >> 6), 67108864.0), (double)(r.w[1] >> 6)), 0.5), 0x1p-52);
      out[i] = round_to<S>(add_rn(mean, mul_rn(std, normal_quantile(u))));
    }
  }
}
