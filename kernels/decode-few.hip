// One token of each of up to eight sequences through products: what decode.hip does with one vector, for 16-bit floats on
// matrix units. A matrix is read once for all vectors, with the norm before and the bias, gate or residual after it.
//
//   decode_few_product_T_S  grid FEW_PARTS * sets: rows of up to 512 S numbers for each of the parts
//   decode_few_gate_T_S     rows of gates stand in front of those that they gate
//
// The blocks of a set are a cluster: they share its rows, each a part of their columns, and read each other's sums in
// shared memory. A wave has 32 S columns, 64 at a time beside those of the other waves: vectors stay in its registers
// for all rows of the set, while weights pass through a ring in shared memory that is being filled before it is known
// that the vectors are there. The order of columns in a product is free as long as both operands have the same, so a
// lane takes 16 bytes of a row at a time, which serve two products.
#include "attention-split.h"
#include "decode.h"
#include "matrix.h"

constexpr int FEW_WAVES = 16, FEW_THREADS = FEW_WAVES * 32, FEW_VECTORS = 8;
/** Blocks that share rows, and slots of a wave's ring, each of 64 columns of sixteen rows. */
#ifdef WICK_NVIDIA
constexpr int FEW_PARTS = 2, FEW_STAGES = 5;
#undef KERNEL_BESIDE
#define KERNEL_BESIDE(threads, blocks) \
  extern "C" __global__ void __cluster_dims__(FEW_PARTS, 1, 1) __launch_bounds__(threads, blocks)
#else
constexpr int FEW_PARTS = 1, FEW_STAGES = 1;
#endif

struct FewProduct {
  const void *x, *norm, *w, *bias, *residual;
  void* out;
  i32 act, vectors, n, k;
  /** Tiles of sixteen rows in a set. */
  i32 tiles;
  float eps;
};

/** All threads of the blocks that share rows meet here, and see what the others have written. */
WICK_FN void meet_parts() {
#if defined(WICK_NVIDIA)
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
/** A number in the shared memory of one of these blocks. */
WICK_FN float of_part(const float* p, u32 part) {
#if defined(WICK_NVIDIA)
  u32 at;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(p)), "r"(part));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
  return value;
#else
  return *p;
#endif
}

