// Signatures: the pinned manifest, and a checkout read as text, here a small one of our own making.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import '../src/index.js';
import { readManifest } from '../src/parity/manifest.js';
import { opList } from '../src/ops/table.js';
import { readCandle } from '../src/parity/candle-source.js';
import { originOf, sourceOf } from '../src/parity/origin.js';
import { compareSignatures } from '../src/parity/signatures.js';

function checkout(files: Readonly<Record<string, string>>, check: (dir: string) => void): void {
  const dir = mkdtempSync(join(tmpdir(), 'wick-candle-'));
  try {
    const src = join(dir, 'candle-kernels', 'src');
    mkdirSync(src, { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(src, name), text);
    check(dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

test("991 of 991 kernels are here with Candle's parameters", () => {
  const s = compareSignatures();
  assert.deepEqual(s.problems, []);
  assert.equal(
    s.files.reduce((n, f) => n + f.present - f.different.length, 0),
    991,
  );
  assert.equal(s.files.length, 12);
  assert.ok(s.extra.length > 100);
});

test('every pinned kernel has a file and a line', () => {
  const kernels = readManifest().filter((s) => s.kind === 'global');
  assert.equal(kernels.length, 991);
  assert.deepEqual(
    kernels.filter((s) => !s.line).map((s) => s.symbol),
    [],
  );
});

test('rows with a Candle kernel name ones that exist', () => {
  for (const row of opList) {
    const o = originOf(row);
    if (typeof o === 'string') assert.ok(o.length > 5, row.name);
    else {
      assert.ok(
        o.symbols.length > 0,
        `${row.name}: no kernel of Candle's begins with ${'symbol' in row.candle ? row.candle.symbol : ''}`,
      );
      assert.ok(sourceOf(row), `${row.name}: no source of ours`);
    }
  }
});

test('macros, guards, headers and comments of a checkout are read as a compiler would', () => {
  checkout(
    {
      'macros.cuh':
        '#define MAKE(T, NAME, EXPR) \\\nextern "C" __global__ void NAME(const size_t n, \\\n  const T *x, T *y) ' +
        '{ y[0] = EXPR; }\n#define BOTH(N, E) MAKE(float, N##_f32, E) \\\n MAKE(double, N##_f64, E)\n',
      'unary.cu':
        '#include "macros.cuh"\n// MAKE(float, commented_f32, x[0])\n#if __CUDA_ARCH__ >= 800\nMAKE(__half, ' +
        'plain_f16, x[0])\n#endif\nBOTH(pair, f(x[0], 2))\n/* extern "C" __global__ void hidden(int a) {} ' +
        '*/\nextern "C" __global__ void __launch_bounds__(256, 1) direct(\n    const float * __restrict__ a, ' +
        '// first\n    unsigned int b) { }\ntemplate <typename T> __global__ void no_symbol(T* x) {}\n',
    },
    (dir) => {
      assert.deepEqual(
        readCandle(dir).symbols.map((s) => [s.symbol, s.file, s.line, s.params]),
        [
          ['direct', 'unary.cu', 8, ['const float* a', 'unsigned int b']],
          ['plain_f16', 'unary.cu', 4, ['const size_t n', 'const __half* x', '__half* y']],
          ['pair_f32', 'unary.cu', 6, ['const size_t n', 'const float* x', 'float* y']],
          ['pair_f64', 'unary.cu', 6, ['const size_t n', 'const double* x', 'double* y']],
        ],
      );
    },
  );
});

test('a checkout that has moved on is told apart: added, removed, changed, missing and different', () => {
  const relu = readManifest().find((s) => s.symbol === 'urelu_f32');
  assert.ok(relu);
  checkout(
    {
      'unary.cu':
        `extern "C" __global__ void urelu_f32(${relu.params.join(', ')}) {}\nextern "C" __global__ void ` +
        'uexp_f32(int surprise) {}\nextern "C" __global__ void unew_f32(float* x) {}\n',
    },
    (dir) => {
      const s = compareSignatures(dir);
      assert.deepEqual(s.problems, [
        'unary.cu:3 unew_f32: missing here',
        'unary.cu:2 uexp_f32: 5 parameters, Candle has 1',
      ]);
      assert.deepEqual(s.moved?.added, ['unary.cu:3 unew_f32']);
      assert.equal(s.moved?.changed.length, 1);
      assert.match(s.moved?.changed[0] ?? '', /^unary\.cu:2 uexp_f32\(int surprise\), was \(const size_t numel/);
      assert.equal(s.moved?.removed.length, 989);
    },
  );
});

test('a folder that is not a checkout is refused by name', () => {
  assert.throws(() => compareSignatures(tmpdir()), /holds no Candle checkout/);
});
