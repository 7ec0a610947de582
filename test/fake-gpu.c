// A GPU driver in host memory, with CUDA's or HIP's names: it lets the driver tests make every call for real where
// there is no GPU. Built twice by driver-fake.test.ts, with -DCUDA as libcuda.so.1 and without as libamdhip64.so.7. It
// is strict where drivers are: handles are what they were made as and belong to the device that was current, copies to
// and from the host are there when their stream was waited for, and FAKE_FAIL names a call that fails.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef CUDA
#define NAME(cuda, hip) cuda
#define END 0
#else
#define NAME(cuda, hip) hip
#define END 3
#endif
#define TOTAL (1ull << 30)
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, NOT_READY = 600, ASKED_FOR = 999 };
#define TRY                                                  \
  do {                                                       \
    const char* fails = getenv("FAKE_FAIL");                 \
    if (fails && !strcmp(fails, __func__)) return ASKED_FOR; \
  } while (0)

typedef struct {
  char* base;
  size_t bytes;
  int device, host;
} Block;
static Block blocks[1024];
static size_t used;
static int current = -1;

static Block* block_of(const void* p, size_t n) {
  for (int i = 0; i < 1024; i++)
    if (blocks[i].base && (char*)p >= blocks[i].base && (char*)p + n <= blocks[i].base + blocks[i].bytes)
      return &blocks[i];
  return 0;
}
static int owned(const void* p, size_t n) {
  Block* b = block_of(p, n);
  return b && !b->host && b->device == current;
}
static int taken(void** p, size_t n, int host) {
  for (int i = 0; i < 1024; i++)
    if (!blocks[i].base) {
      blocks[i] = (Block){* p = aligned_alloc(256, (n + 255) & ~255ull), n, current, host};
      if (!host) used += n;
      return OK;
    }
  return OUT_OF_MEMORY;
}

typedef struct {
  int kind, device;
  unsigned flags;
  int at;
} Handle;
enum { STREAM = 0x57, EVENT = 0xe7 };
static Handle* made(int kind, unsigned flags) {
  Handle* h = calloc(1, sizeof *h);
  *h = (Handle){kind, current, flags, 0};
  return h;
}
static int is(const Handle* h, int kind) { return h && h->kind == kind && h->device == current; }
static int stream(const Handle* s) { return !s || is(s, STREAM); }

// Copies that were enqueued: one to the device may read its source up to the moment it is waited for, one to the host
// is there then.
typedef struct {
  void* to;
  const void* from;
  size_t n;
  char* kept;
  const void* stream;
} Copy;
static Copy copies[256];
static int waiting;
static void go_on(const void* s, int done) {
  int left = 0;
  for (int i = 0; i < waiting; i++) {
    Copy c = copies[i];
    if (c.stream == s && !c.kept) memcpy(c.to, c.from, c.n);
    if (c.stream == s && done) {
      if (c.kept) memcpy(c.to, c.kept, c.n);
      free(c.kept);
    } else copies[left++] = c;
  }
  waiting = left;
}
static void forget(const char* p, size_t n) {
  int left = 0;
  for (int i = 0; i < waiting; i++) {
    Copy c = copies[i];
    int gone = ((char*)c.to >= p && (char*)c.to < p + n) || ((char*)c.from >= p && (char*)c.from < p + n);
    if (gone) free(c.kept);
    else copies[left++] = c;
  }
  waiting = left;
}
static int freed(void* p, int host) {
  for (int i = 0; i < 1024; i++)
    if (p && blocks[i].base == p && blocks[i].host == host && blocks[i].device == current) {
      forget(blocks[i].base, blocks[i].bytes);
      if (!host) used -= blocks[i].bytes;
      free(p);
      blocks[i].base = 0;
      return OK;
    }
  return INVALID;
}

