// Verdicts: how a result stands against numbers from elsewhere, element by element, the worst element deciding.
import { DTYPE, type DType, DTYPES, isFloat, type Value } from '../base/dtype.js';
import { UnsupportedError, WickError } from '../base/errors.js';
import { ulpOf } from '../testing/compare.js';

/**
 * From best to worst. 'closer' is nearer to the double-precision result than the other side is; 'differs' is
 * deliberate, with a reason.
 */
export const VERDICTS = ['exact', 'within', 'closer', 'differs', 'unsupported', 'failed'] as const;
export type Verdict = (typeof VERDICTS)[number];
export type Counts = Record<Verdict, number>;
export const noCounts = (): Counts => ({ exact: 0, within: 0, closer: 0, differs: 0, unsupported: 0, failed: 0 });
export const worse = (a: Verdict, b: Verdict): Verdict => (VERDICTS.indexOf(a) >= VERDICTS.indexOf(b) ? a : b);

/** What an error thrown by a case means. A defect fails its case like a wrong number, and the other cases go on. */
export function caught(e: unknown): { readonly verdict: 'unsupported' | 'failed'; readonly why: string } {
  if (e instanceof UnsupportedError) return { verdict: 'unsupported', why: e.message };
  return {
    verdict: 'failed',
    why: e instanceof WickError ? String(e) : `not what the op takes, or a defect of ours: ${String(e)}`,
  };
}
/** The sentence about a dtype that is not one of ours; undefined for those. */
export const unknownDType = (name: string): string | undefined =>
  Object.hasOwn(DTYPE, name) ? undefined : `${name} is not one of the dtypes here: ${DTYPES.join(', ')}`;

export interface Judged {
  readonly verdict: 'exact' | 'within' | 'closer' | 'failed';
  /**
   * Largest distance from the other side, and of both sides from the double-precision result, in units in the last
   * place.
   */
  readonly ulp: number;
  readonly ownUlp?: number;
  readonly theirUlp?: number;
  /** The worst place, in words. */
  readonly why?: string;
}

/** A value rounded to a dtype. */
function rounded(v: Value, dtype: DType): Value {
  const { encode, decode, Raw } = DTYPE[dtype];
  const cell = new Raw(new ArrayBuffer(8), 0, 1);
  cell[0] = encode(v) as never;
  return decode(cell[0]);
}

/** Distance in ulp of the wanted value or of `scale`; Infinity where a NaN, an infinity or an integer differs. */
function distance(got: Value, want: Value, dtype: DType, scale = 0): number {
  if (Object.is(got, want)) return 0;
  if (!isFloat(dtype) || typeof got === 'bigint' || typeof want === 'bigint') return Infinity;
  if (got === want) return 0.5; // the sign of zero
  if (!Number.isFinite(got) || !Number.isFinite(want)) return Infinity;
  return Math.abs(got - want) / ulpOf(Math.max(Math.abs(want), scale), dtype);
}

export interface Sides {
  readonly got: readonly Value[];
  readonly want: readonly Value[];
  /** The double-precision result, unrounded, where there is one. */
  readonly exact?: readonly Value[];
  readonly dtype: DType;
  readonly bound: number;
  /** Sums are judged against the largest result: cancellation makes a single result's own ulp meaningless. */
  readonly normwise: boolean;
}

const largest = (values: readonly Value[]): number =>
  values.reduce<number>((m, v) => (Number.isFinite(Number(v)) ? Math.max(m, Math.abs(Number(v))) : m), 0);

export function judgeValues({ got, want, exact, dtype, bound, normwise }: Sides): Judged {
  if (got.length !== want.length)
    return { verdict: 'failed', ulp: Infinity, why: `${got.length} elements, ${want.length} wanted` };
  const scale = normwise && isFloat(dtype) ? largest(want) : 0;
  let verdict: Judged['verdict'] = 'exact';
  let why: string | undefined;
  let ulp = 0;
  let ownUlp = 0;
  let theirUlp = 0;
  for (let i = 0; i < want.length; i++) {
    const d = distance(got[i], want[i], dtype, scale);
    const own = exact ? fromExact(got[i], exact[i], dtype, scale) : Infinity;
    const their = exact ? fromExact(want[i], exact[i], dtype, scale) : Infinity;
    ulp = Math.max(ulp, d);
    if (exact) [ownUlp, theirUlp] = [Math.max(ownUlp, own), Math.max(theirUlp, their)];
    const here =
      d === 0
        ? 'exact'
        : d <= bound
          ? 'within'
          : own <= Math.max(their, 0.5) && Number.isFinite(own)
            ? 'closer'
            : 'failed';
    if (here === 'failed' && verdict !== 'failed')
      why =
        `element ${i}: got ${String(got[i])}, want ` +
        `${String(want[i])}${exact ? `, exactly ${String(exact[i])}` : ''}: ${d.toPrecision(3)} ulp, allowed ` +
        `${bound}`;
    verdict = worse(verdict, here) as Judged['verdict'];
  }
  return { verdict, ulp, ...(exact && { ownUlp, theirUlp }), ...(why && { why }) };
}

/** Distance from an unrounded result: where that lies beyond the dtype's range, its rounded value must be met. */
function fromExact(v: Value, exact: Value, dtype: DType, scale: number): number {
  if (!isFloat(dtype)) return Infinity;
  const near = rounded(exact, dtype);
  if (
    !Number.isFinite(Number(near)) ||
    !Number.isFinite(Number(exact)) ||
    (Number(near) !== Number(exact) && Math.abs(Number(near) - Number(exact)) > ulpOf(Number(near), dtype))
  ) {
    return Object.is(near, v) ? 0 : Infinity;
  }
  return distance(v, exact, dtype, scale);
}
