// Our fast elementwise kernels: out[i] = f(in0[i], in1[i], ...), memory-bound, so all that matters is how bytes move.
//
// flat       everything contiguous (or one element for all): 16-byte accesses
// strided    any layout of up to 8 dimensions, passed by value with precomputed divisors; in groups of E elements where
//            the
//            innermost dimension allows, one by one else
// transpose  one input whose contiguous dimension is not the output's: tiles through shared memory
//
// f is a functor that src/kernels/elementwise.ts writes from rows of the op table; unused operands are None.
#include "portable.h"
#include "kept.h"
#include "table.h"

struct None {};

constexpr int MAX_DIMS = 8;
constexpr int BLOCK = 256;

/** Sizes, divisors and strides of all operands, the output first; below 2^31 elements everything fits 32 bits. */
struct Layout32 {
  u32 count, rank;
  u32 size[8];
  u32 magic[8];
  u32 shift[8];
  i32 stride[40];
};
struct Layout64 {
  u64 count, rank;
  u64 size[8];
  i64 stride[40];
};

// ---- groups: E neighbouring elements of one operand ----

template <int N> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef u64 type; };

/**
 * Held as 32-bit words and taken apart by shifts: compilers keep such arrays in registers. Elements are set in order.
 */
template <class S, int E> struct Group {
  static constexpr int words = (E * (int)sizeof(S) + 3) / 4, per = sizeof(S) < 4 ? 4 / (int)sizeof(S) : 1,
                       bits = 8 * (int)sizeof(S);
  u32 w[words];
  WICK_MEMBER S get(int i) const {
    typedef typename Word<sizeof(S)>::type B;
    if constexpr (sizeof(S) == 8) return bits_as<S>((u64)w[2 * i] | (u64)w[2 * i + 1] << 32);
    else return bits_as<S>((B)(w[i / per] >> (i % per * bits % 32)));
  }
  WICK_MEMBER void set(int i, S s) {
    const auto b = bits_as<typename Word<sizeof(S)>::type>(s);
    if constexpr (sizeof(S) == 8) w[2 * i] = (u32)b, w[2 * i + 1] = (u32)(b >> 32);
    else w[i / per] = i % per == 0 ? (u32)b : w[i / per] | (u32)b << (i % per * bits % 32);
  }
};
template <int E> struct Group<None, E> {};

template <class S> constexpr int bytes_of = sizeof(S);
template <> constexpr int bytes_of<None> = 0;
WICK_FN constexpr int larger(int a, int b) { return a > b ? a : b; }
/**
 * Elements a thread takes at once: 16 bytes of the output, so that stores fill whole lines, and at most 64 of the
 * largest operand.
 */
WICK_FN constexpr int group_elements(int out, int most) { return 16 / out * most > 64 ? 64 / most : 16 / out; }

template <class S, int E> constexpr int access_bytes = E* bytes_of<S> > 16 ? 16 : E* bytes_of<S>;

