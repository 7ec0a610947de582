// Matrix products of 16-bit floats on Hopper: warpgroup products that read shared memory, one warpgroup copying and two
// computing.
//
// gemm_hopper_T_AB, A and B as in gemm.hip (k: contiguous along k, r: along m or n), the same parameters and grid:
// tiles 128 x 256, 384 threads, dynamic shared memory 1024 + 4 stages of 48 KiB; rows and bases 16-byte aligned.
// grouped_hopper_T: rows by the expert each has chosen (grouped.h); grid tiles of rows * tiles of n.
// Compiled for sm_90a, as its module declares.
#include "gemm.h"
#include "grouped.h"
#include "hopper.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64, STAGES = 4;

/**
 * One operand's tile in shared memory: lines of 64 elements, along k a line a row, or along rows 64 of them a line, k
 * by k.
 */
template <class S, int ROWS, bool K> struct HopperTile {
  static constexpr u32 BYTES = ROWS * TILE_K * 2;
  /** From one group of 16 along k to the next, and from 64 rows to the next 64, in bytes. */
  static constexpr u32 K_STEP = K ? 32 : 16 * 128, BLOCK = 64 * 128;
  /** Lines of a tile, 16-byte parts of a line, and how many lines 128 threads copy at once. */
  static constexpr i32 LINES = K ? ROWS : TILE_K, PARTS = K ? 8 : ROWS / 8, STEP = 128 / PARTS;
  /** Where in the tile the part c of a line lies. */
  static WICK_MEMBER u32 place(i32 line, i32 c) {
    return (K ? 0 : (u32)c / 8 * BLOCK) + (u32)line * 128 + (u32)((c ^ line) & 7) * 16;
  }
  /** This thread's first part of the tile that begins at `base`. */
  static WICK_MEMBER const S* first(const S* base, i64 stride) {
    return base + (i64)(threadIdx.x / PARTS) * stride + 8 * (threadIdx.x % PARTS);
  }

  /**
   * A tile that lies inside the matrix, copied by 128 threads: no more than an addition a copy, since the copying warps
   * are few.
   */
  static WICK_MEMBER void fetch(u32 to, const S* from, i64 stride) {
    const i32 c = (i32)threadIdx.x % PARTS, line = (i32)threadIdx.x / PARTS;
    // the same where STEP is a multiple of 8
    const u32 even = to + place(line, c), odd = to + place(line + STEP, c) - STEP * 128;
    const i64 step = STEP * stride;
#pragma unroll
    for (i32 i = 0; i < LINES / STEP; i++) {
      asm volatile(
          "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"((i % 2 ? odd : even) + (u32)(i * STEP) * 128),
          "l"(from)
          : "memory");
      from += step;
    }
  }
  /** A tile of which `rows` and `ks` lie inside; the rest is 0. */
  static WICK_MEMBER void fetch_edge(u32 to, const S* from, i64 stride, i32 rows, i32 ks, const S* somewhere) {
    const i32 c = (i32)threadIdx.x % PARTS, line = (i32)threadIdx.x / PARTS, lines = K ? rows : ks,
              left = (K ? ks : rows) - 8 * c;
    const u32 bytes = left <= 0 ? 0 : left >= 8 ? 16 : (u32)left * 2;
#pragma unroll 1
    for (i32 l = line; l < LINES; l += STEP) {
      const u32 some = l < lines ? bytes : 0;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + place(l, c)),
                   "l"(some ? from : somewhere), "r"(some)
                   : "memory");
      from += STEP * stride;
    }
  }
  static WICK_MEMBER u64 at(u32 address) { return operand(address, K ? 16 : BLOCK); }
};

