// Generated programs on an NVIDIA GPU: what host C++ computes for them, kept as checksums, against the same programs
// through NVRTC.
//   node dist/scripts/generated-programs.js expect FILE FIRST COUNT     here: writes the checksums
//   node dist/scripts/generated-programs.js check FILE [PART/PARTS]     there: runs them at two levels of optimisation
// and compares
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ArgBuffer } from '../src/driver/args.js';
import { Calls } from '../src/driver/checked-calls.js';
import { compileProgram, fetchBytes } from '../src/driver/compiler.js';
import { openDriver } from '../src/driver/drivers.js';
import { nativeString, openLibrary } from '../src/driver/ffi.js';
import { NVRTC, NVRTC_TABLE, openNvrtc } from '../src/driver/nvrtc.js';
import { random } from '../src/emulator/executor.js';
import { BLOCK, CUDA_PRELUDE, generate, GRID, OUTPUT_WORDS } from '../test/emulator-generator.js';
import { randomInput, runOnHost } from '../test/emulator-support.js';

/** Programs of a batch are compiled together and read one input, as in test/emulator-programs.test.ts. */
const BATCH = 20;
const LEVELS = ['-O3', '-O0'];
const BYTES = GRID * BLOCK * OUTPUT_WORDS * 4;

interface Expected {
  readonly first: number;
  readonly sums: Record<string, string>;
}
const checksum = (words: Uint32Array): string =>
  createHash('sha256')
    .update(new Uint8Array(words.buffer, words.byteOffset, words.byteLength))
    .digest('hex')
    .slice(0, 24);

function expect(file: string, first: number, count: number): void {
  const batches: Expected[] = [];
  for (let from = first; from < first + count; from += BATCH) {
    const programs = Array.from({ length: Math.min(BATCH, first + count - from) }, (_, k) => generate(from + k));
    const sums = [...runOnHost(programs, randomInput(random(from)))].map(([name, words]) => [name, checksum(words)]);
    batches.push({ first: from, sums: Object.fromEntries(sums) as Record<string, string> });
  }
  writeFileSync(file, JSON.stringify(batches));
  console.log(`${count} programs from ${first} on in ${file}`);
}

function nvrtc(source: string, level: string, arch: string): Uint8Array {
  const library = openLibrary(NVRTC);
  if (typeof library === 'string') throw new Error(library);
  const raw = library.bind(NVRTC_TABLE);
  const calls = new Calls(NVRTC_TABLE, raw, { errorName: (s) => nativeString(raw.errorString(s)), outOfMemory: [1] });
  const options = [`--gpu-architecture=${arch}`, '-std=c++17', '--fmad=false', `--ptxas-options=${level}`];
  const code = (p: number): Uint8Array =>
    fetchBytes(
      (c) => calls.call('cubinSize', p, c),
      (t) => calls.call('cubin', p, t),
    );
  const request = { source, name: 'generated.cu', arch, defines: {} };
  return compileProgram({ compiler: 'NVRTC', calls, request, options, code });
}

function check(file: string, part: number, parts: number): number {
  const batches = (JSON.parse(readFileSync(file, 'utf8')) as Expected[]).filter((_, k) => k % parts === part);
  const compiler = openNvrtc();
  if (typeof compiler === 'string') throw new Error(compiler);
  const device = openDriver('cuda').open(0);
  const stream = device.createStream();
  const args = new ArgBuffer();
  const wrong: string[] = [];
  let runs = 0;
  for (const { first, sums } of batches) {
    const names = Object.keys(sums);
    const source = CUDA_PRELUDE + names.map((_, k) => generate(first + k).hip).join('\n');
    const input = randomInput(random(first));
    const from = device.alloc(input.byteLength);
    const to = device.alloc(BYTES);
    device.copyIn(from, new Uint8Array(input.buffer), stream);
    for (const level of LEVELS) {
      const module = device.loadModule(nvrtc(source, level, device.info.arch), 'generated');
      for (const name of names) {
        device.memset(to, 0, BYTES, stream);
        device.launch(
          device.getFunction(module, name),
          [GRID, 1, 1],
          [BLOCK, 1, 1],
          0,
          stream,
          args.reset().pointer(from).pointer(to),
        );
        const out = new Uint8Array(BYTES);
        device.copyOut(out, to, stream);
        runs++;
        if (checksum(new Uint32Array(out.buffer)) === sums[name]) continue;
        wrong.push(`${name} ${level}`);
        const folder = process.env.RESULT;
        if (folder && wrong.length <= 20) {
          mkdirSync(folder, { recursive: true });
          writeFileSync(join(folder, `${name}${level}.bin`), out);
        }
      }
    }
    device.free(from);
    device.free(to);
  }
  console.log(
    `part ${part} of ${parts}: ${runs} runs of generated programs on ${device.info.name} through NVRTC ` +
      `${compiler.version}, ${wrong.length} differ from host C++${wrong.length ? `: ${wrong.join(', ')}` : ''}`,
  );
  return wrong.length ? 1 : 0;
}

const [command, file, a, b] = process.argv.slice(2);
if (command === 'expect' && file && b) expect(file, Number(a), Number(b));
else if (command === 'check' && file) {
  const [part, parts] = (a ?? '0/1').split('/').map(Number);
  process.exitCode = check(file, part, parts);
} else {
  console.error('generated-programs expect FILE FIRST COUNT | check FILE [PART/PARTS]');
  process.exitCode = 2;
}
