// Singular values and eigenvalues of small matrices by rotations of their columns (Jacobi's, one-sided), in double
// precision. Launches: src/backends/gpu/spectra.ts.
//
//   rotations   a matrix of m x n, m >= n, a block; `lanes` threads a pair of columns, all pairs of a round at a time,
//               columns lying in shared memory as rows. SVD: u (m x n), values (descending), v (n x n). Else of a
//               symmetric matrix, moved so far that all of its eigenvalues are positive: values (ascending) and vectors
//               v. PINV: the pseudo-inverse into u, n x m, or turned where `wide`, without the singular values that
//               `cut` leaves of the largest
#include "factor.h"

constexpr int MOST_SWEEPS = 40, EIGH = 0, SVD = 1, PINV = 2;
constexpr u64 NOT_FINITE = 1;

WICK_FN double lanes_sum(double v, u32 lanes) {
  for (u32 d = lanes / 2; d > 0; d /= 2) v += shfl_xor(v, d, lanes);
  return v;
}

/** The largest of a block's numbers, none below 0; `slots` are as many as the block has parts of 32. */
WICK_FN double block_largest(double v, double* slots) {
  for (u32 d = 16; d > 0; d /= 2) {
    const double other = shfl_xor(v, d, 32u);
    v = other > v ? other : v;
  }
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  for (u32 i = 0; i < blockDim.x / 32; i++) v = slots[i] > v ? slots[i] : v;
  __syncthreads();
  return v;
}

