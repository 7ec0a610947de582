// Matrix products (with cuBLASLt's, hipBLASLt's or rocBLAS's names) and convolutions (cuDNN's, MIOpen's) as plain loops
// over f32 in host memory. Built by driver-libraries.test.ts beside fake-gpu.c: -DCUDA, -DHIP, -DROCBLAS, -DCUDNN,
// -DMIOPEN or -DNCCL.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(CUDA) || defined(HIP)
#ifdef CUDA
#define N(x) cublasLt##x
enum {
  BATCH = 5,
  STRIDE = 6,
  TRANS_A = 3,
  TRANS_B = 4,
  EPILOGUE = 7,
  BIAS = 8,
  ALIGN = 5,
  OP_N = 0,
  OP_T = 1,
  F32 = 68,
  NOT_SUPPORTED = 15,
  ALGO = 64
};
size_t cublasLtGetVersion(void) { return 130101; }
const char* cublasLtGetStatusName(int s) {
  return s == 15 ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}
#else
#define N(x) hipblasLt##x
enum {
  BATCH = 0,
  STRIDE = 1,
  TRANS_A = 0,
  TRANS_B = 1,
  EPILOGUE = 2,
  BIAS = 3,
  ALIGN = 5,
  OP_N = 111,
  OP_T = 112,
  F32 = 2,
  NOT_SUPPORTED = 7,
  ALGO = 24
};
int hipblasLtGetVersion(void* h, int* v) {
  (void)h;
  *v = 100202;
  return 0;
}
#endif
enum { INVALID = 7 };
typedef struct {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int batch;
  int64_t stride;
} Layout;
typedef struct {
  int compute, scale, ta, tb, epilogue;
  const float* bias;
} Desc;
typedef struct {
  uint64_t workspace;
  uint32_t align;
} Pref;
int N(Create)(void** h) {
  *h = malloc(1);
  return 0;
}
int N(Destroy)(void* h) {
  free(h);
  return 0;
}
int N(MatrixLayoutCreate)(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  *l = calloc(1, sizeof(Layout));
  **l = (Layout){type, rows, cols, ld, 1, 0};
  return ld < (int64_t)rows ? INVALID : 0;
}
int N(MatrixLayoutSetAttribute)(Layout* l, int a, const void* v, size_t n) {
  if (a == BATCH && n == 4) l->batch = *(const int*)v;
  else if (a == STRIDE && n == 8) l->stride = *(const int64_t*)v;
  else return INVALID;
  return 0;
}
int N(MatrixLayoutDestroy)(Layout* l) {
  free(l);
  return 0;
}
int N(MatmulDescCreate)(Desc** d, int compute, int scale) {
  *d = calloc(1, sizeof(Desc));
  **d = (Desc){compute, scale, OP_N, OP_N, 1, 0};
  return 0;
}
int N(MatmulDescSetAttribute)(Desc* d, int a, const void* v, size_t n) {
  if (a == TRANS_A && n == 4) d->ta = *(const int*)v;
  else if (a == TRANS_B && n == 4) d->tb = *(const int*)v;
  else if (a == EPILOGUE && n == 4) d->epilogue = *(const int*)v;
  else if (a == BIAS && n == 8) d->bias = *(const float* const*)v;
  else return INVALID;
  return 0;
}
int N(MatmulDescDestroy)(Desc* d) {
  free(d);
  return 0;
}
int N(MatmulPreferenceCreate)(Pref** p) {
  *p = calloc(1, sizeof(Pref));
  (*p)->align = 1;
  return 0;
}
int N(MatmulPreferenceSetAttribute)(Pref* p, int a, const void* v, size_t n) {
  if (a == 1 && n == 8) p->workspace = *(const uint64_t*)v;
  else if (a >= ALIGN && a < ALIGN + 4 && n == 4) p->align = *(const uint32_t*)v;
  else return INVALID;
  return 0;
}
int N(MatmulPreferenceDestroy)(Pref* p) {
  free(p);
  return 0;
}
int N(MatmulAlgoGetHeuristic)(void* h, Desc* d, Layout* a, Layout* b, Layout* c, Layout* e, Pref* p, int wanted,
                              char* result, int* found) {
  (void)h;
  (void)a;
  (void)b;
  if (wanted != 1 || c != e) return INVALID;
  *found = 0;
  if (d->compute != F32 || d->scale != 0) return NOT_SUPPORTED;  // f32 is all it has
  memcpy(result, "ALGO", 4);
  memcpy(result + 4, &p->align, 4);
  uint64_t workspace = p->workspace / 2;
  memcpy(result + ALGO, &workspace, 8);
  *found = 1;
  return 0;
}
int N(Matmul)(void* h, Desc* d, const float* alpha, const float* A, Layout* la, const float* B, Layout* lb,
              const float* beta, const float* C, Layout* lc, float* D, Layout* ld, const char* algo, void* workspace,
              size_t bytes, void* stream) {
  (void)h;
  uint32_t align;
  memcpy(&align, algo + 4, 4);
  if (memcmp(algo, "ALGO", 4) || !workspace || bytes < (16 << 20) || C != D || lc != ld || !stream) return INVALID;
  if (((uintptr_t)A | (uintptr_t)B | (uintptr_t)D) % align)
    return INVALID;  // an algorithm must not get less than it was chosen for
  if ((d->epilogue == 4) != (d->bias != 0)) return INVALID;
  int ta = d->ta == OP_T, tb = d->tb == OP_T;
  uint64_t m = ld->rows, n = ld->cols, k = ta ? la->rows : la->cols;
  if ((ta ? la->cols : la->rows) != m || (tb ? lb->rows : lb->cols) != n || (tb ? lb->cols : lb->rows) != k)
    return INVALID;
  for (int z = 0; z < ld->batch; z++)
    for (uint64_t i = 0; i < m; i++)
      for (uint64_t j = 0; j < n; j++) {
        const float *a = A + z * la->stride, *b = B + z * lb->stride;
        float *out = D + z * ld->stride + j * ld->ld + i, sum = 0;
        for (uint64_t x = 0; x < k; x++)
          sum += (ta ? a[i * la->ld + x] : a[x * la->ld + i]) * (tb ? b[x * lb->ld + j] : b[j * lb->ld + x]);
        *out = *alpha * sum + (*beta ? *beta * *out : 0) + (d->bias ? d->bias[i] : 0);
      }
  return 0;
}
#endif

