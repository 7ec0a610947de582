// Rows of activations times the matrices of the experts that indices name: only these are read, once, in 16-byte words
// where rows allow it.
//   experts_T_V    grid (ceil(rows / EXPERT_ROWS), tokens * chosen), block up to 256: V values a load
// Many rows are sorted by expert first, and tiles of them multiplied (grouped.h).
//   experts_sort   one block of 1024, dynamic shared memory: three words for each of experts + 2
#include "block.h"
#include "grouped.h"

constexpr int EXPERT_THREADS = 256, EXPERT_ROWS = 8;

template <class T, int V> WICK_FN void take(const T* p, compute_t<T> (&x)[V]) {
  if constexpr (V == 1) x[0] = to_compute(*p);
  else unpack(load_pack(p), x);
}

// Row i of the result is activations' row (given == 1 ? i / chosen : i) times the weights of expert ids[i].
template <class T, int V>
WICK_FN void experts_rows(const T* x, const T* w, const i64* ids, T* out, u32* fault, i64 experts, i64 rows, i64 chosen,
                          i64 given, i64 n, i64 none) {
  typedef compute_t<T> A;
  __shared__ A parts[EXPERT_THREADS / WICK_WAVE][EXPERT_ROWS];
  begin_in_turn();
  const i64 i = blockIdx.y, id = ids[i], first = (i64)blockIdx.x * EXPERT_ROWS, row = given == 1 ? i / chosen : i;
  const bool there = id >= 0 && id < experts && id != none;
  A sums[EXPERT_ROWS] = {};
  if (there) {
    const T* from[EXPERT_ROWS];
#pragma unroll
    for (int r = 0; r < EXPERT_ROWS; r++) from[r] = w + (id * rows + (first + r < rows ? first + r : rows - 1)) * n;
    ROLLED for (i64 c = (i64)threadIdx.x * V; c < n; c += (i64)blockDim.x * V) {
      A v[V], m[V];
      take<T, V>(x + row * n + c, v);
#pragma unroll
      for (int r = 0; r < EXPERT_ROWS; r++) {
        take<T, V>(from[r] + c, m);
#pragma unroll
        for (int e = 0; e < V; e++) sums[r] = fmag(m[e], v[e], sums[r]);
      }
    }
  } else if (id != none && threadIdx.x == 0) {
    *fault = 1;
  }
#pragma unroll
  for (int r = 0; r < EXPERT_ROWS; r++) {
#pragma unroll
    for (int m = WICK_WAVE / 2; m; m /= 2) sums[r] += shfl_xor(sums[r], m, WICK_WAVE);
    if (lane_id() == 0) parts[wave_id()][r] = sums[r];
  }
  __syncthreads();
  const int r = threadIdx.x;
  if (r >= EXPERT_ROWS || first + r >= rows) return;
  A sum = 0;
  for (u32 o = 0; o < blockDim.x / WICK_WAVE; o++) sum += parts[o][r];
  if (!there && id != none) sum = (A)bits_as<float>(0x7fc00000u);
  out[i * rows + first + r] = from_compute<T>(sum);
}

// Puts rows in the order of their experts and lists tiles of up to `height` of them; `most` tiles have room, and those
// past the last have no rows. Rows without an expert come after all others, those of a wrong number last.
constexpr int EXPERT_SORT = 1024;
/** f(row, id) for all rows, by the whole block; a thread has eight ids under way. */
template <class F> WICK_FN void each_choice(const i64* ids, i64 rows, F f) {
  constexpr int AHEAD = 8;
  ROLLED for (i64 from = threadIdx.x; from < rows; from += AHEAD * EXPERT_SORT) {
    i64 held[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) held[u] = from + u * EXPERT_SORT < rows ? ids[from + u * EXPERT_SORT] : 0;
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (from + u * EXPERT_SORT < rows) f(from + u * EXPERT_SORT, held[u]);
  }
}
WICK_FN void sort_by_expert(const i64* ids, u32* order, RowTile* tiles, u32* fault, i64 rows, i64 experts, i64 none,
                            i64 height, i64 most) {
  DYNAMIC_SHARED(u32, counts);
  __shared__ u32 used;
  const u32 buckets = (u32)experts + 2;
  u32 *places = counts + buckets, *first = places + buckets;
  const auto bucket = [&](i64 id) {
    return id == none ? (u32)experts : id >= 0 && id < experts ? (u32)id : (u32)experts + 1;
  };
  begin_in_turn();
  for (u32 b = threadIdx.x; b < buckets; b += EXPERT_SORT) counts[b] = 0;
  __syncthreads();
  each_choice(ids, rows, [&](i64, i64 id) { atomic_add(counts + bucket(id), 1u); });
  __syncthreads();
  if (wave_id() == 0) {
    // Rows and tiles before each expert's, in the halves of a word.
    u64 before = 0;
    ROLLED for (u32 from = 0; from < buckets; from += WICK_WAVE) {
      const u32 b = from + lane_id(), count = b < buckets ? counts[b] : 0;
      const u64 mine = (u64)count << 32 | (count + (u32)height - 1) / (u32)height;
      u64 sum = mine;
#pragma unroll
      for (u32 step = 1; step < WICK_WAVE; step *= 2) {
        const u64 other = shfl_up(sum, step, WICK_WAVE);
        if (lane_id() >= step) sum += other;
      }
      if (b < buckets) {
        places[b] = (u32)((before + sum - mine) >> 32);
        first[b] = (u32)(before + sum - mine);
      }
      before += shfl(sum, WICK_WAVE - 1, WICK_WAVE);
    }
    if (lane_id() == 0) {
      used = (u32)before;
      if (counts[experts + 1] > 0) *fault = 1;
    }
  }
  __syncthreads();
  ROLLED for (u32 b = threadIdx.x; b < buckets; b += EXPERT_SORT) {
    const u32 count = counts[b];
    RowTile* to = tiles + first[b];
    ROLLED for (u32 done = 0; done < count; done += (u32)height) {
      const u32 left = count - done;
      *to++ = {(i32)b, (i32)(places[b] + done), (i32)(left < (u32)height ? left : (u32)height), 0};
    }
  }
  ROLLED for (u32 t = used + threadIdx.x; t < (u32)most; t += EXPERT_SORT) tiles[t] = {0, 0, 0, 0};
  __syncthreads();
  each_choice(ids, rows, [&](i64 i, i64 id) { order[atomic_add(places + bucket(id), 1u)] = (u32)i; });
}
