// Signals put together again: round trips, PyTorch's numbers for changed spectra, gradients, refusals.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ArgumentError,
  arange,
  hammingWindow,
  hannWindow,
  istft,
  randn,
  ShapeError,
  type Tensor,
  tensor,
} from '../src/index.js';

function near(got: Tensor, want: readonly number[], bound = 2e-6): void {
  const numbers = got.flatten().toArray<number[]>();
  assert.equal(numbers.length, want.length);
  for (const [i, w] of want.entries()) assert.ok(Math.abs(numbers[i] - w) <= bound, `${numbers} for ${want}`);
}

test('what stft takes apart is put together again', () => {
  const x = randn([2, 200], { seed: 4 });
  for (const [nFft, options] of [
    [32, { hop: 8, window: hannWindow(32) }],
    [30, { hop: 10, window: hammingWindow(25), normalized: true }],
    [31, { hop: 5, window: hammingWindow(31), onesided: false }],
    [16, {}],
  ] as const) {
    const [re, im] = x.stft(nFft, options);
    const again = istft(re, im, nFft, { ...options, length: 200 });
    assert.deepEqual(again.shape, [2, 200]);
    assert.ok(again.sub(x).abs().max().item() < 1e-5);
    near(istft(re.at(0), im.at(0), nFft, { ...options, length: 200 }), again.at(0).toArray<number[]>());
  }
  const [re, im] = x.stft(20, { window: hammingWindow(20), center: false, hop: 4 });
  assert.ok(
    istft(re, im, 20, { window: hammingWindow(20), center: false, hop: 4 })
      .sub(x)
      .abs()
      .max()
      .item() < 1e-5,
  );
});

test('of spectra that no signal has, PyTorch’s answer', () => {
  const x = arange(0, 12, { dtype: 'f64' }).mul(0.7).sin();
  const window = hannWindow(6, { dtype: 'f64' });
  const [re, im] = x.stft(6, { hop: 2, window }).map((t) => t.mul(arange(1, 5, { dtype: 'f64' }).unsqueeze(1)));
  const want = [
    -0.707501, 1.026393, 1.618014, 1.448657, 0.562185, -0.588692, -1.462698, -1.648774, -1.059406, 0.033706,
  ];
  near(istft(re, im, 6, { hop: 2, window }), [...want, 1.110967, 1.775506]);
  const r = arange(0, 12, { dtype: 'f64' }).reshape([4, 3]).mul(0.3).cos();
  const cut = istft(r, r.mul(0.5), 6, { hop: 2, window, normalized: true, length: 8 });
  near(cut, [0.361345, -0.056223, 0.64743, 0.180583, 0.333836, 0.655578, 3.337193, 0]);
});

test('a signal’s gradient by its spectra is that of small changes', () => {
  const spectra = [1, 2].map((seed) => randn([9, 6], { seed, dtype: 'f64' }));
  const window = hannWindow(16, { dtype: 'f64' });
  const loss = (re: Tensor, im: Tensor): Tensor => istft(re, im, 16, { window }).sqr().sum();
  const [re, im] = spectra.map((t) => t.copy().requireGrad());
  const grads = loss(re, im).backward();
  const step = randn([9, 6], { seed: 3, dtype: 'f64' }).mul(1e-6);
  for (const [t, other] of [
    [re, (d: Tensor) => loss(spectra[0].add(d), spectra[1])],
    [im, (d: Tensor) => loss(spectra[0], spectra[1].add(d))],
  ] as const) {
    const change = other(step).sub(other(step.neg())).item() / 2;
    assert.ok(Math.abs(change - grads.of(t).mul(step).sum().item()) < 1e-12);
  }
});

const spectrum = randn([9, 6], { seed: 1 });
const REFUSED: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  'another length': [
    () => istft(spectrum, spectrum, 20),
    /^istft: spectra \[9, 6\] and \[9, 6\] are not both \(\.\.\., 11/,
  ],
  'parts of two shapes': [() => istft(spectrum, spectrum.t(), 16), /are not both/],
  'a window that is too long': [
    () => istft(spectrum, spectrum, 16, { window: hannWindow(17) }),
    /window \[17\] must be/,
  ],
  'windows with gaps': [
    () => istft(spectrum, spectrum, 16, { hop: 16, window: hannWindow(16) }),
    /windows do not add up to anything somewhere/,
  ],
  'no pair': [() => istft([spectrum, spectrum] as never, 16 as never, 4), /takes the real and the imaginary part/],
  'stft’s name for it': [
    () => (tensor([1]) as unknown as { istft: unknown }).istft,
    /^x\.istft: here it is istft\(re, im, nFft, options\)/,
  ],
};
for (const [what, [call, says]] of Object.entries(REFUSED))
  test(`refused: ${what}`, () =>
    assert.throws(call, (e: Error) => (e instanceof ArgumentError || e instanceof ShapeError) && says.test(e.message)));
