// What JavaScript and the engine say to each other: element types, operands, and one call block of doubles.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

// Elements of two vectors by number, a's first; V is a vector of whole numbers with as many lanes.
#if defined(__clang__)
#define WICK_SHUFFLE(V, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WICK_SHUFFLE(V, a, b, ...) __builtin_shuffle(a, b, V{__VA_ARGS__})
#endif

namespace wick {

// The order of NUMBERS in src/base/dtype.ts, then that of KEPT, which only casts and copies see.
enum DType : int { U8, U32, I16, I32, I64, F8, BF16, F16, F32, F64, I8, BF8, DTYPE_COUNT };
constexpr int ELEMENT_BYTES[DTYPE_COUNT] = {1, 4, 2, 4, 8, 1, 2, 2, 4, 8, 1, 1};

// Storage types of the small floats: bits only, so that no arithmetic happens in them by accident.
struct half {
  uint16_t bits;
};
struct bfloat {
  uint16_t bits;
};
struct fp8 {
  uint8_t bits;
};
struct bf8 {  // f8e5m2
  uint8_t bits;
};

constexpr int MAX_RANK = 16;
constexpr int MAX_OPERANDS = 16;
constexpr int MAX_PARAMS = 48;

struct Operand {
  char* data;
  int dtype;
  int rank;
  int64_t shape[MAX_RANK];
  int64_t stride[MAX_RANK];  // in elements

  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return n;
  }
  int bytes() const { return ELEMENT_BYTES[dtype]; }
  bool contiguous() const {
    int64_t n = 1;
    for (int i = rank - 1; i >= 0; i--) {
      if (shape[i] != 1 && stride[i] != n) return false;
      n *= shape[i];
    }
    return true;
  }
  template <class T> T* as() const { return reinterpret_cast<T*>(data); }
};

enum Status : int { OK = 0, BAD_INDEX = 1, UNSUPPORTED = 2, NO_MEMORY = 3 };

// One run of a row: the last operands are the outputs.
struct Call {
  int inputs, operands;
  Operand operand[MAX_OPERANDS];
  const double* params;
  char* message;  // MESSAGE_BYTES long, a C string after a status other than OK
  const Operand& in(int i) const { return operand[i]; }
  const Operand& out(int i = 0) const { return operand[inputs + i]; }
  int64_t integer(int i) const { return (int64_t)params[i]; }
};
constexpr int MESSAGE_BYTES = 512;

// An op by name. `data` is what the runner needs besides the call: a kernel table, a member's number.
struct Op {
  const char* name;
  Status (*run)(const Call&, const void* data);
  const void* data;
};

Status fail(const Call& call, Status status, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace wick
