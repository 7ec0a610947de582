// The thread pool: workers spin for a moment after each job, then sleep, and are never joined, so that exit is
// immediate.
#include "threads.h"

#include <atomic>
#include <cstdlib>
#if !defined(__wasm__)
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#endif

namespace wick {
namespace {

constexpr int MAX_THREADS = 256;
constexpr int SPINS = 4000;  // a few tens of microseconds: the distance between two ops of one model step

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

struct Job {
  void (*body)(void*, int64_t, int64_t);
  void* context;
  int64_t n, piece;
  int threads;
};

#if defined(__wasm__)
// WebAssembly has no library of threads: words of shared memory that are waited for.
struct Lock {
  std::atomic<int> held{0};
  bool try_lock() { return held.exchange(1, std::memory_order_acquire) == 0; }
  void lock() {
    while (!try_lock()) relax();
  }
  void unlock() { held.store(0, std::memory_order_release); }
};
struct Bell {
  void wait(std::atomic<uint32_t>& word, uint32_t seen) {
    __builtin_wasm_memory_atomic_wait32(reinterpret_cast<int32_t*>(&word), (int32_t)seen, -1);
  }
  void ring(std::atomic<uint32_t>& word) {
    __builtin_wasm_memory_atomic_notify(reinterpret_cast<int32_t*>(&word), UINT32_MAX);
  }
};
#else
using Lock = std::mutex;
struct Bell {
  std::mutex sleep;
  std::condition_variable wake;
  void wait(std::atomic<uint32_t>& word, uint32_t seen) {
    std::unique_lock<std::mutex> lock(sleep);
    wake.wait(lock, [&] { return word.load(std::memory_order_seq_cst) != seen; });
  }
  void ring(std::atomic<uint32_t>&) {
    std::lock_guard<std::mutex> lock(sleep);
    wake.notify_all();
  }
};
#endif

struct Pool {
  Bell bell;
  std::atomic<uint32_t> generation{0};
  std::atomic<int64_t> next{0};
  std::atomic<bool> open{false};  // the job may be joined
  std::atomic<int> joined{0};     // threads that look at the job; it stays as it is until they have left
  std::atomic<int> sleepers{0};
  std::atomic<int> workers{0};
  std::atomic<bool> fell{false};  // a thread could not do its part
  Job job{};
};

// On the heap and never freed: destroying a condition variable that threads wait on would hang at exit.
Pool* pool = nullptr;
Lock owner;  // held by the JavaScript thread whose loop is running
std::atomic<int> wanted{0};
thread_local bool inside = false;  // a body that splits again runs its inner loop alone

void work(Pool& p, const Job& job) {
  for (;;) {
    int64_t begin = p.next.fetch_add(job.piece, std::memory_order_relaxed);
    if (begin >= job.n) return;
    int64_t end = begin + job.piece;
    job.body(job.context, begin, end < job.n ? end : job.n);
  }
}

void serve(Pool* p, int id, uint32_t seen) {
  for (;;) {
    int spins = 0;
    while (p->generation.load(std::memory_order_acquire) == seen) {
      if (++spins < SPINS) {
        relax();
        continue;
      }
      p->sleepers.fetch_add(1, std::memory_order_seq_cst);
      p->bell.wait(p->generation, seen);
      p->sleepers.fetch_sub(1);
    }
    seen = p->generation.load(std::memory_order_acquire);
    // A thread that comes late, since another program has its core, finds the job done and keeps nobody waiting.
    p->joined.fetch_add(1, std::memory_order_seq_cst);
    if (p->open.load(std::memory_order_seq_cst) && id < p->job.threads) work(*p, p->job);
    p->joined.fetch_sub(1, std::memory_order_release);
  }
}

void finish(Pool& p) {
  p.open.store(false, std::memory_order_seq_cst);
  while (p.joined.load(std::memory_order_seq_cst) != 0) relax();
  inside = false;
  owner.unlock();
}

#if defined(__wasm__)
// Threads are the host's to start: it answers at once, and each joins the pool when it has come.
extern "C" __attribute__((import_module("env"), import_name("wick_grow"))) void wick_grow(int workers);
int asked = 0;

int hardware() { return 1; }  // the host says how many

void grow(int workers) {
  if (!pool) pool = new Pool;
  if (asked < workers) wick_grow(asked = workers);
}
#else
int hardware() {
  if (const char* text = getenv("WICK_THREADS")) {
    int n = atoi(text);
    if (n > 0) return n < MAX_THREADS ? n : MAX_THREADS;
  }
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n < MAX_THREADS ? n : MAX_THREADS;
}

void grow(int workers) {
  if (!pool) {
    pool = new Pool;
    static bool once = (pthread_atfork(nullptr, nullptr,
                                       [] {
                                         pool = nullptr;
                                         new (&owner) std::mutex;
                                       }),
                        true);
    (void)once;
  }
  while (pool->workers < workers) {
    try {
      std::thread(serve, pool, pool->workers + 1, pool->generation.load()).detach();
    } catch (const std::system_error&) {  // the system gives no more threads: those there are do the work
      wanted = pool->workers + 1;
      return;
    }
    pool->workers++;
  }
}
#endif

}  // namespace

int threadCount() {
  int n = wanted.load();
  if (n == 0) wanted = n = hardware();
  return n;
}

void setThreadCount(int n) {
  owner.lock();
  wanted = n < 1 ? 1 : n < MAX_THREADS ? n : MAX_THREADS;
  owner.unlock();
}

void parallelRange(int64_t n, int64_t grain, bool exactly, void (*body)(void*, int64_t, int64_t), void* context) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  int threads = threadCount();
  if (threads == 1 || n <= grain || inside || !owner.try_lock()) return body(context, 0, n);
  grow(threads - 1);
  Pool& p = *pool;
  if (threads > p.workers + 1) threads = p.workers + 1;
  // Four pieces a thread even out their speeds.
  int64_t piece = (n + threads * 4 - 1) / (threads * 4);
  p.job = {body, context, n, piece > grain && !exactly ? piece : grain, threads};
  p.next.store(0, std::memory_order_relaxed);
  p.open.store(true, std::memory_order_seq_cst);
  p.generation.fetch_add(1, std::memory_order_seq_cst);
  if (p.sleepers.load(std::memory_order_seq_cst) > 0) p.bell.ring(p.generation);
  inside = true;
  work(p, p.job);
  finish(p);
#if defined(__wasm__)
  if (p.fell.exchange(false)) __builtin_trap();
#endif
}

