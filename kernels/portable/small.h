// Part of portable.h: mathematics good to about 2^-13, for results that are rounded to 8 or 11 bits: the fast units of
// GPUs and short polynomials. NaN, infinities, signed zeros and denormals hold as in mathematics.h. Choices are between
// numbers that are there already: compilers branch else. S is what the result is rounded to: bfloat reaches the
// denormals of float, others do not.
#pragma once

template <class S> constexpr bool deep = same<S, bfloat>;

// ---- the fast units: a unit or two in the last place of a float ----

#ifdef WICK_NVIDIA
#define WICK_UNIT(NAME, PTX)                    \
  WICK_FN float NAME(float x) {                 \
    float r;                                    \
    asm(PTX ".f32 %0, %1;" : "=f"(r) : "f"(x)); \
    return r;                                   \
  }
WICK_UNIT(unit_log2, "lg2.approx")
WICK_UNIT(unit_log2_normal, "lg2.approx.ftz")
WICK_UNIT(unit_recip, "rcp.approx")
WICK_UNIT(unit_recip_normal, "rcp.approx.ftz")
WICK_UNIT(unit_sqrt, "sqrt.approx")
WICK_UNIT(unit_rsqrt, "rsqrt.approx")
WICK_FN float unit_quotient(float p, float q) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(p), "f"(q));
  return r;
}
#elif defined(WICK_AMD)
WICK_FN float unit_log2_normal(float x) {
  float r;
  asm("v_log_f32 %0, %1" : "=v"(r) : "v"(x));
  return r;
}
WICK_FN float unit_log2(float x) { return x < 0x1p-126f ? unit_log2_normal(x * 0x1p32f) - 32.0f : unit_log2_normal(x); }
WICK_FN float unit_recip(float x) { return 1.0f / x; }
WICK_FN float unit_recip_normal(float x) { return __builtin_amdgcn_rcpf(x); }
WICK_FN float unit_sqrt(float x) { return sqrtf(x); }
WICK_FN float unit_rsqrt(float x) { return rsqrtf(x); }
WICK_FN float unit_quotient(float p, float q) { return p / q; }
#else
WICK_FN float unit_log2(float x) { return log2f(x); }
WICK_FN float unit_log2_normal(float x) { return log2f(x); }
WICK_FN float unit_recip(float x) { return 1.0f / x; }
WICK_FN float unit_recip_normal(float x) { return 1.0f / x; }
WICK_FN float unit_sqrt(float x) { return sqrtf(x); }
WICK_FN float unit_rsqrt(float x) { return 1.0f / sqrtf(x); }
WICK_FN float unit_quotient(float p, float q) { return p / q; }
#endif

/** 2^(x * scale); the units flush denormals, which the square of half the power reaches. */
template <class S> WICK_FN float small_exp2(float x, float scale) {
  const float h = fast_exp2(x * (deep<S> ? 0.5f * scale : scale));
  return deep<S> ? h * h : h;
}
template <class S> WICK_FN float small_log2(float x) { return deep<S> ? unit_log2(x) : unit_log2_normal(x); }
template <class S> WICK_FN float small_recip(float x) { return deep<S> ? unit_recip(x) : unit_recip_normal(x); }
template <class S> WICK_FN float small_rsqrt(float x) { return unit_rsqrt(x); }
/** Exact: 8 bits leave the root 2^-19 from the middle of two results; 11 bits would take all of float's. */
template <class S> WICK_FN float small_sqrt(float x) { return deep<S> ? unit_sqrt(x) : sqrtf(x); }
/** Not exact. */
WICK_FN float small_root(float x) { return unit_sqrt(x); }
/**
 * Exact: quotients of 8 bits stay 2^-17 away from the middle of two results, those of 11 bits 2^-23, which takes a step
 * of Newton's.
 */
template <class S> WICK_FN float small_div(float p, float q) {
  if constexpr (deep<S>) return unit_quotient(p, q);
  else {
    const float r = unit_recip_normal(q), t = p * r, rest = fmaf(-t, q, p);
    return fabsf(rest) > 0.0f ? fmaf(rest, r, t) : t;  // zeros and infinities are right already
  }
}

