// Opens a file that is compiled once per instruction set: intrinsics, the unnamed namespace's contents, and the
// exported name. Nothing here may instantiate templates of the standard library: the linker could hand baseline code a
// copy made for a newer CPU.
#pragma once
#include "engine/abi.h"
#include "engine/kernels.h"
#include "engine/threads.h"

#if defined(WICK_ISA_NEON)
#include <arm_neon.h>
#define WICK_EXPORT(name) name##_neon
#elif defined(WICK_ISA_SSE2)
#include <immintrin.h>
#define WICK_EXPORT(name) name##_sse2
#elif defined(WICK_ISA_AVX2)
#include <immintrin.h>
#define WICK_EXPORT(name) name##_avx2
#elif defined(WICK_ISA_AVX512)
#include <immintrin.h>
#define WICK_EXPORT(name) name##_avx512
#elif defined(WICK_ISA_WASM)
#include <wasm_simd128.h>
#define WICK_EXPORT(name) name##_wasm
#else
#error "compile with -DWICK_ISA_NEON, -DWICK_ISA_SSE2, -DWICK_ISA_AVX2, -DWICK_ISA_AVX512 or -DWICK_ISA_WASM"
#endif

using wick::bf8;
using wick::bfloat;
using wick::fp8;
using wick::half;
using wick::parallel;
using wick::parallelTasks;
using wick::scratch;

namespace {
#include "vec.h"
#include "vec-memory.h"
#include "vec-arithmetic.h"
#include "vecmath.h"
#include "quad.h"
}  // namespace
