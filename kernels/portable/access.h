// Part of portable.h: four signed bytes at a time, and 16-byte accesses.
#pragma once

// ---- four signed bytes at a time ----

/** c plus the products of the four signed bytes of a and b. */
WICK_FN i32 dp4a(i32 a, i32 b, i32 c) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  return __dp4a(a, b, c);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) ||   \
    defined(__gfx1011__) || defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) || \
    defined(__gfx1032__) || defined(__gfx1034__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1200__) || \
    defined(__gfx1201__)
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
  for (int i = 0; i < 32; i += 8) c += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
  return c;
#endif
}

/**
 * The same where it is written: NVIDIA's compilers take the other apart from its loads, which suits long unrolled
 * products and harms short ones.
 */
WICK_FN i32 dp4a_here(i32 a, i32 b, i32 c) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
  i32 r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
#else
  return dp4a(a, b, c);
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
/** The elements of a pack as what they are computed in: two of 16 bits come out of a word by an instruction each. */
template <class S> WICK_FN void unpack(const Pack<S>& pack, compute_t<S> (&x)[pack_size<S>]) {
#ifdef WICK_NVIDIA
  if constexpr (same<S, bfloat> || same<S, half>) {
    u32 w[4];
    split_words(pack.words, w);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (same<S, bfloat>)
        x[2 * i] = bits_as<float>(w[i] << 16), x[2 * i + 1] = bits_as<float>(w[i] & 0xffff0000u);
      else
        asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
            : "=f"(x[2 * i]), "=f"(x[2 * i + 1])
            : "r"(w[i]));
    }
    return;
  }
#endif
#pragma unroll
  for (int v = 0; v < pack_size<S>; v++) x[v] = to_compute(pack.v[v]);
}
/** Back to storage, each element rounded once. */
template <class S> WICK_FN Pack<S> packed(const compute_t<S> (&x)[pack_size<S>]) {
  Pack<S> pack;
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (same<S, bfloat> || same<S, half>) {
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (same<S, bfloat>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
      else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    }
    pack.words = join_words(w);
    return pack;
  }
#endif
#pragma unroll
  for (int v = 0; v < pack_size<S>; v++) pack.v[v] = from_compute<S>(x[v]);
  return pack;
}
WICK_FN bool aligned16(const void* p) { return ((u64)p & 15) == 0; }
