// Checks every family of the engine against scalar loops, once per instruction set this CPU has. Built with all other
// files of native/. Prints one line per instruction set and leaves with the number of failures. Arguments: an
// instruction set, then `quick` for emulators.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/abi.h"

extern "C" {
int wick_select(const char*);
int wick_find(const char*);
int wick_run(double);
int wick_threads(int);
}

using namespace wick;
typedef std::vector<double> Values;
typedef std::vector<int64_t> Dims;

static int failures = 0, checks = 0;
static bool quick = false;

// Scalar conversions, written apart from the engine's.
static double decode(int dtype, const char* p) {
  switch (dtype) {
    case U8: return *(const uint8_t*)p;
    case U32: return *(const uint32_t*)p;
    case I16: return *(const int16_t*)p;
    case I32: return *(const int32_t*)p;
    case I64: return (double)*(const int64_t*)p;
    case F32: return *(const float*)p;
    case F64: return *(const double*)p;
    case BF16: {
      uint32_t b = (uint32_t) * (const uint16_t*)p << 16;
      float f;
      memcpy(&f, &b, 4);
      return f;
    }
    case F16: {
      int b = *(const uint16_t*)p, e = b >> 10 & 31, m = b & 1023;
      double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
      return b >> 15 ? -v : v;
    }
    default: {
      int b = *(const uint8_t*)p, e = b >> 3 & 15, m = b & 7;
      double v = e == 15 && m == 7 ? NAN : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
      return b >> 7 ? -v : v;
    }
  }
}
static double roundTo(double v, int bits, int least) {
  if (v == 0 || v != v || std::isinf(v)) return v;
  int e;
  frexp(v, &e);
  double unit = ldexp(1, (e - 1 < least ? least : e - 1) - bits);
  return nearbyint(v / unit) * unit;
}
static void encode(int dtype, double v, char* p) {
  switch (dtype) {
    case U8: *(uint8_t*)p = (uint8_t)(int64_t)v; return;
    case U32: *(uint32_t*)p = (uint32_t)(int64_t)v; return;
    case I16: *(int16_t*)p = (int16_t)v; return;
    case I32: *(int32_t*)p = (int32_t)v; return;
    case I64: *(int64_t*)p = (int64_t)v; return;
    case F32: *(float*)p = (float)v; return;
    case F64: *(double*)p = v; return;
    case BF16: {
      float f = (float)roundTo(v, 7, -126);
      uint32_t b;
      memcpy(&b, &f, 4);
      *(uint16_t*)p = b >> 16;
      return;
    }
    default: {
      const bool h = dtype == F16;
      const int bits = h ? 10 : 3, least = h ? -14 : -6, sign = std::signbit(v);
      double a = roundTo(fabs(v), bits, least);
      int code;
      if (v != v) code = h ? 0x7fff : 0x7f;
      else if (h && a > 65504) code = 0x7c00;
      else if (!h && a >= 448) code = 0x7e;
      else if (a < ldexp(1, least)) code = (int)ldexp(a, bits - least);
      else {
        int e;
        frexp(a, &e);
        code = ((e - least) << bits) + (int)ldexp(a, bits - e + 1) - (1 << bits);
      }
      code |= sign << (h ? 15 : 7);
      memcpy(p, &code, h ? 2 : 1);
    }
  }
}
static double unitOf(int dtype, double v) {
  if (dtype < F8) return 0;
  const int bits = dtype == F64 ? 52 : dtype == F32 ? 23 : dtype == F16 ? 10 : dtype == BF16 ? 7 : 3;
  int e;
  frexp(v == 0 ? 1e-30 : v, &e);
  return ldexp(1, e - 1 - bits);
}

