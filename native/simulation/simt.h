// Runs kernels/ on the host: a block's threads are fibers, waves have WICK_WAVE lanes, and misuse of barriers is
// reported.
//
// A fiber runs thread after thread until one waits at a barrier or shuffle; kernels without either therefore run as
// plain loops. One unit of kernels is one shared object; blocks of a launch run one after another.
#pragma once
// C's headers only: the standard library's own take as long to read as a whole unit of kernels.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#ifndef WICK_WAVE
#define WICK_WAVE 32
#endif

#include "machine.h"
#include "fibers.h"
#include "device.h"
#include "scheduler.h"
#include "launch.h"
