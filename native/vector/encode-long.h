// Blocks of 256 values with scales of their groups: Q2_K to Q8_K. Included after encode-search.h.

// ---- Q2_K, Q4_K, Q5_K ----

struct AffineForm {
  int group;
  float top, scaleTop, sigma;
  Steps steps;
};
constexpr AffineForm FORM_2 = {16, 3, 15, 1, {-0.5f, 0.1f, 15, true}};
constexpr AffineForm FORM_4 = {32, 15, 63, 2, {-1, 0.1f, 20, false}};
constexpr AffineForm FORM_5 = {32, 31, 63, 2, {-0.5f, 0.1f, 15, false}};

struct AffineBlock {
  uint8_t levels[BLOCK], scales[16], mins[16];
  float d, m;
};
float uniform(const float* v, int n, float top, uint8_t* levels) {
  float largest = 0;
  for (int j = 0; j < n; j++) largest = v[j] > largest ? v[j] : largest;
  const float inverse = largest > 0 ? top / largest : 0;
  for (int j = 0; j < n; j++) {
    const float l = nearest(inverse * v[j]);
    levels[j] = byteOf(l > top ? top : l);
  }
  return largest / top;
}
void plainWeights(const AffineForm& f, const float* x, float* w) {
  for (int g = 0; g < BLOCK; g += f.group) {
    const float mean = f.steps.magnitude ? 0 : __builtin_sqrtf(sumOfSquares(x + g, f.group) / (float)f.group);
    for (int i = g; i < g + f.group; i++)
      w[i] = f.steps.magnitude ? __builtin_fabsf(x[i]) : mean + __builtin_fabsf(x[i]);
  }
}
void searchAffine(const AffineForm& f, const float* x, const float* importance, AffineBlock& b) {
  const int groups = BLOCK / f.group;
  float w[BLOCK], scales[16], mins[16];
  if (importance) importanceWeights(x, importance, BLOCK, f.sigma * sumOfSquares(x, BLOCK) / BLOCK, w);
  else plainWeights(f, x, w);
  for (int j = 0; j < groups; j += LANES) {
    Eight xs[32], ws[32], levels[32], minimum;
    spread(x + j * f.group, f.group, xs);
    spread(w + j * f.group, f.group, ws);
    const Eight scale = affine(xs, ws, f.group, f.top, importance ? IMPORTANT : f.steps, levels, &minimum);
    memcpy(scales + j, &scale, sizeof scale);
    memcpy(mins + j, &minimum, sizeof minimum);
    collect(levels, f.group, b.levels + j * f.group);
  }
  if (importance) {
    float sums[16];
    sumsOf(w, f.group, sums);
    b.d = positive(scales, sums, groups, f.scaleTop, b.scales);
    b.m = positive(mins, sums, groups, f.scaleTop, b.mins);
  } else {
    b.d = uniform(scales, groups, f.scaleTop, b.scales);
    b.m = uniform(mins, groups, f.scaleTop, b.mins);
  }
}
// Levels again, by the factors as they were written.
void settle(const AffineForm& f, const float* x, const uint8_t* d, const uint8_t* m, AffineBlock& b) {
  for (int g = 0; g < BLOCK / f.group; g++) {
    const float scale = f16At(d) * b.scales[g], base = f16At(m) * b.mins[g];
    if (scale == 0) continue;
    for (int i = g * f.group; i < (g + 1) * f.group; i++)
      b.levels[i] = byteOf(clamp(nearest((x[i] + base) / scale), 0, f.top));
  }
}
void packTwoBits(uint8_t* out, const uint8_t* l) {
  for (int half = 0; half < 2; half++, l += 128)
    for (int i = 0; i < 32; i++)
      *out++ = (l[i] & 3) | (l[i + 32] & 3) << 2 | (l[i + 64] & 3) << 4 | (l[i + 96] & 3) << 6;
}
void packNibbles(uint8_t* out, const uint8_t* l) {
  for (int j = 0; j < 4; j++, l += 64)
    for (int i = 0; i < 32; i++) *out++ = (l[i] & 15) | (l[i + 32] & 15) << 4;
}
void sixBitHead(uint8_t* out, const AffineBlock& b) {
  const uint8_t *s = b.scales, *m = b.mins;
  putF16(out, b.d);
  putF16(out + 2, b.m);
  for (int j = 0; j < 4; j++) {
    out[4 + j] = s[j] | (s[j + 4] >> 4) << 6;
    out[8 + j] = m[j] | (m[j + 4] >> 4) << 6;
    out[12 + j] = (s[j + 4] & 15) | (m[j + 4] & 15) << 4;
  }
}
void encodeQ2K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_2, x, w, b);
  for (int j = 0; j < 16; j++) out[j] = b.scales[j] | b.mins[j] << 4;
  putF16(out + 80, b.d);
  putF16(out + 82, b.m);
  settle(FORM_2, x, out + 80, out + 82, b);
  packTwoBits(out + 16, b.levels);
}
void encodeQ4K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_4, x, w, b);
  sixBitHead(out, b);
  settle(FORM_4, x, out, out + 2, b);
  packNibbles(out + 16, b.levels);
}
void encodeQ5K(const float* x, const float* w, uint8_t* out) {
  AffineBlock b;
  searchAffine(FORM_5, x, w, b);
  sixBitHead(out, b);
  settle(FORM_5, x, out, out + 2, b);
  for (int i = 0; i < 32; i++) {
    int high = 0;
    for (int j = 0; j < 8; j++) high |= (b.levels[j * 32 + i] >> 4) << j;
    out[16 + i] = (uint8_t)high;
  }
  packNibbles(out + 48, b.levels);
}

