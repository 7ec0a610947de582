// One token through products with weights in ggml's blocks, with the norm before and the bias, gate or residual after
// them: what decode.hip does with floats. Every block rounds the vector for itself while its weights are on their way.
//
// decode_weights_Q_T: grid up to the number of multiprocessors, dynamic shared memory: ceil(n / 64) records of 80 bytes
// and a ring for every 32 threads (weight-stream.h). A gate's rows lie behind one another: gates, then what they gate.
#include "decode.h"
#include "weight-rows.h"
#include "weight-stream.h"

template <class Q, int R, bool Gate, int STAGES, class T, class N>
WICK_FN void decode_weights(const T* x, const N* norm, float eps, const u8* w, const T* bias, const T* residual, T* out,
                            u64* best, i32 act, i64 rows, i64 row_bytes, i64 n, const Share& share) {
  static_assert(!Gate || R == 2, "a gate and what it gates");
  DYNAMIC_SHARED(u8, shared);
  constexpr u32 MOST_WAVES = 512 / WICK_WAVE;
  __shared__ float squares[MOST_WAVES];
  Rounded64* const mine = kept_shared((Rounded64*)shared);
  const i64 count = Gate ? 2 * rows : rows;
  const Rows all = {w, count, row_bytes, Gate ? 1 : R, Gate ? rows : 1};
  typedef WeightStream<Q, R, 1, STAGES> Stream;
  typedef typename Stream::Form Form;
  const Stream stream(all, n, Gate ? rows : (rows + R - 1) / R, shared + record_bytes<Form>(n), share);
  /** What is added to a row's product. */
  struct Sides {
    T bias, residual;
  };
  constexpr int Lanes = Gate ? 32 : 32 / R;
  auto row_of = [&](i64 set) { return Gate ? set : set * R + stream.lane / Lanes; };
  float factor = 1;
  u64 rank = 0;
  stream.run(
      [&](auto meanwhile) -> const Rounded64* {
        // The norm's factor is the same for the whole vector: it comes after the products.
        float square = 0;
        struct Held {
          Eight<T> x;
          Eight<N> norm;
        };
        round_row<Form>(
            mine, n,
            [&](int at) -> Held {
              return {read_eight(x + at), norm ? read_eight(norm + at) : Eight<N>{}};
            },
            [&](const Held& held, bool in, float(&v)[8]) {
              unpack_eight(held.x, v);
              if (!norm) return;
              float scale[8];
              unpack_eight(held.norm, scale);
#pragma unroll
              for (int i = 0; i < 8; i++) {
                square = fmag(v[i], in ? v[i] : 0.0f, square);
                v[i] *= scale[i];
              }
            },
            meanwhile);
        if (norm) {
#pragma unroll
          for (int m = WICK_WAVE / 2; m; m /= 2) square += shfl_xor(square, m, WICK_WAVE);
          if (lane_id() == 0) squares[wave_id()] = square;
        }
        __syncthreads();
        if (norm) {
          square = 0;
#pragma unroll
          for (u32 i = 0; i < MOST_WAVES; i++) square += i < blockDim.x / WICK_WAVE ? squares[i] : 0.0f;
          factor = rsqrtg(square / (float)n + eps);
        }
        return mine;
      },
      [&](i64 set) -> Sides {
        const i64 row = row_of(set);
        const bool here = !Gate && stream.lane % Lanes == 0 && row < rows;
        return {here && bias ? bias[row] : T{}, here && residual ? residual[row] : T{}};
      },
      [&](i64 set, const float* sums, const Sides& sides) {
        const i64 row = row_of(set);
        float value = sums[0] * factor;
        if constexpr (Gate) {
          const float up = shfl(value, 16, 32);
          value = activated(act, value) * up;
        }
        if (stream.lane % Lanes != 0 || row >= rows) return;
        if (!Gate && bias) value += (float)to_compute(sides.bias);
        if (!Gate && residual) value += (float)to_compute(sides.residual);
        const T result = from_compute<T>(value);
        out[row] = result;
        value = to_compute(result);
        if (value == value) {
          const u64 mark = rank_of(value, (i32)row);
          rank = mark > rank ? mark : rank;
        }
      });
  // Few groups find a better one than is known, so few write.
  if (best && rank > *(volatile u64*)best) atomic_max(best, rank);
}

/** Rows of one type, how many blocks they have and how many groups of each. */
struct Part {
  const u8* w;
  i64 rows, row_bytes;
  i32 blocks, groups;
};
/** The first blocks take rows of one type, the others those of another type, whose results lie behind. */
template <class Q, int R, int STAGES, class Q2, int R2, int STAGES2, class T, class N>
WICK_FN void decode_two(const T* x, const N* norm, float eps, const T* bias, T* out, i64 n, const Part& first,
                        const Part& second) {
  const T* const none = nullptr;
  const int block = (int)blockIdx.x;
  if (block < first.blocks)
    return decode_weights<Q, R, false, STAGES>(x, norm, eps, first.w, bias, none, out, (u64*)nullptr, 0, first.rows,
                                               first.row_bytes, n, Share{block, first.blocks, first.groups});
  decode_weights<Q2, R2, false, STAGES2>(x, norm, eps, second.w, bias ? bias + first.rows : none, none,
                                         out + first.rows, (u64*)nullptr, 0, second.rows, second.row_bytes, n,
                                         Share{block - first.blocks, second.blocks, second.groups});
}
