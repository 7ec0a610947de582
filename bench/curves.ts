// The picture of docs/bench-h200-growth.json, which bench/growth.js measures: a small plot for each curve, wick and
// PyTorch in each. `node dist/bench/curves.js` writes docs/pictures/growth.svg; a test holds it to the record.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../src/base/paths.js';

/** A size and the rate at it. */
export type Point = readonly [size: number, rate: number];
export interface Curve {
  readonly ours: readonly Point[];
  readonly torch?: readonly Point[];
}
export type CurveName = keyof typeof PANELS;
export const GROWTH = 'docs/bench-h200-growth.json';
export const CURVES = 'docs/pictures/growth.svg';

/** What stands over each plot and under it. */
const PANELS = {
  elementwise: { title: 'sum of two tensors, GB/s', under: 'bytes of each' },
  prompt: { title: 'reading a prompt, Llama 1B, tokens/s', under: 'tokens of the prompt' },
  decode: { title: 'one answer, Llama 1B, tokens/s', under: 'tokens before it' },
  batch: { title: 'answers side by side, Llama 1B, tokens/s', under: 'answers, 512 tokens before each' },
  training: { title: 'training, tokens/s', under: 'parameters' },
  threads: { title: '1024 x 1024 product on the CPU, GFLOP/s', under: 'threads' },
} as const satisfies Readonly<Record<string, { title: string; under: string }>>;

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, COLUMNS] = [400, 250, 58, 30, 36, 46, 2];
const COLOURS = { ours: '#2f7d5b', torch: '#c4692f' } as const;

/** 1500 as 1.5K; a power of two by powers of 1024: 32768 as 32K. */
function short(n: number): string {
  const base = Number.isInteger(Math.log2(n)) ? 1024 : 1000;
  const units = ['', 'K', 'M', 'G', 'T'];
  const power = Math.max(0, Math.floor(Math.log(n) / Math.log(base) + 1e-9));
  return `${Number((n / base ** power).toPrecision(base === 1024 ? 3 : 2))}${units[power]}`;
}
/** Decades within a range, and its ends where it spans few. */
function marks(low: number, high: number): number[] {
  const decades = [];
  for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high; e++) decades.push(10 ** e);
  return decades.length >= 3 ? decades : [low, Math.sqrt(low * high), high];
}
function panel(name: CurveName, { ours, torch = [] }: Curve): string {
  const { title, under } = PANELS[name];
  const all = [...ours, ...torch];
  const [xs, ys] = [all.map(([x]) => x), all.map(([, y]) => y)];
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys) / 1.2, Math.max(...ys) * 1.2];
  const along = (v: number, low: number, high: number): number => Math.log(v / low) / Math.log(high / low);
  const px = (x: number): number => LEFT + along(x, x0, x1) * (WIDTH - LEFT - RIGHT);
  const py = (y: number): number => HEIGHT - BOTTOM - along(y, y0, y1) * (HEIGHT - TOP - BOTTOM);
  const line = (points: readonly Point[], colour: string): string =>
    points.length === 0
      ? ''
      : `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points
          .map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`)
          .join(' ')}"/>${points
          .map(([x, y]) => `<circle cx="${px(x).toFixed(1)}" cy="${py(y).toFixed(1)}" r="2.5" fill="${colour}"/>`)
          .join('')}`;
  const heights = marks(y0, y1).map(
    (y) =>
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${py(y).toFixed(1)}" y2="${py(y).toFixed(1)}" stroke="#e4e4e4"/>` +
      `<text x="${LEFT - 6}" y="${(py(y) + 4).toFixed(1)}" text-anchor="end">${short(y)}</text>`,
  );
  const every = Math.ceil(ours.length / 6);
  const sizes = ours
    .filter((_, i) => i % every === 0)
    .map(([x]) => `<text x="${px(x).toFixed(1)}" y="${HEIGHT - BOTTOM + 16}" text-anchor="middle">${short(x)}</text>`);
  return [
    `<text x="${LEFT}" y="22" font-size="14" font-weight="600">${title}</text>`,
    ...heights,
    ...sizes,
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 10}" text-anchor="middle" fill="#666">${under}</text>`,
    line(torch, COLOURS.torch),
    line(ours, COLOURS.ours),
  ].join('\n');
}
/** The picture as the text of an SVG file, on a ground of its own so that it reads on dark pages, too. */
export function growthPicture(): string {
  const { curves } = JSON.parse(readFileSync(join(packageRoot, GROWTH), 'utf8')) as {
    readonly curves: Readonly<Partial<Record<CurveName, Curve>>>;
  };
  const names = (Object.keys(PANELS) as CurveName[]).filter((name) => curves[name]);
  const [width, height] = [COLUMNS * WIDTH, 46 + Math.ceil(names.length / COLUMNS) * HEIGHT];
  const panels = names.map((name, i) => {
    const [x, y] = [(i % COLUMNS) * WIDTH, 46 + Math.floor(i / COLUMNS) * HEIGHT];
    return `<g transform="translate(${x} ${y})">\n${panel(name, curves[name] as Curve)}\n</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" ` +
      'font-size="12" fill="#222">',
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    '<text x="20" y="28" font-size="16" font-weight="600">How speed grows on one H200: ' +
      `<tspan fill="${COLOURS.ours}">wick</tspan> ` +
      `<tspan fill="${COLOURS.torch}">PyTorch 2.11, not compiled</tspan></text>`,
    ...panels,
    '</svg>\n',
  ].join('\n');
}
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!existsSync(join(packageRoot, GROWTH))) throw new Error(`${GROWTH} is not there: bench/growth.js measures it`);
  writeFileSync(join(packageRoot, CURVES), growthPicture());
  console.log(`${CURVES} is written`);
}
