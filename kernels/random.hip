// Uniform and normal random numbers from Philox4x32-10: bit for bit what src/ops/random.ts defines, however the work is
// cut. A Philox block gives four elements of the 24-bit uniform stream, two of the others.
#include "block.h"

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

// Wichura's AS 241: the x below which a standard normal number lies with probability p = q + 1/2.
WICK_FN bool is_central(double q) { return absg(q) <= 0.425; }
WICK_FN double central_quantile(double q) {
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
  const double r = add_rn(0.180625, -mul_rn(q, q));
  return mul_rn(q, poly(centre_over, r)) / poly(centre_under, r);
}
WICK_FN double outer_quantile(double p) {
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
  const bool below = add_rn(p, -0.5) < 0;
  const double r = sqrtg(-fixed_log(below ? p : add_rn(1.0, -p)));
  double over, under;
  if (r <= 5) over = poly(near_over, add_rn(r, -1.6)), under = poly(near_under, add_rn(r, -1.6));
  else over = poly(far_over, add_rn(r, -5.0)), under = poly(far_under, add_rn(r, -5.0));
  return (below ? -over : over) / under;  // one division in the code: each is as long as a polynomial
}

// A recorded step finds the seed and where its stream begins in `fed`; the offset counts from there then.

/** Where uniform numbers lie: lo + u * span, clamped to [bottom, top], which are values of the dtype. */
struct Range {
  double lo, span, bottom, top;
};
/** Element k of a block: 53 bits for f64, 24 for the others. */
template <class S> WICK_FN S uniform_number(const Words& r, u32 k, const Range& in) {
  double u;
  if constexpr (same<S, double>)
    u = mul_rn(add_rn(mul_rn((double)(r.w[2 * k] >> 5), 67108864.0), (double)(r.w[2 * k + 1] >> 6)), 0x1p-53);
  else {
    if (in.lo == 0 && in.span == 1) {  // float holds all of it exactly, and double is slow
      const float v = (float)(r.w[k] >> 8) * 0x1p-24f, top = (float)in.top;
      return from_compute<S>(v > top ? top : v);
    }
    u = mul_rn((double)(r.w[k] >> 8), 0x1p-24);
  }
  const double x = add_rn(in.lo, mul_rn(u, in.span));
  return round_to<S>(x < in.bottom ? in.bottom : x > in.top ? in.top : x);
}
template <class S>
WICK_FN void uniform(u64 n, u64 seed, u64 offset, const u64* fed, double lo, double span, double bottom, double top,
                     S* out) {
  if (fed) seed = fed[0], offset += fed[1];
  const Range in = {lo, span, bottom, top};
  constexpr bool wide = same<S, double>;
  constexpr u32 per = wide ? 2 : 4, V = pack_size<S>;
  const u32 skip = (u32)(offset % per);
  // In [0, 1) every number of 24 bits is a float, below the largest that there may be.
  if constexpr (same<S, float>)
    if (lo == 0 && span == 1 && skip == 0 && aligned16(out)) {
      constexpr u32 TURNS = 2;
      const u64 step = blockDim.x;
      for (u64 g = (u64)blockIdx.x * TURNS * step + threadIdx.x; g < (n + 3) / 4; g += (u64)gridDim.x * TURNS * step)
#pragma unroll
        for (u32 t = 0; t < TURNS; t++) {
          const u64 at = (g + t * step) * 4;
          if (at >= n) break;
          const Words r = philox((offset + at) / 4, 0, seed);
          float u[4];
#pragma unroll
          for (u32 k = 0; k < 4; k++) u[k] = (float)(r.w[k] >> 8) * 0x1p-24f;
          if (at + 4 <= n) store_v<4>(out + at, u);
          else
            for (u32 k = 0; at + k < n; k++) out[at + k] = u[k];
        }
      return;
    }
  if (skip == 0 && aligned16(out)) {
    // As many blocks a thread as fill a store of 16 bytes.
    GRID_STRIDE(t, (n + V - 1) / V) {
      Pack<S> pack;
#pragma unroll
      for (u32 b = 0; b < V; b += per) {
        const Words r = philox((offset + t * V + b) / per, wide ? 1 : 0, seed);
#pragma unroll
        for (u32 k = 0; k < per; k++) pack.v[b + k] = uniform_number<S>(r, k, in);
      }
      if (t * V + V <= n) store_pack(out + t * V, pack);
      else
#pragma unroll
        for (u32 k = 0; k < V; k++)
          if (t * V + k < n) out[t * V + k] = pack.v[k];
    }
    return;
  }
  GRID_STRIDE(t, (n + skip + per - 1) / per) {
    const Words r = philox((offset - skip + t * per) / per, wide ? 1 : 0, seed);
#pragma unroll
    for (u32 k = 0; k < per; k++) {
      const u64 i = t * per + k - skip;  // wraps below the first element and is then beyond n
      if (i < n) out[i] = uniform_number<S>(r, k, in);
    }
  }
}

