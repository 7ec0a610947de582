// How often numbers occur, or fall into bins: a table a thread where they are short, joined in order.
#include <algorithm>
#include <vector>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 65536;

// The rows of an operand: its last dimension.
int64_t lengthOf(const Operand& x) { return x.shape[x.rank - 1]; }

// Calls place(element) for each element of a type, and counts what is from 0 below the bins.
template <class T, class F> void tallyRow(const T* data, int64_t n, int64_t bins, int64_t* out, F place) {
  // Tables that together are longer than what is counted cost more than they save.
  const int64_t tasks = std::max<int64_t>(1, std::min<int64_t>({threadCount(), n / GRAIN, n / (bins + 1)}));
  std::vector<int64_t> tables((size_t)((tasks - 1) * bins));
  parallelTasks(tasks, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      int64_t* table = t == 0 ? out : tables.data() + (t - 1) * bins;
      for (int64_t i = n * t / tasks, to = n * (t + 1) / tasks; i < to; i++) {
        const uint64_t at = (uint64_t)place(data[i]);
        if (at < (uint64_t)bins) table[at]++;
      }
    }
  });
  for (int64_t t = 1; t < tasks; t++)
    for (int64_t b = 0; b < bins; b++) out[b] += tables[(size_t)((t - 1) * bins + b)];
}

template <class T, class F> void tally(const char* data, const Operand& x, int64_t bins, int64_t* out, F place) {
  const int64_t n = lengthOf(x), rows = n ? x.size() / n : 0;
  const T* from = reinterpret_cast<const T*>(data);
  for (int64_t r = 0; r < rows; r++) tallyRow(from + r * n, n, bins, out + r * bins, place);
}

Status countNumbers(const Call& c, const void*) {
  const Operand& x = c.in(0);
  const int64_t bins = c.integer(0);
  const char* data = contiguousData(x, SCRATCH_X);
  int64_t* out = c.out().as<int64_t>();
  std::fill(out, out + c.out().size(), (int64_t)0);
  const auto count = [&](auto zero) {
    typedef decltype(zero) T;
    tally<T>(data, x, bins, out, [](T v) { return (int64_t)v; });
  };
  switch (x.dtype) {
    case U8: count(uint8_t()); break;
    case U32: count(uint32_t()); break;
    case I16: count(int16_t()); break;
    case I32: count(int32_t()); break;
    default: count(int64_t());
  }
  return OK;
}

template <class T> void countInto(const char* data, const Operand& x, const double* params, int64_t* out) {
  const int64_t bins = (int64_t)params[0];
  const T least = (T)params[1], most = (T)params[2], width = (T)(params[2] - params[1]);
  tally<T>(data, x, bins, out, [=](T v) {
    if (!(v >= least && v <= most)) return (int64_t)-1;
    const T share = (v - least) * (T)bins / width;
    return share < (T)(bins - 1) ? (int64_t)share : bins - 1;
  });
}
Status countBins(const Call& c, const void*) {
  const Operand& x = c.in(0);
  const int64_t n = x.size();
  const char* data = contiguousData(x, SCRATCH_X);
  int64_t* out = c.out().as<int64_t>();
  std::fill(out, out + c.out().size(), (int64_t)0);
  if (x.dtype == F64) countInto<double>(data, x, c.params, out);
  else if (x.dtype == F32) countInto<float>(data, x, c.params, out);
  else {
    std::vector<float> wide((size_t)n);
    parallel(n, GRAIN, [&](int64_t begin, int64_t end) {
      castRun(x.dtype, F32, data + begin * x.bytes(), wide.data() + begin, end - begin);
    });
    countInto<float>(reinterpret_cast<const char*>(wide.data()), x, c.params, out);
  }
  return OK;
}

}  // namespace

WICK_OPS(count) = {
    {"countNumbers", countNumbers, nullptr}, {"countBins", countBins, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
