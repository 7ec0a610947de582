// Rows of activations sorted by the expert that each has chosen, in tiles of one expert: what products with experts
// share.
#pragma once
#include "gemm.h"

/** Places `first` to `first + rows` of the order, all of one expert; a tile without rows is none. */
struct RowTile {
  i32 expert, first, rows, unused;
};
/** Row order[i] of the results is row order[i] / share of x times the transpose of w[expert]; w is (experts, n, k). */
struct Grouped {
  const void* x;
  const void* w;
  void* out;
  const u32* order;
  const RowTile* tiles;
  i64 share, experts, n, k;
};

/** What a block of a grid of (tiles * tiles along n) makes. */
struct GroupedTile {
  RowTile rows;
  i64 n0;
};
WICK_FN GroupedTile grouped_tile(const Grouped& p, i64 width) {
  const u32 across = (u32)((p.n + width - 1) / width), tile = blockIdx.x / across;
  return {p.tiles[tile], (i64)(blockIdx.x - tile * across) * width};
}

/** Results go to the rows that the order names. */
template <class S> struct GroupedStore {
  typedef product_t<S> A;
  S* c;
  const u32* order;
  i64 m, n;
  template <int W> struct Columns { S* c; };
  template <int W> WICK_MEMBER Columns<W> columns(i64 j) const { return {j < n ? c + j : nullptr}; }
  template <int W> WICK_MEMBER void put(const Columns<W>& to, i64 i, const A* sums) const {
    if (i >= m || !to.c) return;
    const Some<W, A> wide = *(const Some<W, A>*)sums;
    Some<W, S> narrow;
#pragma unroll
    for (int w = 0; w < W; w++) narrow.x[w] = from_compute<S>(wide.x[w]);
    *(Some<W, S>*)(to.c + (i64)order[i] * n) = narrow;
  }
};
template <class S> WICK_FN GroupedStore<S> store_of(const Grouped& p, const RowTile& t) {
  return {(S*)p.out, p.order + t.first, t.rows, p.n};
}

/** The row of x that place i of a tile reads; places past its end read the last one's. */
template <class S> WICK_FN const S* grouped_row(const Grouped& p, const RowTile& t, int i) {
  return (const S*)p.x + p.order[t.first + (i < t.rows ? i : t.rows - 1)] / (u32)p.share * p.k;
}

/** Rows that chose no expert are zeros, and NaN where there is none of that number; answers whether these are such. */
template <class S> WICK_FN bool without_expert(const Grouped& p, const GroupedTile& t, i64 width) {
  if (t.rows.expert < p.experts) return false;
  const compute_t<S> value = t.rows.expert == p.experts ? (compute_t<S>)0 : (compute_t<S>)bits_as<float>(0x7fc00000u);
  const i64 left = p.n - t.n0, columns = left < width ? left : width;
  for (i64 i = threadIdx.x; i < t.rows.rows * columns; i += blockDim.x)
    ((S*)p.out)[p.order[t.rows.first + i / columns] * p.n + t.n0 + i % columns] = from_compute<S>(value);
  return true;
}
