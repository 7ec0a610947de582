// Where values would be inserted into sorted rows: a binary search a value, floats as such, integers in 64 bits.
#include <vector>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 4096;

template <class T>
void searchRows(const T* sorted, const T* values, int64_t* out, int64_t rows, int64_t numel, int64_t n, bool right) {
  const int64_t each = numel / rows;
  parallel(numel, GRAIN, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const T* row = rows == 1 ? sorted : sorted + i / each * n;
      const T value = values[i];
      int64_t low = 0, high = n;
      while (low < high) {
        const int64_t middle = (low + high) >> 1;
        // What cannot be compared counts as before the value, as in PyTorch.
        const bool after = right ? !(row[middle] > value) : !(row[middle] >= value);
        low = after ? middle + 1 : low;
        high = after ? high : middle;
      }
      out[i] = low;
    }
  });
}

// All elements in another type, contiguous; the operand itself where it is that already.
const char* wideData(const Operand& x, int type, int slot, std::vector<uint64_t>& room) {
  const char* data = contiguousData(x, slot);
  if (x.dtype == type) return data;
  const int64_t n = x.size();
  room.resize((size_t)n);
  char* to = reinterpret_cast<char*>(room.data());
  parallel(n, 65536, [&](int64_t begin, int64_t end) {
    castRun(x.dtype, type, data + begin * x.bytes(), to + begin * ELEMENT_BYTES[type], end - begin);
  });
  return to;
}

Status searchsorted(const Call& c, const void*) {
  const Operand &x = c.in(0), &values = c.in(1);
  const bool right = c.params[0] != 0;
  const int64_t numel = values.size(), n = x.shape[x.rank - 1];
  int64_t rows = 1;
  for (int d = 0; d < x.rank - 1; d++) rows *= x.shape[d];
  // Floats of up to 32 bits are exact in 32.
  const int type = !isFloatType(x.dtype) ? I64 : x.dtype == F64 ? F64 : F32;
  std::vector<uint64_t> rowRoom, valueRoom;
  const char* sorted = wideData(x, type, SCRATCH_X, rowRoom);
  const char* wanted = wideData(values, type, SCRATCH_Y, valueRoom);
  int64_t* out = c.out().as<int64_t>();
  const auto run = [&](auto zero) {
    typedef decltype(zero) T;
    searchRows(reinterpret_cast<const T*>(sorted), reinterpret_cast<const T*>(wanted), out, rows, numel, n, right);
  };
  if (type == I64) run(int64_t());
  else if (type == F64) run(double());
  else run(float());
  return OK;
}

}  // namespace

WICK_OPS(search) = {{"searchsorted", searchsorted, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
