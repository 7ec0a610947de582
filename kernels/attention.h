// What all attention kernels share: the problem, where its rows lie, which keys a query sees, and what happens to a
// score.
#pragma once
#include "portable.h"

// One call of scaled-dot-product attention, passed by value. Rows have unit stride along the head dimension; all other
// strides are in elements. lse, delta and partial results are float, or double where the tensors are.
struct Attention {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  void* lse;  // log of the sum of exponentials of a row; null when it is not wanted
  const void* mask;
  const float* slopes;  // alibi, by query head
  const float* sinks;   // a logit that takes part in the sum but has no value, by query head
  const i32* q_starts;  // packed sequences: batch+1 row numbers, and the batch strides are 0
  const i32* k_starts;
  const i32* lengths;  // keys in use by batch entry, when fewer than tk
  const i32* pages;    // block table: page numbers by batch entry; k and v are then (page, head, row)
  const void* dout;
  void* delta;  // sum over the head dimension of out times dout
  void* dq;
  void* dk;
  void* dv;
  void* partial;  // split keys: unscaled outputs and their lse, [batch, head, row, split]
  void* partial_lse;
  u32* fault;        // set where a start, length or page number points outside its tensor; may be null
  i64 q_strides[3];  // batch, head, row
  i64 k_strides[3];
  i64 v_strides[3];
  i64 out_strides[3];
  i64 dout_strides[3];
  i64 dq_strides[3];
  i64 dk_strides[3];
  i64 dv_strides[3];
  i64 lse_strides[2];   // batch, head
  i64 mask_strides[4];  // batch, head, query, key
  double scale;
  double softcap;  // 0: none
  i32 heads;
  i32 kv_heads;
  i32 tq;
  i32 tk;
  i32 dim;
  i32 left;  // a query at position x sees keys x-left .. x+right; -1: no bound; causal is right = 0
  i32 right;
  i32 mask_kind;  // 0 none, 1 u8 (nonzero: seen), 2 added, in the element type
  i32 page_rows;
  i32 page_table;  // entries of the block table a batch entry has
  i32 splits;
  i32 batch;
  i32 q_rows;  // of packed queries, and of packed keys: what starts may reach
  i32 k_rows;
  i32 pages_there;  // what page numbers may reach
  i32 unused;
};

// The sequence a block works on. Queries are aligned to the end of the keys: query i stands at position i + offset.
struct Sequence {
  i64 q_row, k_row;
  i32 batch, nq, nk, offset;
};

WICK_FN void bad_place(const Attention& p) {
  if (p.fault) *p.fault = 1;
}
// Rows starts[batch] .. starts[batch + 1] of a packed tensor; none where they are not rows of it, or more than there is
// a grid for.
WICK_FN i32 packed_rows(const Attention& p, const i32* starts, int batch, i32 rows, i32 most, i64& row) {
  const i32 from = starts[batch], to = starts[batch + 1];
  if (from < 0 || to < from || to > rows || to - from > most) {
    bad_place(p);
    return 0;
  }
  row = from;
  return to - from;
}

WICK_FN Sequence sequence_of(const Attention& p, int batch) {
  Sequence s = {0, 0, batch, p.tq, p.tk, 0};
  if (p.q_starts) s.nq = packed_rows(p, p.q_starts, batch, p.q_rows, p.tq, s.q_row);
  if (p.k_starts) s.nk = packed_rows(p, p.k_starts, batch, p.k_rows, p.tk, s.k_row);
  if (p.lengths) {
    const i32 n = p.lengths[batch];
    s.nk = n < 0 ? 0 : n > p.tk ? p.tk : n;
    if (s.nk != n) bad_place(p);
  }
  s.offset = s.nk - s.nq;
  return s;
}

