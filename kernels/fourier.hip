// Discrete Fourier transforms of rows. Launches: src/backends/gpu/fourier.ts, which also makes the tables of roots.
//
//   fourier_rows      `together` rows a block, in registers during steps and in shared memory between them
//   fourier_columns   a row too long for that, of a * b elements: its b columns of a elements, turned by their places,
//                     then the a rows of what they gave, which the first launch wrote as columns. A block works on
//                     neighbours, so that whole sectors are read and written
//   fourier_middle    between the first and the last of three launches that convolve: rows of b elements to their
//                     spectra, times another one, and back
//   fourier_symmetric, fourier_parted   what long transforms of real rows begin or end with
//
// Real rows are halved, not paired: one row's infinities, or its size, are nothing to another.
// A length with a large prime is a convolution with a chirp (Bluestein), made by transforms of a power of two. The
// transform back is the one there with real and imaginary parts exchanged on both sides.
#include "fourier.h"

/** How a row becomes a transform: as it is; as the even and odd elements of a real one, or what gives these. */
enum FourierKind { WHOLE, HALVES, HALVES_BACK };

struct FourierShape {
  i64 rows;
  /** Where rows begin: `inner` of them one after another. Results lie side by side, `keep` of each row. */
  i64 inner, outer_stride, inner_stride, keep;
  double scale;
  /** The steps' kinds, a byte each. */
  i64 radices;
  /** Elements given of each row, elements of a transform, and those of the row it stands for. */
  u32 length, n, whole;
  u32 together, lanes, pad, pitch;
  /**
   * Imaginary parts change their sign; elements can be moved in twos; what is given is half of a spectrum whose other
   * half mirrors it.
   */
  u32 negative, packed, half;
};

/** A row and its results. */
template <int KIND, class T> struct FourierWork {
  const FourierShape& s;
  const T *re, *im;
  T *out_re, *out_im;
  const Complex<T>* whole_roots;

  WICK_MEMBER FourierWork(const FourierShape& s, const T* re, const T* im, T* out_re, T* out_im,
                          const Complex<T>* whole_roots, i64 row)
      : s(s), whole_roots(whole_roots) {
    const i64 outer = s.inner < s.rows ? row / s.inner : 0;
    const i64 from = outer * s.outer_stride + (row - outer * s.inner) * s.inner_stride, to = row * s.keep;
    this->re = re ? re + from : nullptr, this->im = im ? im + from : nullptr;
    this->out_re = out_re ? out_re + to : nullptr, this->out_im = out_im ? out_im + to : nullptr;
  }
  WICK_MEMBER Complex<T> given(u32 j) const {
    const bool in = j < s.length;
    const T a = in && re ? re[j] : (T)0, b = in && im ? im[j] : (T)0, times = s.half && j && 2 * j != s.whole ? 2 : 1;
    return {times * a, s.negative ? -times * b : times * b};
  }
  /** The spectrum of the real part of this row's transform. */
  WICK_MEMBER Complex<T> symmetric(u32 j) const {
    const Complex<T> a = given(j), b = given(j ? s.whole - j : 0);
    return {(T)0.5 * (a.re + b.re), (T)0.5 * (a.im - b.im)};
  }
  /** Element j of the transform. */
  WICK_MEMBER Complex<T> element(u32 j) const {
    const T none = (T)0;
    if constexpr (KIND == WHOLE) return given(j);
    else if constexpr (KIND == HALVES) {
      if (s.packed) return 2 * j < s.length ? ((const Complex<T>*)re)[j] : Complex<T>{none, none};
      return {2 * j < s.length ? re[2 * j] : none, 2 * j + 1 < s.length ? re[2 * j + 1] : none};
    } else {
      const Complex<T> a = symmetric(j), b = mirrored(symmetric(s.n - j)), w = (a - b) * whole_roots[j];
      return {a.re + b.re - w.im, a.im + b.im + w.re};
    }
  }
  WICK_MEMBER void put(u32 k, Complex<T> v) const {
    if (k >= s.keep) return;
    if (out_re) out_re[k] = v.re * (T)s.scale;
    if (out_im) out_im[k] = v.im * (T)s.scale;
  }
  /** Result k of the transform; HALVES has `part` for all of them. */
  WICK_MEMBER void result(u32 k, Complex<T> v) const {
    if constexpr (KIND == WHOLE) put(k, v);
    else {
      const Complex<T> two = {v.re * (T)s.scale, v.im * (T)s.scale};
      if (s.packed) {
        if (2 * k < s.keep) ((Complex<T>*)out_re)[k] = two;
      } else {
        if (2 * k < s.keep) out_re[2 * k] = two.re;
        if (2 * k + 1 < s.keep) out_re[2 * k + 1] = two.im;
      }
    }
  }
  /** A real row's frequency, and the one that mirrors it. */
  WICK_MEMBER void both(u32 k, Complex<T> v) const {
    if (s.negative) v = mirrored(v);
    put(k, v);
    if (s.keep > s.n + 1 && k && k != s.n) put(s.whole - k, mirrored(v));
  }
  /** What results k and n - k of the transform say of the real row: what they have in common, and what not. */
  WICK_MEMBER void part(u32 k, Complex<T> z, Complex<T> w) const {
    const Complex<T> y = mirrored(w), sum = {(T)0.5 * (z.re + y.re), (T)0.5 * (z.im + y.im)};
    const Complex<T> less = {(T)0.5 * (z.re - y.re), (T)0.5 * (z.im - y.im)}, turn = turned(less) * whole_roots[k];
    both(k, sum + turn);
    if (2 * k != s.n) both(s.n - k, mirrored(sum - turn));
  }
  /** The same where all n + 1 frequencies are wanted. */
  WICK_MEMBER void usual_part(u32 k, Complex<T> z, Complex<T> w) const {
    const T half = (T)0.5 * (T)s.scale, sign = s.negative ? -half : half;
    const Complex<T> sum = {z.re + w.re, z.im - w.im}, less = {z.im + w.im, w.re - z.re}, turn = less * whole_roots[k];
    out_re[k] = (sum.re + turn.re) * half;
    out_im[k] = (sum.im + turn.im) * sign;
    out_re[s.n - k] = (sum.re - turn.re) * half;
    out_im[s.n - k] = (turn.im - sum.im) * sign;
  }
};