template <class S, int OF>
WICK_FN void rotations(const S* a, i64 a_step, i64 a_row, i64 a_column, S* u, S* values, S* v, u64* trouble, i32 m,
                       i32 n, u32 lanes, double cut, u32 wide) {
  DYNAMIC_SHARED(double, memory);
  __shared__ double found[64];
  __shared__ u32 turned, odd;
  const i64 matrix = blockIdx.x;
  const u32 t = threadIdx.x, lane = t % lanes;
  const int pair = t / lanes, pitch = m | 1, narrow = n | 1, rounds = n + (n & 1) - 1;
  double *const w = memory, *const x = memory + n * pitch;
  const Given<S> A = {a, a_step, a_row, a_column};
  if (t == 0) odd = 0;
  __syncthreads();
  for (int e = t; e < m * n; e += blockDim.x) {
    const int i = e / n, j = e % n;
    const double value = A.at(matrix, i, j);
    w[j * pitch + i] = value;
    if (value - value != 0) odd = 1;
  }
  for (int e = t; e < n * n; e += blockDim.x) x[e / n * narrow + e % n] = e / n == e % n ? 1 : 0;
  __syncthreads();
  if (odd) {
    if (t == 0) tell(trouble, matrix, 1, NOT_FINITE);
    return;
  }
  // All are divided by the size of the largest element: their squares neither overflow nor vanish.
  double most = 0;
  for (int e = t; e < m * n; e += blockDim.x) {
    const double size = absg(w[e / m * pitch + e % m]);
    most = size > most ? size : most;
  }
  most = block_largest(most, found);
  // Of it the power of two alone: nothing is rounded.
  const double power = bits_as<double>(bits_as<u64>(most) & 0x7ff0000000000000ull);
  most = power > 0 ? power : most > 0 ? most : 1;
  for (int e = t; e < m * n; e += blockDim.x) w[e / m * pitch + e % m] /= most;
  __syncthreads();
  double shift = 0;
  if constexpr (OF == EIGH) {
    // No eigenvalue is larger than the sum of a column.
    double sum = 0;
    if ((int)t < n)
      for (int i = 0; i < m; i++) sum += absg(w[t * pitch + i]);
    shift = block_largest(sum, found);
    if ((int)t < n) w[t * pitch + t] += shift;
  }
  const double bound = same<S, double> ? 0x1p-52 : 0x1p-44;
  for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
    if (t == 0) turned = 0;
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
      const int one = pair == 0 ? rounds : (round + pair) % rounds, two = (round + rounds - pair) % rounds;
      const bool in = pair <= rounds / 2 && one < n && two < n;
      const int first = one < two ? one : two, second = one < two ? two : one;
      double *const p = w + first * pitch, *const q = w + second * pitch;
      double pp = 0, qq = 0, pq = 0;
      if (in)
        for (int i = lane; i < m; i += lanes) {
          pp = fmag(p[i], p[i], pp);
          qq = fmag(q[i], q[i], qq);
          pq = fmag(p[i], q[i], pq);
        }
      pp = lanes_sum(pp, lanes), qq = lanes_sum(qq, lanes), pq = lanes_sum(pq, lanes);
      if (in && absg(pq) > bound * sqrtg(pp) * sqrtg(qq)) {
        const double zeta = (qq - pp) / (2 * pq), size = absg(zeta);
        const double root = size > 0x1p60 ? size : sqrtg(1 + zeta * zeta);
        const double tangent = (zeta < 0 ? -1 : 1) / (size + root), c = 1 / sqrtg(1 + tangent * tangent),
                     s = c * tangent;
        for (int i = lane; i < m; i += lanes) {
          const double f = p[i], g = q[i];
          p[i] = fmag(c, f, -(s * g));
          q[i] = fmag(s, f, c * g);
        }
        double *const y = x + first * narrow, *const z = x + second * narrow;
        for (int i = lane; i < n; i += lanes) {
          const double f = y[i], g = z[i];
          y[i] = fmag(c, f, -(s * g));
          z[i] = fmag(s, f, c * g);
        }
        if (lane == 0) turned = 1;
      }
      __syncthreads();
    }
    const u32 again = turned;
    __syncthreads();
    if (!again) break;
  }
  const int pairs = blockDim.x / lanes;
  for (int from = 0; from < n; from += pairs) {
    const int j = from + pair;
    double sum = 0;
    if (j < n)
      for (int i = lane; i < m; i += lanes) sum = fmag(w[j * pitch + i], w[j * pitch + i], sum);
    sum = lanes_sum(sum, lanes);
    if (j < n && lane == 0) found[j] = sqrtg(sum);
  }
  __syncthreads();
  if constexpr (OF == PINV) {
    double largest = 0;
    for (int j = 0; j < n; j++) largest = found[j] > largest ? found[j] : largest;
    for (int e = t; e < m * n; e += blockDim.x) {
      const int i = wide ? e % n : e / m, k = wide ? e / n : e % m;
      double sum = 0;
      for (int j = 0; j < n; j++)
        if (found[j] > cut * largest) sum = fmag(x[j * narrow + i], w[j * pitch + k] / found[j] / found[j], sum);
      u[matrix * m * n + e] = (S)(sum / most);
    }
    return;
  }
  if constexpr (OF == SVD) {
    // Columns of length 0 become what completes the others: the unit vector that is least among them, less its parts.
    for (int j = 0; j < n; j++) {
      if (found[j] > 0) continue;
      if (t == 0) {
        int best = 0;
        double rest = -1;
        for (int i = 0; i < m; i++) {
          double left = 1;
          for (int k = 0; k < n; k++)
            if (k < j || found[k] > 0) {
              const double part = w[k * pitch + i] / (found[k] > 0 ? found[k] : 1);
              left -= part * part;
            }
          if (left > rest) rest = left, best = i;
        }
        double* const z = w + j * pitch;
        for (int i = 0; i < m; i++) z[i] = i == best ? 1 : 0;
        for (int turn = 0; turn < 2; turn++)
          for (int k = 0; k < n; k++) {
            if (!(k < j || found[k] > 0)) continue;
            const double size = found[k] > 0 ? found[k] : 1;
            double along = 0;
            for (int i = 0; i < m; i++) along = fmag(w[k * pitch + i] / size, z[i], along);
            for (int i = 0; i < m; i++) z[i] -= along * (w[k * pitch + i] / size);
          }
        double sum = 0;
        for (int i = 0; i < m; i++) sum = fmag(z[i], z[i], sum);
        for (int i = 0; i < m; i++) z[i] /= sqrtg(sum);
      }
      __syncthreads();
    }
  }
  for (int j = pair; j < n; j += pairs) {
    int place = 0;
    for (int i = 0; i < n; i++) {
      const bool before = OF == SVD ? found[i] > found[j] : found[i] < found[j];
      place += before || (found[i] == found[j] && i < j);
    }
    double largest = 0, sign = 1;
    for (int i = 0; i < n; i++) {
      const double value = x[j * narrow + i];
      if (absg(value) > largest * (1 + 1e-9)) largest = absg(value), sign = value < 0 ? -1 : 1;
    }
    if (lane == 0) values[matrix * n + place] = (S)((found[j] - shift) * most);
    for (int i = lane; i < n; i += lanes) v[(matrix * n + i) * n + place] = (S)(sign * x[j * narrow + i]);
    if constexpr (OF == SVD) {
      const double size = found[j] > 0 ? found[j] : 1;
      for (int i = lane; i < m; i += lanes) u[(matrix * m + i) * n + place] = (S)(sign * w[j * pitch + i] / size);
    }
  }
}