/** The left operand's tiles, one after another along k, of rows that lie at equal distances. */
template <class S, bool K> struct HopperRows {
  typedef HopperTile<S, TILE_M, K> Tile;
  static constexpr bool AlongK = K;
  /** Registers that a copying thread and a computing one may have. */
  static constexpr int COPYING = 40, COMPUTING = 232;
  const S *from, *somewhere;
  i64 stride;
  i32 rows;
  WICK_MEMBER HopperRows(const S* a, i64 a_stride, i64 m0, i64 m, i64 k_from)
      : from(Tile::first(a + m0 * (K ? a_stride : 1) + k_from * (K ? 1 : a_stride), a_stride)),
        somewhere(a),
        stride(a_stride),
        rows((i32)(m - m0 < TILE_M ? m - m0 : TILE_M)) {}
  WICK_MEMBER bool whole() const { return rows == TILE_M; }
  WICK_MEMBER void fetch(u32 to) { Tile::fetch(to, from, stride); }
  WICK_MEMBER void fetch_edge(u32 to, i32 ks) { Tile::fetch_edge(to, from, stride, rows, ks, somewhere); }
  WICK_MEMBER void next() { from += TILE_K * (K ? 1 : stride); }
};
/** The same of rows that lie anywhere. */
template <class S> struct GatheredHopperRows {
  typedef HopperTile<S, TILE_M, true> Tile;
  static constexpr bool AlongK = true;
  static constexpr int COPYING = 56, COMPUTING = 224, EACH = Tile::LINES / Tile::STEP;
  static_assert(Tile::STEP % 8 == 0, "a thread's parts have one place in their lines");
  const S *from[EACH], *somewhere;
  WICK_MEMBER GatheredHopperRows(const Grouped& p, const RowTile& tile) : somewhere((const S*)p.x) {
#pragma unroll
    for (int i = 0; i < EACH; i++)
      from[i] =
          grouped_row<S>(p, tile, (int)threadIdx.x / Tile::PARTS + i * Tile::STEP) + 8 * (threadIdx.x % Tile::PARTS);
  }
  static WICK_MEMBER bool whole() { return true; }
  WICK_MEMBER void fetch(u32 to) const { fetch_edge(to, TILE_K); }
  WICK_MEMBER void fetch_edge(u32 to, i32 ks) const {
    const i32 c = (i32)threadIdx.x % Tile::PARTS;
    const u32 bytes = 8 * c < ks ? 16 : 0, place = to + Tile::place((i32)threadIdx.x / Tile::PARTS, c);
#pragma unroll
    for (int i = 0; i < EACH; i++)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place + (u32)(i * Tile::STEP) * 128),
                   "l"(bytes ? from[i] : somewhere), "r"(bytes)
                   : "memory");
  }
  WICK_MEMBER void next() {
#pragma unroll
    for (int i = 0; i < EACH; i++) from[i] += TILE_K;
  }
};

// A thread's 128 sums are registers that only the assembler knows: as operands of every product they would cost the
// compiler more than all the rest.
#define TEN_SUMS(d) \
  "sum" d "0,sum" d "1,sum" d "2,sum" d "3,sum" d "4,sum" d "5,sum" d "6,sum" d "7,sum" d "8,sum" d "9,"
// clang-format off
#define ALL_SUMS                                                                                    \
  TEN_SUMS("") TEN_SUMS("1") TEN_SUMS("2") TEN_SUMS("3") TEN_SUMS("4") TEN_SUMS("5") TEN_SUMS("6")  \
  TEN_SUMS("7") TEN_SUMS("8") TEN_SUMS("9") TEN_SUMS("10") TEN_SUMS("11")                           \
  "sum120,sum121,sum122,sum123,sum124,sum125,sum126,sum127"
// clang-format on
#define PRODUCT_SUMS(TYPE)                                                                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE \
               " {" ALL_SUMS "}, %0, %1, p, 1, 1, %3, %4;\n}" ::"l"(a),                                              \
               "l"(b), "r"(add), "n"(A_TURNED), "n"(B_TURNED)                                                        \
               : "memory")
WICK_FN void declare_sums() { asm volatile(".reg .f32 sum<128>;"); }
/** Sums (+)= a b; an operand is turned where it is contiguous along its rows rather than along k. */
template <class S, int A_TURNED, int B_TURNED> WICK_FN void product_sums(u64 a, u64 b, u32 add) {
  if constexpr (same<S, half>) PRODUCT_SUMS("f16");
  else PRODUCT_SUMS("bf16");
}
/**
 * Writes them to shared memory: groups of four are two neighbours of one row, and two of the row eight below; the next
 * group is eight columns on.
 */
