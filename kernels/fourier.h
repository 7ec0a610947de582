// What Fourier transforms are made of: complex numbers, transforms of a few elements in registers, and the steps of a
// longer one, between which elements change places through shared memory. Kernels: fourier.hip.
#pragma once
#include "portable.h"

/** A kernel of which so many blocks are to fit on a multiprocessor; AMD's have the registers for that. */
#ifdef WICK_NVIDIA
#define KERNEL_BESIDE(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#else
#define KERNEL_BESIDE(threads, blocks) KERNEL(threads)
#endif

/** One access of both parts. */
template <class T> struct alignas(2 * sizeof(T)) Complex { T re, im; };
template <class T> WICK_FN Complex<T> operator+(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> WICK_FN Complex<T> operator-(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> WICK_FN Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {fmag(a.re, b.re, -(a.im * b.im)), fmag(a.re, b.im, a.im * b.re)};
}
/** -i a. */
template <class T> WICK_FN Complex<T> turned(Complex<T> a) { return {a.im, -a.re}; }
template <class T> WICK_FN Complex<T> mirrored(Complex<T> a) { return {a.re, -a.im}; }
template <class T> WICK_FN Complex<T> exchanged(Complex<T> a) { return {a.im, a.re}; }

// ---- constants that compilers work out ----

template <int I> struct Number { static constexpr int value = I; };
/** f(Number<0>), f(Number<1>), ... */
template <int N, int I = 0, class F> WICK_FN void each_of(const F& f) {
  if constexpr (I < N) f(Number<I>()), each_of<N, I + 1>(f);
}
/** The cosine or sine of 2 pi k / r: quarters of a turn, and a series for the rest, at most an eighth. */
WICK_FN constexpr double on_circle(int k, int r, bool sine) {
  const int quarters = (8 * k + r) / (2 * r), rest = 4 * k - quarters * r;
  const double x = 1.5707963267948966 * rest / r, square = x * x;
  double c = 1, s = 1;
  for (int i = 12; i > 0; i--) {
    c = 1 - c * square / ((2 * i - 1) * (2 * i));
    s = 1 - s * square / ((2 * i) * (2 * i + 1));
  }
  s *= x;
  const int q = (quarters + (sine ? 3 : 0)) % 4;
  return q == 0 ? c : q == 1 ? -s : q == 2 ? -c : s;
}
template <int K, int R> struct Root {
  static constexpr double re = on_circle(K % R, R, false), im = on_circle(K % R, R, true);
};
/** a e^(-2 pi i K / R). */
template <int K, int R, class T> WICK_FN Complex<T> turned_by(Complex<T> a) {
  constexpr int eighths = 8 * K % R == 0 ? 8 * K / R % 8 : -1;
  constexpr T half = (T)0.7071067811865476, c = (T)Root<K, R>::re, s = (T)Root<K, R>::im;
  if constexpr (eighths == 0) return a;
  else if constexpr (eighths == 1) return {half * (a.re + a.im), half * (a.im - a.re)};
  else if constexpr (eighths == 2) return turned(a);
  else if constexpr (eighths == 3) return {half * (a.im - a.re), -half * (a.re + a.im)};
  else if constexpr (eighths == 4) return {-a.re, -a.im};
  else return {fmag(a.re, c, a.im * s), fmag(a.im, c, -(a.re * s))};
}

// ---- a few elements ----

/** What two transforms make one of R elements of: the larger factor near the root; 1 of a prime. */
WICK_FN constexpr int part_of(int r) {
  if (r == 4) return 1;
  if (r % 4 == 0) return 4;
  for (int p = 2; p * p <= r; p++)
    if (r % p == 0) return p;
  return 1;
}
template <int R, class T> WICK_FN void butterfly(Complex<T> (&v)[R]);
/** Element n of Q * P goes to k1 + P * k2: transforms of P elements, turns, transforms of Q. */
template <int P, int Q, class T> WICK_FN void butterfly_in_two(Complex<T> (&v)[P * Q]) {
  Complex<T> w[P * Q];
  each_of<Q>([&](auto second) {
    constexpr int b = decltype(second)::value;
    Complex<T> u[P];
#pragma unroll
    for (int a = 0; a < P; a++) u[a] = v[Q * a + b];
    butterfly<P>(u);
    each_of<P>([&](auto first) {
      constexpr int k = decltype(first)::value;
      w[k * Q + b] = turned_by<k * b, P * Q>(u[k]);
    });
  });
#pragma unroll
  for (int k = 0; k < P; k++) {
    Complex<T> u[Q];
#pragma unroll
    for (int b = 0; b < Q; b++) u[b] = w[k * Q + b];
    butterfly<Q>(u);
#pragma unroll
    for (int b = 0; b < Q; b++) v[k + P * b] = u[b];
  }
}
/** Of an odd prime: elements that stand for each other's mirror images are added and subtracted. */
template <int R, class T> WICK_FN void butterfly_of_prime(Complex<T> (&v)[R]) {
  constexpr int H = R / 2;
  Complex<T> sum[H], less[H];
  const Complex<T> first = v[0];
  Complex<T> all = first;
#pragma unroll
  for (int q = 0; q < H; q++) sum[q] = v[q + 1] + v[R - 1 - q], less[q] = v[q + 1] - v[R - 1 - q], all = all + sum[q];
  v[0] = all;
  each_of<H>([&](auto result) {
    constexpr int k = decltype(result)::value + 1;
    Complex<T> a = first, b = {(T)0, (T)0};
    each_of<H>([&](auto element) {
      constexpr int q = decltype(element)::value;
      constexpr T c = (T)Root<k*(q + 1), R>::re, s = (T)Root<k*(q + 1), R>::im;
      a = {fmag(sum[q].re, c, a.re), fmag(sum[q].im, c, a.im)};
      b = {fmag(less[q].re, s, b.re), fmag(less[q].im, s, b.im)};
    });
    v[k] = a + turned(b);
    v[R - k] = a - turned(b);
  });
}
template <int R, class T> WICK_FN void butterfly(Complex<T> (&v)[R]) {
  constexpr int P = part_of(R);
  if constexpr (R == 2) {
    const Complex<T> sum = v[0] + v[1];
    v[1] = v[0] - v[1];
    v[0] = sum;
  } else if constexpr (R == 4) {
    const Complex<T> even = v[0] + v[2], odd = v[1] + v[3], less = v[0] - v[2], turn = turned(v[1] - v[3]);
    v[0] = even + odd;
    v[1] = less + turn;
    v[2] = even - odd;
    v[3] = less - turn;
  } else if constexpr (P > 1) butterfly_in_two<P, R / P>(v);
  else if constexpr (R > 1) butterfly_of_prime<R>(v);
}

// ---- steps ----

/**
 * Where a row's elements lie in shared memory: a place is left free after every 2 ** pad of them, against conflicts.
 * Elements whose distance is a multiple of that, or that do not cross one, have places at equal distances.
 */
template <class T> struct FourierRow {
  Complex<T>* room;
  u32 pad;
  WICK_MEMBER Complex<T>* at(u32 i) const { return room + i + (i >> pad); }
  WICK_MEMBER u32 apart(u32 distance) const { return distance + (distance >> pad); }
};
/** The same of neighbours side by side. */
template <class T> struct FourierColumn {
  Complex<T>* room;
  u32 together;
  WICK_MEMBER Complex<T>* at(u32 i) const { return room + i * together; }
  WICK_MEMBER u32 apart(u32 distance) const { return distance * together; }
};
/** A thread of those that transform n elements; it may have none to do. */
struct FourierThread {
  u32 lane, lanes, n;
  bool active;
};
/**
 * The same number, of which compilers know nothing: what follows from it is not worked out ahead, for every kind of
 * step.
 */
WICK_FN u32 as_if_new(u32 v) {
#ifdef WICK_NVIDIA
  asm volatile("" : "+r"(v));
#elif defined(WICK_AMD)
  asm volatile("" : "+v"(v));
#endif
  return v;
}
WICK_FN constexpr int bits_of(int r) { return r <= 2 ? 1 : r <= 4 ? 2 : r <= 8 ? 3 : r <= 16 ? 4 : 5; }
WICK_FN constexpr int highest_of(int q) { return q >= 16 ? 16 : q >= 8 ? 8 : q >= 4 ? 4 : q >= 2 ? 2 : 1; }

/** What a step makes of transforms of `span` elements: R times as long ones. */
template <class T> struct FourierStep {
  u32 span;
  /** Roots of exponents 1, 2, 4, ... below R, `span` of each. */
  const Complex<T>* roots;
  /** The first step of a second transform reads what lies in shared memory. */
  bool again;
  /** Results go to `store` rather than to shared memory. */
  bool last;
};
/**
 * E elements a thread at most, and all of them where EXACT, the length being a power of two. The first step takes them
 * from `load`.
 */
template <int R, int E, bool EXACT, class T, class Held, class Load, class Store>
WICK_FN void fourier_step(const FourierThread& t, const Held& held, const FourierStep<T>& s, const Load& load,
                          const Store& store) {
  constexpr int B = E / R;
  const u32 each = t.n / R, span = s.span, inverse = EXACT ? 0 : 0xffffffffu / span + 1;
  const auto on = [&](u32 j) { return EXACT ? t.active : j < each && t.active; };
  const auto place = [&](u32 j) { return EXACT ? j & (span - 1) : j - (u32)((u64)j * inverse >> 32) * span; };
  Complex<T> v[B][R];
  if (span == 1) {
#pragma unroll
    for (int b = 0; b < B; b++) {
      const u32 j = t.lane + b * t.lanes;
#pragma unroll
      for (int q = 0; q < R; q++) v[b][q] = on(j) ? load(j + q * each, s.again) : Complex<T>{(T)0, (T)0};
    }
  } else {
    const u32 apart = held.apart(each);
#pragma unroll
    for (int b = 0; b < B; b++) {
      const u32 j = t.lane + b * t.lanes;
      const Complex<T>* const from = held.at(j);
#pragma unroll
      for (int q = 0; q < R; q++) v[b][q] = on(j) ? from[q * apart] : Complex<T>{(T)0, (T)0};
    }
#pragma unroll
    for (int b = 0; b < B; b++) {
      const u32 j = t.lane + b * t.lanes;
      if (!on(j)) continue;
      const Complex<T>* const roots = s.roots + place(j);
      Complex<T> w[R];
#pragma unroll
      for (int p = 0; p < bits_of(R); p++)
        if ((1 << p) < R) w[1 << p] = roots[p * span];
#pragma unroll
      for (int q = 1; q < R; q++) {
        if (q != highest_of(q)) w[q] = w[highest_of(q)] * w[q - highest_of(q)];
        v[b][q] = v[b][q] * w[q];
      }
    }
  }
#pragma unroll
  for (int b = 0; b < B; b++) butterfly<R>(v[b]);
  if (!s.last && (span > 1 || s.again)) __syncthreads();  // everybody has read
  const u32 apart = span > 1 ? held.apart(span) : held.apart(1);
#pragma unroll
  for (int b = 0; b < B; b++) {
    const u32 j = t.lane + b * t.lanes, k = span > 1 ? place(j) : 0, to = (j - k) * R + k;
    if (!on(j)) continue;
    if (s.last) {
#pragma unroll
      for (int q = 0; q < R; q++) store(to + q * span, v[b][q]);
    } else {
      Complex<T>* const into = held.at(to);
#pragma unroll
      for (int q = 0; q < R; q++) into[q * apart] = v[b][q];
    }
  }
  if (!s.last) __syncthreads();
}
/**
 * The steps that stand in `radices`, a byte each, PASSES times. Results go to `store`, or stay in `held` where KEPT.
 * TWOS: lengths are powers of two from 16 on.
 */
template <int E, bool TWOS, int PASSES, bool KEPT, class T, class Held, class Load, class Store>
WICK_FN void fourier_steps(const FourierThread& t, const Held& held, u64 radices, const Complex<T>* roots,
                           const Load& load, const Store& store) {
  FourierStep<T> s = {1, roots, false, false};
  u64 left = radices;
  ROLLED
  while (left) {
    const u32 radix = (u32)(left & 255);
    left >>= 8;
    const FourierThread now = {as_if_new(t.lane), as_if_new(t.lanes), as_if_new(t.n), t.active};
    s.last = !KEPT && left == 0 && (PASSES == 1 || s.again);
#define WICK_STEP(R)                                     \
  case R:                                                \
    fourier_step<R, E, TWOS>(now, held, s, load, store); \
    if (s.span > 1) s.roots += bits_of(R) * s.span;      \
    break;
    if constexpr (TWOS) {
      switch (radix) {
        WICK_STEP(2)
        WICK_STEP(4)
        WICK_STEP(8)
        WICK_STEP(16)
      }
    } else {
      switch (radix) {
        WICK_STEP(1)
        WICK_STEP(2)
        WICK_STEP(3)
        WICK_STEP(4)
        WICK_STEP(5)
        WICK_STEP(6)
        WICK_STEP(7)
        WICK_STEP(8)
        WICK_STEP(9)
        WICK_STEP(10)
        WICK_STEP(11)
        WICK_STEP(12)
        WICK_STEP(13)
        WICK_STEP(15)
        WICK_STEP(16)
      }
    }
#undef WICK_STEP
    s.span *= radix;
    if (PASSES > 1 && left == 0 && !s.again) s = {1, roots, true, false}, left = radices;
  }
}
/** The same of steps that compilers know, once. */
template <int E, int SPAN, int N, bool KEPT, int R, int... REST, class T, class Held, class Load, class Store>
WICK_FN void fourier_known_steps(u32 lane, bool active, const Held& held, const Complex<T>* roots, const Load& load,
                                 const Store& store) {
  constexpr bool last = sizeof...(REST) == 0;
  const FourierThread t = {lane, N / E, N, active};
  fourier_step<R, E, true>(t, held, FourierStep<T>{SPAN, roots, false, last && !KEPT}, load, store);
  if constexpr (!last) {
    constexpr int read = SPAN > 1 ? bits_of(R) * SPAN : 0;
    fourier_known_steps<E, SPAN * R, N, KEPT, REST...>(lane, active, held, roots + read, load, store);
  }
}
