// Weights in ggml's blocks: decoding, rows by number, products with whole matrices and with those of chosen experts,
// which may be floats too.
#include <cmath>
#include <cstdlib>

#include "engine/strided.h"
#include "engine/threads.h"
#include "ops.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 1 << 15;    // values a thread should at least get
constexpr int64_t ROUNDED = 1 << 12;  // the same of values to round, each of which takes longer
constexpr int64_t TILE_ROWS = 32;     // rows of weights that are decoded together
constexpr int64_t TASK_VALUES = 1 << 16;
constexpr int64_t FEW = 8;

// Blocks as rows of bytes.
struct Weights {
  const BlockKernels& type;
  const uint8_t* data;
  int64_t rows, rowBytes, length;  // values of a row
};
Weights weightsOf(const Call& c, const Operand& blocks) {
  const BlockKernels& type = *isa->blocks[c.integer(0)];
  const int64_t rowBytes = blocks.shape[blocks.rank - 1];
  const uint8_t* data = reinterpret_cast<const uint8_t*>(contiguousData(blocks, SCRATCH_BLOCKS));
  return {type, data, rowBytes ? blocks.size() / rowBytes : 0, rowBytes, rowBytes / type.bytes * type.values};
}

// Floats to the dtype of the result.
void put(const float* y, const Operand& out, int64_t at, int64_t n) {
  castRun(F32, out.dtype, y, out.data + at * out.bytes(), n);
}

void decodeRow(const Weights& w, int64_t row, const Operand& out, int64_t at) {
  const uint8_t* from = w.data + row * w.rowBytes;
  const int64_t blocks = w.rowBytes / w.type.bytes;
  if (out.dtype == F32) return w.type.decode(from, out.as<float>() + at, blocks);
  float* y = static_cast<float*>(scratch(SCRATCH_X, w.length * sizeof(float)));
  w.type.decode(from, y, blocks);
  put(y, out, at, w.length);
}

Status dequantize(const Call& c, const void*) {
  const Weights w = weightsOf(c, c.in(0));
  parallel(w.rows, GRAIN / (w.length + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) decodeRow(w, r, c.out(), r * w.length);
  });
  return OK;
}

// Rows of floats as blocks of Q8_0: a scale in 16 bits, then 32 whole numbers; halves go away from zero.
Status q8Blocks(const Call& c, const void*) {
  constexpr int64_t VALUES = 32, BYTES = 34;
  const Operand& x = c.in(0);
  const char* data = contiguousData(x, SCRATCH_ROWS);
  parallel(x.size() / VALUES, GRAIN / VALUES, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      float v[VALUES], most = 0;
      castRun(x.dtype, F32, data + b * VALUES * x.bytes(), v, VALUES);
      for (float f : v) most = fabsf(f) > most || f != f ? fabsf(f) : most;
      const bool finite = most < INFINITY;
      const float d = finite ? most / 127 : NAN, inverse = finite && d != 0 ? 1 / d : 0;
      char* out = c.out().data + b * BYTES;
      castRun(F32, F16, &d, out, 1);
      for (int64_t i = 0; i < VALUES; i++) out[2 + i] = finite ? (char)(int8_t)roundf(v[i] * inverse) : 0;
    }
  });
  return OK;
}

// Rows of finite floats as blocks of any type that is encoded; a second input says how much each column counts.
Status encodeBlocks(const Call& c, const void*) {
  const EncodeRow encode = isa->encodeRow[c.integer(0)];
  const Operand& x = c.in(0);
  const int64_t n = x.shape[x.rank - 1], bytes = c.out().shape[c.out().rank - 1], rows = n ? x.size() / n : 0;
  const float* data = reinterpret_cast<const float*>(contiguousData(x, SCRATCH_ROWS));
  const float* importance =
      c.inputs > 1 ? reinterpret_cast<const float*>(contiguousData(c.in(1), SCRATCH_BLOCKS)) : nullptr;
  parallel(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) encode(data + r * n, n, importance, c.out().as<uint8_t>() + r * bytes);
  });
  return OK;
}

