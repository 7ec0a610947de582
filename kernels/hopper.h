// What kernels for Hopper share: barriers in shared memory that copies arrive at, and warpgroup products that read
// shared memory. Included by modules that are compiled for sm_90a alone.
#pragma once
#include "copies.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- barriers in shared memory ----

/** Arrives when the copies this thread has begun are done. */
WICK_FN void barrier_arrive_copied(u64* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
/** What ordinary stores and copies wrote becomes visible to warpgroup products. */
WICK_FN void fence_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
WICK_FN void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- boxes of tensors, copied by the unit for it ----

/** What that unit is told of a tensor of four dimensions, opaque to everybody else. */
struct alignas(128) BoxMap {
  u64 words[16];
};
// Assemblers before CUDA 12.5 do not know maps that kernels make, or take strides in another unit.
#if !defined(__CUDACC_VER_MAJOR__) || __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1205
constexpr bool HAS_BOXES = true;
/**
 * Of 16-bit numbers: `columns` beside each other, rows, heads and groups (batch entries, pages) by strides that are
 * multiples of 8; a box has 64 columns of `box` rows, in 128-byte lines as operands want them. By one thread, in shared
 * memory.
 */
WICK_FN void make_map(BoxMap& m, const void* base, const i64 (&strides)[3], u32 columns, u32 rows, u32 heads,
                      u32 groups, u32 box) {
  const u32 at = shared_address(&m);
#pragma unroll
  for (int i = 0; i < 16; i++) m.words[i] = 0;
#define MAP_IS(field, value) \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], " value ";" ::"r"(at) : "memory")
#define MAP_COUNT(field, i, x)                                                                                    \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], " i ", %1;" ::"r"(at), "r"((u32)(x)) \
               : "memory")
#define MAP_STRIDE(i, x)                                                                                       \
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], " i ", %1;" ::"r"(at), "l"(x) \
               : "memory")
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"((u64)base)
               : "memory");
  MAP_IS("rank", "3");      // dimensions, less one
  MAP_IS("elemtype", "1");  // 16 bits
  MAP_IS("interleave_layout", "0");
  MAP_IS("swizzle_mode", "3");  // 128 bytes
  MAP_IS("fill_mode", "0");
  MAP_COUNT("box_dim", "0", 64);
  MAP_COUNT("box_dim", "1", box);
  MAP_COUNT("box_dim", "2", 1);
  MAP_COUNT("box_dim", "3", 1);
  MAP_COUNT("global_dim", "0", columns);
  MAP_COUNT("global_dim", "1", rows);
  MAP_COUNT("global_dim", "2", heads);
  MAP_COUNT("global_dim", "3", groups);
  MAP_COUNT("element_stride", "0", 1);
  MAP_COUNT("element_stride", "1", 1);
  MAP_COUNT("element_stride", "2", 1);
  MAP_COUNT("element_stride", "3", 1);
  MAP_STRIDE("0", (u64)(2 * strides[2]));
  MAP_STRIDE("1", (u64)(2 * strides[1]));
  MAP_STRIDE("2", (u64)(2 * strides[0]));
}
/** Puts a map where the copying unit finds it: global memory, aligned as it is. By a whole warp. */
WICK_FN void publish_map(BoxMap& to, const BoxMap& made) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
          &to),
      "r"(shared_address(&made))
      : "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&to) : "memory");
}
/** A box from a column, row, head and group on; what lies outside the tensor is 0. Its bytes arrive at `full`. */
WICK_FN void copy_box(u32 to, const BoxMap& map, int column, int row, int head, int group, u64* full) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(shared_address(full)), "r"(column), "r"(row), "r"(head), "r"(group)
      : "memory");
}
#else
constexpr bool HAS_BOXES = false;
WICK_FN void make_map(BoxMap&, const void*, const i64 (&)[3], u32, u32, u32, u32, u32) { trap(); }
WICK_FN void publish_map(BoxMap&, const BoxMap&) { trap(); }
WICK_FN void copy_box(u32, const BoxMap&, int, int, int, int, u64*) { trap(); }
#endif

