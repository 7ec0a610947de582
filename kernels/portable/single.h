// Part of portable.h: special functions of a float in single precision, as sums of two floats where one would not do:
// within 0.7 units of the result. Arguments that need more (negative ones of lgamma and digamma) go to special.h.
#pragma once

/** head + tail, the tail below half a unit of the head. */
struct Two {
  float head, tail;
};
/** a + b exactly, |a| not below |b|, or a zero. */
WICK_FN Two two_sum(float a, float b) {
  const float s = a + b;
  return Two{s, b - (s - a)};
}
/** p x + c: one step of Horner's rule, the product at most as large as c. */
WICK_FN Two two_step(Two p, Two x, float c, float rest) {
  const float high = p.head * x.head;
  const float low = fmaf(p.head, x.tail, fmaf(p.tail, x.head, fmaf(p.head, x.head, -high)));
  const Two s = two_sum(c, high);
  return Two{s.head, s.tail + (low + rest)};
}
/** x p rounded once, but for what is far below. */
WICK_FN float two_times(Two p, Two x) { return fmaf(p.head, x.head, fmaf(p.head, x.tail, p.tail * x.head)); }
template <int N> WICK_FN float single_poly(const float (&c)[N], float x) {
  float y = c[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; i--) y = fmaf(y, x, c[i]);
  return y;
}

