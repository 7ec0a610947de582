// Eigenvalues of symmetric matrices, and singular values. Small matrices go by Jacobi's rotations, which are quick
// there and the most accurate; larger ones by way of three diagonals, and of the polar decomposition.
#include <algorithm>
#include <cmath>

#include "factors.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t SMALL = 32;  // columns whose singular values rotations find
constexpr int64_t FEW = 12;    // rows whose eigenvalues rotations find
constexpr int SWEEPS = 60;
constexpr int64_t PANEL = 32;  // reflections before the rest of the matrix follows
constexpr int64_t TURNS = 32;  // rotations for each row that are kept before vectors follow

bool isFinite(Mat a, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      if (!std::isfinite(a.at(i, j))) return false;
  return true;
}
void setUnit(Mat a, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    std::fill(a.row(i), a.row(i) + n, 0.0);
    a.at(i, i) = 1;
  }
}
// The power of two below the largest element, by which a matrix is divided so that no square overflows.
double scaleOf(Mat a, int64_t m, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) most = std::max(most, std::fabs(a.at(i, j)));
  return most > 0 ? std::exp2(std::floor(std::log2(most))) : 1;
}
void divide(Mat a, int64_t m, int64_t n, double by) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) a.at(i, j) /= by;
}
// The sign that makes a vector's largest component positive: one answer where two would do.
double signOf(const double* x, int64_t n) {
  int64_t top = 0;
  for (int64_t i = 1; i < n; i++)
    if (std::fabs(x[i]) > std::fabs(x[top]) * (1 + 1e-9)) top = i;
  return n > 0 && x[top] < 0 ? -1 : 1;
}
// Which vector comes at which place.
template <class Before> void sortedOrder(int64_t* order, int64_t n, Before before) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  std::stable_sort(order, order + n, before);
}

struct Rotation {
  double cos, sin;
};
// The rotation that makes off 0 between the diagonal elements p and q.
Rotation rotationFor(double p, double q, double off) {
  const double theta = (q - p) / (2 * off);
  const double tan =
      std::fabs(theta) > 1e150 ? 0.5 / theta : (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
  const double cos = 1 / std::sqrt(tan * tan + 1);
  return {cos, tan * cos};
}

// ---- eigenvalues ----
Trouble eigenByRotations(Mat m, int64_t n, double* values, Mat rows) {
  setUnit(rows, n);
  for (int sweep = 0;; sweep++) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        const double square = m.at(i, j) * m.at(i, j);
        all += square;
        if (i != j) off += square;
      }
    if (off <= all * 1e-31 * n) break;
    if (sweep == SWEEPS) return NO_CONVERGENCE;
    for (int64_t p = 0; p < n - 1; p++)
      for (int64_t q = p + 1; q < n; q++) {
        if (m.at(p, q) == 0) continue;
        const Rotation r = rotationFor(m.at(p, p), m.at(q, q), m.at(p, q));
        for (int64_t k = 0; k < n; k++) {
          const double x = m.at(k, p), y = m.at(k, q);
          m.at(k, p) = r.cos * x - r.sin * y;
          m.at(k, q) = r.sin * x + r.cos * y;
        }
        const Turn turn = {p, q, r.cos, r.sin};
        rowTable.turn(m.data, m.pitch, n, turn);
        rowTable.turn(rows.data, rows.pitch, n, turn);
        m.at(p, q) = m.at(q, p) = 0;
      }
  }
  for (int64_t i = 0; i < n; i++) values[i] = m.at(i, i);
  return NONE;
}

// w becomes A v from element k on, by A's upper triangle.
void timesSymmetric(Mat a, int64_t k, int64_t n, const double* v, double* w) {
  std::fill(w, w + n, 0.0);
  for (int64_t i = k; i < n; i++)
    w[i] += a.at(i, i) * v[i] + rowTable.dotAndAdd(a.row(i) + i + 1, v + i + 1, v[i], w + i + 1, n - i - 1);
}