/** KNOWN: the steps, where compilers are to know them, of rows with free places whose elements move in twos. */
template <class T, int E, bool TWOS, int KIND, bool CHIRP, int... KNOWN>
WICK_FN void fourier_rows(const T* re, const T* im, T* out_re, T* out_im, const Complex<T>* roots,
                          const Complex<T>* whole_roots, const Complex<T>* chirp, const Complex<T>* spectrum,
                          const FourierShape& shape) {
  DYNAMIC_SHARED(Complex<T>, room);
  constexpr int N = sizeof...(KNOWN) > 0 ? (1 * ... * KNOWN) : 0;
  FourierShape s = shape;
  if constexpr (N > 0) {
    s.n = N, s.whole = KIND == WHOLE ? N : 2 * N, s.lanes = N / E, s.pad = 4, s.pitch = (N + N / 16) | 1;
    s.packed = 1;
  }
  const u32 here = threadIdx.x / s.lanes, lane = threadIdx.x - here * s.lanes;
  const i64 row = (i64)blockIdx.x * s.together + here;
  const bool active = here < s.together && row < s.rows;
  const FourierThread t = {lane, s.lanes, s.n, active};
  const FourierRow<T> held = {room + here * s.pitch, s.pad};
  const FourierWork<KIND, T> work(s, re, im, out_re, out_im, whole_roots, active ? row : 0);
  const auto load = [&](u32 j, bool again) -> Complex<T> {
    if (CHIRP && again) return exchanged(*held.at(j) * spectrum[j]);
    const Complex<T> v = work.element(j);
    return CHIRP && j < s.whole ? v * chirp[j] : v;
  };
  const auto store = [&](u32 k, Complex<T> v) {
    if (CHIRP && k >= s.whole) return;
    work.result(k, CHIRP ? exchanged(v) * chirp[k] : v);
  };
  if constexpr (N > 0) fourier_known_steps<E, 1, N, KIND == HALVES, KNOWN...>(lane, active, held, roots, load, store);
  else fourier_steps<E, TWOS, CHIRP ? 2 : 1, KIND == HALVES>(t, held, (u64)s.radices, roots, load, store);
  if constexpr (KIND == HALVES) {
    if (!active) return;
    if (s.keep == s.n + 1 && out_re && out_im) {
#pragma unroll 4
      for (u32 k = lane; k <= s.n / 2; k += s.lanes) work.usual_part(k, *held.at(k), *held.at(k ? s.n - k : 0));
    } else {
      ROLLED
      for (u32 k = lane; k <= s.n / 2; k += s.lanes) work.part(k, *held.at(k), *held.at(k ? s.n - k : 0));
    }
  }
}

// ---- long rows ----

struct FourierSides {
  i64 rows;
  /** Elements from row to row and from element to element, and how many there are of each part. */
  i64 row_stride, out_row_stride, step, out_step, re_length, im_length, re_keep, im_keep;
  double scale;
  i64 radices;
  /** Elements of a column, and how many columns, or neighbours, there are. */
  u32 n, side;
  u32 together, lanes;
  /** Turns by exponents of two parts: so many bits of them are fine. */
  u32 fine_bits;
  /** What is given is half of a spectrum of `whole` elements, whose other half mirrors it. */
  u32 half, whole;
};
/** e^(-2 pi i e / m) of an exponent below m. */
template <class T> WICK_FN Complex<T> fourier_turn(const Complex<T>* turns, u32 bits, u32 e) {
  return turns[e & ((1u << bits) - 1)] * turns[(1u << bits) + (e >> bits)];
}
/**
 * The first of two launches, the first of three, and the last: the first ones write complex numbers, which the others
 * read.
 */
