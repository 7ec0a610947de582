// Test values: a small deterministic generator, numbers over a domain, and the edge values every float op must survive.
import { DTYPE, type DType, isFloat, type Value } from '../base/dtype.js';
import { quantize } from '../base/blocks/encode.js';
import { ggmlType } from '../base/blocks/types.js';
import { sizeOf } from '../base/shape.js';
import type { InputSpec } from '../ops/op.js';

/** mulberry32: enough for test data, the same everywhere. */
export function randomizer(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A seed from a case's name, so that a case reruns alone with the same numbers. */
export function seedOf(name: string): number {
  let h = 2166136261;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  return h >>> 0;
}

export const EDGES: readonly number[] = [
  0,
  -0,
  1,
  -1,
  0.5,
  -0.5,
  1.5,
  -1.5,
  2.5,
  -2.5,
  Infinity,
  -Infinity,
  NaN,
  1e-45,
  -1e-45,
  1e-40,
  6e-8,
  -6e-8,
  1e-30,
  65504,
  -65504,
  3e38,
  -3e38,
  100.25,
  -100.25,
  0.1,
  3.1415926,
  448,
  -448,
  1e-3,
  255.5,
  1e10,
  -1e10,
];

/** Values of one input in the dtype under test, already rounded to it. */
export function inputValues(
  spec: InputSpec,
  dtype: DType,
  domain: readonly [number, number],
  random: () => number,
): Value[] {
  const n = sizeOf(spec.shape);
  const [lo, up] = spec.domain ?? domain;
  const float = isFloat(dtype);
  const { encode, decode, Raw, kind } = DTYPE[dtype];
  const cell = new Raw(new ArrayBuffer(8), 0, 1);
  const round = (v: Value): Value => {
    cell[0] = encode(v) as never;
    return decode(cell[0]);
  };
  if (spec.values) return spec.values.map((v) => (float ? round(v) : BigInt(v)));
  if (spec.blocks) {
    const type = ggmlType(spec.blocks);
    const x = Float32Array.from({ length: (n / type.bytes) * type.block }, () => lo + random() * (up - lo));
    return Array.from(quantize(type, x, { rowLength: type.block }), BigInt);
  }
  if (spec.ints) {
    const [a, b] = spec.ints;
    return Array.from({ length: n }, () =>
      float ? round(a + Math.floor(random() * (b - a + 1))) : BigInt(a + Math.floor(random() * (b - a + 1))),
    );
  }
  if (spec.distinct) {
    // A shuffled ramp: all different as long as the dtype can tell the steps apart.
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order.map((i) =>
      float
        ? round(n > 8 && dtype === 'f8e4m3' ? (i % 8) + 8 : lo + ((up - lo) * i) / n)
        : dtype === 'bool'
          ? BigInt(i % 2)
          : BigInt(dtype === 'u8' ? i % 256 : i),
    );
  }
  if (dtype === 'bool') return Array.from({ length: n }, () => BigInt(Math.floor(random() * 2)));
  if (!float) {
    const a = kind === 'uint' ? 1 : Math.min(-6, Math.floor(lo));
    const b = Math.max(9, Math.ceil(up));
    return Array.from({ length: n }, () => BigInt(a + Math.floor(random() * (b - a + 1))));
  }
  return Array.from({ length: n }, () => round(lo + random() * (up - lo)));
}

/** Raw little-endian bytes of values. */
export function encodeValues(values: readonly Value[], dtype: DType): Uint8Array<ArrayBuffer> {
  const { Raw, encode, bytes } = DTYPE[dtype];
  const raw = new Raw(new ArrayBuffer(values.length * bytes));
  for (let i = 0; i < values.length; i++) raw[i] = encode(values[i]) as never;
  return new Uint8Array(raw.buffer as ArrayBuffer);
}

export function decodeValues(bytes: Uint8Array<ArrayBuffer>, dtype: DType): Value[] {
  const { Raw, decode } = DTYPE[dtype];
  return Array.from(new Raw(bytes.buffer) as ArrayLike<number | bigint>, (v) => decode(v));
}
