// NaN and infinities in attention: what a row sees reaches it, what is hidden from it does not. Each entry of a batch
// has one of them in another place, so that a call tries all.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ggmlType } from '../src/base/blocks/types.js';
import { dequantize } from '../src/base/blocks/decode.js';
import { quantize } from '../src/base/blocks/encode.js';
import { type DType, DTYPE } from '../src/base/dtype.js';
import { Device, scope, tensor, type Tensor } from '../src/index.js';
import type { SdpaOptions } from '../src/ops/attention-calls.js';
import { testDevices } from '../src/testing/devices.js';
import { attentionOf, firstApart, type Row, type Wanted } from './attention-oracle.js';

const BOUND: Partial<Record<DType, number>> = { f64: 1e-12, f32: 2e-5, f16: 4e-3, bf16: 3e-2 };
const ODD = [NaN, Infinity, -Infinity];

interface Form {
  readonly tq: number;
  readonly tk: number;
  readonly heads?: number;
  readonly kvHeads?: number;
  readonly dim?: number;
  readonly dtypes?: readonly DType[];
  readonly causal?: boolean;
  readonly window?: readonly [number, number];
  readonly softcap?: number;
  readonly mask?: 'bool' | 'added';
  readonly alibi?: boolean;
  readonly sinks?: readonly number[];
  /** Of keys in use. */
  readonly length?: number;
  readonly packed?: boolean;
  readonly page?: number;
  readonly kept?: 'f8e4m3' | 'u8';
  readonly layout?: 'bhtd' | 'bthd';
  /** For tiles that GPUs alone have: left out on devices that would take minutes. */
  readonly large?: true;
}
const FLOATS: readonly DType[] = ['f32', 'bf16', 'f16', 'f64'];
const FORMS: Readonly<Record<string, Form>> = {
  'all keys': { tq: 5, tk: 70, heads: 1, dtypes: FLOATS },
  causal: { tq: 9, tk: 9, causal: true, dtypes: FLOATS },
  'causal over tiles of keys': { tq: 66, tk: 100, heads: 1, causal: true, dtypes: ['f32'] },
  'one query': { tq: 1, tk: 140, heads: 1, causal: true, dtypes: FLOATS },
  'a few queries': { tq: 3, tk: 140, causal: true, heads: 2, kvHeads: 1, dtypes: ['f32'] },
  'grouped heads': { tq: 6, tk: 11, heads: 4, kvHeads: 2, causal: true },
  window: { tq: 12, tk: 20, window: [3, 2] },
  'window of one query': { tq: 1, tk: 40, window: [5, 0], causal: true },
  'boolean mask': { tq: 7, tk: 20, mask: 'bool', dtypes: FLOATS },
  'boolean mask over one query': { tq: 1, tk: 20, mask: 'bool', dtypes: ['f32', 'bf16'] },
  'added mask': { tq: 7, tk: 20, mask: 'added', dtypes: FLOATS },
  'added mask over one query': { tq: 1, tk: 20, mask: 'added', dtypes: ['f32', 'bf16'] },
  'soft cap': { tq: 7, tk: 9, causal: true, softcap: 2 },
  'soft cap over one query': { tq: 1, tk: 20, softcap: 2 },
  sinks: { tq: 7, tk: 9, causal: true, sinks: [0.5, -0.3] },
  'sinks that are nothing': { tq: 4, tk: 2, causal: true, sinks: [-Infinity, 0.1] },
  'sinks that are NaN': { tq: 7, tk: 9, causal: true, sinks: [NaN, 0.1] },
  'sinks of one query': { tq: 1, tk: 9, sinks: [NaN, -Infinity] },
  alibi: { tq: 7, tk: 9, causal: true, alibi: true },
  'more queries than keys': { tq: 9, tk: 4, causal: true },
  'one query of lengths': { tq: 1, tk: 30, length: 17, causal: true },
  lengths: { tq: 6, tk: 30, length: 17, causal: true, layout: 'bthd' },
  'packed sequences': { tq: 5, tk: 8, packed: true, causal: true },
  pages: { tq: 1, tk: 24, page: 8, length: 17, causal: true },
  'pages of more queries': { tq: 6, tk: 24, page: 8, length: 17, causal: true },
  'keys in eight bits': { tq: 1, tk: 40, kept: 'f8e4m3', causal: true, dim: 32 },
  'keys in eight bits, more queries': { tq: 6, tk: 12, kept: 'f8e4m3', causal: true, dim: 32 },
  'keys in eight bits under a mask': { tq: 2, tk: 20, kept: 'f8e4m3', mask: 'bool', dim: 32 },
  'keys in blocks': { tq: 1, tk: 40, kept: 'u8', causal: true, dim: 32 },
  'keys in blocks, more queries': { tq: 6, tk: 12, kept: 'u8', causal: true, dim: 32 },
  'keys in blocks under a mask': { tq: 2, tk: 20, kept: 'u8', mask: 'added', dim: 32 },
  'large, heads of 64': { large: true, tq: 200, tk: 330, heads: 1, dim: 64, dtypes: ['bf16', 'f16'] },
  'large, heads of 64, causal': { large: true, tq: 260, tk: 260, heads: 2, kvHeads: 1, causal: true, dim: 64 },
  'large, heads of 128': { large: true, tq: 200, tk: 330, heads: 1, dim: 128, dtypes: ['bf16', 'f16'] },
  'large, heads of 128, causal': { large: true, tq: 260, tk: 260, heads: 1, causal: true, dim: 128 },
  'large, heads of 96, causal': { large: true, tq: 200, tk: 260, heads: 1, causal: true, dim: 96 },
  'large, window': { large: true, tq: 260, tk: 260, heads: 1, window: [90, 0], causal: true, dim: 64 },
  'large, added mask': { large: true, tq: 140, tk: 200, heads: 1, mask: 'added', dim: 128 },
  'large, soft cap': { large: true, tq: 140, tk: 200, heads: 1, softcap: 2, dim: 64 },
  'large, one query of long keys': { large: true, tq: 1, tk: 3000, causal: true, heads: 4, kvHeads: 1, dim: 128 },
};

