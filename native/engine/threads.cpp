// The thread pool: workers spin for a moment after each job, then sleep, and are never joined, so that exit is
// immediate.
#include "threads.h"

#include <cstdlib>
#if !defined(__wasm__)
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#endif

namespace wick {
#if defined(__wasm__)
// WebAssembly runs on the thread that called it.
int threadCount() { return 1; }
void setThreadCount(int) {}
void parallelRange(int64_t n, int64_t, bool, void (*body)(void*, int64_t, int64_t), void* context) {
  if (n > 0) body(context, 0, n);
}
#else
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

struct Pool {
  std::mutex sleep;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<int64_t> next{0};
  std::atomic<bool> open{false};  // the job may be joined
  std::atomic<int> joined{0};     // threads that look at the job; it stays as it is until they have left
  std::atomic<int> sleepers{0};
  Job job{};
  int workers = 0;
};

// On the heap and never freed: destroying a condition variable that threads wait on would hang at exit.
Pool* pool = nullptr;
std::mutex owner;  // held by the JavaScript thread whose loop is running
std::atomic<int> wanted{0};

void work(Pool& p, const Job& job) {
  for (;;) {
    int64_t begin = p.next.fetch_add(job.piece, std::memory_order_relaxed);
    if (begin >= job.n) return;
    int64_t end = begin + job.piece;
    job.body(job.context, begin, end < job.n ? end : job.n);
  }
}

void serve(Pool* p, int id, uint64_t seen) {
  for (;;) {
    int spins = 0;
    while (p->generation.load(std::memory_order_acquire) == seen) {
      if (++spins < SPINS) {
        relax();
        continue;
      }
      std::unique_lock<std::mutex> lock(p->sleep);
      p->sleepers.fetch_add(1);
      p->wake.wait(lock, [&] { return p->generation.load(std::memory_order_seq_cst) != seen; });
      p->sleepers.fetch_sub(1);
    }
    seen = p->generation.load(std::memory_order_acquire);
    // A thread that comes late, since another program has its core, finds the job done and keeps nobody waiting.
    p->joined.fetch_add(1, std::memory_order_seq_cst);
    if (p->open.load(std::memory_order_seq_cst) && id < p->job.threads) work(*p, p->job);
    p->joined.fetch_sub(1, std::memory_order_release);
  }
}

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

thread_local bool inside = false;  // a body that splits again runs its inner loop alone

}  // namespace

int threadCount() {
  int n = wanted.load();
  if (n == 0) wanted = n = hardware();
  return n;
}

void setThreadCount(int n) {
  std::lock_guard<std::mutex> lock(owner);
  wanted = n < 1 ? 1 : n < MAX_THREADS ? n : MAX_THREADS;
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
  if (p.sleepers.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(p.sleep);
    p.wake.notify_all();
  }
  inside = true;
  work(p, p.job);
  inside = false;
  p.open.store(false, std::memory_order_seq_cst);
  while (p.joined.load(std::memory_order_seq_cst) != 0) relax();
  owner.unlock();
}
#endif

void* scratch(Scratch slot, size_t bytes) {
  struct Slots {
    void* block[SCRATCH_COUNT] = {};
    size_t bytes[SCRATCH_COUNT] = {};
#if !defined(__wasm__)  // whose one thread never ends
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
