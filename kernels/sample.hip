// The next tokens of many answers at once, each drawn in a way of its own, as src/engine/choose.ts and
// src/engine/sampler.ts draw them on the host: allowed tokens, bias, penalties, temperature, min-p, top-k, top-p,
// typical, the draw; and log-probabilities of the raw logits. How each row is drawn stands in device memory (DrawRow),
// so that one recording serves every mix.
//
// Three launches of (parts, rows) blocks, parts at most DRAW_THREADS / 2; each block has a stretch of a row of its own.
//   sample_top     the row with what is asked for changed in it, the largest of the stretch; likely tokens of the raw one
//   sample_weigh   adds up weights of the stretch and counts how many tokens lie how far below the largest
//   sample_draw    lists the tokens that can be drawn; the block that comes last cuts and draws
// sample_feed puts tokens that were drawn where the next step reads its own.
//
// Where lists are cut and where a draw falls is found by halving the range of keys: what the tokens up to a key weigh
// together decides which half. So nothing is sorted, and lists of any length are served.
#include "block.h"
#include "settle.h"

constexpr int DRAW_THREADS = 256, DRAW_BINS = 1024, DRAW_REACH = 32, DRAW_LIST = 8192, DRAW_LIKELY = 32;

/** How a row is drawn: DRAW_ROW of src/backends/gpu/sample.ts. */
struct DrawRow {
  double temperature, top_p, min_p, typical_p, repetition, presence, frequency;
  u64 origin;  // of the seed's random numbers
  i32 index;   // number of the draw
  i32 top_k;
  i32 history;         // row of histories, -1 where no penalty looks at it
  i32 length, prompt;  // tokens known, of these the prompt's
  i32 first;           // the first token that the repetition penalty looks at
  i32 mask;            // row of masks, -1 for none
  i32 changes;         // row of changes
  i32 biases, ends;    // how many changes are added, and how many tokens after these are out
  i32 likely;          // how many likely tokens are told, beside the one drawn; -1: no log-probabilities
  i32 from, token;     // the token to begin with: the one drawn for row `from` before, or this one where that is -1
  i32 unused[3];
};
struct Change {
  double bias;
  i32 token, unused;
};
struct LikelyToken {
  double logprob;
  i32 token, unused;
};
struct Drawing {
  const float* logits;  // rows of n
  float* work;          // rows of n
  u64* tops;            // rows of parts
  double* masses;       // rows of parts
  u32* bins;            // rows of DRAW_BINS zeros, then two zeros: listed tokens, blocks that arrived
  double* weights;      // rows of DRAW_LIST
  u32* ids;             // rows of DRAW_LIST
  float* raw_tops;      // rows of parts
  double* raw_sums;     // rows of parts
  u64* raw_ranks;       // rows of parts of DRAW_LIKELY
  const DrawRow* rows;
  const u32* masks;       // rows of (n + 31) / 32 words: bit t % 32 of word t / 32 is set where token t is allowed
  const Change* changes;  // rows of `room`
  i32* histories;         // rows of `context`
  i32* drawn;             // rows; -1 where nothing is left to draw
  LikelyToken* told;      // rows of 1 + DRAW_LIKELY
  i32 n, room, context;
};

