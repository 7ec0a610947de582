// The sim driver's device memory: exact allocations (so that the address sanitizer sees their ends), poisoned, and copies.
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {
void* sim_alloc(size_t bytes, int poison) {
  void* p = nullptr;
  if (posix_memalign(&p, 256, bytes)) return nullptr;
  memset(p, poison, bytes);
  return p;
}
void sim_free(void* p) { free(p); }
void sim_copy(void* dst, const void* src, size_t bytes) { memmove(dst, src, bytes); }
void sim_set8(void* dst, int byte, size_t bytes) { memset(dst, byte, bytes); }
}
