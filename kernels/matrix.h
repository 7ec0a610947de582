// Products of 16 x 16 tiles by one wave: mma on NVIDIA, MFMA and WMMA on AMD, and the same layouts lane by lane on the
// host and on targets without such units (right but slow: launches choose the kernels of plain multiply-adds there).
//
// Frag holds a wave's share of 16 rows by 16 of k; Acc of a 16 x 16 result. Operands lie in shared memory in 16-bit
// elements with k contiguous (element (row, k) at row * pitch + k) or with rows contiguous (at k * pitch + row).
#pragma once
#include "portable.h"
#include "settle.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MATRIX_MMA 1
#elif defined(WICK_AMD) && \
    (defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__))
#define MATRIX_MFMA 1
#elif defined(WICK_AMD) && (defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || \
                            defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__))
#define MATRIX_WMMA 11
#elif defined(WICK_AMD) && (defined(__gfx1200__) || defined(__gfx1201__))
#define MATRIX_WMMA 12
#else
#define MATRIX_PLAIN 1
#endif

// ---- who holds what: element j of lane l ----

#if defined(MATRIX_MMA) || (defined(MATRIX_PLAIN) && WICK_WAVE == 32)
// Two m16n8k16 products side by side: registers hold pairs along k, results pairs along columns.
constexpr int FRAG = 8, ACC = 8;
constexpr bool ACC_PAIRS = true;  // elements 2j and 2j + 1 of a lane are neighbours in a row
/**
 * How a result becomes an operand of the next product without leaving its lane: as the left one here, as the right one
 * below.
 */
constexpr bool RESULT_IS_LEFT = true, RESULT_IS_RIGHT = false;
WICK_FN u32 a_row(u32 lane, int j) { return lane / 4 + (j / 2 % 2) * 8; }
WICK_FN u32 a_k(u32 lane, int j) { return lane % 4 * 2 + j % 2 + j / 4 * 8; }
WICK_FN u32 b_row(u32 lane, int j) { return lane / 4 + j / 4 * 8; }
WICK_FN u32 b_k(u32 lane, int j) { return lane % 4 * 2 + j % 2 + (j / 2 % 2) * 8; }
WICK_FN u32 acc_row(u32 lane, int j) { return lane / 4 + (j / 2 % 2) * 8; }
WICK_FN u32 acc_col(u32 lane, int j) { return lane % 4 * 2 + j % 2 + j / 4 * 8; }
#elif defined(MATRIX_WMMA) && MATRIX_WMMA == 11
// Both halves of the wave hold all of k; results alternate rows between them.
constexpr int FRAG = 16, ACC = 8;
constexpr bool ACC_PAIRS = false;
constexpr bool RESULT_IS_LEFT = false, RESULT_IS_RIGHT = false;
WICK_FN u32 a_row(u32 lane, int) { return lane % 16; }
WICK_FN u32 a_k(u32, int j) { return (u32)j; }
WICK_FN u32 b_row(u32 lane, int) { return lane % 16; }
WICK_FN u32 b_k(u32, int j) { return (u32)j; }
WICK_FN u32 acc_row(u32 lane, int j) { return (u32)j * 2 + lane / 16; }
WICK_FN u32 acc_col(u32 lane, int) { return lane % 16; }
#else
// WMMA of gfx12 (8 of k a lane) and MFMA (4 of k a lane): groups of 16 lanes split k, and the rows of the result.
constexpr int FRAG = 256 / WICK_WAVE, ACC = 256 / WICK_WAVE;
constexpr bool ACC_PAIRS = false;
constexpr bool RESULT_IS_LEFT = false, RESULT_IS_RIGHT = true;
WICK_FN u32 a_row(u32 lane, int) { return lane % 16; }
WICK_FN u32 a_k(u32 lane, int j) { return lane / 16 * FRAG + (u32)j; }
WICK_FN u32 b_row(u32 lane, int) { return lane % 16; }
WICK_FN u32 b_k(u32 lane, int j) { return lane / 16 * FRAG + (u32)j; }
WICK_FN u32 acc_row(u32 lane, int j) { return lane / 16 * ACC + (u32)j; }
WICK_FN u32 acc_col(u32 lane, int) { return lane % 16; }
#endif

struct Frag {
  u32 w[FRAG / 2];
};
struct Acc {
  float x[ACC];
};

#if defined(MATRIX_MMA)
WICK_FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
#define LDMATRIX(SUFFIX, f, p)                                                           \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" SUFFIX ".shared.b16 {%0,%1,%2,%3}, [%4];" \
               : "=r"(f.w[0]), "=r"(f.w[1]), "=r"(f.w[2]), "=r"(f.w[3])                  \
               : "r"(shared_address(p)))
#endif

