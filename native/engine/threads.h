// A pool of threads that split loops; small loops stay on the calling thread.
#pragma once
#include <cstddef>
#include <cstdint>

namespace wick {

int threadCount();
void setThreadCount(int n);

// Calls body(context, begin, end) over [0, n) in pieces of at least `grain`, or of exactly it; returns when all are
// done.
void parallelRange(int64_t n, int64_t grain, bool exactly, void (*body)(void*, int64_t, int64_t), void* context);

template <class F> void parallel(int64_t n, int64_t grain, F&& body) {
  parallelRange(
      n, grain, false, [](void* f, int64_t begin, int64_t end) { (*static_cast<__typeof__(&body)>(f))(begin, end); },
      &body);
}
// A few long tasks: each thread takes the next one.
template <class F> void parallelTasks(int64_t n, F&& body) {
  parallelRange(
      n, 1, true, [](void* f, int64_t begin, int64_t end) { (*static_cast<__typeof__(&body)>(f))(begin, end); }, &body);
}

// Scratch memory of the calling thread, 64-byte aligned, kept between calls; slots do not overlap.
// A, B and C belong to matrix products; drivers that call them keep to the others.
enum Scratch : int {
  SCRATCH_A,
  SCRATCH_B,
  SCRATCH_C,
  SCRATCH_ROWS,
  SCRATCH_X,
  SCRATCH_Y,
  SCRATCH_Z,
  SCRATCH_BLOCKS,
  SCRATCH_TURNS,
  SCRATCH_COUNT
};
void* scratch(Scratch slot, size_t bytes);

}  // namespace wick