// The place an index names: -1 for the dtype's largest value, -2 where it is out of range.
int64_t placeAt(const Operand& ids, const char* data, int64_t i, int64_t n, int64_t* value) {
  static const int64_t SENTINELS[] = {255, 0xffffffffll, 0x7fff, 0x7fffffffll, INT64_MAX};
  switch (ids.dtype) {
    case U8: *value = reinterpret_cast<const uint8_t*>(data)[i]; break;
    case U32: *value = reinterpret_cast<const uint32_t*>(data)[i]; break;
    case I16: *value = reinterpret_cast<const int16_t*>(data)[i]; break;
    case I32: *value = reinterpret_cast<const int32_t*>(data)[i]; break;
    default: *value = reinterpret_cast<const int64_t*>(data)[i];
  }
  if (*value == SENTINELS[ids.dtype]) return -1;
  return *value >= 0 && *value < n ? *value : -2;
}
Status outOfRange(const Call& c, int64_t value, int64_t i, int64_t n) {
  return fail(c, BAD_INDEX, "index %lld at position %lld is out of range for a dimension of size %lld",
              (long long)value, (long long)i, (long long)n);
}
Status checkIndices(const Call& c, const Operand& ids, const char* data, int64_t n) {
  for (int64_t i = 0, count = ids.size(), value; i < count; i++)
    if (placeAt(ids, data, i, n, &value) == -2) return outOfRange(c, value, i, n);
  return OK;
}

Status rows(const Call& c, const void*) {
  const Weights w = weightsOf(c, c.in(0));
  const Operand& ids = c.in(1);
  const char* data = contiguousData(ids, SCRATCH_Y);
  if (Status bad = checkIndices(c, ids, data, w.rows)) return bad;
  parallel(ids.size(), GRAIN / (w.length + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, value; i < end; i++) {
      const int64_t row = placeAt(ids, data, i, w.rows, &value);
      if (row >= 0) decodeRow(w, row, c.out(), i * w.length);
      else memset(c.out().data + i * w.length * c.out().bytes(), 0, w.length * c.out().bytes());
    }
  });
  return OK;
}

// ---- products ----

// Activations as rows: floats as they are, or rounded to whole numbers.
struct Activations {
  const char* data;  // contiguous, of the call's dtype
  int64_t rows, n;
  const float* wide;  // as f32, unless the dtype is f64
  Rounded rounded;
};

// Lays `a` out in scratch of the calling thread, which other threads may read while it waits for them.
void widen(Activations& a, int dtype) {
  if (dtype == F64) return;
  if (dtype == F32) {
    a.wide = reinterpret_cast<const float*>(a.data);
    return;
  }
  float* room = static_cast<float*>(scratch(SCRATCH_Z, a.rows * a.n * sizeof(float)));
  castRun(dtype, F32, a.data, room, a.rows * a.n);
  a.wide = room;
}
void roundAll(Activations& a, bool blocks) {
  const int64_t rows = blocks ? (a.rows + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS : a.rows;
  const int64_t groups = a.n / 32, size = rows * (3 * a.n + groups * 12);
  char* room = static_cast<char*>(scratch(SCRATCH_ROWS, size + 64));
  int8_t* q = reinterpret_cast<int8_t*>(room);  // first, for vectors of it fill whole lines of the cache
  int16_t* wide = reinterpret_cast<int16_t*>(q + rows * a.n);
  float* scale = reinterpret_cast<float*>(wide + rows * a.n);
  float* sum = scale + rows * groups;
  a.rounded = {q, scale, sum, wide, a.n, blocks};
  if (rows > a.rows) {  // the last block has rows that nobody reads, but which are multiplied
    memset(q + (rows - BLOCK_ROWS) * a.n, 0, BLOCK_ROWS * a.n);
    memset(scale + (rows - BLOCK_ROWS) * groups, 0, BLOCK_ROWS * groups * sizeof(float));
    memset(sum + (rows - BLOCK_ROWS) * groups * 2, 0, BLOCK_ROWS * groups * 2 * sizeof(float));
  }
  parallel(a.rows, ROUNDED / (a.n + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; m++) isa->roundRow(a.wide + m * a.n, a.rounded, m);
  });
}

