// Fills: one value everywhere (Candle's name), and start + i * step. Launches: src/backends/gpu/movement.ts.
#include "portable.h"

template <class S> WICK_FN void fill(S* buf, S value, u64 numel) { GRID_STRIDE(i, numel) buf[i] = value; }
/** Each element from its index, in double and rounded once. */
template <class S> WICK_FN void arange(S* out, double start, double step, u64 numel) {
  GRID_STRIDE(i, numel) out[i] = convert<S>(add_rn(start, mul_rn((double)i, step)));
}
