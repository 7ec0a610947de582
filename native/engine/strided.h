// Runs contiguous kernels over operands of any layout.
#pragma once
#include "kernels.h"

namespace wick {

// Several operands of one shape, with size-1 dimensions dropped and adjacent ones merged wherever all of them allow it.
struct Merged {
  int rank;
  int count;
  int64_t shape[MAX_RANK];
  int64_t stride[MAX_OPERANDS][MAX_RANK];  // in elements
};
Merged mergeDims(const Operand* const* operands, int count);

void runStrided(Kernel kernel, const Operand* inputs, int count, const Operand& out, const double* scalars);
// Copies elements as bytes; dtypes of both sides have one size.
void copyStrided(const Operand& from, const Operand& to);

// Moves n elements of `bytes` between a strided run and a contiguous one.
void gatherRun(char* to, const char* from, int64_t stride, int64_t n, int bytes);
void scatterRun(char* to, int64_t stride, const char* from, int64_t n, int bytes);

// to[r][c] = from[c][r]: `step` elements lie between consecutive c in `from`, `pitch` between consecutive r in `to`.
void transposeBlock(const char* from, int64_t step, char* to, int64_t pitch, int64_t rows, int64_t columns, int bytes);

// An operand as contiguous memory: itself, or a copy in scratch that lives until the slot is used again.
const char* contiguousData(const Operand& x, int slot);

// Walks an index space in row-major order, keeping the element offsets of several operands.
struct Walk {
  int rank, count;
  const int64_t* shape;
  const int64_t (*stride)[MAX_RANK];
  int64_t at[MAX_RANK];
  int64_t offset[MAX_OPERANDS];

  Walk(int rank, const int64_t* shape, const int64_t (*stride)[MAX_RANK], int count, int64_t start)
      : rank(rank), count(count), shape(shape), stride(stride) {
    for (int k = 0; k < count; k++) offset[k] = 0;
    for (int d = rank - 1; d >= 0; d--) {
      at[d] = shape[d] ? start % shape[d] : 0;
      if (shape[d]) start /= shape[d];
      for (int k = 0; k < count; k++) offset[k] += at[d] * stride[k][d];
    }
  }
  void next() {
    for (int d = rank - 1; d >= 0; d--) {
      for (int k = 0; k < count; k++) offset[k] += stride[k][d];
      if (++at[d] < shape[d]) return;
      for (int k = 0; k < count; k++) offset[k] -= stride[k][d] * shape[d];
      at[d] = 0;
    }
  }
};

}  // namespace wick