/** The quantile of u = (M + 1/2) 2^-52 in double, every step rounded on its own; M from the two words of an element. */
WICK_FN double exact_quantile(u32 a, u32 b) {
  const u64 m = (u64)(a >> 6) << 26 | b >> 6;
  const double u = mul_rn(add_rn((double)m, 0.5), 0x1p-52), q = add_rn(u, -0.5);
  return is_central(q) ? central_quantile(q) : outer_quantile(u);
}

// Quantiles by a table: |2u - 1| or 1 - |2u - 1|, whichever is less, lies in an octave, an octave has 128 intervals,
// and an interval a cubic in single precision about its middle (src/backends/gpu/random.ts makes the table). It is off
// by 2^-30 of the middle's quantile at most: where both ends of what is possible round to the same number, that is the
// number. One in forty is left to exact_quantile.
constexpr u32 TABLE_SMALL = 8, TABLE_NEAR = 10, TABLE_WORDS = 4 * 128 * (TABLE_SMALL + TABLE_NEAR);
constexpr float DOUBT = 0x1.1p-30f;
struct Between {
  float middle, low, high;  // |quantile| is between middle + low and middle + high
};
/** False where the table does not reach. */
WICK_FN bool quantile_between(u32 a, u32 b, const u32* table, Between& q) {
  // With the first bit of M gone and the others turned where the second is set, 24 bits and 26 behind them are half of
  // the lesser of the two, in units of 2^-51.
  const u32 turn = (u32)((i32)(a << 1) >> 31);
  const bool near = (i32)(a ^ a << 1) >= 0;  // the ends of (0, 1)
  const u32 top = (a ^ turn) << 2 >> 8;
  const float head = (float)top, behind = bits_as<float>(0x3f800000u | (b ^ turn) >> 9) - 1.0f;
  const u32 bits = bits_as<u32>(head);
  const float v = (head - bits_as<float>((bits & 0xffff0000u) | 0x8000u)) + behind;
  const bool there = top >= 1u << (24 - (near ? TABLE_NEAR : TABLE_SMALL));
  const u32 base = (127 + 24 - TABLE_SMALL) * 128, other = (127 + 24 - TABLE_NEAR) * 128 - 128 * TABLE_SMALL;
  u32 c[4];
  split_words(((const word4*)table)[there ? (bits >> 16) - (near ? other : base) : 0], c);
  const float cube = fmaf(bits_as<float>(c[3] << 16), v, bits_as<float>(c[2]));
  const float off = fmaf(fmaf(cube, v, bits_as<float>(c[1])), v, bits_as<float>(c[3] & 0xffff0000u));
  q.middle = bits_as<float>(c[0]);
  const float doubt = q.middle * DOUBT;
  q.low = off - doubt, q.high = off + doubt;
  return there;
}
/** The number that all of them round to, if there is one. STANDARD: mean 0 and standard deviation 1. */
template <bool STANDARD, class S>
WICK_FN bool number_between(const Between& q, bool below, double mean, double std, S& out) {
  if constexpr (STANDARD && same<S, float>) {
    const float low = q.middle + q.low, high = q.middle + q.high;
    out = below ? -low : low;
    return low == high;
  } else if constexpr (STANDARD) {
    const float low = (q.middle + q.low) * (1.0f - 0x1p-23f), high = (q.middle + q.high) * (1.0f + 0x1p-22f);
    out = from_compute<S>(below ? -low : low);
    return to_compute(out) == to_compute(from_compute<S>(below ? -high : high));
  } else {
    const double low = add_rn(q.middle, q.low), high = add_rn(q.middle, q.high);
    out = round_to<S>(add_rn(mean, mul_rn(std, below ? -low : low)));
    const S other = round_to<S>(add_rn(mean, mul_rn(std, below ? -high : high)));
    return to_compute(out) == to_compute(other) && signbitg(to_compute(out)) == signbitg(to_compute(other));
  }
}
constexpr u32 QUICK_BLOCK = 512, QUICK_EACH = 4, QUICK_TILE = 2 * QUICK_BLOCK * QUICK_EACH;
/** The numbers of `normal`, four at a time by the table; what it does not settle is put aside and done side by side. */
template <bool STANDARD, class S>
WICK_FN void quick_normal(u64 n, u64 seed, u64 offset, const u64* fed, const u64* words, double mean, double std,
                          S* out) {
  __shared__ __attribute__((aligned(16))) u32 table[TABLE_WORDS];
  __shared__ u16 left[QUICK_TILE];
  __shared__ u32 count;
  for (u32 i = threadIdx.x; i < TABLE_WORDS / 4; i += QUICK_BLOCK) ((word4*)table)[i] = ((const word4*)words)[i];
  if (fed) seed = fed[0], offset += fed[1];
  const u32 skip = (u32)(offset % 2);
  const bool whole = skip == 0 && aligned16(out);
  for (u64 base = (u64)blockIdx.x * QUICK_TILE; base < n + skip; base += (u64)gridDim.x * QUICK_TILE) {
    __syncthreads();  // the list is done with, and the table is there
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    ROLLED
    for (u32 at = QUICK_EACH * threadIdx.x; at < QUICK_TILE; at += QUICK_EACH * QUICK_BLOCK) {
      S made[QUICK_EACH];
      u32 open = 0;
#pragma unroll
      for (u32 k = 0; k < QUICK_EACH; k += 2) {
        const Words r = philox((offset - skip + base + at + k) / 2, 2, seed);
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
          const u32 a = r.w[2 * j], b = r.w[2 * j + 1];
          Between q;
          const bool there = quantile_between(a, b, table, q);
          const bool sure = number_between<STANDARD>(q, (i32)a >= 0, mean, std, made[k + j]);
          if (!there || !sure) open |= 1u << (k + j);
        }
      }
      const u64 first = base + at - skip;  // wraps below the first element and is then beyond n
      if (whole && first + QUICK_EACH <= n) {
        if constexpr (sizeof(S) == 4) {
          u32 w[4];
#pragma unroll
          for (u32 k = 0; k < QUICK_EACH; k++) w[k] = bits_as<u32>(made[k]);
          *(word4*)(out + first) = join_words(w);
        } else {
#pragma unroll
          for (u32 k = 0; k < QUICK_EACH; k++) out[first + k] = made[k];
        }
      } else {
#pragma unroll
        for (u32 k = 0; k < QUICK_EACH; k++)
          if (first + k < n) out[first + k] = made[k];
      }
      if (open) {
        u32 slot = atomic_add(&count, (u32)popcount64(open));
#pragma unroll
        for (u32 k = 0; k < QUICK_EACH; k++)
          if (open >> k & 1) left[slot++] = (u16)(at + k);
      }
    }
    __syncthreads();
    ROLLED
    for (u32 slot = threadIdx.x; slot < count; slot += QUICK_BLOCK) {
      const u64 i = base + left[slot] - skip;
      if (i >= n) continue;
      const u64 e = offset + i;
      const Words r = philox(e / 2, 2, seed);
      const bool odd = e % 2;
      const double q = exact_quantile(odd ? r.w[2] : r.w[0], odd ? r.w[3] : r.w[1]);
      out[i] = round_to<S>(add_rn(mean, mul_rn(std, q)));
    }
  }
}