// ---- powers and logarithms ----

template <class S> WICK_FN float small_exp(float x) { return small_exp2<S>(x, 1.44269504f); }
WICK_FN float small_expm1(float x) {
  const float near = x * fmaf(x, fmaf(x, 0.166666666f, 0.500122068f), 1.0f), far = fast_exp(x) - 1.0f;
  return fabsf(x) < 0.0625f ? near : far;
}
template <class S> WICK_FN float small_log(float x) {
  const float far = small_log2<S>(x) * 0.693147181f;
  if constexpr (deep<S>) return far;
  else {
    // Near 1 the unit's error is that of 1, too much for 11 bits.
    const float d = x - 1.0f;
    const float near = d * fmaf(d, fmaf(d, fmaf(d, -0.253163408f, 0.336491209f), -0.499988623f), 0.999993812f);
    return fabsf(d) < 0.125f ? near : far;
  }
}
WICK_FN float small_log1p(float x) {
  const float near = x * fmaf(x, fmaf(x, 0.334067635f, -0.500733994f), 1.0f),
              far = unit_log2_normal(1.0f + x) * 0.693147181f;
  return fabsf(x) < 0.0625f ? near : far;
}
/**
 * log2(1 + d) for |d| below 1/16 (8 bits) or 1/8 (11 bits): exponents may be thousands there, so it is far better than
 * the result.
 */
template <class S> WICK_FN float small_log2_near(float d) {
  if constexpr (deep<S>) return d * fmaf(d, fmaf(d, fmaf(d, -0.36180426f, 0.482028392f), -0.721346507f), 1.44269449f);
  else
    return d * fmaf(d,
                    fmaf(d, fmaf(d, fmaf(d, fmaf(d, -0.245357877f, 0.293438805f), -0.360636405f), 0.480869502f),
                         -0.72134759f),
                    1.44269507f);
}
/** C's pow. */
template <class S> WICK_FN float small_pow(float x, float y) {
  // From 2^22 on every exponent of so few bits is even; below, adding 2^23 leaves its whole part in the low bits.
  const float part = ming<bfloat>(fabsf(y), 4194304.0f), shifted = part + 8388608.0f;
  const bool whole = shifted - 8388608.0f == part;
  const u32 odd = whole ? bits_as<u32>(shifted) << 31 : 0;
  // The logarithm of a number below 0 is NaN, and so then is the power.
  const float plain = fabsf(x), base = whole | (x == Limits<float>::lowest()) ? plain : x, d = base - 1.0f;
  const float near = small_log2_near<S>(d), far = small_log2<S>(base),
              log2 = fabsf(d) < (deep<S> ? 0.0625f : 0.125f) ? near : far;
  const float h = fast_exp2(log2 * (deep<S> ? 0.5f * y : y)), power = (y == 0.0f) | (base == 1.0f) ? 1.0f
                                                                      : deep<S>                    ? h * h
                                                                                                   : h;
  return power * bits_as<float>(0x3f800000u ^ (bits_as<u32>(x) & odd));
}

// ---- sigmoids ----

/**
 * 2^v / (1 + 2^v), where v is x * scale and scale above 0: no overflow on either side, and the left tail keeps its
 * precision.
 */