// out[m * pitch + r] for rows [begin, end) of w, in f32 or f64 as the activations are, without rounding them.
template <class E>
void exactRows(const Weights& w, int64_t begin, int64_t end, const E* x, int64_t m, E* out, int64_t pitch) {
  constexpr int dtype = sizeof(E) == 8 ? F64 : F32;
  for (int64_t r = begin; r < end; r += TILE_ROWS) {
    const int64_t count = end - r < TILE_ROWS ? end - r : TILE_ROWS, blocks = w.rowBytes / w.type.bytes;
    float* y = static_cast<float*>(scratch(SCRATCH_X, count * w.length * (sizeof(float) + sizeof(E))));
    w.type.decode(w.data + r * w.rowBytes, y, count * blocks);
    const char* tile = reinterpret_cast<const char*>(y);
    if (dtype == F64) {
      E* wide = reinterpret_cast<E*>(y + count * w.length);
      castRun(F32, F64, y, wide, count * w.length);
      tile = reinterpret_cast<const char*>(wide);
    }
    const Product p = {m,
                       count,
                       w.length,
                       {reinterpret_cast<const char*>(x), w.length, 1},
                       {tile, 1, w.length},
                       {reinterpret_cast<const char*>(out + r), pitch, 1}};
    isa->matmul[dtype](p, false);
  }
}

// How a product is shared out: `rows` of weights and `stretch` rows of activations a task.
struct Shares {
  int64_t rows, stretch;
};
// Many rows of activations: small tasks, for threads wait for the last one and cores are not equally fast; but unpacking
// weights takes as long as multiplying them by UNPACK rows. No task has so few rows that
// its sums would have another order.
Shares evenShares(int64_t count, int64_t m, bool quick) {
  constexpr int64_t UNPACK = 20, STEP = 48, MOST = 4;  // whole blocks of rows, and whole tiles of vectors
  const int64_t strips = (count + TILE_ROWS - 1) / TILE_ROWS;
  int64_t best = m, least = INT64_MAX;
  for (int64_t pieces = 1; pieces <= (quick ? MOST : 1); pieces++) {
    const int64_t stretch = (m + pieces * STEP - 1) / (pieces * STEP) * STEP;
    if (m > stretch && m % stretch && m % stretch <= LONE_ROWS) continue;
    const int64_t tasks = strips * ((m + stretch - 1) / stretch);
    const int64_t time = (tasks + threadCount()) * (UNPACK + (stretch < m ? stretch : m));
    if (time < least) least = time, best = stretch;
  }
  return {TILE_ROWS, best};
}
// A few are read off at memory's pace, weights in long runs: with shorter ones, more often new to the memory, they took
// longer.
Shares longRuns(int64_t count, int64_t m, int64_t length) {
  const int64_t fair = (count + 4 * threadCount() - 1) / (4 * threadCount()), few = TASK_VALUES / length + 1;
  return {((fair > few ? fair : few) + 1) / 2 * 2, m};
}