struct Stretch {
  int begin, end;
};
WICK_FN Stretch stretch_of(int n, int part, int parts) {
  const int each = (n + parts - 1) / parts, begin = part * each < n ? part * each : n;
  return {begin, begin + each < n ? begin + each : n};
}
/** Larger values first, then smaller numbers; -0 is 0. */
WICK_FN u64 rank_of(float value, i32 index) {
  const u32 bits = bits_as<u32>(value + 0.0f);
  return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (u32)~index;
}
WICK_FN float value_of(u64 rank) {
  const u32 bits = (u32)(rank >> 32);
  return bits_as<float>(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
WICK_FN i32 token_of(u64 rank) { return (i32) ~(u32)rank; }
/** Whether anything is changed in the row before it is drawn from; otherwise it is read where it is. */
WICK_FN bool has_changes(const DrawRow& d) { return d.mask >= 0 || d.history >= 0 || d.biases + d.ends > 0; }
WICK_FN const float* row_of(const Drawing& p, const DrawRow& d) {
  return (has_changes(d) ? p.work : p.logits) + (i64)blockIdx.y * p.n;
}
WICK_FN bool has_filter(const DrawRow& d) { return d.top_k > 0 || d.top_p < 1 || d.min_p > 0 || d.typical_p < 1; }
WICK_FN double distance(const DrawRow& d, float top, float logit) {
  return ((double)top - (double)logit) / d.temperature;
}
WICK_FN u64 top_rank(const Drawing& p, u64* slots) {
  const u64 mine = threadIdx.x < gridDim.x ? p.tops[(i64)blockIdx.y * gridDim.x + threadIdx.x] : 0;
  return group_max(mine, DRAW_THREADS, slots);
}

/** What is asked for, changed in this block's stretch. */
WICK_FN void change(const Drawing& p, const DrawRow& d, Stretch s, const float* raw, float* x) {
  const float out = Limits<float>::lowest();
  const u32* mask = d.mask < 0 ? nullptr : p.masks + (i64)d.mask * ((p.n + 31) / 32);
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS)
    x[i] = mask && !(mask[i / 32] >> i % 32 & 1) ? out : raw[i];
  __syncthreads();
  const Change* changes = p.changes + (i64)d.changes * p.room;
  UNROLL(1, 1)
  for (int c = threadIdx.x; c < d.biases; c += DRAW_THREADS) {
    const int i = changes[c].token;
    if (i >= s.begin && i < s.end) x[i] = (float)((double)x[i] + changes[c].bias);
  }
  __syncthreads();
  if (d.history >= 0) {
    const i32* tokens = p.histories + (i64)d.history * p.context;
    // The first time a token is there speaks for all of them; threads look at different ones.
    UNROLL(1, 1)
    for (int t = d.first + threadIdx.x; d.repetition != 1 && t < d.length; t += DRAW_THREADS) {
      const int i = tokens[t];
      if (i < s.begin || i >= s.end) continue;
      bool again = false;
      UNROLL(1, 1)
      for (int u = d.first; u < t && !again; u++) again = tokens[u] == i;
      if (again) continue;
      const double logit = x[i];
      x[i] = (float)(logit >= 0 ? logit / d.repetition : logit * d.repetition);
    }
    __syncthreads();
    const bool counting = d.presence != 0 || d.frequency != 0;
    UNROLL(1, 1)
    for (int t = d.prompt + threadIdx.x; counting && t < d.length; t += DRAW_THREADS) {
      const int i = tokens[t];
      if (i < s.begin || i >= s.end) continue;
      int before = 0, times = 0;
      UNROLL(1, 1)
      for (int u = d.prompt; u < d.length; u++)
        if (tokens[u] == i) times++, before += u < t;
      // Rounded twice, as the host does it.
      if (before == 0) x[i] = (float)((double)x[i] - add_rn(d.presence, mul_rn(d.frequency, (double)times)));
    }
    __syncthreads();
  }
  UNROLL(1, 1)
  for (int c = d.biases + threadIdx.x; c < d.biases + d.ends; c += DRAW_THREADS) {
    const int i = changes[c].token;
    if (i >= s.begin && i < s.end) x[i] = out;
  }
  __syncthreads();
}

WICK_FN void top(const Drawing& p) {
  __shared__ u64 ranks[WAVE_SLOTS];
  __shared__ float floats[WAVE_SLOTS];
  __shared__ double doubles[WAVE_SLOTS];
  begin_in_turn();
  const DrawRow& d = p.rows[blockIdx.y];
  const Stretch s = stretch_of(p.n, blockIdx.x, gridDim.x);
  const i64 row = (i64)blockIdx.y * p.n, part = (i64)blockIdx.y * gridDim.x + blockIdx.x;
  const float* raw = p.logits + row;
  if (has_changes(d)) change(p, d, s, raw, p.work + row);
  const float* x = row_of(p, d);
  u64 best = 0;
  // A block has about four rounds: their loads are under way together.
  UNROLL(4, 4)
  for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
    const u64 mine = rank_of(x[i], i);
    best = mine > best ? mine : best;
  }
  best = group_max(best, DRAW_THREADS, ranks);
  if (threadIdx.x == 0) p.tops[part] = best;
  if (d.likely < 0) return;

  float most = Limits<float>::lowest();
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) most = raw[i] > most ? raw[i] : most;
  most = group_max(most, DRAW_THREADS, floats);
  double sum = 0;
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; most > Limits<float>::lowest() && i < s.end; i += DRAW_THREADS)
    sum += expg((double)raw[i] - (double)most);
  sum = group_sum(sum, DRAW_THREADS, doubles);
  if (threadIdx.x == 0) p.raw_tops[part] = most, p.raw_sums[part] = sum;
  u64 last = Limits<u64>::highest();
  UNROLL(1, 1)
  for (int c = 0; c < d.likely; c++) {
    u64 next = 0;
    UNROLL(1, 1)
    for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
      const u64 mine = rank_of(raw[i], i);
      if (mine < last && mine > next) next = mine;
    }
    last = group_max(next, DRAW_THREADS, ranks);
    if (threadIdx.x == 0) p.raw_ranks[part * DRAW_LIKELY + c] = last;
  }
}

