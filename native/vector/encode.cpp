// Floats to ggml's blocks, byte for byte as src/base/blocks does it, which says what each search is after. Groups of
// values are independent of one another while the sums within one are not, so eight groups share a vector, a lane each.
#include "vector/isa.h"

namespace {

#include "blocks.h"
#include "encode-search.h"
#include "encode-long.h"
#include "encode-tables.h"

// ---- blocks of 32 without a search ----

float extreme32(const float* x) {
  float best = 0;
  for (int i = 0; i < 32; i++)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(best)) best = x[i];
  return best;
}
float invert(float d) { return d == 0 ? 0 : 1 / d; }
// Fifth bits first where there are any, then nibbles, element j with element j + 16.
void packCodes(uint8_t* out, int bits, const uint8_t* code) {
  uint32_t high = 0;
  uint8_t* nibbles = bits == 5 ? out + 4 : out;
  for (int j = 0; j < 16; j++) {
    nibbles[j] = (code[j] & 15) | (code[j + 16] & 15) << 4;
    high |= (uint32_t)(code[j] >> 4) << j | (uint32_t)(code[j + 16] >> 4) << (j + 16);
  }
  if (bits == 5) memcpy(out, &high, 4);
}
// Compared as floats: the scale of tiny values has no finite inverse, and CPUs make different integers of infinity.
inline uint8_t levelOf(float x, int top) { return x >= (float)top ? (uint8_t)top : x > 0 ? (uint8_t)x : 0; }
void encodeSigned(const float* x, int bits, uint8_t* out) {
  const int half = 1 << (bits - 1);
  const float d = extreme32(x) / (float)-half, id = invert(d);
  uint8_t code[32];
  for (int i = 0; i < 32; i++) code[i] = levelOf(x[i] * id + ((float)half + 0.5f), 2 * half - 1);
  putF16(out, d);
  packCodes(out + 2, bits, code);
}
void encodeOffset(const float* x, int bits, uint8_t* out) {
  float low = __builtin_inff(), high = -__builtin_inff();
  for (int i = 0; i < 32; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const int top = (1 << bits) - 1;
  const float d = (high - low) / (float)top, id = invert(d);
  uint8_t code[32];
  for (int i = 0; i < 32; i++) code[i] = levelOf((x[i] - low) * id + 0.5f, top);
  putF16(out, d);
  putF16(out + 2, low);
  packCodes(out + 4, bits, code);
}
// The same two for eight blocks with importances, whose scales are searched for.
void encodeWeighed(const float* x, const float* w, int bits, bool offset, uint8_t* out, int blocks) {
  Eight xs[32], ws[32], levels[32], minimum;
  uint8_t codes[BLOCK];
  spread(x, 32, xs);
  spread(w, 32, ws);
  const Eight d = offset ? affine(xs, ws, 32, (float)((1 << bits) - 1), IMPORTANT, levels, &minimum)
                         : symmetric(xs, ws, 32, (float)(1 << (bits - 1)), levels);
  collect(levels, 32, codes);
  const int head = offset ? 4 : 2, bytes = head + (bits == 5 ? 20 : 16);
  for (int j = 0; j < blocks; j++, out += bytes) {
    putF16(out, d[j]);
    if (offset) putF16(out + 2, -minimum[j]);
    packCodes(out + head, bits, codes + j * 32);
  }
}
// Values so small that their scale has no inverse become 0.
void encodeEightBits(const float* x, bool withSum, uint8_t* out) {
  const float d = __builtin_fabsf(extreme32(x)) / 127, id = invert(d);
  double sum = 0;
  for (int i = 0; i < 32; i++) {
    const float code = __builtin_roundf(x[i] * id);
    out[(withSum ? 4 : 2) + i] = __builtin_fabsf(code) <= 128 ? (uint8_t)(int)code : 0;
    sum += code;
  }
  putF16(out, d);
  if (withSum) putF16(out + 2, (float)(sum * d));
}

// ---- rows ----

typedef void (*EncodeBlock)(const float* x, const float* importance, uint8_t* out);
template <int VALUES, int BYTES, EncodeBlock ENCODE>
void rowOf(const float* x, int64_t n, const float* importance, uint8_t* out) {
  for (int64_t i = 0; i < n; i += VALUES, out += BYTES) ENCODE(x + i, importance ? importance + i : nullptr, out);
}
void encodeQ8_0(const float* x, const float*, uint8_t* out) { encodeEightBits(x, false, out); }
void encodeQ8_1(const float* x, const float*, uint8_t* out) { encodeEightBits(x, true, out); }

// Blocks of 32 go by eights; what is missing of the last eight is zero.
template <class Encode> void byEights(const float* x, int64_t n, const float* w, Encode encode) {
  for (int64_t i = 0; i < n; i += BLOCK) {
    const int here = (int)(n - i < BLOCK ? n - i : BLOCK);
    float xs[BLOCK] = {}, ws[BLOCK] = {};
    memcpy(xs, x + i, here * sizeof(float));
    if (w) memcpy(ws, w + i, here * sizeof(float));
    encode(xs, w ? ws : nullptr, i / 32, here / 32);
  }
}
void rowIq4Nl(const float* x, int64_t n, const float* importance, uint8_t* out) {
  byEights(x, n, importance, [&](const float* xs, const float* w, int64_t first, int blocks) {
    encodeIq4Nl(xs, w, out + first * 18, blocks);
  });
}
template <int BITS, bool OFFSET> void simpleRow(const float* x, int64_t n, const float* importance, uint8_t* out) {
  constexpr int BYTES = (OFFSET ? 4 : 2) + (BITS == 5 ? 20 : 16);
  if (!importance) {
    for (int64_t i = 0; i < n; i += 32, out += BYTES) (OFFSET ? encodeOffset : encodeSigned)(x + i, BITS, out);
    return;
  }
  const float meanSquare = sumOfSquares(x, n) / (float)n;
  byEights(x, n, importance, [&](const float* xs, float const* w, int64_t first, int blocks) {
    float weights[BLOCK];
    importanceWeights(xs, w, BLOCK, meanSquare, weights);
    encodeWeighed(xs, weights, BITS, OFFSET, out + first * BYTES, blocks);
  });
}

}  // namespace

extern "C" void WICK_EXPORT(wick_encode)(wick::IsaTable* t) {
  t->encodeRow[2] = simpleRow<4, false>;
  t->encodeRow[3] = simpleRow<4, true>;
  t->encodeRow[6] = simpleRow<5, false>;
  t->encodeRow[7] = simpleRow<5, true>;
  t->encodeRow[8] = rowOf<32, 34, encodeQ8_0>;
  t->encodeRow[9] = rowOf<32, 36, encodeQ8_1>;
  t->encodeRow[10] = rowOf<BLOCK, 84, encodeQ2K>;
  t->encodeRow[11] = rowOf<BLOCK, 110, encodeQ3K>;
  t->encodeRow[12] = rowOf<BLOCK, 144, encodeQ4K>;
  t->encodeRow[13] = rowOf<BLOCK, 176, encodeQ5K>;
  t->encodeRow[14] = rowOf<BLOCK, 210, encodeQ6K>;
  t->encodeRow[15] = rowOf<BLOCK, 292, encodeQ8K>;
  t->encodeRow[20] = rowIq4Nl;
  t->encodeRow[23] = rowOf<BLOCK, 136, encodeIq4Xs>;
  t->encodeRow[39] = rowOf<32, 17, encodeMxfp4>;
  t->encodeRow[40] = rowOf<64, 36, encodeNvfp4>;
}
