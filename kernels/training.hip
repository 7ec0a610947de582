// What a step of training does to long vectors, each in one pass: losses of class numbers with the gradient of their
// logits, the gradient of a gated activation, sums of squares of gradients, Adam's step.
//
// Launches (src/backends/gpu/training.ts): V elements an access, 16 bytes or one
//   class_losses   a block a row of logits, blocks go round; with GRAD the gradient takes the place of the logits
//   class_slopes   the logits' gradient from that of what became of the losses; block 256, a tile of SLOPE_GROUPS V
//                  elements a thread, tiles side by side over a row, rows go round
//   loss_sums      the sum of losses by their classes' weights, and of the weights: a pair a block, of one block
//                  the end
//   join_loss_sums one block: the pairs of all blocks become the end
//   swiglu_grad    V elements of either half a thread; block 256, blocks side by side over a row, rows go round
//   square_sums    a sum a block
//   adam_step      V elements a thread; block 256, grid-stride
// f16 and bf16 are computed in float and rounded once.
#include "block.h"
#include "table.h"

/** exp for results of S: what rounds to 16 bits needs no more than the hardware's exp2. */
template <class S> WICK_FN float loss_exp(float x) {
  if constexpr (is_small_float<S>) return fast_exp(x);
  else return expg(x);
}

/**
 * log(sum of exp) - x[id] for each row of [rows, cols], with a share of `smoothing` spread evenly over all classes;
 * 0 where the id is `ignore`. An id that is no column sets `fault`.
 */
template <bool GRAD, class S, int V>
WICK_FN void class_losses(S* x, const i64* ids, float* losses, float* lses, u32* fault, i64 rows, i64 cols, i64 ignore,
                          float smoothing) {
  __shared__ float slots[WAVE_SLOTS];
  const i64 step = (i64)blockDim.x * V;
  for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
    S* row = x + r * cols;
    const i64 id = ids[r];
    const bool counts = id != ignore, known = id >= 0 && id < cols;
    if (counts && !known && threadIdx.x == 0) *fault = 1;
    const float chosen = known ? to_compute(row[id]) : 0.0f;
    float top = Limits<float>::lowest(), sum = 0, total = 0, v[V];
    for (i64 c = (i64)threadIdx.x * V; c < cols; c += step) {
      load_v<V>(row + c, v);
      float most = v[0];
#pragma unroll
      for (int i = 1; i < V; i++) most = fmaxf(most, v[i]);
      if (most > top) {
        sum *= loss_exp<S>(top - most);
        top = most;
      }
#pragma unroll
      for (int i = 0; i < V; i++) {
        sum += loss_exp<S>(v[i] - top);
        total += v[i];
      }
    }
    const float best = group_max(top, blockDim.x, slots);
    sum = group_sum(sum * loss_exp<S>(top - best), blockDim.x, slots);
    if (smoothing != 0.0f) total = group_sum(total, blockDim.x, slots);
    const float lse = best + logg(sum), even = smoothing / (float)cols;
    if (threadIdx.x == 0) {
      losses[r] = !counts             ? 0.0f
                  : smoothing != 0.0f ? (1.0f - smoothing) * (lse - chosen) + (smoothing * lse - even * total)
                                      : lse - chosen;
      if (lses) lses[r] = lse;
    }
    if constexpr (GRAD) {
      const float share = 1.0f / sum;
      for (i64 c = (i64)threadIdx.x * V; c < cols; c += step) {
        load_v<V>(row + c, v);
#pragma unroll
        for (int i = 0; i < V; i++) {
          const float p = loss_exp<S>(v[i] - best) * share - even - (c + i == id ? 1.0f - smoothing : 0.0f);
          v[i] = counts ? p : 0.0f;
        }
        store_v<V>(row + c, v);
      }
    }
    __syncthreads();  // the slots are used again
  }
}

constexpr int SLOPE_GROUPS = 4;
/**
 * The gradient of logits whose rows have the logarithms `lses` of their sums: softmax less what was chosen, times the
 * gradient of the row's loss. That is one of `grad` (rows) for each, or the one of `grad` over *total for all; `weight`
 * has a factor for each class or is none.
 */