// ---- warpgroup products: 64 rows by 64, 128 or 256 columns by 16 ----

WICK_FN void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WICK_FN void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> WICK_FN void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/**
 * Operand in 128-byte lines whose 16-byte parts are permuted by the line number modulo 8; groups of 8 lines are 1024
 * bytes apart.
 */
WICK_FN u64 operand(u32 address, u32 leading_bytes) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)(leading_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PRODUCT_SHARED_64(TYPE)                                                                                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE \
               " {"                                                                                                   \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                               \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                                     \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                                     \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"                                      \
               "}, %64, %65, p, 1, 1, 0, 0;\n}"                                                                       \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28), F4(d, 32),      \
                 F4(d, 36), F4(d, 40), F4(d, 44), F4(d, 48), F4(d, 52), F4(d, 56), F4(d, 60)                          \
               : "l"(a), "l"(b), "r"(add))
#define PRODUCT_SHARED_32(TYPE)                                                                                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE \
               " {"                                                                                                  \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                              \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"                                     \
               "}, %32, %33, p, 1, 1, 0, 0;\n}"                                                                      \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28)                 \
               : "l"(a), "l"(b), "r"(add))
#define PRODUCT_REGISTERS_32(TYPE)                                                                   \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                           \
               " {"                                                                                  \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                              \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"                     \
               "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                                              \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define PRODUCT_REGISTERS_64(TYPE)                                                                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                                      \
               " {"                                                                                              \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                          \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                                \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                                \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"                                 \
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"                                                          \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28), F4(d, 32), \
                 F4(d, 36), F4(d, 40), F4(d, 44), F4(d, 48), F4(d, 52), F4(d, 56), F4(d, 60)                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
/** d (+)= a b^T: both in shared memory with k contiguous; 64 or 128 columns. */
template <class T> WICK_FN void product(float (&d)[32], u64 a, u64 b, u32 add) {
  if constexpr (same<T, half>) PRODUCT_SHARED_32("f16");
  else PRODUCT_SHARED_32("bf16");
}
template <class T> WICK_FN void product(float (&d)[64], u64 a, u64 b, u32 add) {
  if constexpr (same<T, half>) PRODUCT_SHARED_64("f16");
  else PRODUCT_SHARED_64("bf16");
}
/** d += a b: a in registers, b in shared memory with columns contiguous; 64 or 128 columns. */
template <class T> WICK_FN void product(float (&d)[32], const u32* a, u64 b) {
  if constexpr (same<T, half>) PRODUCT_REGISTERS_32("f16");
  else PRODUCT_REGISTERS_32("bf16");
}
template <class T> WICK_FN void product(float (&d)[64], const u32* a, u64 b) {
  if constexpr (same<T, half>) PRODUCT_REGISTERS_64("f16");
  else PRODUCT_REGISTERS_64("bf16");
}

#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define R4(a, i) "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3])
#define REGISTERS_32                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
#define REGISTERS_64                                                 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"          \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
// A run of products is one statement, since compilers take long over each statement of so many operands; `a` and `b`
// move on in it.
#define SHARED_64(TYPE, add) \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " " REGISTERS_64 "a, b, " add ", 1, 1, 0, 0;\n"
#define SHARED_64_FOUR(TYPE, add)                                                                               \
  SHARED_64(TYPE, add)                                                                                          \
  "add.s64 a, a, 2;\nadd.s64 b, b, 2;\n" SHARED_64(TYPE, "1") "add.s64 a, a, 2;\nadd.s64 b, b, 2;\n" SHARED_64( \
      TYPE, "1") "add.s64 a, a, 2;\nadd.s64 b, b, 2;\n" SHARED_64(TYPE, "1")
#define SHARED_64_OUT(d) : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
/**
 * d = a b^T over 64 or 128 of k: both in shared memory with k contiguous, 64 of k in a line and the next 64 `far` bytes
 * on; 128 columns.
 */
