// Loaded into a process that runs under the address sanitizer: what lies behind a tensor's last byte, and memory that
// was given back, is closed to the CPU engine, so that a read one element too far is found.
import { CpuMemory, MemoryPool } from '../src/backends/cpu/memory.js';
import { openLibrary } from '../src/driver/ffi.js';

/** Bytes behind a tensor that belong to no tensor. */
const BEHIND = 64;

const runtime = openLibrary({ name: "the sanitizer's run time", sonames: ['libasan.so'], vendor: 'host' });
if (typeof runtime === 'string') throw new Error(runtime);
const close = runtime.func('void __asan_poison_memory_region(uintptr_t address, size_t bytes)');
const open = runtime.func('void __asan_unpoison_memory_region(uintptr_t address, size_t bytes)');

const { alloc, free } = MemoryPool.prototype;
MemoryPool.prototype.alloc = function (bytes) {
  const block = alloc.call(this, bytes + BEHIND);
  open(block.address, bytes);
  close(block.address + bytes, block.room - bytes);
  block.bytes = bytes;
  return block;
};
MemoryPool.prototype.free = function (memory) {
  if (memory instanceof CpuMemory) close(memory.address, memory.room);
  free.call(this, memory);
};
