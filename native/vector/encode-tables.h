// Blocks whose values are numbers of a table: IQ4_NL, IQ4_XS, and 4-bit floats (MXFP4, NVFP4). Included after
// encode-search.h.

// ---- IQ4_NL, IQ4_XS ----

constexpr float IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Which value of the table x is nearest to: half way, and where x is NaN, it goes up. The value, or its number.
template <bool NUMBER> inline Eight nearestIq4(Eight x) {
  auto of = [](int i) { return all(NUMBER ? (float)i : IQ4[i]); };
  Eight found = pick(x < all((IQ4[0] + IQ4[1]) / 2), of(0), of(1));
  for (int i = 1; i < 15; i++) found = pick(x >= all((IQ4[i] + IQ4[i + 1]) / 2), of(i + 1), found);
  return found;
}
// The scales of eight groups of 32: the best of fifteen around the one that maps the extreme to the table's end.
Eight scaleOf(const Eight* x, const Eight* w) {
  const Eight extreme = extremeOf(x, 32);
  Eight d = {}, best = {};
  for (int at = -8; at <= 7; at++) {
    const bool first = at == -8;
    const Eight inverse = first ? 1 / (-extreme / IQ4[0]) : all((float)at + IQ4[0]) / extreme;
    Eight qx = {}, q2 = {};
    for (int i = 0; i < 32; i++) {
      const Eight q = nearestIq4<false>(inverse * x[i]), wq = w[i] * q;
      qx += wq * x[i];
      q2 += wq * q;
    }
    const Choice some = q2 > all(0), better = first ? some : some & (qx * qx > best * q2);
    d = pick(better, qx / q2, d);
    best = pick(better, d * qx, best);
  }
  return pick(extreme == all(0), all(0), d);
}
void iq4Scales(const float* x, const float* w, float* scales) {
  Eight xs[32], ws[32];
  spread(x, 32, xs);
  if (w) spread(w, 32, ws);
  else
    for (int i = 0; i < 32; i++) ws[i] = xs[i] * xs[i];
  const Eight d = scaleOf(xs, ws);
  memcpy(scales, &d, sizeof d);
}
void iq4Levels(const float* x, float scale, uint8_t* out) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float l[32];
  for (int i = 0; i < 32; i += LANES) {
    Eight v;
    memcpy(&v, x + i, sizeof v);
    v = nearestIq4<true>(inverse * v);
    memcpy(l + i, &v, sizeof v);
  }
  for (int j = 0; j < 16; j++) out[j] = (uint8_t)((int)l[j] | (int)l[j + 16] << 4);
}
// Eight blocks at a time: `x` holds eight, of which `blocks` are wanted.
void encodeIq4Nl(const float* x, const float* importance, uint8_t* out, int blocks) {
  float w[BLOCK], scales[8];
  if (importance)
    for (int j = 0; j < 8; j++)
      importanceWeights(x + j * 32, importance + j * 32, 32, sumOfSquares(x + j * 32, 32) * (2.0f / 32), w + j * 32);
  iq4Scales(x, importance ? w : nullptr, scales);
  for (int j = 0; j < blocks; j++) {
    putF16(out + j * 18, scales[j]);
    iq4Levels(x + j * 32, scales[j], out + j * 18 + 2);
  }
}
void encodeIq4Xs(const float* x, const float* importance, uint8_t* out) {
  float w[BLOCK], scales[8], extreme = 0;
  if (importance) importanceWeights(x, importance, BLOCK, sumOfSquares(x, BLOCK) * (2.0f / BLOCK), w);
  iq4Scales(x, importance ? w : nullptr, scales);
  for (float s : scales)
    if (__builtin_fabsf(s) > __builtin_fabsf(extreme)) extreme = s;
  const float d = -extreme / 32, inverse = d == 0 ? 0 : 1 / d;
  memset(out, 0, 136);
  putF16(out, d);
  int high = 0;
  for (int j = 0; j < 8; j++) {
    const float l = clamp(nearest(inverse * scales[j]), -32, 31);
    const int code = l == l ? (int)l + 32 : 0;
    iq4Levels(x + j * 32, d * l, out + 8 + j * 16);
    out[4 + j / 2] |= (code & 15) << (4 * (j & 1));
    high |= code >> 4 << (2 * j);
  }
  out[2] = (uint8_t)high;
  out[3] = (uint8_t)(high >> 8);
}

// ---- 4-bit floats ----

constexpr float FP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
uint8_t nearestFp4(float x, float d) {
  int best = 0;
  float error = __builtin_fabsf(FP4_VALUES[0] * d - x);
  for (int i = 1; i < 16; i++) {
    const float other = __builtin_fabsf(FP4_VALUES[i] * d - x);
    if (other < error) {
      best = i;
      error = other;
    }
  }
  return (uint8_t)best;
}
float largestOf(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; i++) largest = __builtin_fabsf(x[i]) > largest ? __builtin_fabsf(x[i]) : largest;
  return largest;
}
void encodeMxfp4(const float* x, const float*, uint8_t* out) {
  const float largest = largestOf(x, 32);
  const int floor2 = largest > 0 ? __builtin_ilogbf(largest) - 2 + 127 : 0, exponent = floor2 > 0 ? floor2 : 0;
  const float d = __builtin_ldexpf(1, exponent - 128);
  out[0] = (uint8_t)exponent;
  for (int j = 0; j < 16; j++) out[1 + j] = nearestFp4(x[j], d) | nearestFp4(x[j + 16], d) << 4;
}
int toUe4m3(float x) {
  if (!(x > 0)) return 0;
  const double v = x < 448 ? x : 448;
  const int exponent = __builtin_ilogb(v) + 7;
  if (exponent <= 0) {
    const int code = (int)__builtin_floor(v * 512 + 0.5);
    return code < 7 ? code : 7;
  }
  const int code = (int)__builtin_floor((v / __builtin_ldexp(1, exponent - 7) - 1) * 8 + 0.5) + (exponent << 3);
  return code < 0x7e ? code : 0x7e;
}
void encodeNvfp4(const float* x, const float*, uint8_t* out) {
  for (int s = 0; s < 4; s++, x += 16) {
    const int code = toUe4m3(largestOf(x, 16) / 6);
    const int exponent = code >> 3, mantissa = code & 7;
    const float d =
        exponent ? __builtin_ldexpf((float)(8 + mantissa), exponent - 11) : __builtin_ldexpf((float)mantissa, -10);
    out[s] = (uint8_t)code;
    for (int j = 0; j < 8; j++) out[4 + s * 8 + j] = nearestFp4(x[j], d) | nearestFp4(x[j + 8], d) << 4;
  }
}