type Side = 'q' | 'k' | 'v' | 'dout';
interface Place {
  readonly side: Side;
  readonly row: number;
  readonly value: number;
}
/** Every odd number in every operand: queries and keys at the beginning, in the middle and at the end. */
function placesOf({ tq, tk, kept }: Form): Place[] {
  const of = (side: Side, n: number): Place[] =>
    [...new Set([0, n >> 1, n - 1])].flatMap((row) =>
      (kept && side !== 'q' ? [NaN] : ODD).map((value) => ({ side, row, value })),
    );
  return [...of('q', tq), ...of('k', tk), ...of('v', tk), { side: 'dout', row: tq >> 1, value: NaN }];
}

const Q8 = ggmlType('Q8_0');
const blocksOf = (x: Float32Array): Uint8Array => {
  const bytes = quantize(
    Q8,
    x.map((y) => (Number.isFinite(y) ? y : 0)),
  );
  x.forEach((y, n) => {
    if (Number.isNaN(y)) new DataView(bytes.buffer, bytes.byteOffset).setUint16(Math.floor(n / 32) * 34, 0x7e00, true);
  });
  return bytes;
};

/** Numbers by (batch, head, row, dim) as they are kept, and how they are given. */
class Operands {
  readonly places: readonly Place[];
  readonly data: Record<Side, number[]>;
  readonly raw: Partial<Record<Side, Uint8Array>> = {};
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly f: Form;
  readonly dtype: DType;
  constructor(f: Form, dtype: DType) {
    [this.f, this.dtype] = [f, dtype];
    this.places = placesOf(f);
    [this.heads, this.kvHeads, this.dim] = [f.heads ?? 2, f.kvHeads ?? f.heads ?? 2, f.dim ?? 8];
    let seed = 5;
    const random = (): number => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 31 - 1;
    const make = (side: Side, heads: number, t: number): number[] => {
      const { f: form, dim } = this;
      const x = Array.from({ length: this.places.length * heads * t * dim }, random);
      this.places.forEach((place, b) => {
        // In one head, so that others stay as they are.
        if (place.side === side) x[((b * heads + heads - 1) * t + place.row) * dim + 3] = place.value;
      });
      const kept = side === 'q' || side === 'dout' ? undefined : form.kept;
      if (kept === 'u8') {
        const bytes = blocksOf(Float32Array.from(x));
        this.raw[side] = bytes;
        return [...dequantize(Q8, bytes)];
      }
      const { encode, decode } = DTYPE[kept ?? dtype];
      return x.map((y) => Number(decode(encode(y))));
    };
    this.data = {
      q: make('q', this.heads, f.tq),
      k: make('k', this.kvHeads, f.tk),
      v: make('v', this.kvHeads, f.tk),
      dout: make('dout', this.heads, f.tq),
    };
  }
  row(side: Side): Row {
    const [h, t] = side === 'q' || side === 'dout' ? [this.heads, this.f.tq] : [this.kvHeads, this.f.tk];
    const all = Float64Array.from(this.data[side]);
    const rows = Array.from({ length: all.length / this.dim }, (_, n) =>
      all.subarray(n * this.dim, (n + 1) * this.dim),
    );
    return (b, head, i) => rows[(b * h + head) * t + i];
  }
  get masks(): boolean[] {
    const { tq, tk } = this.f;
    return Array.from({ length: tq * tk }, (_, n) => (n * 7 + Math.floor(n / tk)) % 3 !== 0);
  }
  get slopes(): number[] {
    return Array.from({ length: this.heads }, (_, h) => 0.25 / (h + 1));
  }
  want(back: boolean): Wanted {
    const { f, heads, kvHeads, dim } = this;
    const nk = f.length ?? f.tk;
    const [left, right] = f.window ?? [-1, -1];
    const masks = f.mask ? this.masks : undefined;
    return attentionOf({
      ...{ batch: this.places.length, heads, kvHeads, tq: f.tq, tk: f.tk, dim, scale: 0.3, softcap: f.softcap },
      ...{ q: this.row('q'), k: this.row('k'), v: this.row('v'), ...(back && { dout: this.row('dout') }) },
      sees: (_b, _h, i, j) => {
        const x = i + nk - f.tq;
        const after = f.causal ? 0 : right;
        return (
          j < nk && (after < 0 || j <= x + after) && (left < 0 || j >= x - left) && masks?.[i * f.tk + j] !== false
        );
      },
      ...(f.alibi && { bias: (_b, h, i, j) => -this.slopes[h] * Math.abs(i + nk - f.tq - j) }),
      ...(f.sinks && { sink: (h) => f.sinks?.[h] ?? 0 }),
    });
  }

