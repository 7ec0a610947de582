// Convolutions as matrix products: the product unrolls the pictures into its own panels; for a few filters, stretches
// of output positions are unrolled into a block that stays in the cache. Integers by plain loops.
#include <cinttypes>
#include <cstdlib>

#include "ops.h"
#include "engine/strided.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t BLOCK_BYTES = 4 << 20;  // of unrolled lines
constexpr int64_t COLUMNS_BYTES = 64 << 20;
constexpr int64_t MOST_SIDE = 1 << 30;  // of a picture, for places in 32 bits

// Both ranks as pictures: a line has height 1. `image` is the larger side of a convolution, `result` the smaller.
struct Conv {
  int64_t batch, groups, cImage, cResult, H, W, h, w, kh, kw, sh, sw, ph, pw, dh, dw;
  int64_t perImage() const { return cImage / groups; }
  int64_t perResult() const { return cResult / groups; }
  int64_t taps() const { return kh * kw; }
};

// Params: stride, padding and dilation as (h, w) pairs, then groups.
Conv describe(const Call& c, const Operand& image, const Operand& result, const Operand& kernel) {
  const int r = image.rank;
  auto high = [&](const Operand& o) { return r == 4 ? o.shape[2] : 1; };
  auto wide = [&](const Operand& o) { return o.shape[r - 1]; };
  return {image.shape[0], c.integer(6), image.shape[1], result.shape[1], high(image),  wide(image),
          high(result),   wide(result), high(kernel),   wide(kernel),    c.integer(0), c.integer(1),
          c.integer(2),   c.integer(3), c.integer(4),   c.integer(5)};
}

template <class E>
void unrollAs(const Conv& v, const char* plane, int64_t sc, int64_t sy, int64_t sx, int64_t from, int64_t n, E* to) {
  const E* x = reinterpret_cast<const E*>(plane);
  for (int64_t c = 0; c < v.perImage(); c++)
    for (int64_t ky = 0; ky < v.kh; ky++)
      for (int64_t kx = 0; kx < v.kw; kx++, to += n) {
        for (int64_t p = 0; p < n;) {
          const int64_t y = (from + p) / v.w, x0 = (from + p) % v.w;
          int64_t run = v.w - x0 < n - p ? v.w - x0 : n - p;
          const int64_t iy = y * v.sh + ky * v.dh - v.ph;
          E* line = to + p;
          p += run;
          if (iy < 0 || iy >= v.H) {
            memset(line, 0, run * sizeof(E));
            continue;
          }
          const E* row = x + c * sc + iy * sy;
          int64_t i = 0, ix = x0 * v.sw + kx * v.dw - v.pw;
          for (; i < run && ix < 0; i++, ix += v.sw) line[i] = E{};
          if (v.sw == 1 && sx == 1) {
            int64_t m = v.W - ix < run - i ? v.W - ix : run - i;
            if (m > 0) {
              memcpy(line + i, row + ix, m * sizeof(E));
              i += m;
            }
          } else
            for (; i < run && ix < v.W; i++, ix += v.sw) line[i] = row[ix * sx];
          for (; i < run; i++) line[i] = E{};
        }
      }
}
// n positions of a picture, a line for every channel and tap.
void unroll(int bytes, const Conv& v, const char* plane, int64_t sc, int64_t sy, int64_t sx, int64_t from, int64_t n,
            char* to) {
  switch (bytes) {
    case 2: return unrollAs(v, plane, sc, sy, sx, from, n, reinterpret_cast<uint16_t*>(to));
    case 4: return unrollAs(v, plane, sc, sy, sx, from, n, reinterpret_cast<uint32_t*>(to));
    default: return unrollAs(v, plane, sc, sy, sx, from, n, reinterpret_cast<uint64_t*>(to));
  }
}

// Every output starts from its channel's bias; answers whether there was one.
bool startFromBias(const Operand* bias, const Operand& out) {
  if (!bias) return false;
  Operand spread = out;
  spread.data = bias->data;
  for (int d = 0; d < out.rank; d++) spread.stride[d] = d == 1 ? bias->stride[0] : 0;
  copyStrided(spread, out);
  return true;
}

