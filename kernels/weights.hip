// Products with weights in ggml's blocks, of our own design: every byte of the weights is read once, in 16-byte words,
// for up to eight rows of activations.
//
// Activations rounded to whole numbers: weight-stream.h. Activations as they are: a group of 32 lanes owns a few rows.
// It copies a span of them (64 chunks of 32 values) from memory to its part of shared memory as plain bytes, which any
// block format can be read from, and then every lane takes a chunk of each row and multiplies it with all activations.
// Groups do not wait for one another: while some copy, others multiply.
#include "weight-matrix.h"
#include "weight-rows.h"
#include "weight-stream.h"

constexpr int GROUPS = 4;  // of 32 lanes in a block
constexpr int SPAN = 64;   // chunks that are copied at a time

// ---- blocks to floats ----

template <class Q, class T> WICK_FN void decode_rows(const u8* w, T* out, i64 quads) {
  GRID_STRIDE(q, quads) {
    float v[4];
    dequantize_quad<Q>((const typename Q::Block*)w, q, v);
    for (int i = 0; i < 4; i++) out[4 * q + i] = from_compute<T>((compute_t<T>)v[i]);
  }
}

// Rows of floats as blocks of Q8_0, eight lanes a block; halves go away from zero.
template <class T> WICK_FN void encode_q8(const T* x, u8* out, i64 blocks) {
  const i64 lanes = (blocks * 8 + 63) / 64 * 64;  // whole waves: all lanes take part
  for (i64 i = (i64)global_id(); i < lanes; i += (i64)global_size()) {
    const bool in = i / 8 < blocks;
    float v[4];
    u32 largest = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      v[k] = in ? (float)to_compute(x[4 * i + k]) : 0.0f;
      const u32 magnitude = bits_as<u32>(v[k]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
    for (int mask = 4; mask > 0; mask /= 2) {
      const u32 other = shfl_xor(largest, mask, 8);
      largest = other > largest ? other : largest;
    }
    if (!in) continue;
    const bool finite = largest < 0x7f800000u;
    const float d = finite ? bits_as<float>(largest) / 127 : bits_as<float>(0x7fc00000u);
    const float inverse = finite && d != 0 ? 1 / d : 0;
    u32 word = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const float scaled = finite ? v[k] * inverse : 0;
      const int whole = (int)scaled;
      const float rest = scaled - (float)whole;
      word |= ((u32)(whole + (rest >= 0.5f) - (rest <= -0.5f)) & 255u) << 8 * k;
    }
    u16* block = (u16*)(out + i / 8 * 34);
    if (i % 8 == 0) block[0] = float_to_half(d).bits;
    block[1 + i % 8 * 2] = (u16)word;
    block[2 + i % 8 * 2] = (u16)(word >> 16);
  }
}

// ids are 64-bit; `none` reads zeros, one that is out of range sets *fault and reads NaN.
template <class Q, class T>
WICK_FN void pick_rows(const u8* w, const i64* ids, T* out, u32* fault, i64 count, i64 rows, i64 quads, i64 row_bytes,
                       i64 none) {
  GRID_STRIDE(at, count * quads) {
    const i64 i = (i64)at / quads, q = (i64)at % quads, id = ids[i];
    float v[4] = {};
    const bool inside = id >= 0 && id < rows;
    if (inside && id != none) dequantize_quad<Q>((const typename Q::Block*)(w + id * row_bytes), q, v);
    if (!inside && id != none) {
      *fault = 1;
      for (int j = 0; j < 4; j++) v[j] = bits_as<float>(0x7fc00000u);
    }
    for (int j = 0; j < 4; j++) out[4 * at + j] = from_compute<T>((compute_t<T>)v[j]);
  }
}

// ---- products with activations rounded to whole numbers (weight-stream.h) ----

