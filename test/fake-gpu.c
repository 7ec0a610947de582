// A GPU driver in host memory, with CUDA's or HIP's names: it lets the driver tests make every call for real where there is no GPU.
// Built twice by driver-fake.test.ts, with -DCUDA as libcuda.so.1 and without as libamdhip64.so.7.
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
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, NOT_READY = 600 };

typedef struct { void *base; size_t bytes; } Block;
static Block blocks[1024];
static size_t used;
static int current = -1;

static int owned(uint64_t p, size_t n) {
  for (int i = 0; i < 1024; i++)
    if (blocks[i].base && p >= (uint64_t)blocks[i].base && p + n <= (uint64_t)blocks[i].base + blocks[i].bytes) return 1;
  return 0;
}
int NAME(cuInit, hipInit)(unsigned flags) { return getenv("FAKE_NO_DEVICE") ? NO_DEVICE : flags ? INVALID : OK; }
int NAME(cuDriverGetVersion, hipDriverGetVersion)(int *v) { *v = getenv("FAKE_OLD") ? 11040 : 13000; return OK; }
int NAME(cuDeviceGetCount, hipGetDeviceCount)(int *n) { const char *count = getenv("FAKE_COUNT"); *n = getenv("FAKE_EMPTY") ? 0 : count ? atoi(count) : 2; return OK; }
int NAME(cuDeviceGetName, hipDeviceGetName)(char *s, int len, int d) { strncpy(s, d ? "Fake 1" : "Fake 0", len); return OK; }
int NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *n, int d) { (void)d; *n = TOTAL; return OK; }
#ifdef CUDA
int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return OK; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  (void)d;
  *v = a == 75 ? 9 : a == 76 ? 0 : a == 10 ? 32 : a == 97 ? 200000 : a == 115 ? 1 : a == 18 ? 0 : 1000 + a;
  return OK;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(uintptr_t)(0x1000 + d); return OK; }
int cuCtxSetCurrent(void *c) { current = (int)((uintptr_t)c - 0x1000); return OK; }
int cuGetErrorName(int e, const char **s) {
  *s = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
  return OK;
}
int cuFuncSetAttribute(void *f, int a, int v) { return f && a == 8 && v <= 200000 ? OK : INVALID; }
#else
int hipRuntimeGetVersion(int *v) { *v = 70253211; return OK; }
int hipDeviceGetAttribute(int *v, int a, int d) { (void)d; *v = a == 87 ? 64 : a == 88 ? 0 : a == 74 ? 65536 : a == 16 ? 0 : 1000 + a; return OK; }
int hipGetDeviceProperties(char *p, int d) { (void)d; strcpy(p + 396, "gfx906:old"); return OK; }
int hipGetDevicePropertiesR0600(char *p, int d) { strcpy(p + 1160, d ? "gfx1100" : "gfx90a:sramecc+:xnack-"); return OK; }
int hipSetDevice(int d) { current = d; return OK; }
const char *hipGetErrorName(int e) { return e == OUT_OF_MEMORY ? "hipErrorOutOfMemory" : e == NO_DEVICE ? "hipErrorNoDevice" : "hipErrorInvalidValue"; }
#endif

int NAME(cuMemAlloc_v2, hipMalloc)(void **p, size_t n) {
  if (current < 0) return INVALID;
  if (used + n > TOTAL) return OUT_OF_MEMORY;
  for (int i = 0; i < 1024; i++)
    if (!blocks[i].base) {
      blocks[i].base = *p = aligned_alloc(256, (n + 255) & ~255ull);
      blocks[i].bytes = n;
      used += n;
      return OK;
    }
  return OUT_OF_MEMORY;
}
int NAME(cuMemFree_v2, hipFree)(void *p) {
  for (int i = 0; i < 1024; i++)
    if (p && blocks[i].base == p) { used -= blocks[i].bytes; free(p); blocks[i].base = 0; return OK; }
  return INVALID;
}
static void *recorded;  // the stream that is being captured: its frees and waits are refused, its allocations a graph's
int NAME(cuMemAllocAsync, hipMallocAsync)(void **p, size_t n, void *s) { if (s && s == recorded) return INVALID; return NAME(cuMemAlloc_v2, hipMalloc)(p, n); }
int NAME(cuMemFreeAsync, hipFreeAsync)(void *p, void *s) { if (s && s == recorded) return INVALID; return NAME(cuMemFree_v2, hipFree)(p); }
int NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t *f, size_t *t) { *t = TOTAL; *f = TOTAL - used; return OK; }
int NAME(cuMemHostAlloc, hipHostMalloc)(void **p, size_t n, unsigned flags) { *p = malloc(n); return flags == 1 ? OK : INVALID; }
int NAME(cuMemFreeHost, hipHostFree)(void *p) { free(p); return OK; }
int NAME(cuMemsetD8Async, hipMemsetD8Async)(void *p, unsigned char v, size_t n, void *s) { (void)s; if (!owned((uint64_t)p, n)) return INVALID; memset(p, v, n); return OK; }
int NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void *d, const void *h, size_t n, void *s) { (void)s; if (!owned((uint64_t)d, n)) return INVALID; memcpy(d, h, n); return OK; }
int NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *h, const void *d, size_t n, void *s) { (void)s; if (!owned((uint64_t)d, n)) return INVALID; memcpy(h, d, n); return OK; }
int NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void *d, const void *c, size_t n, void *s) { (void)s; if (!owned((uint64_t)d, n) || !owned((uint64_t)c, n)) return INVALID; memmove(d, c, n); return OK; }
int NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **s, unsigned flags) { *s = malloc(8); return flags == 1 ? OK : INVALID; }
int NAME(cuStreamDestroy_v2, hipStreamDestroy)(void *s) { free(s); return OK; }
int NAME(cuStreamSynchronize, hipStreamSynchronize)(void *s) { return s && s == recorded ? INVALID : OK; }
int NAME(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int *can, int a, int b) { *can = a != b; return OK; }
#ifdef CUDA
static int peers = 0;
int cuCtxEnablePeerAccess(void *c, unsigned f) { (void)f; if (!c) return 1; return peers++ ? 704 : OK; }
int cuMemcpyPeerAsync(void *d, void *dc, const void *s, void *sc, size_t n, void *st) { (void)st; if (!dc || !sc) return 1; memcpy(d, s, n); return OK; }
#else
static int peers = 0;
int hipDeviceEnablePeerAccess(int p, unsigned f) { (void)p; (void)f; return peers++ ? 704 : OK; }
int hipMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, void *st) { (void)st; if (dd == sd) return 1; memcpy(d, s, n); return OK; }
#endif
int NAME(cuStreamWaitEvent, hipStreamWaitEvent)(void *s, void *e, unsigned f) { (void)s; (void)e; (void)f; return OK; }
typedef struct { unsigned flags; int at; } Event;
static int clock_;
int NAME(cuEventCreate, hipEventCreateWithFlags)(Event **e, unsigned flags) { *e = calloc(1, sizeof(Event)); (*e)->flags = flags; return OK; }
int NAME(cuEventDestroy_v2, hipEventDestroy)(Event *e) { free(e); return OK; }
int NAME(cuEventRecord, hipEventRecord)(Event *e, void *s) { (void)s; e->at = ++clock_; return OK; }
static int polls;
int NAME(cuEventQuery, hipEventQuery)(Event *e) { return !e ? INVALID : polls++ % 2 == 0 ? NOT_READY : OK; }
int NAME(cuEventSynchronize, hipEventSynchronize)(Event *e) { return e ? OK : INVALID; }
int NAME(cuEventElapsedTime, hipEventElapsedTime)(float *ms, Event *a, Event *b) { if (a->flags || b->flags) return INVALID; *ms = (b->at - a->at) * 0.5f; return OK; }