// Rows [first, first + count) of w against m rows of activations from `row` on; the result is contiguous, count wide.
void multiply(const Weights& w, int64_t first, int64_t count, const Activations& a, int64_t row, int64_t m, bool quick,
              const Operand& out, int64_t at) {
  const Shares task = m >= FEW ? evenShares(count, m, quick) : longRuns(count, m, w.length);
  const int64_t stretches = (m + task.stretch - 1) / task.stretch;
  // Results that are not f32 go through a block of floats first.
  const bool direct = out.dtype == F32 || out.dtype == F64;
  float* room = direct ? nullptr : static_cast<float*>(scratch(SCRATCH_Y, m * count * sizeof(float)));
  const Weights part = {w.type, w.data + first * w.rowBytes, count, w.rowBytes, w.length};
  float* y = direct ? out.as<float>() + at : room;
  auto run = [&](int64_t from, int64_t to, int64_t k, int64_t some) {
    if (out.dtype == F64)
      return exactRows<double>(part, from, to, reinterpret_cast<const double*>(a.data) + (row + k) * a.n, some,
                               out.as<double>() + at + k * count, count);
    if (!quick) return exactRows<float>(part, from, to, a.wide + (row + k) * a.n, some, y + k * count, count);
    w.type.product(part.data + from * w.rowBytes, w.rowBytes, to - from, a.rounded.from(row + k), some,
                   y + k * count + from, count);
  };
  parallelTasks((count + task.rows - 1) / task.rows * stretches, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n++) {
      const int64_t from = n / stretches * task.rows, k = n % stretches * task.stretch;
      run(from, from + task.rows < count ? from + task.rows : count, k, m - k < task.stretch ? m - k : task.stretch);
    }
  });
  if (room) put(room, out, at, m * count);
}

// `blocks`: rows that products of many read.
Activations activationsOf(const Operand& x, int64_t n, bool quick, bool blocks) {
  Activations a = {contiguousData(x, SCRATCH_C), n ? x.size() / n : 0, n, nullptr, {}};
  widen(a, x.dtype);
  if (quick) roundAll(a, blocks && a.rows >= FEW);
  return a;
}

Status matmul(const Call& c, const void*) {
  const Operand& x = c.in(0);
  if (c.out().size() == 0) return OK;
  const Weights w = weightsOf(c, c.in(1));
  const bool quick = c.params[1] != 0 && x.dtype != F64;
  const Activations a = activationsOf(x, w.length, quick, w.type.readsBlocks());
  multiply(w, 0, w.rows, a, 0, a.rows, quick, c.out(), 0);
  return OK;
}

// Rows of 8-bit floats with a scale for every FLOAT8_GROUP values, times rows of floats E.
constexpr int64_t FLOAT8_GROUP = 128;
template <class E>
void float8Rows(const char* w, const float* scales, int64_t begin, int64_t end, const E* x, int64_t m, int64_t n,
                E* out, int64_t pitch) {
  constexpr int dtype = sizeof(E) == 8 ? F64 : F32;
  for (int64_t r = begin; r < end; r += TILE_ROWS) {
    const int64_t count = end - r < TILE_ROWS ? end - r : TILE_ROWS;
    E* tile = static_cast<E*>(scratch(SCRATCH_X, count * n * sizeof(E)));
    castRun(F8, dtype, w + r * n, tile, count * n);
    for (int64_t i = 0; i < count * n; i++) tile[i] *= scales[(r * n + i) / FLOAT8_GROUP];
    const Product p = {m,
                       count,
                       n,
                       {reinterpret_cast<const char*>(x), n, 1},
                       {reinterpret_cast<const char*>(tile), 1, n},
                       {reinterpret_cast<const char*>(out + r), pitch, 1}};
    isa->matmul[dtype](p, false);
  }
}
Status float8Matmul(const Call& c, const void*) {
  const Operand &w = c.in(1), &out = c.out();
  if (out.size() == 0) return OK;
  const int64_t rows = w.shape[0], n = w.shape[1];
  const Activations a = activationsOf(c.in(0), n, false, false);
  const char* values = contiguousData(w, SCRATCH_BLOCKS);
  const float* scales = reinterpret_cast<const float*>(contiguousData(c.in(2), SCRATCH_ROWS));
  const bool direct = out.dtype == F32 || out.dtype == F64;
  float* room = direct ? nullptr : static_cast<float*>(scratch(SCRATCH_Y, out.size() * sizeof(float)));
  const int64_t task = TASK_VALUES / n + 1;
  parallelTasks((rows + task - 1) / task, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * task, to = end * task < rows ? end * task : rows;
    if (out.dtype == F64) {
      const double* x = reinterpret_cast<const double*>(a.data);
      return float8Rows<double>(values, scales, from, to, x, a.rows, n, out.as<double>(), rows);
    }
    float8Rows<float>(values, scales, from, to, a.wide, a.rows, n, direct ? out.as<float>() : room, rows);
  });
  if (room) put(room, out, 0, out.size());
  return OK;
}

