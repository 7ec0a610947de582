// One token through products with weights in ggml's blocks: kernels/decode-weights.hip.
import { ggmlType } from '../../base/blocks/types.js';
import { ShapeError, UnsupportedError } from '../../base/errors.js';
import type { DeviceInfo } from '../../driver/driver.js';
import { CTYPE, KernelModule } from '../../kernels/declare.js';
import { BLOCK_TYPES, type BlockType } from '../../ops/quantized.js';
import type { View } from '../backend.js';
import { areTwo, DECODE_TYPES, type DecodeType, gateNumber, TWO_TYPES } from '../generation.js';
import { type NormKind, NORMS, normName, normType, wanted } from './decode-tiles.js';
import { addressOf, ceilDiv, type Launch, launch } from './plan.js';
import { QUICK_THREADS, quickBlock, rowsFor, stagesFor } from './quantized.js';
import { hasLongCopies, ROW_TYPES, type RowType, rowsBlock, rowsBody } from './weight-rows.js';

export const DECODE_WEIGHTS = new KernelModule('decode-weights');
type Kind = 'product' | 'gate';
/** Rows of weights that a group multiplies at once; a gate has two rows. */
const rowsOf = (kind: Kind, type: BlockType): number => (kind === 'gate' ? 2 : rowsFor(type, 1));
/** What all kernels take, but for the weights themselves. */
const sidesOf = (dtype: DecodeType, norm: NormKind) =>
  ({
    x: `const ${CTYPE[dtype]}*`,
    norm: `const ${normType(dtype, norm)}*`,
    eps: 'float',
    bias: `const ${CTYPE[dtype]}*`,
    out: `${CTYPE[dtype]}*`,
    n: 'i64',
  }) as const;
const product = DECODE_WEIGHTS.declare({
  each: { type: BLOCK_TYPES, dtype: DECODE_TYPES, norm: NORMS, kind: ['product', 'gate'] },
  only: wanted,
  symbol: ({ type, dtype, norm, kind }) => `decode_${kind}_${type.toLowerCase()}_${dtype}${normName(norm)}`,
  body: ({ type, dtype, norm, kind }) => ({
    threads: QUICK_THREADS,
    params: {
      ...sidesOf(dtype, norm),
      residual: `const ${CTYPE[dtype]}*`,
      best: 'u64*',
      w: 'const u8*',
      act: 'i32',
      rows: 'i64',
      rowBytes: 'i64',
    },
    call: `decode_weights<${type}, ${rowsOf(kind, type)}, ${kind === 'gate'}, ${stagesFor(type, rowsOf(kind, type))}>`,
    given:
      'x, norm, eps, w, bias, residual, out, best, act, rows, rowBytes, n, ' +
      'Share{(int)blockIdx.x, (int)gridDim.x, (int)blockDim.x / 32}',
  }),
});

/** The same where whole rows come by long copies. */
const wholeRows = DECODE_WEIGHTS.declare({
  each: { type: ROW_TYPES, dtype: DECODE_TYPES, norm: NORMS },
  only: wanted,
  launchedOn: (_, arch) => hasLongCopies(arch),
  symbol: ({ type, dtype, norm }) => `decode_product_rows_${type.toLowerCase()}_${dtype}${normName(norm)}`,
  body: ({ type, dtype, norm }) => rowsBody(type, dtype, norm === 'f32' ? 'f32' : dtype),
});

/** Rows of two types, one behind the other, in one launch. */
type First = (typeof TWO_TYPES)['first'][number];
const { first: FIRSTS, second: SECOND } = TWO_TYPES;
const argumentsOf = (type: BlockType): string =>
  `${type}, ${rowsOf('product', type)}, ${stagesFor(type, rowsOf('product', type))}`;
const two = DECODE_WEIGHTS.declare({
  each: { first: FIRSTS, dtype: DECODE_TYPES, norm: NORMS },
  only: wanted,
  symbol: ({ first, dtype, norm }) =>
    `decode_product_${first.toLowerCase()}_${SECOND.toLowerCase()}_${dtype}${normName(norm)}`,
  body: ({ first, dtype, norm }) => ({
    threads: QUICK_THREADS,
    params: {
      ...sidesOf(dtype, norm),
      ...{ firstW: 'const u8*', firstRows: 'i64', firstBytes: 'i64', firstBlocks: 'i32', firstGroups: 'i32' },
      ...{ secondW: 'const u8*', secondRows: 'i64', secondBytes: 'i64', secondGroups: 'i32' },
    },
    call: `decode_two<${argumentsOf(first)}, ${argumentsOf(SECOND)}>`,
    given:
      'x, norm, eps, bias, out, n, Part{firstW, firstRows, firstBytes, firstBlocks, firstGroups}, ' +
      'Part{secondW, secondRows, secondBytes, (int)gridDim.x - firstBlocks, secondGroups}',
  }),
});

