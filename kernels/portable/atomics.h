// Part of portable.h: atomics, flags between blocks, and how launches and waits behave.
#pragma once

// ---- atomics: relaxed, whole device; all answer the value before ----

#ifdef WICK_HOST
WICK_FN u32 cas(u32* p, u32 expected, u32 desired) { return simt::cas(p, expected, desired); }
WICK_FN u64 cas(u64* p, u64 expected, u64 desired) { return simt::cas(p, expected, desired); }
WICK_FN u32 atomic_add(u32* p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
WICK_FN u64 atomic_add(u64* p, u64 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
WICK_FN u32 atomic_exchange(u32* p, u32 v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
#else
WICK_FN u32 cas(u32* p, u32 expected, u32 desired) { return atomicCAS(p, expected, desired); }
WICK_FN u64 cas(u64* p, u64 expected, u64 desired) { return atomicCAS(p, expected, desired); }
WICK_FN u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
WICK_FN u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
WICK_FN u32 atomic_exchange(u32* p, u32 v) { return atomicExch(p, v); }
WICK_FN u32 atomic_max(u32* p, u32 v) { return atomicMax(p, v); }
WICK_FN u32 atomic_min(u32* p, u32 v) { return atomicMin(p, v); }
WICK_FN u64 atomic_max(u64* p, u64 v) { return atomicMax(p, v); }
#endif

/** Flags between blocks: what was written before a release is seen after the acquire that reads it. */
template <class U> WICK_FN U load_acquire(const U* p) {
#if defined(WICK_NVIDIA)
  U v = *(const volatile U*)p;
  __threadfence();
  return v;
#elif defined(WICK_AMD)
  return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}
template <class U> WICK_FN void store_release(U* p, U v) {
#if defined(WICK_NVIDIA)
  __threadfence();
  *(volatile U*)p = v;
#elif defined(WICK_AMD)
  __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
#else
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}
/** Words that say all that is to be known themselves: nothing else is seen to be written before or after them. */
template <class U> WICK_FN U load_relaxed(const U* p) {
#if defined(WICK_NVIDIA)
  return *(const volatile U*)p;
#elif defined(WICK_AMD)
  return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}
template <class U> WICK_FN void store_relaxed(U* p, U v) {
#if defined(WICK_NVIDIA)
  *(volatile U*)p = v;
#elif defined(WICK_AMD)
  __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
#endif
}
/** Counts an arrival and answers how many came before: what they wrote before arriving is seen after. */
WICK_FN u32 arrive(u32* p) {
#if defined(WICK_NVIDIA)
  __threadfence();
  u32 before = atomicAdd(p, 1u);
  __threadfence();
  return before;
#elif defined(WICK_AMD)
  return __hip_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#else
  return __atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL);
#endif
}
/**
 * For launches that may begin early: waits until the launch before is done, then lets the next one begin. So what the
 * launch before the last one wrote may be read ahead of it, and what the last one wrote only after it. Elsewhere
 * launches begin in turn and this is nothing.
 */
WICK_FN void begin_in_turn() {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/** Stops the kernel with an error. */
WICK_FN void trap() {
#ifdef WICK_NVIDIA
  __trap();
#else
  __builtin_trap();
#endif
}
/** Inside every loop that waits for a flag. */
WICK_FN void spin_wait() {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  __nanosleep(20);
#elif defined(WICK_AMD)
  __builtin_amdgcn_s_sleep(1);
#elif defined(WICK_HOST)
  simt::spin();
#endif
}

/** Replaces *p by f(*p) with compare-and-swap on the aligned word that holds it, whatever its size. */
template <class S, class F> WICK_FN S atomic_update(S* p, F f) {
  if constexpr (sizeof(S) == 8) {
    u64 seen = *(volatile u64*)p, was;
    do {
      was = seen;
      seen = cas((u64*)p, was, bits_as<u64>(f(bits_as<S>(was))));
    } while (seen != was);
    return bits_as<S>(was);
  } else if constexpr (sizeof(S) == 4) {
    u32 seen = *(volatile u32*)p, was;
    do {
      was = seen;
      seen = cas((u32*)p, was, bits_as<u32>(f(bits_as<S>(was))));
    } while (seen != was);
    return bits_as<S>(was);
  } else {
    typedef decltype(f(S())) R;
    static_assert(same<R, S>, "atomic_update: f must answer the storage type");
    u64 address = (u64)p;
    u32* word = (u32*)(address & ~3ull);
    u32 shift = (u32)(address & 3) * 8, mask = (sizeof(S) == 1 ? 0xffu : 0xffffu) << shift;
    u32 seen = *(volatile u32*)word, was;
    S old;
    do {
      was = seen;
      u32 part = (was & mask) >> shift;
      copy_bytes(&old, &part, sizeof(S));
      S next = f(old);
      u32 bits = 0;
      copy_bytes(&bits, &next, sizeof(S));
      seen = cas(word, was, (was & ~mask) | bits << shift);
    } while (seen != was);
    return old;
  }
}
template <class S> struct AtomicSum {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(to_compute(old) + to_compute(v)); }
};
template <class S> struct AtomicMax {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(maxg<S>(to_compute(old), to_compute(v))); }
};
template <class S> struct AtomicMin {
  S v;
  WICK_MEMBER S operator()(S old) const { return from_compute<S>(ming<S>(to_compute(old), to_compute(v))); }
};
template <class S> WICK_FN S atomic_add(S* p, S v) {
#ifndef WICK_HOST
  if constexpr (same<S, float>) return atomicAdd(p, v);
  else
#endif
      if constexpr (same<S, i32>)
    return (i32)atomic_add((u32*)p, (u32)v);
  else if constexpr (same<S, i64>) return (i64)atomic_add((u64*)p, (u64)v);
  else return atomic_update(p, AtomicSum<S>{v});
}
template <class S> WICK_FN S atomic_max(S* p, S v) { return atomic_update(p, AtomicMax<S>{v}); }
template <class S> WICK_FN S atomic_min(S* p, S v) { return atomic_update(p, AtomicMin<S>{v}); }