template <class S, int E> WICK_FN bool group_aligned(const S* p) {
  if constexpr (same<S, None>) return true;
  else return ((u64)p & (access_bytes<S, E> - 1)) == 0;
}
template <class S, int E> WICK_FN void load_group(Group<S, E>& g, const S* p) {
  if constexpr (!same<S, None>) {
    constexpr int bytes = E * bytes_of<S>;
    if constexpr (bytes >= 16) {
#pragma unroll
      for (int i = 0; i < bytes / 16; i++) split_words(((const word4*)p)[i], g.w + 4 * i);
    } else {
      const auto v = *(const typename Word<bytes>::type*)p;
      g.w[0] = (u32)v;
      if constexpr (bytes == 8) g.w[1] = (u32)(v >> 32);
    }
  }
}
template <class S, int E> WICK_FN void store_group(S* p, const Group<S, E>& g) {
  constexpr int bytes = E * bytes_of<S>;
  if constexpr (bytes >= 16) {
#pragma unroll
    for (int i = 0; i < bytes / 16; i++) ((word4*)p)[i] = join_words(g.w + 4 * i);
  } else if constexpr (bytes == 8) *(u64*)p = (u64)g.w[0] | (u64)g.w[1] << 32;
  else *(typename Word<bytes>::type*)p = (typename Word<bytes>::type)g.w[0];
}
/** The same element E times. */
template <class S, int E> WICK_FN void splat_group(Group<S, E>& g, const S* p) {
  if constexpr (!same<S, None>) {
    const S s = *p;
#pragma unroll
    for (int i = 0; i < E; i++) g.set(i, s);
  }
}
/** U groups from element `first` on, `apart` elements from one another. */
template <int U, class S, int E>
WICK_FN void load_groups(Group<S, E> (&g)[U], const S* p, bool scalar, u64 first, u32 apart) {
  if constexpr (!same<S, None>)
    if (!scalar) {
#pragma unroll
      for (int u = 0; u < U; u++) load_group<S, E>(g[u], p + first + (u64)u * apart);
    }
}
/** Or one element for them all. */
template <int U, class S, int E> WICK_FN void splat_groups(Group<S, E> (&g)[U], const S* p, bool scalar) {
  if constexpr (!same<S, None>)
    if (scalar) {
      splat_group<S, E>(g[0], p);
#pragma unroll
      for (int u = 1; u < U; u++) g[u] = g[0];
    }
}
template <class S, int E> WICK_FN S element(const Group<S, E>& g, int i) {
  if constexpr (same<S, None>) return None();
  else return g.get(i);
}
/** The element at p, which then moves on. */
template <class S> WICK_FN S next_element(const S*& p, u32 step) {
  if constexpr (same<S, None>) return None();
  else {
    const S s = *p;
    p += step;
    return s;
  }
}
template <class S> WICK_FN const S* from_element(const S* p, u64 at) {
  if constexpr (same<S, None>) return p;
  else return p + at;
}

// ---- flat ----

/** U groups of every operand at once, and the results. */
template <int U, int E, bool SCALARS, class F, class D, class S0, class S1, class S2, class S3>
WICK_FN void flat_groups(F f, u64 first, u32 apart, u32 scalars, D* out, const S0* p0, const S1* p1, const S2* p2,
                         const S3* p3) {
  Group<S0, E> g0[U];
  Group<S1, E> g1[U];
  Group<S2, E> g2[U];
  Group<S3, E> g3[U];
  const bool s0 = SCALARS && scalars & 1, s1 = SCALARS && scalars & 2, s2 = SCALARS && scalars & 4,
             s3 = SCALARS && scalars & 8;
  load_groups<U, S0, E>(g0, p0, s0, first, apart);
  load_groups<U, S1, E>(g1, p1, s1, first, apart);
  load_groups<U, S2, E>(g2, p2, s2, first, apart);
  load_groups<U, S3, E>(g3, p3, s3, first, apart);
  splat_groups<U, S0, E>(g0, p0, s0);
  splat_groups<U, S1, E>(g1, p1, s1);
  splat_groups<U, S2, E>(g2, p2, s2);
  splat_groups<U, S3, E>(g3, p3, s3);
#pragma unroll
  for (int u = 0; u < U; u++) {
    Group<D, E> r;
#pragma unroll
    for (int i = 0; i < E; i++) r.set(i, f(element(g0[u], i), element(g1[u], i), element(g2[u], i), element(g3[u], i)));
    store_group<D, E>(out + first + (u64)u * apart, r);
  }
}

/** Among the bits that say which operands are one element: blocks go from the end. */
constexpr u32 BACKWARDS = 1u << 31;
/**
 * BLOCK threads, each with up to IN_FLIGHT bytes of every operand: few where memory is all that matters, more where
 * arithmetic has to be hidden. Launches of operands larger than a cache go by turns from their beginning and from their
 * end, where the cache still holds what the launch before has touched last.
 */