// Modules are the text "fake"; kernels: axpy(float *out, float *x, float a, u32 n) and none().
#ifdef CUDA
int cuModuleLoadDataEx(void **m, const char *image, unsigned n, const int *keys, void **values) {
  if (n != 2 || keys[0] != 5 || keys[1] != 6) return INVALID;
  if (strncmp(image, "fake", 4)) { strcpy(values[0], "ptxas says no"); return INVALID; }
  *m = (void *)0x77;
  return OK;
}
#else
int hipModuleLoadData(void **m, const char *image) { *m = (void *)0x77; return strncmp(image, "fake", 4) ? INVALID : OK; }
#endif
static int axpy, none;
int NAME(cuModuleGetFunction, hipModuleGetFunction)(void **f, void *m, const char *name) {
  if (m != (void *)0x77) return INVALID;
  *f = !strcmp(name, "axpy") ? &axpy : !strcmp(name, "none") ? &none : 0;
  return *f ? OK : NOT_FOUND;
}

typedef struct { void *f; unsigned grid, block; char args[64]; size_t size; } Launch;
typedef struct { int n; Launch list[64]; } Graph;
static Graph *capturing;
static int run(const Launch *l) {
  if (l->f == &none) return l->size == 0 ? OK : INVALID;
  struct { float *out, *x; float a; uint32_t n; } p;
  if (l->size != 24) return INVALID;
  memcpy(&p, l->args, 24);
  if (!owned((uint64_t)p.out, p.n * 4) || !owned((uint64_t)p.x, p.n * 4)) return INVALID;
  for (uint32_t i = 0; i < l->grid * l->block && i < p.n; i++) p.out[i] += p.a * p.x[i];
  return OK;
}
int NAME(cuLaunchKernel, hipModuleLaunchKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra) {
  if (!gx || gy != 1 || gz != 1 || by != 1 || bz != 1 || params || shared > 200000 || !s) return INVALID;
  Launch l = {f, gx, bx, {0}, 0};
  if (extra) {
    if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)END) return INVALID;
    l.size = *(size_t *)extra[3];
    memcpy(l.args, extra[1], l.size < 64 ? l.size : 64);
  }
  if (capturing) { capturing->list[capturing->n++] = l; return OK; }
  return run(&l);
}
#ifdef CUDA
typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; void *s; const struct { int id; char pad[4]; int value; } *attrs; unsigned count; } Config;
int cuLaunchKernelEx(const Config *c, void *f, void **params, void **extra) {
  if (c->count > 1 || (c->count == 1 && (c->attrs->id != 6 || c->attrs->value != 1))) return INVALID;
  return cuLaunchKernel(f, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->s, params, extra);
}
#endif
int NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *s, int mode) { capturing = calloc(1, sizeof(Graph)); recorded = s; return s && mode == 2 ? OK : INVALID; }
int NAME(cuStreamEndCapture, hipStreamEndCapture)(void *s, Graph **g) { *g = s == recorded ? capturing : 0; capturing = 0; recorded = 0; return *g ? OK : INVALID; }
int NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(Graph **e, const Graph *g, unsigned long long flags) { *e = malloc(sizeof *g); **e = *g; return flags ? INVALID : OK; }
int NAME(cuGraphLaunch, hipGraphLaunch)(const Graph *e, void *s) { (void)s; for (int i = 0; i < e->n; i++) if (run(&e->list[i])) return INVALID; return OK; }
int NAME(cuGraphDestroy, hipGraphDestroy)(Graph *g) { free(g); return OK; }
int NAME(cuGraphExecDestroy, hipGraphExecDestroy)(Graph *g) { free(g); return OK; }
