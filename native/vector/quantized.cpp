// Products with ggml's blocks: whole numbers against whole numbers, scaled chunk by chunk; and blocks back to floats.
// Compiled once more with -DWICK_DOT where the CPU multiplies and adds four bytes in one instruction, or small matrices of
// them.
#include "amx.h"

namespace {
#include "blocks.h"

using wick::BlockKernels;
using wick::Rounded;

#if defined(WICK_ISA_NEON)
#include "quantized-neon.h"
#else
#include "quantized-row.h"
#endif
#include "quantized-strips.h"
#if defined(WICK_AMX) && defined(__AVX512VNNI__)
#include "quantized-tiles.h"
#else
template <class T> bool readsBlocks() { return false; }
void onTiles(const Strip&, const Rounded&, int64_t, int64_t, float*, int64_t) {}
#endif

template <class T>
void product(const uint8_t* w, int64_t rowBytes, int64_t rows, const Rounded& a, int64_t m, float* out, int64_t pitch) {
  if (m <= ROW_BY_ROW && !a.blocks) {
    rowByRow<T>(w, rowBytes, rows, a, m, out, pitch);
    return;
  }
  constexpr int parts = T::halves ? 2 : 1;
  const size_t lanes = a.n / LANE_VALUES * STRIP, scales = a.n / 32 * parts * STRIP;
  int32_t* room = static_cast<int32_t*>(scratch(wick::SCRATCH_A, (lanes + 3 * scales) * sizeof(int32_t)));
  float* scale = reinterpret_cast<float*>(room + lanes);
  const Strip strip = {room, scale, T::minima ? scale + scales : nullptr, room + lanes + 2 * scales};
  for (int64_t r = 0; r < rows; r += STRIP) {
    const int64_t count = rows - r < STRIP ? rows - r : STRIP;
    unpack<T>(w + r * rowBytes, rowBytes, count, a.n, strip);
    if (a.blocks) onTiles(strip, a, m, count, out + r, pitch);
    else tiles<parts>(strip, a, m, count, out + r, pitch);
  }
}

template <class T> void decode(const uint8_t* w, float* y, int64_t blocks) {
  for (int64_t b = 0; b < blocks; b++, w += T::bytes) {
    Scales s;
    T::template scales<1>(w, s);
    for (int c = 0; c < T::chunks; c++, y += 32) {
      const Bytes q = T::values(w, c) - (Bytes)each(T::offset);
      for (int h = 0; h < 2; h++) {
        const float d = s.d[T::halves * h][c], m = T::minima ? s.m[T::halves * h][c] : 0;
        float lane[16];
        for (int j = 0; j < 16; j++) lane[j] = d * (float)q[16 * h + j];
        for (int j = 0; j < 16; j++) y[16 * h + j] = T::minima ? lane[j] - m : lane[j];
      }
    }
  }
}

#if !defined(WICK_ISA_NEON)
void roundRow(const float* x, const Rounded& to, int64_t row) {
  const int64_t chunks = to.n / 32, step = to.blocks ? wick::BLOCK_ROWS : 1, within = row % step;
  const Rounded block = to.from(row - within);
  int8_t* q = const_cast<int8_t*>(block.q) + within * 32;
  float *scale = const_cast<float*>(block.scale) + within, *sum = const_cast<float*>(block.sum) + within;
  for (int64_t c = 0; c < chunks; c++, x += 32, q += step * 32, scale += step, sum += step) {
    uint32_t bits[32], largest = 0;
    memcpy(bits, x, sizeof bits);
    for (int j = 0; j < 32; j++) {
      const uint32_t magnitude = bits[j] & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    float most;
    memcpy(&most, &largest, 4);
    const bool finite = largest < 0x7f800000u;
    const float inverse = finite && largest > 0 ? 127 / most : 0;
    *scale = finite ? most / 127 : __builtin_nanf("");
    int32_t whole[32];
    for (int j = 0; j < 32; j++) whole[j] = (int32_t)__builtin_rintf(finite ? x[j] * inverse : 0);
    for (int h = 0; h < 2; h++) {
      int32_t all = 0;
      for (int j = 0; j < 16; j++) all += whole[16 * h + j];
      sum[h * chunks * step] = *scale * (float)all;
    }
    for (int j = 0; j < 32; j++) q[j] = (int8_t)whole[j];
    if (to.blocks) continue;
    int16_t* wide = const_cast<int16_t*>(block.wide);
    if (LANE_VALUES == 2)
      for (int j = 0; j < 32; j++) wide[32 * c + j] = (int16_t)whole[j];
    else
      for (int j = 0; j < 32; j++) reinterpret_cast<uint8_t*>(wide)[32 * c + j] = (uint8_t)(whole[j] + OFFSET);
  }
}
#endif

template <class T> const BlockKernels KERNELS = {32 * T::chunks, T::bytes, readsBlocks<T>, decode<T>, product<T>};
template <class... T> void fill(wick::BlockTable& table) { ((table[T::id] = &KERNELS<T>), ...); }

}  // namespace

#if defined(WICK_DOT)
#define WICK_JOINED(a, b) a##b
#define WICK_NAMED(a, b) WICK_JOINED(a, b)
extern "C" void WICK_NAMED(wick_quantized_, WICK_DOT)(wick::IsaTable* t) {
#else
extern "C" void WICK_EXPORT(wick_quantized)(wick::IsaTable* t) {
#endif
  fill<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4>(t->blocks);
  t->roundRow = roundRow;
}