template <class T> WICK_FN void round_values(const T* x, Rounded64* out, i64 rows, i64 n) {
  const i64 chunks = n / 32, all = rows * chunks, lanes = (all * 4 + 63) / 64 * 64;  // whole waves: all lanes take part
  begin_in_turn();
  for (i64 i = (i64)global_id(); i < lanes; i += (i64)global_size()) {
    const bool in = i / 4 < all;
    const i64 row = in ? i / 4 / chunks : 0;
    float v[8];
    unpack_eight(read_eight(x + (in ? 8 * i : 0)), v);
    store_rounded<RecordForm<false, false>>(out + row * ((chunks + 1) / 2), (int)(i / 4 - row * chunks), in,
                                            round_eight(v));
  }
}

// out[m][row] for M rows of activations from blockIdx.y * M on. One row is rounded here; more of them are copied to
// shared memory where they are `held` there: ceil(n / 64) records a row, before the rings.
template <class Q, int R, int M, int STAGES, class T>
WICK_FN void weights_quick(const u8* w, const T* x, const Rounded64* rounded, T* out, i64 rows, i64 row_bytes,
                           i64 columns, i64 n, i32 held) {
  DYNAMIC_SHARED(u8, shared);
  const i64 column = (i64)blockIdx.y * M, records = (n + 63) / 64;
  Rounded64* const mine = kept_shared((Rounded64*)shared);
  const Rows all = {w, rows, row_bytes, R, 1};
  typedef WeightStream<Q, R, M, STAGES> Stream;
  typedef typename Stream::Form Form;
  const Stream stream(all, n, (rows + R - 1) / R, shared + (M == 1 || held ? M * record_bytes<Form>(n) : 0));
  stream.run(
      [&](auto meanwhile) -> const Rounded64* {
        if constexpr (M == 1) {
          round_row<Form>(mine, n, x + column * n, meanwhile);
        } else {
          meanwhile();
          if (!held) return rounded + column * records;
          const word4* from = (const word4*)(rounded + column * records);
          for (int i = threadIdx.x; i < M * (int)records * 5; i += blockDim.x) ((word4*)mine)[i] = from[i];
        }
        __syncthreads();
        return mine;
      },
      [&](i64 set, const float* sums) {
        constexpr int Lanes = 32 / (R * M);
        const int i = stream.lane / Lanes;
        const i64 row = set * R + i / M, m = column + i % M;
        if (stream.lane % Lanes == 0 && row < rows && m < columns)
          out[m * rows + row] = from_compute<T>((compute_t<T>)sums[0]);
      });
}

// Row i of the result is activations' row (given == 1 ? i / chosen : i) times the weights of expert ids[i].
template <class Q, int STAGES, class T>
WICK_FN void experts_quick(const u8* w, const i64* ids, const T* x, T* out, u32* fault, i64 experts, i64 rows,
                           i64 row_bytes, i64 chosen, i64 given, i64 n, i64 none) {
  DYNAMIC_SHARED(u8, shared);
  const i64 i = blockIdx.y;
  begin_in_turn();
  const i64 id = ids[i], row = given == 1 ? i / chosen : i;
  if (id < 0 || id >= experts || id == none) {
    if (id != none && threadIdx.x == 0) *fault = 1;
    const float nothing = id == none ? 0.0f : bits_as<float>(0x7fc00000u);
    for (i64 r = (i64)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (i64)gridDim.x * blockDim.x)
      out[i * rows + r] = from_compute<T>((compute_t<T>)nothing);
    return;
  }
  Rounded64* const mine = kept_shared((Rounded64*)shared);
  const Rows all = {w + id * rows * row_bytes, rows, row_bytes, 1, 0};
  typedef WeightStream<Q, 1, 1, STAGES> Stream;
  typedef typename Stream::Form Form;
  const Stream stream(all, n, rows, shared + record_bytes<Form>(n));
  stream.run(
      [&](auto meanwhile) -> const Rounded64* {
        round_row<Form>(mine, n, x + row * n, meanwhile);
        __syncthreads();
        return mine;
      },
      [&](i64 set, const float* sums) {
        if (stream.lane == 0 && set < rows) out[i * rows + set] = from_compute<T>((compute_t<T>)sums[0]);
      });
}

// ---- products with 8-bit floats, which have a scale for every 128 of a row ----

