// What AMD publishes about four GPUs, and how their compute units execute: the numbers behind docs/amd-estimates.md.

/**
 * What a plain copy reaches of the published bandwidth: measured on the H200 (4236 of 4800 GB/s, docs/bench-h200.json).
 */
export const ATTAINED = 0.88;

export interface Rates {
  readonly name: string;
  readonly target: string;
  /** Compute units, and their clock in GHz while busy. */
  readonly units: number;
  readonly clock: number;
  /** Memory, GB/s. */
  readonly bandwidth: number;
  /** Of a compute unit: bytes a clock from its vector cache and from LDS. */
  readonly cacheBytes: number;
  readonly ldsBytes: number;
  /** Of a compute unit: wave instructions a clock, vector and scalar. */
  readonly vector: number;
  readonly scalar: number;
  /** Matrix units: TFLOP/s in f16 and bf16; f32 where they have it. */
  readonly matrix: number;
  /** SIMDs of a compute unit, registers of a lane there, and the most waves on one. */
  readonly simds: number;
  readonly registers: number;
  readonly mostWaves: number;
  readonly lds: number;
  /** An access to memory that no cache holds, in nanoseconds: an assumption. */
  readonly latency: number;
  /** Where the figures come from. */
  readonly source: string;
  /** Which of them were compared with what is published, when, and which are taken on trust. */
  readonly compared: string;
}

/**
 * CDNA: a wave of 64 takes four clocks on a SIMD of 16 lanes, four SIMDs a unit. RDNA: a wave of 32 takes one, two
 * SIMDs a unit.
 */
export const RATES: readonly Rates[] = [
  {
    name: 'Instinct MI300X',
    target: 'gfx942',
    units: 304,
    clock: 2.1,
    bandwidth: 5300,
    cacheBytes: 64,
    ldsBytes: 128,
    vector: 1,
    scalar: 1,
    matrix: 1307,
    simds: 4,
    registers: 512,
    mostWaves: 8,
    lds: 65536,
    latency: 700,
    source:
      'AMD Instinct MI300X data sheet: 304 compute units, 2100 MHz, 5.3 TB/s, 1307.4 TFLOP/s f16; CDNA 3 white paper',
    compared:
      'units, bandwidth and 1.3 PFLOP/s f16 (dense) compared with published tables on 2026-11-16; 304 x 2048 x 2.1 GHz is 1307 TFLOP/s',
  },
  {
    name: 'Instinct MI210',
    target: 'gfx90a',
    units: 104,
    clock: 1.7,
    bandwidth: 1638,
    cacheBytes: 64,
    ldsBytes: 128,
    vector: 1,
    scalar: 1,
    matrix: 181,
    simds: 4,
    registers: 512,
    mostWaves: 8,
    lds: 65536,
    latency: 600,
    source:
      'AMD Instinct MI210 data sheet: 104 compute units, 1700 MHz, 1638 GB/s, 181 TFLOP/s f16; CDNA 2 white paper',
    compared:
      'units, clock, bandwidth (4096 bits at 3.2 Gbit/s) and 181 TFLOP/s f16 compared with published tables on 2026-11-16',
  },
  {
    name: 'Radeon RX 7900 XTX',
    target: 'gfx1100',
    units: 96,
    clock: 2.5,
    bandwidth: 960,
    cacheBytes: 64,
    ldsBytes: 128,
    vector: 2,
    scalar: 2,
    matrix: 123,
    simds: 2,
    registers: 1536,
    mostWaves: 16,
    lds: 65536,
    latency: 450,
    source:
      'AMD product page: 96 compute units, 2.5 GHz, 960 GB/s, 123 TFLOP/s f16 by matrix units; RDNA 3 instruction set guide',
    compared: 'units, clock, bandwidth and 122.8 TFLOP/s f16 compared with published tables on 2026-11-16',
  },
  {
    name: 'Radeon RX 9070 XT',
    target: 'gfx1201',
    units: 64,
    clock: 2.97,
    bandwidth: 640,
    cacheBytes: 64,
    ldsBytes: 128,
    vector: 2,
    scalar: 2,
    matrix: 195,
    simds: 2,
    registers: 1536,
    mostWaves: 16,
    lds: 65536,
    latency: 400,
    source:
      'AMD product page: 64 compute units, 2.97 GHz, 640 GB/s, 195 TFLOP/s f16 by matrix units; RDNA 4 instruction set guide',
    compared:
      'units, clock and bandwidth (256 bits at 20 Gbit/s) compared with published tables on 2026-11-16; the matrix rate by product: 64 x 1024 x 2.97 GHz is 195 TFLOP/s, four times the published 48.7 in f32',
  },
];
