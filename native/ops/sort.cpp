// Stable argsort of lanes: values become ordered integers, sorted by radix for long lanes and by merging for short
// ones.
#include <algorithm>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

struct Item {
  uint64_t key;
  uint32_t index;
};

// Unsigned keys in the order of the values: NaN is the largest, zeros are equal.
void keysOf(int dtype, const void* lane, Item* items, int64_t n, bool descending) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t key;
    if (isFloatType(dtype)) {
      double v = static_cast<const double*>(lane)[i];
      if (v != v) key = UINT64_MAX;
      else {
        if (v == 0) v = 0;
        memcpy(&key, &v, 8);
        key = key >> 63 ? ~key : key | 1ull << 63;
      }
    } else key = (uint64_t) static_cast<const int64_t*>(lane)[i] ^ 1ull << 63;
    items[i] = {descending ? ~key : key, (uint32_t)i};
  }
}

void radixSort(Item* items, Item* spare, int64_t n) {
  static thread_local int64_t count[8][256];
  memset(count, 0, sizeof count);
  for (int64_t i = 0; i < n; i++)
    for (int b = 0; b < 8; b++) count[b][items[i].key >> (8 * b) & 255]++;
  Item *from = items, *to = spare;
  for (int b = 0; b < 8; b++) {
    if (count[b][from[0].key >> (8 * b) & 255] == n) continue;  // one value in this byte: nothing to do
    int64_t start[256], at = 0;
    for (int v = 0; v < 256; v++) {
      start[v] = at;
      at += count[b][v];
    }
    for (int64_t i = 0; i < n; i++) to[start[from[i].key >> (8 * b) & 255]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) memcpy(items, from, n * sizeof(Item));
}

/** What a sort writes: the first indices of each lane or all, and the values before them. */
struct Wanted {
  bool first, values;
};
const Wanted ALL = {false, false}, FIRST = {true, false}, PAIRS = {false, true};

Status argsort(const Call& c, const void* data) {
  const Wanted& wanted = *static_cast<const Wanted*>(data);
  const Operand &x = c.in(0), &out = c.out(wanted.values ? 1 : 0), &sorted = c.out(0);
  const int dim = (int)c.integer(0);
  const bool descending = c.params[1] != 0;
  const int64_t keep = wanted.first ? c.integer(2) : x.shape[dim];
  if (x.size() == 0 || keep == 0) return OK;
  Lanes in = lanesOf(x, dim), to = lanesOf(out, dim);
  const int64_t n = in.length;
  const int bytes = x.bytes(), wide = wideType(x.dtype);
  parallel(in.count, 2048 / n + 1, [&](int64_t begin, int64_t end) {
    char* raw = static_cast<char*>(scratch(SCRATCH_A, n * 16));
    char* lane = raw + n * 8;
    Item* items = static_cast<Item*>(scratch(SCRATCH_B, n * sizeof(Item)));
    Item* spare = static_cast<Item*>(scratch(SCRATCH_C, n * sizeof(Item)));
    Walk from(in.rank, in.shape, in.stride, 1, begin), into(to.rank, to.shape, to.stride, 1, begin);
    for (int64_t i = begin; i < end; i++, from.next(), into.next()) {
      gatherRun(raw, x.data + from.offset[0] * bytes, in.step, n, bytes);
      castRun(x.dtype, wide, raw, lane, n);
      keysOf(x.dtype, lane, items, n, descending);
      const auto before = [](const Item& a, const Item& b) {
        return a.key != b.key ? a.key < b.key : a.index < b.index;
      };
      if (keep < n / 4) {
        std::nth_element(items, items + keep, items + n, before);
        std::sort(items, items + keep, before);
      } else if (n > 256) radixSort(items, spare, n);
      else std::sort(items, items + n, before);
      uint32_t* target = out.as<uint32_t>() + into.offset[0];
      for (int64_t k = 0; k < keep; k++) target[k * to.step] = items[k].index;
      // Results of a call lie alike.
      if (wanted.values)
        for (int64_t k = 0; k < keep; k++)
          memcpy(sorted.data + (into.offset[0] + k * to.step) * bytes, raw + items[k].index * bytes, (size_t)bytes);
    }
  });
  return OK;
}

// The index at one place of the order of each lane, or of its first NaN.
Status argRank(const Call& c, const void*) {
  const Operand &x = c.in(0), &out = c.out();
  const int dim = (int)c.integer(0);
  const int64_t rank = c.integer(1);
  const bool nan = c.params[2] != 0 && isFloatType(x.dtype);
  if (x.size() == 0) return OK;
  Lanes in = lanesOf(x, dim), to = lanesOf(out, dim);
  const int64_t n = in.length;
  const int bytes = x.bytes(), wide = wideType(x.dtype);
  parallel(in.count, 4096 / n + 1, [&](int64_t begin, int64_t end) {
    char* raw = static_cast<char*>(scratch(SCRATCH_A, n * 16));
    char* lane = raw + n * 8;
    Item* items = static_cast<Item*>(scratch(SCRATCH_B, n * sizeof(Item)));
    Walk from(in.rank, in.shape, in.stride, 1, begin), into(to.rank, to.shape, to.stride, 1, begin);
    for (int64_t i = begin; i < end; i++, from.next(), into.next()) {
      gatherRun(raw, x.data + from.offset[0] * bytes, in.step, n, bytes);
      castRun(x.dtype, wide, raw, lane, n);
      keysOf(x.dtype, lane, items, n, false);
      const Item* none =
          nan ? std::find_if(items, items + n, [](const Item& a) { return a.key == UINT64_MAX; }) : items + n;
      if (none == items + n)
        std::nth_element(items, items + rank, items + n, [](const Item& a, const Item& b) {
          return a.key != b.key ? a.key < b.key : a.index < b.index;
        });
      out.as<uint32_t>()[into.offset[0]] = none == items + n ? items[rank].index : none->index;
    }
  });
  return OK;
}

}  // namespace

WICK_OPS(sort) = {
    {"argsort", argsort, &ALL},    {"argTop", argsort, &FIRST}, {"sortPairs", argsort, &PAIRS},
    {"argRank", argRank, nullptr}, {nullptr, nullptr, nullptr},
};

}  // namespace wick