#ifdef ROCBLAS
enum { INVALID = 11 };
static int atomics = 1;
int rocblas_create_handle(void** h) {
  *h = malloc(1);
  return 0;
}
int rocblas_destroy_handle(void* h) {
  free(h);
  return 0;
}
int rocblas_set_stream(void* h, void* s) { return h && s ? 0 : INVALID; }
int rocblas_set_atomics_mode(void* h, int mode) {
  atomics = mode;
  return h ? 0 : INVALID;
}
const char* rocblas_status_to_string(int s) {
  return s == 2 ? "rocblas_status_not_implemented" : "rocblas_status_invalid_value";
}
int rocblas_get_version_string(char* s, size_t n) {
  strncpy(s, "5.2.0.fake", n);
  return 0;
}
int rocblas_gemm_strided_batched_ex(void* h, int ta, int tb, int m, int n, int k, const float* alpha, const float* A,
                                    int at, int lda, int64_t sa, const float* B, int bt, int ldb, int64_t sb,
                                    const float* beta, const float* C, int ct, int ldc, int64_t sc, float* D, int dt,
                                    int ldd, int64_t sd, int batch, int compute, int algo, int32_t solution,
                                    uint32_t flags) {
  if (!h || atomics || at != 151 || bt != 151 || ct != 151 || dt != 151 || compute != 151 || C != D || ldc != ldd ||
      sc != sd || algo || solution || flags)
    return INVALID;
  for (int z = 0; z < batch; z++)
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++) {
        const float *a = A + z * sa, *b = B + z * sb;
        float *out = D + z * sd + (int64_t)j * ldd + i, sum = 0;
        for (int x = 0; x < k; x++)
          sum += (ta == 112 ? a[i * lda + x] : a[x * lda + i]) * (tb == 112 ? b[x * ldb + j] : b[j * ldb + x]);
        *out = *alpha * sum + *beta * *out;
      }
  return 0;
}
#endif

