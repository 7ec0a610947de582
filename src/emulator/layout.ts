// Where a wave keeps its state in linear memory, and the addresses programs see.

/** Byte offsets inside one wave's block. */
export const WAVE = {
  /** 128 scalar registers. */
  SREGS: 0,
  SCC: 512,
  /** Block to continue with. */
  PC: 516,
  LDS_BASE: 520,
  LDS_BYTES: 524,
  /** Private memory of lane 0, and bytes a lane. */
  PRIVATE_BASE: 528,
  PRIVATE_BYTES: 532,
  /** Number of the wave in its group, and of the group in the launch. */
  INDEX: 536,
  GROUP: 540,
  /** Copies of whole vector registers for instructions that read other lanes. */
  ROWS: 1024,
  VREGS: 4096,
} as const;
export const ROW_BYTES = 256;
export const MAX_ROWS = 12;

/** Device addresses are this plus the offset in linear memory: the high word tells spaces apart. */
export const GLOBAL_HIGH = 7;
export const GLOBAL_BASE = GLOBAL_HIGH * 2 ** 32;
/** High words of generic addresses of LDS and private memory. */
export const SHARED_HIGH = 0x00010000;
export const PRIVATE_HIGH = 0x00020000;

/** What a block returns instead of the next block. */
export const END = -1;
export const BARRIER = -2;
export const OUT_OF_FUEL = -3;
/** Control went where no instruction was found. */
export const NO_BLOCK = -4;

/** Reasons passed to the host's fail(). */
export const FAIL = { LDS_BOUNDS: 0, PRIVATE_BOUNDS: 1, MISALIGNED: 2, TRAP: 3, BUFFER: 4, UNDEFINED: 5 } as const;
/** Kinds of memory access reported to the checker. */
export const ACCESS = { LDS_READ: 0, LDS_WRITE: 1, LDS_ATOMIC: 2, READ: 3, WRITE: 4, ATOMIC: 5 } as const;
/** Word 3 of the scratch buffer resource this emulator hands out. */
export const SCRATCH_MARK = 0x00e00bad;
