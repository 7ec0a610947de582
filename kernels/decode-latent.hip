// One token through latent attention: queries are brought to the latents' space, so that what is kept by token is read
// as it is and no keys or values are made of it.
//   latent_queries_T     grid (ceil(rank / LATENT_COLUMNS), heads + 1), block 256: queries by the keys' matrices; the last
//                        row of blocks puts the new latent and its turned key where they are kept
//   latent_attention_T   grid (parts, ceil(heads / 16)), block 256: sixteen heads over a part of the tokens
//   latent_values_T      grid (heads, ceil(values / 16)), block 256: parts joined, and the values' matrices
// All widths are multiples of 16 bytes; rank at most 512, the part that turns at most 64.
#include "decode-rows.h"

constexpr int LATENT_THREADS = 256, LATENT_GROUPS = LATENT_THREADS / 32, LATENT_COLUMNS = 128;
constexpr int MOST_RANK = 512, MOST_TURNED = 64, LATENT_HEADS = 2 * LATENT_GROUPS, LATENT_KEYS = 8, LATENT_ROWS = 16;
/** Parts, at most. */
constexpr int LATENT_PARTS = 64;

struct NewLatent {
  /** (heads, nope + turned), and the latent before its norm beside the key before its turn. */
  const void* queries;
  const void* latent;
  const float* norm;
  /** (heads, nope, rank) and (heads, values, rank) */
  const void* key_up;
  const void* value_up;
  const void* cos;
  const void* sin;
  const i32* state;
  /** (room, rank) and (room, turned) */
  void* latents;
  void* keys;
  /** (heads, rank + turned) */
  void* lifted;
  /** (parts, heads, rank) sums, and (parts, heads) largest scores and sums of weights. */
  float* partial;
  float* tops;
  float* sums;
  /** (heads, values) */
  void* out;
  i32 heads, nope, turned, rank, values;
  float scale, eps;
};

/** Turns number i of `turned` / 2 pairs: to is where its first half goes. */
template <class T> WICK_FN void turn_pair(const NewLatent& p, const T* from, T* to, int i) {
  const int half_dim = p.turned / 2;
  const i64 at = (i64)p.state[1] * half_dim + i;
  const float c = to_compute(((const T*)p.cos)[at]), s = to_compute(((const T*)p.sin)[at]);
  const float a = to_compute(from[i]), b = to_compute(from[i + half_dim]);
  to[i] = from_compute<T>(a * c - b * s);
  to[i + half_dim] = from_compute<T>(a * s + b * c);
}

template <class T> WICK_FN void latent_queries(const NewLatent& p) {
  constexpr int P = pack_size<T>, Words = LATENT_COLUMNS / P, Groups = LATENT_THREADS / Words, Ahead = 8;
  __shared__ float sums[Groups][LATENT_COLUMNS];
  const int head = blockIdx.y, word = threadIdx.x % Words, group = threadIdx.x / Words;
  const int column = blockIdx.x * LATENT_COLUMNS + word * P;
  if (head == p.heads) {
    begin_in_turn();
    if (blockIdx.x != 0) return;
    const T* from = (const T*)p.latent;
    const i64 position = p.state[1];
    const float factor = norm_factor(from, p.eps, p.rank);
    ROLLED for (int r = threadIdx.x; r < p.rank; r += LATENT_THREADS)((T*)p.latents)[position * p.rank + r] =
        from_compute<T>((float)to_compute(from[r]) * factor * p.norm[r]);
    if ((int)threadIdx.x < p.turned / 2)
      turn_pair(p, from + p.rank, (T*)p.keys + position * p.turned, (int)threadIdx.x);
    return;
  }
  const T* up = (const T*)p.key_up + (i64)head * p.nope * p.rank + column;
  const T* query = (const T*)p.queries + (i64)head * (p.nope + p.turned);
  T* to = (T*)p.lifted + (i64)head * (p.rank + p.turned);
  float sum[P] = {};
  UNROLL(1, 1)
  for (int d0 = group; d0 < p.nope + group; d0 += Ahead * Groups) {
    word4 held[Ahead];
#pragma unroll
    for (int u = 0; u < Ahead; u++) {
      const int d = d0 + u * Groups;
      held[u] = load_once_if<true>(d < p.nope && column < p.rank, (const word4*)(up + (i64)d * p.rank));
    }
    if (d0 == group) begin_in_turn();
#pragma unroll
    for (int u = 0; u < Ahead; u++) {
      const int d = d0 + u * Groups;
      const float q = d < p.nope ? (float)to_compute(query[d]) : 0.0f;
      float m[P];
      unpack_word<T>(held[u], m);
#pragma unroll
      for (int e = 0; e < P; e++) sum[e] = fmag(q, m[e], sum[e]);
    }
  }
#pragma unroll
  for (int e = 0; e < P; e++) sums[group][word * P + e] = sum[e];
  __syncthreads();
  const int c = blockIdx.x * LATENT_COLUMNS + (int)threadIdx.x;
  if (threadIdx.x < LATENT_COLUMNS && c < p.rank) {
    float all = 0;
    ROLLED for (int g = 0; g < Groups; g++) all += sums[g][threadIdx.x];
    to[c] = from_compute<T>(all);
  }
  if (blockIdx.x == 0 && (int)threadIdx.x < p.turned / 2) turn_pair(p, query + p.nope, to + p.rank, (int)threadIdx.x);
}

