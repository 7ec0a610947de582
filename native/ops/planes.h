// Picture planes of any layout, one at a time in double: what pooling and resizing share.
#pragma once
#include "engine/abi.h"
#include "engine/strided.h"
#include "engine/threads.h"
#include "ops.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 16384;

// Calls body(plane number, H x W values) for every plane of x, in double.
template <class G> void eachPlane(const Operand& x, int64_t work, G body) {
  const int r = x.rank, bytes = x.bytes();
  const int64_t H = r == 4 ? x.shape[2] : 1, W = x.shape[r - 1], sy = r == 4 ? x.stride[2] : 0, sx = x.stride[r - 1];
  parallel(x.shape[0] * x.shape[1], GRAIN / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    char* line = static_cast<char*>(scratch(SCRATCH_A, W * bytes));
    double* plane = static_cast<double*>(scratch(SCRATCH_B, (size_t)(H * W * 8)));
    for (int64_t p = begin; p < end; p++) {
      const char* from = x.data + (p / x.shape[1] * x.stride[0] + p % x.shape[1] * x.stride[1]) * bytes;
      for (int64_t y = 0; y < H; y++) {
        const char* row = from + y * sy * bytes;
        if (sx != 1) {
          gatherRun(line, row, sx, W, bytes);
          row = line;
        }
        castRun(x.dtype, F64, row, plane + y * W, W);
      }
      body(p, plane);
    }
  });
}

}  // namespace
}  // namespace wick
