// Single instructions through inline assembly against formulas of the ISA documents, over edge values and noise.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromF16Bits } from '../src/base/float.js';
import { random } from '../src/emulator/executor.js';
import { Bench, hiprtc, missing } from './emulator-support.js';
import { rows, type T, type V } from './emulator-formulas.js';

const f64view = new DataView(new ArrayBuffer(8));
const N = 256;
const rnd = random(2024);
const EDGES32 = [
  0, 0x80000000, 1, 0xffffffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0xbf800000, 0x00800000, 0x007fffff,
  0x7f7fffff, 0x4b000001, 0x3f000000, 0xc0200000, 31, 32, 0x7fffffff, 0xff7fffff, 0x4f000000,
];
const EDGES16 = [0, 0x8000, 1, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0xbc00, 0x0400, 0x03ff, 0x3555];
const EDGES64 = [
  0, 0x8000000000000000, 0x3ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000, 1, 0x0010000000000000,
].map((x) => BigInt(x));

function sample(t: T, k: number): bigint {
  const noise = (): number => Math.floor(rnd() * 2 ** 32);
  if (t.endsWith('64')) {
    if (k < 32) return EDGES64[Math.floor(rnd() * EDGES64.length)];
    f64view.setFloat64(0, (rnd() - 0.5) * 2 ** Math.floor(rnd() * 60 - 30));
    return k % 2 ? f64view.getBigUint64(0) : (BigInt(noise()) << 32n) | BigInt(noise());
  }
  if (t.endsWith('16')) return BigInt(k < 64 ? EDGES16[Math.floor(rnd() * EDGES16.length)] : noise() & 65535);
  if (k < 96) return BigInt(EDGES32[Math.floor(rnd() * EDGES32.length)]);
  f64view.setFloat32(0, Math.fround((rnd() - 0.5) * 2 ** Math.floor(rnd() * 40 - 20)));
  return k % 2 ? BigInt(f64view.getUint32(0)) : BigInt(noise());
}
function decode(t: T, bits: bigint): V {
  f64view.setBigUint64(0, bits);
  switch (t) {
    case 'u32':
      return f64view.getUint32(4);
    case 'i32':
      return f64view.getInt32(4);
    case 'f32':
      return f64view.getFloat32(4);
    case 'f64':
      return f64view.getFloat64(0);
    case 'u64':
      return bits;
    case 'i64':
      return BigInt.asIntN(64, bits);
    case 'u16':
      return Number(bits & 65535n);
    case 'i16':
      return Number(BigInt.asIntN(16, bits));
    default:
      return fromF16Bits(Number(bits & 65535n));
  }
}
/** Distance in units of the last place of the wanted value. */
function distance(t: T, got: number, want: number): number {
  if (Object.is(got, want) || (got !== got && want !== want)) return 0;
  if (!Number.isFinite(got) || !Number.isFinite(want)) return Infinity;
  if (got === 0 && want === 0) return Infinity;
  const mantissa = t === 'f64' ? 52 : t === 'f32' ? 23 : 10;
  const smallest = t === 'f64' ? -1022 : t === 'f32' ? -126 : -14;
  const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(want))), smallest) - mantissa);
  return Math.abs(got - want) / unit;
}
const C: Record<T, string> = {
  u32: 'unsigned',
  i32: 'int',
  f32: 'float',
  u64: 'unsigned long',
  i64: 'long',
  f64: 'double',
  f16: '_Float16',
  u16: 'unsigned short',
  i16: 'short',
};

for (const target of ['gfx906', 'gfx90a', 'gfx1030']) {
  const mine = rows.filter((r) => !r.only || r.only.test(target));
  test(`${mine.length} instructions of ${target} match their formulas on ${N} values each`, {
    skip: missing(target),
  }, () => {
    const vcc = target.startsWith('gfx9') ? 'vcc' : 'vcc_lo';
    const source = mine
      .map((r, k) => {
        const read = r.from
          .map(
            (t, n) =>
              `${C[t]} s${n}; { unsigned long w = in[${n} * ${N} + i]; __builtin_memcpy(&s${n}, &w, sizeof s${n}); }`,
          )
          .join(' ');
        const asm =
          `asm volatile("${r.asm.replaceAll('{vcc}', vcc).replaceAll('\n', '\\n')}" : "=&v"(d) : ` +
          `${r.from.map((_, n) => `"v"(s${n})`).join(', ')} : "vcc");`;
        return (
          `extern "C" __global__ void k${k}(const unsigned long* in, unsigned long* out) { int i = ` +
          `blockIdx.x * blockDim.x + threadIdx.x; ${read} ${C[r.to]} d; ${asm} unsigned long w = 0; ` +
          '__builtin_memcpy(&w, &d, sizeof d); out[i] = w; }'
        );
      })
      .join('\n');
    const code = hiprtc(source, target, ['-O1']);
    const bench = new Bench(target);
    const out = bench.buffer(N * 8);
    const wrong: string[] = [];
    mine.forEach((r, k) => {
      const data = new BigUint64Array(N * 3);
      r.from.forEach((t, n) => {
        for (let i = 0; i < N; i++) data[n * N + i] = sample(t, i);
      });
      const input = bench.buffer(data);
      bench.launch(code, `k${k}`, N / 64, 64, [{ p: input }, { p: out }]);
      const got = bench.read(BigUint64Array, out, N * 8);
      for (let i = 0; i < N; i++) {
        const args = r.from.map((t, n) => decode(t, data[n * N + i]));
        const w = r.f(...(args as never[]));
        const want = typeof w === 'boolean' ? Number(w) : w;
        const g = decode(r.to, got[i]);
        const ok =
          typeof want === 'bigint' || r.to[0] !== 'f' ? g === want : distance(r.to, g as number, want) <= (r.ulp ?? 0);
        if (!ok) {
          wrong.push(`${r.asm.split('\n')[0]}: ${args.join(', ')} gives ${g}, the formula ${want}`);
          break;
        }
      }
    });
    assert.deepEqual(wrong, []);
  });
}
