// Fourier transforms of every kind of length against the sums that define them, and back again.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Device, randn, scope, type Tensor } from '../src/index.js';
import { stepsFor } from '../src/backends/gpu/fourier-steps.js';
import { isRough, longestDft } from '../src/ops/fourier.js';
import { testDevices } from '../src/testing/devices.js';

/** Twos, other primes, primes that take a convolution, and what is more than a block holds, of any of these. */
const LENGTHS = [
  1,
  2,
  8,
  210,
  1000,
  243,
  512,
  1024,
  121 * 8,
  251,
  4096,
  257,
  4 * 263,
  4099,
  8192,
  6000,
  15000,
  16384,
  11025,
  16381,
  18000,
];

/** Frequencies `at` of x + i im, each a sum of its own. */
function sums(x: Float64Array, im: Float64Array, at: readonly number[]): number[][] {
  const n = x.length;
  return at.map((k) => {
    let [a, b] = [0, 0];
    for (let j = 0; j < n; j++) {
      const angle = (-2 * Math.PI * ((j * k) % n)) / n;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      a += x[j] * c - im[j] * s;
      b += x[j] * s + im[j] * c;
    }
    return [a, b];
  });
}
const valuesOf = (t: Tensor): Float64Array => Float64Array.from(t.cast('f64').flatten().toArray<number[]>());

for (const { name, device, missing } of testDevices('cpu,sim:32'))
  for (const [dtype, share] of [
    ['f32', 1e-6],
    ['f64', 4e-15],
  ] as const)
    test(`fft, rfft and their inverses of all kinds of lengths on ${name} in ${dtype}`, { skip: missing }, () => {
      for (const n of LENGTHS)
        scope(() => {
          const make = (seed: number): Tensor => randn([3, n], { seed, dtype, device: device as Device });
          const [x, im] = [make(1), make(2)];
          const at = [...new Set([0, 1, Math.floor(n / 3), Math.floor(n / 2), n - 1])].filter((k) => k < n);
          const want = sums(valuesOf(x.narrow(0, 2, 1)), valuesOf(im.narrow(0, 2, 1)), at);
          const [re, other] = x.fft(im);
          const [a, b] = [re, other].map((t) => valuesOf(t.narrow(0, 2, 1)));
          const error = Math.max(...at.map((k, i) => Math.hypot(a[k] - want[i][0], b[k] - want[i][1])));
          assert.ok(error <= share * Math.sqrt(n) * 8, `fft of ${n}: off by ${error}`);
          const off = (t: Tensor, from: Tensor): number => t.sub(from).abs().max().item();
          const [back, rest] = re.ifft(other);
          assert.ok(Math.max(off(back, x), off(rest, im)) <= share * 8, `there and back, ${n}`);
          const [half, halfIm] = x.rfft();
          assert.deepEqual(half.shape, [3, Math.floor(n / 2) + 1]);
          assert.ok(off(half.irfft(halfIm, { n }), x) <= share * 8, `real there and back, ${n}`);
        });
    });

test('steps of every length that a kernel takes multiply to it, fit a word and need no more threads than exist', () => {
  for (let n = 1; n <= 2 * longestDft('f32'); n++) {
    if (isRough(n)) continue;
    const { radices, lanes } = stepsFor(n);
    assert.equal(
      radices.reduce((a, b) => a * b, 1),
      n,
    );
    assert.ok(radices.length <= 6 && lanes <= 1024, `${n}: ${radices} by ${lanes}`);
  }
});

for (const { name, device, missing } of testDevices('cpu,sim:32'))
  test(`transforms of one length in f32 and f64, in turns, on ${name}`, { skip: missing }, () =>
    scope(() => {
      const x = randn([2, 8], { seed: 1, device: device as Device });
      for (let i = 0; i < 3; i++) {
        const [[re], [wide]] = [x.rfft(), x.cast('f64').rfft()];
        assert.ok(re.cast('f64').sub(wide).abs().max().item() < 1e-6);
      }
    }),
  );

for (const { name, device, missing } of testDevices('cpu,sim:32'))
  test(`rows that overlap, repeat or lie apart have the transforms of their copies on ${name}`, { skip: missing }, () =>
    scope(() => {
      const x = randn([3, 700], { seed: 1, device: device as Device });
      const rows: Readonly<Record<string, Tensor>> = {
        'overlapping frames': x.unfold(-1, 100, 30),
        'frames that begin at odd places': x.narrow(1, 1, 699).unfold(-1, 100, 33),
        'frames of an odd length': x.unfold(-1, 75, 30),
        'a row repeated': x.narrow(0, 1, 1).broadcastTo([4, 700]),
        'every second row': x.reshape([6, 350]).narrow(0, 1, 5).unfold(0, 1, 2).squeeze(-1),
        'powers of two at odd places': x.narrow(1, 1, 512),
        columns: x.t(),
        'more than two strides': x.reshape([2, 3, 5, 70]).transpose(0, 1),
      };
      for (const [what, view] of Object.entries(rows)) {
        const copy = view.contiguous();
        for (const kind of ['rfft', 'fft'] as const)
          assert.deepEqual(
            view[kind]().map((t) => t.flatten().toArray()),
            copy[kind]().map((t) => t.flatten().toArray()),
            `${kind} of ${what}`,
          );
        assert.deepEqual(
          view.fft(view.neg()).map((t) => t.flatten().toArray()),
          copy.fft(copy.neg()).map((t) => t.flatten().toArray()),
          `fft of ${what}, complex`,
        );
      }
    }),
  );
