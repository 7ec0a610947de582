// Runs kernels/ on the host: a block's threads are fibers, waves have WICK_WAVE lanes, and misuse of barriers is reported.
//
// A fiber runs thread after thread until one waits at a barrier or shuffle; kernels without either therefore run as plain loops.
// One unit of kernels is one shared object; blocks of a launch run one after another.
#pragma once
// C's headers only: the standard library's own take as long to read as a whole unit of kernels.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#ifndef WICK_WAVE
#define WICK_WAVE 32
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define SIMT_FN __attribute__((no_sanitize_thread))
#else
#define SIMT_FN
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static
#define __restrict__ __restrict
#define __launch_bounds__(...)
// A section of its own lets every block begin with poisoned shared memory.
#define __shared__ static __attribute__((section("gpushared")))

extern "C" __attribute__((weak, visibility("hidden"))) char __start_gpushared[], __stop_gpushared[];

namespace simt {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

enum State : unsigned char { FRESH, READY, AT_BARRIER, AT_WAVE, SPINNING, DONE };

/** A GPU thread. */
struct Thread {
  Index at;
  unsigned rank = 0;
  State state = FRESH;
  unsigned site = 0;      // line of the barrier waited at
  uint64_t sent[2] = {};  // what it gives to the wave, alternating so that nobody overwrites what others still read
  unsigned char turn = 0;
  int fiber = -1;         // the stack it stopped on
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
  unsigned phase = 0;
#endif
};

/** A stack, with the place where it was left. */
struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;
  bool busy = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
#endif
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif

/** A growing row of plain values, as long as the process lives. */
template <class T> struct List {
  T* data = nullptr;
  size_t count = 0, room = 0;
  size_t size() const { return count; }
  T& operator[](size_t i) { return data[i]; }
  T* begin() { return data; }
  T* end() { return data + count; }
  void reserve(size_t n) {
    if (n <= room) return;
    data = (T*)realloc((void*)data, n * sizeof(T));
    room = n;
  }
  void push_back(const T& value) {
    if (count == room) reserve(room * 2 + 1);
    data[count++] = value;
  }
  void assign(size_t n, const T& value) {
    reserve(n);
    for (count = 0; count < n; count++) data[count] = value;
  }
};

struct Machine {
  Index block, grid, size;
  List<Thread> threads;
  List<Fiber> fibers;
  size_t first_free = 0;
  Thread* current = nullptr;
  void* main = nullptr;
  // The lanes of the wave being run: fibers take fresh threads from here.
  size_t wave_begin = 0, wave_end = 0, taken = 0;
  bool reverse = false;
  void (*kernel)(const char*) = nullptr;
  const char* args = nullptr;
  char* shared = nullptr;
  size_t shared_bytes = 0;
  int poison = 0;
  char* error = nullptr;
  size_t error_bytes = 0;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  const void* main_stack = nullptr;
  size_t main_bytes = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
  char barrier[2], wave[1024], begun, ended;  // what threads acquire from and release to
#endif
};
static Machine machine;

extern "C" __attribute__((visibility("hidden"))) void simt_switch(void** save, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.hidden simt_switch
.globl simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.hidden simt_switch
.globl simt_switch
.type simt_switch,%function
simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "simt.h: a context switch is written for x86-64 and aarch64 only"
#endif

/** The current thread stops here; whoever resumes it continues after. */
SIMT_FN inline void leave(bool forever = false) {
  Machine& m = machine;
  Thread* self = m.current;
  Fiber& f = m.fibers[self ? self->fiber : 0];
  (void)forever;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(m.tsan, 1);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(forever ? nullptr : &f.fake, m.main_stack, m.main_bytes);
#endif
  simt_switch(&f.sp, m.main);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(f.fake, &m.main_stack, &m.main_bytes);
#endif
}

/** The next lane of this wave that has not begun, in the order asked for. */
SIMT_FN inline Thread* take() {
  Machine& m = machine;
  size_t n = m.wave_end - m.wave_begin;
  if (m.taken == n) return nullptr;
  size_t k = m.taken++;
  return &m.threads[m.reverse ? m.wave_end - 1 - k : m.wave_begin + k];
}

SIMT_FN inline void run_threads(int fiber, Thread* first) {
  Machine& m = machine;
  for (Thread* t = first; t; t = take()) {
    t->fiber = fiber;
    t->state = READY;
    m.current = t;
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&m.begun);
#endif
    m.kernel(m.args);
#if defined(__SANITIZE_THREAD__)
    __tsan_release(&m.ended);
    t->state = DONE;
    return;  // a TSan fiber is one GPU thread, so a stack runs one only
#else
    m.current->state = DONE;
#endif
  }
}

static int starting = 0;
static Thread* starting_thread = nullptr;
SIMT_FN inline void fiber_main() {
  Machine& m = machine;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &m.main_stack, &m.main_bytes);
#endif
  int fiber = starting;
  run_threads(fiber, starting_thread);
  m.fibers[fiber].busy = false;
  if ((size_t)fiber < m.first_free) m.first_free = (size_t)fiber;
  leave(true);
  abort();
}

