// Discrete Fourier transforms of rows: some rows side by side, so that every step is the same for all of them; each
// step reads one copy and writes the other, so that results come out in order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/strided.h"
#include "engine/threads.h"
#include "ops.h"

namespace wick {
namespace {

template <class T> struct Factor { T re, im; };
// What the thread's table holds, of either type of numbers.
struct Made {
  int64_t n;
  double sign;
  size_t size;
};
thread_local Made made = {0, 0, 0};
// e^(sign 2 pi i k / n), each from an angle below a quarter turn; the last ones are kept, as lengths come again.
template <class T> const Factor<T>* factorsOf(int64_t n, double sign) {
  Factor<T>* table = static_cast<Factor<T>*>(scratch(SCRATCH_TURNS, (size_t)n * sizeof(Factor<T>)));
  if (made.n == n && made.sign == sign && made.size == sizeof(T)) return table;
  made = {n, sign, sizeof(T)};
  for (int64_t k = 0; k < n; k++) {
    const double angle = 1.5707963267948966 * (double)(4 * k % n) / (double)n, c = cos(angle), s = sin(angle);
    const double turns[4][2] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    const double* turn = turns[4 * k / n];
    table[(size_t)k] = {(T)turn[0], (T)(sign * turn[1])};
  }
  return table;
}
std::vector<int64_t> radicesOf(int64_t n) {
  std::vector<int64_t> list;
  for (int64_t p : {4, 2, 3})
    for (; n % p == 0; n /= p) list.push_back(p);
  for (int64_t p = 5; n > 1; p += 2)
    for (; n % p == 0; n /= p) list.push_back(p);
  return list;
}

// A complex element of W rows: their real parts, then the imaginary ones.
template <class T, int W> struct Lane { T re[W], im[W]; };
template <class T, int W> void timesInto(Lane<T, W>& to, const Lane<T, W>& a, Factor<T> f) {
  for (int w = 0; w < W; w++) {
    const T re = a.re[w] * f.re - a.im[w] * f.im, im = a.re[w] * f.im + a.im[w] * f.re;
    to.re[w] = re, to.im[w] = im;
  }
}
template <class T, int W> void addTimes(Lane<T, W>& to, const Lane<T, W>& a, Factor<T> f) {
  for (int w = 0; w < W; w++) {
    to.re[w] += a.re[w] * f.re - a.im[w] * f.im;
    to.im[w] += a.re[w] * f.im + a.im[w] * f.re;
  }
}
// Four elements at a time: sums and differences, of which a quarter turn is an exchange.
template <class T, int W> void four(const Lane<T, W> (&v)[4], Lane<T, W>* y, int64_t span, T sign) {
  for (int w = 0; w < W; w++) {
    const T er = v[0].re[w] + v[2].re[w], ei = v[0].im[w] + v[2].im[w];
    const T lr = v[0].re[w] - v[2].re[w], li = v[0].im[w] - v[2].im[w];
    const T sr = v[1].re[w] + v[3].re[w], si = v[1].im[w] + v[3].im[w];
    const T dr = sign * (v[1].re[w] - v[3].re[w]), di = sign * (v[1].im[w] - v[3].im[w]);
    y[0].re[w] = er + sr, y[0].im[w] = ei + si;
    y[span].re[w] = lr - di, y[span].im[w] = li + dr;
    y[2 * span].re[w] = er - sr, y[2 * span].im[w] = ei - si;
    y[3 * span].re[w] = lr + di, y[3 * span].im[w] = li - dr;
  }
}

template <class T, int W>
const Lane<T, W>* transform(Lane<T, W>* from, Lane<T, W>* to, int64_t n, const std::vector<int64_t>& radices,
                            const Factor<T>* table, T sign) {
  int64_t span = 1;
  for (int64_t r : radices) {
    const int64_t each = n / r, step = each / span;
    for (int64_t j = 0; j < each; j++) {
      const int64_t k = j % span;
      Lane<T, W>* y = to + (j - k) * r + k;
      if (r == 4) {
        Lane<T, W> v[4];
        v[0] = from[j];
        for (int64_t q = 1; q < 4; q++) timesInto(v[q], from[j + q * each], table[(size_t)(q * k * step)]);
        four(v, y, span, sign);
        continue;
      }
      for (int64_t q = 0; q < r; q++) {
        Lane<T, W> sum = from[j];
        const int64_t turn = k * step + q * each;
        for (int64_t u = 1, at = turn; u < r; u++, at = at + turn < n ? at + turn : at + turn - n)
          addTimes(sum, from[j + u * each], table[(size_t)at]);
        y[q * span] = sum;
      }
    }
    std::swap(from, to);
    span *= r;
  }
  return from;
}

template <class T> struct Rows {
  const T *re, *im;
  T *outRe, *outIm;
  int64_t length, n, keep;
  T scale, sign;
  // The elements are half of the row, of which the others are the mirror images.
  bool half;
  std::vector<int64_t> radices;
  const Factor<T>* table;
};
template <class T, int W> void some(const Rows<T>& r, int64_t first, int64_t count) {
  Lane<T, W>* from = static_cast<Lane<T, W>*>(scratch(SCRATCH_A, (size_t)r.n * sizeof(Lane<T, W>)));
  Lane<T, W>* to = static_cast<Lane<T, W>*>(scratch(SCRATCH_B, (size_t)r.n * sizeof(Lane<T, W>)));
  memset(from, 0, (size_t)r.n * sizeof(Lane<T, W>));
  for (int64_t w = 0; w < count; w++) {
    const int64_t at = (first + w) * r.length;
    for (int64_t j = 0; j < r.length; j++) from[j].re[w] = r.re[at + j];
    if (r.im)
      for (int64_t j = 0; j < r.length; j++) from[j].im[w] = r.im[at + j];
    if (r.half)
      for (int64_t j = 1; j < r.length; j++)
        if (2 * j != r.n) from[j].re[w] *= 2, from[j].im[w] *= 2;
  }
  const Lane<T, W>* found = transform<T, W>(from, to, r.n, r.radices, r.table, r.sign);
  for (int64_t w = 0; w < count; w++) {
    const int64_t at = (first + w) * r.keep;
    for (int64_t k = 0; k < r.keep; k++) r.outRe[at + k] = found[k].re[w] * r.scale;
    if (r.outIm)
      for (int64_t k = 0; k < r.keep; k++) r.outIm[at + k] = found[k].im[w] * r.scale;
  }
}

template <class T> void dftOf(const Call& c, const char* re, const char* im) {
  const int64_t n = c.integer(0), keep = c.integer(1), length = c.in(0).shape[c.in(0).rank - 1];
  const double sign = c.params[2] != 0 ? 1 : -1;
  const Rows<T> r = {reinterpret_cast<const T*>(re),
                     reinterpret_cast<const T*>(im),
                     c.out(0).as<T>(),
                     c.params[3] != 0 ? nullptr : c.out(1).as<T>(),
                     length,
                     n,
                     keep,
                     (T)c.params[4],
                     (T)sign,
                     c.params[5] != 0,
                     radicesOf(n),
                     factorsOf<T>(n, sign)};
  constexpr int WIDE = 64 / sizeof(T);
  const int64_t count = c.out(0).size() / keep;
  if (count < WIDE / 2) {
    parallelTasks(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) some<T, 1>(r, i, 1);
    });
    return;
  }
  parallel((count + WIDE - 1) / WIDE, 1 + 2048 / n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) some<T, WIDE>(r, i * WIDE, std::min<int64_t>(WIDE, count - i * WIDE));
  });
}

// Params: n, keep, inverse, real parts only, scale, half of the elements given.
Status dft(const Call& c, const void*) {
  if (c.in(0).size() == 0) {
    for (int i = c.inputs; i < c.operands; i++)
      memset(c.operand[i].data, 0, (size_t)c.operand[i].size() * c.operand[i].bytes());
    return OK;
  }
  const char* re = contiguousData(c.in(0), SCRATCH_X);
  const char* im = c.inputs > 1 ? contiguousData(c.in(1), SCRATCH_Y) : nullptr;
  if (c.in(0).dtype == F64) dftOf<double>(c, re, im);
  else dftOf<float>(c, re, im);
  return OK;
}

}  // namespace

WICK_OPS(fourier) = {{"dft", dft, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
