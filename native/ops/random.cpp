// Random numbers from a counter (Philox4x32-10), bit for bit those of src/ops/random.ts: double with + - * / and sqrt
// only.
#include <cmath>

#include "ops.h"
#include "engine/threads.h"

namespace wick {
namespace {

constexpr int64_t GRAIN = 8192;
enum Stream : uint32_t { UNIFORM24, UNIFORM53, NORMAL };

struct Key {
  uint32_t k0, k1;
};
struct Words {
  uint32_t w[4];
};

Words philox(uint64_t block, Stream stream, Key key) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = stream, c3 = 0;
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = 0xd2511f53ull * c0, p1 = 0xcd9e8d57ull * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key.k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key.k1;
    c3 = (uint32_t)p0;
    key.k0 += 0x9e3779b9;
    key.k1 += 0xbb67ae85;
  }
  return {{c0, c1, c2, c3}};
}

template <int N> double poly(const double (&c)[N], double x) {
  double y = c[N - 1];
  for (int i = N - 2; i >= 0; i--) y = y * x + c[i];
  return y;
}

// Wichura's algorithm AS 241: quotients of polynomials in the centre, the near tail and the far tail.
const double CENTRE_OVER[] = {3.387132872796366608,  133.14166789178437745, 1971.5909503065514427,
                              13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
                              33430.575583588128105, 2509.0809287301226727};
const double CENTRE_UNDER[] = {1,
                               42.313330701600911252,
                               687.1870074920579083,
                               5394.1960214247511077,
                               21213.794301586595867,
                               39307.89580009271061,
                               28729.085735721942674,
                               5226.495278852854561};
const double NEAR_OVER[] = {1.42343711074968357734,   4.6303378461565452959,   5.7694972214606914055,
                            3.64784832476320460504,   1.27045825245236838258,  0.24178072517745061177,
                            0.0227238449892691845833, 7.7454501427834140764e-4};
const double NEAR_UNDER[] = {1,
                             2.05319162663775882187,
                             1.6763848301838038494,
                             0.68976733498510000455,
                             0.14810397642748007459,
                             0.0151986665636164571966,
                             5.475938084995344946e-4,
                             1.05075007164441684324e-9};
const double FAR_OVER[] = {6.6579046435011037772,     5.4637849111641143699,    1.7848265399172913358,
                           0.29656057182850489123,    0.026532189526576123093,  0.0012426609473880784386,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
const double FAR_UNDER[] = {1,
                            0.59983220655588793769,
                            0.13692988092273580531,
                            0.0148753612908506148525,
                            7.868691311456132591e-4,
                            1.8463183175100546818e-5,
                            1.4215117583164458887e-7,
                            2.04426310338993978564e-15};
const double LOG_SERIES[] = {1,        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                             1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};

double fixedLog(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int exponent = (int)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, 8);
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    exponent++;
  }
  const double s = (m - 1) / (m + 1);
  return exponent * 0.6931471805599453 + 2 * s * poly(LOG_SERIES, s * s);
}

double quantile(double p) {
  const double q = p - 0.5;
  if (fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * poly(CENTRE_OVER, r) / poly(CENTRE_UNDER, r);
  }
  const double r = sqrt(-fixedLog(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? poly(NEAR_OVER, r - 1.6) / poly(NEAR_UNDER, r - 1.6) : poly(FAR_OVER, r - 5) / poly(FAR_UNDER, r - 5);
  return q < 0 ? -x : x;
}

// Calls draw(words of element) into doubles, then rounds once to the dtype. PER words make an element.
template <int PER, class G> void generate(const Call& c, Stream stream, G draw) {
  const Operand& out = c.out();
  const Key key = {(uint32_t)c.params[0], (uint32_t)c.params[1]};
  const uint64_t offset = (uint64_t)c.params[3] << 32 | (uint64_t)c.params[2];
  constexpr uint64_t IN_BLOCK = 4 / PER;
  parallel(out.size(), GRAIN, [&](int64_t begin, int64_t end) {
    double values[256];
    uint64_t block = 0;
    Words words = {};
    bool have = false;
    for (int64_t i = begin; i < end; i += 256) {
      const int64_t n = end - i < 256 ? end - i : 256;
      for (int64_t j = 0; j < n; j++) {
        const uint64_t e = offset + (uint64_t)(i + j);
        if (!have || e / IN_BLOCK != block) {
          block = e / IN_BLOCK;
          words = philox(block, stream, key);
          have = true;
        }
        const int at = (int)(e % IN_BLOCK) * PER;
        values[j] = draw(words.w[at], words.w[at + PER - 1]);
      }
      castRun(F64, out.dtype, values, out.data + i * out.bytes(), n);
    }
  });
}

// Params: seed low and high, offset low and high, then lo, up, bottom, top.
Status uniform(const Call& c, const void*) {
  const double lo = c.params[4], span = c.params[5] - lo, bottom = c.params[6], top = c.params[7];
  auto place = [=](double u) {
    const double v = lo + u * span;
    return v < bottom ? bottom : v > top ? top : v;
  };
  if (c.out().dtype == F64)
    generate<2>(c, UNIFORM53, [=](uint32_t a, uint32_t b) { return place(((a >> 5) * 0x1p26 + (b >> 6)) * 0x1p-53); });
  else generate<1>(c, UNIFORM24, [=](uint32_t a, uint32_t) { return place((a >> 8) * 0x1p-24); });
  return OK;
}

// Params: seed and offset as above, then mean and std.
Status normal(const Call& c, const void*) {
  const double mean = c.params[4], std = c.params[5];
  generate<2>(c, NORMAL, [=](uint32_t a, uint32_t b) {
    return mean + std * quantile(((a >> 6) * 0x1p26 + (b >> 6) + 0.5) * 0x1p-52);
  });
  return OK;
}

}  // namespace

WICK_OPS(random) = {{"randUniform", uniform, nullptr}, {"randNormal", normal, nullptr}, {nullptr, nullptr, nullptr}};

}  // namespace wick
