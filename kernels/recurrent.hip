// One step of a recurrent net behind its products, and the same step backwards: gates, and the states that come of
// them. `x` and `y` are what the input's and the state's product say, [batch, gates n], gates one after another.
//
// Launches (src/backends/gpu/recurrent.ts): a number of the state a thread; block 256, grid-stride
//   lstm_step, gru_step, plain_step   `now` is the state again, in one piece for the next product; `kept` is nowhere or
//                                     what gradients read: all gates, and of a GRU the state's part of the last one
//   lstm_back, gru_back, plain_back   `later` is the gradient of the state that the next step's product gave, `given` and
//                                     `cells` what users gave; `carry` reaches this state past the product, `next` the
//                                     one before
// f16 and bf16 are computed in float and rounded once.
#include "block.h"
#include "table.h"

/** A matrix whose rows may lie apart. */
template <class S> struct Rows {
  S* first;
  i64 apart;
  template <class T> WICK_MEMBER T get(u32 b, u64 i) const { return to_compute(first[b * apart + i]); }
  template <class T> WICK_MEMBER void put(u32 b, u64 i, T v) const { first[b * apart + i] = from_compute<S>(v); }
};
template <class T> WICK_FN T tanh_slope(T y) { return (T)1 - y * y; }
template <class T> WICK_FN T sigmoid_slope(T y) { return y * ((T)1 - y); }

/** A row and a column of the state for each number of it. */
#define EACH_OF_STATE(b, j)       \
  GRID_STRIDE(at, (u64)(batch)*n) \
  if (const u32 b = (u32)(at / n), j = (u32)(at % n); true)

template <class S>
WICK_FN void lstm_step(Rows<const S> x, Rows<const S> y, Rows<const S> c, Rows<S> h, Rows<S> now, Rows<S> next,
                       Rows<S> kept, u32 batch, u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    T g[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      const T sum = x.template get<T>(b, (u64)k * n + j) + y.template get<T>(b, (u64)k * n + j);
      g[k] = k == 2 ? op_tanh<S>(sum) : op_sigmoid<S>(sum);
    }
    const T cell = g[1] * c.template get<T>(b, j) + g[0] * g[2], told = g[3] * op_tanh<S>(cell);
    h.put(b, j, told);
    now.put(b, j, told);
    next.put(b, j, cell);
    if (kept.first)
#pragma unroll
      for (u32 k = 0; k < 4; k++) kept.put(b, (u64)k * n + j, g[k]);
  }
}
template <class S>
WICK_FN void lstm_back(Rows<const S> kept, Rows<const S> before, Rows<const S> c, Rows<const S> given,
                       Rows<const S> cells, Rows<const S> later, Rows<const S> carry, Rows<S> next, Rows<S> dx,
                       Rows<S> now, u32 batch, u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    T g[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) g[k] = kept.template get<T>(b, (u64)k * n + j);
    const T dh = given.template get<T>(b, j) + later.template get<T>(b, j);
    const T bent = op_tanh<S>(c.template get<T>(b, j));
    const T dc = carry.template get<T>(b, j) + cells.template get<T>(b, j) + dh * g[3] * tanh_slope(bent);
    const T d[4] = {dc * g[2] * sigmoid_slope(g[0]), dc * before.template get<T>(b, j) * sigmoid_slope(g[1]),
                    dc * g[0] * tanh_slope(g[2]), dh * bent * sigmoid_slope(g[3])};
    next.put(b, j, dc * g[1]);
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
      dx.put(b, (u64)k * n + j, d[k]);
      now.put(b, (u64)k * n + j, d[k]);
    }
  }
}

template <class S>
WICK_FN void gru_step(Rows<const S> x, Rows<const S> y, Rows<const S> bias, Rows<const S> before, Rows<S> h,
                      Rows<S> now, Rows<S> kept, u32 batch, u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    T in[3], own[3];
#pragma unroll
    for (u32 k = 0; k < 3; k++) {
      in[k] = x.template get<T>(b, (u64)k * n + j);
      own[k] = y.template get<T>(b, (u64)k * n + j) + bias.template get<T>(b, (u64)k * n + j);
    }
    const T reset = op_sigmoid<S>(in[0] + own[0]), keep = op_sigmoid<S>(in[1] + own[1]);
    const T made = op_tanh<S>(in[2] + reset * own[2]);
    const T told = made + keep * (before.template get<T>(b, j) - made);
    h.put(b, j, told);
    now.put(b, j, told);
    if (!kept.first) continue;
    const T all[4] = {reset, keep, made, own[2]};
#pragma unroll
    for (u32 k = 0; k < 4; k++) kept.put(b, (u64)k * n + j, all[k]);
  }
}
template <class S>
WICK_FN void gru_back(Rows<const S> kept, Rows<const S> before, Rows<const S> given, Rows<const S> later,
                      Rows<const S> carry, Rows<S> next, Rows<S> dx, Rows<S> dy, Rows<S> now, u32 batch, u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    T g[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) g[k] = kept.template get<T>(b, (u64)k * n + j);
    const T dh = given.template get<T>(b, j) + later.template get<T>(b, j) + carry.template get<T>(b, j);
    const T made = dh * ((T)1 - g[1]) * tanh_slope(g[2]);
    const T d[3] = {made * g[3] * sigmoid_slope(g[0]), dh * (before.template get<T>(b, j) - g[2]) * sigmoid_slope(g[1]),
                    made};
    next.put(b, j, dh * g[1]);
#pragma unroll
    for (u32 k = 0; k < 3; k++) {
      const T own = k == 2 ? made * g[0] : d[k];
      dx.put(b, (u64)k * n + j, d[k]);
      dy.put(b, (u64)k * n + j, own);
      now.put(b, (u64)k * n + j, own);
    }
  }
}

/** The bend is tanh, or with RELU what is above zero. */
template <bool RELU, class S>
WICK_FN void plain_step(Rows<const S> x, Rows<const S> y, Rows<S> h, Rows<S> now, u32 batch, u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    const T sum = x.template get<T>(b, j) + y.template get<T>(b, j);
    const T told = RELU ? op_relu<S>(sum) : op_tanh<S>(sum);
    h.put(b, j, told);
    now.put(b, j, told);
  }
}
template <bool RELU, class S>
WICK_FN void plain_back(Rows<const S> h, Rows<const S> given, Rows<const S> later, Rows<S> dx, Rows<S> now, u32 batch,
                        u32 n) {
  using T = compute_t<S>;
  EACH_OF_STATE(b, j) {
    const T dh = given.template get<T>(b, j) + later.template get<T>(b, j), told = h.template get<T>(b, j);
    const T d = RELU ? (told > (T)0 ? dh : (T)0) : dh * tanh_slope(told);
    dx.put(b, j, d);
    now.put(b, j, d);
  }
}