template <int BLOCK, int IN_FLIGHT, class F, class D, class S0, class S1, class S2, class S3>
WICK_FN void flat(F f, u64 n, u32 scalars, D* out, const S0* p0, const S1* p1, const S2* p2, const S3* p3) {
  const bool backwards = scalars & BACKWARDS;
  scalars &= ~BACKWARDS;
  constexpr int most =
      larger(larger(bytes_of<D>, bytes_of<S0>), larger(bytes_of<S1>, larger(bytes_of<S2>, bytes_of<S3>)));
  constexpr int E = group_elements(bytes_of<D>, most);
  constexpr int U = larger(1, IN_FLIGHT / (E * most));
  constexpr u64 tile = (u64)BLOCK * E * U;
  const u64 base = (backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * tile;
  const bool s0 = scalars & 1, s1 = scalars & 2, s2 = scalars & 4, s3 = scalars & 8;
  const bool aligned = group_aligned<D, E>(out) && (s0 || group_aligned<S0, E>(p0)) &&
                       (s1 || group_aligned<S1, E>(p1)) && (s2 || group_aligned<S2, E>(p2)) &&
                       (s3 || group_aligned<S3, E>(p3));
  const bool whole = aligned && base + tile <= n;
  const u64 first = base + threadIdx.x * E;
  // A choice between a group and one element makes compilers wait for an operand before they ask for the next: so all
  // groups come before all single elements, and where there is nothing to choose, nothing is.
  if (whole && scalars == 0) flat_groups<U, E, false>(f, first, BLOCK * E, 0, out, p0, p1, p2, p3);
  else if (!same<S1, None> && whole) {
    if constexpr (!same<S1, None>) flat_groups<U, E, true>(f, first, BLOCK * E, scalars, out, p0, p1, p2, p3);
  } else {
    // Steps rather than choices inside: compilers make a loop for every choice.
    const u64 from = base + threadIdx.x, end = base + tile < n ? base + tile : n;
    const u32 step0 = s0 ? 0 : BLOCK, step1 = s1 ? 0 : BLOCK, step2 = s2 ? 0 : BLOCK, step3 = s3 ? 0 : BLOCK;
    p0 = from_element(p0, s0 ? 0 : from), p1 = from_element(p1, s1 ? 0 : from), p2 = from_element(p2, s2 ? 0 : from),
    p3 = from_element(p3, s3 ? 0 : from);
    ROLLED
    for (u64 at = from; at < end; at += BLOCK)
      out[at] = f(next_element(p0, step0), next_element(p1, step1), next_element(p2, step2), next_element(p3, step3));
  }
}

// ---- strided ----

/**
 * Element offsets of N operands at U positions of the layout; i is used up. Rolled: a copy for each dimension there may
 * be is more code than the rest of the kernel.
 */
template <int N, int U> WICK_FN void offsets(const Layout32& l, u32 (&i)[U], i64 (&at)[U][N]) {
  i32 sum[U][N] = {};
#pragma unroll 2
  for (int d = (int)l.rank - 1; d >= 0; d--) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      // Division by a constant prepared on the host; exact below 2^31.
      const u32 q = (mulhi32(i[u], l.magic[d]) + i[u]) >> l.shift[d], r = i[u] - q * l.size[d];
#pragma unroll
      for (int k = 0; k < N; k++) sum[u][k] += (i32)r * l.stride[k * MAX_DIMS + d];
      i[u] = q;
    }
  }
#pragma unroll
  for (int u = 0; u < U; u++)
#pragma unroll
    for (int k = 0; k < N; k++) at[u][k] = sum[u][k];
}
template <int N, int U> WICK_FN void offsets(const Layout64& l, u64 (&i)[U], i64 (&at)[U][N]) {
#pragma unroll
  for (int u = 0; u < U; u++)
#pragma unroll
    for (int k = 0; k < N; k++) at[u][k] = 0;
  ROLLED
  for (int d = (int)l.rank - 1; d >= 0; d--) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      const u64 q = i[u] / l.size[d], r = i[u] - q * l.size[d];
#pragma unroll
      for (int k = 0; k < N; k++) at[u][k] += (i64)r * l.stride[k * MAX_DIMS + d];
      i[u] = q;
    }
  }
}

/**
 * In groups of E along the innermost dimension; `splats` are operands that do not move along it. The layout counts
 * groups.
 */