// The product itself unrolls its columns, all pictures side by side.
void convTiles(const Conv& v, const Operand& x, const char* w, bool add, const Operand& out) {
  const int bytes = x.bytes(), r = x.rank;
  const int64_t area = v.h * v.w, depth = v.perImage() * v.taps();
  auto group = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; g++) {
      const Pictures pictures = {x.data + g * v.perImage() * x.stride[1] * bytes,
                                 x.stride[0],
                                 x.stride[1],
                                 r == 4 ? x.stride[2] : 0,
                                 x.stride[r - 1],
                                 v.H,
                                 v.W,
                                 v.h,
                                 v.w,
                                 v.kh,
                                 v.kw,
                                 v.sh,
                                 v.sw,
                                 v.ph,
                                 v.pw,
                                 v.dh,
                                 v.dw,
                                 v.cResult * area};
      const Product p = {v.perResult(),
                         v.batch * area,
                         depth,
                         {w + g * v.perResult() * depth * bytes, depth, 1},
                         {},
                         {out.data + g * v.perResult() * area * bytes, area, 1},
                         &pictures};
      isa->matmul[x.dtype](p, add);
    }
  };
  if (v.groups >= 2 * threadCount()) parallel(v.groups, 1, group);
  else group(0, v.groups);
}

// Few rows of weights are read against lines that lie in a block.
void convLines(const Conv& v, const Operand& x, const char* w, bool add, const Operand& out) {
  const int bytes = x.bytes(), r = x.rank;
  const int64_t area = v.h * v.w, depth = v.perImage() * v.taps();
  const int64_t sc = x.stride[1], sy = r == 4 ? x.stride[2] : 0, sx = x.stride[r - 1];
  const int64_t fair = (v.batch * v.groups * area + threadCount() - 1) / threadCount();
  int64_t stretch = BLOCK_BYTES / (depth * bytes) / 64 * 64;
  if (fair < stretch) stretch = (fair + 63) / 64 * 64;
  if (stretch < 64) stretch = 64;
  const bool pointwise =
      v.taps() == 1 && v.sh == 1 && v.sw == 1 && v.ph == 0 && v.pw == 0 && (v.H == 1 || sy == sx * v.W);
  if (pointwise || stretch > area) stretch = area;
  const int64_t pieces = (area + stretch - 1) / stretch, tasks = v.batch * v.groups * pieces;
  MatmulFn matmul = isa->matmul[x.dtype];
  parallel(tasks, tasks < threadCount() ? tasks : (1 << 18) / (v.perResult() * depth * stretch + 1) + 1,
           [&](int64_t begin, int64_t end) {
             for (int64_t t = begin; t < end; t++) {
               const int64_t from = t % pieces * stretch, n = area - from < stretch ? area - from : stretch;
               const int64_t g = t / pieces % v.groups, b = t / pieces / v.groups;
               const char* plane = x.data + (b * x.stride[0] + g * v.perImage() * sc) * bytes;
               Matrix columns = {plane, sc, sx};
               if (!pointwise) {
                 char* block = static_cast<char*>(scratch(SCRATCH_Y, (size_t)(depth * n * bytes)));
                 unroll(bytes, v, plane, sc, sy, sx, from, n, block);
                 columns = {block, n, 1};
               }
               Product p = {
                   v.perResult(), n,
                   depth,         {w + g * v.perResult() * depth * bytes, depth, 1},
                   columns,       {out.data + ((b * v.cResult + g * v.perResult()) * area + from) * bytes, area, 1}};
               matmul(p, add);
             }
           });
}

void convFloat(const Conv& v, const Operand& x, const Operand& kernel, const Operand* bias, const Operand& out) {
  const char* w = contiguousData(kernel, SCRATCH_X);
  const bool add = startFromBias(bias, out);
  const bool tiles = v.perResult() > 4 && v.H + v.ph < MOST_SIDE && v.W + v.pw < MOST_SIDE;
  (tiles ? convTiles : convLines)(v, x, w, add, out);
}

