#include "factors.h"

#include <algorithm>
#include <cmath>

namespace wick {
namespace {

constexpr int64_t BASE = 16;    // columns of a panel, rows of a triangle, that plain loops take
constexpr int64_t PANEL = 32;   // reflections applied together
constexpr int64_t SQUARE = 96;  // a product of this size costs less whole than cut to a triangle

void swapRows(Mat a, int64_t n, const int64_t* swaps, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (swaps[i] != i) std::swap_ranges(a.row(i), a.row(i) + n, a.row(swaps[i]));
}

void luPanel(Mat a, int64_t m, int64_t n, int64_t* swaps) {
  for (int64_t k = 0; k < n; k++) {
    int64_t top = k;
    for (int64_t i = k + 1; i < m; i++)
      if (std::fabs(a.at(i, k)) > std::fabs(a.at(top, k))) top = i;
    swaps[k] = top;
    if (top != k) std::swap_ranges(a.row(k), a.row(k) + n, a.row(top));
    const double pivot = a.at(k, k);
    if (pivot == 0) continue;
    for (int64_t i = k + 1; i < m; i++) {
      const double share = a.at(i, k) /= pivot;
      if (share != 0) rowTable.add(a.row(i) + k + 1, -share, a.row(k) + k + 1, n - k - 1);
    }
  }
}

int64_t choleskyBlock(Mat a, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    double* row = a.row(k);
    if (!(row[k] > 0)) return k + 1;
    const double root = row[k] = std::sqrt(row[k]);
    for (int64_t j = k + 1; j < n; j++) row[j] /= root;
    for (int64_t i = k + 1; i < n; i++) rowTable.add(a.row(i) + i, -row[i], row + i, n - i);
  }
  return 0;
}

// x less its part along the reflection v, whose first element counts as 1.
void reflect(double* x, const double* v, int64_t n, double tau) {
  const double share = tau * (x[0] + rowTable.dot(v + 1, x + 1, n - 1));
  x[0] -= share;
  rowTable.add(x + 1, -share, v + 1, n - 1);
}

// Several reflections as one: 1 - V^T T V, where V's rows are the reflections and T is a triangle.
struct Reflections {
  Mat v, t;  // t negated
  int64_t count, length;
  Reflections(Mat w, int64_t count, int64_t length, const double* tau, Room& room)
      : v(room.matrix(count, length)), t(room.matrix(count, count)), count(count), length(length) {
    for (int64_t i = 0; i < count; i++) {
      std::fill(v.row(i), v.row(i) + i, 0.0);
      v.at(i, i) = 1;
      std::copy(w.row(i) + i + 1, w.row(i) + length, v.row(i) + i + 1);
    }
    double products[PANEL * PANEL];
    const Mat g = {products, PANEL};
    multiply(g, v, v.turned(), count, count, length);
    for (int64_t j = 0; j < count; j++)
      for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t l = i; l < j; l++) sum += t.at(i, l) * g.at(l, j);
        t.at(i, j) = i > j ? 0 : i == j ? -tau[j] : -tau[j] * sum;
      }
  }
  // The rows of c, each reflected: by the last first, or by the first first.
  void apply(Mat c, int64_t rows, bool lastFirst, Room room) const {
    const Mat along = room.matrix(rows, count), shares = room.matrix(rows, count);
    multiply(along, c, v.turned(), rows, count, length);
    multiply(shares, along, lastFirst ? t.turned() : t, rows, count, count);
    multiply(c, shares, v, rows, length, count, true);
  }
};

// The length of a vector, by a way on which no square overflows or vanishes where the quick one might.
double lengthOf(const double* x, int64_t n) {
  const double sum = rowTable.dot(x, x, n);
  if (sum > 1e-200 && sum < 1e200) return std::sqrt(sum);
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] != x[i]) return x[i];
    most = std::max(most, std::fabs(x[i]));
  }
  if (most == 0 || std::isinf(most)) return most;
  double scaled = 0;
  for (int64_t i = 0; i < n; i++) scaled += (x[i] / most) * (x[i] / most);
  return most * std::sqrt(scaled);
}

}  // namespace

void multiply(Mat out, Mat a, Mat b, int64_t m, int64_t n, int64_t k, bool accumulate) {
  auto matrix = [](Mat x) { return Matrix{reinterpret_cast<const char*>(x.data), x.pitch, x.step}; };
  isa->matmul[F64]({m, n, k, matrix(a), matrix(b), matrix(out)}, accumulate);
}

void subtractProduct(Mat out, Mat a, Mat b, int64_t m, int64_t n, int64_t k, Room room) {
  if (m == 0 || n == 0 || k == 0) return;
  auto negative = [&](Mat x, int64_t rows, int64_t columns) {
    const Mat copy = room.matrix(rows, columns);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) copy.at(i, j) = -x.at(i, j);
    return copy;
  };
  const bool left = m <= n;  // the smaller one is copied
  multiply(out, left ? negative(a, m, k) : a, left ? b : negative(b, k, n), m, n, k, true);
}

