// What the sanitizers are told of fibers: where a stack begins for the address sanitizer, who happens before whom for
// the thread sanitizer.
//
// To the thread sanitizer every GPU thread is a thread. What orders two of them is what orders them on a GPU: a
// barrier, a wave's sync, the end of one block before the next. That the simulation runs them one after another orders
// nothing, so races are seen.
#pragma once
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// The scheduler's own loads and stores are no GPU thread's.
#define SIMT_FN __attribute__((no_sanitize_thread))
#else
#define SIMT_FN
#endif

namespace simt {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif

// ---- the thread sanitizer ----

#if defined(__SANITIZE_THREAD__)
/** Two threads of a block on one stack would be a race of the simulation's making. */
constexpr bool own_stacks = true;
struct ThreadWatch {
  void* fiber = nullptr;
  unsigned phase = 0;
  char start = 0;

  SIMT_FN void begin_block() {
    if (!fiber) fiber = __tsan_create_fiber(0);
    phase = 0;
  }
  /** The sanitizer has room for a few hundred at once. */
  SIMT_FN void end() {
    if (fiber) __tsan_destroy_fiber(fiber);
  }
  /** What was done for this thread, its stack and arguments, comes before its first instruction. */
  SIMT_FN void prepared() { __tsan_release(&start); }
  SIMT_FN void started() { __tsan_acquire(&start); }
  SIMT_FN void resume() { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
};
struct MachineWatch {
  void* fiber = nullptr;
  char barriers[2] = {}, waves[1024] = {}, ended = 0;  // what threads release to and acquire from

  SIMT_FN void begin_block() { fiber = __tsan_get_current_fiber(); }
  /** A thread's very last act, its bookkeeping included. */
  SIMT_FN void thread_ends() { __tsan_release(&ended); }
  SIMT_FN void end_block() { __tsan_acquire(&ended); }
  SIMT_FN void back() { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
  /** Turns between two, since a thread may arrive at the next barrier before another has left this one. */
  SIMT_FN char* barrier(ThreadWatch& t) { return &barriers[t.phase++ & 1]; }
  SIMT_FN char* wave(unsigned number) { return &waves[number]; }
};
SIMT_FN inline void arrive(char* meeting) { __tsan_release(meeting); }
SIMT_FN inline void depart(char* meeting) { __tsan_acquire(meeting); }
#else
constexpr bool own_stacks = false;
struct ThreadWatch {
  void begin_block() {}
  void end() {}
  void prepared() {}
  void started() {}
  void resume() {}
};
struct MachineWatch {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  const void* stack = nullptr;
  size_t bytes = 0;
#endif
  void begin_block() {}
  void thread_ends() {}
  void end_block() {}
  void back() {}
  char* barrier(ThreadWatch&) { return nullptr; }
  char* wave(unsigned) { return nullptr; }
};
inline void arrive(char*) {}
inline void depart(char*) {}
#endif

// ---- the address sanitizer ----

#if defined(__SANITIZE_ADDRESS__)
struct StackWatch {
  void* fake = nullptr;
};
/** Around a switch from the scheduler to a stack, and back. */
inline void entering(MachineWatch& m, const char* stack) {
  __sanitizer_start_switch_fiber(&m.fake, stack, stack_bytes);
}
inline void entered(MachineWatch& m, StackWatch* s) {
  __sanitizer_finish_switch_fiber(s ? s->fake : nullptr, &m.stack, &m.bytes);
}
inline void leaving(MachineWatch& m, StackWatch& s, bool forever) {
  __sanitizer_start_switch_fiber(forever ? nullptr : &s.fake, m.stack, m.bytes);
}
inline void left(MachineWatch& m) { __sanitizer_finish_switch_fiber(m.fake, nullptr, nullptr); }
#else
struct StackWatch {};
inline void entering(MachineWatch&, const char*) {}
inline void entered(MachineWatch&, StackWatch*) {}
inline void leaving(MachineWatch&, StackWatch&, bool) {}
inline void left(MachineWatch&) {}
#endif

}  // namespace simt