void* scratch(Scratch slot, size_t bytes) {
  struct Slots {
    void* block[SCRATCH_COUNT] = {};
    size_t bytes[SCRATCH_COUNT] = {};
#if !defined(__wasm__)  // whose threads never end
    ~Slots() {
      for (void* b : block) free(b);
    }
#endif
  };
  thread_local Slots slots;
  if (slots.bytes[slot] < bytes) {
    free(slots.block[slot]);
    size_t rounded = (bytes + 4095) / 4096 * 4096;
    slots.block[slot] = aligned_alloc(4096, rounded);
    slots.bytes[slot] = slots.block[slot] ? rounded : 0;
#if defined(__wasm__)
    if (!slots.block[slot]) __builtin_trap();  // address 0 is memory like any other there
#endif
  }
  return slots.block[slot];
}

}  // namespace wick

#if defined(__wasm__)
extern "C" {
// A worker thread's number, then its body, which does not return. A trap leaves it: wick_fell() tells the pool, and it
// begins anew.
__attribute__((visibility("default"))) int wick_join() { return wick::pool->workers.fetch_add(1) + 1; }
__attribute__((visibility("default"))) void wick_serve(int id) {
  wick::serve(wick::pool, id, wick::pool->generation.load());
}
__attribute__((visibility("default"))) void wick_fell() {
  wick::pool->fell = true;
  wick::pool->joined.fetch_sub(1);
}
// After a trap of the calling thread within a loop: the others end their parts, and the pool is free again.
__attribute__((visibility("default"))) void wick_recover() {
  if (!wick::inside) return;
  wick::pool->next.store(wick::pool->job.n);
  wick::finish(*wick::pool);
  wick::pool->fell = false;
}

// The C library's heap knows no threads: one at a time (the linker's --wrap leads every call here).
static wick::Lock heap;
#define WICK_LOCKED(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  RESULT __real_##NAME PARAMETERS;                       \
  RESULT __wrap_##NAME PARAMETERS {                      \
    heap.lock();                                         \
    RESULT result = __real_##NAME ARGUMENTS;             \
    heap.unlock();                                       \
    return result;                                       \
  }
WICK_LOCKED(void*, malloc, (size_t n), (n))
WICK_LOCKED(void*, calloc, (size_t n, size_t each), (n, each))
WICK_LOCKED(void*, realloc, (void* p, size_t n), (p, n))
WICK_LOCKED(void*, aligned_alloc, (size_t to, size_t n), (to, n))
WICK_LOCKED(int, posix_memalign, (void** p, size_t to, size_t n), (p, to, n))
void __real_free(void* p);
void __wrap_free(void* p) {
  heap.lock();
  __real_free(p);
  heap.unlock();
}
}
#endif