void addUpper(Mat out, Mat a, Mat b, int64_t n, int64_t k) {
  if (n <= SQUARE) return multiply(out, a, b, n, n, k, true);
  const int64_t half = n / 2;
  addUpper(out, a, b, half, k);
  multiply(out.from(0, half), a, b.from(0, half), half, n - half, k, true);
  addUpper(out.from(half, half), a.from(half, 0), b.from(0, half), n - half, k);
}

void solveLower(Mat l, bool unit, Mat b, int64_t n, int64_t k, Room room) {
  if (n <= BASE) {
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < i; j++) rowTable.add(b.row(i), -l.at(i, j), b.row(j), k);
      if (!unit)
        for (int64_t c = 0; c < k; c++) b.at(i, c) /= l.at(i, i);
    }
    return;
  }
  const int64_t half = n / 2;
  solveLower(l, unit, b, half, k, room);
  subtractProduct(b.from(half, 0), l.from(half, 0), b, n - half, k, half, room);
  solveLower(l.from(half, half), unit, b.from(half, 0), n - half, k, room);
}

void solveUpper(Mat u, Mat b, int64_t n, int64_t k, Room room) {
  if (n <= BASE) {
    for (int64_t i = n - 1; i >= 0; i--) {
      for (int64_t j = i + 1; j < n; j++) rowTable.add(b.row(i), -u.at(i, j), b.row(j), k);
      for (int64_t c = 0; c < k; c++) b.at(i, c) /= u.at(i, i);
    }
    return;
  }
  const int64_t half = n / 2;
  solveUpper(u.from(half, half), b.from(half, 0), n - half, k, room);
  subtractProduct(b, u.from(0, half), b.from(half, 0), half, k, n - half, room);
  solveUpper(u, b, half, k, room);
}

void factorLu(Mat a, int64_t m, int64_t n, int64_t* swaps, Room room) {
  if (n <= BASE) return luPanel(a, m, n, swaps);
  const int64_t half = n / 2;
  const Mat right = a.from(0, half), below = a.from(half, half);
  factorLu(a, m, half, swaps, room);
  swapRows(right, n - half, swaps, half);
  solveLower(a, true, right, half, n - half, room);
  subtractProduct(below, a.from(half, 0), right, m - half, n - half, half, room);
  factorLu(below, m - half, n - half, swaps + half, room);
  swapRows(a.from(half, 0), half, swaps + half, n - half);
  for (int64_t i = half; i < n; i++) swaps[i] += half;
}

int64_t factorCholesky(Mat a, int64_t n, Room room) {
  if (n <= 2 * BASE) return choleskyBlock(a, n);
  const int64_t half = n / 2, rest = n - half;
  if (const int64_t order = factorCholesky(a, half, room)) return order;
  const Mat right = a.from(0, half), below = a.from(half, half);
  solveLower(a.turned(), false, right, half, rest, room);
  Room inner = room;
  const Mat negative = inner.matrix(half, rest);
  for (int64_t i = 0; i < half; i++)
    for (int64_t j = 0; j < rest; j++) negative.at(i, j) = -right.at(i, j);
  addUpper(below, negative.turned(), right, rest, half);
  const int64_t order = factorCholesky(below, rest, room);
  return order ? half + order : 0;
}

double reflection(double* x, int64_t n) {
  const double below = lengthOf(x + 1, n - 1);
  if (below == 0) return 0;
  const double alpha = x[0], beta = -std::copysign(std::hypot(alpha, below), alpha);
  for (int64_t i = 1; i < n; i++) x[i] /= alpha - beta;
  x[0] = beta;
  return (beta - alpha) / beta;
}

void reflectColumns(Mat w, int64_t n, int64_t m, double* tau, Room room) {
  for (int64_t k0 = 0; k0 < n; k0 += PANEL) {
    const int64_t end = std::min(n, k0 + PANEL);
    for (int64_t k = k0; k < end; k++) {
      tau[k] = reflection(w.row(k) + k, m - k);
      if (tau[k] != 0)
        for (int64_t j = k + 1; j < end; j++) reflect(w.row(j) + k, w.row(k) + k, m - k, tau[k]);
    }
    if (end == n) return;
    Room inner = room;
    const Reflections panel(w.from(k0, k0), end - k0, m - k0, tau + k0, inner);
    panel.apply(w.from(end, k0), n - end, false, inner);
  }
}

void formQ(Mat q, Mat w, int64_t n, int64_t m, const double* tau, Room room) {
  for (int64_t i = 0; i < n; i++) {
    std::fill(q.row(i), q.row(i) + m, 0.0);
    q.at(i, i) = 1;
  }
  for (int64_t k0 = (n - 1) / PANEL * PANEL; n > 0 && k0 >= 0; k0 -= PANEL) {
    Room inner = room;
    const Reflections panel(w.from(k0, k0), std::min(PANEL, n - k0), m - k0, tau + k0, inner);
    panel.apply(q.from(k0, k0), n - k0, true, inner);
  }
}

}  // namespace wick
