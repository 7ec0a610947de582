// Matrix products over operands that loaders fetch: C(i, j) = sum over k of a(i, k) b(j, k), in tiles a block each.
// GEMM of any strides and implicit convolutions are this with different loaders and stores.
// A kernel holds one copy of each part (fetch, products, store): compilers take their time over what is written out
// twice.
#pragma once
#include "matrix.h"
#include "settle.h"

/** What products of S add up in: integers wrap. */
template <class S> struct ProductOf { typedef float type; };
template <> struct ProductOf<double> { typedef double type; };
template <> struct ProductOf<u8> { typedef u32 type; };
template <> struct ProductOf<u32> { typedef u32 type; };
template <class S> using product_t = typename ProductOf<S>::type;

/**
 * Blocks are numbered so that neighbours share operands in the cache: columns of GROUP tiles, one beside the other. A
 * grid counts in 32 bits.
 */
struct Tile {
  i64 m, n;
};
WICK_FN Tile tile_of(u32 block, i64 tiles_m, i64 tiles_n) {
  constexpr u32 GROUP = 8;
  const u32 per = GROUP * (u32)tiles_n, group = block / per, first = group * GROUP, below = (u32)tiles_m - first;
  const u32 height = below < GROUP ? below : GROUP, rest = block - group * per, column = rest / height;
  Tile t = {first + (rest - column * height), column};
  return t;
}

// ---- results: by way of shared memory, so that a thread keeps to its columns and what depends on them is found once
// ----

/** Neighbours in memory, moved at once. */
template <int W, class T> struct __attribute__((aligned(sizeof(T) * W))) Some { T x[W]; };

/** Adding this changes nothing, not even the sign of a zero. */
template <class A> constexpr A NEUTRAL = (A)-0.0;

/**
 * ROWS rows of COLS sums, PITCH apart, go to their places, W neighbours at a time; row(r) says which row of the result
 * is staged as r.
 * ST: columns<W>(j) and put<W>(columns, i, sums).
 */
template <int W, int ROWS, int COLS, int PITCH, int THREADS, class A, class ST, class R>
WICK_FN void store_staged(const A* staged, const ST& store, i64 n0, const R& row, u32 t = threadIdx.x) {
  constexpr int ACROSS = COLS / W, STEP = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0 && ROWS % STEP == 0, "a round of all threads must cover whole rows");
  const int column = (int)t % ACROSS * W, first = (int)t / ACROSS;
  const auto to = store.template columns<W>(n0 + column);
  staged += first * PITCH + column;
  UNROLL(4, 2)
  for (int n = 0; n < ROWS / STEP; n++) {
    store.template put<W>(to, row(first + n * STEP), staged);
    staged += STEP * PITCH;
  }
}

/** Lays a lane's share of a 16 x 16 result out in shared memory; `to` is where its first element goes. */
WICK_FN void stage(float* to, int pitch, const Acc& sum) {
#pragma unroll
  for (int n = 0; n < ACC; n += 1 + ACC_PAIRS) {
    float* at = to + (int)acc_row(0, n) * pitch + (int)acc_col(0, n);
    if constexpr (ACC_PAIRS) *(Some<2, float>*)at = {sum.x[n], sum.x[n + 1]};
    else *at = sum.x[n];
  }
}

// ---- how a block's threads share out a tile of ROWS x K elements: neighbours in memory to neighbouring threads ----

/** This thread's elements: the first, and the steps from one to the next. */
template <int THREADS, int ROWS, int K> struct TileShare {
  static constexpr int EACH = ROWS * K / THREADS, DEPTH = K;
  int row, k, row_step, k_step;
  WICK_MEMBER TileShare(bool k_fast) {
    const int t = (int)threadIdx.x;
    row = k_fast ? t / K : t % ROWS;
    k = k_fast ? t % K : t / ROWS;
    row_step = k_fast ? THREADS / K : 0;
    k_step = k_fast ? 0 : THREADS / ROWS;
  }
  /** How many of them lie inside when `rows` of the tile do, and of those when `ks` of k do. */
  WICK_MEMBER int inside_rows(i64 rows) const {
    const int down = (rows < ROWS ? (int)rows : ROWS) - row;
    return down <= 0 ? 0 : k_step ? EACH : (down + THREADS / K - 1) / (THREADS / K);
  }
  WICK_MEMBER int inside(int of, i64 ks) const {
    const int along = (ks < K ? (int)ks : K) - k, n = along <= 0 ? 0
                                                      : row_step ? EACH
                                                                 : (along + THREADS / ROWS - 1) / (THREADS / ROWS);
    return n < of ? n : of;
  }
};

