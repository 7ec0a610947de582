// What other projects use of the emulator: a GPU, code objects, and the errors and counts it reports.
export { readCodeObject, type CodeObject, type Kernel, type KernelArg } from './code-object.js';
export type { Finding } from './checker.js';
export type { Counts } from './counts.js';
export { describe, EmulatorError } from './executor.js';
export { EMULATED_TARGETS, EmulatedGpu, type GpuOptions, type LaunchReport, type LoadedModule } from './gpu.js';
