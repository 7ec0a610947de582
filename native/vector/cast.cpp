// Casts between all pairs of element types. Small floats pass through float; floats truncate and saturate to integers.
#include "isa.h"

namespace {
#include "runs.h"

constexpr int CHUNK = 256;

template <class From, class To> WICK_FN To convert(From v) {
  if constexpr (isFloating<From> && !isFloating<To>) {
    constexpr double lo = To(-1) < To(0) ? -(double)(1ull << (sizeof(To) * 8 - 1)) : 0.0;
    constexpr double hi =
        To(-1) < To(0) ? (double)(1ull << (sizeof(To) * 8 - 1)) : (double)(1ull << (sizeof(To) * 8 % 64));
    const To least = To(-1) < To(0) ? To(1ull << (sizeof(To) * 8 - 1)) : To(0);
    const To most = To(~least);
    double d = v;
    return d >= hi ? most : d > lo ? (To)d : d == d ? least : To(0);
  } else return (To)v;
}

// To a float that will be narrowed further.
template <class From> WICK_FN float convertSticky(From v) {
  if constexpr (Same<From, double>::value) return stickyFloat(v);
  else if constexpr (sizeof(From) == 8) {
    uint64_t a = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (a >> 53) a = (a & ~2047ull) | ((a & 2047) != 0 ? 1024 : 0);
    return stickyFloat(v < 0 ? -(double)a : (double)a);
  } else if constexpr (!isFloating<From>) return stickyFloat((double)v);
  else return v;
}

// ---- the loops: one for each type to or from float, one for each pair of others ----
#define WICK_LOOP __attribute__((noinline)) void
template <class From> WICK_LOOP toFloats(const From* from, float* to, int64_t n) {
  if constexpr (isSmallFloat<From>) widenRun(from, to, n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = convertSticky(from[i]);
}
template <class To> WICK_LOOP fromFloats(const float* from, To* to, int64_t n) {
  if constexpr (isSmallFloat<To>) narrowRun(from, to, n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = convert<float, To>(from[i]);
}
template <class From, class To> WICK_LOOP plain(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = convert<From, To>(from[i]);
}

template <class From, class To> void run(const void* const* in, void* out, int64_t n, const double*) {
  const From* from = static_cast<const From*>(in[0]);
  To* to = static_cast<To*>(out);
  if constexpr (Same<From, To>::value) __builtin_memcpy(to, from, n * sizeof(To));
  else if constexpr (isSmallFloat<From> && Same<To, float>::value) toFloats(from, to, n);
  else if constexpr (Same<From, float>::value) fromFloats(from, to, n);
  else if constexpr (isSmallFloat<From> || isSmallFloat<To>) {
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t m = n - i < CHUNK ? n - i : CHUNK;
      toFloats(from + i, wide, m);
      fromFloats(wide, to + i, m);
    }
  } else plain(from, to, n);
}

template <class From> void truths(const void* const* in, void* out, int64_t n, const double*) {
  const From* from = static_cast<const From*>(in[0]);
  uint8_t* to = static_cast<uint8_t*>(out);
  if constexpr (isSmallFloat<From>) {
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t m = n - i < CHUNK ? n - i : CHUNK;
      toFloats(from + i, wide, m);
      for (int64_t j = 0; j < m; j++) to[i + j] = wide[j] != 0;
    }
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = from[i] != 0;
  }
}

template <class From> void fill(wick::Kernel* row) {
  row[wick::U8] = run<From, uint8_t>;
  row[wick::U32] = run<From, uint32_t>;
  row[wick::I16] = run<From, int16_t>;
  row[wick::I32] = run<From, int32_t>;
  row[wick::I64] = run<From, int64_t>;
  row[wick::F8] = run<From, fp8>;
  row[wick::BF16] = run<From, bfloat>;
  row[wick::F16] = run<From, half>;
  row[wick::F32] = run<From, float>;
  row[wick::F64] = run<From, double>;
  row[wick::I8] = run<From, int8_t>;
  row[wick::BF8] = run<From, bf8>;
}

}  // namespace

extern "C" void WICK_EXPORT(wick_cast)(wick::IsaTable* t) {
  fill<uint8_t>(t->cast[wick::U8]);
  t->truth[wick::U8] = truths<uint8_t>;
  fill<uint32_t>(t->cast[wick::U32]);
  t->truth[wick::U32] = truths<uint32_t>;
  fill<int16_t>(t->cast[wick::I16]);
  t->truth[wick::I16] = truths<int16_t>;
  fill<int32_t>(t->cast[wick::I32]);
  t->truth[wick::I32] = truths<int32_t>;
  fill<int64_t>(t->cast[wick::I64]);
  t->truth[wick::I64] = truths<int64_t>;
  fill<fp8>(t->cast[wick::F8]);
  t->truth[wick::F8] = truths<fp8>;
  fill<bfloat>(t->cast[wick::BF16]);
  t->truth[wick::BF16] = truths<bfloat>;
  fill<half>(t->cast[wick::F16]);
  t->truth[wick::F16] = truths<half>;
  fill<float>(t->cast[wick::F32]);
  t->truth[wick::F32] = truths<float>;
  fill<double>(t->cast[wick::F64]);
  t->truth[wick::F64] = truths<double>;
  fill<int8_t>(t->cast[wick::I8]);
  t->truth[wick::I8] = truths<int8_t>;
  fill<bf8>(t->cast[wick::BF8]);
  t->truth[wick::BF8] = truths<bf8>;
}