/** 1 / x of a normal float, roughly. */
WICK_FN float about_recip(float x) {
#ifdef WICK_NVIDIA
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#elif defined(WICK_AMD)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}
/** ln of a normal positive float and a little more, to 2^-29. */
WICK_FN Two two_log(Two x) {
  const float series[10] = {0.333333332813f,  -0.24999990248f, 0.200000099542f,  -0.16668004342f, 0.142865330601f,
                            -0.124506754309f, 0.11037549651f,  -0.106465497095f, 0.105326918424f, -0.0620295780099f};
  const i32 power = (i32)(bits_as<u32>(x.head) - 0x3f3504f3u) >> 23;
  const float m = bits_as<float>(bits_as<u32>(x.head) - ((u32)power << 23)), f = m - 1.0f, k = (float)power;
  const float square = f * f, cube = square * f;
  // The argument's tail is x.tail / x.head of 1.
  const float more = x.tail * about_recip(x.head);
  const Two s = two_sum(f, -0.5f * square);
  const float rest = fmaf(-0.5f, fmaf(f, f, -square), fmaf(cube, single_poly(series, f), more)) + s.tail;
  const Two whole = two_sum(k * 0.693115234375f, s.head);
  const float tail = fmaf(k, 3.1946184945309415e-05f, rest) + whole.tail;
  return two_sum(power == 0 ? s.head : whole.head, power == 0 ? rest : tail);
}

/** erfinv by polynomials in w = -ln(1 - x^2) and in its root. */
WICK_FN float single_erfinv(float x) {
  const float a = fabsf(x);
  if (!(a < 1.0f)) return a == 1.0f ? x * 1e38f * 1e38f : (float)special_nan();
  const float square = a * a, s = 1.0f - square;
  const Two log = two_log(Two{s, ((1.0f - s) - square) - fmaf(a, a, -square)});
  const Two w = {-log.head, -log.tail};
  if (w.head < 5.0f) {
    const float c[10] = {
        -0.00125270487664f, 0.000218263557602f,  -4.99875997241e-06f, -3.4260122227e-06f, 4.79698930708e-07f,
        1.64572417136e-08f, -1.10232269307e-08f, 4.37030433247e-10f,  1.32859721135e-10f, 0.0f};
    Two t = two_sum(-2.5f, w.head);
    t.tail += w.tail;
    const float p = fmaf(single_poly(c, t.head), t.head, -0.00417732463624f);
    const Two q = two_step(two_step(Two{p, 0.0f}, t, 0.246640279889f, -4.104e-09f), t, 1.50140941143f, -5.974e-08f);
    // What is far down is lifted, where its tail would be lost.
    const float up = a < 1e-30f ? 0x1p64f : 1.0f, much = x * up;
    return fmaf(much, q.head, much * q.tail) * (a < 1e-30f ? 0x1p-64f : 1.0f);
  }
  const float c[10] = {
      -0.00764327911548f,  0.00568422380562f,  -0.00356341045237f, 0.00149013109118f,   -0.00013266466133f,
      -0.000304048338964f, 0.000181680806696f, -1.292216833e-05f,  -1.35542747492e-05f, 0.0f};
  const float root = sqrtf(w.head);
  const float less = (fmaf(-root, root, w.head) + w.tail) / (root + root);
  const Two t = {root - 3.0f, less};
  const float p = fmaf(single_poly(c, t.head), t.head, 0.00944558062827f);
  const Two q = two_step(two_step(Two{p, 0.0f}, t, 1.00167524815f, 1.205e-08f), t, 2.83297681808f, -1.999e-08f);
  return fmaf(x, q.head, x * q.tail);
}

/** ln Gamma of a positive float. */
WICK_FN float single_lgamma(float x) {
  if (x < 1.5f) {  // z A(z) = ln Gamma(1 + z)
    if (x < 1e-30f) return -logf(x);
    const float a[13] = {0.270580844146f,  -0.207382420838f, 0.169554203836f,  -0.144148320054f, 0.125603147217f,
                         -0.109832132624f, 0.0986730088128f, -0.103173677965f, 0.0949550923988f, -0.0237897358804f,
                         0.0210002908924f, -0.176676575797f, 0.166807724494f};
    const bool low = x < 0.5f;
    const Two z = {low ? x : x - 1.0f, 0.0f};
    Two p = {single_poly(a, z.head), 0.0f};
    p = two_step(p, z, -0.4006856679916382f, -3.9974495e-09f);
    p = two_step(p, z, 0.822467029094696f, 4.2595318e-09f);
    p = two_step(p, z, -0.5772156715393066f, 6.7113463e-09f);
    const float high = p.head * z.head, rest = fmaf(p.tail, z.head, fmaf(p.head, z.head, -high));
    if (!low) return high + rest;
    const Two log = two_log(Two{x, 0.0f}), s = two_sum(-log.head, high);
    return s.head + (s.tail + (rest - log.tail));
  }
  if (x < 3.0f) {  // z B(z) = ln Gamma(2 + z)
    const float b[9] = {0.020580838386f,    -0.00738569515983f,  0.00289023219662f,
                        -0.00119125525629f, 0.000509854040057f,  -0.000229236076654f,
                        0.000104949071405f, -3.90877125657e-05f, 7.50933338183e-06f};
    const Two z = {x - 2.0f, 0.0f};
    Two p = {fmaf(single_poly(b, z.head), z.head, -0.0673522960045f), 0.0f};
    p = two_step(p, z, 0.32246702909469604f, 3.6170612e-09f);
    p = two_step(p, z, 0.42278432846069336f, 6.6062577e-09f);
    return two_times(p, z);
  }
  if (x < 8.0f) {
    const float g[13] = {-0.00660149130541f,  0.000653773679577f, -7.7454877367e-05f,  1.01665323051e-05f,
                         -1.42541986613e-06f, 2.08426861563e-07f, -3.16277371445e-08f, 5.20486427743e-09f,
                         -8.29852020349e-10f, 8.11942802508e-11f, -1.29727058886e-11f, 7.33600451558e-12f,
                         -1.23577225874e-12f};
    const Two t = {x - 5.5f, 0.0f};
    Two p = {single_poly(g, t.head), 0.0f};
    p = two_step(p, t, 0.09967119246721268f, 1.3319673e-09f);
    p = two_step(p, t, 1.6110931634902954f, -1.4906008e-08f);
    const float high = p.head * t.head, low = fmaf(p.tail, t.head, fmaf(p.head, t.head, -high));
    const float c = 3.9578139781951904f, s = c + high, part = s - c;
    return s + (((c - (s - part)) + (high - part)) + (low - 1.0591357e-08f));
  }
  // (x - 1/2)(ln x - 1) + (ln(2 pi) - 1) / 2 + 1 / (12 x) - ...
  if (!(x < 4.1e36f)) return x * 1e38f;
  Two log = two_log(Two{x, 0.0f});
  const Two less = two_sum(log.head, -1.0f);
  log = Two{less.head, less.tail + log.tail};
  const float a = x - 0.5f, r = 1.0f / x, z = r * r;
  const float tail = fmaf(z, fmaf(z, 0.000793650794f, -0.00277777778f), 0.0833333333f) * r;
  const float high = log.head * a;
  if (!(high <= 3.4028234e38f)) return high;
  const float rest = fmaf(log.tail, a, fmaf(log.head, a, -high)) + log.head * ((x - a) - 0.5f);
  return high + (rest + (0.418938533205f + tail));
}

/** The logarithmic derivative of the gamma function at a positive float. */
WICK_FN float single_digamma(float x) {
  if (x < 2.0f) {  // (z - z0) P(z - 1/2) is that of 1 + z
    if (x < 1e-18f) return -1.0f / x;
    const float c[10] = {-0.148405218553f, 0.0949889214236f,  -0.0619127709229f, 0.0407545932975f,   -0.0271018354243f,
                         0.0179912615586f, -0.0110962281035f, 0.00738577678195f, -0.00769679044525f, 0.00512908326184f};
    const bool low = x < 1.0f;
    const float z = low ? x : x - 1.0f, half = z - 0.5f;
    const Two t = {half, z - (half + 0.5f)};
    Two p = {fmaf(single_poly(c, half), half, 0.240542482475f), 0.0f};
    p = two_step(p, t, -0.42362740635871887f, -1.2273843e-08f);
    p = two_step(p, t, 0.9510558843612671f, -8.3294342e-09f);
    const float off = z - 0.4616321325302124f;
    const float lost = z > 0.4616321325302124f ? (z - off) - 0.4616321325302124f : z - (off + 0.4616321325302124f);
    const float shift = lost - 1.2438149938918909e-08f, high = p.head * off;
    const float rest = fmaf(p.head, shift, fmaf(p.tail, off, fmaf(p.head, off, -high)));
    if (!low) return high + rest;
    const float r = 1.0f / x;
    const Two s = two_sum(-r, high);
    return s.head + (s.tail + fmaf(-r, fmaf(-r, x, 1.0f), rest));
  }
  if (x < 4.0f) {
    const float c[9] = {0.019823244272f,     -0.00567738643006f,  0.00171793975105f,
                        -0.000538324938238f, 0.000171619212622f,  -5.23753008546e-05f,
                        1.7053831657e-05f,   -8.31159400348e-06f, 2.74273293245e-06f};
    const Two t = {x - 3.0f, 0.0f};
    Two p = {fmaf(single_poly(c, t.head), t.head, -0.0770569350153f), 0.0f};
    p = two_step(p, t, 0.3949340581893921f, 8.5119312e-09f);
    p = two_step(p, t, 0.9227843284606934f, 7.0808921e-09f);
    return p.head + p.tail;
  }
  if (!(x <= 3.4028234e38f)) return x;
  const Two log = two_log(Two{x, 0.0f});
  const float r = 1.0f / x, z = r * r;
  const float c[6] = {0.0833333333f, -0.00833333333f, 0.00396825397f, -0.00416666667f, 0.00757575758f, -0.0210927961f};
  return log.head + (log.tail - fmaf(0.5f, r, z * single_poly(c, z)));
}
