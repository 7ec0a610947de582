// Launches: a kernel called with its packed arguments for every block of a grid, and the list of kernels that a unit
// exports.
#pragma once
#include "scheduler.h"

namespace simt {

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

SIMT_FN inline int launch(const Entry& e, Index grid, Index size, size_t shared, const char* args, int reverse,
                          int poison, char* error, size_t error_bytes) {
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
    for (Thread& t : m.threads) t.watch.end();
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

/** The unit's list of kernels: SIMT_ENTRIES(SIMT_ENTRY(name, threads), ...) after all kernels. */
#define SIMT_ENTRY(name, threads) \
  simt::Entry { #name, threads, &simt::Invoke < &name> ::call, &simt::Invoke < &name> ::describe }
#define SIMT_ENTRIES(...)                                                                                        \
  static const simt::Entry simt_entries[] = {__VA_ARGS__};                                                       \
  extern "C" int wick_sim_find(const char* name) {                                                               \
    for (size_t i = 0; i < sizeof simt_entries / sizeof *simt_entries; i++)                                      \
      if (!strcmp(name, simt_entries[i].name)) return (int)i;                                                    \
    return -1;                                                                                                   \
  }                                                                                                              \
  extern "C" void wick_sim_describe(int entry, char* out, int bytes) {                                           \
    simt_entries[entry].describe(out, (size_t)bytes);                                                            \
  }                                                                                                              \
  extern "C" int wick_sim_launch(int entry, const uint32_t* geometry, const void* args, char* error,             \
                                 int error_bytes) {                                                              \
    const uint32_t* g = geometry;                                                                                \
    return simt::launch(simt_entries[entry], simt::Index{g[0], g[1], g[2]}, simt::Index{g[3], g[4], g[5]}, g[6], \
                        (const char*)args, (int)g[7], (int)g[8], error, (size_t)error_bytes);                    \
  }
