// Attention of one new token through matrix units, for up to eight query heads of 16 bits that share a key.
//
// What such a step takes is latency. Each new vector is normed and turned once, by a few lanes for all waves; nothing
// else passes through shared memory before all is weighed: a wave takes 8 KB of keys and 8 KB of values at a time from
// memory to registers, and keeps scores where the next product wants them. The order in which a product adds does not
// matter as long as both operands agree on it, so a lane keeps the 16 bytes that it has read.
#pragma once
#include "attention-split.h"
#include "decode.h"
#include "matrix.h"
#include "new-token.h"

/** Steps of a block up to which keys are not split: to join splits takes as long. */
constexpr int UNITS_ALONE = 2;

/** Four floats as one word. */
WICK_FN word4 four_floats(float a, float b, float c, float d) {
  const u32 bits[4] = {bits_as<u32>(a), bits_as<u32>(b), bits_as<u32>(c), bits_as<u32>(d)};
  return join_words(bits);
}
/** The j-th numbers of two lists of eight, side by side. */
WICK_FN u32 side_by_side(const u32 (&a)[4], const u32 (&b)[4], int j) {
  return j % 2 ? a[j / 2] >> 16 | (b[j / 2] & 0xffff0000u) : (a[j / 2] & 0xffffu) | b[j / 2] << 16;
}

/** Blocks of a cluster, which are all splits of a key head and read each other's shared memory. */
constexpr int CLUSTER = 8;
#ifdef WICK_NVIDIA
WICK_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
WICK_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/** What lies at p in the shared memory of one of these blocks. */
WICK_FN u32 cluster_address(const float* p, u32 part) {
  u32 at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(p)), "r"(part));
  return at;
}
WICK_FN float cluster_float(const float* p, u32 part) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(cluster_address(p, part)) : "memory");
  return value;
}
WICK_FN word4 cluster_word(const float* p, u32 part) {
  word4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(cluster_address(p, part))
               : "memory");
  return v;
}
#else
// Other targets have no clusters; these are never run there.
WICK_FN void cluster_arrive() {}
WICK_FN void cluster_wait() {}
WICK_FN float cluster_float(const float* p, u32) { return *p; }
WICK_FN word4 cluster_word(const float* p, u32) { return *(const word4*)p; }
#endif