// Householder's reflections to the diagonal d and the side diagonal e. Reflections stay in the upper triangle; the rest
// of the matrix follows once a panel: A - V^T W - W^T V.
void toThreeDiagonals(Mat a, int64_t n, double* d, double* e, double* tau, Room room) {
  const RowTable& rows = rowTable;
  for (int64_t k0 = 0; k0 < n - 2; k0 += PANEL) {
    const int64_t end = std::min(n - 2, k0 + PANEL), count = end - k0;
    Room inner = room;
    const Mat both = inner.matrix(2 * count, n), negative = inner.matrix(2 * count, n);
    const Mat v = both, w = both.from(count, 0);
    for (int64_t k = k0; k < end; k++) {
      const int64_t j = k - k0, rest = n - k - 1;
      double *row = a.row(k), *vk = v.row(j), *wk = w.row(j);
      for (int64_t i = 0; i < j; i++) {
        rows.add(row + k, -v.at(i, k), w.row(i) + k, rest + 1);
        rows.add(row + k, -w.at(i, k), v.row(i) + k, rest + 1);
      }
      d[k] = row[k];
      tau[k] = reflection(row + k + 1, rest);
      e[k] = row[k + 1];
      std::fill(vk, vk + k + 1, 0.0);
      vk[k + 1] = 1;
      std::copy(row + k + 2, row + n, vk + k + 2);
      timesSymmetric(a, k + 1, n, vk, wk);
      for (int64_t i = 0; i < j; i++) {
        const double alongV = rows.dot(v.row(i) + k + 1, vk + k + 1, rest);
        const double alongW = rows.dot(w.row(i) + k + 1, vk + k + 1, rest);
        rows.add(wk + k + 1, -alongW, v.row(i) + k + 1, rest);
        rows.add(wk + k + 1, -alongV, w.row(i) + k + 1, rest);
      }
      for (int64_t i = k + 1; i < n; i++) wk[i] *= tau[k];
      rows.add(wk + k + 1, -0.5 * tau[k] * rows.dot(wk + k + 1, vk + k + 1, rest), vk + k + 1, rest);
    }
    for (int64_t i = 0; i < 2 * count; i++)
      for (int64_t j = end; j < n; j++) negative.at(i, j) = -both.at(i < count ? i + count : i - count, j);
    addUpper(a.from(end, end), both.turned().from(end, 0), negative.from(0, end), n - end, 2 * count);
  }
  for (int64_t i = n - 2; i < n; i++) d[i] = a.at(i, i);
  e[n - 2] = a.at(n - 2, n - 1);
  tau[n - 2] = 0;
}

// Rotations of neighbouring rows, which wait until there are many, and then turn a strip of columns after another: a
// copy of it stays in the second-level cache.
struct Turns {
  Mat rows;
  int64_t n, count = 0;
  Turn* waiting;
  void add(int64_t i, double cos, double sin) {
    waiting[count++] = {i, i + 1, cos, sin};
    if (count == TURNS * n) finish();
  }
  void finish() {
    parallel((n + STRIP - 1) / STRIP, 1 + 100000 / (STRIP * (count + 1)), [&](int64_t begin, int64_t end) {
      double* strip = static_cast<double*>(scratch(SCRATCH_X, n * STRIP * 8));
      for (int64_t s = begin; s < end; s++) {
        const int64_t first = s * STRIP, width = std::min<int64_t>(STRIP, n - first);
        for (int64_t i = 0; i < n; i++) std::copy_n(rows.row(i) + first, width, strip + i * STRIP);
        rowTable.turnStrip(strip, waiting, count);
        for (int64_t i = 0; i < n; i++) std::copy_n(strip + i * STRIP, width, rows.row(i) + first);
      }
    });
    count = 0;
  }
};