constexpr u32 NORMAL_BLOCK = 256, NORMAL_TILE = 1024;
/**
 * A block makes a tile of numbers. Three in twenty lie outside the centre, where the quantile takes four times as long:
 * nearly every wave has some of them, so they are put aside and done side by side.
 */
template <class S> WICK_FN void normal(u64 n, u64 seed, u64 offset, const u64* fed, double mean, double std, S* out) {
  __shared__ S done[NORMAL_TILE];
  __shared__ double outer[NORMAL_TILE];
  __shared__ u16 outer_at[NORMAL_TILE];
  __shared__ u32 outers;
  if (fed) seed = fed[0], offset += fed[1];
  const u32 skip = (u32)(offset % 2);
  const auto number = [&](double quantile) { return round_to<S>(add_rn(mean, mul_rn(std, quantile))); };
  for (u64 base = (u64)blockIdx.x * NORMAL_TILE; base < n + skip; base += (u64)gridDim.x * NORMAL_TILE) {
    if (threadIdx.x == 0) outers = 0;
    __syncthreads();
    ROLLED
    for (u32 at = 2 * threadIdx.x; at < NORMAL_TILE; at += 2 * NORMAL_BLOCK) {
      Words r = philox((offset - skip + base + at) / 2, 2, seed);
      ROLLED
      for (u32 k = 0; k < 2; k++, r.w[0] = r.w[2], r.w[1] = r.w[3]) {
        const double u =
            mul_rn(add_rn(add_rn(mul_rn((double)(r.w[0] >> 6), 67108864.0), (double)(r.w[1] >> 6)), 0.5), 0x1p-52);
        const double q = add_rn(u, -0.5);
        if (is_central(q)) done[at + k] = number(central_quantile(q));
        else {
          const u32 slot = atomic_add(&outers, 1u);
          outer[slot] = u, outer_at[slot] = (u16)(at + k);
        }
      }
    }
    __syncthreads();
    ROLLED
    for (u32 slot = threadIdx.x; slot < outers; slot += NORMAL_BLOCK)
      done[outer_at[slot]] = number(outer_quantile(outer[slot]));
    __syncthreads();
    ROLLED
    for (u32 at = threadIdx.x; at < NORMAL_TILE; at += NORMAL_BLOCK) {
      const u64 i = base + at - skip;  // wraps below the first element and is then beyond n
      if (i < n) out[i] = done[at];
    }
  }
}

