// The sim driver's device memory: exact allocations (so that the address sanitizer sees their ends), poisoned, and
// copies; and its launches, one at a time, since a module keeps the machine it runs on in static memory that all
// threads of a process share.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

struct Module {
  int (*find)(const char*);
  void (*describe)(int, void*, int);
  int (*launch)(int, void*, void*, void*, int);
};
static std::mutex machine;

extern "C" {
void* sim_alloc(size_t bytes, int poison) {
  void* p = nullptr;
  if (posix_memalign(&p, 256, bytes)) return nullptr;
  memset(p, poison, bytes);
  return p;
}
void sim_free(void* p) { free(p); }
void sim_copy(void* dst, const void* src, size_t bytes) {
  if (bytes) memmove(dst, src, bytes);  // what is empty may lie nowhere
}
void sim_set8(void* dst, int byte, size_t bytes) { memset(dst, byte, bytes); }

// A module of kernels, or null and the reason in `error`.
Module* sim_load(const char* path, char* error, int bytes) {
  std::lock_guard<std::mutex> one(machine);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  Module* m = library ? new Module{(decltype(Module::find))dlsym(library, "wick_sim_find"),
                                   (decltype(Module::describe))dlsym(library, "wick_sim_describe"),
                                   (decltype(Module::launch))dlsym(library, "wick_sim_launch")}
                      : nullptr;
  if (m && m->find && m->describe && m->launch) return m;
  const char* why = dlerror();
  snprintf(error, bytes, "%s", why ? why : "it holds no kernels");
  delete m;
  return nullptr;
}
int sim_find(const Module* m, const char* name) { return m->find(name); }
void sim_describe(const Module* m, int entry, void* out, int bytes) { m->describe(entry, out, bytes); }
int sim_launch(const Module* m, int entry, void* geometry, void* args, void* error, int bytes) {
  std::lock_guard<std::mutex> one(machine);
  return m->launch(entry, geometry, args, error, bytes);
}
}
