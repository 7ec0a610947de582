// W3C's WebNN conformance cases: 2482 graphs of other people's making, run on our tensors.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import '../src/index.js';
import { isFloat, type Value } from '../src/base/dtype.js';
import { UnsupportedError } from '../src/base/errors.js';
import { findGolden, missingGolden } from '../src/parity/golden.js';
import { ulpOf } from '../src/testing/compare.js';
import { testDevices } from '../src/testing/devices.js';
import { decodeValues } from '../src/testing/values.js';
import type { Device } from '../src/tensor/device.js';
import { scope } from '../src/tensor/scope.js';
import { isHuge, runGraph, scalar, TYPES, unsupported, valuesOf, type WebnnCase } from './webnn/graph.js';

const FILE = 'webnn/webnn-conformance.json.gz';
const path = findGolden(FILE);
const absent = missingGolden(FILE);
const files = path
  ? (JSON.parse(gunzipSync(readFileSync(path)).toString()) as { files: Record<string, WebnnCase[]> }).files
  : { all: [] };

/**
 * Units in the last place, or a share of the largest magnitude: sums cancel, and the data were computed by others in
 * their own order.
 */
/** Files whose data are coarser than that: erf's were made with an approximation good to six digits. */
const COARSE: Readonly<Record<string, number>> = { erf: 1e-5 };
const TOLERANCE = { f32: { ulp: 8, share: 4e-6 }, f16: { ulp: 2, share: 2e-3 } } as const;

function wrong(
  got: readonly Value[],
  want: readonly Value[],
  dtype: 'f32' | 'f16',
  coarse: number,
): string | undefined {
  const scale = want.reduce<number>((m, v) => (Number.isFinite(Number(v)) ? Math.max(m, Math.abs(Number(v))) : m), 0);
  const { ulp, share } = TOLERANCE[dtype];
  for (let i = 0; i < want.length; i++) {
    const [g, w] = [Number(got[i]), Number(want[i])];
    if (Object.is(g, w) || g === w || (g !== g && w !== w)) continue;
    const off = Math.abs(g - w);
    if (!(off <= Math.max(ulp * ulpOf(w, dtype), Math.max(share, coarse) * scale)))
      return `element ${i}: got ${g}, want ${w} (${(off / ulpOf(w, dtype)).toPrecision(3)} ulp)`;
  }
  return undefined;
}

function check(c: WebnnCase, device: Device, coarse: number): string | undefined {
  let failure: string | undefined;
  scope(() => {
    const values = runGraph(c, device);
    for (const [name, expected] of Object.entries(c.graph.expectedOutputs)) {
      const t = values.get(name);
      const dtype = TYPES[expected.descriptor.dataType];
      if (!t || t.dtype !== dtype || t.shape.join() !== expected.descriptor.shape.join()) {
        failure ??=
          `${name}: ${t?.dtype} [${t?.shape.join(', ')}], want ${dtype} ` + `[${expected.descriptor.shape.join(', ')}]`;
        continue;
      }
      const huge = isHuge(expected);
      const got = huge ? [t.min().item(), t.max().item()] : decodeValues(t.bytesSync(), t.dtype);
      const want = huge ? got.map(() => scalar(expected.data as number)) : valuesOf(expected);
      if (isFloat(dtype)) failure ??= wrong(got, want, dtype as 'f32' | 'f16', coarse);
      else {
        // One input of the int32 quantizing case is no f32: its expectation was computed before rounding it.
        const slack = c.name === 'quantizeLinear float32 tensor with int32 zeroPoint' ? 1n : 0n;
        const at = want.findIndex((w, i) => {
          const d = BigInt(w) - (got[i] as bigint);
          return d > slack || -d > slack;
        });
        if (at >= 0) failure ??= `element ${at}: got ${String(got[at])}, want ${String(want[at])}`;
      }
    }
  });
  return failure;
}

for (const { name, device, missing } of testDevices('reference,cpu')) {
  const counts = { passed: 0, failed: 0 };
  const skipped = new Map<string, number>();
  for (const [file, cases] of Object.entries(files)) {
    test(`WebNN ${file} on ${name}: ${cases.length} cases`, { skip: missing ?? absent }, () => {
      const failures: string[] = [];
      for (const c of cases) {
        let why = unsupported(c, device as Device);
        if (!why) {
          try {
            const failure = check(c, device as Device, COARSE[file] ?? 0);
            if (failure) failures.push(`webnn/${file}: ${c.name}: ${failure}`);
            else counts.passed++;
          } catch (e) {
            if (e instanceof UnsupportedError) why = e.message;
            else failures.push(`webnn/${file}: ${c.name}: ${String(e)}`);
          }
        }
        if (why) skipped.set(why, (skipped.get(why) ?? 0) + 1);
      }
      counts.failed += failures.length;
      assert.equal(
        failures.length,
        0,
        `${failures.length} of ${cases.length} failed:\n  ${failures.slice(0, 8).join('\n  ')}`,
      );
    });
  }
  after(() => {
    if (missing || !path) return;
    const left = [...skipped].map(([why, n]) => `${n} (${why})`).join(', ');
    console.log(
      `webnn on ${name}: ${counts.passed} passed, ${counts.failed} failed, ` +
        `${left ? `skipped ${left}` : 'none skipped'}`,
    );
  });
}