#define STAGE_SUMS(at, a, b, c, d) \
  "st.shared.v2.f32 [%0+" at "], {sum" a ",sum" b "};\nst.shared.v2.f32 [%1+" at "], {sum" c ",sum" d "};\n"
WICK_FN void stage_sums(float* row, float* below) {
  asm volatile(
      STAGE_SUMS("0", "0", "1", "2", "3") STAGE_SUMS("32", "4", "5", "6", "7") STAGE_SUMS("64", "8", "9", "10", "11")
          STAGE_SUMS("96", "12", "13", "14", "15") STAGE_SUMS("128", "16", "17", "18", "19")
              STAGE_SUMS("160", "20", "21", "22", "23") STAGE_SUMS("192", "24", "25", "26", "27")
                  STAGE_SUMS("224", "28", "29", "30", "31") STAGE_SUMS("256", "32", "33", "34", "35") STAGE_SUMS(
                      "288", "36", "37", "38", "39") STAGE_SUMS("320", "40", "41", "42", "43")
                      STAGE_SUMS("352", "44", "45", "46", "47") STAGE_SUMS("384", "48", "49", "50", "51") STAGE_SUMS(
                          "416", "52", "53", "54", "55") STAGE_SUMS("448", "56", "57", "58", "59")
                          STAGE_SUMS("480", "60", "61", "62", "63") STAGE_SUMS("512", "64", "65", "66", "67")
                              STAGE_SUMS("544", "68", "69", "70", "71") STAGE_SUMS("576", "72", "73", "74", "75")
                                  STAGE_SUMS("608", "76", "77", "78", "79") STAGE_SUMS("640", "80", "81", "82", "83")
                                      STAGE_SUMS("672", "84", "85", "86", "87") STAGE_SUMS(
                                          "704", "88", "89", "90", "91") STAGE_SUMS("736", "92", "93", "94", "95")
                                          STAGE_SUMS("768", "96", "97", "98", "99")
                                              STAGE_SUMS("800", "100", "101", "102", "103")
                                                  STAGE_SUMS("832", "104", "105", "106", "107")
                                                      STAGE_SUMS("864", "108", "109", "110", "111")
                                                          STAGE_SUMS("896", "112", "113", "114", "115")
                                                              STAGE_SUMS("928", "116", "117", "118", "119")
                                                                  STAGE_SUMS("960", "120", "121", "122", "123")
                                                                      STAGE_SUMS("992", "124", "125", "126",
                                                                                 "127")::"r"(shared_address(row)),
      "r"(shared_address(below))
      : "memory");
}

