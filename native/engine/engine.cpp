// The engine's entry points: finding ops by name, choosing an instruction set, and running one call block.
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "linalg.h"
#include "ops/ops.h"
#include "strided.h"
#include "threads.h"
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if !defined(__wasm__)
#include <sys/mman.h>
#endif

#include "generated/names.h"

namespace wick {

#define WICK_DECLARE_OPS(FILE) extern const Op FILE##_ops[];
WICK_OP_FILES(WICK_DECLARE_OPS)

const IsaTable* isa = nullptr;
RowTable rowTable;

Status fail(const Call& call, Status status, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(call.message, MESSAGE_BYTES, format, args);
  va_end(args);
  return status;
}

namespace {

// ---- elementwise rows ----
#define WICK_COUNT(name) +1
constexpr int ROW_COUNT = 0 WICK_ROWS(WICK_COUNT);
static_assert(ROW_COUNT <= MAX_ROWS, "the op table has outgrown MAX_ROWS");
#define WICK_NAME(name) #name,
const char* const ROW_NAMES[] = {WICK_ROWS(WICK_NAME) nullptr};

int rowNumber(const char* name) {
  for (int i = 0; i < ROW_COUNT; i++)
    if (strcmp(name, ROW_NAMES[i]) == 0) return i;
  return -1;
}
void fillRows(IsaTable* t, const ElementwiseRow* list) {
  for (; list->name; list++) t->elementwise[rowNumber(list->name)] = list;
}

// ---- instruction sets: those that this library was built with (WICK_WITH_...) ----
// What each instruction set exports: lists of elementwise rows, and functions that fill in their family.
#define WICK_FAMILIES(X, SUFFIX) \
  X(cast, SUFFIX)                \
  X(reduce, SUFFIX)              \
  X(matmul, SUFFIX) X(rows, SUFFIX) X(attention, SUFFIX) X(quantized, SUFFIX) X(encode, SUFFIX) X(peak, SUFFIX)
#define WICK_DECLARE_ROWS(PART, SUFFIX) extern const ElementwiseRow wick_elementwise_##PART##_##SUFFIX[];
#define WICK_FILL_ROWS(PART, SUFFIX) fillRows(&t, wick_elementwise_##PART##_##SUFFIX);
#define WICK_DECLARE_FAMILY(NAME, SUFFIX) void wick_##NAME##_##SUFFIX(IsaTable*);
#define WICK_FILL_FAMILY(NAME, SUFFIX) wick_##NAME##_##SUFFIX(&t);
#define WICK_INSTRUCTION_SET(SUFFIX)         \
  extern "C" {                               \
  WICK_ROW_PARTS(WICK_DECLARE_ROWS, SUFFIX)  \
  WICK_FAMILIES(WICK_DECLARE_FAMILY, SUFFIX) \
  void wick_linalg_##SUFFIX(RowTable*);      \
  }                                          \
  const IsaTable* table_##SUFFIX() {         \
    static IsaTable t;                       \
    t.name = #SUFFIX;                        \
    WICK_ROW_PARTS(WICK_FILL_ROWS, SUFFIX)   \
    WICK_FAMILIES(WICK_FILL_FAMILY, SUFFIX)  \
    wick_linalg_##SUFFIX(&rowTable);         \
    return &t;                               \
  }

struct Choice {
  const char* name;
  bool (*present)();
  const IsaTable* (*table)();
};

// An engine built for the CPU at hand has products of whole numbers for CPUs with dot products alone, or none for them.
#if defined(WICK_ONLY_VNNI) || defined(WICK_ONLY_DOTPROD) || defined(WICK_ONLY_I8MM)
constexpr bool DOT_ALONE = true;
#else
constexpr bool DOT_ALONE = false;
#endif
#if defined(__x86_64__)
bool hasSse2() { return true; }
bool hasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool hasVnni() { return __builtin_cpu_supports("avx512vnni"); }
bool hasAvx512() {
  return hasAvx2() && (!DOT_ALONE || hasVnni()) && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#elif defined(__aarch64__)
bool hasDotprod() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
bool hasI8mm() { return hasDotprod() && getauxval(AT_HWCAP2) >> 13 & 1; }  // HWCAP2_I8MM, which old headers lack
#if defined(WICK_ONLY_I8MM)
bool hasNeon() { return hasI8mm(); }
#else
bool hasNeon() { return !DOT_ALONE || hasDotprod(); }
#endif
#else
bool hasWasm() { return true; }  // a machine without its vectors refuses the whole module
#endif
// CPUs with the larger sets mostly multiply and add four bytes in one instruction, too; some small matrices of them.
#define WICK_DOT_PRODUCTS(SET, DOT, HAS)                       \
  extern "C" void wick_quantized_##DOT(IsaTable*);             \
  const IsaTable* table_##DOT() {                              \
    const IsaTable* t = table_##SET();                         \
    if (HAS()) wick_quantized_##DOT(const_cast<IsaTable*>(t)); \
    return t;                                                  \
  }
#ifdef WICK_WITH_SSE2
WICK_INSTRUCTION_SET(sse2)
#endif
#ifdef WICK_WITH_AVX2
WICK_INSTRUCTION_SET(avx2)
#endif
#ifdef WICK_WITH_AVX512
WICK_INSTRUCTION_SET(avx512)
#ifdef WICK_WITH_VNNI
WICK_DOT_PRODUCTS(avx512, vnni, hasVnni)
#else
const auto table_vnni = table_avx512;
#endif
#endif
#ifdef WICK_WITH_NEON
WICK_INSTRUCTION_SET(neon)
#ifdef WICK_WITH_DOTPROD
WICK_DOT_PRODUCTS(neon, dotprod, hasDotprod)
#else
const auto table_dotprod = table_neon;
#endif
#ifdef WICK_WITH_I8MM
WICK_DOT_PRODUCTS(dotprod, i8mm, hasI8mm)
#else
const auto table_i8mm = table_dotprod;
#endif
#endif
#ifdef WICK_WITH_WASM
WICK_INSTRUCTION_SET(wasm)
#endif
// Best last.
const Choice CHOICES[] = {
#ifdef WICK_WITH_SSE2
    {"sse2", hasSse2, table_sse2},
#endif
#ifdef WICK_WITH_AVX2
    {"avx2", hasAvx2, table_avx2},
#endif
#ifdef WICK_WITH_AVX512
    {"avx512", hasAvx512, table_vnni},
#endif
#ifdef WICK_WITH_NEON
    {"neon", hasNeon, table_i8mm},
#endif
#ifdef WICK_WITH_WASM
    {"wasm", hasWasm, table_wasm},
#endif
};
constexpr int CHOICE_COUNT = sizeof CHOICES / sizeof CHOICES[0];

// ---- ops ----
Status runElementwise(const Call& c, const void* data) {
  const Operand& out = c.out();
  // The first operand of a choice is its condition: the last one always has the row's dtype.
  Kernel kernel = isa->elementwise[(intptr_t)data]->kernel[c.in(c.inputs - 1).dtype];
  if (!kernel) return fail(c, UNSUPPORTED, "the engine has no kernel for this dtype");
  runStrided(kernel, c.operand, c.inputs, out, c.params);
  return OK;
}

constexpr int MAX_OPS = 256;
const Op* ops[MAX_OPS];  // by id - ROW_COUNT
#define WICK_LIST_OPS(FILE) FILE##_ops,
const Op* const LISTS[] = {WICK_OP_FILES(WICK_LIST_OPS)};

// ---- the call block: doubles only, so that JavaScript fills it without garbage ----
enum Slot : int { OP, INPUTS, OPERANDS, PARAMS = 4, FIRST_OPERAND = PARAMS + MAX_PARAMS, MESSAGE = 960 };

void parse(const double* block, const double* message, Call& c) {
  c.inputs = (int)block[INPUTS];
  c.operands = (int)block[OPERANDS];
  c.params = block + PARAMS;
  c.message = reinterpret_cast<char*>(const_cast<double*>(message));
  const double* p = block + FIRST_OPERAND;
  for (int k = 0; k < c.operands; k++) {
    Operand& o = c.operand[k];
    o.data = reinterpret_cast<char*>((intptr_t)p[0]);
    o.dtype = (int)p[1];
    o.rank = (int)p[2];
    p += 3;
    for (int d = 0; d < o.rank; d++) o.shape[d] = (int64_t)*p++;
    for (int d = 0; d < o.rank; d++) o.stride[d] = (int64_t)*p++;
  }
}

// Drivers below the elementwise ones write contiguous results; a strided result is copied out of one.
Status runContiguous(Call& c, const Op& op) {
  bool dense = true;
  for (int k = c.inputs; k < c.operands; k++) dense &= c.operand[k].contiguous();
  if (dense) return op.run(c, op.data);
  Operand given[MAX_OPERANDS];
  void* blocks[MAX_OPERANDS] = {};
  for (int k = c.inputs; k < c.operands; k++) {
    Operand& o = c.operand[k];
    given[k] = o;
    blocks[k] = aligned_alloc(64, (size_t)(o.size() * o.bytes() + 127) / 64 * 64);
    if (!blocks[k]) {
      for (void* b : blocks) free(b);
      return fail(c, NO_MEMORY, "no memory for %lld elements in order", (long long)o.size());
    }
    o.data = static_cast<char*>(blocks[k]);
    int64_t n = 1;
    for (int d = o.rank - 1; d >= 0; d--) {
      o.stride[d] = n;
      n *= o.shape[d];
    }
  }
  Status status = op.run(c, op.data);
  for (int k = c.inputs; k < c.operands; k++) {
    if (status == OK) copyStrided(c.operand[k], given[k]);
    free(blocks[k]);
  }
  return status;
}

Status runCall(const double* block, const double* message) {
  Call c;
  parse(block, message, c);
  int id = (int)block[OP];
  if (id < ROW_COUNT) return runElementwise(c, reinterpret_cast<const void*>((intptr_t)id));
#if defined(__cpp_exceptions)
  try {
    return runContiguous(c, *ops[id - ROW_COUNT]);
  } catch (const std::bad_alloc&) { return fail(c, NO_MEMORY, "no memory for the engine's own lists"); }
#else
  return runContiguous(c, *ops[id - ROW_COUNT]);  // WebAssembly: memory that is not there ends in a trap
#endif
}

}  // namespace
}  // namespace wick

