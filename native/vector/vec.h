// SIMD vectors of one width per instruction set, and masks of their lanes. Included inside an unnamed namespace by
// files compiled once per instruction set, so that no code of one leaks into another. vec-memory.h and vec-arithmetic.h
// follow.

#if defined(WICK_ISA_AVX512)
constexpr int WIDTH = 64;
#elif defined(WICK_ISA_AVX2)
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif
#if defined(WICK_ISA_NEON) || defined(WICK_ISA_AVX2) || defined(WICK_ISA_AVX512)
#define WICK_HAS_FMA 1
#endif
#define WICK_FN static inline __attribute__((always_inline))

template <int BYTES> struct IntegerOf;
template <> struct IntegerOf<1> {
  typedef int8_t type;
  typedef uint8_t bits;
};
template <> struct IntegerOf<2> {
  typedef int16_t type;
  typedef uint16_t bits;
};
template <> struct IntegerOf<4> {
  typedef int32_t type;
  typedef uint32_t bits;
};
template <> struct IntegerOf<8> {
  typedef int64_t type;
  typedef uint64_t bits;
};

template <class E, int N> struct RawOf { typedef E type __attribute__((vector_size(N * sizeof(E)))); };
template <class E, int N> using Raw = typename RawOf<E, N>::type;

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class E> constexpr bool isFloating = Same<E, float>::value || Same<E, double>::value;

// A truth value a lane: all bits set or none, as wide as the lanes it was compared from.
template <int BYTES> struct Mask {
  typedef Raw<typename IntegerOf<BYTES>::type, WIDTH / BYTES> R;
  R r;
  WICK_FN Mask of(R r) {
    Mask m;
    m.r = r;
    return m;
  }
  inline Mask operator&(Mask o) const { return of(r & o.r); }
  inline Mask operator|(Mask o) const { return of(r | o.r); }
  inline Mask operator!() const { return of(~r); }
  inline Mask operator!=(Mask o) const { return of(r ^ o.r); }
  inline Mask operator==(Mask o) const { return of(~(r ^ o.r)); }
  inline bool any() const {
#if defined(WICK_ISA_NEON)
    return vmaxvq_u32((uint32x4_t)r) != 0;
#elif defined(WICK_ISA_AVX512)
    return _mm512_test_epi32_mask((__m512i)r, (__m512i)r) != 0;
#elif defined(WICK_ISA_AVX2)
    return !_mm256_testz_si256((__m256i)r, (__m256i)r);
#elif defined(WICK_ISA_WASM)
    return wasm_v128_any_true((v128_t)r);
#else
    return _mm_movemask_epi8((__m128i)r) != 0;
#endif
  }
};

template <class E> struct Vec {
  static constexpr int N = WIDTH / sizeof(E);
  typedef E element;
  typedef Raw<E, N> R;
  typedef Mask<sizeof(E)> M;
  typedef Vec<typename IntegerOf<sizeof(E)>::type> Int;
  typedef Vec<typename IntegerOf<sizeof(E)>::bits> Bits;
  R r;
  inline Vec() {}
  inline Vec(R raw) : r(raw) {}
  inline Vec(E e) : r(e - R{}) {}
  // A constant or a scalar parameter: integers saturate, so that a bound beyond the type still bounds.
  template <class A> static inline E narrow(A a) {
    if constexpr (isFloating<E>) return E(a);
    else if constexpr (sizeof(E) == 8)
      return a >= 9223372036854775807.0 ? INT64_MAX : a <= -9223372036854775808.0 ? INT64_MIN : a != a ? 0 : E(a);
    else return E(int64_t(a));
  }
  template <class A, class = decltype(A() + 1), class = typename IntegerOf<sizeof(A)>::type>
  inline Vec(A a) : r(narrow(a) - R{}) {}
  WICK_FN Vec load(const E* p) {
    Vec v;
    __builtin_memcpy(&v.r, p, WIDTH);
    return v;
  }
  inline void store(E* p) const { __builtin_memcpy(p, &r, WIDTH); }
  inline E operator[](int i) const { return r[i]; }
  template <class O> inline O as() const {
    O o;
    __builtin_memcpy(&o.r, &r, WIDTH);
    return o;
  }
  inline Vec operator+(Vec o) const { return Vec(R(r + o.r)); }
  inline Vec operator-(Vec o) const { return Vec(R(r - o.r)); }
  inline Vec operator*(Vec o) const { return Vec(R(r * o.r)); }
  inline Vec operator/(Vec o) const { return Vec(R(r / o.r)); }
  inline Vec operator-() const { return Vec(R(-r)); }
  inline Vec operator&(Vec o) const { return Vec(R(r & o.r)); }
  inline Vec operator|(Vec o) const { return Vec(R(r | o.r)); }
  inline Vec operator^(Vec o) const { return Vec(R(r ^ o.r)); }
  inline Vec operator<<(int n) const { return Vec(R(r << n)); }
  inline Vec operator>>(int n) const { return Vec(R(r >> n)); }
  inline Vec& operator+=(Vec o) {
    r += o.r;
    return *this;
  }
  inline M operator<(Vec o) const { return M::of((typename M::R)(r < o.r)); }
  inline M operator<=(Vec o) const { return M::of((typename M::R)(r <= o.r)); }
  inline M operator>(Vec o) const { return M::of((typename M::R)(r > o.r)); }
  inline M operator>=(Vec o) const { return M::of((typename M::R)(r >= o.r)); }
  inline M operator==(Vec o) const { return M::of((typename M::R)(r == o.r)); }
  inline M operator!=(Vec o) const { return M::of((typename M::R)(r != o.r)); }
};
template <class E> struct Vec<Vec<E>>;  // vectors hold scalars

template <int B, class E> WICK_FN Vec<E> select(Mask<B> m, Vec<E> p, Vec<E> q) {
  return Vec<E>(typename Vec<E>::R(m.r ? p.r : q.r));
}

typedef Vec<float> F;
typedef Vec<double> D;
typedef Vec<int32_t> I;

template <class E, class G> WICK_FN Vec<E> eachLane(Vec<E> x, G f) {
  Vec<E> o;
  for (int i = 0; i < Vec<E>::N; i++) o.r[i] = f(x.r[i]);
  return o;
}

// The type computed in: float for the small floats, else the type itself.
template <class S> struct ComputeOf { typedef S type; };
template <> struct ComputeOf<half> { typedef float type; };
template <> struct ComputeOf<bfloat> { typedef float type; };
template <> struct ComputeOf<fp8> { typedef float type; };
template <> struct ComputeOf<bf8> { typedef float type; };
template <class S> using Compute = Vec<typename ComputeOf<S>::type>;
