// Running sums over the threads of a block.
#pragma once
#include "block.h"

/** Sum of the values of the threads before this one in a block of THREADS, and of all. */
template <int THREADS, class A> WICK_FN A block_scan(A value, A* slots, A& total) {
  A sum = value;
  for (u32 d = 1; d < WICK_WAVE; d *= 2) {
    const A before = shfl_up(sum, d, WICK_WAVE);
    if (lane_id() >= d) sum += before;
  }
  const A ahead = shfl_up(sum, 1, WICK_WAVE);
  __syncthreads();
  if (lane_id() == WICK_WAVE - 1) slots[wave_id()] = sum;
  __syncthreads();
  A base = 0;
  total = 0;
  for (u32 w = 0; w < THREADS / WICK_WAVE; w++) {
    if (w == wave_id()) base = total;
    total += slots[w];
  }
  return lane_id() ? base + ahead : base;
}