  /** Results and gradients, by (batch, head, row, dim). */
  run(device: Device, back: boolean): Partial<Wanted> {
    const { f, dtype, dim } = this;
    const batch = this.places.length;
    const on = (x: readonly number[], as: DType, shape: number[]): Tensor =>
      tensor(Float64Array.from(x), { device: Device.reference() }).cast(as).to(device).reshape(shape);
    const ints = (x: readonly number[], shape: number[]): Tensor =>
      tensor(Int32Array.from(x), { device }).reshape(shape);
    const turned = (t: Tensor): Tensor => t.permute([0, 2, 1, 3]).contiguous();
    const laid = (t: Tensor): Tensor => (f.layout === 'bthd' || f.packed ? turned(t) : t);
    const leaf = (side: Side, h: number, t: number): Tensor => {
      const bytes = this.raw[side];
      if (bytes) return tensor(bytes, { device }).reshape([batch, h, t, (dim / 32) * 34]);
      const kept = side === 'k' || side === 'v' ? f.kept : undefined;
      return laid(on(this.data[side], kept ?? dtype, [batch, h, t, dim]))
        .detach()
        .requireGrad(back);
    };
    const q = leaf('q', this.heads, f.tq);
    const [k, v] = (['k', 'v'] as const).map((side) => leaf(side, this.kvHeads, f.tk));
    const bias = (seen: boolean): number => (f.mask === 'bool' ? Number(seen) : seen ? 0 : -Infinity);
    const options: SdpaOptions = {
      ...{ scale: 0.3, ...(f.causal && { causal: true }), ...(f.window && { window: f.window }) },
      ...(f.softcap && { softcap: f.softcap }),
      ...(f.mask && { mask: on(this.masks.map(bias), f.mask === 'bool' ? 'u8' : dtype, [1, 1, f.tq, f.tk]) }),
      ...(f.alibi && { alibi: on(this.slopes, 'f32', [this.heads]) }),
      ...(f.sinks && { sinks: on(f.sinks, 'f32', [this.heads]) }),
    };
    const lengths = f.length && { lengths: ints(new Array(batch).fill(f.length), [batch]) };
    const starts = (n: number): Tensor =>
      ints(
        Array.from({ length: batch + 1 }, (_, b) => b * n),
        [batch + 1],
      );
    const flat = (t: Tensor): Tensor => t.reshape([batch * t.shape[1], t.shape[2], dim]);
    const paged = (t: Tensor): Tensor => {
      const page = f.page as number;
      const split = t.reshape([batch, this.kvHeads, f.tk / page, page, dim]).permute([0, 2, 1, 3, 4]);
      return split.reshape([(batch * f.tk) / page, this.kvHeads, page, dim]);
    };
    const run = (): Tensor => {
      if (f.packed)
        return flat(q)
          .sdpaVarlen(flat(k), flat(v), starts(f.tq), starts(f.tk), { ...options, maxQueries: f.tq, maxKeys: f.tk })
          .reshape(q.shape);
      if (!f.page) return q.sdpa(k, v, { ...options, ...lengths, ...(f.layout && { layout: f.layout }) });
      const each = f.tk / f.page;
      const table = ints(
        Array.from({ length: batch * each }, (_, n) => n),
        [batch, each],
      );
      const { lengths: length } = lengths as { lengths: Tensor };
      return q.sdpaPaged(paged(k), paged(v), table, { ...options, lengths: length });
    };
    const numbers = (t: Tensor): number[] => {
      const plain = f.layout === 'bthd' || f.packed ? turned(t) : t;
      return plain.detach().to(Device.reference()).cast('f64').flatten().toArray<number[]>();
    };
    const out = run();
    if (!back) return { out: numbers(out) };
    const grads = out.backward({ grad: laid(on(this.data.dout, dtype, [batch, this.heads, f.tq, dim])) });
    const [dq, dk, dv] = [q, k, v].map((t) => numbers(grads.of(t)));
    return { out: numbers(out), dq, dk, dv };
  }
}

