// The next token drawn on the device, as src/engine/sampler.ts draws it: repetition penalty, temperature, top-k, top-p
// and min-p.
//
// Three launches of SAMPLE_PARTS blocks of 256, each block with a stretch of the vocabulary of its own: the largest
// logit, weights and how many tokens lie how far below the largest, and the draw. Far is (largest - logit) /
// temperature; SAMPLE_BINS bins reach SAMPLE_REACH.
//   decode_sample_top_T       copies logits, penalises those of recent tokens, finds the largest of the stretch
//   decode_sample_weigh       adds up weights of the stretch and counts bins
//   decode_sample_draw        collects the tokens that can be drawn; the block that comes last sorts them, cuts, draws
//                             and moves the state on
// A draw from more than SAMPLE_MOST tokens is left to the host, told by the token -1.
#include "block.h"
#include "settle.h"

constexpr int SAMPLE_THREADS = 256;
constexpr int SAMPLE_PARTS = 128, SAMPLE_BINS = 1024, SAMPLE_REACH = 32, SAMPLE_MOST = 2048;

struct Sampling {
  const void* logits;
  float* work;             // n
  float* tops;             // SAMPLE_PARTS
  double* masses;          // SAMPLE_PARTS
  u32* bins;               // SAMPLE_BINS zeros, then two zeros: candidates, blocks that arrived
  u64* candidates;         // SAMPLE_MOST
  const double* uniforms;  // by position: the random number in [0, 1) of the token after it
  i32* tokens;             // by position
  i32* state;              // token, position, length
  double temperature, top_p, min_p, penalty;
  i32 window, top_k, n;
};

WICK_FN bool has_filter(const Sampling& p) { return p.top_k > 0 || p.top_p < 1 || p.min_p > 0; }
struct Stretch {
  int begin, end;
};
WICK_FN Stretch stretch_of(int n, int part) {
  const int each = (n + SAMPLE_PARTS - 1) / SAMPLE_PARTS, begin = part * each < n ? part * each : n;
  return {begin, begin + each < n ? begin + each : n};
}
WICK_FN float top_of(const Sampling& p, float* slots) {
  return group_max(threadIdx.x < SAMPLE_PARTS ? p.tops[threadIdx.x] : Limits<float>::lowest(), SAMPLE_THREADS, slots);
}
WICK_FN double distance(const Sampling& p, float top, float logit) {
  return ((double)top - (double)logit) / p.temperature;
}

template <class T> WICK_FN void decode_sample_top(const Sampling& p) {
  __shared__ float slots[WAVE_SLOTS];
  begin_in_turn();
  const Stretch s = stretch_of(p.n, blockIdx.x);
  const T* logits = (const T*)p.logits;
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += SAMPLE_THREADS) p.work[i] = (float)to_compute(logits[i]);
  if (p.penalty != 1) {
    __syncthreads();
    const int position = p.state[1], first = position + 1 - p.window > 0 ? position + 1 - p.window : 0;
    // A token that is there twice is written twice, with the same value.
    UNROLL(1, 1)
    for (int t = first + threadIdx.x; t <= position; t += SAMPLE_THREADS) {
      const int i = p.tokens[t];
      if (i < s.begin || i >= s.end) continue;
      const double logit = (double)to_compute(logits[i]);
      p.work[i] = (float)(logit >= 0 ? logit / p.penalty : logit * p.penalty);
    }
    __syncthreads();
  }
  float top = Limits<float>::lowest();
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += SAMPLE_THREADS) top = p.work[i] > top ? p.work[i] : top;
  top = group_max(top, SAMPLE_THREADS, slots);
  if (threadIdx.x == 0) p.tops[blockIdx.x] = top;
}

