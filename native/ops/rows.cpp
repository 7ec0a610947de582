// Softmax, norms and rotary turns: lanes of any operand layout, gathered where they are not contiguous.
#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 8192;
constexpr int64_t BATCH = 32;  // neighbouring lanes that are gathered together, so that cache lines are read once

// Lanes that lie side by side are turned as a block, others moved one by one. `count` lanes of n elements, `pitch`
// elements apart in `block`.
void gatherLanes(char* block, int64_t pitch, const char* data, const int64_t* place, int64_t count, int64_t step,
                 int64_t n, int bytes) {
  if (count > 1 && place[count - 1] - place[0] == count - 1 && place[1] - place[0] == 1)
    return transposeBlock(data + place[0] * bytes, step, block, pitch, count, n, bytes);
  for (int64_t j = 0; j < count; j++) gatherRun(block + j * pitch * bytes, data + place[j] * bytes, step, n, bytes);
}
void scatterLanes(char* data, const int64_t* place, int64_t count, int64_t step, const char* block, int64_t pitch,
                  int64_t n, int bytes) {
  if (count > 1 && place[count - 1] - place[0] == count - 1 && place[1] - place[0] == 1)
    return transposeBlock(block, pitch, data + place[0] * bytes, step, n, count, bytes);
  for (int64_t j = 0; j < count; j++) scatterRun(data + place[j] * bytes, step, block + j * pitch * bytes, n, bytes);
}

// Inputs [0, count) have the output's shape and are cut along dim; `whole` are given to every lane as they are.
void runLanes(LaneKernel kernel, const Operand* const* x, int count, const void* const* whole, int wholeCount,
              const Operand& out, int dim, const double* params) {
  const int64_t n = out.shape[dim];
  if (out.size() == 0) return;
  const int bytes = out.bytes();
  // The output and its inputs walk together over the other dimensions.
  int64_t shape[MAX_RANK], stride[4][MAX_RANK], step[4], lanes = 1;
  int rank = 0;
  for (int d = 0; d < out.rank; d++) {
    if (d == dim) continue;
    lanes *= out.shape[d];
    shape[rank] = out.shape[d];
    for (int k = 0; k <= count; k++) stride[k][rank] = (k < count ? *x[k] : out).stride[d];
    rank++;
  }
  bool direct = true;
  for (int k = 0; k <= count; k++) {
    step[k] = (k < count ? *x[k] : out).stride[dim];
    direct &= step[k] == 1 || n == 1;
  }
  parallel(lanes, GRAIN / n + 1, [&](int64_t begin, int64_t end) {
    const void* in[4] = {};
    for (int k = 0; k < wholeCount; k++) in[count + k] = whole[k];
    if (direct) {
      Walk walk(rank, shape, stride, count + 1, begin);
      for (int64_t i = begin; i < end; i++, walk.next()) {
        for (int k = 0; k < count; k++) in[k] = x[k]->data + walk.offset[k] * bytes;
        kernel(in, out.data + walk.offset[count] * bytes, n, params);
      }
      return;
    }
    const int64_t pitch = (n + 63) / 64 * 64 + 16;  // no power of two: lanes fall into different sets of the cache
    char* block = static_cast<char*>(scratch(SCRATCH_A, (size_t)pitch * bytes * BATCH * (count + 1)));
    Walk walk(rank, shape, stride, count + 1, begin);
    const int64_t row = rank > 0 ? shape[rank - 1] : 1;
    for (int64_t i = begin; i < end;) {
      // A batch ends where the innermost of the other dimensions does.
      const int64_t left = row - i % row, most = left < BATCH ? left : BATCH, m = end - i < most ? end - i : most;
      int64_t place[4][BATCH];
      for (int64_t j = 0; j < m; j++, walk.next())
        for (int k = 0; k <= count; k++) place[k][j] = walk.offset[k];
      for (int k = 0; k < count; k++)
        gatherLanes(block + k * BATCH * pitch * bytes, pitch, x[k]->data, place[k], m, step[k], n, bytes);
      char* results = block + count * BATCH * pitch * bytes;
      for (int64_t j = 0; j < m; j++) {
        for (int k = 0; k < count; k++) in[k] = block + (k * BATCH + j) * pitch * bytes;
        kernel(in, results + j * pitch * bytes, n, params);
      }
      scatterLanes(out.data, place[count], m, step[count], results, pitch, n, bytes);
      i += m;
    }
  });
}