template <class S, int V>
WICK_FN void class_slopes(const S* x, const i64* ids, const float* lses, const float* total, const float* grad,
                          const float* weight, S* out, i64 rows, i64 cols, i64 ignore, float smoothing, u32 each) {
  const i64 first = ((i64)blockIdx.x * SLOPE_GROUPS * blockDim.x + threadIdx.x) * V;
  const float even = smoothing / (float)cols;
  for (i64 r = blockIdx.y; r < rows; r += gridDim.y) {
    const i64 id = ids[r];
    const bool counts = id != ignore && id >= 0 && id < cols;
    float by = each ? grad[r] : total ? grad[0] / total[0] : grad[0];
    if (weight && counts) by *= weight[id];
    const float lse = lses[r];
    float v[SLOPE_GROUPS][V];
#pragma unroll
    for (int g = 0; g < SLOPE_GROUPS; g++) {
      const i64 c = first + (i64)g * blockDim.x * V;
      if (c < cols) load_v<V>(x + r * cols + c, v[g]);
    }
#pragma unroll
    for (int g = 0; g < SLOPE_GROUPS; g++) {
      const i64 c = first + (i64)g * blockDim.x * V;
      if (c >= cols) break;
#pragma unroll
      for (int i = 0; i < V; i++) {
        const float p = loss_exp<S>(v[g][i] - lse) - even - (c + i == id ? 1.0f - smoothing : 0.0f);
        v[g][i] = counts ? p * by : 0.0f;
      }
      store_v<V>(out + r * cols + c, v[g]);
    }
  }
}

/** Sums of a block's losses by weight and of the weights: the end of both, or a pair for join_loss_sums. */
WICK_FN void sums_out(float sum, float weights, float* out, float* total, bool mean) {
  __shared__ float slots[2][WAVE_SLOTS];
  sum = group_sum(sum, blockDim.x, slots[0]);
  weights = group_sum(weights, blockDim.x, slots[1]);
  if (threadIdx.x != 0) return;
  out[0] = mean ? sum / weights : sum;
  total[0] = weights;
}
/**
 * With PICK the losses are -x[r][ids[r]] of log-probabilities x (rows, cols), else x (rows) holds them. What is to be
 * ignored weighs nothing, whatever it is; an id that is no column sets `fault`.
 */
template <bool PICK, class S>
WICK_FN void loss_sums(const S* x, const i64* ids, const float* weight, float* pairs, float* out, float* total,
                       u32* fault, i64 rows, i64 cols, i64 ignore, u32 mean) {
  constexpr int AT_ONCE = 4;
  float sum = 0, weights = 0;
  const i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 r = (i64)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += AT_ONCE * step) {
    i64 id[AT_ONCE];
    float by[AT_ONCE], loss[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) id[k] = r + k * step < rows ? ids[r + k * step] : ignore;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const bool known = id[k] >= 0 && id[k] < cols;
      by[k] = 0.0f, loss[k] = 0.0f;
      if (id[k] == ignore) continue;
      if (!known) *fault = 1;
      else {
        by[k] = weight ? weight[id[k]] : 1.0f;
        if constexpr (PICK) loss[k] = -to_compute(x[(r + k * step) * cols + id[k]]);
        else loss[k] = to_compute(x[r + k * step]);
      }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      sum += weight ? loss[k] * by[k] : loss[k];
      weights += by[k];
    }
  }
  if (gridDim.x == 1) sums_out(sum, weights, out, total, mean);
  else sums_out(sum, weights, pairs + 2 * blockIdx.x, pairs + 2 * blockIdx.x + 1, false);
}
WICK_FN void join_loss_sums(const float* pairs, float* out, float* total, u32 count, u32 mean) {
  float sum = 0, weights = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum += pairs[2 * i], weights += pairs[2 * i + 1];
  sums_out(sum, weights, out, total, mean);
}

