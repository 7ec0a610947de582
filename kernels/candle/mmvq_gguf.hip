// Candle's mmvq_gguf.cu: products of ggml's blocks with 1 to 8 columns of q8_1 activations, results in f32, f16 or
// bf16, and the activations made from these.
//
// Launches are Candle's: blocks of threads are (32, warps), four warps for up to four columns and else two; a block has
// one row for one column and else two. Activations are padded to a multiple of 512 values a column.
#include "quant-vectors.h"