template <class T> WICK_FN T* query_row(const void* base, const i64 (&strides)[3], const Sequence& s, int head, int i) {
  return (T*)base + s.batch * strides[0] + head * strides[1] + (s.q_row + i) * strides[2];
}
template <class T>
WICK_FN T* key_row(const Attention& p, const void* base, const i64 (&strides)[3], const Sequence& s, int head, int j) {
  if (p.pages) {
    i64 page = p.pages[(i64)s.batch * p.page_table + j / p.page_rows];
    if ((u64)page >= (u64)p.pages_there) {  // negative ones are huge without their sign
      bad_place(p);
      page = 0;
    }
    return (T*)base + page * strides[0] + head * strides[1] + j % p.page_rows * strides[2];
  }
  return (T*)base + s.batch * strides[0] + head * strides[1] + (s.k_row + j) * strides[2];
}
WICK_FN i64 lse_index(const Attention& p, const Sequence& s, int head, int i) {
  return s.batch * p.lse_strides[0] + head * p.lse_strides[1] + s.q_row + i;
}

// The keys that at least one of the queries first..last sees.
struct Range {
  int begin, end;
};
WICK_FN Range keys_seen(const Attention& p, const Sequence& s, int first, int last) {
  Range r = {0, s.nk};
  if (p.right >= 0 && last + s.offset + p.right + 1 < r.end) r.end = last + s.offset + p.right + 1;
  if (p.left >= 0 && first + s.offset - p.left > 0) r.begin = first + s.offset - p.left;
  return r;
}
// The queries that see at least one of the keys first..last.
WICK_FN Range queries_seeing(const Attention& p, const Sequence& s, int first, int last) {
  Range r = {0, s.nq};
  if (p.right >= 0 && first - s.offset - p.right > 0) r.begin = first - s.offset - p.right;
  if (p.left >= 0 && last - s.offset + p.left + 1 < r.end) r.end = last - s.offset + p.left + 1;
  return r;
}
WICK_FN bool is_seen(const Attention& p, const Sequence& s, int i, int j) {
  int x = i + s.offset;
  return i < s.nq && j < s.nk && (p.right < 0 || j <= x + p.right) && (p.left < 0 || j >= x - p.left);
}
// Whether every query first..last sees every key from..to, so that nothing needs a test.
WICK_FN bool all_seen(const Attention& p, const Sequence& s, int first, int last, int from, int to) {
  return last < s.nq && to < s.nk && (p.right < 0 || to <= first + s.offset + p.right) &&
         (p.left < 0 || from >= last + s.offset - p.left);
}

// A score that is only scaled can skip logit_of.
WICK_FN bool is_plain(const Attention& p) { return p.softcap == 0 && !p.slopes && p.mask_kind == 0; }

// From the product of query and key to the logit: scale and cap, then alibi and mask; -infinity where the mask forbids.
template <class A> WICK_FN A capped_of(const Attention& p, A product) {
  const A x = product * (A)p.scale;
  return p.softcap != 0 ? (A)p.softcap * tanhg(x / (A)p.softcap) : x;
}
// The same, and its derivative by the product.
template <class A> WICK_FN A capped_of(const Attention& p, A product, A& slope) {
  const A x = product * (A)p.scale;
  slope = (A)p.scale;
  if (p.softcap == 0) return x;
  const A t = tanhg(x / (A)p.softcap);
  slope *= 1 - t * t;
  return (A)p.softcap * t;
}
template <class T, class A> WICK_FN A biased_of(const Attention& p, const Sequence& s, int head, int i, int j, A x) {
  if (p.slopes) x -= (A)p.slopes[head] * (A)(i + s.offset > j ? i + s.offset - j : j - i - s.offset);
  if (p.mask_kind) {
    i64 at = s.batch * p.mask_strides[0] + head * p.mask_strides[1] + i * p.mask_strides[2] + j * p.mask_strides[3];
    if (p.mask_kind == 1) x = ((const u8*)p.mask)[at] ? x : Limits<A>::lowest();
    else {
      const A added = (A)to_compute(((const T*)p.mask)[at]);
      x = added == Limits<A>::lowest() ? added : x + added;  // what is hidden may be NaN
    }
  }
  return x;
}
template <class T, class A>
WICK_FN A logit_of(const Attention& p, const Sequence& s, int head, int i, int j, A product) {
  return biased_of<T>(p, s, head, i, j, capped_of(p, product));
}
// The keys that query i sees; none for a query that is not there.
WICK_FN Range keys_of(const Attention& p, const Sequence& s, int i) {
  Range r = keys_seen(p, s, i, i);
  if (i >= s.nq) r.end = r.begin;
  return r;
}