/** x (rows, 2 n) = [a | b], out the gradient of x where grad (rows, n) is that of silu(a) * b. */
template <class S, int V> WICK_FN void swiglu_grad(const S* x, const S* grad, S* out, u32 rows, u32 n) {
  const u32 c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  if (c >= n) return;
  for (u32 r = blockIdx.y; r < rows; r += gridDim.y) {
    const u64 at = (u64)r * 2 * n + c;
    float a[V], b[V], g[V];
    load_v<V>(x + at, a);
    load_v<V>(x + at + n, b);
    load_v<V>(grad + (u64)r * n + c, g);
#pragma unroll
    for (int i = 0; i < V; i++) {
      b[i] = op_siluMulGrad<S>(a[i], b[i], g[i]);
      g[i] = op_siluMul<S>(a[i], g[i]);
    }
    store_v<V>(out + at, b);
    store_v<V>(out + at + n, g);
  }
}

template <class S, int V> WICK_FN void square_sums(const S* x, float* out, u64 n) {
  __shared__ float slots[WAVE_SLOTS];
  float sum = 0, v[V];
  GRID_STRIDE(i, n / V) {
    load_v<V>(x + i * V, v);
#pragma unroll
    for (int k = 0; k < V; k++) sum = fmag(v[k], v[k], sum);
  }
  for (u64 i = n / V * V + global_id(); i < n; i += global_size()) sum = fmag(to_compute(x[i]), to_compute(x[i]), sum);
  sum = group_sum(sum, blockDim.x, slots);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

/** V numbers in as many words as they take. */
template <int V, class S> WICK_FN void load_run(const S* p, float (&x)[V]) {
  constexpr int E = V == 1 ? 1 : pack_size<S>;
#pragma unroll
  for (int k = 0; k < V; k += E) {
    float part[E];
    load_v<E>(p + k, part);
#pragma unroll
    for (int i = 0; i < E; i++) x[k + i] = part[i];
  }
}
template <int V, class S> WICK_FN void store_run(S* p, const float (&x)[V]) {
  constexpr int E = V == 1 ? 1 : pack_size<S>;
#pragma unroll
  for (int k = 0; k < V; k += E) {
    float part[E];
#pragma unroll
    for (int i = 0; i < E; i++) part[i] = x[k + i];
    store_v<E>(p + k, part);
  }
}

struct AdamRates {
  float decay1, rest1, decay2, rest2, shrink, rate, eps;
};
template <bool COPY, int V, class G, class C>
WICK_FN void adam_run(float* p, float* m, float* v, const G* grad, C* copy, float by, const AdamRates& r) {
  float ps[V], ms[V], vs[V], gs[V];
  load_run<V>(p, ps);
  load_run<V>(m, ms);
  load_run<V>(v, vs);
  load_run<V>(grad, gs);
#pragma unroll
  for (int i = 0; i < V; i++) {
    const float g = gs[i] * by;
    ms[i] = fmag(r.decay1, ms[i], r.rest1 * g);
    vs[i] = fmag(r.decay2, vs[i], r.rest2 * g * g);
    ps[i] = ps[i] * r.shrink - divg(r.rate * ms[i], sqrtg(vs[i]) + r.eps);
  }
  store_run<V>(p, ps);
  store_run<V>(m, ms);
  store_run<V>(v, vs);
  if constexpr (COPY) store_run<V>(copy, ps);
}
/**
 * Adam's step with the gradient times *scale (1 where there is none); `copy` is p rounded to its type. A recorded step
 * finds shrink, rate and eps of the day in `fed`.
 */
template <bool COPY, int V, class G, class C>
WICK_FN void adam_step(float* p, float* m, float* v, const G* grad, const float* scale, C* copy, const float* fed,
                       u64 n, float decay1, float rest1, float decay2, float rest2, float shrink, float rate,
                       float eps) {
  const AdamRates r = {decay1, rest1, decay2, rest2, fed ? fed[0] : shrink, fed ? fed[1] : rate, fed ? fed[2] : eps};
  const float by = scale ? *scale : 1.0f;
  GRID_STRIDE(i, n / V) {
    const u64 at = i * V;
    adam_run<COPY, V>(p + at, m + at, v + at, grad + at, COPY ? copy + at : copy, by, r);
  }
  for (u64 i = n / V * V + global_id(); i < n; i += global_size())
    adam_run<COPY, 1>(p + i, m + i, v + i, grad + i, COPY ? copy + i : copy, by, r);
}
