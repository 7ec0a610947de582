// What kernels for Hopper share: barriers in shared memory that copies arrive at, and warpgroup products that read shared memory.
// Included by modules that are compiled for this GPU alone:
// arch: sm_90a
#pragma once
#include "matrix.h"

#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- barriers in shared memory ----

WICK_FN void barrier_init(u64* b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory"); }
WICK_FN void barrier_arrive(u64* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory"); }
/** Arrives when the copies this thread has begun are done. */
WICK_FN void barrier_arrive_copied(u64* b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory"); }
WICK_FN void barrier_wait(u64* b, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
}
/** What ordinary stores and copies wrote becomes visible to warpgroup products. */
WICK_FN void fence_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
WICK_FN void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
WICK_FN void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// ---- warpgroup products: 64 rows by 64, 128 or 256 columns by 16 ----

WICK_FN void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WICK_FN void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> WICK_FN void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }

/** Operand in 128-byte lines whose 16-byte parts are permuted by the line number modulo 8; groups of 8 lines are 1024 bytes apart. */
WICK_FN u64 operand(u32 address, u32 leading_bytes) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)(leading_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PRODUCT_SHARED_64(TYPE) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
               "}, %64, %65, p, 1, 1, 0, 0;\n}" \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), \
                 F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28), \
                 F4(d, 32), F4(d, 36), F4(d, 40), F4(d, 44), \
                 F4(d, 48), F4(d, 52), F4(d, 56), F4(d, 60) \
               : "l"(a), "l"(b), "r"(add))
#define PRODUCT_REGISTERS_32(TYPE) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31" \
               "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;" \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), \
                 F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define PRODUCT_REGISTERS_64(TYPE) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" \
               "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
               "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
               "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
               "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;" \
               : F4(d, 0), F4(d, 4), F4(d, 8), F4(d, 12), \
                 F4(d, 16), F4(d, 20), F4(d, 24), F4(d, 28), \
                 F4(d, 32), F4(d, 36), F4(d, 40), F4(d, 44), \
                 F4(d, 48), F4(d, 52), F4(d, 56), F4(d, 60) \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
/** d (+)= a b^T: both in shared memory with k contiguous; 128 columns. */
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

#endif