// Adds one channel's unrolled columns back into the picture.
template <class E> void rollBack(const Conv& v, const E* columns, E* picture) {
  for (int64_t ky = 0; ky < v.kh; ky++)
    for (int64_t kx = 0; kx < v.kw; kx++)
      for (int64_t y = 0; y < v.h; y++) {
        const E* line = columns + ((ky * v.kw + kx) * v.h + y) * v.w;
        const int64_t iy = y * v.sh + ky * v.dh - v.ph;
        if (iy < 0 || iy >= v.H) continue;
        E* row = picture + iy * v.W;
        for (int64_t x = 0, ix = kx * v.dw - v.pw; x < v.w; x++, ix += v.sw)
          if (ix >= 0 && ix < v.W) row[ix] += line[x];
      }
}

// f32 and f64: the transposed product gives every tap's contribution, which is added into the picture channel by
// channel.
void transposeFloat(const Conv& v, const Operand& x, const Operand& kernel, const Operand* bias, const Operand& out) {
  const int bytes = x.bytes();
  const char* data = contiguousData(x, SCRATCH_X);
  const char* w = contiguousData(kernel, SCRATCH_Y);
  if (!startFromBias(bias, out)) memset(out.data, 0, out.size() * bytes);
  const int64_t area = v.h * v.w, taps = v.taps(), depth = v.perResult();
  int64_t chunk = COLUMNS_BYTES / (taps * area * bytes);
  chunk = chunk < 1 ? 1 : chunk < v.perImage() ? chunk : v.perImage();
  void* columns = scratch(SCRATCH_Z, (size_t)(chunk * taps * area * bytes));
  for (int64_t b = 0; b < v.batch; b++)
    for (int64_t g = 0; g < v.groups; g++)
      for (int64_t c0 = 0; c0 < v.perImage(); c0 += chunk) {
        const int64_t n = v.perImage() - c0 < chunk ? v.perImage() - c0 : chunk;
        Product p = {n * taps,
                     area,
                     depth,
                     {w + (g * depth * v.perImage() + c0) * taps * bytes, 1, v.perImage() * taps},
                     {data + (b * v.cResult + g * depth) * area * bytes, area, 1},
                     {static_cast<const char*>(columns), area, 1}};
        isa->matmul[x.dtype](p, false);
        parallel(n, 65536 / (taps * area + 1) + 1, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; c++) {
            const int64_t picture = ((b * v.groups + g) * v.perImage() + c0 + c) * v.H * v.W;
            if (bytes == 4) rollBack(v, static_cast<float*>(columns) + c * taps * area, out.as<float>() + picture);
            else rollBack(v, static_cast<double*>(columns) + c * taps * area, out.as<double>() + picture);
          }
        });
      }
}

// The same walk serves both directions: every product of image, kernel and result.
template <class E> void plain(const Conv& v, const E* image, const E* kernel, E* result, E* imageOut) {
  for (int64_t b = 0; b < v.batch; b++)
    for (int64_t r = 0; r < v.cResult; r++) {
      const int64_t first = r / v.perResult() * v.perImage();
      for (int64_t y = 0; y < v.h; y++)
        for (int64_t x = 0; x < v.w; x++) {
          E& place = result[((b * v.cResult + r) * v.h + y) * v.w + x];
          for (int64_t c = 0; c < v.perImage(); c++)
            for (int64_t ky = 0; ky < v.kh; ky++) {
              const int64_t iy = y * v.sh + ky * v.dh - v.ph;
              if (iy < 0 || iy >= v.H) continue;
              for (int64_t kx = 0; kx < v.kw; kx++) {
                const int64_t ix = x * v.sw + kx * v.dw - v.pw;
                if (ix < 0 || ix >= v.W) continue;
                const int64_t i = ((b * v.cImage + first + c) * v.H + iy) * v.W + ix;
                const E k = kernel[((r * v.perImage() + c) * v.kh + ky) * v.kw + kx];
                if (imageOut) imageOut[i] = (E)(imageOut[i] + place * k);
                else place = (E)(place + image[i] * k);
              }
            }
        }
    }
}
template <class E>
void whole(const Conv& v, const Operand& x, const Operand& kernel, const Operand* bias, const Operand& out,
           bool transposed) {
  const char* data = contiguousData(x, SCRATCH_X);
  const char* w = contiguousData(kernel, SCRATCH_Y);
  if (!startFromBias(bias, out)) memset(out.data, 0, out.size() * sizeof(E));
  E* from = reinterpret_cast<E*>(const_cast<char*>(data));
  if (transposed) plain<E>(v, nullptr, reinterpret_cast<const E*>(w), from, out.as<E>());
  else plain<E>(v, from, reinterpret_cast<const E*>(w), out.as<E>(), nullptr);
}