/** Four of them as floats. */
WICK_FN void unpack_fp8(u32 w, float (&v)[4]) {
#if defined(WICK_NVIDIA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((u16)(w >> 16 * i)));
    v[2 * i] = half_value((u16)two), v[2 * i + 1] = half_value((u16)(two >> 16));
  }
#else
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = fp8_to_float(fp8{(u8)(w >> 8 * i)});
#endif
}
/** 16 numbers from an address that is a multiple of 16. */
template <class T> struct Sixteen {
  Eight<T> first, second;
  WICK_MEMBER void load(const T* from) { first = read_eight(from), second = read_eight(from + 8); }
  WICK_MEMBER void unpack(float (&v)[16]) const {
    float low[8], high[8];
    unpack_eight(first, low);
    unpack_eight(second, high);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = low[i], v[i + 8] = high[i];
  }
};
template <> struct Sixteen<double> {
  double held[16];
  WICK_MEMBER void load(const double* from) {
#pragma unroll
    for (int i = 0; i < 16; i++) held[i] = from[i];
  }
  WICK_MEMBER void unpack(double (&v)[16]) const {
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = held[i];
  }
};

// out[m][row] for R rows of weights and M rows of activations. The threads of a block share out the values of its rows,
// 16 at a time, so that each reads the activations once for all rows.
template <int R, int M, class T>
WICK_FN void float8_rows(const u8* w, const float* scales, const T* x, T* out, i64 rows, i64 columns, i64 n) {
  typedef compute_t<T> Sum;
  constexpr int Waves = 256 / WICK_WAVE;
  __shared__ Sum parts[Waves][R * M];
  const i64 first = (i64)blockIdx.x * R, column = (i64)blockIdx.y * M;
  const u8* row[R];
#pragma unroll
  for (int r = 0; r < R; r++) row[r] = w + (first + r < rows ? first + r : rows - 1) * n;
  begin_in_turn();
  Sum sums[R * M] = {};
  ROLLED for (i64 c = threadIdx.x * 16; c < n; c += blockDim.x * 16) {
    word4 held[R];
    float scale[R];
#pragma unroll
    for (int r = 0; r < R; r++) held[r] = load_once<true>((const word4*)(row[r] + c));
#pragma unroll
    for (int r = 0; r < R; r++) scale[r] = scales[(row[r] - w + c) / 128];
    Sixteen<T> values[M];
#pragma unroll
    for (int m = 0; m < M; m++) values[m].load(x + (column + m < columns ? column + m : column) * n + c);
#pragma unroll
    for (int r = 0; r < R; r++) {
      u32 words[4];
      split_words(held[r], words);
      float four[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) unpack_fp8(words[i], four[i]);
#pragma unroll
      for (int m = 0; m < M; m++) {
        Sum v[16], sum = 0;
        values[m].unpack(v);
#pragma unroll
        for (int i = 0; i < 16; i++) sum = fmag((Sum)four[i / 4][i % 4], v[i], sum);
        sums[r * M + m] = fmag(sum, (Sum)scale[r], sums[r * M + m]);
      }
    }
  }
  if constexpr (same<Sum, float>) {
    constexpr int Lanes = WICK_WAVE / (R * M);
    scatter_sums<R * M, WICK_WAVE / 2, WICK_WAVE>(sums, lane_id());
    if (lane_id() % Lanes == 0) parts[wave_id()][lane_id() / Lanes] = sums[0];
  } else {
#pragma unroll
    for (int i = 0; i < R * M; i++)
      for (int mask = WICK_WAVE / 2; mask > 0; mask /= 2) sums[i] += shfl_xor(sums[i], mask, WICK_WAVE);
    if (lane_id() == 0)
#pragma unroll
      for (int i = 0; i < R * M; i++) parts[wave_id()][i] = sums[i];
  }
  __syncthreads();
  const int i = threadIdx.x;
  if (i >= R * M || first + i / M >= rows || column + i % M >= columns) return;
  Sum sum = 0;
  ROLLED for (u32 o = 0; o < blockDim.x / WICK_WAVE; o++) sum += parts[o][i];
  out[(column + i % M) * rows + first + i / M] = from_compute<T>(sum);
}

