// What linear algebra does along rows of doubles, once per instruction set.
#pragma once
#include "abi.h"

namespace wick {

// A status beside those of every op: what was given has no answer, such as the inverse of a singular matrix.
constexpr Status BAD_ARGUMENT = (Status)4;

// Rows `first` and `second` become cos * first - sin * second and sin * first + cos * second.
struct Turn {
  int64_t first, second;
  double cos, sin;
};
constexpr int STRIP = 32;
struct RowTable {
  double (*dot)(const double* x, const double* y, int64_t n);
  void (*add)(double* y, double share, const double* x, int64_t n);  // y += share x
  // y += share row; the answer is row . x: a row of half a symmetric matrix, times a vector.
  double (*dotAndAdd)(const double* row, const double* x, double share, double* y, int64_t n);
  void (*turn)(double* rows, int64_t pitch, int64_t n, Turn turn);
  // Many turns, one after another, of rows of STRIP that lie side by side.
  void (*turnStrip)(double* strip, const Turn* turns, int64_t count);
};
// Of the instruction set in use.
extern RowTable rowTable;

}  // namespace wick