// ---- Q3_K, Q6_K, Q8_K ----

// Sixteen groups of sixteen, each with a scale of its own.
void searchSymmetric(const float* x, const float* w, float half, float* scales, uint8_t* levels) {
  for (int j = 0; j < 16; j += LANES) {
    Eight xs[16], ws[16], ls[16];
    spread(x + j * 16, 16, xs);
    if (w) spread(w + j * 16, 16, ws);
    const Eight scale = symmetric(xs, w ? ws : nullptr, 16, half, ls);
    memcpy(scales + j, &scale, sizeof scale);
    collect(ls, 16, levels + j * 16);
  }
}
void levelsBy(const float* x, const float* d, float half, uint8_t* levels) {
  for (int i = 0; i < BLOCK; i++)
    if (d[i / 16] != 0) levels[i] = byteOf(clamp(nearest(x[i] / d[i / 16]), -half, half - 1) + half);
}
float extremeScale(const float* scales) {
  float extreme = 0;
  for (int j = 0; j < 16; j++)
    if (__builtin_fabsf(scales[j]) > __builtin_fabsf(extreme)) extreme = scales[j];
  return extreme;
}
// The scales of Q3_K in six bits each; answers the factor of all.
float scalesInSixBits(const float* scales, const float* sums, uint8_t* levels) {
  if (sums) {
    Eight s[16], w[16], l[16];
    for (int j = 0; j < 16; j++) {
      s[j] = all(scales[j]);
      w[j] = all(sums[j]);
    }
    const float d = symmetric(s, w, 16, 32, l)[0];
    for (int j = 0; j < 16; j++) levels[j] = byteOf(l[j][0]);
    return d;
  }
  const float extreme = extremeScale(scales), inverse = extreme == 0 ? 0 : -32 / extreme;
  for (int j = 0; j < 16; j++) levels[j] = extreme == 0 ? 0 : byteOf(clamp(nearest(inverse * scales[j]), -32, 31) + 32);
  return extreme == 0 ? 0 : 1 / inverse;
}
void encodeQ3K(const float* x, const float* importance, uint8_t* out) {
  uint8_t levels[BLOCK], quantized[16];
  float scales[16], sums[16], w[BLOCK], d[16];
  if (importance) {
    importanceWeights(x, importance, BLOCK, 2 * sumOfSquares(x, BLOCK) / BLOCK, w);
    sumsOf(w, 16, sums);
    searchSymmetric(x, w, 4, scales, levels);
  } else
    for (int j = 0; j < 16; j++) scales[j] = symmetricByMoves(x + j * 16, 4, levels + j * 16);
  const float factor = scalesInSixBits(scales, importance ? sums : nullptr, quantized);
  memset(out, 0, 110);
  for (int j = 0; j < 16; j++) {
    out[96 + (j & 7)] |= (quantized[j] & 15) << (j < 8 ? 0 : 4);
    out[104 + (j & 3)] |= (quantized[j] >> 4) << (2 * (j >> 2));
  }
  putF16(out + 108, factor);
  for (int j = 0; j < 16; j++) d[j] = f16At(out + 108) * (float)(quantized[j] - 32);
  levelsBy(x, d, 4, levels);
  for (int i = 0; i < BLOCK; i++) out[i & 31] |= (levels[i] >> 2) << (i >> 5);
  packTwoBits(out + 32, levels);
}
void encodeQ6K(const float* x, const float* importance, uint8_t* out) {
  uint8_t levels[BLOCK];
  float scales[16], d[16];
  searchSymmetric(x, importance, 32, scales, levels);
  const float extreme = extremeScale(scales);
  memset(out, 0, 210);
  if (__builtin_fabsf(extreme) < EPSILON) return;
  const float inverse = -128 / extreme;
  putF16(out + 208, 1 / inverse);
  for (int j = 0; j < 16; j++) {
    const float l = nearest(inverse * scales[j]);
    out[192 + j] = byteOf(l > 127 ? 127 : l);
    d[j] = f16At(out + 208) * (float)(int8_t)out[192 + j];
  }
  levelsBy(x, d, 32, levels);
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 32; i++) {
      const uint8_t* l = levels + half * 128 + i;
      out[half * 64 + i] = (l[0] & 15) | (l[64] & 15) << 4;
      out[half * 64 + 32 + i] = (l[32] & 15) | (l[96] & 15) << 4;
      out[128 + half * 32 + i] = l[0] >> 4 | (l[32] >> 4) << 2 | (l[64] >> 4) << 4 | (l[96] >> 4) << 6;
    }
}
void encodeQ8K(const float* x, const float*, uint8_t* out) {
  float extreme = 0;
  int16_t sums[16] = {};
  memset(out, 0, 292);
  for (int i = 0; i < BLOCK; i++)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  if (extreme == 0) return;
  const float inverse = -127 / extreme, d = 1 / inverse;
  for (int i = 0; i < BLOCK; i++) {
    const float l = nearest(inverse * x[i]);
    const int8_t q = (int8_t)(l > 127 ? 127 : l);
    out[4 + i] = (uint8_t)q;
    sums[i / 16] += q;
  }
  memcpy(out, &d, 4);
  memcpy(out + 260, sums, 32);
}
