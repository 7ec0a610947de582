// What flags choose, in its order: counted by tile, then written by tile.
#include <algorithm>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t TILE = 4096;
int64_t tilesOf(int64_t n) { return (n + TILE - 1) / TILE; }

const uint8_t* flagsOf(const Operand& mask) {
  return reinterpret_cast<const uint8_t*>(contiguousData(mask, SCRATCH_X));
}
const int64_t* startsOf(const Operand& before) {
  return reinterpret_cast<const int64_t*>(contiguousData(before, SCRATCH_Y));
}

Status flagStarts(const Call& c, const void*) {
  const int64_t n = c.in(0).size(), tiles = tilesOf(n);
  const uint8_t* flags = flagsOf(c.in(0));
  int64_t* counts = c.out().as<int64_t>();
  parallel(tiles, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      int32_t found = 0;
      for (int64_t i = t * TILE, to = std::min(n, i + TILE); i < to; i++) found += flags[i] != 0;
      counts[t] = found;
    }
  });
  int64_t sum = 0;
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t found = counts[t];
    counts[t] = sum;
    sum += found;
  }
  counts[tiles] = sum;
  return OK;
}

// Calls f(place, number) for the flags of tiles [begin, end) that are set and have a number below `count`.
template <class F>
void eachSet(const uint8_t* flags, const int64_t* starts, int64_t n, int64_t count, int64_t begin, int64_t end, F f) {
  for (int64_t t = begin; t < end; t++) {
    int64_t k = starts[t];
    uint16_t places[TILE];
    int32_t found = 0;
    const int64_t from = t * TILE, size = std::min(TILE, n - from);
    // Written always and kept where set: no jumps that nobody foresees.
    for (int64_t i = 0; i < size; i++) {
      places[found] = (uint16_t)i;
      found += flags[from + i] != 0;
    }
    for (int32_t i = 0; i < found && k < count; i++) f(from + places[i], k++);
  }
}

Status flagPlaces(const Call& c, const void*) {
  const Operand& mask = c.in(0);
  const int64_t n = mask.size(), count = c.integer(0);
  const int rank = mask.rank;
  const uint8_t* flags = flagsOf(mask);
  const int64_t* starts = startsOf(c.in(1));
  int64_t* out = c.out().as<int64_t>();
  parallel(tilesOf(n), 8, [&](int64_t begin, int64_t end) {
    eachSet(flags, starts, n, count, begin, end, [&](int64_t place, int64_t k) {
      for (int d = rank - 1; d > 0; d--) {
        const int64_t size = mask.shape[d];
        const int64_t left = (place | size) >> 32 ? place / size : (uint32_t)place / (uint32_t)size;
        out[d * count + k] = place - left * size;
        place = left;
      }
      out[k] = place;
    });
  });
  return OK;
}

template <class F> void byWord(int bytes, F f) {
  switch (bytes) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    default: return f(uint64_t());
  }
}

Status flagTake(const Call& c, const void*) {
  const Operand &x = c.in(0), &mask = c.in(1);
  const int64_t n = mask.size(), count = c.integer(0);
  const uint8_t* flags = flagsOf(mask);
  const int64_t* starts = startsOf(c.in(2));
  const char* data = contiguousData(x, SCRATCH_Z);
  byWord(x.bytes(), [&](auto word) {
    typedef decltype(word) W;
    const W* from = reinterpret_cast<const W*>(data);
    W* to = c.out().as<W>();
    parallel(tilesOf(n), 8, [&](int64_t begin, int64_t end) {
      eachSet(flags, starts, n, count, begin, end, [&](int64_t place, int64_t k) { to[k] = from[place]; });
    });
  });
  return OK;
}

Status flagPut(const Call& c, const void*) {
  const Operand &x = c.in(0), &mask = c.in(1);
  const int64_t n = mask.size(), count = x.size();
  const uint8_t* flags = flagsOf(mask);
  const int64_t* starts = startsOf(c.in(2));
  const char* data = contiguousData(x, SCRATCH_Z);
  byWord(x.bytes(), [&](auto word) {
    typedef decltype(word) W;
    const W* from = reinterpret_cast<const W*>(data);
    W* to = c.out().as<W>();
    parallel(tilesOf(n), 8, [&](int64_t begin, int64_t end) {
      std::fill(to + begin * TILE, to + std::min(n, end * TILE), (W)0);
      eachSet(flags, starts, n, count, begin, end, [&](int64_t place, int64_t k) { to[place] = from[k]; });
    });
  });
  return OK;
}

Status flagRuns(const Call& c, const void*) {
  const int64_t n = c.in(0).size();
  const uint8_t* flags = flagsOf(c.in(0));
  const int64_t* starts = startsOf(c.in(1));
  const uint32_t* order = reinterpret_cast<const uint32_t*>(contiguousData(c.in(2), SCRATCH_Z));
  int64_t* out = c.out().as<int64_t>();
  parallel(tilesOf(n), 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      int64_t run = starts[t] - 1;
      for (int64_t i = t * TILE, to = std::min(n, i + TILE); i < to; i++) {
        run += flags[i] != 0;
        if (order[i] < n) out[order[i]] = run;
      }
    }
  });
  return OK;
}

}  // namespace

WICK_OPS(pick) = {{"flagStarts", flagStarts, nullptr}, {"flagPlaces", flagPlaces, nullptr},
                  {"flagTake", flagTake, nullptr},     {"flagPut", flagPut, nullptr},
                  {"flagRuns", flagRuns, nullptr},     {nullptr, nullptr, nullptr}};

}  // namespace wick
