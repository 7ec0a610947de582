// `npm run estimates`: AMD speed on paper. Counts of the emulator for one target, kept in docs/amd-estimates.json, and
// the page made of them.
//   node dist/bench/estimates.js --device emu:gfx90a     counts a target anew (gfx942, gfx1100, gfx1201: by
// scripts/rocm7.js's compiler, --rocm7)
//   node dist/bench/estimates.js --page                  writes docs/amd-estimates.md from what is kept
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { GpuBackend } from '../src/backends/gpu/gpu.js';
import { packageRoot } from '../src/base/paths.js';
import type { EmuDevice } from '../src/emulator/device.js';
import { Device, scope } from '../src/index.js';
import { warm } from '../src/testing/warm.js';
import { hiprtc7Command } from '../scripts/fetch-rocm.js';
import type { LaunchCounts } from './amd-estimate.js';
import { estimatesPage, type Kept } from './amd-page.js';
import { amdWorks } from './amd-works.js';

const { values } = parseArgs({
  options: {
    device: { type: 'string' },
    only: { type: 'string', default: '' },
    rocm7: { type: 'boolean' },
    page: { type: 'boolean' },
  },
});
const JSON_FILE = join(packageRoot, 'docs', 'amd-estimates.json');
const PAGE = join(packageRoot, 'docs', 'amd-estimates.md');
const kept = (): Kept =>
  existsSync(JSON_FILE) ? (JSON.parse(readFileSync(JSON_FILE, 'utf8')) as Kept) : { targets: {} };

/** Counts of one run of each work, its inputs already there. */
function countOn(name: string, only: string): Kept['targets'][string] {
  const device = Device.get(name);
  const gpu = (device.backend as GpuBackend).context.device as EmuDevice;
  const works = amdWorks().filter((w) => w.name.includes(only));
  const compiler = (device.backend as GpuBackend).context.functions.compiles();
  if (compiler !== true) throw new Error(`${name}: ${compiler}`);
  (device.backend as GpuBackend).context.libraries.enabled = false;
  warm(device, (dry) => {
    for (const w of works) scope(() => void w.setup(dry)());
  });
  const counts: Record<string, LaunchCounts[]> = {};
  for (const work of works) {
    const launches: LaunchCounts[] = [];
    scope(() => {
      const step = work.setup(device);
      gpu.onLaunch = (symbol, { milliseconds: _, findings: __, ...counted }) =>
        void launches.push({ ...counted, symbol, wave: gpu.info.warp });
      try {
        step();
      } finally {
        gpu.onLaunch = undefined;
      }
    });
    counts[work.name] = launches;
    process.stderr.write(`${name} ${work.name}: ${launches.map((l) => l.symbol).join(', ')}\n`);
  }
  return { date: new Date().toISOString().slice(0, 10), counts };
}

if (values.device && values.rocm7) {
  const command = hiprtc7Command();
  if (typeof command === 'string') throw new Error(command);
  const self = fileURLToPath(import.meta.url);
  const args = [...command.slice(1), self, '--device', values.device, '--only', values.only as string];
  const { status } = spawnSync(command[0], args, { stdio: 'inherit', env: { ...process.env, AMD_COMGR_CACHE: '0' } });
  process.exitCode = status ?? 1;
} else if (values.device) {
  const target = values.device.replace('emu:', '');
  const all = kept();
  const now = countOn(values.device, values.only as string);
  const before = all.targets[target]?.counts ?? {};
  const targets = { ...all.targets, [target]: { ...now, counts: { ...before, ...now.counts } } };
  const lines = Object.entries(targets).map(
    ([t, k]) =>
      ` ${JSON.stringify(t)}: {"date": ${JSON.stringify(k.date)}, "counts": {\n${Object.entries(k.counts)
        .map(([w, l]) => `  ${JSON.stringify(w)}: ${JSON.stringify(l)}`)
        .join(',\n')}\n }}`,
  );
  writeFileSync(JSON_FILE, `{"targets": {\n${lines.join(',\n')}\n}}\n`);
}
if (values.page || values.device) writeFileSync(PAGE, estimatesPage(kept()));
