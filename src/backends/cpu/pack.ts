// How parameters stand in the engine's call block; numbers only, in the order native/ reads them: those that a row
// names, or what its family makes of them.
import { ArgumentError } from '../../base/errors.js';
import { ggmlType } from '../../base/blocks/types.js';
import type { Layout } from '../../base/layout.js';
import { EXTRAS } from '../../ops/attention-reference.js';
import type { KernelFamily, Params, RunRow } from '../../ops/op.js';
import { uniformRange, type NormalParams, type UniformParams } from '../../ops/random.js';
import type { View } from '../backend.js';

/** Writes parameters from slot `at` on. */
export type Pack = (block: Float64Array, at: number, params: any) => void;
/** Layouts as the engine wants them where they differ from the operands' own. */
export type Arrange = (inputs: readonly View[], outputs: readonly View[]) => readonly View[];

const nothing: Pack = () => undefined;
/**
 * Nothing but numbers goes into the block: an object that turns into one may run code, which would fill the block anew.
 */
const put = (block: Float64Array, at: number, values: readonly number[]): void => {
  for (let i = 0; i < values.length; i++)
    if (typeof values[i] !== 'number')
      throw new ArgumentError(`a parameter is ${values[i] === null ? 'null' : typeof values[i]}, not a number`);
  block.set(values, at);
};
const flag = (b: unknown): number => (b ? 1 : 0);
/** (height, width): a line is a picture of height 1. */
const plane = (v: readonly number[], or: number): readonly number[] => (v.length === 1 ? [or, v[0]] : v);
const low = (v: bigint): number => Number(v & 0xffffffffn);
const high = (v: bigint): number => Number(v >> 32n);

const random: Pack = (block, at, p: UniformParams | NormalParams) => {
  put(block, at, [low(p.seed), high(p.seed), low(p.offset), high(p.offset)]);
  if ('up' in p) {
    const { lo, up } = p as UniformParams;
    const { bottom, top } = uniformRange(p.dtype, lo, up);
    put(block, at + 4, [lo, up, bottom, top]);
  } else {
    put(block, at + 4, [(p as NormalParams).mean, (p as NormalParams).std]);
  }
};

const PACKS: { readonly [F in KernelFamily]?: Pack } = {
  cast: (block, at, p) => (block[at] = flag(p.dtype === 'bool')),
  copy: nothing,
  custom: nothing, // a user's op never comes here
  fill: (block, at, p) => put(block, at, 'step' in p ? [p.start, p.step] : [p.value]),
  reduce: (block, at, { dims }) => put(block, at, [dims.length, ...dims]),
  matmul: nothing,
  index: (block, at, p) => put(block, at, [p.dim, p.start ?? 0]),
  conv: (block, at, p) =>
    put(block, at, [...plane(p.stride, 1), ...plane(p.padding, 0), ...plane(p.dilation, 1), p.groups]),
  pool: (block, at, p) => put(block, at, [...p.kernel, ...p.stride, ...p.padding]),
  resample: (block, at, p) => put(block, at, [...plane(p.size, 1), flag(p.alignCorners), ...(p.scale ?? [0, 0])]),
  random,
  norm: (block, at, p) => put(block, at, [p.eps, flag(p.weight), flag(p.bias)]),
  rope: nothing,
  experts: nothing,
  pick: nothing, // what counts need no numbers; others name theirs
  // Floats in 8 bits are no blocks and have no type.
  quantized: (block, at, p) => put(block, at, p.type === undefined ? [] : [ggmlType(p.type).id, flag(p.quick)]),
  attention: (block, at, p) =>
    put(block, at, [
      flag(p.layout === 'bthd'),
      p.scale ?? 1,
      p.softcap ?? 0,
      p.left ?? -1,
      p.right ?? -1,
      ...(p.longest ?? [0, 0]),
      ...EXTRAS.map((e) => flag(p.extras?.includes(e))),
    ]),
};

/** The batch dimensions of both sides, spread to those of the result. */
const spreadBatch: Arrange = (inputs, [out]) => {
  if (out.layout.rank === 2) return inputs;
  const batch = out.layout.shape.slice(0, -2);
  return inputs.map(({ memory, layout, dtype }) => {
    const spread: Layout = layout.broadcastTo('matmul', [...batch, ...layout.shape.slice(-2)]);
    return { memory, layout: spread, dtype };
  });
};

/** Parameters by name, one number each. */
const inOrder =
  (names: readonly string[]): Pack =>
  (block, at, params) =>
    put(
      block,
      at,
      names.map((n) => (typeof params[n] === 'boolean' ? flag(params[n]) : params[n])),
    );

export function packFor(row: RunRow): Pack | undefined {
  if (row.family !== 'elementwise') return row.engineParams ? inOrder(row.engineParams) : PACKS[row.family];
  const { scalars } = row;
  if (scalars.length === 0) return nothing;
  return (block, at, params: Params) => {
    for (let i = 0; i < scalars.length; i++) block[at + i] = Number(params[scalars[i]]);
  };
}

export const arrangeFor = (row: RunRow): Arrange | undefined => (row.family === 'matmul' ? spreadBatch : undefined);