// QL steps with shifts until the side diagonal e is gone; d becomes the eigenvalues, and vectors turn with it.
Trouble clearSides(double* d, double* e, int64_t n, Turns& turns) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = std::max(most, std::fabs(d[i]) + (i < n - 1 ? std::fabs(e[i]) : 0));
  const double noise = 1e-17 * most;  // less than what reflections lost already
  for (int64_t l = 0; l < n; l++)
    for (int step = 0;; step++) {
      int64_t end = l;
      while (end < n - 1 && std::fabs(e[end]) > 1.2e-16 * (std::fabs(d[end]) + std::fabs(d[end + 1])) + noise) end++;
      if (end == l) break;
      if (step == SWEEPS) return NO_CONVERGENCE;
      const double ahead = (d[l + 1] - d[l]) / (2 * e[l]);
      double g = d[end] - d[l] + e[l] / (ahead + (ahead < 0 ? -1 : 1) * std::hypot(ahead, 1));
      double sin = 1, cos = 1, taken = 0;
      int64_t i = end - 1;
      for (; i >= l; i--) {
        const double f = sin * e[i], b = cos * e[i], r = std::sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= taken;
          e[end] = 0;
          break;
        }
        sin = f / r;
        cos = g / r;
        const double left = d[i + 1] - taken, t = (d[i] - left) * sin + 2 * cos * b;
        taken = sin * t;
        d[i + 1] = left + taken;
        g = cos * t - b;
        turns.add(i, cos, sin);
      }
      if (i >= l) continue;
      d[l] -= taken;
      e[l] = g;
      e[end] = 0;
    }
  turns.finish();
  return NONE;
}

Trouble eigenByDiagonals(Mat a, int64_t n, double* values, Mat rows, Room room) {
  double *e = room.take(n), *tau = room.take(n);
  toThreeDiagonals(a, n, values, e, tau, room);
  std::fill(rows.row(0), rows.row(0) + n, 0.0);
  for (int64_t i = 1; i < n; i++) rows.at(i, 0) = 0;
  rows.at(0, 0) = 1;
  formQ(rows.from(1, 1), a.from(0, 1), n - 1, n - 1, tau, room);
  Turns turns = {rows, n, 0, reinterpret_cast<Turn*>(room.take(TURNS * n * sizeof(Turn) / 8))};
  return clearSides(values, e, n, turns);
}

// ---- singular values ----
// Rows that belong to no singular value above the floor become any that are orthogonal to the others.
void complete(Mat rows, int64_t n, int64_t length, const double* values, double floor, double* spare) {
  int64_t next = 0;
  for (int64_t j = 0; j < n; j++) {
    if (values[j] > floor) continue;
    for (double size = 0; size < 0.5 / std::sqrt((double)length); next++) {
      std::fill(spare, spare + length, 0.0);
      spare[next % length] = 1;
      for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < n; i++)
          if (i < j || values[i] > floor)
            rowTable.add(spare, -rowTable.dot(spare, rows.row(i), length), rows.row(i), length);
      size = std::sqrt(rowTable.dot(spare, spare, length));
      if (size < 0.5 / std::sqrt((double)length)) continue;
      for (int64_t i = 0; i < length; i++) rows.at(j, i) = spare[i] / size;
    }
  }
}

// One-sided rotations (Hestenes): the rows of w become orthogonal.
Trouble rotateApart(Mat w, int64_t n, int64_t m, Mat v) {
  const RowTable& rows = rowTable;
  auto square = [&](int64_t i) { return rows.dot(w.row(i), w.row(i), m); };
  double squares[SMALL], noise = 0;
  // Rows of rounding alone, beside the whole matrix, have no direction to make orthogonal.
  for (int64_t i = 0; i < n; i++) noise += square(i) * 1e-30;
  bool turned = true;
  for (int sweep = 0; turned; sweep++) {
    if (sweep == SWEEPS) return NO_CONVERGENCE;
    turned = false;
    for (int64_t i = 0; i < n; i++) squares[i] = square(i);
    for (int64_t p = 0; p < n - 1; p++)
      for (int64_t q = p + 1; q < n; q++) {
        const double pq = rows.dot(w.row(p), w.row(q), m);
        if (std::fabs(pq) <= 1e-15 * std::sqrt(squares[p]) * std::sqrt(squares[q]) ||
            std::min(squares[p], squares[q]) <= noise)
          continue;
        turned = true;
        const Rotation r = rotationFor(squares[p], squares[q], pq);
        const Turn turn = {p, q, r.cos, r.sin};
        rows.turn(w.data, w.pitch, m, turn);
        rows.turn(v.data, v.pitch, n, turn);
        squares[p] = square(p);
        squares[q] = square(q);
      }
  }
  return NONE;
}

