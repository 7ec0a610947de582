// What the files of matrix products share: how operands lie, sizes, and where results go.
#pragma once
#include "tile.h"

/** Where an operand's matrices lie: strides along rows (m or n) and k, and over up to three batch dimensions. */
struct Operand {
  i64 row, k, batch[3];
};
/** Sizes of the product, and of the last two batch dimensions. */
struct Product {
  i64 m, n, k, batch1, batch2, split;  // split: how much of k a block takes
};
WICK_FN i64 batch_offset(const Operand& o, const Product& p) {
  // a launch has fewer than 65536
  const u32 b = blockIdx.y, size1 = (u32)p.batch1, size2 = (u32)p.batch2, row = b / size2, plane = row / size1;
  return plane * o.batch[0] + (row - plane * size1) * o.batch[1] + (b - row * size2) * o.batch[2];
}

/** Writes results with their bias, or sums for gemm_merge when k is split. */
template <class S> struct MatrixStore {
  typedef product_t<S> A;
  S* c;
  A* part;
  const S* bias;
  i64 m, n;
  /**
   * W neighbouring columns: where they begin in either result (null outside), their biases. All are inside or none: n
   * is a multiple of W.
   */
  template <int W> struct Columns {
    S* c;
    A* part;
    A bias[W];
  };
  template <int W> WICK_MEMBER Columns<W> columns(i64 j) const {
    Columns<W> to = {j < n && !part ? c + j : nullptr, j < n && part ? part + j : nullptr, {}};
#pragma unroll
    for (int w = 0; w < W; w++) to.bias[w] = to.c && bias ? (A)to_compute(bias[j + w]) : NEUTRAL<A>;
    return to;
  }
  template <int W> WICK_MEMBER void put(const Columns<W>& to, i64 i, const A* sums) const {
    if (i >= m) return;
    Some<W, A> wide = *(const Some<W, A>*)sums;
    if (to.part) *(Some<W, A>*)(to.part + i * n) = wide;
    if (!to.c) return;
    Some<W, S> narrow;
#pragma unroll
    for (int w = 0; w < W; w++) narrow.x[w] = from_compute<S>(wide.x[w] + to.bias[w]);
    *(Some<W, S>*)(to.c + i * n) = narrow;
  }
};
template <class S> WICK_FN MatrixStore<S> store_of(S* c, product_t<S>* part, const S* bias, const Product& p) {
  const i64 size = p.m * p.n, b = blockIdx.y;
  MatrixStore<S> s = {c + b * size, gridDim.z > 1 ? part + ((i64)blockIdx.z * gridDim.y + b) * size : nullptr, bias,
                      p.m, p.n};
  return s;
}