template <class T, int D, int Waves, bool PAGED> struct NewTokenUnits {
  static constexpr int Threads = 32 * Waves;
  /** Groups of eight keys that a wave has at a time, and keys that a block has. */
  static constexpr int Tiles = 256 / D, Step = 8 * Tiles * Waves;
  /** Query heads at most, and words of a value that a lane has. */
  static constexpr int Rows = D > 128 ? 4 : 8, Words = D / 64;
  /** Lanes that norm and turn a vector, eight numbers each. */
  static constexpr int Lanes = D / 8;
  struct Memory {
    float outputs[Waves][Rows][D + 4];  // unevenly, or lanes would meet in the same banks
    /** The best score of each wave and head, and the sum of weights. */
    float merged[Waves][Rows][2];
    /** The new queries, normed and turned, and the new key. */
    word4 turned[Rows + 1][Lanes];
    u32 before;
    /** Of each head, the logarithm of what the block's part weighs. */
    float weighed[Rows];
  };
  /** Of a query or key: 32 numbers after another, of which a lane has eight. */
  using Vector = word4[D / 32];
  using Keys = word4[Tiles][D / 32];
  /** Of keys 2 pair and 2 pair + 1 of a group: 64 numbers after another, of which a lane has eight. */
  using Values = word4[Tiles][2][Words];
  /** Rows of a product are numbers of values, eight of a lane's first half and eight of its second; columns heads. */
  using Sums = float[D / 16][4];
  /** A wave's best score and its sum of weights, of head `cell`. */
  struct Weight {
    float top, sum;
  };

  const NewToken& p;
  Memory& memory;
  const int wave = threadIdx.x / 32, cell = threadIdx.x % 32 / 4, pair = threadIdx.x % 4;  // of a product's 8 x 4
  const int share = p.heads / p.kv_heads, blocks = (share + Rows - 1) / Rows;
  const int kv_head = blockIdx.y / blocks, among = blockIdx.y % blocks * Rows, head0 = kv_head * share + among;
  const int count = share - among < Rows ? share - among : Rows;  // heads of this block
  // Written two launches before this one or earlier, so it may be read early.
  const int sequence = blockIdx.z, sequences = gridDim.z, position = p.state[sequences + sequence];
  const int start = p.window && position >= p.window ? position - p.window + 1 : 0, seen = position - start;
  const int split = blockIdx.x, splits = gridDim.x, parts = seen <= UNITS_ALONE * Step ? 1 : splits;
  const int each = ((seen + parts - 1) / parts + 8 * Waves - 1) / (8 * Waves) * (8 * Waves);
  const int active = each == 0 ? 1 : (seen + each - 1) / each;
  const int begin = start + split * each, end = begin + each < position ? begin + each : position;
  const bool newest = split == active - 1;
  // The new key is taken by the first wave that has no other, or by the last; those after it have nothing.
  const int taker = end - begin < 8 * (Waves - 1) ? (end - begin + 7) / 8 : Waves - 1;
  const float unit = p.scale * 1.44269504f;  // from a score to a power of two
  const i64 pitch = (PAGED ? (i64)p.kv_heads : 1) * D, base = (i64)kv_head * (PAGED ? 1 : p.room) * D;

  /** The row of key j, or of a key that is there where it is not wanted. */
  WICK_MEMBER i32 row_of(int j) const {
    if constexpr (!PAGED) return j;
    if (j >= end) return 0;
    const i32 page = p.table[sequence * p.width + (j >> p.page_shift)];
    return page << p.page_shift | (j & ((1 << p.page_shift) - 1));
  }
  /** Asks for the keys of a step, a step ahead of their use. */
  WICK_MEMBER void fetch_keys(Keys& keys, i32 (&rows)[Tiles], int j0) const {
#pragma unroll
    for (int n = 0; n < Tiles; n++) {
      const int j = j0 + 8 * Waves * n + cell;
      rows[n] = row_of(j);
      const T* at = (const T*)p.keys + base + rows[n] * pitch + 8 * pair;
#pragma unroll
      for (int c = 0; c < D / 32; c++) keys[n][c] = load_once_if<true>(j < end, (const word4*)(at + 32 * c));
    }
  }
  /** The same of values; `rows` are those of the keys. */
  WICK_MEMBER void fetch_values(Values& values, const i32 (&rows)[Tiles], int j0) const {
#pragma unroll
    for (int n = 0; n < Tiles; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int j = j0 + 8 * Waves * n + 2 * pair + i;
        const i64 row = PAGED ? shfl(rows[n], 8 * pair + 4 * i, 32) : j;
        const T* at = (const T*)p.values + base + row * pitch + 8 * cell;
#pragma unroll
        for (int w = 0; w < Words; w++) values[n][i][w] = load_once_if<true>(j < end, (const word4*)(at + 64 * w));
      }
  }
  /** What a lane norms and turns its eight numbers of a new vector by; it was written early, too. */
  struct Turn {
    Eight<float> norm;
    word4 cos, sin;
  };
  WICK_MEMBER Turn fetch_turn(int vector, int lane) const {
    const i64 at = (i64)position * (D / 2) + lane % (Lanes / 2) * 8;
    const float* const norm = vector < count ? p.q_norm : p.k_norm;
    return {load_eight_if<true>(norm != nullptr, norm + 8 * lane),
            load_once_if<true>(true, (const word4*)((const T*)p.cos + at)),
            load_once_if<true>(true, (const word4*)((const T*)p.sin + at))};
  }
  /** A new query, key or value from a lane's first number on. */
  WICK_MEMBER const T* new_vector(int vector, int lane) const {
    return made((const T*)p.qkv + ((i64)sequence * (p.heads + 2 * p.kv_heads) + vector) * D + 8 * lane);
  }
  /** So many words of it, so many numbers apart, where it is wanted, else zeros. */
  template <int Apart, int N> WICK_MEMBER void take(word4 (&x)[N], bool in, const T* at) const {
#pragma unroll
    for (int c = 0; c < N; c++) x[c] = in ? *(const word4*)(at + Apart * c) : word4{};
  }

  /** Eight numbers to the word that holds them. */
  WICK_MEMBER word4 packed(const float (&v)[8]) const {
    u32 words[4];
#pragma unroll
    for (int e = 0; e < 4; e++) words[e] = pack_pair<T>(v[2 * e], v[2 * e + 1]);
    return join_words(words);
  }
  /** Norms and turns a vector that `Lanes` lanes hold, one half against the other. */
  WICK_MEMBER word4 turned(word4 x, const Turn& by, int lane) const {
    float v[8], other[8], c[8], s[8];
    if (p.q_norm) {
      float squares = 0, norm[8];
      unpack_eight(Eight<T>{{x}}, v), unpack_eight(by.norm, norm);
#pragma unroll
      for (int e = 0; e < 8; e++) squares = fmag(v[e], v[e], squares);
#pragma unroll
      for (int m = Lanes / 2; m; m /= 2) squares += shfl_xor(squares, m, Lanes);
      const float factor = rsqrtg(squares / (float)D + p.eps);
#pragma unroll
      for (int e = 0; e < 8; e++) v[e] *= factor * norm[e];
      x = packed(v);
    }
    u32 words[4];
    split_words(x, words);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = shfl_xor(words[i], Lanes / 2, Lanes);
    unpack_eight(Eight<T>{{x}}, v), unpack_eight(Eight<T>{{join_words(words)}}, other);
    unpack_eight(Eight<T>{{by.cos}}, c), unpack_eight(Eight<T>{{by.sin}}, s);
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] = v[e] * c[e] + (lane < Lanes / 2 ? -other[e] : other[e]) * s[e];
    return packed(v);
  }
  /** A lane's words of a vector that was turned; zeros of one that there is not. */
  WICK_MEMBER void take_turned(Vector& x, bool in, int vector) const {
#pragma unroll
    for (int c = 0; c < D / 32; c++) x[c] = in ? memory.turned[vector][4 * c + pair] : word4{};
  }
  /** Puts a word of the new key or value to its place in the cache, by one of the blocks that have it. */
  WICK_MEMBER void store(void* cache, int word, word4 x) const {
    const i32 place = PAGED ? p.state[2 * sequences + sequence] : position;
    if (among == 0 && place != Limits<i32>::highest()) *(word4*)((T*)cache + base + place * pitch + 8 * word) = x;
  }

  /** A cap on dot * scale, of which the scale is taken out again. */
  WICK_MEMBER float capped(float dot) const {
    const float limit = p.softcap / p.scale, by = p.scale / p.softcap;
    return limit * tanhg(dot * by);
  }
  /** A wave begins with the new key, which weighs 1, and its value. */
  WICK_MEMBER Weight begin_with(const Vector& query, const Vector& key, const word4 (&value)[Words], Sums& sums) const {
    float score[4] = {};
    score_tile(score, query, key);
    float dot = shfl(score[0], 4 * cell, 32);  // of the first key, the others being zeros
    float v[D / 8];
#pragma unroll
    for (int w = 0; w < Words; w++) {
      float eight[8];
      unpack_eight(Eight<T>{{value[w]}}, eight);
#pragma unroll
      for (int e = 0; e < 8; e++) v[8 * w + e] = eight[e];
    }
#pragma unroll
    for (int d = 0; d < D / 16; d++)
#pragma unroll
      for (int i = 0; i < 4; i++) sums[d][i] = v[d + i / 2 * (D / 16)];
    if (p.softcap > 0) dot = capped(dot);
    return {dot * unit, pair == 0 ? 1.0f : 0.0f};
  }

  /** Scores of eight keys and all heads: queries are the left operand, of which eight rows at most are anything. */
  WICK_MEMBER void score_tile(float (&score)[4], const Vector& query, const Vector& key) const {
#pragma unroll
    for (int c = 0; c < D / 32; c++) {
      u32 q[4], k[4];
      split_words(query[c], q), split_words(key[c], k);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        Frag left = {};
        left.w[0] = q[2 * h], left.w[2] = q[2 * h + 1];
        multiply_narrow<T>(score, left, k[2 * h], k[2 * h + 1]);
      }
    }
  }
  /** From the scores of a step to its weights, and what was weighed before to the best score now. */
  template <int N>
  WICK_MEMBER void weigh(float (&score)[N][4], u32 (&weights)[N], Weight& so_far, Sums& sums, int j0) const {
    float best = so_far.top;
    if (p.softcap > 0)
#pragma unroll
      for (int n = 0; n < 2 * N; n++) score[n / 2][n % 2] = capped(score[n / 2][n % 2]);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const bool in = j0 + 8 * Waves * n + 2 * pair + i < end;
        score[n][i] = in ? score[n][i] * unit : Limits<float>::lowest();
        best = fmaxf(best, score[n][i]);
      }
    best = fmaxf(best, shfl_xor(best, 1, 4));
    best = fmaxf(best, shfl_xor(best, 2, 4));
    // -infinity less itself would be NaN
    const float shift = best == Limits<float>::lowest() ? 0 : best, keep = fast_exp2(so_far.top - shift);
    so_far.sum *= keep;