/**
 * out[i] = f(u[i], x[i]) for the numbers u of the 24-bit uniform stream. A thread takes as many elements as make 16
 * bytes, or four, twice.
 */
template <class S, class F> WICK_FN void with_uniform(u64 n, u64 seed, u64 offset, const S* x, S* out, F f) {
  constexpr u32 V = pack_size<S>, EACH = V < 4 ? 4 : V, TURNS = 2;
  const u32 skip = (u32)(offset % 4);
  if (skip == 0 && aligned16(x) && aligned16(out)) {
    const u64 groups = (n + EACH - 1) / EACH, step = blockDim.x;
    for (u64 g = (u64)blockIdx.x * TURNS * step + threadIdx.x; g < groups; g += (u64)gridDim.x * TURNS * step) {
      Pack<S> packs[TURNS][EACH / V];
#pragma unroll
      for (u32 t = 0; t < TURNS; t++) {
        const u64 at = (g + t * step) * EACH;
#pragma unroll
        for (u32 k = 0; k < EACH; k += V)
          if (at + k + V <= n) packs[t][k / V] = load_pack(x + at + k);
      }
#pragma unroll
      for (u32 t = 0; t < TURNS; t++) {
        const u64 at = (g + t * step) * EACH;
        if (at >= n) break;
#pragma unroll
        for (u32 b = 0; b < EACH; b += 4) {
          const Words r = philox((offset + at + b) / 4, 0, seed);
#pragma unroll
          for (u32 k = 0; k < 4; k++) {
            const u32 e = b + k;
            const float u = (float)(r.w[k] >> 8) * 0x1p-24f;
            if (at + e / V * V + V <= n) packs[t][e / V].v[e % V] = f(u, packs[t][e / V].v[e % V]);
            else if (at + e < n) out[at + e] = f(u, x[at + e]);
          }
        }
#pragma unroll
        for (u32 k = 0; k < EACH; k += V)
          if (at + k + V <= n) store_pack(out + at + k, packs[t][k / V]);
      }
    }
    return;
  }
  GRID_STRIDE(t, (n + skip + 3) / 4) {
    const Words r = philox((offset - skip + t * 4) / 4, 0, seed);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      const u64 i = t * 4 + k - skip;  // wraps below the first element and is then beyond n
      if (i < n) out[i] = f((float)(r.w[k] >> 8) * 0x1p-24f, x[i]);
    }
  }
}
/** Elements left out with probability p, the others times `by`. */
template <class S>
WICK_FN void drop_out(u64 n, u64 seed, u64 offset, const u64* fed, float p, compute_t<S> by, const S* x, S* out) {
  if (fed) seed = fed[0], offset += fed[1];
  with_uniform<S>(n, seed, offset, x, out, [&](float u, S v) {
    typedef compute_t<S> T;
    return from_compute<S>(u >= p ? fmag(to_compute(v), by, T(0)) : T(0));
  });
}
/** 1 with probability p[i], else 0; `wrong` where one is no probability. */
template <class S> WICK_FN void happen(u64 n, u64 seed, u64 offset, const S* p, S* out, u32* wrong) {
  bool bad = false;
  with_uniform<S>(n, seed, offset, p, out, [&](float u, S v) {
    const float share = (float)to_compute(v);
    bad = bad || !(share >= 0.0f && share <= 1.0f);
    return from_compute<S>((compute_t<S>)(u < share ? 1 : 0));
  });
  if (bad) *wrong = 1;
}

