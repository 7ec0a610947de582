// A strip of weights on matrix tiles: 16 rows of weights against 16 rows of activations. Included by quantized.cpp
// inside its namespace, after quantized-strips.h.
// For formats whose chunks have one scale: half a chunk leaves tiles less to do than vectors have to scale.
static_assert(LANES == TILE && LANE_VALUES == 4 && wick::BLOCK_ROWS == TILE, "a tile's row holds fours of 16 rows");

// Scales the whole products of a chunk and adds them to the results of a block of activations.
WICK_FN void addScaled(const Strip& w, const Rounded& a, int64_t chunk, const int32_t* sums, F (&acc)[TILE]) {
  const float* by = a.scale + chunk * TILE;
  const F scale = F::load(w.scale + chunk * STRIP);
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) {
    const F product(__builtin_convertvector(I::load(sums + u * TILE).r, F::R));
    acc[u] = mad(product * scale, F(by[u]), acc[u]);
  }
  if (!w.minimum) return;
  const float* sum = a.sum + chunk * TILE;
  alignas(64) float taken[TILE];
  (-F::load(sum) - F::load(sum + a.n / 32 * TILE)).store(taken);
  const F minimum = F::load(w.minimum + chunk * STRIP);
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u] = mad(minimum, F(taken[u]), acc[u]);
}
// Tile T gets the whole products of a chunk; its sums go to memory, whence vectors take them.
#define WICK_MULTIPLY(T, chunk)                                                       \
  _tile_zero(T);                                                                      \
  _tile_loadd(4, a.q + (chunk)*32 * TILE, 32);                                        \
  _tile_loadd(6, w.lanes + (chunk)*GROUPS * STRIP, STRIP * (int64_t)sizeof(int32_t)); \
  _tile_dpbssd(T, 4, 6);
#define WICK_KEEP(T) _tile_stored(T, sums[T], TILE*(int64_t)sizeof(int32_t));
#define WICK_ADD(T, chunk) written(sums), addScaled(w, a, chunk, sums[T], acc);
// In three stages, for a tile's sums can be read only some time after they were stored: while chunk c + 1 is multiplied,
// c is stored and the one before it is scaled. The result's lines are asked for first: stores that wait for theirs would
// hold up those of sums.
WICK_TILES void tileBlock(const Strip& w, const Rounded& a, int64_t m, int64_t rows, float* out, int64_t pitch) {
  alignas(64) int32_t sums[2][TILE * TILE];
  const int64_t chunks = a.n / 32;
  written(w.lanes);
  for (int64_t u = 0; u < m; u++) __builtin_prefetch(out + u * pitch, 1);
  F acc[TILE];
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u] = F(0.f);
  WICK_MULTIPLY(0, 0)
  WICK_KEEP(0)
  int64_t c = 1;
  if (chunks > 1) {
    WICK_MULTIPLY(1, 1)
    for (; c + 2 < chunks; c += 2) {
      WICK_MULTIPLY(0, c + 1)
      WICK_KEEP(1)
      WICK_ADD(0, c - 1)
      WICK_MULTIPLY(1, c + 2)
      WICK_KEEP(0)
      WICK_ADD(1, c)
    }
    WICK_KEEP(1)
    WICK_ADD(0, c - 1)
    if (c + 1 < chunks) {
      WICK_MULTIPLY(0, c + 1)
      WICK_KEEP(0)
    }
    WICK_ADD(1, c)
  }
  if (chunks % 2) WICK_ADD(0, chunks - 1)
  if (m == TILE && rows == TILE) {
#pragma GCC unroll 16
    for (int u = 0; u < TILE; u++) acc[u].store(out + u * pitch);
    return;
  }
  alignas(64) float lines[TILE][TILE];
#pragma GCC unroll 16
  for (int u = 0; u < TILE; u++) acc[u].store(lines[u]);
  for (int64_t u = 0; u < m; u++) memcpy(out + u * pitch, lines[u], rows * sizeof(float));
}
#undef WICK_MULTIPLY
#undef WICK_KEEP
#undef WICK_ADD
void onTiles(const Strip& w, const Rounded& a, int64_t m, int64_t rows, float* out, int64_t pitch) {
  beginTiles(32);
  for (int64_t k = 0; k < m; k += TILE)
    for (int64_t r = 0; r < rows; r += TILE) {
      const Strip part = {w.lanes + r, w.scale + r, w.minimum ? w.minimum + r : nullptr, nullptr};
      tileBlock(part, a.from(k), m - k < TILE ? m - k : TILE, rows - r < TILE ? rows - r : TILE, out + k * pitch + r,
                pitch);
    }
  endTiles();
}
template <class T> bool readsBlocks() { return !T::halves && hasTiles(); }