int NAME(cuInit, hipInit)(unsigned flags) { return getenv("FAKE_NO_DEVICE") ? NO_DEVICE : flags ? INVALID : OK; }
int NAME(cuDriverGetVersion, hipDriverGetVersion)(int* v) {
  *v = getenv("FAKE_OLD") ? 11040 : 13000;
  return OK;
}
int NAME(cuDeviceGetCount, hipGetDeviceCount)(int* n) {
  const char* count = getenv("FAKE_COUNT");
  *n = getenv("FAKE_EMPTY") ? 0 : count ? atoi(count) : 2;
  return OK;
}
int NAME(cuDeviceGetName, hipDeviceGetName)(char* s, int len, int d) {
  strncpy(s, d ? "Fake 1" : "Fake 0", len);
  return OK;
}
int NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t* n, int d) {
  *n = TOTAL + d;
  return OK;
}
#ifdef CUDA
int cuDeviceGet(int* d, int ordinal) {
  TRY;
  *d = ordinal;
  return OK;
}
int cuDeviceGetAttribute(int* v, int a, int d) {
  *v = a == 75 ? 9 : a == 76 ? 0 : a == 10 ? 32 : a == 97 ? 200000 : a == 115 ? !d : a == 18 ? d : 1000 + a;
  return OK;
}
int cuDevicePrimaryCtxRetain(void** c, int d) {
  *c = (void*)(uintptr_t)(0x1000 + d);
  return OK;
}
int cuCtxSetCurrent(void* c) {
  TRY;
  current = (int)((uintptr_t)c - 0x1000);
  return OK;
}
int cuGetErrorName(int e, const char** s) {
  *s = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
       : e == NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                          : "CUDA_ERROR_INVALID_VALUE";
  return e == ASKED_FOR ? INVALID : OK;
}
#else
int hipRuntimeGetVersion(int* v) {
  *v = 70253211;
  return OK;
}
int hipDeviceGetAttribute(int* v, int a, int d) {
  *v = a == 87 ? 64 : a == 88 ? d : a == 74 ? 65536 : a == 16 ? !d : 1000 + a;
  return OK;
}
int hipGetDeviceProperties(char* p, int d) {
  (void)d;
  strcpy(p + 396, "gfx906:old");
  return OK;
}
int hipGetDevicePropertiesR0600(char* p, int d) {
  strcpy(p + 1160, d ? "gfx1100" : "gfx90a:sramecc+:xnack-");
  return OK;
}
int hipSetDevice(int d) {
  TRY;
  current = d;
  return OK;
}
const char* hipGetErrorName(int e) {
  return e == OUT_OF_MEMORY ? "hipErrorOutOfMemory"
         : e == NO_DEVICE   ? "hipErrorNoDevice"
         : e == ASKED_FOR   ? 0
                            : "hipErrorInvalidValue";
}
#endif

static Handle*
    recorded;  // the stream that is being captured: its frees and waits are refused, its allocations a graph's
