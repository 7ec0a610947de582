// ggml's blocks as NEON reads them: a chunk's whole numbers, and the factors of up to eight chunks. Included by
// quantized-neon.h.

// ---- a chunk's whole numbers ----
struct Numbers {
  int8x16_t low, high;
};
WICK_FN uint8x16_t bytesAt(const uint8_t* p) { return vld1q_u8(p); }
WICK_FN Numbers numbersOf(uint8x16_t low, uint8x16_t high) {
  return {vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)};
}
WICK_FN Numbers nibblesAt(const uint8_t* p) {
  const uint8x16_t v = bytesAt(p);
  return numbersOf(vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4));
}
template <bool HIGH> WICK_FN uint8x16_t nibble(uint8x16_t v) {
  return HIGH ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
}
WICK_FN Numbers lookedUp(Half table, Numbers at) {
  return {vqtbl1q_s8((int8x16_t)table, vreinterpretq_u8_s8(at.low)),
          vqtbl1q_s8((int8x16_t)table, vreinterpretq_u8_s8(at.high))};
}
// v shifted to the left, or to the right where BITS is negative.
template <int BITS> WICK_FN uint8x16_t moved(uint8x16_t v) {
  if constexpr (BITS > 0) return vshlq_n_u8(v, BITS);
  else if constexpr (BITS < 0) return vshrq_n_u8(v, -BITS);
  else return v;
}
// Bits FROM and up of v, COUNT of them, at bit TO and up.
template <int FROM, int COUNT, int TO> WICK_FN uint8x16_t bitsMoved(uint8x16_t v) {
  return vandq_u8(moved<TO - FROM>(v), vdupq_n_u8(((1 << COUNT) - 1) << TO));
}
// Chunk C of a block at b.
template <class T, int C> struct Whole;
template <int C> struct Whole<Q8_0, C> {
  WICK_FN Numbers values(const uint8_t* b) { return numbersOf(bytesAt(b + 2), bytesAt(b + 18)); }
};
template <int C> struct Whole<Q8_K, C> {
  WICK_FN Numbers values(const uint8_t* b) { return numbersOf(bytesAt(b + 4 + 32 * C), bytesAt(b + 20 + 32 * C)); }
};
template <int C> struct Whole<Q4_0, C> {
  WICK_FN Numbers values(const uint8_t* b) { return nibblesAt(b + 2); }
};
template <int C> struct Whole<Q4_1, C> {
  WICK_FN Numbers values(const uint8_t* b) { return nibblesAt(b + 4); }
};
// 32 bits at p: bit j to bit 4 of byte j.
WICK_FN Numbers withFifthBits(const uint8_t* p, Numbers v) {
  const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(readAs<uint32_t>(p)));
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)), sixteen = vdupq_n_u8(16);
  const uint8x16_t of = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
  const uint8x16_t low = vqtbl1q_u8(all, of), high = vqtbl1q_u8(all, vaddq_u8(of, vdupq_n_u8(2)));
  return {vorrq_s8(v.low, vreinterpretq_s8_u8(vandq_u8(vtstq_u8(low, bit), sixteen))),
          vorrq_s8(v.high, vreinterpretq_s8_u8(vandq_u8(vtstq_u8(high, bit), sixteen)))};
}
template <int C> struct Whole<Q5_0, C> {
  WICK_FN Numbers values(const uint8_t* b) { return withFifthBits(b + 2, nibblesAt(b + 6)); }
};
template <int C> struct Whole<Q5_1, C> {
  WICK_FN Numbers values(const uint8_t* b) { return withFifthBits(b + 4, nibblesAt(b + 8)); }
};
template <int C> struct Whole<NVFP4, C> {
  WICK_FN Numbers values(const uint8_t* b) {
    const Numbers v = nibblesAt(b + 4 + 16 * C);  // low: 0 to 7 of both halves, high: 8 to 15 of both
    const int64x2_t low = vreinterpretq_s64_s8(v.low), high = vreinterpretq_s64_s8(v.high);
    return lookedUp(FP4_LEVELS,
                    {vreinterpretq_s8_s64(vzip1q_s64(low, high)), vreinterpretq_s8_s64(vzip2q_s64(low, high))});
  }
};
template <int C> struct Whole<IQ4_NL, C> {
  WICK_FN Numbers values(const uint8_t* b) { return lookedUp(IQ4_LEVELS, nibblesAt(b + 2)); }
};
template <int C> struct Whole<IQ4_XS, C> {
  WICK_FN Numbers values(const uint8_t* b) { return lookedUp(IQ4_LEVELS, nibblesAt(b + 8 + 16 * C)); }
};
template <int C> struct Whole<MXFP4, C> {
  WICK_FN Numbers values(const uint8_t* b) { return lookedUp(FP4_LEVELS, nibblesAt(b + 1)); }
};
template <int C> struct Whole<Q2_K, C> {
  WICK_FN Numbers values(const uint8_t* b) {
    const uint8_t* at = b + 16 + C / 4 * 32;
    return numbersOf(bitsMoved<C % 4 * 2, 2, 0>(bytesAt(at)), bitsMoved<C % 4 * 2, 2, 0>(bytesAt(at + 16)));
  }
};
template <int C> struct Whole<Q3_K, C> {
  WICK_FN uint8x16_t half(const uint8_t* b) {
    return vorrq_u8(bitsMoved<C % 4 * 2, 2, 0>(bytesAt(b + 32 + C / 4 * 32)), bitsMoved<C, 1, 2>(bytesAt(b)));
  }
  WICK_FN Numbers values(const uint8_t* b) { return numbersOf(half(b), half(b + 16)); }
};
template <int C> struct Whole<Q4_K, C> {
  WICK_FN Numbers values(const uint8_t* b) {
    const uint8_t* at = b + 16 + C / 2 * 32;
    return numbersOf(nibble<C % 2>(bytesAt(at)), nibble<C % 2>(bytesAt(at + 16)));
  }
};
// Four low bits of each byte of v, or its four high ones, below the low bits of `top`, or below its high ones.
template <bool HIGH> WICK_FN uint8x16_t below(uint8x16_t v, uint8x16_t top) {
  return HIGH ? vsriq_n_u8(top, v, 4) : vsliq_n_u8(v, top, 4);
}
template <int C> struct Whole<Q5_K, C> {
  WICK_FN uint8x16_t half(const uint8_t* b) {
    constexpr bool HIGH = C % 2;
    const uint8x16_t v = bytesAt(b + 48 + C / 2 * 32), top = bytesAt(b + 16);
    constexpr int AT = HIGH ? 4 : 0;  // of bit C
    return vandq_u8(below<HIGH>(v, moved<AT - C>(top)), vdupq_n_u8(31));
  }
  WICK_FN Numbers values(const uint8_t* b) { return numbersOf(half(b), half(b + 16)); }
};
template <int C> struct Whole<Q6_K, C> {
  WICK_FN uint8x16_t half(const uint8_t* b) {
    constexpr bool HIGH = C % 4 > 1;
    const uint8x16_t v = bytesAt(b + C / 4 * 64 + C % 2 * 32), top = bytesAt(b + 128 + C / 4 * 32);
    const uint8x16_t all = below<HIGH>(v, moved<(C % 2 ? -2 : 0)>(top));
    return C % 4 == 3 ? all : vandq_u8(all, vdupq_n_u8(63));
  }
  WICK_FN Numbers values(const uint8_t* b) { return numbersOf(half(b), half(b + 16)); }
};

