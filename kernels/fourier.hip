// Discrete Fourier transforms of rows. Launches: src/backends/gpu/fourier.ts.
//
//   fourier_factors  table[k] = e^(-2 pi i k / n), each from an angle below a quarter turn, in double
//   fourier_rows     `together` rows a block and turn, twice in shared memory; each step of `radices` (a byte each)
//                    reads one copy and writes the other, so that results come out in order
//   fourier_columns, fourier_joined   a row too long for that, of a * b elements: transforms of its b columns of a
//                    elements, turned by their places; then of the a rows of what they gave, whose element k1, k2 is
//                    result k1 + a * k2. A block works on neighbours, so that whole sectors are read and written
#include "block.h"

template <class T> struct Complex { T re, im; };
template <class T> WICK_FN Complex<T> operator+(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> WICK_FN Complex<T> operator-(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> WICK_FN Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {fmag(a.re, b.re, -(a.im * b.im)), fmag(a.re, b.im, a.im * b.re)};
}
/** -i a. */
template <class T> WICK_FN Complex<T> turned(Complex<T> a) { return {a.im, -a.re}; }

template <class T> WICK_FN void fourier_factors(Complex<T>* table, u32 n) {
  GRID_STRIDE(k, n) {
    const u32 quarters = (u32)(4 * k / n), rest = (u32)(4 * k % n);
    const double angle = 1.5707963267948966 * (double)rest / (double)n, c = cosg(angle), s = sing(angle);
    const double re = quarters & 1 ? -s : c, im = quarters & 1 ? -c : -s;
    table[k] = {(T)(quarters & 2 ? -re : re), (T)(quarters & 2 ? -im : im)};
  }
}

template <class T> WICK_FN void butterfly2(Complex<T>& a, Complex<T>& b) {
  const Complex<T> sum = a + b;
  b = a - b;
  a = sum;
}
/** In the order 0, 1, 2, 3. */
template <class T> WICK_FN void butterfly4(Complex<T>& a, Complex<T>& b, Complex<T>& c, Complex<T>& d) {
  const Complex<T> even = a + c, odd = b + d, less = a - c, turn = turned(b - d);
  a = even + odd;
  b = less + turn;
  c = even - odd;
  d = less - turn;
}
/** cos and sin of 2 pi i / R for i from 1 to R / 2, by compile-time choice. */
template <int R> WICK_FN double root_cos(int i) {
  if constexpr (R == 3) return -0.5;
  else if constexpr (R == 5) return i == 1 ? 0.30901699437494745 : -0.8090169943749475;
  else return i == 1 ? 0.6234898018587336 : i == 2 ? -0.2225209339563144 : -0.9009688679024191;
}
template <int R> WICK_FN double root_sin(int i) {
  if constexpr (R == 3) return 0.8660254037844386;
  else if constexpr (R == 5) return i == 1 ? 0.9510565162951535 : 0.5877852522924731;
  else return i == 1 ? 0.7818314824680298 : i == 2 ? 0.9749279121818236 : 0.4338837391175582;
}
template <int R, class T> WICK_FN void butterfly(Complex<T> (&v)[R]) {
  if constexpr (R == 2) butterfly2(v[0], v[1]);
  else if constexpr (R == 4) butterfly4(v[0], v[1], v[2], v[3]);
  else if constexpr (R == 8) {
    butterfly4(v[0], v[2], v[4], v[6]);
    butterfly4(v[1], v[3], v[5], v[7]);
    const T half = (T)0.7071067811865476;
    const Complex<T> o1 = v[3], o3 = v[7];
    const Complex<T> odd[4] = {v[1],
                               {half * (o1.re + o1.im), half * (o1.im - o1.re)},
                               turned(v[5]),
                               {half * (o3.im - o3.re), -half * (o3.re + o3.im)}};
    const Complex<T> even[4] = {v[0], v[2], v[4], v[6]};
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = even[k] + odd[k], v[k + 4] = even[k] - odd[k];
  } else {
    constexpr int H = R / 2;
    Complex<T> sum[H], less[H];
    const Complex<T> first = v[0];
    Complex<T> all = first;
#pragma unroll
    for (int q = 0; q < H; q++) sum[q] = v[q + 1] + v[R - 1 - q], less[q] = v[q + 1] - v[R - 1 - q], all = all + sum[q];
    v[0] = all;
#pragma unroll
    for (int k = 1; k <= H; k++) {
      Complex<T> a = first, b = {(T)0, (T)0};
#pragma unroll
      for (int q = 1; q <= H; q++) {
        const int at = q * k % R, i = at > H ? R - at : at;
        const T c = (T)root_cos<R>(i), s = at > H ? -(T)root_sin<R>(i) : (T)root_sin<R>(i);
        a = {fmag(sum[q - 1].re, c, a.re), fmag(sum[q - 1].im, c, a.im)};
        b = {fmag(less[q - 1].re, s, b.re), fmag(less[q - 1].im, s, b.im)};
      }
      v[k] = a + turned(b);
      v[R - k] = a - turned(b);
    }
  }
}

/** The rows that a block works on. */
template <class T> struct FourierRows {
  u32 here, n, pitch, pad, fine;
  /** Roots of a transform `fine` times as long. */
  const Complex<T>* table;
  /** Where element i of a row lies: neighbours of a step's results would else share their banks. */
  WICK_MEMBER u32 placed(u32 i) const { return i + (i >> pad); }
};
/** Transforms of `span` elements become ones of R times as many. */
template <int R, class T>
WICK_FN void fourier_step(const FourierRows<T>& r, const Complex<T>* from, Complex<T>* to, u32 span) {
  const u32 each = r.n / R, step = each / span * r.fine;
  ROLLED
  for (u32 i = threadIdx.x; i < r.here * each; i += blockDim.x) {
    const u32 row = i / each, j = i - row * each, k = j % span, at = (j - k) * R + k;
    const Complex<T>* x = from + row * r.pitch;
    Complex<T>* y = to + row * r.pitch;
    Complex<T> v[R];
#pragma unroll
    for (int q = 0; q < R; q++) {
      v[q] = x[r.placed(j + q * each)];
      if (q && k) v[q] = v[q] * r.table[q * k * step];
    }
    butterfly<R>(v);
#pragma unroll
    for (int q = 0; q < R; q++) y[r.placed(at + q * span)] = v[q];
  }
}
/** The same for any prime, an element of the results a thread. */
template <class T>
WICK_FN void fourier_prime(const FourierRows<T>& r, const Complex<T>* from, Complex<T>* to, u32 span, u32 prime) {
  const u32 each = r.n / prime, step = each / span;
  ROLLED
  for (u32 i = threadIdx.x; i < r.here * r.n; i += blockDim.x) {
    const u32 row = i / r.n, e = i - row * r.n, q = e / each, j = e - q * each, k = j % span;
    const Complex<T>* x = from + row * r.pitch;
    const u32 turn = k * step + q * each;
    Complex<T> sum = x[r.placed(j)];
    u32 angle = 0;
    ROLLED
    for (u32 u = 1; u < prime; u++) {
      angle += turn;
      if (angle >= r.n) angle -= r.n;
      sum = sum + x[r.placed(j + u * each)] * r.table[angle * r.fine];
    }
    to[row * r.pitch + r.placed((j - k) * prime + k + q * span)] = sum;
  }
}

/** All steps; answers the copy that the results lie in. */
template <class T>
WICK_FN Complex<T>* fourier_steps(const FourierRows<T>& r, Complex<T>* from, Complex<T>* to, u64 radices) {
  u32 span = 1;
  ROLLED
  for (u64 left = radices; left; left >>= 8) {
    const u32 radix = (u32)(left & 255);
    __syncthreads();
    switch (radix) {
      case 2: fourier_step<2>(r, from, to, span); break;
      case 3: fourier_step<3>(r, from, to, span); break;
      case 4: fourier_step<4>(r, from, to, span); break;
      case 5: fourier_step<5>(r, from, to, span); break;
      case 7: fourier_step<7>(r, from, to, span); break;
      case 8: fourier_step<8>(r, from, to, span); break;
      default: fourier_prime(r, from, to, span, radix);
    }
    span *= radix;
    Complex<T>* const other = from;
    from = to;
    to = other;
  }
  __syncthreads();
  return from;
}

template <class T>
WICK_FN void fourier_rows(const T* re, const T* im, T* out_re, T* out_im, const Complex<T>* table, i64 rows, i64 length,
                          i64 keep, double scale, u32 n, u32 together, u32 pad, u32 pitch, u64 radices) {
  DYNAMIC_SHARED(Complex<T>, room);
  const u32 given = (u32)length, wanted = (u32)keep;
  ROLLED
  for (i64 first = (i64)blockIdx.x * together; first < rows; first += (i64)gridDim.x * together) {
    const FourierRows<T> r = {rows - first < together ? (u32)(rows - first) : together, n, pitch, pad, 1, table};
    __syncthreads();
    ROLLED
    for (u32 i = threadIdx.x; i < r.here * n; i += blockDim.x) {
      const u32 row = i / n, j = i - row * n;
      const i64 at = (first + row) * length + j;
      const bool in = j < given;
      room[row * pitch + r.placed(j)] = {in && re ? re[at] : (T)0, in && im ? im[at] : (T)0};
    }
    const Complex<T>* done = fourier_steps(r, room, room + together * pitch, radices);
    ROLLED
    for (u32 i = threadIdx.x; i < r.here * wanted; i += blockDim.x) {
      const u32 row = i / wanted, k = i - row * wanted;
      const Complex<T> v = done[row * pitch + r.placed(k)];
      const i64 at = (first + row) * keep + k;
      if (out_re) out_re[at] = v.re * (T)scale;
      if (out_im) out_im[at] = v.im * (T)scale;
    }
  }
}

/** turned[row][k1][j2] = e^(-2 pi i k1 j2 / (n * b)) times result k1 of the n elements at j2, j2 + b, j2 + 2 b, ... */
template <class T>
WICK_FN void fourier_columns(const T* re, const T* im, Complex<T>* turned, const Complex<T>* table, i64 rows,
                             i64 length, u32 n, u32 b, u32 together, u32 pad, u32 pitch, u64 radices) {
  DYNAMIC_SHARED(Complex<T>, room);
  const u32 groups = (b + together - 1) / together, given = (u32)length;
  ROLLED
  for (i64 g = blockIdx.x; g < rows * groups; g += gridDim.x) {
    const i64 row = g / groups;
    const u32 first = (u32)(g - row * groups) * together;
    const FourierRows<T> r = {b - first < together ? b - first : together, n, pitch, pad, b, table};
    __syncthreads();
    ROLLED
    for (u32 i = threadIdx.x; i < together * n; i += blockDim.x) {
      const u32 j = i / together, c = i - j * together, e = j * b + first + c;
      if (c >= r.here) continue;
      const bool in = e < given;
      room[c * pitch + r.placed(j)] = {in && re ? re[row * length + e] : (T)0, in && im ? im[row * length + e] : (T)0};
    }
    const Complex<T>* done = fourier_steps(r, room, room + together * pitch, radices);
    ROLLED
    for (u32 i = threadIdx.x; i < together * n; i += blockDim.x) {
      const u32 k = i / together, c = i - k * together;
      if (c >= r.here) continue;
      turned[(row * n + k) * b + first + c] = done[c * pitch + r.placed(k)] * table[k * (first + c)];
    }
  }
}
/** Transforms of n elements each of turned[row][k1]; result k2 of them is result k1 + a * k2 of the row. */
template <class T>
WICK_FN void fourier_joined(const Complex<T>* turned, T* out_re, T* out_im, const Complex<T>* table, i64 rows, i64 keep,
                            double scale, u32 n, u32 a, u32 together, u32 pad, u32 pitch, u64 radices) {
  DYNAMIC_SHARED(Complex<T>, room);
  const u32 groups = (a + together - 1) / together, wanted = (u32)keep;
  ROLLED
  for (i64 g = blockIdx.x; g < rows * groups; g += gridDim.x) {
    const i64 row = g / groups;
    const u32 first = (u32)(g - row * groups) * together;
    const FourierRows<T> r = {a - first < together ? a - first : together, n, pitch, pad, a, table};
    __syncthreads();
    ROLLED
    for (u32 i = threadIdx.x; i < r.here * n; i += blockDim.x) {
      const u32 c = i / n, j = i - c * n;
      room[c * pitch + r.placed(j)] = turned[(row * a + first) * n + i];
    }
    const Complex<T>* done = fourier_steps(r, room, room + together * pitch, radices);
    ROLLED
    for (u32 i = threadIdx.x; i < together * n; i += blockDim.x) {
      const u32 k = i / together, c = i - k * together, at = first + c + a * k;
      if (c >= r.here || at >= wanted) continue;
      const Complex<T> v = done[c * pitch + r.placed(k)];
      if (out_re) out_re[row * keep + at] = v.re * (T)scale;
      if (out_im) out_im[row * keep + at] = v.im * (T)scale;
    }
  }
}
