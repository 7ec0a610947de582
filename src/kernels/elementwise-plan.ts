// Chooses the elementwise kernel for a set of layouts and packs its arguments: layouts travel by value, so nothing is
// uploaded.
import { type DType, DTYPE, type Value } from '../base/dtype.js';
import { UnsupportedError } from '../base/errors.js';
import { type Layout, mergeDims } from '../base/layout.js';
import type { ArgBuffer } from '../driver/args.js';
import { CTYPE, writeScalar } from './declare.js';
import {
  type Chain,
  flatShape,
  flatTile,
  groupElements,
  LAYOUT32,
  LAYOUT64,
  MAX_DIMS,
  symbolFor,
  transposeGroup,
  transposeTile,
  type Variant,
} from './elementwise.js';

/** What to launch; it depends on layouts and dtypes only, so callers may keep it by shape. */
export interface ElementwisePlan {
  readonly variant: Variant;
  readonly symbol: string;
  /** Blocks of 256 threads in x. */
  readonly grid: number;
  /** Threads of a block. */
  readonly block: number;
  /** Bytes from an operand's memory to its first element: output, then inputs. */
  readonly offsets: readonly number[];
  /** The arguments before the pointers, packed. */
  readonly head: Uint8Array;
}

const LIMIT = 2 ** 31;
const OPERANDS = 5;

/** Numbers such that n / d = (high32(n * magic) + n) >> shift for n below 2^31. */
export function magicDivisor(d: number): { magic: number; shift: number } {
  let shift = 0;
  while (2 ** shift < d) shift++;
  return { magic: Number((2n ** 32n * (2n ** BigInt(shift) - BigInt(d))) / BigInt(d) + 1n), shift };
}

/** Layouts as the kernels take them; numbers from 2^31 on wrap to the same bits. */
function layoutBytes(
  wide: boolean,
  count: number,
  shape: readonly number[],
  strides: readonly (readonly number[])[],
): Uint8Array {
  const sizes = Array.from({ length: MAX_DIMS }, (_, d) => shape[d] ?? 1);
  const steps = Array.from({ length: OPERANDS }, (_, k) => sizes.map((_, d) => strides[k]?.[d] ?? 0)).flat();
  const layout = { count, rank: shape.length, shape: sizes, strides: steps };
  if (wide) return LAYOUT64.pack(layout, Number);
  const divisors = sizes.map(magicDivisor);
  return LAYOUT32.pack({ ...layout, magic: divisors.map((m) => m.magic), shift: divisors.map((m) => m.shift) }, Number);
}

function join(...parts: (Uint8Array | { u32: number } | { i64: number })[]): Uint8Array {
  const bytes = new Uint8Array(512);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const p of parts) {
    if (p instanceof Uint8Array) {
      bytes.set(p, at);
      at += p.length;
    } else if ('u32' in p) {
      view.setUint32(at, p.u32, true);
      at += 4;
    } else {
      at = Math.ceil(at / 8) * 8;
      view.setBigInt64(at, BigInt(p.i64), true);
      at += 8;
    }
  }
  return bytes.slice(0, at);
}

const constant = (l: Layout): boolean => l.strides.every((s, i) => s === 0 || l.shape[i] === 1);

/**
 * Layouts of the output and the inputs, all of one shape with at least one element; broadcast dimensions have stride 0.
 * `wide` asks for 64 bits.
 */
