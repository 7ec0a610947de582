// Distances between rows, all with all.
#include <algorithm>
#include <cmath>

#include "engine/strided.h"
#include "engine/threads.h"
#include "ops.h"

namespace wick {
namespace {

template <int P, class T> T distanceOf(const T* a, const T* b, int64_t k) {
  constexpr int WIDE = 64 / sizeof(T);
  T sums[WIDE] = {};
  int64_t i = 0;
  for (; i + WIDE <= k; i += WIDE)
    for (int w = 0; w < WIDE; w++) {
      const T d = a[i + w] - b[i + w];
      sums[w] += P == 1 ? std::fabs(d) : d * d;
    }
  T sum = 0;
  for (; i < k; i++) {
    const T d = a[i] - b[i];
    sum += P == 1 ? std::fabs(d) : d * d;
  }
  for (int w = 0; w < WIDE; w++) sum += sums[w];
  return sum;
}
// Squares of numbers around 1, where those of the numbers themselves may leave the range of T.
template <class T> T scaledDistance(const T* a, const T* b, int64_t k) {
  T top = 0, sum = 0;
  for (int64_t i = 0; i < k; i++) top = std::fmax(top, std::fabs(a[i] - b[i]));
  if (top == 0 || std::isinf(top)) return top;
  for (int64_t i = 0; i < k; i++) {
    const T d = (a[i] - b[i]) / top;
    sum += d * d;
  }
  return std::sqrt(sum) * top;
}

template <class T> void distancesOf(const Call& c, const T* x, const T* y) {
  const Operand& out = c.out();
  const int64_t m = out.shape[out.rank - 1], n = out.shape[out.rank - 2], k = c.in(0).shape[c.in(0).rank - 1];
  const bool plain = c.integer(0) == 1;
  const T most = sizeof(T) == 4 ? (T)1e37 : (T)1e300, least = 1 / most * (T)1e7;
  parallel(out.size() / m, 1 + 32768 / (m * (k + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      for (int64_t j = 0; j < m; j++) {
        const T *a = x + i * k, *b = y + (i / n * m + j) * k;
        T* to = out.as<T>() + i * m + j;
        if (plain) {
          *to = distanceOf<1, T>(a, b, k);
          continue;
        }
        const T sum = distanceOf<2, T>(a, b, k);
        *to = sum > most || sum < least ? scaledDistance(a, b, k) : std::sqrt(sum);
      }
  });
}

// Params: p, which is 1 or 2.
Status rowDistances(const Call& c, const void*) {
  if (c.out().size() == 0) return OK;
  const char *x = contiguousData(c.in(0), SCRATCH_X), *y = contiguousData(c.in(1), SCRATCH_Y);
  if (c.in(0).dtype == F64) distancesOf(c, reinterpret_cast<const double*>(x), reinterpret_cast<const double*>(y));
  else distancesOf(c, reinterpret_cast<const float*>(x), reinterpret_cast<const float*>(y));
  return OK;
}

template <class T> void backwardOf(const Call& c, const T* x, const T* y, const T* far, const T* flow) {
  const Operand& out = c.out();
  const int64_t k = out.shape[out.rank - 1], n = out.shape[out.rank - 2], m = c.in(1).shape[c.in(1).rank - 2];
  const bool plain = c.integer(0) == 1;
  const T most = sizeof(T) == 4 ? (T)1e30 : (T)1e280;
  parallel(out.size() / k, 1 + 32768 / ((m + 1) * k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const T* a = x + i * k;
      T* to = out.as<T>() + i * k;
      std::fill(to, to + k, (T)0);
      for (int64_t j = 0; j < m; j++) {
        const T *b = y + (i / n * m + j) * k, part = flow[i * m + j], length = far[i * m + j];
        if (plain) {
          for (int64_t e = 0; e < k; e++) to[e] += a[e] > b[e] ? part : a[e] < b[e] ? -part : (T)0;
          continue;
        }
        if (length == 0) continue;
        const T w = part / length, size = std::fabs(w);
        if ((size < most && size > 1 / most) || part == 0)
          for (int64_t e = 0; e < k; e++) to[e] += (a[e] - b[e]) * w;
        else  // the quotient leaves the range of T
          for (int64_t e = 0; e < k; e++) to[e] += (a[e] - b[e]) / length * part;
      }
    }
  });
}

// Params: p, which is 1 or 2.
Status rowDistancesBackward(const Call& c, const void*) {
  if (c.out().size() == 0) return OK;
  const char *x = contiguousData(c.in(0), SCRATCH_X), *y = contiguousData(c.in(1), SCRATCH_Y);
  const char *d = contiguousData(c.in(2), SCRATCH_Z), *g = contiguousData(c.in(3), SCRATCH_A);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    backwardOf(c, reinterpret_cast<const T*>(x), reinterpret_cast<const T*>(y), reinterpret_cast<const T*>(d),
               reinterpret_cast<const T*>(g));
  };
  if (c.in(0).dtype == F64) run(0.0);
  else run(0.0f);
  return OK;
}

}  // namespace

WICK_OPS(distance) = {{"rowDistances", rowDistances, nullptr},
                      {"rowDistancesBackward", rowDistancesBackward, nullptr},
                      {nullptr, nullptr, nullptr}};

}  // namespace wick
