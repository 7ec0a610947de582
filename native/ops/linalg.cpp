// Linear algebra over batches of matrices, in double precision whatever the dtype. Many matrices go to the threads
// whole; the products within few large ones are split.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "engine/strided.h"
#include "engine/threads.h"
#include "ops/factors/factors.h"

namespace wick {
namespace {

int64_t rowsOf(const Operand& x) { return x.shape[x.rank - 2]; }
int64_t columnsOf(const Operand& x) { return x.shape[x.rank - 1]; }

template <class E> void loadAs(const char* data, int64_t row, int64_t step, Mat to, int64_t m, int64_t n) {
  const E* from = reinterpret_cast<const E*>(data);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) to.at(i, j) = from[i * row + j * step];
}
template <class E> void storeAs(char* data, Mat from, int64_t m, int64_t n) {
  E* to = reinterpret_cast<E*>(data);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) to[i * n + j] = (E)from.at(i, j);
}

// One matrix of the batch: what it reads, where its results go, and its working memory.
struct One {
  const Call& call;
  int64_t number;
  Room room;

  // An operand's matrix, copied into `to`, whose strides may turn it.
  void load(int k, Mat to) const {
    const Operand& x = call.in(k);
    int64_t offset = 0, left = number;
    for (int d = x.rank - 3; d >= 0; d--) {
      offset += left % x.shape[d] * x.stride[d];
      left /= x.shape[d];
    }
    const char* data = x.data + offset * x.bytes();
    const int64_t row = x.stride[x.rank - 2], step = x.stride[x.rank - 1];
    (x.dtype == F64 ? loadAs<double> : loadAs<float>)(data, row, step, to, rowsOf(x), columnsOf(x));
  }
  Mat take(int k) {
    const Mat m = room.matrix(rowsOf(call.in(k)), columnsOf(call.in(k)));
    load(k, m);
    return m;
  }
  // The columns of an operand as rows.
  Mat takeTurned(int k) {
    const Mat m = room.matrix(columnsOf(call.in(k)), rowsOf(call.in(k)));
    load(k, m.turned());
    return m;
  }
  // Results are contiguous.
  void store(int k, Mat from, int64_t m, int64_t n) const {
    const Operand& out = call.out(k);
    char* data = out.data + number * m * n * out.bytes();
    (out.dtype == F64 ? storeAs<double> : storeAs<float>)(data, from, m, n);
  }
};

// Runs f on each matrix; f answers 0 or what is wrong, and the first matrix with something wrong is the one reported.
template <class F> int64_t each(const Call& c, int64_t doubles, F&& f) {
  const Operand& x = c.in(0);
  int64_t count = 1;
  for (int d = 0; d < x.rank - 2; d++) count *= x.shape[d];
  const int64_t limit = rowsOf(x) + columnsOf(x) + 8;
  std::atomic<int64_t> first{INT64_MAX};
  std::atomic<bool> noMemory{false};
  auto run = [&](int64_t begin, int64_t end) {
    double* memory = static_cast<double*>(aligned_alloc(64, (size_t)(doubles + 64) / 8 * 64));
    if (!memory) {
      noMemory = true;
      return;
    }
    for (int64_t b = begin; b < end; b++) {
      const int64_t wrong = f(One{c, b, Room(memory, doubles)});
      if (wrong == 0) continue;
      int64_t seen = first, mine = b * limit + wrong;
      while (mine < seen && !first.compare_exchange_weak(seen, mine)) {}
      break;
    }
    free(memory);
  };
  const int64_t work = rowsOf(x) * columnsOf(x) * columnsOf(x) + 1;
  if (count >= 2 * threadCount()) parallel(count, (32 * 32 * 32) / work + 1, run);
  else run(0, count);
  if (noMemory) return -1;
  return first == INT64_MAX ? 0 : first % limit;
}
Status noMemory(const Call& c) { return fail(c, NO_MEMORY, "no memory for a matrix in double precision"); }

// Whether nothing stands above the diagonal, or nothing below it.
bool isLower(Mat a, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++)
      if (a.at(i, j) != 0) return false;
  return true;
}
bool isUpper(Mat a, int64_t n) { return isLower(a.turned(), n); }

