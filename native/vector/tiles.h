// Products of bfloat16 on a CPU's matrix tiles (AMX): registers of 16 rows, each of 32 values of A, of 16 pairs of B or
// of 16 sums. The instruction takes what is below the normal floats for zero, so products that could meet such a number
// are left to the vectors. Included by matmul.cpp.

constexpr int TILE_DEPTH = 32;                                     // values along k
constexpr int64_t PANEL = 2 * TILE, STEP_BYTES = 2 * 1024;         // a panel is two tiles wide
constexpr int64_t PACKED_BYTES = 64 << 20, SHARE_BYTES = 1 << 20;  // of A; of a task's columns of B

// The smallest magnitude that is not zero.
struct Smallest {
  __m512i least = _mm512_set1_epi16(-1);  // one less, so that zero comes last
  void see(__m512i v) {
    const __m512i magnitude = _mm512_and_si512(v, _mm512_set1_epi16(0x7fff));
    least = _mm512_min_epu16(least, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
  }
  // As it is written in a float, up to 512; 0 is below the normal ones.
  int exponent() const {
    uint16_t lanes[32];
    _mm512_storeu_si512(lanes, least);
    int all = 0xffff;
    for (int lane : lanes) all = lane < all ? lane : all;
    return (all + 1) >> 7;
  }
};
// No product and no sum of products is so small that it would be taken for zero: all of them are multiples of what the
// last bits of the smallest numbers make.
bool staysNormal(int a, int b) { return a > 0 && b > 0 && a + b >= 2 * (127 + 7) - 126; }

// to[j][i] = from[i][j] for 16 x 16 pairs.
WICK_FN void turnPairs(__m512i (&v)[TILE]) {
  __m512i t[TILE];
#pragma GCC unroll 8
  for (int i = 0; i < TILE; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < TILE; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

// One tile from[i * across + k * along], i < count and k < depth, zeros around it: rows are i, or pairs of k if DOWN.
template <bool DOWN>
void packTile(const bfloat* from, int64_t across, int64_t along, int64_t count, int64_t depth, __m512i* to,
              Smallest& seen) {
  __m512i v[TILE];
  const bool down = across == 1 && along != 1;
  if (down) {
    const __mmask16 columns = count >= TILE ? 0xffff : (1u << (count < 0 ? 0 : count)) - 1;
#pragma GCC unroll 16
    for (int k = 0; k < TILE_DEPTH; k += 2) {
      const __m256i even = _mm256_maskz_loadu_epi16(k < depth ? columns : 0, from + k * along);
      const __m256i odd = _mm256_maskz_loadu_epi16(k + 1 < depth ? columns : 0, from + (k + 1) * along);
      v[k / 2] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
    }
  } else if (along == 1) {
    const __mmask32 values = depth >= TILE_DEPTH ? 0xffffffffu : (1u << depth) - 1;
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i++) v[i] = _mm512_maskz_loadu_epi16(i < count ? values : 0, from + i * across);
  } else {
    bfloat line[TILE][TILE_DEPTH] = {};
    for (int64_t i = 0; i < count && i < TILE; i++)
      for (int64_t k = 0; k < depth && k < TILE_DEPTH; k++) line[i][k] = from[i * across + k * along];
    __builtin_memcpy(v, line, sizeof line);
  }
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++) seen.see(v[i]);
  if (down != DOWN) turnPairs(v);
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++) _mm512_store_si512(to + i, v[i]);
}
// `count` rows of A or columns of B as panels, one after another, each step by step along k.
template <bool DOWN>
void packTiles(const bfloat* from, int64_t across, int64_t along, int64_t count, int64_t k, char* to, Smallest& seen) {
  const int64_t steps = (k + TILE_DEPTH - 1) / TILE_DEPTH, panels = (count + PANEL - 1) / PANEL;
  auto pack = [&](int64_t panel, int64_t step) {
    for (int64_t half = 0; half < 2; half++) {
      const int64_t i = panel * PANEL + half * TILE;
      packTile<DOWN>(from + i * across + step * TILE_DEPTH * along, across, along, count - i, k - step * TILE_DEPTH,
                     reinterpret_cast<__m512i*>(to + (panel * steps + step) * STEP_BYTES + half * 1024), seen);
    }
  };
  if (across == 1) {  // neighbouring panels share lines of the cache
    for (int64_t s = 0; s < steps; s++)
      for (int64_t panel = 0; panel < panels; panel++) pack(panel, s);
  } else {
    for (int64_t panel = 0; panel < panels; panel++)
      for (int64_t s = 0; s < steps; s++) pack(panel, s);
  }
}