export function planElementwise(c: Chain, out: Layout, inputs: readonly Layout[], wide = false): ElementwisePlan {
  const all = [out, ...inputs];
  const dtypes = [c.output, ...c.inputs];
  const offsets = all.map((l, i) => l.offset * DTYPE[dtypes[i]].bytes);
  const plan = (variant: Variant, grid: number, head: Uint8Array): ElementwisePlan => ({
    variant,
    symbol: symbolFor(c, variant),
    grid,
    block: variant === 'flat' ? flatShape(c).block : 256,
    offsets,
    head,
  });

  if (out.isContiguous && inputs.every((l) => l.isContiguous || constant(l))) {
    let scalars = 0;
    inputs.forEach((l, i) => (scalars |= out.size > 1 && constant(l) ? 1 << i : 0));
    return plan('flat', Math.ceil(out.size / flatTile(c)), join({ i64: out.size }, { u32: scalars }));
  }

  const { shape, strides } = mergeDims(all);
  if (shape.length > MAX_DIMS) {
    throw new UnsupportedError(
      `${c.name}: the layouts do not merge below ${shape.length} dimensions; kernels take ${MAX_DIMS}; make an ` +
        'operand contiguous',
    );
  }
  const last = shape.length - 1;
  const turned = transposed(c, shape, strides, offsets);
  if (turned) return plan(turned.variant, turned.grid, turned.head);

  // Groups of E: the innermost dimension is contiguous (or still) for everyone and everything is aligned to whole
  // groups.
  const e = groupElements(c);
  const inGroups =
    e > 1 &&
    shape[last] % e === 0 &&
    strides[0][last] === 1 &&
    strides.every(
      (s, k) =>
        s[last] <= 1 &&
        s[last] >= 0 &&
        ((k > 0 && s[last] === 0) || s.every((v, d) => d === last || v % e === 0)) &&
        (s[last] === 0 || offsets[k] % Math.min(16, e * DTYPE[dtypes[k]].bytes) === 0),
    );
  const size = inGroups ? shape.map((d, i) => (i === last ? d / e : d)) : shape;
  const step = inGroups ? strides.map((s) => s.map((v, d) => (d === last ? v * e : v))) : strides;
  const count = inGroups ? out.size / e : out.size;
  const span = Math.max(...strides.map((s) => s.reduce((sum, v, d) => sum + Math.abs(v) * (shape[d] - 1), 0)));
  const w64 = wide || out.size >= LIMIT || span >= LIMIT;
  let splats = 0;
  if (inGroups) strides.slice(1).forEach((s, i) => (splats |= s[last] === 0 ? 1 << i : 0));
  const variant = `${inGroups ? 'groups' : 'strided'}${w64 ? '64' : ''}` as Variant;
  return plan(
    variant,
    Math.ceil(count / (256 * (inGroups ? 2 : 4))),
    join(layoutBytes(w64, count, size, step), { u32: splats }),
  );
}

/** One input that is contiguous along another dimension than the output, both long enough to fill tiles. */
function transposed(
  c: Chain,
  shape: readonly number[],
  strides: readonly (readonly number[])[],
  offsets: readonly number[],
): { variant: Variant; grid: number; head: Uint8Array } | undefined {
  if (strides.length !== 2) return undefined;
  const [to, from] = strides;
  const column = to.indexOf(1);
  const row = from.findIndex((s, d) => s === 1 && d !== column);
  if (
    column < 0 ||
    row < 0 ||
    from[column] === 1 ||
    shape[row] < 16 ||
    shape[column] < 16 ||
    shape[row] >= LIMIT ||
    shape[column] >= LIMIT
  )
    return undefined;
  const tile = transposeTile(c);
  const rest = shape.map((_, d) => d).filter((d) => d !== row && d !== column);
  const batches = rest.reduce((n, d) => n * shape[d], 1);
  const grid = batches * Math.ceil(shape[row] / tile) * Math.ceil(shape[column] / tile);
  if (grid >= LIMIT) return undefined;
  const e = transposeGroup(c);
  const whole = (v: number): boolean => v % e === 0;
  const inGroups =
    whole(shape[row]) &&
    whole(shape[column]) &&
    to.every((v, d) => d === column || whole(v)) &&
    from.every((v, d) => d === row || whole(v)) &&
    offsets.every((o, k) => o % Math.min(16, e * DTYPE[k === 0 ? c.output : c.inputs[0]].bytes) === 0);
  const layout = layoutBytes(
    true,
    batches,
    rest.map((d) => shape[d]),
    [rest.map((d) => to[d]), rest.map((d) => from[d])],
  );
  return {
    variant: inGroups ? 'transposeGroups' : 'transpose',
    grid,
    head: join(layout, { u32: shape[row] }, { u32: shape[column] }, { i64: to[row] }, { i64: from[column] }),
  };
}

/** Fills the argument buffer: addresses of the memory of output and inputs, scalars in the chain's order. */
export function packElementwise(
  args: ArgBuffer,
  c: Chain,
  plan: ElementwisePlan,
  addresses: readonly number[],
  scalars: readonly Value[],
): void {
  args.reset().struct(plan.head, 8);
  addresses.forEach((a, i) => args.pointer(a + plan.offsets[i]));
  scalars.forEach((v, i) => packScalar(args, c.scalars[i], v));
}

/** A scalar parameter of an element type, converted as tensors of that type are filled. */
export function packScalar(args: ArgBuffer, dtype: DType, value: Value): void {
  const raw = DTYPE[dtype].encode(value);
  if (typeof raw === 'bigint') args.bigint(raw);
  else writeScalar(args, CTYPE[dtype], raw);
}