#if defined(CUDNN) || defined(MIOPEN)
enum { BAD = 2000, UNSUPPORTED = 3000 };
typedef struct {
  int type, d[4];
} Tensor;
typedef struct {
  int pad[2], stride[2], dilation[2], groups, math;
} Conv;
// kind 0: y from x, w; 1: x from w, y; 2: w from x, y
static int conv(int kind, const float* alpha, float* px, Tensor* x, float* pw, Tensor* w, float* py, Tensor* y, Conv* c,
                int algo, void* workspace, size_t n, const float* beta) {
  if (*alpha != 1 || *beta != 0 || !workspace || n != (size_t)algo * 4096) return BAD;
  float* out = kind == 0 ? py : kind == 1 ? px : pw;
  Tensor* t = kind == 0 ? y : kind == 1 ? x : w;
  memset(out, 0, sizeof(float) * t->d[0] * t->d[1] * t->d[2] * t->d[3]);
  for (int b = 0; b < y->d[0]; b++)
    for (int o = 0; o < y->d[1]; o++)
      for (int q = 0; q < w->d[1]; q++)
        for (int i = 0; i < y->d[2]; i++)
          for (int j = 0; j < y->d[3]; j++)
            for (int u = 0; u < w->d[2]; u++)
              for (int v = 0; v < w->d[3]; v++) {
                int ci = o / (w->d[0] / c->groups) * w->d[1] + q;
                int yy = i * c->stride[0] + u * c->dilation[0] - c->pad[0],
                    xx = j * c->stride[1] + v * c->dilation[1] - c->pad[1];
                if (yy < 0 || yy >= x->d[2] || xx < 0 || xx >= x->d[3]) continue;
                float* ey = py + ((b * y->d[1] + o) * y->d[2] + i) * y->d[3] + j;
                float* ex = px + ((b * x->d[1] + ci) * x->d[2] + yy) * x->d[3] + xx;
                float* ew = pw + ((o * w->d[1] + q) * w->d[2] + u) * w->d[3] + v;
                if (kind == 0) *ey += *ex * *ew;
                else if (kind == 1) *ex += *ey * *ew;
                else *ew += *ex * *ey;
              }
  return 0;
}
#endif

#ifdef CUDNN
typedef struct {
  int algo, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} Perf;
size_t cudnnGetVersion(void) { return 92400; }
const char* cudnnGetErrorString(int s) {
  return s == UNSUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : s ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_SUCCESS";
}
int cudnnCreate(void** h) {
  *h = malloc(1);
  return 0;
}
int cudnnDestroy(void* h) {
  free(h);
  return 0;
}
int cudnnSetStream(void* h, void* s) { return h && s ? 0 : BAD; }
int cudnnCreateTensorDescriptor(Tensor** t) {
  *t = calloc(1, sizeof(Tensor));
  return 0;
}
int cudnnSetTensor4dDescriptor(Tensor* t, int format, int type, int n, int c, int h, int w) {
  *t = (Tensor){type, {n, c, h, w}};
  return format ? BAD : 0;
}
int cudnnDestroyTensorDescriptor(Tensor* t) {
  free(t);
  return 0;
}
int cudnnCreateFilterDescriptor(Tensor** t) {
  *t = calloc(1, sizeof(Tensor));
  return 0;
}
int cudnnSetFilter4dDescriptor(Tensor* t, int type, int format, int k, int c, int h, int w) {
  *t = (Tensor){type, {k, c, h, w}};
  return format ? BAD : 0;
}
int cudnnDestroyFilterDescriptor(Tensor* t) {
  free(t);
  return 0;
}
int cudnnCreateConvolutionDescriptor(Conv** c) {
  *c = calloc(1, sizeof(Conv));
  return 0;
}
int cudnnSetConvolution2dDescriptor(Conv* c, int ph, int pw, int sh, int sw, int dh, int dw, int mode, int type) {
  *c = (Conv){{ph, pw}, {sh, sw}, {dh, dw}, 1, 0};
  return mode == 1 && type == 0 ? 0 : BAD;
}
int cudnnSetConvolutionGroupCount(Conv* c, int g) {
  c->groups = g;
  return 0;
}
int cudnnSetConvolutionMathType(Conv* c, int m) {
  c->math = m;
  return 0;
}
int cudnnDestroyConvolutionDescriptor(Conv* c) {
  free(c);
  return 0;
}
static int guess(Tensor* t, Conv* c, int wanted, int* found, Perf* p, int best) {
  if (wanted < 2) return BAD;
  if (t->type) return UNSUPPORTED;  // f32 is all it has
  p[0] = (Perf){9, UNSUPPORTED, -1, 0, 0, c->math, {0}};
  p[1] = (Perf){best, 0, 1.5f, 4096, 1, c->math, {0}};
  *found = 2;
  return 0;
}
static int bytes(Conv* c, int algo, size_t* n) {
  *n = algo * 4096;
  return c->math == 3 ? 0 : BAD;
}
#define KIND(name, number, T1, p1, T2, p2, T3, p3)                                                                 \
  int cudnnGetConvolution##name##Algorithm_v7(void* h, Tensor* T1, Tensor* T2, Conv* c, Tensor* T3, int n, int* f, \
                                              Perf* p) {                                                           \
    (void)h;                                                                                                       \
    (void)T2;                                                                                                      \
    (void)T3;                                                                                                      \
    return guess(T1, c, n, f, p, 1);                                                                               \
  }                                                                                                                \
  int cudnnGetConvolution##name##WorkspaceSize(void* h, Tensor* T1, Tensor* T2, Conv* c, Tensor* T3, int algo,     \
                                               size_t* n) {                                                        \
    (void)h;                                                                                                       \
    (void)T1;                                                                                                      \
    (void)T2;                                                                                                      \
    (void)T3;                                                                                                      \
    return bytes(c, algo, n);                                                                                      \
  }                                                                                                                \
  int cudnnFindConvolution##name##AlgorithmEx(void* h, Tensor* T1, float* p1, Tensor* T2, float* p2, Conv* c,      \
                                              Tensor* T3, float* p3, int n, int* f, Perf* p, void* ws, size_t b) { \
    (void)h;                                                                                                       \
    (void)T2;                                                                                                      \
    (void)T3;                                                                                                      \
    return p1 && p2 && p3 && ws && b >= 4096 ? guess(T1, c, n, f, p, 2) : BAD;                                     \
  }                                                                                                                \
  int cudnnConvolution##name(void* h, const float* alpha, Tensor* T1, float* p1, Tensor* T2, float* p2, Conv* c,   \
                             int algo, void* ws, size_t n, const float* beta, Tensor* T3, float* p3) {             \
    (void)h;                                                                                                       \
    return conv(number, alpha, px, x, pw, w, py, y, c, algo, ws, n, beta);                                         \
  }
