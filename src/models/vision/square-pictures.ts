// Pictures made square with black below or right of them, and resized as SciPy does it: blurred first where they
// become smaller, then lines between neighbours.

type Size = readonly [height: number, width: number];
const { fround } = Math;

/** Which element of `count` stands for one beyond the ends: a mirror lies on the first and on the last. */
function mirrored(at: number, count: number): number {
  if (count === 1) return 0;
  const around = 2 * count - 2;
  const within = ((at % around) + around) % around;
  return within < count ? within : around - within;
}
/** How much neighbours count, from the middle outwards. */
function bell(spread: number): number[] {
  const radius = Math.trunc(4 * spread + 0.5);
  const heights = Array.from({ length: radius + 1 }, (_, i) => Math.exp((-0.5 / (spread * spread)) * i * i));
  const sum = heights.reduce((a, b, i) => a + (i === 0 ? b : 2 * b), 0);
  return heights.map((h) => h / sum);
}
/** Blurs lines of `count` numbers that lie `step` apart, one for each of `starts`. */
function blur(data: Float32Array, count: number, step: number, starts: Iterable<number>, spread: number): void {
  if (spread <= 1e-15) return;
  const weights = bell(spread);
  const line = new Float32Array(count);
  for (const start of starts) {
    for (let i = 0; i < count; i++) line[i] = data[start + i * step];
    for (let i = 0; i < count; i++) {
      let sum = line[i] * weights[0];
      for (let k = weights.length - 1; k > 0; k--)
        sum += (line[mirrored(i - k, count)] + line[mirrored(i + k, count)]) * weights[k];
      data[start + i * step] = sum;
    }
  }
}
/** For each of `to` places between `from` ones: its two neighbours, and how much the second counts. */
function neighbours(from: number, to: number): (readonly [first: number, second: number, share: number])[] {
  return Array.from({ length: to }, (_, i) => {
    const at = (from / to) * (i + 0.5) - 0.5;
    // A place beyond an end is one as far within it.
    const inside =
      at < 0 ? Math.min(-at, Math.max(0, from - 1)) : at > from - 1 ? Math.max(0, 2 * (from - 1) - at) : at;
    const first = Math.floor(inside);
    return [mirrored(first, from), mirrored(first + 1, from), inside - first];
  });
}

/** Zeros below or right of numbers (3, h, w), until they are square. */
export function squared(data: Float32Array, [h, w]: Size): { readonly data: Float32Array; readonly side: number } {
  const side = Math.max(h, w);
  const square = new Float32Array(3 * side * side);
  for (let row = 0; row < 3 * h; row++)
    square.set(data.subarray(row * w, (row + 1) * w), (Math.floor(row / h) * side + (row % h)) * side);
  return { data: square, side };
}

/** Numbers (3, h, w) in another size. */
export function zoomed(given: Float32Array, [h, w]: Size, [tall, wide]: Size): Float32Array {
  const data = given.slice();
  const rows = function* (): Generator<number> {
    for (let row = 0; row < 3 * h; row++) yield row * w;
  };
  const columns = function* (): Generator<number> {
    for (let c = 0; c < 3; c++) for (let x = 0; x < w; x++) yield c * h * w + x;
  };
  blur(data, h, w, columns(), Math.max(0, (h / tall - 1) / 2));
  blur(data, w, 1, rows(), Math.max(0, (w / wide - 1) / 2));
  const [down, across] = [neighbours(h, tall), neighbours(w, wide)];
  let [least, most] = [Infinity, -Infinity];
  for (const v of given) [least, most] = [Math.min(least, v), Math.max(most, v)];
  const made = new Float32Array(3 * tall * wide);
  for (let c = 0; c < 3; c++)
    for (let y = 0; y < tall; y++) {
      const [top, bottom, below] = down[y];
      const [upper, lower] = [(c * h + top) * w, (c * h + bottom) * w];
      for (let x = 0; x < wide; x++) {
        const [left, right, beside] = across[x];
        const above = data[upper + left] * (1 - below) * (1 - beside) + data[upper + right] * (1 - below) * beside;
        const under = data[lower + left] * below * (1 - beside) + data[lower + right] * below * beside;
        made[(c * tall + y) * wide + x] = Math.min(most, Math.max(least, fround(above + under)));
      }
    }
  return made;
}
