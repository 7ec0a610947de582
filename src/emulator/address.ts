// Addresses to offsets in linear memory: the last allocation each instruction touched is tried first, the host's table
// decides the rest.
import type { Context } from './context.js';
import { FAIL, GLOBAL_HIGH, PRIVATE_HIGH, SHARED_HIGH, WAVE } from './layout.js';
import { and, choose, i32, i64, or, type I32, type I64 } from './wasm.js';

/** Each site's last allocation: first offset and length, at `sites` + 8 * site. */
const SITE_BYTES = 8;

/** A global address's offset; lane -1 for scalar accesses. */
export function globalAddress(c: Context, at: I64, bytes: number, lane: I32): I32 {
  const a = c.f.let(at);
  const low = c.f.let(i32.wrap(a));
  const high = i32.wrap(i64.shr_u(a, i64.const(32)));
  const site = siteAddress(c);
  const from = i32.sub(low, i32.load(site, 0));
  const room = i32.sub(i32.load(site, 4), i32.const(bytes));
  // Empty entries have length 0: the unsigned room is then huge, so the length is tested too.
  const hit = and(
    i32.eq(high, i32.const(GLOBAL_HIGH)),
    i32.ge_u(i32.load(site, 4), i32.const(bytes)),
    i32.le_u(from, room),
  );
  return choose(hit, low, c.h.import('resolve', low, high, i32.const(bytes), i32.const(c.site), lane, c.w) as I32);
}
function siteAddress(c: Context): I32 {
  return i32.add(i32.load(c.w, SITES_AT), i32.const(c.site * SITE_BYTES));
}
/** Where the wave's block holds the address of the site table. */
export const SITES_AT = 544;

export function ldsAddress(c: Context, at: I32, bytes: number): I32 {
  const a = c.f.let(at);
  const size = i32.load(c.w, WAVE.LDS_BYTES);
  const bad = or(i32.gt_u(a, size), i32.gt_u(i32.const(bytes), i32.sub(size, a)));
  c.f.when(bad, () => c.fail(FAIL.LDS_BOUNDS, a));
  return i32.add(i32.load(c.w, WAVE.LDS_BASE), a);
}

export function privateAddress(c: Context, at: I32, bytes: number): I32 {
  const a = c.f.let(at);
  const size = i32.load(c.w, WAVE.PRIVATE_BYTES);
  const bad = or(i32.gt_u(a, size), i32.gt_u(i32.const(bytes), i32.sub(size, a)));
  c.f.when(bad, () => c.fail(FAIL.PRIVATE_BOUNDS, a));
  return i32.add(i32.add(i32.load(c.w, WAVE.PRIVATE_BASE), i32.mul(c.lane.get, size)), a);
}

/** A generic address: LDS or private by its high word, else global. */
export function flatAddress(c: Context, at: I64, bytes: number): I32 {
  const a = c.f.let(at);
  const high = c.f.let(i32.wrap(i64.shr_u(a, i64.const(32))));
  const out = c.f.local('i32');
  c.f.when(
    i32.eq(high, i32.const(SHARED_HIGH)),
    () => c.f.emit(out.set(ldsAddress(c, i32.wrap(a), bytes))),
    () =>
      c.f.when(
        i32.eq(high, i32.const(PRIVATE_HIGH)),
        () => c.f.emit(out.set(privateAddress(c, i32.wrap(a), bytes))),
        () => c.f.emit(out.set(globalAddress(c, a, bytes, c.lane.get))),
      ),
  );
  return out.get;
}