WICK_FN void weigh(const Drawing& p) {
  __shared__ u64 ranks[WAVE_SLOTS];
  __shared__ double sums[WAVE_SLOTS];
  __shared__ u32 bins[DRAW_BINS];
  begin_in_turn();
  const DrawRow& d = p.rows[blockIdx.y];
  if (d.temperature == 0) return;
  UNROLL(1, 1)
  for (int b = threadIdx.x; b < DRAW_BINS; b += DRAW_THREADS) bins[b] = 0;
  const float most = value_of(top_rank(p, ranks));
  if (!(most > Limits<float>::lowest())) return;
  const float* x = row_of(p, d);
  const Stretch s = stretch_of(p.n, blockIdx.x, gridDim.x);
  const bool filter = has_filter(d);
  double mass = 0;
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
    const double far = distance(d, most, x[i]), weight = expg(-far);
    if (filter && !(far < DRAW_REACH && weight >= d.min_p)) continue;
    mass += weight;
    if (filter) atomic_add(&bins[(int)(far * (DRAW_BINS / DRAW_REACH))], 1u);
  }
  mass = group_sum(mass, DRAW_THREADS, sums);
  if (threadIdx.x == 0) p.masses[(i64)blockIdx.y * gridDim.x + blockIdx.x] = mass;
  __syncthreads();
  u32* const all = p.bins + (i64)blockIdx.y * (DRAW_BINS + 2);
  UNROLL(1, 1)
  for (int b = threadIdx.x; filter && b < DRAW_BINS; b += DRAW_THREADS)
    if (bins[b]) atomic_add(&all[b], bins[b]);
}

/** Sums up to and with each thread's value; all threads of the block take part. */
template <class A> WICK_FN A block_prefix(A value, A* shared) {
  __syncthreads();
  shared[threadIdx.x] = value;
  UNROLL(1, 1)
  for (int step = 1; step < DRAW_THREADS; step *= 2) {
    __syncthreads();
    const A before = (int)threadIdx.x >= step ? shared[threadIdx.x - step] : A(0);
    __syncthreads();
    shared[threadIdx.x] += before;
  }
  __syncthreads();
  return shared[threadIdx.x];
}
struct Slots {
  u64 words[WAVE_SLOTS];
  double sums[WAVE_SLOTS];
  double prefix[DRAW_THREADS];
};
WICK_FN u64 block_least(u64 v, Slots& s) { return group_reduce(v, DRAW_THREADS, s.words, Smaller()); }
WICK_FN u64 block_most(u64 v, Slots& s) { return group_max(v, DRAW_THREADS, s.words); }
WICK_FN double block_sum(double v, Slots& s) { return group_sum(v, DRAW_THREADS, s.sums); }

