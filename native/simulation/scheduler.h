// The scheduler: runs a block wave by wave until everyone waits or is done, opens barriers, and reports those that
// never can open.
#pragma once
#include "fibers.h"

extern "C" __attribute__((weak, visibility("hidden"))) char __start_gpushared[], __stop_gpushared[];
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];

namespace simt {

/** Runs one wave until all its lanes wait at a block barrier, spin or are done. */
SIMT_FN inline bool run_wave(size_t begin, size_t end) {
  Machine& m = machine;
  m.wave_begin = begin;
  m.wave_end = end;
  m.taken = end - begin;
  for (size_t i = begin; i < end; i++)
    if (m.threads[i].state == FRESH) {
      m.taken = 0;
      break;
    }
  for (;;) {
    while (Thread* t = take()) start(t);
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
    if (other)
      return fail("divergent wave: some lanes are at a barrier while others are in a shuffle, ballot or sync_wave");
    for (size_t i = begin; i < end; i++) m.threads[i].state = READY;
  }
}

/** Plain stores: a sanitizer's memset would refuse the gaps between variables. */
__attribute__((no_sanitize("address"), noinline)) SIMT_FN inline void poison(char* begin, char* end) {
  const uint64_t word = 0x0101010101010101ull * (unsigned char)machine.poison;
  char* p = begin;
  for (; p < end && (uintptr_t)p % 8; p++) *(volatile char*)p = (char)word;
  for (; p + 8 <= end; p += 8) *(volatile uint64_t*)p = word;
  for (; p < end; p++) *(volatile char*)p = (char)word;
}
/**
 * Shared variables of templates have no section of their own: they lie among the variables without a first value, alone
 * there.
 */
SIMT_FN inline void poison_shared() {
  Machine& m = machine;
  if (__start_gpushared) poison(__start_gpushared, __stop_gpushared);
  poison(__bss_start, _end);
  poison(m.shared, m.shared + m.shared_bytes);
}

SIMT_FN inline bool run_block() {
  Machine& m = machine;
  size_t n = m.threads.size();
  for (Thread& t : m.threads) {
    t.state = FRESH;
    t.fiber = -1;
    t.turn = 0;
    t.watch.begin_block();
  }
  for (Fiber& f : m.fibers) f.busy = false;
  m.first_free = 0;
  poison_shared();
  m.watch.begin_block();
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
      snprintf(text, sizeof text, "divergent barrier: %zu threads wait in __syncthreads and %zu of %zu have returned",
               waiting, done, n);
      return fail(text);
    }
    for (Thread& t : m.threads) t.state = READY;
  }
  m.watch.end_block();
  return true;
}

}  // namespace simt
