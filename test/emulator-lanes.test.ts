// Instructions across lanes, by inline assembly: which lane each lane reads, what happens where there is none, and with
// lanes switched off.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bench, hiprtc, missing } from './emulator-support.js';

const OLD = 7777;
interface Row {
  readonly asm: string;
  /** Source lane of a lane, -1 for none; the wave is 32 or 64 lanes. */
  readonly from: (lane: number, wave: number) => number;
  /** What a lane with no source gets. */
  readonly none?: number;
  readonly only?: RegExp;
}
const dpp = (control: string, tail = 'row_mask:0xf bank_mask:0xf'): string => `v_mov_b32_dpp %0, %1 ${control} ${tail}`;
const row = (l: number): number => l & ~15;
const rows: Row[] = [
  { asm: dpp('row_shr:1'), from: (l) => (l % 16 >= 1 ? l - 1 : -1) },
  { asm: dpp('row_shl:3'), from: (l) => (l % 16 < 13 ? l + 3 : -1) },
  { asm: dpp('row_ror:5'), from: (l) => row(l) + ((l - 5) & 15) },
  { asm: dpp('row_mirror'), from: (l) => row(l) + 15 - (l % 16) },
  { asm: dpp('row_half_mirror'), from: (l) => (l & ~7) + 7 - (l % 8) },
  { asm: dpp('quad_perm:[3,0,2,1]'), from: (l) => (l & ~3) + [3, 0, 2, 1][l & 3] },
  {
    asm: dpp('row_shr:4', 'row_mask:0xf bank_mask:0xf bound_ctrl:0'),
    from: (l) => (l % 16 >= 4 ? l - 4 : -1),
    none: 0,
  },
  {
    asm: dpp('row_shr:1', 'row_mask:0xf bank_mask:0x5'),
    from: (l) => (l % 16 >= 1 && (5 >> ((l >> 2) & 3)) & 1 ? l - 1 : -1),
  },
  { asm: dpp('row_ror:1', 'row_mask:0x1 bank_mask:0xf'), from: (l) => (l < 16 ? row(l) + ((l - 1) & 15) : -1) },
  { asm: dpp('row_bcast:15', 'row_mask:0xf bank_mask:0xf'), from: (l) => (l >= 16 ? row(l) - 1 : -1), only: /gfx9/ },
  { asm: dpp('row_bcast:31', 'row_mask:0xf bank_mask:0xf'), from: (l) => (l >= 32 ? 31 : -1), only: /gfx9/ },
  { asm: dpp('wave_shr:1'), from: (l) => l - 1, only: /gfx9/ },
  { asm: dpp('wave_rol:1'), from: (l, w) => (l + 1) % w, only: /gfx9/ },
  { asm: dpp('row_share:3'), from: (l) => row(l) + 3, only: /gfx10/ },
  { asm: dpp('row_xmask:5'), from: (l) => l ^ 5, only: /gfx10/ },
  {
    asm: 'v_mov_b32_dpp %0, %1 dpp8:[7,6,0,4,3,2,1,5]',
    from: (l) => (l & ~7) + [7, 6, 0, 4, 3, 2, 1, 5][l & 7],
    only: /gfx10/,
  },
  { asm: 'ds_swizzle_b32 %0, %1 offset:swizzle(SWAP,8)\\n s_waitcnt lgkmcnt(0)', from: (l) => l ^ 8 },
  { asm: 'ds_swizzle_b32 %0, %1 offset:swizzle(BROADCAST,4,2)\\n s_waitcnt lgkmcnt(0)', from: (l) => (l & ~3) + 2 },
  { asm: 'ds_swizzle_b32 %0, %1 offset:swizzle(REVERSE,16)\\n s_waitcnt lgkmcnt(0)', from: (l) => l ^ 15 },
  { asm: 'ds_swizzle_b32 %0, %1 offset:swizzle(QUAD_PERM,1,0,3,2)\\n s_waitcnt lgkmcnt(0)', from: (l) => l ^ 1 },
  { asm: 'ds_bpermute_b32 %0, %2, %1\\n s_waitcnt lgkmcnt(0)', from: (l, w) => (l * 7 + 3) % w },
  {
    asm: 'ds_permute_b32 %0, %2, %1\\n s_waitcnt lgkmcnt(0)',
    from: (l, w) => Array.from({ length: w }, (_, k) => k).find((k) => (k * 7 + 3) % w === l)!,
  },
];

for (const target of ['gfx906', 'gfx90a', 'gfx1030']) {
  const mine = rows.filter((r) => !r.only || r.only.test(target));
  const wave = target.startsWith('gfx9') ? 64 : 32;
  test(`${target}: ${mine.length} instructions read the lanes they name`, { skip: missing(target) }, () => {
    const source = mine
      .map(
        (r, k) =>
          `extern "C" __global__ void k${k}(const int* in, int* out) { int t = threadIdx.x, x = in[t], at = ((t % ` +
          `${wave}) * 7 + 3) % ${wave} * 4, d = ${OLD}; asm volatile("${r.asm}" : "+v"(d) : "v"(x), "v"(at)); ` +
          'out[t] = d; }',
      )
      .join('\n');
    const code = hiprtc(source, target, ['-O1']);
    const b = new Bench(target);
    const input = new Int32Array(128).map((_, i) => 1000 + i);
    const [a, o] = [b.buffer(input), b.buffer(512)];
    const wrong: string[] = [];
    mine.forEach((r, k) => {
      b.launch(code, `k${k}`, 1, 128, [{ p: a }, { p: o }]);
      const got = [...b.read(Int32Array, o, 512)];
      const want = got.map((_, t) => {
        const from = r.from(t % wave, wave);
        return from < 0 ? (r.none ?? OLD) : input[t - (t % wave) + from];
      });
      const at = got.findIndex((x, t) => x !== want[t]);
      if (at >= 0) wrong.push(`${r.asm}: lane ${at} is ${got[at]}, should be ${want[at]}`);
    });
    assert.deepEqual(wrong, []);
  });
  test(`${target}: a lane that is switched off gives 0 to a permute and nothing to DPP`, {
    skip: missing(target),
  }, () => {
    const source =
      `extern "C" __global__ void k(int* out) { int t = threadIdx.x, x = t + 100, d = ${OLD}, e = ` +
      `${OLD}, at = (t ^ 1) * 4; if (t % 3) { asm volatile("ds_bpermute_b32 %0, %2, %1\\n s_waitcnt lgkmcnt(0)" : ` +
      '"+v"(d) : "v"(x), "v"(at)); asm volatile("v_mov_b32_dpp %0, %1 quad_perm:[1,0,3,2] row_mask:0xf ' +
      'bank_mask:0xf" : "+v"(e) : "v"(x)); } out[2 * t] = d; out[2 * t + 1] = e; }';
    const b = new Bench(target);
    const o = b.buffer(64 * 8);
    b.launch(hiprtc(source, target, ['-O1']), 'k', 1, 64, [{ p: o }]);
    const got = b.read(Int32Array, o, 64 * 8);
    for (let t = 0; t < 64; t++) {
      const active = (l: number): boolean => l % 3 !== 0;
      assert.equal(got[2 * t], !active(t) ? OLD : active(t ^ 1) ? (t ^ 1) + 100 : 0, `permute, lane ${t}`);
      assert.equal(got[2 * t + 1], active(t) && active(t ^ 1) ? (t ^ 1) + 100 : OLD, `DPP, lane ${t}`);
    }
  });
}
