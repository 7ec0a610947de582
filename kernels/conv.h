// What convolutions share, ours and those under Candle's names.
#pragma once
#include "block.h"
#include "tile.h"

/** One element's sum of products in the type products add up in. */
template <class S> WICK_FN product_t<S> wide(S x) { return (product_t<S>)to_compute(x); }

/** Where result position `to` takes its value from through kernel position `j`: -1 where nothing stands. */
WICK_FN i64 transposed_source(i64 to, i64 j, i64 stride, i64 padding, i64 dilation, i64 length) {
  const i64 at = to + padding - j * dilation;
  return at < 0 || at % stride != 0 || at / stride >= length ? -1 : at / stride;
}
