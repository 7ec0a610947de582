// Stacks and the switch between them: the scheduler enters a fiber, a thread on it leaves when it must wait.
#pragma once
#include "machine.h"

namespace simt {

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
  if (forever) m.watch.thread_ends();
  m.watch.back();
  leaving(m.watch, f.watch, forever);
  simt_switch(&f.sp, m.main);
  entered(m.watch, &f.watch);
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
  for (Thread* t = first; t; t = own_stacks ? nullptr : take()) {
    t->fiber = fiber;
    t->state = READY;
    m.current = t;
    t->watch.started();
    m.kernel(m.args);
    m.current->state = DONE;
  }
}

SIMT_FN inline void fiber_main() {
  Machine& m = machine;
  entered(m.watch, nullptr);
  int fiber = m.starting;
  run_threads(fiber, m.starting_thread);
  m.fibers[fiber].busy = false;
  if ((size_t)fiber < m.first_free) m.first_free = (size_t)fiber;
  leave(true);
  abort();
}

SIMT_FN inline void enter(int fiber, Thread* thread) {
  Machine& m = machine;
  Fiber& f = m.fibers[fiber];
  thread->watch.resume();
  entering(m.watch, f.stack);
  simt_switch(&m.main, f.sp);
  left(m.watch);
}

/** A stack that stands at fiber_main: the first free one, or the thread's own. */
SIMT_FN inline int free_fiber(const Thread* thread) {
  Machine& m = machine;
  size_t i = own_stacks ? thread->rank : m.first_free;
  while (i < m.fibers.size() && m.fibers[i].busy) i++;
  m.first_free = i + 1;
  while (i >= m.fibers.size()) {
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

/** Begins a thread that has not run yet. */
SIMT_FN inline void start(Thread* t) {
  machine.starting = free_fiber(t);
  machine.starting_thread = t;
  t->watch.prepared();
  enter(machine.starting, t);
}

/** Goes on with a thread that waits no longer. */
SIMT_FN inline void resume(Thread& t) {
  if (t.state != READY) return;
  machine.current = &t;
  enter(t.fiber, &t);
}

}  // namespace simt