// ---- products with activations as they are ----

// Activations as they are, eight at a time: rows begin at multiples of 16 bytes.
template <class T> struct Exact {
  const T* x;
  i64 n;
  typedef compute_t<T> Sum;
  WICK_MEMBER void load(i64 row, i64 chunk, int eight, Sum (&v)[8]) const {
    const T* p = x + row * n + chunk * 32 + 8 * eight;
    if constexpr (same<Sum, float>) {
      unpack_eight(read_eight(p), v);
    } else {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = to_compute(p[i]);
    }
  }
};
/** Eight of the values of a chunk. */
template <class Q, class Sum> WICK_FN void decode_eight(const Chunk<Q>& w, int eight, Sum (&v)[8]) {
  const int h = eight * Q::halves / 4;
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = (Sum)(w.d[h] * (float)quad_at((u32)w.v[2 * eight + i / 4], i % 4) - w.m[h]);
}

// Bytes from memory to shared memory by one group; in the widest words that both ends allow.
WICK_FN void copy_span(u8* to, const u8* from, i64 bytes, u32 lane) {
  if (aligned16(from)) {
    const i64 words = bytes / 16;
    for (i64 i = lane; i < words; i += 32) ((word4*)to)[i] = ((const word4*)from)[i];
    for (i64 i = words * 16 + lane; i < bytes; i += 32) to[i] = from[i];
    return;
  }
  for (i64 i = lane; i < bytes; i += 32) to[i] = from[i];
}

template <class V> WICK_FN V sum_lanes(V v) {
  for (int mask = 16; mask > 0; mask /= 2) v += shfl_xor(v, mask, 32);
  return v;
}

// out[m][row] for the ROWS rows from `first` on and M rows of activations from `column` on.
template <class Q, class A, int ROWS, int M, class T>
WICK_FN void product_rows(const u8* w, const A& a, T* out, u8* room, i64 first, i64 rows, i64 row_bytes, i64 column,
                          i64 columns, i64 pitch, i64 n) {
  const u32 lane = threadIdx.x % 32;
  constexpr i64 span = (i64)SPAN / Q::chunks * sizeof(typename Q::Block);
  typedef typename A::Sum Sum;
  Sum acc[ROWS][M] = {};
  const i64 chunks = n / 32;
  ROLLED for (i64 from = 0; from < chunks; from += SPAN) {
    const i64 offset = from / Q::chunks * (i64)sizeof(typename Q::Block);
    const i64 bytes = row_bytes - offset < span ? row_bytes - offset : span;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (first + r < rows) copy_span(room + r * span, w + (first + r) * row_bytes + offset, bytes, lane);
    sync_wave();
    ROLLED for (int c = lane; c < SPAN; c += 32) {
      if (from + c >= chunks) break;
      Chunk<Q> part[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) part[r] = load_chunk<Q>((const typename Q::Block*)(room + r * span), c);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        Sum value[ROWS][8], v[8];
#pragma unroll
        for (int r = 0; r < ROWS; r++) decode_eight(part[r], e, value[r]);
#pragma unroll
        for (int m = 0; m < M; m++) {
          if (column + m >= columns) break;
          a.load(column + m, from + c, e, v);
#pragma unroll
          for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < 8; i++) acc[r][m] = fmag(value[r][i], v[i], acc[r][m]);
        }
      }
    }
    sync_wave();
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int m = 0; m < M; m++) {
      const auto sum = sum_lanes(acc[r][m]);
      if (lane == 0 && first + r < rows && column + m < columns)
        out[(column + m) * pitch + first + r] = from_compute<T>((compute_t<T>)sum);
    }
  }
}