// ---- the scales and minima of up to eight chunks, four a vector ----
struct Factors {
  float32x4_t d[2][2], m[2][2];  // [half of a chunk][first or last four chunks]
};
// COUNT 16-bit floats that are STRIDE bytes apart; the rest is zero. They meet in a whole register first, for placing
// them in a vector one by one would take its units' time.
template <int COUNT, int STRIDE> WICK_FN float32x4_t halvesAt(const uint8_t* p) {
  uint64_t all = 0;
#pragma GCC unroll 4
  for (int i = 0; i < COUNT; i++) all |= (uint64_t)readAs<uint16_t>(p + i * STRIDE) << 16 * i;
  return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(all)));
}
// Eight whole numbers as vectors of four.
struct Eight {
  int32x4_t v[2];
};
WICK_FN Eight eightOf(uint8x8_t bytes) {
  const uint16x8_t words = vmovl_u8(bytes);
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))), vreinterpretq_s32_u32(vmovl_high_u16(words))};
}
WICK_FN Eight eightOf(int8x8_t bytes) {
  const int16x8_t words = vmovl_s8(bytes);
  return {vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)};
}
// Four bytes from FROM on, EVERY bytes apart. Behind 16 zero bits a byte is a float too small to be normal, but exact, and
// multiplying it is quicker than converting a whole number.
template <int FROM, int EVERY> WICK_FN float32x4_t smallFloats(uint8x16_t v) {
  constexpr uint8_t NONE = 255;
  constexpr uint8_t A = FROM, B = FROM + EVERY, C = FROM + 2 * EVERY, D = FROM + 3 * EVERY;
  const uint8x16_t at = {NONE, NONE, A, NONE, NONE, NONE, B, NONE, NONE, NONE, C, NONE, NONE, NONE, D, NONE};
  return vmulq_n_f32(vreinterpretq_f32_u8(vqtbl1q_u8(v, at)), 0x1p127f);
}
constexpr float SMALL = 0x1p6f;  // what they are multiplied by to be the bytes' numbers
WICK_FN void putFloats(Eight e, float by, float32x4_t (&to)[2]) {
  for (int i = 0; i < 2; i++) to[i] = vmulq_n_f32(vcvtq_f32_s32(e.v[i]), by);
}
template <class T, int BLOCKS> struct FactorsOf;
// A 16-bit scale in front of 32 values, perhaps with what is added behind it.
template <class T, int BLOCKS> struct HalfScales {
  template <int AT> WICK_FN void readAt(const uint8_t* w, float32x4_t (&to)[2]) {
    to[0] = halvesAt<(BLOCKS < 4 ? BLOCKS : 4), T::bytes>(w + AT);
    if constexpr (BLOCKS > 4) to[1] = halvesAt<BLOCKS - 4, T::bytes>(w + 4 * T::bytes + AT);
  }
  WICK_FN void read(const uint8_t* w, Factors& f) {
    readAt<0>(w, f.d[0]);
    if constexpr (T::minima) {
      readAt<2>(w, f.m[0]);
      f.m[0][0] = vnegq_f32(f.m[0][0]);
      if constexpr (BLOCKS > 4) f.m[0][1] = vnegq_f32(f.m[0][1]);
    }
  }
};
template <int BLOCKS> struct FactorsOf<Q4_0, BLOCKS> : HalfScales<Q4_0, BLOCKS> {};
template <int BLOCKS> struct FactorsOf<Q4_1, BLOCKS> : HalfScales<Q4_1, BLOCKS> {};
template <int BLOCKS> struct FactorsOf<Q5_0, BLOCKS> : HalfScales<Q5_0, BLOCKS> {};
template <int BLOCKS> struct FactorsOf<Q5_1, BLOCKS> : HalfScales<Q5_1, BLOCKS> {};
template <int BLOCKS> struct FactorsOf<Q8_0, BLOCKS> : HalfScales<Q8_0, BLOCKS> {};
template <int BLOCKS> struct FactorsOf<IQ4_NL, BLOCKS> : HalfScales<IQ4_NL, BLOCKS> {};
WICK_FN float halfAt(const uint8_t* p) { return vgetq_lane_f32(halvesAt<1, 0>(p), 0); }
struct SixBits {
  WICK_FN uint8x8_t six(uint32_t v, uint32_t low) {
    return vcreate_u8((v & 0x3f3f3f3f) | (uint64_t)((low & 0x0f0f0f0f) | (v >> 2 & 0x30303030)) << 32);
  }
  WICK_FN void read(const uint8_t* b, Factors& f) {
    const uint32_t d = readAs<uint32_t>(b + 4), m = readAs<uint32_t>(b + 8), rest = readAs<uint32_t>(b + 12);
    const uint8x16_t all = vcombine_u8(six(d, rest), six(m, rest >> 4));
    const float32x4_t by = vmulq_n_f32(halvesAt<2, 2>(b), SMALL);
    f.d[0][0] = vmulq_laneq_f32(smallFloats<0, 1>(all), by, 0);
    f.d[0][1] = vmulq_laneq_f32(smallFloats<4, 1>(all), by, 0);
    f.m[0][0] = vmulq_laneq_f32(smallFloats<8, 1>(all), by, 1);
    f.m[0][1] = vmulq_laneq_f32(smallFloats<12, 1>(all), by, 1);
  }
};
template <> struct FactorsOf<Q4_K, 1> : SixBits {};
template <> struct FactorsOf<Q5_K, 1> : SixBits {};
// Scales of first halves at even places, of second ones at odd ones.
template <int H> WICK_FN int8x8_t everySecond(int8x16_t v) {
  return vget_low_s8(H ? vuzp2q_s8(v, v) : vuzp1q_s8(v, v));
}
WICK_FN void putHalves(int8x16_t v, float by, float32x4_t (&to)[2][2]) {
  putFloats(eightOf(everySecond<0>(v)), by, to[0]);
  putFloats(eightOf(everySecond<1>(v)), by, to[1]);
}
template <> struct FactorsOf<Q2_K, 1> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    const uint8x16_t all = bytesAt(b), d = nibble<false>(all), m = nibble<true>(all);
    const float32x4_t by = vmulq_n_f32(halvesAt<2, 2>(b + 80), SMALL);
    f.d[0][0] = vmulq_laneq_f32(smallFloats<0, 2>(d), by, 0), f.d[0][1] = vmulq_laneq_f32(smallFloats<8, 2>(d), by, 0);
    f.d[1][0] = vmulq_laneq_f32(smallFloats<1, 2>(d), by, 0), f.d[1][1] = vmulq_laneq_f32(smallFloats<9, 2>(d), by, 0);
    f.m[0][0] = vmulq_laneq_f32(smallFloats<0, 2>(m), by, 1), f.m[0][1] = vmulq_laneq_f32(smallFloats<8, 2>(m), by, 1);
    f.m[1][0] = vmulq_laneq_f32(smallFloats<1, 2>(m), by, 1), f.m[1][1] = vmulq_laneq_f32(smallFloats<9, 2>(m), by, 1);
  }
};
template <> struct FactorsOf<Q3_K, 1> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    constexpr uint64_t FOUR = 0x0f0f0f0f0f0f0f0f, TWO = 0x0303030303030303;
    const uint64_t low = readAs<uint64_t>(b + 96), top = readAs<uint32_t>(b + 104), tops = top | top >> 2 << 32;
    const uint8x16_t six = vcombine_u8(vcreate_u8((low & FOUR) | (tops & TWO) << 4),
                                       vcreate_u8((low >> 4 & FOUR) | (tops >> 4 & TWO) << 4));
    putHalves(vsubq_s8(vreinterpretq_s8_u8(six), vdupq_n_s8(32)), halfAt(b + 108), f.d);
  }
};
template <> struct FactorsOf<Q6_K, 1> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    putHalves(vreinterpretq_s8_u8(bytesAt(b + 192)), halfAt(b + 208), f.d);
  }
};
template <> struct FactorsOf<Q8_K, 1> {
  WICK_FN void read(const uint8_t* b, Factors& f) { f.d[0][0] = f.d[0][1] = vdupq_n_f32(readAs<float>(b)); }
};
template <> struct FactorsOf<IQ4_XS, 1> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    // Four bits of each in one word, two more in another.
    const int32x4_t low = vdupq_n_s32(readAs<int32_t>(b + 4)), high = vdupq_n_s32(readAs<uint16_t>(b + 2));
    const int32x4_t at = {0, 1, 2, 3};
    Eight e;
    for (int i = 0; i < 2; i++) {
      const int32x4_t place = vaddq_s32(at, vdupq_n_s32(4 * i));
      const int32x4_t four = vandq_s32(vshlq_s32(low, vmulq_n_s32(place, -4)), vdupq_n_s32(15));
      const int32x4_t two = vandq_s32(vshlq_s32(high, vmulq_n_s32(place, -2)), vdupq_n_s32(3));
      e.v[i] = vsubq_s32(vorrq_s32(four, vshlq_n_s32(two, 4)), vdupq_n_s32(32));
    }
    putFloats(e, halfAt(b), f.d[0]);
  }
};
template <int BLOCKS> struct FactorsOf<MXFP4, BLOCKS> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    uint64_t all = 0;
#pragma GCC unroll 8
    for (int i = 0; i < BLOCKS; i++) all |= (uint64_t)b[i * MXFP4::bytes] << 8 * i;
    const Eight e = eightOf(vcreate_u8(all));
    for (int i = 0; i < 2; i++) {  // half of 2^(e - 127)
      const int32x4_t tiny = vshlq_s32(vdupq_n_s32(0x00200000), e.v[i]),
                      normal = vshlq_n_s32(vsubq_s32(e.v[i], vdupq_n_s32(1)), 23);
      f.d[0][i] = vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e.v[i], vdupq_n_s32(2)), tiny, normal));
    }
  }
};
template <int BLOCKS> struct FactorsOf<NVFP4, BLOCKS> {
  WICK_FN void read(const uint8_t* b, Factors& f) {
    uint32_t words[4] = {};
    for (int i = 0; i < BLOCKS; i++) words[i] = readAs<uint32_t>(b + i * NVFP4::bytes) & 0x7f7f7f7f;
    const int8x16_t all = vreinterpretq_s8_u32(vld1q_u32(words));
    const Eight codes[2] = {eightOf(everySecond<0>(all)), eightOf(everySecond<1>(all))};
    for (int h = 0; h < 2; h++)
      for (int i = 0; i < 2; i++) {  // halved: the levels are doubled
        const int32x4_t code = codes[h].v[i];
        const float32x4_t tiny = vmulq_n_f32(vcvtq_f32_s32(code), 0x1p-10f);
        const int32x4_t normal = vaddq_s32(vshlq_n_s32(code, 20), vdupq_n_s32(119 << 23));
        const uint32x4_t bits =
            vbslq_u32(vcltq_s32(code, vdupq_n_s32(8)), vreinterpretq_u32_f32(tiny), vreinterpretq_u32_s32(normal));
        f.d[h][i] = vreinterpretq_f32_u32(vbicq_u32(bits, vceqq_s32(code, vdupq_n_s32(127))));
      }
  }
};
