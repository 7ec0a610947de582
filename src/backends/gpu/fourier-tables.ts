// Numbers that Fourier transforms of a length read, made once for each: roots of one, chirps and their spectra.
import { bytesOf } from '../../base/dtype.js';
import type { Constants } from './plan.js';

export type Float = 'f32' | 'f64';
/** Complex numbers, real and imaginary parts in turns. */
type Numbers = Float64Array<ArrayBuffer>;

/** e^(-2 pi i k / n), from an angle below a quarter turn; k below 2^51. */
function root(k: number, n: number): readonly [re: number, im: number] {
  const turn = (4 * k) % (4 * n);
  const quarters = Math.floor(turn / n);
  const angle = (Math.PI / 2) * ((turn - quarters * n) / n);
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return quarters === 0 ? [c, -s] : quarters === 1 ? [-s, -c] : quarters === 2 ? [-c, s] : [s, c];
}
function numbersOf(count: number, at: (i: number) => readonly [number, number]): Numbers {
  const made = new Float64Array(2 * count);
  for (let i = 0; i < count; i++) [made[2 * i], made[2 * i + 1]] = at(i);
  return made;
}
const constants = (dtype: Float, name: string, make: () => Numbers): Constants => ({
  constants: `fourier ${dtype} ${name}`,
  make: () => {
    const numbers = make();
    return new Uint8Array((dtype === 'f64' ? numbers : Float32Array.from(numbers)).buffer);
  },
});

/** Bits of the largest exponent that a step of a radix turns by. */
const bitsOf = (radix: number): number => Math.max(1, Math.ceil(Math.log2(radix)));
/** For every step but the first: roots of exponents 1, 2, 4, ... below its radix, as many as it has transforms. */
export function stepRoots(dtype: Float, radices: readonly number[]): Constants {
  return constants(dtype, `steps ${radices}`, () => {
    const found: number[] = [];
    let span = 1;
    for (const radix of radices) {
      for (let p = 0; span > 1 && p < bitsOf(radix); p++)
        for (let k = 0; k < span; k++) found.push(...root(k * 2 ** p, span * radix));
      span *= radix;
    }
    return Float64Array.from(found.length > 0 ? found : [1, 0]);
  });
}
/** The first `count` powers of e^(-2 pi i / n). */
export const powers = (dtype: Float, n: number, count: number): Constants =>
  constants(dtype, `powers ${n} ${count}`, () => numbersOf(count, (k) => root(k, n)));

/** Exponents of `turns`: so many bits of them choose one of the fine ones. */
export const fineBits = (n: number): number => Math.ceil(Math.log2(n) / 2);
/** Powers that make any of e^(-2 pi i / n) as a product of two: fine ones, then coarse ones. */
export function turns(dtype: Float, n: number): Constants {
  const fine = 2 ** fineBits(n);
  return constants(dtype, `turns ${n}`, () =>
    numbersOf(fine + Math.ceil(n / fine), (i) => root(i < fine ? i : (i - fine) * fine, n)),
  );
}

/** e^(-pi i j^2 / n), of j below n: its square goes round in 2 n. */
const chirpAt = (j: number, n: number): readonly [number, number] => root((j * j) % (2 * n), 2 * n);
export const chirp = (dtype: Float, n: number): Constants =>
  constants(dtype, `chirp ${n}`, () => numbersOf(n, (j) => chirpAt(j, n)));
/**
 * The transform of the mirrored chirp around a circle of m = a * b elements, divided by m: result k1 + a * k2 at
 * place k1 * b + k2. It serves the first `most` results of n elements; m is n + most - 1 at least.
 */
export const chirpSpectrum = (dtype: Float, n: number, most: number, a: number, b: number): Constants =>
  constants(dtype, `chirp's spectrum ${n} ${most} ${a} ${b}`, () => {
    const m = a * b;
    const around = numbersOf(m, (i) => {
      if (i >= most && m - i >= n) return [0, 0];
      const [re, im] = chirpAt(i < most ? i : m - i, n);
      return [re / m, -im / m];
    });
    const found = transformed(around, m);
    return numbersOf(m, (i) => {
      const k = Math.floor(i / b) + a * (i % b);
      return [found[2 * k], found[2 * k + 1]];
    });
  });

/** The transform in doubles of a power of two, or three of it. */
function transformed(x: Numbers, n: number): Numbers {
  const roots = numbersOf(n, (k) => root(k, n));
  if (n % 3 !== 0) return transformedByTwos(x, n, roots);
  const third = n / 3;
  const everyThird = numbersOf(third, (k) => [roots[6 * k], roots[6 * k + 1]]);
  const parts = [0, 1, 2].map((r) => {
    const some = numbersOf(third, (j) => [x[2 * (3 * j + r)], x[2 * (3 * j + r) + 1]]);
    return transformedByTwos(some, third, everyThird);
  });
  return numbersOf(n, (k) => {
    let [re, im] = [0, 0];
    for (let r = 0; r < 3; r++) {
      const [at, of] = [2 * (k % third), 2 * ((r * k) % n)];
      const [a, b, c, s] = [parts[r][at], parts[r][at + 1], roots[of], roots[of + 1]];
      re += a * c - b * s;
      im += a * s + b * c;
    }
    return [re, im];
  });
}
function transformedByTwos(x: Numbers, n: number, roots: Numbers): Numbers {
  let [from, to]: Numbers[] = [x, new Float64Array(x.length)];
  for (let span = 1; span < n; span *= 2) {
    const step = n / 2 / span;
    for (let j = 0; j < n / 2; j++) {
      const k = j % span;
      const [c, s] = [roots[2 * k * step], roots[2 * k * step + 1]];
      const [a, b] = [2 * j, 2 * (j + n / 2)];
      const [re, im] = [from[b] * c - from[b + 1] * s, from[b] * s + from[b + 1] * c];
      const at = 2 * (2 * (j - k) + k);
      [to[at], to[at + 1]] = [from[a] + re, from[a + 1] + im];
      [to[at + 2 * span], to[at + 2 * span + 1]] = [from[a] - re, from[a + 1] - im];
    }
    [from, to] = [to, from];
  }
  return from;
}
export const pairBytes = (dtype: Float): number => 2 * bytesOf(dtype);