SIMT_FN inline void enter(int fiber, Thread* thread) {
  Machine& m = machine;
  Fiber& f = m.fibers[fiber];
  (void)thread;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(thread->tsan, 1);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&m.fake, f.stack, stack_bytes);
#endif
  simt_switch(&m.main, f.sp);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(m.fake, nullptr, nullptr);
#endif
}

SIMT_FN inline int free_fiber() {
  Machine& m = machine;
  size_t i = m.first_free;
  while (i < m.fibers.size() && m.fibers[i].busy) i++;
  m.first_free = i + 1;
  if (i == m.fibers.size()) {
    Fiber f;
    f.stack = (char*)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.stack == MAP_FAILED) abort();
    m.fibers.push_back(f);
  }
  Fiber& f = m.fibers[i];
  uint64_t* p = (uint64_t*)(f.stack + stack_bytes - 64);
#if defined(__x86_64__)
  *--p = 0;
  *--p = (uint64_t)&fiber_main;
  for (int k = 0; k < 6; k++) *--p = 0;
#else
  p -= 20;
  memset(p, 0, 160);
  p[11] = (uint64_t)&fiber_main;
#endif
  f.sp = p;
  f.busy = true;
  return (int)i;
}

SIMT_FN inline bool fail(const char* what) {
  Machine& m = machine;
  snprintf(m.error, m.error_bytes, "block (%u, %u, %u): %s", m.block.x, m.block.y, m.block.z, what);
  return false;
}

// ---- what kernels call ----