// A triangle needs no factors: a step back or forth for each row.
Status solve(const Call& c, const void*) {
  const int64_t n = columnsOf(c.in(0)), k = columnsOf(c.in(1));
  const int64_t doubles = Room::sizeOf(n, n) + Room::sizeOf(n, k) + n + 8 + roomForSolve(n, k);
  const int64_t wrong = each(c, doubles, [&](One one) -> int64_t {
    const Mat a = one.take(0), b = one.take(1);
    const bool lower = isLower(a, n), whole = !lower && !isUpper(a, n);
    int64_t* swaps = reinterpret_cast<int64_t*>(one.room.take(n));
    if (whole) factorLu(a, n, n, swaps, one.room);
    for (int64_t i = 0; i < n; i++)
      if (a.at(i, i) == 0) return i + 1;
    for (int64_t i = 0; whole && i < n; i++)
      if (swaps[i] != i) std::swap_ranges(b.row(i), b.row(i) + k, b.row(swaps[i]));
    if (lower || whole) solveLower(a, whole, b, n, k, one.room);
    if (!lower) solveUpper(a, b, n, k, one.room);
    one.store(0, b, n, k);
    return 0;
  });
  if (wrong < 0) return noMemory(c);
  if (wrong == 0) return OK;
  return fail(c, BAD_ARGUMENT, "the matrix is singular: pivot %lld of %lld is 0", (long long)wrong, (long long)n);
}

// The determinant, or its sign and the logarithm of its size.
template <bool LOGARITHM> Status determinant(const Call& c, const void*) {
  const int64_t n = columnsOf(c.in(0));
  const int64_t wrong = each(c, Room::sizeOf(n, n) + n + 8 + roomForSolve(n, n), [&](One one) -> int64_t {
    const Mat a = one.take(0);
    int64_t* swaps = reinterpret_cast<int64_t*>(one.room.take(n));
    factorLu(a, n, n, swaps, one.room);
    double product = 1, sum = 0;
    for (int64_t i = 0; i < n; i++) {
      const double x = a.at(i, i);
      if (swaps[i] != i) product = -product;
      product *= !LOGARITHM || x != x || x == 0 ? x : x < 0 ? -1 : 1;
      if (LOGARITHM) sum += std::log(std::fabs(x));
    }
    one.store(0, {&product, 1}, 1, 1);
    if (LOGARITHM) one.store(1, {&sum, 1}, 1, 1);
    return 0;
  });
  return wrong < 0 ? noMemory(c) : OK;
}

// L and U in one matrix, the exchanges of rows as LAPACK counts them (from 1), and the row that became each row. Of a
// wide matrix the columns beyond the square are those of U, which L gives.
Status lu(const Call& c, const void*) {
  const int64_t m = rowsOf(c.in(0)), n = columnsOf(c.in(0)), k = std::min(m, n), rest = n - k;
  const int64_t doubles = Room::sizeOf(m, n) + 3 * (m + 8) + roomForSolve(k, std::max(k, rest));
  const int64_t wrong = each(c, doubles, [&](One one) -> int64_t {
    const Mat a = one.take(0);
    int64_t* swaps = reinterpret_cast<int64_t*>(one.room.take(k));
    double *counted = one.room.take(k), *order = one.room.take(m);
    factorLu(a, m, k, swaps, one.room);
    std::iota(order, order + m, 0.0);
    for (int64_t i = 0; i < k; i++) {
      counted[i] = (double)swaps[i] + 1;
      std::swap(order[i], order[swaps[i]]);
      if (swaps[i] != i) std::swap_ranges(a.row(i) + k, a.row(i) + n, a.row(swaps[i]) + k);
    }
    if (rest > 0) solveLower(a, true, a.from(0, k), k, rest, one.room);
    one.store(0, a, m, n);
    one.store(1, {counted, k}, 1, k);
    one.store(2, {order, m}, 1, m);
    return 0;
  });
  return wrong < 0 ? noMemory(c) : OK;
}

// The row that becomes each row by the exchanges of `lu`.
Status rowOrder(const Call& c, const void*) {
  const int64_t n = columnsOf(c.in(0));
  const int64_t wrong = each(c, Room::sizeOf(1, n) + n + 8, [&](One one) -> int64_t {
    const Mat swaps = one.take(0);
    double* order = one.room.take(n);
    std::iota(order, order + n, 0.0);
    for (int64_t i = 0; i < n; i++) {
      const double row = swaps.at(0, i);
      if (!(row >= (double)(i + 1) && row <= (double)n)) return i + 1;
      std::swap(order[i], order[(int64_t)row - 1]);
    }
    one.store(0, {order, n}, 1, n);
    return 0;
  });
  if (wrong < 0) return noMemory(c);
  if (wrong == 0) return OK;
  return fail(c, BAD_ARGUMENT, "pivot %lld is none of the rows %lld to %lld", (long long)wrong, (long long)wrong,
              (long long)n);
}

Status cholesky(const Call& c, const void*) {
  const int64_t n = columnsOf(c.in(0));
  const int64_t wrong = each(c, Room::sizeOf(n, n) + roomForSolve(n, n), [&](One one) -> int64_t {
    const Mat a = one.take(0);
    if (const int64_t order = factorCholesky(a, n, one.room)) return order;
    for (int64_t i = 0; i < n; i++) std::fill(a.row(i), a.row(i) + i, 0.0);
    one.store(0, a.turned(), n, n);
    return 0;
  });
  if (wrong < 0) return noMemory(c);
  if (wrong == 0) return OK;
  return fail(c, BAD_ARGUMENT, "the matrix is not positive definite: its leading minor of order %lld is not above 0",
              (long long)wrong);
}

