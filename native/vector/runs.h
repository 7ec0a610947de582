// Contiguous runs between storage and compute types, for kernels that work in float or double whatever is stored.
// Included after vec-arithmetic.h inside an unnamed namespace.

template <class S> WICK_FN void widenRun(const S* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + F::N <= n; i += F::N) load(from + i).store(to + i);
  if (i == n) return;
  S tail[F::N] = {};
  float wide[F::N];
  __builtin_memcpy(tail, from + i, (n - i) * sizeof(S));
  load(tail).store(wide);
  __builtin_memcpy(to + i, wide, (n - i) * sizeof(float));
}

template <class S> WICK_FN void narrowRun(const float* from, S* to, int64_t n) {
  int64_t i = 0;
  for (; i + F::N <= n; i += F::N) store(to + i, F::load(from + i));
  if (i == n) return;
  S tail[F::N];
  float wide[F::N] = {};
  __builtin_memcpy(wide, from + i, (n - i) * sizeof(float));
  store(tail, F::load(wide));
  __builtin_memcpy(to + i, tail, (n - i) * sizeof(S));
}

template <class S> constexpr bool isSmallFloat = !Same<S, typename ComputeOf<S>::type>::value;

// A float that rounds to any smaller format as the double would: toward zero, with a sticky last bit.
WICK_FN float stickyFloat(double d) {
  float f = (float)d;
  if ((double)f == d || d != d) return f;
  uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  if (__builtin_fabs((double)f) > __builtin_fabs(d)) bits--;
  bits |= 1;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
