// What products with ggml's blocks need of an instruction set: decoding, rounding activations, and dot products of
// both.
#pragma once
#include <cstdint>

namespace wick {

// Rows of activations rounded to whole numbers: value = scale * q, a scale for every 32. For matrix tiles they lie in
// blocks of 16: 32 numbers of the first, of the second and so on, then the next 32 of each.
constexpr int BLOCK_ROWS = 16;
struct Rounded {
  const int8_t* q;     // [rows][n], or [rows / 16][n / 32][16][32]
  const float* scale;  // [rows][n / 32], or [rows / 16][n / 32][16]
  const float* sum;    // [rows][2][n / 32], or [rows / 16][2][n / 32][16]: of first halves, then of second ones, scaled
  const int16_t* wide;  // [rows][n]: the same numbers as products of many rows read them, in room of 2 bytes each
  int64_t n;
  bool blocks;

  Rounded from(int64_t row) const {
    return {q + row * n, scale + row * (n / 32), sum + row * (n / 16), wide + row * n, n, blocks};
  }
};

// Products of up to so many rows of activations may add up in another order than those of more.
constexpr int LONE_ROWS = 4;

struct BlockKernels {
  int values, bytes;      // of a block
  bool (*readsBlocks)();  // whether products of many rows read activations in blocks
  // `blocks` blocks to floats.
  void (*decode)(const uint8_t* w, float* y, int64_t blocks);
  // out[m * pitch + r] = dot(row r of w, row m of a) for `rows` rows that are `rowBytes` apart. Where rows of `a` lie in
  // blocks, the last one is whole.
  void (*product)(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out,
                  int64_t pitch);
};

// By ggml's type number; null where a type is not computed with.
constexpr int BLOCK_TYPE_COUNT = 41;
typedef const BlockKernels* BlockTable[BLOCK_TYPE_COUNT];

// A row of n finite values as blocks; importances by column, or null.
typedef void (*EncodeRow)(const float* x, int64_t n, const float* importance, uint8_t* out);

// Rounds one row of n values (a multiple of 32) to where `to` has its row. Values that are not finite make their group's
// scale NaN.
typedef void (*RoundRow)(const float* x, const Rounded& to, int64_t row);

}  // namespace wick