struct Array {
  int dtype;
  Dims shape, stride;
  std::vector<char> bytes;
  Array(int dtype, Dims shape, Values v = {}) : dtype(dtype), shape(shape), stride(shape.size()) {
    int64_t n = 1;
    for (int d = (int)shape.size() - 1; d >= 0; d--) {
      stride[d] = n;
      n *= shape[d];
    }
    bytes.resize((n + 1) * 8);
    for (size_t i = 0; i < v.size(); i++) encode(dtype, v[i], &bytes[i * ELEMENT_BYTES[dtype]]);
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  double at(int64_t i) const { return decode(dtype, &bytes[i * ELEMENT_BYTES[dtype]]); }
  Array turned() const {
    Array a = *this;
    std::swap(a.shape[0], a.shape[1]);
    std::swap(a.stride[0], a.stride[1]);
    return a;
  }
};

static double block[1024];
static int run(const char* op, std::vector<Array*> in, std::vector<Array*> out, Values params = {}) {
  block[0] = wick_find(op);
  if (block[0] < 0) {
    printf("no op %s\n", op);
    failures++;
    return -1;
  }
  block[1] = (double)in.size();
  block[2] = (double)(in.size() + out.size());
  for (size_t i = 0; i < params.size(); i++) block[4 + i] = params[i];
  double* p = block + 52;
  in.insert(in.end(), out.begin(), out.end());
  for (Array* a : in) {
    *p++ = (double)(uintptr_t)a->bytes.data();
    *p++ = a->dtype;
    *p++ = (double)a->shape.size();
    for (int64_t d : a->shape) *p++ = (double)d;
    for (int64_t s : a->stride) *p++ = (double)s;
  }
  return wick_run((double)(uintptr_t)block);
}

// ulp < 0: units are those of the largest result.
static void expect(const std::string& what, const Array& got, const Values& want, double ulp) {
  double largest = 0;
  for (double w : want)
    if (fabs(w) > largest && !std::isinf(w)) largest = fabs(w);
  for (size_t i = 0; i < want.size(); i++) {
    checks++;
    // f8 saturates
    const double g = got.at((int64_t)i), w = got.dtype == F8 ? fmax(-448, fmin(448, want[i])) : want[i];
    const double allowed = fabs(ulp) * unitOf(got.dtype, ulp < 0 ? largest : w);
    if (g == w || (g != g && w != w) || fabs(g - w) <= allowed) continue;
    printf("  %s: element %zu is %.17g, not %.17g\n", what.c_str(), i, g, w);
    failures++;
    return;
  }
}

static uint32_t seed = 1;
static double uniform(double lo, double hi) {
  seed = seed * 1664525 + 1013904223;
  return lo + (hi - lo) * (seed >> 8) / 16777216.0;
}
static Values draw(int64_t n, double lo, double hi) {
  Values v;
  while (n-- > 0) v.push_back(uniform(lo, hi));
  return v;
}
static Values stored(const Array& a) {
  Values v;
  for (int64_t i = 0; i < a.size(); i++) v.push_back(a.at(i));
  return v;
}
static Values map(const Array& a, const std::function<double(double)>& f) {
  Values v;
  for (double x : stored(a)) v.push_back(f(x));
  return v;
}

static void testElementwise() {
  struct {
    const char* op;
    double (*f)(double);
    double lo, hi;
  } unary[] = {{"exp", exp, -87, 88},   {"log", log, 1e-30, 100}, {"tanh", tanh, -5, 5},    {"erf", erf, -4, 4},
               {"sin", sin, -50, 50},   {"cos", cos, -50, 50},    {"sqrt", sqrt, 0, 9},     {"floor", floor, -9, 9},
               {"round", round, -9, 9}, {"expm1", expm1, -3, 3},  {"log1p", log1p, -0.5, 9}};
  for (int dtype : {F32, F64, F16, BF16, F8})
    for (auto& u : unary)
      for (int64_t n : {1, 7, 67, quick ? 200 : 1000}) {
        double hi = dtype == F16 || dtype == F8 ? fmin(u.hi, 5) : u.hi,
               lo = dtype == F16 || dtype == F8 ? fmax(u.lo, -5) : u.lo;
        Array x(dtype, {n}, draw(n, lo, hi)), out(dtype, {n});
        run(u.op, {&x}, {&out});
        expect(std::string(u.op) + " dtype " + std::to_string(dtype), out, map(x, u.f), 2.5);
      }
  Array special(F32, {9}, {INFINITY, -INFINITY, NAN, 0, -0.0, 100, -100, 1e-40, -104.5}), out(F32, {9});
  run("exp", {&special}, {&out});
  expect("exp of special values", out, map(special, [](double x) { return (double)expf((float)x); }), 2);
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
    const Dims shape = {37, 150};
    Array x(dtype, shape, draw(37 * 150, 0, 9)), y(dtype, {150, 37}, draw(37 * 150, 1, 9)), sum(dtype, shape),
        less(U8, shape);
    Array t = y.turned();
    Values want, truth;
    for (int i = 0; i < 37; i++)
      for (int j = 0; j < 150; j++) {
        Array r(dtype, {1}, {x.at(i * 150 + j) + y.at(j * 37 + i)});
        want.push_back(r.at(0));
        truth.push_back(x.at(i * 150 + j) < y.at(j * 37 + i));
      }
    run("add", {&x, &t}, {&sum});
    expect("add with a transposed side, dtype " + std::to_string(dtype), sum, want, 0);
    run("lt", {&x, &t}, {&less});
    expect("lt", less, truth, 0);
    for (int to = 0; to < DTYPE_COUNT; to++) {
      Array o(to, shape);
      run("castTo", {&x}, {&o});
      Values w;
      for (double v : stored(x)) {
        Array r(to, {1}, {to < F8 ? trunc(v) : v});
        w.push_back(r.at(0));
      }
      expect("cast " + std::to_string(dtype) + " to " + std::to_string(to), o, w, 0);
    }
    Array o(dtype, {150, 37}), xt = x.turned();
    run("copy", {&xt}, {&o});
    Values w;
    for (int j = 0; j < 150; j++)
      for (int i = 0; i < 37; i++) w.push_back(x.at(i * 150 + j));
    expect("transposed copy", o, w, 0);
  }
}