template <int E, class L, class F, class D, class S0, class S1, class S2, class S3>
WICK_FN void strided(F f, const L& l, u32 splats, D* out, const S0* p0, const S1* p1, const S2* p2, const S3* p3) {
  constexpr int N = 1 + !same<S0, None> + !same<S1, None> + !same<S2, None> + !same<S3, None>;
  constexpr int U = E == 1 ? 4 : 2;
  const u64 base = (u64)blockIdx.x * (BLOCK * U) + threadIdx.x;
  if (base >= l.count) return;
  Group<S0, E> g0[U];
  Group<S1, E> g1[U];
  Group<S2, E> g2[U];
  Group<S3, E> g3[U];
  decltype(L::count) i[U];
  i64 at[U][N];
#pragma unroll
  // past the end: what this thread has read already
  for (int u = 0; u < U; u++) i[u] = base + (u64)u * BLOCK < l.count ? base + (u64)u * BLOCK : base;
  offsets(l, i, at);
#pragma unroll
  for (int u = 0; u < U; u++) {
    if constexpr (N > 1) {
      if (E == 1 || (splats & 1)) splat_group<S0, E>(g0[u], p0 + at[u][1]);
      else load_group<S0, E>(g0[u], p0 + at[u][1]);
    }
    if constexpr (N > 2) {
      if (E == 1 || (splats & 2)) splat_group<S1, E>(g1[u], p1 + at[u][2]);
      else load_group<S1, E>(g1[u], p1 + at[u][2]);
    }
    if constexpr (N > 3) {
      if (E == 1 || (splats & 4)) splat_group<S2, E>(g2[u], p2 + at[u][3]);
      else load_group<S2, E>(g2[u], p2 + at[u][3]);
    }
    if constexpr (N > 4) {
      if (E == 1 || (splats & 8)) splat_group<S3, E>(g3[u], p3 + at[u][4]);
      else load_group<S3, E>(g3[u], p3 + at[u][4]);
    }
  }
#pragma unroll
  for (int u = 0; u < U; u++) {
    if (base + (u64)u * BLOCK >= l.count) break;
    Group<D, E> r;
#pragma unroll
    for (int i = 0; i < E; i++) r.set(i, f(element(g0[u], i), element(g1[u], i), element(g2[u], i), element(g3[u], i)));
    store_group<D, E>(out + at[u][0], r);
  }
}

// ---- transpose ----

/**
 * out[b][r][c] = f(in[b][r][c]) where the output is contiguous along c and the input along r. Other dimensions are
 * batches.
 * With E > 1, both sides move E elements at once, and rows and columns are multiples of E.
 */
template <int E, class F, class D, class S>
WICK_FN void transpose(F f, const Layout64& batch, u32 rows, u32 columns, i64 out_row, i64 in_column, D* out,
                       const S* in) {
  constexpr int TILE = larger(bytes_of<D>, bytes_of<S>) > 4 ? 32 : 64;
  constexpr int GROUPS = TILE / E, STEP = BLOCK / GROUPS;
  __shared__ D tile[TILE][TILE + 4 / (int)sizeof(D) + (sizeof(D) > 4)];
  const u32 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
  const u32 tiles = across * down, b = blockIdx.x / tiles, t = blockIdx.x - b * tiles;  // no more than blocks
  const u32 row0 = t / across * TILE, column0 = t % across * TILE;
  ROLLED
  for (u32 d = (u32)batch.rank, i = b; d-- > 0;) {
    const u32 q = i / (u32)batch.size[d], r = i - q * (u32)batch.size[d];
    out += (i64)r * batch.stride[d];
    in += (i64)r * batch.stride[MAX_DIMS + d];
    i = q;
  }
  const u32 g = threadIdx.x % GROUPS * E, line = threadIdx.x / GROUPS;
#pragma unroll
  for (int k = 0; k < TILE; k += STEP) {
    const u32 r = row0 + g, c = column0 + line + k;
    if (r < rows && c < columns) {
      Group<S, E> x;
      load_group<S, E>(x, in + (i64)c * in_column + r);
#pragma unroll
      for (int i = 0; i < E; i++) tile[line + k][g + i] = f(x.get(i), None(), None(), None());
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < TILE; k += STEP) {
    const u32 r = row0 + line + k, c = column0 + g;
    if (r < rows && c < columns) {
      Group<D, E> y;
#pragma unroll
      for (int i = 0; i < E; i++) y.set(i, tile[g + i][line + k]);
      store_group<D, E>(out + (i64)r * out_row + c, y);
    }
  }
}