template <class S> WICK_FN float small_logistic2(float x, float scale) {
  const float e = small_exp2<S>(-fabsf(x), scale);
  return (x < 0.0f ? e : 1.0f) * unit_recip_normal(1.0f + e);
}
template <class S> WICK_FN float small_sigmoid(float x) { return small_logistic2<S>(x, 1.44269504f); }
WICK_FN float small_tanh(float x) {
  const float near = x * fmaf(x * x, -0.333333343f, 1.0f),
              far = fmaf(-2.0f, unit_recip_normal(1.0f + fast_exp2(x * 2.88539008f)), 1.0f);
  return fabsf(x) < 0.0625f ? near : far;
}
/** x tanh(ln(1 + e^x)) = x n / (n + 2), where n = e^x (e^x + 2). */
template <class S> WICK_FN float small_mish(float x) {
  const float e = small_exp<S>(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
  return x * (n * unit_recip_normal(n + 2.0f));
}
template <class S> WICK_FN float small_softplus(float x) {
  const float e = small_exp<S>(-fabsf(x));
  const float p = fmaf(
      e, fmaf(e, fmaf(e, fmaf(e, fmaf(e, -0.0238691449f, 0.101222268f), -0.210048675f), 0.325206675f), -0.499361364f),
      0.999991598f);
  return fmaf(e, p, x > 0.0f ? x : 0.0f);
}

// ---- the error function ----

WICK_FN float small_erf(float x) {
  const float a = fabsf(x);
  const float log2 =
      a *
      fmaf(a, fmaf(a, fmaf(a, fmaf(a, -0.00299414462f, 0.0297891886f), -0.148925776f), -0.918382485f), -1.62790719f);
  const float near = x * fmaf(x * x, -0.374368834f, 1.12837574f), far = 1.0f - fast_exp2(log2);
  return a < 0.125f ? near : x < 0.0f ? -far : far;
}
/** The left tail is e^(-x^2/2) times a polynomial in 1 / (1 + k|x|). */
template <class S> WICK_FN float small_normcdf(float x) {
  const float a = fabsf(x), t = unit_recip_normal(fmaf(a, 0.38f, 1.0f));
  const float p =
      t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, -0.0899284359f, 0.18887666f), 0.0919796061f), 0.157829506f), 0.151225136f);
  const float tail = p * small_exp2<S>(x * x, -0.721347520f);
  return x < 0.0f ? tail : 1.0f - tail;
}

// ---- angles ----

#if defined(WICK_HOST) || defined(WICK_NVIDIA)
#ifdef WICK_HOST
#define WICK_CONSTANT static const
#else
#define WICK_CONSTANT static __constant__ const
#endif
/**
 * 2^9 to 2^120 less whole turns, 16 bits and then the rest: 8 bits times that is what a bfloat from 2^16 on is of a
 * turn. Infinities find zeros.
 */