int NAME(cuMemAlloc_v2, hipMalloc)(void** p, size_t n) {
  TRY;
  return current < 0 ? INVALID : used + n > TOTAL ? OUT_OF_MEMORY : taken(p, n, 0);
}
int NAME(cuMemFree_v2, hipFree)(void* p) {
  TRY;
  return freed(p, 0);
}
int NAME(cuMemAllocAsync, hipMallocAsync)(void** p, size_t n, Handle* s) {
  TRY;
  if (!stream(s) || (s && s == recorded)) return INVALID;
  return used + n > TOTAL ? OUT_OF_MEMORY : taken(p, n, 0);
}
int NAME(cuMemFreeAsync, hipFreeAsync)(void* p, Handle* s) {
  TRY;
  return !stream(s) || (s && s == recorded) ? INVALID : freed(p, 0);
}
int NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t* f, size_t* t) {
  TRY;
  *t = TOTAL + current;
  *f = TOTAL - used;
  return OK;
}
int NAME(cuMemHostAlloc, hipHostMalloc)(void** p, size_t n, unsigned flags) {
  TRY;
  return flags == 1 ? taken(p, n, 1) : INVALID;
}
int NAME(cuMemFreeHost, hipHostFree)(void* p) {
  TRY;
  return freed(p, 1);
}
int NAME(cuMemsetD8Async, hipMemsetD8Async)(void* p, unsigned char v, size_t n, Handle* s) {
  TRY;
  if (!owned(p, n) || !stream(s)) return INVALID;
  go_on(s, 0);
  memset(p, v, n);
  return OK;
}
int NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void* d, const void* h, size_t n, Handle* s) {
  TRY;
  if (!owned(d, n) || !stream(s)) return INVALID;
  go_on(s, 0);
  memcpy(d, h, n);
  copies[waiting++] = (Copy){d, h, n, 0, s};
  return OK;
}
int NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* h, const void* d, size_t n, Handle* s) {
  TRY;
  if (!owned(d, n) || !stream(s)) return INVALID;
  go_on(s, 0);
  copies[waiting++] = (Copy){h, d, n, memcpy(malloc(n), d, n), s};
  return OK;
}
int NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void* d, const void* c, size_t n, Handle* s) {
  TRY;
  if (!owned(d, n) || !owned(c, n) || !stream(s)) return INVALID;
  go_on(s, 0);
  memmove(d, c, n);
  return OK;
}
int NAME(cuStreamCreate, hipStreamCreateWithFlags)(Handle** s, unsigned flags) {
  TRY;
  *s = made(STREAM, flags);
  return flags == 1 ? OK : INVALID;
}
int NAME(cuStreamDestroy_v2, hipStreamDestroy)(Handle* s) {
  TRY;
  if (!is(s, STREAM)) return INVALID;
  go_on(s, 1);
  s->kind = 0;
  return OK;
}
int NAME(cuStreamSynchronize, hipStreamSynchronize)(Handle* s) {
  TRY;
  if (!stream(s) || (s && s == recorded)) return INVALID;
  go_on(s, 1);
  return OK;
}
int NAME(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int* can, int a, int b) {
  TRY;
  *can = a != b && a == current && !getenv("FAKE_NO_PEER");
  return OK;
}
static int peers[2][2];
static int peer(int other) {
  return other == current || other < 0 || other > 1 ? INVALID : peers[current][other]++ ? 704 : OK;
}
static int copied(void* d, int to, const void* s, int from, size_t n, Handle* st) {
  Block *a = block_of(d, n), *b = block_of(s, n);
  if (!a || !b || a->device != to || b->device != from || from != current || !stream(st)) return INVALID;
  go_on(st, 0);
  memcpy(d, s, n);
  return OK;
}
#ifdef CUDA
int cuCtxEnablePeerAccess(void* c, unsigned f) {
  TRY;
  return f ? INVALID : peer((int)((uintptr_t)c - 0x1000));
}
int cuMemcpyPeerAsync(void* d, void* dc, const void* s, void* sc, size_t n, Handle* st) {
  TRY;
  return copied(d, (int)((uintptr_t)dc - 0x1000), s, (int)((uintptr_t)sc - 0x1000), n, st);
}
#else
int hipDeviceEnablePeerAccess(int p, unsigned f) {
  TRY;
  return f ? INVALID : peer(p);
}
int hipMemcpyPeerAsync(void* d, int dd, const void* s, int sd, size_t n, Handle* st) {
  TRY;
  return copied(d, dd, s, sd, n, st);
}
#endif
static int clock_;
int NAME(cuStreamWaitEvent, hipStreamWaitEvent)(Handle* s, Handle* e, unsigned f) {
  TRY;
  return is(s, STREAM) && e && e->kind == EVENT && !f ? OK : INVALID;
}
int NAME(cuEventCreate, hipEventCreateWithFlags)(Handle** e, unsigned flags) {
  TRY;
  *e = made(EVENT, flags);
  return flags == 0 || flags == 2 ? OK : INVALID;
}
int NAME(cuEventDestroy_v2, hipEventDestroy)(Handle* e) {
  TRY;
  if (!is(e, EVENT)) return INVALID;
  e->kind = 0;
  return OK;
}
int NAME(cuEventRecord, hipEventRecord)(Handle* e, Handle* s) {
  TRY;
  if (!is(e, EVENT) || !stream(s)) return INVALID;
  e->at = ++clock_;
  return OK;
}
static int polls;
int NAME(cuEventQuery, hipEventQuery)(Handle* e) {
  TRY;
  return !is(e, EVENT) ? INVALID : polls++ % 2 == 0 ? NOT_READY : OK;
}
int NAME(cuEventSynchronize, hipEventSynchronize)(Handle* e) {
  TRY;
  return is(e, EVENT) ? OK : INVALID;
}
int NAME(cuEventElapsedTime, hipEventElapsedTime)(float* ms, Handle* a, Handle* b) {
  TRY;
  if (!is(a, EVENT) || !is(b, EVENT) || a->flags || b->flags) return INVALID;
  *ms = (b->at - a->at) * 0.5f;
  return OK;
}

// Modules are the text "fake"; kernels: axpy(float *out, float *x, float a, u32 n), none(), and tell(u32 *out), which
// writes down how it was launched.
static int loaded(void** m, const char* image) {
  *m = (void*)(uintptr_t)(0x77 + current);
  return strncmp(image, "fake", 4) ? INVALID : OK;
}
#ifdef CUDA
int cuModuleLoadDataEx(void** m, const char* image, unsigned n, const int* keys, void** values) {
  TRY;
  if (n != 2 || keys[0] != 5 || keys[1] != 6 || (size_t)values[1] < 64) return INVALID;
  if (loaded(m, image)) {
    strcpy(values[0], "ptxas says no");
    return INVALID;
  }
  return OK;
}
#else
int hipModuleLoadData(void** m, const char* image) {
  TRY;
  return loaded(m, image);
}
#endif
static const char* KERNELS[] = {"axpy", "none", "tell"};
static int kernels[2][3];
int NAME(cuModuleGetFunction, hipModuleGetFunction)(int** f, void* m, const char* name) {
  TRY;
  if (m != (void*)(uintptr_t)(0x77 + current)) return INVALID;
  for (int i = 0; i < 3; i++)
    if (!strcmp(name, KERNELS[i])) {
      *f = &kernels[current][i];
      return OK;
    }
  return NOT_FOUND;
}
static int kernel_of(const int* f) { return (int)(f - kernels[current]); }
#ifdef CUDA
int cuFuncSetAttribute(int* f, int a, int v) {
  TRY;
  return kernel_of(f) >= 0 && kernel_of(f) < 3 && a == 8 && v <= 200000 ? OK : INVALID;
}
#endif

