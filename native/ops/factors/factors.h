// Factorizations of one matrix in double precision: recursions whose heavy part is products of large blocks.
#pragma once
#include "engine/linalg.h"
#include "ops/ops.h"

namespace wick {

// A matrix of doubles with strides in elements. Rows are contiguous unless it is a transposed view.
struct Mat {
  double* data;
  int64_t pitch, step = 1;
  double* row(int64_t i) const { return data + i * pitch; }
  double& at(int64_t i, int64_t j) const { return data[i * pitch + j * step]; }
  Mat from(int64_t i, int64_t j) const { return {data + i * pitch + j * step, pitch, step}; }
  Mat turned() const { return {data, step, pitch}; }
};

// Working memory of one matrix, taken in order and given back at the end of a scope.
class Room {
  double *next, *end;

 public:
  Room(double* begin, int64_t doubles) : next(begin), end(begin + doubles) {}
  double* take(int64_t doubles) {
    double* given = next;
    next += (doubles + 7) / 8 * 8;
    if (next > end) __builtin_trap();  // a formula of roomFor... is wrong
    return given;
  }
  // Rows begin a cache line apart from multiples of large powers of two, whose columns would share a few lines.
  static int64_t pitchOf(int64_t columns) { return (columns + 7) / 8 * 8 + 8; }
  Mat matrix(int64_t rows, int64_t columns) { return {take(rows * pitchOf(columns)), pitchOf(columns)}; }
  static int64_t sizeOf(int64_t rows, int64_t columns) { return rows * pitchOf(columns) + 8; }
};

// out (m x n) becomes, or grows or shrinks by, a (m x k) b (k x n).
void multiply(Mat out, Mat a, Mat b, int64_t m, int64_t n, int64_t k, bool accumulate = false);
void subtractProduct(Mat out, Mat a, Mat b, int64_t m, int64_t n, int64_t k, Room room);
// The upper triangle of out (n x n) grows by that of a b; what becomes of the rest is not said.
void addUpper(Mat out, Mat a, Mat b, int64_t n, int64_t k);

// X of L X = B and of U X = B take B's place: n x n triangles, k columns. `unit`: L has ones on its diagonal.
void solveLower(Mat l, bool unit, Mat b, int64_t n, int64_t k, Room room);
void solveUpper(Mat u, Mat b, int64_t n, int64_t k, Room room);

// L and U in place of A (m x n, m >= n); row i was exchanged with row swaps[i], for each i in turn.
void factorLu(Mat a, int64_t m, int64_t n, int64_t* swaps, Room room);
// U of U^T U = A in place of A's upper triangle. 0, or the order of the first leading minor that is not above 0.
int64_t factorCholesky(Mat a, int64_t n, Room room);

// Householder's reflections of the columns of A, which are the rows of w (n x m, m >= n), with LAPACK's signs: R^T
// replaces w up to its diagonal, reflections follow in each row.
void reflectColumns(Mat w, int64_t n, int64_t m, double* tau, Room room);
// The n columns of Q as rows of q (n x m).
void formQ(Mat q, Mat w, int64_t n, int64_t m, const double* tau, Room room);
// One reflection that leaves x (n) its first element alone, which changes; the answer is tau.
double reflection(double* x, int64_t n);

// Room beyond the operands themselves that these take from a Room.
inline int64_t roomForSolve(int64_t n, int64_t k) { return Room::sizeOf(n, n) + Room::sizeOf(n, k < n ? k : n); }
inline int64_t roomForQr(int64_t n, int64_t m) { return Room::sizeOf(64, m) + 2 * Room::sizeOf(n, 32) + 4096; }

enum Trouble : int { NONE, NOT_FINITE, NO_CONVERGENCE };
// Eigenvalues of a symmetric matrix (its upper triangle), ascending, and their vectors as rows, the largest component
// of each positive. `a` is used up.
Trouble eigenOf(Mat a, int64_t n, double* values, Mat rows, Room room);
int64_t roomForEigen(int64_t n);
// Descending singular values of A, whose columns are the rows of w (n x m, m >= n); left and right vectors as rows of u
// (n x m) and v (n x n). w is used up.
Trouble singularOf(Mat w, int64_t n, int64_t m, double* values, Mat u, Mat v, Room room);
int64_t roomForSingular(int64_t n, int64_t m);

}  // namespace wick