WICK_CONSTANT float turned_powers[226] = {3.06201172f,    -2.16002973e-05f,
                                          -0.15920639f,   1.32010825e-06f,
                                          -0.318412781f,  2.64021651e-06f,
                                          -0.636825562f,  5.28043302e-06f,
                                          -1.27365112f,   1.0560866e-05f,
                                          -2.54730225f,   2.11217321e-05f,
                                          1.18862915f,    -6.09193421e-06f,
                                          2.3772583f,     -1.21838684e-05f,
                                          -1.52868652f,   -6.54991618e-06f,
                                          -3.05737305f,   -1.30998324e-05f,
                                          0.168411255f,   1.75888283e-06f,
                                          0.33682251f,    3.51776566e-06f,
                                          0.67364502f,    7.03553133e-06f,
                                          1.34729004f,    1.40710627e-05f,
                                          2.69458008f,    2.81421253e-05f,
                                          -0.893966675f,  -2.19187541e-06f,
                                          -1.78793335f,   -4.38375082e-06f,
                                          2.70733643f,    -2.65853232e-05f,
                                          -0.868560791f,  -4.83524627e-06f,
                                          -1.73712158f,   -9.67049255e-06f,
                                          2.80889893f,    2.38763496e-05f,
                                          -0.665344238f,  4.53536495e-06f,
                                          -1.33068848f,   9.0707299e-06f,
                                          -2.66137695f,   1.81414598e-05f,
                                          0.960464478f,   3.20630988e-06f,
                                          1.92092896f,    6.41261977e-06f,
                                          -2.44128418f,   -3.0392097e-05f,
                                          1.40054321f,    1.29507216e-05f,
                                          2.80108643f,    2.59014432e-05f,
                                          -0.680953979f,  -6.6732382e-06f,
                                          -1.36190796f,   -1.33464764e-05f,
                                          -2.72381592f,   -2.66929528e-05f,
                                          0.835494995f,   5.09021902e-06f,
                                          1.67098999f,    1.0180438e-05f,
                                          -2.94116211f,   -2.28564604e-05f,
                                          0.400817871f,   -2.49558525e-06f,
                                          0.801635742f,   -4.9911705e-06f,
                                          1.60327148f,    -9.982341e-06f,
                                          -3.07666016f,   -2.14686156e-06f,
                                          0.129859924f,   7.76639922e-07f,
                                          0.259719849f,   1.55327984e-06f,
                                          0.519439697f,   3.10655969e-06f,
                                          1.03887939f,    6.21311938e-06f,
                                          2.07775879f,    1.24262388e-05f,
                                          -2.12762451f,   -1.8364859e-05f,
                                          2.02789307f,    6.48761943e-06f,
                                          -2.22735596f,   -3.02420976e-05f,
                                          1.82839966f,    1.32507193e-05f,
                                          -2.62634277f,   -1.67158978e-05f,
                                          1.03045654f,    9.7855409e-06f,
                                          2.06091309f,    1.95710818e-05f,
                                          -2.16131592f,   -4.07517109e-06f,
                                          1.96054077f,    4.54941573e-06f,
                                          -2.36212158f,   2.69166521e-05f,
                                          1.55899048f,    5.49790548e-06f,
                                          3.11798096f,    1.0995811e-05f,
                                          -0.0472011566f, -2.44879601e-07f,
                                          -0.0944023132f, -4.89759202e-07f,
                                          -0.188804626f,  -9.79518404e-07f,
                                          -0.377609253f,  -1.95903681e-06f,
                                          -0.755218506f,  -3.91807362e-06f,
                                          -1.51043701f,   -7.83614723e-06f,
                                          -3.02087402f,   -1.56722945e-05f,
                                          0.241405487f,   4.2865463e-07f,
                                          0.482810974f,   8.5730926e-07f,
                                          0.965621948f,   1.71461852e-06f,
                                          1.9312439f,     3.42923704e-06f,
                                          -2.42071533f,   2.46762938e-05f,
                                          1.44180298f,    1.01719047e-06f,
                                          2.88360596f,    2.03438094e-06f,
                                          -0.515975952f,  6.62779348e-06f,
                                          -1.0319519f,    1.3255587e-05f,
                                          -2.06390381f,   2.65111739e-05f,
                                          2.15545654f,    -2.583063e-05f,
                                          -1.97232056f,   -3.32586001e-06f,
                                          2.33856201f,    -2.44695402e-05f,
                                          -1.60610962f,   -6.03682508e-07f,
                                          3.07098389f,    -1.90251849e-05f,
                                          -0.141254425f,  -1.15906403e-06f,
                                          -0.28250885f,   -2.31812805e-06f,
                                          -0.5650177f,    -4.63625611e-06f,
                                          -1.1300354f,    -9.27251222e-06f,
                                          -2.2600708f,    -1.85450244e-05f,
                                          1.76300049f,    6.12728627e-06f,
                                          -2.75720215f,   3.00723932e-05f,
                                          0.768844604f,   -3.44940213e-06f,
                                          1.53768921f,    -6.89880426e-06f,
                                          3.07537842f,    -1.37976085e-05f,
                                          -0.132457733f,  1.66669429e-06f,
                                          -0.264915466f,  3.33338858e-06f,
                                          -0.529830933f,  6.66677715e-06f,
                                          -1.05966187f,   1.33335543e-05f,
                                          -2.11932373f,   2.66671086e-05f,
                                          2.0446167f,     -2.55187606e-05f,
                                          -2.19403076f,   2.78154566e-05f,
                                          1.89517212f,    7.29551584e-06f,
                                          -2.49279785f,   -2.86263039e-05f,
                                          1.29754639f,    -1.40352731e-05f,
                                          2.59509277f,    -2.80705463e-05f,
                                          -1.0930481f,    -7.80569462e-06f,
                                          -2.18609619f,   -1.56113892e-05f,
                                          1.91094971f,    1.19945562e-05f,
                                          -2.46124268f,   -1.92282241e-05f,
                                          1.36065674f,    4.76088826e-06f,
                                          2.72131348f,    9.52177652e-06f,
                                          -0.840545654f,  6.34379558e-06f,
                                          -1.68109131f,   1.26875912e-05f,
                                          2.92102051f,    7.5573621e-06f,
                                          -0.441131592f,  2.41496627e-06f,
                                          -0.882263184f,  4.82993255e-06f,
                                          -1.76452637f,   9.6598651e-06f,
                                          2.75415039f,    1.50190942e-06f,
                                          0.0f,           0.0f};