/** Reads 16 rows by 16 of k. A is the left operand, B (its rows are the result's columns) the right. */
template <bool A, bool K_CONTIGUOUS, class S> WICK_FN Frag load_frag(const S* tile, u32 pitch) {
  Frag f;
  const u32 lane = lane_id();
#if defined(MATRIX_MMA)
  // Eight lanes name the rows of each 8 x 8 part; rows-contiguous tiles are transposed on the way.
  const u32 low = lane % 8, mid = lane / 8 % 2 * 8, high = lane / 16 * 8;
  if constexpr (K_CONTIGUOUS) {
    const u32 row = A ? low + mid : low + high, k = A ? high : mid;
    LDMATRIX("", f, tile + row * pitch + k);
  } else {
    const u32 row = A ? mid : high, k = A ? low + high : low + mid;
    LDMATRIX(".trans", f, tile + k * pitch + row);
  }
#elif defined(MATRIX_MFMA) || defined(MATRIX_WMMA)
  const u32 row = A ? a_row(lane, 0) : b_row(lane, 0), k = A ? a_k(lane, 0) : b_k(lane, 0);
  if constexpr (K_CONTIGUOUS) {
    // a lane's elements are neighbours, and rows whole multiples of 16 bytes
    f = *(const Frag*)__builtin_assume_aligned(tile + row * pitch + k, FRAG < 8 ? 8 : 16);
  } else {
#pragma unroll
    for (int j = 0; j < FRAG; j += 2)
      f.w[j / 2] = tile[(k + j) * pitch + row].bits | (u32)tile[(k + j + 1) * pitch + row].bits << 16;
  }
#else
#pragma unroll
  for (int j = 0; j < FRAG; j += 2) {
    u32 pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const u32 row = A ? a_row(lane, j + i) : b_row(lane, j + i), k = A ? a_k(lane, j + i) : b_k(lane, j + i);
      pair[i] = tile[K_CONTIGUOUS ? row * pitch + k : k * pitch + row].bits;
    }
    f.w[j / 2] = pair[0] | pair[1] << 16;
  }
#endif
  return f;
}

/** Two floats rounded to S in one word, the first in the low half. */
template <class S> WICK_FN u32 pack_pair(float low, float high) {
#if defined(MATRIX_MMA)
  u32 r;
  if constexpr (same<S, half>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
#ifdef WICK_AMD
  // A NaN of any payload will do for a product, so halves need no test for one.
  if constexpr (same<S, half>) return bits_as<u16>((_Float16)low) | (u32)bits_as<u16>((_Float16)high) << 16;
#endif
  return round_to<S>(low).bits | (u32)round_to<S>(high).bits << 16;
#endif
}

#if defined(MATRIX_MMA)
#define MMA_16816(TYPE, c, a, b0, b1)                                       \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE       \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])     \
               : "r"(a.w[0]), "r"(a.w[1]), "r"(a.w[2]), "r"(a.w[3]), "r"(b0), "r"(b1))
#endif
#if defined(MATRIX_MFMA) || defined(MATRIX_WMMA)
typedef float acc_vector __attribute__((ext_vector_type(ACC)));
typedef _Float16 half_vector __attribute__((ext_vector_type(FRAG)));
typedef short short_vector __attribute__((ext_vector_type(FRAG)));
#endif

#ifdef MATRIX_PLAIN
/** Never inlined: it is called from unrolled loops. */
template <class S>
__attribute__((noinline)) static __device__ void multiply_plain(Acc& acc, const Frag& a, const Frag& b) {
  // Operands go round once; then each lane has both tiles whole and makes its own share of the result.
  const u32 lane = lane_id();
  float left[16][16], right[16][16];
  for (u32 from = 0; from < WICK_WAVE; from++) {
    const Frag fa = shfl(a, from, WICK_WAVE), fb = shfl(b, from, WICK_WAVE);
    for (int j = 0; j < FRAG; j++) {
      S x, y;
      x.bits = (u16)(fa.w[j / 2] >> j % 2 * 16);
      y.bits = (u16)(fb.w[j / 2] >> j % 2 * 16);
      left[a_row(from, j)][a_k(from, j)] = to_compute(x);
      right[b_row(from, j)][b_k(from, j)] = to_compute(y);
    }
  }
  for (int n = 0; n < ACC; n++) {
    float sum = 0;
    for (u32 k = 0; k < 16; k++) sum = fmag(left[acc_row(lane, n)][k], right[acc_col(lane, n)][k], sum);
    acc.x[n] += sum;
  }
}
#endif

