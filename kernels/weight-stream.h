// Rows of weights in ggml's blocks on their way to products with activations that are rounded to whole numbers.
//
// A group of 32 lanes owns a ring of tiles in shared memory: while it multiplies one tile, copies of the next ones are
// under way, so that memory never waits for arithmetic. A tile is what 32 lanes take of R rows, a unit of two or four
// chunks (32 values) each. Rows may begin at any byte: copies begin at the 16 bytes before, and lanes shift words into
// place. Groups do not wait for one another.
#pragma once
#include "matrix.h"
#include "weight-units.h"

/**
 * Tiles that are asked for before what comes before has ended: its results, and the activations, would wait behind
 * more.
 */
constexpr int EARLY_TILES = 1;

/** What of a product is a block's: the block's number, of how many, and its groups that take part. */
struct Share {
  int block, blocks, groups;
};
WICK_FN Share whole_share() { return {(int)blockIdx.x, (int)gridDim.x, (int)blockDim.x / 32}; }
/** Where rows lie: set s has the rows s * each + r * apart, r below R, as far as they are below `count`. */
struct Rows {
  const u8* w;
  i64 count, bytes, each, apart;
};

/**
 * Multiplies all sets of rows that fall to this group with M rows of activations and calls finish(set, sums), sums[r *
 * M + m] scattered over the lanes as scatter_sums leaves them. `ring` is this group's room, STAGES * R * tile bytes;
 * `turn(meanwhile)` makes the activations ready and calls meanwhile() while they are on their way; what ask(set)
 * returns is handed to finish. Weights are asked for before what comes before has ended: it must not write them.
 */