#endif
struct Angle {
  float rest;
  u32 count;
};
/**
 * x less count pieces of a turn, of which `per` make 1, or with HALF less half a piece more; a piece is high + low,
 * neither below 0, so that -0 stays.
 */
template <class S, bool HALF> WICK_FN Angle angle_of(float x, float per, float high, float low) {
  float tail = -0.0f;  // leaves -0 as it is
#if defined(WICK_HOST) || defined(WICK_NVIDIA)
  if constexpr (deep<S>) {
    if (fabsf(x) >= 65536.0f) {
      const u32 b = bits_as<u32>(x), at = 2 * ((b >> 23 & 255) - 143);
      const float m = bits_as<float>((b & 0x807fffffu) | 0x43000000u);  // 128 to 255
      tail = fmaf(m, turned_powers[at + 1], x * 0.0f);                  // infinities are not angles
      x = m * turned_powers[at];
    }
  }
#endif
  // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
  const float shifted = HALF ? fmaf(x, per, -0.5f) + 12582912.0f : fmaf(x, per, 12582912.0f),
              whole = shifted - 12582912.0f, q = HALF ? whole + 0.5f : whole;
  const float r = fmaf(-q, low, fmaf(-q, high, x));
  return {deep<S> ? r + tail : r, bits_as<u32>(shifted)};
}
/** Sine of the rest, the other way round for every odd count. */
WICK_FN float sine_of(Angle a) {
  const float z = a.rest * a.rest,
              s = a.rest * fmaf(z, fmaf(z, fmaf(z, -0.000185396329f, 0.00831419746f), -0.166658482f), 1.0f);
  return bits_as<float>(bits_as<u32>(s) ^ a.count << 31);
}
template <class S> WICK_FN float small_sin(float x) {
#ifdef WICK_AMD
  if (deep<S> && !(fabsf(x) < 65536.0f)) return sinf(x);
#endif
  return sine_of(angle_of<S, false>(x, 0.318309886f, 3.1415925f, 1.50995803e-7f));
}
template <class S> WICK_FN float small_cos(float x) {
#ifdef WICK_AMD
  if (deep<S> && !(fabsf(x) < 65536.0f)) return cosf(x);
#endif
  return -sine_of(angle_of<S, true>(x, 0.318309886f, 3.1415925f, 1.50995803e-7f));
}
template <class S> WICK_FN float small_tan(float x) {
#ifdef WICK_AMD
  if (deep<S> && !(fabsf(x) < 65536.0f)) return tanf(x);
#endif
  const Angle a = angle_of<S, false>(x, 0.636619772f, 1.57079625f, 7.54979013e-8f);
  const float z = a.rest * a.rest;
  const float p = deep<S> ? fmaf(z, fmaf(z, 0.0922622305f, 0.117987902f), 0.334973462f)
                          : fmaf(z, fmaf(z, fmaf(z, 0.043154264f, 0.0413311042f), 0.136085555f), 0.333152618f);
  const float t = a.rest * fmaf(z, p, 1.0f);
  const float turned = -unit_recip_normal(t);
  return a.count & 1 ? turned : t;
}