using namespace wick;

extern "C" {

// Picks the best instruction set that this library was built with and this CPU has, or the one named.
// 0: done; 1: this CPU lacks it (or all of them); 2: the library was not built with it.
__attribute__((visibility("default"))) int wick_select(const char* name) {
  int count = 0;
  for (const Op* list : LISTS)
    for (; list->name && count < MAX_OPS; list++) ops[count++] = list;
  for (int i = CHOICE_COUNT - 1; i >= 0; i--) {
    const Choice& c = CHOICES[i];
    if (name && *name && strcmp(name, c.name) != 0) continue;
    if (c.present()) {
      isa = c.table();
      return 0;
    }
    if (name && *name) return 1;
  }
  return name && *name ? 2 : 1;
}
__attribute__((visibility("default"))) const char* wick_isa() { return isa->name; }
__attribute__((visibility("default"))) int wick_threads(int n) {
  if (n > 0) setThreadCount(n);
  return threadCount();
}

__attribute__((visibility("default"))) int wick_find(const char* name) {
  const int row = rowNumber(name);
  if (row >= 0) return row;
  for (int i = 0; i < MAX_OPS && ops[i]; i++)
    if (strcmp(name, ops[i]->name) == 0) return ROW_COUNT + i;
  return -1;
}

__attribute__((visibility("default"))) double wick_address(void* p) { return (double)(uintptr_t)p; }
// Large blocks of zero pages: huge pages save most of the faults. A hint, so its answer does not matter.
__attribute__((visibility("default"))) void wick_advise(double address, double bytes) {
  uintptr_t begin = ((uintptr_t)address + 4095) & ~(uintptr_t)4095,
            end = ((uintptr_t)address + (uintptr_t)bytes) & ~(uintptr_t)4095;
#if !defined(__wasm__)
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)begin, (void)end;
#endif
}
#if defined(__wasm__)
// The engine sees its own memory only: tensors live there. 0 when there is no more.
__attribute__((visibility("default"))) double wick_alloc(double bytes) {
  return (double)(uintptr_t)aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
}
__attribute__((visibility("default"))) void wick_free(double address) {
  free(reinterpret_cast<void*>((uintptr_t)address));
}
#endif