template <class Q, int R, int M, int STAGES> struct WeightStream {
  typedef typename UnitFor<Q, M>::type Unit;
  /** Of the activations; those of several rows lie as in memory. */
  typedef RecordForm<Unit::paired, M == 1 && Unit::chunks == 4> Form;
  static constexpr int Span = 32 * Unit::chunks, Sums = R * M;
  static constexpr int SpanBytes = Span / Q::chunks * (int)sizeof(typename Q::Block);
  /** Room for a beginning within 16 bytes, and for the word after the last. */
  static constexpr int Tile = (SpanBytes + 15) / 16 * 16 + 32, Pieces = (SpanBytes / 16 + 1 + 31) / 32;
  /** Whether all rows begin at multiples of 16 bytes, as the first one does. */
  static constexpr bool Even = sizeof(typename Q::Block) % 16 == 0;
  static_assert(SpanBytes % 16 == 0, "tiles follow one another at multiples of 16 bytes");

  Rows rows;
  u8* ring;
  int lane, chunks, tiles;
  int set, sets, stride, passes;
  /** From the beginning of a row's last tile to the beginning of the next set. */
  i64 jump;

  WICK_MEMBER WeightStream(const Rows& given, i64 n, i64 count, u8* shared, const Share& share = whole_share())
      : rows(given) {
    const int groups = share.groups, group = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    chunks = (int)(n / 32);
    tiles = (chunks + Span - 1) / Span;
    sets = (int)count;
    set = group < groups ? share.block * groups + group : sets;
    stride = share.blocks * groups;
    passes = (sets + stride - 1) / stride;
    ring = kept_shared(shared + group * (STAGES * R * Tile));
    jump = stride * rows.each * rows.bytes - (i64)(tiles - 1) * SpanBytes;
  }
  /** Bytes that an address is past a multiple of 16. */
  static WICK_MEMBER int skew_of(u64 at) { return Even ? 0 : (int)at & 15; }
  /** Begins to copy a tile of set `which` to a slot of the ring, in whole words of 16 bytes. */
  WICK_MEMBER void fetch(const u8* from, int which, int bytes, int slot) const {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (R > 1 && which * (int)rows.each + r * (int)rows.apart >= (int)rows.count) break;
      const u8* p = from + r * rows.apart * rows.bytes;
      const int skew = skew_of((u64)p);
      // Memory is handed out in multiples of 16 bytes, so what lies behind the last row may be read.
      const int have = skew + bytes - 16 * lane;
      p += 16 * lane - skew;
      u8* to = ring + (slot * R + r) * Tile + 16 * lane;
#pragma unroll
      for (int i = 0; i < Pieces; i++)
        if (have > 512 * i) async_first16(to + 512 * i, p + 512 * i, have - 512 * i);
    }
  }

  /** Chunk j of each row's unit and those after it, as far as they are among the `left` chunks of the row. */
  template <int j>
  WICK_MEMBER void multiply(const Unit (&units)[R], const Rounded64* x, int records, int left,
                            float (&sums)[Sums]) const {
    if constexpr (j < Unit::chunks) {
      // Large blocks are whole.
      if (Q::chunks == 1 && j >= left) return;
      decltype(units[0].template chunk<j>()) part[R];
#pragma unroll
      for (int r = 0; r < R; r++) part[r] = units[r].template chunk<j>();
#pragma unroll
      for (int m = 0; m < M; m++) {
        const Rounded32 v = load_rounded<Unit::above>(x + m * records + j / 2, j % 2);
#pragma unroll
        for (int r = 0; r < R; r++) {
          sums[r * M + m] = dot_rounded(part[r], v, sums[r * M + m]);
          settle(sums[r * M + m]);
        }
      }
      multiply<j + 1>(units, x, records, left, sums);
    }
  }

  template <class X, class F> WICK_MEMBER void run(X turn, F finish) const {
    run(
        turn, [](i64) { return 0; }, [&](i64 set, const float* sums, int) { finish(set, sums); });
  }
  template <class X, class A, class F> WICK_MEMBER void run(X turn, A ask, F finish) const {
    // The tile that is fetched next: of which set, which of the row's, where it begins and what is left of the row.
    int ahead = set, tile = 0, rest = (int)rows.bytes;
    const u8* from = rows.w + set * rows.each * rows.bytes;
    auto next = [&](int slot) {
      if (ahead < sets) fetch(from, ahead, rest < SpanBytes ? rest : SpanBytes, slot);
      async_commit();
      const bool last = ++tile == tiles;
      from += last ? jump : SpanBytes;
      rest = last ? (int)rows.bytes : rest - SpanBytes;
      ahead += last ? stride : 0;
      tile = last ? 0 : tile;
    };
    auto fetch_from = [&](int first, int end) {
#pragma unroll
      for (int s = first; s < end; s++) next(s);
    };
    constexpr int Early = STAGES - 1 < EARLY_TILES ? STAGES - 1 : EARLY_TILES;
    fetch_from(0, Early);
    begin_in_turn();
    const Rounded64* const x = turn([&] { fetch_from(Early, STAGES - 1); });
    const int records = (chunks + 1) / 2;
    int at = 0, free = STAGES - 1, s = set;
    ROLLED for (int pass = 0; pass < passes; pass++, s += stride) {
      float sums[Sums] = {};
      const auto asked = ask((i64)s);
      const u32 begin = (u32)(u64)rows.w + (u32)s * (u32)(rows.each * rows.bytes);
      ROLLED for (int t = 0; t < tiles; t++) {
        async_wait<STAGES - 2>();
        sync_wave();
        next(free);
        free = free + 1 == STAGES ? 0 : free + 1;
        const int chunk = t * Span + lane * Unit::chunks;
        if (chunk < chunks && s < sets) {
          Unit units[R];
#pragma unroll
          for (int r = 0; r < R; r++) {
            const int skew = skew_of(begin + (u32)r * (u32)(rows.apart * rows.bytes));
            units[r].load(ring + (at * R + r) * Tile + skew, lane);
          }
          multiply<0>(units, record_at<Form>(x, chunk / 2), records, chunks - chunk, sums);
        }
        at = at + 1 == STAGES ? 0 : at + 1;
      }
      scatter_sums<Sums, 16, 32>(sums, lane);
      finish((i64)s, sums, asked);
    }
    async_wait<0>();
  }
};