// sums[32][32] = a panel of A times one of B.
WICK_TILES void multiplyPanels(int64_t steps, const char* a, const char* b, float* sums) {
  written(a);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; s++, a += STEP_BYTES, b += STEP_BYTES) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int64_t ROW = PANEL * sizeof(float);
  _tile_stored(0, sums, ROW);
  _tile_stored(1, sums + TILE, ROW);
  _tile_stored(2, sums + TILE * PANEL, ROW);
  _tile_stored(3, sums + TILE * PANEL + TILE, ROW);
}

// Rows i0 to i0 + m of the product; false where numbers are too small for tiles.
bool rowsOnTiles(const Product& p, int64_t i0, int64_t m) {
  const bfloat* a = reinterpret_cast<const bfloat*>(p.a.data) + i0 * p.a.row;
  const bfloat* b = reinterpret_cast<const bfloat*>(p.b.data);
  bfloat* out = reinterpret_cast<bfloat*>(const_cast<char*>(p.out.data)) + i0 * p.out.row;
  const int64_t steps = (p.k + TILE_DEPTH - 1) / TILE_DEPTH, bytes = steps * STEP_BYTES,
                rowPanels = (m + PANEL - 1) / PANEL;
  char* rows = static_cast<char*>(scratch(wick::SCRATCH_B, rowPanels * bytes));
  int exponent = 512, low = 0;
  parallel(rowPanels, 1 + 65536 / (PANEL * p.k), [&](int64_t begin, int64_t end) {
    Smallest seen;
    for (int64_t q = begin; q < end; q++)
      packTiles<false>(a + q * PANEL * p.a.row, p.a.row, p.a.column, least(m - q * PANEL, PANEL), p.k, rows + q * bytes,
                       seen);
    const int mine = seen.exponent();
    for (int now = __atomic_load_n(&exponent, __ATOMIC_RELAXED); mine < now;)
      if (__atomic_compare_exchange_n(&exponent, &now, mine, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
  });
  const int64_t most = SHARE_BYTES / bytes, even = evenPanels((p.n + PANEL - 1) / PANEL).each,
                columns = (most < 1 ? 1 : least(even, most)) * PANEL;
  parallelTasks((p.n + columns - 1) / columns, [&](int64_t begin, int64_t end) {
    char* group = static_cast<char*>(scratch(wick::SCRATCH_A, columns / PANEL * bytes));
    alignas(64) float sums[PANEL * PANEL];
    beginTiles(64);
    for (int64_t g = begin; g < end; g++) {
      const int64_t j0 = g * columns, n = least(p.n - j0, columns);
      Smallest seen;
      packTiles<true>(b + j0 * p.b.column, p.b.column, p.b.row, n, p.k, group, seen);
      if (!staysNormal(exponent, seen.exponent())) __atomic_store_n(&low, 1, __ATOMIC_RELAXED);
      if (__atomic_load_n(&low, __ATOMIC_RELAXED)) break;
      for (int64_t q = 0; q < rowPanels; q++)
        for (int64_t j = 0; j < n; j += PANEL) {
          multiplyPanels(steps, rows + q * bytes, group + j / PANEL * bytes, sums);
          deliver(sums, PANEL, out + q * PANEL * p.out.row + (j0 + j) * p.out.column, p.out,
                  least(m - q * PANEL, PANEL), least(n - j, PANEL), false);
        }
    }
    endTiles();
  });
  return !low;
}
bool onTiles(Product p) {
  if (!hasTiles()) return false;
  // Rows are packed before anything is multiplied, columns by who needs them: the smaller factor is rows.
  if (p.m > p.n) p = turned(p);
  const int64_t fit = PACKED_BYTES / (roundUp(p.k, TILE_DEPTH) * 2) / PANEL * PANEL, each = fit < PANEL ? PANEL : fit;
  for (int64_t i = 0; i < p.m; i += each)
    if (!rowsOnTiles(p, i, least(p.m - i, each))) return false;
  return true;
}
