// What kernels call: barriers, shuffles, votes, atomics and shared memory, under the names that HIP and CUDA give them.
#pragma once
#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static
#define __restrict__ __restrict
#define __launch_bounds__(...)
// A section of its own lets every block begin with poisoned shared memory; g++ keeps it for functions but not for
// templates, see poison_shared.
#define __shared__ static __attribute__((section("gpushared")))

#define threadIdx (simt::machine.current->at)
#define blockIdx (simt::machine.block)
#define blockDim (simt::machine.size)
#define gridDim (simt::machine.grid)
#define __syncthreads() simt::barrier(__LINE__)
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_thread_fence(__ATOMIC_SEQ_CST)

namespace simt {

SIMT_FN __attribute__((noinline)) inline void barrier(unsigned line) {
  Thread* t = machine.current;
  t->state = AT_BARRIER;
  t->site = line;
  char* meeting = machine.watch.barrier(t->watch);
  arrive(meeting);
  leave();
  depart(meeting);
}

/** Meets the other lanes and answers which `sent` they gave. */
SIMT_FN __attribute__((noinline)) inline unsigned meet(uint64_t value, unsigned kind) {
  Thread* t = machine.current;
  unsigned turn = t->turn ^= 1;
  t->sent[turn] = value;
  t->state = AT_WAVE;
  t->site = kind;
  leave();
  return turn;
}
SIMT_FN inline Thread* lane(unsigned number) {
  size_t i = machine.current->rank / WICK_WAVE * WICK_WAVE + number;
  return i < machine.threads.size() ? &machine.threads[i] : nullptr;
}
/** A lane outside the block answers poison: hardware promises nothing there. */
SIMT_FN inline uint32_t shuffle(uint32_t value, unsigned from) {
  unsigned turn = meet(value, 1);
  Thread* t = lane(from % WICK_WAVE);
  return t ? (uint32_t)t->sent[turn] : 0x7f7f7f7fu;
}
SIMT_FN inline uint64_t ballot(bool p) {
  unsigned turn = meet(p, 2);
  uint64_t mask = 0;
  for (unsigned i = 0; i < WICK_WAVE; i++) {
    Thread* t = lane(i);
    if (t && t->sent[turn]) mask |= 1ull << i;
  }
  return mask;
}
SIMT_FN inline void sync_wave() {
  char* meeting = machine.watch.wave(machine.current->rank / WICK_WAVE);
  arrive(meeting);
  meet(0, 3);
  depart(meeting);
}
/** Lets others run while this thread waits for a flag. */
SIMT_FN inline void spin() {
  machine.current->state = SPINNING;
  leave();
}
SIMT_FN inline void* dynamic_shared() { return machine.shared; }

template <class U> SIMT_FN inline U cas(U* p, U expected, U desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

}  // namespace simt