void run(const Conv& v, const Operand& x, const Operand& w, const Operand* bias, const Operand& out, bool transposed) {
  if (x.dtype == U8) return whole<uint8_t>(v, x, w, bias, out, transposed);
  if (x.dtype == U32) return whole<uint32_t>(v, x, w, bias, out, transposed);
  if (transposed) return transposeFloat(v, x, w, bias, out);
  convFloat(v, x, w, bias, out);
}

Operand widened(const Operand& x, void* data) {
  Operand o = x;
  o.data = static_cast<char*>(data);
  o.dtype = F32;
  int64_t n = 1;
  for (int d = x.rank - 1; d >= 0; d--) {
    o.stride[d] = n;
    n *= x.shape[d];
  }
  return o;
}

Status conv(const Call& c, const void* data) {
  const bool transposed = data != nullptr;
  const Operand &x = c.in(0), &w = c.in(1), &out = c.out();
  const Operand* bias = c.inputs == 3 ? &c.in(2) : nullptr;
  if (out.size() == 0) return OK;
  const Conv v = transposed ? describe(c, out, x, w) : describe(c, x, out, w);
  if (v.cResult == 0 || v.cImage == 0) {
    if (!startFromBias(bias, out)) memset(out.data, 0, out.size() * out.bytes());
    return OK;
  }
  if (!transposed || out.bytes() >= 4 || !isFloatType(x.dtype)) {
    run(v, x, w, bias, out, transposed);
    return OK;
  }
  // Contributions to a picture add up in f32 and are rounded once.
  void* blocks[4] = {malloc(x.size() * 4 + 64), malloc(w.size() * 4 + 64), malloc(bias ? bias->size() * 4 + 64 : 64),
                     malloc(out.size() * 4 + 64)};
  Status status = OK;
  if (blocks[0] && blocks[1] && blocks[2] && blocks[3]) {
    Operand wideX = widened(x, blocks[0]), wideW = widened(w, blocks[1]), wideBias, wideOut = widened(out, blocks[3]);
    Kernel up = isa->cast[x.dtype][F32];
    runStrided(up, &x, 1, wideX, nullptr);
    runStrided(up, &w, 1, wideW, nullptr);
    if (bias) {
      wideBias = widened(*bias, blocks[2]);
      runStrided(up, bias, 1, wideBias, nullptr);
    }
    run(v, wideX, wideW, bias ? &wideBias : nullptr, wideOut, true);
    runStrided(isa->cast[F32][out.dtype], &wideOut, 1, out, nullptr);
  } else status = fail(c, NO_MEMORY, "no memory for a transposed convolution of %" PRId64 " elements", out.size());
  for (void* b : blocks) free(b);
  return status;
}

const char TRANSPOSED = 1;

}  // namespace

WICK_OPS(conv) = {{"conv1d", conv, nullptr},
                  {"conv2d", conv, nullptr},
                  {"convTranspose1d", conv, &TRANSPOSED},
                  {"convTranspose2d", conv, &TRANSPOSED},
                  {nullptr, nullptr, nullptr}};

}  // namespace wick
