// A CPU's matrix tiles (AMX): eight registers of up to 16 rows of 64 bytes.
#pragma once
#include "isa.h"

#if defined(WICK_ISA_AVX512) && __has_include(<amxbf16intrin.h>)
#define WICK_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WICK_TILES __attribute__((noinline, target("amx-tile,amx-bf16,amx-int8")))

namespace {
constexpr int TILE = 16;  // rows of a tile, and columns of its sums

// Whether the CPU has tiles and the system lets this process use them.
bool hasTiles() {
  static const bool here = [] {
    unsigned a, b, c, d;
    constexpr unsigned NEEDED = 1u << 22 | 1u << 24 | 1u << 25;  // products of bfloat16, tiles, products of bytes
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;             // arch_prctl's ARCH_REQ_XCOMP_PERM
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & NEEDED) != NEEDED) return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  }();
  return here;
}

// Sums have 16 rows of 64 bytes; factors may be shallower.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE};
};
// Compilers' headers do not say what memory these instructions read: what was written before must be there.
WICK_FN void written(const void* p) { asm volatile("" ::"r"(p) : "memory"); }
// Tiles 4 and 5 get rows of `depth` bytes, tiles 6 and 7 as many rows as go with that; the others are whole.
WICK_TILES void beginTiles(int depth) {
  TileShapes shapes;
  shapes.bytes[4] = shapes.bytes[5] = depth;
  shapes.rows[6] = shapes.rows[7] = depth / 4;
  written(&shapes);
  _tile_loadconfig(&shapes);
}
WICK_TILES void endTiles() { _tile_release(); }
}  // namespace
#endif