KIND(Forward, 0, x, px, w, pw, y, py)
KIND(BackwardData, 1, w, pw, y, py, x, px)
KIND(BackwardFilter, 2, x, px, y, py, w, pw)

// The graph interface: descriptors are bags of attributes. It reads f32 whatever the dtype is called, and has no engine
// for bf16. Of four configurations the first is refused for its notes, the second when its plan is finalized, and the
// third and fourth run.
typedef struct {
  int name, type;
  int64_t count;
  int64_t value[4];
} Attribute;
typedef struct {
  int type, finalized, index, set;
  void* graph;
  Attribute a[16];
} Node;
static Attribute* find(Node* d, int name) {
  for (int i = 0; i < d->set; i++)
    if (d->a[i].name == name) return d->a + i;
  return 0;
}
static Node* link(Node* d, int name) {
  Attribute* a = find(d, name);
  return a ? (Node*)a->value[0] : 0;
}
int cudnnBackendCreateDescriptor(int type, Node** d) {
  *d = calloc(1, sizeof(Node));
  (*d)->type = type;
  return 0;
}
int cudnnBackendDestroyDescriptor(Node* d) {
  free(d);
  return 0;
}
int cudnnBackendSetAttribute(Node* d, int name, int type, int64_t count, const void* v) {
  if (d->finalized || count > 4 || d->set == 16) return BAD;
  int wide = type == 0 || type == 3 || type == 6 || type == 15;
  Attribute* a = d->a + d->set++;
  *a = (Attribute){name, type, count, {0}};
  memcpy(a->value, v, count * (wide ? 8 : 4));
  return 0;
}
static Node* operation(Node* graph) { return link(graph, 801); }
int cudnnBackendFinalize(Node* d) {
  if (d->type == 4) {
    Node *op = operation(link(d, 201)), *x = link(op, op->type == 10 ? 704 : op->type == 12 ? 710 : 716);
    if (find(d, 200)->value[0] != 3) return BAD;
    if (find(x, 901)->value[0] == 9) return UNSUPPORTED;
  }
  if (d->type == 5 && link(d, 401)->index == 2) return UNSUPPORTED;
  d->finalized = 1;
  return 0;
}
int cudnnBackendGetAttribute(Node* d, int name, int type, int64_t wanted, int64_t* found, void* v) {
  (void)type;
  Node** nodes = v;
  if (d->type == 4 && name == 202 && d->finalized) {
    for (int i = 0; i < 4 && i < wanted; i++) nodes[i]->index = i + 1, nodes[i]->graph = link(d, 201);
    *found = 4;
  } else if (d->type == 3 && name == 300) nodes[0]->index = d->index, *found = 1;
  else if (d->type == 2 && name == 1303) *(int*)v = d->index == 1 ? 4 : 0, *found = 1;
  else if (d->type == 5 && name == 402) *(int64_t*)v = link(d, 401)->index * 4096, *found = 1;
  else return BAD;
  return 0;
}
static Tensor tensor_of(Node* t) {
  int64_t *d = find(t, 902)->value, *s = find(t, 903)->value;
  Tensor r = {0, {(int)d[0], (int)d[1], (int)d[2], (int)d[3]}};
  return s[3] == 1 && s[2] == d[3] && s[1] == d[2] * d[3] && s[0] == d[1] * s[1] && find(t, 900)->value[0] == 16
             ? r
             : (Tensor){0};
}
int cudnnBackendExecute(void* handle, Node* plan, Node* pack) {
  Node *config = link(plan, 401), *op = operation(config->graph);
  int kind = op->type == 10 ? 0 : op->type == 12 ? 1 : 2, alpha = kind == 0 ? 700 : kind == 1 ? 706 : 712;
  int names[3][3] = {{704, 703, 705}, {710, 709, 711}, {716, 715, 717}};
  int64_t *ids = find(pack, 1000)->value, *pointers = find(pack, 1001)->value;
  if (!handle || !plan->finalized || !pack->finalized || ids[0] != 1 || ids[1] != 2 || ids[2] != 3) return BAD;
  Node* c = link(op, alpha + 2);
  Tensor x = tensor_of(link(op, names[kind][0])), w = tensor_of(link(op, names[kind][1])),
         y = tensor_of(link(op, names[kind][2]));
#define TWO(name) {(int)find(c, name)->value[0], (int)find(c, name)->value[1]}
  Conv conv_ = {TWO(105), TWO(103), TWO(102), x.d[1] / w.d[1], 0};
  return conv(kind, (float*)find(op, alpha)->value, (float*)pointers[0], &x, (float*)pointers[1], &w,
              (float*)pointers[2], &y, &conv_, config->index, (void*)find(pack, 1003)->value[0], config->index * 4096,
              (float*)find(op, alpha + 1)->value);
}
#endif