enum FourierPass { FIRST, SPREAD, LAST };
template <class T, int E, bool TWOS, int PASS>
WICK_FN void fourier_columns(const T* re, const T* im, T* out_re, T* out_im, const Complex<T>* roots,
                             const Complex<T>* turns, const Complex<T>* chirp, const FourierSides& s) {
  DYNAMIC_SHARED(Complex<T>, room);
  const u32 groups = (s.side + s.together - 1) / s.together;
  const i64 row = blockIdx.x / groups;
  const u32 begin = (blockIdx.x - (u32)row * groups) * s.together;
  const u32 lane = threadIdx.x / s.together, c = threadIdx.x - lane * s.together, column = begin + c;
  const FourierThread t = {lane, s.lanes, s.n, column < s.side && lane < s.lanes};
  const FourierColumn<T> held = {room + c, s.together};
  const i64 whole = (i64)s.n * s.side;
  const Complex<T>* const from = (const Complex<T>*)re + row * whole;
  Complex<T>* const to = (Complex<T>*)out_re + row * whole;
  const auto load = [&](u32 j, bool) -> Complex<T> {
    const u32 e = j * s.side + column;
    if constexpr (PASS == LAST) return from[e];
    else {
      const i64 at = row * s.row_stride + e * s.step;
      const T times = s.half && e && 2 * e != s.whole ? 2 : 1;
      const Complex<T> v = {re && e < s.re_length ? times * re[at] : (T)0,
                            im && e < s.im_length ? times * im[at] : (T)0};
      return PASS == SPREAD && e < s.re_length ? v * chirp[e] : v;
    }
  };
  const auto store = [&](u32 k, Complex<T> v) {
    const u32 e = k * s.side + column;
    if constexpr (PASS == SPREAD) to[e] = v * fourier_turn(turns, s.fine_bits, k * column);
    else {
      const i64 at = row * s.out_row_stride + e * s.out_step;
      const bool a = out_re && e < s.re_keep, b = out_im && e < s.im_keep;
      if (!a && !b) return;
      if (chirp) v = exchanged(v) * chirp[e];
      if (a) out_re[at] = v.re * (T)s.scale;
      if (b) out_im[at] = v.im * (T)s.scale;
    }
  };
  fourier_steps<E, TWOS, 1, PASS == FIRST>(t, held, (u64)s.radices, roots, load, store);
  if constexpr (PASS == FIRST) {
    const u32 here = s.side - begin < s.together ? s.side - begin : s.together;
    ROLLED
    for (u32 i = threadIdx.x; i < here * s.n; i += blockDim.x) {
      const u32 col = i / s.n, k = i - col * s.n;
      to[(i64)begin * s.n + i] = room[k * s.together + col] * fourier_turn(turns, s.fine_bits, k * (begin + col));
    }
  }
}

/** Rows k of `a` in turn, of n elements each: there, times the spectrum of all, back, and turned. */
template <class T, int E>
WICK_FN void fourier_middle(Complex<T>* data, const Complex<T>* roots, const Complex<T>* turns,
                            const Complex<T>* spectrum, i64 rows, i64 radices, u32 n, u32 a, u32 together, u32 lanes,
                            u32 pad, u32 pitch, u32 fine_bits) {
  DYNAMIC_SHARED(Complex<T>, room);
  const u32 here = threadIdx.x / lanes, lane = threadIdx.x - here * lanes;
  const i64 row = (i64)blockIdx.x * together + here;
  const bool active = here < together && row < rows;
  const u32 k = (u32)(row % a);
  const FourierThread t = {lane, lanes, n, active};
  const FourierRow<T> held = {room + here * pitch, pad};
  Complex<T>* const x = data + row * n;
  const Complex<T>* const times = spectrum + k * n;
  const auto load = [&](u32 j, bool again) -> Complex<T> { return again ? exchanged(*held.at(j) * times[j]) : x[j]; };
  const auto store = [&](u32 m, Complex<T> v) { x[m] = v * fourier_turn(turns, fine_bits, k * m); };
  fourier_steps<E, true, 2, false>(t, held, (u64)radices, roots, load, store);
}

template <class T>
WICK_FN void fourier_symmetric(const T* re, const T* im, Complex<T>* made, const Complex<T>* whole_roots,
                               const FourierShape& s) {
  GRID_STRIDE(i, s.rows * s.n) {
    const i64 row = i / s.n;
    const FourierWork<HALVES_BACK, T> work(s, re, im, nullptr, nullptr, whole_roots, row);
    made[i] = work.element((u32)(i - row * s.n));
  }
}
template <class T>
WICK_FN void fourier_parted(const Complex<T>* made, T* out_re, T* out_im, const Complex<T>* whole_roots,
                            const FourierShape& s) {
  const u32 each = s.n / 2 + 1;
  GRID_STRIDE(i, s.rows * each) {
    const i64 row = i / each;
    const u32 k = (u32)(i - row * each);
    const Complex<T>* const z = made + row * s.n;
    const FourierWork<HALVES, T> work(s, nullptr, nullptr, out_re, out_im, whole_roots, row);
    work.part(k, z[k], z[k ? s.n - k : 0]);
  }
}
