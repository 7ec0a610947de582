// The table an instruction set fills: kernels over contiguous runs, called by drivers that know layouts.
#pragma once
#include "abi.h"
#include "quantized.h"

namespace wick {

// out[i] = f(in[0][i], in[1][i], in[2][i]; scalars) over a contiguous run.
typedef void (*Kernel)(const void* const* in, void* out, int64_t n, const double* scalars);

// An elementwise row's kernels by dtype, null where the row has no such dtype. Lists of rows end with a null name.
struct ElementwiseRow {
  const char* name;
  Kernel kernel[DTYPE_COUNT];
};
constexpr int MAX_ROWS = 256;

enum Reduction : int { SUM, MEAN, PROD, EUCLID, MAX, MIN, ARGMAX, ARGMIN, REDUCTION_COUNT };
// A running result of a reduction: what fits the member at hand is used.
struct Partial {
  double real;
  int64_t whole;
  int64_t index;
};
// Adds a contiguous run of n elements, whose first has number `first` in its group, to a partial result.
typedef void (*ReduceRun)(const void* x, int64_t n, int64_t first, Partial* partial);
// Adds rows of n columns, `pitch` elements apart, to n accumulators: `real` for floats, `whole` for integers. The first
// row has number `first` in its group. ARGMAX and ARGMIN keep places in `whole` and values of integers behind them, so
// `whole` has twice the room.
typedef void (*ReduceRows)(const void* x, int64_t rows, int64_t pitch, int64_t n, int64_t first, double* real,
                           int64_t* whole);

struct Matrix {
  const char* data;
  int64_t row, column;  // strides in elements
  int dtype = -1;       // where it is another than the product's: 16-bit floats beside floats, widened as they are read
};
// What a convolution multiplies its weights by: for every channel and tap a row, for every position of the result,
// picture by picture, a column. Distances are in elements; H and W is what a picture has, h and w what its result has.
struct Pictures {
  const char* data;
  int64_t picture, channel, row, column;
  int64_t H, W, h, w, kh, kw, sh, sw, ph, pw, dh, dw;
  int64_t result;  // from one picture's result to the next one's
};
// What a product to come reads, where it lies in one piece: small products ask for it while they multiply.
struct Later {
  const char* data = nullptr;
  int64_t bytes = 0;
};
// out[m][n] (+)= a[m][k] b[k][n]; out is any strided matrix of the same dtype. Pictures take the place of b: each has a
// matrix of its own in out, whose columns are neighbours.
struct Product {
  int64_t m, n, k;
  Matrix a, b, out;
  const Pictures* pictures = nullptr;
  Later later[2] = {};
};
typedef void (*MatmulFn)(const Product& p, bool accumulate);

// One lane of n contiguous elements: softmax, norms, their gradients, a turn by angles. Absent inputs are null.
enum Lane : int {
  SOFTMAX,
  LOG_SOFTMAX,
  SOFTMAX_BACKWARD,
  LOG_SOFTMAX_BACKWARD,
  LAYER_NORM,
  RMS_NORM,
  LAYER_NORM_BACKWARD,
  RMS_NORM_BACKWARD,
  ROPE_HALVES,
  ROPE_NEIGHBOURS,
  LANE_COUNT
};
typedef void (*LaneKernel)(const void* const* in, void* out, int64_t n, const double* params);

// One row of attention scores: softmax against a running maximum, scaling, the way back, and products of few rows.
struct Attend {
  void (*online)(void* row, int64_t n, double scale, void* stats);
  void (*multiply)(void* row, int64_t n, double by);
  void (*backward)(void* scores, void* grads, int64_t n, double scale, double lse, double delta, const void* slopes);
  // Products of a few queries with keys, and of their weights with values (added up), read where they lie.
  void (*dots)(const void* queries, int64_t m, int64_t dim, const void* keys, int64_t row, int64_t n, void* scores,
               int64_t scoreRow);
  void (*weigh)(void* outs, int64_t m, int64_t dim, const void* values, int64_t row, int64_t n, const void* weights,
                int64_t weightRow);
};

struct IsaTable {
  const char* name;
  const ElementwiseRow* elementwise[MAX_ROWS];  // by row number of generated/names.h
  Kernel cast[DTYPE_COUNT][DTYPE_COUNT];        // [from][to]
  Kernel truth[DTYPE_COUNT];                    // to u8: 1 for what is not 0
  ReduceRun reduceRun[DTYPE_COUNT][REDUCTION_COUNT];
  ReduceRows reduceRows[DTYPE_COUNT][REDUCTION_COUNT];
  MatmulFn matmul[DTYPE_COUNT];
  LaneKernel lane[DTYPE_COUNT][LANE_COUNT];
  Attend attend[2];   // float, double
  BlockTable blocks;  // by ggml's type number
  RoundRow roundRow;
  int blockStrip;                               // rows of weights that products of many rows take at a time
  bool blocksOfRows;                            // whose activations these read in blocks
  EncodeRow encodeRow[BLOCK_TYPE_COUNT];        // null where floats are not encoded
  double (*peak)(int64_t rounds, float* kept);  // operations done by multiply-adds alone
};

// The table of the instruction set in use.
extern const IsaTable* isa;

}  // namespace wick