/** Weights as bytes of blocks, (rows, bytes). */
interface Blocks {
  readonly type: BlockType;
  readonly blocks: View;
}
interface Sides {
  readonly x: View;
  readonly out: View;
  readonly norm: { readonly kind: NormKind; readonly norm: number; readonly eps: number };
  readonly bias?: View;
}
export interface BlockProduct extends Sides {
  readonly weight: View;
  readonly type: BlockType;
  readonly residual?: View;
  readonly best?: View;
  /** A gate's: the weight holds gate over up. */
  readonly activation?: string;
}
const addressOr0 = (v?: View): number => (v ? addressOf(v) : 0);
const valuesOf = (type: BlockType, rowBytes: number): number => {
  const { block, bytes } = ggmlType(type);
  return (rowBytes / bytes) * block;
};
/** The block for so many rows of n values, on `info`'s multiprocessors. */
function blockFor(info: DeviceInfo, type: BlockType, rows: number, n: number, kind: Kind = 'product') {
  const each = rowsOf(kind, type);
  const sets = kind === 'gate' ? rows : ceilDiv(rows, each);
  const block = quickBlock(info, type, { rows: each, columns: 1, sets, n });
  if (!block.held)
    throw new UnsupportedError(`decoding by graph: rows of ${n} values in blocks leave no room for rings`);
  return block;
}
const sideArguments = ({ x, out, norm: { norm, eps }, bias }: Sides) => ({
  ...{ x: addressOf(x), out: addressOf(out), norm, eps, bias: addressOr0(bias) },
});

/** A product with weights in blocks, or a gate. */
export function blocksLaunch(info: DeviceInfo, dtype: DecodeType, p: BlockProduct): Launch {
  const kind = p.activation === undefined ? 'product' : 'gate';
  const [all, rowBytes] = p.weight.layout.shape;
  const rows = kind === 'gate' ? all / 2 : all;
  const n = valuesOf(p.type, rowBytes);
  const args = {
    ...{ ...sideArguments(p), w: addressOf(p.weight), residual: addressOr0(p.residual), best: addressOr0(p.best) },
    ...{ rows, rowBytes, n },
  };
  const whole = kind === 'product' ? rowsBlock(info, p.type, rows, n) : undefined;
  if (whole) {
    const { slots, each, underWay, blocks, threads, shared } = whole;
    const variant = { type: p.type as RowType, dtype, norm: p.norm.kind };
    return launch(wholeRows, variant, blocks, threads, { ...args, slots, each, underWay }, shared);
  }
  const { blocks, threads, shared } = blockFor(info, p.type, rows, n, kind);
  return launch(
    product,
    { type: p.type, dtype, norm: p.norm.kind, kind },
    blocks,
    threads,
    { ...args, act: gateNumber(p.activation ?? 'silu') },
    shared,
  );
}

/** A product with rows of two types, one behind the other: multiprocessors are shared out by their bytes. */
export function twoLaunch(
  info: DeviceInfo,
  dtype: DecodeType,
  p: Sides & { readonly parts: readonly Blocks[] },
): Launch {
  const [first, second] = p.parts.map(({ type, blocks }) => {
    const [rows, rowBytes] = blocks.layout.shape;
    return { type, w: addressOf(blocks), rows, rowBytes, n: valuesOf(type, rowBytes) };
  });
  if (!areTwo(p.parts) || first.n !== second.n)
    throw new ShapeError(
      `decoding by graph: rows of ${first.n} values in ${first.type} over ${second.n} in ${second.type} are no product`,
    );
  const bytes = first.rows * first.rowBytes;
  const share = bytes / (bytes + second.rows * second.rowBytes);
  const firstBlocks = Math.max(1, Math.min(info.multiprocessors - 1, Math.round(info.multiprocessors * share)));
  const blockOf = (part: typeof first, multiprocessors: number) =>
    blockFor({ ...info, multiprocessors }, part.type, part.rows, part.n);
  const a = blockOf(first, firstBlocks);
  const b = blockOf(second, info.multiprocessors - firstBlocks);
  const args = {
    ...{ ...sideArguments(p), n: first.n },
    ...{ firstW: first.w, firstRows: first.rows, firstBytes: first.rowBytes, firstBlocks: a.blocks },
    ...{ firstGroups: a.groups, secondW: second.w, secondRows: second.rows, secondBytes: second.rowBytes },
    secondGroups: b.groups,
  };
  const variant = { first: first.type as First, dtype, norm: p.norm.kind };
  const [threads, shared] = [Math.max(a.threads, b.threads), Math.max(a.shared, b.shared)];
  return launch(two, variant, a.blocks + b.blocks, threads, args, shared);
}