/** acc += a b: results in float. Every lane of the wave takes part. */
template <class S> WICK_FN void multiply(Acc& acc, const Frag& a, const Frag& b) {
#if defined(MATRIX_MMA)
  if constexpr (same<S, half>) {
    MMA_16816("f16", acc.x, a, b.w[0], b.w[1]);
    MMA_16816("f16", acc.x + 4, a, b.w[2], b.w[3]);
  } else {
    MMA_16816("bf16", acc.x, a, b.w[0], b.w[1]);
    MMA_16816("bf16", acc.x + 4, a, b.w[2], b.w[3]);
  }
#elif defined(MATRIX_MFMA)
  acc_vector c = bits_as<acc_vector>(acc);
  if constexpr (same<S, half>)
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(bits_as<half_vector>(a), bits_as<half_vector>(b), c, 0, 0, 0);
  else c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bits_as<short_vector>(a), bits_as<short_vector>(b), c, 0, 0, 0);
  acc = bits_as<Acc>(c);
#elif defined(MATRIX_WMMA) && MATRIX_WMMA == 11
  acc_vector c = bits_as<acc_vector>(acc);
  if constexpr (same<S, half>)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(bits_as<half_vector>(a), bits_as<half_vector>(b), c);
  else c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(bits_as<short_vector>(a), bits_as<short_vector>(b), c);
  acc = bits_as<Acc>(c);
#elif defined(MATRIX_WMMA)
  acc_vector c = bits_as<acc_vector>(acc);
  if constexpr (same<S, half>)
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(bits_as<half_vector>(a), bits_as<half_vector>(b), c);
  else c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(bits_as<short_vector>(a), bits_as<short_vector>(b), c);
  acc = bits_as<Acc>(c);
#elif defined(WICK_HOST)
  // The wave lays its operands open, and every lane adds up its own results.
  static Frag left[1024], right[1024];
  const u32 rank = thread_rank(), lane = lane_id(), first = rank - lane;
  left[rank] = a;
  right[rank] = b;
  sync_wave();
  float rows[16][16], columns[16][16];
  for (u32 from = 0; from < WICK_WAVE; from++)
    for (int j = 0; j < FRAG; j++) {
      rows[a_row(from, j)][a_k(from, j)] = to_compute(S{(u16)(left[first + from].w[j / 2] >> j % 2 * 16)});
      columns[b_row(from, j)][b_k(from, j)] = to_compute(S{(u16)(right[first + from].w[j / 2] >> j % 2 * 16)});
    }
  for (int n = 0; n < ACC; n++) {
    float sum = 0;
    for (int k = 0; k < 16; k++) sum = fmag(rows[acc_row(lane, n)][k], columns[acc_col(lane, n)][k], sum);
    acc.x[n] += sum;
  }
  sync_wave();
#else
  multiply_plain<S>(acc, a, b);
#endif
}

/**
 * acc += a b for eight columns, in registers as mma has them: a half of the above. For waves whose operands lie so.
 */
template <class S> WICK_FN void multiply_narrow(float (&acc)[4], const Frag& a, u32 b0, u32 b1) {
#if defined(MATRIX_MMA)
  if constexpr (same<S, half>) MMA_16816("f16", acc, a, b0, b1);
  else MMA_16816("bf16", acc, a, b0, b1);
#else
  Acc wide = {};
  Frag b = {};
  b.w[0] = b0, b.w[1] = b1;
  multiply<S>(wide, a, b);
  for (int i = 0; i < 4; i++) acc[i] += wide.x[i];
#endif
}

// ---- 16-byte copies from global to shared memory that overlap with work where the hardware has them ----

/** Copies 16 bytes, or writes as many zeros. */
WICK_FN void async_all16(void* to, const void* from, bool all) {
#if defined(MATRIX_MMA)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(all ? 16 : 0));
#else
  word4 nothing = {};
  *(word4*)to = all ? *(const word4*)from : nothing;
#endif
}
/**
 * Copies `bytes` (0 to 16) and fills the rest with zeros, element by element: memory checkers count an asynchronous
 * copy's full width.
 */
WICK_FN void copy_some16(void* to, const void* from, u32 bytes) {
  UNROLL(8, 1)
  for (u32 i = 0; i < 8; i++) ((u16*)to)[i] = 2 * i < bytes ? ((const u16*)from)[i] : (u16)0;
}
/** Whichever of the two it takes; a loop does better to ask once. */
WICK_FN void async_copy16(void* to, const void* from, u32 bytes) {
  if (bytes == 16 || bytes == 0) async_all16(to, from, bytes != 0);
  else copy_some16(to, from, bytes);
}
/** Copies 16 bytes; where copies are not asynchronous no more than `bytes`, which are all that is wanted. */
WICK_FN void async_first16(void* to, const void* from, int bytes) {
#if defined(MATRIX_MMA)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
#else
  if (bytes >= 16) *(word4*)to = *(const word4*)from;
  else
    for (int i = 0; i < bytes; i++) ((u8*)to)[i] = ((const u8*)from)[i];
#endif
}
WICK_FN void async_commit() {
#if defined(MATRIX_MMA)
  asm volatile("cp.async.commit_group;");
#endif
}
/** Waits until at most PENDING groups of copies are under way. */
template <int PENDING> WICK_FN void async_wait() {
#if defined(MATRIX_MMA)
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
#endif
}
