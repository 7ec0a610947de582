// Powers of two in double, beside exp2g of floats in portable.h: what expressions with exp2g need where T is double.
#pragma once
#include "portable.h"

WICK_FN double exp2g(double x) { return exp2(x); }