#pragma unroll
    for (int n = 0; n < N; n++) {
      const float a = fast_exp2(score[n][0] - shift), b = fast_exp2(score[n][1] - shift);
      so_far.sum += a + b;
      weights[n] = pack_pair<T>(a, b);
    }
    if (ballot64(best != so_far.top)) {
      // Sums are of heads 2 pair and 2 pair + 1.
      const float factors[2] = {shfl(keep, 8 * pair, 32), shfl(keep, 8 * pair + 4, 32)};
#pragma unroll
      for (int d = 0; d < D / 16; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[d][i] *= factors[i % 2];
    }
    so_far.top = best;
  }
  /** Values lie by keys, and the product wants pairs of keys: two rows are woven into one. */
  template <int N> WICK_MEMBER void add_values(Sums& sums, const Values& values, const u32 (&weights)[N]) const {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      u32 words[2][2][Words][4] = {};
#pragma unroll
      for (int t = 0; t < 2 && n + t < N; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
          for (int w = 0; w < Words; w++) split_words(values[n + t][i][w], words[t][i][w]);
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        Frag left;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int x = d + i % 2 * (D / 16);
          left.w[i] = side_by_side(words[i / 2][0][x / 8], words[i / 2][1][x / 8], x % 8);
        }
        multiply_narrow<T>(sums[d], left, weights[n], n + 1 < N ? weights[n + 1 < N ? n + 1 : n] : 0u);
      }
    }
  }
  /** Weighs the values of the first N groups of a step, and asks for the next step's where there is one. */
  template <int N>
  WICK_MEMBER void step(const Vector& query, Keys& keys, Values& values, i32 (&rows)[Tiles], Weight& so_far, Sums& sums,
                        int j0) const {
    const bool more = N == Tiles && j0 + Step < end;
    float score[N][4] = {};
    u32 weights[N];
#pragma unroll
    for (int n = 0; n < N; n++) score_tile(score[n], query, keys[n]);
    if (more) fetch_keys(keys, rows, j0 + Step);
    weigh(score, weights, so_far, sums, j0);
    add_values(sums, values, weights);
    if (more) fetch_values(values, rows, j0 + Step);
  }
  /** Weighs the values of this wave's keys. */
  WICK_MEMBER void attend(const Vector& query, Keys& keys, Values& values, i32 (&rows)[Tiles], Weight& so_far,
                          Sums& sums) const {
    constexpr int Few = Tiles > 1 ? Tiles / 2 : 1;
    UNROLL(1, 1)
    for (int j0 = begin + 8 * wave; j0 < end; j0 += Step) {
      if (Few < Tiles && end - j0 <= 8 * Waves * Few) step<Few>(query, keys, values, rows, so_far, sums, j0);
      else step<Tiles>(query, keys, values, rows, so_far, sums, j0);
    }
  }

  /** Lays a wave's sums open to the block. */
  WICK_MEMBER void show(const Sums& sums, Weight weight) const {
    weight.sum += shfl_xor(weight.sum, 1, 4);
    weight.sum += shfl_xor(weight.sum, 2, 4);
    if (pair == 0 && cell < count) memory.merged[wave][cell][0] = weight.top, memory.merged[wave][cell][1] = weight.sum;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int d = 0; d < D / 16; d += 4) {
        const int x = d + i / 2 * (D / 16), head = 2 * pair + i % 2;
        if (head < count)
          *(word4*)&memory.outputs[wave][head][x / 8 * 64 + 8 * cell + x % 8] =
              four_floats(sums[d][i], sums[d + 1][i], sums[d + 2][i], sums[d + 3][i]);
      }
    __syncthreads();
  }
  /** Joins what so many laid open; write(head, number, four results, the best score, the sum of weights). */
  template <class F> WICK_MEMBER void join(int laid, F write) const {
    UNROLL(1, 1)
    for (int t = threadIdx.x; t < count * (D / 4); t += Threads) {
      const int g = t / (D / 4), d = t % (D / 4) * 4;
      float best = Limits<float>::lowest(), total = 0, added[4] = {};
      UNROLL(1, 4)
      for (int w = 0; w < laid; w++) best = fmaxf(best, memory.merged[w][g][0]);
      const float shift = best == Limits<float>::lowest() ? 0 : best;
      UNROLL(1, 4)
      for (int w = 0; w < laid; w++) {
        const float factor = fast_exp2(memory.merged[w][g][0] - shift);
        total = fmaf(factor, memory.merged[w][g][1], total);
        u32 bits[4];
        split_words(*(const word4*)&memory.outputs[w][g][d], bits);
#pragma unroll
        for (int e = 0; e < 4; e++) added[e] = fmaf(factor, bits_as<float>(bits[e]), added[e]);
      }
      const float by = total == 0 ? 0 : 1 / total;
#pragma unroll
      for (int e = 0; e < 4; e++) added[e] *= by;
      write(g, d, added, best, total);
    }
  }
  WICK_MEMBER void write_result(int laid) const {
    T* const out = (T*)p.out + ((i64)sequence * p.heads + head0) * D;
    join(laid, [&](int g, int d, const float(&x)[4], float, float) {
      u32* const to = (u32*)(out + g * D + d);
      to[0] = pack_pair<T>(x[0], x[1]), to[1] = pack_pair<T>(x[2], x[3]);
    });
  }

  // Results of splits, (sequences, heads, splits, D), then the logarithms of what they weigh.
  WICK_MEMBER i64 part_of(int g, int s) const { return ((i64)(sequence * p.heads + head0 + g)) * splits + s; }
  WICK_MEMBER float* weighed() const { return p.partial + (i64)sequences * p.heads * splits * D; }
  WICK_MEMBER void write_part() const {
    join(taker + 1, [&](int g, int d, const float(&x)[4], float best, float total) {
      const i64 part = part_of(g, split);
      *(word4*)(p.partial + part * D + d) = four_floats(x[0], x[1], x[2], x[3]);
      if (d == 0) weighed()[part] = best + logg(total) * 1.44269504f;
    });
  }
  /** Lays the block's part open to its cluster: a thread reads no other numbers of the waves than it writes. */
  WICK_MEMBER void show_part() const {
    join(taker + 1, [&](int g, int d, const float(&x)[4], float best, float total) {
      *(word4*)&memory.outputs[0][g][d] = four_floats(x[0], x[1], x[2], x[3]);
      if (d == 0) memory.weighed[g] = best + logg(total) * 1.44269504f;
    });
  }
  /** Joins the parts of a cluster and writes the result. */
  WICK_MEMBER void join_cluster() const {
    T* const out = (T*)p.out + ((i64)sequence * p.heads + head0) * D;
    UNROLL(1, 1)
    for (int t = threadIdx.x; t < count * (D / 4); t += Threads) {
      const int g = t / (D / 4), d = t % (D / 4) * 4;
      word4 x[CLUSTER];
      float weight[CLUSTER], top = Limits<float>::lowest(), sum = 0, added[4] = {};
#pragma unroll
      for (int s = 0; s < CLUSTER; s++) {
        x[s] = cluster_word(&memory.outputs[0][g][d], s < active ? s : 0);
        weight[s] = cluster_float(&memory.weighed[g], s < active ? s : 0);
      }
#pragma unroll
      for (int s = 0; s < CLUSTER; s++) top = s < active ? fmaxf(top, weight[s]) : top;
      const float shift = top == Limits<float>::lowest() ? 0 : top;
#pragma unroll
      for (int s = 0; s < CLUSTER; s++) {
        const float share = s < active ? fast_exp2(weight[s] - shift) : 0.0f;
        u32 bits[4];
        split_words(x[s], bits);
        sum += share;
#pragma unroll
        for (int e = 0; e < 4; e++) added[e] = fmaf(share, bits_as<float>(bits[e]), added[e]);
      }
      const float by = sum == 0 ? 0 : 1 / sum;
      u32* const to = (u32*)(out + g * D + d);
      to[0] = pack_pair<T>(added[0] * by, added[1] * by), to[1] = pack_pair<T>(added[2] * by, added[3] * by);
    }
  }
  /** Joins all splits, which are a cluster. */
  WICK_MEMBER void share_parts() const {
    show_part();
    cluster_arrive(), cluster_wait();
    if (split == 0) join_cluster();
    // Parts stay until they are read.
    cluster_arrive();
    if (split != 0) cluster_wait();
  }
  /** Whether this block came last, and so finds the parts of all others. */
  WICK_MEMBER bool comes_last() const {
    __syncthreads();
    u32* const arrived = p.arrived + sequence * gridDim.y + blockIdx.y;
    if (threadIdx.x == 0) memory.before = arrive_together(arrived);
    __syncthreads();
    if (memory.before != (u32)active - 1) return false;
    if (threadIdx.x == 0) *arrived = 0;
    return true;
  }
  /**
   * Waves add the splits, so many numbers at a time as a wave reads at once: those that have the same numbers share the
   * splits, and lay open what they have. Their number is the result.
   */
  WICK_MEMBER int add_parts() const {
    constexpr int Ahead = 8;
    const int columns = (count * (D / 4) + 31) / 32, tracks = columns < Waves ? Waves / columns : 1;
    const int track = columns < Waves ? wave / columns : 0;
    UNROLL(1, 1)
    for (int t = (wave - track * columns) * 32 + threadIdx.x % 32; t < count * (D / 4); t += 32 * Waves) {
      if (track >= tracks) break;
      const int g = t / (D / 4), d = t % (D / 4) * 4;
      float top = Limits<float>::lowest(), sum = 0, added[4] = {};
      UNROLL(1, 1)
      for (int s0 = track; s0 < active; s0 += Ahead * tracks) {
        word4 x[Ahead];
        float weight[Ahead], best = top;
#pragma unroll
        for (int n = 0; n < Ahead; n++) {
          const int s = s0 + n * tracks;
          const i64 part = part_of(g, s < active ? s : s0);
          x[n] = *(const word4*)(p.partial + part * D + d);
          weight[n] = s < active ? weighed()[part] : Limits<float>::lowest();
        }
#pragma unroll
        for (int n = 0; n < Ahead; n++) best = fmaxf(best, weight[n]);
        const float shift = best == Limits<float>::lowest() ? 0 : best, keep = fast_exp2(top - shift);
        sum *= keep;
#pragma unroll
        for (int e = 0; e < 4; e++) added[e] *= keep;
#pragma unroll
        for (int n = 0; n < Ahead; n++) {
          const float share = fast_exp2(weight[n] - shift);
          u32 bits[4];
          split_words(x[n], bits);
          sum += share;
#pragma unroll
          for (int e = 0; e < 4; e++) added[e] = fmaf(share, bits_as<float>(bits[e]), added[e]);
        }
        top = best;
      }
      *(word4*)&memory.outputs[track][g][d] = four_floats(added[0], added[1], added[2], added[3]);
      if (d == 0) memory.merged[track][g][0] = top, memory.merged[track][g][1] = sum;
    }
    __syncthreads();
    return tracks;
  }
};

