// cuDNN's attention tried in every configuration, a line a step: what it plans, what it answers beside our own kernels,
// how long both take. What the library refuses is told in its own words.
//   node dist/scripts/cudnn-attention-check.js [--device cuda:0] [--only TEXT] [--brief] [--quick] [--seconds 60]
//   node dist/scripts/cudnn-attention-check.js --paper [properties.json] [--ways 2]
// --brief takes those that tell the most (a minute or two), --quick the small ones alone.
// Cases run in a process of their own that is ended when it says nothing for so many seconds; the next goes on behind
// the case that hung or crashed. On paper nothing runs: the library plans for a GPU that is not there (an H200, or one
// by its properties as cuDNN writes them), which needs the library and a libcuda.so.1, not a device.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import '../src/index.js';
import type { AttentionLibrary, AttentionSpec } from '../src/driver/attention.js';
import { Calls } from '../src/driver/checked-calls.js';
import { forDriver } from '../src/driver/cuda-version.js';
import { CUBLASLT } from '../src/driver/cublaslt.js';
import { CudnnAttentions } from '../src/driver/cudnn-attention.js';
import { CUDNN_GRAPH_NUMBERS, CUDNN_GRAPH_TABLE, Descriptors } from '../src/driver/cudnn-graph.js';
import { CUDNN, CUDNN_TABLE } from '../src/driver/cudnn.js';
import { libraryReports, nativeString, openLibrary } from '../src/driver/ffi.js';
import { NVRTC } from '../src/driver/nvrtc.js';
import { attentionCases, type AttentionCase, isBrief, specOf } from './cudnn-attention-cases.js';
import { runAttentionCase } from './cudnn-attention-run.js';

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    device: { type: 'string', default: 'cuda:0' },
    only: { type: 'string', default: '' },
    quick: { type: 'boolean', default: false },
    brief: { type: 'boolean', default: false },
    paper: { type: 'boolean', default: false },
    seconds: { type: 'string', default: '60' },
    from: { type: 'string' },
    ways: { type: 'string', default: '2' },
  },
});

/** What an H200 says of itself, in cuDNN's words. */
const H200 = {
  deviceName: 'NVIDIA H200',
  deviceVer: 900,
  driverVer: 13000,
  cudaDeviceId: 0,
  pciDeviceId: 0,
  multiProcessorCount: 132,
  warpSize: 32,
  maxGridSize: [2147483647, 65535, 65535],
  maxBlockSize: [1024, 1024, 64],
  maxThreadsPerBlock: 1024,
  maxThreadsPerSM: 2048,
  maxCtasPerSM: 32,
  regsPerBlock: 65536,
  maxRegistersPerSM: 65536,
  maxSharedMemoryPerBlock: 49152,
  maxSharedMemoryPerBlockOptin: 232448,
  reservedSharedMemoryPerBlock: 1024,
  l2CacheSize: 62914560,
  totalGlobalMem: 150754820096,
  smClockRateKHz: 1980000,
  memClockRateKHz: 3201000,
  isTccDriver: 0,
  supportCoopLaunch: 1,
};

/** Attention planned for a device by its properties alone. */
function onPaper(): AttentionLibrary {
  openLibrary(forDriver(CUBLASLT));
  openLibrary(forDriver(NVRTC));
  const library = openLibrary(CUDNN);
  if (typeof library === 'string') throw new Error(library);
  const raw = library.bind(CUDNN_TABLE);
  const rules = { errorName: (s: number) => nativeString(raw.errorString(s)), outOfMemory: [] };
  const calls = new Calls(CUDNN_GRAPH_TABLE, library.bind(CUDNN_GRAPH_TABLE), rules);
  const N = CUDNN_GRAPH_NUMBERS;
  const descriptors = new Descriptors(calls, { properties: 0 });
  const device = descriptors.make(N.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const text = positionals[0] ? readFileSync(positionals[0], 'utf8').trim() : JSON.stringify(H200);
  const json = new Uint8Array(Buffer.from(text));
  descriptors.set(device, N.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, N.CUDNN_TYPE_CHAR, json.slice());
  descriptors.finalized(device);
  console.log(`cuDNN ${raw.version()} at ${library.path}, on paper`);
  const attentions = new CudnnAttentions('cuDNN', raw.version(), calls, { properties: device }, 2 ** 31, () => {});
  attentions.most = Number(v.ways);
  return attentions;
}

const cases = attentionCases(v.quick).filter((c) => c.name.includes(v.only) && (!v.brief || isBrief(c)));

/** The plan, with what was passed over on the way to it. */
function planned(library: AttentionLibrary, c: AttentionCase, spec: AttentionSpec): void {
  const begun = performance.now();
  let plan: ReturnType<AttentionLibrary['plan']>;
  try {
    plan = library.plan(spec, (line) => console.log(`    ${line}`));
  } catch (e) {
    plan = (e as Error).message;
  }
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  console.log(
    typeof plan === 'string'
      ? `  ${c.name}: REFUSED in ${seconds} s: ${plan}`
      : `  ${c.name}: planned in ${seconds} s: ${plan.ways.map((w) => w.description).join('; ')}`,
  );
}

if (v.paper) {
  const library = onPaper();
  for (const c of cases) planned(library, c, specOf(c));
} else if (v.from !== undefined) {
  if (v.from === '0')
    for (const l of libraryReports()) if (l.name === 'cuDNN') console.log(`cuDNN ${l.version} at ${l.found}`);
  for (let i = Number(v.from); i < cases.length; i++) {
    console.log(`@${i}`); // for the parent: where to go on
    await runAttentionCase(v.device, cases[i]);
  }
  process.exit(0);
} else await supervise();

/** Runs the cases in processes of their own, each from where the last one fell silent. */
async function supervise(): Promise<void> {
  let next = 0;
  while (next < cases.length) {
    const args = [fileURLToPath(import.meta.url), ...process.argv.slice(2), '--from', `${next}`];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    let at = next;
    let rest = '';
    const end = (): boolean => child.kill('SIGKILL');
    let timer = setTimeout(end, Number(v.seconds) * 1000);
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      clearTimeout(timer);
      timer = setTimeout(end, Number(v.seconds) * 1000);
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line.startsWith('@')) at = Number(line.slice(1));
        else console.log(line);
      }
    });
    const code = await new Promise<number | null>((done) => child.on('close', done));
    clearTimeout(timer);
    if (code === 0) return;
    console.log(`  ${cases[at].name}: DIED (${code === null ? `silent for ${v.seconds} s` : `exit ${code}`})`);
    next = at + 1;
  }
}