/** How many tokens a part has, and how many parts there are. */
struct LatentParts {
  int each, count;
};
WICK_FN LatentParts latent_parts(int tokens, int parts) {
  const int tiles = (tokens + LATENT_KEYS - 1) / LATENT_KEYS, each = (tiles + parts - 1) / parts * LATENT_KEYS;
  return {each, (tokens + each - 1) / each};
}

/** Two neighbours, read at once; zeros where there are none. */
template <class T> WICK_FN void read_pair(const T* from, bool in, float& a, float& b) {
  if constexpr (sizeof(T) == 2) {
    const u32 both = in ? *(const u32*)from : 0;
    a = to_compute(T{(u16)both}), b = to_compute(T{(u16)(both >> 16)});
  } else {
    const u64 both = in ? *(const u64*)from : 0;
    a = bits_as<float>((u32)both), b = bits_as<float>((u32)(both >> 32));
  }
}

template <class T> WICK_FN void latent_attention(const NewLatent& p) {
  constexpr int P = pack_size<T>, Width = MOST_RANK + MOST_TURNED, Pairs = Width / 64, Outs = MOST_RANK / 64;
  constexpr int Batch = (LATENT_KEYS * Width / P + LATENT_THREADS - 1) / LATENT_THREADS;
  __shared__ __attribute__((aligned(16))) T tile[LATENT_KEYS * Width];
  begin_in_turn();
  const int tokens = p.state[1] + 1, width = p.rank + p.turned, lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const LatentParts parts = latent_parts(tokens, gridDim.x);
  const int part = blockIdx.x, begin = part * parts.each;
  if (part >= parts.count) return;
  const int end = begin + parts.each < tokens ? begin + parts.each : tokens;
  const int head0 = blockIdx.y * LATENT_HEADS + 2 * group;
  float query[2][2 * Pairs], out[2][2 * Outs] = {}, top[2], sum[2] = {};
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int head = head0 + h < p.heads ? head0 + h : p.heads - 1;
    const T* from = (const T*)p.lifted + (i64)head * width;
    top[h] = Limits<float>::lowest();
#pragma unroll
    for (int i = 0; i < Pairs; i++) {
      const int e = 2 * (32 * i + lane);
      read_pair(from + e, e < width, query[h][2 * i], query[h][2 * i + 1]);
    }
  }
  UNROLL(1, 1)
  for (int j0 = begin; j0 < end; j0 += LATENT_KEYS) {
    const int count = end - j0 < LATENT_KEYS ? end - j0 : LATENT_KEYS, words = p.rank / P, all = width / P;
    __syncthreads();
    // All of them asked for at once.
    word4 held[Batch];
#pragma unroll
    for (int u = 0; u < Batch; u++) {
      const int t = threadIdx.x + u * LATENT_THREADS, j = t / all, w = t % all;
      const T* from = w < words ? (const T*)p.latents + (i64)(j0 + j) * p.rank + w * P
                                : (const T*)p.keys + (i64)(j0 + j) * p.turned + (w - words) * P;
      if (t < count * all) held[u] = *(const word4*)from;
    }
#pragma unroll
    for (int u = 0; u < Batch; u++) {
      const int t = threadIdx.x + u * LATENT_THREADS;
      if (t < count * all) ((word4*)tile)[t] = held[u];
    }
    __syncthreads();
    // Lane j of a group keeps the score of key j; a few keys at a time are added up together.
    constexpr int Few = 4;
    float score[2] = {Limits<float>::lowest(), Limits<float>::lowest()};
    UNROLL(1, 1)
    for (int j = 0; j < count; j += Few) {
      float dot[2][Few] = {};
#pragma unroll
      for (int i = 0; i < Pairs; i++) {
        const int e = 2 * (32 * i + lane);
#pragma unroll
        for (int f = 0; f < Few; f++) {
          float a, b;
          read_pair(tile + (j + f) * width + e, e < width && j + f < count, a, b);
#pragma unroll
          for (int h = 0; h < 2; h++) dot[h][f] = fmag(query[h][2 * i], a, fmag(query[h][2 * i + 1], b, dot[h][f]));
        }
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scatter_sums<Few, 16, 32>(dot[h], lane);
        const float mine = p.scale * shfl(dot[h][0], (u32)(lane - j) * (32 / Few), 32);
        if (lane >= j && lane < j + Few && lane < count) score[h] = mine;
      }
    }
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float most = score[h];
#pragma unroll
      for (int m = 16; m; m /= 2) most = fmaxf(most, shfl_xor(most, m, 32));
      most = fmaxf(most, top[h]);
      const float shift = most == Limits<float>::lowest() ? 0 : most, kept = expg(top[h] - shift);
      weight[h] = lane < count ? expg(score[h] - shift) : 0.0f;
      float added = weight[h];
#pragma unroll
      for (int m = 16; m; m /= 2) added += shfl_xor(added, m, 32);
      sum[h] = fmag(sum[h], kept, added);
      top[h] = most;
#pragma unroll
      for (int i = 0; i < 2 * Outs; i++) out[h][i] *= kept;
    }
    UNROLL(1, 4)
    for (int j = 0; j < count; j++) {
      const float by0 = shfl(weight[0], j, 32), by1 = shfl(weight[1], j, 32);
#pragma unroll
      for (int i = 0; i < Outs; i++) {
        const int e = 2 * (32 * i + lane);
        float a, b;
        read_pair(tile + j * width + e, e < p.rank, a, b);
        out[0][2 * i] = fmag(by0, a, out[0][2 * i]);
        out[0][2 * i + 1] = fmag(by0, b, out[0][2 * i + 1]);
        out[1][2 * i] = fmag(by1, a, out[1][2 * i]);
        out[1][2 * i + 1] = fmag(by1, b, out[1][2 * i + 1]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    if (head0 + h >= p.heads) break;
    const i64 row = (i64)part * p.heads + head0 + h;
#pragma unroll
    for (int i = 0; i < Outs; i++) {
      const int e = 2 * (32 * i + lane);
      if (e < p.rank) {
        p.partial[row * p.rank + e] = out[h][2 * i];
        p.partial[row * p.rank + e + 1] = out[h][2 * i + 1];
      }
    }
    if (lane == 0) p.tops[row] = top[h], p.sums[row] = sum[h];
  }
}

/** parts: how many latent_attention had room for. */
template <class T> WICK_FN void latent_values(const NewLatent& p, i32 parts) {
  constexpr int P = pack_size<T>, Each = LATENT_ROWS / LATENT_GROUPS, Words = MOST_RANK / P / 32;
  __shared__ float whole[MOST_RANK], share[LATENT_PARTS];
  const int head = blockIdx.x, lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const int first = blockIdx.y * LATENT_ROWS + group * Each;
  word4 held[Each][Words];
#pragma unroll
  for (int r = 0; r < Each; r++)
#pragma unroll
    for (int w = 0; w < Words; w++) {
      const int e = (32 * w + lane) * P;
      const T* from = (const T*)p.value_up + ((i64)head * p.values + first + r) * p.rank + e;
      held[r][w] = load_once_if<true>(first + r < p.values && e < p.rank, (const word4*)from);
    }
  begin_in_turn();
  const LatentParts all = latent_parts(p.state[1] + 1, parts);
  // What each part weighs: every group of lanes finds out for itself, one keeps it.
  float top = Limits<float>::lowest(), total = 0;
  ROLLED for (int c = lane; c < all.count; c += 32) top = fmaxf(top, p.tops[c * p.heads + head]);
#pragma unroll
  for (int m = 16; m; m /= 2) top = fmaxf(top, shfl_xor(top, m, 32));
  if (top == Limits<float>::lowest()) top = 0;  // less itself it would be NaN
  ROLLED for (int c = lane; c < all.count; c += 32) {
    const float by = expg(p.tops[c * p.heads + head] - top);
    total = fmag(p.sums[c * p.heads + head], by, total);
    if (group == 0) share[c] = by;
  }
#pragma unroll
  for (int m = 16; m; m /= 2) total += shfl_xor(total, m, 32);
  __syncthreads();
  ROLLED for (int e = threadIdx.x; e < p.rank; e += LATENT_THREADS) {
    float sum = 0;
    UNROLL(4, 8)
    for (int c = 0; c < all.count; c++) sum = fmag(p.partial[((i64)c * p.heads + head) * p.rank + e], share[c], sum);
    whole[e] = total == 0 ? 0 : sum / total;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < Each; r++) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < Words; w++) {
      const int e = (32 * w + lane) * P;
      float m[P];
      unpack_word<T>(held[r][w], m);
#pragma unroll
      for (int i = 0; i < P; i++) sum = fmag(m[i], e < p.rank ? whole[e + i] : 0.0f, sum);
    }
#pragma unroll
    for (int m = 16; m; m /= 2) sum += shfl_xor(sum, m, 32);
    if (lane == 0 && first + r < p.values) ((T*)p.out)[(i64)head * p.values + first + r] = from_compute<T>(sum);
  }
}