Status qr(const Call& c, const void*) {
  const int64_t m = rowsOf(c.in(0)), n = columnsOf(c.in(0));
  const int64_t wrong = each(c, 2 * Room::sizeOf(n, m) + n + 8 + roomForQr(n, m), [&](One one) -> int64_t {
    const Mat w = one.takeTurned(0), q = one.room.matrix(n, m);
    double* tau = one.room.take(n);
    reflectColumns(w, n, m, tau, one.room);
    formQ(q, w, n, m, tau, one.room);
    for (int64_t j = 0; j < n; j++) std::fill(w.row(j) + j + 1, w.row(j) + n, 0.0);
    one.store(0, q.turned(), m, n);
    one.store(1, w.turned(), n, n);
    return 0;
  });
  return wrong < 0 ? noMemory(c) : OK;
}

Status troubled(const Call& c, int64_t wrong) {
  if (wrong < 0) return noMemory(c);
  if (wrong == NOT_FINITE) return fail(c, BAD_ARGUMENT, "the matrix holds NaN or infinities");
  return wrong == NONE ? OK : fail(c, BAD_ARGUMENT, "no convergence");
}

Status eigh(const Call& c, const void*) {
  const int64_t n = columnsOf(c.in(0));
  return troubled(c, each(c, 2 * Room::sizeOf(n, n) + n + 8 + roomForEigen(n), [&](One one) -> int64_t {
                    const Mat a = one.take(0), rows = one.room.matrix(n, n);
                    double* values = one.room.take(n);
                    if (const Trouble trouble = eigenOf(a, n, values, rows, one.room)) return trouble;
                    one.store(0, {values, n}, 1, n);
                    one.store(1, rows.turned(), n, n);
                    return NONE;
                  }));
}

int64_t roomForVectors(int64_t n, int64_t m) {
  return 2 * Room::sizeOf(n, m) + 2 * Room::sizeOf(n, n) + n + 8 + roomForSingular(n, m);
}
Status svd(const Call& c, const void*) {
  const int64_t m = rowsOf(c.in(0)), n = columnsOf(c.in(0));
  return troubled(c, each(c, roomForVectors(n, m), [&](One one) -> int64_t {
                    const Mat w = one.takeTurned(0), u = one.room.matrix(n, m), v = one.room.matrix(n, n);
                    double* values = one.room.take(n);
                    if (const Trouble trouble = singularOf(w, n, m, values, u, v, one.room)) return trouble;
                    one.store(0, u.turned(), m, n);
                    one.store(1, {values, n}, 1, n);
                    one.store(2, v.turned(), n, n);
                    return NONE;
                  }));
}

// V diag(1 / S) U^T without the singular values that count as 0; of a wide matrix, its transposed one's turned.
Status pinv(const Call& c, const void*) {
  const Operand& x = c.in(0);
  const bool wide = columnsOf(x) > rowsOf(x);
  const int64_t n = std::min(rowsOf(x), columnsOf(x)), m = std::max(rowsOf(x), columnsOf(x));
  const double cut = m * (x.dtype == F64 ? 0x1p-52 : 0x1p-23);
  return troubled(c, each(c, roomForVectors(n, m), [&](One one) -> int64_t {
                    const Mat w = wide ? one.take(0) : one.takeTurned(0), u = one.room.matrix(n, m),
                              v = one.room.matrix(n, n);
                    double* values = one.room.take(n);
                    if (const Trouble trouble = singularOf(w, n, m, values, u, v, one.room)) return trouble;
                    for (int64_t j = 0; j < n; j++)
                      for (int64_t i = 0; i < n; i++)
                        v.at(j, i) = values[j] > cut * values[0] ? v.at(j, i) / values[j] : 0;
                    multiply(w, v.turned(), u, n, m, n);
                    if (wide) one.store(0, w.turned(), m, n);
                    else one.store(0, w, n, m);
                    return NONE;
                  }));
}

}  // namespace

WICK_OPS(linalg) = {{"solve", solve, nullptr},
                    {"det", determinant<false>, nullptr},
                    {"slogdet", determinant<true>, nullptr},
                    {"lu", lu, nullptr},
                    {"rowOrder", rowOrder, nullptr},
                    {"cholesky", cholesky, nullptr},
                    {"qr", qr, nullptr},
                    {"eigh", eigh, nullptr},
                    {"svd", svd, nullptr},
                    {"pinv", pinv, nullptr},
                    {nullptr, nullptr, nullptr}};

}  // namespace wick