Trouble singularByRotations(Mat w, int64_t n, int64_t m, double* values, Mat u, Mat v, Room room) {
  const Mat right = room.matrix(n, n);
  double* lengths = room.take(n);
  setUnit(right, n);
  if (const Trouble trouble = rotateApart(w, n, m, right)) return trouble;
  for (int64_t i = 0; i < n; i++) lengths[i] = std::sqrt(rowTable.dot(w.row(i), w.row(i), m));
  int64_t order[SMALL];
  sortedOrder(order, n, [&](int64_t i, int64_t j) { return lengths[i] > lengths[j]; });
  for (int64_t j = 0; j < n; j++) {
    values[j] = lengths[order[j]];
    std::copy(right.row(order[j]), right.row(order[j]) + n, v.row(j));
    for (int64_t i = 0; i < m; i++) u.at(j, i) = w.at(order[j], i) / values[j];
  }
  complete(u, n, m, values, n > 0 ? values[0] * m * 1e-15 : 0, room.take(m));
  return NONE;
}

// How far the singular values of R reach down: a bound from below, in units of its length.
double leastOf(Mat r, int64_t n, double length, Room room) {
  const Mat inverse = room.matrix(n, n);
  setUnit(inverse, n);
  solveUpper(r, inverse, n, n, room);
  double squares = 0;
  for (int64_t i = 0; i < n; i++) squares += rowTable.dot(inverse.row(i), inverse.row(i), n);
  const double least = 1 / (length * std::sqrt(squares));
  return least > 1e-17 ? least : 1e-17;
}

// y, whose singular values lie between `least` and 1, becomes the orthogonal factor of its polar decomposition, by
// Halley's iteration with weights (Nakatsukasa, Bai and Gygi): by reflections while the weights are large, then by
// Cholesky's factors.
void polarFactor(Mat y, int64_t n, double least, Room room) {
  while (1 - least > 1e-15) {
    const double square = least * least, d = std::cbrt(4 * (1 - square) / (square * square));
    const double root = std::sqrt(1 + d);
    const double a = root + 0.5 * std::sqrt(8 - 4 * d + 8 * (2 - square) / (square * root));
    const double b = (a - 1) * (a - 1) / 4, c = a + b - 1;
    Room inner = room;
    const Mat change = inner.matrix(n, n);
    if (c > 100) {
      const Mat w = inner.matrix(n, 2 * n), q = inner.matrix(n, 2 * n);
      double* tau = inner.take(n);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) w.at(i, j) = std::sqrt(c) * y.at(i, j);
      setUnit(w.from(0, n), n);
      reflectColumns(w, n, 2 * n, tau, inner);
      formQ(q, w, n, 2 * n, tau, inner);
      multiply(change, q.from(0, n).turned(), q, n, n, n);
      divide(change, n, n, std::sqrt(c));
    } else {
      const Mat z = inner.matrix(n, n), scaled = inner.matrix(n, n);
      setUnit(z, n);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
          change.at(i, j) = y.at(i, j);
          scaled.at(i, j) = c * y.at(i, j);
        }
      addUpper(z, scaled, y.turned(), n, n);
      factorCholesky(z, n, inner);
      solveLower(z.turned(), false, change, n, n, inner);
      solveUpper(z, change, n, n, inner);
    }
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) y.at(i, j) = b / c * y.at(i, j) + (a - b / c) * change.at(i, j);
    least = std::min(1.0, least * (a + b * square) / (1 + c * square));
  }
}

