// Part of portable.h: four signed bytes at a time, and 16-byte accesses.
#pragma once

// ---- four signed bytes at a time ----

/** c plus the products of the four signed bytes of a and b. */
WICK_FN i32 dp4a(i32 a, i32 b, i32 c) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  return __dp4a(a, b, c);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx1011__) || \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1034__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1200__) || defined(__gfx1201__)
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
  for (int i = 0; i < 32; i += 8) c += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
  return c;
#endif
}

// ---- 16-byte accesses ----

#if defined(WICK_NVIDIA)
typedef uint4 word4;
#else
typedef u32 word4 __attribute__((vector_size(16)));
#endif
/** Its four 32-bit words, and back; arrays of words stay in registers where arrays of bytes may not. */
WICK_FN void split_words(word4 v, u32* w) {
#if defined(WICK_NVIDIA)
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
#else
  w[0] = v[0], w[1] = v[1], w[2] = v[2], w[3] = v[3];
#endif
}
WICK_FN word4 join_words(const u32* w) {
  word4 v = {w[0], w[1], w[2], w[3]};
  return v;
}
/** How many S fit one 16-byte access. */
template <class S> constexpr int pack_size = 16 / sizeof(S);
/** What a pack is moved as: cut like its elements, for LLVM leaves a union of differently cut vectors in memory. */
template <int Bytes> struct PackWords { typedef word4 type; };
#if !defined(WICK_NVIDIA)
typedef u8 word_bytes __attribute__((vector_size(16)));
typedef u16 word_halves __attribute__((vector_size(16)));
template <> struct PackWords<1> { typedef word_bytes type; };
template <> struct PackWords<2> { typedef word_halves type; };
#endif
template <class S> union Pack {
  typename PackWords<sizeof(S)>::type words;
  S v[16 / sizeof(S)];
};
/** p must be 16-byte aligned. */
template <class S> WICK_FN Pack<S> load_pack(const S* p) {
  Pack<S> r;
  r.words = *(const decltype(r.words)*)p;
  return r;
}
template <class S> WICK_FN void store_pack(S* p, Pack<S> value) { *(decltype(value.words)*)p = value.words; }
WICK_FN bool aligned16(const void* p) { return ((u64)p & 15) == 0; }
