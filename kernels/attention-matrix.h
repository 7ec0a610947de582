// How a wave holds scores on matrix units: which row and column an element is, and how results become operands of the
// next product.
#pragma once
#include "attention.h"
#include "matrix.h"

constexpr int ATTENTION_THREADS = 256 / 64 * WICK_WAVE;
constexpr float LOG2_E = 1.44269504f;

// Where results become left operands, scores are queries x keys and a lane has two queries of a tile;
// else keys x queries, and a lane has one.
constexpr int LANE_QUERIES = RESULT_IS_LEFT ? 2 : 1;
WICK_FN int query_slot(int j) { return RESULT_IS_LEFT ? j / 2 % 2 : 0; }
WICK_FN int query_of(u32 lane, int slot) {
  return RESULT_IS_LEFT ? (int)acc_row(lane, 2 * slot) : (int)acc_col(lane, 0);
}
WICK_FN int other_of(u32 lane, int j) { return RESULT_IS_LEFT ? (int)acc_col(lane, j) : (int)acc_row(lane, j); }

// Over the lanes that share a query.
template <class F> WICK_FN float over_query(float x, F f) {
  if (RESULT_IS_LEFT) {
    x = f(x, shfl_xor(x, 1, 4));
    return f(x, shfl_xor(x, 2, 4));
  }
  for (u32 m = 16; m < WICK_WAVE; m *= 2) x = f(x, shfl_xor(x, m, WICK_WAVE));
  return x;
}

// Weights as an operand.
template <class T> WICK_FN Frag to_operand(const Acc& acc) {
  Frag f;
  if constexpr (RESULT_IS_LEFT || RESULT_IS_RIGHT) {
#pragma unroll
    for (int j = 0; j < FRAG; j += 2) f.w[j / 2] = pack_pair<T>(acc.x[j], acc.x[j + 1]);
  } else {
    // Both halves of the wave need every key; each has the keys of its own parity.
    bool odd = lane_id() >= 16;
#pragma unroll
    for (int j = 0; j < ACC; j++) {
      float other = shfl_xor(acc.x[j], 16, 32);
      // a choice of numbers, where one of pairs would be a branch
      f.w[j] = pack_pair<T>(odd ? other : acc.x[j], odd ? acc.x[j] : other);
    }
  }
  return f;
}

/** acc += own other, on whichever side the wave's own rows stand. */
template <class T> WICK_FN void multiply_other(Acc& acc, const Frag& own, const Frag& other) {
  if constexpr (RESULT_IS_LEFT) multiply<T>(acc, own, other);
  else multiply<T>(acc, other, own);
}

/** All move up by one: a loop that is not unrolled works on the first each time, and arrays keep to registers. */
template <class A, int N> WICK_FN void move_up(A (&many)[N]) {
  const A first = many[0];
#pragma unroll
  for (int i = 0; i + 1 < N; i++) many[i] = many[i + 1];
  many[N - 1] = first;
}
template <class A, int N, int M> WICK_FN void move_up(A (&many)[N][M]) {
#pragma unroll
  for (int m = 0; m < M; m++) {
    const A first = many[0][m];
#pragma unroll
    for (int i = 0; i + 1 < N; i++) many[i][m] = many[i + 1][m];
    many[N - 1][m] = first;
  }
}
