// Symbols of Candle's that its golden cases do not name, each against plain loops: f8 throughout, fills, im2col,
// col2im1d, atomic sums, rows of floats.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DType, DTYPE, type Value } from '../src/base/dtype.js';
import { Layout } from '../src/base/layout.js';
import type { ArgValue } from '../src/kernels/declare.js';
import type { Unit } from '../src/kernels/source.js';
import { kernelModule, unitOf } from '../src/backends/gpu/modules.js';
import { decode, SimRunner } from './sim-support.js';

const F8: DType = 'f8e4m3';
const SUFFIX = {
  f32: 'f32',
  f64: 'f64',
  f16: 'f16',
  bf16: 'bf16',
  u8: 'u8',
  u32: 'u32',
  i16: 'i16',
  i32: 'i32',
  i64: 'i64',
  f8e4m3: 'f8_e4m3',
} as const;
const ALL = Object.keys(SUFFIX) as (keyof typeof SUFFIX)[];
/** Candle's kernels of a module among those that begin so. */
const has = (module: string, symbol: string): boolean => kernelModule(module).entries.has(symbol);
const rounded = (dtype: DType, v: Value): Value => DTYPE[dtype].decode(DTYPE[dtype].encode(v));
const bits = (dtype: DType, v: number): number => (DTYPE[dtype].bytes < 4 ? Number(DTYPE[dtype].encode(v)) : v);
/** Small numbers of both signs that every dtype holds: unsigned ones get their magnitudes. */
const numbers = (dtype: DType, n: number, from = 0): number[] =>
  Array.from({ length: n }, (_, i) => ((i * 5 + from) % 13) - 6).map((v) => (dtype[0] === 'u' ? Math.abs(v) : v));
const values = (dtype: DType, list: readonly number[]): Value[] => list.map((v) => (dtype === 'i64' ? BigInt(v) : v));
const shapeInfo = (run: SimRunner, ...layouts: Layout[]): number =>
  run.buffer(BigUint64Array.from(layouts.flatMap((l, i) => [...(i === 0 ? l.shape : []), ...l.strides]).map(BigInt)));