WICK_FN void weigh(const Sampling& p) {
  __shared__ float slots[WAVE_SLOTS];
  __shared__ double sums[WAVE_SLOTS];
  __shared__ u32 bins[SAMPLE_BINS];
  UNROLL(1, 1)
  for (int b = threadIdx.x; b < SAMPLE_BINS; b += SAMPLE_THREADS) bins[b] = 0;
  begin_in_turn();
  const float top = top_of(p, slots);
  const Stretch s = stretch_of(p.n, blockIdx.x);
  const bool filter = has_filter(p);
  double mass = 0;
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += SAMPLE_THREADS) {
    const double far = distance(p, top, p.work[i]), weight = expg(-far);
    if (filter && !(far < SAMPLE_REACH && weight >= p.min_p)) continue;
    mass += weight;
    if (filter) atomic_add(&bins[(int)(far * (SAMPLE_BINS / SAMPLE_REACH))], 1u);
  }
  mass = group_sum(mass, SAMPLE_THREADS, sums);
  if (threadIdx.x == 0) p.masses[blockIdx.x] = mass;
  __syncthreads();
  UNROLL(1, 1)
  for (int b = threadIdx.x; filter && b < SAMPLE_BINS; b += SAMPLE_THREADS)
    if (bins[b]) atomic_add(&p.bins[b], bins[b]);
}

/** Sums up to and with each thread's value; all threads of the block take part. */
template <class A> WICK_FN A block_prefix(A value, A* shared) {
  __syncthreads();
  shared[threadIdx.x] = value;
  UNROLL(1, 1)
  for (int step = 1; step < SAMPLE_THREADS; step *= 2) {
    __syncthreads();
    const A before = (int)threadIdx.x >= step ? shared[threadIdx.x - step] : A(0);
    __syncthreads();
    shared[threadIdx.x] += before;
  }
  __syncthreads();
  return shared[threadIdx.x];
}
/** The smallest of the values that threads hold. */
WICK_FN u32 block_least(u32 value, u32* shared) {
  __syncthreads();
  if (threadIdx.x == 0) *shared = 0xffffffffu;
  __syncthreads();
  atomic_min(shared, value);
  __syncthreads();
  return *shared;
}

