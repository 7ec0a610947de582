// Problems of attention on a stand-in of cuDNN: their numbers on the device, what its graphs make of them and what the
// reference does.
import assert from 'node:assert/strict';
import { bytesOf, DTYPE, type DType } from '../src/base/dtype.js';
import { sizeOf } from '../src/base/shape.js';
import type { AttentionLibrary } from '../src/driver/attention.js';
import { openCudnn } from '../src/driver/cudnn.js';
import type { Dnn } from '../src/driver/dnn.js';
import type { NativeArg, Table } from '../src/driver/ffi.js';
import { openSim } from '../src/driver/sim.js';
import { type HostedDevice, StandIn } from '../src/stand-ins/library.js';
import { referenceBackward, referenceForward, type SdpaParams } from '../src/ops/attention-reference.js';
import type { RefTensor } from '../src/ops/op.js';
import { attentionCases, type AttentionCase, specOf } from '../scripts/cudnn-attention-cases.js';

export const device = openSim().open(32) as HostedDevice;
export const stream = device.createStream();

// ---- one problem: its numbers on the device and what the reference makes of them ----

/** Numbers of a dtype, the same for every run of the tests. */
export function numbers(shape: readonly number[], dtype: DType, seed: number): number[] {
  const { encode, decode } = DTYPE[dtype];
  let state = seed >>> 0;
  return Array.from({ length: sizeOf(shape) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Number(decode(encode(state / 2 ** 31 - 1) as never));
  });
}
const place = (count: number, dtype: DType, values?: readonly number[]): number => {
  const { Raw, encode, bytes } = DTYPE[dtype];
  const address = device.alloc(Math.max(256, count * bytes));
  const raw = new Raw(new ArrayBuffer(count * bytes)) as unknown as number[];
  for (let i = 0; i < count; i++) raw[i] = encode((values?.[i] ?? Number.NaN) as never) as number;
  device.copyIn(address, new Uint8Array((raw as unknown as Uint16Array).buffer), stream);
  return address;
};
const placeInts = (values: readonly number[]): number => {
  const address = device.alloc(256 + 4 * values.length);
  device.copyIn(address, new Uint8Array(Int32Array.from(values).buffer), stream);
  return address;
};
export function read(address: number, count: number, dtype: DType): number[] {
  const { Raw, decode } = DTYPE[dtype];
  const bytes = new Uint8Array(count * bytesOf(dtype));
  device.copyOut(bytes, address, stream);
  return Array.from(new Raw(bytes.buffer) as Iterable<number>, (r) => Number(decode(r as never)));
}

interface Outcome {
  readonly got: Readonly<Record<string, number[]>>;
  readonly wanted: Readonly<Record<string, number[]>>;
}
/** Runs a case by the library's way and by the reference. */
export function attend(library: AttentionLibrary, c: AttentionCase, way = 0): Outcome {
  const spec = specOf(c);
  const plan = library.plan(spec);
  assert.ok(typeof plan !== 'string', `${c.name}: ${String(plan)}`);
  const { dtype } = c;
  const shape = (heads: number, rows: number, batch = c.batch): number[] =>
    c.layout === 'bhtd' ? [batch, heads, rows, c.dim] : [batch, rows, heads, c.dim];
  const pages = spec.paged;
  const keyShape = pages ? shape(c.kvHeads, pages.rows, pages.pages) : shape(c.kvHeads, c.tk);
  const qShape = shape(c.heads, c.tq);
  const q = numbers(qShape, dtype, 1);
  const [k, v] = [numbers(keyShape, dtype, 2), numbers(keyShape, dtype, 3)];
  const ref = (data: number[], s: readonly number[], d: DType = dtype): RefTensor => ({ shape: s, dtype: d, data });
  const lseShape = [c.batch, c.heads, c.tq];
  const table = pages && Array.from({ length: c.batch * pages.columns }, (_, i) => c.batch * pages.columns - 1 - i);
  const params: SdpaParams = {
    layout: c.layout,
    scale: spec.scale,
    softcap: 0,
    left: c.left,
    right: c.right,
    extras: [...(c.counts ? (['lengths'] as const) : []), ...(pages ? (['pages'] as const) : [])],
    longest: [0, 0],
  };
  const rest = [
    ...(c.counts ? [ref([...c.counts], [c.batch], 'i32')] : []),
    ...(pages && table ? [ref(table, [c.batch, pages.columns], 'i32')] : []),
  ];
  const zeros = (s: readonly number[]): number[] => new Array<number>(sizeOf(s)).fill(0);
  const [out, lse] = [zeros(qShape), zeros(lseShape)];
  const inputs = [ref(q, qShape), ref(k, keyShape), ref(v, keyShape)];
  referenceForward([...inputs, ...rest], [ref(out, qShape), ref(lse, lseShape, 'f32')], params);
  const at = {
    q: place(q.length, dtype, q),
    k: place(k.length, dtype, k),
    v: place(v.length, dtype, v),
    out: place(out.length, dtype),
    lse: place(lse.length, 'f32'),
    ...(c.counts && { keyCounts: placeInts(c.counts), queryCounts: placeInts(new Array(c.batch).fill(c.tq)) }),
    ...(table && { pageTable: placeInts(table) }),
  };
  const workspace = device.alloc(Math.max(256, plan.ways[way].workspaceBytes));
  if (c.kind === 'forward') {
    library.run(plan, way, at, workspace, stream);
    return {
      wanted: { out, lse },
      got: { out: read(at.out, out.length, dtype), lse: read(at.lse, lse.length, 'f32') },
    };
  }
  const dout = numbers(qShape, dtype, 4);
  const { encode, decode } = DTYPE[dtype];
  const rounded = out.map((x) => Number(decode(encode(x as never) as never)));
  const delta = zeros(lseShape);
  for (let b = 0; b < c.batch; b++)
    for (let h = 0; h < c.heads; h++)
      for (let i = 0; i < c.tq; i++) {
        const row = c.layout === 'bhtd' ? (b * c.heads + h) * c.tq + i : (b * c.tq + i) * c.heads + h;
        for (let d = 0; d < c.dim; d++)
          delta[(b * c.heads + h) * c.tq + i] += rounded[row * c.dim + d] * dout[row * c.dim + d];
      }
  const [dq, dk, dv] = [zeros(qShape), zeros(keyShape), zeros(keyShape)];
  const sums = [ref(lse, lseShape, 'f32'), ref(delta, lseShape, 'f32')];
  const grads = [ref(dq, qShape), ref(dk, keyShape), ref(dv, keyShape)];
  referenceBackward([...inputs, ref(dout, qShape), ...sums], grads, params);
  const to = { dq: place(dq.length, dtype), dk: place(dk.length, dtype), dv: place(dv.length, dtype) };
  const given = {
    ...at,
    ...to,
    out: place(rounded.length, dtype, rounded),
    lse: place(lse.length, 'f32', lse),
    dout: place(dout.length, dtype, dout),
  };
  library.run(plan, way, given, workspace, stream);
  return {
    wanted: { dq, dk, dv },
    got: {
      dq: read(to.dq, dq.length, dtype),
      dk: read(to.dk, dk.length, dtype),
      dv: read(to.dv, dv.length, dtype),
    },
  };
}
/** The largest difference by the largest number wanted, or infinity where one is not finite. */
export function apart({ got, wanted }: Outcome): number {
  let most = 0;
  for (const [name, want] of Object.entries(wanted)) {
    const size = Math.max(...want.map(Math.abs));
    want.forEach((x, i) => {
      const far = Math.abs(x - got[name][i]) / size;
      most = Math.max(most, Number.isFinite(far) ? far : Infinity);
    });
  }
  return most;
}
export function open(find: () => StandIn): AttentionLibrary {
  const library = (openCudnn(device, find) as Dnn).attention as AttentionLibrary;
  library.most = 2;
  return library;
}
/** A bound on the rounding of weights to 16 bits. */
export const NEAR = 1 / 64;

