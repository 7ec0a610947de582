// Appended to a unit, makes a program that launches one kernel: for sanitizers, which want a process of their own.
// Usage: PROGRAM symbol gx gy gz bx by bz shared reverse poison ARGUMENT...
// An argument is p:BYTES (a buffer of that size, filled with ones as floats), or i32:N, u32:N, u64:N, f32:X, f64:X.
#include <string>

int main(int argc, char** argv) {
  if (argc < 11) return fprintf(stderr, "symbol, grid, block, shared, reverse, poison are needed\n"), 2;
  const int entry = wick_sim_find(argv[1]);
  if (entry < 0) return fprintf(stderr, "no kernel %s\n", argv[1]), 2;
  uint32_t geometry[9];
  for (int i = 0; i < 9; i++) geometry[i] = (uint32_t)strtoul(argv[2 + i], nullptr, 0);
  std::vector<char> packed;
  std::vector<void*> buffers;
  auto put = [&](const void* value, size_t bytes) {
    packed.resize(simt::align_up(packed.size(), bytes) + bytes);
    memcpy(packed.data() + packed.size() - bytes, value, bytes);
  };
  for (int i = 11; i < argc; i++) {
    const std::string kind(argv[i], strchr(argv[i], ':') - argv[i]), text(strchr(argv[i], ':') + 1);
    if (kind == "p") {
      const size_t bytes = strtoull(text.c_str(), nullptr, 0);
      float* p = (float*)malloc(bytes);
      for (size_t k = 0; k < bytes / 4; k++) p[k] = 1.0f;
      buffers.push_back(p);
      put(&p, 8);
    } else if (kind == "f32") {
      const float v = strtof(text.c_str(), nullptr);
      put(&v, 4);
    } else if (kind == "f64") {
      const double v = strtod(text.c_str(), nullptr);
      put(&v, 8);
    } else {
      const uint64_t v = (uint64_t)strtoll(text.c_str(), nullptr, 0);
      put(&v, kind == "u64" ? 8 : 4);
    }
  }
  char error[512] = "";
  const int status = wick_sim_launch(entry, geometry, packed.data(), error, sizeof error);
  puts(status ? error : "done");
  for (void* p : buffers) free(p);
  return status;
}
