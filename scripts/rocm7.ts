// Runs wick's command line with hipRTC 7 and the C library it wants, as fetch-rocm unpacked them: what ROCm 7's
// compiler makes of the kernels can then be emulated.
// Usage: node dist/scripts/rocm7.js parity --device emu:gfx1100 --op mul
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hiprtc7Command } from './fetch-rocm.js';

const command = hiprtc7Command();
if (typeof command === 'string') console.log(`skipped: ${command}`);
else {
  const main = join(dirname(fileURLToPath(import.meta.url)), '../src/cli/main.js');
  const { status, error } = spawnSync(command[0], [...command.slice(1), main, ...process.argv.slice(2)], {
    stdio: 'inherit',
    env: { ...process.env, AMD_COMGR_CACHE: '0' },
  });
  if (error) throw error;
  process.exitCode = status ?? 1;
}