struct Lower {
  template <class A> WICK_MEMBER A operator()(A a, A b) const { return b < a ? b : a; }
};
constexpr i64 NOBODY = 0x7fffffffffffffff;
/**
 * Clocks that ring after -ln(1 - u) / weight: which of a chunk of a row rings first, the lower one of two. Grid
 * (chunks, rows), block 256. `wrong` where a weight is negative, infinite or NaN.
 */
template <class S>
WICK_FN void first_ring(const S* x, double* when, i64* who, u32* wrong, u64 n, u64 size, u64 seed, u64 offset) {
  __shared__ double times[WAVE_SLOTS];
  __shared__ i64 places[WAVE_SLOTS];
  const u64 row = blockIdx.y, from = blockIdx.x * size, to = from + size < n ? from + size : n;
  const u64 base = offset + row * n;
  double best = 1e308 * 1e308;
  i64 first = NOBODY;
  bool bad = false;
  ROLLED
  for (u64 block = (base + from) / 2 + threadIdx.x; 2 * block < base + to; block += 256) {
    const Words r = philox(block, 1, seed);
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
      const u64 i = 2 * block + k - base;
      if (i < from || i >= to) continue;  // before the first element it wraps, and is beyond the last
      const double w = (double)to_compute(x[row * n + i]);
      bad = bad || !(w >= 0 && w < 1e308 * 1e308);
      const double u = ((double)(r.w[2 * k] >> 5) * 67108864.0 + (double)(r.w[2 * k + 1] >> 6)) * 0x1p-53;
      // -ln(1 - u) is u at least: most need no logarithm.
      if (!(w > 0) || u > best * w * (1 + 1e-14)) continue;
      const double rings = -logg(1.0 - u) / w;
      if (rings < best || (first == NOBODY && rings == best)) best = rings, first = (i64)i;
    }
  }
  const double soonest = group_reduce(best, 256, times, Lower());
  first = group_reduce(best == soonest ? first : NOBODY, 256, places, Lower());
  if (bad) *wrong = 1;
  if (threadIdx.x == 0) when[row * gridDim.x + blockIdx.x] = soonest, who[row * gridDim.x + blockIdx.x] = first;
}
/** The first of each row's chunks, a thread a row; `wrong` where no clock rings. */
WICK_FN void join_rings(const double* when, const i64* who, i64* out, u32* wrong, u64 rows, u64 chunks) {
  GRID_STRIDE(row, rows) {
    double best = when[row * chunks];
    i64 first = who[row * chunks];
    ROLLED
    for (u64 c = 1; c < chunks; c++) {
      const double t = when[row * chunks + c];
      if (t < best || first == NOBODY) best = t, first = who[row * chunks + c];
    }
    if (first == NOBODY) *wrong = 1;
    out[row] = first;
  }
}