typedef struct {
  const int* f;
  unsigned shape[8];
  char args[64];
  size_t size;
} Launch;
typedef struct {
  int n;
  Launch list[64];
} Graph;
static Graph* capturing;
static int run(const Launch* l) {
  struct {
    float *out, *x;
    float a;
    uint32_t n;
  } p;
  memcpy(&p, l->args, 24);
  switch (kernel_of(l->f)) {
    case 0:
      if (l->size != 24 || !owned(p.out, p.n * 4) || !owned(p.x, p.n * 4)) return INVALID;
      for (uint32_t i = 0; i < l->shape[0] * l->shape[3] && i < p.n; i++) p.out[i] += p.a * p.x[i];
      return OK;
    case 1: return l->size == 0 ? OK : INVALID;
    case 2:
      if (l->size != 8 || !owned(p.out, 32)) return INVALID;
      memcpy(p.out, l->shape, 32);
      return OK;
  }
  return INVALID;
}
static int launched(const int* f, const unsigned* shape, Handle* s, void** params, void** extra) {
  for (int i = 0; i < 6; i++)
    if (!shape[i]) return INVALID;
  if (params || shape[6] > 200000 || !is(s, STREAM)) return INVALID;
  Launch l = {f, {0}, {0}, 0};
  memcpy(l.shape, shape, 32);
  if (extra) {
    if (extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)END) return INVALID;
    l.size = *(size_t*)extra[3];
    memcpy(l.args, extra[1], l.size < 64 ? l.size : 64);
  }
  go_on(s, 0);
  if (capturing && s == recorded) {
    capturing->list[capturing->n++] = l;
    return OK;
  }
  return run(&l);
}
int NAME(cuLaunchKernel, hipModuleLaunchKernel)(int* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                                unsigned bz, unsigned shared, Handle* s, void** params, void** extra) {
  TRY;
  return launched(f, (unsigned[8]){gx, gy, gz, bx, by, bz, shared, 0}, s, params, extra);
}
#ifdef CUDA
typedef struct {
  unsigned gx, gy, gz, bx, by, bz, shared;
  Handle* s;
  const struct {
    int id;
    char pad[4];
    int value;
  } * attrs;
  unsigned count;
} Config;
int cuLaunchKernelEx(const Config* c, int* f, void** params, void** extra) {
  TRY;
  if (c->count > 1 || (c->count == 1 && (c->attrs->id != 6 || c->attrs->value != 1))) return INVALID;
  return launched(f, (unsigned[8]){c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->count}, c->s, params, extra);
}
#endif
int NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(Handle* s, int mode) {
  TRY;
  if (!is(s, STREAM) || mode != 2) return INVALID;
  capturing = calloc(1, sizeof(Graph));
  recorded = s;
  return OK;
}
int NAME(cuStreamEndCapture, hipStreamEndCapture)(Handle* s, Graph** g) {
  TRY;
  *g = s && s == recorded ? capturing : 0;
  capturing = 0;
  recorded = 0;
  return *g ? OK : INVALID;
}
int NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(Graph** e, const Graph* g,
                                                                    unsigned long long flags) {
  TRY;
  *e = malloc(sizeof *g);
  **e = *g;
  return flags ? INVALID : OK;
}
int NAME(cuGraphLaunch, hipGraphLaunch)(const Graph* e, Handle* s) {
  TRY;
  if (!is(s, STREAM)) return INVALID;
  for (int i = 0; i < e->n; i++)
    if (run(&e->list[i])) return INVALID;
  return OK;
}
int NAME(cuGraphDestroy, hipGraphDestroy)(Graph* g) {
  TRY;
  free(g);
  return OK;
}
int NAME(cuGraphExecDestroy, hipGraphExecDestroy)(Graph* g) {
  TRY;
  free(g);
  return OK;
}