for (const { name, device, missing } of testDevices('cpu,reference,sim:32,sim:64'))
  for (const [label, f] of Object.entries(FORMS).filter(([, form]) => !form.large || /^(cuda|rocm)/.test(name)))
    test(`NaN and infinities on ${name}: ${label}`, { skip: missing }, () => {
      // The reference engine computes every dtype in doubles; kernels of f16 are those of bf16.
      for (const dtype of (f.dtypes ?? ['f32', 'bf16']).filter(
        (d) => name === 'cpu' || d === 'f32' || (name !== 'reference' && d !== 'f16'),
      ))
        scope(() => {
          const back = !(f.length || f.kept);
          const operands = new Operands(f, dtype);
          const want = operands.want(back);
          const got = operands.run(device as Device, back);
          const per = (side: keyof Wanted): number => want[side].length / operands.places.length;
          for (const side of Object.keys(got) as (keyof Wanted)[])
            operands.places.forEach((place, b) => {
              const part = (x: readonly number[]): number[] => x.slice(b * per(side), (b + 1) * per(side));
              const bound = (BOUND[dtype] as number) * (side === 'out' ? 1 : 4) * (f.kept ? 2 : 1);
              const apart = firstApart(part(got[side] as number[]), part(want[side]), bound);
              const where = `${place.value} in row ${place.row} of ${place.side}`;
              assert.equal(apart, undefined, `${dtype}, ${side} with ${where}: ${apart}`);
            });
        });
    });
