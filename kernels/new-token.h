// What kernels of a new token's attention are given.
#pragma once
#include "portable.h"

struct NewToken {
  const void* qkv;
  const void* cos;
  const void* sin;
  const i32* state;
  void* keys;
  void* values;
  void* out;
  float* partial;
  u32* arrived;
  /** Weights of norms over each query and key before they are turned; null for none. */
  const float *q_norm, *k_norm;
  const i32* table;
  i32 heads, kv_heads, dim, room;
  /** Keys that a query sees, itself counted; 0 for all. */
  i32 window;
  /** A page has two to this power rows. */
  i32 page_shift;
  /** Pages of a row of the table. */
  i32 width;
  /** A cap on scores, 0 for none. */
  float scale, eps, softcap;
};
