// Division of positions: most are below 2^32, where it takes a fraction of the instructions.
#pragma once
#include "portable.h"

/** i / d, in 32 bits where both fit. */
WICK_FN u64 quotient(u64 i, u64 d) { return (i | d) >> 32 ? i / d : (u64)((u32)i / (u32)d); }
