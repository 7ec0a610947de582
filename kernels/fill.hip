// Fills: one value everywhere (Candle's name), and start + i * step. Launches: src/backends/gpu/movement.ts.
#include "portable.h"

template <class S> WICK_FN void fill(S* buf, S value, u64 numel) {
  constexpr u32 V = pack_size<S>;
  Pack<S> pack;
#pragma unroll
  for (u32 k = 0; k < V; k++) pack.v[k] = value;
  // Elements before the first whole 16 bytes and behind the last are the work of the first threads.
  const u64 lead = ((0 - (u64)buf) & 15) / sizeof(S), head = lead < numel ? lead : numel, packs = (numel - head) / V;
  GRID_STRIDE(p, packs) store_pack(buf + head + p * V, pack);
  const u64 id = global_id(), rest = head + packs * V;
  if (id < head) buf[id] = value;
  if (id < numel - rest) buf[rest + id] = value;
}
/** Each element from its index, in double and rounded once. */
template <class S> WICK_FN void arange(S* out, double start, double step, u64 numel) {
  GRID_STRIDE(i, numel) out[i] = convert<S>(add_rn(start, mul_rn((double)i, step)));
}