template <class T, int K> WICK_FN void products(float (&d)[64], u64 a, u64 b, u32 a_far, u32 b_far) {
  const i64 a_next = (a_far >> 4) - 6, b_next = (b_far >> 4) - 6;
#define PRODUCTS_64(TYPE)                                                                                              \
  asm volatile("{\n.reg .b64 a, b;\nmov.b64 a, %64;\nmov.b64 b, %65;\n" SHARED_64_FOUR(TYPE, "0") "}" SHARED_64_OUT(d) \
               : "l"(a), "l"(b))
#define PRODUCTS_128(TYPE)                                                                                     \
  asm volatile(                                                                                                \
      "{\n.reg .b64 a, b;\nmov.b64 a, %64;\nmov.b64 b, %65;\n" SHARED_64_FOUR(                                 \
          TYPE, "0") "add.s64 a, a, %66;\nadd.s64 b, b, %67;\n" SHARED_64_FOUR(TYPE, "1") "}" SHARED_64_OUT(d) \
      : "l"(a), "l"(b), "l"(a_next), "l"(b_next))
  if constexpr (K == 64 && same<T, half>) PRODUCTS_64("f16");
  else if constexpr (K == 64) PRODUCTS_64("bf16");
  else if constexpr (same<T, half>) PRODUCTS_128("f16");
  else PRODUCTS_128("bf16");
}
#define REGISTERS_STEP_32(TYPE, left, add) \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " " REGISTERS_32 left ", b, " add ", 1, 1, 1;\n"
#define PRODUCTS_REGISTERS_32(TYPE) \
  asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %65, 0;\nmov.b64 b, %64;\n" \
               REGISTERS_STEP_32(TYPE, "{%32,%33,%34,%35}", "p") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%36,%37,%38,%39}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%40,%41,%42,%43}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%44,%45,%46,%47}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%48,%49,%50,%51}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%52,%53,%54,%55}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%56,%57,%58,%59}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_32(TYPE, "{%60,%61,%62,%63}", "1") "}" \
               : F16(d, 0), F16(d, 16) \
               : R4(a, 0), R4(a, 4), R4(a, 8), R4(a, 12), R4(a, 16), R4(a, 20), R4(a, 24), R4(a, 28), "l"(b), "r"(add))
#define REGISTERS_STEP_64(TYPE, left, add) \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " " REGISTERS_64 left ", b, " add ", 1, 1, 1;\n"
#define PRODUCTS_REGISTERS_64(TYPE) \
  asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nsetp.ne.b32 p, %97, 0;\nmov.b64 b, %96;\n" \
               REGISTERS_STEP_64(TYPE, "{%64,%65,%66,%67}", "p") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%68,%69,%70,%71}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%72,%73,%74,%75}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%76,%77,%78,%79}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%80,%81,%82,%83}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%84,%85,%86,%87}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%88,%89,%90,%91}", "1") "add.s64 b, b, 128;\n" \
               REGISTERS_STEP_64(TYPE, "{%92,%93,%94,%95}", "1") "}" \
               : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48) \
               : R4(a, 0), R4(a, 4), R4(a, 8), R4(a, 12), R4(a, 16), R4(a, 20), R4(a, 24), R4(a, 28), "l"(b), "r"(add))
/** d (+)= a b over 128 of k: a in registers, b in shared memory with columns contiguous; 64 or 128 columns. */
template <class T> WICK_FN void products(float (&d)[32], const u32 (&a)[32], u64 b, u32 add) {
  if constexpr (same<T, half>) PRODUCTS_REGISTERS_32("f16");
  else PRODUCTS_REGISTERS_32("bf16");
}
template <class T> WICK_FN void products(float (&d)[64], const u32 (&a)[32], u64 b, u32 add) {
  if constexpr (same<T, half>) PRODUCTS_REGISTERS_64("f16");
  else PRODUCTS_REGISTERS_64("bf16");
}

#endif
