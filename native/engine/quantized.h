// What products with ggml's blocks need of an instruction set: decoding, rounding activations, and dot products of
// both.
#pragma once
#include <cstdint>

namespace wick {

// Rows of activations rounded to whole numbers: value = scale * q, a scale for every 32.
struct Rounded {
  const int8_t* q;      // [rows][n]
  const float* scale;   // [rows][n / 32]
  const float* sum;     // [rows][2][n / 32]: scale times the sum of first halves, then of second ones
  const int16_t* wide;  // [rows][n]: the same numbers as products of many rows read them, in room of 2 bytes each
  int64_t n;

  Rounded from(int64_t row) const {
    return {q + row * n, scale + row * (n / 32), sum + row * (n / 16), wide + row * n, n};
  }
};

struct BlockKernels {
  int values, bytes;  // of a block
  // `blocks` blocks to floats.
  void (*decode)(const uint8_t* w, float* y, int64_t blocks);
  // out[m * pitch + r] = dot(row r of w, row m of a) for `rows` rows that are `rowBytes` apart.
  void (*product)(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out,
                  int64_t pitch);
};

// By ggml's type number; null where a type is not computed with.
constexpr int BLOCK_TYPE_COUNT = 41;
typedef const BlockKernels* BlockTable[BLOCK_TYPE_COUNT];

// A row of n finite values as blocks; importances by column, or null.
typedef void (*EncodeRow)(const float* x, int64_t n, const float* importance, uint8_t* out);

// Rounds one row of n values (a multiple of 32). Values that are not finite make their group's scale NaN.
typedef void (*RoundRow)(const float* x, int64_t n, int8_t* q, float* scale, float* sum, int16_t* wide);

}  // namespace wick
