// Rows of activations times the matrices of the experts that indices name: only these are read, once, in 16-byte words
// where rows allow it.
//   experts_T_V    grid (ceil(rows / EXPERT_ROWS), tokens * chosen), block up to 256: V values a load
#include "block.h"

constexpr int EXPERT_THREADS = 256, EXPERT_ROWS = 8;

template <class T, int V> WICK_FN void take(const T* p, compute_t<T> (&x)[V]) {
  if constexpr (V == 1) x[0] = to_compute(*p);
  else unpack(load_pack(p), x);
}

// Row i of the result is activations' row (given == 1 ? i / chosen : i) times the weights of expert ids[i].
template <class T, int V>
WICK_FN void experts_rows(const T* x, const T* w, const i64* ids, T* out, u32* fault, i64 experts, i64 rows, i64 chosen,
                          i64 given, i64 n, i64 none) {
  typedef compute_t<T> A;
  __shared__ A parts[EXPERT_THREADS / WICK_WAVE][EXPERT_ROWS];
  begin_in_turn();
  const i64 i = blockIdx.y, id = ids[i], first = (i64)blockIdx.x * EXPERT_ROWS, row = given == 1 ? i / chosen : i;
  const bool there = id >= 0 && id < experts && id != none;
  A sums[EXPERT_ROWS] = {};
  if (there) {
    const T* from[EXPERT_ROWS];
#pragma unroll
    for (int r = 0; r < EXPERT_ROWS; r++) from[r] = w + (id * rows + (first + r < rows ? first + r : rows - 1)) * n;
    ROLLED for (i64 c = (i64)threadIdx.x * V; c < n; c += (i64)blockDim.x * V) {
      A v[V], m[V];
      take<T, V>(x + row * n + c, v);
#pragma unroll
      for (int r = 0; r < EXPERT_ROWS; r++) {
        take<T, V>(from[r] + c, m);
#pragma unroll
        for (int e = 0; e < V; e++) sums[r] = fmag(m[e], v[e], sums[r]);
      }
    }
  } else if (id != none && threadIdx.x == 0) {
    *fault = 1;
  }
#pragma unroll
  for (int r = 0; r < EXPERT_ROWS; r++) {
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) sums[r] += shfl_xor(sums[r], m, WICK_WAVE);
    if (lane_id() == 0) parts[wave_id()][r] = sums[r];
  }
  __syncthreads();
  const int r = threadIdx.x;
  if (r >= EXPERT_ROWS || first + r >= rows) return;
  A sum = 0;
  for (u32 o = 0; o < blockDim.x / WICK_WAVE; o++) sum += parts[o][r];
  if (!there && id != none) sum = (A)bits_as<float>(0x7fc00000u);
  out[i * rows + first + r] = from_compute<T>(sum);
}
