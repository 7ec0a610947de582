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
  const i64 b = blockIdx.y;
  return b / (p.batch1 * p.batch2) * o.batch[0] + b / p.batch2 % p.batch1 * o.batch[1] + b % p.batch2 * o.batch[2];
}

/** Writes results with their bias, or sums for gemm_merge when k is split. */
template <class S> struct MatrixStore {
  S* c;
  product_t<S>* part;
  const S* bias;
  i64 m, n;
  WICK_MEMBER void store(i64 i, i64 j, product_t<S> sum) const {
    if (i >= m || j >= n) return;
    if (part) part[i * n + j] = sum;
    else c[i * n + j] = from_compute<S>(bias ? sum + (product_t<S>)to_compute(bias[j]) : sum);
  }
  /** Two neighbours of a row of 16-bit floats in one word; n is even, so both are inside or neither. */
  WICK_MEMBER void store_pair(i64 i, i64 j, float x, float y) const {
    if (i >= m || j >= n) return;
    if (bias) {
      x += to_compute(bias[j]);
      y += to_compute(bias[j + 1]);
    }
    *(u32*)(c + i * n + j) = (u32)from_compute<S>(x).bits | (u32)from_compute<S>(y).bits << 16;
  }
};
template <class S> WICK_FN MatrixStore<S> store_of(S* c, product_t<S>* part, const S* bias, const Product& p) {
  const i64 size = p.m * p.n, b = blockIdx.y;
  MatrixStore<S> s = {c + b * size, gridDim.z > 1 ? part + ((i64)blockIdx.z * gridDim.y + b) * size : nullptr, bias, p.m, p.n};
  return s;
}