/**
 * What lies at `from`, or zero. On NVIDIA one guarded load: branches around many loads cost compilers more than the
 * loads.
 */
template <class S> WICK_FN S load_if(bool inside, const S* from) {
#if defined(WICK_NVIDIA)
#define LOAD_IF(TYPE, LETTER, value)                                                                     \
  asm("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov." TYPE " %0, 0;\n@p ld.global." TYPE " %0, [%1];\n}" \
      : LETTER(value)                                                                                    \
      : "l"(from), "r"((u32)inside))
  if constexpr (sizeof(S) == 8) {
    u64 v;
    LOAD_IF("b64", "=l", v);
    return bits_as<S>(v);
  } else if constexpr (sizeof(S) == 4) {
    u32 v;
    LOAD_IF("b32", "=r", v);
    return bits_as<S>(v);
  } else if constexpr (sizeof(S) == 2) {
    u16 v;
    LOAD_IF("b16", "=h", v);
    return bits_as<S>(v);
  } else return inside ? *from : S{};
#else
  return inside ? *from : S{};
#endif
}

// Loaders. start(share, k_from); then fetch(share, elements, left, turn), tile after tile: this thread's elements,
// zeros where `left` of k or the rows end. k_fast says along which of the two memory is contiguous. A loader with LEAD
// = 1 has prepare(k0, left, turn) lay out in shared memory what fetching that tile needs, a round before; turns are 0
// and 1.

// ---- plain multiply-adds: 256 threads, a T x T patch each, tiles of 16 T ----

constexpr int FMA_K = 8;
/** 8 x 8 a thread for 32-bit sums, 4 x 4 for doubles. */
template <class S> constexpr int fma_patch = sizeof(product_t<S>) == 8 ? 4 : 8;
template <class S> constexpr int fma_tile = 16 * fma_patch<S>;

template <class S, class LA, class LB, class ST>
WICK_FN void tile_fma(LA a, LB b, const ST& store, i64 m0, i64 n0, i64 k_from, i64 k_to) {
  typedef product_t<S> A;
  typedef TileShare<256, fma_tile<S>, FMA_K> Part;
  constexpr int P = fma_patch<S>, B = fma_tile<S>, EACH = Part::EACH, Q = B + 4;
  __shared__ __attribute__((aligned(16))) A tiles[4 * FMA_K * Q];  // two of each operand, in turns
  const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
  const Part pa(a.k_fast), pb(b.k_fast);
  S ra[EACH], rb[EACH];
  A sum[P][P];
#pragma unroll
  for (int i = 0; i < P; i++)
#pragma unroll
    for (int j = 0; j < P; j++) sum[i][j] = 0;
  a.start(pa, k_from);
  b.start(pb, k_from);
  // The next tile is in flight while this one is multiplied: the first round or two only fetch.
  i64 k0 = k_from - FMA_K * (1 + LB::LEAD);
  int turn = 0;
  UNROLL(1, 1)
  do {
    A *as = tiles + turn * 2 * FMA_K * Q, *bs = as + FMA_K * Q;
    const i64 left = k_to - k0 - FMA_K;
    if (k0 >= k_from) {
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        as[pa.k * Q + pa.row + e * (pa.k_step * Q + pa.row_step)] = (A)to_compute(ra[e]);
        bs[pb.k * Q + pb.row + e * (pb.k_step * Q + pb.row_step)] = (A)to_compute(rb[e]);
      }
    }
    __syncthreads();
    if (k0 >= k_from - FMA_K && left > 0) {
      a.fetch(pa, ra, left, turn ^ 1);
      b.fetch(pb, rb, left, turn ^ 1);
    }
    b.template prepare<FMA_K>(k0 + 2 * FMA_K, left - FMA_K, turn);
    turn ^= 1;
    if (k0 < k_from) continue;  // to the condition below
    const A *xs = as + ty * 4, *ys = bs + tx * 4;
    A x[P], y[P];
    const auto read = [&](int k) {
      constexpr int V = pack_size<A>;
#pragma unroll
      for (int i = 0; i < P; i += V) {
        const Pack<A> px = load_pack(xs + k * Q + i / 4 * 64 + i % 4), py = load_pack(ys + k * Q + i / 4 * 64 + i % 4);
#pragma unroll
        for (int v = 0; v < V; v++) x[i + v] = px.v[v], y[i + v] = py.v[v];
      }
    };
    read(0);
    UNROLL(8, 2)
    for (int k = 0; k < FMA_K; k++) {
      A left[P], right[P];
#pragma unroll
      for (int i = 0; i < P; i++) left[i] = x[i], right[i] = y[i];
      read((k + 1) % FMA_K);  // under way while these are multiplied
#pragma unroll
      for (int i = 0; i < P; i++)
#pragma unroll
        for (int j = 0; j < P; j++) sum[i][j] = fmag(left[i], right[j], sum[i][j]);
    }
  } while ((k0 += FMA_K) < k_to);
  // Two rows of every patch at a time: they fit where the tiles lay.
  A* mine = tiles + ty * Q + tx * 4;
  UNROLL(4, 1)
  for (int from = 0; from < P; from += 2) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < P; j++) mine[i * 16 * Q + j / 4 * 64 + j % 4] = sum[i][j];