template <class Q, class A, int ROWS, int M, class T>
WICK_FN void weights_product(const u8* w, const A& a, T* out, i64 rows, i64 row_bytes, i64 columns, i64 n) {
  constexpr i64 span = (i64)SPAN / Q::chunks * sizeof(typename Q::Block);
  __shared__ __attribute__((aligned(16))) u8 room[GROUPS][ROWS * span];
  const u32 group = threadIdx.x / 32;
  const i64 first = ((i64)blockIdx.x * GROUPS + group) * ROWS;
  product_rows<Q, A, ROWS, M>(w, a, out, room[group], first, rows, row_bytes, (i64)blockIdx.y * M, columns, rows, n);
}

// Row i of the result is activations' row (given == 1 ? i / chosen : i) times the weights of expert ids[i].
template <class Q, class A, class T>
WICK_FN void weights_experts(const u8* w, const i64* ids, const A& a, T* out, u32* fault, i64 experts, i64 rows,
                             i64 row_bytes, i64 chosen, i64 given, i64 n, i64 none) {
  constexpr int ROWS = 2;
  constexpr i64 span = (i64)SPAN / Q::chunks * sizeof(typename Q::Block);
  __shared__ __attribute__((aligned(16))) u8 room[GROUPS][ROWS * span];
  const u32 group = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 i = blockIdx.y, id = ids[i];
  const i64 first = ((i64)blockIdx.x * GROUPS + group) * ROWS, row = given == 1 ? i / chosen : i;
  if (id >= 0 && id < experts && id != none) {
    product_rows<Q, A, ROWS, 1>(w + id * rows * row_bytes, a, out + (i - row) * rows, room[group], first, rows,
                                row_bytes, row, row + 1, rows, n);
    return;
  }
  if (id != none && lane == 0) *fault = 1;
  const float nothing = id == none ? 0.0f : bits_as<float>(0x7fc00000u);
  if (lane < ROWS && first + lane < rows) out[i * rows + first + lane] = from_compute<T>((compute_t<T>)nothing);
}

// ---- products on the matrix units (weight-matrix.h) ----