WICK_FN u64 rank_of(float value, i32 index) {
  u32 bits = bits_as<u32>(value);
  return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (u32)~index;
}
WICK_FN float value_of(u64 rank) {
  u32 bits = (u32)(rank >> 32);
  return bits_as<float>(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
WICK_FN void move_on(const Sampling& p, i32 token) {
  const i32 position = p.state[1];
  p.tokens[position + 1] = token;
  p.state[0] = token < 0 ? 0 : token;
  p.state[1] = position + 1;
  p.state[2] += 1;
}

/** Anything may be drawn: the stretch, then the thread's share of it, then the token. */
WICK_FN void draw_from_all(const Sampling& p, float top, double uniform, double* prefix, u32* least) {
  double mass = threadIdx.x < SAMPLE_PARTS ? p.masses[threadIdx.x] : 0, upto = block_prefix(mass, prefix);
  double target = uniform * prefix[SAMPLE_PARTS - 1];
  const u32 part = block_least(threadIdx.x < SAMPLE_PARTS && upto > target ? threadIdx.x : SAMPLE_PARTS - 1, least);
  target -= part > 0 ? prefix[part - 1] : 0;
  const Stretch s = stretch_of(p.n, part);
  const int each = (s.end - s.begin + SAMPLE_THREADS - 1) / SAMPLE_THREADS, begin = s.begin + threadIdx.x * each,
            end = begin + each < s.end ? begin + each : s.end;
  double own = 0;
  UNROLL(1, 1)
  for (int i = begin; i < end; i++) own += expg(-distance(p, top, p.work[i]));
  double before = block_prefix(own, prefix) - own;
  u32 found = s.end - 1;
  UNROLL(1, 1)
  for (int i = begin; i < end && found == (u32)s.end - 1; i++) {
    before += expg(-distance(p, top, p.work[i]));
    if (before > target) found = i;
  }
  found = block_least(found, least);
  if (threadIdx.x == 0) move_on(p, (i32)found);
}

WICK_FN void draw(const Sampling& p) {
  __shared__ float slots[WAVE_SLOTS];
  __shared__ double sums[WAVE_SLOTS], prefix[SAMPLE_THREADS], weights[SAMPLE_MOST];
  __shared__ u32 counts[SAMPLE_THREADS], least, before;
  __shared__ u64 ranks[SAMPLE_MOST];
  begin_in_turn();
  u32* const count = p.bins + SAMPLE_BINS;
  u32* const arrived = count + 1;
  const bool filter = has_filter(p);
  if (!filter && blockIdx.x != 0) return;
  const float top = top_of(p, slots);
  const double uniform = p.uniforms[p.state[1]];
  if (!filter) return draw_from_all(p, top, uniform, prefix, &least);

  // The bin up to which tokens are wanted: enough of them, or enough mass even if all lay at the far end of their bins.
  const double mass = group_sum(threadIdx.x < SAMPLE_PARTS ? p.masses[threadIdx.x] : 0.0, SAMPLE_THREADS, sums);
  constexpr int Each = SAMPLE_BINS / SAMPLE_THREADS;
  u32 number = 0;
  double weight = 0;
  UNROLL(1, 1)
  for (int b = threadIdx.x * Each; b < ((int)threadIdx.x + 1) * Each; b++) {
    number += p.bins[b];
    weight += p.bins[b] * expg(-(b + 1) * (double)SAMPLE_REACH / SAMPLE_BINS);
  }
  number = block_prefix(number, counts);
  weight = block_prefix(weight, prefix);
  const bool enough = p.top_k > 0 ? number >= (u32)p.top_k : weight >= p.top_p * mass;
  const u32 group = block_least(enough ? threadIdx.x : SAMPLE_THREADS - 1, &least);
  const double furthest = (group + 1) * (double)(SAMPLE_REACH * Each) / SAMPLE_BINS;
  const Stretch s = stretch_of(p.n, blockIdx.x);
  UNROLL(1, 1)
  for (int i = s.begin + threadIdx.x; i < s.end; i += SAMPLE_THREADS) {
    const double far = distance(p, top, p.work[i]);
    if (!(far < furthest && expg(-far) >= p.min_p)) continue;
    const u32 at = atomic_add(count, 1u);
    if (at < SAMPLE_MOST) p.candidates[at] = rank_of(p.work[i], i);
  }
  __syncthreads();
  if (threadIdx.x == 0) before = arrive(arrived);
  __syncthreads();
  if (before != SAMPLE_PARTS - 1) return;

  const u32 found = load_acquire(count);
  const int n = found < SAMPLE_MOST ? found : SAMPLE_MOST;
  __syncthreads();
  UNROLL(1, 1)
  for (int b = threadIdx.x; b < SAMPLE_BINS + 2; b += SAMPLE_THREADS) p.bins[b] = 0;
  if (found > SAMPLE_MOST) {
    if (threadIdx.x == 0) move_on(p, -1);
    return;
  }
  int padded = 1;
  UNROLL(1, 1)
  while (padded < n) padded *= 2;
  UNROLL(1, 1)
  for (int i = threadIdx.x; i < padded; i += SAMPLE_THREADS) ranks[i] = i < n ? p.candidates[i] : 0;
  // Largest first.
  UNROLL(1, 1)
  for (int size = 2; size <= padded; size *= 2) {
    UNROLL(1, 1)
    for (int gap = size / 2; gap; gap /= 2) {
      __syncthreads();
      UNROLL(1, 1)
      for (int t = threadIdx.x; t < padded / 2; t += SAMPLE_THREADS) {
        const int i = t / gap * 2 * gap + t % gap, j = i + gap;
        const bool falling = (i & size) == 0;
        const u64 a = ranks[i], b = ranks[j];
        if ((a < b) == falling) ranks[i] = b, ranks[j] = a;
      }
    }
  }
  __syncthreads();
  const int kept = p.top_k > 0 && p.top_k < n ? p.top_k : n, share = (kept + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
  const int begin = threadIdx.x * share, end = begin + share < kept ? begin + share : kept;
  double own = 0;
  UNROLL(1, 1)
  for (int i = begin; i < end; i++) own += weights[i] = expg(-distance(p, top, value_of(ranks[i])));
  double upto = block_prefix(own, prefix) - own;
  UNROLL(1, 1)
  for (int i = begin; i < end; i++) weights[i] = upto += weights[i];
  __syncthreads();
  const double total = p.top_k > 0 ? weights[kept - 1] : mass;
  u32 last = kept - 1;
  if (p.top_p < 1) {
    UNROLL(1, 1)
    for (int i = begin; i < end; i++)
      if (weights[i] >= p.top_p * total) {
        last = i;
        break;
      }
    last = block_least(last, &least);
  }
  const double target = uniform * weights[last];
  u32 chosen = last;
  UNROLL(1, 1)
  for (int i = begin; i < end && i < (int)last; i++)
    if (weights[i] > target) {
      chosen = i;
      break;
    }
  chosen = block_least(chosen, &least);
  if (threadIdx.x == 0) move_on(p, (i32) ~(u32)ranks[chosen]);
}
