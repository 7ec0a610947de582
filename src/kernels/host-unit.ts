// A unit as host C++ for the sim driver: the simulation's header, the kernels in a namespace of their own, and the list
// of entries.
import { buildHost, readObject, type Sanitizer } from '../driver/host-cc.js';
import { env } from '../base/environment.js';
import { simulationDir } from '../base/paths.js';
import { inlined, type Unit } from './source.js';

let header: string | undefined;
/** The simulation's header with its parts in place: what is compiled, and kept by its hash, is one text. */
const simt = (): string => (header ??= inlined('simt.h', simulationDir));

/**
 * What g++ compiles. The unnamed namespace keeps templates out of the linker's hands, so that shared memory can have
 * its section.
 */
export function hostSource(unit: Unit, wave: number): string {
  const entries = unit.entries.map((e) => `SIMT_ENTRY(${e.symbol}, ${e.threads})`).join(', ');
  return (
    `#define WICK_SIM 1\n#define ` +
    `WICK_WAVE ${wave}\n${simt()}\nnamespace {\n${unit.source}\n}\nSIMT_ENTRIES(${entries})\n`
  );
}

/** The sanitizer the environment asks for: WICK_SIM_SANITIZE=address (the process must be run under its library). */
const simSanitizer = (): Sanitizer => (env('WICK_SIM_SANITIZE') === 'address' ? 'address' : 'none');

const WAVE_WORDS = /^(?!#).*\b(WICK_WAVE|lane_id|wave_id|lanes_before|sync_wave|ballot64|shfl\w*|WAVE\w*)\b/m;
/**
 * Kernels whose source, which holds only what they use, names nothing of waves are the same for every wave size, and
 * are compiled once.
 */
export const waveFor = (unit: Unit, wave: number): number => (WAVE_WORDS.test(unit.source) ? wave : 32);

/** A module for the sim driver's loadModule: compiled once, then taken from disk. */
export const compileForSim = (unit: Unit, wave: number): Uint8Array =>
  readObject(buildHost(unit.name, hostSource(unit, waveFor(unit, wave)), simSanitizer()));