/** rows_of() answers the left operand's rows: only the copying threads ask. */
template <class S, class LA, bool BK, class F, class ST>
WICK_FN void gemm_hopper(const F& rows_of, const S* b, const ST& store, i64 b_stride, i64 m0, i64 n0, i64 n, i64 k_from,
                         i64 k_to) {
  constexpr bool AK = LA::AlongK;
  typedef HopperTile<S, TILE_M, AK> TA;
  typedef HopperTile<S, TILE_N, BK> TB;
  constexpr u32 STAGE = TA::BYTES + TB::BYTES;
  DYNAMIC_SHARED(unsigned char, raw);
  declare_sums();
  unsigned char* shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  __shared__ u64 full[STAGES], empty[STAGES];
  const i32 steps = k_to > k_from ? (i32)((k_to - k_from + TILE_K - 1) / TILE_K) : 1;  // of no k at all: one of zeros
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; s++) {
      barrier_init(full + s, 128);
      barrier_init(empty + s, 8);  // a lane of every computing warp
    }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LA::COPYING));
    const i64 b_step = TILE_K * (BK ? 1 : b_stride);
    LA rows_a = rows_of();
    const S* from_b = TB::first(b + n0 * (BK ? b_stride : 1) + k_from * (BK ? 1 : b_stride), b_stride);
    const i32 rows_b = (i32)(n - n0 < TILE_N ? n - n0 : TILE_N);
    const u32 start = shared_address(shared);
    i64 left = k_to - k_from;
    u32 stage = 0, parity = 1;
    for (i32 step = 0; step < steps; step++) {
      barrier_wait(empty + stage, parity);
      const u32 to = start + stage * STAGE;
      if (rows_a.whole() && rows_b == TILE_N && left >= TILE_K) {
        rows_a.fetch(to);
        TB::fetch(to + TA::BYTES, from_b, b_stride);
      } else {
        const i32 ks = (i32)(left < TILE_K ? left : TILE_K);
        rows_a.fetch_edge(to, ks);
        TB::fetch_edge(to + TA::BYTES, from_b, b_stride, rows_b, ks, b);
      }
      barrier_arrive_copied(full + stage);
      rows_a.next();
      from_b += b_step;
      left -= TILE_K;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    async_commit();
    async_wait<0>();  // a thread must not leave while its copies are under way
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(LA::COMPUTING));
  const int team = (int)threadIdx.x / 128 - 1, t = (int)threadIdx.x % 128, lane = t % 32;
  const u64 a_operand = TA::at(shared_address(shared) + (u32)team * TA::BLOCK),
            b_operand = TB::at(shared_address(shared) + TA::BYTES);
  u32 stage = 0, parity = 0, before = 0;
  for (i32 step = 0; step < steps; step++) {
    barrier_wait(full + stage, parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (u32 k = 0; k < TILE_K / 16; k++)
      product_sums<S, !AK, !BK>(a_operand + ((stage * STAGE + k * TA::K_STEP) >> 4),
                                b_operand + ((stage * STAGE + k * TB::K_STEP) >> 4), step > 0 || k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (step > 0 && lane == 0) barrier_arrive(empty + before);
    before = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // Results lie where the tiles lay, once both teams are done with those.
  constexpr int PITCH = TILE_N + 8;
  static_assert(TILE_M * PITCH * 4 <= STAGES * STAGE, "the results must fit where the tiles lay");
  float *staged = (float*)shared, *mine = staged + (team * 64 + t / 32 * 16 + lane / 4) * PITCH + lane % 4 * 2;
  named_sync(1, 256);
  stage_sums(mine, mine + 8 * PITCH);
  named_sync(1, 256);
  const auto row = [&](int r) { return m0 + r; };
  if (n % 4 == 0) store_staged<4, TILE_M, TILE_N, PITCH, 256>(staged, store, n0, row, threadIdx.x - 128);
  else store_staged<1, TILE_M, TILE_N, PITCH, 256>(staged, store, n0, row, threadIdx.x - 128);
}

template <class S, bool AK, bool BK>
WICK_FN void gemm_hopper_tile(const S* a, const S* b, S* c, product_t<S>* part, const S* bias, const Operand& oa,
                              const Operand& ob, const Product& p) {
  const Tile tile = tile_of(blockIdx.x, (p.m + TILE_M - 1) / TILE_M, (p.n + TILE_N - 1) / TILE_N);
  const i64 from = (i64)blockIdx.z * p.split, to = from + p.split < p.k ? from + p.split : p.k, m0 = tile.m * TILE_M;
  typedef HopperRows<S, AK> Rows;
  const auto rows = [&] { return Rows(a + batch_offset(oa, p), AK ? oa.row : oa.k, m0, p.m, from); };
  gemm_hopper<S, Rows, BK>(rows, b + batch_offset(ob, p), store_of(c, part, bias, p), BK ? ob.row : ob.k, m0,
                           tile.n * TILE_N, p.n, from, to);
}
template <class S> WICK_FN void grouped_hopper(const Grouped& p) {
  const GroupedTile t = grouped_tile(p, TILE_N);
  if (t.rows.rows == 0 || without_expert<S>(p, t, TILE_N)) return;
  typedef GatheredHopperRows<S> Rows;
  const auto rows = [&] { return Rows(p, t.rows); };
  gemm_hopper<S, Rows, true>(rows, (const S*)p.w + t.rows.expert * p.n * p.k, store_of<S>(p, t.rows), p.k, 0, t.n0, p.n,
                             0, p.k);
}

#else
// launched without sm_90a
template <class S, bool AK, bool BK>
WICK_FN void gemm_hopper_tile(const S*, const S*, S*, product_t<S>*, const S*, const Operand&, const Operand&,
                              const Product&) {
  trap();
}
template <class S> WICK_FN void grouped_hopper(const Grouped&) { trap(); }
#endif