SIMT_FN __attribute__((noinline)) inline void barrier(unsigned line) {
  Thread* t = machine.current;
  t->state = AT_BARRIER;
  t->site = line;
#if defined(__SANITIZE_THREAD__)
  char* object = &machine.barrier[t->phase++ & 1];
  __tsan_release(object);
  leave();
  __tsan_acquire(object);
#else
  leave();
#endif
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
#if defined(__SANITIZE_THREAD__)
  char* object = &machine.wave[machine.current->rank / WICK_WAVE];
  __tsan_release(object);
  meet(0, 3);
  __tsan_acquire(object);
#else
  meet(0, 3);
#endif
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

// ---- the scheduler ----

SIMT_FN inline void resume(Thread& t) {
  Machine& m = machine;
  if (t.state == READY) {
    m.current = &t;
    enter(t.fiber, &t);
  }
}

/** Runs one wave until all its lanes wait at a block barrier, spin or are done. */
SIMT_FN inline bool run_wave(size_t begin, size_t end) {
  Machine& m = machine;
  m.wave_begin = begin;
  m.wave_end = end;
  m.taken = end - begin;
  for (size_t i = begin; i < end; i++) if (m.threads[i].state == FRESH) { m.taken = 0; break; }
  for (;;) {
    while (Thread* t = take()) {
      int fiber = free_fiber();
      starting = fiber;
      starting_thread = t;
      enter(fiber, t);
    }
    for (size_t k = begin; k < end; k++) resume(m.threads[m.reverse ? end - 1 - (k - begin) : k]);
    size_t met = 0, done = 0, other = 0;
    unsigned kind = 0;
    bool mixed = false;
    for (size_t i = begin; i < end; i++) {
      Thread& t = m.threads[i];
      if (t.state == AT_WAVE) {
        mixed |= met && kind != t.site;
        kind = t.site;
        met++;
      } else if (t.state == DONE) done++;
      else other++;
    }
    if (!met) return true;
    if (mixed) return fail("divergent wave: lanes are in different shuffles, ballots or sync_wave");
    if (done) return fail("divergent wave: some lanes returned while others are in a shuffle, ballot or sync_wave");
    if (other) return fail("divergent wave: some lanes are at a barrier while others are in a shuffle, ballot or sync_wave");
    for (size_t i = begin; i < end; i++) m.threads[i].state = READY;
  }
}

__attribute__((no_sanitize("address"), noinline)) SIMT_FN inline void poison_shared() {
  Machine& m = machine;
  if (__start_gpushared) for (volatile char* p = __start_gpushared; p < __stop_gpushared; p++) *p = (char)m.poison;
  for (size_t i = 0; i < m.shared_bytes; i++) ((volatile char*)m.shared)[i] = (char)m.poison;
}

SIMT_FN inline bool run_block() {
  Machine& m = machine;
  size_t n = m.threads.size();
  for (Thread& t : m.threads) {
    t.state = FRESH;
    t.fiber = -1;
    t.turn = 0;
#if defined(__SANITIZE_THREAD__)
    if (!t.tsan) t.tsan = __tsan_create_fiber(0);
    t.phase = 0;
#endif
  }
  for (Fiber& f : m.fibers) f.busy = false;
  m.first_free = 0;
  poison_shared();
#if defined(__SANITIZE_THREAD__)
  m.tsan = __tsan_get_current_fiber();
  __tsan_release(&m.begun);
#endif
  size_t waves = (n + WICK_WAVE - 1) / WICK_WAVE;
  for (size_t idle = 0;;) {
    for (size_t k = 0; k < waves; k++) {
      size_t w = m.reverse ? waves - 1 - k : k, end = (w + 1) * WICK_WAVE;
      if (!run_wave(w * WICK_WAVE, end < n ? end : n)) return false;
    }
    size_t waiting = 0, done = 0, spinning = 0;
    unsigned site = 0;
    bool mixed = false;
    for (Thread& t : m.threads) {
      if (t.state == AT_BARRIER) {
        mixed |= waiting && site != t.site;
        site = t.site;
        waiting++;
      } else if (t.state == DONE) done++;
      else if (t.state == SPINNING) {
        spinning++;
        t.state = READY;
      }
    }
    if (done == n) break;
    if (spinning) {
      if (++idle > 100000) return fail("deadlock: threads spin on a flag that nobody sets");
      continue;  // barriers open when nobody spins
    }
    idle = 0;
    if (mixed) return fail("divergent barrier: threads wait at different __syncthreads");
    if (done) {
      char text[160];
      snprintf(text, sizeof text, "divergent barrier: %zu threads wait in __syncthreads and %zu of %zu have returned", waiting, done, n);
      return fail(text);
    }
    for (Thread& t : m.threads) t.state = READY;
  }
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&m.ended);
#endif
  return true;
}

// ---- entries: a kernel called with its packed arguments ----

constexpr size_t align_up(size_t at, size_t to) { return (at + to - 1) / to * to; }
/** Offset of parameter i (one past the last: the size) when each stands at its natural alignment. */
template <class... A> constexpr size_t offset_of(size_t i) {
  constexpr size_t sizes[] = {sizeof(A)..., 0}, aligns[] = {alignof(A)..., 1};
  size_t at = 0;
  for (size_t k = 0; k < i; k++) at = align_up(at, aligns[k]) + sizes[k];
  return align_up(at, aligns[i]);
}
template <size_t... I> struct Places {};
/** Places<0, 1, ... N - 1>. */
template <size_t N, size_t... I> struct Count : Count<N - 1, N - 1, I...> {};
template <size_t... I> struct Count<0, I...> { typedef Places<I...> type; };
template <auto F> struct Invoke;
template <class... A, void (*F)(A...)> struct Invoke<F> {
  template <size_t... I> static void with(const char* args, Places<I...>) {
    F(*(const A*)(args + offset_of<A...>(I))...);
  }
  static void call(const char* args) { with(args, typename Count<sizeof...(A)>::type()); }
  /** Writes "offset:size offset:size ..." of the parameters. */
  template <size_t... I> static void describe_with(char* out, size_t n, Places<I...>) {
    size_t at = 0;
    ((at += (size_t)snprintf(out + at, n - at, "%zu:%zu ", offset_of<A...>(I), sizeof(A))), ...);
  }
  static void describe(char* out, size_t n) {
    out[0] = 0;
    describe_with(out, n, typename Count<sizeof...(A)>::type());
  }
};
struct Entry {
  const char* name;
  unsigned threads;
  void (*call)(const char*);
  void (*describe)(char*, size_t);
};