static void testReductions() {
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
    Array x(dtype, {23, 141}, draw(23 * 141, 0, 1.5)), rows(dtype, {23}), columns(dtype, {141}), best(U32, {23}),
        running(dtype, {23, 141});
    Values byRow(23), byColumn(141), place(23), run1;
    for (int i = 0; i < 23; i++) {
      double total = 0;
      for (int j = 0; j < 141; j++) {
        double v = x.at(i * 141 + j);
        byRow[i] += v;
        byColumn[j] += v;
        if (v > x.at(i * 141 + (int)place[i])) place[i] = j;
        total += v;
        Array r(dtype, {1}, {total});
        run1.push_back(r.at(0));
      }
    }
    for (Values* v : {&byRow, &byColumn})
      for (double& s : *v) {
        Array r(dtype, {1}, {s});
        s = r.at(0);
      }
    run("sum", {&x}, {&rows}, {1, 1});
    expect("sum of rows, dtype " + std::to_string(dtype), rows, byRow, 2);
    run("sum", {&x}, {&columns}, {1, 0});
    expect("sum of columns", columns, byColumn, 2);
    run("argmax", {&x}, {&best}, {1, 1});
    expect("argmax", best, place, 0);
    run("cumsum", {&x}, {&running}, {1, 0, 0});
    expect("cumsum", running, run1, 1);
  }
}

static void testProducts() {
  for (int dtype : {F32, F64, F16, BF16})
    for (Dims d : {Dims{1, 65, 300}, Dims{65, 1, 300}, Dims{3, 70, 41}, Dims{67, 83, 401}, Dims{130, 260, 777},
                   Dims{20, 300, 64}})
      for (int turn = 0; turn < 4; turn++) {
        if (quick && d[0] * d[1] * d[2] > 100000 && turn != 2) continue;
        const int64_t m = d[0], n = d[1], k = d[2];
        Array a =
            turn & 1 ? Array(dtype, {k, m}, draw(m * k, -1, 1)).turned() : Array(dtype, {m, k}, draw(m * k, -1, 1));
        Array b =
            turn & 2 ? Array(dtype, {n, k}, draw(n * k, -1, 1)).turned() : Array(dtype, {k, n}, draw(n * k, -1, 1));
        Array out(dtype, {m, n});
        Values want;
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t q = 0; q < k; q++)
              s += a.at(i * a.stride[0] + q * a.stride[1]) * b.at(q * b.stride[0] + j * b.stride[1]);
            want.push_back(s);
          }
        run("bmm", {&a, &b}, {&out});
        expect("product " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " dtype " +
                   std::to_string(dtype),
               out, want, -16);
      }
}

