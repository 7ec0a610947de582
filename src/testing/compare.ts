// Comparing results: units in the last place by dtype, with NaN and signed zeros in mind.
import { DTYPE, type DType, isFloat, type Value } from '../base/dtype.js';
import { type Bound, boundFor } from '../ops/op.js';

const MANTISSA: Partial<Record<DType, readonly [bits: number, minExponent: number]>> = {
  f64: [52, -1022],
  f32: [23, -126],
  bf16: [7, -126],
  f16: [10, -14],
  f8e4m3: [3, -6],
  f8e5m2: [2, -14],
};

/** Spacing of representable values around |x|. */
export function ulpOf(x: number, dtype: DType): number {
  const [bits, min] = MANTISSA[dtype] as readonly [number, number];
  const a = Math.abs(x);
  const e = a === 0 || !Number.isFinite(a) ? min : Math.max(min, Math.floor(Math.log2(a)));
  return 2 ** (e - bits);
}

export interface Difference {
  /** Largest error in units in the last place (Infinity where a NaN, infinity or integer differs). */
  readonly ulp: number;
  readonly exact: number;
  readonly count: number;
  /** The worst place, for messages. */
  readonly at: number;
  readonly got?: Value;
  readonly want?: Value;
}

/**
 * Errors in ulp of the wanted value, or of the largest wanted magnitude where `normwise` (sums: cancellation makes the
 * result's own ulp meaningless), but never of less than a hundredth of the largest input: a variance of equal numbers
 * is 0 with the rounding of their mean.
 */
export function difference(
  got: readonly Value[],
  want: readonly Value[],
  dtype: DType,
  normwise = false,
  inputScale = 0,
): Difference {
  let worst = 0;
  let at = 0;
  let exact = 0;
  const tiny = 2 ** (MANTISSA[dtype]?.[1] ?? 0);
  const scale = normwise
    ? want.reduce<number>(
        (m, v) => (Number.isFinite(Number(v)) ? Math.max(m, Math.abs(Number(v))) : m),
        inputScale / 100,
      )
    : 0;
  if (got.length !== want.length)
    return { ulp: Infinity, exact: 0, count: want.length, at: Math.min(got.length, want.length) };
  for (let i = 0; i < want.length; i++) {
    const g = got[i];
    const w = want[i];
    if (Object.is(g, w)) {
      exact++;
      continue;
    }
    let u: number;
    if (!isFloat(dtype) || typeof g === 'bigint' || typeof w === 'bigint') u = Infinity;
    else if (g === w)
      u = 0.5; // only the sign of zero differs
    else if (!Number.isFinite(g) || !Number.isFinite(w)) u = besideInfinity(g, w, dtype);
    else if (scale < tiny && Math.max(Math.abs(g), Math.abs(w)) < tiny)
      // An intermediate below the normal range has few bits.
      u = Math.abs(g - w) / Math.max(ulpOf(0, dtype), tiny * 2 ** -10);
    else u = Math.abs(g - w) / ulpOf(Math.max(Math.abs(w), scale), dtype);
    if (u > worst) {
      worst = u;
      at = i;
    }
  }
  return { ulp: worst, exact, count: want.length, at, got: got[at], want: want[at] };
}

/** The largest finite value beside an infinity of its sign is one unit away; anything else is wrong. */
function besideInfinity(g: number, w: number, dtype: DType): number {
  const finite = Number.isFinite(g) ? g : w;
  const other = finite === g ? w : g;
  if (other !== other || Number.isFinite(other) || Math.sign(finite) !== Math.sign(other)) return Infinity;
  const next = Math.abs(finite) + ulpOf(finite, dtype);
  const { encode, decode, Raw } = DTYPE[dtype];
  const cell = new Raw(new ArrayBuffer(8), 0, 1);
  cell[0] = encode(next) as never;
  return decode(cell[0]) === Infinity ? 1 : Infinity;
}

/** undefined when within the bound, else a sentence. */
export function judge(d: Difference, bound: Bound, dtype: DType): string | undefined {
  const allowed = boundFor(bound, dtype);
  if (d.ulp <= allowed) return undefined;
  return (
    `element ${d.at}: got ${String(d.got)}, ` +
    `want ${String(d.want)}: ${
      Number.isFinite(d.ulp) ? `${d.ulp.toPrecision(3)} ` + `ulp` : 'different'
    }, allowed ${allowed}`
  );
}