/** Anything may be drawn: the stretch, then the thread's share of it, then the token. */
WICK_FN i32 draw_from_all(const Drawing& p, const DrawRow& d, float most, double uniform, Slots& slots) {
  const int parts = gridDim.x;
  const double* masses = p.masses + (i64)blockIdx.y * parts;
  const float* x = row_of(p, d);
  const double upto = block_prefix((int)threadIdx.x < parts ? masses[threadIdx.x] : 0.0, slots.prefix);
  double target = uniform * slots.prefix[parts - 1];
  const u32 fits = (int)threadIdx.x < parts && upto > target ? threadIdx.x : parts - 1;
  const u32 part = (u32)block_least(fits, slots);
  target -= part > 0 ? slots.prefix[part - 1] : 0;
  const Stretch s = stretch_of(p.n, part, parts);
  const int each = (s.end - s.begin + DRAW_THREADS - 1) / DRAW_THREADS, begin = s.begin + threadIdx.x * each,
            end = begin + each < s.end ? begin + each : s.end;
  double own = 0;
  UNROLL(1, 1)
  for (int i = begin; i < end; i++) own += expg(-distance(d, most, x[i]));
  double before = block_prefix(own, slots.prefix) - own;
  u32 found = s.end - 1;
  UNROLL(1, 1)
  for (int i = begin; i < end && found == (u32)s.end - 1; i++) {
    before += expg(-distance(d, most, x[i]));
    if (before > target) found = i;
  }
  return (i32)block_least(found, slots);
}

/** The tokens that may still be drawn: in a list, or, where it has no room for them, wherever they stand. */
struct Open {
  const double* weights;
  const u32* ids;  // null: not in a list
  const float* x;
  int count;
  float most;
  double furthest;
};
template <class F> WICK_FN void each_open(const Open& o, const DrawRow& d, F f) {
  UNROLL(1, 1)
  for (int t = threadIdx.x; t < o.count; t += DRAW_THREADS) {
    if (o.ids) {
      f(o.weights[t], o.ids[t]);
      continue;
    }
    const double far = distance(d, o.most, o.x[t]);
    if (!(far < o.furthest)) continue;
    const double weight = expg(-far);
    if (weight >= d.min_p) f(weight, (u32)t);
  }
}
/** A token's place in an order: by key, then by number. */
struct Place {
  u64 key;
  u32 id;
  WICK_MEMBER bool holds(u64 k, u32 i) const { return k < key || (k == key && i <= id); }
};
constexpr u64 NOT_OPEN = 0xffffffffffffffffull;
/** Likelier tokens first. */
struct ByWeight {
  WICK_MEMBER u64 operator()(double weight, u32) const { return ~bits_as<u64>(weight); }
};
/** Those first whose surprise is nearest to the expected one, among what the border of the other order holds. */
struct ByTypical {
  Place border;
  double total, expected;
  WICK_MEMBER double surprise(double weight) const { return -logg(weight / total); }
  WICK_MEMBER u64 operator()(double weight, u32 id) const {
    if (!border.holds(ByWeight()(weight, id), id)) return NOT_OPEN;
    return bits_as<u64>(fabs(surprise(weight) - expected));
  }
};
/** What tokens up to a place weigh together, or, with COUNT, how many they are. */
template <bool COUNT, class Key>
WICK_FN double mass_upto(const Open& o, const DrawRow& d, const Key& key, Place place, Slots& slots) {
  double sum = 0;
  each_open(o, d, [&](double weight, u32 id) {
    const u64 k = key(weight, id);
    if (k != NOT_OPEN && place.holds(k, id)) sum += COUNT ? 1.0 : weight;
  });
  return block_sum(sum, slots);
}
/** The first place up to which tokens weigh the goal, or more than it; else the last one. */
template <bool COUNT, bool BEYOND, class Key>
WICK_FN Place reach(const Open& o, const DrawRow& d, const Key& key, double goal, Slots& slots) {
  u64 low = NOT_OPEN, high = 0;
  each_open(o, d, [&](double weight, u32 id) {
    const u64 k = key(weight, id);
    if (k == NOT_OPEN) return;
    low = k < low ? k : low;
    high = k > high ? k : high;
  });
  low = block_least(low, slots);
  high = block_most(high, slots);
  UNROLL(1, 1)
  while (low < high) {
    const u64 middle = low + (high - low) / 2;
    const double sum = mass_upto<COUNT>(o, d, key, Place{middle, 0xffffffffu}, slots);
    if (BEYOND ? sum > goal : sum >= goal) high = middle;
    else low = middle + 1;
  }
  u64 first = 0xffffffffu, last = 0;
  each_open(o, d, [&](double weight, u32 id) {
    if (key(weight, id) != low) return;
    first = id < first ? id : first;
    last = id > last ? id : last;
  });
  first = block_least(first, slots);
  last = block_most(last, slots);
  UNROLL(1, 1)
  while (first < last) {
    const u64 middle = (first + last) / 2;
    const double sum = mass_upto<COUNT>(o, d, key, Place{low, (u32)middle}, slots);
    if (BEYOND ? sum > goal : sum >= goal) last = middle;
    else first = middle + 1;
  }
  return {low, (u32)first};
}
/** The draw among open tokens; all of them together, listed or not, have `mass`. */
WICK_FN i32 draw_open(const Open& o, const DrawRow& d, double mass, double uniform, Slots& slots) {
  const ByWeight likelier;
  Place border = {NOT_OPEN - 1, 0xffffffffu};
  double total = mass;
  if (d.top_k > 0) {
    border = reach<true, false>(o, d, likelier, (double)d.top_k, slots);
    total = mass_upto<false>(o, d, likelier, border, slots);
  }
  if (d.top_p < 1) {
    const Place cut = reach<false, false>(o, d, likelier, d.top_p * total, slots);
    if (border.holds(cut.key, cut.id)) border = cut;
  }
  double sum = mass_upto<false>(o, d, likelier, border, slots);
  if (!(d.typical_p < 1)) {
    const Place at = reach<false, true>(o, d, likelier, uniform * sum, slots);
    return (i32)(border.holds(at.key, at.id) ? at.id : border.id);
  }
  ByTypical typical = {border, sum, 0};
  double expected = 0;
  each_open(o, d, [&](double weight, u32 id) {
    if (border.holds(likelier(weight, id), id)) expected += weight / sum * typical.surprise(weight);
  });
  typical.expected = block_sum(expected, slots);
  border = reach<false, false>(o, d, typical, d.typical_p * sum, slots);
  sum = mass_upto<false>(o, d, typical, border, slots);
  const Place at = reach<false, true>(o, d, typical, uniform * sum, slots);
  return (i32)(border.holds(at.key, at.id) ? at.id : border.id);
}

