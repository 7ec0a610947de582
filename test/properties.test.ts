// Properties on random shapes: layouts against an index-by-index model, broadcasting rules, and number formats bit by
// bit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import '../src/index.js';
import { DTYPE, type DType, isFloat, NUMBERS } from '../src/base/dtype.js';
import { fromBf16Bits, fromF16Bits, fromF8Bits, toBf16Bits, toF16Bits, toF8Bits } from '../src/base/float.js';
import { Layout, mergeDims, sliceBounds } from '../src/base/layout.js';
import { broadcastShapes, contiguousStrides, resolveReshape, sizeOf } from '../src/base/shape.js';
import { castValue } from '../src/ops/movement.js';
import { erf, roundAway, roundEven } from '../src/base/special.js';

const dims = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 5 });
const shapes = dims.filter((s) => sizeOf(s) <= 400);

/** A tensor as a function from indices to storage: what every layout must agree with. */
interface Model {
  readonly shape: readonly number[];
  readonly at: (index: readonly number[]) => number;
}
const start = (shape: readonly number[]): Model => {
  const strides = contiguousStrides(shape);
  return { shape, at: (i) => i.reduce((a, k, d) => a + k * strides[d], 0) };
};
function* indices(shape: readonly number[]): Generator<number[]> {
  const n = sizeOf(shape);
  for (let k = 0; k < n; k++) {
    let rest = k;
    yield shape.map((_, d) => {
      const inner = sizeOf(shape.slice(d + 1));
      const i = Math.floor(rest / inner);
      rest %= inner;
      return i;
    });
  }
}
const elements = (m: Model): number[] => [...indices(m.shape)].map((i) => m.at(i));
const stored = (l: Layout): number[] => {
  const out: number[] = [];
  l.forEach((at, index) => {
    out[at] = index;
  });
  return out;
};
const agree = (l: Layout, m: Model): void => {
  assert.deepEqual([...l.shape], [...m.shape]);
  assert.deepEqual(stored(l), elements(m));
};

type Step = { op: 'permute' | 'slice' | 'unsqueeze' | 'broadcast'; a: number; b: number; c: number };
const steps = fc.array(
  fc.record({
    op: fc.constantFrom('permute', 'slice', 'unsqueeze', 'broadcast') as fc.Arbitrary<Step['op']>,
    a: fc.nat(9),
    b: fc.nat(9),
    c: fc.integer({ min: 1, max: 3 }),
  }),
  { maxLength: 5 },
);

function apply(l: Layout, m: Model, { op, a, b, c }: Step): [Layout, Model] {
  const rank = m.shape.length;
  if (op === 'unsqueeze') {
    const d = a % (rank + 1);
    return [l.unsqueeze(d), { shape: m.shape.toSpliced(d, 0, 1), at: (i) => m.at(i.toSpliced(d, 1)) }];
  }
  if (op === 'broadcast') {
    const shape = [c, ...m.shape.map((n) => (n === 1 ? c : n))];
    return [
      l.broadcastTo('test', shape),
      { shape, at: (i) => m.at(i.slice(1).map((k, d) => (m.shape[d] === 1 ? 0 : k))) },
    ];
  }
  if (rank === 0) return [l, m];
  const d = a % rank;
  if (op === 'permute') {
    const order = m.shape.map((_, i) => (i + b) % rank);
    return [
      l.permute(order),
      { shape: order.map((k) => m.shape[k]), at: (i) => m.at(order.map((_, k) => i[order.indexOf(k)])) },
    ];
  }
  const s = sliceBounds('test', m.shape[d], b % (m.shape[d] + 1), undefined, c);
  return [
    l.slice(d, s.start, s.length, c),
    {
      shape: m.shape.map((n, k) => (k === d ? s.length : n)),
      at: (i) => m.at(i.map((k, e) => (e === d ? s.start + k * c : k))),
    },
  ];
}

test('views agree with an index-by-index model, whatever their order', () => {
  fc.assert(
    fc.property(shapes, steps, (shape, list) => {
      let l = Layout.contiguous(shape);
      let m = start(shape);
      for (const s of list) {
        if (sizeOf(m.shape) > 2000) break;
        [l, m] = apply(l, m, s);
      }
      agree(l, m);
    }),
    { numRuns: 500 },
  );
});

test('a reshape without a copy lists the same storage in the same order', () => {
  fc.assert(
    fc.property(shapes, steps, fc.nat(20), (shape, list, salt) => {
      let l = Layout.contiguous(shape);
      let m = start(shape);
      for (const s of list) if (sizeOf(m.shape) <= 500) [l, m] = apply(l, m, s);
      const n = l.size;
      const divisors = Array.from({ length: Math.min(n, 40) }, (_, i) => i + 1).filter((d) => n % d === 0);
      const target = n === 0 ? [0, salt] : [divisors[salt % divisors.length], n / divisors[salt % divisors.length]];
      const view = l.reshape(target);
      if (view) {
        assert.deepEqual([...view.shape], target);
        assert.deepEqual(stored(view), stored(l));
      } else assert.ok(!l.isContiguous, 'a contiguous layout always reshapes');
    }),
    { numRuns: 500 },
  );
});