#ifdef MIOPEN
typedef struct {
  float time;
  size_t workspace;
  uint64_t id;
  int algorithm;
} Solution;
int miopenCreate(void** h) {
  *h = malloc(1);
  return 0;
}
int miopenDestroy(void* h) {
  free(h);
  return 0;
}
int miopenGetVersion(size_t* a, size_t* b, size_t* c) {
  *a = 3;
  *b = 5;
  *c = 1;
  return 0;
}
const char* miopenGetErrorString(int s) {
  return s == 7 ? "miopenStatusUnsupportedOp" : s ? "miopenStatusBadParm" : "miopenStatusSuccess";
}
int miopenSetStream(void* h, void* s) { return h && s ? 0 : BAD; }
int miopenCreateTensorDescriptor(Tensor** t) {
  *t = calloc(1, sizeof(Tensor));
  return 0;
}
int miopenSet4dTensorDescriptor(Tensor* t, int type, int n, int c, int h, int w) {
  *t = (Tensor){type, {n, c, h, w}};
  return 0;
}
int miopenDestroyTensorDescriptor(Tensor* t) {
  free(t);
  return 0;
}
int miopenCreateConvolutionDescriptor(Conv** c) {
  *c = calloc(1, sizeof(Conv));
  return 0;
}
int miopenInitConvolutionDescriptor(Conv* c, int mode, int ph, int pw, int sh, int sw, int dh, int dw) {
  *c = (Conv){{ph, pw}, {sh, sw}, {dh, dw}, 1, 0};
  return mode ? BAD : 0;
}
int miopenSetConvolutionGroupCount(Conv* c, int g) {
  c->groups = g;
  return 0;
}
int miopenDestroyConvolutionDescriptor(Conv* c) {
  free(c);
  return 0;
}
static const float one = 1, zero = 0;
static int compiled;
#define KIND(name, number, T1, p1, T2, p2, T3, p3)                                                                   \
  int miopenConvolution##name##GetSolution(void* h, Tensor* T1, Tensor* T2, Conv* c, Tensor* T3, size_t wanted,      \
                                           size_t* found, Solution* s) {                                             \
    (void)h;                                                                                                         \
    (void)c;                                                                                                         \
    (void)T2;                                                                                                        \
    (void)T3;                                                                                                        \
    if (T1->type != 1 || wanted < 2) return 7;                                                                       \
    s[0] = (Solution){0.5f, 8192, 2, 0};                                                                             \
    s[1] = (Solution){0.7f, 4096, 1, 0};                                                                             \
    *found = 2;                                                                                                      \
    return 0;                                                                                                        \
  }                                                                                                                  \
  int miopenConvolution##name##CompileSolution(void* h, Tensor* T1, Tensor* T2, Conv* c, Tensor* T3, uint64_t id) {  \
    (void)h;                                                                                                         \
    (void)c;                                                                                                         \
    (void)T1;                                                                                                        \
    (void)T2;                                                                                                        \
    (void)T3;                                                                                                        \
    compiled = (int)id;                                                                                              \
    return 0;                                                                                                        \
  }                                                                                                                  \
  int miopenConvolution##name##Immediate(void* h, Tensor* T1, float* p1, Tensor* T2, float* p2, Conv* c, Tensor* T3, \
                                         float* p3, void* ws, size_t n, uint64_t id) {                               \
    (void)h;                                                                                                         \
    return compiled == (int)id ? conv(number, &one, px, x, pw, w, py, y, c, (int)id, ws, n, &zero) : BAD;            \
  }