Status softmax(const Call& c, const void* data) {
  const Operand* x[2] = {&c.in(0), &c.in(c.inputs - 1)};
  runLanes(isa->lane[c.out().dtype][(intptr_t)data], x, c.inputs, nullptr, 0, c.out(), (int)c.integer(0), c.params);
  return OK;
}

// Params: eps, then whether a weight and a bias follow the inputs that have the output's shape.
Status norm(const Call& c, const void* data) {
  const int shaped = (intptr_t)data == LAYER_NORM || (intptr_t)data == RMS_NORM ? 1 : 2;
  const Operand* x[2] = {&c.in(0), &c.in(shaped - 1)};
  const void* whole[2] = {};
  int next = shaped;
  if (c.params[1] != 0) whole[0] = contiguousData(c.in(next++), SCRATCH_B);
  if (c.params[2] != 0) whole[1] = contiguousData(c.in(next), SCRATCH_C);
  runLanes(isa->lane[c.out().dtype][(intptr_t)data], x, shaped, whole, 3 - shaped, c.out(), c.out().rank - 1, c.params);
  return OK;
}

struct Rope {
  Lane lane;
  int time;
};

Status rope(const Call& c, const void* data) {
  const Rope& variant = *static_cast<const Rope*>(data);
  const Operand &x = c.in(0), &out = c.out();
  if (out.size() == 0) return OK;
  const int bytes = x.bytes();
  const char* cos = contiguousData(c.in(1), SCRATCH_B);
  const char* sin = contiguousData(c.in(2), SCRATCH_C);
  const int64_t width = x.shape[3], half = width / 2, d1 = x.shape[1], d2 = x.shape[2];
  const int64_t perBatch = c.in(1).rank == 3 ? c.in(1).shape[1] * half : 0;
  LaneKernel kernel = isa->lane[x.dtype][variant.lane];
  parallel(x.shape[0] * d1 * d2, GRAIN / (width + 1) + 1, [&](int64_t begin, int64_t end) {
    char* line = x.stride[3] == 1 ? nullptr : static_cast<char*>(scratch(SCRATCH_A, width * bytes));
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / (d1 * d2), p = i / d2 % d1, q = i % d2;
      const char* from = x.data + (b * x.stride[0] + p * x.stride[1] + q * x.stride[2]) * bytes;
      if (line) {
        gatherRun(line, from, x.stride[3], width, bytes);
        from = line;
      }
      const int64_t angle = (b * perBatch + (variant.time == 1 ? p : q) * half) * bytes;
      const void* in[3] = {from, cos + angle, sin + angle};
      kernel(in, out.data + i * width * bytes, width, nullptr);
    }
  });
  return OK;
}

const Rope HALVES = {ROPE_HALVES, 2}, NEIGHBOURS = {ROPE_NEIGHBOURS, 2}, THD = {ROPE_HALVES, 1};
const void* lane(Lane l) { return reinterpret_cast<const void*>((intptr_t)l); }

}  // namespace

WICK_OPS(rows) = {{"softmax", softmax, lane(SOFTMAX)},
                  {"logSoftmax", softmax, lane(LOG_SOFTMAX)},
                  {"softmaxBackward", softmax, lane(SOFTMAX_BACKWARD)},
                  {"logSoftmaxBackward", softmax, lane(LOG_SOFTMAX_BACKWARD)},
                  {"layerNorm", norm, lane(LAYER_NORM)},
                  {"rmsNorm", norm, lane(RMS_NORM)},
                  {"layerNormBackward", norm, lane(LAYER_NORM_BACKWARD)},
                  {"rmsNormBackward", norm, lane(RMS_NORM_BACKWARD)},
                  {"rope", rope, &HALVES},
                  {"ropeI", rope, &NEIGHBOURS},
                  {"ropeThd", rope, &THD},
                  {nullptr, nullptr, nullptr}};

}  // namespace wick