test('a reshape is refused only when one stride cannot serve', () => {
  // Splitting a dimension never needs a copy, whatever the strides.
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 3 }),
      (a, b, step) => {
        const l = Layout.contiguous([a * b * step, 3])
          .slice(0, 0, a * b, step)
          .permute([1, 0]);
        const view = l.reshape([3, a, b]);
        assert.ok(view);
        assert.deepEqual(stored(view), stored(l));
      },
    ),
  );
});

test('contiguous means row-major without gaps', () => {
  fc.assert(
    fc.property(shapes, steps, (shape, list) => {
      let l = Layout.contiguous(shape);
      let m = start(shape);
      for (const s of list) if (sizeOf(m.shape) <= 500) [l, m] = apply(l, m, s);
      const places = elements(m);
      assert.equal(
        l.isContiguous,
        places.every((p, i) => p === places[0] + i),
        `${l.shape} ${l.strides}`,
      );
    }),
    { numRuns: 500 },
  );
});

test('merged dimensions visit the same places in every layout at once', () => {
  fc.assert(
    fc.property(shapes, steps, (shape, list) => {
      let l = Layout.contiguous(shape);
      let m = start(shape);
      for (const s of list) if (sizeOf(m.shape) <= 500) [l, m] = apply(l, m, s);
      const other = Layout.contiguous(l.shape);
      const merged = mergeDims([l, other]);
      assert.equal(sizeOf(merged.shape), l.size);
      assert.ok(merged.shape.length <= l.rank);
      [l, other].forEach((layout, k) =>
        assert.deepEqual(stored(new Layout(merged.shape, merged.strides[k], layout.offset)), stored(layout)),
      );
    }),
    { numRuns: 500 },
  );
});

test('slice bounds are those of Python', () => {
  fc.assert(
    fc.property(
      fc.nat(9),
      fc.option(fc.integer({ min: -12, max: 12 }), { nil: undefined }),
      fc.option(fc.integer({ min: -12, max: 12 }), { nil: undefined }),
      fc.integer({ min: 1, max: 4 }),
      (n, a, b, step) => {
        const { start: from, length } = sliceBounds('test', n, a, b, step);
        const want = Array.from({ length: n }, (_, i) => i)
          .slice(a, b)
          .filter((_, i) => i % step === 0);
        assert.deepEqual(
          Array.from({ length }, (_, i) => from + i * step),
          want,
        );
      },
    ),
  );
});

test('broadcasting is symmetric, associative and explained when refused', () => {
  fc.assert(
    fc.property(dims, dims, dims, (a, b, c) => {
      const of = (...s: number[][]): readonly number[] | string => {
        try {
          return [...broadcastShapes('test', ...s)];
        } catch (e) {
          return (e as { code: string }).code;
        }
      };
      assert.deepEqual(of(a, b), of(b, a));
      assert.deepEqual(of(a, b, c), of(c, b, a));
      const ab = of(a, b);
      const rank = Math.max(a.length, b.length);
      const padded = [a, b].map((s) => [...new Array<number>(rank - s.length).fill(1), ...s]);
      const fits = padded[0].every((d, i) => d === padded[1][i] || d === 1 || padded[1][i] === 1);
      assert.deepEqual(ab, fits ? padded[0].map((d, i) => (d === 1 ? padded[1][i] : d)) : 'E_SHAPE');
    }),
  );
});

test('a -1 in a reshape is what fills it up', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 }), fc.nat(3), (shape, k) => {
      const at = k % shape.length;
      assert.deepEqual(
        resolveReshape(
          'test',
          shape,
          shape.map((d, i) => (i === at ? -1 : d)),
        ),
        shape,
      );
    }),
  );
});

const SMALL = [
  { name: 'f16', bits: 16, to: toF16Bits, from: fromF16Bits, infinite: true, max: 65504 },
  { name: 'bf16', bits: 16, to: toBf16Bits, from: fromBf16Bits, infinite: true, max: fromBf16Bits(0x7f7f) },
  { name: 'f8e4m3', bits: 8, to: toF8Bits, from: fromF8Bits, infinite: false, max: 448 },
] as const;

