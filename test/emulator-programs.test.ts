// Generated kernels, compiled by hipRTC at every optimisation level: the emulator's results equal those of host C++,
// bit for bit.
// WICK_EMU_PROGRAMS=FIRST:COUNT runs more of them; WICK_EMU_TARGETS names targets.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { random } from '../src/emulator/executor.js';
import { generate } from './emulator-generator.js';
import { hipSource, hiprtc, missing, randomInput, runOnEmulator, runOnHost, runOnSim } from './emulator-support.js';

const [first, count] = (process.env.WICK_EMU_PROGRAMS ?? '1:2').split(':').map(Number);
const targets = (process.env.WICK_EMU_TARGETS ?? 'gfx90a,gfx1030').split(',');
/** 'emu' leaves the simulation out of long runs. */
const only = process.env.WICK_EMU_ONLY;
const LEVELS = ['-O0', '-O1', '-O2', '-O3'];
/** Programs compiled together. */
const BATCH = 20;

const firstDifference = (a: Uint32Array, b: Uint32Array): number => a.findIndex((x, i) => x !== b[i]);

for (let from = first; from < first + count; from += BATCH) {
  const programs = Array.from({ length: Math.min(BATCH, first + count - from) }, (_, k) => generate(from + k));
  const input = randomInput(random(from));
  let host: Map<string, Uint32Array> | undefined;
  test(`programs ${from} to ${from + programs.length - 1} on the simulated GPU agree with host C++, waves of 32 ` +
    'and 64', {
    skip: only === 'emu',
  }, () => {
    host ??= runOnHost(programs, input);
    const wrong: string[] = [];
    for (const wave of [32, 64] as const) {
      for (const [name, got] of runOnSim(wave, programs, input))
        if (firstDifference(got, host.get(name)!) >= 0) wrong.push(`${name} sim:${wave}`);
    }
    assert.deepEqual(wrong, []);
  });
  for (const target of targets) {
    test(`programs ${from} to ${from + programs.length - 1} on ${target} agree with host C++ at ${LEVELS.join(' ')}`, {
      skip: missing(target),
    }, () => {
      host ??= runOnHost(programs, input);
      const wrong: string[] = [];
      for (const level of LEVELS) {
        const code = hiprtc(hipSource(programs), target, [level, '-std=c++17', '-ffp-contract=off']);
        // Another seed orders waves otherwise; results must not change.
        for (const [name, got] of runOnEmulator(code, target, programs, input, { seed: from + level.charCodeAt(2) })) {
          const want = host.get(name)!;
          if (got instanceof Error) wrong.push(`${name} ${level}: ${got.message}`);
          else if (firstDifference(got, want) >= 0) {
            const at = firstDifference(got, want);
            wrong.push(
              `${name} ${level}: thread ${Math.floor(at / 16)} word ${at % 16} is 0x${got[at].toString(16)}, on ` +
                `the host 0x${want[at].toString(16)}`,
            );
          }
        }
      }
      assert.deepEqual(wrong, []);
    });
  }
}