template <class T, class N, int Steps, bool Gate> struct FewRows {
  static constexpr int Results = Gate ? 8 : 16, Sums = 16 * FEW_VECTORS, Slot = 128, Span = 64;
  static_assert(Steps % 2 == 0, "two steps of 32 columns in a slot");

  const FewProduct& p;
  word4* const ring;
  /** Sums of the waves, of this tile and the one before, and of the block, of all tiles. */
  float (&found)[2][FEW_WAVES][16 * FEW_VECTORS];
  float* const sums;
  float (&squares)[FEW_WAVES][FEW_VECTORS];
  const int lane = lane_id(), wave = wave_id(), cell = lane / 4, pair = lane % 4;  // of a product's 8 x 4
  const int part = blockIdx.x % FEW_PARTS, first = blockIdx.x / FEW_PARTS * p.tiles * Results;
  /** What is copied next. */
  int tile = 0, turn = 0, slot = 0;

  /** Where this wave's 64 columns of a turn begin. */
  WICK_MEMBER int column(int t) const { return ((t * FEW_PARTS + part) * FEW_WAVES + wave) * Span; }
  /** Words of a row are laid out so that lanes of a product read from different banks. */
  static WICK_MEMBER int place(int row, int word) { return row * 8 + (word ^ (row % 2 * 4 | row / 2 % 4)); }
  /** Begins to copy what comes next; groups are counted, so an empty one keeps the count. */
  WICK_MEMBER void fetch() {
    if (tile < p.tiles) {
      const int c = column(turn) + lane % 8 * 8;
      word4* const to = ring + slot * Slot;
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const int row = 4 * r + lane / 8, i = first + tile * Results + (Gate ? row % 8 : row);
        const i64 at = (i < p.n ? i : p.n - 1) + (Gate && r >= 2 ? p.n : 0);
        async_all16(to + place(row, lane % 8), (const T*)p.w + at * p.k + c, c < p.k);
      }
    }
    async_commit();
    if (++turn == Steps / 2) turn = 0, tile++;
    slot = slot + 1 == FEW_STAGES ? 0 : slot + 1;
  }
  /** This wave's columns of the vectors, times the norm's weights: its factor comes after the sums. */
  WICK_MEMBER void take(word4 (&x)[Steps]) const {
    const T* const vector = (const T*)p.x + (i64)(cell < p.vectors ? cell : p.vectors - 1) * p.k;
    auto at = [&](int s) { return column(s / 2) + s % 2 * 32 + 8 * pair; };
#pragma unroll
    for (int s = 0; s < Steps; s++) x[s] = at(s) < p.k ? *(const word4*)(vector + at(s)) : word4{};
    if (!p.norm) return;
    float square = 0;
#pragma unroll
    for (int s = 0; s < Steps; s++) {
      float scale[8], held[8];
      unpack_eight(load_eight_if(at(s) < p.k, (const N*)p.norm + at(s)), scale);
      unpack_eight(Eight<T>{{x[s]}}, held);
      u32 words[4];
#pragma unroll
      for (int e = 0; e < 8; e++) square = fmag(held[e], held[e], square);
#pragma unroll
      for (int e = 0; e < 4; e++)
        words[e] = pack_pair<T>(held[2 * e] * scale[2 * e], held[2 * e + 1] * scale[2 * e + 1]);
      x[s] = join_words(words);
    }
    square += shfl_xor(square, 1, 4);
    square += shfl_xor(square, 2, 4);
    if (pair == 0) squares[wave][cell] = square;
  }
  /** Sums of all tiles over the block's columns. Waves take turns in adding up what all of them have found. */
  WICK_MEMBER void multiply(const word4 (&x)[Steps]) {
    constexpr int Adding = Sums / 32;
    int at = 0;
    ROLLED for (int t = 0; t < p.tiles; t++) {
      float mine[4] = {};
#pragma unroll
      for (int s = 0; s < Steps; s++) {
        const word4* const weights = ring + at * Slot;
        if (s % 2 == 0) {
          async_wait<(FEW_STAGES > 2 ? FEW_STAGES - 2 : 0)>();
          sync_wave();
          if (FEW_STAGES > 1) fetch();
        }
        u32 top[4], bottom[4], right[4];
        split_words(weights[place(cell, s % 2 * 4 + pair)], top);
        split_words(weights[place(cell + 8, s % 2 * 4 + pair)], bottom);
        split_words(x[s], right);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          Frag left = {};
          left.w[0] = top[2 * h], left.w[1] = bottom[2 * h], left.w[2] = top[2 * h + 1], left.w[3] = bottom[2 * h + 1];
          multiply_narrow<T>(mine, left, right[2 * h], right[2 * h + 1]);
        }
        if (s % 2 == 1) {
          if (FEW_STAGES == 1) sync_wave(), fetch();
          at = at + 1 == FEW_STAGES ? 0 : at + 1;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; j++) found[t % 2][wave][acc_row(lane, j) * 8 + acc_col(lane, j)] = mine[j];
      __syncthreads();
      if (wave / Adding != t % (FEW_WAVES / Adding)) continue;
      const int which = wave % Adding * 32 + lane;
      float sum = 0;
#pragma unroll
      for (int o = 0; o < FEW_WAVES; o++) sum += found[t % 2][o][which];
      sums[t * Sums + which] = sum;
    }
    async_wait<0>();
  }
  /** What the block has found is there for its cluster. */
  WICK_MEMBER void show() const {
    if (p.norm && threadIdx.x < FEW_VECTORS) {
      float sum = 0;
#pragma unroll
      for (int o = 0; o < FEW_WAVES; o++) sum += squares[o][threadIdx.x];
      squares[0][threadIdx.x] = sum;
    }
    meet_parts();
  }
  static WICK_MEMBER float all(const float* at) {
    float sum = 0;
#pragma unroll
    for (int o = 0; o < FEW_PARTS; o++) sum += of_part(at, o);
    return sum;
  }
  /** Which result this thread has first, of which row and vector, and where it goes. */
  struct Place {
    int tile, row, vector, i;
    i64 to;
  };
  WICK_MEMBER int first_result() const { return part * FEW_THREADS + threadIdx.x; }
  WICK_MEMBER Place place_of(int r) const {
    const int row = r % Results, v = r / Results % p.vectors, t = r / Results / p.vectors;
    const int i = first + t * Results + row;
    return {t, row, v, i, (i64)v * p.n + i};
  }
  /** What is added to a result. */
  WICK_MEMBER float side(int r) const {
    const Place at = place_of(r);
    if (Gate || at.tile >= p.tiles || at.i >= p.n) return 0;
    const float bias = p.bias ? (float)to_compute(((const T*)p.bias)[at.i]) : 0.0f;
    return bias + (p.residual ? (float)to_compute(((const T*)p.residual)[at.to]) : 0.0f);
  }
  /** This block's share of the results; `aside` is what is added to the first, which was asked for early. */
  WICK_MEMBER void finish(float aside) const {
    const int begin = first_result();
    ROLLED for (int r = begin; r < p.tiles * Results * p.vectors; r += FEW_PARTS * FEW_THREADS) {
      const Place to = place_of(r);
      if (to.i >= p.n) continue;
      const float* const at = sums + to.tile * Sums + to.row * 8 + to.vector;
      const float factor = p.norm ? rsqrtg(all(&squares[0][to.vector]) / (float)p.k + p.eps) : 1.0f;
      float value = all(at) * factor;
      if (Gate) value = activated(p.act, value) * (all(at + 64) * factor);
      ((T*)p.out)[to.to] = from_compute<T>(value + (r == begin ? aside : side(r)));
    }
    if (FEW_PARTS > 1) meet_parts();  // nobody's memory is given back while others read it
  }
};

template <class T, class N, int Steps, bool Gate> WICK_FN void decode_few_rows(const FewProduct& p) {
  typedef FewRows<T, N, Steps, Gate> Rows;
  DYNAMIC_SHARED(word4, shared);
  __shared__ float squares[FEW_WAVES][FEW_VECTORS], found[2][FEW_WAVES][Rows::Sums];
  float* const sums = (float*)(shared + FEW_WAVES * FEW_STAGES * Rows::Slot);
  Rows rows{p, shared + wave_id() * FEW_STAGES * Rows::Slot, found, sums, squares};
#pragma unroll
  for (int s = 0; s < (FEW_STAGES > 1 ? FEW_STAGES - 1 : 1); s++) rows.fetch();
  begin_in_turn();
  word4 x[Steps];
  rows.take(x);
  const float aside = rows.side(rows.first_result());
  rows.multiply(x);
  rows.show();
  rows.finish(aside);
}