SIMT_FN inline int launch(const Entry& e, Index grid, Index size, size_t shared, const char* args, int reverse, int poison, char* error, size_t error_bytes) {
  Machine& m = machine;
  m.error = error;
  m.error_bytes = error_bytes;
  m.grid = grid;
  m.size = size;
  m.kernel = e.call;
  m.args = args;
  m.reverse = reverse;
  m.poison = poison;
  size_t n = (size_t)size.x * size.y * size.z;
  if (n > e.threads) {
    snprintf(error, error_bytes, "a block of %zu threads, where launch bounds allow %u", n, e.threads);
    return 1;
  }
  if (m.threads.size() != n) {
#if defined(__SANITIZE_THREAD__)
    for (Thread& t : m.threads)
      if (t.tsan) __tsan_destroy_fiber(t.tsan);  // the sanitizer has room for a few hundred at once
#endif
    m.threads.assign(n, Thread());
  }
  m.fibers.reserve(n + 1);  // stopped fibers hold references into it
  size_t i = 0;
  for (unsigned z = 0; z < size.z; z++)
    for (unsigned y = 0; y < size.y; y++)
      for (unsigned x = 0; x < size.x; x++, i++) {
        m.threads[i].at = Index{x, y, z};
        m.threads[i].rank = (unsigned)i;
      }
  // Exact bytes from the allocator, so that the address sanitizer sees the end of dynamic shared memory.
  m.shared_bytes = shared;
  m.shared = shared ? (char*)aligned_alloc(16, align_up(shared, 16)) : nullptr;
  bool good = true;
  for (unsigned z = 0; good && z < grid.z; z++)
    for (unsigned y = 0; good && y < grid.y; y++)
      for (unsigned x = 0; good && x < grid.x; x++) {
        m.block = Index{x, y, z};
        good = run_block();
      }
  free(m.shared);
  m.shared = nullptr;
  return good ? 0 : 1;
}

}  // namespace simt

#define threadIdx (simt::machine.current->at)
#define blockIdx (simt::machine.block)
#define blockDim (simt::machine.size)
#define gridDim (simt::machine.grid)
#define __syncthreads() simt::barrier(__LINE__)
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/** The unit's list of kernels: SIMT_ENTRIES(SIMT_ENTRY(name, threads), ...) after all kernels. */
#define SIMT_ENTRY(name, threads) simt::Entry{#name, threads, &simt::Invoke<&name>::call, &simt::Invoke<&name>::describe}
#define SIMT_ENTRIES(...)                                                                                                   \
  static const simt::Entry simt_entries[] = {__VA_ARGS__};                                                                  \
  extern "C" int wick_sim_find(const char* name) {                                                                          \
    for (size_t i = 0; i < sizeof simt_entries / sizeof *simt_entries; i++)                                                 \
      if (!strcmp(name, simt_entries[i].name)) return (int)i;                                                               \
    return -1;                                                                                                              \
  }                                                                                                                         \
  extern "C" int wick_sim_threads(int entry) { return (int)simt_entries[entry].threads; }                                   \
  extern "C" int wick_sim_shared() { return __start_gpushared ? (int)(__stop_gpushared - __start_gpushared) : 0; }          \
  extern "C" void wick_sim_describe(int entry, char* out, int bytes) { simt_entries[entry].describe(out, (size_t)bytes); }  \
  extern "C" int wick_sim_launch(int entry, const uint32_t* geometry, const void* args, char* error, int error_bytes) {     \
    const uint32_t* g = geometry;                                                                                           \
    return simt::launch(simt_entries[entry], simt::Index{g[0], g[1], g[2]}, simt::Index{g[3], g[4], g[5]}, g[6],            \
                        (const char*)args, (int)g[7], (int)g[8], error, (size_t)error_bytes);                               \
  }
