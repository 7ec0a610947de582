// The simulated GPU's state: the threads of the block under way, the stacks they stop on, and what a launch asked for.
#pragma once
#include "sanitizers.h"

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
  unsigned site = 0;  // line of the barrier waited at
  uint64_t sent[2] =
      {};  // what it gives to the wave, alternating so that nothing is overwritten that others still read
  unsigned char turn = 0;
  int fiber = -1;  // the stack it stopped on
  ThreadWatch watch;
};

/** A stack, with the place where it was left. */
struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;
  bool busy = false;
  StackWatch watch;
};

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
  int starting = 0;  // the fiber to begin on, and with which thread
  Thread* starting_thread = nullptr;
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
  MachineWatch watch;
};
/**
 * The simulation's only variable, kept apart from those without a first value: they are poisoned with the shared ones
 * they may be.
 */
static Machine machine __attribute__((section(".data")));

SIMT_FN inline bool fail(const char* what) {
  Machine& m = machine;
  snprintf(m.error, m.error_bytes, "block (%u, %u, %u): %s", m.block.x, m.block.y, m.block.z, what);
  return false;
}

}  // namespace simt