// out[m][row] for eight rows of activations from blockIdx.y * 8 on. `slices` waves share the values of 16 rows, which lie
// at multiples of 16 bytes; there are 16 or more, and the last 16 may share some with those before. Parts are added up
// when a block has multiplied all of its rows. Dynamic shared memory: 512 bytes for every wave and set of 16 rows that
// falls to it, and the rings. Weights are asked for before what comes before has ended: it must not write them.
template <class Q, int STAGES, class T>
WICK_FN void weights_matrix(const u8* w, const T* x, T* out, i64 rows, i64 row_bytes, i64 columns, i64 n, i32 slices) {
  typedef MatrixRow<Q> Row;
  // Of a tile's rows: pieces of 16 bytes that eight lanes copy at a time, and those that are left.
  constexpr int Pieces = (Row::Bytes + Row::Skew + 15) / 16, Rest = Pieces % 8, Slot = MATRIX_ROWS * Row::Pitch;
  DYNAMIC_SHARED(u8, shared);
  __shared__ u32 infinite;
  const int lane = threadIdx.x % 32, wave = threadIdx.x / 32, waves = blockDim.x / 32, g = lane / 4, t = lane % 4;
  const int together = waves / slices, slice = wave % slices, tiles = (int)(n / MATRIX_VALUES);
  const int first = ((int)blockIdx.x * together + wave / slices) * MATRIX_ROWS, last = (int)rows - MATRIX_ROWS;
  const int stride = (int)gridDim.x * together * MATRIX_ROWS, passes = ((int)rows + stride - 1) / stride;
  word4* const parts = kept_shared((word4*)shared);
  u8* const ring = kept_shared(shared + passes * waves * 512 + wave * (STAGES * Slot));

  // The tile that is fetched next: of which rows, and which of theirs.
  int tile = slice, row = first;
  const int eight = lane / 8 * (int)row_bytes + 16 * (lane % 8), eight_to = lane / 8 * Row::Pitch + 16 * (lane % 8);
  auto fetch = [&](int slot) {
    if (row < (int)rows) {
      const u8* const from = w + (i64)(row < last ? row : last) * row_bytes + (tile * Row::Bytes & ~15);
      u8* const to = ring + slot * Slot;
#pragma unroll
      for (int i = 0; i < MATRIX_ROWS / 4; i++)
#pragma unroll
        for (int j = 0; j < Pieces / 8; j++)
          async_near16(to + eight_to + 4 * i * Row::Pitch + 128 * j, from + eight + 4 * i * (int)row_bytes + 128 * j);
#pragma unroll
      for (int i = 0; i < (MATRIX_ROWS * Rest + 31) / 32; i++) {
        const int at = lane + 32 * i, piece = 16 * (Pieces - Rest + at % Rest);
        if (at / Rest < MATRIX_ROWS)
          async_near16(to + at / Rest * Row::Pitch + piece, from + at / Rest * (int)row_bytes + piece);
      }
    }
    async_commit();
    row += stride;
    if (row >= (int)rows && tile + slices < tiles) tile += slices, row = first;
  };
  auto fetch_from = [&](int begin, int end) {
#pragma unroll
    for (int s = begin; s < end; s++) fetch(s);
  };
  constexpr int Early = STAGES - 1 < EARLY_TILES ? STAGES - 1 : EARLY_TILES;
  fetch_from(0, Early);
  if (threadIdx.x == 0) infinite = 0;
  __syncthreads();
  begin_in_turn();
  fetch_from(Early, STAGES - 1);

  const int first_column = (int)blockIdx.y * MATRIX_COLUMNS;
  const T* const mine = x + (first_column + g < (int)columns ? first_column + g : first_column) * n;
  int at = 0, free = STAGES - 1;
  ROLLED for (int k = slice; k < tiles; k += slices) {
    Slice<Q, T> held;
    if (held.load(mine + k * MATRIX_VALUES, lane)) infinite = 1;
    word4* part = parts + 32 * wave + lane;
    ROLLED for (int here = first; here < (int)rows; here += stride, part += 32 * waves) {
      async_wait<STAGES - 2>();
      sync_wave();
      fetch(free);
      free = free + 1 == STAGES ? 0 : free + 1;
      const u8* const tile_row = ring + at * Slot + g * Row::Pitch + (k * Row::Bytes & 15);
      at = at + 1 == STAGES ? 0 : at + 1;
      float acc[4] = {};
      multiply_tile<Q, T>(tile_row, tile_row + 8 * Row::Pitch, t, held, acc);
      u32 bits[4] = {};
      if (k > slice) split_words(*part, bits);
#pragma unroll
      for (int i = 0; i < 4; i++) bits[i] = bits_as<u32>(bits_as<float>(bits[i]) + acc[i]);
      *part = join_words(bits);
    }
  }
  async_wait<0>();
  __syncthreads();
  // A wave adds up a set.
  ROLLED for (int p = wave; p < passes * together; p += waves) {
    const int pass = together == 1 ? p : p / together;
    const int set = ((int)blockIdx.x * together + p - pass * together) * MATRIX_ROWS + pass * stride;
    if (set >= (int)rows) continue;
    const word4* const from = parts + p * slices * 32 + lane;
    float sum[4] = {};
#pragma unroll 4
    for (int s = 0; s < slices; s++) {
      u32 bits[4];
      split_words(from[32 * s], bits);
#pragma unroll
      for (int i = 0; i < 4; i++) sum[i] += bits_as<float>(bits[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const i64 row = (set < last ? set : last) + g + i / 2 * 8, column = first_column + 2 * t + i % 2;
      if (column >= columns) continue;
      if (infinite) {
        // Value by value: an infinite activation makes no NaN of what is made of several terms above.
        sum[i] = 0;
        ROLLED for (i64 q = 0; q < n / 4; q++) {
          float v[4];
          dequantize_quad<Q>((const typename Q::Block*)(w + row * row_bytes), q, v);
          for (int j = 0; j < 4; j++) sum[i] = fmag(v[j], (float)to_compute(x[column * n + 4 * q + j]), sum[i]);
        }
      }
      out[column * rows + row] = from_compute<T>((compute_t<T>)sum[i]);
    }
  }
}