__attribute__((visibility("default"))) int wick_run(double address) {
  const double* block = reinterpret_cast<const double*>((uintptr_t)address);
  return runCall(block, block + MESSAGE);
}

// Recorded calls one after another: slot 0 of `list` says how many, slot 1 receives the number of one that failed, the
// message's room follows, then the calls, each behind a slot with its length.
__attribute__((visibility("default"))) int wick_run_list(double address) {
  double* list = reinterpret_cast<double*>((uintptr_t)address);
  const double* message = list + 2;
  const double* call = message + MESSAGE_BYTES / 8;
  for (int i = 0; i < (int)list[0]; i++) {
    if (Status status = runCall(call + 1, message)) {
      list[1] = i;
      return status;
    }
    call += 1 + (int)call[0];
  }
  return OK;
}

// For benchmarks: multiply-adds on all of the pool's threads; the answer is how many operations there were.
__attribute__((visibility("default"))) double wick_peak(double rounds) {
  const int threads = threadCount();
  double done[64] = {};
  parallel(threads < 64 ? threads : 64, 1, [&](int64_t begin, int64_t end) {
    float kept;
    for (int64_t i = begin; i < end; i++) done[i] = isa->peak((int64_t)rounds, &kept);
  });
  double total = 0;
  for (double d : done) total += d;
  return total;
}