/** Number `index` of a seed's stream, in [0, 1): uniformAt of src/engine/sampler.ts. */
WICK_FN double uniform_of(const DrawRow& d) {
  u64 z = d.origin + ((u64)d.index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}
/** The token is told, and remembered where penalties look for it. */
WICK_FN void finish(const Drawing& p, const DrawRow& d, i32 token, Slots& slots) {
  const int row = blockIdx.y, parts = gridDim.x;
  if (threadIdx.x == 0) {
    p.drawn[row] = token;
    if (d.history >= 0 && token >= 0 && d.length < p.context)
      p.histories[(i64)d.history * p.context + d.length] = token;
  }
  if (d.likely < 0 || token < 0) return;
  const bool has = (int)threadIdx.x < parts;
  const i64 part = (i64)row * parts + threadIdx.x;
  const float mine = has ? p.raw_tops[part] : Limits<float>::lowest();
  const float most = value_of(block_most(has ? rank_of(mine, 0) : 0, slots));
  const double sum =
      block_sum(has && p.raw_sums[part] > 0 ? p.raw_sums[part] * expg((double)mine - (double)most) : 0.0, slots);
  const double level = (double)most + logg(sum);
  LikelyToken* told = p.told + (i64)row * (1 + DRAW_LIKELY);
  if (threadIdx.x == 0) told[0] = {(double)p.logits[(i64)row * p.n + token] - level, token, 0};
  const u64* ranks = p.raw_ranks + (i64)row * parts * DRAW_LIKELY;
  u64 last = Limits<u64>::highest();
  UNROLL(1, 1)
  for (int c = 0; c < d.likely; c++) {
    u64 next = 0;
    UNROLL(1, 1)
    for (int i = threadIdx.x; i < parts * d.likely; i += DRAW_THREADS) {
      const u64 rank = ranks[i / d.likely * DRAW_LIKELY + i % d.likely];
      if (rank < last && rank > next) next = rank;
    }
    last = block_most(next, slots);
    // A vocabulary may have fewer tokens than are asked for.
    if (threadIdx.x == 0) told[1 + c] = {last ? (double)value_of(last) - level : 0, last ? token_of(last) : -1, 0};
  }
}

WICK_FN void draw(const Drawing& p) {
  __shared__ Slots slots;
  __shared__ u32 before;
  begin_in_turn();
  const int row = blockIdx.y, parts = gridDim.x;
  const DrawRow& d = p.rows[row];
  const bool by_one = d.temperature == 0 || !has_filter(d);
  if (by_one && blockIdx.x != 0) return;
  const u64 rank = top_rank(p, slots.words);
  const float most = value_of(rank);
  const bool none = !(most > Limits<float>::lowest());
  if (none || by_one) {
    if (blockIdx.x != 0) return;
    const i32 token = none ? -1 : d.temperature == 0 ? token_of(rank) : draw_from_all(p, d, most, uniform_of(d), slots);
    return finish(p, d, token, slots);
  }

  // How far below the largest tokens are wanted: enough of them, or enough mass even if all lay at the far end of
  // their bins.
  u32* const bins = p.bins + (i64)row * (DRAW_BINS + 2);
  u32* const count = bins + DRAW_BINS;
  u32* const arrived = count + 1;
  const double mass = block_sum((int)threadIdx.x < parts ? p.masses[(i64)row * parts + threadIdx.x] : 0.0, slots);
  constexpr int Each = DRAW_BINS / DRAW_THREADS;
  double number = 0, weight = 0;
  UNROLL(1, 1)
  for (int b = threadIdx.x * Each; b < ((int)threadIdx.x + 1) * Each; b++) {
    number += bins[b];
    weight += bins[b] * expg(-(b + 1) * (double)DRAW_REACH / DRAW_BINS);
  }
  number = block_prefix(number, slots.prefix);
  weight = block_prefix(weight, slots.prefix);
  const bool enough = d.top_k > 0 ? number >= (double)d.top_k : weight >= d.top_p * mass;
  const u32 group = (u32)block_least(enough ? threadIdx.x : DRAW_THREADS - 1, slots);
  const double furthest = (group + 1) * (double)(DRAW_REACH * Each) / DRAW_BINS;
  const Stretch s = stretch_of(p.n, blockIdx.x, parts);
  const float* x = row_of(p, d);
  double* const weights = p.weights + (i64)row * DRAW_LIST;
  u32* const ids = p.ids + (i64)row * DRAW_LIST;
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += DRAW_THREADS) {
    const double far = distance(d, most, x[i]);
    if (!(far < furthest)) continue;
    const double w = expg(-far);
    if (!(w >= d.min_p)) continue;
    const u32 at = atomic_add(count, 1u);
    if (at < DRAW_LIST) weights[at] = w, ids[at] = i;
  }
  __syncthreads();
  if (threadIdx.x == 0) before = arrive(arrived);
  __syncthreads();
  if (before != (u32)parts - 1) return;
  const u32 found = load_acquire(count);
  __syncthreads();
  UNROLL(1, 1)
  for (int b = threadIdx.x; b < DRAW_BINS + 2; b += DRAW_THREADS) bins[b] = 0;
  const bool listed = found <= DRAW_LIST;
  const Open open = {weights, listed ? ids : nullptr, x, listed ? (int)found : p.n, most, furthest};
  finish(p, d, draw_open(open, d, mass, uniform_of(d), slots), slots);
}

WICK_FN void feed(const DrawRow* rows, const i32* drawn, i32* tokens, i32 n) {
  begin_in_turn();
  const int i = blockIdx.x * DRAW_THREADS + threadIdx.x;
  if (i >= n) return;
  const i32 from = rows[i].from, token = from < 0 ? rows[i].token : drawn[from];
  tokens[i] = token < 0 ? 0 : token;
}
