// The fastest this instruction set can multiply and add: independent chains in registers, for benchmarks to compare
// with.
#include "isa.h"

namespace {

// The running value is the addend, which needs no move on any instruction set; without fused steps it is a factor, or
// the product would be shared.
WICK_FN F next(F a, F by, F plus) {
#ifdef WICK_HAS_FMA
  return mad(by, plus, a);
#else
  return a * by + plus;
#endif
}

// Floating-point operations done; the sum is kept so that the work is.
double peak(int64_t rounds, float* kept) {
  const F by(0.999f), plus(0.001f);
  F a(0.f), b(1.f), c(2.f), d(3.f), e(4.f), f(5.f), g(6.f), h(7.f), i(8.f), j(9.f), k(10.f), l(11.f);
  for (int64_t r = 0; r < rounds; r++) {
    a = next(a, by, plus);
    b = next(b, by, plus);
    c = next(c, by, plus);
    d = next(d, by, plus);
    e = next(e, by, plus);
    f = next(f, by, plus);
    g = next(g, by, plus);
    h = next(h, by, plus);
    i = next(i, by, plus);
    j = next(j, by, plus);
    k = next(k, by, plus);
    l = next(l, by, plus);
  }
  *kept = sumLanes(((a + b) + (c + d)) + ((e + f) + (g + h)) + ((i + j) + (k + l)));
  return 2.0 * 12 * F::N * (double)rounds;
}

}  // namespace

extern "C" void WICK_EXPORT(wick_peak)(wick::IsaTable* t) { t->peak = peak; }
