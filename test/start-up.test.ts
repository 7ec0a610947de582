// What a start reads, counted in files: commands and programs wait for no module that they do not need.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../src/base/paths.js';
import { main } from './cli-support.js';

const index = join(packageRoot, 'dist/src/index.js');

/** The files of wick that a process reads, from dist/src. */
function filesRead(...args: readonly string[]): string[] {
  const coverage = mkdtempSync(join(tmpdir(), 'wick-start-'));
  try {
    execFileSync(process.execPath, args, {
      env: { ...process.env, NODE_V8_COVERAGE: coverage },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    return readdirSync(coverage).flatMap((f) => {
      const { result } = JSON.parse(readFileSync(join(coverage, f), 'utf8')) as { result: { url: string }[] };
      return result.flatMap(({ url }) => /\/dist\/src\/(.*)/.exec(url)?.[1] ?? []);
    });
  } finally {
    rmSync(coverage, { recursive: true });
  }
}

for (const args of [['--version'], ['--help'], ['completion', 'bash'], []])
  test(`${['wick', ...args].join(' ')} reads a handful of files`, () => {
    const read = filesRead(main, ...args);
    assert.ok(read.includes('cli/main.js'), 'what was read is known');
    assert.ok(read.length <= 6, read.join(' '));
  });

for (const command of ['generate', 'chat', 'serve', 'bench', 'embed', 'perplexity'])
  test(`wick ${command} --help reads no code of models`, () => {
    const read = filesRead(main, command, '--help');
    assert.ok(read.includes(`cli/${command}.js`), 'what was read is known');
    assert.ok(read.length <= 30, read.join(' '));
    assert.deepEqual(
      read.filter((f) => /^(tensor|nn|ops|backends|tokenizers|driver)\//.test(f)),
      [],
    );
  });

test('wick devices reads no code that drives GPUs', () => {
  const read = filesRead(main, 'devices');
  assert.ok(read.includes('driver/sim.js'), 'what was read is known');
  assert.deepEqual(
    read.filter((f) => f.startsWith('backends/gpu/')),
    [],
  );
});

test('a program of tensors reads no models, layers, files or GPUs', () => {
  const program = `import { Tensor } from ${JSON.stringify(index)}; Tensor.from([1, 2]).add(3).toArray();`;
  const read = filesRead('--input-type=module', '--eval', program);
  assert.ok(read.includes('backends/cpu.js') && read.includes('tensor/dispatch.js'), 'what was read is known');
  const rooms =
    /^(models|nn|engine|io|tokenizers|hub|data|train|server|distributed|emulator|stand-ins|backends\/gpu)\//;
  assert.deepEqual(
    read.filter((f) => rooms.test(f)),
    [],
  );
});

test('a generation on the CPU reads no code of GPUs, and none of ranks', () => {
  const read = filesRead(main, 'generate', '--device', 'cpu', '--max-tokens', '2', 'Once');
  assert.ok(read.includes('backends/cpu.js') && read.includes('engine/decoder.js'), 'what was read is known');
  const gpu = /^(backends\/gpu|emulator|stand-ins)\/|^driver\/(cuda|hip|sim|nvrtc|hiprtc|head-start|cublaslt)\.js/;
  assert.deepEqual(
    read.filter((f) => gpu.test(f) || /^distributed\/(?!launcher)/.test(f)),
    [],
  );
});