class Bench {
  readonly run: SimRunner;
  readonly unit: Unit;
  readonly #others: readonly Unit[];
  /** Symbols of one module, or of several. */
  constructor(wave: 32 | 64, modules: string | readonly string[], symbols: readonly string[]) {
    this.run = new SimRunner(wave);
    [this.unit, ...this.#others] = [modules].flat().map((m) =>
      unitOf(
        m,
        symbols.filter((s) => has(m, s)),
      ),
    );
  }
  /** Runs a kernel over `count` results and compares them with `want`, rounded once to the dtype. */
  check(
    symbol: string,
    dtype: DType,
    want: readonly Value[],
    args: (out: number) => ArgValue[],
    begin?: readonly Value[],
  ): void {
    const out = begin ? this.run.of(dtype, begin) : this.run.buffer(want.length * DTYPE[dtype].bytes);
    const unit = [this.unit, ...this.#others].find((u) => u.entries.some((e) => e.symbol === symbol));
    this.run.launch(unit ?? this.unit, symbol, 2, 64, args(out));
    const got = decode(dtype, this.run.read(dtype, out, want.length)).map(Number);
    assert.deepEqual(
      got,
      want.map((v) => Number(rounded(dtype, v))),
      symbol,
    );
  }
}

const BINARY: Readonly<Record<string, (a: number, b: number) => number>> = {
  badd: (a, b) => a + b,
  bsub: (a, b) => a - b,
  bmul: (a, b) => a * b,
  bdiv: (a, b) => a / b,
  bminimum: Math.min,
  bmaximum: Math.max,
};
const COMPARE: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

for (const wave of [32, 64] as const) {
  test(`f8: binary, comparing, affine, where and unary kernels, contiguous and transposed, wave ${wave}`, () => {
    const [n, shape] = [60, [6, 10]];
    const a = numbers(F8, n);
    const b = numbers(F8, n, 4).map((v) => v || 2);
    const layouts = [Layout.contiguous(shape), Layout.contiguous([10, 6]).transpose(0, 1)];
    const binary = new Bench(
      wave,
      'candle/binary',
      [...Object.keys(BINARY), ...Object.keys(COMPARE)].map((s) => `${s}_f8_e4m3`),
    );
    for (const l of layouts) {
      const places: number[] = [];
      l.forEach((_, o) => places.push(o));
      const [x, y] = [a, b].map((v) => binary.run.of(F8, v));
      const info = shapeInfo(binary.run, l, l);
      for (const [s, f] of Object.entries(BINARY))
        binary.check(
          `${s}_f8_e4m3`,
          F8,
          places.map((p) => f(a[p], b[p])),
          (out) => [n, 2, info, x, y, out],
        );
      for (const [s, f] of Object.entries(COMPARE))
        binary.check(
          `${s}_f8_e4m3`,
          'u8',
          places.map((p) => Number(f(a[p], b[p]))),
          (out) => [n, 2, info, x, y, out],
        );
    }
    const affine = new Bench(wave, 'candle/affine', ['affine_f8_e4m3']);
    affine.check(
      'affine_f8_e4m3',
      F8,
      a.map((v) => v * 0.5 + 1),
      (out) => [n, 2, shapeInfo(affine.run, layouts[0]), affine.run.of(F8, a), out, bits(F8, 0.5), bits(F8, 1)],
    );
    const ids = ['u8', 'u32', 'i16', 'i32', 'i64'] as const;
    const where = new Bench(
      wave,
      'candle/ternary',
      ids.map((d) => `where_${d}_fp8_e4m3`),
    );
    const mask = Array.from({ length: n }, (_, i) => (i % 3 === 0 ? 1 : 0));
    for (const d of ids) {
      const info = shapeInfo(where.run, layouts[0], layouts[0], layouts[0]);
      where.check(
        `where_${d}_fp8_e4m3`,
        F8,
        mask.map((m, i) => (m ? a[i] : b[i])),
        (out) => [n, 2, info, where.run.of(d, values(d, mask)), where.run.of(F8, a), where.run.of(F8, b), out],
      );
    }
    const unary = new Bench(wave, 'candle/unary', ['uelu_fp8_e4m3', 'upowf_fp8_e4m3']);
    unary.check(
      'upowf_fp8_e4m3',
      F8,
      a.map((v) => v ** 2),
      (out) => [n, 2, shapeInfo(unary.run, layouts[0]), bits(F8, 2), unary.run.of(F8, a), out],
    );
    unary.check(
      'uelu_fp8_e4m3',
      F8,
      a.map((v) => (v > 0 ? v : 2 * Math.expm1(v))),
      (out) => [n, 2, shapeInfo(unary.run, layouts[0]), bits(F8, 2), unary.run.of(F8, a), out],
    );
    for (const bench of [binary, affine, where, unary]) bench.run.free();
  });

  test(`f8: index select, gather, index add and scatter add by every index dtype, wave ${wave}`, () => {
    const ids = ['u8', 'u32', 'i16', 'i32', 'i64'] as const;
    const symbols = ['is', 'gather', 'ia', 'sa']
      .flatMap((s) => ids.map((d) => `${s}_${d}_f8_e4m3`))
      .filter((s) => has('candle/indexing', s));
    assert.equal(symbols.length, 20);
    const bench = new Bench(wave, 'candle/indexing', symbols);
    const [left, source, count, right] = [2, 5, 3, 4];
    const x = numbers(F8, left * source * right);
    const picks = [4, 0, 2];
    for (const d of ids) {
      const index = bench.run.of(d, values(d, picks));
      const info = bench.run.buffer(BigUint64Array.from([3n, 1n]));
      const selected = Array.from(
        { length: left * count * right },
        (_, i) =>
          x[(Math.floor(i / right / count) * source + picks[Math.floor(i / right) % count]) * right + (i % right)],
      );
      bench.check(`is_${d}_f8_e4m3`, F8, selected, (out) => [
        selected.length,
        1,
        info,
        index,
        bench.run.of(F8, x),
        out,
        left,
        source,
        count,
        right,
      ]);
      // Indices of their own for every element.
      const own = Array.from({ length: left * count * right }, (_, i) => (i * 3) % source);
      const at = (i: number): number => Math.floor(i / right / count) * source * right + own[i] * right + (i % right);
      bench.check(
        `gather_${d}_f8_e4m3`,
        F8,
        own.map((_, i) => x[at(i)]),
        (out) => [own.length, bench.run.of(d, values(d, own)), bench.run.of(F8, x), out, left, source, count, right],
      );
      const zeros = new Array<number>(left * source * right).fill(1);
      const added = [...zeros];
      const some = numbers(F8, left * count * right, 3).map((v) => v / 2);
      some.forEach(
        (v, i) =>
          (added[
            (Math.floor(i / right / count) * source + picks[Math.floor(i / right) % count]) * right + (i % right)
          ] += v),
      );
      bench.check(
        `ia_${d}_f8_e4m3`,
        F8,
        added,
        (out) => [index, count, bench.run.of(F8, some), out, left, count, source, right],
        zeros,
      );
      const scattered = [...zeros];
      some.forEach((v, i) => (scattered[at(i)] = Number(rounded(F8, scattered[at(i)] + v))));
      bench.check(
        `sa_${d}_f8_e4m3`,
        F8,
        scattered,
        (out) => [bench.run.of(d, values(d, own)), bench.run.of(F8, some), out, left, count, source, right],
        zeros,
      );
    }
    bench.run.free();
  });

  test(`fill, copy2d and const_set of every dtype, wave ${wave}`, () => {
    const symbols = ['fill', 'copy2d', 'const_set'].flatMap((s) => ALL.map((d) => `${s}_${SUFFIX[d]}`));
    const bench = new Bench(wave, ['fill', 'candle/fill'], symbols);
    for (const d of ALL) {
      const scalar: ArgValue = d === 'i64' ? 3n : bits(d, 3);
      const base = values(d, numbers(d, 30));
      bench.check(`fill_${SUFFIX[d]}`, d, values(d, new Array<number>(30).fill(3)), (out) => [out, scalar, 30], base);
      const want = base.map((v, i) => (i % 6 < 4 ? values(d, numbers(d, 35, 2))[Math.floor(i / 6) * 7 + (i % 6)] : v));
      bench.check(
        `copy2d_${SUFFIX[d]}`,
        d,
        want,
        (out) => [bench.run.of(d, values(d, numbers(d, 35, 2))), out, 5, 4, 7, 6],
        base,
      );
      const half = base.map((v, i) => (i % 2 === 0 ? values(d, [3])[0] : v));
      bench.check(
        `const_set_${SUFFIX[d]}`,
        d,
        half,
        (out) => [15, 1, bench.run.buffer(BigUint64Array.from([15n, 2n])), scalar, out],
        base,
      );
    }
    bench.run.free();
  });

  test(`im2col, im2col1d and col2im1d of every dtype they have, wave ${wave}`, () => {
    const dtypes = ['f32', 'f64', 'f16', 'bf16', 'u8', 'u32'] as const;
    const bench = new Bench(
      wave,
      'candle/conv',
      ['im2col', 'im2col1d', 'col2im1d'].flatMap((s) => dtypes.map((d) => `${s}_${d}`)),
    );
    const [batch, channels, height, width, hk, wk, stride, padding, dilation] = [2, 3, 5, 6, 3, 2, 2, 1, 1];
    const [ho, wo] = [
      [height, hk],
      [width, wk],
    ].map(([size, k]) => Math.floor((size + 2 * padding - dilation * (k - 1) - 1) / stride) + 1);
    for (const d of dtypes) {
      const x = numbers(d, batch * channels * height * width);
      const info = shapeInfo(bench.run, Layout.contiguous([batch, channels, height, width]));
      const want: number[] = [];
      for (let b = 0; b < batch; b++)
        for (let y = 0; y < ho; y++)
          for (let z = 0; z < wo; z++)
            for (let c = 0; c < channels; c++)
              for (let p = 0; p < hk; p++)
                for (let q = 0; q < wk; q++) {
                  const [r, s] = [y * stride + p * dilation - padding, z * stride + q * dilation - padding];
                  want.push(
                    r >= 0 && r < height && s >= 0 && s < width ? x[((b * channels + c) * height + r) * width + s] : 0,
                  );
                }
      bench.check(`im2col_${d}`, d, want, (out) => [
        want.length,
        ho,
        wo,
        hk,
        wk,
        stride,
        padding,
        dilation,
        info,
        bench.run.of(d, x),
        out,
      ]);
      const line = numbers(d, batch * channels * width);
      const flat: number[] = [];
      for (let b = 0; b < batch; b++)
        for (let z = 0; z < wo; z++)
          for (let c = 0; c < channels; c++)
            for (let q = 0; q < wk; q++) {
              const s = z * stride + q * dilation - padding;
              flat.push(s >= 0 && s < width ? line[(b * channels + c) * width + s] : 0);
            }
      bench.check(`im2col1d_${d}`, d, flat, (out) => [
        flat.length,
        wo,
        wk,
        stride,
        padding,
        dilation,
        shapeInfo(bench.run, Layout.contiguous([batch, channels, width])),
        bench.run.of(d, line),
        out,
      ]);
      const [lengthIn, k, step] = [5, 4, 2];
      const lengthOut = (lengthIn - 1) * step + k;
      const windows = numbers(d, batch * lengthIn * channels * k);
      const sums = new Array<number>(batch * channels * lengthOut).fill(0);
      for (let b = 0; b < batch; b++)
        for (let l = 0; l < lengthIn; l++)
          for (let c = 0; c < channels; c++)
            for (let q = 0; q < k; q++) {
              sums[(b * channels + c) * lengthOut + l * step + q] +=
                windows[((b * lengthIn + l) * channels + c) * k + q];
            }
      bench.check(`col2im1d_${d}`, d, sums, (out) => [
        sums.length,
        lengthOut,
        lengthIn,
        channels,
        k,
        step,
        bench.run.of(d, windows),
        out,
      ]);
    }
    bench.run.free();
  });

  test(`sums by atomic additions, of contiguous and transposed tensors, wave ${wave}`, () => {
    const dtypes = ['f32', 'f64', 'f16', 'bf16', 'u32'] as const;
    const bench = new Bench(
      wave,
      'candle/reduce',
      dtypes.map((d) => `sum_${d}`),
    );
    for (const d of dtypes)
      for (const l of [Layout.contiguous([4, 6]), Layout.contiguous([6, 4]).transpose(0, 1)]) {
        const x = numbers(d, 24);
        const want = new Array<number>(4).fill(0);
        l.forEach((i, o) => (want[Math.floor(i / 6)] += x[o]));
        // Dimensions and strides, then length and step of each dimension summed over; results keep the step of what is
        // left of them.
        const info = bench.run.buffer(BigUint64Array.from([...l.shape, ...l.strides, 6, 1].map(BigInt)));
        bench.check(
          `sum_${d}`,
          d,
          want,
          (out) => [24, 2, 1, info, bench.run.of(d, x), out],
          new Array<number>(4).fill(0),
        );
      }
    bench.run.free();
  });

  test(`rows of floats by index, wave ${wave}`, () => {
    const dtypes = ['f32', 'f16', 'bf16'] as const;
    const bench = new Bench(
      wave,
      'candle/quantized',
      dtypes.map((d) => `get_rows_${d}`),
    );
    const [rows, width, ids] = [4, 70, [3, 0, 3]];
    for (const d of dtypes) {
      const x = numbers(d, rows * width);
      const want = ids.flatMap((r) => x.slice(r * width, (r + 1) * width));
      const out = bench.run.buffer(want.length * 4);
      bench.run.launch(bench.unit, `get_rows_${d}`, [ids.length, 1], 32, [
        bench.run.of(d, x),
        bench.run.of('u32', ids),
        out,
        width,
        width * DTYPE[d].bytes,
      ]);
      assert.deepEqual(decode('f32', bench.run.read('f32', out, want.length)), want, d);
    }
    bench.run.free();
  });
}