// For measuring what a plain copy reaches with the pool's threads.
// Reads and does nothing with it: what the machine can read at most.
__attribute__((visibility("default"))) void wick_read(double from, double bytes) {
  typedef uint64_t Wide __attribute__((vector_size(16)));
  const char* f = reinterpret_cast<const char*>((uintptr_t)from);
  static std::atomic<uint64_t> kept;
  parallel((int64_t)bytes / 128, 512, [&](int64_t begin, int64_t end) {
    Wide a{}, b{}, c{}, d{}, e{}, g{}, h{}, i{};
    auto at = [&](const char* p) {
      Wide v;
      memcpy(&v, p, 16);
      return v;
    };
    for (const char* p = f + begin * 128; p < f + end * 128; p += 128) {
      __builtin_prefetch(p + 768);
      __builtin_prefetch(p + 832);
      a ^= at(p);
      b ^= at(p + 16);
      c ^= at(p + 32);
      d ^= at(p + 48);
      e ^= at(p + 64);
      g ^= at(p + 80);
      h ^= at(p + 96);
      i ^= at(p + 112);
    }
    const Wide all = ((a ^ b) ^ (c ^ d)) ^ ((e ^ g) ^ (h ^ i));
    kept.fetch_xor(all[0] ^ all[1], std::memory_order_relaxed);
  });
}

__attribute__((visibility("default"))) void wick_memcpy(double to, double from, double bytes) {
  char* t = reinterpret_cast<char*>((uintptr_t)to);
  const char* f = reinterpret_cast<const char*>((uintptr_t)from);
  parallel((int64_t)bytes, 1 << 16, [&](int64_t begin, int64_t end) { memcpy(t + begin, f + begin, end - begin); });
}

}  // extern "C"
