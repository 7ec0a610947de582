// Appended to a unit, makes a program that launches one kernel: for sanitizers, which want a process of their own.
// Usage: PROGRAM symbol gx gy gz bx by bz shared reverse poison ARGUMENT...
// An argument is p:BYTES (a buffer of that size, filled with ones as floats), or i32:N, u32:N, u64:N, f32:X, f64:X.
// Or: PROGRAM replay FILE reverse poison, with launches recorded by scripts/sanitize-kernels.ts, each with the memory
// it works on.
#include <cstdio>
#include <string>
#include <vector>

static void take(FILE* file, void* to, size_t bytes) {
  if (bytes && fread(to, 1, bytes, file) != bytes) fprintf(stderr, "the record ends early\n"), exit(2);
}
template <class T> static T number(FILE* file) {
  T v;
  take(file, &v, sizeof v);
  return v;
}

/** Every launch with buffers of exactly the recorded sizes, so that the sanitizer sees their ends. */
static int replay(const char* path, uint32_t reverse, uint32_t poison) {
  FILE* file = fopen(path, "rb");
  if (!file) return fprintf(stderr, "no file %s\n", path), 2;
  const uint32_t launches = number<uint32_t>(file);
  for (uint32_t l = 0; l < launches; l++) {
    std::string symbol(number<uint32_t>(file), ' ');
    take(file, &symbol[0], symbol.size());
    uint32_t geometry[9];
    take(file, geometry, 28);
    geometry[7] = reverse, geometry[8] = poison;
    std::vector<uint64_t> args((number<uint32_t>(file) + 7) / 8);
    take(file, args.data(), args.size() * 8);
    std::vector<char*> buffers(number<uint32_t>(file));
    for (char*& b : buffers) {
      const uint64_t bytes = number<uint64_t>(file);
      void* p = nullptr;
      if (posix_memalign(&p, 256, bytes ? bytes : 1)) return fprintf(stderr, "no memory\n"), 2;
      b = (char*)p;
      take(file, b, bytes);
    }
    for (uint32_t n = number<uint32_t>(file); n; n--) {
      const uint32_t word = number<uint32_t>(file), buffer = number<uint32_t>(file);
      args[word] = (uint64_t)(buffers[buffer] + number<uint64_t>(file));
    }
    const int entry = wick_sim_find(symbol.c_str());
    if (entry < 0) return fprintf(stderr, "no kernel %s\n", symbol.c_str()), 2;
    fprintf(stderr, "%s\n", symbol.c_str());  // what a sanitizer says belongs to the last line before it
    char error[512] = "";
    if (wick_sim_launch(entry, geometry, args.data(), error, sizeof error))
      return fprintf(stderr, "%s: %s\n", symbol.c_str(), error), 1;
    for (char* b : buffers) free(b);
  }
  fclose(file);
  printf("done %u\n", launches);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 5 && !strcmp(argv[1], "replay"))
    return replay(argv[2], (uint32_t)strtoul(argv[3], nullptr, 0), (uint32_t)strtoul(argv[4], nullptr, 0));
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
