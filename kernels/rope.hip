// Rotary embeddings at copy speed: 16-byte accesses, the three layouts in one kernel, and its backward (the inverse
// turn).
//
// Launch (src/backends/gpu/rope.ts): x is [b, h, t, d] (layout 0 halves, 1 interleaved) or [b, t, h, d] (layout 2
// halves).
//   rope_rows   a thread V pairs; block 256, grid over (rows * d / 2) / V, rows = b * h * t
// `step` and `out_step` are how far apart the tokens of x and of the result lie where heads of a token lie together
// (layout 2): both may be parts of wider rows, and the same part. cos and sin are [t, d / 2], or [b, t, d / 2] when
// `batched`; `sign` -1 turns back, which is the gradient.
#include "block.h"

/** Row r of x stands at time t of batch b. */
template <bool PAIRS, class S, int V>
WICK_FN void rope_rows(const S* src, const S* cos, const S* sin, S* dst, u32 rows, u32 h, u32 t, u32 d, u32 thd,
                       u32 batched, float sign, u64 step, u64 out_step) {
  typedef compute_t<S> A;
  const u32 half_d = d / 2, per = half_d / V;
  GRID_STRIDE(i, (u64)rows * per) {
    const u32 row = (u32)(i / per), c = (u32)(i - (u64)row * per) * V;
    const u32 time = thd ? row / h % t : row % t, batch = row / (h * t);
    const u64 angle = ((u64)(batched ? batch * t : 0) + time) * half_d + c;
    A cs[V], sn[V], x[V], y[V];
    load_v<V>(cos + angle, cs);
    load_v<V>(sin + angle, sn);
    const u64 base = thd ? row / h * out_step + row % h * d : (u64)row * d;
    const S* from = src + (thd ? row / h * step + row % h * d : base);
    if constexpr (PAIRS) {
      A a[V], b[V];
      load_v<V>(from + 2 * c, a);
      load_v<V>(from + 2 * c + V, b);
#pragma unroll
      for (int v = 0; v < V; v++) {
        x[v] = 2 * v < V ? a[2 * v] : b[2 * v - V];
        y[v] = 2 * v + 1 < V ? a[2 * v + 1] : b[2 * v + 1 - V];
      }
    } else {
      load_v<V>(from + c, x);
      load_v<V>(from + half_d + c, y);
    }
    A p[V], q[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      const A s = sn[v] * (A)sign;
      p[v] = x[v] * cs[v] - y[v] * s;
      q[v] = x[v] * s + y[v] * cs[v];
    }
    if constexpr (PAIRS) {
      A a[V], b[V];
#pragma unroll
      for (int v = 0; v < V; v++) {
        (2 * v < V ? a[2 * v] : b[2 * v - V]) = p[v];
        (2 * v + 1 < V ? a[2 * v + 1] : b[2 * v + 1 - V]) = q[v];
      }
      store_v<V>(dst + base + 2 * c, a);
      store_v<V>(dst + base + 2 * c + V, b);
    } else {
      store_v<V>(dst + base + c, p);
      store_v<V>(dst + base + half_d + c, q);
    }
  }
}