Status experts(const Call& c, const void*) {
  const Operand &x = c.in(0), &ids = c.in(2), &out = c.out();
  if (out.size() == 0) return OK;
  const Weights w = weightsOf(c, c.in(1));
  const int64_t count = c.in(1).shape[0], outputs = c.in(1).shape[1], chosen = ids.shape[1], given = x.shape[1];
  int64_t* places = static_cast<int64_t*>(malloc(ids.size() * sizeof(int64_t)));
  if (!places) return fail(c, NO_MEMORY, "no memory for %lld indices", (long long)ids.size());
  const char* data = contiguousData(ids, SCRATCH_Y);
  Status status = checkIndices(c, ids, data, count);
  for (int64_t i = 0, value; status == OK && i < ids.size(); i++) places[i] = placeAt(ids, data, i, count, &value);
  if (status == OK) {
    const bool quick = c.params[1] != 0 && x.dtype != F64;
    const Activations a = activationsOf(x, w.length, quick, false);
    for (int64_t i = 0; i < ids.size(); i++) {
      const int64_t row = given == 1 ? i / chosen : i;
      if (places[i] >= 0) multiply(w, places[i] * outputs, outputs, a, row, 1, quick, out, i * outputs);
      else memset(out.data + i * outputs * out.bytes(), 0, outputs * out.bytes());
    }
  }
  free(places);
  return status;
}

// The same with weights in floats.
Status floatExperts(const Call& c, const void*) {
  const Operand &x = c.in(0), &w = c.in(1), &ids = c.in(2), &out = c.out();
  if (out.size() == 0) return OK;
  const int64_t count = w.shape[0], outputs = w.shape[1], n = w.shape[2], chosen = ids.shape[1], given = x.shape[1];
  const int64_t bytes = x.bytes();
  const char* data = contiguousData(ids, SCRATCH_Y);
  if (Status bad = checkIndices(c, ids, data, count)) return bad;
  parallel(ids.size(), GRAIN / (outputs * (n + 1)) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, value; i < end; i++) {
      const int64_t expert = placeAt(ids, data, i, count, &value), token = i / chosen;
      const char* row = x.data + (token * x.stride[0] + (given == 1 ? 0 : i % chosen * x.stride[1])) * bytes;
      char* to = out.data + i * outputs * bytes;
      const Product p = {1,
                         outputs,
                         n,
                         {row, 0, x.stride[2]},
                         {w.data + expert * w.stride[0] * bytes, w.stride[2], w.stride[1]},
                         {to, outputs, 1}};
      if (expert < 0) memset(to, 0, outputs * bytes);
      else isa->matmul[x.dtype](p, false);
    }
  });
  return OK;
}

}  // namespace

WICK_OPS(quantized) = {
    {"dequantize", dequantize, nullptr},      {"q8Blocks", q8Blocks, nullptr},     {"qrows", rows, nullptr},
    {"encodeBlocks", encodeBlocks, nullptr},  {"qmatmul", matmul, nullptr},        {"qmatmulExperts", experts, nullptr},
    {"matmulExperts", floatExperts, nullptr}, {"f8matmul", float8Matmul, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