for (const f of SMALL) {
  test(`every ${f.name} survives a round trip`, () => {
    for (let b = 0; b < 2 ** f.bits; b++) {
      const v = f.from(b);
      if (v === v) assert.equal(f.to(v), b, `bits ${b.toString(16)}`);
      else assert.ok(Number.isNaN(f.from(f.to(v))));
    }
  });
  test(`between neighbours ${f.name} rounds to the nearest, and to even from the middle`, () => {
    for (let b = 0; b < 2 ** (f.bits - 1) - 1; b++) {
      const [lo, up] = [f.from(b), f.from(b + 1)];
      if (!Number.isFinite(lo) || !Number.isFinite(up)) continue;
      const middle = (lo + up) / 2; // exact: both have few bits
      assert.equal(f.to(middle), b % 2 === 0 ? b : b + 1, `middle of ${lo} and ${up}`);
      const nudge = (up - lo) / 1024;
      assert.equal(f.to(middle - nudge), b);
      assert.equal(f.to(middle + nudge), b + 1);
      assert.equal(f.to(-middle), (b % 2 === 0 ? b : b + 1) | (1 << (f.bits - 1)));
    }
  });
  test(
    `beyond its range ${f.name} ` +
      `${f.infinite ? 'becomes infinite half a unit above the largest' : 'stays at the largest'}`,
    () => {
      assert.equal(f.from(f.to(f.max)), f.max);
      assert.equal(f.from(f.to(Infinity)), f.infinite ? Infinity : f.max);
      assert.equal(f.from(f.to(-1e300)), f.infinite ? -Infinity : -f.max);
      const unit = f.max - f.from(f.to(f.max) - 1);
      assert.equal(f.from(f.to(f.max + unit / 2 - unit / 64)), f.max);
      assert.equal(f.from(f.to(f.max + unit / 2)), f.infinite ? Infinity : f.max);
    },
  );
}

test('f32 and f64 keep what they hold; integers wrap', () => {
  fc.assert(
    fc.property(fc.double(), (v) => {
      assert.ok(Object.is(DTYPE.f64.decode(DTYPE.f64.encode(v) as number), v));
    }),
  );
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }), (v) => {
      for (const d of NUMBERS) {
        if (isFloat(d)) continue;
        const { bytes, kind, decode, encode, Raw } = DTYPE[d];
        const cell = new Raw(new ArrayBuffer(8), 0, 1);
        cell[0] = encode(v) as never;
        assert.equal(decode(cell[0]), (kind === 'int' ? BigInt.asIntN : BigInt.asUintN)(bytes * 8, v));
      }
    }),
  );
});

test('floats become integers by truncation and saturation', () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true }), fc.constantFrom<DType>('u8', 'u32', 'i16', 'i32', 'i64'), (v, d) => {
      const { bytes, kind } = DTYPE[d];
      const max = 2n ** BigInt(bytes * 8 - (kind === 'int' ? 1 : 0)) - 1n;
      const min = kind === 'int' ? -max - 1n : 0n;
      const whole = Number.isFinite(v) ? BigInt(Math.trunc(v)) : v > 0 ? max : min;
      assert.equal(castValue(v, d), whole > max ? max : whole < min ? min : whole);
    }),
  );
  for (const d of NUMBERS) if (!isFloat(d)) assert.equal(castValue(NaN, d), 0n);
  assert.deepEqual(
    [NaN, 0.25, -0, 0, 256n, 0n].map((v) => castValue(v, 'bool')),
    [1n, 1n, 0n, 0n, 1n, 0n],
  );
});

test('integers become floats rounded once', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (v) => {
      const near = DTYPE.f16.decode(DTYPE.f16.encode(castValue(v, 'f16')) as number) as number;
      if (!Number.isFinite(near)) assert.ok((v < 0n ? -v : v) >= 65520n);
      else {
        // No f16 is nearer: its neighbours are at least as far.
        const bits = toF16Bits(near);
        const off = (x: number): bigint => {
          const d = BigInt(x) - v;
          return d < 0n ? -d : d;
        };
        for (const n of [bits - 1, bits + 1]) {
          const other = fromF16Bits(n);
          if (Number.isInteger(other)) assert.ok(off(other) >= off(near));
        }
      }
    }),
  );
});

test('rounding keeps the sign of zero and leaves whole numbers alone', () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true }), (v) => {
      for (const f of [roundAway, roundEven]) {
        const r = f(v);
        if (!Number.isFinite(v)) {
          assert.equal(r, v);
          continue;
        }
        assert.ok(Math.abs(r - v) <= 0.5, `${f.name}(${v}) = ${r}`);
        assert.ok(Number.isInteger(r));
        assert.equal(Object.is(Math.sign(r), -0) || r < 0, v < 0 || Object.is(v, -0), `sign of ${f.name}(${v})`);
        if (Number.isInteger(v)) assert.ok(Object.is(r, v));
      }
      if (Math.abs(v) < 2 ** 51 && Math.abs(v - Math.trunc(v)) === 0.5) {
        assert.equal(roundEven(v) % 2, Math.sign(roundEven(v)) * 0);
        assert.ok(Math.abs(roundAway(v)) > Math.abs(v));
      }
    }),
    {
      numRuns: 2000,
      examples: [
        [0.5],
        [-0.5],
        [1.5],
        [2.5],
        [-2.5],
        [0.49999999999999994],
        [-0.49999999999999994],
        [4503599627370495.5],
        [9007199254740993],
      ],
    },
  );
});

test('erf is odd, rises and ends at one', () => {
  fc.assert(
    fc.property(fc.double({ min: -7, max: 7, noNaN: true }), fc.double({ min: 0, max: 1, noNaN: true }), (x, dx) => {
      assert.ok(Object.is(erf(-x), -erf(x)) || x === 0);
      assert.ok(erf(x + dx) >= erf(x) - 2e-16);
      assert.ok(Math.abs(erf(x)) <= 1);
    }),
  );
  assert.equal(erf(7), 1);
});