/** The script's cases, cut down to what a host reckons in no time. */
export const CASES = attentionCases(true)
  .filter((c) => c.name !== 'forward queries that see nothing 3x4/2x64/512x128 bf16')
  .map((c): AttentionCase => {
    const small = (n: number): number => Math.max(1, Math.ceil(n / 16));
    const page = c.page && 4;
    const tk = page ? 16 : c.counts ? 24 : small(c.tk);
    const tq = c.counts && c.tq > 1 ? 4 : small(c.tq);
    const bounds = { left: c.left < 0 ? -1 : small(c.left), right: c.right <= 0 ? c.right : small(c.right) };
    const counts = c.counts?.map((n) => Math.max(tq, Math.round((n * tk) / c.tk)));
    return { ...c, ...bounds, tq, tk, dim: c.dim === 96 ? 24 : 8, ...(counts && { counts }), ...(page && { page }) };
  });

// ---- calls that are changed on their way ----

/** A stand-in whose calls of one symbol get other arguments. */
export function tampered(inner: StandIn, symbol: string, change: (args: NativeArg[]) => NativeArg[]): StandIn {
  return new (class extends StandIn {
    constructor() {
      super('cuDNN', {});
    }
    override bind<T extends Table>(table: T) {
      const bound = inner.bind(table);
      const key = Object.keys(table).find((k) => {
        const p = table[k];
        return (typeof p === 'string' ? p : p.optional).includes(`${symbol}(`);
      });
      if (key === undefined) return bound;
      const call = bound[key] as (...args: NativeArg[]) => number;
      return { ...bound, [key]: (...args: NativeArg[]) => call(...change(args)) };
    }
  })();
}
export type Change = readonly [attribute: number, change: (values: number[], nth: number) => number[] | undefined];
/** Attributes of 8 bytes and of 4, as numbers. */
export function altered([attribute, change]: Change): (args: NativeArg[]) => NativeArg[] {
  let nth = 0;
  return (args) => {
    if (args[1] !== attribute) return args;
    const bytes = (args[4] as Uint8Array).slice();
    const wide = bytes.length === 8 * (args[3] as number);
    const values = wide
      ? Array.from(new BigInt64Array(bytes.buffer), Number)
      : bytes.length === args[3]
        ? [...bytes]
        : [...new Int32Array(bytes.buffer)];
    const next = change(values, nth++);
    if (!next) return args;
    const raw = wide
      ? new Uint8Array(BigInt64Array.from(next, BigInt).buffer)
      : bytes.length === args[3]
        ? Uint8Array.from(next)
        : new Uint8Array(Int32Array.from(next).buffer);
    return [...args.slice(0, 3), next.length, raw];
  };
}
export const swap =
  (from: number, to: number) =>
  ([v]: number[]): number[] | undefined =>
    v === from ? [to] : undefined;
