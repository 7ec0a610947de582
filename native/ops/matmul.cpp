// Batched matrix products over operands of any strides.
#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t THREAD_WORK = 64 * 64 * 64;  // multiplications worth another thread

// What a core's own cache keeps of two factors beside those at work.
constexpr int64_t NEAR_BYTES = 256 << 10;

// The elements of a matrix without gaps; 0 where there are any.
int64_t inOnePiece(const Matrix& m, int64_t rows, int64_t columns) {
  const bool dense = (m.column == 1 && m.row == columns) || (m.row == 1 && m.column == rows);
  return dense ? rows * columns : 0;
}

// Batch dimensions were broadcast by the caller: all operands have one rank. The right side may be of 16 bits beside
// floats.
Status bmm(const Call& c, const void*) {
  const Operand &x = c.in(0), &y = c.in(1), &out = c.out();
  MatmulFn matmul = isa->matmul[x.dtype];
  const int batch = out.rank - 2, bytes[3] = {x.bytes(), y.bytes(), out.bytes()};
  Product p = {out.shape[batch],
               out.shape[batch + 1],
               x.shape[batch + 1],
               {x.data, x.stride[batch], x.stride[batch + 1]},
               {y.data, y.stride[batch], y.stride[batch + 1]},
               {out.data, out.stride[batch], out.stride[batch + 1]}};
  if (y.dtype != x.dtype) p.b.dtype = y.dtype;
  int64_t count = 1, stride[3][MAX_RANK];
  for (int d = 0; d < batch; d++) {
    count *= out.shape[d];
    stride[0][d] = x.stride[d];
    stride[1][d] = y.stride[d];
    stride[2][d] = out.stride[d];
  }
  if (out.size() == 0) return OK;
  // One right-hand side for stacked left-hand sides is a single larger product.
  if (batch == 1 && y.stride[0] == 0 && x.stride[0] == p.a.row * p.m && out.stride[0] == p.out.row * p.m) {
    p.m *= count;
    matmul(p, false);
    return OK;
  }
  const int64_t work = p.m * p.n * (p.k + 1);
  const bool whole = count >= 2 * threadCount();
  const int64_t read[2] = {inOnePiece(p.a, p.m, p.k) * bytes[0], inOnePiece(p.b, p.k, p.n) * bytes[1]};
  const bool near = whole && read[0] > 0 && read[1] > 0 && read[0] + read[1] <= NEAR_BYTES && work >= 2 * THREAD_WORK;
  auto one = [&](int64_t begin, int64_t end) {
    Walk walk(batch, out.shape, stride, 3, begin);
    for (int64_t b = begin; b < end; b++) {
      Product q = p;
      q.a.data += walk.offset[0] * bytes[0];
      q.b.data += walk.offset[1] * bytes[1];
      q.out.data += walk.offset[2] * bytes[2];
      walk.next();
      if (near && b + 1 < end) {
        q.later[0] = {p.a.data + walk.offset[0] * bytes[0], read[0]};
        q.later[1] = {p.b.data + walk.offset[1] * bytes[1], read[1]};
      }
      matmul(q, false);
    }
  };
  // Many products go to the threads whole; few are each split by the product itself.
  if (whole) parallel(count, THREAD_WORK / work + 1, one);
  else one(0, count);
  return OK;
}

}  // namespace

WICK_OPS(matmul) = {{"bmm", bmm, nullptr}, {"bmmWidened", bmm, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