#pragma unroll
    for (int i = 0; i + 2 < P; i++)
#pragma unroll
      for (int j = 0; j < P; j++) sum[i][j] = sum[i + 2][j];  // registers have no index, so the rest moves up
    __syncthreads();
    store_staged<1, 32, B, Q, 256>(tiles, store, n0,
                                   [&](int r) { return m0 + from / 4 * 64 + r % 16 * 4 + from % 4 + r / 16; });
  }
}

// ---- matrix units over loaders: 4 waves, 64 x 64 tiles of 32 x 32 a wave ----

constexpr int MMA_TILE = 64, MMA_K = 16;
constexpr int MMA_THREADS = 256 / 64 * WICK_WAVE;

template <class S, class LA, class LB, class ST>
WICK_FN void tile_mma(LA a, LB b, const ST& store, i64 m0, i64 n0, i64 k_from, i64 k_to) {
  typedef TileShare<MMA_THREADS, MMA_TILE, MMA_K> Part;
  constexpr int Q = MMA_K + 8, EACH = Part::EACH, PITCH = MMA_TILE + 4;
  __shared__ __attribute__((aligned(16))) S tiles[4 * MMA_TILE * Q];  // two of each operand, in turns
  static_assert(32 * PITCH * 4 <= sizeof(tiles), "half the results must fit where the tiles lay");
  const int wave = (int)wave_id(), wm = wave / 2 * 32, wn = wave % 2 * 32;
  const Part pa(a.k_fast), pb(b.k_fast);
  S ra[EACH], rb[EACH];
  Acc sum[2][2] = {};
  a.start(pa, k_from);
  b.start(pb, k_from);
  i64 k0 = k_from - MMA_K * (1 + LB::LEAD);
  int turn = 0;
  UNROLL(1, 1)
  do {
    S *as = tiles + turn * 2 * MMA_TILE * Q, *bs = as + MMA_TILE * Q;
    const i64 left = k_to - k0 - MMA_K;
    if (k0 >= k_from) {
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        as[pa.row * Q + pa.k + e * (pa.row_step * Q + pa.k_step)] = ra[e];
        bs[pb.row * Q + pb.k + e * (pb.row_step * Q + pb.k_step)] = rb[e];
      }
    }
    __syncthreads();
    if (k0 >= k_from - MMA_K && left > 0) {
      a.fetch(pa, ra, left, turn ^ 1);
      b.fetch(pb, rb, left, turn ^ 1);
    }
    b.template prepare<MMA_K>(k0 + 2 * MMA_K, left - MMA_K, turn);
    turn ^= 1;
    if (k0 < k_from) continue;  // to the condition below
#pragma unroll
    for (int k = 0; k < MMA_K; k += 16) {
      Frag fa[2], fb[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        fa[i] = load_frag<true, true>(as + (wm + i * 16) * Q + k, Q);
        fb[i] = load_frag<false, true>(bs + (wn + i * 16) * Q + k, Q);
      }
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) multiply<S>(sum[i][j], fa[i], fb[j]);
    }
  } while ((k0 += MMA_K) < k_to);
  float *staged = (float*)tiles, *mine = staged + (wm / 2 + acc_row(lane_id(), 0)) * PITCH + wn + acc_col(lane_id(), 0);
  UNROLL(2, 1)
  for (int i = 0; i < 2; i++) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 2; j++) {
      stage(mine + j * 16, PITCH, sum[0][j]);
      sum[0][j] = sum[1][j];  // registers have no index, so the other half moves up
    }
    __syncthreads();
    store_staged<1, 32, MMA_TILE, PITCH, MMA_THREADS>(staged, store, n0,
                                                      [&](int r) { return m0 + r / 16 * 32 + i * 16 + r % 16; });
  }
}