static void testRows() {
  for (int dtype : {F32, F64, F16, BF16}) {
    const int64_t n = 333;
    Array x(dtype, {5, n}, draw(5 * n, -4, 4)), w(dtype, {n}, draw(n, 0.5, 2)), b(dtype, {n}, draw(n, -1, 1)),
        soft(dtype, {5, n}), norm(dtype, {5, n});
    Values ws, wn;
    for (int i = 0; i < 5; i++) {
      double sum = 0, mean = 0, var = 0;
      for (int64_t j = 0; j < n; j++) {
        sum += exp(x.at(i * n + j));
        mean += x.at(i * n + j) / (double)n;
      }
      for (int64_t j = 0; j < n; j++) var += pow(x.at(i * n + j) - mean, 2) / (double)n;
      for (int64_t j = 0; j < n; j++) {
        ws.push_back(exp(x.at(i * n + j)) / sum);
        wn.push_back((x.at(i * n + j) - mean) / sqrt(var + 1e-5) * w.at(j) + b.at(j));
      }
    }
    run("softmax", {&x}, {&soft}, {1});
    expect("softmax", soft, ws, -8);
    run("layerNorm", {&x, &w, &b}, {&norm}, {1e-5, 1, 1});
    expect("layerNorm", norm, wn, -8);
  }
  for (int dtype : {F32, F64, F16, BF16, U32}) {
    Array x(dtype, {2, 4, 9, 8}, draw(2 * 4 * 72, 0, 3)), k(dtype, {6, 2, 3, 2}, draw(6 * 12, 0, 3)),
        out(dtype, {2, 6, 4, 9});
    Values want;
    for (int b = 0; b < 2; b++)
      for (int o = 0; o < 6; o++)
        for (int y = 0; y < 4; y++)
          for (int z = 0; z < 9; z++) {
            double s = 0;
            for (int c = 0; c < 2; c++)
              for (int i = 0; i < 3; i++)
                for (int j = 0; j < 2; j++) {
                  int iy = y * 2 + i - 0, ix = z + j - 1;
                  if (iy < 9 && ix >= 0 && ix < 8)
                    s += x.at(((b * 4 + o / 3 * 2 + c) * 9 + iy) * 8 + ix) * k.at(((o * 2 + c) * 3 + i) * 2 + j);
                }
            want.push_back(s);
          }
    run("conv2d", {&x, &k}, {&out}, {2, 1, 0, 1, 1, 1, 2});
    expect("conv2d dtype " + std::to_string(dtype), out, want, -4);
  }
  Array x(F32, {2, 700}, draw(1400, -1, 1)), ids(U32, {2, 700}), sorted(F32, {2, 700});
  run("argsort", {&x}, {&ids}, {1, 0});
  run("gather", {&x, &ids}, {&sorted}, {1});
  for (int i = 0; i < 2; i++)
    for (int j = 1; j < 700; j++, checks++)
      if (sorted.at(i * 700 + j) < sorted.at(i * 700 + j - 1)) {
        printf("  argsort: place %d\n", j);
        failures++;
        return;
      }
  Array bad(I64, {2}, {0, 5}), picked(F32, {2, 700});
  if (run("indexSelect", {&x, &bad}, {&picked}, {0}) != BAD_INDEX) {
    printf("  an index out of range was taken\n");
    failures++;
  }
  // The generator's first words for counter 0 and key 0, from the paper's test vectors: 6627e8d5 e169c58d bc57ac4c
  // 9b00dbd8.
  Array r(F32, {4});
  run("randUniform", {}, {&r}, {0, 0, 0, 0, 0, 1, 0, 1});
  expect("randUniform", r,
         {(0x6627e8d5u >> 8) / 16777216.0, (0xe169c58du >> 8) / 16777216.0, (0xbc57ac4cu >> 8) / 16777216.0,
          (0x9b00dbd8u >> 8) / 16777216.0},
         0);
}

int main(int argc, char** argv) {
  int ran = 0;
  quick = argc > 2 && strcmp(argv[2], "quick") == 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const char* isa : {"neon", "sse2", "avx2", "avx512"}) {
    if (argc > 1 && strcmp(argv[1], isa) != 0) continue;
    const int status = wick_select(isa);
    if (status == 2) continue;
    if (status == 1) {
      printf("%s: this CPU lacks it\n", isa);
      continue;
    }
    const int before = failures;
    checks = 0;
    for (int threads : {1, 3}) {
      if (quick && threads == 1) continue;
      wick_threads(threads);
      testElementwise();
      testReductions();
      testProducts();
      testRows();
    }
    printf("%s: %d checks, %d failures\n", isa, checks, failures - before);
    ran++;
  }
  if (ran == 0) {
    printf("no instruction set was tested\n");
    return 1;
  }
  return failures > 255 ? 255 : failures;
}
