// The CPU engine under the address sanitizer: built so, and run by the fuzzer of ops, by what tries bad indices and
// sizes,
// and by some cases of every op, with tensors that end where their memory does.
// Usage: node dist/scripts/sanitize-engine.js [--sample 3]
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { buildNative } from '../src/backends/native-build.js';
import { env } from '../src/base/environment.js';

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({ options: { sample: { type: 'string', default: '3' } } });
const RUNS = [['fuzz-ops'], ['trust-guard', 'trust-indices'], ['matrix']];

const compiler = spawnSync(env('CXX') ?? 'g++', ['-print-file-name=libasan.so'], { encoding: 'utf8' });
const runtime = compiler.stdout?.trim() ?? '';
if (runtime.startsWith('/')) process.exitCode = await main();
else console.log('skipped: g++ with libasan beside it is not installed');

async function main(): Promise<number> {
  const begin = Date.now();
  const seconds = (): string => `${Math.round((Date.now() - begin) / 1000)} s`;
  const library = await buildNative({ sanitize: true, progress: process.stdout.fd });
  console.log(`built in ${seconds()}`);
  const guarded = {
    ...process.env,
    LD_PRELOAD: runtime,
    LD_LIBRARY_PATH: [dirname(runtime), process.env.LD_LIBRARY_PATH].filter(Boolean).join(':'),
    ASAN_OPTIONS: 'detect_leaks=0:halt_on_error=1',
    NODE_OPTIONS: `--import=${pathToFileURL(join(here, 'guard-memory.js')).href}`,
    WICK_NATIVE: library,
    WICK_SAMPLE: values.sample,
    WICK_TEST_DEVICES: 'cpu',
  };
  let problems = 0;
  for (const files of RUNS) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(here, 'test.js'), ...files, '--jobs', '1'], {
      env: guarded,
      encoding: 'utf8',
      maxBuffer: 1 << 28,
    });
    const text = stdout + stderr;
    const lines = text.split('\n');
    const found = lines.findIndex((l) => l.includes('ERROR: AddressSanitizer'));
    console.log(`${files.join(', ')}: ${/^\d+ passed.*$/m.exec(text)?.[0] ?? 'ended early'} (${seconds()})`);
    if (status === 0 && found < 0) continue;
    problems++;
    console.log(found < 0 ? text.slice(-3000) : lines.slice(found, found + 12).join('\n'));
  }
  console.log(`${problems} problems`);
  return problems === 0 ? 0 : 1;
}