// A = Q R and R^T = P H: the eigenvectors of H turn Q into left vectors, and P into right ones.
Trouble singularByPolar(Mat w, int64_t n, int64_t m, double* values, Mat u, Mat v, Room room) {
  double *tau = room.take(n), *ascending = room.take(n), *spare = room.take(n);
  const Mat q = room.matrix(n, m), r = room.matrix(n, n), p = room.matrix(n, n), h = room.matrix(n, n),
            rows = room.matrix(n, n);
  reflectColumns(w, n, m, tau, room);
  formQ(q, w, n, m, tau, room);
  double squares = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      r.at(i, j) = j < i ? 0 : w.at(j, i);
      squares += r.at(i, j) * r.at(i, j);
    }
  const double length = squares > 0 ? std::sqrt(squares) : 1;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) p.at(i, j) = r.at(i, j) / length;
  polarFactor(p, n, leastOf(r, n, length, room), room);
  multiply(h, p, r.turned(), n, n, n);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i; j < n; j++) h.at(i, j) = h.at(j, i) = 0.5 * (h.at(i, j) + h.at(j, i));
  if (const Trouble trouble = eigenByDiagonals(h, n, ascending, rows, room)) return trouble;
  int64_t* order = reinterpret_cast<int64_t*>(tau);
  sortedOrder(order, n, [&](int64_t i, int64_t j) { return std::fabs(ascending[i]) > std::fabs(ascending[j]); });
  for (int64_t j = 0; j < n; j++) {
    values[j] = std::fabs(ascending[order[j]]);
    std::copy(rows.row(order[j]), rows.row(order[j]) + n, h.row(j));
  }
  multiply(u, h, q, n, m, n);
  multiply(v, h, p, n, n, n);
  complete(v, n, n, values, values[0] * m * 1e-15, spare);
  return NONE;
}

}  // namespace

int64_t roomForEigen(int64_t n) {
  const int64_t mine = Room::sizeOf(n, n) + 2 * (n + 8);
  if (n <= FEW) return mine;
  return mine + 2 * (n + 8) + 2 * Room::sizeOf(2 * PANEL, n) + roomForQr(n, n) + TURNS * n * (int64_t)sizeof(Turn) / 8;
}
Trouble eigenOf(Mat a, int64_t n, double* values, Mat rows, Room room) {
  if (!isFinite(a, n, n)) return NOT_FINITE;
  const double scale = scaleOf(a, n, n);
  divide(a, n, n, scale);
  const Mat found = room.matrix(n, n);
  double* unsorted = room.take(n);
  int64_t* order = reinterpret_cast<int64_t*>(room.take(n));
  const Trouble trouble =
      n <= FEW ? eigenByRotations(a, n, unsorted, found) : eigenByDiagonals(a, n, unsorted, found, room);
  if (trouble) return trouble;
  sortedOrder(order, n, [&](int64_t i, int64_t j) { return unsorted[i] < unsorted[j]; });
  for (int64_t j = 0; j < n; j++) {
    values[j] = unsorted[order[j]] * scale;
    const double* from = found.row(order[j]);
    const double sign = signOf(from, n);
    for (int64_t i = 0; i < n; i++) rows.at(j, i) = sign * from[i];
  }
  return NONE;
}

int64_t roomForSingular(int64_t n, int64_t m) {
  if (n <= SMALL) return Room::sizeOf(n, n) + 2 * (n + m) + 64;
  return 4 * (n + 8) + Room::sizeOf(n, m) + 7 * Room::sizeOf(n, n) + 2 * Room::sizeOf(n, 2 * n) +
         roomForQr(n, std::max(m, 2 * n)) + roomForEigen(n);
}
Trouble singularOf(Mat w, int64_t n, int64_t m, double* values, Mat u, Mat v, Room room) {
  if (!isFinite(w, n, m)) return NOT_FINITE;
  const double scale = scaleOf(w, n, m);
  divide(w, n, m, scale);
  const auto found = n <= SMALL ? singularByRotations : singularByPolar;
  if (const Trouble trouble = found(w, n, m, values, u, v, room)) return trouble;
  for (int64_t j = 0; j < n; j++) {
    values[j] *= scale;
    if (signOf(v.row(j), n) > 0) continue;
    for (int64_t i = 0; i < m; i++) u.at(j, i) = -u.at(j, i);
    for (int64_t i = 0; i < n; i++) v.at(j, i) = -v.at(j, i);
  }
  return NONE;
}

}  // namespace wick
