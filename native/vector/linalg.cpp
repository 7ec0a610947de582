// What factorizations do along the rows of a matrix besides products, in double precision.
#include "isa.h"
#include "engine/linalg.h"

namespace {

using wick::Turn;

double dot(const double* x, const double* y, int64_t n) {
  D a[4] = {D(0.0), D(0.0), D(0.0), D(0.0)};
  int64_t i = 0;
  for (; i + 4 * D::N <= n; i += 4 * D::N)
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) a[u] = mad(D::load(x + i + u * D::N), D::load(y + i + u * D::N), a[u]);
  for (; i + D::N <= n; i += D::N) a[0] = mad(D::load(x + i), D::load(y + i), a[0]);
  double sum = sumLanes((a[0] + a[1]) + (a[2] + a[3]));
  for (; i < n; i++) sum += x[i] * y[i];
  return sum;
}

void add(double* y, double share, const double* x, int64_t n) {
  const D s(share);
  int64_t i = 0;
  for (; i + D::N <= n; i += D::N) mad(s, D::load(x + i), D::load(y + i)).store(y + i);
  for (; i < n; i++) y[i] += share * x[i];
}

double dotAndAdd(const double* row, const double* x, double share, double* y, int64_t n) {
  const D s(share);
  D a[2] = {D(0.0), D(0.0)};
  int64_t i = 0;
  for (; i + 2 * D::N <= n; i += 2 * D::N)
#pragma GCC unroll 2
    for (int u = 0; u < 2; u++) {
      const D r = D::load(row + i + u * D::N);
      a[u] = mad(r, D::load(x + i + u * D::N), a[u]);
      mad(s, r, D::load(y + i + u * D::N)).store(y + i + u * D::N);
    }
  double sum = sumLanes(a[0] + a[1]);
  for (; i < n; i++) {
    sum += row[i] * x[i];
    y[i] += share * row[i];
  }
  return sum;
}

void turn(double* rows, int64_t pitch, int64_t n, Turn t) {
  double *p = rows + t.first * pitch, *q = rows + t.second * pitch;
  const D c(t.cos), s(t.sin), less(-t.sin);
  int64_t i = 0;
  for (; i + D::N <= n; i += D::N) {
    const D x = D::load(p + i), y = D::load(q + i);
    mad(c, x, less * y).store(p + i);
    mad(s, x, c * y).store(q + i);
  }
  for (; i < n; i++) {
    const double x = p[i], y = q[i];
    p[i] = t.cos * x - t.sin * y;
    q[i] = t.sin * x + t.cos * y;
  }
}

// The first row of a turn is mostly the second one of the next, and stays in registers.
void turnStrip(double* strip, const Turn* turns, int64_t count) {
  constexpr int VECTORS = wick::STRIP / D::N;
  D kept[VECTORS];
  const Turn* end = turns + count;
  for (const Turn* t = turns; t < end; t++) {
    double *p = strip + t->first * wick::STRIP, *q = strip + t->second * wick::STRIP;
    const D c(t->cos), s(t->sin), less(-t->sin);
    const bool begins = t == turns || t[-1].first != t->second;
#pragma GCC unroll 16
    for (int i = 0; i < VECTORS; i++) {
      const D x = D::load(p + i * D::N), y = begins ? D::load(q + i * D::N) : kept[i];
      kept[i] = mad(c, x, less * y);
      mad(s, x, c * y).store(q + i * D::N);
    }
    if (t + 1 < end && t[1].second == t->first) continue;
#pragma GCC unroll 16
    for (int i = 0; i < VECTORS; i++) kept[i].store(p + i * D::N);
  }
}

}  // namespace

extern "C" void WICK_EXPORT(wick_linalg)(wick::RowTable* t) { *t = {dot, add, dotAndAdd, turn, turnStrip}; }