KIND(Forward, 0, w, pw, x, px, y, py)
KIND(BackwardData, 1, y, py, w, pw, x, px)
KIND(BackwardWeights, 2, y, py, x, px, w, pw)
#endif

#ifdef NCCL
// A communicator of one rank: what is reduced or gathered is what was given. The id comes by value.
typedef struct {
  char internal[128];
} Id;
typedef struct {
  int rank, size;
} Comm;
int ncclGetVersion(int* v) {
  *v = 22803;
  return 0;
}
const char* ncclGetErrorString(int s) {
  return s == 4 ? "invalid argument" : s == 5 ? "invalid usage" : "unhandled error";
}
const char* ncclGetLastError(void* c) { return c ? "the fake says why" : "no communicator"; }
int ncclGetUniqueId(Id* id) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)(i + 1);
  return 0;
}
int ncclCommInitRank(Comm** c, int size, Id id, int rank) {
  for (int i = 0; i < 128; i++)
    if (id.internal[i] != (char)(i + 1)) return 4;
  if (rank != 0 || size != 1) return 5;
  *c = malloc(sizeof(Comm));
  **c = (Comm){rank, size};
  return 0;
}
int ncclCommDestroy(Comm* c) {
  free(c);
  return 0;
}
int ncclCommAbort(Comm* c) {
  free(c);
  return 0;
}
int ncclCommGetAsyncError(Comm* c, int* e) {
  *e = c->size == 1 ? 0 : 3;
  return 0;
}
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
static size_t width(int type) {
  return type < 2 ? 1 : type == 6 || type == 9 ? 2 : type == 4 || type == 5 || type == 8 ? 8 : 4;
}
static int moved(const void* s, void* r, size_t n, int type, Comm* c, void* stream) {
  if (!c || !stream || type < 0 || type > 9) return 4;
  if (s != r) memcpy(r, s, n * width(type));
  return 0;
}
int ncclAllReduce(const void* s, void* r, size_t n, int type, int op, Comm* c, void* stream) {
  return op < 0 || op > 4 ? 4 : moved(s, r, n, type, c, stream);
}
int ncclReduceScatter(const void* s, void* r, size_t n, int type, int op, Comm* c, void* stream) {
  return ncclAllReduce(s, r, n, type, op, c, stream);
}
int ncclAllGather(const void* s, void* r, size_t n, int type, Comm* c, void* stream) {
  return moved(s, r, n, type, c, stream);
}
int ncclBroadcast(const void* s, void* r, size_t n, int type, int root, Comm* c, void* stream) {
  return root != 0 ? 4 : moved(s, r, n, type, c, stream);
}
int ncclSend(const void* s, size_t n, int type, int peer, Comm* c, void* stream) {
  (void)s;
  (void)n;
  (void)type;
  (void)peer;
  (void)c;
  (void)stream;
  return 5;
}
int ncclRecv(void* r, size_t n, int type, int peer, Comm* c, void* stream) {
  (void)r;
  (void)n;
  (void)type;
  (void)peer;
  (void)c;
  (void)stream;
  return 5;
}
#endif