template <class T, int D, int Waves, bool PAGED, bool Cluster> WICK_FN void decode_attention_units(const NewToken& p) {
  using Block = NewTokenUnits<T, D, Waves, PAGED>;
  __shared__ __attribute__((aligned(16))) typename Block::Memory memory;
  const Block block{p, memory};
  if (block.split >= block.active) return;
  // Keys of earlier tokens are asked for before the new query is there.
  constexpr int Lanes = Block::Lanes, Slots = Block::Threads / Lanes;
  const int vectors = block.count + block.newest, lane = threadIdx.x % Lanes;
  int vector = threadIdx.x / Lanes;
  typename Block::Turn by = block.fetch_turn(vector, lane);
  typename Block::Keys keys;
  typename Block::Values values;
  i32 rows[Block::Tiles];
  const int first = block.begin + 8 * block.wave;
  block.fetch_keys(keys, rows, first), block.fetch_values(values, rows, first);
  const bool takes_new = block.newest && block.wave == block.taker;
  const int new_key = p.heads + block.kv_head, new_value = new_key + p.kv_heads;
  auto vector_at = [&](int v) { return block.new_vector(v < block.count ? block.head0 + v : new_key, lane); };
  const T* const first_at = vector_at(vector);
  const T* const value_at = block.new_vector(new_value, block.cell);
  begin_in_turn();

  word4 value[Block::Words];
  block.template take<64>(value, takes_new, value_at);
  word4 fresh = *(const word4*)first_at;
  UNROLL(1, 1)
  for (int done = block.wave * (32 / Lanes); done < vectors; done += Slots) {
    if (done >= Slots) by = block.fetch_turn(vector, lane), fresh = *(const word4*)vector_at(vector);
    const word4 x = block.turned(fresh, by, lane);
    if (vector < vectors) memory.turned[vector][lane] = x;
    if (vector == block.count && block.newest) block.store(p.keys, lane, x);
    vector += Slots;
  }
  __syncthreads();
  typename Block::Vector query;
  block.take_turned(query, block.cell < block.count, block.cell);
  typename Block::Weight so_far{Limits<float>::lowest(), 0};
  typename Block::Sums sums = {};
  if (takes_new) {
    typename Block::Vector key;
    block.take_turned(key, block.cell == 0, block.count);
    so_far = block.begin_with(query, key, value, sums);
#pragma unroll
    for (int w = 0; w < Block::Words; w++)
      if (block.pair == 0) block.store(p.values, 8 * w + block.cell, value[w]);
  }
  block.attend(query, keys, values, rows, so_far, sums);
  block.show(sums, so_far);
  int laid = block.taker + 1;
  if (Cluster && block.active > 1) {
    if constexpr (Cluster) block.share_parts();
    return;
  }
  if (block.active > 1) {
    block.write_part();
    if (!block.comes_last()) return;
    laid = block.add_parts();
  }
  block.write_result(laid);
}
